"""From a text to the pieces that are compared: validation, cleaning, chunks, and the words of short texts."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence

from vcs_runtime.errors import TextError
from vcs_runtime.text.stopwords import STOP_WORDS

# A description has some thousand characters. A million (about 200,000 words) is a file passed by mistake, and
# its similarity matrix would fill the memory.
MAX_CHARACTERS = 1_000_000

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)


def check_text(text: object, name: str) -> str:
    """Return a text that can be scored; raises TextError, which starts with `name`."""
    if text is None:
        raise TextError(f"{name}: is null")
    if not isinstance(text, str):
        raise TextError(f"{name}: must be a string, not {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise TextError(f"{name}: the text has {len(text):,} characters, more than {MAX_CHARACTERS:,}")
    if (at := text.find("\0")) >= 0:
        raise TextError(f"{name}: the text holds a NUL character (at position {at})")
    _refuse_surrogates(text, name)
    # Blanks, control and zero-width characters alone count as empty, too.
    if not any(map(str.isalnum, text)) and all(unicodedata.category(c)[0] in "CZ" for c in text):
        raise TextError(f"{name}: the text is empty")
    return text


def plain_line_ends(text: str) -> str:
    """Turn the line ends CRLF and CR into LF: a text scores the same whichever system wrote its file."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_texts(texts: Sequence[str]) -> None:
    """Check texts for a model; empty texts are allowed.

    Raises TypeError for one string instead of a sequence. Raises TextError for an item that is not a string
    or holds a lone surrogate; the message names it, such as `texts[3]`.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of strings, not one string")
    for i, text in enumerate(texts):
        check_string(text, f"texts[{i}]")


def check_string(text: object, name: str) -> None:
    """Raise TextError that starts with `name` if `text` is not a string or holds a lone surrogate."""
    if not isinstance(text, str):
        raise TextError(f"{name}: must be a string, not {type(text).__name__}")
    _refuse_surrogates(text, name)


def _refuse_surrogates(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise TextError(
            f"{name}: the text holds a lone surrogate U+{code:04X} (at position {error.start})"
        ) from None


def strip_punctuation(text: str) -> str:
    """Delete the characters of `string.punctuation`, and no others (docs/reference/vcs.md, section 1)."""
    return text.translate(_DELETE_PUNCTUATION)


def clean_segments(segments: Sequence[str]) -> list[str]:
    """Strip punctuation and white space from each segment, and drop empty segments."""
    stripped = (strip_punctuation(segment).strip() for segment in segments)
    return [segment for segment in stripped if segment]


def join_chunks(segments: Sequence[str], chunk_size: int) -> list[str]:
    """Join every `chunk_size` consecutive segments with one space; the last chunk may be shorter."""
    return [" ".join(segments[i : i + chunk_size]) for i in range(0, len(segments), chunk_size)]


def short_words(text: str) -> list[str]:
    """Return the words of a short text, without stop words (docs/reference/vcs.md, section 10)."""
    return [word for word in strip_punctuation(text).split() if word.lower() not in STOP_WORDS]
