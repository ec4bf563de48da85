"""The head of a report in plain words: systems, date and settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from vcs_runtime.util.presence import changed_at
from vcs_runtime.util.printable import counted, enumerated

#: Maximum number of systems that a title names; if there are more, it has their number.
NAMED: Final = 6
_LONG_TEXTS: Final = {
    "window_mean": "longer texts: the mean of windows of {} tokens",
    "truncate_text": "longer texts: the first {} tokens",
    "truncate": "longer texts: the first {} tokens",
    "error": "at most {} tokens",
}
_DEVICES: Final = {
    "ort-cpu": "ONNX Runtime on the CPU",
    "ort-cuda": "ONNX Runtime on a GPU (CUDA)",
    "tensorrt-rtx": "TensorRT on a GPU",
    "tensorrt": "TensorRT on a GPU",
    "openvino": "OpenVINO on the CPU",
}
#: The names in words of those fields of a signature whose values are shown unchanged.
_FIELDS: Final = {
    "penalty": "Penalty of the tolerance",
    "reg": "Regulariser",
    "small": "Small texts",
    "refs": "Several references",
    "clean": "Removed from all texts",
    "instr": "Instruction of the embedding model",
    "cut": "Splitting: threshold, stride",
    "def": "Definition of the scores",
}


def title_of(systems: Sequence[str], videos: int) -> str:
    """Return a title that names the systems and the number of videos."""
    names = enumerated(systems) if len(systems) <= NAMED else f"{len(systems)} systems"
    return f"VCS of {names} on {counted(videos, 'video')}"


def date_of(paths: Iterable[Path]) -> str:
    """Return the date of the newest file, such as "3 May 2026".

    The date is in UTC and does not depend on the current day or the time zone.
    """
    day = max(map(changed_at, paths))
    return f"{day.day} {day:%B %Y}"


def settings_of(signature: str) -> list[tuple[str, str]]:
    """Describe a signature as settings and values in plain words; unknown fields are unchanged."""
    fields = dict(field.partition(":")[::2] for field in signature.split("|")[1:])
    settings = [
        ("Embedding model", _embedding(fields)),
        ("Chunks", _chunks(fields)),
        ("Local Chronology Tolerance (LCT)", fields.pop("lct", "")),
        ("Context: cutoff and window", fields.pop("ctx", "").replace("/", ", ")),
    ]
    version = fields.pop("v", "")
    engine = fields.pop("engine", "")
    settings += [(_FIELDS.get(name, name), value) for name, value in fields.items()]
    device, _, engine_version = engine.partition("@")
    settings.append(("Computed by", _model(f"{_DEVICES.get(device, device)}@{engine_version}")))
    if version:
        settings.append(("Version", f"vcs-runtime {version}"))
    return [(term, text) for term, text in settings if text]


def _embedding(fields: dict[str, str]) -> str:
    kind, _, limit = fields.pop("long", "").partition("/")
    long_texts = _LONG_TEXTS.get(kind, f"{kind} {{}}").format(limit)
    parts = [_model(fields.pop("emb", "")), fields.pop("prec", ""), long_texts.strip()]
    return "; ".join(filter(None, parts))


def _chunks(fields: dict[str, str]) -> str:
    size, segmenter = fields.pop("chunk", ""), fields.pop("seg", "")
    if segmenter == "none":
        return "words, for short captions"
    sentences = {"": "", "1": "single sentences"}.get(size, f"{size} sentences each")
    if not segmenter:
        return sentences
    rules, _, learned = segmenter.partition("+")
    names = _model(rules)
    if learned:
        names += f", or by {_model(learned)} without punctuation"
    return f"{sentences}, split by {names}"


def _model(name: str) -> str:
    """Describe a model by its name and the version, or the first digits of its hash."""
    name, _, version = name.partition("@")
    return f"{name} ({version})" if version else name
