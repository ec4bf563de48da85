"""What the attacks share: files to begin with, and defects to plant."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from support.command_line import vcs
from support.stories import story, write_pairs

pytest.register_assert_rewrite("attack.checks", "attack.processes")


@pytest.fixture(scope="session")
def engine(tiny_bundle: Path) -> tuple[str, ...]:
    return ("--bundle", str(tiny_bundle), "--device", "cpu")


@pytest.fixture(scope="session")
def files(
    tiny_bundle: Path, engine: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Pairs, one of which cannot be scored; scores of two systems; all inputs, and a secret."""
    folder = tmp_path_factory.mktemp("files")
    rows: list[dict[str, Any]] = [
        {"id": f"v{i}", "reference": story(i, 3), "generated": story(50 + i, 3), "note": i}
        for i in range(6)
    ]
    rows[2]["generated"] = ""
    other = [{**row, "generated": story(80 + i, 2)} for i, row in enumerate(rows)]
    summaries = [
        {"name": f"s{i}", "visil": i / 4, "tokens": 3 + i, "text": story(i)} for i in range(3)
    ]
    answers = [{"name": f"s{i}", "correct": i % 2, "total": 2} for i in range(3)]
    texts = {
        "references.json": (rows, "reference"),
        "systems/a.json": (rows, "generated"),
        "systems/b.json": (other, "generated"),
    }
    contents = {
        "pairs.jsonl": rows,
        "other-pairs.jsonl": other,
        "items.jsonl": [
            {"id": "v", "video": "v.mp4", "summaries": [{"name": "s", "text": story(3)}]}
        ],
        "visil.jsonl": [
            {"id": f"v{i}", "signature": "s", "summaries": summaries} for i in range(3)
        ],
        "answers.jsonl": [{"id": f"v{i}", **answer} for i in range(3) for answer in answers],
        "pairs.csv": "id,reference,generated\na,A dog runs.,A man runs.\n",
        "ref.txt": story(1),
        "gen.txt": story(2),
        "params.toml": "lct = 0.5\n",
        "notes.txt": "what must not be lost",
        "empty": "",
        **{
            name: json.dumps({row["id"]: row[key] for row in of})
            for name, (of, key) in texts.items()
        },
    }
    (folder / "systems").mkdir()
    for name, content in contents.items():
        if isinstance(content, list):
            write_pairs(folder / name, content)
        else:
            (folder / name).write_text(content)
    shutil.copytree(tiny_bundle, folder / "bundle")
    shutil.copytree(tiny_bundle.parent / "checkpoint", folder / "checkpoint")
    for name in ("scores.jsonl", "scores.csv", "scores.tsv", "scores.parquet"):
        assert vcs("score", folder / "pairs.jsonl", "-o", folder / name, *engine).code == 1
    done = vcs("score", folder / "other-pairs.jsonl", "-o", folder / "other.jsonl", *engine)
    assert done.code == 0
    assert vcs("bundle", "pack", tiny_bundle, "-o", folder / "packed.tar").code == 0
    return folder


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[Any], Any]], None]:
    """Replace a function by a wrapper, so that a check that cannot fail is noticed."""

    def put(target: str, make: Callable[[Any], Any]) -> None:
        owner, _, name = target.rpartition(".")
        held = resolve_name(owner)
        monkeypatch.setattr(held, name, make(getattr(held, name)))

    return put


@pytest.fixture(autouse=True, scope="module")
def bounded_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """In `make attack`, let an attack on memory end in an error of this process alone."""
    # Chromium reserves far more than it uses.
    if (
        request.config.getoption("--hypothesis-profile", None) != "attack"
        or request.path.name == "test_pages.py"
    ):
        yield
        return
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)
