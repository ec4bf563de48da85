"""Bundles with TensorRT engines on stand-ins, for tests of the commands and of the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner

from support.stories import story
from vcs_export.checks.tensorrt_engines import build_engines
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

TEXTS = [story(i, 1 + i % 3) for i in range(12)]


def built(bundle: Path, **options: Any) -> Path:
    """Build engines of a bundle, and return its folder."""
    build_engines(open_bundle(bundle), "tensorrt:0", **options)
    return bundle


def run(*arguments: Any) -> Any:
    """Run `vcs-runtime`, and return click's result."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])
