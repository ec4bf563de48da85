"""Packages of extras, imported with one error message when they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vcs_runtime.errors import MissingExtraError


def require(module: str, extra: str | tuple[str, ...], purpose: str) -> Any:
    """Import a package of an extra.

    Parameters
    ----------
    module
        Name to import: "pyarrow.parquet".
    extra
        The extra that brings it: "parquet"; or several extras, of which one is enough.
    purpose
        What needs it, at the beginning of the error: "reading Parquet".

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    MissingExtraError
        The package cannot be imported. The message names the extra and the reason.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extras = (extra,) if isinstance(extra, str) else extra
        command = " or ".join(f"`vcs-runtime[{name}]`" for name in extras)
        raise MissingExtraError(f"{purpose} needs {package} ({error}): install {command}") from None
