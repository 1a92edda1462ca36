"""Threads of comments on items: people ask and answer, leads close threads and hide comments. Nothing is deleted.

An annotator sees the thread of an item that was handed to them. Of the notes that came with votes they see their own only:
what others noted may tell how they voted. Leads see all of them.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from labelchef.base.campaigns import CommentKind
from labelchef.base.errors import InvalidInputError, NotFoundError, ThrottledError
from labelchef.base.guidance import LONGEST_COMMENT, Comment, NewAnswers, News, Thread
from labelchef.server.campaigns.access import changing, looking, taking_part
from labelchef.server.campaigns.contents import content_of
from labelchef.server.labelling.gold import gold_under
from labelchef.server.shared import moment
from labelchef.server.store import campaign_table, gold_table, guidance_table
from labelchef.server.store.rows import CampaignRow, CommentRow, ItemRow, VoteRow, storable
from labelchef.server.workspace import Workspace

_A_MINUTE = 20
"""Comments that a person may write in a minute."""


def thread(ws: Workspace, campaign: str, person: str, item: str, *, lead: bool) -> Thread:
    """What was said of an item, as this person may see it."""
    with looking(ws, campaign, person) as (connection, row):
        return _thread(connection, _seen(connection, row, person, item, lead=lead), person, lead=lead)


def add(ws: Workspace, campaign: str, person: str, item: str, text: str, *, lead: bool) -> Thread:
    """Say something of an item; a thread that was closed is open again."""
    said = text.strip()
    if not 0 < len(said) <= LONGEST_COMMENT or not storable(said):
        why = f"the comment has {len(said)} characters; expected 1 to {LONGEST_COMMENT}, and text only"
        raise InvalidInputError(why, code="comment")
    with taking_part(ws, campaign, person) as (connection, row, *_):
        sample = _seen(connection, row, person, item, lead=lead)
        now = time.time()
        written = guidance_table.comments_since(connection, row.id, person, now - 60.0)
        if len(written) >= _A_MINUTE:
            wait = max(1.0, written[-_A_MINUTE] + 60.0 - now)
            why = f"more than {_A_MINUTE} comments in a minute; wait {round(wait)} s and send it again"
            raise ThrottledError(why, retry_after=wait, code="comments")
        guidance_table.insert_comment(connection, row.id, sample.id, CommentKind.COMMENT, person, said)
        _see(connection, sample, person)
        campaign_table.update_campaign(connection, row.id)
        found = _thread(connection, sample, person, lead=lead)
    ws.signal.notify()
    return found


def see(ws: Workspace, campaign: str, person: str, item: str, last: str | None = None, *, lead: bool) -> None:
    """A person has seen what was said of an item up to the comment `last`, else up to now."""
    with taking_part(ws, campaign, person, lasting=False) as (connection, row, *_):
        _see(connection, _seen(connection, row, person, item, lead=lead), person, last)


def resolve(ws: Workspace, campaign: str, by: str, item: str, *, resolved: bool) -> Thread:
    """Close the thread of an item as lead, or open it again."""
    with changing(ws, campaign) as (connection, row):
        sample = campaign_table.item_by_key(connection, row.id, item)
        if _thread(connection, sample, by, lead=True).resolved != resolved:
            kind = CommentKind.RESOLVED if resolved else CommentKind.REOPENED
            guidance_table.insert_comment(connection, row.id, sample.id, kind, by)
            campaign_table.update_campaign(connection, row.id)
        return _thread(connection, sample, by, lead=True)


def hide(ws: Workspace, campaign: str, by: str, comment: str, *, hidden: bool) -> Thread:
    """Hide a comment from annotators as lead, or show it again."""
    with changing(ws, campaign) as (connection, row):
        said = guidance_table.comment_by_id(connection, row.id, comment) if storable(comment) else None
        if said is None:
            raise NotFoundError(f"there is no comment {comment!r} in this campaign", code="comment")
        sample = campaign_table.items_by_id(connection, [said.item_id])[said.item_id]
        if (said.id in _hidden(guidance_table.thread_of(connection, said.item_id))) != hidden:
            kind = CommentKind.HIDDEN if hidden else CommentKind.SHOWN
            guidance_table.insert_comment(connection, row.id, said.item_id, kind, by, comment_id=said.id)
            noted = {f"comment_{kind.value}": said.public_id, "item": sample.key, "member_wrote": said.person}
            campaign_table.note_change(connection, row.id, by, noted)
            campaign_table.update_campaign(connection, row.id)
        return _thread(connection, sample, by, lead=True)


def threads(ws: Workspace, campaign: str, person: str, *, resolved: bool = False) -> list[Thread]:
    """The threads of a campaign that are open, or those that are closed; the one with the newest comment first. For leads."""
    with looking(ws, campaign, person) as (connection, row):
        said: dict[int, list[CommentRow]] = {}
        noted: dict[int, list[VoteRow]] = {}
        for one in guidance_table.threads_of(connection, row.id):
            said.setdefault(one.item_id, []).append(one)
        for vote in guidance_table.notes_of_campaign(connection, row.id):
            noted.setdefault(vote.item_id, []).append(vote)
        wanted = [
            item_id
            for item_id in said.keys() | noted.keys()
            if _resolved(said.get(item_id, []), noted.get(item_id, [])) == resolved
        ]
        items = campaign_table.items_by_id(connection, wanted)
        found = [_made(items[k], said.get(k, []), noted.get(k, []), person, lead=True) for k in wanted]
    newest_first = sorted(found, key=lambda one: one.item)
    newest_first.sort(key=lambda one: one.last_at or moment(0.0), reverse=True)
    return newest_first


def news(ws: Workspace, campaign: str, person: str) -> News:
    """What is new to a person: changed guidelines, and answers where they wrote."""
    with looking(ws, campaign, person) as (connection, row):
        return News(
            guidelines=guidance_table.guidelines_version(connection, row.id),
            seen=guidance_table.guidelines_seen(connection, row.id, person),
            answers=tuple(NewAnswers(*one) for one in guidance_table.unread_of(connection, row.id, person)),
        )


def _seen(connection: Connection, campaign: CampaignRow, person: str, item: str, *, lead: bool) -> ItemRow:
    """An item whose thread this person may see."""
    sample = campaign_table.item_by_key(connection, campaign.id, item)
    given = guidance_table.was_given(connection, sample.id, person)
    if not lead and not given and gold_under(connection, campaign, person, sample) is None:
        raise NotFoundError(f"item {item!r} was not given to {person!r}; ask for the next one", code="item")
    return sample


def _see(connection: Connection, sample: ItemRow, person: str, last: str | None = None) -> None:
    rows = [row.id for row in guidance_table.thread_of(connection, sample.id) if last in (None, row.public_id)]
    if rows:
        guidance_table.see_thread(connection, sample.id, person, rows[-1])


def _thread(connection: Connection, sample: ItemRow, person: str, *, lead: bool) -> Thread:
    rows, notes = guidance_table.thread_of(connection, sample.id), guidance_table.notes_of_item(connection, sample.id)
    made = _made(sample, rows, notes, person, lead=lead)
    hidden = None if lead else gold_table.shown_as(connection, sample.campaign_id, person, sample.id)
    if hidden is None or guidance_table.was_given(connection, sample.id, person):
        return made
    content = content_of(campaign_table.items_by_id(connection, [hidden.item_id])[hidden.item_id])
    last = gold_table.last_answer(connection, hidden.id)
    said = list(made.comments)
    if last is not None and last.note and not last.retracted:
        said.append(Comment(None, person, last.note, moment(last.created_at), mine=True, note=True, hidden=False))
    said.sort(key=lambda one: one.at)
    return replace(made, content=content, comments=tuple(said), last_at=said[-1].at if said else None)


def _made(sample: ItemRow, rows: Sequence[CommentRow], notes: Sequence[VoteRow], person: str, *, lead: bool) -> Thread:
    hidden = _hidden(rows)
    found = [
        Comment(
            id=one.public_id,
            person=one.person,
            text=one.text if lead or one.id not in hidden else "",
            at=moment(one.created_at),
            mine=one.person == person,
            note=False,
            hidden=one.id in hidden,
        )
        for one in rows
        if one.kind is CommentKind.COMMENT
    ]
    found += [
        Comment(None, one.person, one.note or "", moment(one.created_at), one.person == person, note=True, hidden=False)
        for one in notes
        if lead or one.person == person
    ]
    found.sort(key=lambda one: one.at)
    resolved = _resolved(rows, notes if lead else ())
    return Thread(sample.key, content_of(sample), tuple(found), resolved, found[-1].at if found else None)


def _hidden(rows: Sequence[CommentRow]) -> set[int]:
    """Inner ids of the comments that are hidden now."""
    found: set[int] = set()
    for one in rows:
        if one.comment_id is not None and one.kind is CommentKind.HIDDEN:
            found.add(one.comment_id)
        elif one.comment_id is not None and one.kind is CommentKind.SHOWN:
            found.discard(one.comment_id)
    return found


def _resolved(rows: Sequence[CommentRow], notes: Sequence[VoteRow]) -> bool:
    """Whether the thread was closed, and nothing was said or noted since."""
    closed: CommentRow | None = None
    for one in rows:
        if one.kind is CommentKind.RESOLVED:
            closed = one
        elif one.kind in (CommentKind.COMMENT, CommentKind.REOPENED):
            closed = None
    return closed is not None and all(vote.created_at <= closed.created_at for vote in notes)
