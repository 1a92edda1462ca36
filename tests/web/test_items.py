"""The browser of items over HTTP: filters in the address, actions, who may, and what annotators never get."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.settings import Settings
from labelchef.server import worker
from labelchef.server.campaigns import campaigns, numbers
from labelchef.server.campaigns.access import find
from labelchef.server.web.images import image_response
from labelchef.server.workspace import Workspace, folder_of
from tests.store_support import campaign_data
from tests.web.conftest import NASTY, Person
from tests.web.test_api import label_items

AsPerson = Callable[[str], Person]


@pytest.fixture
def lead(as_person: AsPerson, campaign: CampaignSummary) -> Person:
    return as_person("lead")


def test_the_list_is_filtered_by_its_address(lead: Person, campaign: CampaignSummary) -> None:
    items = f"/api/campaigns/{campaign.slug}/items"
    everything = lead.get(items, params={"limit": 200}).json()
    assert (everything["matches"], everything["total"], everything["next"]) == (60, 60, None)
    by_name = lead.get(items, params={"predicted": "<b>cow</b>", "limit": 200}).json()
    assert by_name == lead.get(items, params={"predicted": "2", "limit": 200}).json()
    assert {one["predicted"] for one in by_name["entries"]} == {2}
    found = lead.get(items, params={"q": '"text 7"', "state": "", "round": ""}).json()
    assert [one["item"] for one in found["entries"]] == ["t7"]
    assert {"text": "Text 7", "match": True} in found["entries"][0]["excerpt"]
    first = lead.get(items, params={"sort": "doubt", "limit": 40}).json()
    rest = lead.get(items, params={"sort": "doubt", "limit": 40, "after": first["next"]}).json()
    doubts = [one["doubt"] for one in first["entries"] + rest["entries"]]
    assert len(doubts) == 60
    assert doubts == sorted(doubts, reverse=True)
    for wrong in ({"split": "x"}, {"state": "x"}, {"label": "horse"}, {"label": "9"}, {"disagree": "x"}):
        assert lead.get(items, params=wrong).json()["code"] == "filter"


def test_annotators_get_nothing_of_it(as_person: AsPerson, campaign: CampaignSummary) -> None:
    ann, base = as_person("ann"), f"/api/campaigns/{campaign.slug}/items"
    for path in (base, f"{base}/t1/detail", f"{base}/t1/similar", f"/c/{campaign.slug}/lead/items"):
        assert ann.get(path).status_code == 403
    assert ann.post(f"{base}/actions", {"action": "decide", "label": 0, "items": ["t1"]}).status_code == 403


def test_an_action_is_done_once_and_told_item_by_item(ws: Workspace, lead: Person, campaign: CampaignSummary) -> None:
    base = f"/api/campaigns/{campaign.slug}"
    new = [one["item"] for one in lead.get(f"{base}/items", params={"state": "new", "limit": 2}).json()["entries"]]
    body = {"action": "ask", "items": [*new, "v1"], "request_id": "ask-them-once"}
    done = lead.post(f"{base}/items/actions", body).json()
    assert (done["done"], done["refused"], done["repeated"]) == (2, 1, False)
    assert [one["why"] for one in done["fates"]] == ["", "", "item"]  # a trusted item is none that can be asked
    assert lead.post(f"{base}/items/actions", body).json() == {**done, "repeated": True}
    query = {"state": "waiting"}
    count = lead.get(f"{base}/items", params=query).json()["matches"]
    assert count == 2
    decided = lead.post(f"{base}/items/actions", {"action": "decide", "label": "dog", "query": query, "count": count})
    assert decided.json()["done"] == 2
    assert lead.get(f"{base}/items", params={"label": "dog", "state": "answered"}).json()["matches"] == 2
    assert lead.get(f"{base}/items/{new[0]}/detail").json()["decisions"][0]["by"] == "lead"
    assert lead.post(f"{base}/items/actions", {"action": "decide", "items": new}).json()["code"] == "label"
    assert lead.post(f"{base}/items/actions", {"action": "explode", "items": new}).status_code == 422


def test_the_pages_show_texts_as_text_and_lead_from_id_to_item(
    ws: Workspace, lead: Person, campaign: CampaignSummary
) -> None:
    label_items(ws, campaign.slug, 4)
    worker.advance(ws, campaign.slug)
    home = f"/c/{campaign.slug}/lead"
    page = lead.get(f"{home}/items", params={"q": "script", "suspect": "true", "state": "asked"}).text
    assert NASTY not in page
    assert "remove this filter" in page
    assert "of 60 items" in page
    whole = lead.get(f"{home}/items/t3").text
    assert NASTY not in whole
    assert "&lt;script&gt;" in whole
    assert lead.get(f"{home}/items/v3", params={"split": "val"}).status_code == 200
    assert lead.get(f"{home}/items/nothing").status_code == 404
    assert f'href="{home}/items/t' in lead.get(f"{home}/ledger").text


def test_large_images_are_sent_small_to_lists(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (300, 400, 4), dtype=np.uint8)
    pictures = {
        "large": Image.fromarray(noise),
        "deep": Image.fromarray(noise.astype(np.uint16)[:, :, 0] * 257),
        "tiny": Image.fromarray(noise[:8, :8]),
    }
    for name, picture in pictures.items():
        path = tmp_path / f"{name}.png"
        picture.save(path)
        answer = image_response(path, name, small=True)
        if name == "large":
            with Image.open(io.BytesIO(bytes(answer.body))) as found:
                assert (found.format, found.size, answer.media_type) == ("JPEG", (144, 108), "image/jpeg")
            assert len(answer.body) < path.stat().st_size / 10
        else:
            assert (bytes(answer.body), answer.media_type) == (path.read_bytes(), "image/png")


def test_the_models_numbers_say_which_class_each_is_of(ws: Workspace, lead: Person, campaign: CampaignSummary) -> None:
    """A decision rule may choose a class that is not the most probable, and a label may be newer than the model."""
    (path,) = folder_of(ws, find(ws, campaign.slug)).glob("numbers-*.npy")
    known = numbers.Columns(np.load(path))
    for column, value in (
        ("predicted", 1),
        ("probability", 0.32),
        ("weak", 0),
        ("label", 0),
        ("label_probability", 0.53),
    ):
        known[column][40] = value
    np.save(path, known.held)
    api, page = f"/api/campaigns/{campaign.slug}", f"/c/{campaign.slug}/lead/items/t40"

    def told() -> str:
        return " ".join(re.sub(r"<[^>]*>", "", lead.get(page).text.partition('id="model-says"')[2]).split())

    assert "The model of round 0 decides for dog, to which it gives 32 %." in told()
    assert "It gives 53 % to cat, the class of the weak label, which holds until there is an answer." in told()
    assert "decision rule" not in told(), "τ is 0: the class is the most probable one of three"
    lead.post(f"{api}/decisions", {"item": "t40", "label": 2})
    assert lead.get(f"{api}/items/t40/detail").json()["line"]["label_probability"] is None, "53 % is not of this label"
    assert "What it gives to &lt;b&gt;cow&lt;/b&gt;, the label now, comes with the next model." in told()
    assert "53 %" not in told()
    lead.post(f"{api}/decisions", {"item": "t40", "label": 0})
    assert "It gives 53 % to cat, the label now." in told()
    lead.post(f"{api}/decisions", {"item": "t40", "label": 1})
    assert lead.get(f"{api}/items/t40/detail").json()["line"]["label_probability"] == pytest.approx(0.32)
    assert "the label now" not in told()


def test_a_decision_rule_is_named_where_there_is_one(ws: Workspace, lead: Person) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [150, 30, 20])[rng.permutation(200)]
    X, names = rng.normal(size=(200, 3)) + 1.2 * np.eye(3)[y], ("a", "b", "c")
    data = campaign_data(X[:100], rng.dirichlet([1.0] * 3, 100), X[100:], y[100:], classes=names)
    slug = campaigns.create_campaign(ws, "Rare", data, Settings(), "lead").slug
    worker.advance(ws, slug)
    in_use = campaigns.rounds(ws, slug)[0].in_use
    assert in_use is not None
    assert in_use.tau > 0
    known = numbers.latest(folder_of(ws, find(ws, slug)))
    assert known is not None
    low, high = int(known["probability"].argmin()), int(known["probability"].argmax())
    assert known["probability"][low] < 0.5 < known["probability"][high]
    sentence = "Its decision rule favours rare classes, so another class may be more probable."
    pages = [lead.get(f"/c/{slug}/lead/items/{place}").text for place in (low, high)]
    assert [sentence in page for page in pages] == [True, False]
