"""Turn the folders of the authors' experiments into pairs files that `vcs-runtime score` reads.

    python benchmarks/pairs.py clip-cc FOLDER -o pairs.jsonl
    python benchmarks/pairs.py scenes FOLDER -o pairs.jsonl

`clip-cc` (references.json, predictions/MODEL.json): ids "MODEL/VIDEO". `scenes` (comparison/ with
rewrites of scenes, and authors/authors.json): ids "SCENE/REWRITE" and "SCENE/A1-A2".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

from records import parser_of


def clip_cc(folder: Path) -> Iterator[dict[str, Any]]:
    rows = json.loads((folder / "references.json").read_text("utf-8"))
    references = {row["id"]: row["summary"] for row in rows}
    for path in sorted((folder / "predictions").glob("*.json")):
        predictions = json.loads(path.read_text("utf-8"))
        for video in sorted(references):
            if video in predictions:
                yield _pair(f"{path.stem}/{video}", references[video], predictions[video])


def scenes(folder: Path) -> Iterator[dict[str, Any]]:
    by_number = sorted((folder / "comparison").glob("*.json"), key=lambda path: int(path.stem))
    for path in by_number:
        scene = json.loads(path.read_text("utf-8"))
        for category in scene["categories"]:
            for case in category["test_cases"]:
                yield _pair(
                    f"{path.stem}/{case['name']}", scene["ground_truth"], case["description"]
                )
    texts = json.loads((folder / "authors/authors.json").read_text("utf-8"))
    for name, by_author in texts.items():
        for one, other in permutations(sorted(by_author), 2):
            yield _pair(f"{name}/{one}-{other}", by_author[one], by_author[other])


def _pair(name: str, reference: str, generated: str) -> dict[str, Any]:
    return {"id": name, "reference": reference, "generated": generated}


def main() -> None:
    parser = parser_of(__doc__, keeps=False)
    parser.add_argument("what", choices=["clip-cc", "scenes"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows = {"clip-cc": clip_cc, "scenes": scenes}[arguments.what](arguments.folder)
    with arguments.output.open("w", encoding="utf-8") if arguments.output else sys.stdout as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
