"""An annotator as attacker: vote every class in turn, take it back, look at everything again. What differs between two looks
must not tell the suggestion of a blind item or the vote of a colleague."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from labelchef.server import worker
from labelchef.server.campaigns import campaigns, charts
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.people import accounts
from labelchef.server.web.policies import Policy
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person, make_campaign
from tests.web.test_policies import guards_of

Sign = Callable[[str], Person]
N_CLASSES = 3
_OWN = r'"(id|leased_until|label|version|retry_after)":("[^"]*"|null|-?[\d.]+)|data-version="\d+"'
"""Own facts in answers: the id of the vote, the label that was sent, times. Versions are compared apart."""


def looks(app: FastAPI, slug: str) -> Iterator[str]:
    """The address of every page and answer that an annotator may ask for."""
    for route in app.routes:
        assert isinstance(route, APIRoute)
        if "GET" not in (route.methods or ()) or guards_of(route)[0].policy not in (Policy.MEMBER, Policy.SIGNED_IN):
            continue
        path = route.path.replace("{campaign}", slug)
        if "{chart}" in path:
            yield from (path.replace("{chart}", name) for name in charts.NAMES)
        elif "/changes" in path:
            yield f"{path}?timeout=0"
        elif "{item" in path:
            yield from (re.sub(r"\{item[^}]*\}", f"t{k}", path) for k in range(60))
        else:
            yield path


class Attacker:
    """An annotator who compares bytes."""

    def __init__(self, app: FastAPI, person: Person, slug: str) -> None:
        self.memory = app.state.workspace.memory
        self.person, self.slug, self.base = person, slug, f"/api/campaigns/{slug}"
        self.addresses = list(looks(app, slug))
        assert len(self.addresses) > 70, "pages, charts, items"
        self.version = -1

    def look(self, item: str) -> dict[str, str]:
        """All that is shown, without own facts; of the 120 addresses of items only those of `item`."""
        self.memory.clear()  # drawn afresh: what is kept may not hide a leak
        found = {}
        for path in self.addresses:
            if re.search(r"/(tasks|items)/t\d+", path) and f"/{item}" not in path.replace("/image", ""):
                continue
            answer = self.person.get(path)
            found[path] = f"{answer.status_code} {re.sub(_OWN, '', answer.text)}"
        return found

    def told(self, path: str, body: dict[str, Any]) -> tuple[str, int]:
        """An answer to a change without own facts, and by how much the version grew."""
        before = self.person.get(f"{self.base}/changes?timeout=0").json()["version"]
        answer = self.person.post(f"{self.base}/{path}", body)
        assert answer.status_code == 200, answer.text
        after = self.person.get(f"{self.base}/changes?timeout=0").json()["version"]
        return re.sub(_OWN, "", answer.text), after - before

    def views(self, item: str) -> list[tuple[object, ...]]:
        """What is seen for each class that is voted on an item, with the vote taken back before the next."""
        seen: list[tuple[object, ...]] = []
        for label in range(N_CLASSES):
            voted = self.told("votes", {"item": item, "label": label, "seconds": 1.0, "n": 1})
            after = self.look(item)
            undone = self.told("undo", {})
            seen.append((voted, sorted(after.items()), undone, sorted(self.look(item).items())))
        return seen


@pytest.fixture
def slug(ws: Workspace, people: Any) -> str:
    """Two votes an item, every item blind; one round is closed, in the next Bob has voted on all."""
    made = make_campaign(ws, people=2, batch_size=3, budget=30, blind_share=1.0, audit=0.4).slug
    for name in ("ann", "bob"):
        accounts.set_member(ws, made, name, "lead")
    everybody(ws, made, "ann")
    everybody(ws, made, "bob")
    worker.advance(ws, made)
    everybody(ws, made, "bob")
    return made


def everybody(ws: Workspace, slug: str, person: str) -> None:
    """All votes of a person on the open batch; of different classes."""
    for k in range(100):
        found = next_tasks(ws, slug, person, 1)
        if not isinstance(found, list):
            return
        cast_vote(ws, slug, person, found[0].item, (k + (person == "bob")) % N_CLASSES, seconds=2.0 + k)


def test_votes_on_open_blind_items_show_neither_suggestions_nor_colleagues_votes(
    app: FastAPI, ws: Workspace, as_person: Sign, slug: str
) -> None:
    attacker = Attacker(app, as_person("ann"), slug)
    recovered, items = 0, []
    for _ in range(2):
        task = attacker.person.post(f"{attacker.base}/next", {"n": 1}).json()["tasks"][0]
        assert task["blind"]
        views = attacker.views(task["item"])
        recovered += any(view != views[0] for view in views)
        items.append(task["item"])
        attacker.told("votes", {"item": task["item"], "label": 0, "n": 1})
    assert len(set(items)) == 2
    assert recovered == 0, "the three classes look the same, to the byte"


def test_changed_votes_on_closed_items_show_no_more(app: FastAPI, ws: Workspace, as_person: Sign, slug: str) -> None:
    """Ann's vote decides where Bob's is another one: whether it does must not show."""
    ann = as_person("ann")
    attacker = Attacker(app, ann, slug)
    before = campaigns.status(ws, slug)
    closed = [path for path in attacker.addresses if "/tasks/" in path]
    voted = [re.sub(r".*/tasks/", "", path) for path in closed if (ann.get(path).json() or {}).get("own_vote")]
    assert voted, "items of the round that is closed"
    recovered = 0
    for item in voted[:2]:
        views = [
            (
                attacker.told("votes", {"item": item, "label": label, "seconds": 1.0, "n": 1}),
                sorted(attacker.look(item).items()),
            )
            for label in (*range(N_CLASSES), 0)
        ]
        recovered += any(view != views[0] for view in views[1:])
    assert recovered == 0
    assert campaigns.status(ws, slug).rounds == before.rounds


def test_annotators_see_no_figure_made_of_votes_and_leads_see_all(as_person: Sign, slug: str) -> None:
    ann, boss = as_person("ann").get(f"/c/{slug}/progress").text, as_person("lead")
    lead = "".join(boss.get(f"/c/{slug}/{path}").text for path in ("lead", "lead/people"))
    for words in (
        "Resolved",
        "As suggested",
        "κ",
        "Time per item",
        "Predicted change",
    ):
        assert words in lead, words
        assert words not in ann, words
    assert "Your votes" in ann
    for name in charts.NAMES:
        path = f"/api/campaigns/{slug}/charts/{name}.svg"
        status = as_person("ann").get(path).status_code
        assert status == (404 if name not in ("metric", "map") else 200), name


def test_the_audit_is_shown_to_annotators_in_steps() -> None:
    import numpy as np

    from labelchef.base.validation import AuditPoint, AuditReport
    from labelchef.judge.audit import AuditTrail
    from labelchef.server.campaigns.progress import in_steps

    def report(items: int) -> AuditReport:
        trail = AuditTrail.start(2).extended(np.zeros(items, dtype=np.int64), np.arange(items) % 2)
        course = zip(*(values.tolist() for values in trail.course()), strict=True)
        return AuditReport(
            0.1,
            trail.accuracy(),
            tuple(AuditPoint(k + 1, a, low, high) for k, (a, low, high) in enumerate(course)),
        )

    whole = report(25)
    seen = in_steps(whole)
    assert [point.items for point in seen.course] == [10, 20]
    assert seen.accuracy is not None
    assert (seen.accuracy.samples, seen.accuracy.value) == (20, whole.course[19].accuracy)
    few = in_steps(report(9))
    assert (few.accuracy, few.course) == (None, ())
