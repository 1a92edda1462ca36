"""Routes of the API, by what they are about."""

from fastapi import APIRouter

from labelchef.web.api import campaigns, exchange, health, labelling, lead, pictures, sessions

ROUTERS: tuple[APIRouter, ...] = (
    health.routes,
    sessions.routes,
    campaigns.routes,
    campaigns.uploads,
    labelling.routes,
    lead.routes,
    exchange.routes,
    exchange.uploads,
    pictures.routes,
)
