"""`bundle.json`: typed settings, read and validated before anything that they list is opened.

The types are the rules. `vcs_runtime.bundle.schema` makes `data/bundle.schema.json` from them, for
programs in other languages.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field

from vcs_runtime.errors import BundleError, SchemaError
from vcs_runtime.util.reading import unique_keys

SCHEMA: Final = 4
# Schemas 2 and 3 are schema 4 without the keys that have a default here.
SCHEMAS = (2, 3, 4)
MANIFEST = "bundle.json"
PROOF_TEXTS: Final = 1  # edition of the built-in texts, `data/proof.json`
MAX_MANIFEST_BYTES = 4 << 20  # a real one has a few kilobytes

InputLayout = Literal["padded", "packed"]
CudaLayout = Literal["varlen", "packed"]
LongTextPolicy = Literal["window_mean", "truncate_text", "truncate", "error"]
Part = Literal["embedder", "segmenter"]
LONG_TEXT_POLICIES: tuple[LongTextPolicy, ...] = get_args(LongTextPolicy)
# Policies for new exports. Only the code of NV-Embed-v2 loses closing special tokens (truncate).
EXPORTED_POLICIES = tuple(policy for policy in LONG_TEXT_POLICIES if policy != "truncate")
PARTS: tuple[Part, ...] = get_args(Part)

_END = r"(?![\s\S])"  # in some dialects, Python's for one, $ also matches before a last line break
_SEGMENT = "[A-Za-z0-9_][A-Za-z0-9._+-]*"
_PATH = rf"^(?!bundle\.json{_END}){_SEGMENT}(/{_SEGMENT})*{_END}"
_SHA256 = f"^[0-9a-f]{{64}}{_END}"
_NAME = f"^[A-Za-z0-9._-]+{_END}"  # a signature contains it, between separators
_PATTERNS = {
    _PATH: "a plain relative path",
    _SHA256: "64 hex digits",
    _NAME: "letters, digits, '.', '_' and '-'",
}
RelativePath = Annotated[str, Meta(pattern=_PATH)]
Sha256 = Annotated[str, Meta(pattern=_SHA256)]
Name = Annotated[str, Meta(pattern=_NAME)]
TokenId = Annotated[int, Meta(ge=0, lt=1 << 31)]
SpecialTokens = Annotated[tuple[TokenId, ...], Meta(max_length=16)]
Weights = Annotated[
    tuple[RelativePath, ...],
    Meta(
        min_length=1, description="Files whose bytes are the weights: all that the graphs refer to."
    ),
]
# Tokens, or numbers of a vector: more would be an attack on memory.
Extent = Annotated[int, Meta(ge=1, le=1 << 20)]
Window = Annotated[
    int, Meta(ge=3, le=1 << 20, description="Longest input, special tokens included.")
]
Share = Annotated[float, Meta(ge=0, le=1)]
MarginChange = Annotated[float, Meta(ge=0, le=2)]
Cosine = Annotated[float, Meta(ge=-1, le=1)]


class FileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a bundle."""

    path: Annotated[RelativePath, Meta(description="Relative to the bundle, in posix form.")]
    # Beyond 2^53 JSON numbers are no longer exact everywhere.
    size: Annotated[int, Meta(ge=0, lt=1 << 53, description="Bytes.")]
    sha256: Annotated[Sha256, Meta(description="Of the bytes, in hexadecimal digits.")]
    ends: Annotated[
        Sha256 | None,
        Meta(
            description="For a file of 1 GiB or more: sha256 of its first MiB followed by its last."
        ),
    ] = None


class QuantizationErrorStats(Struct, frozen=True, forbid_unknown_fields=True):
    """Quantisation error of an embedder, measured against the vectors of the unquantised graph."""

    texts: Annotated[int, Meta(ge=1, description="Number of texts compared.")]
    cosine_mean: Annotated[
        Cosine, Meta(description="Mean cosine between the two vectors of a text.")
    ]
    cosine_min: Annotated[Cosine, Meta(description="Smallest such cosine; at most cosine_mean.")]
    pairs: Annotated[int, Meta(ge=0, description="Number of pairs of texts scored.")] = 0
    vcs_change: Annotated[
        Share | None, Meta(description="Mean absolute change of the VCS of these pairs.")
    ] = None
    vcs_change_p95: Annotated[Share | None, Meta(description="95th percentile of this change.")] = (
        None
    )
    margin_change: Annotated[
        MarginChange | None, Meta(description="Mean absolute change of the margin of these pairs.")
    ] = None
    margin_change_p95: Annotated[
        MarginChange | None, Meta(description="95th percentile of this change.")
    ] = None

    def __post_init__(self) -> None:
        if self.cosine_min > self.cosine_mean:
            raise ValueError("cosine_min is above cosine_mean")


class Proof(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model gave for the built-in texts, with which every device is compared."""

    texts: Annotated[int, Meta(ge=1, description="Edition of the built-in texts.")]
    values: Annotated[
        bytes,
        Meta(description="Vectors, or probabilities of characters: little-endian float32, base64."),
    ]
    sha256: Annotated[Sha256, Meta(description="Of the bytes of `values`.")]
    model: Annotated[Sha256, Meta(description="Hash of the model that gave them.")]
    precision: Annotated[str, Meta(description="Of the weights and arithmetic that gave them.")]
    environment: Annotated[str, Meta(description="What ran the model: device and versions.")]

    def __post_init__(self) -> None:
        if hashlib.sha256(self.values).hexdigest() != self.sha256:
            raise ValueError("values is damaged: its sha256 is not the recorded one")

    @property
    def is_current(self) -> bool:
        """Whether it is of the built-in texts of this version."""
        return self.texts == PROOF_TEXTS


class Fitness(Struct, frozen=True, forbid_unknown_fields=True):
    """VCS of built-in pairs of texts, a mean for each kind (docs/guide/models.md)."""

    paraphrase: Annotated[Share, Meta(description="The same story in other words.")]
    reordered: Annotated[Share, Meta(description="These sentences in the opposite order.")]
    unrelated: Annotated[Share, Meta(description="Another film.")]
    unrelated_most: Annotated[Share, Meta(description="Largest VCS of such a pair.")]
    translated: Annotated[Share, Meta(description="The same story in another language.")]
    unrelated_translated: Annotated[Share, Meta(description="Another film, in other languages.")]


class Calibration(Struct, frozen=True, forbid_unknown_fields=True):
    """Constants that spread similarities, on request (docs/reference/vcs.md, section 1)."""

    mean: Annotated[
        tuple[float, ...], Meta(min_length=1, description="Mean vector, which is subtracted.")
    ]
    floor: Annotated[float, Meta(ge=0, lt=1, description="Similarity of vectors at right angles.")]
    texts: Annotated[str, Meta(description="Texts from which the mean was computed.")]
    fitness: Annotated[Fitness, Meta(description="Fitness with these constants.")]


class CudaGraph(Struct, frozen=True, forbid_unknown_fields=True):
    """A second graph of a model over the same weights, which ONNX Runtime's CUDA provider runs."""

    model: Annotated[
        RelativePath,
        Meta(description="ONNX graph with the output of the other one; in its folder."),
    ]
    layout: Annotated[
        CudaLayout, Meta(description="Inputs of this graph, as for an embedder's other one.")
    ]
    precision: Annotated[
        Name | None, Meta(description="Of this graph's arithmetic; null: as of the other one.")
    ] = None


_Cuda = Annotated[
    CudaGraph | None,
    Meta(description="The graph for CUDA; null: CUDA runs the same graph as a CPU."),
]


class EmbedderSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How the embedder is run. Paths are relative to the bundle and listed in `files`."""

    name: Annotated[Name, Meta(description="Name of the model, as the signature prints it.")]
    model: Annotated[
        RelativePath,
        Meta(description="ONNX graph with pooling: unit vectors float32 (batch, dimension) out."),
    ]
    weights: Weights
    tokenizer: Annotated[RelativePath, Meta(description="A tokenizer.json.")]
    dimension: Annotated[Extent, Meta(description="Length of a vector.")]
    max_tokens: Window
    long_text: Annotated[
        LongTextPolicy,
        Meta(
            description=(
                "Longer texts are embedded in windows, whose vectors are averaged by token count"
                " (window_mean), cut at the right end, closing special tokens kept (truncate_text)"
                " or lost (truncate), or refused (error)."
            )
        ),
    ]
    precision: Annotated[
        Name, Meta(description="Of weights and arithmetic, as the signature prints it.")
    ]
    layout: Annotated[
        InputLayout,
        Meta(description="Inputs of the graph, all int64; docs/guide/bundles.md has their shapes."),
    ] = "padded"
    cuda: _Cuda = None
    instruction: Annotated[
        str, Meta(description="Put before a text unless the caller names another instruction.")
    ] = ""
    mask_instruction: Annotated[
        bool,
        Meta(
            description=(
                "Leave the first n positions out of the pooling, n being the number of tokens of"
                " the instruction without special tokens."
            )
        ),
    ] = False
    special_tokens: Annotated[
        tuple[SpecialTokens, SpecialTokens] | None,
        Meta(
            description=(
                "Token ids before and after a text; null: the tokenizer's own special tokens."
            )
        ),
    ] = field(name="frame", default=None)
    quantization_error: QuantizationErrorStats | None = field(name="loss", default=None)
    proof: Proof | None = None
    fitness: Fitness | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if self.calibration and len(self.calibration.mean) != self.dimension:
            raise ValueError("calibration.mean must have as many numbers as `dimension`")
        # A padded graph has no input for the number of tokens to leave out. Of several windows,
        # only the first has the instruction.
        if self.mask_instruction and (self.layout == "padded" or self.long_text == "window_mean"):
            raise ValueError("mask_instruction excludes a padded layout and window_mean")


class RulesSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules that find sentences by their punctuation."""

    name: Annotated[Literal["sentencex"], Meta(description="Package that holds the rules.")]
    language: Annotated[Name, Meta(description="ISO 639-1 code.")]


class LearnedSegmenterSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How the learned segmenter runs: text windows in, logits (batch, tokens, labels) out."""

    name: Annotated[Name, Meta(description="Name of the model, as the signature prints it.")]
    kind: Annotated[
        Literal["sat", "words"],
        Meta(
            description=(
                "Inputs of the graph: input_ids and attention_mask (batch, tokens) for sat;"
                " capitals as well for words, whose segments end only after words."
            )
        ),
    ]
    model: Annotated[RelativePath, Meta(description="ONNX graph; label 0 counts.")]
    weights: Weights
    tokenizer: Annotated[RelativePath, Meta(description="A tokenizer.json.")]
    special_tokens: Annotated[
        tuple[TokenId, TokenId], Meta(description="Token ids before and after each window.")
    ] = field(name="frame")
    max_tokens: Window
    stride: Annotated[
        int,
        Meta(
            ge=1,
            description="Tokens from the start of one window to the next; at most max_tokens - 2.",
        ),
    ]
    threshold: Annotated[
        float,
        Meta(
            gt=0,
            lt=1,
            description="A segment ends after a character whose probability is above it.",
        ),
    ]
    precision: Annotated[
        Name, Meta(description="Of weights and arithmetic, as the signature prints it.")
    ]
    agreement: Annotated[
        Share | None,
        Meta(description="For a quantised model: F1 of its segment ends against fp32."),
    ] = None
    cuda: _Cuda = None
    proof: Proof | None = None

    def __post_init__(self) -> None:
        if self.stride > self.max_tokens - 2:
            raise ValueError("stride must be at most max_tokens - 2")


class SegmenterSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How texts are split into segments: by rules, by a learned segmenter, or both."""

    rules: Annotated[
        RulesSpec | None,
        Meta(description="Without a model, they refuse texts without sentence punctuation."),
    ] = None
    model: Annotated[
        LearnedSegmenterSpec | None,
        Meta(
            description=(
                "Without rules, it sees every text without its punctuation. With rules, it splits "
                "the texts without sentence punctuation."
            )
        ),
    ] = None

    def __post_init__(self) -> None:
        if not self.rules and not self.model:
            raise ValueError("there must be rules, a model, or both")


# Rules between fields, for the JSON schema; the types check them in `__post_init__`.
_EMBEDDER_RULE = {
    "if": {"required": ["mask_instruction"], "properties": {"mask_instruction": {"const": True}}},
    "then": {
        "required": ["layout"],
        "properties": {
            "layout": {"const": "packed"},
            "long_text": {"enum": ["truncate_text", "truncate", "error"]},
        },
    },
}
_SEGMENTER_RULE = {
    "not": {"type": "object", "properties": {"rules": {"const": None}, "model": {"const": None}}}
}


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Contents of `bundle.json`."""

    name: Annotated[str, Meta(description="Name of the bundle.")]
    licence: Annotated[str, Meta(description="SPDX expression of the weights.")]
    source: Annotated[str, Meta(description="Where the weights came from, in words.")]
    files: Annotated[
        tuple[FileEntry, ...],
        Meta(description="Every file of the folder except bundle.json itself."),
    ]
    embedder: Annotated[EmbedderSpec | None, Meta(extra_json_schema=_EMBEDDER_RULE)] = None
    segmenter: Annotated[SegmenterSpec | None, Meta(extra_json_schema=_SEGMENTER_RULE)] = None
    schema: Annotated[Literal[2, 3, 4], Meta(description="Version of this schema.")]

    def to_json(self) -> str:
        """Return the text of `bundle.json`.

        The keys are sorted, so that equal manifests have equal bytes.
        """
        return json.dumps(_without_null(msgspec.to_builtins(self)), indent=2, sort_keys=True) + "\n"


def read_manifest(path: Path) -> Manifest:
    """Parse and validate a `bundle.json`.

    Raises BundleError, which names the field, or SchemaError for another schema version.
    """
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise BundleError(
                f"{path} is larger than {MAX_MANIFEST_BYTES} bytes, so it is not a manifest"
            )
        # msgspec's parser would accept equal keys, and take the last one.
        data = json.loads(
            path.read_bytes(), object_pairs_hook=unique_keys, parse_constant=_refuse_constant
        )
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path}: cannot be read: {error}") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if type(schema) is int and schema not in SCHEMAS:
        raise SchemaError(
            f"{path} has schema {schema}, but this version reads only schemas {SCHEMAS[0]} to"
            f" {SCHEMAS[-1]}: build the bundle again (the default one with `vcs-runtime fetch"
            " default`), or use a matching vcs-runtime"
        )
    try:
        manifest = msgspec.convert(data, Manifest)
        _check_paths(manifest)
    except ValueError as error:
        raise BundleError(f"{path}: {_explain(error)}") from None
    return manifest


def _check_paths(manifest: Manifest) -> None:
    """Raise ValueError if the files or the models' paths contradict each other."""
    listed = {entry.path for entry in manifest.files}
    # Paths that differ only by case are one file on many machines.
    if len({path.casefold() for path in listed}) != len(manifest.files):
        raise ValueError("files: a path is listed twice")
    models: dict[str, EmbedderSpec | LearnedSegmenterSpec] = {}
    if manifest.embedder:
        models["embedder"] = manifest.embedder
    if manifest.segmenter and manifest.segmenter.model:
        models["segmenter.model"] = manifest.segmenter.model
    for place, spec in models.items():
        for path in (spec.model, spec.tokenizer, *spec.weights):
            if path not in listed:
                raise ValueError(f"{place}: {path} is not in files")
    for place, spec in models.items():
        if spec.cuda:
            _check_cuda_path(f"{place}.cuda", spec.cuda.model, spec.model, listed)


def _check_cuda_path(place: str, path: str, model: str, listed: set[str]) -> None:
    if path not in listed:
        raise ValueError(f"{place}: {path} is not in files")
    # A graph names only files in its folder: in another folder it would have other weights.
    if path.rpartition("/")[0] != model.rpartition("/")[0]:
        raise ValueError(f"{place}: {path} must be in the folder of {model}")


def _explain(error: ValueError) -> str:
    """Return the message of a msgspec error with the place first.

    msgspec puts the place last, as in "Expected `int` - at `$.files[0].size`".
    """
    message, _, place = str(error).partition(" - at `$")
    for pattern, words in _PATTERNS.items():
        message = message.replace(f"`str` matching regex {pattern!r}", words)
    if place:
        place = place.strip(".`")
        message = f"{place}: {message}"
    # The file may come from an attacker: its line breaks and control characters stay out of logs.
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_null(item) for item in value]
    return value
