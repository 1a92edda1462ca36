"""The faults, by name. Each is one strike on a stage that is under load, and leaves the stage as an operator would: mended."""

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from benchmarks.serving import SLUG, free_port

from labelchef.server.leases import LEASE_SECONDS
from torture.injection import FREQUENT, POINTS, Injection
from torture.ledger import Operation
from torture.people import BASE, CLASSES, IMPORT_LINES, import_table, until
from torture.stage import LEAVES, POSTGRESQL, SQLITE, Stage, moment, name_of

BOTH = (SQLITE, POSTGRESQL)
DAY = 86400.0


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    title: str
    strike: Callable[[Stage, np.random.Generator], Awaitable[None]]
    databases: tuple[str, ...] = BOTH
    kill: bool = False
    """Whether it is one of the kills whose number is asked for."""
    per_home: int = 1
    """How many strikes one home gets."""
    disk: str = ""
    """Size of a disk of its own; empty: none."""
    served: bool = True
    """Whether a server runs, with people at work on it."""
    fleet: bool = False
    """Whether there are two web processes and two workers, instead of one server."""
    wrapped: bool = False
    """Whether the clock of the server is set by the file `clock` beside the home."""


def clock_file(stage: Stage) -> Path:
    """Seconds by which the clock of the server is wrong."""
    return stage.home.parent / "clock"


def _draw_point(rng: np.random.Generator) -> Injection:
    point = str(rng.choice(POINTS))
    return Injection(point=point, at=int(rng.integers(1, 24 if point in FREQUENT else 4)))


async def kill_server(stage: Stage, rng: np.random.Generator) -> None:
    """SIGKILL at a random moment, also while it starts."""
    await moment(rng, 0.0, 1.0)
    stage.kill()
    stage.start()


async def kill_server_at(stage: Stage, rng: np.random.Generator) -> None:
    """A server that dies at a chosen point."""
    injection = _draw_point(rng)
    stage.kill()
    stage.kills -= 1  # this one only makes place
    stage.start(injection)
    assert stage.server is not None
    child = stage.server

    async def dead() -> bool:
        return child.ended

    if not await until(dead, 10.0, 0.01):
        await moment(rng, 0.0, 0.3)  # the point was not reached: a kill at a random moment
    stage.kill()
    stage.start()


async def kill_command(stage: Stage, rng: np.random.Generator) -> None:
    """Commands without a server, one after another, until one of them dies at the chosen point; then some that do not.

    Not every command reaches every point: after five that did not, another point is drawn.
    """
    for tried in range(50):
        if tried % 5 == 0:
            injection = Injection(point=_draw_point(rng).point, at=int(rng.integers(1, 3)))
        if await _run_command(stage, rng, injection) < 0:
            stage.kills += 1
            break
    before = _rounds(stage)
    for _ in range(40):
        await _run_command(stage, rng, None)
        if _rounds(stage) > before:
            break
    else:
        stage.stuck.append(f"40 commands after a death at {injection.point} {injection.at}, and no further round")
    stage.compare()


def _rounds(stage: Stage) -> int:
    return int(str(stage.query("SELECT count(*) FROM round WHERE state = 'closed'")[0][0]))


_ASKED = """SELECT i.key FROM selection s JOIN item i ON i.id = s.item_id JOIN round r ON r.id = s.round_id
            WHERE r.state = 'selected' AND s.origin <> 'ahead' AND s.votes = 0 AND NOT s.decided ORDER BY s.rank"""


async def _run_command(stage: Stage, rng: np.random.Generator, injection: Injection | None) -> int:
    """A vote, an undo or an import by the command line; its exit code."""
    asked = [str(row[0]) for row in stage.query(_ASKED)]
    draw, person, label = rng.random(), "annotator-00", int(rng.integers(0, len(CLASSES)))
    log = stage.home.parent / "command.log"
    log.write_text("")
    if asked and draw < 0.85:
        operation = Operation("vote", person, asked[0], label)
        words = ["vote", SLUG, asked[0], CLASSES[label], "--as", person]
    elif asked and draw < 0.92:
        operation, words = Operation("undo", person), ["vote", SLUG, "--undo", "--as", person]
    else:
        name, file = f"import-{len(stage.ledger.sent)}", stage.home.parent / "votes.csv"
        file.write_text(import_table(name, rng))
        operation = Operation("import", person, request=name, value=IMPORT_LINES)
        words = ["import", SLUG, str(file)]
    number = stage.ledger.send(operation)
    code = stage.command(*words, injection=injection, log=log).code(120)
    if code == 0:
        stage.ledger.acknowledge(number)
    elif code > 0:
        stage.judge(code, log.read_text(), " ".join(words))
    return code


async def disk_full(stage: Stage, rng: np.random.Generator) -> None:
    """Not a byte left on the disk of the home for some seconds."""
    filler = stage.home / "filler"
    with filler.open("wb", buffering=0) as stream:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    stream.write(bytes(size))
            except OSError:
                continue
    await moment(rng, 1.0, 3.0)
    await _must_tell(stage, "the disk is full")
    if rng.random() < 0.5:
        stage.kill()
        stage.kills -= 1
        filler.unlink()
        stage.start()
    else:
        filler.unlink()


async def _must_tell(stage: Stage, what: str) -> None:
    """While a fault lasts, health answers 503 with a code."""
    told: list[str] = []

    async def tells() -> bool:
        status, answer = await stage.crowd.ask("GET", "/api/health")
        told[:] = [f"{status} {str(answer)[:200]}"]
        return status == 503 and "code" in answer

    if not await until(tells, stage.shop.patience / 2, 0.2):
        stage.wrong.append(f"{what}, and health says {told[0]}")


async def clock_jumps(stage: Stage, rng: np.random.Generator) -> None:
    """A day ahead and back, or back and ahead, with a person who takes items meanwhile and is not heard of again."""
    days = [DAY, -DAY]
    rng.shuffle(days)
    for jump in days:
        for wrong in (
            jump,
            0.0,
        ):  # the items are taken while the clock is wrong, and it is right again before they are free
            file = clock_file(stage)
            file.with_suffix(".new").write_text(str(wrong))
            file.with_suffix(".new").replace(file)
            if wrong:
                await stage.crowd.ask("POST", f"{BASE}/next", {"n": 2}, person=LEAVES)
        if not await stage.goes_on(f"the clock was {jump:+.0f} s wrong"):
            return


async def lost_wal(stage: Stage, rng: np.random.Generator) -> None:
    """The -wal (or -shm) file is moved away under the running server, which is killed; then the file comes back."""
    await stage.answers()
    log = Path(f"{stage.database_file}{rng.choice(['-wal', '-wal', '-shm'])}")
    aside = log.rename(stage.home.parent / "aside")
    await _must_tell(stage, "the log of the database was moved away")
    stage.kill()
    stage.kills -= 1
    aside.replace(log)
    stage.start()


async def replaced_database(stage: Stage, rng: np.random.Generator) -> None:
    """The database is moved away under the running server, with another one or nothing in its place; then it comes back."""
    await stage.answers()
    files = [Path(f"{stage.database_file}{end}") for end in ("", "-wal", "-shm")]
    aside = stage.home.parent / "aside"
    aside.mkdir()
    for file in files:
        if file.exists():
            file.rename(aside / file.name)
    if rng.random() < 0.5:
        shutil.copy(stage.shop.template(SQLITE)[0] / stage.database_file.name, stage.database_file)
    await moment(rng, 0.5, 1.5)
    await _must_tell(stage, "the database was replaced")
    stage.kill()
    stage.kills -= 1
    for file in files:
        file.unlink(missing_ok=True)
    for file in aside.iterdir():
        file.rename(stage.home / file.name)
    aside.rmdir()
    stage.start()


async def empty_database(stage: Stage, rng: np.random.Generator) -> None:
    """A database file of 0 bytes at the start: refused, nothing is written. The right file is put back."""
    await moment(rng, 0.0, 0.5)
    stage.stop()
    aside = stage.home.parent / "aside.db"
    stage.database_file.rename(aside)
    stage.database_file.touch()
    await stage.refused_start("a database of 0 bytes")
    if stage.database_file.stat().st_size:
        stage.wrong.append("a database of 0 bytes was taken for a new one")
    for end in ("", "-wal", "-shm"):
        Path(f"{stage.database_file}{end}").unlink(missing_ok=True)
    aside.rename(stage.database_file)
    stage.start()


async def killed_database(stage: Stage, rng: np.random.Generator) -> None:
    """PostgreSQL: a backend is killed, or the whole server ends at once and comes back."""
    await moment(rng, 0.0, 1.0)
    if rng.random() < 0.5:
        found = stage.postgres.execute(f"SELECT pid FROM pg_stat_activity WHERE datname = '{name_of(stage.url or '')}'")
        if found:
            os.kill(int(found[int(rng.integers(0, len(found)))][0]), signal.SIGKILL)
    else:
        await asyncio.to_thread(stage.postgres.stop)
        await moment(rng, 0.2, 2.0)
        await asyncio.to_thread(stage.postgres.start)

    async def back() -> bool:
        try:
            await asyncio.to_thread(stage.postgres.execute, "SELECT 1")
        except (sa.exc.SQLAlchemyError, OSError):
            return False
        return True

    await until(back, stage.shop.patience, 0.1)


async def slow_disk(stage: Stage, rng: np.random.Generator) -> None:
    """Every commit and fsync takes up to a second longer; a kill in the middle of it."""
    stage.kill()
    stage.start(Injection(delay=float(rng.uniform(0.1, 1.0))))
    stage.kills -= 1
    await stage.answers()
    await moment(rng, 1.0, 4.0)
    stage.kill()
    stage.kills -= 1
    stage.start()


async def corrupted_array(stage: Stage, rng: np.random.Generator) -> None:
    """Some bytes of a stored array change while no server runs; the next one must say so. Then the array is restored."""
    stage.stop()
    names = [
        str(row[0])
        for row in stage.query("SELECT path FROM array_file WHERE name IN ('features', 'weak', 'val_features')")
    ]
    file = stage.campaign_folder / str(rng.choice(sorted(names)))
    right = file.read_bytes()
    wrong = bytearray(right)
    for place in rng.integers(128, len(wrong), 3):
        wrong[int(place)] ^= 0xFF
    file.write_bytes(wrong)
    stage.start()
    await stage.answers()

    async def failed() -> bool:
        status, answer = await stage.crowd.ask("GET", BASE)
        return status == 200 and answer["state"] == "failed" and "digest" in answer["message"]

    if not await until(failed, stage.shop.patience, 0.1):
        stage.wrong.append(f"{file.name} was changed, and the campaign does not say so")
    else:
        stage.refusals += 1
    file.write_bytes(right)
    await stage.crowd.ask("POST", f"{BASE}/resume")


async def two_servers(stage: Stage, rng: np.random.Generator) -> None:
    """A second server on the same home, with a worker of its own, for a while; then it is killed."""
    await stage.answers()
    child = stage.command("serve", "--team", "--port", str(free_port()))
    await moment(rng, 0.5, 4.0)
    if child.ended:
        stage.wrong.append(f"the second server ended with code {child.code(1)}; see {stage.log}")
    child.kill()


async def kill_fleet(stage: Stage, rng: np.random.Generator) -> None:
    """SIGKILL of one of two web processes and two workers at a random moment, sometimes of two; they are started again."""
    await moment(rng, 0.0, 1.0)
    chosen = rng.choice(len(stage.fleet), 2 if rng.random() < 0.25 else 1, replace=False)
    for k in chosen:
        member = stage.fleet[int(k)]
        if member.child is not None:
            member.child.kill()
            member.child, stage.kills = None, stage.kills + 1
    await moment(rng, 0.0, 1.5)
    for k in chosen:
        member = stage.fleet[int(k)]
        member.child = stage.command(*member.words)


async def hang_worker(stage: Stage, rng: np.random.Generator) -> None:
    """A worker is stopped, as if it hung, for longer than its leases; it wakes and writes late."""
    await stage.answers()
    workers = [member for member in stage.fleet if not member.port]
    holder = workers[int(rng.integers(0, len(workers)))].child
    assert holder is not None
    holder.signal(signal.SIGSTOP)
    await stage.goes_on("a worker hangs")
    await asyncio.sleep(LEASE_SECONDS + 2.0)
    holder.signal(signal.SIGCONT)
    await moment(rng, 0.5, 2.0)


async def missing_folder(stage: Stage, rng: np.random.Generator) -> None:
    """The folder of the campaign is away, under a running server or at its start; then it comes back."""
    await stage.answers()
    folder, aside = stage.campaign_folder, stage.home.parent / "aside"
    folder.rename(aside)
    if rng.random() < 0.5:
        stage.kill()
        stage.kills -= 1
        stage.start()
    await moment(rng, 0.5, 2.0)
    told: list[str] = []

    async def tells() -> bool:
        health = await stage.crowd.ask("GET", "/api/health")
        campaign = await stage.crowd.ask("GET", BASE)
        told[:] = [f"{health} {campaign}"[:400]]
        notices = campaign[1].get("notices", []) if campaign[0] == 200 else []
        return (health[0] == 503 and "code" in health[1]) or any(one["code"] == "folder" for one in notices)

    if not await until(tells, stage.shop.patience / 2, 0.2):
        stage.wrong.append(f"the folder of the campaign is missing, and the server says {told[0]}")
    else:
        stage.refusals += 1
    aside.rename(folder)


FAULTS = {
    one.name: one
    for one in (
        Fault("kill-server", "SIGKILL of the server", kill_server, kill=True, per_home=20),
        Fault("kill-server-at", "SIGKILL of the server at a point", kill_server_at, kill=True, per_home=20),
        Fault("kill-command-at", "SIGKILL of a command at a point", kill_command, kill=True, per_home=20, served=False),
        Fault(
            "kill-fleet",
            "SIGKILL of web processes and workers",
            kill_fleet,
            (POSTGRESQL,),
            kill=True,
            per_home=25,
            fleet=True,
        ),
        Fault("hang-worker", "a worker hangs", hang_worker, (POSTGRESQL,), fleet=True),
        Fault("disk-full", "disk full", disk_full, disk="64m"),
        Fault("clock", "clock jumps by a day", clock_jumps, wrapped=True),
        Fault("lost-wal", "lost WAL", lost_wal, (SQLITE,)),
        Fault("replaced-database", "database file replaced", replaced_database, (SQLITE,)),
        Fault("empty-database", "database file of 0 bytes", empty_database, (SQLITE,)),
        Fault("killed-database", "database server killed", killed_database, (POSTGRESQL,), per_home=3),
        Fault("slow-disk", "slow disk", slow_disk),
        Fault("corrupted-array", "corrupted array", corrupted_array),
        Fault("two-servers", "two servers on one home", two_servers),
        Fault("missing-folder", "campaign folder missing", missing_folder),
    )
}
