"""Leads steer, the worker works, damage is said: on SQLite and PostgreSQL."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from labelchef.base.campaigns import CampaignState, Origin, RoundKind, WaitReason
from labelchef.base.errors import ConflictError, InvalidInputError, StoreError
from labelchef.base.settings import Settings, voters_of
from labelchef.loop import steps
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import (
    change_settings,
    create_campaign,
    pause,
    resume,
    rounds,
    status,
    stop,
    summary,
)
from labelchef.server.campaigns.trained import lease_name, replay
from labelchef.server.items.decisions import ledger, reopen, resolve
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.ledger.sql import SqlLedger
from labelchef.server.worker import Worker, advance, wait_for_change
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import label_all, make, small_data, tasks, truth_of, wait_until, waits


def folder_of(ws: Workspace, campaign: str) -> Path:
    return ws.home / "campaigns" / summary(ws, campaign).id


def test_a_reopened_item_is_asked_first_in_the_next_batch(ws: Workspace) -> None:
    campaign = make(ws, batch_size=3, budget=9)
    first = tasks(ws, campaign, "ann", 1)[0].item
    label_all(ws, campaign, "ann")
    reopen(ws, campaign, first, "lead")
    with pytest.raises(ConflictError, match="no decision to take back"):
        reopen(ws, campaign, first, "lead")
    label_all(ws, campaign, "ann")
    again = tasks(ws, campaign, "ann", 3)
    assert (again[0].item, again[0].origin, again[0].rank) == (first, Origin.REOPENED, 0)
    assert len(again) == 3
    with pytest.raises(ConflictError, match="being asked now"):
        reopen(ws, campaign, first, "lead")
    label_all(ws, campaign, "ann")
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    outcome = replay(ws, campaign)
    assert outcome.agrees, outcome
    labels = [e.label for e in ledger(ws, campaign, kind="decision", item=first).entries]
    assert labels == [truth_of(90)[int(first)], None, truth_of(90)[int(first)]]


def test_a_reopened_item_after_the_end_gets_its_weak_label_back(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2, budget=2)
    item = tasks(ws, campaign, "ann", 1)[0].item
    label_all(ws, campaign, "ann")
    reopen(ws, campaign, item, "lead")
    assert advance(ws, campaign) == 2  # the model follows; then the budget leaves nothing to do
    assert rounds(ws, campaign)[-1].kind == RoundKind.CORRECTION
    assert status(ws, campaign).summary.message == "budget spent: 2 of 2 samples asked"
    change_settings(ws, campaign, "lead", budget=4)
    advance(ws, campaign)
    assert tasks(ws, campaign, "ann")[0].item == item
    assert replay(ws, campaign).agrees


def test_stopping_and_going_on(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2)
    held = tasks(ws, campaign, "ann")
    cast_vote(ws, campaign, "ann", held[0].item, 0)
    stop(ws, campaign, "lead")
    assert waits(ws, campaign, "ann").reason == WaitReason.STOPPED
    cast_vote(ws, campaign, "ann", held[1].item, 0)
    assert advance(ws, campaign) == 0
    with pytest.raises(ConflictError, match="the campaign is stopped"):
        pause(ws, campaign, "lead")
    resume(ws, campaign, "lead")
    assert advance(ws, campaign) == 3
    assert replay(ws, campaign).agrees


def test_stopping_while_the_model_follows(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, batch_size=2)
    real = steps.select

    def stopping(*arguments: object) -> object:
        stop(ws, campaign, "lead")
        return real(*arguments)  # type: ignore[arg-type]

    for one in tasks(ws, campaign, "ann"):
        cast_vote(ws, campaign, "ann", one.item, 0)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "select", stopping)
        advance(ws, campaign)
    assert status(ws, campaign).open_round is None
    resume(ws, campaign, "lead")
    advance(ws, campaign)
    assert status(ws, campaign).open_round is not None
    assert replay(ws, campaign).agrees


def test_settings_changed_while_the_model_follows_count(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, batch_size=2, budget=4)
    changes = iter([{"batch_size": 1}, {"budget": 5, "batch_size": 2}, {"budget": 5}])

    def changing(write: Any) -> Any:
        """What was planned is written after a lead changed the settings."""

        def late(*arguments: object) -> object:
            change = next(changes, None)
            if change is not None:
                change_settings(ws, campaign, "lead", **change)
            return write(*arguments)

        return late

    for name in ("open", "end"):
        monkeypatch.setattr(SqlLedger, name, changing(getattr(SqlLedger, name)))
    label_all(ws, campaign, "ann")
    seen = status(ws, campaign)
    assert seen.open_round is not None
    assert (seen.summary.spent, len(seen.open_round.items)) == (2, 2)
    label_all(ws, campaign, "ann")
    monkeypatch.undo()
    seen = status(ws, campaign)
    assert seen.summary.state == CampaignState.RUNNING
    assert seen.open_round is not None
    assert (seen.summary.spent, len(seen.open_round.items)) == (4, 1)
    assert replay(ws, campaign).agrees


def test_a_budget_raised_while_the_last_model_follows_is_no_end(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, batch_size=2, budget=2)
    written = SqlLedger._write_model

    def late(*arguments: object) -> object:
        change_settings(ws, campaign, "lead", budget=3)
        return written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlLedger, "_write_model", late)
    label_all(ws, campaign, "ann")
    seen = status(ws, campaign)
    assert seen.summary.state == CampaignState.RUNNING
    assert seen.open_round is not None
    assert len(seen.open_round.items) == 1
    assert replay(ws, campaign).agrees


def test_reopening_goes_on_with_a_finished_campaign(ws: Workspace) -> None:
    campaign = make(ws, data=small_data(n_train=6), budget=None, batch_size=6)
    label_all(ws, campaign, "ann", n=6)
    done = status(ws, campaign).summary
    assert done.state == CampaignState.FINISHED
    resume(ws, campaign, "lead")
    assert advance(ws, campaign) == 1
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    assert status(ws, campaign).summary.message == done.message
    reopen(ws, campaign, "3", "lead")
    advance(ws, campaign)
    assert status(ws, campaign).summary.state == CampaignState.RUNNING
    assert [(t.item, t.origin) for t in tasks(ws, campaign, "ann")] == [("3", Origin.REOPENED)]
    label_all(ws, campaign, "ann", n=6)
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    assert replay(ws, campaign).agrees


def test_an_item_reopened_while_the_last_model_follows_is_asked(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, data=small_data(n_train=6), budget=None, batch_size=6)
    written = SqlLedger._write_model

    def late(*arguments: object) -> object:
        monkeypatch.undo()
        reopen(ws, campaign, "3", "lead")
        return written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlLedger, "_write_model", late)
    label_all(ws, campaign, "ann", n=6)
    assert [t.item for t in tasks(ws, campaign, "ann")] == ["3"]
    assert replay(ws, campaign).agrees


def test_reopened_items_keep_to_batch_size_and_budget(ws: Workspace) -> None:
    campaign = make(ws, batch_size=6, budget=9, ahead=2)
    items = [t.item for t in tasks(ws, campaign, "ann", 6)]
    label_all(ws, campaign, "ann")
    change_settings(ws, campaign, "lead", batch_size=2)
    for item in items[:4]:
        reopen(ws, campaign, item, "lead")
    label_all(ws, campaign, "ann")  # the batch that was out
    seen = status(ws, campaign)
    assert seen.summary.state == CampaignState.FINISHED
    assert seen.summary.spent == 9
    change_settings(ws, campaign, "lead", budget=12)
    asked = []
    for size in (2, 1):
        advance(ws, campaign)
        opened = status(ws, campaign).open_round
        assert opened is not None
        assert len(opened.items) == size
        asked += [i.item for i in opened.items]
        label_all(ws, campaign, "ann")
    assert asked == items[:3]
    seen = status(ws, campaign)
    assert (seen.summary.state, seen.summary.spent) == (CampaignState.FINISHED, 12)
    assert replay(ws, campaign).agrees


def test_a_target_ends_a_campaign(ws: Workspace) -> None:
    campaign = make(ws, target=0.1, target_metric="accuracy")
    assert status(ws, campaign).summary.message == "target reached: accuracy ≥ 0.1"
    change_settings(ws, campaign, "lead", target=None)
    advance(ws, campaign)
    assert status(ws, campaign).summary.state == CampaignState.RUNNING


def test_settings_that_cannot_be() -> None:
    for wrong in (
        {"people": 0},
        {"batch_size": 0},
        {"budget": -1},
        {"gamma": 2.0},
        {"blind_share": float("nan")},
        {"seed": -1},
        {"ahead": True},
        {"suggestion_votes": 1},
        {"selector": 3},
        {"target": "high"},
    ):
        with pytest.raises(InvalidInputError):
            Settings(**wrong)
    with pytest.raises(InvalidInputError, match="unknown setting 'colour'"):
        Settings.of({"colour": "red"})
    with pytest.raises(InvalidInputError, match="unknown strategy"):
        voters_of("seven")
    assert voters_of("two") == (0, True)


def test_the_worker_moves_rounds_on_while_people_vote(ws: Workspace) -> None:
    made = create_campaign(ws, "Live", small_data(), Settings(batch_size=3, budget=6), "lead")
    with Worker(ws) as worker:
        wait_until(lambda: status(ws, made.slug).open_round is not None)
        version = summary(ws, made.slug).version
        woken: list[int] = []
        waiter = threading.Thread(target=lambda: woken.append(wait_for_change(ws, made.slug, version, 60.0)))
        waiter.start()
        with pytest.raises(ConflictError, match="another process"):
            advance(ws, made.slug)
        truth = truth_of(90)
        deadline = time.monotonic() + 60
        while status(ws, made.slug).summary.state != CampaignState.FINISHED:
            found = next_tasks(ws, made.slug, "ann")
            if isinstance(found, list):
                cast_vote(ws, made.slug, "ann", found[0].item, int(truth[int(found[0].item)]))
            assert time.monotonic() < deadline
        waiter.join(10)
        assert woken
        assert woken[0] > version
        assert worker.last_error is None
    assert replay(ws, made.slug).agrees
    assert wait_for_change(ws, made.slug, 10**6, 0.05) < 10**6


def test_a_campaign_that_another_process_works_on_is_left_to_it(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        made = create_campaign(ws, "Other", small_data(), Settings(), "lead")
    code = (
        "import sys; from pathlib import Path; from labelchef.server.workspace import open_workspace\n"
        "from labelchef.server.campaigns.trained import lease_name; from labelchef.server.campaigns.access import find\n"
        "with open_workspace(Path(sys.argv[1])) as ws, ws.leases.holding(lease_name(find(ws, sys.argv[2]))):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), made.slug], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            open_workspace(tmp_path) as ws,
            pytest.raises(ConflictError, match="another process works on this") as told,
        ):
            advance(ws, made.slug)
        assert told.value.code == "worker"
        holder.kill()
        holder.wait()
        with open_workspace(tmp_path) as ws:  # the one that died has given nothing back
            assert advance(ws, made.slug) == 2  # the first model, the first batch
    finally:
        holder.kill()
        holder.communicate()


def address_of(ws: Workspace, database: str | None) -> str:
    return f"sqlite:///{ws.database.path}" if database is None else database


def lease_of(ws: Workspace, campaign: str) -> str:
    return lease_name(find(ws, campaign))


def test_one_process_works_on_a_campaign_whatever_its_home(ws: Workspace, database: str | None, tmp_path: Path) -> None:
    campaign = make(ws, batch_size=1)
    with open_workspace(tmp_path / "elsewhere", address_of(ws, database)) as other:
        with (
            ws.leases.holding(lease_of(ws, campaign)),
            pytest.raises(ConflictError, match="another process") as refused,
        ):
            advance(other, campaign, patience=0.2)
        assert refused.value.code == "worker"
        with other.leases.holding(lease_of(ws, campaign)), pytest.raises(ConflictError, match="another process"):
            advance(ws, campaign)
    label_all(ws, campaign, "ann")


def test_a_home_without_the_campaign_s_files_leaves_it_as_it_is(
    ws: Workspace, database: str | None, tmp_path: Path
) -> None:
    campaign = make(ws, batch_size=1)
    cast_vote(ws, campaign, "ann", tasks(ws, campaign, "ann")[0].item, 0)
    before = summary(ws, campaign)
    with open_workspace(tmp_path / "elsewhere", address_of(ws, database)) as other:
        with pytest.raises(StoreError, match="this home does not hold its files") as refused:
            advance(other, campaign)
        assert refused.value.code == "folder"
        with pytest.raises(StoreError, match="--home"):
            replay(other, campaign)
        with Worker(other) as worker:
            wait_until(lambda: worker.last_error is not None)
            assert "does not hold" in str(worker.last_error)
            assert worker.alive
    assert summary(ws, campaign) == before
    assert advance(ws, campaign) == 3
    assert replay(ws, campaign).agrees


def test_an_item_that_was_decided_and_asked_later_counts_as_asked(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2)
    batch = status(ws, campaign).open_round
    assert batch is not None
    free = [str(k) for k in range(4) if str(k) not in {one.item for one in batch.items}]
    resolve(ws, campaign, free[0], 0, "lead")
    resolve(ws, campaign, free[1], 0, "lead")
    label_all(ws, campaign, "ann")
    assert (status(ws, campaign).asked.asked, status(ws, campaign).asked.others) == (2, 2)
    reopen(ws, campaign, free[0], "lead")
    label_all(ws, campaign, "ann", rounds=2)
    seen = status(ws, campaign).asked
    assert (seen.asked, seen.others) == (6, 1), "the one that was re-opened has been asked"
    assert str(seen) == "6 samples asked, 1 more imported or decided without being asked"
