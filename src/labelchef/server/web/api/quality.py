"""Quality of people, for leads; which items members get; and what annotators see of their own closed rounds."""

from typing import Annotated

from pydantic import Field, StringConstraints

from labelchef.base.duties import MOST_ITEMS, Duty
from labelchef.server.campaigns import duties
from labelchef.server.people import quality as measuring
from labelchef.server.people.quality import OwnWork, QualityReport
from labelchef.server.web.forms import AccountPath, CampaignPath, Form, Key, Name
from labelchef.server.web.policies import ACCOUNT, Api, Lead, Member, Store

routes = Api("quality", "/campaigns/{campaign}")
Text = Annotated[str, StringConstraints(max_length=1000)]


class DutyForm(Form):
    """Which items a member gets; all conditions that are given must hold, none given is everything."""

    classes: Annotated[list[Name], Field(max_length=1000)] = Field(
        default_factory=list, description="Classes an item is believed to have when it is selected."
    )
    field: Text = Field("", description="A field of the items, with `value`.")
    value: Text = ""
    prefix: Text = Field("", description="How the ids of the items begin.")
    items: Annotated[list[Key], Field(max_length=MOST_ITEMS)] = Field(default_factory=list, description="Ids of items.")

    def duty(self) -> Duty:
        """As the service takes it."""
        return Duty(tuple(self.classes), self.field, self.value, self.prefix, tuple(self.items))


@routes.get("/quality")
def quality(campaign: CampaignPath, _: Lead, ws: Store) -> QualityReport:
    """What is known of each person, with intervals; answers when it is computed."""
    return measuring.quality(ws, campaign)


@routes.get("/mine")
def mine(campaign: CampaignPath, who: Member, ws: Store) -> OwnWork:
    """The own closed rounds."""
    return measuring.mine(ws, campaign, who.name)


@routes.get("/duties")
def all_duties(campaign: CampaignPath, _: Lead, ws: Store) -> dict[str, Duty]:
    """Who gets which items, of those who do not get everything."""
    return duties.duties(ws, campaign)


@routes.put(
    "/duties/{name:path}",
    ACCOUNT,
    (422, "member", "not a member of the campaign"),
    (422, "duty", "no such class, or a field without its value"),
    status_code=204,
)
def set_duty(campaign: CampaignPath, name: AccountPath, form: DutyForm, who: Lead, ws: Store) -> None:
    """Say which items a member gets, from now on; nothing given: everything."""
    duties.set_duty(ws, campaign, name, form.duty(), who.name)
