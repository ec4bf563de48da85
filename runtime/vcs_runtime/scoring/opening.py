"""Opens the models of a `ScorerConfig`: the bundle's, the caller's, or one of each."""

from __future__ import annotations

import os
import warnings

from vcs_numba.batch import load_ahead
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.errors import BundleError, UnfitModelWarning
from vcs_runtime.inference.custom import CustomEmbedder, ScoringEmbedder
from vcs_runtime.inference.embedder import Embedder, embedder_spec
from vcs_runtime.inference.fitness import describe_unfit
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.segmentation.custom import (
    NAMED,
    PUNKT,
    CustomSegmenter,
    Punkt,
    ScoringSegmenter,
    TimeStamps,
)
from vcs_runtime.segmentation.segmenter import CHOICES, Segmenter, choose_segmenter


def open_models(config: ScorerConfig) -> tuple[ScoringEmbedder, ScoringSegmenter]:
    """Open the embedder and the segmenter of a configuration; errors as for `Scorer.open`."""
    bundle, segmenter_bundle = open_bundles(config)
    problem = describe_unfit(bundle, config.calibrated) if bundle else ""
    if problem:
        warnings.warn(problem, UnfitModelWarning, stacklevel=2)
    # Not earlier: hashing would wait for the interpreter's lock after every piece of a file.
    load_ahead()
    use = "auto"
    if isinstance(config.segmenter, str) and config.segmenter in CHOICES:
        use = config.segmenter
    embedder_gb, segmenter_gb = _shares(bundle, segmenter_bundle, use, config.gpu_memory_gb)
    # With "cuda:all", the embedder uses every GPU, and the segmenter the first one.
    embedder: ScoringEmbedder
    segmenter: ScoringSegmenter
    if config.embedder is not None:
        embedder = custom = CustomEmbedder(config.embedder)
        check_server = getattr(config.embedder, "check_server", None)
        if config.proof and check_server:
            check_server(custom.embed)
    else:
        assert bundle is not None
        embedder = Embedder.open(
            bundle,
            config.device,
            config.threads,
            gpu_memory_gb=embedder_gb,
            batch_invariant=config.batch_invariant,
            proof=config.proof,
        )
    if isinstance(config.segmenter, str) and config.segmenter in NAMED:
        segmenter = CustomSegmenter(Punkt() if config.segmenter == PUNKT else TimeStamps())
    elif not isinstance(config.segmenter, str | os.PathLike | Bundle):
        segmenter = CustomSegmenter(config.segmenter)
    else:
        assert segmenter_bundle is not None
        segmenter = Segmenter.open(
            segmenter_bundle,
            config.device,
            config.threads,
            use=use,
            gpu_memory_gb=segmenter_gb,
            batch_invariant=config.batch_invariant,
            proof=config.proof,
        )
    return embedder, segmenter


def open_bundles(config: ScorerConfig) -> tuple[Bundle | None, Bundle | None]:
    """Open the bundles of the embedder and of the segmenter; None for a model without a bundle.

    Raises BundleError if a bundle cannot be used, or lacks the embedder or the segmenter.
    """
    bundle = _opened(config.bundle) if config.embedder is None else None
    if bundle:
        spec = embedder_spec(bundle)
        if config.calibrated and spec.calibration is None:
            raise BundleError(
                f"bundle {bundle.root}: it has no calibration: `vcs-runtime export verify` computes"
                " one"
            )
    segmenter = None
    if isinstance(config.segmenter, str) and config.segmenter in CHOICES:
        segmenter = bundle or _opened(config.bundle)
        choose_segmenter(segmenter, config.segmenter)
    elif isinstance(config.segmenter, str | os.PathLike | Bundle) and config.segmenter not in NAMED:
        try:
            segmenter = _opened(config.segmenter)
        except BundleError as error:
            names = ", ".join((*CHOICES, *NAMED))
            raise BundleError(
                f"{error}. Segmenters are {names}, or the folder of a bundle"
            ) from None
        choose_segmenter(segmenter, "auto")
    return bundle, segmenter


def _opened(bundle: str | os.PathLike[str] | Bundle) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else open_bundle(bundle)


def _shares(
    bundle: Bundle | None, segmenter_bundle: Bundle | None, use: str, gpu_memory_gb: float | None
) -> tuple[float | None, float | None]:
    """Divide `gpu_memory_gb` between embedder and segmenter in proportion to their weights.

    A model of the caller has no bundle, and takes nothing.
    """
    if gpu_memory_gb is None:
        return None, None
    embedder_size = _weights_size(bundle, "embedder")
    segmenter_size = _weights_size(segmenter_bundle, "segmenter")
    if use == "rules" or not segmenter_size:
        return gpu_memory_gb, None
    share = gpu_memory_gb * segmenter_size / (embedder_size + segmenter_size)
    return gpu_memory_gb - share, share


def _weights_size(bundle: Bundle | None, part: str) -> int:
    """Return the bytes of the weights of a model; 0 if no bundle holds the model."""
    spec = bundle.part(part) if bundle else None
    return bundle.weights_size(spec) if bundle and spec else 0
