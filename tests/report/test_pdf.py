"""The PDF: pages of one size, a title page that says what matters, texts that are all there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.command_line import vcs
from support.explained import drawn, explained
from support.stories import story
from vcs_runtime.report import figures, views, write_pdf
from vcs_runtime.report.flow import Document, Table, View, alone_pages, compose, drawn_pages
from vcs_runtime.report.marks import VERDICT_MARKS
from vcs_runtime.report.pdf import pair_document
from vcs_runtime.report.sheet import HEIGHT, MARGIN, PAGE, PITCH, WIDTH, length, wrap
from vcs_runtime.scoring.score_table import HEADLINE, LABELS, SCORES, up_to
from vcs_runtime.scoring.verdicts import VERDICTS

SIZES = [(1, 1), (1, 4), (6, 5), (40, 20), (5, 60)]


def words(figure: Any) -> str:
    """All texts of a figure, line ends as spaces."""
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return " ".join(" ".join(text.get_text() for text in found).split())


@cache
def pair(n_ref: int, n_gen: int) -> Document:
    return pair_document(drawn(n_ref, n_gen), "gen.txt", ("gen.txt", "ref.txt"))


@cache
def pages_of(n_ref: int, n_gen: int) -> list[Any]:
    return list(drawn_pages(pair(n_ref, n_gen)))


@pytest.mark.parametrize("size", SIZES)
def test_all_pages_have_one_size_and_their_number_and_nothing_touches_the_edge(
    size: tuple[int, int],
) -> None:
    pages = pages_of(*size)
    for number, page in enumerate(pages, 1):
        assert tuple(page.get_size_inches()) == PAGE
        assert f"{number} of {len(pages)}" in words(page)
        page.draw_without_rendering()
        for artist in page.findobj(lambda artist: hasattr(artist, "cells")):
            for x, y, text in artist.cells:
                assert (
                    MARGIN
                    <= x
                    <= x + length(text, artist.font.get_size())
                    <= PAGE[0] - MARGIN + 0.01
                ), text
                assert MARGIN <= y <= PAGE[1] - 0.4, text
        for axes in page.axes:
            if axes.axison:
                box = axes.get_tightbbox().transformed(page.dpi_scale_trans.inverted())
                assert box.x0 > MARGIN - 0.1, axes.get_xlabel()
                assert box.x1 < PAGE[0] - MARGIN + 0.2, axes.get_xlabel()
                assert box.y0 > MARGIN, axes.get_xlabel()


@pytest.mark.parametrize("size", SIZES)
def test_no_page_but_the_last_is_half_empty(size: tuple[int, int]) -> None:
    for placed in pair(*size).pages[:-1]:
        top, block = placed[-1]
        assert HEIGHT / 2 < top + block.height <= HEIGHT


def test_the_title_page_says_what_was_scored_and_verdicts_stand_before_what_pulled_it_down() -> (
    None
):
    e = drawn(6, 5)
    document = pair_document(e, "a title", ("gen.txt", "ref.txt"), "29 February 2000")
    page = words(next(drawn_pages(document)))
    for said in (
        "a title",
        "Generated text gen.txt: 5 chunks",
        "Reference ref.txt: 6 chunks",
        "29 February 2000",
        e.result.signature,
        e.conclusion,
        e.sentences["vcs"],
    ):
        assert said in page
    for name in up_to(HEADLINE):
        assert f"{LABELS[name]} {getattr(e.scores, name):.3f} {SCORES[name].meaning}" in page
    rest = " ".join(map(words, drawn_pages(document))).removeprefix(page)
    dearest = sorted(e.costs, key=lambda name: -e.costs[name])
    said = ["The reference, chunk by chunk", *(e.sentences[name] for name in ("loss", *dearest))]
    places = [rest.index(text) for text in said]
    assert places == sorted(places)


def test_the_reason_of_a_zero_comes_first() -> None:
    page = words(pages_of(3, 2)[0])
    assert "VCS is 0 by definition: with 3 and 2 chunks" in page


def test_the_explained_reference_is_named_by_its_number() -> None:
    e = explained([[0.9]])
    object.__setattr__(e.result, "reference_index", 1)
    object.__setattr__(e.result, "n_references", 3)
    page = words(next(drawn_pages(pair_document(e, "t", ("", "b.txt")))))
    assert "Reference b.txt (number 2 of 3): 1 chunk " in page


@pytest.mark.parametrize("size", [(1, 1), (40, 20)])
def test_the_contents_lead_to_the_pages(size: tuple[int, int]) -> None:
    document = pair(*size)
    pages = [words(page) for page in pages_of(*size)]
    names = [name for name, _ in document.entries]
    assert len(set(names)) == len(names) >= 10
    for name, number in document.entries:
        assert re.search(rf"{re.escape(name)} {number} ", pages[0])
        assert name in pages[number - 1]
        assert not any(name in page for page in pages[1 : number - 1])


@pytest.mark.parametrize(
    ("size", "count"), [((3, 2), 6), ((24, 14), 336), ((25, 14), 0), ((24, 15), 0)]
)
def test_cells_of_small_matrices_hold_their_numbers(size: tuple[int, int], count: int) -> None:
    axes = figures.similarity(drawn(*size)).axes[0]
    numbers = [text.get_text() for text in axes.texts]
    assert len(numbers) == count
    assert all(re.fullmatch(r"-?\d\.\d\d", number) for number in numbers)


def test_every_chunk_is_there_in_lines_as_wide_as_the_page() -> None:
    texts = (
        [f"chunk {i} of the reference " + "goes on and on " * (i % 7) for i in range(70)],
        ["x" * 300, "short", "long " * 2000],
    )
    e = explained([[0.5] * 3] * 70, texts=texts)
    every = " ".join(words(page) for page in drawn_pages(pair_document(e, "t")))
    for text in texts[0]:
        assert " ".join(text.split()[:8]) in every
    assert every.replace(" ", "").count("x" * 300) == 1
    assert "(the HTML report shows more)" in every


def test_wrapped_lines_fit_and_lose_nothing() -> None:
    text = "iiii WWWW " * 30 + "W" * 200 + " end"
    lines = wrap(text, 2.0, 8)
    assert all(0 < length(line, 8) <= 2.0 for line in lines)
    assert all(length(line + " iiii", 8) > 1.6 for line in lines[:8])
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert wrap(" ", 2.0) == [""]


def test_lines_of_one_chunk_and_a_subheading_stay_with_what_follows() -> None:
    room = 0.3 + PITCH * 21
    rows = [(str(i) if i % 3 == 0 else "", "", f"line {i}") for i in range(40)]
    first, rest = Table("t", "", ("", "", "a"), (0, 0.1, 0.2), rows).split(room)
    assert first is not None
    assert isinstance(rest, Table)
    assert rest.rows[0] == ("18", "", "line 18")
    assert first.height <= room
    assert Table("t", "", ("", "", "a"), (0, 0.1, 0.2), rows).split(0.3 + PITCH * 3)[0] is None
    pages = [
        words(page)
        for page in alone_pages(Table("t", "", ("a", "b", "c"), (0, 0.1, 0.2), rows * 3))
    ]
    assert len(pages) == 2
    assert "t (continued)" in pages[1]


def test_what_the_font_lacks_is_marked_and_said(tmp_path: Path) -> None:
    texts = (["漢字と絵文字 😀", "رجل يمشي \u202e"], ["x_1^2 $said$ \\alpha", "שלום\x00"])
    e = explained([[0.9, 0.1], [0.2, 0.8]], texts=texts)
    write_pdf(e, tmp_path / "r.pdf", "漢字.txt", ("漢字.txt", "b"))  # a warning is an error here
    first, *others = drawn_pages(pair_document(e, "t"))
    assert "because the font lacks them: 8 of" in words(first)
    assert "x_1^2 $said$ \\alpha" in " ".join(map(words, others))
    assert "font of this document" not in words(
        next(drawn_pages(pair_document(explained([[0.9]]), "t")))
    )


def test_every_verdict_has_a_shape_of_its_own() -> None:
    assert set(VERDICT_MARKS) == set(VERDICTS)
    for column in (1, 2):
        assert len({marks[column] for marks in VERDICT_MARKS.values()}) == len(VERDICTS)


def test_the_file_has_one_size_of_page_and_letters_that_can_be_searched(tmp_path: Path) -> None:
    write_pdf(drawn(12, 9), tmp_path / "r.pdf", "gen.txt")
    file = (tmp_path / "r.pdf").read_bytes()
    boxes = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", file)
    assert len(boxes) >= 4
    assert {(round(float(w)), round(float(h))) for w, h in boxes} == {(595, 842)}
    # Fonts are closed with the setting with which letters were written, or they are boxes.
    assert b"/CIDFontType2" in file
    assert b"/Type3" not in file


@pytest.mark.slow
def test_the_same_pair_gives_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for day in ("1 May 2026", "1 May 2026", "2 May 2026"):
        write_pdf(drawn(3, 3), tmp_path / "r.pdf", dated=day)
        found.append((tmp_path / "r.pdf").read_bytes())
    assert found[0] == found[1] != found[2]
    assert b"CreationDate" not in found[0]


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (5, 40)])
def test_every_figure_is_drawn_without_a_warning_and_as_wide_as_a_page(
    size: tuple[int, int],
) -> None:
    e = drawn(*size)
    for view in (
        figures.summary,
        figures.configuration,
        figures.similarity,
        figures.windows,
        figures.las,
        figures.nas_d,
        figures.nas_l,
        figures.regularizer,
        figures.match_summary,
    ):
        figure = view(e)
        figure.draw_without_rendering()
        assert figure.get_size_inches()[0] == pytest.approx(WIDTH + 0.3)
    assert views.summary(e).height < HEIGHT


def test_the_command_names_both_files(tiny_bundle: Path, tmp_path: Path) -> None:
    for name, text in (
        ("ref.txt", story(1, 6)),
        ("other.txt", story(2, 3)),
        ("gen.txt", story(1, 5)),
    ):
        (tmp_path / name).write_text(text)
    texts = [tmp_path / name for name in ("other.txt", "ref.txt")]
    done = vcs(
        "report",
        *texts,
        *f"{tmp_path}/gen.txt -o {tmp_path}/r.pdf --bundle {tiny_bundle} --device cpu".split(),
    )
    assert (done.code, done.stdout, done.stderr) == (0, f"{tmp_path / 'r.pdf'}\n", "")
    assert b"/Title (gen.txt)" in (tmp_path / "r.pdf").read_bytes()


def test_contents_that_need_a_page_share_it_with_the_first_view() -> None:
    front = View("", "", HEIGHT - 0.1, lambda area: None)
    body = [View(name, "", 2.0, lambda area: None) for name in ("first", "second")]
    document = compose("title", [front], body)
    assert [len(page) for page in document.pages] == [1, 3]
    assert document.entries == [("first", 2), ("second", 2)]
    tops = [placed.top for placed in document.pages[1]]
    assert tops == sorted(set(tops))
    assert [len(page) for page in compose("title", [], body).pages] == [1, 2]
