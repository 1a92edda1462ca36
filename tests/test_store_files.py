"""The files of a workspace under a running server: taken away, emptied, left behind, read by others; real processes, SIGKILL."""

import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from labelchef.domain.errors import StoreError
from labelchef.services.campaigns import status
from labelchef.services.labelling.votes import cast_vote
from labelchef.services.workspace import open_workspace
from tests.store_support import make, tasks

ROOT = Path(__file__).parent.parent
VOTER = """
import sys
from pathlib import Path
from labelchef.domain.errors import StoreError
from labelchef.services.labelling.votes import cast_vote
from labelchef.services.workspace import open_workspace
with open_workspace(Path(sys.argv[1])) as ws:
    print("ready", flush=True)
    for line in sys.stdin:
        item = line.strip()
        try:
            cast_vote(ws, "small", "ann", item, 1, request_id=f"r{item}")
            print("stored", flush=True)
        except StoreError as error:
            print(error.code, flush=True)
"""


class Voter:
    """Another process that stores a vote a line and says what became of it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._in, self._out = process, process.stdin, process.stdout
        assert self._out.readline() == "ready\n"

    def vote(self, item: str) -> str:
        self._in.write(f"{item}\n")
        self._in.flush()
        return self._out.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def voting(home: Path) -> Iterator[Voter]:
    command = [sys.executable, "-c", VOTER, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield Voter(process)
        finally:
            process.kill()


def stored_votes(home: Path) -> set[str]:
    with open_workspace(home) as ws, ws.reading() as connection:
        return set(connection.execute(sa.text("SELECT request_id FROM vote WHERE person = 'ann'")).scalars())


def batch_of_four(home: Path) -> list[str]:
    with open_workspace(home) as ws:
        return [task.item for task in tasks(ws, make(ws, batch_size=4), "ann", 4)]


@pytest.mark.parametrize(
    ("lost", "how"),
    [(["-wal"], "removed"), (["-wal", "-shm"], "removed"), (["-wal"], "renamed"), (["-shm"], "renamed")],
)
def test_nothing_that_was_acknowledged_is_lost_with_the_log(tmp_path: Path, lost: list[str], how: str) -> None:
    """SQLite goes on writing to a log whose name is gone, and a SIGKILL loses all of it."""
    items = batch_of_four(tmp_path)
    with voting(tmp_path) as voter:
        assert voter.vote(items[0]) == "stored"
        for suffix in lost:
            path = tmp_path / f"labelchef.db{suffix}"
            path.unlink() if how == "removed" else path.rename(tmp_path / f"kept{suffix}")
        acknowledged = [items[0], *(item for item in items[1:] if voter.vote(item) == "stored")]
        voter.kill()
    assert {f"r{item}" for item in acknowledged} <= stored_votes(tmp_path)
    with closing(sqlite3.connect(tmp_path / "labelchef.db")) as direct:
        assert direct.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_loss_of_the_log_is_said_and_the_next_request_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_workspace(tmp_path) as ws:
        campaign = make(ws, batch_size=4)
        items = [task.item for task in tasks(ws, campaign, "ann", 4)]
        cast_vote(ws, campaign, "ann", items[0], 0)

        def vote_while_it_vanishes() -> None:
            with ws.writing() as connection:
                connection.execute(sa.text("UPDATE campaign SET message = 'x'"))
                (tmp_path / "labelchef.db-wal").unlink()

        with pytest.raises(StoreError, match="Try again") as refused:
            vote_while_it_vanishes()
        assert refused.value.code == "log_gone"
        with caplog.at_level(logging.ERROR, logger="labelchef"):
            cast_vote(ws, campaign, "ann", items[1], 0)
        assert "copied into the database" in caplog.text
        assert status(ws, campaign).people[0].votes == 2


def test_a_log_that_another_process_began_anew_is_left_alone(tmp_path: Path) -> None:
    items = batch_of_four(tmp_path)
    with voting(tmp_path) as voter:
        assert voter.vote(items[0]) == "stored"
        for suffix in ("-wal", "-shm"):
            (tmp_path / f"labelchef.db{suffix}").unlink()
        with closing(sqlite3.connect(tmp_path / "labelchef.db")) as direct:
            direct.execute("UPDATE campaign SET name = 'new'")
            direct.commit()
            assert voter.vote(items[1]) == "log_gone"
            assert voter.vote(items[2]) == "log_gone"
            voter._in.close()  # it ends by itself, and must not write its old log over the new one
            assert voter.process.wait() == 0
            assert direct.execute("SELECT name FROM campaign").fetchall() == [("new",)]
        with closing(sqlite3.connect(tmp_path / "labelchef.db")) as direct:
            assert direct.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert direct.execute("SELECT name FROM campaign").fetchall() == [("new",)]


def test_a_log_that_was_emptied_acknowledges_nothing_more(tmp_path: Path) -> None:
    items = batch_of_four(tmp_path)
    with voting(tmp_path) as voter:
        assert voter.vote(items[0]) == "stored"
        os.truncate(tmp_path / "labelchef.db-wal", 0)
        assert "stored" not in [voter.vote(item) for item in items[1:]]


def test_a_database_that_was_replaced_acknowledges_nothing(tmp_path: Path) -> None:
    items = batch_of_four(tmp_path)
    with voting(tmp_path) as voter:
        assert voter.vote(items[0]) == "stored"
        (tmp_path / "copy.db").write_bytes((tmp_path / "labelchef.db").read_bytes())
        (tmp_path / "copy.db").replace(tmp_path / "labelchef.db")
        assert voter.vote(items[1]) == "database_gone"
