"""Options that several commands share, and the headings under which a command's help lists them."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from vcs_numba import Params
from vcs_runtime.errors import VcsError
from vcs_runtime.scoring.options import AGGREGATES, FURTHER, PRESETS, Options, ScorerConfig
from vcs_runtime.scoring.verdicts import Thresholds
from vcs_runtime.util.printable import formulas_as_text
from vcs_runtime.util.process import MOST_THREADS
from vcs_runtime.util.reading import FILE_MB, LINE_MB, reading_up_to


class NamedPath(click.Path):
    """A path. An empty one is refused: it comes of a variable that is not set, and would mean this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or refuse it."""
        if not value:
            self.fail("an empty name is no path.", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath(path_type=Path)
# Headings of a command's help, in this order.
_SECTIONS = (
    "Options",
    "Input",
    "Scoring",
    "Verdicts",
    "Models",
    "Language model",
    "Many machines",
    "Details of the alignment",
)

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class Number(click.types.FloatParamType):
    """Any finite number. click's own type takes NaN and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that a text says; click's error for a text that says another or none."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class NumberRange(Number, click.FloatRange):
    """A range of finite numbers. click's own range takes NaN: no comparison with it is true."""


class SectionedCommand(click.Command):
    """A command whose help lists its options under the headings that `together` gave them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one list for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)):
                # click appends the range of a number in brackets of its own.
                text = record[1].replace("]  [", "; ")
                sections[getattr(option, "section", "Options")].append((record[0], text))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def together(*options: Decorator, section: str = "Options") -> Decorator:
    """Return one decorator for several options; the help lists them in this order under `section`."""

    def decorate(command: Command) -> Command:
        first = len(getattr(command, "__click_params__", ()))
        for option in reversed(options):
            command = option(command)
        for parameter in getattr(command, "__click_params__", ())[first:]:
            vars(parameter).setdefault("section", section)
        return command

    return decorate


def combined(argument: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds options to a command, and hands it one value made from all of them."""
    names = tuple(inspect.signature(make).parameters)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_value(*arguments: Any, **values: Any) -> Any:
            with usage_errors():
                value = make(**{name: values.pop(name) for name in names if name in values})
            return command(*arguments, **{argument: value}, **values)

        for option in reversed(options):
            option(with_value)
        return with_value

    return decorate


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report a plain ValueError, such as a value out of range, as wrong usage."""
    try:
        yield
    except VcsError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from None


output_file = click.option("-o", "--output", type=PATH, required=True, metavar="FILE", help="File to write.")
output_folder = functools.partial(click.option, "-o", "--output", type=PATH, required=True, metavar="DIR")
resume = click.option(
    "--resume", is_flag=True,
    help="Continue an interrupted job, with the same input and options, after the last complete output line.",
)  # fmt: skip
overwrite = click.option("--overwrite", is_flag=True, help="Replace an existing output.")


def _make_csv_safe(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.with_resource(formulas_as_text())


def _set_read_limit(context: click.Context, parameter: click.Parameter, value: float | None) -> None:
    if value is not None:
        context.with_resource(reading_up_to(value))


max_read_mb = click.option(
    "--max-read-mb", type=NumberRange(min=0, max=1e6, min_open=True), metavar="MB", expose_value=False,
    callback=_set_read_limit,
    help="Largest line, and largest file that is read as a whole (JSON, Excel, plain text). "
    f"[default: {LINE_MB:g}, {FILE_MB:g}]",
)  # fmt: skip
csv_safe = click.option(
    "--csv-safe", is_flag=True, expose_value=False, callback=_make_csv_safe,
    help="Put ' before texts in CSV and TSV that a spreadsheet would take for formulas.",
)  # fmt: skip
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
bundle = click.option(
    "--bundle", default="default", show_default=True, metavar="BUNDLE", help="Folder of the bundle."
)
segmenter = click.option(
    "--segmenter", default="auto", show_default=True, metavar="NAME",
    help="How texts are split into sentences: auto (rules if punctuated, otherwise the learned model), "
    "rules, learned, punkt (NLTK's), or a bundle.",
)  # fmt: skip
device = click.option(
    "--device", default="auto", show_default=True, metavar="DEVICE",
    help="Where the models run: auto, cpu, openvino, openvino:fp32, cuda:N, cuda:all, or tensorrt:N.",
)  # fmt: skip


def check_resume(resume: bool, overwrite: bool) -> None:
    """Raise UsageError if a command should both resume and overwrite."""
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite exclude each other")


def _scorer_config(
    bundle: str,
    segmenter: str,
    device: str,
    cache: Path | None,
    threads: int | None,
    gpu_mem_gb: float | None,
    batch_invariant: bool,
    pair_mem_gb: float,
    words: str,
) -> ScorerConfig:
    return ScorerConfig(
        bundle, device, cache=cache, threads=threads, segmenter=segmenter, gpu_mem_gb=gpu_mem_gb,
        batch_invariant=batch_invariant, pair_mem_gb=pair_mem_gb, words=words,
    )  # fmt: skip


def _set_verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_VERBOSE] = value


def verbose() -> bool:
    """Whether the running command has --verbose."""
    return bool(click.get_current_context().meta.get(_VERBOSE))


_VERBOSE = f"{__name__}.verbose"

#: Options that open a scorer; the command receives `config`, a `ScorerConfig`.
scorer_options = combined("config", _scorer_config, together(
    bundle,
    segmenter,
    device,
    click.option("--cache", type=PATH, metavar="DIR",
                 help="Folder that stores vectors for later runs. [default: none]"),
    click.option("--threads", type=click.IntRange(1, MOST_THREADS), metavar="N",
                 help="Number of CPU threads. [default: all cores]"),
    click.option("--gpu-mem-gb", type=NumberRange(0, 1e6, min_open=True, max_open=True), metavar="GB",
                 help="Most GPU memory that the models may use. [default: no limit]"),
    click.option("--pair-mem-gb", type=NumberRange(min=0, min_open=True),
                 default=ScorerConfig.pair_mem_gb, show_default=True, metavar="GB",
                 help="Most memory for the similarities of one pair, 8 bytes for each two chunks. A pair "
                 "that needs more cannot be scored."),
    click.option("--batch-invariant", is_flag=True,
                 help="Same score for a pair on a GPU whatever else is scored with it. A job computes 9 to "
                 "22 % more, a lone pair two to five times as much (calculated). No effect on a CPU, where "
                 "that holds anyway."),
    click.option("--words", default=ScorerConfig.words, show_default=True, metavar="BUNDLE",
                 help="Folder of the bundle whose token vectors compare words, for --with substitution."),
    click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_set_verbose,
                 help="Report which device runs the models, and why."),
    section="Models",
))  # fmt: skip


def _options(
    preset: str, chunk_size: int | None, lct: float | None, aggregate: str, short: bool, clean: str | None,
    also: tuple[str, ...], lct_penalty: Any, small_text: Any, context_cutoff: float, context_window: float,
    regularizer: Any, nas_blend_factor: float, nas_coverage_cutoff: float,
) -> Options:  # fmt: skip
    if short and chunk_size is not None:
        raise click.UsageError("--chunk-size: words are the chunks of --short")
    params = Params(
        lct=PRESETS[preset][1] if lct is None else lct, lct_penalty=lct_penalty, small_text=small_text,
        context_cutoff=context_cutoff, context_window=context_window, regularizer=regularizer,
        nas_blend_factor=nas_blend_factor, nas_coverage_cutoff=nas_coverage_cutoff,
    )  # fmt: skip
    if chunk_size is None:
        chunk_size = 1 if short else PRESETS[preset][0]
    names = [name.strip() for name in clean.split(",")] if clean is not None else []
    return Options(chunk_size, params, aggregate, short, names, also)


_PARAMS = Params()
further = click.option("--with", "also", type=click.Choice(FURTHER), multiple=True, metavar="METRIC",
                       help="Metric to compute beside VCS; may be repeated: substitution, which words others "
                       "replaced, with a VCS lowered by it (English); hm-cf, the harmonic mean of coarse and "
                       "fine similarity (CLIP-CC-Bench). [default: none]")  # fmt: skip
#: Options of the metric; the command receives `options`, an `Options`.
scoring_options = combined("options", _options, together(
    click.option("--preset", type=click.Choice(list(PRESETS)), default="default", show_default=True,
                 help="Chunk size and LCT of the reference package, the papers, or their result tables."),
    click.option("--chunk-size", type=click.IntRange(min=1), metavar="K",
                 help="Number of sentences joined to one chunk. [default: the preset's, 1]"),
    click.option("--lct", type=NumberRange(min=0), metavar="X",
                 help="Local Chronology Tolerance. [default: the preset's, 0]"),
    click.option("--aggregate", type=click.Choice(AGGREGATES), default="max", show_default=True,
                 help="How scores against several references become one."),
    click.option("--short", is_flag=True, help="Compare words instead of sentences, for short captions."),
    click.option("--clean", metavar="NAMES",
                 help="Comma-separated list of what is removed from all texts first: markdown, think "
                 "(reasoning in <think> tags), list-numbers. [default: nothing]"),
    further,
    section="Scoring",
), together(
    click.option("--lct-penalty", type=click.Choice(["full", "excess"]), default=_PARAMS.lct_penalty,
                 show_default=True, help="Penalty beyond the tolerance: the full offset or the excess."),
    click.option("--small-text", type=click.Choice(["paper", "reference"]), default=_PARAMS.small_text,
                 show_default=True,
                 help="Source of the scores of very short texts: the papers or the reference package."),
    click.option("--context-cutoff", type=NumberRange(0, 1), default=_PARAMS.context_cutoff,
                 show_default=True, metavar="X",
                 help="Minimum similarity of a best match that may have other candidates."),
    click.option("--context-window", type=NumberRange(0, min_open=True), default=_PARAMS.context_window,
                 show_default=True, metavar="X",
                 help="Divisor of the similarity band of a best match's candidates."),
    click.option("--regularizer", type=click.Choice(["window", "length"]), default=_PARAMS.regularizer,
                 show_default=True, help="Estimate of the order score that chance would give."),
    click.option("--nas-blend-factor", type=NumberRange(-1, 1), default=_PARAMS.nas_blend_factor,
                 show_default=True, metavar="X",
                 help="Weight of the length ratio in the length regulariser."),
    click.option("--nas-coverage-cutoff", type=NumberRange(0, 1), default=_PARAMS.nas_coverage_cutoff,
                 show_default=True, metavar="X",
                 help="Coverage threshold of the length regulariser."),
    section="Details of the alignment",
))  # fmt: skip

_THRESHOLDS = Thresholds()
#: Options of verdicts on chunks; the command receives `thresholds`, a `Thresholds`.
threshold_options = combined("thresholds", Thresholds, together(
    click.option("--support", type=NumberRange(-1, 1), default=_THRESHOLDS.support, show_default=True,
                 metavar="X", help="Minimum cosine similarity for a match to count as support."),
    click.option("--rival", type=NumberRange(0, 2), default=_THRESHOLDS.rival, show_default=True,
                 metavar="X", help="Similarity lead of another chunk that makes a reference chunk missing."),
    click.option("--order", type=NumberRange(0, 1), default=_THRESHOLDS.order, show_default=True,
                 metavar="X", help="Share of an offset that changed order must explain for a moved chunk."),
    click.option("--repeat", type=NumberRange(-1, 1), default=_THRESHOLDS.repeat, show_default=True,
                 metavar="X", help="Minimum similarity to an earlier generated chunk for a repeated chunk."),
    section="Verdicts",
))  # fmt: skip

#: Options that give one pair by two or more text files.
pair_options = together(
    click.option("--reference", "references", type=PATH, multiple=True, metavar="FILE",
                 help="Text file of one reference; may be repeated."),
    click.option("--generated", type=PATH, metavar="FILE", help="Text file of the generated text."),
)  # fmt: skip
