"""Records of a comparison of selectors on a campaign's own labels."""

from dataclasses import dataclass

from labelchef.domain.validation import Gain

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
    """Remarks for the reader."""
