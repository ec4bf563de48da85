"""Segmenters of the caller: what such an object has to offer, how a scorer uses it.

NLTK's Punkt is one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any, Final, Protocol

from vcs_runtime.errors import BundleError, ModelError
from vcs_runtime.inference.custom import checked_identity, naming_errors
from vcs_runtime.inference.device import Device
from vcs_runtime.util.extras import require

#: The name by which users choose NLTK's Punkt.
PUNKT: Final = "punkt"
#: The name of the segments that time stamps in the texts mark; windows are then by time.
TIME_STAMPS: Final = "time-stamps"
#: Both: what needs no bundle.
NAMED: Final = (PUNKT, TIME_STAMPS)


class TextSegmenter(Protocol):
    """A segmenter that `Scorer.open(segmenter=...)` accepts: any object with these two members."""

    @property
    def identity(self) -> str:
        """Name of the segmenter and its version for the signature, without white space and "|"."""

    def split(self, texts: list[str]) -> Any:
        """Split texts into segments.

        Parameters
        ----------
        texts
            Distinct texts with punctuation; contractions are written out (docs/reference/vcs.md,
            section 1).

        Returns
        -------
        list of list of str
            The segments of each text, in order. Punctuation and white space around them do not
            matter.

        Raises
        ------
        TextError
            A text cannot be split. Its pairs then have this error, and the others go on. Every
            other exception ends the call that scores.
        """


class ScoringSegmenter(Protocol):
    """Members of a segmenter that a scorer uses: a bundle's, or a `CustomSegmenter`."""

    @property
    def device(self) -> Device | None:
        """Where the learned segmenter runs; None if there is none, or it is the caller's."""

    @property
    def signature_fields(self) -> tuple[str, ...]:
        """The fields of the signature that name the segmenters."""

    @property
    def rules_name(self) -> str | None:
        """Name of the rules in results; None if there are no rules."""

    @property
    def model_name(self) -> str | None:
        """Name in results of what splits the texts that rules leave; None if there is nothing."""

    @property
    def wants_punctuation(self) -> bool:
        """Whether the texts that rules leave are split with their punctuation."""

    def sentences(self, text: str, name: str) -> list[str] | None:
        """Split a text by rules; None if it is left to `split_learned`."""

    def split_learned(self, texts: Sequence[str]) -> list[list[str]]:
        """Split the texts that rules leave."""

    def release(self) -> None:
        """Free memory for now."""

    def close(self) -> None:
        """Free memory for good."""


class CustomSegmenter:
    """An adapter for a caller's segmenter, which splits every text and whose output is checked.

    One thread at a time calls it.
    """

    def __init__(self, segmenter: TextSegmenter) -> None:
        self.model_name = checked_identity(segmenter, "segmenter", "split")
        self.device = None
        self.rules_name = None
        self.wants_punctuation = True
        self.signature_fields = (f"seg:{self.model_name}",)
        self._segmenter = segmenter
        self._lock = threading.Lock()

    def sentences(self, text: str, name: str) -> None:
        """Leave every text to `split_learned`."""

    def split_learned(self, texts: Sequence[str]) -> list[list[str]]:
        """Split texts with the caller's segmenter.

        Raises ModelError unless the segmenter returns a list of strings for each text.
        """
        if not texts:
            return []
        with self._lock, naming_errors(f"segmenter {self.model_name}"):
            # A generator runs the caller's code here, too.
            splits = [_listed(pieces) for pieces in self._segmenter.split(list(texts))]
        if len(splits) != len(texts):
            raise self._wrong(f"{len(splits)} lists for {len(texts)} texts")
        if not all(
            isinstance(pieces, list) and all(isinstance(p, str) for p in pieces)
            for pieces in splits
        ):
            raise self._wrong("something other than a list of strings for each text")
        return splits

    def release(self) -> None:
        """Do nothing: the model belongs to the caller."""

    def close(self) -> None:
        """Do nothing: the model belongs to the caller."""

    def _wrong(self, what: str) -> ModelError:
        return ModelError(f"segmenter {self.model_name}: split returned {what}")


def _listed(pieces: Any) -> Any:
    return list(pieces) if isinstance(pieces, Iterable) and not isinstance(pieces, str) else pieces


class Punkt:
    """NLTK's Punkt for English, with which CLIP-CC-Bench splits texts (extra `experiments`)."""

    def __init__(self) -> None:
        punkt = require("nltk.tokenize.punkt", "experiments", "the segmenter punkt")
        try:
            self._tokenizer = punkt.PunktTokenizer("english")
        except (LookupError, OSError):
            raise BundleError(
                "segmenter punkt: NLTK does not find its data: run `python -m nltk.downloader"
                " punkt_tab`, or copy the folder tokenizers/punkt_tab to a folder that NLTK_DATA"
                " names"
            ) from None
        self.identity = f"{PUNKT}@nltk-{version('nltk')}"

    def split(self, texts: list[str]) -> list[list[str]]:
        """Split texts into sentences; a text that holds something has at least one."""
        return [self._tokenizer.tokenize(text) for text in texts]


class TimeStamps:
    """Stands for the time stamps in the texts, which `scoring.preparation` reads."""

    identity = TIME_STAMPS

    def split(self, texts: list[str]) -> list[list[str]]:
        """Return each text as it is: a segment without its stamp."""
        return [[text] for text in texts]
