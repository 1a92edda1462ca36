"""Selections do not hang on rounding: tied scores have a fixed order, and a replay elsewhere agrees to rounding."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelchef.base.settings import Settings
from labelchef.loop.rebuild import Verdict, replay
from labelchef.model.order import TIE, Ties, grouped, smallest
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.trained import data_of, ledger_of
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import label_all, make, small_data

_LEVELS = st.integers(-5, 5).map(float)


@given(st.lists(_LEVELS, min_size=1, max_size=40), st.integers(1, 45), st.integers(0, 2**32 - 1))
def test_noise_below_the_tolerance_changes_no_choice(levels: list[float], count: int, seed: int) -> None:
    exact = np.array(levels)
    noise = 0.4 * TIE * np.abs(exact).max() * np.random.default_rng(seed).uniform(-1, 1, len(exact))
    assert smallest(exact + noise, count).tolist() == smallest(exact, count).tolist()


def test_ties_follow_the_preference_within_the_tolerance_only() -> None:
    scores = np.array([-1.0, -1.0005, -0.9, -1.01])
    assert smallest(scores, 2).tolist() == [3, 1]
    assert smallest(scores, 2, Ties(1e-3, np.array([0]))).tolist() == [3, 0]
    assert smallest(scores, 2, Ties(1e-3, np.array([2]))).tolist() == [3, 0], "by index, where none is preferred"
    found, groups = grouped(scores, 2, Ties(1e-3))
    assert found.tolist() == [3, 0, 1]
    assert groups.tolist() == [0, 1, 1]


_REPLAY = """
import json, sys
from pathlib import Path
from labelchef.server.campaigns import trained
from labelchef.server.workspace import open_workspace
with open_workspace(Path(sys.argv[1])) as ws:
    outcome = trained.replay(ws, "small")
print(json.dumps([outcome.agrees, [one.model for one in outcome.rounds]]))
"""


@pytest.mark.parametrize(
    "elsewhere", [{"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}, {"OPENBLAS_CORETYPE": "Nehalem"}]
)
def test_a_campaign_goes_on_with_other_threads_or_another_processor(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    with open_workspace(tmp_path) as ws:
        campaign = make(ws, data=small_data(600, 60), budget=None)
        label_all(ws, campaign, "ann", rounds=5, n=600)
    found = subprocess.run(
        [sys.executable, "-c", _REPLAY, str(tmp_path)],
        env={**os.environ, **elsewhere}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    agrees, models = json.loads(found.stdout)
    assert agrees
    if "OPENBLAS_CORETYPE" in elsewhere:
        assert "differs" in models, "another processor computes other last digits; otherwise this test shows nothing"
    with open_workspace(tmp_path) as ws:  # and it can be labelled further here
        label_all(ws, campaign, "ann", n=600)


def test_another_choice_within_the_tolerance_agrees_to_rounding_and_beyond_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict(ws: Workspace) -> Verdict | None:
        row = find(ws, campaign)
        settings = row.settings
        past = [replace(then, opened_with=None, closed_with=None) for then in ledger_of(ws, row).past()]
        again = list(replay(data_of(ws, row), replace(settings, seed=1), past))
        return again[1].selection

    with open_workspace(tmp_path) as ws:
        campaign = make(ws, data=small_data(200, 60), selector="random")
        assert next_tasks(ws, campaign, "ann")
        assert verdict(ws) is Verdict.DIFFERS, "another seed draws other samples"
        monkeypatch.setattr(Settings, "tol", 2.0)
        assert verdict(ws) is Verdict.ROUNDING, "all numbers from 0 to 1 are tied then"
