"""Settings in requests: models derived from `domain.settings.OPTIONS`, so that a new setting needs no change here.

Types, bounds, choices and defaults are in the models, and so in the OpenAPI document. What depends on several settings, or
on what is installed, is checked by `Settings` and the services.
"""

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from labelchef.domain.settings import AUTO, OPTIONS, Option, Settings


class Form(BaseModel):
    """Base of the records that requests bring: unknown names are refused, numbers must be numbers."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SettingsForm(Form):
    """Settings by name; those left out are unset."""

    def given(self) -> dict[str, Any]:
        """Name → value of the settings that were sent."""
        return self.model_dump(exclude_unset=True)


def _type(option: Option) -> Any:
    found: Any = option.kind
    if option.choices:
        found = Literal[option.choices]
    elif option.kind is str:
        found = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    elif option.kind is not bool:
        bounds = {"ge": option.least, "le": option.most, "gt": option.above, "lt": option.below}
        kept: dict[str, Any] = {name: option.kind(bound) for name, bound in bounds.items() if math.isfinite(bound)}
        if option.kind is float:
            kept["allow_inf_nan"] = False
        found = Annotated[option.kind, Field(**kept)]
    if option.auto:
        found = found | Literal[AUTO]
    return found | None if option.none else found


def _model(name: str, about: str, defaults: dict[str, Any]) -> type[SettingsForm]:
    """A model of the settings in `defaults`, none of them required."""
    described: dict[str, Any] = {
        key: (_type(OPTIONS[key]), Field(default=default, title=OPTIONS[key].title, description=_told(OPTIONS[key])))
        for key, default in defaults.items()
    }
    return create_model(name, __base__=SettingsForm, __doc__=about, **described)


def _told(option: Option) -> str:
    return f"{option.help} Null: {option.none}." if option.none else option.help


if TYPE_CHECKING:
    NewSettings = SettingsForm
    ChangedSettings = SettingsForm
else:
    NewSettings = _model(
        "NewSettings",
        "Settings of a new campaign; those left out have their default.",
        {one.name: one.default for one in fields(Settings)},
    )
    ChangedSettings = _model(
        "ChangedSettings",
        "Settings to change while a campaign runs; those left out stay as they are.",
        {name: None for name, option in OPTIONS.items() if option.changeable},
    )
