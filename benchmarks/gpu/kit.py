"""Pack dependencies, and the default bundle if installed, for a GPU machine without a network.

    python benchmarks/gpu/kit.py KIT [--python 3.12] [--part-mb 24] [--without numba llvmlite numpy]

    # on the GPU machine, in the checkout, when all parts are in KIT
    cat KIT/wheels.tar.* | tar x
    python3 -m pip install --no-index --no-deps --target site wheels/*.whl
    VCS_RUNTIME_HOME=. PYTHONPATH=site:.:runtime:export python3 benchmarks/gpu/measure.py

The machine needs x86-64 Linux, the same Python, NVIDIA's driver, and the CUDA 13 libraries of
PyTorch's packages. The parts are small enough for a transfer. Wheels and weights cannot be
compressed: onnxruntime-gpu needs 256 of about 480 MB, and the bundle 134 MB, in twenty-one parts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from vcs_runtime.bundle.paths import default_bundle_path

PACKAGES = (
    "onnxruntime-gpu==1.31.1",
    "numpy",
    "numba",
    "tokenizers",
    "msgspec",
    "platformdirs",
    "click",
    "rich",
    "onnx",
    "onnx-ir",
    "safetensors",
    "sentencex",
)
# pip compares the names of platforms as text.
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 24, 17, 12, 5)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
)


def download(folder: Path, python: str) -> None:
    """Download the wheels of the dependencies into a folder."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "download",
        "--dest",
        str(folder),
    ]
    platforms = [item for platform in PLATFORMS for item in ("--platform", platform)]
    only = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
    subprocess.run([*pip, *only, *PACKAGES], check=True)


def write_parts(wheels: list[Path], kit: Path, size: int) -> list[Path]:
    """Write one archive of the wheels and the bundle as files of at most `size` bytes; joined in
    the order of their names they are it."""
    with tempfile.TemporaryFile() as archive:
        with tarfile.open(fileobj=archive, mode="w") as files:
            for wheel in wheels:
                files.add(wheel, f"wheels/{wheel.name}")
            if (bundle := default_bundle_path()).exists():
                files.add(bundle, "bundles/default")
        archive.seek(0)
        parts = []
        while content := archive.read(size):
            parts.append(kit / f"wheels.tar.{len(parts):03}")
            parts[-1].write_bytes(content)
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kit", type=Path, help="folder to write; must not exist or be empty")
    parser.add_argument("--python", default="3.12", help="of the machine [default: 3.12]")
    parser.add_argument(
        "--part-mb", type=float, default=24.0, help="largest part in MB [default: 24]"
    )
    parser.add_argument(
        "--without", nargs="*", default=[], help="distributions that the machine has"
    )
    parser.add_argument(
        "--wheels", type=Path, help="folder of wheels to take in place of downloading"
    )
    arguments = parser.parse_args()
    arguments.kit.mkdir(parents=True, exist_ok=True)
    if any(arguments.kit.iterdir()):
        sys.exit(f"{arguments.kit} is not empty")
    left = {name.lower().replace("-", "_") for name in arguments.without}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.wheels or Path(temporary)
        if arguments.wheels is None:
            download(folder, arguments.python)
        wheels = [
            path
            for path in sorted(folder.glob("*.whl"))
            if path.name.partition("-")[0].lower() not in left
        ]
        for part in write_parts(wheels, arguments.kit, int(1e6 * arguments.part_mb)):
            print(f"{part.stat().st_size / 1e6:6.1f} MB  {part}")


if __name__ == "__main__":
    main()
