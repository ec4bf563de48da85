"""English as far as substitution needs it: function words, words that negate, irregular forms, stems.

The lists are our own. Stems are what the forms of a word have in common: no words, and never shown.
"""

from __future__ import annotations

import re
from typing import Final

FUNCTION_WORDS: Final = frozenset(
    """
    a an the this that these those some any each every another other others such same own both all either
    neither no none i me my mine myself you your yours yourself he him his himself she her hers herself it its
    itself we us our ours ourselves they them their theirs themselves one ones someone somebody something
    anyone anybody anything everyone everybody everything nobody nothing who whom whose which what whoever
    whatever am is are was were be been being has have had having do does did doing will would shall should
    can could may might must and or but nor so yet for if then than as because while when where why how since
    until till unless although though whereas whether after before once of to in on at by with from into onto
    upon out off over under up down about above below between among through during against toward towards
    along across around behind beside besides near within without inside outside beyond past via per amid
    amidst atop away back forth forward together apart not n't there here now just also too very quite rather
    still even only again ever never always almost much many more most less least few several lot lots
    cannot s t d ll re ve m
    """.split()
)
"""Words that say little alone. A word that ends in n't is one, too."""

NEGATORS: Final = frozenset("not never no without cannot nor neither hardly".split())
"""Words that negate the content word after them. A word that ends in n't does so, too."""

_FORMS = """
go went gone goes going;see saw seen;take took taken;give gave given;get got gotten;come came;run ran;sit sat
stand stood;hold held;leave left;find found;make made;tell told;say said;hear heard;fall fell fallen
rise rose risen;throw threw thrown;catch caught;bring brought;buy bought;think thought;feel felt;keep kept
lose lost;meet met;pay paid;ride rode ridden;ring rang rung;send sent;shake shook shaken;shoot shot
show shown;sing sang sung;sleep slept;speak spoke spoken;spend spent;steal stole stolen;swim swam swum
swing swung;teach taught;tear tore torn;wake woke woken;wear wore worn;win won;write wrote written
break broke broken;build built;draw drew drawn;drink drank drunk;drive drove driven;eat ate eaten
fight fought;fly flew flown flies;hang hung;hide hid hidden;lie lay lain lied lying lies;lead led;light lit
slide slid;spin spun;stick stuck;strike struck stricken;sweep swept;bend bent;bind bound;bite bit bitten
blow blew blown;choose chose chosen;cling clung;creep crept;dig dug;deal dealt;feed fed;flee fled;fling flung
forget forgot forgotten;freeze froze frozen;grow grew grown;kneel knelt;know knew known;lean leant
leap leapt;seek sought;sell sold;sink sank sunk;spring sprang sprung;spit spat;weep wept;wind wound
begin began begun;become became;bear bore borne;beat beaten;sew sewn;shine shone;shrink shrank shrunk
stride strode;swear swore sworn;understand understood;use used using uses
man men;woman women;child children;foot feet;tooth teeth;mouse mice;person people;wife wives;knife knives
life lives;half halves;shelf shelves;thief thieves;wolf wolves
die died dying dies;tie tied tying ties
"""
IRREGULAR: Final = {
    form: line.split()[0]
    for line in _FORMS.replace("\n", ";").split(";")
    if line
    for form in line.split()[1:]
}
"""The base of each irregular form. "leaves" is not one: in descriptions it is mostly the verb."""

_VOWEL = re.compile("[aeiouy]")
_SIBILANTS = ("s", "x", "z", "ch", "sh")


def stem(word: str) -> str:
    """Return the stem of a word: two words with one stem count as the same."""
    return _regular(IRREGULAR.get(word, word).replace("'", ""))


def _regular(word: str) -> str:
    if len(word) > 4:
        if word.endswith(("ies", "ied")):
            return word[:-3] + "y"
        for ending in ("ingly", "edly"):
            if word.endswith(ending) and len(word) - len(ending) >= 3:
                return _closed(word[: -len(ending)])
        if word.endswith("ily"):
            return word[:-3] + "y"
        if word.endswith("ly") and len(word) > 5:
            word = word[:-2]
    if len(word) > 3:
        for ending, shortest in (("ing", 6), ("ed", 5)):
            base = word[: -len(ending)]
            if word.endswith(ending) and len(word) >= shortest and _VOWEL.search(base):
                return _closed(base)
        if word.endswith("es") and word[:-2].endswith(_SIBILANTS):
            return word[:-2]
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    return _without_e(word)


def _closed(base: str) -> str:
    """Return what stood before -ing or -ed: one letter of a doubled one, and no final e."""
    doubled = base[-1:] == base[-2:-1]
    if doubled and ((len(base) > 3 and base[-1] not in "lsz") or (len(base) > 4 and base[-1] == "l")):
        return base[:-1]
    return _without_e(base)


def _without_e(word: str) -> str:
    return word.rstrip("e") if len(word) > 3 else word
