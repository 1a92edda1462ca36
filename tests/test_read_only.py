"""A workspace in a folder that cannot be written: what only reads works, and what writes says so."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labelchef.server.labelling.votes import cast_vote
from labelchef.server.workspace import open_workspace
from tests.store_support import label_all, make, tasks

_RUN = """
import json, sys
from typer.testing import CliRunner
from labelchef.cli.main import app
for words in json.load(sys.stdin):
    done = CliRunner().invoke(app, words)
    wrong = None if done.exception is None or done.exit_code == 0 else [type(done.exception).__name__, str(done.exception)]
    print(json.dumps([done.output, wrong]))
"""
_DROP_FROM_BOUNDING_SET, _MAY_WRITE_ANYWHERE = 24, 1


def _obey_rights() -> None:
    """Take from root what lets it write in spite of the rights of a folder; from the next program on."""
    if os.getuid() == 0 and ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, _MAY_WRITE_ANYWHERE, 0, 0, 0) != 0:
        os._exit(99)


def run(home: Path, *commands: str) -> list[tuple[str, list[str] | None]]:
    """Output and error of commands, by somebody who cannot write in the home."""
    for folder, _, names in os.walk(home, topdown=False):
        for name in names:
            os.chmod(Path(folder, name), 0o400)
        os.chmod(folder, 0o500)
    words = [[*command.split(), "--home", str(home)] for command in commands]
    python, given = [sys.executable, "-c", _RUN], json.dumps(words)
    done = subprocess.run(python, input=given, text=True, capture_output=True, check=False, preexec_fn=_obey_rights)
    for folder, _, _ in os.walk(home):
        os.chmod(folder, 0o700)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="rights of root are taken by prctl")
def test_a_home_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    out.mkdir()
    with open_workspace(home) as ws:
        slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=1)
    before = (home / "labelchef.db").read_bytes()
    status, data, ledger, backup, vote = run(
        home,
        f"status {slug}",
        f"export {slug} --out {out}/data.csv",
        f"export {slug} --what ledger --out {out}/ledger.jsonl",
        f"backup make {out}/backup",
        f"vote {slug} 1 ham --as ann",
    )
    assert status[1] is data[1] is ledger[1] is backup[1] is None
    assert "ann: 4 votes" in status[0]
    assert len((out / "data.csv").read_text().splitlines()) > 60
    assert vote[1] is not None
    assert vote[1][0] == "StoreError"
    assert "is where nothing can be written" in vote[1][1]
    assert (home / "labelchef.db").read_bytes() == before


@pytest.mark.skipif(sys.platform != "linux", reason="rights of root are taken by prctl")
def test_votes_in_the_log_of_a_process_that_died_are_read_too(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        slug = make(ws, people=1)
        cast_vote(ws, slug, "ann", tasks(ws, slug, "ann", 1)[0].item, "ham")
        shutil.copytree(ws.home, tmp_path / "copy")  # as it is while a process has it open
    assert (tmp_path / "copy" / "labelchef.db-wal").stat().st_size
    assert "ann: 1 votes" in run(tmp_path / "copy", f"status {slug}")[0][0]
    (tmp_path / "copy" / "labelchef.db-shm").unlink()
    said, wrong = run(tmp_path / "copy", f"status {slug}")[0]
    assert "votes" not in said, "an old state must not be taken for the present one"
    assert wrong is not None
    assert wrong[0] == "StoreError"
