"""Whole jobs on a GPU that returns random vectors."""

from __future__ import annotations

from pathlib import Path

from support.cuda_stand_ins import DryGpu
from support.stories import read_lines, story, write_pairs

PAIRS = 2200  # more than one block


def test_a_job_of_several_blocks_scores_every_pair(
    dry_gpu: DryGpu, tiny_bundle: Path, tmp_path: Path
) -> None:
    pairs, scores = tmp_path / "pairs.jsonl", tmp_path / "scores.jsonl"
    rows = [
        {"id": i, "reference": story(i // 3, 2), "generated": story(1000 + i, 2)}
        for i in range(PAIRS)
    ]
    write_pairs(pairs, rows)
    done = dry_gpu.command(
        f"score {pairs} -o {scores} --bundle {tiny_bundle} --device cuda:0".split(),
        vectors=32,
    )
    lines = read_lines(scores)
    assert done.returncode == 0, done.stderr
    assert [line["id"] for line in lines] == list(range(PAIRS))
    assert all(0 <= line["vcs"] <= 1 for line in lines)
