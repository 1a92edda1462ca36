"""Weights of blocks: what is useless is left out, what is equal stays, everything by the learner's own choice."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from labelchef.base.intake import Progress, no_progress
from labelchef.base.learning import Choice
from labelchef.base.settings import Settings
from labelchef.believe import learning
from labelchef.data.campaign_data import CampaignData
from labelchef.data.encoders.fitted import Encoded, FittedEncoder, scale_of
from labelchef.data.encoders.protocol import Block, Content, State
from labelchef.data.intake.weighing import combinations, loss_of, weigh
from labelchef.loop.start import new_session


@dataclass(frozen=True)
class Fixed:
    """A block that is there already."""

    B: Block
    name: str
    group: str
    columns: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return int(self.B.shape[1])

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:
        return self.B

    def state(self) -> State:
        raise NotImplementedError


def problem(*, twins: bool = False, seed: int = 0, n: int = 300, m: int = 80) -> tuple[Encoded, CampaignData]:
    """Three blocks: the class, with noise; and, in two parts of one group, nothing at all, or the same once more."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n + m)
    useful = np.column_stack([2 * y - 1 + rng.normal(size=n + m) * 1.2, rng.normal(size=n + m)]).astype(np.float32)
    others = [useful if twins else rng.normal(size=(n + m, 60)).astype(np.float32) for _ in range(2)]
    blocks = (useful, *others)
    scales = tuple(scale_of(B) / np.sqrt(parts) for B, parts in zip(blocks, (1, 2, 2), strict=True))
    names = (("useful", "useful"), ("noise 1", "noise"), ("noise 2", "noise"))
    made = tuple(Fixed(B, *pair) for B, pair in zip(blocks, names, strict=True))
    encoded = Encoded(FittedEncoder(made, scales, (1.0,) * 3), blocks)
    votes = np.where(rng.random((n, 3)) < 0.3, 1 - y[:n, None], y[:n, None])
    X = encoded.X
    return encoded, CampaignData.of(X[:n], votes=votes, X_val=X[n:], y_val=y[n:], classes=[0, 1])


def test_noise_counts_less_and_nothing_changes_without_need() -> None:
    encoded, data = problem()
    told: list[int] = []
    found = weigh(encoded, data, Settings(seed=1), lambda what, done, total: told.append(done))
    assert found.weights[0] == 1.0
    assert found.weights[1] == found.weights[2] < 1.0  # a group is weighed as one
    assert [trial.weights for trial in found.trials] == [
        (1.0, 1.0, 1.0), (0.5, 1.0, 1.0), (1.0, 0.5, 0.5), (1.0, 0.0, 0.0), (0.0, 1.0, 1.0),
    ]  # fmt: skip
    assert told == [0, 1, 2, 3, 4, 5]
    again = weigh(encoded, data, Settings(seed=1))
    assert replace(again, seconds=0.0) == replace(found, seconds=0.0)
    twice, same = problem(twins=True)
    assert weigh(twice, same, Settings(seed=1)).weights == (1.0, 1.0, 1.0)


def test_the_first_trial_is_the_choice_that_the_learner_makes() -> None:
    encoded, data = problem()
    settings = Settings(seed=3)
    session = new_session(data, settings)
    session.start()
    assert session.learner is not None
    choice = session.learner.choice
    assert choice is not None
    assert weigh(encoded, data, settings).trials[0].loss == pytest.approx(loss_of(choice), rel=1e-3)


def test_nothing_is_tried_for_one_group_or_where_trusted_samples_only_steer(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, data = problem()
    monkeypatch.setattr(learning, "choose", lambda *_, **__: pytest.fail("a choice was made"))
    one = encoded.weighted((0.0, 1.0, 1.0))
    assert weigh(one, data, Settings()).weights == (1.0, 1.0)
    steering = Settings(trusted="steer", gamma=0.5, l2=0.1)
    assert weigh(encoded, data, steering).weights == (1.0, 1.0, 1.0)


def test_what_the_user_fixed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, data = problem()
    made: list[tuple[str, float, float]] = []

    def choose(sample: learning.Sample, **given: Any) -> Choice:
        choice = learning.choose(sample, **given)
        made.append((choice.model, choice.gamma, choice.strength))
        return choice

    monkeypatch.setattr("labelchef.data.intake.weighing.choose", choose)
    weigh(encoded, data, Settings(gamma=0.1, l2=0.01))
    assert {(gamma, strength) for _, gamma, strength in made} == {(0.1, 0.01 * 380)}
    made.clear()
    weigh(encoded, data, Settings(sources="none"))
    assert {model for model, _, _ in made} == {"none"}
    made.clear()
    weigh(encoded, data, Settings(sources="shares", gamma=1.0))
    assert {(model, gamma) for model, gamma, _ in made} == {("shares", 1.0)}
    assert len(made) == 5


def test_many_groups_are_not_halved() -> None:
    assert len(list(combinations(5))) == 11
    assert list(combinations(6)) == [(1.0,) * 6, *(tuple(np.eye(6)[k]) for k in range(6))]
