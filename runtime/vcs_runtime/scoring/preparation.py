"""From texts to chunks: pairs are validated, split into sentences, and put together into blocks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import TextError
from vcs_runtime.scoring.options import HM_CF, Options
from vcs_runtime.scoring.result import Pair
from vcs_runtime.segmentation.custom import TIME_STAMPS, ScoringSegmenter
from vcs_runtime.text.cleaning import (
    check_text,
    clean_segments,
    expand_contractions,
    join_chunks,
    plain_line_ends,
    short_words,
    strip_punctuation,
    without_fragments,
)
from vcs_runtime.text.language import LanguageCounts
from vcs_runtime.text.marks import unwrapped
from vcs_runtime.text.markup import remove_markup
from vcs_runtime.text.times import TimedText, timed_together
from vcs_runtime.util.lru import LRUCache
from vcs_runtime.util.stages import check_stopped

T = TypeVar("T")

# Pairs are scored in blocks: large enough for full batches, small enough that a stopped job loses
# little. The characters are about 40,000 tokens, and as many again in chunks; for short captions
# the number of pairs is the limit. On a GPU, whose batches are larger, both limits are multiplied.
BLOCK_CHARACTERS = 200_000
BLOCK_PAIRS = 1024
GPU_BLOCKS = 2
# Bytes for remembered splits if no scorer is opened: references are repeated.
_SPLITS = 16 << 20


@dataclass
class PreparedPair:
    """A pair on its way to the vectors."""

    texts: list[str]  # the references, then the generated text
    segmenter: str | None  # None for short texts
    chunks: list[list[str]] = field(default_factory=list)
    # Texts that the learned segmenter still has to split.
    pending: list[str] = field(default_factory=list)
    # Unchanged sentences of each text, for HM-CF.
    sentences: list[list[str]] = field(default_factory=list)
    # Times of the chunks of each text, if they have times.
    times: list[npt.NDArray[np.float64]] = field(default_factory=list)

    def all_texts(self) -> Iterator[str]:
        """Yield every text that needs a vector: whole texts with their chunks, then sentences."""
        for text, chunks in zip(self.texts, self.chunks, strict=True):
            yield text
            yield from chunks
        for sentences in self.sentences:
            yield from sentences


Block = list[tuple[T, PreparedPair | TextError]]
Pieces = list[str] | TextError
"""The pieces of a text, or why a segmenter refuses it."""


def similarities_of(pieces: Sequence[Sequence[str]]) -> int:
    """Count the similarities of a pair.

    `pieces` holds the pieces of each reference, then the pieces of the generated text.
    """
    *references, generated = pieces or [[]]
    return sum(map(len, references)) * len(generated)


@dataclass(frozen=True)
class _RuleSplit:
    """A text without contractions, and its segments if rules split it."""

    text: str
    segments: list[str] | None

    def size(self) -> int:
        """Count the bytes of text and segments."""
        return _bytes_of([self.text, *(self.segments or ())])


def _bytes_of(texts: Iterable[str]) -> int:
    """Count the bytes of a list of texts, in which a segment of one letter takes 58."""
    return sum(sys.getsizeof(text) + 8 for text in texts)


def _characters_of(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


class Preparation:
    """A converter of pairs to chunks that remembers splits, so a repeated reference costs nothing.

    `memory_bytes` limits the sentences by rules, those by the learned segmenter, and those for
    HM-CF, each on its own.
    """

    def __init__(
        self,
        segmenter: ScoringSegmenter,
        memory_bytes: int,
        blocks: int = 1,
        max_pair_gb: float = 1.0,
    ) -> None:
        self._max_pair_gb = max_pair_gb
        self.languages = LanguageCounts()
        self._segmenter = segmenter
        self._blocks = blocks
        self._rule_splits: LRUCache[_RuleSplit] = LRUCache(memory_bytes, _RuleSplit.size)
        self._learned_splits: LRUCache[list[str]] = LRUCache(memory_bytes, _bytes_of)
        self._as_they_stand = _Sentences(segmenter, memory_bytes)

    def blocks(
        self, items: Iterable[T], key: Callable[[T], Pair], options: Options
    ) -> Iterator[Block[T]]:
        """Group items into blocks, with their texts split into chunks.

        `key` returns the pair of an item. If `key` raises a TextError, the block holds the error
        instead of the pair.
        """
        most_characters = BLOCK_CHARACTERS * self._blocks
        most_pairs = BLOCK_PAIRS * self._blocks
        block: Block[T] = []
        characters = 0
        for item in items:
            check_stopped()
            try:
                prepared = self._prepare(key(item), options)
                characters += _characters_of(prepared.texts)
                block.append((item, prepared))
            except TextError as error:
                block.append((item, error))
            if characters >= most_characters or len(block) >= most_pairs:
                self._split_pending(block, options)
                yield block
                block, characters = [], 0
        if block:
            self._split_pending(block, options)
            yield block

    def _prepare(self, pair: Pair, options: Options) -> PreparedPair:
        """Check and clean the texts of a pair, and split them if no model is needed."""
        timed = self._segmenter.model_name == TIME_STAMPS and not options.short
        named = _named_texts(pair)
        if timed and TIME_STAMPS in options.clean:
            raise TextError(
                "pair: clean time-stamps removes the times that segmenter time-stamps reads:"
                " choose one"
            )
        texts = {name: _checked(text, name, options, timed) for name, text in named.items()}
        if timed:
            return self._timed(texts, options)
        if not options.short:
            return self._sentences(texts, options)
        for text in texts.values():
            self.languages.add(text)
        return _words(texts)

    def _sentences(self, texts: dict[str, str], options: Options) -> PreparedPair:
        """Split a pair by rules, or mark its texts as pending for the learned segmenter.

        One of the two splits all texts of the pair.
        """
        originals = list(texts.values())
        splits = [self._split_by_rules(text, name) for name, text in texts.items()]
        chunks = []
        for split in splits:
            if split.segments is not None:
                chunks.append(join_chunks(split.segments, options.chunk_size))
        if len(chunks) == len(splits):
            return PreparedPair(originals, self._segmenter.rules_name, chunks)
        pending = [split.text for split in splits]
        if not self._segmenter.wants_punctuation:
            pending = list(map(strip_punctuation, pending))
        return PreparedPair(originals, self._segmenter.model_name, [], pending)

    def _timed(self, texts: dict[str, str], options: Options) -> PreparedPair:
        """Split a pair into the segments that time stamps mark, and remove the stamps."""
        pair = PreparedPair([], TIME_STAMPS)
        for name, segments in timed_together(texts).items():
            self.languages.add(texts[name])
            pieces: list[str] = []
            times: list[tuple[float, float]] = []
            for segment in segments:
                piece = clean_segments([expand_contractions(segment.text)])
                if piece:  # more than punctuation
                    pieces += piece
                    times.append((segment.start, segment.end))
            if not times:
                raise TextError(f"{name}: the text has only punctuation")
            sentences = [segment.text for segment in segments]
            pair.texts.append(" ".join(sentences))
            pair.chunks.append(join_chunks(pieces, options.chunk_size))
            pair.times.append(_chunk_times(times, options.chunk_size))
            if HM_CF in options.also:
                pair.sentences.append(sentences)
        return pair

    def _split_by_rules(self, text: str, name: str) -> _RuleSplit:
        known = self._rule_splits.get(text)
        if known is not None:
            return known
        self.languages.add(text)
        expanded = expand_contractions(text)
        if not any(map(str.isalnum, expanded)) and not strip_punctuation(expanded).strip():
            raise TextError(f"{name}: the text has only punctuation")
        sentences = self._segmenter.sentences(expanded, name)
        split = _RuleSplit(expanded, None if sentences is None else clean_segments(sentences))
        self._rule_splits.put(text, split)
        return split

    def _split_pending(self, block: Block[T], options: Options) -> None:
        """Split the pending texts of a block in one call of the learned segmenter."""
        pairs = [pair for _, pair in block if isinstance(pair, PreparedPair)]
        segments: dict[str, Pieces] = {}
        missing: dict[str, None] = {}  # an ordered set
        for text in chain.from_iterable(pair.pending for pair in pairs):
            known = self._learned_splits.get(text)
            if known is None:
                missing[text] = None
            else:
                segments[text] = known
        segments |= self._split_learned(list(missing))

        def join(pair: PreparedPair) -> None:
            if pair.pending:
                pieces = _of_texts(pair, pair.pending, segments)
                pair.chunks = [join_chunks(sentences, options.chunk_size) for sentences in pieces]
                pair.pending = []

        _apply(join, block)
        if HM_CF in options.also:
            pairs = [pair for _, pair in block if isinstance(pair, PreparedPair) and not pair.times]
            texts = chain.from_iterable(pair.texts for pair in pairs)
            split = self._as_they_stand.split(texts)

            def add_sentences(pair: PreparedPair) -> None:
                if not pair.sentences:
                    pair.sentences = _of_texts(pair, pair.texts, split)

            _apply(add_sentences, block)
        _apply(self._check_size, block)

    def _check_size(self, pair: PreparedPair) -> None:
        """Refuse a pair whose similarities take too much memory."""
        for name, pieces, advice in (
            ("chunks", pair.chunks, "join more sentences to a chunk"),
            ("sentences", pair.sentences, "leave out hm-cf"),
        ):
            size = similarities_of(pieces) * 8 / 1e9
            if size > self._max_pair_gb:
                n_ref = sum(map(len, pieces[:-1]))
                counts = f"{n_ref:,} x {len(pieces[-1]):,}"
                raise TextError(
                    f"pair: the similarities of {counts} {name} need {size:.3g} GB, more than"
                    f" {self._max_pair_gb:g}: {advice}, or raise max_pair_gb (--max-pair-gb)"
                )

    def _split_learned(self, texts: list[str]) -> dict[str, Pieces]:
        segments: dict[str, Pieces] = {}
        for text, pieces in _split_learned(self._segmenter, texts).items():
            if isinstance(pieces, TextError):
                segments[text] = pieces
                continue
            cleaned = clean_segments(pieces)
            # A learned segmenter alone is the papers' or the caller's: its segments stay.
            if self._segmenter.rules_name:
                cleaned = without_fragments(cleaned)
            if cleaned:
                self._learned_splits.put(text, cleaned)
                segments[text] = cleaned
            else:
                name = self._segmenter.model_name
                segments[text] = TextError(f"segmenter {name}: no segments")
        return segments


class _Sentences:
    """Splits texts into unchanged sentences, and remembers them.

    Contractions and punctuation stay, unlike in the chunks of VCS. Each text is split separately:
    by rules if it has sentence punctuation, otherwise by the learned segmenter. A text that neither
    can split is one sentence.
    """

    def __init__(self, segmenter: ScoringSegmenter, memory_bytes: int) -> None:
        self._segmenter = segmenter
        self._known: LRUCache[list[str]] = LRUCache(memory_bytes, _bytes_of)

    def split(self, texts: Iterable[str]) -> dict[str, Pieces]:
        """Split texts that are not empty."""
        split: dict[str, Pieces] = {}
        unpunctuated = []
        for text in dict.fromkeys(texts):
            pieces = self._known.get(text) or self._by_rules(text)
            if pieces is None:
                unpunctuated.append(text)
            else:
                split[text] = pieces
        split |= _split_learned(self._segmenter, unpunctuated)
        for text, result in split.items():
            if isinstance(result, TextError):
                continue
            sentences = [piece.strip() for piece in result if piece.strip()]
            if not sentences:
                sentences = [text.strip()]
            split[text] = sentences
            self._known.put(text, sentences)
        return split

    def _by_rules(self, text: str) -> list[str] | None:
        try:
            return self._segmenter.sentences(text, "text")
        except TextError:  # no punctuation, and no learned segmenter
            return [text]


def _split_learned(segmenter: ScoringSegmenter, texts: Sequence[str]) -> dict[str, Pieces]:
    """Split texts in one call of the learned segmenter.

    A refused text gets its TextError, and the other texts are still split.
    """
    if not texts:
        return {}
    try:
        return dict(zip(texts, segmenter.split_learned(texts), strict=True))
    except TextError as error:
        if len(texts) == 1:
            return {texts[0]: error}
    # One of the texts is refused, so each is split by itself.
    split: dict[str, Pieces] = {}
    for text in texts:
        split |= _split_learned(segmenter, [text])
    return split


def _apply(step: Callable[[PreparedPair], None], block: Block[T]) -> None:
    """Apply `step` to each pair of a block.

    A pair for which `step` raises a TextError is replaced by the error.
    """
    for i, (item, pair) in enumerate(block):
        if isinstance(pair, PreparedPair):
            try:
                step(pair)
            except TextError as error:
                # The frames of a traceback would keep the block in memory.
                block[i] = item, error.with_traceback(None)


def _of_texts(
    pair: PreparedPair, texts: Sequence[str], split: Mapping[str, Pieces]
) -> list[list[str]]:
    """Return the pieces of all texts of a pair.

    Raises a TextError that names the text if a text was refused.
    """
    names = [*(f"reference[{i}]" for i in range(len(pair.texts) - 1)), "generated"]
    if len(names) == 2:
        names[0] = "reference"
    pieces_of_texts = []
    for name, text in zip(names, texts, strict=True):
        pieces = split[text]
        if isinstance(pieces, TextError):
            raise TextError(f"{name}: {pieces}")
        pieces_of_texts.append(pieces)
    return pieces_of_texts


def _named_texts(pair: Pair) -> dict[str, object]:
    """Return the texts of a pair by their names in errors: the references, then the generated."""
    try:
        if isinstance(pair, str):  # two characters would unpack
            raise TypeError
        reference, generated = pair
    except (TypeError, ValueError):
        kind = type(pair).__name__
        raise TextError(f"pair: must be (reference, generated), not {kind}") from None
    named: dict[str, object]
    if isinstance(reference, str) or not isinstance(reference, Sequence):
        named = {"reference": reference}
    elif reference:
        named = {f"reference[{i}]": text for i, text in enumerate(reference)}
    else:
        raise TextError("reference: the list is empty")
    named["generated"] = generated
    return named


def _chunk_times(times: Sequence[tuple[float, float]], size: int) -> npt.NDArray[np.float64]:
    """Return start and end of each chunk of `size` segments, float64 (n, 2)."""
    spans = []
    for first in range(0, len(times), size):
        starts, ends = zip(*times[first : first + size], strict=True)
        spans.append((starts[0], max(ends)))
    return np.array(spans)


def _checked(text: object, name: str, options: Options, timed: bool) -> str:
    """Check a text, and remove the markup that `options.clean` names.

    Of timed segments only those of a `timed` pair keep their times.
    """
    plain = check_text(text, name)
    if isinstance(plain, TimedText):
        others = [each for each in options.clean if each != TIME_STAMPS]
        segments = plain.map(lambda piece: remove_markup(plain_line_ends(piece), others))
        cleaned = segments if timed else segments.plain.strip()
    elif options.clean:
        cleaned = unwrapped(remove_markup(plain_line_ends(plain), options.clean))
    else:
        return unwrapped(plain_line_ends(plain))
    if not cleaned:
        raise TextError(f"{name}: no text is left after cleaning ({', '.join(options.clean)})")
    return cleaned


def _words(texts: dict[str, str]) -> PreparedPair:
    """Take the words of short texts as their chunks (docs/reference/vcs.md, section 10)."""
    chunks = {name: short_words(text) for name, text in texts.items()}
    for name, words in chunks.items():
        if not words:
            raise TextError(f"{name}: the text has only punctuation and stop words")
    return PreparedPair(list(texts.values()), None, list(chunks.values()))


def segmenters_of(segmenter: ScoringSegmenter, pairs: Iterable[Pair]) -> Iterator[str | None]:
    """Yield the segmenter name of each pair, as in results; None if the pair cannot be scored."""
    preparation = Preparation(segmenter, _SPLITS)
    for pair in pairs:
        try:
            yield preparation._prepare(pair, Options()).segmenter
        except TextError:
            yield None
