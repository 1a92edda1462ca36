"""The audit of a campaign in a database: drawn, shown blind, read by the stopping rule, and the same after a restart."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labelchef.base.campaigns import CampaignState
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import Batch, Decisions, SelectionDiagnostics, Votes
from labelchef.base.settings import Settings
from labelchef.judge.audit import AuditTrail
from labelchef.loop.start import new_session
from labelchef.loop.steps import select
from labelchef.loop.stopping import Audited, Progress, parse_rule
from labelchef.server.campaigns import campaigns, trained
from labelchef.server.campaigns.access import find
from labelchef.server.store import campaign_table, round_table
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import label_all, make, small_data, tasks


def trail_of(ws: Workspace, campaign: str) -> AuditTrail:
    """As a session has it that is built from the ledger."""
    row = find(ws, campaign)
    trained.forget(ws, row.id)
    return trained.trained_now(ws, row).session.audited()


def test_the_trail_is_the_same_after_a_restart_and_in_a_replay(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, audit=0.5, budget=24, ahead=2)
        label_all(ws, name, "ann", rounds=3)
        before = trained.trained_now(ws, find(ws, name)).session.audited()
        found = campaigns.audit(ws, name)
    assert before.size == 6
    assert found.share == 0.5
    assert found.accuracy is not None
    assert found.accuracy == before.accuracy()
    assert [point.items for point in found.course] == list(range(1, 7))
    assert all(point.low <= point.accuracy <= point.high for point in found.course)
    with open_workspace(tmp_path / "home") as ws:
        after = trail_of(ws, name)
        assert np.array_equal(before.predicted, after.predicted)
        assert np.array_equal(before.answered, after.answered)
        assert campaigns.audit(ws, name) == found
        assert campaigns.status(ws, name).audit == found
        label_all(ws, name, "ann", rounds=1)
        assert trail_of(ws, name).size == 8
        assert trained.replay(ws, name).agrees


def test_audited_items_are_blind_and_work_ahead_is_not_audited(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, audit=0.5, ahead=4)
        with ws.reading() as connection:
            turn = round_table.last_round(connection, find(ws, name).id)
            assert turn is not None
        audited = {str(item) for item, _ in turn.diagnostics["audited"]}
        shown = tasks(ws, name, "ann", 8)
        assert len(shown) == 8
        assert len(audited) == 2
        blind = {task.item for task in shown if task.blind}
        assert blind == audited, "the work ahead, too, is what the selector chose"
        assert all(t.suggestion is None and t.weak is None and not t.neighbours for t in shown if t.blind)
        assert all(t.suggestion is not None for t in shown if not t.blind)


def test_the_rule_stops_a_campaign(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, data=small_data(), audit=1.0, stop="Audited(0.2)", budget=60)
        while campaigns.summary(ws, name).state is CampaignState.RUNNING:
            label_all(ws, name, "ann")
        ended = campaigns.status(ws, name)
    assert ended.summary.message == "stopping rule: audited accuracy ≥ 0.2"
    assert ended.audit.accuracy is not None
    assert ended.audit.accuracy.low >= 0.2
    assert ended.summary.spent < 60


def test_the_rule_reads_the_lower_end() -> None:
    assert parse_rule("Audited(0.9)") == Audited(0.9)
    assert str(Audited(0.9)) == "audited accuracy ≥ 0.9"
    assert not Audited(0.01).met(Progress([]))
    assert (Audited(0.5) | Audited(0.6)).reads_audit


@pytest.mark.parametrize("value", [0, 1, 1.5, -0.2])
def test_an_accuracy_outside_is_refused(value: float) -> None:
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        Audited(value)


def test_the_rule_without_an_audit_is_refused(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        with pytest.raises(InvalidInputError, match="audit is 0") as refused:
            campaigns.create_campaign(ws, "Small", small_data(), Settings(stop="Audited(0.9)"), "lead")
        assert refused.value.code == "audit"
        name = make(ws)
        with pytest.raises(InvalidInputError, match="audit is 0"):
            campaigns.change_settings(ws, name, "lead", stop="MaxRounds(3) | Audited(0.9)")


def test_a_part_of_a_batch_has_its_own_audited_samples() -> None:
    batch = Batch.without_predictions(np.array([7, 9, 4]))
    batch = Batch(batch.indices, batch.suggested, batch.influence, SelectionDiagnostics(audited=((7, 1), (9, 0))))
    assert batch.without(np.array([7])).diagnostics.audited == ((9, 0),)
    assert batch.take(slice(2)).diagnostics.audited == ((7, 1), (9, 0))


def test_a_draw_that_was_cut_is_not_counted() -> None:
    """Reopened samples take places of a batch; the audited ones that stay are the first in order, no fair draw."""
    data = small_data(60, 30)
    session = new_session(data, Settings(audit=0.5, budget=40, batch_size=10))
    session.start()
    first = session.select(10)
    session.decide(first, Votes.of([]), Decisions.sure(first.indices, np.zeros(10, dtype=np.int64)))
    assert len(session.select(10).diagnostics.audited) == 5
    assert select(session, 10, 0, first.indices[:8]).batch.diagnostics.audited == ()
    assert len(select(session, 10, 0, first.indices[:3]).batch.diagnostics.audited) == 5


def test_a_campaign_of_the_rule_that_was_removed_says_so_and_goes_on_with_another(ws: Workspace) -> None:
    campaign = make(ws, audit=0.5, people=1, budget=40)
    label_all(ws, campaign, "ann", rounds=1)
    with ws.writing() as connection:  # as version 0.2 has stored it
        row = find(ws, campaign)
        stored = replace(row.settings, stop="MaxRounds(9) | Certified(0.9, level=0.99)")
        campaign_table.update_campaign(connection, row.id, settings=stored)
    ws.memory.clear()
    with pytest.raises(
        InvalidInputError, match=r"Certified was removed.*expected another rule, such as Audited"
    ) as told:
        label_all(ws, campaign, "ann")
    assert told.value.code == "stop"
    assert campaigns.summary(ws, campaign).message == str(told.value)
    assert campaigns.audit(ws, campaign).accuracy is not None
    campaigns.change_settings(ws, campaign, "lead", stop="MaxRounds(3)")
    campaigns.resume(ws, campaign, "lead")
    advance(ws, campaign)
    label_all(ws, campaign, "ann")
    assert campaigns.summary(ws, campaign).message == "stopping rule: 3 rounds done"
    assert trained.replay(ws, campaign).agrees
