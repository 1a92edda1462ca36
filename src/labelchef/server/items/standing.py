"""Where every training item stands by the ledger, as arrays over positions that follow the ledger row by row.

Votes and decisions are only ever appended, so a look at the rows behind the last one that is known brings the arrays up to
date: a request costs what happened since the last one, not what happened in all, and not the number of items. The arrays of a
campaign take 24 bytes an item, and stay as long as its workspace is open.
"""

import threading
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from labelchef.base.arrays import Bools, Ints
from labelchef.base.browsing import Asked, ItemState
from labelchef.base.campaigns import RoundState, SplitName
from labelchef.data.copies import Copies
from labelchef.server.items.copies import copies_of
from labelchef.server.store import browse_table, campaign_table, decision_table
from labelchef.server.store.rows import CampaignRow
from labelchef.server.workspace import Workspace

STATES = tuple(ItemState)
_NONE, _ANSWERED, _UNRESOLVED, _REOPENED = range(4)
_GIVEN, _NEW, _WAITING, _LEFT_OPEN, _BEING_ASKED = map(
    STATES.index, (ItemState.GIVEN, ItemState.NEW, ItemState.WAITING, ItemState.UNRESOLVED, ItemState.OPEN)
)
_BY_KIND = np.array([0, STATES.index(ItemState.ANSWERED), _LEFT_OPEN, _WAITING])


class Positions:
    """Inner ids of the items of a split ↔ their positions."""

    def __init__(self, connection: Connection, campaign: CampaignRow, split: SplitName) -> None:
        self.range = browse_table.id_range(connection, campaign, split)
        self._ids: Ints | None = None
        if not self.range.in_order:  # items of another campaign were inserted at the same time
            found = browse_table.ids_by_position(connection, campaign.id, split)
            self._ids = np.fromiter(found, dtype=np.int64, count=self.range.size)
            self._order = np.argsort(self._ids)

    def __len__(self) -> int:
        return self.range.size

    def of(self, ids: Iterable[int]) -> Ints:
        """Positions of items, in the order of `ids`; ids of others are left out."""
        wanted = np.fromiter(ids, dtype=np.int64)
        if self._ids is None:
            wanted = wanted[(wanted >= self.range.first) & (wanted <= self.range.last)]
            return wanted - self.range.least
        place = np.minimum(np.searchsorted(self._ids, wanted, sorter=self._order), len(self._ids) - 1)
        found = self._order[place]
        return np.asarray(found[self._ids[found] == wanted])


class Standing:
    """Where the training items of a campaign stand. `turn` is held while the arrays are used."""

    def __init__(self, connection: Connection, campaign: CampaignRow, copies: Copies | None = None) -> None:
        self.turn = threading.Lock()
        self.copies = copies
        self.positions = Positions(connection, campaign, SplitName.TRAIN)
        self._campaign_id = campaign.id
        N = len(self.positions)
        given = campaign_table.given_labels(connection, campaign.id, SplitName.TRAIN, N)
        self.given: NDArray[np.int32] = given if copies is None else copies.shared(given)
        self.label = self.given.copy()
        """Clean label, −1 for none."""
        self.decision: Ints = np.zeros(N, dtype=np.int64)
        """Inner id of the last decision, 0 for none."""
        self.decided: Ints = np.empty(0, dtype=np.int64)
        """Positions of the items that have a decision, rising."""
        self.asked: NDArray[np.int32] = np.full(N, -1, dtype=np.int32)
        """Number of the last round that asked the item, −1 for none."""
        self._kind = np.zeros(N, dtype=np.uint8)
        self._asked_attempt = np.full(N, -1, dtype=np.int16)
        self._decided_attempt = np.full(N, -1, dtype=np.int16)
        self._seen_decision = self._seen_round = 0
        self._open_batch: Ints = np.empty(0, dtype=np.int64)
        self._open = False
        self._wanted: Ints = np.empty(0, dtype=np.int64)
        self._states = np.where(self.given >= 0, _GIVEN, _NEW).astype(np.uint8)

    def follow(self, connection: Connection) -> None:
        """Bring the arrays to what the ledger says now; the caller holds `turn`."""
        touched = [self._wanted]
        for turn in browse_table.rounds_from(connection, self._campaign_id, self._seen_round):
            is_open = turn.state is RoundState.SELECTED
            if turn.id > self._seen_round or is_open != self._open:
                touched.append(self._open_batch)
            if turn.id > self._seen_round:
                batch = self.positions.of(item for item, _ in turn.batch)
                self.asked[batch] = turn.number
                self._asked_attempt[batch] = [attempt for _, attempt in turn.batch]
                self._seen_round, self._open_batch = turn.id, batch
                touched.append(batch)
            self._open = is_open
        new = browse_table.decisions_since(connection, self._campaign_id, self._seen_decision)
        if new:
            places = self.positions.of(
                one.item_id for one in new
            )  # a later decision on the same item is assigned later
            self.decision[places] = [one.id for one in new]
            self._decided_attempt[places] = [one.attempt for one in new]
            labels = np.array([-1 if one.label is None else one.label for one in new], dtype=np.int32)
            reopened = np.array([one.reopened for one in new])
            self.label[places] = labels
            self._kind[places] = np.where(reopened, _REOPENED, np.where(labels < 0, _UNRESOLVED, _ANSWERED))
            self._seen_decision = new[-1].id
            places = self._with_copies(places)
            self.decided = np.union1d(self.decided, places)
            touched.append(places)
        self._wanted = self.positions.of(decision_table.wishes(connection, self._campaign_id))
        self._renew(np.concatenate([*touched, self._wanted]))

    def _with_copies(self, places: Ints) -> Ints:
        """These items, and their copies, which are made to stand as they do."""
        groups = {} if self.copies is None else {row: self.copies.groups.get(row) for row in places.tolist()}
        for row, mine in groups.items():
            for column in () if mine is None else (self.label, self.decision, self._kind, self._decided_attempt):
                column[mine] = column[row]
        return np.concatenate([places, *(mine for mine in groups.values() if mine is not None)])

    def _renew(self, places: Ints) -> None:
        """Find the states of these items anew."""
        kind, asked = self._kind[places], self._asked_attempt[places] > self._decided_attempt[places]
        found = np.where(self.given[places] >= 0, _GIVEN, _NEW)
        found = np.where(kind == _NONE, found, _BY_KIND[kind])
        found[asked & ((kind == _NONE) | (kind == _REOPENED))] = _LEFT_OPEN  # and not decided since
        self._states[places] = found
        self._states[self._wanted] = _WAITING
        if self._open:
            batch = self._open_batch
            self._states[batch[self._asked_attempt[batch] > self._decided_attempt[batch]]] = _BEING_ASKED

    @property
    def seen(self) -> tuple[int, int]:
        """The last round and decision that the arrays know."""
        return self._seen_round, self._seen_decision

    def states(self, positions: Ints | None = None) -> NDArray[np.uint8]:
        """Place in `STATES` of the state of each of these items, of all without `positions`."""
        return self._states if positions is None else self._states[positions]

    def matching(self, wanted: ItemState | Asked) -> Bools:
        """(N,) items of a state, or of a group of states."""
        if wanted is Asked.UNANSWERED:
            return np.asarray(self.label < 0)
        if wanted is Asked.LABELLED:
            return np.asarray(self.label >= 0)
        if wanted is Asked.ASKED:
            return np.asarray(self.asked >= 0)
        return np.asarray(self.states() == STATES.index(ItemState(wanted)))


class Standings(dict[str, Standing]):
    """Standings by public id of the campaign."""


def standing_of(ws: Workspace, connection: Connection, campaign: CampaignRow) -> Standing:
    """The standing of a campaign, made at the first look."""
    kept = ws.memory.of(Standings)
    found = kept.get(campaign.public_id)
    if found is None:
        found = kept.setdefault(campaign.public_id, Standing(connection, campaign, copies_of(ws, connection, campaign)))
    return found
