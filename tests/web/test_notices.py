"""What keeps a campaign waiting is said to its lead: too few people, files that are missing."""

from collections.abc import Callable

from typer.testing import CliRunner

from labelchef.base.campaigns import CampaignSummary, Role, RoundState
from labelchef.cli.main import app as command
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.people import accounts
from labelchef.server.workspace import Workspace
from tests.store_support import tasks, wait_until
from tests.web.conftest import Person, make_campaign, small_data

TOO_FEW = (
    "3 votes an item are asked, 2 people vote; add people, label too, or lower the setting “People an item” (people)"
)


def test_too_few_people_are_said_to_the_lead(
    ws: Workspace, people: dict[str, Role], as_person: Callable[[str], Person]
) -> None:
    made = make_campaign(ws, people=3)
    assert [one.code for one in made.notices] == ["people"], "when it is made"
    for name in ("ann", "bob", "eve"):
        accounts.set_member(ws, made.slug, name)
    assert campaigns.summary(ws, made.slug).notices == ()
    accounts.set_member(ws, made.slug, "eve", member=False)
    lead, ann = as_person("lead"), as_person("ann")
    (told,) = lead.get(f"/api/campaigns/{made.slug}/status").json()["summary"]["notices"]
    assert told == {"code": "people", "message": TOO_FEW}
    for path in ("/", f"/c/{made.slug}/lead", f"/c/{made.slug}/lead/people"):
        assert TOO_FEW in lead.get(path).text
    assert ann.get(f"/api/campaigns/{made.slug}").json()["notices"] == []
    assert TOO_FEW not in ann.get("/").text
    shown = CliRunner().invoke(command, ["status", made.slug, "--home", str(ws.home)])
    assert TOO_FEW in " ".join(shown.output.split())
    changed = lead.client.patch(f"/api/campaigns/{made.slug}/settings", json={"people": 1000}).json()
    assert changed["summary"]["notices"][0]["message"].startswith("1000 votes an item are asked, 2 people")
    lead.client.patch(f"/api/campaigns/{made.slug}/settings", json={"people": 3})
    cast_vote(ws, made.slug, "lead", tasks(ws, made.slug, "lead", 1)[0].item, 0)
    assert campaigns.summary(ws, made.slug).notices == (), "the lead is the third"


def test_fewer_votes_an_item_end_the_waiting_at_once(ws: Workspace, people: dict[str, Role]) -> None:
    made = make_campaign(ws, people=3, batch_size=2)
    for name in ("ann", "bob"):
        accounts.set_member(ws, made.slug, name)
        for task in tasks(ws, made.slug, name, 2):
            cast_vote(ws, made.slug, name, task.item, 0)
    campaigns.change_settings(ws, made.slug, "lead", people=2)
    assert worker.advance(ws, made.slug) == 3
    assert [one.state for one in campaigns.rounds(ws, made.slug)][-2:] == [RoundState.CLOSED, RoundState.SELECTED]


def test_without_accounts_anybody_may_vote(ws: Workspace) -> None:
    assert make_campaign(ws, people=3).notices == ()


def test_a_missing_folder_is_said_and_the_campaign_goes_on_when_it_is_back(
    ws: Workspace, campaign: CampaignSummary, as_person: Callable[[str], Person]
) -> None:
    other = campaigns.create_campaign(ws, "Other", small_data(), campaigns.settings(ws, campaign.slug), "lead")
    folder, away = ws.home / "campaigns" / campaign.id, ws.home / "away"
    for task in tasks(ws, campaign.slug, "ann", 4):
        cast_vote(ws, campaign.slug, "ann", task.item, 0)
    folder.rename(away)
    lead = as_person("lead")
    found = {one["slug"]: one["notices"] for one in lead.get("/api/campaigns").json()["entries"]}
    assert found[other.slug] == []
    assert [one["code"] for one in found[campaign.slug]] == ["folder"]
    assert "is missing" in lead.get(f"/c/{campaign.slug}/lead").text
    told = as_person("ann").get(f"/api/campaigns/{campaign.slug}").json()
    assert "folder" in told["message"]
    assert str(ws.home) not in str(told), "annotators see no paths of the server"
    listed = CliRunner().invoke(command, ["status", "--home", str(ws.home)])
    assert f"{campaign.slug}: the folder" in " ".join(listed.output.split())
    answer = lead.get(f"/api/campaigns/{campaign.slug}/sources")
    assert (answer.status_code, answer.json()["code"]) == (503, "folder")
    with worker.Worker(ws):
        wait_until(lambda: campaigns.summary(ws, other.slug).round == 1)
        assert campaigns.summary(ws, campaign.slug).round == 1
        away.rename(folder)
        wait_until(lambda: campaigns.summary(ws, campaign.slug).round == 2)
    assert campaigns.summary(ws, campaign.slug).notices == ()
