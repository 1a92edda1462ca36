"""Where the steps begin: the first schema of one ledger, which `store.schema` makes from the tables."""

revision = "0200_one_ledger"
down_revision = None


def upgrade() -> None:
    """No database is older than this one: those of labelchef 0.1 are refused."""
