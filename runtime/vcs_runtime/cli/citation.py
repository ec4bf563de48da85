"""What to cite (`vcs-runtime --cite`), and where the metric and its benchmark come from."""

from __future__ import annotations

from importlib.resources import files

from vcs_runtime._version import __version__

#: Name and address of each source.
LINKS = {
    "reference package": "https://github.com/Multimodal-Intelligence-Lab/Video-Comprehension-Score",
    "CLIP-CC-Bench": "https://arxiv.org/abs/2608.04302",
}


def bibtex() -> str:
    """Return the BibTeX entries of the metric, its benchmark and this program."""
    entries = files("vcs_runtime").joinpath("data/citation.bib").read_text("utf-8")
    entries = entries.replace("REFERENCE", LINKS["reference package"]).replace(
        "VERSION", __version__
    )
    return entries.replace("BENCHMARK", LINKS["CLIP-CC-Bench"])
