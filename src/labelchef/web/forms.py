"""What the API takes: JSON shapes, checked before any service is called."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from labelchef.domain.campaigns import Role
from labelchef.domain.settings import Settings

Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=500)]
RequestId = Annotated[str, StringConstraints(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


class Form(BaseModel):
    """Base of what comes in: names that are none are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NextForm(Form):
    """How many items to hold at once: one to see, the others so that they are there already."""

    n: int = Field(2, ge=1, le=10)


class VoteForm(Form):
    """A vote on an item."""

    item: Key
    label: int | str | None = Field(
        description="Class by position (from 0) or by name; null: ambiguous.", examples=[0, "cat"]
    )
    note: Annotated[str, StringConstraints(max_length=2000)] | None = None
    seconds: float | None = Field(None, ge=0, le=86400, allow_inf_nan=False, description="How long it took.")
    request_id: RequestId | None = Field(
        None, description="The same for each attempt to send this vote: it is stored once."
    )
    blind: bool = Field(False, description="Whether the person had switched the suggestion off.")
    n: int = Field(2, ge=1, le=10, description="Items to hold next.")


class UndoForm(Form):
    """The last vote, to take back."""

    request_id: RequestId | None = Field(
        None, description="The same for each attempt to send this: one vote is taken back."
    )


class ItemForm(Form):
    """An item by its key."""

    item: Key


class SkipForm(ItemForm):
    """An item to leave to others."""

    n: int = Field(2, ge=1, le=10)


class ResolveForm(ItemForm):
    """The lead's decision on an item."""

    label: int | str = Field(description="Class by position (from 0) or by name.", examples=[0, "cat"])


class SignInForm(Form):
    """Name and password."""

    name: Name
    password: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class CompareForm(Form):
    """Selectors to replay; what is left out is as usual."""

    selectors: Annotated[list[Name], Field(min_length=1, max_length=30)] | None = Field(
        None, description="Names; left out: the campaign's own and a few to set it against."
    )
    batch_size: int | None = Field(None, ge=1, le=100000, description="Items a round; left out: the campaign's.")


class AccountForm(Form):
    """A new account."""

    name: Name
    role: Role = Field(Role.ANNOTATOR, strict=False)
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)]


class AccountChange(Form):
    """What to change of an account."""

    active: bool | None = None
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)] | None = None


class PasswordForm(Form):
    """A new password for oneself."""

    current: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)]


class TokenForm(Form):
    """A new API token."""

    label: Name


class SettingsForm(Form):
    """Settings to change while a campaign runs; what is left out stays."""

    batch_size: int | None = Field(None, ge=1, le=100000)
    budget: int | None = Field(None, ge=1, le=2**31 - 1)
    target: float | None = Field(None, allow_inf_nan=False)
    target_metric: Name | None = None
    ahead: int | None = Field(None, ge=0, le=100000)
    blind_share: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    blind: bool | None = None
    lease_minutes: float | None = Field(None, gt=0, le=10000, allow_inf_nan=False)

    def changes(self) -> dict[str, Any]:
        """What was sent; null clears a budget or a target and is nothing for the others."""
        sent = self.model_dump(exclude_unset=True)
        return {k: v for k, v in sent.items() if v is not None or k in ("budget", "target")}


class CampaignSettingsForm(Form):
    """Settings of a new campaign; what is left out has its default."""

    selector: Name | None = None
    look_ahead: bool | None = None
    constructor: Name | None = None
    gamma: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | Literal["auto"] | None = Field(
        None, description="Weight of a weak label. Left out or 'auto': chosen by cross-validation."
    )
    l2: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | Literal["auto"] | None = Field(
        None, description="L2 strength, likewise."
    )
    holdout: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] | Literal["auto"] | None = Field(
        None, description="Share of validation that judges and that selection never sees."
    )
    seed: int | None = Field(None, ge=0, le=2**31 - 1)
    people: int | None = Field(None, ge=0, le=1000)
    suggestion_votes: bool | None = None
    batch_size: int | None = Field(None, ge=1, le=100000)
    budget: int | None = Field(None, ge=1, le=2**31 - 1)
    target: float | None = Field(None, allow_inf_nan=False)
    target_metric: Name | None = None
    ahead: int | None = Field(None, ge=0, le=100000)
    blind_share: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    blind: bool | None = None
    lease_minutes: float | None = Field(None, gt=0, le=10000, allow_inf_nan=False)

    def settings(self) -> Settings:
        """As the services take them."""
        sent = self.model_dump(exclude_unset=True)
        kept = {k: v for k, v in sent.items() if v is not None or k in ("budget", "target")}
        return Settings.of(kept)


class FolderForm(Form):
    """A campaign from a folder on the server."""

    name: Name
    folder: Key
    settings: CampaignSettingsForm = Field(default_factory=CampaignSettingsForm)
