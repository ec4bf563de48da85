"""TensorRT engines, built by NVIDIA's package and loaded by ONNX Runtime, over stand-ins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.cuda_stand_ins import DryGpu, WatchedSession, mark, watch_sessions
from support.gpu_bundles import SHAPES, GpuBundles, texts_of
from support.tensorrt_stand_ins import (
    Loaded,
    built_on,
    engine_runs,
    loaded_engines,
    use_nvidias_package,
    with_tensorrt,
)
from vcs_export.checks import tensorrt_engines
from vcs_runtime.bundle.opening import open_bundle

STRONGLY_TYPED = 1 << 1


@pytest.fixture(scope="module")
def tensorrt_gpu(dry_gpu: DryGpu) -> DryGpu:
    return with_tensorrt(dry_gpu)


def build(bundle: str, device: str = "tensorrt:0") -> list[str]:
    use_nvidias_package()
    tensorrt_engines.job_texts = lambda: texts_of([600, 26])
    lines: list[str] = []
    paths = tensorrt_engines.build_engines(open_bundle(bundle), device, log=lines.append)
    return [*lines, *map(str, paths)]


def embed(bundle: str, shapes: dict[str, list[int]]) -> list[WatchedSession]:
    from vcs_runtime import Embedder

    sessions = watch_sessions()
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        for name, lengths in shapes.items():
            mark(name)
            embedder.embed(texts_of(lengths))
    return sessions


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("home")
def test_onnx_runtime_loads_what_nvidias_package_has_built(
    tensorrt_gpu: DryGpu, bundles: GpuBundles
) -> None:
    bundle = str(bundles.bert())
    built = tensorrt_gpu.call(build, bundle)
    assert [Path(path).name for path in built.value[-2:]] == ["32x1024.engine", "512x64.engine"]
    assert re.search(r"TensorRT 10\.16\.1, ONNX Runtime 1\.31\.1", "\n".join(built.value))
    run = tensorrt_gpu.call(embed, bundle, SHAPES, vectors=32)
    assert loaded_engines(run.log) == [Loaded(STRONGLY_TYPED, 0, 3)] * 2
    assert [session.nodes("CPU") for session in run.value] == [[], []]
    assert all(len(session.nodes("Tensorrt")) == 1 for session in run.value)
    rows = {name: [_rows(line) for line in engine_runs(run.log[name])] for name in SHAPES}
    assert {name: sum(counts) for name, counts in rows.items()} == {
        name: len(SHAPES[name]) for name in SHAPES
    }
    assert rows["630 x 26"] == [512, 118]
    assert rows["27 x 600"] == [27]


@pytest.mark.usefixtures("home")
def test_an_engine_is_built_on_the_gpu_that_was_named(
    tensorrt_gpu: DryGpu, bundles: GpuBundles
) -> None:
    log = tensorrt_gpu.call(build, str(bundles.bert()), "tensorrt:1", gpus=2).log
    assert built_on(log) == [1, 1]
    assert {event.gpu for event in log.memory} <= {1}


@pytest.mark.usefixtures("home")
def test_the_builders_own_words_end_a_build_that_fails(
    tensorrt_gpu: DryGpu, bundles: GpuBundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = str(bundles.bert())
    monkeypatch.setenv("STAND_IN_TENSORRT_FAILS", "Could not find any implementation for node")
    with pytest.raises(
        AssertionError, match="embedder: TensorRT builds no engine: Could not find any"
    ):
        tensorrt_gpu.call(build, bundle)


@pytest.mark.usefixtures("home")
def test_a_learned_segmenter_has_an_engine_too(tensorrt_gpu: DryGpu, bundles: GpuBundles) -> None:
    bundle = bundles.sat("fp16")
    [*_, path] = tensorrt_gpu.call(build, str(bundle)).value
    assert path.endswith(".engine")
    run = tensorrt_gpu.call(segment, str(bundle))
    assert loaded_engines(run.log)
    assert engine_runs(run.log)


def segment(bundle: str) -> None:
    from vcs_runtime import Segmenter

    with Segmenter.open(bundle, "tensorrt:0", use="learned") as segmenter:
        segmenter.split(texts_of([40, 60]))


def _rows(line: str) -> int:
    return int(line.split(",")[0].split()[1].split("x")[0])
