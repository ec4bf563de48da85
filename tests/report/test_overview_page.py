"""The overview of several systems in a browser: filters, download, links, phone, paper."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.command_line import assert_refused, vcs
from support.explained import drawn
from support.stories import write_pairs
from vcs_runtime.report import HtmlReport, Systems

ODD = '=1+1, "quoted"'  # the name of a pair that a spreadsheet would compute
ADDRESS = "https://example.org/watch?v=-a_1"
SYSTEMS = ("alpha", "beta")


def lines(system: str, count: int = 12) -> list[dict[str, Any]]:
    """Lines of a score file with kept columns; the last pair failed."""
    rows = []
    for k in range(count):
        e = drawn(5 + k % 3, 6, seed=k + 100 * len(system))
        link = ADDRESS if k % 2 else "javascript:alert(1)"
        rows.append(
            {
                "id": ODD if k == 3 else f"video {k}",
                **e.result.to_dict(),
                "link": link,
                "genre": f"g{k % 2}",
            }
        )
    return [
        *rows,
        {"id": "silent", "error": "the text is empty", "signature": rows[0]["signature"]},
    ]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{system}.jsonl" for system in SYSTEMS]
    for path in paths:
        write_pairs(path, lines(path.stem))
        os.utime(path, (1_777_777_777, 1_777_777_777))
    return paths


@pytest.fixture
def html(files: list[Path], tmp_path: Path) -> Path:
    """A report about two score files, without pages."""
    assert vcs("report", *files, "-o", tmp_path / "r.html").code == 1
    return tmp_path / "r.html"


@pytest.fixture
def with_pages(tmp_path: Path) -> Path:
    """A report about two systems whose pairs have pages."""
    systems = Systems()
    with HtmlReport(tmp_path / "p.html", "") as report:
        for number, name in enumerate(SYSTEMS):
            systems.begin(name, "vcs|chunk:1|drawn")
            for k in range(8):
                e = drawn(6, 6, seed=k + 50 * number)
                verdicts = {chunk.verdict for chunk in (*e.reference, *e.generated)}
                page = report.add(e, f"video {k}", system=name)
                systems.add(f"video {k}", e.result.to_dict(), page, verdicts)
        report.finish(systems)
    return tmp_path / "p.html"


def names(page: Any) -> list[str]:
    found: list[str] = page.locator("#pairs tbody th > :first-child").all_inner_texts()
    return found


def test_the_head_names_the_systems_the_videos_and_the_day(
    visit: Any, html: Path, files: list[Path]
) -> None:
    page = visit(html)
    title = "VCS of alpha and beta on 13 videos"
    assert (page.title(), page.inner_text("h1")) == (title, title)
    assert page.inner_text(".about") == "24 pairs scored, 2 not scored · scores of 3 May 2026"
    before = html.read_bytes()
    assert vcs("report", *files, "-o", html, "--overwrite").code == 1  # one text is empty
    assert html.read_bytes() == before
    vcs(
        "report",
        *files,
        *f"-o {html} --overwrite --title Mine --date".split(),
        "a day",
        *"--name first --name other".split(),
    )
    page = visit(html)
    assert page.inner_text("h1") == "Mine"
    assert page.inner_text(".about").startswith("first and other · 13 videos")
    assert page.inner_text(".about").endswith("· a day")


def test_systems_are_compared_as_by_the_command(visit: Any, html: Path, files: list[Path]) -> None:
    # A third one, so that p-values are corrected.
    files.append(files[0].with_name("other system.jsonl"))
    write_pairs(files[-1], lines(files[-1].stem))
    assert vcs("report", *files, "-o", html, "--overwrite").code == 1  # one text is empty
    page = visit(html)
    for score in ("gas", "margin"):
        page.select_option("#score", score)
        own = json.loads(vcs("compare", *files, "--score", score, "--format", "json").stdout)
        printed = vcs(
            "compare", *files, "--score", score, "--format", "markdown"
        ).stdout.splitlines()
        means = {each["name"]: each["scores"][score]["mean"] for each in own["systems"]}
        rows = [
            row.locator("th, td").all_inner_texts()
            for row in page.locator("#comparison tbody tr").all()
        ]
        # The best first.
        assert [row[0] for row in rows] == sorted(means, key=lambda name: -means[name])
        tests = {test["system"]: test for test in own["comparisons"]}
        for name, mean, _, difference, p, *_ in rows:
            assert mean.split()[0] == f"{means[name]:.3f}"
            if name not in tests:
                assert (difference, p) == ("baseline", "")
                continue
            test = tests[name]
            stars = "*" * next(line for line in printed if line.startswith(f"| {name} ")).count(
                "\\*"
            )
            assert difference == f"{test['difference']:+.3f}{stars}"
            assert p == f"{max(test['p_bootstrap_corrected'], test['p_permutation_corrected']):.4f}"
        assert "over the 12 pairs that all systems scored; 1 more is left out" in page.inner_text(
            "main"
        )
    assert "With so few pairs" not in page.inner_text("main")
    few = [file.with_name(f"{file.stem} of five.jsonl") for file in files]
    for file, short in zip(files, few, strict=True):
        short.write_text("".join(file.read_text().splitlines(keepends=True)[:5]))
    assert vcs("report", *few, "-o", html, "--overwrite").code == 0
    assert "With so few pairs no p can be below 0.1" in visit(html).inner_text("main")
    assert vcs("report", *files, "-o", html, "--overwrite", "--baseline", "beta").code == 1
    assert "difference from beta" in visit(html).inner_text("#comparison thead")


def test_systems_without_a_common_video_are_not_compared(
    visit: Any, files: list[Path], tmp_path: Path
) -> None:
    write_pairs(files[1], [{**row, "id": f"other {row['id']}"} for row in lines("beta")])
    assert vcs("report", *files, "-o", tmp_path / "r.html").code == 1
    page = visit(tmp_path / "r.html")
    assert "No paired tests: no id has a score in all of these files" in page.inner_text("main")
    assert "No video was scored by both systems." in page.inner_text("main")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "one"], "--name must be given once for each system"),
        (["--name", "one", "--name", "one"], "two systems are called 'one'"),
        (["--baseline", "nobody"], "nobody"),
    ],
)
def test_names_and_baseline_fit_the_files(
    files: list[Path], tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = vcs("report", *files, "-o", tmp_path / "r.html", *arguments)
    assert_refused(done, message)
    assert not (tmp_path / "r.html").exists()
    alone = vcs("report", files[0], "-o", tmp_path / "r.html", "--baseline", "alpha")
    assert_refused(alone, "--baseline needs at least two score files")
    (tmp_path / "other.jsonl").write_text("{}\n")
    mixed = vcs("report", *files, tmp_path / "other.jsonl", "-o", tmp_path / "r.html")
    assert_refused(mixed, "must all be score files, one for each system, but ")
    assert "other.jsonl is not" in mixed.stderr


def test_filters_narrow_the_list_and_can_be_cleared(visit: Any, html: Path) -> None:
    page = visit(html)
    assert page.inner_text(".count") == "All 26 pairs."
    page.fill("#find", "VIDEO 1")
    assert set(names(page)) == {"video 1", "video 10", "video 11"}
    page.select_option("#system", label="beta")
    assert page.inner_text(".count") == "3 of 26 pairs."
    page.fill("#find", "nowhere")
    assert page.inner_text("#nothing").startswith("No pair matches.")
    assert not page.locator("#pairs").is_visible()
    page.click("#nothing button")
    assert page.inner_text(".count") == "All 26 pairs."
    assert not page.locator("#nothing").is_visible()
    page.select_option("#kind", "failed")
    assert names(page) == ["silent", "silent"]
    assert "not scored: the text is empty" in page.inner_text("#pairs")
    page.click("#clear")
    page.fill("#find", "g1")  # a kept column
    assert page.inner_text(".count") == "12 of 26 pairs."
    page.click("#clear")
    page.select_option("#ranged", "las")
    at = page.locator("#pairs thead th").all_inner_texts().index("LAS")
    values = [
        float(row.split("\t")[at])
        for row in page.inner_text("#pairs tbody").splitlines()
        if "silent" not in row
    ]
    middle = sorted(values)[12] + 1e-3
    page.fill("#least", str(middle))
    found = page.inner_text("#pairs tbody").splitlines()
    assert len(found) == sum(value >= middle for value in values) > 0
    page.fill("#most", str(middle))
    assert page.locator("#nothing").is_visible()


def test_a_list_is_filtered_by_flag_and_by_verdict(visit: Any, with_pages: Path) -> None:
    page = visit(with_pages)
    options = page.eval_on_selector_all(
        "#kind option", "all => all.map(one => [one.value, one.textContent])"
    )
    kinds = {value: text for value, text in options if value.startswith(("flag ", "verdict "))}
    assert any(value.startswith("verdict ") for value in kinds)
    assert (
        page.locator("#kind optgroup").last.get_attribute("label")
        == "a sentence is (pairs with a page)"
    )
    for value, text in kinds.items():
        page.select_option("#kind", value)
        assert (
            page.inner_text(".count").split()[0].replace("All", "16")
            == text.rstrip(")").rpartition("(")[2]
        )
    page.locator("#pairs tbody a").first.click()  # of the last filter, a verdict
    page.wait_for_selector("#generated-0")
    assert page.locator(f".chunk:has-text('{value.removeprefix('verdict ')}')").count() > 0


def test_the_rows_on_show_are_downloaded_as_csv(visit: Any, html: Path) -> None:
    page = visit(html)
    page.select_option("#system", label="alpha")
    with page.expect_download() as waiting:
        page.click("#csv")
    assert waiting.value.suggested_filename == "VCS of alpha and beta on 13 videos.csv"
    with open(waiting.value.path(), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 13
    scores = {row["id"]: row for row in lines("alpha")}
    for row in rows[:-1]:
        wanted = scores[row["pair"].removeprefix("'")]
        assert float(row["margin"]) == pytest.approx(wanted["margin"], abs=5e-5)
        assert (row["link"], row["system"]) == (wanted["link"], "alpha")
    assert f"'{ODD}" in {row["pair"] for row in rows}
    assert rows[-1]["pair"] == "silent"
    assert rows[-1]["vcs"] == ""
    assert rows[-1]["error"] == "the text is empty"


def test_kept_columns_are_shown_and_only_addresses_of_the_web_are_links(
    visit: Any, html: Path
) -> None:
    page = visit(html)
    links = page.eval_on_selector_all(
        ".kept a", "all => all.map(one => [one.getAttribute('href'), one.rel])"
    )
    assert links == [[ADDRESS, "noopener noreferrer"]] * 12
    assert "javascript:alert(1)" in page.inner_text("#pairs")
    page.click("#pairs thead button:has-text('genre')")
    assert page.locator("#pairs tbody tr").first.inner_text().endswith("g0")


def test_dots_and_cells_lead_to_the_pages_of_their_pairs(visit: Any, with_pages: Path) -> None:
    page = visit(with_pages)
    assert page.locator(".scatter a").count() == 8
    page.select_option("#across", label="beta")
    page.select_option("#up", label="alpha")
    dot = page.locator(".scatter a").first
    about = dot.get_attribute("aria-label")
    dot.click(force=True)
    page.wait_for_selector("#generated-0")
    video, _, values = about.partition(": ")
    assert page.title().startswith(f"{video} \u2013 beta")
    assert values.split()[1].rstrip(",") in page.inner_text(".headline")
    page.go_back()
    page.wait_for_selector("#videos")
    page.locator("#videos tbody tr", has_text="video 5").locator("a").nth(1).click()
    page.wait_for_selector("#generated-0")
    assert page.title().startswith("video 5 \u2013 beta")


def test_the_filters_stay_while_a_pair_is_shown(visit: Any, with_pages: Path) -> None:
    page = visit(with_pages)
    page.fill("#find", "video 2")
    shown = names(page)
    page.locator("#pairs tbody a").first.click()
    page.wait_for_selector("#generated-0")
    page.click("text=All pairs")
    page.wait_for_selector("#pairs")
    assert page.input_value("#find") == "video 2"
    assert names(page) == shown
    assert page.title() == "VCS of alpha and beta on 8 videos"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("touch", [False, True])
def test_axe_finds_no_barrier(
    scheme: str, touch: bool, visit: Any, barriers: Any, phone: Any, html: Path, with_pages: Path
) -> None:
    for path in (html, with_pages):
        page = visit(path, color_scheme=scheme, **(phone if touch else {}))
        page.locator("summary").first.click()
        assert barriers(page) == []
        page.fill("#find", "nowhere")
        assert barriers(page) == []


def test_a_phone_shows_vcs_at_once_and_speaks_of_touch(
    visit: Any, phone: Any, html: Path, with_pages: Path
) -> None:
    page = visit(html, **phone)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for table in ("#comparison", "#systems", "#pairs"):
        head = page.locator(f"{table} thead th", has_text="VCS").first.bounding_box()
        assert head["x"] + head["width"] <= 390
        box = page.locator(".scroll", has=page.locator(table))
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    assert page.locator("#pairs tbody th").first.inner_text().splitlines()[1] in SYSTEMS
    visible = page.inner_text("main")
    assert "A wider screen shows more columns." in visible
    assert "Tap near a dot" in visible
    assert "Point at" not in visible
    page = visit(with_pages, **phone)
    small = """[...document.querySelectorAll('button, select, input, summary, table a')].filter(n \
=> n.offsetParent)
        .map(n => n.getBoundingClientRect()).filter(b => b.height < 43.9 || b.width < 43.9).length"""
    assert page.evaluate(small) == 0


def test_paper_has_every_row_and_opens_what_is_folded(visit: Any, tmp_path: Path) -> None:
    systems = Systems()
    with HtmlReport(tmp_path / "r.html", "many") as report:
        for name in SYSTEMS:
            systems.begin(name, "vcs|drawn")
            e = drawn(4, 4)
            for k in range(700):
                systems.add(f"video {k}", {**e.result.to_dict(), "margin": k / 1000}, None)
        report.finish(systems)
    page = visit(tmp_path / "r.html")
    assert page.locator("#pairs tbody tr").count() == 50
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#pairs tbody tr").count() == 1000
    assert page.locator("#videos tbody tr").count() == 700
    notes = page.locator(".paper").all_inner_texts()
    assert notes == ["Score: VCS.", "All 1400 pairs. The first 1000 of 1400 rows are printed."]
    assert page.locator("details:not([open])").count() == 0
    assert (
        page.evaluate("getComputedStyle(document.querySelector('#pairs thead')).display")
        == "table-header-group"
    )
    assert not page.locator(".filters").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#pairs tbody tr").count() == 50
    assert page.locator("details[open]").count() == 0


def test_one_pair_has_neither_an_interval_nor_a_distribution(visit: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path / "one.jsonl", lines("alpha", 1)[:1])
    assert vcs("report", tmp_path / "one.jsonl", "-o", tmp_path / "r.html").code == 0
    page = visit(tmp_path / "r.html")
    assert page.inner_text("h1") == "VCS of one on 1 video"
    assert "95 %" not in page.inner_text(".lead-figures")
    assert page.locator("#score").count() == 0
    assert page.inner_text(".count") == "1 pair."


def test_an_arrow_points_the_way_its_column_runs_and_the_two_best_systems_meet_first(
    visit: Any, files: list[Path], html: Path
) -> None:
    files.append(files[0].with_name("other system.jsonl"))
    write_pairs(files[-1], lines(files[-1].stem))
    assert vcs("report", *files, "-o", html, "--overwrite").code == 1  # one text is empty
    page = visit(html)
    for column, falls in (("spread", True), ("spread", False), ("alpha", False), ("spread", True)):
        if (
            column != "spread"
            or not page.locator("#videos th[aria-sort]:has-text('spread')").count()
        ):
            page.click(f"#videos thead button:has-text('{column}')")
        elif not falls:
            page.click("#videos thead button:has-text('spread')")
        head = page.locator("#videos th[aria-sort]")
        assert head.get_attribute("aria-sort") == ("descending" if falls else "ascending")
        place = 1 + ("alpha", "beta", "other system", "spread").index(column)
        cells = page.locator(f"#videos tbody tr > :nth-child({place + 1})").all_inner_texts()
        numbers = [float(cell) for cell in cells if cell != "\u2013"]
        assert numbers == sorted(numbers, reverse=falls)
    best = page.locator("#comparison tbody th").all_inner_texts()[:2]
    chosen = [page.locator(f"#{end} option:checked").inner_text() for end in ("across", "up")]
    assert chosen == best


def test_the_pairs_fit_a_small_screen_and_say_why_a_name_is_no_link(
    visit: Any, files: list[Path], tmp_path: Path
) -> None:
    for path in files:
        rows = lines(path.stem)
        for number, row in enumerate(rows):
            row.pop("link", None)
            row.pop("genre", None)
            row["id"] = f"video_clip_{number:04d}_of_a_long_season_1.mp4"
        write_pairs(path, rows)
    vcs("report", *files, "-o", tmp_path / "r.html")
    page = visit(tmp_path / "r.html", viewport={"width": 1280, "height": 900})
    box = "document.querySelector('#pairs').closest('.scroll')"
    assert page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    heads = page.locator("#pairs thead th").all_inner_texts()
    assert [head.split()[0] for head in heads] == (
        "pair system VCS margin GAS LAS SAS NAS flags".split()
    )
    assert "give --references and --predictions, or --pairs" in page.inner_text("main")
