"""Every table that commands print: at 80 columns nothing is cut, and omitted columns are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.command_line import vcs
from support.experiments import comparison, write_json
from support.stories import story, write_pairs
from vcs_runtime.cli import tables as printing

NAMES = ("videochatflash-7b-res448", "qwen2.5-vl-72b-instruct1", "internvl3.5-38b-thinking")
ENGINE = ("--device", "cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Path:
    """Texts of three systems with long names, their scores, and data of the experiments."""
    folder = tmp_path_factory.mktemp("tables")
    references = {f"video-{i}": story(i) for i in range(7)}
    write_json(folder / "references.json", references)
    for k, name in enumerate(NAMES):
        texts = {
            id_: text if (i + k) % 3 else story(40 + i)
            for i, (id_, text) in enumerate(references.items())
        }
        write_json(folder / f"systems/{name}.json", texts)
    (folder / "ranking.txt").write_text("\n".join(NAMES))
    comparison(folder / "rewrites")
    content = {str(i): {f"A{k}": story(9 * i + k) for k in (1, 2, 3)} for i in range(2)}
    write_json(folder / "authors.json", content)
    videos = [
        {
            "vid": f"v{i}",
            "refs": [[story(100 * i + k, 1) for k in range(9)]],
            "cands": [story(100 * i + k, 1) for k in (0, 8, 20)],
            "scores": [[5, 4], [4, 3], [1, 2]],
        }
        for i in range(3)
    ]
    write_pairs(folder / "vatex.jsonl", videos)
    formats = [("text-of-the-first-videos", 4.2), ("three-images-with-a-text", 3.1), ("video", 0.0)]
    scores = [
        {
            "id": id_,
            "signature": "visil|def:1|model:m|frames:2",
            "summaries": [
                {"name": name, "format": name, "visil": own + k, "tokens": 60 * own + 2}
                for name, own in formats
            ],
        }
        for k, id_ in enumerate(("a", "b"))
    ]
    write_pairs(folder / "visil.jsonl", scores)
    answers = [
        {"id": id_, "name": name, "correct": k, "seconds": 60 + k, "format": name, "confidence": 4}
        for id_ in ("a", "b")
        for name, _ in formats
        for k in (0, 1)
    ]
    write_pairs(folder / "answers.jsonl", answers)
    rows = [*answers, *(own | {"confused": "keyframes"} for own in answers)]
    write_pairs(folder / "judged.jsonl", rows)
    words = {
        "reference": "A man opens the red door. The dog runs.",
        "generated": "A man opens the blue door. The dog never runs.",
    }
    write_pairs(folder / "pairs.jsonl", [{"id": 1, **words}])
    write_json(folder / "home/bundles/unused.json", {})
    (folder / "home/bundles/default").symlink_to(tiny_bundle)
    done = vcs(
        *f"score --references {folder}/references.json --predictions".split(),
        *sorted((folder / "systems").iterdir()),
        *f"-o {folder}/scores --also hm-cf --bundle {tiny_bundle}".split(),
        *ENGINE,
    )
    assert done.code == 0, done.stderr
    return folder


def experiment(command: str, *arguments: str) -> tuple[str, ...]:
    workers = () if command == "parameters" else ("--workers", "1", "--overwrite")
    return ("experiment", command, *arguments, "-o", "OUT", "--bundle", "TINY", *workers, *ENGINE)


MODELS = ("--references", "DATA/references.json", "--predictions", "DATA/systems")
COMMANDS = {
    "score of systems": (
        *"score --references DATA/references.json --predictions SYSTEMS --bundle TINY".split(),
        *ENGINE,
    ),
    "score of one": (
        "score",
        *MODELS[:3],
        f"DATA/systems/{NAMES[0]}.json",
        "--bundle",
        "TINY",
        *ENGINE,
    ),
    "score, all": (
        "score",
        *MODELS[:3],
        f"DATA/systems/{NAMES[0]}.json",
        "--all",
        "--bundle",
        "TINY",
        *ENGINE,
    ),
    "compare": ("compare", "SCORES", "--all-pairs", "--score", "vcs", "--score", "margin"),
    "compare two": ("compare", f"DATA/scores/{NAMES[0]}.jsonl", f"DATA/scores/{NAMES[1]}.jsonl"),
    "explain": (
        *"explain DATA/pairs.jsonl --also substitution --words TINY --bundle TINY".split(),
        *ENGINE,
    ),
    "demo": ("demo", *ENGINE),
    "doctor": ("doctor", "--bundle", "TINY"),
    "bundle info": ("bundle", "info", "TINY"),
    "published": ("experiment", "clip-cc-bench", "--published"),
    "rank": experiment("rank", *MODELS, "--ranking", "DATA/ranking.txt", "--all-pairs"),
    "corruption": experiment("corruption", "--data", "DATA/rewrites"),
    "parameters": experiment("parameters", "--data", "DATA/rewrites"),
    "authors": experiment("authors", "--data", "DATA/authors.json"),
    "vatex": experiment("vatex", "--data", "DATA/vatex.jsonl", "--resamples", "100"),
    "visil report": (
        *"visil report DATA/visil.jsonl --answers DATA/answers.jsonl".split(),
        "--judged",
        "DATA/judged.jsonl",
    ),
    "visil select": ("visil", "select", "DATA/visil.jsonl", "--alpha", "0"),
}


def assert_whole(printed: str, tables: list[list[list[str]]]) -> None:
    """Assert that every cell is printed whole, unless its column is named as omitted."""
    text = " ".join(printed.split())
    left_out = ", ".join(re.findall(r"Not shown here: (.*?)\. See ", text))
    assert "\u2026" not in printed
    for heading, *cells in (column for table in tables for column in table):
        if f", {heading}, " not in f", {left_out}, ":
            missing = {word for cell in (heading, *cells) for word in cell.split()} - set(
                text.split()
            )
            assert not missing, (heading, missing)


@pytest.mark.parametrize("name", COMMANDS)
def test_tables_are_whole_at_80_columns(
    name: str, data: Path, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [])  # METEOR's corpora, if this machine has them
    tables: list[list[list[str]]] = []
    seen: list[object] = []

    def record(columns: dict[int, list[str]], prose_at: int, room: int) -> dict[int, int]:
        if not seen or columns is not seen[-1]:  # else some of them are left out already
            seen.append(columns)
            tables.append([*columns.values()])
        return widths(columns, prose_at, room)

    widths = printing._widths
    monkeypatch.setattr(printing, "_widths", record)
    many = {
        "SYSTEMS": sorted((data / "systems").iterdir()),
        "SCORES": sorted((data / "scores").iterdir()),
    }
    places = {"DATA": data, "TINY": tiny_bundle, "OUT": tmp_path / "out"}
    arguments: list[object] = []
    for part in COMMANDS[name]:
        first, *rest = part.split("/", 1)
        arguments += many.get(part, [places[first].joinpath(*rest) if first in places else part])
    done = vcs(*arguments, COLUMNS="80", VCS_RUNTIME_HOME=str(data / "home"))
    assert done.code == 0, done.stderr
    # Lines that the terminal itself breaks.
    lists = name in ("doctor", "bundle info", "visil select")
    assert lists == (not tables)
    # So does it with signatures and the path of the results.
    lines = [
        line
        for line in done.stdout.splitlines()
        if not lists and "|" not in line and "/" not in line
    ]
    assert max(map(len, lines), default=0) <= 80
    assert_whole(done.stdout, tables)


def test_columns_are_left_out_by_priority_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    headings = ("name", "one two", "three", "said")
    rows = [(NAMES[0], "1.0000", "22.0", "these are words")]

    def shown(columns: int, **more: Any) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        printing.print_table(headings, rows, more="with --json", **more)
        return capsys.readouterr().out.splitlines()

    assert shown(60) == [
        "name                      one two  three  said",
        "videochatflash-7b-res448   1.0000   22.0  these are words",
    ]
    assert shown(48, prose_at=3)[1:] == [
        "videochatflash-7b-res448   1.0000   22.0  these",
        " " * 42 + "are",
        " " * 42 + "words",
    ]
    narrow = shown(39)
    assert narrow[:3] == [
        "name                         one  three",
        "                             two",
        "videochatflash-7b-res448  1.0000   22.0",
    ]
    assert (
        " ".join(" ".join(narrow[3:]).split())
        == "Not shown here: said. See them in a wider terminal or with --json."
    )
    first = shown(36, drop=(1, 3))
    assert first[:2] == ["name                      three", "videochatflash-7b-res448   22.0"]
    assert "Not shown here: one two, said. See" in " ".join(first[2:])
    # The first column is never left out, and never broken.
    assert shown(10)[:2] == ["name", NAMES[0]]
    assert shown(200, most=2)[-1] == "Not shown here: three, said. See them with --json."
