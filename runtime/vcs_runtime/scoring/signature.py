"""The signature: one line that states how a score was computed, for comparing and reproducing."""

from __future__ import annotations

from collections.abc import Sequence

from vcs_runtime._version import __version__
from vcs_runtime.bundle.manifest import Calibration
from vcs_runtime.inference.custom import ScoringEmbedder
from vcs_runtime.inference.environment import environment
from vcs_runtime.inference.fitness import calibration_field
from vcs_runtime.scoring.options import SUBSTITUTION, Options
from vcs_runtime.scoring.substitution import WordComparison
from vcs_runtime.segmentation.custom import TIME_STAMPS, ScoringSegmenter
from vcs_runtime.util.numbers import digits

# Version of the formulas, which is the version of the reference package.
DEFINITION = "1.0.0"


def signature(
    options: Options,
    embedder: ScoringEmbedder,
    segmenter: ScoringSegmenter,
    words: WordComparison,
    calibration: Calibration | None = None,
) -> str:
    """Build the signature of a score: fields `key:value` separated by "|".

    A model has the first four hex digits of `Bundle.model_hash`. A device has the digits of the
    graph or engine that no other device runs, if there is one. These options have a field unless
    they are at their defaults: penalty, regulariser, small_text, aggregate, clean, metrics beside
    VCS (`also`), and an instruction before the texts (`instr`, four digits of its hash). With
    substitution, `words` names the model that compares words. `cal` names the constants of a
    calibration. With a learned segmenter, `cut` holds its threshold, stride, precision and device.
    Models of the caller are named by their `identity` alone.
    """
    fields = embedder.signature_fields
    if SUBSTITUTION in options.also:
        fields = (f"words:{words.name}", *fields)
    if calibration:
        fields = (*fields, calibration_field(calibration))
    return signature_of(options, segmenter.signature_fields, fields)


def long_form(signature: str) -> str:
    """Add to a signature the library versions and the processor, which may affect score rounding.

    On a CPU, scores with the same long form are the same to the bit. Scores with the same signature
    may differ by rounding.
    """
    fields = signature.split("|")
    engines = [field for field in fields if field.startswith(("engine:", "cut:"))]
    return "|".join([signature, *environment(engines)])


def signature_of(options: Options, segmenter: Sequence[str], embedder: Sequence[str]) -> str:
    """Build the signature of a score from the fields of its segmenter and of its embedder."""
    params = options.params
    definition = DEFINITION
    if f"seg:{TIME_STAMPS}" in segmenter and not options.short:
        definition += "+time"
    fields = [
        "vcs",
        f"def:{definition}",
        f"chunk:{'word' if options.short else options.chunk_size}",
        f"lct:{digits(params.lct)}",
        f"ctx:{digits(params.context_cutoff)}/{digits(params.context_window)}",
    ]
    if params.lct_penalty != "full":
        fields.append(f"penalty:{params.lct_penalty}")
    if params.regularizer != "window":
        blend, coverage = digits(params.nas_blend_factor), digits(params.nas_coverage_cutoff)
        fields.append(f"reg:{params.regularizer}/{blend}/{coverage}")
    if params.small_text != "paper":
        fields.append(f"small:{params.small_text}")
    if options.aggregate != "max":
        fields.append(f"refs:{options.aggregate}")
    if options.clean:
        fields.append(f"clean:{'+'.join(options.clean)}")
    if options.also:
        fields.append(f"also:{'+'.join(options.also)}")
    if options.short:
        segmenter = ["seg:none"]
    return "|".join([*fields, *segmenter, *embedder, f"v:{__version__}"])
