"""Connections that a slow or greedy client cannot hold."""

from __future__ import annotations

import asyncio
import math
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from vcs_runtime.serve.limits import Limits


class Connection(H11Protocol):
    """A connection with limits on silence and number.

    uvicorn drops a connection that stays silent after an answer. But it waits for ever for the
    first headers, for headers that come one byte at a time, for the rest of a body that was
    refused, and for a client that asks much and reads nothing.
    """

    limits = Limits()
    # Bytes of answers that the system keeps for a client that reads nothing, and doubles.
    _kept = 1 << 17
    _early = 1 << 16  # bytes of further requests that may come before the answer to the first
    _timer: asyncio.TimerHandle | None = None
    _unsent: float = math.inf
    _full = False  # more is unsent than the system's buffer takes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers, or close the connection if there are too many.

        One address may hold 7 of 8 connections, so that others are still answered.
        """
        super().connection_made(transport)
        if channel := transport.get_extra_info("socket"):
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._kept)
        most = self.limits.connections
        clients = [getattr(each, "client", None) or ("",) for each in self.connections]
        own = [host for host, *_ in clients if host == (self.client or ("",))[0]]
        if len(clients) > most or len(own) > most - most // 8:
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, which would keep the connection in memory."""
        self._stop()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Stop waiting for headers if they are complete."""
        super().handle_events()
        if self._is_answering() and self.conn.their_state is h11.DONE:
            # uvicorn reads no further where the next request comes early, and would not see the
            # client go.
            too_much = len(self.conn.trailing_data[0]) > self._early
            (self.transport.abort if too_much else self.flow.resume_reading)()
        self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next headers."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read, although its request is still being answered."""
        super().pause_writing()
        self._full = True
        self._watch()

    def resume_writing(self) -> None:
        """Stop waiting for the client to read."""
        super().resume_writing()
        self._full = False
        self._stop()
        self._watch()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        """Limit the time in which no request is being answered.

        The application limits that of bodies.
        """
        if self._is_answering() and not self._full:
            self._stop()
        elif self._timer is None:
            self._unsent = math.inf
            self._timer = self.loop.call_later(self.limits.read_s, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:  # the client still reads its answer
            self._unsent = unsent
            self._timer = self.loop.call_later(self.limits.read_s, self._late)
        else:
            self.transport.abort()


def limited(limits: Limits) -> type[Connection]:
    """Return the class of connections with these limits."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
