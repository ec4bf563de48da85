"""Doors: the Python API, and the alignment core with arrays of any shape and content."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import vcs_numba
from attack.cases import Attack, Door, Ground
from attack.damage import NUMBERS, STRINGS, text, value
from support.stories import story
from vcs_runtime import Options, Params, Result, Scorer, ScorerConfig, VcsError
from vcs_runtime.scoring.verdicts import Thresholds

_PROBE = (story(1), story(2))
_OBJECTS: tuple[Any, ...] = (
    None,
    True,
    b"bytes",
    object(),
    [],
    {},
    (),
    [[]],
    1j,
    float,
    "cpu",
    ["a"],
    ("a", "b"),
)


def _anything(rng: random.Random) -> Any:
    return rng.choice((rng.choice(_OBJECTS), rng.choice(NUMBERS), rng.choice(STRINGS), value(rng)))


def _params(rng: random.Random) -> Params:
    names = ("lct", "lct_penalty", "small_text", "context_cutoff", "context_window", "regularizer", "nas_blend_factor",
             "nas_coverage_cutoff")  # fmt: skip
    good = {
        "lct": (0, 0.5, 3),
        "lct_penalty": ("full", "excess"),
        "small_text": ("paper", "reference"),
        "regularizer": ("window", "length"),
    }
    chosen = {
        name: rng.choice(good.get(name, (0.1, 0.5, 1))) if rng.random() < 0.85 else _anything(rng)
        for name in rng.sample(names, rng.randrange(4))
    }
    return Params(**chosen)


def _texts(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.7:
        return text(rng)
    return [text(rng) for _ in range(rng.randrange(4))] if kind < 0.9 else _anything(rng)


def _api_calls(scorer: Scorer, rng: random.Random) -> Callable[[], Any]:
    """A call that checks its own result where it has one."""

    def options() -> dict[str, Any]:
        drawn: dict[str, Any] = {}
        if rng.random() < 0.4:
            drawn["params"] = _params(rng) if rng.random() < 0.8 else _anything(rng)
        if rng.random() < 0.3:
            drawn["chunk_size"] = rng.choice((1, 2, 3, 50)) if rng.random() < 0.6 else _anything(rng)
        if rng.random() < 0.2:
            drawn["aggregate"] = rng.choice(("max", "mean")) if rng.random() < 0.6 else _anything(rng)
        if rng.random() < 0.15:
            drawn["also"] = rng.choice(_METRICS) if rng.random() < 0.7 else _anything(rng)
        return drawn

    def many() -> list[Result]:
        pairs = [(_texts(rng), _texts(rng)) for _ in range(rng.randrange(5))]
        if rng.random() < 0.1:
            pairs.insert(0, _anything(rng))
        results = scorer.score_many(pairs, **options())
        assert len(results) == len(pairs), f"{len(results)} results of {len(pairs)} pairs"
        return results

    def columns() -> list[Result]:
        count = rng.randrange(4)
        return scorer.score_many(
            references=[_texts(rng) for _ in range(count)], predictions=[_texts(rng) for _ in range(count + (rng.random() < 0.1))],
            short=rng.choice((False, True, _anything(rng))),
        )  # fmt: skip

    def explain() -> Any:
        drawn = options()
        drawn.pop("aggregate", 0)
        return scorer.explain(_texts(rng), _texts(rng), **drawn).to_dict()

    def configured() -> Any:
        names = (
            "device",
            "threads",
            "cache_mb",
            "segmenter",
            "gpu_memory_gb",
            "max_pair_gb",
            "batch_invariant",
            "bundle",
            "words",
        )
        changes = {name: _anything(rng) for name in rng.sample(names, rng.choice((1, 1, 2)))}
        changes.pop("cache_mb" if rng.random() < 0.5 else "", None)
        if isinstance(changes.get("threads"), int) and changes["threads"] > 64:
            del changes["threads"]  # they would be started
        usual = {"bundle": _BUNDLE, "device": "cpu", "words": _BUNDLE}
        with Scorer.from_config(ScorerConfig(**usual | changes)) as own:
            return own.score(*_PROBE, also=_METRICS[1])

    calls: tuple[tuple[int, Callable[[], Any]], ...] = (
        (30, lambda: scorer.score(_texts(rng), _texts(rng), **options())),
        (10, lambda: scorer.score_short(_texts(rng), _texts(rng))),
        (25, many),
        (10, columns),
        (15, explain),
        (5, lambda: Options(*[_anything(rng) for _ in range(rng.randrange(7))])),
        (5, lambda: Thresholds(*[_anything(rng) for _ in range(rng.randrange(5))])),
        (3, configured),
    )
    return rng.choices([call for _, call in calls], [weight for weight, _ in calls])[0]


_BUNDLE: Any = None
_METRICS = ("hm-cf",), ("substitution",), ["substitution", "hm-cf"]


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    global _BUNDLE
    _BUNDLE = ground.bundle
    with Scorer.open(ground.bundle, device="cpu", words=ground.bundle) as scorer:
        right = scorer.score(*_PROBE)

        def attack(rng: random.Random, folder: Path) -> list[str]:
            try:
                found = _api_calls(scorer, rng)()
            except (ValueError, TypeError, VcsError) as error:
                return [f"an empty message: {error!r}"] if not str(error) else []
            found = _wrong(found)
            if rng.random() < 0.02 and scorer.score(*_PROBE) != right:
                found.append("the scorer has other scores than before")
            return found

        yield attack


def _wrong(found: Any) -> list[str]:
    results = found if isinstance(found, list) else [found]
    wrong = []
    for result in results:
        if not isinstance(result, Result) or result.error is not None:
            continue
        for name in ("vcs", "gas", "las", "nas"):
            score = getattr(result.scores, name)
            if not (math.isfinite(score) and -1e-9 <= score <= 1 + 1e-9):
                wrong.append(f"{name} is {score}")
    return wrong


_DTYPES = ("f4", "f8", "f2", "i4", "i8", "u1", "?", "c8", "O", "U3", ">f8", "longdouble")
_VALUES = (0.0, 1.0, -1.0, 0.5, 1.0000001, -1.5, math.nan, math.inf, -math.inf, 1e300, 5e-324)


def array(rng: random.Random) -> Any:
    """An array, or what stands in its place: of cosines mostly, of any shape, type, order and content."""
    if rng.random() < 0.05:
        return _anything(rng)
    size = rng.choice((1, 2, 3, 5, 8, 17, 40))
    other = rng.choice((1, 2, 3, 5, 8, 17, 40, 0) if rng.random() < 0.3 else (1, 2, 3, 5, 8, 17, 40))
    shape = rng.choice(((size, other),) * 12 + ((size,), (), (size, other, 2), (0, 0), (1, 1)))
    numbers = np.random.default_rng(rng.randrange(1 << 32))
    matrix: Any = numbers.uniform(-1, 1, shape)
    kind = rng.random()
    if kind < 0.15:
        matrix = np.round(matrix, 1)  # ties
    elif kind < 0.2:
        matrix = np.full(shape, rng.choice(_VALUES))
    if rng.random() < 0.15 and matrix.size:
        matrix.flat[rng.randrange(matrix.size)] = rng.choice(_VALUES)
    if rng.random() < 0.3:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matrix = matrix.astype(rng.choice(_DTYPES))
    # One number of dtype object becomes a float.
    if isinstance(matrix, np.ndarray) and matrix.ndim == 2 and rng.random() < 0.3:
        matrix = rng.choice(
            (
                matrix.T,
                matrix[::2],
                matrix[:, ::-1],
                np.asfortranarray(matrix),
                np.repeat(matrix, 2, 1)[:, ::2],
            )
        )
    if isinstance(matrix, np.ndarray) and rng.random() < 0.1:
        matrix.flags.writeable = False
    return matrix.tolist() if isinstance(matrix, np.ndarray) and rng.random() < 0.1 else matrix


def _gas(rng: random.Random) -> Any:
    return rng.uniform(-1, 1) if rng.random() < 0.85 else _anything(rng)


@contextmanager
def _open_core(ground: Ground) -> Iterator[Attack]:
    def attack(rng: random.Random, folder: Path) -> list[str]:
        arrays = [array(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        before = [_copy(each) for each in arrays]
        found: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                _core_call(rng, arrays, found)
            except (ValueError, TypeError) as error:
                if not str(error):
                    found.append(f"an empty message: {error!r}")
        if [_copy(each) for each in arrays] != before:
            found.append("an argument was changed")
        return found

    yield attack


def _copy(matrix: Any) -> Any:
    return (
        (matrix.dtype.str, matrix.shape, matrix.tobytes())
        if isinstance(matrix, np.ndarray) and matrix.dtype != object
        else repr(matrix)
    )


def _core_call(rng: random.Random, arrays: list[Any], found: list[str]) -> None:
    first, params = arrays[0], _params(rng)
    match rng.randrange(6):
        case 0:
            gas = _gas(rng)
            scores = vcs_numba.score_similarity(first, gas, params)
            _check(scores, found)
            [batch] = vcs_numba.score_batch([first], [gas], params)
            if batch["vcs"] != scores.vcs:
                found.append(f"a batch has {batch['vcs']}, one alone {scores.vcs}")
        case 1:
            count = len(arrays) if rng.random() < 0.9 else len(arrays) + 1
            batch = vcs_numba.score_batch(arrays, [_gas(rng) for _ in range(count)], params)
            if len(batch) != len(arrays) or not np.isfinite(batch["vcs"]).all():
                found.append(f"a batch of {len(arrays)} gave {batch!r}")
        case 2:
            vcs_numba.align(first, params)
        case 3:
            vcs_numba.hm_cf(first, _gas(rng))
        case 4:
            size = rng.choice((4, 8))
            numbers = np.random.default_rng(rng.randrange(1 << 32))
            rows: list[Any] = [numbers.normal(size=(rng.randint(1, 9), size)) for _ in range(2)]
            rows += [numbers.normal(size=size) for _ in range(2)]
            if rng.random() < 0.6:
                rows[rng.randrange(4)] = first
            scores = vcs_numba.score_embeddings(*rows, params)
            _check(scores, found)
            parts = {
                rng.choice(("gas", "las", "vcs", "window_regularizer", "sas")): _gas(rng)
                for _ in range(rng.randrange(3))
            }
            vcs_numba.recombine(scores, **parts)
        case 5:
            _compare_words(rng, first, found)


def _compare_words(rng: random.Random, anything: Any, found: list[str]) -> None:
    """Call `substitution` with drawn words, of which one array may be anything."""
    numbers = np.random.default_rng(rng.randrange(1 << 32))
    chunks = rng.randint(1, 5), rng.randint(1, 5)
    types = rng.randint(1, 9)
    vectors = numbers.normal(size=(types, 4))
    drawn: dict[str, Any] = {"vectors": vectors / np.linalg.norm(vectors, axis=1, keepdims=True)}
    drawn["excluding"] = np.pad(~np.eye(3, dtype=bool), (1, 0))
    for k, side in enumerate(("gen", "ref")):
        count = rng.randrange(30)
        drawn |= {f"{side}_{name}": numbers.integers(high, size=count) for name, high in
                  (("stem", 12), ("vector", types), ("exclusion", 4))}  # fmt: skip
        drawn[f"{side}_chunk"] = np.sort(numbers.integers(chunks[k], size=count))
        drawn[f"{side}_log_class"] = numbers.normal(size=(count, 3))
        drawn |= {f"{side}_{name}": numbers.random(count) < 0.2 for name in ("name", "negated")}
        drawn[f"{side}_match"] = numbers.integers(chunks[1 - k], size=chunks[k])
    if rng.random() < 0.6:
        drawn[rng.choice(list(drawn))] = anything
    texts = [vcs_numba.Words(**{name: drawn[f"{side}_{name}"] for name in _WORDS}) for side in ("gen", "ref")]
    matches = drawn["gen_match"], drawn["ref_match"]
    vocabulary = vcs_numba.Vocabulary(drawn["vectors"], drawn["excluding"])
    result = vcs_numba.substitution(*texts, *matches, vocabulary)
    shares = (result.substitution, result.thing, result.action, result.quality, result.name)
    if not all(0 <= share <= 1 for share in shares):
        found.append(f"not between 0 and 1: {shares}")
    [again] = vcs_numba.substitution_batch([vcs_numba.WordPair(*texts, *matches)], vocabulary)
    if (again.substitution, again.thing, again.action, again.quality, again.name) != shares:
        found.append(f"a batch has {again.substitution}, one alone {result.substitution}")


_WORDS = ("stem", "vector", "chunk", "log_class", "name", "negated", "exclusion")


def _check(scores: Any, found: list[str]) -> None:
    if not np.isfinite(scores).all() or abs(scores.gas) > 1 + 1e-6:
        found.append(f"not finite, or beyond a cosine: {scores}")


API = Door("api", 8, "calls of Scorer, Options, Params, ScorerConfig, with values of any kind", _open)
CORE = Door("core", 5, "arrays of any shape, type and content for vcs_numba", _open_core)
