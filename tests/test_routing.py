"""Routing by cost: what an answer is worth, how often annotators err, and whom the router asks."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from labelchef import InvalidInputError, LabelCleaner
from labelchef.annotators import GroundTruth, RecordedVotes, SimulatedAnnotators
from labelchef.campaign.confusions import facts_of, information, symmetric, weigh
from labelchef.campaign.data import CampaignData
from labelchef.campaign.people import Answers
from labelchef.campaign.routing import Priced, Router
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import Batch
from labelchef.domain.routing import Price, PriceList
from labelchef.domain.settings import Settings
from labelchef.io.prices import read_prices
from labelchef.services import clean as service


def log_score(q: Float64s) -> float:
    """The value of a belief: its expected logarithmic score."""
    return float(sum(p * np.log(p) for p in q if p > 0))


def test_the_worth_of_an_answer_is_that_of_all_answers_enumerated() -> None:
    rng = np.random.default_rng(0)
    Q, confusions = rng.dirichlet(np.ones(3), 5), rng.dirichlet(np.ones(3), (4, 3))
    found = information(Q, confusions)
    for i, g in itertools.product(range(5), range(4)):
        expected = -log_score(Q[i])
        for v in range(3):
            joint = Q[i] * confusions[g][:, v]
            expected += joint.sum() * log_score(joint / joint.sum())
        assert found[i, g] == pytest.approx(expected, abs=1e-12)


class Simulated:
    """Samples with logits of a model that is right on most of them, and answers of annotators with known errors."""

    def __init__(
        self, seed: int, errors: dict[str, float], m: int = 300, C: int = 3, shares: tuple[float, ...] = (0.6,)
    ) -> None:
        rng = np.random.default_rng(seed)
        self.y, self.C = rng.integers(0, C, m), C
        self.A = 1.5 * (np.eye(C)[self.y] + rng.normal(size=(m, C)) * 0.8)
        self.trusted_y = rng.integers(0, C, 60)
        self.trusted = 1.5 * (np.eye(C)[self.trusted_y] + rng.normal(size=(60, C)) * 0.8)
        place, person, label = [], [], []
        for k, rate in enumerate(errors.values()):
            here = np.flatnonzero(rng.random(m) < shares[k % len(shares)])
            wrong = (self.y[here] + rng.integers(1, C, len(here))) % C
            place.append(here)
            person.append(np.full(len(here), k))
            label.append(np.where(rng.random(len(here)) < rate, wrong, self.y[here]))
        there = np.unique(np.concatenate(place))
        at = np.searchsorted(there, np.concatenate(place))
        self.y, self.A = self.y[there], self.A[there]
        self.answers = Answers(
            there,
            np.full(len(there), -1),
            np.zeros(len(there), dtype=bool),
            tuple(errors),
            at,
            np.concatenate(person),
            np.concatenate(label),
        )

    def weighed(self, prices: list[Price]) -> "list[tuple[float, float, float]]":
        """(error, low, high) of each annotator."""
        found = weigh(self.answers, self.A, self.trusted, self.trusted_y, prices)
        facts = [facts_of(price, density, 1) for price, density in zip(prices, found.densities, strict=True)]
        return [(one.error, one.low, one.high) for one in facts]


def test_errors_are_estimated_with_intervals_that_hold_them() -> None:
    errors = {"llm": 0.3, "ann": 0.1, "bob": 0.02, "spam": 2 / 3}
    prices = [Price(name, 1.0) for name in errors]
    inside, off = 0, []
    for seed in range(25):
        for (error, low, high), rate in zip(Simulated(seed, errors).weighed(prices), errors.values(), strict=True):
            inside += low <= rate <= high
            off.append(abs(error - rate))
    assert inside >= 0.85 * 100, inside
    assert np.mean(off) < 0.04


def test_the_intervals_hold_where_one_annotator_answers_nearly_alone() -> None:
    inside = 0
    for seed in range(30):
        made = Simulated(seed, {"llm": 0.2, "ann": 0.05}, C=2, shares=(1.0, 0.1))
        inside += sum(
            low <= rate <= high
            for (_, low, high), rate in zip(
                made.weighed([Price("llm", 1.0), Price("ann", 1.0)]), (0.2, 0.05), strict=True
            )
        )
    assert inside >= 0.85 * 60, inside


def test_an_annotator_that_is_wrong_on_one_class_is_found_out() -> None:
    made = Simulated(1, {"llm": 0.02, "ann": 0.1, "bob": 0.1}, m=400)
    of_llm = made.answers.person == 0
    blind = of_llm & (made.y[made.answers.place] == 0)
    label = made.answers.label.copy()
    label[blind] = 1
    answers = replace(made.answers, label=label)
    found = weigh(answers, made.A, made.trusted, made.trusted_y, [Price(name, 1.0) for name in made.answers.names])
    assert found.confusions[0, 0, 1] > 0.7  # a sample of class 0 gets the answer 1
    assert found.confusions[0, 2, 2] > 0.85
    sure = np.eye(3)[[1]] * 0.0 + np.array([[0.0, 0.5, 0.5]])
    telling = information(sure, np.stack([found.confusions[0], symmetric(0.3, 3)]))
    assert telling[0, 0] > telling[0, 1]  # between the other classes it is still good


# the router


def problem(seed: int = 0) -> tuple[Float64s, Ints, LabelCleaner]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 4)) + 0.9 * y[:, None]
    cleaner = LabelCleaner(budget=None, batch_size=10, sources="none", gamma=0.0, l2=0.01)
    cleaner.fit(X[:220], X_val=X[220:], y_val=y[220:], classes=[0, 1])
    return X, y[:220], cleaner


def erring(y: Ints, rate: float, seed: int) -> SimulatedAnnotators:
    return SimulatedAnnotators(y, n_classes=2, error_rates=(rate,), seed=seed)


def test_one_annotator_who_never_errs_is_the_plain_loop() -> None:
    _, y, routed = problem()
    _, _, plain = problem()
    router = Router([Priced("ann", 1.0, GroundTruth(y), error=0.0, gold=100_000)], budget=40)
    routed.run(router)
    plain.budget = 40
    plain.run(GroundTruth(y))
    assert [record.batch.indices.tolist() for record in routed.rounds_] == [
        record.batch.indices.tolist() for record in plain.rounds_
    ]
    assert [record.decisions.labels.tolist() for record in routed.rounds_] == [
        record.decisions.labels.tolist() for record in plain.rounds_
    ]
    assert router.spent == 40


def test_equal_annotators_answer_one_sample_each_in_turn() -> None:
    _, y, cleaner = problem()
    people = [Priced(name, 0.5, erring(y, 0.1, k), error=0.1, gold=10_000) for k, name in enumerate(("ann", "bob"))]
    router = Router(people, budget=10.0)
    cleaner.run(router)
    first = cleaner.rounds_[1]
    assert sorted(first.votes.items.tolist()) == sorted(first.batch.indices.tolist())
    assert sorted(first.votes.workers) == ["ann"] * 5 + ["bob"] * 5
    items = [item for record in cleaner.rounds_ for item in record.votes.items.tolist()]
    assert len(set(items)) == len(items) == 20


def test_the_money_is_kept_to_and_accounted_for() -> None:
    _, y, cleaner = problem()
    router = Router(
        [
            Priced("llm", 0.03, erring(y, 0.3, 1), "llm"),
            Priced("crowd", 0.2, [erring(y, 0.15, 2), erring(y, 0.15, 3)], "crowd"),
            Priced("expert", 1.0, GroundTruth(y)),
        ],
        budget=20.0,
        explore=5,
    )
    result = cleaner.run(router)
    votes = [(item, who) for record in result.rounds for item, who, _ in record.votes]
    assert result.stopped_because == "budget spent"
    assert "of 20 paid" in result.message
    assert len(set(votes)) == len(votes)  # nobody is asked twice about an item
    price = {"llm": 0.03, "crowd": 0.2, "expert": 1.0}
    paid = sum(price[who.split("/")[0]] for _, who in votes)
    assert paid == pytest.approx(router.spent) == pytest.approx(sum(one.spent for one in router.facts))
    assert 20.0 - 0.03 < paid <= 20.0 + 1e-9
    per_item = pd.Series([item for item, _ in votes]).value_counts()
    assert per_item.max() <= 4
    assert per_item.min() == 1  # a sample gets a second answer only where that is worth its price
    llm, _, expert = router.facts
    assert llm.low <= 0.3 <= llm.high
    assert llm.answers > expert.answers
    assert cleaner.people_ is not None
    assert np.mean(cleaner.posterior_.argmax(axis=1) == y) > 0.85


def test_a_bad_annotator_is_asked_no_more() -> None:
    _, y, cleaner = problem()
    chance = np.random.default_rng(5).integers(0, 2, len(y))
    people = [
        Priced("spammer", 0.1, GroundTruth(chance)),
        *(Priced(n, 0.1, erring(y, 0.05, k)) for k, n in enumerate("ab")),
    ]
    router = Router(people, budget=15.0)
    cleaner.run(router)
    spammer, *others = router.facts
    assert spammer.answers < 0.2 * sum(one.answers for one in others)
    assert spammer.error > 0.3


def test_who_has_no_answer_is_not_paid_and_another_is_asked() -> None:
    _, y, cleaner = problem()
    half = RecordedVotes([(i, "x", int(y[i])) for i in range(0, 220, 2)])
    router = Router(
        [Priced("half", 0.1, half, error=0.01, gold=999), Priced("all", 0.2, GroundTruth(y), error=0.01, gold=999)], 6.0
    )
    result = cleaner.run(router)
    asked = {who: [item for r in result.rounds for item, w, _ in r.votes if w == who] for who in ("half", "all")}
    assert all(item % 2 == 0 for item in asked["half"])
    assert asked["all"]
    assert {item % 2 for item in asked["all"]} == {1}


def test_what_a_router_cannot_work_with_is_refused() -> None:
    X, y, _ = problem()
    people = [Priced("ann", 1.0, GroundTruth(y))]
    steered = LabelCleaner(trusted="steer", gamma=0.5, l2=0.01, holdout=0.0)
    steered.fit(X[:220], np.eye(2)[y], X_val=X[220:], y_val=np.arange(80) % 2)
    with pytest.raises(InvalidInputError, match="trusted='train'"):
        steered.run(Router(people))
    trusting = LabelCleaner(answers="truth", gamma=0.0, l2=0.01, sources="none")
    trusting.fit(X[:220], X_val=X[220:], y_val=np.arange(80) % 2, classes=[0, 1])
    with pytest.raises(InvalidInputError, match="answers is 'truth'"):
        trusting.run(Router(people))
    with pytest.raises(InvalidInputError, match=r"LabelCleaner\.run"):
        Router(people).annotate(Batch.without_predictions(np.array([0])))
    with pytest.raises(InvalidInputError, match="a name of its own"):
        Router([*people, *people])
    with pytest.raises(InvalidInputError, match="kind 'robot'"):
        Price("ann", 1.0, "robot")  # type: ignore[arg-type]
    for wrong in ({"price": 0.0}, {"price": 1.0, "error": 2.0}, {"price": 1.0, "gold": 5}, {"price": 1.0, "most": 2}):
        with pytest.raises(InvalidInputError, match="ann"):
            Price("ann", **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="is answered by"):
        Priced("ann", 1.0, "nobody")  # type: ignore[arg-type]


# price lists and `labelchef clean`

PRICES = """
budget = 8.0
explore = 5
[annotators.gpt]
price = 0.02
kind = "llm"
[annotators.crowd]
price = 0.1
kind = "crowd"
most = 2
"""


def test_a_price_list_is_read_and_what_is_wrong_in_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    found = read_prices(path)
    assert found == PriceList((Price("gpt", 0.02, "llm"), Price("crowd", 0.1, "crowd", most=2)), 8.0, 5)
    for text, said in (
        ("budget = ", "cannot be read as TOML"),
        ("budget = 3.0", "no annotators"),
        ("money = 3\n[annotators.a]\nprice = 1", "'money' is not known"),
        ("[annotators.a]\nkind = 'llm'", "a has no price"),
        ("[annotators.a]\nprice = 1\nrate = 2", "'rate', which is not known"),
        ("budget = -1\n[annotators.a]\nprice = 1", "budget is -1"),
        ("[annotators.a]\nprice = 'dear'", "the price of a"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=said):
            read_prices(path)


@pytest.fixture(scope="module")
def given() -> tuple[CampaignData, pd.DataFrame]:
    X, y, _ = problem()
    rng = np.random.default_rng(3)
    votes = []
    for item in range(220):
        votes.append((item, "gpt", y[item] if rng.random() < 0.75 else 1 - y[item]))
        votes += [(item, f"w{k}", y[item] if rng.random() < 0.9 else 1 - y[item]) for k in rng.permutation(6)[:3]]
    truth = np.random.default_rng(0).integers(0, 2, 300)[220:]
    data = CampaignData.of(X[:220], np.full((220, 2), 0.5), X_val=X[220:], y_val=truth, classes=[0, 1])
    return data, pd.DataFrame(votes, columns=["item", "annotator", "label"])


SETTINGS = Settings(budget=None, batch_size=20, sources="none", gamma=0.0, l2=0.01)


def test_clean_with_prices_pays_recorded_answers_and_goes_on_where_it_was(
    given: tuple[CampaignData, pd.DataFrame], tmp_path: Path
) -> None:
    data, votes = given
    prices = PriceList((Price("gpt", 0.02, "llm"), Price("crowd", 0.1, "crowd", most=2)), 8.0, 5)
    answers = service.Answers(votes=votes, prices=prices)
    whole = service.clean(data, answers, SETTINGS, tmp_path / "whole", report=False)
    assert "of 8 paid" in whole.message
    written = pd.read_csv(tmp_path / "whole" / service.SPENDING)
    assert written["name"].tolist() == ["gpt", "crowd"]
    assert written["spent"].sum() == pytest.approx(sum(one.spent for one in whole.spending))
    assert 7.9 < written["spent"].sum() <= 8.0 + 1e-9
    half = service.Answers(votes=votes, prices=PriceList(prices.annotators, 4.0, 5))
    service.clean(data, half, SETTINGS, tmp_path / "two", report=False)
    other = service.Answers(votes=votes, prices=PriceList((Price("gpt", 0.05, "llm"), prices.annotators[1]), 8.0))
    with pytest.raises(InvalidInputError, match="other settings"):
        service.clean(data, other, SETTINGS, tmp_path / "two", report=False, resume=True)
    more = service.clean(data, answers, SETTINGS, tmp_path / "two", report=False, resume=True)
    assert sum(one.spent for one in more.spending) == pytest.approx(8.0, abs=0.1)


def test_prices_of_others_than_those_who_answered_are_refused(
    given: tuple[CampaignData, pd.DataFrame], tmp_path: Path
) -> None:
    data, votes = given
    for listed, said in (
        ((Price("gpt", 0.1),), "no price for 'w0'"),
        ((Price("gtp", 0.1), Price("crowd", 0.1, "crowd")), "no recorded answers of 'gtp'"),
        ((Price("a", 0.1, "crowd"), Price("b", 0.1, "crowd")), "2 crowds"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            service.clean(
                data, service.Answers(votes=votes, prices=PriceList(listed)), SETTINGS, tmp_path / "x", report=False
            )
    with pytest.raises(InvalidInputError, match="nobody who answers"):
        service.clean(
            data, service.Answers(prices=PriceList((Price("a", 0.1),))), SETTINGS, tmp_path / "x", report=False
        )


def test_annotators_with_prices_are_simulated_from_the_truth(
    given: tuple[CampaignData, pd.DataFrame], tmp_path: Path
) -> None:
    data, votes = given
    truth = votes[votes["annotator"] == "gpt"]["label"].tolist()
    prices = PriceList((Price("gpt", 0.02, "llm", error=0.3), Price("crowd", 0.1, "crowd", most=2)), 3.0, 5)
    done = service.clean(data, service.Answers(truth=truth, prices=prices), SETTINGS, tmp_path / "out", report=False)
    assert [one.name for one in done.spending] == ["gpt", "crowd"]
    assert done.spending[0].answers > 0
