"""Receipts: of every answered sample what was predicted of it, and what came of it.

Effects are changes of the steering loss (cross-fitted where trusted samples train) that one answer, all others given, has caused:
negative helps. They do not add up to what all answers did together: labels interact. So every sum stands beside the joint change,
which is that of a model fitted again without all of these answers.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

ABOUT_EFFECTS = (
    "An effect is the change of the loss on the trusted samples that this one answer has caused, all others given; negative "
    "helps. Effects of single answers do not add up: the joint change is that of a model fitted again without all of them."
)

ABOUT_SUMS = (
    "Of a person: answers with the label they voted for, effects shared alike among all who did; against: decided otherwise. "
    "Of a source: votes that answers confirmed; against: votes that they overruled, and the effect of overruling them. "
    "Of a class: answers that gave it."
)


@dataclass(frozen=True)
class Receipt:
    """One answered sample; classes are ids, −1 for none. NaN, or nothing, where a thing was not predicted or is not known."""

    item: int
    """The sample's row."""
    round: int
    """Of the decision that counts."""
    asked: bool
    """Whether a round asked it; else a lead decided it without."""
    suggested: int
    predicted: tuple[float, ...]
    """By answer: the change of the steering loss that was predicted when the sample was selected."""
    believed: tuple[float, ...]
    """By class: how probable it was just before the answer, from model and sources."""
    sources: tuple[tuple[str, int], ...]
    """What each source had voted."""
    label: int
    support: float
    """Share of the votes behind the label."""
    votes: tuple[tuple[str, int], ...]
    """What each person voted, −1 for ambiguous."""
    effect: float
    """The change of the steering loss that the answer has caused."""
    direct: float
    """The part of the effect by the sample itself, …"""
    by_sources: float
    """… by what the answer taught about sources, …"""
    by_clean: float
    """… and by the clean model, the prior of what is believed."""
    flips: float
    """Predictions of training samples that would be others without the answer, by the sample itself; estimated from some."""

    @property
    def predicted_effect(self) -> float:
        """What was predicted for the answer that was given."""
        return self.predicted[self.label] if self.predicted else float("nan")

    @property
    def probability_before(self) -> float:
        """How probable the answer was before it was given."""
        return self.believed[self.label] if self.believed else float("nan")

    @property
    def changed(self) -> bool | None:
        """Whether another class was believed before; None where that was not written down."""
        return (
            None if not self.believed else max(range(len(self.believed)), key=self.believed.__getitem__) != self.label
        )


class Group(StrEnum):
    """What receipts are summed over."""

    ALL = "all"
    PERSON = "person"
    SOURCE = "source"
    CLASS = "class"


@dataclass(frozen=True)
class ReceiptSum:
    """Receipts of one person, source or class together.

    Of a person: the answers that have the label they voted for, the effect shared alike among all who did; `against` counts those
    decided otherwise. Of a source: its votes that the answers confirmed, and `against`, those they overruled; the effect is that
    of the answers that overruled it. Of a class: the answers that gave it.
    """

    group: Group
    name: str
    answers: int
    against: int
    changed: int
    """Answers that changed what was believed, as far as that was written down."""
    predicted: float
    """Sum of what was predicted; NaN where nothing was."""
    effect: float
    """Sum of the effects of single answers."""
    joint: float
    """The change that all of these answers together have caused, by a model fitted again; NaN where it was not computed."""
    flips: float
    """Predictions of training samples that are others without all of these answers, by the same model."""


@dataclass(frozen=True)
class Receipts:
    """All receipts of a campaign as it stands."""

    items: tuple[Receipt, ...]
    sums: tuple[ReceiptSum, ...]
    """The first one is of all answers."""
    loss: float
    """The steering loss now."""
    closed_form: bool
    """Whether effects are there: not where the model is a network."""

    @property
    def total(self) -> ReceiptSum:
        """Of all answers."""
        return self.sums[0]

    def summary(self, most: int = 10) -> "list[dict[str, Any]]":
        """The sums for people, those with the most answers: at most `most` persons, sources and classes."""
        found: list[ReceiptSum] = []
        for group in Group:
            found += [one for one in self.sums if one.group is group][:most]
        return [asdict(one) for one in found]

    def named(self, item_names: Mapping[int, str], classes: tuple[str, ...]) -> "list[dict[str, Any]]":
        """The receipts for a table: items and classes by name, one row each."""
        return [_row(one, item_names[one.item], classes) for one in self.items]


def _row(one: Receipt, item: str, classes: tuple[str, ...]) -> dict[str, Any]:
    def name(label: int) -> str | None:
        return None if label < 0 else classes[label]

    probabilities = {f"p: {c}": (one.believed[k] if one.believed else None) for k, c in enumerate(classes)}
    predicted = {f"predicted: {c}": (one.predicted[k] if one.predicted else None) for k, c in enumerate(classes)}
    return {
        "item": item,
        "round": one.round,
        "label": name(one.label),
        "support": one.support,
        "suggested": name(one.suggested),
        "asked": one.asked,
        "changed": one.changed,
        "probability_before": one.probability_before,
        "predicted_effect": one.predicted_effect,
        "effect": one.effect,
        "direct": one.direct,
        "by_sources": one.by_sources,
        "by_clean": one.by_clean,
        "flips": one.flips,
        "people": "; ".join(f"{who}: {name(label) or 'ambiguous'}" for who, label in one.votes),
        "sources": "; ".join(f"{who}: {name(label)}" for who, label in one.sources),
        **probabilities,
        **predicted,
    }
