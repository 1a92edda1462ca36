"""`LabelCleaner`: the Python API, in the manner of scikit-learn: a thin face over a session and a ledger in memory.

`Cleaner` holds what softmax regression and networks share; `LabelCleaner` and `networks.NetworkCleaner` differ in how they
make the first model and how they predict.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError as UnfittedEstimatorError

from labelchef.base import errors
from labelchef.base.arrays import Bools, Float64s, Floats, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.features import as_features, check_columns, columns_of, feature_names_of
from labelchef.base.inputs import ClassNames, as_evaluation_labels, as_indices
from labelchef.base.learning import Choice, Doubt, PeopleFacts, Ruling
from labelchef.base.records import Batch, Decisions, RoundRecord, StopReason, Votes
from labelchef.base.settings import OPTIONS, TRAIN, Settings
from labelchef.base.validation import Figure, Gain
from labelchef.believe.aggregation import Aggregator
from labelchef.believe.tuning import Tuned
from labelchef.chef.choice import make_selector, require_suggestions
from labelchef.chef.constructors import Constructor, make_constructor
from labelchef.chef.constructors.protocol import OnStep
from labelchef.chef.selectors import Selector
from labelchef.data.campaign_data import CampaignData, Known, as_rows
from labelchef.data.copies import Copies
from labelchef.judge.audit import AuditTrail
from labelchef.judge.gain import Judged
from labelchef.judge.metrics import history_frame
from labelchef.loop import steps
from labelchef.loop.annotators import Annotator, CallableAnnotator, takes_suggestions
from labelchef.loop.final import final_classifier
from labelchef.loop.ledger import MemoryLedger
from labelchef.loop.session import Session
from labelchef.loop.source_effect import SourceEffect, effect_of
from labelchef.loop.source_report import sources_frame
from labelchef.loop.start import Parts, check, new_session, with_strengths
from labelchef.loop.steps import Rules
from labelchef.loop.stopping import StoppingRule
from labelchef.model.classifier import LinearClassifier
from labelchef.model.contrasts import contrast, with_reference
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.softmax import probabilities

Value = TypeVar("Value")


@dataclass(frozen=True)
class SourceSettings:
    """How far the sources of labels are believed: `LabelCleaner(sources=SourceSettings(muted=["rule a"]))`."""

    model: str = "auto"
    """A name in `labelchef.believe.models.MODELS`, or 'none' to ignore weak labels; 'auto' chooses it by cross-validation over
    the clean samples, along with gamma and l2, and again as clean labels come in."""
    muted: Sequence[str] = ()
    """Names of sources whose votes are not used; `effect_of_sources` says what that changes."""
    answers: str = "auto"
    """'truth': a sample trains with the class that was decided; 'source': with what follows from the answers of people, who may
    err, and from the model without the sample; 'auto': as truth, until people are known to err (`people_`)."""


@dataclass(frozen=True)
class EngineSettings:
    """Where the features lie, and how: `LabelCleaner(engine=EngineSettings("cuda", feature_dtype="float16"))`."""

    name: str = "auto"
    """'auto', 'memory', 'cuda', 'disk' or 'dask'."""
    feature_dtype: str | None = None
    """How a GPU stores X: None for as given, or 'float64', 'float32', 'float16', 'bfloat16'."""
    cluster: str | None = None
    """The address of a Dask scheduler ('tcp://host:8786'), or 'local' for processes of this machine; None for that in the
    variable LABELCHEF_CLUSTER. With an address, 'auto' means 'dask'."""


@dataclass(frozen=True)
class CleaningResult:
    """What `LabelCleaner.run` returns."""

    history: pd.DataFrame
    """A row a round, round 0 being the model before any cleaning."""
    stopped_because: StopReason
    """'budget spent', 'target reached', 'nothing left to clean' or 'stopping rule'."""
    message: str
    rounds: tuple[RoundRecord, ...]
    """The same in full: what was asked, voted, decided and changed."""
    model: Any
    """The final classifier, as `finish()` gives it: `LinearClassifier`, or `networks.NetworkClassifier`."""


class Cleaner(BaseEstimator, ABC):  # type: ignore[misc]
    """What every cleaner can do once it is fitted. Its parameters are settings, and objects in place of names.

    It is for one thread at a time: with several, hold a lock of your own around every call. The server of `labelchef serve` is
    for many people at once.
    """

    selector: Any
    constructor: Any
    stop: Any
    batch_size: int
    target_metric: str
    random_state: Any
    tuned_: Tuned | None
    classes_: "np.ndarray[Any, Any]"
    _session: Session
    _ledger: MemoryLedger
    _names: ClassNames
    _last_query: tuple[Batch, float] | None = None
    _copies: Copies | None = None
    _columns: list[Hashable]
    """The columns of X, if it was a frame."""
    _feature_names: list[str] | None
    """The same, if all of them are named by strings."""

    def fit(
        self,
        X: Any,
        Y_weak: Any = None,
        *,
        votes: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        votes_val: Any = None,
        classes: Sequence[Hashable] | None = None,
        known: Known | None = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Initialise: check everything, train the first model (or take a pretrained network as it is).

        X (N, d) is neither copied nor written if it is a float array; it may be a path, or `labelchef.model.features.Features`,
        which need not fit into memory (docs/scale.md). A network takes arrays or tensors with samples along the first axis.
        `Y_weak` (N, C) holds probabilities; the columns of a frame, or `classes`, name the classes, which `y_val` holds.
        `known` is what is known besides: test samples, samples that judge, clean labels, who may be asked. `on_step` is told
        of the progress: (iteration, gradient norm, tolerance) by the
        solver, (epoch, gradient norm, NaN) by a descent, (epoch, training loss, validation loss) by a network.

        `votes` are those of J sources on the training samples (rules, labelling functions, crowd workers, LLMs), with `Y_weak`
        or in its place: an (N, J) table of class ids or names with −1 or None for no vote, a long table (item, source,
        label), a SciPy sparse matrix of class id + 1, probabilities (N, J, C), or a dict of sources;
        `labelchef.believe.vote_forms` has the forms in full. Without `Y_weak`, the weak labels are the shares of the votes;
        with it, it is one more source. `votes_val` are votes of the same sources on the validation samples. Without
        `Y_weak` and `classes`, the classes are the labels that occur in `votes` and `y_val`, sorted; votes by class id, or as
        probabilities, number them 0 … C−1, and `y_val` must then hold such numbers.

        Rows of X that are equal are copies, where chance does not make them equal (few columns of few values): one of them is
        asked, trains and counts, and its answer labels all. A copy of a trusted, judging or test sample has the label of that
        one, is never asked and does not train. With trusted='steer' every row stands for itself.

        Without `X_val` and `y_val`, the first 50 answers are drawn by chance and become the trusted samples; until then there are
        no figures.

        Part of validation judges, as `holdout` says, and neither selection nor early stopping sees it; with judges of your
        own (`Known(X_judge=…, y_judge=…)`) all of it steers.
        """
        data = partial(
            CampaignData.of, X, Y_weak, votes=votes, votes_val=votes_val, X_val=X_val, y_val=y_val, classes=classes, known=known,
        )  # fmt: skip
        self._begin(data, on_step)
        self._columns, self._feature_names = columns_of(X), feature_names_of(X)
        return self

    @abstractmethod
    def _begin(self, given: Callable[..., CampaignData], on_step: OnStep | None) -> Self:
        """Check the parameters, then the data, which `given(read=…)` returns; train the first model and hold its session."""

    def query(self, batch_size: int | None = None) -> Batch:
        """The samples to look at next, most helpful first; fewer than asked for if fewer are left.

        `batch.indices` are rows of X, `batch.suggested` class ids (columns of `Y_weak`), `batch.influence` N times
        the predicted change of the validation loss: negative helps; a selector that has none gives −1 and NaN.
        With look-ahead, each is what the sample adds after those before it in the batch; for more than 100 samples, or
        more than half of what is left, and in `scores()`, each stands for itself. The budget limits `run`, not `query`.
        """
        session = self._fitted()
        size = OPTIONS["batch_size"].check("batch_size", self.batch_size if batch_size is None else batch_size)
        began = time.perf_counter()
        batch = session.select(size)
        self._last_query = (batch, time.perf_counter() - began)
        return batch

    def scores(self) -> Float64s:
        """Influence of every training sample, (N,): expected with 'expected_infl', INFL's best case otherwise.

        Smallest first is the order of INFL; 'expected_infl' ranks by it less its spread over the answers. NaN
        where a sample is clean already, was given up, or is not askable.
        """
        return self._fitted().scores()

    def suggest(self, indices: Any) -> Batch:
        """What influence suggests for these samples, in their order, each standing for itself.

        With 'expected_infl' the answer to be expected, with any other selector INFL's: the one that would help most.
        Samples that have a clean label, or were given up, are scored as if they could be asked.
        """
        session = self._fitted()
        return session.scored(as_indices(indices, session.n_train))

    def update(self, indices: Any, labels: Any) -> Self:
        """Write down what people decided, and bring the model up to date.

        `labels` are class ids, or class names that are not integers; −1 leaves a sample unresolved: it keeps (or
        gets back) its weak label. Any sample may be updated, asked or not, clean or not. A label of a copy is one of all its
        copies, of which the last one counts; that of a copy of a trusted sample is known, and stays.
        """
        session = self._fitted()
        items = as_indices(indices, session.n_train)
        ids = self._names.encode_votes(labels, "labels")
        if len(ids) != len(items):
            raise InvalidInputError(
                f"{len(ids)} labels for {len(items)} samples; expected one label a sample", code="labels"
            )
        if self._copies is not None:
            items = self._copies.asked(items)
            last = {item: k for k, item in enumerate(items.tolist()) if item >= 0}
            items, ids = (part[np.array(sorted(last.values()), dtype=np.int64)] for part in (items, ids))
        if len(items) == 0:
            return self
        batch, seconds = self._asked(items)
        session.decide(batch, Votes.of([("update", items, ids)]), Decisions.sure(items, ids), seconds)
        return self

    def undo(self) -> Self:
        """Take the last round back: its samples get the labels they had before, and the model follows.

        This is a round of its own in the history; nothing is erased, and the budget stays spent. Call it again to take
        back the round before. Single labels are taken back by `update(indices, −1)`.
        """
        if not self._fitted().undo():
            raise InvalidInputError("there is no round to take back; expected at least one", code="undo")
        return self

    def run(
        self,
        annotator: Annotator | Callable[[Batch], Iterable[Any]],
        *,
        aggregator: Aggregator | None = None,
        on_round: Callable[[RoundRecord], None] | None = None,
    ) -> CleaningResult:
        """The whole loop, until the budget is spent, the target reached, a rule stops it or nothing is left.

        `annotator` votes on each batch: one of `labelchef.loop.annotators`, or any function from a batch to one label an
        item (class ids, or class names that are not integers; −1 = unresolved). An interrupt leaves whole rounds
        behind: call `run` again and it goes on.
        """
        session = self._fitted()
        if isinstance(annotator, type) or not (isinstance(annotator, Annotator) or callable(annotator)):
            raise InvalidInputError(
                f"annotator is {annotator!r}; expected one of labelchef.loop.annotators (an instance), or a function from a "
                "batch to labels",
                code="annotator",
            )
        if isinstance(annotator, Annotator):
            voters = annotator
        else:
            voters = CallableAnnotator(lambda batch: self._names.encode_votes(annotator(batch), "annotator's labels"))
        if takes_suggestions(voters):
            require_suggestions(session.selector)
        self._ledger.settings = self._settings()  # read again, so that a user may raise the budget between runs
        reason, message = steps.run(self._ledger, session, voters, aggregator, self._rules(), on_round)
        return CleaningResult(self.history_, reason, message, tuple(session.rounds), self.finish())

    @abstractmethod
    def finish(self) -> Any:
        """The final classifier, in the manner of scikit-learn, without any of the training data; this cleaner stays as it is."""

    def gain(self, metric: str | None = None, *, split: str = "validation") -> Gain | None:
        """What cleaning has brought so far: the model now against the first one, with a 95 % interval.

        Measured on the validation samples that are held out (`holdout`), or on the test set (`split="test"`); None where there
        are none. Trusted samples that train show no gain: see their level (`figures`), beside "trusted only" in `history_`.
        """
        gains, name = self.gains(split), self.target_metric if metric is None else metric
        if gains is not None and name not in gains:
            raise InvalidInputError(f"unknown metric {name!r}; expected one of: {', '.join(gains)}", code="metric")
        return None if gains is None else gains[name]

    def gains(self, split: str = "validation") -> dict[str, Gain] | None:
        """The gains of all metrics by name, as `gain` gives them."""
        return self._of_split(self._fitted().gains_by_split, split)

    def figures(self, split: str = "validation") -> dict[str, Figure] | None:
        """The metrics of the model as it stands by name, each with a 95 % interval; None where no samples judge."""
        return self._of_split(self._fitted().figures_by_split, split)

    @staticmethod
    def _of_split(found: Callable[[], dict[str, Value]], split: str) -> Value | None:
        if split not in ("validation", "test"):
            raise InvalidInputError(f"split is {split!r}; expected 'validation' or 'test'", code="split")
        return found().get(split)

    def judged(self, split: str = "validation") -> tuple[Ints, Judged] | None:
        """True class ids (n,) and the model as it stands, sample by sample, on a split; None where it has no samples.

        'validation' are the samples that judge, 'steering' those that selection sees.
        """
        return self._fitted().judged(split)

    @abstractmethod
    def predict_proba(self, X: Any) -> Float64s:
        """Class probabilities (n, C)."""

    def predict(self, X: Any) -> "np.ndarray[Any, Any]":
        """Class names (n,), by the decision rule that suits `target_metric` (`ruling_`)."""
        decided = self._decided(X)  # first: it refuses a cleaner that is not fitted
        return np.asarray(self.classes_[decided])

    def _decided(self, X: Any) -> Ints:
        """Class ids (n,)."""
        P, ruling = self.predict_proba(X), self._fitted().ruling
        if ruling is None:
            return np.asarray(P.argmax(axis=1), dtype=np.int64)
        scores = np.log(np.maximum(P, np.finfo(float).tiny)) + np.array(ruling.offsets)
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)

    def score(self, X: Any, y: Any) -> float:
        """Accuracy."""
        predicted = self._decided(X)
        return float(np.mean(predicted == as_evaluation_labels(y, self._names, len(predicted), "y")))

    @property
    def labels_(self) -> Float64s:
        """(N, C) training labels as they stand; copies have the label of the sample that was asked."""
        labels, cleaned = self._fitted().label_state
        return labels.copy() if self._copies is None else self._copies.labelled(labels, labels, cleaned)

    @property
    def posterior_(self) -> Float64s:
        """(N, C): what is now believed of every training sample, from model, sources and people."""
        session = self._fitted()
        believed = session.posterior()[: session.n_train]
        return believed if self._copies is None else self._copies.labelled(believed, *session.label_state)

    @property
    def sources_(self) -> pd.DataFrame:
        """A row a source: coverage, accuracy and confusion as measured with intervals and as believed, conflicts, weight, use,
        and what muting it would change (`labelchef.base.learning.SourceFacts`); empty where trusted samples only steer."""
        return sources_frame(self._fitted())

    @property
    def people_(self) -> PeopleFacts | None:
        """How often people err: of all together with a 95 % interval, and of each; None while there are few answers, with
        answers='truth', and where trusted samples only steer."""
        return self._fitted().people()

    @property
    def doubtful_(self) -> pd.DataFrame:
        """A row an answered sample that is worth a second look (`labelchef.base.learning.Doubt`), classes by name; those where
        another answer is worth most first. `update` takes a second answer, and with −1 the label back."""
        found = pd.DataFrame(
            [asdict(one) for one in self._fitted().doubtful()], columns=[f.name for f in fields(Doubt)]
        )
        return found.assign(**{name: self.classes_[found[name].to_numpy(int)] for name in ("answer", "believed")})

    @property
    def cleaned_(self) -> Bools:
        """(N,) which samples have a clean label."""
        cleaned = self._fitted().label_state[1]
        return cleaned.copy() if self._copies is None else np.asarray(self._copies.shared(cleaned))

    @property
    def choice_(self) -> Choice | None:
        """What the learner uses now: source model, gamma, strengths, and the trials; None where trusted samples only steer."""
        learner = self._fitted().learner
        return None if learner is None else learner.choice

    @property
    def ruling_(self) -> Ruling | None:
        """Temperature and decision rule in use; None for the most probable class, where trusted samples only steer."""
        return self._fitted().ruling

    @property
    def audit_(self) -> AuditTrail:
        """The audited samples: what was predicted before the answers, the answers, accuracy with its interval."""
        return self._fitted().audited()

    @property
    def gamma_(self) -> float:
        """The weight of a weak sample."""
        choice = self.choice_
        return float(self._ledger.settings.gamma) if choice is None else choice.gamma

    @property
    def l2_(self) -> float:
        """The strength of the L2 penalty."""
        return self._fitted().objective.l2

    @property
    def suggests_(self) -> bool:
        """Whether the selector suggests labels; where not, `suggested` is −1 and strategies two and three have no voter."""
        return self._fitted().selector.suggests

    @property
    def history_(self) -> pd.DataFrame:
        """A row a round so far."""
        return history_frame(self._fitted().rounds)

    @property
    def rounds_(self) -> tuple[RoundRecord, ...]:
        """The rounds so far, in full."""
        return tuple(self._fitted().rounds)

    def _hold(self, session: Session, data: CampaignData, settings: Settings, tuned: Tuned | None) -> Self:
        """Take up a session that has its first model."""
        self._session, self._names, self._copies = session, data.names, data.copies
        self._ledger = MemoryLedger(settings, session.rounds)
        self._last_query = None
        self.tuned_ = tuned
        self.classes_ = data.names.as_array()
        return self

    def _fitted(self) -> Session:
        if not hasattr(self, "_session"):
            raise NotFittedError(
                f"this {type(self).__name__} has no model yet; call fit(X, Y_weak, X_val=…, y_val=…) first",
                code="not_fitted",
            )
        return self._session

    def _settings(self) -> Settings:
        """The parameters as settings, checked."""
        return Settings.of({**self._given(), "seed": seed_of(self.random_state)})

    def _given(self) -> dict[str, Any]:
        """The parameters that are settings; a selector, constructor or rule that is an object is not."""
        given = {name: getattr(self, name) for name in OPTIONS if hasattr(self, name)}
        objects = ("selector", "constructor", "stop")
        given = {name: value for name, value in given.items() if name not in objects or isinstance(value, str)}
        sources, engine = given.get("sources"), given.get("engine")
        if isinstance(sources, SourceSettings):
            given |= {"sources": sources.model, "muted": sources.muted, "answers": sources.answers}
        return given | ({"engine": engine.name} if isinstance(engine, EngineSettings) else {})

    def _rules(self) -> Rules:
        rules = Rules.of(self._settings())
        if self.stop is None or isinstance(self.stop, str):
            return rules
        if not isinstance(self.stop, StoppingRule):
            raise InvalidInputError(
                f"stop is {self.stop!r}; expected a rule of labelchef.loop.stopping, its text, or None", code="stop"
            )
        rules = replace(rules, stop=self.stop)
        rules.check_audit(self._settings())
        return rules

    def _asked(self, items: Ints) -> tuple[Batch, dict[str, float]]:
        """What the last query said of these samples; a sample that it did not name, or that was answered, has no prediction."""
        if self._last_query is None:
            return Batch.without_predictions(items), {}
        asked, seconds = self._last_query
        self._last_query = (asked.without(items), seconds)
        known = bool(np.isin(items, asked.indices).any())
        return asked.aligned(items), {"select": seconds} if known else {}


class NotFittedError(errors.NotFittedError, UnfittedEstimatorError):  # type: ignore[misc]  # scikit-learn has no types
    """The same, also as scikit-learn names it."""


@dataclass(eq=False, repr=False)
class LabelCleaner(Cleaner):
    """Find the weak labels whose cleaning helps most, clean them, follow with the model, go round again.

    Parameters
    ----------
    selector : name in `labelchef.chef.selectors.SELECTORS`; 'increm_infl' is the paper's. By name, INFL's look ahead: the picks
        of a batch account for each other. A `Selector` is used as it is: `InflSelector()`, `LookAheadSelector(InflSelector())`
    constructor : name in `labelchef.chef.constructors.CONSTRUCTORS`, or a `Constructor`, such as `NewtonConstructor(tol=1e-6)` or
        `RetrainConstructor(DescentSettings(epochs=20))`
    trusted : 'train': trusted samples train the model, and each is judged by the model without it; 'steer': they only steer
        the selection and judge, as in the paper
    sources : the model of the sources by name, or `SourceSettings`: model, muted sources, whether people may err
    preset : 'paper' for the paper's pipeline: it sets what is left at its default to trusted='steer', gamma=0.8,
        selector='infl', holdout=0; a selector by name does not look ahead then, and newton is exact to 1e-5
    audit : share of what is asked that is drawn by chance, and predicted before it is answered (`audit_`)
    gamma : weight of a weak sample, 0 ≤ gamma ≤ 1; clean samples have weight 1. 'auto' chooses by cross-validation over
        the clean samples
    l2 : L2 strength, > 0, applied to all parameters, the intercept included; 'auto' chooses it along with gamma
    budget : samples to ask in `run`, None for no limit
    batch_size : samples a round
    holdout : share of the trusted samples that judge and are used for nothing else, drawn by class; 'auto' takes none where
        trusted samples train, else half of 100 samples and more; 0 with trusted='steer' is the paper's behaviour: its figures
        are optimistic
    target, target_metric : `run` stops once this metric is reached on the validation samples that judge
    stop : a further stopping rule, see `labelchef.loop.stopping`; also as text, such as 'MaxRounds(50)'
    random_state : seed of every random choice; a constructor that is handed in as an instance has its own
    engine : 'auto', 'memory', 'cuda', 'disk' or 'dask': where the features lie; 'auto' takes a GPU if PyTorch sees one and X is
        large, and streams X from its files (disk) if these take more than half of the free memory. Or `EngineSettings`

    Attributes
    ----------
    W_ : (D, C) parameters, the intercept in the last row
    labels_ : (N, C) training labels as they stand: weak as given, or one-hot once cleaned
    posterior_ : (N, C) what is believed of every training sample, from model, sources and people
    sources_ : a frame, a row a source: coverage, accuracy, confusion, conflicts, weight, and what muting it would change
    people_ : how often people err, with an interval and by person; None with few answers, or where they are taken for the truth
    doubtful_ : a frame, a row an answered sample that is worth a second look
    cleaned_ : (N,) which samples have a clean label
    classes_ : class names in the order of the columns
    history_ : a row a round so far
    gamma_, l2_ : the strengths in use, given or chosen
    choice_ : the source model and the strengths that were chosen, with the trials; None with trusted='steer'
    tuned_ : with trusted='steer', what was tried to choose gamma and l2; None if both were given

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

    selector: str | Selector = "margin"
    constructor: str | Constructor = "newton"
    trusted: str = "train"
    sources: str | SourceSettings = "auto"
    preset: str = "default"
    audit: float = 0.0
    gamma: float | str = "auto"
    l2: float | str = "auto"
    budget: int | None = 100
    batch_size: int = 10
    target: float | None = None
    target_metric: str = "f1_macro"
    stop: StoppingRule | str | None = None
    holdout: float | str = "auto"
    random_state: int | np.random.Generator | None = 0
    engine: str | EngineSettings = "auto"

    def _begin(self, given: Callable[..., CampaignData], on_step: OnStep | None) -> Self:
        settings = self._settings()
        engine = self.engine if isinstance(self.engine, EngineSettings) else EngineSettings()
        parts = Parts(
            None if isinstance(self.selector, str) else make_selector(self.selector),
            None if isinstance(self.constructor, str) else make_constructor(self.constructor),
            self._rules(),
            engine.feature_dtype,
            engine.cluster,
        )
        data = given(read=partial(as_rows, half=True))
        data = data.with_copies() if settings.trusted == TRAIN else data
        check(data, settings, parts)
        settings, tuned = with_strengths(data, settings)
        session = new_session(data, settings, parts)
        session.start(on_step)
        self._n_features = data.X.shape[1]
        return self._hold(session, data, settings, tuned)

    def predict_proba(self, X: Any) -> Float64s:
        """Class probabilities (n, C)."""
        W = self.W_  # first: it refuses a cleaner that is not fitted
        ruling = self._fitted().ruling
        check_columns(X, self._columns)
        rows = as_features(X, columns=self._n_features)
        if ruling is None:
            return linear_probabilities(rows, W, bias=True)
        return linear_probabilities(rows, ruling.parameters(W, bias=True), bias=True)

    def effect_of_sources(self, muted: Sequence[str]) -> SourceEffect:
        """What the model would be if exactly these sources were muted: fitted again, with the cross-validation of the choice.

        This cleaner stays as it is. To use it, make a cleaner with `SourceSettings(muted=…)`.
        """
        session = self._fitted()
        return effect_of(session, replace(session.heard, muted=tuple(muted)))

    def finish(self) -> LinearClassifier:
        """The final classifier: softmax regression fitted from scratch to the labels as they stand.

        It does not depend on the order of rounds, only on data, labels and settings. `save` and `to_onnx` write it to a file,
        and it can be pickled. This cleaner stays as it is: labelling may go on. It costs as much as the first model.
        """
        return final_classifier(self._fitted(), self._names, feature_names=self._feature_names)

    @property
    def W_(self) -> Float64s:  # noqa: N802
        """(D, C) parameters, the intercept in the last row."""
        return self._fitted().parameters.copy()


def linear_probabilities(X: Floats, W: Float64s, *, bias: bool) -> Float64s:
    """Class probabilities (n, C) of softmax regression with parameters W (D, C)."""
    blank = RowLabels(np.empty((len(X), W.shape[1])), np.empty(len(X)))
    sums = MemoryEngine(X, bias=bias).sweep(blank, W=contrast(W))
    return np.asarray(probabilities(with_reference(sums.logits)))


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
