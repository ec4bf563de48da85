"""CIDEr as pycocoevalcap computes it: n-grams in few items weigh more than those in every item.

Vedantam et al. 2015 (https://arxiv.org/abs/1411.5726). What pycocoevalcap and the papers call CIDEr
is its variant CIDEr-D: counts are clipped, and another length is punished by a Gaussian.

Words follow the tokenizer of Stanford CoreNLP 3.4.1, which pycocoevalcap runs: in lower case,
without 17 kinds of punctuation. No code of CoreNLP is here: the rules were derived from its
answers. Both gave the same words for 7,315 texts (the script `cider` at 07564bf).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from vcs_experiments.metrics.corpus import Corpus

# pycocoevalcap leaves these out after the words are in lower case. So it keeps "-lrb-", a
# parenthesis.
_LEFT_OUT = frozenset(("''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"))
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_REWRITTEN = {
    **_BRACKETS,
    **dict.fromkeys('"“”«»„', "''"),
    **dict.fromkeys("‘’‹›", "'"),
    "…": "...",
    "£": "#",
    "€": "$",
    "¢": "cents",
    "½": "1/2",
    "¼": "1/4",
    "¾": "3/4",
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
    "&quot;": "''",
    "&nbsp;": "",
}

_APOSTROPHE = "['’]"
# Python counts these among letters and digits.
_RAISED = "¹²³¼½¾"
_LETTER = rf"[^\W\d_{_RAISED}]"
_REST = rf"[^\W_{_RAISED}]*"
_WORD = rf"{_LETTER}{_REST}(?:_+{_LETTER}{_REST}|[.!?]{_LETTER}{_REST})*"
_NOT = r"n['’`‘]t(?![a-z])"
# A full stop belongs to these words.
_ABBREVIATIONS = """
    adj adm al ala alex apr ariz assn assoc asst attys? aug ave bancorp bhd bldg blvd brig bros
    calif capt cf cie cmdr colo? comdr conn corp cos? cpl ct dec dept det drs? esq est etc ext feb
    fla fri ft ga gen govs? hon inc ind insp intl jan jos jr jul jun kans? ky lieut lt ltd maj mar
    md messrs mfg mich minn mlle mme mont? mr mrs ms msgr mt natl neb nev nov oct okla penn pfc ph
    plc pp?ty pptys pres profs? pte pvt rd reps? rev rt sens? sep sept seq sgt spc sq sr ste? supts?
    sys tel tenn thurs? thu tues? univ va vs vt wed wis wisc wm wyo
""".split()
# "mass." in lower case is a word.
_CAPITALISED = "Ark Az Del Ill La Mass Miss Ore Pa Tex Wash".split()
_BEFORE_NUMBERS = "art ca figs? nos? op pp prop".split()
# After a single letter and a full stop, these begin another sentence.
_STARTERS = """
    A About According Additionally After An As At But Earlier He Her Here However If In It Last Many
    More Now Once One Other Our She Since So Some Such That The Their Then There These They This We
    What When While Yet You
""".split()

# The first that fits is taken, at each place. What may end in vain has a largest length, so that
# the time grows with the text. All letters stand for both cases, except after (?-i:.
_KINDS = {
    "tag": r"</?[a-z!][^<>]*>",
    "address": (
        r"https?://[^\s\"<>|()]+[^\s\"<>|.!?(){},-]"
        r"|(?:[a-z0-9-]{1,63}\.){1,9}(?:com|net|org|edu)\b(?:/[^\s\"<>|()]+[^\s\"<>|.!?(){},-])?"
        r"|[a-z0-9][^\s\"<>|(),;:@]{0,99}@(?:[a-z0-9]{1,63}\.){1,9}[a-z]+"
    ),
    "handle": r"@[a-z_][a-z_0-9]*|\#[^\W\d_]\w*|c\+\+|[cf]\#(?!\w)",
    "face": r"[<>]?[:;=][-o*']?[()DP](?!\w)|[-^]_[-^]",
    "date": r"\d{1,2}[-/]\d{1,2}[-/]\d{2,4}(?!\w)",
    "slashed": r"[a-z0-9]+(?:-[a-z]+){0,2}(?:/[a-z0-9]+(?:-[a-z]+){0,2}){1,2}",
    "decade": r"['’‘]\d0s|['’]\d\d(?![\d.:,])",
    "elided": (
        r"['’]n['’]|['’](?:em|cause|til)|ol['’]|c['’]mon|ma['’]am|cap['’]n|s['’]mores"
        r"|n?e['’]er|y['’](?=all)"
        rf"|[dlo]['’](?![smd]\b|ll\b|re\b|ve\b){_LETTER}{_REST}"
    ),
    "joined": r"(?:can(?=not\b)|gon(?=na\b)|got(?=ta\b)|wan(?=na\b)|lem(?=me\b)|gim(?=me\b))",
    "initials": r"(?:ph|ed)\.d\.|[a-z](?:\.[a-z])+\.(?![a-z])",
    "abbreviation": (
        rf"(?:{'|'.join(_ABBREVIATIONS)}|(?-i:{'|'.join(_CAPITALISED)}"
        rf"|{'|'.join(word.upper() for word in _CAPITALISED)}))\.(?!\w)"
        rf"|(?:{'|'.join(_BEFORE_NUMBERS)})\.(?=\s?\d)"
    ),
    "initial": rf"[a-z]\.(?!\w|\.|\s+(?-i:{'|'.join(_STARTERS)})\b)",
    "hyphened": (
        rf"[a-z0-9](?:[a-z0-9.,]{{0,99}}[a-z0-9])?(?:-[a-z0-9]+)+(?!{_APOSTROPHE}t)"
        rf"|{_LETTER}+(?:-{_LETTER}+)+"
    ),
    "before_not": rf"{_LETTER}+?(?={_NOT})",
    "not": _NOT,
    "contracted": rf"{_APOSTROPHE}(?:[smd]|re|ve|ll)(?![a-z])",
    "companies": r"(?-i:[A-Z]+(?:[+&][A-Z]+)+)",
    "number": r"[-+]?(?:\d*(?:[.:,]\d+)+|\d+(?!\w))",
    "word": _WORD,
    "digits": rf"\d{_REST}",
    "underlined": r"\*+|_+",
    "entity": r"&(?:amp|lt|gt|quot|nbsp);",
    "dash": r"-{2,}|[–—]",
    "stops": r"\.{3,}|[!?]{2,}|''|``",
    "sign": r"[^\s\ud800-\udfff\U00010000-\U0010ffff]",
}
_TOKEN = re.compile("|".join(f"(?P<{name}>{kind})" for name, kind in _KINDS.items()), re.IGNORECASE)


def ptb_words(text: str) -> list[str]:
    """Split an English text into words in lower case, without punctuation."""
    words = (_written(match) for match in _TOKEN.finditer(text.replace("\N{SOFT HYPHEN}", "")))
    return [word for word in words if word and word not in _LEFT_OUT]


def _written(match: re.Match[str]) -> str:
    """Return a token as the Penn Treebank writes it."""
    kind, token = match.lastgroup, match.group()
    if kind in ("sign", "entity"):
        return _REWRITTEN.get(token, token).lower()
    if kind == "dash":
        return "--"
    if kind == "stops":
        return "..." if token[0] == "." else token
    if kind == "face":  # with a parenthesis like any other
        return "".join(_BRACKETS.get(sign, sign) for sign in token.lower())
    if kind in ("contracted", "not"):
        token = token.replace("’", "'").replace("‘", "`")
    return token.lower()


COLUMN = "CIDEr"
_ORDERS = 4  # n-grams of 1 to 4 words
_SIGMA = 6.0  # of the Gaussian over the difference of lengths
_FACTOR = 10.0  # CIDEr lies between 0 and 10
_RECENT = 1024  # references whose counts stay in memory

Counts = Counter[tuple[str, ...]]


class _Weighted:
    """A text's n-grams of each order, weighted by tf-idf, and the lengths of these vectors."""

    def __init__(self, counts: Counts, cider: Cider) -> None:
        self.vectors: list[dict[tuple[str, ...], float]] = [{} for _ in range(_ORDERS)]
        self.pairs = 0  # pycocoevalcap measures the length of a text by its pairs of words
        for gram, count in counts.items():
            self.vectors[len(gram) - 1][gram] = count * cider.idf(gram)
            if len(gram) == 2:
                self.pairs += count
        self.norms = [
            math.sqrt(sum(weight**2 for weight in vector.values())) for vector in self.vectors
        ]


class Cider:
    """CIDEr with the idf of a corpus. An item's references together are one document."""

    def __init__(self, corpus: Corpus) -> None:
        self._frequencies: Counts = Counter()
        for references in corpus.documents:
            self._frequencies.update(set().union(*map(_counts, references)))
        self._log_documents = math.log(max(1, len(corpus.documents)))
        self._weighted = lru_cache(_RECENT)(self._weigh)

    def idf(self, gram: tuple[str, ...]) -> float:
        """Return an n-gram's inverse document frequency; an unseen one counts as in one item."""
        return self._log_documents - math.log(max(1, self._frequencies[gram]))

    def score(self, references: Sequence[str], generated: str) -> float:
        """Compute CIDEr of one text: the mean over its references, from 0 to 10."""
        weighted = self._weigh(generated)
        total = sum(_similarity(weighted, self._weighted(reference)) for reference in references)
        return _FACTOR * total / len(references)

    def _weigh(self, text: str) -> _Weighted:
        return _Weighted(_counts(text), self)


def _counts(text: str) -> Counts:
    """Count a text's n-grams."""
    words = ptb_words(text)
    counts: Counts = Counter()
    for order in range(1, _ORDERS + 1):
        counts.update(zip(*(words[start:] for start in range(order)), strict=False))
    return counts


def _similarity(generated: _Weighted, reference: _Weighted) -> float:
    """Return the mean over orders of the cosines, with counts clipped to the reference's."""
    total = 0.0
    for order in range(_ORDERS):
        theirs = reference.vectors[order]
        product = sum(
            min(weight, theirs[gram]) * theirs[gram]
            for gram, weight in generated.vectors[order].items()
            if gram in theirs
        )
        if product:
            total += product / (generated.norms[order] * reference.norms[order])
    gap = generated.pairs - reference.pairs
    return total / _ORDERS * math.exp(-(gap**2) / (2 * _SIGMA**2))
