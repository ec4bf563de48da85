"""How fit embedders are for VCS: planted defects show, each door tells, and a calibration mends a
high floor."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from support.changed_bundles import edit
from support.command_line import vcs
from support.stories import story
from vcs_export.cli.options import record_fitness
from vcs_runtime import BundleError, Embedder, Scorer, ScorerConfig
from vcs_runtime.bundle.manifest import MANIFEST, Calibration, Fitness
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import UnfitModelWarning
from vcs_runtime.inference.fitness import calibrate, fitness_pairs, measure, record, unfit
from vcs_runtime.inference.fitness import with_fitness as fitted
from vcs_runtime.training import TextMetric, TrainingScorer, compute_score

Vectors = NDArray[np.float64]
Embed = Callable[[list[str]], Any]
PAIR = (story(1), story(2))


@pytest.fixture(scope="module")
def default() -> Iterator[Embedder]:
    with Embedder.open("default", "cpu") as embedder:
        yield embedder


@pytest.fixture(scope="module")
def known(default: Embedder) -> dict[str, NDArray[np.float32]]:
    texts: dict[str, None] = {}
    for _, *sides in fitness_pairs():
        for sentences in sides:
            texts |= dict.fromkeys([*sentences, " ".join(sentences)])
    return dict(zip(texts, default.embed(list(texts)), strict=True))


@pytest.fixture
def sound(known: dict[str, NDArray[np.float32]]) -> Embed:
    return lambda texts: np.array([known[text] for text in texts])


def with_floor(sound: Embed, share: float, noise: float = 0.0) -> Embed:
    """An embedder whose cosines have a floor: most of each vector is common to all texts."""
    generator = np.random.default_rng(7)
    common = generator.normal(size=384)
    common /= np.linalg.norm(common)

    def embed(texts: list[str]) -> Vectors:
        vectors = np.sqrt(1 - share) * np.asarray(sound(texts), np.float64)
        vectors += np.sqrt(share) * common
        vectors += noise * generator.normal(size=vectors.shape) / np.sqrt(384)
        return vectors

    return embed


def of_no_meaning(texts: list[str]) -> Vectors:
    """An embedder with random weights: similar texts have nothing in common."""
    rows = []
    for text in texts:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        rows.append(np.random.default_rng(seed).normal(size=64))
    return np.array(rows)


def test_there_are_forty_pairs_of_texts_and_more(known: dict[str, Any]) -> None:
    kinds = [kind for kind, *_ in fitness_pairs()]
    assert len(kinds) >= 40
    assert set(kinds) | {"unrelated_most"} == {
        field.name for field in msgspec.structs.fields(Fitness)
    }
    assert len(known) > 120


def test_the_default_is_fit_and_needs_no_calibration(sound: Embed) -> None:
    fitness, calibration = measure(sound)
    assert unfit(fitness) == ""
    assert fitness.unrelated_most == 0
    assert fitness.paraphrase > 0.6
    assert unfit(calibration.fitness) == ""


@pytest.mark.parametrize(("share", "noise"), [(0.6, 0.0), (0.75, 0.1), (0.9, 0.0)])
def test_a_high_floor_shows_and_a_calibration_mends_it(
    sound: Embed, share: float, noise: float
) -> None:
    fitness, calibration = measure(with_floor(sound, share, noise))
    assert "unrelated texts have a VCS of up to" in unfit(fitness)
    assert unfit(calibration.fitness) == ""
    assert calibration.fitness.unrelated_most == 0


def test_random_weights_show_and_no_calibration_mends_them() -> None:
    fitness, calibration = measure(of_no_meaning)
    assert "in other words" in unfit(fitness)
    assert unfit(calibration.fitness)


def test_unequal_dimensions_that_all_texts_share_show(sound: Embed) -> None:
    def embed(texts: list[str]) -> Vectors:
        return np.asarray(sound(texts), np.float64) + np.linspace(0, 0.2, 384)

    assert "unrelated" in unfit(measure(embed)[0])


def test_texts_that_are_cut_show(default: Embedder) -> None:
    def embed(texts: list[str]) -> Any:
        return default.embed([" ".join(text.split()[:2]) for text in texts])

    assert "in other words" in unfit(measure(embed)[0])


def test_similarities_without_contrast_show(sound: Embed) -> None:
    def embed(texts: list[str]) -> Vectors:
        vectors = np.asarray(sound(texts), np.float64)
        return np.sign(vectors) + 1.2  # squashed, and far from the origin

    assert unfit(measure(embed)[0])


def test_a_calibrated_similarity_is_the_stated_map_of_centred_cosines(sound: Embed) -> None:
    texts = [*PAIR, story(3)]
    rows = np.random.default_rng(1).normal(size=(3, 5)) + 2
    vectors = dict(zip(texts, rows.astype(np.float32), strict=True))
    fitness, _ = measure(sound)
    calibration = Calibration((2.0, 1.0, 2.0, 0.0, 1.0), 0.2, "none", fitness)
    centred = rows.astype(np.float32) - np.array(calibration.mean)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    calibrated = calibrate(vectors, calibration)
    matrix = np.array([calibrated[text] for text in texts])
    assert matrix @ matrix.T == pytest.approx(0.2 + 0.8 * centred @ centred.T, abs=1e-6)
    alone = calibrate({texts[1]: vectors[texts[1]]}, calibration)
    assert np.array_equal(alone[texts[1]], calibrated[texts[1]])


def planted(bundle: Path, target: Path, *, mended: bool) -> Path:
    """Copy a bundle, and record that its embedder is unfit, with a calibration that mends it."""
    shutil.copytree(bundle, target)
    opened = open_bundle(target)
    assert opened.manifest.embedder
    good = Fitness(0.7, 0.0, 0.0, 0.0, 0.0, 0.0)
    bad = msgspec.structs.replace(good, unrelated=0.77, unrelated_most=0.82)
    generator = np.random.default_rng(3)
    mean = generator.normal(size=opened.manifest.embedder.dimension).round(6)
    fitness = good if mended else bad
    record(fitted(opened, (bad, Calibration(tuple(mean.tolist()), 0.2, "texts", fitness))))
    return target


@pytest.fixture
def unfit_bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return planted(tiny_bundle, tmp_path / "unfit", mended=True)


def test_python_is_warned_at_opening_unless_calibrated(unfit_bundle: Path) -> None:
    with (
        pytest.warns(UnfitModelWarning, match=r"up to 0\.82.*calibrated=True"),
        Scorer.open(unfit_bundle, "cpu") as scorer,
    ):
        plain = scorer.score(*PAIR)
    with Scorer.open(unfit_bundle, "cpu", calibrated=True) as scorer:
        calibrated = scorer.score(*PAIR)
        explained = scorer.explain(*PAIR)
    assert "|cal:" not in plain.signature
    assert "|cal:0.2@" in calibrated.signature
    assert calibrated.scores != plain.scores
    assert explained.scores == calibrated.scores


def test_without_a_request_a_calibration_changes_nothing(
    unfit_bundle: Path, tiny_bundle: Path
) -> None:
    with Scorer.open(tiny_bundle, "cpu") as scorer:
        before = scorer.score(*PAIR)
    with pytest.warns(UnfitModelWarning), Scorer.open(unfit_bundle, "cpu") as scorer:
        assert scorer.score(*PAIR) == before


def test_stored_vectors_are_those_of_the_model(unfit_bundle: Path, tmp_path: Path) -> None:
    """A calibrated job reads what one without calibration has stored, and the other way round."""
    fresh = []
    for calibrated in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnfitModelWarning)
            scorer = Scorer.open(unfit_bundle, "cpu", calibrated=calibrated)
        with scorer:
            fresh.append(scorer.score(*PAIR))
    for turn in ((True, False), (False, True)):
        cache = tmp_path / f"cache-{turn[0]}"
        for calibrated in turn:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnfitModelWarning)
                scorer = Scorer.open(unfit_bundle, "cpu", calibrated=calibrated, cache=cache)
            with scorer:
                assert scorer.score(*PAIR) == fresh[not calibrated]


def test_commands_warn_once_and_score_calibrated_on_request(
    unfit_bundle: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"reference": PAIR[0], "generated": PAIR[1]}) + "\n", "utf-8")
    options = ("--bundle", unfit_bundle, "--device", "cpu")
    outputs = {"score": ("-o", tmp_path / "s.jsonl"), "report": ("-o", tmp_path / "r.html")}
    for command in ("score", "explain", "report"):
        done = vcs(command, pairs, *outputs.get(command, ()), *options)
        assert done.code == 0, done.stderr
        assert done.stderr.count("unrelated texts have a VCS of up to 0.82") == 1, done.stderr
    done = vcs("score", pairs, "-o", tmp_path / "calibrated.jsonl", "--calibrated", *options)
    assert done.code == 0
    assert "unrelated" not in done.stderr
    assert "|cal:0.2@" in done.stdout
    assert "up to 0.82" in vcs("bundle", "info", unfit_bundle).stdout
    examined = vcs("doctor", "--bundle", unfit_bundle)
    assert examined.code == 0, examined.stdout
    assert "WARNING " in examined.stdout
    assert "up to 0.82" in examined.stdout


def test_rewards_are_refused_with_the_way_out(unfit_bundle: Path) -> None:
    config = ScorerConfig(unfit_bundle, "cpu")
    for opening in (TrainingScorer, TextMetric):
        with pytest.raises(BundleError, match="calibrated=True"):
            opening(config)
    with pytest.raises(BundleError, match="unrelated texts"):
        compute_score("", PAIR[1], PAIR[0], bundle=str(unfit_bundle), device="cpu")
    reward = compute_score(
        "", PAIR[1], PAIR[0], bundle=str(unfit_bundle), device="cpu", calibrated=True
    )
    with Scorer.open(unfit_bundle, "cpu", calibrated=True) as scorer:
        assert reward == scorer.score(*PAIR).margin


def test_a_calibration_that_mends_nothing_is_no_way_out(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = planted(tiny_bundle, tmp_path / "worse", mended=False)
    with pytest.raises(BundleError, match="use another model"):
        TrainingScorer(ScorerConfig(bundle, "cpu"))
    with pytest.raises(BundleError, match="even calibrated"):
        TrainingScorer(ScorerConfig(bundle, "cpu", calibrated=True))


def test_a_calibration_that_is_not_there_cannot_be_asked_for(tiny_bundle: Path) -> None:
    with pytest.raises(BundleError, match="export verify"):
        Scorer.open(tiny_bundle, "cpu", calibrated=True)

    class Own:
        identity = "own"
        embed = staticmethod(of_no_meaning)

    with pytest.raises(ValueError, match="only the embedder of a bundle"):
        Scorer.open(embedder=Own(), calibrated=True)


def test_a_calibration_of_another_dimension_is_refused(unfit_bundle: Path) -> None:
    def shorten(data: dict[str, Any]) -> None:
        data["embedder"]["calibration"]["mean"].pop()

    edit(unfit_bundle, shorten)
    with pytest.raises(BundleError, match="dimension"):
        open_bundle(unfit_bundle)


def test_export_verify_records_what_it_measures(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    before = open_bundle(bundle)
    done = vcs("export", "verify", bundle)
    assert "WARNING" in done.stdout  # its weights are random
    opened = open_bundle(bundle)
    assert opened.manifest.embedder
    assert before.manifest.embedder
    assert unfit(opened.manifest.embedder.fitness)
    assert opened.manifest.embedder.calibration
    hashes = [each.model_hash(each.manifest.embedder) for each in (before, opened)]
    assert hashes[0] == hashes[1]  # no signature changes


def test_verify_changes_no_constants_that_a_signature_names(
    unfit_bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record_fitness(unfit_bundle)
    before = (unfit_bundle / MANIFEST).read_bytes()

    def full(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("vcs_runtime.inference.fitness.record", full)
        record_fitness(unfit_bundle)
        assert "not added" not in capsys.readouterr().err  # nothing has to be written
        edit(unfit_bundle, lambda data: data["embedder"].pop("fitness"), keep_proofs=True)
        record_fitness(unfit_bundle)
        assert "fitness is not added: [Errno 30]" in capsys.readouterr().err

    def move(data: dict[str, Any]) -> None:
        mean = data["embedder"]["calibration"]["mean"]
        mean[0] += 1e-4  # as another device gives it
        moved.append(mean[0])

    moved: list[float] = []
    edit(unfit_bundle, move, keep_proofs=True)
    record_fitness(unfit_bundle)
    embedder = open_bundle(unfit_bundle).manifest.embedder
    assert embedder
    assert embedder.fitness
    assert embedder.calibration
    assert embedder.calibration.mean[0] == moved[0]
    edit(unfit_bundle, lambda data: data["embedder"]["calibration"].update(mean=[0.5] * 32))
    record_fitness(unfit_bundle)  # constants of another model
    assert (unfit_bundle / MANIFEST).read_bytes() != before
    other = open_bundle(unfit_bundle).manifest.embedder
    assert other
    assert other.calibration
    assert other.calibration.mean[0] == pytest.approx(moved[0], abs=0.01)
