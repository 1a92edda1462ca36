"""A PostgreSQL server of the tests' own, and small campaigns."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from labelchef import Known
from labelchef.base.campaigns import Task, Waiting
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import create_campaign
from labelchef.server.campaigns.trained import lease_name, step
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace

CLASSES = ("ham", "spam", "eggs")


def truth_of(n: int, seed: int = 0) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The true classes of `small_data`."""
    return np.random.default_rng(seed).integers(0, len(CLASSES), n).astype(np.int64)


def small_data(n_train: int = 60, n_val: int = 30, seed: int = 0, **others: Any) -> CampaignData:
    """Three blobs with random weak labels; item k is called str(k) and is of class truth_of(…)[k]."""
    n = n_train + n_val
    y = truth_of(n, seed)
    rng = np.random.default_rng(seed + 1)
    centres = 2.0 * rng.normal(size=(len(CLASSES), 4))
    X = centres[y] + rng.normal(size=(n, 4))
    weak = rng.dirichlet(np.ones(len(CLASSES)), n_train)
    items = pd.DataFrame({"text": [f"text {k}" for k in range(n_train)], "colour": ["red"] * n_train})
    given: dict[str, Any] = {"items": items, **others}
    return campaign_data(X[:n_train], weak, X[n_train:], y[n_train:], **given)


def gold_data(**others: Any) -> CampaignData:
    """`small_data` whose trusted samples have what people see of the others: they can be hidden gold."""
    shown = pd.DataFrame({"text": [f"trusted text {k}" for k in range(30)], "colour": ["red"] * 30})
    return small_data(val_items=shown, **others)


def campaign_data(
    X: Any,
    weak: Any,
    X_val: Any,
    y_val: Any,
    *,
    X_test: Any = None,
    y_test: Any = None,
    clean: Any = None,
    items: pd.DataFrame | None = None,
    val_items: pd.DataFrame | None = None,
    media: Path | None = None,
    classes: tuple[str, ...] = CLASSES,
) -> CampaignData:
    """Data of a campaign from arrays and class positions."""

    def names(ids: Any) -> list[str | None] | None:
        return None if ids is None else [None if k < 0 else classes[k] for k in ids]

    return CampaignData.of(
        X, weak, X_val=X_val, y_val=names(y_val), known=Known(X_test=X_test, y_test=names(y_test), y_clean=names(clean)),
        classes=classes, contents=Contents(items, val_items, media=media),
    )  # fmt: skip


def make(ws: Workspace, name: str = "Small", data: CampaignData | None = None, **settings: Any) -> str:
    """A campaign whose first batch is out."""
    chosen = {"budget": 12, "batch_size": 4, **settings}
    made = create_campaign(ws, name, data or small_data(), Settings(**chosen), "lead")
    advance(ws, made.slug)
    return made.slug


def one_step(ws: Workspace, campaign: str) -> bool:
    """Take the step that is due, under the campaign's lease; whether there was one."""
    with ws.leases.holding(lease_name(find(ws, campaign))) as lease:
        return step(ws, campaign, lease)


def tasks(ws: Workspace, campaign: str, person: str, n: int = 2) -> list[Task]:
    """What is handed to a person, which must be something."""
    found = next_tasks(ws, campaign, person, n)
    assert not isinstance(found, Waiting), found
    return found


def waits(ws: Workspace, campaign: str, person: str) -> Waiting:
    """Why a person has nothing to do."""
    found = next_tasks(ws, campaign, person)
    assert isinstance(found, Waiting), found
    return found


def label_all(ws: Workspace, campaign: str, *people: str, rounds: int = 1, n: int = 60) -> int:
    """Let people vote the truth until so many batches are complete; how many votes that took."""
    truth, votes = truth_of(n + 30), 0
    for _ in range(rounds):
        complete = False
        while not complete:
            before = votes
            for person in people:
                found = next_tasks(ws, campaign, person)
                if isinstance(found, Waiting):
                    continue
                receipt = cast_vote(ws, campaign, person, found[0].item, int(truth[int(found[0].item)]))
                complete, votes = complete or receipt.batch_complete, votes + 1
            assert votes > before, "nobody could vote"
        advance(ws, campaign)
    return votes


class PostgresServer:
    """A server on a socket in a temporary folder, run by another user if this one is root; not `new`, one made before.

    Unless it is `durable`, it does not wait for the disk: what it has written outlives it, not the machine.
    """

    def __init__(self, folder: Path, *, new: bool = True, durable: bool = False) -> None:
        self._folder, self._bin, self._durable = folder, _binaries(), durable
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        if new:
            self._run("initdb", "-D", str(folder / "data"), "-U", "labelchef", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start and wait until it answers."""
        options = f"-k {self._folder} -c listen_addresses= -c max_connections=200"
        options += "" if self._durable else " -c fsync=off -c full_page_writes=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-o", options, "-l", log, "-w", "-t", "60", "start")

    def stop(self, *, fast: bool = False) -> None:
        """Stop at once; `fast`, with everything written down."""
        mode = "fast" if fast else "immediate"
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", mode, "-w", "stop")

    def new_database(self, like: str = "template1") -> str:
        """The address of a new database: empty, or a copy of the one named `like`, which nobody must be connected to."""
        name = f"t{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {like}")
        return self.url(name)

    def execute(self, statement: str) -> list[Any]:
        """Run a statement outside of all databases of tests; its rows, if it has any."""
        engine = sa.create_engine(self.url("postgres", driver="postgresql+pg8000"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            result = connection.execute(sa.text(statement))
            rows = list(result.all()) if result.returns_rows else []
        engine.dispose()
        return rows

    def url(self, name: str, driver: str = "postgresql") -> str:
        """The address of a database."""
        return f"{driver}://labelchef@/{name}?unix_sock={self._folder}/.s.PGSQL.5432"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        if self._user is not None:
            command = ["runuser", "-u", self._user, "--", *command]
        with (self._folder / "out").open("w+") as out:  # a pipe would stay open as long as the server does
            done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=self._folder, check=False)
            out.seek(0)
            assert done.returncode == 0, out.read()


@contextlib.contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A running server, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="lcpg", dir="/tmp"))  # sockets have short names
    folder.chmod(0o755)
    try:
        server = PostgresServer(folder, durable=durable)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(AssertionError):
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3].split(".")[0]))
    if found:
        return found[-1].parent
    anywhere = shutil.which("initdb")
    assert anywhere is not None, "no PostgreSQL here; run tools/system-parts"
    return Path(anywhere).resolve().parent


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
