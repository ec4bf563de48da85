"""How a command gets its options, and the options that several commands share.

A command receives its options as a few objects. Each object is a frozen dataclass, which `combined`
makes from the values of its options. To add an option to a command:

1. Add a `click.option` to the `combined` of the command. The help lists options in this order.
2. Add a field with the option's name in Python (`on_error` for --on-error) to the dataclass of that
   `combined`. The command can now read it.

The help of an option is a noun phrase, then the default. `together` puts options under a heading of
the help; with `advanced`, only --help-all lists them. The `type` or `callback` of an option checks
its value. `__post_init__` of the dataclass checks values together; its ValueError is reported as
wrong usage.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from vcs_runtime.bundle.paths import EMPTY, vector_store
from vcs_runtime.errors import InputError, VcsError
from vcs_runtime.jobs.pairs import TEXTS_BY_ID
from vcs_runtime.scoring.options import FURTHER, ScorerConfig
from vcs_runtime.util.printable import formulas_as_text
from vcs_runtime.util.process import MOST_THREADS
from vcs_runtime.util.reading import FILE_MB, LINE_MB, reading_up_to


class NamedPath(click.Path):
    """A path that is not empty, as of an unset shell variable, and no output named "-"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or refuse it."""
        if not value:
            self.fail(EMPTY, param, ctx)
        if value == "-" and param is not None and param.name == "output":
            self.fail("name a file: standard output is for the summary.", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath(path_type=Path)
# Headings of a command's help, in this order.
_SECTIONS = ("Options", "Input", "Scoring", "Models", "Language model", "Many machines")

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class Number(click.types.FloatParamType):
    """Any finite number. The type of click also takes NaN and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a finite number; click's error for any other text."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class NumberRange(Number, click.FloatRange):
    """A range of finite numbers. The range of click takes NaN: no comparison with it is true."""


#: The key of a context's `meta` that makes help list all options.
ALL_OPTIONS: Final = f"{__name__}.all"


# The key of a context's `meta` that holds the words after the name of the command.
_TYPED: Final = f"{__name__}.typed"


def _help_all(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        context.meta[ALL_OPTIONS] = True
        click.echo(context.get_help())
        context.exit()


class SectionedCommand(click.Command):
    """A command whose help lists its options under the headings that `together` gave them.

    Advanced options are listed by --help-all only. An error whose remedy is an option has the whole
    corrected command.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what was typed."""
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            known = {name for option in self.params for name in option.opts}
            typed = {word.split("=")[0] for word in ctx.meta[_TYPED]}
            corrected = self._corrected(ctx, error.remedy)
            options = set(re.findall(r"--[\w-]+", error.remedy))
            if not corrected or not options <= known - typed:
                raise
            command = f"type {ctx.command_path} {corrected}"
            raise InputError(str(error).replace(error.remedy, command)) from None

    def _corrected(self, ctx: click.Context, remedy: str) -> str:
        """Return what should have been typed after the name of the command; "" if unknown."""
        typed: list[str] = ctx.meta[_TYPED]
        if remedy != TEXTS_BY_ID:
            return remedy and f"{shlex.join(typed)} {remedy.removeprefix('give ')}"
        files: list[str] = []
        for argument in self.params:
            if isinstance(argument, click.Argument):
                files += map(str, ctx.params[str(argument.name)])
        if any(map(os.path.isdir, files)):
            return ""
        named = [file for file in files if "ref" in Path(file).stem.lower()]
        references = [*named, *files][0]
        predictions = [file for file in files if file != references] or ["PREDICTIONS"]
        words = ["--references", references, "--predictions", *predictions]
        corrected = shlex.join([*words, *(word for word in typed if word not in files)])
        if len(files) == 1 and files[0].endswith(".txt"):
            corrected = f"REFERENCE.txt GENERATED.txt for one pair, or {corrected}"
        return corrected

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with --help-all among them."""
        help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            hidden=True,
            callback=_help_all,
        )
        return [*super().get_params(ctx), help_all]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one list for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS}
        every = ctx.meta.get(ALL_OPTIONS)
        left_out = False
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is None:  # an argument, or a hidden option
                continue
            if getattr(option, "advanced", False) and not every:
                left_out = True
                continue
            # click appends the default and the range of a number, called x, in brackets.
            names, text = record[0], record[1].replace("]  [", "; ").replace("  [", " [")
            text = re.sub(r"\bx(?=[<>])", option.metavar or "x", text)
            sections[getattr(option, "section", "Options")].append((names, text))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        if left_out:
            formatter.write(f"\nMore options: {ctx.command_path} --help-all\n")


def together(*options: Decorator, section: str = "Options", advanced: bool = False) -> Decorator:
    """Return one decorator for several options.

    The help lists the options in this order under `section`.
    """

    def decorate(command: Command) -> Command:
        first = len(getattr(command, "__click_params__", ()))
        for option in reversed(options):
            command = option(command)
        for parameter in getattr(command, "__click_params__", ())[first:]:
            vars(parameter).setdefault("section", section)
            vars(parameter).setdefault("advanced", advanced)
        return command

    return decorate


def combined(argument: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds options to a command, and passes one object made from them.

    `make` is usually a dataclass. Its parameters have the names of the options. A ValueError that
    it raises is reported as wrong usage.
    """
    names = tuple(inspect.signature(make).parameters)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_value(*arguments: Any, **values: Any) -> Any:
            # A field that is not an option of this command keeps its default.
            chosen = {name: values.pop(name) for name in names if name in values}
            with usage_errors():
                value = make(**chosen)
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


output_file = click.option(
    "-o", "--output", type=PATH, required=True, metavar="FILE", help="File to write."
)
output_folder = functools.partial(
    click.option, "-o", "--output", type=PATH, required=True, metavar="DIR"
)
resume = click.option(
    "--resume",
    is_flag=True,
    help="Continue an interrupted job, with the same input and options.",
)
overwrite = click.option("--overwrite", is_flag=True, help="Replace an existing output.")


def _make_csv_safe(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.with_resource(formulas_as_text())


def _set_read_limit(
    context: click.Context, parameter: click.Parameter, value: float | None
) -> None:
    if value is not None:
        context.with_resource(reading_up_to(value))


max_read_mb = click.option(
    "--max-read-mb",
    type=NumberRange(min=0, max=1_000_000, min_open=True),
    metavar="MB",
    expose_value=False,
    callback=_set_read_limit,
    help=(
        "Maximum size of a line, and of a file read whole (JSON, Excel, text). "
        f"[default: {LINE_MB:g} and {FILE_MB:g}]"
    ),
)
csv_safe = click.option(
    "--csv-safe",
    is_flag=True,
    expose_value=False,
    callback=_make_csv_safe,
    help="Put ' before texts in CSV and TSV that a spreadsheet would run as formulas.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
bundle = click.option(
    "--bundle",
    default="default",
    metavar="BUNDLE",
    help="Models to use: default, fast, int8, or a bundle's folder.",
)
segmenter = click.option(
    "--segmenter",
    default="auto",
    metavar="NAME",
    help=(
        "How texts are split into sentences: auto (rules if punctuated, otherwise "
        "learned), rules, learned, punkt (NLTK's), time-stamps (marks such as "
        "[00:12-00:18], or SRT), or a bundle's folder."
    ),
)
device = click.option(
    "--device",
    default="auto",
    metavar="DEVICE",
    help=(
        "Device that runs the models: auto (a GPU if possible), cpu, openvino, "
        "openvino:fp32, cuda:N, cuda:N:fp32, cuda:all, or tensorrt:N."
    ),
)


further = click.option(
    "--also",
    type=click.Choice(FURTHER),
    multiple=True,
    metavar="METRIC",
    help=(
        "Additional metric; may be repeated: substitution (replaced content words, and "
        "VCS lowered by them; English) or hm-cf (HM-CF of CLIP-CC-Bench)."
    ),
)


def check_resume(resume: bool, overwrite: bool) -> None:
    """Raise UsageError if a command should both resume and overwrite."""
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite cannot be combined")


_NO_CACHE: Final = Path(os.devnull)


class _Cache(click.Option):
    """--cache DIR, and --no-cache for none."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let --no-cache be this option with the value of no folder."""
        super().add_to_parser(parser, ctx)
        parser.add_option(self, ["--no-cache"], self.name, action="store_const", const=_NO_CACHE)


def _vector_folder(
    context: click.Context, parameter: click.Parameter, folder: Path | None
) -> Path | None:
    """Return the folder of --cache; by default this user's folder, but None for a server.

    Vectors of `--embedder` are stored only in a folder that the user names, because the weights of
    its server may change at any time.
    """
    if folder is None and context.command.name not in ("serve", "export"):
        return None if context.params.get("embedder") else vector_store()
    return None if folder == _NO_CACHE else folder


def _served(context: click.Context, parameter: click.Parameter, url: str | None) -> Any:
    """Return the embedder of --embedder and --embedder-model, which is processed first, or None."""
    model: str | None = context.meta.get("embedder_model")
    if url is None and model is None:
        return None
    if url is None or model is None:
        raise click.UsageError("give both --embedder URL and --embedder-model NAME")
    from vcs_runtime.inference.served import ServedEmbedder  # it needs sockets

    with usage_errors():
        return ServedEmbedder(url, model)


def _note_model(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    context.meta["embedder_model"] = name


#: Options that open a scorer; the command receives `config`, a `ScorerConfig`.
scorer_options = combined(
    "config",
    ScorerConfig,
    together(
        bundle,
        segmenter,
        device,
        click.option(
            "--cache",
            cls=_Cache,
            type=PATH,
            callback=_vector_folder,
            metavar="DIR / --no-cache",
            help=(
                "Folder of vectors that later commands reuse. [default: your cache folder, at "
                "most 2 GB; none for serve, triton and --embedder]"
            ),
        ),
        click.option(
            "--threads",
            type=click.IntRange(1, MOST_THREADS),
            metavar="N",
            help="Number of CPU threads. [default: all cores]",
        ),
        section="Models",
    ),
    together(
        click.option(
            "--gpu-memory-gb",
            type=NumberRange(0, 1_000_000, min_open=True, max_open=True),
            metavar="GB",
            help="Maximum GPU memory of the models. [default: no limit]",
        ),
        click.option(
            "--max-pair-gb",
            type=NumberRange(min=0, min_open=True),
            default=ScorerConfig.max_pair_gb,
            metavar="GB",
            help=(
                "Maximum memory for the similarity matrix of a pair, 8 bytes per cell. A larger "
                "pair is not scored."
            ),
        ),
        click.option(
            "--batch-invariant",
            is_flag=True,
            help=(
                "Make the score of a pair on a GPU independent of the other pairs, as on a CPU. "
                "A job computes 9 to 22 % more, a single pair two to five times as much "
                "(calculated)."
            ),
        ),
        click.option(
            "--words",
            default=ScorerConfig.words,
            metavar="BUNDLE",
            help="Bundle whose token vectors compare words, for --also substitution.",
        ),
        click.option(
            "--no-proof",
            "proof",
            is_flag=True,
            callback=lambda context, parameter, value: not value,
            help="Skip the check that the models reproduce the outputs stored in their bundle.",
        ),
        click.option(
            "--calibrated",
            is_flag=True,
            help=(
                "Rescale similarities with the calibration in the bundle, for a model that "
                "gives unrelated texts high cosines."
            ),
        ),
        section="Models",
        advanced=True,
    ),
)


#: Options of commands whose embedder may be a server's, beside `scorer_options`.
served_embedder = together(
    click.option(
        "--embedder",
        callback=_served,
        metavar="URL",
        help=(
            "URL of your embedding server (vLLM, TEI), instead of the bundle's model, such "
            "as http://127.0.0.1:8000/v1. Its weights are not verified."
        ),
    ),
    click.option(
        "--embedder-model",
        is_eager=True,
        expose_value=False,
        callback=_note_model,
        metavar="NAME",
        help="Name of the model on that server, as in the signature.",
    ),
    section="Models",
    advanced=True,
)
