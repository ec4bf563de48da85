"""`Segmenter`: splits texts with sentence punctuation by rules, others with the learned segmenter.

A text without sentence punctuation would be one segment, whose score says nothing about order or
local content. `doubt` detects such texts.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence

import msgspec
import numpy as np

from vcs_runtime.bundle.manifest import SegmenterSpec
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.errors import BundleError, TextError, unknown_choice
from vcs_runtime.inference.device import Device, each_device
from vcs_runtime.inference.proof import check, subject_on
from vcs_runtime.inference.tensorrt import choose_for, engine_name
from vcs_runtime.segmentation.boundary_model import BoundaryModel, FloatArray, cut
from vcs_runtime.segmentation.rules import Rules, doubt
from vcs_runtime.text.cleaning import check_texts
from vcs_runtime.util.numbers import digits

# Which of a bundle's segmenters is used: for each text the one that suits its punctuation, or one
# for all.
CHOICES = ("auto", "rules", "learned")


class Segmenter:
    """The segmenter of a bundle. Open it with `Segmenter.open`; close it, or use it in `with`.

    Rules split texts with sentence punctuation, the learned segmenter splits all others. If a
    bundle has only one of the two, it splits every text. Several threads may use one segmenter.
    """

    def __init__(
        self,
        bundle: Bundle,
        device: str = "auto",
        threads: int | None = None,
        use: str = "auto",
        gpu_memory_gb: float | None = None,
        batch_invariant: bool = False,
        proof: bool = True,
    ) -> None:
        """Open a segmenter on an opened bundle. Users call `Segmenter.open`."""
        self.spec = choose_segmenter(bundle, use)
        self._rules = Rules(self.spec.rules) if self.spec.rules else None
        self._bundle = bundle
        self._threads = threads
        self._proof = proof
        self._lock = threading.Lock()
        self._closed = False
        self._opened: BoundaryModel | None = None
        self.device: Device | None = None
        """Where the learned segmenter runs; None without one."""
        if self.spec.model:
            first = each_device(device)[0]  # of all GPUs one is enough for its work, which is small
            self.device = choose_for(bundle, "segmenter", first, gpu_memory_gb, batch_invariant)
            # With rules the model may never be needed, so it is loaded at its first text. But only
            # a session shows whether a GPU really starts, and a GPU that does not start must fail
            # here.
            if not self._rules or self.device.is_gpu:
                self._boundary_model()
        self.identity = self._named()

    @classmethod
    def open(
        cls,
        bundle: str | os.PathLike[str] | Bundle = "default",
        device: str = "auto",
        threads: int | None = None,
        *,
        use: str = "auto",
        gpu_memory_gb: float | None = None,
        batch_invariant: bool = False,
        proof: bool = True,
    ) -> Segmenter:
        """Open the segmenter of a bundle; nothing is downloaded.

        Rules always run on the CPU. If a bundle has rules, its learned segmenter is opened at once
        on a GPU, and on a CPU when the first text needs it. Its files are verified with the bundle.
        To avoid waiting later, as in a server, split a text without punctuation first.

        Parameters
        ----------
        bundle
            Folder of the bundle, "default", or an opened `Bundle`.
        device
            Where the learned segmenter runs, as for `ScorerConfig`.
        threads
            CPU threads of the learned segmenter. None: all cores that this process may use.
        use
            "auto" (rules for texts with sentence punctuation, the learned segmenter for all others,
            as far as the bundle has them), "rules" or "learned".
        gpu_memory_gb
            GB (10^9 bytes) of GPU memory for the learned segmenter. None: no limit.
        batch_invariant
            Whether a GPU runs batches of fixed shapes, so that a split does not depend on the other
            texts. On a CPU a split never does.
        proof
            Whether the learned segmenter must reproduce the outputs in its bundle, as for
            `Embedder.open`.

        Returns
        -------
        Segmenter
            Ready to split texts.

        Raises
        ------
        BundleError
            The bundle cannot be used, or lacks the segmenter that `use` names.
        DeviceError
            The device is not available, or gives other probabilities than the bundle's.
        ValueError
            `device` or `use` is not one of the possible values.
        """
        opened = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        return cls(opened, device, threads, use, gpu_memory_gb, batch_invariant, proof)

    def split(self, texts: Sequence[str], threshold: float | None = None) -> list[list[str]]:
        """Split each text into segments with their white space.

        The segments of rules, joined, are the text again. The learned segmenter cuts after each
        character whose probability is above the threshold, and at every newline, which is then in
        no segment. wtpsplit's `split` does the same.

        Parameters
        ----------
        texts
            Any strings, empty ones included.
        threshold
            Probability in [0, 1] above which the learned segmenter cuts. None: the bundle's
            threshold.

        Returns
        -------
        list of list of str
            The segments of each text.

        Raises
        ------
        TypeError
            `texts` is one string.
        TextError
            An item is not a string, or holds a lone surrogate.
        ValueError
            `threshold` is not in [0, 1], or the bundle has no learned segmenter.
        """
        check_texts(texts)
        if threshold is not None:
            threshold = self._checked(threshold)
        by_rules = [self._by_rules(text) for text in texts]
        others = [text for text, pieces in zip(texts, by_rules, strict=True) if pieces is None]
        learned = iter(self.split_learned(others, threshold))
        return [next(learned) if pieces is None else pieces for pieces in by_rules]

    def boundary_probabilities(self, texts: Sequence[str]) -> list[FloatArray]:
        """Return for each character of each text the probability that a segment ends after it.

        Parameters
        ----------
        texts
            Any strings, as for `split`.

        Returns
        -------
        list of ndarray
            float32 (characters,) for each text: from the learned segmenter, or 0 and 1 if rules
            split the text.

        Raises
        ------
        TypeError
            `texts` is one string.
        TextError
            An item is not a string, or holds a lone surrogate.
        """
        check_texts(texts)
        by_rules = [self._by_rules(text) for text in texts]
        others = [text for text, pieces in zip(texts, by_rules, strict=True) if pieces is None]
        learned = iter(self._boundary_model().probabilities(others) if others else [])
        return [next(learned) if pieces is None else _ends(pieces) for pieces in by_rules]

    def split_learned(
        self, texts: Sequence[str], threshold: float | None = None
    ) -> list[list[str]]:
        """Split texts with the learned segmenter, even if they have punctuation.

        Raises BundleError if there is no learned segmenter.
        """
        if not texts:
            return []
        model = self._boundary_model()
        limit = model.spec.threshold if threshold is None else threshold
        return [
            cut(text, np.flatnonzero(probabilities > limit).tolist())
            for text, probabilities in zip(texts, model.probabilities(texts), strict=True)
        ]

    def sentences(self, text: str, name: str) -> list[str] | None:
        """Split a text by rules; None if the learned segmenter must split it.

        Raises TextError, which starts with `name`, if rules cannot, and there is no learned
        segmenter.
        """
        try:
            pieces = self._by_rules(text)
        except TextError as error:
            raise TextError(f"{name}: {error}") from None
        if pieces is None:
            return None
        pieces = [piece for piece in pieces if not piece.isspace()]
        # Empty lines and half of the punctuation are better than nothing, but one piece is useless.
        if self.spec.model is None and len(pieces) < 2 and (reason := doubt(text, pieces)):
            raise TextError(f"{name}: {reason}")
        return pieces

    def _by_rules(self, text: str) -> list[str] | None:
        """Split a text by rules; None if the learned segmenter must split it."""
        if self._rules is None:
            return None
        pieces = self._rules.split(text)
        return None if self.spec.model is not None and doubt(text, pieces) else pieces

    def _named(self) -> str:
        """Join the rules with their version, and the learned segmenter with its digits, by "+"."""
        names = [self._rules.identity] if self._rules else []
        return "+".join(
            names + ([self._bundle.identity(self.spec.model)] if self.spec.model else [])
        )

    def _checked(self, threshold: object) -> float:
        if self.spec.model is None:
            raise ValueError("threshold: the rule-based segmenter has no threshold")
        number = float(threshold) if isinstance(threshold, int | float | np.floating) else math.nan
        if isinstance(threshold, bool) or not 0 <= number <= 1:
            raise ValueError(f"threshold must be a number in [0, 1], not {threshold!r}")
        return number

    def _boundary_model(self) -> BoundaryModel:
        if self.spec.model is None or self.device is None:
            raise _no_learned_segmenter(self._bundle)
        with self._lock:
            if self._closed:
                raise RuntimeError("the segmenter is closed")
            if self._opened is None:
                model = BoundaryModel(self._bundle, self.spec.model, self.device, self._threads)
                if self._proof:
                    check(subject_on(self._bundle, model.spec, [self.device], model.run_each))
                self._opened = model
            return self._opened

    @property
    def signature_fields(self) -> tuple[str, ...]:
        """The fields of the signature that name the segmenters, and how the learned one cuts."""
        if not self.spec.model or not self.device:
            return (f"seg:{self.identity}",)
        model = self.device.suited(self.spec.model)
        engine = engine_name(self._bundle, model, self.device)
        # `engine` is the embedder's field; the learned segmenter may run elsewhere.
        where = ""
        if engine != "ort-cpu":
            where = f"/{engine}"
            if self.device.instructions:
                where += f"/{self.device.instructions}"
        precision = self.device.precision_of(model.precision, model.cuda)
        return (
            f"seg:{self.identity}",
            f"cut:{digits(model.threshold)}/{model.stride}/{precision}{where}",
        )

    @property
    def wants_punctuation(self) -> bool:
        """False: the learned segmenter sees no punctuation (docs/reference/vcs.md, section 1)."""
        return False

    @property
    def rules_name(self) -> str | None:
        """The name of the rules; None if there are no rules."""
        return self.spec.rules.name if self.spec.rules else None

    @property
    def model_name(self) -> str | None:
        """The name of the learned segmenter; None if there is none."""
        return self.spec.model.name if self.spec.model else None

    def release(self) -> None:
        """Free the memory of the learned segmenter; the next text that needs it loads it again."""
        with self._lock:
            if self._opened is not None:
                self._opened.release()

    def close(self) -> None:
        """Close the learned segmenter and free its memory.

        The segmenter cannot be used afterwards.
        """
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def __enter__(self) -> Segmenter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def choose_segmenter(bundle: Bundle, use: str) -> SegmenterSpec:
    """Return the part of the bundle's segmenter that `use` names; BundleError if there is none."""
    if use not in CHOICES:
        raise unknown_choice("use", use, CHOICES)
    spec = bundle.manifest.segmenter
    if spec is None:
        raise BundleError(
            f"bundle {bundle.root}: it holds no segmenter: choose one, such as --segmenter"
            " default, or add one with `vcs-runtime bundle make`"
        )
    if use == "rules":
        if spec.rules is None:
            raise BundleError(f"bundle {bundle.root}: it has no rules, only the learned segmenter")
        return msgspec.structs.replace(spec, model=None)
    if use == "learned":
        if spec.model is None:
            raise _no_learned_segmenter(bundle)
        return msgspec.structs.replace(spec, rules=None)
    return spec


def _no_learned_segmenter(bundle: Bundle) -> BundleError:
    return BundleError(f"bundle {bundle.root}: it has no learned segmenter, only rules")


def _ends(pieces: list[str]) -> FloatArray:
    lengths = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    probabilities = np.zeros(lengths[-1] if pieces else 0, np.float32)
    probabilities[lengths - 1] = 1.0
    return probabilities
