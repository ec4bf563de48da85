"""Forks of a process whose other threads open models."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest

from support.stories import story
from support.waiting import HANGS_AFTER_S
from vcs_runtime import Embedder

pytestmark = [
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork"
    ),
    # Forking beside threads is just what is tested.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def _embed(bundle: Path) -> bytes:
    with Embedder.open(bundle, device="cpu", threads=1) as embedder:
        return embedder.embed([story(1)]).tobytes()


def _embed_the_same(bundle: Path, expected: bytes) -> None:
    assert _embed(bundle) == expected


@pytest.mark.slow
def test_a_child_forked_while_models_are_opened_opens_its_own(tiny_bundle: Path) -> None:
    expected, ended = _embed(tiny_bundle), threading.Event()

    def open_models() -> None:
        while not ended.is_set():
            _embed(tiny_bundle)

    opening = [threading.Thread(target=open_models) for _ in range(2)]
    for thread in opening:
        thread.start()
    fork = multiprocessing.get_context("fork")
    try:
        for number in range(80):  # one in 25 met a lock
            child = fork.Process(target=_embed_the_same, args=(tiny_bundle, expected))
            child.start()
            child.join(HANGS_AFTER_S)
            if child.is_alive():
                child.kill()
                child.join()
            assert child.exitcode == 0, number
    finally:
        ended.set()
        for thread in opening:
            thread.join()
