"""From a file of texts alone, by the API: the lead types the classes, people label at once, figures follow after 50 answers."""

import io
import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from labelchef.loop.source_report import NO_SOURCE
from labelchef.server import worker
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person
from tests.web.test_intake import send, settled

TEXTS = [
    (f"t{k:03}", f"{'storm flood smoke' if k % 5 < 2 else 'music lunch party'} number {k} of the day")
    for k in range(90)
]
FILE = "\n".join(["id,text", *(f"{key},{text}" for key, text in TEXTS)]).encode()
PAGES = ["label", "mine", "lead", "lead/items", "lead/items/t000", "lead/ledger"]
PAGES += [f"lead/{part}" for part in ("sources", "people", "settings", "take-home", "items?view=doubts")]


def read_csv(lead: Person, what: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(lead.get(f"/api/campaigns/tweets/export/{what}?format=csv").text))


@pytest.mark.usefixtures("people")
def test_a_file_of_texts_and_typed_classes(ws: Workspace, as_person: Callable[[str], Person]) -> None:
    lead = as_person("lead")
    found = settled(lead, send(lead, {"tweets.csv": FILE}))
    codes = {one["code"]: one["severity"] for one in found["preview"]["findings"]}
    assert codes["few-classes"] == "error"
    assert codes["no-trusted"] == "note"
    refused = lead.post(f"/api/intakes/{found['id']}/create", {"name": "Tweets"})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_ready")

    said = lead.client.patch(f"/api/intakes/{found['id']}", json={"classes": ["disaster", "other"]})
    found = settled(lead, said)
    assert found["preview"]["usable"]
    assert found["preview"]["classes"] == ["disaster", "other"]
    answer = lead.post(f"/api/intakes/{found['id']}/create", {"name": "Tweets", "encoders": ["tfidf"]})
    made = settled(lead, answer, 120)
    assert (made["campaign"], made["problem"]) == ("tweets", None)
    worker.advance(ws, "tweets")
    look(lead, "not yet")
    assert re.search('id="score">not yet</b> <span id="range"></span>', lead.get("/c/tweets/label").text)
    assert lead.get("/api/campaigns/tweets/sources").json()["notes"] == [NO_SOURCE]

    answered = 0
    while answered < 60:
        tasks = lead.post("/api/campaigns/tweets/next").json()["tasks"]
        for task in tasks:
            assert task["suggestion"] is None or answered >= 50
            label = "disaster" if "storm" in task["content"]["text"] else "other"
            vote = {"item": task["item"], "label": label}
            receipt = lead.post("/api/campaigns/tweets/votes", vote)
            assert receipt.status_code < 300, receipt.text
            answered += 1
            if answered % 10 == 0:
                worker.advance(ws, "tweets")
        if answered < 50:
            assert not any(one["validation"] for one in rounds(lead))
    measured = [one["validation"] for one in rounds(lead) if one["validation"]]
    assert measured
    assert measured[0]["accuracy"] > 0.9
    look(lead, "cross-fitted over 50 trusted samples")
    assert re.search(
        r'id="score">[01]\.\d{3}</b> <span id="range">\(0\.\d{3} to [01]\.\d{3}\)<', lead.get("/c/tweets/label").text
    )
    assert lead.get("/api/campaigns/tweets/sources").json()["notes"] == [NO_SOURCE]
    labels = read_csv(lead, "labels")
    unasked = labels["source"] == "weak"
    assert unasked.sum() == len(TEXTS) - 60
    assert labels["label"].isna().equals(unasked)  # no source has named a class
    report = lead.get("/api/campaigns/tweets/report").text
    assert "60 samples asked" in report
    # They had no prediction when they were answered, and nothing is audited.
    assert "Accuracy in the audit" not in report


def rounds(lead: Person) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lead.get("/api/campaigns/tweets/rounds").json()["entries"]
    return found


def look(lead: Person, words: str) -> None:
    """Every page opens, and the first says this."""
    for page in PAGES:
        shown = lead.get(f"/c/tweets/{page}")
        assert shown.status_code == 200, (page, shown.text[:500])
        assert ">nan<" not in shown.text.lower(), page
    assert words in lead.get("/c/tweets/lead").text
    for name in ("metric", "audit", "change", "seconds", "agreement", "map"):
        assert lead.get(f"/api/campaigns/tweets/charts/{name}.svg").status_code in (200, 404)
    for path in ("", "/audit", "/progress", "/sources"):
        assert lead.get(f"/api/campaigns/tweets{path}").status_code in (200, 404), path
