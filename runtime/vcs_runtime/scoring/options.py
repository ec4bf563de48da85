"""`Options`: how pairs are scored. `ScorerConfig`: how a scorer is opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vcs_numba import Params
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.bundle.paths import EMPTY, FETCHED
from vcs_runtime.errors import unknown_choice
from vcs_runtime.inference.custom import TextEmbedder, checked_identity
from vcs_runtime.scoring import score_table
from vcs_runtime.segmentation.custom import NAMED, TextSegmenter
from vcs_runtime.segmentation.segmenter import CHOICES
from vcs_runtime.text.markup import CLEANINGS
from vcs_runtime.util.numbers import checked_count, checked_number
from vcs_runtime.util.process import threads_or_cores

AGGREGATES = ("max", "mean")
HM_CF = "hm-cf"
SUBSTITUTION = "substitution"
#: Metrics that can be computed beside VCS.
FURTHER = tuple(score_table.FURTHER)
# Chunk size and LCT: docs/reference/vcs.md, section 11. The tables use chunk size 1, LCT 0
# (default) or 1.
PRESETS = {"default": (1, 0.0), "paper": (3, 0.1), "table-lct1": (1, 1.0)}


@dataclass(frozen=True)
class Options:
    """How pairs are scored.

    Parameters
    ----------
    chunk_size
        Number of segments joined to one chunk, at least 1 (docs/reference/vcs.md, section 1); the
        papers use 3.
    params
        Parameters of the metric.
    aggregate
        With several references: "max" for the scores with the best one, "mean" for the mean of all
        scores.
    short
        Whether words are the chunks (VCS_short; docs/reference/vcs.md, section 10).
    clean
        What to remove from every text before scoring: "markdown", "think", "list-numbers",
        "time-stamps" and "chat", kept in this order (docs/reference/vcs.md, section 1).
    also
        Metrics to compute in addition to VCS: "hm-cf" (docs/reference/vcs.md, section 14), which
        also embeds the unchanged sentences of all texts, and "substitution" (section 15), for
        English.

    Raises
    ------
    ValueError
        A value is out of range. The message names the field.
    """

    chunk_size: int = 1
    params: Params = Params()
    aggregate: str = "max"
    short: bool = False
    clean: Sequence[str] = ()
    also: Sequence[str] = ()

    def __post_init__(self) -> None:
        checked_count("chunk_size", self.chunk_size, least=1)
        if not isinstance(self.params, Params):
            raise ValueError(f"params must be a Params, not {type(self.params).__name__}")
        if self.aggregate not in AGGREGATES:
            raise unknown_choice("aggregate", self.aggregate, AGGREGATES)
        for field, choices in (("clean", tuple(CLEANINGS)), ("also", FURTHER)):
            names = getattr(self, field)
            if isinstance(names, str):
                raise ValueError(f"{field} must be a sequence of names, not the string {names!r}")
            for name in names:
                if name not in choices:
                    raise unknown_choice(field, name, choices)
            in_order = tuple(name for name in choices if name in names)
            object.__setattr__(self, field, in_order)
        if self.short and self.also:
            raise ValueError(
                f"also: short texts have no sentences; leave out {' and '.join(self.also)}"
            )


@dataclass(frozen=True)
class ScorerConfig:
    """The settings of a scorer: frozen and hashable, and picklable unless they hold a model object.

    Parameters
    ----------
    bundle
        Folder of the bundle, "default" or "fast"; or an opened `Bundle` if the configuration is not
        pickled.
    device
        "auto" (a TensorRT engine of the bundle that fits and was measured to be faster than CUDA
        here, else CUDA, else the CPU), "cpu", "openvino" (bf16 where the processor multiplies in
        it, else fp32), "openvino:fp32", "cuda:N", "cuda:N:fp32" (encoders and SaT as on a CPU, not
        in fp16), "cuda:all" or "tensorrt:N". A named device that is not available is an error. With
        "cuda:all" every GPU of the machine embeds blocks of pairs, and the first one also runs the
        learned segmenter.
    cache
        Folder that stores vectors for all runs and processes. None: no folder.
    threads
        CPU threads of the model. None: all cores that this process may use.
    cache_mb
        MiB for vectors in memory, so that a repeated text is embedded once. Sentences split by
        rules, and sentences split by the learned segmenter, may each take another sixteenth.
    segmenter
        "auto", "rules" or "learned", or another bundle whose segmenter is used. With "auto", rules
        split pairs whose texts all have sentence punctuation, and the learned segmenter splits all
        other pairs. If the bundle has only one of the two, it splits every pair. "punkt" is NLTK's
        Punkt for English, which needs the extra `experiments` and NLTK's data. "time-stamps" takes
        the segments that time stamps mark, and windows by time (docs/reference/vcs.md, section 16).
        Or an object of the caller (see `TextSegmenter`), which splits every pair.
    gpu_memory_gb
        GB (10^9 bytes) of GPU memory for embedder and segmenter together, weights included, divided
        in proportion to their weights. None: no limit.
    embedder
        Embedder of the caller (see `TextEmbedder`). None: the bundle's. `device`, `threads`,
        `gpu_memory_gb` and `batch_invariant` have no effect on models of the caller.
    batch_invariant
        Whether a GPU runs batches of fixed shapes, so that a score does not depend on the other
        pairs (docs/guide/gpu.md). On a CPU a score never does.
    max_pair_gb
        GB (10^9 bytes) for the similarity matrix of one pair, 8 bytes per cell. A pair that needs
        more has an error instead of scores, on every machine.
    words
        Bundle whose token vectors compare words, for `Options.also` "substitution": the default,
        for which its constants were chosen, or another folder. It is opened when the first pair
        needs it.
    proof
        Whether models must reproduce the outputs stored in their bundle when they are first opened
        on a device, and a server its own first answers (docs/guide/bundles.md).
    calibrated
        Whether similarities are rescaled with the bundle's calibration, for a model that gives
        unrelated texts high cosines (docs/guide/models.md). The signature shows this.

    Raises
    ------
    TypeError
        A model of the caller lacks a member.
    ValueError
        A path is empty, its `identity` cannot be a part of a signature, or `max_pair_gb`,
        `cache_mb` or `threads` is out of range.
    """

    bundle: str | os.PathLike[str] | Bundle = "default"
    device: str = "auto"
    cache: str | os.PathLike[str] | None = None
    threads: int | None = None
    cache_mb: int = 256
    segmenter: str | os.PathLike[str] | Bundle | TextSegmenter = "auto"
    gpu_memory_gb: float | None = None
    embedder: TextEmbedder | None = None
    batch_invariant: bool = False
    max_pair_gb: float = 1.0
    words: str | os.PathLike[str] | Bundle = "default"
    proof: bool = True
    calibrated: bool = False

    def __post_init__(self) -> None:
        for name in ("bundle", "segmenter", "words"):
            if getattr(self, name) == "":
                raise ValueError(f"{name}: {EMPTY}")
        if self.calibrated and self.embedder is not None:
            raise ValueError("calibrated: only the embedder of a bundle has a calibration")
        checked_number(
            "max_pair_gb", self.max_pair_gb, "a number of GB above 0", lambda size: size > 0
        )
        checked_count("cache_mb", self.cache_mb, least=0)
        threads_or_cores(self.threads)
        if self.embedder is not None:
            checked_identity(self.embedder, "embedder", "embed")
        if not isinstance(self.segmenter, str | os.PathLike | Bundle):
            checked_identity(self.segmenter, "segmenter", "split")

    @classmethod
    def of(
        cls, value: ScorerConfig | Bundle | str | os.PathLike[str], **defaults: Any
    ) -> ScorerConfig:
        """Return a config unchanged, or make a config of a bundle with these `defaults`."""
        return value if isinstance(value, ScorerConfig) else cls(value, **defaults)

    @property
    def has_custom_models(self) -> bool:
        """Whether the embedder or the segmenter is an object of the caller."""
        return self.embedder is not None or not isinstance(
            self.segmenter, str | os.PathLike | Bundle
        )

    def absolute(self) -> ScorerConfig:
        """Return the config with absolute paths as strings, for other processes and folders."""
        return replace(
            self,
            bundle=_absolute(self.bundle, *FETCHED),
            cache=_absolute(self.cache),
            segmenter=_absolute(self.segmenter, *CHOICES, *NAMED),
            words=_absolute(self.words, *FETCHED),
        )


def _absolute(path: Any, *names: str) -> Any:
    """Return a path or bundle as an absolute path; `names`, None and models stay as they are."""
    if isinstance(path, Bundle):
        return str(path.root)
    if not isinstance(path, str | os.PathLike):
        return path
    text = os.fspath(path)
    return text if text in names else str(Path(text).absolute())
