"""What this machine knows about TensorRT engines: which it may load, and how fast they are.

An engine is machine code, unlike all else in a bundle. It is loaded only on the machine that built it, or
where someone trusts its maker by `vcs-runtime engine trust`. Its speed is known only where
`vcs-runtime engine check` has measured it. Files in `home()` record both, by the hash of the engines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from vcs_runtime.bundle.manifest import EngineSpec
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.bundle.paths import home
from vcs_runtime.util.atomic import write_whole

FASTER = 1.05
"""Speed, divided by that of CUDA, from which on "auto" prefers engines: less is within the noise."""


def is_trusted(bundle: Bundle, engine: EngineSpec) -> bool:
    """Return whether an engine, byte for byte, was built on this machine or is trusted here."""
    return _trust_mark(bundle, engine).exists()


def trust(bundle: Bundle, engine: EngineSpec) -> None:
    """Record that an engine may be loaded on this machine; raises OSError."""
    mark = _trust_mark(bundle, engine)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def speed(bundle: Bundle, engines: Sequence[EngineSpec]) -> float | None:
    """Return the speed of a part's engines, divided by that of CUDA on the same GPU."""
    try:
        return float(json.loads(_speed_mark(bundle, engines).read_text("utf-8"))["times_cuda"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_speed(bundle: Bundle, engines: Sequence[EngineSpec], times_cuda: float | None) -> None:
    """Record the measured speed of a part's engines, or forget it; raises OSError."""
    mark = _speed_mark(bundle, engines)
    if times_cuda is None:
        mark.unlink(missing_ok=True)
        return
    mark.parent.mkdir(parents=True, exist_ok=True)
    about = {"times_cuda": times_cuda, "gpu": engines[0].gpu, "engines": [item.model for item in engines]}
    write_whole(mark, json.dumps(about) + "\n")


def describe_speed(bundle: Bundle, times_cuda: float | None) -> str:
    """Describe the result of `speed` in words, with the command that measures it."""
    if times_cuda is None:
        return f"engine not measured yet: run `vcs-runtime engine check {bundle.root}`"
    return f"{times_cuda:.2f} times as fast as CUDA here"


def _trust_mark(bundle: Bundle, engine: EngineSpec) -> Path:
    digests = "".join(bundle.digests((engine.model, engine.engine)))
    return home() / "trusted" / hashlib.sha256(digests.encode()).hexdigest()


def _speed_mark(bundle: Bundle, engines: Sequence[EngineSpec]) -> Path:
    # The name of the GPU is among the facts by which engines fit: it is that of this machine.
    facts = sorted(f"{item.gpu}|{''.join(bundle.digests((item.model, item.engine)))}" for item in engines)
    return home() / "measured" / f"{hashlib.sha256('|'.join(facts).encode()).hexdigest()}.json"
