"""Texts over the tiny tokenizer's words, and files of pairs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from support.checkpoints.bert import WORDS

_LONG = [word for word in WORDS if len(word) > 4]


def story(seed: int, sentences: int = 6) -> str:
    """A text of some sentences over the tiny tokenizer's words."""
    rng = random.Random(seed)
    # The last word is a long one: "a." would be taken for an initial.
    return " ".join(
        " ".join([*rng.choices(WORDS, k=rng.randint(2, 11)), rng.choice(_LONG)]).capitalize() + "."
        for _ in range(sentences)
    )


def write_pairs(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def stripped(seed: int, sentences: int) -> str:
    return story(seed, sentences).replace(".", "")
