"""Cleaning of model output, from reasoning to time stamps (docs/reference/vcs.md, section 1).

Every pattern is anchored or has possessive, disjoint parts, so that hostile texts take linear time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from vcs_runtime.text import chat
from vcs_runtime.text.marks import BULLETS, ITEM, LETTER, ROMAN
from vcs_runtime.text.stamps import FRAME, LABEL, STAMP, without_groups, without_repeated_labels
from vcs_runtime.text.times import TimedText

#: What can be cleaned away, in the order of signatures.
CLEANINGS: Final = ("markdown", "think", "list-numbers", "time-stamps", "chat")

_THINK = re.compile(
    r"<(/?)(think|thinking|thought|reasoning|reflection)>|◁(/?)(think)▷|\[(/?)((?-i:THINK))\]",
    re.IGNORECASE,
)

# The first characters of lines that are not running text.
_LINE_MARK = re.compile(rf"[_|`\[]|{ITEM}")
_HEADING = re.compile(r"(?:#{1,6}(?:\s++|$))++")
_CLOSING_MARKS = re.compile(r"(?<![#\s])\s++#++$")
_HTML = re.compile(r"</?(?:p|br|li|ul|ol|div|h[1-6]) ?/?>", re.IGNORECASE)
_MARKDOWN = re.compile(
    rf"^(?:#{{1,6}} |{ITEM} |`{{3}})|\*\*\S|{_HTML.pattern}", re.MULTILINE | re.IGNORECASE
)
_DIGIT = re.compile(r"\d")
_TITLE = re.compile(r"(\*\*|__)(?=\S)[^*_]++\1:?")
_BULLET = re.compile(
    rf"(?:[{BULLETS}]\s*+|(?:[-*+~]|[-=]>)(?:\s++|$))++(?:\[[ x]\]\s++)?", re.IGNORECASE
)
_FENCE = re.compile(r"`{3,}+\s*+[\w+#.-]*+|~{3,}+")
_LINK_TARGET = re.compile(r"\[[^\[\]]++\]:\s++<?https?://")
_INLINE = (
    # Links and images; an address may hold pairs of parentheses.
    (re.compile(r"!?\[([^\[\]\n]*+)\]\((?:[^()\n]++|\([^()\n]*+\))*+\)"), r"\1"),
    (re.compile(r"(`{1,3})([^`\n]++)\1"), r"\2"),
    (re.compile(r"~~(?=\S)([^~\n]++)(?<=\S)~~"), r"\1"),
    (re.compile(r"(\*{2,3})(?=\S)([^*\n]++)(?<=\S)\1"), r"\2"),
    # A single star or line inside a word is no emphasis: 2*3, snake_case.
    (re.compile(r"(?<!\w)\*(?=\S)([^*\n]++)(?<=\S)\*(?!\w)"), r"\1"),
    (re.compile(r"(?<!\w)(_{1,3})(?=\S)([^_\n]++)(?<=\S)\1(?!\w)"), r"\2"),
    # One half of a pair, in an answer that was cut off.
    (re.compile(r"(?<![\w*])\*{2,}+|(?<!\*)\*{2,}+(?!\w)|`{3,}+"), ""),
)

_NUMBER = (
    r"(?:[(\[](\d{1,3})[)\]]:?|#?(\d{1,3})(?:[.):]|[^\S\n]-(?=[^\S\n]))"
    r"|(?:step|event|part|action|moment) #?(\d{1,3})[.:)])"
)
_FURTHER = without_groups(_NUMBER)
_COUNTED = rf"(?:{_NUMBER}|[(\[]?({LETTER})[.)\]]|[(\[]?({ROMAN})[.)\]])"
_BLANKS = r"(?:[^\S\n]++|$|(?<=\d[.)])(?=(?-i:[A-Z])))"
_NUMBERS = rf"{_COUNTED}{_BLANKS}(?:{_FURTHER}{_BLANKS})*+"
_ENDS = '.!?:;…。！？：；"”)'
_AT_START = re.compile(rf"[^\S\n]*+{_NUMBERS}", re.IGNORECASE)
# After a sentence's end; or in parentheses, before a capital.
_AFTER = rf"(?:(?<=[{_ENDS}])|(?<=\S)(?=[^\S\n]++\(?\w{{1,4}}\)[^\S\n]++(?-i:[A-Z])))[^\S\n]++"
_WITHIN = re.compile(rf"{_AFTER}{_NUMBERS}", re.IGNORECASE | re.MULTILINE)
_ANYWHERE = re.compile(rf"(?:^[^\S\n]*+|{_AFTER}){_NUMBERS}", re.IGNORECASE | re.MULTILINE)
# What the mark of a second item holds: the number 2 in some script, b or ii.
_SECOND = re.compile(r"2|(?![0-9])\d|[bi][.)\]]", re.IGNORECASE)
_DIGITS = (1, 2, 3)  # the groups of `_COUNTED` that are no letters
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x")
# A word that was cut at the end of a line.
_CUT = re.compile(r"-\n(?<=[^\W\d_]{2}-\n)[^\S\n]*+(?=[a-z])")

# One cleaning may reveal another, as in nested marks. A text that is still not clean is no text of
# a model: it loses every character that these patterns need.
_ROUNDS = 8
_MARKS = {
    "markdown": re.compile(rf"[-*_`~#|<>\[\]+={BULLETS}]"),
    "think": re.compile(r"[<◁\[]"),
    "list-numbers": re.compile(r"[\d.)\]]"),
    "time-stamps": re.compile(r"\d"),
    "chat": re.compile(r"[<\[{:!,.?]"),
}


class Kind(NamedTuple):
    """A kind of markup that is probably not meant to be scored."""

    cleaning: str  # of `CLEANINGS`: what removes it
    words: str  # as in "3 of 10 texts, with Markdown"
    find: Callable[[str], str | None]  # the first example in a text


def _first(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
    """Return a function that returns the first match of a pattern in a text."""

    def find(text: str) -> str | None:
        match = pattern.search(text)
        return match[0] if match else None

    return find


def _first_stamp(text: str) -> str | None:
    match = _DIGIT.search(text) and (STAMP.search(text) or LABEL.search(text))
    return match[0] if match else None


def _first_of_list(text: str) -> str | None:
    """Return the number of a list's first item, if its second follows."""
    return next(iter(_lists(text).values()), None)


def _lists(text: str) -> dict[int | None, str]:
    """Return the first mark of each style of list whose numbers go on from 1 to 2."""
    found = {}
    last: dict[int | None, re.Match[str]] = {}
    for match in _ANYWHERE.finditer(text) if _SECOND.search(text) else ():
        style = match.lastindex
        if style in last and (_first_number(last[style]), _first_number(match)) == (1, 2):
            found[style] = last[style][0]
        last[style] = match
    return found


def _first_label(text: str) -> str | None:
    """Return a label as of frames, or one of other labels that are neither stamps nor a list."""
    if not _DIGIT.search(text):
        return None
    if frame := FRAME.search(text):
        return frame[0]
    label = without_repeated_labels(text)[1]
    if not label or _first_stamp(text) or _first_of_list(text):
        return None
    return label


def _first_turn(text: str) -> str | None:
    match = chat.first_turn(text)
    return match[0] if match else None


def _courtesy(text: str) -> str | None:
    match = chat.OPENING.match(text) or chat.closing(text)
    return match[0] if match else None


def _first_markdown(text: str) -> str | None:
    match = _MARKDOWN.search(text)
    return text[match.start() :].partition("\n")[0] if match else None


def _first_think(text: str) -> str | None:
    return next((tag[0] for tag in _think_tags(text)), None)


STAMPS: Final = Kind("time-stamps", "with time stamps", _first_stamp)
#: What is looked for, in the order of notices.
KINDS: Final = (
    STAMPS,
    Kind("list-numbers", "with numbers of a list", _first_of_list),
    Kind("time-stamps", "with numbered labels", _first_label),
    Kind("think", "with reasoning", _first_think),
    Kind("markdown", "with Markdown", _first_markdown),
    Kind("markdown", "with words cut at line ends", _first(_CUT)),
    Kind("chat", "with special tokens", _first(chat.TOKEN)),
    Kind("chat", "with turns of a chat", _first_turn),
    Kind("chat", "with a polite opening or end", _courtesy),
    Kind("chat", "with answer tags", _first(chat.ANSWER)),
    Kind("chat", "with written line ends", _first(chat.LINE_END)),
    Kind("chat", "in JSON", lambda text: None if chat.json_text(text) is None else text),
)
_SHOWN = 24  # characters of an example


class MarkupCounts:
    """Counts of texts with each kind of markup, and an example of each."""

    def __init__(self) -> None:
        self.total = 0
        self.timed = 0  # texts of timed segments
        self.found: Counter[Kind] = Counter()
        self._examples: dict[Kind, str] = {}

    def add(self, text: object) -> None:
        """Count a text; what is not a text counts in `total` alone."""
        self.total += 1
        if isinstance(text, TimedText):
            self.timed += 1
            text = text.plain
        if not isinstance(text, str):
            return
        for kind in KINDS:
            if example := kind.find(text):
                self.found[kind] += 1
                example = " ".join(example.split())
                if len(example) > _SHOWN:
                    example = f"{example[:_SHOWN]}..."
                self._examples.setdefault(kind, example)

    def unused(self, used: Collection[str]) -> list[str]:
        """Return the cleanings that are not used, and would remove something."""
        found = dict.fromkeys(kind.cleaning for kind in KINDS if self.found[kind])
        return [name for name in found if name not in used]

    def shares(self, cleanings: Collection[str]) -> str:
        """Return the counts and examples of what some cleanings would remove."""
        shares = []
        for kind in KINDS:
            if self.found[kind] and kind.cleaning in cleanings:
                share = f"{self.found[kind]} of {self.total} {kind.words}"
                shares.append(f"{share} ({self._examples[kind]!r})")
        return ", ".join(shares)


def remove_markup(text: str, cleanings: Collection[str]) -> str:
    """Remove reasoning, what chats put around an answer, Markdown, list numbers and time stamps.

    `cleanings` names what is removed. The result may be "".
    """
    for _ in range(_ROUNDS):
        cleaned = text
        if "think" in cleanings:
            cleaned = _without_think(cleaned)
        if "chat" in cleanings:
            cleaned = chat.without_chat(cleaned)
        if "markdown" in cleanings:
            cleaned = _without_markdown(cleaned)
        if "list-numbers" in cleanings:
            cleaned = _without_list_numbers(cleaned)
        if "time-stamps" in cleanings:
            # A segment begins at these, so a sentence has ended.
            cleaned = FRAME.sub(r"\n\n\g<lead>", cleaned)
            cleaned = STAMP.sub("", cleaned)
            cleaned = LABEL.sub(r"\n\n\g<lead>", cleaned)
            cleaned, _ = without_repeated_labels(cleaned)
        if cleaned == text:
            return text
        text = cleaned.strip()
    for name in cleanings:
        text = _MARKS[name].sub("", text)
    return text.strip()


def _think_tags(text: str) -> Iterator[re.Match[str]]:
    """Yield the tags of reasoning. Names other than "think" need a closing tag in the text."""
    if "<" not in text and "◁" not in text and "[" not in text:
        return
    closed = {name.lower() for name in re.findall(r"</(\w{5,10})>", text)}
    for tag in _THINK.finditer(text):
        name = next(filter(None, tag.groups()[1::2])).lower()
        if name == "think" or name in closed:
            yield tag


def _without_think(text: str) -> str:
    """Keep the text outside `<think>` and `</think>`; either tag may be missing.

    Text after an opening tag and text before a closing tag are removed.
    """
    pieces: list[str] = []
    start, opened = 0, False
    for tag in _think_tags(text):
        closes = "/" in tag[0]
        if not closes and not opened:
            pieces.append(text[start : tag.start()])
        start, opened = tag.end(), not closes
    if not opened:
        pieces.append(text[start:])
    return "\n".join(pieces)


class _Lines:
    """Lines with empty ones around headings and before items, because sentences end there."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._apart = False

    def add(self, line: str, before: bool = False, after: bool = False) -> None:
        """Add a line, apart from the lines before or after it."""
        if (before or self._apart) and self._lines and self._lines[-1].strip() and line.strip():
            self._lines.append("")
        self._lines.append(line)
        self._apart = after

    def text(self) -> str:
        """Return all lines."""
        return "\n".join(self._lines)


def _without_markdown(text: str) -> str:
    text = _CUT.sub("", _HTML.sub("\n\n", text))
    out = _Lines()
    for line in text.split("\n"):
        bare = line.strip()
        if not _LINE_MARK.match(bare):
            out.add(line)
        elif _is_rule(bare) or _FENCE.fullmatch(bare) or _LINK_TARGET.match(bare):
            out.add("")
        elif bare.startswith("|"):
            cells = [cell.strip() for cell in bare.strip("|").split("|")]
            is_separator = not any(cell.strip(":-") for cell in cells)
            row = "" if is_separator else ", ".join(filter(None, cells))
            out.add(row, before=True, after=True)
        elif bare.startswith(">"):
            out.add(bare.lstrip("> \t"))
        elif heading := _HEADING.match(bare):
            out.add(_CLOSING_MARKS.sub("", bare[heading.end() :]), before=True, after=True)
        elif bullet := _BULLET.match(bare):
            out.add(bare[bullet.end() :], before=True)
        else:
            title = _TITLE.fullmatch(bare) is not None
            out.add(line, before=title, after=title)
    text = out.text()
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text


def _is_rule(bare: str) -> bool:
    """Whether a line is a horizontal rule, or the line under a heading."""
    if bare[:1] not in ("-", "*", "_", "="):
        return False
    marks = "".join(bare.split())
    return len(marks) > 2 and len(set(marks)) == 1


def _without_list_numbers(text: str) -> str:
    """Remove the numbers of lists, and put each item into a separate paragraph.

    A line that begins with a number may be a wrapped sentence. So the number counts where a
    sentence has ended, or if it is 1 or the next one. Within a line it counts after the end of a
    sentence, in a text whose numbers go on from 1 to 2.
    """
    styles = _lists(text).keys()
    text = _WITHIN.sub(lambda each: "\n\n" if each.lastindex in styles else each[0], text)
    out = _Lines()
    last, ended = 0, True
    for line in text.split("\n"):
        match = _AT_START.match(line)
        number = _first_number(match) if match else 0
        counts = match and (match.lastindex in styles or match.lastindex in _DIGITS)
        if match and counts and (ended or number in (1, last + 1)):
            line, last = line[match.end() :], number
            out.add(line, before=True)
        else:
            out.add(line)
        ended = line.rstrip()[-1:] in _ENDS  # an empty line ends a sentence, too
    return out.text()


def _first_number(match: re.Match[str]) -> int:
    value = match[match.lastindex or 0].lower()
    if value.isdigit():
        return int(value)
    return _ROMAN.index(value) + 1 if value in _ROMAN else ord(value[0]) - ord("a") + 1
