"""What leads do: settings, pause and stop, conflicts, the ledger, members."""

from dataclasses import replace
from typing import Annotated

from fastapi import Query

from labelchef.base.campaigns import CampaignStatus, CampaignSummary, ConflictItem, LedgerEntry, Member, Page, Role
from labelchef.server.campaigns import campaigns as service
from labelchef.server.items import decisions
from labelchef.server.labelling import tasks
from labelchef.server.people import accounts
from labelchef.server.web.forms import AccountPath, CampaignPath, ItemForm, PersonForm, ResolveForm, SettingsChange
from labelchef.server.web.paging import Cursor, Limit, part_of
from labelchef.server.web.policies import ACCOUNT, ITEM, SETTINGS, Api, Lead, Store
from labelchef.server.web.views import with_address

routes = Api("lead", "/campaigns/{campaign}")
_STATE = (409, "state", "the campaign is not in a state for this")


@routes.patch("/settings", *SETTINGS, (409, "changed", "a setting differs from `seen`; `now` is what it is"))
def change_settings(campaign: CampaignPath, form: SettingsChange, who: Lead, ws: Store) -> CampaignStatus:
    """Change settings that may change while a campaign runs; a change holds from the next batch on."""
    seen = None if form.seen is None else form.seen.given()
    service.change_settings(ws, campaign, who.name, seen, **form.given())
    return service.status(ws, campaign)


@routes.post("/pause", _STATE)
def pause(campaign: CampaignPath, who: Lead, ws: Store) -> CampaignSummary:
    """Hand out no more items; votes so far stay."""
    return service.pause(ws, campaign, who.name)


@routes.post("/resume", _STATE)
def resume(campaign: CampaignPath, who: Lead, ws: Store) -> CampaignSummary:
    """Continue after a pause or a stop."""
    return service.resume(ws, campaign, who.name)


@routes.post("/stop", _STATE)
def stop(campaign: CampaignPath, who: Lead, ws: Store) -> CampaignSummary:
    """End the campaign; everything so far is kept."""
    return service.stop(ws, campaign, who.name)


@routes.post("/free", status_code=204)
def free(campaign: CampaignPath, form: PersonForm, who: Lead, ws: Store) -> None:
    """Give the items that are reserved for a person to others; `open_round.holders` of the status says who holds how many."""
    tasks.free(ws, campaign, form.person, who.name)


@routes.get("/conflicts")
def conflicts(
    campaign: CampaignPath, _: Lead, ws: Store, after: Cursor = None, limit: Limit = 50
) -> Page[ConflictItem]:
    """Items whose votes led to no decision, with the votes, by round."""
    found = decisions.conflicts(ws, campaign)
    shown = [replace(one, content=with_address(campaign, one.item, one.content)) for one in found]
    return part_of(shown, lambda one: (one.round, one.item), after, limit)


@routes.post(
    "/decisions",
    ITEM,
    (422, "label", "no such class"),
    (409, "changed", "the item was decided since; `now` is its label"),
    status_code=204,
)
def resolve(campaign: CampaignPath, form: ResolveForm, who: Lead, ws: Store) -> None:
    """Decide an item; the model is updated with the next round."""
    seen = {form.item: form.seen} if "seen" in form.model_fields_set else None
    decisions.resolve(ws, campaign, form.item, form.label, who.name, seen)


@routes.post(
    "/reopen",
    ITEM,
    (409, "not_decided", "there is no decision to take back"),
    (409, "asked_now", "the item is being asked"),
    status_code=204,
)
def reopen(campaign: CampaignPath, form: ItemForm, who: Lead, ws: Store) -> None:
    """Take a decision back: the item gets its weak label again, and is asked first in the next batch."""
    decisions.reopen(ws, campaign, form.item, who.name)


@routes.get("/ledger")
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
    return decisions.ledger(ws, campaign, after=after, limit=limit, kind=kind, item=item, person=person)


@routes.get("/members")
def members(campaign: CampaignPath, _: Lead, ws: Store, after: Cursor = None, limit: Limit = 50) -> Page[Member]:
    """The members of a campaign, by name; `here` says who leads it."""
    return part_of(accounts.members(ws, campaign), lambda one: (one.name,), after, limit)


@routes.put("/members/{name:path}", ACCOUNT, status_code=204)
def add_member(
    campaign: CampaignPath,
    name: AccountPath,
    who: Lead,
    ws: Store,
    role: Annotated[
        Role | None, Query(description="In this campaign; left out: as it is, of a new member annotator.")
    ] = None,
) -> None:
    """Let an account label in this campaign, or lead it: all of its lead pages, and no other campaign's."""
    accounts.set_member(ws, campaign, name, who.name, role=role)


@routes.delete("/members/{name:path}", ACCOUNT, status_code=204)
def remove_member(campaign: CampaignPath, name: AccountPath, who: Lead, ws: Store) -> None:
    """Take an account out of this campaign; its votes stay."""
    accounts.set_member(ws, campaign, name, who.name, member=False)
