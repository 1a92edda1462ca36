"""The sources of a campaign: what is known of each, what muting or editing them would change, and doing it."""

from dataclasses import replace
from typing import Annotated

from fastapi import Query

from labelchef.believe.rules import RuleSetFacts
from labelchef.server.sources import source_effects, sources
from labelchef.server.sources.source_effects import CampaignRules, Progress, Proposal
from labelchef.server.sources.sources import SourceDetail, SourcePage
from labelchef.server.web.forms import CampaignPath, ProposalForm, RulesForm
from labelchef.server.web.policies import BUSY_RULES, Api, Gone, Lead, Store
from labelchef.server.web.problems import Case
from labelchef.server.web.views import AppliedView, with_addresses

routes = Api("sources", "/campaigns/{campaign}")
_PREPARING: Case = (409, "preparing", "the campaign has no model yet")
_NOTHING: Case = (409, "sources", "nothing is learned about sources: trusted samples only steer")
_RULE: tuple[Case, ...] = (
    (422, "rule", "a rule lacks something, votes for a class that is not there, or has the name of another source"),
    (422, "rules", "two rules of one name, or too many"),
    (422, "rule_pattern", "a pattern that is no regular expression, or cannot be searched in bounded time"),
    (422, "rule_column", "no such column"),
    (422, "rule_time", "a pattern that takes too long"),
)
_MUTED: Case = (422, "muted", "no such source")


@routes.get("/sources", _PREPARING, (422, "sort", "no such order"))
def list_sources(
    campaign: CampaignPath,
    _: Lead,
    ws: Store,
    search: Annotated[str, Query(max_length=200, description="A part of the name.")] = "",
    sort: Annotated[str, Query(max_length=20, description=f"One of: {', '.join(sources.SORTS)}.")] = "votes",
    falling: Annotated[bool, Query(description="The largest first.")] = True,
    first: Annotated[int, Query(ge=0, le=1_000_000, description="How many to leave out.")] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> SourcePage:
    """What is known of each source of weak labels; answers when it is computed, which takes as long as the first model."""
    return sources.source_page(ws, campaign, search=search, sort=sort, falling=falling, first=first, limit=limit)


@routes.get("/source", _PREPARING, _NOTHING, (404, "source", "no such source"))
def source(campaign: CampaignPath, _: Lead, ws: Store, name: Annotated[str, Query(max_length=1000)]) -> SourceDetail:
    """One source: with which others it differs, and items on which it is right, wrong, or contradicted."""
    found = sources.source_detail(ws, campaign, name)
    right, wrong = with_addresses(campaign, found.right), with_addresses(campaign, found.wrong)
    return replace(found, right=right, wrong=wrong, conflicting=with_addresses(campaign, found.conflicting))


@routes.post("/sources/effect", _PREPARING, _NOTHING, _MUTED, *_RULE, status_code=202)
def begin_effect(campaign: CampaignPath, form: ProposalForm, _: Lead, ws: Store) -> Progress:
    """Begin to compute what other sources would change: the model is really made. Votes go on meanwhile; nothing is stored."""
    return _addressed(campaign, source_effects.begin(ws, campaign, _proposal(form)))


@routes.get("/sources/effect", _PREPARING, (404, "effect", "none was asked for"))
def effect(campaign: CampaignPath, _: Lead, ws: Store) -> Progress:
    """The effect that was asked for last: how far it is, or what came of it."""
    return _addressed(campaign, source_effects.look(ws, campaign))


@routes.delete("/sources/effect", _PREPARING, (404, "effect", "none was asked for"))
def cancel_effect(campaign: CampaignPath, _: Lead, ws: Store) -> Progress:
    """Give up the effect that is being computed."""
    return _addressed(campaign, source_effects.cancel(ws, campaign))


@routes.post(
    "/sources/apply",
    _PREPARING,
    _NOTHING,
    _MUTED,
    *_RULE,
    (409, "no_change", "the rules are those that the campaign has"),
    (409, "edited", "somebody else has edited the rules meanwhile"),
)
def apply(campaign: CampaignPath, form: ProposalForm, who: Lead, ws: Store) -> AppliedView:
    """Use other sources from the next model on: the one after the open batch, or, if none is out, one that is made at once.

    Edited rules vote on all items again; their votes are stored beside those before.
    """
    proposal = _proposal(form)
    version = source_effects.apply(ws, campaign, proposal, who.name)
    return AppliedView(muted=list(proposal.muted), version=version)


@routes.get("/rules")
def rules(campaign: CampaignPath, _: Lead, ws: Store) -> CampaignRules:
    """The rules that the campaign keeps, and the columns and classes that rules may name."""
    return source_effects.rules_now(ws, campaign)


@routes.post("/rules", *_RULE, BUSY_RULES)
def try_rules(campaign: CampaignPath, form: RulesForm, _: Lead, ws: Store, gone: Gone) -> RuleSetFacts:
    """Try rules while they are typed: where they vote, how often they are right on clean items, where they differ."""
    return source_effects.try_rules(ws, campaign, form.values(), gone)


def _addressed(campaign: str, found: Progress) -> Progress:
    return replace(found, shown=with_addresses(campaign, found.shown))


def _proposal(form: ProposalForm) -> Proposal:
    return Proposal(tuple(dict.fromkeys(form.muted)), None if form.rules is None else tuple(form.values()))
