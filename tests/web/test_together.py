"""Several people at once, and one person in two tabs: what is reserved, what was decided meanwhile, what replaced what."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from labelchef.base.campaigns import CampaignSummary, Role, WaitReason
from labelchef.server import worker
from labelchef.server.campaigns import campaigns, care
from labelchef.server.items import decisions
from labelchef.server.labelling import tasks, votes
from labelchef.server.workspace import Workspace
from tests.store_support import gold_data, make
from tests.web.conftest import Person, make_campaign
from tests.web.test_api import label_items
from tests.web.test_browser import Open, opened, sign_in, team

__all__ = ["opened", "team"]
Sign = Callable[[str], Person]


def test_a_lead_sees_who_holds_items_and_frees_them(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    api, page = f"/api/campaigns/{campaign.slug}", f"/c/{campaign.slug}/lead"
    lead, ann = as_person("lead"), as_person("ann")
    assert "Reserved now" not in lead.get(page).text
    held = [one["item"] for one in lead.post(f"{api}/next", {"n": 3}).json()["tasks"]]
    assert len(ann.post(f"{api}/next", {"n": 3}).json()["tasks"]) == 1, "three of four are reserved for the lead"
    found = {one["person"]: one["items"] for one in lead.get(f"{api}/status").json()["open_round"]["holders"]}
    assert found == {"ann": 1, "lead": 3}
    assert 'aria-label="Free the items of lead"' in lead.get(page).text
    assert ann.post(f"{api}/free", {"person": "lead"}).status_code == 403
    assert lead.post(f"{api}/free", {"person": "lead"}).status_code == 204
    assert set(held) <= {one["item"] for one in ann.post(f"{api}/next", {"n": 4}).json()["tasks"]}
    noted = decisions.ledger(ws, campaign.slug, kind="change").entries[0]
    assert (noted.who, noted.what) == ("lead", {"freed": "lead", "items": 3})
    assert lead.post(f"{api}/free", {"person": "lead"}).status_code == 204
    assert decisions.ledger(ws, campaign.slug, kind="change").entries[0] == noted, "nothing was held: nothing to note"


def test_a_shorter_time_ends_what_would_last_longer(ws: Workspace, campaign: CampaignSummary) -> None:
    held = tasks.next_tasks(ws, campaign.slug, "ann", 4)
    assert isinstance(held, list)
    waiting = tasks.next_tasks(ws, campaign.slug, "bob", 4)
    assert not isinstance(waiting, list)
    assert waiting.reason == WaitReason.OTHERS
    campaigns.change_settings(ws, campaign.slug, "lead", lease_minutes=5.0)
    freed = tasks.next_tasks(ws, campaign.slug, "bob", 4)
    assert isinstance(freed, list)
    assert {one.item for one in freed} == {one.item for one in held}


def test_a_decision_made_since_is_not_overruled_without_a_word(
    ws: Workspace, as_person: Sign, campaign: CampaignSummary
) -> None:
    api = f"/api/campaigns/{campaign.slug}"
    lead, decide = as_person("lead"), {"action": "decide", "label": 2}
    assert 'id="item-title" class="item-name" data-label=""' in lead.get(f"/c/{campaign.slug}/lead/items/t40").text
    decisions.resolve(ws, campaign.slug, "t40", 1, "max")
    seen = {"t40": None, "t41": None}
    refused = lead.post(f"{api}/items/actions", {**decide, "items": ["t40", "t41"], "seen": seen})
    assert (refused.status_code, refused.json()["code"], refused.json()["now"]) == (409, "changed", {"t40": "dog"})
    assert "'t40' is dog by max" in refused.json()["detail"]
    assert decisions.ledger(ws, campaign.slug, kind="decision", item="t41").entries == (), "nothing was done"
    one = lead.post(f"{api}/decisions", {"item": "t40", "label": 2, "seen": None})
    assert (one.status_code, one.json()["now"]) == (409, {"t40": "dog"})
    assert lead.post(f"{api}/decisions", {"item": "t40", "label": "dog", "seen": None}).status_code == 204
    done = lead.post(f"{api}/items/actions", {**decide, "items": ["t40", "t41"], "seen": {"t40": 1, "t41": None}})
    assert done.json()["done"] == 2
    assert lead.post(f"{api}/decisions", {"item": "t40", "label": 0}).status_code == 204, (
        "without `seen`, it is confirmed"
    )
    page = lead.get(f"/c/{campaign.slug}/lead/items", params={"q": "t40"}).text
    assert 'data-item="t40" data-label="0"' in page


def test_a_vote_that_replaces_one_says_so_alike_on_gold(ws: Workspace) -> None:
    """One person in two tabs: the receipt says that a vote was replaced, of an item and of hidden gold in the same words."""
    slug = make(ws, data=gold_data(), gold_share=0.4, blind_share=0.5, batch_size=12, budget=24)
    given = tasks.next_tasks(ws, slug, "ann", 12)
    assert isinstance(given, list)
    receipts = {}
    for task in given:
        first = votes.cast_vote(ws, slug, "ann", task.item, 0)
        again = votes.cast_vote(ws, slug, "ann", task.item, 1)
        votes.undo_vote(ws, slug, "ann")
        undone = votes.cast_vote(ws, slug, "ann", task.item, 0)
        gold = bool(task.content.text and task.content.text.startswith("trusted"))
        receipts[gold] = [(one.changed, one.repeated) for one in (first, again, undone)]
    assert receipts[True] == receipts[False] == [(False, False), (True, False), (False, False)]


def test_who_gets_nothing_is_told_why(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    """Somebody without a vote did no part, has nothing to take back, and an archived campaign does not go on by itself."""
    api = f"/api/campaigns/{campaign.slug}"
    ann, bob = as_person("ann"), as_person("bob")
    (item, *_) = [one["item"] for one in ann.post(f"{api}/next", {"n": 4}).json()["tasks"]]
    waiting = bob.post(f"{api}/next", {}).json()["waiting"]
    assert (waiting["reason"], waiting["message"], waiting["undo"]) == (WaitReason.OTHERS, tasks.NONE_FREE, False)
    ann.post(f"{api}/votes", {"item": item, "label": 0})
    campaigns.pause(ws, campaign.slug, "lead")
    assert ann.post(f"{api}/next", {}).json()["waiting"]["undo"]
    assert not bob.post(f"{api}/next", {}).json()["waiting"]["undo"]
    campaigns.resume(ws, campaign.slug, "lead")
    assert as_person("lead").post(f"{api}/archive").status_code == 200
    gone = ann.post(f"{api}/next", {}).json()["waiting"]
    assert (gone["reason"], gone["undo"]) == (WaitReason.ARCHIVED, False)


def test_an_archived_or_deleted_campaign_says_so(as_person: Sign, campaign: CampaignSummary) -> None:
    api, page = f"/api/campaigns/{campaign.slug}", f"/c/{campaign.slug}/lead"
    lead, other = as_person("lead"), as_person("lead")
    lead.post(f"{api}/archive")
    overview, settings = other.get(page).text, other.get(f"{page}/settings").text
    assert '<span class="badge stopped">archived</span>' in overview
    assert "/pause" not in overview
    assert re.search(r"<button[^>]* disabled>Save<", settings)
    assert re.search(r"<button[^>]* disabled>Rename<", settings)
    lead.post(f"{api}/unarchive")
    assert not re.search(r"<button[^>]* disabled>", other.get(f"{page}/settings").text)
    lead.post(f"{api}/delete", {"confirm": campaign.name})
    told = other.post(f"{api}/pause")
    assert (told.status_code, told.json()["code"]) == (404, "campaign")
    assert told.json()["detail"].startswith(f"the campaign '{campaign.name}' was deleted by lead")
    assert "deleted" not in as_person("ann").get(api).json()["detail"]


def test_no_class_is_chosen_beforehand_and_the_budget_is_found(
    ws: Workspace, as_person: Sign, people: dict[str, Role]
) -> None:
    made, lead = make_campaign(ws, budget=4), as_person("lead")
    items = lead.get(f"/c/{made.slug}/lead/items").text
    assert '<select id="act-label"><option value="">choose a class</option>' in items
    label_items(ws, made.slug, 4)
    worker.advance(ws, made.slug)
    assert f'href="/c/{made.slug}/lead/settings#budget">Raise the budget' in lead.get(f"/c/{made.slug}/lead").text
    assert ' id="budget"' in lead.get(f"/c/{made.slug}/lead/settings").text


@pytest.mark.slow
def test_pages_of_two_leads(ws: Workspace, team: str, opened: Open) -> None:
    first, second = opened(team), opened(team)
    for page in (first, second):
        sign_in(page, "lead", "/c/animals/lead/settings")
    saved = "form[data-changed] .told"
    first.get_by_label("Budget").fill("50")
    first.get_by_role("button", name="Save", exact=True).click()
    expect(first.locator(saved)).to_contain_text("Saved")
    second.get_by_label("Batch size").fill("0")
    second.get_by_role("button", name="Save", exact=True).click()
    top, field = second.locator(".top").bounding_box(), second.get_by_label("Batch size").bounding_box()
    assert top is not None
    assert field is not None
    assert field["y"] >= top["y"] + top["height"], "what is wrong is not behind the header"
    second.get_by_label("Batch size").fill("3")
    second.get_by_role("button", name="Save", exact=True).click()
    expect(second.locator(saved)).to_contain_text("Saved")
    expect(second.get_by_label("Budget")).to_have_value("50")
    kept = campaigns.settings(ws, "animals")
    assert (kept.budget, kept.batch_size) == (50, 3)
    second.get_by_label("Budget").fill("40")
    second.get_by_role("button", name="Save", exact=True).click()
    expect(second.locator(saved)).to_contain_text("Saved")
    first.get_by_label("Budget").fill("60")
    first.get_by_role("button", name="Save", exact=True).click()
    expect(first.locator(saved)).to_contain_text("budget is 40 now, set by lead (you saw 50)")
    first.get_by_role("button", name="Save", exact=True).click()
    expect(first.locator(saved)).to_contain_text("Saved")
    assert campaigns.settings(ws, "animals").budget == 60
    second.goto("/c/animals/lead")
    care.delete(ws, "animals", "lead", confirm="Animals")
    expect(second.get_by_role("alert")).to_contain_text("This campaign was deleted")
    expect(second.get_by_role("button", name="Pause")).to_be_disabled()
