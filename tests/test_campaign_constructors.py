"""Campaigns that last, with every way of following changed labels: a restart and a replay come out the same."""

import pytest

from labelchef.chef.constructors import CONSTRUCTORS
from labelchef.server.campaigns.campaigns import rounds
from labelchef.server.campaigns.trained import replay
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace
from tests.store_support import label_all, make


@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_a_campaign_outlives_its_process_with_every_constructor(ws: Workspace, constructor: str) -> None:
    campaign = make(ws, constructor=constructor)
    label_all(ws, campaign, "ann")
    advance(ws, campaign)
    ws.memory.clear()  # as a new process finds it
    label_all(ws, campaign, "ann")
    advance(ws, campaign)
    assert [row.number for row in rounds(ws, campaign)] == [0, 1, 2, 3]
    outcome = replay(ws, campaign)
    assert outcome.agrees, outcome.message
