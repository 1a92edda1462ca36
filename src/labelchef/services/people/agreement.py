"""What each person did, and how people agree with each other, with the suggestion and with what was decided.

Agreement of two people is the share of items both voted on that got the same answer; κ (Cohen's for two, Fleiss' for
several) sets it against chance. 'Ambiguous' is an answer like any other.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from labelchef.domain.campaigns import SUGGESTION, PersonStats
from labelchef.services.shared import common, moment
from labelchef.store.rows import DecisionRow, VoteRow


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


@dataclass(frozen=True)
class PersonQuality(PersonStats):
    """What a person did, and how it compares with what was decided."""

    compared: int
    """Votes on items that are decided."""
    quality: float | None
    """Share of them that equal the decision."""
    with_suggestion: float | None


def stats_of(votes: Sequence[VoteRow]) -> tuple[PersonStats, ...]:
    """What each person did, by name; the suggestion is not a person."""
    return tuple(_stats(person, own) for person, own in _by_person(votes))


def quality_of(votes: Sequence[VoteRow], decided: Mapping[int, DecisionRow]) -> tuple[PersonQuality, ...]:
    """Each person's votes against what was decided."""
    found = []
    for person, own in _by_person(votes):
        pairs = [(vote, decided.get(vote.item_id)) for vote in own]
        same = [
            vote.label == made.label
            for vote, made in pairs
            if made is not None and made.attempt == vote.attempt and made.label is not None
        ]
        quality = sum(same) / len(same) if same else None
        followed = _followed([vote for vote in own if vote.suggested is not None])
        stats = common(PersonStats, _stats(person, own))
        found.append(PersonQuality(**stats, compared=len(same), quality=quality, with_suggestion=followed))
    return tuple(found)


def _by_person(votes: Sequence[VoteRow]) -> list[tuple[str, list[VoteRow]]]:
    found: dict[str, list[VoteRow]] = defaultdict(list)
    for vote in votes:
        if vote.person != SUGGESTION:
            found[vote.person].append(vote)
    return sorted(found.items())


def _stats(person: str, own: Sequence[VoteRow]) -> PersonStats:
    seconds = [v.seconds for v in own if v.seconds is not None]
    median = statistics.median(seconds) if seconds else None
    return PersonStats(
        person, len(own), sum(v.label is None for v in own), median, moment(max(v.created_at for v in own))
    )


def pairs_of(votes: Sequence[VoteRow]) -> tuple[PairAgreement, ...]:
    """The agreement of every two people who voted on the same items."""
    both: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for answers in _answers(votes).values():
        for first, second in combinations(sorted(answers), 2):
            both[first, second].append((answers[first], answers[second]))
    return tuple(
        PairAgreement(*pair, len(given), agreement(given), cohen_kappa(given)) for pair, given in sorted(both.items())
    )


def agreement(given: Sequence[tuple[int, int]]) -> float:
    """Share of pairs that are equal."""
    return sum(a == b for a, b in given) / len(given)


def cohen_kappa(given: Sequence[tuple[int, int]]) -> float | None:
    """Cohen's κ of two people's answers; None where chance alone would make them agree.

    >>> cohen_kappa([(0, 0), (1, 1), (0, 1), (1, 0)])
    0.0
    """
    first, second = Counter(a for a, _ in given), Counter(b for _, b in given)
    chance = sum(count * second[label] for label, count in first.items()) / len(given) ** 2
    return None if chance >= 1.0 else (agreement(given) - chance) / (1.0 - chance)


def fleiss_of(votes: Sequence[VoteRow]) -> float | None:
    """Fleiss' κ of all votes; None where it is not defined."""
    return fleiss_kappa([list(answers.values()) for answers in _answers(votes).values() if len(answers) >= 2])


def fleiss_kappa(rows: Sequence[Sequence[int]]) -> float | None:
    """Fleiss' κ over items with two answers or more each; None where it is not defined.

    >>> fleiss_kappa([[0, 0], [1, 1]])
    1.0
    """
    if not rows:
        return None
    counts = Counter(label for row in rows for label in row)
    chance = sum((c / counts.total()) ** 2 for c in counts.values())
    alike = [sum(c * (c - 1) for c in Counter(row).values()) / (len(row) * (len(row) - 1)) for row in rows]
    return None if chance >= 1.0 else (sum(alike) / len(rows) - chance) / (1.0 - chance)


def pull_of(votes: Sequence[VoteRow]) -> Pull:
    """How often people gave the suggested label, seen and unseen."""
    seen = [v for v in votes if v.suggested is not None and v.source == "person"]
    shown, blind = [v for v in seen if not v.blind], [v for v in seen if v.blind]
    return Pull(len(shown), _followed(shown), len(blind), _followed(blind))


def _followed(votes: Sequence[VoteRow]) -> float | None:
    return sum(v.label == v.suggested for v in votes) / len(votes) if votes else None


def _answers(votes: Sequence[VoteRow]) -> dict[tuple[int, int], dict[str, int]]:
    table: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for vote in votes:
        table[vote.item_id, vote.attempt][vote.person] = -1 if vote.label is None else int(vote.label)
    return table
