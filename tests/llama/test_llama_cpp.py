"""llama-cpp-python's real server on a tiny random model, in the session `llama` of `make nox`."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from socket import socket

import numpy as np
import pytest

from support.tiny_gguf import CONTINUED, NEW_TURN, write_gguf
from vcs_runtime.errors import ModelError
from vcs_visil import probe
from vcs_visil.models.servers import VLLM, Stepping

ALL = 400  # more tokens than the model has


def serve(model: Path) -> Iterator[str]:
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [
        sys.executable,
        *f"-m llama_cpp.server --model {model} --port".split(),
        url.rpartition(":")[2],
        *"--logits_all true --n_ctx 4096 --n_threads 1".split(),
    ]
    with (
        (model.parent / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,
    ):
        try:
            for _ in range(600):
                assert server.poll() is None, (model.parent / "log").read_text()
                try:
                    urllib.request.urlopen(f"{url}/v1/models", timeout=5).close()
                    break
                except urllib.error.URLError:
                    time.sleep(0.1)
            yield url
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", CONTINUED)


@pytest.fixture(scope="module")
def continuing(model: Path) -> Iterator[str]:
    yield from serve(model)


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from serve(write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", NEW_TURN))


def test_stepping_equals_direct_evaluation(model: Path, continuing: str) -> None:
    from llama_cpp import Llama

    prompt, answer = "Find the words. A [MASK] in the street.", "man drives sedan river"
    forced = Stepping(continuing, top=ALL).force([prompt], answer)
    direct = Llama(str(model), logits_all=True, n_ctx=512, n_threads=1, verbose=False)
    before = direct.tokenize(f"<user>{prompt}<reply>".encode(), add_bos=False, special=True)
    ids = direct.tokenize(answer.encode(), add_bos=False)
    assert [direct.detokenize([i]).decode() for i in ids] == list(forced.tokens)
    assert len(ids) > 4
    assert forced.prompt_tokens == len(before)
    direct.eval(before + ids)
    logits = np.asarray(direct.scores[len(before) - 1 : len(before) + len(ids) - 1], np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert forced.logprobs == pytest.approx(logs[np.arange(len(ids)), ids], abs=1e-5)


def test_a_server_that_goes_on_with_a_turn_passes_the_probe_of_texts(continuing: str) -> None:
    found = probe(Stepping(continuing, top=ALL), images=False)
    assert [check.name for check in found] == ["numbers", "same", "text", "greedy", "chain"]
    assert all(check.passed for check in found), found


def test_a_text_model_that_reads_image_files_as_text_fails_the_probe(continuing: str) -> None:
    last = probe(Stepping(continuing, top=ALL))[-1]
    assert (last.name, last.passed) == ("images", False)
    assert "their files are read as text" in last.detail


def test_a_server_that_begins_a_new_turn_is_refused(beginning: str) -> None:
    last = probe(Stepping(beginning, top=ALL), images=False)[-1]
    assert (last.name, last.passed) == ("numbers", False)
    assert "begins a new turn instead of going on" in last.detail


def test_a_server_that_scores_no_prompts_is_refused(continuing: str) -> None:
    with pytest.raises(ModelError, match="the server does not score prompts"):
        probe(VLLM(continuing), images=False)
