"""What the commands of `vcs-runtime visil` share: the options that name a model, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from vcs_runtime.errors import InputError
from vcs_runtime.visil.frames import FRAMES
from vcs_runtime.visil.genai import GenAI
from vcs_runtime.visil.logprobs import LogProbs
from vcs_runtime.visil.probing import TOLERANCE
from vcs_runtime.visil.recorded import Recorded, Recorder
from vcs_runtime.visil.servers import TIMEOUT, TOP, VLLM, SGLang, Stepping

_PATH = click.Path(path_type=Path)
_Decorated = Callable[..., Any]


def warn(message: str) -> None:
    click.echo(f"vcs-runtime: {message}", err=True)


def together(*options: Any) -> Callable[[_Decorated], _Decorated]:
    def decorate(function: _Decorated) -> _Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


writer_options = together(
    click.option("--genai", type=_PATH, metavar="DIR", help="A model's folder, for onnxruntime-genai."),
    click.option("--vllm", metavar="URL", help="A vLLM server, such as http://gpu7:8000."),
    click.option("--sglang", metavar="URL", help="An SGLang server; with --template and --image-token."),
    click.option("--stepping", metavar="URL", help="An OpenAI-style server that returns likeliest tokens."),
    click.option("--model", metavar="NAME", help="Of a server that has several."),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True,
                 help="For --genai."),
    click.option("--template", type=_PATH, metavar="FILE", help="A user's turn, with {prompt} (SGLang)."),
    click.option("--image-token", default="<image>", show_default=True, help="An image in it (SGLang)."),
    click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=TIMEOUT, show_default=True,
                 metavar="S", help="Seconds that a server may take for an answer."),
)  # fmt: skip
model_options = together(
    writer_options,
    click.option("--recorded", type=_PATH, metavar="FILE", help="Answers that --record has kept."),
    click.option("--top", type=click.IntRange(min=1), default=TOP, show_default=True,
                 help="Likeliest tokens to ask for (stepping); more find rarer words."),
)  # fmt: skip
frames_option = click.option(
    "--frames", type=click.IntRange(min=1), default=FRAMES, show_default=True, metavar="N",
    help="Of a video file, taken uniformly.",
)  # fmt: skip
prompts_option = click.option(
    "--prompts", "folder", type=_PATH, metavar="DIR", help="Prompts of your own (docs/visil.md)."
)
tolerance_option = click.option("--tolerance", type=click.FloatRange(min=0, min_open=True),
                          default=TOLERANCE, show_default=True, metavar="NATS",
                          help="By which two ways to one number may differ in the probe.")  # fmt: skip
output_option = click.option("-o", "--output", type=_PATH, required=True, metavar="FILE")
resume_option = click.option("--resume", is_flag=True, help="Go on behind the last whole line of the output.")
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace an output that exists.")
items_argument = click.argument("items", type=_PATH)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def named(options: Mapping[str, Any]) -> list[str]:
    """The kinds of model that the options name."""
    return [kind for kind in ("genai", "vllm", "sglang", "stepping", "recorded") if options.get(kind)]


def exclusive(resume: bool, overwrite: bool) -> None:
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite exclude each other")


def open_model(options: Mapping[str, Any]) -> Any:
    """The one model that the options name."""
    kinds = named(options)
    if len(kinds) != 1:
        recorded = " and --recorded" if "recorded" in options else ""
        raise click.UsageError(f"give one of --genai, --vllm, --sglang, --stepping{recorded}")
    where, name, timeout = options[kinds[0]], options["model"], options["timeout"]
    try:
        if kinds[0] == "genai":
            return GenAI(where, options["device"])
        if kinds[0] == "vllm":
            return VLLM(where, name, timeout=timeout)
        if kinds[0] == "stepping":
            return Stepping(where, name, timeout=timeout, top=options.get("top", TOP))
        if kinds[0] == "recorded":
            return Recorded.open(where)
        if options["template"] is None:
            raise click.UsageError("--sglang needs --template")
        text = _read(options["template"])
        return SGLang(where, text, options["image_token"], timeout=timeout)
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise click.UsageError(str(error)) from None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None


@contextmanager
def recording(model: LogProbs, record: Path | None) -> Iterator[LogProbs]:
    if record is None:
        yield model
    else:
        with closing(Recorder(model, record)) as recorder:
            yield recorder


def exit_with(failed: object) -> None:
    if failed:
        raise click.exceptions.Exit(1)
