"""What lies at a path: what cannot be seen is an error, on every Python."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import vcs
from support.needed import needs
from vcs_runtime.util.presence import is_folder, is_regular_file, is_there

# No file system takes the name: as one in a folder that its user may not enter.
HIDDEN = f"{'a' * 300}/b"
# As LongVideoBench has them.
QUESTION = {
    "id": "a_0",
    "video_id": "a",
    "video_path": "a.mp4",
    "subtitle_path": "a.json",
    "question": "Which?",
    "candidates": ["This.", "That."],
    "correct_choice": 0,
    "question_category": "SSS",
    "duration": 2.0,
    "duration_group": 15,
    "starting_timestamp_for_subtitles": 0,
}


@pytest.fixture
def silent_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the methods of Path answer False to errors, as from Python 3.14 on."""
    monkeypatch.setattr(Path, "is_dir", lambda path: os.path.isdir(path))
    monkeypatch.setattr(Path, "is_file", lambda path: os.path.isfile(path))
    monkeypatch.setattr(Path, "exists", lambda path: os.path.exists(path))


def test_a_path_is_a_folder_or_a_file_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loose").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("file")
    asked = (is_folder, is_regular_file, is_there)
    assert [ask(tmp_path) for ask in asked] == [True, False, True]
    for name in ("file", "link"):
        assert [ask(tmp_path / name) for ask in asked] == [False, True, True]
    for name in ("none", "none/none", "file/none", "loose", "nul\0", "half \ud800"):
        assert [ask(tmp_path / name) for ask in asked] == [False, False, False]


@pytest.mark.parametrize("ask", [is_folder, is_regular_file, is_there])
def test_what_cannot_be_seen_is_no_answer(
    ask: Callable[[Path], bool], tmp_path: Path, silent_paths: None
) -> None:
    (tmp_path / "round").symlink_to("round")
    for path in (tmp_path / HIDDEN, tmp_path / "round"):
        with pytest.raises(OSError, match="File name too long|levels of symbolic links"):
            ask(path)


@pytest.mark.parametrize(
    "command",
    [
        "score PAIRS --bundle HIDDEN",
        "score PAIRS",
        "score PAIRS --bundle fast",
        "demo",
        "bundle info HIDDEN",
        "bundle verify HIDDEN",
        "doctor --bundle HIDDEN",
        "fetch default --from HIDDEN",
        "fetch default",
        "fetch fast",
        "export sat --from HIDDEN -o OUT",
        "export encoder --from HIDDEN -o OUT",
        "export nv-embed-v2 --from HIDDEN -o OUT",
        "export decoder --from HIDDEN -o OUT",
        "experiment rank --predictions HIDDEN --references PAIRS --bundle BUNDLE -o OUT",
        "experiment corruption --data HIDDEN --bundle BUNDLE -o OUT",
        "experiment authors --data HIDDEN --bundle BUNDLE -o OUT",
        pytest.param(
            "experiment clip-cc-bench HIDDEN -o OUT --judge a=BUNDLE", marks=needs("scipy")
        ),
        "visil import QUESTIONS --videos HIDDEN --drop-missing -o OUT",
        "visil import QUESTIONS --subtitles HIDDEN --drop-missing -o OUT",
    ],
)
def test_a_folder_that_cannot_be_seen_is_not_called_missing(
    command: str, tmp_path: Path, tiny_bundle: Path, silent_paths: None
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"id": "a", "reference": "One. Two.", "generated": "One. Two."}\n')
    questions = tmp_path / "lvb_val.json"
    questions.write_text(json.dumps([QUESTION]), "utf-8")
    places = {
        "HIDDEN": tmp_path / HIDDEN,
        "PAIRS": pairs,
        "QUESTIONS": questions,
        "OUT": tmp_path / "out",
        "BUNDLE": tiny_bundle,
        "a=BUNDLE": f"a={tiny_bundle}",
    }
    run = vcs(
        *(places.get(word, word) for word in command.split()),
        VCS_RUNTIME_HOME=str(tmp_path / HIDDEN),
    )
    said = run.stdout + run.stderr
    assert "File name too long" in said, said
    assert run.code in (1, 2), said
    for guess in ("no such", "is not installed", "getting"):
        assert guess not in said, said
