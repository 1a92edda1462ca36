"""A backup of a workspace that is in use, and its restore: on both kinds of database, with kills, damage and full disks."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from labelchef.base.errors import ConflictError, InvalidInputError, StoreError
from labelchef.cli.main import app
from labelchef.server import backup as module
from labelchef.server.backup import backup, check_backup, restore_backup
from labelchef.server.campaigns.campaigns import list_campaigns, status, summary
from labelchef.server.campaigns.trained import replay
from labelchef.server.export.proof import write_ledger
from labelchef.server.export.verifying import verify_ledger
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.people import accounts
from labelchef.server.store import dump
from labelchef.server.store.database import open_database
from labelchef.server.store.schema import standing_of
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import PostgresServer, gold_data, label_all, make, tasks, truth_of
from tests.test_store_files import small_disk

PASSWORD = "a long enough password"


def rows_of(ws: Workspace) -> dict[str, bytes]:
    """All rows, by table."""
    found: dict[str, bytes] = {}
    with ws.reading() as connection:
        for chunk in dump.dump(connection):
            found[chunk.table] = found.get(chunk.table, b"") + chunk.lines
    return found


def filled(ws: Workspace) -> str:
    """Two campaigns, one of them under way, people, gold and a vote that was not counted yet."""
    accounts.create_account(ws, "lead", "lead", PASSWORD)
    make(ws, "Other")
    campaign = make(ws, data=gold_data(), gold_share=0.5, blind_share=0.5)
    label_all(ws, campaign, "ann", rounds=2)
    cast_vote(ws, campaign, "ann", tasks(ws, campaign, "ann")[0].item, 1)
    return campaign


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_restored_workspace_is_the_same_and_goes_on(
    ws: Workspace, tmp_path: Path, postgres: PostgresServer, kind: str
) -> None:
    """From each kind of database to each kind."""
    campaign, out = filled(ws), tmp_path / "kept.tar.gz"
    before = rows_of(ws)
    made = backup(ws, out)
    assert out.stat().st_mode & 0o077 == 0
    assert check_backup(out).rows == made.rows
    url = postgres.new_database() if kind == "postgres" else None
    restored = restore_backup(out, tmp_path / "restored", url)
    assert (restored.campaigns, restored.rows, restored.files) == (2, made.rows, made.files)
    with open_workspace(tmp_path / "restored", url) as other:
        assert rows_of(other) == before
        assert replay(other, campaign).agrees
        ledger = write_ledger(other, campaign, tmp_path / "ledger.jsonl")
        assert verify_ledger(ledger.path).intact
        assert accounts.sign_in(other, "lead", PASSWORD, address="x").account.name == "lead"
        votes = status(other, campaign).people[0].votes
        item = tasks(other, campaign, "ann")[0].item
        cast_vote(other, campaign, "ann", item, int(truth_of(90)[int(item)]))
        assert status(other, campaign).people[0].votes == votes + 1, "ids count on"
        label_all(other, "other", "bob", "cid", "dan")
        assert replay(other, "other").agrees
    assert not list((tmp_path / "restored").glob(".*")), "nothing is left of the restore"


def test_people_vote_and_rounds_close_while_it_is_made(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, budget=40, batch_size=2, people=1)
    over, wrong = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not over.is_set() and status(ws, campaign).summary.spent < 38:
                label_all(ws, campaign, "ann")
        except BaseException as error:
            wrong.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for k in range(3):
            out = tmp_path / f"{k}.tar"
            backup(ws, out)
            restore_backup(out, tmp_path / f"home{k}")
            with open_workspace(tmp_path / f"home{k}") as other:
                assert replay(other, campaign).agrees
    finally:
        over.set()
        worker.join()
    assert not wrong, wrong


def test_a_backup_holds_one_moment(ws: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vote that comes while rows are read is not in it, in no table."""
    campaign = make(ws, people=1)
    item = tasks(ws, campaign, "ann")[0].item
    before, real = rows_of(ws), dump.dump

    def slow(connection: sa.Connection) -> Iterator[dump.Chunk]:
        found = real(connection)
        yield next(found)
        cast_vote(ws, campaign, "ann", item, 0)
        yield from found

    monkeypatch.setattr(dump, "dump", slow)
    backup(ws, tmp_path / "x.tar")
    monkeypatch.undo()
    restore_backup(tmp_path / "x.tar", tmp_path / "restored")
    with open_workspace(tmp_path / "restored") as other:
        assert rows_of(other) == before
    assert rows_of(ws) != before


def packed(tmp_path: Path) -> Path:
    with open_workspace(tmp_path / "home") as ws:
        make(ws)
        backup(ws, tmp_path / "whole.tar")
    return tmp_path / "whole.tar"


def changed(path: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The same tar with some members changed or left out."""
    out = path.with_name("changed.tar")
    with tarfile.open(path) as old, tarfile.open(out, "w") as new:
        for entry in old:
            stream = old.extractfile(entry)
            assert stream is not None
            content = change(entry.name, stream.read())
            if content is not None:
                entry.size = len(content)
                new.addfile(entry, io.BytesIO(content))
    return out


def test_what_was_altered_or_cut_off_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    whole = packed(tmp_path)
    size = whole.stat().st_size
    damaged: dict[str, Path] = {}
    for share in (0, 0.3, 0.6, 0.8):
        damaged[f"cut at {share}"] = cut = tmp_path / f"cut{share}.tar"
        cut.write_bytes(whole.read_bytes()[: int(size * share)])
    zipped = gzip.compress(whole.read_bytes())
    for name, content in {
        "zip cut": zipped[:-2000],
        "zip bit": zipped[:9000] + b"\xff" + zipped[9001:],
        "text": b"x" * 2000,
    }.items():
        damaged[name] = tmp_path / name
        damaged[name].write_bytes(content)
    changes: dict[str, Callable[[str, bytes], bytes | None]] = {
        "vote": lambda name, old: old.replace(b"Small", b"Smell") if name.startswith("tables/campaign") else old,
        "array": lambda name, old: old[:-1] + b"\x01" if name.endswith("features.npy") else old,
        "left out": lambda name, old: None if name.endswith("features.npy") else old,
        "no end": lambda name, old: None if name == "end.json" else old,
        "no digests": lambda name, old: None if name.startswith("digests") else old,
        "other digests": lambda name, old: b"{}" if name.startswith("digests") else old,
        "no rows": lambda name, old: None if name.startswith("tables/item") else old,
        "format": lambda name, old: old.replace(b'"format": 1', b'"format": 9') if name == "manifest.json" else old,
    }
    for name, change in changes.items():
        made = changed(whole, change)
        damaged[name] = made.rename(tmp_path / f"{name}.tar")
    for name, path in damaged.items():
        uses: tuple[Callable[[Path], object], ...] = (
            check_backup,
            lambda path: restore_backup(path, tmp_path / "restored"),
        )
        for use in uses:
            with pytest.raises(InvalidInputError, match="cannot be used as a backup") as refused:
                use(path)
            assert refused.value.code == "backup", name
        assert not list((tmp_path / "restored").glob("*")), name
    restore_backup(whole, tmp_path / "restored")


@pytest.mark.parametrize(
    "name",
    [
        "files/campaigns/../../../evil",
        "/etc/evil",
        "files/other",
        "files/.x",
        "files/campaigns/.x/media/y",
        "files/campaigns/x/media/../../y",
        "tables/sqlite_master/0.jsonl",
    ],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    whole = packed(tmp_path)
    with tarfile.open(whole) as old, tarfile.open(tmp_path / "evil.tar", "w") as new:
        first = old.next()
        assert first is not None
        new.addfile(first, old.extractfile(first))
        entry = tarfile.TarInfo(name)
        entry.size = 1
        new.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(InvalidInputError, match="which no backup does"):
        restore_backup(tmp_path / "evil.tar", tmp_path / "restored")


def test_another_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    def older(name: str, old: bytes) -> bytes:
        return (
            json.dumps(json.loads(old) | {"schema": "0202_votes_needed"}).encode() if name == "manifest.json" else old
        )

    path = changed(packed(tmp_path), older)
    with pytest.raises(InvalidInputError, match=r"Restore it with labelchef \d") as refused:
        restore_backup(path, tmp_path / "restored")
    assert refused.value.code == "backup_schema"


def test_only_what_is_empty_is_filled(tmp_path: Path, postgres: PostgresServer) -> None:
    whole, url = packed(tmp_path), postgres.new_database()
    with pytest.raises(ConflictError, match="not empty") as refused:
        restore_backup(whole, tmp_path / "home")
    assert refused.value.code == "not_empty"
    with open_workspace(tmp_path / "pg", url) as ws:
        accounts.create_account(ws, "lead", "lead", PASSWORD)
    with pytest.raises(ConflictError, match="the database is not empty"):
        restore_backup(whole, tmp_path / "restored", url)
    assert not any((tmp_path / "restored").iterdir())
    with open_workspace(tmp_path / "pg", url) as ws:
        assert list_campaigns(ws) == []
        assert accounts.has_lead(ws)


def test_a_database_of_an_earlier_version_is_refused_and_not_changed(tmp_path: Path, postgres: PostgresServer) -> None:
    whole, url = packed(tmp_path), postgres.new_database()
    with open_workspace(tmp_path / "pg", url) as ws, ws.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0202_votes_needed'"))
    with pytest.raises(StoreError, match=r"before its release .0202_votes_needed.*start with a new") as refused:
        restore_backup(whole, tmp_path / "restored", url)
    assert refused.value.code == "schema"
    assert not any((tmp_path / "restored").iterdir())
    opened = open_database(url)
    assert standing_of(opened).current == "0202_votes_needed"
    opened.close()


_KILLED = """
import os, signal, sys
from pathlib import Path
from labelchef.server import backup as module
from labelchef.server.workspace import open_workspace
what, file, home, after = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
calls = 0
def tell(done):
    global calls
    calls += 1
    if calls == after:
        os.kill(os.getpid(), signal.SIGKILL)
if what == "backup":
    with open_workspace(home) as ws:
        module.backup(ws, file, tell)
else:
    module.restore_backup(file, home, None, tell)
"""


def test_a_kill_in_the_middle_leaves_the_old_backup_and_an_empty_home(tmp_path: Path) -> None:
    whole = packed(tmp_path)
    content = whole.read_bytes()

    def killed(what: str, home: Path, after: int) -> None:
        done = subprocess.run([sys.executable, "-c", _KILLED, what, str(whole), str(home), str(after)], check=False)
        assert done.returncode == -signal.SIGKILL

    killed("backup", tmp_path / "home", 12)
    assert whole.read_bytes() == content
    assert len(list(tmp_path.glob(".whole.tar.*"))) == 1
    for after in (2, 20, 30):
        killed("restore", tmp_path / "restored", after)
        assert not (tmp_path / "restored" / "labelchef.db").exists()
    restore_backup(whole, tmp_path / "restored")
    with open_workspace(tmp_path / "restored") as ws:
        assert replay(ws, "small").agrees
        backup(ws, whole)
    assert not list(tmp_path.glob(".whole.tar.*")), "the next backup removes what the killed one left"


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    whole = packed(tmp_path)
    with small_disk(tmp_path / "disk") as disk, open_workspace(tmp_path / "home") as ws:
        (disk / "full").write_bytes(bytes(2 * 2**20 - 12 * 1024))
        with pytest.raises(StoreError) as refused:
            backup(ws, disk / "x.tar")
        assert refused.value.code == "disk_full"
        assert sorted(os.listdir(disk)) == ["full"]
        with pytest.raises((StoreError, InvalidInputError)) as refused_too:
            restore_backup(whole, disk / "home")
        assert "space" in str(refused_too.value) or "full" in str(refused_too.value)
        assert not any((disk / "home").iterdir())
        (disk / "full").unlink()


def test_a_damaged_array_is_not_backed_up_silently(ws: Workspace, tmp_path: Path) -> None:
    make(ws)
    features = next(ws.home.glob("campaigns/*/features.npy"))
    content = features.read_bytes()
    features.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match="not the file that was stored"):
        backup(ws, tmp_path / "x.tar")
    features.unlink()
    with pytest.raises(StoreError, match="is missing"):
        backup(ws, tmp_path / "x.tar")
    assert not (tmp_path / "x.tar").exists()


def test_images_whose_names_begin_with_a_dot_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_workspace(tmp_path / "home") as ws:
        campaign = campaigns_folder(ws, make(ws))
        for name in ("plain.png", ".hidden.png", ".deep/.er/x.png"):
            (campaign / "media" / name).parent.mkdir(parents=True, exist_ok=True)
            (campaign / "media" / name).write_text(name)
        (campaign / ".features.npy.abcdefgh").write_text("being written")
        backup(ws, tmp_path / "x.tar")
        restore_backup(tmp_path / "x.tar", tmp_path / "restored")
        restored = tmp_path / "restored" / "campaigns" / campaign.name
        files = {str(path.relative_to(restored)) for path in restored.rglob("*") if path.is_file()}
        assert {"media/plain.png", "media/.hidden.png", "media/.deep/.er/x.png"} <= files
        assert ".features.npy.abcdefgh" not in files
        assert (restored / "media" / ".deep" / ".er" / "x.png").read_text() == ".deep/.er/x.png"

        real = os.scandir

        def refused(path: str) -> object:
            if str(path).endswith("/.er"):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(os, "scandir", refused)
        with pytest.raises(StoreError, match=r"\.er cannot be read .*no whole backup"):
            backup(ws, tmp_path / "y.tar")
        monkeypatch.undo()
        assert not (tmp_path / "y.tar").exists()


def campaigns_folder(ws: Workspace, campaign: str) -> Path:
    return ws.home / "campaigns" / summary(ws, campaign).id


def test_nobody_else_may_read_a_backup_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    real, seen = Path.replace, list[int]()

    def looked_at(self: Path, target: Path) -> Path:
        moved = real(self, target)
        if target.name == "x.tar":
            seen.append(target.stat().st_mode & 0o777)
        return moved

    with open_workspace(tmp_path / "home") as ws:
        monkeypatch.setattr(Path, "replace", looked_at)
        backup(ws, tmp_path / "x.tar")
    assert seen == [0o600]
    assert (tmp_path / "x.tar").stat().st_mode & 0o777 == 0o600


def test_rows_of_many_chunks_come_back(ws: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "_CHUNK", 500)
    monkeypatch.setattr(module, "_GROUP", 7)
    make(ws)
    made = backup(ws, tmp_path / "x.tar")
    assert made.rows["item"] == 90
    restore_backup(tmp_path / "x.tar", tmp_path / "restored")
    with open_workspace(tmp_path / "restored") as other:
        assert rows_of(other) == rows_of(ws)


def test_the_commands(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        make(ws)
    run = CliRunner().invoke
    out = tmp_path / "kept.tar.gz"
    for arguments, words in (
        (["backup", "make", str(out), "--home", str(tmp_path / "home")], "1 campaigns, 90 items"),
        (["backup", "check", str(out)], "whole and unaltered"),
        (["backup", "restore", str(out), "--home", str(tmp_path / "new")], "holds it now"),
    ):
        done = run(app, arguments)
        assert done.exit_code == 0, done
        assert words in " ".join(done.output.split())
    with open_workspace(tmp_path / "new") as ws:
        label_all(ws, "small", "ann", "bob", "cid")
