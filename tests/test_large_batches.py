"""Large batches are searched less often than small ones, and hand out the same. A vote is few statements, and on disk before it
is acknowledged."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from labelchef.base.campaigns import SplitName, Waiting, WaitReason
from labelchef.server.campaigns.campaigns import change_settings
from labelchef.server.labelling import kept, votes
from labelchef.server.labelling.tasks import next_tasks, skip
from labelchef.server.labelling.votes import cast_vote, undo_vote, vote_and_next
from labelchef.server.store import search
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import PostgresServer, make, postgres_server, tasks, waits


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch is taken for a large one."""
    monkeypatch.setattr(kept, "_LARGE", 0)


def handed(ws: Workspace, campaign: str, *, rounds: int) -> list[tuple[str, str]]:
    """(person, item) in the order in which three people got and answered items, with skips and votes that are taken back."""
    seen = []
    for turn in range(rounds):
        for person in ("ann", "bob", "cat"):
            found = next_tasks(ws, campaign, person, 2)
            if isinstance(found, Waiting):
                continue
            seen += [(person, one.item) for one in found]
            if turn % 3 == 2 and person == "bob":
                skip(ws, campaign, person, found[0].item)
                continue
            vote_and_next(ws, campaign, person, found[0].item, 0, 2)
            if turn % 4 == 3 and person == "cat":
                seen.append((person, undo_vote(ws, campaign, person).item))
    return seen


@pytest.mark.parametrize("people", [1, 2])
def test_they_hand_out_the_same(ws: Workspace, monkeypatch: pytest.MonkeyPatch, people: int) -> None:
    small = handed(ws, make(ws, "Small", budget=30, batch_size=30, people=people), rounds=8)
    monkeypatch.setattr(kept, "_LARGE", 0)
    assert handed(ws, make(ws, "Large", budget=30, batch_size=30, people=people), rounds=8) == small


@pytest.mark.usefixtures("large")
def test_what_becomes_free_is_found(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, batch_size=4, budget=4, lease_minutes=10.0)
    mine = [one.item for one in tasks(ws, campaign, "ann", 4)]
    assert waits(ws, campaign, "bob").reason is WaitReason.OTHERS
    skip(ws, campaign, "ann", mine[1])
    assert [one.item for one in tasks(ws, campaign, "bob", 4)] == [mine[1]]
    assert waits(ws, campaign, "cat").reason is WaitReason.OTHERS
    with ws.writing() as connection:  # the leases of ann run out just now
        connection.execute(sa.text("UPDATE assignment SET until = 1 WHERE person = 'ann' AND state = 'leased'"))
    monkeypatch.setattr(kept, "_GLANCE_SECONDS", 0.0)
    assert {one.item for one in tasks(ws, campaign, "cat", 4)} == set(mine) - {mine[1]}


@pytest.mark.usefixtures("large")
def test_a_look_is_not_kept_beyond_the_end_of_a_lease(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_GLANCE_SECONDS", 1000.0)
    campaign = make(ws, batch_size=2, budget=2, lease_minutes=0.01)
    mine = {one.item for one in tasks(ws, campaign, "ann", 2)}
    told = waits(ws, campaign, "bob")
    assert told.reason is WaitReason.OTHERS
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 1.0)
    assert {one.item for one in tasks(ws, campaign, "bob", 2)} == mine


@pytest.mark.usefixtures("large")
def test_the_standing_of_a_batch_counts_own_votes_at_once(ws: Workspace) -> None:
    campaign = make(ws, batch_size=6, budget=6)
    found = tasks(ws, campaign, "ann", 1)
    for count in range(1, 5):
        _, after = vote_and_next(ws, campaign, "ann", found[0].item, 0, 1)
        assert not isinstance(after, Waiting)
        found = after
        assert found[0].batch is not None
        assert (found[0].batch.mine, found[0].batch.answered >= count) == (count, True)


def test_a_batch_is_complete_once_its_last_vote_came(ws: Workspace) -> None:
    campaign = make(ws, people=2, batch_size=2, budget=2)
    done = []
    for person in ("ann", "bob"):
        found = tasks(ws, campaign, person, 2)
        for one in list(found):
            receipt, _ = vote_and_next(ws, campaign, person, one.item, 0, 2)
            done.append(receipt.batch_complete)
    assert done == [False, False, False, True]


def test_settings_that_change_hold_for_the_next_vote(ws: Workspace) -> None:
    """What is kept of a campaign does not hide what its lead changes."""
    campaign = make(ws, batch_size=6, budget=12)
    cast_vote(ws, campaign, "ann", tasks(ws, campaign, "ann")[0].item, "spam")
    change_settings(ws, campaign, "lead", people=2)
    receipt, after = vote_and_next(ws, campaign, "ann", tasks(ws, campaign, "ann")[0].item, "ham", 2)
    assert not isinstance(after, Waiting)
    assert (receipt.label, after[0].votes_needed) == (0, 2)


@contextmanager
def statements(ws: Workspace) -> Iterator[list[str]]:
    """What is sent to the database meanwhile."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("PRAGMA") and not statement.startswith("BEGIN"):
            sent.append(statement)

    event.listen(ws.database.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(ws.database.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("batch", ["small", "large"])
def test_a_vote_and_the_next_item_are_few_statements(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    monkeypatch.setattr(kept, "_LARGE", 0 if batch == "large" else 500)
    campaign = make(ws, batch_size=30, budget=30)
    found = tasks(ws, campaign, "ann")
    for k in range(3):
        _, after = vote_and_next(ws, campaign, "ann", found[0].item, 0, 2, request_id=f"request {k}")
        assert not isinstance(after, Waiting)
        found = after
    with statements(ws) as sent:
        vote_and_next(ws, campaign, "ann", found[0].item, 0, 2, request_id="another request")
    assert len(sent) <= 12, sent


@pytest.fixture(scope="module")
def careful() -> Iterator[PostgresServer]:
    """A server that waits for the disk, and writes by itself only every ten seconds what nobody waits for."""
    with postgres_server(durable=True) as server:
        server.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        server.execute("SELECT pg_reload_conf()")
        yield server


def test_a_vote_that_was_acknowledged_outlives_the_database_server(careful: PostgresServer, tmp_path: Path) -> None:
    database = careful.new_database()
    with open_workspace(tmp_path, database) as ws:
        campaign = make(ws)
        item = tasks(ws, campaign, "ann")[0].item
        receipt = votes.cast_vote(ws, campaign, "ann", item, 0, request_id="the first one")
        again = votes.cast_vote(ws, campaign, "ann", item, 0, request_id="the first one")
        assert (again.id, again.repeated) == (receipt.id, True)
    careful.stop()  # at once, as a crash would
    careful.start()
    with open_workspace(tmp_path, database) as ws, ws.reading() as connection:
        assert connection.execute(sa.text("SELECT public_id FROM vote")).scalars().all() == [receipt.id]


def test_what_does_not_wait_for_the_disk_may_be_lost_with_it(careful: PostgresServer, tmp_path: Path) -> None:
    """Else the test before shows nothing."""
    database = careful.new_database()
    with open_workspace(tmp_path, database) as ws:
        make(ws)
        with ws.writing(lasting=False) as connection:
            connection.execute(sa.text("UPDATE campaign SET name = 'Other'"))
    careful.stop()
    careful.start()
    with open_workspace(tmp_path, database) as ws, ws.reading() as connection:
        assert connection.execute(sa.text("SELECT name FROM campaign")).scalar_one() == "Small"


def test_a_new_campaign_is_known_to_the_planner(careful: PostgresServer, tmp_path: Path) -> None:
    with open_workspace(tmp_path, careful.new_database()) as ws:
        make(ws)
        with ws.reading() as connection:
            counted = connection.execute(sa.text("SELECT reltuples FROM pg_class WHERE relname = 'item'")).scalar_one()
    assert counted == 90.0, "60 items and 30 trusted ones"


def test_every_search_is_planned_for_its_words(postgres: PostgresServer, tmp_path: Path) -> None:
    """One plan for all words reads millions of items in their order to find a rare word; other statements are planned once."""
    mode = sa.text("SHOW plan_cache_mode")
    with open_workspace(tmp_path, postgres.new_database()) as ws:
        make(ws)
        with ws.reading() as connection:
            found = search.matching_ids(connection, 1, SplitName.TRAIN, search.parse("17"), (1, 90), 10)
            assert list(found) == [18, 78], "a training item, and a trusted one"
            assert connection.execute(mode).scalar_one() == "force_custom_plan"
        with ws.reading() as connection:
            assert connection.execute(mode).scalar_one() == "auto"
