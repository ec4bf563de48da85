"""Replaced words in reports: marks in both texts, the table, and key figures."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.command_line import vcs
from support.explained import explained
from support.letters import BLUE, RED, Bars, Letters
from support.stories import story, write_pairs
from vcs_runtime import Scorer
from vcs_runtime.report import HtmlReport, Systems, write_pdf
from vcs_runtime.report.flow import drawn_pages
from vcs_runtime.report.pdf import pair_document
from vcs_runtime.report.systems import figures_of
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.explanation import explain as explain_result
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.scoring.score_table import ALL, HEADLINE, LABELS, names_with, up_to
from vcs_runtime.scoring.substitution import WordComparison

ALSO = ("hm-cf", "substitution")
HOSTILE = "a <script>red</script> car 😀😀 </mark><img src=x onerror=alert(1)>\u202e the green door"
ALSO_HOSTILE = '😀 a <script>blue</script> car"></mark><img src=x onerror=alert(1)> the yellow door'


@pytest.fixture(scope="module")
def explain(tiny_bundle: Path) -> Iterator[Callable[..., Explanation]]:
    with Scorer.open(embedder=Letters(), segmenter=Bars(), words=tiny_bundle) as scorer:
        yield lambda reference, generated, also=ALSO: scorer.explain(
            reference, generated, also=also
        )


@pytest.fixture(scope="module")
def raw(tiny_bundle: Path) -> Callable[..., Explanation]:
    """Explains chunks as they are: a scorer would take marks away that could be markup."""
    comparison = WordComparison(tiny_bundle)

    def explained_raw(reference: list[str], generated: list[str]) -> Explanation:
        plain = explained(np.eye(len(reference)) * 0.9, texts=(reference, generated))
        evidence = Evidence((reference, generated), plain.similarity, 0.8)
        [(strict, [words])] = comparison.compare([([evidence], [plain.scores])], plain.params)
        result = replace(plain.result, strict=strict)
        return explain_result(result, evidence._replace(words=words), plain.params)

    return explained_raw


def single(path: Path, explanation: Explanation) -> Path:
    with HtmlReport(path, "title") as report:
        report.add(explanation)
        report.finish()
    return path


def block_of(path: Path, name: str) -> Any:
    [packed] = re.findall(rf'id="{name}">([^<]*)<', path.read_text("utf-8"))
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def utf16(text: str, place: list[int]) -> str:
    """A part of a text, with its place as JavaScript counts."""
    return text.encode("utf-16-le")[2 * place[0] : 2 * place[1]].decode("utf-16-le")


def test_the_page_has_each_pair_of_words_with_its_places(
    raw: Callable[..., Explanation], tmp_path: Path
) -> None:
    e = raw([HOSTILE, RED], [ALSO_HOSTILE, BLUE])
    data = block_of(single(tmp_path / "r.html", e), "block-0")
    assert len(data["replaced"]) == len(e.replaced) > 3
    for row, word in zip(data["replaced"], e.replaced, strict=True):
        assert row["words"] == [word.reference, word.generated]
        for side, text, chunk, place in zip(
            ("reference", "generated"), row["words"], row["chunks"], row["places"], strict=True
        ):
            assert utf16(data[side]["text"][chunk], place) == text
    assert {row["likeness"] for row in data["replaced"]} == {"excludes it"}
    assert data["scores"] == pytest.approx(e.values)
    assert set(data["scores"]) == set(names_with(["substitution"]))


def test_a_word_that_is_not_shown_has_no_mark(
    raw: Callable[..., Explanation], tmp_path: Path
) -> None:
    # Of a text of more than 4,000 characters 3,999 are shown.
    for count, after, shown in (
        (3994, " car", [True, True]),
        (3995, " car", [True, False]),
        (3996, " car", [False, False]),
        (3996, "", [True, False]),
    ):
        filler = "x" * count
        e = raw([f"{filler} red{after}", "a cup"], [f"{filler} blue{after}", "a cup"])
        [row] = [
            row
            for row in block_of(single(tmp_path / "r.html", e), "block-0")["replaced"]
            if row["words"] == ["red", "blue"]
        ]
        assert [place is not None for place in row["places"]] == shown


def test_a_page_opens_if_a_word_is_not_shown(
    visit: Any, raw: Callable[..., Explanation], tmp_path: Path
) -> None:
    filler = "x" * 5000
    page = visit(single(tmp_path / "r.html", raw([f"{filler} red"], [f"{filler[:9]} blue"])))
    assert page.locator("mark").all_inner_texts() == ["blue1"]
    assert page.locator("#replaced tbody tr").count() == 1


def test_without_substitution_a_page_is_as_before(
    explain: Callable[..., Explanation], tmp_path: Path
) -> None:
    path = single(tmp_path / "r.html", explain(RED, BLUE, ()))
    data, index = block_of(path, "block-0"), block_of(path, "index")
    assert (data["replaced"], data["strict"]) == ([], None)
    assert "substitution" not in data["scores"].keys() | data["sentences"].keys()
    assert not {"substitution", "hm_cf"} & {score["name"] for score in index["scores"]}


def test_words_are_marked_in_both_texts_and_listed(
    visit: Any, barriers: Callable[..., list[str]], raw: Callable[..., Explanation], tmp_path: Path
) -> None:
    e = raw([HOSTILE, RED], [ALSO_HOSTILE, BLUE])
    page = visit(single(tmp_path / "r.html", e))
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    for side, other, verb in (
        ("reference", "generated", "became"),
        ("generated", "reference", "stands for"),
    ):
        marks = page.locator(f"[aria-label='{side} chunks'] mark")
        found = marks.evaluate_all(
            "all => all.map(n => [n.firstChild.data, n.title, n.querySelector('sup').textContent])"
        )
        expected = [
            [getattr(word, side), f"{verb} {getattr(word, other)}, excludes it", str(number)]
            for number, word in enumerate(e.replaced, 1)
        ]
        assert sorted(found) == sorted(expected)
        line = page.locator(f"[aria-label='{side} chunks'] li").first.locator("[dir=auto]")
        without = line.evaluate(
            "n => { n.querySelectorAll('sup').forEach(s => s.remove()); return n.textContent }"
        )
        assert without == {"reference": HOSTILE, "generated": ALSO_HOSTILE}[side]
    # Not colour alone.
    assert marks.first.evaluate("n => getComputedStyle(n).borderBottomStyle") == "solid"
    rows = page.locator("#replaced tbody tr").evaluate_all(
        "all => all.map(r => [...r.children].map(c => c.textContent))"
    )
    assert rows == [
        [
            str(number),
            word.reference,
            word.generated,
            word.word_class,
            "excludes it",
            str(word.reference_chunk + 1),
            str(word.generated_chunk + 1),
        ]
        for number, word in enumerate(e.replaced, 1)
    ]
    figures = dict(
        page.locator(".headline > div").evaluate_all(
            "all => all.map(n => [...n.children].slice(0, 2).map(c => c.textContent))"
        )
    )
    assert figures == {
        LABELS[name]: f"{e.values[name]:.3f}" for name in figures_of(["substitution"])
    }
    assert page.locator(".headline > div").last.inner_text().endswith(ALL["vcs_strict"].meaning)
    assert e.sentences["substitution"] in page.locator(".sentences li").all_inner_texts()
    assert f"substitution {e.values['substitution']:.3f}" in page.inner_text("#formulas")
    assert barriers(page) == []


def test_the_surest_of_many_words_are_listed_and_all_are_marked(
    visit: Any, explain: Callable[..., Explanation], tmp_path: Path
) -> None:
    reference, generated = (
        "|".join(
            f"the {letter * 5} {colour} {letter * 7} and {letter * 4}"
            for letter in "abcdefghijklmnopqrstuvwxyz"
        )
        for colour in ("red", "blue")
    )
    page = visit(single(tmp_path / "r.html", explain(reference, generated)))
    assert page.locator("#replaced tbody tr").count() == 20
    assert page.locator("mark").count() == 2 * 26
    assert "6 more, which are less sure, are marked only there." in page.inner_text("main")


def test_the_command_writes_pages_that_open(visit: Any, tiny_bundle: Path, tmp_path: Path) -> None:
    rows = [{"id": i, "reference": story(i), "generated": story(30 + i)} for i in range(3)]
    write_pairs(tmp_path / "p.jsonl", rows)
    engine = ("--bundle", tiny_bundle, "--words", tiny_bundle, "--device", "cpu")
    more = [argument for metric in ALSO for argument in ("--also", metric)]
    done = vcs("report", tmp_path / "p.jsonl", *more, "-o", tmp_path / "r.html", *engine)
    assert done.code == 0, done.stderr
    page = visit(tmp_path / "r.html", "#pair-0")
    assert page.locator("mark").count() > 0
    page = visit(tmp_path / "r.html")
    labels = page.locator(".lead-figures dt").all_inner_texts()
    assert set(labels) == {LABELS[name] for name in figures_of(ALSO)}


def systems_of(explain: Callable[..., Explanation]) -> tuple[Systems, list[list[Explanation]]]:
    """Two systems: the words of the first are replaced, those of the second are not."""
    explained = [[explain(RED, BLUE), explain(RED, RED)], [explain(RED, RED), explain(RED, RED)]]
    systems = Systems()
    for name, own in zip(("replacer", "copier"), explained, strict=True):
        systems.begin(name, "vcs|drawn")
        for number, e in enumerate(own):
            systems.add(f"video {number}", e.result.to_dict(), None)
    return systems, explained


def test_the_smallest_substitution_is_the_best(
    visit: Any, explain: Callable[..., Explanation], tmp_path: Path
) -> None:
    systems, _ = systems_of(explain)
    with HtmlReport(tmp_path / "r.html", "") as report:
        report.finish(systems)
    page = visit(tmp_path / "r.html")
    bold = page.locator("#systems strong").evaluate_all(
        "all => all.map(n => [n.closest('tr').firstChild.textContent, n.closest('td').cellIndex])"
    )
    heads = page.locator("#systems thead th").all_inner_texts()
    assert "substitution" not in [heads[column] for name, column in bold if name == "replacer"]
    assert "substitution" in [heads[column] for name, column in bold if name == "copier"]
    text = page.inner_text("main")
    assert (
        "the highest mean of VCS, margin, GAS, LAS, SAS, NAS, HM-CF and VCS strict, the lowest of"
        " substitution." in text
    )
    assert "Bold: the highest score of a video." in text
    page.select_option("#score", "substitution")
    assert "Bold: the lowest score of a video." in page.inner_text("main")
    assert page.locator("#comparison tbody th").all_inner_texts() == ["copier", "replacer"]
    marked = page.locator("#videos strong").evaluate_all(
        "all => all.map(n => n.closest('td').cellIndex)"
    )
    assert marked == [2]  # the copier's, in the only video where they differ


def words(figure: Any) -> str:
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return " ".join(" ".join(text.get_text() for text in found).split())


def test_the_pdf_has_the_table_the_sentence_and_the_key_figures(
    explain: Callable[..., Explanation], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    e = explain("a dog|" + RED, "a dog|" + BLUE)
    document = pair_document(e, "t")
    pages = [words(page) for page in drawn_pages(document)]
    assert e.sentences["substitution"] in " ".join(pages)
    for name in up_to(HEADLINE, ALSO):
        assert f"{LABELS[name]} {e.values[name]:.3f}" in pages[0]
    number = dict(document.entries)["Replaced words"]
    for word in e.replaced:
        row = (
            word.reference,
            word.generated,
            word.word_class,
            "excludes it",
            word.reference_chunk + 1,
        )
        assert " ".join(map(str, row)) in pages[number - 1]
    assert "For substitution and replaced words, 0 is perfect." in " ".join(pages)
    write_pdf(e, tmp_path / "r.pdf")
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")
    plain = pair_document(explain(RED, BLUE, ()), "t")
    assert "Replaced words" not in dict(plain.entries)
    assert "replaced" not in " ".join(words(page) for page in drawn_pages(plain))
