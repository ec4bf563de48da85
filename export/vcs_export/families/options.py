"""What a caller decides about an embedder from a folder of sentence-transformers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from vcs_export.checkpoint.sentence_folder import (
    MODULES,
    SentenceFolder,
    check_width,
    longest_input,
    read_prompt,
    read_sentence_folder,
)
from vcs_export.errors import CheckpointError, ExportError
from vcs_runtime.bundle.manifest import EXPORTED_POLICIES, LongTextPolicy

_FEWEST_TOKENS = 3


@dataclass(frozen=True, kw_only=True)
class EmbedderOptions:
    """What a caller decides. None stands for what the folder or a recipe says."""

    prompt: str | None = None  # name of the folder's prompt before every text
    instruction: str | None = None  # in place of a prompt
    dimension: int | None = None  # length of vectors
    max_tokens: int | None = None  # special tokens included
    pooling: str | None = None  # as sentence-transformers names it
    long_text: LongTextPolicy = "window_mean"

    def __post_init__(self) -> None:
        if self.prompt is not None and self.instruction is not None:
            raise ExportError("prompt and instruction exclude each other")
        if self.long_text not in EXPORTED_POLICIES:
            raise ExportError(
                f"long_text must be one of {', '.join(EXPORTED_POLICIES)}, not {self.long_text!r}"
            )

    def with_instruction(self, instruction: str) -> Self:
        """Return the options with an instruction, unless the caller has named words or a prompt."""
        own = self.prompt is not None or self.instruction is not None
        return self if own else replace(self, instruction=instruction)

    def sentence(self, folder: Path, hidden: int, pooling: str | None = None) -> SentenceFolder:
        """Read a sentence-transformers folder, or a plain transformer of width `hidden`.

        `pooling` is that of the model's own code. Raises CheckpointError if the poolings contradict.
        """
        pooling = pooling or self.pooling
        if (folder / MODULES).exists():
            sentence = read_sentence_folder(folder, self.prompt, self.instruction)
            check_width(folder, sentence, hidden)
        elif pooling is None:
            raise CheckpointError(
                f"{folder}: there is no {MODULES} that names the pooling: name it (--pooling)"
            )
        else:
            instruction = read_prompt(folder, self.prompt) if self.instruction is None else self.instruction
            sentence = SentenceFolder(pooling, (None,), hidden, hidden, None, False, instruction)
        for wanted in (pooling, self.pooling):
            if wanted not in (None, sentence.pooling):
                raise CheckpointError(f"{folder}: the pooling is {sentence.pooling}, not {wanted}")
        return sentence

    def vector_length(self, sentence: SentenceFolder) -> int:
        """Return the length of a vector. Raises ExportError if the model's are not as long."""
        most = sentence.dimension
        dimension = self.dimension or min(sentence.shortened or most, most)
        if not 1 <= dimension <= most:
            raise ExportError(f"dimension must be 1 to {most}, not {dimension}")
        return dimension

    def window(self, folder: Path, sentence: SentenceFolder, capacity: int | None) -> int:
        """Return the longest input, special tokens included. Raises ExportError or CheckpointError."""
        if self.max_tokens is None:
            return longest_input(folder, sentence, capacity)
        most = capacity or longest_input(folder, sentence, capacity)
        if not _FEWEST_TOKENS <= self.max_tokens <= most:
            raise ExportError(f"max_tokens must be {_FEWEST_TOKENS} to {most}, not {self.max_tokens}")
        return self.max_tokens
