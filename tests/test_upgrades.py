"""Upgrades: databases of earlier versions, with data in them, on both kinds of database, opened by several processes at once."""

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from labelchef.domain.errors import StoreError
from labelchef.services.trained import replay
from labelchef.services.workspace import Workspace, open_workspace
from labelchef.store import schema
from tests.store_support import as_version_0202, label_all, make, undeclared

_OPEN = """
import sys
from pathlib import Path
from labelchef.services.workspace import open_workspace
sys.stdin.readline()
with open_workspace(Path(sys.argv[1]), sys.argv[2] or None) as ws, ws.reading() as connection:
    print(connection.exec_driver_sql("SELECT count(*) FROM vote").scalar())
"""


def bring_back(ws: Workspace, version: str) -> None:
    """Make the schema of a workspace that of an earlier version; its rows stay, but for tables that were not there."""
    with ws.writing() as connection:
        as_version_0202(connection)
    if version == "0202_votes_needed":
        return
    with ws.writing() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema.__file__).with_name("migrations")))
        config.attributes["connection"] = connection
        command.upgrade(config, version)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0202_votes_needed", "0303_care"])
def test_processes_that_open_an_old_database_at_once_change_it_once(
    tmp_path: Path, database: str | None, version: str
) -> None:
    home = tmp_path / "home"
    with open_workspace(home, database) as ws:
        campaign = make(ws, people=1)
        label_all(ws, campaign, "ann")
        bring_back(ws, version)
        assert schema.standing_of(ws.database).current == version
    words = [sys.executable, "-c", _OPEN, str(home), database or ""]
    started = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in started:  # all of them are waiting for this line by now, or will be soon
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        out, wrong = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, "4"), wrong
    with open_workspace(home, database) as ws:
        with ws.reading() as connection:
            assert undeclared(connection) == []
            assert connection.execute(sa.text("SELECT count(*) FROM alembic_version")).scalar() == 1
        assert replay(ws, campaign).agrees
        label_all(ws, campaign, "ann")
        with pytest.raises(StoreError, match="appended"), ws.writing() as connection:
            connection.execute(sa.text("DELETE FROM vote"))


def test_an_old_program_refuses_a_newer_database_and_changes_nothing(ws: Workspace) -> None:
    make(ws)
    with ws.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999_later'"))
    with pytest.raises(
        StoreError, match=r"of a later version of labelchef \(9999_later\); install that version"
    ) as refused:
        schema.migrate(ws.database)
    assert refused.value.code == "schema"
    with ws.reading() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "9999_later"
        assert undeclared(connection) == []


def test_a_migration_that_fails_leaves_the_database_as_it_was(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    make(ws)
    bring_back(ws, "0202_votes_needed")

    def fail(_dialect: str) -> list[str]:
        raise RuntimeError("in the middle")

    with monkeypatch.context() as failing:
        failing.setattr(schema, "guards", fail)
        with pytest.raises(RuntimeError):
            schema.migrate(ws.database)
    assert schema.standing_of(ws.database).current == "0202_votes_needed"
    with ws.reading() as connection:
        assert not sa.inspect(connection).has_table("job"), "tables that were made are gone again"
    schema.migrate(ws.database)
    with ws.reading() as connection:
        assert undeclared(connection) == []
