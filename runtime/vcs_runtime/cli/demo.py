"""`vcs-runtime demo`: a small story told well and badly, scored on the embedded default."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.resources import files

import click
from rich.table import Table

from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.paths import default_bundle_path
from vcs_runtime.cli.options import device
from vcs_runtime.cli.tables import console, warn
from vcs_runtime.scoring.score_table import HEADLINE, SCORES, up_to
from vcs_runtime.scoring.scorer import Scorer

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
    if not (default_bundle_path() / MANIFEST).is_file():
        warn("the default bundle does not exist yet: fetching its weights once (83 MB)")
        import_module("vcs_export.cli.fetch").fetch_default_bundle()
    story = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    with Scorer.open(device=device) as scorer:
        results = scorer.score_many([(story["reference"], version["text"]) for version in story["versions"]])
        signature = scorer.signature
    out = console()
    out.print(f"Reference: {story['reference']}\n", soft_wrap=True)
    table = Table("generated text", *_SHOWN, "what the numbers say", box=None, pad_edge=False)
    for column in table.columns[1:-1]:
        column.justify = "right"
    for version, result in zip(story["versions"], results, strict=True):
        values = (f"{getattr(result.scores, name):.3f}" for name in _SHOWN)
        table.add_row(version["name"], *values, version["reading"])
    out.print(table)
    out.print()
    for name in _SHOWN:
        out.print(f"{name:14} {SCORES[name].meaning}")
    out.print(f"\n{signature}", soft_wrap=True)
