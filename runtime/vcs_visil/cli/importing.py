"""`vcs-runtime visil import`: questions of MVBench and LongVideoBench as items."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import PATH, overwrite
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.output import OutputFile
from vcs_runtime.util.presence import is_there
from vcs_visil.cli.model import output_option
from vcs_visil.jobs.benchmarks import Source


@click.command("import")
@click.argument("questions", type=PATH)
@output_option
@click.option("--videos", type=PATH, metavar="DIR", help="Folder of the videos. [default: as downloaded]")
@click.option(
    "--subtitles", type=PATH, metavar="DIR", help="Folder of the subtitles. [default: as downloaded]"
)
@click.option("--task", metavar="NAME", help="Category of questions of LongVideoBench, such as SSS.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Largest number of videos.")
@click.option("--drop-missing", is_flag=True, help="Leave out videos whose files are not there.")
@overwrite
def import_questions(
    questions: Path, output: Path, videos: Path | None, subtitles: Path | None, task: str | None,
    limit: int | None, drop_missing: bool, overwrite: bool,
) -> None:  # fmt: skip
    """Write items from QUESTIONS of MVBench or LongVideoBench.

    The file stays in the layout in which the data set is downloaded, so its videos are found: MVBench's
    json/TASK.json, or LongVideoBench's lvb_val.json. Each video becomes one item with its questions.
    """
    items = Source(questions, videos, subtitles, task).items(output.parent, None if drop_missing else limit)
    missing = [item for item in items if not is_there(output.parent / item["video"])]
    if missing and not drop_missing:
        place = output.parent / missing[0]["video"]
        raise InputError(
            f"{place}: No such file, nor {len(missing) - 1} others: download them, name their folder "
            "(--videos), or leave them out (--drop-missing)"
        )
    if missing:
        warn(f"{questions}: {len(missing)} videos are not there and are left out")
        items = [item for item in items if item not in missing][:limit]
    with OutputFile(output, [questions], resume=False, overwrite=overwrite) as lines:
        lines.append(items)
    count = sum(len(item["questions"]) for item in items)
    click.echo(f"{len(items)} videos, {count} questions")
