"""The alignment core of the Video Comprehension Score: arrays in, numbers out (spec/vcs.md)."""


from vcs_numba.batch import SCORE_DTYPE, score_batch
from vcs_numba.embeddings import score_embeddings
from vcs_numba.params import Params
from vcs_numba.scores import REFERENCE_NAMES, Scores, score_similarity

__all__ = [



    "REFERENCE_NAMES",
    "SCORE_DTYPE",
    "Params",
    "Scores",

    "score_batch",
    "score_embeddings",
    "score_similarity",
]
