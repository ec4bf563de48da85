"""`vcs-runtime demo`: a small story told well and badly, scored on the embedded default."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.resources import files

import click
from rich.table import Table

from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.paths import default_bundle_path
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import device, usage_errors
from vcs_runtime.cli.tables import console, prose
from vcs_runtime.inference.device import check_device
from vcs_runtime.scoring.score_table import HEADLINE, LABELS, SCORES, up_to
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.presence import is_regular_file

_NARROW = 70  # columns of a terminal, below which scores have two digits
_SHOWN = (*up_to(HEADLINE), "las_precision", "las_recall")


@click.command()
@device
def demo(device: str) -> None:
    """Score a small built-in story, told well and badly.

    The reference is compared with a paraphrase, a reordering, an omission and a hallucination. If the
    default bundle does not exist yet, it is fetched first (83 MB).

    \b
    Example:
      vcs-runtime demo
    """
    with usage_errors():
        check_device(device)  # before anything is fetched
    if not is_regular_file(default_bundle_path() / MANIFEST):
        warn("the default bundle does not exist yet: fetching its weights once (83 MB)")
        import_module("vcs_export.cli.fetch").fetch_default_bundle()
    story = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    with Scorer.open(device=device) as scorer:
        results = scorer.score_many([(story["reference"], version["text"]) for version in story["versions"]])
        signature = scorer.signature
    out = console()
    prose(out, f"Reference: {story['reference']}\n")
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for heading in ("generated text", *(LABELS[name].replace(" ", "\n") for name in _SHOWN)):
        words = (heading, *(version["name"] for version in story["versions"] if not table.columns))
        widest = max(len(word) for text in words for word in text.split())
        table.add_column(heading, justify="right" if table.columns else "left", min_width=widest)
    digits = 3 if out.width >= _NARROW else 2
    readings = Table("generated text", "what the numbers say", box=None, pad_edge=False)
    meanings = Table("score", "meaning", box=None, pad_edge=False)
    for version, result in zip(story["versions"], results, strict=True):
        table.add_row(version["name"], *(f"{getattr(result.scores, name):.{digits}f}" for name in _SHOWN))
        readings.add_row(version["name"], version["reading"])
    for name in _SHOWN:
        meanings.add_row(LABELS[name], SCORES[name].meaning)
    for part in (table, readings, meanings):
        out.print(part)
        out.print()
    out.print(signature, soft_wrap=True)
