"""Embedders and segmenters of the caller, through every door of `Scorer`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.stories import read_lines, story, write_pairs
from vcs_numba import score_embeddings
from vcs_runtime import Embedder, ModelError, Params, Scorer, ScorerConfig, Segmenter, TextError
from vcs_runtime.jobs.run import score_file
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.verdicts import REPEATED
from vcs_runtime.training.scorer import TrainingScorer

PAIRS = [(story(i), story(i // 2 + 50)) for i in range(8)]


class Words:
    """Vectors of word counts; they are not of unit length."""

    identity = "word-counts@1"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: list[str]) -> Any:
        self.seen += texts
        rows = np.zeros((len(texts), 64))
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().replace(".", "").split():
                row[sum(word.encode()) % 64] += 1
        return rows


class Points:
    """Segments that end at full stops."""

    identity = "points@1"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def split(self, texts: list[str]) -> Any:
        self.seen += texts
        return [re.findall(r"[^.]+\.?", text) for text in texts]


@pytest.fixture
def embedder() -> Words:
    return Words()


@pytest.fixture
def segmenter() -> Points:
    return Points()


@pytest.fixture
def own(embedder: Words, segmenter: Points, tmp_path: Path) -> Scorer:
    """A scorer whose bundle does not even exist."""
    return Scorer.open(tmp_path / "none", embedder=embedder, segmenter=segmenter)


def test_scores_are_the_core_applied_to_the_callers_vectors(own: Scorer) -> None:
    for reference, generated in PAIRS:
        result = own.score(reference, generated, chunk_size=2)
        chunks = []
        for text in (reference, generated):
            parts = [part.strip() for part in text.split(".") if part.strip()]
            chunks.append([" ".join(parts[i : i + 2]) for i in range(0, len(parts), 2)])
        embed = Words().embed
        expected = score_embeddings(
            *map(embed, chunks), embed([reference])[0], embed([generated])[0]
        )
        assert result.scores == pytest.approx(expected, abs=1e-12)
        assert (result.n_ref, result.n_gen) == tuple(map(len, chunks))
        assert result.segmenter == "points@1"


def test_repetitions_are_found_with_the_callers_vectors(own: Scorer) -> None:
    text = "A man opens a door. A dog runs into the garden. The man throws a big red ball."
    e = own.explain(
        text, f"{text} Into the garden a dog runs. A cat sleeps. A DOG runs into the garden!"
    )
    assert [chunk.repeats for chunk in e.generated] == [None, None, None, 1, None, 1]
    assert [chunk["repeats"] for chunk in e.to_dict()["generated"]] == [
        None,
        None,
        None,
        1,
        None,
        1,
    ]
    alone = own.explain(text, "A man opens a door. The cat sleeps.")
    assert alone.count(REPEATED) == 0
    assert "repeated" not in alone.sentences


def test_the_signature_names_them(own: Scorer, tiny_bundle: Path) -> None:
    fields = own.signature.split("|")
    assert fields[5:7] == ["seg:points@1", "emb:word-counts@1"]
    assert fields[7].startswith("v:")
    assert "seg:none|emb:word-counts@1" in own.signature_for(Options(short=True))
    with Scorer.open(tiny_bundle, "cpu") as whole:
        theirs = whole.signature
    with Scorer.open(tiny_bundle, "cpu", embedder=Words()) as mixed:
        assert mixed.signature == re.sub(r"emb:.*engine:[^|]*", "emb:word-counts@1", theirs)
    with Scorer.open(tiny_bundle, "cpu", segmenter=Points()) as mixed:
        assert mixed.signature == re.sub(r"seg:[^|]*", "seg:points@1", theirs)


def test_each_text_is_embedded_and_split_once(
    own: Scorer, embedder: Words, segmenter: Points
) -> None:
    first = own.score_many(PAIRS)
    assert own.score_many(PAIRS[::-1]) == first[::-1]
    for seen in (embedder.seen, segmenter.seen):
        assert seen
        assert len(seen) == len(set(seen))


def test_the_segmenter_sees_punctuation_and_no_contraction(own: Scorer, segmenter: Points) -> None:
    own.score("It isn't here. A dog barks, twice!", "It was there.")
    assert segmenter.seen == ["It is not here. A dog barks, twice!", "It was there."]


def test_one_model_of_the_caller_beside_the_bundles_other(tiny_bundle: Path) -> None:
    reference, generated = PAIRS[0]
    with Scorer.open(tiny_bundle, "cpu") as theirs:
        expected = theirs.score(reference, generated)
    with Scorer.open(tiny_bundle, "cpu", segmenter=Points()) as mixed:
        # The stories have nothing but full stops, so both segmenters find the same.
        assert mixed.score(reference, generated).scores == expected.scores
    with Scorer.open("nowhere", "cpu", embedder=Words(), segmenter=tiny_bundle) as mixed:
        result = mixed.score(reference, generated)
        assert (result.n_ref, result.n_gen) == (expected.n_ref, expected.n_gen)
        assert result.segmenter == expected.segmenter
        assert result.vcs != expected.vcs


def test_the_models_of_a_bundle_satisfy_the_protocols_by_themselves(tiny_bundle: Path) -> None:
    class Mine:
        identity = "mine"
        embedder = Embedder.open(tiny_bundle, "cpu")
        segmenter = Segmenter.open(tiny_bundle, "cpu")

        def embed(self, texts: list[str]) -> Any:
            return 3 * self.embedder.embed(texts)

        def split(self, texts: list[str]) -> Any:
            return self.segmenter.split(texts)

    with (
        Scorer.open(tiny_bundle, "cpu") as theirs,
        Scorer.open(embedder=Mine(), segmenter=Mine()) as mine,
    ):
        for pair in PAIRS:
            assert mine.score(*pair).scores == pytest.approx(theirs.score(*pair).scores, abs=1e-6)


def test_all_doors(own: Scorer, tmp_path: Path) -> None:
    pairs = [(f"{a} It isn't so.", b) for a, b in PAIRS]
    results = own.score_many(pairs)
    assert [own.score(*pair) for pair in pairs] == results
    assert [result for result, _ in own.iter_evidence(pairs)] == results
    explanation = own.explain(*pairs[0])
    assert explanation.result == results[0]
    assert [chunk.text for chunk in explanation.reference][-1] == "It is not so"
    assert own.score([pairs[0][0], pairs[1][0]], pairs[0][1]).n_references == 2
    assert own.score_short("A dog barks.", "A dog barks.").vcs == pytest.approx(1.0)
    rows = [{"id": i, "reference": r, "generated": g} for i, (r, g) in enumerate(pairs)]
    write_pairs(tmp_path / "in.jsonl", rows)
    score_file(own, tmp_path / "in.jsonl", tmp_path / "out.jsonl", Options())
    vcs = [row["vcs"] for row in read_lines(tmp_path / "out.jsonl")]
    assert vcs == [result.vcs for result in results]


def test_rewards(embedder: Words, segmenter: Points, own: Scorer) -> None:
    rewards = TrainingScorer(ScorerConfig("nowhere", embedder=embedder, segmenter=segmenter))
    assert rewards.score_many(PAIRS) == own.score_many(PAIRS)
    rewards.close()


def test_vectors_in_a_folder_belong_to_the_identity(tmp_path: Path) -> None:
    def scored(embedder: Words) -> list[str]:
        with Scorer.open(embedder=embedder, segmenter=Points(), cache=tmp_path) as scorer:
            scorer.score_many(PAIRS)
        return embedder.seen

    assert scored(Words())
    assert not scored(Words())
    other = Words()
    other.identity = "word-counts@2"  # type: ignore[misc]
    assert scored(other)
    narrow = Words()
    narrow.embed = lambda texts: np.ones((len(texts), 3))  # type: ignore[method-assign]
    with Scorer.open(embedder=narrow, segmenter=Points(), cache=tmp_path) as scorer:
        scorer.score("Cold. Dark.", "Cold night.")
        with pytest.raises(ModelError, match=r"64 components after vectors of 3: .*identity"):
            scorer.score(*PAIRS[0])


class Tensor:
    """A torch tensor on a GPU: NumPy cannot read it before it is detached and on the CPU."""

    def __init__(self, values: Any, ready: frozenset[str] = frozenset()) -> None:
        self._values, self._ready = values, ready

    def detach(self) -> Tensor:
        return Tensor(self._values, self._ready | {"detached"})

    def cpu(self) -> Tensor:
        return Tensor(self._values, self._ready | {"cpu"})

    def double(self) -> Tensor:
        return Tensor(self._values, self._ready | {"double"})

    def numpy(self) -> Any:
        assert self._ready == {"detached", "cpu", "double"}
        return np.asarray(self._values, np.float64)

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


@pytest.mark.parametrize(
    "form",
    [
        Tensor,
        lambda rows: [Tensor(row) for row in rows],
        lambda rows: rows.astype(np.float32),
        lambda rows: rows.astype(np.int64),
        lambda rows: rows.tolist(),
        lambda rows: tuple(map(tuple, rows)),
    ],
)
def test_any_array_will_do(form: Any, own: Scorer) -> None:
    class Formed(Words):
        def embed(self, texts: list[str]) -> Any:
            return form(super().embed(texts))

    assert Scorer.open(embedder=Formed(), segmenter=Points()).score_many(PAIRS) == own.score_many(
        PAIRS
    )


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda rows: rows[1:], r"an array of shape \(\d+, 64\) for \d+ texts; the shape must"),
        (lambda rows: rows[0], r"an array of shape \(64,\) for \d+ texts"),
        (lambda rows: rows[:, :0], r"an array of shape \(\d+, 0\) for \d+ texts"),
        (
            lambda rows: np.where(np.arange(len(rows))[:, None] == 1, np.nan, rows),
            "NaN or infinity for the text '",
        ),
        (lambda rows: None, "not an array of numbers: its type is object"),
        (lambda rows: [[1.0], [1.0, 2.0]], "not an array of numbers"),
        (lambda rows: [["1"]] * len(rows), "not an array of numbers: its type is <U1"),
        (lambda rows: rows + 1j, "not an array of numbers: its type is complex128"),
        (
            lambda rows: np.ones_like(rows).astype("M8[s]"),
            "not an array of numbers: its type is datetime64",
        ),
    ],
)
def test_vectors_that_are_none_stop_the_call_and_name_the_embedder(
    returned: Any, says: str
) -> None:
    class Broken(Words):
        def embed(self, texts: list[str]) -> Any:
            return returned(super().embed(texts))

    scorer = Scorer.open(embedder=Broken(), segmenter=Points())
    with pytest.raises(ModelError, match=f"^embedder word-counts@1: embed returned .*{says}"):
        scorer.score_many(PAIRS)


def test_vectors_of_two_lengths_are_refused() -> None:
    class Growing(Words):
        def embed(self, texts: list[str]) -> Any:
            return np.ones((len(texts), 8 + bool(self.seen) + 0 * len(super().embed(texts))))

    scorer = Scorer.open(embedder=Growing(), segmenter=Points())
    scorer.score(*PAIRS[0])
    with pytest.raises(
        ModelError, match="word-counts@1: it returned a vector of 9 components after vectors of 8"
    ):
        scorer.score(*PAIRS[1])


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda texts: [], "0 lists for 2 texts"),
        (lambda texts: texts, "something other than a list of strings"),
        (lambda texts: [[1]] * len(texts), "something other than a list of strings"),
        (lambda texts: [None] * len(texts), "something other than a list of strings"),
    ],
)
def test_segments_that_are_none_stop_the_call_and_name_the_segmenter(
    returned: Any, says: str
) -> None:
    class Broken(Points):
        def split(self, texts: list[str]) -> Any:
            return returned(texts)

    scorer = Scorer.open(embedder=Words(), segmenter=Broken())
    with pytest.raises(ModelError, match=f"^segmenter points@1: split returned {says}"):
        scorer.score_many(PAIRS[:1])


class Squeamish(Words, Points):
    """Refuses a text with "zzz" in the way that is asked for."""

    identity = "squeamish"

    def __init__(self, method: str, error: Exception) -> None:
        super().__init__()
        self.method, self.error = method, error

    def _look(self, texts: list[str], method: str) -> None:
        if method == self.method and any("zzz" in text for text in texts):
            raise self.error

    def embed(self, texts: list[str]) -> Any:
        self._look(texts, "embed")
        return super().embed(texts)

    def split(self, texts: list[str]) -> Any:
        self._look(texts, "split")
        return super().split(texts)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("embed", "embedder squeamish: too much"),
        ("split", "generated: segmenter squeamish: too much"),
    ],
)
def test_a_text_that_they_refuse_is_the_error_of_its_pair_alone(method: str, says: str) -> None:
    mine = Squeamish(method, TextError("too much"))
    scorer = Scorer.open(embedder=mine, segmenter=mine)
    results = scorer.score_many([*PAIRS, (PAIRS[0][0], "Good. A zzz."), PAIRS[1]])
    assert [result.error for result in results] == [*[None] * 8, says, None]
    with pytest.raises(TextError, match=says):
        scorer.score(PAIRS[0][0], "Good. A zzz.")


def test_a_text_without_direction_or_segments_is_the_error_of_its_pair() -> None:
    class Poor(Words):
        identity = "poor"

        def embed(self, texts: list[str]) -> Any:
            return [
                0 * row if "zzz" in text else row
                for text, row in zip(texts, super().embed(texts), strict=True)
            ]

        def split(self, texts: list[str]) -> Any:
            return [[] if "yyy" in text else [text] for text in texts]

    errors = [
        result.error
        for result in Scorer.open(embedder=Poor(), segmenter=Poor()).score_many(
            [*PAIRS[:2], ("A zzz.", PAIRS[0][1]), ([PAIRS[0][0], "A yyy."], PAIRS[0][1])]
        )
    ]
    assert errors == [
        None,
        None,
        "embedder poor: a vector of zeros for the text 'A zzz.'",
        "reference[1]: segmenter poor: no segments",
    ]


@pytest.mark.parametrize("method", ["embed", "split"])
def test_other_exceptions_of_the_callers_code_come_as_they_are(method: str) -> None:
    error = ValueError("shapes (3,) and (4,) not aligned")
    mine = Squeamish(method, error)
    scorer = Scorer.open(embedder=mine, segmenter=mine)
    with pytest.raises(ValueError, match="not aligned") as caught:
        scorer.score_many([*PAIRS, ("A zzz.", "B.")])
    assert caught.value is error
    [note] = error.__notes__
    assert note.endswith("squeamish raised this.")


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (
            {"embedder": lambda texts: texts},
            TypeError,
            r"embedder: function has no method `embed\(texts\)`",
        ),
        (
            {"segmenter": str.split},
            TypeError,
            r"segmenter: method_descriptor has no method `split\(texts\)`",
        ),
        ({"embedder": Points()}, TypeError, "embedder: Points has no method"),
        ({"segmenter": b"rules".split}, TypeError, "segmenter: .* has no method"),
    ],
)
def test_objects_that_lack_a_member_are_refused(
    arguments: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Scorer.open("nowhere", "cpu", **arguments)


@pytest.mark.parametrize("identity", ["", "a|b", "a b", "a\n", "\u00a0", 3, None])
def test_an_identity_that_a_signature_cannot_hold_is_refused(identity: object) -> None:
    mine = Words()
    mine.identity = identity  # type: ignore[assignment, misc]
    with pytest.raises((TypeError, ValueError), match="^embedder: .*`identity`"):
        Scorer.open("nowhere", "cpu", embedder=mine)


def test_the_config_of_other_processes_keeps_the_callers_models(tmp_path: Path) -> None:
    mine = Words()
    config = ScorerConfig("a", embedder=mine, segmenter=Points())
    assert config.absolute() == replace(config, bundle=str(Path("a").absolute()))
    assert hash(config)


def test_the_scorer_leaves_the_callers_models_open(own: Scorer, embedder: Words) -> None:
    embedder.close = lambda: pytest.fail("closed")  # type: ignore[attr-defined]
    own.release()
    own.close()
    json.dumps(own.score(*PAIRS[0], params=Params(lct=1)).to_dict())
