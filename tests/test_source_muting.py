"""The closed form of muting a source against learners that are fitted again without it; a source worse than chance.

Refits: the same choice, the source taken out, the clean model, the beliefs and the model fitted again.
"""

import copy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import spearmanr

from labelchef import LabelCleaner
from labelchef.base.records import LabelChange
from labelchef.believe import SourceVotes
from labelchef.loop.session import Session
from labelchef.loop.source_report import muting
from tests.oracles import cleaner_of
from tests.test_source_models import cast, confusion

Array = NDArray[np.float64]
MODELS_WITH_RATES = ("joint", "naive_bayes", "dawid_skene")
N, N_VAL = 400, 80


def drawn(
    C: int, seed: int, n_sources: int = 6, coverage: float = 0.6, accuracy: tuple[float, ...] = ()
) -> dict[str, Any]:
    """Clusters, and sources right in 50 to 85 % of the cases or as said, which vote on a part of all samples."""
    rng = np.random.default_rng([C, seed])
    y = rng.integers(0, C, N + N_VAL)
    X = rng.normal(size=(N + N_VAL, 5)) + 1.4 * np.eye(C, 5)[y]
    planted = np.stack([confusion(a, C, coverage) for a in accuracy or np.linspace(0.5, 0.85, n_sources)])
    votes = cast(rng, y, planted)
    return {
        "X": X[:N],
        "votes": votes[:N],
        "X_val": X[N:],
        "y_val": y[N:],
        "votes_val": votes[N:],
        "classes": list(range(C)),
    }


def started(data: dict[str, Any], model: str, gamma: float = 1.0, **given: Any) -> Session:
    cleaner = cleaner_of(gamma=gamma, l2=0.02, sources=model, tol=1e-9, random_state=0, **given)
    return cleaner.fit(**data)._fitted()


def rank(a: Array, b: Array) -> float:
    return float(spearmanr(a.ravel(), b.ravel())[0])


def error(predicted: Array, real: Array) -> float:
    return float(np.linalg.norm(predicted - real) / np.linalg.norm(real))


def without_source(votes: SourceVotes, j: int) -> SourceVotes:
    table = votes.table.tolil(copy=True)
    table[:, j * votes.n_classes : (j + 1) * votes.n_classes] = 0
    found = csr_array(table)
    found.eliminate_zeros()
    found.sort_indices()
    return SourceVotes(votes.names, votes.n_classes, found)


def given_source(session: Session) -> int | None:
    assert session.learner is not None
    return session.learner.evidence(np.zeros_like(session.labels.Y), session.labels.clean_ids).given_source


def muted_by_refit(session: Session, j: int) -> float:
    """Change of the cross-fitted loss of a learner with the same choice that never saw the source."""
    again = copy.deepcopy(session)
    learner, C = again.learner, again.labels.n_classes
    assert learner is not None
    learner.votes = without_source(learner.votes, j)
    if given_source(session) in (None, j):
        learner.given = np.where(again.labels.cleaned[:, None], learner.given, learner.votes.shares())
    nothing = np.empty(0, dtype=np.int64)
    change = LabelChange(nothing, np.empty((0, C)), np.empty(0), np.empty((0, C)), np.empty(0))
    construction = again._follow(change, [])
    assert session.learner is not None
    shift = session.learner.belief_shift(session.objective, session.labels)  # taken for constant
    again.steering.follow(again.objective, construction, shift)  # type: ignore[attr-defined]
    after = again.steering.settled(construction.point.W).value
    return after - session.steering.settled(session.parameters).value


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("model", [*MODELS_WITH_RATES, "product", "shares"])
def test_muting_agrees_with_refits_without_the_source(model: str, C: int) -> None:
    """Ten sources; rank correlations found are 0.94 to 1.0, errors 3 to 29 % of the changes."""
    session = started(drawn(C, 1, n_sources=10, coverage=0.35), model, gamma=0.3)
    predicted = muting(session)
    real = np.array([muted_by_refit(session, j) for j in range(10)])
    assert rank(predicted, real) > 0.9
    assert error(predicted, real) < 0.45


@pytest.mark.parametrize("model", ["shares", "product", "joint"])
def test_muting_where_weak_labels_were_given_beside_the_votes(model: str, rng: np.random.Generator) -> None:
    """Counted weak labels are those that were given: muting a rule changes nothing of them, muting them leaves the votes."""
    data = drawn(2, 1, n_sources=4, coverage=0.5)
    data["Y_weak"] = rng.dirichlet([2.0, 2.0], N)
    del data["classes"]
    session = started(data, model, gamma=0.3)
    assert given_source(session) == 4
    predicted = muting(session)
    real = np.array([muted_by_refit(session, j) for j in range(5)])
    if model != "joint":
        np.testing.assert_array_equal(predicted[:4], 0.0)
        np.testing.assert_allclose(real[:4], 0.0, atol=1e-9)
    assert predicted[4] == pytest.approx(real[4], rel=0.35)


def test_muting_the_only_source_of_weak_labels(rng: np.random.Generator) -> None:
    """Without it the samples do not train at all."""
    data = drawn(2, 1)
    data["Y_weak"] = 0.5 * rng.dirichlet([2.0, 2.0], N) + 0.25
    for name in ("votes", "votes_val", "classes"):
        del data[name]
    session = started(data, "shares", gamma=0.05)
    assert muting(session)[0] == pytest.approx(muted_by_refit(session, 0), rel=0.35)


# a source worse than chance


@pytest.mark.parametrize("sources", ["joint", "naive_bayes", "dawid_skene", "shares", "product", "auto"])
@pytest.mark.parametrize("C", [2, 3])
def test_a_source_worse_than_chance_is_turned_or_muted(C: int, sources: str) -> None:
    data = drawn(C, 3, accuracy=(0.1, 1 / C, 0.7, 0.8))
    cleaner = LabelCleaner(sources=sources, gamma="auto" if sources == "auto" else 0.3, random_state=0).fit(**data)
    wrong, chance, good, better = cleaner.sources_.to_dict("records")
    assert wrong["use"] in ("turned", "muted")
    assert wrong["accuracy"] < 1 / C
    assert {chance["use"], good["use"], better["use"]} <= {"as it votes", "counted", "muted", "turned"}
    assert "muted" not in (good["use"], better["use"])
    assert "turned" not in (good["use"], better["use"])
    if sources in ("joint", "naive_bayes"):
        assert wrong["use"] == "turned"
        assert wrong["weight"] < -0.5
        assert abs(chance["weight"]) < good["weight"] < better["weight"]
    if sources in ("shares", "product"):
        assert wrong["use"] == "muted"
        assert wrong["muting"] == pytest.approx(0.0, abs=1e-12)


def test_sources_beside_given_weak_labels_are_not_said_to_be_counted(rng: np.random.Generator) -> None:
    """With 'shares' and weak labels as given, only these are counted."""
    data = drawn(2, 1, n_sources=2)
    data["Y_weak"] = rng.dirichlet([2.0, 2.0], N)
    del data["classes"]
    cleaner = LabelCleaner(sources="shares", gamma=0.3, l2=0.02).fit(**data)
    assert cleaner.sources_["use"].tolist() == ["not used", "not used", "counted"]
    assert cleaner.sources_["muting"].tolist()[:2] == [0.0, 0.0]
