"""The model of Triton's Python backend: requests with text pairs in, scores out.

The server imports this module through the `model.py` of a repository. A batch holds items of
several clients, so a bad item gets NaN and an `error`: an exception would fail the requests of the
other clients too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_numba import Params
from vcs_runtime.scoring import score_table
from vcs_runtime.scoring.columns import to_columns
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Pair, Result
from vcs_runtime.scoring.scorer import Scorer

INPUTS = ("reference", "generated")
SCORES = score_table.NAMES
TEXTS = ("flags", "error", "signature")


class TritonPythonModel:
    """The class that Triton's Python backend needs: `initialize`, `execute` and `finalize`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the scorer that `config.pbtxt` describes. An exception fails the loading."""
        import triton_python_backend_utils as pb_utils

        self._pb_utils = pb_utils
        parameters = json.loads(args["model_config"])["parameters"]
        scoring = json.loads(parameters["scoring"]["string_value"])
        opening = json.loads(parameters["opening"]["string_value"])
        params = Params(**scoring.pop("params"))
        self._options = Options(params=params, **scoring)
        device = parameters["device"]["string_value"]
        if args["model_instance_kind"] == "GPU":
            device = f"{device.partition(':')[0]}:{args['model_instance_device_id']}"
        # The name of a copied bundle is relative to the folder of the model's version.
        name = parameters["bundle"]["string_value"]
        bundle = Path(args["model_repository"], args["model_version"], name)
        self._scorer = Scorer.from_config(ScorerConfig(bundle, device, **opening))
        chosen = self._scorer.embedder.device
        pb_utils.Logger.log_info(
            f"vcs-runtime: {chosen.provider_name} ({chosen.reason}): {self._scorer.signature}"
        )

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Score the items of all requests together.

        A request fails as a whole only if the machine fails. Each request of the batch is then
        tried alone, because a single one may be too large for the memory of a GPU. Scores are
        float64 (NaN with an error), flags are joined by commas.
        """
        try:
            results = self._score(requests)
        except Exception as error:
            if len(requests) == 1:
                return [self._failure(error)]
            responses = []
            for request in requests:
                responses += self.execute([request])
            return responses
        return [self._response(request_results) for request_results in results]

    def finalize(self) -> None:
        """Close the scorer; the server calls this when it unloads the model or stops."""
        self._scorer.close()

    def _score(self, requests: Sequence[Any]) -> list[list[Result]]:
        """Return the results of each request."""
        results: list[list[Result]] = []
        items: list[tuple[list[Result], Pair]] = []
        for request in requests:
            request_results: list[Result] = []
            results.append(request_results)
            items += [(request_results, pair) for pair in self._pairs(request)]
        blocks = self._scorer.stream(items, itemgetter(1), self._options)
        for (request_results, _), result, _ in chain.from_iterable(blocks):
            request_results.append(result)
        return results

    def _failure(self, error: Exception) -> Any:
        message = f"{type(error).__name__}: {error}"
        self._pb_utils.Logger.log_error(f"vcs-runtime: {message}")
        return self._pb_utils.InferenceResponse(error=self._pb_utils.TritonError(message))

    def _pairs(self, request: Any) -> Iterator[Pair]:
        references, generated = (self._texts(request, name) for name in INPUTS)
        return zip(references, generated, strict=True)

    def _texts(self, request: Any, name: str) -> list[str]:
        """Return the texts of an input `(items, 1)`.

        Invalid UTF-8 becomes surrogates, which are refused.
        """
        values = self._pb_utils.get_input_tensor_by_name(request, name).as_numpy()
        return [value.decode("utf-8", "surrogateescape") for value in values.reshape(-1)]

    def _response(self, results: Sequence[Result]) -> Any:
        tensor = self._pb_utils.Tensor
        outputs = [tensor(name, array[:, None]) for name, array in output_arrays(results).items()]
        return self._pb_utils.InferenceResponse(output_tensors=outputs)


def output_arrays(results: Sequence[Result]) -> dict[str, npt.NDArray[Any]]:
    """Return the model's outputs by name, each of shape `(len(results),)`.

    Scores are float64. Flags, errors and signatures are object arrays of bytes.
    """
    columns = to_columns(results)
    arrays = {name: columns[name] for name in SCORES}
    for name in TEXTS:
        texts = [text.encode("utf-8", "backslashreplace") for text in columns[name]]
        arrays[name] = np.array(texts, np.object_)
    return arrays
