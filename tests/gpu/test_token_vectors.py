"""Vectors of tokens on the CUDA provider leave the kernels of a text's vector unchanged."""

from __future__ import annotations

import pytest

from support.cuda_stand_ins import DryGpu, mark
from support.gpu_bundles import texts_of
from vcs_runtime.bundle.opening import open_bundle

LENGTHS = [9, 26, 64, 65, 240, *(5 + (7 * i) % 60 for i in range(40))]
WIDTH = 384


def runs(bundle: str, layer: int | None, invariant: bool) -> int:
    """Embed texts without token vectors, then with them, marked; return the number of tokens."""
    from vcs_runtime import Embedder
    from vcs_runtime.inference.token_vectors import TokenRequest

    texts = texts_of(LENGTHS)
    with Embedder.open(bundle, "cuda:0", batch_invariant=invariant) as embedder:
        embedder.embed(texts)
        mark("before")
        embedder.embed(texts)
        mark("opened again")
        request = TokenRequest(embedder.show_tokens(layer), texts)
        embedder.embed(texts)
        mark("not wanted")
        embedder.embed(texts)
        mark("wanted")
        prepared = embedder.prepare(texts, request)
        prepared.run()
        mark("end")
        return sum(len(tokens.ids) for tokens in prepared.tokens().values())


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("layer", [None, 0, 3])
def test_a_texts_vector_has_the_same_launches_with_vectors_of_tokens(
    dry_gpu: DryGpu, layer: int | None, invariant: bool
) -> None:
    run = dry_gpu.call(runs, str(open_bundle("default").root), layer, invariant)
    before = run.log["before"].launches
    assert before
    assert run.log["not wanted"].launches == before
    assert run.log["wanted"].launches == before
    back = {
        name: sum(copy.bytes for copy in run.log[name].copies)
        for name in ("before", "not wanted", "wanted")
    }
    assert back["not wanted"] == back["before"]
    size = 4 if layer == 0 else 2  # bytes of a number: only the embeddings are in float32
    # Fillers and special tokens come too.
    assert back["wanted"] - back["before"] >= run.value * WIDTH * size
