"""Tiny random models, and images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vcs_visil import Image


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny_genai import write_model

    return write_model(tmp_path_factory.mktemp("genai") / "text", vision=False)


@pytest.fixture(scope="session")
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny_genai import write_model

    return write_model(tmp_path_factory.mktemp("genai") / "vision", vision=True)


@pytest.fixture(scope="session")
def pictures() -> list[Image]:
    """Four images, as large as the tiny vision model sees them."""
    draw = np.random.default_rng(5)
    return [Image.from_pixels(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)) for _ in range(4)]
