"""Door: what commands have written, damaged, and read again by `report`, `compare`, `explain`, `rank` and --resume."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attack.cases import Attack, Door, Ground
from attack.checks import changed, complaints_about, run, snapshot
from attack.damage import damaged, value
from support.command_line import vcs
from support.stories import story, write_pairs

PAIRS = 6


def furnish(folder: Path, ground: Ground, pairs: int = PAIRS) -> None:
    """Write pairs, two of which cannot be scored, and the scores of two systems in every format."""
    folder.mkdir(parents=True)
    rows = [{"id": f"v{i}", "reference": story(i, 3), "generated": story(50 + i, 3)} for i in range(pairs)]
    rows[2]["generated"] = ""
    write_pairs(folder / "pairs.jsonl", rows)
    other = [{**row, "generated": story(80 + i, 2)} for i, row in enumerate(rows)]
    write_pairs(folder / "other-pairs.jsonl", other)
    for name in ("scores.jsonl", "scores.csv", "scores.tsv", "scores.parquet"):
        assert vcs("score", folder / "pairs.jsonl", "-o", folder / name, *ground.engine).code == 1
    assert vcs("score", folder / "other-pairs.jsonl", "-o", folder / "other.jsonl", *ground.engine).code == 0
    for name, key in (("references", "reference"), ("a", "generated"), ("b", "generated")):
        texts = {row["id"]: row[key] for row in (other if name == "b" else rows)}
        path = folder / ("references.json" if name == "references" else f"systems/{name}.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(texts))
    summaries = [{"name": f"s{i}", "visil": i / 4, "tokens": 3 + i, "text": story(i)} for i in range(3)]
    lines = [{"id": f"v{i}", "signature": "s", "summaries": summaries} for i in range(3)]
    write_pairs(folder / "visil.jsonl", lines)
    answers = [
        {"id": f"v{i}", "name": f"s{j}", "correct": (i + j) % 2, "total": 2}
        for i in range(3)
        for j in range(3)
    ]
    write_pairs(folder / "answers.jsonl", answers)


def twisted(rng: random.Random, content: bytes) -> bytes:
    """JSON lines in which values were exchanged, doubled or removed; what is no JSON lines is damaged."""
    if rng.random() < 0.4:
        return damaged(rng, content)
    try:
        lines: list[Any] = [json.loads(line) for line in content.splitlines()]
    except ValueError:
        return damaged(rng, content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if lines:
            _twist(rng, lines)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _twist(rng: random.Random, lines: list[Any]) -> None:
    at = rng.randrange(len(lines))
    line = lines[at]
    kind = rng.randrange(8)
    if kind == 0:
        lines[at] = value(rng)
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines.insert(rng.randrange(len(lines) + 1), line)
    elif kind == 3:
        rng.shuffle(lines)
    elif isinstance(line, dict) and line:
        name = rng.choice(list(line))
        inner = rng.choice(line[name]) if isinstance(line[name], list) and line[name] else None
        if kind == 4:
            del line[name]
        elif isinstance(inner, dict) and inner and rng.random() < 0.7:
            inner[rng.choice(list(inner))] = value(rng)
        else:
            lines[at] = {**line, name: value(rng)}


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    template = ground.folder / "results"
    furnish(template, ground)
    whole = (template / "scores.jsonl").read_bytes()

    def attack(rng: random.Random, folder: Path) -> list[str]:
        shutil.copytree(template, folder, dirs_exist_ok=True)
        if rng.random() < 0.35:
            return _resume(rng, folder, ground, whole)
        return _read(rng, folder, ground)

    yield attack


def _read(rng: random.Random, folder: Path, ground: Ground) -> list[str]:
    scores = rng.choice(
        ("scores.jsonl", "scores.jsonl", "scores.jsonl", "scores.csv", "scores.tsv", "scores.parquet")
    )
    out = folder / "out"
    page = out / rng.choice(("r.html", "r.html", "r.html", "r.pdf"))
    damaged_file, arguments = rng.choice((
        # What is no longer recognised as scores is taken for pairs, which need the models.
        (scores, ["report", folder / scores, "-o", out / "r.html", *ground.engine]),
        (scores, ["report", folder / scores, folder / "other.jsonl", "-o", page, *ground.engine]),
        (scores, ["report", folder / scores, "--pairs", folder / "pairs.jsonl", "-o", out / "r.html", *ground.engine]),
        ("pairs.jsonl", ["report", folder / scores, "--pairs", folder / "pairs.jsonl", "-o", out / "r.html", *ground.engine]),
        (scores, ["compare", folder / scores, folder / "other.jsonl", "--resamples", "100"]),
        (scores, ["compare", folder / scores, folder / "other.jsonl", "--resamples", "100", "--format",
                  rng.choice(("markdown", "latex", "csv", "json")), "--all-pairs"]),
        (scores, ["compare", folder / "other.jsonl", folder / scores, "--resamples", "100", "--ignore-signatures",
                  "--moved", "2"]),
        ("pairs.jsonl", ["explain", folder / "pairs.jsonl", *ground.engine, *rng.choice(([], ["--json"], ["--id", "v1"]))]),
        ("visil.jsonl", ["visil", "select", folder / "visil.jsonl", "--alpha", "0.1"]),
        ("visil.jsonl", ["visil", "correlate", folder / "visil.jsonl", "--answers", folder / "answers.jsonl", "--shuffles", "100"]),
        ("answers.jsonl", ["visil", "correlate", folder / "visil.jsonl", "--answers", folder / "answers.jsonl", "--shuffles", "100"]),
        ("visil.jsonl", ["visil", "report", folder / "visil.jsonl", "--answers", folder / "answers.jsonl"]),
        ("answers.jsonl", ["visil", "report", folder / "visil.jsonl", "--answers", folder / "answers.jsonl"]),
        ("systems/a.json", ["experiment", "rank", "--references", folder / "references.json", "--predictions",
                            folder / "systems", "-o", out / "rank", "--resamples", "100", "--workers", "1", *ground.engine]),
    ))  # fmt: skip
    out.mkdir()
    path = folder / damaged_file
    whole = rng.random() < 0.05
    if not whole:
        path.write_bytes(twisted(rng, path.read_bytes()))
    before = snapshot(folder)
    done = run(*arguments)
    named = (path.name, "--pairs", "other.jsonl", "scores", "systems", "visil.jsonl", "answers.jsonl")
    found = complaints_about(done, arguments, names=named)
    made = changed(before, snapshot(folder))
    if others := [name for name in made if name != "out" and not name.startswith("out/")]:
        found.append(f"{others} changed: {arguments}")
    if arguments[0] == "report" and done.code == 2 and made:
        found.append(f"refused, and yet {made} is there: {arguments}")
    if whole and done.code == 2:
        found.append(f"refused, though nothing is damaged: {arguments}: {done}")
    return found


def _resume(rng: random.Random, folder: Path, ground: Ground, whole: bytes) -> list[str]:
    """A damaged output is either refused and left alone, or completed: what it kept and no more or less."""
    output, pairs = folder / "scores.jsonl", folder / "pairs.jsonl"
    lines = whole.splitlines(keepends=True)
    content = b"".join(lines[: rng.randrange(len(lines) + 1)])
    if rng.random() < 0.5:
        content += rng.choice(lines)[: rng.randrange(200)]
    if rng.random() < 0.8:
        content = twisted(rng, content)
    output.write_bytes(content)
    if rng.random() < 0.2:
        pairs.write_bytes(twisted(rng, pairs.read_bytes()))
    arguments = ["score", pairs, "-o", output, "--resume", *ground.engine]
    before = snapshot(folder)
    done = run(*arguments)
    found = complaints_about(done, arguments, names=(output.name, pairs.name))
    left = output.read_bytes()
    if [name for name in changed(before, snapshot(folder)) if name != output.name]:
        found.append("another file than the output was changed")
    if done.code == 2 and left != content:
        found.append(f"refused, and yet the output was changed: {done.stderr}")
    if done.code in (0, 1):
        same = pairs.read_bytes() == (ground.folder / "results/pairs.jsonl").read_bytes()
        # Not `splitlines`: a carriage return is a space between two values of JSON.
        ids = [json.loads(line)["id"] for line in left.split(b"\n") if line.strip()]
        if same and ids != [f"v{i}" for i in range(PAIRS)]:
            found.append(f"the completed output has the ids {ids}")
        kept = content[: content.rfind(b"\n") + 1]
        if not left.startswith(kept):
            found.append("lines of the earlier run were changed")
        if same and content and whole.startswith(content) and left != whole:
            found.append("a cut output was completed with other bytes than those of an undisturbed run")
    return found


RESULTS = Door("results", 16, "outputs, damaged, and read again: reports, comparisons, --resume", _open)
