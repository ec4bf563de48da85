"""The learned segmenter in PyTorch, for training only: low-rank updates and one logit a token.

The weights of the encoder are fixed. Training learns two thin matrices for every linear layer, whose product
is added to its weight (Hu et al. 2021, "LoRA"); all biases and normalisations; a vector for each way to write
a word; and the last layer. These are a megabyte or two, whatever the size of the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vcs_export.checkpoint.encoders import EncoderCheckpoint
from vcs_runtime.bundle.layouts import WORD_SHAPES

DROPOUT = 0.1


class Linear(nn.Module):
    """A linear layer `x (W + up down)^T + b`, where W is fixed."""

    def __init__(self, weight: Tensor, bias: Tensor, rank: int) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.bias = nn.Parameter(bias)
        self.down = nn.Parameter(torch.randn(rank, weight.shape[1]) / math.sqrt(weight.shape[1]))
        self.up = nn.Parameter(torch.zeros(weight.shape[0], rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x `(..., in)`."""
        # The factor 2 lets the update move faster than the rest at one learning rate.
        return F.linear(x, self.weight, self.bias) + 2 * F.linear(F.linear(x, self.down), self.up)


class BoundaryNetwork(nn.Module):
    """The first `layers` layers of a checkpoint, adapted, and a classifier of tokens."""

    def __init__(self, checkpoint: EncoderCheckpoint, layers: int, rank: int) -> None:
        super().__init__()
        self.heads = checkpoint.config.num_attention_heads
        hidden = checkpoint.config.hidden_size

        def tensor(name: str) -> Tensor:
            return torch.from_numpy(checkpoint.tensor(name).copy())

        def linear(name: str) -> Linear:
            return Linear(tensor(f"{name}.weight"), tensor(f"{name}.bias"), rank)

        def norm(name: str) -> nn.LayerNorm:
            result = nn.LayerNorm(hidden, checkpoint.config.layer_norm_eps)
            result.weight.data, result.bias.data = tensor(f"{name}.weight"), tensor(f"{name}.bias")
            return result

        positions = tensor("embeddings.position_embeddings.weight")
        positions += tensor("embeddings.token_type_embeddings.weight")[0]
        self.register_buffer("words", tensor("embeddings.word_embeddings.weight"), persistent=False)
        self.register_buffer("positions", positions, persistent=False)
        self.names: dict[str, str] = {}  # the checkpoint's names by names without dots, which PyTorch forbids
        self.blocks = nn.ModuleDict()

        def add(name: str, module: nn.Module) -> None:
            key = name.replace(".", "/")
            self.names[key] = name
            self.blocks[key] = module

        add("embeddings.LayerNorm", norm("embeddings.LayerNorm"))
        self.prefixes = [f"encoder.layer.{layer}." for layer in range(layers)]
        for prefix in self.prefixes:
            for name in ("attention.self.query", "attention.self.key", "attention.self.value",
                         "attention.output.dense", "intermediate.dense", "output.dense"):  # fmt: skip
                add(prefix + name, linear(prefix + name))
            for name in ("attention.output.LayerNorm", "output.LayerNorm"):
                add(prefix + name, norm(prefix + name))
        self.capitals = nn.Parameter(torch.zeros(WORD_SHAPES, hidden))
        self.classifier = nn.Linear(hidden, 1)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.constant_(self.classifier.bias, -2.5)  # sentence ends are rare

    def forward(self, ids: Tensor, mask: Tensor, capitals: Tensor) -> Tensor:
        """Return logits for ids (int64), mask (bool) and capitals (int64), all `(batch, tokens)`."""
        block = self._block
        x = self.words[ids] + self.positions[: ids.shape[1]]  # type: ignore[index]
        x = self._drop(block("embeddings.LayerNorm", x) + self.capitals[capitals])
        visible = mask[:, None, None, :]
        for prefix in self.prefixes:
            query, key, value = (
                block(f"{prefix}attention.self.{name}", x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for name in ("query", "key", "value")
            )
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
            out = block(f"{prefix}attention.output.dense", context.transpose(1, 2).flatten(2))
            x = block(f"{prefix}attention.output.LayerNorm", x + self._drop(out))
            out = block(f"{prefix}output.dense", F.gelu(block(f"{prefix}intermediate.dense", x)))
            x = block(f"{prefix}output.LayerNorm", x + self._drop(out))
        return self.classifier(x)[..., 0]

    def updates(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the trained tensors in float16, by the names that `families.learned_segmenter` reads."""
        for key, module in self.blocks.items():
            for name, value in module.named_parameters():
                scaled = 2 * value if name == "up" else value
                yield f"{self.names[key]}.{name}", scaled.detach().half()
        yield "capitals.weight", self.capitals.detach().half()
        yield "classifier.weight", self.classifier.weight.detach().half()
        yield "classifier.bias", self.classifier.bias.detach().half()

    def _block(self, name: str, x: Tensor) -> Tensor:
        return self.blocks[name.replace(".", "/")](x)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, DROPOUT, self.training)
