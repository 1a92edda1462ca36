"""The rows of each mini-batch; they depend on the seed only.

An epoch assigns the batch numbers 0, 0, …, 1, 1, … to the rows in random order. Batch sizes differ by one row at most: a
small batch at the end would make the last step of every epoch the noisiest. The rows of a batch are read in ascending
order, so that memory is read forwards.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from labelchef.domain.arrays import Ints

_KEPT_BYTES = 256 << 20  # batch numbers of all epochs are kept up to this size, and drawn again above it


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

    def size(self, step: int) -> int:
        """Rows of a step's batch."""
        batch = step % self.steps_per_epoch
        return int(self._starts[batch + 1] - self._starts[batch])

    def numbers(self, epoch: int) -> "np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]":
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
        met = [
            self.numbers(epoch)[rows].astype(np.int64) + epoch * self.steps_per_epoch for epoch in range(self.epochs)
        ]
        return np.array(met, dtype=np.int64).reshape(self.epochs, len(rows))

    @cached_property
    def _numbers(self) -> "np.ndarray[tuple[int, int], np.dtype[np.unsignedinteger]] | None":
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

    def _drawn(self, epoch: int) -> "np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]":
        numbers = np.repeat(np.arange(self.steps_per_epoch, dtype=self._dtype), np.diff(self._starts))
        np.random.default_rng([self.seed, epoch]).shuffle(numbers)
        return numbers


@lru_cache(maxsize=2)
def _remembered(schedule: Schedule, epoch: int) -> "np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]":
    """The epochs drawn last, where not all are kept: consecutive steps use the same epoch."""
    return schedule._drawn(epoch)
