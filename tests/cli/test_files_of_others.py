"""Files as others write them: what was assumed of them is printed, what cannot be read is named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Finished, vcs
from support.stories import read_lines, story, write_pairs

Score = Callable[..., Finished]
IDS = ("bakery", "lake")
REFERENCES = {name: story(i, 4) for i, name in enumerate(IDS)}
PREDICTIONS = {name: story(i + 9, 4) for i, name in enumerate(IDS)}


def dump(path: Path, value: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
    return path


def scored(run: Finished, output: Path) -> dict[str, float]:
    """Return the VCS of each id of a command that succeeded."""
    assert run.code == 0, run.stderr
    return {line["id"]: line["vcs"] for line in read_lines(output)}


@pytest.fixture
def references(tmp_path: Path) -> Path:
    return dump(tmp_path / "references.json", REFERENCES)


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    return dump(tmp_path / "predictions.json", PREDICTIONS)


@pytest.mark.parametrize(
    "sentence",
    [
        "Failed to obtain answer via API.",
        "Failed to obtain answer via API. ",
        "Failed to obtain answer via API. 429 Too Many Requests",
        "Failed to obtain answer.",
        "Failed to obtain answer",
        "Video videos/a.mp4\nvideos/b.mp4 can not load, check the source",
        "Error code: 429 - {'error': {'message': 'slow down'}}",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_a_failed_request_of_a_toolkit_is_an_error_of_its_pair(
    score: Score, tmp_path: Path, sentence: str
) -> None:
    texts = [story(1), sentence, "Failed to obtain answer from the man, she leaves."]
    rows = [
        {"id": i, "reference": story(0), "generated": text, "index": i, "answer": story(0)}
        for i, text in enumerate(texts)
    ]
    for row in rows:
        row["prediction"] = row["generated"]
    write_pairs(tmp_path / "a.jsonl", rows)
    dump(tmp_path / "a.json", rows)
    for arguments in (["a.jsonl"], ["a.json", "--format", "vlmevalkit"]):
        name, *options = arguments
        output = tmp_path / f"{name}.scores.jsonl"
        run = score(tmp_path / name, *options, "-o", output)
        assert run.code == 1
        assert "(id 1): generated: the text is a toolkit's error message" in run.stderr
        assert ["error" in line for line in read_lines(output)] == [False, True, False]


def test_several_references_are_named_in_the_summary(
    score: Score, tmp_path: Path, predictions: Path
) -> None:
    whole = list(REFERENCES.values())
    sentences = [f"{sentence}." for sentence in story(0, 5).strip(".").split(". ")]
    cases = {
        "5 references for a pair; the best counts": dict.fromkeys(IDS, sentences),
        "2 references for a pair; the best counts": dict.fromkeys(IDS, whole),
        "1 to 2 references for a pair; the best counts": {IDS[0]: whole, IDS[1]: whole[:1]},
    }
    for line, references in cases.items():
        file = dump(tmp_path / "several.json", references)
        run = score("--references", file, "--predictions", predictions)
        assert run.stdout.count(f"\n{line}\n") == 1
        lone = "In 2 pairs the reference that counts is one sentence" in run.stdout
        assert lone == line.startswith("5")
    run = score("--references", file, "--predictions", predictions, "--aggregate", "mean")
    assert "1 to 2 references for a pair; their mean counts" in run.stdout
    run = score("--references", file, "--predictions", predictions, "--json")
    assert json.loads(run.stdout)["references"] == {"fewest": 1, "most": 2}


def test_one_reference_a_pair_is_not_worth_a_line(
    score: Score, references: Path, predictions: Path
) -> None:
    run = score("--references", references, "--predictions", predictions)
    assert "a pair" not in run.stdout
    assert not run.stderr
    run = score("--references", references, "--predictions", predictions, "--json")
    assert "references" not in json.loads(run.stdout)


@pytest.mark.parametrize("write", [json.dumps, str, lambda texts: json.dumps([*texts, None])])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_list_in_a_cell_is_a_list(
    score: Score, tmp_path: Path, write: Callable[[list[str]], str], suffix: str
) -> None:
    several = [story(0, 3), "It's a man's \"dog\". He runs."]
    wanted = tmp_path / "wanted.jsonl"
    write_pairs(wanted, [{"id": "a", "reference": several, "generated": story(9, 3)}])
    score(wanted, "-o", tmp_path / "wanted")
    row = {"id": "a", "reference": write(several), "generated": str([story(9, 3)])}
    path = tmp_path / f"cells.{suffix}"
    if suffix == "csv":
        cells = ",".join('"' + value.replace('"', '""') + '"' for value in row.values())
        path.write_text(f"{','.join(row)}\n{cells}\n", "utf-8")
    else:
        write_pairs(path, [row])
    run = score(path, "-o", tmp_path / "s")
    assert scored(run, tmp_path / "s") == scored(run, tmp_path / "wanted")
    assert "a list written as text was read as several texts (number of pairs: 1)" in run.stderr
    assert "2 references for a pair" in run.stdout


@pytest.mark.parametrize(
    "text", ["['A man runs.' 'He sits.']", "['A man runs.'\n 'He sits.' 'He ends.']"]
)
def test_what_only_looks_like_a_list_is_named_and_scored(
    score: Score, tmp_path: Path, text: str
) -> None:
    write_pairs(tmp_path / "a.jsonl", [{"id": 7, "reference": story(0), "generated": text}])
    run = score(tmp_path / "a.jsonl")
    assert run.code == 0
    assert "texts like lists were scored as one text each: 1" in run.stderr
    assert "(id 7)" in run.stderr


@pytest.mark.parametrize("text", ["nan", "NaN", " None ", "null", "<NA>", "N/A"])
def test_a_text_that_is_only_nan_is_named(score: Score, tmp_path: Path, text: str) -> None:
    rows = [
        {"id": 7, "reference": story(0), "generated": text},
        {"id": 8, "reference": story(0), "generated": f"{text} is what she said to him."},
    ]
    write_pairs(tmp_path / "a.jsonl", rows)
    run = score(tmp_path / "a.jsonl")
    assert f"1, such as {text.strip()!r} (id 7). Leave such a text empty" in run.stderr


@pytest.mark.parametrize("nothing", [None, "", "  \n", float("nan")])
def test_a_missing_reference_among_others_is_left_out(
    score: Score, tmp_path: Path, nothing: Any
) -> None:
    rest = {"id": 1, "generated": story(9)}
    pairs = tmp_path / "pairs.jsonl"
    write_pairs(pairs, [{"reference": [story(0), story(1)], **rest}])
    wanted = scored(score(pairs, "-o", tmp_path / "wanted"), tmp_path / "wanted")
    write_pairs(pairs, [{"reference": [story(0), nothing, story(1)], **rest}])
    assert scored(score(pairs, "-o", tmp_path / "list"), tmp_path / "list") == wanted
    write_pairs(pairs, [{"a": story(0), "b": nothing, "c": [story(1), nothing], **rest}])
    keys = [option for name in "abc" for option in ("--reference-key", name)]
    assert scored(score(pairs, *keys, "-o", tmp_path / "keys"), tmp_path / "keys") == wanted


def test_references_that_are_all_missing_are_an_error_of_the_pair(
    score: Score, tmp_path: Path
) -> None:
    rows = [{"id": i, "reference": [story(0)], "generated": story(9)} for i in range(2)]
    rows[1]["reference"] = ["", ""]
    write_pairs(tmp_path / "a.jsonl", rows)
    run = score(tmp_path / "a.jsonl")
    assert run.code == 1
    assert "line 2 (id 1): reference: the list is empty" in run.stderr


def test_lists_of_one_by_id_on_both_sides(score: Score, tmp_path: Path, references: Path) -> None:
    wanted = dump(tmp_path / "texts.json", PREDICTIONS)
    lists = dump(tmp_path / "lists.json", {name: [text] for name, text in PREDICTIONS.items()})
    both = dump(tmp_path / "r.json", {name: [text] for name, text in REFERENCES.items()})
    run = score("--references", references, "--predictions", wanted, "-o", tmp_path / "wanted")
    assert run.code == 0
    run = score("--references", both, "--predictions", lists, "-o", tmp_path / "s")
    assert scored(run, tmp_path / "s") == scored(run, tmp_path / "wanted")
    several = dump(tmp_path / "several.json", {name: ["A man.", "A dog."] for name in IDS})
    run = score("--references", references, "--predictions", several)
    assert run.code == 1
    assert "must be a string, not list" in run.stderr


def rows_of(texts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each text of each id, with a number of its own, as COCO has them."""
    pairs = [(name, text) for name, several in texts.items() for text in several]
    return [{"id": i, "video": name, "caption": text} for i, (name, text) in enumerate(pairs)]


CAPTION_KEYS = ("--id-key", "video", "--reference-key", "caption", "--generated-key", "caption")


@pytest.mark.parametrize("order", ["grouped", "mixed"])
@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv"])
def test_rows_with_one_id_are_the_references_of_one_video(
    score: Score, tmp_path: Path, order: str, suffix: str
) -> None:
    several = {"bakery": [story(i, 3) for i in range(3)], "lake": [story(5, 3)]}
    rows = rows_of(several)
    if order == "mixed":
        rows = [rows[0], rows[3], rows[1], rows[2]]
    path = written(tmp_path / "rows", suffix, rows)
    predictions = dump(tmp_path / "p.json", rows_of({k: [v] for k, v in PREDICTIONS.items()}))
    wanted = dump(tmp_path / "wanted.json", several)
    by_id = dump(tmp_path / "by-id.json", PREDICTIONS)
    run = score("--references", wanted, "--predictions", by_id, "-o", tmp_path / "w")
    expected = scored(run, tmp_path / "w")
    run = score(
        "--references", path, "--predictions", predictions, *CAPTION_KEYS, "-o", tmp_path / "s"
    )
    assert scored(run, tmp_path / "s") == expected
    assert "1 to 3 references for a pair; the best counts" in run.stdout


def test_predictions_with_one_id_are_refused(
    score: Score, tmp_path: Path, references: Path
) -> None:
    rows = dump(tmp_path / "p.json", rows_of(dict.fromkeys(IDS, (story(1), story(2)))))
    run = score(
        "--references", references, "--predictions", rows, *CAPTION_KEYS[:2], *CAPTION_KEYS[4:]
    )
    assert run.code == 2
    assert "p.json entry 2: entry 1 also has the id 'bakery'" in run.stderr


@pytest.mark.parametrize("key", ["image_id", "video_id", "film"])
def test_captions_among_several_lists_are_read_or_named(
    score: Score, tmp_path: Path, predictions: Path, key: str
) -> None:
    rows = rows_of({name: [text] for name, text in REFERENCES.items()})
    rows = [{"id": row["id"], key: row["video"], "caption": row["caption"]} for row in rows]
    coco = {
        "info": {"year": 2026},
        "videos": [{"id": name, "url": f"http://a/{name}" * 99} for name in IDS],
        "annotations": rows,
        "licenses": [{"id": 1, "name": "Free"}],
    }
    path = dump(tmp_path / "coco.json", coco)
    run = score("--references", path, "--predictions", predictions)
    if key == "film":
        assert run.code == 2
        assert "'annotations' is a list of 2 objects: add --rows annotations" in run.stderr
        return
    assert run.code == 0
    by_video = {row[key]: [{"caption": row["caption"]}] for row in rows}
    for texts in (rows, by_video):
        form = dump(tmp_path / "form.json", texts)
        assert score("--references", path, "--predictions", form).code == 0


@pytest.mark.parametrize("side", ["references", "predictions", "both"])
def test_rows_are_those_of_the_side_that_has_them(
    score: Score, tmp_path: Path, references: Path, predictions: Path, side: str
) -> None:
    wanted = score("--references", references, "--predictions", predictions, "-o", tmp_path / "w")
    nested = {"references": REFERENCES, "predictions": PREDICTIONS}
    for name, texts in nested.items():
        if side in (name, "both"):
            rows = [{"id": key, "text": text} for key, text in texts.items()]
            dump(tmp_path / f"{name}.json", {"model": "m", "results": rows, "data": {"rows": rows}})
    given = ("--references", references, "--predictions", predictions)
    for key in ("results", "data.rows"):
        run = score(*given, "--rows", key, "-o", tmp_path / "s", "--overwrite")
        assert scored(run, tmp_path / "s") == scored(wanted, tmp_path / "w")
    run = score(*given, "--rows", "nothing")
    assert run.code == 2
    assert "--rows nothing: no file is an object with this key" in run.stderr


def test_texts_by_id_below_results_need_no_option(
    score: Score, tmp_path: Path, references: Path, predictions: Path
) -> None:
    wanted = score("--references", references, "--predictions", predictions, "-o", tmp_path / "w")
    path = dump(tmp_path / "results.json", {"version": "1", "results": PREDICTIONS})
    run = score("--references", references, "--predictions", path, "-o", tmp_path / "s")
    assert scored(run, tmp_path / "s") == scored(wanted, tmp_path / "w")


def test_a_path_that_leads_nowhere_in_one_row_is_a_missing_prediction(
    score: Score, tmp_path: Path, references: Path
) -> None:
    entries = {name: {"action": [{"prediction": text}]} for name, text in PREDICTIONS.items()}
    last = [*entries][-1]
    entries[last] = {"order": [{"prediction": "A man walks."}]}
    path = dump(tmp_path / "nested.json", entries)
    given = ("--references", references, "--predictions", path, "--generated-key")
    run = score(*given, "action.0.prediction", "-o", tmp_path / "s")
    assert f"no prediction for 1 of {len(REFERENCES)} references: {last!r}" in run.stderr
    run = score(*given, "action.0.answer")
    assert run.code == 2
    assert "the file holds no texts at 'action.0.answer'" in run.stderr


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ({"question": "Who?", "answer": "A man."}, (), "a list of objects is not a text"),
        (
            {"start_frame": 0, "end_frame": 9, "caption": "A man."},
            ("--generated-key", "dense"),
            "without frames per second",
        ),
    ],
)
def test_lists_of_objects_without_texts_or_times_are_refused(
    score: Score,
    tmp_path: Path,
    references: Path,
    value: dict[str, object],
    options: tuple[str, ...],
    message: str,
) -> None:
    path = tmp_path / "rows.jsonl"
    write_pairs(path, [{"id": "v1", "dense": [value, value]}])
    run = score("--references", references, "--predictions", path, *options)
    assert run.code == 2
    assert message in run.stderr


def test_errors_list_at_most_five_keys(score: Score, tmp_path: Path, predictions: Path) -> None:
    many = {f"video_{i:04}.mp4": "A man walks." for i in range(400)}
    path = dump(tmp_path / "many.json", many)
    for arguments in (
        (path, "--rows", "results"),
        (
            "--references",
            predictions,
            "--predictions",
            dump(tmp_path / "n.json", many | {"x": [{}]}),
        ),
        (dump(tmp_path / "row.json", [many]),),
    ):
        run = score(*arguments)
        assert run.code == 2
        assert "and 39" in run.stderr
        assert run.stderr.count(".mp4") == 5
        assert len(run.stderr.partition(": type ")[0]) < 500


BATCH = "response.body.choices.0.message.content"


def test_a_path_names_a_text_below_a_key(
    score: Score, tmp_path: Path, references: Path, predictions: Path
) -> None:
    wanted = score("--references", references, "--predictions", predictions, "-o", tmp_path / "w")
    expected = scored(wanted, tmp_path / "w")
    rows = [
        {
            "custom": {"id": name},
            "response": {"body": {"choices": [{"message": {"content": text}}]}},
            "conversations": [{"value": "Describe."}, {"value": text}],
            "gt": {"a.b": REFERENCES[name]},
            "a.b": text,
        }
        for name, text in PREDICTIONS.items()
    ]
    write_pairs(tmp_path / "batch.jsonl", rows)
    dump(tmp_path / "batch.json", rows)
    for key in (BATCH, "conversations.1.value", "conversations.-1.value", "a.b"):
        for name in ("batch.jsonl", "batch.json"):
            output = tmp_path / "s"
            run = score(
                *("--references", references, "--predictions", tmp_path / name, "--overwrite"),
                *("--id-key", "custom.id", "--generated-key", key, "-o", output),
            )
            assert scored(run, output) == expected
    for row, name in zip(rows, IDS, strict=True):
        row["gt"] = {"texts": [REFERENCES[name]]}
    write_pairs(tmp_path / "batch.jsonl", rows)
    keys = ("--reference-key", "gt.texts.0", "--id-key", "custom.id", "--keep-column", "custom.id")
    for key in (BATCH, "conversations.1.value", "conversations.-1.value", "a.b"):
        output = tmp_path / "s"
        run = score(
            *(tmp_path / "batch.jsonl", *keys, "--generated-key", key, "-o", output, "--overwrite")
        )
        assert scored(run, output) == expected
        assert read_lines(output)[0]["custom.id"] == "bakery"


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("how", ["pattern", "repeated", "="])
def test_several_reference_files_are_several_references(
    score: Score, tmp_path: Path, predictions: Path, how: str, last: bool
) -> None:
    several = {name: [story(i + k, 4) for k in range(3)] for i, name in enumerate(IDS)}
    del several["lake"][2]  # which the last file does not have
    wanted = dump(tmp_path / "wanted.json", several)
    run = score("--references", wanted, "--predictions", predictions, "-o", tmp_path / "w")
    files = []
    for k in range(3):
        texts = {name: list_[k] for name, list_ in several.items() if k < len(list_)}
        files.append(dump(tmp_path / f"{k}.json", texts))
    given: list[object] = ["--references", *files]
    if how == "repeated":
        given = [part for file in files for part in ("--references", file)]
    elif how == "=":
        given = [f"--references={files[0]}", *files[1:]]
    rest = ["--predictions", predictions, "-o", tmp_path / "s"]
    run = score(*rest, *given) if last else score(*given, *rest)
    assert scored(run, tmp_path / "s") == {
        line["id"]: line["vcs"] for line in read_lines(tmp_path / "w")
    }
    assert "2 to 3 references for a pair; the best counts" in run.stdout


def test_lines_of_several_reference_files_belong_together(score: Score, tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"{k}.txt").write_text("".join(f"{story(k + i)}\n" for i in range(2)), "utf-8")
    files = sorted(tmp_path.glob("*.txt"))
    run = score("--references", *files[:2], "--predictions", files[2])
    assert run.code == 0
    assert "2 references for a pair" in run.stdout


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of references and one of predictions, with a text a file."""
    for folder, texts in (("ref", REFERENCES), ("gen", PREDICTIONS)):
        (tmp_path / folder).mkdir()
        for name, text in texts.items():
            (tmp_path / folder / f"{name}.txt").write_text(text, "utf-8")
        (tmp_path / folder / ".hidden.txt").write_bytes(b"\xff")
    return tmp_path / "ref", tmp_path / "gen"


def test_a_folder_holds_a_text_a_file(
    score: Score, tiny_bundle: Path, references: Path, predictions: Path, folders: tuple[Path, Path]
) -> None:
    tmp_path = references.parent
    run = score("--references", references, "--predictions", predictions, "-o", tmp_path / "w")
    expected = scored(run, tmp_path / "w")
    ref, gen = folders
    for arguments in (
        ("--references", ref, "--predictions", gen),
        ("--references", references, "--predictions", gen),
        ("--references", ref, "--predictions", predictions),
        (ref, gen),
    ):
        run = score(*arguments, "-o", tmp_path / "s", "--overwrite")
        assert scored(run, tmp_path / "s") == expected
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    for arguments in ((ref, gen), ("--references", ref, references, "--predictions", gen)):
        assert "pair bakery" in vcs("explain", *arguments, *engine).stdout
    (gen / "lake.txt").unlink()
    (ref / "empty.txt").touch()
    both = ("--references", ref, "--predictions", gen)
    for run in (score(*both), vcs("report", ref, gen, "-o", tmp_path / "page.html", *engine)):
        assert run.code == 1
        assert "gen: there is no prediction for 2 of 3 references: 'empty', 'lake'" in run.stderr
    (ref / "lake.txt").write_bytes(b"Caf\xe9.")
    assert "ref: lake.txt: not UTF-8" in score(*both).stderr


def test_a_folder_of_files_is_still_a_folder_of_systems(
    score: Score, tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    (folders[1] / ".hidden.txt").unlink()
    lines = tmp_path / "refs.txt"
    lines.write_text(f"{story(0)}\n", "utf-8")
    run = score("--references", lines, "--predictions", folders[1])
    assert run.code == 0
    assert all(name in run.stdout for name in IDS)


def test_a_folder_without_texts_is_named(score: Score, tmp_path: Path, predictions: Path) -> None:
    (tmp_path / "ref").mkdir()
    run = score("--references", tmp_path / "ref", "--predictions", predictions)
    assert run.code == 2
    assert "ref: the folder has no file that ends in .txt" in run.stderr


@pytest.mark.parametrize(
    "change", ["videos/{}.mp4", "{}.webm", "C:\\clips\\{}.avi", "a/b/{}", "{}.3gp", "x.y/{}.mp4"]
)
@pytest.mark.parametrize("side", ["references", "predictions"])
def test_ids_are_matched_without_folder_and_suffix(
    score: Score, tmp_path: Path, references: Path, predictions: Path, change: str, side: str
) -> None:
    given = ("--references", references, "--predictions", predictions)
    expected = scored(score(*given, "-o", tmp_path / "w"), tmp_path / "w")
    texts = {"references": REFERENCES, "predictions": PREDICTIONS}[side]
    changed = {change.format(name): text for name, text in texts.items()}
    dump(tmp_path / f"{side}.json", changed)
    run = score(*given, "-o", tmp_path / "s")
    assert [*scored(run, tmp_path / "s").values()] == [*expected.values()]
    assert "Ids were matched without folder and suffix, such as " in run.stderr


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (["a", "b"], ["c.mp4", "d.mp4"]),
        (["clip.01", "clip.02"], ["clip"]),
        (["a"], ["run/a.mp4", "jump/a.mp4"]),
        (["run/a", "jump/a"], ["a.mp4"]),
    ],
)
def test_ids_that_may_be_others_are_not_matched(
    score: Score, tmp_path: Path, there: list[str], here: list[str]
) -> None:
    references = dump(tmp_path / "r.json", dict.fromkeys(there, story(0)))
    predictions = dump(tmp_path / "p.json", dict.fromkeys(here, story(1)))
    run = score("--references", references, "--predictions", predictions)
    assert run.code == 2
    assert "no id is the same as in" in run.stderr


def written(path: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    path = path.with_suffix(f".{suffix}")
    if suffix == "json":
        return dump(path, rows)
    if suffix == "jsonl":
        path.write_text(
            "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), "utf-8"
        )
        return path
    lines = [",".join(f'"{value}"' for value in row.values()) for row in rows]
    path.write_text("\n".join([",".join(rows[0]), *lines]), "utf-8")
    return path


ROWS = [
    {"id": name, "reference": REFERENCES[name], "generated": f"{PREDICTIONS[name]} A café."}
    for name in IDS
]


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
@pytest.mark.parametrize("named", [True, False])
def test_gzip_is_read(score: Score, tmp_path: Path, suffix: str, named: bool) -> None:
    path = written(tmp_path / "pairs", suffix, ROWS)
    expected = scored(score(path, "-o", tmp_path / "w"), tmp_path / "w")
    packed = tmp_path / (f"packed.{suffix}.gz" if named else f"packed.{suffix}")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert scored(score(packed, "-o", tmp_path / "s"), tmp_path / "s") == expected
    packed.write_bytes(packed.read_bytes()[:-9])
    run = score(packed)
    assert run.code == 2
    assert run.stderr.count("\n") == 1
    assert f"{packed}: a broken gzip file: " in run.stderr


def test_systems_of_gzip_files_have_their_names(
    score: Score, tmp_path: Path, references: Path, predictions: Path
) -> None:
    files = [tmp_path / f"{name}.json.gz" for name in ("one", "two")]
    for path in files:
        path.write_bytes(gzip.compress(predictions.read_bytes()))
    run = score("--references", references, "--predictions", *files, "-o", tmp_path / "scores/")
    assert run.code == 0
    assert "2 systems: each file is one system\n" in run.stdout
    assert sorted(path.name for path in (tmp_path / "scores").iterdir()) == [
        "one.jsonl",
        "two.jsonl",
    ]


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        ("utf-16", "UTF-16, as PowerShell and Excel write it: type iconv -f UTF-16 -t UTF-8"),
        ("utf-16-le", "UTF-16 without a mark: type iconv -f UTF-16LE -t UTF-8"),
        ("utf-16-be", "UTF-16 without a mark: type iconv -f UTF-16BE -t UTF-8"),
        ("cp1252", "Windows-1252: type iconv -f CP1252 -t UTF-8"),
        ("latin-1", "Windows-1252: type iconv -f CP1252 -t UTF-8"),
    ],
)
def test_another_encoding_is_named_with_the_command_that_converts(
    score: Score, tmp_path: Path, suffix: str, encoding: str, named: str
) -> None:
    path = written(tmp_path / "pairs", suffix, ROWS)
    text = path.read_text("utf-8").replace("\\u00e9", "é")
    path.write_bytes(text.encode(encoding))
    run = score(path)
    assert run.code == 2
    assert named in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_the_encoding_of_plain_texts_is_named(score: Score, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_text(story(0), "utf-8")
    (tmp_path / "b.txt").write_text(f"{story(1)} A café.", encoding)
    run = score(tmp_path / "a.txt", tmp_path / "b.txt")
    assert run.code == 2
    assert f"iconv -f {encoding.upper()} -t UTF-8" in run.stderr
