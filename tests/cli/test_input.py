"""What users have, read as it is: other keys, other formats, texts by id, standard input."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Finished, assert_refused, vcs
from support.needed import needs
from support.sheets import write_sheet
from support.stories import read_lines, story, write_pairs

Score = Callable[..., Finished]

Row = dict[str, Any]
ROWS = [
    {
        "video": f"v{i}",
        "gt": story(i, 3),
        "pred": f'{story(i + 9, 2)} "Quoted; said", he said.',
        "genre": "film\tx",
    }
    for i in range(4)
]
KEYS = ("--reference-key", "gt", "--generated-key", "pred", "--id-key", "video")


def write_table(path: Path, rows: list[Row], separator: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: list[Row]) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_xlsx(path: Path, rows: list[Row]) -> None:
    pytest.importorskip("python_calamine")
    write_sheet(path, [list(rows[0]), *(list(row.values()) for row in rows)])


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), "utf-8")


WRITERS: dict[str, Callable[[Path, list[Row]], None]] = {
    "a.jsonl": write_pairs,
    "a.json": write_json,
    "by-id.json": lambda path, rows: write_json(path, {row["video"]: row for row in rows}),
    "a.csv": lambda path, rows: write_table(path, rows, ","),
    "semicolons.csv": lambda path, rows: write_table(path, rows, ";"),
    "a.tsv": lambda path, rows: write_table(path, rows, "\t"),
    "a.parquet": write_parquet,
    "a.xlsx": write_xlsx,
}


@pytest.fixture
def score(tiny_bundle: Path) -> Callable[..., Finished]:
    return lambda *arguments: vcs("score", *arguments, "--bundle", tiny_bundle, "--device", "cpu")


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    return lambda path: monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes()))
    )


@pytest.fixture
def wanted(score: Score, tmp_path: Path) -> bytes:
    rows = [{"id": row["video"], "reference": row["gt"], "generated": row["pred"]} for row in ROWS]
    write_pairs(tmp_path / "p.jsonl", rows)
    assert score(tmp_path / "p.jsonl", "-o", tmp_path / "wanted.jsonl").code == 0
    return (tmp_path / "wanted.jsonl").read_bytes()


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_pairs_in_any_format_give_the_same_bytes(
    name: str, score: Score, wanted: bytes, tmp_path: Path
) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    done = score(tmp_path / name, *KEYS, "-o", tmp_path / "o.jsonl")
    assert done.code == 0, done.stderr
    assert (tmp_path / "o.jsonl").read_bytes() == wanted


@pytest.mark.parametrize(
    ("name", "options"), [("a.jsonl", ()), ("a.tsv", ("--format", "tsv")), ("a.json", ())]
)
def test_standard_input_gives_the_same_bytes(
    name: str,
    options: tuple[str, ...],
    stdin: Callable[[Path], None],
    score: Score,
    wanted: bytes,
    tmp_path: Path,
) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    stdin(tmp_path / name)
    done = score("-", *KEYS, *options, "-o", tmp_path / "o.jsonl")
    assert done.code == 0, done.stderr
    assert (tmp_path / "o.jsonl").read_bytes() == wanted


def test_standard_input_is_named_in_errors_and_read_once(
    stdin: Callable[[Path], None], score: Score, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text('{"reference": "a", "generated": "b"}\n{oops\n')
    stdin(tmp_path / "a")
    done = score("-")
    assert_refused(done, "standard input line 2: not JSON")
    (tmp_path / "a").write_text("One.\nTwo.\n")
    stdin(tmp_path / "a")
    done = score("--references", "-", "--predictions", "-", "--format", "lines")
    assert_refused(done, "can be read once only")


def texts_by_id(key: str) -> dict[str, str]:
    return {row["video"]: row[key] for row in ROWS}


@pytest.mark.parametrize("references", ["refs.json", "refs.csv"])
def test_references_and_predictions_by_id_give_the_same_bytes(
    references: str, score: Score, wanted: bytes, tmp_path: Path
) -> None:
    write_json(tmp_path / "refs.json", texts_by_id("gt"))
    write_table(
        tmp_path / "refs.csv", [{"id": k, "text": v} for k, v in texts_by_id("gt").items()], ","
    )
    write_json(tmp_path / "one.json", dict(reversed(texts_by_id("pred").items())))
    rows = [{"id": k, "prediction": v} for k, v in texts_by_id("pred").items()]
    write_pairs(tmp_path / "two.jsonl", rows)
    given = ("--references", tmp_path / references, "--predictions", tmp_path / "one.json")
    # As a pattern of the shell gives them.
    done = score(*given, tmp_path / "two.jsonl", "-o", tmp_path / "o")
    assert done.code == 0, done.stderr
    assert [path.name for path in sorted((tmp_path / "o").iterdir())] == ["one.jsonl", "two.jsonl"]
    assert {path.read_bytes() for path in (tmp_path / "o").iterdir()} == {wanted}
    assert score(*given, "-o", tmp_path / "alone.jsonl").code == 0
    assert (tmp_path / "alone.jsonl").read_bytes() == wanted
    done = score(*given, "--predictions", tmp_path / "two.jsonl", "--json")
    assert list(json.loads(done.stdout)) == ["one", "two"]


def test_a_folder_of_predictions_holds_a_system_a_file(score: Score, tmp_path: Path) -> None:
    write_json(tmp_path / "refs.json", texts_by_id("gt"))
    (tmp_path / "systems").mkdir()
    done = score("--references", tmp_path / "refs.json", "--predictions", tmp_path / "systems")
    assert_refused(done, "systems: no file in it that ends in .jsonl")
    for name in ("a", "b"):
        write_json(tmp_path / "systems" / f"{name}.json", texts_by_id("pred"))
    (tmp_path / "systems" / "README.md").write_text("not a system")
    done = score(
        "--references", tmp_path / "refs.json", "--predictions", tmp_path / "systems", "--json"
    )
    assert list(json.loads(done.stdout)) == ["a", "b"]
    rows = [{"id": k, "text": v} for k, v in texts_by_id("pred").items()]
    write_pairs(tmp_path / "systems" / "a.jsonl", rows)
    done = score("--references", tmp_path / "refs.json", "--predictions", tmp_path / "systems")
    assert_refused(done, "two systems are called 'a'")


def test_what_has_no_match_is_named_once_and_counted(score: Score, tmp_path: Path) -> None:
    write_json(tmp_path / "refs.json", texts_by_id("gt"))
    write_json(tmp_path / "p.json", {"v0": ROWS[0]["pred"], "other": "A text.", "v3": ""})
    done = score(
        *f"--references {tmp_path}/refs.json --predictions {tmp_path}/p.json".split(),
        "-o",
        tmp_path / "o.jsonl",
    )
    assert done.code == 1
    assert [
        line.removeprefix(f"vcs-runtime: {tmp_path / 'p.json'}")
        for line in done.stderr.splitlines()
    ] == [
        ": no prediction for 2 of 4 references: 'v1', 'v2'",
        ": 1 prediction without a reference, left out: 'other'",
        " entry 3 (id v3): generated: the text is empty",
    ]
    lines = read_lines(tmp_path / "o.jsonl")
    assert [line["id"] for line in lines] == ["v0", "v1", "v2", "v3"]
    assert [line.get("error") for line in lines] == [
        None,
        "there is no prediction",
        "there is no prediction",
        "generated: the text is empty",
    ]


def test_lines_of_two_files_belong_together(score: Score, tmp_path: Path) -> None:
    (tmp_path / "refs.txt").write_text("\n".join(row["gt"] for row in ROWS) + "\n", "utf-8-sig")
    (tmp_path / "sys.txt").write_text("\n".join(["", *(row["pred"] for row in ROWS[1:])]) + "\n")
    given = ("--references", tmp_path / "refs.txt", "--predictions", tmp_path / "sys.txt")
    done = score(*given, "-o", tmp_path / "o.jsonl")
    assert done.code == 1
    assert "sys.txt line 1 (id 1): generated: the text is empty" in done.stderr
    assert [line["id"] for line in read_lines(tmp_path / "o.jsonl")] == [1, 2, 3, 4]
    done = score(tmp_path / "refs.txt")
    assert_refused(done, "texts by id belong to --references and --predictions")


def test_several_columns_are_several_references(score: Score, tmp_path: Path) -> None:
    rows = [
        {"id": "a", "r1": story(1), "r2": story(2), "generated": story(2)},
        {"id": "b", "r1": story(1), "r2": "", "generated": story(2)},
    ]
    write_table(tmp_path / "a.csv", rows, ",")
    done = score(
        *f"{tmp_path}/a.csv --reference-key r1 --reference-key r2 -o {tmp_path}/o.jsonl".split()
    )
    assert done.code == 0, done.stderr
    first, second = read_lines(tmp_path / "o.jsonl")
    assert (first["n_references"], first["reference_index"]) == (2, 1)
    assert "n_references" not in second


def test_kept_columns_stand_in_the_output(score: Score, tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", ROWS, ",")
    done = score(
        tmp_path / "a.csv",
        *KEYS,
        *f"--keep-column genre --keep-column gt -o {tmp_path}/o.jsonl".split(),
    )
    assert done.code == 0, done.stderr
    assert [line["genre"] for line in read_lines(tmp_path / "o.jsonl")] == ["film\tx"] * 4
    write_json(tmp_path / "p.json", texts_by_id("pred"))
    done = score(
        *f"--references {tmp_path}/a.csv --predictions {tmp_path}/p.json".split(),
        *KEYS,
        *f"--keep-column genre -o {tmp_path}/p.jsonl".split(),
    )
    assert [line["genre"] for line in read_lines(tmp_path / "p.jsonl")] == ["film\tx"] * 4
    done = score(tmp_path / "a.csv", *KEYS, "--keep-column", "vcs")
    assert_refused(done, "--keep-column vcs: the output has another 'vcs'")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_one_id_twice_is_refused_before_the_first_score(
    name: str, score: Score, tmp_path: Path
) -> None:
    rows = [
        {"id": name, "reference": story(1), "generated": story(2)} for name in ("a", "b", "c", "b")
    ]
    WRITERS[name](tmp_path / name, rows)
    done = score(tmp_path / name, "-o", tmp_path / "o.jsonl")
    places = {
        "a.jsonl": ("line 4", "line 2"),
        "a.csv": ("line 5", "line 3"),
        "a.parquet": ("row 4", "row 2"),
    }
    assert_refused(done, f"{name} {places[name][0]}: {places[name][1]} has the id 'b', too")
    assert not (tmp_path / "o.jsonl").exists()
    assert score(tmp_path / name, "-o", tmp_path / "o.jsonl", "--duplicates", "suffix").code == 0
    assert [line["id"] for line in read_lines(tmp_path / "o.jsonl")] == ["a", "b", "c", "b#2"]


def test_one_id_twice_among_texts_is_refused(score: Score, tmp_path: Path) -> None:
    write_json(tmp_path / "refs.json", texts_by_id("gt"))
    (tmp_path / "p.json").write_text('{"v0": "One.", "v1": "Two.", "v0": "Three."}')
    given = ("--references", tmp_path / "refs.json", "--predictions")
    done = score(*given, tmp_path / "p.json")
    assert_refused(done, "p.json: not JSON: an object has the key 'v0' twice")
    write_pairs(tmp_path / "p.jsonl", [{"id": 1, "text": "One."}, {"id": "1", "text": "Two."}])
    done = score(*given, tmp_path / "p.jsonl")
    assert_refused(done, "p.jsonl line 2: line 1 has the id '1', too")


ONE = '{"reference": "a", "generated": "b"}'


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "a.jsonl",
            f"[{ONE},\n{ONE}]",
            (
                "the suffix .jsonl says JSON lines, and it holds a JSON array or object: rename it,"
                " or give --format json"
            ),
        ),
        ("a.jsonl", f'{{\n"a": {ONE}\n}}', "it holds a JSON array or object"),
        (
            "a.json",
            f"{ONE}\n{ONE}\n",
            (
                "a.json: it holds JSON lines, not one JSON value: name it .jsonl, or give --format"
                " jsonl"
            ),
        ),
        ("a.csv", f"{ONE}\n", "the suffix .csv says CSV, and it holds JSON lines"),
        (
            "a.csv",
            "reference\tgenerated\na\tb\n",
            "a.csv line 1: tabs between its columns, not commas or semicolons: give --format tsv",
        ),
        (
            "a.tsv",
            "reference,generated\na,b\n",
            "a.tsv line 1: commas between its columns, not tabs: give --format csv",
        ),
        ("a.csv", "PAR1....", "the suffix .csv says CSV, and it holds Parquet"),
        ("a.csv", "PK\3\4....", "and it holds an Excel file"),
        ("a.txt", f"{ONE}\n", "the suffix .txt says one text a line, and it holds JSON lines"),
        (
            "a.csv",
            "reference,generated,reference\na,b,c\n",
            "a.csv line 1: the column 'reference' is there twice",
        ),
        (
            "a.jsonl",
            '{"reference": "a", "generated": "b", "generated": "c"}\n',
            "an object has the key 'generated' twice",
        ),
        ("a.json", '"text"', "a.json: an array or an object of JSON was expected, not str"),
        (
            "a.json",
            "[1]",
            "a.json entry 1: an object with reference and generated was expected, not int",
        ),
        pytest.param("a.parquet", "x", "a.parquet is not a Parquet file", marks=needs("pyarrow")),
    ],
)
def test_a_file_of_another_format_than_its_name_says_is_refused_with_both(
    name: str, content: str, says: str, score: Score, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    done = score(tmp_path / name)
    assert_refused(done, says)
    assert len(done.stderr.splitlines()) == 1


def test_a_sheet_without_its_reader_names_the_extra(
    score: Score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sheet(tmp_path / "a.xlsx", [["reference", "generated"], ["a", "b"]])
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    done = score(tmp_path / "a.xlsx")
    assert_refused(done, "reading .xlsx needs python_calamine")
    assert "install `vcs-runtime[xlsx]`" in done.stderr


def test_format_overrules_the_suffix(score: Score, wanted: bytes, tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", ROWS, ",")
    finished = score(tmp_path / "a.jsonl", *KEYS, "--format", "csv", "-o", tmp_path / "o.jsonl")
    assert finished.code == 0
    assert (tmp_path / "o.jsonl").read_bytes() == wanted
    done = score(tmp_path / "a.jsonl", *KEYS, "--format", "xlsx")
    assert (done.code, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            (),
            (
                "give either PAIRS, or --references and --predictions, or text files of one pair:"
                " REFERENCE GENERATED"
            ),
        ),
        (("a.csv", "--references", "a.csv"), "give either PAIRS"),
        (("--references", "a.csv"), "--references and --predictions belong together"),
        (("a.csv", "a.txt"), "are the plain texts of one pair, but a.csv is not plain text"),
        (("a.csv", "a.csv", *KEYS), "two systems are called 'a': rename one of their files"),
        (
            ("a.csv", "--id-key", "video"),
            "(there is 'video', 'gt', 'pred', 'genre'): give --reference-key, --generated-key\n",
        ),
        (("a.txt", "a.txt", "--id-key", "x"), "they have no format and no keys"),
        (
            ("a.csv",),
            (
                "a.csv line 1: no column 'reference' and no 'generated' (there is 'video', 'gt',"
                " 'pred', 'genre')"
            ),
        ),
        (
            ("a.csv", *KEYS[:-1], "x"),
            "a.csv line 1: no column 'x' (there is 'video', 'gt', 'pred', 'genre')",
        ),
        (("a.csv", *KEYS, "--keep-column", "y"), "a.csv line 1: no column 'y' (there is"),
        (
            ("--references", "a.csv", "--predictions", "a.csv", "--id-key", "video"),
            (
                "a.csv line 2: no 'reference' or 'summary' or 'text' (there is 'video', 'gt',"
                " 'pred', 'genre'): give --reference-key"
            ),
        ),
        (("--references", "a.csv", "--predictions", "a.csv"), "a.csv line 2: no 'id' (there is"),
    ],
)
def test_wrong_usage_is_one_line_that_names_what_there_is(
    arguments: tuple[str, ...],
    says: str,
    score: Score,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "a.csv", ROWS, ",")
    done = score(*arguments)
    assert done.code == 2
    assert says in done.stderr.splitlines(keepends=True)[-1]


def lmms_eval(rows: list[Row]) -> list[Row]:
    """Lines as lmms-eval logs them: a target as text, and a response that may stand in a list."""
    return [
        {
            "doc_id": i,
            "target": str(row["reference"]),
            "filtered_resps": [row["generated"]] if i else row["generated"],
            "doc_hash": "0" * 64,
            "input": "Describe the video.",
            "vcs_score": {"score": 1},
        }
        for i, row in enumerate(rows)
    ]


def vlmevalkit(rows: list[Row]) -> list[Row]:
    """Rows of a result file of VLMEvalKit."""
    return [
        {
            "index": i,
            "video": f"v{i}",
            "question": "Describe the video.",
            "answer": row["reference"],
            "prediction": row["generated"],
        }
        for i, row in enumerate(rows)
    ]


PLAIN = [
    {"id": i, "reference": story(i, 3), "generated": f"It's {story(i + 9, 2)}"} for i in range(3)
]


@pytest.mark.parametrize(
    ("name", "format", "make"),
    [
        ("20260101_samples_task.jsonl", "lmms-eval", lmms_eval),
        ("model_DATASET.xlsx", "vlmevalkit", vlmevalkit),
        ("model_DATASET.json", "vlmevalkit", vlmevalkit),
    ],
)
def test_logs_of_lmms_eval_and_vlmevalkit_are_read_by_name(
    name: str,
    format: str,
    make: Callable[[list[Row]], list[Row]],
    score: Score,
    tmp_path: Path,
) -> None:
    write_pairs(tmp_path / "p.jsonl", PLAIN)
    assert score(tmp_path / "p.jsonl", "-o", tmp_path / "wanted.jsonl").code == 0
    WRITERS[f"a{Path(name).suffix}"](tmp_path / name, make(PLAIN))
    done = score(tmp_path / name, "--format", format, "-o", tmp_path / "o.jsonl")
    assert done.code == 0, done.stderr
    assert (tmp_path / "o.jsonl").read_bytes() == (tmp_path / "wanted.jsonl").read_bytes()


def test_several_references_and_responses_of_lmms_eval(score: Score, tmp_path: Path) -> None:
    several = [{"reference": [story(1), story(2)], "generated": story(2)}]
    write_pairs(tmp_path / "a.jsonl", lmms_eval(several))
    finished = score(tmp_path / "a.jsonl", "--format", "lmms-eval", "-o", tmp_path / "o.jsonl")
    assert finished.code == 0
    assert read_lines(tmp_path / "o.jsonl")[0]["reference_index"] == 1
    write_pairs(tmp_path / "a.jsonl", [{"doc_id": 0, "target": "A.", "filtered_resps": ["a", "b"]}])
    done = score(tmp_path / "a.jsonl", "--format", "lmms-eval")
    assert_refused(done, "a.jsonl line 1: 2 responses to one question")


def test_a_vlmevalkit_table_of_tabs(score: Score, tmp_path: Path) -> None:
    write_table(tmp_path / "a.tsv", vlmevalkit(PLAIN), "\t")
    assert score(tmp_path / "a.tsv", "--format", "vlmevalkit", "-o", tmp_path / "o.jsonl").code == 0
    assert [line["id"] for line in read_lines(tmp_path / "o.jsonl")] == ["0", "1", "2"]


@pytest.mark.parametrize("other", ["the same", "another length"])
def test_several_systems_are_one_table_of_80_columns_the_best_first(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    write_json(tmp_path / "refs.json", texts := {str(k): story(k, 6) for k in range(3)})
    names = [f"{name}-{'x' * (23 - len(name))}" for name in ("worse", "best")]
    write_json(tmp_path / f"{names[0]}.json", {key: story(40 + int(key), 6) for key in texts})
    write_json(
        tmp_path / f"{names[1]}.json",
        texts if other == "the same" else {k: story(int(k), 4) for k in texts},
    )
    done = vcs(
        *f"score --references {tmp_path}/refs.json --predictions".split(),
        *(tmp_path / f"{n}.json" for n in names),
        *f"-o {tmp_path}/s/ --worst 1 --bundle {tiny_bundle} --device cpu".split(),
    )
    assert (done.code, done.stderr) == (0, "")
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["system", "VCS", "margin", "GAS", "LAS", "NAS", "zeros", "failed"]
    assert [row.split()[0] for row in rows[:2]] == names[::-1]
    assert [len(row.split()) for row in rows[:2]] == [8, 8]
    assert max(len(row) for row in rows if not row.startswith(("vcs|", "next:"))) <= 80
    assert "of 6 pairs" in done.stdout
    assert "report margin, GAS and LAS" in done.stdout or "report VCS and margin" in done.stdout
    worst = " ".join(
        rows[rows.index(next(row for row in rows if row.startswith(f"worst: {names[1]}"))) :]
    )
    assert "All of it is there" in worst or "It leaves out" in worst
    assert rows[-1] == f"next: vcs-runtime compare {tmp_path}/s/*.jsonl"


def test_explain_and_report_read_the_same(tiny_bundle: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", ROWS, ";")
    write_json(tmp_path / "refs.json", texts_by_id("gt"))
    write_json(tmp_path / "p.json", texts_by_id("pred"))
    texts = ("--references", tmp_path / "refs.json", "--predictions", tmp_path / "p.json")
    common = ("--bundle", tiny_bundle, "--device", "cpu")
    explained = [
        vcs("explain", *source, "--id", "v2", "--json", *common).stdout
        for source in ((tmp_path / "a.csv", *KEYS), texts)
    ]
    assert explained[0] == explained[1]
    assert json.loads(explained[0])["id"] == "v2"
    assert vcs("score", *texts, "-o", tmp_path / "s.jsonl", *common).code == 0
    for source in (
        (tmp_path / "a.csv", *KEYS),
        texts,
        (tmp_path / "s.jsonl", "--pairs", tmp_path / "a.csv", *KEYS),
        (tmp_path / "s.jsonl", *texts),
    ):
        done = vcs("report", *source, "-o", tmp_path / "r.html", "--overwrite", *common)
        assert done.code == 0, (source, done.stderr)
        assert (tmp_path / "r.html").read_text().count("v2") > 1
    done = vcs(
        "report",
        *texts,
        *f"{tmp_path}/s.jsonl {tmp_path}/s.jsonl -o {tmp_path}/r.html".split(),
        *common,
    )
    assert_refused(done, "no texts are called 's', as that score")


def test_report_takes_predictions_as_a_shell_expands_them(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    references = ("--references", tmp_path / "refs.json")
    write_json(tmp_path / "refs.json", texts_by_id("gt"))
    (tmp_path / "systems").mkdir()
    systems = [tmp_path / "systems" / name for name in ("a.json", "b.json", "c.json")]
    for path in systems:
        write_json(path, texts_by_id("pred"))
    common = ("--bundle", tiny_bundle, "--device", "cpu")
    finished = vcs(
        "score", *references, "--predictions", *systems, "-o", tmp_path / "scores", *common
    )
    assert finished.code == 0
    scores = [tmp_path / "scores" / f"{name}.jsonl" for name in "abc"]
    output = tmp_path / "r.html"
    done = vcs("report", *scores, *references, "--predictions", *systems, "-o", output, *common)
    assert (done.code, done.stdout) == (0, f"{output}\n")
    refused = vcs("report", *references, "--predictions", *systems, "-o", output, *common)
    assert_refused(refused, "texts of 3 systems: a report on several needs")


def test_several_generated_columns_are_several_systems(tiny_bundle: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = [{**row, "other": f"Nobody moves here. {row['pred']}"} for row in ROWS]
    write_table(table, rows, ",")
    common = ("--bundle", tiny_bundle, "--device", "cpu")
    keys = ("--reference-key", "gt", "--id-key", "video")
    both = ("--generated-key", "pred", "--generated-key", "other")
    assert vcs("score", table, *keys, *both, "-o", f"{tmp_path}/both/", *common).code == 0
    for name in ("pred", "other"):
        alone = tmp_path / f"{name}.jsonl"
        assert vcs("score", table, *keys, "--generated-key", name, "-o", alone, *common).code == 0
        assert (tmp_path / "both" / f"{name}.jsonl").read_bytes() == alone.read_bytes()
    scores = [tmp_path / "both" / f"{name}.jsonl" for name in ("pred", "other")]
    report = vcs(
        "report", *scores, "--pairs", table, *keys, *both, "-o", tmp_path / "r.html", *common
    )
    assert (report.code, report.stderr) == (0, "")
    for arguments, says in (
        (("explain", table, *keys, *both), "one system was expected, not 2: pred, other"),
        (("score", table, *keys, *both[:2], *both[:2]), "a column is named twice"),
        (
            ("report", *scores, "--pairs", table, *keys, *both[:2], "-o", tmp_path / "r.html"),
            "no texts are called 'pred', as that",
        ),
    ):
        done = vcs(*arguments, *common)
        assert_refused(done, says)


def test_files_of_pairs_are_a_system_each_whose_markup_is_named_by_every_command(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    rows = [{"once the id": "v0"} | row | {"pred": f"# Title\n{row['pred']}"} for row in ROWS]
    files, out = [tmp_path / "a.json", tmp_path / "b.json"], tmp_path / "s"
    for path in files:
        write_json(path, {"samples": rows})
    common = (*KEYS, "--rows", "samples", "--bundle", tiny_bundle, "--device", "cpu")
    scored = vcs("score", *files, *common, "--also", "hm-cf", "-o", out)
    assert (scored.code, [line[0] for line in scored.stdout.splitlines()[1:3]]) == (0, ["a", "b"])
    assert sorted(path.name for path in out.iterdir()) == ["a.jsonl", "b.jsonl"]
    # The report asks for no metric again, nor do report and explain for the columns.
    texts = ("--pairs", files[0], "--pairs", files[1], *common[-4:])
    report = vcs("report", out, *texts, "-o", tmp_path / "r.html")
    with_scores = vcs("explain", files[0], out / "a.jsonl", "--id", "v2", "--json", *common[-4:])
    same = vcs("explain", files[0], *common, "--id", "v2", "--json", "--also", "hm-cf")
    assert (with_scores.stdout, with_scores.stderr) == (same.stdout, same.stderr)
    other = vcs("explain", files[0], out / "a.jsonl", "--id", "v2", "--lct", 1, *common[-4:])
    assert "a.jsonl: scored with lct:0, this run with lct:1: give the same options" in other.stderr
    for done, count in ((scored, 8), (report, 8), (vcs("explain", files[0], *common), 4)):
        said = (
            f"of {count} generated texts, {count} with Markdown ('# Title'), which is scored too:"
            " --clean markdown"
        )
        assert (done.code, said in done.stderr) == (0, True), done.stderr


def test_a_slash_makes_the_output_a_folder(tiny_bundle: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", ROWS, ",")
    done = vcs(
        "score",
        tmp_path / "t.csv",
        *KEYS,
        *f"-o {tmp_path}/s/ --bundle {tiny_bundle} --device cpu".split(),
    )
    assert done.code == 0
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["t.jsonl"]


def test_a_number_in_place_of_a_text_is_refused_from_standard_input_too(
    stdin: Callable[[Path], None], score: Score, tmp_path: Path
) -> None:
    write_pairs(tmp_path / "p.jsonl", [{"reference": 1.5, "generated": story(1)}])
    assert score(tmp_path / "p.jsonl").code == 1
    stdin(tmp_path / "p.jsonl")
    done = score("-")
    assert (done.code, "reference: must be a string, not float" in done.stderr) == (1, True)
