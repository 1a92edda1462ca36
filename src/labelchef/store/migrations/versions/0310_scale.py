"""Campaigns of millions of items: which inner ids they have, and an index of the labels that came with the data."""

import sqlalchemy as sa
from alembic import op

revision = "0310_scale"
down_revision = "0311_leases"


def upgrade() -> None:
    """Campaigns of before have no range of ids: theirs is looked up."""
    big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    for name in ("first_item", "last_item"):
        op.add_column("campaign", sa.Column(name, big, nullable=True))
    has_label = sa.text("label IS NOT NULL")
    op.create_index(
        "ix_item_given",
        "item",
        ["campaign_id", "split", "position", "label"],
        sqlite_where=has_label,
        postgresql_where=has_label,
    )
