"""What requests bring: records that are checked before any service is called."""

from dataclasses import MISSING, fields
from dataclasses import Field as DataclassField
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import UploadFile
from pydantic import Field, Json, StringConstraints, create_model

from labelchef.domain.campaigns import CampaignFiles, Role
from labelchef.web.settings import Form, NewSettings

MEDIA = "media"
"""The part that may hold several files: the images."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=500)]
RequestId = Annotated[str, StringConstraints(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


class NextForm(Form):
    """How many items to reserve: one to show, the others to have them loaded."""

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
        None, description="Use the same one for each attempt: the vote is stored once."
    )
    blind: bool = Field(False, description="Whether the person had switched the suggestion off.")
    n: int = Field(2, ge=1, le=10, description="Items to reserve next.")


class UndoForm(Form):
    """A request to take the last vote back."""

    request_id: RequestId | None = Field(
        None, description="Use the same one for each attempt: only one vote is taken back."
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
    """Selectors to replay."""

    selectors: Annotated[list[Name], Field(min_length=1, max_length=30)] | None = Field(
        None, description="Names; left out: the campaign's own selector and a few others."
    )
    batch_size: int | None = Field(None, ge=1, le=100000, description="Items per round; left out: the campaign's.")


class AccountForm(Form):
    """A new account."""

    name: Name
    role: Role = Field(Role.ANNOTATOR, strict=False)
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)]


class AccountChange(Form):
    """Changes of an account; what is left out stays."""

    active: bool | None = None
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)] | None = None


class PasswordForm(Form):
    """A new password of the person who is signed in."""

    current: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)]


class TokenForm(Form):
    """A new API token."""

    label: Name


class FolderForm(Form):
    """A campaign from a folder on the server."""

    name: Name
    folder: Key
    settings: NewSettings = Field(default_factory=NewSettings)


class CampaignForm(Form):
    """A campaign from uploaded files; the parts of the files are the fields of `CampaignFiles`."""

    name: Name
    settings: Json[NewSettings] = Field(default_factory=NewSettings)

    def files(self) -> dict[str, list[UploadFile]]:
        """Name of the part → its files, of the parts that were sent."""
        sent = {one.name: getattr(self, one.name) for one in fields(CampaignFiles)}
        listed = {name: part if isinstance(part, list) else [part] for name, part in sent.items() if part is not None}
        return {name: part for name, part in listed.items() if part}


def _part(file: "DataclassField[Any]") -> tuple[Any, Any]:
    if file.name == MEDIA:
        return list[UploadFile] | None, None
    return (UploadFile, ...) if file.default is MISSING else (UploadFile | None, None)


if TYPE_CHECKING:
    UploadedCampaign = CampaignForm
else:
    UploadedCampaign = create_model(
        "UploadedCampaign",
        __base__=CampaignForm,
        __doc__="A campaign from uploaded files; `settings` is JSON.",
        **{one.name: _part(one) for one in fields(CampaignFiles)},
    )
