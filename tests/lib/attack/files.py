"""Door: files of pairs, whole and damaged, in every format; what is accepted has the scores of the Python API."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from attack.cases import Attack, Door, Ground
from attack.checks import changed, complaints_about, run, snapshot
from attack.damage import damaged, text
from attack.pair_files import SUFFIXES, Row, draw_rows, encode_rows, name_of, read_again
from vcs_runtime import Options, Scorer, TextError

_OPTIONS: tuple[tuple[tuple[str, ...], Options], ...] = (
    ((), Options()),
    (("--chunk-size", "2"), Options(chunk_size=2)),
    (("--short",), Options(short=True)),
    (("--aggregate", "mean", "--also", "hm-cf"), Options(aggregate="mean", also=("hm-cf",))),
    (("--also", "substitution"), Options(also=("substitution",))),
    (("--clean", "markdown,think"), Options(clean=("markdown", "think"))),
)  # fmt: skip
_OUTPUTS = ("scores.jsonl", "scores.jsonl", "scores.jsonl", "scores.csv", "scores.tsv", "scores.parquet", "")
# The format is told by what the file holds, and another one is refused with this.
_OTHER_FORMAT = " says "


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    with Scorer.open(ground.bundle, device="cpu", words=ground.bundle) as scorer:

        def attack(rng: random.Random, folder: Path) -> list[str]:
            kind = rng.random()
            if kind < 0.12:
                return _by_id(rng, folder, ground)
            if kind < 0.2:
                return _of_programs(rng, folder, ground)
            return _pairs(rng, folder, ground, scorer)

        yield attack


def _pairs(rng: random.Random, folder: Path, ground: Ground, scorer: Scorer) -> list[str]:
    suffix = rng.choice(SUFFIXES)
    plain = suffix not in (".jsonl", ".ndjson", ".json") or rng.random() < 0.5
    rows = draw_rows(rng, plain=plain)
    try:
        content = encode_rows(rng, rows, suffix, folder)
    except (ValueError, TypeError):
        return []  # the format cannot hold them
    whole = rng.random() < 0.25
    if not whole:
        content = damaged(rng, content)
    (folder / "in").mkdir()
    source = folder / "in" / f"pairs{suffix}"
    source.write_bytes(content)
    given, options = rng.choice(_OPTIONS)
    output = rng.choice(_OUTPUTS)
    arguments: list[Any] = ["score", source, *ground.engine, "--words", ground.bundle, *given, "--json"]
    arguments += ["-o", folder / output] if output else []
    if piped := rng.random() < 0.1 and suffix == ".jsonl":
        arguments[1] = "-"
    before = snapshot(folder / "in")
    done = run(*arguments, stdin=content if piped else b"")
    named = "standard input" if piped else source.name
    found = complaints_about(done, arguments, names=(named,))
    if changed(before, snapshot(folder / "in")):
        found.append("the input was changed")
    if found:
        return found
    return _compare(
        done.code,
        done.stdout,
        done.stderr,
        content,
        suffix,
        folder / output if output else None,
        scorer,
        options,
        whole,
    )


def _compare(
    code: int, stdout: str, stderr: str, content: bytes, suffix: str, output: Path | None, scorer: Scorer,
    options: Options, whole: bool,
) -> list[str]:  # fmt: skip
    """Compare what was written with what the file holds by another reading, scored by the Python API."""
    if suffix == ".xlsx":
        return (
            [f"a whole sheet was refused: {stderr}"] if whole and code == 2 and "no 'i" not in stderr else []
        )
    try:
        rows = read_again(content, suffix)
    except Exception as error:
        # What pyarrow and csv take beyond the product's reading is compared below; the rest it refuses, too.
        return [f"accepted, though another reading fails: {error!r}"] if code != 2 else []
    if code == 2:
        if output is not None and output.exists():
            return ["refused, and yet there is an output"]
        exact = whole or suffix in (".jsonl", ".ndjson")
        return (
            [f"refused, though another reading has {len(rows)} pairs: {stderr}"]
            if exact and _OTHER_FORMAT not in stderr
            else []
        )
    expected = [_expected(scorer, options, row) for row in rows]
    failed = sum("error" in line for line in expected)
    found = []
    if code != (1 if failed else 0):
        found.append(f"exit code {code} with {failed} failures of {len(rows)}")
    summary = json.loads(stdout)
    if (summary["scored"], summary["failed"]) != (len(rows) - failed, failed):
        found.append(
            f"{summary['scored']} scored, {summary['failed']} failed, where {failed} of {len(rows)} should fail"
        )
    if failed != stderr.count("vcs-runtime: ") - stderr.count(" texts are not in Latin script: "):
        found.append(f"{failed} failures, and standard error says {stderr!r}")
    if output is not None:
        found += _compare_lines(read_scores_again(output), expected)
    return found


def _in_tables(text: str) -> str:
    """A text as tables have it: half a surrogate pair is written as its number."""
    return text.encode("utf-8", "backslashreplace").decode()


def _compare_lines(lines: list[Row], expected: list[Row]) -> list[str]:
    if len(lines) != len(expected):
        return [f"{len(lines)} lines for {len(expected)} pairs"]
    found = []
    for line, wanted in zip(lines, expected, strict=True):
        for name, right in wanted.items():
            if name == "vcs" and line.get(name) != right:
                found.append(f"{wanted['id']!r}: vcs is {line.get(name)!r}, not {right!r}")
            elif name != "vcs" and str(line.get(name)) not in (str(right), _in_tables(str(right))):
                found.append(f"{name} is {line.get(name)!r}, not {right!r}")
    return found


def _expected(scorer: Scorer, options: Options, row: Row) -> Row:
    name = name_of(row)
    try:
        [result] = scorer.iter_scores([(row["reference"], row["generated"])], options)
    except TextError as error:
        return {"id": name, "error": str(error)}
    return {"id": name, **{key: value for key, value in result.to_dict().items() if key in ("vcs", "error")}}


def read_scores_again(output: Path) -> list[Row]:
    """Read a score file by other means than the product's; numbers of tables become numbers."""
    if output.suffix == ".parquet":
        return list(pq.read_table(output).to_pylist())
    if output.suffix == ".jsonl":
        return [json.loads(line) for line in output.read_bytes().splitlines()]
    csv.field_size_limit(1 << 30)
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if output.suffix == ".tsv" else ","))
    return [{**row, "vcs": float(row["vcs"])} if row.get("vcs") else row for row in rows]


def _by_id(rng: random.Random, folder: Path, ground: Ground) -> list[str]:
    """References and predictions by id, one of the two damaged or both whole."""
    names = [f"{rng.choice(('a', '門', '[/x]'))}{i}" for i in range(rng.randint(1, 6))]
    files, whole = [], rng.random() < 0.3
    for stem in ("references", "predictions"):
        suffix = rng.choice((".json", ".jsonl", ".txt", ".csv"))
        texts = {name: text(rng) for name in names}
        if suffix == ".json":
            content = json.dumps(texts)
        elif suffix == ".jsonl":
            content = "".join(json.dumps({"id": name, "text": texts[name]}) + "\n" for name in names)
        elif suffix == ".csv":
            content = "id,text\n" + "".join(f"{name},{index}\n" for index, name in enumerate(names))
        else:
            content = "\n".join(value.replace("\n", " ") for value in texts.values())
        data = content.encode("utf-8", "surrogatepass")
        files.append(folder / f"{stem}{suffix}")
        files[-1].write_bytes(data if whole or rng.random() < 0.5 else damaged(rng, data))
    before = snapshot(folder)
    output = folder / "scores.jsonl"
    arguments = [
        "score",
        "--references",
        files[0],
        "--predictions",
        files[1],
        "-o",
        output,
        *ground.engine,
        "--json",
    ]
    done = run(*arguments)
    found = complaints_about(done, arguments, names=[file.name for file in files])
    if done.code != 2 and not found:
        summary = json.loads(done.stdout)
        lines = read_scores_again(output)
        if summary["scored"] + summary["failed"] != len(lines):
            found.append(
                f"{len(lines)} lines, and the summary says {summary['scored']} + {summary['failed']}"
            )
        if done.code == 0 and summary["failed"]:
            found.append("exit code 0 with failures")
    if set(changed(before, snapshot(folder))) - {output.name}:
        found.append("an input was changed")
    return found


def _of_programs(rng: random.Random, folder: Path, ground: Ground) -> list[str]:
    """Logs of lmms-eval and results of VLMEvalKit, mostly damaged."""
    count = rng.randint(1, 4)
    if rng.random() < 0.5:
        program, suffix = "lmms-eval", ".jsonl"
        rows: list[Row] = [
            {"doc_id": i, "target": rng.choice((text(rng), str([text(rng), text(rng)]))),
             "filtered_resps": rng.choice(([text(rng)], [[text(rng)]], [text(rng)] * 2, text(rng)))}
            for i in range(count)
        ]  # fmt: skip
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    else:
        program, suffix = "vlmevalkit", rng.choice((".csv", ".tsv", ".xlsx"))
        rows = [{"index": i, "answer": text(rng), "prediction": text(rng)} for i in range(count)]
        try:
            data = encode_rows(rng, rows, suffix, folder)
        except ValueError:
            return []
    if rng.random() < 0.7:
        data = damaged(rng, data)
    source = folder / f"log{suffix}"
    source.write_bytes(data)
    arguments = [
        "score",
        source,
        "--format",
        program,
        "-o",
        folder / "scores.jsonl",
        *ground.engine,
        "--json",
    ]
    done = run(*arguments)
    found = complaints_about(done, arguments, names=(source.name,))
    if done.code != 2 and not found:
        summary, lines = json.loads(done.stdout), read_scores_again(folder / "scores.jsonl")
        if summary["scored"] + summary["failed"] != len(lines):
            found.append(
                f"{len(lines)} lines, and the summary says {summary['scored']} + {summary['failed']}"
            )
    return found


FILES = Door("files", 24, "files of pairs, whole and damaged, in every format", _open)
