"""Where ONNX Runtime puts the nodes of a graph: a GPU session whose work is done by the CPU is refused.

ONNX Runtime gives each node for which a provider has no kernel to the CPU, and says so only in its log.
Scores would be right, at a fraction of the speed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import DeviceError

if TYPE_CHECKING:
    import onnxruntime as ort

RECORD: tuple[str, str] = ("session.record_ep_graph_assignment_info", "1")
"""Setting of a session, without which `refuse_cpu_work` is not told where the nodes are."""

_CPU = "CPUExecutionProvider"
# ONNX Runtime itself keeps what computes shapes on the CPU. The CUDA provider has kernels of all these
# operators, so that nothing else is left to the CPU under their names.
_SHAPE_OPERATORS = frozenset(
    """
    Shape Size Constant ConstantOfShape Range Cast Identity
    Reshape Squeeze Unsqueeze Concat Slice Gather Expand Where
    Equal Less LessOrEqual Greater GreaterOrEqual And Or Not
    Add Sub Mul Div Mod Min Max ReduceMax ReduceProd
    """.split()
)


def refuse_cpu_work(session: ort.InferenceSession, name: str, model: Path) -> None:
    """Check that a GPU runs all nodes of a session except those that compute shapes.

    ONNX Runtime before 1.24 does not tell where nodes are, and nothing is checked.
    """
    assignment = getattr(session, "get_provider_graph_assignment_info", None)
    if assignment is None:
        return
    operators = Counter(
        node.op_type for part in assignment() if part.ep_name == _CPU for node in part.get_nodes()
    )
    if work := {kind: count for kind, count in operators.items() if kind not in _SHAPE_OPERATORS}:
        counts = ", ".join(f"{kind} ({count})" for kind, count in sorted(work.items()))
        raise DeviceError(
            f"{name}: ONNX Runtime has no GPU kernel for these nodes of {model}, and the CPU would run them: "
            f"{counts}; use `--device cpu`, or export the model in fp16"
        )


def lacks_kernels(bundle: Bundle, part: str) -> str:
    """Return why no GPU runs a part of the bundle, or "".

    A learned segmenter in int8 takes the range of each input when it runs, and multiplies integers: ONNX
    Runtime has kernels for both on the CPU only.
    """
    spec = bundle.part(part)
    if part != "segmenter" or spec is None or spec.precision != "int8":
        return ""
    return (
        f"the learned segmenter {spec.name} is in int8, for which ONNX Runtime has kernels on the CPU only: "
        "export it with `--precision fp16` for a GPU"
    )
