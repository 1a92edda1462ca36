"""The samples that judge a model, and what one would have without weak labels.

`Split`        labelled samples that no model was trained on: validation samples that steer or judge, test samples
`CrossFitted`  trusted samples that train: each is judged by the model without it
`Baselines`    the same figures of models of the trusted samples alone, and of all clean samples without weak labels
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.learning import Ruling
from labelchef.base.records import Metrics
from labelchef.believe.learner import Learner
from labelchef.chef.constructors import Construction
from labelchef.chef.selectors import Examples
from labelchef.judge.deciding import ruling_of, scores_without
from labelchef.judge.gain import Judged
from labelchef.judge.metrics import evaluate, measured
from labelchef.model.contrasts import contrast, with_reference
from labelchef.model.engines import Engine, MemoryEngine, RowArray, RowLabels
from labelchef.model.engines.threads import one_blas_thread
from labelchef.model.labels import LabelTable
from labelchef.model.leave_one_out import kronecker, leave_one_out_logits, projected
from labelchef.model.objective import Objective, Point
from labelchef.model.softmax import cross_entropies, probabilities

_LOSS_ROWS = 512  # rows of a split at a time, for all stacked parameters together

# multiplications, about a tenth of a second: figures then do not depend on earlier rounds, nor on restarts
_QUICK = 1e9

# a factor made before the trusted rows were known judged a model that is right on 97 % as right on 34 %
_OUTDATED = 0.1


class Split:
    """Labelled samples: mean cross-entropy, gradient and metrics at any W. Those at the model as it stands are kept."""

    def __init__(
        self, X: Floats, y: Ints, n_classes: int, *, bias: bool, engine: Callable[..., Engine] = MemoryEngine
    ) -> None:
        labels = RowLabels(np.eye(n_classes)[y], np.ones(len(y)))
        self._objective = Objective(engine(X, bias=bias), labels, l2=0.0)
        self.y, self._n_classes = y, n_classes
        self._settled: Point | None = None
        self.ruling: Ruling | None = None
        """How logits become probabilities and classes; None for the plain way."""

    @cached_property
    def examples(self) -> Examples:
        """The samples and their class ids."""
        engine = self._objective.engine
        return Examples(engine.rows(np.arange(engine.n_rows)), self.y)

    def at(self, W: Float64s) -> Point:
        """Value and gradient of the mean cross-entropy; its logits are on the host."""
        point = self._objective.at(W)
        return replace(point, logits=self._objective.engine.host(point.logits))

    def settled(self, W: Float64s) -> Point:
        """The same for the parameters of a model, which several callers ask for: computed once, until W is another."""
        if self._settled is None or self._settled.W is not W:
            self._settled = self.at(W)
        return self._settled

    def gradient_there(self, W: RowArray) -> RowArray:
        """The gradient alone; W and the gradient are arrays of the engine's kind."""
        return self._objective.gradient_at(W)

    def losses(self, stack: Float64s) -> Float64s:
        """Mean cross-entropy at each of the stacked parameters (n, D, C), in one pass over the split."""
        engine, total = self._objective.engine, np.zeros(len(stack))
        contrasts = np.concatenate([contrast(W) for W in stack])  # (n·k, D)
        for start in range(0, engine.n_rows, _LOSS_ROWS):
            rows = np.arange(start, min(start + _LOSS_ROWS, engine.n_rows))
            A = (engine.rows(rows) @ contrasts.T).reshape(len(rows), len(stack), -1)
            chosen = np.concatenate([np.zeros((*A.shape[:2], 1)), A], axis=2)[np.arange(len(rows)), :, self.y[rows]]
            total += (np.logaddexp.reduce(A, axis=2, initial=0.0) - chosen).sum(axis=0)
        return total / engine.n_rows

    def metrics(self, W: Float64s) -> Metrics:
        """Quality at W; nothing is known without samples."""
        if len(self.y) == 0:
            return Metrics()
        return evaluate(self.settled(W), self.y, self._n_classes, self.ruling, self._predicted(W))

    def _predicted(self, W: Float64s) -> Ints:
        A = with_reference(self.settled(W).logits)
        return np.asarray((A if self.ruling is None else self._scores(A, self.ruling)).argmax(axis=1), dtype=np.int64)

    def _scores(self, A: Float64s, ruling: Ruling) -> Float64s:
        """(n, C) of logits, of which the largest decides."""
        return ruling.scores(A)

    def probabilities(self, W: Float64s) -> Float64s:
        """(n, C) class probabilities at W."""
        A = with_reference(self.settled(W).logits)
        return np.asarray(probabilities(A if self.ruling is None else self.ruling.scaled(A)))

    def judged(self, W: Float64s) -> Judged:
        """Quality at W, with the prediction and the loss of each sample."""
        A = with_reference(self.settled(W).logits)
        A = A if self.ruling is None else self.ruling.scaled(A)
        losses = np.logaddexp.reduce(A, axis=1) - A[np.arange(len(A)), self.y]
        return Judged(self.metrics(W), self._predicted(W), losses)


class CrossFitted(Split):
    """Trusted samples that train: each is judged by the model without it, in closed form (`model.leave_one_out`).

    What is believed of weak samples was learned from the trusted ones too: that part of a label's effect is taken out by folds
    (`Learner.belief_shift`).
    """

    def __init__(
        self,
        X: Floats,
        y: Ints,
        n_classes: int,
        *,
        rows: Ints,
        bias: bool,
        engine: Callable[..., Engine] = MemoryEngine,
    ) -> None:
        super().__init__(X, y, n_classes, bias=bias, engine=engine)
        self._bias, self._engine = bias, engine
        self.rows = rows
        """Of the objective."""
        self._logits: tuple[Float64s, Float64s] | None = None
        self._weight = 0.0
        """Of all rows that train the model that was followed last."""
        self._inside: tuple[RowArray, Float64s] | None = None

    def over(self, objective: Objective, labels: LabelTable, rows: Ints) -> "CrossFitted":
        """The same of the samples in these rows of the objective, with the labels as they stand."""
        y = labels.decided[rows]
        if np.array_equal(rows, self.rows) and np.array_equal(y, self.y):
            return self
        X = objective.engine.rows(rows)
        X = X[:, :-1] if self._bias else X
        return CrossFitted(X, y, self._n_classes, rows=rows, bias=self._bias, engine=self._engine)

    def follow(self, objective: Objective, construction: Construction, shift: Float64s | None) -> None:
        """Take up a new model; the curvature is that of the model where this is quick, else the one the solver has, made anew
        where more than a tenth of it has changed.

        `shift` (n, C) is added to the logits.
        """
        A, self._weight = self.held_out(objective, construction), float(objective.labels.weight.sum())
        self._logits = (construction.point.W, A if shift is None else A + shift)

    def _scores(self, A: Float64s, ruling: Ruling) -> Float64s:
        """Each by the mean prediction of the model without it."""
        return scores_without(ruling, A, self.y, self._weight)

    def held_out(self, objective: Objective, construction: Construction, others: Ints | None = None) -> Float64s:
        """Logits (n, C) of the samples, each under the model without it; or of `others` among the rows of the objective."""
        point, keeper = construction.point, construction.keeper
        (D, C), N = objective.shape, objective.engine.n_rows
        if 0.5 * C * (C - 1) * N * D**2 + ((C - 1) * D) ** 3 <= _QUICK:
            return leave_one_out_logits(objective, point, self.rows if others is None else others)
        if keeper.factor.changed(objective, point.logits) > _OUTDATED:
            keeper.refresh(objective, point.logits)
        factor = keeper.factor
        if others is not None:
            return kronecker(objective, point, others, factor, projected(objective, others, factor))
        if self._inside is None or self._inside[0] is not factor.E:
            self._inside = (factor.E, projected(objective, self.rows, factor))
        return kronecker(objective, point, self.rows, factor, self._inside[1])

    def settled(self, W: Float64s) -> Point:
        """Loss, gradient and logits of every sample under the model without it, for the W that was followed last."""
        if len(self.y) == 0:
            return Point(W, np.empty((0, W.shape[1] - 1)), float("nan"), np.zeros_like(W))
        if self._settled is None or self._settled.W is not W:
            assert self._logits is not None, "follow() comes first"
            assert np.array_equal(self._logits[0], W), "only the present model is settled"
            A, Y = self._logits[1], np.eye(self._n_classes)[self.y]
            with one_blas_thread():
                gradient = self.examples.X.T @ (probabilities(A) - Y) / len(Y)
            value = float(cross_entropies(A, Y).mean())
            self._settled = Point(W, A[:, 1:] - A[:, :1], value, np.asarray(gradient))
        return self._settled


@dataclass
class Baselines:
    """What one would have without weak labels, each with a temperature and decision rule of its own."""

    _trusted_only: tuple[Float64s, Float64s] | None = field(default=None, repr=False)
    """Parameters of the model of the trusted samples alone, and their held-out logits."""
    _trusted: tuple[Ints, Ints] | None = field(default=None, repr=False)
    """Rows and class ids of these samples."""
    _rulings: dict[str, Ruling] = field(default_factory=dict, repr=False)

    def measure(
        self,
        learner: Learner | None,
        objective: Objective,
        labels: LabelTable,
        judges: Mapping[str, Split],
        *,
        metric: str,
        anew: bool,
    ) -> dict[str, dict[str, Metrics]]:
        """'trusted_only' and 'no_weak' on the parts that judge; nothing where there is no clean model.

        Temperatures and rules are chosen `anew` when the learner's choice is, over the trusted samples alone.
        """
        if learner is None or learner.clean_parameters is None or len(learner.trusted) == 0:
            return {}
        y = labels.decided[learner.trusted]
        if self._trusted is None or not all(map(np.array_equal, self._trusted, (learner.trusted, y))):
            self._trusted, self._trusted_only = (learner.trusted, y), None
        if self._trusted_only is None:
            self._trusted_only = learner.clean_model(objective, labels, learner.trusted)
        models = {"trusted_only": self._trusted_only, "no_weak": (learner.clean_parameters, learner.clean_held_out)}
        weights = {"trusted_only": len(y), "no_weak": int((labels.clean_ids >= 0).sum())}
        found: dict[str, dict[str, Metrics]] = {}
        for name, (W, held_out) in models.items():
            if name not in self._rulings or anew:
                self._rulings[name] = ruling_of(held_out, y, held_out, metric)
            ruling = self._rulings[name]
            for split, part in judges.items():
                cut = isinstance(part, CrossFitted)
                A = held_out if cut else with_reference(part.at(W).logits)
                scores = scores_without(ruling, A, y, weights[name]) if cut else ruling.scores(A)
                loss = float(cross_entropies(ruling.scaled(A), np.eye(A.shape[1])[part.y]).mean())
                metrics = measured(scores.argmax(axis=1), part.y, A.shape[1], loss)
                found.setdefault(split, {})[name] = metrics
        return found
