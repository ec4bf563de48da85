"""The proof of a model: what it gave for eight built-in texts, compared with what it gives here.

A wrong kernel, a damaged driver or a server that mixes up its batch still gives numbers, and every
score of them looks like a score. So a bundle carries the vectors of the built-in texts
(`bundle.manifest.Proof`). The first time that a model is opened with some version of its runtime,
some driver and some processor or GPU, the texts run again, each alone and all in one batch. A
marker file in the folder of the user then records that they agreed, as for verified files
(`bundle.integrity`). A difference is a ProofError.

Limits were measured (docs/guide/bundles.md): each lies between the largest distance of a right
model and the smallest of the planted defects that a precision can show.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from vcs_numba.jit.owners import make_folder
from vcs_runtime._version import __version__
from vcs_runtime.bundle.integrity import record, record_folder
from vcs_runtime.bundle.manifest import PROOF_TEXTS, EmbedderSpec, LearnedSegmenterSpec, Proof
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import BundleError, DeviceError, ProofError, TextError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import Device
from vcs_runtime.inference.environment import environment, model_identity, rounding_fields
from vcs_runtime.inference.tensorrt import engine_name
from vcs_runtime.util.atomic import write_whole

Array = npt.NDArray[np.float32]
Spec = EmbedderSpec | LearnedSegmenterSpec
Run = Callable[[Sequence[str]], Sequence[Array]]
"""Returns one array for each text."""
_FOLDER: Final = "proofs"
# The largest distance between two right answers for a text, by precision. Others have the largest.
VECTORS: Final = {"fp32": 1e-4, "fp16": 1.5e-2, "bf16": 0.1, "int8": 0.1}
PROBABILITIES: Final = {"fp32": 5e-3, "fp16": 5e-2, "bf16": 0.15, "int8": 0.3}
_PROCESSOR: Final = ("vendor_id", "model name", "stepping", "flags", "Features", "CPU part")
_LIBRARIES: Final = re.compile(r"/.*(?:onnxruntime|openvino|nvidia|libcu|tensorrt|nvinfer).*\.so.*")
_ADVICE: Final = (
    ". Try another device or release; --no-proof (proof=False) scores without this check"
)


@dataclass(frozen=True)
class Subject:
    """A model where it runs."""

    name: str  # in errors
    limits: Mapping[str, float]
    run: Run
    precision: str  # as the signature has it
    environment: str  # what runs the model: device and versions
    identity: str  # everything on which its answers depend
    model: str = ""  # hash of the model; "": unknown
    proof: Proof | None = None


@cache
def built_in_texts() -> tuple[str, ...]:
    """Return the eight texts: a word, sentences, one of them twice, a chunk, and a long text."""
    return tuple(json.loads(files("vcs_runtime").joinpath("data/proof.json").read_text("utf-8")))


def subject_on(bundle: Bundle, spec: Spec, devices: Sequence[Device], run: Run) -> Subject:
    """Return a model of a bundle on its devices.

    With several GPUs, which take turns, the runs of a proof reach each of the first nine.
    """
    device = devices[0]
    engine = engine_name(bundle, spec, device)
    here = [engine, *rounding_fields(device), *environment([engine])]
    for each in devices:
        with suppress(DeviceError):
            if each.is_gpu:
                gpu = nvidia.gpu(each.index)
                here.append(f"{gpu.name} ({gpu.architecture})")
    return Subject(
        f"bundle {bundle.root}: {spec.name}",
        VECTORS if isinstance(spec, EmbedderSpec) else PROBABILITIES,
        run,
        device.precision_of(spec.precision, spec.cuda),
        " ".join(here),
        "|".join([model_identity(bundle, spec, device, engine), *here, *_machine()]),
        bundle.model_hash(spec),
        spec.proof,
    )


def check(subject: Subject, *, again: bool = False) -> None:
    """Compare a model with its proof, once in each environment, or `again`; raises ProofError."""
    proof = subject.proof
    if proof is None or not proof.is_current:
        return
    folder = record_folder(_FOLDER)
    key = f"{__version__}|{subject.identity}|{proof.sha256}"
    name = hashlib.sha256(key.encode()).hexdigest()
    if not again and folder and os.path.exists(folder / name):
        return
    advice = ""
    if subject.model != proof.model:
        advice = (
            "; its files or settings were changed after the proof was made. If this was intended,"
            " make a new proof with `vcs-runtime export verify`"
        )
    _compare_recorded(subject, _answers(subject), proof, advice)
    if folder:
        record(folder, name)


def make(subject: Subject) -> Proof:
    """Return a model's proof; raises ProofError if texts alone and in a batch differ."""
    return _proof(subject, _answers(subject))


def check_served(subject: Subject) -> None:
    """Compare a server with what it answered first, which is remembered; raises ProofError."""
    answers = _answers(subject)
    folder = record_folder(_FOLDER)
    if folder is None:
        return
    path = folder / f"{hashlib.sha256(subject.identity.encode()).hexdigest()}.json"
    first = None
    with suppress(OSError, ValueError):  # the first time, or a damaged file
        first = msgspec.json.decode(path.read_bytes(), type=Proof)
    if first and first.is_current:
        advice = f"; if the change was intended, delete {path}"
        _compare_recorded(subject, answers, first, advice)
        return
    with suppress(OSError):  # then the next opening takes its answers as the first
        make_folder(folder, 0o700)
        write_whole(path, msgspec.json.encode(_proof(subject, answers, f" of {date.today()}")))


Answers = list[tuple[str, Array]]  # by text


def _answers(subject: Subject) -> Answers:
    """Run each text alone and all in one batch, and compare them."""
    alone: Answers = []
    for text in built_in_texts():
        try:
            [array] = subject.run([text])
        except TextError:  # such as a text beyond the window, which some models refuse
            if not alone and text == built_in_texts()[-1]:
                raise
            continue
        except BundleError as error:
            raise _wrong(subject, text, f"fails on {subject.environment}: {error}") from None
        alone.append((text, array))
    together = subject.run([text for text, _ in alone])
    how = f"alone and in a batch on {subject.environment}"
    _compare(subject, alone, together, subject.precision, how)
    return alone


def _proof(subject: Subject, answers: Answers, more: str = "") -> Proof:
    values = np.concatenate([array for _, array in answers]).astype("<f4").tobytes()
    return Proof(
        texts=PROOF_TEXTS,
        values=values,
        sha256=hashlib.sha256(values).hexdigest(),
        model=subject.model or hashlib.sha256(subject.identity.encode()).hexdigest(),
        precision=subject.precision,
        environment=subject.environment + more,
    )


def _compare_recorded(subject: Subject, answers: Answers, proof: Proof, advice: str) -> None:
    """Raise ProofError if answers differ from a proof, as they do if it has other sizes."""
    values = np.frombuffer(proof.values[: len(proof.values) // 4 * 4], "<f4")
    ends = np.cumsum([array.size for _, array in answers])
    how = (
        f"on {subject.environment} in {subject.precision}, and by its proof, of"
        f" {proof.environment} in {proof.precision}{advice}"
    )
    precision = f"{subject.precision}+{proof.precision}"
    _compare(subject, answers, np.split(values, ends[:-1]), precision, how)


def _compare(
    subject: Subject, answers: Answers, others: Sequence[Array], precision: str, how: str
) -> None:
    """Raise ProofError, which names the worst text, if the answers for a text differ too much."""
    worst, worst_text = 0.0, ""
    for (text, array), other in zip(answers, others, strict=True):
        distance = np.inf
        if array.size == other.size:
            distance = float(np.linalg.norm(array - other))
        if not distance <= worst:  # also NaN
            worst, worst_text = distance, text
    largest = max(subject.limits.values())
    limit = max(subject.limits.get(part, largest) for part in precision.split("+"))
    if not worst <= limit:
        differs = f"differs by {worst:.2g}, but at most {limit:g} is allowed: {how}"
        raise _wrong(subject, worst_text, differs)


def _wrong(subject: Subject, text: str, problem: str) -> ProofError:
    return ProofError(f"{subject.name}: the built-in text {text[:40]!r} {problem}{_ADVICE}")


def _machine() -> Iterator[str]:
    """Yield the processor, and the libraries of this process that run models.

    A library counts by its name, size and time, so that one that was replaced is not trusted.
    """
    with suppress(OSError):  # not Linux
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read(1 << 13).partition("\n\n")[0]  # the other cores are the same
        yield from (line for line in first.splitlines() if line.startswith(_PROCESSOR))
        maps = Path("/proc/self/maps").read_text("utf-8", "replace")
        for path in sorted(set(_LIBRARIES.findall(maps))):
            if os.path.exists(path):
                state = os.stat(path)
                yield f"{os.path.basename(path)}:{state.st_size}:{state.st_mtime_ns}"
