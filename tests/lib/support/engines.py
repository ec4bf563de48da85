"""Bundles with TensorRT engines on stand-ins, for tests of the commands and of the runtime."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from support.stories import story
from vcs_export.checks import tensorrt_engines
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

TEXTS = [story(i, 1 + i % 3) for i in range(12)]


def built(bundle: Path, *shapes: tuple[int, int]) -> Path:
    """Build engines of a bundle, with these largest batches in place of its own, and return its folder."""
    own = patch.object(tensorrt_engines, "largest_batches", lambda spec: shapes)
    with own if shapes else nullcontext():
        tensorrt_engines.build_engines(open_bundle(bundle))
    return bundle


def run(*arguments: Any) -> Any:
    """Run `vcs-runtime`, and return click's result."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])
