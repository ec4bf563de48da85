"""`vcs_runtime.compat` beside the live reference package: scores, internals, pictures."""

from __future__ import annotations

import inspect
import random
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

vcs = pytest.importorskip("vcs")
torch = pytest.importorskip("torch")

import matplotlib  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

from support.words import embed, sentences  # noqa: E402
from vcs_runtime import Scorer, compat  # noqa: E402

WORDS = "man dog cat ball throws walks runs sees street house door opens green red slowly night light".split()
#: What float32 tensors leave of float64's digits: thresholds, from which no score is computed.
ROUNDED = {"context_window", "context_threshold"}
VIEWS = [name for name in vcs.__all__ if name.startswith("visualize_")]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def tensors(dtype: Any) -> Any:
    return lambda texts: torch.tensor(embed(texts)).to(dtype)


def drawn(seed: int) -> tuple[str, str, dict[str, Any]]:
    """A story of 1 to 40 sentences, and a retelling that drops, moves and invents some."""
    rng = random.Random(seed)

    def sentence() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(2, 9))).capitalize() + rng.choice(".!?")

    story = [sentence() for _ in range(rng.randint(1, 40))]
    told = [each for each in story if rng.random() < 0.9]
    for _ in range(rng.randint(0, 4)):
        told.insert(rng.randint(0, len(told)), sentence())
    if rng.random() < 0.3:
        rng.shuffle(told)
    told = told[:40] or [sentence()]
    options = {"chunk_size": rng.choice([1, 3]), "lct": rng.choice([0, 1])}
    return " ".join(story), " ".join(told), options


def both(
    reference: str, generated: str, embed: Any, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    arguments = (reference, generated, sentences, embed)
    options = {"return_all_metrics": True, "return_internals": True, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # its divisions by zero on two by two
        theirs = vcs.compute_vcs_score(*arguments, **options)
    return compat.compute_vcs_score(*arguments, **options), theirs


def check(ours: Any, theirs: Any, rounding: float = 0.0, path: str = "") -> None:
    """The same keys, sequences of the same kind and length, numbers equal to 1e-12."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), path
        for key in theirs:
            check(ours[key], theirs[key], rounding, f"{path}/{key}")
    elif isinstance(theirs, list | tuple):
        assert type(ours) is type(theirs), path
        assert len(ours) == len(theirs), path
        for i, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            check(left, right, rounding, f"{path}[{i}]")
    elif isinstance(theirs, str | bool | np.bool_):
        assert ours == theirs, path
    else:
        tolerance = max(1e-12, rounding if path.rpartition("/")[2] in ROUNDED else 0.0)
        assert abs(ours - theirs) <= tolerance, (path, ours, theirs)


def test_names_and_signatures_are_theirs() -> None:
    for name in vcs.__all__:
        if name.startswith("__"):
            continue
        mine, original = getattr(compat, name), getattr(vcs, name)
        if not callable(original):
            assert mine == original
            continue
        parameters = [
            [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]
            for function in (mine, original)
        ]
        assert parameters[0] == parameters[1], name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_two_hundred_drawn_pairs(dtype: Any) -> None:
    above_zero = 0
    for seed in range(200):
        reference, generated, options = drawn(seed)
        ours, theirs = both(reference, generated, tensors(dtype), **options)
        check(ours, theirs, 1e-6 if dtype is torch.float32 else 0.0, str(seed))
        above_zero += theirs["VCS"] > 0.01
        plain = compat.compute_vcs_score(reference, generated, sentences, tensors(dtype), **options)
        check(plain, {"VCS": theirs["VCS"]}, path=str(seed))
    assert above_zero > 50


def test_every_small_pair() -> None:
    story = [f"{word.capitalize()} comes." for word in WORDS]
    for n_ref in range(1, 6):
        for n_gen in range(1, 6):
            for lct in (0, 1):
                pair = " ".join(story[:n_ref]), " ".join(story[1 : n_gen + 1])
                check(*both(*pair, tensors(torch.float64), lct=lct))


def test_parameters_and_an_embedder_for_texts() -> None:
    def short(texts: list[str]) -> Any:
        return 0.9 * tensors(torch.float64)(texts)

    for seed in range(20):
        reference, generated, options = drawn(seed)
        options |= {"context_cutoff_value": 0.4, "context_window_control": 2.5}
        check(
            *both(reference, generated, short, embedding_fn_gas=tensors(torch.float32), **options)
        )


def test_a_tensor_that_requires_a_gradient_is_taken() -> None:
    reference, generated, options = drawn(3)
    wanted = compat.compute_vcs_score(
        reference, generated, sentences, tensors(torch.float64), **options
    )

    def learning(texts: list[str]) -> Any:
        return tensors(torch.float64)(texts).requires_grad_()

    assert compat.compute_vcs_score(reference, generated, sentences, learning, **options) == wanted


@pytest.mark.parametrize(
    "form",
    [
        lambda rows: rows.requires_grad_(),
        lambda rows: rows.bfloat16(),
        lambda rows: rows.half(),
        lambda rows: list(rows.float()),
    ],
)
def test_a_scorer_takes_tensors_as_they_come(form: Any) -> None:
    class Mine:
        identity = "mine"

        def __init__(self, form: Any) -> None:
            self.form = form

        def embed(self, texts: list[str]) -> Any:
            return self.form(torch.tensor(embed(texts)))

        def split(self, texts: list[str]) -> Any:
            return map(sentences, texts)

    pairs = [drawn(seed)[:2] for seed in range(5)]
    expected = Scorer.open(
        embedder=Mine(lambda rows: np.asarray(rows)), segmenter=Mine(None)
    ).score_many(pairs)
    for result, wanted in zip(
        Scorer.open(embedder=Mine(form), segmenter=Mine(None)).score_many(pairs),
        expected,
        strict=True,
    ):
        assert result.scores is not None
        assert wanted.scores is not None
        assert abs(result.scores.gas - wanted.scores.gas) < 0.02


def test_their_own_example() -> None:
    about = str(metadata("video-comprehension-score").get_payload())  # type: ignore[attr-defined]
    texts = [
        re.search(rf'{name}_text = """(.*?)"""', about, re.S) for name in ("reference", "generated")
    ]
    reference, generated = (found[1] for found in texts if found)
    segments = lambda text: [part.strip() for part in text.split(".") if part.strip()]  # noqa: E731
    arguments = (reference, generated, segments, tensors(torch.float32), tensors(torch.float32))
    options = {"return_all_metrics": True, "return_internals": True}
    ours, theirs = (module.compute_vcs_score(*arguments, **options) for module in (compat, vcs))
    check(ours, theirs, 1e-6)
    assert theirs["LAS"] > 0.1


def shapes(drawn: Any) -> Any:
    """What a picture function returns: figures, lists and dictionaries of them."""
    if isinstance(drawn, dict):
        return {key: shapes(value) for key, value in drawn.items()}
    return [shapes(value) for value in drawn[:1]] if isinstance(drawn, list) else type(drawn)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.filterwarnings("ignore")
def test_pictures_of_each_from_the_internals_of_each(view: str) -> None:
    reference, generated, options = drawn(9)
    both_internals = [
        result["internals"]
        for result in both(reference, generated, tensors(torch.float64), **options)
    ]
    returned = [
        shapes(getattr(module, view)(internals))
        for module in (compat, vcs)
        for internals in both_internals
    ]
    assert returned == [returned[0]] * 4
    assert len(VIEWS) == 12


@pytest.mark.filterwarnings("ignore")
def test_reports_of_each_from_the_internals_of_each(tmp_path: Path) -> None:
    reference, generated, options = drawn(9)
    both_internals = [
        result["internals"]
        for result in both(reference, generated, tensors(torch.float64), **options)
    ]
    for module in (compat, vcs):  # theirs last: it changes matplotlib's settings
        for i, internals in enumerate(both_internals):
            path = tmp_path / f"{module.__name__}-{i}.pdf"
            module.create_vcs_pdf_report(internals, str(path), ["Config", "LAS", "NAS Line"])
            assert path.read_bytes().startswith(b"%PDF")
    ours = [(tmp_path / f"vcs_runtime.compat-{i}.pdf").read_bytes() for i in (0, 1)]
    assert ours[0] == ours[1]
