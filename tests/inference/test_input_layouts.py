"""The two layouts of a graph, the frame and the instruction: one model, the same vectors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import stand_in
from support.changed_bundles import edit
from support.checkpoints.bert import VOCABULARY
from support.releases import DECODERS
from support.stories import story
from support.tiny_layouts import build_layout_bundle, oracle
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_runtime import BundleError, DeviceError, Embedder, Segmenter, TextError
from vcs_runtime.inference.batching import batches
from vcs_runtime.inference.device import choose_device, import_onnxruntime
from vcs_runtime.inference.onnx_session import open_session, run_bound
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.signature import signature
from vcs_runtime.scoring.substitution import WordComparison

LAYOUTS = ("padded", "packed")
TEXTS = [
    "dog",
    *(" ".join(story(i).split()[: 1 + i]) for i in range(24)),
    "the man walks into the garden",
]
CLS, SEP = VOCABULARY["[CLS]"], VOCABULARY["[SEP]"]
Opener = Callable[..., Embedder]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Opener]:
    opened: list[Embedder] = []

    def open_(layout: str, **spec: Any) -> Embedder:
        target = tmp_path / str(len(opened))
        opened.append(Embedder.open(build_layout_bundle(target, layout, **spec), device="cpu"))
        return opened[-1]

    yield open_
    for embedder in opened:
        embedder.close()


def ids_of(text: str) -> list[int]:
    return [CLS, *(VOCABULARY[word] for word in text.split()), SEP]


def test_every_layout_gives_the_vectors_of_the_model(build: Opener) -> None:
    vectors = {layout: build(layout).embed(TEXTS) for layout in LAYOUTS}
    for layout in LAYOUTS:
        np.testing.assert_allclose(vectors[layout], vectors["padded"], atol=2e-6)
    np.testing.assert_allclose(vectors["packed"][-1], oracle(ids_of(TEXTS[-1])), atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_vector_does_not_depend_on_its_batch_to_the_bit(build: Opener, layout: str) -> None:
    embedder = build(layout)
    batched = embedder.embed(TEXTS)
    assert np.array_equal(batched, np.concatenate([embedder.embed([text]) for text in TEXTS]))
    order = random.Random(0).choices(range(len(TEXTS)), k=100)
    assert np.array_equal(embedder.embed([TEXTS[i] for i in order]), batched[order])


def test_a_packed_batch_of_mixed_lengths_differs_by_rounding_alone(build: Opener) -> None:
    """What a GPU gets; on a CPU its vectors would not be the same to the bit."""
    embedder = build("packed")
    alone = embedder.embed(TEXTS)
    sequences = embedder._tokenizer.sequences(TEXTS, "", 32).ids
    found = np.empty_like(alone)
    for batch in batches(sequences, 200, "packed", mixed=True):
        assert len({len(sequences[row]) for row in batch.rows}) > 1
        found[batch.rows] = embedder._session.run(batch.inputs)[0]
    np.testing.assert_allclose(found, alone, atol=2e-6)


def test_the_instruction_is_read_but_as_many_first_places_as_it_has_tokens_are_not_pooled(
    build: Opener,
) -> None:
    embedder = build("packed", long_text="truncate", mask_instruction=True)
    [vector] = embedder.embed(["a man walks"], instruction="the red ")
    # Of "[CLS] the red a man walks [SEP]" two places: the instruction's last token is pooled.
    np.testing.assert_allclose(vector, oracle(ids_of("the red a man walks"), skip=2), atol=2e-6)
    assert np.abs(vector - oracle(ids_of("the red a man walks"))).max() > 1e-3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_an_instruction_everything_is_pooled(build: Opener, layout: str) -> None:
    embedder = build(layout, long_text="truncate", mask_instruction=layout != "padded")
    np.testing.assert_allclose(embedder.embed(["a man"], "")[0], oracle(ids_of("a man")), atol=2e-6)


def test_the_bundles_own_instruction_holds_where_none_is_named(build: Opener) -> None:
    embedder = build("packed", long_text="truncate", instruction="the red ", mask_instruction=True)
    assert np.array_equal(embedder.embed(["dog"]), embedder.embed(["dog"], "the red "))
    assert np.abs(embedder.embed(["dog"]) - embedder.embed(["dog"], "")).max() > 1e-3


def test_the_signature_says_what_instruction_and_what_becomes_of_long_texts(
    build: Opener, tiny_bundle: Path
) -> None:
    segmenter, words = Segmenter.open(tiny_bundle), WordComparison("default")
    told = [
        signature(
            Options(), build("packed", long_text="truncate", instruction=text), segmenter, words
        )
        for text in ("", "the ", "red ")
    ]
    assert "|instr:" not in told[0]
    assert "|instr:" in told[1]
    assert told[1] != told[2]
    assert all("|long:truncate/32|" in line for line in told)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_truncation_cuts_the_right_end_and_the_end_of_the_frame(build: Opener, layout: str) -> None:
    embedder = build(layout, long_text="truncate")
    ids = ids_of("man walks into the garden")
    for length, kept in ((5, ids[:5]), (6, ids[:6]), (7, ids), (32, ids)):
        vector = embedder.embed(["man walks into the garden"], max_length=length)[0]
        np.testing.assert_allclose(vector, oracle(kept), atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_truncation_of_the_text_keeps_the_end_of_the_frame(build: Opener, layout: str) -> None:
    embedder = build(layout, long_text="truncate_text")
    ids = ids_of("man walks into the garden")
    for length, kept in ((3, [*ids[:2], SEP]), (6, [*ids[:5], SEP]), (7, ids), (32, ids)):
        vector = embedder.embed(["man walks into the garden"], max_length=length)[0]
        np.testing.assert_allclose(vector, oracle(kept), atol=2e-6)


def test_truncation_of_the_text_leaves_the_instruction(build: Opener) -> None:
    embedder = build("packed", long_text="truncate_text", mask_instruction=True)
    vector = embedder.embed(["man walks"], "the red ", max_length=5)[0]
    np.testing.assert_allclose(vector, oracle([*ids_of("the red man")[:4], SEP], skip=2), atol=2e-6)


def test_an_instruction_that_leaves_no_room_for_a_text_is_refused(build: Opener) -> None:
    """Otherwise all texts would have the vector of the instruction, and the best score."""
    embedder = build("packed", long_text="truncate_text")
    embedder.embed(["dog"], "the red car ", max_length=6)
    with pytest.raises(TextError, match="instruction has 3 tokens, but the model reads only 3"):
        embedder.embed(["dog"], "the red car ", max_length=5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_frame_of_the_bundle_comes_before_the_tokenizers_own(
    build: Opener, layout: str
) -> None:
    embedder = build(layout, special_tokens=((SEP, SEP), ()))
    np.testing.assert_allclose(
        embedder.embed(["dog"])[0], oracle([SEP, SEP, VOCABULARY["dog"]]), atol=2e-6
    )


def test_a_text_of_which_nothing_is_left_to_pool_is_refused(build: Opener) -> None:
    embedder = build("packed", long_text="truncate", mask_instruction=True)
    embedder.embed(["dog"], "the red car ", max_length=4)
    with pytest.raises(TextError, match="3 tokens, so nothing is left to embed of the 3"):
        embedder.embed(["dog"], "the red car ", max_length=3)


def test_a_graph_whose_inputs_are_those_of_another_layout_is_refused(tmp_path: Path) -> None:
    folder = build_layout_bundle(tmp_path / "b", "packed")
    edit(folder, lambda data: data["embedder"].update(layout="padded"))
    with pytest.raises(BundleError, match="not match the layout padded"):
        Embedder.open(folder, device="cpu")


def test_a_graph_of_another_dimension_is_refused(tmp_path: Path) -> None:
    folder = build_layout_bundle(tmp_path / "b", "packed")
    edit(folder, lambda data: data["embedder"].update(dimension=47))
    with (
        Embedder.open(folder, device="cpu") as embedder,
        pytest.raises(BundleError, match=r"an array \(2, 48\) for 2 texts of dimension 47"),
    ):
        embedder.embed(["dog", "car"])


def test_an_instruction_that_is_no_text_is_refused(build: Opener) -> None:
    embedder = build("packed")
    with pytest.raises(TextError, match="^instruction: the text must be a string, not int"):
        embedder.embed(["dog"], 3)  # type: ignore[arg-type]
    with pytest.raises(TextError, match="^instruction: the text holds a lone surrogate"):
        embedder.embed(["dog"], "\ud800")


def test_bound_inputs_and_outputs_give_what_plain_ones_give(tmp_path: Path) -> None:
    """The way a GPU is run, here in the memory of the CPU."""
    model = build_layout_bundle(tmp_path / "b", "packed") / "embedder/model.onnx"
    session = open_session(model, choose_device("cpu"))
    [batch] = batches([[CLS, 9, SEP], [CLS, 11, SEP]], 100, "packed")
    options = import_onnxruntime().RunOptions()
    [bound] = run_bound(session, ["embedding"], batch.inputs, options, "cpu", 0)
    assert np.array_equal(bound, session.run(["embedding"], batch.inputs)[0])


def test_what_is_cached_is_bound_to_all_that_makes_a_vector(build: Opener) -> None:
    specs: list[tuple[str, dict[str, Any]]] = [
        ("packed", {}),
        ("packed", {"special_tokens": ((CLS,), ())}),
        ("packed", {"instruction": "the "}),
        ("packed", {"long_text": "truncate"}),
    ]
    embedders = [build(layout, **spec) for layout, spec in specs]
    assert len({embedder.cache_identity for embedder in embedders}) == len(embedders)


def test_a_packed_batch_says_where_each_token_lies() -> None:
    [batch] = batches([[5], [6, 7, 8], [9, 10]], 100, "packed", skip=1, mixed=True)
    assert batch.rows == [1, 2, 0]
    told = {name: array.tolist() for name, array in batch.inputs.items()}
    assert told == {
        "input_ids": [6, 7, 8, 9, 10, 5],
        "gather": [[0, 1, 2, 0], [3, 4, 0, 0], [5, 0, 0, 0]],
        "scatter": [0, 1, 2, 4, 5, 8],
        "lengths": [3, 2, 1],
        "skip": [1, 1, 1],
    }
    assert all(array.dtype == np.int64 for array in batch.inputs.values())


@DECODERS
def test_half_precision_on_a_cpu_does_not_keep_its_weights_twice(tmp_path: Path) -> None:
    ort = import_onnxruntime()
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision="fp16")
    with Embedder.open(bundle, device="cpu") as embedder:
        options = embedder._session._open().get_session_options()
        assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        assert not options.enable_cpu_mem_arena
        assert np.isfinite(embedder.embed(["a man walks"])).all()


@pytest.mark.parametrize("skip", [0, 2])
def test_cuda_runs_its_own_graph_and_a_cpu_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip: int
) -> None:
    machine = stand_in.put_in(monkeypatch)
    bundle = build_layout_bundle(
        tmp_path / "b", "packed", cuda="varlen", long_text="truncate", mask_instruction=True
    )
    instruction = "the red " if skip else ""
    texts = [
        "dog",
        *(" ".join(["a", "man", "walks", "into", "the", "garden"] * i) for i in range(1, 5)),
    ]
    sequences = [ids_of(f"{instruction}{text}") for text in texts]
    want = [oracle(ids, skip) for ids in sequences]
    for device, file in (("cuda:0", "model.cuda.onnx"), ("cpu", "model.onnx")):
        with Embedder.open(bundle, device) as embedder:
            np.testing.assert_allclose(embedder.embed(texts, instruction), want, atol=2e-6)
        assert machine.sessions[-1].model.name == file
    # One batch holds texts of any lengths, without padding.
    assert machine.runs[0][0] == (sum(map(len, sequences)),)


@DECODERS
def test_cuda_refuses_int8_of_a_bundle_without_a_graph_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = build_tiny_nv_embed_bundle(
        tmp_path, precision="int8", texts=["the dog runs", "two cats"]
    )
    edit(bundle, lambda data: data["embedder"].pop("cuda"))
    stand_in.put_in(monkeypatch)
    with pytest.raises(
        DeviceError, match="^cuda:0: .*int8 and has no graph for CUDA.*: export it again"
    ):
        Embedder.open(bundle, "cuda:0")
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.provider_name == "ort-cpu"
        assert "export it again" in embedder.device.reason
