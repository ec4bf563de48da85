"""Bundles: folders that hold a model as this runtime loads it, described and hashed by one `bundle.json`.

`bundle.json` is the only entry point: a file that it does not list is never opened, and a listed file whose
size or sha256 differs is refused before anything reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from vcs_runtime.errors import BundleError, SchemaError

SCHEMA = 2
MANIFEST = "bundle.json"
MAX_MANIFEST_BYTES = 4 << 20  # a real one has a few kilobytes
LONG_TEXT_POLICIES = ("window_mean", "error")
RULES = ("sentencex",)
BOUNDARY_KINDS = ("sat", "words")

_T = TypeVar("_T")


@dataclass(frozen=True)
class FileEntry:
    """One file of a bundle: its path relative to the bundle (posix), bytes, and sha256 (64 hex digits)."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class EmbedderSpec:
    """How the embedder of a bundle is run. Paths are relative to the bundle and listed in its `files`.

    model        the ONNX graph: token ids and attention mask `(batch, tokens)` in, unit vectors
                 `(batch, dimension)` out; pooling and normalisation are inside
    weights      the files whose bytes are the weights; their hash names the weights in the signature
    tokenizer    a `tokenizer.json`
    dimension    length of a vector
    max_tokens   the longest input, special tokens included
    long_text    a longer text is embedded in windows whose vectors are averaged by token count
                 (`window_mean`), or refused (`error`)
    precision    of weights and arithmetic, as the signature prints it: "fp32", ...
    """

    name: str
    model: str
    weights: tuple[str, ...]
    tokenizer: str
    dimension: int
    max_tokens: int
    long_text: str
    precision: str


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
                "words": beside these `capitals`, how each token's word is written (`vcs_runtime.words`);
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
class Manifest:
    """What `bundle.json` says. `licence`: SPDX identifier of the weights; `source`: where they came from."""

    name: str
    licence: str
    source: str
    files: tuple[FileEntry, ...]
    embedder: EmbedderSpec | None = None
    segmenter: SegmenterSpec | None = None
    schema: int = SCHEMA

    def to_json(self) -> str:
        """The text of `bundle.json`: sorted keys, so that equal manifests are equal bytes."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk."""

    root: Path
    manifest: Manifest

    def path(self, relative: str) -> Path:
        """The absolute path of a listed file."""
        return self.root / relative

    def weights_hash(self, spec: EmbedderSpec | BoundarySpec) -> str:
        """sha256 of the engine's weights: of the one weights file, or of the files' hashes in order."""
        digests = {entry.path: entry.sha256 for entry in self.manifest.files}
        ours = [digests[path] for path in spec.weights]
        return ours[0] if len(ours) == 1 else hashlib.sha256("".join(ours).encode()).hexdigest()


def home() -> Path:
    """Where bundles are kept: `$VCS_RUNTIME_HOME`, else `vcs-runtime` in the user's cache folder."""
    if override := os.environ.get("VCS_RUNTIME_HOME"):
        return Path(override).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "vcs-runtime"


def default_bundle_path() -> Path:
    """Where `vcs-runtime fetch default` puts the embedded default."""
    return home() / "bundles" / "default"


def open_bundle(bundle: str | os.PathLike[str]) -> Bundle:
    """Read and verify a bundle: the folder `bundle`, or the embedded default for "default".

    Every listed file is checked by size and sha256 (90 MB take about 0.1 s). Nothing is downloaded.
    Raises BundleError: no bundle there, a manifest that is not one, a file missing, changed or unlisted.
    """
    if os.fspath(bundle) == "default":
        root = default_bundle_path()
        if not (root / MANIFEST).is_file():
            raise BundleError(
                f"the default bundle is not installed in {root}: run `vcs-runtime fetch default` "
                "(or, without a network, `vcs-runtime fetch default --from WHEEL_OR_FOLDER`)"
            )
    else:
        root = Path(bundle)
        if not root.is_dir():
            raise BundleError(f"bundle {root}: no such folder")
        if not (root / MANIFEST).is_file():
            raise BundleError(f"bundle {root}: no {MANIFEST} in it")
    manifest = read_manifest(root / MANIFEST)
    verify_files(root, manifest)
    return Bundle(root.resolve(), manifest)


def read_manifest(path: Path) -> Manifest:
    """Parse and validate a `bundle.json`. Raises BundleError naming the file and the field."""
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise BundleError(f"{path}: larger than {MAX_MANIFEST_BYTES} bytes, this is no manifest")
        data = json.loads(path.read_bytes(), object_pairs_hook=_unique_keys)
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path}: cannot be read: {error}") from None
    try:
        return _manifest(data)
    except (ValueError, TypeError) as error:
        raise BundleError(f"{path}: {error}") from None
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from None


def verify_files(root: Path, manifest: Manifest) -> None:
    """Check that the folder holds exactly the listed files, byte for byte. Raises BundleError."""
    listed = {entry.path for entry in manifest.files}
    for folder, folders, names in os.walk(root):
        for name in [*names, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]:
            relative = Path(folder, name).relative_to(root).as_posix()
            if relative != MANIFEST and relative not in listed:
                raise BundleError(f"bundle {root}: {relative} is not listed in {MANIFEST}")
    for entry in manifest.files:
        path = root / entry.path
        if path.is_symlink() or not path.is_file():
            raise BundleError(f"bundle {root}: {entry.path} is missing or not a regular file")
        if (size := path.stat().st_size) != entry.size:
            raise BundleError(f"bundle {root}: {entry.path} has {size} bytes, {MANIFEST} says {entry.size}")
        if sha256_of(path) != entry.sha256:
            raise BundleError(
                f"bundle {root}: {entry.path} is damaged: its sha256 is not the one in {MANIFEST}"
            )


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"the key {max(keys, key=keys.count)!r} stands twice")
    return dict(pairs)


def _manifest(data: Any) -> Manifest:
    schema = _field(data, "schema", int)
    if schema != SCHEMA:
        raise SchemaError(
            f"schema {schema}, but this version reads schema {SCHEMA} only: build the bundle anew "
            "(the default one with `vcs-runtime fetch default`), or use a matching vcs-runtime"
        )
    files = tuple(_file(item) for item in _field(data, "files", list))
    listed = {entry.path for entry in files}
    if len(listed) != len(files):
        raise ValueError("files: a path is listed twice")
    manifest = Manifest(
        name=_field(data, "name", str),
        licence=_field(data, "licence", str),
        source=_field(data, "source", str),
        files=files,
        embedder=_embedder(data["embedder"]) if data.get("embedder") is not None else None,
        segmenter=_segmenter(data["segmenter"]) if data.get("segmenter") is not None else None,
    )
    engines = {"embedder": manifest.embedder, "segmenter": manifest.segmenter and manifest.segmenter.model}
    for key, spec in engines.items():
        for path in (spec.model, spec.tokenizer, *spec.weights) if spec else ():
            if path not in listed:
                raise ValueError(f"{key}: {path} is not in files")
    return manifest


def _file(item: Any) -> FileEntry:
    entry = FileEntry(_field(item, "path", str), _field(item, "size", int), _field(item, "sha256", str))
    parts = PurePosixPath(entry.path)
    plain = str(parts) == entry.path and not parts.is_absolute() and ".." not in parts.parts
    if not plain or any(c in entry.path for c in "\\:\0") or entry.path in (".", MANIFEST):
        raise ValueError(f"files: {entry.path!r} is not a plain relative path")
    if entry.size < 0 or not re.fullmatch("[0-9a-f]{64}", entry.sha256):
        raise ValueError(f"files: {entry.path}: size or sha256 is not one")
    return entry


def _embedder(item: Any) -> EmbedderSpec:
    spec = EmbedderSpec(
        name=_name(item),
        model=_field(item, "model", str),
        weights=tuple(_strings(_field(item, "weights", list), "weights")),
        tokenizer=_field(item, "tokenizer", str),
        dimension=_field(item, "dimension", int),
        max_tokens=_field(item, "max_tokens", int),
        long_text=_field(item, "long_text", str),
        precision=_field(item, "precision", str),
    )
    if spec.dimension < 1 or spec.max_tokens < 3 or not spec.weights:
        raise ValueError("embedder: dimension, max_tokens or weights out of range")
    if spec.long_text not in LONG_TEXT_POLICIES:
        raise ValueError(f"embedder: long_text must be one of {LONG_TEXT_POLICIES}, not {spec.long_text!r}")
    return spec


def _segmenter(item: Any) -> SegmenterSpec:
    rules, model = (_optional(item, key) for key in ("rules", "model"))
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
    frame = _field(item, "frame", list)
    agreement = _optional(item, "agreement")
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
        agreement=None if agreement is None else _field(item, "agreement", float),
    )
    if spec.kind not in BOUNDARY_KINDS:
        raise ValueError(f"segmenter: kind must be one of {BOUNDARY_KINDS}, not {spec.kind!r}")
    if not all(isinstance(token, int) and token >= 0 for token in spec.frame):
        raise ValueError(f"segmenter: frame must be two token ids, not {frame!r}")
    if spec.max_tokens < 3 or not 1 <= spec.stride <= spec.max_tokens - 2 or not spec.weights:
        raise ValueError("segmenter: max_tokens, stride or weights out of range")
    if not 0 < spec.threshold < 1:
        raise ValueError(f"segmenter: threshold must be between 0 and 1, not {spec.threshold}")
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


def _optional(item: Any, key: str) -> Any:
    if not isinstance(item, dict):
        raise ValueError(f"an object was expected, not {type(item).__name__}")
    return item.get(key)


def _field(item: Any, key: str, kind: type[_T]) -> _T:
    if not isinstance(item, dict):
        raise ValueError(f"an object was expected, not {type(item).__name__}")
    if key not in item:
        raise ValueError(f"{key}: missing")
    value = item[key]
    if kind is float and type(value) is int:
        value = float(value)  # JSON writers may drop the ".0"
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{key}: must be of type {kind.__name__}, not {type(value).__name__}")
    return value
