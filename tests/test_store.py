"""The database: schema, ledger, locks, and what is said when it cannot be used."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from labelchef.base.campaigns import CampaignState
from labelchef.base.errors import MissingExtraError, StoreError
from labelchef.server.campaigns import guidelines
from labelchef.server.campaigns.campaigns import list_campaigns, status
from labelchef.server.campaigns.trained import replay
from labelchef.server.labelling import discussions
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.store import database as module
from labelchef.server.store.arrays import read_array, write_array
from labelchef.server.store.database import AdvisoryLock, open_database
from labelchef.server.store.schema import prepare
from labelchef.server.store.tables import LEDGER_TABLES
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import PostgresServer, gold_data, label_all, make, tasks

SCHEMA = Path(__file__).parent / "schemas" / "0312_imported.sql"
"""What labelchef 0.2 makes in a new file, as SQLite tells it."""


def test_a_new_database_is_that_of_the_version_it_names(tmp_path: Path) -> None:
    """If this fails, tables changed: databases of users need a step in `server.store.schema`, and the schema another name."""
    open_workspace(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "labelchef.db")) as made:
        found = made.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'item_text\\__%' ESCAPE '\\'"
        )
        told = sorted(f"{sql};" for (sql,) in found)
        assert made.execute("SELECT version_num FROM alembic_version").fetchall() == [(SCHEMA.stem,)]
    assert "\n".join(told) + "\n" == SCHEMA.read_text()


def test_a_database_of_this_version_opens_as_it_is(tmp_path: Path, database: str | None) -> None:
    with open_workspace(tmp_path, database) as ws:
        slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=1)
    with open_workspace(tmp_path, database) as ws:
        assert replay(ws, slug).agrees
        label_all(ws, slug, "ann", rounds=1)
        with pytest.raises(StoreError, match="appended"), ws.writing() as connection:
            connection.execute(sa.text("DELETE FROM vote"))


def test_processes_that_open_a_new_database_at_once_make_it_once(tmp_path: Path, postgres: PostgresServer) -> None:
    for url in (tmp_path / "labelchef.db", postgres.new_database()):
        databases = [open_database(url) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(prepare, databases))
        with databases[0].reading() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM alembic_version")).scalar() == 1
        for database in databases:
            database.close()


def test_the_ledger_is_append_only(ws: Workspace) -> None:
    campaign = make(ws, data=gold_data(), gold_share=0.5, blind_share=0.5)
    label_all(ws, campaign, "ann")
    guidelines.write(ws, campaign, "lead", {None: "Read all of it."})
    discussions.add(ws, campaign, "lead", "1", "Is this one right?", lead=True)
    for table in LEDGER_TABLES:
        with ws.reading() as connection:
            rows = connection.execute(sa.text(f"SELECT * FROM {table}")).all()
            column = connection.execute(sa.text(f"SELECT * FROM {table}")).keys()
        assert rows
        last = list(column)[-1]
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET {last} = {last}"):
            with pytest.raises(StoreError, match="appended") as refused, ws.writing() as connection:
                connection.execute(sa.text(statement))
            assert refused.value.code == "append_only"
        with ws.reading() as connection:
            assert connection.execute(sa.text(f"SELECT * FROM {table}")).all() == rows


def test_a_reader_cannot_write(ws: Workspace) -> None:
    with pytest.raises(StoreError), ws.reading() as connection:
        connection.execute(sa.text("DELETE FROM account"))


def test_a_failed_transaction_leaves_nothing(ws: Workspace) -> None:
    campaign = make(ws)
    before = status(ws, campaign)

    def fail() -> None:
        with ws.writing() as connection:
            connection.execute(sa.text("UPDATE campaign SET name = 'half'"))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    assert status(ws, campaign).summary == before.summary


def test_sqlite_waits_for_the_disk_and_has_one_writer(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        with ws.writing() as connection:
            found = [connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "synchronous")]
            assert found == ["wal", 2]
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        with ws.writing(lasting=False) as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
        with ws.writing() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        inside, most = 0, 0
        guard = threading.Lock()

        def write() -> None:
            nonlocal inside, most
            for _ in range(20):
                with ws.writing() as connection:
                    with guard:
                        inside += 1
                        most = max(most, inside)
                    connection.execute(sa.text("UPDATE campaign SET name = name"))
                    with guard:
                        inside -= 1

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1


def test_a_database_locked_by_another_process_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.2)
    with open_workspace(tmp_path) as ws:
        other = sqlite3.connect(tmp_path / "labelchef.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process holds the database") as refused, ws.writing():
            pass
        assert refused.value.code == "locked"
        assert list_campaigns(ws) == []  # readers are not kept waiting
        other.execute("ROLLBACK")
        other.close()
        with ws.writing():
            pass


def test_a_database_that_vanished_takes_no_votes(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        campaign = make(ws)
        item = tasks(ws, campaign, "ann")[0].item
        (tmp_path / "labelchef.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreError, match="moved, deleted or replaced") as refused:
            cast_vote(ws, campaign, "ann", item, 0)
        assert refused.value.code == "database_gone"
        (tmp_path / "elsewhere.db").rename(tmp_path / "labelchef.db")
        cast_vote(ws, campaign, "ann", item, 0)


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        campaign = make(ws)
        item = tasks(ws, campaign, "ann")[0].item
        with ws.reading() as connection:
            pages = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
        ws.database.close()

        def small(connection: sqlite3.Connection, _record: object) -> None:
            connection.execute(f"PRAGMA max_page_count={pages}")

        sa.event.listen(ws.database.engine, "connect", small)

        def vote_on() -> None:
            for _ in range(200):
                cast_vote(ws, campaign, "ann", item, 0, note="x" * 4000)

        with pytest.raises(StoreError, match="disk is full") as refused:
            vote_on()
        assert refused.value.code == "disk_full"
        sa.event.remove(ws.database.engine, "connect", small)
        ws.database.close()
        votes = status(ws, campaign).people[0].votes
        assert votes <= 1
        cast_vote(ws, campaign, "ann", item, 1)


def test_a_damaged_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "labelchef.db").write_bytes(b"rubbish" * 1000)
    with pytest.raises(StoreError, match="damaged"):
        open_workspace(tmp_path)


def test_a_database_of_another_kind_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "labelchef.db")
    connection.execute("CREATE TABLE recipes (id INTEGER)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="did not make"):
        open_workspace(tmp_path)
    with open_workspace(tmp_path / "new") as ws, ws.writing() as write:
        write.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"later version of labelchef \(9999\); install that version") as refused:
        open_workspace(tmp_path / "new")
    assert refused.value.code == "schema"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0001", r"made by labelchef 0\.1 .* Export .* with labelchef 0\.1, or start"),
        ("0303_care", r"0\.2 before its release \(0303_care\) .* Export .* with the version that made it, or start"),
    ],
)
def test_a_database_of_a_version_before_is_refused_and_stays_as_it_is(tmp_path: Path, version: str, words: str) -> None:
    connection = sqlite3.connect(tmp_path / "labelchef.db")
    connection.executescript(
        f"CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL); INSERT INTO alembic_version VALUES ('{version}');"
        "CREATE TABLE campaign (id INTEGER); INSERT INTO campaign VALUES (7);"
    )
    with pytest.raises(StoreError, match=words) as refused:
        open_workspace(tmp_path)
    assert refused.value.code == "schema"
    assert connection.execute("SELECT id FROM campaign").fetchall() == [(7,)]
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert {name for (name,) in tables} == {"alembic_version", "campaign"}
    connection.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [("mysql://x/y", "not supported"), ("nonsense", "no address"), ("sqlite://", "not supported")],
)
def test_addresses_that_are_none(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        open_workspace(tmp_path, url)


def test_a_server_that_is_down_is_said_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not answer") as refused:
        open_workspace(tmp_path, f"postgresql://me:secret@/x?unix_sock={tmp_path}/none")
    assert "secret" not in str(refused.value)


def test_a_server_that_goes_away_and_comes_back(tmp_path: Path, postgres: PostgresServer) -> None:
    with open_workspace(tmp_path, postgres.new_database()) as ws:
        campaign = make(ws)
        item = tasks(ws, campaign, "ann")[0].item
        cast_vote(ws, campaign, "ann", item, 0)
        postgres.stop()
        try:
            with pytest.raises(StoreError):
                cast_vote(ws, campaign, "ann", item, 1)
        finally:
            postgres.start()
        assert status(ws, campaign).people[0].votes == 1
        cast_vote(ws, campaign, "ann", item, 1)


def test_a_connection_that_breaks_before_its_first_statement(tmp_path: Path, postgres: PostgresServer) -> None:
    """Found by `make torture`: the driver's own error came through, as a 500, or as the end of the worker."""
    with open_workspace(tmp_path, postgres.new_database()) as ws:
        campaign, broken = make(ws), [True]
        name = ws.database.engine.url.database

        @sa.event.listens_for(ws.database.engine, "checkout")
        def end(*_: object) -> None:
            if broken[0]:
                postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

        uses: tuple[Callable[[], object], ...] = (
            lambda: status(ws, campaign),
            lambda: cast_vote(ws, campaign, "ann", "0", 0),
            AdvisoryLock(ws.database, 1).take,
        )
        for use in uses:
            with pytest.raises(StoreError, match=r"nothing was stored|no worker can run") as told:
                use()
            assert told.value.code == "database_down"
        broken[0] = False
        assert status(ws, campaign).summary.state == CampaignState.RUNNING


def test_a_home_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used as a workspace"):
        open_workspace(tmp_path / "file")


def test_arrays_are_whole_and_checked(tmp_path: Path) -> None:
    facts = write_array(tmp_path, "x", np.arange(12.0).reshape(3, 4))
    assert (facts.dtype, facts.shape) == ("float64", (3, 4))
    assert read_array(tmp_path, facts)[2, 3] == 11.0
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-1] + b"x")
    with pytest.raises(StoreError, match="digest") as refused:
        read_array(tmp_path, facts)
    assert refused.value.code == "array_digest"
    (tmp_path / "x.npy").unlink()
    with pytest.raises(StoreError, match="is missing"):
        read_array(tmp_path, facts)
    with pytest.raises(StoreError, match="cannot be written"):
        write_array(tmp_path / "nowhere", "x", np.zeros(1))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None; sys.modules['pg8000'] = None\n"
        "import labelchef, labelchef.cli.main, labelchef.loop.clean\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    import importlib.util

    real = importlib.util.find_spec
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == "sqlalchemy" else real(name))
        with pytest.raises(MissingExtraError, match=r"labelchef\[serve\]"):
            open_workspace(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pg8000", None)
        with pytest.raises(MissingExtraError, match=r"labelchef\[postgres\]"):
            open_database("postgresql://x@/y")


def test_a_broken_connection_is_told_as_a_database_that_is_down(tmp_path: Path) -> None:
    database = open_database(tmp_path / "x.db")
    with pytest.raises(StoreError, match="broke the connection") as caught, database.writing():
        raise ConnectionResetError(104, "Connection reset by peer")
    assert caught.value.code == "database_down"
    database.close()


def test_a_text_with_pool_in_it_is_no_database_that_is_down(tmp_path: Path) -> None:
    database = open_database(tmp_path / "x.db")
    told = []
    for error in (
        sa.exc.IntegrityError("INSERT", {}, Exception("Key (name)=(Ann of Liverpool) is there already")),
        sa.exc.TimeoutError("QueuePool limit of size 5 overflow 10 reached, connection timed out"),
    ):
        with pytest.raises(StoreError) as caught, database.writing():
            raise error
        told.append(caught.value.code)
    assert told == ["database", "database_down"]
    database.close()
