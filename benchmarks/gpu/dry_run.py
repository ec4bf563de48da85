"""What ONNX Runtime's own CUDA provider makes of a bundle, on a machine without a GPU.

    python benchmarks/gpu/dry_run.py BUNDLE ... [--capability 9.0] [--gpu-memory-gb 40]

Needs onnxruntime-gpu, without NVIDIA's packages, and a C compiler: `make gpu-dry` makes such an environment,
`.venv-gpu`. The provider is the real one. NVIDIA's libraries are stand-ins (tests/lib/support/cuda_stand_ins.py) that
lend memory, write down what they are asked, and compute nothing. Printed are, for each model of a bundle, the nodes on
the GPU and on the CPU; and for batches of several shapes the launches, the kernels of attention, those between the
products of a layer, the copies, and the memory beside the weights. No figure of speed can come of this.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/lib"))

from support.cuda_stand_ins import DryGpu, Log, Run
from support.gpu_bundles import SHAPES
from support.gpu_runs import ATTENTION, between_products, embed, segment
from vcs_runtime.bundle.opening import open_bundle

# For a learned segmenter: long texts and short ones.
TEXTS = ["man woman dog cat " * 150, "horse bird kitchen " * 8]


def counted(items: list[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(items).most_common()) or "none"


def print_section(title: str, log: Log) -> None:
    attention = [kernel.name for kernel in log.kernels if ATTENTION.search(kernel.name)]
    print(f"  {title}")
    print(f"    kernels    {len(log.kernels)}, products {counted(['/'.join(p.types) for p in log.products])}")
    print(f"    attention  {counted(attention)}")
    if len(attention) > 1:
        print(f"    a layer    {counted(between_products(log))}")
    print(f"    copies     {counted([copy.kind for copy in log.copies])}")
    print(f"    memory     {(log.peak - log.level) / 1e6:,.1f} MB above that before it")


def print_part(what: str, run: Run, sections: list[str]) -> None:
    [session, *_] = run.value
    print(f"{what}: {Path(session.model).name}, {len(session.nodes('CUDA'))} nodes on the GPU")
    print(f"  on the CPU: {counted(session.nodes('CPU'))}")
    for title in sections:
        print_section(title, run.log[title])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--capability", default="9.0", help="compute capability: 8.0, 8.9, 9.0, 12.0")
    parser.add_argument("--gpu-memory-gb", type=float, help="limit of memory, as `score` takes it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            gpu = DryGpu.compile(Path(folder))
        except FileNotFoundError as error:
            sys.exit(str(error))
        for path in arguments.bundles:
            bundle, machine = str(path), {"capability": arguments.capability}
            opened = open_bundle(bundle)
            if spec := opened.part("embedder"):
                run = gpu.call(embed, bundle, SHAPES, arguments.gpu_memory_gb, **machine)
                print_part(f"{path}: {spec.name}, {spec.precision}", run, list(SHAPES))
            if spec := opened.part("segmenter"):
                run = gpu.call(segment, bundle, TEXTS, **machine)
                print_part(f"{path}: {spec.name}, {spec.precision}", run, ["texts"])


if __name__ == "__main__":
    main()
