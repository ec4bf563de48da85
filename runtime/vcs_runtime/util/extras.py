"""Packages that only some commands need: imported here, so that each is missed in the same words."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vcs_runtime.errors import MissingExtraError


def require(module: str, extra: str, purpose: str) -> Any:
    """Import a package of an extra.

    Parameters
    ----------
    module
        Name to import: "pyarrow.parquet".
    extra
        The extra that brings it: "parquet".
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
        message = f"{purpose} needs {module.partition('.')[0]} ({error}): install `vcs-runtime[{extra}]`"
        raise MissingExtraError(message) from None
