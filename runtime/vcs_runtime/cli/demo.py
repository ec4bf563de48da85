"""`vcs-runtime demo`: a small story told well and badly, scored on the embedded default."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.resources import files

import click

from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.paths import default_bundle_path
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import device, usage_errors
from vcs_runtime.cli.tables import console, print_table, prose
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

    The reference is compared with a paraphrase, a reordering, an omission and a hallucination. If
    the default bundle does not exist yet, it is fetched first (83 MB).

    \b
    Example:
      vcs-runtime demo
    """
    with usage_errors():
        check_device(device)  # before anything is fetched
    if not is_regular_file(default_bundle_path() / MANIFEST):
        warn("the default bundle is not installed yet: fetching its weights once (83 MB)")
        import_module("vcs_export.cli.fetch").fetch_default_bundle()
    story = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    with Scorer.open(device=device) as scorer:
        pairs = [(story["reference"], version["text"]) for version in story["versions"]]
        results = scorer.score_many(pairs)
        signature = scorer.signature
    out = console()
    prose(out, f"Reference: {story['reference']}\n")
    digits = 3 if out.width >= _NARROW else 2
    headings = ("generated text", *(LABELS[name] for name in _SHOWN))
    scores = []
    readings = []
    for version, result in zip(story["versions"], results, strict=True):
        numbers = [f"{getattr(result.scores, name):.{digits}f}" for name in _SHOWN]
        scores.append((version["name"], *numbers))
        readings.append((version["name"], version["reading"]))
    drop = [headings.index(LABELS[name]) for name in ("las_recall", "las_precision")]
    print_table(headings, scores, drop=drop, prose_at=0)
    out.print()
    print_table(("generated text", "what the numbers mean"), readings, prose_at=1)
    out.print()
    meanings = [(LABELS[name], SCORES[name].meaning) for name in _SHOWN]
    print_table(("score", "meaning"), meanings, prose_at=1)
    out.print()
    out.print(signature, soft_wrap=True)
