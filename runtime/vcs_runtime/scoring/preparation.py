"""From texts to chunks: pairs are validated, split into sentences, and put together into blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from vcs_runtime.errors import TextError
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Pair
from vcs_runtime.segmentation.segmenter import Segmenter
from vcs_runtime.text.cleaning import check_text, clean_segments, join_chunks, short_words, strip_punctuation
from vcs_runtime.text.contractions import expand_contractions
from vcs_runtime.util.lru import Recent

T = TypeVar("T")

# Pairs are scored in blocks: large enough for full batches, small enough that a job which is stopped loses
# little. About 40,000 tokens; for short captions the number of pairs bounds it.
_BLOCK_CHARACTERS = 200_000
_BLOCK_PAIRS = 1024


@dataclass
class PreparedPair:
    """A pair on its way to the vectors: its texts (references, then the generated one), and their chunks.

    segmenter  the name of what cuts the texts; None for short texts
    stripped   the texts as the boundary model is to see them, until it has cut them; else empty
    """

    texts: list[str]
    segmenter: str | None
    chunks: list[list[str]] = field(default_factory=list)
    stripped: list[str] = field(default_factory=list)

    def all_texts(self) -> Iterator[str]:
        for text, chunks in zip(self.texts, self.chunks, strict=True):
            yield text
            yield from chunks


Block = list[tuple[T, PreparedPair | TextError]]


@dataclass(frozen=True)
class _View:
    """A text without punctuation, and its segments by rules; None where the boundary model must cut it."""

    stripped: str
    segments: list[str] | None

    def size(self) -> int:
        return len(self.stripped) + sum(map(len, self.segments or ()))


class Preparation:
    """Turns pairs into chunks. What was cut before is remembered: a reference that comes again costs nothing.

    Parameters
    ----------
    segmenter
        What splits texts into sentences.
    memory_bytes
        Bytes for the sentences found by rules, and as many for those found by the learned segmenter.
    """

    def __init__(self, segmenter: Segmenter, memory_bytes: int) -> None:
        self._segmenter = segmenter
        self._views: Recent[_View] = Recent(memory_bytes, _View.size)
        self._segments: Recent[list[str]] = Recent(memory_bytes, lambda pieces: sum(map(len, pieces)))

    def blocks(self, items: Iterable[T], key: Callable[[T], Pair], options: Options) -> Iterator[Block[T]]:
        """The items in blocks, their texts cut and ready to be embedded."""
        block: Block[T] = []
        characters = 0
        for item in items:
            try:
                prepared = self._prepare(key(item), options)
                characters += sum(map(len, prepared.texts))
                block.append((item, prepared))
            except TextError as error:
                block.append((item, error))
            if characters >= _BLOCK_CHARACTERS or len(block) >= _BLOCK_PAIRS:
                self._cut_learned(block, options)
                yield block
                block, characters = [], 0
        if block:
            self._cut_learned(block, options)
            yield block

    def _prepare(self, pair: Pair, options: Options) -> PreparedPair:
        try:
            reference, generated = pair
        except (TypeError, ValueError):
            raise TextError(f"pair: must be (reference, generated), not {type(pair).__name__}") from None
        if isinstance(reference, str) or not isinstance(reference, Sequence):
            named = {"reference": reference}
        elif reference:
            named = {f"reference[{i}]": text for i, text in enumerate(reference)}
        else:
            raise TextError("reference: the list is empty")
        named["generated"] = generated
        texts = {what: check_text(text, what) for what, text in named.items()}
        return self._short(texts) if options.short else self._cut(texts, options)

    def _short(self, texts: dict[str, str]) -> PreparedPair:
        chunks = {what: short_words(text) for what, text in texts.items()}
        for what, words in chunks.items():
            if not words:
                raise TextError(f"{what}: the text holds nothing but punctuation and stop words")
        return PreparedPair(list(texts.values()), None, list(chunks.values()))

    def _cut(self, texts: dict[str, str], options: Options) -> PreparedPair:
        """Cut a pair by rules, or leave it to the boundary model: one of them cuts all texts of a pair."""
        views = [self._view(text, what) for what, text in texts.items()]
        cut = [view.segments for view in views if view.segments is not None]
        if len(cut) < len(views):
            # The model sees no punctuation, not even where there is some (docs/vcs.md, section 1).
            stripped = [view.stripped for view in views]
            return PreparedPair(list(texts.values()), self._segmenter.model_name, [], stripped)
        chunks = [join_chunks(segments, options.chunk_size) for segments in cut]
        return PreparedPair(list(texts.values()), self._segmenter.rules_name, chunks)

    def _view(self, text: str, what: str) -> _View:
        """How a text is cut by rules, remembered: a reference that comes again costs nothing."""
        if (kept := self._views.get(text)) is not None:
            return kept
        expanded = expand_contractions(text)
        stripped = strip_punctuation(expanded)
        if not stripped.strip():
            raise TextError(f"{what}: the text holds nothing but punctuation")
        sentences = self._segmenter.sentences(expanded, what)
        view = _View(stripped, None if sentences is None else clean_segments(sentences))
        self._views.put(text, view)
        return view

    def _cut_learned(self, block: Block[T], options: Options) -> None:
        """Cut what was left to the boundary model, all texts in one call."""
        waiting = [pair for _, pair in block if isinstance(pair, PreparedPair) and pair.stripped]
        segments: dict[str, list[str]] = {}
        missing: dict[str, None] = {}
        for text in (text for pair in waiting for text in pair.stripped):
            if (kept := self._segments.get(text)) is not None:
                segments[text] = kept
            else:
                missing[text] = None
        for text, pieces in zip(missing, self._segmenter.split_learned(list(missing)), strict=True):
            segments[text] = clean_segments(pieces)
            self._segments.put(text, segments[text])
        for pair in waiting:
            pair.chunks = [join_chunks(segments[text], options.chunk_size) for text in pair.stripped]
            pair.stripped = []
