"""Features that came as numbers, such as embeddings.

    B = (X − m) / s      (n, d), m the mean of each column over the rows of the fit

s is 1 for every column, so that the geometry of an embedding stays what it is, unless the columns are no embedding: where the
largest standard deviation of a column is more than `SPREAD` times the smallest one, s is the standard deviation of each.
Columns that never change become zeros.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelchef.base.arrays import Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.base.features import as_features
from labelchef.base.intake import Progress, no_progress
from labelchef.data.encoders.protocol import Block, Content, State

SPREAD = 100.0


@dataclass(frozen=True)
class NumbersEncoder:
    """Centres, and scales columns of very different spread."""

    def fit(self, content: Content, progress: Progress = no_progress) -> "FittedNumbers":  # noqa: ARG002
        """Learn means and spreads."""
        X = as_features(_given(content), "features")
        mean, spread = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        changing = spread > 1e-6 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)
        apart = changing.any() and spread[changing].max() > SPREAD * spread[changing].min()
        scale = np.where(changing, 1.0 / np.where(changing & apart, spread, 1.0), 0.0)
        return FittedNumbers(mean, scale)


@dataclass(frozen=True, eq=False)
class FittedNumbers:
    """Means and factors of the columns."""

    mean: Float64s
    """(d,)"""
    scale: Float64s
    """(d,)"""

    @property
    def name(self) -> str:
        """What people read."""
        return "given features"

    @property
    def group(self) -> str:
        """A group of its own."""
        return self.name

    @property
    def columns(self) -> tuple[str, ...]:
        """None: the numbers come beside the frame."""
        return ()

    @property
    def width(self) -> int:
        """d."""
        return len(self.mean)

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:  # noqa: ARG002
        """(n, d)"""
        if len(content) == 0:
            return np.zeros((0, self.width), dtype=np.float32)
        X = as_features(_given(content), "features", columns=self.width)
        return np.asarray((X - self.mean) * self.scale, dtype=np.float32)

    def state(self) -> State:
        """What a file keeps."""
        return State("numbers", {"mean": self.mean, "scale": self.scale}, {})

    @classmethod
    def of_state(cls, state: State) -> "FittedNumbers":
        """From what `state` gave."""
        mean, scale = (np.asarray(state.arrays[name], dtype=np.float64) for name in ("mean", "scale"))
        if mean.ndim != 1 or mean.shape != scale.shape or not np.isfinite([mean, scale]).all():
            raise InvalidInputError(
                f"means of shape {mean.shape} and factors of shape {scale.shape}; expected one of each a column",
                code="encoder",
            )
        return cls(mean, scale)


def _given(content: Content) -> NDArray[np.floating[Any]]:
    if content.features is None:
        raise InvalidInputError(
            "the rows come without features; the encoder was fitted on rows with features of their own (embeddings). "
            "Give them too: --features FILE, or features=…",
            code="features",
        )
    return content.features
