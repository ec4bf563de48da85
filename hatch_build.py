"""The README as a package index shows it: there no link to a file of the repository works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]+)\]\((?!https?:)(?P<target>[^)\s]+)\)")


def for_an_index(readme: str, repository: str | None, version: str) -> str:
    """Make links to files absolute.

    Parameters
    ----------
    readme
        Markdown, with links that are relative to the root of the repository.
    repository
        The address of the repository on GitHub. None: links become their text, and images what they
        show.
    version
        The version, whose tag holds the files.

    Returns
    -------
    str
        Markdown without relative links.
    """

    def absolute(link: re.Match[str]) -> str:
        if repository is None:
            return link["text"]
        kind, target = ("raw" if link["image"] else "blob"), link["target"]
        if target.startswith("#"):  # an index gives headings no names
            target = f"README.md{target}"
        return (
            f"{link['image']}[{link['text']}]({repository.rstrip('/')}/{kind}/v{version}/{target})"
        )

    parts = FENCE.split(readme)  # code stands at odd places
    return "".join(part if i % 2 else LINK.sub(absolute, part) for i, part in enumerate(parts))


class Readme(MetadataHookInterface):
    """Adds the README to the metadata of a build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`, unless a source archive brought it."""
        if "readme" not in metadata:
            text = Path(self.root, "README.md").read_text("utf-8")
            repository = metadata.get("urls", {}).get("Repository")
            text = for_an_index(text, repository, metadata["version"])
            metadata["readme"] = {"content-type": "text/markdown", "text": text}
