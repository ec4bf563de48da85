"""Sentences about people, things and what they do, made by a small grammar: text to train the fast tier on.

They need not make sense. They have to hold every word of a vocabulary, in the places of nouns, verbs and
adjectives.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

NOUNS = """
man woman boy girl child baby father mother brother sister friend neighbour teacher doctor nurse driver
soldier officer guard waiter singer actor painter farmer sailor pilot chef student stranger tourist crowd
couple family dog cat horse bird fish bear elephant monkey table chair door window wall floor ceiling
lamp bed sofa kitchen bathroom garage garden street road bridge river lake sea beach forest mountain hill
field farm city village house building tower church school hospital shop market restaurant bar station
train bus car truck bicycle boat ship plane phone letter book newspaper picture camera screen computer
television radio guitar piano violin drum ball bat knife fork plate cup glass bottle bag box suitcase
basket umbrella hat coat shirt dress shoe boot glove ring watch key money card gun sword rope ladder
hammer nail saw brush paint stone rock sand snow rain fire smoke light shadow sun moon star cloud wind
tree flower grass leaf apple bread cheese cake egg soup coffee tea water wine beer hand arm leg foot head
face eye mouth nose ear hair shoulder back finger smile tear voice song dance game race fight party
wedding funeral meeting speech lesson map flag mirror clock candle blanket pillow towel bucket broom
shovel engine wheel helmet uniform bench fence gate stairs roof corner balcony corridor office desk file
paper pen
""".split()
NAMES = """
Anna Peter Maria John Tom Sarah David Laura Michael Emma James Linda Robert Julia Henry Alice George
Clara Daniel Rosa Mike Abby Frank Helen
""".split()
PRONOUNS = "he she it they him her everyone nobody".split()
TRANSITIVE = """
opens closes takes grabs holds drops throws catches picks puts pushes pulls lifts carries moves turns
cuts breaks fixes cleans washes paints builds reads writes shows gives hands offers buys sells finds
loses hides follows watches sees notices meets greets hugs kisses hits kicks shoots chases leads helps
calls asks tells answers thanks warns covers fills empties drinks eats cooks bakes tastes smells touches
strokes lights burns rides drives parks boards leaves enters crosses climbs passes reaches points
""".split()
INTRANSITIVE = """
walks runs jumps falls sits stands kneels lies sleeps wakes laughs smiles cries shouts whispers sings
dances waits stops stumbles hurries turns nods waves stares frowns sighs coughs breathes swims rides
flies arrives disappears returns hesitates trembles rests works plays talks argues listens prays bows
limps crawls
""".split()
ADJECTIVES = """
old young tall short small big large little red blue green yellow black white brown grey dark bright
heavy light empty full open closed broken dirty clean wet dry cold hot warm new wooden metal golden
silver quiet loud happy sad angry tired nervous calm beautiful strange busy lonely narrow wide long thick
thin soft hard quick slow
""".split()
ADVERBS = """
slowly quickly quietly suddenly carefully gently angrily happily again then finally nervously together
alone outside inside away back
""".split()
PREPOSITIONS = """
in on at under over near behind beside across through into onto from towards along around with without
above between
""".split()
DETERMINERS = "the the the a a his her their this another one some two three".split()

# How often a place of the grammar is filled from the vocabulary; one of these for each text.
_SHARES = (0.0, 0.1, 0.3, 0.6)
_PLURAL = 0.12


class Grammar:
    """Draws texts at random."""

    def __init__(self, words: Sequence[str], seed: int) -> None:
        self._words = words
        self._random = random.Random(seed)
        self._share = 0.0

    def texts(self, count: int) -> list[str]:
        """Return texts: four in five are a sentence, the others some words, or up to twelve sentences."""
        texts = []
        for _ in range(count):
            self._share = self._random.choice(_SHARES)
            kind = self._random.random()
            if kind < 0.8:
                texts.append(self._sentence())
            elif kind < 0.9:
                self._share = 1.0
                texts.append(" ".join(self._of(NOUNS) for _ in range(self._random.randint(1, 12))))
            else:
                texts.append(". ".join(self._sentence() for _ in range(self._random.randint(2, 12))) + ".")
        return texts

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _word(self) -> str:
        """Draw a word of the vocabulary, frequent ones more often."""
        return self._words[int(len(self._words) * self._random.random() ** 1.5)]

    def _of(self, words: Sequence[str], share: float = 1.0) -> str:
        return self._word() if self._chance(self._share * share) else self._random.choice(words)

    def _noun_phrase(self) -> str:
        kind = self._random.random()
        if kind < 0.06:
            return self._random.choice(NAMES)
        if kind < 0.12:
            return self._random.choice(PRONOUNS)
        words = [self._random.choice(DETERMINERS)]
        while self._chance(0.3):
            words.append(self._of(ADJECTIVES))
        words.append(self._of(NOUNS) + ("s" if self._chance(_PLURAL) else ""))
        return " ".join(words)

    def _place(self) -> str:
        return f"{self._random.choice(PREPOSITIONS)} {self._noun_phrase()}"

    def _clause(self, subject: bool = True) -> str:
        parts = [self._noun_phrase()] if subject else []
        if self._chance(0.15):
            parts.append(self._random.choice(ADVERBS))
        if self._chance(0.62):
            parts += [self._of(TRANSITIVE, 0.6), self._noun_phrase()]
        else:
            parts.append(self._random.choice(INTRANSITIVE))
        while self._chance(0.42):
            parts.append(self._place())
        if self._chance(0.12):
            parts.append(self._random.choice(ADVERBS))
        return " ".join(parts)

    def _sentence(self) -> str:
        clause = self._clause()
        kind = self._random.random()
        if kind < 0.25:
            clause += f" and {self._clause(self._chance(0.3))}"
        elif kind < 0.33:
            clause += f" while {self._clause()}"
        elif kind < 0.40:
            clause = f"as {self._clause()} {clause}"
        elif kind < 0.45:
            clause += f" who {self._clause(subject=False)}"
        elif kind < 0.50:
            clause = f"{self._place()} {clause}"
        return clause[0].upper() + clause[1:]
