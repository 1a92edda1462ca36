"""What leads do: settings, pause and stop, conflicts, the ledger, members."""

from typing import Annotated

from fastapi import Path, Query

from labelchef.domain.campaigns import Account, CampaignStatus, CampaignSummary, LedgerEntry, Page
from labelchef.services import campaigns as service
from labelchef.services.labelling import decisions, history
from labelchef.services.people import membership
from labelchef.web.api.labelling import CampaignPath
from labelchef.web.forms import ItemForm, ResolveForm
from labelchef.web.paging import Cursor, Limit, part_of
from labelchef.web.policies import CAMPAIGN, ITEM, Lead, Policy, Store, answers, router
from labelchef.web.settings import ChangedSettings
from labelchef.web.views import ConflictView, conflict_view

routes = router()
_STATE = (409, "state", "the campaign is not in a state for this")
_CURSOR = (422, "cursor", "not a cursor of this list")
AccountPath = Annotated[str, Path(description="Name of the account.", max_length=200)]


@routes.patch(
    "/campaigns/{campaign}/settings",
    tags=["lead"],
    responses=answers(Policy.LEAD, CAMPAIGN, (422, "settings", "a value that is not allowed"), changes=True),
)
def change_settings(campaign: CampaignPath, form: ChangedSettings, who: Lead, ws: Store) -> CampaignStatus:
    """Change settings that may change while a campaign runs; a change holds from the next batch on."""
    service.change_settings(ws, campaign, who.name, **form.given())
    return service.status(ws, campaign)


@routes.post(
    "/campaigns/{campaign}/pause", tags=["lead"], responses=answers(Policy.LEAD, CAMPAIGN, _STATE, changes=True)
)
def pause(campaign: CampaignPath, who: Lead, ws: Store) -> CampaignSummary:
    """Hand out no more items; votes so far stay."""
    return service.pause(ws, campaign, who.name)


@routes.post(
    "/campaigns/{campaign}/resume", tags=["lead"], responses=answers(Policy.LEAD, CAMPAIGN, _STATE, changes=True)
)
def resume(campaign: CampaignPath, who: Lead, ws: Store) -> CampaignSummary:
    """Continue after a pause or a stop."""
    return service.resume(ws, campaign, who.name)


@routes.post(
    "/campaigns/{campaign}/stop", tags=["lead"], responses=answers(Policy.LEAD, CAMPAIGN, _STATE, changes=True)
)
def stop(campaign: CampaignPath, who: Lead, ws: Store) -> CampaignSummary:
    """End the campaign; everything so far is kept."""
    return service.stop(ws, campaign, who.name)


@routes.get("/campaigns/{campaign}/conflicts", tags=["lead"], responses=answers(Policy.LEAD, CAMPAIGN, _CURSOR))
def conflicts(
    campaign: CampaignPath, _: Lead, ws: Store, after: Cursor = None, limit: Limit = 50
) -> Page[ConflictView]:
    """Items whose votes led to no decision, with the votes, by round."""
    found = [conflict_view(campaign, one) for one in decisions.conflicts(ws, campaign)]
    return part_of(found, lambda view: (view.round, view.key), after, limit)


@routes.post(
    "/campaigns/{campaign}/decisions",
    status_code=204,
    tags=["lead"],
    responses=answers(
        Policy.LEAD,
        CAMPAIGN,
        ITEM,
        (422, "label", "no such class"),
        changes=True,
    ),
)
def resolve(campaign: CampaignPath, form: ResolveForm, who: Lead, ws: Store) -> None:
    """Decide an item; the model is updated with the next round."""
    decisions.resolve(ws, campaign, form.item, form.label, who.name)


@routes.post(
    "/campaigns/{campaign}/reopen",
    status_code=204,
    tags=["lead"],
    responses=answers(
        Policy.LEAD,
        CAMPAIGN,
        ITEM,
        (409, "not_decided", "there is no decision to take back"),
        (409, "asked_now", "the item is being asked"),
        changes=True,
    ),
)
def reopen(campaign: CampaignPath, form: ItemForm, who: Lead, ws: Store) -> None:
    """Take a decision back: the item gets its weak label again, and is asked first in the next batch."""
    decisions.reopen(ws, campaign, form.item, who.name)


@routes.get("/campaigns/{campaign}/ledger", tags=["lead"], responses=answers(Policy.LEAD, CAMPAIGN, _CURSOR))
def ledger(
    campaign: CampaignPath,
    _: Lead,
    ws: Store,
    after: Cursor = None,
    limit: Limit = 100,
    kind: Annotated[str | None, Query(pattern="^(vote|decision|change)$")] = None,
    item: Annotated[str | None, Query(max_length=500)] = None,
    person: Annotated[str | None, Query(max_length=100)] = None,
) -> Page[LedgerEntry]:
    """Votes, decisions and changes, newest first."""
    return history.ledger(ws, campaign, after=after, limit=limit, kind=kind, item=item, person=person)


@routes.get("/campaigns/{campaign}/members", tags=["lead"], responses=answers(Policy.LEAD, CAMPAIGN, _CURSOR))
def members(campaign: CampaignPath, _: Lead, ws: Store, after: Cursor = None, limit: Limit = 50) -> Page[Account]:
    """The members of a campaign, by name."""
    return part_of(membership.members(ws, campaign), lambda one: one.name, after, limit)


@routes.put(
    "/campaigns/{campaign}/members/{name:path}",
    status_code=204,
    tags=["lead"],
    responses=answers(Policy.LEAD, CAMPAIGN, (404, "account", "no such account"), changes=True),
)
def add_member(campaign: CampaignPath, name: AccountPath, who: Lead, ws: Store) -> None:
    """Let an account label in this campaign."""
    membership.add_member(ws, campaign, name, who.name)


@routes.delete(
    "/campaigns/{campaign}/members/{name:path}",
    status_code=204,
    tags=["lead"],
    responses=answers(Policy.LEAD, CAMPAIGN, (404, "account", "no such account"), changes=True),
)
def remove_member(campaign: CampaignPath, name: AccountPath, who: Lead, ws: Store) -> None:
    """Take an account out of this campaign; its votes stay."""
    membership.remove_member(ws, campaign, name, who.name)
