"""Encoders that no graph here implements: exported by optimum, in a separate environment.

optimum-onnx needs PyTorch and an old release of transformers. Neither is imported here. Another
interpreter, which the user names, is started on the checkpoint with the hub switched off, and
writes a plain ONNX file. Pooling, dense layers and normalisation are appended as in other graphs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from vcs_export.checkpoint.sentence_folder import SentenceFolder
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.graph.builder import GraphBuilder
from vcs_export.graph.encoder import save_sentence
from vcs_export.graph.pooling import pooled
from vcs_export.graph.transformer import INPUTS

OPSET = 18
"""The oldest operator set that optimum writes. The project's graphs have 17."""

HIDDEN = "last_hidden_state"
TYPES = "token_type_ids"
EXPORTER = "optimum.exporters.onnx"
HOW = (
    "it is in no extra, because it needs PyTorch: make a separate environment, `python -m venv"
    " optimum-env`, then `optimum-env/bin/pip install torch 'transformers<4.58' optimum-onnx"
    " onnxruntime`, and name it: --optimum-python optimum-env/bin/python"
)

# Nothing is downloaded: a checkpoint is complete, or it is refused.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
_LOOK = (
    "import sys; from importlib.util import find_spec; "
    f"sys.exit(not all(map(find_spec, ('torch', 'transformers', {EXPORTER!r}))))"
)


def write_by_optimum(
    folder: Path, sentence: SentenceFolder, model: Path, weights: Path, python: Path | None
) -> None:
    """Write the graph of an encoder by optimum, and its weights beside it.

    Inputs and output are the same as in `vcs_export.graph.encoder.write_encoder`. `python` is an
    interpreter that has optimum-onnx, None for this one. Raises ExportError if optimum is missing
    or fails, and CheckpointError if its graph is unsuitable.
    """
    interpreter = str(python) if python else sys.executable
    # The packages are only searched for: importing them would take as long as an export.
    if _run(interpreter, "-c", _LOOK).returncode:
        raise ExportError(
            f"{folder}: this model needs optimum, which {interpreter} does not have; {HOW}"
        )
    with tempfile.TemporaryDirectory(prefix="vcs-runtime-") as work:
        done = _run(
            interpreter,
            "-m",
            EXPORTER,
            "--model",
            str(folder.resolve()),
            "--task",
            "feature-extraction",
            "--library",
            "transformers",
            "--framework",
            "pt",
            "--opset",
            str(OPSET),
            "--dtype",
            "fp32",
            "--device",
            "cpu",
            work,
        )
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            reason = lines[-1] if lines else f"exit status {done.returncode}"
            raise ExportError(f"{folder}: optimum could not export it: {reason}")
        append_sentence(Path(work, "model.onnx"), sentence, model, weights)


def append_sentence(source: Path, sentence: SentenceFolder, model: Path, weights: Path) -> None:
    """Append pooling and the steps after it to a bare transformer, and write the graph.

    The transformer's inputs are `input_ids`, `attention_mask` and perhaps `token_type_ids`, which
    become zeros inside. Its output is `last_hidden_state`. Another graph raises CheckpointError.
    """
    try:
        loaded = ir.load(source)
    except Exception as error:  # the parser has no error class for damaged bytes
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{source.name} of optimum: not an ONNX file: {reason}") from None
    graph = loaded.graph
    inputs = {str(value.name): value for value in graph.inputs}
    outputs = {str(value.name): value for value in graph.outputs}
    if not set(INPUTS) <= set(inputs) <= {*INPUTS, TYPES} or HIDDEN not in outputs:
        raise CheckpointError(
            f"the graph of optimum has the inputs {', '.join(inputs)} and the outputs"
            f" {', '.join(outputs)}: an encoder has the inputs {', '.join(INPUTS)}, and perhaps"
            f" {TYPES}, and the output {HIDDEN}"
        )
    opset = loaded.opset_imports.get("")
    if opset != OPSET or loaded.functions:
        raise CheckpointError(
            f"the graph of optimum has opset {opset} or functions: {OPSET} was asked for"
        )
    hidden = outputs[HIDDEN]
    width = hidden.shape[-1] if hidden.shape else None
    if isinstance(width, int) and width != sentence.width:
        raise CheckpointError(
            f"the graph of optimum gives vectors of {width} numbers, the pooling expects"
            f" {sentence.width}"
        )
    # A head that only another output needs would stay in the weights.
    graph.outputs[:] = [hidden]
    RemoveUnusedNodesPass()(loaded)
    builder = GraphBuilder(OPSET)
    ids, mask = (builder.input(name, ("batch", "tokens")) for name in INPUTS)
    ir.convenience.replace_all_uses_with([inputs[name] for name in INPUTS], [ids, mask])
    if TYPES in inputs:
        ir.convenience.replace_all_uses_with(inputs[TYPES], builder.op("Sub", ids, ids))
    visible = builder.op("Cast", mask, to=int(ir.DataType.FLOAT))
    try:
        builder.absorb(graph)
    except ValueError as error:
        raise CheckpointError(f"the graph of optimum: {error}") from None
    vectors = pooled(builder, hidden, visible, sentence.pooling)
    save_sentence(builder, vectors, sentence, model, weights)


def _run(interpreter: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in isolated mode, without modules from the working directory or PYTHONPATH."""
    try:
        return subprocess.run(
            [interpreter, "-I", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **_OFFLINE},
            check=False,
        )
    except OSError as error:
        raise ExportError(f"{interpreter}: cannot be started: {error.strerror}; {HOW}") from None
