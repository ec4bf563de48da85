"""What tests need of extras that another process asks for, which `conftest.py` does not see."""

from __future__ import annotations

import importlib.util

import pytest


def needs(library: str) -> pytest.MarkDecorator:
    """Skip a test, or one of its parameters, where a library is missing."""
    return pytest.mark.skipif(importlib.util.find_spec(library) is None, reason=f"needs {library}")


PARQUET = pytest.param(".parquet", marks=needs("pyarrow"))
