"""MkDocs hooks for this manual: links to other files, help of commands, and public names.

A page may link to a source file or to the README of a folder. The built manual does not contain
these files, so it shows their names instead of links. A broken link stops a strict build.
"""

from __future__ import annotations

import contextlib
import html
import json
import logging
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli import cli
from vcs_runtime.cli.options import ALL_OPTIONS

LOG = logging.getLogger("mkdocs.hooks.links")
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# A public name on its own line, and options for its documentation, if there are any.
NAME = re.compile(r"^`(vcs_\w+(?:\.\w+)+)`\n(?:<!-- (.+) -->\n)?", re.M)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links that leave `docs` by text and file name, and insert the generated parts."""
    folder = Path(page.file.abs_src_path).parent
    if page.file.src_uri == "README.md":
        markdown = home()
    # The origin of figures is folded, because few readers need it.
    origin = r"^(\*.+\*(?:\n<br>.+)*)(?=\n+<!-- end of figures -->)"
    folded = '<details markdown="1"><summary>Origin</summary>\n\n\\1\n\n</details>'
    markdown = re.sub(origin, folded, markdown, flags=re.M)

    def named(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / match[2]))
        if target.is_relative_to(DOCS) and not target.is_dir():
            return match[0]  # MkDocs checks this link
        if not target.exists():
            LOG.warning("%s links to %s, which does not exist", page.file.src_uri, match[2])
            return match[0]
        name = f"`{target.relative_to(ROOT).as_posix()}`" if target != ROOT else "the repository"
        said = match[1].strip("`/") in (target.name, target.parent.name, name.strip("`"))
        return name if said else f"{match[1]} ({name})"

    markdown = re.sub(r"(?<!!)\[([^\[\]]+)\]\((?!\w+:)([^)#\s]+)(?:#[\w-]+)?\)", named, markdown)
    markdown = NAME.sub(documentation, markdown)
    markdown = markdown.replace("<!-- fields of bundle.json -->", "\n".join(schema_fields()))
    return markdown.replace(
        "<!-- help of all commands -->", "\n".join(help_texts("vcs-runtime", cli))
    )


def documentation(name: re.Match[str]) -> str:
    """Return the block of mkdocstrings for a public name."""
    lines = [f"::: {name[1]}"]
    if name[2]:
        lines += ["    options:", *(f"      {option}" for option in name[2].split("; "))]
    return "\n".join(lines) + "\n"


def home() -> str:
    """Return the project's README as the manual's first page, with links relative to `docs`."""
    text = (ROOT / "README.md").read_text("utf-8")
    return re.sub(r"\]\((?!https?:|#|\./)", "](../", text).replace("](../docs/", "](./")


def on_page_content(content: str, page: Any, files: Any, **_: Any) -> str:
    """Link pages of the manual, their sections, and public names in docstrings and help texts."""
    here = Path(page.file.src_uri).parent

    def page_link(match: re.Match[str]) -> str:
        if not (ROOT / match[1]).exists():
            LOG.warning("%s names %s, which does not exist", page.file.src_uri, match[1])
            return match[0]
        heading = re.search(rf"^## ({match[2]}\. .+)$", (ROOT / match[1]).read_text("utf-8"), re.M)
        anchor = (
            "#" + re.sub(r"[^\w -]", "", heading[1].lower()).replace(" ", "-") if heading else ""
        )
        path = Path(match[1]).relative_to("docs")
        target = Path(os.path.relpath(path.with_suffix(".html"), here)).as_posix()
        text = files.get_file_from_path(path.as_posix()).page.title
        return f'<a href="{target}{anchor}">{text}{f", section {match[2]}" if match[2] else ""}</a>'

    def name_link(match: re.Match[str]) -> str:
        if (identifier := PUBLIC.get(match[1])) is None:
            return match[0]
        return f'<autoref optional identifier="{identifier}{match[2]}">{match[0]}</autoref>'

    content = re.sub(r'<div class="highlight">(?=(.*?)</code>)', copied, content, flags=re.S)
    content = re.sub(
        r"(?<![\w/>])(docs/[\w/-]+\.md)(?:, section (\d+))?(?![^<]*</a>)", page_link, content
    )
    return re.sub(r"<code>([A-Z]\w+)((?:\.\w+)?)</code>", name_link, content)


def copied(block: re.Match[str]) -> str:
    """Let the copy button copy the commands of a block with prompts, without their output."""
    text = block[1].rpartition("<code>")[2]
    found = []
    for part in re.split(r"^\$ ", html.unescape(re.sub(r"<[^>]+>", "", text)), flags=re.M)[1:]:
        command, *rest = part.splitlines()
        # If a line ends with a backslash or within quotes, the command continues on the next line.
        while rest and (command.endswith("\\") or command.count("'") % 2):
            command += "\n" + rest.pop(0)
        found.append(command)
    if not found:
        return block[0]
    value = html.escape("\n".join(found)).replace("\n", "&#10;")
    return f'<div class="highlight" data-copy="{value}">'


def on_post_page(output: str, page: Any, **_: Any) -> None:
    """Refuse a page that loads anything from another host, because the manual works offline."""
    loads = (
        r"<(?:script|img|link|iframe|source|video)\b[^>]*\b(?:src|href)=\"((?:https?:)?//[^\"]*)"
    )
    for address in re.findall(loads, output):
        LOG.warning("%s loads %s", page.file.src_uri, address)


def public_names() -> dict[str, str]:
    """Return the dotted names of the Python pages by their last parts."""
    pages = [*sorted((DOCS / "reference").glob("python*.md")), DOCS / "reference/errors.md"]
    names = [name[1] for page in pages for name in NAME.finditer(page.read_text("utf-8"))]
    return {name.rpartition(".")[2]: name for name in reversed(names)}


PUBLIC = public_names()


def schema_fields() -> Iterator[str]:
    """Yield lists of the fields of every object in a `bundle.json`."""
    objects = json.loads((ROOT / "runtime/vcs_runtime/data/bundle.schema.json").read_text("utf-8"))[
        "$defs"
    ]
    places = {"Manifest": "bundle.json"}  # the first place of each object
    for name, schema in objects.items():
        place = places[name]
        yield f"\n#### {place}\n{schema['description']}\n"
        for field, rules in schema["properties"].items():
            kinds = rules.get("anyOf", [rules])
            inner = re.findall(r"#/\$defs/(\w+)", json.dumps(kinds))
            for found in inner:
                places.setdefault(found, field if name == "Manifest" else f"{place}.{field}")
            meaning = rules.get("description") or next(
                objects[found]["description"] for found in inner
            )
            required = field in schema.get("required", ())
            default = "required" if required else f"default: `{json.dumps(rules['default'])}`"
            yield f"- `{field}` ({' or '.join(map(_type, kinds))}, {default}): {meaning}"


def _type(schema: dict[str, Any]) -> str:
    if choices := schema.get("enum"):
        return " or ".join(f"`{json.dumps(choice)}`" for choice in choices)
    return "object" if "$ref" in schema else str(schema["type"])


class _Markdown(click.HelpFormatter):
    """Writes help as Markdown, with a list for each group of options or commands."""

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.write(f"\n**{name}**\n")
        yield

    @contextlib.contextmanager
    def indentation(self) -> Iterator[None]:
        yield

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self.write(f"```text\n{prog} {args}\n```\n")

    def write_paragraph(self) -> None:
        self.write("\n")

    def write_text(self, text: str) -> None:
        for paragraph in text.split("\n\n"):
            heading, _, lines = paragraph.partition("\n")
            if heading != "\b":
                self.write(f"{_prose(paragraph)}\n\n")
                continue
            heading, _, lines = lines.partition("\n")
            self.write(f"{heading}\n\n```text\n{textwrap.dedent(lines)}\n```\n\n")

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 0, col_spacing: int = 0
    ) -> None:
        items = [
            f"- `{name.strip()}`: {_prose(text)}" for name, text in rows if name != "-h, --help"
        ]
        self.write("\n" + "\n".join(items) + "\n")


def _prose(text: str) -> str:
    """Mark options as code, and escape `<` so that it begins no tag."""
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]*\w", r"`\g<0>`", html.escape(text, quote=False))


class _Context(click.Context):
    formatter_class = _Markdown


def help_texts(
    name: str, command: click.Command, parent: click.Context | None = None
) -> Iterator[str]:
    """Yield the help of a command and of the commands below it, as Markdown."""
    context = _Context(
        command, parent, info_name=name.rpartition(" ")[2], **command.context_settings
    )
    context.meta[ALL_OPTIONS] = True
    yield f"\n{'##' if name.count(' ') < 2 else '###'} {name}\n\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            if (found := command.get_command(context, inner)) and not found.hidden:
                yield from help_texts(f"{name} {inner}", found, context)
