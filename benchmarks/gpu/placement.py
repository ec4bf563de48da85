"""What ONNX Runtime's own CUDA provider makes of a bundle's graphs, on a machine without a GPU.

    python benchmarks/gpu/placement.py BUNDLE ... [--capability 9.0]

Needs `vcs-runtime[gpu]` (onnxruntime-gpu, without NVIDIA's packages) and a C compiler. The provider is the real one;
NVIDIA's libraries are compiled here: they lend memory, copy it, and do nothing else. So the provider starts, takes or
refuses our options, places every node, and chooses its kernels for a GPU of the given compute capability; what would
be computed is not. Printed are, for each graph, the nodes that stay on the CPU, the copies between the two, and
which attention was chosen. No figure of speed can come of this.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {"tensor(int64)": np.int64, "tensor(float16)": np.float16, "tensor(float)": np.float32}
_MEMORY = 141_000_000_000
# What must answer something; every other function that the provider links to answers 0, "success".
_FUNCTIONS = """
int cudaMalloc(void **p, size_t n) { *p = calloc(1, n + 512); return *p ? 0 : 2; }
int cudaMallocHost(void **p, size_t n) { *p = calloc(1, n + 512); return 0; }
int cudaHostAlloc(void **p, size_t n, unsigned f) { *p = calloc(1, n + 512); return 0; }
int cudaFree(void *p) { free(p); return 0; }
int cudaFreeHost(void *p) { free(p); return 0; }
int cudaMemcpy(void *d, const void *s, size_t n, int k) { memmove(d, s, n); return 0; }
int cudaMemcpyAsync(void *d, const void *s, size_t n, int k, void *q) { memmove(d, s, n); return 0; }
int cudaMemset(void *d, int v, size_t n) { memset(d, v, n); return 0; }
int cudaMemsetAsync(void *d, int v, size_t n, void *q) { memset(d, v, n); return 0; }
int cudaGetDeviceCount(int *n) { *n = 1; return 0; }
int cudaGetDevice(int *n) { *n = 0; return 0; }
int cudaSetDevice(int n) { return n ? 101 : 0; }
int cudaMemGetInfo(size_t *f, size_t *t) { *f = *t = MEMORY; return 0; }
int cudaStreamCreate(void **s) { *s = malloc(64); return 0; }
int cudaStreamCreateWithFlags(void **s, unsigned f) { *s = malloc(64); return 0; }
int cudaEventCreate(void **s) { *s = malloc(64); return 0; }
int cudaEventCreateWithFlags(void **s, unsigned f) { *s = malloc(64); return 0; }
char *cudaGetErrorString(int e) { return "no CUDA here"; }
char *cudaGetErrorName(int e) { return "none"; }
int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
int cudaDriverGetVersion(int *v) { *v = 13000; return 0; }
int cudaDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? MAJOR : a == 76 ? MINOR : a == 16 ? 132 : 232448; return 0; }
int cudaGetDeviceProperties(char *p, int d) { memset(p, 0, 1008); *(size_t *)(p + 288) = MEMORY; \
  *(size_t *)(p + 296) = 49152; int n[] = {65536, 32}, i; memcpy(p + 304, n, 8); *(int *)(p + 320) = 1024; \
  for (i = 0; i < 3; i++) { *(int *)(p + 324 + 4 * i) = 1024; *(int *)(p + 336 + 4 * i) = 65535; } \
  *(int *)(p + 360) = MAJOR; *(int *)(p + 364) = MINOR; *(int *)(p + 388) = 132; return 0; }
void *__cudaRegisterFatBinary(void *p) { return malloc(64); }
int __cudaPopCallConfiguration(void *g, void *b, size_t *s, void **q) { memset(g, 0, 12); memset(b, 0, 12); *s = 0; *q = 0; return 0; }
int cublasCreate_v2(void **h) { *h = malloc(64); return 0; }
int cublasLtCreate(void **h) { *h = malloc(64); return 0; }
int cudnnCreate(void **h) { *h = malloc(64); return 0; }
int cudnnCreateReduceTensorDescriptor(void **h) { *h = malloc(64); return 0; }
int cudnnCreateTensorDescriptor(void **h) { *h = malloc(64); return 0; }
int cudnnGetReductionWorkspaceSize(void *h, void *r, void *a, void *c, size_t *n) { *n = 0; return 0; }
int cudnnGetReductionIndicesSize(void *h, void *r, void *a, void *c, size_t *n) { *n = 0; return 0; }
size_t cudnnGetVersion(void) { return 91400; }
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGet(int *d, int i) { *d = 0; return i ? 101 : 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGetName(char *p, int n, int d) { strcpy(p, "no GPU"); return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? MAJOR : MINOR; return 0; }
int cuDeviceTotalMem_v2(size_t *t, int d) { *t = MEMORY; return 0; }
"""
_LIBRARIES = {  # by the names that the provider links to, and those of their functions
    "libcudart.so.13": r"_*cuda(?!nn)\w+",
    "libcublas.so.13": r"cublas(?!Lt)\w+",
    "libcublasLt.so.13": r"cublasLt\w+",
    "libcurand.so.10": r"curand\w+",
    "libcudnn.so.9": r"cudnn[A-Z]\w+",
    "libcuda.so.1": r"cu[A-Z]\w+",
}


def compile_libraries(provider: Path, folder: Path, capability: str) -> None:
    """Libraries with the functions that `provider` names, in `folder`."""
    content = provider.read_bytes()
    named = {name.decode() for name in re.findall(rb"\0(_*cu[A-Za-z0-9_]+)(?=\0)", content)}
    named |= {name.lstrip("_") for name in named}  # a name that ends another is not stored again
    given = {
        re.search(r"(\w+)\(", line)[1]: line for line in re.sub(r"\\\n", "", _FUNCTIONS).strip().splitlines()
    }
    major, minor = capability.split(".")
    start = f"#include <stdlib.h>\n#include <string.h>\n#define MEMORY {_MEMORY}UL\n"
    start += f"#define MAJOR {major}\n#define MINOR {minor}\n"
    for library, pattern in _LIBRARIES.items():
        names = sorted(name for name in named | set(given) if re.fullmatch(pattern, name))
        lines = [given.get(name, f"long {name}() {{ return 0; }}") for name in names]
        source = folder / f"{library}.c"
        source.write_text(start + "\n".join(lines))
        (folder / "map").write_text(f"{library} {{ global: *; }};")
        subprocess.run(
            [
                "cc",
                "-w",
                "-shared",
                "-fPIC",
                f"-Wl,-soname,{library}",
                f"-Wl,--version-script={folder / 'map'}",
                "-o",
                folder / library,
                source,
            ],
            check=True,
        )


def child(bundle: Path) -> None:
    """Open each graph of a bundle as the runtime does, but with a log that tells all, and run it."""
    import onnxruntime as ort

    from vcs_runtime.bundle.opening import open_bundle
    from vcs_runtime.inference.batching import batches
    from vcs_runtime.inference.device import choose_device, provider_options, run_session

    opened = open_bundle(bundle)
    for part in ("embedder", "segmenter"):
        if (spec := opened.part(part)) is None:
            continue
        device = choose_device("cuda:0")
        options = ort.SessionOptions()
        options.log_severity_level = 0
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        print(f"part {part}: {spec.name}, {spec.precision}", flush=True)
        session = ort.InferenceSession(
            str(opened.path(spec.model)), options, providers=provider_options(device), enable_fallback=False
        )
        layout = getattr(spec, "layout", "padded")
        [batch] = batches([[5] * 12] * 4, 1000, layout)
        if device.provider not in session.get_providers():
            sys.exit("the CUDA provider did not start: " + str(session.get_providers()))
        some = batch.inputs["input_ids"]
        inputs: dict[str, Any] = {
            item.name: batch.inputs.get(item.name, np.zeros_like(some)).astype(_TYPES[item.type])
            for item in session.get_inputs()
        }
        found = run_session(session, [session.get_outputs()[0].name], inputs, shrink=True)
        print(f"shape {list(found[0].shape)}", flush=True)


def told(log: str) -> dict[str, Any]:
    """What a log says: nodes by provider, copies, attention."""
    nodes: dict[str, Counter[str]] = defaultdict(Counter)
    counts: Counter[str] = Counter()
    provider = ""
    for line in log.splitlines():
        if found := re.search(r"placed on \[(\w+?)ExecutionProvider\]\. Number of nodes: (\d+)", line):
            provider = found[1]
            counts[provider] += int(found[2])
        elif found := re.search(r"VerifyEachNodeIsAssignedToAnEp\]\s+(\w+) \(", line):
            nodes[provider][found[1]] += 1
    attention = Counter(re.findall(r"SdpaKernel=(\w+)", log))
    copies = sum(map(int, re.findall(r"(\d+) Memcpy nodes are added", log)))
    return {
        "nodes": dict(counts),
        "on the CPU": dict(nodes["CPU"]),
        "copies": copies,
        "attention": dict(attention),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument(
        "--capability", default="9.0", help="of the GPU that there might be: 8.0, 8.9, 9.0, 12.0"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.bundles[0])
        return
    import onnxruntime

    provider = Path(onnxruntime.__file__).parent / "capi/libonnxruntime_providers_cuda.so"
    if not provider.is_file():
        sys.exit(
            "the installed ONNX Runtime has no CUDA provider: pip install onnxruntime-gpu in an environment apart"
        )
    with tempfile.TemporaryDirectory() as name:
        compile_libraries(provider, Path(name), arguments.capability)
        environment = {**os.environ, "LD_LIBRARY_PATH": name, "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": "1"}
        for bundle in arguments.bundles:
            command = [sys.executable, __file__, "--child", str(bundle)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                print(bundle, "failed:", done.stderr.strip().splitlines()[-1][:600])
                continue
            both = done.stderr + done.stdout
            parts = re.findall(r"^part (.*)$", done.stdout, re.MULTILINE)
            print(bundle, "; ".join(parts), json.dumps(told(both)))


if __name__ == "__main__":
    main()
