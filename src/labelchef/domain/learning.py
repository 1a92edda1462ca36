"""What the learner believes: the source model and the strengths that were chosen, and the trials behind the choice."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

NO_SOURCES = "none"
"""In the place of a source model: weak labels are not used, γ = 0."""


@dataclass(frozen=True)
class Trial:
    """A source model with γ and λ, and its held-out cross-entropy at the best temperature."""

    model: str
    gamma: float
    strength: float
    loss: float


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
