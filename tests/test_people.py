"""People who err: their error rates are recovered, and answers train as a source where people are known to err."""

# mypy: disable-error-code="union-attr"

import json
from itertools import product
from typing import Any

import numpy as np
import pytest

from labelchef import LabelCleaner, SourceSettings
from labelchef.base.campaigns import Waiting
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import Answers, Decisions, Votes
from labelchef.base.settings import Settings
from labelchef.believe.people import LEAST, answers_of, estimate, value_of_asking
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.annotators import SimulatedAnnotators
from labelchef.loop.rebuild import rebuild
from labelchef.model.labels import LabelTable
from labelchef.model.softmax import log_probabilities
from labelchef.server.items.decisions import resolve
from labelchef.server.items.doubts import doubts
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.worker import advance
from labelchef.server.workspace import open_workspace
from tests.store_support import make, truth_of
from tests.test_campaign_cli import labelchef


def planted(
    seed: Any,
    error: Any,
    *,
    C: Any = 3,
    m: Any = 150,
    n: Any = 100,
    persons: Any = 1,
    each: Any = 1,
    gold: Any = 0,
    drawn: Any = True,
    surer: Any = 1.0,
) -> Any:
    """Answers of people who err this often (a rate, or one for each), the model's logits, and the trusted samples."""
    rng = np.random.default_rng(seed)

    def some(size: Any) -> Any:
        A = 3.0 * rng.normal(size=(size, C))
        y = (np.exp(log_probabilities(A)).cumsum(axis=1) > rng.random((size, 1))).argmax(axis=1)
        return A, y

    (A, y), (trusted, y_trusted) = some(m), some(n)
    place = np.repeat(np.arange(m), each)
    person = np.concatenate([rng.permutation(persons)[:each] for _ in range(m)])
    errs = rng.random(len(place)) < np.broadcast_to(error, persons)[person]
    label = np.where(errs, (y[place] + rng.integers(1, C, len(place))) % C, y[place])
    known = np.where(np.arange(m) < gold, y, -1)
    names = tuple(f"person {w}" for w in range(persons))
    answers = Answers(np.arange(m), known, np.full(m, drawn), names, place, person, label)
    return answers, surer * A, trusted, y_trusted


KINDS: dict[str, dict[str, Any]] = {
    "the model": {"m": 300},
    "overlap": {"persons": 3, "each": 2, "drawn": False},
    "gold": {"gold": 150, "drawn": False},
    "overlap, and a model that is too sure where it is asked": {"persons": 3, "each": 2, "drawn": False, "surer": 4.0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [0.0, 0.1, 0.25])
def test_a_planted_error_rate_is_recovered(kind: Any, error: Any) -> None:
    found = [estimate(*planted(seed, error, **KINDS[kind])).facts for seed in range(20)]
    assert abs(np.mean([facts.error for facts in found]) - error) < 0.02
    assert sum(facts.low <= error <= facts.high for facts in found) >= 17  # of 20 at 95 %
    assert all(facts.low == 0.0 for facts in found) or error > 0.0
    assert np.mean([facts.high - facts.low for facts in found]) < 0.2


def test_without_overlap_gold_or_audit_nothing_proves_that_people_err() -> None:
    """An answer that the model contradicts may be an error of the model, which was unsure enough to ask."""
    found = [estimate(*planted(seed, 0.2, drawn=False)).facts for seed in range(10)]
    assert max(facts.low for facts in found) <= LEAST
    assert all(facts.high > 0.1 for facts in found)


def test_errors_of_the_model_are_not_put_down_to_people() -> None:
    """On samples that a selector chose, the model is surer than it should be; people make no error."""
    rng = np.random.default_rng(0)
    answers, A, trusted, y = planted(0, 0.0, drawn=False)
    wrong = rng.random(len(A)) < 0.3
    A[wrong] = rng.permuted(A[wrong], axis=1)
    assert estimate(answers, A, trusted, y).facts.low <= LEAST


def test_persons_are_told_apart_once_they_have_answered_enough() -> None:
    answers, *rest = planted(3, [0.02, 0.02, 0.35], m=400, persons=3, each=2)
    facts = estimate(answers, *rest).facts
    rates = {one.name: one.error for one in facts.persons}
    assert rates["person 2"] == pytest.approx(0.35, abs=0.08)
    assert max(rates["person 0"], rates["person 1"]) < 0.08
    few = estimate(
        answers.among(np.arange(400) < 10), *[part[:10] if len(part) == 400 else part for part in rest]
    ).facts
    spread = [max(rates) - min(rates) for rates in ([one.error for one in f.persons] for f in (facts, few))]
    assert spread[1] < spread[0]


def test_beliefs_are_bayes_rule() -> None:
    answers, A, trusted, y = planted(1, 0.1, persons=2, each=2, gold=5)
    found = estimate(answers, A, trusted, y)
    rate = [one.error for one in found.facts.persons]
    lifted = np.array([[np.where(np.arange(3) == v, 1 - rate[w], rate[w] / 2) for v in range(3)] for w in range(2)])
    likelihood = np.ones_like(A)
    np.multiply.at(likelihood, answers.place, lifted[answers.person, answers.label])
    prior = found.Q / likelihood
    prior /= prior.sum(axis=1, keepdims=True)  # one (s, δ) of the model's predictions, for all samples
    order = np.argsort(A[5:], axis=1)
    assert (np.diff(np.take_along_axis(prior[5:], order, axis=1), axis=1) > -1e-6).all()
    np.testing.assert_array_equal(found.Q[:5].argmax(axis=1), answers.known[:5])
    assert found.facts.gold == 5


def test_which_answers_count() -> None:
    votes = Votes.of([("ann", [1, 2, 3, 5], [0, 0, 1, 1]), ("bob", [1, 3], [1, -1]), ("suggestion", [2, 4], [0, 2])])
    first = (votes, Decisions(np.arange(1, 6), np.array([-1, 0, 1, 2, 1]), np.array([0.0, 1, 0.5, 1, 1])), [2])
    again: Any = (
        Votes.of([("ann", [2], [1]), ("bob", [5], [2])]),
        Decisions.sure(np.array([2, 5]), np.array([1, 2])),
        [],
    )
    undo: Any = (Votes.of([("undo", [2, 5], [0, 1])]), Decisions.sure(np.array([2, 5]), np.array([0, 1])), [])
    lead: Any = (Votes.of([("ann", [3], [1]), ("lead", [3], [0])]), Decisions.sure(np.array([3]), np.array([0])), [])
    given = np.full(9, -1)
    given[5] = 1

    def told(*rounds: Any) -> Any:
        found = answers_of(rounds, given)
        rows = zip(found.samples[found.place].tolist(), found.person.tolist(), found.label.tolist(), strict=True)
        return sorted((item, found.names[who], label) for item, who, label in rows), found

    before, found = told(first)
    assert before == [
        (1, "ann", 0),
        (1, "bob", 1),
        (2, "ann", 0),
        (3, "ann", 1),
        (5, "ann", 1),
    ]  # 4: nobody but the machine
    assert found.drawn.tolist() == [False, True, False, False]
    assert found.known.tolist() == [-1, -1, -1, 1]
    assert told(first, again)[0] == [*before[:2], (2, "ann", 1), before[3], (5, "ann", 1), (5, "bob", 2)]
    assert told(first, again, undo)[0] == before
    overruled, found = told(first, lead)
    assert overruled == before  # whoever has the last word is not among those who are judged by it
    assert found.known.tolist() == [-1, -1, 0, 1]


def test_the_value_of_asking_again_against_all_answers() -> None:
    rng, error = np.random.default_rng(0), 0.15
    Q = rng.dirichlet([0.7] * 4, 50)
    right = np.full((4, 4), error / 3) + np.eye(4) * (1 - error - error / 3)  # [class, answer]
    for q, worth in zip(Q, value_of_asking(Q, error), strict=True):
        expected = sum(max(q[c] * right[c, v] for c in range(4)) for v in range(4)) - q.max()
        assert worth == pytest.approx(expected, abs=1e-12)


def test_doubted_labels_keep_what_was_decided() -> None:
    table = LabelTable(np.full((5, 2), 0.5), 0.3)
    table.assign(np.array([1, 3]), np.array([0, 1]))
    Q, weight = np.tile([0.2, 0.8], (5, 1)), np.full(5, 0.1)
    table.believe(Q, weight, (np.array([1, 3]), np.array([[0.4, 0.6], [0.1, 0.9]])))
    assert table.Y.tolist() == [[0.2, 0.8], [0.4, 0.6], [0.2, 0.8], [0.1, 0.9], [0.2, 0.8]]
    assert table.weight.tolist() == [0.1, 1.0, 0.1, 1.0, 0.1]
    assert (table.clean_ids.tolist(), table.decided.tolist()) == ([-1, 1, -1, 1, -1], [-1, 0, -1, 1, -1])
    assert table.as_given[[1, 3]].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert table.held(np.array([1]))[0].tolist() == [0]
    table.assign(np.array([3]), np.array([-1]))
    table.believe(Q, weight)
    assert table.Y[[1, 3]].tolist() == [[1.0, 0.0], [0.2, 0.8]]


N, CLASSES = 300, 3


def problem(seed: Any = 0) -> Any:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, N + 100)
    X = rng.normal(size=(N + 100, 6))
    X[np.arange(N + 100), y] += 2.5
    weak = np.where(rng.random(N) < 0.5, rng.integers(0, CLASSES, N), y[:N])
    return X[:N], np.eye(CLASSES)[weak], X[N:], y[N:], y[:N]


def campaign(rate: Any, *, persons: Any = 3, rounds: Any = 3, seed: Any = 0, **given: Any) -> Any:
    X, weak, X_val, y_val, y = problem(seed)
    cleaner = LabelCleaner(budget=20 * rounds, batch_size=20, **given).fit(X, weak, X_val=X_val, y_val=y_val)
    cleaner.run(SimulatedAnnotators(y, n_classes=CLASSES, error_rates=(rate,) * persons, seed=seed))
    return cleaner, y


def test_nothing_changes_for_careful_people() -> None:
    (auto, _), (truth, _) = campaign(0.0), campaign(0.0, sources=SourceSettings(answers="truth"))
    np.testing.assert_array_equal(auto.W_, truth.W_)
    assert [r.batch.indices.tolist() for r in auto.rounds_] == [r.batch.indices.tolist() for r in truth.rounds_]
    assert auto.people_.low == 0.0
    assert not auto.people_.source
    assert truth.people_ is None
    assert truth.doubtful_.empty


@pytest.fixture(scope="module")
def careless() -> Any:
    return campaign(0.25)


def test_answers_of_people_who_err_train_as_a_source(careless: Any) -> None:
    cleaner, y = careless
    facts, session = cleaner.people_, cleaner._session
    assert facts.source
    assert facts.low <= 0.25 <= facts.high
    assert (facts.overlap, facts.answers) == (60, 180)
    labels, rows = session.labels, np.flatnonzero(cleaner.cleaned_)
    assert set(np.unique(cleaner.labels_[rows])) == {0.0, 1.0}
    assert (labels.Y[rows].max(axis=1) < 1.0).all()
    assert (labels.weight[rows] == 1.0).all()
    np.testing.assert_array_equal(labels.Y[N:].max(axis=1), 1.0)  # trusted samples stay what they are
    np.testing.assert_allclose(cleaner.posterior_[rows], labels.Y[rows])
    decided = labels.decided[rows]
    assert (labels.Y[rows].argmax(axis=1) == y[rows]).mean() >= (decided == y[rows]).mean()


def test_doubtful_answers_are_named_with_a_reason(careless: Any) -> None:
    cleaner, y = careless
    doubtful, rows = cleaner.doubtful_, np.flatnonzero(cleaner.cleaned_)
    labels = cleaner._session.labels
    assert len(doubtful)
    assert (np.diff(doubtful["worth"]) <= 1e-9).all()
    assert set(doubtful["reason"]) <= {"the model contradicts the answer", "the answer leaves doubt"}
    named = doubtful["item"].to_numpy()
    others = np.setdiff1d(rows, named)
    assert (labels.decided[named] != y[named]).mean() > 2 * (labels.decided[others] != y[others]).mean()
    assert (labels.Y[others].argmax(axis=1) == labels.decided[others]).all()


def test_a_restart_believes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "tol", 1e-7)
    cleaner, _ = campaign(0.25)
    X, weak, X_val, y_val, _ = problem()
    data = CampaignData.of(X, weak, X_val=X_val, y_val=y_val)
    again = rebuild(data, Settings(budget=60, batch_size=20), cleaner.rounds_[1:])
    session = cleaner._session
    assert again.people() == cleaner.people_
    np.testing.assert_array_equal(again.labels.Y, session.labels.Y)
    np.testing.assert_allclose(again.parameters, session.parameters, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(again.select(10).indices, session.select(10).indices)


def test_undo_and_a_round_that_fails_leave_what_was_believed(monkeypatch: Any) -> None:
    cleaner, y = campaign(0.25, rounds=1)  # after two rounds another choice would come in between
    session = cleaner._session
    before, facts = session.labels.Y.copy(), session.people()
    assert facts.source
    batch = cleaner.query(20)
    monkeypatch.setattr(type(session), "_record", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        cleaner.update(batch.indices, y[batch.indices])
    monkeypatch.undo()
    np.testing.assert_array_equal(session.labels.Y, before)
    assert session.people() == facts
    cleaner.update(batch.indices, y[batch.indices])
    assert session.people() != facts
    cleaner.undo()
    np.testing.assert_array_equal(session.labels.Y, before)
    assert session.people() == facts


def test_a_second_answer_counts_with_the_first() -> None:
    """Another person's answer joins those before; the same person's replaces the one before."""
    cleaner, y = campaign(0.25, rounds=2)
    item = int(cleaner.doubtful_["item"][0])
    session = cleaner._session
    before = session.labels.Y[item, y[item]]
    cleaner.update([item], [y[item]])
    answers = session.learner.answered
    assert (answers.place == np.flatnonzero(answers.samples == item)[0]).sum() == 4
    assert session.labels.Y[item, y[item]] > before


def test_few_answers_say_nothing_of_people() -> None:
    X, weak, X_val, y_val, y = problem()
    cleaner = LabelCleaner().fit(X, weak, X_val=X_val, y_val=y_val)
    assert cleaner.people_ is None
    cleaner.update(np.arange(19), (y[:19] + 1) % CLASSES)
    assert cleaner.people_ is None
    assert list(cleaner.doubtful_.columns) == ["item", "answer", "believed", "wrong", "worth", "reason"]


@pytest.mark.parametrize(("preset", "trusted"), list(product(["paper", "default"], ["steer"])))
def test_where_trusted_samples_steer_answers_are_the_truth(preset: Any, trusted: Any) -> None:
    X, weak, X_val, y_val, y = problem()
    cleaner = LabelCleaner(preset=preset, trusted=trusted, gamma=0.8, l2=0.01, holdout=0.0, budget=40, batch_size=20)
    cleaner.fit(X, weak, X_val=X_val, y_val=y_val)
    cleaner.run(SimulatedAnnotators(y, n_classes=CLASSES, error_rates=(0.3,) * 3))
    assert cleaner.people_ is None
    rows = np.flatnonzero(cleaner.cleaned_)
    assert set(np.unique(cleaner._session.labels.Y[rows])) == {0.0, 1.0}
    with pytest.raises(InvalidInputError, match="answers is 'source'"):
        LabelCleaner(preset=preset, trusted=trusted, sources=SourceSettings(answers="source")).fit(
            X, weak, X_val=X_val, y_val=y_val
        )


def test_wrong_settings_are_named() -> None:
    with pytest.raises(InvalidInputError, match="answers is 'maybe'; expected one of: auto, truth, source"):
        Settings(answers="maybe")


def test_a_campaign_lists_its_doubtful_answers(tmp_path: Any) -> None:
    """On every fifth item two of three persons are wrong; the lead then decides one of these, which is gold from then on."""
    truth = truth_of(90)
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, people=3, budget=20, batch_size=20)
        wrong = {"ann": (0,), "bob": (0, 1), "cy": (2,)}
        for person, where in wrong.items():
            while not isinstance(found := next_tasks(ws, name, person), Waiting):
                item = int(found[0].item)
                cast_vote(ws, name, person, found[0].item, (int(truth[item]) + (item % 5 in where)) % 3)
        assert doubts(ws, name).people is None
        assert "not estimated" in doubts(ws, name).note
        advance(ws, name)
        seen = doubts(ws, name)
        assert (seen.people.samples, seen.people.answers, seen.people.overlap) == (20, 60, 20)
        assert seen.people.low > LEAST
        assert "People err on" in seen.note
        assert {one.name for one in seen.people.persons} == {"ann", "bob", "cy"}
        assert seen.items
        resolve(ws, name, seen.items[0].item, int(truth[int(seen.items[0].item)]), "lead")
        advance(ws, name)
        again = doubts(ws, name)
        assert seen.items[0].item not in {one.item for one in again.items}
    told = labelchef("status", name, "--doubtful", "--json", "--home", str(tmp_path / "home"))
    assert json.loads(told)["people"]["source"] is True
    shown = labelchef("status", name, "--doubtful", "--home", str(tmp_path / "home"))
    assert "People err on" in shown
