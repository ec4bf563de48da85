"""Encoders' graphs in half precision, for TensorRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from support.rounding import FP32_NOISE, ROUNDOFF
from support.tiny_bert import build_tiny_bundle
from support.tiny_modernbert import write_tiny_modernbert
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.errors import ExportError
from vcs_export.families.build import Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.graph.half import write_half
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle

HALF = TensorProto.FLOAT16


def model(name: str, folder: Path) -> Path:
    """The float32 graph of an encoder."""
    if name == "BERT":
        return build_tiny_bundle(folder) / "embedder/model.onnx"
    if name == "SaT":
        return build_tiny_sat_bundle(folder) / "segmenter/model.onnx"
    if name == "ModernBERT":
        build = Build(
            write_tiny_modernbert(folder / "checkpoint"),
            folder / "bundle",
            BundleInfo("m", "CC0-1.0", ""),
        )
        return build_sentence_bundle(build) / "embedder/model.onnx"
    bundle = open_bundle("default")
    spec = bundle.part(name)
    assert spec is not None
    return bundle.path(spec.model)


@pytest.mark.parametrize("name", ["BERT", "SaT", "ModernBERT", "embedder", "segmenter"])
def test_an_encoder_in_half_precision_stays_near(tmp_path: Path, name: str) -> None:
    """The embedder and the segmenter are those of the default bundle."""
    whole = model(name, tmp_path)
    half = write_half(whole, tmp_path / "half")
    before, after = (onnx.load(path, load_external_data=False) for path in (whole, half))
    assert (after.graph.input, after.graph.output) == (before.graph.input, before.graph.output)
    values = shape_inference.infer_shapes(after, strict_mode=True).graph
    kinds = {
        value.name: value.type.tensor_type.elem_type
        for value in [*values.value_info, *values.output]
    }
    kinds |= {tensor.name: tensor.data_type for tensor in values.initializer}
    pooled = [
        node for node in values.node if node.op_type == "MatMul" and kinds[node.output[0]] != HALF
    ]
    assert len(pooled) == (name in ("BERT", "embedder"))  # of means
    read = {
        (node.op_type, kinds[node.input[0]])
        for node in values.node
        if node.op_type in ("Softmax", "LayerNormalization", "Erf")
        or node.input[0].endswith("embeddings.weight.fp16")
    }
    assert read == {
        *((kind, TensorProto.FLOAT) for kind in ("Softmax", "LayerNormalization", "Erf")),
        ("Gather", HALF),
    }
    # The query is scaled, so divided products are those before GELU without a bias.
    divided = sum(
        node.op_type == "Div" and node.input[0].startswith("MatMul") for node in values.node
    )
    assert divided == (
        sum(node.op_type == "Erf" for node in values.node) if name == "ModernBERT" else 0
    )
    # A text and a shorter one.
    inputs = {item.name: np.ones((2, 24), np.int64) for item in before.graph.input}
    inputs["input_ids"][:] = np.arange(2, 50).reshape(2, 24) % 40
    inputs["attention_mask"][1, 9:] = 0
    [exact_one], [near] = (
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
        for path in (whole, half)
    )
    assert name != "embedder" or (near * exact_one).sum(1).min() > 0.99999
    lost = np.abs(near[0] - exact_one[0]).max() / np.abs(exact_one).max()
    assert FP32_NOISE < lost < 10 * ROUNDOFF["fp16"]


def test_a_weight_beyond_half_precision_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.full((4, 4), 7e4, np.float32), "w")],
    )
    (tmp_path / "model").mkdir()
    onnx.save(helper.make_model(graph), tmp_path / "model" / "a.onnx")
    with pytest.raises(ExportError, match="w has numbers beyond fp16's largest one"):
        write_half(tmp_path / "model" / "a.onnx", tmp_path)
