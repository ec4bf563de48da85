"""Reports of many pairs: ranked by margin, zeros explained, old score files."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.command_line import vcs
from support.explained import PAIRS, explained
from support.stories import read_lines, story, write_pairs
from vcs_runtime.report import HtmlReport, Systems, figures
from vcs_runtime.report.systems import MARKS, figures_of
from vcs_runtime.scoring.flags import FLAGS, what_to_report
from vcs_runtime.scoring.score_table import HEADLINE, LABELS, PART, SCORES, up_to


def block_of(path: Path, name: str) -> Any:
    """A block of a report, unpacked as its script does it."""
    [packed] = re.findall(f'id="{name}">([^<]*)<', path.read_text())
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def systems_of(path: Path, *names: str) -> Systems:
    systems = Systems()
    with HtmlReport(path, "many") as report:
        for name in names:
            systems.begin(name, "vcs|def:1.0.0|drawn")
            for pair, (similarity, gas) in PAIRS.items():
                e = explained(similarity, gas)
                systems.add(pair, e.result.to_dict(), report.add(e, pair))
        report.finish(systems)
    return systems


def texts(*drawings: Any) -> str:
    found = (figure.findobj(lambda artist: hasattr(artist, "get_text")) for figure in drawings)
    return "\n".join(text.get_text() for texts in found for text in texts)


def record(margin: float, vcs: float, gas: float) -> dict[str, Any]:
    e = explained(np.eye(6))
    return {**e.result.to_dict(), "margin": margin, "vcs": vcs, "gas": gas}


def test_pairs_are_ranked_by_margin_then_vcs_then_gas_then_place() -> None:
    systems = Systems()
    systems.begin("one", "vcs|drawn")
    for k, row in enumerate(
        [(0.2, 0.5, 0.1), (-0.5, 0, 0.3), (-0.5, 0, 0.2), (0.2, 0.4, 0.9), (-0.5, 0, 0.2)]
    ):
        systems.add(k, record(*row), k)
    index = systems.to_index("t")
    assert [row[0] for row in index["rows"]] == ["2", "4", "1", "3", "0"]
    assert index["order"] == [2, 4, 1, 3, 0]


def test_every_flag_has_a_mark_and_every_score_of_the_tables_is_in_the_page(tmp_path: Path) -> None:
    assert set(MARKS) == set(FLAGS)
    assert len(set(MARKS.values())) == len(FLAGS)
    systems_of(tmp_path / "r.html", "one")
    index = block_of(tmp_path / "r.html", "index")
    shown = [(s["name"], s["label"], s["meaning"]) for s in index["scores"]]
    assert shown == [(name, SCORES[name].label, SCORES[name].meaning) for name in up_to(PART)]
    rows = {row[0]: row for row in index["rows"]}
    assert [rows[name][3] for name in PAIRS] == [
        [],
        ["below_gate"],
        ["zero_order"],
        ["zero_content", "zero_order"],
        ["order_undefined"],
        ["single_chunks"],
    ]


@pytest.mark.parametrize("name", up_to(HEADLINE))
def test_histograms_cover_the_range_of_a_score(name: str, tmp_path: Path) -> None:
    systems = systems_of(tmp_path / "r.html", "one")
    counts, edges = systems.histogram(0, name)
    assert (edges[0], edges[-1]) == (SCORES[name].low, SCORES[name].high)
    assert counts.sum() == systems.scored
    assert np.diff(edges) == pytest.approx(0.05)
    at = np.searchsorted(edges, systems.values(0, name), side="right") - 1
    assert (
        np.bincount(np.minimum(at, len(counts) - 1), minlength=len(counts)).tolist()
        == counts.tolist()
    )


def test_an_overview_begins_with_the_zeros_and_gives_means_of_the_judged(
    visit: Any, tmp_path: Path
) -> None:
    systems = systems_of(tmp_path / "r.html", "first", "second")
    page = visit(tmp_path / "r.html")
    classes = page.evaluate(
        "[...document.querySelector('h1').parentNode.children].map(n => n.className)"
    )
    assert classes[:5] == ["", "soft about", "lead", "controls choice", ""]
    sentences = systems.counts.sentences()
    assert [sentence[:22] for sentence in sentences] == [
        "8 of 12 pairs have a V",
        "Order could not be jud",
    ]
    assert page.inner_text(".lead") == what_to_report(8, 12)
    assert page.locator(".reasons").all_inner_texts() == [*sentences, *systems.about_segmenters]
    judged = [explained(*PAIRS[name]).scores for name in ("equal", "gate", "backwards", "nothing")]
    cells = page.locator("#systems tbody tr:nth-child(2) td").all_inner_texts()
    assert cells[:2] == [
        f"{np.mean([getattr(s, name) for s in judged]):.3f}" for name in ("margin", "gas")
    ]
    assert "first, judged pairs" in page.inner_text("#systems tbody tr:nth-child(2)")


def test_the_zeros_of_all_systems_have_their_reasons(tmp_path: Path) -> None:
    systems = systems_of(tmp_path / "r.html", "first", "second")
    [one, _], [both, _] = systems.summaries[0].counts.sentences(), systems.counts.sentences()
    assert both == re.sub(r"\d+(?= because| of| pairs)", lambda count: str(2 * int(count[0])), one)


def test_a_row_says_its_flags_in_words(visit: Any, tmp_path: Path) -> None:
    systems_of(tmp_path / "r.html", "one")
    page = visit(tmp_path / "r.html")
    row = page.locator("#pairs tbody tr", has_text="nothing")
    assert row.locator(".flags").inner_text() == "0: too little shared, 0: order by chance"
    assert row.locator("abbr").first.get_attribute("title") == FLAGS["zero_content"]
    legend = page.inner_text(".legend")
    for flag, mark in MARKS.items():
        is_present = flag != "not_split"  # no pair has it
        assert (mark in legend, FLAGS[flag] in legend) == (is_present, is_present)


def test_the_margin_is_drawn_where_most_are_zero_and_any_headline_score_on_request(
    visit: Any, tmp_path: Path
) -> None:
    systems_of(tmp_path / "r.html", "one")
    page = visit(tmp_path / "r.html")
    # The rule's first.
    labels = [LABELS[name] for name in ("margin", "gas", "las", "vcs", "sas", "nas")]
    assert page.locator(".lead-figures dt").all_inner_texts() == labels
    assert page.locator("#score option").all_text_contents() == labels
    figures = [
        float(text) for text in page.locator(".lead-figures dd:not(.soft)").all_inner_texts()
    ]
    assert figures[0] == pytest.approx(figures[4] + figures[5] - 1, abs=2e-3)
    drawing = page.locator(".distribution svg")
    assert drawing.first.get_attribute("aria-label").startswith("margin of one: mean")
    assert drawing.locator(".zero").count() == 1
    assert {"-1", "0"} <= set(drawing.locator("text").all_text_contents())
    page.select_option("#score", "vcs")
    assert drawing.first.get_attribute("aria-label").startswith("VCS of one: mean")
    few = Systems()
    few.begin("one", "vcs|drawn")
    for pair in ("equal", "same"):
        few.add(pair, explained(np.eye(5), 1.0).result.to_dict(), None)
    with HtmlReport(tmp_path / "few.html", "few") as report:
        report.finish(few)
    page = visit(tmp_path / "few.html")
    assert page.input_value("#score") == "vcs"
    assert page.inner_text(".lead") == "No pair has a VCS of 0. Report VCS and margin."


def test_reference_points_stand_beside_scores_made_as_they_were(visit: Any, tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/reading-scores.md").read_text()
    own = re.search(r"ours default:cpu:\* `(.*?)`", guide)[1]
    for signature, count in ((own, 2), (own.replace("lct:0", "lct:1"), 0)):
        systems = Systems()
        systems.begin("weak", signature)
        for k in range(3):
            systems.add(k, record(-0.9 + k / 100, 0.0, 0.5), None)
        points = systems.to_index("t")["points"]
        assert len(points) == count
        for point, name in zip(
            points,
            ("another film, CLIP-CC (100)", "retold by another language model (234)"),
            strict=False,
        ):
            row = next(line for line in guide.splitlines() if line.startswith(f"| {name}")).split(
                " | "
            )
            means = dict(
                zip(
                    ("vcs", "margin", "gas", "las", "nas"),
                    map(float, [*row[2:6], row[6].rstrip(" |")]),
                    strict=True,
                )
            )
            assert point["scores"].items() <= means.items()
        with HtmlReport(tmp_path / "r.html", "t") as report:
            report.finish(systems)
        text = visit(tmp_path / "r.html").text_content("main")
        assert ("weak has a mean below another film." in text) == (count > 0)


def test_the_summary_figure_says_why_vcs_is_what_it_is() -> None:
    for similarity, gas in PAIRS.values():
        e = explained(similarity, gas)
        summary = texts(figures.summary(e))
        assert e.sentences["vcs"] in summary.replace("\n", " ")
        assert "margin" in summary


@pytest.fixture
def zeros(tmp_path: Path) -> Path:
    """Twelve pairs whose VCS is 0, because 3 and 2 chunks have no order; margins differ."""
    path = tmp_path / "zeros.jsonl"
    rows = [{"id": k, "reference": story(k, 3), "generated": story(100 + k, 2)} for k in range(12)]
    write_pairs(path, rows)
    return path


def test_pages_are_of_the_worst_and_best_by_margin(
    tiny_bundle: Path, zeros: Path, tmp_path: Path
) -> None:
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    scores, html = tmp_path / "s.jsonl", tmp_path / "r.html"
    assert vcs("score", zeros, "-o", scores, *engine).code == 0
    rows = read_lines(scores)
    assert {row["vcs"] for row in rows} == {0}
    ranked = [str(row["id"]) for row in sorted(rows, key=lambda row: row["margin"])]
    assert ranked != [str(row["id"]) for row in rows]
    done = vcs("report", scores, "--pairs", zeros, "--pages", 2, "-o", html, *engine)
    assert done.code == 0
    index = block_of(html, "index")
    pages = [block_of(html, f"block-{number}")["id"] for number in index["order"]]
    assert pages == [*ranked[:2], *ranked[-2:]]
    assert [row[0] for row in index["rows"]] == ranked


def test_texts_belong_to_the_score_file_of_their_name_and_pages_are_shared(
    tiny_bundle: Path, zeros: Path, tmp_path: Path
) -> None:
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    references = tmp_path / "references.jsonl"
    write_pairs(references, [{"id": k, "text": story(k, 3)} for k in range(12)])
    texts = [tmp_path / f"{name}.jsonl" for name in ("beta", "alpha", "gamma")]
    for number, path in enumerate(texts):
        write_pairs(path, [{"id": k, "text": story(100 * number + k, 2)} for k in range(12)])
    of = ("--references", references, *(part for path in texts for part in ("--predictions", path)))
    assert vcs("score", *of, "-o", f"{tmp_path}/s/", *engine).code == 0
    scores, html = [tmp_path / "s/alpha.jsonl", tmp_path / "s/beta.jsonl"], tmp_path / "r.html"
    assert vcs("report", *scores, *of, "--pages", 4, "-o", html, *engine).code == 0
    systems = [
        block_of(html, f"block-{number}")["system"] for number in block_of(html, "index")["order"]
    ]
    assert sorted(systems) == ["alpha"] * 4 + ["beta"] * 4
    scores[0] = scores[0].rename(tmp_path / "s/delta.jsonl")
    done = vcs("report", *scores, *of, "-o", tmp_path / "x.html", *engine)
    assert done.code == 2
    assert (
        "no file of texts is called 'delta', like this score file, only beta, alpha, gamma"
        in done.stderr
    )


def test_other_texts_than_those_that_were_scored_are_refused(
    tiny_bundle: Path, zeros: Path, tmp_path: Path
) -> None:
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    vcs("score", zeros, "-o", tmp_path / "s.jsonl", *engine)
    worst = min(read_lines(tmp_path / "s.jsonl"), key=lambda row: row["margin"])
    rows = read_lines(zeros)
    rows[worst["id"]]["generated"] = story(200, 2)  # its VCS is 0 as well
    write_pairs(zeros, rows)
    html = tmp_path / "r.html"
    done = vcs("report", tmp_path / "s.jsonl", "--pairs", zeros, "--pages", 1, "-o", html, *engine)
    assert done.code != 0
    assert f"id {worst['id']} has margin {worst['margin']:.4f}, VCS 0.0000" in done.stderr
    assert "give the texts that were scored" in done.stderr
    assert not html.exists()


def test_the_tables_fit_a_printed_page(visit: Any, tmp_path: Path) -> None:
    systems_of(tmp_path / "r.html", "a system with quite a long name", "second")
    page = visit(tmp_path / "r.html")
    page.set_viewport_size({"width": 680, "height": 900})  # A4 without its margins
    page.emulate_media(media="print")
    wide = "[...document.querySelectorAll('.scroll')].map(box => box.scrollWidth - box.clientWidth)"
    assert page.evaluate(wide) == [0, 0, 0, 0]


def test_the_report_of_one_pair_is_titled_by_its_file_and_says_why_vcs_is_zero(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    for name, text in (("ref.txt", story(1, 3)), ("gen.txt", story(2, 2))):
        (tmp_path / name).write_text(text)
    texts = (tmp_path / "ref.txt", tmp_path / "gen.txt")
    html = tmp_path / "r.html"
    assert vcs("report", *texts, "-o", html, "--bundle", tiny_bundle, "--device", "cpu").code == 0
    assert block_of(html, "index")["title"] == "gen.txt"
    assert block_of(html, "block-0")["sentences"]["vcs"].startswith(
        "VCS is 0 by definition: with 3 and 2 chunks"
    )


def test_files_that_were_scored_differently_are_refused_unless_forced(tmp_path: Path) -> None:
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, signature in zip(files, ("vcs|one", "vcs|two"), strict=True):
        write_pairs(path, [{"id": 1, **record(-0.2, 0.0, 0.5), "signature": signature}])
    out = tmp_path / "r.html"
    refused = vcs("report", *files, "-o", out)
    assert (refused.code, refused.stdout) == (2, "")
    assert (
        refused.stderr
        == f"vcs-runtime: {files[0]} and {files[1]} were scored differently: one and two; "
        "score both again with the same version, bundle and options, or compare them with --ignore-signatures\n"
    )
    assert not out.exists()
    assert vcs("report", *files, "-o", out, "--ignore-signatures").code == 0
    assert {"vcs|one", "vcs|two"} <= set(
        re.findall(r"vcs\|\w+", json.dumps(block_of(out, "index")))
    )


def test_paper_has_light_colours_whatever_the_scheme(visit: Any, tmp_path: Path) -> None:
    systems_of(tmp_path / "r.html", "first", "second")
    page = visit(tmp_path / "r.html")
    page.emulate_media(media="print", color_scheme="light")
    colours = (
        "[...document.querySelectorAll('*')].map(n => getComputedStyle(n)).map(s => [s.color,"
        " s.backgroundColor, s.fill].join())"
    )
    light = page.evaluate(colours)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(colours) == light
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("everywhere", [True, False])
def test_hm_cf_is_shown_if_all_systems_have_it(
    everywhere: bool, tmp_path: Path, tiny_bundle: Path
) -> None:
    pairs = [{"id": i, "reference": story(i), "generated": story(9 + i)} for i in range(4)]
    write_pairs(tmp_path / "p.jsonl", pairs)
    options = ["--bundle", tiny_bundle, "--device", "cpu"]
    with_it = ["--also", "hm-cf"]
    vcs("score", tmp_path / "p.jsonl", *options, *with_it, "-o", tmp_path / "a.jsonl")
    vcs(
        "score",
        tmp_path / "p.jsonl",
        *options,
        *(with_it if everywhere else []),
        "-o",
        tmp_path / "b.jsonl",
    )
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--ignore-signatures"]
    done = vcs("report", *files, "-o", tmp_path / "r.html")
    assert done.code == 0, done.stderr
    index = block_of(tmp_path / "r.html", "index")
    names = [score["name"] for score in index["scores"]]
    assert names == list(up_to(PART, ["hm-cf"] if everywhere else ()))
    compared = [own["scores"][0] for own in index["comparisons"]]
    assert compared == list(figures_of(["hm-cf"] if everywhere else ()))
    if everywhere:
        rows = {(row[0], row[1]): row for row in index["rows"]}
        for line in read_lines(tmp_path / "a.jsonl"):
            assert rows[str(line["id"]), 0][4 + names.index("hm_cf")] == round(line["hm_cf"], 9)
