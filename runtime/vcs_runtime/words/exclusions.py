"""Words that exclude each other: colours, numbers, sides, weekdays, antonyms. Lists of our own.

The vectors of such words are close together ("left" and "right", "red" and "blue"), because they stand in the
same places. A list has to say that they differ. Two different words that begin with a digit exclude each
other, too.
"""

from __future__ import annotations

import functools
from typing import Final

from vcs_runtime.words.lists import FUNCTION_WORDS
from vcs_runtime.words.stems import stem

GROUPS_OF_A_WORD: Final = 4
"""Largest number of groups that a word is in."""

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


@functools.cache
def members() -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the groups of each stem, each with the stem's place in it."""
    found: dict[str, list[tuple[int, int]]] = {}
    for group, line in enumerate(filter(None, _GROUPS.splitlines()), 1):
        for place, words in enumerate(line.split()):
            for word in words.split("/"):
                if word not in FUNCTION_WORDS:
                    found.setdefault(stem(word), []).append((group, place))
    return {word: tuple(groups) for word, groups in found.items()}


_DIGITS: Final = 0  # the group of words that begin with a digit


def groups_of(word_stem: str, number: int) -> tuple[tuple[int, int], ...]:
    """Return the groups of a stem, with its place in each.

    Two stems exclude each other if they are in one group at different places.

    Parameters
    ----------
    word_stem
        The stem.
    number
        A number that only this stem has: its place among those that begin with a digit.

    Returns
    -------
    tuple
        At most GROUPS_OF_A_WORD groups, each with a place.
    """
    if word_stem[:1].isdigit():
        return ((_DIGITS, number),)
    return members().get(word_stem, ())
