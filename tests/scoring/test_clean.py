"""Cleaning as an option of scoring: texts, chunks, whole-text vectors, the signature."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.command_line import assert_refused, vcs
from support.stories import story, write_pairs
from vcs_runtime import Options, Scorer
from vcs_runtime.scoring.result import Pair, Result
from vcs_runtime.text.markup import CLEANINGS

ALL = Options(clean=CLEANINGS)
SENTENCES = [f"{sentence}." for sentence in story(5, 4).split(". ")]
PLAIN = "\n\n".join(["Scene", *SENTENCES]).replace("..", ".")
MARKED = (
    "\n".join(
        [
            "<think>A dog?</think>",
            "## Scene",
            *(f"{i}. **{s[:-1]}**." for i, s in enumerate(SENTENCES, 1)),
        ]
    )
    .replace("..", ".")
    .replace(".**.", "**.")
)


def score(scorer: Scorer, pair: Pair, options: Options) -> Result:
    [result] = scorer.iter_scores([pair], options)
    return result


def test_a_text_with_markup_scores_as_the_same_text_without(scorer: Scorer) -> None:
    reference = story(3)
    marked = score(scorer, (reference, MARKED), ALL)
    plain = score(scorer, (reference, PLAIN), Options())
    assert (marked.scores, marked.n_gen) == (plain.scores, 5)  # GAS is among the scores
    assert score(scorer, (reference, MARKED), Options()).scores != plain.scores


def test_references_are_cleaned_as_well(scorer: Scorer) -> None:
    assert score(scorer, (MARKED, MARKED), ALL) == score(scorer, ([MARKED], PLAIN), ALL)
    assert score(scorer, (MARKED, PLAIN), ALL).vcs == pytest.approx(1.0, abs=1e-6)


def test_short_texts_are_cleaned(scorer: Scorer) -> None:
    short = replace(ALL, short=True)
    assert score(scorer, ("a red ball", "<think>dog</think>1. a **red** ball"), short).n_gen == 2


def test_the_signature_names_cleaning_in_one_order_and_only_if_there_is_some(
    scorer: Scorer,
) -> None:
    fields = scorer.signature_for(
        Options(clean=["list-numbers", "think", "markdown", "think"])
    ).split("|")
    assert "clean:markdown+think+list-numbers" in fields
    fields.remove("clean:markdown+think+list-numbers")
    assert fields == scorer.signature.split("|")
    assert Options(clean=["think", "markdown"]) == Options(clean=("markdown", "think"))


def test_a_text_of_which_nothing_is_left_is_an_error_of_its_own(scorer: Scorer) -> None:
    result = score(scorer, (story(1), "<think>A man walks."), Options(clean=["think"]))
    assert result.error == "generated: no text is left after cleaning (think)"
    nothing = score(scorer, (story(1), "Sure!</s>"), Options(clean=["chat"]))
    assert nothing.error == "generated: no text is left after cleaning (chat)"
    assert str(score(scorer, ("***", story(1)), ALL).error).startswith("reference: no text is left")


@pytest.mark.parametrize(
    ("clean", "says"),
    [
        (
            ["html"],
            "^clean must be one of 'markdown', 'think', 'list-numbers', 'time-stamps', 'chat', not 'html'$",
        ),
        ("markdown", "^clean must be a sequence of names, not the string 'markdown'$"),
    ],
)
def test_unknown_names_are_refused_with_the_choice(clean: list[str] | str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Options(clean=clean)


def test_commands_clean_what_they_are_told(tiny_bundle: Path, tmp_path: Path) -> None:
    pairs, scores = tmp_path / "pairs.jsonl", tmp_path / "scores.jsonl"
    rows = [{"reference": PLAIN, "generated": MARKED}, {"reference": PLAIN, "generated": "<think>"}]
    write_pairs(pairs, rows)
    models = ("--bundle", tiny_bundle, "--clean", "think, list-numbers,markdown")
    done = vcs("score", pairs, "-o", scores, *models)
    assert done.code == 1
    assert (
        "generated: no text is left after cleaning (markdown, think, list-numbers)" in done.stderr
    )
    assert "|clean:markdown+think+list-numbers|" in done.stdout
    assert '"vcs": 1.0' in scores.read_text("utf-8") or '"vcs": 0.99' in scores.read_text("utf-8")
    explained = vcs("explain", pairs, "--json", *models)
    assert "**" not in explained.stdout
    other = vcs("score", pairs, "-o", scores, "--resume", "--bundle", tiny_bundle)
    assert_refused(other, "clean:")


@pytest.mark.parametrize("names", ["html", "markdown,html", "", "markdown,"])
def test_the_command_refuses_unknown_names(names: str) -> None:
    done = vcs("score", "pairs.jsonl", "--clean", names)
    assert done.code == 2
    assert (
        "clean must be one of 'markdown', 'think', 'list-numbers', 'time-stamps', 'chat', not '"
        in done.stderr
    )
