"""Checks of the references in an ONNX file, before ONNX Runtime opens it.

A graph may name further files (external data) in its initializers, in the attributes of any node,
in sub-graphs, functions and sparse tensors. This module reads the protobuf wire format of these
places itself (https://protobuf.dev/programming-guides/encoding/). It refuses everything ambiguous
in them, because it can check only what it understands.

Field numbers are those of `onnx.proto` (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vcs_runtime.errors import BundleError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types of fields."""

_MAX_FIELDS = 1_000_000  # about ten times the number of the largest graphs


class Refusal(Exception):
    """A file is refused; the message is the reason."""


class Reader:
    """Reader of protobuf fields in a file.

    It returns byte offsets, so that the weights in the file are never copied.
    """

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self.data = data
        self._fields_left = _MAX_FIELDS

    def fields(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the fields of a message: number, wire type, and where the value begins and ends.

        Raises Refusal if the message is damaged, or the file has too many fields.
        """
        at = start
        while at < stop:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise Refusal(f"it has more than {_MAX_FIELDS:,} fields")
            tag, at = self.varint(at, stop)
            field, wire = tag >> 3, tag & 7
            if not 0 < field < 1 << 29:
                raise Refusal("a field has an impossible number")
            begin = at
            if wire == VARINT:
                at = self.varint(at, stop)[1]
            elif wire == BYTES:
                size, begin = self.varint(at, stop)
                at = begin + size
            elif wire in (FIXED64, FIXED32):
                at += 8 if wire == FIXED64 else 4
            else:
                raise Refusal("this is not an ONNX graph: a field has an impossible type")
            if at > stop:
                raise Refusal("this is not an ONNX graph, or its end is missing")
            yield field, wire, begin, at

    def varint(self, at: int, stop: int) -> tuple[int, int]:
        """Return a number in base 128, least significant digit first, and the position after it."""
        value = shift = 0
        while at < stop and shift < 70:
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise Refusal("this is not an ONNX graph, or its end is missing")

    def text(self, start: int, stop: int) -> str:
        """Return a string of the file."""
        return self.data[start:stop].decode(errors="replace")


def written(field: int, value: bytes) -> bytes:
    """Return a field that holds a string or a message."""
    return _varint(field << 3 | BYTES) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
"""Domains of allowed operators: two names for ONNX, and ONNX Runtime.

Operators of other domains need a library of machine code.
"""

# Operators that run something other than a graph: a vendor's engine, a Python function, a PyTorch
# operator.
_FOREIGN = frozenset({"EPContext", "PythonOp", "PythonOpGrad", "ATen"})
_NAME = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_NUMBER = re.compile(rb"[0-9]{1,18}")
_MAX_BYTES = (1 << 31) - 1  # protobuf's limit
_MAX_STRING = 4096
_MAX_DEPTH = 40  # nested messages; a sub-graph takes three levels

# The messages that lead to tensors and nodes: which field holds which message.
_CHILDREN: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "function": {7: "node", 11: "attribute"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external data"},
    "external data": {},
}
# Other fields that are read: strings, and numbers.
_STRINGS = {"node": {4, 7}, "function": {10}, "external data": {1, 2}}
_NUMBERS = {"tensor": {14}}
# Fields that may occur only once in a message. Readers merge two messages of the same field, so
# that two harmless halves can make one attack.
_ONCE = {
    "model": {7},
    "attribute": {5, 6, 22},
    "sparse tensor": {1, 2},
    "node": {4, 7},
    "function": {10},
    "tensor": {14},
    "external data": {1, 2},
}
_REFUSED = {"model": {20: "training information"}}
_EXTERNAL = 1  # TensorProto.data_location
_STANDARD = (b"", b"ai.onnx")  # two names of the domain of ONNX's standard operators
_KEYS = {b"location", b"offset", b"length", b"checksum"}

_Strings = dict[int, bytes]


def check_onnx(path: Path, sizes: Mapping[str, int]) -> dict[str, int]:
    """Check an ONNX file before it is opened.

    Every external tensor must name one of the files in `sizes`, without a folder, and lie inside
    it. Every operator must be from a known domain, or a function of the file itself. Returns the
    number of bytes of external tensors in each file; raises BundleError.
    """
    with _naming(path):
        if path.suffix != ".onnx":  # ONNX Runtime reads the suffix `.ort` as another format
            raise Refusal("its name does not end in .onnx")
        if not 0 < path.stat().st_size <= _MAX_BYTES:
            raise Refusal("an ONNX graph is between 1 byte and 2 GB")
        with _mapped(path) as data:
            return _Check(data, sizes).model()


def opset_of(path: Path) -> int:
    """Return the version of a graph's standard operators; raises BundleError."""
    with _naming(path), _mapped(path) as data:
        return _Check(data, {}).opset()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise BundleError with the name of the file for errors of its check and of reading it."""
    try:
        yield
    except Refusal as error:
        raise BundleError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:  # mmap refuses an empty file with ValueError
        raise BundleError(f"{path}: cannot be read: {error}") from None


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


class _Check(Reader):
    """One pass over the file."""

    def __init__(self, data: mmap.mmap, sizes: Mapping[str, int]) -> None:
        super().__init__(data)
        self._sizes = sizes
        self._graphs = 0
        self._node_domains: set[str] = set()
        self._function_domains: set[str] = set()
        self._external: dict[str, int] = {}  # bytes of external tensors by file

    def model(self) -> dict[str, int]:
        """Check the whole model; return the bytes of its external tensors by file."""
        self._message("model", 0, len(self.data), 0)
        if not self._graphs:
            raise Refusal("the file has no graph")
        foreign = self._node_domains - self._function_domains - DOMAINS
        if foreign:
            raise Refusal(f"operators of the domain {min(foreign)!r} are not known")
        return self._external

    def opset(self) -> int:
        """Return the highest version of the standard operators."""
        highest = 0
        for field, wire, start, stop in self.fields(0, len(self.data)):
            if field == 8 and wire == BYTES:
                domain, version = self._opset_import(start, stop)
                if domain in _STANDARD:
                    highest = max(highest, version)
        return highest

    def _opset_import(self, start: int, stop: int) -> tuple[bytes, int]:
        """Return a domain of operators and its version."""
        domain, version = b"", 0
        for field, wire, begin, end in self.fields(start, stop):
            if field == 1 and wire == BYTES:
                domain = self.data[begin:end]
            elif field == 2 and wire == VARINT:
                version = self.varint(begin, end)[0]
        return domain, version

    def _message(self, kind: str, start: int, stop: int, depth: int) -> _Strings:
        """Check a message and all messages in it; return its strings by field."""
        if depth > _MAX_DEPTH:
            raise Refusal(f"messages are nested more than {_MAX_DEPTH} deep")
        strings: _Strings = {}
        entries: list[_Strings] = []
        number = 0
        seen: set[int] = set()
        for field, wire, begin, end in self.fields(start, stop):
            if refused := _REFUSED.get(kind, {}).get(field):
                raise Refusal(f"{refused} is not allowed")
            if field in _ONCE.get(kind, ()):
                if field in seen:
                    raise Refusal(f"field {field} of a {kind} occurs twice")
                seen.add(field)
            if _wire_type(kind, field) not in (None, wire):
                raise Refusal(f"field {field} of a {kind} has the wrong type")
            child = _CHILDREN[kind].get(field)
            if child:
                child_strings = self._message(child, begin, end, depth + 1)
                if child == "external data":
                    entries.append(child_strings)
            elif field in _STRINGS.get(kind, ()):
                if end - begin > _MAX_STRING:
                    raise Refusal(f"field {field} of a {kind} is too long")
                strings[field] = self.data[begin:end]
            elif field in _NUMBERS.get(kind, ()):
                number = self.varint(begin, end)[0]
        self._finish(kind, strings, entries, number)
        return strings

    def _finish(self, kind: str, strings: _Strings, entries: list[_Strings], number: int) -> None:
        """Check a message after its fields; `entries` and `number` belong to a tensor."""
        if kind == "graph":
            self._graphs += 1
        elif kind == "node":
            self._node_domains.add(_text(strings.get(7, b"")))
            operator = _text(strings.get(4, b""))
            if operator in _FOREIGN:
                raise Refusal(f"the operator {operator!r} is not allowed")
        elif kind == "function":
            self._function_domains.add(_text(strings.get(10, b"")))
        elif kind == "tensor":
            self._tensor(entries, number)

    def _tensor(self, entries: list[_Strings], location: int) -> None:
        """Check the location and the external data of a tensor."""
        if location not in (0, _EXTERNAL):
            raise Refusal(f"a tensor has the data location {location}")
        if not entries:
            if location == _EXTERNAL:
                raise Refusal("an external tensor does not name the file with its data")
            return
        # These checks do not rely on the location: they also apply if it is not external.
        keys = [entry.get(1, b"") for entry in entries]
        values = {key: entry.get(2, b"") for key, entry in zip(keys, entries, strict=True)}
        if len(values) != len(keys) or not {b"location"} <= set(values) <= _KEYS:
            raise Refusal(f"external data have the keys {', '.join(sorted(map(_text, keys)))!r}")
        name = _text(values[b"location"])
        if not _NAME.fullmatch(values[b"location"]):
            raise Refusal(f"external data in {name!r}, which is not the plain name of a file")
        if name not in self._sizes:
            raise Refusal(f"external data in {name!r}, which the bundle does not list")
        numbers = [values.get(key, b"0") for key in (b"offset", b"length")]
        if not all(map(_NUMBER.fullmatch, numbers)):
            raise Refusal(f"external data in {name!r}: offset or length is not a number")
        offset, length = map(int, numbers)
        size = self._sizes[name]
        if offset + length > size:
            raise Refusal(f"external data reach beyond the end of {name!r}")
        if length == 0:  # the tensor takes the rest of the file
            length = size - offset
        self._external[name] = self._external.get(name, 0) + length


def _wire_type(kind: str, field: int) -> int | None:
    """Return the wire type of a field that is read, or None for other fields."""
    if field in _CHILDREN[kind] or field in _STRINGS.get(kind, ()):
        return BYTES
    if field in _NUMBERS.get(kind, ()):
        return VARINT
    return None


def _text(value: bytes) -> str:
    return value[:200].decode(errors="replace")
