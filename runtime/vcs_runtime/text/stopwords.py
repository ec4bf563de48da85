"""The English stop words that are removed from short texts (docs/reference/vcs.md, section 10).

These are the 179 entries of NLTK's `stopwords` corpus for English, which its documentation credits to
Martin Porter and others. Punctuation is deleted before words are looked up, so entries with an apostrophe
("don't") can never match and are left out here. Their halves ("don", "t") are entries of the list, too.
"""

from __future__ import annotations

STOP_WORDS = frozenset(
    """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves what which who whom this that these those
    am is are was were be been being have has had having do does did doing
    a an the and but if or because as until while of at by for with about against between into through
    during before after above below to from up down in out on off over under again further then once
    here there when where why how all any both each few more most other some such no nor not only own same
    so than too very s t can will just don should now d ll m o re ve y
    ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
    """.split()
)
