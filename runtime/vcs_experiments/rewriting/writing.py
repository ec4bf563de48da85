"""A job in which a model rewrites descriptions: one line for each description and kind, resumable.

The reasons why an answer cannot be used are part of the prompt when a model is asked again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from vcs_experiments.datasets.corruptions import Rewrite
from vcs_experiments.datasets.texts import Problems
from vcs_runtime._version import __version__
from vcs_runtime.errors import TextError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.resumable import (
    Items,
    check_signature,
    check_texts,
    hash_texts,
    run_resumable,
)
from vcs_runtime.text.cleaning import check_text, plain_line_ends
from vcs_runtime.text.markup import remove_markup
from vcs_runtime.util.progress import progress_bar
from vcs_runtime.util.reading import read_whole

Sentences = Callable[[str], int | None]
"""Counts the sentences of a text; None if they cannot be counted."""

# A line of an answer that begins so is about the description, or about the model.
_REMARK = re.compile(
    r"(?:sure|certainly|of course|okay|ok)[,!.:]"
    r"|(?:here(?:['’]s| is| are)|below (?:is|are)|the following (?:is|are)"
    r"|as an? (?:ai|assistant|language model)|i(?:['’]m| am) (?:sorry|unable|not able)"
    r"|i (?:cannot|can['’]t|apologi[sz]e)|i hope (?:this|that|it)|let me know|feel free to|would"
    r" you like)\b"
    r"|\(?(?:please )?note(?: that\b|:)"
    r"|(?:the )?(?:\w+"
    r" )?(?:rewrit(?:e|ten)|revised|reword(?:ing|ed)|paraphrased?|summary|description|version"
    r"|text|answer|output|result)(?: \w+){0,2}:",
    re.IGNORECASE,
)
_QUOTES = {'"': '"', "“": "”", "«": "»", "„": "“"}
_ENDS = frozenset(".!?…。！？")
_AFTER_END = "\"'”’»)]"
_LAYOUT = ("markdown", "list-numbers")


def checked(answer: str, text: str, kind: Kind, sentences: Sentences) -> str:
    """Return the rewrite in an answer, with single spaces.

    Raise TextError, whose message is the reason alone, if the answer is unusable.
    """
    laid_out = remove_markup(plain_line_ends(answer), ("think",)).strip()
    rewrite = " ".join(laid_out.split())
    try:
        check_text(rewrite, "answer")
    except TextError:
        raise TextError("it is empty or has control characters") from None
    for line in laid_out.splitlines():
        remark = _REMARK.match(line.strip())
        if remark and not text.strip().lower().startswith(remark[0].lower()):
            raise TextError(f"it has a remark about the description ({line.strip()[:40]!r})")
    if remove_markup(laid_out, _LAYOUT) != laid_out and remove_markup(text, _LAYOUT) == text:
        raise TextError("it is not plain text, but has a list, a heading or stars")
    if _QUOTES.get(rewrite[0]) == rewrite[-1] and text.strip()[0] != rewrite[0]:
        raise TextError("it is in quotation marks")
    if _ends(text) and not _ends(rewrite):
        raise TextError("its last sentence is not complete")
    if _words(rewrite) == _words(text):
        raise TextError("it has the same words as the description")
    _check_length(rewrite, text, kind)
    _check_sentences(rewrite, text, kind, sentences)
    return rewrite


def _check_length(rewrite: str, text: str, kind: Kind) -> None:
    count, original = len(rewrite.split()), len(text.split())
    fewest, most = round(kind.fewest * original), round(kind.most * original)
    if not fewest <= count <= most:
        raise TextError(
            f"it has {count} words, but must have {fewest} to {most}, because the description has"
            f" {original}"
        )


def _check_sentences(rewrite: str, text: str, kind: Kind, sentences: Sentences) -> None:
    if not kind.keeps_sentences:
        return
    original, count = sentences(text), sentences(rewrite)
    if original is None or count is None:
        return
    if abs(count - original) > max(1, original // 10):
        raise TextError(f"it has {count} sentences, but must have {original}, like the description")


def _ends(text: str) -> bool:
    return text.rstrip().rstrip(_AFTER_END)[-1:] in _ENDS


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


VERSION = "1"
_FOLDER = Path(__file__).with_name(f"prompts-{VERSION}")
_FIELD = re.compile(r"\{([a-z]+)\}")


def ask_for(kind: Kind, text: str) -> str:
    """Return the prompt that asks for a rewrite of a description."""
    aim = kind.aim or 0
    words = round(aim * len(text.split()))
    task = _filled(kind.task, words=str(words), parts=kind.parts)
    return _filled("rewrite", task=task, text=text)


def ask_again(kind: Kind, text: str, answer: str, reason: str) -> str:
    """Return the prompt after an answer that could not be used."""
    return f"{ask_for(kind, text)}\n\n{_filled('again', answer=answer, reason=reason)}"


@cache
def identity() -> str:
    """Return the version of the prompts and eight digits of the hash of all of them."""
    data = "\0".join(f"{name}\0{text}" for name, text in _texts().items())
    return f"{VERSION}@{hashlib.sha256(data.encode()).hexdigest()[:8]}"


def _filled(name: str, **fields: str) -> str:
    """Fill the fields of a prompt in one pass: a description may look as if it had fields."""
    return _FIELD.sub(lambda field: fields[field[1]], _texts()[name])


@cache
def _texts() -> dict[str, str]:
    files = sorted(_FOLDER.glob("*.txt"))
    return {path.stem: read_whole(path).decode().replace("\r\n", "\n").strip() for path in files}


WORDS = "Word-Level and Grammar"
LENGTH = "Brevity and Verbosity"
CONTENT = "Content Additions & Omissions"
DISTORTED = "Content Corruption"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of rewrite."""

    id: str
    name: str
    category: str
    valid: bool  # whether the rewrite tells the same story
    task: str  # the prompt that asks for it
    fewest: float  # words, as a multiple of the description's number of words
    most: float  # likewise
    aim: float | None = None  # likewise, as the prompt asks; None if it names none
    parts: str = ""  # of a description, which a distortion replaces
    keeps_sentences: bool = False  # a sentence for every sentence of the description


def _distortion(id_: str, name: str, parts: str) -> Kind:
    return Kind(
        id_, name, DISTORTED, False, "distortion", 0.7, 1.4, parts=parts, keeps_sentences=True
    )


KINDS = (
    Kind("1.1", "Synonym Substitution", WORDS, True, "lexical", 0.7, 1.4, keeps_sentences=True),
    Kind(
        "1.2",
        "Active <-> Passive Transformation",
        WORDS,
        True,
        "voice",
        0.8,
        1.5,
        keeps_sentences=True,
    ),
    # In the papers' Table 1, but not in the authors' files.
    Kind("1.3", "Paraphrasing", WORDS, True, "paraphrase", 0.6, 1.5),
    Kind("2.1", "Brevity - L1", LENGTH, True, "abstraction", 0.3, 0.8, 0.5),
    Kind("2.2", "Brevity - L2", LENGTH, True, "abstraction", 0.1, 0.65, 0.3),
    Kind("2.3", "Verbosity - L1", LENGTH, True, "elaboration", 1.05, 1.7, 1.3),
    Kind("2.4", "Verbosity - L2", LENGTH, True, "elaboration", 1.2, 2.0, 1.5),
    Kind("2.5", "Macro-Actions -> Micro-Actions", LENGTH, True, "decomposition", 0.9, 2.5),
    Kind("2.6", "Micro-Actions -> Macro-Actions", LENGTH, True, "aggregation", 0.2, 0.9),
    Kind(
        "3.1",
        "Insert Attributes, Emotions and Scene",
        CONTENT,
        True,
        "attributes",
        1.1,
        2.5,
        keeps_sentences=True,
    ),
    _distortion("4.1", "Subject Corruption", "the subject: who or what acts"),
    _distortion("4.2", "Object Corruption", "the object: what is acted upon"),
    _distortion("4.3", "Action Corruption", "the action: what the verb says"),
    _distortion(
        "4.7",
        "Subject-Action-Object Corruption",
        "the subject, the action and the object: who acts, what is done, and to what",
    ),
    Kind("5.1", "Summarization", "Summarization", False, "summary", 0.02, 0.45, 0.25),
)

#: The whole scene by another author (papers, Table 3): no case of `corruption`.
AUTHOR = Kind("0.0", "Author", "Authors", True, "author", 0.5, 2.0)


FILE = "rewrites.jsonl"
TRIES = 3
_LEAST_TOKENS = 2000
_TOKENS_A_WORD = 2
_SHOWN = 200  # characters of an answer in an error


class Writer(Protocol):
    """A language model that writes.

    Raises ModelError if it fails, and TextError if it refuses a prompt.
    """

    @property
    def fingerprint(self) -> str:
        """Identity of the model."""

    def write(self, parts: Sequence[str], max_tokens: int) -> str:
        """Return the answer to a user's turn by greedy decoding of at most `max_tokens` tokens."""


@dataclass(frozen=True, slots=True)
class _Task:
    scene: str
    kind: Kind
    text: str

    @property
    def id(self) -> str:
        return f"{self.scene}/{self.kind.name}"


@dataclass(frozen=True)
class Rewriter:
    """How descriptions are rewritten."""

    writer: Writer
    sentences: Sentences
    tries: int = TRIES

    @property
    def signature(self) -> str:
        """What a rewrite depends on besides the description."""
        return (
            f"rewrite|model:{self.writer.fingerprint}|prompts:{identity()}|decoding:greedy"
            f"|tries:{self.tries}|v:{__version__}"
        )

    def rewrite(self, text: str, kind: Kind) -> str:
        """Ask for a rewrite until the answer can be used; raise TextError after `tries` answers."""
        prompt = ask_for(kind, text)
        room = max(_LEAST_TOKENS, round(_TOKENS_A_WORD * kind.most * len(text.split())))
        for attempt in range(1, self.tries + 1):
            answer = self.writer.write([prompt], room)
            try:
                return checked(answer, text, kind, self.sentences)
            except TextError as error:
                if attempt == self.tries:
                    raise TextError(
                        f"none of {self.tries} answers can be used: {error}; the last answer is"
                        f" {answer[:_SHOWN]!r}"
                    ) from None
                prompt = ask_again(kind, text, answer, str(error))
        raise AssertionError("tries must be at least 1")

    def run(
        self,
        texts: Mapping[str, str],
        files: JobFiles,
        problems: Problems,
        kinds: Sequence[Kind] = KINDS,
    ) -> dict[str, list[Rewrite]]:
        """Rewrite descriptions in every kind, and append each rewrite to the output immediately."""
        tasks = []
        for scene, text in texts.items():
            tasks += [_Task(scene, kind, text) for kind in kinds]
        rewrites: dict[str, list[Rewrite]] = {scene: [] for scene in texts}

        def collect(task: _Task, record: Record, resumed: bool) -> None:
            if "error" in record:
                problems.add(f"{task.id}: {record['error']}")
            else:
                kind = task.kind
                rewrite = Rewrite(kind.category, kind.id, kind.name, record["text"], kind.valid)
                rewrites[task.scene].append(rewrite)

        def check(place: str, task: _Task, record: Record) -> None:
            check_signature(place, record.get("signature"), self.signature)
            check_texts(place, record, hash_texts(task.text))

        run_resumable(
            files,
            Items(tasks, len(tasks), attrgetter("id"), check),
            self._lines,
            collect,
            bar=partial(progress_bar, what="rewriting", unit="texts"),
        )
        return rewrites

    def _lines(self, tasks: Iterator[_Task]) -> Iterator[list[tuple[_Task, Record]]]:
        for task in tasks:
            record: Record = {
                "id": task.id,
                "signature": self.signature,
                "texts": hash_texts(task.text),
            }
            try:
                record["text"] = self.rewrite(task.text, task.kind)
            except TextError as error:
                record["error"] = str(error)
            yield [(task, record)]
