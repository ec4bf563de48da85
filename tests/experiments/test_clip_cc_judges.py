"""The leaderboard of CLIP-CC-Bench by its five judges: from their checkpoints to results that it
would take.

The checkpoints are tiny and random, of the true families, where the benchmark keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tokenizers import Tokenizer

from support import clip_cc, numpy_decoder, numpy_nv_embed
from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.command_line import vcs
from support.experiments import sentences, write_json
from support.stories import read_lines, story
from support.tiny_decoder import write_tiny_decoder

pytestmark = pytest.mark.slow
CLIPS = [f"{i:03}" for i in range(1, 5)]
SYSTEMS = ("oryx", "longva", "mplug")


class Judge(NamedTuple):
    """A judge: its folder in the benchmark's checkout, its family, and its export command."""

    model: str
    family: str
    command: tuple[str, ...]


JUDGES = {
    "gte-qwen2-7b": Judge(
        "gte-Qwen2-7B-instruct", "gte-qwen2", ("decoder", "--attention", "bidirectional")
    ),
    "kalm": Judge("KaLM-Embedding-Gemma3-12B-2511", "kalm-gemma3", ("decoder",)),
    "nemo": Judge("llama-embed-nemotron-8b", "nemotron", ("decoder",)),
    "nv-embed": Judge("NV-Embed-v2", "", ("nv-embed-v2",)),
    "qwen3-8b": Judge("Qwen3-Embedding-8B", "qwen3", ("decoder",)),
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the benchmark: a clip without predictions, three systems, five checkpoints."""
    folder = tmp_path_factory.mktemp("CLIP-CC-Bench")
    references = [{"id": clip, "summary": text_of(i)} for i, clip in enumerate([*CLIPS, "126"])]
    write_json(folder / "data/ground_truth/clip_cc_dataset.json", references)
    for k, system in enumerate(SYSTEMS):
        texts = {clip: text_of(generated(i, k)) for i, clip in enumerate(CLIPS)}
        write_json(folder / f"data/models/{system}.json", texts)
    for judge in JUDGES.values():
        place = folder / "embedding_models" / judge.model
        if judge.family:
            write_tiny_decoder(place, judge.family)
        else:
            write_tiny_nv_embed(place, positions=512)
    return folder


def text_of(seed: int) -> str:
    return " ".join(sentences(seed))


def generated(clip: int, system: int) -> int:
    """Seed of a system's text: of some clips it describes the right one."""
    return clip if clip % 3 < system else 50 + 9 * system + clip


@pytest.fixture(scope="module")
def board(checkout: Path, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the one command, with a system that is added."""
    work = tmp_path_factory.mktemp("judges")
    for name, judge in JUDGES.items():
        done = vcs(
            "export",
            *judge.command,
            *f"--from {checkout}/embedding_models/{judge.model} --precision fp32".split(),
            "-o",
            work / name,
        )
        assert done.code == 0, done.stderr
    write_json(work / "mine.json", {clip: story(i) for i, clip in enumerate(CLIPS)})
    judges = [argument for name in JUDGES for argument in ("--judge", work / name)]
    done = vcs(
        *f"experiment clip-cc-bench {checkout}".split(),
        *judges,
        *f"--add {work}/mine.json -o {work}/board --segmenter {tiny_bundle} --device cpu".split(),
        "--resamples",
        200,
    )
    assert done.code == 0, done.stderr
    # Random weights are unfit, and nothing else is said.
    assert [line for line in done.stderr.splitlines() if "unrelated texts" not in line] == []
    assert "mine is number 1 of 4 systems." in done.stdout
    # They are all there, under its names.
    assert "needs results of all its judges" not in done.stdout
    return work / "board"


@pytest.mark.parametrize("name", JUDGES)
def test_each_judge_scores_as_the_benchmarks_code_does(
    checkout: Path, board: Path, name: str
) -> None:
    embed = embedder(checkout, JUDGES[name])
    rows = {row["id"]: row for row in read_lines(board / f"scores/{name}/mplug.jsonl")}
    for i, clip in list(enumerate(CLIPS))[1:]:
        reference, other = sentences(i), sentences(generated(i, 2))
        expected = clip_cc.hm_cf(
            np.array([embed(text) for text in reference]),
            np.array([embed(text) for text in other]),
            embed(" ".join(reference)),
            embed(" ".join(other)),
        )
        assert {key: rows[clip][key] for key in expected} == pytest.approx(expected, abs=1e-5)


def embedder(checkout: Path, judge: Judge) -> Callable[[str], Any]:
    """What turns a text into its vector, in NumPy: as published, without an instruction."""
    folder = checkout / "embedding_models" / judge.model
    if judge.family:
        given = {"causal": False} if judge.family == "gte-qwen2" else {}
        return lambda text: numpy_decoder.embed(
            folder, numpy_decoder.token_ids(folder, text), **given
        )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: numpy_nv_embed.embed(
        folder, [1, *tokenizer.encode(text, add_special_tokens=False).ids, 2]
    )


def test_the_five_judges_rank_by_borda_and_leave_files_for_the_benchmark(board: Path) -> None:
    files = sorted(
        str(path.relative_to(board / "submission")) for path in board.glob("submission/*/*.json")
    )
    assert files == sorted(
        f"{judge}/{system}.json" for judge in JUDGES for system in (*SYSTEMS, "mine")
    )
    done = vcs("experiment", "clip-cc-bench", "--published", board / "submission", "--json")
    found = json.loads(done.stdout)
    assert (found["judges"], found["max_borda"]) == (sorted(JUDGES), 15)
    means = {
        judge: {
            path.stem: float(np.mean([row["hm_cf"] for row in read_lines(path)]))
            for path in (board / "scores" / judge).iterdir()
        }
        for judge in JUDGES
    }
    assert {row["system"]: row["borda"] for row in found["systems"]} == clip_cc.borda(means)
    assert found["systems"][0]["system"] == "mine"
    agreement = json.loads((board / "results.json").read_text())["tables"]["agreement"]
    assert len(agreement) == 10
