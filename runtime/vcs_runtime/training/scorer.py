"""`TrainingScorer`: scores for a training loop, as plain data that pickles and calls that do not raise."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from vcs_numba import Params, Scores
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import unknown_choice
from vcs_runtime.inference.device import choose_device
from vcs_runtime.scoring.columns import plain
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Pair, Reference, Result
from vcs_runtime.segmentation.segmenter import CHOICES
from vcs_runtime.training import service

_DEFAULTS = Params()


class TrainingScorer:
    """Scores for a training loop. Holds paths and options only; the models are opened by the first pair.

    bundle, device, cache, threads, memory_mb, segmenter, gpu_mem_gb
                      as for `Scorer.open`, bundles by path. Scorers of a process that agree in these share a
                      session
    chunk_size, params, aggregate, short
                      as for `Scorer.score_many`
    deadline_s        seconds a call may take, opening included; what is late has an `error`. None: no limit
    score             which of `vcs_numba.Scores` is the reward, "vcs" or another
    reference_column  of the data set, for `reward_fn`
    unscorable        what `compute_score` gives for a text that cannot be scored, as verl takes no None

    It pickles, and may be used from any number of threads, after `fork` or `spawn` too: each process opens
    its own. Bundle and device are checked here, so that a wrong path does not show in the middle of an epoch:
    raises BundleError, DeviceError; ValueError naming the argument. Later, nothing is raised for what cannot
    be scored, be it for a text, a deadline, or a device whose memory is full.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str] = "default",
        device: str = "auto",
        *,
        chunk_size: int = 1,
        params: Params = _DEFAULTS,
        aggregate: str = "max",
        short: bool = False,
        deadline_s: float | None = None,
        score: str = "vcs",
        reference_column: str = "reference",
        unscorable: float = 0.0,
        cache: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        memory_mb: int = 256,
        segmenter: str | os.PathLike[str] = "auto",
        gpu_mem_gb: float | None = None,
    ) -> None:
        if score not in Scores._fields:
            raise unknown_choice("score", score, Scores._fields)
        self._options = Options(chunk_size, params, aggregate, short)
        self._deadline_s = _seconds(deadline_s)
        self._score = score
        self._reference_column = reference_column
        self._unscorable = float(unscorable)
        # A process that is started elsewhere should find the same files.
        self._opening = service.Opening(
            _absolute(bundle, "default"), device, None if cache is None else _absolute(cache), threads,
            memory_mb, _absolute(segmenter, *CHOICES), gpu_mem_gb,
        )  # fmt: skip
        open_bundle(self._opening.bundle)
        if device != "auto":  # which nothing hinders, and which would look at the GPU before a fork
            choose_device(device, gpu_mem_gb)

    def submit(
        self, reference: Reference, generated: str, *, deadline_s: float | None = None
    ) -> Future[Result]:
        """Score one pair in the background. The future's Result has an `error` where there is no score.

        deadline_s  in place of the scorer's own. The future is done by then, whatever the model is doing
        """
        future: Future[Result] = Future()
        many = self.submit_many([(reference, generated)], deadline_s=deadline_s)
        many.add_done_callback(lambda done: future.set_result(done.result()[0]))
        return future

    def submit_many(self, pairs: Sequence[Pair], *, deadline_s: float | None = None) -> Future[list[Result]]:
        """`submit` for pairs `(reference, generated)`, with one deadline: a Result a pair, in order."""
        deadline = self._deadline_s if deadline_s is None else _seconds(deadline_s)
        return service.submit(self._opening, self._options, list(pairs), deadline)

    def score_many(self, pairs: Sequence[Pair]) -> list[Result]:
        """`submit_many`, and wait for it."""
        return self.submit_many(pairs).result()

    def fill(self, references: Iterable[Reference]) -> list[str]:
        """Embed references before the training, once; returns what is wrong with those that cannot be.

        As many as `memory_mb` holds are kept in memory, and all in `cache` if there is one. No deadline.
        """
        texts = (text for reference in references for text in _texts(plain(reference)))
        pairs = [(text, text) for text in dict.fromkeys(texts)]
        results = service.submit(self._opening, self._options, pairs).result()
        return [result.error for result in results if result.error]

    def release(self) -> None:
        """Give the models' memory back when all that was submitted is scored; the next pair takes it."""
        service.release(self._opening)

    def close(self) -> None:
        """Give everything back. What is not begun yet gets an `error`; whoever asks later opens anew."""
        service.close(self._opening)

    def reward_fn(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """A reward for TRL: one number a completion, None for a row that cannot be scored.

        completions  texts, or lists of messages, of which the assistant's last one counts
        columns      all others of the data set; the reference's holds texts, or lists of texts

        How many rows had no score is logged by `log_metric`, which TRL passes, as "vcs/unscorable".
        Raises ValueError if the column is missing or of another length: wrong usage shows in the first step.
        """
        references = columns.get(self._reference_column)
        if references is None:
            raise ValueError(
                f"reference_column: the data set has no {self._reference_column!r} "
                f"(it has {', '.join(map(repr, columns)) or 'none'})"
            )
        if len(references) != len(completions):
            raise ValueError(
                f"{self._reference_column} has {len(references)} rows, completions {len(completions)}"
            )
        pairs = [(plain(r), _answer(c)) for r, c in zip(references, completions, strict=True)]
        results = self.score_many(pairs)
        failed = _warn(results)
        if log_metric := columns.get("log_metric"):
            log_metric("vcs/unscorable", failed / len(results) if results else 0.0)
        return [self._reward(result) for result in results]

    def compute_score(
        self,
        data_source: Any,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **_others: Any,
    ) -> float:
        """A reward for verl, which asks for samples one by one, from many threads: they are scored together.

        ground_truth  the reference, a text or several. Nothing else but `solution_str` is looked at
        """
        results = self.score_many([(plain(ground_truth), solution_str)])
        _warn(results)
        reward = self._reward(results[0])
        return self._unscorable if reward is None else reward

    def _reward(self, result: Result) -> float | None:
        return None if result.scores is None else float(getattr(result.scores, self._score))


def _warn(results: Sequence[Result]) -> int:
    """Log how many have no score, and why the first of them has none; returns the number."""
    errors = [result.error for result in results if result.error]
    if errors:
        service.LOG.warning("%d of %d could not be scored: %s", len(errors), len(results), errors[0])
    return len(errors)


def _answer(completion: Any) -> Any:
    """The text of a completion. What has none is left as it is, for the scorer to refuse."""
    if isinstance(completion, str) or not isinstance(completion, Sequence):
        return completion
    said = [m for m in completion if isinstance(m, Mapping) and m.get("role", "assistant") == "assistant"]
    content = said[-1].get("content") if said else None
    if isinstance(content, str) or not isinstance(content, Sequence):
        return content
    # Messages of vision-language models come in parts.
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def _texts(reference: Any) -> Sequence[Any]:
    """The texts of a reference, be it one or several. What is none is left for the scorer to refuse."""
    return [reference] if isinstance(reference, str) or not isinstance(reference, Sequence) else reference


def _seconds(deadline_s: float | None) -> float | None:
    if deadline_s is not None and not deadline_s > 0:
        raise ValueError(f"deadline_s must be more than 0, not {deadline_s!r}")
    return deadline_s


def _absolute(path: str | os.PathLike[str], *words: str) -> str:
    text = os.fspath(path)
    return text if text in words else os.path.abspath(text)
