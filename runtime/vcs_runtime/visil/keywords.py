"""Keywords without a model: which words of a caption to mask, where nobody has chosen them.

A fallback: a model that reads the caption chooses better (`vcs-runtime visil keywords --vllm URL`).
"""

from __future__ import annotations

from vcs_runtime.errors import TextError
from vcs_runtime.text.cleaning import check_text
from vcs_runtime.text.stopwords import STOP_WORDS
from vcs_runtime.visil.masking import caption_words, without_possessive

LIMIT = 20
# Frequent English words, and words that any description of a video may have: they tell little.
_FREQUENT = frozenset(
    """
    able across actually almost along already also although always among another anything around away back
    become becomes begins behind beside big camera cannot clearly close comes continues could different done
    either else end entire even every everything far first focus footage frame front gets give given gives
    goes going good got great half image indicate keep keeps kind large last later left less like likely long
    look looks made make makes making many may maybe might moment moments move moves much must near nearby
    need never new next nothing often old one others overall part person piece place point possibly quickly
    quite rather really right say says scene second see seem seems seen sequence set several shot show showing
    shown shows side since slightly slowly small someone something sometimes soon start starts still such
    suddenly take taken takes taking thing things third three throughout together toward towards two upon use
    used uses using various video view viewer visible way ways well whether whole within without would yet
    """.split()
)


def builtin_keywords(caption: str, limit: int = LIMIT) -> list[str]:
    """Up to `limit` words of the caption, lower case, in the order of their first occurrence.

    The caption is cut into as many stretches of words as there may be keywords; each gives its best word, and
    what is left goes to the best of the others: rare words before frequent ones, long before short, early
    before late. Raises TextError: a caption without a word that could be one.
    """
    check_text(caption, "caption")
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit!r}")
    words = [without_possessive(caption[start:end].lower()) for start, end in caption_words(caption)]
    first: dict[str, int] = {}
    for place, word in enumerate(words):
        if len(word) > 2 and word.isalpha() and word not in STOP_WORDS and word != "video":
            first.setdefault(word, place)
    if not first:
        raise TextError("caption: no word of it can be a keyword")

    def rank(word: str) -> tuple[bool, int, int]:
        return word in _FREQUENT, -len(word), first[word]

    stretches: dict[int, str] = {}
    for word, place in first.items():
        stretch = place * limit // len(words)
        if word not in _FREQUENT and (stretch not in stretches or rank(word) < rank(stretches[stretch])):
            stretches[stretch] = word
    chosen = list(stretches.values())
    chosen += sorted(first.keys() - set(chosen), key=rank)[: limit - len(chosen)]
    return sorted(chosen, key=first.__getitem__)
