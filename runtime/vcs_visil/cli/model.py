"""Options that the commands of `vcs-runtime visil` share, and the model that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import PATH, NumberRange, max_read_mb, together, usage_errors
from vcs_runtime.errors import InputError
from vcs_runtime.util.reading import read_whole
from vcs_visil.frames import FRAMES
from vcs_visil.models.apis import Gemini, OpenAI
from vcs_visil.models.genai import DEVICES, GenAI
from vcs_visil.models.generated import TOP
from vcs_visil.models.probing import TOLERANCE, ProbeCheck, probe, probe_generated
from vcs_visil.models.recorded import Recorded, Recorder
from vcs_visil.models.servers import TIMEOUT, VLLM, SGLang, Stepping
from vcs_visil.options import GENERATE, METHODS

#: Options that name a model which writes.
writer_model = together(
    click.option("--genai", type=PATH, metavar="DIR", help="Folder of a model for onnxruntime-genai."),
    click.option("--vllm", metavar="URL", help="Address of a vLLM server, such as http://gpu7:8000."),
    click.option("--sglang", metavar="URL", help="Address of an SGLang server; needs --template."),
    click.option("--stepping", metavar="URL",
                 help="Address of an OpenAI-style server that returns the likeliest tokens."),
    click.option("--openai", metavar="URL",
                 help="Address of a server with OpenAI's chat API, for --method generate and for writing."),
    click.option("--gemini", metavar="URL",
                 help="Address of a server with Gemini's API, for --method generate and for writing."),
    click.option("--model", metavar="NAME", help="Name of the model on the server. [default: its only one]"),
    click.option("--template", type=PATH, metavar="FILE",
                 help="Chat template of one user's turn with {prompt}, for --sglang."),
    click.option("--image-token", default="<image>", show_default=True, metavar="TEXT",
                 help="Text that stands for an image in the prompt, for --sglang."),
    click.option("--timeout", type=NumberRange(min=0, min_open=True), default=TIMEOUT, show_default=True,
                 metavar="S", help="Seconds in which a whole answer of the server must be there."),
    section="Language model",
)  # fmt: skip
writer_options = together(
    writer_model,
    click.option("--device", type=click.Choice(DEVICES), default=DEVICES[0], show_default=True,
                 help="Device for --genai; auto is what the model's configuration says."),
    max_read_mb,
)  # fmt: skip
model_options = together(
    writer_options,
    click.option("--recorded", type=PATH, metavar="FILE",
                 help="File of answers from an earlier run with --record, instead of a model."),
    click.option("--top", type=click.IntRange(min=1), default=TOP, show_default=True, metavar="N",
                 help="Number of likeliest tokens to request, for --stepping and --method generate."),
    click.option("--method", type=click.Choice(METHODS), default=METHODS[0], show_default=True,
                 help="How keywords are asked for: all in one answer, one mask at a time, or as the model "
                 "generates them (approximate)."),
)  # fmt: skip
frames_option = click.option(
    "--frames", type=click.IntRange(min=1), default=FRAMES, show_default=True, metavar="N",
    help="Number of frames of a video file, uniformly sampled.",
)  # fmt: skip
prompts_option = click.option(
    "--prompts", "folder", type=PATH, metavar="DIR",
    help="Folder with prompts of your own (docs/guide/visil.md). [default: built-in prompts]",
)  # fmt: skip
tolerance_option = click.option(
    "--tolerance", type=NumberRange(min=0, min_open=True), default=TOLERANCE, show_default=True,
    metavar="NATS", help="Largest difference in the probe between two ways to the same number.",
)  # fmt: skip
output_option = click.option(
    "-o", "--output", type=PATH, required=True, metavar="FILE", help="JSONL file to write."
)
items_argument = click.argument("items", type=PATH)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


_KINDS = ("genai", "vllm", "sglang", "stepping", "openai", "gemini", "recorded")
# How a kind of model can score; the others can only be forced.
_GENERATE_ONLY, _BOTH = ("openai", "gemini"), ("genai", "recorded")


def named(options: Mapping[str, Any]) -> list[str]:
    """Return the kinds of model that the options name."""
    return [kind for kind in _KINDS if options.get(kind)]


def open_model(options: Mapping[str, Any]) -> Any:
    """Open the one model that the options name; raise UsageError if they name none or several."""
    kinds = named(options)
    if len(kinds) != 1:
        listed = [f"--{kind}" for kind in _KINDS if kind in options]
        raise click.UsageError(f"give one of {', '.join(listed[:-1])} and {listed[-1]}")
    [kind] = kinds
    method = options.get("method")
    if method and kind not in _BOTH and (method == GENERATE) != (kind in _GENERATE_ONLY):
        only = f"--{kind} needs" if kind in _GENERATE_ONLY else f"--{kind} cannot be asked with"
        raise click.UsageError(f"{only} --method {GENERATE}")
    source, name, timeout = options[kind], options["model"], options["timeout"]
    with usage_errors():
        if kind == "genai":
            return GenAI(source, options["device"])
        if kind == "vllm":
            return VLLM(source, name, timeout=timeout)
        if kind == "stepping":
            return Stepping(source, name, timeout=timeout, top=options.get("top", TOP))
        if kind == "openai":
            return OpenAI(source, name, timeout=timeout)
        if kind == "gemini":
            return Gemini(source, name, timeout=timeout)
        if kind == "recorded":
            return Recorded(source)
        if options["template"] is None:
            raise click.UsageError("--sglang needs --template")
        return SGLang(source, _read(options["template"]), options["image_token"], timeout=timeout)


def probed(model: Any, options: Mapping[str, Any], tolerance: float, images: bool = True) -> list[ProbeCheck]:
    """Return the outcomes of the checks for the method that the options name."""
    if options["method"] == GENERATE:
        return probe_generated(model, images=images, tolerance=tolerance, top=options["top"])
    return probe(model, images=images, tolerance=tolerance)


def files_read(options: Mapping[str, Any], prompts: Path | None) -> list[Path]:
    """Return the files that the options of a model and of prompts name, and the file of --record."""
    named = [path for name in ("record", "recorded", "template") if (path := options.get(name))]
    return [*named, *(prompts.glob("*") if prompts else ())]


def _read(path: Path) -> str:
    try:
        return read_whole(path).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None


@contextmanager
def recording(model: Any, record: Path | None) -> Iterator[Any]:
    """Yield the model, with its answers written to the file `record` if there is one."""
    if record is None:
        yield model
    else:
        with closing(Recorder(model, record)) as recorder:
            yield recorder


def say_approximate(path: Path, approximate: bool) -> None:
    """Warn if the scores of a file are approximate."""
    if approximate:
        warn(f"{path}: the scores are approximate (--method {GENERATE})")


def exit_with(failed: object) -> None:
    """End the command with exit code 1 if something failed."""
    if failed:
        raise click.exceptions.Exit(1)
