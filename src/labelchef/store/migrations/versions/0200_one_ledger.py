"""The schema, and the triggers that keep the ledger append-only."""

import sqlalchemy as sa
from alembic import op

revision = "0200_one_ledger"
down_revision = None

_LEDGER = ("vote", "decision", "application", "setting_change")


def upgrade() -> None:
    """Make the tables."""
    _tables()
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION labelchef_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"
        )
        for table in _LEDGER:
            op.execute(
                f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION labelchef_append_only()"
            )
            op.execute(
                f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
                "FOR EACH STATEMENT EXECUTE FUNCTION labelchef_append_only()"
            )
        return
    for table in _LEDGER:
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )


def _tables() -> None:
    op.create_table(
        "account",
        sa.Column("id", _key(), nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account")),
        sa.UniqueConstraint("name", name=op.f("uq_account_name")),
    )
    op.create_table(
        "campaign",
        sa.Column("id", _key(), nullable=False),
        sa.Column("public_id", sa.String(length=32), nullable=False),
        sa.Column("slug", sa.String(length=80), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("version", _key(), nullable=False),
        sa.Column("n_items", _key(), nullable=False),
        sa.Column("spent", _key(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign")),
        sa.UniqueConstraint("public_id", name=op.f("uq_campaign_public_id")),
        sa.UniqueConstraint("slug", name=op.f("uq_campaign_slug")),
    )
    op.create_table(
        "login_attempt",
        sa.Column("id", _key(), nullable=False),
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("address", sa.String(length=120), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_login_attempt")),
    )
    op.create_index(
        op.f("ix_login_attempt_address_created_at"), "login_attempt", ["address", "created_at"], unique=False
    )
    op.create_index(op.f("ix_login_attempt_name_created_at"), "login_attempt", ["name", "created_at"], unique=False)
    op.create_table(
        "api_token",
        sa.Column("id", _key(), nullable=False),
        sa.Column("account_id", _key(), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("once", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_api_token_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_token")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_api_token_token_hash")),
    )
    op.create_index(op.f("ix_api_token_account_id"), "api_token", ["account_id"], unique=False)
    op.create_table(
        "array_file",
        sa.Column("id", _key(), nullable=False),
        sa.Column("campaign_id", _key(), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("dtype", sa.String(length=16), nullable=False),
        sa.Column("shape", sa.JSON(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_array_file_campaign_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_array_file")),
        sa.UniqueConstraint("campaign_id", "name", name=op.f("uq_array_file_campaign_id_name")),
    )
    op.create_table(
        "class_name",
        sa.Column("id", _key(), nullable=False),
        sa.Column("campaign_id", _key(), nullable=False),
        sa.Column("position", _key(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_class_name_campaign_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_class_name")),
        sa.UniqueConstraint("campaign_id", "name", name=op.f("uq_class_name_campaign_id_name")),
        sa.UniqueConstraint("campaign_id", "position", name=op.f("uq_class_name_campaign_id_position")),
    )
    op.create_table(
        "item",
        sa.Column("id", _key(), nullable=False),
        sa.Column("campaign_id", _key(), nullable=False),
        sa.Column("split", sa.String(length=8), nullable=False),
        sa.Column("position", _key(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("image", sa.Text(), nullable=True),
        sa.Column("fields", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("label", _key(), nullable=True),
        sa.Column("attempt", _key(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_item_campaign_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_item")),
        sa.UniqueConstraint("campaign_id", "split", "key", name=op.f("uq_item_campaign_id_split_key")),
        sa.UniqueConstraint("campaign_id", "split", "position", name=op.f("uq_item_campaign_id_split_position")),
    )
    op.create_table(
        "login_session",
        sa.Column("id", _key(), nullable=False),
        sa.Column("account_id", _key(), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_login_session_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_login_session")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_login_session_token_hash")),
    )
    op.create_index(op.f("ix_login_session_account_id"), "login_session", ["account_id"], unique=False)
    op.create_table(
        "membership",
        sa.Column("id", _key(), nullable=False),
        sa.Column("campaign_id", _key(), nullable=False),
        sa.Column("account_id", _key(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_membership_account_id")),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_membership_campaign_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_membership")),
        sa.UniqueConstraint("account_id", "campaign_id", name=op.f("uq_membership_account_id_campaign_id")),
    )
    op.create_table(
        "round",
        sa.Column("id", _key(), nullable=False),
        sa.Column("campaign_id", _key(), nullable=False),
        sa.Column("number", _key(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("size", _key(), nullable=False),
        sa.Column("ahead", _key(), nullable=False),
        sa.Column("spent", _key(), nullable=False),
        sa.Column("selection_hash", sa.String(length=64), nullable=True),
        sa.Column("labels_hash", sa.String(length=64), nullable=True),
        sa.Column("model_hash", sa.String(length=64), nullable=True),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("predicted_change", sa.Double(), nullable=True),
        sa.Column("realised_change", sa.Double(), nullable=True),
        sa.Column("diagnostics", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_round_campaign_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_round")),
        sa.UniqueConstraint("campaign_id", "number", name=op.f("uq_round_campaign_id_number")),
    )
    op.create_table(
        "setting_change",
        sa.Column("id", _key(), nullable=False),
        sa.Column("campaign_id", _key(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("what", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_setting_change_campaign_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_setting_change")),
    )
    op.create_index(op.f("ix_setting_change_campaign_id_id"), "setting_change", ["campaign_id", "id"], unique=False)
    op.create_table(
        "decision",
        sa.Column("id", _key(), nullable=False),
        sa.Column("public_id", sa.String(length=32), nullable=False),
        sa.Column("campaign_id", _key(), nullable=False),
        sa.Column("item_id", _key(), nullable=False),
        sa.Column("attempt", _key(), nullable=False),
        sa.Column("round_id", _key(), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("label", _key(), nullable=True),
        sa.Column("support", sa.Double(), nullable=False),
        sa.Column("supersedes", _key(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_decision_campaign_id")),
        sa.ForeignKeyConstraint(["item_id"], ["item.id"], name=op.f("fk_decision_item_id")),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name=op.f("fk_decision_round_id")),
        sa.ForeignKeyConstraint(["supersedes"], ["decision.id"], name=op.f("fk_decision_supersedes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decision")),
        sa.UniqueConstraint("public_id", name=op.f("uq_decision_public_id")),
    )
    op.create_index(op.f("ix_decision_campaign_id_id"), "decision", ["campaign_id", "id"], unique=False)
    op.create_index(op.f("ix_decision_item_id_id"), "decision", ["item_id", "id"], unique=False)
    op.create_table(
        "selection",
        sa.Column("id", _key(), nullable=False),
        sa.Column("round_id", _key(), nullable=False),
        sa.Column("item_id", _key(), nullable=False),
        sa.Column("rank", _key(), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("attempt", _key(), nullable=False),
        sa.Column("suggested", _key(), nullable=True),
        sa.Column("influence", sa.Double(), nullable=True),
        sa.Column("by_answer", sa.JSON(), nullable=False),
        sa.Column("blind", sa.Boolean(), nullable=False),
        sa.Column("weak", sa.JSON(), nullable=False),
        sa.Column("nearest", sa.JSON(), nullable=False),
        sa.Column("votes", _key(), nullable=False),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["item.id"], name=op.f("fk_selection_item_id")),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name=op.f("fk_selection_round_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_selection")),
        sa.UniqueConstraint("round_id", "item_id", name=op.f("uq_selection_round_id_item_id")),
        sa.UniqueConstraint("round_id", "rank", name=op.f("uq_selection_round_id_rank")),
    )
    op.create_index(op.f("ix_selection_item_id_attempt"), "selection", ["item_id", "attempt"], unique=False)
    op.create_table(
        "vote",
        sa.Column("id", _key(), nullable=False),
        sa.Column("public_id", sa.String(length=32), nullable=False),
        sa.Column("campaign_id", _key(), nullable=False),
        sa.Column("item_id", _key(), nullable=False),
        sa.Column("attempt", _key(), nullable=False),
        sa.Column("round_id", _key(), nullable=True),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("account_id", _key(), nullable=True),
        sa.Column("seq", _key(), nullable=False),
        sa.Column("label", _key(), nullable=True),
        sa.Column("retracted", sa.Boolean(), nullable=False),
        sa.Column("supersedes", _key(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("blind", sa.Boolean(), nullable=False),
        sa.Column("suggested", _key(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("request_id", sa.String(length=80), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_vote_account_id")),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.id"], name=op.f("fk_vote_campaign_id")),
        sa.ForeignKeyConstraint(["item_id"], ["item.id"], name=op.f("fk_vote_item_id")),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name=op.f("fk_vote_round_id")),
        sa.ForeignKeyConstraint(["supersedes"], ["vote.id"], name=op.f("fk_vote_supersedes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vote")),
        sa.UniqueConstraint("campaign_id", "person", "request_id", name=op.f("uq_vote_campaign_id_person_request_id")),
        sa.UniqueConstraint("item_id", "attempt", "person", "seq", name=op.f("uq_vote_item_id_attempt_person_seq")),
        sa.UniqueConstraint("public_id", name=op.f("uq_vote_public_id")),
    )
    op.create_index(op.f("ix_vote_campaign_id_id"), "vote", ["campaign_id", "id"], unique=False)
    op.create_index(op.f("ix_vote_campaign_id_person_id"), "vote", ["campaign_id", "person", "id"], unique=False)
    op.create_table(
        "application",
        sa.Column("decision_id", _key(), autoincrement=False, nullable=False),
        sa.Column("round_id", _key(), nullable=False),
        sa.ForeignKeyConstraint(["decision_id"], ["decision.id"], name=op.f("fk_application_decision_id")),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name=op.f("fk_application_round_id")),
        sa.PrimaryKeyConstraint("decision_id", name=op.f("pk_application")),
    )
    op.create_index(op.f("ix_application_round_id"), "application", ["round_id"], unique=False)
    op.create_table(
        "assignment",
        sa.Column("id", _key(), nullable=False),
        sa.Column("round_id", _key(), nullable=False),
        sa.Column("selection_id", _key(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["round_id"], ["round.id"], name=op.f("fk_assignment_round_id")),
        sa.ForeignKeyConstraint(["selection_id"], ["selection.id"], name=op.f("fk_assignment_selection_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_assignment")),
        sa.UniqueConstraint("selection_id", "person", name=op.f("uq_assignment_selection_id_person")),
    )
    op.create_index(op.f("ix_assignment_round_id_person"), "assignment", ["round_id", "person"], unique=False)


def _key() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
