"""Routes of the API, by what they are about."""

from labelchef.server.web.api import (
    campaigns,
    care,
    exchange,
    guidance,
    intake,
    items,
    jobs,
    labelling,
    lead,
    quality,
    sessions,
    sources,
)

_MODULES = (sessions, campaigns, intake, labelling, guidance, items, lead, quality, sources, care, exchange, jobs)
ROUTERS = (sessions.server.router, *(module.routes.router for module in _MODULES), sessions.people.router)
