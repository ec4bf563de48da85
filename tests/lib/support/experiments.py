"""Small folders of experiments, in the formats of docs/guide/experiments.md."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from support.checkpoints.files import write_json
from support.stories import story

# Case: id, name, and the sentences that the rewrite of a description is made of.
REWRITES = {
    ("1.1", "Synonym Substitution"): lambda parts, other: parts,
    ("3.5", "Deletion (~50%)"): lambda parts, other: parts[::2],
    ("6.1", "Reverse Segments Order"): lambda parts, other: parts[::-1],
    ("4.8", "Complete Corruption"): lambda parts, other: other,
}
CASES = [name for _, name in REWRITES]


def sentences(seed: int) -> list[str]:
    return [part.strip() + "." for part in story(seed).split(".") if part.strip()]


def comparison(root: Path, scenes: int = 3) -> Path:
    """Write `comparison/` and `comparison-published/`; published BLEU-1 is .5, VCS_LCT0 .25, ..."""
    for scene in range(scenes):
        parts, other = sentences(scene), sentences(100 + scene)
        cases = [
            {"id": id_, "name": name, "description": " ".join(make(parts, other))}
            for (id_, name), make in REWRITES.items()
        ]
        value = {
            "ground_truth": " ".join(parts),
            "categories": [{"category": "all", "test_cases": cases}],
        }
        write_json(root / "comparison" / f"{scene}.json", value)
        published = root / "comparison-published" / f"{scene}.csv"
        published.parent.mkdir(parents=True, exist_ok=True)
        with published.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Metric", *CASES])
            writer.writerow(["BLEU-1", 1.0, 0.5, 1.0, 0.0])
            writer.writerow(["VCS_LCT0", 0.9, 0.5, 0.1, 0.0])
    return root


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of all files of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    """A table of the results in a folder."""
    found: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())["tables"][name]
    return found
