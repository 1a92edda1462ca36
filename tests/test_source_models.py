"""Source models on planted sources, against independent forms of them, and what must hold of any votes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError
from labelchef.believe import SourceVotes
from labelchef.believe.evidence import Evidence
from labelchef.believe.models import (
    MODELS,
    Belief,
    DawidSkene,
    Joint,
    NaiveBayes,
    Product,
    Shares,
    coins,
    make_source_model,
    updated,
)
from tests.profiles import examples

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


def cast(rng: np.random.Generator, y: Ids, rates: Array) -> Ids:
    """(n, J) votes: source j votes v on a sample of class c with probability rates[j, v, c], and is silent otherwise."""
    votes = np.full((len(y), len(rates)), -1)
    for j, table in enumerate(rates):
        place = rng.random(len(y))[:, None] < table[:, y].T.cumsum(axis=1)
        votes[:, j] = np.where(place.any(axis=1), place.argmax(axis=1), -1)
    return votes


def confusion(accuracy: float, C: int, coverage: float = 1.0) -> Array:
    """(C, C) rates by vote and class: right with this probability where it votes, else any other class alike."""
    off = (1.0 - accuracy) / (C - 1)
    return coverage * (np.full((C, C), off) + (accuracy - off) * np.eye(C))


def evidence_of(
    votes: SourceVotes, C: int, *, y: Ids | None = None, n_clean: int = 0, log_p: Array | None = None
) -> Evidence:
    """Evidence with the first `n_clean` samples clean; without a classifier, all classes are alike."""
    clean = np.full(votes.n_rows, -1)
    if y is not None:
        clean[:n_clean] = y[:n_clean]
    flat = np.full((votes.n_rows, C), -np.log(C))
    return Evidence(votes, flat if log_p is None else log_p, clean, votes.shares())


def a_classifier(rng: np.random.Generator, y: Ids, C: int, strength: float = 1.0) -> Array:
    """(n, C) log-probabilities that are calibrated: logits of normal noise around the truth."""
    A = strength * (np.sqrt(2) * rng.normal(size=(len(y), C)) / np.sqrt(2) + strength * np.eye(C)[y])
    return np.asarray(A - np.logaddexp.reduce(A, axis=1, keepdims=True))


def shape_of(rates: Array) -> Array:
    """Confusions: rates scaled to sum to 1 over the votes."""
    return np.asarray(rates / rates.sum(axis=1, keepdims=True))


def right(Q: Array, y: Ids, n_clean: int = 0) -> float:
    return float((Q.argmax(axis=1) == y)[n_clean:].mean())


def found_rates(belief: Belief) -> Array:
    assert belief.rates is not None
    return belief.rates


# planted sources


@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("model", [Joint(), Joint(rho=0.2), NaiveBayes(), DawidSkene()], ids=repr)
def test_independent_sources_are_recovered(rng: np.random.Generator, model: Any, C: int) -> None:
    n, n_clean = 4000, 500
    y, accuracy = rng.integers(0, C, n), np.linspace(0.45 if C > 2 else 0.6, 0.9, 6)
    planted = np.stack([confusion(a, C) for a in accuracy])
    votes = SourceVotes.hard(cast(rng, y, planted), C)
    belief = model.believe(evidence_of(votes, C, y=y, n_clean=n_clean, log_p=a_classifier(rng, y, C)))
    found = shape_of(found_rates(belief))
    assert np.abs(found - planted).max() < 0.14  # three standard errors of 125 clean samples
    assert np.abs(np.einsum("jvv->jv", found).mean(axis=1) - accuracy).max() < 0.06
    assert right(belief.Q, y, n_clean) > max(right(votes.shares(), y, n_clean), accuracy.max())


def test_abstaining_sources_and_rules_of_one_class_are_recovered_as_rates(rng: np.random.Generator) -> None:
    """A source that votes more on some classes than on others tells by its silence what it is good for; a rule likewise."""
    C, n, n_clean = 3, 6000, 600
    y = rng.integers(0, C, n)
    by_class = confusion(0.8, C) * np.array([0.9, 0.4, 0.1])  # coverage by class
    rules = np.zeros((3, C, C))
    for v in range(3):
        rules[v, v] = np.where(np.arange(C) == v, 0.6, 0.1)  # fires on 60 % of its class and 10 % of the others
    planted = np.concatenate([by_class[None], confusion(0.7, C, coverage=0.05)[None], rules])
    votes = SourceVotes.hard(cast(rng, y, planted), C)
    for model in (NaiveBayes(), Joint()):
        belief = model.believe(evidence_of(votes, C, y=y, n_clean=n_clean, log_p=a_classifier(rng, y, C)))
        assert np.abs(found_rates(belief) - planted).max() < 0.1
        assert found_rates(belief)[2, 0, 0] / found_rates(belief)[2, 0, 1] > 3.5, "a rule tells by where it votes"
        spoken = ~votes.silent & (np.arange(n) >= n_clean)
        assert right(belief.Q[spoken], y[spoken]) > right(votes.shares()[spoken], y[spoken]) + 0.02


def test_copies_of_a_poor_source_are_seen_through(rng: np.random.Generator) -> None:
    """Six copies of a source that is right in 40 % of the cases outvote three good ones; clean samples tell them apart."""
    C, n, n_clean = 3, 3000, 300
    y = rng.integers(0, C, n)
    poor, good = cast(rng, y, confusion(0.4, C)[None]), cast(rng, y, np.stack([confusion(0.8, C)] * 3))
    votes = SourceVotes.hard(np.concatenate([np.repeat(poor, 6, axis=1), good], axis=1), C)
    evidence = evidence_of(votes, C, y=y, n_clean=n_clean, log_p=a_classifier(rng, y, C))
    for model in (NaiveBayes(), Joint()):
        belief = model.believe(evidence)
        accuracy = np.einsum("jvv->jv", shape_of(found_rates(belief))).mean(axis=1)
        np.testing.assert_allclose(
            accuracy[:6], 0.4, atol=0.13
        )  # beliefs that follow them count half as much as clean samples
        np.testing.assert_allclose(accuracy[6:], 0.8, atol=0.08)
        assert right(belief.Q, y, n_clean) > 0.72 > 0.6 > right(votes.shares(), y, n_clean)


def test_copies_fool_a_model_without_clean_samples(rng: np.random.Generator) -> None:
    """A limit of Dawid–Skene, which is why it is one model among several: sources that agree are taken for good ones."""
    C, n = 3, 2000
    y = rng.integers(0, C, n)
    poor, good = cast(rng, y, confusion(0.4, C)[None]), cast(rng, y, np.stack([confusion(0.8, C)] * 3))
    votes = SourceVotes.hard(np.concatenate([np.repeat(poor, 6, axis=1), good], axis=1), C)
    assert right(DawidSkene().believe(evidence_of(votes, C)).Q, y) < 0.5


@pytest.mark.parametrize("C", [2, 3])
def test_a_source_worse_than_chance_is_turned(rng: np.random.Generator, C: int) -> None:
    n, n_clean = 2000, 200
    y = rng.integers(0, C, n)
    planted = np.stack([confusion(0.1, C), confusion(0.7, C), confusion(0.6, C)])
    votes = SourceVotes.hard(cast(rng, y, planted), C)
    log_p = a_classifier(rng, y, C)
    for model in (NaiveBayes(), Joint(), DawidSkene()):
        belief = model.believe(evidence_of(votes, C, y=y, n_clean=n_clean, log_p=log_p))
        rates = found_rates(belief)
        turned = np.diag(rates[0]) < (rates[0].sum(axis=1) - np.diag(rates[0])) / (C - 1)
        assert turned.all(), "its vote counts against the class that it names"
        without = SourceVotes.hard(cast(rng, y, planted)[:, 1:], C)
        alone = model.believe(evidence_of(without, C, y=y, n_clean=n_clean, log_p=log_p))
        assert right(belief.Q, y, n_clean) > right(alone.Q, y, n_clean) + 0.02, "and brings something"


@pytest.mark.parametrize("n_clean", [0, 100])
def test_two_thousand_sparse_workers(rng: np.random.Generator, n_clean: int) -> None:
    """2 000 workers with 5 to 10 votes each, half of them guessing: pooling beats vote shares and the model without pooling."""
    C, n, J = 4, 3000, 2000
    y, skill = rng.integers(0, C, n), np.where(rng.random(J) < 0.5, 0.05, 0.8)
    items, workers, labels = [], [], []
    for j in range(J):
        asked = rng.choice(n, rng.integers(5, 11), replace=False)
        items += asked.tolist()
        workers += [j] * len(asked)
        labels += np.where(rng.random(len(asked)) < skill[j], y[asked], rng.integers(0, C, len(asked))).tolist()
    table = np.full((n, J), -1, dtype=np.int64)
    table[items, workers] = labels
    votes = SourceVotes.hard(table, C)
    evidence = evidence_of(votes, C, y=y, n_clean=n_clean)
    spoken = ~votes.silent
    shares = right(votes.shares()[spoken], y[spoken])
    pooled, plain = DawidSkene().believe(evidence), DawidSkene(pooling=0).believe(evidence)
    assert right(pooled.Q[spoken], y[spoken]) > shares + 0.06
    assert right(pooled.Q[spoken], y[spoken]) > right(plain.Q[spoken], y[spoken]) + 0.06
    accuracy = np.einsum("jvv->jv", found_rates(pooled)).mean(axis=1)
    assert accuracy[skill > 0.5].mean() > accuracy[skill < 0.5].mean() + 0.15


# independent forms


def dense_dawid_skene(votes: Ids, C: int, alternations: int) -> Array:
    """The model of Dawid and Skene (1979) by plain loops: class frequencies, confusions, products."""
    n, J = votes.shape
    Q = np.stack([(votes == c).sum(axis=1) for c in range(C)], axis=1).astype(float)
    Q /= Q.sum(axis=1, keepdims=True)
    for _ in range(alternations):
        prior, pi = Q.mean(axis=0), np.zeros((J, C, C))
        for j in range(J):
            for c in range(C):
                for v in range(C):
                    pi[j, v, c] = Q[votes[:, j] == v, c].sum()
                pi[j, :, c] /= max(pi[j, :, c].sum(), 1e-300)
        for i in range(n):
            for c in range(C):
                Q[i, c] = prior[c] * np.prod([pi[j, votes[i, j], c] for j in range(J) if votes[i, j] >= 0])
            Q[i] /= Q[i].sum()
    return Q


CROWD_VOTES = [
    [2, -1, 0, 2], [0, -1, -1, 0], [0, 1, 0, 0], [2, 0, 0, 2], [0, 0, 0, 0], [2, 2, 2, 0],
    [2, 2, 1, 0], [1, 2, 1, 1], [-1, 0, 1, 2], [1, 2, 0, -1], [2, 0, -1, -1], [1, -1, -1, 1],
]  # fmt: skip
CROWD_KIT = [
    [0.02055459, 0.0, 0.97944541], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.01993569, 0.0, 0.98006431],
    [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.9e-07, 0.0, 0.99999981], [0.0, 1.0, 0.0],
    [0.00147716, 0.0, 0.99852284], [0.0, 0.9998483, 0.0001517], [0.05770743, 0.0, 0.94229257], [0.0, 1.0, 0.0],
]  # fmt: skip
"""What crowd-kit 1.4.2 answers: DawidSkene(n_iter=5, tol=-1e9).fit_predict_proba."""


def plain_dawid_skene(votes: Ids, C: int, alternations: int) -> Array:
    model = DawidSkene(pooling=0, alternations=alternations)
    return model.believe(evidence_of(SourceVotes.hard(votes, C), C)).Q


def test_dawid_skene_equals_crowd_kit() -> None:
    np.testing.assert_allclose(plain_dawid_skene(np.array(CROWD_VOTES), 3, 5), CROWD_KIT, atol=2e-8)


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("alternations", [1, 4, 10])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:crowdkit", "ignore:.*:pandas.errors.Pandas4Warning")
def test_dawid_skene_equals_its_dense_form_and_crowd_kit_where_it_is_there(
    rng: np.random.Generator, C: int, alternations: int
) -> None:
    y = rng.integers(0, C, 150)
    votes = cast(rng, y, np.stack([confusion(a, C, coverage=0.7) for a in (0.5, 0.6, 0.7, 0.8, 0.9)]))
    votes[(votes < 0).all(axis=1), 0] = 0
    found = plain_dawid_skene(votes, C, alternations)
    np.testing.assert_allclose(found, dense_dawid_skene(votes, C, alternations), atol=1e-8)
    crowdkit = pytest.importorskip("crowdkit.aggregation", reason="crowd-kit is not installed")
    pd = pytest.importorskip("pandas")
    rows = [(i, j, v) for (i, j), v in np.ndenumerate(votes) if v >= 0]
    frame = pd.DataFrame(rows, columns=["task", "worker", "label"])
    theirs = crowdkit.DawidSkene(n_iter=alternations, tol=-1e9).fit_predict_proba(frame).sort_index()
    np.testing.assert_allclose(found, theirs[list(range(C))].to_numpy(), atol=1e-8)


def test_rates_from_clean_samples_alone_are_the_closed_form(rng: np.random.Generator) -> None:
    """θ_j(v | c) = (n_jvc + α(1/C + κ[v = c])) / (n_c + 1), for naive Bayes and for Joint with ρ = 0."""
    C, n, n_clean = 3, 400, 120
    y = rng.integers(0, C, n)
    votes = cast(rng, y, np.stack([confusion(a, C, coverage=0.6) for a in (0.5, 0.8)]))
    evidence = evidence_of(SourceVotes.hard(votes, C), C, y=y, n_clean=n_clean, log_p=a_classifier(rng, y, C))
    expected = np.zeros((2, C, C))
    for j in range(2):
        for v in range(C):
            for c in range(C):
                hits = np.sum((votes[:n_clean, j] == v) & (y[:n_clean] == c))
                expected[j, v, c] = (hits + 1.5 * (1 / C + 0.3 * (v == c))) / (np.sum(y[:n_clean] == c) + 1)
    naive = NaiveBayes(alpha=1.5, kappa=0.3).believe(evidence)
    joint = Joint(rho=0.0, alpha=1.5, kappa=0.3).believe(evidence)
    np.testing.assert_allclose(found_rates(naive), expected, rtol=1e-12)
    np.testing.assert_allclose(found_rates(joint), expected, rtol=1e-12)
    logs = evidence.log_p.copy()
    for i in range(n):
        for j in range(2):
            if votes[i, j] >= 0:
                logs[i] += np.log(expected[j, votes[i, j]])
    Q = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
    np.testing.assert_allclose(joint.Q[n_clean:], Q[n_clean:], rtol=1e-10)


def test_an_alternation_of_joint_is_what_its_header_says(rng: np.random.Generator) -> None:
    C, n, n_clean, rho = 3, 80, 25, 0.3
    y = rng.integers(0, C, n)
    votes = cast(rng, y, np.stack([confusion(a, C, coverage=0.6) for a in (0.5, 0.7, 0.9)]))
    evidence = evidence_of(SourceVotes.hard(votes, C), C, y=y, n_clean=n_clean, log_p=a_classifier(rng, y, C))
    first, second = Joint(rho=rho, alternations=2).alternate(evidence)
    np.testing.assert_array_equal(first.after, second.before)
    m = np.bincount(y[:n_clean], minlength=C) + rho * np.exp(evidence.log_p[n_clean:]).sum(axis=0) + 1.0
    weight = np.where(np.arange(n) < n_clean, 1.0, rho)
    for step in (first, second):
        for j in range(3):
            for v in range(C):
                hits = votes[:, j] == v
                counts = (weight[hits, None] * step.before[hits]).sum(axis=0) + 1 / C + 0.4 * (np.arange(C) == v)
                np.testing.assert_allclose(step.rates[j, v], counts / m, rtol=1e-12)


# what must hold of any votes


@st.composite
def any_evidence(draw: st.DrawFn) -> Evidence:
    """Hard, soft and missing votes; clean samples or none; a classifier that may be very sure."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, J, C = draw(st.integers(1, 25)), draw(st.integers(1, 5)), draw(st.integers(2, 4))
    votes = SourceVotes.hard(np.where(rng.random((n, J)) < draw(st.floats(0, 1)), rng.integers(0, C, (n, J)), -1), C)
    if draw(st.booleans()):
        soft = rng.dirichlet(np.full(C, draw(st.sampled_from([0.05, 1.0, 20.0]))), n)
        votes = votes.beside(SourceVotes.soft(np.where(soft < 1e-9, 0.0, soft), "soft"))
    clean = np.where(rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0])), rng.integers(0, C, n), -1)
    A = draw(st.sampled_from([0.0, 1.0, 30.0])) * rng.normal(size=(n, C))
    return Evidence(votes, A - np.logaddexp.reduce(A, axis=1, keepdims=True), clean, votes.shares())


models = st.one_of(
    st.builds(Joint, rho=st.sampled_from([None, 0.0, 0.1, 1.0]), alpha=st.sampled_from([0.01, 1.0, 2.0]),
              kappa=st.sampled_from([0.0, 0.4]), alternations=st.integers(1, 12)),
    st.builds(DawidSkene, pooling=st.sampled_from([0.0, 0.5, 2.0, 10.0]), alternations=st.integers(1, 20)),
)  # fmt: skip


@given(any_evidence(), models)
@settings(max_examples=examples(2))
def test_the_objective_never_falls(evidence: Evidence, model: Any) -> None:
    values = np.array(model.believe(evidence).objective)
    assert len(values) == model.alternations
    assert np.isfinite(values).all()
    assert (np.diff(values) >= -1e-8 * (1.0 + np.abs(values[1:]))).all()


@given(any_evidence())
def test_the_objective_of_coins_never_falls(evidence: Evidence) -> None:
    values = np.array([step.objective for step in coins(evidence, evidence.votes.shares())])
    assert np.isfinite(values).all()
    assert (np.diff(values) >= -1e-8 * (1.0 + np.abs(values[1:]))).all()


@given(any_evidence(), st.sampled_from(sorted(MODELS)))
def test_beliefs_are_distributions_and_clean_samples_keep_their_label(evidence: Evidence, name: str) -> None:
    belief = make_source_model(name).believe(evidence)
    np.testing.assert_allclose(belief.Q.sum(axis=1), 1.0, atol=1e-9)
    assert (belief.Q >= 0).all()
    known = ~evidence.weak
    C = evidence.votes.n_classes
    np.testing.assert_array_equal(belief.Q[known], np.eye(C)[evidence.clean[known]])
    assert belief.rates is None or (np.isfinite(belief.rates).all() and (belief.rates > 0).all())


@given(any_evidence(), st.sampled_from(sorted(MODELS)), st.integers(0, 2**32 - 1))
def test_the_order_of_samples_does_not_matter(evidence: Evidence, name: str, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(evidence.votes.n_rows)
    moved = Evidence(evidence.votes.rows(order), evidence.log_p[order], evidence.clean[order], evidence.given[order])
    one, other = (make_source_model(name).believe(each) for each in (evidence, moved))
    np.testing.assert_allclose(one.Q[order], other.Q, atol=1e-6)
    np.testing.assert_array_equal(one.spoken[order], other.spoken)


@given(any_evidence())
def test_where_all_sources_are_silent_joint_believes_the_classifier(evidence: Evidence) -> None:
    silent = evidence.votes.silent & evidence.weak
    Q = Joint().believe(evidence).Q
    np.testing.assert_allclose(Q[silent], np.exp(evidence.log_p[silent]), atol=1e-12)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_threads_do_not_matter(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Bit by bit: sums are over pieces of rows that depend on their number only."""
    C, n = 3, 20_000
    y = rng.integers(0, C, n)
    votes = SourceVotes.hard(cast(rng, y, np.stack([confusion(a, C, coverage=0.4) for a in (0.5, 0.7, 0.9)])), C)
    evidence = evidence_of(votes, C, y=y, n_clean=100, log_p=a_classifier(rng, y, C))
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr("labelchef.believe.evidence.thread_count", lambda count=threads: count)
        found.append(make_source_model(name).believe(evidence).Q)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_a_soft_vote_is_a_mixture_of_votes(rng: np.random.Generator) -> None:
    """Half a vote for each of two classes counts half in the counts of both, and half of the log-rate of both in the beliefs."""
    C, n = 3, 60
    y = rng.integers(0, C, n)
    hard = cast(rng, y, np.stack([confusion(a, C) for a in (0.6, 0.8)]))
    one_hot = SourceVotes.soft(np.eye(C)[hard[:, 0]], "a").beside(SourceVotes.soft(np.eye(C)[hard[:, 1]], "b"))
    given_ = evidence_of(SourceVotes.hard(hard, C, ("a", "b")), C, y=y, n_clean=20)
    for name in MODELS:
        same = make_source_model(name).believe(replace(given_, votes=one_hot))
        np.testing.assert_allclose(same.Q, make_source_model(name).believe(given_).Q, atol=1e-12)
    soft = rng.dirichlet(np.ones(C), n)
    evidence = evidence_of(SourceVotes.soft(soft, "soft"), C, y=y, n_clean=20)
    belief = NaiveBayes().believe(evidence)
    counts = soft[:20].T @ np.eye(C)[y[:20]]
    n_c = np.bincount(y[:20], minlength=C)
    rates = (counts + 1 / C + 0.4 * np.eye(C)) / (n_c + 1.0)
    np.testing.assert_allclose(found_rates(belief)[0], rates, rtol=1e-12)
    logs = np.log(n_c + 1.0) + soft @ np.log(rates)
    np.testing.assert_allclose(belief.Q[20:], np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))[20:])


def test_shares_and_products() -> None:
    votes = SourceVotes.hard(np.array([[0, 0, 1], [-1, -1, -1], [1, -1, -1]]), 2)
    log_p = np.log(np.array([[0.5, 0.5], [0.9, 0.1], [0.9, 0.1]]))
    evidence = Evidence(votes, log_p, np.array([-1, -1, 0]), votes.shares())
    shares, product = Shares().believe(evidence), Product().believe(evidence)
    np.testing.assert_allclose(shares.Q, [[2.1 / 3.2, 1.1 / 3.2], [0.5, 0.5], [1.0, 0.0]])
    assert shares.spoken.tolist() == [True, False, True]
    np.testing.assert_allclose(product.Q[1], [0.9, 0.1])
    assert product.Q[0, 0] > 0.6
    assert product.spoken.all()


def test_a_source_worse_than_chance_is_not_counted(rng: np.random.Generator) -> None:
    """One that guesses is, and so is a rule for a rare class that is often wrong, but less so than chance."""
    C, n = 3, 1200
    y = rng.choice(C, n, p=[0.5, 0.45, 0.05])
    rule = np.zeros((C, C))
    rule[2] = [0.1, 0.1, 0.8]  # right in 30 % of its votes, where 5 % of the samples are of its class
    planted = np.stack([confusion(0.1, C), confusion(1 / 3, C), rule, confusion(0.7, C)])
    votes = SourceVotes.hard(cast(rng, y, planted), C)
    evidence = evidence_of(votes, C, y=y, n_clean=300)
    assert evidence.heard.tolist() == [False, True, True, True]
    left = SourceVotes.hard(np.where(np.arange(4) == 0, -1, _ids(votes)), C)
    np.testing.assert_allclose(Shares().believe(evidence).Q[300:], left.shares()[300:])
    assert right(Shares().believe(evidence).Q, y, 300) > right(votes.shares(), y, 300) + 0.02
    belief, few = Product().believe(evidence), slice(600, 700)
    some = Evidence(votes.rows(few), evidence.log_p[few], evidence.clean[few], evidence.given[few])
    np.testing.assert_allclose(updated(belief, some), belief.Q[few], err_msg="also of samples of which none is clean")
    given_labels = replace(evidence, given=rng.dirichlet(np.ones(C), n))
    np.testing.assert_array_equal(Shares().believe(given_labels).Q[300:], given_labels.given[300:])


def _ids(votes: SourceVotes) -> Ids:
    """(n, J) class ids of hard votes, −1 for none."""
    table = votes.table.toarray().reshape(votes.n_rows, votes.n_sources, votes.n_classes)
    return np.where(table.any(axis=2), table.argmax(axis=2), -1)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="unknown source model 'majority'; expected one of"):
        make_source_model("majority")
