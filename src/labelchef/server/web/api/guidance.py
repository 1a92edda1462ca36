"""Guidelines, and threads of comments on items."""

from dataclasses import replace
from typing import Annotated

from fastapi import Path, Query

from labelchef.base.campaigns import Page
from labelchef.base.guidance import Guidelines, GuidelineVersion, News, Thread
from labelchef.server.campaigns import guidelines
from labelchef.server.campaigns.access import find
from labelchef.server.labelling import discussions
from labelchef.server.web.forms import (
    CampaignPath,
    CommentForm,
    GuidelineForm,
    HideForm,
    ItemPath,
    MarkdownForm,
    SeenForm,
    ThreadForm,
)
from labelchef.server.web.markdown import rendered
from labelchef.server.web.paging import Cursor, Limit, part_of
from labelchef.server.web.policies import GUIDELINES, ITEM, Api, Lead, Member, Store
from labelchef.server.web.views import RenderedView, with_address

routes = Api("guidance", "/campaigns/{campaign}")
_MOST = (429, "comments", "more comments of this person than a minute may have")
_COMMENT = (422, "comment", "a comment of spaces only")


@routes.get("/guidelines")
def read_guidelines(campaign: CampaignPath, who: Member, ws: Store) -> Guidelines:
    """The guidelines and the descriptions of classes, as Markdown and as HTML in which no markup of the text is left."""
    return guidelines.guidelines(ws, campaign, who.name)


@routes.put("/guidelines", GUIDELINES, (422, "class_name", "no such class"))
def write_guidelines(campaign: CampaignPath, form: GuidelineForm, who: Lead, ws: Store) -> Guidelines:
    """Save a text: of the campaign, or of a class. Earlier versions are kept."""
    guidelines.write(ws, campaign, who.name, {form.about: form.text})
    return guidelines.guidelines(ws, campaign, who.name)


@routes.get("/guidelines/versions")
def versions(
    campaign: CampaignPath, _: Lead, ws: Store, after: Cursor = None, limit: Limit = 50
) -> Page[GuidelineVersion]:
    """Every text that was saved, newest first, with who and when."""
    found = guidelines.versions(ws, campaign)
    return part_of(found, lambda one: (one.version, one.about or ""), after, limit, falling=True)


@routes.post("/guidelines/preview")
def preview(campaign: CampaignPath, form: MarkdownForm, _: Lead, ws: Store) -> RenderedView:
    """A Markdown text as people would see it; nothing is stored."""
    find(ws, campaign)
    return RenderedView(html=rendered(form.text))


@routes.get("/news")
def news(campaign: CampaignPath, who: Member, ws: Store) -> News:
    """What is new to this person: changed guidelines, and answers where they wrote."""
    return discussions.news(ws, campaign, who.name)


@routes.put("/seen", ITEM, status_code=204)
def seen(campaign: CampaignPath, form: SeenForm, who: Member, ws: Store) -> None:
    """This person has looked at the guidelines, or at the thread of an item."""
    if form.guidelines is not None:
        guidelines.see(ws, campaign, who.name, form.guidelines)
    if form.item is not None:
        discussions.see(ws, campaign, who.name, form.item, form.comment, lead=who.may_lead)


@routes.get("/threads")
def threads(
    campaign: CampaignPath,
    who: Lead,
    ws: Store,
    resolved: Annotated[bool, Query(description="Those that are closed, not those that are open.")] = False,
    after: Cursor = None,
    limit: Limit = 50,
) -> Page[Thread]:
    """Threads of items, the one with the newest comment first."""
    found = [_addressed(campaign, one) for one in discussions.threads(ws, campaign, who.name, resolved=resolved)]
    return part_of(found, _place, after, limit, falling=True)


@routes.get("/threads/{item:path}")
def thread(campaign: CampaignPath, item: ItemPath, who: Member, ws: Store) -> Thread:
    """What was said of an item. Annotators see the threads of items that they were given."""
    return _addressed(campaign, discussions.thread(ws, campaign, who.name, item, lead=who.may_lead))


@routes.post("/threads/{item:path}", _MOST, _COMMENT)
def add_comment(campaign: CampaignPath, item: ItemPath, form: CommentForm, who: Member, ws: Store) -> Thread:
    """Say something of an item; a thread that was closed is open again."""
    return _addressed(campaign, discussions.add(ws, campaign, who.name, item, form.text, lead=who.may_lead))


@routes.patch("/threads/{item:path}")
def change_thread(campaign: CampaignPath, item: ItemPath, form: ThreadForm, who: Lead, ws: Store) -> Thread:
    """Close a thread, or open it again."""
    return _addressed(campaign, discussions.resolve(ws, campaign, who.name, item, resolved=form.resolved))


@routes.patch("/comments/{comment}", (404, "comment", "no such comment in this campaign"))
def change_comment(
    campaign: CampaignPath,
    comment: Annotated[str, Path(description="Id of the comment.", max_length=100)],
    form: HideForm,
    who: Lead,
    ws: Store,
) -> Thread:
    """Hide a comment from annotators, or show it again. Nothing is deleted."""
    return _addressed(campaign, discussions.hide(ws, campaign, who.name, comment, hidden=form.hidden))


def _place(one: Thread) -> tuple[int, str]:
    """By the time of the last comment, in microseconds."""
    return 0 if one.last_at is None else round(1e6 * one.last_at.timestamp()), one.item


def _addressed(campaign: str, found: Thread) -> Thread:
    return replace(found, content=with_address(campaign, found.item, found.content))
