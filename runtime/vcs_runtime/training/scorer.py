"""`TrainingScorer`: scores for a training loop; the object pickles, and its calls do not raise."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import chain, groupby
from math import isfinite
from operator import eq
from typing import Any, Literal, NamedTuple

from vcs_numba import Params
from vcs_runtime.errors import BundleError, unknown_choice
from vcs_runtime.inference.device import check_device
from vcs_runtime.inference.fitness import describe_unfit
from vcs_runtime.scoring.columns import plain
from vcs_runtime.scoring.flags import FlagCounts
from vcs_runtime.scoring.opening import open_bundles
from vcs_runtime.scoring.options import SUBSTITUTION, Options, ScorerConfig
from vcs_runtime.scoring.result import Pair, Reference, Result
from vcs_runtime.scoring.score_table import ALL, FURTHER, SMALLER_IS_BETTER
from vcs_runtime.scoring.substitution import WordComparison
from vcs_runtime.segmentation.custom import TIME_STAMPS
from vcs_runtime.text.markup import MarkupCounts
from vcs_runtime.training import service
from vcs_runtime.util.numbers import checked_number

Score = str | Mapping[str, float] | Iterable[tuple[str, float]]
"""The name of a score, or weights by name."""

_LOG = logging.getLogger("vcs_runtime.training")
#: Number of rewards after which zeros are reported: one group of completions.
_ENOUGH = 8


class Reward(NamedTuple):
    """A weighted sum of scores, by name."""

    weights: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, score: Score) -> Reward:
        """Make a reward from the name of a score, or from weights.

        Raises ValueError that names `score`.
        """
        weights = {score: 1.0} if isinstance(score, str) else dict(score)
        if not weights:
            raise ValueError("score must have at least one weight")
        for name, weight in weights.items():
            if name not in ALL:
                larger_is_better = tuple(name for name in ALL if name not in SMALLER_IS_BETTER)
                raise unknown_choice("score", name, larger_is_better)
            is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not is_number or not isfinite(weight):
                raise ValueError(
                    f"score: the weight of {name} must be a finite number, not {weight!r}"
                )
            if name in SMALLER_IS_BETTER and weight > 0:
                raise ValueError(
                    f"score: a smaller {name} is better, so give it a weight below 0, or use"
                    " 'margin_strict'"
                )
        return cls(tuple((name, float(weight)) for name, weight in weights.items()))

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics beside VCS that the reward needs."""
        names = {name for name, _ in self.weights}
        return tuple(metric for metric, scores in FURTHER.items() if names & scores.keys())

    def value(self, result: Result) -> float:
        """Return the reward of a pair that could be scored with the metrics of `also`."""
        return sum(weight * float(getattr(result, name)) for name, weight in self.weights)

    @property
    def lowest(self) -> float:
        """The smallest possible value of the reward, for texts that say nothing."""
        terms = []
        for name, weight in self.weights:
            score = ALL[name]
            terms.append(weight * (score.low if weight > 0 else score.high))
        return sum(terms)

    @property
    def is_vcs(self) -> bool:
        """Whether the reward is 0 wherever VCS is."""
        return all(name in ("vcs", "vcs_strict") for name, _ in self.weights)


class Warnings:
    """Logs each kind of warning once: a training has thousands of steps."""

    def __init__(self) -> None:
        self._counts = FlagCounts()
        self._logged: set[str] = set()

    def errors(self, results: Sequence[Result]) -> int:
        """Warn of results without a score, with the first error. Returns their number."""
        errors = [result.error for result in results if result.error]
        if errors:
            self._once(
                "errors",
                "%d of %d texts could not be scored: %s (reported once)",
                len(errors),
                len(results),
                errors[0],
            )
        return len(errors)

    def zeros(self, results: Sequence[Result]) -> None:
        """Warn as soon as most results have a VCS of 0, which teaches a model nothing."""
        if "zeros" in self._logged:
            return
        for result in results:
            if result.scores is not None:
                scores = result.scores._asdict()
                self._counts.add(scores, result.n_ref, result.n_gen, result.noted)
        if self._counts.scored >= _ENOUGH and self._counts.mostly_zero:
            self._once(
                "zeros",
                '%s Rewards that are all 0 teach nothing: use TrainingScorer(score="margin").',
                " ".join(self._counts.sentences()),
            )

    def equal_groups(self, prompts: Sequence[Any], rewards: Sequence[float | None]) -> None:
        """Warn if all completions of a prompt have the same reward; GRPO then has no advantage."""
        if "groups" in self._logged or len(prompts) != len(rewards):
            return
        # A prompt may hold images, so prompts are compared only if two rewards in a row are equal.
        if not any(map(eq, rewards, rewards[1:])):
            return
        for _, group in groupby(zip(prompts, rewards, strict=True), key=lambda pair: repr(pair[0])):
            values = [reward for _, reward in group]
            if len(values) > 1 and values[0] is not None and len(set(values)) == 1:
                self._once(
                    "groups",
                    "all %d completions of a prompt have reward %g, which teaches nothing (reported"
                    " once)",
                    len(values),
                    values[0],
                )

    def markup(self, texts: Sequence[Any], cleaned: Sequence[str], by_time: bool) -> None:
        """Warn of markup in generated texts that is probably not meant to be scored.

        `by_time`: time stamps are read, and are no markup.
        """
        counts = MarkupCounts()
        for text in texts:
            counts.add(text)
        used = {*cleaned, *self._logged}
        if by_time:
            used.add(TIME_STAMPS)
        unused = counts.unused(used)
        if unused:
            self._logged.update(unused)
            _LOG.warning(
                "markup is scored as words: %s. To remove it, pass clean=%r (reported once)",
                counts.shares(unused),
                (*cleaned, *unused),
            )

    def _once(self, kind: str, message: str, *arguments: object) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            _LOG.warning(message, *arguments)


class TrainingScorer:
    """Scores for a training loop. The object holds plain values; the first pair opens the models.

    The object can be pickled, and any number of threads may use it, also after `fork` or `spawn`:
    each process opens its own models. The bundle and the device are checked at once, so that a
    wrong path does not show up in the middle of an epoch. If the first pair cannot open the models,
    the call raises. Later, no text, deadline or full device raises an exception: the result has an
    `error`.

    Parameters
    ----------
    config
        How the scorer is opened, or a bundle's folder. Paths become absolute. Scorers of a process
        with equal configs share a session.
    chunk_size
        Segments joined to one chunk, as for `Scorer.score_many`.
    params
        Parameters of the alignment.
    aggregate
        "max" or "mean" over several references.
    short
        Compare words instead of sentences, as `Scorer.score_short` does.
    also
        Metrics to compute in addition to VCS, as for `Scorer.score`. Metrics that the reward needs
        are always computed.
    deadline_s
        Seconds that a call may take, opening the models included. Late pairs have an `error`. None:
        no limit.
    score
        The reward: the name of a score (docs/reference/vcs.md, sections 12, 14 and 15), or weights
        by name, such as `{"las": 0.5, "nas": 0.5}`. The default is the margin, because a weak
        model's VCS is mostly 0. "margin_strict" is the margin, lowered if many words were replaced.
    reference_column
        The data set's column of references, for `reward_fn`.
    unscorable
        The reward of a generated text that cannot be scored, such as an empty one: a number, or
        "lowest" for the lowest value of the reward. With None, TRL leaves the row out, so a model
        can learn to say nothing; verl accepts only numbers and gets the lowest. A missed deadline
        or a bad reference is not the model's fault: TRL gets None for it in any case.
    clean
        What to remove from every text before scoring, as for `Options`: "think" and "chat" for
        models that reason. Without `clean`, a warning names such parts of the texts.

    Raises
    ------
    BundleError, DeviceError
        The bundle or the device cannot be used, or the bundle's embedder is unfit for VCS.
    ValueError
        An argument is out of range; the message names it.
    """

    def __init__(
        self,
        config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(),
        *,
        chunk_size: int = 1,
        params: Params = Params(),
        aggregate: str = "max",
        short: bool = False,
        also: Sequence[str] = (),
        deadline_s: float | None = None,
        score: Score = "margin",
        reference_column: str = "reference",
        unscorable: float | Literal["lowest"] | None = "lowest",
        clean: Sequence[str] = (),
    ) -> None:
        self._reward = Reward.of(score)
        options = Options(chunk_size, params, aggregate, short, clean, also)
        self._options = replace(options, also=(*options.also, *self._reward.also))
        self._deadline_s = _positive(deadline_s)
        self._warnings = Warnings()
        self._reference_column = reference_column
        if unscorable == "lowest":
            unscorable = self._reward.lowest
        elif unscorable is not None:
            unscorable = checked_number(
                "unscorable", unscorable, "a finite number", lambda reward: True
            )
        self._unscorable = unscorable
        self._config = ScorerConfig.of(config).absolute()
        bundle, _ = open_bundles(self._config)
        problem = describe_unfit(bundle, self._config.calibrated) if bundle else ""
        if problem:
            raise BundleError(f"{problem} (such rewards teach nothing)")
        if SUBSTITUTION in self._options.also:
            WordComparison(self._config.words).open()
        # "auto" always works, and would look at the GPU before a fork.
        if self._config.device != "auto":
            check_device(self._config.device, self._config.gpu_memory_gb)

    def __repr__(self) -> str:
        weights = " + ".join(f"{weight:g} {name}" for name, weight in self._reward.weights)
        return (
            f"<TrainingScorer of {weights}, bundle {self._config.bundle}, device"
            f" {self._config.device}>"
        )

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics of results in addition to VCS."""
        return tuple(self._options.also)

    def submit(
        self, reference: Reference, generated: str, *, deadline_s: float | None = None
    ) -> Future[Result]:
        """Score one pair in the background.

        Parameters
        ----------
        reference
            A text, or several.
        generated
            The text to be scored.
        deadline_s
            Replaces the deadline of the scorer. The future is done by then in any case.

        Returns
        -------
        Future of Result
            The Result has an `error` if there is no score.
        """
        future: Future[Result] = Future()
        many = self.submit_many([(reference, generated)], deadline_s=deadline_s)

        def pass_on(done: Future[list[Result]]) -> None:
            if error := done.exception():
                future.set_exception(error)
            else:
                future.set_result(done.result()[0])

        many.add_done_callback(pass_on)
        return future

    def submit_many(
        self, pairs: Sequence[Pair], *, deadline_s: float | None = None
    ) -> Future[list[Result]]:
        """Score pairs in the background with one deadline: one Result for each pair, in order."""
        deadline = self._deadline_s if deadline_s is None else _positive(deadline_s)
        by_time = self._config.segmenter == TIME_STAMPS and not self._options.short
        self._warnings.markup([pair[1] for pair in pairs], self._options.clean, by_time)
        return service.submit(self._config, self._options, list(pairs), deadline)

    def score_many(self, pairs: Sequence[Pair]) -> list[Result]:
        """Score pairs and wait for the results of `submit_many`."""
        return self.submit_many(pairs).result()

    def fill(self, references: Iterable[Reference]) -> list[str]:
        """Embed references once, before the training. No deadline applies.

        `cache_mb` of the config limits the vectors in memory. With a `cache` folder all vectors are
        stored.

        Parameters
        ----------
        references
            References, each a text or several.

        Returns
        -------
        list of str
            The errors of references that cannot be scored.
        """
        texts = dict.fromkeys(chain.from_iterable(map(_texts, map(plain, references))))
        pairs = [(text, text) for text in texts]
        results = service.submit(self._config, self._options, pairs).result()
        return [result.error for result in results if result.error]

    def release(self) -> None:
        """Release the models' memory after all submitted pairs; the next pair loads them again."""
        service.release(self._config)

    def close(self) -> None:
        """Close the session.

        Pairs that are not yet started get an `error`; a later call opens a new session.
        """
        service.close(self._config)

    def reward_fn(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Compute rewards for TRL.

        The function `log_metric`, which TRL passes, receives "vcs/unscorable" and "vcs/zeros": the
        shares of completions without a score, and with a VCS of 0.

        Parameters
        ----------
        prompts
            Ignored.
        completions
            Texts, or lists of messages, of which the assistant's last one is scored.
        **columns
            All other columns of the data set. The column of references holds texts or lists of
            texts.

        Returns
        -------
        list of (float or None)
            One reward for each completion; `unscorable` for one that cannot be scored, None for a
            row that fails for another reason.

        Raises
        ------
        ValueError
            The column of references is missing or has another length, which shows in the first
            step.
        """
        references = columns.get(self._reference_column)
        if references is None:
            names = ", ".join(map(repr, columns)) or "none"
            raise ValueError(
                f"reference_column: the data set has no {self._reference_column!r} (it has {names})"
            )
        if len(references) != len(completions):
            raise ValueError(
                f"{self._reference_column} has {len(references)} rows, but completions has"
                f" {len(completions)}"
            )
        generated = map(_answer, completions)
        results = self.score_many(list(zip(map(plain, references), generated, strict=True)))
        failed = self._warn(results)
        log_metric = columns.get("log_metric")
        if log_metric:
            zeros = [result.vcs for result in results].count(0.0)
            count = max(len(results), 1)
            log_metric("vcs/unscorable", failed / count)
            log_metric("vcs/zeros", zeros / count)
        rewards = [self._reward_of(result) for result in results]
        self._warnings.equal_groups(prompts, rewards)
        return rewards

    def compute_score(
        self,
        data_source: Any,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **_others: Any,
    ) -> float:
        """Compute a reward for verl, which asks for single samples from many threads.

        Samples that arrive at the same time are scored together.

        Parameters
        ----------
        data_source
            Ignored.
        solution_str
            The generated text.
        ground_truth
            The reference: a text, or several.
        extra_info
            Ignored.
        **_others
            Ignored: further arguments of verl.

        Returns
        -------
        float
            The reward, or `unscorable`.
        """
        results = self.score_many([(plain(ground_truth), solution_str)])
        self._warn(results)
        if results[0].scores is not None:
            return self._reward.value(results[0])
        return self._reward.lowest if self._unscorable is None else self._unscorable

    def _reward_of(self, result: Result) -> float | None:
        if result.scores is not None:
            return self._reward.value(result)
        is_the_models_fault = (result.error or "").startswith("generated:")
        return self._unscorable if is_the_models_fault else None

    def _warn(self, results: Sequence[Result]) -> int:
        """Log each kind of warning once, and return the number of results without scores."""
        if self._reward.is_vcs:
            self._warnings.zeros(results)
        return self._warnings.errors(results)


def _answer(completion: Any) -> Any:
    """Return the text of a completion.

    Anything without a text is returned unchanged, and the scorer refuses it.
    """
    if isinstance(completion, str) or not isinstance(completion, Sequence):
        return completion
    content = None
    for message in completion:
        if isinstance(message, Mapping) and message.get("role", "assistant") == "assistant":
            content = message.get("content")
    if isinstance(content, str) or not isinstance(content, Sequence):
        return content
    # Messages of vision-language models have several parts.
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def _texts(reference: Any) -> Sequence[Any]:
    """Return the texts of one reference or several; the scorer refuses anything else."""
    if isinstance(reference, str) or not isinstance(reference, Sequence):
        return [reference]
    return reference


def _positive(deadline_s: float | None) -> float | None:
    if deadline_s is None or deadline_s == math.inf:
        return None
    return checked_number(
        "deadline_s", deadline_s, "a number of seconds above 0", lambda time: time > 0
    )
