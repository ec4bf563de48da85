"""Loading a bundle's tokenizer."""

from __future__ import annotations

import os
from pathlib import Path

from tokenizers import Tokenizer

from vcs_runtime.errors import BundleError


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a `tokenizer.json`, without its truncation and padding; raises BundleError."""
    try:
        tokenizer = Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise BundleError(f"{path}: tokenizers cannot load it: {error}") from None
    # Both may be switched on inside the file (all-MiniLM-L6-v2: 128 tokens), and would cut texts silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
