"""Files of pairs, whole and damaged, in every format: accepted ones score as in the Python API."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import case_folder, changed, run, snapshot
from attack.drawn import TEXTS, cases, chance, damaged
from attack.pair_files import (
    PairFile,
    Row,
    encoded,
    name_of,
    pair_files,
    read_again,
    read_scores_again,
)
from support.command_line import Finished
from support.stories import story
from vcs_runtime import Options, Scorer, TextError

OPTIONS: tuple[tuple[tuple[str, ...], Options], ...] = (
    ((), Options()),
    (("--chunk-size", "2"), Options(chunk_size=2)),
    (("--short",), Options(short=True)),
    (("--aggregate", "mean", "--also", "hm-cf"), Options(aggregate="mean", also=("hm-cf",))),
    (("--also", "substitution"), Options(also=("substitution",))),
    (("--clean", "markdown,think"), Options(clean=("markdown", "think"))),
)
OUTPUTS = (
    "scores.jsonl",
    "scores.jsonl",
    "scores.jsonl",
    "scores.csv",
    "scores.tsv",
    "scores.parquet",
    "",
)


class Job(NamedTuple):
    """How a file is scored."""

    options: tuple[tuple[str, ...], Options] = OPTIONS[0]
    output: str = "scores.jsonl"
    piped: bool = False


JOBS = st.builds(
    Job, st.sampled_from(OPTIONS), st.sampled_from(OUTPUTS), st.sampled_from((False,) * 9 + (True,))
)


def check(file: PairFile, job: Job, scorer: Scorer, engine: Iterable[str]) -> None:
    """Score a file: what another reader accepts scores as in the Python API, or is refused."""
    given, options = job.options
    with case_folder() as folder:
        (folder / "in").mkdir()
        source = folder / "in" / f"pairs{file.suffix}"
        source.write_bytes(file.content)
        output = folder / job.output if job.output else None
        piped = job.piped and file.suffix == ".jsonl"
        arguments: list[Any] = [
            "-" if piped else source,
            *engine,
            "--words",
            *list(engine)[1:2],
            *given,
            "--json",
        ]
        arguments += ["-o", output] if output else []
        before = snapshot(folder / "in")
        named = "standard input" if piped else source.name
        done = run("score", *arguments, stdin=file.content if piped else b"", names=(named,))
        assert not changed(before, folder / "in"), "the input was changed"
        if file.suffix == ".xlsx":
            lacks = "no 'i" in done.stderr
            assert not file.whole or done.code != 2 or lacks, (
                f"a whole sheet was refused: {done.stderr}"
            )
            return
        rows, unread = read_again(file.content, file.suffix)
        if rows is None:
            # What pyarrow and csv accept beyond the product is compared below.
            assert done.code == 2, f"accepted, though another reading fails: {unread!r}"
            return
        if done.code == 2:
            assert output is None or not output.exists(), "refused, and yet there is an output"
            exact = file.whole or file.suffix in (".jsonl", ".ndjson")
            # The format is told by what the file holds, and another one is refused with " says ".
            assert not exact or " says " in done.stderr, (
                f"refused, though another reading has {rows}: {done.stderr}"
            )
            return
        check_scores(done, [expected(scorer, options, row) for row in rows], output)


def check_scores(done: Finished, wanted: list[Row], output: Path | None) -> None:
    failed = sum("error" in line for line in wanted)
    assert done.code == (1 if failed else 0), f"exit code {done.code} with {failed} failures"
    summary = json.loads(done.stdout)
    assert (summary["scored"], summary["failed"]) == (len(wanted) - failed, failed)
    notices = (
        " in Latin script: ",
        " not in English: ",
        " is scored as words: ",
        " scored as descriptions: ",
        " written as text ",
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("vcs-runtime: ")]
    told = [line for line in lines if not any(notice in line for notice in notices)]
    assert failed == len(told), f"{failed} failures, and standard error says {done.stderr!r}"
    if output is None:
        return
    lines = read_scores_again(output)
    assert len(lines) == len(wanted), f"{len(lines)} lines for {len(wanted)} pairs"
    for line, right in zip(lines, wanted, strict=True):
        for name, value in right.items():
            if name == "vcs":
                assert line.get(name) == value
            else:
                # Tables have half a surrogate pair as its number.
                in_tables = str(value).encode("utf-8", "backslashreplace").decode()
                assert str(line.get(name)) in (str(value), in_tables)


def expected(scorer: Scorer, options: Options, row: Row) -> Row:
    try:
        [result] = scorer.iter_scores([(row["reference"], row["generated"])], options)
    except TextError as error:
        return {"id": name_of(row), "error": str(error)}
    shown = {key: value for key, value in result.to_dict().items() if key in ("vcs", "error")}
    return {"id": name_of(row), **shown}


@cases(20)
@given(file=pair_files(), job=JOBS)
def test_what_another_reader_takes_is_scored_and_the_rest_is_refused(
    scorer: Scorer, engine: tuple[str, ...], file: PairFile, job: Job
) -> None:
    check(file, job, scorer, engine)


@st.composite
def texts_by_id(draw: st.DrawFn) -> tuple[str, dict[str, bytes]]:
    """References and predictions by id, and the options that name them."""
    starts = draw(st.lists(st.sampled_from("a門["), min_size=1, max_size=6))
    names, files = [f"{start}{i}" for i, start in enumerate(starts)], {}
    for stem in ("references", "predictions"):
        texts = {name: draw(TEXTS) for name in names}
        contents = {
            ".json": json.dumps(texts),
            ".jsonl": "".join(
                json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()
            ),
            ".csv": "id,text\n" + "".join(f"{name},{index}\n" for index, name in enumerate(names)),
            ".txt": "\n".join(text.replace("\n", " ") for text in texts.values()),
        }
        suffix = draw(st.sampled_from(sorted(contents)))
        files[stem + suffix] = contents[suffix].encode("utf-8", "surrogatepass")
    return "--references {} --predictions {}", files


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, dict[str, bytes]]:
    """A log of lmms-eval or results of VLMEvalKit, and the options that name it."""
    numbers = range(draw(st.integers(1, 4)))
    if draw(st.booleans()):
        targets = TEXTS | st.lists(TEXTS, min_size=2, max_size=2).map(str)
        answers = TEXTS | st.lists(TEXTS, min_size=1, max_size=2) | TEXTS.map(lambda text: [[text]])
        rows = [
            {"doc_id": i, "target": draw(targets), "filtered_resps": draw(answers)} for i in numbers
        ]
        return "{} --format lmms-eval", {"log.jsonl": draw(encoded(rows, ".jsonl"))}
    suffix = draw(st.sampled_from((".csv", ".tsv", ".xlsx")))
    rows = [{"index": i, "answer": draw(TEXTS), "prediction": draw(TEXTS)} for i in numbers]
    return "{} --format vlmevalkit", {f"log{suffix}": draw(encoded(rows, suffix))}


@cases(6)
@given(drawn=texts_by_id() | logs(), data=st.data())
def test_texts_by_id_and_logs_are_counted_or_refused(
    engine: tuple[str, ...], drawn: tuple[str, dict[str, bytes]], data: st.DataObject
) -> None:
    options, contents = drawn
    with case_folder() as folder:
        for name, content in contents.items():
            harmed = chance(data.draw, 50)
            (folder / name).write_bytes(data.draw(damaged(content)) if harmed else content)
        before, output = snapshot(folder), folder / "scores.jsonl"
        given = options.format(*(folder / name for name in contents)).split()
        done = run("score", *given, "-o", output, "--json", *engine, names=list(contents))
        assert set(changed(before, folder)) <= {output.name}
        if done.code != 2:
            summary = json.loads(done.stdout)
            assert summary["scored"] + summary["failed"] == len(read_scores_again(output))
            assert done.code == (1 if summary["failed"] or ", left out: " in done.stderr else 0)


def pairs(*rows: Row) -> PairFile:
    return PairFile(".jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode(), True)


TWO = [{"id": name, "reference": story(1, 2), "generated": story(2, 2)} for name in "ab"]


def test_a_line_that_is_lost_is_seen(scorer: Scorer, engine: tuple[str, ...], plant: Any) -> None:
    def make(append: Any) -> Any:
        return lambda self, records: append(self, list(records)[:1])

    plant("vcs_runtime.jobs.output.OutputFile.append", make)
    with pytest.raises(AssertionError, match="lines for"):
        check(pairs(*TWO), Job(), scorer, engine)


def test_a_row_that_is_broken_and_taken_is_seen(
    scorer: Scorer, engine: tuple[str, ...], plant: Any
) -> None:
    plant("vcs_runtime.jobs.pairs.checked_id", lambda _: lambda name, place, key: name)
    with pytest.raises(AssertionError, match="another reading fails"):
        check(pairs({**TWO[0], "id": True}), Job(), scorer, engine)
