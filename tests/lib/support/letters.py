"""An embedder and a segmenter by letters, for texts whose matches are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vcs_runtime import TextError

RED = "a red car|the green door|one white cup|his black cat"
BLUE = "a blue car|the yellow door|one brown cup|his orange cat"


class Letters:
    """An embedder that counts characters, so that similar letters are near; it refuses "no"."""

    identity = "letters@1"

    def embed(self, texts: list[str]) -> npt.NDArray[np.float64]:
        if "no" in texts:
            raise TextError("no text")
        return (
            np.array([[text.count(chr(code)) for code in range(97, 123)] for text in texts]) + 1e-3
        )


class Bars:
    """A segmenter that cuts at bars."""

    identity = "bars@1"

    def split(self, texts: list[str]) -> list[list[str]]:
        return [text.split("|") for text in texts]
