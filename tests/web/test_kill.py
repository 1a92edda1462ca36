"""A server killed under load: what was acknowledged is there, the campaign goes on, the replay agrees.

`LABELCHEF_KILLS=50 python -m benchmarks serving` does the same at 50 moments with 30 annotators and 100 000 items.
"""

from pathlib import Path

import pytest
from benchmarks.serving import Log, check_ledger, kill_run

pytestmark = pytest.mark.slow


def test_sigkill_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    found = kill_run(tmp_path, people=6, items=600, kills=4, seed=1, batch=12)
    assert found["acknowledged"] >= 18
    assert found["rounds"] >= 2, "rounds were closed between the kills"


def test_the_check_notices_a_lost_vote(tmp_path: Path) -> None:
    found = kill_run(tmp_path, people=2, items=300, kills=0, batch=6)
    assert found["stored"] >= found["acknowledged"] > 0
    with pytest.raises(AssertionError, match="not in the ledger"):
        check_ledger(tmp_path, Log(acknowledged={"never-stored": ("nobody", "m1")}))
