"""The tables. Facts are appended; what can be rebuilt from them says so.

vote, decision, application and setting_change are a ledger: triggers of the database refuse to change or delete a row.
Times are seconds since 1970 (UTC). Columns of enums give and take the members, `campaign.settings` a `Settings`.
"""

import functools
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from labelchef.domain.campaigns import (
    AssignmentState,
    CampaignState,
    DecisionKind,
    Origin,
    Role,
    RoundKind,
    RoundState,
    SplitName,
)
from labelchef.domain.settings import Settings

LEDGER_TABLES = ("vote", "decision", "application", "setting_change")
_KEY = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts rows up by itself only in INTEGER columns


_Member = TypeVar("_Member", bound=StrEnum)


class Enumerated(TypeDecorator[_Member]):
    """A column of the members of an enum, stored as their text."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[_Member], length: int = 16) -> None:
        super().__init__(length)
        self.kind = kind

    def process_bind_param(self, value: _Member | None, _dialect: Dialect) -> str | None:
        """The text of a member; a text that names no member is refused."""
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: str | None, _dialect: Dialect) -> _Member | None:
        """The member of a stored text."""
        return None if value is None else self.kind(value)


class SettingsColumn(TypeDecorator[Settings]):
    """A column of settings, stored as JSON: name → value."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Settings | None, _dialect: Dialect) -> dict[str, Any] | None:
        """Names and values."""
        return None if value is None else value.as_dict()

    def process_result_value(self, value: dict[str, Any] | None, _dialect: Dialect) -> Settings | None:
        """The settings; checking them costs more than reading them, so known ones are kept."""
        return None if value is None else _settings(tuple(value.items()))


@functools.lru_cache(maxsize=256)
def _settings(values: tuple[tuple[str, Any], ...]) -> Settings:
    return Settings.of(dict(values))


class Base(DeclarativeBase):
    """Base of all tables; constraints have names of their own, so that migrations can refer to them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, float: Double, int: _KEY, str: Text}  # noqa: RUF012


class Campaign(Base):
    """A campaign; `settings` are the current ones, the changes to them are in `setting_change`."""

    __tablename__ = "campaign"
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str] = mapped_column(String(32), unique=True)
    slug: Mapped[str] = mapped_column(String(80), unique=True)
    name: Mapped[str]
    state: Mapped[CampaignState] = mapped_column(Enumerated(CampaignState))
    message: Mapped[str]
    settings: Mapped[Settings] = mapped_column(SettingsColumn)
    version: Mapped[int]
    n_items: Mapped[int]
    spent: Mapped[int]
    created_at: Mapped[float]
    created_by: Mapped[str]


class ClassName(Base):
    """A class by its position in the weak labels."""

    __tablename__ = "class_name"
    __table_args__ = (UniqueConstraint("campaign_id", "position"), UniqueConstraint("campaign_id", "name"))
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    position: Mapped[int]
    name: Mapped[str]


class Item(Base):
    """A sample and what people see of it. `label` is given with the data: validation, test, known from the start.

    `attempt` counts how often the item was put to people again; it can be rebuilt from selections and reopenings.
    """

    __tablename__ = "item"
    __table_args__ = (
        UniqueConstraint("campaign_id", "split", "position"),
        UniqueConstraint("campaign_id", "split", "key"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    split: Mapped[SplitName] = mapped_column(Enumerated(SplitName, 8))
    position: Mapped[int]
    key: Mapped[str]
    text: Mapped[str | None]
    image: Mapped[str | None]
    fields: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    label: Mapped[int | None]
    attempt: Mapped[int]


class ArrayFile(Base):
    """An array in the campaign's folder, with the digest of its file."""

    __tablename__ = "array_file"
    __table_args__ = (UniqueConstraint("campaign_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    name: Mapped[str] = mapped_column(String(40))
    path: Mapped[str]
    dtype: Mapped[str] = mapped_column(String(16))
    shape: Mapped[list[Any]]
    sha256: Mapped[str] = mapped_column(String(64))


class SettingChange(Base):
    """What a lead changed: settings, state, people."""

    __tablename__ = "setting_change"
    __table_args__ = (Index(None, "campaign_id", "id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    who: Mapped[str]
    created_at: Mapped[float]
    what: Mapped[dict[str, Any]]


class Round(Base):
    """A round; number 0 is the first model."""

    __tablename__ = "round"
    __table_args__ = (UniqueConstraint("campaign_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    number: Mapped[int]
    kind: Mapped[RoundKind] = mapped_column(Enumerated(RoundKind))
    state: Mapped[RoundState] = mapped_column(Enumerated(RoundState))
    size: Mapped[int]
    ahead: Mapped[int]
    spent: Mapped[int]
    selection_hash: Mapped[str | None] = mapped_column(String(64))
    labels_hash: Mapped[str | None] = mapped_column(String(64))
    model_hash: Mapped[str | None] = mapped_column(String(64))
    metrics: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    predicted_change: Mapped[float | None]
    realised_change: Mapped[float | None]
    diagnostics: Mapped[dict[str, Any]]
    seconds: Mapped[dict[str, Any]]
    opened_at: Mapped[float]
    closed_at: Mapped[float | None]


class Selection(Base):
    """An item handed out in a round. `votes` counts the live votes of people.

    `decided`: the lead decided the item, so it needs no more votes. `by_answer`: the influence of each answer, by class.
    """

    __tablename__ = "selection"
    __table_args__ = (
        UniqueConstraint("round_id", "item_id"),
        UniqueConstraint("round_id", "rank"),
        Index(None, "item_id", "attempt"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    item_id: Mapped[int] = mapped_column(ForeignKey("item.id"))
    rank: Mapped[int]
    origin: Mapped[Origin] = mapped_column(Enumerated(Origin))
    attempt: Mapped[int]
    suggested: Mapped[int | None]
    influence: Mapped[float | None]
    by_answer: Mapped[list[Any]] = mapped_column(default=list)
    blind: Mapped[bool]
    weak: Mapped[list[Any]]
    nearest: Mapped[list[Any]]
    votes: Mapped[int]
    decided: Mapped[bool]


class Assignment(Base):
    """An item given to a person: leased until a time, voted on, or skipped."""

    __tablename__ = "assignment"
    __table_args__ = (UniqueConstraint("selection_id", "person"), Index(None, "round_id", "person"))
    id: Mapped[int] = mapped_column(primary_key=True)
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    selection_id: Mapped[int] = mapped_column(ForeignKey("selection.id"))
    person: Mapped[str]
    state: Mapped[AssignmentState] = mapped_column(Enumerated(AssignmentState))
    until: Mapped[float]
    """End of the lease; for a skipped item, when it was skipped."""


class Vote(Base):
    """A vote, a change of one, or its retraction. Of a person's rows on an attempt the one with the last `seq` counts."""

    __tablename__ = "vote"
    __table_args__ = (
        UniqueConstraint("item_id", "attempt", "person", "seq"),
        UniqueConstraint("campaign_id", "person", "request_id"),
        Index(None, "campaign_id", "id"),
        Index(None, "campaign_id", "person", "id"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str] = mapped_column(String(32), unique=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    item_id: Mapped[int] = mapped_column(ForeignKey("item.id"))
    attempt: Mapped[int]
    round_id: Mapped[int | None] = mapped_column(ForeignKey("round.id"))
    person: Mapped[str]
    account_id: Mapped[int | None] = mapped_column(ForeignKey("account.id"))
    seq: Mapped[int]
    label: Mapped[int | None]
    retracted: Mapped[bool]
    supersedes: Mapped[int | None] = mapped_column(ForeignKey("vote.id"))
    note: Mapped[str | None]
    blind: Mapped[bool]
    suggested: Mapped[int | None]
    seconds: Mapped[float | None]
    source: Mapped[str] = mapped_column(String(16))
    request_id: Mapped[str | None] = mapped_column(String(80))
    created_at: Mapped[float]


class Decision(Base):
    """The label an item was given by votes or a lead; None leaves it unresolved."""

    __tablename__ = "decision"
    __table_args__ = (Index(None, "campaign_id", "id"), Index(None, "item_id", "id"))
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str] = mapped_column(String(32), unique=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    item_id: Mapped[int] = mapped_column(ForeignKey("item.id"))
    attempt: Mapped[int]
    round_id: Mapped[int | None] = mapped_column(ForeignKey("round.id"))
    kind: Mapped[DecisionKind] = mapped_column(Enumerated(DecisionKind))
    by: Mapped[str]
    label: Mapped[int | None]
    support: Mapped[float]
    supersedes: Mapped[int | None] = mapped_column(ForeignKey("decision.id"))
    created_at: Mapped[float]


class Application(Base):
    """The round in which a decision went into the model."""

    __tablename__ = "application"
    __table_args__ = (Index(None, "round_id"),)
    decision_id: Mapped[int] = mapped_column(ForeignKey("decision.id"), primary_key=True, autoincrement=False)
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))


class Account(Base):
    """A person who may sign in."""

    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(120), unique=True)
    role: Mapped[Role] = mapped_column(Enumerated(Role))
    password_hash: Mapped[str | None]
    active: Mapped[bool]
    created_at: Mapped[float]


class Membership(Base):
    """An annotator of a campaign."""

    __tablename__ = "membership"
    __table_args__ = (UniqueConstraint("account_id", "campaign_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"))


class LoginSession(Base):
    """A browser that signed in; only a digest of its token is kept."""

    __tablename__ = "login_session"
    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"), index=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[float]
    expires_at: Mapped[float]


class ApiToken(Base):
    """A token for programs, or a link that signs in once; only a digest is kept."""

    __tablename__ = "api_token"
    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"), index=True)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    label: Mapped[str]
    once: Mapped[bool]
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]


class LoginAttempt(Base):
    """An attempt to sign in, for throttling."""

    __tablename__ = "login_attempt"
    __table_args__ = (Index(None, "name", "created_at"), Index(None, "address", "created_at"))
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(120))
    address: Mapped[str] = mapped_column(String(120))
    ok: Mapped[bool]
    created_at: Mapped[float]
