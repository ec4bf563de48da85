"""ONNX Runtime's real CUDA provider over stand-ins of NVIDIA's libraries (`support.cuda_stand_ins`).

Tests write what they measured into a table, which is printed at the end: what was wrong on a GPU, and what is now.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from support.cuda_stand_ins import DryGpu, Run
from support.gpu_bundles import SHAPES, GpuBundles
from support.gpu_runs import embed, embed_as_on_a_cpu

Row = tuple[str, str, str]
_TABLE = pytest.StashKey[list[Row]]()


@pytest.fixture(scope="session")
def dry_gpu(tmp_path_factory: pytest.TempPathFactory) -> DryGpu:
    """Stand-ins that are compiled once."""
    return DryGpu.compile(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuBundles]:
    """Bundles that are built at their first use."""
    folder = tmp_path_factory.mktemp("bundles")
    yield GpuBundles(folder)
    shutil.rmtree(folder)  # gigabytes, which pytest would keep for three runs


@pytest.fixture(scope="session")
def embedded(dry_gpu: DryGpu, bundles: GpuBundles) -> Callable[[str], Run]:
    """Embed texts of every shape with a tiny NV-Embed of a precision, once."""
    return cache(lambda precision: dry_gpu.call(embed, str(bundles.nv_embed(precision)), SHAPES))


@pytest.fixture(scope="session")
def embedded_before(dry_gpu: DryGpu, bundles: GpuBundles) -> Callable[[str], Run]:
    """Run the same shapes through the graph that CUDA ran before it had one of its own, once."""
    return cache(lambda precision: dry_gpu.call(embed_as_on_a_cpu, str(bundles.nv_embed(precision)), SHAPES))


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Callable[[str, object, object], None]:
    """Write a row of the table: the number of a defect and what is measured, before, and now."""

    def write(what: str, before: object, now: object) -> None:
        request.config.stash.setdefault(_TABLE, []).append((what, str(before), str(now)))

    return write


def _number(line: Row) -> int:
    """Return the number with which a row begins: what belongs together is printed together."""
    first = line[0].split()[0]
    return int(first) if first.isdigit() else 99


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = terminalreporter.config.stash.get(_TABLE, [])
    if not rows:
        return
    rows.sort(key=_number)
    rows = [("   on a GPU, by the CUDA provider over stand-ins", "before", "now"), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    terminalreporter.section("what the CUDA provider does")
    for line in rows:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
