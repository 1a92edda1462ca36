"""The web application: shield, problems, routes, pages; served by uvicorn, with the worker in the same process or without."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import labelchef
from labelchef.base.errors import InvalidInputError, LabelchefError
from labelchef.server import worker as working
from labelchef.server.health import Readiness
from labelchef.server.people import accounts
from labelchef.server.web import pages, policies, probes, problems, processes
from labelchef.server.web.api import ROUTERS
from labelchef.server.web.live import Hub
from labelchef.server.web.metrics import Metrics
from labelchef.server.web.options import ServeOptions, check_binding
from labelchef.server.web.shield import Shield
from labelchef.server.web.watching import Watcher
from labelchef.server.workspace import Workspace, open_workspace

_ABOUT = (
    "Campaigns that clean weak labels. Sign in for a session cookie and send its CSRF token as X-CSRF-Token with every "
    "change, or send an API token as `Authorization: Bearer …`. Errors are problem details with a stable `code`. Lists "
    "come in pages: give `next` as `after`."
)


_MOST_HEADER_BYTES = 32 * 1024


def create_app(ws: Workspace, options: ServeOptions, *, work: bool = True) -> FastAPI:
    """The app over an open workspace; with `work` it moves the campaigns on itself."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.hub = Hub(lambda campaign: working.wait_for_change(ws, campaign, -1, 0.0), ws.signal)
        with contextlib.ExitStack() as stack:
            stack.callback(app.state.hub.close)
            stack.callback(app.state.readiness.close)
            stack.callback(ws.runs.close)
            stack.enter_context(ws.changes.listening())
            if work:
                app.state.worker = stack.enter_context(working.Worker(ws, options.parallel))
            yield

    app = FastAPI(
        title="labelchef",
        version=labelchef.__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )
    app.state.workspace = ws
    app.state.options = options
    look = lambda: probes.worker_check(ws, getattr(app.state, "worker", None))  # noqa: E731
    app.state.readiness = Readiness(ws, look, options.least_free_mb * 2**20)
    app.state.metrics = Metrics(ws, app.state.readiness) if options.metrics else None
    problems.install(app, pages.error_page)
    for router in (*ROUTERS, pages.routes, probes.routes):
        app.router.routes.extend(router.routes)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    app.add_middleware(
        Shield,
        hosts=options.allowed_hosts,
        https=options.https,
        max_upload=options.max_upload_mb * 2**20,
        admit=policies.admit_upload,
    )
    app.add_middleware(Watcher, meter=app.state.metrics)
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The document, with the problems' schema and the two ways to sign in."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        parts = schema.setdefault("components", {})
        told = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        parts["schemas"].update(told.pop("$defs", {}))
        parts["schemas"]["Problem"] = told
        for unused in ("HTTPValidationError", "ValidationError"):
            parts["schemas"].pop(unused, None)
        parts["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "An API token."},
            "session": {
                "type": "apiKey",
                "in": "cookie",
                "name": app.state.options.cookie,
                "description": "A session; changes need its CSRF token in X-CSRF-Token.",
            },
        }
        schema["security"] = [{"token": []}, {"session": []}]
        problems.fails(*problems.ELSEWHERE)
        schema["x-problem-codes"] = {str(status): codes for status, codes in sorted(problems.CODES.items())}
        app.openapi_schema = schema
    return app.openapi_schema


def configured(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    """How uvicorn serves the app."""
    return uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http="h11",
        limit_concurrency=options.connections,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=options.https,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
    )


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
    with open_workspace(options.home, options.database) as ws:
        processes.check_processes(options, is_sqlite=ws.database.is_sqlite)
        several = options.processes > 1
        with contextlib.closing(processes.bind(options, shared=several or options.share_port)) as listener:
            if options.team and not accounts.has_lead(ws):
                raise InvalidInputError(
                    "no lead has an account yet; make one first: labelchef users add NAME --role lead", code="accounts"
                )
            options = options.model_copy(update={"port": listener.getsockname()[1]})
            told = "" if options.parent else _address(ws, options, path)
            if not several:
                _serve_here(ws, options, listener, (lambda: None) if options.parent else (lambda: ready(told)))
                return
            ws.close()  # the connections of this process are of no use to the others
            processes.supervise(options, lambda: ready(told))


def _address(ws: Workspace, options: ServeOptions, path: str) -> str:
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{'https' if options.https else 'http'}://{shown}:{options.port}"
    if options.team:
        return address + path
    there = "" if path == "/" else f"&then={quote(path, safe='/')}"
    return f"{address}/start?token={accounts.create_link(ws)}{there}"


def _serve_here(ws: Workspace, options: ServeOptions, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve in this process."""
    app = create_app(ws, options, work=False)
    server = _Server(configured(app, options), app)
    processes.end_with_parent(options.parent)
    with (
        contextlib.ExitStack() as stack,
        contextlib.suppress(KeyboardInterrupt),
        processes.terminated_like_interrupted(),
    ):
        if options.worker:
            app.state.worker = stack.enter_context(working.Worker(ws, options.parallel))
        listener.listen(2048)
        threading.Thread(target=_announce, args=(server, ready), daemon=True).start()
        server.run(sockets=[listener])
    if not server.started:
        raise LabelchefError("the server could not start; its log above says why", code="serve")


def _announce(server: uvicorn.Server, ready: Callable[[], None]) -> None:
    pause = threading.Event()
    while not server.started:
        if server.should_exit or pause.wait(0.02):
            return
    ready()
