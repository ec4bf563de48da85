"""Input of the commands: a file of pairs, or the text files of one pair; and the scorer for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from vcs_runtime.cli.options import usage_errors, verbose
from vcs_runtime.cli.tables import warn
from vcs_runtime.errors import InputError
from vcs_runtime.inference.nvidia import gpu_is_there
from vcs_runtime.jobs.pairs import InputPair, count_pairs, read_pairs
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.scorer import Scorer


def open_scorer(config: ScorerConfig) -> Scorer:
    """Open a scorer, and report on standard error if it leaves a GPU unused; with --verbose, always."""
    with usage_errors():
        scorer = Scorer.from_config(config)
    chosen = scorer.embedder.device
    unused = config.device == "auto" and not chosen.is_gpu and gpu_is_there()
    if unused or verbose():
        warn(f"{'the GPU is not used: ' if unused else ''}{chosen.provider_name} ({chosen.reason})")
    return scorer


def open_keeping_vectors(config: ScorerConfig, output: Path) -> Scorer:
    """Make an output folder, and open a scorer whose vectors are kept, by default in that folder."""
    output.mkdir(parents=True, exist_ok=True)
    return open_scorer(replace(config, cache=config.cache or output / "vectors"))


def check_source(pairs: Path | None, references: Sequence[Path], generated: Path | None) -> None:
    """Raise UsageError unless there is either a file of pairs or both texts of one pair."""
    if (pairs is None) == (not references and generated is None):
        raise click.UsageError("give either PAIRS, or --reference and --generated")
    if pairs is None and (not references or generated is None):
        raise click.UsageError("--reference and --generated belong together")


def one_pair(references: Sequence[Path], generated: Path | None) -> InputPair:
    """Read the text files of one pair.

    Parameters
    ----------
    references
        Text files of the references.
    generated
        Text file of the generated text.

    Returns
    -------
    pair
        The pair, as from a file of pairs.

    Raises
    ------
    InputError
        A file cannot be read, or is not UTF-8.
    """
    assert generated is not None  # `check_source` was called before
    texts = [_read_text(path) for path in references]
    return InputPair("pair", None, texts[0] if len(texts) == 1 else texts, _read_text(generated))


def input_pairs(pairs: Path, name: str | None = None) -> Iterator[InputPair]:
    """Check a whole file of pairs, then read it.

    Parameters
    ----------
    pairs
        A JSONL, CSV or Parquet file.
    name
        Id of the only pair to read. None: all pairs.

    Returns
    -------
    pairs
        Iterator over the pairs.

    Raises
    ------
    InputError
        The file cannot be read, holds no pairs, or holds none with this id.
    """
    if not count_pairs(pairs):
        raise InputError(f"{pairs}: the file holds no pairs")
    if name is None:
        return read_pairs(pairs)
    chosen = [pair for pair in read_pairs(pairs) if str(pair.name) == name]
    if not chosen:
        raise InputError(f"{pairs}: no pair has the id {name!r}")
    return iter(chosen)


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
