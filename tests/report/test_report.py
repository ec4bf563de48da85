"""Reports: what a browser makes of them, what is written, plots and PDF without a warning."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.command_line import vcs
from support.explained import drawn, explained
from support.stories import story, write_pairs
from vcs_runtime.errors import InputError
from vcs_runtime.report import HtmlReport, Systems, figures, write_pdf

HOSTILE = (
    '<script>document.title="owned"</script><img src=x onerror=alert(1)>',
    "</script></style>]]>--> &amp; \u202egnp.exe \u2067\u200f \x00",
)


def single(path: Path, explanation: Any) -> Path:
    with HtmlReport(path, "a <title>") as report:
        report.add(explanation)
        report.finish()
    return path


def many(path: Path) -> tuple[Path, Systems]:
    systems = Systems()
    with HtmlReport(path, "many") as report:
        for name in ("first", "<b>second</b>"):
            systems.begin(name, "vcs|def:1.0.0|drawn")
            for seed in range(60):
                e = drawn(6 + seed % 5, 6, seed)
                systems.add(f"pair {seed}", e.result.to_dict(), report.add(e, f"pair {seed}"))
        systems.add(HOSTILE[0], {"error": HOSTILE[1], "signature": "vcs|def:1.0.0|drawn"}, None)
        report.finish(systems)
    return path, systems


def test_pointing_at_a_chunk_marks_its_match(visit: Any, tmp_path: Path) -> None:
    e = drawn(12, 9)
    page = visit(single(tmp_path / "r.html", e))
    page.hover("#generated-4")
    [partner] = page.query_selector_all(".partner")
    assert partner.get_attribute("id") == f"reference-{e.generated[4].match}"
    page.focus("#reference-0")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.id") == "reference-1"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == f"generated-{e.reference[1].match}"
    assert page.inner_text("h1") == "a <title>"


def test_texts_are_never_markup(visit: Any, tmp_path: Path) -> None:
    texts = ([HOSTILE[0], "x" * 100_000], [HOSTILE[1], "b"])
    page = visit(single(tmp_path / "r.html", explained([[0.9, 0.1], [0.2, 0.8]], texts=texts)))
    assert page.inner_text("#reference-0").splitlines()[1] == HOSTILE[0]
    assert page.title() == "a <title>"
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert len(page.inner_text("#reference-1")) < 5000


def test_long_lists_are_paged_and_the_match_is_brought_into_sight(
    visit: Any, tmp_path: Path
) -> None:
    page = visit(single(tmp_path / "r.html", drawn(400, 400)))
    assert page.evaluate("document.querySelectorAll('.chunk').length") == 200
    page.evaluate("document.querySelector('#generated-0').focus()")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.id") == "generated-399"
    assert page.evaluate("document.querySelectorAll('.partner').length") == 1


def test_the_table_of_pairs_sorts_and_leads_to_their_pages(visit: Any, tmp_path: Path) -> None:
    path, systems = many(tmp_path / "r.html")
    page = visit(path)

    def column() -> list[float]:
        return [
            float(text)
            for text in page.eval_on_selector_all(
                "#pairs tbody td:nth-child(4)", "cells => cells.map(cell => cell.textContent)"
            )
        ]

    worst = column()
    assert worst == sorted(worst)
    margins = [*systems.values(0, "margin"), *systems.values(1, "margin")]
    assert worst[0] == pytest.approx(min(margins), abs=6e-4)
    assert page.get_attribute("#pairs thead th:nth-child(4)", "aria-sort") == "ascending"
    page.click("#pairs thead th:nth-child(4) button")
    assert column() == sorted(column(), reverse=True)
    assert page.get_attribute("#pairs thead th:nth-child(4)", "aria-sort") == "descending"
    assert "<b>second</b>" in page.inner_text("#systems")
    page.click("#pairs tbody a")
    page.wait_for_selector("#generated-0")
    assert page.query_selector("text=All pairs") is not None


def test_a_pair_of_fifty_chunks_is_small_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = (single(tmp_path / name, drawn(50, 50)).read_bytes() for name in "ab")
    assert first == second
    assert len(first) < 2_000_000
    assert b"default-src 'none'" in first


@pytest.mark.parametrize("kind", ["pairs", "scores", "--pairs", "texts"])
def test_a_report_does_not_replace_what_it_reads(
    tiny_bundle: Path, pairs_file: Path, tmp_path: Path, kind: str
) -> None:
    scores, output = tmp_path / "scores.jsonl", tmp_path / "x.html"
    finished = vcs("score", pairs_file, "-o", scores, "--bundle", tiny_bundle, "--device", "cpu")
    assert finished.code == 0
    text = Path(shutil.copy(pairs_file, tmp_path / "text"))
    read = {"scores": scores, "texts": text}.get(kind, pairs_file)
    output.symlink_to(read)
    arguments = {
        "pairs": (pairs_file,),
        "scores": (scores,),
        "--pairs": (scores, "--pairs", pairs_file),
        "texts": (Path(shutil.copy(scores, tmp_path / "a.txt")), read),
    }[kind]
    done = vcs("report", *arguments, "-o", output, "--bundle", tiny_bundle, "--device", "cpu")
    assert done.code == 2
    assert done.stderr == f"vcs-runtime: {output} is the input {read}: choose another output\n"
    assert output.is_symlink()


def test_two_reports_to_one_name_do_not_mix(tmp_path: Path) -> None:
    path, alone = tmp_path / "x.html", single(tmp_path / "alone.html", drawn(3, 3))
    with HtmlReport(path, "slow") as slow:
        slow.add(drawn(40, 40))
        assert single(path, drawn(3, 3)).read_bytes() == alone.read_bytes()
        slow.finish()
    assert path.read_bytes() == long_alone(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone.html", "long.html", "x.html"]


def long_alone(folder: Path) -> bytes:
    with HtmlReport(folder / "long.html", "slow") as report:
        report.add(drawn(40, 40))
        report.finish()
    return (folder / "long.html").read_bytes()


@pytest.mark.parametrize("suffix", ["html", "pdf"])
def test_a_report_follows_no_link(tmp_path: Path, suffix: str) -> None:
    path, thesis = tmp_path / f"x.{suffix}", tmp_path / "thesis"
    thesis.write_text("thesis")
    for name in (
        path,
        path.with_name(f"{path.name}.unfinished"),
        path.with_name(f"{path.name}.tmp"),
    ):
        name.symlink_to(thesis)
    if suffix == "html":
        single(path, drawn(3, 3))
    else:
        write_pdf(drawn(3, 3), path)
    assert thesis.read_text() == "thesis"
    assert not path.is_symlink()


def test_a_report_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), HtmlReport(tmp_path / "r.html", "t"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(InputError, match="nowhere"),
        HtmlReport(tmp_path / "nowhere" / "r.html", "t"),
    ):
        pass


def test_the_command(tiny_bundle: Path, pairs_file: Path, tmp_path: Path) -> None:
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    rows = [json.loads(line) for line in pairs_file.read_text().splitlines()]
    write_pairs(pairs_file, [*rows, {"id": "bad", "reference": story(1), "generated": "!"}])
    done = vcs("report", pairs_file, "-o", tmp_path / "r.html", *engine)
    assert (done.code, done.stderr.strip()) == (
        1,
        "vcs-runtime: bad: generated: the text has only punctuation",
    )
    assert (tmp_path / "r.html").read_text().count('id="block-') == 12
    scores = tmp_path / "s.jsonl"
    vcs("score", pairs_file, "-o", scores, *engine)
    done = vcs(
        "report", scores, "--pairs", pairs_file, "--pages", 2, "-o", tmp_path / "s.html", *engine
    )
    assert done.code == 1
    assert (tmp_path / "s.html").read_text().count('id="block-') == 4
    other = vcs(
        "report", scores, "--pairs", pairs_file, "--lct", 1, "-o", tmp_path / "t.html", *engine
    )
    assert "scored with lct:0, but this run has lct:1: give the same options" in other.stderr
    refused = vcs("report", scores, "-o", tmp_path / "s.pdf")
    assert refused.code == 2
    assert refused.stderr.endswith("or several score files: write this report as .html\n")
    assert not (tmp_path / "s.pdf").exists()
    assert vcs("report", scores, "-o", tmp_path / "s.txt").code == 2
    assert vcs("report", pairs_file, pairs_file, "-o", tmp_path / "s.html").code == 2


def test_one_pair_and_several_systems_are_drawn_as_pictures(
    tiny_bundle: Path, pairs_file: Path, tmp_path: Path
) -> None:
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    scores = [tmp_path / f"{name}.jsonl" for name in ("alpha", "b$eta")]
    for path in scores:
        assert vcs("score", pairs_file, "-o", path, *engine).code == 0
    pair = [tmp_path / f"{name}.txt" for name in ("r", "g")]
    for number, path in enumerate(pair):
        path.write_text(story(number))
    for suffix, start in begins.items():
        for name, sources in (("systems", scores), ("pair", pair)):
            output = tmp_path / f"{name}.{suffix}"
            done = vcs("report", *sources, "-o", output, *(engine if sources is pair else ()))
            assert (done.code, done.stdout, done.stderr) == (0, f"{output}\n", "")
            assert output.read_bytes().startswith(start)
            again = vcs("report", *sources, "-o", output, *(engine if sources is pair else ()))
            assert "exists already (--overwrite replaces it)" in again.stderr
    svg = (tmp_path / "systems.svg").read_bytes()
    output = tmp_path / "again.svg"
    texts = ("--references", pairs_file, "--predictions", pairs_file)
    done = vcs("report", *scores, "-o", output, *texts)
    assert (
        done.stderr == "vcs-runtime: the texts are not used, because a picture shows only scores\n"
    )
    assert output.read_bytes() == svg


def test_systems_are_drawn_in_their_order_with_intervals_on_one_axis() -> None:
    means = {
        name: {"vcs": (value, value - 0.1, value + 0.1), "margin": (-value, -0.9, 0.1)}
        for name, value in (("best", 0.8), ("worst", 0.2))
    }
    figure = figures.systems(means, "about")
    vcs_axes, margin_axes = figure.axes
    assert [text.get_text() for text in vcs_axes.get_yticklabels()] == ["best", "worst"]
    lines = [[*map(float, line.get_xdata())] for line in vcs_axes.lines]
    assert lines == [[0.8 - 0.1, 0.8 + 0.1], [0.8], [0.2 - 0.1, 0.2 + 0.1], [0.2]]
    assert vcs_axes.lines[0].get_ydata()[0] > vcs_axes.lines[2].get_ydata()[0]
    assert margin_axes.get_xlim()[0] < -1 < vcs_axes.get_xlim()[0]
    one = figures.systems({"a": {"vcs": (0.5, float("nan"), float("nan"))}}, "one pair")
    assert len(one.axes) == 1
