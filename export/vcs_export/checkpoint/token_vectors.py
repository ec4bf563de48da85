"""The vector of each token alone, from the encoder in a bundle: `[CLS] token [SEP]`, averaged.

It is computed in float64, so that vectors rounded to float16 do not depend on the processor: the hash of
the weights that are made of them is in signatures.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.tokenizer_file import bert_special_tokens
from vcs_export.errors import ExportError
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import BundleError

Array = NDArray[np.float64]

_WORDS = "embeddings.word_embeddings.weight"
_PLACES = "embeddings.position_and_type"
_AT_A_TIME = 512  # tokens whose vectors are computed together


class TokenEncoder:
    """A BERT encoder that reads one token at a time, between the special tokens.

    Tensors have the names of the graph, linear weights are `(in, out)`. `digest`, the sha256 of the word
    vectors' bytes, names the encoder.
    """

    def __init__(
        self, tensors: dict[str, NDArray[np.float32]], heads: int, epsilon: float, special: tuple[int, int]
    ) -> None:
        self.digest = hashlib.sha256(tensors[_WORDS].tobytes()).hexdigest()
        self.count, self.width = tensors[_WORDS].shape
        self._tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
        self._layers = sum(name.endswith(".intermediate.dense.weight") for name in tensors)
        self._heads = heads
        self._epsilon = epsilon
        self._special = special

    def vectors(self, ids: NDArray[np.int64]) -> Array:
        """Return the vectors of tokens, float64 `(len(ids), width)`."""
        vectors = np.empty((len(ids), self.width))
        for start in range(0, len(ids), _AT_A_TIME):
            part = ids[start : start + _AT_A_TIME]
            vectors[start : start + len(part)] = self._encode(part)
        return vectors

    def _encode(self, ids: NDArray[np.int64]) -> Array:
        tensors = self._tensors
        first, last = self._special
        rows = np.column_stack([np.full_like(ids, first), ids, np.full_like(ids, last)])
        x = self._norm("embeddings.LayerNorm", tensors[_WORDS][rows] + tensors[_PLACES][:3])
        for layer in range(self._layers):
            prefix = f"encoder.layer.{layer}."
            seen = self._linear(
                f"{prefix}attention.output.dense", self._attended(f"{prefix}attention.self.", x)
            )
            x = self._norm(f"{prefix}attention.output.LayerNorm", x + seen)
            inner = _gelu(self._linear(f"{prefix}intermediate.dense", x))
            x = self._norm(f"{prefix}output.LayerNorm", x + self._linear(f"{prefix}output.dense", inner))
        mean: Array = x.mean(axis=1)
        return mean

    def _attended(self, prefix: str, x: Array) -> Array:
        texts, tokens, width = x.shape
        size = width // self._heads

        def split(name: str) -> Array:
            projected = self._linear(prefix + name, x)
            return projected.reshape(texts, tokens, self._heads, size).transpose(0, 2, 1, 3)

        query, key, value = map(split, ("query", "key", "value"))
        scores = np.exp(query @ key.transpose(0, 1, 3, 2) / math.sqrt(size))  # too few tokens to overflow
        weights = scores / scores.sum(axis=-1, keepdims=True)
        seen: Array = (weights @ value).transpose(0, 2, 1, 3).reshape(texts, tokens, width)
        return seen

    def _linear(self, name: str, x: Array) -> Array:
        # As one product: NumPy would multiply the matrices of a stack one by one.
        product = x.reshape(-1, x.shape[-1]) @ self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]
        stacked: Array = product.reshape(*x.shape[:-1], -1)
        return stacked

    def _norm(self, name: str, x: Array) -> Array:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + self._epsilon)
        x *= self._tensors[f"{name}.weight"]
        x += self._tensors[f"{name}.bias"]
        return x


def open_token_encoder(bundle: Bundle) -> TokenEncoder:
    """Read the encoder of a bundle of the default's kind. Raises ExportError for another kind of embedder."""
    spec = bundle.manifest.embedder
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no embedder")
    graph = ir.load(bundle.path(spec.model)).graph
    constants = {name: value.const_value for name, value in graph.initializers.items()}
    folder = bundle.path(spec.model).parent
    tensors = {name: _array(tensor, folder) for name, tensor in constants.items() if tensor is not None}
    special = bert_special_tokens(bundle.path(spec.tokenizer))
    try:
        norm = next(node for node in graph if node.op_type == "LayerNormalization")
        shape = next(node for node in graph if node.op_type == "Reshape").inputs[1]
        assert shape is not None
        assert shape.name is not None
        heads = int(tensors[shape.name][2])
        weights = {
            name: tensor for name, tensor in tensors.items() if name.startswith(("embeddings.", "encoder."))
        }
        return TokenEncoder(weights, heads, norm.attributes["epsilon"].as_float(), special)
    except (KeyError, IndexError, StopIteration):
        raise ExportError(f"bundle {bundle.root}: its embedder is no BERT of this package") from None


def _array(tensor: ir.TensorProtocol, folder: Path) -> NDArray[Any]:
    """Return a tensor of a verified bundle. onnx-ir would refuse a file that has another hard link."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor.numpy()
    kind, shape = tensor.dtype.numpy(), tensor.shape.numpy()
    return np.memmap(folder / tensor.location, kind, "r", tensor.offset or 0, shape)


def _gelu(x: Array) -> Array:
    """Return x (1 + erf(x / sqrt 2)) / 2, with erf to 1.5e-7 (Abramowitz and Stegun, 7.1.26).

    NumPy has no erf. This one is as exact as the float32 in which the model itself is run.
    """
    z = np.abs(x) * math.sqrt(0.5)
    t = 1.0 / (1.0 + 0.3275911 * z)
    tail = np.zeros_like(t)
    for coefficient in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += coefficient
        tail *= t
    tail *= np.exp(-z * z)  # 1 - erf(z)
    result: Array = 0.5 * x * (1.0 + np.copysign(1.0 - tail, x))
    return result
