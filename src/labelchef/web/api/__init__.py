"""Routes of the API, by what they are about."""

from fastapi import APIRouter

from labelchef.web.api import campaigns, exchange, labelling, lead, pictures, sessions

ROUTERS: tuple[APIRouter, ...] = (
    sessions.routes,
    campaigns.routes,
    campaigns.uploads,
    labelling.routes,
    lead.routes,
    exchange.routes,
    exchange.uploads,
    pictures.routes,
)
