"""English contractions, written out: "can't" becomes "cannot", "they've" becomes "they have".

The authors use the PyPI package `contractions`, which has three faults. Its last release is from 2022, and it
installs a top-level package called `data`. It also rewrites words without an apostrophe ("shell" becomes
"she will", "U.S." becomes "YOU.S."). This module expands only forms with an apostrophe; there it agrees with
the package, which a parity test checks. A possessive ("the man's hat") is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Forms whose expansion is not stem + suffix.
_IRREGULAR = {
    "ain't": "are not", "can't": "cannot", "won't": "will not", "shan't": "shall not", "let's": "let us",
    "y'all": "you all", "ma'am": "madam", "o'clock": "of the clock", "ne'er": "never", "e'er": "ever",
    "o'er": "over", "'tis": "it is", "'twas": "it was", "'cause": "because", "'em": "them",
    "how'd": "how did", "what'd": "what did", "where'd": "where did", "why'd": "why did", "amn't": "am not",
    "daren't": "dare not",
}  # fmt: skip
_NEGATED = "are|could|did|do|does|had|has|have|is|may|might|must|need|ought|should|was|were|would"  # + n't
# Words after which 's is "is"; after any other word it may be a possessive.
_IS = (
    "he|she|it|that|this|there|here|what|when|where|which|who|why|how|everyone|somebody|someone|something|so"
)
_SUFFIXES = {"'re": " are", "'ve": " have", "'ll": " will", "'d": " would"}

_PATTERN = re.compile(
    r"(?<!\w)(?<!\w')(?:"
    rf"(?P<irregular>{'|'.join(sorted(_IRREGULAR, key=len, reverse=True))})"
    rf"|(?P<negated>{_NEGATED})n't"
    r"|(?P<am>i)'m"
    rf"|(?P<is>{_IS})'s"
    r"|(?P<stem>[a-z]+)(?='(?:re|ve|ll|d)(?![\w]))"
    r")(?P<suffixes>(?:'(?:re|ve|ll|d))*)(?!\w)",
    re.IGNORECASE,
)


def expand_contractions(text: str) -> str:
    """Write out the contractions in a text.

    Capitals are preserved: "It's" becomes "It is", and "IT'S" becomes "IT IS". Typographic apostrophes count
    as plain ones. No other character changes.
    """
    if "'" not in text and "’" not in text:
        return text
    plain = text.replace("’", "'")
    parts: list[str] = []
    end = 0
    for span in _words_with_apostrophes(plain):
        for match in _PATTERN.finditer(plain, *span):
            parts += [text[end : match.start()], _expand(match)]
            end = match.end()
    return "".join(parts) + text[end:]


def _words_with_apostrophes(text: str) -> Iterator[tuple[int, int]]:
    """Yield where words with apostrophes are: every match of `_PATTERN` lies inside one of them.

    To look for the pattern in the whole text would take longer than all else that is done to a text before
    its sentences are found.
    """
    end = 0
    while (at := text.find("'", end)) >= 0:
        start = at
        while start > end and text[start - 1].isalnum():
            start -= 1
        end = at
        while end < len(text) and (text[end].isalnum() or text[end] in "_'"):
            end += 1
        yield start, end


def _expand(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if irregular := groups["irregular"]:
        expanded = _IRREGULAR[irregular.casefold()]  # the pattern takes "ſ" for "s"
    elif negated := groups["negated"]:
        expanded = negated + " not"
    elif groups["am"]:
        expanded = groups["am"] + " am"
    elif groups["is"]:
        expanded = groups["is"] + " is"
    else:
        expanded = groups["stem"]
    expanded += "".join(
        _SUFFIXES[suffix.lower()] for suffix in re.findall(r"'[a-z]+", groups["suffixes"], re.I)
    )
    written = match.group()
    letters = [c for c in written if c.isalpha()]
    if len(letters) > 2 and all(c.isupper() for c in letters):
        return expanded.upper()
    return expanded[0].upper() + expanded[1:] if letters[0].isupper() else expanded
