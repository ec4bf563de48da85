"""What to cite (`vcs-runtime --cite`), and where the metric and its benchmark come from."""

from __future__ import annotations

from vcs_runtime._version import __version__

#: Name and address of each source.
LINKS = {
    "reference package": "https://github.com/Multimodal-Intelligence-Lab/Video-Comprehension-Score",
    "CLIP-CC-Bench": "https://arxiv.org/abs/2608.04302",
}

_ENTRIES = """\
% The metric, by its authors. Look for their paper on it, which was not published when this version was made.
@software{vcs,
  author = {Dubey, Harsh and Ali, Mukhtiar and Mishra, Sugam and Pack, Chulwoo},
  title  = {Video Comprehension Score},
  year   = {2024},
  url    = {REFERENCE},
  note   = {Package video-comprehension-score 1.0.0, whose definition vcs-runtime computes}
}

% A benchmark of long descriptions.
@inproceedings{clip_cc_bench,
  author    = {Ali, Mukhtiar and Dubey, Harsh and Mishra, Sugam and Pack, Chulwoo},
  title     = {{CLIP-CC} Bench: Evaluating Paragraph-Level Video Descriptions in Video-Language Models},
  booktitle = {Second Workshop on Evaluation for Multi-Modal Generation (EvalMG) at SIGIR},
  year      = {2026},
  url       = {BENCHMARK}
}

% This program. Give the signature of your scores as well: it names models, parameters and versions.
@software{vcs_runtime,
  title   = {vcs-runtime: the Video Comprehension Score, offline},
  version = {VERSION}
}
"""


def bibtex() -> str:
    """Return the BibTeX entries of the metric, its benchmark and this program."""
    entries = _ENTRIES.replace("REFERENCE", LINKS["reference package"]).replace("VERSION", __version__)
    return entries.replace("BENCHMARK", LINKS["CLIP-CC-Bench"])
