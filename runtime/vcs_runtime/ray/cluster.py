"""The Ray cluster: connecting to one or starting one, and checking that it can run a job.

Ray waits for ever, without a message, for CPUs and GPUs that no machine has. A pool of actors that
takes every CPU leaves none for the task that reads. So a job is checked against the cluster before
it starts.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from vcs_runtime.errors import DeviceError
from vcs_runtime.inference.device import split_device
from vcs_runtime.util import process
from vcs_runtime.util.extras import require

# Ray reads these settings when it is imported. With the first one, named after the systems where it
# is the default, Ray's servers listen on the loopback interface alone. A token keeps other users of
# the machine out. Actors get the niceness of this process; with Ray's default of 15 more, they lost
# nine tenths of their speed on a machine with other work.
_ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_worker_niceness": "0",
}
_TOKEN = "RAY_AUTH_TOKEN"
_CONNECT_S = 10.0


@dataclass(frozen=True)
class Needs:
    """The resources of a pool of actors.

    Attributes
    ----------
    actors
        Number of actors.
    cpus
        CPUs, and threads of the model, of each actor.
    gpus
        GPUs of each actor.
    """

    actors: int
    cpus: int = 1
    gpus: int = 0

    @classmethod
    def of(cls, device: str, actors: int | None = None, threads: int | None = None) -> Needs:
        """Compute the resources of a pool in the cluster to which Ray is connected.

        Parameters
        ----------
        device
            Device of the models. Each actor has its own GPU if `device` names one, or if `device`
            is "auto" and the cluster has GPUs.
        actors
            Number of actors. None: as many as fit the cluster.
        threads
            CPUs of an actor. None: 1.

        Returns
        -------
        Needs
            The resources.

        Raises
        ------
        DeviceError
            The cluster can never run this pool.
        ValueError
            `device` is "cuda:1" or "cuda:all": Ray chooses the GPU, and an actor sees no other. Or
            it is not the name of a device.
        """
        if device == "cuda:all":
            raise ValueError("device: each Ray actor has its own GPU: use 'cuda:0', not 'cuda:all'")
        kind, index = split_device(device)
        if index:
            raise ValueError(f"device: Ray chooses the GPU of an actor: '{kind}:0', not {device!r}")
        nodes = _nodes()
        in_cluster = any(node.get("GPU", 0) >= 1 for node in nodes)
        gpu = kind in ("cuda", "tensorrt") or (kind == "auto" and in_cluster)
        needs = cls(actors or 1, threads or 1, int(gpu))
        needs.check()
        if actors:
            return needs
        return replace(needs, actors=needs._room(nodes))

    def check(self) -> None:
        """Raise DeviceError unless the cluster can run these actors."""
        nodes = _nodes()
        if self.gpus and not any(node.get("GPU", 0) >= self.gpus for node in nodes):
            raise DeviceError(f"no machine of the Ray cluster ({_offers(nodes)}) offers a GPU")
        room = self._room(nodes)
        if room < self.actors:
            gpu = " and a GPU" if self.gpus else ""
            raise DeviceError(
                f"actors: {self.actors} do not fit: with {self.cpus} CPUs{gpu} for each, and one"
                f" CPU for reading, the Ray cluster ({_offers(nodes)}) has room for {room}"
            )

    def _room(self, nodes: list[Mapping[str, float]]) -> int:
        """Return how many actors fit, each on one machine, with one CPU of the cluster free."""
        fitting = 0
        cpus = 0.0
        for node in nodes:
            room = node.get("CPU", 0) // self.cpus
            if self.gpus:
                room = min(room, node.get("GPU", 0) // self.gpus)
            fitting += int(room)
            cpus += node.get("CPU", 0)
        spare = int((cpus - 1) // self.cpus)
        return max(0, min(fitting, spare))


def _nodes() -> list[Mapping[str, float]]:
    """Return the resources of each machine of the cluster, the one with the most CPUs first."""
    offers = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
    return sorted(offers, key=lambda offer: -float(offer.get("CPU", 0)))


def _offers(nodes: list[Mapping[str, float]]) -> str:
    offers = []
    for node in nodes:
        offer = f"{node.get('CPU', 0):g} CPUs"
        if node.get("GPU"):
            offer += f", {node['GPU']:g} GPUs"
        offers.append(offer)
    return "; ".join(offers)


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Connect to a Ray cluster for a `with` block.

    A new cluster on this machine sends no usage statistics, has no dashboard, listens on the
    loopback interface alone, requires a token, and ends with the block. These settings stay in the
    environment of the process, which therefore should not use Ray for anything else.

    Parameters
    ----------
    address
        "auto" (the cluster of this machine) or "HOST:PORT". None: $RAY_ADDRESS, or a new cluster.

    Yields
    ------
    None
        Ray is connected.

    Raises
    ------
    DeviceError
        There is no cluster at this address, a new one does not start, or Ray was imported before a
        new one could be set up.
    MissingExtraError
        Ray is not installed.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address.startswith("ray://"):
        raise DeviceError(
            f"{address}: a Ray client is not part of the cluster: use 'auto' on one of its machines"
        )
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address == "local":
        _choose_settings()
    ray: Any = import_ray()
    try:
        _start(ray, address)
    except Exception as error:  # Ray raises some errors as plain exceptions
        reason = " ".join(str(error).split())
        if address == "local":
            raise DeviceError(
                f"Ray did not start on this machine: {reason.removesuffix('.')}: try again when the"
                " machine has less to do, or start Ray yourself (`ray start --head`) and give the"
                " address 'auto'"
            ) from None
        raise DeviceError(f"no Ray cluster at {address!r}: {reason}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _choose_settings() -> None:
    """Set up the environment of a new cluster. Raises DeviceError if Ray was imported before."""
    if "ray" in sys.modules and not os.environ.keys() >= _ALONE.keys():
        raise DeviceError(
            "Ray was imported before `connected()` could choose its settings: import Ray later"
        )
    for name, value in _ALONE.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault(_TOKEN, secrets.token_hex(32))


def _start(ray: Any, address: str) -> None:
    """Connect to the cluster at an address, or start one for the address "local"."""
    host_and_port = re.fullmatch(r"(.+):(\d+)", address)
    if host_and_port:
        # Ray itself would retry for many minutes.
        host, port = host_and_port.groups()
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        settings["include_dashboard"] = False
    with _silent_core() if process.is_command else nullcontext():
        ray.init(address=address, **settings)


@contextmanager
def _silent_core() -> Iterator[None]:
    """Start Ray's core without its warnings about Ray Data's pools and about Ray's settings.

    Errors that end a job are also raised as exceptions.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    standard_error = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)


def import_ray() -> Any:
    """Import Ray. Raises MissingExtraError."""
    return require("ray", "ray", "scoring on Ray")
