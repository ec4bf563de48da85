"""`vcs-runtime engine build`: built by a stand-in for TensorRT's package, measured, refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support import stand_in, tensorrt_stand_in
from support.changed_bundles import edit
from support.engines import TEXTS, built, run
from support.tensorrt_stand_in import BuilderFlag, Built
from support.tiny_bert import build_tiny_bundle
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.checks import tensorrt_engines
from vcs_export.errors import ExportError
from vcs_runtime import DeviceError, Embedder
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.segmentation.boundary_model import BoundaryModel


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, home: Path) -> stand_in.Machine:
    return stand_in.put_in(monkeypatch)


@pytest.fixture
def tensorrt(machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Built:
    return tensorrt_stand_in.put_in(monkeypatch, tmp_path / "networks")


@pytest.fixture
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_engines, "job_texts", lambda: TEXTS)


def files(home: Path) -> list[str]:
    """Names of what lies in the folders of engines."""
    return sorted(path.name for path in home.rglob("*") if path.is_file())


@pytest.mark.usefixtures("few_texts")
def test_a_strongly_typed_engine_is_built_and_listed(
    tiny_bundle: Path, tensorrt: Built, home: Path
) -> None:
    before = sorted((path, path.stat().st_mtime) for path in tiny_bundle.rglob("*"))
    done = run("engine", "build", tiny_bundle)
    assert done.exit_code == 0, done.output
    assert "building engines is experimental: nobody has run it" in done.stderr
    assert "embedder: NVIDIA H200 (sm90), TensorRT 10.16.1, ONNX Runtime 1.31.1" in done.stderr
    cosine = r"(?:0\.99999|1\.00000)\d\d"  # near to the square of fp16's rounding
    assert re.search(
        rf"cosine of fp16 to the bundle's vectors, 7 texts: mean {cosine}, lowest {cosine}\n",
        done.stderr,
    )
    assert re.search(
        r"embedder differs from CUDA by \d\.\de-\d\d at most, 2e-03 allowed; \d+\.\d\d times as"
        r" fast",
        done.stderr,
    )
    [network] = tensorrt.networks
    assert network["flags"] == 1 << 1  # STRONGLY_TYPED alone: 0 would be the weakly typed network
    assert BuilderFlag.TF32 not in network["builder_flags"]
    kinds = {
        tensor.data_type for tensor in network["graph"].graph.initializer if len(tensor.dims) == 2
    }
    assert onnx.TensorProto.FLOAT16 in kinds
    shape = ((1, 1), (1024, 16), (1024, 32))
    assert network["shapes"] == [{"input_ids": shape, "attention_mask": shape}]
    assert files(home) == ["1024x32.engine", "1024x32.onnx", "engines.json"]
    [folder] = (home / "engines").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted((path, path.stat().st_mtime) for path in tiny_bundle.rglob("*")) == before
    assert done.stdout.split("/")[-1] == "1024x32.engine\n"


def test_the_graph_of_an_engine_is_as_onnx_runtime_writes_it(
    tiny_bundle: Path, tensorrt: Built, home: Path
) -> None:
    built(tiny_bundle, (8, 32))
    [path] = home.rglob("8x32.onnx")
    graph = onnx.load(path).graph
    [node] = graph.node
    assert (node.op_type, node.domain) == ("EPContext", "com.microsoft")
    assert {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute} == {
        "embed_mode": 0,
        "ep_cache_context": b"8x32.engine",
        "hardware_architecture": b"90",
        "main_context": 1,
        "max_size": 0,
        "onnx_model_filename": b"model.onnx",
        "source": b"TensorrtExecutionProvider",
    }
    source = onnx.load(tiny_bundle / "embedder" / "model.onnx", load_external_data=False).graph
    for ours, theirs in ((graph.input, source.input), (graph.output, source.output)):
        assert [(item.name, item.type) for item in ours] == [
            (item.name, item.type) for item in theirs
        ]
    assert list(node.input) == [item.name for item in graph.input]
    assert list(node.output) == [item.name for item in graph.output]


@pytest.mark.parametrize(
    ("longest", "sizes"),
    [(900, [(512, 64), (35, 912)]), (32, [(1024, 32)]), (8192, [(512, 64), (32, 1024), (4, 8192)])],
)
def test_chunks_documents_and_the_longest_texts_have_an_engine_each(
    tmp_path: Path, longest: int, sizes: list[tuple[int, int]]
) -> None:
    bundle = build_tiny_bundle(tmp_path, max_tokens=32)
    edit(bundle, lambda data: data["embedder"].update(max_tokens=longest))
    spec = open_bundle(bundle).manifest.embedder
    assert spec is not None
    assert tensorrt_engines.largest_batches(spec) == sizes


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (
            "11.4.0.106",
            "loads engines of TensorRT 10, and the Python package tensorrt is 11.4.0.106",
        ),
        ("10.9.0.34", "the Python package tensorrt is 10.9.0.34, and libnvinfer.so.10 is 10.16.1"),
        (
            None,
            (
                r"needs the Python package tensorrt .*pip install"
                r" 'tensorrt-cu13==10\.\*'.*\[tensorrt\].*pypi\.nvidia"
            ),
        ),
    ],
)
def test_a_missing_or_other_python_package_is_named(
    tiny_bundle: Path,
    tensorrt: Built,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    says: str,
) -> None:
    if version:
        monkeypatch.setattr(sys.modules["tensorrt"], "__version__", version)
    else:
        monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(DeviceError, match=says):
        built(tiny_bundle)


def test_older_versions_of_the_python_package_have_three_numbers(
    tiny_bundle: Path, tensorrt: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", "10.16.1")
    assert built(tiny_bundle)


def test_a_build_that_fails_has_tensorrts_own_words_and_leaves_what_was(
    tiny_bundle: Path, tensorrt: Built, machine: stand_in.Machine, home: Path
) -> None:
    built(tiny_bundle, (8, 32))
    tensorrt.fails = "Error Code 10: Could not find any implementation for node"
    with pytest.raises(
        ExportError, match="embedder: TensorRT builds no engine: Error Code 10"
    ) as error:
        built(tiny_bundle)
    assert "chatter" not in str(error.value)
    tensorrt.refuses = "Attention has no kernel"
    with pytest.raises(
        ExportError, match="parser refuses the graph: Attention node_7: Attention has no kernel"
    ):
        built(tiny_bundle)
    tensorrt.fails = tensorrt.refuses = ""
    machine.starts = False
    with pytest.raises(DeviceError, match="fell back"):  # it does not load
        built(tiny_bundle)
    assert files(home) == ["8x32.engine", "8x32.onnx", "engines.json"]


def test_a_model_that_loses_too_much_in_half_precision_is_refused(
    tiny_bundle: Path, tensorrt: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A mean that rounds to 1 is less, too.
    monkeypatch.setattr(tensorrt_engines, "_LEAST_COSINE", 1.1)
    with pytest.raises(
        ExportError, match=r"tiny-bert loses too much in fp16: cosines mean \d\.\d{7}, lowest "
    ):
        built(tiny_bundle)
    assert not tensorrt.networks


def test_what_is_no_encoder_is_refused_before_anything_is_built(
    tmp_path: Path, tensorrt: Built
) -> None:
    with pytest.raises(
        ExportError, match="is a decoder, which CUDA runs without padding: use cuda:N"
    ):
        built(build_tiny_nv_embed_bundle(tmp_path))
    sat = build_tiny_sat_bundle(tmp_path / "sat")
    edit(sat, lambda data: data["segmenter"]["model"].update(precision="int8"))
    with pytest.raises(ExportError, match="from graphs in fp32 or fp16, and tiny-sat is in int8"):
        built(sat)
    assert not tensorrt.networks


def test_speed_is_measured_on_texts_like_those_of_a_job() -> None:
    lengths = [len(text.split()) for text in set(tensorrt_engines.job_texts())]
    assert sorted(lengths) == [20] * 630 + [450] * 27


def changed_by(difference: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let engines give other numbers than CUDA, all by the same amount."""
    for model, name in ((Embedder, "embed"), (BoundaryModel, "probabilities")):
        real = getattr(model, name)

        def run(self: Any, *texts: Any, real: Any = real, **options: Any) -> Any:
            results = real(self, *texts, **options)
            if not self.device.engines:
                return results
            return [rows + np.float32(difference) for rows in results]

        monkeypatch.setattr(model, name, run)


@pytest.mark.usefixtures("tensorrt", "few_texts")
@pytest.mark.parametrize("part", ["embedder", "segmenter"])
def test_engines_that_compute_something_else_are_not_kept(
    tiny_bundle: Path, sat_bundle: Path, monkeypatch: pytest.MonkeyPatch, home: Path, part: str
) -> None:
    changed_by(0.05, monkeypatch)
    with pytest.raises(
        ExportError, match=rf"{part} differs from CUDA by .*: the engines are not kept"
    ):
        built(tiny_bundle if part == "embedder" else sat_bundle)
    assert files(home) == []


@pytest.mark.usefixtures("tensorrt", "few_texts")
def test_probabilities_may_differ_more_than_numbers_of_vectors(
    tiny_bundle: Path, sat_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are rounded to fp16, of which logits have larger numbers than unit vectors."""
    changed_by(0.01, monkeypatch)
    assert built(sat_bundle)
    with pytest.raises(ExportError, match="embedder differs from CUDA by .*, 2e-03 allowed"):
        built(tiny_bundle)


def test_without_a_gpu_nothing_is_built(tiny_bundle: Path) -> None:
    with pytest.raises(DeviceError, match="tensorrt:0: the installed ONNX Runtime has no Tensorrt"):
        built(tiny_bundle)


def test_another_device_is_refused(tiny_bundle: Path) -> None:
    done = run("engine", "build", tiny_bundle, "--device", "cuda:0")
    assert str(done.exception) == "cuda:0: engines are built on a GPU named as tensorrt:N"
