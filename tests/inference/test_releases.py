"""Releases of ONNX Runtime: one that is too old for a graph is refused, and every other computes
what it should.

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
from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.command_line import vcs
from support.embedders import vectors_of
from support.tiny_decoder import write_tiny_decoder
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import build_decoder_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import DeviceError, Embedder

INSTALLED = tuple(map(int, re.findall(r"\d+", onnxruntime.__version__)[:3]))
NEEDED = "1.25"  # the lowest release for a decoder's graph
IS_OLD = INSTALLED < (1, 25)
TEXTS = ["the dog runs", "a young woman opens the door and looks at the river", "two cats"]


def refusal(bundle: Path, installed: str) -> str:
    """The sentence about a release that is too old."""
    return (
        f"{bundle}/embedder/model.onnx needs ONNX Runtime {NEEDED} or later, but {installed} is"
        f" installed: pip install --upgrade 'onnxruntime>={NEEDED}'"
    )


def check_refused(bundle: Path, installed: str) -> None:
    with pytest.raises(DeviceError) as caught:
        Embedder.open(bundle, device="cpu")
    assert str(caught.value) == f"ort-cpu: {refusal(bundle, installed)}"


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_nv_embed_is_right_or_refused(tmp_path: Path, precision: str) -> None:
    checkpoint = write_tiny_nv_embed(tmp_path / "checkpoint")
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=checkpoint, precision=precision)
    if IS_OLD:
        check_refused(bundle, onnxruntime.__version__)
        return
    words = Tokenizer.from_file(str(bundle / "embedder/tokenizer.json"))
    want = [
        numpy_nv_embed.embed(checkpoint, [1, *words.encode(text, add_special_tokens=False).ids, 2])
        for text in TEXTS
    ]
    got = vectors_of(bundle, TEXTS)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 if precision == "fp32" else 2e-3)


@pytest.mark.parametrize("family", ["qwen3", "kalm-gemma3"])
def test_decoders_are_right_or_refused(tmp_path: Path, family: str) -> None:
    checkpoint = write_tiny_decoder(tmp_path / "checkpoint", family)
    info = BundleInfo(family, "CC0-1.0", "random numbers")
    quantization = Quantization(precision="fp32")
    bundle = build_decoder_bundle(Build(checkpoint, tmp_path / "bundle", info, quantization))
    if IS_OLD:
        check_refused(bundle, onnxruntime.__version__)
        return
    got = vectors_of(bundle, TEXTS, "")
    want = [
        numpy_decoder.embed(checkpoint, numpy_decoder.token_ids(checkpoint, text)) for text in TEXTS
    ]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("installed", ["1.21.0", "1.24.4"])
def test_opening_and_doctor_name_what_is_needed_and_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path)
    monkeypatch.setattr(onnxruntime, "__version__", installed)
    check_refused(bundle, installed)
    done = vcs("doctor", "--bundle", bundle)
    assert done.code == 1
    assert f"! {refusal(bundle, installed)}\n" in done.stdout


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
    assert (
        "! auto: tiny-nv-embed is in bf16, for which ONNX Runtime has only GPU kernels"
        in done.stdout
    )
