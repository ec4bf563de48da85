"""`compute_vcs_score` with functions of plain NumPy; tests/parity compares it with the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.needed import needs
from support.snippets import run_snippet
from support.words import embed, sentences
from vcs_numba import Params, score_similarity
from vcs_runtime import ModelError, TextError, compat
from vcs_runtime.scoring.verdicts import Thresholds

REFERENCE = "A man waits. The dog barks, twice! It isn't late. A door opens."
GENERATED = "The dog barks. A man waits? A door opens at night. It rains."


def score(reference: str = REFERENCE, generated: str = GENERATED, **options: Any) -> dict[str, Any]:
    return compat.compute_vcs_score(
        reference, generated, **{"segmenter_fn": sentences, "embedding_fn_las": embed, **options}
    )


@pytest.mark.parametrize("chunk_size", [1, 3])
@pytest.mark.parametrize("lct", [0, 1])
def test_scores_are_those_of_the_callers_products(chunk_size: int, lct: int) -> None:
    parts = [sentences(text) for text in (REFERENCE, GENERATED)]
    chunks = [
        [" ".join(p[i : i + chunk_size]) for i in range(0, len(p), chunk_size)] for p in parts
    ]
    reference, generated = map(embed, chunks)
    whole = embed([REFERENCE, GENERATED])
    params = Params(lct=lct, context_cutoff=0.5, context_window=3, small_text="reference")
    expected = score_similarity(reference @ generated.T, float(whole[0] @ whole[1]), params)
    options = {
        "chunk_size": chunk_size,
        "lct": lct,
        "context_cutoff_value": 0.5,
        "context_window_control": 3,
    }
    scores = score(return_all_metrics=True, **options)
    assert scores == pytest.approx(expected.to_reference_dict(), abs=1e-12)
    assert score(**options) == {"VCS": scores["VCS"]}
    with_internals = score(return_all_metrics=True, return_internals=True, **options)
    assert with_internals.pop("internals")["config"] == options
    assert with_internals == scores


def test_a_small_text_has_the_packages_zero() -> None:
    assert score("A dog barks.", "A dog barks.") == pytest.approx({"VCS": 0.0}, abs=1e-15)


def test_the_embedder_is_called_as_the_package_calls_it_and_sees_texts_as_they_are() -> None:
    seen: list[Any] = []
    score(
        segmenter_fn=lambda text: seen.append(text) or sentences(text),
        embedding_fn_las=lambda texts: seen.append(("las", texts)) or embed(texts),
        embedding_fn_gas=lambda texts: seen.append(("gas", texts)) or embed(texts),
    )
    assert seen == [
        ("gas", [REFERENCE, GENERATED]),
        REFERENCE,
        GENERATED,
        ("las", ["A man waits.", "The dog barks, twice!", "It isn't late.", "A door opens."]),
        ("las", ["The dog barks.", "A man waits?", "A door opens at night.", "It rains."]),
    ]


def test_one_embedder_serves_for_both() -> None:
    assert (
        score(embedding_fn_las=None, embedding_fn_gas=embed)
        == score(embedding_fn_gas=None)
        == score()
    )


def test_chunks_are_compared_by_products_and_texts_by_their_cosine() -> None:
    half = score(
        embedding_fn_las=lambda texts: embed(texts) / 2**0.5,
        embedding_fn_gas=embed,
        return_all_metrics=True,
    )
    full = score(return_all_metrics=True)
    assert half["LAS"] == pytest.approx(full["LAS"] / 2)
    assert half["GAS"] == full["GAS"]
    assert score(embedding_fn_gas=lambda texts: 7 * embed(texts)) == pytest.approx(score())
    zeros = score(embedding_fn_gas=lambda texts: 0 * embed(texts), return_all_metrics=True)
    assert zeros["GAS"] == 0.0


@pytest.mark.parametrize("form", [np.ndarray.tolist, list, lambda rows: rows.astype(np.float32)])
def test_any_array_will_do(form: Any) -> None:
    assert score(embedding_fn_las=lambda texts: form(embed(texts))) == pytest.approx(
        score(), abs=1e-6
    )


def test_one_chunk_may_have_one_axis() -> None:
    def flat(texts: list[str]) -> Any:
        return embed(texts)[0] if len(texts) == 1 else embed(texts)

    wide = score(generated="It rains.", return_all_metrics=True)
    assert score(generated="It rains.", embedding_fn_las=flat, return_all_metrics=True) == wide


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            {"embedding_fn_las": None},
            ValueError,
            "embedding_fn_las must be a function, not NoneType",
        ),
        ({"segmenter_fn": "rules"}, ValueError, "segmenter_fn must be a function, not str"),
        ({"embedding_fn_gas": 3}, ValueError, "embedding_fn_gas must be a function, not int"),
        ({"chunk_size": 0}, ValueError, "chunk_size"),
        ({"lct": -1}, ValueError, "lct"),
        (
            {"segmenter_fn": lambda text: sentences(text) if text == REFERENCE else []},
            TextError,
            "generated_text: segmenter_fn returned no segments",
        ),
        ({"segmenter_fn": str.strip}, ModelError, "segmenter_fn must return a list of strings"),
        (
            {"embedding_fn_las": lambda texts: embed(texts)[1:]},
            ModelError,
            r"embedding_fn_gas has the shape \(1, 64\), not \(2, d\)",
        ),
        (
            {"embedding_fn_las": lambda texts: embed(texts)[1:], "embedding_fn_gas": embed},
            ModelError,
            r"embedding_fn_las has the shape \(3, 64\), not \(4, d\)",
        ),
        (
            {"embedding_fn_las": lambda texts: embed(texts) * np.nan, "embedding_fn_gas": embed},
            ModelError,
            "embedding_fn_las has NaN",
        ),
        (
            {"embedding_fn_las": lambda texts: embed(texts) * np.inf},
            ModelError,
            "embedding_fn_gas has NaN",
        ),
        (
            {"embedding_fn_las": lambda texts: [["a"]] * len(texts)},
            ModelError,
            "not an array of numbers",
        ),
        (
            {
                "embedding_fn_las": lambda texts: embed(texts)[:, : 64 - ("It rains." in texts)],
                "embedding_fn_gas": embed,
            },
            ModelError,
            "vectors of 64 and of 63 components",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_cannot_be_scored_is_named(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        score(**options)


def from_vectors(**options: Any) -> dict[str, Any]:
    whole = embed([REFERENCE, GENERATED])
    chunks = {"reference_chunks": sentences(REFERENCE), "generated_chunks": sentences(GENERATED)}
    vectors = {
        "reference_doc_embedding": whole[0],
        "generated_doc_embedding": whole[1:],
        "reference_chunk_embeddings": embed(chunks["reference_chunks"]),
        "generated_chunk_embeddings": embed(chunks["generated_chunks"]),
    }
    return compat.compute_vcs_from_embeddings(**{**vectors, **chunks, **options})


def test_vectors_score_as_the_texts_that_they_were_made_of() -> None:
    options = {
        "lct": 1,
        "context_cutoff_value": 0.4,
        "return_all_metrics": True,
        "return_internals": True,
    }
    ours, texts = from_vectors(**options), score(**options)
    assert ours["internals"].pop("config") == texts["internals"].pop("config") | {
        "chunk_size": None
    }
    assert ours == texts
    assert from_vectors() == score()


def test_chunks_of_vectors_have_numbers_in_place_of_texts() -> None:
    internals = from_vectors(reference_chunks=None, return_internals=True)["internals"]
    assert internals["texts"]["reference_chunks"] == [f"<chunk {i}>" for i in (1, 2, 3, 4)]
    assert compat.explain_internals(internals).reference[3].text == "<chunk 4>"


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"reference_chunks": ["A."]}, ValueError, "reference_chunks must be a list of 4 texts"),
        ({"generated_chunks": "Abcd"}, ValueError, "generated_chunks must be a list of 4 texts"),
        ({"lct": -1}, ValueError, "lct"),
        (
            {"reference_doc_embedding": np.ones((2, 64))},
            ModelError,
            r"reference_doc_embedding has the shape \(2, 64\), not \(1, d\)",
        ),
        (
            {"generated_doc_embedding": np.ones(3)},
            ModelError,
            "generated_doc_embedding has vectors of 64 and of 3",
        ),
        (
            {"reference_chunk_embeddings": np.ones((0, 64))},
            ModelError,
            r"reference_chunk_embeddings has the shape \(0, 64\), not \(n, d\)",
        ),
        (
            {"generated_chunk_embeddings": np.ones((4, 3))},
            ModelError,
            "generated_chunk_embeddings has vectors of 64 and of 3",
        ),
        (
            {"generated_chunk_embeddings": np.full((4, 64), np.nan)},
            ModelError,
            "generated_chunk_embeddings has NaN",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_vectors_that_cannot_be_scored_are_named(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        from_vectors(**options)


def test_internals_are_plain_values_from_which_the_pair_is_explained() -> None:
    internals = score(return_internals=True, lct=1)["internals"]
    e = compat.explain_internals(internals, Thresholds(support=0.6))
    assert compat.explain_internals(json.loads(json.dumps(internals))).scores == e.scores
    assert e.scores.vcs == internals["metrics"]["vcs"]["value"]
    assert [chunk.match for chunk in e.generated] == internals["alignment"]["precision"]["indices"]
    assert [chunk.text for chunk in e.reference] == sentences(REFERENCE)
    assert e.params == Params(lct=1, small_text="reference")
    assert "|chunk:1|lct:1|" in e.result.signature
    assert "|small:reference|seg:segmenter_fn|emb:embedding_fn|" in e.result.signature
    assert e.thresholds.support == 0.6


@pytest.mark.parametrize("internals", [{}, None, {"config": {}}, {"config": 3}])
def test_what_are_no_internals_is_refused(internals: Any) -> None:
    with pytest.raises(ValueError, match="internals must be a result of compute_vcs_score"):
        compat.explain_internals(internals)


@needs("matplotlib")
def test_the_examples_of_the_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"reference": REFERENCE, "generated": GENERATED, "segmenter": sentences, "embed": embed}
    run_snippet("docs/migration.md", "compat", folder=tmp_path, **names)
    assert {path.name for path in tmp_path.iterdir()} == {"nas-d.png", "report.pdf"}
    assert "VCS is" in capsys.readouterr().out
    assert run_snippet("docs/migration.md", "scorer", **names)["result"].scores
