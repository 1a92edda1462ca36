"""Sweeps over rows that many workers hold: one message to each worker an operation, sums come back.

    part p of X, its row arrays       on one worker (`crew.py`)
    sums over rows                    of every part, added in the order of the parts
    (D, D) sums                       added by each worker without an error of order (`sums.py`)
    labels                            sent once, then the rows that changed; what workers made themselves is not sent back
    row arrays                        stay on the workers; the driver has handles (`handles.py`)

Where a worker dies, other workers load its parts, make the row arrays of these parts again, and repeat the operation for these
parts alone. Every result belongs to a part, so nothing is counted twice, and sums are the same bit by bit.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Floats, Ints
from labelchef.base.stopping_work import go_on
from labelchef.model.engines.cluster.crew import Crew
from labelchef.model.engines.cluster.handles import FewRows, Key, Node, Output, RowHandle, in_order
from labelchef.model.engines.cluster.holder import (
    ChangeLabels,
    CopyLabels,
    Do,
    Drop,
    DropLabels,
    Placing,
    SetLabels,
    Step,
    nearest,
)
from labelchef.model.engines.cluster.parts import cut_rows
from labelchef.model.engines.cluster.sums import added
from labelchef.model.engines.cluster.workers import Limits, Workers, connect
from labelchef.model.engines.memory import MemoryEngine
from labelchef.model.engines.protocol import Engine, OnParts, Pace, Pair, RowLabels, Shortlist, SweepSums
from labelchef.model.features import ArrayFeatures, Features

Result = TypeVar("Result")

_LABEL_SETS = 3  # the true labels, those that look-ahead assumes, those of a fold
_MANY = 0.25  # share of changed rows from which all labels of a part are sent
_MOST_OUTPUTS = 3  # of an operation


@dataclass
class _Mirror:
    """A label set that workers have."""

    host: RowLabels
    number: int
    seen: int
    weight: Float64s
    """As it was sent."""


class ClusterEngine(Engine):
    """The engine for rows on the workers of a cluster: X as `Features`, or an array of this process, which is sent.

    The rows of `more`, if there are any, come after those of X. Selections do not depend on the number of workers. Small matrices
    are NumPy arrays of this process.
    """

    xp = np

    def __init__(
        self,
        X: Features | Floats,
        *,
        bias: bool,
        cluster: str | Workers,
        more: Floats | None = None,
        engine: str = "auto",
        feature_dtype: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        X = X if isinstance(X, Features) else ArrayFeatures(X)
        more = None if more is None or not len(more) else np.ascontiguousarray(more, dtype=X.wide_dtype)
        after = 0 if more is None else len(more)
        super().__init__((X.shape[0] + after, X.shape[1]), X.dtype.itemsize, bias=bias)
        self.short_arithmetic = X.dtype != np.float64
        self._X, self._more = X, more
        self._placing, self._limits = Placing(bias, engine, feature_dtype), limits or Limits()
        self._cuts = cut_rows(X.shape[0], X.row_bytes, after)
        self._firsts = np.array([cut.first for cut in self._cuts])
        workers = cluster if isinstance(cluster, Workers) else connect(cluster)
        self._crew = Crew(workers, X, more, self._cuts, self._placing, self._limits, self._restore)
        self._here = MemoryEngine(np.zeros((1, 1)), bias=False)
        self._mirrors: list[_Mirror] = []
        self._sets = 0
        self._live: weakref.WeakValueDictionary[Key, RowHandle] = weakref.WeakValueDictionary()
        self._dropped: deque[Key] = deque()
        self._eligible: tuple[Bools, RowHandle] | None = None
        self._fetched: tuple[Float64s, RowHandle] | None = None
        self._few_rows = FewRows()

    # row arrays

    def follow(self, handle: RowHandle) -> None:
        """Keep the row array of a handle on the workers while there is the handle."""
        key = handle.output.key
        self._live[key] = handle
        weakref.finalize(handle, self._dropped.append, key).atexit = False

    def combine(self, a: RowHandle, b: RowHandle, t: float) -> RowHandle:
        """a + t·b; sent with the next operation."""
        node = Node("combine", {"t": t}, (a.output, b.output))
        return self._later(node, a.shape)

    def _later(self, node: Node, shape: tuple[int, ...]) -> RowHandle:
        with self._crew.turn:
            self._crew.tell_each(partial(self._do, node))
            return RowHandle(self, Output(node), shape)

    def take(self, handle: RowHandle, rows: Ints) -> Any:
        """Some rows of a row array."""
        known = handle.few.find(rows)
        if known is not None:
            return known
        (found,) = self._few(Do("take", reads=(handle.output.key,)), rows)
        found = np.empty((0, *handle.shape[1:])) if found is None else found
        handle.few.keep(rows, found)
        return found

    def host(self, array: Any) -> Any:
        """See `Engine.host`: all rows are sent here."""
        if not isinstance(array, RowHandle):
            return array
        results = self._each(Do("whole", reads=(array.output.key,)))
        return np.concatenate([results[cut.number] for cut in self._cuts])

    def on_workers(self) -> OnParts:
        """See `Engine.on_workers`."""
        return self

    def fetched(self, array: RowHandle) -> Float64s:
        """See `OnParts.fetched`."""
        found: Float64s = self.host(array)
        self._fetched = found, array
        return found

    def zeros(self, columns: int) -> RowHandle:
        """See `Engine.zeros`."""
        return self._later(Node("zeros", {"columns": columns}), (self.n_rows, columns))

    def _handles(self, *arrays: Any) -> list[RowHandle]:
        """Row arrays of the workers; NumPy arrays are sent. Keep the handles until the operation that reads them is done."""
        return [array if isinstance(array, RowHandle) else self._sent(np.asarray(array)) for array in arrays]

    def _sent(self, array: Any) -> RowHandle:
        return self._later(Node("given", {"array": array}), array.shape)

    def _mask(self, eligible: Bools) -> RowHandle:
        """The eligible rows; kept, because a round needs them several times."""
        if self._eligible is None or self._eligible[0] is not eligible:
            self._eligible = (eligible, self._sent(eligible.copy()))
        return self._eligible[1]

    # sweeps

    def sweep(
        self,
        labels: RowLabels,
        *,
        W: Float64s | None = None,
        logits: Any = None,
        V: Float64s | None = None,
        gradient: bool = False,
        hessian_product: bool = False,
        roughly: bool = False,
    ) -> SweepSums:
        """See `Engine.sweep`."""
        go_on()
        k = labels.Y.shape[1] - 1
        (given,) = (None,) if logits is None else self._handles(logits)
        forward = {"W": W, "V": V, "roughly": roughly}
        node = Node("forward", {**forward, "gradient": False, "hessian_product": False})
        values = {**forward, "gradient": gradient, "hessian_product": hessian_product}
        with self._crew.turn:
            number = self._labels(labels)
            reads = () if given is None else (given.output.key,)
            results = self._each(Do("sweep", node.name, values, reads, number), timed=True)
            shape = (self.n_rows, k)
            found = given if W is None else RowHandle(self, Output(node, 0), shape)
            products = None if V is None else RowHandle(self, Output(node, 1), shape)
        self.sweeps += 1.0
        sums = np.sum(np.stack([results[cut.number][0] for cut in self._cuts]), axis=0)
        return SweepSums(
            logits=found,
            products=products,
            loss=float(np.sum([results[cut.number][1] for cut in self._cuts])),
            gradient=sums[:k] if gradient else None,
            hessian_product=sums[len(sums) - k :] if hessian_product else None,
        )

    def _sweep(self, labels: RowLabels, K: Float64s, wanted: tuple[bool, ...], logits: Any) -> Any:
        raise NotImplementedError("`sweep` itself is done by the workers")

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_of_rows`."""
        self.sweeps += len(indices) / max(1, self.n_rows)
        with self._crew.turn:
            do = Do("gradient_of_rows", values={"W": W}, labels=self._labels(labels))
            results = self._each(do, self._split(indices)[0])
        return np.asarray(sum((results[part] for part in sorted(results)), np.zeros(W.shape)))

    def _features(self, indices: Ints) -> Float64s:
        indices = np.asarray(indices)
        known = self._few_rows.find(indices)
        if known is not None:
            return np.asarray(known)
        (found,) = self._few(Do("rows"), indices)
        d = self.n_columns - int(self._bias)
        found = np.empty((0, d)) if found is None else found[:, :d]
        self._few_rows.keep(indices, found)
        return found

    def gram(self, row_weight: Any, step: int = 1) -> Float64s:
        """See `Engine.gram`."""
        self.sweeps += 1.0 / step
        kept = self._handles(row_weight)
        return added(self._merged(Do("gram", values={"step": step}, reads=_keys(kept)), timed=True))

    def hessian(self, labels: RowLabels, logits: RowHandle) -> Float64s:
        """See `Engine.hessian`."""
        k = labels.Y.shape[1] - 1
        self.sweeps += 0.5 * k * (k + 1)
        with self._crew.turn:
            kept = self._handles(logits)
            return added(self._merged(Do("hessian", labels=self._labels(labels), reads=_keys(kept)), timed=True))

    def row_squares(self) -> RowHandle:
        """See `Engine.row_squares`."""
        self.sweeps += 1.0
        node = Node("squares")
        self._each(self._do(node))
        return RowHandle(self, Output(node), (self.n_rows,))

    def on_parts(
        self,
        function: Callable[..., tuple[tuple[Any, ...], Any]],
        *,
        reads: Sequence[RowHandle] = (),
        arguments: tuple[Any, ...] = (),
        each: Callable[[int, int], Any] | None = None,
        makes: Sequence[tuple[int, ...]] = (),
        summed: bool = False,
    ) -> tuple[list[RowHandle], Any]:
        """See `OnParts.on_parts`."""
        go_on()
        values = {"function": function, "arguments": arguments, "each": each}
        node = Node("call_summed" if summed else "call", values, tuple(handle.output for handle in reads))
        every = tuple(range(len(self._cuts)))
        do = self._do(node, every)
        if summed:
            return [], added(self._merged(replace(do, parts=())))
        with self._crew.turn:
            results = self._each(do, do.each or None)
            made = [RowHandle(self, Output(node, place), (self.n_rows, *shape)) for place, shape in enumerate(makes)]
        return made, [results[number] for number in every]

    # small matrices, in this process

    def eigh(self, G: Float64s) -> tuple[Float64s, Float64s]:
        """See `Engine.eigh`."""
        return self._here.eigh(G)

    def small_products(self) -> AbstractContextManager[object]:
        """See `Engine.small_products`."""
        return self._here.small_products()

    def secant_solve(self, solve: Callable[[Float64s], Float64s], pairs: tuple[Pair, ...], R: Float64s) -> Float64s:
        """See `Engine.secant_solve`."""
        return self._here.secant_solve(solve, pairs, R)

    # formulas of rows

    def total(self, values: Any, step: int = 1) -> float:
        """See `Engine.total`."""
        kept = self._handles(values)
        results = self._each(Do("total", values={"step": step}, reads=_keys(kept)))
        return float(np.sum([results[cut.number] for cut in self._cuts]))

    def along(self, labels: RowLabels, logits: Any, products: Any, t: float) -> tuple[float, float]:
        """See `Engine.along`."""
        kept = self._handles(logits, products)
        with self._crew.turn:
            results = self._each(Do("along", values={"t": t}, reads=_keys(kept), labels=self._labels(labels)))
        slope, bend = np.sum([results[cut.number] for cut in self._cuts], axis=0)
        return float(slope), float(bend)

    def row_curvature(self, labels: RowLabels, logits: Any) -> tuple[RowHandle, Float64s]:
        """See `Engine.row_curvature`."""
        with self._crew.turn:
            number = self._labels(labels)
            kept = self._handles(logits)
            node = Node("curvature", {}, (kept[0].output,), number, self._state(number))
            results = self._each(self._do(node))
            h = RowHandle(self, Output(node), (self.n_rows,))
        return h, np.sum(np.stack([results[cut.number] for cut in self._cuts]), axis=0)

    def within_reach(self, products: Any, labels: RowLabels, eligible: Bools, reach: float) -> Ints | None:
        """See `Engine.within_reach`."""
        kept = [*self._handles(products), self._mask(eligible)]
        with self._crew.turn:
            results = self._each(Do("within", values={"reach": reach}, reads=_keys(kept), labels=self._labels(labels)))
        listed = [results[cut.number] for cut in self._cuts if results[cut.number] is not None]
        return np.concatenate(listed) if len(listed) == len(self._cuts) else None

    def scores_of(self, indices: Ints, logits: Any, products: Any, labels: RowLabels) -> tuple[Float64s, Ints]:
        """See `Engine.scores_of`."""
        kept = self._handles(logits, products)
        with self._crew.turn:
            best, label = self._few(Do("scores_of", reads=_keys(kept), labels=self._labels(labels)), indices, columns=2)
        return (np.empty(0), np.empty(0, dtype=np.int64)) if best is None else (best, label)

    def scores(self, logits: Any, products: Any, labels: RowLabels, eligible: Bools) -> tuple[RowHandle, RowHandle]:
        """See `Engine.scores`."""
        found = self._scored("scores", {}, (logits, products), labels, eligible)
        return found[0], found[1]

    def expected_scores(
        self, logits: Any, products: Any, labels: RowLabels, eligible: Bools, eta: float, optimism: float
    ) -> tuple[RowHandle, RowHandle, RowHandle]:
        """See `Engine.expected_scores`."""
        values = {"eta": eta, "optimism": optimism}
        found = self._scored("expected", values, (logits, products), labels, eligible)
        return found[0], found[1], found[2]

    def _scored(
        self, operation: str, values: dict[str, Any], arrays: Sequence[Any], labels: RowLabels, eligible: Bools
    ) -> list[RowHandle]:
        kept = [*self._handles(*arrays), self._mask(eligible)]
        with self._crew.turn:
            number = self._labels(labels)
            node = Node(operation, values, tuple(handle.output for handle in kept), number, self._state(number))
            self._each(self._do(node))
            return [RowHandle(self, Output(node, place), (self.n_rows,)) for place in range(2 + bool(values))]

    def lowest(self, scores: Any, count: int, slack: float = 0.0) -> Ints:
        """See `Engine.lowest`."""
        return np.asarray(self._lowest(scores, count, slack)[0])

    def shortlist(self, scores: Any, count: int, tolerance: float, *others: Any) -> Shortlist:
        """See `Engine.shortlist`."""
        (scores,) = self._handles(scores)
        scale = abs(min(self._merged(Do("least", reads=_keys([scores])))))
        rows, values, *more = self._lowest(scores, count, tolerance * scale, *others)
        return Shortlist(rows, values, tuple(more), scale)

    def _lowest(self, scores: Any, count: int, slack: float, *others: Any) -> tuple[Any, ...]:
        kept = self._handles(scores, *others)
        found = self._merged(Do("lowest", values={"count": max(1, count), "slack": slack}, reads=_keys(kept)))
        columns = tuple(np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(columns[0])
        columns = nearest(tuple(column[order] for column in columns), max(1, count), slack)
        return columns if count > 0 else tuple(column[:0] for column in columns)

    def _smallest(self, scores: Any, count: int) -> Any:
        raise NotImplementedError("`lowest` itself is done by the workers")

    def background(self, work: Callable[[], Result]) -> "Future[Result]":
        """See `Engine.background`: a task of any worker."""
        return self._crew.workers.submit(work)

    def pace(self) -> Pace | None:
        """See `Engine.pace`: of the last sweeps."""
        return self._crew.pace()

    # labels

    def _labels(self, labels: RowLabels) -> int:
        """The number of a label set; what workers do not have of it yet goes with the next message."""
        mirror = next((m for m in self._mirrors if m.host.Y is labels.Y and m.host.weight is labels.weight), None)
        if mirror is None:
            self._sets += 1
            mirror = _Mirror(labels, self._sets, len(labels.changes), labels.weight.copy())
            self._crew.tell_parts(partial(self._set_labels, mirror))
        elif mirror.seen < len(labels.changes):
            self._tell_changes(mirror)
        kept = [mirror, *(m for m in self._mirrors if m is not mirror)]
        for old in kept[_LABEL_SETS:]:
            self._crew.tell_each(partial(_forget, old.number))
        self._mirrors = kept[:_LABEL_SETS]
        return mirror.number

    def _tell_changes(self, mirror: _Mirror) -> None:
        """Send rows that changed; those that are what workers have made (`fetched`) are copied there."""
        labels = mirror.host
        rows = labels.changed_since(mirror.seen)
        mirror.seen = len(labels.changes)
        if self._fetched is not None and len(rows) > _MANY * self.n_rows and self._fetched[0].shape == labels.Y.shape:
            Q, handle = self._fetched
            rows = np.flatnonzero((labels.Y != Q).any(axis=1) | (labels.weight != mirror.weight))
            self._crew.tell_parts(lambda part: CopyLabels(mirror.number, part, handle.output.key))
        self._crew.tell_parts(partial(self._change_labels, mirror, rows))
        mirror.weight[rows] = labels.weight[rows]

    def _state(self, number: int) -> int:
        return next(mirror.seen for mirror in self._mirrors if mirror.number == number)

    def _set_labels(self, mirror: _Mirror, part: int) -> SetLabels:
        rows = slice(self._cuts[part].first, self._cuts[part].last)
        return SetLabels(mirror.number, part, mirror.host.Y[rows], mirror.host.weight[rows])

    def _change_labels(self, mirror: _Mirror, rows: Ints, part: int) -> Step | None:
        cut = self._cuts[part]
        mine = rows[np.searchsorted(rows, cut.first) : np.searchsorted(rows, cut.last)]
        if len(mine) == 0:
            return None
        if len(mine) > _MANY * cut.rows:
            return self._set_labels(mirror, part)
        return ChangeLabels(mirror.number, part, mine - cut.first, mirror.host.Y[mine], mirror.host.weight[mine])

    # messages

    def _do(self, node: Node, parts: tuple[int, ...] = ()) -> Do:
        """A node as a step for these parts."""
        values, each = node.values, {}
        if node.operation == "given":
            each = {part: values["array"][self._cuts[part].first : self._cuts[part].last] for part in parts}
            values = {}
        elif (split := values.get("each")) is not None:
            each = {part: split(self._cuts[part].first, self._cuts[part].last) for part in parts}
        values = {name: value for name, value in values.items() if name != "each"}
        reads = tuple(read.key for read in node.reads)
        return Do(node.operation, node.name, values, reads, node.labels, parts, each)

    def _split(self, indices: Ints) -> tuple[dict[int, Ints], dict[int, Ints]]:
        """Of each part that has some of the rows: their numbers in it, and their places among the indices."""
        indices = np.asarray(indices, dtype=np.int64)
        part = np.searchsorted(self._firsts, indices, side="right") - 1
        places = {int(number): np.flatnonzero(part == number) for number in np.unique(part)}
        return {number: indices[at] - self._cuts[number].first for number, at in places.items()}, places

    def _few(self, do: Do, indices: Ints, columns: int = 1) -> list[Any]:
        """The results of an operation on some rows, in the order of the indices; None where there are none."""
        each, places = self._split(indices)
        found: list[Any] = [None] * columns
        for number, result in (self._each(do, each) if each else {}).items():
            for column, values in enumerate(result if columns > 1 else (result,)):
                if found[column] is None:
                    found[column] = np.empty((len(indices), *values.shape[1:]), dtype=values.dtype)
                found[column][places[number]] = values
        return found

    def _each(self, do: Do, each: Mapping[int, Any] | None = None, *, timed: bool = False) -> dict[int, Any]:
        """The result of every part; only of those in `each`, if it is given."""
        parts = range(len(self._cuts)) if each is None else each
        answers = self._run(replace(do, each=each or {}), parts, timed=timed)
        return {part: one for mine, results in answers for part, one in zip(mine, results, strict=True)}

    def _merged(self, do: Do, *, timed: bool = False) -> list[Any]:
        """One result of every message."""
        return [result for _, result in self._run(do, range(len(self._cuts)), timed=timed)]

    def _run(self, do: Do, parts: Iterable[int], *, timed: bool) -> list[tuple[tuple[int, ...], Any]]:
        try:
            return self._crew.run(do, parts, self._drop, timed=timed)
        except BaseException:
            if do.name:
                self._dropped.extend((do.name, place) for place in range(_MOST_OUTPUTS))
            raise

    def _drop(self) -> None:
        """Let workers forget row arrays that no handle needs."""
        keys = []
        while self._dropped:
            key = self._dropped.popleft()
            if key not in self._live:
                keys.append(key)
        if keys:
            self._crew.tell_each(lambda _: Drop(keys))

    def _restore(self, parts: tuple[int, ...]) -> list[Step]:
        """Labels of parts, and all row arrays made again, each as it was made."""
        steps: list[Step] = [self._set_labels(mirror, part) for mirror in self._mirrors for part in parts]
        states = {mirror.number: mirror.seen for mirror in self._mirrors}
        alive = [handle.output for handle in list(self._live.values())]
        nodes = in_order([output for output in alive if _as_made(output, states)])
        steps += [self._do(node, parts) for node in nodes]
        kept = {output.key for output in alive}
        made = [(node.name, place) for node in nodes for place in range(_MOST_OUTPUTS)]
        return [*steps, Drop([key for key in made if key not in kept])]

    def __reduce__(self) -> tuple[Any, ...]:
        """X and the settings; workers load it again."""
        make = partial(
            ClusterEngine,
            bias=self._bias,
            cluster=self._crew.workers.address,
            more=self._more,
            engine=self._placing.engine,
            feature_dtype=self._placing.feature_dtype,
            limits=self._limits,
        )
        return make, (self._X,)


def _keys(handles: Iterable[RowHandle]) -> tuple[Key, ...]:
    return tuple(handle.output.key for handle in handles)


def _as_made(output: Output, states: Mapping[int, int]) -> bool:
    """Whether the labels that a row array was made of are those of now; one of older labels is not needed any more."""
    return all(node.labels is None or states.get(node.labels) == node.state for node in in_order([output]))


def _forget(labels: int, _: tuple[int, ...]) -> DropLabels:
    return DropLabels(labels)
