"""What documents, docstrings, comments and messages refer to exists."""

from __future__ import annotations

import ast
import importlib
import io
import pkgutil
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from vcs_runtime.cli import cli

ROOT = Path(__file__).parents[1]
PACKAGES = ("vcs_numba", "vcs_runtime", "vcs_experiments", "vcs_visil", "vcs_export")
FOLDERS = ("vcs_numba", "runtime", "export", "models", "tests", "benchmarks", "docs")
SUFFIXES = {".md", ".py", ".toml", ".c", ".h", ".js"}
DATA = set(".css .csv .data .html .json .jsonl .npz .onnx .pc .png .safetensors .sh .txt".split())
DEFINITION = "docs/reference/vcs.md"
# Files of bundles, repositories of models, checkpoints and users, named in documents.
OTHER_FILES = {
    "Python.h",
    "tools/build_leaderboard.py",
    "docs/operators.md",
    "model.py",
    "vcs_utils.py",
    "train.py",
    # Of revision 01b98004, as the cards of what was trained say.
    "export/train",
    *(f"export/train/{name}.py" for name in ("augment", "train", "fast_ends", "word_classes")),
}
WORD = r"[A-Za-z_]\w*"


class Text(NamedTuple):
    """A piece of prose and where it stands."""

    path: Path
    line: int
    text: str
    message: bool = False  # a string that a program prints: only its commands are looked at


def _python(path: Path) -> Iterator[Text]:
    source = path.read_text("utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], token.string)
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Text(path, node.lineno, node.value, message=id(node) not in docstrings)


def _lines(path: Path) -> Iterator[Text]:
    """Lines; code is indented, as it is in docstrings."""
    code = not path.suffix
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        code ^= line.startswith("```")
        yield Text(path, number, f"    {line}" if code else line)


@cache
def texts() -> list[Text]:
    files = [
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES
    ]
    files += [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    files += [ROOT / "Makefile", ROOT / ".ci/run", ROOT / "pyproject.toml"]
    found = []
    for path in sorted(set(files) - {Path(__file__)}):
        if path.suffix == ".py":
            found += _python(path)
        else:
            found += _lines(path)
    return found


def report(problems: Iterator[tuple[Text, int, str]]) -> list[str]:
    return sorted(
        f"{text.path.relative_to(ROOT)}:{text.line + text.text.count(chr(10), 0, at)}: {problem}"
        for text, at, problem in problems
    )


@cache
def modules() -> dict[str, list[Any]]:
    """All modules by each end of their dotted names, and public classes by their words."""
    named = defaultdict(list)
    for package in map(importlib.import_module, PACKAGES):
        names = [
            found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        ]
        for name in [package.__name__, *(name for name in names if not name.endswith("__main__"))]:
            module, parts = importlib.import_module(name), name.split(".")
            for start in range(len(parts)):
                named[".".join(parts[start:])].append(module)
            for word, value in vars(module).items():
                if isinstance(value, type) and value.__module__ in (name, "builtins"):
                    named[word].append(value)
                    named[word.removesuffix("Spec").lower()].append(value)
    return named


def exists(holder: Any, words: list[str]) -> bool:
    for word in words:
        fields = getattr(holder, "__annotations__", {})
        if not hasattr(holder, word) and word not in fields:
            return False
        if (holder := getattr(holder, word, None)) is None:
            return True  # a field, or None: its type is not followed
    return True


def names() -> Iterator[tuple[Text, int, str]]:
    for text in texts():
        for match in re.finditer(
            rf"`({WORD}(?:\.{WORD})+)(?:\(.*?\))?`", "" if text.message else text.text
        ):
            words = match[1].split(".")
            if f".{words[-1]}" in SUFFIXES | DATA or words[0] == "spark":  # Spark's settings
                continue
            starts = [i for i in range(1, len(words) + 1) if ".".join(words[:i]) in modules()]
            if starts and not any(
                exists(holder, words[i:])
                for i in starts
                for holder in modules()[".".join(words[:i])]
            ):
                yield text, match.start(), f"no {match[1]}"


def files() -> Iterator[tuple[Text, int, str]]:
    base = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*")}
    for text in texts():
        if text.message:
            continue
        for match in re.finditer(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./*-]*\w", text.text):
            if (
                match[0] not in OTHER_FILES
                and not (ROOT / re.split(r"/(?:[^/]*\*|[A-Z]+$)", match[0])[0]).exists()
            ):
                yield text, match.start(), f"no file {match[0]}"
        for match in re.finditer(rf"`({WORD}\.(?:py|c|h|md|toml|js))`", text.text):
            if match[1] not in base | OTHER_FILES and not (ROOT / match[1]).exists():
                yield text, match.start(), f"no file {match[1]}"
        if text.path.name == "README.md" and text.path.parent.name in (
            "vcs_numba",
            "runtime",
            "export",
        ):
            here = {path.stem for path in text.path.parent.rglob("*")}
            row = re.match(r"\| *((?:`\w+/?`(?:, )?)+) *\|", text.text)
            for name in re.findall(r"\w+", row[1] if row else ""):
                if name not in here:
                    yield text, 0, f"no module {name}"


def named_tests() -> Iterator[tuple[Text, int, str]]:
    for text in texts():
        for match in re.finditer(
            r"(tests/[\w/]+\.py)::(test_\w+)", "" if text.message else text.text
        ):
            module = ROOT / match[1]
            if not module.exists() or f"def {match[2]}(" not in module.read_text("utf-8"):
                yield text, match.start(), f"no test {match[0]}"


def links() -> Iterator[tuple[Text, int, str]]:
    for text in texts():
        if text.path.suffix != ".md":
            continue
        for match in re.finditer(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)", text.text):
            target = text.path.parent / match[1] if match[1] else text.path
            if not target.exists():
                yield text, match.start(), f"no file {match[1]}"
            elif match[2] and match[2] not in anchors(target):
                yield text, match.start(), f"no heading {match[2]} in {target.name}"


@cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def sections() -> Iterator[tuple[Text, int, str]]:
    for text in texts():
        for match in re.finditer(
            r"(?:(docs/[\w/-]+\.md)`?,\s+)?\bsections? (\d+)(?:(?:,| and| to| -) (\d+))*", text.text
        ):
            page = (ROOT / (match[1] or DEFINITION)).read_text("utf-8")
            for number in re.findall(r"\d+", match[0].partition("section")[2]):
                if not re.search(rf"^## {number}\. ", page, re.M):
                    yield text, match.start(), f"no section {number} in {match[1] or DEFINITION}"


def commands() -> Iterator[tuple[Text, int, str]]:
    context = click.Context(cli)
    for text in texts():
        for match in re.finditer(
            r"(?:^ {4,}|`|: )vcs-runtime((?: +[^\s|;&#`()]+)+)", text.text, re.M
        ):
            command: click.Command = cli
            for word in match[1].replace("'", "").replace('"', "").split():
                word = word.strip("[],.:").partition("=")[0]
                if isinstance(command, click.Group) and re.fullmatch("[a-z][a-z0-9-]*", word):
                    if (inner := command.get_command(context, word)) is None:
                        yield text, match.start(), f"no command {word} of {command.name}"
                        break
                    command = inner
                elif (
                    re.fullmatch("--?[a-z][a-z-]*", word)
                    and word not in ("--help", "--help-all")
                    and word
                    not in {
                        option
                        for parameter in command.params
                        for option in parameter.opts + parameter.secondary_opts
                    }
                ):
                    yield text, match.start(), f"no option {word} of {command.name}"
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for text in texts():
        for match in re.finditer(r"`make ([a-z-]+)`", text.text):
            if match[1] not in targets:
                yield text, match.start(), f"no make target {match[1]}"


@pytest.mark.xdist_group("references")  # one process reads all texts
@pytest.mark.parametrize(
    "look", [names, files, named_tests, links, sections, commands], ids=lambda look: look.__name__
)
def test_what_is_referred_to_exists(look: Any) -> None:
    assert report(look()) == []
