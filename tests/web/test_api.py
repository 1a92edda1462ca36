"""The API by its answers: labelling, what leads do, exchange, content that is hostile."""

import asyncio
import errno
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from labelchef.base.campaigns import CampaignSummary, Role
from labelchef.base.settings import Settings
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.trained import data_of
from labelchef.server.labelling import tasks, votes
from labelchef.server.people import accounts
from labelchef.server.workspace import Workspace
from tests.web.conftest import NASTY, PASSWORD, Person, make_campaign, png, small_data

Sign = Callable[[str], Person]


def base(campaign: CampaignSummary) -> str:
    return f"/api/campaigns/{campaign.slug}"


def vote(person: Person, campaign: CampaignSummary, item: str, label: Any = 0, **more: Any) -> dict[str, Any]:
    answer = person.post(f"{base(campaign)}/votes", {"item": item, "label": label, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def held(person: Person, campaign: CampaignSummary, n: int = 2) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = person.post(f"{base(campaign)}/next", {"n": n}).json()["tasks"]
    return tasks


def test_a_vote_is_saved_and_the_next_item_comes_with_it(as_person: Sign, campaign: CampaignSummary) -> None:
    ann = as_person("ann")
    first, second = held(ann, campaign)
    answer = vote(ann, campaign, first["item"], first["suggestion"], seconds=1.5, note="sure", request_id="12345678")
    assert answer["vote"] == {**answer["vote"], "item": first["item"], "repeated": False, "changed": False}
    assert answer["next"]["tasks"][0]["item"] == second["item"]
    again = vote(ann, campaign, first["item"], first["suggestion"], note="sure", request_id="12345678")
    assert again["vote"]["repeated"]
    assert again["vote"]["id"] == answer["vote"]["id"]
    assert vote(ann, campaign, first["item"], "dog")["vote"]["changed"]


def test_a_task_explains_itself(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    task = held(as_person("ann"), campaign)[0]
    assert task["content"]["text"].endswith(NASTY), "as it is: escaping is the page's business"
    assert task["classes"] == ["cat", "dog", "<b>cow</b>"]
    assert sum(task["weak"]) == pytest.approx(1)
    assert task["influence"] is None, "margin predicts no change"
    assert task["suggestion"] in range(3)
    made = make_campaign(ws, "Influence", selector="expected_infl")
    accounts.set_member(ws, made.slug, "ann", "lead")
    assert held(as_person("ann"), made)[0]["influence"] < 0
    assert {near["label"] for near in task["neighbours"]} <= set(task["classes"])
    assert task["content"]["fields"]["length"] == len(task["content"]["text"])


def test_undo_skip_and_ambiguous(as_person: Sign, campaign: CampaignSummary) -> None:
    ann = as_person("ann")
    first, second = held(ann, campaign)
    assert ann.post(f"{base(campaign)}/undo").json()["code"] == "nothing_to_undo"
    vote(ann, campaign, first["item"], None, note="neither")
    back = ann.post(f"{base(campaign)}/undo").json()
    assert back["item"] == first["item"]
    assert back["own_vote"] is None
    skipped = ann.post(f"{base(campaign)}/skip", {"item": first["item"]}).json()
    assert skipped["tasks"][0]["item"] == second["item"]
    assert ann.post(f"{base(campaign)}/skip", {"item": "t59"}).status_code in (404, 409)
    assert ann.get(f"{base(campaign)}/tasks/{second['item']}").json()["item"] == second["item"]


def test_an_undo_sent_twice_takes_one_vote_back(as_person: Sign, campaign: CampaignSummary) -> None:
    ann = as_person("ann")
    first, second = held(ann, campaign)
    vote(ann, campaign, first["item"])
    vote(ann, campaign, second["item"])
    for _ in range(2):
        back = ann.post(f"{base(campaign)}/undo", {"request_id": "undo-0001"})
        assert (back.status_code, back.json()["item"]) == (200, second["item"])
    assert ann.get(f"{base(campaign)}/tasks/{first['item']}").json()["own_vote"]["label"] == 0
    assert ann.client.post(f"{base(campaign)}/undo").json()["item"] == first["item"], "a body is not needed"


def test_items_and_people_may_have_slashes(
    ws: Workspace, as_person: Sign, campaign: CampaignSummary, tmp_path: Path
) -> None:
    data = small_data(tmp_path / "media", pictures=True)
    assert isinstance(data.contents.items, pd.DataFrame)
    data.contents.items["id"] = [f"set/{k % 2}/p {k}.png" for k in range(len(data.contents.items))]
    made = campaigns.create_campaign(ws, "Paths", data, campaigns.settings(ws, campaign.slug), "lead")
    worker.advance(ws, made.slug)
    accounts.create_account(ws, "lab/ann", Role.ANNOTATOR, PASSWORD)
    lead = as_person("lead")
    task = held(lead, made)[0]
    assert lead.get(task["content"]["image"]).status_code == 200
    assert lead.get(task["content"]["image"].replace("%2F", "/")).status_code == 200
    assert lead.get(f"{base(made)}/tasks/{quote(task['item'], safe='')}").json()["item"] == task["item"]
    assert lead.client.put(f"{base(made)}/members/{quote('lab/ann', safe='')}").status_code == 204
    assert [one["name"] for one in lead.get(f"{base(made)}/members").json()["entries"]] == ["lab/ann"]
    assert "/members/lab%2Fann" in lead.get(f"/c/{made.slug}/lead/people").text
    assert lead.client.delete(f"{base(made)}/members/lab%2Fann").status_code == 204


def test_nobody_learns_of_others_votes(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    made = make_campaign(ws, "Overlap", people=2, batch_size=3)
    for name in ("ann", "bob"):
        accounts.set_member(ws, made.slug, name, "lead")
    ann, bob = as_person("ann"), as_person("bob")
    for task in held(ann, made, 3):
        vote(ann, made, task["item"], 2, note="my secret note")
    tasks = held(bob, made, 3)
    assert len(tasks) == 3
    assert "secret" not in json.dumps(tasks)
    assert all(task["own_vote"] is None for task in tasks)
    for path in (base(made), f"{base(made)}/rounds", f"/c/{made.slug}/progress", f"/c/{made.slug}/label"):
        answer = bob.get(path)
        assert answer.status_code == 200, path
        assert "secret" not in answer.text
        assert not re.search(r"\bann\b", answer.text), path


def test_a_blind_task_holds_nothing_of_the_model(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    made = make_campaign(ws, "Blind", blind_share=1.0)
    accounts.set_member(ws, made.slug, "ann", "lead")
    task = held(as_person("ann"), made)[0]
    assert task["blind"]
    assert task["suggestion"] is task["weak"] is task["influence"] is None
    assert task["neighbours"] == []


def test_a_round_ends_and_the_metric_moves(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    ann = as_person("ann")
    tasks = held(ann, campaign, 4)
    answers = [vote(ann, campaign, task["item"], task["suggestion"]) for task in tasks]
    assert answers[-1]["vote"]["batch_complete"]
    assert answers[-1]["next"]["waiting"]["reason"] == "updating"
    worker.advance(ws, campaign.slug)
    rounds = ann.get(f"{base(campaign)}/rounds").json()["entries"]
    assert [one["number"] for one in rounds] == [2, 1, 0]
    assert rounds[1]["validation"]["loss"] != rounds[2]["validation"]["loss"]
    assert ann.get(base(campaign)).json()["spent"] == 4


def test_people_who_disagree_leave_a_conflict_that_the_lead_resolves(
    ws: Workspace, as_person: Sign, campaign: CampaignSummary
) -> None:
    made = make_campaign(ws, "Two", people=2, batch_size=2)
    ann, bob, lead = as_person("ann"), as_person("bob"), as_person("lead")
    for name in ("ann", "bob"):
        assert lead.client.put(f"{base(made)}/members/{name}").status_code == 204
    for person, label in ((ann, 0), (bob, 1)):
        for task in held(person, made, 2):
            vote(person, made, task["item"], label)
    worker.advance(ws, made.slug)
    found = lead.get(f"{base(made)}/conflicts").json()["entries"]
    assert len(found) == 2
    assert sorted((v["person"], v["label"]) for v in found[0]["votes"]) == [("ann", 0), ("bob", 1)]
    assert lead.post(f"{base(made)}/decisions", {"item": found[0]["item"], "label": "dog"}).status_code == 204
    assert lead.post(f"{base(made)}/decisions", {"item": found[0]["item"], "label": "horse"}).json()["code"] == "label"
    assert len(lead.get(f"{base(made)}/conflicts").json()["entries"]) == 1
    exported = lead.get(f"{base(made)}/export/labels").text
    line = next(line for line in exported.splitlines() if line.startswith(f"{found[0]['item']},"))
    assert ",dog,cleaned,lead" in line


def test_the_ledger_in_pages_with_filters(as_person: Sign, campaign: CampaignSummary) -> None:
    ann, lead = as_person("ann"), as_person("lead")
    for task in held(ann, campaign, 4):
        vote(ann, campaign, task["item"], 0)
    seen, cursor = [], None
    while True:
        params: dict[str, Any] = {"limit": 3, **({} if cursor is None else {"after": cursor})}
        page = lead.get(f"{base(campaign)}/ledger", params=params).json()
        seen += [entry["id"] for entry in page["entries"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) >= 4
    votes = lead.get(f"{base(campaign)}/ledger", params={"kind": "vote", "person": "ann"}).json()["entries"]
    assert len(votes) == 4
    assert lead.get(f"{base(campaign)}/ledger", params={"person": "bob"}).json()["entries"] == []
    for bad in ("x", "nan~vote~1", "inf~vote~99999999999999999999999", "~~"):
        assert lead.get(f"{base(campaign)}/ledger", params={"after": bad}).status_code in (200, 422)


def test_pages_of_short_lists(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    lead = as_person("lead")
    first = lead.get("/api/accounts", params={"limit": 3}).json()
    rest = lead.get("/api/accounts", params={"limit": 3, "after": first["next"]}).json()
    assert [one["name"] for one in first["entries"] + rest["entries"]] == ["ann", "bob", "eve", "lead"]
    assert rest["next"] is None
    assert lead.get("/api/accounts", params={"after": "!!"}).json()["code"] == "cursor"


def test_the_lead_steers(as_person: Sign, campaign: CampaignSummary) -> None:
    ann, lead = as_person("ann"), as_person("lead")
    changed = lead.client.patch(
        f"{base(campaign)}/settings", json={"budget": 12, "batch_size": 3, "target": 0.9}
    ).json()
    assert changed["settings"] == {**changed["settings"], "budget": 12, "batch_size": 3, "target": 0.9}
    assert lead.client.patch(f"{base(campaign)}/settings", json={"target": None}).json()["settings"]["target"] is None
    for refused in (
        {"gamma": 0.5},
        {"batch_size": None},
        {"batch_size": 0},
        {"target_metric": "auc"},
        {"suggestion_votes": "yes"},
    ):
        assert lead.client.patch(f"{base(campaign)}/settings", json=refused).status_code == 422, refused
    assert lead.post(f"{base(campaign)}/pause").json()["state"] == "paused"
    assert ann.post(f"{base(campaign)}/next").json()["waiting"]["reason"] == "paused"
    assert lead.post(f"{base(campaign)}/resume").json()["state"] == "running"
    assert held(ann, campaign)
    assert lead.post(f"{base(campaign)}/stop").json()["state"] == "stopped"


def test_a_decision_can_be_reopened(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    ann, lead = as_person("ann"), as_person("lead")
    tasks = held(ann, campaign, 4)
    for task in tasks:
        vote(ann, campaign, task["item"], 1)
    worker.advance(ws, campaign.slug)
    item = tasks[0]["item"]
    assert lead.post(f"{base(campaign)}/reopen", {"item": item}).status_code == 204
    assert lead.post(f"{base(campaign)}/reopen", {"item": item}).json()["code"] == "not_decided"


def test_a_page_goes_on_when_its_last_entry_is_gone(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    ann, lead = as_person("ann"), as_person("lead")
    for task in held(ann, campaign, 4):
        vote(ann, campaign, task["item"], None)
    worker.advance(ws, campaign.slug)
    keys = [one["item"] for one in lead.get(f"{base(campaign)}/conflicts").json()["entries"]]
    assert len(keys) == 4
    page = lead.get(f"{base(campaign)}/conflicts", params={"limit": 2}).json()
    for key in keys[:2]:
        assert lead.post(f"{base(campaign)}/decisions", {"item": key, "label": 0}).status_code == 204
    rest = lead.get(f"{base(campaign)}/conflicts", params={"after": page["next"]}).json()
    assert [one["item"] for one in rest["entries"]] == keys[2:]
    other = lead.get("/api/accounts", params={"limit": 1}).json()["next"]
    assert lead.get(f"{base(campaign)}/conflicts", params={"after": other}).json()["code"] == "cursor"


def test_campaigns_come_newest_first(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    made = [campaign.slug, *(make_campaign(ws, name).slug for name in ("Zebras", "Bees"))]
    lead = as_person("lead")
    page = lead.get("/api/campaigns", params={"limit": 2}).json()
    rest = lead.get("/api/campaigns", params={"after": page["next"]}).json()
    assert [one["slug"] for one in page["entries"] + rest["entries"]] == made[::-1]


def _annotation(label: str) -> dict[str, Any]:
    chosen = {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": [label]}}
    return {"completed_by": {"email": "robot@example.org"}, "result": [chosen], "was_cancelled": False}


def test_votes_of_another_tool(as_person: Sign, campaign: CampaignSummary) -> None:
    lead = as_person("lead")
    good = b"item,annotator,label\nt1,robot,dog\nt2,robot,cat\n"
    path = f"{base(campaign)}/import-votes"
    checked = lead.client.post(path, files={"file": ("votes.csv", good)}, data={"dry_run": "true"}).json()
    assert checked["dry_run"]
    assert checked["counts"]["read"] == 2
    assert [(one["line"], one["item"]) for one in checked["lines"]] == [(2, "t1"), (3, "t2")]
    bad = lead.client.post(path, files={"file": ("votes.csv", good + b"t3,robot,horse\n")})
    assert bad.status_code == 422
    assert "line 4" in bad.json()["detail"]
    assert lead.get(f"{base(campaign)}/ledger", params={"person": "robot"}).json()["entries"] == []
    stored = lead.client.post(path, files={"file": ("votes.csv", good)}).json()
    assert (stored["counts"], stored["lines"]) == (checked["counts"], checked["lines"])
    assert lead.client.post(path, files={"file": ("votes.csv", good)}).json()["counts"] == {"read": 2, "unchanged": 2}
    tasks = json.dumps([{"id": 1, "data": {"id": "t3", "text": "x"}, "annotations": [_annotation("dog")]}]).encode()
    found = lead.client.post(path, files={"file": ("export.json", tasks)}).json()
    assert (found["format"], found["lines"][0]["annotator"]) == ("label-studio", "robot@example.org")


@pytest.mark.parametrize("part", ["bytes=", "bytes=0-3", "bytes=9999999-", "lines=1"])
def test_an_export_is_sent_whole_whatever_part_is_asked_for(
    as_person: Sign, campaign: CampaignSummary, part: str
) -> None:
    where, lead = f"{base(campaign)}/export/labels", as_person("lead")
    answer = lead.get(where, headers={"Range": part})
    assert (answer.status_code, answer.headers["accept-ranges"]) == (200, "none")
    assert answer.text == lead.get(where).text


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_exports(as_person: Sign, campaign: CampaignSummary, format: str) -> None:
    lead = as_person("lead")
    for what in ("labels", "votes"):
        answer = lead.get(f"{base(campaign)}/export/{what}", params={"format": format})
        assert answer.status_code == 200
        assert f'filename="{campaign.slug}-{what}.{format}"' in answer.headers["content-disposition"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_model_goes_out(
    ws: Workspace, as_person: Sign, campaign: CampaignSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead, where = as_person("lead"), f"{base(campaign)}/export/model"
    for format, begins in (("npz", b"PK"), ("onnx", b"\x08")):
        answer = lead.get(where, params={"format": format})
        assert answer.status_code == 200
        assert f'filename="{campaign.slug}-model.{format}"' in answer.headers["content-disposition"]
        assert answer.content.startswith(begins)
        assert f'aria-label="Model as {format}"' in lead.get(f"/c/{campaign.slug}/lead/take-home").text
    assert lead.get(where, params={"format": "pkl"}).status_code == 422
    assert as_person("ann").get(where).status_code == 403
    monkeypatch.setitem(sys.modules, "onnx", None)
    missing = lead.get(where, params={"format": "onnx"})
    assert (missing.status_code, missing.json()["code"]) == (422, "onnx")
    page = lead.get(f"/c/{campaign.slug}/lead/take-home").text
    assert "Model as npz" in page
    assert "Model as onnx" not in page
    untrained = campaigns.create_campaign(ws, "No model yet", small_data(), Settings(gamma=0.5, l2=0.01), "lead")
    early = lead.get(f"{base(untrained)}/export/model")
    assert (early.status_code, early.json()["code"]) == (409, "preparing")


def test_report_and_replay(as_person: Sign, campaign: CampaignSummary) -> None:
    lead = as_person("lead")
    page = lead.get(f"{base(campaign)}/report")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "<svg" in page.text
    replayed = lead.post(f"{base(campaign)}/replay").json()
    assert replayed["agrees"]
    assert replayed["rounds"][0]["number"] == 0


def label_items(ws: Workspace, campaign: str, count: int) -> None:
    """Let somebody vote on so many items, by their number."""
    for _ in range(count):
        found = tasks.next_tasks(ws, campaign, "lead")
        if not isinstance(found, list):
            worker.advance(ws, campaign)
            found = tasks.next_tasks(ws, campaign, "lead")
        assert isinstance(found, list)
        votes.cast_vote(ws, campaign, "lead", found[0].item, int(found[0].item[1:]) % 3)
    worker.advance(ws, campaign)


def upload_files(folder: Path) -> dict[str, Path]:
    """Files of a small campaign."""
    data = small_data()
    folder.mkdir(parents=True, exist_ok=True)
    assert isinstance(data.contents.items, pd.DataFrame)
    ids = data.contents.items["id"].astype(str).tolist()
    np.savez(folder / "features.npz", ids=np.array(ids), X=data.X)
    np.save(folder / "val_features.npy", data.validation[0])
    names = [str(name) for name in data.names.names]
    rows = [",".join(map(str, (key, *row))) for key, row in zip(ids, data.weak, strict=True)]
    (folder / "weak.csv").write_text("\n".join([",".join(["id", *names]), *rows]))
    (folder / "val_labels.csv").write_text("label\n" + "\n".join(names[k] for k in data.validation[1]))
    data.contents.items.to_csv(folder / "items.csv", index=False)
    return {name.stem: name for name in folder.iterdir()}


def test_a_campaign_from_uploaded_files(ws: Workspace, as_person: Sign, people: Any, tmp_path: Path) -> None:
    lead = as_person("lead")
    files: list[tuple[str, Any]] = [(n, (p.name, p.read_bytes())) for n, p in upload_files(tmp_path / "up").items()]
    form = {"name": "From files", "settings": '{"people": 2, "budget": 20}'}
    made = lead.client.post("/api/campaigns", files=files, data=form)
    assert made.status_code == 201, made.text
    settings = campaigns.settings(ws, made.json()["slug"])
    assert (settings.people, settings.budget) == (2, 20)
    assert not list(ws.home.glob("labelchef-upload-*"))
    missing = lead.client.post("/api/campaigns", files=[f for f in files if f[0] != "features"], data=form)
    assert (missing.status_code, missing.json()["errors"][0]["where"]) == (422, "body.features")
    trusted = [f for f in files if f[0] != "weak"]
    assert lead.client.post("/api/campaigns", files=trusted, data={"name": "Trusted only"}).status_code == 201
    nothing = [one for one in files if one[0] in ("features", "items")]
    typed = {"name": "From nothing", "classes": ["a", "b"]}
    unknown = lead.client.post("/api/campaigns", files=nothing, data=typed)
    assert unknown.status_code == 201, unknown.text
    assert lead.get("/api/campaigns/from-nothing/status").json()["classes"] == ["a", "b"]
    stranger = lead.client.post("/api/campaigns", files=[*files, ("weeks", ("weak.csv", b""))], data=form)
    assert (stranger.status_code, stranger.json()["errors"][0]["where"]) == (422, "body.weeks")
    text = lead.client.post("/api/campaigns", files=files, data={**form, "test_labels": "cat"})
    assert (text.status_code, text.json()["errors"][0]["where"]) == (422, "body.test_labels")
    for sent, where in (('{"people": -1}', "people"), ('{"budget": "20"}', "budget"), ('{"colour": 1}', "colour")):
        refused = lead.client.post("/api/campaigns", files=files, data={**form, "settings": sent})
        assert (refused.status_code, refused.json()["code"]) == (422, "input")
        assert refused.json()["errors"][0]["where"] == f"body.settings.{where}"
    unread = lead.client.post("/api/campaigns", files=files, data={**form, "settings": "{"})
    assert (unread.status_code, unread.json()["errors"][0]["where"]) == (422, "body.settings")
    broken = [("features", ("features.npy", b"no array")) if n == "features" else (n, f) for n, f in files]
    assert lead.client.post("/api/campaigns", files=files, data=form).json()["code"] == "name_taken"
    form["name"] = "Another"
    assert lead.client.post("/api/campaigns", files=broken, data=form).status_code == 422
    escaping = [("features", ("../../features.npz", f[1])) if n == "features" else (n, f) for n, f in files]
    assert lead.client.post("/api/campaigns", files=escaping, data=form).status_code == 201
    assert not (ws.home.parent / "features.npz").exists()


def test_a_campaign_from_uploaded_votes_of_sources(ws: Workspace, as_person: Sign, people: Any, tmp_path: Path) -> None:
    lead = as_person("lead")
    files = {n: (p.name, p.read_bytes()) for n, p in upload_files(tmp_path / "up").items() if n != "weak"}
    names = [str(name) for name in small_data().names.names]
    votes = "\n".join(["rule,llm", *(f"{names[k % 3]},{names[k % 2]}" for k in range(len(small_data().X)))])
    files["source_votes"] = ("votes.csv", votes.encode())
    nameless = lead.client.post("/api/campaigns", files=files, data={"name": "Sources"})
    assert (nameless.status_code, nameless.json()["code"]) == (422, "ids")  # votes without ids, features with them
    sent = {"name": "Sources", "by_position": "true"}
    made = lead.client.post("/api/campaigns", files=files, data=sent)
    assert made.status_code == 201, made.text
    kept = data_of(ws, find(ws, made.json()["slug"]))
    assert kept.votes is not None
    assert kept.votes.names == ("rule", "llm")
    assert kept.names.names == sorted(names)
    files["val_source_votes"] = ("votes.csv", b"rule,other\n")
    refused = lead.client.post("/api/campaigns", files=files, data={**sent, "name": "Other sources"})
    assert (refused.status_code, refused.json()["code"]) == (422, "votes")
    assert "votes_val has" in refused.json()["detail"]


def test_a_campaign_from_a_folder_below_the_import_root(ws: Workspace, as_person: Sign, people: Any) -> None:
    lead = as_person("lead")
    root = ws.home.parent / "imports"
    upload_files(root / "animals")
    upload_files(ws.home.parent / "elsewhere")
    form = {"name": "From a folder", "folder": str(root / "animals"), "settings": {"budget": 5}}
    assert lead.post("/api/campaigns/from-folder", form).status_code == 201
    for folder in (ws.home.parent / "elsewhere", root / ".." / "elsewhere", "/etc"):
        answer = lead.post("/api/campaigns/from-folder", {**form, "folder": str(folder)})
        assert answer.status_code == 403
        assert answer.json()["code"] == "folder"
    (root / "link").symlink_to(ws.home.parent / "elsewhere")
    assert lead.post("/api/campaigns/from-folder", {**form, "folder": str(root / "link")}).status_code == 403


def test_images_are_what_they_were_decoded_as(
    ws: Workspace, as_person: Sign, campaign: CampaignSummary, tmp_path: Path
) -> None:
    media = tmp_path / "media"
    data = small_data(media, pictures=True)
    (media / "p0.png").write_bytes(b"<script>alert(1)</script>")
    (media / "p1.png").write_bytes(b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')
    (media / "p2.png").write_bytes(png()[:-20])
    (media / "p3.png").write_bytes(png()[:40])
    (media / "p4.png").write_bytes(b"GIF89a" + bytes(4))
    made = campaigns.create_campaign(ws, "Pictures", data, campaigns.settings(ws, campaign.slug), "lead")
    ann, lead = as_person("ann"), as_person("lead")
    good = lead.get(f"/api/campaigns/{made.slug}/items/t5/image")
    assert good.status_code == 200
    assert good.headers["content-type"] == "image/png"
    assert good.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in good.headers["content-security-policy"]
    for item in ("t0", "t1", "t2", "t3", "t4"):
        bad = lead.get(f"/api/campaigns/{made.slug}/items/{item}/image")
        assert bad.status_code == 415, item
        assert "script" not in bad.headers["content-type"]
    assert ann.get(f"/api/campaigns/{made.slug}/items/t5/image").status_code == 404, "not a member"
    assert lead.get(f"/api/campaigns/{made.slug}/items/nothing/image").status_code == 404
    assert lead.get(f"/api/campaigns/{campaign.slug}/items/t1/image").status_code == 404


def test_every_chart_is_drawn_light_and_dark(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    ann = as_person("ann")
    for task in held(ann, campaign, 4):
        vote(ann, campaign, task["item"], task["suggestion"], seconds=2.0)
    worker.advance(ws, campaign.slug)
    lead = as_person("lead")
    for name in ("metric", "change", "seconds", "agreement", "map"):
        light, dark = (lead.get(f"{base(campaign)}/charts/{name}.svg", params={"theme": t}) for t in ("light", "dark"))
        assert light.status_code == dark.status_code == 200, name
        assert light.headers["content-type"] == "image/svg+xml"
        assert light.text != dark.text
        again = lead.get(f"{base(campaign)}/charts/{name}.svg", headers={"If-None-Match": light.headers["etag"]})
        assert again.status_code == 304
    assert ann.get(f"{base(campaign)}/charts/nothing.svg").json()["code"] == "chart"


def test_problems_are_problems(as_person: Sign, client: TestClient, campaign: CampaignSummary) -> None:
    lead = as_person("lead")
    for answer, status, code in [
        (client.get("/api/nowhere"), 404, "route"),
        (client.put("/api/health"), 405, "method"),
        (lead.get("/api/campaigns/none"), 404, "campaign"),
        (lead.post(f"{base(campaign)}/votes", {"item": "t1"}), 422, "input"),
        (
            lead.client.post(f"{base(campaign)}/votes", content=b"{", headers={"Content-Type": "application/json"}),
            422,
            "input",
        ),
    ]:
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        body = answer.json()
        assert body["code"] == code
        assert body["status"] == status
        assert body["type"] == f"urn:labelchef:problem:{code}"
        assert body["title"]
        assert body["detail"]


def test_a_change_wakes_those_who_wait(
    ws: Workspace, client: TestClient, campaign: CampaignSummary, people: Any
) -> None:
    import threading
    import time

    person = Person(client)
    person.sign_in("ann")
    version = person.get(f"{base(campaign)}/changes").json()["version"]
    threading.Timer(0.5, lambda: campaigns.pause(ws, campaign.slug, "lead")).start()
    begun = time.monotonic()
    answer = person.get(f"{base(campaign)}/changes", params={"since": version, "timeout": 20})
    assert answer.json()["version"] > version
    assert 0.3 < time.monotonic() - begun < 10
    now = answer.json()["version"]
    assert person.get(f"{base(campaign)}/changes", params={"since": now, "timeout": 0.2}).json()["version"] == now


PAGES = ["/", "/new", "/people", "/account", "/c/{c}/label", "/c/{c}/lead", "/c/{c}/lead/ledger",
         "/c/{c}/lead/items?view=conflicts", "/c/{c}/lead/people", "/c/{c}/lead/settings", "/c/{c}/lead/take-home"]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_pages_hold_nothing_inline_and_nothing_from_elsewhere(
    as_person: Sign, campaign: CampaignSummary, path: str
) -> None:
    answer = as_person("lead").get(path.replace("{c}", campaign.slug), headers={"Accept": "text/html"})
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = answer.text
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", page)
    assert not re.search(r"(?:src|href|action)=[\"']?(?:https?:)?//", page)


def test_names_of_campaigns_and_notes_show_as_text(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    made = make_campaign(ws, f"Bad {NASTY}")
    lead = as_person("lead")
    task = held(lead, made)[0]
    vote(lead, made, task["item"], 2, note=NASTY)
    for path in ("/", f"/c/{made.slug}/label", f"/c/{made.slug}/lead", f"/c/{made.slug}/lead/ledger",
                 f"/c/{made.slug}/lead/items?view=conflicts"):  # fmt: skip
        page = lead.get(path).text
        assert "<script>document" not in page, path
        assert "<img src=x" not in page, path
        assert "<b>cow" not in page, path
        assert "49" not in re.findall(r"&amp; (\S+) ", page), "templates do not run what they show"


def test_earlier_addresses_of_pages_lead_to_the_present_ones(as_person: Sign, campaign: CampaignSummary) -> None:
    lead, ann, home = as_person("lead"), as_person("ann"), f"/c/{campaign.slug}"
    moved = {
        "conflicts": "items?view=conflicts",
        "discussions": "items?view=comments",
        "guidelines": "settings#guidelines",
        "members": "people",
        "quality": "people#quality",
        "export": "take-home",
        "jobs": "take-home",
    }
    for old, new in moved.items():
        answer = lead.get(f"{home}/lead/{old}")
        assert (answer.status_code, answer.headers["location"]) == (308, f"{home}/lead/{new}")
        assert lead.get(answer.headers["location"]).status_code == 200
        assert ann.get(f"{home}/lead/{old}").status_code == 403
    assert lead.get(f"{home}/progress").headers["location"] == f"{home}/lead"
    assert ann.get(f"{home}/progress").status_code == 200


def test_people_who_open_a_page_are_asked_to_sign_in(client: TestClient, campaign: CampaignSummary) -> None:
    answer = client.get(f"/c/{campaign.slug}/progress", headers={"Accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/sign-in?then=%2Fc%2F{campaign.slug}%2Fprogress"
    assert "Sign in" in client.get("/sign-in", headers={"Accept": "text/html"}).text
    assert client.get("/sign-in", params={"then": "//evil.example"}).text.count("evil.example") == 0


def test_errors_of_pages_are_pages(as_person: Sign, campaign: CampaignSummary) -> None:
    answer = as_person("ann").get(f"/c/{campaign.slug}/lead", headers={"Accept": "text/html"})
    assert answer.status_code == 403
    assert "<h1>Not allowed</h1>" in answer.text


def test_static_files_are_kept_by_their_digest(as_person: Sign, client: TestClient, campaign: CampaignSummary) -> None:
    page = as_person("ann").get("/").text
    sheet = re.search(r'href="(/static/[^"]+\.css)"', page)
    assert sheet is not None
    answer = client.get(sheet.group(1))
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/css")
    assert client.get("/static/0/labelchef.css").status_code == 404
    assert client.get("/static/0/..%2f..%2fapp.py").status_code == 404


def test_a_body_that_is_too_large_is_refused(ws: Workspace, people: Any) -> None:
    from labelchef.server.web.app import create_app
    from labelchef.server.web.options import ServeOptions

    app = create_app(ws, ServeOptions(team=True, max_upload_mb=1), work=False)
    with TestClient(app) as client:
        answer = client.post("/api/session", content=b"x" * (2**20 + 1))
        assert answer.status_code == 413
        assert answer.json()["code"] == "size"


@pytest.mark.parametrize("text", ["\\ud800", "a\\u0000b", "\\u202e", "x" * 5000])
def test_texts_that_no_database_holds_are_refused_or_kept(
    as_person: Sign, campaign: CampaignSummary, text: str
) -> None:
    lead = as_person("lead")
    item = held(lead, campaign)[0]["item"]
    for method, path, body in [
        ("POST", "/api/session", '{"name": "%s", "password": "%s"}'),
        ("POST", "/api/accounts", '{"name": "%s", "password": "long enough %s"}'),
        ("POST", "/api/tokens", '{"label": "%s %s"}'),
        ("POST", f"{base(campaign)}/votes", '{"item": "%s", "label": "%s"}'),
        ("POST", f"{base(campaign)}/votes", f'{{"item": "{item}", "label": 0, "note": "%s %s"}}'),
        ("POST", f"{base(campaign)}/decisions", '{"item": "%s", "label": "%s"}'),
        ("POST", "/api/campaigns/from-folder", '{"name": "%s", "folder": "%s"}'),
        ("PATCH", f"{base(campaign)}/settings", '{"target_metric": "%s%s"}'),
    ]:
        answer = lead.client.request(
            method, path, content=body % (text, text), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code < 500, (path, answer.text)
    for path in (
        f"{base(campaign)}/ledger?person=%00",
        f"{base(campaign)}/ledger?item=%00",
        "/api/campaigns/%00",
        "/c/%00/label",
    ):
        assert lead.get(path).status_code < 500


def test_a_body_in_pieces_is_counted_too(ws: Workspace, people: Any) -> None:
    from labelchef.server.web.app import create_app
    from labelchef.server.web.options import ServeOptions

    app = create_app(ws, ServeOptions(team=True, max_upload_mb=1), work=False)
    with TestClient(app) as client:
        answer = client.post("/api/session", content=(b"x" * 2**16 for _ in range(20)))
        assert 400 <= answer.status_code < 500


UPLOADS = ["/api/campaigns", "/api/campaigns/animals/import-votes"]


def sent_in_pieces(app: FastAPI, path: str, headers: dict[str, str]) -> tuple[int, int]:
    """Status of an upload without end, and how many pieces the server asked for."""
    asked, status = 0, 0
    kind = {"host": "testserver", "content-type": "multipart/form-data; boundary=b", **headers}
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(k.lower().encode(), v.encode()) for k, v in kind.items()],
        "http_version": "1.1", "scheme": "http", "server": ("testserver", 80), "client": ("127.0.0.1", 1),
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * 2**16, "more_body": True}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    asyncio.run(app(scope, receive, send))
    return status, asked


@pytest.mark.parametrize("path", UPLOADS)
def test_an_upload_by_someone_who_may_not_is_not_read(
    ws: Workspace, app: FastAPI, as_person: Sign, campaign: CampaignSummary, path: str
) -> None:
    assert sent_in_pieces(app, path, {}) == (401, 0)
    assert sent_in_pieces(app, path, {"Authorization": "Bearer nothing"}) == (401, 0)
    token = accounts.create_api_token(ws, "ann", "robot")[0]
    assert sent_in_pieces(app, path, {"Authorization": f"Bearer {token}"}) == (403, 0)
    lead = as_person("lead").client
    cookie = "; ".join(f"{name}={value}" for name, value in lead.cookies.items())
    assert sent_in_pieces(app, path, {"Cookie": cookie}) == (403, 0), "no CSRF token"
    signed = {"Cookie": cookie, "X-CSRF-Token": lead.headers["X-CSRF-Token"]}
    assert sent_in_pieces(app, path, {**signed, "Origin": "https://evil.example"}) == (403, 0)
    assert sent_in_pieces(app, path, signed)[1] > 0


@pytest.mark.parametrize("path", ["/api/session", "/api/campaigns/animals/votes", "/api/campaigns/from-folder"])
def test_other_routes_take_a_mebibyte(app: FastAPI, campaign: CampaignSummary, path: str) -> None:
    status, asked = sent_in_pieces(app, path, {"Content-Type": "application/json"})
    assert 400 <= status < 500
    assert asked <= 17
    with TestClient(app) as client:
        answer = client.post(path, content=b"x" * (2**20 + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "size")


def test_a_campaign_with_more_than_a_thousand_images(as_person: Sign, people: Any, tmp_path: Path) -> None:
    files: list[tuple[str, Any]] = [(n, (p.name, p.read_bytes())) for n, p in upload_files(tmp_path / "up").items()]
    files += [("media", (f"p{k}.png", png())) for k in range(1100)]
    made = as_person("lead").client.post("/api/campaigns", files=files, data={"name": "Many"})
    assert made.status_code == 201, made.text


def test_an_upload_to_a_full_disk_is_told(
    as_person: Sign, campaign: CampaignSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = as_person("lead")
    for number, code in ((errno.ENOSPC, "disk_full"), (errno.EACCES, "folder")):

        def refuse(*_: Any, number: int = number) -> None:
            raise OSError(number, "no")

        monkeypatch.setattr("labelchef.server.web.uploads.shutil.copyfileobj", refuse)
        answer = lead.client.post(f"{base(campaign)}/import-votes", files={"file": ("votes.csv", b"item,label\n")})
        assert (answer.status_code, answer.json()["code"]) == (503, code)
