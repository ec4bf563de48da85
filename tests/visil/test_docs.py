"""The examples of docs/guide/visil.md, with a tiny random model in the place of the reader's."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from support.blocks import Page, titled
from support.snippets import run_snippet
from support.stories import write_pairs
from support.tiny_video import write_video
from vcs_visil import Image

PAGE = "docs/guide/visil.md"


def test_from_an_item_to_a_selection(vision_model: Path, tmp_path: Path) -> None:
    page = Page(tmp_path)
    shutil.copytree(vision_model, tmp_path / "model")
    write_video(tmp_path / "ride.mp4", Fraction(25), 50)
    rows = [json.loads(titled("docs/guide/visil.md", "items.jsonl").body)]
    write_pairs(tmp_path / "items.jsonl", rows)
    for title in ("Check the model", "Score and select"):
        page.run(titled(PAGE, title))


def test_python(
    vision_model: Path, pictures: list[Image], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for path, picture in zip(paths, pictures, strict=False):
        path.write_bytes(picture.data)
    names = {"caption": "A man drives down the street.", "keywords": ["man", "street"]}
    result = run_snippet(
        "docs/guide/visil.md", "From Python", paths=paths, folder=vision_model, **names
    )["result"]
    assert capsys.readouterr().out == f"{result.visil} {result.per_keyword} {result.signature}\n"
