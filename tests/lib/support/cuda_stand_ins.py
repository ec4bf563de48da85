"""ONNX Runtime's real CUDA provider without a GPU: stand-ins of NVIDIA's libraries, and what they
were asked.

The provider of onnxruntime-gpu starts over libraries that are compiled here (`cuda_stand_ins.c`).
They lend memory, copy it, write down every call that matters, and compute nothing: outputs are
zeros. So the provider takes or refuses options, places every node, chooses its kernels, and asks
for memory as it would on a GPU of the given compute capability. Needed are onnxruntime-gpu (without
NVIDIA's packages) and a C compiler: `make gpu-dry` sets both up.

A test compiles the libraries once, and starts a process with them for each thing that it wants to
know:

    from support.cuda_stand_ins import DryGpu, mark, watch_sessions

    def embed(bundle: str) -> int:               # a top-level function of any file; arguments and result are pickled
        sessions = watch_sessions()              # before a session is opened: records which provider has which node
        with Embedder.open(bundle, "cuda:0") as embedder:
            mark("one text")                     # begins a section of the log
            embedder.embed(["A text."])
        return len(sessions[0].nodes("CPU"))

    def test_embed(dry_gpu: DryGpu) -> None:     # the fixture of tests/gpu: `DryGpu.compile(folder)`
        run = dry_gpu.call(embed, bundle, memory=20e9)      # also: capability="8.9", driver=12040, gpus=2, vectors=512, lacking=["libcudnn.so.9"]
        log = run.log["one text"]                # a section; without a name, everything
        log.kernels, log.products, log.copies    # typed records, in order
        log.peak, run.value, run.stderr

`DryGpu.command([...])` starts `python -m vcs_runtime ...` in the same way, and
`DryGpu.environment()` is for a process of one's own.
"""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from support.processes import run_python

SOURCE = Path(__file__).with_suffix(".c")
# Libraries by the names that the provider loads, and patterns of their functions.
LIBRARIES = {
    "libcudart.so.13": r"_*cuda(?!nn)\w+",
    "libcublas.so.13": r"cublas(?!Lt)\w+",
    "libcublasLt.so.13": r"cublasLt\w+",
    "libcurand.so.10": r"curand\w+",
    "libcudnn.so.9": r"cudnn[A-Z]\w+",
    "libcuda.so.1": r"cu[A-Z]\w+",
}
TYPES = {0: "fp32", 2: "fp16", 3: "int8", 10: "int32", 14: "bf16"}
COMPUTE = {64: "fp16", 68: "fp32", 70: "int32", 74: "fp16 in fp32", 75: "bf16 in fp32", 77: "tf32"}
_PLACEMENT = "session.record_ep_graph_assignment_info"
_COPIES = {1: "to the GPU", 2: "from the GPU", 3: "within the GPU"}
Size = tuple[int, int, int]


@dataclass(frozen=True)
class Kernel:
    """A kernel launch.

    name    the function's own name, without namespaces and template arguments: "flash_fwd_kernel"
    full    the demangled name with all of them;  shared  bytes of shared memory
    """

    name: str
    full: str
    grid: Size
    block: Size
    shared: int


@dataclass(frozen=True)
class Product:
    """A matrix product of cuBLAS or cuBLASLt, in its order of columns first: (m, k) times (k, n),
    `batch` times.

    types  of A, B and C, such as "fp16";  compute  the type in which it sums
    """

    function: str
    m: int
    n: int
    k: int
    batch: int
    types: tuple[str, str, str]
    compute: str


@dataclass(frozen=True)
class Copy:
    """A copy of memory: "to the GPU", "from the GPU" or "within the GPU"."""

    kind: str
    bytes: int
    asynchronous: bool


@dataclass(frozen=True)
class Memory:
    """GPU memory: "malloc", "free" or "refused", and how much is taken then."""

    what: str
    bytes: int
    level: int
    gpu: int


@dataclass(frozen=True)
class Wait:
    """The processor waits for a "stream", a "device" or an "event"."""

    on: str


@dataclass(frozen=True)
class Other:
    """Other events: pinned memory, calls of cuDNN, set memory, the start of a CUDA graph."""

    what: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """The beginning of a section (`mark`)."""

    text: str


Event = Kernel | Product | Copy | Memory | Wait | Other | Mark


@dataclass(frozen=True)
class Log:
    """What the libraries were asked, in order; `log[text]` is the section after a mark."""

    events: list[Event]
    level: int = 0
    """Bytes of the GPUs' memory that were taken at the beginning."""

    def __getitem__(self, text: str) -> Log:
        start = next(i for i, event in enumerate(self.events) if event == Mark(text))
        rest = self.events[start + 1 :]
        stop = next((i for i, event in enumerate(rest) if isinstance(event, Mark)), len(rest))
        return Log(rest[:stop], Log(self.events[:start], self.level).final)

    def _only(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @cached_property
    def kernels(self) -> list[Kernel]:
        return self._only(Kernel)

    @cached_property
    def products(self) -> list[Product]:
        return self._only(Product)

    @cached_property
    def copies(self) -> list[Copy]:
        return self._only(Copy)

    @cached_property
    def memory(self) -> list[Memory]:
        return self._only(Memory)

    @property
    def calls(self) -> list[str]:
        """Functions of cuDNN that were called, and the making of cuBLASLt's handles."""
        return [event.fields[0] for event in self._only(Other) if event.what == "call"]

    @property
    def launches(self) -> list[Kernel | Product]:
        """What the GPU would compute, in order: equal launches compute in the same way."""
        return [event for event in self.events if isinstance(event, Kernel | Product)]

    @property
    def refused(self) -> list[Memory]:
        return [event for event in self.memory if event.what == "refused"]

    @property
    def peak(self) -> int:
        """Most bytes that were taken at a time."""
        return max((event.level for event in self.memory), default=self.level)

    @property
    def final(self) -> int:
        """Bytes that are taken at the end."""
        return self.memory[-1].level if self.memory else self.level


@dataclass(frozen=True)
class Run:
    """A finished process: the result of its function, the libraries' log, and what it printed."""

    value: Any
    log: Log
    stdout: str
    stderr: str
    returncode: int = 0


@dataclass(frozen=True)
class DryGpu:
    """Compiled stand-ins in a folder; see the module."""

    folder: Path

    @classmethod
    def compile(cls, folder: Path) -> DryGpu:
        """Compile the stand-ins into `folder`, with every function that the CUDA provider names."""
        named = _names(provider_library())
        for library, pattern in LIBRARIES.items():
            rest = folder / f"{library}.rest.c"
            rest.write_text(
                _rest(library, sorted(name for name in named if re.fullmatch(pattern, name)))
            )
            versions = folder / f"{library}.map"
            # The provider asks for names of this version.
            versions.write_text(f"{library} {{ global: *; }};")
            own = "LIBRARY_" + library.partition(".")[0].removeprefix("lib").upper()
            command = [
                *"cc -std=gnu11 -O1 -shared -fPIC -Wall -Wno-unused".split(),
                *f"-Wno-builtin-declaration-mismatch -D{own} -Wl,-soname,{library}".split(),
                *f"-Wl,--version-script={versions} -o {folder}/{library}".split(),
                SOURCE,
                rest,
                "-lm",
            ]
            subprocess.run(command, check=True)
        return cls(folder)

    def environment(
        self,
        log: Path,
        *,
        capability: str = "9.0",
        driver: int = 13000,
        memory: float = 141e9,
        gpus: int = 1,
        vectors: int = 0,
        lacking: Iterable[str] = (),
    ) -> dict[str, str]:
        """Return the environment of a process that finds the stand-ins, except those that it shall
        lack.

        With `vectors`, copies from a GPU bring random vectors of that length, float32 of unit
        length, not zeros.
        """
        folder = self.folder
        if lacking := sorted(lacking):
            folder = self.folder / "-".join(["without", *lacking])
            folder.mkdir(exist_ok=True)
            for library in LIBRARIES.keys() - set(lacking):
                if not (folder / library).exists():
                    (folder / library).symlink_to(self.folder / library)
        support = str(Path(__file__).parents[1])
        path = os.pathsep.join(filter(None, [support, os.environ.get("PYTHONPATH")]))
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "PYTHONPATH": path,
            "STAND_IN_LOG": str(log),
            "STAND_IN_CAPABILITY": capability,
            "STAND_IN_DRIVER": str(driver),
            "STAND_IN_MEMORY": str(int(memory)),
            "STAND_IN_GPUS": str(gpus),
            "STAND_IN_VECTORS": str(vectors),
        }

    def call(self, function: Callable[..., Any], *arguments: Any, **machine: Any) -> Run:
        """Call a top-level function with the stand-ins; `machine` as for `environment`."""
        source = inspect.getsourcefile(function)
        assert source is not None
        with tempfile.NamedTemporaryFile() as file:
            pickle.dump((os.path.abspath(source), function.__qualname__, arguments), file)
            file.flush()
            done = self._start([str(Path(__file__)), file.name], machine)
            if done.returncode:
                raise AssertionError(
                    f"{function.__qualname__} failed:\n{done.stdout}\n{done.stderr}"
                )
            with open(file.name, "rb") as answer:
                return replace(done, value=pickle.load(answer))

    def command(self, arguments: Sequence[str], **machine: Any) -> Run:
        """Run the command `vcs-runtime` with `arguments` in a process with the stand-ins."""
        code = (
            "from support.cuda_stand_ins import _any_length; from vcs_runtime.cli import main;"
            " _any_length(); main()"
        )
        return self._start(["-c", code, *arguments], machine)

    def _start(self, arguments: list[str], machine: dict[str, Any]) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            log.touch()
            done = run_python(*arguments, env=self.environment(log, **machine))
            return Run(None, read(log), done.stdout, done.stderr, done.returncode)


def provider_library() -> Path:
    """Return the file of the installed CUDA provider, or raise FileNotFoundError."""
    package = importlib.util.find_spec("onnxruntime")
    if package is not None and package.origin is not None:
        library = Path(package.origin).parent / "capi/libonnxruntime_providers_cuda.so"
        if library.is_file():
            return library
    raise FileNotFoundError(
        "ONNX Runtime has no CUDA provider here: install onnxruntime-gpu in an environment apart"
    )


def _names(provider: Path) -> set[str]:
    """Return every string of a library that may be the name of a function of CUDA."""
    names = {
        name.decode() for name in re.findall(rb"\0(_*cu[A-Za-z0-9_]+)(?=\0)", provider.read_bytes())
    }
    # A name that ends another is not stored again.
    return names | {name.lstrip("_") for name in names}


def _rest(library: str, names: list[str]) -> str:
    """Return C: functions that answer 0 unless `cuda_stand_ins.c` has them."""
    note = 'stand_in_called("{}"); ' if library.startswith("libcudnn.") else ""
    lines = [
        f"__attribute__((weak)) long {name}() {{ {note.format(name)}return 0; }}" for name in names
    ]
    return "\n".join(["void stand_in_called(const char *name);", *lines, ""])


def read(log: Path) -> Log:
    """Read the file that the libraries have written."""
    return Log([_event(*line.split("\t")) for line in log.read_text().splitlines()])


def _event(what: str, *fields: str) -> Event:
    if what == "kernel":
        full = _demangled(fields[0])
        return Kernel(_own_name(full), full, _size(fields[1]), _size(fields[2]), int(fields[3]))
    if what == "product":
        m, n, k, batch = map(int, fields[1].split())
        a, b, c = (TYPES.get(int(number), number) for number in fields[2].split())
        return Product(fields[0], m, n, k, batch, (a, b, c), COMPUTE.get(int(fields[3]), fields[3]))
    if what == "copy":
        return Copy(_COPIES.get(int(fields[0]), fields[0]), int(fields[1]), fields[2] == "1")
    if what in ("malloc", "free", "refused"):
        return Memory(what, int(fields[0]), int(fields[1]), int(fields[2]))
    if what == "wait":
        return Wait(fields[0])
    return Mark(fields[0]) if what == "mark" else Other(what, fields)


def _size(text: str) -> Size:
    x, y, z = map(int, text.split())
    return x, y, z


@cache
def _demangled(name: str) -> str:
    """Demangle a name of C++ with the library that ONNX Runtime itself needs."""
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    address = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value:
        return name
    text = ctypes.string_at(address).decode()
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return text


def _own_name(full: str) -> str:
    """Return a function's name without its type, namespaces, templates and parameters."""
    text = full.replace("(anonymous namespace)", "").replace("operator()", "call")
    depth, plain = 0, ""
    for letter in text:
        depth += letter in "<("
        if not depth:
            plain += letter
        depth -= letter in ">)"
    return plain.split("::")[-1].split(" ")[-1] or full


# What a process with the stand-ins calls.


def mark(text: str) -> None:
    """Begin a section of the log."""
    with open(os.environ["STAND_IN_LOG"], "a") as log:
        log.write(f"mark\t{text}\n")


@dataclass
class WatchedSession:
    """An ONNX Runtime session: which provider has which node, and the input shapes of each run."""

    model: str
    placement: list[tuple[str, str, str]] = field(default_factory=list)
    """Provider ("CUDA", "CPU"), operator and name of each node."""
    runs: list[dict[str, tuple[int, ...]]] = field(default_factory=list)

    def nodes(self, provider: str) -> list[str]:
        """Return the operators of the nodes that a provider has."""
        return [operator for where, operator, _ in self.placement if where == provider]


def watch_sessions() -> list[WatchedSession]:
    """Record node placement and inputs of the runs of each session that is opened from now on."""
    import onnxruntime as ort

    watched: list[WatchedSession] = []

    class Session(ort.InferenceSession):
        def __init__(self, model: Any, options: Any, providers: Any, **named: Any) -> None:
            try:
                options.get_session_config_entry(_PLACEMENT)
            except RuntimeError:  # to set it twice is worth a warning to ONNX Runtime
                options.add_session_config_entry(_PLACEMENT, "1")
            super().__init__(model, options, providers, **named)
            self.watched = WatchedSession(model if isinstance(model, str) else "")
            for part in self.get_provider_graph_assignment_info():
                provider = part.ep_name.removesuffix("ExecutionProvider")
                self.watched.placement += [
                    (provider, node.op_type, node.name) for node in part.get_nodes()
                ]
            watched.append(self.watched)

        def io_binding(self) -> Any:
            binding = super().io_binding()
            shapes: dict[str, tuple[int, ...]] = {}
            self.watched.runs.append(shapes)
            bind = binding.bind_ortvalue_input

            def bind_input(name: str, value: Any) -> None:
                shapes[name] = tuple(value.shape())
                bind(name, value)

            binding.bind_ortvalue_input = bind_input
            return binding

    ort.InferenceSession = Session
    return watched


def _main(request: Path) -> None:
    """Call the function that a pickled request names, and put its result in the request's place."""
    source, name, arguments = pickle.loads(request.read_bytes())
    if Path(source).parent == Path(__file__).parent:
        module: Any = importlib.import_module(f"support.{Path(source).stem}")
    else:
        spec = importlib.util.spec_from_file_location(f"called_{Path(source).stem}", source)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    _any_length()
    request.write_bytes(pickle.dumps(getattr(module, name)(*arguments)))


def _any_length() -> None:
    """Let vectors have any length: stand-ins compute nothing."""
    from vcs_runtime.inference import embedder

    embedder._LENGTH_ERROR = math.inf


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
