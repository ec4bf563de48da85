"""Sections of `measure.py`: forms of the same work that may pay on a GPU, FP8 and CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from work import Row, Unmeasured, Work, error_of

from vcs_export.errors import ExportError
from vcs_runtime.errors import DeviceError


def fp8(work: Work) -> Iterator[Row]:
    """Bundles in FP8 beside bf16 ones (on a CPU, that has no bf16, fp32), and ONNX Runtime's own product in FP8."""
    texts, wanted = work.exact()
    mixed = work.texts("mix")
    tokens = sum(map(len, work.ids(mixed)))
    other = "fp32" if work.tiny else "bf16"
    for device in ("cpu",) if work.tiny else ("cuda:0", "tensorrt:0"):
        rates = {}
        for precision in (other, "fp8"):
            row: Row = {"what": f"{precision}, padded, {device}"}
            try:
                with _opened(work, precision, device) as embedder:
                    row |= error_of(embedder.embed(texts), wanted)
                    rates[precision] = row["tokens/s"] = tokens / work.rate(lambda: embedder.embed(mixed))
            except (DeviceError, ExportError) as why:  # TensorRT's libraries, most likely
                row["not measured"] = str(why)[:300]
            yield row
        if len(rates) == 2:
            yield {"what": f"fp8 against {other}, {device}", "times as fast": rates["fp8"] / rates[other]}
    yield from _products(work)


def _opened(work: Work, precision: str, device: str) -> Any:
    """An embedder; of TensorRT, after its engine was made."""
    from vcs_export.checks.tensorrt_engines import build_engines
    from vcs_runtime.bundle.opening import open_bundle
    from vcs_runtime.inference.tensorrt import fitting

    bundle = open_bundle(work.bundle("tensorrt", precision))
    if device.startswith("tensorrt") and not fitting(bundle, "embedder", 0)[0]:
        build_engines(bundle, device, parts=["embedder"])
    return work.embedder("tensorrt", precision, device)


def _products(work: Work) -> Iterator[Row]:
    """`com.microsoft.MatMulBlockQuantizedFp8Weight`: CUDA alone has it, from ONNX Runtime 1.31 on at the latest."""
    import onnx_ir as ir
    import onnxruntime as ort

    if work.tiny:
        raise Unmeasured("ONNX Runtime has no FP8 product on a CPU")
    rng = np.random.default_rng(0)
    half = ir.DataType.FLOAT16
    for rows, out, inputs in ((960, 14336, 4096), (16384, 14336, 4096), (16384, 4096, 14336)):
        numbers = rng.standard_normal((out, inputs), np.float32) * np.float32(0.02)
        scales = np.abs(numbers.reshape(out, -1, 128)).max(2) / np.float32(448)
        levels = (numbers.reshape(out, -1, 128) / scales[:, :, None]).reshape(out, inputs)
        stored = levels.astype(ir.DataType.FLOAT8E4M3FN.numpy())
        x = rng.standard_normal((rows, inputs), np.float32).astype(np.float16)
        wanted = x[:64].astype(np.float32) @ numbers.T
        for name in ("fp16", "fp8 weights", "fp8 weights and inputs"):
            value = ir.Value(name="x", shape=ir.Shape(("rows", inputs)), type=ir.TensorType(half))
            held = {"w": numbers.astype(np.float16)} if name == "fp16" else {"w": stored, "scales": scales}
            if name.endswith("inputs"):
                held["x_scale"] = np.array(6 / 448, np.float32)
            values = [
                ir.Value(name=key, const_value=ir.tensor(array, name=key), shape=ir.Shape(array.shape),
                         type=ir.TensorType(ir.tensor(array).dtype)) for key, array in held.items()
            ]  # fmt: skip
            y = ir.Value(name="y", shape=ir.Shape(("rows", out)), type=ir.TensorType(half))
            if name == "fp16":
                node = ir.node("Gemm", [value, *values], {"transB": 1}, outputs=[y])
            else:
                node = ir.node(
                    "MatMulBlockQuantizedFp8Weight", [value, *values], {"block_size": 128},
                    domain="com.microsoft", outputs=[y],
                )  # fmt: skip
            graph = ir.Graph(
                [value], [y], nodes=[node], initializers=values, opset_imports={"": 21, "com.microsoft": 1}
            )
            row: Row = {"what": f"{rows} x {inputs} x {out}, {name}"}
            try:
                model = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
                session = ort.InferenceSession(model, providers=[("CUDAExecutionProvider", {})])
                binding = session.io_binding()
                binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0))
                binding.bind_output("y", "cuda", 0)

                def run(session: Any = session, binding: Any = binding) -> None:
                    for _ in range(20):
                        session.run_with_iobinding(binding)
                    binding.synchronize_outputs()

                seconds = work.rate(run) / 20
                found = binding.copy_outputs_to_cpu()[0][:64].astype(np.float32)
                row["TFLOP/s"] = 2 * rows * out * inputs / seconds / 1e12
                row["error"] = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
            except Exception as failure:  # one form that is not there says nothing of the others
                row["failed"] = str(failure)[:200]
            yield row


def graphs(work: Work) -> Iterator[Row]:
    """CUDA graphs: one shape, inputs and outputs that stay where they are, recorded once and replayed.

    The runtime does not use them, since its shapes change with every batch; this is what they would save.
    """
    import onnxruntime as ort

    from vcs_runtime.inference.batching import batches

    kind = "cpu" if work.tiny else "cuda"
    provider = "CPUExecutionProvider" if work.tiny else "CUDAExecutionProvider"
    for name, rows in (("one chunk", 1), ("16 chunks", 16), ("256 chunks", 256)):
        ids = [[1, *range(3, 3 + work.size.chunk[1] - 2), 2]] * rows
        [batch] = batches(ids, 1 << 20, "packed")
        for recorded in (False, True):
            row: Row = {"what": f"{name}, {'a CUDA graph' if recorded else 'run by run'}"}
            if recorded and work.tiny:
                yield {**row, "not measured": "CUDA graphs of a GPU"}
                continue
            options = ort.SessionOptions()
            options.log_severity_level = 3
            given = {"enable_cuda_graph": "1"} if recorded else {}
            try:
                session = ort.InferenceSession(
                    work.bundle() / "embedder/model.onnx", options, providers=[(provider, given)]
                )
                binding = session.io_binding()
                for key, array in batch.inputs.items():
                    binding.bind_ortvalue_input(key, ort.OrtValue.ortvalue_from_numpy(array, kind, 0))
                shape = (rows, work.size.decoder.hidden_size)
                out = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, kind, 0)
                binding.bind_ortvalue_output("embedding", out)

                def run(session: Any = session, binding: Any = binding) -> None:
                    for _ in range(10):
                        session.run_with_iobinding(binding)
                    binding.synchronize_outputs()

                row["ms"] = work.rate(run) / 10 * 1e3
                row["length"] = float(np.linalg.norm(out.numpy()[0]))  # 1, if it computed anything
            except Exception as failure:  # a graph that cannot be recorded says nothing of the others
                row["failed"] = str(failure)[:300]
            yield row
