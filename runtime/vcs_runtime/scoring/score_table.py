"""Every score that users see: its label, range, meaning and place in tables.

Tables, reports, commands, the C structure and Triton's outputs read the scores here. A new score is
declared here, and documented in docs/reference/vcs.md, section 12.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from vcs_numba import HmCf, Scores

#: How prominent a score is: always shown, shown where the parts of a score are, or only in files.
HEADLINE: Final = 1
PART: Final = 2
DETAIL: Final = 3


class ScoreInfo(NamedTuple):
    """Label, range, level and meaning of a score."""

    label: str
    low: float
    high: float
    level: int
    meaning: str


#: Every score by its name in files, in the order of tables.
SCORES: Final[dict[str, ScoreInfo]] = {
    "vcs": ScoreInfo("VCS", 0, 1, HEADLINE, "the whole: theme, content and order together"),
    "margin": ScoreInfo("margin", -1, 1, HEADLINE, "distance to the point where VCS becomes 0"),
    "gas": ScoreInfo("GAS", -1, 1, HEADLINE, "global theme: cosine of the two whole texts"),
    "las": ScoreInfo("LAS", -1, 1, HEADLINE, "are the sentences found in the other text?"),
    "las_precision": ScoreInfo(
        "LAS precision", -1, 1, PART, "how well the generated chunks are found in the reference"
    ),
    "las_recall": ScoreInfo(
        "LAS recall", -1, 1, PART, "how well the reference's chunks are found in the generated text"
    ),
    "sas": ScoreInfo("SAS", 0, 1, PART, "theme, scaled down by missing local content"),
    "nas": ScoreInfo("NAS", 0, 1, HEADLINE, "order of events, less what chance would give"),
    "nas_f1": ScoreInfo("NAS F1", 0, 1, PART, "order before chance is taken off"),
    "nas_d": ScoreInfo("NAS-D", 0, 1, PART, "are matches near their expected place?"),
    "nas_d_precision": ScoreInfo("NAS-D precision", 0, 1, DETAIL, "NAS-D of the generated chunks"),
    "nas_d_recall": ScoreInfo("NAS-D recall", 0, 1, DETAIL, "NAS-D of the reference's chunks"),
    "nas_l": ScoreInfo("NAS-L", 0, 1, PART, "do matches move forward evenly?"),
    "nas_l_precision": ScoreInfo("NAS-L precision", 0, 1, DETAIL, "NAS-L of the generated chunks"),
    "nas_l_recall": ScoreInfo("NAS-L recall", 0, 1, DETAIL, "NAS-L of the reference's chunks"),
    "window_regularizer": ScoreInfo(
        "regulariser", 0, 1, PART, "part of the order score that any order would get"
    ),
}

#: HM-CF and its parts by name, in the order of files and tables; only results scored with it have
#: them.
HM_CF: Final[dict[str, ScoreInfo]] = {
    "coarse": ScoreInfo("coarse", -1, 1, DETAIL, "cosine of the two whole texts, which is GAS"),
    "fine_precision": ScoreInfo(
        "fine precision",
        -1,
        1,
        DETAIL,
        "how well the generated sentences are found in the reference",
    ),
    "fine_recall": ScoreInfo(
        "fine recall",
        -1,
        1,
        DETAIL,
        "how well the reference's sentences are found in the generated text",
    ),
    "fine_f1": ScoreInfo(
        "fine F1", 0, 1, PART, "F1 of fine precision and recall, in any order of sentences"
    ),
    "hm_cf": ScoreInfo(
        "HM-CF", 0, 1, HEADLINE, "harmonic mean of coarse and fine F1 (CLIP-CC-Bench)"
    ),
}

#: Substitution and the scores that it lowers, by name, in the order of files and tables; only
#: results scored with it have them.
SUBSTITUTION: Final[dict[str, ScoreInfo]] = {
    "substitution": ScoreInfo(
        "substitution", 0, 1, HEADLINE, "content words replaced by other words; smaller is better"
    ),
    "replaced_things": ScoreInfo(
        "replaced things", 0, 1, PART, "share of things replaced by others"
    ),
    "replaced_actions": ScoreInfo(
        "replaced actions", 0, 1, PART, "share of actions replaced by others"
    ),
    "replaced_qualities": ScoreInfo(
        "replaced qualities",
        0,
        1,
        PART,
        "share of qualities, numbers and colours replaced by others",
    ),
    "replaced_names": ScoreInfo("replaced names", 0, 1, PART, "share of names replaced by others"),
    "vcs_strict": ScoreInfo(
        "VCS strict", 0, 1, HEADLINE, "VCS, lowered if many words were replaced"
    ),
    "margin_strict": ScoreInfo(
        "margin strict", -1, 1, PART, "margin, lowered as VCS is, and below 0 by LAS"
    ),
}

#: The metrics that can be computed beside VCS, with the scores of each.
FURTHER: Final = {"hm-cf": HM_CF, "substitution": SUBSTITUTION}
#: Scores for which smaller is better: nothing is rewarded or ranked by them.
SMALLER_IS_BETTER: Final = frozenset(SUBSTITUTION) - {"vcs_strict", "margin_strict"} | {
    "window_regularizer"
}

#: The names of all scores in the order of files, columns and C structures. New ones are added only
#: at the end.
NAMES: Final = Scores._fields
#: The names of HM-CF and its parts.
HM_CF_NAMES: Final = HmCf._fields
#: Every score that a file may have.
ALL: Final = SCORES | HM_CF | SUBSTITUTION

#: The name of each score in texts and figures.
LABELS: Final = {name: info.label for name, info in ALL.items()}

#: The full names of the abbreviations among the labels.
FULL_NAMES: Final = {
    "vcs": "Video Comprehension Score",
    "gas": "Global Alignment Score",
    "las": "Local Alignment Score",
    "sas": "Semantic Alignment Score",
    "nas": "Narrative Alignment Score",
    "nas_d": "distance-based Narrative Alignment Score",
    "nas_l": "line-based Narrative Alignment Score",
}


def names_with(also: Iterable[str]) -> tuple[str, ...]:
    """Return the names of all scores with these metrics beside VCS, in the order of files."""
    names = list(NAMES)
    for metric, scores in FURTHER.items():
        if metric in also:
            names += scores
    return tuple(names)


def metrics_in(record: Container[str]) -> tuple[str, ...]:
    """Return the metrics beside VCS whose scores are all in a line of a score file."""
    metrics = []
    for metric, scores in FURTHER.items():
        if all(name in record for name in scores):
            metrics.append(metric)
    return tuple(metrics)


def up_to(level: int, also: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the scores up to this level, in the order of tables.

    A lower level is more prominent.
    """
    names = names_with(also)
    return tuple(name for name, info in ALL.items() if name in names and info.level <= level)
