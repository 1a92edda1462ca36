"""Routes of the API, by what they are about."""

from labelchef.web.api import campaigns, exchange, health, labelling, lead, sessions

_MODULES = (health, sessions, campaigns, labelling, lead, exchange)
ROUTERS = (*(module.routes.router for module in _MODULES), sessions.people.router)
