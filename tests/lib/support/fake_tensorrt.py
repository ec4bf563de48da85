"""Fakes of NVIDIA's packages `tensorrt_rtx_bindings` and `cuda.core`, for machines without a GPU.

The fake engine computes its graph with ONNX Runtime on the CPU, from the addresses and shapes that
it is given, and refuses what the documents of TensorRT for RTX 1.7.1 forbid. `make gpu-dry` builds
with the real package (`tests/gpu/test_tensorrt.py`).
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from support import stand_in

_WORKSPACE = 1000  # bytes that each run needs beside its inputs and outputs
_Mode = IntEnum("_Mode", "NONE INPUT OUTPUT")
_Severity = IntEnum("_Severity", "INTERNAL_ERROR ERROR WARNING INFO", start=0)
_KINDS = {"tensor(int64)": "INT64", "tensor(float)": "FLOAT", "tensor(float16)": "HALF"}
_TYPES = {"INT64": np.int64, "FLOAT": np.float32, "HALF": np.float16}


@dataclass
class Fake:
    """What tests set, and what they read.

    runs      profile and shape of `input_ids` of each run
    builds    profiles, capabilities and flags of each build
    loads     how often weights were loaded or unloaded
    limits    the largest sizes of the pools
    current   the current GPU of each thread
    taken     bytes of a GPU's memory that are taken for batches
    fails     what the builder says when it fails; "": it builds
    """

    machine: stand_in.Machine
    runs: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    builds: list[SimpleNamespace] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    taken: int = 0
    room: int = 1 << 40
    current: dict[int, int] = field(default_factory=dict)
    fails: str = ""
    kernels: bytes = b""
    """What the cache of kernels was opened with."""


def put_in(monkeypatch: pytest.MonkeyPatch, **shows: Any) -> Fake:
    """Put the fakes and the stand-in of a GPU, an L4, in the place of the real packages."""
    shows = {"architecture": (8, 9), "gpu": "NVIDIA L4", **shows}
    fake = Fake(stand_in.put_in(monkeypatch, **shows))
    monkeypatch.setitem(sys.modules, "tensorrt_rtx_bindings", _tensorrt(fake))
    core = _core(fake)
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    return fake


class Buffer:
    def __init__(self, handle: int, size: int, keep: Any, fake: Fake | None = None) -> None:
        self.handle, self.size, self._keep, self._fake = handle, size, keep, fake

    @classmethod
    def from_handle(cls, ptr: int, size: int, *, owner: Any = None) -> Buffer:
        return cls(ptr, size, owner)

    def copy_from(self, src: Buffer, *, stream: Any) -> None:
        assert self.size == src.size
        ctypes.memmove(self.handle, src.handle, self.size)

    def copy_to(self, dst: Buffer, *, stream: Any) -> None:
        dst.copy_from(self, stream=stream)

    def close(self, stream: Any) -> None:
        assert self._fake is not None
        ctypes.memset(self.handle, 255, self.size)  # a later read would be NaN
        self._fake.taken -= self.size


def _core(fake: Fake) -> ModuleType:
    class Device:
        def __init__(self, index: int) -> None:
            assert index < fake.machine.gpus
            self.index = index

        def set_current(self) -> None:
            fake.current[threading.get_ident()] = self.index

        def create_stream(self) -> Any:
            return SimpleNamespace(handle=7, sync=lambda: None)

    class DeviceMemoryResource:
        def __init__(self, device: Device, options: Any) -> None:
            self._most = options.max_size or fake.room
            fake.limits.append(options.max_size)

        def allocate(self, size: int, *, stream: Any) -> Buffer:
            if fake.taken + size > min(self._most, fake.room):
                raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: no memory is left")
            fake.taken += size
            memory = np.full(size + 256, 255, np.uint8)
            start = -(-memory.ctypes.data // 256) * 256
            return Buffer(start, size, memory, fake)

    module = ModuleType("cuda.core")
    module.__dict__.update(
        Device=Device,
        DeviceMemoryResource=DeviceMemoryResource,
        DeviceMemoryResourceOptions=SimpleNamespace,
        Buffer=Buffer,
    )
    return module


class Engine:
    def __init__(self, fake: Fake, plan: Any) -> None:
        head, _, graph = bytes(plan).partition(b"\n")
        self.profiles = json.loads(head)["profiles"]
        self.fake = fake
        self.weights_loaded = False
        self.session = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
        inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
        self.tensors = {item.name: item for item in (*inputs, *outputs)}
        self.inputs = [item.name for item in inputs]
        self.outputs = [item.name for item in outputs]
        self.num_io_tensors = len(self.tensors)
        self.used: set[int] = set()

    def get_tensor_name(self, number: int) -> str:
        return list(self.tensors)[number]

    def get_tensor_mode(self, name: str) -> _Mode:
        return _Mode["INPUT" if name in self.inputs else "OUTPUT"]

    def get_tensor_dtype(self, name: str) -> Any:
        return SimpleNamespace(name=_KINDS[self.tensors[name].type])

    def get_tensor_shape(self, name: str) -> list[int]:
        return [size if isinstance(size, int) else -1 for size in self.tensors[name].shape]

    def load_weights(self, plan: Any) -> bool:
        self.fake.loads.append("load")
        done = not self.weights_loaded
        self.weights_loaded = True
        return done

    def unload_weights(self) -> bool:
        self.fake.loads.append("unload")
        done = self.weights_loaded
        self.weights_loaded = False
        return done

    def create_runtime_config(self) -> Any:
        def deserialize(content: bytes) -> bool:
            self.fake.kernels = content
            return True

        config = SimpleNamespace(strategy=None, set_runtime_cache=lambda cache: True)
        config.create_runtime_cache = lambda: SimpleNamespace(
            deserialize=deserialize, serialize=lambda: b"kernels of all runs"
        )
        config.set_execution_context_allocation_strategy = lambda strategy: setattr(
            config, "strategy", strategy
        )
        return config

    def create_execution_context(self, config: Any) -> Context:
        assert config.strategy == "USER_MANAGED"
        self.fake.kinds.append(config.dynamic_shapes_kernel_specialization_strategy)
        return Context(self)


class Context:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.profile = -1
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.memory = 0, 0

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        assert profile not in self.engine.used
        self.engine.used.add(profile)
        self.profile = profile
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        least, most = self.engine.profiles[self.profile][name]
        fits = all(low <= size <= high for low, size, high in zip(least, shape, most, strict=True))
        self.shapes[name] = shape
        return fits and self.profile >= 0

    def get_tensor_shape(self, name: str) -> list[int]:
        rows, tokens = self.shapes["input_ids"]
        sizes = self.engine.tensors[name].shape
        return [rows, *(size if isinstance(size, int) else tokens for size in sizes[1:])]

    def update_device_memory_size_for_shapes(self) -> int:
        assert set(self.shapes) == set(self.engine.inputs)
        return _WORKSPACE

    def set_device_memory(self, memory: int, size: int) -> None:
        assert memory % 256 == 0
        assert size >= _WORKSPACE
        self.memory = memory, size

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self.addresses[name] = memory
        return memory % 256 == 0

    def execute_async_v3(self, stream: int) -> bool:
        engine = self.engine
        assert stream == 7
        assert set(self.addresses) == set(engine.tensors)
        if not engine.weights_loaded:
            return False
        ctypes.memset(*self._used())  # a kernel writes there at any time
        given = {name: self._array(name, self.shapes[name]) for name in engine.inputs}
        results = engine.session.run(engine.outputs, given)
        for name, result in zip(engine.outputs, results, strict=True):
            self._array(name, result.shape)[...] = result
        ctypes.memset(*self._used())
        engine.fake.runs.append((self.profile, self.shapes["input_ids"]))
        return True

    def _used(self) -> tuple[int, int, int]:
        address, size = self.memory
        return address, 255, size

    def _array(self, name: str, shape: tuple[int, ...]) -> Any:
        kind = np.dtype(_TYPES[self.engine.get_tensor_dtype(name).name])
        size = int(np.prod(shape)) * kind.itemsize
        memory = (ctypes.c_char * size).from_address(self.addresses[name])
        return np.frombuffer(memory, kind).reshape(shape)


def _tensorrt(fake: Fake) -> ModuleType:
    class Logger:
        INTERNAL_ERROR, ERROR = _Severity.INTERNAL_ERROR, _Severity.ERROR

    class Parser:
        def __init__(self, network: Any, log: Any) -> None:
            self.network, self.log, self.errors = network, log, []

        num_errors = property(lambda self: len(self.errors))

        def get_error(self, number: int) -> Any:
            return self.errors[number]

        def parse_from_file(self, path: str) -> bool:
            model = onnx.load(path)
            self.log.log(_Severity.INFO, f"parsing {path}")
            self.network.graph = model.SerializeToString()
            self.network.inputs = [item.name for item in model.graph.input]
            self.network.num_inputs = len(self.network.inputs)
            for node in model.graph.node:
                if node.domain:
                    error = SimpleNamespace(
                        node_operator=lambda node=node: node.op_type,
                        node_name=lambda node=node: node.name,
                        desc=lambda: "Plugin not found",
                    )
                    self.errors.append(error)
            return not self.errors

    class Builder:
        def __init__(self, log: Any) -> None:
            self.log = log

        def create_network(self, flags: int) -> Any:
            network = SimpleNamespace(flags=flags)
            network.get_input = lambda i: SimpleNamespace(name=network.inputs[i])
            return network

        def create_builder_config(self) -> Any:
            config = SimpleNamespace(profiles=[], capabilities={}, cleared=set())
            config.clear_flag = config.cleared.add
            config.set_compute_capability = lambda name, place: config.capabilities.update(
                {place: name}
            )
            config.add_optimization_profile = lambda profile: (
                config.profiles.append(profile.shapes) or len(config.profiles) - 1
            )
            return config

        def create_optimization_profile(self) -> Any:
            profile = SimpleNamespace(shapes={})
            profile.set_shape = lambda name, least, usual, most: profile.shapes.update(
                {name: (least, most)}
            )
            return profile

        def build_serialized_network(self, network: Any, config: Any) -> bytes | None:
            fake.builds.append(SimpleNamespace(network=network, config=config))
            if fake.fails:
                self.log.log(_Severity.INFO, "chatter")
                self.log.log(_Severity.ERROR, fake.fails)
                return None
            head = json.dumps({"profiles": config.profiles}).encode()
            return head + b"\n" + network.graph

    names = ("SM75", "SM80", "SM86", "SM89", "SM120", "SM121")
    module = ModuleType("tensorrt_rtx_bindings")
    module.__dict__.update(
        __version__="1.7.1.116",
        ILogger=Logger,
        Builder=Builder,
        OnnxParser=Parser,
        Runtime=lambda log: SimpleNamespace(
            deserialize_cuda_engine=lambda plan: Engine(fake, plan)
        ),
        ComputeCapability=SimpleNamespace(**{name: name for name in names}),
        NetworkDefinitionCreationFlag=SimpleNamespace(STRONGLY_TYPED=0),
        BuilderFlag=SimpleNamespace(TF32="TF32"),
        TensorIOMode=_Mode,
        ExecutionContextAllocationStrategy=SimpleNamespace(USER_MANAGED="USER_MANAGED"),
        DynamicShapesKernelSpecializationStrategy=SimpleNamespace(EAGER="EAGER", NONE="NONE"),
        nptype=lambda kind: _TYPES[kind.name],
    )
    return module


def files(home: Path) -> list[str]:
    """Return the names of the files in the folders of engines."""
    return sorted(path.name for path in (home / "engines").rglob("*") if path.is_file())
