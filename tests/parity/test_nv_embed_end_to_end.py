"""One bundle of NV-Embed and SaT, from text to score, against PyTorch pieces and the reference
package.

The checkpoints are random; they lie outside the repository, in `VCS_RUNTIME_GOLDEN`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import vcs
from safetensors.torch import load_file
from tokenizers import Tokenizer

from support.golden import GOLDEN

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the oracles' imports have to say
    import transformers
    import wtpsplit

from support.stories import story
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import build_nv_embed_bundle
from vcs_export.families.sat import SatOptions, build_sat_bundle
from vcs_export.write import BundleInfo
from vcs_numba import REFERENCE_NAMES, Params
from vcs_runtime import Scorer
from vcs_runtime.bundle.merge import merge
from vcs_runtime.text.cleaning import clean_segments, expand_contractions, strip_punctuation

NV_EMBED, SAT = GOLDEN / "nv-embed-tiny", GOLDEN / "sat-tiny-3l-sm"
THRESHOLD = 0.1
TOLERANCE = 1e-4
EPSILON = 1e-5  # of both layer normalisations

pytestmark = pytest.mark.skipif(
    not NV_EMBED.is_dir(), reason=f"{GOLDEN} is not there: set VCS_RUNTIME_GOLDEN"
)


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorer]:
    folder = tmp_path_factory.mktemp("bundles")
    info = BundleInfo("nv-embed-tiny", "CC0-1.0", "random numbers")
    embedder = build_nv_embed_bundle(
        Build(NV_EMBED, folder / "embedder", info, Quantization("fp32"), weights="copy")
    )
    info = BundleInfo("sat-tiny", "CC0-1.0", "random numbers")
    segmenter = build_sat_bundle(
        Build(SAT, folder / "segmenter", info), SatOptions(threshold=THRESHOLD)
    )
    merge(embedder, segmenter, folder / "both")
    with Scorer.open(folder / "both", device="cpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def embed() -> Callable[[list[str]], torch.Tensor]:
    """NV-Embed in PyTorch: Mistral without its causal mask, then the published latent attention."""
    config = json.loads((NV_EMBED / "config.json").read_text())
    tensors = load_file(NV_EMBED / "model.safetensors")
    mistral = transformers.MistralModel(
        transformers.MistralConfig(
            **{**config["text_config"], "model_type": "mistral", "sliding_window": None},
            attn_implementation="eager",
        )
    ).eval()
    front = "embedding_model."
    mistral.load_state_dict(
        {k.removeprefix(front): v for k, v in tensors.items() if k.startswith(front)}
    )
    tokenizer = Tokenizer.from_file(str(NV_EMBED / "tokenizer.json"))
    latent = {k.removeprefix("latent_attention_model."): v for k, v in tensors.items()}
    heads = config["latent_attention_config"]["num_cross_heads"]

    def one(text: str) -> torch.Tensor:
        ids = [1, *tokenizer.encode(text, add_special_tokens=False).ids, 2]
        everything = torch.zeros(1, 1, len(ids), len(ids))
        hidden = mistral(torch.tensor([ids]), attention_mask=everything).last_hidden_state
        mean = _latent_attention(hidden[0], latent, heads).mean(dim=0)
        return mean / mean.norm()

    def embed(texts: list[str]) -> torch.Tensor:
        with torch.inference_mode():
            return torch.stack([one(text) for text in texts])

    return embed


def _latent_attention(
    x: torch.Tensor, tensors: dict[str, torch.Tensor], heads: int
) -> torch.Tensor:
    functional = torch.nn.functional

    def get(block: int, name: str) -> torch.Tensor:
        return tensors[f"cross_attend_blocks.{block}.{name}"]

    def norm(values: torch.Tensor, block: int, name: str) -> torch.Tensor:
        weight, bias = get(block, f"{name}.weight"), get(block, f"{name}.bias")
        return functional.layer_norm(values, values.shape[-1:], weight, bias, EPSILON)

    def split(values: torch.Tensor) -> torch.Tensor:
        return values.unflatten(1, (heads, -1)).transpose(0, 1)

    queries = norm(x, 0, "norm") @ get(0, "fn.to_q.weight").T
    both = norm(tensors["latents"], 0, "norm_context") @ get(0, "fn.to_kv.weight").T
    keys, values = both.chunk(2, dim=1)
    found = functional.scaled_dot_product_attention(split(queries), split(keys), split(values))
    x = found.transpose(0, 1).flatten(1) @ get(0, "fn.to_out.weight").T + x
    up = norm(x, 1, "norm") @ get(1, "fn.net.0.weight").T + get(1, "fn.net.0.bias")
    value, gate = up.chunk(2, dim=1)
    return (
        (value * functional.gelu(gate)) @ get(1, "fn.net.2.weight").T + get(1, "fn.net.2.bias") + x
    )


@pytest.fixture(scope="module")
def segments() -> Callable[[str], list[str]]:
    """SaT in PyTorch by wtpsplit, on text without punctuation."""
    oracle = wtpsplit.SaT(str(SAT), tokenizer_name_or_path=str(SAT))
    special = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "pad": "<pad>",
        "unk": "<unk>",
    }
    oracle.tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(SAT / "tokenizer.json"),
        mask_token="<mask>",
        **{f"{kind}_token": token for kind, token in special.items()},
    )

    def split(text: str) -> list[str]:
        stripped = strip_punctuation(expand_contractions(text))
        return clean_segments(list(oracle.split(stripped, threshold=THRESHOLD, stride=64)))

    return split


@pytest.mark.parametrize(("chunk_size", "lct"), [(1, 0.0), (3, 0.1)])
def test_scores_are_those_of_the_original_pieces(
    scorer: Scorer, embed: Any, segments: Any, chunk_size: int, lct: float
) -> None:
    largest = 0.0
    for seed in range(3):
        pair = (f"{story(seed)} {story(seed + 50)}", f"{story(seed + 100)} {story(seed + 50)}")
        assert min(len(segments(text)) for text in pair) > 3
        theirs = vcs.compute_vcs_score(
            *pair, segments, embed, embed, chunk_size=chunk_size, lct=lct, return_all_metrics=True
        )
        ours = scorer.score(*pair, chunk_size=chunk_size, params=Params(lct=lct)).to_dict()
        assert {"VCS", "NAS", "LAS"} <= theirs.keys()
        for name, reference_name in REFERENCE_NAMES.items():
            if reference_name in theirs:
                largest = max(largest, abs(ours[name] - theirs[reference_name]))
                assert ours[name] == pytest.approx(theirs[reference_name], abs=TOLERANCE), (
                    seed,
                    name,
                )
    print(f"largest difference {largest:.1e}")


def test_vectors_are_those_of_the_original_pieces(scorer: Scorer, embed: Any) -> None:
    texts = [story(seed) for seed in range(3)]
    assert abs(scorer.embedder.embed(texts) - embed(texts).numpy()).max() < 1e-5
