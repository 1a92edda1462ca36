"""The two parts of validation, gains with their confidence intervals, and the records of a comparison of selectors.

The *steering* part of validation is used by the selection: influence, early stopping, trusted examples. The *judging*
part is not: targets, stopping rules and reported gains use that one.
"""

from collections.abc import Mapping
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
    rarest: int
    """The number of samples of the rarest class; 0 if a class has none."""
    cross_fitted: bool = False
    """Whether the samples train too, and each was judged by models without it."""

    @property
    def measured_on(self) -> str:
        """The samples, in words."""
        return measured_on(self.samples, cross_fitted=self.cross_fitted)

    @property
    def change(self) -> float:
        """After − before."""
        return self.after - self.before

    @property
    def doubt(self) -> str | None:
        """Why there are too few samples to judge, or None; a wide interval that does not contain 0 is accepted."""
        doubt = too_few(self.samples, self.rarest, self.metric)
        if doubt is not None:
            return doubt
        half = (self.high - self.low) / 2
        return f"±{half:.3f}" if half > WIDEST and self.low <= 0.0 <= self.high else None

    def __str__(self) -> str:
        found = f"{self.change:+.3f} (95 %: {self.low:+.3f} to {self.high:+.3f})"
        return found if self.doubt is None else f"too small to judge ({self.doubt}): {found}"

    def as_dict(self) -> dict[str, Any]:
        """Name → value, to be stored."""
        return asdict(self)


@dataclass(frozen=True)
class Figure:
    """A metric of one model with its 95 % confidence interval, `low` to `high`.

    >>> print(Figure("accuracy", 0.84, 0.79, 0.88, samples=300, rarest=40))
    0.840 (95 %: 0.790 to 0.880)
    """

    metric: str
    value: float
    low: float
    high: float
    samples: int
    rarest: int
    """The number of samples of the rarest class; 0 if a class has none."""
    cross_fitted: bool = False
    """Whether the samples train too, and each was judged by models without it."""

    @property
    def measured_on(self) -> str:
        """The samples, in words."""
        return measured_on(self.samples, cross_fitted=self.cross_fitted)

    def __str__(self) -> str:
        return f"{self.value:.3f} (95 %: {self.low:.3f} to {self.high:.3f})"

    def as_dict(self) -> dict[str, Any]:
        """Name → value, to be stored."""
        return asdict(self)


@dataclass(frozen=True)
class CalibrationError:
    """The calibration error; `floor` and `ceiling` are the mean and the 95 % point of what noise alone gives.

    >>> print(CalibrationError(0.031, floor=0.025, ceiling=0.044, bins=10, samples=300))
    0.031 (within noise: a perfect model would show 0.025, up to 0.044)
    """

    error: float
    floor: float
    ceiling: float
    bins: int
    samples: int

    @property
    def beyond_noise(self) -> bool:
        """Whether the probabilities are wrong by more than noise."""
        return self.error > self.ceiling

    def __str__(self) -> str:
        verdict = "beyond noise" if self.beyond_noise else "within noise"
        return f"{self.error:.3f} ({verdict}: a perfect model would show {self.floor:.3f}, up to {self.ceiling:.3f})"


@dataclass(frozen=True)
class AuditPoint:
    """The audit after a number of audited items: the share predicted right, and its interval, valid at all times."""

    items: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class AuditReport:
    """What the audit has found: items drawn by chance and predicted before they were answered."""

    share: float
    """Share of what is asked that is audited; 0 where there is no audit."""
    accuracy: Figure | None
    """Share of the audited items predicted right, with an interval that holds whenever one looks; None before the first."""
    course: tuple[AuditPoint, ...]
    """The same after each audited item."""

    def __str__(self) -> str:
        if self.accuracy is None:
            return "audit: no item answered yet" if self.share else "audit: off"
        found = f"audit: accuracy {self.accuracy} on {self.accuracy.samples} items drawn by chance"
        return f"{found}; the interval holds whenever one looks"


BASELINES: Mapping[str, str] = {"trusted_only": "trusted only", "no_weak": "without weak labels"}
"""What a gain is shown beside, and its name in words."""
THIS_MODEL = "this model"
"""The campaign's own model, in charts that have the baselines too."""
ABOUT_BASELINES = (
    "Trusted only: a model of the trusted samples alone, with nobody asked. Without weak labels: a model of the trusted and "
    "the answered samples."
)


def too_few(samples: int, rarest: int, metric: str) -> str | None:
    """What there is too little of to judge by; None where there is enough.

    >>> too_few(30, 12, "accuracy"), too_few(80, 3, "f1_macro"), too_few(80, 3, "accuracy")
    ('30 samples', '3 of a class', None)
    """
    if samples < FEWEST:
        return f"{samples} samples"
    return f"{rarest} of a class" if rarest < FEWEST_OF_A_CLASS and metric.startswith("f1") else None


def behind(figure: Figure, without_weak: float) -> str | None:
    """What it means that this model is behind the one without weak labels; None where it is not.

    >>> behind(Figure("accuracy", 0.975, 0.96, 0.99, samples=500, rarest=40), 0.980)
    'behind "without weak labels" by 0.005, which is inside the 95 % interval of this model: no difference is shown'
    >>> behind(Figure("loss", 0.40, 0.35, 0.45, samples=500, rarest=40), 0.30)
    'behind "without weak labels" by 0.100, outside the 95 % interval of this model: the weak labels do harm'
    """
    sign = -1.0 if figure.metric == "loss" else 1.0
    if sign * (without_weak - figure.value) <= 0.0:
        return None
    found = f'behind "without weak labels" by {abs(without_weak - figure.value):.3f}'
    if figure.low <= without_weak <= figure.high:
        return f"{found}, which is inside the 95 % interval of this model: no difference is shown"
    return f"{found}, outside the 95 % interval of this model: the weak labels do harm"


def measured_on(samples: int, *, cross_fitted: bool) -> str:
    """Which samples a figure comes from, in words.

    >>> measured_on(300, cross_fitted=True)
    'cross-fitted over 300 trusted samples'
    """
    return f"cross-fitted over {samples} trusted samples" if cross_fitted else f"{samples} samples held out"


NOT_YET = (
    f"No figures yet: there are no trusted samples. The first {FEWEST} answers are drawn by chance and become the trusted "
    "ones; figures follow then."
)


def note_on(figure: Figure | None, *, measured: bool = True) -> str:
    """A remark on validation figures, of which this is one; None where all of validation steers.

    `measured` says whether anything is measured already.
    """
    if not measured:
        return NOT_YET
    if figure is None:
        return "All of validation steers the selection, so its figures are optimistic; judge by a test set."
    doubt = too_few(figure.samples, figure.rarest, figure.metric)
    few = "" if doubt is None else f" They are too few to judge by ({doubt})."
    if figure.cross_fitted:
        return (
            f"Validation figures are cross-fitted over {figure.samples} trusted samples: they train, and each is judged by the "
            f"model without it.{few}"
        )
    return f"Validation figures are those of {figure.samples} samples that the selection never saw; the others steer it.{few}"


SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the labels after which the metric is given."""
AS_ASKED = "as asked"
"""The name of the campaign's own order in a comparison."""


@dataclass(frozen=True)
class Cell:
    """A replay that is running: `asked` of `labels` are done, it is the `repeat`-th of `repeats` of its selector, from 1."""

    selector: str
    repeat: int
    repeats: int
    asked: int
    labels: int


@dataclass(frozen=True)
class Standing:
    """The result of a selector; the mean over its repeats where it draws random numbers."""

    selector: str
    repeats: int
    curve: tuple[float, ...]
    """The metric at each point of `Comparison.asked`."""
    after: tuple[float, ...]
    """The metric after `SHARES` of the labels."""
    area: float
    """Mean of the metric over the curve."""
    area_half: float | None
    """Half the width of its 95 % interval over the repeats."""
    labels_to_reach: float | None
    """Labels until the campaign's final level; None if it is not reached."""
    suggestion_share: float | None
    """Share of suggestions that equal the answer; None where none were made."""
    seconds: float
    """Seconds of selection in one replay."""
    difference: Gain | None
    """Difference of the area from that of the campaign's own order; None for that order itself."""

    @property
    def verdict(self) -> str | None:
        """Whether the area differs from that of the campaign's own order, as far as the judging samples can show."""
        gain = self.difference
        if gain is None:
            return None
        if gain.doubt is not None:
            return f"too small to judge ({gain.doubt})"
        if gain.low <= 0.0 <= gain.high:
            return "not told apart"
        return "better" if (gain.low > 0.0) != (gain.metric == "loss") else "worse"


@dataclass(frozen=True)
class Comparison:
    """The results of all selectors, the best area first."""

    campaign: str
    metric: str
    split: str
    """The split of the metric: 'test', 'validation' (its judging samples) or, where there is neither, 'steering'."""
    samples: int
    labels: int
    unanswered: int
    batch_size: int
    asked: tuple[int, ...]
    level: float
    """The metric at the end of the campaign's own order."""
    standings: tuple[Standing, ...]
    notes: tuple[str, ...]
