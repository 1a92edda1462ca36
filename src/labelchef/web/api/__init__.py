"""Routes of the API, by what they are about."""

from labelchef.web.api import campaigns, exchange, intake, labelling, lead, sessions, sources

_MODULES = (sessions, campaigns, intake, labelling, lead, sources, exchange)
ROUTERS = (sessions.server.router, *(module.routes.router for module in _MODULES), sessions.people.router)
