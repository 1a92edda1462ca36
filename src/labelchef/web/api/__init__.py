"""Routes of the API, by what they are about."""

from labelchef.web.api import campaigns, exchange, intake, labelling, lead, quality, sessions

_MODULES = (sessions, campaigns, intake, labelling, lead, quality, exchange)
ROUTERS = (sessions.server.router, *(module.routes.router for module in _MODULES), sessions.people.router)
