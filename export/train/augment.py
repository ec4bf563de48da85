"""Variations of a description for training: other names, shorter sentences, lost capitals.

Descriptions written for a benchmark say "the man in a yellow suit" where scripts and audio descriptions say
"Victor", and their sentences are long. A model trained on them unchanged takes every capital for the start of
a sentence. Therefore person phrases become names, compound sentences are cut at their conjunctions, phrases
of place move to the front, and opening formulas are removed. The variations change existing text and add no
sentence. The result need not be good English, but its sentence ends must be sentence ends.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_WOMEN = (
    "Abby Joy Anna Maria Sarah Emma Olivia Grace Ruth Clara Nina Rosa Helen Alice Julia Kate Lucy Mary Jane "
    "Susan Laura Sophie Amy Rachel Diane Carol Linda Betty Ellen Martha Fiona Ingrid Priya Mei Yuki Fatima "
    "Leila Aisha Elena Katya Bella Claire Hannah Molly Peggy Tess Vera Wendy Zoe Iris"
).split()
_MEN = (
    "Mike Colin John James Peter Paul David Daniel Tom Sam Ben Jack Harry George Frank Robert Henry Oscar "
    "Victor Leo Max Adam Simon Ron Will Luke Mark Eric Carl Hugo Ivan Omar Ali Raj Chen Kenji Diego Carlos "
    "Pedro Luis Marco Andre Pierre Hans Bruno Alan Gary Neil Roger Walter Edgar"
).split()
_SURNAMES = (
    "Smith Jones Potter Stark Wayne Brown Wilson Moore Taylor White Hall Green Baker Stone Fox Reed Hart "
    "Lane Blake Drake Quinn Cole Hayes Grant Marsh Doyle Novak Rossi Kim Park Singh Khan"
).split()
_SYLLABLES = (
    "ba bo da dri fen ga gor hal ik jo ka la lin mar mo na nor ri ro sa sel ta tor ul va vin za zel".split()
)
_TITLES = {
    True: "Mrs Miss Dr Aunt Lady Agent Professor".split(),
    False: "Mr Dr Captain Agent Uncle Sir".split(),
}
_FEMALE = "woman|lady|girl|mother|waitress|actress|female"
_MALE = (
    "man|boy|guy|gentleman|father|driver|officer|soldier|male|person|individual|character|figure|passenger|"
    "speaker|doctor|detective|host"
)
_ADJECTIVES = (
    "young|old|older|elderly|bespectacled|bald|bearded|tall|blonde|dark-haired|other|first|second|third|main|"
    "same|suited|brunette|middle-aged|black|white|injured|masked|armed|smiling|seated|standing|red-haired|"
    "long-haired|little|angry|new|another|uniformed|mysterious"
)
_WORN = (
    "shirt|suit|hat|jacket|dress|coat|hair|glasses|uniform|sweater|beard|robe|outfit|vest|cap|blouse|tie|"
    "helmet|mask|top"
)
# "the young man", "a woman in a red dress": article, adjectives, noun, clothes.
_PERSON = re.compile(
    rf"\b([Tt]he|[Aa]n?|[Aa]nother)\s+((?:(?:{_ADJECTIVES})\s+){{0,2}})({_FEMALE}|{_MALE})\b(?!-)"
    rf"((?:\s+(?:in|with|wearing)\s+(?:a|an|the)?\s*(?:[a-z-]+\s+){{0,3}}(?:{_WORN}))?)"
)
# Other subjects and objects that a name can stand for: "The car stops", "hands it to the waiter".
_THING = re.compile(
    r"^(?:The|An?|Another)\s+(?:(?!of\b|in\b|with\b|and\b)[a-z-]+\s+){1,3}?(?=(?:is|has|[a-z]+[^su\W]s)\s)"
)
_OBJECT = re.compile(
    r"(?<=\s)(to|at|towards?|with|behind|beside|from|for|follows|watches|sees|hugs|hits|and)\s+"
    r"(?:the|an?|his|her|another)\s+[a-z-]+(?=\s|[,.!?]|$)"
)
# "is seen walking", "are talking": scripts say "walks" and "talk".
_VERBS = dict(
    pair.split(":")
    for pair in """
    walking:walk standing:stand sitting:sit talking:talk looking:look running:run holding:hold
    wearing:wear driving:drive smiling:smile speaking:speak watching:watch moving:move pointing:point
    turning:turn opening:open entering:enter firing:fire aiming:aim fighting:fight dancing:dance
    riding:ride eating:eat drinking:drink playing:play laughing:laugh kneeling:kneel crouching:crouch
    reaching:reach pushing:push pulling:pull throwing:throw approaching:approach leaning:lean
    falling:fall chasing:chase following:follow waiting:wait preparing:prepare writing:write
    reading:read cooking:cook typing:type screaming:scream shouting:shout yelling:yell jumping:jump
    climbing:climb swimming:swim shooting:shoot hitting:hit getting:get putting:put cutting:cut
    using:use taking:take making:make giving:give leaving:leave coming:come adjusting:adjust
    pouring:pour handing:hand helping:help hiding:hide exiting:exit gesturing:gesture staring:stare
    sleeping:sleep singing:sing crying:cry
    """.split()
)
_PROGRESSIVE = re.compile(
    rf"\b(is|are)\s+(?:seen\s+|shown\s+|now\s+|also\s+|then\s+|still\s+)?({'|'.join(_VERBS)})\b"
)
# A finite verb after a first word. A piece without one is not a sentence.
_FINITE = re.compile(r"\s(?:is|are|has|[a-z]+[^su\W]s)\b")
_VERB_FIRST = re.compile(r"[a-z]+[^su\W]s\b")
# A subject and its verb: "he turns", "the car slowly stops", "Victor is".
_SUBJECT = (
    r"(?=(?:he|she|they|it)\s|(?:the|a|an|another|his|her|[A-Z][a-z]+)\s"
    r"(?:(?!(?:in|with|of|on|at|and|wearing|from|to|who)\b)[a-z-]+\s){0,3}?(?:is|are|[a-z]+[^su\W]s)\s)"
)
# Where a clause with a subject of its own begins.
_CLAUSE = re.compile(
    rf",?\s+(?:and|while|as|but|then|and then|before|where)\s+{_SUBJECT}|,\s+{_SUBJECT}|;\s+{_SUBJECT}"
)
_MIN_CLAUSE_WORDS = 4
_FORMULA = re.compile(
    r"^The (?:video|scene|camera|clip|shot|footage|film)\s+(?:(?:then|now|opens with|begins with|starts with|"
    r"shifts to|cuts to|transitions to|shows|pans to|returns to|focuses on)\s+)+"
    r"|^(?:Next|Then|Finally|Meanwhile|Afterwards?|Subsequently|As the (?:video|scene) [a-z]+),\s+"
)
# Verbs of a comment that a language model appends to a sentence.
_COMMENTING = (
    r"(?:suggesting|indicating|creating|adding|emphasizing|highlighting|implying|conveying|showing|including|"
    r"capturing|causing|giving|making|leading)\b"
)
_COMMENT = re.compile(rf",\s+(?:{_COMMENTING}|(?:possibly|likely)\b).*")
_PREPOSITION = (
    "in|on|at|inside|outside|near|behind|across|beside|under|with|from|through|over|around|along|during|amid"
)
# A clause of time, a participle or a place, which can end a sentence or begin it.
_MOVABLE = re.compile(
    rf",?\s+((?:as|while|when|before|after)\s+{_SUBJECT}[^,]+?|"
    rf"(?<=,\s)(?!{_COMMENTING})[a-z]+ing\s[^,]+?|"
    rf"(?:{_PREPOSITION})\s+(?:the|an?|his|her|their|another|one)\s+"
    r"(?:(?!(?:and|or|who|that|which|is|are|to|as|while|where)\b)[a-z'-]+\s?){1,4}?)(?=[.!?]?$)"
)
# A beginning that is not a sentence, even if it has a verb.
_FRONTED = re.compile(
    rf"(?:{_PREPOSITION}|to|into|by|for|as|while|when|before|after|if|once|since|until|despite|throughout|[a-z]+ing)\b",
    re.IGNORECASE,
)
_SCENERY = re.compile(rf"\b(?:{_PREPOSITION})\s+(?:the|an?|his|her|their)\s+[a-z-]+\b(?!\s+of\b)")
_OPENINGS = (
    "Later", "Now", "Outside", "Inside", "Upstairs", "At night", "In the morning", "Elsewhere", "Back home",
    "At last", "Suddenly", "Nearby", "Downstairs", "In the distance", "A moment later", "On set", "At school",
)  # fmt: skip


def augment(sentences: Sequence[str], rng: random.Random) -> list[str]:
    """Return a variation of a document, sentence by sentence. Some documents stay unchanged."""
    result = list(sentences)
    if rng.random() < 0.6:
        result = [_terse(sentence, rng) for sentence in result]
    if rng.random() < 0.8:
        result = _name_people(result, rng)
    if rng.random() < 0.7:
        rate = rng.choice([0.3, 0.6, 0.9])
        result = [clause for sentence in result for clause in _clauses(sentence, rng, rate)]
    if rng.random() < 0.75:
        result = _reopen(result, rng)
    return result


def recase(words: Sequence[str], ends: Sequence[int], rng: random.Random) -> list[str]:
    """Return words unchanged or in lower case (each almost half of the time), or with some capitals lost.

    `ends` is 1 for each word that ends a sentence, else 0.
    """
    draw = rng.random()
    if draw < 0.42:
        return list(words)
    if draw < 0.9:
        return [word.lower() for word in words]
    starts = [1, *ends[:-1]]
    if draw < 0.95:  # some sentences begin in lower case
        rate = rng.choice([0.05, 0.2])
        return [
            word.lower() if start and rng.random() < rate else word
            for word, start in zip(words, starts, strict=True)
        ]
    if draw < 0.98:  # some names do
        return [
            word if start or rng.random() < 0.5 else word.lower()
            for word, start in zip(words, starts, strict=True)
        ]
    return [word.upper() for word in words]


def _name_people(sentences: Sequence[str], rng: random.Random) -> list[str]:
    """Replace person phrases by names, and some at the start of a sentence by pronouns.

    Some other subjects and objects become names too, so that a small cast appears throughout the document.
    """
    names: dict[tuple[str, str, str], str] = {}
    cast = [_draw_name(rng.random() < 0.5, rng) for _ in range(rng.randint(2, 6))]
    rate, pronouns, things = rng.choice([0.5, 0.8, 1.0]), rng.choice([0.1, 0.3]), rng.choice([0.0, 0.2, 0.5])

    def person(match: re.Match[str]) -> str:
        if rng.random() > rate:
            return match[0]
        female = re.fullmatch(_FEMALE, match[3]) is not None
        key = (match[2].strip(), match[3], match[4].strip())
        if key not in names:
            names[key] = _draw_name(female, rng)
        if match[1][0].isupper() and rng.random() < pronouns:
            return "She" if female else "He"
        return names[key]

    def thing(match: re.Match[str]) -> str:
        return f"{rng.choice(cast)} " if rng.random() < things else match[0]

    def target(match: re.Match[str]) -> str:
        return f"{match[1]} {rng.choice(cast)}" if rng.random() < things else match[0]

    named = (_PERSON.sub(person, sentence) for sentence in sentences)
    return [_OBJECT.sub(target, _THING.sub(thing, sentence)) for sentence in named]


def _draw_name(female: bool, rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.08:
        return f"{rng.choice(_TITLES[female])} {rng.choice(_SURNAMES)}"
    if draw < 0.35:  # an invented name, so that the model learns names by their position
        return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 3))).capitalize()
    first = rng.choice(_WOMEN if female else _MEN)
    return f"{first} {rng.choice(_SURNAMES)}" if draw < 0.4 else first


def _clauses(sentence: str, rng: random.Random, rate: float) -> list[str]:
    """Cut a sentence before some of its clauses. Each piece begins with a capital."""
    pieces = []
    start = 0
    for match in _CLAUSE.finditer(sentence):
        before, after = sentence[start : match.start()], sentence[match.end() :]
        long_enough = min(len(before.split()), len(after.split())) >= _MIN_CLAUSE_WORDS
        if long_enough and not _FRONTED.match(before) and rng.random() < rate:
            pieces.append(before)
            start = match.end()
    pieces.append(sentence[start:])
    return [_capital(piece) for piece in pieces]


def _terse(sentence: str, rng: random.Random) -> str:
    """Remove the opening formula and the closing comment of a sentence, most of the time."""
    # The rest must be a sentence: "a man runs", not "a man running".
    rest = _FORMULA.sub("", sentence)
    if rng.random() < 0.8 and _FINITE.search(rest) and not _VERB_FIRST.match(rest):
        sentence = rest
    if rng.random() < 0.7:
        sentence = _COMMENT.sub("", sentence)
    if rng.random() < 0.6:
        sentence = _PROGRESSIVE.sub(_simple_present, sentence)
    head = sentence.split(",")[0]
    if rng.random() < 0.35 and _FINITE.search(head) and not _FRONTED.match(head):
        sentence = head
    return _capital(sentence)


def _simple_present(match: re.Match[str]) -> str:
    verb = _VERBS[match[2]]
    if match[1] == "are":
        return verb
    if verb.endswith(("ch", "sh", "s", "x")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if verb.endswith("ry") else f"{verb}s"


def _reopen(sentences: Sequence[str], rng: random.Random) -> list[str]:
    """Move the ends of some sentences to their beginning, or begin them with a place from another sentence.

    Examples are "As she speaks" and "On the table". Without the comma, they look like the end of the sentence
    before.
    """
    rate = rng.choice([0.1, 0.25, 0.5])
    openings = [*_OPENINGS, *(match[0] for sentence in sentences for match in _SCENERY.finditer(sentence))]
    result = []
    for sentence in sentences:
        draw = rng.random()
        match = _MOVABLE.search(sentence) if draw < rate else None
        if match and len(sentence[: match.start()].split()) > 2:
            sentence = f"{_capital(match[1])}, {_lower_start(sentence[: match.start()])}"
        elif draw > 0.94:
            sentence = f"{_capital(rng.choice(openings))}, {_lower_start(sentence)}"
        result.append(sentence)
    return result


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lower_start(text: str) -> str:
    """Return the text with a small first letter if its first word is not a name."""
    first = text.split(" ", 1)[0]
    common = {"The", "A", "An", "He", "She", "They", "It", "His", "Her", "Their", "Two", "Another", "Some"}
    common |= {"One", "There", "This", "These", "Both", "Its", "Several", "Someone"}
    return text[:1].lower() + text[1:] if first in common else text
