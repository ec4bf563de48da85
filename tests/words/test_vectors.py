"""Static vectors of words from a bundle, and the words of a pair side by side."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx_ir as ir
import pytest

from support.changed_bundles import relist
from support.checkpoints.bert import VOCABULARY
from support.releases import DECODERS
from support.tiny_layouts import build_layout_bundle
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_numba import Words
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import BundleError
from vcs_runtime.words.english import excluding_table
from vcs_runtime.words.reading import Numbering, read_words, words_hash
from vcs_runtime.words.vectors import WordVectors

TABLE = "embeddings.word_embeddings.weight"
Change = Callable[[ir.Model], object]


def table_of(bundle: Path) -> np.ndarray:
    """The rows as another library reads them: from a copy, because it refuses linked files."""
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(bundle / "embedder", Path(folder, "copy"))
        return np.array(ir.load(copy / "model.onnx").graph.initializers[TABLE].const_value.numpy())


def changed(bundle: Path, target: Path, change: Change) -> Path:
    """A copy of a bundle whose graph was changed, with its weights inside the graph's file."""
    shutil.copytree(bundle, target)
    path = target / "embedder/model.onnx"
    model = ir.load(path)
    for value in model.graph.initializers.values():
        value.const_value = ir.tensor(np.array(value.const_value.numpy()), name=value.name)
    change(model)
    ir.save(model, path)
    relist(target)
    return target


def stored_as(array: np.ndarray, kind: ir.DataType) -> Change:
    def change(model: ir.Model) -> None:
        value = model.graph.initializers[TABLE]
        value.const_value = ir.Tensor(array, dtype=kind, shape=ir.Shape(array.shape), name=TABLE)
        value.dtype = kind

    return change


def expected(table: np.ndarray, pieces: list[str]) -> np.ndarray:
    rows = table.astype(np.float64)
    vector = rows[[VOCABULARY[piece] for piece in pieces]].mean(axis=0) - rows.mean(axis=0)
    return vector / np.linalg.norm(vector)


def pieces(word: str) -> list[str]:
    """How the tiny tokenizer cuts a word that it does not know."""
    return [word] if word in VOCABULARY else [word[0], *(f"##{letter}" for letter in word[1:])]


def test_vectors_are_means_of_rows_less_the_mean_row_at_unit_length(tiny_bundle: Path) -> None:
    vectors = WordVectors(open_bundle(tiny_bundle))
    forms = ["zxqy", "wq", "q", "zxqy"]
    found = vectors.of(forms)
    assert found.dtype == np.float32
    assert found.shape == (4, vectors.width)
    table = table_of(tiny_bundle)
    for row, form in zip(found, forms, strict=True):
        assert len(pieces(form)) == len(form)
        np.testing.assert_allclose(row, expected(table, pieces(form)), rtol=0, atol=1e-7)
    assert np.array_equal(found[0], found[3])


def test_vectors_have_the_same_bits_however_they_are_asked_for(tiny_bundle: Path) -> None:
    bundle = open_bundle(tiny_bundle)
    forms = [a + b for a in "abcdefgh" for b in "qrstuvwxyz"]
    together = WordVectors(bundle).of(forms)
    forgetful = WordVectors(bundle, memory_bytes=1000)
    backwards = np.stack([forgetful.of([form])[0] for form in reversed(forms)])[::-1]
    assert np.array_equal(together, backwards)
    assert np.array_equal(together, forgetful.of(forms))


@pytest.mark.parametrize("kind", [ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16])
def test_tables_of_each_float_type_inside_a_graph_are_read(
    tiny_bundle: Path, tmp_path: Path, kind: ir.DataType
) -> None:
    table = table_of(tiny_bundle).astype(kind.numpy())
    bundle = open_bundle(changed(tiny_bundle, tmp_path / "bundle", stored_as(table, kind)))
    found = WordVectors(bundle).of(["zxqy"])[0]
    np.testing.assert_allclose(found, expected(table, pieces("zxqy")), rtol=0, atol=1e-7)


@pytest.mark.parametrize("precision", ["fp16", pytest.param("int8", marks=DECODERS)])
def test_exported_decoders_have_word_vectors_as_only_their_matrices_are_quantised(
    tmp_path: Path, precision: str
) -> None:
    bundle = open_bundle(build_tiny_nv_embed_bundle(tmp_path, precision=precision))
    vectors = WordVectors(bundle).of(["door", "window"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert not np.array_equal(*vectors)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_every_input_layout_shows_its_table(tmp_path: Path, layout: str) -> None:
    vectors = WordVectors(open_bundle(build_layout_bundle(tmp_path / "bundle", layout)))
    np.testing.assert_allclose(np.linalg.norm(vectors.of(["door"]), axis=1), 1, atol=1e-6)


def test_the_table_is_not_copied_into_memory(tiny_bundle: Path, tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((200_000, 32), np.float32)
    bundle = open_bundle(
        changed(tiny_bundle, tmp_path / "large", stored_as(table, ir.DataType.FLOAT))
    )
    tracemalloc.start()
    vectors = WordVectors(bundle)
    found = vectors.of(["zxqy"])[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < table.nbytes / 3
    # Of many blocks.
    np.testing.assert_allclose(found, expected(table, pieces("zxqy")), rtol=0, atol=1e-7)


def rename_the_input(model: ir.Model) -> None:
    model.graph.inputs[0].name = "tokens"


def rotate(model: ir.Model) -> None:
    for node in model.graph:
        if node.op_type == "Gather" and node.inputs[1].name == "input_ids":
            node.attributes["axis"] = ir.AttrInt64("axis", 1)


def test_a_graph_that_does_not_show_its_table_is_refused_by_name(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    levels = np.ones(table_of(tiny_bundle).shape, np.int8)
    rows = np.zeros((3, 32), np.float32)
    holes = np.full(table_of(tiny_bundle).shape, np.nan, np.float32)
    cases: list[tuple[str, Change, str]] = [
        ("renamed", rename_the_input, "has 0 tables"),
        ("rotated", rotate, "has 0 tables"),
        (
            "levels",
            stored_as(levels, ir.DataType.INT8),
            "of ONNX's type 3, but only fp32, fp16 and bf16",
        ),
        ("short", stored_as(rows, ir.DataType.FLOAT), "but the embedder has vectors of 3"),
        ("nan", stored_as(holes, ir.DataType.FLOAT), "NaN or infinity"),
        ("flat", stored_as(rows.ravel(), ir.DataType.FLOAT), r"the shape \(96,\), not two axes"),
    ]
    for name, change, message in cases:
        bundle = open_bundle(changed(tiny_bundle, tmp_path / name, change))
        with pytest.raises(BundleError, match=message) as error:
            WordVectors(bundle)
        assert str(tmp_path / name) in str(error.value)


def test_a_bundle_without_an_embedder_is_refused(sat_bundle: Path) -> None:
    with pytest.raises(BundleError, match="need an embedder, and the bundle has none"):
        WordVectors(open_bundle(sat_bundle))


def numbered(*texts: list[str]) -> tuple[list[Words], Numbering]:
    numbering = Numbering()
    return [numbering.words(read_words(text)) for text in texts], numbering


def excluding(word: str, other: str) -> bool:
    (mine, its), _ = numbered([word], [other])
    table = excluding_table()
    assert np.array_equal(table, table.T)
    equal = mine.stem[0] == its.stem[0]
    return bool(table[mine.exclusion[0], its.exclusion[0]]) and not equal


def test_words_of_all_texts_have_one_numbering(tiny_bundle: Path) -> None:
    (reference, generated), numbering = numbered(
        ["A man opened the door"], ["Men", "open red doors"]
    )
    man, opened, door = reference.stem
    assert generated.stem.tolist() == [man, opened, 3, door]
    assert generated.chunk.tolist() == [0, 1, 1, 1]
    assert len(set(reference.vector) & set(generated.vector)) == 0  # other forms, other vectors
    vectors = WordVectors(open_bundle(tiny_bundle))
    vocabulary = numbering.vocabulary(vectors)
    assert vocabulary.vectors.shape == (7, 32)
    own = vocabulary.vectors[generated.vector]
    assert np.array_equal(own, vectors.of(["men", "open", "red", "doors"]))


@pytest.mark.parametrize(
    "words",
    [
        "red blue",
        "seven nine",
        "7 8",
        "left right",
        "Monday friday",
        "opens closed",
        "fast slowly",
        "entered leaves",
        "dark bright",
        "opens shut",
        "12 100",
    ],
)
def test_listed_words_exclude_each_other_in_all_forms(words: str) -> None:
    assert excluding(*words.split())


@pytest.mark.parametrize(
    "words",
    [
        "gray grey",
        "closes shut",
        "7 7",
        "red north",
        "door window",
        "big large",
        "seven 7",
        "open opened",
    ],
)
def test_other_words_and_spellings_do_not(words: str) -> None:
    assert not excluding(*words.split())


def test_texts_without_words_have_no_numbers(tiny_bundle: Path) -> None:
    (reference, generated), numbering = numbered(["门"], [])
    assert (len(reference), len(generated)) == (0, 0)
    assert numbering.vocabulary(WordVectors(open_bundle(tiny_bundle))).vectors.shape == (0, 32)


def test_the_hash_of_the_rules_is_stable() -> None:
    assert words_hash() == words_hash()
    assert len(words_hash()) == 64
