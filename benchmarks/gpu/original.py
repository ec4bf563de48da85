"""NV-Embed's forward pass in PyTorch, with which `measure.py` compares ours.

It follows the published formula (hidden states of a Mistral without causal mask, attention to
trained latents, a gated layer, a mean) and not this repository's graphs. Nothing is folded or
reordered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open
from torch.nn.functional import (
    gelu,
    layer_norm,
    linear,
    normalize,
    scaled_dot_product_attention,
    silu,
)
from weights import DECODER, Size

from vcs_export.checkpoint.nv_embed import LATENT_PREFIX

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype)


def _rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * cosines + torch.cat((-right, left), -1) * sines


def _gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return silu(gate) * up


class Original:
    """NV-Embed in PyTorch, without padding: token ids in, unit vectors out.

    compiled   norms, rotation and gate each as one kernel, by `torch.compile`; products and attention are NVIDIA's
    """

    def __init__(
        self, folder: Path, size: Size, dtype: torch.dtype, device: str, *, compiled: bool = False
    ) -> None:
        self.size, self.device = size, device
        self.tensors: dict[str, torch.Tensor] = {}
        for path in sorted(folder.glob("model-*.safetensors")):
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118
                    self.tensors[name] = file.get_tensor(name).to(device, dtype)
        parts = (_norm, _rotate, _gated)
        self.norm, self.rotate, self.gated = (
            (torch.compile(part, dynamic=True) for part in parts) if compiled else parts
        )
        head = size.decoder.head_dim
        steps = torch.arange(0, head, 2, dtype=torch.float32, device=device) / head
        angles = torch.arange(size.decoder.max_position_embeddings, device=device)[:, None]
        angles = (angles * size.decoder.rope_theta**-steps).repeat(1, 2)
        self.cosines, self.sines = angles.cos().to(dtype), angles.sin().to(dtype)

    @torch.inference_mode()
    def embed(self, rows: list[list[int]], batch_tokens: int = 16384) -> torch.Tensor:
        """float32 `(rows, hidden)` on the CPU; batches of at most `batch_tokens` tokens, of sorted
        rows."""
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
        result = torch.empty(len(rows), self.size.decoder.hidden_size)
        start = 0
        while start < len(order):
            stop, tokens = start + 1, len(rows[order[start]])
            while stop < len(order) and (tokens := tokens + len(rows[order[stop]])) <= batch_tokens:
                stop += 1
            part = order[start:stop]
            result[part] = self._forward([rows[row] for row in part]).float().cpu()
            start = stop
        return result

    def _forward(self, rows: list[list[int]]) -> torch.Tensor:
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        ids = torch.tensor([token for row in rows for token in row], device=self.device)
        positions = torch.cat([torch.arange(len(row), device=self.device) for row in rows])
        pooled = self._latents(self._decode(ids, positions, lengths))
        owners = torch.arange(len(rows), device=self.device).repeat_interleave(lengths)
        sums = torch.zeros(len(rows), pooled.shape[-1], device=self.device)
        return normalize(sums.index_add(0, owners, pooled.float()) / lengths[:, None], dim=-1)

    def _decode(
        self, ids: torch.Tensor, positions: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        config = self.size.decoder
        cosines, sines = self.cosines[positions].unsqueeze(-2), self.sines[positions].unsqueeze(-2)
        attend = _attention(lengths, config.num_attention_heads // config.num_key_value_heads)
        x = self.tensors[f"{DECODER}embed_tokens.weight"][ids]

        def norm(x: torch.Tensor, name: str) -> torch.Tensor:
            return self.norm(x, self.tensors[f"{name}.weight"], config.rms_norm_eps)

        for layer in range(config.num_hidden_layers):
            name = f"{DECODER}layers.{layer}."
            normed = norm(x, f"{name}input_layernorm")
            parts = (
                linear(normed, self.tensors[f"{name}self_attn.{part}_proj.weight"])
                for part in "qkv"
            )
            query, key, value = (part.unflatten(-1, (-1, config.head_dim)) for part in parts)
            query, key = (self.rotate(part, cosines, sines) for part in (query, key))
            seen = attend(query, key, value).flatten(-2)
            x = x + linear(seen, self.tensors[f"{name}self_attn.o_proj.weight"])
            normed = norm(x, f"{name}post_attention_layernorm")
            gate, up = (
                linear(normed, self.tensors[f"{name}mlp.{part}_proj.weight"])
                for part in ("gate", "up")
            )
            x = x + linear(self.gated(gate, up), self.tensors[f"{name}mlp.down_proj.weight"])
        return norm(x, f"{DECODER}norm")

    def _latents(self, hidden: torch.Tensor) -> torch.Tensor:
        cross, block = (f"{LATENT_PREFIX}cross_attend_blocks.{i}." for i in (0, 1))
        width, heads = hidden.shape[-1], self.size.latent.num_cross_heads

        def norm(x: torch.Tensor, name: str) -> torch.Tensor:
            return layer_norm(
                x, (width,), self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
            )

        context = norm(self.tensors[f"{LATENT_PREFIX}latents"], f"{cross}norm_context")
        query = linear(norm(hidden, f"{cross}norm"), self.tensors[f"{cross}fn.to_q.weight"])
        key, value = linear(context, self.tensors[f"{cross}fn.to_kv.weight"]).chunk(2, -1)
        flat = query.reshape(-1, heads, query.shape[-1] // heads).transpose(0, 1)[None]
        key, value = (
            part.unflatten(-1, (heads, -1)).transpose(0, 1)[None] for part in (key, value)
        )
        seen = scaled_dot_product_attention(flat, key, value)[0].transpose(0, 1).flatten(1)
        x = linear(seen.reshape(query.shape), self.tensors[f"{cross}fn.to_out.weight"]) + hidden
        gated = f"{block}fn.net."
        inner = linear(
            norm(x, f"{block}norm"),
            self.tensors[f"{gated}0.weight"],
            self.tensors[f"{gated}0.bias"],
        )
        first, second = inner.chunk(2, -1)
        return (
            linear(
                first * gelu(second),
                self.tensors[f"{gated}2.weight"],
                self.tensors[f"{gated}2.bias"],
            )
            + x
        )


def _attention(lengths: torch.Tensor, groups: int) -> Attend:
    """Return attention of `(tokens, heads, size)` within each text, by `varlen_attn` in half
    precision where it is."""
    edges = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    longest = int(lengths.max())
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        varlen_attn = None

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
        if varlen_attn is not None and query.is_cuda and query.dtype != torch.float32:
            found: torch.Tensor = varlen_attn(query, key, value, edges, edges, longest, longest)
            return found
        parts = []
        for start, stop in zip(edges.tolist(), edges.tolist()[1:], strict=False):
            one = [part[start:stop].transpose(0, 1)[None] for part in (query, key, value)]
            parts.append(scaled_dot_product_attention(*one)[0].transpose(0, 1))
        return torch.cat(parts)

    return attend
