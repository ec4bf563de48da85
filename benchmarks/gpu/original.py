"""NV-Embed's forward pass in PyTorch: the other side of `measure.py`.

It is written from the published formula (hidden states of a Mistral without causal mask, attention to trained latents,
a gated layer, a mean), not from this repository's graphs: nothing is folded or reordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.nn.functional import gelu, layer_norm, linear, normalize, scaled_dot_product_attention, silu
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
    """NV-Embed in PyTorch: token ids in, unit vectors out.

    attention  "sdpa": PyTorch's fused attention, padded; "unpadded": tokens one after the other, attention text by
               text through `varlen_attn` where PyTorch has it
    compiled   norms, rotation and gate each as one kernel, by `torch.compile`; products and attention are NVIDIA's
    """

    def __init__(
        self,
        folder: Path,
        size: Size,
        dtype: torch.dtype,
        device: str,
        attention: str,
        *,
        compiled: bool = False,
    ) -> None:
        self.size, self.dtype, self.device, self.attention = size, dtype, device, attention
        self.tensors = {name: tensor.to(device, dtype) for name, tensor in _tensors(folder)}
        parts = (_norm, _rotate, _gated)
        self.norm, self.rotate, self.gated = (
            (torch.compile(part, dynamic=True) for part in parts) if compiled else parts
        )
        head = size.decoder.head_dim
        steps = torch.arange(0, head, 2, dtype=torch.float32, device=device) / head
        angles = torch.arange(size.decoder.max_position_embeddings, device=device)[:, None]
        angles = (angles * size.decoder.rope_theta**-steps).repeat(1, 2)
        self.cosines, self.sines = angles.cos().to(dtype), angles.sin().to(dtype)

    def weight(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    @torch.inference_mode()
    def embed(self, rows: list[list[int]], batch_tokens: int = 16384) -> torch.Tensor:
        """float32 `(rows, hidden)` on the CPU; batches of `batch_tokens` tokens, padding included, of sorted rows."""
        order = sorted(range(len(rows)), key=lambda row: -len(rows[row]))
        result = torch.empty(len(rows), self.size.decoder.hidden_size)
        start = 0
        while start < len(order):
            stop, width = start + 1, len(rows[order[start]])
            tokens = width
            while stop < len(order):
                tokens += len(rows[order[stop]]) if self.attention == "unpadded" else width
                if tokens > batch_tokens:
                    break
                stop += 1
            part = order[start:stop]
            result[part] = self._forward([rows[row] for row in part]).float().cpu()
            start = stop
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
            owners = torch.arange(len(rows), device=self.device).repeat_interleave(lengths)
            sums = torch.zeros(len(rows), pooled.shape[-1], device=self.device).index_add(
                0, owners, pooled.float()
            )
        else:
            sums = (pooled.float() * mask[..., None]).sum(1)
        return normalize(sums / lengths[:, None], dim=-1)

    def _decode(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        config = self.size.decoder
        cosines, sines = self.cosines[positions].unsqueeze(-2), self.sines[positions].unsqueeze(-2)
        attend = self._attention(mask, lengths)
        x = self.weight(f"{DECODER}embed_tokens.weight")[ids]

        def norm(x: torch.Tensor, name: str) -> torch.Tensor:
            return self.norm(x, self.weight(f"{name}.weight"), config.rms_norm_eps)

        for layer in range(config.num_hidden_layers):
            name = f"{DECODER}layers.{layer}."
            normed = norm(x, f"{name}input_layernorm")
            query, key, value = (
                linear(normed, self.weight(f"{name}self_attn.{part}_proj.weight")).unflatten(
                    -1, (-1, config.head_dim)
                )
                for part in "qkv"
            )
            query, key = (self.rotate(part, cosines, sines) for part in (query, key))
            seen = attend(query, key, value).flatten(-2)
            x = x + linear(seen, self.weight(f"{name}self_attn.o_proj.weight"))
            normed = norm(x, f"{name}post_attention_layernorm")
            gate, up = (
                linear(normed, self.weight(f"{name}mlp.{part}_proj.weight")) for part in ("gate", "up")
            )
            x = x + linear(self.gated(gate, up), self.weight(f"{name}mlp.down_proj.weight"))
        return norm(x, f"{DECODER}norm")

    def _attention(self, mask: torch.Tensor, lengths: torch.Tensor) -> Attend:
        """Attention of `(batch, tokens, heads, size)`, or of `(tokens, heads, size)` where nothing is padded."""
        groups = self.size.decoder.num_attention_heads // self.size.decoder.num_key_value_heads
        if self.attention == "unpadded":
            return _unpadded(lengths, groups)
        seen = mask[:, None, None, :]

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            query = query.transpose(1, 2)
            key, value = (part.transpose(1, 2).repeat_interleave(groups, 1) for part in (key, value))
            return scaled_dot_product_attention(query, key, value, seen).transpose(1, 2)

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


def _unpadded(lengths: torch.Tensor, groups: int) -> Attend:
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
