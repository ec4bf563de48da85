"""Vectors of tokens beside those of texts, from one run of the model."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from safetensors.numpy import load_file, save_file

from support.checkpoints.bert import VOCABULARY, tiny_tokenizer, write_tiny_checkpoint
from support.numpy_bert import load, transform
from support.processes import captured
from support.rounding import ROUNDOFF
from support.stories import story
from support.tiny_bert import build_tiny_bundle
from support.tiny_layouts import build_layout_bundle
from support.tiny_modernbert import write_tiny_modernbert
from support.tiny_sentence import write_sentence_files, write_tiny_family
from vcs_export.families.build import Build, EmbedderOptions
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.graph.builder import GraphBuilder
from vcs_export.graph.pooling import unit_length
from vcs_export.write import BundleInfo, BundleWriter
from vcs_runtime import Embedder
from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.errors import BundleError, DeviceError, ModelError
from vcs_runtime.inference.custom import CustomEmbedder
from vcs_runtime.inference.token_vectors import TokenRequest, TokenVectors
from vcs_runtime.inference.tokenizer import load_tokenizer

INFO = BundleInfo("t", "CC0-1.0", "random numbers")
# The last one in windows.
TEXTS = [story(i, 1 + i % 3)[: 20 + 9 * i] for i in range(14)] + [story(50, 9)]
WINDOW = 32


def built(kind: str, folder: Path, options: EmbedderOptions = EmbedderOptions()) -> Path:
    if kind == "bert":
        return build_tiny_bundle(folder)
    if kind == "modernbert":
        checkpoint = write_tiny_modernbert(folder / "checkpoint")
        write_sentence_files(checkpoint, 32)
    else:
        checkpoint = write_tiny_family(folder / "checkpoint", kind)
    return build_sentence_bundle(Build(checkpoint, folder / "bundle", INFO), options)


def both(
    embedder: Embedder, texts: list[str], wanted: list[str], layer: int | None = None
) -> tuple[np.ndarray, dict[str, TokenVectors]]:
    prepared = embedder.prepare(texts, TokenRequest(embedder.show_tokens(layer), wanted))
    prepared.run()
    return prepared.vectors(), prepared.tokens()


@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        ("bert", None),
        ("bert", 0),
        ("bert", 1),
        ("xlm-roberta", None),
        ("mpnet", 1),
        ("modernbert", None),
    ],
)
def test_vectors_of_texts_keep_their_bits_beside_those_of_tokens(
    tmp_path: Path, kind: str, layer: int | None
) -> None:
    bundle = built(kind, tmp_path)
    with Embedder.open(bundle, "cpu") as embedder:
        expected = embedder.embed(TEXTS)
        identity, fields = embedder.cache_identity, embedder.signature_fields
        vectors, tokens = both(embedder, TEXTS, TEXTS, layer)
        assert (vectors == expected).all()
        assert (embedder.embed(TEXTS) == expected).all()
        assert tokens.keys() == set(TEXTS)
        for text, vector in zip(TEXTS, expected, strict=True):
            alone, own = both(embedder, [text], [text], layer)
            assert (alone == vector).all()
            assert all((a == b).all() for a, b in zip(own[text], tokens[text], strict=True))
        some, few = both(embedder, TEXTS, TEXTS[::3], layer)
        assert (some == expected).all()
        assert few.keys() == set(TEXTS[::3])
        assert (embedder.cache_identity, embedder.signature_fields) == (identity, fields)
        embedder.release()
        again, _ = both(embedder, TEXTS, TEXTS, layer)
        assert (again == expected).all()


def test_the_last_layer_is_that_of_plain_numpy(tiny_bundle: Path) -> None:
    config, tensors = load(tiny_bundle.parent / "checkpoint", "bert.")
    tokenizer = load_tokenizer(tiny_bundle / "embedder/tokenizer.json")
    with Embedder.open(tiny_bundle, "cpu") as embedder:
        found = embedder.token_vectors(TEXTS[:5], embedder.show_tokens())
        _, halves = both(embedder, TEXTS, TEXTS)
    for text in TEXTS[:5]:
        ids = tokenizer.encode(text).ids
        assert found[text].ids.tolist() == ids
        wanted = transform(
            tensors, config, ids, list(range(len(ids))), np.ones((len(ids),) * 2, np.bool_)
        )
        np.testing.assert_allclose(found[text].vectors, wanted, atol=1e-5)
        own = found[text].of_text()
        assert own.ids.tolist() == ids[1:-1]
        assert halves[text].vectors.dtype == np.float16
        assert (halves[text].vectors == own.vectors.astype(np.float16)).all()


def test_tokens_say_where_they_stand_in_the_text(tiny_bundle: Path) -> None:
    text = TEXTS[-1]
    encoded = load_tokenizer(tiny_bundle / "embedder/tokenizer.json").encode(
        text, add_special_tokens=False
    )
    assert len(encoded.ids) > 2 * WINDOW
    with Embedder.open(tiny_bundle, "cpu") as embedder:
        _, tokens = both(embedder, [text], [text])
        assert tokens[text].ids.tolist() == encoded.ids
        assert tokens[text].spans.tolist() == [list(offsets) for offsets in encoded.offsets]
        layer = embedder.show_tokens()
        [whole] = embedder.token_vectors(["the door"], layer).values()
        [asked] = embedder.token_vectors(["the door"], layer, "the man ").values()
    assert whole.spans.tolist() == [[-1, -1], [0, 3], [4, 8], [-1, -1]]
    assert asked.spans.tolist() == [[-1, -1], [-1, -1], [-1, -1], [0, 3], [4, 8], [-1, -1]]
    assert asked.of_text().ids.tolist() == whole.of_text().ids.tolist()


def test_nothing_is_added_where_tokens_are_not_wanted(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    opened: list[object] = []
    runs: list[list[str]] = []

    class Session(onnxruntime.InferenceSession):
        def __init__(self, model: object, *arguments: object, **named: object) -> None:
            opened.append(model)
            super().__init__(model, *arguments, **named)

        def run(self, outputs: list[str], *arguments: object) -> object:
            runs.append(outputs)
            return super().run(outputs, *arguments)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    with Embedder.open(tiny_bundle, "cpu") as embedder:
        embedder.embed(TEXTS)
        assert opened == [str(tiny_bundle / "embedder/model.onnx")]
        layer = embedder.show_tokens()
        assert embedder.show_tokens() == layer
        assert len(opened) == 2
        del runs[:]
        embedder.embed(TEXTS)
        assert {len(outputs) for outputs in runs} == {1}
        del runs[:]
        both(embedder, ["a", *TEXTS], ["a"])  # one batch of many has a text whose tokens are wanted
        assert sorted(map(len, runs))[-2:] == [1, 2]


def test_two_layers_are_shown_side_by_side(tiny_bundle: Path) -> None:
    with Embedder.open(tiny_bundle, "cpu") as embedder:
        first, last = embedder.show_tokens(0), embedder.show_tokens()
        assert (first.number, last.number) == (0, 2)
        found = [
            embedder.token_vectors(TEXTS, layer)[TEXTS[0]].vectors for layer in (first, last, first)
        ]
    assert (found[0] == found[2]).all()
    assert not np.isclose(found[0], found[1]).all()


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_graph_without_states_of_tokens_is_refused_by_its_bundle(
    tmp_path: Path, layout: str
) -> None:
    bundle = build_layout_bundle(tmp_path / layout, layout)
    with Embedder.open(bundle, "cpu") as embedder:
        before = embedder.embed(TEXTS[:2])
        with pytest.raises(BundleError, match=f"bundle .*{layout}: its embedder has no vectors of"):
            embedder.show_tokens()
        assert (embedder.embed(TEXTS[:2]) == before).all()


def test_a_layer_that_is_not_there_is_refused(tiny_bundle: Path) -> None:
    with (
        Embedder.open(tiny_bundle, "cpu") as embedder,
        pytest.raises(BundleError, match="no layer 9, only the layers 0 to 2"),
    ):
        embedder.show_tokens(9)


def test_an_embedder_of_the_caller_is_refused() -> None:
    class Whole:
        identity = "whole"

        def embed(self, texts: list[str]) -> np.ndarray:
            return np.ones((len(texts), 3))

    with pytest.raises(ModelError, match="embedder whole: it embeds whole texts"):
        CustomEmbedder(Whole()).show_tokens()


def test_openvino_shows_tokens_only_where_vectors_of_texts_keep_their_bits(
    tiny_bundle: Path,
) -> None:
    pytest.importorskip("openvino")
    with Embedder.open(tiny_bundle, "openvino:fp32") as embedder:
        expected = embedder.embed(TEXTS)
        vectors, tokens = both(embedder, TEXTS, TEXTS)
        assert (vectors == expected).all()
    with Embedder.open(tiny_bundle, "cpu") as embedder:
        for text, own in both(embedder, TEXTS, TEXTS)[1].items():
            # Both are rounded to fp16.
            np.testing.assert_allclose(
                tokens[text].vectors, own.vectors, rtol=2 * ROUNDOFF["fp16"], atol=1e-5
            )
            assert (tokens[text].ids == own.ids).all()


def test_bf16_is_refused(tiny_bundle: Path) -> None:
    pytest.importorskip("openvino")
    with Embedder.open(tiny_bundle, "openvino:fp32") as embedder:
        embedder.device = replace(embedder.device, precision="bf16")
        with pytest.raises(
            DeviceError,
            match="in bf16, reading vectors of tokens would .*openvino:fp32",
        ):
            embedder.show_tokens()


def write_halves(bundle: BundleWriter) -> None:
    """A graph in half precision: a layer over rows of a table, and the mean of what it gives."""
    graph = GraphBuilder(17)
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in ("input_ids", "attention_mask"))
    table = np.random.default_rng(0).standard_normal((len(VOCABULARY), 16)).astype(np.float16)
    ones = graph.weight("norm.weight", np.ones(16, np.float16))
    rows = graph.op(
        "LayerNormalization", graph.op("Gather", graph.weight("table", table), ids), ones
    )
    square = graph.weight("square", table[:16])
    rows = graph.op(
        "LayerNormalization", graph.op("Add", rows, graph.op("MatMul", rows, square)), ones
    )
    weights = graph.op(
        "Unsqueeze", graph.op("Cast", mask, to=int(ir.DataType.FLOAT16)), graph.ints(1)
    )
    total = graph.op("Squeeze", graph.op("MatMul", weights, rows), graph.ints(1))
    files = [bundle.file(f"embedder/model.onnx{part}") for part in ("", ".data")]
    graph.save(
        unit_length(graph, graph.op("Cast", total, to=int(ir.DataType.FLOAT))),
        "embedding",
        ("batch", 16),
        *files,
    )


def test_half_precision_on_a_cpu_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """ONNX Runtime widens halves there, and rounds to them again only what somebody reads."""
    with BundleWriter(tmp_path / "bundle", INFO) as bundle:
        tiny_tokenizer().save(str(bundle.file("embedder/tokenizer.json")))
        write_halves(bundle)
        model, weights = "embedder/model.onnx", ("embedder/model.onnx.data",)
        bundle.commit(
            embedder=EmbedderSpec(
                "halves",
                model,
                weights,
                "embedder/tokenizer.json",
                16,
                WINDOW,
                "window_mean",
                "fp16",
            )
        )
    with Embedder.open(tmp_path / "bundle", "cpu") as embedder:
        before = embedder.embed(TEXTS)
        with pytest.raises(DeviceError, match="ort-cpu: in fp16, .*use a bundle in fp32"):
            embedder.show_tokens()
        assert (embedder.embed(TEXTS) == before).all()
        layer = embedder.show_tokens(keep_vectors=False)
        tokens = embedder.token_vectors(TEXTS, layer)
        assert (embedder.embed(TEXTS) != before).any()
    assert all(np.isfinite(own.vectors).all() for own in tokens.values())


def test_a_vector_beyond_half_precision_is_an_error(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    tensors = load_file(checkpoint / "model.safetensors")
    closing = next(name for name in tensors if name.endswith("layer.1.output.LayerNorm.weight"))
    tensors[closing] *= 1e6
    save_file(tensors, checkpoint / "model.safetensors")
    bundle = build_sentence_bundle(Build(checkpoint, tmp_path / "bundle", INFO))
    with Embedder.open(bundle, "cpu") as embedder:
        with pytest.raises(BundleError, match="NaN, infinite, or beyond float16"):
            both(embedder, TEXTS, TEXTS)
        assert embedder.token_vectors(TEXTS, embedder.show_tokens())


def test_no_building_library_is_needed(tiny_bundle: Path) -> None:
    program = (
        "import sys; sys.modules['onnx'] = sys.modules['onnx_ir'] = None\n"
        "from vcs_runtime import Embedder\n"
        "with Embedder.open(sys.argv[1], 'cpu') as embedder:\n"
        "    layer = embedder.show_tokens()\n"
        "    print(len(embedder.token_vectors(['the door'], layer)['the door'].ids))\n"
    )
    command = [sys.executable, "-c", program, str(tiny_bundle)]
    assert captured(command, check=True).stdout == "4\n"
