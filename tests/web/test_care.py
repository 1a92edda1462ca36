"""Care of campaigns through the API and on the pages; one number for "asked"; one way through a real browser."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from labelchef.base.campaigns import CampaignSummary, Role, Shelf
from labelchef.base.jobs import JobKind
from labelchef.cli.workspace import _show_status
from labelchef.server import worker
from labelchef.server.campaigns import campaigns, care, progress
from labelchef.server.export import exchange
from labelchef.server.items import decisions
from labelchef.server.jobs import jobs
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person, live, make_campaign
from tests.web.test_api import label_items
from tests.web.test_browser import Open, enter, opened  # noqa: F401 (a fixture)


def test_rename_delete_restore_and_copy(
    ws: Workspace, campaign: CampaignSummary, as_person: Callable[[str], Person]
) -> None:
    lead, path = as_person("lead"), f"/api/campaigns/{campaign.slug}"
    taken = lead.post(f"{path}/copy", {"name": "animals"})
    assert taken.status_code == 409
    told = taken.json()
    assert (told["code"], told["suggestion"], told["campaign"]) == ("name_taken", "animals 2", campaign.slug)
    assert (
        lead.post(f"{path}/copy", {"name": told["suggestion"], "settings": {"selector": "random"}}).status_code == 201
    )
    assert campaigns.settings(ws, "animals-2").selector == "random"
    assert 'name="settings.selector"' in lead.get(f"/c/{campaign.slug}/lead/copy").text
    made = lead.post(f"{path}/rename", {"name": "Pets", "slug": "pets"}).json()
    assert (made["name"], made["slug"]) == ("Pets", "pets")
    moved = lead.client.get(f"/c/{campaign.slug}/lead/ledger?kind=vote", follow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (308, "/c/pets/lead/ledger?kind=vote")
    assert lead.get(path).json()["slug"] == "pets"  # programs may use the old address
    refused = lead.post("/api/campaigns/pets/delete", {"confirm": "pets"})
    assert (refused.status_code, refused.json()["code"]) == (422, "confirm")
    assert lead.post("/api/campaigns/pets/delete", {"confirm": "Pets"}).json()["purge_at"] is not None
    assert lead.get("/api/campaigns/pets").status_code == 404
    assert "Pets" in lead.get("/?shelf=deleted").text
    assert [one["slug"] for one in lead.get("/api/campaigns?shelf=deleted").json()["entries"]] == ["pets"]
    assert lead.post("/api/campaigns/pets/restore", {}).json()["deleted_at"] is None
    lead.post("/api/campaigns/pets/archive", {})
    refused = lead.client.patch("/api/campaigns/pets/settings", json={"budget": 3})
    assert (refused.status_code, refused.json()["code"]) == (409, "archived")
    assert "Pets" not in lead.get("/").text
    assert "in the archive" in lead.get("/c/pets/lead").text


def test_a_lead_of_one_campaign_has_its_lead_pages_only(
    ws: Workspace, campaign: CampaignSummary, as_person: Callable[[str], Person]
) -> None:
    other = make_campaign(ws, "Other")
    lead = as_person("lead")
    assert lead.client.put(f"/api/campaigns/{campaign.slug}/members/ann?role=lead").status_code == 204
    here = {one["name"]: one["here"] for one in lead.get(f"/api/campaigns/{campaign.slug}/members").json()["entries"]}
    assert here["ann"] == "lead"
    accounts.set_member(ws, other.slug, "ann", "lead")
    ann = as_person("ann")
    for part in ("", "/items?view=conflicts", "/ledger", "/people", "/settings", "/take-home", "/sources"):
        assert ann.get(f"/c/{campaign.slug}/lead{part}").status_code == 200, part
        assert ann.get(f"/c/{other.slug}/lead{part}").status_code == 403, part
    assert ">Take home<" in ann.get(f"/c/{campaign.slug}/label").text
    assert ">Take home<" not in ann.get(f"/c/{other.slug}/label").text
    for path in ("/new", "/people", f"/c/{campaign.slug}/lead/copy"):
        assert ann.get(path).status_code == 403, path
    assert "Make accounts" not in ann.get(f"/c/{campaign.slug}/lead/people").text
    votes = {"file": ("votes.csv", b"item,annotator,label\nt1,robot,dog\n")}
    for slug, status in ((campaign.slug, 200), (other.slug, 403)):
        sent = ann.client.post(f"/api/campaigns/{slug}/import-votes", files=votes, data={"dry_run": "true"})
        assert sent.status_code == status
    now = ann.post(f"/api/campaigns/{campaign.slug}/delete", {"confirm": campaign.name, "now": True})
    assert (now.status_code, now.json()["code"]) == (403, "role")


@pytest.mark.slow
def test_asked_is_one_number_everywhere(
    ws: Workspace, as_person: Callable[[str], Person], capsys: pytest.CaptureFixture[str], people: dict[str, Role]
) -> None:
    """With an audit, a label decided without being asked, a correction, an item reopened, and an open batch."""
    slug = make_campaign(ws, budget=24, batch_size=6, audit=0.25).slug
    label_items(ws, slug, 12)
    open_now = campaigns.status(ws, slug).open_round
    assert open_now is not None
    asked_now = {one.item for one in open_now.items}
    free = next(f"t{k}" for k in range(59, 0, -1) if f"t{k}" not in asked_now and not _decided(ws, slug, f"t{k}"))
    decisions.resolve(ws, slug, free, 0, "lead")  # never asked
    known = next(f"t{k}" for k in range(60) if _decided(ws, slug, f"t{k}") and f"t{k}" != free)
    decisions.resolve(ws, slug, known, 1, "lead")  # a correction
    label_items(ws, slug, 6)
    worker.advance(ws, slug)
    seen, lead = campaigns.status(ws, slug), as_person("lead")
    asked = seen.asked.asked
    assert (asked, seen.asked.others) == (18, 1), "the correction is of a sample that was asked"
    assert 0 < seen.asked.audited < 18
    assert seen.summary.spent == seen.rounds[-1].spent == asked
    shown = progress.progress(ws, slug)
    assert sum(one.asked for one in shown.rounds) == shown.spent == asked
    assert sum(one.asked for one in progress.progress_for(ws, slug, "ann").rounds) == asked
    answered = lead.get(f"/api/campaigns/{slug}/status").json()
    assert (answered["summary"]["spent"], answered["asked"]["asked"]) == (asked, asked)
    assert lead.get("/api/campaigns").json()["entries"][0]["spent"] == asked
    sentence = f"{asked} samples asked ({seen.asked.audited} of them drawn by chance), 1 more imported or decided"
    assert f"{asked} of 24 asked" in " ".join(lead.get("/").text.split())
    page = lead.get(f"/c/{slug}/lead").text
    assert f"<b>{asked} / 24</b><span>items asked</span>" in page
    assert sentence in page
    report = exchange.report(ws, slug)
    assert f"<b>{asked}</b><span>samples asked</span>" in report
    assert sentence in report
    assert "the first 20 of 20 are shown" in report
    assert re.search(r"<figcaption class=note>Validation: .* trusted samples", report)
    _show_status(seen)
    told = capsys.readouterr().out
    assert f"asked {asked} of 24" in told
    assert sentence in " ".join(told.split())


def _decided(ws: Workspace, slug: str, item: str) -> bool:
    return any(one.kind == "decision" for one in decisions.ledger(ws, slug, item=item).entries)


@pytest.fixture
def laptop(ws: Workspace) -> Iterator[str]:
    made = make_campaign(ws, budget=24)
    make_campaign(ws, "Other")
    label_items(ws, made.slug, 24)
    with live(ws, ServeOptions()) as base:
        yield base


@pytest.mark.slow
@pytest.mark.usefixtures("held_replays")
def test_a_lead_takes_care_of_a_campaign(ws: Workspace, laptop: str, opened: Open, tmp_path: Path) -> None:  # noqa: F811
    page = opened(laptop)
    page.set_default_timeout(120_000)
    enter(ws, page, "/c/animals/lead/take-home")
    page.locator("form[data-job=replay] button").click()  # a job with progress, cancelled
    box = page.locator(".job[data-kind=replay]")
    expect(box.locator("progress")).to_be_visible()
    page.wait_for_function("() => document.querySelector('.job[data-kind=replay] progress')?.value > 0")
    expect(box.locator(".job-told")).to_contain_text("Round 0 of")
    page.reload()  # it goes on without the page
    box.get_by_role("button", name="Cancel").click()
    expect(box).to_contain_text("It was cancelled", timeout=60_000)
    page.get_by_role("button", name="Predictions as csv").click()
    link = page.locator(".job[data-kind=predictions] a")
    with page.expect_download() as got:
        link.click()
    assert got.value.path().read_text().startswith("id,split,label,probability")
    expect(page.locator("#jobs > li")).to_have_count(2)
    expect(page.locator("#jobs > li").first).to_contain_text("animals-predictions.csv")
    page.locator("#jobs > li").nth(1).get_by_role("button", name="Remove").click()
    expect(page.locator("#jobs > li")).to_have_count(1)
    assert [one.kind for one in jobs.jobs(ws, "animals")] == [JobKind.PREDICTIONS]

    page.goto("/c/animals/lead/settings")  # rename; the name of another campaign is asked about
    page.get_by_label("Name", exact=True).fill("Other")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_text("A campaign of this name exists.")).to_be_visible()
    page.get_by_role("button", name="Call this one “Other 2”").click()
    page.wait_for_url("**/c/animals/lead/settings")
    expect(page.locator(".top .place")).to_have_text("Other 2")
    page.locator("#confirm").fill("Other 2")  # delete and restore
    page.locator("#delete button").click()
    page.wait_for_url("**/?shelf=deleted")
    expect(page.locator(".campaign h2")).to_have_text("Other 2")
    assert [one.slug for one in campaigns.list_campaigns(ws, shelf=Shelf.DELETED)] == ["animals"]
    page.get_by_role("button", name="Restore Other 2").click()
    page.wait_for_url("**/c/animals/lead")
    page.goto("/c/animals/lead/settings")
    page.get_by_role("button", name="Archive the campaign").click()
    page.get_by_role("button", name="Reopen the campaign").click()
    page.get_by_role("button", name="Archive the campaign").wait_for()
    assert care.archive(ws, "animals", "lead").archived_at is not None
