"""English word lists of our own: function words, words that negate, and irregular forms."""

from __future__ import annotations

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
