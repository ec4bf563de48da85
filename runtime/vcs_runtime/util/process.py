"""The process: whose it is, and how many cores it may use."""

from __future__ import annotations

import os

is_command = False
"""Whether the process runs the command line, and nothing else.

Libraries' settings that hold for a whole process are changed in our own alone.
"""


def available_cores() -> int:
    """Return the number of cores that this process may use, within the limits of a container or taskset."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
