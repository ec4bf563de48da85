"""The dataset formats of the experiments: ours, the authors', and what is wrong with a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.experiments import CASES, comparison, sentences, write_json
from support.stories import story, write_pairs
from vcs_experiments import vatex
from vcs_experiments.datasets import published
from vcs_experiments.datasets.texts import Problems, read_authors, read_cases, read_descriptions
from vcs_runtime.errors import InputError


def edit(path: Path, change) -> None:  # type: ignore[no-untyped-def]
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_scenes_come_in_the_order_of_their_numbers_with_what_is_valid(tmp_path: Path) -> None:
    comparison(tmp_path, 11)
    problems = Problems()
    cases = read_cases(tmp_path, problems)
    assert list(dict.fromkeys(case.scene for case in cases)) == [str(i) for i in range(11)]
    assert [case.name for case in cases[:4]] == CASES
    assert [case.valid for case in cases[:4]] == [True, False, False, False]
    assert cases[0].id == f"0/{CASES[0]}"
    assert problems.messages == []


def test_the_authors_ids_say_which_rewrites_tell_the_same_story(tmp_path: Path) -> None:
    ids = [
        f"{kind}.{i}"
        for kind, count in enumerate((3, 6, 6, 8, 1, 3), 1)
        for i in range(1, count + 1)
    ]
    cases = [{"id": id_, "name": f"case {id_}", "description": "A text."} for id_ in ids]
    value = {"ground_truth": "A text.", "categories": [{"category": "all", "test_cases": cases}]}
    write_json(tmp_path / "comparison" / "1.json", value)
    valid = {
        case.name.removeprefix("case ") for case in read_cases(tmp_path, Problems()) if case.valid
    }
    # Words and voice, shorter and longer, finer and coarser actions, and inserted attributes; 3.2
    # repeats.
    assert valid == {"1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "3.1"}


@pytest.mark.parametrize(
    ("data", "results"),
    [
        ("comparison/aug_dataset", "results/mpii/comparison/individual_results"),
        ("data/mpii/comparison/aug_dataset_full", "results/mpii/comparison/individual_results"),
        ("exp/data/mpii/comparison/aug_dataset", "exp/results/mpii/comparison/individual_results"),
        (
            "exp/data/mpii/comparison/aug_dataset",
            "exp/results/mpii/comparison_complete_results/individual_results",
        ),
    ],
)
def test_the_authors_own_folder_names_are_accepted(tmp_path: Path, data: str, results: str) -> None:
    ours, theirs = comparison(tmp_path / "ours"), tmp_path / "theirs"
    shutil.copytree(ours / "comparison", theirs / data)
    shutil.copytree(ours / "comparison-published", theirs / results)
    assert read_cases(theirs, Problems()) == read_cases(ours, Problems())
    found = published.find_published(theirs, "comparison")
    assert found == theirs / results
    assert published.read_published(found, Problems())[f"2/{CASES[1]}"] == {
        "BLEU-1": 0.5,
        "VCS_LCT0": 0.5,
    }


def test_the_authors_complete_results_go_before_those_of_a_first_part(tmp_path: Path) -> None:
    for name, value in (("authors", 0.1), ("authors_complete_results", 0.9)):
        for author in ("A1", "A2"):
            folder = tmp_path / "exp/results/mpii" / name / "individual_results" / author
            folder.mkdir(parents=True)
            other = {"A1": "A2", "A2": "A1"}[author]
            (folder / f"{author}_35.csv").write_text(f"Comparison,LAS\n{author}-{other},{value}\n")
    found = published.find_published(tmp_path, "authors")
    assert found is not None
    scores = published.read_published_authors(found, Problems())
    assert scores == {"35/A1-A2": {"LAS": 0.9}, "35/A2-A1": {"LAS": 0.9}}


def test_a_folder_of_scenes_alone_is_accepted(tmp_path: Path) -> None:
    comparison(tmp_path)
    assert len(read_cases(tmp_path / "comparison", Problems())) == 12


def test_graded_series_are_cases_by_kind_position_and_level(tmp_path: Path) -> None:
    texts = {"2": story(2), "10": story(10), "1": story(1)}
    value = {"ground_truth": story(1), "iterations": texts}
    write_json(tmp_path / "deletion" / "end" / "7.json", value)
    write_json(tmp_path / "exp/data/mpii/chronology/aug_dataset_100/end/8.json", value)
    names = [case.id for case in read_cases(tmp_path, Problems())]
    assert names == [
        f"{kind}/end/{level}" for kind in ("7/deletion", "8/chronology") for level in (1, 2, 10)
    ]


def test_a_level_that_is_no_number_is_left_out_and_a_case_may_have_a_slash(tmp_path: Path) -> None:
    comparison(tmp_path, 1)
    data = {"ground_truth": "a.", "iterations": {"1": "b.", "x": "c."}}
    write_json(tmp_path / "addition/end/0.json", data)
    edit(
        tmp_path / "comparison/0.json",
        lambda v: v["categories"][0]["test_cases"][0].update(name="add/end/2"),
    )
    problems = Problems()
    cases = read_cases(tmp_path, problems)
    assert [case.series for case in cases] == [None] * 4 + [("addition", "end", 1)]
    assert "iteration 'x' is not a whole number" in problems.messages[0]


def test_what_is_bad_is_named_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    comparison(tmp_path, 5)
    folder = tmp_path / "comparison"
    edit(folder / "0.json", lambda v: v["categories"][0]["test_cases"][1].update(description=" "))
    edit(folder / "1.json", lambda v: v.update(ground_truth=""))
    edit(folder / "2.json", lambda v: v.pop("categories"))
    (folder / "3.json").write_text("{")
    edit(
        folder / "4.json",
        lambda v: v["categories"][0]["test_cases"].append(v["categories"][0]["test_cases"][0]),
    )
    heard: list[str] = []
    problems = Problems(heard.append)
    cases = read_cases(tmp_path, problems)
    assert [case.scene for case in cases] == ["0"] * 3 + ["4"] * 4
    assert heard == problems.messages
    for message, parts in zip(
        problems.messages,
        [
            ("scene 0", CASES[1], "description: the text is empty"),
            ("scene 1", "ground_truth: the text is empty"),
            ("2.json", "the object has no 'ground_truth' or 'categories'"),
            ("3.json", "not JSON"),
            ("scene 4", CASES[0], "occurs twice"),
        ],
        strict=True,
    ):
        assert all(part in message for part in parts), message


def test_a_case_may_say_itself_whether_it_is_valid(tmp_path: Path) -> None:
    comparison(tmp_path, 1)
    path = tmp_path / "comparison" / "0.json"
    edit(path, lambda v: v["categories"][0]["test_cases"][3].update(valid=True))
    edit(path, lambda v: v["categories"][0]["test_cases"][0].pop("id"))
    assert [case.valid for case in read_cases(tmp_path, Problems())] == [None, False, False, True]


@pytest.mark.parametrize(
    "make", [lambda p: None, lambda p: p.mkdir(), lambda p: write_json(p / "x" / "1.json", {})]
)
def test_an_unknown_dataset_format_is_refused_with_what_was_expected(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "data")
    with pytest.raises(
        InputError, match="unknown dataset format: no scene with rewrites|no such folder"
    ):
        read_cases(tmp_path / "data", Problems())


def test_published_scores_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("Metric,a,b,c\nBLEU-1,0.5,nan,\n")
    (tmp_path / "2.csv").write_text("x,y\n1,2\n")
    problems = Problems()
    assert published.read_published(tmp_path, problems) == {"1/a": {"BLEU-1": 0.5}}
    assert [
        message.split(": ")[0].removeprefix(f"{tmp_path}/") for message in problems.messages
    ] == [
        "1.csv, BLEU-1, b",
        "1.csv, BLEU-1, c",
        "2.csv",
    ]


def test_authors_in_one_file_or_in_the_authors_own(tmp_path: Path) -> None:
    table = {"10": {"A1": "a b.", "A2": "c."}, "2": {"A1": "d.", "A2": "e."}}
    write_json(tmp_path / "authors.json", table)
    for author in ("1", "2"):
        texts = {scene: by[f"A{author}"] for scene, by in table.items()}
        write_json(tmp_path / "own" / f"author{author}.json", texts)
    found = read_authors(tmp_path / "authors.json", Problems())
    assert list(found) == ["2", "10"]
    assert found == table == read_authors(tmp_path / "own", Problems())


def test_a_missing_author_and_an_empty_text_are_problems(tmp_path: Path) -> None:
    table = {
        "1": {"A1": "a.", "A2": "b.", "A3": "c."},
        "2": {"A1": "a.", "A2": "b."},
        "3": {"A1": "", "A2": "b."},
    }
    write_json(tmp_path / "authors.json", table)
    problems = Problems()
    found = read_authors(tmp_path / "authors.json", problems)
    assert {scene: list(by) for scene, by in found.items()} == {
        "1": ["A1", "A2", "A3"],
        "2": ["A1", "A2"],
    }
    assert "scene 2: no text of author A3: left out" in problems.messages
    assert any(
        message.startswith("scene 3: A1: the text is empty") for message in problems.messages
    )
    write_json(tmp_path / "authors.json", {"1": "text"})
    with pytest.raises(InputError, match="unknown dataset format"):
        read_authors(tmp_path / "authors.json", Problems())


def test_ratings_that_are_nan_or_missing_cost_their_candidate(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_text(
        '{"vid": "v1", "refs": [["r1", "r2"]], "cands": ["b", "a", "", "d"],'
        ' "scores": [[1, NaN, 3], [1, 2, 3], [1, 2, 3], [4, 5]]}\n'
        '{"vid": "v2", "refs": [], "cands": ["a"], "scores": [[1, 2, 3]]}\n'
        '{"vid": "v3", "refs": ["r"], "cands": ["a", "b"], "scores": [[1, 2, 3]]}\n'
    )
    problems = Problems()
    videos = vatex.read_vatex(path, problems)
    assert [(v.id, v.references, v.candidates, v.ratings) for v in videos] == [
        ("v1", ["r1", "r2"], ["a"], [[1.0, 2.0, 3.0]]),
        ("v3", ["r"], ["a"], [[1.0, 2.0, 3.0]]),
    ]
    assert len(problems.messages) == 5
    assert "candidate 0 is left out, because its ratings [1, nan, 3]" in problems.messages[0]
    path.write_text('{"id": 1}\n')
    with pytest.raises(InputError, match="line 1: unknown dataset format"):
        vatex.read_vatex(path, Problems())
    path.write_text('{"vid": 1, "refs": "text", "cands": [], "scores": []}\n')
    with pytest.raises(InputError, match="must be lists"):
        vatex.read_vatex(path, Problems())


def test_descriptions_come_as_object_list_or_lines(tmp_path: Path) -> None:
    texts = {"1": "a.", "2": "b."}
    write_json(tmp_path / "o.json", texts)
    write_json(tmp_path / "l.json", [{"id": name, "summary": text} for name, text in texts.items()])
    rows = [{"id": name, "reference": text} for name, text in texts.items()]
    write_pairs(tmp_path / "p.jsonl", rows)
    for name in ("o.json", "l.json", "p.jsonl"):
        assert read_descriptions(tmp_path / name, Problems()) == texts
    pairs = [{"id": 1, "text": ""}, {"id": 2, "text": "b"}, {"id": 2, "text": "c"}]
    write_pairs(tmp_path / "bad.jsonl", pairs)
    problems = Problems()
    assert read_descriptions(tmp_path / "bad.jsonl", problems) == {"2": "b"}
    assert len(problems.messages) == 2
    (tmp_path / "bad.jsonl").write_text('{"id": 1, "text": "a"}\n{oops\n')
    with pytest.raises(InputError, match=r"bad\.jsonl line 2: not JSON"):
        read_descriptions(tmp_path / "bad.jsonl", Problems())


def test_sentences_of_the_stories_are_what_the_other_tests_take_them_for() -> None:
    assert len(sentences(0)) == 6
