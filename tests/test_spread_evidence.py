"""Source models whose rows workers hold: what they believe in one process, whoever dies; labels that are not sent."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from labelchef.believe import SourceVotes, spread
from labelchef.believe.evidence import Evidence
from labelchef.believe.models import MODELS, Belief, DawidSkene, Joint, SourceModel, make_source_model
from labelchef.believe.spread import SpreadEvidence, send_votes
from labelchef.model.contrasts import contrast
from labelchef.model.engines.cluster import ClusterEngine
from labelchef.model.engines.cluster.holder import ChangeLabels, CopyLabels, SetLabels
from labelchef.model.engines.memory import MemoryEngine
from labelchef.model.labels import LabelTable
from labelchef.model.softmax import log_probabilities
from tests.cluster_support import FAST, HereWorkers


@dataclass
class Rows:
    """Samples with votes, a third of them not shown to the sources, and a classifier; the first source is worse than chance."""

    X: Any
    votes: SourceVotes
    given: Any
    clean: Any
    W: Any
    labels: LabelTable

    @property
    def logits(self) -> Any:
        return self.X @ self.W[:-1] + self.W[-1]

    def here(self) -> Evidence:
        return Evidence(self.votes, log_probabilities(1.3 * self.logits), self.clean, self.given)

    def spread(self, engine: ClusterEngine) -> SpreadEvidence:
        logits = engine.sweep(self.labels.rows, W=contrast(self.W)).logits
        held = send_votes(engine, self.votes, self.given)
        return SpreadEvidence(engine, self.votes, self.given, held, self.clean, logits, 1.3)

    def engine(self, workers: HereWorkers) -> ClusterEngine:
        """The last rows come after those of X, as trusted ones do."""
        n = len(self.X) - 40
        return ClusterEngine(self.X[:n], bias=True, cluster=workers, more=self.X[n:], limits=FAST)


@pytest.fixture(params=["shares", "labels"])
def rows(request: pytest.FixtureRequest, rng: np.random.Generator) -> Rows:
    n, d, C = 1500, 4, 3
    y = rng.integers(0, C, n)
    X = (rng.normal(size=(n, d)) + 0.7 * np.eye(C, d)[y]).astype(np.float32)
    wrong = (y + rng.integers(1, C, n)) % C
    cast = np.stack([np.where(rng.random(n) < right, y, wrong) for right in (0.05, 0.6, 0.7, 0.9)], axis=1)
    cast[rng.random(cast.shape) < 0.5] = -1
    shown = np.arange(n) % 3 > 0
    cast[~shown] = -1
    hard = SourceVotes.hard(cast, C)
    votes = SourceVotes(hard.names, C, hard.table, shown)
    clean = np.where(rng.random(n) < 0.15, y, -1)
    clean[-40:] = y[-40:]
    given = votes.shares() if request.param == "shares" else rng.dirichlet(np.ones(C), n)
    table = LabelTable(given, 0.5)
    table.assign(np.flatnonzero(clean >= 0), clean[clean >= 0])
    return Rows(X, votes, given, clean, rng.normal(size=(d + 1, C)), table)


def same(found: Belief, expected: Belief) -> None:
    np.testing.assert_allclose(found.Q, expected.Q, atol=1e-9)
    np.testing.assert_array_equal(found.spoken, expected.spoken)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-9)
    for mine, theirs in ((found.rates, expected.rates), (found.heard, expected.heard)):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-7)


@pytest.mark.parametrize("model", [*(make_source_model(name) for name in MODELS), DawidSkene(pooling=0)], ids=str)
def test_a_model_believes_what_it_believes_in_one_process(
    rows: Rows, model: SourceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not rows.here().heard.all(), "a source is not counted"
    expected = model.believe(rows.here())
    same(model.believe(rows.spread(rows.engine(HereWorkers("abc")))), expected)
    monkeypatch.setattr(spread, "_SMALL", 0)  # tables of counts that each worker adds up
    same(model.believe(rows.spread(rows.engine(HereWorkers("abc")))), expected)


@pytest.mark.parametrize("model", [Joint(), DawidSkene(alternations=2)], ids=str)
@pytest.mark.parametrize("small", [0, 1 << 17])
def test_beliefs_do_not_depend_on_who_dies_when(
    rows: Rows, model: SourceModel, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "_SMALL", small)
    expected = model.believe(rows.spread(rows.engine(HereWorkers("a"))))
    workers = HereWorkers("abc")
    model.believe(rows.spread(rows.engine(workers)))
    for dying in range(1, workers.calls, 1 + workers.calls // 25):
        workers = HereWorkers("abc")
        workers.dies = lambda calls, dying=dying: calls == dying  # type: ignore[misc]
        found = model.believe(rows.spread(rows.engine(workers)))
        assert len(workers.there) == 2
        np.testing.assert_array_equal(found.Q, expected.Q, err_msg=str(dying))
        assert found.objective == expected.objective, dying


class Watched(HereWorkers):
    """Counts the rows of labels that are sent, and how often labels are copied on a worker."""

    def __init__(self, names: str) -> None:
        super().__init__(names)
        self.sent = self.copied = 0

    def start(self, member: str, make: Any, *given: Any) -> Any:
        holding, real = super().start(member, make, *given), None
        real = holding.call

        def call(method: str, *what: Any) -> Any:
            for step in what[0] if method == "do" else ():
                self.sent += len(step.Y) if isinstance(step, SetLabels | ChangeLabels) else 0
                self.copied += isinstance(step, CopyLabels)
            return real(method, *what)

        holding.call = call  # type: ignore[method-assign]
        return holding


def test_beliefs_become_labels_where_they_were_made(rows: Rows) -> None:
    workers = Watched("abc")
    engine, plain = rows.engine(workers), MemoryEngine(rows.X, bias=True)
    table, W, n = rows.labels, contrast(rows.W), len(rows.X)

    def check() -> None:
        found, expected = (np.asarray(one.sweep(table.rows, W=W, gradient=True).gradient) for one in (engine, plain))
        np.testing.assert_allclose(found, expected, atol=1e-9)

    check()
    assert workers.sent == n
    clean = int((rows.clean >= 0).sum())
    for answered in (3, 700):
        belief = Joint().believe(rows.spread(engine))
        table.believe(belief.Q, np.full(n, 0.5), None)
        table.assign(np.array([answered]), np.array([1]))
        before, workers.copied = workers.sent, 0
        check()
        assert workers.copied == len(engine._cuts)
        # a clean row has its one-hot label in Q as well; the one that was answered since has not
        assert workers.sent - before <= 1
        rows.clean[answered] = 1
    before = workers.sent
    table.believe(belief.Q, np.full(n, 0.25), None)  # another weight: all weak rows
    check()
    assert workers.sent - before >= n - clean - 2
    workers.there.pop("b")  # who takes its parts over gets the labels as they are
    check()
    doubted = np.flatnonzero(table.cleaned)[:5], np.full((5, 3), 1 / 3)
    table.believe(Joint().believe(rows.spread(engine)).Q, np.full(n, 0.25), doubted)
    check()


def test_row_arrays_of_a_model_are_forgotten(rows: Rows) -> None:
    workers = HereWorkers("a")
    engine = rows.engine(workers)
    for _ in range(3):
        for name in MODELS:
            make_source_model(name).believe(rows.spread(engine))
    engine.total(np.ones(len(rows.X)))
    parts = engine._crew._there["a"].holding._holder._parts  # type: ignore[attr-defined]
    assert max(len(part.arrays) for part in parts.values()) <= 3, "the last beliefs, and what the last calls left"
