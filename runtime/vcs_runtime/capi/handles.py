"""What C knows by handle: open models, and scorers on them."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import Final, TypeVar

from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.scorer import Scorer

_CLOSED: Final = "the scorer's model was closed"


class Model:
    """An open `Scorer`, closed as soon as its handle is given back *and* no call uses it any more.

    A call uses it by `with model as scorer:`, which raises ValueError on a closed model.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._users = 1  # the handle's, and one for each call
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Refuse new calls; the last one that is running gives the memory back."""
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
    """A scorer: a model, and how it scores."""

    model: Model
    options: Options


Held = TypeVar("Held", Model, ScorerState)


class Handles:
    """Objects by number. A number is never used twice, so one that was given back is recognised."""

    def __init__(self) -> None:
        self._held: dict[int, Model | ScorerState] = {}
        self._numbers = itertools.count(16, 16)  # to C they are pointers: never NULL, aligned like others

    def keep(self, held: Model | ScorerState) -> int:
        """The handle of an object from now on."""
        handle = next(self._numbers)
        self._held[handle] = held
        return handle

    def get(self, handle: int, kind: type[Held], name: str) -> Held:
        """The object of a handle; ValueError, beginning with `name`, if it has none of this kind."""
        held = self._held.get(handle)
        if not isinstance(held, kind):
            raise ValueError(_not_held(handle, name))
        return held

    def give_back(self, handle: int, kind: type[Held], name: str) -> Held:
        """`get`, and the handle means nothing from now on."""
        held = self.get(handle, kind, name)
        if self._held.pop(handle, None) is None:  # another thread was faster
            raise ValueError(_not_held(handle, name))
        return held


def _not_held(handle: int, name: str) -> str:
    return f"{name}: was given back, or never was one" if handle else f"{name} is NULL"
