"""Keywords of earlier versions, each of which ends with the name of the new one. Until 0.2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_RENAMED: Final = {
    "memory_mb": "cache_mb",
    "gpu_mem_gb": "gpu_memory_gb",
    "pair_mem_gb": "max_pair_gb",
    "failed": "JobFiles(on_error=...)",
}


def refusing_former_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Return the same function, which raises TypeError for a former keyword and names the new one."""

    @functools.wraps(function)
    def checked(*arguments: P.args, **values: P.kwargs) -> T:
        for former in _RENAMED.keys() & values.keys():
            raise TypeError(f"{former} is now {_RENAMED[former]}")
        return function(*arguments, **values)

    return checked
