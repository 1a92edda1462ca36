"""Connections that cannot be held without end: time limits on headers, bodies and answers, and limits on their number.

uvicorn reads requests for as long as a client takes to send them. This protocol looks at each connection once a second:

    headers    must be complete `header_seconds` after the first byte, or after the connection began
    body       must be complete after body_seconds + bytes so far / body_rate; time in which the server does not read is free
    answer     something of what waits to be sent must leave within `write_seconds`

Of too many connections, in all or from one address, the one that waits longest for its client is closed, if there is one:
a person's request is complete within milliseconds, that of somebody who holds connections never is. If all are at work, the
new one is refused.
"""

import asyncio
from dataclasses import dataclass

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from labelchef.web.uploads import is_upload

_STEP = 1.0
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True)
class Limits:
    """How long and how many."""

    total: int = 1000
    """Connections in all."""
    per_address: int | None = 200
    """Connections from one address; None where a proxy is in front, whose address all have."""
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    body_rate: float = 16 * 1024.0
    """Bytes a second that a long upload must reach."""
    write_seconds: float = 30.0


def protocol(limits: Limits) -> type[asyncio.Protocol]:
    """What uvicorn makes for each connection."""

    class Bounded(BoundedProtocol):
        bounds = limits

    return Bounded


class BoundedProtocol(H11Protocol):
    """A connection under the limits `bounds`."""

    bounds: Limits = Limits()
    _since = 0.0
    """When the request began that is being received: with the connection, or with its first byte."""
    _received = 0
    """Bytes since then."""
    _unsent: tuple[int, float] = (0, 0.0)
    """Bytes that wait to be sent, and when they were last seen to become fewer."""
    _ticking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connects: make room, or refuse."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._ticking = self.loop.call_later(_STEP, self._tick)
        found, most = len(self.connections), self.bounds.per_address
        if found > self.bounds.total:
            self._make_room(self._others())
        elif most is not None and found > most and len(near := self._others(near=True)) >= most:
            self._make_room(near)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        if self._ticking is not None:
            self._ticking.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self.conn.their_state is h11.IDLE and not self._received:
            self._since = self.loop.time()
        self._received += len(data)
        before = self.conn.their_state
        super().data_received(data)
        if before is h11.SEND_BODY and self.conn.their_state is h11.IDLE:  # the rest of a body that was answered before
            self._next_request()

    def on_response_complete(self) -> None:
        """An answer is out; the next request begins with its first byte."""
        if self.conn.their_state is h11.DONE:
            self._next_request()
        super().on_response_complete()

    def _next_request(self) -> None:
        self._received = len(self.conn.trailing_data[0])
        self._since = self.loop.time()

    @property
    def waits_for_client(self) -> bool:
        """Whether the server has nothing to do for this connection until its client sends more; uploads of leads are spared."""
        if self.conn.their_state is h11.IDLE:
            return True
        if self.conn.their_state is not h11.SEND_BODY:
            return False
        at_work = not self.cycle.response_complete and is_upload(self.scope["method"], self.scope["path"])
        return not at_work

    def _others(self, *, near: bool = False) -> "list[BoundedProtocol]":
        """The other connections; with `near`, those from the same address."""
        found = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
        return [one for one in found if one._address == self._address] if near else found

    @property
    def _address(self) -> str | None:
        return None if self.client is None else self.client[0]

    def _make_room(self, among: "list[BoundedProtocol]") -> None:
        waiting = [one for one in among if one.waits_for_client and not one.transport.is_closing()]
        if waiting:
            min(waiting, key=lambda one: one._since).transport.abort()
        else:
            self.transport.write(_REFUSED)
            self.transport.close()

    def _tick(self) -> None:
        self._ticking = self.loop.call_later(_STEP, self._tick)
        now, bounds, state = self.loop.time(), self.bounds, self.conn.their_state
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent < self._unsent[0] or not self._unsent[0]:
            self._unsent = unsent, now
        waited = now - self._since
        if unsent and now - self._unsent[1] > bounds.write_seconds:
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif state is h11.IDLE and (self._received or self.cycle is None) and waited > bounds.header_seconds:
            self.transport.write(_TIMED_OUT)
            self.transport.close()
        elif state is h11.SEND_BODY and not self.flow.read_paused:
            if waited > bounds.body_seconds + self._received / bounds.body_rate:
                self.transport.abort()
        elif state is h11.SEND_BODY:
            self._since += _STEP  # the server does not read just now
