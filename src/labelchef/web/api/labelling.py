"""Labelling: next items, votes, undo, skip, and the images of items."""

import io
import struct
from functools import lru_cache
from pathlib import Path

from fastapi import Response

from labelchef.domain.campaigns import Task
from labelchef.domain.errors import NotFoundError
from labelchef.services.labelling import tasks, votes
from labelchef.web.forms import CampaignPath, ItemPath, NextForm, SkipForm, UndoForm, VoteForm
from labelchef.web.policies import ITEM, Api, Member, Store
from labelchef.web.problems import WebError
from labelchef.web.shield import FILE_POLICY
from labelchef.web.views import NextView, VotedView, next_view, task_view

routes = Api("labelling", "/campaigns/{campaign}")
SAFE_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_MOST_PIXELS = 100_000_000
_MOST_BYTES = 64 * 2**20


@routes.post("/next")
def next_tasks(campaign: CampaignPath, form: NextForm, who: Member, ws: Store) -> NextView:
    """The items this person labels next, reserved for them for a while; or why there is none."""
    return next_view(who, campaign, tasks.next_tasks(ws, campaign, who.name, n=form.n))


@routes.post(
    "/votes",
    ITEM,
    (409, "not_asked", "the item is not being asked"),
    (409, "decided", "the item is decided already"),
    (409, "taken", "enough other people have the item"),
    (409, "request_id", "the request_id was used for another vote"),
    (422, "label", "no such class"),
)
def vote(campaign: CampaignPath, form: VoteForm, who: Member, ws: Store) -> VotedView:
    """Store a vote and return the next items. A second request with the same `request_id` stores nothing new."""
    sent = form.model_dump()
    sent["hidden"] = sent.pop("blind")
    receipt, after = votes.vote_and_next(ws, campaign, who.name, **sent)
    return VotedView(vote=receipt, next=next_view(who, campaign, after))


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
    (404, "image", "the item has no image"),
    (415, "image", "not an image of a supported type"),
    response_class=Response,
    responses={200: {"description": "The image.", "content": {kind: {} for kind in SAFE_TYPES.values()}}},
)
def item_image(campaign: CampaignPath, item: ItemPath, _: Member, ws: Store) -> Response:
    """The image of an item. Its type comes from its content, not from the name of the file."""
    path = tasks.media(ws, campaign, item)
    try:
        stat = path.stat()
        kind = _kind(path, stat.st_mtime_ns, stat.st_size)
        content = path.read_bytes()
    except OSError:
        raise NotFoundError(f"the image of item {item!r} is not in the campaign's folder", code="image") from None
    headers = {"Cache-Control": "private, max-age=86400", "Content-Security-Policy": FILE_POLICY}
    return Response(content, media_type=kind, headers={**headers, "Content-Disposition": "inline"})


@lru_cache(maxsize=4096)
def _kind(path: Path, _modified: int, size: int) -> str:
    from PIL import Image

    refused = WebError(415, f"{path.name} is not a PNG, JPEG, GIF or WebP image that can be shown", code="image")
    if size > _MOST_BYTES:
        raise refused
    content = path.read_bytes()
    try:
        with Image.open(io.BytesIO(content), formats=list(SAFE_TYPES)) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise refused
            kind = SAFE_TYPES[str(image.format)]
            image.verify()
    except (OSError, Image.DecompressionBombError, SyntaxError, ValueError, EOFError, KeyError, struct.error):
        raise refused from None
    return kind
