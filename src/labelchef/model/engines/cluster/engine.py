"""Sweeps over rows that the workers of a Dask cluster hold: one task for each worker and operation, sums come back.

part p of X            a future of Dask on one worker (`parts.open_part`); made again by Dask where its worker dies
sums over rows         of every part, added in the order of the parts; (D, D) sums by each worker, exactly (`sums.py`)
labels                 sent where they have changed, and kept by the workers
row arrays             NumPy arrays of this process; the logits of the last sweep stay on the workers, too
"""

import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.errors import LabelchefError
from labelchef.base.stopping_work import go_on
from labelchef.model.engines.cluster import parts
from labelchef.model.engines.cluster.parts import Reply, cut_rows, shared_out
from labelchef.model.engines.cluster.sums import added
from labelchef.model.engines.cluster.workers import TasksLostError, connect
from labelchef.model.engines.host import HostEngine, Rows
from labelchef.model.engines.protocol import Pace, RowLabels
from labelchef.model.features import ArrayFeatures, Features

_LABEL_SETS = 3  # the true labels, those that look-ahead assumes, those of a fold
_LOOK_SECONDS = 1.0  # between two looks at who is there
_KEPT_SWEEPS = 64
_TRIES = 20  # of an operation whose workers die all at once


@dataclass(frozen=True)
class _Group:
    """The parts of one worker: their numbers, where their rows are, and their futures."""

    worker: str
    numbers: list[int]
    cuts: list[tuple[int, int]]
    futures: list[Any]

    def split(self, array: Any) -> list[Any]:
        """A row array, cut into these parts."""
        return [array[first:last] for first, last in self.cuts]


@dataclass(frozen=True, eq=False)
class _Sent:
    """Labels that workers have, and their futures by worker."""

    labels: RowLabels
    changes: int
    futures: dict[str, Any]


class ClusterEngine(HostEngine):
    """The engine for rows on the workers of a cluster: X as `Features`, or an array of this process, which is sent.

    The rows of `more`, if there are any, come after those of X. `cluster` is an address, or `DaskWorkers`.
    """

    def __init__(
        self,
        X: Features | Floats,
        *,
        bias: bool,
        cluster: Any,
        more: Floats | None = None,
        engine: str = "auto",
        feature_dtype: str | None = None,
    ) -> None:
        X = X if isinstance(X, Features) else ArrayFeatures(X)
        self._more = None if more is None or not len(more) else np.ascontiguousarray(more, dtype=X.wide_dtype)
        after = 0 if self._more is None else len(self._more)
        super().__init__((X.shape[0] + after, X.shape[1]), X.dtype.itemsize, bias=bias)
        self.short_arithmetic = X.dtype != np.float64
        self._X, self._settings = X, (engine, feature_dtype, bias)
        self._parts = cut_rows(X.shape[0], X.row_bytes, after)
        self._workers = connect(cluster) if isinstance(cluster, str) else cluster
        self._turn = threading.RLock()
        self._held: dict[int, Any] = {}
        """Part → its future."""
        self._there: dict[str, int] = {}
        self._shared: list[_Group] = []
        self._looked, self._lost = -np.inf, 0
        self._sent: list[_Sent] = []
        self._made: tuple[Float64s, dict[str, Any]] | None = None
        self._paces: deque[Counter[str]] = deque(maxlen=_KEPT_SWEEPS)

    def _sweep(
        self, labels: RowLabels, K: Float64s, wanted: tuple[bool, ...], logits: Float64s | None
    ) -> tuple[Float64s, Float64s, Float64s, float]:
        columns = [partial(self._labels, labels)] + ([] if logits is None else [partial(self._logits, logits)])
        with self._turn:
            found, replies = self._ask(parts.sweep, K, wanted, columns=columns, timed=True)
            A, Z, sums, losses = zip(*found, strict=True)
            if wanted[0]:
                logits = np.concatenate(A)
                self._made = logits, replies
        none = np.empty((0, labels.Y.shape[1] - 1))
        products = np.concatenate(Z) if wanted[1] else none
        return none if logits is None else logits, products, np.sum(np.stack(sums), axis=0), float(np.sum(losses))

    def gram(self, row_weight: Float64s, step: int = 1) -> Float64s:
        """See `Engine.gram`."""
        self.sweeps += 1.0 / step
        columns = [lambda group: group.split(row_weight)]
        return added(self._ask(parts.gram, step, columns=columns, timed=True, summed=True)[0])

    def row_squares(self) -> Float64s:
        """See `Engine.row_squares`."""
        self.sweeps += 1.0
        return np.concatenate(self._ask(parts.squares)[0])

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_of_rows`: the rows come here."""
        self.sweeps += len(indices) / max(1, self.n_rows)
        rows = Rows(0, np.ascontiguousarray(self._features(indices), dtype=self._X.wide_dtype), None)
        few = RowLabels(labels.Y[indices], labels.weight[indices])
        return self._gradient_of(rows, np.arange(len(indices)), few, W)

    def _features(self, indices: Ints) -> Float64s:
        indices = np.asarray(indices, dtype=np.int64)
        order = np.argsort(indices, kind="stable")
        ends = np.searchsorted(indices[order], [first for first, _ in self._parts] + [self.n_rows])
        inside = [indices[order[ends[n] : ends[n + 1]]] - first for n, (first, _) in enumerate(self._parts)]
        found = np.empty((len(indices), self.n_columns - int(self._bias)))
        if len(indices):
            taken = self._ask(parts.some_rows, columns=[lambda group: [inside[n] for n in group.numbers]])[0]
            found[order] = np.concatenate(taken)[:, : found.shape[1]]
        return found

    def _groups(self) -> Iterator[list[Rows]]:
        raise NotImplementedError("the rows are on the workers")

    def pace(self) -> Pace | None:
        """See `Engine.pace`: of the last sweeps."""
        total = sum(list(self._paces), Counter[str]())
        if not total:
            return None
        slowest = max(total, key=lambda worker: total[worker])
        return Pace(slowest, total[slowest], statistics.median(total.values()), len(total), self._lost)

    def _ask(
        self,
        function: Callable[..., Any],
        *given: Any,
        columns: Sequence[Callable[[_Group], Any]] = (),
        timed: bool = False,
        summed: bool = False,
    ) -> tuple[list[Any], dict[str, Any]]:
        """The result of every part in their order, or, `summed`, of every worker; and the futures of the replies, by worker.

        A column gives what is sent for each part of a group, a list or a future of one.
        """
        go_on()
        with self._turn:
            for left in reversed(range(_TRIES)):
                try:
                    groups, sent = self._ready(), {}
                    for group in groups:
                        asked = (group.futures, function, given, [column(group) for column in columns], summed)
                        sent[group.worker] = self._workers.task(parts.on_parts, *asked, worker=group.worker)
                    replies: list[Reply] = self._workers.results(list(sent.values()))
                    break
                except TasksLostError:
                    self._forget()
                    self._held, self._shared = {}, []
                    if not left:
                        raise
                except BaseException:
                    self._forget()  # a task that failed would fail again
                    raise
            if timed:
                self._paces.append(Counter({reply.worker: reply.seconds for reply in replies}))
        if summed:
            return [reply.results for reply in replies], sent
        every = [one for reply in replies for one in reply.results]
        return [every[at] for at in np.argsort([n for group in groups for n in group.numbers])], sent

    def _forget(self) -> None:
        self._sent, self._made = [], None

    def _labels(self, labels: RowLabels, group: _Group) -> Any:
        """The future of the labels of a group; they are sent where they have changed."""
        known = [one for one in self._sent if one.labels.Y is labels.Y and one.labels.weight is labels.weight]
        sent = known[0] if known and known[0].changes == len(labels.changes) else _Sent(labels, len(labels.changes), {})
        others = [one for one in self._sent if one not in known]
        self._sent = [*others[1 - _LABEL_SETS :], sent]
        if group.worker not in sent.futures:
            given = group.split(labels.Y), group.split(labels.weight)
            sent.futures[group.worker] = self._workers.task(parts.labels_of, *given, worker=group.worker)
        return sent.futures[group.worker]

    def _logits(self, logits: Float64s, group: _Group) -> Any:
        """The reply in which workers made these logits, else the logits themselves."""
        made = self._made
        return made[1][group.worker] if made is not None and made[0] is logits else group.split(logits)

    def _ready(self) -> list[_Group]:
        """The parts by worker; opened, and shared out anew where workers came or went."""
        if self._workers.closed:
            self._workers, self._held, self._shared = self._workers.again(), {}, []
        whole = {n: one for n, one in self._held.items() if one.status not in ("error", "cancelled")}
        if self._shared and len(whole) == len(self._parts) and time.monotonic() < self._looked + _LOOK_SECONDS:
            return self._shared
        there, self._looked = self._workers.awaited(), time.monotonic()
        if there == self._there and self._shared and len(whole) == len(self._parts):
            return self._shared
        self._workers.check_versions(set(there) - set(self._there))
        self._lost += len(set(self._there) - set(there))
        self._there, self._shared = there, []
        self._held = {n: one for n, one in whole.items() if one.status == "finished"}
        self._forget()
        places = self._workers.places(self._held)
        for number, worker in shared_out(len(self._parts), places, there).items():
            if places.get(number) != worker:
                self._held[number] = self._opened(number, worker)
        self._workers.finish(list(self._held.values()))
        places = self._workers.places(self._held)
        for worker in sorted(set(places.values())):
            mine = [n for n in range(len(self._parts)) if places[n] == worker]
            group = _Group(worker, mine, [self._parts[n] for n in mine], [self._held[n] for n in mine])
            self._shared.append(group)
        return self._shared

    def _opened(self, number: int, worker: str) -> Any:
        """The future of a part."""
        (first, last), X, digest = self._parts[number], self._X, ""
        features = X.part(first, last) if first < X.shape[0] or self._more is None else ArrayFeatures(self._more)
        if not features.in_memory:
            try:
                X.check()  # a worker compares its file with itself only
                digest = parts.digest_of(features)
            except (OSError, LabelchefError) as error:
                if getattr(error, "code", "") == "features_changed":  # a file that is missing here may be there
                    raise
        together = X.nbytes / len(self._there)
        return self._workers.task(
            parts.open_part, first, features, digest, self._settings, together, worker=worker, retries=2
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """X and the settings; workers open it again."""
        engine, dtype, bias = self._settings
        where = self._workers.address
        return partial(ClusterEngine, bias=bias, cluster=where, more=self._more, engine=engine, feature_dtype=dtype), (
            self._X,
        )
