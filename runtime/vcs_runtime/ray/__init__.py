"""Scoring on many machines through Ray (extra `ray`; docs/guide/clusters.md).

`ScoreBatch` is the actor. `score_dataset` maps a data set of Ray Data through a pool of actors, and
`score_shards` also writes the scores. `score_file` does the work of `vcs-runtime score --runner
ray`, through Ray Data as well. This package computes no scores: each actor opens a `Scorer`.

Inside this package `import ray` means Ray.
"""

from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.ray.cluster import Needs, connected
from vcs_runtime.ray.dataset import PairColumns, ScoreBatch, score_dataset, score_shards
from vcs_runtime.ray.job import score_file

__all__ = [
    "JobFiles",
    "Needs",
    "PairColumns",
    "ScoreBatch",
    "connected",
    "score_dataset",
    "score_file",
    "score_shards",
]
