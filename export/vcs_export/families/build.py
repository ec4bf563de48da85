"""The description of a build, passed as one object from a command to the bundle writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from vcs_export.checkpoint.recipe import PublishedRecipe
from vcs_export.checkpoint.sentence_folder import (
    MODULES,
    SentenceFolder,
    check_width,
    longest_input,
    read_prompt,
    read_sentence_folder,
)
from vcs_export.checks.proofs import with_proofs
from vcs_export.checks.quantization_error import Report
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.graph.decoder_model import PRECISIONS
from vcs_export.write import BundleInfo, Progress, licence_file, silent
from vcs_runtime.bundle.manifest import EXPORTED_POLICIES, LongTextPolicy, Manifest, RulesSpec
from vcs_runtime.bundle.opening import Bundle

MODEL_FILE = "embedder/model.onnx"
CUDA_FILE = "embedder/model.cuda.onnx"
WEIGHTS_FILE = "embedder/model.onnx.data"
TOKENIZER_FILE = "embedder/tokenizer.json"
# In the embedder's folder, because a graph may only refer to files in its folder, and this graph
# shares the embedder's weights.
SEGMENTER_FILES = "embedder/segmenter.onnx", "embedder/segmenter.onnx.data"

WEIGHTS_MODES = ("link", "copy")


def check_choice(argument: str, value: str, choices: Iterable[str]) -> None:
    """Raise ExportError, which names the argument, unless a value is one of its choices."""
    if value not in choices:
        raise ExportError(f"{argument} must be one of {', '.join(choices)}, not {value!r}")


@dataclass(frozen=True)
class Quantization:
    """Precision of the matrices, and how the quantisation error is measured and limited."""

    precision: str | None = None  # None: the family's default
    texts: Sequence[str] = ()  # on which the error is measured; empty: the demo's texts
    least_cosine: float | None = None  # None: the precision's limit
    most_change: float | None = None  # None: the precision's limit
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.precision is not None:
            check_choice("precision", self.precision, PRECISIONS)
        if self.least_cosine is not None and not -1 <= self.least_cosine <= 1:
            raise ExportError(f"least_cosine must be -1 to 1, not {self.least_cosine}")
        if self.most_change is not None and not 0 <= self.most_change <= 1:
            raise ExportError(f"most_change must be 0 to 1, not {self.most_change}")


@dataclass(frozen=True)
class Build:
    """The description of a build: checkpoint, bundle and precision.

    Families add further options.
    """

    checkpoint: Path
    target: Path
    info: BundleInfo
    quantization: Quantization = field(default_factory=Quantization)
    rules: RulesSpec | None = None  # of the bundle's segmenter
    # The fields from here on are for decoders.
    weights: str = "link"
    own_weights: bool = False  # the files need not be the published ones
    # Published hashes by file name; None: nothing is compared.
    sha256: Mapping[str, str] | None = None
    progress: Progress = silent
    report: Report = silent

    def __post_init__(self) -> None:
        check_choice("weights", self.weights, WEIGHTS_MODES)

    def prove(self, bundle: Bundle) -> Manifest:
        """Return the manifest of the written bundle with the proofs of its models."""
        return with_proofs(bundle, self.report)

    def of_recipe(self, recipe: PublishedRecipe, published: bool = True) -> Build:
        """Return the build with the recipe's licence, name and source.

        Unless the weights are the published ones, name and source stay the folder's.
        """
        files = licence_file(recipe.licence, recipe.legal_text)
        info = replace(self.info, licence=recipe.licence, extra_files=files)
        if published:
            info = replace(info, name=recipe.name, source=recipe.source)
        elif info.name.lower() == recipe.name.lower():
            # Signatures must not show the name of the published model.
            info = replace(info, name=f"{info.name}-own")
        return replace(self, info=info)


_FEWEST_TOKENS = 3


@dataclass(frozen=True, kw_only=True)
class EmbedderOptions:
    """The caller's choices. None takes the value of the folder or of a recipe."""

    prompt: str | None = None  # name of the folder's prompt before every text
    instruction: str | None = None  # in place of a prompt
    dimension: int | None = None  # length of vectors
    max_tokens: int | None = None  # special tokens included
    pooling: str | None = None  # as sentence-transformers names it
    long_text: LongTextPolicy = "window_mean"

    def __post_init__(self) -> None:
        if self.prompt is not None and self.instruction is not None:
            raise ExportError("prompt and instruction cannot be combined")
        if self.long_text not in EXPORTED_POLICIES:
            raise ExportError(
                f"long_text must be one of {', '.join(EXPORTED_POLICIES)}, not {self.long_text!r}"
            )

    def with_instruction(self, instruction: str) -> Self:
        """Return the options with an instruction, unless the caller has named words or a prompt."""
        if self.prompt is not None or self.instruction is not None:
            return self
        return replace(self, instruction=instruction)

    def sentence(self, folder: Path, hidden: int, pooling: str | None = None) -> SentenceFolder:
        """Read a sentence-transformers folder, or a plain transformer of width `hidden`.

        `pooling` is the one in the model's code. Raises CheckpointError if the poolings contradict
        each other.
        """
        pooling = pooling or self.pooling
        if (folder / MODULES).exists():
            sentence = read_sentence_folder(folder, self.prompt, self.instruction)
            check_width(folder, sentence, hidden)
        elif pooling is None:
            raise CheckpointError(
                f"{folder}: there is no {MODULES} with the pooling: give --pooling"
            )
        else:
            sentence = self._plain(folder, hidden, pooling)
        for wanted in (pooling, self.pooling):
            if wanted not in (None, sentence.pooling):
                raise CheckpointError(f"{folder}: the pooling is {sentence.pooling}, not {wanted}")
        return sentence

    def _plain(self, folder: Path, hidden: int, pooling: str) -> SentenceFolder:
        """Return the settings of a plain transformer, whose vectors are normalised."""
        instruction = self.instruction
        if instruction is None:
            instruction = read_prompt(folder, self.prompt)
        return SentenceFolder(
            pooling,
            steps=(None,),
            width=hidden,
            dimension=hidden,
            max_tokens=None,
            lower_case=False,
            instruction=instruction,
        )

    def vector_length(self, sentence: SentenceFolder) -> int:
        """Return the length of a vector. Raises ExportError if the model's vectors are shorter."""
        most = sentence.dimension
        dimension = self.dimension or min(sentence.shortened or most, most)
        if not 1 <= dimension <= most:
            raise ExportError(f"dimension must be 1 to {most}, not {dimension}")
        return dimension

    def window(self, folder: Path, sentence: SentenceFolder, capacity: int | None) -> int:
        """Return the longest input, special tokens included.

        Raises ExportError or CheckpointError.
        """
        if self.max_tokens is None:
            return longest_input(folder, sentence, capacity)
        most = capacity or longest_input(folder, sentence, capacity)
        if not _FEWEST_TOKENS <= self.max_tokens <= most:
            raise ExportError(
                f"max_tokens must be {_FEWEST_TOKENS} to {most}, not {self.max_tokens}"
            )
        return self.max_tokens
