"""Every fault a few times: nothing acknowledged is lost or doubled, nothing is torn, and the campaign goes on.

`make torture` does the same more often; docs/trust.md has the table.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from torture import campaign, stage
from torture.audit import audit, engine_of
from torture.injection import Injection
from torture.ledger import Ledger, Operation
from torture.nursery import Nursery
from torture.people import BASE
from torture.stage import POSTGRESQL, SQLITE, Stage, Workshop

from tests.store_support import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Workshop]:
    folder = tmp_path_factory.mktemp("torture")
    with Nursery(folder) as nursery:
        yield Workshop(folder, nursery, postgres, patience=300.0)  # a busy machine is no fault


def test_no_fault_loses_doubles_tears_or_stops_anything(shop: Workshop) -> None:
    episodes = campaign.plan(kills=6, times=1, databases=(SQLITE, POSTGRESQL), seed=1)
    mounts = stage.can_mount(shop.folder)
    episodes = [  # the other faults on one kind of database each, for the time it takes
        one
        for one in episodes
        if one.fault.startswith("kill") or (one.database == SQLITE and (mounts or one.fault != "disk-full"))
    ]
    results = [campaign.run(shop, episode) for episode in episodes]
    assert [(one.episode, one.notes) for one in results if one.bad] == []
    assert sum(one.kills for one in results) >= 5
    assert sum(one.acknowledged for one in results) > 100
    assert sum(one.rounds for one in results) > 50


@pytest.fixture
def quiet(shop: Workshop, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A home that nobody works on."""
    with stage.staged(shop, request.node.name[:40], SQLITE) as found:
        yield found


def _vote(stage: Stage) -> Operation:
    """A vote by the command line, acknowledged."""
    item = str(stage.query("SELECT i.key FROM selection s JOIN item i ON i.id = s.item_id ORDER BY s.rank")[0][0])
    operation = Operation("vote", "annotator-00", item, 1)
    number = stage.ledger.send(operation)
    assert stage.command("vote", "load", item, "spam", "--as", "annotator-00").code(300) == 0
    stage.ledger.acknowledge(number)
    return operation


def test_the_audit_notices_what_is_lost_doubled_or_torn(quiet: Stage, tmp_path: Path) -> None:
    _vote(quiet)
    quiet.compare()
    assert quiet.findings.lost == quiet.findings.doubled == quiet.findings.torn == []
    with Ledger(tmp_path / "other") as empty:
        assert len(audit(quiet.home, None, empty).doubled) == 1, "a vote that nobody sent"
    with Ledger(tmp_path / "more") as more:
        for kind in ("vote", "undo", "decide", "reopen", "settings", "skip", "import"):
            more.acknowledge(
                more.send(Operation(kind, "annotator-01", "m1", 0, "never" if kind == "import" else "", 3))
            )
        assert len(audit(quiet.home, None, more).lost) == 7
    with engine_of(quiet.home, None).begin() as connection:
        connection.execute(sa.text("UPDATE selection SET votes = 0"))
        connection.execute(sa.text("UPDATE round SET size = size + 1 WHERE kind = 'batch'"))
    torn = audit(quiet.home, None, quiet.ledger).torn
    assert any("count of votes is wrong" in line for line in torn)
    assert any("items" in line and "round" in line for line in torn)


def test_a_process_dies_where_it_is_told_to(quiet: Stage) -> None:
    items = [str(row[0]) for row in quiet.query("SELECT i.key FROM selection s JOIN item i ON i.id = s.item_id")]
    for point, stored in (("commit before", 0), ("commit after", 1)):
        child = quiet.command("vote", "load", items[0], "spam", "--as", "ann", injection=Injection(point, 1))
        assert child.code(300) == -9
        assert quiet.query("SELECT count(*) FROM vote") == [(stored,)]


def test_a_wrong_clock_is_seen_by_the_process_alone(quiet: Stage, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("86400")
    item = str(quiet.query("SELECT i.key FROM selection s JOIN item i ON i.id = s.item_id ORDER BY s.rank")[0][0])
    ahead = Injection(clock=str(clock))
    assert quiet.command("vote", "load", item, "spam", "--as", "ann", injection=ahead).code(300) == 0
    assert quiet.command("vote", "load", item, "unclear", "--as", "ann").code(300) == 0
    first, second = (float(str(row[0])) for row in quiet.query("SELECT created_at FROM vote ORDER BY id"))
    assert 80000 < first - second < 86401


def test_a_campaign_that_does_not_go_on_is_stuck(quiet: Stage) -> None:
    async def nobody_works() -> bool:
        quiet.start()
        quiet.shop.patience = 300.0
        await quiet.answers()
        quiet.shop.patience = 1.0
        assert (await quiet.crowd.ask("POST", f"{BASE}/pause"))[0] == 200
        return await quiet.goes_on("a paused campaign")

    patience = quiet.shop.patience
    try:
        assert not asyncio.run(nobody_works())
    finally:
        quiet.shop.patience = patience
    assert len(quiet.stuck) == 1


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    episodes = campaign.plan(kills=140, times=1, databases=(SQLITE, POSTGRESQL), seed=3)
    assert sum(one.times for one in episodes if one.fault.startswith("kill-")) == 140
    results = campaign.Results(tmp_path / "results.jsonl")
    results.add(campaign.Result(episodes[0].key, times=20, acknowledged=7, agreed=3, rounds=3))
    again = campaign.Results(tmp_path / "results.jsonl")
    assert episodes[0].key in again.found
    assert not any(one.bad for one in again.rows().values())
    again.add(campaign.Result(episodes[1].key, times=1, lost=1))
    assert any(one.bad for one in again.rows().values())
    assert "| 7 |" in campaign.markdown(again.rows())
    assert json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])["acknowledged"] == 7
