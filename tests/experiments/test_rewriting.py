"""Rewrites by a language model: prompts, valid answers, and a whole set, stopped and resumed."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from support import fake_server as fake
from support.experiments import files, sentences, table, write_json
from support.killed import kill_when_it_writes
from support.stories import read_lines, story
from support.visil_commands import Scripted
from support.waiting import HANGS_AFTER_S
from vcs_experiments.datasets.texts import TABLE_1_INVALID, Problems, read_authors, read_cases
from vcs_experiments.rewriting.writing import AUTHOR, FILE, KINDS, Kind, Rewriter, ask_for, checked
from vcs_runtime.errors import InputError, ModelError, TextError

TEXT = (
    "A man parks his old car. He walks to the river. A dog runs down the street. He looks at the"
    " water."
)
KIND = {kind.id: kind for kind in KINDS}
AGAIN = "\n\nYour last answer was:"


def count(text: str) -> int | None:
    return text.count(".") or None


def rewritten(text: str, kind: Kind) -> str:
    """A text with the sentences of another in other words, of the length that the kind asks for."""
    share = kind.aim or (max(kind.fewest, 0.2) + min(kind.most, 2)) / 2
    parts = [part.split() for part in text.split(".") if part.strip()]
    turned = [((words[1:] + words[:1]) * 2)[: max(2, round(share * len(words)))] for words in parts]
    return " ".join(" ".join(words).capitalize() + "." for words in turned)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_a_prompt_holds_the_task_and_the_description_word_for_word(kind: Kind) -> None:
    text = TEXT + " {words} and {parts} are on a sign."
    prompt = ask_for(kind, text)
    assert prompt.endswith(f"\n{text}")
    task = prompt.removesuffix(text)
    assert "{" not in task
    assert kind.parts in task
    assert kind.aim is None or f"about {round(kind.aim * len(text.split()))} words" in task
    others = {ask_for(other, text) for other in KINDS if other != kind}
    assert prompt not in others


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_a_rewrite_of_its_kind_is_taken(kind: Kind) -> None:
    answer = rewritten(TEXT, kind)
    assert checked(f"<think>Which words?</think>\n  {answer} \n", TEXT, kind, count) == answer


@pytest.mark.parametrize(
    ("id_", "answer", "says"),
    [
        ("1.1", "", "empty"),
        ("1.1", " \n ", "empty"),
        ("1.1", "<think>Only this.</think>", "empty"),
        ("1.1", "A\0b.", "characters"),
        ("1.1", TEXT, "the same words as"),
        ("3.1", TEXT.upper().replace(",", ""), "the same words as"),
        ("1.1", f"Here is the rewritten text:\n\n{TEXT}", "remark"),
        ("1.1", f"Sure! {TEXT}", "remark"),
        ("1.1", f"Rewritten description: {TEXT}", "remark"),
        ("5.1", "I'm sorry, but I cannot do that.", "remark"),
        ("2.3", f"{TEXT} {TEXT}\n\nLet me know if it should be longer.", "remark"),
        ("1.1", f"**Title**\n\n{TEXT}", "not plain text"),
        ("2.4", "- " + TEXT.replace(". ", ".\n- "), "not plain text"),
        ("1.2", '"' + rewritten(TEXT, KIND["1.2"]) + '"', "quotation"),
        ("1.1", rewritten(TEXT, KIND["1.1"]).rstrip("."), "is not complete"),
        ("2.1", "He parks his car. " + TEXT, "words, but must have "),
        ("2.2", TEXT[:-7] + "river.", "words, but must have "),
        ("2.3", "He parks. He walks.", "words, but must have "),
        ("2.4", TEXT + " He goes.", "words, but must have "),
        ("5.1", TEXT.replace("man", "woman"), "words, but must have "),
        ("2.6", TEXT + " He goes home.", "words, but must have "),
        ("4.7", TEXT.replace(". ", ", ").replace("man", "fish"), "it has 1 sentences"),
        (
            "1.2",
            ". ".join(rewritten(TEXT, KIND["1.2"]).replace(".", "").split()) + ".",
            "sentences, but must have 4",
        ),
    ],
)
def test_an_answer_that_is_no_rewrite_is_refused_with_the_reason(
    id_: str, answer: str, says: str
) -> None:
    with pytest.raises(TextError, match=says):
        checked(answer, TEXT, KIND[id_], count)


def test_what_looks_like_a_remark_or_a_list_counts_if_the_description_has_it() -> None:
    text = "Here is a kitchen:\n- " + TEXT
    assert checked("Here is a room:\n- " + rewritten(TEXT, KIND["1.1"]), text, KIND["1.1"], count)
    assert checked(
        "The following day he drives off. Sure of himself, he sings.", TEXT, KIND["2.1"], count
    )


def test_sentences_are_not_counted_where_that_cannot_be_told() -> None:
    text = TEXT.replace(".", "")
    assert checked(rewritten(text, KIND["1.1"]), text, KIND["1.1"], lambda text: None)


def test_a_model_is_asked_again_with_its_answer_and_the_reason() -> None:
    good = rewritten(TEXT, KIND["2.1"])
    writer = Scripted(TEXT, "", good)
    assert Rewriter(writer, count).rewrite(TEXT, KIND["2.1"]) == good
    first, second, third = writer.prompts
    assert first == ask_for(KIND["2.1"], TEXT)
    assert second.startswith(f"{first}{AGAIN}\n{TEXT}\n\nIt cannot be used: it has the same words")
    assert third.startswith(f"{first}{AGAIN}\n\n\nIt cannot be used: it is empty")
    with pytest.raises(
        TextError, match="none of 2 answers can be used: it is empty.*; the last answer is ' '"
    ):
        Rewriter(Scripted(TEXT, " "), count, tries=2).rewrite(TEXT, KIND["2.1"])


class Rewriting(fake.VLLMHandler):
    """A server that rewrites, except that it cannot take the actions of one description apart."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["messages"][0]["content"].partition(AGAIN)[0]
        text = prompt.partition("Description:\n")[2]
        [kind] = [kind for kind in KINDS if ask_for(kind, text) == prompt]
        bad = kind.id == "2.5" and text.startswith(sentences(2)[0])
        return {
            "choices": [
                {"message": {"content": "Sure, I can do it." if bad else rewritten(text, kind)}}
            ]
        }


class Retelling(Rewriting):
    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        text = body["messages"][0]["content"].partition("Description:\n")[2]
        assert ask_for(AUTHOR, text) == body["messages"][0]["content"]
        return {"choices": [{"message": {"content": rewritten(text, AUTHOR)}}]}


class HoldsAfterTwenty(Rewriting):
    """Answers twenty requests, and the others when the test lets it."""

    left = 20
    go_on = threading.Event()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        type(self).left -= 1
        assert self.left >= 0 or self.go_on.wait(HANGS_AFTER_S)
        return super().answer(body)


class BreaksAfterTwenty(Rewriting):
    left = 20

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        type(self).left -= 1
        return super().answer(body) if self.left >= 0 else {}


def descriptions(folder: Path) -> Path:
    write_json(folder / "texts.json", {str(i): story(i, sentences=6) for i in (1, 2)})
    return folder / "texts.json"


def make(experiment: Any, texts: Path, url: str, out: Path, *more: object) -> Any:
    return experiment(
        "make-corruptions", "--references", texts, "--model", f"vllm:{url}", *more, out=out
    )


def test_one_command_makes_a_set_of_all_kinds_that_corruption_scores(
    experiment: Any, tmp_path: Path
) -> None:
    texts, out, results = descriptions(tmp_path), tmp_path / "set", tmp_path / "results"
    with fake.serve(Rewriting) as (url, log):
        done = make(experiment, texts, url, out, "--tries", 2)
    assert done.exit_code == 1, done.output
    problem = "2/Macro-Actions -> Micro-Actions: none of 2 answers can be used: it has a remark"
    assert problem in done.stderr
    assert "1 left out" in done.stderr
    assert len([path for path, _ in log if path == "/v1/chat/completions"]) == 2 * len(KINDS) + 1
    cases = read_cases(out, Problems())
    own = [case for case in cases if case.scene == "1" and not case.series]
    ids = [
        case["id"]
        for part in json.loads((out / "comparison/1.json").read_text())["categories"]
        for case in part["test_cases"]
    ]
    assert ids == sorted(ids)
    assert len({case.name for case in own}) == len(ids) == len(KINDS) + 9
    written = {case.name: case for case in own if case.name in {kind.name for kind in KINDS}}
    assert {name: case.valid for name, case in written.items()} == {
        kind.name: kind.valid for kind in KINDS
    }
    assert written["Brevity - L1"].generated == rewritten(
        written["Brevity - L1"].reference, KIND["2.1"]
    )
    valid = {case.name for case in own if case.valid}
    assert (len(valid), len(TABLE_1_INVALID)) == (10, 10)  # the 20 kinds of Table 1
    assert set(TABLE_1_INVALID) <= {case.name for case in own}
    record = json.loads((out / "corruptions.json").read_text())
    assert record["seed"] == 20250101
    assert record["rewrites"].startswith("rewrite|model:vllm:made/up|prompts:1@")
    assert record["missing"][0].startswith(problem)
    for kind in ("addition", "deletion", "chronology"):
        shutil.rmtree(out / kind)
    done = experiment("corruption", "--data", out, out=results)
    assert done.exit_code == 0, done.output
    rows = {
        row["cases"]: row for row in table(results, "classification") if row["metric"] == "VCS_LCT1"
    }
    assert (rows["of Table 1"]["valid"], rows["of Table 1"]["invalid"]) == (19, 20)
    assert rows["all"]["invalid"] == 2 * (len(KINDS) - 10 + 9)


def test_a_set_that_was_stopped_goes_on_to_the_same_bytes(experiment: Any, tmp_path: Path) -> None:
    texts, whole, part = descriptions(tmp_path), tmp_path / "whole", tmp_path / "part"
    with fake.serve(Rewriting) as (url, _):
        assert make(experiment, texts, url, whole).exit_code == 1
    with fake.serve(BreaksAfterTwenty) as (url, _):
        stopped = make(experiment, texts, url, part)
    assert isinstance(stopped.exception, ModelError)
    assert not (part / "comparison").exists()
    finished = (part / FILE).read_bytes()
    assert finished.count(b"\n") == 20
    (part / FILE).write_bytes(finished + b'{"id": "2/')
    with fake.serve(Rewriting) as (url, log):
        assert "exists already" in str(make(experiment, texts, url, part).exception)
        assert make(experiment, texts, url, part, "--resume").exit_code == 1
        assert len([path for path, _ in log if "chat" in path]) == 2 * len(KINDS) - 20 + 2
        assert files(part) == files(whole)
        other = make(experiment, texts, url, part, "--resume", "--tries", 1)
        assert "its signature has tries:" in str(other.exception)
        write_json(texts, {"1": story(1, sentences=6), "2": story(3, sentences=6)})
        other = make(experiment, texts, url, part, "--resume")
        assert "the texts of id '2/Synonym Substitution' have changed" in str(other.exception)
        write_json(texts, {str(i): story(i, sentences=6) for i in (1, 3)})
        other = make(experiment, texts, url, part, "--overwrite")
        assert isinstance(other.exception, InputError)
        assert "2.json is not one of the descriptions:" in str(other.exception)
    assert files(part) == files(whole)


def test_authors_are_written_one_run_a_model(experiment: Any, tmp_path: Path) -> None:
    texts, out = descriptions(tmp_path), tmp_path / "set"
    with fake.serve(Retelling) as (url, _):
        for number in (2, 3):
            done = make(experiment, texts, url, out, "--author", number)
            assert done.output.startswith(f"scenes written as author {number} in "), done.output
        assert "exists already" in str(make(experiment, texts, url, out, "--author", 2).exception)
        assert make(experiment, texts, url, out, "--author", 2, "--resume").exit_code == 0
        write_json(texts, {"1": story(1, sentences=6)})
        other = make(experiment, texts, url, out, "--author", 4)
    assert "author1.json has other descriptions than" in str(other.exception)
    by_scene = read_authors(out, Problems())
    assert {scene: sorted(by) for scene, by in by_scene.items()} == {
        key: ["A1", "A2", "A3"] for key in "12"
    }
    assert by_scene["1"]["A1"] == story(1, sentences=6)
    assert by_scene["1"]["A2"] == rewritten(by_scene["1"]["A1"], AUTHOR)
    done = experiment(
        "make-corruptions", "--references", texts, "--author", 2, out=tmp_path / "none"
    )
    assert done.exit_code == 2
    assert "--author needs --model" in done.output
    assert experiment("authors", "--data", out, out=tmp_path / "results").exit_code == 0


@pytest.mark.slow
def test_kill_9_loses_no_finished_rewrite(
    experiment: Any, tiny_bundle: Path, tmp_path: Path
) -> None:
    texts, whole, part = descriptions(tmp_path), tmp_path / "whole", tmp_path / "part"
    with fake.serve(Rewriting) as (url, _):
        make(experiment, texts, url, whole)
    with fake.serve(HoldsAfterTwenty) as (url, log):
        command = [
            sys.executable,
            *f"-m vcs_runtime experiment make-corruptions --references {texts}".split(),
            *f"--model vllm:{url} --bundle {tiny_bundle} --device cpu -o {part}".split(),
        ]
        finished = kill_when_it_writes(list(map(str, command)), part / FILE, 2 * len(KINDS))
        assert 0 < finished < 2 * len(KINDS)
        HoldsAfterTwenty.go_on.set()
        before = len(log)
        make(experiment, texts, url, part, "--resume")
        assert len(log) - before == 2 * len(KINDS) - finished + 2
    assert files(part) == files(whole)


@pytest.mark.parametrize(
    "arguments", [("--tries", 0), ("--resume", "--overwrite"), ("--model", "x")]
)
def test_options_that_do_not_go_together_are_refused(
    experiment: Any, tmp_path: Path, arguments: Any
) -> None:
    texts = descriptions(tmp_path)
    done = make(experiment, texts, "http://127.0.0.1:9", tmp_path / "out", *arguments)
    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="session")
def tiny_writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny_genai import write_model

    return write_model(tmp_path_factory.mktemp("writer") / "text", vision=False)


def test_what_a_random_model_writes_is_refused(tiny_writer: Path) -> None:
    from vcs_visil.models.genai import GenAI

    writer = GenAI(tiny_writer, "cpu")
    with pytest.raises(TextError, match="none of 1 answers can be used"):
        Rewriter(writer, count, tries=1).rewrite(TEXT, KIND["1.1"])
    assert f"|model:genai:text@{writer.fingerprint[-8:]}|" in Rewriter(writer, count).signature


@pytest.mark.slow
def test_a_random_model_leaves_error_lines_and_the_mechanical_set(
    experiment: Any, tiny_writer: Path, tmp_path: Path
) -> None:
    texts, out = descriptions(tmp_path), tmp_path / "set"
    done = experiment(
        *f"make-corruptions --references {texts} --model genai:{tiny_writer} --tries 1".split(),
        out=out,
    )
    assert done.exit_code == 1, done.output
    lines = read_lines(out / FILE)
    ids = [line["id"] for line in lines]
    assert ids == [f"{scene}/{kind.name}" for scene in (1, 2) for kind in KINDS]
    assert all(
        "none of 1 answers can be used" in line["error"] and "text" not in line for line in lines
    )
    assert len([case for case in read_cases(out, Problems()) if not case.series]) == 2 * 9
