"""Keywords of a caption, chosen without a model.

This is a fallback. A model that reads the caption chooses better (`vcs-runtime visil keywords --vllm URL`).
"""

from __future__ import annotations

from vcs_runtime.errors import TextError
from vcs_runtime.text.cleaning import check_text
from vcs_runtime.text.stopwords import STOP_WORDS
from vcs_runtime.visil.masking import caption_words, without_possessive

LIMIT = 20
"""Largest number of keywords."""
# Frequent English words, and words of any video description: they carry little information.
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
    """Choose keywords that are spread over a caption.

    The caption is cut into `limit` stretches, and each gives its best word. The best other words fill up the
    rest. Rare words come before frequent ones, then long before short, then early before late.

    Parameters
    ----------
    caption
        The caption.
    limit
        Largest number of keywords.

    Returns
    -------
    list of str
        Lower-case words, in the order of their first occurrence.

    Raises
    ------
    TextError
        No word of the caption can be a keyword.
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
