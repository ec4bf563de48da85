"""The alignment core of the Video Comprehension Score: arrays in, numbers out."""

from vcs_numba.alignment import Alignment, Candidates, Orientation, align
from vcs_numba.batch import SCORE_DTYPE, score_batch
from vcs_numba.embeddings import score_embeddings
from vcs_numba.hm_cf import HmCf, hm_cf
from vcs_numba.jit.kernel import warm_up
from vcs_numba.kernels import wordpiece as _wordpiece  # noqa: F401 warm_up compiles it, too
from vcs_numba.params import Params
from vcs_numba.recombine import recombine
from vcs_numba.scores import REFERENCE_NAMES, Scores, score_similarity
from vcs_numba.substitution import (
    Replacements,
    Strict,
    Substitution,
    WordPair,
    strict,
    strict_cap,
    substitution,
    substitution_batch,
)
from vcs_numba.substitution_inputs import WORD_CLASSES, SubstitutionParams, Vocabulary, Words

__all__ = [
    "REFERENCE_NAMES",
    "SCORE_DTYPE",
    "WORD_CLASSES",
    "Alignment",
    "Candidates",
    "HmCf",
    "Orientation",
    "Params",
    "Replacements",
    "Scores",
    "Strict",
    "Substitution",
    "SubstitutionParams",
    "Vocabulary",
    "WordPair",
    "Words",
    "align",
    "hm_cf",
    "recombine",
    "score_batch",
    "score_embeddings",
    "score_similarity",
    "strict",
    "strict_cap",
    "substitution",
    "substitution_batch",
    "warm_up",
]
