"""Checks of every request (host name, size of the body) and security headers of every response."""

from collections.abc import Callable, Iterable

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelchef.base.errors import LabelchefError
from labelchef.server.web.problems import WebError, of_error
from labelchef.server.web.uploads import is_large, is_upload
from labelchef.server.web.watching import PROBES

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "manifest-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
"""For uploaded files and charts: shown as an image, never run as a script, even when opened directly."""

MAX_BODY = 2**16
"""The largest body of a request: a vote with the longest note fits."""
MAX_LEAD_BODY = 2**20
"""The largest body of rules, corrections of files and actions on many items, which leads send."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "Cache-Control": "no-store",
    "Content-Security-Policy": PAGE_POLICY,
}


class Shield:
    """ASGI middleware around the whole app."""

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], https: bool, max_upload: int, admit: Callable[[Request], object]
    ) -> None:
        """`admit` raises if the person may not upload; nothing of the body is read before."""
        self._app = app
        self._hosts = frozenset(hosts)
        self._headers = {**_HEADERS, "Strict-Transport-Security": "max-age=31536000"} if https else _HEADERS
        self._max_upload = max_upload
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, then call the app."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        try:
            most = await self._most_bytes(request)
        except LabelchefError as error:
            await of_error(request, error)(scope, receive, guarded_send)
            return
        taken = 0

        async def counted_receive() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                return {"type": "http.disconnect"}
            return message

        await self._app(scope, counted_receive, guarded_send)

    async def _most_bytes(self, request: Request) -> int:
        """The most bytes the body may have; a wrong host, sender or size is refused."""
        probed = request.scope["path"] in PROBES  # by an address: they hold nothing that another site may not read
        if self._hosts and not probed and host_name(request.headers.get("host", "")) not in self._hosts:
            told = "this server does not answer to that host name; use the address it printed when it started"
            raise WebError(421, told, code="host")
        if "\x00" in request.scope["path"] or b"%00" in request.scope["query_string"]:
            raise WebError(422, "the address holds a null character, which cannot be stored; remove it", code="input")
        upload = is_upload(request.method, request.scope["path"])
        large = not upload and is_large(request.method, request.scope["path"])
        if upload or large:
            await run_in_threadpool(self._admit, request)
        most = self._max_upload if upload else MAX_LEAD_BODY if large else MAX_BODY
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            way_out = "; raise LABELCHEF_MAX_UPLOAD_MB or use a folder" if upload else ""
            raise WebError(413, f"the request is larger than {most // 1024} KiB{way_out}", code="size")
        return most


def host_name(host: str) -> str:
    """The name in a Host header, without the port.

    >>> host_name("LOCALHOST:8000"), host_name("[::1]:80")
    ('localhost', '[::1]')
    """
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
