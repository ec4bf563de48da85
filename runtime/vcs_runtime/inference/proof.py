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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

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
_FOLDER: Final = "proofs"
_SHOWN: Final = 40  # characters of a text in an error


class Kind(NamedTuple):
    """What a model gives for a text, and how far two right answers may lie apart."""

    word: str
    order: float  # of the norm that measures a distance
    limits: Mapping[str, float]  # by precision; another precision has the largest


VECTORS: Final = Kind("vectors", 2, {"fp32": 1e-4, "fp16": 1.5e-2, "bf16": 0.1, "int8": 0.1})
PROBABILITIES: Final = Kind(
    "probabilities", np.inf, {"fp32": 2e-3, "fp16": 2e-2, "bf16": 5e-2, "int8": 0.1}
)


@dataclass(frozen=True)
class Subject:
    """A model where it runs."""

    name: str  # in errors
    kind: Kind
    run: Callable[[Sequence[str]], Sequence[Array]]  # one array for each text
    precision: str  # as the signature has it
    environment: str  # what runs the model: device and versions
    identity: str  # everything else on which its arrays depend
    model: str = ""  # hash of the model; "": unknown
    proof: Proof | None = None


class _Answers(NamedTuple):
    texts: list[str]  # those that the model takes
    arrays: list[Array]


@cache
def built_in_texts() -> tuple[str, ...]:
    """Return the eight texts: a word, sentences, one of them twice, a chunk, and a long text."""
    return tuple(json.loads(files("vcs_runtime").joinpath("data/proof.json").read_text("utf-8")))


def subject_on(
    bundle: Bundle,
    spec: EmbedderSpec | LearnedSegmenterSpec,
    devices: Sequence[Device],
    run: Callable[[Sequence[str]], Sequence[Array]],
) -> Subject:
    """Return a model of a bundle on its devices. `run` returns one array for each text.

    With several GPUs, which take turns, the runs of a proof reach each of the first nine.
    """
    device = devices[0]
    gpus = []
    for each in devices:
        with suppress(DeviceError):
            if each.is_gpu:
                gpus.append(nvidia.gpu(each.index))
    engine = engine_name(bundle, spec, device)
    here = [engine, *rounding_fields(device), *environment([engine])]
    here += [f"{gpu.name} ({gpu.architecture})" for gpu in gpus]
    return Subject(
        f"bundle {bundle.root}: {spec.name}",
        VECTORS if isinstance(spec, EmbedderSpec) else PROBABILITIES,
        run,
        device.precision_of(spec.precision, spec.cuda),
        " ".join(here),
        f"{model_identity(bundle, spec, device, engine)}|{len(gpus)}|{_machine(bool(gpus))}",
        bundle.model_hash(spec),
        spec.proof,
    )


def check(subject: Subject, *, again: bool = False) -> None:
    """Compare a model with its proof, once in each environment, or `again`; raises ProofError."""
    proof = subject.proof
    if proof is None or not proof.is_current:
        return
    folder = record_folder(_FOLDER)
    key = "|".join((__version__, subject.environment, subject.identity, proof.sha256))
    name = hashlib.sha256(key.encode()).hexdigest()
    if not again and folder and os.path.exists(folder / name):
        return
    _compare_recorded(subject, _answers(subject), proof)
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
        advice = f"; if it was changed on purpose, delete {path}"
        _compare_recorded(subject, answers, first, advice)
        return
    with suppress(OSError):  # then the next opening takes its answers as the first
        make_folder(folder, 0o700)
        write_whole(path, msgspec.json.encode(_proof(subject, answers, f" of {date.today()}")))


def _answers(subject: Subject) -> _Answers:
    """Run each text alone and all in one batch, and compare them."""
    alone = _Answers([], [])
    for text in built_in_texts():
        try:
            [array] = subject.run([text])
        except TextError:  # such as a text beyond the window, which some models refuse
            continue
        except BundleError as error:
            raise ProofError(
                f"{subject.name}: the built-in text {_shown(text)} fails on"
                f" {subject.environment}: {error}{_ADVICE}"
            ) from None
        alone.texts.append(text)
        alone.arrays.append(array)
    together = subject.run(alone.texts)
    limit = _limit(subject.kind, subject.precision)
    how = f"alone and in a batch, on {subject.environment}"
    _compare(subject, alone, together, limit, how)
    return alone


_ADVICE: Final = (
    ". Another device or release may compute this model rightly; --no-proof (proof=False) scores"
    " all the same"
)


def _proof(subject: Subject, answers: _Answers, more: str = "") -> Proof:
    flat = [array.ravel() for array in answers.arrays]
    values = np.concatenate(flat).astype("<f4").tobytes()
    return Proof(
        texts=PROOF_TEXTS,
        values=values,
        sha256=hashlib.sha256(values).hexdigest(),
        model=subject.model or hashlib.sha256(subject.identity.encode()).hexdigest(),
        precision=subject.precision,
        environment=subject.environment + more,
    )


def _compare_recorded(subject: Subject, answers: _Answers, proof: Proof, advice: str = "") -> None:
    """Raise ProofError if answers differ from a proof."""
    values = np.frombuffer(proof.values[: len(proof.values) // 4 * 4], "<f4")
    sizes = [array.size for array in answers.arrays]
    if subject.model not in ("", proof.model):
        advice = (
            "; its files or settings were changed after the proof was made: if that is right,"
            " `vcs-runtime export verify` makes another"
        )
    if values.size != sum(sizes):
        raise ProofError(
            f"{subject.name}: it gives {sum(sizes)} numbers for the built-in texts on"
            f" {subject.environment}, and its proof, by {proof.environment}, has"
            f" {values.size}{advice}{_ADVICE}"
        )
    recorded = np.split(values, np.cumsum(sizes)[:-1])
    limit = max(_limit(subject.kind, each) for each in (subject.precision, proof.precision))
    how = (
        f"on {subject.environment} in {subject.precision}, and in its proof, by"
        f" {proof.environment} in {proof.precision}{advice}"
    )
    _compare(subject, answers, recorded, limit, how)


def _compare(
    subject: Subject, answers: _Answers, others: Sequence[Array], limit: float, how: str
) -> None:
    """Raise ProofError, which names the worst text, if the arrays of a text differ too much."""
    worst, text = 0.0, ""
    for name, array, other in zip(answers.texts, answers.arrays, others, strict=True):
        distance = np.inf
        if array.size == other.size:
            with np.errstate(invalid="ignore"):
                distance = float(np.linalg.norm(array.ravel() - other.ravel(), subject.kind.order))
        if not distance <= worst:  # also NaN
            worst, text = distance, name
    if not worst <= limit:
        raise ProofError(
            f"{subject.name}: {subject.kind.word} of the built-in text {_shown(text)} differ by"
            f" {worst:.2g}, and at most by {limit:g} where all is right: {how}{_ADVICE}"
        )


def _limit(kind: Kind, precision: str) -> float:
    """Return the limit of a precision such as "fp16", or "int8+bf16"."""
    largest = max(kind.limits.values())
    return max(kind.limits.get(part, largest) for part in precision.split("+"))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _machine(on_gpu: bool) -> str:
    """Return the processor, unless a GPU computes, and the libraries that run models here.

    A library counts by its name, size and time, so that one that was replaced is not trusted.
    """
    facts = [] if on_gpu else [_processor()]
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:  # not Linux
        return "|".join(facts)
    paths = {line[line.find("/") :] for line in lines if ".so" in line and "/" in line}
    for path in sorted(paths):
        if any(name in path.lower() for name in _RUNTIMES) and os.path.exists(path):
            state = os.stat(path)
            facts.append(f"{os.path.basename(path)}:{state.st_size}:{state.st_mtime_ns}")
    return "|".join(facts)


_RUNTIMES: Final = ("onnxruntime", "openvino", "nvidia", "libcu", "tensorrt", "libnvinfer")


def _processor() -> str:
    """Return the name and the instructions of this processor."""
    facts = []
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():  # the other cores are the same
                    break
                name = line.partition(":")[0].strip()
                if name in ("vendor_id", "model name", "stepping", "flags", "Features", "CPU part"):
                    facts.append(line.strip())
    except OSError:
        pass
    return "|".join(facts)
