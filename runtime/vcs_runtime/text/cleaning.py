"""Preparation of texts for comparison: validation, cleaning, chunks, and words of short texts.

Contractions are written out as by the PyPI package `contractions`, which the authors use, where
they have an apostrophe; a parity test checks it. That package installs a top-level package `data`,
and also rewrites words without an apostrophe ("shell" becomes "she will"). A possessive ("the man's
hat") is not changed.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate

from vcs_runtime.errors import TextError

# NLTK's 179 English stop words (docs/reference/vcs.md, section 10), which its documentation credits
# to Martin Porter and others. Punctuation is deleted before words are looked up: of "don't" the
# halves are listed.
STOP_WORDS = frozenset(
    """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she
    her hers herself it its itself they them their theirs themselves what which who whom this that
    these those am is are was were be been being have has had having do does did doing a an the and
    but if or because as until while of at by for with about against between into through during
    before after above below to from up down in out on off over under again further then once here
    there when where why how all any both each few more most other some such no nor not only own
    same so than too very s t can will just don should now d ll m o re ve y ain aren couldn didn
    doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
    """.split()
)

# A description has some thousand characters. A million (about 200,000 words) is a file passed by
# mistake, and its similarity matrix would fill the memory.
MAX_CHARACTERS = 1_000_000

_PUNCTUATION = string.punctuation.encode()

# What VLMEvalKit, CogVLM's wrapper in it, FastChat, clients of servers and Python write in place
# of an answer.
_FAILED = re.compile(
    r"Failed to obtain answer(?: via API|\s*\.?\Z)"
    r"|Video .{0,4096} can not load, check the source\Z"
    r"|\[?(?:API |Server |HTTP )?Error(?: code)?\]?:? '?[45]\d\d\b|\$ERROR\$"
    r"|Traceback \(most recent call last\):|(?:torch[\w.]{0,30}: )?CUDA out of memory"
    r"|\*{0,2}NETWORK ERROR DUE TO HIGH TRAFFIC",
    re.DOTALL,
)


def check_text(text: object, name: str) -> str:
    """Return a text that can be scored; raises TextError, which starts with `name`."""
    if text is None:
        raise TextError(f"{name}: the text is null")
    if not isinstance(text, str):
        hint = ""
        if isinstance(text, dict) and text:
            hint = f" (a path such as KEY.{[*text][-1]} names a text in it)"
        raise TextError(f"{name}: the text must be a string, not {type(text).__name__}{hint}")
    if len(text) > MAX_CHARACTERS:
        raise TextError(
            f"{name}: the text has {len(text):,} characters, but at most {MAX_CHARACTERS:,} are"
            " allowed"
        )
    if (at := text.find("\0")) >= 0:
        raise TextError(f"{name}: the text holds a NUL character (at position {at})")
    _refuse_surrogates(text, name)
    # Blanks, control and zero-width characters alone count as empty, too.
    if not any(map(str.isalnum, text)) and all(unicodedata.category(c)[0] in "CZ" for c in text):
        raise TextError(f"{name}: the text is empty")
    if failure := _FAILED.match(text.strip()):
        raise TextError(f"{name}: the text is a toolkit's error message: {failure[0]!r}")
    return text


def plain_line_ends(text: str) -> str:
    """Convert line ends CRLF and CR to LF, so the score does not depend on the file's system."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def check_texts(texts: Sequence[str]) -> None:
    """Check texts for a model; empty texts are allowed.

    Raises TypeError for one string instead of a sequence. Raises TextError for an item that is not
    a string or holds a lone surrogate; the message names it, such as `texts[3]`.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of strings, not one string")
    for i, text in enumerate(texts):
        check_string(text, f"texts[{i}]")


def check_string(text: object, name: str) -> None:
    """Raise TextError if `text` is not a string or contains a lone surrogate.

    The message starts with `name`.
    """
    if not isinstance(text, str):
        raise TextError(f"{name}: the text must be a string, not {type(text).__name__}")
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
    """Delete only the characters of `string.punctuation` (docs/reference/vcs.md, section 1)."""
    # Bytes are some ten times faster than `str.translate`, and in UTF-8 no other character has such
    # a byte.
    data = text.encode("utf-8", "surrogatepass")
    return data.translate(None, _PUNCTUATION).decode("utf-8", "surrogatepass")


def clean_segments(segments: Sequence[str]) -> list[str]:
    """Strip punctuation and white space from each segment, and drop empty segments."""
    stripped = strip_punctuation("\0".join(segments)).split("\0")
    if len(stripped) > len(segments):  # a caller's segmenter may add such a character
        stripped = [*map(strip_punctuation, segments)]
    return [piece for segment in stripped if (piece := segment.strip())]


# A list mark, or a label such as "Scene 1", which a segmenter may cut from its sentence.
_FRAGMENT = re.compile(r"[\W\d_]*+(?:[A-Za-z]{1,10}\W{0,2}\d{1,3}|[A-Za-z])?[\W\d_]*+")


def without_fragments(segments: Sequence[str]) -> list[str]:
    """Join each segment that is a mark, a number or a label to the next one, or the last."""
    sentences: list[str] = []
    waiting: list[str] = []
    for segment in segments:
        waiting.append(segment)
        if not _FRAGMENT.fullmatch(segment):
            sentences.append(" ".join(waiting))
            waiting = []
    if waiting:
        sentences[-1:] = [" ".join([*sentences[-1:], *waiting])]
    return sentences


# Marks before the first letter of a word, or those that open something within it.
_OPENING = re.compile(r"^\W+$|[(\[{<]\W*$")
# Marks alone that belong to what follows them, such as those of lists and headings.
_LEADING = re.compile(r"[-*#$(\[{<`@&+~>|]+")


def as_written(text: str, chunks: Sequence[str]) -> list[str]:
    """Return the part of a text from which each chunk was made, in one line.

    The chunks themselves if they are not all of the text's letters in order, as with words alone.
    """
    letters = "".join("".join(chunks).split())
    parts: list[list[str]] = [[] for _ in chunks]
    ends = list(accumulate(len("".join(chunk.split())) for chunk in chunks))
    done = number = 0
    compared = ""
    for token in text.split() if chunks else ():
        own = "".join(strip_punctuation(expand_contractions(token)).split())
        compared += own
        # A word with a contraction is in one sentence; in others a sentence may end.
        is_plain = len(own) == len(strip_punctuation(token))
        part = ""
        for piece in token if is_plain else [token]:
            count = len(own) if piece == token else int(piece not in string.punctuation)
            if count and done >= ends[number] and number + 1 < len(ends):
                # What opens the next sentence, such as a quotation mark, belongs to it.
                opening = _OPENING.search(part)
                start = opening.start() if opening else len(part)
                parts[number].append(part[:start])
                part = part[start:]
                number += 1
            part += piece
            done += count
        between = done >= ends[number] and number + 1 < len(ends)
        is_next = between and (_LEADING.fullmatch(token) or parts[number + 1])
        parts[number + 1 if is_next else number].append(part)
        if done > ends[number]:  # a sentence ends within a contraction
            return list(chunks)
    written = [" ".join(filter(None, part)) for part in parts]
    return written if compared == letters and all(written) else list(chunks)


def join_chunks(segments: Sequence[str], chunk_size: int) -> list[str]:
    """Join every `chunk_size` consecutive segments with a space; the last chunk may be shorter."""
    if chunk_size == 1:
        return list(segments)
    return [" ".join(segments[i : i + chunk_size]) for i in range(0, len(segments), chunk_size)]


def short_words(text: str) -> list[str]:
    """Return the words of a short text, without stop words (docs/reference/vcs.md, section 10)."""
    return [word for word in strip_punctuation(text).split() if word.lower() not in STOP_WORDS]


# Contractions whose expansion is not stem + suffix.
_IRREGULAR = {
    "ain't": "are not",
    "can't": "cannot",
    "won't": "will not",
    "shan't": "shall not",
    "let's": "let us",
    "y'all": "you all",
    "ma'am": "madam",
    "o'clock": "of the clock",
    "ne'er": "never",
    "e'er": "ever",
    "o'er": "over",
    "'tis": "it is",
    "'twas": "it was",
    "'cause": "because",
    "'em": "them",
    "how'd": "how did",
    "what'd": "what did",
    "where'd": "where did",
    "why'd": "why did",
    "amn't": "am not",
    "daren't": "dare not",
}
# + n't.
_NEGATED = "are|could|did|do|does|had|has|have|is|may|might|must|need|ought|should|was|were|would"
# Words after which 's is "is"; after any other word it may be a possessive.
_IS = (
    "he|she|it|that|this|there|here|what|when|where|which|who|why|how"
    "|everyone|somebody|someone|something|so"
)
_SUFFIXES = {"'re": " are", "'ve": " have", "'ll": " will", "'d": " would"}

_PATTERN = re.compile(
    r"(?<!\w)(?<!\w')(?:"
    rf"(?P<irregular>{'|'.join(sorted(_IRREGULAR, key=len, reverse=True))})"
    rf"|(?P<negated>{_NEGATED})n't"
    r"|(?P<am>i)'m"
    rf"|(?P<is>{_IS})'s"
    r"|(?P<stem>[a-z]+)(?='(?:re|ve|ll|d)(?![\w]))"
    r")(?P<suffixes>(?:'(?:re|ve|ll|d))*)(?!\w)",
    re.IGNORECASE,
)
# The apostrophe of a possessive, which most are: no word with "is" after it ends with these two
# characters.
_ENDS = sorted({word[-2:] for word in (*_IS.split("|"), "let")})
_POSSESSIVE = re.compile(rf"(?<=[!-~][!-~])(?<!{'|'.join(_ENDS)})'s(?![\w'])", re.IGNORECASE)


def expand_contractions(text: str) -> str:
    """Write out the contractions in a text.

    Capitals are preserved: "It's" becomes "It is", and "IT'S" becomes "IT IS". Typographic
    apostrophes count as plain ones. No other character changes.
    """
    if "'" not in text and "’" not in text:
        return text
    plain = text.replace("’", "'")
    parts: list[str] = []
    end = 0
    for span in _words_with_apostrophes(plain):
        for match in _PATTERN.finditer(plain, *span):
            parts += [text[end : match.start()], _expand(match)]
            end = match.end()
    return "".join(parts) + text[end:]


def _words_with_apostrophes(text: str) -> Iterator[tuple[int, int]]:
    """Yield where words with apostrophes are: every match of `_PATTERN` lies inside one of them.

    Searching the whole text for the pattern would take longer than all other steps before its
    sentences are split.
    """
    end = 0
    while (at := text.find("'", end)) >= 0:
        if _POSSESSIVE.match(text, at):
            end = at + 1
            continue
        start = at
        while start > end and text[start - 1].isalnum():
            start -= 1
        end = at
        while end < len(text) and (text[end].isalnum() or text[end] in "_'"):
            end += 1
        yield start, end


def _expand(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if irregular := groups["irregular"]:
        expanded = _IRREGULAR[irregular.casefold()]  # the pattern takes "ſ" for "s"
    elif negated := groups["negated"]:
        expanded = negated + " not"
    elif groups["am"]:
        expanded = groups["am"] + " am"
    elif groups["is"]:
        expanded = groups["is"] + " is"
    else:
        expanded = groups["stem"]
    expanded += "".join(
        _SUFFIXES[suffix.lower()] for suffix in re.findall(r"'[a-z]+", groups["suffixes"], re.I)
    )
    written = match.group()
    letters = [c for c in written if c.isalpha()]
    if len(letters) > 2 and all(c.isupper() for c in letters):
        return expanded.upper()
    return expanded[0].upper() + expanded[1:] if letters[0].isupper() else expanded
