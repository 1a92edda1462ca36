"""Quality of people: what the lead sees of each person, and what annotators see of their own closed rounds.

`quality` needs the model, so it is computed when somebody asks, and kept until something changes; its predictions are kept as
long as no round closes. `mine` is made of what was stored when rounds closed: votes as they stood then, what they were decided
to be then, and later decisions of a lead. So nothing that its reader does afterwards changes it, and it tells nothing of
others' votes but the decision. Hidden gold is not in it; the number of answers counts it in, as all numbers do that its reader
sees.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from sqlalchemy import Connection

from labelchef.base.arrays import Float64s
from labelchef.base.campaigns import SUGGESTION, DecisionKind, SplitName
from labelchef.base.errors import LabelchefError
from labelchef.base.records import UNRESOLVED, Answers
from labelchef.judge.accuracy import (
    FEWEST_ANSWERS,
    FEWEST_BLIND,
    FEWEST_GOLD,
    WIDEST,
    WIDEST_PULL,
    Interval,
    PullEstimate,
    Seen,
    estimate,
    exact,
    tells_apart,
)
from labelchef.server.campaigns.access import looking
from labelchef.server.campaigns.progress import Answer, audited_places, by_person, pull_of, state_of
from labelchef.server.labelling import gold as hidden
from labelchef.server.shared import moment
from labelchef.server.sharing import Shared
from labelchef.server.sources.sources import session_after
from labelchef.server.store import (
    account_table,
    campaign_table,
    decision_table,
    duty_table,
    gold_table,
    round_table,
    vote_table,
)
from labelchef.server.store.rows import (
    CampaignRow,
    DecisionRow,
    GoldAnswerOn,
    RoundRow,
    SelectionPlace,
    VoteRow,
    VoteWithKey,
)
from labelchef.server.workspace import Workspace

LONGEST_SECONDS = 600.0
"""Longer times are left out: somebody was away, and the page did not know."""
MOST_LISTED = 200
"""Gold answered wrong, and own votes that were decided differently: the newest ones."""
_reports = Shared["QualityReport"](kept=16)
_predictions = Shared["Predictions"](kept=16)


@dataclass(frozen=True)
class Predictions:
    """What the model predicts of items that were asked, each without itself."""

    rows: Mapping[int, Float64s]
    """Position → (C,)."""
    note: str
    """Why there are none; empty if there are."""


@dataclass(frozen=True)
class Times:
    """Seconds an item."""

    median: float | None
    first: float | None
    """First quartile."""
    third: float | None
    timed: int
    left_out: int
    """Votes without a time, or with more than ten minutes."""


@dataclass(frozen=True)
class PersonReport:
    """What is known of a person."""

    person: str
    member: bool
    votes: int
    ambiguous: int
    gold_answered: int
    gold_right: int
    gold_left: int
    """Trusted samples that they can still get as gold."""
    gold: Interval | None
    """Accuracy on gold alone; None with too few answers."""
    accuracy: Interval | None
    """On the items that were asked, by all that is known; None where `too_few` says why."""
    too_few: str
    compared: int
    """Votes on items that are decided."""
    agreement: float | None
    """Share of them that equal the decision: it takes part in the decision, so it is too high."""
    pull: PullEstimate
    times: Times
    last_at: datetime | None
    confusion: list[list[int]]
    """[decided][answered], by class; the last column is 'ambiguous'."""
    gold_confusion: list[list[int]]
    """The same against the trusted labels."""
    gets: str
    """Their duty, in words."""


@dataclass(frozen=True)
class WrongGold:
    """A wrong answer on gold."""

    item: str
    shown_as: str
    person: str
    answer: str | None
    trusted: str
    note: str | None
    at: datetime


@dataclass(frozen=True)
class DoubtedLabel:
    """A trusted label that several people contradict."""

    item: str
    trusted: str
    answers: list[tuple[str, str | None]]
    """(person, class), None for ambiguous."""


@dataclass(frozen=True)
class QualityReport:
    """People of a campaign."""

    classes: tuple[str, ...]
    people: tuple[PersonReport, ...]
    pull: PullEstimate
    """Of all people together."""
    guessing: float
    """Accuracy of one who guesses."""
    accepting: float | None
    """Accuracy of one who always accepts the suggestion, against the decisions; None without any."""
    wrong: tuple[WrongGold, ...]
    doubted: tuple[DoubtedLabel, ...]
    gold_share: float
    fields: tuple[str, ...]
    """Names of the fields of items, for duties."""
    notes: tuple[str, ...]


def quality(ws: Workspace, campaign: str) -> QualityReport:
    """What is known of the people of a campaign; computed once for all who ask until something changes."""
    return _reports.get((*state_of(ws, campaign), "quality"), lambda: _quality(ws, campaign))


@dataclass(frozen=True)
class _Facts:
    """What the report is made of."""

    row: CampaignRow
    classes: tuple[str, ...]
    rounds: list[RoundRow]
    votes: list[VoteWithKey]
    """Of people."""
    decided: Mapping[int, DecisionRow]
    places: list[SelectionPlace]
    golds: list[GoldAnswerOn]
    audited: set[tuple[int, int]]
    """(round, position)."""

    @property
    def labels(self) -> dict[tuple[int, int], int | None]:
        """(item, attempt) → the label that was decided."""
        return {(d.item_id, d.attempt): d.label for d in self.decided.values() if d.kind != DecisionKind.REOPEN}


def _facts(connection: Connection, row: CampaignRow) -> _Facts:
    rounds = round_table.rounds_of(connection, row.id)
    return _Facts(
        row,
        campaign_table.classes_of(connection, row.id),
        rounds,
        [v for v in vote_table.live_votes_of_campaign(connection, row.id) if v.person != SUGGESTION],
        decision_table.last_decisions(connection, row.id),
        round_table.places_of_campaign(connection, row.id),
        gold_table.live_answers(connection, row.id),
        audited_places(rounds),
    )


def _quality(ws: Workspace, campaign: str) -> QualityReport:
    with looking(ws, campaign) as (connection, row):
        facts = _facts(connection, row)
        members = account_table.member_names(connection, row.id)
        gets = duty_table.duties(connection, row.id)
        names = sorted({*members, *(v.person for v in facts.votes), *(g.person for g in facts.golds)})
        left = {name: hidden.left_for(ws.memory, connection, row, name) for name in names}
        shown = campaign_table.items_at(connection, row.id, SplitName.TRAIN, [0])
        fields = sorted({name for one in shown.values() for name in one.fields or {}})
    predictions = _predicted(ws, facts)
    accuracies = _accuracies(facts, names, predictions)
    pulls = pull_of(facts.votes, facts.places, facts.audited)
    labels, votes, golds = facts.labels, by_person(facts.votes), by_person(facts.golds)
    people = []
    for name in names:
        own, mine = votes.get(name, []), golds.get(name, [])
        told = [(v, labels.get((v.item_id, v.attempt))) for v in own]
        compared = [(v.label, label) for v, label in told if label is not None]
        heard = [g for g in mine if g.label is not None]
        right = sum(g.label == g.truth for g in heard)
        accuracy, why = accuracies[name]
        answers: list[Answer] = [*own, *mine]
        people.append(
            PersonReport(
                person=name,
                member=name in members,
                votes=len(own),
                ambiguous=sum(v.label is None for v in own),
                gold_answered=len(heard),
                gold_right=right,
                gold_left=left[name],
                gold=exact(right, len(heard)) if len(heard) >= FEWEST_GOLD else None,
                accuracy=accuracy,
                too_few=why,
                compared=len(compared),
                agreement=sum(a == b for a, b in compared) / len(compared) if compared else None,
                pull=pulls[name],
                times=times_of(answers),
                last_at=moment(max(one.created_at for one in answers)) if answers else None,
                confusion=_confusion(((label, said) for said, label in compared), len(facts.classes)),
                gold_confusion=_confusion(((g.truth, g.label) for g in mine), len(facts.classes)),
                gets=str(gets[name]) if name in gets else "",
            )
        )
    suggested = [(p.suggested, labels.get((p.item_id, p.attempt))) for p in facts.places if p.suggested is not None]
    compared_all = [a == b for a, b in suggested if b is not None]
    return QualityReport(
        classes=facts.classes,
        people=tuple(people),
        pull=pulls[""],
        guessing=1.0 / len(facts.classes),
        accepting=sum(compared_all) / len(compared_all) if compared_all else None,
        wrong=_wrong(facts),
        doubted=_doubted(facts),
        gold_share=row.settings.gold_share,
        fields=tuple(fields),
        notes=tuple(_notes(facts, people, predictions)),
    )


def _notes(facts: _Facts, people: Sequence[PersonReport], predictions: Predictions) -> list[str]:
    notes = [predictions.note] if predictions.note else []
    out = [one.person for one in people if one.gold_left == 0 and one.votes]
    if facts.row.settings.gold_share and out:
        notes.append(
            f"There is no trusted sample left as gold for {', '.join(out)}: half of them serve, and everybody gets each once."
        )
    return notes


def _confusion(pairs: Iterable[tuple[int | None, int | None]], n: int) -> list[list[int]]:
    found = [[0] * (n + 1) for _ in range(n)]
    for truth, said in pairs:
        if truth is not None:
            found[truth][n if said is None else said] += 1
    return found


def times_of(answers: Sequence[Answer]) -> Times:
    """Median and quartiles of the seconds an item took.

    >>> times_of([])
    Times(median=None, first=None, third=None, timed=0, left_out=0)
    """
    kept = [one.seconds for one in answers if one.seconds is not None and one.seconds <= LONGEST_SECONDS]
    if not kept:
        return Times(None, None, None, 0, len(answers))
    first, third = (
        (kept[0], kept[0]) if len(kept) < 2 else tuple(statistics.quantiles(kept, n=4, method="inclusive")[::2])
    )
    return Times(statistics.median(kept), first, third, len(kept), len(answers) - len(kept))


def _predicted(ws: Workspace, facts: _Facts) -> Predictions:
    """What the model after the last closed round predicts of all items that were asked."""
    closed = [one for one in facts.rounds if not one.is_open]
    if not closed or not facts.places:
        return Predictions({}, "There is no model yet, or nothing was asked; estimates do without it.")
    last = facts.rounds[-1]
    key = (str(ws.home), facts.row.public_id, closed[-1].id, closed[-1].labels_hash, last.id)

    def compute() -> Predictions:
        positions = np.unique(np.array([one.position for one in facts.places], dtype=np.int64))
        try:
            P = session_after(ws, facts.row, len(closed)).held_out(positions)
        except LabelchefError as error:
            return Predictions({}, f"The model could not be used, and estimates do without it: {error}")
        if P is None:
            return Predictions({}, "Trusted samples only steer, so no model judges answers; estimates do without it.")
        return Predictions(dict(zip(positions.tolist(), P, strict=True)), "")

    return _predictions.get(key, compute)


def _accuracies(
    facts: _Facts, names: Sequence[str], predictions: Predictions
) -> dict[str, tuple[Interval | None, str]]:
    """Of each person, the estimate or why there is none."""
    at = {name: k for k, name in enumerate(names)}
    C, W = len(facts.classes), len(names)
    position = {(p.item_id, p.attempt): (p.round_id, p.position) for p in facts.places}
    heard = [v for v in facts.votes if v.label is not None and (v.item_id, v.attempt) in position]
    asked = list(dict.fromkeys((v.item_id, v.attempt) for v in heard))
    place = {key: k for k, key in enumerate(asked)}
    known = np.full(len(asked), UNRESOLVED)
    for made in facts.decided.values():
        k = place.get((made.item_id, made.attempt))
        if k is not None and made.kind == DecisionKind.LEAD and made.label is not None:
            known[k] = made.label
    flat = np.full(C, 1.0 / C)
    right, wrong = np.zeros(W, dtype=np.int64), np.zeros(W, dtype=np.int64)
    for one in facts.golds:
        if one.label is not None:
            (right if one.label == one.truth else wrong)[at[one.person]] += 1
    said = Answers(
        samples=np.array([position[key][1] for key in asked], dtype=np.int64),
        known=known,
        drawn=np.array([position[key] in facts.audited for key in asked], dtype=bool),
        names=tuple(names),
        place=np.array([place[v.item_id, v.attempt] for v in heard], dtype=np.int64),
        person=np.array([at[v.person] for v in heard], dtype=np.int64),
        label=np.array([v.label for v in heard], dtype=np.int64),
    )
    predicted = np.array([predictions.rows.get(row, flat) for row in said.samples.tolist()]).reshape(-1, C)
    seen = Seen(said, predicted, right, wrong)
    answers = np.bincount(said.person, minlength=W) + right + wrong
    enough = [name for name in names if answers[at[name]] >= FEWEST_ANSWERS]
    apart = tells_apart(seen)
    found = estimate(seen, facts.row.settings.seed) if enough and apart else []
    told: dict[str, tuple[Interval | None, str]] = {}
    for name in names:
        if name not in enough:
            told[name] = (None, f"too few: {answers[at[name]]} of {FEWEST_ANSWERS} answers")
        elif not apart:
            told[name] = (None, "nothing tells people apart yet: gold, decisions of a lead or a third person would")
        elif found[at[name]].width > WIDEST:
            told[name] = (None, f"too few: the interval is {100 * found[at[name]].width:.0f} points wide")
        else:
            told[name] = (found[at[name]], "")
    return told


def _wrong(facts: _Facts) -> tuple[WrongGold, ...]:
    found = [g for g in facts.golds if g.truth is not None and g.label is not None and g.label != g.truth]
    return tuple(
        WrongGold(
            g.key,
            g.cover_key,
            g.person,
            None if g.label is None else facts.classes[g.label],
            facts.classes[g.truth or 0],
            g.note,
            moment(g.created_at),
        )
        for g in found[::-1][:MOST_LISTED]
    )


def _doubted(facts: _Facts) -> tuple[DoubtedLabel, ...]:
    """Where at least two people, and more than half of those who answered, say something else."""
    by_item: dict[int, list[GoldAnswerOn]] = defaultdict(list)
    for one in facts.golds:
        by_item[one.item_id].append(one)
    found = []
    for given in by_item.values():
        against = sum(one.label is not None and one.label != one.truth for one in given)
        if against >= 2 and 2 * against > len(given):
            said = [(one.person, None if one.label is None else facts.classes[one.label]) for one in given]
            found.append(DoubtedLabel(given[0].key, facts.classes[given[0].truth or 0], said))
    return tuple(sorted(found, key=lambda one: -len(one.answers)))


@dataclass(frozen=True)
class OwnRound:
    """A closed round, as one annotator sees it."""

    number: int
    answers: int
    ambiguous: int
    times: Times
    agreement: float | None
    """Share of the own votes that equal the decision, of those on decided items."""


@dataclass(frozen=True)
class OwnDifference:
    """An own vote that was decided differently."""

    round: int
    item: str
    answer: str | None
    decided: str
    by_lead: bool


@dataclass(frozen=True)
class OwnWork:
    """What an annotator sees of their own closed rounds."""

    rounds: tuple[OwnRound, ...]
    """Newest first."""
    answers: int
    times: Times
    agreement: float | None
    different: tuple[OwnDifference, ...]


def mine(ws: Workspace, campaign: str, person: str) -> OwnWork:
    """The closed rounds of a person, as they stood when they closed, and what a lead decided later."""
    with looking(ws, campaign, person) as (connection, row):
        classes = campaign_table.classes_of(connection, row.id)
        closed = {one.id: one for one in round_table.rounds_of(connection, row.id) if one.closed_at is not None}
        until = max((one.closed_at or 0.0 for one in closed.values()), default=0.0)
        votes = [v for v in vote_table.all_votes(connection, row.id) if v.person == person and v.round_id in closed]
        made = decision_table.decisions(connection, row.id)
        golds = [g for g in gold_table.live_answers(connection, row.id) if g.person == person and g.round_id in closed]
    last: dict[tuple[int, int], VoteRow] = {}
    for vote in votes:
        assert vote.round_id is not None
        if vote.created_at <= (closed[vote.round_id].closed_at or 0.0):
            last[vote.item_id, vote.attempt] = vote
    keys = {vote.item_id: vote.key for vote in votes}
    decided: dict[tuple[int, int], DecisionRow] = {}
    for one in made:
        turn = closed.get(one.round_id or 0)
        in_time = turn is not None and one.created_at <= (turn.closed_at or 0.0)
        if (one.kind == DecisionKind.VOTES and in_time) or (one.kind == DecisionKind.LEAD and one.created_at <= until):
            decided[one.item_id, one.attempt] = one
    rounds, different, same_all = [], [], list[bool]()
    for turn in sorted(closed.values(), key=lambda one: -one.number):
        own = [v for v in last.values() if v.round_id == turn.id and not v.retracted]
        hidden_ones = [g for g in golds if g.round_id == turn.id]
        if not own and not hidden_ones:
            continue
        same = list[bool]()
        for cast in own:
            found = decided.get((cast.item_id, cast.attempt))
            if found is None or found.label is None:
                continue
            same.append(found.label == cast.label)
            if found.label != cast.label:
                answer = None if cast.label is None else classes[cast.label]
                different.append(
                    OwnDifference(
                        turn.number, keys[cast.item_id], answer, classes[found.label], found.kind == DecisionKind.LEAD
                    )
                )
        answers: list[Answer] = [*own, *hidden_ones]
        ambiguous = sum(one.label is None for one in answers)
        share = sum(same) / len(same) if same else None
        rounds.append(OwnRound(turn.number, len(answers), ambiguous, times_of(answers), share))
        same_all += same
    everything: list[Answer] = [*(v for v in last.values() if not v.retracted), *golds]
    return OwnWork(
        tuple(rounds),
        sum(one.answers for one in rounds),
        times_of(everything),
        sum(same_all) / len(same_all) if same_all else None,
        tuple(different[:MOST_LISTED]),
    )


ABOUT = {
    "answers": FEWEST_ANSWERS,
    "width": WIDEST,
    "gold": FEWEST_GOLD,
    "blind": FEWEST_BLIND,
    "pull_width": WIDEST_PULL,
    "seconds": LONGEST_SECONDS,
}
"""Limits below which the page says "too few"."""
