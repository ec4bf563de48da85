"""Graphs that are exported here against the operator list of TensorRT 10."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from support.rounding import FP32_NOISE, ROUNDOFF
from support.tensorrt_operators import parser_problems
from support.tiny_bert import build_tiny_bundle
from support.tiny_modernbert import write_tiny_modernbert
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
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
def test_an_encoder_in_half_precision_stays_near_and_has_nothing_that_it_refuses(
    tmp_path: Path, name: str
) -> None:
    """The embedder and the segmenter are those of the default bundle."""
    whole = model(name, tmp_path)
    half = write_half(whole, tmp_path / "half")
    assert parser_problems(half) == []
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
    _save(tmp_path / "model" / "a.onnx", nodes, w=np.full((4, 4), 7e4, np.float32))
    with pytest.raises(ExportError, match="w has numbers beyond fp16's largest one"):
        write_half(tmp_path / "model" / "a.onnx", tmp_path)


def test_a_graph_with_ort_operators_is_refused(tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision="int8")
    assert "com.microsoft.MatMulNBits is no standard operator" in parser_problems(
        bundle / "embedder/model.onnx"
    )


def test_dynamic_int8_is_refused(tmp_path: Path) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, precision="int8")
    found = parser_problems(bundle / "segmenter/model.onnx")
    assert {"DynamicQuantizeLinear is not supported", "MatMulInteger is not supported"} <= set(
        found
    )


def _save(
    path: Path, nodes: list[onnx.NodeProto], opset: int = 17, **initializers: np.ndarray
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    path.parent.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


def test_types_and_opsets_beyond_the_list_are_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BOOL),
        helper.make_node("Cast", ["b"], ["u"], to=TensorProto.UINT8),
        helper.make_node("Identity", ["u"], ["v"]),
        helper.make_node("Cast", ["v"], ["y"], to=TensorProto.FLOAT),
    ]
    assert parser_problems(_save(tmp_path / "a.onnx", nodes)) == [
        "Identity does not take UINT8",
        "Cast does not take UINT8",
    ]
    assert parser_problems(
        _save(tmp_path / "b.onnx", [helper.make_node("Relu", ["x"], ["y"])], 25)
    ) == ["opset 25, beyond 9 to 24"]


def test_axes_must_be_constant(tmp_path: Path) -> None:
    axes = [
        helper.make_node("Shape", ["x"], ["s"], start=1, end=2),
        helper.make_node("Sub", ["s", "three"], ["axes"]),
        helper.make_node("Unsqueeze", ["x", "axes"], ["y"]),
    ]
    assert parser_problems(_save(tmp_path / "a.onnx", axes, three=np.array([3]))) == [
        "Unsqueeze takes constant axes only"
    ]
