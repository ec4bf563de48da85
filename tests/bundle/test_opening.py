"""`bundle.json`: what is accepted, and what is refused before anything is loaded."""

from __future__ import annotations

import json
import shutil
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from support.changed_bundles import edit
from vcs_runtime import BundleError, Scorer
from vcs_runtime.bundle.manifest import MANIFEST, read_manifest
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.bundle.paths import home


@pytest.fixture
def copy(tiny_bundle: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_bundle, tmp_path / "bundle")


LOSS = {"texts": 3, "cosine_mean": 0.999, "cosine_min": 0.99}


def test_a_bundle_works_from_any_folder(copy: Path, scorer: Scorer) -> None:
    with Scorer.open(copy, device="cpu") as moved:
        assert moved.score("A man walks.", "A dog runs.") == scorer.score(
            "A man walks.", "A dog runs."
        )


def test_a_bundle_is_read_and_never_written(copy: Path) -> None:
    paths = [copy, *copy.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat() for path in paths}
    try:
        with Scorer.open(copy, device="cpu") as opened:
            opened.score("A man walks.", "A dog runs.")
        for path in [copy, *copy.rglob("*")]:
            found = path.stat()
            assert found.st_mtime_ns == before[path].st_mtime_ns
            assert found.st_ctime_ns == before[path].st_ctime_ns
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_the_manifest_survives_a_round_trip(tiny_bundle: Path, tmp_path: Path) -> None:
    manifest = read_manifest(tiny_bundle / MANIFEST)
    (tmp_path / MANIFEST).write_text(manifest.to_json())
    assert read_manifest(tmp_path / MANIFEST) == manifest


def test_a_manifest_of_schema_2_is_read_with_todays_defaults(copy: Path) -> None:
    edit(copy, lambda data: data.update(schema=2))
    spec = open_bundle(copy).manifest.embedder
    assert spec
    assert spec.layout == "padded"
    assert spec.instruction == ""
    assert spec.mask_instruction is False
    assert spec.special_tokens is None


def test_what_a_manifest_may_say_of_an_embedder_is_read(copy: Path) -> None:
    new = {
        "layout": "packed",
        "instruction": "Query: ",
        "mask_instruction": True,
        "long_text": "truncate",
        "frame": [[1], []],
        "loss": {**LOSS, "pairs": 2, "vcs_change": 0.01},
    }
    edit(copy, lambda data: data["embedder"].update(new))
    manifest = read_manifest(copy / MANIFEST)
    assert manifest.embedder
    assert manifest.embedder.special_tokens == ((1,), ())
    (copy / MANIFEST).write_text(manifest.to_json())
    assert read_manifest(copy / MANIFEST) == manifest
    assert json.loads(manifest.to_json())["embedder"].items() >= new.items()


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("schema",), 1, "has schema 1, but this version reads only schemas 2 to 4"),
        (("schema",), "1", "schema: Expected `int`, got `str`"),
        (("schema",), True, "schema: Expected `int`, got `bool`"),
        (("files",), ..., "missing required field `files`"),
        (("licence",), ..., "missing required field `licence`"),
        (("files", 2), "x", "files[2]: Expected `object`, got `str`"),
        (("files", 0, "path"), "a//b", "files[0].path: Expected a plain relative path"),
        (("files", 0, "path"), "./a", "files[0].path: Expected a plain relative path"),
        (("files", 0, "path"), "C:a", "files[0].path: Expected a plain relative path"),
        (("files", 0, "path"), "", "files[0].path: Expected a plain relative path"),
        (("files", 0, "path"), "bundle.json", "files[0].path: Expected a plain relative path"),
        (("files", 0, "path"), "LICENSES", "is not in files"),
        (("files", 0, "size"), -1, "files[0].size: Expected `int` >= 0"),
        (("files", 0, "sha256"), "abc", "files[0].sha256: Expected 64 hex digits"),
        (("files", 0, "ends"), "abc", "files[0].ends: Expected 64 hex digits"),
        (("embedder",), [], "embedder: Expected `object | null`, got `array`"),
        (("embedder", "weights"), [], "embedder.weights: Expected `array` of length >= 1"),
        (("embedder", "weights"), [1], "embedder.weights[0]: Expected `str`, got `int`"),
        (("embedder", "long_text"), "cut", "embedder.long_text: Invalid enum value 'cut'"),
        (("embedder", "max_tokens"), 2, "embedder.max_tokens: Expected `int` >= 3"),
        (("embedder", "name"), "a|b", "embedder.name: Expected letters, digits"),
        (("embedder", "more"), 1, "embedder: Object contains unknown field `more`"),
        (("embedder", "layout"), "wide", "embedder.layout: Invalid enum value 'wide'"),
        (("embedder", "instruction"), None, "embedder.instruction: Expected `str`, got `null`"),
        (
            ("embedder", "mask_instruction"),
            True,
            "embedder: mask_instruction excludes a padded layout",
        ),
        (
            ("embedder", "mask_instruction"),
            1,
            "embedder.mask_instruction: Expected `bool`, got `int`",
        ),
        (("embedder", "frame"), [1, 2], "embedder.frame[0]: Expected `array`, got `int`"),
        (("embedder", "frame"), [[1], [-2]], "embedder.frame[1][0]: Expected `int` >= 0"),
        (
            ("embedder", "loss"),
            {"texts": 3},
            "embedder.loss: Object missing required field `cosine_mean`",
        ),
        (
            ("embedder", "loss"),
            LOSS | {"cosine_min": 1.5},
            "embedder.loss.cosine_min: Expected `float` <= 1.0",
        ),
        (("embedder", "loss"), LOSS | {"cosine_min": 1.0}, "embedder.loss: cosine_min is above"),
        (
            ("embedder", "loss"),
            LOSS | {"a\nb": 1},
            r"embedder.loss: Object contains unknown field `a\nb`",
        ),
        (
            ("segmenter", "rules", "name"),
            "magic",
            "segmenter.rules.name: Invalid enum value 'magic'",
        ),
        (("segmenter", "rules"), None, "segmenter: there must be rules, a model, or both"),
    ],
)
def test_a_manifest_that_is_wrong_names_the_field(
    copy: Path, place: tuple[Any, ...], value: Any, says: str
) -> None:
    """Beside what is attacked in `test_hostile_bundles`; `...` leaves the field out."""
    data = json.loads((copy / MANIFEST).read_text())
    *way, last = place
    parent = reduce(getitem, way, data)
    if value is ...:
        del parent[last]
    else:
        parent[last] = value
    (copy / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(BundleError) as error:
        open_bundle(copy)
    assert says in str(error.value)
    assert str(copy) in str(error.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot be read"),
        (b"[]", "Expected `object`, got `array`"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_manifest_that_is_none_is_refused(copy: Path, content: bytes, says: str) -> None:
    (copy / MANIFEST).write_bytes(content)
    with pytest.raises(BundleError, match=says):
        open_bundle(copy)


def test_a_folder_without_a_manifest_or_none_at_all_is_refused(copy: Path) -> None:
    (copy / MANIFEST).unlink()
    with pytest.raises(BundleError, match="no bundle.json in it"):
        Scorer.open(copy, device="cpu")
    shutil.rmtree(copy)
    with pytest.raises(BundleError, match="no such folder"):
        Scorer.open(copy, device="cpu")


def test_a_name_that_no_file_system_takes_is_a_bundle_error() -> None:
    for bundle in ("a" * 5000, f"{'a' * 300}/b"):
        with pytest.raises(BundleError, match="bundle a+.*: File name too long"):
            Scorer.open(bundle, device="cpu")


def test_a_bundle_without_an_embedder_has_none_to_open(copy: Path) -> None:
    edit(copy, lambda data: data.update(embedder=None))
    with pytest.raises(BundleError, match="it holds no embedder"):
        Scorer.open(copy, device="cpu")


def test_home_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path))
    assert home() == tmp_path
    with pytest.raises(BundleError, match="run `vcs-runtime fetch default`"):
        open_bundle("default")


def test_one_of_very_many_keys_that_stands_twice_is_named(tmp_path: Path) -> None:
    """Found in one pass: comparing each key with all others would take minutes."""
    keys = ",".join(f'"{number}":0' for number in range(250_000))
    (tmp_path / MANIFEST).write_text(f'{{{keys},"7":0}}')
    with pytest.raises(BundleError, match="the key '7' twice"):
        read_manifest(tmp_path / MANIFEST)
