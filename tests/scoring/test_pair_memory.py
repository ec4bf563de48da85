"""Pairs whose similarities would fill the memory: they cost themselves, and not the job."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from support.command_line import vcs
from support.stories import read_lines, story, write_pairs
from vcs_runtime import Scorer, ScorerConfig, TextError
from vcs_runtime.scoring import block_scores

# Twelve sentences a side: 144 similarities, which are 1,152 bytes.
TEXTS = story(1, sentences=12), story(2, sentences=12)
FITS, TOO_LITTLE = 1.152e-6, 1.151e-6


def sentences(count: int) -> str:
    return "A dog runs. " * count


def test_a_pair_of_too_many_chunks_is_an_error_and_the_job_goes_on(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    source, output = tmp_path / "pairs.jsonl", tmp_path / "scores.jsonl"
    rows = [{"id": i, "reference": TEXTS[0], "generated": TEXTS[1]} for i in range(3)]
    rows[1] |= {"reference": sentences(12_000), "generated": sentences(12_001)}
    write_pairs(source, rows)
    command = ("score", source, "-o", output, "--bundle", tiny_bundle, "--device", "cpu")
    finished = vcs(*command)
    lines = read_lines(output)
    assert (finished.code, [line["id"] for line in lines]) == (1, [0, 1, 2])
    assert (
        lines[1]["error"]
        == "pair: the similarities of 12,000 x 12,001 chunks need 1.15 GB, more than 1: "
        "join more sentences to a chunk, or raise max_pair_gb (--max-pair-gb)"
    )
    assert lines[1]["error"] in finished.stderr
    assert all("vcs" in lines[i] for i in (0, 2))
    written = output.read_bytes()
    assert vcs(*command, "--resume").code == 1
    assert output.read_bytes() == written


def test_the_limit_is_lifted_by_an_option_and_changes_no_score(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    for name, text in zip(("ref.txt", "gen.txt"), TEXTS, strict=True):
        (tmp_path / name).write_text(text, "utf-8")
    pair = (tmp_path / "ref.txt", tmp_path / "gen.txt", "--json")
    command = ("score", *pair, "--bundle", tiny_bundle, "--device", "cpu")
    refused = vcs(*command, "--max-pair-gb", TOO_LITTLE)
    assert (refused.code, refused.stdout) == (1, "")
    assert "12 x 12 chunks" in refused.stderr
    assert vcs(*command, "--max-pair-gb", FITS) == vcs(*command)


def test_all_references_count_and_so_do_sentences_of_hm_cf(tiny_bundle: Path) -> None:
    with Scorer.open(tiny_bundle, device="cpu", max_pair_gb=FITS) as scorer:
        alone = scorer.score(*TEXTS)
        with pytest.raises(TextError, match=r"24 x 12 chunks need 2.3e-06 GB"):
            scorer.score([TEXTS[0], TEXTS[0]], TEXTS[1])
        assert scorer.score([TEXTS[0], TEXTS[0]], TEXTS[1], chunk_size=3).error is None
    with Scorer.open(tiny_bundle, device="cpu", max_pair_gb=TOO_LITTLE) as scorer:
        assert scorer.score(*TEXTS, chunk_size=2).error is None
        with pytest.raises(
            TextError, match="12 x 12 sentences need .*: leave out hm-cf, or raise max_pair_gb"
        ):
            scorer.score(*TEXTS, chunk_size=2, also=["hm-cf"])
    with Scorer.open(tiny_bundle, device="cpu") as scorer:
        assert scorer.score(*TEXTS) == alone


def test_a_pair_that_is_refused_is_not_embedded(tiny_bundle: Path) -> None:
    class Refusing:
        identity = "refusing"

        def embed(self, texts: list[str]) -> list[list[float]]:
            raise AssertionError(texts)

    with Scorer.open(
        tiny_bundle, device="cpu", embedder=Refusing(), max_pair_gb=TOO_LITTLE
    ) as scorer:
        assert "chunks" in str(scorer.score_many([TEXTS])[0].error)


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_a_limit_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="max_pair_gb must be a number of GB above 0"):
        ScorerConfig(max_pair_gb=wrong)


def test_large_pairs_of_a_block_are_in_memory_one_group_at_a_time(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [TEXTS] * 5 + [("", "A.")] + [(story(3, 30), story(4, 30))] + [TEXTS]
    expected = scorer.score_many(pairs)
    monkeypatch.setattr(block_scores, "GROUP", 2 * 144)
    blocks = list(scorer.stream(pairs, lambda pair: pair))
    assert [len(block) for block in blocks] == [2, 2, 2, 1, 1]
    assert [result for block in blocks for _, result, _ in block] == expected


@pytest.mark.slow
def test_a_machine_without_memory_is_no_defect(tiny_bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "pairs.jsonl", tmp_path / "scores.jsonl"
    rows = [{"reference": sentences(n), "generated": sentences(n)} for n in (12, 70_000)]
    write_pairs(source, rows)
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    similarities = 70_000 * 70_000 * 8  # bytes
    resource.setrlimit(resource.RLIMIT_AS, (taken + similarities // 2, before[1]))
    try:
        options = ("--bundle", tiny_bundle, "--device", "cpu", "--max-pair-gb", "1e6")
        finished = vcs("score", source, "-o", output, *options)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert finished.code == 2
    assert finished.stderr.startswith("vcs-runtime: out of memory: ")
    assert finished.stderr.endswith("finished output is kept\n")
