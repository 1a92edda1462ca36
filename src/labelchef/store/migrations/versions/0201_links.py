"""A round keeps a link: a digest over the link before it and all votes, decisions and changes since (`ledger.links`)."""

import sqlalchemy as sa
from alembic import op

revision = "0201_links"
down_revision = "0200_one_ledger"


def upgrade() -> None:
    """Rounds that are closed already have none."""
    op.add_column("round", sa.Column("link", sa.JSON(none_as_null=True), nullable=True))
