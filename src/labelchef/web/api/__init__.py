"""Routes of the API, by what they are about."""

from labelchef.web.api import campaigns, exchange, health, labelling, lead, sessions
from labelchef.web.policies import Api

APIS: tuple[Api, ...] = (
    health.routes,
    sessions.routes,
    sessions.people,
    campaigns.routes,
    labelling.routes,
    lead.routes,
    exchange.routes,
)
