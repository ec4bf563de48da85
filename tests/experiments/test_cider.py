"""CIDEr: the words, the formula, and which references its idf is computed over."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.experiments import comparison, table, write_json
from support.stories import read_lines, story, write_pairs
from support.treebank import WRITTEN
from vcs_experiments.metrics.cider import Cider, ptb_words
from vcs_experiments.metrics.corpus import Corpus
from vcs_runtime.errors import InputError

CORPUS = [
    ("a man throws a red ball", "a boy throws the ball far away"),
    ("a woman slowly cuts the bread",),
    ("two dogs run in the garden", "the dogs run and run", "a dog runs"),
]


@pytest.mark.parametrize("text", WRITTEN)
def test_words_are_those_of_the_penn_treebank(text: str) -> None:
    assert " ".join(ptb_words(text)) == WRITTEN[text]


def by_hand(corpus: list[tuple[str, ...]], references: tuple[str, ...], generated: str) -> float:
    """CIDEr-D with plain lists: section 3 of the paper, and the Gaussian of section 7."""

    def grams(text: str, order: int) -> list[str]:
        words = text.split()
        return [" ".join(words[i : i + order]) for i in range(len(words) - order + 1)]

    def vector(text: str, order: int) -> dict[str, float]:
        found = {}
        for gram, count in Counter(grams(text, order)).items():
            documents = sum(any(gram in grams(other, order) for other in item) for item in corpus)
            found[gram] = count * (math.log(len(corpus)) - math.log(max(1, documents)))
        return found

    total = 0.0
    for order in (1, 2, 3, 4):
        own = vector(generated, order)
        for reference in references:
            other = vector(reference, order)
            dot = sum(min(own.get(gram, 0.0), weight) * weight for gram, weight in other.items())
            norm = math.hypot(*own.values()) * math.hypot(*other.values())
            gap = len(generated.split()) - len(reference.split())
            total += (dot / norm if norm else 0.0) * math.exp(-(gap**2) / 72)
    return 10 * total / 4 / len(references)


@pytest.mark.parametrize(
    "generated",
    [
        "a man throws a red ball",
        "the ball the ball the ball the ball",
        "run",
        "x y z",
        "a boy throws a red ball to dogs",
    ],
)
def test_scores_are_those_of_the_definition(generated: str) -> None:
    cider = Cider(Corpus.of(CORPUS))
    for references in CORPUS:
        assert cider.score(references, generated) == pytest.approx(
            by_hand(CORPUS, references, generated)
        )
    assert cider.score(CORPUS[0][:1], CORPUS[0][0]) == pytest.approx(10.0)
    # References that several items have are one document.
    assert Cider(Corpus.of([*CORPUS, CORPUS[0]])).score(CORPUS[0], generated) == cider.score(
        CORPUS[0], generated
    )


def videos(path: Path) -> list[dict[str, Any]]:
    rows = [
        {
            "vid": f"v{i}",
            "refs": [story(100 * i + k, 1) for k in range(9)],
            "cands": [story(100 * i + k, 1) for k in (0, 8, 20)],
            "scores": [[5], [4], [1]],
        }
        for i in range(4)
    ]
    write_pairs(path, rows)
    return rows


@pytest.mark.slow
def test_idf_is_over_the_references_that_are_scored_or_over_those_of_a_file(
    experiment: Any, tmp_path: Path
) -> None:
    rows = videos(tmp_path / "v.jsonl")
    arguments = ("vatex", "--data", tmp_path / "v.jsonl", "--preset", "paper", "--resamples", 100)
    done = experiment(*arguments)
    assert done.exit_code == 0, done.output
    lines = {line["id"]: line for line in read_lines(tmp_path / "out" / "pairs.jsonl")}
    for count in (1, 9):
        cider = Cider(Corpus.of(row["refs"][:count] for row in rows))
        score = cider.score(rows[2]["refs"][:count], rows[2]["cands"][1])
        assert lines["v2/1"][f"CIDEr {count}ref"] == score
    metrics = {(row["metric"], row["references"]) for row in table(tmp_path / "out", "correlation")}
    assert {("CIDEr", "1ref"), ("CIDEr", "9ref")} <= metrics
    names = {name for name, _ in metrics}
    assert {"VCS_LCT0.1", "NAS-D_LCT0.1", "GAS"} <= names  # the paper's tolerance
    assert "VCS_LCT0" not in names
    signature = json.loads((tmp_path / "out/results.json").read_text())["signature"]
    assert f"|cider:d/ptb|idf:{Corpus.of(row['refs'] for row in rows).identity}|" in signature
    assert "|chunk:word|lct:0.1|" in signature

    texts = {str(i): [story(7 * i + k, 1) for k in range(2)] for i in range(30)}
    write_json(tmp_path / "refs.json", texts)
    mixed = experiment(*arguments, "--idf-references", tmp_path / "refs.json", "--resume")
    assert "its signature has" in str(mixed.exception)
    done = experiment(*arguments, "--idf-references", tmp_path / "refs.json", out=tmp_path / "o2")
    assert done.exit_code == 0, done.output
    lines = {line["id"]: line for line in read_lines(tmp_path / "o2/pairs.jsonl")}
    whole = Cider(Corpus.of(texts.values(), given=True))
    narrow = Cider(Corpus.of(own[:1] for own in texts.values()))  # an item's first references only
    for count in (1, 9):
        jobs = [
            (f"{row['vid']}/{i}", row["refs"][:count], text)
            for row in rows
            for i, text in enumerate(row["cands"])
        ]
        scores = [lines[name][f"CIDEr {count}ref"] for name, _, _ in jobs]
        assert scores == [whole.score(references, text) for _, references, text in jobs]
        assert scores != [narrow.score(references, text) for _, references, text in jobs]
    line = lines["v3/1"]
    assert "|idf:30@" in line["signature"]
    wrong = experiment(*arguments, "--idf-references", tmp_path / "none.json", out=tmp_path / "o3")
    assert isinstance(wrong.exception, InputError)


def test_a_single_item_has_no_idf(experiment: Any, tmp_path: Path) -> None:
    done = experiment("corruption", "--data", comparison(tmp_path / "data", scenes=1))
    assert (
        "CIDEr is left out: its idf needs references of at least two items; add more with --idf-references"
        in done.stderr
    )
    [line, *_] = read_lines(tmp_path / "out/pairs.jsonl")
    assert "CIDEr" not in line
    assert "cider" not in line["signature"]
