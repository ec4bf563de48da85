"""`HtmlReport`: pairs in, one HTML file out, written as they come."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

import numpy as np

from vcs_numba import Orientation
from vcs_runtime.errors import InputError
from vcs_runtime.report.page import block, head, tail
from vcs_runtime.report.systems import Systems
from vcs_runtime.scoring.explanation import (
    LABELS,
    VERDICTS,
    Chunk,
    Explanation,
    describe_thresholds,
    verdict_counts,
)

#: Of a chunk no more characters than this are shown, and of a matrix no more cells a side.
MOST_CHARACTERS: Final = 4000
MOST_CELLS: Final = 1000


class HtmlReport:
    """Writes a report to `path`; in `with`, where leaving it without an error completes the file.

    Every pair is a block of the file that a browser unpacks when it is looked at. So thousands of pairs are
    one file to keep and to send, and are written in flat memory. The file appears under its name when it is
    whole. Raises InputError where it cannot be written.
    """

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.title = title
        self.pages = 0
        self._unfinished = path.with_name(path.name + ".unfinished")
        self._file: TextIO | None = None

    def __enter__(self) -> HtmlReport:
        try:
            self._file = self._unfinished.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None
        self._write(head(self.title))
        return self

    def add(self, explanation: Explanation, name: str | None = None) -> int:
        """Write a pair's page; returns its number."""
        self._write(block(f"block-{self.pages}", pair_data(explanation, name)))
        self.pages += 1
        return self.pages - 1

    def finish(self, systems: Systems | None = None) -> None:
        """Write what is about all pairs; without `systems` the report is about one pair alone."""
        index: dict[str, Any]
        if systems is None:
            index = {"single": True, "labels": LABELS, "meanings": VERDICTS}
        else:
            index = {"single": False, **systems.to_index(self.title)}
        self._write(block("index", {**index, "pages": self.pages}))
        self._write(tail())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        try:
            self._file.close()
            if error is None:
                os.replace(self._unfinished, self.path)
            else:
                self._unfinished.unlink(missing_ok=True)
        except OSError as failure:
            raise InputError(f"{self.path}: {failure.strerror or failure}") from None

    def _write(self, text: str) -> None:
        assert self._file is not None
        try:
            self._file.write(text)
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None


def pair_data(e: Explanation, name: str | None) -> dict[str, Any]:
    """What the page's script reads of a pair. Matrix: int16, ten-thousandths, row by row."""
    a, r = e.alignment, e.result
    about = f"Thresholds: {describe_thresholds(e.thresholds)}."
    if r.n_references > 1:
        about += f" Against reference {r.reference_index + 1} of {r.n_references}."
    if r.segmenter:
        about += f" Cut by {r.segmenter}."
    if any(len(chunk.text) > MOST_CHARACTERS for chunk in (*e.reference, *e.generated)):
        about += f" Of a chunk no more than {MOST_CHARACTERS} characters are shown."
    return {
        "id": name,
        "scores": e.scores.to_dict(),
        "costs": e.costs,
        "sentences": e.sentences,
        "reference": _side(e.reference, a.recall),
        "generated": _side(e.generated, a.precision),
        "matrix": _matrix(e.similarity),
        "regularizer": {"area": a.window_area, "grid": a.grid_area, "least": a.min_coverage},
        "signature": r.signature,
        "about": about,
    }


def _side(chunks: tuple[Chunk, ...], side: Orientation) -> dict[str, Any]:
    return {
        "text": [shortened(chunk.text) for chunk in chunks],
        "verdict": [chunk.verdict for chunk in chunks],
        "counts": verdict_counts(chunks),
        "match": side.match.tolist(),
        "similarity": [round(chunk.similarity, 4) for chunk in chunks],
        "start": side.window_start.tolist(),
        "end": side.window_end.tolist(),
        "offset": [chunk.offset for chunk in chunks],
        "penalty": [round(chunk.penalty, 6) for chunk in chunks],
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


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """`text`, or its beginning and an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _matrix(similarity: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The matrix, or the largest of each tile where it has too many cells to be seen."""
    step = [-(-count // MOST_CELLS) for count in similarity.shape]
    starts = [np.arange(0, count, size) for count, size in zip(similarity.shape, step, strict=True)]
    tiles = np.maximum.reduceat(np.maximum.reduceat(similarity, starts[0], axis=0), starts[1], axis=1)
    values = np.rint(tiles * 10_000).astype("<i2")
    return {
        "rows": values.shape[0],
        "columns": values.shape[1],
        "step": step,
        "values": base64.b64encode(values.tobytes()).decode(),
    }
