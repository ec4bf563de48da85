"""Time stamps as captioners write them: one table of styles, for reading and for cleaning."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

CLOCK: Final = r"(?:\d{1,3}:)?\d{1,2}:\d\d(?:[.,]\d{1,6})?"
_SECONDS = r"\d{1,6}(?:\.\d{1,6})?"
_EITHER = rf"{CLOCK}|{_SECONDS}"
_UNIT = r"(?: ?s(?:ec(?:ond)?s?)?\b)"
_DASH = r"[^\S\n]?(?:-->|[-–—~])[^\S\n]?"
_TO = rf"(?:{_DASH}|[^\S\n](?:to|and)[^\S\n])"
_LIST = rf"(?:{_TO}|, ?(?=\d+\.\d))"

# Where a segment may begin: at the start of a line, or where a sentence has ended.
_BEGINS = r"(?:^|(?<=[.!?:;…] )|(?<=[.!?…][\"'”’)] ))"
_LEAD = r"(?P<lead>[^\S\n]*+(?:[-*•>#]{1,6}[^\S\n]++)?)\*{0,3}"
# After a stamp without brackets comes a mark, the end of the line, or a capital; or at least no
# word that makes it a part of a sentence, as in "10 to 15 seconds later".
_MARK = (
    r"(?:\*{0,3}[^\S\n]*+[:,;|–—-]{1,3}(?!\d)\*{0,3}|\*{1,3}|(?=[^\S\n]*+$)"
    r"|(?=[^\S\n]++[\"'“‘(\[*]?(?-i:[^\W\d_a-z])))"
)
_JOINS = r"(?:is|are|was|were|has|had|will|later|of|on|in|and|or|every|each|before|after|long)\b"
_WORD = rf"(?:{_MARK}|(?=[^\S\n]++(?!{_JOINS})[^\W\d]))"

#: Styles that stand anywhere, with start and end as their groups.
ENCLOSED: Final = {
    # A cue of SRT or WebVTT, whose number stands on the line before it.
    "cues": rf"^(?:\d{{1,6}}[^\S\n]*\n)?[^\S\n]*({CLOCK}) ?--> ?({CLOCK})(?:[^\S\n][^\n]*)?$",
    "[0:01-0:02]": rf"\[({CLOCK})s?{_LIST}({CLOCK})s?\]:?",
    "[1-2]": rf"\[({_SECONDS}){_UNIT}?{_LIST}({_SECONDS}){_UNIT}?\]:?",
    # Numbers in parentheses may be years.
    "(0:01-0:02)": rf"\(({CLOCK})s?{_LIST}({CLOCK})s?\):?",
    "<1-2>": rf"<({_EITHER}){_UNIT}?{_LIST}({_EITHER}){_UNIT}?>:?",
}
#: Styles without brackets, which stand where a segment may begin.
BARE: Final = {
    "0:01-0:02": rf"({CLOCK})(?:{_DASH}({CLOCK}){_WORD}|{_TO}({CLOCK}){_MARK})",
    "1-2 seconds": rf"({_SECONDS}){_UNIT}?{_TO}({_SECONDS}){_UNIT}{_MARK}",
    "from 1s to 2s": (
        rf"(?:from|between)[^\S\n]({_EITHER}){_UNIT}?{_TO}"
        rf"(?:({_SECONDS}){_UNIT}{_WORD}|({CLOCK}){_MARK})"
    ),
}


def at_beginning(*bodies: str) -> str:
    """Return a pattern of stamps where a segment may begin; the group `lead` is a list mark."""
    return rf"{_BEGINS}{_LEAD}(?:{'|'.join(bodies)})"


def without_groups(pattern: str) -> str:
    """Return a pattern whose unnamed groups capture nothing."""
    return re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern)


_FLAGS = re.IGNORECASE | re.MULTILINE
_CUE = rf"^(?:\d{{1,6}}[^\S\n]?\n)?{CLOCK} ?--> ?{CLOCK}(?:[^\S\n]++[a-z]++:[^\s]++)*+[^\S\n]*+$"
_OF_CLOCK = rf"[\[(]{CLOCK}s?(?:{_LIST}{CLOCK}s?)?[\])]:?"
_OF_SECONDS = rf"(?:{_SECONDS}){_UNIT}?{_LIST}(?:{_SECONDS})"
#: Stamps between brackets, which are unmistakable anywhere.
STAMP: Final = re.compile(
    rf"{_CUE}|{_OF_CLOCK}|\[{_OF_SECONDS}{_UNIT}\]:?|\[(?:{_SECONDS}){_UNIT}\]:?"
    rf"|{without_groups(ENCLOSED['<1-2>'])}|<(?:{CLOCK}|{_SECONDS}{_UNIT})>:?",
    _FLAGS,
)
#: Stamps without an end, which stand where a segment may begin.
STARTS: Final = {
    "[0:01]": rf"[\[(<]({CLOCK})s?[\])>]:?",
    "[1s]": rf"[\[(<]({_SECONDS}){_UNIT}[\])>]:?|\[(\d{{1,6}}\.\d{{1,6}})\]:?",
    "0:01": rf"(?:at[^\S\n])?({CLOCK}){_MARK}",
    "1s:": (
        rf"({_SECONDS}){_UNIT}\*{{0,3}}(?:[:|]|[^\S\n][–—-](?=[^\S\n]))\*{{0,3}}"
        rf"|at[^\S\n](?:the[^\S\n])?({_SECONDS})(?:{_UNIT}|-second[^\S\n]mark),"
    ),
}
#: Stamps that count only where a segment may begin.
LABEL: Final = re.compile(
    at_beginning(
        *map(without_groups, BARE.values()),
        rf"\[{_OF_SECONDS}\]:?|\({_OF_SECONDS}{_UNIT}\):?|[\[(]{_OF_SECONDS}{_UNIT}[\])]:?",
        *map(without_groups, STARTS.values()),
    ),
    _FLAGS,
)
#: Numbers of frames and the like, where a segment may begin.
FRAME: Final = re.compile(
    at_beginning(
        r"[\[(<]?(?:frames?|clip|segment|shot|scene)[^\S\n]?#?"
        r"\d{1,6}(?:[^\S\n]?[-–][^\S\n]?\d{1,6})?"
        r"(?:[^\S\n]?[\[(][^()\[\]\n]{1,40}[\])])?[\])>]?\*{0,3}"
        r"(?:[^\S\n]?[:|–—]|[^\S\n]-(?=[^\S\n]))\*{0,3}"
    ),
    _FLAGS,
)
_LETTERS = r"[^\W\d_]"
# One or two numbers with their words and marks, before a capital.
_NUMBERED = re.compile(
    rf"{_BEGINS}[^\S\n]*+((?!(?:in|on|by)\b)(?:[^\w\n]{{0,3}}{_LETTERS}{{0,10}}[^\w\n]{{0,2}}"
    rf"\d(?:[\d.,:;]|[hm]\d){{0,12}}[^\w\n]{{0,3}}{_LETTERS}{{0,7}}[^\w\n]{{0,4}}){{1,2}}?)"
    r"(?=(?-i:[A-Z])(?-i:[a-z ]))",
    _FLAGS,
)
_BEGINNING = re.compile(r"^(?=\S)|(?<=[.!?…] )", re.MULTILINE)
_DIGITS = re.compile(r"\d+")


def without_repeated_labels(text: str) -> tuple[str, str]:
    """Return a text without labels with numbers, and the first of them, or "".

    Such labels begin at least two sentences, and a third of all, and differ in their digits alone.
    """
    labels = _NUMBERED.findall(text)
    counts = Counter(_DIGITS.sub("0", label) for label in labels)
    [(shape, count)] = counts.most_common(1) or [("", 0)]
    # Years and numbers stand at the beginning of lines by chance, too.
    few = count < 2 or 3 * count < len(_BEGINNING.findall(text))
    if few or shape.strip() in ("0.", "0)", "0,"):
        return text, ""
    found = {label for label in labels if _DIGITS.sub("0", label) == shape}
    cleaned = _NUMBERED.sub(lambda each: "\n\n" if each[1] in found else each[0], text)
    return cleaned, next(label for label in labels if label in found)
