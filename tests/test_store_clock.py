"""People who leave, and a clock that jumps: nobody waits for a lease or an attempt that cannot end."""

import time

import pytest

from labelchef.base.campaigns import Role
from labelchef.base.errors import ForbiddenError, ThrottledError
from labelchef.server.campaigns.campaigns import summary
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.people import accounts
from labelchef.server.workspace import Workspace
from tests.store_support import make, tasks, waits

PASSWORD = "a long enough password"
DAY = 86400.0


@pytest.fixture
def campaign(ws: Workspace) -> str:
    made = make(ws, batch_size=2, people=1)
    for name in ("ann", "bob"):
        accounts.create_account(ws, name, Role.ANNOTATOR, PASSWORD)
        accounts.set_member(ws, made, name)
    return made


@pytest.mark.parametrize("how", ["removed", "deactivated"])
def test_the_items_of_somebody_who_leaves_go_to_others_at_once(ws: Workspace, campaign: str, how: str) -> None:
    held = {task.item for task in tasks(ws, campaign, "ann", 2)}
    version = waits(ws, campaign, "bob").wake
    if how == "removed":
        accounts.set_member(ws, campaign, "ann", member=False)
    else:
        accounts.set_active(ws, "ann", False)
    assert {task.item for task in tasks(ws, campaign, "bob", 2)} == held
    assert summary(ws, campaign).version > version


def test_a_lead_who_is_no_longer_a_member_keeps_their_items(ws: Workspace, campaign: str) -> None:
    accounts.create_account(ws, "lea", Role.LEAD, PASSWORD)
    accounts.set_member(ws, campaign, "lea")
    held = [task.item for task in tasks(ws, campaign, "lea", 2)]
    accounts.set_member(ws, campaign, "lea", member=False)
    assert [task.item for task in tasks(ws, campaign, "lea", 2)] == held


def test_leases_of_a_clock_that_was_ahead_hold_nobody_up(
    ws: Workspace, campaign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + DAY)
    held = {task.item for task in tasks(ws, campaign, "ann", 2)}
    monkeypatch.setattr(time, "time", real)
    again = tasks(ws, campaign, "bob", 2)
    assert {task.item for task in again} == held
    cast_vote(ws, campaign, "bob", again[0].item, 0)
    monkeypatch.setattr(time, "time", lambda: real() - DAY)
    assert {task.item for task in tasks(ws, campaign, "ann", 2)} <= held
    monkeypatch.setattr(time, "time", real)
    assert isinstance(next_tasks(ws, campaign, "bob"), list)


def test_attempts_of_a_clock_that_was_ahead_hold_nobody_up(
    ws: Workspace, campaign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + DAY)
    fail(ws, 5)
    monkeypatch.setattr(time, "time", real)
    assert accounts.sign_in(ws, "ann", PASSWORD).account.name == "ann"
    fail(ws, 5)
    with pytest.raises(ThrottledError) as refused:
        accounts.sign_in(ws, "ann", PASSWORD)
    assert 0 < refused.value.retry_after <= 15 * 60
    monkeypatch.setattr(time, "time", lambda: real() - 30.0)
    with pytest.raises(ThrottledError) as refused:
        accounts.sign_in(ws, "ann", PASSWORD)
    assert refused.value.retry_after <= 15 * 60


def fail(ws: Workspace, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ForbiddenError):
            accounts.sign_in(ws, "ann", "wrong")
