"""Labelling: next items, votes, undo, skip, and the images of items."""

from typing import Annotated

from fastapi import Query, Response
from pydantic import TypeAdapter

from labelchef.base.campaigns import Task
from labelchef.server.labelling import tasks, votes
from labelchef.server.web.forms import CampaignPath, ItemPath, NextForm, SkipForm, UndoForm, VoteForm
from labelchef.server.web.images import SAFE_TYPES, image_response
from labelchef.server.web.policies import ITEM, Api, Member, Store
from labelchef.server.web.views import NextView, VotedView, next_view, task_view

routes = Api("labelling", "/campaigns/{campaign}")


_NEXT, _VOTED = TypeAdapter(NextView), TypeAdapter(VotedView)


def _sent(content: bytes) -> Response:
    """JSON that was made in the thread of the request: FastAPI would check it once more and take another thread for it."""
    return Response(content, media_type="application/json")


@routes.post("/next", response_model=NextView)
def next_tasks(campaign: CampaignPath, form: NextForm, who: Member, ws: Store) -> Response:
    """The items this person labels next, reserved for them for a while; or why there is none."""
    return _sent(_NEXT.dump_json(next_view(who, campaign, tasks.next_tasks(ws, campaign, who.name, n=form.n))))


@routes.post(
    "/votes",
    ITEM,
    (409, "not_asked", "the item is not being asked"),
    (409, "decided", "the item is decided already"),
    (409, "taken", "enough other people have the item"),
    (409, "request_id", "the request_id was used for another item or label, or to take a vote back"),
    (422, "label", "no such class"),
    response_model=VotedView,
)
def vote(campaign: CampaignPath, form: VoteForm, who: Member, ws: Store) -> Response:
    """Store a vote and return the next items. A second request with the same `request_id` stores nothing new."""
    sent = form.model_dump()
    sent["hidden"] = sent.pop("blind")
    receipt, after = votes.vote_and_next(ws, campaign, who.name, **sent)
    return _sent(_VOTED.dump_json(VotedView(vote=receipt, next=next_view(who, campaign, after))))


@routes.post(
    "/undo",
    (409, "nothing_to_undo", "there is no vote to take back"),
    (409, "not_asked", "the request was sent before, and the item is not being asked any more"),
    (409, "request_id", "the request_id was used for a vote"),
)
def undo(campaign: CampaignPath, who: Member, ws: Store, form: UndoForm | None = None) -> Task:
    """Take back this person's last vote; they may label the item again. The same `request_id` takes back one vote only."""
    request_id = None if form is None else form.request_id
    return task_view(campaign, votes.undo_vote(ws, campaign, who.name, request_id=request_id))


@routes.post("/skip", ITEM, (409, "not_leased", "the item is not reserved for this person"))
def skip(campaign: CampaignPath, form: SkipForm, who: Member, ws: Store) -> NextView:
    """Leave an item to others; this person gets it again only after all others."""
    tasks.skip(ws, campaign, who.name, form.item)
    return next_view(who, campaign, tasks.next_tasks(ws, campaign, who.name, n=form.n))


@routes.get("/tasks/{item:path}")
def task(campaign: CampaignPath, item: ItemPath, who: Member, ws: Store) -> Task:
    """An item handed to this person, with their own vote if there is one."""
    return task_view(campaign, tasks.task(ws, campaign, who.name, item))


@routes.get(
    "/items/{item:path}/image",
    (404, "image", "the item has no such image"),
    (415, "image", "not an image of a supported type"),
    response_class=Response,
    responses={200: {"description": "The image.", "content": {kind: {} for kind in SAFE_TYPES.values()}}},
)
def item_image(
    campaign: CampaignPath,
    item: ItemPath,
    who: Member,
    ws: Store,
    number: Annotated[int, Query(ge=0, le=1000, description="Which of its images, counted from 0.")] = 0,
    small: Annotated[bool, Query(description="A small one, for lists.")] = False,
    v: Annotated[str, Query(max_length=100, description="As the address of the image has it.")] = "",
) -> Response:
    """An image of an item. Its type comes from its content, not from the name of the file."""
    return image_response(tasks.media(ws, campaign, item, number, who.name, v), f"item {item!r}", small=small)
