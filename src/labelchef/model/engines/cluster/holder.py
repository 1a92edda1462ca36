"""What runs in a worker process: the parts that it holds, their row arrays, and the operations on them.

A message is a list of steps, done in their order; the answer is the result of the last. Every step can be repeated without harm.
Each part has an engine of its own kind (`MemoryEngine`, or on a GPU if the worker has one), and the row arrays are of that kind.
"""

import errno
import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.model.engines.cluster.handles import Key
from labelchef.model.engines.cluster.local import local_engine
from labelchef.model.engines.cluster.sums import Rounded, rounded
from labelchef.model.engines.protocol import Engine, RowLabels, SweepSums
from labelchef.model.features import Features

_SAMPLED_ROWS = 1 << 14  # of every k-th row, widened at a time


@dataclass(frozen=True)
class Placing:
    """How parts are held: the settings of the engine."""

    bias: bool
    engine: str = "auto"
    feature_dtype: str | None = None


@dataclass(frozen=True)
class Load:
    """Hold a part from now on; `first` is the number of its first row among all rows."""

    part: int
    first: int
    features: Features
    together: float
    """Bytes of all parts that are to be loaded with it."""


@dataclass(frozen=True)
class Unload:
    """Hold these parts no longer."""

    parts: Sequence[int]


@dataclass(frozen=True)
class Reset:
    """Hold only these parts, without labels and row arrays: what is to be done again after a message that failed."""

    parts: Sequence[int]


@dataclass(frozen=True)
class SetLabels:
    """Labels and weights of a part."""

    labels: int
    part: int
    Y: Float64s
    weight: Float64s


@dataclass(frozen=True)
class ChangeLabels:
    """Labels and weights of some rows of a part, which are counted from its first row."""

    labels: int
    part: int
    rows: Ints
    Y: Float64s
    weight: Float64s


@dataclass(frozen=True)
class CopyLabels:
    """Labels of a part are a row array that it has; weights stay."""

    labels: int
    part: int
    key: Key


@dataclass(frozen=True)
class DropLabels:
    """Forget a label set."""

    labels: int


@dataclass(frozen=True)
class Drop:
    """Forget row arrays."""

    keys: Sequence[Key]


@dataclass(frozen=True)
class Do:
    """An operation on parts; what it makes for each row is kept under `name`, its result for each part is returned."""

    operation: str
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[Key, ...] = ()
    labels: int | None = None
    parts: tuple[int, ...] = ()
    each: Mapping[int, Any] = field(default_factory=dict)
    """What only one part needs."""


Step = Load | Unload | Reset | SetLabels | ChangeLabels | CopyLabels | DropLabels | Drop | Do


@dataclass(frozen=True)
class Reply:
    """The result of the last step, and the seconds that all of them took."""

    result: Any
    seconds: float


@dataclass
class _Part:
    """A part that is held."""

    first: int
    engine: Engine
    labels: dict[int, RowLabels] = field(default_factory=dict)
    arrays: dict[Key, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.engine.n_rows


Made = tuple[tuple[Any, ...], Any]
"""Row arrays, and the result."""


class Holder:
    """The parts of an engine that one worker holds."""

    def __init__(self, placing: Placing, threads: int) -> None:
        os.environ.setdefault("LABELCHEF_THREADS", str(threads))  # one thread a core that this worker was given
        self._placing = placing
        self._parts: dict[int, _Part] = {}

    def do(self, steps: Sequence[Step]) -> Reply:
        """The steps, in their order."""
        began, result = time.perf_counter(), None
        for step in steps:
            try:
                result = self._step(step)
            except OSError as error:  # as it is, it would be taken for a connection that broke
                if error.errno == errno.ENOMEM:
                    raise MemoryError(str(error)) from None
                raise RuntimeError(f"{type(error).__name__}: {error}") from None
        return Reply(result, time.perf_counter() - began)

    def probe(self, parts: Sequence[Features]) -> list[tuple[str, str]]:
        """Of each part: a digest of its first and last row, or '' and why it cannot be read here."""
        return [_digest(part) for part in parts]

    def _step(self, step: Step) -> Any:
        match step:
            case Do():
                return self._do(step)
            case Load():
                if step.part not in self._parts:
                    how = self._placing
                    engine = local_engine(
                        step.features, how.engine, how.feature_dtype, bias=how.bias, together=step.together
                    )
                    self._parts[step.part] = _Part(step.first, engine)
            case Unload():
                for number in step.parts:
                    self._parts.pop(number, None)
            case Reset():
                self._parts = {number: part for number, part in self._parts.items() if number in step.parts}
                for part in self._parts.values():
                    part.labels.clear()
                    part.arrays.clear()
            case SetLabels():
                # copies: what came with a message may be read-only
                labels = RowLabels(np.array(step.Y), np.array(step.weight))
                self._parts[step.part].labels[step.labels] = labels
            case ChangeLabels():
                labels = self._parts[step.part].labels[step.labels]
                labels.Y[step.rows], labels.weight[step.rows] = step.Y, step.weight
                labels.changes.append(step.rows)
            case CopyLabels():
                mine = self._parts[step.part]
                mine.labels[step.labels].Y[:] = mine.engine.host(mine.arrays[step.key])
                mine.labels[step.labels].changes.append(np.arange(mine.rows))
            case DropLabels():
                for part in self._parts.values():
                    part.labels.pop(step.labels, None)
            case Drop():
                for part in self._parts.values():
                    for key in step.keys:
                        part.arrays.pop(key, None)
        return None

    def _do(self, do: Do) -> Any:
        if do.operation in _MERGED:
            return _MERGED[do.operation]([(self._parts[number], do, do.each.get(number)) for number in do.parts])
        results = []
        for number in do.parts:
            part = self._parts[number]
            made, result = _OPERATIONS[do.operation](part, do, do.each.get(number))
            part.arrays.update({(do.name, place): array for place, array in enumerate(made) if array is not None})
            results.append(result)
        return results


def _digest(part: Features) -> tuple[str, str]:
    try:
        rows = np.ascontiguousarray(part.take([0, part.shape[0] - 1]))
    except Exception as error:  # whatever a file system or a format says
        return "", f"{type(error).__name__}: {error}"
    return hashlib.sha256(rows.tobytes()).hexdigest()[:16], ""


def digest_of(part: Features) -> str:
    """What a worker that reads the same numbers answers to `Holder.probe`; '' where they cannot be read here."""
    return _digest(part)[0]


def _read(part: _Part, do: Do) -> list[Any]:
    return [part.arrays[key] for key in do.reads]


def _sweep(part: _Part, do: Do, _: Any) -> Made:
    """A sweep; its results are the sums as one array (m, D), gradient first, and the loss."""
    found = _swept(part, do, part.labels[do.labels if do.labels is not None else -1])
    sums = [M for M in (found.gradient, found.hessian_product) if M is not None]
    joined = np.vstack(sums) if sums else np.empty((0, part.engine.n_columns))
    return (None if do.values["W"] is None else found.logits, found.products), (joined, found.loss)


def _forward(part: _Part, do: Do, _: Any) -> Made:
    """The row arrays of a sweep, made again."""
    k = len(do.values["W"] if do.values["W"] is not None else do.values["V"])
    n = part.rows
    found = _swept(part, do, RowLabels(np.empty((n, k + 1)), np.empty(n)), sums=False)
    return (None if do.values["W"] is None else found.logits, found.products), None


def _swept(part: _Part, do: Do, labels: RowLabels, *, sums: bool = True) -> SweepSums:
    given, engine = do.values, part.engine
    W, V = (None if M is None else np.array(M) for M in (given["W"], given["V"]))
    logits = _read(part, do)[0] if do.reads else None
    if W is None and logits is None:  # only the products of V are wanted
        logits = engine.zeros(labels.Y.shape[1] - 1)
    return engine.sweep(
        labels,
        W=W,
        logits=logits,
        V=V,
        gradient=sums and given["gradient"],
        hessian_product=sums and given["hessian_product"],
        roughly=given["roughly"],
    )


def _combine(part: _Part, do: Do, _: Any) -> Made:
    if (do.name, 0) in part.arrays:
        return (), None
    a, b = _read(part, do)
    t = do.values["t"]
    return (a - b if t == -1.0 else a + t * b,), None


def _given(part: _Part, _: Do, each: Any) -> Made:
    kept = each if each.dtype == np.bool_ else part.engine.place(np.array(each))
    return (np.array(kept) if kept is each else kept,), None


def _zeros(part: _Part, do: Do, _: Any) -> Made:
    return (part.engine.zeros(do.values["columns"]),), None


def _curvature(part: _Part, do: Do, _: Any) -> Made:
    h, Q = part.engine.row_curvature(_labels(part, do), _read(part, do)[0])
    return (h,), Q


def _along(part: _Part, do: Do, _: Any) -> Made:
    logits, products = _read(part, do)
    return (), part.engine.along(_labels(part, do), logits, products, do.values["t"])


def _total(part: _Part, do: Do, _: Any) -> Made:
    step = do.values["step"]
    return (), float(_read(part, do)[0][-part.first % step :: step].sum())


def _scores(part: _Part, do: Do, _: Any) -> Made:
    logits, products, eligible = _read(part, do)
    return part.engine.scores(logits, products, _labels(part, do), eligible), None


def _expected(part: _Part, do: Do, _: Any) -> Made:
    logits, products, eligible = _read(part, do)
    given = do.values
    return part.engine.expected_scores(
        logits, products, _labels(part, do), eligible, given["eta"], given["optimism"]
    ), None


def _squares(part: _Part, _: Do, __: Any) -> Made:
    return (part.engine.row_squares(),), None


def _scores_of(part: _Part, do: Do, rows: Ints) -> Made:
    logits, products = _read(part, do)
    return (), part.engine.scores_of(np.array(rows), logits, products, _labels(part, do))


def _within(part: _Part, do: Do, _: Any) -> Made:
    products, eligible = _read(part, do)
    found = part.engine.within_reach(products, _labels(part, do), eligible, do.values["reach"])
    return (), None if found is None else found + part.first


def _gradient_of_rows(part: _Part, do: Do, rows: Ints) -> Made:
    return (), part.engine.gradient_of_rows(np.array(rows), _labels(part, do), np.array(do.values["W"]))


def _rows(part: _Part, _: Do, rows: Ints) -> Made:
    return (), part.engine.rows(np.array(rows))


def _take(part: _Part, do: Do, rows: Ints) -> Made:
    return (), part.engine.host(_read(part, do)[0][np.array(rows)])


def _whole(part: _Part, do: Do, _: Any) -> Made:
    return (), part.engine.host(_read(part, do)[0])


def _call(part: _Part, do: Do, each: Any) -> Made:
    """A function of rows; see `OnParts.on_parts`."""
    host = part.engine.host
    # what is no array (see `on_parts`) is read as it is
    rows = [host(array) if hasattr(array, "dtype") else array for array in _read(part, do)]
    made, result = do.values["function"](rows, each, *do.values["arguments"])
    return tuple(part.engine.place(one) if isinstance(one, np.ndarray) else one for one in made), result


def _labels(part: _Part, do: Do) -> RowLabels:
    assert do.labels is not None, "the operation reads labels"
    return part.labels[do.labels]


_OPERATIONS: dict[str, Callable[[_Part, Do, Any], Made]] = {
    "sweep": _sweep,
    "forward": _forward,
    "combine": _combine,
    "given": _given,
    "zeros": _zeros,
    "curvature": _curvature,
    "along": _along,
    "total": _total,
    "scores": _scores,
    "expected": _expected,
    "squares": _squares,
    "scores_of": _scores_of,
    "within": _within,
    "gradient_of_rows": _gradient_of_rows,
    "rows": _rows,
    "take": _take,
    "whole": _whole,
    "call": _call,
}

Each = tuple[_Part, Do, Any]


def _gram(parts: list[Each]) -> Rounded:
    """The Gram matrices of the parts, added."""
    total: Rounded = {}
    for part, do, _ in parts:
        (h,), step = _read(part, do), do.values["step"]
        rounded(_part_gram(part, h, step), total)
    return total


def _part_gram(part: _Part, h: Any, step: int) -> Float64s:
    engine = part.engine
    if step == 1:
        return np.asarray(engine.host(engine.gram(h)), dtype=np.float64)
    G = np.zeros((engine.n_columns, engine.n_columns))
    rows = np.arange(-part.first % step, part.rows, step)
    for start in range(0, len(rows), _SAMPLED_ROWS):
        some = rows[start : start + _SAMPLED_ROWS]
        B = engine.rows(some) * np.sqrt(engine.host(h[some]))[:, None]
        G += B.T @ B
    return G


def _hessian(parts: list[Each]) -> Rounded:
    total: Rounded = {}
    for part, do, _ in parts:
        rounded(part.engine.hessian(_labels(part, do), _read(part, do)[0]), total)
    return total


def _call_summed(parts: list[Each]) -> Rounded:
    total: Rounded = {}
    for part, do, each in parts:
        rounded(_call(part, do, each)[1], total)
    return total


def _least(parts: list[Each]) -> float:
    """The smallest of the scores, those that are not finite taken as 0."""
    found = []
    for part, do, _ in parts:
        xp, scores = part.engine.xp, _read(part, do)[0]
        found.append(float(xp.where(xp.isfinite(scores), scores, 0.0).min()))
    return min(found)


def _lowest(parts: list[Each]) -> tuple[Ints, ...]:
    """Rows of all these parts whose score exceeds the `count`-th smallest by `slack` at most, and their values."""
    found = []
    for part, do, _ in parts:
        scores, *others = _read(part, do)
        rows = part.engine.lowest(scores, do.values["count"], do.values["slack"])
        host = part.engine.host
        found.append((rows + part.first, host(scores[rows]), *(host(other[rows]) for other in others)))
    columns = tuple(np.concatenate(column) for column in zip(*found, strict=True))
    return nearest(columns, parts[0][1].values["count"], parts[0][1].values["slack"])


def nearest(columns: tuple[Any, ...], count: int, slack: float) -> tuple[Any, ...]:
    """Those rows whose score, the second column, exceeds the `count`-th smallest by `slack` at most; all are finite."""
    scores = columns[1]
    if len(scores) > count:
        inside = scores <= np.partition(scores, count - 1)[count - 1] + slack
        columns = tuple(column[inside] for column in columns)
    return columns


_MERGED: dict[str, Callable[[list[Each]], Any]] = {
    "gram": _gram,
    "hessian": _hessian,
    "call_summed": _call_summed,
    "least": _least,
    "lowest": _lowest,
}
