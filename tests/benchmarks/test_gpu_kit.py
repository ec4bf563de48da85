"""`benchmarks/gpu/kit.py`, `fatbin.py` and `unpack.py`: what goes to a machine without a network, and arrives there."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks/gpu"
PTX, CODE = 1, 2
PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"


def run(script: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def code(architecture: int, kind: int = CODE, size: int = 64) -> bytes:
    """An entry of a fat binary: a header of 64 bytes, and bytes that only this entry has."""
    header = struct.pack("<HHIQ", kind, 0x101, 64, size).ljust(28, b"\0") + struct.pack("<I", architecture)
    return header.ljust(64, b"\0") + bytes([architecture + kind]) * size


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(*parts: bytes) -> bytes:
    """A 64-bit ELF file with the sections `.text`, `.nv_fatbin` and `.shstrtab`, and nothing that could run."""
    names = b"\0.text\0.nv_fatbin\0.shstrtab\0"
    contents = [b"", b"\x90" * 40, b"".join(parts), names]
    at, rows, body = 64, b"", b""
    for name, content in zip((b"", b".text", b".nv_fatbin", b".shstrtab"), contents, strict=True):
        place = names.index(b"\0" + name + b"\0") + 1 if name else 0
        rows += struct.pack("<IIQQQQIIQQ", place, bool(name), 0, 0, at + len(body), len(content), 0, 0, 8, 0)
        body += content
    start = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at + len(body), 0, 64, 0, 0, 64, 4, 3
    )
    return start + body + rows


def thinned(tmp_path: Path, content: bytes, architecture: int) -> bytes:
    (tmp_path / "library.so").write_bytes(content)
    done = run(
        BENCHMARKS / "fatbin.py",
        tmp_path / "library.so",
        tmp_path / "thin.so",
        "--architecture",
        str(architecture),
    )
    assert done.returncode == 0, done.stderr
    return (tmp_path / "thin.so").read_bytes()


def alone(before: bytes, *kept: bytes) -> bytes:
    """A fat binary as it should be: the header with the new size, what is kept, and zeros up to the old end."""
    return fat(*kept).ljust(len(before), b"\0")


def test_one_architecture_s_code_stays_and_every_fat_binary_keeps_its_place(tmp_path: Path) -> None:
    first, second = fat(code(80), code(90), code(120)), fat(code(90, size=128), code(90, PTX))
    other = fat(code(120))
    content = library(first, second, bytes(8), other)
    assert thinned(tmp_path, content, 90) == library(
        alone(first, code(90)), alone(second, code(90, size=128)), bytes(8), other
    )


def test_code_of_an_earlier_minor_version_or_ptx_stays_where_nothing_else_fits(tmp_path: Path) -> None:
    first, second = fat(code(75), code(80), code(86), code(89)), fat(code(75), code(75, PTX), code(90, PTX))
    assert thinned(tmp_path, library(first, second), 86) == library(
        alone(first, code(80), code(86)), alone(second, code(75, PTX))
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no library", "not a 64-bit"),
        (library(b"\1" * 64), "no fat binary at byte"),
        (library(fat(code(80))), "nothing in it is for architecture 90"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "library.so").write_bytes(content)
    done = run(BENCHMARKS / "fatbin.py", tmp_path / "library.so", tmp_path / "thin.so")
    assert done.returncode != 0
    assert message in done.stderr
    assert not (tmp_path / "thin.so").exists()


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A kit of wheels that are made here, in parts of 20 kB."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    noise = random.Random(0).randbytes(50_000)
    for name, files in {
        "onnxruntime_gpu": {
            PROVIDER: library(fat(code(80, size=999), code(90))),
            "onnxruntime/tools/a.py": b"",
        },
        "vcs_runtime": {"vcs_runtime/__init__.py": b"word = 'here'", "vcs_runtime/noise": noise},
        "huggingface_hub": {"huggingface_hub/__init__.py": b""},
        "some_numbers": {"some_numbers/__init__.py": b""},
    }.items():
        with zipfile.ZipFile(wheels / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            for path, content in files.items():
                wheel.writestr(path, content)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = run(
        BENCHMARKS / "kit.py", "--output", tmp_path / "kit", "--wheels", wheels, "--python", python, "--part-mb", "0.02",
        "--without", "some-numbers",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return tmp_path / "kit"


def test_a_kit_is_unpacked_part_by_part(kit: Path, tmp_path: Path) -> None:
    parts = sorted(path.name for path in kit.glob("*.tar.xz.*"))
    assert len(parts) > 3
    assert all(path.stat().st_size <= 20_000 for path in kit.glob("*.tar.xz.*"))
    there, target = tmp_path / "there", tmp_path / "target"
    shutil.copytree(kit, there)
    (there / "rest.tar.xz.2").unlink()
    done = run(there / "unpack.py", target)
    assert done.returncode == 1
    assert "missing: rest.tar.xz.2" in done.stderr
    assert (target / "site" / PROVIDER).read_bytes() == library(
        alone(fat(code(80, size=999), code(90)), code(90))
    )

    shutil.copy(kit / "rest.tar.xz.2", there)
    (there / "provider.tar.xz.1").unlink()  # unpacked before
    done = run(there / "unpack.py", target)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(target / "site")
    packages = sorted(path.name for path in (target / "site").iterdir())
    assert packages == ["onnxruntime", "vcs_runtime"]
    assert not (target / "site/onnxruntime/tools").exists()
    assert (target / "benchmarks/gpu/measure.py").is_file()
    done = subprocess.run(
        [sys.executable, "-c", "import vcs_runtime; print(vcs_runtime.word)"],
        env={"PYTHONPATH": str(target / "site")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "here\n"


def test_a_damaged_part_and_another_python_are_named(kit: Path, tmp_path: Path) -> None:
    part = kit / "rest.tar.xz.1"
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    done = run(kit / "unpack.py", tmp_path / "target")
    assert done.returncode == 1
    assert "damaged: rest.tar.xz.1, rest.tar.xz.2" in done.stderr
    settings = json.loads((kit / "kit.json").read_text("utf-8"))
    (kit / "kit.json").write_text(json.dumps({**settings, "python": "2.7"}), "utf-8")
    assert "make one with --python" in run(kit / "unpack.py", tmp_path / "target").stderr
