"""BERTScore of a random RoBERTa against its authors' package: layers, idf weights, baselines, long
texts.

The encoder has RoBERTa-base's own structure: 12 layers of 768 numbers, 12 heads. Only its
vocabulary is small.
"""

from __future__ import annotations

import json
from pathlib import Path

import bert_score
import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from support.checkpoints.tokenizers import WORDS
from support.tiny_tokenizers import roberta_tokenizer
from vcs_experiments.metrics.bertscore import BERTScore, TokenStates, read_baseline
from vcs_experiments.metrics.corpus import Corpus
from vcs_export.families.build import Build, EmbedderOptions
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.device import choose_device

TOLERANCE = 1e-5
TOKENS = 32  # the window of the tokenizer; the last text is longer
BASELINE = Path(bert_score.__file__).parent / "rescale_baseline/en/roberta-base.tsv"
TEXTS = (
    "the man opens the red door.",
    "  a young girl, slowly, cuts bread in the kitchen ",
    "the man the man the man",
    "Ein Café: straße? 门!",
    "x",
    " ".join((WORDS * 3)[:150]),
)
ITEMS = [
    (["the woman closes the blue door.", "a man opens a door."], TEXTS[0]),
    ([TEXTS[4], "she cuts bread"], TEXTS[1]),
    ([TEXTS[0], TEXTS[2]], TEXTS[2]),
    ([TEXTS[1], TEXTS[5]], TEXTS[3]),
    ([TEXTS[5], "the dog runs near the river"], TEXTS[5] + " and the dog"),
    (["x x", "y"], TEXTS[4]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain folder of transformers, as roberta-base has it, without modules."""
    folder = tmp_path_factory.mktemp("roberta")
    tokenizer = roberta_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    # transformers 4 put a space before a text on bert-score's demand, transformers 5 by this
    # setting alone.
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "RobertaTokenizer",
                "model_max_length": TOKENS,
                "add_prefix_space": True,
            }
        )
    )
    torch.manual_seed(3)
    config = transformers.RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=514,
        type_vocab_size=1,
        pad_token_id=1,
        layer_norm_eps=1e-5,
    )
    assert config.num_hidden_layers == 12
    assert config.hidden_size == 768
    assert config.num_attention_heads == 12
    transformers.RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    options = EmbedderOptions(long_text="truncate_text", pooling="mean")
    info = BundleInfo("roberta", "CC0-1.0", "random")
    return build_sentence_bundle(Build(folder, folder / "bundle", info), options)


def theirs(folder: Path, layer: int, idf: bool, baseline: bool) -> NDArray[np.float64]:
    scores = bert_score.score(
        [generated for _, generated in ITEMS],
        [references for references, _ in ITEMS],
        model_type=str(folder),
        num_layers=layer,
        idf=idf,
        nthreads=0,
        device="cpu",
        batch_size=1,
        lang="en",
        rescale_with_baseline=baseline,
        baseline_path=str(BASELINE) if baseline else None,
    )
    return np.array([part.tolist() for part in scores]).T


# Of bert-score.
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
@pytest.mark.parametrize(
    ("layer", "idf", "baseline"),
    [(10, False, False), (10, True, False), (10, True, True), (0, True, False), (12, False, True)],
)
def test_layers_idf_and_baselines_are_those_of_bert_score(
    folder: Path, bundle: Path, layer: int, idf: bool, baseline: bool
) -> None:
    states = TokenStates(open_bundle(bundle), choose_device("cpu"), 1, layer)
    assert len(states.token_ids(TEXTS[5])) == TOKENS  # cut, as bert-score cuts
    metric = BERTScore(
        states,
        Corpus.of(references for references, _ in ITEMS) if idf else None,
        read_baseline(BASELINE, layer) if baseline else None,
    )
    ours = [
        [max(single[column] for single in scores) for column in scores[0]]
        for references, generated in ITEMS
        if (scores := metric.scores(references, generated, None))
    ]
    wanted = theirs(folder, layer, idf, baseline)
    assert wanted.std(axis=0).min() > 0.01
    difference = np.abs(np.array(ours) - wanted).max()
    print(f"layer {layer}, idf {idf}, baseline {baseline}: {difference:.1e}")
    assert difference < TOLERANCE
