"""The errors of this package. All are `VcsError`s.

Errors about arguments and texts are also `ValueError`s, so that code that does not know this
package can catch them. Errors about the machine or a bundle are also `RuntimeError`s.
"""

from __future__ import annotations

from typing import Any


class VcsError(Exception):
    """Base class of all errors of this package."""


class TextError(VcsError, ValueError):
    """A text that cannot be scored. The message names the side of the pair and the reference."""


class InputError(VcsError, ValueError):
    """An input file that cannot be read, or an output file that cannot be written.

    The message names the file and the line. `remedy` is the part of it that names options which
    help, and "" without such a part.
    """

    remedy = ""


class BundleError(VcsError, RuntimeError):
    """A bundle that is missing or damaged, has another schema, or lacks the requested model."""


class SchemaError(BundleError):
    """A bundle with another schema, written for another version of this package."""


class DeviceError(VcsError, RuntimeError):
    """A device that is not available or fails, or an ONNX Runtime that is too old for a graph."""


class DeviceMemoryError(DeviceError):
    """A device with too little memory for the request."""


class ProofError(DeviceError):
    """A device or a server on which a model does not give the vectors that it has given before.

    The message names the built-in text that differs most, the limit, and what ran the model then
    and now (docs/guide/bundles.md).
    """


class CacheError(VcsError, RuntimeError):
    """A vector cache that cannot be opened, read or written."""


class ModelError(VcsError, RuntimeError):
    """A model that is not available, or that gives impossible answers.

    The model is ViSIL's, or comes from the caller.
    """


class BuildError(VcsError, RuntimeError):
    """The library of the C API cannot be built on this machine.

    The message names what is missing.
    """


class MissingExtraError(VcsError, ImportError):
    """A package that the base install does not bring is missing.

    The message says what to install.
    """


class UnfitModelWarning(UserWarning):
    """An embedder whose scores say little, by the fitness in its bundle."""


def unknown_choice(argument: str, value: Any, choices: tuple[str, ...]) -> ValueError:
    """Return the error for an argument that is not one of its choices."""
    return ValueError(f"{argument} must be one of {', '.join(map(repr, choices))}, not {value!r}")
