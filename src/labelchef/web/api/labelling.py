"""Labelling: next items, votes, undo, skip."""

from typing import Annotated

from fastapi import Path

from labelchef.services.labelling import tasks, votes
from labelchef.web.forms import NextForm, SkipForm, UndoForm, VoteForm
from labelchef.web.policies import CAMPAIGN, ITEM, Member, Policy, Store, answers, router
from labelchef.web.views import NextView, TaskView, VotedView, next_view, task_view

routes = router()
CampaignPath = Annotated[str, Path(description="Slug or id of the campaign.", max_length=200)]
ItemPath = Annotated[str, Path(description="Key of the item; it may hold slashes.", max_length=500)]


@routes.post("/campaigns/{campaign}/next", tags=["labelling"], responses=answers(Policy.MEMBER, CAMPAIGN, changes=True))
def next_tasks(campaign: CampaignPath, form: NextForm, who: Member, ws: Store) -> NextView:
    """The items this person labels next, reserved for them for a while; or why there is none."""
    return next_view(who, campaign, tasks.next_tasks(ws, campaign, who.name, n=form.n))


@routes.post(
    "/campaigns/{campaign}/votes",
    tags=["labelling"],
    responses=answers(
        Policy.MEMBER,
        CAMPAIGN,
        ITEM,
        (409, "not_asked", "the item is not being asked"),
        (409, "decided", "the item is decided already"),
        (409, "taken", "enough other people have the item"),
        (409, "request_id", "the request_id was used for another vote"),
        (422, "label", "no such class"),
        changes=True,
    ),
)
def vote(campaign: CampaignPath, form: VoteForm, who: Member, ws: Store) -> VotedView:
    """Store a vote and return the next items. A second request with the same `request_id` stores nothing new."""
    receipt, after = votes.vote_and_next(
        ws,
        campaign,
        who.name,
        form.item,
        form.label,
        n=form.n,
        note=form.note,
        seconds=form.seconds,
        request_id=form.request_id,
        hidden=form.blind,
    )
    return VotedView(vote=receipt, next=next_view(who, campaign, after))


@routes.post(
    "/campaigns/{campaign}/undo",
    tags=["labelling"],
    responses=answers(
        Policy.MEMBER,
        CAMPAIGN,
        (409, "nothing_to_undo", "there is no vote to take back"),
        (409, "not_asked", "the request was sent before, and the item is not being asked any more"),
        (409, "request_id", "the request_id was used for a vote"),
        changes=True,
    ),
)
def undo(campaign: CampaignPath, who: Member, ws: Store, form: UndoForm | None = None) -> TaskView:
    """Take back this person's last vote; they may label the item again. The same `request_id` takes back one vote only."""
    request_id = None if form is None else form.request_id
    return task_view(campaign, votes.undo_vote(ws, campaign, who.name, request_id=request_id))


@routes.post(
    "/campaigns/{campaign}/skip",
    tags=["labelling"],
    responses=answers(
        Policy.MEMBER, CAMPAIGN, ITEM, (409, "not_leased", "the item is not reserved for this person"), changes=True
    ),
)
def skip(campaign: CampaignPath, form: SkipForm, who: Member, ws: Store) -> NextView:
    """Leave an item to others; this person gets it again only after all others."""
    tasks.skip(ws, campaign, who.name, form.item)
    return next_view(who, campaign, tasks.next_tasks(ws, campaign, who.name, n=form.n))


@routes.get(
    "/campaigns/{campaign}/tasks/{item:path}",
    tags=["labelling"],
    responses=answers(Policy.MEMBER, CAMPAIGN, ITEM),
)
def task(campaign: CampaignPath, item: ItemPath, who: Member, ws: Store) -> TaskView:
    """An item handed to this person, with their own vote if there is one."""
    return task_view(campaign, tasks.task(ws, campaign, who.name, item))
