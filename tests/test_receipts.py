"""Receipts: effects of single answers in closed form, against models that are fitted again without them; sums and surfaces.

Found with 80 trusted, 400 weak samples and 40 answers, two and three classes, rank correlation, relative error and scale (slope
of the refits on the closed form): default learner 0.998, 11 %, 1.10 and 0.978, 32 %, 1.16; over all source models at gamma 0.3
ranks of 0.974 to 0.999, errors of 2 to 31 % and scales of 0.99 to 1.18; where trusted samples only steer 0.999 and 2 % or better.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from labelchef import LabelCleaner
from labelchef.campaign.receipts import effects, without
from labelchef.campaign.session import Session
from tests.test_source_influence import N_VAL, N, drawn

Array = NDArray[np.float64]
ASKED = 40


def answered(C: int, **given: Any) -> LabelCleaner:
    """Clusters with six sources; 40 answers, all of them right, by two people in turn."""
    truth = np.random.default_rng([C, 0]).integers(0, C, N + N_VAL)
    cleaner = LabelCleaner(**{"tol": 1e-9, "random_state": 0, **given}).fit(**drawn(C, 0))
    for _ in range(ASKED // 10):
        batch = cleaner.query(10)
        cleaner.update(batch.indices, truth[batch.indices])
    return cleaner


def session_of(cleaner: LabelCleaner) -> Session:
    return cleaner._fitted()


@cache
def compared(C: int, **given: Any) -> tuple[Array, Array, Array, Array]:
    """Effects in closed form, by refits; predictions changed, likewise."""
    session = session_of(answered(C, **given))
    rows = np.flatnonzero(session.labels.cleaned[: session.n_train])
    parts, flips = effects(session, rows)
    loss, now = session.steering.metrics(session.parameters).loss, session.predicted(np.arange(session.n_train))
    refits = [without(session, np.array([row])) for row in rows]
    real = np.array([loss - one for one, _ in refits])
    return parts.sum(axis=0), real, flips, np.array([np.count_nonzero(one != now) for _, one in refits])


def rank(a: Array, b: Array) -> float:
    return float(spearmanr(a, b)[0])


def error(found: Array, real: Array) -> float:
    return float(np.linalg.norm(found - real) / np.linalg.norm(real))


def scale(found: Array, real: Array) -> float:
    return float(found @ real / (found @ found))


@pytest.mark.parametrize("C", [2, 3])
def test_effects_of_single_answers_agree_with_refits_of_the_default_learner(C: int) -> None:
    found, real, _, _ = compared(C)
    assert rank(found, real) > 0.95
    assert error(found, real) < 0.4
    assert 0.85 < scale(found, real) < 1.25


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("model", ["joint", "naive_bayes", "dawid_skene", "product", "shares"])
def test_effects_through_every_source_model(model: str, C: int) -> None:
    found, real, _, _ = compared(C, sources=model, gamma=0.3, l2=0.02)
    assert rank(found, real) > 0.95
    assert error(found, real) < 0.4
    assert 0.85 < scale(found, real) < 1.25


@pytest.mark.parametrize("C", [2, 3])
def test_effects_where_trusted_samples_only_steer(C: int) -> None:
    found, real, flips, changed = compared(C, trusted="steer", gamma=0.5, l2=0.02)
    assert rank(found, real) > 0.99
    assert error(found, real) < 0.06
    assert rank(flips, changed) > 0.9
    assert abs(flips.sum() - changed.sum()) <= 0.1 * changed.sum() + 2
