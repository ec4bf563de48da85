"""Reports as one HTML file, written pair by pair."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

import numpy as np

from vcs_numba import Orientation, Scores, strict_cap
from vcs_numba.substitution_inputs import DEFAULT_SUBSTITUTION
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.report.page import DIGITS, block, head, tail
from vcs_runtime.report.systems import MARKS, Systems, figures_of, kept_texts
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.flags import FLAGS
from vcs_runtime.scoring.replaced import ReplacedWord, surest
from vcs_runtime.scoring.score_table import (
    ALL,
    FULL_NAMES,
    FURTHER,
    HEADLINE,
    PART,
    SMALLER_IS_BETTER,
    up_to,
)
from vcs_runtime.scoring.verdicts import VERDICTS, Chunk, describe_thresholds, verdict_counts
from vcs_runtime.util.atomic import file_errors, replaced

#: Maximum number of characters that are shown of a chunk.
MAX_CHARACTERS: Final = 4000
#: Maximum number of characters that are shown of a whole text.
MAX_TEXT: Final = 100_000
#: Maximum number of rows and of columns of a matrix.
MAX_CELLS: Final = 1000


class HtmlReport:
    """A report in one HTML file, written pair by pair.

    Use it in a `with` statement: when the block ends without an error, the file appears under its
    name. Every pair is a compressed block of the file, which a browser unpacks when its page is
    opened. So a report of thousands of pairs is one file, and is written with little memory.

    Parameters
    ----------
    path
        The file to write. An existing file is replaced.
    title
        Title of the page; "" for one that names the systems and the number of videos.

    Raises
    ------
    InputError
        The file cannot be written.

    Examples
    --------
    >>> with HtmlReport(path, "one pair") as report:  # doctest: +SKIP
    ...     report.add(explanation)
    ...     report.finish()
    """

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.title = title
        self.pages = 0
        self._score_names = up_to(PART)
        self._file: BinaryIO | None = None
        self._replacing = ExitStack()

    def __enter__(self) -> HtmlReport:
        with file_errors(self.path):
            self._file = self._replacing.enter_context(replaced(self.path))
        self._write(head(self.title or "VCS report"))
        return self

    def add(
        self,
        explanation: Explanation,
        name: str | None = None,
        *,
        system: str | None = None,
        pair: InputPair | None = None,
    ) -> int:
        """Write the page of a pair.

        Parameters
        ----------
        explanation
            The explanation of the pair.
        name
            Name of the pair. None: the title of the report.
        system
            Name of the system that generated the text.
        pair
            The pair as it was read, with whole texts, all references and kept columns. None: only
            the chunks are shown.

        Returns
        -------
        number
            Number of the page, from 0.
        """
        self._write(block(f"block-{self.pages}", pair_data(explanation, name, system, pair)))
        self._score_names = up_to(PART, explanation.result.also)
        self.pages += 1
        return self.pages - 1

    def finish(self, systems: Systems | None = None) -> None:
        """Write the overview of all pairs; without `systems`, the report shows a single pair."""
        if systems is None:
            names = self._score_names
            index: dict[str, Any] = {"single": True, "title": self.title}
        else:
            names = systems.shown
            index = {"single": False, **systems.to_index(self.title)}
        self._write(block("index", {**index, **vocabulary(names), "pages": self.pages}))
        self._write(tail())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with file_errors(self.path):
            self._replacing.__exit__(kind, error, trace)

    def _write(self, text: str) -> None:
        assert self._file is not None
        with file_errors(self.path):
            self._file.write(text.encode())


def vocabulary(names: Sequence[str]) -> dict[str, Any]:
    """Return the names, labels and meanings of scores, flags and verdicts for the page's script."""
    return {
        "scores": [_described(name) for name in names],
        "flags": {flag: {"mark": mark, "meaning": FLAGS[flag]} for flag, mark in MARKS.items()},
        "verdicts": VERDICTS,
    }


def _described(name: str) -> dict[str, Any]:
    """Return the data of a score."""
    score = ALL[name]
    return {
        "name": name,
        "label": score.label,
        "full": FULL_NAMES.get(name, ""),
        "low": score.low,
        "high": score.high,
        "meaning": score.meaning,
        "headline": name in figures_of(FURTHER),
        "smaller": name in SMALLER_IS_BETTER,
    }


def pair_data(
    e: Explanation, name: str | None, system: str | None = None, pair: InputPair | None = None
) -> dict[str, Any]:
    """Return the data of a pair for the script of the page.

    The similarity matrix is int32, in units of the last of `DIGITS`, row by row.
    """
    a, r = e.alignment, e.result
    written = (None, None) if e.replaced else e.written
    about = f"Thresholds: {describe_thresholds(e.thresholds)}."
    if r.segmenter:
        about += f" Split into {e.noun}s by {r.segmenter}."
    if any(len(chunk.text) > MAX_CHARACTERS for chunk in (*e.reference, *e.generated)):
        about += f" At most {MAX_CHARACTERS:,} characters of a {e.noun} are shown."
    return {
        "id": name,
        "system": system,
        "scores": e.values,
        "costs": e.costs,
        "conclusion": e.conclusion,
        "noun": e.noun,
        "sentences": e.sentences,
        "texts": _texts(e, pair),
        "kept": _kept(pair) if pair else {},
        "reference": _side(e.reference, a.recall, written[0]),
        "generated": _side(e.generated, a.precision, written[1]),
        "replaced": _replaced(e),
        "strict": None if e.strict is None else _strict(e.strict.substitution),
        "matrix": _matrix(e.similarity),
        "regularizer": {"area": a.window_area, "grid": a.grid_area, "least": a.min_coverage},
        "signature": r.signature,
        "about": about,
    }


def _texts(e: Explanation, pair: InputPair | None) -> dict[str, Any]:
    """Return the whole texts, if they are known, and the scores with each of several references."""
    r = e.result
    texts: dict[str, Any] = {"explained": r.reference_index, "count": r.n_references}
    if pair:
        texts["generated"] = shortened(pair.generated, MAX_TEXT)
        texts["references"] = [shortened(text, MAX_TEXT) for text in pair.references]
    if r.n_references > 1 and e.by_reference:
        names = up_to(HEADLINE)
        texts["scores"] = [_rounded(scores, names) for scores in e.by_reference]
        texts["mean"] = r.scores != e.by_reference[r.reference_index]
    return texts


def _rounded(scores: Scores, names: Sequence[str]) -> dict[str, float]:
    return {name: round(getattr(scores, name), DIGITS) for name in names}


def _replaced(e: Explanation) -> list[dict[str, Any]]:
    listed = surest(e.replaced)
    return [{**_replacement(e, word), "listed": word in listed} for word in e.replaced]


def _replacement(e: Explanation, word: ReplacedWord) -> dict[str, Any]:
    """Return the data of a replaced word; in each list, the reference comes first.

    Places in chunks count as JavaScript does, in units of UTF-16. A place is None in a part of a
    chunk that is not shown.
    """
    return {
        "words": [word.reference, word.generated],
        "kind": word.word_class,
        "likeness": word.likeness,
        "contrast": word.contrast,
        "chunks": [word.reference_chunk, word.generated_chunk],
        "places": [
            _shown_place(e.reference[word.reference_chunk].text, word.reference_place),
            _shown_place(e.generated[word.generated_chunk].text, word.generated_place),
        ],
    }


def _strict(substitution: float) -> dict[str, Any]:
    """Return the limit that substitution sets for VCS, and the constants of both."""
    p = DEFAULT_SUBSTITUTION
    return {
        "cap": strict_cap(substitution),
        "slope": p.slope,
        "allowance": p.allowance,
        "thing_weight": p.thing_weight,
        "rewording": p.rewording,
    }


def _shown_place(text: str, place: tuple[int, int]) -> list[int] | None:
    # The last character that is shown is an ellipsis.
    if len(text) > MAX_CHARACTERS and place[1] >= MAX_CHARACTERS:
        return None
    return [len(text[:at].encode("utf-16-le")) // 2 for at in place]


def _kept(pair: InputPair) -> dict[str, str]:
    """Return the kept columns that are not empty, as texts."""
    return {name: shortened(text) for name, text in kept_texts(pair.kept).items()}


def _side(
    chunks: tuple[Chunk, ...], side: Orientation, written: Sequence[str] | None
) -> dict[str, Any]:
    # The places of replaced words are those in the texts as they were compared.
    texts = [chunk.text for chunk in chunks] if written is None else written
    return {
        "text": [shortened(text) for text in texts],
        "verdict": [chunk.verdict for chunk in chunks],
        "counts": verdict_counts(chunks),
        "repeats": [chunk.repeats for chunk in chunks],
        "match": side.match.tolist(),
        "similarity": [round(chunk.similarity, DIGITS) for chunk in chunks],
        "start": side.window_start.tolist(),
        "end": side.window_end.tolist(),
        "offset": [chunk.offset for chunk in chunks],
        "penalty": [round(chunk.penalty, DIGITS) for chunk in chunks],
        "floor": side.floor_path.tolist(),
        "ceiling": side.ceiling_path.tolist(),
        "floor_length": side.floor_length,
        "ceiling_length": side.ceiling_length,
        "actual_length": side.actual_length,
        "total_penalty": side.total_penalty,
        "max_penalty": side.max_penalty,
        "nas_d": side.nas_d,
        "nas_l": side.nas_l,
    }


def shortened(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Return `text`, or its beginning and an ellipsis if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"


def _matrix(similarity: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the matrix; a large one as the maximum of each tile."""
    steps = []
    tiles = similarity
    for axis, count in enumerate(similarity.shape):
        step = -(-count // MAX_CELLS)
        tiles = np.maximum.reduceat(tiles, np.arange(0, count, step), axis=axis)
        steps.append(step)
    values = np.rint(tiles * 10**DIGITS).astype("<i4")
    return {
        "rows": values.shape[0],
        "columns": values.shape[1],
        "step": steps,
        "values": base64.b64encode(values.tobytes()).decode(),
    }
