"""Tables of a pair: chunks, matches, steps, configuration, as parts of a document or a figure."""

from __future__ import annotations

from collections import Counter
from typing import Final

from vcs_numba import Orientation
from vcs_runtime.report.flow import Rows, Table
from vcs_runtime.report.marks import VERDICT_MARKS
from vcs_runtime.report.sheet import SIZE, WIDTH, shorten, wrap
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.replaced import left_out, surest
from vcs_runtime.scoring.verdicts import (
    VERDICTS,
    Chunk,
    describe_thresholds,
    position,
    verdict_counts,
)
from vcs_runtime.util.printable import counted

_MAX_LINES = 12  # of the text of one chunk
_MAX_CHARACTERS = 1600
_MARKS: Final = {verdict: (mark, colour) for verdict, (colour, _, mark) in VERDICT_MARKS.items()}

_CHUNKS: Final = ("", "verdict", "similar")
_CHUNKS_AT: Final = (0.0, 0.05, 0.24, 0.32)
_REPLACED: Final = ("replaced", "became", "kind", "similarity")
_REPLACED_AT: Final = (0.0, 0.22, 0.44, 0.54, 0.7, 0.85)
_MATCHES: Final = (
    "",
    "match",
    "similar",
    "most similar",
    "context",
    "candidates",
    "place",
    "chosen as",
)
_MATCHES_AT: Final = (0.0, 0.06, 0.13, 0.22, 0.37, 0.46, 0.59, 0.77)
_STEPS: Final = ("step", "from", "to", "rise", "limit", "limit with LCT", "counted", "length")
_STEPS_AT: Final = (0.0, 0.08, 0.22, 0.36, 0.44, 0.54, 0.7, 0.88)


def chunks(e: Explanation, name: str) -> Table:
    """Return a text, `name` "reference" or "generated", chunk by chunk with verdicts."""
    listed: tuple[Chunk, ...] = getattr(e, name)
    width = WIDTH * (1 - _CHUNKS_AT[-1])
    rows: Rows = []
    written = e.written[0 if name == "reference" else 1]
    for number, (chunk, text) in enumerate(zip(listed, written, strict=True), 1):
        lines = wrap(text[:_MAX_CHARACTERS], width)
        if len(lines) > _MAX_LINES or len(text) > _MAX_CHARACTERS:
            lines = [*lines[: _MAX_LINES - 1], "… (the HTML report shows more)"]
        rows.append((str(number), chunk.verdict, f"{chunk.similarity:z.3f}", lines[0]))
        for line in lines[1:]:
            rows.append(("", "", "", line))
    counts = verdict_counts(listed).items()
    caption = "; ".join(f"{verdict} ({count}): {VERDICTS[verdict]}" for verdict, count in counts)
    side = "reference" if name == "reference" else "generated text"
    title = f"The {side}, {e.noun} by {e.noun}"
    return Table(title, f"{caption}.", (*_CHUNKS, e.noun), _CHUNKS_AT, rows, _MARKS)


def replaced(e: Explanation) -> Table:
    """Return a table of the most certain replaced words, without rows if there are none."""
    width = WIDTH * 0.21
    rows: Rows = [
        (
            shorten(word.reference, width),
            shorten(word.generated, width),
            word.word_class,
            word.likeness,
            str(word.reference_chunk + 1),
            str(word.generated_chunk + 1),
        )
        for word in surest(e.replaced)
    ]
    caption = "Words of the reference, and the words that replace them in the generated text."
    if more := left_out(e.replaced):
        caption += f" Not shown: {more}."
    head = (*_REPLACED, f"reference {e.noun}", f"generated {e.noun}")
    return Table("Replaced words", caption, head, _REPLACED_AT, rows)


def matches(e: Explanation, name: str) -> Table:
    """Return a table of the match of every chunk of a text, and the reason for each match.

    `name` is "reference" or "generated".
    """
    side = _side(e, name)
    other = "generated text" if name == "reference" else "reference"
    rows: Rows = [_match(i, chunk, side, e.noun) for i, chunk in enumerate(getattr(e, name))]
    caption = f"The match of a {e.noun} is its counterpart in the {other}."
    return Table(f"Matches of the {name} {e.noun}s", caption, _MATCHES, _MATCHES_AT, rows)


def match_summary(e: Explanation) -> Table:
    """Count the chunks of both texts by their verdicts, and by why their matches were chosen."""
    rows: Rows = []
    for name in ("generated", "reference"):
        side, listed = _side(e, name), getattr(e, name)
        rows.append((name, f"{counted(side.x, e.noun)}, mean similarity {side.las:z.3f}"))
        for verdict, count in verdict_counts(listed).items():
            rows.append(("", f"{count} {verdict}"))
        for reason, count in Counter(side.reason).items():
            rows.append(("", f"{count} chosen as {reason.replace('_', ' ')}"))
    return Table("Matches", "", ("", ""), (0.0, 0.15), rows)


def steps(e: Explanation, name: str) -> Table:
    """Return NAS-L of a text, "reference" or "generated", step by step."""
    side = _side(e, name)
    which = "recall" if name == "reference" else "precision"
    caption = (
        f"From ({e.noun}, match) to ({e.noun}, match). Length of all steps"
        f" {side.actual_length:.3f}, ideal {side.floor_length:.3f} to {side.ceiling_length:.3f}."
    )
    rows: Rows = [_step(i, side) for i in range(len(side.segment_method))]
    return Table(f"NAS-L {which} {side.nas_l:.3f}, step by step", caption, _STEPS, _STEPS_AT, rows)


def _step(i: int, side: Orientation) -> tuple[str, ...]:
    return (
        str(i + 1),
        f"({i + 1}, {side.match[i] + 1})",
        f"({i + 2}, {side.match[i + 1] + 1})",
        f"{side.segment_dy[i]:+d}",
        str(side.segment_limit),
        f"{side.segment_limit_lct:g}",
        side.segment_method[i].replace("_", " "),
        f"{side.segment_length[i]:.3f}",
    )


def configuration(e: Explanation) -> Table:
    """Return how the pair was scored: parameters, counts, thresholds, signature."""
    p, a = e.params, e.alignment
    rows: Rows = [
        ("reference chunks", str(a.n_ref)),
        ("generated chunks", str(a.n_gen)),
        ("LCT", f"{p.lct:g}"),
        ("context cutoff", f"{p.context_cutoff:g}"),
        ("context window", f"{p.context_window:g}"),
        ("LCT penalty", p.lct_penalty),
        ("regulariser", p.regularizer),
        ("small texts", p.small_text),
        ("split by", e.result.segmenter or "words"),
        ("verdict thresholds", describe_thresholds(e.thresholds)),
        *signature_rows("signature", e.result.signature),
    ]
    return Table("Configuration", "", ("", ""), (0.0, 0.24), rows)


def signature_rows(name: str, signature: str, size: float = 0.0) -> Rows:
    """Return a signature as rows of two columns, divided at the bars of the signature.

    With a `size` in points, the rows are as wide as a page.
    """
    width = WIDTH if size else 0.76 * WIDTH
    lines = wrap(signature.replace("|", "| "), width, size or SIZE)
    rows: Rows = [("", line.replace("| ", "|")) for line in lines]
    rows[0] = (name, rows[0][1])
    return rows


def _side(e: Explanation, name: str) -> Orientation:
    return e.alignment.recall if name == "reference" else e.alignment.precision


def _match(i: int, chunk: Chunk, side: Orientation, noun: str) -> tuple[str, ...]:
    candidates = int(side.candidates.offsets[i + 1] - side.candidates.offsets[i])
    return (
        str(i + 1),
        str(chunk.match + 1),
        f"{chunk.similarity:z.3f}",
        f"{side.max_index[i] + 1} ({side.max_similarity[i]:z.3f})",
        f"{side.context_window[i]:.3f}",
        str(candidates),
        position(chunk, noun).split(",")[0],
        side.reason[i].replace("_", " "),
    )
