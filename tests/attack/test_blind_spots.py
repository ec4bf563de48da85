"""What drawn cases do not reach: neighbours, changes between runs, foreign files, other users."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from attack.checks import case_folder, check_end, run
from attack.processes import Command, as_itself
from support.changed_bundles import relist, scale_vectors
from support.stories import read_lines, story, write_pairs
from vcs_numba import Params
from vcs_runtime import Options, Scorer
from vcs_runtime.cli import main
from vcs_runtime.cli.score import score
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.tokenizer import load_tokenizer
from vcs_runtime.scoring.options import PRESETS
from vcs_runtime.scoring.preparation import _RuleSplit
from vcs_runtime.util.lru import LRUCache

PRECIOUS = "what must not be lost"
forks = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def scorer(tiny_bundle: Path) -> Iterator[Scorer]:
    with Scorer.open(tiny_bundle, "cpu") as opened:
        yield opened


REALS = [field.name for field in fields(Params) if type(getattr(Params(), field.name)) is float]
VALUES = (0.0, 0.25, 1 / 3, 0.5, 1.0, 4.0, 1e-7, *(lct for _, lct in PRESETS.values()))


@pytest.mark.parametrize("name", REALS)
def test_neighbours_have_another_signature_or_the_same_scores(scorer: Scorer, name: str) -> None:
    pairs = [(story(i, 6), story(40 + i, 5)) for i in range(12)]

    def scored(value: float) -> tuple[str, list[Any]] | None:
        try:
            options = Options(params=Params(regularizer="length", **{name: value}))  # type: ignore[arg-type]
        except ValueError:  # out of range
            return None
        results = scorer.iter_scores(pairs, options)
        return scorer.signature_for(options), [result.scores for result in results]

    for value in {*VALUES, getattr(Params(), name)}:
        near = (
            math.nextafter(value, -9),
            math.nextafter(value, 9),
            value * (1 - 1e-7),
            float(f"{value:g}"),
        )
        for other in near:
            one, two = scored(value), scored(other)
            if one and two and one[1] != two[1]:
                assert one[0] != two[0], f"{name}: {value!r} and {other!r} have one signature"


# What an option of `score` was before and after a kill. The others name inputs, models or outputs,
# or choose what is printed; none of them may be forgotten.
CHANGES = {
    "--preset": ["paper"],
    "--chunk-size": [2],
    "--lct": [1, 0.9999999],
    "--aggregate": ["mean"],
    "--short": [],
    "--also": ["hm-cf", "substitution"],
    "--clean": ["markdown"],
    "--keep-column": ["note", "more"],
    "--on-error": ["zero", "error"],
    "--threads": [1],
    "--duplicates": ["suffix"],
    "--id-key": ["more"],
    "--generated-key": ["reference"],
    "--reference-key": ["generated"],
    "--rows": ["split=a"],
    "--segmenter": ["rules"],
}
OTHERS = (
    "files -o --json --all --worst --resume --overwrite --csv-safe --references"
    " --predictions --format --max-read-mb --runner --actors --address --params --bundle"
    " --device --cache --gpu-memory-gb --max-pair-gb --batch-invariant --words --embedder"
    " --embedder-model --calibrated --no-proof"
).split()
Rows = list[dict[str, Any]]


def check_resumed(
    engine: tuple[str, ...],
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    change: Callable[[Rows], object],
) -> None:
    """Continue a job that was killed after three lines: as if it had always been so, or refused."""
    rows: Rows = [
        {
            "id": f"v{i}",
            "reference": story(i, 3),
            "generated": f"{story(50 + i, 3)} **x**",
            "note": i,
            "more": f"m{i}",
            "split": "a",
        }
        for i in range(6)
    ]
    rows[4]["generated"] = ""
    with case_folder() as folder:
        pairs, output, right = (
            folder / name for name in ("pairs.jsonl", "scores.jsonl", "right.jsonl")
        )
        write_pairs(pairs, rows)
        run("score", pairs, "-o", output, *engine, *before)
        output.write_bytes(killed := b"".join(output.read_bytes().splitlines(keepends=True)[:3]))
        change(rows)
        write_pairs(pairs, rows)
        run("score", pairs, "-o", right, *engine, *after)
        done = run("score", pairs, "-o", output, "--resume", *engine, *after)
        now = output.read_bytes()
        refused = done.code == 2 and now == killed
        assert refused or now == right.read_bytes(), (
            f"{before} then {after}: lines of both runs: {done}"
        )


@pytest.mark.parametrize("option", CHANGES)
def test_an_option_that_changes_between_kill_and_resume(
    engine: tuple[str, ...], option: str
) -> None:
    values = [(option, str(value)) for value in CHANGES[option]] or [(option,)]
    words = ("--words", engine[1])
    for before, after in zip([(), *values], [*values, ()], strict=True):
        check_resumed(engine, (*before, *words), (*after, *words), lambda rows: None)


def test_no_option_of_score_is_forgotten() -> None:
    assert {parameter.opts[0] for parameter in score.params} == CHANGES.keys() | set(OTHERS)


@pytest.mark.parametrize("row", [0, 2, 5])
@pytest.mark.parametrize("column", ["id", "reference", "generated", "note", "more", "split"])
def test_a_column_that_changes_between_kill_and_resume(
    engine: tuple[str, ...], column: str, row: int
) -> None:
    keep = ("--keep-column", "note", "--keep-column", "more")
    for change in (
        lambda rows: rows[row].update({column: "another"}),
        lambda rows: rows[row].pop(column),
    ):
        check_resumed(engine, keep, keep, change)
    check_resumed(engine, keep, keep, lambda rows: rows.insert(row, {**rows[row], "id": "new"}))


PHASES = {
    "lines complete": "vcs_runtime.jobs.score_tables.write_table",
    "table partial": "vcs_runtime.util.atomic.flush",
    "before unlink": "vcs_runtime.jobs.output.OutputFile.remove",
}


@pytest.mark.parametrize("signum", [signal.SIGCONT, signal.SIGKILL])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.usefixtures("scorer")
def test_a_second_writer_meets_a_job_in_each_phase(
    files: Path, engine: tuple[str, ...], suffix: str, phase: str, signum: int
) -> None:
    def stopping(arguments: list[str]) -> int | None:
        owner, _, name = PHASES[phase].rpartition(".")
        held = resolve_name(owner)
        usual = getattr(held, name)

        def stop(*given: Any, **more: Any) -> Any:
            os.kill(os.getpid(), signal.SIGSTOP)
            return usual(*given, **more)

        setattr(held, name, stop)
        return main(arguments)

    with case_folder() as folder:
        output, right = folder / f"scores{suffix}", (files / f"scores{suffix}").read_bytes()
        first = Command(
            folder, "score", files / "pairs.jsonl", "-o", output, *engine, work=stopping
        )
        assert not first.ended(os.WUNTRACED), first.wait()
        for how in ("--overwrite", "--resume"):
            done = run("score", files / "other-pairs.jsonl", "-o", output, how, *engine, codes=[2])
            assert output.name in done.stderr
        os.kill(first.pid, signum)
        ended = first.wait()
        if signum == signal.SIGKILL:
            codes = [2] if output.exists() else [1]  # a table that is whole needs nothing more
            run("score", files / "pairs.jsonl", "-o", output, "--resume", *engine, codes=codes)
        else:
            check_end(ended, [1])
            assert [path.name for path in folder.iterdir()] == [output.name]
        assert output.read_bytes() == right


test_a_second_writer_meets_a_job_in_each_phase.pytestmark += forks  # type: ignore[attr-defined]

EXPORT = "export encoder --from FILES/checkpoint -o HERE/bundle --overwrite"
FOREIGN = [
    (".t.csv.lines", "score FILES/pairs.jsonl -o HERE/t.csv --overwrite ENGINE"),
    (".t.csv.lines", "score FILES/pairs.jsonl -o HERE/t.csv --resume ENGINE"),
    ("t.csv.jsonl", "score FILES/pairs.jsonl -o HERE/t.csv --overwrite ENGINE"),
    (".t.csv.partial-0123456789abcdef", "score FILES/pairs.jsonl -o HERE/t.csv --overwrite ENGINE"),
    (".s.jsonl.partial-0123456789abcdef", "score FILES/pairs.jsonl -o HERE/s.jsonl ENGINE"),
    ("cache/notes.txt", "score FILES/pairs.jsonl -o HERE/s.jsonl --cache HERE/cache ENGINE"),
    ("cache/vectors.sqlite", "score FILES/pairs.jsonl -o HERE/s.jsonl --cache HERE/cache ENGINE"),
    ("bundle/mine.txt", EXPORT),
    ("bundle/embedder/thesis", EXPORT),
    ("bundle/sub/thesis", EXPORT),
    ("bundle/bundle.json", EXPORT),
    ("r.html", "report FILES/pairs.jsonl -o HERE/r.html ENGINE"),
    ("r.pdf", "report FILES/ref.txt FILES/gen.txt -o HERE/r.pdf ENGINE"),
    (".r.html.partial-0123456789abcdef", "report FILES/pairs.jsonl -o HERE/r.html ENGINE"),
    ("p.tar", "bundle pack FILES/bundle -o HERE/p.tar"),
    ("new/thesis", "bundle unpack FILES/packed.tar -o HERE/new"),
]


@pytest.mark.parametrize(("name", "command"), FOREIGN, ids=str)
def test_a_foreign_file_under_a_name_of_ours_stays(
    files: Path, engine: tuple[str, ...], name: str, command: str
) -> None:
    with case_folder(files / "bundle" if "HERE/bundle" in command else None, "bundle") as folder:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(PRECIOUS)
        words = command.replace("HERE", str(folder)).replace("FILES", str(files))
        run(*words.replace("ENGINE", " ".join(engine)).split(), names=[str(folder)])
        assert (folder / name).read_text() == PRECIOUS


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o000, 0o002])
def test_another_user_can_write_nothing_that_a_later_run_believes(
    files: Path, engine: tuple[str, ...], umask: int
) -> None:
    if sys.platform == "win32" or os.getuid():
        pytest.skip("only root can become another user")
    names = {"VCS_RUNTIME_HOME": "home", "NUMBA_CACHE_DIR": "numba", "VCS_RUNTIME_CACHE": "cache"}

    def lax(arguments: list[str]) -> int:
        os.umask(umask)
        os.environ.update({name: str(folder / place) for name, place in names.items()})
        return as_itself(arguments)

    def meddle(arguments: list[str]) -> int:
        os.setgroups([])
        os.setgid(folder.stat().st_gid)  # a colleague of the same group
        os.setuid(65534)
        places = [
            place
            for name in names.values()
            for place in (folder / name, *(folder / name).rglob("*"))
        ]
        return sum(os.access(place, os.W_OK) for place in places)

    with case_folder() as folder:
        folder.chmod(0o755)
        check_end(Command(folder, "score", files / "pairs.jsonl", *engine, work=lax).wait(), [1])
        assert any((folder / "cache").rglob("*"))
        assert Command(folder, work=meddle).wait().code == 0, "another user can write"


test_another_user_can_write_nothing_that_a_later_run_believes.pytestmark += forks  # type: ignore[attr-defined]


def test_a_memory_in_bytes_counts_characters_of_four_bytes() -> None:
    memory: LRUCache[bytes] = LRUCache(100_000, len)
    for i in range(2000):
        memory.put(f"{i} " + "\U0001f415" * 100, b"")
    assert sum(map(sys.getsizeof, memory._entries)) <= 100_000


def test_splits_in_memory_count_the_bytes_of_short_sentences() -> None:
    segments = [f"{number}!" for number in range(1000)]
    text = " ".join(segments)
    assert _RuleSplit(text, segments).size() >= sum(map(sys.getsizeof, (text, *segments)))


def hostile_tokenizer(data: dict[str, Any], kind: str) -> None:
    """Change a `tokenizer.json` that the attacker's own hashes make whole."""
    if kind == "padding":
        length = {"strategy": {"Fixed": 10**12}, "pad_to_multiple_of": None}
        pad = {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
        data["padding"] = {"direction": "Right", **length, **pad}
    elif kind == "dropout":
        vocabulary = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
        merges = {"vocab": vocabulary | {"ab": 26, "[UNK]": 27}, "merges": ["a b"]}
        data |= {"pre_tokenizer": None, "post_processor": None, "added_tokens": []}
        data["model"] = {"type": "BPE", "dropout": 0.5, "unk_token": "[UNK]", **merges}
    elif kind == "ids":
        words = data["model"]["vocab"]
        for number, word in enumerate(words):
            words[word] = number if word.startswith("[") else 4_000_000_000 + number
    elif kind == "special tokens":
        many = {"id": "[CLS]", "ids": [2] * 5000, "tokens": ["[CLS]"] * 5000}
        data["post_processor"]["special_tokens"]["[CLS]"] = many


@pytest.mark.parametrize(
    ("kind", "code"), [("padding", 1), ("dropout", 2), ("ids", 2), ("special tokens", 2)]
)
@pytest.mark.parametrize("more", [(), ("--also", "substitution")])
def test_a_hostile_tokenizer_neither_ends_the_process_nor_gives_other_scores_each_time(
    files: Path, tiny_bundle: Path, kind: str, code: int, more: tuple[str, ...]
) -> None:
    with case_folder(tiny_bundle, "bundle") as folder:
        path = folder / "bundle/embedder/tokenizer.json"
        data = json.loads(path.read_text())
        hostile_tokenizer(data, kind)
        path.write_text(json.dumps(data))
        relist(folder / "bundle")
        words = f"score {files}/pairs.jsonl -o {folder}/s.jsonl --device cpu --bundle"
        # In a process of its own, which an abort would end.
        done = Command(folder, *words.split(), folder / "bundle", *more).wait()
        check_end(done, [code])


def test_a_tokenizer_of_two_gigabytes_is_not_read(tiny_bundle: Path) -> None:
    with case_folder(tiny_bundle, "bundle") as folder:
        path = folder / "bundle/embedder/tokenizer.json"
        with path.open("r+b") as file:
            file.truncate(2 << 30)
        with pytest.raises(BundleError, match="larger than 256 MB"):
            load_tokenizer(path)


@pytest.mark.parametrize("factor", [3.0, 1.02, 0.0])
@pytest.mark.parametrize(
    "command",
    [
        "score FILES/pairs.jsonl -o HERE/s.jsonl --device cpu --bundle",
        "bundle verify",
        "export verify",
    ],
)
def test_an_accepted_bundle_gives_vectors_of_unit_length(
    files: Path, tiny_bundle: Path, factor: float, command: str
) -> None:
    with case_folder(tiny_bundle, "bundle") as folder:
        scale_vectors(folder / "bundle", factor)
        words = command.replace("FILES", str(files)).replace("HERE", str(folder)).split()
        done = run(
            *words, folder / "bundle", codes=[2], names=["tiny-bert returned vectors of length"]
        )
        assert str(folder / "bundle") in done.stderr


def test_a_text_at_which_the_tokenizer_panics_is_an_error_of_its_pair(
    files: Path, tiny_bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with case_folder(tiny_bundle, "bundle") as folder:
        path = folder / "bundle/embedder/tokenizer.json"
        data = json.loads(path.read_text())
        data["normalizer"] = {"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}, "content": "a"}
        path.write_text(json.dumps(data))
        relist(folder / "bundle")
        rows = [{"id": i, "reference": story(i, 2), "generated": story(9 + i, 2)} for i in range(3)]
        rows[1]["generated"] = f"A dog runs. {'a' * 60}!"
        write_pairs(folder / "pairs.jsonl", rows)
        job = (
            *f"score {folder}/pairs.jsonl -o {folder}/s.jsonl --bundle {folder}/bundle".split(),
            "--device",
            "cpu",
        )
        run(*job, codes=[1])
        lines = read_lines(folder / "s.jsonl")
        assert ["error" in line for line in lines] == [False, True, False]
        assert "the tokenizer fails: " in lines[1]["error"]
