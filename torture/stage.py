"""A home on which faults are tried: a copy of a prepared campaign, its server, the people, and what went wrong."""

import asyncio
import contextlib
import itertools
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from benchmarks.serving import free_port
from tests.store_support import PostgresServer

from torture.audit import Findings, audit, audit_arrays, engine_of, temporary_files
from torture.injection import Injection
from torture.jobs import PEOPLE, TEAM_FILE
from torture.ledger import Ledger
from torture.nursery import Child, Nursery
from torture.people import BASE, Crowd, until

SQLITE, POSTGRESQL = "sqlite", "postgresql"
LEAVES = f"annotator-{PEOPLE - 1:02d}"
"""A person who takes items and is not heard of again; the others are at work."""


@dataclass
class Workshop:
    """What all stages share: the nursery, the prepared campaigns, the database server."""

    folder: Path
    nursery: Nursery
    postgres: PostgresServer | None
    patience: float = 60.0
    """Seconds in which a campaign must go on to its next round after a fault."""
    _templates: dict[str, tuple[Path, str]] = field(default_factory=dict)

    def template(self, database: str) -> tuple[Path, str]:
        """The prepared home for a kind of database, made when it is first asked for, and its address or ''."""
        if database not in self._templates:
            home, url = self.folder / f"template-{database}", ""
            if database == POSTGRESQL:
                assert self.postgres is not None
                url = self.postgres.new_database()
            code = self.nursery.start(["prepare", str(home), url], self.folder / "prepare.log").code(300)
            if code:
                raise RuntimeError(f"no campaign could be made; see {self.folder / 'prepare.log'}")
            self._templates[database] = home, url
        return self._templates[database]

    def copy(self, database: str, home: Path) -> str | None:
        """Copy the prepared home; the address of its database, None for SQLite."""
        template, url = self.template(database)
        shutil.copytree(template, home, dirs_exist_ok=True)
        if database == SQLITE:
            return None
        assert self.postgres is not None
        return self.postgres.new_database(like=name_of(url))


@dataclass
class Member:
    """One process of several on a home."""

    words: tuple[str, ...]
    port: int = 0
    """Where it answers; 0 for a worker."""
    child: Child | None = None


def name_of(url: str) -> str:
    """The name of the database in an address."""
    return str(sa.make_url(url).database)


@dataclass
class Stage:
    """One home under faults."""

    shop: Workshop
    home: Path
    url: str | None
    ledger: Ledger
    crowd: Crowd
    port: int = field(default_factory=free_port)
    server: Child | None = None
    fleet: "list[Member]" = field(default_factory=list)
    """Web processes and workers, where there are several."""
    findings: Findings = field(default_factory=Findings)
    kills: int = 0
    refusals: int = 0
    """Commands that were refused with a message and exit code 2."""
    wrong: list[str] = field(default_factory=list)
    """What should have been refused or told clearly, and was not."""
    stuck: list[str] = field(default_factory=list)
    differs: bool = False
    """Whether a replay differed from the ledger."""

    @property
    def in_trouble(self) -> bool:
        """Whether anything is not as it must be."""
        found, answers = self.findings, self.crowd.answers
        said = bool(self.wrong or self.stuck or self.differs or answers.unclear or answers.late)
        return said or bool(found.lost or found.doubled or found.torn)

    @property
    def log(self) -> Path:
        """What the servers of this home print."""
        return self.home.parent / f"{self.home.name}.log"

    @property
    def database_file(self) -> Path:
        """The SQLite file."""
        return self.home / "labelchef.db"

    @property
    def campaign_folder(self) -> Path:
        """Where the arrays of the campaign are."""
        return next(path for path in (self.home / "campaigns").iterdir() if not path.name.startswith("."))

    @property
    def postgres(self) -> PostgresServer:
        """The database server."""
        assert self.shop.postgres is not None
        return self.shop.postgres

    def command(self, *arguments: str, injection: Injection | None = None, log: Path | None = None) -> Child:
        """`labelchef …` on this home."""
        where = ["--home", str(self.home), *([] if self.url is None else ["--database", self.url])]
        return self.shop.nursery.start(["command", *arguments, *where], log or self.log, injection)

    def start(self, injection: Injection | None = None) -> None:
        """Start the server; it answers a moment later."""
        assert self.server is None
        self.server = self.command("serve", "--team", "--port", str(self.port), injection=injection)

    def start_fleet(self) -> None:
        """Start two web processes on ports of their own, and two workers."""
        web = [
            Member(("serve", "--team", "--no-worker", "--port", str(port)), port) for port in (self.port, free_port())
        ]
        self.fleet = [*web, Member(("worker",)), Member(("worker",))]
        for member in self.fleet:
            member.child = self.command(*member.words)

    def ports(self) -> list[int]:
        """Where servers answer, or should."""
        return [member.port for member in self.fleet if member.port] or [self.port]

    def kill(self) -> None:
        """SIGKILL to the server."""
        assert self.server is not None
        self.server.kill()
        self.server, self.kills = None, self.kills + 1

    def stop(self) -> None:
        """Stop the server, or all processes, as Ctrl-C does."""
        running = [*([] if self.server is None else [self.server]), *(one.child for one in self.fleet if one.child)]
        for child in running:
            child.signal(signal.SIGINT)
        for child in running:
            try:
                child.code(self.shop.patience)
            except TimeoutError:
                self.wrong.append(f"a process did not stop within {self.shop.patience:.0f} s of Ctrl-C")
                child.kill()
        self.server, self.fleet = None, []

    async def refused_start(self, what: str) -> None:
        """Start a second server or one on a broken home; it must refuse, and say why."""
        log = self.home.parent / f"{self.home.name}.refused.log"
        log.write_text("")
        child = self.command("serve", "--team", "--port", str(free_port()), log=log)

        async def ended() -> bool:
            return child.ended

        if not await until(ended, self.shop.patience):
            child.kill()
            self.wrong.append(f"{what}: the server started, expected a refusal")
            return
        self.judge(child.code(1), log.read_text(), what)

    def judge(self, code: int, printed: str, what: str) -> None:
        """A command that must be refused: exit code 2 and a line that begins with 'error'."""
        if code == 2 and "error" in printed and "Traceback" not in printed:
            self.refusals += 1
        else:
            self.wrong.append(f"{what}: exit code {code}, {printed.strip()[-200:]!r}; expected 2 and an error")

    async def round(self) -> int | None:
        """The number of the round, None while the server does not tell."""
        if self.server is not None and self.server.ended:
            return None
        status, answer = await self.crowd.ask("GET", BASE)
        return int(answer["round"]) if status == 200 else None

    async def answers(self) -> int | None:
        """Wait until the server answers; the round, None if it does not answer in time."""
        found: int | None = None

        async def there() -> bool:
            nonlocal found
            found = await self.round()
            return found is not None

        await until(there, self.shop.patience)
        return found

    async def goes_on(self, what: str) -> bool:
        """Whether the campaign closes a round and opens the next one in time; the database is compared in any case."""
        first = await self.answers()

        async def further() -> bool:
            now = await self.round()
            return now is not None and first is not None and now > first

        moved = first is not None and await until(further, self.shop.patience, 0.1)
        if not moved:
            status, answer = await self.crowd.ask("GET", BASE)
            self.stuck.append(f"{what}: no further round in {self.shop.patience:.0f} s; {status} {str(answer)[:300]}")
        self.compare()
        return moved

    def compare(self) -> None:
        """Compare the database with what was acknowledged."""
        try:
            self.findings.add(audit(self.home, self.url, self.ledger))
        except sa.exc.SQLAlchemyError as error:
            self.findings.torn.append(f"the database cannot be read: {str(error)[:200]}")

    def compare_files(self) -> int:
        """Compare the arrays, with nobody at work; how many temporary files are there."""
        self.findings.torn += audit_arrays(self.home, self.url)
        return temporary_files(self.home)

    def replay(self) -> tuple[int, int]:
        """Rounds that a replay finds as they are in the ledger, and all rounds."""
        out = self.home.parent / f"{self.home.name}.replay.json"
        code = self.shop.nursery.start(["replay", str(self.home), self.url or "", str(out)], self.log).code(600)
        if code:
            self.wrong.append(f"the replay ended with code {code}; see {self.log}")
            return 0, 1
        found = json.loads(out.read_text())
        self.differs = found["agreed"] != found["rounds"]
        return int(found["agreed"]), int(found["rounds"])

    def query(self, sql: str) -> list[tuple[object, ...]]:
        """Rows of the database, by plain SQL."""
        with engine_of(self.home, self.url).connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(sql))]


@contextlib.contextmanager
def staged(shop: Workshop, name: str, database: str, disk: str = "") -> Iterator[Stage]:
    """A new stage; its folder is left behind if anything went wrong on it. `disk` is the size of a disk of its own."""
    home = shop.folder / name / "home"
    home.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        if disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk}", "torture", str(home)], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", str(home)], check=True)
        url = shop.copy(database, home)
        ledger = stack.enter_context(Ledger(home.parent / "operations.jsonl"))
        tokens = json.loads((home / TEAM_FILE).read_text())
        turns = itertools.count()
        crowd = Crowd(lambda: (found := stage.ports())[next(turns) % len(found)], tokens, ledger)
        stage = Stage(shop, home, url, ledger, crowd)
        try:
            yield stage
        finally:
            for child in (stage.server, *(one.child for one in stage.fleet)):
                if child is not None:
                    child.kill()
            if url is not None:
                with contextlib.suppress(sa.exc.SQLAlchemyError):
                    stage.postgres.execute(f"DROP DATABASE IF EXISTS {name_of(url)} WITH (FORCE)")
    if not stage.in_trouble:
        shutil.rmtree(home.parent)


def can_mount(folder: Path) -> bool:
    """Whether this process may make a small disk of its own."""
    probe = folder / "probe"
    probe.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "torture", str(probe)], capture_output=True, check=False
    )
    if done.returncode == 0:
        subprocess.run(["umount", str(probe)], check=True)
    return done.returncode == 0


async def moment(rng: np.random.Generator, least: float, most: float) -> None:
    """Wait for a random time."""
    await asyncio.sleep(float(rng.uniform(least, most)))
