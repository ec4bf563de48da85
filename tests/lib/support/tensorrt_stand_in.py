"""A stand-in for NVIDIA's Python package `tensorrt` 10.16: it refuses what the package refuses, and
builds nothing.

Names, arguments and refusals are those of `tensorrt-cu13-bindings` 10.16.1. `make gpu-dry` runs the
same code with that package itself. An "engine" is the path of a copy of the graph, which `stand_in`
runs in its place.
"""

from __future__ import annotations

import enum
import shutil
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import pytest


@dataclass
class Built:
    """What the package was asked for, and what it shall answer.

    folder       where graphs that were parsed are kept, with their weights
    networks     flags, graph, shapes and builder flags of each network that was to be built
    refuses      words with which the parser refuses a graph; "" takes it
    fails        words with which the builder fails; "" builds
    """

    folder: Path
    version: str = "10.16.1.11"
    networks: list[dict[str, Any]] = field(default_factory=list)
    refuses: str = ""
    fails: str = ""

    def keep(self, graph: Path) -> Path:
        return Path(shutil.copytree(graph, self.folder / str(len(list(self.folder.iterdir())))))


class BuilderFlag(enum.Enum):
    FP16 = 0
    TF32 = 6


class NetworkDefinitionCreationFlag(enum.Enum):
    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1

    def __int__(self) -> int:
        return int(self.value)


class Severity(enum.Enum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING = Severity
    ready = False

    def __init__(self) -> None:
        self.ready = True


def _take(value: Any, kind: type, name: str) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"incompatible function arguments: {name} is {type(value).__name__}")


class _Memory(bytes):
    """IHostMemory: nothing but its buffer."""


class _Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, tuple[tuple[int, ...], ...]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        _take(input, str, "input")
        if not all(0 <= a <= b <= c for a, b, c in zip(min, opt, max, strict=True)):
            raise ValueError(f"Shape provided for min, opt, max is inconsistent for {input}")
        self.shapes[input] = (tuple(min), tuple(opt), tuple(max))


class _Config:
    def __init__(self) -> None:
        self.flags = {BuilderFlag.TF32}
        self.profiles: list[_Profile] = []

    def clear_flag(self, flag: BuilderFlag) -> None:
        _take(flag, BuilderFlag, "flag")
        self.flags.discard(flag)

    def add_optimization_profile(self, profile: _Profile) -> int:
        _take(profile, _Profile, "profile")
        if not profile.shapes:
            return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1


class _Network:
    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.model = ""
        self.inputs: set[str] = set()


class _Error:
    def __init__(self, words: str) -> None:
        self._words = words

    def desc(self) -> str:
        return self._words

    def node_name(self) -> str:
        return "node_7"

    def node_operator(self) -> str:
        return "Attention"


class _Builder:
    def __init__(self, built: Built, logger: ILogger) -> None:
        _take(logger, ILogger, "logger")
        if not logger.ready:
            raise TypeError("tensorrt.ILogger.__init__() must be called when overriding __init__")
        self.logger: Any = logger
        self._built = built

    def create_network(self, flags: int = 0) -> _Network:
        _take(flags, int, "flags")
        return _Network(flags)

    def create_builder_config(self) -> _Config:
        return _Config()

    def create_optimization_profile(self) -> _Profile:
        return _Profile()

    def build_serialized_network(self, network: _Network, config: _Config) -> _Memory | None:
        _take(network, _Network, "network")
        _take(config, _Config, "config")
        shapes = [profile.shapes for profile in config.profiles]
        if not network.model or not shapes or set(shapes[0]) != network.inputs:
            self.logger.log(
                Severity.ERROR, "Network has dynamic inputs, but no profile has been defined"
            )
            return None
        about = {
            "flags": network.flags,
            "graph": onnx.load(network.model, load_external_data=False),
        }
        self._built.networks.append({**about, "shapes": shapes, "builder_flags": config.flags})
        if self._built.fails:
            self.logger.log(Severity.WARNING, "chatter")
            self.logger.log(Severity.ERROR, self._built.fails)
            return None
        return _Memory(network.model.encode())


class _OnnxParser:
    def __init__(self, built: Built, network: _Network, logger: ILogger) -> None:
        _take(network, _Network, "network")
        _take(logger, ILogger, "logger")
        self._built = built
        self._network = network
        self.num_errors = 0

    def parse_from_file(self, model: str) -> bool:
        _take(model, str, "model")
        if self._built.refuses:
            self.num_errors = 1
            return False
        graph = onnx.load(model, load_external_data=False).graph
        for tensor in graph.initializer:  # TensorRT reads the weights beside the graph
            place = {item.key: item.value for item in tensor.external_data}
            assert not place or (Path(model).parent / place["location"]).is_file()
        kept = self._built.keep(Path(model).parent)
        self._network.model = str(kept / Path(model).name)
        self._network.inputs = {item.name for item in graph.input}
        return True

    def get_error(self, index: int) -> _Error:
        return _Error(self._built.refuses)


def put_in(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Built:
    """Put the stand-in in the place of `tensorrt` for one test; parsed graphs go to a folder."""
    built = Built(folder)
    folder.mkdir()

    module = ModuleType("tensorrt")
    module.__dict__.update(
        __version__=built.version,
        Builder=partial(_Builder, built),
        OnnxParser=partial(_OnnxParser, built),
        ILogger=ILogger,
        BuilderFlag=BuilderFlag,
        NetworkDefinitionCreationFlag=NetworkDefinitionCreationFlag,
    )
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    return built
