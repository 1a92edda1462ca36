"""What is written for people and by people beside their votes: guidelines, and comments on items."""

import time
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.base.campaigns import CommentKind
from labelchef.server.store.rows import (
    AMONG,
    CommentRow,
    CommentWithKey,
    GuidelineRow,
    ItemRow,
    VoteWithKey,
    all_rows,
    columns,
    first_row,
    insert_row,
    new_public_id,
)
from labelchef.server.store.tables import (
    Assignment,
    Comment,
    Guideline,
    GuidelineSeen,
    Item,
    Selection,
    ThreadSeen,
    Vote,
)
from labelchef.server.store.vote_table import LIVE

_OF_CAMPAIGN = Guideline.c.campaign_id == bindparam("campaign_id")
_VERSION = sa.select(sa.func.max(Guideline.c.version)).where(_OF_CAMPAIGN)
_GUIDELINES = sa.select(Guideline).where(_OF_CAMPAIGN).order_by(Guideline.c.id)


def guidelines_version(connection: sa.Connection, campaign_id: int) -> int:
    """How often the guidelines of a campaign were changed."""
    return int(connection.execute(_VERSION, {"campaign_id": campaign_id}).scalar() or 0)


def guidelines_of(connection: sa.Connection, campaign_id: int) -> list[GuidelineRow]:
    """Every text that was saved, oldest first."""
    return all_rows(connection, _GUIDELINES, GuidelineRow, campaign_id=campaign_id)


def current_guidelines(connection: sa.Connection, campaign_id: int) -> dict[int | None, GuidelineRow]:
    """Class position, None for the campaign → the text that holds."""
    newest = (
        sa.select(sa.func.max(Guideline.c.id))
        .where(Guideline.c.campaign_id == campaign_id)
        .group_by(Guideline.c.class_position)
    )
    found = sa.select(Guideline).where(Guideline.c.id.in_(newest))
    return {row.class_position: row for row in all_rows(connection, found, GuidelineRow)}


def insert_guideline(
    connection: sa.Connection, campaign_id: int, version: int, class_position: int | None, text: str, who: str
) -> None:
    """Append a text."""
    values = {"campaign_id": campaign_id, "version": version, "class_position": class_position, "text": text}
    insert_row(connection, Guideline, **values, who=who, created_at=time.time())


def guidelines_seen(connection: sa.Connection, campaign_id: int, person: str) -> int:
    """The version that a person looked at last; 0 for none."""
    found = sa.select(GuidelineSeen.c.version).where(
        GuidelineSeen.c.campaign_id == campaign_id, GuidelineSeen.c.person == person
    )
    return int(connection.execute(found).scalar() or 0)


def see_guidelines(connection: sa.Connection, campaign_id: int, person: str, version: int) -> None:
    """A person looked at a version; an earlier one than before changes nothing."""
    here = (GuidelineSeen.c.campaign_id == campaign_id) & (GuidelineSeen.c.person == person)
    if connection.execute(sa.select(GuidelineSeen.c.id).where(here)).first() is None:
        insert_row(connection, GuidelineSeen, campaign_id=campaign_id, person=person, version=version)
    else:
        older = here & (GuidelineSeen.c.version < version)
        connection.execute(sa.update(GuidelineSeen).where(older).values(version=version))


# threads


def insert_comment(
    connection: sa.Connection,
    campaign_id: int,
    item_id: int,
    kind: CommentKind,
    person: str,
    text: str = "",
    comment_id: int | None = None,
) -> None:
    """Append to the thread of an item."""
    insert_row(
        connection,
        Comment,
        public_id=new_public_id(),
        campaign_id=campaign_id,
        item_id=item_id,
        kind=kind,
        comment_id=comment_id,
        person=person,
        text=text,
        created_at=time.time(),
    )


def thread_of(connection: sa.Connection, item_id: int) -> list[CommentRow]:
    """All that was said of an item and done with its thread, in the order it came."""
    return all_rows(
        connection, sa.select(Comment).where(Comment.c.item_id == item_id).order_by(Comment.c.id), CommentRow
    )


def threads_of(connection: sa.Connection, campaign_id: int) -> list[CommentWithKey]:
    """The same of all items of a campaign."""
    found = (
        sa.select(*columns(CommentWithKey, Comment, Item))
        .select_from(Comment)
        .join(Item)
        .where(Comment.c.campaign_id == campaign_id)
        .order_by(Comment.c.id)
    )
    return all_rows(connection, found, CommentWithKey)


def comment_by_id(connection: sa.Connection, campaign_id: int, public_id: str) -> CommentRow | None:
    """A comment by its public id."""
    found = sa.select(Comment).where(
        Comment.c.campaign_id == campaign_id,
        Comment.c.public_id == public_id,
        Comment.c.kind == CommentKind.COMMENT,
    )
    return first_row(connection, found, CommentRow)


def comments_since(connection: sa.Connection, campaign_id: int, person: str, since: float) -> Sequence[float]:
    """When a person wrote comments since a time, oldest first."""
    found = sa.select(Comment.c.created_at).where(
        Comment.c.campaign_id == campaign_id,
        Comment.c.person == person,
        Comment.c.kind == CommentKind.COMMENT,
        Comment.c.created_at >= since,
    )
    return list(connection.execute(found.order_by(Comment.c.id)).scalars())


_NOTED = (
    sa.select(*columns(VoteWithKey, Vote, Item))
    .select_from(Vote)
    .join(Item)
    .where(Vote.c.note.is_not(None), *LIVE)
    .order_by(Vote.c.id)
)


def notes_of_item(connection: sa.Connection, item_id: int) -> list[VoteWithKey]:
    """Votes on an item that count and came with a note."""
    return all_rows(connection, _NOTED.where(Vote.c.item_id == item_id), VoteWithKey)


def notes_of_campaign(connection: sa.Connection, campaign_id: int) -> list[VoteWithKey]:
    """The same of all items of a campaign."""
    return all_rows(connection, _NOTED.where(Vote.c.campaign_id == campaign_id), VoteWithKey)


def was_given(connection: sa.Connection, item_id: int, person: str) -> bool:
    """Whether an item was ever handed to a person, or voted on by them."""
    handed = (
        sa.select(Assignment.c.id).join(Selection).where(Selection.c.item_id == item_id, Assignment.c.person == person)
    )
    voted = sa.select(Vote.c.id).where(Vote.c.item_id == item_id, Vote.c.person == person)
    return any(connection.execute(found.limit(1)).first() is not None for found in (handed, voted))


_COUNTS = (
    sa.select(Comment.c.item_id, sa.func.count())
    .where(Comment.c.item_id.in_(AMONG), Comment.c.kind == CommentKind.COMMENT)
    .group_by(Comment.c.item_id)
)


def comment_counts(connection: sa.Connection, item_ids: Sequence[int]) -> dict[int, int]:
    """Item → comments in its thread, of some items; those without any are left out."""
    return {int(row[0]): int(row[1]) for row in connection.execute(_COUNTS, {"among": list(item_ids)})}


_COUNTED = (
    sa.select(
        Item,
        sa.select(sa.func.count())
        .where(Comment.c.item_id == Item.c.id, Comment.c.kind == CommentKind.COMMENT)
        .correlate(Item)
        .scalar_subquery(),
    )
).where(Item.c.id.in_(AMONG))


def items_with_comments(
    connection: sa.Connection, item_ids: Sequence[int]
) -> tuple[dict[int, ItemRow], dict[int, int]]:
    """Items by their inner id, and how many comments the thread of each has."""
    rows = connection.execute(_COUNTED, {"among": list(item_ids)}).all()
    return {row[0]: ItemRow(*row[:-1]) for row in rows}, {row[0]: int(row[-1]) for row in rows}


_PERSON: sa.BindParameter[str] = bindparam("person")
_own, _hiding, _showing = Comment.alias(), Comment.alias(), Comment.alias()
_SHOWN_AGAIN = (
    sa.select(_showing.c.id)
    .where(_showing.c.comment_id == _hiding.c.comment_id, _showing.c.item_id == _hiding.c.item_id)
    .where(_showing.c.kind == CommentKind.SHOWN, _showing.c.id > _hiding.c.id)
    .correlate(_hiding)
    .exists()
)
_IS_HIDDEN = (
    sa.select(_hiding.c.id)
    .where(_hiding.c.comment_id == Comment.c.id, _hiding.c.item_id == Comment.c.item_id)
    .where(_hiding.c.kind == CommentKind.HIDDEN, ~_SHOWN_AGAIN)
    .correlate(Comment)
    .exists()
)
_WROTE = (
    sa.select(_own.c.id)
    .where(_own.c.item_id == Comment.c.item_id, _own.c.person == _PERSON, _own.c.kind == CommentKind.COMMENT)
    .correlate(Comment)
    .exists()
)
_NOTED_IT = (
    sa.select(Vote.c.id)
    .where(Vote.c.item_id == Comment.c.item_id, Vote.c.person == _PERSON, Vote.c.note.is_not(None))
    .correlate(Comment)
    .exists()
)
_SEEN = (
    sa.select(ThreadSeen.c.upto)
    .where(ThreadSeen.c.item_id == Comment.c.item_id, ThreadSeen.c.person == _PERSON)
    .correlate(Comment)
    .scalar_subquery()
)
_UNREAD = (
    sa.select(Item.c.key, sa.func.count())
    .select_from(Comment)
    .join(Item)
    .where(
        Comment.c.campaign_id == bindparam("campaign_id"),
        Comment.c.kind == CommentKind.COMMENT,
        Comment.c.person != _PERSON,
        Comment.c.id > sa.func.coalesce(_SEEN, 0),
        ~_IS_HIDDEN,
        _WROTE | _NOTED_IT,
    )
    .group_by(Item.c.key)
    .order_by(sa.func.max(Comment.c.id).desc())
)


def unread_of(connection: sa.Connection, campaign_id: int, person: str) -> list[tuple[str, int]]:
    """(key of the item, comments of others that are new to this person) of the threads in which they wrote, newest first."""
    rows = connection.execute(_UNREAD, {"campaign_id": campaign_id, "person": person})
    return [(str(row[0]), int(row[1])) for row in rows]


def see_thread(connection: sa.Connection, item_id: int, person: str, upto: int) -> None:
    """A person has seen a thread up to a comment."""
    here = (ThreadSeen.c.item_id == item_id) & (ThreadSeen.c.person == person)
    if connection.execute(sa.select(ThreadSeen.c.id).where(here)).first() is None:
        insert_row(connection, ThreadSeen, item_id=item_id, person=person, upto=upto)
    else:
        connection.execute(sa.update(ThreadSeen).where(here, ThreadSeen.c.upto < upto).values(upto=upto))
