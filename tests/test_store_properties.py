"""What holds whatever people do: no vote is lost, counts are true, nobody is asked twice, no table is scanned."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from labelchef.base.campaigns import Waiting
from labelchef.base.errors import ConflictError
from labelchef.server.campaigns.campaigns import status
from labelchef.server.campaigns.trained import replay
from labelchef.server.items.decisions import resolve
from labelchef.server.labelling.tasks import next_tasks, skip
from labelchef.server.labelling.votes import cast_vote, undo_vote
from labelchef.server.store import vote_table
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.profiles import examples
from tests.store_support import make, small_data

PEOPLE = ("ann", "bob", "cat")
ACTS = st.lists(
    st.tuples(
        st.sampled_from(("next", "vote", "vote", "vote", "change", "undo", "skip", "resolve", "advance", "reload")),
        st.sampled_from(PEOPLE),
        st.sampled_from((None, 0, 1, 2)),
    ),
    max_size=40,
)


def rows(ws: Workspace, table: str) -> list[tuple[Any, ...]]:
    with ws.reading() as connection:
        return [tuple(row) for row in connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY 1"))]


class Scene:
    """A campaign, what people hold and said, and the ledger as it was last seen."""

    def __init__(self, ws: Workspace, people: int) -> None:
        self.ws, self.people = ws, people
        self.campaign = make(ws, data=small_data(n_train=12), people=people, batch_size=2, ahead=1, budget=8)
        self.said: dict[str, list[str]] = {person: [] for person in PEOPLE}
        self.acknowledged: list[str] = []
        self.before: dict[str, list[tuple[Any, ...]]] = {"vote": [], "decision": []}

    def act(self, what: str, person: str, label: int | None) -> None:
        held = next_tasks(self.ws, self.campaign, person, 2)
        items = [] if isinstance(held, Waiting) else [task.item for task in held]
        if what == "vote" and items:
            self.acknowledged.append(cast_vote(self.ws, self.campaign, person, items[0], label).id)
            self.said[person].append(items[0])
        elif what == "change" and self.said[person]:
            try:
                self.acknowledged.append(cast_vote(self.ws, self.campaign, person, self.said[person][-1], label).id)
            except ConflictError as refused:
                if refused.code not in ("decided", "taken", "not_asked"):
                    raise
        elif what == "undo" and self.said[person]:
            try:
                undo_vote(self.ws, self.campaign, person)
            except ConflictError as refused:
                if refused.code != "nothing_to_undo":
                    raise
        elif what == "skip" and items:
            skip(self.ws, self.campaign, person, items[0])
        elif what == "resolve" and items:
            resolve(self.ws, self.campaign, items[0], label, "lead")
        elif what == "advance":
            advance(self.ws, self.campaign)
        elif what == "reload":
            self.ws.memory.clear()

    def check(self) -> None:
        for table, before in self.before.items():
            now = rows(self.ws, table)
            assert now[: len(before)] == before, f"{table} is not append-only"
            self.before[table] = now
        with self.ws.reading() as connection:
            campaign_id = connection.execute(sa.text("SELECT id FROM campaign")).scalar_one()
            live = vote_table.live_votes_of_campaign(connection, campaign_id)
            stored = set(connection.execute(sa.text("SELECT public_id FROM vote")).scalars())
        assert set(self.acknowledged) <= stored
        per_attempt = Counter((v.item_id, v.attempt) for v in live)
        assert max(per_attempt.values(), default=0) <= self.people
        assert max(Counter((v.item_id, v.attempt, v.person) for v in live).values(), default=0) <= 1
        opened = status(self.ws, self.campaign).open_round
        for item in opened.items if opened is not None and opened.state == "selected" else ():
            counted = sum(v.key == item.item and v.attempt == self._attempt(item.item) for v in live)
            assert item.votes == counted
            assert item.votes + item.leased <= self.people or item.decided

    def _attempt(self, key: str) -> int:
        with self.ws.reading() as connection:
            found = sa.text("SELECT attempt FROM item WHERE key = :key AND split = 'train'")
            return int(connection.execute(found, {"key": key}).scalar_one())


@settings(max_examples=examples(0.4))
@given(acts=ACTS, people=st.sampled_from((1, 2)))
def test_whatever_people_do(acts: list[tuple[str, str, int | None]], people: int) -> None:
    with tempfile.TemporaryDirectory() as folder, open_workspace(Path(folder)) as ws:
        scene = Scene(ws, people)
        for what, person, label in acts:
            scene.act(what, person, label)
            scene.check()
        advance(ws, scene.campaign)
        scene.check()
        assert replay(ws, scene.campaign).agrees


@pytest.fixture
def plans(tmp_path: Path) -> list[str]:
    """The query plans of everything that a vote and the next item cost."""
    found: list[str] = []
    with open_workspace(tmp_path) as ws:
        campaign = make(ws, data=small_data(n_train=300), people=2, batch_size=20, budget=None)
        held = next_tasks(ws, campaign, "ann")
        assert isinstance(held, list)

        def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            if statement.split()[0] in ("SELECT", "UPDATE"):
                plan = connection.connection.cursor()
                plan.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                found.extend(f"{row[3]}  in  {statement}" for row in plan.fetchall())
                plan.close()

        sa.event.listen(ws.database.engine, "before_cursor_execute", explain)
        cast_vote(ws, campaign, "ann", held[0].item, 0, request_id="r")
        next_tasks(ws, campaign, "ann")
        undo_vote(ws, campaign, "ann")
        sa.event.remove(ws.database.engine, "before_cursor_execute", explain)
    return found


def test_a_vote_scans_no_table(plans: list[str]) -> None:
    assert len(plans) > 20
    harmless = ("SCAN CONSTANT", "SCAN ranked")  # `ranked` is a part of the batch, found as the next line says
    assert any(plan.startswith("SEARCH selection USING INDEX") and "rank>? AND rank<?" in plan for plan in plans)
    assert [plan for plan in plans if plan.startswith("SCAN") and not plan.startswith(harmless)] == []
