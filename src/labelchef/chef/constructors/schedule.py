"""The rows of each mini-batch, which depend on the seed only, and the steps of a descent along them.

An epoch assigns the batch numbers 0, 0, …, 1, 1, … to the rows in random order. Batch sizes differ by one row at most: a
small batch at the end would make the last step of every epoch the noisiest. The rows of a batch are read in ascending
order, so that memory is read forwards.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from labelchef.base.arrays import Float64s, Floats, Ints

_KEPT_BYTES = 256 << 20  # batch numbers of all epochs are kept up to this size, and drawn again above it

Numbers: TypeAlias = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Schedule:
    """Mini-batches, of `minibatch` rows at most, of every step t = epoch · steps_per_epoch + batch.

    >>> schedule = Schedule(n_rows=5, minibatch=2, epochs=3, seed=0)
    >>> schedule.steps_per_epoch, schedule.steps, [len(schedule.rows(t)) for t in range(3)]
    (3, 9, [1, 2, 2])
    """

    n_rows: int
    minibatch: int
    epochs: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch."""
        return -(-self.n_rows // self.minibatch)

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.epochs * self.steps_per_epoch

    @property
    def sizes(self) -> Ints:
        """Rows of each batch of an epoch."""
        return np.diff(self._starts)

    def numbers(self, epoch: int) -> Numbers:
        """The batch number of every row in an epoch."""
        return self._numbers[epoch] if self._numbers is not None else _remembered(self, epoch)

    def rows(self, step: int) -> Ints:
        """The rows of a step's batch, ascending."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        return np.flatnonzero(self.numbers(epoch) == batch)

    def epoch(self, epoch: int) -> list[Ints]:
        """All batches of an epoch."""
        order = np.argsort(self.numbers(epoch), kind="stable")
        return np.split(order, self._starts[1:-1])

    def steps_of(self, rows: Ints) -> Ints:
        """(epochs, n): the step at which each row is met in each epoch."""
        met = np.array([self.numbers(epoch)[rows] for epoch in range(self.epochs)], dtype=np.int64)
        return met + np.arange(self.epochs)[:, None] * self.steps_per_epoch

    @cached_property
    def _numbers(self) -> Numbers | None:
        if self.n_rows * self.epochs * self._dtype.itemsize > _KEPT_BYTES:
            return None
        return np.array([self._drawn(epoch) for epoch in range(self.epochs)], dtype=self._dtype)

    @cached_property
    def _starts(self) -> Ints:
        """Where each batch begins in an epoch, and where the last ends."""
        return np.arange(self.steps_per_epoch + 1) * self.n_rows // self.steps_per_epoch

    @property
    def _dtype(self) -> "np.dtype[np.unsignedinteger]":
        return np.dtype(np.min_scalar_type(self.steps_per_epoch - 1))

    def _drawn(self, epoch: int) -> Numbers:
        numbers = np.repeat(np.arange(self.steps_per_epoch, dtype=self._dtype), self.sizes)
        np.random.default_rng([self.seed, epoch]).shuffle(numbers)
        return numbers


@lru_cache(maxsize=2)
def _remembered(schedule: Schedule, epoch: int) -> Numbers:
    """The epochs drawn last, where not all are kept: consecutive steps use the same epoch."""
    return schedule._drawn(epoch)


@dataclass(frozen=True)
class Trajectory:
    """A descent from w_0 = 0: its schedule, its learning rate, and its gradients and parameters.

    `gradients` (T, k, D) are g_t, `ends` (epochs + 1, k, D) the parameters after each epoch, both in the coordinates
    of `model.contrasts`.
    """

    schedule: Schedule
    rate: float
    smoothness: float
    l2: float
    gradients: Floats
    ends: Float64s
    explicit: int
    """Steps whose gradient was computed on the mini-batch."""
    fell_back: int = 0
    """Those among them that were not planned to be."""
