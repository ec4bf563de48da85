"""Sentences found by NLTK's Punkt for English, as CLIP-CC-Bench finds them (extra `experiments`)."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from vcs_runtime.errors import BundleError
from vcs_runtime.util.extras import require

#: The name by which users choose this segmenter.
PUNKT: Final = "punkt"


class Punkt:
    """A segmenter that calls NLTK's `sent_tokenize` for English. Its data are NLTK's own: `punkt_tab`."""

    def __init__(self) -> None:
        punkt = require("nltk.tokenize.punkt", "experiments", "the segmenter punkt")
        try:
            self._tokenizer = punkt.PunktTokenizer("english")
        except (LookupError, OSError):
            raise BundleError(
                "segmenter punkt: NLTK does not find its data: run `python -m nltk.downloader punkt_tab`, or "
                "copy the folder tokenizers/punkt_tab to a folder that NLTK_DATA names"
            ) from None
        self.identity = f"{PUNKT}@nltk-{version('nltk')}"

    def split(self, texts: list[str]) -> list[list[str]]:
        """Split texts into sentences; a text that holds something has at least one."""
        return [self._tokenizer.tokenize(text) for text in texts]
