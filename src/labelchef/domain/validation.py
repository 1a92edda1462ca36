"""The two parts of validation, and gains with their confidence intervals.

The *steering* part of validation is used by the selection: influence, early stopping, trusted examples. The *judging*
part is not: targets, stopping rules and reported gains use that one.
"""

from dataclasses import asdict, dataclass
from typing import Any

FEWEST = 50
"""The fewest samples that a judging part should have."""
FEWEST_OF_A_CLASS = 5
WIDEST = 0.05
"""The largest half width of an interval that contains 0 at which a gain is still judged."""


@dataclass(frozen=True)
class Gain:
    """The present model compared with the first one, on samples that the selection did not use.

    `low` and `high` are the 95 % confidence interval of after − before. For 'loss', less is better.

    >>> print(Gain("f1_macro", 0.7, 0.8, 0.06, 0.13, samples=150, rarest=12))
    +0.100 (95 %: +0.060 to +0.130)
    >>> print(Gain("f1_macro", 0.7, 0.8, -0.06, 0.22, samples=30, rarest=12))
    too small to judge (30 samples): +0.100 (95 %: -0.060 to +0.220)
    """

    metric: str
    before: float
    after: float
    low: float
    high: float
    samples: int
    """The number of judging samples."""
    rarest: int
    """The number of samples of the rarest class; 0 if a class has none."""

    @property
    def change(self) -> float:
        """After − before."""
        return self.after - self.before

    @property
    def doubt(self) -> str | None:
        """Why there are too few samples to judge, or None.

        A wide interval that does not contain 0 is accepted.
        """
        if self.samples < FEWEST:
            return f"{self.samples} samples"
        if self.rarest < FEWEST_OF_A_CLASS and self.metric.startswith("f1"):
            return f"{self.rarest} of a class"
        half = (self.high - self.low) / 2
        return f"±{half:.3f}" if half > WIDEST and self.low <= 0.0 <= self.high else None

    def __str__(self) -> str:
        found = f"{self.change:+.3f} (95 %: {self.low:+.3f} to {self.high:+.3f})"
        return found if self.doubt is None else f"too small to judge ({self.doubt}): {found}"

    def as_dict(self) -> dict[str, Any]:
        """Name → value, to be stored."""
        return asdict(self)


def note_on(gain: Gain | None) -> str:
    """A remark on validation figures; `gain` is that of the judging samples, None if there are none."""
    if gain is None:
        return "All of validation steers the selection, so its figures are optimistic; judge by a test set."
    few = "" if gain.doubt is None else f" They are too few to judge by ({gain.doubt})."
    return f"Validation figures are those of {gain.samples} samples that the selection never saw; the others steer it.{few}"
