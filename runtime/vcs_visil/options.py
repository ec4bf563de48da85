"""Options of ViSIL, and the signature of a score."""

from __future__ import annotations

from dataclasses import dataclass

from vcs_runtime._version import __version__
from vcs_runtime.errors import unknown_choice
from vcs_runtime.util.numbers import checked_count, checked_number, digits
from vcs_visil.masking import COUNTS
from vcs_visil.models.generated import FLOOR, TOP
from vcs_visil.prompts import Prompts, builtin

GENERATE = "generate"
"""The method for models that give log-probabilities of their own answers only."""
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
        "forced" asks for the whole answer at once, each word given the ones before it. "sequential" asks for
        one mask at a time, with the masks before it filled in. "generate" lets the model answer, and looks
        for the words among its likeliest tokens: an approximation.
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
        """The prompts in use: those of the user, or the built-in ones."""
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
            "def": DEFINITION, "model": fingerprint, "prompt": self.wording.version, "frames": frames,
            "samples": self.samples, "method": self.method,
            **({"top": self.top, "floor": digits(self.floor), "approximate": "yes"}
               if self.method == GENERATE else {}),
            "count": self.count, "v": __version__,
        }  # fmt: skip
        return "|".join(["visil", *(f"{key}:{value}" for key, value in fields.items())])
