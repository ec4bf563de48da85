"""The figures of docs/benchmarks/texts.md: what cleaning changes, and how alike the default model finds sentences of other languages.

    python benchmarks/texts.py [CLIP_CC]

CLIP_CC is the folder of references.json and predictions/MODEL.json; without it only own texts are scored.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

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
    pairs = {"a copy as a list": (" ".join(SENTENCES), LISTED)}
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        rows = json.loads((folder / "references.json").read_text("utf-8"))
        references = {row["id"]: row["summary"] for row in rows}
        for model, video in OUTPUTS:
            texts = json.loads((folder / f"predictions/{model}.json").read_text("utf-8"))
            pairs[f"{model}/{video}"] = (references[video], texts[video])
    with Scorer.open() as scorer:
        for name, pair in pairs.items():
            for clean in ((), CLEAN):
                [result] = scorer.iter_scores([pair], Options(clean=clean))
                print(f"{name}, {'cleaned' if clean else 'raw'}: {result.n_gen} chunks, LAS precision "
                      f"{result.las_precision:.3f}, LAS {result.las:.3f}, GAS {result.gas:.3f}, margin "
                      f"{result.margin:.3f}, VCS {result.vcs:.3f}")  # fmt: skip
        for language, pair in PAIRS.items():
            left, right = scorer.embedder.embed(pair)
            print(f"{language}: cosine {float(left @ right):.2f}")


if __name__ == "__main__":
    main()
