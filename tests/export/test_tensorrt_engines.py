"""`vcs-runtime engine`: engines that a fake builder makes, and their comparison with CUDA."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support import fake_tensorrt
from support.changed_bundles import edit
from support.engines import TEXTS, built, checked, run
from support.fake_tensorrt import Fake, files
from support.tiny_bert import build_tiny_bundle
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.checks import tensorrt_engines
from vcs_export.errors import ExportError
from vcs_runtime import DeviceError, Embedder
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.rtx_session import CAPABILITIES
from vcs_runtime.inference.tensorrt import profiles_of
from vcs_runtime.segmentation.boundary_model import BoundaryModel


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, home: Path) -> Fake:
    return fake_tensorrt.put_in(monkeypatch)


def test_a_strongly_typed_engine_is_built_without_a_gpu(
    tiny_bundle: Path, fake: Fake, home: Path, tmp_path: Path
) -> None:
    fake.machine.libraries.clear()
    before = sorted((path, path.stat().st_mtime) for path in tiny_bundle.rglob("*"))
    done = run("engine", "build", tiny_bundle, "--log", tmp_path / "build.log")
    assert done.exit_code == 0, done.output
    assert "cosine of fp16 to the bundle's vectors, 7 texts: mean" in done.stderr
    said = "tiny-bert: by tensorrt-rtx 1.7.1.116 for sm80, sm86, sm89, sm120, sm121\n"
    assert said in done.stderr
    assert "tiny-bert: batches up to 1024 x 32 tokens, " in done.stderr
    [build] = fake.builds
    assert build.network.flags == 1 << 0  # STRONGLY_TYPED; 0 would be a weakly typed network
    assert build.config.cleared == {"TF32"}
    assert list(build.config.capabilities.values()) == [name.upper() for name in CAPABILITIES]
    graph = onnx.load_model_from_string(build.network.graph).graph
    kinds = {tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 2}
    assert onnx.TensorProto.FLOAT16 in kinds
    shape = ((1, 1), (1024, 32))
    assert build.config.profiles == [{"input_ids": shape, "attention_mask": shape}]
    assert files(home) == ["engine.json", "engine.plan"]
    assert (tmp_path / "build.log").read_text().startswith("INFO parsing ")
    assert sorted((path, path.stat().st_mtime) for path in tiny_bundle.rglob("*")) == before
    [folder] = (home / "engines").iterdir()
    assert done.stdout == f"{folder}/engine.plan\n"
    assert json.loads((folder / "engine.json").read_text())["sha256"] in done.stderr


@pytest.mark.parametrize(
    ("longest", "sizes"),
    [
        (900, [(512, 64), (36, 900)]),
        (514, [(512, 64), (63, 516)]),  # its table of positions ends there
        (32, [(1024, 32)]),
        (8192, [(512, 64), (32, 1024), (4, 8192)]),
    ],
)
def test_chunks_documents_and_the_longest_texts_have_a_profile_each(
    tmp_path: Path, longest: int, sizes: list[tuple[int, int]]
) -> None:
    bundle = build_tiny_bundle(tmp_path, max_tokens=32)
    edit(bundle, lambda data: data["embedder"].update(max_tokens=longest))
    spec = open_bundle(bundle).manifest.embedder
    assert spec is not None
    assert list(profiles_of(spec)) == sizes


@pytest.mark.usefixtures("home")
def test_without_tensorrt_the_extra_is_named(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_rtx_bindings", None)
    done = run("engine", "build", tiny_bundle)
    assert "install `vcs-runtime[tensorrt]`" in str(done.exception)


def test_nvidias_own_tensorrt_builds_for_this_gpu(
    tiny_bundle: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["tensorrt_rtx_bindings"]
    monkeypatch.setitem(sys.modules, "tensorrt_rtx_bindings", None)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    monkeypatch.setattr(module, "__spec__", object())
    monkeypatch.delattr(module, "ComputeCapability")
    monkeypatch.delattr(module, "NetworkDefinitionCreationFlag")
    monkeypatch.setattr(module, "NetworkDefinitionCreationFlag", object(), raising=False)
    fake.machine.architecture, fake.machine.gpu = (9, 0), "NVIDIA H100"
    done = run("engine", "build", tiny_bundle)
    assert "by tensorrt 1.7.1.116 for NVIDIA H100 (sm90)" in done.stderr
    [build] = fake.builds
    assert (build.network.flags, build.config.capabilities) == (0, {})


def test_a_build_that_fails_has_tensorrts_own_words_and_leaves_what_was(
    tiny_bundle: Path, fake: Fake, home: Path
) -> None:
    built(tiny_bundle)
    before = files(home), Embedder.open(tiny_bundle, "tensorrt:0").close()
    fake.fails = "Error Code 10: Could not find any implementation for node"
    with pytest.raises(
        ExportError, match="tiny-bert: TensorRT builds no engine: Error Code 10"
    ) as error:
        built(tiny_bundle)
    assert "chatter" not in str(error.value)
    assert files(home) == [*before[0][:2], "kernels-NVIDIA-L4.bin"]
    Embedder.open(tiny_bundle, "tensorrt:0").close()


def test_a_model_that_loses_too_much_in_half_precision_is_refused(
    tiny_bundle: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A mean that rounds to 1 is less, too.
    monkeypatch.setattr(tensorrt_engines, "_LEAST_COSINE", 1.1)
    done = run("engine", "build", tiny_bundle)
    assert "tiny-bert loses too much in fp16: cosines mean " in str(done.exception)
    assert not fake.builds


def test_what_is_no_encoder_is_refused_before_anything_is_built(tmp_path: Path, fake: Fake) -> None:
    with pytest.raises(ExportError, match="operators that TensorRT lacks: use cuda:N"):
        built(build_tiny_nv_embed_bundle(tmp_path))
    sat = build_tiny_sat_bundle(tmp_path / "sat")
    edit(sat, lambda data: data["segmenter"]["model"].update(precision="int8"))
    with pytest.raises(ExportError, match="from graphs in fp32 or fp16, but tiny-sat is in int8"):
        built(sat)
    assert not fake.builds


def test_speed_is_measured_on_texts_like_those_of_a_job() -> None:
    lengths = [len(text.split()) for text in set(tensorrt_engines.job_texts())]
    assert sorted(lengths) == [20] * 630 + [450] * 27


def changed_by(difference: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let engines give other numbers than CUDA, all by the same amount."""
    for model, name in ((Embedder, "embed"), (BoundaryModel, "probabilities")):
        real = getattr(model, name)

        def run(self: Any, *texts: Any, real: Any = real, **options: Any) -> Any:
            results = real(self, *texts, **options)
            if not self.device.engine:
                return results
            return [rows + np.float32(difference) for rows in results]

        monkeypatch.setattr(model, name, run)


@pytest.mark.parametrize("part", ["embedder", "segmenter"])
@pytest.mark.parametrize("difference", [0.05, float("nan")])
def test_engines_that_compute_something_else_are_not_used_by_auto(
    tiny_bundle: Path,
    sat_bundle: Path,
    fake: Fake,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    difference: float,
) -> None:
    bundle = built(tiny_bundle if part == "embedder" else sat_bundle)
    checked(bundle, 2.0)
    changed_by(difference, monkeypatch)
    with pytest.raises(ExportError, match=rf"{part} differs from CUDA by .*: use cuda:0"):
        checked(bundle, 2.0)
    [record] = home.rglob("engine.json")
    assert json.loads(record.read_text())["times_cuda"] == {}


def test_probabilities_may_differ_more_than_numbers_of_vectors(
    tiny_bundle: Path, sat_bundle: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are rounded to fp16, of which logits have larger numbers than unit vectors."""
    changed_by(0.01, monkeypatch)
    checked(built(sat_bundle), 2.0)
    with pytest.raises(ExportError, match="embedder differs from CUDA by .*, 2e-03 allowed"):
        checked(built(tiny_bundle), 2.0)


def test_a_check_needs_an_engine_and_its_gpu(tiny_bundle: Path, fake: Fake) -> None:
    with pytest.raises(DeviceError, match="run `vcs-runtime engine build"):
        checked(tiny_bundle, 1.0)
    built(tiny_bundle)
    fake.machine.gpus = 0
    done = run("engine", "check", tiny_bundle)
    assert "there is no such GPU" in str(done.exception)


@pytest.mark.usefixtures("fake")
def test_a_check_prints_what_it_found(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tiny_bundle)
    monkeypatch.setattr(tensorrt_engines, "job_texts", lambda: TEXTS)
    done = run("engine", "check", tiny_bundle)
    assert done.exit_code == 0, done.output
    assert "embedder differs from CUDA by " in done.stderr
    assert "2e-03 allowed; " in done.stderr
