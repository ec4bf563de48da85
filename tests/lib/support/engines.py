"""Bundles with TensorRT engines on stand-ins, for tests of the commands and of the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from support.stories import story
from vcs_export.checks import tensorrt_engines
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

TEXTS = [story(i, 1 + i % 3) for i in range(12)]


def built(
    bundle: Path, *shapes: tuple[int, int], seconds: tuple[float, float] = (1.0, 1.3)
) -> Path:
    """Build engines of a bundle for the largest batches `shapes`, and return its folder."""
    own = {"largest_batches": lambda spec: shapes} if shapes else {}
    texts = ["a man", *(TEXTS if not shapes else [])]
    with patch.multiple(
        tensorrt_engines, job_texts=lambda: texts, in_turns=lambda runs: seconds, **own
    ):
        tensorrt_engines.build_engines(open_bundle(bundle))
    return bundle


def run(*arguments: Any) -> Any:
    """Run `vcs-runtime`, and return click's result."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])
