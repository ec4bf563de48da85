"""The folders and files of the experiments: ours, and the authors' own (docs/experiments.md).

A folder that is no such layout, or a file that cannot be read at all, is an InputError. One scene, case or
rating that is bad is a `Problems` entry: named, counted, and the rest goes on.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.text.cleaning import check_text

POSITIONS = ("beginning", "middle", "end", "random")
SERIES = ("addition", "deletion", "chronology")
# The authors keep what is scored in `data/mpii/KIND/aug_dataset` (a hundred scenes, or all, beside it).
_FOLDERS = ("{}/aug_dataset", "data/mpii/{}/aug_dataset", "exp/data/mpii/{}/aug_dataset", "{}")
_SIZES = ("", "_full", "_100")
_RESULTS = "results/mpii/{}/individual_results"
_PUBLISHED = ("{}-published", _RESULTS, f"exp/{_RESULTS}")

Report = Callable[[str], None]


@dataclass
class Problems:
    """A list of what could not be used.

    Attributes
    ----------
    report
        Is called with each message.
    messages
        All messages so far.
    """

    report: Report = lambda message: None
    messages: list[str] = field(default_factory=list)

    def add(self, message: str) -> None:
        """Note one thing that was left out."""
        self.messages.append(message)
        self.report(message)


@dataclass(frozen=True, slots=True)
class Case:
    """A rewrite of a scene's description.

    valid   whether it tells the same story; None: not said
    series  kind, position and level, of a text of a graded series
    """

    scene: str
    name: str
    reference: str
    generated: str
    valid: bool | None = None
    series: tuple[str, str, int] | None = None

    @property
    def id(self) -> str:
        """SCENE/CASE, unique in an experiment."""
        return f"{self.scene}/{self.name}"


# Which of the authors' cases tell the same story (papers, Table 1); all others that they made do not.
VALID_IDS = ("1.1", "1.2", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "3.1")
# Those of their invalid cases that Table 1 shows.
TABLE_1_INVALID = (
    "Addition (~50%)", "Addition (~80%)", "Deletion (~50%)", "Deletion (~80%)",
    "Subject-Action-Object Corruption", "Summarization", "Reverse Segments Order", "Jumble Segments Order",
    "Rotate Half Paragraph", "Local Permutation",
)  # fmt: skip


def find_folder(root: Path, kind: str) -> Path | None:
    """The folder that holds what is scored for `kind` ("comparison", "addition", ...) under `root`."""
    for pattern in _FOLDERS:
        for size in _SIZES if "aug_dataset" in pattern else ("",):
            folder = root / (pattern.format(kind) + size)
            if folder.is_dir() and (any(folder.glob("*.json")) or any(folder.glob("*/*.json"))):
                return folder
    return None


def find_published(root: Path, kind: str) -> Path | None:
    """The folder of the published scores for `kind` under `root`, if there is one."""
    folders = (root / pattern.format(kind) for pattern in _PUBLISHED)
    return next((folder for folder in folders if any(folder.glob("**/*.csv"))), None)


def read_cases(root: Path, problems: Problems) -> list[Case]:
    """All rewrites under `root`: `comparison/SCENE.json`, then the graded series, if they are there.

    Raises InputError where `root` holds neither.
    """
    if not root.is_dir():
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
        for position in POSITIONS if folder else ():
            for path in scene_files(folder / position) if folder else ():
                cases += _usable(_series(path, kind, position, problems), problems)
    if not cases:
        raise InputError(
            f"{root}: unknown layout: no scene with rewrites in {root / 'comparison'} nor in "
            f"the folders of the graded series ({', '.join(SERIES)})"
            + (f"; {len(problems.messages)} files or cases were refused" if problems.messages else "")
        )
    return cases


def scene_files(folder: Path) -> list[Path]:
    """The JSON files of a folder, numbered ones by number."""
    return sorted(folder.glob("*.json"), key=lambda path: scene_key(path.stem))


def scene_key(name: str) -> tuple[float, str]:
    """Sorts names of scenes: 2 before 10, words last."""
    return (float(name), name) if name.isdecimal() else (math.inf, name)


def _comparison(path: Path, problems: Problems) -> Iterator[Case]:
    scene = _scene(path, "categories", list, problems)
    for category in scene["categories"] if scene else ():
        for case in category.get("test_cases", ()) if isinstance(category, dict) else ():
            if not isinstance(case, dict) or not isinstance(case.get("name"), str):
                problems.add(f"{path}: a test case without a name: left out")
                continue
            valid = case.get("valid")
            if not isinstance(valid, bool):
                valid = str(case["id"]) in VALID_IDS if "id" in case else None
            yield Case(path.stem, case["name"], scene["ground_truth"], case.get("description"), valid)  # type: ignore[index, arg-type]


def _series(path: Path, kind: str, position: str, problems: Problems) -> Iterator[Case]:
    scene = _scene(path, "iterations", dict, problems)
    if scene:
        for level in sorted(scene["iterations"], key=scene_key):
            if not level.isdecimal():
                problems.add(f"{path}: iteration {level!r} is no whole number: left out")
                continue
            name, series = f"{kind}/{position}/{level}", (kind, position, int(level))
            yield Case(path.stem, name, scene["ground_truth"], scene["iterations"][level], series=series)


def _scene(path: Path, key: str, kind: type, problems: Problems) -> dict[str, Any] | None:
    try:
        scene = read_json(path)
    except InputError as error:
        problems.add(f"{error}: the scene is left out")
        return None
    if not isinstance(scene, dict) or "ground_truth" not in scene or not isinstance(scene.get(key), kind):
        problems.add(f"{path}: no object with 'ground_truth' and {key!r}: the scene is left out")
        return None
    return scene


def _usable(cases: Iterator[Case], problems: Problems) -> Iterator[Case]:
    """The cases whose texts can be scored, each name once a scene."""
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
            problems.add(f"scene {case.scene}, {case.name}: there twice: the second is left out")
            continue
        seen.add(case.name)
        yield case


def read_published(folder: Path, problems: Problems) -> dict[str, dict[str, float]]:
    """Published scores by "SCENE/CASE", then by metric, from `SCENE.csv` files: metrics down, cases across.

    A value that is no number is a problem, and left out.
    """
    found: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("*.csv"), key=lambda path: scene_key(path.stem)):
        rows = read_csv(path)
        if not rows or "Metric" not in rows[0]:
            problems.add(f"{path}: no column 'Metric': left out")
            continue
        for row in rows:
            for case, text in row.items():
                if case != "Metric" and (value := _number(text)) is not None:
                    found.setdefault(f"{path.stem}/{case}", {})[row["Metric"]] = value
                elif case != "Metric":
                    problems.add(f"{path}, {row['Metric']}, {case}: {text!r} is no number: left out")
    return found


def read_published_authors(path: Path, problems: Problems) -> dict[str, dict[str, float]]:
    """Published scores by "SCENE/A1-A2", then by metric, from a CSV file: `scene`, `Comparison`, metrics."""
    found: dict[str, dict[str, float]] = {}
    for row in read_csv(path):
        if not {"scene", "Comparison"} <= row.keys():
            raise InputError(f"{path}: unknown layout: no columns 'scene' and 'Comparison'")
        name = f"{row.pop('scene')}/{row.pop('Comparison')}"
        for metric, text in row.items():
            if (value := _number(text)) is not None:
                found.setdefault(name, {})[metric] = value
            else:
                problems.add(f"{path}, {name}, {metric}: {text!r} is no number: left out")
    return found


def read_authors(path: Path, problems: Problems) -> dict[str, dict[str, str]]:
    """Texts by scene, then by author: `{scene: {author: text}}` in one file, or a folder of the authors' own
    `authorN.json` files, `{scene: text}` each (authors are then called A1, A2, ...).

    A scene with fewer than two usable texts is a problem.
    """
    if path.is_dir():
        folder = find_folder(path, "authors") or path
        joined: dict[str, Any] = {}
        for file in sorted(folder.glob("author*.json")):
            for scene, text in _object(file).items():
                joined.setdefault(scene, {})["A" + file.stem.removeprefix("author")] = text
        if not joined:  # our own layout in a folder
            joined = _object(folder / "authors.json")
        table = joined
    else:
        table = _object(path)
    found: dict[str, dict[str, str]] = {}
    authors = sorted({author for texts in table.values() if isinstance(texts, dict) for author in texts})
    for scene in sorted(table, key=scene_key):
        texts = {}
        for author in authors:
            text = table[scene].get(author) if isinstance(table[scene], dict) else None
            try:
                texts[author] = check_text(text, author)
            except TextError as error:
                problems.add(
                    f"scene {scene}: {'missing author ' + author if text is None else error}: left out"
                )
        if len(texts) > 1:
            found[scene] = texts
    if not found:
        raise InputError(
            f"{path}: unknown layout: no scene written by two authors ({{scene: {{author: text}}}})"
        )
    return found


@dataclass(frozen=True, slots=True)
class Video:
    """A video of VATEX-EVAL: references, and candidates with one rating (1 to 5) from each rater."""

    id: str
    references: list[str]
    candidates: list[str]
    ratings: list[list[float]]


def read_vatex(path: Path, problems: Problems) -> list[Video]:
    """Videos from a JSONL file: `vid`, `refs`, `cands`, `scores` (candidates x raters).

    A candidate with an empty text, a missing or NaN rating, or another number of raters is left out.
    """
    videos = []
    raters = 0
    for number, row in read_jsonl(path):
        place = f"{path} line {number}"
        if not isinstance(row, dict) or not {"vid", "refs", "cands", "scores"} <= row.keys():
            raise InputError(
                f"{place}: unknown layout: an object with vid, refs, cands and scores was expected"
            )
        if not all(isinstance(row[key], list) for key in ("refs", "cands", "scores")):
            raise InputError(f"{place}: unknown layout: refs, cands and scores must be lists")
        references = row["refs"][0] if row["refs"] and isinstance(row["refs"][0], list) else row["refs"]
        references = [text for text in references if isinstance(text, str) and text.strip()]
        if not references:
            problems.add(f"{place} ({row['vid']}): no reference: the video is left out")
            continue
        kept: list[tuple[str, list[float]]] = []
        for i, (text, ratings) in enumerate(zip(row["cands"], row["scores"], strict=False)):
            numbers = [_number(rating) for rating in ratings] if isinstance(ratings, list) else [None]
            good = [value for value in numbers if value is not None]
            if len(good) == len(numbers):
                raters = raters or len(good)
            if not isinstance(text, str) or not text.strip():
                problems.add(f"{place} ({row['vid']}): candidate {i} is empty: left out")
            elif len(good) != len(numbers) or len(good) != raters:
                problems.add(f"{place} ({row['vid']}): ratings {ratings} of candidate {i}: a number "
                             "from every rater was expected: left out")  # fmt: skip
            else:
                kept.append((text, good))
        if len(row["cands"]) != len(row["scores"]):
            problems.add(
                f"{place} ({row['vid']}): {len(row['cands'])} candidates, ratings of {len(row['scores'])}"
            )
        if kept:
            videos.append(Video(str(row["vid"]), references, [k[0] for k in kept], [k[1] for k in kept]))
    if not videos:
        raise InputError(f"{path}: no video with a rated candidate")
    return videos


def read_descriptions(path: Path, problems: Problems) -> dict[str, str | list[str]]:
    """Texts by id: JSON `{id: text}` or `[{"id":, "summary"|"reference"|"text":}]`, or such objects as JSONL.

    A text may be a list of texts (several references). What is empty, or there twice, is a problem.
    """
    found: dict[str, str | list[str]] = {}
    for number, row in read_jsonl(path) if path.suffix == ".jsonl" else _entries(read_json(path)):
        key = next((k for k in ("reference", "summary", "text") if isinstance(row, dict) and k in row), None)
        if key is None or "id" not in row:
            raise InputError(
                f"{path}: entry {number}: unknown layout: 'id' and 'text', 'summary' or 'reference'"
            )
        name, text = str(row["id"]), row[key]
        try:
            for part in text if isinstance(text, list) and text else [text]:
                check_text(part, f"text of {name}")
        except TextError as error:
            problems.add(f"{path}: {error}: left out")
            continue
        if name in found:
            problems.add(f"{path}: id {name} is there twice: the second is left out")
            continue
        found[name] = text
    if not found:
        raise InputError(f"{path}: no text with an id in it")
    return found


def _entries(value: Any) -> Iterator[tuple[int, Any]]:
    if isinstance(value, dict):
        value = [{"id": name, "text": text} for name, text in value.items()]
    return enumerate(value if isinstance(value, list) else (), 1)


def read_json(path: Path) -> Any:
    """A JSON file. Raises InputError naming it."""
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, as text. Raises InputError naming it."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not CSV: {error}") from None


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: unknown layout: an object was expected, not {type(value).__name__}")
    return value


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
