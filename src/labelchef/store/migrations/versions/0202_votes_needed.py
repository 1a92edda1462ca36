"""How many votes an item needs, where people stop at the majority."""

import sqlalchemy as sa
from alembic import op

revision = "0202_votes_needed"
down_revision = "0201_links"


def upgrade() -> None:
    """Selections of before need as many votes as there are people an item."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.add_column("selection", sa.Column("needed", number, nullable=True))
