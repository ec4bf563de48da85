"""Long jobs: whole lines, resume, failures that cost nothing."""

from __future__ import annotations

import errno
import json
import os
import statistics
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from support.command_line import vcs
from support.killed import kill_when_it_writes
from support.stories import read_lines, story, write_pairs
from vcs_runtime import Options, Scorer
from vcs_runtime.errors import InputError
from vcs_runtime.jobs import score_tables
from vcs_runtime.jobs.output import JobFiles, OutputFile
from vcs_runtime.jobs.pairs import InputPair, Keys, PairFile
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.resumable import hash_texts
from vcs_runtime.jobs.run import Block, record_of, run_blocks, score_file
from vcs_runtime.jobs.summary import Summary


def run(scorer: Scorer, source: Path, output: Path | None, **options: bool) -> Summary:
    return score_file(scorer, source, JobFiles(output, progress=False, **options), Options())  # type: ignore[arg-type]


def test_one_line_a_pair_in_order_with_scores_and_signature(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    summary = run(scorer, pairs_file, tmp_path / "out.jsonl")
    lines = read_lines(tmp_path / "out.jsonl")
    pairs = read_lines(pairs_file)
    assert [line["id"] for line in lines] == [pair["id"] for pair in pairs]
    for line, pair in zip(lines, pairs, strict=True):
        expected = scorer.score(pair["reference"], pair["generated"])
        texts = hash_texts(pair["reference"], pair["generated"])
        assert line == {"id": pair["id"], **expected.to_dict(), "texts": texts}
        assert (list(line)[:1], list(line)[-2:]) == (["id"], ["signature", "texts"])
    assert (summary.scored, summary.failed, summary.resumed) == (12, 0, 0)
    mean = sum(line["vcs"] for line in lines) / 12
    statistic = summary.statistics()["vcs"]
    assert statistic.mean == pytest.approx(mean)
    assert statistic.sd == pytest.approx(statistics.stdev(line["vcs"] for line in lines))
    assert statistic.low < mean < statistic.high
    assert summary.statistics() == summary.statistics()


def test_pairs_without_an_id_are_named_by_their_line(scorer: Scorer, tmp_path: Path) -> None:
    write_pairs(tmp_path / "p.jsonl", [{"reference": story(1), "generated": story(2)}] * 2)
    run(scorer, tmp_path / "p.jsonl", tmp_path / "o.jsonl")
    assert [line["id"] for line in read_lines(tmp_path / "o.jsonl")] == ["line 1", "line 2"]


def test_failed_pairs_are_reported_and_listed(scorer: Scorer, tmp_path: Path) -> None:
    rows = [
        {"id": "good", "reference": story(1), "generated": story(2)},
        {"id": "bad", "reference": story(1), "generated": ""},
        {"reference": 5, "generated": story(2)},
        {"reference": "a\ud800.", "generated": story(2)},
    ]
    source = tmp_path / "p.jsonl"
    write_pairs(source, rows)
    messages: list[str] = []
    files = JobFiles(tmp_path / "o.jsonl", report=messages.append, progress=False)
    summary = score_file(scorer, source, files, Options())
    assert (summary.scored, summary.failed) == (1, 3)
    assert messages == [
        f"{source} line 2 (id bad): generated: the text is empty",
        f"{source} line 3: reference: the text must be a string, not int",
        f"{source} line 4: reference: the text holds a lone surrogate U+D800 (at position 1)",
    ]
    assert ["error" in line for line in read_lines(tmp_path / "o.jsonl")] == [
        False,
        True,
        True,
        True,
    ]


def test_a_broken_line_is_found_before_anything_is_scored(scorer: Scorer, pairs_file: Path) -> None:
    with pairs_file.open("a") as file:
        file.write('{"reference": "a.",\n')
    output = pairs_file.with_name("out.jsonl")
    with pytest.raises(InputError, match=r"pairs\.jsonl line 13: not JSON"):
        run(scorer, pairs_file, output)
    assert not output.exists()


def test_an_empty_input_is_refused(scorer: Scorer, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("\n")
    with pytest.raises(InputError, match="it holds no pairs"):
        run(scorer, tmp_path / "p.jsonl", None)


@pytest.mark.parametrize("cut", [0, 1, 5, 12])
@pytest.mark.parametrize("torn", [b"", b'{"id": 5, "vcs": 0.', b"{"])
def test_resume_continues_after_the_last_whole_line(
    scorer: Scorer, pairs_file: Path, tmp_path: Path, cut: int, torn: bytes
) -> None:
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    run(scorer, pairs_file, whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:cut]) + torn)
    summary = run(scorer, pairs_file, part, resume=True)
    assert part.read_bytes() == whole.read_bytes()
    assert (summary.scored, summary.resumed) == (12, cut)


def test_resume_never_scores_a_finished_pair_twice(
    scorer: Scorer, pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    run(scorer, pairs_file, output)
    lines = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join(lines[:9]))
    scored: list[str | int] = []
    stream = Scorer.stream

    def observed(self: Scorer, items: Iterator[InputPair], *rest: Any) -> Any:
        return stream(self, (scored.append(pair.name) or pair for pair in items), *rest)  # type: ignore[func-returns-value]

    monkeypatch.setattr(Scorer, "stream", observed)
    run(scorer, pairs_file, output, resume=True)
    assert scored == [9, 10, 11]


def test_no_other_job_takes_the_lines_while_their_table_is_written(
    scorer: Scorer, pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, write = tmp_path / "out.csv", score_tables.write_table

    def interrupted(lines: Path, table: Path) -> None:
        with pytest.raises(InputError, match=r"\.out\.csv\.lines: another process is writing it"):
            run(scorer, pairs_file, output, overwrite=True)
        write(lines, table)

    monkeypatch.setattr(score_tables, "write_table", interrupted)
    run(scorer, pairs_file, output)
    ids = [row["id"] for _, row in score_tables.read_table(output)]
    assert ids == [str(number) for number in range(12)]
    assert {path.name for path in tmp_path.iterdir()} == {"out.csv", "pairs.jsonl"}


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("precious\n", False),
        ('{"id": 1}\n', False),
        ("[1]", False),
        ('{"id": 1, "v', True),
        ("", True),
    ],
)
def test_a_file_where_the_lines_of_a_table_would_lie_is_not_overwritten(
    scorer: Scorer, pairs_file: Path, tmp_path: Path, text: str, lost: bool
) -> None:
    (lines := tmp_path / ".out.csv.lines").write_text(text)
    if lost:
        run(scorer, pairs_file, tmp_path / "out.csv", overwrite=True)
        assert not lines.exists()
    else:
        with pytest.raises(InputError, match=r"\.out\.csv\.lines is the unfinished output"):
            run(scorer, pairs_file, tmp_path / "out.csv", overwrite=True)
        assert lines.read_text() == text


def test_an_output_that_exists_is_not_overwritten_unasked(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("something precious")
    with pytest.raises(InputError, match=r"out\.jsonl exists already: continue it with --resume"):
        run(scorer, pairs_file, output)
    assert output.read_text() == "something precious"
    run(scorer, pairs_file, output, overwrite=True)
    assert len(read_lines(output)) == 12


def test_resume_refuses_the_output_of_other_options_or_another_input(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    score_file(scorer, pairs_file, JobFiles(output, progress=False), Options(chunk_size=2))
    before = output.read_bytes()
    with pytest.raises(
        InputError,
        match=r"out\.jsonl line 1: its signature has chunk:2, but this run's has chunk:1: resume",
    ):
        run(scorer, pairs_file, output, resume=True)
    other = tmp_path / "other.jsonl"
    write_pairs(other, [{"id": "x", "reference": story(1), "generated": story(2)}])
    with pytest.raises(InputError, match="this is the output of another input"):
        score_file(
            scorer, other, JobFiles(output, resume=True, progress=False), Options(chunk_size=2)
        )
    write_pairs(other, read_lines(pairs_file)[:3])
    with pytest.raises(InputError, match="more lines than"):
        score_file(
            scorer, other, JobFiles(output, resume=True, progress=False), Options(chunk_size=2)
        )
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"some": "file"}\n')
    with pytest.raises(InputError, match=r"line 1: this line was not written by an earlier run"):
        run(scorer, pairs_file, foreign, resume=True)
    assert output.read_bytes() == before


@pytest.mark.parametrize("option", ["--overwrite", "--resume", None])
@pytest.mark.parametrize("link", [None, Path.symlink_to, Path.hardlink_to])
def test_an_output_that_is_the_input_is_refused(
    tiny_bundle: Path, pairs_file: Path, tmp_path: Path, option: str | None, link: Any
) -> None:
    content = pairs_file.read_bytes().rstrip(b"\n")
    pairs_file.write_bytes(content)
    output = tmp_path / "o.jsonl" if link else tmp_path / "." / ".." / tmp_path.name / "pairs.jsonl"
    if link:
        link(output, pairs_file)
    done = vcs(
        *f"score {pairs_file} -o {output}".split(),
        *filter(None, [option]),
        *f"--bundle {tiny_bundle} --device cpu".split(),
    )
    assert done.code == 2
    assert (
        done.stderr == f"vcs-runtime: {output} is the input {pairs_file}: choose another output\n"
    )
    assert pairs_file.read_bytes() == content


def test_resume_refuses_texts_that_have_changed_under_their_ids(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    pairs = [*read_lines(pairs_file)[:4], {"id": 4, "reference": story(1), "generated": None}]
    write_pairs(pairs_file, pairs)
    run(scorer, pairs_file, output)
    before = output.read_bytes() + b'{"id": 5'
    output.write_bytes(before)
    for number, changed in (
        (2, {"generated": story(7)}),
        (3, {"reference": [story(1)]}),
        (5, {"reference": 5}),
    ):
        rows = [*pairs[: number - 1], pairs[number - 1] | changed, *pairs[number:]]
        write_pairs(pairs_file, rows)
        with pytest.raises(InputError) as refusal:
            run(scorer, pairs_file, output, resume=True)
        assert (
            str(refusal.value)
            == f"{output} line {number}: the texts of id {number - 1} have changed since this line"
            " was written: resume with the same input, or choose another output"
        )
        assert output.read_bytes() == before


@pytest.mark.parametrize(
    ("kept", "note"), [(("note",), "corrected"), ((), "first"), (("note", "more"), "first")]
)
def test_resume_refuses_other_columns_of_the_input(
    scorer: Scorer, pairs_file: Path, tmp_path: Path, kept: tuple[str, ...], note: str
) -> None:
    rows = [row | {"note": "first", "more": 1} for row in read_lines(pairs_file)]

    def score(*names: str, resume: bool = False) -> None:
        source = PairFile(InputFile(pairs_file), Keys(keep=names))
        score_file(
            scorer, source, JobFiles(tmp_path / "o.jsonl", resume=resume, progress=False), Options()
        )

    write_pairs(pairs_file, rows)
    score("note")
    score("note", resume=True)
    before = (tmp_path / "o.jsonl").read_bytes()
    write_pairs(pairs_file, [row | {"note": note} for row in rows])
    with pytest.raises(
        InputError,
        match="line 1: its kept columns are {'note': 'first'}, but this run's are",
    ):
        score(*kept, resume=True)
    assert (tmp_path / "o.jsonl").read_bytes() == before
    write_pairs(pairs_file, rows)
    (tmp_path / "o.jsonl").write_bytes(before.replace(b'"note"', b'"error": "x", "note"', 1))
    with pytest.raises(InputError, match="line 1: its kept columns are {'vcs': "):
        score("note", resume=True)  # which no job writes: an error beside scores


def test_a_pairs_file_that_grows_or_shrinks_meanwhile_is_told(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    output, rows = tmp_path / "out.jsonl", read_lines(pairs_file)

    def score_and_change(pairs: Iterator[InputPair], *, rows: list[Any]) -> Iterator[Block]:
        for pair in pairs:
            yield [(pair, record_of(pair.name, pair.texts, scorer.score(*pair.texts)))]
            write_pairs(pairs_file, rows)

    long = [
        {**row, "reference": row["reference"] * 100} for row in rows
    ]  # longer than a buffer of the reader
    for changed, now in ((long[:5], "5 now"), ([*long, *long], "more now")):
        write_pairs(pairs_file, long)
        with pytest.raises(InputError, match=f"it had 12 items when the job began, but has {now}"):
            run_blocks(
                partial(score_and_change, rows=changed),
                pairs_file,
                JobFiles(output, overwrite=True, progress=False),
                scorer.signature,
            )
    assert [line["id"] for line in read_lines(output)] == [*range(12), 0]


def test_a_full_disk_keeps_what_was_finished(
    scorer: Scorer, pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    real_write, calls = os.write, []

    def score_in_fours(pairs: Iterator[InputPair]) -> Iterator[Block]:
        while block := list(islice(pairs, 4)):
            yield [
                (pair, record_of(pair.name, pair.texts, scorer.score(*pair.texts)))
                for pair in block
            ]

    def write(file: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 3:  # half of the second block, then no space is left
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(file, data if len(calls) == 1 else data[: len(data) // 2])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(
        InputError, match=r"out\.jsonl: No space left on device; finished output is kept:"
    ):
        run_blocks(score_in_fours, pairs_file, JobFiles(output, progress=False), scorer.signature)
    monkeypatch.setattr(os, "write", real_write)
    assert [line["id"] for line in read_lines(output)] == [0, 1, 2, 3]
    summary = run(scorer, pairs_file, output, resume=True)
    assert (summary.resumed, summary.scored) == (4, 12)


def test_two_jobs_cannot_write_one_output(scorer: Scorer, pairs_file: Path, tmp_path: Path) -> None:
    with (
        OutputFile(tmp_path / "out.jsonl"),
        pytest.raises(InputError, match="another process is writing"),
    ):
        run(scorer, pairs_file, tmp_path / "out.jsonl", resume=True)


@pytest.mark.skipif(os.name == "nt", reason="Windows locks otherwise")
def test_an_output_that_cannot_be_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(InputError, match=r"out\.jsonl: it cannot be locked \(Not supported\)"):
        OutputFile(tmp_path / "out.jsonl")


def test_an_output_in_a_folder_that_is_not_there_is_named(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        InputError, match=r"out\.jsonl: the folder .*none does not exist: type mkdir"
    ):
        run(scorer, pairs_file, tmp_path / "none/out.jsonl")


@pytest.mark.slow
def test_kill_9_in_the_middle_then_resume_equals_an_undisturbed_run(
    scorer: Scorer, tiny_bundle: Path, tmp_path: Path
) -> None:
    source, output, whole = tmp_path / "p.jsonl", tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    rows = [
        {"id": i, "reference": story(i % 50, 12), "generated": story(1000 + i, 12)}
        for i in range(4000)
    ]
    write_pairs(source, rows)
    run(scorer, source, whole)
    command = [sys.executable, "-m", "vcs_runtime", "score", str(source), "-o", str(output)]
    command += ["--bundle", str(tiny_bundle), "--device", "cpu"]
    finished = kill_when_it_writes(command, output, 4000)
    assert 0 < finished < 4000
    done = subprocess.run(
        [*command, "--resume", "--json"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert json.loads(done.stdout)["resumed"] == finished
    assert output.read_bytes() == whole.read_bytes()


SCORE = """
        from vcs_runtime.cli import main
        try:
            main(["score", sys.argv[2], "-o", sys.argv[3], "--bundle", sys.argv[1], "--device", \
"cpu"])
        except SystemExit as stop:
            assert not stop.code
"""
SCORE_WITHOUT_MEMORY = """
        from pathlib import Path
        from vcs_runtime import Options, Scorer
        from vcs_runtime.jobs.output import JobFiles
        from vcs_runtime.jobs.run import score_file
        with Scorer.open(sys.argv[1], device="cpu", cache_mb=1) as scorer:
            score_file(scorer, Path(sys.argv[2]), JobFiles(Path(sys.argv[3]), progress=False), \
Options())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("score", "remembered"), [(SCORE_WITHOUT_MEMORY, 0), (SCORE, 48 << 20)])
def test_memory_stays_flat_however_long_the_job_is(
    tiny_bundle: Path, tmp_path: Path, score: str, remembered: int
) -> None:
    # The command remembers up to 256 MiB of vectors, and gives none of that back.
    script = (
        "import resource,"
        f" sys\n{textwrap.dedent(score)}\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )

    def peak_kib(pairs: int) -> int:
        source = tmp_path / f"{pairs}.jsonl"
        rows = [{"reference": story(i, 2), "generated": story(pairs + i, 2)} for i in range(pairs)]
        write_pairs(source, rows)
        command = [sys.executable, "-c", script, str(tiny_bundle), str(source)]
        done = subprocess.run(
            [*command, f"{source}.scores.jsonl"], stdout=subprocess.PIPE, check=True
        )
        return int(done.stdout.split()[-1])

    growth = 1024 * (peak_kib(12_000) - peak_kib(2_000))
    tracemalloc.start()
    lines = read_lines(tmp_path / "12000.jsonl.scores.jsonl")
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(lines) == 12_000
    print(
        f"{growth >> 20} MiB more for 10,000 pairs; the lines of all results take {held >> 20} MiB"
    )
    assert growth < held / 2 + remembered


def test_a_job_of_both_segmenters_resumes_and_counts_them(
    tiny_bundle: Path, mixed_bundle: Path, tmp_path: Path
) -> None:
    source, whole, part = (tmp_path / name for name in ("p.jsonl", "whole.jsonl", "part.jsonl"))
    texts = [(story(i), story(50 + i)) for i in range(9)]
    rows = [
        {"reference": ref, "generated": gen.replace(".", "") if i % 3 else gen}
        for i, (ref, gen) in enumerate(texts)
    ]
    write_pairs(source, rows)
    with Scorer.open(tiny_bundle, device="cpu", segmenter=mixed_bundle) as mixed:
        summary = run(mixed, source, whole)
        part.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:4]))
        resumed = run(mixed, source, part, resume=True)
    assert part.read_bytes() == whole.read_bytes()
    assert [line["segmenter"] for line in read_lines(whole)] == [
        "sentencex",
        "tiny-sat",
        "tiny-sat",
    ] * 3
    assert summary.segmenters == resumed.segmenters == {"sentencex": 3, "tiny-sat": 6}
    assert summary.to_dict()["segmenters"] == {"sentencex": 3, "tiny-sat": 6}
