"""The trained state of a campaign, folded from its ledger.

fit; then for every closed round in order: query as it was queried, compare the selection, apply what it applied,
compare the labels. Nothing of the state is a fact: it is rebuilt whenever a process starts.
"""

import hashlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from labelchef.campaign.holdout import draw_judges
from labelchef.cleaner import LabelCleaner
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.campaigns import DecisionKind, Origin, RoundKind, RoundState, SplitName
from labelchef.domain.errors import ConflictError, JudgeWarning, LabelchefError, MissingClassWarning
from labelchef.domain.records import UNRESOLVED, Batch, Decisions, RoundRecord, Votes
from labelchef.domain.settings import Settings
from labelchef.selectors import Selector
from labelchef.services.folders import require_folder
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, decision_table, item_table, round_table, selection_table, vote_table
from labelchef.store.arrays import read_array
from labelchef.store.rows import CampaignRow, DecisionWithPosition, RoundRow

if TYPE_CHECKING:
    import sqlalchemy as sa

VOTES_UP_TO = "votes_up_to"
"""Of a closed round, the newest vote that its record may hold."""

_quiet = threading.Lock()
_TOLERANCE = 1e-6


class HistoryMismatchError(LabelchefError):
    """What was computed again is not what the ledger says was computed then."""


@dataclass
class Folded:
    """A cleaner that stands where the ledger stands after `closed` rounds, `queried` if the open round's batch is out."""

    cleaner: LabelCleaner
    X: Float64s
    X_val: Float64s
    weak: Float64s
    steering: Ints
    """Positions of the validation rows that the selection sees."""
    closed: int = 0
    queried: bool = False
    last_labels: str = ""
    _normed_val: Float64s | None = field(default=None, repr=False)

    def neighbours(self, positions: Ints, count: int = 5) -> list[list[tuple[int, float]]]:
        """The nearest validation rows that steer, of each training row, by cosine: (position, similarity).

        Those that judge are not shown: who sees their labels would carry them into the training set.
        """
        if self._normed_val is None:
            self._normed_val = _normed(self.X_val[self.steering])
        near: list[list[tuple[int, float]]] = []
        similarity = _normed(np.asarray(self.X[positions])) @ self._normed_val.T
        for row in similarity:
            best = np.argsort(-row, kind="stable")[:count]
            near.append([(int(self.steering[k]), round(float(row[k]), 4)) for k in best])
        return near


@dataclass(frozen=True)
class Selected:
    """The items of a round: the batch in its order, then the work ahead."""

    batch: Batch
    ahead: Batch
    n_reopened: int
    seconds: float

    @property
    def hash(self) -> str:
        """SHA-256 of positions and suggestions."""
        parts = (self.batch.indices, self.batch.suggested, self.ahead.indices, self.ahead.suggested)
        digest = hashlib.sha256()
        for part in parts:
            digest.update(np.asarray(part, dtype="<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class PastRound:
    """A closed round as the ledger has it."""

    row: RoundRow
    reopened: Ints
    selected: Ints
    decisions: Decisions
    votes: Votes
    corrections: int


@dataclass(frozen=True)
class Inputs:
    """A campaign's data as `LabelCleaner.fit` takes them."""

    X: Float64s
    weak: Float64s
    X_val: Float64s
    y_val: list[str | None]
    X_test: Float64s | None
    y_test: list[str | None] | None
    y_clean: list[str | None] | None
    classes: tuple[str, ...]


def fit(ws: Workspace, campaign: CampaignRow, on_step: Callable[[int, float, float], None] | None = None) -> Folded:
    """The first model, from the campaign's arrays."""
    inputs = inputs_of(ws, campaign)
    cleaner = new_cleaner(campaign.settings)
    fit_on(inputs, cleaner, on_step=on_step)
    return Folded(cleaner, inputs.X, inputs.X_val, inputs.weak, _steering(inputs, campaign.settings))


def _steering(inputs: Inputs, settings: Settings) -> Ints:
    place = {name: k for k, name in enumerate(inputs.classes)}
    y = np.array([place[label] for label in inputs.y_val if label is not None], dtype=np.int64)
    return np.flatnonzero(~draw_judges(y, len(inputs.classes), settings.holdout, settings.seed))


def inputs_of(ws: Workspace, campaign: CampaignRow) -> Inputs:
    """A campaign's arrays and trusted labels."""
    with ws.reading() as connection:
        arrays = campaign_table.arrays_of(connection, campaign.id)
        classes = campaign_table.classes_of(connection, campaign.id)
        given = {s: item_table.labels_of_split(connection, campaign.id, s) for s in SplitName}
    folder = require_folder(ws, campaign)
    data = {name: read_array(folder, arrays[name]) for name in _data_arrays(arrays)}
    train = given[SplitName.TRAIN]
    known = any(label is not None for label in train)
    has_test = "test_features" in data
    return Inputs(
        X=data["features"],
        weak=data["weak"],
        X_val=data["val_features"],
        y_val=_names(given[SplitName.VALIDATION], classes),
        X_test=data["test_features"] if has_test else None,
        y_test=_names(given[SplitName.TEST], classes) if has_test else None,
        y_clean=_names(train, classes) if known else None,
        classes=classes,
    )


def fit_on(
    inputs: Inputs,
    cleaner: LabelCleaner,
    *,
    askable: Bools | None = None,
    on_step: Callable[[int, float, float], None] | None = None,
) -> None:
    """Train a cleaner's first model; `askable` says who may be asked, all of them if left out."""
    with _quiet, warnings.catch_warnings():
        for said in (MissingClassWarning, JudgeWarning):  # once, when the campaign was made
            warnings.simplefilter("ignore", said)
        cleaner.fit(
            inputs.X,
            inputs.weak,
            X_val=inputs.X_val,
            y_val=inputs.y_val,
            X_test=inputs.X_test,
            y_test=inputs.y_test,
            y_clean=inputs.y_clean,
            askable=askable,
            classes=inputs.classes,
            on_step=on_step,
        )


def new_cleaner(settings: Settings, selector: str | Selector | None = None) -> LabelCleaner:
    """A cleaner with a campaign's settings, or another selector; budget and batches are the service's business."""
    return LabelCleaner(
        selector=settings.selector if selector is None else selector,
        look_ahead=settings.look_ahead,
        constructor=settings.constructor,
        gamma=settings.gamma,
        l2=settings.l2,
        holdout=settings.holdout,
        budget=None,
        batch_size=settings.batch_size,
        target=settings.target,
        target_metric=settings.target_metric,
        random_state=settings.seed,
    )


def select(folded: Folded, size: int, ahead: int, reopened: Ints) -> Selected:
    """The next batch: what a lead took back first, then the selector's choice, then the work ahead.

    Always the same questions in the same order: what solvers learn from one they carry to the next.
    """
    began = time.perf_counter()
    cleaner = folded.cleaner
    first = cleaner.suggest(reopened) if cleaner.suggests_ else _plain(reopened)
    chosen = cleaner.query(size)
    fresh = _without(chosen, set(reopened.tolist()))
    batch = _joined(first, _head(fresh, max(0, size - len(first))))
    more = Batch(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    if ahead:
        more = _head(_without(cleaner.query(size + ahead), set(batch.indices.tolist())), ahead)
    folded.queried = True
    return Selected(batch, more, len(first), time.perf_counter() - began)


def decide(folded: Folded, batch: Batch, votes: Votes, decisions: Decisions, seconds: dict[str, float]) -> RoundRecord:
    """Carry decisions into the model; the votes they rest on are there for selectors that learn from them."""
    folded.cleaner.replay(batch, votes, decisions, seconds)
    folded.queried = False
    folded.closed += 1
    return folded.cleaner.rounds_[-1]


@dataclass(frozen=True)
class Step:
    """A round run again: what came out now, beside `row`, what the ledger says came out then."""

    row: RoundRow
    past: PastRound | None
    folded: Folded
    selection: str | None
    """Hash of the selection made again; None for a round without one."""
    labels: str | None
    """Hash of the labels after it; None while the round is open."""
    record: RoundRecord | None


def unfold(ws: Workspace, campaign: CampaignRow) -> Iterator[Step]:
    """Run the whole ledger again, round by round, the open one last."""
    folded = fit(ws, campaign)
    with ws.reading() as connection:
        rounds = round_table.rounds_of(connection, campaign.id)
    folded.closed, folded.last_labels = 1, labels_hash(folded.cleaner)
    if rounds:
        yield Step(rounds[0], None, folded, None, folded.last_labels, folded.cleaner.rounds_[-1])
    for row in rounds[1:]:
        with ws.reading() as connection:
            past = past_round(connection, row)
        found = None
        batch = Batch(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        if row.kind == RoundKind.BATCH:
            selected = select(folded, row.size, row.ahead, past.reopened)
            batch, found = selected.batch, selected.hash
        if row.state != RoundState.CLOSED:
            yield Step(row, past, folded, found, None, None)
            return
        record = decide(folded, batch_of(batch, past.decisions), past.votes, past.decisions, {})
        folded.last_labels = labels_hash(folded.cleaner)
        yield Step(row, past, folded, found, folded.last_labels, record)


def rebuild(ws: Workspace, campaign: CampaignRow) -> Folded:
    """The state after the whole ledger; a round that does not come out as it did is refused."""
    folded = None
    for step in unfold(ws, campaign):
        folded = step.folded
        if step.selection is not None:
            check(step.row, "selection", step.selection, step.row.selection_hash)
        if step.labels is not None:
            check(step.row, "labels", step.labels, step.row.labels_hash)
    if folded is None:
        raise ConflictError("the campaign has no model yet; wait until it is trained", code="preparing")
    return folded


def current(ws: Workspace, campaign: CampaignRow) -> Folded:
    """The state that belongs to the ledger as it stands, from the cache if that still fits."""
    folded = ws.folded.get(campaign.id)
    with ws.reading() as connection:
        rounds = round_table.rounds_of(connection, campaign.id)
    closed = [r for r in rounds if r.state == RoundState.CLOSED]
    open_batch = len(rounds) > len(closed)
    fits = (
        folded is not None
        and folded.closed == len(closed)
        and folded.queried == open_batch
        and (not closed or folded.last_labels == closed[-1].labels_hash)
    )
    if folded is None or not fits:
        ws.folded.pop(campaign.id, None)
        folded = rebuild(ws, campaign)
        ws.folded[campaign.id] = folded
    return folded


def past_round(connection: "sa.Connection", row: RoundRow) -> PastRound:
    """A round with what it selected and applied."""
    selections = selection_table.selections_of(connection, row.id)
    batch = [s for s in selections if s.origin != Origin.AHEAD]
    reopened = np.array([s.position for s in batch if s.origin == Origin.REOPENED], dtype=np.int64)
    positions = np.array([s.position for s in batch], dtype=np.int64)
    applied = decision_table.decisions_applied(connection, row.id)
    decisions, corrections = merged(positions, applied)
    votes = votes_behind(connection, applied, row.diagnostics.get(VOTES_UP_TO, 0))
    return PastRound(row, reopened, positions, decisions, votes, corrections)


def votes_behind(connection: "sa.Connection", rows: Sequence[DecisionWithPosition], upto: int) -> Votes:
    """The votes that the last decision on each item rests on, as they stood when `upto` was the newest vote.

    A lead who decides says so as a voter does; a decision taken back rests on nothing. A vote may change after its round:
    what a selector saw then must be what it sees when the ledger is run again.
    """
    last = {row.item_id: row for row in rows}
    standing = [row for row in last.values() if row.kind != DecisionKind.REOPEN]
    found = vote_table.votes_behind(connection, standing, upto)
    ballots: list[tuple[str, object, object]] = []
    for row in sorted(standing, key=lambda row: row.position):
        said = [(vote.person, vote.label) for vote in found.get(row.item_id, [])]
        said += [(row.by, row.label)] if row.kind == DecisionKind.LEAD else []
        ballots += [(who, [row.position], [UNRESOLVED if label is None else label]) for who, label in said]
    return Votes.of(ballots)


def merged(batch: Ints, rows: Sequence[DecisionWithPosition]) -> tuple[Decisions, int]:
    """One decision an item: those of the batch in its order, then corrections as they came; the last one counts."""
    last: dict[int, DecisionWithPosition] = {}
    for row in rows:
        last.pop(row.position, None)
        last[row.position] = row
    inside = [p for p in batch.tolist() if p in last]
    order = inside + [p for p in last if p not in set(inside)]
    labels = [UNRESOLVED if (label := last[p].label) is None else label for p in order]
    support = [float(last[p].support) for p in order]
    made = Decisions(np.array(order, dtype=np.int64), np.array(labels, dtype=np.int64), np.array(support))
    return made, len(order) - len(inside)


def batch_of(batch: Batch, decisions: Decisions) -> Batch:
    """The batch as a round's record wants it: an entry for each decision; corrections have no suggestion."""
    at = {p: k for k, p in enumerate(batch.indices.tolist())}
    places = [at.get(p, -1) for p in decisions.items.tolist()]
    suggested = np.array([batch.suggested[k] if k >= 0 else UNRESOLVED for k in places], dtype=np.int64)
    influence = np.array([batch.influence[k] if k >= 0 else np.nan for k in places], dtype=np.float64)
    return Batch(decisions.items, suggested, influence, batch.diagnostics)


def labels_hash(cleaner: LabelCleaner) -> str:
    """SHA-256 of the label table and of what is clean."""
    digest = hashlib.sha256(np.ascontiguousarray(cleaner.labels_, dtype="<f8").tobytes())
    digest.update(np.ascontiguousarray(cleaner.cleaned_).tobytes())
    return digest.hexdigest()


def model_hash(cleaner: LabelCleaner) -> str:
    """SHA-256 of the parameters."""
    return hashlib.sha256(np.ascontiguousarray(cleaner.W_, dtype="<f8").tobytes()).hexdigest()


def metrics_of(record: RoundRecord) -> dict[str, Any]:
    """Metrics as they are stored."""
    return {
        "validation": record.validation.as_dict(),
        "steering": record.steering.as_dict(),
        "test": None if record.test is None else record.test.as_dict(),
    }


def gains_of(cleaner: LabelCleaner) -> dict[str, Any] | None:
    """Gains as they are stored with a round: a few numbers, computed from the first model and the present one."""
    found = cleaner.gains()
    return None if found is None else {name: gain.as_dict() for name, gain in found.items()}


def same_metrics(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether metrics agree to six digits: sums in another order may differ in the last bits."""
    for split in ("validation", "steering", "test"):
        a, b = ours.get(split), theirs.get(split)
        if (a is None) != (b is None):
            return False
        if a is not None and b is not None:
            same = a.keys() == b.keys() and all(abs(a[k] - b[k]) <= _TOLERANCE * (1 + abs(b[k])) for k in a)
            if not same:
                return False
    return True


def check(row: RoundRow, what: str, found: str, stored: str | None) -> None:
    """Refuse to go on from a history that cannot be repeated."""
    if found != stored:
        raise HistoryMismatchError(
            f"round {row.number}: the {what} computed again ({found[:12]}…) differ from the ledger "
            f"({(stored or 'none')[:12]}…). The data, the version of labelchef or a library may differ from before; "
            "go on with what the campaign was run with. Nothing was overwritten",
            code="history",
        )


def _data_arrays(arrays: Mapping[str, object]) -> list[str]:
    return [name for name in ("features", "weak", "val_features", "test_features") if name in arrays]


def _names(labels: list[int | None], classes: tuple[str, ...]) -> list[str | None]:
    return [None if label is None else classes[label] for label in labels]


def _normed(X: Any) -> Float64s:
    rows = np.asarray(X, dtype=np.float64)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _plain(items: Ints) -> Batch:
    """Items without suggestions, of a selector that has none."""
    return Batch(items, np.full(len(items), UNRESOLVED), np.full(len(items), np.nan))


def _without(batch: Batch, taken: set[int]) -> Batch:
    keep = np.array([k for k, p in enumerate(batch.indices.tolist()) if p not in taken], dtype=np.int64)
    return Batch(batch.indices[keep], batch.suggested[keep], batch.influence[keep], batch.diagnostics)


def _head(batch: Batch, count: int) -> Batch:
    return Batch(batch.indices[:count], batch.suggested[:count], batch.influence[:count], batch.diagnostics)


def _joined(first: Batch, second: Batch) -> Batch:
    return Batch(
        np.concatenate([first.indices, second.indices]),
        np.concatenate([first.suggested, second.suggested]),
        np.concatenate([first.influence, second.influence]),
        second.diagnostics,
    )
