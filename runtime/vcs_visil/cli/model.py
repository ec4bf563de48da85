"""Options shared by commands of `vcs-runtime visil`, and the language model they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import PATH, NumberRange, combined, together, usage_errors
from vcs_runtime.errors import InputError
from vcs_runtime.util.reading import read_whole
from vcs_visil.asking import GENERATE, METHODS
from vcs_visil.frames import FRAMES
from vcs_visil.models.genai import DEVICES, GenAI
from vcs_visil.models.generated import TOP
from vcs_visil.models.probing import TOLERANCE, ProbeCheck, probe, probe_generated
from vcs_visil.models.recorded import Recorded, Recorder
from vcs_visil.models.servers import TIMEOUT, VLLM, Gemini, OpenAI, SGLang, Stepping

# What `--model KIND:PLACE` names.
_PLACES = {
    "genai": "DIR",
    "vllm": "URL",
    "sglang": "URL",
    "stepping": "URL",
    "openai": "URL",
    "gemini": "URL",
    "recorded": "FILE",
}
# The kinds that score by --method generate alone, and the kinds that score by every method.
_GENERATE_ONLY, _BOTH = ("openai", "gemini"), ("genai", "recorded")
_IMAGE = "<image>"


@dataclass(frozen=True)
class ModelOptions:
    """The options that name a language model."""

    model: str | None
    model_name: str | None
    template: Path | None
    image_token: str
    timeout: float
    device: str = DEVICES[0]
    top: int = TOP
    method: str | None = None  # of scoring; None: the model writes

    def open(self) -> Any:
        """Open the model; raise UsageError unless one is named that suits the command."""
        kind, place = self._named()
        name, timeout = self.model_name, self.timeout
        with usage_errors():
            if kind == "genai":
                return GenAI(Path(place), self.device)
            if kind == "recorded":
                return Recorded(Path(place))
            if kind == "stepping":
                return Stepping(place, name, timeout=timeout, top=self.top)
            if kind == "sglang":
                if self.template is None:
                    raise click.UsageError("--model sglang:URL needs --template")
                return SGLang(place, _read(self.template), self.image_token, timeout=timeout)
            return {"vllm": VLLM, "openai": OpenAI, "gemini": Gemini}[kind](
                place, name, timeout=timeout
            )

    def probed(self, model: Any, tolerance: float, images: bool = True) -> list[ProbeCheck]:
        """Return the outcomes of the checks for the method."""
        if self.method == GENERATE:
            return probe_generated(model, images=images, tolerance=tolerance, top=self.top)
        return probe(model, images=images, tolerance=tolerance)

    def files(self, *more: Path | None, prompts: Path | None = None) -> list[Path]:
        """Return the files of these options and of a folder of prompts, and `more` without None."""
        kind, _, place = (self.model or "").partition(":")
        recorded = Path(place) if kind == "recorded" else None
        paths = [path for path in (self.template, recorded, *more) if path]
        if prompts:
            paths += prompts.glob("*")
        return paths

    def _named(self) -> tuple[str, str]:
        """Return kind and place of the model."""
        kind, _, place = (self.model or "").partition(":")
        kinds = [kind for kind in _PLACES if self.method or kind != "recorded"]
        if kind not in kinds or not place:
            message = "--model must be one of "
            message += ", ".join(f"{kind}:{_PLACES[kind]}" for kind in kinds)
            if self.model:
                message += f", not {self.model!r} (to choose a server's model, use --model-name)"
            raise click.UsageError(message)
        if self.method and kind not in _BOTH:
            model = f"--model {kind}:{_PLACES[kind]}"
            if kind in _GENERATE_ONLY and self.method != GENERATE:
                raise click.UsageError(f"{model} needs --method {GENERATE}")
            if kind not in _GENERATE_ONLY and self.method == GENERATE:
                raise click.UsageError(f"{model} cannot be asked with --method {GENERATE}")
        return kind, place


def _read(path: Path) -> str:
    try:
        return read_whole(path).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None


_model = together(
    click.option(
        "--model",
        metavar="KIND:PLACE",
        help=(
            "Model: genai:DIR (onnxruntime-genai in this process), vllm:URL, sglang:URL "
            "(needs --template), stepping:URL (OpenAI-style server, one token at a time), "
            "openai:URL or gemini:URL (to write, or for --method generate), or "
            "recorded:FILE (answers of --record)."
        ),
    ),
    click.option(
        "--model-name",
        metavar="NAME",
        help="Name of the model on the server. [default: the only model]",
    ),
    click.option(
        "--template",
        type=PATH,
        metavar="FILE",
        help="Chat template of one user turn with {prompt}, for sglang.",
    ),
    click.option(
        "--image-token",
        default=_IMAGE,
        metavar="TEXT",
        help="Text that stands for an image in the prompt, for sglang.",
    ),
    click.option(
        "--timeout",
        type=NumberRange(min=0, min_open=True),
        default=TIMEOUT,
        metavar="S",
        help="Seconds to wait for an answer of the server.",
    ),
    section="Language model",
)
_device = click.option(
    "--device",
    type=click.Choice(DEVICES),
    default=DEVICES[0],
    help="Device for genai; auto follows the configuration of the model.",
)


def _on_its_device(
    model: str | None,
    model_name: str | None,
    template: Path | None,
    image_token: str,
    timeout: float,
) -> ModelOptions:
    return ModelOptions(model, model_name, template, image_token, timeout)


#: Options of a model that writes, on the device that its configuration names; the command receives
#: `asked`.
writer_options = combined("asked", _on_its_device, _model)
#: The same, with a choice of the device.
writer_device_options = combined(
    "asked", ModelOptions, together(_model, _device, section="Language model")
)
#: Options of a model that scores; the command receives `asked`, a `ModelOptions`.
scorer_model_options = combined(
    "asked",
    ModelOptions,
    together(
        _model,
        _device,
        click.option(
            "--top",
            type=click.IntRange(min=1),
            default=TOP,
            metavar="N",
            help="Number of likeliest tokens to request, for stepping and --method generate.",
        ),
        click.option(
            "--method",
            type=click.Choice(METHODS),
            default=METHODS[0],
            help=(
                "How keywords are asked for: all in one answer, one mask at a time, or as the "
                "model generates them (approximate)."
            ),
        ),
        section="Language model",
    ),
)
frames_option = click.option(
    "--frames",
    type=click.IntRange(min=1),
    default=FRAMES,
    metavar="N",
    help="Number of uniformly sampled frames of a video file.",
)
prompts_option = click.option(
    "--prompts",
    "folder",
    type=PATH,
    metavar="DIR",
    help="Folder with your own prompts (docs/guide/visil.md). [default: the built-in prompts]",
)
tolerance_option = click.option(
    "--tolerance",
    type=NumberRange(min=0, min_open=True),
    default=TOLERANCE,
    metavar="NATS",
    help="Maximum difference in the probe between two computations of a log-probability.",
)
output_option = click.option(
    "-o", "--output", type=PATH, required=True, metavar="FILE", help="JSONL file to write."
)
items_argument = click.argument("items", type=PATH)


@contextmanager
def recording(model: Any, record: Path | None) -> Iterator[Any]:
    """Yield the model, with its answers written to the file `record` if there is one."""
    if record is None:
        yield model
    else:
        with closing(Recorder(model, record)) as recorder:
            yield recorder


def say_approximate(path: Path, unknown: Mapping[str, int]) -> None:
    """Warn if the scores of a file are approximate, with the counts of `unknown_words`."""
    if unknown:
        warn(
            f"{path}: the scores are approximate (--method {GENERATE}). The model did not find"
            f" {unknown['unknown_video']} of {unknown['words_video']} keywords in the videos, and"
            f" {unknown['unknown_summary']} of {unknown['words_summary']} in the summaries"
        )


def exit_with(failed: object) -> None:
    """End the command with exit code 1 if something failed."""
    if failed:
        raise click.exceptions.Exit(1)
