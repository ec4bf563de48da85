"""Every golden number of ViSIL's definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from vcs_runtime.errors import TextError
from vcs_visil import (
    Forced,
    Image,
    Summary,
    Video,
    frontier,
    mask_caption,
    parse_timecode,
    select_summary,
    visil,
)
from vcs_visil.correlation import correlate, fit_logit
from vcs_visil.summaries import Part

CAPTION = "A man drives a black sedan down the street."
# Token probabilities of the words "man", "sed|an", "street" on each side.
PROBABILITIES = {"video": (0.8, 0.5, 0.9, 0.6), "summary": (0.8, 0.1, 0.9, 0.05)}


class Table:
    """A model whose word "sedan" has two tokens, and that knows the sides by their images."""

    fingerprint = "table"

    def __init__(self, streets: Sequence[float] = (0.05,)) -> None:
        self.streets = streets

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        assert answer == "man sedan street"
        side = PROBABILITIES[
            "video" if any(isinstance(part, Image) for part in parts) else "summary"
        ]
        values = (
            side
            if len(self.streets) == 1 or side is PROBABILITIES["video"]
            else (*side[:3], self.streets[run])
        )
        return Forced(("man", " sed", "an", " street"), tuple(map(math.log, values)), None)

    def next(self, parts: Sequence[Part], said: str = "") -> tuple[str, float]:
        raise NotImplementedError


def a_video() -> Video:
    return Video([Image.from_pixels(np.full((4, 4, 3), i, np.uint8)) for i in range(2)])


def test_the_score() -> None:
    summary = Summary("A man drives.", tokens=4)
    [result] = visil(a_video(), CAPTION, ["man", "sedan", "street"], [summary], Table())
    assert result.video.log_p == pytest.approx(-1.532476871297972, abs=1e-14)
    assert result.summary.log_p == pytest.approx(-5.626821433520073, abs=1e-14)
    assert result.visil == pytest.approx(4.094344562222101, abs=1e-14)
    assert result.visil == pytest.approx(math.log(60), abs=1e-14)
    assert result.per_keyword == pytest.approx(1.3647815207407004, abs=1e-14)


def test_the_geometric_mean_over_runs() -> None:
    model, summary = Table((0.05, 0.02, 0.08)), Summary("A man drives.", tokens=4)
    [result] = visil(a_video(), CAPTION, ["man", "sedan", "street"], [summary], model, samples=3)
    assert result.visil == pytest.approx(4.243106929764908, abs=1e-14)


def test_the_selection() -> None:
    candidates = [("text", 4.2, 59.05), ("one image", 3.1, 326.34), ("three images", 2.4, 866.88)]
    chosen = [select_summary(candidates, alpha) for alpha in (0, 0.001, 0.002, 0.005, 0.01)]
    assert chosen == ["three images", "three images", "one image", "text", "text"]
    steps = frontier(candidates)
    assert [step.name for step in steps] == ["three images", "one image", "text"]
    alphas = [step.alpha for step in steps]
    assert alphas == pytest.approx([0, 0.0012950013, 0.0041153803], abs=5e-11)


def test_the_masked_caption() -> None:
    masked = mask_caption(
        "A man drives a black sedan. The man parks the sedan near a sedan-chair; a salesman and"
        " Man's dog watch.",
        ["man", "drives", "sedan"],
    )
    assert (
        masked.text
        == "A [MASK] [MASK] a black [MASK]. The [MASK] parks the [MASK] near a sedan-chair; a"
        " salesman and [MASK]'s dog watch."
    )
    assert masked.answer == "man drives sedan man sedan man"
    assert masked.scored == (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "fps", "frame", "seconds"),
    [
        ("00:00:11:15", Fraction(25), 290, 11.6),
        ("00:00:16:03", Fraction(30000, 1001), 483, 16.1161),
        ("00:01:00;02", Fraction(30000, 1001), 1800, 60.06),
        ("00:10:00;00", 30000 / 1001, 17982, 599.9994),
    ],
)
def test_the_timecodes(text: str, fps: Fraction | float, frame: int, seconds: float) -> None:
    assert parse_timecode(text, fps) == frame
    assert frame / float(fps) == pytest.approx(seconds, abs=1e-10)


def test_the_correlation() -> None:
    found = correlate(range(8), [1, 1, 1, 0, 1, 0, 1, 0])
    assert found.logit is not None
    logit = (
        found.logit.b0,
        found.logit.b1,
        found.logit.se0,
        found.logit.se1,
        found.logit.p0,
        found.logit.p1,
    )
    assert logit == pytest.approx(
        (2.66710173, -0.56126795, 1.99078386, 0.43526638, 0.18033496, 0.19723074), abs=5e-9
    )
    assert found.r == pytest.approx(-0.50709255283711, abs=1e-14)
    assert (found.p, found.exact) == (pytest.approx(0.25), True)


def test_the_correlation_of_answers_that_a_threshold_separates() -> None:
    scores, correct = [0.5, 1.2, -0.3, 2.8, 3.1, 0.1, 4.0, 1.9], [1, 1, 1, 0, 0, 1, 0, 1]
    found = correlate(scores, correct)
    assert found.r == pytest.approx(-0.8768805069639715, abs=1e-14)
    assert (found.p, found.exact) == (pytest.approx(2 / 56), True)
    assert (found.logit, found.separable) == (None, True)
    with pytest.raises(TextError, match="no estimate"):
        fit_logit(np.array(scores), np.array(correct, float))
