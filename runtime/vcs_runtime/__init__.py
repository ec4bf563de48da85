"""The Video Comprehension Score, offline: texts in, scores out.

Example::

    from vcs_runtime import Scorer

    with Scorer.open() as scorer:
        print(scorer.score(reference, generated).vcs)
"""

from vcs_numba import Params, Scores
from vcs_runtime._version import __version__
from vcs_runtime.errors import (
    BundleError,
    CacheError,
    DeviceError,
    InputError,
    MissingExtraError,
    ModelError,
    TextError,
    VcsError,
)
from vcs_runtime.inference.custom import TextEmbedder
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.segmentation.custom import TextSegmenter
from vcs_runtime.segmentation.segmenter import Segmenter

__all__ = [
    "BundleError",
    "CacheError",
    "DeviceError",
    "Embedder",
    "InputError",
    "MissingExtraError",
    "ModelError",
    "Options",
    "Params",
    "Result",
    "Scorer",
    "ScorerConfig",
    "Scores",
    "Segmenter",
    "TextEmbedder",
    "TextError",
    "TextSegmenter",
    "VcsError",
    "__version__",
]
