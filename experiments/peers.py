"""What a user could do without labelchef, and labelchef: the rows of the scoreboard.

All rows see the same problem (`data.sourced`), are asked in the same rounds, get the same answers (the reference label or, with
strategy 'errs', another class for a tenth of the samples), and are measured by test macro-F1. Peers share the model, the choice
of its strength and the decision rule (`regression`). They differ in the weak rows that they train on beside the clean ones, and
in the samples they ask:

- *clean rows only*: no weak label is used; the strategy that asks is scikit-learn's kind or one of scikit-activeml;
- *pseudo-labels*: scikit-learn's self-training and label spreading label the training samples from the clean rows;
- *aggregated sources*: a model of the votes alone (Snorkel, crowd-kit) gives soft labels, all of which train with weight 1;
- *cleanlab*: weak labels by majority, less those that `CleanLearning` finds wrong.

An answer replaces the weak row of its sample. Libraries come with the extra `peers`.
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import kneighbors_graph
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from experiments import data, regression
from experiments.cells import Cell
from experiments.regression import Floats, Ints, Learner, Rows, macro_f1
from labelchef import LabelCleaner
from labelchef.base.errors import MissingExtraError
from labelchef.base.records import RoundRecord
from labelchef.believe import vote_shares

CANDIDATES = 1000
"""Of the training samples, so many at random are offered to scikit-activeml, self-training, label spreading: they are slow."""
NEIGHBOURS = 10
ERRORS = 0.1
"""Share of the samples for which people who err give another class."""


def library(name: str) -> ModuleType:
    """A library that only the scoreboard needs."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != name.split(".")[0]:
            raise
        raise MissingExtraError(
            f"the scoreboard needs {name.split('.')[0]}; pip install 'labelchef[peers]'", code="peers"
        ) from None


@dataclass
class Campaign:
    """A problem on its way: which training samples were asked, and the model that all rows share."""

    problem: data.Sourced
    seed: int
    answers: Ints | None = None
    """What people say of the training samples (N,); the reference labels, if None."""
    asked: list[int] = field(default_factory=list)
    believed: Floats | None = None
    """What a model of the votes believes of the training samples (N, C), once it was fitted."""

    def __post_init__(self) -> None:
        d = self.problem
        self.said = d.y if self.answers is None else self.answers
        scale = regression.scale_of(d.X)
        self.pool, self.trusted, self.test = (regression.with_ones(X, scale) for X in (d.X, d.X_val, d.X_test))
        self.learner = Learner(d.n_classes, self.seed)
        self.rng = np.random.default_rng([self.seed, 6])

    @property
    def x(self) -> NDArray[np.float32]:
        """Clean rows, trusted ones first."""
        return np.vstack([self.trusted, self.pool[self.asked]])

    @property
    def y(self) -> Ints:
        """Their labels."""
        return np.concatenate([self.problem.y_val, self.said[self.asked]])

    @property
    def left(self) -> Ints:
        """Training samples that were not asked."""
        return np.setdiff1d(np.arange(len(self.pool)), self.asked)

    @cached_property
    def some(self) -> Ints:
        """Training samples that self-training and label spreading may use."""
        return np.random.default_rng([self.seed, 7]).permutation(len(self.pool))[:CANDIDATES]


# which samples to ask


def by_chance(campaign: Campaign, b: int) -> Ints:
    """Any."""
    return campaign.rng.permutation(campaign.left)[:b]


def by_margin(campaign: Campaign, b: int) -> Ints:
    """Those whose two most probable classes are closest."""
    left = campaign.left
    top = np.sort(campaign.learner.predict_proba(campaign.pool[left]), axis=1)
    return np.asarray(left[np.argsort(top[:, -1] - top[:, -2], kind="stable")[:b]])


def by_entropy(campaign: Campaign, b: int) -> Ints:
    """Those whose prediction has the largest entropy."""
    left = campaign.left
    P = campaign.learner.predict_proba(campaign.pool[left])
    return np.asarray(left[np.argsort(np.sum(P * np.log(P + 1e-12), axis=1), kind="stable")[:b]])


def by_library(strategy: str, **settings: Any) -> "Ask":
    """A query strategy of scikit-activeml, with logistic regression of the strength that was chosen."""

    def ask(campaign: Campaign, b: int) -> Ints:
        pools, classifiers = library("skactiveml.pool"), library("skactiveml.classifier")
        offered = campaign.rng.permutation(campaign.left)[:CANDIDATES]
        X = np.vstack([campaign.x, campaign.pool[offered]])[:, :-1]
        y = np.concatenate([campaign.y.astype(np.float64), np.full(len(offered), np.nan)])
        kind, seed = getattr(pools, strategy), int(campaign.rng.integers(2**31))
        if "cluster_algo_dict" in inspect.signature(kind).parameters:
            settings["cluster_algo_dict"] = {"random_state": seed}
        chooser = kind(random_state=seed, **settings)
        model = LogisticRegression(C=campaign.learner.c, max_iter=500)
        wanted = inspect.signature(chooser.query).parameters
        extra: dict[str, Any] = {}
        for name, flag in (("clf", "fit_clf"), ("estimator", "fit_estimator")):
            if name in wanted:
                classes = range(campaign.problem.n_classes)
                extra = {name: classifiers.SklearnClassifier(model, classes=classes).fit(X, y), flag: False}
        found = chooser.query(X, y, batch_size=b, **extra)
        return np.asarray(offered[np.asarray(found) - len(campaign.y)])

    return ask


# weak rows


def no_weak(campaign: Campaign) -> regression.WeakOf | None:  # noqa: ARG001
    """Clean rows only."""
    return None


def self_trained(campaign: Campaign) -> regression.WeakOf:
    """Training samples that self-training (threshold 0.75) labels, from logistic regression of the strength chosen."""
    offered = np.setdiff1d(campaign.some, campaign.asked)
    X = np.vstack([campaign.x, campaign.pool[offered]])[:, :-1]
    y = np.concatenate([campaign.y, np.full(len(offered), -1)])
    model = SelfTrainingClassifier(LogisticRegression(C=campaign.learner.c, max_iter=500), threshold=0.75, max_iter=10)
    labels = model.fit(X, y).transduction_[len(campaign.y) :]
    return _constant(campaign, offered[labels >= 0], np.eye(campaign.problem.n_classes)[labels[labels >= 0]])


def spread(campaign: Campaign) -> regression.WeakOf:
    """Training samples with what label spreading (alpha 0.2, ten neighbours) gives them from the clean rows."""
    left = np.setdiff1d(campaign.some, campaign.asked)
    n_clean = len(campaign.y)
    features = np.vstack([campaign.x, campaign.pool[left]])[:, :-1]
    graph = kneighbors_graph(features, NEIGHBOURS, mode="connectivity")

    def weak(kept: Ints) -> Rows:
        y = np.full(len(features), -1)
        y[kept] = campaign.y[kept]
        model = LabelSpreading(kernel=lambda *_: graph.copy(), alpha=0.2, max_iter=30, tol=1e-3).fit(features, y)
        found = np.zeros((len(left), campaign.problem.n_classes))
        found[:, model.classes_.astype(np.int64)] = model.label_distributions_[n_clean:]
        reached = np.isfinite(found).all(axis=1) & (found.sum(axis=1) > 0)
        return Rows(campaign.pool[left[reached]], found[reached], np.ones(int(reached.sum())))

    return weak


def aggregated(by: Callable[[Campaign], Floats]) -> "Weak":
    """Training samples with what a model of the votes believes; those without a vote are left out.

    Votes do not change while people are asked, so the model is fitted once.
    """

    def weak(campaign: Campaign) -> regression.WeakOf:
        if campaign.believed is None:
            campaign.believed = by(campaign)
        rows = np.setdiff1d(np.flatnonzero((campaign.problem.votes >= 0).any(axis=1)), campaign.asked)
        return _constant(campaign, rows, campaign.believed[rows])

    return weak


def majority(campaign: Campaign) -> Floats:
    """crowd-kit's majority vote, as shares."""
    return _crowd(campaign, "MajorityVote")


def dawid_skene(campaign: Campaign) -> Floats:
    """crowd-kit's Dawid–Skene: a confusion matrix for every source, by EM."""
    return _crowd(campaign, "DawidSkene", n_iter=100)


def mace(campaign: Campaign) -> Floats:
    """crowd-kit's MACE: a source knows, or guesses in its own manner."""
    return _crowd(campaign, "MACE", n_restarts=3, n_iter=30, random_state=campaign.seed)


def _crowd(campaign: Campaign, name: str, **settings: Any) -> Floats:
    votes, C = campaign.problem.votes, campaign.problem.n_classes
    items, sources = np.nonzero(votes >= 0)
    table = pd.DataFrame({"task": items, "worker": sources, "label": votes[items, sources]})
    found = getattr(library("crowdkit.aggregation"), name)(**settings).fit_predict_proba(table)
    Q = np.full((len(votes), C), 1.0 / C)
    Q[found.index] = found.reindex(columns=range(C), fill_value=0.0).fillna(0.0)
    return Q


def snorkel(campaign: Campaign) -> Floats:
    """Snorkel's label model, class balance from the trusted samples; majority where there are fewer than three sources."""
    votes, C = campaign.problem.votes, campaign.problem.n_classes
    if votes.shape[1] < 3:
        return majority(campaign)
    library("torch").set_num_threads(1)
    model = library("snorkel.labeling.model").LabelModel(cardinality=C, verbose=False)
    model.fit(votes, Y_dev=campaign.problem.y_val, n_epochs=500, seed=campaign.seed, progress_bar=False)
    return np.asarray(model.predict_proba(votes))


class Regression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The scoreboard's model in the form that scikit-learn's tools expect; X has its column of ones."""

    def __init__(self, c: float = 1.0, n_classes: int = 2, start: Floats | None = None) -> None:
        self.c = c
        self.n_classes = n_classes
        self.start = start

    def fit(self, X: NDArray[np.float32], y: Ints) -> "Regression":
        """One fit."""
        rows = Rows(X, np.eye(self.n_classes)[y], np.ones(len(y)))
        self.classes_ = np.arange(self.n_classes)
        start = np.zeros((X.shape[1], self.n_classes)) if self.start is None else self.start
        self.W_ = regression.fitted(rows, self.c, start, regression.gram(rows))
        return self

    def predict_proba(self, X: NDArray[np.float32]) -> Floats:
        """(n, C)."""
        return regression.probabilities(X, self.W_)

    def predict(self, X: NDArray[np.float32]) -> Ints:
        """The most probable class."""
        return np.asarray(self.predict_proba(X).argmax(axis=1))


def cleanlab(campaign: Campaign) -> regression.WeakOf:
    """Training samples labelled by majority, less those that cleanlab's CleanLearning finds wrong beside the clean rows."""
    votes, C = campaign.problem.votes, campaign.problem.n_classes
    rows = np.setdiff1d(np.flatnonzero((votes >= 0).any(axis=1)), campaign.asked)
    labels = np.concatenate([campaign.y, vote_shares(votes[rows], C).argmax(axis=1)])
    model = Regression(regression.GRID[2] if campaign.learner.c is None else campaign.learner.c, C, campaign.learner.W)
    learning = library("cleanlab.classification").CleanLearning(
        model, seed=campaign.seed, cv_n_folds=5, find_label_issues_kwargs={"n_jobs": 1}
    )
    issues = learning.find_label_issues(np.vstack([campaign.x, campaign.pool[rows]]), labels)
    right = ~issues["is_label_issue"].to_numpy(dtype=bool)[len(campaign.y) :]
    return _constant(campaign, rows[right], np.eye(C)[labels[len(campaign.y) :][right]])


def _constant(campaign: Campaign, rows: Ints, Q: Floats) -> regression.WeakOf:
    found = Rows(campaign.pool[rows], Q, np.ones(len(rows)))
    return lambda _: found


Ask = Callable[[Campaign, int], Ints]
Weak = Callable[[Campaign], regression.WeakOf | None]


@dataclass(frozen=True)
class Peer:
    """A row: what it is, its weak rows, whom it asks (None: nobody), and whether weak rows come after the tuning."""

    text: str
    weak: Weak = no_weak
    ask: Ask | None = by_margin
    weak_last: bool = False
    """Strength and decision rule are chosen on the clean rows alone, then the weak rows are made and trained on."""


PEERS = {
    "trusted": Peer("LR on the trusted samples; nobody is asked", ask=None),
    "lr_random": Peer("LR on trusted and asked samples, asked at random", ask=by_chance),
    "lr_margin": Peer("LR on trusted and asked samples, margin"),
    "lr_entropy": Peer("LR on trusted and asked samples, entropy", ask=by_entropy),
    "majority": Peer("crowd-kit: majority vote, then LR, margin", aggregated(majority)),
    "dawid_skene": Peer("crowd-kit: Dawid–Skene, then LR, margin", aggregated(dawid_skene)),
    "snorkel": Peer("Snorkel: label model, then LR, margin", aggregated(snorkel)),
    "cleanlab": Peer("cleanlab: CleanLearning on majority votes, margin", cleanlab),
    "self_training": Peer("scikit-learn: self-training, margin", self_trained, weak_last=True),
    "label_spreading": Peer("scikit-learn: label spreading, then LR, margin", spread),
    "falcun": Peer("scikit-activeml: Falcun", ask=by_library("Falcun")),
    "clue": Peer("scikit-activeml: CLUE", ask=by_library("Clue")),
    "badge": Peer("scikit-activeml: BADGE", ask=by_library("Badge")),
    "mace": Peer("crowd-kit: MACE, then LR, margin", aggregated(mace)),
}
CEILING = "ceiling"
OURS = {
    "labelchef_01": "labelchef 0.1's default: trusted samples steer, sources are averaged",
    "labelchef": "labelchef: the default",
}


def peer_campaign(cell: Cell) -> dict[str, Any]:
    """The curve of a peer, or the ceiling."""
    problem = _problem(cell)
    campaign = Campaign(problem, cell.seed, answers(problem, cell))
    if cell.selector == CEILING:
        return _ceiling(campaign, cell)
    return followed(campaign, PEERS[cell.selector], cell.labels, cell.b)


def _problem(cell: Cell) -> data.Sourced:
    assert cell.n_val is not None
    return data.sourced(cell.data, cell.seed, cell.n_val, n_train=cell.n_train, n_test=cell.n_test)


def answers(problem: data.Sourced, cell: Cell) -> Ints:
    """What people would say of every training sample."""
    if cell.strategy != "errs":
        return problem.y
    rng = np.random.default_rng([cell.seed, 8])
    other = (problem.y + rng.integers(1, problem.n_classes, len(problem.y))) % problem.n_classes
    return np.where(rng.random(len(problem.y)) < ERRORS, other, problem.y)


def followed(campaign: Campaign, peer: Peer, labels: int, b: int) -> dict[str, Any]:
    """Fit, measure, ask, until so many labels were asked."""
    curve = Curve(campaign.problem)
    learner, n_trusted = campaign.learner, len(campaign.trusted)
    while True:
        if peer.weak_last:
            learner.fit(campaign.x, campaign.y, n_trusted, campaign.pool)
            learner.fit(campaign.x, campaign.y, n_trusted, campaign.pool, peer.weak(campaign), tune=False)
        else:
            learner.fit(campaign.x, campaign.y, n_trusted, campaign.pool, peer.weak(campaign))
        curve.add(len(campaign.asked), learner.predict(campaign.test), learner.predict_proba(campaign.test))
        if peer.ask is None or len(campaign.asked) >= labels:
            return {**curve.result(), "strengths": learner.strengths, "taus": learner.taus}
        campaign.asked += peer.ask(campaign, b).tolist()


def _ceiling(campaign: Campaign, cell: Cell) -> dict[str, Any]:
    """LR on trusted and all training samples with their true labels."""
    campaign.asked = list(range(len(campaign.pool)))
    return followed(campaign, PEERS["trusted"], cell.labels, cell.b) | {"asked": [0]}


@dataclass
class Curve:
    """Test figures by labels asked: with the decision rule, and by the most probable class alone."""

    problem: data.Sourced
    asked: list[int] = field(default_factory=list)
    f1: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    def add(self, asked: int, predicted: Ints, P: Floats) -> None:
        """A point."""
        y, C = self.problem.y_test, self.problem.n_classes
        self.asked.append(asked)
        self.f1.append(round(macro_f1(y, predicted, C), 5))
        self.plain.append(round(macro_f1(y, P.argmax(axis=1), C), 5))
        self.accuracy.append(round(float(np.mean(predicted == y)), 5))

    def result(self) -> dict[str, Any]:
        """As a cell keeps it."""
        return {"asked": self.asked, "test_f1": self.f1, "plain_f1": self.plain, "test_accuracy": self.accuracy}


# labelchef


def ours_here() -> Sequence[str]:
    """The rows of labelchef that this version can run: before 0.2 trusted samples could not train."""
    return tuple(OURS) if "trusted" in inspect.signature(LabelCleaner).parameters else ("labelchef_01",)


def our_campaign(cell: Cell) -> dict[str, Any]:
    """The curve of a row of labelchef."""
    d = _problem(cell)
    return {"labelchef": _default, "labelchef_01": _first}[cell.selector](d, cell)


def _default(d: data.Sourced, cell: Cell) -> dict[str, Any]:
    """As a user calls it: everything that is known goes in, nothing is set."""
    cleaner = LabelCleaner(budget=cell.labels, batch_size=cell.b, random_state=cell.seed)
    given: dict[str, Any] = {"votes": d.votes, "votes_val": d.votes_val}
    cleaner.fit(d.X, X_val=d.X_val, y_val=d.y_val, classes=range(d.n_classes), **given)
    return _run(cleaner, d, answers(d, cell), lambda: np.asarray(cleaner.predict(d.X_test)))


def _first(d: data.Sourced, cell: Cell) -> dict[str, Any]:
    """Version 0.1: vote shares as weak labels, trusted samples steer and do not train, its selector with look-ahead.

    gamma and l2 are chosen once. The trusted samples are not trained on, so the predictions for them choose τ.
    """
    known = inspect.signature(LabelCleaner).parameters
    settings: dict[str, Any] = {
        "budget": cell.labels, "batch_size": cell.b, "random_state": cell.seed, "selector": "expected_infl",
        **({"trusted": "steer"} if "trusted" in known else {}),
    }  # fmt: skip
    given: dict[str, Any] = {"X_val": d.X_val, "y_val": d.y_val}
    weak = vote_shares(d.votes, d.n_classes)
    first = LabelCleaner(**settings).fit(d.X, weak, **given)
    cleaner = LabelCleaner(**settings, gamma=first.gamma_, l2=first.l2_).fit(d.X, weak, **given)

    def predicted() -> Ints:
        mean = cleaner.predict_proba(d.X).mean(axis=0)
        rng = np.random.default_rng([cell.seed, 5])
        tau = regression.chosen_tau(np.asarray(cleaner.predict_proba(d.X_val)), d.y_val, mean, rng)
        return regression.decided(np.asarray(cleaner.predict_proba(d.X_test)), tau, mean)

    return _run(cleaner, d, answers(d, cell), predicted)


def _run(cleaner: LabelCleaner, d: data.Sourced, said: Ints, predicted: Callable[[], Ints]) -> dict[str, Any]:
    curve = Curve(d)
    asked = [0]

    def add(record: RoundRecord) -> None:
        asked[0] += len(record.batch.indices)
        curve.add(asked[0], predicted(), np.asarray(cleaner.predict_proba(d.X_test)))

    curve.add(0, predicted(), np.asarray(cleaner.predict_proba(d.X_test)))
    cleaner.run(lambda batch: said[batch.indices], on_round=add)
    return curve.result()
