"""The device on which export measures a quantisation error."""

from __future__ import annotations

from pathlib import Path

from support.cuda_stand_ins import DryGpu
from support.gpu_bundles import NARROW, GpuBundles


def test_export_measures_on_the_gpu_and_on_the_cpu_if_that_fails(
    dry_gpu: DryGpu, bundles: GpuBundles, tmp_path: Path
) -> None:
    """A stand-in's vectors are zeros without a direction, which shows who computed."""
    bundles.nv_embed("fp16")
    text = tmp_path / "text"
    text.write_text("a dog runs into the garden\n")
    export = [
        *f"export nv-embed-v2 --from {bundles.folder}/narrow --precision int8".split(),
        *f"--text {text} --least-cosine -1".split(),
    ]
    on_gpu = dry_gpu.command([*export, "-o", str(tmp_path / "gpu")])
    assert "int8 is measured on ort-cuda" in on_gpu.stderr
    assert "int8 returned a vector of zeros for a text" in on_gpu.stderr
    # They are cuDNN's, which is not needed otherwise.
    assert not [call for call in on_gpu.log.calls if "Reduce" in call]
    # What is measured is the graph for CUDA; the other one multiplies in float32.
    types = {
        product.types for product in on_gpu.log.products if product.k == NARROW["intermediate"]
    }
    assert types == {("fp16",) * 3}
    small = dry_gpu.command([*export, "-o", str(tmp_path / "small")], memory=4e6)
    assert "int8 is measured on the CPU instead" in small.stderr
    assert "mean 0.9" in small.stderr
    named = dry_gpu.command(
        [*export, "-o", str(tmp_path / "named"), "--device", "cuda:0"], memory=4e6
    )
    assert named.returncode
    assert not (tmp_path / "named").exists()
