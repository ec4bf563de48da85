"""The experiments' texts, in our dataset format and the authors' (docs/guide/experiments.md).

A folder of another format, or a file that cannot be read at all, is an InputError. A single scene,
case or rating that cannot be used is a `Problems` entry: it is named and counted, and the rest goes
on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.texts import Texts
from vcs_runtime.text.cleaning import check_text
from vcs_runtime.util.presence import is_folder
from vcs_runtime.util.reading import read_whole

POSITIONS = ("beginning", "middle", "end", "random")
SERIES = ("addition", "deletion", "chronology")
# The authors' scored texts are in `data/mpii/KIND/aug_dataset`; folders beside it hold a hundred
# scenes, or all.
_FOLDERS = ("{}/aug_dataset", "data/mpii/{}/aug_dataset", "exp/data/mpii/{}/aug_dataset", "{}")
_SIZES = ("", "_full", "_100")

Report = Callable[[str], None]


@dataclass
class Problems:
    """Collects messages about unusable data, and reports each at once."""

    report: Report = lambda message: None
    messages: list[str] = field(default_factory=list)

    def add(self, message: str) -> None:
        """Add a message about one scene, case or text that was left out."""
        self.messages.append(message)
        self.report(message)


@dataclass(frozen=True, slots=True)
class Case:
    """A rewrite of a scene's description."""

    scene: str
    name: str
    reference: str
    generated: str
    valid: bool | None = None  # whether it tells the same story; None if the data do not say
    series: tuple[str, str, int] | None = None  # kind, position and level of a graded series

    @property
    def id(self) -> str:
        """SCENE/CASE, unique in an experiment."""
        return f"{self.scene}/{self.name}"


# The authors' cases that tell the same story (papers, Table 1); their other cases do not.
VALID_IDS = ("1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "3.1")
# The invalid cases that Table 1 shows.
TABLE_1_INVALID = (
    "Addition (~50%)",
    "Addition (~80%)",
    "Deletion (~50%)",
    "Deletion (~80%)",
    "Subject-Action-Object Corruption",
    "Summarization",
    "Reverse Segments Order",
    "Jumble Segments Order",
    "Rotate Half Paragraph",
    "Local Permutation",
)


def find_folder(root: Path, kind: str) -> Path | None:
    """Find the folder with the texts of a kind ("comparison", "addition", ...) under a root."""
    for pattern in _FOLDERS:
        for size in _SIZES if "aug_dataset" in pattern else ("",):
            folder = root / (pattern.format(kind) + size)
            if folder.is_dir() and (any(folder.glob("*.json")) or any(folder.glob("*/*.json"))):
                return folder
    return None


def read_cases(root: Path, problems: Problems) -> list[Case]:
    """Read all rewrites: `comparison/SCENE.json`, then the graded series."""
    if not is_folder(root):
        raise InputError(f"{root}: no such folder")
    cases: list[Case] = []
    comparison = find_folder(root, "comparison")
    if comparison is None and any(root.glob("*.json")):
        comparison = root
    if comparison:
        for path in scene_files(comparison):
            cases += _usable(_comparison(path, problems), problems)
    for kind in SERIES:
        folder = find_folder(root, kind)
        if folder is None:
            continue
        for position in POSITIONS:
            for path in scene_files(folder / position):
                cases += _usable(_series(path, kind, position, problems), problems)
    if not cases:
        refused = ""
        if problems.messages:
            refused = f"; {len(problems.messages)} files or cases were refused"
        raise InputError(
            f"{root}: unknown dataset format: no scene with rewrites in {root / 'comparison'} nor"
            f" in the folders of the graded series ({', '.join(SERIES)}){refused}"
        )
    return cases


def scene_files(folder: Path) -> list[Path]:
    """List the JSON files of a folder; numbered ones in the order of their numbers."""
    return sorted(folder.glob("*.json"), key=lambda path: scene_key(path.stem))


def scene_key(name: str) -> tuple[float, str]:
    """Sort key for names of scenes: 2 before 10, words last."""
    return (float(name), name) if name.isdecimal() else (math.inf, name)


def _comparison(path: Path, problems: Problems) -> Iterator[Case]:
    scene = _scene(path, "categories", list, problems)
    for category in scene["categories"] if scene else ():
        for case in category.get("test_cases", ()) if isinstance(category, dict) else ():
            if not isinstance(case, dict) or not isinstance(case.get("name"), str):
                problems.add(f"{path}: a test case has no name: left out")
                continue
            valid = case.get("valid")
            if not isinstance(valid, bool):
                valid = str(case["id"]) in VALID_IDS if "id" in case else None
            truth, text = scene["ground_truth"], case.get("description")  # type: ignore[index]
            yield Case(path.stem, case["name"], truth, text, valid)  # type: ignore[arg-type]


def _series(path: Path, kind: str, position: str, problems: Problems) -> Iterator[Case]:
    scene = _scene(path, "iterations", dict, problems)
    if scene:
        for level in sorted(scene["iterations"], key=scene_key):
            if not level.isdecimal():
                problems.add(f"{path}: iteration {level!r} is not a whole number: left out")
                continue
            name, series = f"{kind}/{position}/{level}", (kind, position, int(level))
            yield Case(
                path.stem, name, scene["ground_truth"], scene["iterations"][level], series=series
            )


def _scene(path: Path, key: str, kind: type, problems: Problems) -> dict[str, Any] | None:
    try:
        scene = read_json(path)
    except InputError as error:
        problems.add(f"{error}: the scene is left out")
        return None
    if (
        not isinstance(scene, dict)
        or "ground_truth" not in scene
        or not isinstance(scene.get(key), kind)
    ):
        problems.add(f"{path}: the object has no 'ground_truth' or {key!r}: the scene is left out")
        return None
    return scene


def _usable(cases: Iterator[Case], problems: Problems) -> Iterator[Case]:
    """Yield the cases whose texts can be scored; each name counts once in a scene."""
    seen: set[str] = set()
    for case in cases:
        try:
            check_text(case.reference, "ground_truth")
        except TextError as error:
            problems.add(f"scene {case.scene}: {error}: the scene is left out")
            return
        try:
            check_text(case.generated, "description")
        except TextError as error:
            problems.add(f"scene {case.scene}, {case.name}: {error}: left out")
            continue
        if case.name in seen:
            problems.add(f"scene {case.scene}, {case.name}: occurs twice: the second is left out")
            continue
        seen.add(case.name)
        yield case


def read_authors(path: Path, problems: Problems) -> dict[str, dict[str, str]]:
    """Read descriptions by scene and author, from one file or a folder of authorN.json."""
    if is_folder(path):
        folder = find_folder(path, "authors") or path
        joined: dict[str, Any] = {}
        for file in sorted(folder.glob("author*.json")):
            for scene, text in _object(file).items():
                joined.setdefault(scene, {})["A" + file.stem.removeprefix("author")] = text
        if not joined:  # our format in a folder
            joined = _object(folder / "authors.json")
        table = joined
    else:
        table = _object(path)
    by_scene: dict[str, dict[str, str]] = {}
    every_author: set[str] = set()
    for by_author in table.values():
        if isinstance(by_author, dict):
            every_author.update(by_author)
    authors = sorted(every_author)
    for scene in sorted(table, key=scene_key):
        by_author = table[scene] if isinstance(table[scene], dict) else {}
        texts = {}
        for author in authors:
            text = by_author.get(author)
            try:
                texts[author] = check_text(text, author)
            except TextError as error:
                reason = f"no text of author {author}" if text is None else str(error)
                problems.add(f"scene {scene}: {reason}: left out")
        if len(texts) > 1:
            by_scene[scene] = texts
    if not by_scene:
        raise InputError(
            f"{path}: unknown dataset format: no scene written by two authors ({{scene: {{author:"
            " text}})"
        )
    return by_scene


def read_descriptions(
    path: Path, problems: Problems, *, predictions: bool = False
) -> dict[str, str | list[str]]:
    """Read texts or lists of references, by id, from any format that `vcs-runtime score` reads."""
    by_id: dict[str, str | list[str]] = {}
    for row in Texts(InputFile(path), predictions).read():
        name, text = str(row.name), row.generated if predictions else row.reference
        try:
            for part in text if isinstance(text, list) and text else [text]:
                check_text(part, f"text of {name}")
        except TextError as error:
            problems.add(f"{path}: {error}: left out")
            continue
        if name in by_id:
            problems.add(f"{path}: id {name} occurs twice: the second is left out")
            continue
        by_id[name] = text
    if not by_id:
        raise InputError(f"{path}: the file has no text with an id")
    return by_id


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises InputError that names it."""
    try:
        return json.loads(read_whole(path).decode("utf-8-sig"))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(
            f"{path}: unknown dataset format: it must be an object, not {type(value).__name__}"
        )
    return value


def finite_number(value: Any) -> float | None:
    """Return a number as a float; None for anything else, NaN and infinity."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
