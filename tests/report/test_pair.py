"""The page of one pair: its reason, texts, references, shapes, axes, phone, paper, keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.command_line import vcs
from support.explained import PAIRS, drawn, explained
from support.stories import write_pairs
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.report import HtmlReport, Systems
from vcs_runtime.report.systems import figures_of
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.flags import describe
from vcs_runtime.scoring.score_table import FULL_NAMES, LABELS, SCORES
from vcs_runtime.scoring.verdicts import COVERED, MISSING, VERDICTS

HOSTILE = '</script><img src=x onerror=alert(1)><script>document.title="owned"</script>'
REFERENCES = (
    "A man, in white, drives!",
    "A dog (small) runs; it barks.",
    "Nobody knows why: it rains.",
)
KEPT = {
    "video": "https://example.org/watch?v=1&t=2",
    "plain": "HTTP://example.org/",
    "script": "javascript:alert(1)",
    "data": "data:text/html,x",
    "broken": "https://",
    "frames": [1, None, 2.5],
    "nothing": None,
    HOSTILE: HOSTILE,
}


def single(path: Path, explanation: Any, pair: InputPair | None = None) -> Path:
    with HtmlReport(path, "title of the report") as report:
        report.add(explanation, pair=pair)
        report.finish()
    return path


def many(path: Path, *explanations: Any) -> Path:
    systems = Systems()
    systems.begin("model", "vcs|drawn")
    with HtmlReport(path, "many") as report:
        for number, e in enumerate(explanations):
            name = f"clip {number}"
            systems.add(name, e.result.to_dict(), report.add(e, name, system="model"))
        report.finish(systems)
    return path


def mixed() -> Explanation:
    """A pair whose chunks have every verdict."""
    generated = [f"g{j}" for j in range(40)]
    generated[20] = generated[21] = generated[3]
    return explained(drawn(30, 40).similarity, texts=([f"r{i}" for i in range(30)], generated))


@pytest.fixture(scope="module")
def rich(tiny_bundle: Path, tmp_path_factory: Any) -> Path:
    """A report of two pairs with three references and kept columns, written by the command."""
    folder = tmp_path_factory.mktemp("rich")
    rows = [
        {"id": name, "reference": REFERENCES, "generated": generated, **KEPT}
        for name, generated in (
            ("dog", "The dog, small, runs. It barks!"),
            ("man", "A man drives; he is white."),
        )
    ]
    write_pairs(folder / "pairs.jsonl", rows)
    keep = [argument for name in KEPT for argument in ("--keep-column", name)]
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    for aggregate in ("max", "mean"):
        output = folder / f"{aggregate}.html"
        done = vcs(
            "report", folder / "pairs.jsonl", *keep, "--aggregate", aggregate, "-o", output, *engine
        )
        assert done.code == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", PAIRS)
def test_a_page_begins_with_the_headline_scores_and_the_reason_of_a_zero(
    name: str, visit: Any, tmp_path: Path
) -> None:
    e = explained(*PAIRS[name])
    page = visit(single(tmp_path / "r.html", e))
    assert page.inner_text("h1") == page.title() == "title of the report"
    figures = page.locator(".headline div").all_inner_texts()
    assert [text.splitlines() for text in figures] == [
        [LABELS[key], f"{getattr(e.scores, key):.3f}", FULL_NAMES.get(key, "SAS + NAS \u2212 1")]
        for key in figures_of()
    ]
    costly = sum(any(chunk.penalty > 0 for chunk in side) for side in (e.reference, e.generated))
    assert page.locator("[aria-label^=Penalties]").count() == costly  # no empty axis
    assert page.locator(".headline abbr").nth(1).get_attribute("title") == SCORES["margin"].meaning
    parts = page.evaluate(
        "[...document.querySelector('h1').parentNode.children].map(n => n.id || n.className)"
    )
    assert parts[:3] == ["", "conclusion", "headline"]
    # Below the verdicts.
    assert e.sentences["loss"] in page.locator(".sentences li").all_inner_texts()
    whole = page.inner_text("#whole")
    assert whole == e.sentences["vcs"]
    if e.scores.vcs == 0:
        assert whole.startswith(describe(e.scores.to_dict(), *e.similarity.shape))
    formulas = page.inner_text("#formulas")
    assert f"margin {e.scores.margin:.3f}" in formulas
    assert f"{e.scores.sas:.3f} + {e.scores.nas:.3f} \u2212 1" in formulas
    assert FULL_NAMES["sas"] in formulas
    assert ("has one chunk, so there is no order." in page.inner_text("main")) == (name == "single")


def test_an_abbreviation_is_explained_where_it_first_stands(visit: Any, tmp_path: Path) -> None:
    page = visit(single(tmp_path / "r.html", drawn(9, 9)))
    marked = page.locator("#whole abbr, .sentences abbr")
    titles = dict(
        zip(
            marked.all_inner_texts(),
            marked.evaluate_all("all => all.map(n => n.title)"),
            strict=True,
        )
    )
    assert len(titles) == marked.count()
    assert titles["NAS-L"] == f"{FULL_NAMES['nas_l']}: {SCORES['nas_l'].meaning}"


def test_every_reference_is_shown_with_its_scores_and_the_one_that_counts(
    rich: Path, visit: Any
) -> None:
    page = visit(rich / "max.html", "#pair-0")
    assert page.title() == "dog \u2013 pairs \u2013 VCS of pairs on 2 videos"
    assert "system: pairs" in page.inner_text(".about-pair")
    items = page.locator(".references > li")
    assert items.locator(".whole").all_inner_texts() == list(REFERENCES)
    scores = [
        [float(word.strip(",")) for word in text.replace("counts; ", "").split()[1::2]]
        for text in items.locator(".soft").all_inner_texts()
    ]
    [best] = page.locator(".references > li.counted").all()
    at = scores.index(max(scores))
    assert items.nth(at).inner_text() == best.inner_text()
    assert best.inner_text().startswith("counts; VCS ")
    assert page.inner_text("#chosen").startswith(
        f"Reference {at + 1} of 3 counts: it has the highest VCS"
    )
    shown = [float(text) for text in page.locator(".headline dd:not(.soft)").all_inner_texts()[:3]]
    assert shown == pytest.approx(scores[at], abs=6e-4)
    assert page.inner_text("details .whole") == "The dog, small, runs. It barks!"
    mean = visit(rich / "mean.html", "#pair-0")
    assert "is explained here" in mean.inner_text("#chosen")
    assert "means over all references" in mean.inner_text("#chosen")
    assert mean.locator(".counted strong").inner_text() == "explained here; "


def test_only_http_addresses_of_kept_columns_are_links_and_nothing_is_markup(
    rich: Path, visit: Any
) -> None:
    page = visit(rich / "max.html", "#pair-0")
    names, values = (page.locator(f".kept-columns {tag}").all_inner_texts() for tag in ("dt", "dd"))
    assert dict(zip(names, values, strict=True)) == {
        name: "[1, null, 2.5]" if name == "frames" else value
        for name, value in KEPT.items()
        if value is not None
    }
    links = page.locator(".kept-columns a, .about-pair a")
    assert links.evaluate_all("all => all.map(a => [a.href, a.rel])") == [
        [address, "noopener noreferrer"] for address in (KEPT["video"], "http://example.org/") * 2
    ]
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0


def test_whole_texts_are_unfolded_unless_they_are_long_and_keep_their_lines(
    visit: Any, tmp_path: Path
) -> None:
    long = "It rains, again.\n\nAnd again: " * 40 + HOSTILE
    pair = InputPair("line 1", None, long, "b" * 200_000)
    page = visit(single(tmp_path / "r.html", drawn(4, 4), pair))
    assert page.locator("details[open]").count() == 0
    assert page.locator("summary").all_inner_texts() == [
        "Generated text (100,000 characters)",
        f"Reference ({len(long):,} characters)",
    ]
    page.click("summary >> nth=1")
    assert page.locator(".whole").nth(1).evaluate(
        "n => [n.textContent, getComputedStyle(n).whiteSpace]"
    ) == [long, "pre-wrap"]
    assert page.locator(".two > section").count() == 4


def test_a_verdict_has_a_shape_of_its_own_in_lists_and_figures(visit: Any, tmp_path: Path) -> None:
    e = mixed()
    page = visit(single(tmp_path / "r.html", e))
    icons = dict(
        page.locator(".verdicts dt").evaluate_all(
            "all => all.map(n => [n.textContent.trim(), n.querySelector('path').getAttribute('d')])"
        )
    )
    assert list(icons) == list(VERDICTS)
    of_reference = {icons.pop(COVERED), icons.pop(MISSING)}
    assert len(of_reference) == 2
    assert len(set(icons.values())) == 5
    assert page.locator(".verdicts dd").first.inner_text() == next(iter(VERDICTS.values()))
    for chunks, figure in ((e.generated, 0), (e.reference, 1)):
        drawing = page.locator("figure:has(svg[aria-label*='timeline'])").nth(figure)
        for verdict in {chunk.verdict for chunk in chunks}:
            marks = drawing.locator(
                f"svg:not(.icon) path.dot.{verdict.replace(' ', '-')}"
            ).get_attribute("d")
            count = sum(chunk.verdict == verdict for chunk in chunks)
            assert marks.count("M") == count
            [legend] = drawing.locator(f"figcaption .icon .{verdict.replace(' ', '-')}").all()
            assert legend.get_attribute("d").count("L") * count == marks.count("L")
    lists = page.locator(".chunk .icon path").evaluate_all(
        "all => all.map(n => n.getAttribute('d'))"
    )
    assert len(set(lists)) == len({*icons.values(), *of_reference})


def test_a_chunk_without_a_counterpart_has_a_nearest_one_but_is_not_found(
    visit: Any, tmp_path: Path
) -> None:
    e = explained([[0.9, 0.1], [0.2, 0.3]])
    page = visit(single(tmp_path / "r.html", e))
    texts = page.locator(".chunk .about").all_inner_texts()
    assert [text.strip() for text in texts] == [
        "covered, similarity 0.900; found in chunk 1",
        "missing, similarity 0.300; nearest: chunk 2",
        "in place, similarity 0.900; matches reference chunk 1",
        "weakly supported, similarity 0.300; nearest: chunk 2",
    ]


def test_the_matrix_has_axes_and_the_ends_of_its_own_range(visit: Any, tmp_path: Path) -> None:
    e = drawn(39, 20)
    page = visit(single(tmp_path / "r.html", e))
    page.set_viewport_size({"width": 1280, "height": 900})
    page.reload()
    page.wait_for_selector("body[data-ready]")
    texts = page.locator(".heat text").all_text_contents()
    assert texts[:5] == ["1", "5", "10", "15", "20"]
    assert texts[5:9] == ["1", "10", "20", "30"]
    assert texts[9:] == ["generated chunk", "reference chunk"]
    ends = [f"{value:.3f}" for value in (e.similarity.min(), e.similarity.max())]
    assert page.inner_text(".scale").split() == ["similarity", *ends]
    pixels = (
        "c => [...c.getContext('2d').getImageData(0, 0, 20, 39).data].filter((_, k) => k % 4 === 0)"
    )
    red = np.array(page.locator(".heat canvas").evaluate(pixels)).reshape(39, 20)
    assert red.argmax() == e.similarity.argmax()
    assert (red.min(), red.max()) == (0x00, 0xFE)
    page.locator(".heat").scroll_into_view_if_needed()
    box = page.locator(".heat canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 2.5 / 20, box["y"] + box["height"] * 8.5 / 39)
    assert (
        page.inner_text(".readout")
        == f"reference 9, generated 3: similarity {e.similarity[8, 2]:.3f}"
    )
    page.click(".layers label >> nth=2")
    assert page.locator(".heat .recall").is_hidden()
    assert page.locator(".heat .windows").is_visible()
    beside = page.locator(".heat").bounding_box()
    narrative = page.locator("figure").nth(1).bounding_box()
    assert narrative["x"] > beside["x"] + beside["width"]
    assert narrative["y"] < beside["y"] + beside["height"]


@pytest.mark.parametrize(
    ("shape", "width", "least"),
    [((36, 313), 1150, 8), ((313, 36), 500, 2), ((1, 12), 700, 60), ((1, 1), 60, 60)],
)
def test_cells_are_large_enough_whatever_the_shape(
    shape: tuple[int, int], width: int, least: int, visit: Any, tmp_path: Path
) -> None:
    page = visit(single(tmp_path / "r.html", drawn(*shape)))
    canvas = page.locator(".heat canvas").bounding_box()
    assert canvas["width"] >= width
    assert canvas["height"] / shape[0] >= least
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_cells_of_a_small_matrix_hold_numbers_that_can_be_read(visit: Any, tmp_path: Path) -> None:
    page = visit(single(tmp_path / "r.html", explained([[0.9, 0.1], [0.5, 0.3]])))
    cells = page.locator(".heat text[class]")
    assert cells.all_text_contents() == ["0.90", "0.10", "0.50", "0.30"]
    assert cells.evaluate_all("all => all.map(n => n.getAttribute('class'))")[:2] == [
        "on-bright",
        "on-dark",
    ]


def test_segments_of_the_cost_bar_bear_their_names_where_they_fit(
    visit: Any, tmp_path: Path
) -> None:
    e = explained(np.eye(6)[[2, 1, 0, 3, 4, 5]] * 0.8, 0.4)
    page = visit(single(tmp_path / "r.html", e))
    parts = {f"VCS {e.scores.vcs:.3f}": e.scores.vcs}
    parts |= {f"{LABELS[name]} cost {cost:.3f}": cost for name, cost in e.costs.items()}
    assert page.get_attribute(".bar", "aria-label") == ", ".join(parts)
    assert page.locator(".costs li").all_inner_texts() == list(parts)
    bar = page.locator(".bar").bounding_box()
    for text, part in parts.items():
        if part > 0:
            label = page.locator(".bar > span > span", has_text=text).bounding_box()
            fits = label["width"] <= part * (bar["width"] - 12)
            assert (label["y"] < bar["y"] + bar["height"]) == fits, text
    images = page.locator(".swatch").evaluate_all(
        "all => all.map(n => getComputedStyle(n).backgroundImage)"
    )
    assert len(set(images)) == 5


def test_keys_lead_to_the_next_better_and_worse_pair(visit: Any, tmp_path: Path) -> None:
    path = many(tmp_path / "r.html", *(drawn(6, 6, seed) for seed in range(3)))
    page = visit(path)
    order = page.evaluate(
        "[...document.querySelectorAll('#pairs tbody a')].map(a => a.textContent)"
    )
    page.click("#pairs tbody a")

    def shown() -> str:
        place = page.evaluate("location.hash")
        page.wait_for_selector(f"body[data-ready='{place}']")
        page.wait_for_selector(".chunk")
        return str(page.inner_text("h1"))

    visited = [shown()]
    assert page.title() == f"{order[0]} \u2013 model \u2013 many"
    assert page.locator("nav a").all_inner_texts() == ["All pairs", "Next better pair"]
    for key in ("n", "n", "p", "Control+n"):
        page.keyboard.press(key)
        visited.append(shown())
    assert visited == [order[0], order[1], order[2], order[1], order[1]]
    assert page.locator("nav a").all_inner_texts() == [
        "All pairs",
        "Next worse pair",
        "Next better pair",
    ]
    page.uncheck("nav input")
    page.keyboard.press("n")
    assert shown() == order[1]
    page.click("nav a >> nth=2")
    assert shown() == order[2]
    assert not page.is_checked("nav input")
    page.click("text=All pairs")
    page.wait_for_selector("#pairs")
    assert page.title() == "many"


def test_a_phone_shows_vcs_at_once_has_words_for_touch_and_large_targets(
    browser: Any, rich: Path
) -> None:
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    for name in ("max.html#pair-0", "max.html#pair-1"):
        page.goto(f"{rich.as_uri()}/{name}")
        page.wait_for_selector(".chunk")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        first = page.locator(".headline div").first
        assert first.inner_text().startswith("VCS")
        assert first.bounding_box()["y"] < 300
        assert "Tap a sentence: its match is marked." in page.inner_text("main")
        assert "Point at" not in page.inner_text("main")
        assert "keys" not in page.inner_text("nav")
        ways = page.locator(".sides ol").evaluate_all(
            "all => all.map(n => getComputedStyle(n).overflowY)"
        )
        assert ways == ["visible", "visible"]
        for target in page.locator(
            "nav a, summary, .layers label, .kept-columns a, .about-pair a"
        ).all():
            assert target.bounding_box()["height"] >= 44
        sizes = page.locator(".drawn svg text").evaluate_all(
            "all => all.map(n => getComputedStyle(n).fontSize)"
        )
        assert set(sizes) == {"12px"}
        assert page.locator(".layers input").first.bounding_box()["width"] < 30
    page.tap("#generated-0")
    assert page.locator(".partner").count() == 1
    context.close()


def test_a_mouse_has_words_for_it(visit: Any, rich: Path) -> None:
    text = visit(rich / "max.html", "#pair-0").inner_text("main")
    assert (
        "Point at a sentence or use the arrow keys: its match is marked, and Enter goes to it."
        in text
    )
    assert "Tap a chunk" not in text


def test_paper_has_light_colours_and_everything_unrolled(visit: Any, tmp_path: Path) -> None:
    pair = InputPair("line 1", None, "Once more. " * 50, "And again. " * 50)
    page = visit(single(tmp_path / "r.html", drawn(120, 130), pair))
    colours = """[...document.querySelectorAll('*')].map(n => getComputedStyle(n)).map(
        s => [s.color, s.backgroundColor, s.fill, s.stroke, s.borderColor].join())"""
    printed = []
    for scheme in ("light", "dark"):
        page.emulate_media(media="screen", color_scheme=scheme)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print", color_scheme=scheme)
        printed.append(page.evaluate(colours))
        assert page.locator(".chunk").count() == 250
        assert page.locator("details[open]").count() == 2
        assert page.locator(".sides ol").first.evaluate("n => n.scrollHeight === n.clientHeight")
        assert not page.locator("input, .pager, .readout").filter(visible=True).all()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator(".chunk").count() == 200
        assert page.locator("details[open]").count() == 0
    assert printed[0] == printed[1]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_in_a_pair(
    scheme: str, width: int, visit: Any, barriers: Any, rich: Path, tmp_path: Path
) -> None:
    for path, place in ((rich / "max.html", "#pair-0"), (single(tmp_path / "r.html", mixed()), "")):
        page = visit(path, place)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        for chunk in ("generated-0", "reference-0"):
            page.hover(f"#{chunk}")
            assert page.locator(".partner").count() == 1
            assert barriers(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_texts_on_the_mark_of_a_match_can_be_read_in_every_verdict(
    visit: Any, barriers: Any, tmp_path: Path
) -> None:
    page = visit(single(tmp_path / "r.html", mixed()))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(
            "document.querySelectorAll('.chunk').forEach(n => n.classList.add('partner'))"
        )
        assert barriers(page) == []
