"""Graphs that are exported here against the operator list of TensorRT 10."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.tensorrt_operators import parser_problems
from support.tiny_bert import build_tiny_bundle
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from support.tiny_sat import build_tiny_sat_bundle
from vcs_runtime.bundle.opening import open_bundle


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_sat_has_nothing_that_it_refuses(tmp_path: Path, precision: str) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, precision=precision)
    assert parser_problems(bundle / "segmenter/model.onnx") == []


def test_encoders_have_nothing_that_it_refuses(tmp_path: Path) -> None:
    assert parser_problems(build_tiny_bundle(tmp_path) / "embedder/model.onnx") == []


@pytest.mark.parametrize("part", ["embedder", "segmenter"])
def test_the_default_has_nothing_that_it_refuses(part: str) -> None:
    bundle = open_bundle("default")
    spec = bundle.part(part)
    assert spec is not None
    assert parser_problems(bundle.path(spec.model)) == []


def test_a_graph_with_ort_operators_is_refused(tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision="int8")
    assert "com.microsoft.MatMulNBits is no standard operator" in parser_problems(
        bundle / "embedder/model.onnx"
    )


def test_dynamic_int8_is_refused(tmp_path: Path) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, precision="int8")
    found = parser_problems(bundle / "segmenter/model.onnx")
    assert {"DynamicQuantizeLinear is not supported", "MatMulInteger is not supported"} <= set(found)


def _save(path: Path, nodes: list[onnx.NodeProto], opset: int = 17, **initializers: np.ndarray) -> Path:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )  # fmt: skip
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
    assert parser_problems(_save(tmp_path / "b.onnx", [helper.make_node("Relu", ["x"], ["y"])], 25)) == [
        "opset 25, beyond 9 to 24"
    ]


def test_axes_must_be_constant(tmp_path: Path) -> None:
    axes = [
        helper.make_node("Shape", ["x"], ["s"], start=1, end=2),
        helper.make_node("Sub", ["s", "three"], ["axes"]),
        helper.make_node("Unsqueeze", ["x", "axes"], ["y"]),
    ]
    assert parser_problems(_save(tmp_path / "a.onnx", axes, three=np.array([3]))) == [
        "Unsqueeze takes constant axes only"
    ]
