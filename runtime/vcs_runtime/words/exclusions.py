"""Words that exclude each other: colours, numbers, sides, weekdays, antonyms. Lists of our own.

The vectors of such words are close together ("left" and "right", "red" and "blue"), because they stand in the
same places. A list has to say that they differ. Two different words that begin with a digit exclude each
other, too.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import numpy.typing as npt

from vcs_runtime.words.english import FUNCTION_WORDS, stem

_NUMBERS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand"
)
# Any two words of a line exclude each other, unless they are one word in two spellings ("gray/grey").
_GROUPS = f"""
red blue green yellow white black brown pink purple orange gray/grey golden silver
{_NUMBERS}
left right
north south east west
first second third fourth fifth last
monday tuesday wednesday thursday friday saturday sunday
morning noon afternoon evening night
summer winter spring autumn
open close/shut
push pull
enter leave/exit
arrive leave/depart
raise lower
rise fall
lift drop
start stop
begin end/finish
win lose
buy sell
give take
throw catch
catch miss
laugh cry
smile frown
love hate
sit stand
hot cold
big/large small/tiny
long/tall short
old young
old new
fast/quick slow
loud quiet
wet dry
clean dirty
full empty
fill empty
happy sad
light/bright dark
high low
wide narrow
thick thin
heavy light
soft hard
rich poor
strong weak
early late
top bottom
front back
male female
man woman
boy girl
father mother
brother sister
son daughter
husband wife
king queen
alive dead
asleep awake
appear disappear
remember forget
ask answer
float sink
melt freeze
add remove
lock unlock
dress undress
accept refuse
attack defend
increase decrease
borrow lend
"""


#: The codes of words in no list, and of words that begin with a digit.
_NONE, _DIGITS = 0, 1


@functools.cache
def exclusion_codes() -> dict[str, int]:
    """Return the code of each stem that a list holds: its row of `excluding_table`."""
    stems = sorted({word for group in _groups() for place in group for word in place})
    return {word: code for code, word in enumerate(stems, _DIGITS + 1)}


def exclusion_code(word_stem: str) -> int:
    """Return the row of a stem in `excluding_table`; 0 for a stem that excludes nothing."""
    return _DIGITS if word_stem[:1].isdigit() else exclusion_codes().get(word_stem, _NONE)


@functools.cache
def excluding_table() -> npt.NDArray[np.bool_]:
    """Return which codes exclude each other, bool `(codes, codes)`: those in one line at different places.

    All words that begin with a digit have one code, which excludes itself. Equal stems exclude nothing.
    """
    codes = exclusion_codes()
    table = np.zeros((len(codes) + 2, len(codes) + 2), np.bool_)
    table[_DIGITS, _DIGITS] = True
    for group in _groups():
        for place, other in itertools.permutations(group, 2):
            for first, second in itertools.product(place, other):
                table[codes[first], codes[second]] = first != second
    table.flags.writeable = False
    return table


@functools.cache
def _groups() -> tuple[tuple[frozenset[str], ...], ...]:
    """Return the lines of the lists: the stems at each place."""
    return tuple(
        tuple(
            frozenset(stem(word) for word in words.split("/") if word not in FUNCTION_WORDS)
            for words in line.split()
        )
        for line in filter(None, _GROUPS.splitlines())
    )
