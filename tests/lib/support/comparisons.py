"""Score files of systems, and `vcs-runtime compare` on them."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from vcs_runtime.cli import cli


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


def lines(values: list[float], signature: str = "vcs|one", **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": i, "vcs": value, "las": value / 2, "signature": signature, **more}
        for i, value in enumerate(values)
    ]
