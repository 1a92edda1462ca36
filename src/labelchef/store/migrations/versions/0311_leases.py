"""Leases: who works on which campaign or job, until when, and with which fencing number."""

import sqlalchemy as sa
from alembic import op

revision = "0311_leases"
down_revision = "0303_care"


def upgrade() -> None:
    """Nobody holds anything yet."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "lease",
        sa.Column("id", number, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("life", number, nullable=False),
        sa.Column("fence", number, nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("asked", sa.Boolean(), nullable=False),
        sa.Column("told", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_lease"),
        sa.UniqueConstraint("name", name="uq_lease_name"),
    )
