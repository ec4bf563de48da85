"""BERTScore of the embedded default against its authors' package, on the same weights."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import bert_score
import numpy as np

from vcs_experiments.metrics.bertscore import TokenStates, bertscore
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.inference.device import choose_device

TOLERANCE = 1e-5
TEXTS = (
    "A young woman slices a lemon on a wooden board.",
    "In a dim kitchen somebody cuts fruit; then she leaves.",
    "“Naïve façade” — THE SIGN SAYS: DO NOT ENTER! 😀",
    "a",
    "Der Bäcker grüßt, 一个男人在厨房里切洋葱。",
    "The robot lifts a heavy box, hesitates, and sets it down again beside the harbour. " * 13,
)


def test_precision_recall_and_f1_are_those_of_bert_score(
    bundle: Bundle, checkpoint: Path, tmp_path: Path
) -> None:
    for path in checkpoint.iterdir():
        (tmp_path / path.name).symlink_to(path)
    if not (settings := tmp_path / "tokenizer_config.json").exists():
        # Without a length transformers takes 10^30, at which its tokenizer fails.
        settings.write_text(
            json.dumps({"model_max_length": 512, "tokenizer_class": "BertTokenizer"})
        )
    states = TokenStates(bundle, choose_device("cpu")).get(TEXTS)
    assert max(len(found.counted) for found in states.values()) > 200  # within the window of 256
    pairs = [*permutations(TEXTS, 2), (TEXTS[0], TEXTS[0])]
    references, generated = ([*side] for side in zip(*pairs, strict=True))
    # One pair a batch: padding would match with a similarity of 0 where others are negative.
    theirs = bert_score.score(
        generated, references, model_type=str(tmp_path), num_layers=6, device="cpu", batch_size=1
    )
    ours = [tuple(bertscore(states[a], states[b]).values()) for a, b in pairs]
    difference = np.abs(np.array(ours) - np.array([part.tolist() for part in theirs]).T).max()
    print(f"BERTScore of {len(pairs)} pairs: {difference:.2e}")
    assert difference < TOLERANCE
