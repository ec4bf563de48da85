"""Whose process this is: libraries' settings that hold for a whole process are changed in our own alone."""

from __future__ import annotations

is_command = False
"""Whether the process runs the command line, and nothing else."""
