"""Prompts of a site: checked with file and line, and named by their hash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vcs_runtime.errors import InputError
from vcs_visil import Image, Summary
from vcs_visil.prompts import Prompts, builtin


def own_prompts(folder: Path) -> Path:
    """A folder with a copy of the built-in prompts."""
    for name, text in builtin().texts.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    return folder


def test_prompts_of_ones_own_are_named_by_their_hash(tmp_path: Path) -> None:
    own = Prompts.read(own_prompts(tmp_path))
    assert (own.texts, builtin().version) == (builtin().texts, "1")
    (tmp_path / "README.md").write_text("Where these texts are from.", "utf-8")
    assert Prompts.read(tmp_path).version == own.version
    (tmp_path / "score.txt").write_text("{given} {masked_caption} Guess.", "utf-8")
    other = Prompts.read(tmp_path).version
    assert re.fullmatch(r"own@[0-9a-f]{8}", other)
    (tmp_path / "answer-given-text.txt").write_text("Only this: {summary}", "utf-8")
    assert len({own.version, other, Prompts.read(tmp_path).version}) == 3


def test_an_answer_may_have_another_text_of_what_is_given(
    tmp_path: Path, pictures: list[Image]
) -> None:
    folder = own_prompts(tmp_path)
    (folder / "answer-given-text.txt").write_text("Only this: {summary}", "utf-8")
    own, text, images = Prompts.read(folder), Summary("A man."), Summary("A man.", pictures[:1])
    assert own.given(text, "answer") == ["Only this: A man."]
    assert own.given(text) == builtin().given(text, "answer") == builtin().given(text)
    assert own.given(images, "answer") == builtin().given(images)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("score.txt", "One.\n{given} Guess.", r"score\.txt: the field {masked_caption} is missing"),
        (
            "score.txt",
            "\n{given}\n{masked.caption}",
            r"score\.txt line 3: {masked\.caption} is not one of the fields {given}",
        ),
        (
            "score.txt",
            "{given} {masked_caption}\n{given}",
            r"score\.txt line 2: the field {given} occurs twice",
        ),
        (
            "answer-given-text.txt",
            "Text.",
            r"answer-given-text\.txt: the field {summary} is missing",
        ),
        ("F6.txt", "{given}", r"F6\.txt: no prompt has this name; the names are .*score\.txt"),
        ("score.md", "{given}", r"score\.md: no prompt has this name"),
        ("caption.txt", None, r"caption\.txt: No such file"),
    ],
)
def test_prompts_that_are_wrong_are_named_with_their_line(
    tmp_path: Path, name: str, text: str | None, says: str
) -> None:
    folder = own_prompts(tmp_path)
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text, "utf-8")
    with pytest.raises(InputError, match=says):
        Prompts.read(folder)
    with pytest.raises(InputError, match="nowhere: No such file"):
        Prompts.read(tmp_path / "nowhere")
