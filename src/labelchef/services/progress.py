"""How a campaign goes: metrics, predictions and what came of them, agreement, people, a map of the items.

Agreement of two people is the share of items both voted on that got the same answer; κ (Cohen's for two, Fleiss' for
several) sets it against chance. 'Ambiguous' is an answer like any other.
"""

import statistics
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.campaigns import SUGGESTION, DecisionKind, Origin, RoundKind, SplitName
from labelchef.domain.validation import Gain, note_on
from labelchef.services.campaigns import gain_of
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, decision_table, item_table, round_table, selection_table, vote_table
from labelchef.store.arrays import read_array, write_array
from labelchef.store.rows import CampaignRow, DecisionRow, RoundRow, SelectionBrief, VoteRow

_MAP_ROWS = 1500
_SPLITS = (SplitName.TRAIN, SplitName.VALIDATION)
_mapping = threading.Lock()


@dataclass(frozen=True)
class RoundProgress:
    """A closed round in numbers."""

    number: int
    kind: RoundKind
    spent: int
    validation: dict[str, float]
    """On the samples that judge; on those that steer where none judges."""
    steering: dict[str, float]
    gain: Gain | None
    """Of the target metric, this model against the first one; None where nothing judges."""
    test: dict[str, float] | None
    predicted_change: float | None
    """Of the loss on the samples that steer: what the suggestions that people followed were predicted to bring; None where
    nothing was predicted."""
    realised_change: float | None
    asked: int
    resolved: int
    suggested: int
    """Items that had a suggestion."""
    followed: int
    """Items decided as suggested."""
    seconds_per_item: float | None
    """Median over the votes of people."""


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

    @property
    def gain(self) -> Gain | None:
        """What cleaning has brought so far."""
        return self.rounds[-1].gain if self.rounds else None

    @property
    def note(self) -> str:
        """What a reader of the metrics should know."""
        return note_on(self.gain)


@dataclass(frozen=True)
class MapPoint:
    """An item on the map."""

    item: str
    split: SplitName
    x: float
    y: float
    state: str
    """'weak', 'cleaned', 'selected' (in the open batch) or 'validation'."""
    label: str


def progress(ws: Workspace, campaign: str) -> ProgressReport:
    """The campaign in numbers, from the ledger alone."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        rounds = round_table.rounds_of(connection, row.id)
        votes = vote_table.live_votes_of_campaign(connection, row.id)
        decided = decision_table.last_decisions(connection, row.id)
        selections = selection_table.selections_of_campaign(connection, row.id)
    settings = row.settings
    people = [vote for vote in votes if vote.person != SUGGESTION]
    return ProgressReport(
        metric=settings.target_metric,
        target=settings.target,
        spent=row.spent,
        budget=settings.budget,
        rounds=tuple(_rounds(rounds, selections, decided, people, row.n_items, settings.target_metric)),
        pairs=tuple(_pairs(people)),
        fleiss_kappa=_fleiss(people),
        suggestion=_pull(people),
        people=tuple(_quality(people, decided)),
    )


def _rounds(
    rounds: Sequence[RoundRow],
    selections: Sequence[SelectionBrief],
    decided: Mapping[int, DecisionRow],
    votes: Sequence[VoteRow],
    n_items: int,
    metric: str,
) -> list[RoundProgress]:
    by_round: dict[int, list[SelectionBrief]] = defaultdict(list)
    for selection in selections:
        if selection.origin != Origin.AHEAD:
            by_round[selection.round_id].append(selection)
    seconds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for vote in votes:
        if vote.seconds is not None:
            seconds[vote.item_id, vote.attempt].append(vote.seconds)
    found: list[RoundProgress] = []
    before: float | None = None
    for turn in rounds:
        if turn.is_open or turn.metrics is None:
            continue
        batch = by_round[turn.id]
        labels = {s.item_id: _label_of(decided, s) for s in batch}
        followed = [s for s in batch if s.suggested is not None and labels[s.item_id] == s.suggested]
        steering = turn.metrics["steering"]
        loss, gains = float(steering["loss"]), gain_of(turn.metrics)
        times = [t for s in batch for t in seconds[s.item_id, s.attempt]]
        predicted = sum(s.influence for s in followed if s.influence is not None) / n_items
        found.append(
            RoundProgress(
                number=turn.number,
                kind=turn.kind,
                spent=turn.spent,
                validation=turn.metrics["validation"],
                steering=steering,
                gain=None if gains is None else gains[metric],
                test=turn.metrics.get("test"),
                predicted_change=predicted if any(s.influence is not None for s in batch) else None,
                realised_change=None if before is None else loss - before,
                asked=len(batch),
                resolved=sum(label is not None for label in labels.values()),
                suggested=sum(s.suggested is not None for s in batch),
                followed=len(followed),
                seconds_per_item=statistics.median(times) if times else None,
            )
        )
        before = loss
    return found


def _label_of(decided: Mapping[int, DecisionRow], selection: SelectionBrief) -> int | None:
    """The decision on a selection's attempt; None if there is none, or a later attempt took its place."""
    decision = decided.get(selection.item_id)
    fits = decision is not None and decision.attempt == selection.attempt and decision.kind != DecisionKind.REOPEN
    return decision.label if decision is not None and fits else None


def _answers(votes: Sequence[VoteRow]) -> dict[tuple[int, int], dict[str, int]]:
    table: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for vote in votes:
        table[vote.item_id, vote.attempt][vote.person] = -1 if vote.label is None else int(vote.label)
    return table


def _pairs(votes: Sequence[VoteRow]) -> list[PairAgreement]:
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


def _fleiss(votes: Sequence[VoteRow]) -> float | None:
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


def _pull(votes: Sequence[VoteRow]) -> Pull:
    seen = [v for v in votes if v.suggested is not None and v.source == "person"]
    shown, blind = [v for v in seen if not v.blind], [v for v in seen if v.blind]
    return Pull(len(shown), _share_followed(shown), len(blind), _share_followed(blind))


def _share_followed(votes: Sequence[VoteRow]) -> float | None:
    return sum(v.label == v.suggested for v in votes) / len(votes) if votes else None


def _quality(votes: Sequence[VoteRow], decided: Mapping[int, DecisionRow]) -> list[PersonQuality]:
    by_person: dict[str, list[VoteRow]] = defaultdict(list)
    for vote in votes:
        by_person[vote.person].append(vote)
    found = []
    for person, own in sorted(by_person.items()):
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
                with_suggestion=_share_followed(with_suggestion),
            )
        )
    return found


def map2d(ws: Workspace, campaign: str, *, compute: bool = True) -> list[MapPoint] | None:
    """The items in two dimensions: t-SNE of a sample of training and validation rows.

    The places are computed once and kept as a file; without `compute`, None if they are not there yet.
    """
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        known = campaign_table.arrays_of(connection, row.id).get("map")
    if known is None:
        if not compute:
            return None
        with _mapping:
            places = _places(ws, row)
    else:
        places = np.asarray(read_array(ws.folder_of(row), known))
    return _points(ws, row, places)


def _places(ws: Workspace, campaign: CampaignRow) -> Float64s:
    """(rows, 4): 0 for training or 1 for validation, position, x, y; computed by the first who asks."""
    folder = ws.folder_of(campaign)
    with ws.reading() as connection:
        arrays = campaign_table.arrays_of(connection, campaign.id)
    if "map" in arrays:
        return np.asarray(read_array(folder, arrays["map"]))
    X, X_val = read_array(folder, arrays["features"]), read_array(folder, arrays["val_features"])
    seed = campaign.settings.seed
    rng = np.random.default_rng([seed, 2])
    n_val = min(len(X_val), _MAP_ROWS // 4)
    train = _sample(rng, len(X), _MAP_ROWS - n_val)
    val = _sample(rng, len(X_val), n_val)
    places = np.column_stack(
        [
            np.repeat([0.0, 1.0], [len(train), len(val)]),
            np.concatenate([train, val]),
            _embedded(np.concatenate([X[train], X_val[val]]).astype(np.float64), seed),
        ]
    )
    facts = write_array(folder, "map", places)
    with ws.writing() as connection:
        campaign_table.put_array(connection, campaign.id, facts)
    return places


def _sample(rng: np.random.Generator, n: int, most: int) -> Ints:
    return np.sort(rng.permutation(n)[:most]).astype(np.int64)


def _embedded(X: Float64s, seed: int) -> Float64s:
    """PCA to at most 50 columns, then t-SNE; a handful of rows by PCA alone."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    spread = X - X.mean(axis=0)
    width = min(50, *X.shape)
    if width > 1:
        spread = PCA(width, random_state=seed).fit_transform(spread)
    if len(X) < 12 or width == 1:
        flat = np.zeros((len(X), 2))
        flat[:, : min(2, spread.shape[1])] = spread[:, :2]
        return flat
    perplexity = min(30.0, (len(X) - 1) / 4)
    with threadpool_limits(1):  # its threads would spin against those that serve and select
        tsne = TSNE(2, perplexity=perplexity, init="pca", max_iter=500, random_state=seed)
        return np.asarray(tsne.fit_transform(spread), np.float64)


def _points(ws: Workspace, campaign: CampaignRow, places: Float64s) -> list[MapPoint]:
    with ws.reading() as connection:
        classes = campaign_table.classes_of(connection, campaign.id)
        decided = decision_table.last_decisions(connection, campaign.id)
        turn = round_table.last_round(connection, campaign.id)
        opened = set()
        if turn is not None and turn.is_open:
            opened = {s.item_id for s in selection_table.batch_of(connection, turn.id)}
        positions = {split: places[places[:, 0] == k, 1].astype(int).tolist() for k, split in enumerate(_SPLITS)}
        items = {split: item_table.items_at(connection, campaign.id, split, at) for split, at in positions.items()}
        weak_facts = campaign_table.arrays_of(connection, campaign.id)["weak"]
    weak = read_array(ws.folder_of(campaign), weak_facts)
    points = []
    for kind, position, x, y in places.tolist():
        split = _SPLITS[int(kind)]
        item = items[split][int(position)]
        decision = decided.get(item.id)
        label, state = item.label, "validation" if kind else "cleaned"
        if not kind and decision is not None and decision.kind != DecisionKind.REOPEN:
            label = decision.label
        if label is None:
            label, state = int(np.argmax(weak[int(position)])), "weak"
        if item.id in opened:
            state = "selected"
        points.append(MapPoint(item.key, split, x, y, state, classes[label]))
    return points
