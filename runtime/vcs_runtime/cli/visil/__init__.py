"""`vcs-runtime visil`: the commands of ViSIL, and the options that they share."""

from vcs_runtime.cli.visil.commands import visil

__all__ = ["visil"]
