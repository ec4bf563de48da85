"""Proofs of a bundle's models: what they give for the built-in texts (`inference.proof`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from vcs_export.checkpoint.recipe import recipes_folder
from vcs_export.checks.verify import Check
from vcs_runtime.bundle.manifest import MANIFEST, PARTS, SCHEMA, Manifest, Part, Proof
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import ProofError, VcsError
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.proof import Spec, Subject, check, make, subject_on
from vcs_runtime.inference.tensorrt import choose_for
from vcs_runtime.segmentation.boundary_model import BoundaryModel
from vcs_runtime.util.atomic import write_whole

MOST_BYTES = 3 * 10**9
"""Weights up to which an export makes the proof: a CPU takes about twice their size in memory."""
T = TypeVar("T")


def with_proofs(bundle: Bundle, log: Callable[[str], None]) -> Manifest:
    """Return the manifest of a bundle that is being written, with the proofs of its models.

    The proof of a model of the project is a constant of the project. That of another model is made
    on this machine's CPU, if it can run the model.
    """
    manifest = bundle.manifest
    for part, spec in _models(bundle):
        size = bundle.weights_size(spec)
        try:
            proof = _recorded(bundle, spec)
            if proof is None and size > MOST_BYTES:
                raise VcsError(f"its weights have {size / 1e9:.1f} GB")
            proof = proof or _on_device(bundle, part, "cpu", make)
        except (VcsError, MemoryError) as error:
            log(f"{spec.name}: no proof ({error}): `vcs-runtime export verify` adds it")
            continue
        manifest = _added(manifest, part, proof)
    return manifest


def verify_proofs(bundle: Bundle, device: str) -> Iterator[Check]:
    """Compare the models of a bundle with their proofs, and add proofs that it lacks.

    A proof of other files or settings is replaced.
    """
    manifest = bundle.manifest
    for part, spec in _models(bundle):
        name, known = f"proof of the {part}", spec.proof
        if not known or not known.is_current or known.model != bundle.model_hash(spec):
            known = _recorded(bundle, spec)
        try:
            proof = _on_device(bundle, part, device, partial(_compared, known))
            detail = f"same as on {proof.environment}"
            if proof != spec.proof:
                manifest = _added(manifest, part, proof)
                write_whole(bundle.root / MANIFEST, manifest.to_json())
                detail = f"added to {MANIFEST}, by {proof.environment}"
            yield Check(name, True, detail)
        except ProofError as error:
            yield Check(name, False, str(error))
        except OSError as error:
            yield Check(name, True, f"not added: {error}")


def _compared(known: Proof | None, subject: Subject) -> Proof:
    """Return the known proof of a model after a comparison with it, or a new one."""
    if known is None:
        return make(subject)
    check(dataclasses.replace(subject, proof=known), again=True)
    return known


def _models(bundle: Bundle) -> Iterator[tuple[Part, Spec]]:
    for part in PARTS:
        spec = bundle.part(part)
        if spec:
            yield part, spec


def _recorded(bundle: Bundle, spec: Spec) -> Proof | None:
    """Return the project's own proof of a model, if there is one."""
    content = (recipes_folder() / "proofs.json").read_bytes()
    recorded = msgspec.json.decode(content, type=dict[str, Proof])
    return recorded.get(bundle.model_hash(spec))


def _added(manifest: Manifest, part: Part, proof: Proof) -> Manifest:
    manifest = replace(manifest, schema=SCHEMA)
    if part == "embedder":
        assert manifest.embedder
        return replace(manifest, embedder=replace(manifest.embedder, proof=proof))
    assert manifest.segmenter
    assert manifest.segmenter.model
    model = replace(manifest.segmenter.model, proof=proof)
    return replace(manifest, segmenter=replace(manifest.segmenter, model=model))


def _on_device(bundle: Bundle, part: Part, device: str, use: Callable[[Subject], T]) -> T:
    """Return the result of `use`, which gets a model of a bundle on a device."""
    if part == "embedder":
        with Embedder.open(bundle, device, proof=False) as embedder:
            return use(subject_on(bundle, embedder.spec, [embedder.device], embedder.run_each))
    chosen = choose_for(bundle, part, device)
    assert bundle.manifest.segmenter
    assert bundle.manifest.segmenter.model
    model = BoundaryModel(bundle, bundle.manifest.segmenter.model, chosen)
    try:
        return use(subject_on(bundle, model.spec, [chosen], model.run_each))
    finally:
        model.close()
