"""Checks of a bundle's embedder: properties of any embedder, and the scores on its model card."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcs_export.checks.quantization_error import demo_texts
from vcs_export.errors import ExportError
from vcs_runtime.bundle.layouts import PADDING_STEP, padded_length
from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.inference.batching import batches
from vcs_runtime.inference.device import choose_device
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.proof import built_in_texts
from vcs_runtime.inference.session import Session
from vcs_runtime.inference.tokenizer import load_tokenizer
from vcs_runtime.util.reading import read_whole

TOLERANCES = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2, "int8": 1e-4}
"""The largest difference between two runs of the same text, by the precision of matrices."""
# Tolerance of a score on the card, in hundredths of a cosine, for half precision and other kernels.
_CARD_TOLERANCE = 0.5
_PADDING = 9

Array = NDArray[np.float32]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Check:
    """The result of one check: its name, whether it holds, and the measured figure."""

    name: str
    holds: bool
    detail: str


def verify_embedder(
    bundle: Bundle, device: str = "cpu", card: Path | None = None
) -> Iterator[Check]:
    """Check a bundle's embedder by running it, and yield each check as it is done.

    `card` is the README.md of NV-Embed's checkpoint, whose example must give the printed scores.
    Raises ExportError if it has no example.
    """
    example = _example(card) if card else None
    with Embedder.open(bundle, device, proof=False) as embedder:
        spec = embedder.spec
        texts = [*built_in_texts(), *demo_texts()]
        together = embedder.embed(texts)  # which raises BundleError for NaN
        length = float(np.abs(np.linalg.norm(together.astype(np.float64), axis=1) - 1).max())
        yield Check("unit length", length < 1e-4, f"off by {length:.1e}")
        precision = spec.cuda.precision if spec.cuda else None
        tolerance = TOLERANCES.get(precision or spec.precision, 1e-5)
        alone = np.concatenate([embedder.embed([text]) for text in texts])
        yield _near("alone and in a batch", together, alone, tolerance)
        order = np.random.default_rng(0).permutation(len(texts))
        shuffled = embedder.embed([texts[i] for i in order])
        yield _near("in any order", together[order], shuffled, tolerance)
        if example:
            yield _scores(embedder, *example)
        if embedder.device.provider_name == "ort-cuda" and spec.cuda:
            return  # the CUDA graph has no padding
    # Lengths are multiples of the step to which the runtime pads, so that it adds no padding.
    steps = (PADDING_STEP, 5 * PADDING_STEP, 11 * PADDING_STEP)
    sizes = [size for size in steps if size + _PADDING <= padded_length(spec.max_tokens)]
    if sizes:  # a very short window has no room for padding
        yield _near("with and without padding", *_padded(bundle, spec, device, sizes), tolerance)


def _near(name: str, first: Array, second: Array, tolerance: float) -> Check:
    difference = float(np.abs(first - second).max())
    return Check(name, difference <= tolerance, f"differ by {difference:.1e} at most")


def _padded(
    bundle: Bundle, spec: EmbedderSpec, device: str, sizes: Sequence[int]
) -> tuple[Array, Array]:
    """Return the vectors of texts of `sizes` tokens, without padding and then with padding."""
    tokenizer = load_tokenizer(bundle.path(spec.tokenizer))
    ids = tokenizer.encode(demo_texts()[0], add_special_tokens=False).ids
    rows = [ids[:size] for size in sizes]
    half = spec.precision == "fp16"
    session = Session(
        bundle.path(spec.model), choose_device(device), half=half, what="the embedder"
    )
    vectors = np.empty((2, len(rows), spec.dimension), np.float32)
    for batch in batches(rows, 1, spec.layout):
        # In a batch of one text, every input with a column for each place can be widened.
        wide = dict(batch.inputs)
        for name, array in batch.inputs.items():
            if array.ndim == 2:
                wide[name] = np.pad(array, ((0, 0), (0, _PADDING)))
        for which, inputs in enumerate((batch.inputs, wide)):
            # A batch may end with fillers, whose vectors are dropped.
            vectors[which, batch.rows] = session.run(inputs)[0][: len(batch.rows)]
    return vectors[0], vectors[1]


def _scores(
    embedder: Embedder, task: str, queries: list[str], passages: list[str], expected: Scores
) -> Check:
    instruction = f"Instruct: {task}\nQuery: "
    left = embedder.embed(queries, instruction=instruction)
    right = embedder.embed(passages, instruction="")
    scores = 100 * left.astype(np.float64) @ right.astype(np.float64).T
    difference = float(np.abs(scores - expected).max())
    figures = ", ".join(f"{score:.3f}" for score in scores.ravel())
    return Check(
        "the card's scores",
        difference <= _CARD_TOLERANCE,
        f"{figures}; off by {difference:.3f} at most",
    )


def _example(card: Path) -> tuple[str, list[str], list[str], Scores]:
    """Read task, queries, passages and scores of the example in a model card.

    Nothing is executed.
    """
    try:
        text = read_whole(card).decode()
    except UnicodeDecodeError as error:
        raise ExportError(f"{card}: cannot be read: {error}") from None
    for code in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        scores = re.search(r"^# (\[\[.*\]\])\s*$", code, re.MULTILINE)
        with suppress(SyntaxError, ValueError, LookupError, AttributeError, TypeError):
            constants = {}
            for node in ast.parse(code).body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    with suppress(ValueError):
                        constants[node.targets[0].id] = ast.literal_eval(node.value)
            [task] = constants["task_name_to_instruct"].values()
            expected = np.array(ast.literal_eval(scores[1]), np.float64) if scores else np.empty(0)
            queries, passages = constants["queries"], constants["passages"]
            if expected.shape == (len(queries), len(passages)) and expected.size:
                return task, queries, passages, expected
    raise ExportError(f"{card}: the file has no example with queries, passages and their scores")
