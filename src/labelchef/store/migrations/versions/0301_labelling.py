"""Guidelines with their versions, threads of comments on items, and several images an item."""

import sqlalchemy as sa
from alembic import op

revision = "0301_labelling"
down_revision = "0300_browse"
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Campaigns of before have no guidelines and no comments; their items have one image at most."""
    op.add_column("item", sa.Column("images", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "guideline",
        *_beginning("guideline", "campaign"),
        sa.Column("version", _NUMBER, nullable=False),
        sa.Column("class_position", _NUMBER, nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
    )
    op.create_index("ix_guideline_campaign_id_id", "guideline", ["campaign_id", "id"])
    op.create_table(
        "guideline_seen",
        *_beginning("guideline_seen", "campaign"),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("version", _NUMBER, nullable=False),
        sa.UniqueConstraint("campaign_id", "person", name="uq_guideline_seen_campaign_id_person"),
    )
    op.create_table(
        "comment",
        *_beginning("comment", "campaign", "item"),
        sa.Column("public_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("comment_id", _NUMBER, sa.ForeignKey("comment.id", name="fk_comment_comment_id"), nullable=True),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.UniqueConstraint("public_id", name="uq_comment_public_id"),
    )
    op.create_index("ix_comment_campaign_id_id", "comment", ["campaign_id", "id"])
    op.create_index("ix_comment_item_id_id", "comment", ["item_id", "id"])
    op.create_table(
        "thread_seen",
        *_beginning("thread_seen", "item"),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("upto", _NUMBER, nullable=False),
        sa.UniqueConstraint("item_id", "person", name="uq_thread_seen_item_id_person"),
    )


def _beginning(table: str, *refers: str) -> list[sa.schema.SchemaItem]:
    """The id of a table, and what its rows belong to."""
    places = [
        sa.Column(f"{name}_id", _NUMBER, sa.ForeignKey(f"{name}.id", name=f"fk_{table}_{name}_id"), nullable=False)
        for name in refers
    ]
    return [sa.Column("id", _NUMBER, nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{table}"), *places]
