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
    # Bytes of answers that the system buffers for a client that reads nothing. Linux doubles them.
    _send_buffer = 1 << 17
    _max_early = 1 << 16  # bytes of further requests that may come before the answer to the first
    _timer: asyncio.TimerHandle | None = None
    _unsent: float = math.inf
    _full = False  # more is unsent than the system's buffer takes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers, or close the connection if there are too many.

        One address may hold 7 of 8 connections, so that others are still answered.
        """
        super().connection_made(transport)
        if channel := transport.get_extra_info("socket"):
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        if self._too_many():
            transport.abort()
        else:
            self._watch()

    def _too_many(self) -> bool:
        most = self.limits.connections
        if len(self.connections) > most:
            return True
        host = _host(self)
        from_host = sum(_host(connection) == host for connection in self.connections)
        return from_host > most - most // 8

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, which would keep the connection in memory."""
        self._stop()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Stop waiting for headers if they are complete."""
        super().handle_events()
        if self._is_answering() and self.conn.their_state is h11.DONE:
            # If the next request comes early, uvicorn stops reading, and would not notice that the
            # client disconnects.
            if len(self.conn.trailing_data[0]) > self._max_early:
                self.transport.abort()
            else:
                self.flow.resume_reading()
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

        The application limits the time in which a body arrives.
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


def _host(connection: asyncio.Protocol) -> str:
    """Return the address of a connection's client; "" if it is not known."""
    client: tuple[str, int] | None = getattr(connection, "client", None)
    return client[0] if client else ""


def limited(limits: Limits) -> type[Connection]:
    """Return the class of connections with these limits."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
