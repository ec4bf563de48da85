"""Learned segmenters: token classifiers, such as SaT, that predict the last characters of segments.

Precisions and rounding are those of wtpsplit, because its thresholds were tuned with them: both
compute the same probabilities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace
from tokenizers import Tokenizer

from vcs_runtime.bundle.layouts import SEGMENTER_INPUTS, UNPADDED, WORD_SHAPES
from vcs_runtime.bundle.manifest import LearnedSegmenterSpec
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import BundleError, DeviceError, DeviceMemoryError
from vcs_runtime.inference.batching import (
    RowLimit,
    ShapeOf,
    fixed_groups,
    fixed_shapes,
    groups,
    mixed_groups,
    unpadded,
)
from vcs_runtime.inference.device import Device
from vcs_runtime.inference.session import Budget, FittingBatches
from vcs_runtime.inference.tensorrt import open_part, row_limit
from vcs_runtime.inference.tokenizer import TokenEncoder, load_tokenizer

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

_WORD = re.compile(r"\S+")
# How a word is written. A small letter shows that no sentence starts there, except in a text
# without capitals.
CASELESS, CAPITAL, CAPITALS, SMALL = range(WORD_SHAPES)
# A text counts as one with capitals if at least one word in so many has one. Acronyms in
# lower-cased text are rarer.
_WORDS_A_CAPITAL = 40


def word_features(text: str, spans: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """Return the capitals and the last character of each token's word; `spans` has token places.

    Words are separated by white space. A word starts with a CAPITAL (1), is written in CAPITALS (2,
    at least two letters), or is SMALL (3). In a text with hardly any capitals, small words are
    CASELESS (0).
    """
    of_words = [match.span() for match in _WORD.finditer(text)]
    starts, ends = np.array(of_words, np.int64).T
    kinds = np.array([_capitals(text[start:end]) for start, end in of_words], np.int64)
    if _WORDS_A_CAPITAL * np.count_nonzero(kinds != SMALL) < len(kinds):
        kinds[kinds == SMALL] = CASELESS
    words = (
        np.searchsorted(starts, np.array(spans, np.int64).reshape(-1, 2)[:, 0], side="right") - 1
    )
    return kinds[words], ends[words] - 1


def _capitals(word: str) -> int:
    letters = [character for character in word if character.isalpha()]
    if not letters or not letters[0].isupper():
        return SMALL
    return CAPITALS if len(letters) > 1 and all(map(str.isupper, letters)) else CAPITAL


def window_starts(tokens: int, size: int, stride: int) -> range | list[int]:
    """Return where the windows over a text start.

    Windows start `stride` tokens apart. The last one is moved back to end with the text. A text of
    at most `size` tokens is one window, a text without tokens none.
    """
    if tokens <= size:
        return range(min(tokens, 1))
    return [*range(0, tokens - size, stride), tokens - size]


class Overlap:
    """The mean logit of each token of a text over all windows that hold it, in half precision.

    Windows must be added in order, because sums in half precision depend on it. A token takes four
    bytes.
    """

    def __init__(self, tokens: int) -> None:
        self._sums = np.zeros(tokens, np.float16)
        self._counts = np.zeros(tokens, np.float16)

    def add(self, start: int, logits: npt.NDArray[Any]) -> None:
        """Add the logits of the window at `start`: (tokens of the window,), float16 or float32."""
        part = slice(start, start + len(logits))
        # A float32 logit is added in float32 and only the sum is rounded.
        np.add(self._sums[part], logits, out=self._sums[part], casting="same_kind")
        self._counts[part] += np.float16(1)

    def mean(self) -> npt.NDArray[np.float16]:
        """Return one logit for each token. Every token must have been in a window."""
        return self._sums / self._counts


def sigmoid(logits: npt.NDArray[Any]) -> FloatArray:
    """Return probabilities in float32, whatever the precision of the logits."""
    # Exp(100) is infinity in float32, which gives the right probability 0.
    with np.errstate(over="ignore"):
        return np.float32(1) / (np.float32(1) + np.exp(-logits.astype(np.float32)))


def character_probabilities(length: int, places: IntArray, probabilities: FloatArray) -> FloatArray:
    """Assign token probabilities to the characters of a text; characters without a token have 0.

    `places` has the character of each token, or -1. Of several tokens of one character the last one
    counts.
    """
    result = np.zeros(length, np.float32)
    placed = places >= 0
    result[places[placed]] = probabilities[placed]
    return result


def cut(text: str, ends: Iterable[int]) -> list[str]:
    """Split a text after the characters `ends` and white space that follows, and at every newline.

    White space belongs to the segment before it. Only the newlines at which the text is cut are in
    no segment, so empty lines give empty segments, as `str.split` does.
    """
    pieces: list[str] = []
    start = 0
    for end in ends:
        stop = end + 1
        while stop < len(text) and text[stop].isspace():
            stop += 1
        if stop > start:
            pieces.append(text[start:stop])
            start = stop
    if start < len(text):
        pieces.append(text[start:])
    # A newline at the end of a segment is already the cut after it; only the last segment keeps its
    # newline.
    lines = [piece.removesuffix("\n") for piece in pieces[:-1]] + pieces[-1:]
    return [line for piece in lines for line in piece.split("\n")]


# Number of characters that are tokenised at a time: many full batches, and encodings of limited
# size.
_PORTION_CHARACTERS = 1_000_000
# Windows are padded to a multiple of this. On a CPU batches save little time, and without padding
# the logits depend on the window alone. A GPU needs larger batches, and OpenVINO fewer widths
# (`batching.width_step`).
_STEP = {"ort-cpu": 1, "openvino": 16, "ort-cuda": 16, "tensorrt-rtx": 16, "tensorrt": 16}
# Hidden size from which the memory of a token is estimated (`session.Budget`); no learned segmenter
# is wider.
_WIDTH = 1024
_PAD_TOKENS = ("<pad>", "[PAD]")
_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
}


@dataclass(frozen=True)
class Tokens:
    """A text as a learned segmenter sees it."""

    inputs: dict[str, IntArray]  # (tokens,) each
    places: IntArray  # (tokens,): the character to which each token's probability belongs


def _sat_tokens(text: str, ids: IntArray, spans: IntArray) -> Tokens:
    """Prepare a text for SaT, with token ids only.

    A segment may end after the last character of any token.
    """
    # A token without characters counts for the last character, as in wtpsplit.
    return Tokens({"input_ids": ids}, (spans[:, 1] - 1) % len(text))


def _word_tokens(text: str, ids: IntArray, spans: IntArray) -> Tokens:
    """Prepare a text for the kind "words", with token ids and capitals.

    The last token of a word decides whether a segment ends after the word.
    """
    capitals, ends = word_features(text, spans)
    return Tokens({"input_ids": ids, "capitals": capitals}, ends)


# The kinds of learned segmenters differ in nothing but this function (see
# `LearnedSegmenterSpec.kind`).
_KINDS: dict[str, Callable[..., Tokens]] = {"sat": _sat_tokens, "words": _word_tokens}


class BoundaryModel:
    """A learned segmenter on a device, for `Segmenter`. Several threads may use it."""

    def __init__(
        self, bundle: Bundle, spec: LearnedSegmenterSpec, device: Device, threads: int | None = None
    ) -> None:
        """Open the model `spec` of `bundle`. Raises BundleError or DeviceError."""
        self.spec = spec = device.suited(spec)
        self.device = device
        graph = spec.cuda or spec
        self._varlen = graph is not spec
        tokenizer = load_tokenizer(bundle.path(spec.tokenizer))
        self._encoder = TokenEncoder(tokenizer)
        self._pad = _pad_id(tokenizer)
        self._session = open_part(
            bundle,
            "segmenter",
            device,
            threads,
            spec=replace(spec, model=graph.model),
            what="the segmenter",
        )
        needed = UNPADDED if self._varlen else SEGMENTER_INPUTS["sat"]
        self._types = _input_types(
            self._session.inputs, needed, f"bundle {bundle.root}: {graph.model}"
        )
        # Dynamic int8 takes its ranges from the whole batch, so windows are run one at a time.
        alone = spec.precision == "int8"
        self._most_rows: RowLimit = (lambda length: 1) if alone else row_limit(device)
        self._budget = Budget(device, _WIDTH, bundle.weights_size(spec) if device.is_gpu else 0)
        self._step = 1 if alone else _STEP[device.provider_name]
        self._shape_of: ShapeOf | None = None
        if device.batch_invariant:
            layout = "varlen" if self._varlen else "padded"
            self._shape_of = fixed_shapes(layout, spec.max_tokens, self._most_rows, self._step)
        self._check_vocabulary(bundle)

    def probabilities(self, texts: Sequence[str]) -> list[FloatArray]:
        """Compute for each character of each text the probability that a segment ends after it.

        The probabilities of a text do not depend on the other texts. Memory grows with the longest
        text, not with the number of texts.
        """
        distinct: dict[str, FloatArray] = {}
        for portion in _portions(dict.fromkeys(texts)):
            distinct.update(zip(portion, self.run_each(portion), strict=True))
        return [distinct[text] for text in texts]

    def run_each(self, texts: Sequence[str]) -> list[FloatArray]:
        """Return probabilities for each text; the model runs again for a repeated text."""
        result = [np.zeros(len(text), np.float32) for text in texts]
        rows = [row for row, text in enumerate(texts) if not (text.isspace() or not text)]
        encodings = self._encoder.encode([texts[row] for row in rows], spans=True)
        as_tokens = _KINDS[self.spec.kind]
        tokens = [
            as_tokens(texts[row], *encoding) for row, encoding in zip(rows, encodings, strict=True)
        ]
        for row, item, logits in zip(rows, tokens, self._logits(tokens), strict=True):
            result[row] = character_probabilities(len(texts[row]), item.places, sigmoid(logits))
        return result

    def _logits(self, texts: list[Tokens]) -> Iterator[npt.NDArray[np.float16]]:
        """Compute the mean logit of each token of each text from batches of windows."""
        size = self.spec.max_tokens - 2
        lengths = [len(text.places) for text in texts]
        windows = [
            (owner, start)
            for owner, length in enumerate(lengths)
            for start in window_starts(length, size, self.spec.stride)
        ]
        overlaps = [Overlap(length) for length in lengths]
        sizes = [min(size, lengths[owner]) + 2 for owner, _ in windows]

        # The windows of one text have equal lengths and so keep their order, which `Overlap`
        # requires.
        def cut(rows: list[int], tokens: int) -> Iterator[tuple[list[int], tuple[list[int], int]]]:
            lengths = [sizes[row] for row in rows]
            if self._shape_of:
                for group, shape in fixed_groups(lengths, self._shape_of):
                    fillers = shape.fillers([lengths[i] for i in group])
                    yield [rows[i] for i in group], (fillers, shape.width)
                return
            if self._varlen:
                grouped = mixed_groups(lengths, tokens, "varlen")
            else:
                grouped = groups(lengths, tokens, self._step, self._most_rows)
            for group, width in grouped:
                yield [rows[i] for i in group], ([], width)

        batches = FittingBatches(sizes, self._budget, cut)
        for rows, shape in batches:
            parts = []
            for row in rows:
                owner, start = windows[row]
                parts.append((texts[owner], start, sizes[row] - 2))
            try:
                logits = self._run(parts, *shape)
            except DeviceMemoryError as error:
                batches.failed(rows, error)
                continue
            # The logits of fillers come last.
            for row, (_, start, length), values in zip(rows, parts, logits, strict=False):
                overlaps[windows[row][0]].add(start, values[1 : 1 + length])
        for overlap in overlaps:
            yield overlap.mean()

    def _run(
        self, parts: list[tuple[Tokens, int, int]], fillers: list[int], width: int
    ) -> list[npt.NDArray[Any]]:
        """Compute the logits of label 0 for each window of a batch, then for fillers.

        A window in `parts` is `(tokens, start, length)`.

        `fillers` are lengths of further rows, and no window has more than `width` tokens.
        """
        windows = [
            {
                name: np.pad(values[start : start + length], 1)
                for name, values in tokens.inputs.items()
            }
            for tokens, start, length in parts
        ]
        for window in windows:
            window["input_ids"][[0, -1]] = self.spec.special_tokens
        windows += [dict.fromkeys(windows[0], np.zeros(length, np.int64)) for length in fillers]
        if self._varlen:
            inputs = unpadded([window["input_ids"] for window in windows], width)
            inputs |= {
                name: np.concatenate([window[name] for window in windows]) for name in windows[0]
            }
            inputs = {name: inputs[name] for name in self._types}
        else:
            inputs = {
                name: np.zeros((len(windows), width), kind) for name, kind in self._types.items()
            }
            inputs["input_ids"].fill(self._pad)
            for i, window in enumerate(windows):
                length = len(window["input_ids"])
                for name, values in window.items():
                    inputs[name][i, :length] = values
                inputs["attention_mask"][i, :length] = 1
        [logits] = self._session.run(inputs)
        rows = (
            np.split(logits[:, 0], inputs["starts"][1:-1])
            if self._varlen
            else list(logits[:, :, 0])
        )
        if not all(np.isfinite(row).all() for row in rows[: len(parts)]):
            raise BundleError(f"{self.spec.name}: the model returned NaN or infinity")
        return rows

    def _check_vocabulary(self, bundle: Bundle) -> None:
        """Run the tokenizer's largest id once, and raise BundleError if the model refuses it.

        A model with a smaller vocabulary refuses the id on a CPU.
        """
        largest = self._encoder.tokenizer.get_vocab_size() - 1
        inputs = dict.fromkeys(SEGMENTER_INPUTS[self.spec.kind], np.zeros(1, np.int64))
        inputs |= {"input_ids": np.array([largest])}
        del inputs["attention_mask"]
        try:
            self._run([(Tokens(inputs, np.zeros(1, np.int64)), 0, 1)], [], 3)
        except DeviceMemoryError:  # says nothing about the bundle
            raise
        except (DeviceError, IndexError) as error:
            raise BundleError(
                f"bundle {bundle.root}: {self.spec.model} does not accept the token {largest} of"
                f" {self.spec.tokenizer}, or returns no logits (windows, tokens, labels): {error}"
            ) from None

    def release(self) -> None:
        """Free the session and its memory; the next call opens it again."""
        self._session.release()
        self._budget.forget()

    def close(self) -> None:
        """Close the session and free its memory. The model cannot be used afterwards."""
        self._session.close()


def _portions(texts: Iterator[str] | dict[str, None]) -> Iterator[list[str]]:
    portion: list[str] = []
    characters = 0
    for text in texts:
        portion.append(text)
        characters += len(text)
        if characters >= _PORTION_CHARACTERS:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion


def _input_types(inputs: dict[str, str], needed: Sequence[str], graph: str) -> dict[str, Any]:
    """Return the types of the graph's inputs, which depend on how it was exported."""
    types = {name: _TYPES.get(kind) for name, kind in inputs.items()}
    if not set(needed) <= set(types) or None in types.values():
        actual = ", ".join(f"{name}: {kind}" for name, kind in inputs.items())
        names = " and ".join(needed)
        raise BundleError(
            f"{graph}: a learned segmenter needs {names}, but this graph has {actual}"
        )
    return types


def _pad_id(tokenizer: Tokenizer) -> int:
    ids = (tokenizer.token_to_id(token) for token in _PAD_TOKENS)
    # Under the mask any id gives the same logits.
    return next((pad for pad in ids if pad is not None), 0)
