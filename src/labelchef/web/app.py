"""The web application: shield, problems, routes, pages, and the worker beside them."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import labelchef
from labelchef.services import worker as working
from labelchef.services.workspace import Workspace
from labelchef.web import pages, policies, problems
from labelchef.web.api import APIS
from labelchef.web.live import Hub
from labelchef.web.options import ServeOptions
from labelchef.web.shield import Shield

_ABOUT = (
    "Campaigns that clean weak labels. Sign in for a session cookie and send its CSRF token as X-CSRF-Token with every "
    "change, or send an API token as `Authorization: Bearer …`. Errors are problem details with a stable `code`. Lists "
    "come in pages: give `next` as `after`."
)


def create_app(ws: Workspace, options: ServeOptions, *, work: bool = True) -> FastAPI:
    """The app over an open workspace; with `work` it moves the campaigns on itself."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.hub = Hub(lambda campaign: working.wait_for_change(ws, campaign, -1, 0.0), ws.signal)
        with contextlib.ExitStack() as stack:
            stack.callback(app.state.hub.close)
            if work:
                app.state.worker = stack.enter_context(working.Worker(ws))
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
    problems.install(app, pages.error_page)
    for router in (*(api.router for api in APIS), pages.routes):
        app.router.routes.extend(router.routes)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    app.add_middleware(
        Shield,
        hosts=options.allowed_hosts,
        https=options.https,
        max_upload=options.max_upload_mb * 2**20,
        admit=policies.lead,
    )
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
        schema["x-problem-codes"] = {str(status): codes for status, codes in sorted(problems.CODES.items())}
        app.openapi_schema = schema
    return app.openapi_schema
