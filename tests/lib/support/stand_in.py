"""A stand-in for a GPU at the border of the session: ONNX Runtime says that it has CUDA, and
computes on the CPU; NVIDIA's libraries answer what a test has them answer. Above that border all is
real. What the real provider refuses is refused (`support.provider_rules`)."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as real
import pytest

from support import cuda_kernels, provider_rules

PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]
_ANY = np.zeros(0)
LIBRARIES = ("cuda", "cudart", "cublas", "cublasLt", "curand")


@dataclass
class Machine:
    """What the stand-in shows, and what was done with it.

    sessions  the model, the options and the providers of each session that was opened
    runs      the shapes of `input_ids` of each run, with its run options
    before    called with the inputs of a run before it; may raise what ONNX Runtime would
    """

    libraries: set[str] = field(default_factory=lambda: set(LIBRARIES))
    architecture: tuple[int, int] = (9, 0)
    gpu: str = "NVIDIA H200"
    gpus: int = 1
    free: int = 100 << 30
    available: list[str] = field(default_factory=lambda: list(PROVIDERS))
    starts: bool = True
    forked: bool = False
    sessions: list[SimpleNamespace] = field(default_factory=list)
    runs: list[tuple[tuple[int, ...], dict[str, str]]] = field(default_factory=list)
    before: Callable[[dict[str, Any]], None] = lambda inputs: None
    built: Callable[[Path, dict[str, str]], None] = lambda model, options: None
    """Called with the model and the first provider's options when a session is opened."""
    driver: int = 13000

    @property
    def open_sessions(self) -> int:
        return sum(session.alive() is not None for session in self.sessions)


class _RunOptions:
    def __init__(self) -> None:
        self.real = real.RunOptions()
        self.entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value

    @property
    def log_severity_level(self) -> int:
        return int(self.real.log_severity_level)

    @log_severity_level.setter
    def log_severity_level(self, level: int) -> None:
        self.real.log_severity_level = level


class _Binding:
    def __init__(self, session: Any, gpus: int) -> None:
        self._session = session
        self._gpus = gpus
        self.real = session.io_binding()
        self.inputs: dict[str, Any] = {}

    def bind_ortvalue_input(self, name: str, value: Any) -> None:
        self.inputs[name] = value
        self.real.bind_ortvalue_input(name, value)

    def bind_output(self, name: str, kind: str, index: int) -> None:
        provider_rules.check_value(_ANY, kind, index, self._gpus)
        self.real.bind_output(name, "cpu", 0)

    def copy_outputs_to_cpu(self) -> Any:
        return self.real.copy_outputs_to_cpu()


def put_in(monkeypatch: pytest.MonkeyPatch, **shows: Any) -> Machine:
    """Put the stand-in in the place of ONNX Runtime and of NVIDIA's libraries for one test."""
    machine = Machine(**shows)
    monkeypatch.setitem(sys.modules, "onnxruntime", _onnxruntime(machine))
    _answer_for_nvidia(monkeypatch, machine)
    return machine


def _onnxruntime(machine: Machine) -> ModuleType:
    class OrtValue:
        @staticmethod
        def ortvalue_from_numpy(array: Any, kind: str, index: int) -> Any:
            provider_rules.check_value(array, kind, index, machine.gpus)
            return real.OrtValue.ortvalue_from_numpy(array)

    module = ModuleType("onnxruntime")
    for (
        name
    ) in "SessionOptions GraphOptimizationLevel ExecutionOrder set_default_logger_severity".split():
        setattr(module, name, getattr(real, name))
    module.__dict__.update(
        InferenceSession=_session_class(machine),
        RunOptions=_RunOptions,
        OrtValue=OrtValue,
        __version__="1.31.1",
        cuda_version="13.0",
        get_available_providers=lambda: machine.available,
        set_default_logger_severity=lambda level: None,
        preload_dlls=lambda: print("Failed to load libnonsense.so"),
    )
    return module


def _taken(machine: Machine, name: str, options: dict[str, str]) -> dict[str, str]:
    """What a provider makes of its options, if it takes them."""
    if name not in machine.available:
        raise RuntimeError(f"Unknown Provider Type: {name}")
    if name == PROVIDERS[1]:
        return options
    return provider_rules.cuda_options(options, machine.gpus)


def _session_class(machine: Machine) -> type[Any]:
    class Session:
        def __init__(
            self,
            model: str | bytes,
            options: Any,
            providers: list[tuple[str, dict[str, str]]],
            enable_fallback: bool,
        ) -> None:
            assert not enable_fallback
            if machine.forked and providers[0][0] != PROVIDERS[1]:
                raise RuntimeError("CUDA failure 3: initialization error ; GPU=-1")
            provider_rules.check_session_entries(options)
            taken = {name: _taken(machine, name, dict(given)) for name, given in providers}
            self._providers = taken if machine.starts else {"CPUExecutionProvider": {}}
            self._options = options
            path = Path() if isinstance(model, bytes) else Path(model)
            entry = SimpleNamespace(model=path, options=options, providers=dict(providers))
            entry.alive = weakref.ref(self)
            machine.sessions.append(entry)
            machine.built(path, dict(providers[0][1]))
            self._graph, source = _sources(model, options)
            self._real = real.InferenceSession(source, options, providers=["CPUExecutionProvider"])

        def get_providers(self) -> list[str]:
            return list(self._providers)

        def get_provider_options(self) -> dict[str, dict[str, str]]:
            return self._providers

        def get_provider_graph_assignment_info(self) -> Any:
            return provider_rules.assignment(self._graph, self._options, self.get_providers()[0])

        def get_inputs(self) -> Any:
            return self._real.get_inputs()

        def get_outputs(self) -> Any:
            return self._real.get_outputs()

        def run(self, outputs: list[str], inputs: dict[str, Any], options: _RunOptions) -> Any:
            assert self.get_providers() == ["CPUExecutionProvider"]
            return self._real.run(outputs, inputs, options.real)

        def io_binding(self) -> _Binding:
            return _Binding(self._real, machine.gpus)

        def run_with_iobinding(self, binding: _Binding, options: _RunOptions) -> None:
            inputs = {name: value.numpy() for name, value in binding.inputs.items()}
            provider_rules.check_run_entries(
                options.entries, int(self._providers[PROVIDERS[0]]["device_id"])
            )
            machine.runs.append((inputs["input_ids"].shape, options.entries))
            machine.before(inputs)
            self._real.run_with_iobinding(binding.real, options.real)

    return Session


def _sources(model: str | bytes, options: Any) -> tuple[bytes, str | bytes]:
    """Return the bytes of a graph, and what the CPU opens in its place."""
    if isinstance(model, bytes):
        return model, cuda_kernels.spelt(model)
    path = Path(model)
    graph = path.read_bytes()
    if not path.name.endswith(".cuda.onnx"):
        return graph, str(path)
    options.add_session_config_entry(cuda_kernels.FOLDER, str(path.parent))
    return graph, cuda_kernels.spelt(graph)


def _answer_for_nvidia(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    load = ctypes.CDLL

    def load_library(name: str, *arguments: Any, **options: Any) -> Any:
        if not str(name).startswith(("libcu", "libnv")):
            return load(name, *arguments, **options)
        if (library := _library(machine, name)) is None:
            raise OSError(f"{name}: cannot open shared object file")
        return library

    monkeypatch.setattr(ctypes, "CDLL", load_library)


def _library(machine: Machine, name: str) -> Any:
    stem = name.partition(".")[0].removeprefix("lib")
    if stem not in machine.libraries:
        return None

    def give(reference: Any, value: int) -> int:
        reference._obj.value = value
        return 0

    def memory(free: Any, total: Any) -> int:
        free._obj.value, total._obj.value = machine.free, 141 << 30
        return 0

    def named(buffer: Any, size: int, device: Any) -> None:
        buffer.value = machine.gpu.encode()

    functions = {
        "cuda": {
            "cuInit": lambda flags: 3 if machine.forked else 0,
            "cuDriverGetVersion": lambda out: give(out, machine.driver),
            "cuDeviceGet": lambda out, index: give(out, index) if index < machine.gpus else 101,
            "cuDeviceGetCount": lambda out: give(out, machine.gpus),
            "cuDeviceGetName": named,
            "cuDeviceGetAttribute": lambda out, which, device: give(
                out, machine.architecture[which - 75]
            ),
            "cuDeviceTotalMem_v2": lambda out, device: give(out, 141 << 30),
        },
        "cudart": {
            "cudaRuntimeGetVersion": lambda out: give(out, 13000),
            "cudaSetDevice": lambda index: 0,
            "cudaMemGetInfo": memory,
        },
    }
    return SimpleNamespace(**functions.get(stem, {}))
