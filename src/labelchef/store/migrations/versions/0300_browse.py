"""Items can be searched, a lead can have items asked first, and a repeated action of a lead is answered as the first time."""

import sqlalchemy as sa
from alembic import op

from labelchef.store import search

revision = "0300_browse"
down_revision = "0202_votes_needed"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _number(name: str, refers: str | None = None) -> sa.Column[int]:
    table = name.removesuffix("_id")
    return sa.Column(
        name, _NUMBER, *([] if refers is None else [sa.ForeignKey(f"{table}.id", name=refers)]), nullable=False
    )


def upgrade() -> None:
    """Items that are there already are put into the index."""
    op.create_table(
        "wish",
        sa.Column("id", _NUMBER, primary_key=True, nullable=False),
        _number("campaign_id", "fk_wish_campaign_id"),
        _number("item_id", "fk_wish_item_id"),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.UniqueConstraint("item_id", name="uq_wish_item_id"),
    )
    op.create_index("ix_wish_campaign_id_id", "wish", ["campaign_id", "id"])
    op.create_table(
        "lead_action",
        sa.Column("id", _NUMBER, primary_key=True, nullable=False),
        _number("campaign_id", "fk_lead_action_campaign_id"),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("asked", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("answer", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.UniqueConstraint("campaign_id", "person", "request_id", name="uq_lead_action_campaign_id_person_request_id"),
    )
    search.create(op.get_bind())
