"""The fast tier: static word vectors from the default bundle, and a segmenter that reads them.

The default model reads each token of its vocabulary alone. One affine map, and a weight for each
token, turn its output into a table of vectors. The project trained both (`models/fast.md`). The
vector of a text is the mean of its tokens' rows, scaled to unit length: an ordinary ONNX graph,
with the default's tokenizer. Convolutions over the same rows find the ends of sentences in text
without punctuation. The table is computed in float64 and stored in float16, so that its bytes do
not depend on the processor: their hash is in signatures.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vcs_export.checkpoint.recipe import recipes_folder
from vcs_export.checkpoint.transformer import bert_special_tokens
from vcs_export.checks.proofs import with_proofs
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.build import MODEL_FILE, SEGMENTER_FILES, TOKENIZER_FILE, WEIGHTS_FILE
from vcs_export.families.default import fetched
from vcs_export.families.learned_segmenter import OUTPUT as LOGITS
from vcs_export.families.learned_segmenter import Trained
from vcs_export.graph.builder import GraphBuilder, StoredWeights
from vcs_export.graph.encoder import OUTPUT
from vcs_export.graph.pooling import mean_pooling, unit_length
from vcs_export.graph.transformer import INPUTS, OPSET, gelu
from vcs_export.write import LICENCES, BundleInfo, BundleWriter
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.layouts import SEGMENTER_INPUTS
from vcs_runtime.bundle.manifest import EmbedderSpec, LearnedSegmenterSpec, SegmenterSpec
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.bundle.paths import FAST, fetched_bundle_path
from vcs_runtime.errors import BundleError
from vcs_runtime.util.progress import progress_bar

Array = NDArray[np.float64]

_WORDS = "embeddings.word_embeddings.weight"
_PLACES = "embeddings.position_and_type"
_AT_A_TIME = 512  # tokens whose vectors are computed together


class TokenEncoder:
    """A BERT encoder that reads one token at a time, between the special tokens.

    Tensors have the names of the graph, linear weights are `(in, out)`. `digest`, the sha256 of the
    word vectors' bytes, names the encoder.
    """

    def __init__(
        self,
        tensors: dict[str, NDArray[np.float32]],
        heads: int,
        epsilon: float,
        special: tuple[int, int],
    ) -> None:
        self.digest = hashlib.sha256(tensors[_WORDS].tobytes()).hexdigest()
        self.count, self.width = tensors[_WORDS].shape
        self._tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
        self._layers = sum(name.endswith(".intermediate.dense.weight") for name in tensors)
        self._heads = heads
        self._epsilon = epsilon
        self.special = special

    def vectors(self, ids: NDArray[np.int64]) -> Array:
        """Return the vectors of tokens, float64 `(len(ids), width)`."""
        vectors = np.empty((len(ids), self.width))
        with progress_bar(len(ids), "word vectors", "tokens") as advance:
            for start in range(0, len(ids), _AT_A_TIME):
                part = ids[start : start + _AT_A_TIME]
                vectors[start : start + len(part)] = self._encode(part)
                advance(len(part))
        return vectors

    def _encode(self, ids: NDArray[np.int64]) -> Array:
        tensors = self._tensors
        first, last = self.special
        rows = np.column_stack([np.full_like(ids, first), ids, np.full_like(ids, last)])
        x = self._norm("embeddings.LayerNorm", tensors[_WORDS][rows] + tensors[_PLACES][:3])
        for layer in range(self._layers):
            prefix = f"encoder.layer.{layer}."
            seen = self._attended(f"{prefix}attention.self.", x)
            out = self._linear(f"{prefix}attention.output.dense", seen)
            x = self._norm(f"{prefix}attention.output.LayerNorm", x + out)
            inner = _gelu(self._linear(f"{prefix}intermediate.dense", x))
            out = self._linear(f"{prefix}output.dense", inner)
            x = self._norm(f"{prefix}output.LayerNorm", x + out)
        mean: Array = x.mean(axis=1)
        return mean

    def _attended(self, prefix: str, x: Array) -> Array:
        texts, tokens, width = x.shape
        size = width // self._heads

        def split(name: str) -> Array:
            projected = self._linear(prefix + name, x)
            return projected.reshape(texts, tokens, self._heads, size).transpose(0, 2, 1, 3)

        query, key, value = split("query"), split("key"), split("value")
        # Three tokens have no scores so large that `exp` would overflow.
        scores = np.exp(query @ key.transpose(0, 1, 3, 2) / math.sqrt(size))
        weights = scores / scores.sum(axis=-1, keepdims=True)
        seen: Array = (weights @ value).transpose(0, 2, 1, 3).reshape(texts, tokens, width)
        return seen

    def _linear(self, name: str, x: Array) -> Array:
        # One product of all rows is faster: NumPy would multiply a stack's matrices one by one.
        rows = x.reshape(-1, x.shape[-1])
        product = rows @ self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]
        stacked: Array = product.reshape(*x.shape[:-1], -1)
        return stacked

    def _norm(self, name: str, x: Array) -> Array:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + self._epsilon)
        x *= self._tensors[f"{name}.weight"]
        x += self._tensors[f"{name}.bias"]
        return x


def open_token_encoder(bundle: Bundle) -> TokenEncoder:
    """Read the encoder of a bundle of the default's kind.

    Raises ExportError for another kind of embedder.
    """
    spec = bundle.manifest.embedder
    if spec is None:
        raise BundleError(f"bundle {bundle.root}: it holds no embedder")
    graph = ir.load(bundle.path(spec.model)).graph
    constants = {name: value.const_value for name, value in graph.initializers.items()}
    folder = bundle.path(spec.model).parent
    tensors = {
        name: as_array(tensor, folder) for name, tensor in constants.items() if tensor is not None
    }
    special = bert_special_tokens(bundle.path(spec.tokenizer))
    try:
        norm = next(node for node in graph if node.op_type == "LayerNormalization")
        shape = next(node for node in graph if node.op_type == "Reshape").inputs[1]
        assert shape is not None
        assert shape.name is not None
        heads = int(tensors[shape.name][2])
        weights = {
            name: tensor
            for name, tensor in tensors.items()
            if name.startswith(("embeddings.", "encoder."))
        }
        return TokenEncoder(weights, heads, norm.attributes["epsilon"].as_float(), special)
    except (KeyError, IndexError, StopIteration):
        raise ExportError(
            f"bundle {bundle.root}: its embedder must be a BERT that this package exported"
        ) from None


def as_array(tensor: ir.TensorProtocol, folder: Path) -> NDArray[Any]:
    """Return a tensor of a verified bundle.

    onnx-ir would refuse a file with more than one hard link.
    """
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


# A window bounds memory; the mean over windows is nearly the mean over the whole text.
MAX_TOKENS = 8192
# Weight of the special tokens, relative to the maximum, 1. A text without any known token gets
# their vector.
_SPECIAL = 1e-3
_SPECIAL_TOKENS = ("[CLS]", "[SEP]")
NOTICE = "NOTICE"
_HOW = """\
The embedder of this bundle is a table of word vectors. It was made from the weights of the bundle
{}
with a map that the vcs-runtime project has trained (Apache-2.0):
{}
The model of its segmenter reads the same table, and was trained by the project on the CLIP-CC \
descriptions
(CC-BY-4.0). What follows is that bundle's notice.

"""

_WINDOW, _STRIDE = 512, 480  # of the segmenter, in tokens


class _Facts(msgspec.Struct, frozen=True):
    """The header of the trained tensors."""

    base: str  # digest of the encoder
    steps: tuple[int, ...]  # of the segmenter's convolutions
    threshold: float


def fetch_made(
    name: str,
    make: Callable[..., Path],
    replace: bool = False,
    log: Callable[[str], None] = print,
    *,
    source: str | os.PathLike[str] = "default",
    training: Path | None = None,
    target: Path | None = None,
) -> Path:
    """Make a bundle from the default bundle, unless this version already made it."""
    training = training or recipes_folder() / f"{name}.safetensors"
    target = target or fetched_bundle_path(name)
    opened = open_bundle(source)

    def outdated(bundle: Bundle | None) -> str:
        lines = bundle.path(NOTICE).read_text("utf-8").splitlines() if bundle else []
        current = {_origin(opened), _training_line(training)} <= set(lines)
        return "" if current else "was built from another bundle or map"

    def build(replace: bool) -> None:
        make(opened, training, target, replace=replace, log=log)

    return fetched(target, opened.root, replace, log, outdated, build)


def build_static(
    source: Bundle,
    training: Path,
    target: Path,
    *,
    replace: bool = False,
    log: Callable[[str], None] = print,
) -> Path:
    """Build a bundle of static word vectors and their segmenter from the bundle `source`.

    The tokenizer and the rules are copied from `source`.
    """
    encoder = open_token_encoder(source)
    spec, segmenter = source.manifest.embedder, source.manifest.segmenter
    assert spec is not None  # the encoder was opened from it
    trained = Trained(training, _Facts, "not a map of word vectors")
    base = trained.facts.base
    if base != encoder.digest:
        raise CheckpointError(
            f"{training}: trained on the word vectors {base[:8]}, not on {encoder.digest[:8]}"
        )
    log(f"computing the vectors of {encoder.count:,} tokens, which takes 2 to 6 minutes")
    table = word_table(encoder, trained, source.path(spec.tokenizer))
    legal = [entry.path for entry in source.manifest.files if entry.path.startswith(f"{LICENCES}/")]
    files = {NOTICE: notice(source, training, _HOW).encode()}
    files |= {path: source.path(path).read_bytes() for path in legal}
    info = BundleInfo(FAST, source.manifest.licence, source.manifest.source, files, replace)
    with BundleWriter(target, info) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(source.path(spec.tokenizer).read_bytes())
        stored = write_static(table, bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE))
        ends, ends_weights = SEGMENTER_FILES
        _write_segmenter(trained, table, stored, bundle.file(ends), bundle.file(ends_weights))
        return bundle.commit(
            embedder=EmbedderSpec(
                name=FAST,
                model=MODEL_FILE,
                weights=(WEIGHTS_FILE,),
                tokenizer=TOKENIZER_FILE,
                dimension=table.shape[1],
                max_tokens=MAX_TOKENS,
                long_text="window_mean",
                precision="fp32",
            ),
            segmenter=SegmenterSpec(
                rules=segmenter.rules if segmenter else None,
                model=LearnedSegmenterSpec(
                    name="boundary-fast",
                    kind="words",
                    model=ends,
                    weights=(ends_weights, WEIGHTS_FILE),
                    tokenizer=TOKENIZER_FILE,
                    special_tokens=encoder.special,
                    max_tokens=_WINDOW,
                    stride=_STRIDE,
                    threshold=trained.facts.threshold,
                    precision="fp32",
                ),
            ),
            prove=partial(with_proofs, log=log),
        )


def write_static(table: NDArray[np.float16], model: Path, weights: Path) -> StoredWeights:
    """Write the graph, and its table `(tokens, dimension)` beside it. The arithmetic is float32.

    The inputs `input_ids` and `attention_mask` are int64 `(batch, tokens)`. The output `embedding`
    is float32 `(batch, dimension)`, the normalised mean of the rows where the mask is 1.
    """
    graph = GraphBuilder(OPSET)
    ids, mask = (graph.input(name, ("batch", "tokens")) for name in INPUTS)
    rows = graph.op("Gather", graph.weight("table", table), ids)
    visible = graph.op("Cast", mask, to=graph.float_type)
    mean = mean_pooling(graph, graph.op("Cast", rows, to=graph.float_type), visible)
    return graph.save(unit_length(graph, mean), OUTPUT, ("batch", table.shape[1]), model, weights)


def word_table(
    encoder: TokenEncoder, trained: Mapping[str, NDArray[np.float16]], tokenizer: Path
) -> NDArray[np.float16]:
    """Return the row of each token, `(tokens, 256)`: its mapped vector times its weight."""
    vocabulary = Tokenizer.from_file(str(tokenizer))
    weights = trained["weights"].astype(np.float64)
    for token in _SPECIAL_TOKENS:
        weights[vocabulary.token_to_id(token)] = _SPECIAL
    vectors = encoder.vectors(np.arange(encoder.count))
    mapped = vectors @ trained["map"].astype(np.float64) + trained["bias"].astype(np.float64)
    return (mapped * weights[:, None]).astype(np.float16)


def _write_segmenter(
    trained: Trained[_Facts],
    table: NDArray[np.float16],
    stored: StoredWeights,
    model: Path,
    weights: Path,
) -> None:
    """Write the learned segmenter's graph: convolutions on the embedder's table, a logit per token.

    Inputs and output are the same as in `learned_segmenter.write_learned_segmenter`.
    """
    graph = GraphBuilder(OPSET, "fp32", stored)
    ids, mask, capitals = (
        graph.input(name, ("batch", "tokens")) for name in SEGMENTER_INPUTS["words"]
    )

    def weight(name: str) -> NDArray[np.float32]:
        return trained[f"ends.{name}"].astype(np.float32)

    def linear(name: str, x: ir.Value) -> ir.Value:
        return graph.linear(name, x, weight(f"{name}.weight"), weight(f"{name}.bias"))

    def norm(name: str, x: ir.Value) -> ir.Value:
        return graph.layer_norm(name, x, weight(f"{name}.weight"), weight(f"{name}.bias"), 1e-5)

    # A token's row in the table, and how its word is written.
    rows = graph.op("Gather", graph.weight("table", table), ids)
    x = linear("words", norm("rows", graph.op("Cast", rows, to=graph.float_type)))
    shapes = graph.weight("capitals.weight", weight("capitals.weight"))
    x = graph.op("Add", x, graph.op("Gather", shapes, capitals))
    visible = graph.op("Unsqueeze", graph.op("Cast", mask, to=graph.float_type), graph.ints(2))
    for block, step in enumerate(trained.facts.steps):
        # A token sees the tokens `step` places before and after it. Masked tokens, and places
        # outside the window, are zeros.
        seen = graph.op("Mul", norm(f"{block}.norm", x), visible)
        padded = graph.op("Pad", seen, graph.ints(0, step, 0, 0, step, 0))
        before = graph.op("Slice", padded, graph.ints(0), graph.ints(-2 * step), graph.ints(1))
        after = graph.op(
            "Slice", padded, graph.ints(2 * step), graph.ints(2**31 - 1), graph.ints(1)
        )
        around = graph.op("Concat", before, seen, after, axis=2)
        near = gelu(graph, linear(f"{block}.near", around))
        x = graph.op("Add", x, linear(f"{block}.out", near))
    logits = linear("classifier", norm("norm", x))
    graph.save(logits, LOGITS, ("batch", "tokens", 1), model, weights)


def notice(source: Bundle, training: Path, how: str) -> str:
    """Return the notice of a bundle that was made from `source`, before that bundle's notice."""
    rest = ""
    if NOTICE in {entry.path for entry in source.manifest.files}:
        rest = source.path(NOTICE).read_text("utf-8")
    return how.format(_origin(source), _training_line(training)) + rest


def _origin(source: Bundle) -> str:
    spec = source.manifest.embedder
    return f"  {source.identity(spec)}" if spec else ""


def _training_line(training: Path) -> str:
    return f"  {training.name}  sha256 {sha256_of(training)}"
