"""What machines ask: is the process alive (`/healthz`), can it be used (`/readyz`), what has it done (`/metrics`)."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

import labelchef
from labelchef.server.health import Check
from labelchef.server.leases import WORKER
from labelchef.server.web.metrics import CONTENT_TYPE
from labelchef.server.web.policies import Probe, Scraper
from labelchef.server.worker import Worker
from labelchef.server.workspace import Workspace

routes = APIRouter(include_in_schema=False, redirect_slashes=False)


@routes.get("/healthz")
async def alive(_: Probe) -> Response:
    """That the process answers; nothing else is looked at."""
    return JSONResponse({"status": "ok", "version": labelchef.__version__})


@routes.get("/readyz")
def ready(request: Request, _: Probe) -> Response:
    """Whether database, schema, folder, disk and worker can be used; 503 where one that is needed cannot."""
    report = request.app.state.readiness.look()
    checks = {one.name: {"ok": one.ok, "needed": one.needed, "told": one.told} for one in report.checks}
    told = {"status": "ok" if report.ready else "failed", "version": labelchef.__version__, "checks": checks}
    return JSONResponse(told, status_code=200 if report.ready else 503)


@routes.get("/metrics")
def metrics(request: Request, _: Scraper) -> Response:
    """Metrics in the text format of Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE)


def worker_check(ws: Workspace, own: Worker | None) -> Check:
    """Whether a worker moves the rounds on: this process's own, or others that hold leases now.

    Without one this process still takes votes, so only the loss of its own makes it useless.
    """
    if own is not None:
        told = "it runs in this process" if own.alive else "the worker of this process has ended; restart the server"
        return Check("worker", own.alive, told)
    seen = len(ws.leases.held(WORKER))
    if seen:
        return Check("worker", True, f"{seen} seen in other processes", needed=False)
    return Check("worker", False, "none was seen: rounds do not go on; start `labelchef worker`", needed=False)
