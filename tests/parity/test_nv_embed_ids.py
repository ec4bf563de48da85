"""Recorded token ids of NV-Embed-v2's own code (transformers 4.42.4): frame, instruction, what is pooled.

They lie outside the repository with the model's tokenizer, in `VCS_RUNTIME_GOLDEN`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from support.golden import GOLDEN
from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.inference.tokenizer import TextTokenizer, load_tokenizer, own_special_tokens

FOLDER = GOLDEN / "nv-embed-tiny"
INSTRUCTIONS = {
    "none": "",
    "nospace": "Instruct: Describe the scene:",
    "query": "Instruct: Given a question, retrieve passages that answer the question\nQuery: ",
    "sts": "Instruct: Retrieve semantically similar text.\nQuery: ",
}
MAX_TOKENS = 512
SPEC = EmbedderSpec(
    name="nv-embed-tiny", model="", weights=(), tokenizer="", dimension=64, max_tokens=MAX_TOKENS,
    long_text="truncate", precision="fp32", layout="packed", mask_instruction=True,
    special_tokens=((1,), (2,)),
)  # fmt: skip

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there: set VCS_RUNTIME_GOLDEN")


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(load_tokenizer(FOLDER / "tokenizer.json"), SPEC)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(json.loads((FOLDER / "texts.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with np.load(FOLDER / "golden.npz") as recorded:
        return dict(recorded)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_ids_and_instruction_lengths(
    tokenizer: TextTokenizer, texts: list[str], golden: dict[str, Any], name: str
) -> None:
    found = tokenizer.sequences(texts, INSTRUCTIONS[name], MAX_TOKENS)
    wanted = [
        ids[mask == 1].tolist() for ids, mask in zip(golden[f"ids_{name}"], golden[f"am_{name}"], strict=True)
    ]
    assert found.ids == wanted
    assert found.skip == int(golden[f"il_{name}"])


def test_a_truncated_text_loses_its_end_and_keeps_one_place_to_pool(
    tokenizer: TextTokenizer, texts: list[str], golden: dict[str, Any]
) -> None:
    found = tokenizer.sequences([texts[1]], INSTRUCTIONS["sts"], 16)
    assert found.ids == [golden["ids_sts"][1][:16].tolist()]
    assert found.skip == 15


def test_the_tokenizer_alone_would_put_no_end_behind_a_text() -> None:
    loaded = load_tokenizer(FOLDER / "tokenizer.json")
    assert own_special_tokens(loaded) == ((1,), ())
    unframed = TextTokenizer(loaded, replace(SPEC, special_tokens=None))
    assert unframed.sequences(["Rain."], "", MAX_TOKENS).ids[0][-1] != 2
