"""Bundles with TensorRT engines over the fake, for tests of the commands and of the runtime."""

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


def built(bundle: Path) -> Path:
    """Build engines of a bundle, and return its folder."""
    with patch.object(tensorrt_engines, "_check_near"):
        tensorrt_engines.build_engines(open_bundle(bundle), log=lambda line: None)
    return bundle


def checked(bundle: Path, cuda_seconds: float) -> None:
    """Check engines of a bundle, which take a second where CUDA takes so many."""
    with patch.multiple(
        tensorrt_engines, job_texts=lambda: TEXTS, in_turns=lambda runs: (1.0, cuda_seconds)
    ):
        tensorrt_engines.check_engines(open_bundle(bundle), log=lambda line: None)


def run(*arguments: Any) -> Any:
    """Run `vcs-runtime`, and return click's result."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])
