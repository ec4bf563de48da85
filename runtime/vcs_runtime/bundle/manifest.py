"""`bundle.json`: what it may say, read and validated before anything that it lists is opened.

The same rules, for other programs, are in `data/bundle.schema.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from vcs_runtime.errors import BundleError, SchemaError

SCHEMA = 3
# Schema 2 is schema 3 without what has a default here.
SCHEMAS = (2, 3)
MANIFEST = "bundle.json"
MAX_MANIFEST_BYTES = 4 << 20  # a real one has a few kilobytes
LAYOUTS = ("padded", "packed", "masked")
LONG_TEXT_POLICIES = ("window_mean", "truncate", "error")
RULES = ("sentencex",)
BOUNDARY_KINDS = ("sat", "words")
PARTS = ("embedder", "segmenter")

_T = TypeVar("_T")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST_FILE = 1 << 53  # bytes: beyond it JSON numbers are no longer exact everywhere
_LARGEST = 1 << 20  # tokens, or numbers of a vector: more would be an attack on memory


@dataclass(frozen=True)
class FileEntry:
    """One file of a bundle.

    path    relative to the bundle, in posix form: names of letters, digits and `._+-` that begin with none of
            `.+-`, joined by "/"
    size    bytes
    sha256  of its bytes, 64 hex digits
    ends    of a large file: sha256 of its first and last MiB (`bundle.ends_of`), which can be checked at
            every opening; else None
    """

    path: str
    size: int
    sha256: str
    ends: str | None = None


@dataclass(frozen=True)
class Loss:
    """What a quantised export lost, measured against the unquantised graph.

    texts         on how many texts;  cosine_mean, cosine_min  between the vectors of one text
    pairs         on how many pairs of texts;  vcs_change  the mean absolute change of their VCS, or None
    """

    texts: int
    cosine_mean: float
    cosine_min: float
    pairs: int = 0
    vcs_change: float | None = None


@dataclass(frozen=True)
class EmbedderSpec:
    """How the embedder of a bundle is run. Paths are relative to the bundle and listed in its `files`.

    model        the ONNX graph: what `layout` says in, unit vectors float32 `(batch, dimension)` out;
                 pooling and normalisation are inside
    weights      the files whose bytes are the weights; their hash names the weights in the signature
    tokenizer    a `tokenizer.json`
    dimension    length of a vector
    max_tokens   the longest input, special tokens included
    long_text    a longer text is embedded in windows whose vectors are averaged by token count
                 (`window_mean`), cut at its right end, closing frame included (`truncate`), or refused
                 (`error`)
    precision    of weights and arithmetic, as the signature prints it: "fp32", ...
    layout       the graph's inputs, all int64 (`vcs_runtime.inference.batching`). "padded": `input_ids` and
                 `attention_mask` `(batch, tokens)`; "masked": beside these `pool_mask` `(batch, tokens)`;
                 "packed": `input_ids` and `scatter` `(tokens,)`, `gather` `(batch, width)`, `lengths` and
                 `skip` `(batch,)`
    instruction  what is put before a text where the caller names no instruction of their own
    mask_instruction  the first n positions of a framed text, n being the number of the instruction's
                 tokens without frame, are left out of the pooling
    frame        the token ids put before and after a text; None: what the tokenizer itself puts there
    loss         of a quantised export; else None
    """

    name: str
    model: str
    weights: tuple[str, ...]
    tokenizer: str
    dimension: int
    max_tokens: int
    long_text: str
    precision: str
    layout: str = "padded"
    instruction: str = ""
    mask_instruction: bool = False
    frame: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    loss: Loss | None = None


@dataclass(frozen=True)
class RulesSpec:
    """Rules that find sentences by their punctuation: the package `name`, for `language` (ISO 639-1 code)."""

    name: str
    language: str


@dataclass(frozen=True)
class BoundarySpec:
    """How a model that finds the ends of segments is run. Paths are relative to the bundle, in its `files`.

    kind        "sat": token ids and attention mask `(batch, tokens)` in, logits `(batch, tokens, labels)`
                out, of which label 0 counts; input types are those that the graph declares.
                "words": beside these `capitals`, how each token's word is written (`word_features`);
                a segment ends behind words only
    model, weights, tokenizer, precision  as in `EmbedderSpec`
    frame       the token ids put before and after each window
    max_tokens  the longest window, frame included
    stride      tokens from the start of one window to the next
    threshold   a segment ends behind a character whose probability is above it
    agreement   of a quantised model: boundary F1 against fp32, measured at export; else None
    """

    name: str
    kind: str
    model: str
    weights: tuple[str, ...]
    tokenizer: str
    frame: tuple[int, int]
    max_tokens: int
    stride: int
    threshold: float
    precision: str
    agreement: float | None = None


@dataclass(frozen=True)
class SegmenterSpec:
    """What cuts texts into segments: rules, a model, or both.

    Rules alone refuse a text that has no sentence punctuation; a model alone sees every text without its
    punctuation; with both, the rules cut text that has sentence punctuation, the model all other.
    """

    rules: RulesSpec | None = None
    model: BoundarySpec | None = None


@dataclass(frozen=True)
class EngineSpec:
    """A TensorRT engine, made of a graph of the bundle for one kind of GPU (`vcs-runtime engine build`).

    part          whose graph: "embedder" or "segmenter"
    model         a graph that refers to the engine, in `files`;  engine  the engine, beside it
    made_of       hash of the graph and the weights that it was made of (`Bundle.graph_hash`)
    architecture  of the GPU, "sm90";  tensorrt, onnxruntime  the versions that made it
    rows, tokens  of the largest batch it takes; the smallest is one row of one token
    """

    part: str
    model: str
    engine: str
    made_of: str
    architecture: str
    tensorrt: str
    onnxruntime: str
    rows: int
    tokens: int


@dataclass(frozen=True)
class Manifest:
    """What `bundle.json` says. `licence`: SPDX identifier of the weights; `source`: where they came from."""

    name: str
    licence: str
    source: str
    files: tuple[FileEntry, ...]
    embedder: EmbedderSpec | None = None
    segmenter: SegmenterSpec | None = None
    schema: int = SCHEMA
    engines: tuple[EngineSpec, ...] | None = None

    def to_json(self) -> str:
        """The text of `bundle.json`: sorted keys, so that equal manifests are equal bytes."""
        told = asdict(self, dict_factory=lambda items: {k: v for k, v in items if v is not None})
        return json.dumps(told, indent=2, sort_keys=True) + "\n"


def read_manifest(path: Path) -> Manifest:
    """Parse and validate a `bundle.json`. Raises BundleError naming the file and the field."""
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise BundleError(f"{path}: larger than {MAX_MANIFEST_BYTES} bytes, this is no manifest")
        data = json.loads(path.read_bytes(), object_pairs_hook=_unique_keys, parse_constant=_no_number)
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path}: cannot be read: {error}") from None
    try:
        return _manifest(data)
    except (ValueError, TypeError) as error:
        raise BundleError(f"{path}: {error}") from None
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"the key {max(keys, key=keys.count)!r} stands twice")
    return dict(pairs)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _manifest(data: Any) -> Manifest:
    schema = _field(data, "schema", int)
    if schema not in SCHEMAS:
        raise SchemaError(
            f"schema {schema}, but this version reads schema {' and '.join(map(str, SCHEMAS))} only: "
            "build the bundle anew (the default one with `vcs-runtime fetch default`), "
            "or use a matching vcs-runtime"
        )
    _known(data, Manifest, "")
    files = tuple(_file(item) for item in _field(data, "files", list))
    listed = {entry.path for entry in files}
    # Not even by their case: on many machines such files are one.
    if len({path.casefold() for path in listed}) != len(files):
        raise ValueError("files: a path is listed twice")
    manifest = Manifest(
        name=_field(data, "name", str),
        licence=_field(data, "licence", str),
        source=_field(data, "source", str),
        files=files,
        embedder=_embedder(data["embedder"]) if data.get("embedder") is not None else None,
        segmenter=_segmenter(data["segmenter"]) if data.get("segmenter") is not None else None,
        schema=schema,
        engines=tuple(map(_engine, data["engines"])) if _optional(data, "engines", list) else None,
    )
    models = {"embedder": manifest.embedder, "segmenter": manifest.segmenter and manifest.segmenter.model}
    for key, spec in models.items():
        for path in (spec.model, spec.tokenizer, *spec.weights) if spec else ():
            if path not in listed:
                raise ValueError(f"{key}: {path} is not in files")
    for engine in manifest.engines or ():
        for path in (engine.model, engine.engine):
            if path not in listed:
                raise ValueError(f"engines: {path} is not in files")
    return manifest


def _file(item: Any) -> FileEntry:
    _known(item, FileEntry, "files: ")
    ends = _optional(item, "ends", str)
    entry = FileEntry(_field(item, "path", str), _field(item, "size", int), _field(item, "sha256", str), ends)
    if not _PATH.fullmatch(entry.path) or entry.path == MANIFEST:
        raise ValueError(f"files: {entry.path!r} is not a plain relative path")
    digests = [entry.sha256] if ends is None else [entry.sha256, ends]
    if not 0 <= entry.size < _LARGEST_FILE or not all(map(_SHA256.fullmatch, digests)):
        raise ValueError(f"files: {entry.path}: size or sha256 is not one")
    return entry


def _embedder(item: Any) -> EmbedderSpec:
    _known(item, EmbedderSpec, "embedder: ")
    loss = _optional(item, "loss", dict)
    spec = EmbedderSpec(
        name=_name(item),
        model=_field(item, "model", str),
        weights=tuple(_strings(_field(item, "weights", list), "weights")),
        tokenizer=_field(item, "tokenizer", str),
        dimension=_field(item, "dimension", int),
        max_tokens=_field(item, "max_tokens", int),
        long_text=_field(item, "long_text", str),
        precision=_field(item, "precision", str),
        layout=_field(item, "layout", str, "padded"),
        instruction=_field(item, "instruction", str, ""),
        mask_instruction=_field(item, "mask_instruction", bool, False),
        frame=_frame(item) if item.get("frame") is not None else None,
        loss=_loss(loss) if loss is not None else None,
    )
    in_range = 1 <= spec.dimension <= _LARGEST and 3 <= spec.max_tokens <= _LARGEST
    if not in_range or not spec.weights:
        raise ValueError("embedder: dimension, max_tokens or weights out of range")
    if spec.long_text not in LONG_TEXT_POLICIES:
        raise ValueError(f"embedder: long_text must be one of {LONG_TEXT_POLICIES}, not {spec.long_text!r}")
    if spec.layout not in LAYOUTS:
        raise ValueError(f"embedder: layout must be one of {LAYOUTS}, not {spec.layout!r}")
    if spec.mask_instruction and (spec.layout == "padded" or spec.long_text == "window_mean"):
        # A padded graph is not told what to leave out, and only the first of several windows has it.
        raise ValueError("embedder: mask_instruction goes with neither a padded layout nor window_mean")
    return spec


def _frame(item: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    frame = _field(item, "frame", list)
    if len(frame) != 2 or not all(isinstance(part, list) and len(part) <= 16 for part in frame):
        raise ValueError("embedder: frame must be two lists of token ids")
    if not all(type(token) is int and 0 <= token < 1 << 31 for part in frame for token in part):
        raise ValueError(f"embedder: frame must be two lists of token ids, not {frame!r}")
    return tuple(frame[0]), tuple(frame[1])


def _loss(item: Any) -> Loss:
    _known(item, Loss, "loss: ")
    loss = Loss(
        texts=_field(item, "texts", int),
        cosine_mean=_field(item, "cosine_mean", float),
        cosine_min=_field(item, "cosine_min", float),
        pairs=_field(item, "pairs", int, 0),
        vcs_change=_optional(item, "vcs_change", float),
    )
    cosines = -1.0 <= loss.cosine_min <= loss.cosine_mean <= 1.0
    if loss.texts < 1 or loss.pairs < 0 or not cosines or not 0 <= (loss.vcs_change or 0) <= 1:
        raise ValueError("loss: a value is out of range")
    return loss


def _segmenter(item: Any) -> SegmenterSpec:
    _known(item, SegmenterSpec, "segmenter: ")
    rules, model = (_optional(item, key, dict) for key in ("rules", "model"))
    if rules is not None:
        _known(rules, RulesSpec, "segmenter: rules: ")
    spec = SegmenterSpec(
        rules=RulesSpec(_name(rules), _field(rules, "language", str)) if rules is not None else None,
        model=_boundary(model) if model is not None else None,
    )
    if spec.rules and spec.rules.name not in RULES:
        raise ValueError(f"segmenter: rules must be one of {RULES}, not {spec.rules.name!r}")
    if not spec.rules and not spec.model:
        raise ValueError("segmenter: neither rules nor a model")
    return spec


def _boundary(item: Any) -> BoundarySpec:
    _known(item, BoundarySpec, "segmenter: model: ")
    frame = _field(item, "frame", list)
    spec = BoundarySpec(
        name=_name(item),
        kind=_field(item, "kind", str),
        model=_field(item, "model", str),
        weights=tuple(_strings(_field(item, "weights", list), "weights")),
        tokenizer=_field(item, "tokenizer", str),
        frame=(frame[0], frame[1]) if len(frame) == 2 else (-1, -1),
        max_tokens=_field(item, "max_tokens", int),
        stride=_field(item, "stride", int),
        threshold=_field(item, "threshold", float),
        precision=_field(item, "precision", str),
        agreement=_optional(item, "agreement", float),
    )
    if spec.kind not in BOUNDARY_KINDS:
        raise ValueError(f"segmenter: kind must be one of {BOUNDARY_KINDS}, not {spec.kind!r}")
    if not all(type(token) is int and 0 <= token < 1 << 31 for token in spec.frame):
        raise ValueError(f"segmenter: frame must be two token ids, not {frame!r}")
    if (
        not 3 <= spec.max_tokens <= _LARGEST
        or not 1 <= spec.stride <= spec.max_tokens - 2
        or not spec.weights
    ):
        raise ValueError("segmenter: max_tokens, stride or weights out of range")
    if not 0 < spec.threshold < 1:
        raise ValueError(f"segmenter: threshold must be between 0 and 1, not {spec.threshold}")
    if not 0 <= (spec.agreement or 0) <= 1:
        raise ValueError(f"segmenter: agreement must be between 0 and 1, not {spec.agreement}")
    return spec


def _engine(item: Any) -> EngineSpec:
    _known(item, EngineSpec, "engines: ")
    texts = ("model", "engine", "made_of", "architecture", "tensorrt", "onnxruntime")
    spec = EngineSpec(
        part=_field(item, "part", str),
        **{key: _field(item, key, str) for key in texts},
        rows=_field(item, "rows", int),
        tokens=_field(item, "tokens", int),
    )
    if spec.part not in PARTS:
        raise ValueError(f"engines: part must be one of {PARTS}, not {spec.part!r}")
    if (
        not _SHA256.fullmatch(spec.made_of)
        or not 1 <= spec.rows <= _LARGEST
        or not 1 <= spec.tokens <= _LARGEST
    ):
        raise ValueError("engines: made_of, rows or tokens out of range")
    return spec


def _name(item: Any) -> str:
    name = _field(item, "name", str)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):  # it stands in the signature, between its separators
        raise ValueError(f"name: {name!r} must be letters, digits, '.', '_' and '-'")
    return name


def _strings(items: Iterable[Any], key: str) -> Iterable[str]:
    for item in items:
        if not isinstance(item, str):
            raise ValueError(f"{key}: {item!r} is not a string")
        yield item


def _known(item: Any, kind: type, where: str) -> None:
    """Refuse keys that are no fields of `kind`: what is not understood must not be passed over."""
    if isinstance(item, dict) and (unknown := set(item) - {field.name for field in fields(kind)}):
        raise ValueError(f"{where}{min(unknown)!r} is unknown")


def _optional(item: Any, key: str, kind: type[_T]) -> _T | None:
    return _field(item, key, kind) if isinstance(item, dict) and item.get(key) is not None else None


def _field(item: Any, key: str, kind: type[_T], default: _T | None = None) -> _T:
    if not isinstance(item, dict):
        raise ValueError(f"an object was expected, not {type(item).__name__}")
    if key not in item:
        if default is None:
            raise ValueError(f"{key}: missing")
        return default
    value = item[key]
    if kind is float and type(value) is int:
        value = float(value)  # JSON writers may drop the ".0"
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{key}: must be of type {kind.__name__}, not {type(value).__name__}")
    return value
