"""The state of the training labels: which are weak, which are clean, and which were asked without a decision.

Y (N, C) rows on the simplex; weight (N,) is 1 for clean samples and γ for weak ones. `rows` are the
table's own arrays, not copies: an objective that holds them reads every change.

A weak sample trains as it was given (`Y_weak`, γ), or as a learner believes (`believe`): then every weak sample has a label and
a weight of its own, which may change in every round. An answered sample trains with its class, or, where people are known to
err, with a distribution that weighs the answers (`believe` with `doubted`); `decided` keeps the class either way.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.records import UNRESOLVED, LabelChange
from labelchef.model.engines import RowLabels

Doubted = tuple[Ints, Float64s]
"""Clean samples (m,) that train with distributions (m, C) in the place of their class."""


class LabelTable:
    """Weak labels, with clean labels in place of some of them.

    >>> table = LabelTable(np.array([[0.5, 0.5], [0.9, 0.1]]), gamma=0.8)
    >>> change = table.assign(np.array([1]), np.array([1]))
    >>> table.Y[1].tolist(), table.weight.tolist(), table.cleaned.tolist()
    ([0.0, 1.0], [0.8, 1.0], [False, True])
    """

    def __init__(
        self, Y_weak: Float64s, gamma: float, askable: Bools | None = None, silent: Bools | None = None
    ) -> None:
        self.Y_weak = Y_weak
        self.silent: Bools = np.zeros(len(Y_weak), dtype=bool) if silent is None else silent
        """Copies of other samples: while weak, they are not asked and train with weight 0."""
        self.askable: Bools = ~self.silent if askable is None else askable & ~self.silent
        """Which samples can be asked; the others keep their weak label unless a label is assigned."""
        self._belief: Float64s = Y_weak
        self._belief_weight: Float64s = np.where(self.silent, 0.0, float(gamma))
        self.Y = np.array(Y_weak, dtype=np.float64, order="C")
        self.weight = self._belief_weight.copy()
        self.cleaned: Bools = np.zeros(len(Y_weak), dtype=bool)
        self.decided: Ints = np.full(len(Y_weak), UNRESOLVED)
        """(N,) class ids of clean samples as they were decided, `UNRESOLVED` for the others."""
        self.given: Ints = np.full(len(Y_weak), UNRESOLVED)
        """(N,) class ids of copies of samples whose class is known, which are shown and don't train; `UNRESOLVED` elsewhere."""
        self._doubted: Doubted | None = None
        self.attempts: Ints = np.zeros(len(Y_weak), dtype=np.int16)  # small type: all of it is read at every selection
        self._changes: list[Ints] = []

    @property
    def rows(self) -> RowLabels:
        """The arrays for an objective."""
        return RowLabels(self.Y, self.weight, self._changes)

    @property
    def n_classes(self) -> int:
        """C."""
        return int(self.Y.shape[1])

    def assign(self, indices: Ints, labels: Ints) -> LabelChange:
        """Give samples a clean class id, or take it back to the weak label with `UNRESOLVED`."""
        Y_new = np.eye(self.n_classes)[np.maximum(labels, 0)]
        weak = labels == UNRESOLVED
        Y_new[weak] = self._belief[indices[weak]]
        weight_new = np.where(weak, self._belief_weight[indices], 1.0)
        change = LabelChange(indices, self.Y[indices], self.weight[indices], Y_new, weight_new)
        self.Y[indices], self.weight[indices] = Y_new, weight_new
        self._changes.append(indices)
        self.attempts[indices] += weak & ~self.cleaned[indices]  # taking a label back is not counted as an attempt
        self.cleaned[indices] = ~weak
        self.decided[indices] = labels
        return change

    def believe(self, Q: Float64s, weight: Float64s, doubted: Doubted | None = None) -> None:
        """Let the weak samples train with the labels Q (N, C) and the weights (N,); clean ones with their class.

        The clean samples in `doubted` train with the distributions given there.
        """
        self._belief, self._belief_weight = Q, np.where(self.silent, 0.0, weight)
        weak = ~self.cleaned
        self.Y[weak], self.weight[weak] = Q[weak], self._belief_weight[weak]
        self._changes.append(np.flatnonzero(weak))
        if self._doubted is not None:
            before = self._doubted[0][self.cleaned[self._doubted[0]]]
            self.Y[before] = np.eye(self.n_classes)[self.decided[before]]
            self._changes.append(before)
        self._doubted = doubted
        if doubted is not None:
            self.Y[doubted[0]] = doubted[1]
            self._changes.append(doubted[0])

    @property
    def belief(self) -> tuple[Float64s, Float64s, Doubted | None]:
        """What `believe` was last given: labels and weights of all samples, were they weak, and the doubted clean ones."""
        return self._belief, self._belief_weight, self._doubted

    @property
    def as_given(self) -> Float64s:
        """(N, C) clean labels as decided where there are any, else the weak ones as they were given."""
        return self.shown(np.arange(len(self.Y)))

    def shown(self, indices: Ints) -> Float64s:
        """The same of some samples."""
        known = np.where(self.cleaned[indices], self.decided[indices], self.given[indices])
        return np.where((known >= 0)[:, None], np.eye(self.n_classes)[np.maximum(known, 0)], self.Y_weak[indices])

    @property
    def clean_ids(self) -> Ints:
        """(N,) most probable class ids of clean samples, `UNRESOLVED` for the others: as decided, unless doubted."""
        if self._doubted is None:
            return self.decided.copy()
        return np.where(self.cleaned, self.Y.argmax(axis=1), UNRESOLVED)

    def held(self, indices: Ints) -> tuple[Ints, Ints]:
        """The clean class id of samples, `UNRESOLVED` for weak ones, and how often they were asked without a decision."""
        return self.decided[indices], self.attempts[indices]

    @contextmanager
    def assigned(self, indices: Ints, labels: Ints) -> Iterator[LabelChange]:
        """`assign`, undone bit by bit if the guarded block raises."""
        columns = (self.Y, self.weight, self.cleaned, self.decided, self.attempts)
        saved = [column[indices] for column in columns]
        try:
            yield self.assign(indices, labels)
        except BaseException:
            for column, old in zip(columns, saved, strict=True):
                column[indices] = old
            self._changes.append(indices)
            raise

    def tiers(self, most_attempts: int) -> Iterator[Bools]:
        """Weak samples that may be asked, those with the fewest attempts without a decision first.

        A sample with a tied or ambiguous vote waits until every other weak sample has been asked as often. After
        `most_attempts` it is not asked again.
        """
        open_ = self.askable & ~self.cleaned
        for attempts in range(most_attempts):
            mask = open_ & (self.attempts == attempts)
            if mask.any():
                yield mask
