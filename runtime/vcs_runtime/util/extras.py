"""Packages of extras, imported with one error message when they are missing."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any

from vcs_runtime.errors import MissingExtraError
from vcs_runtime.util import process


def require(module: str, extra: str | tuple[str, ...], purpose: str) -> Any:
    """Import a module.

    Raises MissingExtraError, which begins with `purpose` and names the extra. If there are several
    extras, one of them is enough; () is for a package that users install themselves.
    """
    try:
        with process.ends_when_interrupted() if process.is_command else nullcontext():
            return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extras = (extra,) if isinstance(extra, str) else extra
        command = " or ".join(f"`vcs-runtime[{name}]`" for name in extras) or f"`{package}`"
        raise MissingExtraError(f"{purpose} needs {package} ({error}): install {command}") from None


def base_class(module: str, name: str, purpose: str) -> Any:
    """Import a base class from a package that users install themselves.

    Without the package, modules with derived classes can still be imported: the class that is
    returned raises MissingExtraError only when it is called.
    """
    try:
        return getattr(require(module, (), purpose), name)
    except MissingExtraError as error:
        message = str(error)

        def refuse(*_: Any, **__: Any) -> None:
            raise MissingExtraError(message)

        return type(name, (), {"__new__": refuse})
