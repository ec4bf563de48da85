"""What Triton's Python backend runs: requests of text pairs in, scores out.

The server imports this module by a repository's `model.py`. A batch is whatever clients happened to send at
the same time; so what is wrong with an item is said in the item's `error`, and its scores are NaN: raising
would fail the other clients' requests, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_numba import Params, Scores
from vcs_runtime.scoring.columns import to_columns
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.scorer import Scorer

INPUTS = ("reference", "generated")
SCORES = Scores._fields
TEXTS = ("error", "signature")


class TritonPythonModel:
    """The model as Triton's Python backend wants it: `initialize`, `execute`, `finalize`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the scorer that the parameters in `config.pbtxt` describe. What it raises fails the loading.

        args  strings by name, of which `model_config` (JSON), `model_repository` and `model_version` (the
              folder of this model, for a bundle that lies in it), `model_instance_kind` and
              `model_instance_device_id` (which GPU) are used
        """
        import triton_python_backend_utils as pb_utils

        self._pb_utils = pb_utils
        parameters = {
            name: value["string_value"]
            for name, value in json.loads(args["model_config"])["parameters"].items()
        }
        opening = json.loads(parameters["opening"])
        scoring = json.loads(parameters["scoring"])
        self._options = Options(**{**scoring, "params": Params(**scoring["params"])})
        device = parameters["device"]
        if args["model_instance_kind"] == "GPU":
            device = f"{device.partition(':')[0]}:{args['model_instance_device_id']}"
        # A bundle that was copied is named relative to the folder of the model's version.
        bundle = Path(args["model_repository"], args["model_version"], parameters["bundle"])
        self._scorer = Scorer.open(bundle, device, **opening)
        chosen = self._scorer.embedder.device
        pb_utils.Logger.log_info(f"vcs-runtime: {chosen.engine} ({chosen.reason}): {self._scorer.signature}")

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Score all items of all requests together; a response each, in order.

        An item's outputs are float64 scores (NaN if it has none), its `error` ("" if it has scores), and the
        `signature`. A request gets an error in place of outputs only where the machine fails: each is then
        tried alone, as one may be too large for a GPU's memory and the others not.
        """
        try:
            counts, pairs = [], []
            for request in requests:
                columns = [self._texts(request, name) for name in INPUTS]
                counts.append(len(columns[0]))
                pairs += list(zip(*columns, strict=True))
            results = list(self._scorer.iter_scores(pairs, self._options))
        except Exception as error:
            if len(requests) > 1:
                return [response for request in requests for response in self.execute([request])]
            message = f"{type(error).__name__}: {error}"
            self._pb_utils.Logger.log_error(f"vcs-runtime: {message}")
            return [self._pb_utils.InferenceResponse(error=self._pb_utils.TritonError(message))]
        ends = np.cumsum(counts)
        return [self._response(results[end - count : end]) for count, end in zip(counts, ends, strict=True)]

    def finalize(self) -> None:
        """Give the models' memory back; the server calls it when it unloads the model or stops."""
        self._scorer.close()

    def _texts(self, request: Any, name: str) -> list[str]:
        """The texts of an input `(items, 1)`. What is no UTF-8 becomes surrogates, which are refused."""
        values = self._pb_utils.get_input_tensor_by_name(request, name).as_numpy()
        return [value.decode("utf-8", "surrogateescape") for value in values.reshape(-1)]

    def _response(self, results: Sequence[Result]) -> Any:
        outputs = [
            self._pb_utils.Tensor(name, values[:, None]) for name, values in output_arrays(results).items()
        ]
        return self._pb_utils.InferenceResponse(output_tensors=outputs)


def output_arrays(results: Sequence[Result]) -> dict[str, npt.NDArray[Any]]:
    """The outputs of the model by name, `(len(results),)` each: float64 scores, and bytes."""
    columns = to_columns(results)
    texts = {name: [text.encode("utf-8", "backslashreplace") for text in columns[name]] for name in TEXTS}
    return {
        **{name: columns[name] for name in SCORES},
        **{name: np.array(values, np.object_) for name, values in texts.items()},
    }
