"""The cluster: connecting to one or starting one, and refusing what it can never run.

Ray waits for ever, without a word, for CPUs and GPUs that no machine has, and a pool of actors that takes
every CPU leaves none for the task that reads. So a job is held against what the cluster has before it starts.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from vcs_runtime.errors import DeviceError

# Read when Ray is imported. A cluster of one machine has nothing to say to others: with the first of these,
# named after the systems where it is the default, Ray's servers listen on the loopback interface alone. A
# token keeps the machine's other users out. And actors are as nice as this process, not 15 more as Ray has
# it: on a machine with other work that would be a tenth of the speed.
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_worker_niceness": "0"}
_TOKEN = "RAY_AUTH_TOKEN"
_CONNECT_S = 10.0


@dataclass(frozen=True)
class Needs:
    """What a pool takes: `actors`, each with `cpus` CPUs (its threads) and `gpus` GPUs."""

    actors: int
    cpus: int = 1
    gpus: int = 0

    @classmethod
    def of(cls, device: str, actors: int | None = None, threads: int | None = None) -> Needs:
        """What a pool on `device` takes of the cluster that Ray is connected to.

        actors   default: as many as fit
        threads  CPUs of an actor; default: 1

        An actor has a GPU of its own where `device` names one; with "auto", where the cluster has any.
        Raises DeviceError, in a sentence, for what the cluster can never run. ValueError for a device
        "cuda:1": Ray chooses the GPU, and an actor sees no other.
        """
        match = re.fullmatch(r"(\w+):(\d+)", device)
        if match and int(match[2]):
            raise ValueError(f"device: Ray chooses the GPU of an actor: '{match[1]}:0', not {device!r}")
        nodes = _nodes()
        gpu = bool(match) or (device == "auto" and any(node.get("GPU", 0) >= 1 for node in nodes))
        needs = cls(actors or 1, threads or 1, int(gpu))
        needs.check()
        return needs if actors else replace(needs, actors=needs._room(nodes))

    def check(self, actors: int | None = None) -> None:
        """Raise DeviceError, in a sentence, unless the cluster can run `actors` (default: all) of these."""
        wanted = self.actors if actors is None else actors
        nodes = _nodes()
        if self.gpus and not any(node.get("GPU", 0) >= self.gpus for node in nodes):
            raise DeviceError(f"no machine of the Ray cluster ({_offers(nodes)}) offers a GPU")
        if (room := self._room(nodes)) < wanted:
            gpu = " and a GPU" if self.gpus else ""
            raise DeviceError(
                f"actors: {wanted} are asked for; with {self.cpus} CPUs{gpu} each, and one CPU left free for "
                f"reading, the Ray cluster ({_offers(nodes)}) has room for {room}, and would wait for ever"
            )

    def _room(self, nodes: list[Mapping[str, float]]) -> int:
        """How many actors fit, each on one machine, with a CPU of the cluster to spare."""
        fitting = sum(
            int(
                min(
                    node.get("CPU", 0) // self.cpus,
                    node.get("GPU", 0) // self.gpus if self.gpus else math.inf,
                )
            )
            for node in nodes
        )
        spare = (sum(node.get("CPU", 0) for node in nodes) - 1) // self.cpus
        return max(0, min(fitting, int(spare)))


def _nodes() -> list[Mapping[str, float]]:
    """What each machine of the cluster offers, the one with the most CPUs first: Ray has no order."""
    found = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
    return sorted(found, key=lambda offer: -float(offer.get("CPU", 0)))


def _offers(nodes: list[Mapping[str, float]]) -> str:
    return "; ".join(
        f"{node.get('CPU', 0):g} CPUs" + (f", {node['GPU']:g} GPUs" if node.get("GPU") else "")
        for node in nodes
    )


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Be connected to a Ray cluster: that at `address`, or $RAY_ADDRESS, or a fresh one on this machine.

    address  "auto" (the cluster that this machine belongs to) or "HOST:PORT"

    A fresh one sends no usage statistics, has no dashboard, listens on the loopback interface alone, asks for
    a token, and ends with the block. The process keeps these settings: one that does nothing else with Ray.
    Raises DeviceError: no Ray, or no cluster there.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address.startswith("ray://"):
        raise DeviceError(
            f"{address}: a Ray client is no part of the cluster: run this on one of its machines, with 'auto'"
        )
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address == "local":
        for name, value in {**_ALONE, _TOKEN: secrets.token_hex(32)}.items():
            os.environ.setdefault(name, value)
    ray: Any = import_ray()
    try:
        if match := re.fullmatch(r"(.+):(\d+)", address):
            # Ray itself would go on knocking for many minutes.
            socket.create_connection((match[1], int(match[2])), _CONNECT_S).close()
        ray.init(
            address=address, log_to_driver=False, logging_level="ERROR",
            **({"include_dashboard": False} if address == "local" else {}),
        )  # fmt: skip
    except (OSError, RuntimeError, ValueError) as error:
        raise DeviceError(f"no Ray cluster at {address!r}: {' '.join(str(error).split())}") from None
    try:
        yield
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """Ray, or a DeviceError that says which extra brings it."""
    try:
        import ray
    except ImportError as error:
        raise DeviceError(f"Ray cannot be imported ({error}): install `vcs-runtime[ray]`") from None
    return ray
