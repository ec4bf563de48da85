"""From the folder of a sentence encoder to the bundle of the embedded default."""

from __future__ import annotations

from pathlib import Path

from vcs_export.checkpoint.bert import open_bert
from vcs_export.checkpoint.recipe import SegmenterRecipe
from vcs_export.checkpoint.tokenizer_file import bare_tokenizer
from vcs_export.checkpoint.transformer import TOKENIZER
from vcs_export.families.learned_segmenter import add_learned_segmenter
from vcs_export.graph.bert import write_bert
from vcs_export.write import BundleInfo, BundleWriter
from vcs_runtime.bundle.manifest import EmbedderSpec, LongTextPolicy, RulesSpec, SegmenterSpec

MODEL_FILE = "embedder/model.onnx"
WEIGHTS_FILE = "embedder/model.onnx.data"
TOKENIZER_FILE = "embedder/tokenizer.json"


def build_bert_bundle(
    checkpoint: Path,
    target: Path,
    info: BundleInfo,
    *,
    rules: RulesSpec | None = None,
    boundary: SegmenterRecipe | None = None,
    long_text: LongTextPolicy = "window_mean",
) -> Path:
    """Build a bundle from the folder of a sentence-transformers BERT.

    The bundle's bytes follow from the arguments alone.
    """
    tokenizer = bare_tokenizer(checkpoint / TOKENIZER)
    with open_bert(checkpoint) as opened, BundleWriter(target, info) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(tokenizer)
        stored = write_bert(opened, bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE))
        model = add_learned_segmenter(bundle, opened, boundary, TOKENIZER_FILE, stored) if boundary else None
        return bundle.commit(
            embedder=EmbedderSpec(
                name=info.name,
                model=MODEL_FILE,
                weights=(WEIGHTS_FILE,),
                tokenizer=TOKENIZER_FILE,
                dimension=opened.config.hidden_size,
                max_tokens=opened.config.max_seq_length,
                long_text=long_text,
                precision="fp32",
            ),
            segmenter=SegmenterSpec(rules, model) if rules or model else None,
        )
