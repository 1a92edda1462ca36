"""What is handed to `fit`, checked and in the pipeline's form: labels, the table to begin with, who steers and who judges."""

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from labelchef.campaign.holdout import draw_judges
from labelchef.campaign.inputs import ClassNames, as_evaluation_labels, as_features, as_mask, as_weak_labels
from labelchef.core.labels import LabelTable
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import UNRESOLVED

Labelled: TypeAlias = tuple[NDArray[Any], Ints]
"""Samples, a row each, with trusted class ids (n,)."""


def prepare_labels(
    n_rows: int, Y_weak: Any, y_clean: Any, classes: Sequence[Hashable] | None
) -> tuple[ClassNames, Float64s, Ints]:
    """Class names, weak labels (N, C), and the class ids known already (N,), −1 where none is."""
    weak = as_weak_labels(Y_weak, n_rows)
    names = ClassNames.of(classes, Y_weak, weak.shape[1])
    given = np.full(n_rows, UNRESOLVED, dtype=np.int64)
    if y_clean is not None:
        given = names.encode(y_clean, "y_clean", allow_missing=True)
        if len(given) != n_rows:
            raise InvalidInputError(
                f"y_clean has {len(given)} entries; expected {n_rows}, as X has, −1 where not clean",
                code="labels",
            )
    return names, weak, given


def first_table(weak: Float64s, given: Ints, gamma: float, askable: Any) -> LabelTable:
    """The labels to begin with."""
    table = LabelTable(weak, gamma, as_mask(askable, len(weak), "askable"))
    known = np.flatnonzero(given != UNRESOLVED)
    table.assign(known, given[known])
    return table


def given_together(X: Any, y: Any, name: str) -> bool:
    """Whether a split is there; only validation has to be."""
    if name != "val" and X is None and y is None:
        return False
    if X is None or y is None:
        raise InvalidInputError(f"X_{name} and y_{name} belong together; one of them is missing", code=name)
    return True


def prepare_split(X: Any, y: Any, names: ClassNames, columns: int, name: str) -> Labelled | None:
    """Features and class ids of a split, checked; None for one that may be left out and is."""
    if not given_together(X, y, name):
        return None
    if len(getattr(X, "shape", ())) == 2 and X.shape[0] == 0:
        val = "INFL measures what helps on validation: hold out a few dozen trusted samples"
        remedy = val if name == "val" else "Leave it out if there is none"
        raise InvalidInputError(f"X_{name} is empty; expected at least one sample. {remedy}", code=name)
    features = as_features(X, f"X_{name}", columns=columns)
    ids = as_evaluation_labels(y, names, len(features), f"y_{name}", must_cover=name == "val")
    return features, ids


def steering_and_judging(
    validation: Labelled | None, own: Labelled | None, n_classes: int, holdout: float | str, seed: int
) -> tuple[Labelled, Labelled]:
    """The validation samples that steer, and those that judge: a share of them, or the user's own."""
    assert validation is not None, "X_val and y_val are required"
    X, y = validation
    judges = draw_judges(y, n_classes, 0.0 if own is not None else holdout, seed)
    if not judges.any():
        return validation, own if own is not None else (X[:0], y[:0])
    return (X[~judges], y[~judges]), (X[judges], y[judges])
