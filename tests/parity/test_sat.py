"""SaT against wtpsplit 2.2.2 (PyTorch and ONNX) and wtpsplit-lite 0.2.0, on random checkpoints.

The two ONNX oracles run the same file as we do, with a float16 mask as they want it: there every
probability is equal to the bit. No network: the oracles get the tokenizer as a local folder.
"""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the oracles' imports have to say
    import transformers
    import wtpsplit
    import wtpsplit_lite

from support.checkpoints.sat import WORDS
from support.hub_sat import Substitute, write_hub_model
from support.tiny_sat import build_tiny_sat_bundle
from vcs_runtime import Segmenter
from vcs_runtime.segmentation.segmenter import BoundaryModel

TOLERANCE = 2e-3
CLEAR = 0.005
THRESHOLDS = (0.025, 0.25, 0.5)
CHECKPOINTS = {
    "1-layer-sm": {"layers": 1, "seed": 1},
    "3-layers-sm": {"layers": 3, "seed": 2},
    "3-layers-lookahead": {"layers": 3, "lookahead": 48, "seed": 3, "num_labels": 111},
    "2-layers-short-lookahead": {"layers": 2, "lookahead": 9, "seed": 4},
}
ODD = [
    "x",
    " x ",
    "a\0b",
    "\0",
    "<s>",
    "</s><s>",
    "<s> a </s> b<pad>c <mask> d <unk>",
    "\xad",
    "\U000e0001",
    "👩‍👩‍👧 walks 🇫🇷 👍🏽",
    "他走进房间。坐下来，然后开始读信",
    "دخل الرجل إلى البيت ثم جلس",
    "한국어 문장입니다 日本語の文",
    "a\r\nb\x0bc\u2028d\u2029e\x85f",
    "\n\na man\n\n\nwalks\n",
    "e\u0301x ﬁne ① Ａ ｆｕｌｌ",
    "\u2581 x \u2581",
    "\ufeffa man",
    "\u200ba\u200b b\u200b",
    "z" * 700,
    "tab\tand  many   blanks    ",
    'He said: "No!" (twice).',
    "a \u2581b\u2581",
]
EMPTY = ["\u200b\u200b", "\ufffd", "\u200b \u200b"]  # tokenised to nothing: oracles crash
_ALPHABETS = (
    WORDS,
    "aAbBcC .,!?",
    "的一是不了人我在有他这。，",
    "ابتثجحدرسعفقكلمنهوي ،؟",
    "😀🎉👍🏽‍👩🇫🇷 ",
    "äöüßéèñç ",
    "\n\r\t \x0b\u2028 ab",
    "\u200b\u200d\ufeff\0 ab",
    ["<s>", "</s>", "<pad>", "<mask>", " ", "a", "<unk>"],
    "0123456789.,:-",
)


def drawn(count: int) -> list[str]:
    """Texts of 1 to some hundred pieces, each from one to three alphabets."""
    rng = random.Random(20)
    texts = []
    for _ in range(count):
        alphabets = rng.choices(_ALPHABETS, k=rng.randint(1, 3))
        size = rng.choice((3, 10, 40, 120, 120, 400))
        pieces = [rng.choice(rng.choice(alphabets)) for _ in range(rng.randint(1, size))]
        texts.append("".join(f"{piece} " if piece in WORDS else piece for piece in pieces))
    return texts


def words(count: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


TEXTS = list(dict.fromkeys([*ODD, *drawn(300), words(380, 1), words(700, 2), words(1300, 3)]))


@dataclass
class Case:
    """A checkpoint in everybody's hands. `hub`: ours on the file that the ONNX oracles run."""

    ours: Segmenter
    hub: Segmenter
    oracles: dict[str, Any]
    known: dict[tuple[str, str], npt.NDArray[np.float32]] = field(default_factory=dict)

    def probabilities(self, name: str, text: str) -> npt.NDArray[np.float32]:
        """What an oracle gives for a text, which it computes once: most of the time is its."""
        if (name, text) not in self.known:
            self.known[name, text] = probabilities(self.oracles[name], text)
        return self.known[name, text]

    def split(self, name: str, text: str, threshold: float) -> list[str]:
        """How an oracle splits a text by the probabilities that it gave before."""
        given = self.probabilities(name, text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                self.oracles[name], "predict_proba", lambda texts, **options: iter([given])
            )
            return split(self.oracles[name], text, threshold)


@pytest.fixture(scope="module", params=CHECKPOINTS)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    folder = tmp_path_factory.mktemp(request.param)
    bundle = build_tiny_sat_bundle(folder, **CHECKPOINTS[request.param])  # type: ignore[arg-type]
    checkpoint = folder / "checkpoint"
    # The oracles keep the truncation that a tokenizer.json may have; ours has none.
    shutil.copy(bundle / "segmenter/tokenizer.json", checkpoint / "tokenizer.json")
    hub = write_hub_model(bundle / "segmenter/model.onnx", checkpoint / "model_optimized.onnx")
    at = str(checkpoint)
    providers = ["CPUExecutionProvider"]
    oracles = {
        "torch": wtpsplit.SaT(at, tokenizer_name_or_path=at),
        "onnx": wtpsplit.SaT(at, tokenizer_name_or_path=at, ort_providers=providers),
        "lite": wtpsplit_lite.SaT(at, tokenizer_name_or_path=at, ort_providers=providers),
    }
    # transformers would build a tokenizer of its own from the vocabulary, with XLM-R's normaliser.
    special = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "pad": "<pad>",
        "unk": "<unk>",
    }
    for name in ("torch", "onnx"):
        oracles[name].tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(checkpoint / "tokenizer.json"),
            mask_token="<mask>",
            **{f"{kind}_token": token for kind, token in special.items()},
        )
    with (
        Segmenter.open(bundle, device="cpu") as ours,
        Segmenter.open(Substitute.of(bundle, model=hub), device="cpu") as hub_segmenter,
    ):
        yield Case(ours, hub_segmenter, oracles)


def tokenised(segmenter: Segmenter, texts: list[str]) -> list[str]:
    """The texts that give at least one token: the others crash the oracles."""
    model = segmenter._opened
    assert isinstance(model, BoundaryModel)
    return [
        text
        for text in texts
        if model._encoder.tokenizer.encode(text, add_special_tokens=False).ids
    ]


def probabilities(oracle: Any, text: str) -> npt.NDArray[np.float32]:
    """One text at a time: padding to the longest would move the oracles' last bits."""
    return np.asarray(oracle.predict_proba(text, stride=64))


def split(oracle: Any, text: str, threshold: float) -> list[str]:
    # wtpsplit-lite has the opposite default, and cuts again at a final newline.
    options = {"treat_newline_as_space": True} if isinstance(oracle, wtpsplit_lite.SaT) else {}
    return list(oracle.split(text, threshold=threshold, stride=64, **options))


def test_the_texts_are_hundreds(case: Case) -> None:
    assert len(tokenised(case.ours, TEXTS)) >= 300


def test_token_ids_are_those_of_the_oracles(case: Case) -> None:
    model = case.ours._opened
    assert model is not None
    for text in TEXTS:
        encoding = model._encoder.tokenizer.encode(text, add_special_tokens=False)
        theirs = case.oracles["torch"].tokenizer(
            text, return_offsets_mapping=True, add_special_tokens=False
        )
        assert encoding.ids == theirs["input_ids"]
        assert encoding.offsets == theirs["offset_mapping"]


@pytest.mark.parametrize("name", ["onnx", "lite"])
def test_probabilities_equal_those_of_the_onnx_oracles_to_the_bit(case: Case, name: str) -> None:
    texts = tokenised(case.hub, TEXTS)
    for text, values in zip(texts, case.hub.boundary_probabilities(texts), strict=True):
        np.testing.assert_array_equal(values, case.probabilities(name, text), strict=True)
    print(f"{name}: {len(texts)} texts equal to the bit")


def test_splits_equal_those_of_the_onnx_oracles(case: Case) -> None:
    texts = tokenised(case.hub, TEXTS)
    for threshold in THRESHOLDS:
        for text, segments in zip(texts, case.hub.split(texts, threshold), strict=True):
            assert segments == case.split("onnx", text, threshold)
            if "\n" not in text:
                assert segments == case.split("lite", text, threshold)


def test_the_oracles_split_by_the_probabilities_that_they_give(case: Case) -> None:
    """A case computes splits from probabilities, in place of asking the oracle twice."""
    for name, oracle in case.oracles.items():
        for text in tokenised(case.hub, TEXTS)[::40]:
            assert case.split(name, text, 0.25) == split(oracle, text, 0.25)


def test_probabilities_and_splits_against_pytorch(case: Case, record_property: Any) -> None:
    texts = tokenised(case.ours, TEXTS)
    largest, compared = 0.0, 0
    for text, values in zip(texts, case.ours.boundary_probabilities(texts), strict=True):
        theirs = case.probabilities("torch", text)
        largest = max(largest, float(np.abs(values - theirs).max()))
        for threshold in THRESHOLDS:
            if np.abs(theirs - threshold).min() > CLEAR / 2:
                compared += 1
                assert case.ours.split([text], threshold) == [case.split("torch", text, threshold)]
    record_property("largest_difference", largest)
    print(f"torch: {len(texts)} texts within {largest:.1e}, {compared} splits equal")
    assert largest <= TOLERANCE
    assert compared > 500


def test_in_a_list_the_oracles_pad_and_only_rounding_differs(case: Case) -> None:
    texts = tokenised(case.hub, TEXTS)
    theirs = list(case.oracles["onnx"].predict_proba(texts, stride=64))
    ours = case.hub.boundary_probabilities(texts)
    differences = [float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True)]
    print(
        f"{sum(d > 0 for d in differences)} of {len(texts)} differ, by at most"
        f" {max(differences):.1e}"
    )
    assert max(differences) <= TOLERANCE


def test_100_000_characters(case: Case) -> None:
    text = words(19_000, 5)[:100_000]
    assert len(text) > 90_000
    [ours] = case.hub.boundary_probabilities([text])
    np.testing.assert_array_equal(ours, probabilities(case.oracles["lite"], text))
    np.testing.assert_array_equal(ours, probabilities(case.oracles["onnx"], text))


def test_blank_texts_are_as_the_oracles_have_them(case: Case) -> None:
    for text in ("", " ", "\n", " \n\t", "\n\n"):
        assert case.ours.split([text], 0.25) == [split(case.oracles["torch"], text, 0.25)]


@pytest.mark.parametrize("text", EMPTY)
def test_where_the_oracles_crash_the_text_is_one_segment(case: Case, text: str) -> None:
    with pytest.raises((AssertionError, IndexError, ValueError)):
        split(case.oracles["torch"], text, 0.25)
    assert case.ours.split([text, "a man"], 0.25)[0] == [text]
    assert not case.ours.boundary_probabilities([text])[0].any()


def test_the_checkpoints_config_is_what_the_oracles_read(case: Case) -> None:
    """A guard: the lookahead really limits what PyTorch sees."""
    config = json.loads(
        (Path(case.oracles["torch"].model_name_or_model) / "config.json").read_text()
    )
    assert case.oracles["torch"].model.model.config.lookahead == config["lookahead"]
