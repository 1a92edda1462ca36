"""A replay comes out as the ledger says, to the last bit, wherever the process had ended and whatever a lead had changed."""

from pathlib import Path

import numpy as np
import pytest

from labelchef.loop.rebuild import Verdict
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import change_settings
from labelchef.server.campaigns.trained import forget, replay, trained_now
from labelchef.server.sources.source_effects import Proposal, apply
from labelchef.server.workspace import Workspace, open_workspace
from tests.rule_campaigns import label_batch, make


def kill(ws: Workspace, campaign: str) -> None:
    """What a process that ends leaves of the trained state."""
    forget(ws, find(ws, campaign).id)


@pytest.mark.parametrize("selector", ["margin", "infl"])
def test_after_restarts_mutes_and_other_settings(tmp_path: Path, selector: str) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, tmp_path / "files", selector=selector, budget=30)
        kill(ws, name)  # the first batch is out: the selection has taught the solver something
        change_settings(ws, name, "lead", engine="memory")
        label_batch(ws, name)
        apply(ws, name, Proposal(("wrong",)), "lead")
        kill(ws, name)
        label_batch(ws, name)
        kill(ws, name)
        apply(ws, name, Proposal(()), "lead")
        label_batch(ws, name)
        outcome = replay(ws, name)
        assert outcome.message == "5 rounds came out as the ledger says: selections, labels and metrics"
        assert {one.model for one in outcome.rounds if one.model is not None} == {Verdict.SAME}


def test_what_stands_for_the_weak_samples_does_not_depend_on_when_it_is_drawn(tmp_path: Path) -> None:
    """The first model may need no probe, and a later one draw it: before a restart or after it, it is the same."""
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, tmp_path / "files", sources="naive_bayes", gamma=0.5)
        label_batch(ws, name)
        session = trained_now(ws, find(ws, name)).session
        assert session.learner is not None
        at_first, session.learner.probe = session.learner.probe, None
        assert at_first is not None
        session.learner.belief_shift(session.objective, session.labels)
        np.testing.assert_array_equal(session.learner.probe, at_first)
