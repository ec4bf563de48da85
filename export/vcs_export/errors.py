"""The errors on the way from a checkpoint to a bundle."""

from __future__ import annotations

from vcs_runtime.errors import BundleError, VcsError


class ExportError(BundleError):
    """A bundle that cannot be built.

    The message is one line and names the file, tensor or setting.
    """


class CheckpointError(ExportError):
    """An incomplete or damaged checkpoint, or one with an option that no graph here implements."""


class FetchError(ExportError):
    """Weights that could not be downloaded, or that differ from the recipe's."""


class KitError(VcsError, RuntimeError):
    """A kit that cannot be gathered.

    The message is one line and names the package, extra or file.
    """


def os_reason(error: OSError) -> str:
    """Return the reason and the path of an OSError, as the end of a one-line message."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason} ({error.filename})" if error.filename else reason
