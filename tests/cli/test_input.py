"""What users have, read as it is: other keys, other formats, texts by id, standard input."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Finished, assert_refused, vcs
from support.needed import needs
from support.pair_files import (
    KEYS,
    ROWS,
    WRITERS,
    Row,
    texts_by_id,
    write_json,
    write_table,
)
from support.sheets import write_sheet
from support.stories import read_lines, story, write_pairs

Score = Callable[..., Finished]


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
    assert_refused(done, "can be read only once")


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
    assert_refused(done, "systems: the folder has no file that ends in .jsonl")
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
    assert_refused(done, "a.json and ")
    assert_refused(done, "a.jsonl would be two systems called 'a'")


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
        ": there is no prediction for 2 of 4 references: 'v1', 'v2'",
        ": 1 prediction left out, because there is no reference: 'other'",
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
    assert done.code == 2
    assert "REFERENCE.txt GENERATED.txt for one pair, or --references " in done.stderr


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
    assert_refused(done, "--keep-column vcs: the output has another column 'vcs'")


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
    assert_refused(done, f"{name} {places[name][0]}: {places[name][1]} also has the id 'b'")
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
    assert_refused(done, "p.jsonl line 2: line 1 also has the id '1'")


ONE = '{"reference": "a", "generated": "b"}'


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "a.jsonl",
            f"[{ONE},\n{ONE}]",
            (
                "the suffix .jsonl means JSON lines, but the file holds a JSON array or object: rename it,"
                " or give --format json"
            ),
        ),
        ("a.jsonl", f'{{\n"a": {ONE}\n}}', "the file holds a JSON array or object"),
        (
            "a.json",
            f"{ONE}\n{ONE}\n",
            (
                "a.json: the file holds JSON lines, not one JSON value: rename it to .jsonl, or add --format"
                " jsonl"
            ),
        ),
        ("a.csv", f"{ONE}\n", "the suffix .csv means CSV, but the file holds JSON lines"),
        (
            "a.csv",
            "reference\tgenerated\na\tb\n",
            "a.csv line 1: the columns are separated by tabs, not by commas or semicolons: add",
        ),
        (
            "a.tsv",
            "reference,generated\na,b\n",
            "a.tsv line 1: the columns are separated by commas, not by tabs: add --format csv",
        ),
        ("a.csv", "PAR1....", "the suffix .csv means CSV, but the file holds Parquet"),
        ("a.csv", "PK\3\4....", "but the file holds an Excel file"),
        ("a.txt", f"{ONE}\n", "the suffix .txt means one text a line, but the file"),
        (
            "a.csv",
            "reference,generated,reference\na,b,c\n",
            "a.csv line 1: the column 'reference' occurs twice",
        ),
        (
            "a.jsonl",
            '{"reference": "a", "generated": "b", "generated": "c"}\n',
            "an object has the key 'generated' twice",
        ),
        ("a.json", '"text"', "a.json: must be a JSON array or object, not str"),
        (
            "a.json",
            "[1]",
            "a.json entry 1: must be an object with reference and generated, not int",
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
        (("--references", "a.csv"), "give both --references and --predictions"),
        (("a.csv", "a.txt"), "be the plain texts of one pair, but a.csv is not plain text"),
        (("a.csv", "a.csv", *KEYS), "a.csv would be two systems called 'a'"),
        (("a.csv", "--id-key", "video"), "type vcs-runtime score a.csv --id-key video"),
        (("a.txt", "a.txt", "--id-key", "x"), "leave out --format and the options for keys"),
        (
            ("a.csv",),
            (
                "a.csv line 1: no column 'reference' and no 'generated' (it has 'video', 'gt',"
                " 'pred', 'genre')"
            ),
        ),
        (
            ("a.csv", *KEYS[:-1], "x"),
            "a.csv line 1: no column 'x' (it has 'video', 'gt', 'pred', 'genre')",
        ),
        (("a.csv", *KEYS, "--keep-column", "y"), "a.csv line 1: no column 'y' (it has"),
        (
            ("--references", "a.csv", "--predictions", "a.csv", "--id-key", "video"),
            (
                "a.csv line 2: no 'reference' or 'summary' or 'text' or 'caption' (it has 'video',"
                " 'gt', 'pred', 'genre'): give --reference-key"
            ),
        ),
        (("--references", "a.csv", "--predictions", "a.csv"), "a.csv line 2: no 'reference' or"),
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
    assert_refused(done, "a.jsonl line 1: there are 2 responses to one question")


def test_a_vlmevalkit_table_of_tabs(score: Score, tmp_path: Path) -> None:
    write_table(tmp_path / "a.tsv", vlmevalkit(PLAIN), "\t")
    assert score(tmp_path / "a.tsv", "--format", "vlmevalkit", "-o", tmp_path / "o.jsonl").code == 0
    assert [line["id"] for line in read_lines(tmp_path / "o.jsonl")] == ["0", "1", "2"]


def test_a_number_in_place_of_a_text_is_refused_from_standard_input_too(
    stdin: Callable[[Path], None], score: Score, tmp_path: Path
) -> None:
    write_pairs(tmp_path / "p.jsonl", [{"reference": 1.5, "generated": story(1)}])
    assert score(tmp_path / "p.jsonl").code == 1
    stdin(tmp_path / "p.jsonl")
    done = score("-")
    assert (done.code, "reference: the text must be a string, not float" in done.stderr) == (
        1,
        True,
    )


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("scroe", "Did you mean 'score'?"),
        ("fetch nv-embed-v2", "`hf download nvidia/NV-Embed-v2 --local-dir NV-Embed-v2`, then"),
        (
            "export nv-embed-v2 --from nvidia/NV-Embed-v2 -o b",
            "`vcs-runtime export nv-embed-v2 --from NV",
        ),
        (
            "export sat --from segment-any-text/sat-12l-sm -o b",
            "`vcs-runtime export sat --from sat-12l-sm -o",
        ),
        (
            "export decoder --from Qwen/Qwen3-Embedding-4B -o b",
            "`vcs-runtime export decoder --from Qwen3-E",
        ),
        ("export encoder --from all-mpnet-base-v2 -o b", "all-mpnet-base-v2: no such folder"),
        (
            "score p.jsonl --segmenter segment-any-text/sat-3l",
            "`vcs-runtime export sat --from sat-3l -o",
        ),
        (
            "score p.jsonl --bundle nvidia/NV-Embed-v2",
            "no such folder. Models are not downloaded: `hf",
        ),
        ("score p.jsonl --bundle defualt", "Did you mean default?"),
        ("score p.jsonl --bundle all-MiniLM-L6-v2", "Did you mean default?"),
        ("bundle verify fats", "Did you mean fast?"),
        ("bundle verify d.tar", "`vcs-runtime bundle unpack d.tar -o FOLDER` checks and unpacks"),
        ("bundle verify one.md", "a bundle is a folder, but this is a file"),
        ("score p.jsonl --segmenter spacy", "Segmenters are auto, rules, learned, punkt, time-"),
        ("score one.md", "is only one text: give REFERENCE.md GENERATED.md"),
        ("explain one.txt", "type vcs-runtime explain REFERENCE.txt GENERATED.txt for one pair"),
        ("score p.jsonl p.jsonl", "p.jsonl and p.jsonl would be two systems called 'p'"),
        ("score p.jsonl -o nodir/s.jsonl", "nodir does not exist: type mkdir -p nodir"),
        (
            "score k.jsonl",
            "type vcs-runtime score k.jsonl --reference-key ref --generated-key hyp\n",
        ),
        (
            "explain o.jsonl",
            "--reference-key groundTruth --generated-key 'model output' --id-key video",
        ),
        ("score k.jsonl --generated-key x", "(it has 'ref', 'hyp'): give --reference-key ref"),
        ("score sys.json refs.json", "score --references refs.json --predictions sys.json\n"),
        ("score sys.json", "score --references sys.json --predictions PREDICTIONS\n"),
        ("score p.jsonl --device gpu:0", "the first GPU is 'cuda:0'"),
        ("score p.jsonl --device CPU", "'cuda:all' or 'tensorrt:N', in lower case, not 'CPU'"),
        (
            "score p.jsonl --bundle none",
            "no such folder: give a bundle's folder, default, fast or int8",
        ),
        (
            "score pair.json",
            "pair.json: the file holds one pair: put the pair into a list: [{...}]",
        ),
        ("score usual.json", "usual.json: the file holds one pair: put the pair into a list"),
        ("score pipes.csv", "(it has 'id|reference'): only one column: separate columns by commas"),
        ("score empty.csv", "empty.csv: the file is empty\n"),
        ("score empty.json", "empty.json: the file is empty\n"),
        (
            "explain --references refs.json --predictions sys.json refs.json",
            "give one system instead of ",
        ),
    ],
)
def test_what_many_would_type_is_answered_with_what_works(
    typed: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "p.jsonl", [{"reference": "A.", "generated": "A."}])
    write_pairs(tmp_path / "k.jsonl", [{"ref": "A.", "hyp": "A."}])
    write_pairs(tmp_path / "pair.json", [{"id": "a", "reference": "A.", "generated": "A."}])
    write_pairs(tmp_path / "usual.json", [{"gt": "A.", "pred": "A."}])
    (tmp_path / "pipes.csv").write_text("id|reference\n1|A.\n")
    for name in ("empty.csv", "empty.json"):
        (tmp_path / name).touch()
    row = {"video": "v", "model output": "A.", "groundTruth": "A."}
    write_pairs(tmp_path / "o.jsonl", [row])
    for name in ("one.txt", "one.md"):
        (tmp_path / name).write_text("A man walks.\n")
    for name in ("refs.json", "sys.json"):
        (tmp_path / name).write_text('{"a": "A.", "b": "B."}')
    with tarfile.open(tmp_path / "d.tar", "w") as packed:
        packed.add(tmp_path / "p.jsonl", "bundle.json")
    done = vcs(*typed.split())
    assert_refused(done, answer)
