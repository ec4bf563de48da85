"""Texts drawn at random: many scripts and lengths, words that tokenizers know or do not know."""

from __future__ import annotations

import random

from support.checkpoints.tokenizers import WORDS

_SCRIPTS = (
    "собака идёт через улицу",
    "门 打开 女人 站在 河边",
    "ένας σκύλος τρέχει",
    "رجل يفتح الباب",
    "कुत्ता दौड़ता है",
    "犬が走っている",
    "개가 달린다",
    "café straße naïve Ångström",
    "🐕‍🦺 🚪 ☃ é e\u0301",
    "12 345.6 (7/8), '90s\u00a0x\tend\n\nof it",
)


def drawn_texts(count: int, most_words: int, seed: int = 0) -> list[str]:
    """Return `count` texts of 1 to `most_words` words; the longest one is among them."""
    rng = random.Random(seed)
    lengths = [1, most_words, *(int(most_words ** rng.random()) for _ in range(count - 2))]
    texts = []
    for length in lengths:
        words = rng.choices(WORDS, k=length)
        for _ in range(length // 6):
            words[rng.randrange(length)] = rng.choice(rng.choice(_SCRIPTS).split(" "))
        texts.append(" ".join(words))
    return [*texts, *_SCRIPTS]
