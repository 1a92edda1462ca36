"""The learner of a session: trusted samples train, and weak labels are what a source model believes (`learning`).

The training set is the N samples that can be asked about, then the trusted ones that were given. Where none were given, the
first answered samples, which are drawn by chance, become the n trusted ones (`loop.pilot`): rows of the N. After every round

    1. the clean model is fitted to the clean samples, and predicts every sample (one half of a sweep); where people are known to
       err, the samples they answered get the labels that follow from it and the answers (`people`), and it is fitted again
    2. the source model learns from the clean samples, and its beliefs q become the labels of the weak ones
    3. the constructor finds the minimum of F under these labels

What is believed depends on the clean labels, the answers behind them and the choice alone, not on the path of the rounds: a
restart comes to the same.

The choice (source model, γ, λ) is made on the first clean samples and again whenever they have grown by half. It is computed in
the background, from the end of a round on, and used from the next round on: people label meanwhile, and the same answers give
the same choices whatever the time they take. Where a single round brings that many, as an import may, it is made in this round:
no figure of it is shown that rests on a choice of so few.
"""

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.learning import NO_SOURCES, Choice, Doubt
from labelchef.base.records import Answers
from labelchef.base.settings import AUTO, TRUTH
from labelchef.base.stopping_work import waited
from labelchef.base.validation import FEWEST
from labelchef.believe import SourceVotes
from labelchef.believe.evidence import Evidence
from labelchef.believe.learning import AXES, CLEAN, COLUMNS, FOLDS, ROWS, Sample, choose
from labelchef.believe.models import Belief, Shares, make_source_model, updated
from labelchef.believe.people import FEWEST_ANSWERS, LEAST, Estimate, doubts, estimate
from labelchef.believe.tuning import folds_of, mean_squared_length
from labelchef.believe.vote_weights import VoteWeights, counted, fitted, said
from labelchef.model.contrasts import contrast, with_reference
from labelchef.model.dense_fits import Axes, DenseRows
from labelchef.model.engines import RowArray
from labelchef.model.engines.threads import one_blas_thread
from labelchef.model.labels import Doubted, LabelTable
from labelchef.model.objective import Objective
from labelchef.model.softmax import log_probabilities

GROWTH = 1.5
"""The choice is made anew when there are this many times as many clean samples as when it was made."""

_TOL = 1e-4
_PASSES = 2  # of the clean model and what is believed of the answers, where these are a source
_ESTIMATED = 1000  # answered samples, the last ones of the table, that are enough to see whether people err
PROBED = 500
"""Largest number of weak samples on which beliefs without a fold are computed."""
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
    """Of the N samples, then of the trusted ones that were given."""
    given: Float64s
    """(N + n, C) weak labels as given; not read of the trusted rows."""
    n_items: int
    """N."""
    trusted: Ints
    """(n,) rows of the trusted samples, ascending."""
    closed_form: ClassVar[bool] = True
    """Whether the model is at an optimum, so that what muting a source would change has a closed form."""
    bias: bool
    seed: int
    fixed: Fixed = field(default_factory=Fixed)
    answers: str = TRUTH
    """How answers train: 'truth', 'source', or 'auto': as a source once people are known to err."""
    known: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    """(N + n,) class ids that were known before anybody was asked, −1 elsewhere."""
    answered: Answers | None = field(default=None, repr=False)
    """What people said so far; None before anything was asked."""
    people: Estimate | None = field(default=None, repr=False)
    """How often they err; None with too few answers, where nothing could show it, and where answers are the truth."""
    choice: Choice | None = None
    keep_choice: bool = False
    """Whether the choice is never made anew."""
    leaps: bool = True
    """Whether it may be made in the round that brings the answers; those of version 0.2 waited for the next one."""
    n_before: int | None = field(default=None, repr=False)
    """Clean samples of the last model; None where the choice stays as it is for the next one."""
    clean_parameters: Float64s | None = field(default=None, repr=False)
    """W (D, C) of the clean model."""
    clean_held_out: Float64s = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    """(n, C) logits of the trusted samples, each under the clean model without it."""
    axes: Axes | None = field(default=None, repr=False)
    probe: Ints | None = field(default=None, repr=False)
    """Rows that stand for the weak ones."""
    belief: Belief | None = field(default=None, repr=False)
    _inside: dict[int, Float64s] = field(default_factory=dict, repr=False)
    """Rows along `axes`, (r + bias,) each, as far as they were needed."""
    _next: "Future[Choice] | Choice | None" = field(default=None, repr=False)
    _without: list[tuple[Ints, Belief]] = field(default_factory=list, repr=False)
    """Folds of the trusted samples, and what was learned without each; empty where that does not depend on labels."""

    def __getstate__(self) -> dict[str, Any]:
        """A choice that is being computed is waited for: a thread cannot be copied. What can be computed again is left out."""
        return {**self.__dict__, "_next": self._awaited(), "_inside": {}}

    def adopt(self, objective: Objective, labels: LabelTable) -> Objective:
        """The objective under the choice that holds from now on: the first one, or one that was computed meanwhile."""
        n_clean, kept = int(np.count_nonzero(labels.cleaned)), self.fixed.everything or self.keep_choice
        grown = self.leaps and self.n_before is not None and n_clean >= GROWTH * self.n_before
        self.n_before = n_clean
        if self.choice is None or (grown and not kept):
            self.choice, self._next = self._chosen(objective, labels), None
        elif self._next is not None:
            self.choice, self._next = self._awaited(), None
        return self.under_choice(objective)

    def hear(self, votes: SourceVotes, given: Float64s) -> None:
        """Use other votes and weak labels from now on; `adopt` chooses anew then."""
        self.votes, self.given, self.choice, self._next = votes, given, None, None

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
            self._next = objective.engine.background(partial(choose, sample, **fixed))

    def believe(self, objective: Objective, labels: LabelTable) -> None:
        """Fit the clean model, learn the sources, and give the weak samples the labels and weights that follow."""
        assert self.choice is not None, "a choice comes first"
        choice, clean = self.choice, labels.decided.copy()
        fit = self._clean_fit(objective, labels, np.flatnonzero(clean >= 0))
        doubted = self._weigh_answers(objective, labels, fit)
        if doubted is not None:
            clean[doubted[0]] = doubted[1].argmax(axis=1)
        self.clean_parameters, self.clean_held_out = fit.parameters, fit.held_out(fit.trusted)
        if choice.model == NO_SOURCES:
            self.belief = None
            labels.believe(labels.Y_weak, np.zeros(len(clean)), doubted)
            return
        model = make_source_model(choice.model)
        belief = model.believe(self._known(objective, clean, with_classifier=model.reads_classifier))
        self.belief = replace(belief, spoken=belief.spoken & ~labels.silent)  # copies have no weight
        labels.believe(self.belief.Q, np.where(self.belief.spoken, choice.gamma, 0.0), doubted)

    def clean_model(self, objective: Objective, labels: LabelTable, rows: Ints) -> tuple[Float64s, Float64s]:
        """W (D, C) of a model of these clean rows alone, and held-out logits (n, C) of the trusted ones among them."""
        fit = self._clean_fit(objective, labels, rows)
        return fit.parameters, fit.held_out(fit.trusted)

    def held_out(self, objective: Objective, labels: LabelTable, samples: Ints) -> Float64s:
        """(m, C): what the clean model predicts of samples, each without itself where it trained the model."""
        fit = self._clean_fit(objective, labels, np.flatnonzero(labels.decided >= 0))
        return np.exp(log_probabilities(self._held_out(objective, labels, fit, samples)[0]))

    def doubtful(self, labels: LabelTable) -> list[Doubt[int]]:
        """The answers that are worth a second look, whether they train as truth or as a source."""
        if self.people is None:
            return []
        settled = labels.cleaned[self.people.samples]
        samples, Q = self.people.samples[settled], self.people.Q[settled]
        return doubts(samples, labels.decided[samples], Q, self.people.facts.error)

    def _clean_fit(self, objective: Objective, labels: LabelTable, rows: Ints) -> "_CleanFit":
        assert self.choice is not None, "a choice comes first"
        axes, dense = self._directions(objective, labels), self._along_axes(objective, labels, rows)
        Y = np.eye(labels.n_classes)[labels.decided[rows]]
        trusted = np.searchsorted(rows, self.trusted)
        return _CleanFit(axes, dense, rows, trusted, self.bias, self.choice.clean_strength, Y).fitted()

    def _weigh_answers(self, objective: Objective, labels: LabelTable, fit: "_CleanFit") -> Doubted | None:
        """Estimate how often people err. Where answers are a source, fit the model to what is believed of them.

        Samples whose class is known otherwise stay as they were decided.
        """
        self.people, answers = None, self.answered
        if self.answers == TRUTH or answers is None or len(answers.place) < FEWEST_ANSWERS:
            return None
        if self.answers == AUTO and not answers.telling:
            return None
        few = answers.among(np.arange(len(answers.samples)) >= len(answers.samples) - _ESTIMATED)
        self.people = self._estimated(objective, labels, fit, few)
        if self.answers == AUTO and self.people.facts.low <= LEAST:
            return None
        facts = replace(self.people.facts, source=True)
        doubted = answers.samples[:0], self.people.Q[:0]
        for _ in range(_PASSES):
            self.people = self._estimated(objective, labels, fit, answers, facts.error)
            open_ = labels.cleaned[answers.samples] & (answers.known < 0)
            doubted = answers.samples[open_], self.people.Q[open_]
            fit.Y[np.searchsorted(fit.rows, doubted[0])] = doubted[1]
            fit.fitted()
        facts = replace(facts, persons=self.people.facts.persons)
        self.people = replace(self.people, facts=facts)
        return doubted

    def _estimated(
        self, objective: Objective, labels: LabelTable, fit: "_CleanFit", answers: Answers, error: float | None = None
    ) -> Estimate:
        return estimate(answers, *self._held_out(objective, labels, fit, answers.samples), error)

    def _held_out(
        self, objective: Objective, labels: LabelTable, fit: "_CleanFit", samples: Ints
    ) -> tuple[Float64s, Float64s, Ints]:
        """Logits of the clean model for some samples and the trusted ones that were given, held out where the sample trained
        it, and the classes of these trusted ones, which no answer tells."""
        assert self.choice is not None, "a choice comes first"
        settled = labels.cleaned[samples]
        A = np.empty((len(settled), labels.n_classes))
        known = self.known[self.n_items :]
        given = np.arange(len(fit.rows) - len(known), len(fit.rows))
        inside = fit.held_out(np.concatenate([np.searchsorted(fit.rows, samples[settled]), given]))
        A[settled] = inside[: settled.sum()]
        A[~settled] = fit.logits(objective.engine.rows(samples[~settled]))
        return self.choice.temperature * A, self.choice.temperature * inside[settled.sum() :], known

    def belief_shift(self, objective: Objective, labels: LabelTable) -> Float64s | None:
        """(n, C): how the logits of each trusted sample change where what is believed was learned without its fold.

        Leave-one-out takes a sample out of F, but its label has also taught the clean model and the sources, and so the labels
        of the weak samples. For each fold of the trusted samples, clean model and source model are made without it, on a probe
        of M weak samples, each of which stands for `times` ones. The model of the probe and of the clean samples without the fold
        is fitted with these beliefs and with those of all clean samples: the difference is the change of its logits. (To first
        order it would be far too large where the model is sure.) None where what is believed does not depend on the labels.
        """
        assert self.choice is not None, "a choice comes first"
        choice, clean, self._without = self.choice, labels.clean_ids, []
        if choice.model in (NO_SOURCES, Shares.name) or choice.gamma == 0.0:
            return None
        weak = self._probe(labels)
        if len(weak) == 0:
            return None
        assert self.belief is not None, "believe() comes first"
        rows, n = np.flatnonzero(clean >= 0), len(self.trusted)
        trusted = np.searchsorted(rows, self.trusted)
        dense = self._along_axes(objective, labels, np.concatenate([weak, rows])).narrower(COLUMNS, bias=self.bias)
        M, m, y = len(weak), len(rows), clean[rows]
        times = np.count_nonzero(~labels.cleaned & self.belief.spoken) / M
        Y, strength = np.eye(labels.n_classes)[y], objective.l2 * objective.engine.n_rows
        with one_blas_thread():
            probed = _Probed(self.choice, dense, self.votes.rows(np.concatenate([weak, rows])), self.given[weak], y)
            belief, start = probed.without(np.empty(0, dtype=np.int64), None)
            whole = belief.Q[:M]
            weight = np.concatenate([np.full(M, choice.gamma * times), np.ones(m)])
            W = dense.fit(np.vstack([whole, Y]), weight, strength, tol=_TOL)
            folds = [held for _, held in folds_of(y[trusted], FOLDS, np.random.default_rng([self.seed, _DRAW]))]
            shift = np.zeros((n, labels.n_classes))
            for held in folds:
                others = weight.copy()
                others[M + trusted[held]] = 0.0
                belief = probed.without(trusted[held], start)[0]
                self._without.append((held, belief))
                beliefs = whole, belief.Q[:M]
                before, after = (dense.fit(np.vstack([Q, Y]), others, strength, W, tol=_TOL) for Q in beliefs)
                shift[held] = dense.X[M + trusted[held]] @ (after - before)
        return np.asarray(shift - shift[:, :1])

    def _probe(self, labels: LabelTable) -> Ints:
        """Weak rows that stand for all of them, of which the model says something."""
        if self.probe is None:
            order = np.random.default_rng([self.seed, _DRAW]).permutation(self.n_items)
            self.probe = np.sort(
                order[(self.known[order] < 0) & ~labels.silent[order]][:PROBED]
            )  # the same after a restart
        assert self.belief is not None, "believe() comes first"
        return self.probe[~labels.cleaned[self.probe] & self.belief.spoken[self.probe]]

    def _along_axes(self, objective: Objective, labels: LabelTable, rows: Ints) -> DenseRows:
        """These rows in the main directions; each is computed once."""
        missing = np.array([row for row in rows.tolist() if row not in self._inside], dtype=np.int64)
        if len(missing):
            axes = self._directions(objective, labels)
            with one_blas_thread():
                found = axes.rows(objective.engine.rows(missing), bias=self.bias).X
            self._inside.update(zip(missing.tolist(), found, strict=True))
        width = self._directions(objective, labels).E.shape[1] + int(self.bias)
        return DenseRows(np.array([self._inside[row] for row in rows.tolist()]).reshape(len(rows), width))

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

    def posterior(self, labels: LabelTable, rows: Ints, log_p: Float64s, weights: Float64s | None = None) -> Float64s:
        """(m, C) for some rows: the model's log-probabilities `log_p` (m, C) as prior, the votes, and the labels of people.

        `weights` are what votes count (`vote_weights`); 1 without them.
        """
        votes = self.votes if len(rows) == len(labels.cleaned) else self.votes.rows(rows)
        Q = updated(self.belief, Evidence(votes, log_p, labels.clean_ids[rows], self.given[rows]), weights)
        doubted = labels.belief[2]
        if doubted is not None:
            place = np.full(len(labels.cleaned), -1)
            place[doubted[0]] = np.arange(len(doubted[0]))
            inside = place[rows] >= 0
            Q[inside] = doubted[1][place[rows][inside]]
        return Q

    def voted(self, labels: LabelTable) -> tuple[Ints, Ints]:
        """Rows with votes on which these can be weighed: trusted ones; and answered ones, where there are few of those."""
        trusted = self.trusted[~self.votes.rows(self.trusted).silent]
        answered = np.setdiff1d(np.flatnonzero(labels.clean_ids[: self.n_items] >= 0), self.trusted)
        answered = answered[~self.votes.rows(answered).silent]
        return trusted[:CLEAN], answered[:CLEAN] if len(trusted) < FEWEST else answered[:0]

    def vote_weights(self, labels: LabelTable, rows: Ints, A: Float64s) -> VoteWeights | None:
        """What votes count in what is believed, by clean rows with held-out logits A (m, C) at their temperature."""
        if self.belief is None:
            return None
        votes, y = self.votes.rows(rows), labels.clean_ids[rows]
        if self.belief.rates is None:
            shares = votes.shares()
            if Evidence(self.votes, self.given, labels.clean_ids, self.given).given_source is not None:
                shares = votes.of_sources(np.arange(votes.n_sources) == votes.n_sources - 1).shares()
            weak = np.full(len(rows), -1)
            E = Evidence(votes, _uniform(A.shape), weak, shares, self.belief.heard).first()
            return fitted(A, counted(E), y)
        C = votes.n_classes
        G = said(votes, self.belief.rates).tolil()
        for held, belief in self._without:
            inside = np.flatnonzero(np.isin(rows, self.trusted[held]))
            if belief.rates is not None and len(inside):
                places = (inside[:, None] * C + np.arange(C)).ravel()
                G[places] = said(votes.rows(inside), belief.rates).tolil()
        return fitted(A, G.tocsr(), y)

    def _known(self, objective: Objective, clean: Ints, *, with_classifier: bool) -> Evidence:
        """What a source model that does or does not read the classifier sees."""
        if with_classifier:
            return self.evidence(self.clean_logits(objective), clean)
        return Evidence(self.votes, _uniform(self.given.shape), clean, self.given)

    def clean_logits(self, objective: Objective) -> Float64s:
        """(N + n, C) logits of the clean model, one sweep."""
        return np.asarray(with_reference(objective.engine.host(self._clean_sweep(objective))))

    def _clean_sweep(self, objective: Objective) -> RowArray:
        assert self.clean_parameters is not None, "believe() comes first"
        return objective.engine.sweep(objective.labels, W=contrast(self.clean_parameters), roughly=True).logits

    def evidence(self, logits: Float64s, clean: Ints) -> Evidence:
        """What the source model sees, for logits (N + n, C) of the clean model and clean class ids (N + n,), −1 elsewhere."""
        assert self.choice is not None, "a choice comes first"
        log_p = log_probabilities(self.choice.temperature * logits)
        return Evidence(self.votes, log_p, clean, self.given)

    def _awaited(self) -> Choice | None:
        """The choice that comes next, once it is computed."""
        return waited(self._next) if isinstance(self._next, Future) else self._next

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
        n_trusted = min(CLEAN, len(self.trusted))
        y = labels.clean_ids[rows[np.flatnonzero(labels.cleaned[rows])]]
        scale = mean_squared_length(X[:, :-1] if self.bias else X)
        dense, times = axes.rows(X, bias=self.bias), self._times(labels)
        n_clean = int(np.count_nonzero(labels.cleaned))
        votes, given = self.votes.rows(rows), self.given[rows]
        return Sample(dense, scale, votes, given, y, n_trusted, n_clean, times, self.bias, self.seed)

    def _drawn(self, labels: LabelTable) -> Ints:
        return drawn_rows(labels.cleaned, self.n_items, self.trusted, self.seed, labels.silent)

    def _times(self, labels: LabelTable) -> float:
        return times_drawn(labels.cleaned | labels.silent, self.n_items)


def drawn_rows(cleaned: Bools, n_items: int, trusted: Ints, seed: int, silent: Bools | None = None) -> Ints:
    """At most `ROWS` weak rows, then at most `CLEAN` clean ones, the trusted first; `cleaned` (rows,), `n_items` N.

    Copies (`silent`, (rows,)) that nobody decided do not train, and are not drawn.
    """
    order = np.random.default_rng([seed, _DRAW]).permutation(n_items)
    order = order if silent is None else order[~silent[order] | cleaned[order]]
    weak, trusted = np.sort(order[~cleaned[order]][:ROWS]), trusted[:CLEAN]
    others = order[cleaned[order] & ~np.isin(order, trusted)]
    return np.concatenate([weak, trusted, np.sort(others[: CLEAN - len(trusted)])])


def times_drawn(cleaned: Bools, n_items: int) -> float:
    """How many weak samples each of those drawn stands for."""
    return max(1.0, int(np.count_nonzero(~cleaned[:n_items])) / ROWS)


@dataclass
class _CleanFit:
    """The clean model: softmax regression on the clean rows in their main directions."""

    axes: Axes
    dense: DenseRows
    rows: Ints
    """(m,) of the objective, ascending."""
    trusted: Ints
    """Places of the trusted rows among the m."""
    bias: bool
    strength: float
    Y: Float64s
    """(m, C) labels."""
    W: Float64s | None = None
    _held_out: Float64s | None = None

    def fitted(self) -> "_CleanFit":
        """Fit to the labels as they are now."""
        self._held_out = None
        with one_blas_thread():
            self.W = self.dense.fit(self.Y, np.ones(len(self.rows)), self.strength, self.W, tol=_TOL)
        return self

    @property
    def parameters(self) -> Float64s:
        """W (D, C) of the objective's columns."""
        assert self.W is not None, "fitted() comes first"
        with one_blas_thread():
            return self.axes.parameters(self.W, bias=self.bias)

    def logits(self, X: Float64s) -> Float64s:
        """(k, C) of rows that are not among the m, as the engine has them."""
        assert self.W is not None, "fitted() comes first"
        return np.asarray(self.axes.rows(X, bias=self.bias).X @ self.W)

    def held_out(self, places: Ints) -> Float64s:
        """Logits (k, C) of these of the m rows, each under the model without it; computed once for all of them."""
        assert self.W is not None, "fitted() comes first"
        if len(places) == 0:
            return np.empty((0, self.Y.shape[1]))
        if self._held_out is None:
            with one_blas_thread():
                self._held_out = self.dense.leave_one_out(self.Y, self.W, self.strength)
        return self._held_out[places]


@dataclass(frozen=True)
class _Probed:
    """M weak rows and the m clean ones: what is believed of the weak ones, learned from some of the clean ones."""

    choice: Choice
    dense: DenseRows
    """(M + m, r)."""
    votes: SourceVotes
    given: Float64s
    """(M, C)."""
    y: Ints
    """(m,)."""

    def without(self, held: Ints, start: Float64s | None) -> tuple[Belief, Float64s | None]:
        """What is believed, learned without the clean rows at the places `held`, and W of the clean model, if it plays a part.

        The first M rows are the weak ones.
        """
        model, M, C = make_source_model(self.choice.model), len(self.given), self.votes.n_classes
        kept = np.setdiff1d(np.arange(len(self.y)), held)
        y, inside, W = self.y[kept], np.concatenate([np.arange(M), M + kept]), None
        log_p = _uniform((len(inside), C))
        if model.reads_classifier:
            W = self.dense.part(M + kept).fit(np.eye(C)[y], np.ones(len(kept)), self.choice.clean_strength, start)
            log_p = log_probabilities(self.choice.temperature * (self.dense.X[inside] @ W))
        given = np.concatenate([self.given, np.zeros((len(kept), C))])  # not read of clean rows
        evidence = Evidence(self.votes.rows(inside), log_p, np.concatenate([np.full(M, -1), y]), given)
        return model.believe(evidence), W


def _uniform(shape: tuple[int, ...]) -> Float64s:
    """Log-probabilities (n, C) that say nothing."""
    return np.broadcast_to(-np.log(shape[1]), shape)
