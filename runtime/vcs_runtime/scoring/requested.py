"""A block of pairs on its way to the vectors of its texts."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from vcs_runtime.inference.vector_store import VectorRequest
from vcs_runtime.scoring.preparation import Block
from vcs_runtime.util.progress import units_in_work

T = TypeVar("T")


class Requested(NamedTuple, Generic[T]):
    """A block of pairs whose texts need vectors."""

    block: Block[T]
    request: VectorRequest
    first: float


def embed(requested: Requested[T]) -> Requested[T]:
    """Compute the vectors of a block, and return it."""
    with units_in_work(len(requested.block), requested.first):
        requested.request.run()
    return requested
