"""What the learner believes: the source model and the strengths that were chosen, and the trials behind the choice."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from labelchef.base.arrays import Float64s

NO_SOURCES = "none"
"""In the place of a source model: weak labels are not used, γ = 0."""

ABOUT_USE: Mapping[str, str] = {
    "as it votes": "Its votes count for the class they name.",
    "turned": "It is wrong more often than chance, so its votes count against the class they name.",
    "muted": "Its votes tell little about the class, so they hardly count.",
    "counted": "Its votes count like those of any other source.",
    "muted, from the next model on": "A lead has muted it; the figures are those of the last model, which hears it.",
    "heard, from the next model on": "A lead lets it be heard again; the figures are those of the last model, without it.",
    "muted by you": "Its votes are left out: it is among the muted sources of the settings.",
    "not used": "No weak label is used: trusted and answered samples alone did better.",
}
"""Each `SourceFacts.use`, as a sentence."""
FEWEST_VOTES = 10
"""Votes from which on a measured share is shown: with fewer, its interval can be wider than half of the scale."""
ABOUT_SOURCES = (
    "Measured: share of the votes that are right on n samples of known class that nobody chose, trusted or drawn by chance, with "
    f"its 95 % interval; not yet below {FEWEST_VOTES}. Believed: the same share of all its votes, as model and sources believe, "
    "which may be wrong. Weight: log-odds that a vote adds for the class it names, in the labels that train. "
    "If muted: predicted change of the cross-fitted loss without the source; above 0 it helps."
)


@dataclass(frozen=True)
class Trial:
    """A source model with γ and λ, and its held-out cross-entropy at the best temperature."""

    model: str
    gamma: float
    strength: float
    loss: float


@dataclass(frozen=True)
class Ruling:
    """How logits become probabilities and a class: p = softmax((logits + shift) / T), ŷ = argmax_c [log p_c + offset_c].

    >>> Ruling(2.0, 0.5, (0.0, 1.0)).scores(np.array([[2.0, 0.0]])).tolist()
    [[1.0, 1.0]]
    """

    temperature: float
    tau: float
    """τ of the decision rule that suits the target metric; 0 is the most probable class."""
    offsets: tuple[float, ...]
    """−τ log of the mean prediction."""
    shift: tuple[float, ...] = ()
    """Towards the shares of the classes, the more the less the logits tell; none in campaigns of version 0.2.0."""

    def scaled(self, logits: Float64s) -> Float64s:
        """(n, C), of which the softmax are the probabilities."""
        return np.asarray((logits + np.array(self.shift) if self.shift else logits) / self.temperature)

    def parameters(self, W: Float64s, *, bias: bool) -> Float64s:
        """(d + 1, C), the intercept last, whose logits are the scaled ones of W (D, C)."""
        coef, intercept = (W[:-1], W[-1:]) if bias else (W, np.zeros((1, W.shape[1])))
        return np.vstack([coef / self.temperature, self.scaled(intercept)])

    def scores(self, logits: Float64s) -> Float64s:
        """(n, C), of which the largest decides."""
        return np.asarray(self.scaled(logits) + np.array(self.offsets))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Ruling":
        """What `dataclasses.asdict` made, with a list in the place of the tuple."""
        offsets, shift = (tuple(map(float, values.get(name, ()))) for name in ("offsets", "shift"))
        return cls(float(values["temperature"]), float(values["tau"]), offsets, shift)


@dataclass(frozen=True)
class InUse:
    """What the model of a round is made with, as people are told.

    >>> print(InUse("joint", 0.1, 2.0, 0.0, 1.25))
    source model joint, gamma 0.1, l2 strength 2, most probable class (τ 0), temperature 1.25
    >>> print(InUse("none", 0.0, 2.0, 0.4, 1.0))
    weak labels not used, l2 strength 2, decision rule τ 0.4, temperature 1
    """

    model: str
    """The source model; 'none' where weak labels are not used."""
    gamma: float
    """Weight of a weak sample; a clean one has 1."""
    strength: float
    """λ: l2 times the number of rows."""
    tau: float
    """Of the decision rule; 0 is the most probable class."""
    temperature: float
    """Logits are divided by it before they become probabilities."""

    @classmethod
    def of(cls, choice: "Choice | None", ruling: Ruling | None) -> "InUse | None":
        """Of a round; None where trusted samples only steer."""
        if choice is None:
            return None
        tau, temperature = (0.0, 1.0) if ruling is None else (ruling.tau, ruling.temperature)
        return cls(choice.model, choice.gamma, choice.strength, tau, temperature)

    def __str__(self) -> str:
        sources = f"source model {self.model}, gamma {self.gamma:.3g}"
        if self.model == NO_SOURCES or self.gamma == 0.0:
            sources = "weak labels not used"
        rule = f"decision rule τ {self.tau:g}" if self.tau else "most probable class (τ 0)"
        return f"{sources}, l2 strength {self.strength:.3g}, {rule}, temperature {self.temperature:.3g}"


@dataclass(frozen=True)
class Harm:
    """A source that harms beyond doubt.

    >>> print(Harm("old rule", -0.157, -0.21, -0.1))
    Source 'old rule' harms: without it, the cross-fitted loss changes by -0.1570 (-0.2100 to -0.1000).
    """

    name: str
    change: float
    """Of the cross-fitted loss without it."""
    low: float
    high: float
    """95 % interval, for all sources together; below 0."""

    def __str__(self) -> str:
        change = f"{self.change:+.4f} ({self.low:+.4f} to {self.high:+.4f})"
        return f"Source {self.name!r} harms: without it, the cross-fitted loss changes by {change}."


@dataclass(frozen=True)
class SourceFacts:
    """What is known of a source.

    What is measured is measured on samples of known class that nobody chose: trusted ones, and those that were drawn by chance.
    Samples that a selector asked are harder than others. Intervals are 95 % intervals of Clopper and Pearson, of the share
    among its other votes; (0, 1) without such votes.
    """

    name: str
    votes: int
    """Samples it votes on, of those that can be asked about."""
    coverage: float
    """Their share."""
    measured_on: int
    """Samples it votes on, of those it is measured on."""
    accuracy: float
    """Share of its votes on these that are right; NaN where there are fewer than `FEWEST_VOTES`."""
    accuracy_low: float
    accuracy_high: float
    believed: float
    """Share of its votes that are right as the model believes, of all samples it votes on; NaN without votes."""
    conflicts: float
    """Share of its votes that differ from those of another source on the same sample; NaN without votes."""
    weight: float
    """Mean log-odds that one of its votes adds for the class it names, in the labels that train: below 0 it counts against it."""
    use: str
    """'as it votes', 'turned' (counts against what it votes), 'muted' (hardly counts; where votes are counted: worse than chance
    and left out), 'counted' (like any other source), 'not used', or 'muted by you': left out by the setting `muted`.
    In a list also what changed since the last model: 'muted, from the next model on' and 'heard, from the next model on'."""
    muting: float
    """Predicted change of the cross-fitted loss if the source were muted: above 0 it helps. NaN where it is not used, and for a
    network."""
    confusion: tuple[tuple[float | None, ...], ...]
    """[class][vote]: share of its votes on samples of a class, measured; None where there are fewer than `FEWEST_VOTES`."""
    confusion_low: tuple[tuple[float, ...], ...]
    confusion_high: tuple[tuple[float, ...], ...]
    believed_confusion: tuple[tuple[float, ...], ...]
    """The same shares as the model believes, of all samples it votes on."""

    @property
    def about(self) -> str:
        """What is done with its votes, as a sentence."""
        return ABOUT_USE[self.use]

    def as_json(self) -> dict[str, Any]:
        """In JSON's types: None where a number is not known."""
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class PersonFacts:
    """What is known of a person who answers."""

    name: str
    answers: int
    """Samples this person answered, of those that have a label now."""
    error: float
    """Estimated probability that an answer is wrong; near that of all persons together while there are few answers."""


@dataclass(frozen=True)
class PeopleFacts:
    """How often people err, estimated from samples of known class, from samples with several answers, and from the model.

    `error` is the probability that an answer is wrong, of all persons together, with a 95 % interval.
    """

    error: float
    low: float
    high: float
    samples: int
    """Answered samples it rests on."""
    answers: int
    """Answers on them."""
    gold: int
    """Samples among them whose class is known otherwise."""
    overlap: int
    """Samples with answers of two persons or more."""
    persons: tuple[PersonFacts, ...]
    source: bool
    """Whether answers now train as a source (with what is believed of them) or as truth."""


Named = TypeVar("Named", int, str)


@dataclass(frozen=True)
class Doubt(Generic[Named]):
    """An answered sample that is worth a second look: row and class ids, or, for people, its key and names of classes."""

    item: Named
    answer: Named
    """The class that was decided."""
    believed: Named
    """The most probable class, given the answers and the model without this sample."""
    wrong: float
    """Probability that the answer is wrong."""
    worth: float
    """By how much one more answer is expected to raise the probability that the most probable class is right."""
    reason: str


@dataclass(frozen=True)
class Choice:
    """What the learner uses until it is chosen anew.

    >>> Choice.from_json(Choice("joint", 0.1, 1.0, 3.0, 1.2, 100).as_json()).model
    'joint'
    """

    model: str
    """A source model by its name, or `NO_SOURCES`."""
    gamma: float
    strength: float
    """λ, of the sum of the losses; l2 of the objective, which is a mean over rows, is λ divided by the number of rows."""
    clean_strength: float
    """μ of the clean model, the one that is trained on clean samples alone."""
    temperature: float
    """T, which scales the logits of the clean model."""
    n_clean: int
    """Clean samples it was chosen on."""
    trials: tuple[Trial, ...] = field(default=(), compare=False, repr=False)
    seconds: float = field(default=0.0, compare=False)

    def as_json(self) -> dict[str, Any]:
        """In JSON's types, without the trials."""
        return {name: value for name, value in asdict(self).items() if name != "trials"}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Choice":
        """What `as_json` wrote."""
        return cls(**values)
