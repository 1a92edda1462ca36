"""Who has imported a vote."""

import sqlalchemy as sa
from alembic import op

revision = "0312_imported"
down_revision = "0310_scale"


def upgrade() -> None:
    """Of votes of before it is not known."""
    op.add_column("vote", sa.Column("imported_by", sa.Text(), nullable=True))
