"""The data of a campaign: one type, made from arrays (`CampaignData.of`), from files (`campaign.files`) or from the store.

Shapes: X (N, d), weak (N, C) rows on the simplex, clean (N,) class ids with −1 where none is known; X_val (n, d), y_val (n,)
trusted samples; X_judge, X_test likewise, where there are any. A network takes inputs of any shape in place of (n, d).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from labelchef.campaign.contents import Contents
from labelchef.campaign.inputs import ClassNames, as_evaluation_labels, as_features, as_mask, as_weak_labels
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import UNRESOLVED

Labelled: TypeAlias = tuple[NDArray[Any], Ints]
"""Samples, a row each, with trusted class ids (n,)."""

ReadRows: TypeAlias = Callable[[Any, str, "NDArray[Any] | None"], NDArray[Any]]
"""Checks samples: (what came, its name, the training samples to compare with, None for those themselves) → an array."""


def as_rows(X: Any, name: str, like: NDArray[Any] | None, *, half: bool = False) -> NDArray[Any]:
    """Features; with `half`, training samples may stay in half precision: for an engine that reads those."""
    return as_features(X, name, half=half) if like is None else as_features(X, name, columns=like.shape[1])


@dataclass(frozen=True)
class CampaignData:
    """Everything a campaign is made of, checked."""

    X: NDArray[Any]
    weak: Float64s
    names: ClassNames
    validation: Labelled
    clean: Ints
    judge: Labelled | None = None
    """Trusted samples of the user's own that judge; None to hold some of validation out."""
    test: Labelled | None = None
    askable: Bools | None = None
    contents: Contents = field(default_factory=Contents)

    @classmethod
    def of(
        cls,
        X: Any,
        Y_weak: Any,
        *,
        X_val: Any,
        y_val: Any,
        X_judge: Any = None,
        y_judge: Any = None,
        X_test: Any = None,
        y_test: Any = None,
        y_clean: Any = None,
        askable: Any = None,
        classes: Sequence[Hashable] | None = None,
        contents: Contents | None = None,
        read: ReadRows = as_rows,
    ) -> "CampaignData":
        """Data from arrays or frames; whatever is wrong with them is refused with what was expected."""
        rows = read(X, "X", None)
        weak = as_weak_labels(Y_weak, len(rows))
        names = ClassNames.of(classes, Y_weak, weak.shape[1])
        validation = _split(X_val, y_val, names, rows, "val", read)
        assert validation is not None, "a split that is missing is refused"
        return cls(
            X=rows,
            weak=weak,
            names=names,
            validation=validation,
            clean=_clean(y_clean, names, len(rows)),
            judge=_split(X_judge, y_judge, names, rows, "judge", read),
            test=_split(X_test, y_test, names, rows, "test", read),
            askable=as_mask(askable, len(rows), "askable"),
            contents=contents or Contents(),
        )

    def mapped(self, features: Callable[[NDArray[Any]], NDArray[Any]]) -> "CampaignData":
        """The same samples as other rows, such as the features below a network's last layer."""

        def split(part: Labelled | None) -> Labelled | None:
            return None if part is None else (features(part[0]), part[1])

        X_val, y_val = self.validation
        judge, test = split(self.judge), split(self.test)
        return replace(self, X=features(self.X), validation=(features(X_val), y_val), judge=judge, test=test)


def _clean(y_clean: Any, names: ClassNames, n_rows: int) -> Ints:
    """Class ids known from the start (N,), −1 where none is."""
    if y_clean is None:
        return np.full(n_rows, UNRESOLVED, dtype=np.int64)
    given = names.encode(y_clean, "y_clean", allow_missing=True)
    if len(given) != n_rows:
        raise InvalidInputError(
            f"y_clean has {len(given)} entries; expected {n_rows}, as X has, −1 where not clean", code="labels"
        )
    return given


def _split(X: Any, y: Any, names: ClassNames, like: NDArray[Any], name: str, read: ReadRows) -> Labelled | None:
    """A labelled split; None for one that may be left out and is. Only validation has to be there."""
    if name != "val" and X is None and y is None:
        return None
    if X is None or y is None:
        raise InvalidInputError(f"X_{name} and y_{name} belong together; one of them is missing", code=name)
    if len(getattr(X, "shape", ())) == 2 and X.shape[0] == 0:
        remedy = "Leave it out if there is none"
        if name == "val":
            remedy = "Influence measures what helps on validation: hold out a few dozen trusted samples"
        raise InvalidInputError(f"X_{name} is empty; expected at least one sample. {remedy}", code=name)
    rows = read(X, f"X_{name}", like)
    return rows, as_evaluation_labels(y, names, len(rows), f"y_{name}", must_cover=name == "val")
