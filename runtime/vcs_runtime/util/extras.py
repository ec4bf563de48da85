"""Packages of extras, imported with one error message when they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vcs_runtime.errors import MissingExtraError


def require(module: str, extra: str | tuple[str, ...], purpose: str) -> Any:
    """Import a module; MissingExtraError, which begins with `purpose`, names the extra if it is missing.

    Of several extras one is enough; () is for a package that users bring themselves.
    """
    try:
        return import_module(module)
    except ImportError as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from None
        package = module.partition(".")[0]
        extras = (extra,) if isinstance(extra, str) else extra
        command = " or ".join(f"`vcs-runtime[{name}]`" for name in extras) or f"`{package}`"
        raise MissingExtraError(f"{purpose} needs {package} ({error}): install {command}") from None


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C ended an import: modules in C make an ImportError of whatever is raised in them."""
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def base_class(module: str, name: str, purpose: str) -> Any:
    """Import a base class from a package that users bring themselves.

    Without the package, the class that is returned raises MissingExtraError when it is called: modules with
    derived classes can be imported all the same.
    """
    try:
        return getattr(require(module, (), purpose), name)
    except MissingExtraError as error:
        message = str(error)

        def refuse(*_: Any, **__: Any) -> None:
            raise MissingExtraError(message)

        return type(name, (), {"__new__": refuse})
