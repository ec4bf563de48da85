"""The errors that callers are meant to catch. All are `VcsError`s.

Bad arguments and bad texts are also `ValueError`s, so that code which knows nothing of this package still
catches them. What is wrong with the machine or a bundle is also a `RuntimeError`.
"""

from __future__ import annotations

from typing import Any


class VcsError(Exception):
    """Base class of all errors of this package."""


class TextError(VcsError, ValueError):
    """A text that cannot be scored. The message names the text: which side of the pair, which reference."""


class InputError(VcsError, ValueError):
    """An input file that cannot be read, or an output file that cannot be written, with file and line."""


class BundleError(VcsError, RuntimeError):
    """A bundle that is missing, damaged, of another schema, or lacks the model asked for."""


class SchemaError(BundleError):
    """A bundle of another schema: written for another version of this package."""


class DeviceError(VcsError, RuntimeError):
    """A device or execution provider that was asked for by name and is not available."""


class DeviceMemoryError(DeviceError):
    """A device whose memory does not suffice for what was asked of it."""


class CacheError(VcsError, RuntimeError):
    """A vector cache that cannot be opened, read or written."""


class ModelError(VcsError, RuntimeError):
    """A vision-language model or its server that is not available, or gives impossible answers."""


class BuildError(VcsError, RuntimeError):
    """The library of the C API cannot be built here. The message says what is missing."""


class MissingExtraError(VcsError, ImportError):
    """A package of one of the extras of `vcs-runtime` is not installed. The message names the extra."""


def unknown_choice(argument: str, value: Any, choices: tuple[str, ...]) -> ValueError:
    """The error for an argument that must be one of a few words."""
    return ValueError(f"{argument} must be one of {', '.join(map(repr, choices))}, not {value!r}")
