"""BERTScore: the states of tokens against NumPy, the matching against plain loops."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from support.checkpoints.bert import write_tiny_checkpoint
from support.numpy_bert import load, transform
from support.rounding import ROUNDOFF
from support.stories import read_lines, story, write_pairs
from support.tiny_layouts import build_layout_bundle
from vcs_experiments.metrics.bertscore import BERTScore, States, TokenStates, bertscore
from vcs_experiments.metrics.scoring import Job, KnownMetrics
from vcs_export.families.build import Build, EmbedderOptions
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli
from vcs_runtime.errors import BundleError, TextError
from vcs_runtime.inference.device import choose_device
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.tokenizer import cut_windows, load_tokenizer

FRAME = 2  # [CLS] and [SEP]
WINDOW = 32


@pytest.fixture(scope="module")
def states(tiny_bundle: Path) -> TokenStates:
    return TokenStates(open_bundle(tiny_bundle), choose_device("cpu"))


def by_numpy(bundle: Path, text: str) -> list[tuple[np.ndarray, bool]]:
    """The unit states of a text's tokens, window by window, and whether they count."""
    tokenizer = load_tokenizer(bundle / "embedder/tokenizer.json")
    config, tensors = load(bundle.parent / "checkpoint", "bert.")
    first, *_, last = tokenizer.encode(text).ids
    found = []
    for window in cut_windows(tokenizer.encode(text, add_special_tokens=False).ids, WINDOW - FRAME):
        ids = [first, *window, last]
        visible = np.ones((len(ids), len(ids)), np.bool_)
        vectors = transform(tensors, config, ids, list(range(len(ids))), visible)
        found += [(v / np.linalg.norm(v), 0 < i <= len(window)) for i, v in enumerate(vectors)]
    return found


def test_states_and_matching_are_those_of_plain_numpy(
    states: TokenStates, tiny_bundle: Path
) -> None:
    reference, generated = story(1, 9), story(2, 2)
    found = states.get([reference, generated, reference])
    sides = [by_numpy(tiny_bundle, text) for text in (reference, generated)]
    assert len(sides[0]) > 2 * WINDOW  # windows, one after the other
    for text, side in zip((reference, generated), sides, strict=True):
        assert found[text].counted.tolist() == [counts for _, counts in side]
        np.testing.assert_allclose(found[text].vectors, [vector for vector, _ in side], atol=1e-5)
    of = {
        name: np.mean([max(float(a @ b) for b, _ in others) for a, counts in own if counts])
        for name, own, others in (("P", sides[1], sides[0]), ("R", sides[0], sides[1]))
    }
    scores = bertscore(found[reference], found[generated])
    assert scores["BERTScore-P"] == pytest.approx(of["P"], abs=1e-5)
    assert scores["BERTScore-R"] == pytest.approx(of["R"], abs=1e-5)
    assert scores["BERTScore-F1"] == pytest.approx(
        2 * of["P"] * of["R"] / (of["P"] + of["R"]), abs=1e-5
    )


@pytest.mark.parametrize(
    ("device", "tolerance"), [("openvino:fp32", 1e-5), ("openvino", 8 * ROUNDOFF["bf16"])]
)
def test_openvino_shows_the_states_too(
    states: TokenStates, tiny_bundle: Path, device: str, tolerance: float
) -> None:
    pytest.importorskip("openvino")
    texts = [story(i, 1 + i) for i in range(6)]
    shown = TokenStates(open_bundle(tiny_bundle), choose_device(device))
    expected, found = states.get(texts), shown.get(texts)
    for text in texts:
        np.testing.assert_allclose(
            found[text].vectors, expected[text].vectors, rtol=0, atol=tolerance
        )
        assert (found[text].counted == expected[text].counted).all()
    wanted = bertscore(expected[texts[0]], expected[texts[5]])
    assert bertscore(found[texts[0]], found[texts[5]]) == pytest.approx(wanted, abs=tolerance / 3)


def test_an_open_embedder_shows_the_states_and_the_model_is_opened_once(
    states: TokenStates, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [story(i, 1 + i) for i in range(6)]
    expected = states.get(texts)
    with Embedder.open(tiny_bundle, "cpu") as embedder:
        monkeypatch.setattr("vcs_experiments.metrics.bertscore.Embedder", None)
        shared = TokenStates(open_bundle(tiny_bundle), embedder.device, embedder=embedder)
        found = shared.get(texts)
    assert (shared.identity, shared.layer) == (states.identity, states.layer)
    assert all(
        (a == b).all() for text in texts for a, b in zip(found[text], expected[text], strict=True)
    )


def test_an_embedder_whose_vectors_would_change_is_left_alone(
    states: TokenStates, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    # A processor without bf16 is refused there, which does not depend on the rest.
    monkeypatch.setattr("vcs_runtime.inference.openvino._check", lambda compiled, precision: None)
    texts = [story(1), story(2)]
    with Embedder.open(tiny_bundle, "openvino:fp32") as embedder:
        embedder.device = replace(embedder.device, precision="bf16")
        before = embedder.embed(texts)
        shown = TokenStates(open_bundle(tiny_bundle), embedder.device, embedder=embedder)
        assert shown.get(texts).keys() == set(texts)
        assert (embedder.embed(texts) == before).all()


def test_matching_by_hand() -> None:
    reference = States(np.eye(3, dtype=np.float32), np.array([True, True, False]), np.arange(3))
    generated = States(
        np.array([[0.6, 0.8, 0], [0, 0, 1]], np.float32), np.array([True, True]), np.arange(2)
    )
    # The third token of the reference can be matched, but is not asked for.
    precision, recall = (0.8 + 1) / 2, (0.6 + 0.8) / 2
    expected = (precision, recall, 2 * precision * recall / (precision + recall))
    assert tuple(bertscore(reference, generated).values()) == pytest.approx(expected)
    none = States(generated.vectors, np.array([False, False]), np.arange(2))
    assert set(bertscore(reference, none).values()) == {0.0}


def test_states_do_not_depend_on_the_texts_beside_and_the_bundle_stays_as_it_is(
    states: TokenStates, tiny_bundle: Path
) -> None:
    before = {
        path: hashlib.sha256(path.read_bytes()).digest() for path in tiny_bundle.rglob("*.onnx*")
    }
    texts = [story(i, 1 + i % 5) for i in range(20)]
    together = states.get(texts)
    for text in texts:
        alone = TokenStates(open_bundle(tiny_bundle), choose_device("cpu")).get([text])[text]
        assert (alone.vectors == together[text].vectors).all()
    assert before == {path: hashlib.sha256(path.read_bytes()).digest() for path in before}


def test_of_several_references_the_best_counts_column_by_column(states: TokenStates) -> None:
    known = KnownMetrics(1, matched=BERTScore(states))
    references = tuple(story(i) for i in range(4))
    scores = known.start(Job("1", references, story(9)))()
    single = [known.start(Job("1", (reference,), story(9)))() for reference in references]
    assert isinstance(scores, dict)
    for column in ("BERTScore-P", "BERTScore-R", "BERTScore-F1"):
        assert scores[column] == max(own[column] for own in single if isinstance(own, dict))
    assert known.signature.endswith("|bertscore:last-layer")


def test_a_text_that_the_bundle_refuses_is_an_error_and_the_others_are_scored(
    tmp_path: Path,
) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    info = BundleInfo("t", "CC0-1.0", "x")
    build = Build(checkpoint, tmp_path / "bundle", info)
    bundle = build_sentence_bundle(build, EmbedderOptions(long_text="error"))
    known = KnownMetrics(
        1, matched=BERTScore(TokenStates(open_bundle(bundle), choose_device("cpu")))
    )
    first = known.start(Job("1", (story(1, 9),), story(2, 1)))()
    second = known.start(Job("2", (story(1, 1),), story(2, 1)))()
    assert isinstance(first, TextError)
    assert "accepts at most" in str(first)
    assert isinstance(second, dict)


@pytest.mark.parametrize("layout", ["padded", "packed"])  # neither model normalises its layers
def test_a_model_that_shows_no_states_is_refused(tmp_path: Path, layout: str) -> None:
    bundle = build_layout_bundle(tmp_path / layout, layout)
    with pytest.raises(BundleError, match="has no vectors of single tokens"):
        TokenStates(open_bundle(bundle), choose_device("cpu"))


@pytest.mark.slow
def test_experiments_go_on_without_bertscore_where_a_model_shows_no_states(
    tmp_path: Path, mixed_bundle: Path
) -> None:
    bundle = build_layout_bundle(tmp_path / "packed", "packed")
    write_pairs(
        tmp_path / "videos.jsonl",
        [{"vid": 1, "refs": [story(1)], "cands": [story(2), story(3)], "scores": [[1, 2], [2, 1]]}],
    )
    done = CliRunner().invoke(
        cli,
        [
            *f"experiment vatex --data {tmp_path}/videos.jsonl -o {tmp_path}/out".split(),
            *f"--bundle {bundle} --segmenter {mixed_bundle} --device cpu --workers 1".split(),
            "--resamples",
            "100",
        ],
    )
    assert done.exit_code == 0, done.output
    assert "BERTScore is left out" in done.stderr
    lines = read_lines(tmp_path / "out" / "pairs.jsonl")
    assert len(lines) == 2
    assert not any(column.startswith("BERTScore") for column in lines[0])
    assert "bertscore" not in lines[0]["signature"]
