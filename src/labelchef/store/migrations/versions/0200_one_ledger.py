"""The schema, and the triggers that keep the ledger append-only."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0200_one_ledger"
down_revision = None

_LEDGER = ("vote", "decision", "application", "setting_change")
_TYPES: dict[str, sa.types.TypeEngine[Any]] = {
    "whole": sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
    "real": sa.Double(),
    "text": sa.Text(),
    "flag": sa.Boolean(),
    "json": sa.JSON(none_as_null=True),
}


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
    _create("account", text="name role password_hash?", flag="active", real="created_at", unique=["name"])
    _create(
        "campaign",
        text="public_id slug name state message created_by",
        json="settings",
        whole="version n_items spent",
        real="created_at",
        unique=["public_id", "slug"],
    )
    _create(
        "login_attempt",
        text="name address",
        flag="ok",
        real="created_at",
        indexes=["name created_at", "address created_at"],
    )
    _create(
        "api_token",
        whole="account_id",
        text="token_hash label",
        flag="once",
        real="created_at expires_at? revoked_at?",
        unique=["token_hash"],
        indexes=["account_id"],
    )
    _create("array_file", whole="campaign_id", text="name path dtype sha256", json="shape", unique=["campaign_id name"])
    _create(
        "class_name", whole="campaign_id position", text="name", unique=["campaign_id name", "campaign_id position"]
    )
    _create(
        "item",
        whole="campaign_id position label? attempt",
        text="split key text? image?",
        json="fields?",
        unique=["campaign_id split key", "campaign_id split position"],
    )
    _create(
        "login_session",
        whole="account_id",
        text="token_hash",
        real="created_at expires_at",
        unique=["token_hash"],
        indexes=["account_id"],
    )
    _create("membership", whole="campaign_id account_id", unique=["account_id campaign_id"])
    _create(
        "round",
        whole="campaign_id number size ahead spent",
        text="kind state rebuilt selection_hash? labels_hash? model_hash?",
        json="outcome? diagnostics seconds",
        real="opened_at closed_at?",
        unique=["campaign_id number"],
    )
    _create(
        "setting_change", whole="campaign_id", text="who", real="created_at", json="what", indexes=["campaign_id id"]
    )
    _create(
        "decision",
        whole="campaign_id item_id round_id? attempt label? supersedes?",
        text="public_id kind by",
        real="support created_at",
        unique=["public_id"],
        indexes=["campaign_id id", "item_id id"],
    )
    _create(
        "selection",
        whole="round_id item_id rank attempt suggested? votes",
        text="origin",
        real="influence?",
        flag="blind decided",
        json="by_answer weak nearest",
        unique=["round_id item_id", "round_id rank"],
        indexes=["item_id attempt"],
    )
    _create(
        "vote",
        whole="campaign_id item_id round_id? account_id? attempt seq label? supersedes? suggested?",
        text="public_id person note? source request_id?",
        flag="retracted blind",
        real="seconds? created_at",
        unique=["public_id", "item_id attempt person seq", "campaign_id person request_id"],
        indexes=["campaign_id id", "campaign_id person id"],
    )
    _create("application", key="decision_id", whole="round_id", indexes=["round_id"])
    _create(
        "assignment",
        whole="round_id selection_id",
        text="person state",
        real="until",
        unique=["selection_id person"],
        indexes=["round_id person"],
    )


def _create(
    table: str, *, key: str = "id", unique: Sequence[str] = (), indexes: Sequence[str] = (), **columns: str
) -> None:
    """A table with its columns by type; those with ? may be null. A whole number `x_id` refers to the table x."""
    columns["whole"] = f"{key} {columns.get('whole', '')}"
    parts: list[sa.schema.SchemaItem] = [sa.PrimaryKeyConstraint(key, name=op.f(f"pk_{table}"))]
    for kind, listed in columns.items():
        for name in listed.split():
            column = name.rstrip("?")
            parts.append(sa.Column(column, _TYPES[kind], nullable=name != column))
            if column == "supersedes" or (kind == "whole" and column.endswith("_id")):
                target = table if column == "supersedes" else column.removesuffix("_id")
                named = op.f(f"fk_{table}_{column}")
                parts.append(sa.ForeignKeyConstraint([column], [f"{target}.id"], name=named))
    parts += [sa.UniqueConstraint(*c, name=op.f("_".join(["uq", table, *c]))) for c in map(str.split, unique)]
    op.create_table(table, *parts)
    for names in map(str.split, indexes):
        op.create_index(op.f("_".join(["ix", table, *names])), table, names)
