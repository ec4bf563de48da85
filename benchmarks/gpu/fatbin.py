"""Keeps one architecture's machine code in a shared library that was built for several kinds of GPU.

    python benchmarks/gpu/fatbin.py LIBRARY OUTPUT --architecture 90

The section `.nv_fatbin` of such a library is a row of fat binaries. Each has a header of 16 bytes (magic number,
version, size of the header, size of what follows) and entries: one machine code (or PTX) for each architecture. This
script removes the entries that a GPU of the architecture cannot load. The entries that stay move to the front of
their fat binary, whose header gets the new size, and zeros fill the rest. So every fat binary stays where the library's
own pointers expect it, and the zeros pack to nothing. The file keeps its length; `kit.py` packs it.

A fat binary that has nothing for the architecture is left as it is: the library reports the lack as before.
"""

from __future__ import annotations

import argparse
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTION = b".nv_fatbin"
_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")  # magic number, version, bytes of the header, bytes of the entries
_SIZE_AT = 8
_ENTRY = struct.Struct("<HHIQ")  # kind, version, bytes of the header, bytes of the code
_ARCHITECTURE_AT = 28
_PTX, _MACHINE_CODE = 1, 2


class FatbinError(ValueError):
    """The file is not a library with fat binaries in the known form."""


@dataclass(frozen=True)
class Entry:
    """One architecture's code in a fat binary: its place in the file, header included, and what it is for."""

    start: int
    stop: int
    kind: int
    architecture: int


@dataclass(frozen=True)
class FatBinary:
    """A fat binary: where it and its entries begin, where it ends, and its entries."""

    start: int
    first: int
    stop: int
    entries: tuple[Entry, ...]

    def loadable(self, architecture: int) -> tuple[Entry, ...]:
        """Return the entries that a GPU of `architecture` (90: compute capability 9.0) can load."""
        codes = [
            entry
            for entry in self.entries
            if entry.kind == _MACHINE_CODE
            and entry.architecture // 10 == architecture // 10
            and entry.architecture <= architecture
        ]
        return tuple(codes) or tuple(
            entry for entry in self.entries if entry.kind == _PTX and entry.architecture <= architecture
        )


@dataclass
class Thinned:
    """What was done: bytes of code by architecture before, bytes kept, and fat binaries left as they were."""

    before: Counter[int] = field(default_factory=Counter)
    kept: int = 0
    binaries: int = 0
    untouched: int = 0


def section(content: bytes | bytearray, name: bytes = SECTION) -> tuple[int, int]:
    """Return where a section of a 64-bit ELF file begins and ends; raises FatbinError."""
    if content[:6] != b"\x7fELF\x02\x01":
        raise FatbinError("not a 64-bit little-endian ELF file")
    table, width, count, names = struct.unpack_from("<Q10xHHH", content, 0x28)
    rows = [struct.unpack_from("<II16xQQ", content, table + width * i) for i in range(count)]
    strings = rows[names][2]
    for place, _, offset, size in rows:
        start = strings + place
        if content[start : start + len(name) + 1] == name + b"\0":
            return offset, offset + size
    raise FatbinError(f"it has no section {name.decode()}")


def fat_binaries(content: bytes | bytearray) -> Iterator[FatBinary]:
    """Yield the fat binaries of a library; raises FatbinError if their form is not the known one."""
    place, end = section(content)
    while place < end:
        if end - place < _HEADER.size or not any(content[place : place + 8]):
            place += 8  # padding
            continue
        magic, _, header, size = _HEADER.unpack_from(content, place)
        if magic != _MAGIC or place + header + size > end:
            raise FatbinError(f"no fat binary at byte {place}")
        stop = place + header + size
        yield FatBinary(place, place + header, stop, tuple(_entries(content, place + header, stop)))
        place = stop


def _entries(content: bytes | bytearray, place: int, stop: int) -> Iterator[Entry]:
    while place < stop:
        kind, _, header, size = _ENTRY.unpack_from(content, place)
        (architecture,) = struct.unpack_from("<I", content, place + _ARCHITECTURE_AT)
        after = place + header + size
        if kind not in (_PTX, _MACHINE_CODE) or after > stop or not header:
            raise FatbinError(f"no entry of a fat binary at byte {place}")
        yield Entry(place, after, kind, architecture)
        place = after


def thin(content: bytearray, architecture: int) -> Thinned:
    """Remove, in place, what a GPU of `architecture` cannot load; raises FatbinError."""
    done = Thinned()
    for binary in list(fat_binaries(content)):
        done.binaries += 1
        for entry in binary.entries:
            done.before[entry.architecture] += entry.stop - entry.start
        if not (kept := binary.loadable(architecture)):
            done.untouched += 1
            continue
        code = b"".join(bytes(content[entry.start : entry.stop]) for entry in kept)
        done.kept += len(code)
        content[binary.first : binary.stop] = code + bytes(binary.stop - binary.first - len(code))
        struct.pack_into("<Q", content, binary.start + _SIZE_AT, len(code))
    if done.binaries == done.untouched:
        raise FatbinError(f"nothing in it is for architecture {architecture}")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument(
        "--architecture", type=int, default=90, help="90 for compute capability 9.0 [default]"
    )
    arguments = parser.parse_args()
    content = bytearray(arguments.library.read_bytes())
    done = thin(content, arguments.architecture)
    arguments.output.write_bytes(content)
    for architecture, size in sorted(done.before.items()):
        print(f"sm_{architecture:<4} {size / 1e6:8.1f} MB")
    print(
        f"kept    {done.kept / 1e6:8.1f} MB in {done.binaries} fat binaries, {done.untouched} of them untouched"
    )


if __name__ == "__main__":
    main()
