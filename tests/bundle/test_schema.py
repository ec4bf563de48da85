"""The published JSON schema is made from the types, and accepts what they accept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from vcs_runtime.bundle.manifest import MANIFEST, SCHEMA, read_manifest
from vcs_runtime.bundle.schema import json_schema
from vcs_runtime.errors import BundleError

SCHEMA_FILE = json.loads(
    files("vcs_runtime").joinpath("data/bundle.schema.json").read_text("utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA_FILE)
# Rules between fields, which the schema leaves to its descriptions.
BEYOND = ("is not in files", "listed twice", "stride must be at most", "cosine_min is above")
DIGEST = "0" * 64
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    3,
    4,
    -1,
    1.5,
    0.5,
    (1 << 20) + 1,
    1 << 53,
    "",
    "x",
    "../x",
    "a//b",
    ".a",
    "a\n",
    "bundle.json",
    DIGEST,
    [],
    [1, 2],
    [[1], [2]],
    [[1], [True]],
    [[-1], []],
    ["x"],
    {},
)


def everything() -> dict[str, Any]:
    """A manifest that says all that may be said."""
    engine = {
        "name": "m",
        "model": "e/m.onnx",
        "weights": ["e/w"],
        "tokenizer": "e/t.json",
        "precision": "int8",
    }
    return {
        "schema": SCHEMA,
        "name": "n",
        "licence": "CC0-1.0",
        "source": "s",
        "files": [
            {"path": path, "size": 5, "sha256": DIGEST, "ends": DIGEST}
            for path in ("e/m.onnx", "e/c.onnx", "e/w", "e/t.json", "LICENSES/MIT.txt")
        ],
        "embedder": {
            **engine,
            "dimension": 8,
            "max_tokens": 32768,
            "long_text": "truncate",
            "layout": "packed",
            "cuda": {"model": "e/c.onnx", "layout": "varlen"},
            "instruction": "Query: ",
            "mask_instruction": True,
            "frame": [[1], [2]],
            "loss": {
                "texts": 3,
                "cosine_mean": 0.99,
                "cosine_min": 0.9,
                "pairs": 2,
                "vcs_change": 0.01,
                "vcs_change_p95": 0.05,
                "margin_change": 0.02,
                "margin_change_p95": 1.5,
            },
        },
        "segmenter": {
            "rules": {"name": "sentencex", "language": "en"},
            "model": {
                **engine,
                "kind": "sat",
                "frame": [0, 2],
                "max_tokens": 512,
                "stride": 64,
                "threshold": 0.25,
                "agreement": 0.99,
            },
        },
    }


def places(item: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document, but only to the first of a list's."""
    if path:
        yield path
    if isinstance(item, dict):
        for key, value in item.items():
            yield from places(value, (*path, key))
    elif isinstance(item, list) and item:
        yield from places(item[0], (*path, 0))


def at(document: Any, place: tuple[Any, ...]) -> Any:
    """What holds the value at `place`."""
    for step in place[:-1]:
        document = document[step]
    return document


def parse(folder: Path, document: Any) -> str | None:
    """Why the parser refuses a document; None if it does not."""
    (folder / MANIFEST).write_text(json.dumps(document))
    try:
        read_manifest(folder / MANIFEST)
    except BundleError as error:
        return str(error)
    return None


def agree(folder: Path, document: Any, what: object) -> None:
    reason = parse(folder, document)
    if reason is None or not any(text in reason for text in BEYOND):
        assert VALIDATOR.is_valid(document) == (reason is None), (what, reason)


def in_order(item: Any) -> Any:
    """A schema with sorted alternatives: releases of msgspec list them in different orders."""
    if isinstance(item, dict):
        return {
            key: sorted(map(in_order, value), key=json.dumps) if key == "anyOf" else in_order(value)
            for key, value in item.items()
        }
    return [in_order(value) for value in item] if isinstance(item, list) else item


def test_the_published_schema_is_made_from_the_types() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA_FILE)
    assert in_order(json.loads(json_schema())) == in_order(SCHEMA_FILE), (
        "run `python -m vcs_runtime.bundle.schema` into the file"
    )


def test_real_bundles_are_valid(tiny_bundle: Path, sat_bundle: Path, mixed_bundle: Path) -> None:
    for bundle in (tiny_bundle, sat_bundle, mixed_bundle):
        VALIDATOR.validate(json.loads((bundle / MANIFEST).read_text()))


def test_a_manifest_that_says_everything_is_valid(tmp_path: Path) -> None:
    assert parse(tmp_path, everything()) is None
    VALIDATOR.validate(everything())


@pytest.mark.parametrize(
    "place", list(places(everything())), ids=lambda place: ".".join(map(str, place))
)
def test_schema_and_parser_agree_on_any_one_change(tmp_path: Path, place: tuple[Any, ...]) -> None:
    for value in VALUES:
        document = everything()
        at(document, place)[place[-1]] = value
        agree(tmp_path, document, value)
    document = everything()
    del at(document, place)[place[-1]]
    agree(tmp_path, document, "left out")
    document = everything()
    if isinstance(parent := at(document, place), dict):
        parent["unknown"] = 1
        agree(tmp_path, document, "unknown key")


def test_schema_and_parser_agree_on_what_is_not_pooled(tmp_path: Path) -> None:
    for layout, long_text, masked in product(
        ("padded", "packed", "masked", None),
        ("window_mean", "truncate_text", "truncate", "error"),
        (True, False, None),
    ):
        document = everything()
        settings = {"layout": layout, "long_text": long_text, "mask_instruction": masked}
        document["embedder"] |= settings
        document["embedder"] = {
            key: value for key, value in document["embedder"].items() if value is not None
        }
        agree(tmp_path, document, settings)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (("embedder", "tokenizer"), "embedder: e/other is not in files"),
        (("embedder", "cuda", "model"), "embedder.cuda: e/other is not in files"),
        (("segmenter", "model", "tokenizer"), "segmenter.model: e/other is not in files"),
    ],
)
def test_every_path_is_listed(tmp_path: Path, place: tuple[Any, ...], says: str) -> None:
    document = everything()
    at(document, place)[place[-1]] = "e/other"
    reason = parse(tmp_path, document)
    assert reason is not None
    assert says in reason


def test_the_graph_for_cuda_lies_beside_the_other_one(tmp_path: Path) -> None:
    document = everything()
    document["files"].append({**document["files"][0], "path": "elsewhere/c.onnx"})
    document["embedder"]["cuda"]["model"] = "elsewhere/c.onnx"
    says = (
        f"embedder.cuda: elsewhere/c.onnx must be in the folder of {document['embedder']['model']}"
    )
    reason = parse(tmp_path, document)
    assert reason is not None
    assert says in reason
