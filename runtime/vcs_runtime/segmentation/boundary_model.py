"""Boundary models: token classifiers, such as SaT, that say behind which character a segment ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from vcs_runtime.bundle.manifest import BoundarySpec
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import BundleError, DeviceError
from vcs_runtime.inference.batching import RowLimit, groups
from vcs_runtime.inference.device import Device
from vcs_runtime.inference.session import Budget, run_batches
from vcs_runtime.inference.tensorrt import open_part, row_limit
from vcs_runtime.inference.tokenizer import load_tokenizer
from vcs_runtime.segmentation.boundaries import (
    FloatArray,
    IntArray,
    Overlap,
    character_probabilities,
    sigmoid,
    window_starts,
)
from vcs_runtime.segmentation.word_features import word_features

# Characters that are tokenised at a time: many full batches, and encodings of bounded size.
_PORTION_CHARACTERS = 1_000_000
# Windows are padded to a multiple of this. On a CPU batches save little, and without padding the logits are
# those of the window alone; a GPU wants company.
_STEP = {"ort-cpu": 1, "ort-cuda": 16, "ort-tensorrt": 16}
# What the memory of a token is reckoned from (`session.Budget`): no boundary model is wider.
_WIDTH = 1024
_PAD_TOKENS = ("<pad>", "[PAD]")
_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
}


@dataclass(frozen=True)
class Tokens:
    """A text as a boundary model sees it.

    inputs  by the name of the graph's input one number a token: `input_ids`, and what else the kind needs
    places  for each token the character that gets its probability, as `character_probabilities` takes them
    """

    inputs: dict[str, IntArray]
    places: IntArray


def _sat_tokens(text: str, encoding: Encoding) -> Tokens:
    """SaT sees token ids alone; a segment may end behind the last character of any token."""
    ends = np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 1]
    # A token that stands for no character counts for the last one, as in wtpsplit.
    return Tokens({"input_ids": np.array(encoding.ids, np.int64)}, (ends - 1) % len(text))


def _word_tokens(text: str, encoding: Encoding) -> Tokens:
    """Beside ids, how words are written; of the tokens of a word the last speaks for it."""
    capitals, ends = word_features(text, encoding)
    return Tokens({"input_ids": np.array(encoding.ids, np.int64), "capitals": capitals}, ends)


# All that distinguishes the kinds of models (`bundle.BOUNDARY_KINDS`).
_KINDS: dict[str, Callable[[str, Encoding], Tokens]] = {"sat": _sat_tokens, "words": _word_tokens}


class BoundaryModel:
    """A boundary model on a device, for `Segmenter`. May be used from several threads."""

    def __init__(
        self, bundle: Bundle, spec: BoundarySpec, device: Device, threads: int | None = None
    ) -> None:
        """Open the model `spec` of `bundle`; raises BundleError, DeviceError."""
        self.spec = spec
        self.device = device
        self._tokenizer = load_tokenizer(bundle.path(spec.tokenizer))
        self._pad = _pad_id(self._tokenizer)
        self._session = open_part(bundle, "segmenter", device, threads, spec=spec, what="the segmenter")
        self._types = _input_types(self._session.inputs, f"bundle {bundle.root}: {spec.model}")
        # Dynamic int8 takes its ranges from the whole batch: windows are then run one at a time.
        alone = spec.precision == "int8"
        self._most_rows: RowLimit = (lambda length: 1) if alone else row_limit(device)
        self._budget = Budget(device, _WIDTH, bundle.weights_size(spec))
        self._step = 1 if alone else _STEP[device.engine]
        self._check_vocabulary(bundle)

    def probabilities(self, texts: Sequence[str]) -> list[FloatArray]:
        """Per text float32 `(characters,)`: how probable it is that a segment ends behind each character.

        `texts` have passed `text.check_texts`.
        They depend on the text alone, not on the texts beside it. A text without tokens (white space or
        zero-width characters alone) has zeros. Memory grows with the longest text, not with their number.

        Raises DeviceError; BundleError for NaN from the model.
        """
        distinct: dict[str, FloatArray] = {}
        for portion in _portions(dict.fromkeys(texts)):
            distinct.update(zip(portion, self._probabilities(portion), strict=True))
        return [distinct[text] for text in texts]

    def _probabilities(self, texts: list[str]) -> list[FloatArray]:
        result = [np.zeros(len(text), np.float32) for text in texts]
        rows = [row for row, text in enumerate(texts) if not (text.isspace() or not text)]
        # Not `encode_batch_fast`: that leaves the offsets out.
        encodings = self._tokenizer.encode_batch([texts[row] for row in rows], add_special_tokens=False)
        view = _KINDS[self.spec.kind]
        tokens = [view(texts[row], encoding) for row, encoding in zip(rows, encodings, strict=True)]
        del encodings
        for row, item, logits in zip(rows, tokens, self._logits(tokens), strict=True):
            result[row] = character_probabilities(len(texts[row]), item.places, sigmoid(logits))
        return result

    def _logits(self, texts: list[Tokens]) -> Iterator[npt.NDArray[np.float16]]:
        """The mean logit of each token of each text, from batches of windows."""
        size = self.spec.max_tokens - 2
        lengths = [len(text.places) for text in texts]
        windows = [
            (owner, start)
            for owner, length in enumerate(lengths)
            for start in window_starts(length, size, self.spec.stride)
        ]
        overlaps = [Overlap(length) for length in lengths]
        sizes = [min(size, lengths[owner]) + 2 for owner, _ in windows]

        # The windows of one text are of one length and so keep their order, as `Overlap` demands.
        def cut(rows: list[int], tokens: int) -> Iterator[tuple[list[int], int]]:
            for found, padded in groups([sizes[row] for row in rows], tokens, self._step, self._most_rows):
                yield [rows[row] for row in found], padded

        def run(rows: list[int], padded: int) -> None:
            parts = [(texts[owner], start, sizes[row] - 2) for row in rows for owner, start in [windows[row]]]
            logits = self._run(parts, padded)
            for row, (_, start, length), values in zip(rows, parts, logits, strict=True):
                overlaps[windows[row][0]].add(start, values[1 : 1 + length])

        run_batches(sizes, self._budget, cut, run)
        for overlap in overlaps:
            yield overlap.mean()

    def _run(self, parts: list[tuple[Tokens, int, int]], padded: int) -> npt.NDArray[Any]:
        """The logits `(windows, padded)` of label 0 for windows `(text, start, length)`, frame included."""
        inputs = {name: np.zeros((len(parts), padded), kind) for name, kind in self._types.items()}
        ids = inputs["input_ids"]
        ids.fill(self._pad)
        for i, (tokens, start, length) in enumerate(parts):
            for name, values in tokens.inputs.items():
                inputs[name][i, 1 : 1 + length] = values[start : start + length]
            ids[i, 0], ids[i, 1 + length] = self.spec.frame
            inputs["attention_mask"][i, : length + 2] = 1
        logits = self._session.run(inputs)
        first: npt.NDArray[Any] = logits[:, :, 0]
        if not np.isfinite(first).all():
            raise BundleError(f"{self.spec.name}: the model returned NaN or infinity")
        return first

    def _check_vocabulary(self, bundle: Bundle) -> None:
        """Run the tokenizer's largest id once: a model of a smaller vocabulary refuses it on a CPU."""
        largest = self._tokenizer.get_vocab_size() - 1
        inputs = {name: np.zeros(1, np.int64) for name in self._types if name != "attention_mask"}
        inputs["input_ids"][:] = largest
        try:
            self._run([(Tokens(inputs, np.zeros(1, np.int64)), 0, 1)], 3)
        except (DeviceError, IndexError) as error:
            raise BundleError(
                f"bundle {bundle.root}: {self.spec.model} does not take the token {largest} of "
                f"{self.spec.tokenizer}, or gives no logits (windows, tokens, labels): {error}"
            ) from None

    def release(self) -> None:
        """Give the session and its memory back for now; the next call takes them again."""
        self._session.release()
        self._budget.forget()

    def close(self) -> None:
        """Give the session and its memory back. The model cannot be used afterwards."""
        self._session.close()


def _portions(texts: Iterator[str] | dict[str, None]) -> Iterator[list[str]]:
    portion: list[str] = []
    characters = 0
    for text in texts:
        portion.append(text)
        characters += len(text)
        if characters >= _PORTION_CHARACTERS:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion


def _input_types(inputs: dict[str, str], what: str) -> dict[str, Any]:
    """The graph's inputs with their types: what it was exported with, never what we would have chosen."""
    types = {name: _TYPES.get(kind) for name, kind in inputs.items()}
    if not {"input_ids", "attention_mask"} <= set(types) or None in types.values():
        found = ", ".join(f"{name}: {kind}" for name, kind in inputs.items())
        raise BundleError(f"{what}: a boundary model takes input_ids and attention_mask, this one {found}")
    return types


def _pad_id(tokenizer: Tokenizer) -> int:
    ids = (tokenizer.token_to_id(token) for token in _PAD_TOKENS)
    return next((found for found in ids if found is not None), 0)  # 0: under the mask any id would do
