"""Bodies of requests: JSON that is checked field by field, and the pairs and options in it."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NoReturn

import msgspec

from vcs_runtime.errors import VcsError
from vcs_runtime.scoring.options import PRESETS, Options
from vcs_runtime.serve.limits import Limits
from vcs_runtime.util.reading import unique_keys

#: Bytes of a body that is parsed within a millisecond.
LARGE_BODY = 100_000

_Preset = Literal["default", "paper", "table-lct1"]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Refused(VcsError):
    """A request that is refused with a status of HTTP and a sentence that names the field."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class ScoringOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of scoring; missing ones are taken from the server's options."""

    preset: _Preset | None = None
    chunk_size: _Positive | None = None
    lct: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    aggregate: Literal["max", "mean"] | None = None
    short: bool | None = None


class OnePair(msgspec.Struct, forbid_unknown_fields=True):
    """A generated text with its reference or references."""

    reference: str | list[str]
    generated: str
    id: str | int | None = None


class OneRequest(OnePair, forbid_unknown_fields=True):
    """One pair with options."""

    options: ScoringOptions | None = None


class ManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Several pairs with options."""

    pairs: Annotated[list[OnePair], msgspec.Meta(min_length=1)]
    options: ScoringOptions | None = None


class _Shape(OneRequest, forbid_unknown_fields=True):
    """All fields that a request may have, to refuse values of other types unread."""

    reference: str | list[str] = ""
    generated: str = ""
    pairs: list[OnePair] = []


@dataclass(frozen=True)
class Question:
    """The content of a request. `heads` begin the answers with the ids of pairs, if given."""

    pairs: list[tuple[str | list[str], str]]
    heads: list[dict[str, Any]]
    options: Options
    single: bool


def read_question(body: bytes, defaults: Options, limits: Limits) -> Question:
    """Read the body of a request, JSON in UTF-8. Raises Refused; the scorer checks the texts."""
    try:
        if len(body) > LARGE_BODY:
            _refuse_other_types(body)
        value = _parse(body)
        if "pairs" in value:
            # Before the conversion, which would take long for a million pairs.
            _check_number(value["pairs"], limits.max_pairs)
            many = msgspec.convert(value, ManyRequest)
            pairs, chosen = many.pairs, many.options
        else:
            one = msgspec.convert(value, OneRequest)
            pairs, chosen = [one], one.options
    except msgspec.ValidationError as error:
        raise Refused(400, _sentence(str(error))) from None
    except UnicodeError:
        raise Refused(400, "the name of an unknown field holds a lone surrogate") from None
    for number, pair in enumerate(pairs):
        name = f"pairs[{number}]" if "pairs" in value else "pair"
        _check_size(name, pair, limits.max_pair_characters)
    return Question(
        pairs=[(pair.reference, pair.generated) for pair in pairs],
        heads=[{} if pair.id is None else {"id": pair.id} for pair in pairs],
        options=_options(chosen or ScoringOptions(), defaults),
        single="pairs" not in value,
    )


def _check_number(pairs: Any, max_pairs: int) -> None:
    if isinstance(pairs, list) and len(pairs) > max_pairs:
        raise Refused(413, f"pairs: {len(pairs)} are too many: send at most {max_pairs} at once")


def _check_size(name: str, pair: OnePair, most: int) -> None:
    references = [pair.reference] if isinstance(pair.reference, str) else pair.reference
    size = len(pair.generated) + sum(map(len, references))
    if size > most:
        raise Refused(
            413, f"{name}: {size:,} characters, more than {most:,} (serve --max-pair-characters)"
        )


def _refuse_other_types(body: bytes) -> None:
    """Raise ValidationError at the first value of another type, if the JSON is valid up to there.

    `json` would first build all values, and a million of them keep other threads from running.
    """
    try:
        msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8), type=_Shape)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return  # `_parse` says what is wrong


def _parse(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except ValueError as error:
        if not body:
            raise Refused(400, "the body is empty") from None
        reason = str(error).partition(";")[0]
        raise Refused(400, f"the body is not JSON: {reason}") from None
    if isinstance(value, dict):
        return value
    raise Refused(400, "the body must be an object with reference and generated, or with pairs")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _sentence(message: str) -> str:
    """Put the field first: "Expected `str`, got `int` - at `$.generated`" names it last."""
    reason, _, path = message.replace("`", "").rpartition(" - at ")
    reason = reason or path  # a message about the whole body has no path
    reason = reason[:1].lower() + reason[1:]
    field = path.removeprefix("$").removeprefix(".") if path.startswith("$") else ""
    return f"{field}: {reason}" if field else reason


def _options(chosen: ScoringOptions, defaults: Options) -> Options:
    chunk_size, lct = defaults.chunk_size, defaults.params.lct
    if chosen.preset is not None:
        chunk_size, lct = PRESETS[chosen.preset]
    if chosen.chunk_size is not None:
        chunk_size = chosen.chunk_size
    if chosen.lct is not None:
        lct = chosen.lct
    short = defaults.short if chosen.short is None else chosen.short
    if short and chosen.chunk_size is not None:
        raise Refused(
            400, "options.chunk_size: leave it out, because the chunks of short texts are words"
        )
    return Options(
        chunk_size=1 if short else chunk_size,
        params=replace(defaults.params, lct=lct),
        aggregate=chosen.aggregate or defaults.aggregate,
        short=short,
        clean=defaults.clean,
        also=() if short else defaults.also,
    )
