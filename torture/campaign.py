"""Episodes of faults, their results, and the table.

An episode is a home of its own with some strikes of one fault on one kind of database. All its random choices come from
(seed, fault, database, number of the episode), so that one can be repeated alone.
"""

import asyncio
import json
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from rich.table import Table

from torture.faults import FAULTS, Fault, clock_file
from torture.injection import Injection
from torture.jobs import PEOPLE
from torture.people import at_work
from torture.stage import Stage, Workshop, staged


@dataclass(frozen=True)
class Episode:
    """Which strikes on which home."""

    fault: str
    database: str
    number: int
    times: int
    seed: int

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.fault}/{self.database}/{self.number}x{self.times}/seed{self.seed}"

    @property
    def again(self) -> str:
        """The command that repeats it alone."""
        return (
            f"python -m torture --only {self.fault} --database {self.database} --episode {self.number} "
            f"--times {self.times} --seed {self.seed}"
        )


@dataclass
class Result:
    """What came of an episode, or of several."""

    episode: str
    times: int = 0
    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    torn: int = 0
    refused: int = 0
    unclear: int = 0
    agreed: int = 0
    rounds: int = 0
    left: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        """Whether a count that must be zero is not."""
        return bool(self.lost or self.doubled or self.stuck or self.torn or self.unclear or self.agreed != self.rounds)

    def add(self, other: "Result") -> None:
        """Sum the counts."""
        for name, value in asdict(other).items():
            if name != "episode":
                setattr(self, name, getattr(self, name) + value)


OnStrike = Callable[[int], None]


def run(shop: Workshop, episode: Episode, on_strike: OnStrike = lambda _: None) -> Result:
    """One episode; `on_strike` is told the number of each strike before it."""
    begun = time.monotonic()
    fault = FAULTS[episode.fault]
    words = [zlib.crc32(word.encode()) for word in (episode.fault, episode.database)]
    seeds = np.random.SeedSequence([episode.seed, *words, episode.number])
    name = f"{episode.fault}-{episode.database}-{episode.number}"
    with staged(shop, name, episode.database, fault.disk) as stage:
        done = asyncio.run(_strikes(stage, fault, episode.times, seeds, on_strike))
        stage.compare()
        left = stage.compare_files()
        agreed, rounds = stage.replay()
    found, answers = stage.findings, stage.crowd.answers
    unclear = [f"{text} ({count} times)" for text, count in answers.unclear.items()]
    unclear += [f"{answers.late} answers did not come in time"] if answers.late else []
    return Result(
        episode=episode.key,
        times=done,
        kills=stage.kills,
        acknowledged=len(stage.ledger.acknowledged),
        lost=len(found.lost),
        doubled=len(found.doubled),
        stuck=len(stage.stuck),
        torn=len(found.torn),
        refused=stage.refusals + answers.clear.total(),
        unclear=len(stage.wrong) + answers.unclear.total() + answers.late,
        agreed=agreed,
        rounds=rounds,
        left=left,
        seconds=time.monotonic() - begun,
        notes=[
            note
            for notes in (found.lost, found.doubled, found.torn, stage.stuck, stage.wrong, unclear)
            for note in notes[:5]
        ],
    )


async def _strikes(stage: Stage, fault: Fault, times: int, seeds: np.random.SeedSequence, on_strike: OnStrike) -> int:
    """The strikes, one after another, until one leaves the campaign stuck; how many there were."""
    rng = np.random.default_rng(seeds.spawn(1)[0])
    if not fault.served:
        for k in range(times):
            on_strike(k + 1)
            await fault.strike(stage, rng)
            if stage.stuck:
                return k + 1
        return times
    if fault.wrapped:
        clock_file(stage).write_text("0")
    if fault.fleet:
        stage.start_fleet()
    else:
        stage.start(Injection(clock=str(clock_file(stage))) if fault.wrapped else None)
    async with at_work(stage.crowd, seeds, PEOPLE - 1):
        if not await stage.goes_on("before any fault"):
            return 0
        for k in range(times):
            on_strike(k + 1)
            await fault.strike(stage, rng)
            if stage.stuck or not await stage.goes_on(f"strike {k + 1}"):
                break
    stage.stop()
    return k + 1


def plan(
    kills: int, times: int, databases: Sequence[str], seed: int, only: Iterable[str] = (), first: int = 0
) -> list[Episode]:
    """`kills` kills over all kinds of kill and databases, and `times` strikes of every other fault on each database."""
    chosen = [fault for fault in FAULTS.values() if not only or fault.name in only]
    cells = [(fault, database) for fault in chosen for database in fault.databases if database in databases]
    n_kill = sum(fault.kill for fault, _ in cells)
    episodes = []
    for fault, database in cells:
        left, number = -(-kills // n_kill) if fault.kill else times, first
        while left > 0:
            now = min(left, fault.per_home)
            episodes.append(Episode(fault.name, database, number, now, seed))
            left, number = left - now, number + 1
    return sorted(episodes, key=lambda one: one.number)


class Results:
    """The file of results: a line an episode, so that an interrupted run can go on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, Result] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                one = Result(**json.loads(line))
                self.found[one.episode] = one

    def add(self, result: Result) -> None:
        """Keep a result."""
        self.found[result.episode] = result
        with self._path.open("a") as stream:
            stream.write(json.dumps(asdict(result)) + "\n")

    def rows(self) -> dict[tuple[str, str], Result]:
        """The sums by fault and database."""
        sums: dict[tuple[str, str], Result] = {}
        for fault in FAULTS.values():
            for database in fault.databases:
                for one in self.found.values():
                    if one.episode.startswith(f"{fault.name}/{database}/"):
                        sums.setdefault((fault.name, database), Result("")).add(one)
        return sums


COLUMNS = ("times", "acknowledged", "lost", "doubled", "stuck", "torn", "refused", "unclear")


def cells(rows: dict[tuple[str, str], Result]) -> list[list[str]]:
    """The table as text: a line a fault and database, and the sum."""
    total = Result("")
    lines = []
    for (name, database), result in rows.items():
        total.add(result)
        lines.append([FAULTS[name].title, database, *_numbers(result)])
    return [*lines, ["all", "", *_numbers(total)]]


def _numbers(result: Result) -> list[str]:
    return [*(f"{getattr(result, name):,}" for name in COLUMNS), f"{result.agreed:,} / {result.rounds:,}"]


def table(rows: dict[tuple[str, str], Result]) -> Table:
    """For a terminal."""
    shown = Table(title="A campaign of faults")
    for name in ("fault", "database", *COLUMNS, "replay"):
        shown.add_column(name, justify="left" if name in ("fault", "database") else "right")
    for line in cells(rows):
        shown.add_row(*line)
    return shown


def markdown(rows: dict[tuple[str, str], Result]) -> str:
    """For a page."""
    heads = ["fault", "database", *COLUMNS, "replay"]
    lines = [heads, ["---", "---", *["---:"] * (len(heads) - 2)], *cells(rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
