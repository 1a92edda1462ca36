"""Row arrays on workers: how each was made, so that a part of it can be made again.

A `Node` is an operation on every part, with the row arrays that it needs; a `RowHandle` is one of its results. A worker keeps a
result while there is a handle of it. Where a worker dies, others load its parts and repeat the operations behind all handles,
each exactly as it was: the same columns together, the same order of sums. The numbers are the same, bit by bit.

    forward     A = X W, Z = X V     the products of a sweep; both columns are multiplied at once, as they were
    combine     a + t b
    given       a NumPy array of the driver
    call        what a function makes of row arrays (`OnParts`)
    zeros, curvature, scores, expected, squares      see `Engine`
"""

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from labelchef.base.arrays import Ints

if TYPE_CHECKING:
    from labelchef.model.engines.cluster.engine import ClusterEngine

_FEW = 1 << 20  # numbers

Key = tuple[str, int]
"""The name of a row array on workers: its node, and which of the results of it."""


@dataclass(frozen=True, eq=False)
class Node:
    """An operation: its name, numbers, and the row arrays that it reads."""

    operation: str
    values: dict[str, Any] = field(default_factory=dict, repr=False)
    reads: tuple["Output", ...] = field(default=(), repr=False)
    labels: int | None = None
    """The label set that it reads."""
    state: int = 0
    """How often that label set had changed then."""
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, eq=False)
class Output:
    """One of the results of an operation."""

    node: Node
    place: int = 0

    @property
    def key(self) -> Key:
        """Its name on workers."""
        return self.node.name, self.place


class FewRows:
    """The rows that were fetched last: a round asks for some of them again and again, and each message takes milliseconds."""

    def __init__(self) -> None:
        self._rows: Ints = np.empty(0, dtype=np.int64)
        self._values: Any = None

    def find(self, rows: Ints) -> Any:
        """The values of these rows; None unless all of them are known."""
        if self._values is None:
            return None
        at = np.minimum(np.searchsorted(self._rows, rows), len(self._rows) - 1)
        return self._values[at] if np.array_equal(self._rows[at], rows) else None

    def keep(self, rows: Ints, values: Any) -> None:
        """Know these rows from now on, and no others; unless they are many."""
        if 0 < np.size(values) <= _FEW:
            self._rows, first = np.unique(rows, return_index=True)
            self._values = values[first]


class RowHandle:
    """A row array whose parts are on workers. See `model.engines.protocol` for what can be done with it."""

    __array_ufunc__ = None  # NumPy leaves `number * handle` to `__rmul__`

    def __init__(self, engine: "ClusterEngine", output: Output, shape: tuple[int, ...]) -> None:
        self.engine, self.output, self.shape = engine, output, shape
        self.few = FewRows()
        engine.follow(self)

    def __len__(self) -> int:
        return self.shape[0]

    def __mul__(self, t: float) -> "Scaled":
        return Scaled(self, float(t))

    __rmul__ = __mul__

    def __add__(self, other: "RowHandle | Scaled") -> "RowHandle":
        scaled = other if isinstance(other, Scaled) else Scaled(other, 1.0)
        return self.engine.combine(self, scaled.of, scaled.times)

    def __sub__(self, other: "RowHandle") -> "RowHandle":
        return self.engine.combine(self, other, -1.0)

    def __getitem__(self, rows: "Ints | slice | list[int]") -> Any:
        """Some rows, as a NumPy array."""
        if isinstance(rows, slice) and rows == slice(None):
            return self.engine.host(self)
        return self.engine.take(self, np.arange(len(self))[rows])

    def __reduce__(self) -> tuple[Any, ...]:
        return RowHandle, (self.engine, self.output, self.shape)


@dataclass(frozen=True)
class Scaled:
    """t · a, until it is added to another row array."""

    of: RowHandle
    times: float


def in_order(outputs: list[Output]) -> list[Node]:
    """All operations behind some row arrays, each after those whose results it reads."""
    found: dict[str, Node] = {}
    waiting = [(output.node, False) for output in reversed(outputs)]
    while waiting:
        node, ready = waiting.pop()
        if node.name in found:
            continue
        if ready:
            found[node.name] = node
        else:
            waiting += [(node, True), *((read.node, False) for read in reversed(node.reads))]
    return list(found.values())
