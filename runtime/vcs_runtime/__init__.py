"""The Video Comprehension Score, offline: text in, scores out.

from vcs_runtime import Scorer
with Scorer.open() as scorer:
    print(scorer.score(reference, generated).vcs)
"""

__version__ = "0.1.0"

from vcs_numba import Params, Scores
from vcs_runtime.errors import BundleError, CacheError, DeviceError, TextError
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.result import Result
from vcs_runtime.scorer import Scorer
from vcs_runtime.segmentation.segmenter import Segmenter
from vcs_runtime.signature import Options

__all__ = [
    "BundleError",
    "CacheError",
    "DeviceError",
    "Embedder",
    "Options",
    "Params",
    "Result",
    "Scorer",
    "Scores",
    "Segmenter",
    "TextError",
]
