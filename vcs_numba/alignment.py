"""`align`: every intermediate result of the metric, for reports and for inspecting one pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import checked_gas, checked_times, matrix_error
from vcs_numba.jit.kernel import Kernel, array, types
from vcs_numba.kernels.combine import (
    LAS_PRECISION,
    NAS_D_PRECISION,
    NAS_L_PRECISION,
    SCORE_COUNT,
    combine_alignment,
    combine_global,
    regularizer,
)
from vcs_numba.kernels.large import match_matrix
from vcs_numba.kernels.line import (
    FLOOR_STEP,
    NOT_COUNTED,
    STANDARD,
    BandPaths,
    Segments,
    actual_length,
    distance_score,
    ideal_band,
    line_ratio,
    offset_from_window,
    segment_limits,
    tolerance_height,
)
from vcs_numba.kernels.matching import Floats, Stacks, context_band, sides_of
from vcs_numba.kernels.sums import pairwise_sum
from vcs_numba.kernels.windows import PRECISION, RECALL, Ints, window_area
from vcs_numba.params import DEFAULT_PARAMS, LCT, TIMED, Params, checked_params
from vcs_numba.scores import Scores, as_matrix

#: Positions in the output of `EXPLAIN`.
TOTAL_PENALTY, MAX_PENALTY, NAS_D, FLOOR, CEILING, ACTUAL, NAS_L, LIMIT, LIMIT_LCT, HEIGHT, LAS = (
    range(11)
)


def _explain(
    side: int, x: int, y: int, stacks: Stacks, params: Floats, parts: Stacks, out: Floats
) -> None:
    """Compute distance and line of one orientation with all their parts.

    Writes to the rows `side` of `parts`: of int64 (4, 2, L) distances, kinds of segments, floor and
    ceiling path; of float64 (3, 2, L) context bands, penalties and lengths of segments. Single
    numbers go to `out` (11,).
    """
    sides = sides_of(stacks)
    ints, floats = parts
    distances, kinds, floor_path, ceiling_path = ints[0], ints[1], ints[2], ints[3]
    bands, penalties, lengths = floats[0], floats[1], floats[2]
    for i in range(x):
        bands[side, i] = context_band(sides.tops[side, i], params)
        start, end = sides.starts[side, i], sides.ends[side, i]
        distances[side, i] = offset_from_window(sides.matches[side, i], start, end)
    out[LAS] = pairwise_sum(sides.values, side, x) / x
    out[HEIGHT] = tolerance_height(y, x)
    score, total, largest = distance_score(side, sides, x, y, params, penalties)
    out[NAS_D] = score
    out[TOTAL_PENALTY] = total
    out[MAX_PENALTY] = largest
    costs = np.empty((4, y), dtype=np.float64)
    heights = 0
    for i in range(x):
        heights += sides.ends[side, i] - sides.starts[side, i]
    came_from = np.empty((2, heights), dtype=np.int64)
    paths = BandPaths(True, True, floor_path, ceiling_path, came_from)
    floor, ceiling = ideal_band(side, sides, x, costs, paths)
    limit, limit_lct = segment_limits(y, x, params[LCT])
    segments = Segments(lengths, kinds, True)
    actual = actual_length(side, sides, x, y, params, floor_path, segments)
    out[FLOOR] = floor
    out[CEILING] = ceiling
    out[ACTUAL] = actual
    out[LIMIT] = limit
    out[LIMIT_LCT] = limit_lct
    out[NAS_L] = line_ratio(floor, ceiling, actual)


_INT = types.int64
_INTS = array(types.int64, 2)
_STACKS = (array(types.int64, 3), array(types.float64, 3))
_PACKED = array(types.float64, 1)
EXPLAIN: Final = Kernel(_explain, _INT, _INT, _INT, _STACKS, _PACKED, _STACKS, _PACKED)


def _combine(n_ref: int, n_gen: int, starts: Ints, ends: Ints, params: Floats, out: Floats) -> int:
    area = window_area(n_ref, n_gen, starts, ends)
    combine_alignment(out, regularizer(n_ref, n_gen, area, params))
    return area


COMBINE: Final = Kernel(_combine, types.int64, types.int64, _INTS, _INTS, _PACKED, _PACKED)


COMPLETE: Final = Kernel(combine_global, _PACKED, types.float64)


Bools = npt.NDArray[np.bool_]

#: Why a candidate was chosen, by code; the reference package's words.
MATCH_REASONS: Final = ("max_similarity", "in_mapping_window", "closest_to_mapping_window")
#: How a segment's length was computed, by code; the reference package's words.
SEGMENT_METHODS: Final = {NOT_COUNTED: "none", STANDARD: "standard", FLOOR_STEP: "lct_capped"}


@dataclass(frozen=True)
class Candidates:
    """The candidates of every chunk of one orientation, in order (docs/reference/vcs.md, 4).

    Attributes
    ----------
    offsets
        int64 (x + 1,). Chunk i has the entries `offsets[i]` up to `offsets[i + 1]` of the other
        arrays.
    index
        int64, ascending within a chunk: the position of the candidate on the other side.
    similarity
        float64, similarity to the candidate.
    distance
        int64, chunks between the candidate and the window, 0 inside.
    """

    offsets: Ints
    index: Ints
    similarity: Floats
    distance: Ints

    def of(self, chunk: int) -> list[dict[str, Any]]:
        """Return the candidates of one chunk as plain values."""
        part = slice(int(self.offsets[chunk]), int(self.offsets[chunk + 1]))
        rows = zip(
            self.index[part].tolist(),
            self.similarity[part].tolist(),
            self.distance[part].tolist(),
            strict=True,
        )
        return [
            {"index": i, "similarity": v, "distance": d, "in_window": d == 0} for i, v, d in rows
        ]


@dataclass(frozen=True)
class Orientation:
    """One direction of the comparison: x chunks, each matched to a place on a timeline.

    Precision places the generated chunks on the reference's timeline, recall the reference's chunks
    on the generated timeline. Arrays have x entries, or x - 1 for segments. Positions and lengths
    count chunks, from 0. Sections are those of docs/reference/vcs.md.

    Attributes
    ----------
    x, y
        Number of chunks, and length of the timeline.
    window_start, window_end
        Mapping windows, half-open (section 3).
    match, similarity
        Position of the best match, and its similarity (section 4).
    max_index, max_similarity
        Position of the most similar chunk, and its similarity.
    context_window, context_threshold
        Width of the context band, and least similarity of a candidate.
    reason
        Why the match was chosen: one of `MATCH_REASONS`.
    candidates
        All candidates of each chunk.
    distance, penalty
        Offset of the match from its window in chunks, and its cost as a part of the timeline
        (section 6).
    in_window
        Whether the match lies in its window.
    tolerated
        Whether the match lies outside its window, but close enough to cost nothing.
    in_lct_zone
        The flag of the reference package. After a window it counts from the window's end, one chunk
        further than the penalty does. So with a fractional tolerance it may be set where
        `tolerated` is not.
    tolerance_height
        Height in chunks that `lct` multiplies; by time each window's own, of which this is the
        largest.
    total_penalty, max_penalty
        Sum of the penalties, and the largest sum possible.
    segment_dy, segment_length, segment_method
        Rise, length and method of each segment between consecutive matches (section 7); methods are
        the values of `SEGMENT_METHODS`.
    segment_limit, segment_limit_lct
        How far a segment may rise to count, without and with the tolerance; by time the largest of
        all.
    floor_path, ceiling_path
        The rows that the shortest and the longest ideal line pass; empty for fewer than two chunks.
    floor_length, ceiling_length, actual_length
        Lengths of the shortest and the longest ideal line, and of the line through the matches.
    las, nas_d, nas_l
        This direction's part of the scores.
    """

    x: int
    y: int
    window_start: Ints
    window_end: Ints
    match: Ints
    similarity: Floats
    max_index: Ints
    max_similarity: Floats
    context_window: Floats
    context_threshold: Floats
    reason: tuple[str, ...]
    candidates: Candidates
    distance: Ints
    penalty: Floats
    in_window: Bools
    tolerated: Bools
    in_lct_zone: Bools
    tolerance_height: int
    total_penalty: float
    max_penalty: float
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
    las: float
    nas_d: float
    nas_l: float

    @property
    def actual_path(self) -> Ints:
        """The rows that the actual line passes, which are the matches."""
        return self.match


@dataclass(frozen=True)
class Alignment:
    """All steps from a similarity matrix to its scores; `scores(gas)` returns the scores.

    Attributes
    ----------
    n_ref, n_gen
        Number of chunks of the reference and of the generated text.
    params
        Parameters of the metric.
    precision, recall
        The two directions of the comparison.
    window_area, grid_area
        Cells inside the windows, and cells of the grid (docs/reference/vcs.md, section 8).
    min_coverage
        Least possible coverage of the grid by the windows.
    regularizer
        Value of the regulariser.
    las, nas_d, nas_l, nas_f1, nas
        The scores that need no GAS.
    """

    n_ref: int
    n_gen: int
    params: Params
    precision: Orientation
    recall: Orientation
    window_area: int
    grid_area: int
    min_coverage: float
    regularizer: float
    las: float
    nas_d: float
    nas_l: float
    nas_f1: float
    nas: float
    _partial: Floats = field(repr=False, compare=False)

    def scores(self, gas: float) -> Scores:
        """Return this pair's scores with `gas`, bit for bit those of `score_similarity`."""
        out = self._partial.copy()
        COMPLETE.call(out, checked_gas(gas))
        return Scores._make(out.tolist())


def align(
    similarity: npt.ArrayLike,
    params: Params = DEFAULT_PARAMS,
    times: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Alignment:
    """Compute the windows, matches, penalties, segments and paths of a pair's scores.

    Parameters
    ----------
    similarity
        Cosines (n_ref, n_gen), as for `score_similarity`. The same helpers compute the same values.
    params
        Parameters of the metric.
    times
        Start and end of each reference and each generated segment in seconds, (n_ref, 2) and
        (n_gen, 2), in the order of their starts. Windows are then by time (docs/reference/vcs.md,
        section 16).

    Returns
    -------
    Alignment
        The intermediate results.

    Raises
    ------
    ValueError
        As for `score_similarity`; or times that are not finite, not ascending, or end before they
        start. The message names the argument.
    """
    packed = checked_params(params).packed
    matrix, transposed = as_matrix(similarity, "similarity")
    rows = matrix.T if transposed else matrix
    clock = None
    if times is not None:
        clock = checked_times(times, *rows.shape)
        packed = packed.copy()
        packed[TIMED] = 1.0
    matched = match_matrix(matrix, transposed, packed, clock)
    if isinstance(matched, int):
        raise matrix_error(matched, "similarity")
    precision = _orientation(PRECISION, rows.T, matched, params, packed)
    recall = _orientation(RECALL, rows, matched, params, packed)
    out = np.zeros(SCORE_COUNT)
    for side, part in ((PRECISION, precision), (RECALL, recall)):
        out[LAS_PRECISION + side] = part.las
        out[NAS_D_PRECISION + side] = part.nas_d
        out[NAS_L_PRECISION + side] = part.nas_l
    n_ref, n_gen = rows.shape
    starts, ends, _ = matched[0]
    area = COMBINE.call(n_ref, n_gen, starts, ends, packed, out)
    named = Scores._make(out.tolist())
    return Alignment(
        n_ref=n_ref,
        n_gen=n_gen,
        params=params,
        precision=precision,
        recall=recall,
        window_area=area,
        grid_area=n_ref * n_gen,
        min_coverage=1.0 / max(n_ref, n_gen),
        regularizer=named.window_regularizer,
        las=named.las,
        nas_d=named.nas_d,
        nas_l=named.nas_l,
        nas_f1=named.nas_f1,
        nas=named.nas,
        _partial=out,
    )


def _orientation(
    side: int, lines: npt.NDArray[Any], stacks: Stacks, params: Params, packed: Floats
) -> Orientation:
    """Collect the results of one orientation.

    `lines` (x, y) holds the similarities of each chunk.
    """
    x, y = lines.shape
    side_ints, side_floats = stacks
    longest = side_ints.shape[2]
    ints = np.zeros((4, 2, longest), dtype=np.int64)
    floats = np.zeros((3, 2, longest))
    out = np.zeros(11)
    EXPLAIN.call(side, x, y, stacks, packed, (ints, floats), out)
    starts, ends, matches = side_ints[:, side, :x]
    tops, values = side_floats[:, side, :x]
    distance, kinds, floor_path, ceiling_path = ints[:, side, :x]
    context, penalty, lengths = floats[:, side, :x]
    levels = tops - context
    candidates = _candidates(lines, levels, starts, ends)
    in_window = distance == 0
    heights = ends - starts if packed[TIMED] else np.array([out[HEIGHT]])
    reach = params.lct * heights
    if packed[TIMED] and x > 1:
        out[LIMIT] = (ends[1:] - 1 - starts[:-1]).max()
        out[LIMIT_LCT] = out[LIMIT] + params.lct * heights.max()
    in_zone = ~in_window & (params.lct > 0) & (starts - reach <= matches) & (matches < ends + reach)
    reasons = np.where(np.diff(candidates.offsets) == 1, 0, np.where(in_window, 1, 2))
    path = slice(0, x if x > 1 else 0)
    return Orientation(
        x=x,
        y=y,
        window_start=starts,
        window_end=ends,
        match=matches,
        similarity=values,
        max_index=np.argmax(lines, axis=1).astype(np.int64),
        max_similarity=tops,
        context_window=context,
        context_threshold=levels,
        reason=tuple(MATCH_REASONS[code] for code in reasons.tolist()),
        candidates=candidates,
        distance=distance,
        penalty=penalty,
        in_window=in_window,
        tolerated=~in_window & (penalty == 0.0),
        in_lct_zone=in_zone,
        tolerance_height=int(heights.max()),
        total_penalty=float(out[TOTAL_PENALTY]),
        max_penalty=float(out[MAX_PENALTY]),
        segment_dy=np.diff(matches),
        segment_length=lengths[: x - 1],
        segment_method=tuple(SEGMENT_METHODS[kind] for kind in kinds[: x - 1].tolist()),
        segment_limit=int(out[LIMIT]),
        segment_limit_lct=float(out[LIMIT_LCT]),
        floor_path=floor_path[path],
        ceiling_path=ceiling_path[path],
        floor_length=float(out[FLOOR]),
        ceiling_length=float(out[CEILING]),
        actual_length=float(out[ACTUAL]),
        las=float(out[LAS]),
        nas_d=float(out[NAS_D]),
        nas_l=float(out[NAS_L]),
    )


def _candidates(lines: npt.NDArray[Any], levels: Floats, starts: Ints, ends: Ints) -> Candidates:
    """Collect every entry that reaches the level of its line."""
    chunk, index = np.nonzero(lines.astype(np.float64, copy=False) >= levels[:, np.newaxis])
    before = starts[chunk] - index
    after = index - (ends[chunk] - 1)
    offsets = np.zeros(len(lines) + 1, dtype=np.int64)
    np.cumsum(np.bincount(chunk, minlength=len(lines)), out=offsets[1:])
    distance = np.maximum(np.maximum(before, after), 0)
    values = lines[chunk, index].astype(np.float64)
    return Candidates(
        offsets=offsets, index=index.astype(np.int64), similarity=values, distance=distance
    )
