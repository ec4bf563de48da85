"""Releases of ONNX Runtime: one that is too old for a graph is refused, and every other computes what it should.

`make nox` runs this file under releases on both sides of each bound.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from support import numpy_decoder, numpy_nv_embed
from support.command_line import vcs
from support.embedders import vectors_of
from support.tiny_decoder import write_tiny_decoder
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import build_decoder_bundle
from vcs_export.rehearsal.nv_embed import write_tiny_nv_embed
from vcs_export.write import BundleInfo
from vcs_runtime import DeviceError, Embedder

INSTALLED = tuple(map(int, re.findall(r"\d+", onnxruntime.__version__)[:3]))
# The lowest release for each form of a decoder's graph.
NEEDED = {"ort": "1.25", "tensorrt": "1.23.1"}
BEFORE = {"ort": ["1.21.0", "1.24.4"], "tensorrt": ["1.22.1", "1.23.0"]}
TEXTS = ["the dog runs", "a young woman opens the door and looks at the river", "two cats"]


def refusal(bundle: Path, target: str, installed: str) -> str:
    """The sentence about a release that is too old."""
    needed = NEEDED[target]
    return (
        f"{bundle}/embedder/model.onnx needs ONNX Runtime {needed} or later, and {installed} is installed: "
        f"pip install --upgrade 'onnxruntime>={needed}'"
    )


def is_old(target: str) -> bool:
    return tuple(map(int, NEEDED[target].split("."))) > INSTALLED


def check_refused(bundle: Path, target: str, installed: str) -> None:
    with pytest.raises(DeviceError) as caught:
        Embedder.open(bundle, device="cpu")
    assert str(caught.value) == f"ort-cpu: {refusal(bundle, target, installed)}"


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("target", NEEDED)
def test_nv_embed_is_right_or_refused(tmp_path: Path, target: str, precision: str) -> None:
    checkpoint = write_tiny_nv_embed(tmp_path / "checkpoint")
    bundle = build_tiny_nv_embed_bundle(
        tmp_path, checkpoint=checkpoint, target_runtime=target, precision=precision
    )
    if is_old(target):
        check_refused(bundle, target, onnxruntime.__version__)
        return
    words = Tokenizer.from_file(str(bundle / "embedder/tokenizer.json"))
    want = [
        numpy_nv_embed.embed(checkpoint, [1, *words.encode(text, add_special_tokens=False).ids, 2])
        for text in TEXTS
    ]
    got = vectors_of(bundle, TEXTS)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 if precision == "fp32" else 2e-3)


@pytest.mark.parametrize("family", ["qwen3", "kalm-gemma3"])
@pytest.mark.parametrize("target", NEEDED)
def test_decoders_are_right_or_refused(tmp_path: Path, target: str, family: str) -> None:
    checkpoint = write_tiny_decoder(tmp_path / "checkpoint", family)
    info = BundleInfo(family, "CC0-1.0", "random numbers")
    quantization = Quantization(precision="fp32")
    bundle = build_decoder_bundle(
        Build(checkpoint, tmp_path / "bundle", info, quantization, target_runtime=target)
    )
    if is_old(target):
        check_refused(bundle, target, onnxruntime.__version__)
        return
    got = vectors_of(bundle, TEXTS, "")
    want = [numpy_decoder.embed(checkpoint, numpy_decoder.token_ids(checkpoint, text)) for text in TEXTS]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("target", "installed"), [(t, release) for t in BEFORE for release in BEFORE[t]])
def test_opening_and_doctor_name_what_is_needed_and_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, installed: str
) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, target_runtime=target)
    monkeypatch.setattr(onnxruntime, "__version__", installed)
    check_refused(bundle, target, installed)
    done = vcs("doctor", "--bundle", bundle)
    assert done.code == 1
    assert f"! {refusal(bundle, target, installed)}\n" in done.stdout


def test_an_encoder_needs_no_more_than_the_lowest_release(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", "1.21.0")
    assert vcs("doctor", "--bundle", tiny_bundle).code == 0
    with Embedder.open(tiny_bundle, device="cpu") as embedder:
        assert np.isfinite(embedder.embed(["a man walks"])).all()


def test_doctor_says_that_a_cpu_runs_no_model_in_bf16(tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision="bf16")
    done = vcs("doctor", "--bundle", bundle)
    assert done.code == 1
    assert "! auto: tiny-nv-embed is in bf16, for which ONNX Runtime has kernels on a GPU only" in done.stdout
