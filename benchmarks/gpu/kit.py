"""Packs this runtime for a GPU machine that has no network: a few files of limited size, and a script that unpacks them.

    python benchmarks/gpu/kit.py --architecture 90 --output kit/
    python3 kit/unpack.py ~/vcs && PYTHONPATH=$HOME/vcs/site python3 $HOME/vcs/benchmarks/gpu/measure.py   # over there

The machine needs an x86-64 Linux, Python (3.12, or what `--python` says), NVIDIA's driver, and the CUDA 13 libraries
that PyTorch's packages bring. Into the kit go this package, its dependencies, onnxruntime-gpu and the scripts of
`benchmarks/gpu`, unpacked as on an import path: nothing is installed over there. pip downloads the wheels here. Of
onnxruntime-gpu only one architecture's code stays (`fatbin.py`), and what Python does not load is left out.

`--without numba llvmlite numpy` leaves out what the machine has already. Unpacking takes seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

from fatbin import thin
from unpack import KIT

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "onnxruntime-gpu==1.31.1", "numpy", "numba", "tokenizers", "msgspec", "platformdirs", "click", "rich", "onnx",
    "onnx-ir", "safetensors", "sentencex",
)  # fmt: skip
# pip compares names of platforms letter by letter.
_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 24, 17, 12, 5)), "manylinux2014_x86_64",
    "manylinux2010_x86_64", "manylinux1_x86_64",
)  # fmt: skip
_PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
# What a measurement never loads: the library for C, TensorRT's provider, tools, tests; and the hub's client, which
# tokenizers names as a dependency and imports only to download.
_LEFT_OUT = (
    "onnxruntime/capi/libonnxruntime.so.*", "onnxruntime/capi/libonnxruntime_providers_tensorrt.so",
    "onnxruntime/transformers/*", "onnxruntime/tools/*", "onnxruntime/quantization/*", "onnx/backend/test/*",
    "*/tests/*", "*/test/*", "*.pyi", "*.h", "*.hpp", "*.a",
)  # fmt: skip
_UNUSED = (
    "anyio", "certifi", "coloredlogs", "filelock", "fsspec", "h11", "hf_xet", "httpcore*", "httpx*", "huggingface_hub",
    "humanfriendly", "idna", "pyyaml", "requests", "shellingham", "sniffio", "tqdm", "truststore",
    "typer*",
)  # fmt: skip
_SCRIPTS = ("gpu/*.py", "nv_embed_counts.py", "segmenter.py", "sides.py")


def download(folder: Path, python: str) -> None:
    """Download the wheels of the dependencies, and build this package's own, into `folder`."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    platforms = [item for platform in _PLATFORMS for item in ("--platform", platform)]
    only = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
    subprocess.run([*pip, "download", "--dest", str(folder), *only, *PACKAGES], check=True)
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True)


def install(wheels: list[Path], site: Path) -> None:
    """Unpack wheels as a folder of the import path, without what is not needed."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as files:
            for name in files.namelist():
                if ".data/" not in name and not any(fnmatch(name, pattern) for pattern in _LEFT_OUT):
                    files.extract(name, site)


def wanted(folder: Path, without: list[str]) -> Iterator[Path]:
    """Yield the wheels of a folder that belong into the kit; `without` names distributions in any spelling."""
    left = [*_UNUSED, *(name.lower().replace("-", "_").replace(".", "_") for name in without)]
    for wheel in sorted(folder.glob("*.whl")):
        name = wheel.name.partition("-")[0].lower().replace(".", "_")
        if not any(fnmatch(name, pattern) for pattern in left):
            yield wheel


def pack(folder: Path, names: list[str]) -> bytes:
    """Return a .tar.xz of files below `folder`, the same for the same files."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime = info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    raw = io.BytesIO()
    with lzma.open(raw, "wb", preset=6) as stream, tarfile.open(fileobj=stream, mode="w|") as files:
        for name in sorted(names):
            files.add(folder / name, name, filter=plain)
    return raw.getvalue()


def write_parts(packed: bytes, name: str, output: Path, part_bytes: int) -> dict[str, object]:
    """Cut an archive into parts below `output`; returns its entry of `kit.json`."""
    parts = []
    for start in range(0, len(packed), part_bytes):
        parts.append(f"{name}.tar.xz.{len(parts) + 1}")
        (output / parts[-1]).write_bytes(packed[start : start + part_bytes])
    return {"name": name, "parts": parts, "sha256": hashlib.sha256(packed).hexdigest()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--architecture", type=int, default=90, help="of the GPU [default: 90]")
    parser.add_argument("--python", default="3.12", help="of the machine [default: 3.12]")
    parser.add_argument(
        "--output", "-o", type=Path, required=True, help="folder to write; must not exist or be empty"
    )
    parser.add_argument("--part-mb", type=float, default=60.0, help="largest part in MB [default: 60]")
    parser.add_argument("--without", nargs="*", default=[], help="distributions that the machine has")
    parser.add_argument(
        "--wheels", type=Path, help="folder of wheels to take in place of downloading and building"
    )
    arguments = parser.parse_args()
    output = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()):
        sys.exit(f"{output} is not empty")
    with tempfile.TemporaryDirectory() as work:
        folder, wheels = Path(work, "kit"), arguments.wheels
        if wheels is None:
            wheels = Path(work, "wheels")
            download(wheels, arguments.python)
        chosen = list(wanted(wheels, arguments.without))
        install(chosen, folder / "site")
        for pattern in _SCRIPTS:
            for script in sorted((ROOT / "benchmarks").glob(pattern)):
                target = folder / script.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(script, target)
        provider = folder / "site" / _PROVIDER
        content = bytearray(provider.read_bytes())
        done = thin(content, arguments.architecture)
        provider.write_bytes(content)
        print(
            f"code of all architectures {sum(done.before.values()) / 1e6:.1f} MB, kept {done.kept / 1e6:.1f} MB"
        )
        names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
        provider_name = str(provider.relative_to(folder))
        archives = {"provider": [provider_name], "rest": [name for name in names if name != provider_name]}
        with ProcessPoolExecutor(len(archives)) as pool:
            packed = list(pool.map(pack, [folder] * len(archives), archives.values()))
    part_bytes = int(arguments.part_mb * 1e6)
    entries = [
        write_parts(content, name, output, part_bytes) for name, content in zip(archives, packed, strict=True)
    ]
    kit = {
        "python": arguments.python,
        "architecture": arguments.architecture,
        "wheels": [wheel.name for wheel in chosen],
        "archives": entries,
    }
    (output / KIT).write_text(json.dumps(kit, indent=1) + "\n", "utf-8")
    shutil.copyfile(Path(__file__).with_name("unpack.py"), output / "unpack.py")
    for path in sorted(output.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path}")


if __name__ == "__main__":
    main()
