"""The Video Comprehension Score, offline: texts in, scores out.

Example::

    from vcs_runtime import Scorer

    with Scorer.open() as scorer:
        print(scorer.score(reference, generated).vcs)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from vcs_numba import Params, Scores
    from vcs_runtime.inference.custom import TextEmbedder
    from vcs_runtime.inference.embedder import Embedder
    from vcs_runtime.scoring.options import Options, ScorerConfig
    from vcs_runtime.scoring.result import Result, Results
    from vcs_runtime.scoring.scorer import Scorer, score
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
    "Results",
    "Scorer",
    "ScorerConfig",
    "Scores",
    "Segmenter",
    "TextEmbedder",
    "TextError",
    "TextSegmenter",
    "VcsError",
    "__version__",
    "score",
]

_MODULES = {
    "Embedder": "vcs_runtime.inference.embedder",
    "Options": "vcs_runtime.scoring.options",
    "Params": "vcs_numba",
    "Result": "vcs_runtime.scoring.result",
    "Results": "vcs_runtime.scoring.result",
    "Scorer": "vcs_runtime.scoring.scorer",
    "ScorerConfig": "vcs_runtime.scoring.options",
    "Scores": "vcs_numba",
    "Segmenter": "vcs_runtime.segmentation.segmenter",
    "TextEmbedder": "vcs_runtime.inference.custom",
    "TextSegmenter": "vcs_runtime.segmentation.custom",
    "score": "vcs_runtime.scoring.scorer",
}
#: Packages that `dir` lists and the first use imports.
_PACKAGES = ("capi", "compat", "integrations", "report", "training")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used.

        The command line does not have to wait for all names.
        """
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*__all__, *_PACKAGES})
