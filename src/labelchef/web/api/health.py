"""Whether the server can do its work: it answers, its database too, and its worker is there."""

from fastapi import Request

import labelchef
from labelchef.services.people import accounts
from labelchef.web.policies import Anyone, Policy, Store, answers, router
from labelchef.web.problems import WebError
from labelchef.web.views import HealthView

routes = router()


@routes.get(
    "/health",
    tags=["server"],
    responses=answers(Policy.PUBLIC, (503, "worker", "the worker has ended, so no round goes on")),
)
def health(request: Request, _: Anyone, ws: Store) -> HealthView:
    """Whether the server, its database and its worker are well; 503 if one is not."""
    worker = getattr(request.app.state, "worker", None)
    if worker is not None and not worker.alive:
        raise WebError(503, "the worker has ended, so no round goes on; the log says why. Restart it", code="worker")
    accounts.has_lead(ws)
    return HealthView(status="ok", version=labelchef.__version__)
