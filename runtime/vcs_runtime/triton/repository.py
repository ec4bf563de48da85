"""A model repository for Triton: `config.pbtxt`, `model.py`, a warm-up request, and a README."""

from __future__ import annotations

import json
import re
import shlex
import struct
import textwrap
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path

from vcs_runtime.bundle.archive import copy_bundle
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import InputError
from vcs_runtime.inference.device import split_device
from vcs_runtime.scoring.example import EXAMPLE
from vcs_runtime.scoring.opening import open_bundles
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.segmentation.segmenter import CHOICES
from vcs_runtime.triton.backend import INPUTS, SCORES, TEXTS
from vcs_runtime.util.atomic import new_folder, partials, refuse_input_as_output, write_whole
from vcs_runtime.util.numbers import checked_count

_MODEL = '''"""Scores of text pairs. The server's Python must have vcs_runtime, where all of it \
is."""

from vcs_runtime.triton.backend import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''
# The server answers this request before it calls the model ready, so everything is loaded by then.
# A Python backend that cannot read texts (one from before NumPy 2, with NumPy 2) fails when it
# loads. The same request is in the README.
_WARM_UP = EXAMPLE
# The ranges of fields of Triton's ModelConfig: 32 bits, but 64 for microseconds.
_COUNTS = {
    "max_batch_size": (1, 2**31 - 1),
    "queue_delay_us": (0, 2**64 - 1),
    "instances": (1, 2**31 - 1),
}
_COPY = "bundle"  # in the folder of the model's version


@dataclass(frozen=True)
class Deployment:
    """Settings of a served model. Raises ValueError with the name of the argument."""

    name: str = "vcs"
    config: ScorerConfig = ScorerConfig()
    options: Options = Options()
    copy_bundle: bool = False  # into the repository, which can then be moved
    max_batch_size: int = 64  # items of one request, and of all that are scored together
    queue_delay_us: int = 0  # microseconds that a request may wait for others
    instances: int = 1  # on each device
    address: str = "127.0.0.1"  # of http, grpc and metrics

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", self.name):
            raise ValueError(
                f"name: {self.name!r} is not a model name: use letters, digits, '_', '-', '.'"
            )
        for argument, (least, most) in _COUNTS.items():
            checked_count(argument, getattr(self, argument), least, most)
        if self.config.has_custom_models:
            raise ValueError("config: Triton serves only bundles, not models of the caller")
        if self.options.also:
            raise ValueError(
                "options: Triton serves only the scores of VCS, so leave out `also` (--also)"
            )
        split_device(self.config.device)
        if not re.fullmatch(r"[A-Za-z0-9.:-]+", self.address):
            raise ValueError(f"address: {self.address!r} is not an address or a host name")


def write_repository(folder: Path, deployment: Deployment) -> Path:
    """Write a model repository, whole or not at all.

    The bundle is verified; the device is not, because the server may be another machine. Raises
    InputError for a folder that is not empty or is inside the bundle, and BundleError.
    """
    # An export that was killed may have left a partial model.
    left = partials(folder / deployment.name)
    if folder.exists() and not (folder.is_dir() and set(folder.iterdir()) <= set(left)):
        raise InputError(f"{folder} exists already: choose a new or empty folder")
    config = deployment.config.absolute()
    bundle = open_bundle(str(config.bundle), full=deployment.copy_bundle)
    inputs = [bundle.root]
    _, segmenter = open_bundles(replace(config, bundle=bundle))
    if segmenter and config.segmenter not in CHOICES:
        inputs.append(segmenter.root)
        config = replace(config, segmenter=str(segmenter.root))
    refuse_input_as_output(folder, *inputs)
    config = replace(config, bundle=_COPY if deployment.copy_bundle else str(bundle.root))
    # A new folder appears as a whole, so a command that was killed can be repeated.
    is_there = folder.exists()
    with new_folder(folder / deployment.name if is_there else folder) as made:
        model = made if is_there else made / deployment.name
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(_MODEL, "utf-8")
        if deployment.copy_bundle:
            copy_bundle(bundle, model / "1" / _COPY)
        (model / "config.pbtxt").write_text(_config(deployment, config), "utf-8")
        (model / "warmup").mkdir()
        for name, text in _WARM_UP.items():
            (model / "warmup" / name).write_bytes(struct.pack("<I", len(text)) + text.encode())
        write_whole(made / "README.md", _readme(folder, deployment, str(config.bundle)))
    written = folder / deployment.name
    if is_there:
        (written / "README.md").replace(folder / "README.md")
    return written


def _config(deployment: Deployment, config: ScorerConfig) -> str:
    """Return the text of `config.pbtxt`: Triton's ModelConfig as protobuf text."""
    kind, index = split_device(config.device)
    instances = f"count: {deployment.instances} kind: KIND_CPU"
    # The device "auto" is also KIND_CPU: it looks for a GPU in the server, and reports its choice
    # in the log and in every signature.
    if kind in ("cuda", "tensorrt"):
        instances = f"count: {deployment.instances} kind: KIND_GPU gpus: [ {index} ]"
    opening = asdict(config)
    del opening["embedder"]
    parameters = {
        "bundle": opening.pop("bundle"),
        "device": opening.pop("device"),
        "opening": json.dumps(opening),
        "scoring": json.dumps(asdict(deployment.options)),
    }
    lines = [
        f"name: {_quoted(deployment.name)}",
        'backend: "python"',
        f"max_batch_size: {deployment.max_batch_size}",
    ]
    for name in INPUTS:
        lines.append(f"input {{ {_tensor(name, 'STRING')} }}")
    for name in SCORES:
        lines.append(f"output {{ {_tensor(name, 'FP64')} }}")
    for name in TEXTS:
        lines.append(f"output {{ {_tensor(name, 'STRING')} }}")
    lines += [
        f"dynamic_batching {{ max_queue_delay_microseconds: {deployment.queue_delay_us} }}",
        f"instance_group {{ {instances} }}",
        'model_warmup { name: "one pair" batch_size: 1',
    ]
    for name in _WARM_UP:
        text = f"data_type: TYPE_STRING dims: [ 1 ] input_data_file: {_quoted(name)}"
        lines.append(f"  inputs {{ key: {_quoted(name)} value {{ {text} }} }}")
    lines.append("}")
    for key, value in parameters.items():
        text = f"string_value: {_quoted(value)}"
        lines.append(f"parameters {{ key: {_quoted(key)} value {{ {text} }} }}")
    return "\n".join(lines) + "\n"


def _tensor(name: str, kind: str) -> str:
    return f"name: {_quoted(name)} data_type: TYPE_{kind} dims: [ 1 ]"


def _quoted(text: str) -> str:
    """Return a string of protobuf text, which knows all escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _readme(folder: Path, deployment: Deployment, bundle: str) -> str:
    name, address = deployment.name, deployment.address
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(address, address)
    kind = split_device(deployment.config.device)[0].partition(":")[0]
    extra = {"cuda": "gpu", "tensorrt": "gpu,tensorrt", "openvino": "openvino"}.get(kind, "cpu")
    template = files("vcs_runtime.triton").joinpath("README.txt").read_text("utf-8")
    return template.format(
        name=name,
        bundle=bundle if bundle != _COPY else f"the copy in {name}/1/{_COPY}",
        device=deployment.config.device,
        address=address,
        extra=extra,
        ready=f"http://{host}:8000/v2/models/{name}/ready",
        infer=f"http://{host}:8000/v2/models/{name}/infer",
        most=deployment.max_batch_size,
        folder="." if deployment.copy_bundle else shlex.quote(str(folder.resolve())),
        **_WARM_UP,
        scores=textwrap.fill(", ".join(SCORES), 110),
    )
