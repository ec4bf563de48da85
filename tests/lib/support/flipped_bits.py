"""Damage to the only entry of a cache of vectors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator


def each_flipped_bit(db: sqlite3.Connection) -> Iterator[int]:
    """Flip each bit of the entry in turn, and yield its number; restore the entry at the end."""
    [(blob,)] = db.execute("SELECT vector FROM vectors")
    for bit in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        db.execute("UPDATE vectors SET vector = ?", (bytes(damaged),))
        db.commit()
        yield bit
    db.execute("UPDATE vectors SET vector = ?", (blob,))
    db.commit()
