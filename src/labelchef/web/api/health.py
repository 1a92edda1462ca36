"""Whether the server works: it answers, its database answers, its worker runs."""

from fastapi import Request

import labelchef
from labelchef.services.people import accounts
from labelchef.web.policies import Anyone, Api, Store
from labelchef.web.problems import WebError
from labelchef.web.views import HealthView

routes = Api("server")
_ENDED = "the worker has ended, so rounds do not continue"


@routes.get("/health", (503, "worker", _ENDED))
def health(request: Request, _: Anyone, ws: Store) -> HealthView:
    """Whether the server, its database and its worker work; 503 if one does not."""
    worker = getattr(request.app.state, "worker", None)
    if worker is not None and not worker.alive:
        raise WebError(503, f"{_ENDED}; the log says why. Restart the server", code="worker")
    accounts.has_lead(ws)
    return HealthView(status="ok", version=labelchef.__version__)
