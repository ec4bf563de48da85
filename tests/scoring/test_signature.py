"""Equal signatures mean equal arithmetic: only what computes is in the digits."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from support import stand_in
from support.changed_bundles import edit, relist
from support.checkpoints.bert import VOCABULARY
from support.engines import run
from support.stories import story, stripped
from support.tiny_layouts import build_layout_bundle
from vcs_numba import Params
from vcs_runtime import Embedder, Scorer, Segmenter
from vcs_runtime.errors import BundleError
from vcs_runtime.scoring.options import Options

CLS, SEP = VOCABULARY["[CLS]"], VOCABULARY["[SEP]"]
PAIR = (story(1), story(2))
Change = Callable[[Path], object]


def setting(part: str, **values: Any) -> Change:
    """Change settings in bundle.json."""

    def of(data: dict[str, Any]) -> dict[str, Any]:
        return data["embedder"] if part == "embedder" else data["segmenter"]["model"]

    return lambda bundle: edit(bundle, lambda data: of(data).update(values))


def tokenizer(part: str) -> Change:
    """Let a piece of the vocabulary stand for another one."""

    def change(bundle: Path) -> None:
        path = bundle / part / "tokenizer.json"
        data = json.loads(path.read_text("utf-8"))
        vocabulary = data["model"]["vocab"]
        if isinstance(vocabulary, dict):
            vocabulary["a"], vocabulary["."] = vocabulary["."], vocabulary["a"]
        else:
            vocabulary[-1][0], vocabulary[-2][0] = vocabulary[-2][0], vocabulary[-1][0]
        path.write_text(json.dumps(data), "utf-8")
        relist(bundle)

    return change


def graph(part: str) -> Change:
    """Divide by another number, or by another root, somewhere in the graph."""

    def change(bundle: Path) -> None:
        path = bundle / part / "model.onnx"
        model = onnx.load(path, load_external_data=False)
        node = next(
            node for node in model.graph.node if node.op_type in ("LayerNormalization", "Softmax")
        )
        [value] = [
            a
            for a in node.attribute
            if a.name == ("epsilon" if node.op_type != "Softmax" else "axis")
        ]
        value.f = 0.5
        path.write_bytes(model.SerializeToString())
        relist(bundle)

    return change


def weights(part: str) -> Change:
    """Exchange the signs of some numbers."""

    def change(bundle: Path) -> None:
        path = bundle / part / "model.onnx.data"
        data = bytearray(path.read_bytes())
        data[3:4000:4] = bytes(byte ^ 128 for byte in data[3:4000:4])
        path.write_bytes(data)
        relist(bundle)

    return change


def moved(part: str) -> Change:
    """Give the tokenizer another path."""

    def change(bundle: Path) -> None:
        (bundle / part / "tokenizer.json").rename(bundle / "words.json")
        setting(part, tokenizer="words.json")(bundle)
        relist(bundle)

    return change


def fields(signature: str) -> dict[str, str]:
    return dict(field.split(":", 1) for field in signature.split("|")[1:])


@pytest.mark.parametrize("precision", ["fp32|engine:ort-cpu|v:9.9", "fp32\n", "\u001b[2J"])
def test_no_bundle_writes_fields_of_its_own(bundle: Path, precision: str) -> None:
    setting("embedder", precision=precision)(bundle)
    with pytest.raises(BundleError, match="precision"):
        Scorer.open(bundle, "cpu")


@pytest.mark.parametrize(
    "name", ["lct", "context_cutoff", "context_window", "nas_blend_factor", "nas_coverage_cutoff"]
)
@pytest.mark.parametrize("value", [0.25, 1.0, 1e-7])
def test_neighbouring_parameters_have_signatures_of_their_own(
    name: str, value: float, scorer: Scorer
) -> None:
    values = [value, math.nextafter(value, 0), value * (1 - 1e-7)]
    options = [Options(params=Params(regularizer="length", **{name: each})) for each in values]
    lines = [scorer.signature_for(each) for each in options]
    assert len(set(lines)) == len(lines)


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


@pytest.mark.parametrize(
    "change",
    [
        setting("embedder", frame=[[CLS, CLS], [SEP]]),
        tokenizer("embedder"),
        graph("embedder"),
        weights("embedder"),
        setting("embedder", instruction="the red "),
        setting("embedder", max_tokens=8),
        setting("embedder", max_tokens=8, long_text="truncate_text"),
    ],
    ids=["special tokens", "tokenizer", "graph", "weights", "instruction", "window", "long texts"],
)
def test_what_changes_a_score_changes_the_digits_of_the_embedder(
    bundle: Path, scorer: Scorer, change: Change
) -> None:
    change(bundle)
    with Scorer.open(bundle, device="cpu") as opened:
        assert opened.score(*PAIR).vcs != scorer.score(*PAIR).vcs
        name, digits = fields(opened.signature)["emb"].split("@")
        assert (name, len(digits)) == ("tiny-bert", 4)
        assert f"{name}@{digits}" != fields(scorer.signature)["emb"]


@pytest.mark.parametrize(
    "change",
    [
        lambda bundle: edit(
            bundle, lambda data: data.update(name="mine", licence="MIT", source="me")
        ),
        setting(
            "embedder",
            loss={"texts": 3, "cosine_mean": 0.999, "cosine_min": 0.99, "margin_change_p95": 0.1},
        ),
        setting("embedder", mask_instruction=False, instruction=""),
        moved("embedder"),
    ],
    ids=["names", "quantisation error", "a default said aloud", "path"],
)
def test_what_changes_no_score_changes_no_signature(
    bundle: Path, scorer: Scorer, change: Change
) -> None:
    change(bundle)
    with Scorer.open(bundle, device="cpu") as opened:
        assert opened.score(*PAIR) == scorer.score(*PAIR)
        assert opened.signature == scorer.signature


def test_another_name_of_a_model_leaves_its_digits_and_its_cache(
    bundle: Path, tiny_bundle: Path
) -> None:
    setting("embedder", name="mine")(bundle)
    with Embedder.open(bundle, "cpu") as mine, Embedder.open(tiny_bundle, "cpu") as other:
        assert mine.cache_identity == other.cache_identity
        (name, digits), (_, same) = (
            fields("|".join(("", *embedder.signature_fields)))["emb"].split("@")
            for embedder in (mine, other)
        )
    assert (name, digits) == ("mine", same)


@pytest.mark.parametrize(
    "change",
    [
        setting("segmenter", frame=[1, 1]),
        tokenizer("segmenter"),
        graph("segmenter"),
        weights("segmenter"),
        setting("segmenter", threshold=0.2500001),
        setting("segmenter", max_tokens=20, stride=9),
    ],
    ids=["special tokens", "tokenizer", "graph", "weights", "threshold", "window"],
)
def test_what_changes_a_split_changes_the_digits_of_the_segmenter(
    sat_bundle: Path, tmp_path: Path, change: Change
) -> None:
    bundle = shutil.copytree(sat_bundle, tmp_path / "bundle")
    change(bundle)
    with Segmenter.open(bundle, "cpu") as segmenter, Segmenter.open(sat_bundle, "cpu") as other:
        name, digits = segmenter.identity.split("@")
        assert (name, len(digits)) == ("tiny-sat", 4)
        assert segmenter.identity != other.identity


@pytest.mark.parametrize("change", [setting("segmenter", agreement=0.99), moved("segmenter")])
def test_notes_about_a_segmenter_change_no_digits(
    sat_bundle: Path, tmp_path: Path, change: Change
) -> None:
    bundle = shutil.copytree(sat_bundle, tmp_path / "bundle")
    change(bundle)
    texts = [stripped(seed, 8) for seed in range(3)]
    with Segmenter.open(bundle, "cpu") as segmenter, Segmenter.open(sat_bundle, "cpu") as other:
        assert segmenter.split(texts) == other.split(texts)
        assert segmenter.signature_fields == other.signature_fields


def test_a_graph_for_one_device_is_named_with_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has the same digits everywhere; what CUDA alone runs follows `ort-cuda`."""
    stand_in.put_in(monkeypatch)
    both = build_layout_bundle(tmp_path / "both", "packed", cuda="varlen")
    single = build_layout_bundle(tmp_path / "single", "packed")
    seen, cached = {}, {}
    for bundle in (both, single):
        for device in ("cpu", "cuda:0"):
            with Embedder.open(bundle, device) as embedder:
                cached[bundle.name, device] = embedder.cache_identity
                seen[bundle.name, device] = fields("|".join(("", *embedder.signature_fields)))
    assert len({line["emb"] for line in seen.values()}) == 1
    assert [seen[name, "cpu"]["engine"] for name in ("both", "single")] == ["ort-cpu", "ort-cpu"]
    assert seen["single", "cuda:0"]["engine"] == "ort-cuda"
    name, digits = seen["both", "cuda:0"]["engine"].split("@")
    assert (name, len(digits)) == ("ort-cuda", 4)
    assert cached["both", "cpu"] == cached["single", "cpu"]
    assert len(set(cached.values())) == 3


def test_a_segmenter_on_a_gpu_says_so(sat_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.put_in(monkeypatch)
    with Segmenter.open(sat_bundle, "cpu") as cpu, Segmenter.open(sat_bundle, "cuda:0:fp32") as gpu:
        assert cpu.identity == gpu.identity
        assert gpu.signature_fields[1] == f"{cpu.signature_fields[1]}/ort-cuda"


def test_bundle_info_shows_the_digits_of_the_signature(
    bundle: Path, sat_bundle: Path, tmp_path: Path
) -> None:
    learned = shutil.copytree(sat_bundle, tmp_path / "learned")  # `bundle make` sets hard links
    made = run(
        "bundle", "make", "--embedder", bundle, "--segmenter", learned, "-o", tmp_path / "both"
    )
    assert made.exit_code == 0, made.output
    both = tmp_path / "both"
    shown = run("bundle", "info", both).output
    with Scorer.open(both, device="cpu") as opened:
        named = fields(opened.signature)
    assert f"embedder     {named['emb']}, fp32" in shown
    assert f"segmenter    {named['seg']}, fp32" in shown
