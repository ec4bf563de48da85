"""The real server on a tiny bundle, over HTTP and gRPC, in the session `triton` of `make nox`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import triton_server
from support.stories import story
from support.triton_server import Server, serve
from vcs_runtime import Options, Scorer, ScorerConfig
from vcs_runtime.triton.backend import SCORES, TEXTS
from vcs_runtime.triton.repository import Deployment, write_repository

if why := triton_server.why_not():
    pytest.skip(why, allow_module_level=True)

import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException

CLIENTS = {"http": http_client, "grpc": grpc_client}


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(repository, tmp_path_factory.mktemp("server")) as running:
        running.wait("vcs")
        yield running


def infer(server: Server, protocol: str, pairs: Sequence[tuple[bytes, bytes]]) -> Any:
    """Ask once, by a client of its own."""
    package = CLIENTS[protocol]
    with package.InferenceServerClient(f"127.0.0.1:{getattr(server, protocol)}") as client:
        inputs = []
        for name, texts in zip(("reference", "generated"), zip(*pairs, strict=True), strict=True):
            tensor = package.InferInput(name, [len(texts), 1], "BYTES")
            tensor.set_data_from_numpy(np.array([[text] for text in texts], np.object_))
            inputs.append(tensor)
        return client.infer("vcs", inputs)


def encoded(seeds: range) -> list[tuple[bytes, bytes]]:
    return [(story(i).encode(), story(i + 50).encode()) for i in seeds]


@pytest.mark.parametrize("protocol", CLIENTS)
def test_scores_are_those_of_the_scorer_to_the_last_bit(
    server: Server, protocol: str, tiny_bundle: Path, options: Options
) -> None:
    answer = infer(server, protocol, encoded(range(4)))
    with Scorer.open(tiny_bundle, "cpu") as scorer:
        expected = list(scorer.iter_scores([(story(i), story(i + 50)) for i in range(4)], options))
    for name in SCORES:
        assert answer.as_numpy(name)[:, 0].tolist() == [getattr(r.scores, name) for r in expected]
    assert answer.as_numpy("signature")[:, 0].tolist() == [expected[0].signature.encode()] * 4
    assert answer.as_numpy("error")[:, 0].tolist() == [b""] * 4
    assert answer.as_numpy("flags")[:, 0].tolist() == [",".join(r.flags).encode() for r in expected]


@pytest.mark.parametrize("protocol", CLIENTS)
def test_one_bad_item_among_eight_clients_hurts_nobody(server: Server, protocol: str) -> None:
    good = encoded(range(1))
    [expected] = infer(server, protocol, good).as_numpy("vcs")[:, 0]
    together = threading.Barrier(8)

    def ask(number: int) -> list[tuple[float, bytes]]:
        together.wait()
        seen = []
        for _ in range(5):
            answer = infer(server, protocol, [(good[0][0], b"")] if number == 3 else good)
            seen.append((answer.as_numpy("vcs")[0, 0], answer.as_numpy("error")[0, 0]))
        return seen

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    for value, error in answers.pop(3):
        assert np.isnan(value)
        assert error == b"generated: the text is empty"
    assert {each for answer in answers for each in answer} == {(expected, b"")}
    with grpc_client.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        [statistics] = client.get_inference_statistics("vcs").model_stats
    assert statistics.execution_count < statistics.inference_count, "nothing was ever batched"


@pytest.mark.parametrize("protocol", CLIENTS)
def test_more_items_than_a_batch_holds_are_refused(server: Server, protocol: str) -> None:
    with pytest.raises(InferenceServerException, match="batch-size must be <= 4") as refused:
        infer(server, protocol, encoded(range(5)))
    if protocol == "grpc":
        assert "INVALID_ARGUMENT" in str(refused.value.status())
    assert infer(server, protocol, encoded(range(4))).as_numpy("vcs").shape == (4, 1)


def test_it_listens_on_the_loopback_only(server: Server) -> None:
    ours = {f"{port:04X}" for port in server.ports}
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            address, port = line.split()[1].split(":")
            if port in ours and line.split()[3] == "0A":
                listening.add((port, address))
    assert {port for port, _ in listening} == ours
    assert {address for _, address in listening} <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_the_configuration_is_one_of_tritons(repository: Path) -> None:
    config = text_format.Parse(
        (repository / "vcs/config.pbtxt").read_text("utf-8"), model_config_pb2.ModelConfig()
    )
    assert config.name == "vcs"
    assert config.backend == "python"
    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    assert [each.name for each in config.input] == ["reference", "generated"]
    assert [each.name for each in config.output] == [*SCORES, *TEXTS]
    assert {each.data_type for each in config.input} == {model_config_pb2.TYPE_STRING}
    [warm_up] = config.model_warmup
    for name in ("reference", "generated"):
        assert (repository / "vcs/warmup" / warm_up.inputs[name].input_data_file).is_file()


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda:1", "tensorrt:0"])
def test_every_device_and_any_name_of_a_folder_make_a_configuration(
    tiny_bundle: Path, tmp_path: Path, device: str
) -> None:
    odd = tmp_path / 'a "quoted" \\ folder, ünï'
    odd.symlink_to(tiny_bundle)
    cache = str(tmp_path / "tab\tnew\nline")
    write_repository(tmp_path / "models", Deployment(config=ScorerConfig(odd, device, cache)))
    config = text_format.Parse(
        (tmp_path / "models/vcs/config.pbtxt").read_text("utf-8"), model_config_pb2.ModelConfig()
    )
    [group] = config.instance_group
    gpu = device.startswith(("cuda", "tensorrt"))
    assert group.kind == (model_config_pb2.ModelInstanceGroup.KIND_GPU if gpu else group.KIND_CPU)
    assert list(group.gpus) == ([int(device[-1])] if gpu else [])
    assert config.parameters["bundle"].string_value == str(tiny_bundle.resolve())


def test_a_model_that_cannot_load_is_not_ready_and_says_why(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    write_repository(tmp_path / "models", Deployment(config=ScorerConfig(tiny_bundle, "cpu")))
    config = tmp_path / "models/vcs/config.pbtxt"
    config.write_text(
        config.read_text().replace(str(tiny_bundle.resolve()), str(tmp_path / "gone"))
    )
    (tmp_path / "server").mkdir()
    with serve(tmp_path / "models", tmp_path / "server", "--exit-on-error=false") as running:
        running.process.poll()
        for _ in range(600):
            if "failed to load 'vcs'" in running.log.read_text(errors="replace"):
                break
            threading.Event().wait(0.1)
        assert not running.ready("vcs")
        assert f"{tmp_path / 'gone'}: no such folder" in running.log.read_text(errors="replace")


def test_sigterm_stops_it_cleanly_and_frees_the_ports(repository: Path, tmp_path: Path) -> None:
    with serve(repository, tmp_path) as running:
        running.wait("vcs")
        answer = infer(running, "grpc", encoded(range(2)))
        assert not np.isnan(answer.as_numpy("vcs")).any()
        assert running.stop() == 0
        for port in running.ports:
            socket.create_server(("127.0.0.1", port)).close()
