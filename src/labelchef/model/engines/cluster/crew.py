"""Who holds which part: sends operations to workers, and replaces workers that die.

Every part has one owner. An operation is sent to the owners of its parts; each answer belongs to the parts it was asked for.
Where a worker is lost, its parts get other owners, which load them and make their row arrays again, and the operation is sent for
these parts alone. A worker that joins takes parts over from those that have more.
"""

import statistics
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from labelchef.base.arrays import Floats
from labelchef.base.errors import InvalidInputError, LabelchefError
from labelchef.base.stopping_work import go_on
from labelchef.model.engines.cluster.holder import Do, Holder, Load, Placing, Reply, Reset, Step, Unload, digest_of
from labelchef.model.engines.cluster.parts import Cut, assigned
from labelchef.model.engines.cluster.workers import (
    Answer,
    ClusterError,
    Holding,
    Limits,
    Member,
    SlowWorkerWarning,
    WorkerLostError,
    Workers,
)
from labelchef.model.engines.protocol import Pace
from labelchef.model.features import ArrayFeatures, Features

_ROOM = 0.8  # of the memory of a worker, for its parts
_DEATHS = 20  # workers that may die during one operation
_SLOW, _SLOW_SECONDS = 3.0, 1.0  # a worker is slow that takes so many times the median, and so much longer in all
_KEPT_SWEEPS = 64
_DEAD_SECONDS = 3.0  # in which a cluster has noticed that a worker is dead
_HUNG_SECONDS = 60.0  # in which one that did not answer is not used, at least


@dataclass
class _Worker:
    """A worker that can hold parts."""

    holding: Holding
    pending: list[Step] = field(default_factory=list)
    """Steps to send with the next message."""
    unsettled: Answer | None = None
    """The answer that was not waited for to its end: its sender was interrupted."""
    doubtful: bool = False
    """Whether a message has failed, so that it is not known which of its steps were done."""


class _Gone:
    """The answer of a worker that is lost."""

    def result(self, timeout: float) -> Any:  # noqa: ARG002
        """Raise."""
        raise WorkerLostError


@dataclass(frozen=True)
class _Answered:
    """What a worker answered for some of its parts."""

    name: str
    parts: tuple[int, ...]
    reply: Reply


class Crew:
    """The workers of one engine. `restore(parts)` are the steps that give parts their labels and row arrays."""

    def __init__(
        self,
        workers: Workers,
        X: Features,
        more: Floats | None,
        cuts: list[Cut],
        placing: Placing,
        limits: Limits,
        restore: Callable[[tuple[int, ...]], list[Step]],
    ) -> None:
        self.workers, self._X, self._more, self._cuts = workers, X, more, cuts
        self._placing, self._limits, self._restore = placing, limits, restore
        self.turn = threading.RLock()
        """One operation at a time."""
        self.owner: dict[int, str] = {}
        """Part → address of the worker that holds it."""
        self.lost = 0
        """Workers that were lost so far."""
        self._there: dict[str, _Worker] = {}
        self._members: dict[str, Member] = {}
        self._settled: set[str] = set()
        self._banned: dict[str, float] = {}
        """Workers that were lost, and until when they are not used: one may come back under its address."""
        self._hung: set[str] = set()
        self._able: dict[int, set[str]] = {cut.number: set() for cut in cuts}
        self._unable: dict[int, str] = {}
        self._looked = -np.inf
        self._paces: deque[dict[str, float]] = deque(maxlen=_KEPT_SWEEPS)
        self._warned: set[str] = set()

    # operations

    def run(
        self, do: Do, parts: Iterable[int], before: Callable[[], None], *, timed: bool
    ) -> list[tuple[tuple[int, ...], Any]]:
        """The operation on these parts: (parts, result) of every message that was answered.

        `before` is called before messages are sent, once the owners are known; `timed` operations are compared (`pace`).
        """
        with self.turn:
            wanted, answers, deaths = set(parts), list[_Answered](), 0
            while True:
                self._settle()
                # what a part has made is gone with its owner, so an answer counts only while that still holds the part
                answers = [one for one in answers if all(self.owner[part] == one.name for part in one.parts)]
                left = wanted - {part for one in answers for part in one.parts}
                if not left:
                    break
                if deaths > _DEATHS:
                    raise ClusterError(
                        f"{deaths} workers of {self.workers.address} died during one operation; expected workers that stay. "
                        "Often they have too little memory: see their logs, start more of them or raise --memory-limit, and "
                        "try again. Nothing was changed"
                    )
                before()
                found, lost = self._ask(do, left)
                answers, deaths = [*answers, *found], deaths + lost
            if timed:
                self._note_pace(answers)
            return [(one.parts, one.reply.result) for one in answers]

    def _ask(self, do: Do, left: set[int]) -> tuple[list["_Answered"], int]:
        """Send the operation to the owners of these parts; their answers, and how many were lost."""
        sent = []
        for name in sorted({self.owner[part] for part in left}):
            mine = tuple(part for part in self.parts_of(name) if part in left)
            each = {part: do.each[part] for part in mine if part in do.each}
            sent.append((name, mine, self._send(name, [replace(do, parts=mine, each=each)])))
        found, lost, failed = [], 0, None
        for name, mine, answer in sent:
            try:
                found.append(_Answered(name, mine, self._await(name, answer)))
            except WorkerLostError:
                self._lose(name)
                lost += 1
            except Exception as error:  # the others are waited for first
                failed = failed or self._explained(error, name)
        if failed is not None:
            raise failed
        return found, lost

    def parts_of(self, name: str) -> tuple[int, ...]:
        """The parts that a worker holds."""
        return tuple(part for part, owner in sorted(self.owner.items()) if owner == name)

    def tell_each(self, step: Callable[[tuple[int, ...]], Step]) -> None:
        """Let every worker do a step for its parts, before its next operation."""
        with self.turn:
            for name, worker in self._there.items():
                worker.pending.append(step(self.parts_of(name)))

    def tell_parts(self, step: Callable[[int], Step | None]) -> None:
        """Let the owner of every part do a step, before its next operation."""
        with self.turn:
            for part, name in self.owner.items():
                told = step(part)
                if told is not None:
                    self._there[name].pending.append(told)

    def pace(self) -> Pace | None:
        """Of the last sweeps; None before the first."""
        total: dict[str, float] = {}
        for seconds in list(self._paces):
            for worker, spent in seconds.items():
                total[worker] = total.get(worker, 0.0) + spent
        if not total:
            return None
        slowest = max(total, key=lambda worker: total[worker])
        return Pace(slowest, total[slowest], statistics.median(total.values()), len(total), self.lost)

    def _note_pace(self, answers: list[_Answered]) -> None:
        seconds: dict[str, float] = {}
        for one in answers:
            seconds[one.name] = seconds.get(one.name, 0.0) + one.reply.seconds
        self._paces.append(seconds)
        pace = self.pace()
        if pace is None or pace.workers < 2 or pace.slowest in self._warned:
            return
        if pace.seconds > _SLOW * pace.median and pace.seconds - pace.median > _SLOW_SECONDS:
            self._warned.add(pace.slowest)
            warnings.warn(
                f"worker {pace.slowest} took {pace.seconds:.1f} s for sweeps that took the median worker {pace.median:.1f} s; "
                "every sweep waits for it. See what else runs there, or leave it out",
                SlowWorkerWarning,
                stacklevel=2,
            )

    # messages

    def _send(self, name: str, steps: list[Step]) -> Answer:
        worker = self._there[name]
        if worker.unsettled is not None:  # messages are answered in the order in which they are sent
            try:
                self._await(name, worker.unsettled)
            except WorkerLostError:
                return _Gone()
            except Exception:
                worker.doubtful = True
        if worker.doubtful:
            mine = self.parts_of(name)
            worker.pending = [Reset(mine), *self._restore(mine), *worker.pending]
            worker.doubtful = False
        pending, worker.pending = worker.pending, []
        worker.unsettled = worker.holding.call("do", [*pending, *steps])
        return worker.unsettled

    def _await(self, name: str, answer: Answer) -> Reply:
        """The answer of a worker; lost is one that is no longer a member, or that does not answer in time."""
        until = time.monotonic() + self._limits.call
        while True:
            try:
                reply: Reply = answer.result(min(self._limits.look, max(0.01, until - time.monotonic())))
            except TimeoutError:
                go_on()
                if time.monotonic() > until:
                    warnings.warn(
                        f"worker {name} has not answered for {self._limits.call:g} s and is treated as dead",
                        SlowWorkerWarning,
                        stacklevel=2,
                    )
                    self._hung.add(name)
                    raise WorkerLostError(name) from None
                if name not in self.workers.members():
                    raise WorkerLostError(name) from None
            except WorkerLostError:
                raise
            except Exception:
                self._there[name].unsettled, self._there[name].doubtful = None, True
                raise
            else:
                self._there[name].unsettled = None
                return reply

    def _explained(self, error: Exception, name: str) -> Exception:
        if isinstance(error, LabelchefError):
            return error
        if isinstance(error, MemoryError):
            return ClusterError(
                f"worker {name} has no memory left ({error}); start more workers, or workers with more memory, and try again. "
                "Nothing was changed"
            )
        told = ClusterError(f"worker {name} failed: {type(error).__name__}: {error}")
        told.__cause__ = error
        return told

    # who holds what

    def _lose(self, name: str) -> None:
        """A worker is gone: its parts have no owner."""
        self.lost += 1
        wait = max(_HUNG_SECONDS, self._limits.call) if name in self._hung else _DEAD_SECONDS
        self._banned[name] = time.monotonic() + wait
        self._there.pop(name, None)
        self._members.pop(name, None)
        self.owner = {part: owner for part, owner in self.owner.items() if owner != name}
        self._looked = -np.inf

    def _look(self) -> None:
        """See who is there; workers that went away are lost."""
        if time.monotonic() - self._looked < self._limits.look:
            return
        if self.workers.closed:
            self._connect_again()
        now = time.monotonic()
        self._banned = {name: until for name, until in self._banned.items() if until > now}
        members = {name: one for name, one in self.workers.members().items() if name not in self._banned}
        if new := set(members) - set(self._members):
            self.workers.check_versions(new)
        for name in set(self._there) - set(members):
            self._lose(name)
        self._members, self._looked = members, time.monotonic()

    def _connect_again(self) -> None:
        """The connection was lost, and with it all holders: they are made again, and load their parts again."""
        self.workers = self.workers.again()
        self._there, self.owner, self._members, self._banned, self._settled = {}, {}, {}, {}, set()
        self._able, self._unable = {cut.number: set() for cut in self._cuts}, {}

    def _settle(self) -> None:
        """Every part has an owner that holds it with all its row arrays; new workers take parts over."""
        self._look()
        if len(self.owner) == len(self._cuts) and self._settled == set(self._members):
            return
        until, lost = time.monotonic() + self._limits.wait, self.lost
        most = self.lost + _DEATHS
        while True:
            go_on()
            missing = self._try_to_settle() if self._members else "no worker is there"
            if missing is None:
                self._settled = set(self._members)
                return
            if lost < self.lost <= most:  # somebody was there: others may come
                until, lost = time.monotonic() + self._limits.wait, self.lost
            if time.monotonic() > until:
                raise ClusterError(
                    f"{missing}, and none came within {self._limits.wait:g} s. Cluster: {self.workers.address}. Start workers "
                    "(`dask worker ADDRESS`) and try again. Nothing was changed"
                )
            time.sleep(0.1)
            self._looked = -np.inf
            self._look()

    def _try_to_settle(self) -> str | None:
        """Give parts to workers and let them load; what is missing, None if nothing is."""
        for name in sorted(set(self._members) - set(self._there)):
            try:
                holding = self.workers.start(name, Holder, self._placing, self._members[name].threads)
                self._there[name] = _Worker(holding)
                self._probe(name)
            except WorkerLostError:
                self._lose(name)
                return f"worker {name} went away"
            except BaseException:
                self._there.pop(name, None)  # what it can open is not known
                raise
        power = {name: float(max(1, self._members[name].threads)) for name in self._there}
        able = {} if self._X.in_memory else {part: frozenset(names) for part, names in self._able.items()}
        wanted = assigned(self._cuts, self.owner, power, able)
        if lacking := [cut for cut in self._cuts if cut.number not in wanted]:
            cut = lacking[0]
            raise ClusterError(
                f"rows {cut.first} to {cut.last} of {self._X.what} can be opened by no worker. "
                f"{self._unable.get(cut.number, '')} Bring the file where a worker sees it under this name"
            )
        crowded = self._crowded(wanted)
        return crowded if crowded is not None else self._hand_over(wanted)

    def _hand_over(self, wanted: Mapping[int, str]) -> str | None:
        """Let new owners load parts; the old ones forget them. What is missing, None if nothing is."""
        sent = []
        for name in sorted(set(wanted.values())):
            new = tuple(part for part, owner in wanted.items() if owner == name and self.owner.get(part) != name)
            if new:
                together = float(sum(self._cuts[part].rows for part in new) * self._X.row_bytes)
                loads = [Load(part, self._cuts[part].first, self._part(self._cuts[part]), together) for part in new]
                sent.append((name, new, self._send(name, [*loads, *self._restore(new)])))
        missing, failed = None, None
        for name, new, answer in sent:
            try:
                self._await(name, answer)
            except WorkerLostError:
                self._lose(name)
                missing = f"worker {name} went away"
            except Exception as error:  # the others are waited for first
                failed = failed or self._explained(error, name)
            else:
                for part in new:
                    before = self.owner.get(part)
                    if before is not None:
                        self._there[before].pending.append(Unload([part]))
                    self.owner[part] = name
        if failed is not None:
            raise failed
        return missing

    def _part(self, cut: Cut) -> Features:
        if cut.more:
            assert self._more is not None, "there is such a part"
            return ArrayFeatures(self._more)
        return self._X.part(cut.first, cut.last)

    def _probe(self, name: str) -> None:
        """Which parts a worker can open, where they are files."""
        if self._X.in_memory:
            return
        try:
            self._X.check()  # a worker compares its file with itself only
        except InvalidInputError as error:
            if error.code == "features_changed":  # one that is missing here may be there
                raise
        parts = [self._part(cut) for cut in self._cuts]
        answer: Any = self._await(name, self._there[name].holding.call("probe", parts))
        for cut, part, (digest, why) in zip(self._cuts, parts, answer, strict=True):
            mine = digest_of(part) if digest else ""
            reason = why if not mine or digest == mine else "it holds other numbers there than here"
            if reason:
                self._unable[cut.number] = f"Worker {name} says: {reason}."
            else:
                self._able[cut.number].add(name)

    def _crowded(self, wanted: Mapping[int, str]) -> str | None:
        """Whether the parts of a worker would need more memory than it may take."""
        width = self._X.shape[1] * self._X.wide_dtype.itemsize
        for name, member in self._members.items():
            need = sum(self._cuts[part].rows * width for part, owner in wanted.items() if owner == name)
            if self._X.in_memory and member.memory and need > _ROOM * member.memory:
                return (
                    f"worker {name} would hold {need / 1e9:.2f} GB of X and may take {member.memory / 1e9:.2f} GB, so more "
                    "workers are needed, or workers with a higher --memory-limit"
                )
        return None
