"""Settings in the API and on the page come from their options alone."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.settings import OPTIONS, Settings
from labelchef.server.web.forms import ChangedSettings, NewSettings
from tests.web.conftest import Person

Sign = Callable[[str], Person]


def test_every_setting_is_in_the_schemas(app: FastAPI) -> None:
    schemas = app.openapi()["components"]["schemas"]
    assert list(schemas["NewSettings"]["properties"]) == list(OPTIONS)
    assert list(schemas["ChangedSettings"]["properties"]) == [name for name in OPTIONS if OPTIONS[name].changeable]
    assert list(schemas["Settings"]["properties"]) == list(OPTIONS)
    assert "required" not in schemas["NewSettings"]
    for name, shown in schemas["NewSettings"]["properties"].items():
        assert shown["description"].startswith(OPTIONS[name].help)
        default = getattr(Settings(), name)
        assert shown.get("default") == (list(default) if isinstance(default, tuple) else default)
    assert not any("default" in shown for shown in schemas["ChangedSettings"]["properties"].values())
    assert schemas["NewSettings"]["properties"]["people"] == {
        **schemas["NewSettings"]["properties"]["people"], "type": "integer", "minimum": 0, "maximum": 1000
    }  # fmt: skip
    assert schemas["NewSettings"]["properties"]["target_metric"]["enum"] == list(OPTIONS["target_metric"].choices)


def test_records_are_described_by_their_docstrings(app: FastAPI) -> None:
    schemas = app.openapi()["components"]["schemas"]
    assert schemas["RoundSummary"]["properties"]["gain"]["description"].startswith("By metric")
    assert {"change", "doubt"} <= set(schemas["Gain"]["properties"])


@pytest.mark.parametrize("name", OPTIONS)
def test_the_schema_agrees_with_the_check_of_the_option(name: str) -> None:
    """What the model takes, the option takes; what the option refuses by its bounds, the model refuses."""
    option = OPTIONS[name]
    values: list[Any] = [
        None,
        True,
        "auto",
        "",
        "x",
        -1,
        0,
        0.5,
        1,
        2,
        1001,
        1e300,
        [],
        ["x"],
        [""],
        [1],
        *option.choices,
    ]
    for value in values:
        try:
            option.check(name, value)
            allowed = True
        except ValueError:
            allowed = False
        try:
            NewSettings.model_validate({name: value})
            taken = True
        except ValidationError:
            taken = False
        assert taken == allowed, (name, value)


def test_only_what_was_sent_is_given() -> None:
    assert NewSettings.model_validate({}).given() == {}
    assert ChangedSettings.model_validate({"budget": None}).given() == {"budget": None}
    with pytest.raises(ValidationError):
        ChangedSettings.model_validate({"gamma": 0.5})


def test_every_setting_is_a_field_of_the_pages(as_person: Sign, campaign: CampaignSummary) -> None:
    lead = as_person("lead")
    new, running = lead.get("/new").text, lead.get(f"/c/{campaign.slug}/lead/settings").text
    ids = re.findall(r'\bid="([^"]+)"', new)
    assert len(ids) == len(set(ids))
    for name, option in OPTIONS.items():
        if option.kind is tuple:  # muted sources: on the page of each source
            assert f'name="settings.{name}"' not in new + running
            continue
        assert new.count(f'name="settings.{name}"') == 2
        assert running.count(f'name="settings.{name}"') == int(option.changeable)
        assert (f'<th scope="row">{option.title}</th>' in running) != option.changeable
    assert '<input id="batch_size" name="settings.batch_size" type="number" step="1" min="1"' in running
    assert 'value="4" required' in running


def test_a_change_does_not_undo_what_another_lead_changed(as_person: Sign, campaign: CampaignSummary) -> None:
    """The page sends what was changed on it with what was there before; the same field, changed meanwhile, is refused."""
    address = f"/api/campaigns/{campaign.slug}/settings"
    lead, other = as_person("lead"), as_person("lead")
    page = lead.get(f"/c/{campaign.slug}/lead/settings").text
    assert re.search(r'<form [^>]*data-body="settings" data-changed', page), (
        "the page sends only what was changed on it"
    )
    assert lead.client.patch(address, json={"budget": 20, "seen": {"budget": 30}}).status_code == 200
    answer = other.client.patch(address, json={"people": 2, "seen": {"people": 1}})
    assert (answer.json()["settings"]["budget"], answer.json()["settings"]["people"]) == (20, 2)
    refused = other.client.patch(address, json={"budget": 40, "batch_size": 9, "seen": {"budget": 30, "batch_size": 4}})
    assert (refused.status_code, refused.json()["code"]) == (409, "changed")
    assert refused.json()["now"] == {"budget": 20}
    assert "budget is 20 now, set by lead (you saw 30)" in refused.json()["detail"]
    assert lead.get(f"/api/campaigns/{campaign.slug}/status").json()["settings"]["batch_size"] == 4, "nothing is saved"
    same = other.client.patch(address, json={"budget": 20, "seen": {"budget": 30}})
    assert same.status_code == 200, "both want the same"
    assert lead.client.patch(address, json={"budget": None, "seen": {"budget": 20}}).status_code == 200
    emptied = other.client.patch(address, json={"budget": 9, "seen": {"budget": 20}})
    assert emptied.json()["now"] == {"budget": None}
    again = other.client.patch(address, json={"budget": 9, "seen": {"budget": None}})
    assert again.json()["settings"]["budget"] == 9
