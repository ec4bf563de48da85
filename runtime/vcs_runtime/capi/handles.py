"""Handles for C: open models, and scorers on them."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import Final, TypeVar

from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.scorer import Scorer

_CLOSED: Final = "the scorer's model was closed"


class Model:
    """An open `Scorer`. It is closed when its handle has been given back *and* no call uses it any more.

    A call uses it by `with model as scorer:`, which raises ValueError for a closed model.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._users = 1  # the handle; each call adds one
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Refuse new calls. The last running call closes the scorer."""
        with self._lock:
            if self._closed:  # by another thread, at the same time
                return
            self._closed = True
        self.__exit__()

    def __enter__(self) -> Scorer:
        with self._lock:
            if self._closed:
                raise ValueError(_CLOSED)
            self._users += 1
        return self._scorer

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            unused = self._users == 0
        if unused:
            self._scorer.close()


@dataclass(frozen=True)
class ScorerState:
    """A scorer of the C API."""

    model: Model
    options: Options


Object = TypeVar("Object", Model, ScorerState)


class Handles:
    """Objects by number. No number is used twice, so that a handle which was given back is recognised."""

    def __init__(self) -> None:
        self._objects: dict[int, Model | ScorerState] = {}
        self._numbers = itertools.count(16, 16)  # C sees pointers: never NULL, and aligned

    def keep(self, item: Model | ScorerState) -> int:
        """Return a new handle for an object."""
        handle = next(self._numbers)
        self._objects[handle] = item
        return handle

    def get(self, handle: int, kind: type[Object], name: str) -> Object:
        """Return the object of a handle. Raises ValueError with `name` if there is none of `kind`."""
        item = self._objects.get(handle)
        if not isinstance(item, kind):
            raise ValueError(_unknown(handle, name))
        return item

    def give_back(self, handle: int, kind: type[Object], name: str) -> Object:
        """Return the object of a handle and make the handle invalid. Errors as for `get`."""
        item = self.get(handle, kind, name)
        if self._objects.pop(handle, None) is None:  # another thread was faster
            raise ValueError(_unknown(handle, name))
        return item


def _unknown(handle: int, name: str) -> str:
    return f"{name}: was given back, or never was one" if handle else f"{name} is NULL"
