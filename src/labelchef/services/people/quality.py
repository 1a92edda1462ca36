"""What each person did, and how it compares with what was decided."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labelchef.domain.campaigns import SUGGESTION, PersonStats
from labelchef.services.people.agreement import share_followed
from labelchef.services.times import moment
from labelchef.store.rows import DecisionRow, VoteRow


@dataclass(frozen=True)
class PersonQuality:
    """What a person did, and how it compares with what was decided."""

    person: str
    votes: int
    ambiguous: int
    seconds: float | None
    compared: int
    """Votes on items that are decided."""
    quality: float | None
    """Share of them that equal the decision."""
    with_suggestion: float | None


def by_person(votes: Sequence[VoteRow]) -> dict[str, list[VoteRow]]:
    """The votes of people by name, in the order of names; the suggestion is not a person."""
    found: dict[str, list[VoteRow]] = defaultdict(list)
    for vote in votes:
        if vote.person != SUGGESTION:
            found[vote.person].append(vote)
    return dict(sorted(found.items()))


def stats_of(votes: Sequence[VoteRow]) -> tuple[PersonStats, ...]:
    """What each person did, by name; `votes` are the live ones of people."""
    stats = []
    for person, own in by_person(votes).items():
        seconds = [v.seconds for v in own if v.seconds is not None]
        stats.append(
            PersonStats(
                person=person,
                votes=len(own),
                ambiguous=sum(v.label is None for v in own),
                seconds=statistics.median(seconds) if seconds else None,
                last_vote_at=moment(max(v.created_at for v in own)),
            )
        )
    return tuple(stats)


def quality_of(votes: Sequence[VoteRow], decided: Mapping[int, DecisionRow]) -> list[PersonQuality]:
    """Each person's votes against what was decided."""
    found = []
    for person, own in by_person(votes).items():
        compared = []
        for vote in own:
            decision = decided.get(vote.item_id)
            if decision is not None and decision.attempt == vote.attempt and decision.label is not None:
                compared.append(vote.label == decision.label)
        seconds = [v.seconds for v in own if v.seconds is not None]
        with_suggestion = [v for v in own if v.suggested is not None]
        found.append(
            PersonQuality(
                person=person,
                votes=len(own),
                ambiguous=sum(v.label is None for v in own),
                seconds=statistics.median(seconds) if seconds else None,
                compared=len(compared),
                quality=sum(compared) / len(compared) if compared else None,
                with_suggestion=share_followed(with_suggestion),
            )
        )
    return found
