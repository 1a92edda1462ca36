"""A process that dies at any transition leaves a campaign that the next one takes up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store_support import PostgresServer

ROOT = Path(__file__).parent.parent


def crash(folder: Path, stride: int, *urls: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.store_crash", str(folder), str(stride), *urls]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_dying_at_a_transition_loses_nothing(tmp_path: Path) -> None:
    """Every third one, for the time it takes; `python -m tests.store_crash FOLDER 1` dies at every one."""
    seen = crash(tmp_path, 3)
    assert seen["before"] >= 15
    assert seen["file"] >= 6


@pytest.mark.slow
def test_the_same_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    seen = crash(tmp_path, 5, *[postgres.new_database() for _ in range(20)])
    assert seen["before"] >= 15
