"""Weights of blocks: what is useless is left out, what is equal stays, everything by the learner's own choice."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from labelchef.campaign import learning
from labelchef.campaign.data import CampaignData
from labelchef.campaign.start import new_session
from labelchef.domain.intake import Progress, no_progress
from labelchef.domain.settings import Settings
from labelchef.encoders.fitted import Encoded, FittedEncoder
from labelchef.encoders.protocol import Block, Content, State
from labelchef.intake.weighing import combinations, loss_of, weigh


@dataclass(frozen=True)
class Fixed:
    """A block that is there already."""

    B: Block
    name: str
    group: str
    columns: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return self.B.shape[1]

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:
        return self.B

    def state(self) -> State:
        raise NotImplementedError


def problem(noise: float, seed: int = 0, n: int = 300, m: int = 80) -> tuple[Encoded, CampaignData]:
    """Three blocks: the class, with noise; nothing at all, in two parts of one group."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n + m)
    useful = np.column_stack([2 * y - 1 + rng.normal(size=n + m) * 0.5, rng.normal(size=n + m)]).astype(np.float32)
    others = [(noise * rng.normal(size=(n + m, 60))).astype(np.float32) for _ in range(2)]
    blocks = (useful, *others)
    names = (("useful", "useful"), ("noise 1", "noise"), ("noise 2", "noise"))
    made = tuple(Fixed(B, *pair) for B, pair in zip(blocks, names, strict=True))
    encoded = Encoded(FittedEncoder(made, (1.0,) * 3, (1.0,) * 3), blocks)
    votes = np.where(rng.random((n, 3)) < 0.3, 1 - y[:n, None], y[:n, None])
    X = encoded.X
    return encoded, CampaignData.of(X[:n], votes=votes, X_val=X[n:], y_val=y[n:], classes=[0, 1])


def test_noise_is_left_out_and_nothing_changes_without_need() -> None:
    encoded, data = problem(noise=1.0)
    told: list[int] = []
    found = weigh(encoded, data, Settings(seed=1), lambda what, done, total: told.append(done))
    assert found.weights == (1.0, 0.0, 0.0)  # a group is weighed as one
    assert [trial.weights for trial in found.trials] == [
        (1.0, 1.0, 1.0), (0.5, 1.0, 1.0), (1.0, 0.5, 0.5), (1.0, 0.0, 0.0), (0.0, 1.0, 1.0),
    ]  # fmt: skip
    assert told == [0, 1, 2, 3, 4, 5]
    again = weigh(encoded, data, Settings(seed=1))
    assert replace(again, seconds=0.0) == replace(found, seconds=0.0)
    little, same = problem(noise=1e-3)
    assert weigh(little, same, Settings(seed=1)).weights == (1.0, 1.0, 1.0)


def test_the_first_trial_is_the_choice_that_the_learner_makes() -> None:
    encoded, data = problem(noise=0.1)
    settings = Settings(seed=3)
    session = new_session(data, settings)
    session.fit()
    assert session.learner is not None
    choice = session.learner.choice
    assert choice is not None
    assert weigh(encoded, data, settings).trials[0].loss == pytest.approx(loss_of(choice), rel=1e-3)


def test_nothing_is_tried_for_one_group_or_where_trusted_samples_only_steer(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, data = problem(noise=1.0)
    monkeypatch.setattr(learning, "choose", lambda *_, **__: pytest.fail("a choice was made"))
    one = encoded.weighted((0.0, 1.0, 1.0))
    assert weigh(one, data, Settings()).weights == (1.0, 1.0)
    steering = Settings(trusted="steer", gamma=0.5, l2=0.1)
    assert weigh(encoded, data, steering).weights == (1.0, 1.0, 1.0)


def test_what_the_user_fixed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, data = problem(noise=1.0)
    for settings in (Settings(gamma=0.1, l2=0.01), Settings(sources="none"), Settings(sources="shares")):
        found = weigh(encoded, data, settings)
        assert found.weights == (1.0, 0.0, 0.0)


def test_many_groups_are_not_halved() -> None:
    assert len(list(combinations(5))) == 11
    assert list(combinations(6)) == [(1.0,) * 6, *(tuple(np.eye(6)[k]) for k in range(6))]
