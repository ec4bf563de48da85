"""What MkDocs does not know about this repository: links that leave the manual.

A page may link to a source file, or to the README of a folder. The manual has no such pages, so it shows
the name of the file. A link to nothing ends a strict build.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

LOG = logging.getLogger("mkdocs.hooks.links")
ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links that leave `docs` by the text of the link and the name of the file."""
    folder = Path(page.file.abs_src_path).parent

    def named(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / match[2]))
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        if not target.exists():
            LOG.warning("%s links to %s, which does not exist", page.file.src_uri, match[2])
        name = f"`{target.relative_to(ROOT).as_posix()}`" if target != ROOT else "the repository"
        return name if match[1].strip("`") in (target.name, name.strip("`")) else f"{match[1]} ({name})"

    return re.sub(r"(?<!!)\[([^\[\]]+)\]\((\.\.?/[^)#\s]*)(?:#[\w-]+)?\)", named, markdown)
