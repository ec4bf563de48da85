"""What goes to a machine with a GPU: a CUDA provider of one architecture, and the script that measures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

from support.cuda_stand_ins import DryGpu, mark, provider_library
from support.gpu_bundles import GpuBundles
from vcs_runtime import Embedder

BENCHMARKS = Path(__file__).parents[2] / "benchmarks/gpu"


def embed(bundle: str) -> str:
    with Embedder.open(bundle, "cuda:0") as embedder:
        mark("texts")
        embedder.embed(["ba be bi bo", "bo ba"])
    return str(Path(onnxruntime.__file__).parent)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def test_a_provider_of_one_architecture_loads_and_launches_the_same_kernels(
    dry_gpu: DryGpu, bundles: GpuBundles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = str(bundles.nv_embed("fp16"))
    whole = dry_gpu.call(embed, bundle)
    library = provider_library()
    package = tmp_path / "onnxruntime"
    shutil.copytree(library.parents[1], package, copy_function=_link)
    thin = package / "capi" / library.name
    thin.unlink()
    command = [sys.executable, str(BENCHMARKS / "fatbin.py"), str(library), str(thin), "--architecture", "90"]
    subprocess.run(command, check=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    ours = dry_gpu.call(embed, bundle)
    assert ours.value == str(package)
    assert ours.log["texts"].launches == whole.log["texts"].launches
    assert len(ours.log["texts"].kernels) > 20
    # The file keeps its length, and most of it is zeros now.
    assert thin.stat().st_size == library.stat().st_size
    assert thin.read_bytes().count(b"\0" * 4096) * 4096 > 0.4 * thin.stat().st_size


def test_every_section_measures_on_a_gpu(dry_gpu: DryGpu, tmp_path: Path) -> None:
    path, log = tmp_path / "results.json", tmp_path / "log"
    log.touch()
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "measure.py"), "--tiny", "--device", "cuda:0", "--json", str(path)],
        env=dry_gpu.environment(log, vectors=64), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text("utf-8"))["rows"]
    assert [row for row in rows if "failed" in row] == []
    measured = {row["what"] for row in rows if row.get("tokens/s", 0) > 0 or row.get("pairs/s", 0) > 0}
    assert measured >= {
        "packed, 27x600", "varlen, one pair", "packed, bf16, 2 layers, 630x26", "varlen, int8, 2 layers, block",
        "varlen, fp8, 2 layers, 27x600", "6 pairs, references cached", "varlen, alone and among others",
    }  # fmt: skip
    arenas = {row["what"]: row for row in rows if row["section"] == "memory"}
    assert arenas["kSameAsRequested, no limit"]["peak GB"] > 0
    assert arenas["kNextPowerOfTwo, no limit"]["released GB"] < 0.001
