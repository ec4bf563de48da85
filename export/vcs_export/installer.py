"""Running pip in a separate process, with its user's configuration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

_MAX_REASON = 400


def run_pip(command: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of pip, and return its output whatever its exit code.

    pip uses its configured indexes, mirrors, proxies, certificates and folders of wheels.
    """
    quiet = ["--disable-pip-version-check", "--no-input"]
    # -P: a pip.py in the current folder is not run in place of pip.
    return subprocess.run(
        [sys.executable, "-P", "-m", "pip", command, *quiet, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def installer_reason(output: str) -> str:
    """Return the reason for an installer's failure in one line.

    The reason is made of the errors and causes in the output, or else of the last line. The last
    line also takes the place of the heading of a traceback.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if line.lower().startswith(("error:", "cause:"))]
    # pip names an unreachable index only in its retries. Its error is a missing package.
    retries = [line for line in lines if line.startswith("WARNING: Retrying")]
    reasons = [line.rpartition("broken by ")[2] for line in retries[-1:]]
    named = [line.partition(":")[2].strip() for line in causes]
    reasons += [lines[-1] if reason == "Exception:" else reason for reason in named]
    text = "no reason was given"
    if lines:
        text = "; ".join(dict.fromkeys(reasons)) or lines[-1]
    if len(text) > _MAX_REASON:
        return text[:_MAX_REASON] + "..."
    return text
