"""From the folder of a sentence encoder to a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vcs_export.checkpoint.bert import open_bert
from vcs_export.checkpoint.recipe import BoundaryRecipe
from vcs_export.checkpoint.transformer import TOKENIZER, bare_tokenizer
from vcs_export.families.learned_segmenter import add_boundary
from vcs_export.graph.bert import write_bert
from vcs_export.write import BundleWriter
from vcs_runtime.bundle.manifest import EmbedderSpec, LongTextPolicy, RulesSpec, SegmenterSpec

MODEL_FILE = "embedder/model.onnx"
WEIGHTS_FILE = "embedder/model.onnx.data"
TOKENIZER_FILE = "embedder/tokenizer.json"


def build_encoder_bundle(
    checkpoint: Path,
    target: Path,
    *,
    name: str,
    licence: str,
    source: str,
    rules: RulesSpec | None = None,
    boundary: BoundaryRecipe | None = None,
    long_text: LongTextPolicy = "window_mean",
    extra_files: Mapping[str, bytes] | None = None,
    replace: bool = False,
) -> Path:
    """Build the bundle `target` from the sentence-transformers BERT folder `checkpoint`; returns `target`.

    name         of the bundle and of its embedder, as signatures print it
    licence      SPDX identifier of the weights;  source  where they came from, in words
    rules        what cuts texts with sentence punctuation;  boundary  the model that cuts texts without
    long_text    what the runtime does with texts beyond the model's window (`EmbedderSpec`)
    extra_files  further files by their path in the bundle: licence texts, notices
    replace      replace a bundle that is there

    The bundle's bytes follow from the arguments alone.
    Raises CheckpointError, BundleExistsError, ExportError.
    """
    tokenizer = bare_tokenizer(checkpoint / TOKENIZER)
    with open_bert(checkpoint) as opened, BundleWriter(target, replace) as bundle:
        bundle.file(TOKENIZER_FILE).write_bytes(tokenizer)
        for path, content in (extra_files or {}).items():
            bundle.file(path).write_bytes(content)
        write_bert(opened, bundle.file(MODEL_FILE), bundle.file(WEIGHTS_FILE))
        model = add_boundary(bundle, opened, boundary, TOKENIZER_FILE) if boundary else None
        return bundle.commit(
            name=name,
            licence=licence,
            source=source,
            embedder=EmbedderSpec(
                name=name,
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
