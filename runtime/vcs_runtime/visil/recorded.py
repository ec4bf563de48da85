"""Answers that are kept: a table of what a model said, for tests, replay and audit, and the cache of a job.

One JSON object a line: a header with the model's fingerprint, then an answer each. An answer is bound to the
fingerprint and to every byte of its question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vcs_runtime.errors import CacheError, InputError, ModelError
from vcs_runtime.jobs.jsonl import OutputFile, read_jsonl
from vcs_runtime.visil.logprobs import Forced, Image, LogProbs, Part, check


def question_key(fingerprint: str, parts: Sequence[Part], answer: str, kind: str) -> str:
    """The sha256 of a question: model, every byte of its texts and images, answer, and what is asked of it.

    `kind` is "next", or a run's number as a string.
    """
    digest = hashlib.sha256()
    pieces = [("model", fingerprint.encode()), *map(_piece, parts), ("answer", answer.encode())]
    for name, data in [*pieces, ("kind", kind.encode())]:
        digest.update(name.encode() + len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _piece(part: Part) -> tuple[str, bytes]:
    return ("image", part.data) if isinstance(part, Image) else ("text", part.encode())


class Recorded:
    """A model that only repeats what a table holds. Raises ModelError for a question that is not in it."""

    def __init__(
        self, fingerprint: str, answers: Mapping[str, Mapping[str, Any]], what: str = "table"
    ) -> None:
        self.fingerprint = fingerprint
        self._answers = answers
        self._what = what

    @classmethod
    def open(cls, path: Path) -> Recorded:
        """Read a table. Raises InputError naming file and line."""
        fingerprint, answers = _read(path)
        if fingerprint is None:
            raise InputError(f"{path}: it holds no record")
        return cls(fingerprint, answers, str(path))

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """As it was answered."""
        return _forced(self._look_up(parts, answer, str(run)))

    def next(self, parts: Sequence[Part], said: str = "") -> tuple[str, float]:
        """As it was answered."""
        record = self._look_up(parts, said, "next")
        return record["token"], record["logprob"]

    def _look_up(self, parts: Sequence[Part], answer: str, kind: str) -> Mapping[str, Any]:
        found = self._answers.get(question_key(self.fingerprint, parts, answer, kind))
        if found is None:
            raise ModelError(
                f"{self._what}: it has no answer to this question (answer {answer!r}, run {kind}): "
                "it was recorded with other texts, images, prompts or options"
            )
        return found


class Recorder:
    """A model whose answers are written down as they come; what the table holds already is not asked again.

    Lines are whole and synced one by one: whatever stops a run, what was answered stays. Raises CacheError
    where the table cannot be written.
    """

    def __init__(self, model: LogProbs, path: Path) -> None:
        """Open or begin the table. Raises InputError naming file and line, also for another model's table."""
        self.fingerprint = model.fingerprint
        self._model = model
        self._path = path
        fingerprint, self._answers = _read(path) if path.exists() else (None, {})
        if fingerprint not in (None, self.fingerprint):
            raise InputError(f"{path}: it is the record of {fingerprint}, and this is {self.fingerprint}")
        self._lines = OutputFile(path, resume=True)  # without a line that a kill has cut short
        if fingerprint is None:
            self._write({"visil": "answers", "model": self.fingerprint})

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """The kept answer, or the model's, which is checked and kept."""
        key = question_key(self.fingerprint, parts, answer, str(run))
        if key not in self._answers:
            forced = self._model.force(parts, answer, run)
            check(forced, answer)
            self._keep(key, {"answer": answer, "run": run, **asdict(forced)})
        return _forced(self._answers[key])

    def next(self, parts: Sequence[Part], said: str = "") -> tuple[str, float]:
        """The kept answer, or the model's, which is kept."""
        key = question_key(self.fingerprint, parts, said, "next")
        if key not in self._answers:
            token, value = self._model.next(parts, said)
            self._keep(key, {"said": said, "token": token, "logprob": value})
        record = self._answers[key]
        return record["token"], record["logprob"]

    def close(self) -> None:
        """Close the table."""
        self._lines.close()

    def _keep(self, key: str, answer: dict[str, Any]) -> None:
        record = {"key": key, **answer}
        self._write(record)
        self._answers[key] = record

    def _write(self, record: dict[str, Any]) -> None:
        try:
            self._lines.append([record])
        except InputError as error:  # no fault of the video that is scored: the job must stop
            raise CacheError(str(error)) from None


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    """The fingerprint, and the answers by key; of whole lines."""
    fingerprint: str | None = None
    answers: dict[str, Any] = {}
    for number, record in read_jsonl(path, skip_torn=True):
        try:
            if fingerprint is None:
                fingerprint = str(record["model"])
            else:
                answers[record["key"]] = record
        except (KeyError, TypeError):
            raise InputError(f"{path} line {number}: this is no record of answers") from None
    return fingerprint, answers


def _forced(record: Mapping[str, Any]) -> Forced:
    return Forced(tuple(record["tokens"]), tuple(record["logprobs"]), record["prompt_tokens"])
