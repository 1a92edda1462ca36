"""How people agree with each other and with the suggestion.

Agreement of two people is the share of items both voted on that got the same answer; κ (Cohen's for two, Fleiss' for
several) sets it against chance. 'Ambiguous' is an answer like any other.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from labelchef.store.rows import VoteRow


@dataclass(frozen=True)
class PairAgreement:
    """How two people agree."""

    first: str
    second: str
    items: int
    agreement: float
    kappa: float | None


@dataclass(frozen=True)
class Pull:
    """How often people gave the suggested label, where they saw it and where they did not."""

    shown: int
    shown_agreement: float | None
    blind: int
    blind_agreement: float | None

    @property
    def pull(self) -> float | None:
        """How much more often people agree with a suggestion that they see."""
        if self.shown_agreement is None or self.blind_agreement is None:
            return None
        return self.shown_agreement - self.blind_agreement


def pairs_of(votes: Sequence[VoteRow]) -> list[PairAgreement]:
    """The agreement of every two people who voted on the same items."""
    both: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for answers in _answers(votes).values():
        for first, second in combinations(sorted(answers), 2):
            both[first, second].append((answers[first], answers[second]))
    return [
        PairAgreement(first, second, len(given), agreement(given), cohen_kappa(given))
        for (first, second), given in sorted(both.items())
    ]


def agreement(given: Sequence[tuple[int, int]]) -> float:
    """Share of pairs that are equal."""
    return sum(a == b for a, b in given) / len(given)


def cohen_kappa(given: Sequence[tuple[int, int]]) -> float | None:
    """Cohen's κ of two people's answers; None where chance alone would make them agree.

    >>> cohen_kappa([(0, 0), (1, 1), (0, 1), (1, 0)])
    0.0
    """
    n = len(given)
    labels = {label for pair in given for label in pair}
    chance = sum(sum(a == c for a, _ in given) * sum(b == c for _, b in given) for c in labels) / n**2
    return None if chance >= 1.0 else (agreement(given) - chance) / (1.0 - chance)


def fleiss_of(votes: Sequence[VoteRow]) -> float | None:
    """Fleiss' κ of all votes; None where it is not defined."""
    rows = [list(answers.values()) for answers in _answers(votes).values() if len(answers) >= 2]
    return fleiss_kappa(rows)


def fleiss_kappa(rows: Sequence[Sequence[int]]) -> float | None:
    """Fleiss' κ over items with two answers or more each; None where it is not defined.

    >>> fleiss_kappa([[0, 0], [1, 1]])
    1.0
    """
    if not rows:
        return None
    total = sum(len(row) for row in rows)
    counts: dict[int, int] = defaultdict(int)
    observed = 0.0
    for row in rows:
        n = len(row)
        own = {label: list(row).count(label) for label in set(row)}
        for label, count in own.items():
            counts[label] += count
        observed += sum(c * (c - 1) for c in own.values()) / (n * (n - 1))
    chance = sum((c / total) ** 2 for c in counts.values())
    return None if chance >= 1.0 else (observed / len(rows) - chance) / (1.0 - chance)


def pull_of(votes: Sequence[VoteRow]) -> Pull:
    """How often people gave the suggested label, seen and unseen."""
    seen = [v for v in votes if v.suggested is not None and v.source == "person"]
    shown, blind = [v for v in seen if not v.blind], [v for v in seen if v.blind]
    return Pull(len(shown), share_followed(shown), len(blind), share_followed(blind))


def share_followed(votes: Sequence[VoteRow]) -> float | None:
    """Share of votes that equal the suggestion; None if there are no votes."""
    return sum(v.label == v.suggested for v in votes) / len(votes) if votes else None


def _answers(votes: Sequence[VoteRow]) -> dict[tuple[int, int], dict[str, int]]:
    table: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for vote in votes:
        table[vote.item_id, vote.attempt][vote.person] = -1 if vote.label is None else int(vote.label)
    return table
