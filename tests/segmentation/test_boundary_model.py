"""Learned segmenters: probabilities from a tiny random SaT."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime import InferenceSession

from support import stand_in
from support.changed_bundles import edit
from support.checkpoints.sat import tiny_sat_tokenizer
from support.hub_sat import Substitute, write_hub_model
from support.rounding import PROBABILITIES
from support.stories import stripped
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.families.build import Build
from vcs_export.families.sat import SatOptions, build_sat_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Scorer, Segmenter
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import BundleError, DeviceError, DeviceMemoryError
from vcs_runtime.inference.device import choose_device, describe
from vcs_runtime.inference.tensorrt import open_part
from vcs_runtime.segmentation.boundary_model import BoundaryModel

ODD = [
    "",
    " ",
    "\n\n",
    "\u200b\u200b",
    "\ufffd",
    "x",
    "a\0b",
    "<s>",
    "<s> a </s> b<pad>c <mask> d <unk>",
    "\xad",
    "👩‍👩‍👧 walks 🇫🇷 👍🏽",
    "他走进房间。坐下来",
    "دخل الرجل البيت",
    "a\r\nb\x0bc\u2028d\u2029e",
    "e\u0301x ﬁne ①",
    "\u2581 \u2581",
    "\U000e0001",
    "\ufeffa man",
    "a" * 300,
]


TEXTS = [*ODD, *(stripped(i, 1 + i % 12) for i in range(40)), stripped(50, 150), stripped(51, 90)]


def model_of(path: Path, device: str = "cpu") -> BoundaryModel:
    bundle = open_bundle(path)
    assert bundle.manifest.segmenter is not None
    assert bundle.manifest.segmenter.model is not None
    return BoundaryModel(bundle, bundle.manifest.segmenter.model, choose_device(device))


def model_on_a_gpu(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[BoundaryModel, stand_in.Machine]:
    """A model on the stand-in for a GPU, which records the shape of every run."""
    machine = stand_in.put_in(monkeypatch)
    model = model_of(path, "cuda:0:fp32")
    machine.runs.clear()
    return model, machine


def described(source: Path, target: Path, **changes: Any) -> Path:
    """A copy of a bundle whose model is described otherwise."""
    shutil.copytree(source, target)
    edit(target, lambda data: data["segmenter"]["model"].update(changes))
    return target


@pytest.fixture(scope="module")
def model(sat_bundle: Path) -> Iterator[BoundaryModel]:
    opened = model_of(sat_bundle)
    yield opened
    opened.close()


def test_one_probability_a_character(model: BoundaryModel) -> None:
    for text, values in zip(TEXTS, model.probabilities(TEXTS), strict=True):
        assert values.shape == (len(text),)
        assert values.dtype == np.float32
        assert ((values >= 0) & (values <= 1)).all()


def test_probabilities_stand_at_the_last_character_of_tokens(model: BoundaryModel) -> None:
    text = stripped(1, 8)
    tokenizer = tiny_sat_tokenizer()
    tokenizer.no_truncation()
    ends = {end - 1 for _, end in tokenizer.encode(text, add_special_tokens=False).offsets}
    assert set(np.flatnonzero(model.probabilities([text])[0]).tolist()) == ends


@pytest.mark.parametrize("text", ["", "  ", "\u200b\u200b", "\ufffd", "\n"])
def test_a_text_without_tokens_has_no_boundary(model: BoundaryModel, text: str) -> None:
    assert not model.probabilities([text])[0].any()


def test_probabilities_are_the_same_alone_batched_and_shuffled_to_the_bit(
    model: BoundaryModel,
) -> None:
    batched = model.probabilities(TEXTS)
    order = random.Random(1).sample(range(len(TEXTS)), len(TEXTS))
    shuffled = model.probabilities([TEXTS[i] for i in order])
    for i, text in enumerate(TEXTS):
        [alone] = model.probabilities([text])
        np.testing.assert_array_equal(batched[i], alone)
        np.testing.assert_array_equal(shuffled[order.index(i)], alone)


def test_padding_on_a_gpu_changes_nothing_but_rounding(
    model: BoundaryModel, sat_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = model.probabilities(TEXTS)
    gpu, machine = model_on_a_gpu(sat_bundle, monkeypatch)
    padded = gpu.probabilities(TEXTS)
    assert {length % 16 for (_, length), _ in machine.runs} == {0}
    assert max(rows for (rows, _), _ in machine.runs) > 1
    for some, other in zip(bare, padded, strict=True):
        np.testing.assert_allclose(some, other, rtol=0, atol=PROBABILITIES["fp32"])
    for text, values in zip(TEXTS, padded, strict=True):
        np.testing.assert_array_equal(gpu.probabilities([text])[0], values)
    gpu.close()


def test_each_distinct_text_is_run_once(sat_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, machine = model_on_a_gpu(sat_bundle, monkeypatch)
    first, second, third = gpu.probabilities(["a man walks", "a dog", "a man walks"])
    assert sum(rows for (rows, _), _ in machine.runs) == 2
    np.testing.assert_array_equal(first, third)
    assert len(second) == 5
    gpu.close()


def test_a_long_text_is_the_mean_of_its_windows(model: BoundaryModel, sat_bundle: Path) -> None:
    """Texts beyond the window, against the definition: half-precision sums and means."""
    text = stripped(7, 150)
    tokenizer = tiny_sat_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoding = tokenizer.encode(text, add_special_tokens=False)
    tokens = len(encoding.ids)
    starts = [*range(0, tokens - 510, 64), tokens - 510]
    assert len(starts) > 8
    session = open_part(
        open_bundle(sat_bundle), "segmenter", choose_device("cpu"), what="the segmenter"
    )
    sums, counts = np.zeros((2, tokens), np.float16)
    for start in starts:
        ids = np.array([[0, *encoding.ids[start : start + 510], 2]])
        [logits] = session.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})
        sums[start : start + 510] += logits[0, 1:-1, 0]
        counts[start : start + 510] += np.float16(1)
    expected = np.zeros(len(text), np.float32)
    mean = (sums / counts).astype(np.float32)
    # As an array: before NumPy 2 a single float32 was computed in float64.
    expected[[end - 1 for _, end in encoding.offsets]] = 1 / (1 + np.exp(-mean))
    np.testing.assert_array_equal(model.probabilities([text])[0], expected)


@pytest.mark.parametrize(
    "checkpoint",
    [{"num_labels": 111}, {"precision": "fp16"}, {"lookahead": 48}, {"layers": 1}],
    ids=["many labels", "half precision", "lookahead", "one layer"],
)
def test_models_of_other_kinds_run(tmp_path: Path, checkpoint: dict[str, Any]) -> None:
    other = model_of(build_tiny_sat_bundle(tmp_path, **checkpoint))
    for text, values in zip(TEXTS, other.probabilities(TEXTS), strict=True):
        assert values.shape == (len(text),)
        assert len(set(values.tolist())) > 1 or len(text) < 2 or not values.any()


def test_the_types_of_hub_files_are_taken_as_they_are(
    model: BoundaryModel, sat_bundle: Path, tmp_path: Path
) -> None:
    hub = write_hub_model(sat_bundle / "segmenter/model.onnx", tmp_path / "model_optimized.onnx")
    types = {entry.name: entry.type for entry in InferenceSession(hub).get_inputs()}
    assert types == {"input_ids": "tensor(int64)", "attention_mask": "tensor(float16)"}
    other = BoundaryModel(Substitute.of(sat_bundle, model=hub), model.spec, choose_device("cpu"))
    for some, values in zip(other.probabilities(TEXTS), model.probabilities(TEXTS), strict=True):
        np.testing.assert_allclose(some, values, rtol=0, atol=PROBABILITIES["fp32"])


def test_int8_runs_one_window_at_a_time(
    sat_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its activation ranges are those of the whole batch."""
    model = model_of(described(sat_bundle, tmp_path / "int8", precision="int8"))
    run = model._session.run
    shapes: list[int] = []
    monkeypatch.setattr(
        model._session,
        "run",
        lambda inputs: (shapes.append(len(inputs["input_ids"])), run(inputs))[1],
    )
    model.probabilities(["a man walks", "a dog walks", stripped(1, 3)])
    assert shapes == [1, 1, 1]
    model.close()


def test_int8_is_refused_on_a_gpu_and_auto_runs_it_on_the_cpu(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    int8 = build_tiny_sat_bundle(tmp_path, precision="int8")
    stand_in.put_in(monkeypatch)
    with pytest.raises(
        DeviceError, match=r"cuda:0: the learned segmenter tiny-sat is in int8.*--precision fp16"
    ):
        Segmenter.open(int8, "cuda:0")
    # The rest of a bundle runs on the GPU, as before.
    with Scorer.open(tiny_bundle, "auto", segmenter=int8) as scorer:
        assert scorer.embedder.device.provider_name == "ort-cuda"
        assert scorer.segmenter.device is not None
        assert scorer.segmenter.device.provider_name == "ort-cpu"
        assert "kernels: export it with `--precision fp16`" in describe(scorer.segmenter.device)
        assert describe(scorer.segmenter.device).startswith("the GPU is not used: ")
        assert scorer.score(stripped(1, 3), stripped(2, 3)).vcs is not None


def test_a_graph_whose_work_the_cpu_would_do_is_refused_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle that calls an int8 graph fp32."""
    int8 = build_tiny_sat_bundle(tmp_path, precision="int8")
    bundle = described(int8, tmp_path / "other", precision="fp32")
    stand_in.put_in(monkeypatch)
    with pytest.raises(
        DeviceError, match=r"DynamicQuantizeLinear \(12\), MatMulInteger \(18\); use `--device cpu`"
    ):
        model_of(bundle, "cuda:0")
    model_of(bundle, "cpu").close()


def test_a_tokenizer_of_another_model_is_refused(
    model: BoundaryModel, sat_bundle: Path, tmp_path: Path
) -> None:
    tokenizer = tiny_sat_tokenizer()
    tokenizer.add_tokens(["one-more"])
    tokenizer.save(str(tmp_path / "larger.json"))
    wrong = Substitute.of(sat_bundle, tokenizer=tmp_path / "larger.json")
    with pytest.raises(
        BundleError, match=r"model\.onnx does not accept the token \d+ of .*tokenizer\.json"
    ):
        BoundaryModel(wrong, model.spec, choose_device("cpu"))


def test_a_graph_that_is_not_a_learned_segmenter_is_refused(
    model: BoundaryModel, sat_bundle: Path, tiny_bundle: Path
) -> None:
    wrong = Substitute.of(
        sat_bundle,
        model=tiny_bundle / "embedder/model.onnx",
        tokenizer=tiny_bundle / "embedder/tokenizer.json",
    )
    with pytest.raises(BundleError, match="returns no logits"):
        BoundaryModel(wrong, model.spec, choose_device("cpu"))


@pytest.mark.slow
def test_memory_grows_with_the_length_of_a_text_and_no_faster(tmp_path: Path) -> None:
    checkpoint = build_tiny_sat_bundle(tmp_path, layers=1).parent / "checkpoint"
    build = Build(checkpoint, tmp_path / "long", BundleInfo("long", "CC0-1.0", "random numbers"))
    bundle = build_sat_bundle(build, SatOptions(threshold=0.25, stride=510))
    script = """
        import re, sys
        from pathlib import Path
        from vcs_runtime import Segmenter
        text = "a man walks and then the dog runs into a kitchen " * (int(sys.argv[2]) // 49)
        with Segmenter.open(sys.argv[1], device="cpu") as segmenter:
            [pieces] = segmenter.split([text])
            assert "".join(pieces) == text
        # Not getrusage, which counts what the parent had at the start.
        print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
    """

    def peak_mib(characters: int) -> float:
        command = [sys.executable, "-c", textwrap.dedent(script), str(bundle), str(characters)]
        return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) / 1024

    none, short, long = map(peak_mib, (1_000, 250_000, 1_000_000))
    print(f"{none:.0f} MiB, {short:.0f} MiB for 250,000 characters, {long:.0f} MiB for a million")
    # Four times as long is four times the memory, not sixteen times.
    assert long - none < 8 * (short - none)


def test_of_all_gpus_the_first_one_splits(
    sat_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = stand_in.put_in(monkeypatch, gpus=2)
    with Segmenter.open(sat_bundle, "cuda:all") as segmenter:
        assert segmenter.device is not None
        assert segmenter.device.index == 0
    assert len(machine.sessions) == 1


def test_a_gpu_without_memory_is_not_the_fault_of_the_bundle(
    sat_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(inputs: dict[str, Any]) -> None:
        raise RuntimeError("Failed to allocate memory for requested buffer of size 9")

    stand_in.put_in(monkeypatch, before=fail)
    with pytest.raises(DeviceMemoryError, match="Failed to allocate"):
        Segmenter.open(sat_bundle, "cuda:0")
