"""The tables, made from the rows: a column for each field, of the type that the field is declared with.

A whole number `x_id` refers to the table x, and `supersedes` to a row of the same table. Facts are appended; what can be
rebuilt from them says so. vote, decision, application, setting_change, guideline, comment and gold_answer are a ledger: triggers
of the database refuse to change or delete a row, except while a whole campaign is removed (`server.store.removal`). Times are
seconds since 1970 (UTC).
"""

import functools
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

import sqlalchemy as sa

from labelchef.base.campaigns import Role
from labelchef.base.settings import Settings
from labelchef.server.store import rows
from labelchef.server.store.arrays import ArrayFacts

LEDGER_TABLES = ("vote", "decision", "application", "setting_change", "guideline", "comment", "gold_answer")
METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_Member = TypeVar("_Member", bound=StrEnum)


class Enumerated(sa.TypeDecorator[_Member]):
    """A column of the members of an enum, stored as their text."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: type[_Member]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: _Member | None, _dialect: sa.Dialect) -> str | None:
        """The text of a member; a text that names no member is refused."""
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> _Member | None:
        """The member of a stored text."""
        return None if value is None else self.kind(value)


class SettingsColumn(sa.TypeDecorator[Settings]):
    """A column of settings, stored as JSON: name → value."""

    impl = sa.JSON
    cache_ok = True

    def process_bind_param(self, value: Settings | None, _dialect: sa.Dialect) -> dict[str, Any] | None:
        """Names and values."""
        return None if value is None else value.as_dict()

    def process_result_value(self, value: dict[str, Any] | None, _dialect: sa.Dialect) -> Settings | None:
        """The settings; checking them costs more than reading them, so known ones are kept."""
        return (
            None
            if value is None
            else _settings(tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in value.items()))
        )


@functools.lru_cache(maxsize=256)
def _settings(values: tuple[tuple[str, Any], ...]) -> Settings:
    return Settings.stored(dict(values))


_TYPES: dict[object, sa.types.TypeEngine[Any]] = {
    int: sa.BigInteger().with_variant(sa.Integer, "sqlite"),  # SQLite counts rows up by itself only in INTEGER columns
    float: sa.Double(),
    str: sa.Text(),
    bool: sa.Boolean(),
    Settings: SettingsColumn(),
}


def _type(kind: object) -> sa.types.TypeEngine[Any]:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return Enumerated(kind)
    return _TYPES.get(kind, sa.JSON(none_as_null=True))


def _table(
    name: str, fields: type | Mapping[str, Any], unique: Sequence[str] = (), indexes: Sequence[str] = ()
) -> sa.Table:
    """A table with a column for each field, a dataclass's or those given. Columns of a constraint are apart by spaces."""
    hints = get_type_hints(fields) if isinstance(fields, type) else fields
    primary = "id" if "id" in hints else next(iter(hints))
    columns = []
    for field, hint in hints.items():
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        refers = [sa.ForeignKey(f"{field.removesuffix('_id')}.id")] if int in kinds and field.endswith("_id") else []
        if field == "supersedes":
            refers = [sa.ForeignKey(f"{name}.id")]
        columns.append(
            sa.Column(field, _type(kinds[0]), *refers, primary_key=field == primary, nullable=NoneType in kinds)
        )
    constraints = [*(sa.UniqueConstraint(*c.split()) for c in unique), *(sa.Index(None, *c.split()) for c in indexes)]
    return sa.Table(name, METADATA, *columns, *constraints)


Campaign = _table("campaign", rows.CampaignRow, unique=["public_id", "slug"])
ClassName = _table(
    "class_name",
    {"id": int, "campaign_id": int, "position": int, "name": str},
    unique=["campaign_id position", "campaign_id name"],
)
Item = _table("item", rows.ItemRow, unique=["campaign_id split position", "campaign_id split key"])
_HAS_LABEL = Item.c.label.is_not(None)
sa.Index(
    "ix_item_given",
    *Item.c["campaign_id", "split", "position", "label"],
    sqlite_where=_HAS_LABEL,
    postgresql_where=_HAS_LABEL,
)
"""Labels that came with the data: few items have one, and nobody should look at all others to find them."""
ArrayFile = _table(
    "array_file", {"id": int, "campaign_id": int, **get_type_hints(ArrayFacts)}, unique=["campaign_id name"]
)
SettingChange = _table("setting_change", rows.ChangeRow, indexes=["campaign_id id"])
Round = _table("round", rows.RoundRow, unique=["campaign_id number"])
Selection = _table(
    "selection", rows.SelectionRow, unique=["round_id item_id", "round_id rank"], indexes=["item_id attempt"]
)
Assignment = _table("assignment", rows.AssignmentRow, unique=["selection_id person"], indexes=["round_id person"])
Vote = _table(
    "vote",
    rows.VoteRow,
    unique=["public_id", "item_id attempt person seq", "campaign_id person request_id"],
    indexes=["campaign_id id", "campaign_id person id"],
)
Decision = _table("decision", rows.DecisionRow, unique=["public_id"], indexes=["campaign_id id", "item_id id"])
Application = _table("application", {"decision_id": int, "round_id": int}, indexes=["round_id"])
"""The round in which a decision went into the model."""
Gold = _table("gold", rows.GoldRow, unique=["campaign_id person item_id", "round_id person rank"])
GoldAnswer = _table(
    "gold_answer",
    rows.GoldAnswerRow,
    unique=["public_id", "gold_id seq", "campaign_id person request_id"],
    indexes=["campaign_id id"],
)
Duty = _table("duty", rows.DutyRow, unique=["campaign_id person"])
Wish = _table("wish", rows.WishRow, unique=["item_id"], indexes=["campaign_id id"])
LeadAction = _table("lead_action", rows.LeadActionRow, unique=["campaign_id person request_id"])
Guideline = _table("guideline", rows.GuidelineRow, indexes=["campaign_id id"])
GuidelineSeen = _table(
    "guideline_seen",
    {"id": int, "campaign_id": int, "person": str, "version": int},
    unique=["campaign_id person"],
)
"""The version of the guidelines that a person looked at last."""
Comment = _table("comment", rows.CommentRow, unique=["public_id"], indexes=["campaign_id id", "item_id id"])
ThreadSeen = _table(
    "thread_seen",
    {"id": int, "item_id": int, "person": str, "upto": int},
    unique=["item_id person"],
)
"""The last comment of an item's thread that a person has seen."""
Account = _table("account", rows.AccountRow, unique=["name"])
Membership = _table(
    "membership", {"id": int, "campaign_id": int, "account_id": int, "role": Role}, unique=["account_id campaign_id"]
)
"""Who takes part in a campaign, as annotator or as lead of this one campaign."""
OldSlug = _table("old_slug", {"id": int, "campaign_id": int, "slug": str}, unique=["slug"])
"""Short names that a campaign had before: they still lead to it."""
RemovedCampaign = _table("removed_campaign", rows.RemovedCampaign, unique=["public_id"])
Job = _table("job", rows.JobRow, unique=["public_id"], indexes=["campaign_id id", "state"])
Lease = _table("lease", rows.LeaseRow, unique=["name"])
LoginSession = _table(
    "login_session",
    {"id": int, "account_id": int, "token_hash": str, "created_at": float, "expires_at": float},
    unique=["token_hash"],
    indexes=["account_id"],
)
"""A browser that signed in; only a digest of its token is kept."""
ApiToken = _table("api_token", rows.TokenRow, unique=["token_hash"], indexes=["account_id"])
LoginAttempt = _table(
    "login_attempt",
    {"id": int, "name": str, "address": str, "ok": bool, "created_at": float},
    indexes=["name created_at", "address created_at"],
)
"""An attempt to sign in, for throttling."""
