"""Processes over the stand-ins of CUDA, which compute nothing, open models without their proofs.

Python imports this module by itself where `tests/lib` is in PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_PROOF = "vcs_runtime.inference.proof"


class _Unproved(MetaPathFinder):
    """Loads the module of proofs, whose `check` then does nothing."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != _PROOF:
            return None
        spec: ModuleSpec | None = PathFinder.find_spec(name, path)
        assert spec
        loader: Any = spec.loader
        load = loader.exec_module

        def loaded(module: Any) -> None:
            load(module)
            module.check = lambda *_, **__: None

        loader.exec_module = loaded
        return spec


if "STAND_IN_LOG" in os.environ:
    sys.meta_path.insert(0, _Unproved())
