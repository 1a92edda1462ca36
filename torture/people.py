"""The load: annotators who vote, change, take back and skip, and a lead who decides, reopens, imports and changes settings.

A request with a request_id is sent again, with the same one, until the server answers. Others are sent once; if no answer
comes they may be there or not.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from benchmarks.serving import SLUG, Connection

from torture.jobs import ITEMS
from torture.ledger import Ledger, Operation

BASE = f"/api/campaigns/{SLUG}"
PROBLEM = "urn:labelchef:problem:"
ANSWER_SECONDS = 120.0
"""An answer that takes longer is given up."""
_PAUSE = 0.02
IMPORT_LINES = 3
"""Lines of every import."""
CLASSES = ("harmless", "spam", "unclear")
"""The classes of the campaign."""


@dataclass
class Answers:
    """How the server answered, besides with what was asked for."""

    clear: Counter[str] = field(default_factory=Counter)
    """Refusals with 5xx and a code, by code."""
    unclear: Counter[str] = field(default_factory=Counter)
    """Answers that are neither a result nor a problem with a code, by status and text."""
    late: int = 0
    """Answers that did not come in time."""


@dataclass
class Crowd:
    """Everybody who talks to the server of one home."""

    port: Callable[[], int]
    tokens: dict[str, str]
    ledger: Ledger
    answers: Answers = field(default_factory=Answers)
    halted: bool = False
    decided: list[str] = field(default_factory=list)
    """Items that the lead decided and may reopen."""

    async def call(
        self, connection: Connection, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """An answer; OSError if there is none."""
        try:
            status, answer = await asyncio.wait_for(connection.call(method, path, body, kind=kind), ANSWER_SECONDS)
        except TimeoutError:
            connection.close()
            self.answers.late += 1
            raise OSError("no answer in time") from None
        except ValueError as error:  # no JSON, no HTTP
            connection.close()
            self.answers.unclear[f"not readable: {error}"[:200]] += 1
            raise OSError("not readable") from None
        except OSError:
            connection.move(self.port())  # as a proxy does: the next try goes to a server that may live
            raise
        if status >= 400:
            code = answer.get("code") if isinstance(answer, dict) else None
            if code is None or status == 500 or not str(answer.get("type", "")).startswith(PROBLEM):
                self.answers.unclear[f"{method} {path} {status} {answer}"[:300]] += 1
            elif status >= 500:
                self.answers.clear[str(code)] += 1
        return status, answer

    def connect(self, person: str) -> Connection:
        """A connection with the person's token, to the port of the moment."""
        return Connection(self.port(), self.tokens[person])

    async def ask(self, method: str, path: str, body: Any = None, person: str = "lead") -> tuple[int, Any]:
        """One request on a connection of its own; status 0 if there is no answer."""
        connection = self.connect(person)
        try:
            return await self.call(connection, method, path, body)
        except OSError:
            return 0, None
        finally:
            connection.close()

    async def annotate(self, person: str, rng: np.random.Generator) -> None:
        """One annotator, until `halted`."""
        connection = self.connect(person)
        tasks: list[dict[str, Any]] = []
        last: tuple[str, int] | None = None
        while not self.halted:
            if not tasks:
                with contextlib.suppress(OSError):
                    status, answer = await self.call(connection, "POST", f"{BASE}/next", {"n": 2})
                    tasks = answer["tasks"] if status == 200 else []
                if not tasks:
                    connection = await self._rest(connection, person)
                    continue
            await asyncio.sleep(_PAUSE * float(rng.uniform(0.2, 1.8)))
            draw, label = rng.random(), int(rng.integers(0, 3))
            item = tasks[0]["item"]
            if draw < 0.05:
                tasks = await self._skip(connection, person, item)
            elif draw < 0.12 and last is not None:
                await self._repeated(connection, "undo", person, last[0], -1)
                tasks = []
            elif draw < 0.20 and last is not None:
                await self._repeated(connection, "vote", person, last[0], (last[1] + 1) % 3)
            else:
                tasks = await self._repeated(connection, "vote", person, item, label)
                last = item, label
        connection.close()

    async def _rest(self, connection: Connection, person: str) -> Connection:
        await asyncio.sleep(0.1)
        connection.close()  # the server may have come back at another port
        return self.connect(person)

    async def _repeated(
        self, connection: Connection, kind: str, person: str, item: str, label: int
    ) -> list[dict[str, Any]]:
        """Vote or undo until there is an answer; the next tasks."""
        request = f"{kind}-{person}-{len(self.ledger.sent)}"
        number = self.ledger.send(Operation(kind, person, item, label, request))
        body: dict[str, Any] = {"request_id": request}
        if kind == "vote":
            body |= {"item": item, "label": label, "seconds": 1.0, "n": 2}
        while not self.halted:
            try:
                status, answer = await self.call(
                    connection, "POST", f"{BASE}/{'votes' if kind == 'vote' else 'undo'}", body
                )
            except OSError:
                await asyncio.sleep(0.03)
                continue
            if status >= 500:
                await asyncio.sleep(0.1)
                continue
            if status == 200:
                self.ledger.acknowledge(number, answer["vote"]["id"] if kind == "vote" else "")
            found: list[dict[str, Any]] = answer["next"]["tasks"] if status == 200 and kind == "vote" else []
            return found
        return []

    async def _skip(self, connection: Connection, person: str, item: str) -> list[dict[str, Any]]:
        answer = await self._once(connection, Operation("skip", person, item), "POST", "skip", {"item": item, "n": 2})
        found: list[dict[str, Any]] = [] if answer is None else answer["tasks"]
        return found

    async def _once(
        self,
        connection: Connection,
        operation: Operation,
        method: str,
        path: str,
        body: Any,
        kind: str = "application/json",
    ) -> Any:
        """Send an operation once; the answer if it was done, else None."""
        number = self.ledger.send(operation)
        try:
            status, answer = await self.call(connection, method, f"{BASE}/{path}", body, kind)
        except OSError:
            return None
        if status not in (200, 204):
            return None
        self.ledger.acknowledge(number)
        return answer if answer is not None else {}

    async def lead(self, rng: np.random.Generator) -> None:
        """The lead, until `halted`."""
        connection = self.connect("lead")
        while not self.halted:
            await asyncio.sleep(float(rng.uniform(0.02, 0.6)))
            draw, item = rng.random(), f"m{rng.integers(0, ITEMS)}"
            before = len(self.ledger.acknowledged)
            if draw < 0.4:
                label = int(rng.integers(0, 3))
                done = await self._once(
                    connection,
                    Operation("decide", "lead", item, label),
                    "POST",
                    "decisions",
                    {"item": item, "label": label},
                )
                self.decided += [] if done is None else [item]
            elif draw < 0.55 and self.decided:
                item = self.decided.pop(int(rng.integers(0, len(self.decided))))
                await self._once(connection, Operation("reopen", "lead", item), "POST", "reopen", {"item": item})
            elif draw < 0.75:
                value = 0.2 + 1e-7 * (1 + len(self.ledger.sent))
                await self._once(
                    connection,
                    Operation("settings", "lead", value=value),
                    "PATCH",
                    "settings",
                    {"lease_minutes": value},
                )
            else:
                await self._import(connection, rng)
            if len(self.ledger.acknowledged) == before:
                connection = await self._rest(connection, "lead")
        connection.close()

    async def _import(self, connection: Connection, rng: np.random.Generator) -> None:
        name = f"import-{len(self.ledger.sent)}"
        kind, body = multipart("file", "votes.csv", import_table(name, rng))
        await self._once(
            connection,
            Operation("import", "lead", request=name, value=IMPORT_LINES),
            "POST",
            "import-votes",
            body,
            kind,
        )


def import_table(annotator: str, rng: np.random.Generator) -> str:
    """Votes of another tool on a few items, as CSV."""
    items = rng.choice(ITEMS, IMPORT_LINES, replace=False)
    lines = (f"m{item},{annotator},{CLASSES[rng.integers(0, len(CLASSES))]}" for item in items)
    return "\n".join(["item,annotator,label", *lines, ""])


def multipart(part: str, name: str, text: str) -> tuple[str, bytes]:
    """A form with one file: content type and body."""
    edge = "torture-boundary"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="{part}"; filename="{name}"\r\nContent-Type: text/csv\r\n\r\n'
    return f"multipart/form-data; boundary={edge}", f"{head}{text}\r\n--{edge}--\r\n".encode()


@contextlib.asynccontextmanager
async def at_work(crowd: Crowd, seed: np.random.SeedSequence, annotators: int) -> AsyncIterator[None]:
    """Everybody works until the block ends; what was sent before is waited for."""
    names = [name for name in crowd.tokens if name != "lead"][:annotators]
    children = [np.random.default_rng(one) for one in seed.spawn(annotators + 1)]
    work: list[Awaitable[None]] = [crowd.annotate(name, rng) for name, rng in zip(names, children, strict=False)]
    tasks = [asyncio.ensure_future(one) for one in [*work, crowd.lead(children[-1])]]
    try:
        yield
    finally:
        crowd.halted = True
        await asyncio.wait(tasks, timeout=ANSWER_SECONDS)
        for task in tasks:
            task.cancel()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, Exception):
                raise done


async def until(condition: Callable[[], Awaitable[bool]], seconds: float, pause: float = 0.05) -> bool:
    """Wait for a condition; whether it came in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if await condition():
            return True
        await asyncio.sleep(pause)
    return False
