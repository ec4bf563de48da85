"""WordPiece: characters to token ids, by the longest matches in a trie of hashed edges."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba.jit.kernel import Kernel, array, helper, types

Ints = npt.NDArray[np.int64]
Characters = npt.NDArray[np.int32]
#: Bits of each part of an edge: node, character, next node, which is id + 1 for a token; 0 is no
#: edge.
BITS: Final = 21
_NODE: Final = (1 << BITS) - 1
#: Words of one token that a call remembers, since most occur again: up to 9 letters of 7 bits.
_WORDS: Final = 4093
#: Special entries of the table of characters. Other entries are twice the character that replaces a
#: character, plus 1 if it is always a word alone.
UNKNOWN, DROPPED, SPACE = -1, 0, 1


@helper
def _place(edges: Ints, node: int, character: int) -> int:
    """Return where the edge of a node with a character is in the table, or would be."""
    key = (node << BITS) | character
    mask = len(edges) - 1
    place = ((node * 0x9E3779B1 + character * 0x85EBCA6B) >> 7) & mask
    while edges[place] != 0 and edges[place] >> BITS != key:
        place = (place + 1) & mask
    return place


def _grow(characters: Characters, ends: Ints, ids: Ints, edges: Ints) -> int:
    """Add strings, the shortest first, and return the node of the last one.

    A string that is not a token has the id -1.
    """
    free = max(ids) + 2
    begin = node = 0
    for k in range(len(ends)):
        node = 0
        for i in range(begin, ends[k]):
            character = int(characters[i])  # plain NumPy would stay in 32 bits
            place = _place(edges, node, character)
            if edges[place] == 0:
                # No earlier string is longer, so that none has gone through the node of a token.
                enters = ids[k] + 1 if i + 1 == ends[k] and ids[k] >= 0 else free
                free += enters == free
                edges[place] = (((node << BITS) | character) << BITS) | enters
            node = edges[place] & _NODE
        begin = ends[k]
    return node


class Trie(NamedTuple):
    """The tokens of a vocabulary."""

    edges: Ints
    inside: int  # node at which the second and later tokens of a word begin
    size: int  # number of ids
    unknown: int  # id of the token for unknown words


class Word(NamedTuple):
    """The characters of a word, and where they stand in the text."""

    characters: Ints  # (longest + 1,)
    places: Ints


class Tokens(NamedTuple):
    """The tokens of all texts."""

    ids: Ints
    spans: Ints  # (n, 2), or empty if nobody needs them


@helper
def _add_word(word: Word, length: int, trie: Trie, tokens: Tokens, at: int) -> int:
    """Write the tokens of a word, or the unknown token; return the position after them."""
    edges, ids, spans, places = trie.edges, tokens.ids, tokens.spans, word.places
    longest = len(word.characters) - 1
    first = at
    start = 0 if length <= longest else length + 1
    while start < length:
        node = trie.inside if start else 0
        stop = length + 1  # there is no token
        for i in range(start, length):
            node = edges[_place(edges, node, word.characters[i])] & _NODE
            if node == 0:
                break
            if node <= trie.size:
                ids[at], stop = node - 1, i + 1
        if len(spans) and stop <= length:
            spans[at, 0], spans[at, 1] = places[start], places[stop - 1] + 1
        at += 1
        start = stop
    if start == length:
        return at
    ids[first] = trie.unknown
    if len(spans):
        spans[first, 0], spans[first, 1] = places[0], places[min(length, longest + 1) - 1] + 1
    return first + 1


def _encode(
    characters: Characters,
    ends: Ints,
    table: Ints,
    tokens_of_words: tuple[Ints, int, int, int],
    longest: int,
    special: tuple[Ints, Ints],
    out: tuple[Ints, Ints, Ints],
) -> None:
    """Write the ids and spans of the tokens of all texts, and the end of each text, to `out`.

    `tokens_of_words` has the fields of `Trie`; words have up to `longest` characters; `special` are
    the tokens before and after each text. An end is -1 for a text with an unknown character.
    """
    edges, inside, size, unknown = tokens_of_words
    trie = Trie(edges, inside, size, unknown)
    before, after = special
    ids, spans, stops = out
    tokens = Tokens(ids, spans)
    word = Word(np.empty(longest + 1, np.int64), np.empty(longest + 1, np.int64))
    known = np.zeros((_WORDS, 2), np.int64)  # the letters of a word as one number, and its token
    first = begin = 0
    for k in range(len(ends)):
        at = first + len(before)
        length, alone, kind, code = 0, 0, SPACE, 0
        for i in range(begin, ends[k] + 1):
            kind = SPACE
            if i < ends[k]:
                kind = table[characters[i]] if characters[i] < len(table) else UNKNOWN
            if kind == UNKNOWN:
                break
            if kind == DROPPED:
                continue
            if length and (alone or kind & 1):
                slot, start = code % _WORDS, at
                repeated = code > 0 and known[slot, 0] == code
                if repeated and not len(spans):
                    ids[at] = known[slot, 1]
                    at += 1
                else:
                    at = _add_word(word, length, trie, tokens, at)
                    if at == start + 1:
                        known[slot, 0], known[slot, 1] = code, ids[start]
                length = code = 0
            if kind != SPACE:
                # A word that is too long has its first characters, and the place of its last one.
                place = min(length, longest)
                word.characters[place], word.places[place] = kind >> 1, i - begin
                length += 1
                alone = kind & 1
                code = (code << 7) | (kind >> 1) if 0 <= code < 1 << 56 and kind < 256 else -1
        begin = ends[k]
        stops[k] = -1
        if kind != UNKNOWN:
            ids[first : first + len(before)] = before
            ids[at : at + len(after)] = after
            spans[first : first + len(before)] = -1
            spans[at : at + len(after)] = -1
            first = at + len(after)
            stops[k] = first


_INTS: Final = array(types.int64, 1)
_CHARACTERS: Final = array(types.int32, 1, readonly=True)
GROW: Final = Kernel(_grow, _CHARACTERS, _INTS, _INTS, _INTS)
ENCODE: Final = Kernel(
    _encode,
    _CHARACTERS,
    _INTS,
    _INTS,
    (_INTS, types.int64, types.int64, types.int64),
    types.int64,
    (_INTS, _INTS),
    (_INTS, array(types.int64, 2), _INTS),
)
