"""Trusted samples that the sources were not shown: their silence there says nothing."""

import numpy as np

from labelchef import LabelCleaner
from labelchef.believe import SourceVotes
from labelchef.believe.evidence import Evidence
from labelchef.believe.models import Joint, NaiveBayes
from labelchef.loop.session import Session


def evidence(rng: np.random.Generator, unshown: int) -> Evidence:
    """200 samples with votes of two sources, 60 of them clean; then clean samples of class 0 without any."""
    y = rng.integers(0, 3, 200)
    votes = np.where(rng.random((200, 2)) < 0.7, y[:, None], rng.integers(0, 3, (200, 2)))
    seen = SourceVotes.hard(votes, 3)
    both = seen.above(SourceVotes.nothing(seen.names, 3, unshown))
    clean = np.concatenate([np.where(np.arange(200) < 60, y, -1), np.zeros(unshown, dtype=np.int64)])
    log_p = np.log(np.full((200 + unshown, 3), 1 / 3))
    return Evidence(both, log_p, clean, both.shares())


def test_the_rates_of_sources_do_not_depend_on_samples_they_were_not_shown() -> None:
    few, many = (evidence(np.random.default_rng(0), unshown) for unshown in (0, 90))
    for model in (NaiveBayes(), Joint(rho=0.2)):
        one, other = model.believe(few).rates, model.believe(many).rates
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_which_samples_were_shown_is_kept_in_every_form() -> None:
    seen = SourceVotes.hard(np.array([[0], [1]]), 2, ("rule",))
    both = seen.above(SourceVotes.nothing(seen.names, 2, 1))
    assert both.shown is not None
    assert both.shown.tolist() == [True, True, False]
    assert seen.above(seen).shown is None
    for same in (both.rows(np.array([2, 0])), both.among(("llm", "rule")).rows(np.array([2, 0]))):
        assert same.shown is not None
        assert same.shown.tolist() == [False, True]


def test_suggestions_for_a_list_of_samples_are_those_of_all_samples() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    X = rng.normal(size=(120, 3)) + y[:, None]
    cleaner = LabelCleaner(gamma=0.5, l2=0.01, sources="shares")
    cleaner.fit(X[:80], rng.dirichlet([1, 1], 80), X_val=X[80:], y_val=y[80:])
    session: Session = cleaner._session
    everything = session._score(session.labels.askable).aligned(np.array([7, 3]))
    some = cleaner.suggest([7, 3])
    assert some.indices.tolist() == [7, 3]
    assert some.suggested.tolist() == everything.suggested.tolist()
    assert (some.suggested >= 0).all()
    np.testing.assert_allclose(some.influence, everything.influence)
