"""Comparisons as LaTeX tables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.comparisons import run
from support.stories import write_pairs

NAMES = ("a_b & 50 %", "{x}", "[/x]", "#$~^\\", "*<|>")
NAMED = [part for name in NAMES for part in ("--name", name)]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix("\\\\"))]


@pytest.mark.parametrize(
    "more", [[], ["--all-pairs"], ["--score", "vcs", "--score", "las", "--all-pairs"]]
)
def test_latex_is_balanced_and_names_are_escaped(five: list[Path], more: list[str]) -> None:
    done = run(*five, *NAMED, "--format", "latex", *more)
    assert done.exit_code == 0, done.output
    body = [line for line in done.stdout.splitlines() if not line.startswith("%")]
    assert "% vcs|one" in done.stdout.splitlines()
    text = "\n".join(body)
    for part in (
        r"a\_b \& 50 \%",
        r"\{x\}",
        r"{}[/x]",
        r"\#\$\textasciitilde{}\textasciicircum{}\textbackslash{}",
        r"{}*\textless{}\textbar{}\textgreater{}",
    ):
        assert f"\n{part} & " in text
    bare = re.sub(r"\\.", "", text)  # without what is escaped
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not set("#_%~") & set(re.sub(r"\$[^$]*\$", "", bare))
    assert (
        text.count(r"\begin{tabular}")
        == text.count(r"\end{tabular}")
        == 1 + ("--all-pairs" in more)
    )
    for table in text.split(r"\begin{tabular}")[1:]:
        columns = len(re.findall("[lr]", table[: table.index("\n")]))
        rows = [
            line
            for line in table.splitlines()
            if line.endswith(r"\\") and "multicolumn" not in line
        ]
        assert {len(cells(line)) for line in rows} == {columns}
    assert re.search(r"& \$0\.\d{3}\^\{\*\*\}\$", text)
    assert re.search(r"& \$\\mathbf\{0\.\d{3}\}(\^\{\*+\})?\$", text)
    assert text.count(r"\caption{") == text.count(r"\label{tab:") == text.count(r"\begin{tabular}")


#: The least document for a table of ours: what papers load anyway.
DOCUMENT = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX is installed")
@pytest.mark.parametrize("more", [[], ["--all-pairs", "--score", "vcs", "--score", "las"]])
def test_latex_compiles(five: list[Path], tmp_path: Path, more: list[str]) -> None:
    table = run(*five, *NAMED, "--format", "latex", "--intervals", *more).stdout
    (tmp_path / "t.tex").write_text(f"{DOCUMENT}\n{table}\\end{{document}}\n")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout
    assert (tmp_path / "t.pdf").stat().st_size > 10_000


def test_intervals_stand_beside_the_means_in_latex(five: list[Path], tmp_path: Path) -> None:
    table = run(*five, "--format", "latex", "--intervals").stdout
    assert len(re.findall(r"\$.*0\.\d{3}.*\$ \$\\pm 0\.\d{3}\$ \\\\", table)) == 5
    assert "half of a 95" in table[table.index(r"\caption") :]
    assert run(*five, "--intervals").exit_code == 2
    for path in (tmp_path / "a.jsonl", tmp_path / "b.jsonl"):
        write_pairs(path, [{"id": "1", "vcs": 0.5, "signature": "s"}])
    lone = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    assert r"\pm" not in run(*lone, "--format", "latex", "--intervals").stdout
    assert "±" not in run(*lone).stdout.splitlines()[1]
    [system, _] = json.loads(run(*lone, "--format", "json").stdout)["systems"]
    assert system["scores"]["vcs"]["ci95"] == [None, None]


def test_equal_best_means_are_all_bold_in_latex(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.jsonl" for name in "abc"]
    for path, value in zip(files, (0.5, 0.5, 0.25), strict=True):
        write_pairs(path, [{"id": str(i), "vcs": value, "signature": "s"} for i in range(3)])
    assert run(*files, "--format", "latex").stdout.count(r"\mathbf{0.500}") == 2
