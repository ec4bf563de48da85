"""The long form of a signature: versions and processor, which may round otherwise."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from support.command_line import vcs
from support.processes import run_python
from support.stories import story, write_pairs
from vcs_runtime.inference.device import import_onnxruntime
from vcs_runtime.scoring.signature import long_form

ORT = f"|ort:{import_onnxruntime().__version__}|"


def test_it_names_what_runs_the_models() -> None:
    plain = "vcs|def:1.0.0|seg:a@1|emb:b@2|prec:fp32|engine:ort-cpu|v:1"
    line = long_form(plain)
    assert line.startswith(f"{plain}{ORT}")
    rest = line.removeprefix(f"{plain}{ORT}").split("|")
    libraries = ("tokenizers", "numpy", "numba")
    assert rest[:3] == [f"{library}:{version(library)}" for library in libraries]
    assert rest[3].startswith(f"cpu:{platform.machine().lower()}")
    assert len(rest) == 4
    # Models of the caller are run by nothing that is known.
    assert "|ort:" not in long_form("vcs|seg:mine|emb:mine|v:1")
    # The learned segmenter alone.
    assert ORT in long_form("vcs|seg:a@1|cut:0.5/118/fp32|emb:mine|v:1")


def test_it_names_openvino_where_that_engine_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    own = f"|openvino:{version('openvino')}|"
    both = long_form("vcs|seg:a@1|cut:0.5/118/fp32|emb:b@2|engine:openvino|v:1")
    assert ORT.rstrip("|") + own in both
    alone = long_form("vcs|seg:a@1|cut:0.5/118/bf16/openvino/amx|emb:b@2|engine:openvino|v:1")
    assert own in alone
    assert "|ort:" not in alone
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2|v:9")
    assert f"{own}onednn:AVX2_v_9|" in long_form(alone)
    assert "onednn" not in long_form("vcs|engine:ort-cpu|v:1")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("OV_CPU_MAX_ISA", "avx2")
    assert f"{own}dnnl:AVX2|ovcpu:avx2|" in long_form(alone)


def test_another_kind_of_processor_has_another_long_form() -> None:
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    if not simd.get("found"):
        pytest.skip("NumPy finds nothing on this processor that it could do without")
    code = "from vcs_runtime.scoring.signature import long_form; print(long_form('vcs|v:1'))"
    limited = os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(simd["found"])}
    done = run_python("-c", code, env=limited, check=True)
    assert done.stdout.strip() != long_form("vcs|v:1")
    assert done.stdout.startswith("vcs|v:1|numpy:")


def test_the_summary_of_a_job_has_it(tiny_bundle: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "p.jsonl", [{"reference": story(1), "generated": story(2)}])
    job = ("score", tmp_path / "p.jsonl", "--bundle", tiny_bundle, "--device", "cpu")
    summary = json.loads(vcs(*job, "--json").stdout)
    assert summary["signature_long"] == long_form(summary["signature"])
