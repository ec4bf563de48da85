"""What a model's answer must be to count as a rewrite, as far as that can be told without another model.

The reasons are part of what a model reads when it is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from vcs_experiments.rewriting.kinds import Kind
from vcs_runtime.errors import TextError
from vcs_runtime.text.cleaning import check_text, plain_line_ends
from vcs_runtime.text.markup import remove_markup

Sentences = Callable[[str], int | None]
"""Counts the sentences of a text; None where that cannot be told."""

# A line of an answer that begins so is about the description, or about the model.
_REMARK = re.compile(
    r"(?:sure|certainly|of course|okay|ok)[,!.:]"
    r"|(?:here(?:['’]s| is| are)|below (?:is|are)|the following (?:is|are)"
    r"|as an? (?:ai|assistant|language model)|i(?:['’]m| am) (?:sorry|unable|not able)"
    r"|i (?:cannot|can['’]t|apologi[sz]e)|i hope (?:this|that|it)|let me know|feel free to|would you like)\b"
    r"|\(?(?:please )?note(?: that\b|:)"
    r"|(?:the )?(?:\w+ )?(?:rewrit(?:e|ten)|revised|reword(?:ing|ed)|paraphrased?|summary|description|version"
    r"|text|answer|output|result)(?: \w+){0,2}:",
    re.IGNORECASE,
)
_QUOTES = {'"': '"', "“": "”", "«": "»", "„": "“"}
_ENDS = frozenset(".!?…。！？")
_AFTER_END = "\"'”’»)]"
_LAYOUT = ("markdown", "list-numbers")


def checked(answer: str, text: str, kind: Kind, sentences: Sentences) -> str:
    """Return the rewrite in an answer, with single spaces; the message of a TextError is the reason alone."""
    laid_out = remove_markup(plain_line_ends(answer), ("think",)).strip()
    rewrite = " ".join(laid_out.split())
    try:
        check_text(rewrite, "answer")
    except TextError:
        raise TextError("it is empty or has characters that no text has") from None
    for line in laid_out.splitlines():
        remark = _REMARK.match(line.strip())
        if remark and not text.strip().lower().startswith(remark[0].lower()):
            raise TextError(f"it has a remark beside the description ({line.strip()[:40]!r})")
    if remove_markup(laid_out, _LAYOUT) != laid_out and remove_markup(text, _LAYOUT) == text:
        raise TextError("it has marks of a layout, such as a list, a heading or stars, instead of plain text")
    if _QUOTES.get(rewrite[0]) == rewrite[-1] and text.strip()[0] != rewrite[0]:
        raise TextError("it stands in quotation marks")
    if _ends(text) and not _ends(rewrite):
        raise TextError("its last sentence has no end, as if it had been cut off")
    if _words(rewrite) == _words(text):
        raise TextError("it changes nothing: its words are those of the description")
    _check_length(rewrite, text, kind)
    _check_sentences(rewrite, text, kind, sentences)
    return rewrite


def _check_length(rewrite: str, text: str, kind: Kind) -> None:
    count, own = len(rewrite.split()), len(text.split())
    fewest, most = round(kind.fewest * own), round(kind.most * own)
    if not fewest <= count <= most:
        raise TextError(
            f"it has {count} words, and the description has {own}: {fewest} to {most} words were asked for"
        )


def _check_sentences(rewrite: str, text: str, kind: Kind, sentences: Sentences) -> None:
    if not kind.keeps_sentences:
        return
    own, count = sentences(text), sentences(rewrite)
    if own is not None and count is not None and abs(count - own) > max(1, own // 10):
        raise TextError(
            f"it has {count} sentences, and the description has {own}: each sentence was to keep its place"
        )


def _ends(text: str) -> bool:
    return text.rstrip().rstrip(_AFTER_END)[-1:] in _ENDS


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
