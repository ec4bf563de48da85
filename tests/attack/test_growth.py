"""Time grows with the length of what is read: texts, lists, tables, requests, reports.

Each function gets an adversarial unit, repeated. Four times the length may take less than six times
the CPU time of its thread: sixteen times would be quadratic. Quadratic by definition, and left out:

- similarities of the chunks of two texts, their matches and HM-CF: `max_pair_gb` bounds them;
- repeated sentences of an explanation: each is compared with all earlier ones, in blocks between
  which an explanation that nobody waits for stops;
- the ideal line (docs/reference/vcs.md, section 7) of x chunks on a timeline of y: it compares the
  rows of neighbouring windows, y * y / x steps, 20 s of one core for 2 against 100,000 chunks;
- windows by time, which compare each segment with all others: a millisecond for 1,000 segments;
- substitution, which compares the words of matched chunks: a chunk by rules has 100 words at most.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.stories import write_pairs
from vcs_experiments.metrics.cider import Cider
from vcs_experiments.metrics.corpus import Corpus
from vcs_numba import Params, score_similarity
from vcs_numba.kernels.windows import fill_windows
from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.comparing.compare import compare
from vcs_runtime.comparing.latex import escape
from vcs_runtime.comparing.statistics import holm
from vcs_runtime.comparing.tables import csv_text
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.pairs import PairFile, count_pairs
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.readers.rows import RowError, listed
from vcs_runtime.jobs.resumable import hash_texts
from vcs_runtime.jobs.score_tables import read_table, write_table
from vcs_runtime.jobs.texts import Texts
from vcs_runtime.report.html import HtmlReport, shortened
from vcs_runtime.scoring.explanation import explain
from vcs_runtime.scoring.flags import flags_of_texts
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.verdicts import crossings
from vcs_runtime.segmentation.rules import Rules, doubt
from vcs_runtime.serve.limits import Limits
from vcs_runtime.serve.messages import Refused, read_question
from vcs_runtime.text import chat, cleaning, language, marks, markup, times
from vcs_runtime.util.printable import printable
from vcs_runtime.words.reading import Numbering, read_words

RULES = Rules(RulesSpec("sentencex", "en"))
EVERYTHING = Limits(max_pairs=10**6, max_pair_characters=10**9)
# Answers to hostile input that is refused.
REFUSALS = (InputError, RowError, TextError, Refused, UnicodeError)

# Characters that texts, tables, JSON, markup, time stamps and sentences are made of.
MARKS = [
    *".!?:,;'\"`()[]{}<>|*_#-–~=/\\&%$@^+“”’«»「」。\n\r\t \u2028\u0301\u200d\xa0",
    "1",
    "a",
    "A",
]
# Parts of texts, cut at the broken bar.
WORDS = (
    "[x](¦<think>¦</think>¦<|im_start|>user\n¦\nuser: ¦USER: ¦Sure! ¦<answer>¦0:01-0:02 a. ¦"
    "[1-2] a ¦1\n0:01 --> 0:02\n¦From 1s to ¦\nFrame 3: ¦1. a\n¦don't ¦I’d've ¦not ¦the ¦Ab ¦"
    'e.g. ¦\n\n¦\r\n¦```\n¦- - ¦""¦a,¦{"a":¦["¦",\n¦漢字。¦🎉¦é\u0301¦¿¦Dr. A. ¦((a) ¦"A. '
).split("¦")

Prepared = Callable[[], object]
Measured = Callable[[str, Path], Prepared]
"""Takes a text and a new folder, and returns the call whose time is measured."""


def of_text(function: Callable[[str], object]) -> Measured:
    return lambda text, folder: partial(function, text)


def rows_of(text: str, size: int = 12) -> list[str]:
    """Cut a text into as many rows as grow with it; each has a number, so that they differ."""
    return [f"{i}{text[start : start + size]}" for i, start in enumerate(range(0, len(text), size))]


def of_rows(function: Callable[[list[str]], object]) -> Measured:
    def prepare(text: str, folder: Path) -> Prepared:
        return partial(function, rows_of(text))

    return prepare


def of_file(name: str, read: Callable[[Path], object], content: Callable[[str], str]) -> Measured:
    def prepare(text: str, folder: Path) -> Prepared:
        path = folder / name
        path.write_bytes(content(text).encode("utf-8", "replace"))
        return partial(read, path)

    return prepare


def drain(rows: Iterator[Any]) -> None:
    for _ in rows:
        pass


def read_rows(path: Path) -> None:
    drain(InputFile(path).rows("id"))


def read_pairs(path: Path) -> None:
    drain(PairFile(InputFile(path)).read())


def as_pairs(text: str) -> list[dict[str, str]]:
    return [{"id": row, "reference": row, "generated": "A b."} for row in rows_of(text)]


def json_lines(text: str) -> str:
    return "".join(json.dumps(row) + "\n" for row in as_pairs(text))


def table(text: str) -> str:
    return csv_text(
        ["id", "reference", "generated"], [list(row.values()) for row in as_pairs(text)]
    )


def wide_table(text: str) -> str:
    names = rows_of(text)
    return csv_text(["id", "reference", "generated", *names], [["a", "b", "c", *names]])


def one_object(text: str) -> str:
    return json.dumps({row: {"timestamps": [[0, 1]], "sentences": [row]} for row in rows_of(text)})


def parquet(text: str, folder: Path) -> Prepared:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(as_pairs(text)), folder / "p.parquet")
    return partial(read_rows, folder / "p.parquet")


def folder_of_texts(text: str, folder: Path) -> Prepared:
    for i, row in enumerate(rows_of(text, 500)):
        (folder / f"{i}.txt").write_bytes(row.encode("utf-8", "replace"))
    return partial(read_rows, folder)


def score_lines(text: str, folder: Path, name: str = "s.jsonl") -> Path:
    rows = [
        {"id": row, "vcs": i / 1e6, "margin": 0.5, "signature": "s", "kept": row}
        for i, row in enumerate(rows_of(text))
    ]
    write_pairs(folder / name, rows)
    return folder / name


def writing(name: str) -> Measured:
    return lambda text, folder: partial(write_table, score_lines(text, folder), folder / name)


def reading_table(text: str, folder: Path) -> Prepared:
    write_table(score_lines(text, folder), folder / "t.csv")
    return lambda: drain(read_table(folder / "t.csv"))


def comparing(text: str, folder: Path) -> Prepared:
    files = [score_lines(text, folder, name) for name in ("a.jsonl", "b.jsonl")]
    return partial(compare, files, resamples=20, force=True)


def request(make: Callable[[str], Any]) -> Measured:
    def prepare(text: str, folder: Path) -> Prepared:
        body = json.dumps(make(text)).encode()
        return partial(read_question, body, Options(), EVERYTHING)

    return prepare


def raw_request(text: str, folder: Path) -> Prepared:
    body = f'{{"reference":[{text}'.encode("utf-8", "replace")
    return partial(read_question, body, Options(), EVERYTHING)


def numbered_words(text: str) -> None:
    numbering = Numbering()
    numbering.words(read_words(RULES.split(text) or [text]))


def evidence(text: str) -> tuple[Result, Evidence]:
    """Make a pair of one reference sentence, and as many others as grow with the text."""
    chunks = rows_of(text, 60)
    similarity = np.linspace(-1, 1, len(chunks))[np.newaxis]
    scores = score_similarity(similarity, 0.5)
    result = Result(scores, 1, len(chunks), "vcs|def:1", segmenter="rules")
    return result, Evidence((["A b."], chunks), similarity, 0.5)


def explaining(text: str, folder: Path) -> Prepared:
    result, of_pair = evidence(text)
    return lambda: explain(result, of_pair, Params()).to_dict()


def reporting(text: str, folder: Path) -> Prepared:
    explanation = explain(*evidence(text), Params())

    def write() -> None:
        with HtmlReport(folder / "r.html", text[:20]) as report:
            report.add(explanation)
            report.finish()

    return write


def windows(text: str, folder: Path) -> Prepared:
    n, other = len(text) // 8, len(text) // 24
    places = np.empty((2, n), np.int64), np.empty((2, n), np.int64)
    return partial(fill_windows, n, other, *places)


def crossed(text: str, folder: Path) -> Prepared:
    matches = np.frombuffer(text.encode("utf-32-le", "replace"), np.int32).astype(np.int64)
    places = np.cumsum(matches) % (len(text) + 1)
    return partial(crossings, places, np.ones(len(places), bool))


def cider(text: str) -> None:
    Cider(Corpus.of([[text]])).score([text], text[::-1])


def segments(text: str) -> object:
    rows = [{"start": i, "end": i + 1, "text": row} for i, row in enumerate(rows_of(text))]
    return times.timed_segments(times.stamped(rows), "reference")


def clock(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000"


def subtitles(text: str) -> object:
    cues = [f"{clock(i)} --> {clock(i + 1)}\n{row}" for i, row in enumerate(rows_of(text))]
    return times.timed_segments("WEBVTT\n\n" + "\n\n".join(cues), "reference")


FUNCTIONS: dict[str, Measured] = {
    "rules": of_text(RULES.split),
    "doubt": of_text(lambda text: doubt(text, [text])),
    "check_text": of_text(lambda text: cleaning.check_text(text, "text")),
    "expand_contractions": of_text(cleaning.expand_contractions),
    "short_words": of_text(cleaning.short_words),
    "clean_segments": of_rows(cleaning.clean_segments),
    "remove_markup": of_text(lambda text: markup.remove_markup(text, markup.CLEANINGS)),
    "markup counts": of_text(lambda text: markup.MarkupCounts().add(text)),
    "without_chat": of_text(chat.without_chat),
    "languages": of_text(lambda text: language.LanguageCounts().add(text)),
    "unwrapped": of_text(marks.unwrapped),
    "unwrapped in marks": of_text(lambda text: marks.unwrapped(f'"({text})"')),
    "stamps": of_text(lambda text: times.timed_segments(f"[0:00-0:01] {text}", "text")),
    "timed segments": of_text(segments),
    "subtitles": of_text(subtitles),
    "raw subtitles": of_text(lambda text: times.timed_segments(f"WEBVTT\n\n{text}", "reference")),
    "printable": of_text(printable),
    "shortened": of_text(shortened),
    "latex": of_text(escape),
    "listed": of_text(lambda text: listed(f"['{text}']")),
    "words": of_text(numbered_words),
    "cider": of_text(cider),
    "flags": of_text(lambda text: flags_of_texts([text], [text, text], 1)),
    "hash_texts": of_text(lambda text: hash_texts([text], text)),
    "jsonl": of_file("p.jsonl", read_pairs, json_lines),
    "ids": of_file("p.jsonl", count_pairs, json_lines),
    "one json line": of_file("p.jsonl", read_rows, lambda text: json.dumps({"id": text})),
    "raw jsonl": of_file("p.jsonl", read_rows, lambda text: text),
    "json": of_file("p.json", read_rows, lambda text: json.dumps(as_pairs(text))),
    "json object": of_file("p.json", read_rows, one_object),
    "grouped rows": of_file(
        "p.json", lambda path: Texts(InputFile(path)).by_id(), lambda text: one_object(text)
    ),
    "raw json": of_file("p.json", read_rows, lambda text: text),
    "csv": of_file("p.csv", read_pairs, table),
    "wide csv": of_file("p.csv", read_rows, wide_table),
    "raw csv": of_file("p.csv", read_rows, lambda text: text),
    "raw tsv": of_file("p.tsv", read_rows, lambda text: text),
    "lines": of_file("p.txt", read_rows, lambda text: text),
    "parquet": parquet,
    "folder": folder_of_texts,
    "write csv": writing("t.csv"),
    "write parquet": writing("t.parquet"),
    "read table": reading_table,
    "compare": comparing,
    "holm": lambda text, folder: partial(holm, np.linspace(0, 1, len(text))),
    "request": request(lambda text: {"reference": text, "generated": text}),
    "request of references": request(
        lambda text: {"reference": rows_of(text), "generated": "A b."}
    ),
    "request of pairs": request(lambda text: {"pairs": as_pairs(text)}),
    "raw request of fields": request(lambda text: dict.fromkeys(rows_of(text), text[:9])),
    "raw request": raw_request,
    "explanation": explaining,
    "report": reporting,
    "windows": windows,
    "crossings": crossed,
}


def seconds(prepare: Measured, unit: str, size: int, folder: Path) -> float:
    text = (unit * (size // len(unit) + 1))[:size]
    measured = prepare(text, folder)
    started = time.thread_time()
    with contextlib.suppress(REFUSALS):
        measured()
    return time.thread_time() - started


def growth(prepare: Measured, unit: str, folder: Path, size: int) -> float:
    """Return the time of four times the text by the time of the text: the least of five.

    Other processes disturb single measurements, and times below two milliseconds say nothing.
    """
    least = float("inf")
    for _ in range(5):
        short = seconds(prepare, unit, size, folder)
        least = min(least, seconds(prepare, unit, 4 * size, folder) / max(short, 0.002))
        if least < 6:
            break
    return least


@pytest.mark.parametrize("name", FUNCTIONS)
def test_time_grows_with_the_length(name: str, tmp_path: Path) -> None:
    ratios = {}
    for unit in (*WORDS[::5], "a", "'", "\n", '"', "\u0301"):
        ratios[unit] = growth(FUNCTIONS[name], unit, tmp_path, 5_000)
    assert {unit: ratio for unit, ratio in ratios.items() if ratio >= 6} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_time_grows_with_the_length_for_pairs_and_triples(name: str, tmp_path: Path) -> None:
    units = [*WORDS, *MARKS]
    for count in (2, 3):
        units += ["".join(random.choices(MARKS, k=count)) for _ in range(25)]
    ratios = {unit: growth(FUNCTIONS[name], unit, tmp_path, 5_000) for unit in units}
    assert {unit: ratio for unit, ratio in ratios.items() if ratio >= 6} == {}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if not name.startswith("raw")])
def test_what_is_measured_is_not_refused(name: str, tmp_path: Path) -> None:
    FUNCTIONS[name]("A b. " * 100, tmp_path)()


def test_a_planted_quadratic_is_noticed(tmp_path: Path) -> None:
    def quadratic(text: str) -> int:
        return sum(text.count(character) for character in text)

    assert growth(of_text(quadratic), "a", tmp_path, 5_000) >= 6
