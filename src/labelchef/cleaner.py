"""`LabelCleaner`: the Python API, in the manner of scikit-learn."""

import copy
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from labelchef.aggregation import Aggregator, MajorityVote
from labelchef.annotators import Annotator, CallableAnnotator, takes_suggestions
from labelchef.campaign.choice import make_selector, plain_influence, require_suggestions
from labelchef.campaign.gain import Judged
from labelchef.campaign.history import history_frame
from labelchef.campaign.holdout import check_judges
from labelchef.campaign.inputs import (
    ClassNames,
    as_evaluation_labels,
    as_features,
    as_indices,
)
from labelchef.campaign.loop import LoopSettings, run_rounds
from labelchef.campaign.preparation import first_table, prepare_labels, prepare_split, steering_and_judging
from labelchef.campaign.session import MOST_ATTEMPTS, Session, Split
from labelchef.campaign.stopping import StoppingRule, TargetReached
from labelchef.campaign.tuning import Tuned, tune
from labelchef.constructors import Constructor, DescentSettings, make_constructor, write_provenance
from labelchef.core.contrasts import contrast, with_reference
from labelchef.core.objective import Objective
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.errors import InvalidInputError, NotFittedError
from labelchef.domain.numbers import check_number, check_whole
from labelchef.domain.records import UNRESOLVED, Batch, Decisions, RoundRecord, StopReason, Votes
from labelchef.domain.strengths import as_gamma, as_l2, fixed
from labelchef.domain.validation import Gain, as_holdout
from labelchef.engines import MemoryEngine, RowLabels, choose_placement
from labelchef.selectors import Selector


@dataclass(frozen=True)
class CleaningResult:
    """What `LabelCleaner.run` returns."""

    history: pd.DataFrame
    """A row a round, round 0 being the model before any cleaning."""
    stopped_because: StopReason
    """'budget spent', 'target reached', 'nothing left to clean' or 'stopping rule'."""
    message: str
    rounds: tuple[RoundRecord, ...]
    """The same in full: who was asked what, who voted what, what was decided and changed."""


class LabelCleaner(BaseEstimator):  # type: ignore[misc]
    """Find the weak labels whose cleaning helps most, clean them, follow with the model, go round again.

    Parameters
    ----------
    selector : name in `labelchef.selectors.SELECTORS` or `labelchef.baselines.BASELINES`, or a `Selector`;
        'increm_infl' is the paper's
    constructor : name in `labelchef.constructors.CONSTRUCTORS`, or a `Constructor`
    gamma : weight of a weak sample, 0 ≤ gamma ≤ 1; clean samples have weight 1. 'auto' chooses by cross-validation over
        the validation samples that steer
    l2 : L2 strength, > 0, applied to all parameters, the intercept included; 'auto' chooses it along with gamma
    budget : samples to ask in `run`, None for no limit
    batch_size : samples a round
    holdout : share of validation that judges and that selection never sees, drawn by class; 'auto' takes half of 100
        samples and more; 0 is the paper's behaviour: all of validation steers, and its figures are optimistic
    target, target_metric : `run` stops once this metric is reached on the validation samples that judge
    stop : a further stopping rule, see `labelchef.campaign.stopping`
    look_ahead : whether the picks of a batch account for each other; off is the paper's behaviour. Selectors that do not
        choose by INFL cannot look ahead, and choose as they would without
    fit_intercept : whether to add a bias column
    tol : bound on ‖W − W*‖ / (1 + ‖W‖) at every model of constructor 'newton'
    random_state : seed of every random choice; a constructor that is handed in as an instance has its own
    engine : 'auto', 'memory' or 'cuda': where the features lie; 'auto' takes a GPU if PyTorch sees one and X is large
    feature_dtype : how a GPU stores X: None for as given, or 'float64', 'float32', 'float16', 'bfloat16'

    Attributes
    ----------
    W_ : (D, C) parameters, the intercept in the last row
    labels_ : (N, C) training labels as they stand: weak, or one-hot once cleaned
    cleaned_ : (N,) which samples have a clean label
    classes_ : class names in the order of the columns
    history_ : a row a round so far
    gamma_, l2_ : the strengths in use, given or chosen
    tuned_ : what was tried to choose them (`labelchef.campaign.tuning.Tuned`), None if both were given

    Examples
    --------
    >>> import numpy as np
    >>> from labelchef import LabelCleaner
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 300)
    >>> X = rng.normal(size=(300, 5)) + y[:, None]
    >>> weak = rng.dirichlet([1, 1], 200)
    >>> cleaner = LabelCleaner(budget=40, batch_size=10)
    >>> cleaner = cleaner.fit(X[:200], weak, X_val=X[200:], y_val=y[200:])
    >>> batch = cleaner.query()
    >>> cleaner = cleaner.update(batch.indices, y[batch.indices])
    >>> result = cleaner.run(lambda batch: y[batch.indices])
    >>> str(result.stopped_because), int(cleaner.cleaned_.sum())
    ('budget spent', 40)
    """

    _session: Session
    gamma_: float
    l2_: float
    tuned_: Tuned | None
    classes_: "np.ndarray[Any, Any]"

    def __init__(
        self,
        selector: str | Selector = "expected_infl",
        constructor: str | Constructor = "newton",
        gamma: float | str = "auto",
        l2: float | str = "auto",
        budget: int | None = 100,
        batch_size: int = 10,
        target: float | None = None,
        target_metric: str = "f1_macro",
        stop: StoppingRule | None = None,
        look_ahead: bool = True,
        holdout: float | str = "auto",
        fit_intercept: bool = True,
        tol: float = 1e-5,
        random_state: int | np.random.Generator | None = 0,
        engine: str = "auto",
        feature_dtype: str | None = None,
    ) -> None:
        self.selector = selector
        self.constructor = constructor
        self.gamma = gamma
        self.l2 = l2
        self.budget = budget
        self.batch_size = batch_size
        self.target = target
        self.target_metric = target_metric
        self.stop = stop
        self.look_ahead = look_ahead
        self.holdout = holdout
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.random_state = random_state
        self.engine = engine
        self.feature_dtype = feature_dtype

    def fit(
        self,
        X: Any,
        Y_weak: Any,
        *,
        X_val: Any,
        y_val: Any,
        X_judge: Any = None,
        y_judge: Any = None,
        X_test: Any = None,
        y_test: Any = None,
        y_clean: Any = None,
        askable: Any = None,
        classes: Sequence[Hashable] | None = None,
        on_step: Callable[[int, float, float], None] | None = None,
    ) -> Self:
        """Initialise: check everything, train the first model.

        X (N, d) is neither copied nor written if it is a float32 or float64 array. `Y_weak` (N, C) holds
        probabilities; the columns of a frame, or `classes`, name the classes. `y_val`, `y_test` and `y_clean` hold
        class names; `y_clean` has −1 (or None) where a training sample is not clean. `askable` (N,) says of each training
        sample whether anyone could answer for it, all of them if left out; one that is not askable is never selected.
        `on_step(iteration, gradient norm, tolerance)` is told of the solver's progress; of a descent, (epoch, gradient
        norm, NaN).

        Part of validation judges, as `holdout` says; with judges of your own (`X_judge`, `y_judge`) all of it steers.
        """
        loop = self._settings()
        selector = make_selector(copy.deepcopy(self.selector), look_ahead=self.look_ahead)
        seed = seed_of(self.random_state)
        descent = DescentSettings(seed=seed)
        constructor = make_constructor(copy.deepcopy(self.constructor), tol=self.tol, descent=descent)
        features = as_features(X, half=True)
        self._placement = choose_placement(self.engine, self.feature_dtype, features.size)
        names, weak, given = prepare_labels(len(features), Y_weak, y_clean, classes)
        self._check_metric(len(names))
        columns, holdout = features.shape[1], as_holdout(self.holdout)
        own = prepare_split(X_judge, y_judge, names, columns, "judge")
        validation = prepare_split(X_val, y_val, names, columns, "val")
        steering, judging = steering_and_judging(validation, own, len(names), holdout, seed)
        check_judges(judging[1], steering[1], holdout, read=loop.reads_metrics)
        test = prepare_split(X_test, y_test, names, columns, "test")
        gamma, l2 = fixed(as_gamma(self.gamma)), fixed(as_l2(self.l2))
        tuned = None
        if gamma is None or l2 is None:
            tuned = tune(features, weak, given, *steering, gamma=gamma, l2=l2, bias=self.fit_intercept, seed=seed)
            gamma, l2 = tuned.gamma, tuned.l2
        table = first_table(weak, given, gamma, askable)
        self.gamma_, self.l2_, self.tuned_ = gamma, l2, tuned
        self._names = names
        self._n_features = features.shape[1]
        self._bias = self.fit_intercept
        session = Session(
            objective=Objective(self._placement.training(features, bias=self.fit_intercept), table.rows, l2),
            labels=table,
            steering=self._split(*steering, names),
            judging=self._split(*judging, names) if len(judging[1]) else None,
            test=None if test is None else self._split(*test, names),
            selector=selector,
            constructor=constructor,
            seed=seed,
        )
        session.start(on_step)
        self._session = session
        self._last_batch: Batch | None = None
        self._last_seconds = 0.0
        self.classes_ = names.as_array()
        return self

    def query(self, batch_size: int | None = None) -> Batch:
        """The samples to look at next, most helpful first; fewer than asked for if fewer are left.

        `batch.indices` are rows of X, `batch.suggested` class ids (columns of `Y_weak`), `batch.by_answer[k, c]` N times
        the predicted change of the steering loss if item k is answered c: negative helps. `batch.influence` is the best case
        of it for 'infl', its expectation for 'expected_infl'. A selector that suggests or predicts nothing gives −1 and NaN.
        With look-ahead, each is what the sample adds after those before it in the batch; for more than 100 samples, or
        more than half of what is left, and in `scores()`, samples are scored one by one. The budget applies to `run` only.
        """
        size = self._settings_of_fit().batch_size if batch_size is None else batch_size
        check_whole(size, "batch_size")
        began = time.perf_counter()
        batch = self._fitted().select(size)
        self._last_batch, self._last_seconds = batch, time.perf_counter() - began
        return batch

    def scores(self) -> Float64s:
        """Influence of every training sample, (N,): expected with 'expected_infl', INFL's best case otherwise.

        Smallest first is the order of INFL; 'expected_infl' ranks by it less its spread over the answers.

        NaN where a sample is clean already, was given up, or is not askable.
        """
        session = self._fitted()
        found = np.full(session.objective.engine.n_rows, np.nan)
        for eligible in session.labels.tiers(MOST_ATTEMPTS):
            batch = self._scorer().select(session.context(eligible), int(eligible.sum()))
            found[batch.indices] = batch.influence
        return found

    def suggest(self, indices: Any) -> Batch:
        """What influence suggests for these samples, in their order, each standing for itself.

        With 'expected_infl' the answer to be expected, with any other selector INFL's: the one that would help most.

        Samples that have a clean label, or were given up, are scored as if they could be asked.
        """
        session = self._fitted()
        items = as_indices(indices, session.objective.engine.n_rows)
        if len(items) == 0:
            return Batch.without_predictions(items)
        eligible = np.zeros(session.objective.engine.n_rows, dtype=bool)
        eligible[items] = True
        return self._scorer().select(session.context(eligible), len(items)).aligned(items)

    def update(self, indices: Any, labels: Any) -> Self:
        """Write down what people decided, and bring the model up to date.

        `labels` are class ids, or class names that are not integers; −1 leaves a sample unresolved: it keeps (or
        gets back) its weak label. Any sample may be updated, asked or not, clean or not.
        """
        session = self._fitted()
        items = as_indices(indices, session.objective.engine.n_rows)
        ids = self._names.encode_votes(labels, "labels")
        if len(ids) != len(items):
            raise InvalidInputError(
                f"{len(ids)} labels for {len(items)} samples; expected one label a sample", code="labels"
            )
        if len(items) == 0:
            return self
        votes = Votes.of([("update", items, ids)])
        support = (ids != UNRESOLVED).astype(np.float64)
        asked = self._last_batch or Batch.without_predictions(items[:0])
        seconds = {"select": self._last_seconds} if np.isin(items, asked.indices).any() else {}
        session.decide(asked.aligned(items), votes, Decisions(items, ids, support), seconds)
        self._last_batch = asked.without(items)  # a second answer for one of these would be a correction
        return self

    def undo(self) -> Self:
        """Take the last round back: its samples get the labels they had before, and the model follows.

        This is a round of its own in the history; nothing is erased, and the budget stays spent. Call it again to take
        back the round before. Single labels are taken back by `update(indices, −1)`.
        """
        session = self._fitted()
        if not session.undo():
            raise InvalidInputError("there is no round to take back; expected at least one", code="undo")
        return self

    def save_provenance(self, folder: str | Path) -> Path:
        """Write the trajectory of the present model (constructor 'deltagrad_l'), to take up after a restart.

        Give the folder to `DeltaGradLConstructor(provenance=…)`, the labels so far to `fit` as `y_clean`, and the strengths
        as they are, `LabelCleaner(gamma=cleaner.gamma_, l2=cleaner.l2_)`: chosen anew, they might come out otherwise.
        """
        session = self._fitted()
        if session.construction.trajectory is None:
            raise InvalidInputError(
                "this model has no trajectory; expected constructor 'deltagrad_l', which descends step by step",
                code="provenance",
            )
        return write_provenance(Path(folder), session.construction.trajectory, session.objective)

    def run(
        self,
        annotator: Annotator | Callable[[Batch], Iterable[Any]],
        *,
        aggregator: Aggregator | None = None,
        on_round: Callable[[RoundRecord], None] | None = None,
    ) -> CleaningResult:
        """The whole loop, until the budget is spent, the target reached, a rule stops it or nothing is left.

        `annotator` votes on each batch: one of `labelchef.annotators`, or any function from a batch to one label an
        item (class ids, or class names that are not integers; −1 = unresolved). An interrupt leaves whole rounds
        behind: call `run` again and it goes on.
        """
        session = self._fitted()
        if isinstance(annotator, type) or not (isinstance(annotator, Annotator) or callable(annotator)):
            raise InvalidInputError(
                f"annotator is {annotator!r}; expected one of labelchef.annotators (an instance), or a function from a "
                "batch to labels",
                code="annotator",
            )
        who = annotator if isinstance(annotator, Annotator) else CallableAnnotator(self._by_name(annotator))
        if takes_suggestions(who):
            require_suggestions(session.selector)
        reason, message = run_rounds(session, who, aggregator or MajorityVote(), self._settings_of_fit(), on_round)
        return CleaningResult(self.history_, reason, message, tuple(session.rounds))

    def replay(self, batch: Batch, votes: Votes, decisions: Decisions, seconds: dict[str, float]) -> Self:
        """Apply a round that was recorded earlier, as it was."""
        self._fitted().decide(batch, votes, decisions, seconds)
        return self

    def predict_proba(self, X: Any) -> Float64s:
        """Class probabilities (n, C)."""
        session = self._fitted()
        features = as_features(X, columns=self._n_features)
        n_classes = len(self._names)
        blank = RowLabels(np.empty((len(features), n_classes)), np.empty(len(features)))
        engine = MemoryEngine(features, bias=self._bias)
        sums = engine.sweep(blank, W=contrast(session.construction.point.W))
        return np.asarray(probabilities(with_reference(sums.logits)))

    def predict(self, X: Any) -> "np.ndarray[Any, Any]":
        """Class names (n,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def score(self, X: Any, y: Any) -> float:
        """Accuracy."""
        probability = self.predict_proba(X)
        ids = as_evaluation_labels(y, self._names, len(probability), "y")
        return float(np.mean(probability.argmax(axis=1) == ids))

    def gain(self, metric: str | None = None, *, split: str = "validation") -> Gain | None:
        """What cleaning has brought so far: the model now against the first one, with a 95 % interval.

        Measured on the validation samples that judge, or on the test set (`split="test"`); None where there are none.
        """
        gains, name = self.gains(split), self.target_metric if metric is None else metric
        if gains is not None and name not in gains:
            raise InvalidInputError(f"unknown metric {name!r}; expected one of: {', '.join(gains)}", code="metric")
        return None if gains is None else gains[name]

    def gains(self, split: str = "validation") -> dict[str, Gain] | None:
        """The gains of all metrics by name, as `gain` gives them."""
        session = self._fitted()
        parts = {"validation": session.judging, "test": session.test}
        if split not in parts:
            raise InvalidInputError(f"split is {split!r}; expected 'validation' or 'test'", code="split")
        part = parts[split]
        return None if part is None else session.gains(part)

    def judged(self, split: str = "validation") -> tuple[Ints, Judged] | None:
        """True class ids (n,) and the model as it stands, sample by sample, on a split; None where it has no samples.

        'validation' are the samples that judge, 'steering' those that selection sees.
        """
        session = self._fitted()
        parts = {"validation": session.judging, "test": session.test, "steering": session.steering}
        if split not in parts:
            raise InvalidInputError(f"split is {split!r}; expected one of: {', '.join(parts)}", code="split")
        part = parts[split]
        return None if part is None else (part.examples.y, part.judged(session.construction.point.W))

    @property
    def W_(self) -> Float64s:  # noqa: N802
        """(D, C) parameters, the intercept in the last row."""
        return self._fitted().construction.point.W.copy()

    @property
    def labels_(self) -> Float64s:
        """(N, C) training labels as they stand."""
        return self._fitted().labels.Y.copy()

    @property
    def cleaned_(self) -> Bools:
        """(N,) which samples have a clean label."""
        return self._fitted().labels.cleaned.copy()

    @property
    def suggests_(self) -> bool:
        """Whether the selector suggests labels; where not, `suggested` is −1 and strategies two and three have no voter."""
        return self._fitted().selector.suggests

    @property
    def history_(self) -> pd.DataFrame:
        """A row a round so far."""
        session = self._fitted()
        return history_frame(session.rounds)

    @property
    def rounds_(self) -> tuple[RoundRecord, ...]:
        """The rounds so far, in full."""
        return tuple(self._fitted().rounds)

    def _fitted(self) -> Session:
        if not hasattr(self, "_session"):
            raise NotFittedError(
                "this LabelCleaner has no model yet; call fit(X, Y_weak, X_val=…, y_val=…) first",
                code="not_fitted",
            )
        return self._session

    def _scorer(self) -> Selector:
        """Scores every sample, whatever chooses the batches."""
        return plain_influence(self._fitted().selector)

    def _settings_of_fit(self) -> LoopSettings:
        self._fitted()
        return self._settings()

    def _settings(self) -> LoopSettings:
        """Check the parameters; read again at every call, so that a user may raise the budget between runs."""
        as_gamma(self.gamma)
        as_l2(self.l2)
        check_number(self.tol, "tol", above=0.0)
        as_holdout(self.holdout)
        check_whole(self.batch_size, "batch_size")
        if self.budget is not None:
            check_whole(self.budget, "budget")
        if self.target is not None:
            check_number(self.target, "target")
        if self.stop is not None and not isinstance(self.stop, StoppingRule):
            raise InvalidInputError(
                f"stop is {self.stop!r}; expected a rule of labelchef.campaign.stopping, or None", code="stop"
            )
        reached = TargetReached(self.target_metric, self.target or 0.0)  # checks the metric, target or not
        target = None if self.target is None else reached
        return LoopSettings(self.batch_size, self.budget, target, self.stop)

    def _check_metric(self, n_classes: int) -> None:
        if self.target_metric == "f1" and n_classes != 2:
            raise InvalidInputError(
                f"target_metric is 'f1' with {n_classes} classes; expected 'f1_macro', 'accuracy' or 'loss': "
                "F1 of one class is for two classes",
                code="metric",
            )

    def _split(self, X: NDArray[Any], y: Ints, names: ClassNames) -> Split:
        return Split(X, y, len(names), bias=self.fit_intercept, engine=self._placement.split)

    def _by_name(self, function: Callable[[Batch], Iterable[Any]]) -> Callable[[Batch], Iterable[int]]:
        return lambda batch: self._names.encode_votes(function(batch), "annotator's labels")


def seed_of(random_state: Any) -> int:
    """A whole number from the seed, the same for the same seed."""
    try:
        rng = np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"random_state is {random_state!r}; expected a whole number of at least 0, a Generator or None",
            code="random_state",
        ) from None
    return int(random_state) if isinstance(random_state, int | np.integer) else int(rng.integers(1 << 32))
