"""The data set in the formats of other tools, out and in again, by the API of the page."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from labelchef.base.settings import Settings
from labelchef.data.exchange.formats import FORMATS
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.labelling import tasks, votes
from labelchef.server.web.api.exchange import installed_formats
from labelchef.server.workspace import Workspace
from tests.source_support import sourced_data
from tests.web.conftest import Person

Sign = Callable[[str], Person]


@pytest.fixture
def lead(ws: Workspace, as_person: Sign, people: Any) -> Person:
    """A campaign 'sourced' with votes of sources, and two answers."""
    made = campaigns.create_campaign(ws, "Sourced", sourced_data(), Settings(batch_size=4, budget=20), "lead")
    worker.advance(ws, made.slug)
    found = tasks.next_tasks(ws, made.slug, "lead", n=2)
    assert isinstance(found, list)
    for task in found:
        votes.cast_vote(ws, made.slug, "lead", task.item, 0)
    return as_person("lead")


@pytest.mark.parametrize("name", list(FORMATS))
def test_what_goes_out_comes_in_again(lead: Person, name: str) -> None:
    if name not in installed_formats():
        pytest.skip(f"{FORMATS[name].title} needs the extra {FORMATS[name].extra}")
    answer = lead.get("/api/campaigns/sourced/export/dataset", params={"format": name})
    assert answer.status_code == 200, answer.text
    file = answer.headers["content-disposition"].split('"')[1]
    sent = {"file": (file, io.BytesIO(answer.content))}
    again = lead.client.post("/api/campaigns/sourced/import-votes", files=sent, data={"dry_run": "true"})
    if FORMATS[name].people:
        assert again.status_code == 200, again.text
        assert again.json()["counts"] == {"read": 2, "unchanged": 2}
    else:
        assert (again.status_code, again.json()["code"]) == (422, "votes")
        assert "/tmp" not in again.json()["detail"], "no folder of the server is named"


def test_a_format_that_is_none(lead: Person) -> None:
    answer = lead.get("/api/campaigns/sourced/export/dataset", params={"format": "pickle"})
    assert (answer.status_code, answer.json()["code"]) == (422, "format")
