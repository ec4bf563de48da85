"""A kit of tiny packages, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Finished, vcs
from support.tiny_wheels import pip_offline, write_index, write_own


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_index(tmp_path_factory.mktemp("kit") / "index")


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_own(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="session")
def make_kit(index: Path, own: Path, tiny_bundle: Path) -> Callable[..., Finished]:
    """Run `vcs-runtime kit` with the tiny index, and a tiny bundle unless another is named."""

    def make(
        output: Path, *options: object, wheel: Path = own, bundle: Path = tiny_bundle
    ) -> Finished:
        named = ["--wheel", wheel, "--bundle", bundle]
        return vcs("kit", "-o", output, *named, *options, **pip_offline(index))

    return make


@pytest.fixture(scope="session")
def made(make_kit: Callable[..., Finished], tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The command that made `kit`."""
    return make_kit(tmp_path_factory.mktemp("made") / "kit")


@pytest.fixture(scope="session")
def kit(made: Finished) -> Path:
    """A kit for this machine, which no test changes."""
    assert made.code == 0, made.stderr
    return Path(made.stdout.removesuffix("\n"))
