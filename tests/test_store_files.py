"""The files of a workspace under a running server: taken away, emptied, left behind, read by others; real processes, SIGKILL."""

import contextlib
import io
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

from labelchef.base.campaigns import CampaignState
from labelchef.base.errors import StoreError
from labelchef.base.files import whole_file
from labelchef.base.settings import Settings
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import create_campaign, resume, status, summary
from labelchef.server.campaigns.trained import lease_name, replay, step
from labelchef.server.intake import folders
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.worker import Worker, advance
from labelchef.server.workspace import Workspace, clear_leftovers, open_workspace
from tests.store_support import make, small_data, tasks, wait_until

ROOT = Path(__file__).parent.parent
VOTER = """
import sys
from pathlib import Path
from labelchef.base.errors import StoreError
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.workspace import open_workspace
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

    def end(self) -> None:
        self._in.close()
        assert self.process.wait() == 0

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


def folder_of(ws: Workspace, campaign: str) -> Path:
    return ws.home / "campaigns" / summary(ws, campaign).id


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
def test_a_lost_log_is_refused_for_good_and_an_ordinary_end_keeps_what_was_acknowledged(
    tmp_path: Path, lost: list[str], how: str
) -> None:
    """SQLite would go on writing to a log whose name is gone, and a SIGKILL would lose all of it."""
    items = batch_of_four(tmp_path)
    with voting(tmp_path) as voter:
        assert voter.vote(items[0]) == "stored"
        for suffix in lost:
            path = tmp_path / f"labelchef.db{suffix}"
            path.unlink() if how == "removed" else path.rename(tmp_path / f"kept{suffix}")
        assert [voter.vote(item) for item in items[1:]] == ["log_gone"] * 3
        voter.end()
    assert stored_votes(tmp_path) == {f"r{items[0]}"}
    with closing(sqlite3.connect(tmp_path / "labelchef.db")) as direct:
        assert direct.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_log_that_was_moved_is_put_back_after_a_kill(tmp_path: Path) -> None:
    items = batch_of_four(tmp_path)
    with voting(tmp_path) as voter:
        assert voter.vote(items[0]) == "stored"
        log = (tmp_path / "labelchef.db-wal").rename(tmp_path / "kept")
        assert voter.vote(items[1]) == "log_gone"
        voter.kill()
    log.rename(tmp_path / "labelchef.db-wal")
    assert stored_votes(tmp_path) == {f"r{items[0]}"}


def test_the_loss_of_the_log_is_said_with_what_to_do(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        campaign = make(ws, batch_size=4)
        items = [task.item for task in tasks(ws, campaign, "ann", 4)]
        cast_vote(ws, campaign, "ann", items[0], 0)

        def vote_while_it_vanishes() -> None:
            with ws.writing() as connection:
                connection.execute(sa.text("UPDATE campaign SET message = 'x'"))
                (tmp_path / "labelchef.db-wal").unlink()

        for attempt in (vote_while_it_vanishes, lambda: status(ws, campaign)):
            with pytest.raises(StoreError, match=r"db-wal was moved.*Stop every.*restore the last backup") as refused:
                attempt()
            assert refused.value.code == "log_gone"
    with open_workspace(tmp_path) as ws:
        assert status(ws, campaign).people[0].votes == 1
        assert summary(ws, campaign).message != "x"


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
            voter.end()  # it must not write its old log over the new one
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


def test_a_database_of_no_bytes_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "labelchef.db").touch()
    with pytest.raises(StoreError, match=r"0 bytes.*Restore it from a copy") as refused:
        open_workspace(tmp_path / "empty")
    assert refused.value.code == "database_empty"
    assert (tmp_path / "empty" / "labelchef.db").stat().st_size == 0
    with pytest.raises(StoreError, match="remove the file"):
        open_workspace(tmp_path / "other", f"sqlite:///{tmp_path / 'empty' / 'labelchef.db'}")
    (tmp_path / "empty" / "labelchef.db").unlink()
    open_workspace(tmp_path / "empty").close()


def test_a_home_with_campaigns_and_no_database_does_not_begin_anew(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        make(ws)
    kept = (tmp_path / "labelchef.db").rename(tmp_path / "kept")
    with pytest.raises(StoreError, match=r"holds campaigns.*--database") as refused:
        open_workspace(tmp_path)
    assert refused.value.code == "database_empty"
    assert not (tmp_path / "labelchef.db").exists()
    with closing(sqlite3.connect(tmp_path / "labelchef.db")) as direct:
        direct.execute("PRAGMA journal_mode=WAL")  # a database without a table
    with pytest.raises(StoreError, match="missing or empty"):
        open_workspace(tmp_path)
    kept.replace(tmp_path / "labelchef.db")
    with open_workspace(tmp_path) as ws:
        assert status(ws, "small").open_round is not None


def rights(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_only_the_owner_reads_a_workspace(tmp_path: Path, usual_umask: None) -> None:
    home = tmp_path / "home"
    with open_workspace(home) as ws:
        make(ws)
        intake = folders.new_folder(ws)
        folders.keep(home / "intakes" / intake / "files", [("a.csv", io.BytesIO(b"id"))])
        with ws.leases.holding("campaign:x"):
            found = {path.relative_to(home): rights(path) for path in [home, *home.rglob("*")]}
    assert len(found) > 10
    assert {str(path): mode for path, mode in found.items() if int(mode, 8) & 0o077} == {}


def test_an_older_home_is_closed_to_others_and_it_is_said_once(
    tmp_path: Path, usual_umask: None, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    with open_workspace(home) as ws:
        make(ws)
    for path, mode in ((home, 0o755), (home / "campaigns", 0o755), (home / "labelchef.db", 0o644)):
        path.chmod(mode)
    for _ in range(2):
        open_workspace(home).close()
    assert [rights(path) for path in (home, home / "campaigns", home / "labelchef.db")] == ["0o700", "0o700", "0o600"]
    assert caplog.text.count("other users of this machine could read") == 1
    (home / "notes.txt").write_text("of the user")
    home.chmod(0o755)
    open_workspace(home).close()
    assert rights(home) == "0o755", "a folder that holds more than a workspace is the user's"


MAKER = """
import os, signal, sys
from pathlib import Path
from labelchef.base.settings import Settings
from labelchef.server.campaigns.campaigns import create_campaign
from labelchef.server.workspace import open_workspace
from labelchef.server.store import arrays
from tests.store_support import small_data
save = arrays.np.save
def wait(stream, *given, **more):
    save(stream, *given, **more)
    stream.flush()
    print("half", flush=True)
    signal.pause()
arrays.np.save = wait
with open_workspace(Path(sys.argv[1])) as ws:
    create_campaign(ws, "Half", small_data(), Settings(), "lead")
"""


def test_what_killed_processes_left_is_deleted_and_what_living_ones_write_is_not(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        campaign = folder_of(ws, make(ws))
        old = [
            campaign / ".features.npy.abcd1234",
            tmp_path / ".labelchef.db.a_b1c2d3",
            tmp_path / "labelchef-upload-x",
        ]
        for path in old[:2]:
            path.write_bytes(b"half")
        old[2].mkdir()
        (old[2] / "big.csv").write_text("half")
        before = {path.name for path in campaign.iterdir() if path not in old}
        command = [sys.executable, "-c", MAKER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as maker:
            assert maker.stdout is not None
            assert maker.stdout.readline() == "half\n"
            (half,) = (tmp_path / "campaigns").glob(".new-*")
            with whole_file(campaign / "own.npy") as stream:
                stream.write(b"whole")
                assert clear_leftovers(ws) == len(old)
            assert (campaign / "own.npy").read_bytes() == b"whole"
            assert half.is_dir(), "a living process makes it"
            maker.kill()
            maker.wait()
        with Worker(ws):
            wait_until(lambda: not half.exists())
        left = {path.name for path in campaign.iterdir()}
        assert {name for name in left if name.startswith(".")} == set()
        assert before <= left
        assert not any(path.exists() for path in old)


def test_a_deleted_lock_file_costs_work_and_nothing_else(tmp_path: Path) -> None:
    """Another process takes the holder for dead: the fence refuses what the first one writes later."""
    with open_workspace(tmp_path) as one, open_workspace(tmp_path) as two:
        campaign = make(one, batch_size=1)
        row = find(one, campaign)
        found = status(one, campaign).open_round
        assert found is not None
        with one.leases.holding(lease_name(row)) as lease:
            assert two.leases.take(lease_name(row)) is None
            (tmp_path / f"labelchef.db.worker-{one.leases.life}.lock").unlink()
            for one_item in found.items:
                cast_vote(one, campaign, "ann", one_item.item, 0)
            taken = two.leases.take(lease_name(row))
            assert taken is not None
            assert taken.fence == lease.fence + 1
            before = status(one, campaign)
            step(one, campaign, lease)
            assert status(one, campaign) == before, "refused"
            assert step(two, campaign, taken)
            assert status(one, campaign) != before


def flip(path: Path) -> None:
    """Change one bit in the middle of a file, as a failing disk does."""
    with path.open("r+b") as stream:
        stream.seek(path.stat().st_size // 2)
        (byte,) = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))


def test_a_bit_that_flips_under_a_running_worker_fails_the_campaign_and_nothing_is_lost(tmp_path: Path) -> None:
    """The features are mapped into memory: without a check, the next model would be computed from what the disk says now."""
    with open_workspace(tmp_path) as ws:
        campaign = make(ws, batch_size=2)
        features = folder_of(ws, campaign) / "features.npy"
        whole = features.read_bytes()
        for task in tasks(ws, campaign, "ann", 2):
            cast_vote(ws, campaign, "ann", task.item, 0)
        flip(features)
        with Worker(ws):
            wait_until(lambda: summary(ws, campaign).state == CampaignState.FAILED)
        assert "features.npy is not the file that was stored" in summary(ws, campaign).message
        assert status(ws, campaign).people[0].votes == 2
        features.write_bytes(whole)
        resume(ws, campaign, "lead")
        advance(ws, campaign)
        assert summary(ws, campaign).spent == 2
        assert replay(ws, campaign).agrees


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A disk of 2 MiB, where this user may make one."""
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, check=False
    ).returncode:
        pytest.skip("no small disk can be made here")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_full_loses_nothing_and_the_campaign_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as home, open_workspace(home) as ws:
        campaign = make(ws, batch_size=2)
        items = [task.item for task in tasks(ws, campaign, "ann", 2)]
        cast_vote(ws, campaign, "ann", items[0], 0)
        full = home / "full"
        with contextlib.suppress(OSError), full.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))

        def vote_on() -> None:
            for k in range(200):
                cast_vote(ws, campaign, "ann", items[0], k % 3, note="x" * 4000)

        with pytest.raises(StoreError) as refused:
            vote_on()
        assert refused.value.code == "disk_full"
        with pytest.raises(StoreError) as refused:
            create_campaign(ws, "Other", small_data(), Settings(), "lead")
        assert refused.value.code == "disk_full"
        assert len(list((home / "campaigns").iterdir())) == 1, "nothing is left of a campaign that could not be made"
        full.unlink()
        cast_vote(ws, campaign, "ann", items[0], 0)
        cast_vote(ws, campaign, "ann", items[1], 0)
        advance(ws, campaign)
        assert summary(ws, campaign).spent == 2
        assert replay(ws, campaign).agrees
