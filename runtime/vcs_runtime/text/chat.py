"""What chat models put around an answer: turns, tokens, openings, answer tags and JSON.

Every pattern is anchored or bounded, so that hostile texts take linear time.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_ROLE = "system|developer|user|human|assistant|model|gpt|bot|tool"
# The head of a turn. Its only group that matches is the role.
TURN: Final = re.compile(
    rf"<\|(?:im_start|start|start_header_id)\|>\s{{0,4}}({_ROLE})(?:<\|end_header_id\|>)?"
    rf"|<\|({_ROLE})\|>|<start_of_turn>\s{{0,4}}({_ROLE})\b"
    r"|<\|channel\|>(analysis|commentary|final)<\|message\|>"
    r"|\[(/?INST)\]"
    r"|^#{2,4} ?(system|user|human|assistant|instruction|input|response):"
    # What is left of such heads without their tokens.
    r"|^((?-i:system|user|assistant|model))$"
    r"|^(system|user|human|assistant|gpt):(?=\s)"
    r"|(?<=\s)((?-i:SYSTEM|USER|HUMAN|ASSISTANT)):(?=\s)"
    r"|\A\W{0,4}(question):(?=\s)|(?:^|(?<=[?.!] ))\W{0,4}(answer):(?=\s)"
    r"|\A(a chat) between a curious (?:user|human)",
    re.IGNORECASE | re.MULTILINE,
)
# One of these is in every text with a turn; they are looked for first, because that is fast.
_HINTS = (
    *("<|", "inst]", "<start_of_turn>", "\nsystem", "\nuser", "\nassistant", "\nmodel", "a chat b"),
    *("system:", "user:", "human:", "assistant:", "gpt:", "question:", "answer:"),
    *("instruction:", "input:", "response:"),
)
_ANSWERS = frozenset(("assistant", "model", "gpt", "bot", "final", "response", "answer", "/inst"))

TOKEN: Final = re.compile(
    r"<[|｜][\w▁ /-]{1,40}[|｜]>|</?s>|\[/?INST\]|<</?SYS>>"
    r"|\[(?-i:EOS|BOS|PAD|CLS|SEP|UNK|END)\]|###\s*\Z"
    r"|</?(?:eos|bos|pad|unk|sep|cls|endoftext|(?:start|end)_of_(?:turn|text|utterance|sentence)"
    r"|(?:image|video|audio)(?:_pad|_start|_end|_soft_token|\d{1,3})?)>",
    re.IGNORECASE,
)

_HERE = (
    r"(?:here(?:[’']s| is| are| it is| you (?:are|go))|below (?:is|are)"
    r"|the following (?:is|are)|this is|I(?:[’']ll| will| can|[’']d| would) "
    r"(?:be (?:happy|glad) to|describe|provide|summari[sz]e|help)"
    r"|let me (?:describe|provide|summari[sz]e)|based on the (?:video|frames|images))\b"
)
_SUBJECT = r"(?:descri|caption|summar|answer|breakdown|overview|analysis|account|narrative)"
_YES = (
    r"(?:sure(?: thing)?|certainly|of course|absolutely|no problem|got it|understood"
    r"|great(?: question)?|okay|ok|alright|yes)"
)
# The lookaheads are bounded, and tried at the start of a text alone.
OPENING: Final = re.compile(
    rf"\A\s{{0,9}}(?:(?:{_YES}[!,.:—–-]{{0,3}}\s{{1,4}})?(?:"
    rf"(?={_HERE}[^.!?:\n]{{0,200}}{_SUBJECT})[^.!?:\n]{{1,300}}(?::|[.!](?=\s)|(?=\n))"
    rf"|(?={_HERE})[^.!?:\n]{{1,200}}:(?=\s{{0,9}}\n))"
    rf"|{_YES}!(?=\s|\Z)|{_YES}[,.:—–-]{{0,3}}\s{{1,4}}(?={_HERE})"
    r"|\W{0,4}(?:(?:final|generated|detailed|video|movie|the)[ _]){0,3}"
    r"(?:answer|response|caption|description|output|prediction|summary)"
    r"(?: (?:of|for) (?:the|this) (?:video|clip|movie|film|scene))?(?: is(?: as follows)?)?"
    r"[*_]{0,2}(?::| [=–—-])[*_]{0,2}(?=\s)"
    r")[^\S\n]*+",
    re.IGNORECASE,
)
_LONGEST_CLOSING = 400  # characters
_CLOSING = re.compile(
    r"(?:^|(?<=[.!?] ))(?:I hope (?:this|that|it) helps|let me know if|feel free to"
    r"|if you (?:have|need|want|would like|[’']d like)|is there anything else)\b"
    r"[^\n]{0,300}+\s*+\Z",
    re.IGNORECASE | re.MULTILINE,
)

ANSWER: Final = re.compile(
    r"[<\[](/?)(?:[a-z]{1,20}[_ -])?(?:ans|answer|response|caption|description|output|summary"
    r"|result)[>\]]|\\boxed\{",
    re.IGNORECASE,
)

#: A line end as JSON writes it, in a text that was not read as JSON.
LINE_END: Final = re.compile(r"\\(?:r?\\n|n(?![a-z])|(?<=[.!?]\\)n)")
_FENCE = re.compile(r"`{3}(?:json)?\s*+", re.IGNORECASE)
# The beginning of an object with one text, which may be cut off or no strict JSON.
_OPEN_OBJECT = re.compile(r"""\{\s*+["'][\w -]{1,60}["']\s*+:\s*+(["'])""")
_FEW_WORDS = 5
_TEXT_KEY = re.compile(
    r"(?:final|generated|detailed|video|dense|scene|event)?[_ -]?"
    r"(?:answer|response|captions?|descriptions?|text|summary|output|prediction|content|sentences?"
    r"|scenes|events|segments|results?)",
    re.IGNORECASE,
)


def without_chat(text: str) -> str:
    """Return the answer alone, as plain text; the result may be ""."""
    inner = json_text(text)
    if inner is not None:
        return inner
    text = _answers_of_turns(text)
    text = LINE_END.sub("\n", TOKEN.sub(" ", text))
    text = _tagged_answers(text)
    text = OPENING.sub("", text)
    end = closing(text)
    return text[: end.start()] if end else text


def first_turn(text: str) -> re.Match[str] | None:
    """Return the head of the first turn in a text."""
    begun = f"\n{text.lower()}"
    return TURN.search(text) if any(hint in begun for hint in _HINTS) else None


def closing(text: str) -> re.Match[str] | None:
    """Return the polite end of a text."""
    return _CLOSING.search(text, max(0, len(text) - _LONGEST_CLOSING))


def json_text(text: str) -> str | None:
    """Return the texts in a JSON object or array that is the whole text, or None."""
    bare = text.strip()
    if bare.startswith("```"):
        fence = _FENCE.match(bare)
        bare = bare[fence.end() if fence else 3 :].removesuffix("```").rstrip()
    if bare[:1] not in ("{", "["):
        return None
    texts: list[str] = []
    try:
        _collect(json.JSONDecoder(strict=False).decode(bare), texts)
    except (ValueError, RecursionError):
        return _open_object(bare)
    return "\n\n".join(texts) if texts else None


def _collect(value: Any, texts: list[str]) -> None:
    """Append the texts of a JSON value, of an object those under the names of texts."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list):
        for item in value:
            _collect(item, texts)
    elif isinstance(value, dict):
        named = [inner for key, inner in value.items() if _TEXT_KEY.fullmatch(key)]
        if not named:
            named = [inner for inner in value.values() if str(inner).count(" ") > _FEW_WORDS]
        if not named and len(value) == 1:
            named = list(value.values())
        for inner in named:
            _collect(inner, texts)


def _open_object(bare: str) -> str | None:
    """Return the text of an object that is cut off, or has single quotes."""
    opening = _OPEN_OBJECT.match(bare)
    if opening is None:
        return None
    quote = opening[1]
    inner = bare[opening.end() :].rstrip("} \n\t,").removesuffix(quote)
    return inner.replace("\\n", "\n").replace("\\" + quote, quote)


def _answers_of_turns(text: str) -> str:
    """Remove the turns of users and systems, and the head of every turn.

    If a prompt is all there is, only its head is removed: its end is not known.
    """
    if not first_turn(text):
        return text
    turns = list(TURN.finditer(text))
    first = text[: turns[0].start()]
    pieces = [first]
    prompts = []
    ends = [*(turn.start() for turn in turns), len(text)][1:]
    for turn, end in zip(turns, ends, strict=True):
        role = str(turn[turn.lastindex or 0]).lower()
        piece = text[turn.end() : end]
        if role in _ANSWERS:
            pieces.append(piece)
        else:
            prompts.append(piece)
    answer = "\n".join(piece for piece in pieces if piece.strip())
    return answer if TOKEN.sub("", answer).strip() else "\n".join(prompts)


def _tagged_answers(text: str) -> str:
    """Return what stands in answer tags; either tag may be missing. Without tags, the text."""
    pieces: list[str] = []
    start, opened, boxed = 0, None, False
    for tag in ANSWER.finditer(text):
        boxed = tag[0].endswith("{")
        if not tag[1]:
            opened = True
        elif opened is not False:  # a first closing tag ends an answer without an opening one
            pieces.append(text[start : tag.start()])
            opened = False
        start = tag.end()
    if opened is None:
        return text
    if opened:
        end = text.rstrip()
        pieces.append(end.removesuffix("}")[start:] if boxed else text[start:])
    return "\n".join(pieces)
