"""The learner of a session: trusted samples train, and weak labels are what a source model believes (`learning`).

The training set is the N samples that can be asked about, then the n trusted ones. After every round

    1. the clean model is fitted to the clean samples, and predicts every sample (one half of a sweep)
    2. the source model learns from the clean samples, and its beliefs q become the labels of the weak ones
    3. the constructor finds the minimum of F under these labels

What is believed depends on the clean labels and on the choice alone, not on the path of the rounds: a restart comes to the same.

The choice (source model, γ, λ) is made on the first clean samples and again whenever they have grown by half. It is computed in
the background, from the end of a round on, and used from the next round on: people label meanwhile, and the same answers give
the same choices whatever the time they take.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from labelchef.campaign.dense_fits import Axes
from labelchef.campaign.learning import AXES, CLEAN, ROWS, Sample, choose
from labelchef.campaign.tuning import mean_squared_length
from labelchef.core.contrasts import contrast, with_reference
from labelchef.core.labels import LabelTable
from labelchef.core.objective import Objective
from labelchef.core.softmax import log_probabilities
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.learning import NO_SOURCES, Choice
from labelchef.engines.memory import one_blas_thread
from labelchef.sources import SourceVotes
from labelchef.sources.models import Belief, Evidence, make_source_model, updated

GROWTH = 1.5
"""The choice is made anew when there are this many times as many clean samples as when it was made."""

_TOL = 1e-4
_DRAW = 0x11A5  # keeps these random numbers apart from other uses of the seed


@dataclass(frozen=True)
class Fixed:
    """What the user has fixed; None where it is to be chosen."""

    gamma: float | None = None
    l2: float | None = None
    sources: str | None = None
    """A source model by its name, or `NO_SOURCES`."""

    @property
    def everything(self) -> bool:
        """Whether nothing is left to choose."""
        return None not in (self.gamma, self.l2, self.sources)


@dataclass
class Learner:
    """Votes and weak labels of all rows, what was chosen, and what is believed."""

    votes: SourceVotes
    """Of the N samples, then of the n trusted ones."""
    given: Float64s
    """(N + n, C) weak labels as given; not read of the trusted rows."""
    n_items: int
    """N."""
    closed_form: ClassVar[bool] = True
    """Whether the model is at an optimum, so that what muting a source would change has a closed form."""
    bias: bool
    seed: int
    fixed: Fixed = field(default_factory=Fixed)
    choice: Choice | None = None
    keep_choice: bool = False
    """Whether the choice is never made anew."""
    clean_parameters: Float64s | None = field(default=None, repr=False)
    """W (D, C) of the clean model."""
    clean_held_out: Float64s = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    """(n, C) logits of the trusted samples, each under the clean model without it."""
    axes: Axes | None = field(default=None, repr=False)
    belief: Belief | None = field(default=None, repr=False)
    _next: "Future[Choice] | Choice | None" = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """A choice that is being computed is waited for: a thread cannot be copied."""
        return {**self.__dict__, "_next": self._awaited()}

    def adopt(self, objective: Objective, labels: LabelTable) -> Objective:
        """The objective under the choice that holds from now on: the first one, or one that was computed meanwhile."""
        if self.choice is None:
            self.choice = self._chosen(objective, labels)
        elif self._next is not None:
            self.choice, self._next = self._awaited(), None
        return self.under_choice(objective)

    def under_choice(self, objective: Objective) -> Objective:
        """The objective with the l2 of the choice."""
        assert self.choice is not None, "a choice comes first"
        rows = objective.engine.n_rows
        l2 = self.choice.strength / rows if self.fixed.l2 is None else self.fixed.l2
        return replace(objective, l2=l2)

    def look_ahead(self, objective: Objective, labels: LabelTable) -> None:
        """Begin to choose anew, if the clean samples have grown enough."""
        assert self.choice is not None, "a choice comes first"
        if self._next is None and not (self.fixed.everything or self.keep_choice):
            if np.count_nonzero(labels.cleaned) < GROWTH * self.choice.n_clean:
                return
            sample, fixed = self._sample(objective, labels), self._fixed(objective)
            with_thread = ThreadPoolExecutor(1, thread_name_prefix="labelchef-choice")
            self._next = with_thread.submit(choose, sample, **fixed)
            with_thread.shutdown(wait=False)

    def believe(self, objective: Objective, labels: LabelTable) -> None:
        """Fit the clean model, learn the sources, and give the weak samples the labels and weights that follow."""
        assert self.choice is not None, "a choice comes first"
        choice = self.choice
        clean_rows = np.flatnonzero(labels.cleaned)
        self.clean_parameters, self.clean_held_out = self.clean_model(objective, labels, clean_rows)
        if choice.model == NO_SOURCES:
            self.belief = None
            labels.believe(labels.Y_weak, np.zeros(len(labels.cleaned)))
            return
        evidence = self.evidence(self.clean_logits(objective), labels)
        self.belief = make_source_model(choice.model).believe(evidence)
        labels.believe(self.belief.Q, np.where(self.belief.spoken, choice.gamma, 0.0))

    def clean_model(self, objective: Objective, labels: LabelTable, rows: Ints) -> tuple[Float64s, Float64s]:
        """W (D, C) of a model of these clean rows alone, and held-out logits (n, C) of the trusted ones, which come last."""
        assert self.choice is not None, "a choice comes first"
        axes, n, m = self._directions(objective, labels), len(labels.cleaned) - self.n_items, len(rows)
        dense, Y = (
            axes.rows(objective.engine.rows(rows), bias=self.bias),
            np.eye(labels.n_classes)[labels.clean_ids[rows]],
        )
        strength = self.choice.clean_strength
        with one_blas_thread():
            W = dense.fit(Y, np.ones(m), strength, tol=_TOL)
            held_out = dense.leave_one_out(Y, W, strength, np.arange(m - n, m))
        return axes.parameters(W, bias=self.bias), held_out

    def first_parameters(self, objective: Objective, labels: LabelTable) -> Float64s:
        """W (D, C) near the minimum of F under the labels as they stand, from a sample of the rows: where to start."""
        assert self.choice is not None, "a choice comes first"
        axes, rows = self._directions(objective, labels), self._drawn(labels)
        dense, Y = axes.rows(objective.engine.rows(rows), bias=self.bias), labels.Y[rows]
        weight = labels.weight[rows] * np.where(labels.cleaned[rows], 1.0, self._times(labels))
        with one_blas_thread():
            W = dense.fit(Y, weight, objective.l2 * objective.engine.n_rows)
        return axes.parameters(W, bias=self.bias)

    def _directions(self, objective: Objective, labels: LabelTable) -> Axes:
        """The main directions of the rows that were drawn first; they stay."""
        if self.axes is None:
            X = objective.engine.rows(self._drawn(labels))
            X = np.ascontiguousarray(X[:, :-1] if self.bias else X, dtype=np.float32)
            self.axes = Axes.of(X, AXES, self.seed)
        return self.axes

    def posterior(self, labels: LabelTable, rows: Ints, log_p: Float64s) -> Float64s:
        """(m, C) for some rows: the model's log-probabilities `log_p` (m, C) as prior, the votes, and the labels of people."""
        votes = self.votes if len(rows) == len(labels.cleaned) else self.votes.rows(rows)
        return updated(self.belief, Evidence(votes, log_p, labels.clean_ids[rows], self.given[rows]))

    def clean_solve(self, objective: Objective, labels: LabelTable, B: Float64s) -> Float64s:
        """H⁻¹ B (D, C), H the Hessian of the clean model in the directions in which it was fitted."""
        assert self.choice is not None, "a choice comes first"
        assert self.clean_parameters is not None, "believe() comes first"
        axes, rows = self._directions(objective, labels), np.flatnonzero(labels.cleaned)
        dense = axes.rows(objective.engine.rows(rows), bias=self.bias)
        W, inside = (axes.rows(M.T, bias=self.bias).X.T for M in (self.clean_parameters, B))
        with one_blas_thread():
            V = dense.solve(W, self.choice.clean_strength, inside)
        return axes.parameters(V, bias=self.bias)

    def clean_logits(self, objective: Objective) -> Float64s:
        """(N + n, C) logits of the clean model, one sweep."""
        assert self.clean_parameters is not None, "believe() comes first"
        found = objective.engine.sweep(objective.labels, W=contrast(self.clean_parameters)).logits
        return np.asarray(with_reference(objective.engine.host(found)))

    def evidence(self, logits: Float64s, labels: LabelTable) -> Evidence:
        """What the source model sees, for logits (N + n, C) of the clean model."""
        assert self.choice is not None, "a choice comes first"
        log_p = log_probabilities(self.choice.temperature * logits)
        return Evidence(self.votes, log_p, labels.clean_ids, self.given)

    def _awaited(self) -> Choice | None:
        """The choice that comes next, once it is computed."""
        return self._next.result() if isinstance(self._next, Future) else self._next

    def _fixed(self, objective: Objective) -> dict[str, Any]:
        strength = None if self.fixed.l2 is None else self.fixed.l2 * objective.engine.n_rows
        gamma, sources = self.fixed.gamma, self.fixed.sources
        if sources == NO_SOURCES:
            return {"gamma": 0.0, "strength": strength}
        return {"gamma": gamma, "strength": strength, "models": None if sources is None else (sources,)}

    def _chosen(self, objective: Objective, labels: LabelTable) -> Choice:
        return choose(self._sample(objective, labels), **self._fixed(objective))

    def _sample(self, objective: Objective, labels: LabelTable) -> Sample:
        """Some weak and the clean rows, copied: later changes of the labels do not change it."""
        rows, axes = self._drawn(labels), self._directions(objective, labels)
        X = objective.engine.rows(rows)
        n_trusted = min(CLEAN, len(labels.cleaned) - self.n_items)
        y = labels.clean_ids[rows[np.flatnonzero(labels.cleaned[rows])]]
        scale = mean_squared_length(X[:, :-1] if self.bias else X)
        dense, times = axes.rows(X, bias=self.bias), self._times(labels)
        n_clean = int(np.count_nonzero(labels.cleaned))
        votes, given = self.votes.rows(rows), self.given[rows]
        return Sample(dense, scale, votes, given, y, n_trusted, n_clean, times, self.bias, self.seed)

    def _drawn(self, labels: LabelTable) -> Ints:
        """At most `ROWS` weak rows, then at most `CLEAN` clean ones, the trusted first."""
        order, cleaned = np.random.default_rng([self.seed, _DRAW]).permutation(self.n_items), labels.cleaned
        weak, trusted = np.sort(order[~cleaned[order]][:ROWS]), np.arange(self.n_items, len(cleaned))[:CLEAN]
        return np.concatenate([weak, trusted, np.sort(order[cleaned[order]][: CLEAN - len(trusted)])])

    def _times(self, labels: LabelTable) -> float:
        """How many weak samples each of those drawn stands for."""
        n_weak = int(np.count_nonzero(~labels.cleaned[: self.n_items]))
        return max(1.0, n_weak / ROWS)
