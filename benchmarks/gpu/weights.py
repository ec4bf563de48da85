"""The checkpoint and the texts of `measure.py`: NV-Embed-v2's structure with made-up numbers.

The numbers are one repeated block of random numbers. Speed does not depend on them, and 15.7 GB are
written as fast as memory allows. Two outliers are planted, as trained models have them. One channel
of the residual stream is +-400 for every token, which the norms damp. One channel of a layer's
intermediate vector is some thousand times as large as the others.

A checkpoint of few layers is the first file of the whole checkpoint, and needs no space of its own.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcs_export.checkpoint.decoder import DecoderConfig, decoder_shapes
from vcs_export.checkpoint.nv_embed import LatentConfig, latent_shapes
from vcs_export.checkpoint.recipe import NV_EMBED, NvEmbedRecipe, load_recipe

SPECIAL = {"<unk>": 0, "<s>": 1, "</s>": 2}
DECODER = "embedding_model."
CHANNEL, INTERMEDIATE, OUTLIER_LAYER = 7, 11, 1
"""Channel of the residual stream that is large, of an intermediate vector, and the layer of the
latter."""
_LARGE = 400.0
_LARGER = 30.0  # times the usual, for both factors of the intermediate channel
_BLOCK = (1 << 22) + 1  # odd, so that no two rows of a matrix are alike
_LAYERS_OF_A_FILE = 4
_WIDER = 4  # the gated layer against the hidden size

_MLP = f"{DECODER}layers.{OUTLIER_LAYER}.mlp."
_PLANTED = (
    f"{DECODER}embed_tokens.weight",
    *(f"{_MLP}{name}_proj.weight" for name in ("gate", "up", "down")),
)

Half = NDArray[np.float16]


@dataclass(frozen=True)
class Size:
    """The settings of a model, and the lengths of texts in tokens: a document, and the range of
    chunks."""

    decoder: DecoderConfig
    latent: LatentConfig
    document: int
    chunk: tuple[int, int]
    layers_of_a_file: int = _LAYERS_OF_A_FILE

    def flops(self, tokens: int) -> int:
        """Operations for a text of `tokens` tokens, as exported."""
        config, latent = self.decoder, self.latent
        hidden, queries = config.hidden_size, config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        layer = (
            hidden * (2 * queries + 2 * keys + 3 * config.intermediate_size) + 2 * tokens * queries
        )
        # Keys and values of the latents are constants. They are folded into the neighbouring matrices.
        latents = 2 * hidden * latent.num_cross_heads * latent.num_latents_value
        gated = tokens * 2 * _WIDER * hidden**2 + _WIDER * hidden**2  # the last product once a text
        return 2 * (tokens * (config.num_hidden_layers * layer + latents) + gated)

    def shallow(self) -> Size:
        """The same with the layers of the first file alone."""
        return replace(self, decoder=replace(self.decoder, num_hidden_layers=self.layers_of_a_file))


def settings() -> tuple[DecoderConfig, LatentConfig]:
    """The published settings of NV-Embed-v2, as its recipe has them."""
    recipe = load_recipe(NV_EMBED, NvEmbedRecipe)
    return DecoderConfig(**recipe.config, causal=False), LatentConfig(**recipe.latent)  # type: ignore[arg-type]


def safetensors_start(shapes: Mapping[str, tuple[int, ...]], kind: str) -> bytes:
    """What a safetensors file begins with, before its tensors in this order; kind is "F16", "BF16"
    or "F32"."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        size = int(kind.lstrip("BF")) // 8 * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)
    return len(start).to_bytes(8, "little") + start


def size(tiny: bool) -> Size:
    """The published size, or one that a CPU runs in a second."""
    if not tiny:
        return Size(*settings(), document=600, chunk=(10, 60))
    decoder = DecoderConfig(64, 4, 4, 2, 16, 128, 500, 256, 1e-5, 10000.0, False)
    return Size(decoder, LatentConfig(8, 2, 64, 64), document=60, chunk=(4, 12), layers_of_a_file=2)


def write_checkpoint(folder: Path, size: Size) -> None:
    """Write settings, tokenizer and fp16 weights, as safetensors files of a few layers each."""
    block = np.random.default_rng(0).standard_normal(_BLOCK, np.float32)
    write_settings(folder, size)
    files: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in (decoder_shapes(size.decoder, DECODER) | latent_shapes(size.latent)).items():
        layer = (
            int(name.split("layers.")[1].partition(".")[0])
            if name.startswith(f"{DECODER}layers.")
            else 0
        )
        files.setdefault(f"model-{layer // size.layers_of_a_file + 1}.safetensors", {})[name] = (
            shape
        )
    for file, shapes in files.items():
        _write_file(folder / file, shapes, size, block)
    _write_index(folder, files)
    _write_tokenizer(folder / "tokenizer.json", words(size))


def write_shallow(folder: Path, whole: Path, size: Size) -> None:
    """Write a checkpoint of the layers in the first file of the checkpoint `whole`, of which it
    gets a link."""
    write_settings(folder, size.shallow())
    first = "model-1.safetensors"
    os.link(whole / first, folder / first)
    shapes = decoder_shapes(size.shallow().decoder, DECODER) | latent_shapes(size.latent)
    _write_index(folder, {first: shapes})
    shutil.copyfile(whole / "tokenizer.json", folder / "tokenizer.json")


def write_settings(folder: Path, size: Size) -> None:
    """Write config.json."""
    text = {key: value for key, value in asdict(size.decoder).items() if key != "causal"}
    text |= {"model_type": "bidir_mistral", "bos_token_id": 1, "eos_token_id": 2}
    latent = asdict(size.latent) | {"latent_dim": size.latent.hidden_dim}
    config = {"model_type": "nvembed", "text_config": text, "latent_attention_config": latent}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def _write_index(folder: Path, files: dict[str, dict[str, tuple[int, ...]]]) -> None:
    where = {name: file for file, shapes in files.items() for name in shapes}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}), "utf-8")


def _write_file(
    path: Path, shapes: dict[str, tuple[int, ...]], size: Size, block: NDArray[Any]
) -> None:
    scaled: dict[float, Half] = {}
    place = 0
    with path.open("wb") as file:
        file.write(safetensors_start(shapes, "F16"))
        for name, shape in shapes.items():
            # So deep stacks of Gaussian matrices stay near unit scale, as trained matrices do.
            spread = 1.0 if "embed_tokens" in name or "latents" in name else 0.7 * shape[-1] ** -0.5
            if len(shape) == 1:
                vector = np.resize(np.roll(block, -place), shape) * np.float32(0.05)
                values = (vector + np.float32(centre(name, size))).astype(np.float16)
                file.write(_plant(name, values).data)
            else:
                if spread not in scaled:
                    scaled[spread] = (block * np.float32(spread)).astype(np.float16)
                parts = _repeated(scaled[spread], place, math.prod(shape))
                if name in _PLANTED:
                    parts = iter([_plant(name, np.concatenate(list(parts)).reshape(shape))])
                for part in parts:
                    file.write(part.data)
            place = (place + math.prod(shape)) % _BLOCK


def centre(name: str, size: Size) -> float:
    """Return the value around which a vector of weights lies."""
    if name.startswith(DECODER):  # a norm, which makes up for the outlier in the mean square
        return math.sqrt(1 + _LARGE**2 / size.decoder.hidden_size)
    return 1.0 if name.endswith("norm.weight") or "norm_context.weight" in name else 0.0


def _repeated(block: Half, place: int, left: int) -> Iterator[Half]:
    """Yield `left` numbers of the repeated block in parts, from its number `place` on."""
    while left:
        yield (part := block[place : place + left])
        left -= len(part)
        place = 0


def _plant(name: str, values: Half) -> Half:
    """Plant the outliers into a tensor that has a share in them, in place."""
    if name.endswith("embed_tokens.weight"):
        values[:, CHANNEL] = np.where(np.arange(len(values)) % 2, _LARGE, -_LARGE)
    elif name.startswith(DECODER) and values.ndim == 1:
        values[CHANNEL] = 0.1
    elif name.endswith("down_proj.weight"):
        values[:, INTERMEDIATE] *= np.float16(0.1)
    elif values.ndim == 2:
        values[INTERMEDIATE] *= np.float16(_LARGER)
    return values


@cache
def made_up_words(count: int) -> list[str]:
    """Return distinct pronounceable words of two to four syllables."""
    syllables = [c + v for c in "bcdfghjklmnpqrstvwxz" for v in "aeiou"]
    rng = random.Random(1)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(syllables, k=rng.randint(2, 4)))] = None
    return list(found)


def words(size: Size) -> list[str]:
    """Return made-up words, one for each id of the vocabulary that is free."""
    return made_up_words(size.decoder.vocab_size - len(SPECIAL) - 1)


def english() -> list[str]:
    """Return the words of the manual's example, for models that know English."""
    text = (Path(__file__).parents[2] / "docs/examples/references.json").read_text("utf-8")
    return re.findall(r"[A-Za-z]{2,}", text)


def _write_tokenizer(path: Path, vocabulary: list[str]) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    ids = SPECIAL | {word: len(SPECIAL) + i for i, word in enumerate([*vocabulary, "."])}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(path))


def texts(size: Size, lengths: list[int], seed: int = 0) -> list[str]:
    """Return texts of these numbers of tokens, `<s>` and `</s>` included."""
    rng = random.Random(f"texts {seed}")
    vocabulary = words(size)
    return [" ".join(rng.choices(vocabulary, k=length - 2)) for length in lengths]


def pairs(
    size: Size, count: int, references: int, seed: int = 3, of: list[str] | None = None
) -> list[tuple[str, str]]:
    """Return pairs of documents in sentences of these words; every reference serves several
    pairs."""
    rng = random.Random(seed)
    vocabulary = of or words(size)

    def text() -> str:
        left, sentences = size.document * 3 // 4, []
        while left > 0:
            length = rng.randint(*size.chunk)
            sentences.append(" ".join(rng.choices(vocabulary, k=length)).capitalize() + ".")
            left -= length + 1
        return " ".join(sentences)

    shared = [text() for _ in range(references)]
    return [(shared[i % references], text()) for i in range(count)]
