"""`align`: every intermediate result of the metric, for reports and for a look at one pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import not_finite, overflowing
from vcs_numba.combine import (
    LAS_PRECISION,
    NAS_D_PRECISION,
    NAS_L_PRECISION,
    SCORE_COUNT,
    combine_alignment,
    combine_global,
    regularizer,
)
from vcs_numba.checks import checked_gas
from vcs_numba.distance import distance_score, offset_from_window, tolerance_height
from vcs_numba.jit import Kernel, array, by_element, types
from vcs_numba.line import (
    FLOOR_STEP,
    NOT_COUNTED,
    STANDARD,
    actual_length,
    ideal_band,
    line_ratio,
    segment_limits,
)
from vcs_numba.matching import Floats, Similarities, all_finite, context_band, match_columns, match_rows
from vcs_numba.params import DEFAULT_PARAMS, LCT, Params, checked_params
from vcs_numba.scores import OK, Scores, as_matrix, status_of
from vcs_numba.sums import pairwise_sum
from vcs_numba.windows import PRECISION, RECALL, Ints, fill_windows, window_area

Bools = npt.NDArray[np.bool_]

#: Why a candidate was chosen, by code; the reference package's words.
MATCH_REASONS: Final = ("max_similarity", "in_mapping_window", "closest_to_mapping_window")
#: How a segment's length was computed, by code; the reference package's words.
SEGMENT_METHODS: Final = {NOT_COUNTED: "none", STANDARD: "standard", FLOOR_STEP: "lct_capped"}

#: Positions in the output of `_explain_orientation`.
_TOTAL_PENALTY, _MAX_PENALTY, _NAS_D, _FLOOR, _CEILING, _ACTUAL, _NAS_L, _LIMIT, _LIMIT_LCT, _HEIGHT, _LAS = (
    range(11)
)


@dataclass(frozen=True)
class Candidates:
    """The candidates of every chunk of one orientation, one chunk behind the other (section 4).

    Chunk i has the entries `offsets[i]` up to `offsets[i + 1]` of the other arrays. index: int64, ascending.
    similarity: float64. distance: int64, chunks from the window, 0 inside.
    """

    offsets: Ints
    index: Ints
    similarity: Floats
    distance: Ints

    def of(self, chunk: int) -> list[dict[str, Any]]:
        """The candidates of one chunk as plain values."""
        part = slice(int(self.offsets[chunk]), int(self.offsets[chunk + 1]))
        rows = zip(
            self.index[part].tolist(),
            self.similarity[part].tolist(),
            self.distance[part].tolist(),
            strict=True,
        )
        return [{"index": i, "similarity": v, "distance": d, "in_window": d == 0} for i, v, d in rows]


@dataclass(frozen=True)
class Orientation:
    """One direction of the comparison: x chunks, each matched to a position of a timeline of length y.

    Precision: the generated chunks on the reference's timeline; recall: the other way round. Arrays have x
    entries, or x - 1 for segments; positions and lengths count chunks, from 0.
    """

    x: int
    y: int
    #: Mapping windows, half-open (section 3).
    window_start: Ints
    window_end: Ints
    #: Best matches (section 4): position, similarity, and what led to them.
    match: Ints
    similarity: Floats
    max_index: Ints
    max_similarity: Floats
    context_window: Floats
    context_threshold: Floats
    reason: tuple[str, ...]
    candidates: Candidates
    #: NAS-D (section 6): offset from the window in chunks; penalty as a part of the timeline.
    distance: Ints
    penalty: Floats
    in_window: Bools
    #: Outside the window, but close enough to cost nothing.
    tolerated: Bools
    #: The reference package's flag. Behind a window it counts from the window's end, one chunk further than the
    #: penalty does, so with a fractional tolerance it may be set where `tolerated` is not.
    in_lct_zone: Bools
    tolerance_height: int
    total_penalty: float
    max_penalty: float
    #: NAS-L (section 7): the segments between consecutive matches, and the three lines.
    segment_dy: Ints
    segment_length: Floats
    segment_method: tuple[str, ...]
    segment_limit: int
    segment_limit_lct: float
    floor_path: Ints
    ceiling_path: Ints
    floor_length: float
    ceiling_length: float
    actual_length: float
    #: This direction's part of the scores.
    las: float
    nas_d: float
    nas_l: float

    @property
    def actual_path(self) -> Ints:
        """The rows that the actual line passes: the matches."""
        return self.match


@dataclass(frozen=True)
class Alignment:
    """Everything between a similarity matrix and its scores. `scores(gas)` gives these."""

    n_ref: int
    n_gen: int
    params: Params
    precision: Orientation
    recall: Orientation
    #: Regulariser (section 8): cells inside the windows, cells of the grid, least possible coverage, value.
    window_area: int
    grid_area: int
    min_coverage: float
    regularizer: float
    #: Scores that need no GAS.
    las: float
    nas_d: float
    nas_l: float
    nas_f1: float
    nas: float
    _partial: Floats = field(repr=False, compare=False)

    def scores(self, gas: float) -> Scores:
        """The scores of this pair with `gas`: those of `score_similarity`, bit for bit."""
        out = self._partial.copy()
        (_FINISH.call or _FINISH.load())(out, checked_gas(gas))
        return Scores._make(out.tolist())


def _match(
    similarity: Similarities,
    transposed: bool,
    params: Floats,
    starts: Ints,
    ends: Ints,
    matches: Ints,
    values: Floats,
    tops: Floats,
    bands: Floats,
) -> bool:
    """Windows and best matches of both orientations; all outputs (2, >= longest side). False: not finite."""
    rows, columns = similarity.shape
    n_ref = columns if transposed else rows
    n_gen = rows if transposed else columns
    by_row = PRECISION if transposed else RECALL
    by_column = 1 - by_row
    fill_windows(n_ref, n_gen, starts, ends)
    column_tops = np.empty((2, columns), dtype=similarity.dtype)
    for j in range(columns):
        column_tops[0, j] = -np.inf
    match_rows(
        similarity,
        0,
        rows,
        starts[by_row],
        ends[by_row],
        params,
        matches[by_row],
        values[by_row],
        column_tops[0],
        column_tops[1],
    )
    if not all_finite(column_tops[0], columns):
        return False
    match_columns(
        similarity,
        0,
        columns,
        starts[by_column],
        ends[by_column],
        params,
        matches[by_column],
        values[by_column],
        column_tops[0],
    )
    for j in range(columns):
        tops[by_column, j] = column_tops[0, j]
    for i in range(rows):
        top = similarity[i, 0]
        for j in range(columns):
            top = max(top, similarity[i, j])
        tops[by_row, i] = top
    for orientation in range(2):
        for i in range(n_gen if orientation == PRECISION else n_ref):
            bands[orientation, i] = context_band(tops[orientation, i], params)
    return True


_MATCH: Final = by_element(
    _match,
    lambda element: (
        array(element, 2, readonly=True),
        types.boolean,
        array(types.float64, 1),
        array(types.int64, 2),
        array(types.int64, 2),
        array(types.int64, 2),
        array(types.float64, 2),
        array(types.float64, 2),
        array(types.float64, 2),
    ),
)


def _explain_orientation(
    x: int,
    y: int,
    starts: Ints,
    ends: Ints,
    matches: Ints,
    values: Floats,
    params: Floats,
    costs: Floats,
    came_from: Ints,
    distances: Ints,
    penalties: Floats,
    kinds: Ints,
    lengths: Floats,
    floor_path: Ints,
    ceiling_path: Ints,
    out: Floats,
) -> None:
    """Distance and line of one orientation with everything a report shows; outputs as in `Orientation`."""
    out[_LAS] = pairwise_sum(values, 0, x) / x
    for i in range(x):
        distances[i] = offset_from_window(matches[i], starts[i], ends[i])
    out[_HEIGHT] = tolerance_height(y, x)
    out[_NAS_D], out[_TOTAL_PENALTY], out[_MAX_PENALTY] = distance_score(
        matches, starts, ends, x, y, params, penalties
    )
    out[_FLOOR], out[_CEILING] = ideal_band(
        starts, ends, x, costs, came_from, True, True, floor_path, ceiling_path
    )
    out[_LIMIT], out[_LIMIT_LCT] = segment_limits(y, x, params[LCT])
    out[_ACTUAL] = actual_length(matches, x, y, params[LCT], floor_path, lengths, kinds, True)
    out[_NAS_L] = line_ratio(out[_FLOOR], out[_CEILING], out[_ACTUAL])


_INTS = array(types.int64, 1)
_FLOATS = array(types.float64, 1)
_EXPLAIN: Final = Kernel(
    _explain_orientation,
    types.int64,
    types.int64,
    _INTS,
    _INTS,
    _INTS,
    _FLOATS,
    _FLOATS,
    array(types.float64, 2),
    array(types.int64, 2),
    _INTS,
    _FLOATS,
    _INTS,
    _FLOATS,
    _INTS,
    _INTS,
    _FLOATS,
)


def _combine(n_ref: int, n_gen: int, starts: Ints, ends: Ints, params: Floats, out: Floats) -> int:
    area = window_area(n_ref, n_gen, starts, ends)
    combine_alignment(out, regularizer(n_ref, n_gen, area, params))
    return area


_COMBINE: Final = Kernel(
    _combine, types.int64, types.int64, array(types.int64, 2), array(types.int64, 2), _FLOATS, _FLOATS
)


def _finish(out: Floats, gas: float) -> None:
    combine_global(out, gas)


_FINISH: Final = Kernel(_finish, _FLOATS, types.float64)


def align(similarity: npt.ArrayLike, params: Params = DEFAULT_PARAMS) -> Alignment:
    """The windows, matches, penalties, segments and paths behind a pair's scores.

    similarity: as for `score_similarity`; the same values result, from the same kernels.
    Raises ValueError that names the argument.
    """
    packed = checked_params(params).packed
    matrix, transposed = as_matrix(similarity, "similarity")
    n_ref, n_gen = matrix.shape[::-1] if transposed else matrix.shape
    longest = max(n_ref, n_gen)
    starts, ends, matches = (np.zeros((2, longest), dtype=np.int64) for _ in range(3))
    values, tops, bands = (np.zeros((2, longest)) for _ in range(3))
    kernel = _MATCH[matrix.dtype.char]
    if not (kernel.call or kernel.load())(
        matrix, transposed, packed, starts, ends, matches, values, tops, bands
    ):
        raise not_finite("similarity")
    out = np.zeros(SCORE_COUNT)
    sides = []
    for orientation, lines in ((PRECISION, 1), (RECALL, 0)):
        # Lines of the matrix as given: columns for precision, rows for recall.
        view = matrix.T if (lines == 1) != transposed else matrix
        side = _orientation(
            view,
            *(a[orientation, : len(view)] for a in (starts, ends, matches, values, tops, bands)),
            params,
        )
        out[LAS_PRECISION + orientation] = side.las
        out[NAS_D_PRECISION + orientation] = side.nas_d
        out[NAS_L_PRECISION + orientation] = side.nas_l
        sides.append(side)
    area = (_COMBINE.call or _COMBINE.load())(n_ref, n_gen, starts, ends, packed, out)
    if status_of(out) != OK:
        raise overflowing("similarity")
    named = Scores._make(out.tolist())
    return Alignment(
        n_ref=n_ref,
        n_gen=n_gen,
        params=params,
        precision=sides[PRECISION],
        recall=sides[RECALL],
        window_area=area,
        grid_area=n_ref * n_gen,
        min_coverage=1.0 / longest,
        regularizer=named.window_regularizer,
        las=named.las,
        nas_d=named.nas_d,
        nas_l=named.nas_l,
        nas_f1=named.nas_f1,
        nas=named.nas,
        _partial=out,
    )


def _orientation(
    lines: npt.NDArray[Any],
    starts: Ints,
    ends: Ints,
    matches: Ints,
    values: Floats,
    tops: Floats,
    bands: Floats,
    params: Params,
) -> Orientation:
    """`lines`: (x, y), one line of similarities for each of the x chunks."""
    x, y = lines.shape
    costs = np.empty((4, y))
    came_from = np.empty((2, int(np.sum(ends - starts))), dtype=np.int64)
    distances, kinds, floor_path, ceiling_path = (np.zeros(x, dtype=np.int64) for _ in range(4))
    penalties, lengths = np.zeros(x), np.zeros(x)
    out = np.zeros(11)
    (_EXPLAIN.call or _EXPLAIN.load())(
        x,
        y,
        starts,
        ends,
        matches,
        values,
        params.packed,
        costs,
        came_from,
        distances,
        penalties,
        kinds,
        lengths,
        floor_path,
        ceiling_path,
        out,
    )
    has_line = x > 1
    levels = tops - bands
    candidates = _candidates(lines, levels, starts, ends)
    counts = np.diff(candidates.offsets)
    in_window = distances == 0
    height = int(out[_HEIGHT])
    reach = params.lct * height
    in_zone = ~in_window & (params.lct > 0) & (starts - reach <= matches) & (matches < ends + reach)
    codes = np.where(counts == 1, 0, np.where(in_window, 1, 2))
    return Orientation(
        x=x,
        y=y,
        window_start=starts,
        window_end=ends,
        match=matches,
        similarity=values,
        max_index=np.argmax(lines, axis=1).astype(np.int64),
        max_similarity=tops,
        context_window=bands,
        context_threshold=levels,
        reason=tuple(MATCH_REASONS[code] for code in codes.tolist()),
        candidates=candidates,
        distance=distances,
        penalty=penalties,
        in_window=in_window,
        tolerated=~in_window & (penalties == 0.0),
        in_lct_zone=in_zone,
        tolerance_height=height,
        total_penalty=float(out[_TOTAL_PENALTY]),
        max_penalty=float(out[_MAX_PENALTY]),
        segment_dy=np.diff(matches),
        segment_length=lengths[: x - 1],
        segment_method=tuple(SEGMENT_METHODS[kind] for kind in kinds[: x - 1].tolist()),
        segment_limit=int(out[_LIMIT]),
        segment_limit_lct=float(out[_LIMIT_LCT]),
        floor_path=floor_path if has_line else floor_path[:0],
        ceiling_path=ceiling_path if has_line else ceiling_path[:0],
        floor_length=float(out[_FLOOR]),
        ceiling_length=float(out[_CEILING]),
        actual_length=float(out[_ACTUAL]),
        las=float(out[_LAS]),
        nas_d=float(out[_NAS_D]),
        nas_l=float(out[_NAS_L]),
    )


def _candidates(lines: npt.NDArray[Any], levels: Floats, starts: Ints, ends: Ints) -> Candidates:
    """Every entry that reaches its line's level."""
    chunk, index = np.nonzero(lines.astype(np.float64, copy=False) >= levels[:, np.newaxis])
    before = starts[chunk] - index
    behind = index - (ends[chunk] - 1)
    offsets = np.zeros(len(lines) + 1, dtype=np.int64)
    np.cumsum(np.bincount(chunk, minlength=len(lines)), out=offsets[1:])
    return Candidates(
        offsets=offsets,
        index=index.astype(np.int64),
        similarity=lines[chunk, index].astype(np.float64),
        distance=np.maximum(np.maximum(before, behind), 0),
    )
