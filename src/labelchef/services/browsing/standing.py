"""Where every training item stands by the ledger, as arrays over positions that follow the ledger row by row.

Votes and decisions are only ever appended, so a look at the rows behind the last one that is known brings the arrays up to
date: a request costs what happened since the last one, not what happened in all. The arrays of a campaign take 23 bytes an
item, and stay as long as its workspace is open.
"""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from labelchef.domain.arrays import Bools, Ints
from labelchef.domain.browsing import Asked, ItemState
from labelchef.domain.campaigns import RoundState, SplitName
from labelchef.store import browse_table, decision_table
from labelchef.store.rows import CampaignRow

if TYPE_CHECKING:
    from labelchef.services.workspace import Workspace

STATES = tuple(ItemState)
_NONE, _ANSWERED, _UNRESOLVED, _REOPENED = range(4)


class Positions:
    """Inner ids of the items of a split ↔ their positions."""

    def __init__(self, connection: Connection, campaign_id: int, split: SplitName) -> None:
        self.range = browse_table.id_range(connection, campaign_id, split)
        self._ids: Ints | None = None
        if not self.range.in_order:  # items of another campaign were inserted at the same time
            found = browse_table.ids_by_position(connection, campaign_id, split)
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

    def __init__(self, connection: Connection, campaign_id: int) -> None:
        self.turn = threading.Lock()
        self.positions = Positions(connection, campaign_id, SplitName.TRAIN)
        self._campaign_id = campaign_id
        N = len(self.positions)
        self.given = given_array(connection, campaign_id, SplitName.TRAIN, N)
        self.label = self.given.copy()
        """Clean label, −1 for none."""
        self.decision: Ints = np.zeros(N, dtype=np.int64)
        """Inner id of the last decision, 0 for none."""
        self.asked: NDArray[np.int32] = np.full(N, -1, dtype=np.int32)
        """Number of the last round that asked the item, −1 for none."""
        self._kind = np.zeros(N, dtype=np.uint8)
        self._asked_attempt = np.full(N, -1, dtype=np.int16)
        self._decided_attempt = np.full(N, -1, dtype=np.int16)
        self._seen_decision = self._seen_round = 0
        self._open_batch: Ints = np.empty(0, dtype=np.int64)
        self._open = False
        self._wanted: Ints = np.empty(0, dtype=np.int64)

    def follow(self, connection: Connection) -> None:
        """Bring the arrays to what the ledger says now; the caller holds `turn`."""
        for turn in browse_table.rounds_from(connection, self._campaign_id, self._seen_round):
            if turn.id > self._seen_round:
                batch = self.positions.of(item for item, _ in turn.batch)
                self.asked[batch] = turn.number
                self._asked_attempt[batch] = [attempt for _, attempt in turn.batch]
                self._seen_round, self._open_batch = turn.id, batch
            self._open = turn.state is RoundState.SELECTED
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
        self._wanted = self.positions.of(decision_table.wishes(connection, self._campaign_id))

    @property
    def seen(self) -> tuple[int, int]:
        """The last round and decision that the arrays know."""
        return self._seen_round, self._seen_decision

    def states(self) -> NDArray[np.uint8]:
        """(N,) place in `STATES` of the state of every item."""
        place = {state: k for k, state in enumerate(STATES)}
        found = np.where(self.given >= 0, place[ItemState.GIVEN], place[ItemState.NEW]).astype(np.uint8)
        by_kind = np.array([0, *(place[one] for one in (ItemState.ANSWERED, ItemState.UNRESOLVED, ItemState.WAITING))])
        decided = self._kind != _NONE
        found[decided] = by_kind[self._kind[decided]]
        asked = self._asked_attempt > self._decided_attempt  # and not decided since
        found[asked & ~decided] = place[ItemState.UNRESOLVED]
        found[asked & (self._kind == _REOPENED)] = place[ItemState.UNRESOLVED]
        found[self._wanted] = place[ItemState.WAITING]
        if self._open:
            batch = self._open_batch
            found[batch[self._asked_attempt[batch] > self._decided_attempt[batch]]] = place[ItemState.OPEN]
        return found

    def matching(self, wanted: ItemState | Asked) -> Bools:
        """(N,) items of a state, or of a group of states."""
        if wanted is Asked.UNANSWERED:
            return np.asarray(self.label < 0)
        if wanted is Asked.LABELLED:
            return np.asarray(self.label >= 0)
        if wanted is Asked.ASKED:
            return np.asarray(self.asked >= 0)
        return np.asarray(self.states() == STATES.index(ItemState(wanted)))


def given_array(connection: Connection, campaign_id: int, split: SplitName, n: int) -> NDArray[np.int32]:
    """(n,) labels that came with the data, −1 for none."""
    found = np.full(n, -1, dtype=np.int32)
    rows = browse_table.given_labels(connection, campaign_id, split)
    if rows:
        places, labels = zip(*rows, strict=True)
        found[np.array(places)] = labels
    return found


def standing_of(ws: "Workspace", connection: Connection, campaign: CampaignRow) -> Standing:
    """The standing of a campaign, made at the first look."""
    found = ws.standings.get(campaign.public_id)
    if found is None:
        found = ws.standings.setdefault(campaign.public_id, Standing(connection, campaign.id))
    return found
