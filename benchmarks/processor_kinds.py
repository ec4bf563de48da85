"""What another kind of processor changes in vectors and scores, shown on this one.

    python benchmarks/processor_kinds.py pairs.jsonl [--pairs 12] [--bundle default] [--side NAME ...] [--keep]

Each side scores the same pairs in a process of its own, where some libraries may not use all instructions of this
processor. A table says how far vectors and scores are from those of the first side, which uses all of them.

    AVX-512, AVX2   what all libraries see of the processor: CPUID answers without AMX, or without AVX-512 besides.
                    cpuid_limit.c says how. Needs Linux on x86-64, the flag cpuid_fault in /proc/cpuinfo, and cc
    NumPy, BLAS,    only this library is limited to AVX2, by NPY_DISABLE_CPU_FEATURES, OPENBLAS_CORETYPE, or
    Numba           NUMBA_CPU_NAME and NUMBA_CPU_FEATURES
    OpenVINO        `openvino:fp32` and `openvino`, beside the same where oneDNN is limited by ONEDNN_MAX_CPU_ISA

Columns: vectors that are not the same bytes, and the largest difference of a component; pairs of which a score is not
the same bytes; the largest difference of VCS, GAS, LAS and NAS; the difference of the mean VCS; pairs cut otherwise.
A side that this machine cannot run is left out, and its reason is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from records import keep

HERE = Path(__file__).parent
SCORES = ("vcs", "gas", "las", "nas")


def sides(shim: Path | None) -> dict[str, tuple[str, str, dict[str, str]]]:
    """By name: the device, the name of the side that it is compared with, and the variables of its process."""
    simd = np.show_config("dicts")["SIMD Extensions"]["found"]
    newer = [name for name in simd if name == "X86_V4" or "AVX512" in name]
    limited = {"LD_PRELOAD": str(shim)}
    found: dict[str, tuple[str, str, dict[str, str]]] = {"all instructions": ("cpu", "", {})}
    if shim:
        found["AVX-512, no AMX"] = ("cpu", "all instructions", limited | {"VCS_CPUID_LIMIT": "avx512"})
        found["AVX2"] = ("cpu", "all instructions", limited | {"VCS_CPUID_LIMIT": "avx2"})
    found |= {
        "NumPy: AVX2": ("cpu", "all instructions", {"NPY_DISABLE_CPU_FEATURES": " ".join(newer)}),
        "BLAS: AVX2": ("cpu", "all instructions", {"OPENBLAS_CORETYPE": "Haswell"}),
        "Numba: AVX2": (
            "cpu", "all instructions", {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"},
        ),
        "openvino:fp32": ("openvino:fp32", "", {}),
        "openvino:fp32, AVX2": ("openvino:fp32", "openvino:fp32", {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
        "openvino": ("openvino", "", {}),
        "openvino, AVX-512": ("openvino", "openvino", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}),
    }  # fmt: skip
    return found


def child(bundle: str, device: str, source: Path, target: Path) -> None:
    """Score all pairs, and write vectors of their texts and scores."""
    from vcs_runtime import Scorer
    from vcs_runtime.scoring.signature import long_form

    pairs = [(row["reference"], row["generated"]) for row in json.loads(source.read_text("utf-8"))]
    with Scorer.open(bundle, device) as scorer:
        results = scorer.score_many(pairs)
        vectors = scorer.embedder.embed(list(dict.fromkeys(chain.from_iterable(pairs))))
        signature = long_form(scorer.signature)
    scores = np.array([[getattr(result, name) for name in SCORES] for result in results])
    chunks = np.array([[result.n_ref, result.n_gen] for result in results])
    np.savez(
        target, vectors=vectors, scores=scores, chunks=chunks, signature=np.array(signature),
        short=np.array(scorer.signature),
    )  # fmt: skip


def built(folder: Path) -> Path | None:
    """Compile what limits CPUID; None, with the reason printed, where that is impossible."""
    compiler = shutil.which("cc")
    info = Path("/proc/cpuinfo")
    if not compiler or not info.exists() or "cpuid_fault" not in info.read_text():
        print("left out: limits of all libraries (they need Linux, the flag cpuid_fault, and cc)")
        return None
    library = folder / "cpuid_limit.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "cpuid_limit.c"], check=True)
    return library


def row(name: str, own: Any, base: Any) -> dict[str, str]:
    """Compare a side with its base: the cells of its line."""
    off = np.abs(own["vectors"] - base["vectors"])
    changed = int((own["vectors"] != base["vectors"]).any(axis=1).sum())
    scores = np.abs(own["scores"] - base["scores"])
    pairs = int((own["scores"] != base["scores"]).any(axis=1).sum())
    cut = int((own["chunks"] != base["chunks"]).any(axis=1).sum())
    mean = abs(own["scores"][:, 0].mean() - base["scores"][:, 0].mean())
    return {
        "side": name, "vectors that differ": f"{changed} of {len(off)}", "by at most": f"{off.max():.1g}",
        "pairs that differ": f"{pairs} of {len(scores)}",
        **{score.upper(): f"{value:.1g}" for score, value in zip(SCORES, scores.max(axis=0), strict=True)},
        "mean VCS": f"{mean:.1g}", "cut otherwise": f"{cut}",
    }  # fmt: skip


def main() -> None:
    """Run all sides, and print the table."""
    if sys.argv[1:2] == ["--child"]:
        bundle, device, source, target = sys.argv[2:]
        child(bundle, device, Path(source), Path(target))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs_file", type=Path)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--side", action="append", help="A side to run, with the one it is compared with.")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    lines = arguments.pairs_file.read_text("utf-8").splitlines()
    count = min(arguments.pairs, len(lines))
    rows = [json.loads(lines[i * len(lines) // count]) for i in range(count)]
    found: dict[str, Any] = {}
    kept: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pairs.json").write_text(json.dumps(rows), "utf-8")
        for side, (device, base, variables) in sides(built(folder)).items():
            wanted = arguments.side or [side]
            if side not in wanted and not any(own.startswith(f"{side},") for own in wanted) and base:
                continue
            target = folder / "side.npz"
            command = [sys.executable, __file__, "--child", arguments.bundle, device]
            done = subprocess.run(
                [*command, str(folder / "pairs.json"), str(target)],
                env=os.environ | variables, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                print(f"left out: {side}: {(done.stderr.splitlines() or [done.returncode])[-1]}")
                continue
            with np.load(target) as arrays:
                found[side] = dict(arrays)
            if not base:
                print(f"{side:<22}  {found[side]['signature']}", flush=True)
            elif base in found:
                cells = row(side, found[side], found[base])
                if not kept:
                    print("  ".join(cells))
                print("  ".join(f"{text:>{len(name)}}" for name, text in cells.items()), flush=True)
                name = cells.pop("side")
                own = {f"ours {arguments.bundle}:{device}": str(found[base]["short"])}
                kept.append({"head": "what may be used", "workload": name, "cells": cells, "signatures": own})
    if arguments.keep:
        print(keep("processor_kinds", kept))


if __name__ == "__main__":
    main()
