"""Options of ViSIL, and its ways to ask a model for words: forced, by mask, or generated."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from vcs_runtime._version import __version__
from vcs_runtime.errors import ModelError, TextError, unknown_choice
from vcs_runtime.util.numbers import checked_count, checked_number, digits, exact_means
from vcs_visil.masking import COUNTS, MaskedCaption
from vcs_visil.models.generated import FLOOR, KNOWN, TOP, Generates, check_generated, known_words
from vcs_visil.models.logprobs import LogProbs, by_word, check_forced
from vcs_visil.prompts import Prompts, builtin
from vcs_visil.summaries import Part, Summary, Video

GENERATE = "generate"
"""The method for models that return only the log-probabilities of their answers."""
DEFINITION = "1"
"""Version of the definition, for signatures."""
METHODS = ("forced", "sequential", GENERATE)
"""Methods of asking for the answer: whole, mask by mask, or as the model generates it."""


@dataclass(frozen=True, slots=True)
class VisilOptions:
    """How ViSIL is computed.

    Attributes
    ----------
    samples
        Number of times that the model is asked. Log-probabilities are averaged (a geometric mean).
    method
        "forced" asks for the whole answer at once, each word given the ones before it. "sequential"
        asks for one mask at a time, with the masks before it filled in. "generate" lets the model
        answer, and looks for the words among its likeliest tokens: an approximation.
    count
        Which occurrences of a keyword are scored: "first" or "all".
    prompts
        The prompts; None for the built-in ones.
    top
        Number of likeliest tokens to request per token, for "generate".
    floor
        Lowest log-probability of a word in nats, for "generate"; below 0.
    """

    samples: int = 1
    method: str = "forced"
    count: str = "first"
    prompts: Prompts | None = None
    top: int = TOP
    floor: float = FLOOR

    def __post_init__(self) -> None:
        checked_count("samples", self.samples, least=1)
        if self.method not in METHODS:
            raise unknown_choice("method", self.method, METHODS)
        if self.count not in COUNTS:
            raise unknown_choice("count", self.count, COUNTS)
        checked_count("top", self.top, least=1)
        checked_number("floor", self.floor, "a number of nats below 0", lambda nats: nats < 0)

    @property
    def wording(self) -> Prompts:
        """The prompts in use: the user's, or the built-in ones."""
        return self.prompts or builtin()

    def signature(self, fingerprint: str, frames: int | str) -> str:
        """Return everything that a score depends on except its texts and images.

        Parameters
        ----------
        fingerprint
            Fingerprint of the model.
        frames
            Number of frames of the video.

        Returns
        -------
        str
            Fields `key:value`, separated by "|".
        """
        fields = {
            "def": DEFINITION,
            "model": fingerprint,
            "prompt": self.wording.version,
            "frames": frames,
            "samples": self.samples,
            "method": self.method,
            **(
                {"top": self.top, "floor": digits(self.floor), "approximate": "yes"}
                if self.method == GENERATE
                else {}
            ),
            "count": self.count,
            "v": __version__,
        }
        return "|".join(["visil", *(f"{key}:{value}" for key, value in fields.items())])


Model = LogProbs | Generates
"""A model that scores: one that can be forced, or one that only generates."""
# Tokens of a generated answer: for each word, and besides. Words of ten tokens are rare.
_TOKENS_PER_WORD, _TOKENS_BESIDES = 10, 20


@dataclass(frozen=True, slots=True)
class Side:
    """Log-probability of the scored words, given the video or given a summary."""

    by_word: tuple[float, ...]  # nats, averaged over the runs
    runs: tuple[float, ...]  # sum over the words in each run, in nats
    prompt_tokens: int | None  # None if the model does not report it
    # Of generated answers: how each number is known, in the run that knows least.
    known: tuple[str, ...] = ()

    @property
    def log_p(self) -> float:
        """Sum over the words, never clipped."""
        return math.fsum(self.by_word)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the sums of the runs; None for a single run."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 else None


def ask(given: list[Part], masked: MaskedCaption, model: Model, options: VisilOptions) -> Side:
    """Ask a model for the masked words as often as set, and average the log-probabilities."""
    prompts = options.wording
    runs, knowns, tokens = [], [], None
    for run in range(options.samples):
        values, known, tokens = _ASK[options.method](
            lambda text: prompts.fill("score", given=given, masked_caption=text),
            masked,
            model,
            options,
            run,
        )
        runs.append(values)
        knowns.append(known)
    means = exact_means(runs)
    least = tuple(max(kinds, key=KNOWN.index) for kinds in zip(*knowns, strict=True))
    return Side(means, tuple(map(math.fsum, runs)), tokens, least)


def count_tokens(shown: Summary | Video, model: Model, options: VisilOptions) -> int | None:
    """Count the model's tokens of the text and images of a summary.

    The count is the difference of two prompts, so the tokens that a chat template adds do not
    count. None if the model does not report it.
    """
    content: list[Part]
    content = [*shown.frames] if isinstance(shown, Video) else [*shown.keyframes, shown.text]
    before: list[Part] = ["Summary: "]

    def length(parts: list[Part]) -> int | None:
        if options.method == GENERATE:
            return _generates(model).generate(parts, 1, options.top).prompt_tokens
        return _forces(model).force(parts, "a").prompt_tokens

    try:
        whole, rest = length(before + [part for part in content if part]), length(before)
    except TextError:  # some servers report only the likeliest tokens, and "a" is not one of them
        return None
    return None if whole is None or rest is None else whole - rest


_Prompt = Callable[[str], list[Part]]
# Log-probabilities of the words, how they are known if that differs, and the tokens of the prompt.
_Answer = tuple[list[float], Sequence[str], int | None]


def _forced(
    prompt: _Prompt, masked: MaskedCaption, model: Model, options: VisilOptions, run: int
) -> _Answer:
    forced = _forces(model).force(prompt(masked.text), masked.answer, run)
    check_forced(forced, masked.answer)
    words = by_word(forced, masked.answer)
    return [words[i] for i in masked.scored], (), forced.prompt_tokens


def _sequential(
    prompt: _Prompt, masked: MaskedCaption, model: Model, options: VisilOptions, run: int
) -> _Answer:
    values, tokens = [], None
    for i in masked.scored:
        forced = _forces(model).force(prompt(masked.revealed(i)), masked.words[i], run)
        check_forced(forced, masked.words[i])
        values.append(math.fsum(forced.logprobs))
        tokens = forced.prompt_tokens if tokens is None else tokens
    return values, (), tokens


def _generated(
    prompt: _Prompt, masked: MaskedCaption, model: Model, options: VisilOptions, run: int
) -> _Answer:
    room = _TOKENS_BESIDES + _TOKENS_PER_WORD * len(masked.words)
    generated = _generates(model).generate(prompt(masked.text), room, options.top, run)
    check_generated(generated, options.top)
    words = known_words(generated, masked.words, options.floor)
    chosen = [words[i] for i in masked.scored]
    return [value for value, _ in chosen], [known for _, known in chosen], generated.prompt_tokens


_ASK = {"forced": _forced, "sequential": _sequential, GENERATE: _generated}


def _forces(model: Model) -> LogProbs:
    if not hasattr(model, "force"):
        raise ModelError(
            f"{model.fingerprint}: answers of this model cannot be forced: use --method"
            f" {GENERATE!r}"
        )
    return cast("LogProbs", model)


def _generates(model: Model) -> Generates:
    if not hasattr(model, "generate"):
        raise ModelError(f"{model.fingerprint}: its generated answers have no log-probabilities")
    return cast("Generates", model)
