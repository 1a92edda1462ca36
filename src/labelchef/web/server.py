"""Run the app with uvicorn: one process for the requests and the worker."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from labelchef.domain.errors import InvalidInputError, LabelchefError
from labelchef.services.people import accounts
from labelchef.services.worker import Worker
from labelchef.services.workspace import open_workspace
from labelchef.web.app import create_app
from labelchef.web.options import ServeOptions, check_binding

_SECONDS_TO_STOP = 5


class _Server(uvicorn.Server):
    """Answers the long polls when it is told to stop, so that it stops at once."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._application = app
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop."""
        super().handle_exit(sig, frame)
        hub = getattr(self._application.state, "hub", None)
        if hub is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(hub.release)


def serve(options: ServeOptions, ready: Callable[[str], None], path: str = "/") -> None:
    """Serve until interrupted; `ready` gets the address to open: on a laptop, a one-time link that leads to `path`."""
    check_binding(options)
    with open_workspace(options.home, options.database) as ws, _listening(options) as listener:
        if options.team and not accounts.has_lead(ws):
            raise InvalidInputError(
                "no lead has an account yet; make one first: labelchef users add NAME --role lead", code="accounts"
            )
        port = listener.getsockname()[1]
        options = options.model_copy(update={"port": port})
        app = create_app(ws, options, work=False)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=options.https,
            timeout_graceful_shutdown=_SECONDS_TO_STOP,
        )
        shown = f"[{options.host}]" if ":" in options.host else options.host
        address = f"{'https' if options.https else 'http'}://{shown}:{port}"
        if options.team:
            address += path
        else:
            there = "" if path == "/" else f"&then={quote(path, safe='/')}"
            address += f"/start?token={accounts.create_link(ws)}{there}"
        server = _Server(config, app)
        with Worker(ws) as worker, contextlib.suppress(KeyboardInterrupt):
            app.state.worker = worker
            threading.Thread(target=_announce, args=(server, ready, address), daemon=True).start()
            server.run(sockets=[listener])
        if not server.started:
            raise LabelchefError("the server could not start; its log above says why", code="serve")


def _announce(server: uvicorn.Server, ready: Callable[[str], None], address: str) -> None:
    pause = threading.Event()
    while not server.started:
        if server.should_exit or pause.wait(0.02):
            return
    ready(address)


@contextlib.contextmanager
def _listening(options: ServeOptions) -> Iterator[socket.socket]:
    """The socket, bound before anything else is done."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # asyncio sets TCP_NODELAY only where TCP is named
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host.strip("[]"), options.port))
        except (OSError, UnicodeError, TypeError) as error:
            raise InvalidInputError(
                f"port {options.port} of {options.host} cannot be used: {getattr(error, 'strerror', None) or error}; name "
                "another --port or --host",
                code="port",
            ) from None
        listener.listen(2048)
        yield listener
    finally:
        listener.close()
