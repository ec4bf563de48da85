"""A job in which a model rewrites descriptions: one line for each description and kind, resumable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from vcs_experiments.datasets.corruptions import Rewrite
from vcs_experiments.datasets.texts import Problems
from vcs_experiments.rewriting.answers import Sentences, checked
from vcs_experiments.rewriting.kinds import KINDS, Kind
from vcs_experiments.rewriting.prompts import ask_again, ask_for, identity
from vcs_runtime._version import __version__
from vcs_runtime.errors import TextError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.resumable import Items, check_signature, check_texts, hash_texts, run_resumable
from vcs_runtime.util.progress import progress_bar

FILE = "rewrites.jsonl"
TRIES = 3
_LEAST_TOKENS = 2000
_TOKENS_A_WORD = 2
_SHOWN = 200  # characters of an answer in an error


class Writer(Protocol):
    """A language model that writes. Raises ModelError if it fails, and TextError if it refuses a prompt."""

    @property
    def fingerprint(self) -> str:
        """Identity of the model."""

    def write(self, parts: Sequence[str], max_tokens: int) -> str:
        """Return the answer to a user's turn: the likeliest token each time, at most `max_tokens`."""


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
            f"rewrite|model:{self.writer.fingerprint}|prompts:{identity()}|decoding:greedy|tries:{self.tries}"
            f"|v:{__version__}"
        )

    def rewrite(self, text: str, kind: Kind) -> str:
        """Ask for a rewrite until the answer can be used; raise TextError after `tries` answers."""
        prompt = ask_for(kind, text)
        room = max(_LEAST_TOKENS, round(_TOKENS_A_WORD * kind.most * len(text.split())))
        for left in reversed(range(self.tries)):
            answer = self.writer.write([prompt], room)
            try:
                return checked(answer, text, kind, self.sentences)
            except TextError as error:
                if not left:
                    raise TextError(
                        f"no answer of {self.tries} can be used: {error}; the last is {answer[:_SHOWN]!r}"
                    ) from None
                prompt = ask_again(kind, text, answer, str(error))
        raise AssertionError("tries is at least 1")

    def run(
        self, texts: Mapping[str, str], source: Path, folder: Path, problems: Problems, *,
        resume: bool = False, overwrite: bool = False,
    ) -> dict[str, list[Rewrite]]:  # fmt: skip
        """Rewrite descriptions in every kind, and append each rewrite to `rewrites.jsonl` at once."""
        tasks = [_Task(scene, kind, text) for scene, text in texts.items() for kind in KINDS]
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
            JobFiles(folder / FILE, resume, overwrite, inputs=[source]),
            Items(tasks, len(tasks), attrgetter("id"), check), self._lines, collect,
            bar=partial(progress_bar, what="rewriting", unit="texts"),
        )  # fmt: skip
        return rewrites

    def _lines(self, tasks: Iterator[_Task]) -> Iterator[list[tuple[_Task, Record]]]:
        for task in tasks:
            record: Record = {"id": task.id, "signature": self.signature, "texts": hash_texts(task.text)}
            try:
                record["text"] = self.rewrite(task.text, task.kind)
            except TextError as error:
                record["error"] = str(error)
            yield [(task, record)]
