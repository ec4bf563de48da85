"""From a text to the pieces that are compared: validation, cleaning, chunks, and the words of short texts."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence

from vcs_runtime.errors import TextError
from vcs_runtime.text.stopwords import STOP_WORDS

# A description has some thousand characters. A million (about 200,000 words) is no description but a file
# taken for one, and its similarity matrix would fill the memory.
MAX_CHARACTERS = 1_000_000

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)


def check_text(text: object, what: str) -> str:
    """Return `text` if it can be scored; else raise TextError that begins with `what` ("reference", ...)."""
    if not isinstance(text, str):
        raise TextError(f"{what}: must be a string, not {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise TextError(f"{what}: the text has {len(text):,} characters, more than {MAX_CHARACTERS:,}")
    if (at := text.find("\0")) >= 0:
        raise TextError(f"{what}: the text holds a NUL character (at position {at})")
    _refuse_surrogates(text, what)
    if not any(map(str.isalnum, text)) and all(unicodedata.category(c)[0] in "CZ" for c in text):
        raise TextError(f"{what}: the text is empty")  # or blanks, controls, zero-width characters alone
    return text


def check_texts(texts: Sequence[str]) -> None:
    """Refuse what no engine takes: one string in place of a sequence (TypeError); what is no string, or holds
    a lone surrogate (TextError naming `texts[3]`). Empty texts are texts."""
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of strings, not one string")
    for i, text in enumerate(texts):
        check_string(text, f"texts[{i}]")


def check_string(text: object, what: str) -> None:
    """Refuse what is no string, or holds a lone surrogate: a TextError that begins with `what`."""
    if not isinstance(text, str):
        raise TextError(f"{what}: must be a string, not {type(text).__name__}")
    _refuse_surrogates(text, what)


def _refuse_surrogates(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise TextError(
            f"{what}: the text holds a lone surrogate U+{code:04X} (at position {error.start})"
        ) from None


def strip_punctuation(text: str) -> str:
    """Delete every character of Python's `string.punctuation` (docs/vcs.md, section 1), nothing else."""
    return text.translate(_DELETE_PUNCTUATION)


def clean_segments(segments: Sequence[str]) -> list[str]:
    """Strip punctuation and white space off each segment; drop those that come out empty."""
    stripped = (strip_punctuation(segment).strip() for segment in segments)
    return [segment for segment in stripped if segment]


def join_chunks(segments: Sequence[str], chunk_size: int) -> list[str]:
    """Join every `chunk_size` consecutive segments with one space; the last chunk may be shorter."""
    return [" ".join(segments[i : i + chunk_size]) for i in range(0, len(segments), chunk_size)]


def short_words(text: str) -> list[str]:
    """The chunks of a short text (docs/vcs.md, section 10): its words without punctuation and stop words."""
    return [word for word in strip_punctuation(text).split() if word.lower() not in STOP_WORDS]
