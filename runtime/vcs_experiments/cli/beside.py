"""Options of the metrics beside VCS in `vcs-runtime experiment`, and their opening."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from vcs_experiments.datasets.texts import Problems, read_descriptions
from vcs_experiments.metrics.bertscore import BERTScore, TokenStates, read_baseline
from vcs_experiments.metrics.corpus import Corpus
from vcs_experiments.metrics.scoring import KnownMetrics
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import PATH, Decorator, combined, together
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.custom import ScoringEmbedder
from vcs_runtime.inference.embedder import Embedder


@dataclass(frozen=True)
class Beside:
    """The settings of CIDEr and BERTScore."""

    idf_references: Path | None = None  # None: idf is over the references that are scored
    bertscore: str | None = None  # bundle of the encoder; None: of the other metrics
    bertscore_layer: int | None = None  # None: the last one
    bertscore_idf: bool = False
    bertscore_baseline: Path | None = None

    def corpus(self, references: Iterable[Sequence[str]]) -> Corpus:
        """Return the corpus for computing idf; raise InputError if its file cannot be read."""
        if self.idf_references is None:
            return Corpus.of(references)
        items = []
        for text in read_descriptions(self.idf_references, Problems(warn)).values():
            items.append([text] if isinstance(text, str) else text)
        return Corpus.of(items, given=True)

    def opened(
        self,
        bundle: Bundle,
        embedder: ScoringEmbedder,
        threads: int | None,
        workers: int,
        corpus: Corpus,
    ) -> KnownMetrics:
        """Open the metrics, and report on standard error which are left out."""
        if len(corpus.documents) < 2:
            warn(
                "CIDEr is left out: its idf needs references of at least two items; add more with"
                " --idf-references"
            )
        known = KnownMetrics(workers, corpus, self._matched(bundle, embedder, threads, corpus))
        if not known.meteor:
            warn(
                "METEOR is left out: NLTK does not find wordnet and punkt_tab;"
                " docs/guide/experiments.md describes how to get them"
            )
        return known

    def _matched(
        self, bundle: Bundle, embedder: ScoringEmbedder, threads: int | None, corpus: Corpus
    ) -> BERTScore | None:
        chosen = open_bundle(self.bertscore) if self.bertscore else bundle
        shared = embedder if isinstance(embedder, Embedder) and not self.bertscore else None
        try:
            states = TokenStates(chosen, embedder.device, threads, self.bertscore_layer, shared)
        except BundleError as error:
            if self != Beside(self.idf_references):
                raise
            warn(f"BERTScore is left out: {error}")
            return None
        baseline = None
        if self.bertscore_baseline:
            if states.layer is None:
                raise BundleError(
                    f"bundle {chosen.root}: its layers are not numbered, so no baseline fits"
                )
            baseline = read_baseline(self.bertscore_baseline, states.layer)
        idf = corpus if self.bertscore_idf else None
        return BERTScore(states, idf, baseline, named=self.bertscore is not None)


def beside() -> Decorator:
    """Add the options of these metrics to a command, which receives `beside`, a `Beside`."""
    return combined(
        "beside",
        Beside,
        together(
            click.option(
                "--idf-references",
                type=PATH,
                metavar="FILE",
                help=(
                    "File of reference texts by id from which idf is computed, for CIDEr and "
                    "--bertscore-idf. [default: the references that are scored]"
                ),
            ),
            click.option(
                "--bertscore",
                metavar="BUNDLE",
                help="Bundle whose encoder computes BERTScore. [default: the bundle of --bundle]",
            ),
            click.option(
                "--bertscore-layer",
                type=click.IntRange(min=0),
                metavar="N",
                help=(
                    "Layer of the encoder whose token vectors are compared; 0 is the embeddings. "
                    "[default: the last layer]"
                ),
            ),
            click.option(
                "--bertscore-idf", is_flag=True, help="Weight the tokens of BERTScore by idf."
            ),
            click.option(
                "--bertscore-baseline",
                type=PATH,
                metavar="FILE",
                help="File of baselines per layer that rescale BERTScore, as bert-score has it.",
            ),
            section="Scoring",
            advanced=True,
        ),
    )
