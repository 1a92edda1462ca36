"""What is written down of every request: a line of the log and, if they are on, metrics. Every answer has an X-Request-ID.

An id that a proxy sent is taken over if it consists of hexadecimal digits and dashes, as UUIDs and nginx's `$request_id` do, so
that no other text gets into the log.
"""

import logging
import re
import secrets
import time
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelchef.base.events import Facts, Note, noting, tell

REQUEST_ID = "X-Request-ID"
IN_SCOPE = "labelchef.request"
"""Where the id of a request stands in its scope."""
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked by machines every few seconds: logged only where they fail."""
_ID = re.compile(r"[0-9A-Fa-f-]{8,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NO_ROUTE = "none"


class Meter(Protocol):
    """What counts requests."""

    def seen(self, method: str, route: str, status: int, seconds: float, note: Note) -> None:
        """A request was answered."""


class Watcher:
    """ASGI middleware around all others."""

    def __init__(self, app: ASGIApp, *, meter: Meter | None) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, then write down what it was."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = scope[IN_SCOPE] = request_id(Headers(scope=scope).get(REQUEST_ID))
        began, status = time.perf_counter(), 500

        async def marked_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request
            await send(message)

        with noting() as note:
            try:
                await self._app(scope, receive, marked_send)
            finally:
                self._write_down(scope, request, status, time.perf_counter() - began, note)

    def _write_down(self, scope: Scope, request: str, status: int, seconds: float, note: Note) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        if self._meter is not None:
            self._meter.seen(method, route, status, seconds, note)
        if route in PROBES and status < 400:
            return
        level = logging.ERROR if status >= 500 else logging.INFO
        facts: Facts = {
            "request": request,
            "method": method,
            "route": route,
            "status": status,
            "ms": round(1e3 * seconds, 2),
        }
        if note.code is not None:
            facts["code"] = note.code
        if note.campaign is not None:
            facts["campaign"] = note.campaign
        tell("request", level, **facts)


def request_id(sent: str | None) -> str:
    """The id that came with a request if it can be used, else a new one.

    >>> request_id("4bf92f35-77b3"), len(request_id("ann@example.org")), len(request_id(None))
    ('4bf92f35-77b3', 32, 32)
    """
    return sent if sent is not None and _ID.fullmatch(sent) else secrets.token_hex(16)
