"""The errors that callers are meant to catch.

Bad arguments and bad texts are `ValueError`s, so that code which knows nothing of this package still
catches them; what is wrong with the machine or the bundle is a `RuntimeError`.
"""

from __future__ import annotations

from typing import Any


class TextError(ValueError):
    """A text that cannot be scored. The message names the text: which side of the pair, which reference."""


class BundleError(RuntimeError):
    """A bundle that is missing, damaged, of another schema, or lacks the engine asked for."""


class SchemaError(BundleError):
    """A bundle of another schema: written for another version of this package."""


class DeviceError(RuntimeError):
    """A device or execution provider that was asked for by name and is not there."""


class DeviceMemoryError(DeviceError):
    """A device whose memory does not suffice for what was asked of it."""


class InputError(ValueError):
    """An input file that is none, or an output file that cannot be used. The message names file and line."""


class CacheError(RuntimeError):
    """A vector cache that cannot be opened, read or written."""


class ModelError(RuntimeError):
    """A vision-language model or its server: not there, or its answers cannot be what they should be."""


class BuildError(RuntimeError):
    """The library of the C API cannot be built here. The message says what is missing."""


def unknown_choice(argument: str, value: Any, choices: tuple[str, ...]) -> ValueError:
    """The error for an argument that must be one of a few words."""
    return ValueError(f"{argument} must be one of {', '.join(map(repr, choices))}, not {value!r}")
