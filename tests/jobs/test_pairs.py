"""Reading input files: every failure names the file and the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vcs_runtime.errors import InputError
from vcs_runtime.jobs import pairs
from vcs_runtime.jobs.pairs import InputPair, count_pairs, read_pairs

GOOD = {"id": "a", "reference": "One. Two.", "generated": "Three."}


def write(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(
        b"\n".join(line.encode() if isinstance(line, str) else line for line in lines) + b"\n"
    )
    return path


def test_jsonl_gives_pairs_with_their_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.jsonl",
        json.dumps(GOOD),
        "",
        json.dumps({"reference": ["x", "y"], "generated": None, "other": 1}),
    )
    assert list(read_pairs(path)) == [
        InputPair("line 1", "a", "One. Two.", "Three."),
        InputPair("line 3", None, ["x", "y"], None),
    ]
    assert count_pairs(path) == 2


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(GOOD), "utf-8-sig")
    assert count_pairs(path) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"reference": "a", ', "not JSON"),
        ("[1, 2]", "must be an object with reference and generated, not list"),
        ('"text"', "not str"),
        ('{"reference": "a"}', "no 'generated'"),
        (
            '{"gt": "a"}',
            (
                "no 'reference' and no 'generated' (it has 'gt'): give --reference-key gt"
                " --generated-key NAME"
            ),
        ),
        ('{"generated": "a"}', "no 'reference'"),
        ("{}", "'reference' and no 'generated' (it has nothing)"),
        (
            '{"id": [1], "reference": "a", "generated": "b"}',
            "'id' must be a string or a whole number, not list",
        ),
        ('{"id": true, "reference": "a", "generated": "b"}', "not bool"),
        (b'{"reference": "\xff", "generated": "b"}', "not UTF-8"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str | bytes, says: str) -> None:
    path = write(tmp_path / "p.jsonl", json.dumps(GOOD), line, json.dumps(GOOD))
    with pytest.raises(InputError) as error:
        count_pairs(path)
    assert str(error.value).startswith(f"{path} line 2: ")
    assert says in str(error.value)


def test_csv_gives_the_same_pairs(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.csv",
        "id,reference,generated,note",
        '7,"One, two.\nThree.",Four.,x',
        "8,Five.,Six.,y",
    )
    assert list(read_pairs(path)) == [
        InputPair("line 3", "7", "One, two.\nThree.", "Four."),
        InputPair("line 4", "8", "Five.", "Six."),
    ]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["reference,text", "a,b"], " line 1: no column 'generated'"),
        ([""], ": the file is empty"),
        (["reference,generated", "a"], " line 2: more or fewer fields than the header"),
        (["reference,generated", "a,b,c"], " line 2: more or fewer fields than the header"),
        (["reference,generated", b"\xff,b"], "not UTF-8"),
        (["reference,generated", '"a"b,c'], " line 2: not CSV"),
    ],
)
def test_csv_that_is_none_is_named(tmp_path: Path, lines: list[str | bytes], says: str) -> None:
    path = write(tmp_path / "p.csv", *lines)
    with pytest.raises(InputError) as error:
        count_pairs(path)
    assert str(path) in str(error.value)
    assert says in str(error.value)


def test_parquet_gives_the_same_pairs(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "p.parquet"
    rows = [
        {"reference": ["x", "y"], "generated": "z", "id": 3},
        {"reference": [], "generated": None, "id": 4},
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert list(read_pairs(path)) == [
        InputPair("row 1", 3, ["x", "y"], "z"),
        InputPair("row 2", 4, [], None),
    ]
    write(path, "this is no parquet file")
    with pytest.raises(InputError, match="is not a Parquet file"):
        count_pairs(path)


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.jsonl: No such file"):
        count_pairs(tmp_path / "missing.jsonl")
    with pytest.raises(InputError, match=r"the folder has no file that ends in \.txt"):
        count_pairs(tmp_path)
    with pytest.raises(InputError, match="must be a regular file"):
        count_pairs(Path("/dev/null"))


def test_parquet_with_a_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "p.parquet"
    # Arrow itself refuses to make such a text, and takes one that it reads.
    texts = pa.array([b"a dog", b"a d\xffg"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"reference": texts, "generated": texts}), path)
    with pytest.raises(
        InputError, match=r"p\.parquet: one of the rows 1 to 256: a text is not UTF-8"
    ):
        count_pairs(path)


def test_places_are_remembered_of_suspects_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Listed(InputPair):
        def __getattribute__(self, name: str) -> Any:
            looked.extend([self.id] if name == "place" else [])
            return super().__getattribute__(name)

    looked: list[Any] = []
    listed = [Listed(f"line {i}", name, "A.", "B.") for i, name in enumerate(["a", "b", "c", "b"])]
    monkeypatch.setattr(pairs, "read_pairs", lambda source: iter(listed))
    with pytest.raises(InputError, match="'b'"):
        count_pairs(Path("x.jsonl"))
    assert set(looked) == {"b"}
