"""The errors on the way from a checkpoint to a bundle."""

from __future__ import annotations

from vcs_runtime.errors import BundleError, VcsError


class ExportError(BundleError):
    """A bundle that cannot be built.

    The message is one line and names the file, tensor or setting.
    """


class CheckpointError(ExportError):
    """A checkpoint that is incomplete, damaged, or uses an option that no graph here implements."""


class FetchError(ExportError):
    """Weights that could not be downloaded, or that are not the ones that the recipe names."""


class KitError(VcsError, RuntimeError):
    """A kit that cannot be gathered.

    The message is one line and names the package, extra or file.
    """


def os_reason(error: OSError) -> str:
    """Return the reason and the path of an OSError, as the end of a one-line message."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason} ({error.filename})" if error.filename else reason
