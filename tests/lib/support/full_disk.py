"""Commands on a disk that is full, in a process that may mount one; run by
`tests/cli/test_full_disk.py`.

Reads `{name: [arguments, {file: content}]}` from standard input, "DISK" in an argument stands for
the disk. Prints `{name: [exit code, standard error, {file: content}]}`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.command_line import vcs
from vcs_experiments.results import Results
from vcs_runtime.comparing.tables import Table, write_csv


def _run(arguments: list[str]) -> tuple[int, str]:
    if arguments[0] in ("results", "table"):  # of an experiment, without its long way there
        table = Table("table", "title", ("cell",), [("x" * 100,)] * 1000)
        try:
            if arguments[0] == "results":
                Results("name", "signature", {}, {}, tables=[table]).write(Path(arguments[1]))
            else:
                write_csv(Path(arguments[1]), table.columns, table.rows)
        except OSError as error:
            return 2, f"vcs-runtime: {error.filename}: {error.strerror}\n"
        return 0, ""
    finished = vcs(*arguments)
    return finished.code, finished.stderr


def main(disk: Path) -> None:
    """Run every command on a disk of 16 kB with its files."""
    results = {}
    for name, (arguments, files) in json.load(sys.stdin).items():
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk], check=True)
        for file, content in files.items():
            (disk / file).parent.mkdir(exist_ok=True)
            (disk / file).write_text(content)
        code, said = _run([argument.replace("DISK", str(disk)) for argument in arguments])
        left = {
            str(path.relative_to(disk)): "" if path.is_dir() else path.read_text("utf-8", "replace")
            for path in disk.rglob("*")
        }
        results[name] = [code, said, left]
        subprocess.run(["umount", disk], check=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
