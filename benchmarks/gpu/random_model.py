"""What `measure.py` measures on: a random checkpoint of NV-Embed's structure, texts, and its forward pass in PyTorch.

The forward pass is written from the published formula (hidden states of a Mistral without causal mask, attention
to trained latents, a gated layer, a mean), not from this repository's graphs: nothing is folded or reordered.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from nv_embed_counts import counts, settings
from torch.nn.functional import gelu, layer_norm, linear, normalize, scaled_dot_product_attention, silu

from vcs_export.checkpoint.decoder import DecoderConfig, decoder_shapes
from vcs_export.checkpoint.nv_embed import LATENT_PREFIX, LatentConfig, latent_shapes

SPECIAL = {"<unk>": 0, "<s>": 1, "</s>": 2}
_DECODER = "embedding_model."
_SHARD_BYTES = 4 << 30


@dataclass(frozen=True)
class Size:
    """The settings of a model, its vocabulary's words, and the lengths of texts."""

    decoder: DecoderConfig
    latent: LatentConfig
    document: int
    chunk: tuple[int, int]

    def flops(self, tokens: int) -> int:
        """Of a text of `tokens` tokens, as exported."""
        return 2 * sum(part[1] for part in counts(self.decoder, self.latent, tokens).values())


def size(tiny: bool) -> Size:
    """The published size, or one that a CPU runs in a second."""
    if not tiny:
        return Size(*settings(), document=600, chunk=(10, 60))
    decoder = DecoderConfig(64, 2, 4, 2, 16, 128, 500, 256, 1e-5, 10000.0, False)
    return Size(decoder, LatentConfig(8, 2, 64, 64), document=60, chunk=(4, 12))


def write_checkpoint(folder: Path, size: Size) -> None:
    """Random fp16 weights in shards, as safetensors, with settings and a tokenizer of made-up words."""
    text = {key: value for key, value in asdict(size.decoder).items() if key != "causal"}
    text |= {"model_type": "bidir_mistral", "bos_token_id": 1, "eos_token_id": 2}
    latent = asdict(size.latent) | {"latent_dim": size.latent.hidden_dim}
    config = {"model_type": "nvembed", "text_config": text, "latent_attention_config": latent}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    shapes = decoder_shapes(size.decoder, _DECODER) | latent_shapes(size.latent)
    where: dict[str, str] = {}
    shard: dict[str, tuple[int, ...]] = {}
    count = 0
    for name, shape in [*shapes.items(), ("", ())]:
        if shard and (not name or 2 * sum(map(math.prod, shard.values())) > _SHARD_BYTES):
            count += 1
            file = f"model-{count}.safetensors"
            _write_shard(folder / file, shard)
            where |= dict.fromkeys(shard, file)
            shard = {}
        if name:
            shard[name] = shape
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}), "utf-8")
    _write_tokenizer(folder / "tokenizer.json", words(size))


def _write_shard(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [end, end + 2 * math.prod(shape)]}
        end += 2 * math.prod(shape)
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(len(shapes))
    with path.open("wb") as file:
        file.write(len(start).to_bytes(8, "little") + start)
        for name, shape in shapes.items():
            # Deep stacks of Gaussian matrices stay near unit scale, as trained ones do.
            spread = 1.0 if "embed_tokens" in name or "latents" in name else 0.7 * shape[-1] ** -0.5
            centre = 1.0 if name.endswith("norm.weight") or "norm_context.weight" in name else 0.0
            spread = 0.05 if len(shape) == 1 else spread
            values = torch.randn(shape, device=device, dtype=torch.float32).mul_(spread).add_(centre)
            file.write(values.half().cpu().numpy().tobytes())


def words(size: Size) -> list[str]:
    """Made-up words, one for each id of the vocabulary that is free."""
    syllables = [c + v for c in "bcdfghjklmnpqrstvwxz" for v in "aeiou"]
    rng = random.Random(1)
    found: dict[str, None] = {}
    while len(found) < size.decoder.vocab_size - len(SPECIAL) - 1:
        found["".join(rng.choices(syllables, k=rng.randint(2, 4)))] = None
    return list(found)


def _write_tokenizer(path: Path, vocabulary: list[str]) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    ids = SPECIAL | {word: len(SPECIAL) + i for i, word in enumerate([*vocabulary, "."])}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(path))


def texts(size: Size, kind: str, tokens: int, seed: int = 0) -> list[str]:
    """Texts of about `tokens` tokens in all: "chunks", "documents", or a "mix" of both, half of the tokens each."""
    rng = random.Random(f"{kind} {seed}")
    vocabulary = words(size)
    if kind == "mix":
        return texts(size, "chunks", tokens // 2, seed) + texts(size, "documents", tokens // 2, seed)
    found, left = [], tokens
    while left > 0:
        count = rng.randint(*size.chunk) if kind == "chunks" else size.document
        found.append(" ".join(rng.choices(vocabulary, k=count - 2)))  # and a frame of two
        left -= count
    return found


def pairs(size: Size, count: int, references: int) -> list[tuple[str, str]]:
    """Pairs of texts of three quarters of a document, in sentences; every reference serves several pairs."""
    rng = random.Random(3)
    vocabulary = words(size)

    def text() -> str:
        left, sentences = size.document * 3 // 4, []
        while left > 0:
            length = rng.randint(*size.chunk)
            sentences.append(" ".join(rng.choices(vocabulary, k=length)).capitalize() + ".")
            left -= length + 1
        return " ".join(sentences)

    shared = [text() for _ in range(references)]
    return [(shared[i % references], text()) for i in range(count)]


class Original:
    """NV-Embed in PyTorch: token ids in, unit vectors out.

    attention  "eager": scores as a matrix, padded; "sdpa": PyTorch's fused attention, padded; "unpadded": tokens
               one after the other, attention text by text through `varlen_attn` where PyTorch has it
    """

    def __init__(self, folder: Path, size: Size, dtype: torch.dtype, device: str, attention: str) -> None:
        self.size, self.dtype, self.device, self.attention = size, dtype, device, attention
        self.tensors = {name: tensor.to(device, dtype) for name, tensor in _tensors(folder)}
        head = size.decoder.head_dim
        steps = torch.arange(0, head, 2, dtype=torch.float32, device=device) / head
        angles = torch.arange(size.decoder.max_position_embeddings, device=device)[:, None]
        angles = (angles * size.decoder.rope_theta**-steps).repeat(1, 2)
        self.cosines, self.sines = angles.cos().to(dtype), angles.sin().to(dtype)

    def weight(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    @torch.inference_mode()
    def embed(self, rows: list[list[int]], batch_tokens: int = 16384) -> torch.Tensor:
        """float32 `(rows, hidden)` on the CPU; batches of `batch_tokens` padded tokens from sorted rows."""
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
        result = torch.empty(len(rows), self.size.decoder.hidden_size)
        start = 0
        while start < len(order):
            most = max(1, batch_tokens // len(rows[order[start]]))
            part = order[start : start + most]
            result[part] = self._forward([rows[row] for row in part]).float().cpu()
            start += most
        return result

    def _forward(self, rows: list[list[int]]) -> torch.Tensor:
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        width = max(map(len, rows))
        mask = torch.arange(width, device=self.device) < lengths[:, None]
        packed = self.attention == "unpadded"
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self.device)
        positions = torch.arange(width, device=self.device).expand(len(rows), width)
        if packed:
            ids, positions = ids[mask], positions[mask]
        hidden = self._decode(ids, positions, mask, lengths)
        pooled = self._latents(hidden)
        if packed:
            padded = pooled.new_zeros(len(rows), width, pooled.shape[-1])
            padded[mask] = pooled
            pooled = padded
        mean = (pooled.float() * mask[..., None]).sum(1) / lengths[:, None]
        return normalize(mean, dim=-1)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        wide = x.float()
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.size.decoder.rms_norm_eps)
        return self.weight(f"{name}.weight") * (wide * root).to(x.dtype)

    def _decode(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        config = self.size.decoder
        cosines, sines = self.cosines[positions].unsqueeze(-2), self.sines[positions].unsqueeze(-2)
        attend = self._attention(mask, lengths)
        x = self.weight(f"{_DECODER}embed_tokens.weight")[ids]
        for layer in range(config.num_hidden_layers):
            name = f"{_DECODER}layers.{layer}."
            normed = self._norm(x, f"{name}input_layernorm")
            query, key, value = (
                linear(normed, self.weight(f"{name}self_attn.{part}_proj.weight")).unflatten(
                    -1, (-1, config.head_dim)
                )
                for part in "qkv"
            )
            query, key = (_rotate(part, cosines, sines) for part in (query, key))
            seen = attend(query, key, value).flatten(-2)
            x = x + linear(seen, self.weight(f"{name}self_attn.o_proj.weight"))
            normed = self._norm(x, f"{name}post_attention_layernorm")
            gate = silu(linear(normed, self.weight(f"{name}mlp.gate_proj.weight")))
            up = linear(normed, self.weight(f"{name}mlp.up_proj.weight"))
            x = x + linear(gate * up, self.weight(f"{name}mlp.down_proj.weight"))
        return self._norm(x, f"{_DECODER}norm")

    def _attention(
        self, mask: torch.Tensor, lengths: torch.Tensor
    ) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
        """Attention of `(batch, tokens, heads, size)`, or of `(tokens, heads, size)` where nothing is padded."""
        groups = self.size.decoder.num_attention_heads // self.size.decoder.num_key_value_heads
        if self.attention == "unpadded":
            return _unpadded(lengths, groups)
        seen = mask[:, None, None, :]

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            query = query.transpose(1, 2)
            key, value = (part.transpose(1, 2).repeat_interleave(groups, 1) for part in (key, value))
            if self.attention == "sdpa":
                return scaled_dot_product_attention(query, key, value, seen).transpose(1, 2)
            scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
            shares = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
            return (shares @ value).transpose(1, 2)

        return attend

    def _latents(self, hidden: torch.Tensor) -> torch.Tensor:
        cross, gated = (f"{LATENT_PREFIX}cross_attend_blocks.{i}." for i in (0, 1))
        width, heads = hidden.shape[-1], self.size.latent.num_cross_heads

        def norm(x: torch.Tensor, name: str) -> torch.Tensor:
            return layer_norm(x, (width,), self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

        context = norm(self.weight(f"{LATENT_PREFIX}latents"), f"{cross}norm_context")
        query = linear(norm(hidden, f"{cross}norm"), self.weight(f"{cross}fn.to_q.weight"))
        key, value = linear(context, self.weight(f"{cross}fn.to_kv.weight")).chunk(2, -1)
        flat = query.reshape(-1, heads, query.shape[-1] // heads).transpose(0, 1)[None]
        key, value = (part.unflatten(-1, (heads, -1)).transpose(0, 1)[None] for part in (key, value))
        seen = scaled_dot_product_attention(flat, key, value)[0].transpose(0, 1).flatten(1)
        x = linear(seen.reshape(query.shape), self.weight(f"{cross}fn.to_out.weight")) + hidden
        inner = linear(
            norm(x, f"{gated}norm"),
            self.weight(f"{gated}fn.net.0.weight"),
            self.weight(f"{gated}fn.net.0.bias"),
        )
        first, second = inner.chunk(2, -1)
        return (
            linear(
                first * gelu(second),
                self.weight(f"{gated}fn.net.2.weight"),
                self.weight(f"{gated}fn.net.2.bias"),
            )
            + x
        )


def _rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * cosines + torch.cat((-right, left), -1) * sines


def _unpadded(
    lengths: torch.Tensor, groups: int
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    edges = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    longest = int(lengths.max())
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        varlen_attn = None

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
        if varlen_attn is not None and query.is_cuda:
            found: torch.Tensor = varlen_attn(query, key, value, edges, edges, longest, longest)
            return found
        parts = []
        for start, stop in zip(edges.tolist(), edges.tolist()[1:], strict=False):
            one = [part[start:stop].transpose(0, 1)[None] for part in (query, key, value)]
            parts.append(scaled_dot_product_attention(*one)[0].transpose(0, 1))
        return torch.cat(parts)

    return attend


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    from safetensors import safe_open

    for path in sorted(folder.glob("model-*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                yield name, file.get_tensor(name)
