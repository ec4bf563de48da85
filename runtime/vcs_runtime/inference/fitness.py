"""Fitness of an embedder for VCS, measured on built-in pairs of texts, and its calibration.

VCS needs unrelated sentences to have low similarities. Some embedders give any two texts a cosine
above .7, and a broken embedder may, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from vcs_numba import score_embeddings
from vcs_numba.embeddings import unit_rows
from vcs_runtime.bundle.manifest import MANIFEST, Calibration, EmbedderSpec, Fitness
from vcs_runtime.bundle.opening import DIGITS, Bundle
from vcs_runtime.util.atomic import write_whole

#: Largest VCS that a pair of unrelated texts may have.
UNRELATED_BOUND: Final = 0.1
#: Least mean VCS of the same stories in other words.
PARAPHRASE_BOUND: Final = 0.4
#: Calibrated similarity of vectors at right angles (docs/benchmarks/agreement.md).
_FLOOR: Final = 0.2
_DIGITS_OF_MEAN: Final = 6
# Distance of the mean vectors of one model on two devices, at most.
_SAME_MEAN: Final = 0.01

Vectors = npt.NDArray[np.float32]
_Kind = str
_Sentences = Sequence[str]


@cache
def _texts() -> dict[str, Any]:
    text = files("vcs_runtime").joinpath("data/fitness.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def fitness_pairs() -> Iterator[tuple[_Kind, _Sentences, _Sentences]]:
    """Yield the built-in pairs: a kind, the sentences of the reference and of the other text.

    The kinds are fields of `Fitness`.
    """
    stories = _texts()["stories"]
    for number, story in enumerate(stories):
        reference, paraphrase = story["reference"], story["paraphrase"]
        yield "paraphrase", reference, paraphrase
        yield "reordered", reference, paraphrase[::-1]
        for distance in (1, 3):
            other = stories[(number + distance) % len(stories)]
            yield "unrelated", reference, other["paraphrase"]
    by_name = {story["name"]: story["reference"] for story in stories}
    translations = _texts()["other_languages"]
    for number, translation in enumerate(translations):
        other = translations[number - 1]
        yield "translated", by_name[translation["name"]], translation["sentences"]
        yield "unrelated_translated", by_name[other["name"]], translation["sentences"]
        yield "unrelated_translated", other["sentences"], translation["sentences"]


def measure(
    embed: Callable[[list[str]], npt.ArrayLike],
) -> tuple[Fitness, Calibration]:
    """Measure an embedder, whose `embed` returns vectors (texts, d), and calibrate it.

    The fitness is the one without calibration.
    """
    pairs = list(fitness_pairs())
    texts: dict[str, None] = {}
    for _, *sides in pairs:
        for sentences in sides:
            texts |= dict.fromkeys([*sentences, " ".join(sentences)])
    vectors = dict(zip(texts, unit_rows(embed(list(texts)), "embedder"), strict=True))
    english: dict[str, Vectors] = {}
    for story in _texts()["stories"]:
        for sentences in (story["reference"], story["paraphrase"]):
            for text in (*sentences, " ".join(sentences)):
                english[text] = vectors[text]
    mean = np.mean(list(english.values()), axis=0, dtype=np.float64)
    fitness = _fitness(pairs, vectors)
    calibration = Calibration(
        tuple(np.round(mean, _DIGITS_OF_MEAN).tolist()),
        _FLOOR,
        f"{len(english)} built-in English texts",
        fitness,
    )
    calibrated = _fitness(pairs, calibrate(vectors, calibration))
    return fitness, msgspec.structs.replace(calibration, fitness=calibrated)


def _fitness(
    pairs: Sequence[tuple[_Kind, _Sentences, _Sentences]], vectors: Mapping[str, Vectors]
) -> Fitness:
    scores: dict[str, list[float]] = {}
    for kind, *sides in pairs:
        left, right = (np.array([vectors[text] for text in sentences]) for sentences in sides)
        whole, other = (vectors[" ".join(sentences)] for sentences in sides)
        scores.setdefault(kind, []).append(score_embeddings(left, right, whole, other).vcs)
    means = {kind: round(float(np.mean(values)), 3) for kind, values in scores.items()}
    return Fitness(**means, unrelated_most=round(max(scores["unrelated"]), 3))


def calibrate(vectors: Mapping[str, Vectors], calibration: Calibration) -> dict[str, Vectors]:
    """Return unit vectors of d + 1 numbers, whose cosines are the calibrated similarities.

    A calibrated similarity is floor + (1 - floor) c, where c is the cosine after the mean vector
    was subtracted. A vector depends on its text alone.
    """
    if not vectors:
        return {}
    mean, floor = np.array(calibration.mean), calibration.floor
    rows = np.stack(list(vectors.values())).astype(np.float64) - mean
    # A text whose vector is the mean itself has no direction: all are equally far.
    rows[~rows.any(axis=1)] = mean if mean.any() else 1.0
    wide = np.empty((len(rows), len(mean) + 1))
    wide[:, :-1] = np.sqrt(1 - floor) * unit_rows(rows, "calibration")
    wide[:, -1] = np.sqrt(floor)
    return dict(zip(vectors, unit_rows(wide, "calibration"), strict=True))


def calibration_field(calibration: Calibration) -> str:
    """Return the field of the signature: the floor, and digits of the hash of the mean vector."""
    digest = sha256(json.dumps(calibration.mean).encode()).hexdigest()
    return f"cal:{calibration.floor:g}@{digest[:DIGITS]}"


def unfit(fitness: Fitness | None) -> str:
    """Say why an embedder is unfit for VCS; "" if it is fit, or has not been measured."""
    if fitness is None:
        return ""
    if fitness.unrelated_most > UNRELATED_BOUND:
        return (
            f"unrelated texts have a VCS of up to {fitness.unrelated_most:.2f}, mean"
            f" {fitness.unrelated:.2f} (bound {UNRELATED_BOUND})"
        )
    if fitness.paraphrase < PARAPHRASE_BOUND:
        return (
            f"the same stories in other words have a mean VCS of {fitness.paraphrase:.2f} (bound"
            f" {PARAPHRASE_BOUND})"
        )
    return ""


def describe_unfit(bundle: Bundle, calibrated: bool = False) -> str:
    """Say why the embedder of a bundle is unfit for VCS, and what to do; "" unless it is."""
    spec = bundle.manifest.embedder
    if spec is None:
        return ""
    calibration = spec.calibration
    if calibrated and calibration:
        reason = unfit(calibration.fitness)
        return reason and f"bundle {bundle.root}: even calibrated, {reason}: use another model"
    reason = unfit(spec.fitness)
    if not reason:
        return ""
    if calibration and not unfit(calibration.fitness):
        remedy = "score with --calibrated (in Python: ScorerConfig(calibrated=True))"
    else:
        remedy = "check its pooling, instruction, tokenizer and weights, or use another model"
    return f"bundle {bundle.root}: {reason}: {remedy}"


def fitness_lines(spec: EmbedderSpec) -> Iterator[str]:
    """Describe the fitness of an embedder, and its fitness with calibration."""
    named = [("fitness", spec.fitness)]
    if spec.calibration:
        named.append(("calibrated", spec.calibration.fitness))
    for name, fitness in named:
        if fitness:
            yield (
                f"{name}: mean VCS of paraphrases {fitness.paraphrase:.3f}, reordered"
                f" {fitness.reordered:.3f}, another film {fitness.unrelated:.3f} (at most"
                f" {fitness.unrelated_most:.3f}); in other languages: the same film"
                f" {fitness.translated:.3f}, another {fitness.unrelated_translated:.3f}"
            )


def with_fitness(bundle: Bundle, measured: tuple[Fitness, Calibration]) -> Bundle:
    """Return a bundle whose embedder has a measured fitness. Nothing is written.

    A calibration from another device keeps its constants, so that signatures stay the same.
    """
    spec = bundle.manifest.embedder
    assert spec
    fitness, calibration = measured
    if spec.calibration:
        distance = np.linalg.norm(np.subtract(spec.calibration.mean, calibration.mean))
        if distance <= _SAME_MEAN:
            calibration = msgspec.structs.replace(calibration, mean=spec.calibration.mean)
    spec = msgspec.structs.replace(spec, fitness=fitness, calibration=calibration)
    return Bundle(bundle.root, msgspec.structs.replace(bundle.manifest, embedder=spec))


def record(bundle: Bundle) -> None:
    """Write the manifest of a bundle into its folder. Raises OSError."""
    write_whole(bundle.path(MANIFEST), bundle.manifest.to_json())
