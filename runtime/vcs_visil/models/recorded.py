"""Recorded answers of a model: the cache of a job, and a table for replay, audit and tests.

The file is JSONL: a header with the fingerprint of the model, then one answer per line. Each answer
belongs to the fingerprint and to every byte of its question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vcs_runtime.errors import CacheError, InputError, ModelError
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.jobs.output import OutputFile
from vcs_visil.models.generated import Generated, Generates, check_generated
from vcs_visil.models.logprobs import Forced, LogProbs, check_forced
from vcs_visil.summaries import Image, Part

# Asks a model, checks the answer, and returns it as a record.
_Ask = Callable[[Any], dict[str, Any]]


def question_key(fingerprint: str, parts: Sequence[Part], answer: str, kind: str) -> str:
    """Return the sha256 of a question.

    `kind` is "next", the run, or "generate" with its numbers.
    """
    digest = hashlib.sha256()
    pieces = [("model", fingerprint.encode()), *map(_piece, parts), ("answer", answer.encode())]
    for name, data in [*pieces, ("kind", kind.encode())]:
        digest.update(name.encode() + len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _piece(part: Part) -> tuple[str, bytes]:
    return ("image", part.data) if isinstance(part, Image) else ("text", part.encode())


class Recorded:
    """A model that repeats the answers of a table, and raises ModelError for any other question.

    Attributes
    ----------
    fingerprint
        Fingerprint of the recorded model.
    """

    def __init__(self, path: Path) -> None:
        """Read a table.

        Parameters
        ----------
        path
            A file that a `Recorder` has written.

        Raises
        ------
        InputError
            The file cannot be read or is not a table. The message names the file and the line.
        """
        fingerprint, self._answers = _read(path)
        if fingerprint is None:
            raise InputError(f"{path}: the file holds no recorded answers")
        self.fingerprint = fingerprint
        self._path = path

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """Return the recorded log-probabilities of an answer."""

        def ask(model: Any) -> dict[str, Any]:
            forced = model.force(parts, answer, run)
            check_forced(forced, answer)
            return {"answer": answer, "run": run, **asdict(forced)}

        record = self._look_up(parts, answer, str(run), ask)
        return Forced(tuple(record["tokens"]), tuple(record["logprobs"]), record["prompt_tokens"])

    def next(self, parts: Sequence[Part], prefix: str = "") -> tuple[str, float]:
        """Return the recorded likeliest token after `prefix`, and its log-probability."""

        def ask(model: Any) -> dict[str, Any]:
            token, value = model.next(parts, prefix)
            return {"said": prefix, "token": token, "logprob": value}

        record = self._look_up(parts, prefix, "next", ask)
        return record["token"], record["logprob"]

    def generate(self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0) -> Generated:
        """Return the recorded generated answer."""

        def ask(model: Any) -> dict[str, Any]:
            generated = model.generate(parts, max_tokens, top, run)
            check_generated(generated, top)
            return {"run": run, **asdict(generated)}

        record = self._look_up(parts, "", f"generate {max_tokens} {top} {run}", ask)
        likeliest = tuple(
            tuple((token, value) for token, value in listed) for listed in record["top"]
        )
        tokens, values = tuple(record["tokens"]), tuple(record["logprobs"])
        return Generated(record["text"], tokens, values, likeliest, record["prompt_tokens"])

    def _look_up(
        self, parts: Sequence[Part], answer: str, kind: str, ask: _Ask
    ) -> Mapping[str, Any]:
        key = question_key(self.fingerprint, parts, answer, kind)
        record: dict[str, Any] | None = self._answers.get(key)
        if record is None:
            self._answers[key] = record = self._missing(key, answer, kind, ask)
        return record

    def _missing(self, key: str, answer: str, kind: str, ask: _Ask) -> dict[str, Any]:
        raise ModelError(
            f"{self._path}: no answer to this question is recorded (answer {answer!r}, run {kind}):"
            " the texts, images, prompts or options were different"
        )


class Recorder(Recorded):
    """A model whose answers are recorded. Recorded questions are not asked again.

    Each line is written and synced at once, so a stopped run loses no answer. CacheError is raised
    if the table cannot be written.

    Attributes
    ----------
    fingerprint
        Fingerprint of the model.
    """

    def __init__(self, model: LogProbs | Generates, path: Path) -> None:
        """Open or create a table.

        Parameters
        ----------
        model
            The model.
        path
            File of the table.

        Raises
        ------
        InputError
            The file cannot be read, is not a table, or belongs to another model. It is unchanged.
        """
        self.fingerprint = model.fingerprint
        self._model = model
        self._path = path
        with ExitStack() as stack:
            self._lines = stack.enter_context(OutputFile(path, resume=True))
            fingerprint, self._answers = _read(path)
            if fingerprint not in (None, self.fingerprint):
                raise InputError(
                    f"{path} is the record of {fingerprint}, not of {self.fingerprint}"
                )
            self._lines.end_last_line('{"visil": ', known=fingerprint is not None)
            if fingerprint is None:
                self._write({"visil": "answers", "model": self.fingerprint})
            stack.pop_all()  # it stays open

    def close(self) -> None:
        """Close the table. Raises InputError if another program has changed it."""
        self._lines.close()

    def _missing(self, key: str, answer: str, kind: str, ask: _Ask) -> dict[str, Any]:
        record = {"key": key, **ask(self._model)}
        self._write(record)
        return record

    def _write(self, record: dict[str, Any]) -> None:
        try:
            self._lines.append([record])
        except InputError as error:  # not the fault of one video: the job must stop
            raise CacheError(str(error)) from None


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the fingerprint and the answers by key, from complete lines."""
    fingerprint: str | None = None
    answers: dict[str, Any] = {}
    for number, record in read_jsonl(path, skip_torn=True):
        try:
            if fingerprint is None:
                fingerprint = str(record["model"])
            else:
                answers[record["key"]] = record
        except (KeyError, TypeError):
            raise InputError(f"{path} line {number}: this is not a recorded answer") from None
    return fingerprint, answers
