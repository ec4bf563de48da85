"""Options of the metric, for the commands that score."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import click

from vcs_numba import Params
from vcs_runtime.cli.options import PATH, NumberRange, combined, further, together
from vcs_runtime.errors import InputError
from vcs_runtime.scoring.options import AGGREGATES, PRESETS, Options
from vcs_runtime.scoring.verdicts import Thresholds
from vcs_runtime.util.reading import read_whole


@dataclass(frozen=True)
class FileParams:
    """Contents of the file of `--params`: parameters of the metric, and thresholds of verdicts."""

    metric: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Thresholds = Thresholds()


class _ParamsFile(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2
    """A TOML file of `Params` and, in its table [thresholds], of `Thresholds`."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the `FileParams` of a file; click's error names the file and the key."""
        if isinstance(value, FileParams):
            return value
        content = read_whole(PATH.convert(value, param, ctx), pipe=True)
        try:
            keys = tomllib.loads(content.decode())
            thresholds = keys.pop("thresholds", {})
            if not isinstance(thresholds, dict):
                raise ValueError("thresholds must be a table, [thresholds]")
            _refuse_unknown(keys, _PARAM_NAMES)
            _refuse_unknown(thresholds, _THRESHOLD_NAMES)
            Params(**keys)  # its errors name the key
            return FileParams(keys, Thresholds(**thresholds))
        except (ValueError, TypeError) as error:
            raise InputError(f"{value}: {error}") from None


def _refuse_unknown(keys: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise ValueError if a key is not one of these names."""
    for key in sorted(keys):
        if key not in names:
            raise ValueError(f"unknown key {key!r} (the keys are {', '.join(names)})")


_PARAM_NAMES = [parameter.name for parameter in fields(Params)]
_THRESHOLD_NAMES = [threshold.name for threshold in fields(Thresholds)]


@dataclass(frozen=True)
class MetricOptions:
    """How a command scores: the values of its options."""

    preset: str
    chunk_size: int | None
    lct: float | None
    aggregate: str
    short: bool
    clean: str | None
    also: tuple[str, ...]
    params: FileParams

    def __post_init__(self) -> None:
        self.options  # noqa: B018  # raises an error for values that do not fit together

    @property
    def options(self) -> Options:
        """The options of the scorer."""
        if self.short and self.chunk_size is not None:
            raise click.UsageError("--chunk-size is not for --short, whose chunks are words")
        chunk_size, lct = PRESETS[self.preset]
        if self.chunk_size is not None:
            chunk_size = self.chunk_size
        elif self.short:
            chunk_size = 1
        values = {"lct": lct, **self.params.metric}
        if self.lct is not None:
            values["lct"] = self.lct
        cleanings = [] if self.clean is None else [name.strip() for name in self.clean.split(",")]
        params = Params(**values)
        return Options(chunk_size, params, self.aggregate, self.short, cleanings, self.also)

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of verdicts."""
        return self.params.thresholds


#: Options of the metric; the command receives `metric`, a `MetricOptions`.
scoring_options = combined(
    "metric",
    MetricOptions,
    together(
        click.option(
            "--preset",
            type=click.Choice(list(PRESETS)),
            default="default",
            help="Chunk size and LCT: 1 and 0 (default), 3 and 0.1 (paper), 1 and 1 (table-lct1).",
        ),
        click.option(
            "--chunk-size",
            type=click.IntRange(min=1),
            metavar="K",
            help="Number of sentences per chunk. [default: 1, or as in --preset]",
        ),
        click.option(
            "--lct",
            type=NumberRange(min=0),
            metavar="X",
            help=(
                "Local Chronology Tolerance: allowed disorder, in window heights. [default: 0, "
                "or as in --preset or --params]"
            ),
        ),
        click.option(
            "--aggregate",
            type=click.Choice(AGGREGATES),
            default="max",
            help="How several references are combined: the best one, or means.",
        ),
        click.option(
            "--short", is_flag=True, help="Compare words instead of sentences, for short captions."
        ),
        further,
        section="Scoring",
    ),
    together(
        click.option(
            "--clean",
            metavar="NAMES",
            help=(
                "Comma-separated kinds of markup to remove from all texts: markdown, think "
                "(reasoning in <think> tags), list-numbers, time-stamps, chat (end tokens, "
                "turns, polite openings, answer tags, JSON)."
            ),
        ),
        click.option(
            "--params",
            type=_ParamsFile(),
            default=FileParams(),
            show_default=False,
            metavar="FILE.toml",
            help=(
                f"TOML file with parameters of the metric ({', '.join(_PARAM_NAMES)}) and a table "
                f"[thresholds] for verdicts ({', '.join(_THRESHOLD_NAMES)}): docs/guide/input.md."
            ),
        ),
        section="Scoring",
        advanced=True,
    ),
)
