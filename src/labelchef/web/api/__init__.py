"""Routes of the API, by what they are about."""

from labelchef.web.api import campaigns, exchange, guidance, intake, items, labelling, lead, sessions

_MODULES = (sessions, campaigns, intake, labelling, guidance, items, lead, exchange)
ROUTERS = (sessions.server.router, *(module.routes.router for module in _MODULES), sessions.people.router)
