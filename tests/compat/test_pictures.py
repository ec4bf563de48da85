"""The 12 pictures and the PDF report, drawn from internals."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.words import embed, sentences
from vcs_runtime import MissingExtraError, compat
from vcs_runtime.errors import InputError
from vcs_runtime.report import flow

plt = pytest.importorskip("matplotlib.pyplot")
from matplotlib.figure import Figure  # noqa: E402

VIEWS = [name for name in compat.__all__ if name.startswith("visualize_")]
SECTIONS = [
    "Config",
    "Overview",
    "Text Chunks",
    "Similarity Matrix",
    "Mapping Windows",
    "Best Match",
    "LAS",
    "NAS Distance",
    "NAS Line",
    "Window Regularizer",
]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


@cache
def internals(n_ref: int = 5, n_gen: int = 4) -> dict[str, Any]:
    words = "man dog door night rain car song book tree lake".split()
    texts = [
        " ".join(f"The {words[(i * step) % 10]} number {i} is here." for i in range(count))
        for step, count in ((1, n_ref), (3, n_gen))
    ]
    result = compat.compute_vcs_score(texts[0], texts[1], sentences, embed, return_internals=True)
    return dict(result["internals"])


def figures_of(drawn: Any) -> list[Any]:
    if isinstance(drawn, dict):
        return [figure for value in drawn.values() for figure in figures_of(value)]
    return list(drawn) if isinstance(drawn, list) else [drawn]


def words_in(figure: Any) -> str:
    return " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))


def test_there_are_twelve() -> None:
    assert len(VIEWS) == 12


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", [(1, 1), (70, 90)])
def test_every_picture_is_drawn_for_every_size_and_can_be_shown(
    view: str, size: tuple[int, int]
) -> None:
    figures = figures_of(getattr(compat, view)(internals(*size)))
    assert figures
    for figure in figures:
        assert isinstance(figure, Figure)
        figure.show()
        assert plt.fignum_exists(figure.number)


def test_the_chunks_of_each_text_have_pages_of_their_own() -> None:
    pages = compat.visualize_text_chunks(internals(70, 3))
    assert list(pages) == ["reference_chunks", "generated_chunks"]
    assert len(pages["reference_chunks"]) == 2
    [generated] = pages["generated_chunks"]
    assert "REFERENCE" not in words_in(generated)
    for i in range(3):
        assert f"number {i} is here" in words_in(generated)
    said = " ".join(map(words_in, pages["reference_chunks"]))
    assert all(f"number {i} is here" in said for i in range(70))


def test_the_matches_of_each_direction_are_all_listed() -> None:
    given = internals(5, 60)
    drawn = compat.visualize_best_match(given)
    assert list(drawn) == ["precision_details", "recall_details", "summary_table"]
    lines = [
        len(re.findall(r"^\d+$", words_in(drawn[name]), re.M))
        for name in ("precision_details", "recall_details")
    ]
    assert lines[0] > 60 > lines[1] >= 5
    said = words_in(drawn["summary_table"])
    assert "60 sentences, mean similarity" in said
    assert "5 sentences, mean similarity" in said


def test_the_steps_of_nas_l_belong_to_their_direction() -> None:
    given = internals(5, 4)
    [precision] = compat.visualize_line_nas_precision_calculations(given)
    [recall] = compat.visualize_line_nas_recall_calculations(given)
    assert "NAS-L precision" in words_in(precision)
    assert "NAS-L recall" in words_in(recall)


def pages(path: Path) -> int:
    return len(re.findall(rb"/Type /Page\b", path.read_bytes()))


@pytest.mark.slow
def test_the_report_holds_every_section_or_those_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, composed = internals(), {}

    def noted(document: flow.Document, path: Path) -> None:
        composed[path.stem] = document
        # Drawing takes the time, and "all" draws what every section has.
        if path.stem in ("all", "two"):
            flow.write_document(document, path)

    monkeypatch.setattr(compat.pictures, "write_document", noted)
    for name in ("all", *SECTIONS):
        compat.create_vcs_pdf_report(given, str(tmp_path / "made" / "here" / f"{name}.pdf"), name)
        assert len(composed[name].pages) == (6 if name == "all" else 2)
    assert pages(tmp_path / "made" / "here" / "all.pdf") == 6
    listed = {name: [entry for entry, _ in document.entries] for name, document in composed.items()}
    assert [entry for name in SECTIONS for entry in listed[name]] == listed["all"]
    assert len(set(listed["all"])) == len(listed["all"])
    assert {name: len(listed[name]) for name in SECTIONS} == {
        **dict.fromkeys(SECTIONS, 1),
        "Text Chunks": 2,
        "Best Match": 2,
        "NAS Line": 3,
    }
    compat.create_vcs_pdf_report(given, tmp_path / "two.pdf", ["NAS Line", "LAS"])
    assert [entry for entry, _ in composed["two"].entries] == [*listed["LAS"], *listed["NAS Line"]]
    assert pages(tmp_path / "two.pdf") == len(composed["two"].pages)
    assert not plt.get_fignums()


@pytest.mark.parametrize("wanted", ["Lies", ["LAS", "lies"], [], ["all", "LAS"]])
def test_an_unknown_section_is_refused_before_anything_is_written(
    wanted: Any, tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match="metrics_to_include must be 'all' or names from 'Config', "
    ):
        compat.create_vcs_pdf_report(internals(), tmp_path / "a" / "b.pdf", wanted)
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="b.pdf"):
        compat.create_vcs_pdf_report(internals(), tmp_path / "file" / "b.pdf", "Config")


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = internals()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for view in VIEWS:
        with pytest.raises(MissingExtraError, match=r"vcs-runtime\[report\]"):
            getattr(compat, view)(given)
    with pytest.raises(MissingExtraError, match=r"vcs-runtime\[report\]"):
        compat.create_vcs_pdf_report(given, tmp_path / "a.pdf")
