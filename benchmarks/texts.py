"""The figures of docs/benchmarks/texts.md: what cleaning changes, and how alike the default model finds sentences of other languages.

    python benchmarks/texts.py [CLIP_CC] [--keep]

CLIP_CC is the folder of references.json and predictions/MODEL.json; without it only own texts are scored.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from records import ANY, keep

from vcs_runtime import Options, Scorer

CLEAN = ("markdown", "think", "list-numbers")
OUTPUTS = (("longva", "096"), ("minicpm", "020"), ("minicpm", "014"))
PAIRS = {
    "English": ("A man opens the door.", "Children sing at school."),
    "Russian": ("Мужчина открывает дверь.", "Дети поют в школе."),
    "Chinese": ("一个男人打开门。", "孩子们在学校唱歌。"),
}
SENTENCES = (
    "A man opens the door.", "He walks into the kitchen.", "A dog sleeps on the floor.", "Children sing outside.",
)  # fmt: skip
LISTED = "<think>I should make a list.</think>\n" + "\n".join(
    f"{i}. **{sentence[:-1]}**." for i, sentence in enumerate(SENTENCES, 1)
)


def main() -> None:
    """Score, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clip_cc", type=Path, nargs="?")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    pairs = {"a copy as a list": (" ".join(SENTENCES), LISTED)}
    if folder := arguments.clip_cc:
        rows = json.loads((folder / "references.json").read_text("utf-8"))
        references = {row["id"]: row["summary"] for row in rows}
        for model, video in OUTPUTS:
            texts = json.loads((folder / f"predictions/{model}.json").read_text("utf-8"))
            pairs[f"{model}/{video}"] = (references[video], texts[video])
    rows = []
    with Scorer.open("default", "cpu") as scorer:
        signatures = {"ours default:cpu": scorer.signature}
        for name, pair in pairs.items():
            cells: dict[str, list[str]] = {}
            for clean in ((), CLEAN):
                [result] = scorer.iter_scores([pair], Options(clean=clean))
                print(f"{name}, {'cleaned' if clean else 'raw'}: {result.n_gen} chunks, LAS precision "
                      f"{result.las_precision:.3f}, LAS {result.las:.3f}, GAS {result.gas:.3f}, margin "
                      f"{result.margin:.3f}, VCS {result.vcs:.3f}")  # fmt: skip
                cells.setdefault("chunks", []).append(f"{result.n_gen}")
                for head, score in (
                    ("LAS precision", "las_precision"), ("LAS", "las"), ("GAS", "gas"), ("margin", "margin"), ("VCS", "vcs"),
                ):  # fmt: skip
                    cells.setdefault(head, []).append(f"{getattr(result, score):.3f}")
            rows.append(
                {"head": "output", "workload": name, "cells": {head: ", ".join(two) for head, two in cells.items()}}
            )  # fmt: skip
        cosines = {}
        for language, pair in PAIRS.items():
            left, right = scorer.embedder.embed(pair)
            cosines[language] = f"{float(left @ right):.2f}"
            print(f"{language}: cosine {cosines[language]}")
    if arguments.keep:
        languages = [
            {"head": "language", "workload": name, "cells": {"cosine": cosine}}
            for name, cosine in cosines.items()
        ]
        for kind, table in (("texts", rows), ("languages", languages)):
            print(keep(kind, [row | {"signatures": signatures} for row in table], place=ANY))


if __name__ == "__main__":
    main()
