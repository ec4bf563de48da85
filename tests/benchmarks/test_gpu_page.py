"""docs/benchmarks/gpu.md: its tables are those of the results that it names, or of none."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/gpu/table.py"
PAGE = ROOT / "docs/benchmarks/gpu.md"
ROWS: list[dict[str, Any]] = [
    {"section": "machine", "what": "GPU", "name": "NVIDIA H200", "GB": 150.0},
    {"section": "machine", "what": "matrix product fp16", "TFLOP/s": 800.0},
    {"section": "packed", "what": "packed, 27x600", "tokens/s": 38123.0, "TFLOP/s": 600.0},
    {"section": "packed", "what": "packed, one pair", "tokens/s": 29950.0, "TFLOP/s": 400.0, "ms": 80.4},
    {"section": "varlen", "what": "all of it", "failed": "no | kernel"},
    # Seconds a token: 2 us beside the layers and 0.5 us a layer in fp16; 0.25 us a layer in fp8.
    {"section": "varlen", "what": "varlen, 27x600", "tokens/s": 1e6 / 18, "TFLOP/s": 640.0},
    {
        "section": "precisions",
        "what": "varlen, fp16, 4 layers, 27x600",
        "tokens/s": 1e6 / 4,
        "TFLOP/s": 640.0,
    },
    {
        "section": "precisions",
        "what": "varlen, fp8, 4 layers, 27x600",
        "tokens/s": 1e6 / 3,
        "TFLOP/s": 1200.0,
    },
    {"section": "peers", "what": "PyTorch unpadded, 27x600", "tokens/s": 33000.0},
]


def table(page: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--page", str(page), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def cells(page: Path, *start: str) -> list[str]:
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text("utf-8").splitlines()
    ]
    [line] = [line for line in lines if tuple(line[: len(start)]) == start]
    return line[len(start) :]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copy(PAGE, tmp_path))


def test_the_page_has_the_figures_of_the_file_that_it_names(copy: Path) -> None:
    [name] = re.findall(r"<!-- figures of (\S+) -->", PAGE.read_text("utf-8"))
    done = table(copy, "--none") if name == "none" else table(copy, ROOT / "benchmarks/results" / name)
    assert done.returncode == 0, done.stderr
    assert copy.read_text("utf-8") == PAGE.read_text("utf-8")


def test_measured_figures_stand_beside_calculated_ones(copy: Path, tmp_path: Path) -> None:
    results = tmp_path / "gpu-2026.json"
    results.write_text(json.dumps({"schema": 1, "tiny": False, "rows": ROWS}), "utf-8")
    calculated = cells(copy, "packed, fp16", "27x600")[-1]
    done = table(copy, results)
    assert done.returncode == 0, done.stderr
    assert cells(copy, "packed, fp16", "27x600") == ["38.1k", "75%", "33.0k", "-", calculated]
    assert cells(copy, "packed, fp16", "one pair")[:2] == ["80 ms", "50%"]
    assert cells(copy, "varlen, fp16", "630x26")[0] == "-"
    assert cells(copy, "varlen, fp16", "27x600")[:2] == ["55.6k", "80%"]
    assert cells(copy, "varlen, fp8", "27x600")[:2] == ["100.0k", "-"]  # 10 us; no rate of bare FP8 products
    assert cells(copy, "machine", "GPU") == ["name: NVIDIA H200; 150 GB"]
    assert cells(copy, "varlen", "all of it") == ["failed: no / kernel"]
    text = copy.read_text("utf-8")
    assert "<!-- figures of gpu-2026.json -->" in text
    assert "No figure of a real GPU exists yet" not in text
    assert table(copy, "--none").returncode == 0
    assert copy.read_text("utf-8") == PAGE.read_text("utf-8")


def test_figures_of_a_small_model_are_refused(copy: Path, tmp_path: Path) -> None:
    results = tmp_path / "tiny.json"
    results.write_text(json.dumps({"schema": 1, "tiny": True, "rows": ROWS}), "utf-8")
    done = table(copy, results)
    assert done.returncode != 0
    assert "small model" in done.stderr
    assert copy.read_text("utf-8") == PAGE.read_text("utf-8")


def test_the_page_about_judges_has_what_is_calculated() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/gpu/calculated.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = re.compile(r"^(\S+) +[\d.]+ +([\d.]+) +\d+ +(\d+ to \d+) +(\d+ to \d+)$", re.M)
    calculated = {name: figures for name, *figures in row.findall(done.stdout)}
    assert len(calculated) > 8
    page = (ROOT / "docs/guide/judges.md").read_text("utf-8")
    rows = re.findall(r"^\| (\S+) \| (\S+) GB \| (.+?) s \| (.+?) s \|", page, re.M)
    shown = {name.lower(): figures for name, *figures in rows}
    for figures in calculated.values():  # "2 to 2" is shown as 2
        figures[1:] = [re.sub(r"^(\d+) to \1$", r"\1", figure) for figure in figures[1:]]
    assert shown == calculated
