"""`preset="paper"` selects what version 0.1 selected: the expected selections were computed with its code, at commit 033bf1c, by

LabelCleaner(selector="infl", look_ahead=False, gamma=0.8, holdout=0, tol=1e-5, ...).
"""

import warnings
from typing import Any

import numpy as np
import pytest

from labelchef import LabelCleaner
from labelchef.base.errors import InvalidInputError, LabelchefWarning
from labelchef.base.settings import PAPER, Settings

EXPECTED: dict[tuple[int, float | str], list[list[int]]] = {
    (2, 0.02): [
        [96, 1, 33, 57, 37, 82, 70, 109, 17, 108],
        [99, 43, 32, 74, 118, 52, 66, 5, 20, 62],
        [113, 97, 14, 78, 76, 15, 119, 112, 19, 64],
        [69, 35, 53, 102, 67, 25, 105, 42, 30, 100],
    ],
    (2, "auto"): [
        [96, 1, 33, 70, 57, 37, 82, 108, 43, 109],
        [99, 74, 17, 32, 66, 118, 52, 20, 14, 5],
        [19, 78, 113, 97, 76, 62, 15, 67, 119, 81],
        [35, 69, 53, 112, 64, 102, 105, 30, 25, 100],
    ],
    (3, 0.02): [
        [26, 76, 22, 93, 42, 99, 6, 67, 73, 50],
        [97, 98, 71, 59, 17, 100, 47, 105, 85, 89],
        [66, 15, 115, 12, 31, 114, 51, 68, 37, 40],
        [80, 18, 43, 41, 13, 86, 33, 2, 65, 78],
    ],
    (3, "auto"): [
        [76, 26, 22, 42, 93, 99, 67, 73, 6, 50],
        [59, 97, 98, 17, 105, 100, 47, 85, 71, 18],
        [37, 66, 41, 89, 12, 115, 68, 51, 80, 15],
        [31, 40, 86, 2, 13, 117, 65, 82, 114, 43],
    ],
}
"""(classes, l2) → the samples of four rounds."""

LAST_LOSS = {
    (2, 0.02): 0.4940003009886336,
    (2, "auto"): 0.5005014527328938,
    (3, 0.02): 0.7886457963037864,
    (3, "auto"): 0.8120101764052983,
}
"""The loss on the trusted samples after the last round."""


def problem(C: int) -> dict[str, Any]:
    rng = np.random.default_rng([4, C])
    n, d = 240, 6
    y = rng.integers(0, C, n)
    X = rng.normal(size=(n, d)) + 1.2 * np.eye(C, d)[y]
    soft, voted = rng.dirichlet(np.ones(C), 120), rng.random(120) < 0.6
    weak = 0.6 * soft + 0.4 * np.eye(C)[np.where(voted, y[:120], rng.integers(0, C, 120))]
    return {"X": X[:120], "Y_weak": weak, "X_val": X[120:], "y_val": y[120:], "y": y[:120]}


@pytest.mark.parametrize(("C", "l2"), EXPECTED)
def test_the_selections_are_those_of_version_0_1(C: int, l2: float | str) -> None:
    data = problem(C)
    y = data.pop("y")
    cleaner = LabelCleaner(preset="paper", l2=l2, budget=40, batch_size=10).fit(**data)
    rounds = cleaner.run(lambda batch: y[batch.indices]).rounds
    assert [record.batch.indices.tolist() for record in rounds[1:]] == EXPECTED[C, l2]
    assert rounds[-1].steering.loss == pytest.approx(LAST_LOSS[C, l2], rel=1e-9)
    assert rounds[-1].validation == rounds[-1].steering
    assert cleaner.gamma_ == 0.8
    assert cleaner.choice_ is None
    assert len({record.choice for record in rounds}) == 1  # nothing was chosen anew


def test_it_holds_for_what_is_left_at_its_default() -> None:
    paper, default = Settings(preset="paper"), Settings()
    assert {name: getattr(paper, name) for name in PAPER} == PAPER
    other = Settings(preset="paper", gamma=0.5, selector="entropy")
    assert (other.gamma, other.selector, other.trusted, other.tol) == (0.5, "entropy", "steer", 1e-5)
    assert (paper.look_ahead, default.look_ahead) == (False, True)
    assert Settings.of(paper.as_dict()) == paper
    assert paper.changed(budget=7).trusted == "steer"
    assert (default.trusted, default.selector, default.tol) == ("train", "margin", 1e-3)


def test_a_stored_setting_that_was_removed_is_dropped_and_said() -> None:
    stored = {**Settings(budget=7).as_dict(), "look_ahead": True, "tol": 1e-3, "epochs": None, "blind": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Settings.stored(stored) == Settings(budget=7)
        assert Settings.stored({**stored, "blind": True}).blind_share == 1.0
        paper = Settings(preset="paper").as_dict()
        assert Settings.stored({**paper, "look_ahead": False, "tol": 1e-5}).preset == "paper"
    with pytest.warns(LabelchefWarning, match="tol is no setting any more: 1e-06 was stored, 0.001 holds now"):
        Settings.stored({**stored, "tol": 1e-6})
    with pytest.raises(InvalidInputError, match="unknown setting 'colour'"):
        Settings.stored({**stored, "colour": "red"})
