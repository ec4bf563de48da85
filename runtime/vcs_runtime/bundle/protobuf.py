"""Protobuf's wire format, as far as ONNX files need it: fields of a message are found, and a few written.

https://protobuf.dev/programming-guides/encoding/ describes the format.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types of fields."""

_MAX_FIELDS = 1_000_000  # some ten times what the largest graphs have


class Refusal(Exception):
    """Why a file is refused."""


class Reader:
    """The fields of messages in a file; places are offsets, so that weights in it are never copied."""

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
                raise Refusal("this is no ONNX graph: a field has an impossible type")
            if at > stop:
                raise Refusal("this is no ONNX graph, or its end is missing")
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
        raise Refusal("this is no ONNX graph, or its end is missing")

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
