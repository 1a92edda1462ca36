"""Campaigns are archived, deleted with a grace period and renamed; members have a role; long jobs are kept.

The triggers of the ledger are made again after every migration (`store.schema`).
"""

import sqlalchemy as sa
from alembic import op

revision = "0303_care"
down_revision = "0302_people"


def upgrade() -> None:
    """Campaigns of before are neither archived nor deleted, members are annotators."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    for name in ("archived_at", "deleted_at", "purge_at"):
        op.add_column("campaign", sa.Column(name, sa.Double(), nullable=True))
    op.add_column("campaign", sa.Column("deleted_by", sa.Text(), nullable=True))
    op.add_column("campaign", sa.Column("purging", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("membership", sa.Column("role", sa.Text(), nullable=False, server_default="annotator"))
    op.add_column("round", sa.Column("settings", sa.JSON(), nullable=True))
    op.create_table(
        "old_slug",
        sa.Column("id", number, nullable=False),
        sa.Column("campaign_id", number, nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name="fk_old_slug_campaign_id"),
        sa.PrimaryKeyConstraint("id", name="pk_old_slug"),
        sa.UniqueConstraint("slug", name="uq_old_slug_slug"),
    )
    op.create_table(
        "removed_campaign",
        sa.Column("id", number, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("public_id", "slug", "name")),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("deleted_at", sa.Double(), nullable=False),
        sa.Column("deleted_by", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_removed_campaign"),
        sa.UniqueConstraint("public_id", name="uq_removed_campaign_public_id"),
    )
    op.create_table(
        "job",
        sa.Column("id", number, nullable=False),
        sa.Column("public_id", sa.Text(), nullable=False),
        sa.Column("campaign_id", number, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("options", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("bytes", number, nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name="fk_job_campaign_id"),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
        sa.UniqueConstraint("public_id", name="uq_job_public_id"),
    )
    op.create_index("ix_job_campaign_id_id", "job", ["campaign_id", "id"])
    op.create_index("ix_job_state", "job", ["state"])
