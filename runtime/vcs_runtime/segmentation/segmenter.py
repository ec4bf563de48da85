"""`Segmenter`: texts cut into segments, by rules where punctuation tells the sentences, else by a model."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vcs_runtime.bundle.manifest import SegmenterSpec
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.errors import BundleError, TextError, unknown_choice
from vcs_runtime.inference.tensorrt import choose_for
from vcs_runtime.segmentation.boundaries import FloatArray, cut
from vcs_runtime.segmentation.boundary_model import BoundaryModel
from vcs_runtime.segmentation.rules import Rules, doubt
from vcs_runtime.text.cleaning import check_texts

# Which of a bundle's segmenters cut: as its punctuation decides for each text, or one of them for all.
CHOICES = ("auto", "rules", "learned")


class Segmenter:
    """The segmenter of a bundle. Open one with `Segmenter.open`; close it, or use it in `with`.

    Rules cut text that has sentence punctuation, the model all other; where a bundle has one of the two, that
    one cuts every text. May be used from several threads.
    """

    def __init__(
        self,
        bundle: Bundle,
        device: str = "auto",
        threads: int | None = None,
        use: str = "auto",
        gpu_mem_gb: float | None = None,
    ) -> None:
        self.spec = _chosen(bundle, use)
        self._rules = Rules(self.spec.rules) if self.spec.rules else None
        self._bundle = bundle
        self._threads = threads
        self._lock = threading.Lock()
        self._closed = False
        self._opened: BoundaryModel | None = None
        names = [self._rules.identity] if self._rules else []
        if model := self.spec.model:
            names.append(f"{model.name}@{bundle.weights_hash(model)[:4]}")
            self._device = choose_for(bundle, "segmenter", device, gpu_mem_gb)
            # Beside rules the model may never be needed: it is loaded at its first text. But only a session
            # shows whether a GPU really starts, and a device that does not must fail here.
            if not self._rules or self._device.is_gpu:
                self._boundary_model()
        self.identity = "+".join(names)

    @classmethod
    def open(
        cls,
        bundle: str | os.PathLike[str] | Bundle = "default",
        device: str = "auto",
        threads: int | None = None,
        *,
        use: str = "auto",
        gpu_mem_gb: float | None = None,
    ) -> Segmenter:
        """Open the segmenter of a bundle (a folder, or "default") on a device; nothing is downloaded.

        use  "auto": rules for text with sentence punctuation, the model for all other, as far as the bundle
             has them; "rules" or "learned" (the model): that one alone
        gpu_mem_gb  GB (10^9 bytes) of a GPU's memory that the model may take; default: no limit

        Rules run on the CPU whatever `device` says, and a model beside rules is loaded when the first text
        needs it (on a GPU at once). Raises BundleError, DeviceError; ValueError for a bad `device` or `use`.
        """
        opened = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        return cls(opened, device, threads, use, gpu_mem_gb)

    def split(self, texts: Sequence[str], threshold: float | None = None) -> list[list[str]]:
        """Cut each text into segments, white space kept.

        Rules: the segments join to the text again. Model: cut behind each character whose probability is
        above `threshold` (default: the bundle's) and at every newline, which is in no segment then, as
        wtpsplit's `split` does. Without a model a `threshold` is refused (ValueError).
        """
        check_texts(texts)
        if threshold is not None:
            threshold = self._checked(threshold)
        found = [self._by_rules(text) for text in texts]
        others = [text for text, pieces in zip(texts, found, strict=True) if pieces is None]
        learned = iter(self.split_learned(others, threshold))
        return [next(learned) if pieces is None else pieces for pieces in found]

    def boundary_probabilities(self, texts: Sequence[str]) -> list[FloatArray]:
        """Per text float32 `(characters,)`: the model's probability that a segment ends behind the character;
        where rules cut, 1 where a segment ends, else 0."""
        check_texts(texts)
        found = [self._by_rules(text) for text in texts]
        others = [text for text, pieces in zip(texts, found, strict=True) if pieces is None]
        learned = iter(self._boundary_model().probabilities(others) if others else [])
        return [next(learned) if pieces is None else _ends(pieces) for pieces in found]

    def split_learned(self, texts: Sequence[str], threshold: float | None = None) -> list[list[str]]:
        """`split` by the model, whatever punctuation the texts have; BundleError where there is no model."""
        if not texts:
            return []
        model = self._boundary_model()
        limit = model.spec.threshold if threshold is None else threshold
        found = model.probabilities(texts)
        return [
            cut(text, np.flatnonzero(probabilities > limit).tolist())
            for text, probabilities in zip(texts, found, strict=True)
        ]

    def sentences(self, text: str, what: str) -> list[str] | None:
        """The sentences of a text that is to be scored, found by rules; None where the model must cut it.

        What rules cannot cut at all, and there is no model, is refused: a TextError that begins with `what`.
        """
        pieces = self._by_rules(text)
        if pieces is None:
            return None
        pieces = [piece for piece in pieces if not piece.isspace()]
        # Empty lines and half of the punctuation are better than nothing: one piece is nothing.
        if self.spec.model is None and len(pieces) < 2 and (reason := doubt(text, pieces)):
            raise TextError(f"{what}: {reason}")
        return pieces

    def _by_rules(self, text: str) -> list[str] | None:
        """What rules make of a text; None where there is a model, and the text's punctuation is in doubt."""
        if self._rules is None:
            return None
        pieces = self._rules.split(text)
        return None if self.spec.model is not None and doubt(text, pieces) else pieces

    def _checked(self, threshold: object) -> float:
        if self.spec.model is None:
            raise ValueError("threshold: a rule-based segmenter has none")
        number = float(threshold) if isinstance(threshold, int | float | np.floating) else math.nan
        if isinstance(threshold, bool) or not 0 <= number <= 1:
            raise ValueError(f"threshold must be a number in [0, 1], not {threshold!r}")
        return number

    def _boundary_model(self) -> BoundaryModel:
        if self.spec.model is None:
            raise BundleError(f"bundle {self._bundle.root}: its segmenter has rules alone, no model")
        with self._lock:
            if self._closed:
                raise RuntimeError("the segmenter is closed")
            if self._opened is None:
                self._opened = BoundaryModel(self._bundle, self.spec.model, self._device, self._threads)
            return self._opened

    @property
    def rules_name(self) -> str | None:
        """The name of the rules, if there are any."""
        return self.spec.rules.name if self.spec.rules else None

    @property
    def model_name(self) -> str | None:
        """The name of the model, if there is one."""
        return self.spec.model.name if self.spec.model else None

    def release(self) -> None:
        """Give the model's memory back for now; the next text that it cuts takes it again."""
        with self._lock:
            if self._opened is not None:
                self._opened.release()

    def close(self) -> None:
        """Give the model and its memory back. The model cannot be used afterwards."""
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def __enter__(self) -> Segmenter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _chosen(bundle: Bundle, use: str) -> SegmenterSpec:
    """The part of the bundle's segmenter that `use` names."""
    if use not in CHOICES:
        raise unknown_choice("use", use, CHOICES)
    spec = bundle.manifest.segmenter
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no segmenter")
    if use == "rules":
        if spec.rules is None:
            raise BundleError(f"bundle {bundle.root}: its segmenter is a model, it has no rules")
        return replace(spec, model=None)
    if use == "learned":
        if spec.model is None:
            raise BundleError(f"bundle {bundle.root}: its segmenter has rules alone, no model")
        return replace(spec, rules=None)
    return spec


def _ends(pieces: list[str]) -> FloatArray:
    lengths = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    probabilities = np.zeros(lengths[-1] if pieces else 0, np.float32)
    probabilities[lengths - 1] = 1.0
    return probabilities
