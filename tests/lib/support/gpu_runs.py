"""What the GPU tests do in a process with the stand-ins, and what they read from its log."""

from __future__ import annotations

import math
import random
import re

from support.cuda_stand_ins import Kernel, Log, Product, WatchedSession, mark, watch_sessions
from support.gpu_bundles import texts_of

ATTENTION = re.compile(r"flash_fwd|fmha|attention_kernel|UnfusedSoftmax|softmax_warp|BiasSoftmax")
# Part of a product whose weights are quantised.
PRODUCT = re.compile(r"Dequantize|MatMulNBits|fpA_intB|gemm", re.IGNORECASE)


def embed(
    bundle: str,
    shapes: dict[str, list[int]],
    gpu_memory_gb: float | None = None,
    device: str = "cuda:0",
) -> list[WatchedSession]:
    """Embed texts of the lengths of each shape, each shape in a section of the log."""
    from vcs_runtime import BundleError, Embedder

    sessions = watch_sessions()
    with Embedder.open(bundle, device, gpu_memory_gb=gpu_memory_gb) as embedder:
        for name, lengths in shapes.items():
            texts = texts_of(lengths)
            mark(name)
            try:
                embedder.embed(texts)
            except BundleError as error:
                # All has run by then; a stand-in's vectors are zeros.
                if "add up to 0" not in str(error):
                    raise
        mark("closed")
    return sessions


def segment(bundle: str, texts: list[str]) -> list[WatchedSession]:
    """Split texts with the learned segmenter of a bundle."""
    from vcs_runtime import Segmenter

    sessions = watch_sessions()
    with Segmenter.open(bundle, "cuda:0", use="learned") as segmenter:
        mark("texts")
        segmenter.split(texts)
        mark("closed")
    return sessions


def attention(log: Log, layers: int) -> list[str]:
    """Return the kernel of each layer's attention: the first `layers` of a run."""
    return [kernel.name for kernel in log.kernels if ATTENTION.search(kernel.name)][:layers]


def between_products(log: Log) -> list[str]:
    """Return the kernels of the second layer beside its products and its attention."""
    places = [i for i, item in enumerate(log.launches) if _is_kernel(item, ATTENTION)]
    layer = log.launches[places[1] + 1 : places[2]]
    return [
        item.name for item in layer if isinstance(item, Kernel) and not PRODUCT.search(item.name)
    ]


def places(log: Log, layers: int) -> int:
    """Return how many places a rotation of the log's runs turns, padding included."""
    grids = [kernel.grid for kernel in log.kernels if kernel.name.startswith("RotaryEmbedding")]
    return sum(x * y for x, y, _ in grids) // (2 * layers)


def _is_kernel(item: Kernel | Product, names: re.Pattern[str]) -> bool:
    return isinstance(item, Kernel) and names.search(item.name) is not None


def embed_blocks(bundle: str, blocks: int, gpu_memory_gb: float | None = None) -> list[int]:
    """Embed blocks of 88 texts of about 600 tokens and their sentences, each block in a section of
    the log.

    Return the most tokens of a run of each block.
    """
    from vcs_runtime import Embedder

    sessions, rng, most = watch_sessions(), random.Random(1), []
    with Embedder.open(bundle, "cuda:0", gpu_memory_gb=gpu_memory_gb) as embedder:
        [session] = sessions
        for block in range(blocks):
            lengths = [rng.randint(500, 700) for _ in range(88)]
            lengths += [max(8, int(rng.gauss(26, 10))) for _ in range(88 * 24)]
            texts = texts_of(lengths)
            mark(f"block {block}")
            start = len(session.runs)
            embedder.embed(texts)
            most.append(max(math.prod(run["input_ids"]) for run in session.runs[start:]))
        mark("closed")
    return most
