"""Write the manual's tables of figures from results/figures.

    python benchmarks/tables.py            writes the pages
    python benchmarks/tables.py --check    fails if a page differs from the figures

A table between `<!-- figures SCRIPT PLACE -->` and `<!-- end of figures -->` shows the figures of
results/figures/PLACE/SCRIPT.json, with machine, date, revision, versions and signatures. To add a
table, add the two marks to a page of the manual.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from records import FOLDER

MANUAL = Path(__file__).parents[1] / "docs"
MARKS = re.compile(r"(<!-- figures (\S+) (\S+) -->\n).*?(<!-- end of figures -->)", re.S)
Rows = list[dict[str, Any]]
Table = tuple[list[str], list[list[str]]]  # heads and rows of cells


def core(rows: Rows) -> Table:
    """How many times faster than the reference package: a row for each call, a column for each kind
    of matrix."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        if "times_faster" in row:  # of figures whose times were not kept
            cell = f"{row['times_faster']}"
        else:
            theirs, ours = (row["sides"][side]["seconds"] for side in ("reference", "vcs_numba"))
            cell = f"{theirs / ours:.0f} ({duration(ours)})"
        lines.setdefault(row["call"], {})[row["kind"]] = cell
    table = []
    for call, cells in lines.items():
        table.append([call, *(cells.get(kind, "") for kind in kinds)])
    return ["call", *kinds], table


def sides_of(rows: Rows) -> list[str]:
    """The names of all sides, in order."""
    return list(dict.fromkeys(side for row in rows for side in row["sides"]))


def by_side(rows: Rows) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Workload, side and figures of each side of each row."""
    for row in rows:
        for side, figures in row["sides"].items():
            yield row["workload"], side, figures


def end_to_end(rows: Rows) -> Table:
    """Pairs a second of each side and workload, and in brackets times the first side's."""
    sides = sides_of(rows)
    base = sides[0]
    lines = []
    for side in sides:
        cells = []
        for row in rows:
            if side not in row["sides"]:
                cells.append("")
                continue
            rate = row["sides"][side]["pairs_s"]
            cells.append(f"{rate:.2f} ({rate / row['sides'][base]['pairs_s']:.1f})")
        known = [row["sides"][side] for row in rows if side in row["sides"]]
        lines.append([side, *cells, megabytes(known), differences(known)])
    workloads = [row["workload"] for row in rows]
    return ["side", *workloads, "peak memory", "VCS, GAS, LAS differ by"], lines


def segmenter(rows: Rows) -> Table:
    """Time of each side and workload, and in brackets how many times faster than the fastest
    oracle."""
    lines = []
    for side in sides_of(rows):
        cells = []
        for row in rows:
            seconds = row["sides"][side]["seconds"]
            oracles = [name for name in row["sides"] if "ours" not in name]
            fastest = min(row["sides"][name]["seconds"] for name in oracles)
            ratio = f" ({fastest / seconds:.2f})" if "ours" in side else ""
            cells.append(duration(seconds) + ratio)
        lines.append([side, *cells, megabytes([row["sides"][side] for row in rows])])
    return ["side", *(row["workload"] for row in rows), "peak memory"], lines


def latency(rows: Rows) -> Table:
    """Milliseconds of one warm pair, by revision."""
    lines = []
    for workload, side, figures in by_side(rows):
        p50, p99 = duration(figures["p50_ms"] / 1000), duration(figures["p99_ms"] / 1000)
        lines.append([workload, side, p50, p99])
    return ["reference", "revision", "p50", "p99"], lines


def start(rows: Rows) -> Table:
    """Milliseconds of what a user waits for."""
    sides = sides_of(rows)
    lines = []
    for row in rows:
        lines.append([row["workload"], *(f"{row['sides'][side]['ms']:.0f} ms" for side in sides)])
    return ["what", *sides], lines


def host(rows: Rows) -> Table:
    """Milliseconds of a pair beside its model by step, of each bundle and revision."""
    heads = list(rows[-1]["sides"]["now"])
    lines = []
    for workload, side, figures in by_side(rows):
        cells = [f"{figures[step]:.2f}" if step in figures else "" for step in heads]
        lines.append([workload, side, *cells])
    return ["bundle", "revision", *heads], lines


def jobs(rows: Rows) -> Table:
    """Time and memory of jobs."""
    lines = [
        [workload, side, duration(figures["seconds"]), megabytes([figures])]
        for workload, side, figures in by_side(rows)
    ]
    return ["job", "how", "time", "peak memory"], lines


def ready(rows: Rows) -> Table:
    """Cells that the script itself has written, after the name of the row unless its head is
    None."""
    heads = list(dict.fromkeys(head for row in rows for head in row["cells"]))
    first = rows[0].get("head", "")
    lines = []
    for row in rows:
        cells = [row["cells"].get(head, "") for head in heads]
        lines.append(cells if first is None else [row["workload"], *cells])
    return (heads if first is None else [first, *heads]), lines


TABLES: dict[str, Callable[[Rows], Table]] = {
    "core": core,
    "end_to_end": end_to_end,
    "segmenter": segmenter,
    "latency": latency,
    "jobs": jobs,
    "start": start,
    "host": host,
}


def duration(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            number = seconds * factor
            return f"{number:.{max(0, 2 - len(str(int(number))))}f} {unit}"
    raise AssertionError


def megabytes(figures: Iterable[dict[str, Any]]) -> str:
    known = [side["peak_mb"] for side in figures if side.get("peak_mb")]
    return f"{max(known):.0f} MB" if known else ""


def differences(figures: Rows) -> str:
    names = ("vcs_differs", "gas_differs", "las_differs")
    texts = []
    for name in names:
        known = [side[name] for side in figures if name in side]
        if not known:
            texts.append("-")
        elif max(known) == 0:
            texts.append("0")
        else:
            texts.append(f"{max(known):.0e}".replace("e-0", "e-"))
    return ", ".join(texts)


def text(script: str, processor: str, folder: Path) -> str:
    """Return a table and where its figures come from."""
    record = json.loads((folder / processor / f"{script}.json").read_text("utf-8"))
    heads, lines = TABLES.get(script, ready)(record["rows"])
    table = [heads, ["---"] * len(heads), *lines]
    written = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    return f"\n{written}\n\n{origin(record)}\n\n"


def origin(record: dict[str, Any]) -> str:
    """Say which processor, dates, revisions, versions and signatures figures have."""
    rows = record["rows"]
    where = ""
    machine = record.get("processor")
    if machine:
        where = f"{machine['name']}, {machine['cores']} cores, {', '.join(machine['features'])}"
    if "source" in record:
        line = f"*{'. '.join(filter(None, (where, record['source'])))}*"
    else:
        dates = sorted({f"{row['date']} at {row['revision']}" for row in rows})
        versions = set()
        for row in rows:
            versions.update(f"{name} {version}" for name, version in row["versions"].items())
        line = f"*{where}; {', '.join(dates)}; {', '.join(sorted(versions))}.*"
    signatures: dict[str, str] = {}
    for row in rows:
        signatures |= row.get("signatures", {})
    return "\n".join([line, *(f"<br>*{side}:* `{value}`" for side, value in signatures.items())])


def filled(page: str, folder: Path) -> str:
    """Return a page with all its tables written again; raises KeyError or OSError for one without
    figures."""
    return MARKS.sub(lambda mark: mark[1] + text(mark[2], mark[3], folder) + mark[4], page)


def main(options: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a page differs"
    )
    parser.add_argument("--manual", type=Path, default=MANUAL, help="folder of the pages")
    parser.add_argument("--figures", type=Path, default=FOLDER, help="folder of the figures")
    arguments = parser.parse_args(options)
    pages = {path: path.read_text("utf-8") for path in arguments.manual.glob("**/*.md")}
    shown: set[tuple[str, str]] = set()
    for page in pages.values():
        shown.update((script, place) for _, script, place, _ in MARKS.findall(page))
    existing = {(path.stem, path.parent.name) for path in arguments.figures.glob("*/*.json")}
    for script, place in sorted(shown ^ existing):
        lacking = "has no table" if (script, place) in existing else "has no figures"
        print(f"{script} {place} {lacking}", file=sys.stderr)
    # New kinds of figures, or figures of a new processor, need a table that is added by hand.
    if shown - existing or (arguments.check and shown != existing):
        return 1
    # All tables are made before any page is written.
    written = {path: filled(page, arguments.figures) for path, page in pages.items()}
    stale = [path for path, page in pages.items() if written[path] != page]
    for path in stale:
        if arguments.check:
            print(
                f"{path.name} differs from the figures: run benchmarks/tables.py", file=sys.stderr
            )
        else:
            path.write_text(written[path], "utf-8")
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
