"""What quantisation loses, measured between two graphs, and the limits on it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.embedders import spec_of
from support.stories import story
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.checks.quantization_error import (
    check_quantization_error,
    embedder_quantization_error,
    rewritten_pairs,
)
from vcs_export.errors import ExportError
from vcs_runtime.bundle.manifest import QuantizationErrorStats
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

NO_LOSS = QuantizationErrorStats(
    texts=7,
    cosine_mean=1,
    cosine_min=0.5,
    pairs=28,
    vcs_change=0,
    vcs_change_p95=0,
    margin_change=0,
    margin_change_p95=0,
)


def test_a_graph_compared_with_itself_has_an_error_that_a_manifest_takes(tiny_bundle: Path) -> None:
    """Cosines of 1 may be rounded upwards, and their smallest above their mean."""
    bundle = open_bundle(tiny_bundle)
    spec = bundle.manifest.embedder
    assert spec
    for count in (1, 3, 7, 40):
        error = embedder_quantization_error(
            bundle.path(spec.model), bundle.root, spec, [story(seed, 3) for seed in range(count)]
        )
        assert 1.0 - 1e-6 < error.cosine_min <= error.cosine_mean <= 1.0
        assert (
            error.vcs_change
            == error.vcs_change_p95
            == error.margin_change
            == error.margin_change_p95
            == 0
        )
        assert msgspec.convert(msgspec.to_builtins(error), QuantizationErrorStats) == error


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its vectors hardly turn in int8, and some of its scores change."""
    folder = tmp_path_factory.mktemp("lossy") / "checkpoint"
    return write_tiny_nv_embed(folder, hidden=96, intermediate=160, positions=256)


def test_a_model_whose_vectors_hardly_turn_is_refused_for_its_scores(
    checkpoint: Path, tmp_path: Path
) -> None:
    given = {"checkpoint": checkpoint, "precision": "int8", "device": "cpu"}
    with pytest.raises(
        ExportError, match=r"VCS changes by 0\.\d{4} on average \(28 pairs\), more than 0\.0001"
    ) as error:
        build_tiny_nv_embed_bundle(tmp_path, **given, most_change=0.0001)
    assert "cosine" not in str(error.value)
    assert not list(tmp_path.iterdir())
    loss = spec_of(build_tiny_nv_embed_bundle(tmp_path, **given, most_change=1)).quantization_error
    assert loss
    assert loss.vcs_change is not None
    assert loss.vcs_change_p95 is not None
    assert 0.0001 < loss.vcs_change < loss.vcs_change_p95 < 0.1
    run = CliRunner().invoke(cli, ["bundle", "info", str(tmp_path / "bundle")])
    assert (
        f"VCS changes by {loss.vcs_change:.6f} on average, {loss.vcs_change_p95:.6f} at the 95th"
        in run.stdout
    )
    assert f"the margin changes by {loss.margin_change:.6f} on average" in run.stdout


def test_vectors_that_turn_too_far_leave_no_bundle(checkpoint: Path, tmp_path: Path) -> None:
    given = {"checkpoint": checkpoint, "precision": "int8", "device": "cpu"}
    with pytest.raises(ExportError, match=r"int8 loses too much .* less than 1 \(--least-cosine\)"):
        build_tiny_nv_embed_bundle(tmp_path, **given, least_cosine=1.0)
    assert not list(tmp_path.iterdir())
    build_tiny_nv_embed_bundle(tmp_path, **given, least_cosine=0.9)


def test_the_command_says_what_it_measures_on(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("\n".join(story(seed, 3) for seed in range(4)), "utf-8")
    command = ["export", "nv-embed-v2", "--from", str(checkpoint), "-o", str(tmp_path / "bundle")]
    options = ["--precision", "int8", "--text", str(tmp_path / "texts"), "--device", "cpu"]
    done = CliRunner().invoke(cli, [*command, *options])
    assert done.exit_code == 0, done.output
    assert "int8 is measured on ort-cpu (named)" in done.stderr
    assert "cosine of int8 to unquantised vectors, 4 texts: mean 0.99" in done.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"cosine_mean": 0.9899},
            r"mean cosine of 0\.98990 .* less than 0\.99 \(--least-cosine\)$",
        ),
        (
            {"vcs_change": 0.0101},
            r"VCS changes by 0\.0101 on average \(28 pairs\), more than 0\.01 \(--most-change\)$",
        ),
        (
            {"vcs_change_p95": 0.0501},
            r"VCS changes by 0\.0501 at the 95th percentile .* more than 0\.05 ",
        ),
        (
            {"margin_change": 0.0201},
            r"the margin changes by 0\.0201 on average .* more than 0\.02 ",
        ),
        (
            {"margin_change_p95": 0.1001},
            r"the margin changes by 0\.1001 at the 95th percentile .* more than 0\.1 ",
        ),
        ({"cosine_mean": 0.5, "vcs_change": 0.5}, r"0\.50000.*; VCS changes by 0\.5000"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_each_figure_has_a_limit_which_the_error_names(change: dict[str, float], says: str) -> None:
    error = msgspec.structs.replace(NO_LOSS, **change)
    check_quantization_error(NO_LOSS, "int8")
    with pytest.raises(ExportError, match=says):
        check_quantization_error(error, "int8")
    check_quantization_error(error, "int8", least_cosine=-1, most_change=1)


def test_an_error_of_an_earlier_version_has_fewer_limits() -> None:
    error = QuantizationErrorStats(
        texts=3, cosine_mean=0.999, cosine_min=0.99, pairs=2, vcs_change=0.001
    )
    check_quantization_error(error, "int8")


def test_pairs_are_texts_with_inexact_versions_and_with_their_neighbours() -> None:
    texts = [story(seed, 8) for seed in range(3)]
    pairs = rewritten_pairs(texts)
    assert pairs == rewritten_pairs(texts)
    assert [" ".join(pair.reference) for pair in pairs[::4]] == texts
    for i in range(3):
        reworded, shorter, longer, neighbour = pairs[4 * i : 4 * i + 4]
        words = texts[i].split()
        assert " ".join(reworded.generated).split() == [
            word for k, word in enumerate(words, 1) if k % 5
        ]
        assert set(shorter.generated) < set(reworded.generated) < set(longer.generated)
        assert " ".join(neighbour.generated) == texts[(i + 1) % 3]
        assert not set(reworded.reference) & set(reworded.generated)


@pytest.mark.parametrize(
    "texts", [["one"], [" "], ["a b c"] * 40, ["long " * 200, "short"], ["short", "long " * 200]]
)
def test_texts_of_any_length_make_pairs(texts: list[str]) -> None:
    pairs = rewritten_pairs(texts)
    assert len(pairs) >= 3
    assert sum(len(" ".join(pair.reference).split()) for pair in pairs[::4]) >= len(
        " ".join(texts).split()
    )
    for pair in pairs:
        assert pair.reference
        assert pair.generated
