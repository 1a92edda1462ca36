"""How a campaign goes: metrics of every round, what was predicted and what came of it, people and how they agree.

Agreement of two people is the share of items both voted on that got the same answer; κ (Cohen's for two, Fleiss' for
several) sets it against chance. 'Ambiguous' is an answer like any other.

Leads see all of it (`progress`). Annotators (`progress_for`) see what was stored when a round was closed, which no later vote
changes, and counters of their own votes. Nothing that is computed from votes or suggestions is among it, the audit comes in
steps of `AUDIT_STEP` items: else a person could read from a shared figure what one vote of theirs did to it, and so what the
suggestion of a blind item is, or how a colleague voted.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Protocol, TypeVar

from labelchef.base.campaigns import SUGGESTION, DecisionKind, Origin, PersonStats
from labelchef.base.learning import Choice, InUse, Ruling
from labelchef.base.records import AskedCount, SelectionDiagnostics
from labelchef.base.validation import AuditReport, CalibrationError, Figure, Gain, note_on
from labelchef.judge.accuracy import Follows, Interval, PullEstimate, pull
from labelchef.judge.audit import audit_report
from labelchef.loop.ledger.conversion import diagnostics_from_json, record_from_json
from labelchef.server.campaigns.access import looking
from labelchef.server.shared import common, moment
from labelchef.server.sharing import Shared
from labelchef.server.store import campaign_table, decision_table, gold_table, round_table, vote_table
from labelchef.server.store.rows import RoundRow, SelectionBrief, SelectionPlace, VoteRow
from labelchef.server.workspace import Workspace

Labels = Mapping[tuple[int, int], int | None]
"""(item, attempt) → the label that was decided, None if the item was left unresolved."""
AUDIT_STEP = 10
"""Audited items between two points of the audit that annotators see."""
_STORED = ("validation", "steering", "test", "predicted_change", "realised_change")


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
    pull: Interval | None = None
    """How much more often people agree with a suggestion that they see; None with too few blind votes."""


@dataclass(frozen=True)
class PersonQuality(PersonStats):
    """What a person did, and how it compares with what was decided."""

    compared: int
    """Votes on items that are decided."""
    quality: float | None
    """Share of them that equal the decision."""
    with_suggestion: float | None


@dataclass(frozen=True)
class RoundProgress:
    """A closed round in numbers."""

    number: int
    validation: dict[str, float]
    """On the samples that judge; on those that steer where none judges."""
    steering: dict[str, float]
    gain: Gain | None
    """Of the target metric, this model against the first one, on samples held out; None where there are none."""
    test: dict[str, float] | None
    baselines: Mapping[str, Mapping[str, Mapping[str, float]]]
    """By split, name ('trusted_only', 'no_weak') and metric; see `RoundSummary`."""
    figures: Mapping[str, Mapping[str, Figure]]
    """By split and metric, with intervals."""
    in_use: InUse | None
    calibration: CalibrationError | None
    predicted_change: float | None
    """Of the loss on the samples that steer: what was predicted of the answers that were given; None where nothing was."""
    realised_change: float | None
    """Of that loss, what came of them; None for round 0."""
    asked: int
    """Samples that this round asked (`AskedCount`): over all rounds they add up to `spent`."""
    resolved: int | None
    """Items that were decided; None, as the next three, for annotators."""
    suggested: int | None
    """Items that had a suggestion."""
    followed: int | None
    """Items decided as suggested."""
    seconds_per_item: float | None
    """Median over the votes of people."""


@dataclass(frozen=True)
class ProgressReport:
    """Everything the progress page shows but the map."""

    metric: str
    target: float | None
    spent: int
    budget: int | None
    rounds: tuple[RoundProgress, ...]
    pairs: tuple[PairAgreement, ...]
    fleiss_kappa: float | None
    suggestion: Pull
    people: tuple[PersonQuality, ...]
    audit: AuditReport
    asked: AskedCount | None
    """Samples asked, and decisions without asking; None for annotators, who see `spent` only."""

    @property
    def gain(self) -> Gain | None:
        """What cleaning has brought so far."""
        return self.rounds[-1].gain if self.rounds else None

    @property
    def note(self) -> str:
        """What a reader of the metrics should know."""
        return note_on(self.figure("validation"), measured=not self.waits)

    @property
    def waits(self) -> bool:
        """Whether nothing is measured yet, for want of trusted samples."""
        return bool(self.rounds) and not self.rounds[-1].validation

    def figure(self, split: str) -> Figure | None:
        """The target metric of the present model, with its interval."""
        found = self.rounds[-1].figures.get(split) if self.rounds else None
        return None if found is None else found.get(self.metric)


_reports = Shared["ProgressReport"](kept=64)


def state_of(ws: Workspace, campaign: str) -> tuple[Hashable, ...]:
    """What an answer about a campaign is good for: it differs once anything of the campaign has changed."""
    with looking(ws, campaign) as (connection, row):
        newest = (
            vote_table.newest_of_campaign(connection, row.id),
            decision_table.newest_of_campaign(connection, row.id),
            gold_table.newest_of_campaign(connection, row.id),
        )
        last = round_table.last_turn(connection, row.id)
    return str(ws.home), row.public_id, row.version, newest, None if last is None else (last.id, last.state)


def progress(ws: Workspace, campaign: str) -> ProgressReport:
    """The campaign in numbers, from the ledger alone; computed once for all who ask until something changes."""
    return _reports.get((*state_of(ws, campaign), None), lambda: _progress(ws, campaign))


def _progress(ws: Workspace, campaign: str) -> ProgressReport:
    with looking(ws, campaign) as (connection, row):
        rounds = round_table.rounds_of(connection, row.id)
        votes = vote_table.live_votes_of_campaign(connection, row.id)
        decided = decision_table.last_decisions(connection, row.id)
        selections = round_table.selections_of_campaign(connection, row.id)
        places = round_table.places_of_campaign(connection, row.id)
        n_classes = len(campaign_table.classes_of(connection, row.id))
    settings = row.settings
    labels = {(d.item_id, d.attempt): d.label for d in decided.values() if d.kind != DecisionKind.REOPEN}
    people = [vote for vote in votes if vote.person != SUGGESTION]
    batches: dict[int, list[SelectionBrief]] = defaultdict(list)
    for selection in selections:
        if selection.origin != Origin.AHEAD:
            batches[selection.round_id].append(selection)
    seconds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for vote in people:
        if vote.seconds is not None:
            seconds[vote.item_id, vote.attempt].append(vote.seconds)
    return ProgressReport(
        metric=settings.target_metric,
        target=settings.target,
        spent=row.spent,
        budget=settings.budget,
        rounds=tuple(
            _round(turn, before, settings.target_metric, batches[turn.id], labels, seconds)
            for before, turn in _closed(rounds)
        ),
        pairs=pairs_of(people),
        fleiss_kappa=fleiss_of(people),
        suggestion=_pull(pull_of(people, places, audited_places(rounds))[""]),
        people=quality_of(people, labels),
        audit=audit_of(rounds, settings.audit, n_classes),
        asked=asked_of(rounds),
    )


def progress_for(ws: Workspace, campaign: str, person: str) -> ProgressReport:
    """The campaign in numbers for an annotator: closed rounds as they were stored, and counters of their own votes."""
    return _reports.get((*state_of(ws, campaign), person), lambda: _progress_for(ws, campaign, person))


def _progress_for(ws: Workspace, campaign: str, person: str) -> ProgressReport:
    with looking(ws, campaign) as (connection, row):
        rounds = round_table.rounds_of(connection, row.id)
        own: list[Answer] = [
            *vote_table.live_votes_of_person(connection, row.id, person),
            *gold_table.live_answers_of_person(connection, row.id, person),  # to their person they are votes
        ]
        n_classes = len(campaign_table.classes_of(connection, row.id))
    settings = row.settings
    return ProgressReport(
        metric=settings.target_metric,
        target=settings.target,
        spent=row.spent,
        budget=settings.budget,
        rounds=tuple(
            replace(_stored_round(turn, before, settings.target_metric), predicted_change=None, realised_change=None)
            for before, turn in _closed(rounds)
        ),
        pairs=(),
        fleiss_kappa=None,
        suggestion=Pull(0, None, 0, None),
        people=tuple(
            PersonQuality(**common(PersonStats, one), compared=0, quality=None, with_suggestion=None)
            for one in stats_of(own)
        ),
        audit=in_steps(audit_of(rounds, settings.audit, n_classes)),
        asked=None,
    )


def in_steps(audit: AuditReport, step: int = AUDIT_STEP) -> AuditReport:
    """The audit after every `step` items only: no point tells of one item whether it was predicted right."""
    course = tuple(point for point in audit.course if point.items % step == 0)
    if not course or audit.accuracy is None:
        return replace(audit, accuracy=None, course=())
    last = course[-1]
    seen = replace(audit.accuracy, value=last.accuracy, low=last.low, high=last.high, samples=last.items, rarest=0)
    return replace(audit, accuracy=seen, course=course)


def _closed(rounds: Sequence[RoundRow]) -> Iterator[tuple[int, RoundRow]]:
    """The closed rounds, each with the number of samples that were asked before it."""
    before = 0
    for turn in rounds:
        if not turn.is_open and turn.outcome is not None:
            yield before, turn
            before = turn.spent


def _round(
    turn: RoundRow,
    before: int,
    metric: str,
    batch: list[SelectionBrief],
    decided: Labels,
    seconds: Mapping[Any, list[float]],
) -> RoundProgress:
    labels = [decided.get((s.item_id, s.attempt)) for s in batch]
    suggested = [(s.suggested, label) for s, label in zip(batch, labels, strict=True) if s.suggested is not None]
    times = [t for s in batch for t in seconds.get((s.item_id, s.attempt), ())]
    return replace(
        _stored_round(turn, before, metric),
        resolved=sum(label is not None for label in labels),
        suggested=len(suggested),
        followed=sum(said == label for said, label in suggested),
        seconds_per_item=_median(times),
    )


def _stored_round(turn: RoundRow, before: int, metric: str) -> RoundProgress:
    """A round as it was stored when it was closed; `before` samples were asked until then."""
    outcome, gains = turn.outcome or {}, gain_of(turn.outcome)
    return RoundProgress(
        **common(RoundProgress, turn),
        **{name: outcome[name] for name in _STORED},
        **vars(facts_of(turn.outcome)),
        gain=None if gains is None else gains[metric],
        asked=turn.spent - before,
        resolved=None,
        suggested=None,
        followed=None,
        seconds_per_item=None,
    )


def gains_of(outcome: Mapping[str, Any] | None) -> dict[str, dict[str, Gain]]:
    """The gains that were stored with a round, by split ('validation', 'test') and metric.

    Those that earlier versions stored of trusted samples that train are left out (`Session.gains_by_split`).
    """
    stored = {} if outcome is None else outcome["gain"]
    gains = {split: {name: Gain(**values) for name, values in found.items()} for split, found in stored.items()}
    return {split: found for split, found in gains.items() if not any(one.cross_fitted for one in found.values())}


def gain_of(outcome: Mapping[str, Any] | None) -> dict[str, Gain] | None:
    """Those that are shown: of validation samples held out, else of test samples; None where there are neither."""
    found = gains_of(outcome)
    return found.get("validation", found.get("test"))


@dataclass(frozen=True)
class RoundFacts:
    """What else is stored with a round; the fields of `RoundSummary` of the same names."""

    baselines: Mapping[str, Mapping[str, Mapping[str, float]]]
    figures: Mapping[str, Mapping[str, Figure]]
    in_use: InUse | None
    calibration: CalibrationError | None


def facts_of(outcome: Mapping[str, Any] | None) -> RoundFacts:
    """The facts that were stored with a round; nothing for an open one."""
    if outcome is None:
        return RoundFacts({}, {}, None, None)
    figures = {
        split: {name: Figure(**values) for name, values in found.items()} for split, found in outcome["figures"].items()
    }
    choice = None if outcome["choice"] is None else Choice.from_json(outcome["choice"])
    ruling = None if outcome["ruling"] is None else Ruling.from_json(outcome["ruling"])
    calibration = None if outcome["calibration"] is None else CalibrationError(**outcome["calibration"])
    return RoundFacts(outcome["baselines"], figures, InUse.of(choice, ruling), calibration)


def asked_of(rounds: Sequence[RoundRow]) -> AskedCount:
    """How many samples were asked, from the rounds as they are stored."""
    return AskedCount.of([record_from_json(turn.outcome) for turn in rounds if turn.outcome is not None])


def audit_of(rounds: Sequence[RoundRow], share: float, n_classes: int) -> AuditReport:
    """The audit, from the rounds as they are stored."""
    records = [record_from_json(turn.outcome) for turn in rounds if turn.outcome is not None and share]
    return audit_report(records, share, n_classes)


class Answer(Protocol):
    """A vote, or what its person takes for one."""

    @property
    def person(self) -> str:
        """Who gave it."""

    @property
    def label(self) -> int | None:
        """None for ambiguous."""

    @property
    def seconds(self) -> float | None:
        """How long it took."""

    @property
    def created_at(self) -> float:
        """When."""


_Answer = TypeVar("_Answer", bound=Answer)


def stats_of(votes: Sequence[Answer]) -> tuple[PersonStats, ...]:
    """What each person did, by name; the suggestion is not a person."""
    return tuple(_stats(person, own) for person, own in by_person(votes).items())


def quality_of(votes: Sequence[VoteRow], decided: Labels) -> tuple[PersonQuality, ...]:
    """Each person's votes against what was decided."""
    found = []
    for person, own in by_person(votes).items():
        answers = [(vote.label, decided.get((vote.item_id, vote.attempt))) for vote in own]
        same = [said == label for said, label in answers if label is not None]
        quality = sum(same) / len(same) if same else None
        followed = _followed([vote for vote in own if vote.suggested is not None])
        stats = common(PersonStats, _stats(person, own))
        found.append(PersonQuality(**stats, compared=len(same), quality=quality, with_suggestion=followed))
    return tuple(found)


def by_person(votes: Sequence[_Answer]) -> dict[str, list[_Answer]]:
    """Person → their answers, by name; the suggestion is not a person."""
    found: dict[str, list[_Answer]] = defaultdict(list)
    for vote in votes:
        if vote.person != SUGGESTION:
            found[vote.person].append(vote)
    return dict(sorted(found.items()))


def _stats(person: str, own: Sequence[Answer]) -> PersonStats:
    ambiguous, last = sum(vote.label is None for vote in own), max(vote.created_at for vote in own)
    seconds = _median([vote.seconds for vote in own if vote.seconds is not None])
    return PersonStats(person, len(own), ambiguous, seconds, moment(last))


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


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


def pull_of(
    votes: Sequence[VoteRow], places: Sequence[SelectionPlace], audited: set[tuple[int, int]]
) -> dict[str, PullEstimate]:
    """How often people gave the suggested label, seen and unseen: by person, and of all under ''.

    Only items of rounds in which some were drawn to be blind and some were not: these can be compared; where there is no such
    round, all items, and nothing is compared. Without those that were audited, which another draw has chosen (`audited`: round,
    position), and without votes of people who had hidden the suggestion themselves.
    """
    drawn = {
        (p.item_id, p.attempt): p for p in places if p.suggested is not None and (p.round_id, p.position) not in audited
    }
    kinds: dict[int, set[bool]] = defaultdict(set)
    for p in drawn.values():
        kinds[p.round_id].add(p.blind)
    groups: dict[str, tuple[list[Follows], list[Follows]]] = defaultdict(lambda: ([], []))
    least = max((len(both) for both in kinds.values()), default=0)
    for vote in votes:
        place = drawn.get((vote.item_id, vote.attempt))
        if place is None or vote.source != "person" or len(kinds[place.round_id]) < least:
            continue
        if vote.blind and not place.blind:
            continue
        for name in (vote.person, ""):
            groups[name][place.blind].append((place.round_id, vote.item_id, vote.label == place.suggested))
    found: dict[str, PullEstimate] = defaultdict(lambda: pull([], []))
    found.update({name: pull(*both) for name, both in groups.items()})
    return found


def audited_places(rounds: Sequence[RoundRow]) -> set[tuple[int, int]]:
    """(round, position) of what was drawn for the audit."""
    return {
        (turn.id, int(item))
        for turn in rounds
        for item, _ in diagnostics_from_json(SelectionDiagnostics, turn.diagnostics).audited
    }


def _pull(found: PullEstimate) -> Pull:
    told = found.interval if found.told else None
    return Pull(found.shown, found.shown_share, found.blind, found.blind_share, told)


def _followed(votes: Sequence[VoteRow]) -> float | None:
    return sum(v.label == v.suggested for v in votes) / len(votes) if votes else None


def _answers(votes: Sequence[VoteRow]) -> dict[tuple[int, int], dict[str, int]]:
    table: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for vote in votes:
        table[vote.item_id, vote.attempt][vote.person] = -1 if vote.label is None else int(vote.label)
    return table
