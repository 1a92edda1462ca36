"""The trained state of campaigns in this process: a cache over their ledgers, the steps that move it on, and the replay."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from sqlalchemy import Connection

import labelchef
from labelchef.base.arrays import Float64s, Ints
from labelchef.base.campaigns import SplitName
from labelchef.base.errors import ConflictError
from labelchef.base.events import tell
from labelchef.base.inputs import ClassNames
from labelchef.base.records import Heard
from labelchef.base.settings import Settings
from labelchef.base.stopping_work import StoppedWorkError
from labelchef.believe import SourceVotes
from labelchef.believe.aggregation import MajorityVote
from labelchef.believe.vote_forms import WEAK_SOURCE
from labelchef.data.campaign_data import CampaignData
from labelchef.data.copies import Copies
from labelchef.data.training_rows import judges_of
from labelchef.loop import rebuild
from labelchef.loop.final import final_classifier
from labelchef.loop.ledger.protocol import labels_hash
from labelchef.loop.session import Session
from labelchef.loop.steps import Step, Stepper, due
from labelchef.model.classifier import LinearClassifier
from labelchef.server.campaigns import harms, numbers
from labelchef.server.campaigns.access import find
from labelchef.server.keys import link_signer
from labelchef.server.leases import CAMPAIGN, Lease
from labelchef.server.ledger.links import Signer, check_links
from labelchef.server.ledger.sql import SqlLedger
from labelchef.server.store import campaign_table, round_table
from labelchef.server.store.arrays import ArrayFacts, read_array
from labelchef.server.store.rows import CampaignRow
from labelchef.server.workspace import Workspace, folder_of, require_folder

Stamp: TypeAlias = dict[str, tuple[int, int, int]]
"""File → (inode, bytes, nanoseconds of the last change)."""
NEIGHBOURS = 5
"""Validation items shown beside an item."""
_QUICK = 3.0
"""Seconds of a selection within which the influences of all items are computed again."""
_ROWS = {SplitName.TRAIN: "features", SplitName.VALIDATION: "val_features", SplitName.TEST: "test_features"}
"""The array that has a row for each item of a split."""
_READ = ("features", "weak", "val_features", "test_features", "copies", "feature_names")


@dataclass
class Trained:
    """A campaign's data and the session that belongs to its ledger."""

    data: CampaignData
    settings: Settings
    session: Session
    stamp: Stamp
    """Of the files that the data is read from, as they were when their digests were compared."""
    _hash: tuple[int, str] = field(default=(0, ""), repr=False)

    @property
    def labels_hash(self) -> str:
        """Of the labels as the session has them, computed once a round."""
        closed = len(self.session.rounds)
        if self._hash[0] != closed:
            self._hash = (closed, labels_hash(*self.session.label_state))
        return self._hash[1]

    def weak(self, position: int) -> Sequence[float]:
        """The weak label of an item, by the sources that are heard."""
        learner = self.session.learner
        weak = self.data.weak if learner is None or self.session.heard == Heard() else learner.given
        return [float(p) for p in weak[position]]

    def nearest(self, positions: Ints) -> list[list[tuple[int, float]]]:
        """The validation items that are most like each item by cosine: (position, similarity).

        Only those that steer: a person who saw the labels of those that judge would carry them into the training set.
        """
        near: list[list[tuple[int, float]]] = []
        for row in _normed(np.asarray(self.data.X[positions])) @ self._steering_rows.T:
            best = np.argsort(-row, kind="stable")[:NEIGHBOURS]
            near.append([(int(self._steering[k]), round(float(row[k]), 4)) for k in best])
        return near

    @cached_property
    def _steering(self) -> Ints:
        return np.flatnonzero(~judges_of(self.data, self.settings))

    @cached_property
    def _steering_rows(self) -> Float64s:
        return _normed(self.data.validation[0][self._steering])


class States(dict[int, Trained]):
    """Trained states by campaign, used by the process that holds the campaign's lease, one thread a campaign."""


def state_of(ws: Workspace, campaign_id: int) -> Trained | None:
    """The trained state of a campaign that this process has, whether it still fits the ledger or not."""
    return ws.memory.of(States).get(campaign_id)


def forget(ws: Workspace, campaign_id: int) -> None:
    """Drop the trained state of a campaign: it will be built again when it is needed."""
    ws.memory.of(States).pop(campaign_id, None)


def _normed(X: Float64s) -> Float64s:
    rows = np.asarray(X, dtype=np.float64)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def data_of(ws: Workspace, campaign: CampaignRow) -> CampaignData:
    """A campaign's data from the store; it was checked when the campaign was made."""
    with ws.reading() as connection:
        arrays = campaign_table.arrays_of(connection, campaign.id)
        classes = campaign_table.classes_of(connection, campaign.id)
        sizes = {split: arrays[name].shape[0] for split, name in _ROWS.items() if name in arrays}
        labels = {split: campaign_table.given_labels(connection, campaign.id, split, n) for split, n in sizes.items()}
    folder = require_folder(ws, campaign)
    data = {name: read_array(folder, arrays[name]) for name in _READ if name in arrays}
    return CampaignData(
        X=data["features"],
        weak=data["weak"],
        names=ClassNames(classes),
        validation=(data["val_features"], labels[SplitName.VALIDATION].astype(np.int64)),
        clean=labels[SplitName.TRAIN].astype(np.int64),
        test=(data["test_features"], labels[SplitName.TEST].astype(np.int64)) if "test_features" in data else None,
        votes=_votes_of(folder, arrays, "votes", len(classes)),
        votes_val=_votes_of(folder, arrays, "val_votes", len(classes)),
        feature_names=data["feature_names"].tolist() if "feature_names" in data else None,
        copies=Copies(data["copies"]) if "copies" in data else None,
        edited=partial(_edited_votes, ws, campaign, len(classes)),
    )


def _edited_votes(ws: Workspace, campaign: CampaignRow, C: int, version: int) -> tuple[SourceVotes, SourceVotes]:
    """The votes of a later version, on training and on validation items."""
    with ws.reading() as connection:
        arrays = campaign_table.arrays_of(connection, campaign.id)
    found = [
        _votes_of(require_folder(ws, campaign), arrays, f"{split}-{version}", C) for split in ("votes", "val_votes")
    ]
    train, val = found
    assert train is not None, "an edit stores both"
    assert val is not None, "an edit stores both"
    return train, val


def source_names(connection: Connection, folder: Path, campaign_id: int, version: int = 0) -> tuple[str, ...]:
    """What the sources of a campaign are called, muted ones too."""
    arrays = campaign_table.arrays_of(connection, campaign_id)
    facts = arrays.get(f"votes-{version}_sources" if version else "votes_sources")
    return (WEAK_SOURCE,) if facts is None else tuple(map(str, read_array(folder, facts, mapped=False).tolist()))


def _votes_of(folder: Path, arrays: Mapping[str, ArrayFacts], split: str, n_classes: int) -> SourceVotes | None:
    """The votes of sources that are stored under the names `split_…`, None if there are none."""
    parts = {name: facts for name, facts in arrays.items() if name.startswith(f"{split}_")}
    if not parts:
        return None
    read = {name.removeprefix(f"{split}_"): read_array(folder, facts, mapped=False) for name, facts in parts.items()}
    return SourceVotes.of_arrays(read, n_classes)


def ledger_of(ws: Workspace, campaign: CampaignRow, lease: Lease | None = None) -> SqlLedger:
    """The ledger of a campaign; with `lease`, what is written is refused once another process has taken it over."""
    shown = lambda: trained_now(ws, find(ws, campaign.public_id))  # noqa: E731
    signer = Signer(labelchef.__version__, link_signer(ws))
    fence = None if lease is None else (lease.name, lease.fence)
    return SqlLedger(ws.database, folder_of(ws, campaign), campaign.public_id, shown, signer, fence)


def trained_now(ws: Workspace, campaign: CampaignRow) -> Trained:
    """The state that belongs to the ledger as it stands, from the cache if that still fits."""
    with ws.reading() as connection:
        rounds = round_table.rounds_of(connection, campaign.id)
    closed = [row for row in rounds if not row.is_open]
    found = state_of(ws, campaign.id)
    stamp = _stamp_of(ws, campaign)
    if (
        found is None
        or found.settings.built_with() != campaign.settings.built_with()
        or found.stamp != stamp  # the files are mapped into memory: their digests are compared again
        or len(found.session.rounds) != max(1, len(closed))
        or (closed and found.labels_hash != closed[-1].labels_hash)
    ):
        forget(ws, campaign.id)
        data = data_of(ws, campaign)
        past = ledger_of(ws, campaign).rounds()
        first = past[0] if past else None
        session = rebuild.rebuild(data, campaign.settings, past[1:], first=first, heard=_heard_now(ws, campaign))
        found = Trained(data, campaign.settings, session, stamp)
        ws.memory.of(States)[campaign.id] = found
    return found


def _heard_now(ws: Workspace, campaign: CampaignRow) -> Heard:
    """Which votes a first model is made of: a copy of a campaign begins with the rules as they were edited there."""
    with ws.reading() as connection:
        return Heard(campaign.settings.muted, campaign_table.votes_version(connection, campaign.id))


def _stamp_of(ws: Workspace, campaign: CampaignRow) -> Stamp:
    """What tells a change of the files of the data; one that is missing has no entry."""
    stamp: Stamp = {}
    for path in folder_of(ws, campaign).glob("*.npy"):
        if path.stem in _READ or path.stem.startswith(("votes", "val_votes")):
            with contextlib.suppress(OSError):
                seen = path.stat()
                stamp[path.name] = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return stamp


def encoder_of(ws: Workspace, campaign: CampaignRow) -> bytes | None:
    """What made the features of a campaign, as a file holds it; None where they were given."""
    with ws.reading() as connection:
        arrays = campaign_table.arrays_of(connection, campaign.id)
    return bytes(read_array(require_folder(ws, campaign), arrays["encoder"])) if "encoder" in arrays else None


def final_model(ws: Workspace, campaign: CampaignRow) -> LinearClassifier:
    """The final model after the last closed round, by a session of its own; the cache and the ledger stay as they are."""
    data, settings = data_of(ws, campaign), campaign.settings
    past = ledger_of(ws, campaign).rounds()
    session = rebuild.rebuild(data, settings, past[1:], first=past[0])
    names = data.feature_names
    return final_classifier(session, data.names, feature_names=names)


def lease_name(campaign: CampaignRow) -> str:
    """The lease under which the steps of a campaign are taken."""
    return f"{CAMPAIGN}{campaign.public_id}"


def step(ws: Workspace, campaign: str, lease: Lease) -> bool:
    """Take the step that is due in a campaign, if any, under its lease."""
    row = find(ws, campaign)
    ledger = ledger_of(ws, row, lease)
    if row.archived_at is not None or due(ledger.standing()) is None:
        return False
    require_folder(ws, row)
    began = time.perf_counter()
    # the settings are read again after the standing: if they changed meanwhile, the ledger refuses what was made with them
    taken = Stepper(
        ledger, lambda: trained_now(ws, find(ws, row.public_id)).session, lambda: forget(ws, row.id), MajorityVote()
    ).step()
    seconds = time.perf_counter() - began
    if taken is not None:
        tell("step", campaign=row.id, step=taken.value, seconds=round(seconds, 4))
    ws.signal.notify()
    if lease.lost.is_set():
        forget(ws, row.id)
        return False
    if taken in (Step.FIT, Step.CLOSE, Step.SELECT):
        keep_numbers(ws, row, scored=taken is Step.SELECT and seconds < _QUICK)
    return True


def keep_numbers(ws: Workspace, campaign: CampaignRow, *, scored: bool) -> None:
    """Write what the model of the last round says of every item (`server.campaigns.numbers`), if it is not written yet.

    With `scored` the influences of all items are computed too, which takes as long as a selection: people have their next
    batch already. Where that takes long, those of the first model stay, with the round that they are of.
    """
    found = state_of(ws, campaign.id)
    if found is None:
        return  # the ledger has not moved
    folder, session = folder_of(ws, campaign), found.session
    before, number = numbers.latest(folder), len(session.rounds) - 1
    written = before is not None and before.round == number and (not scored or before.scored_in == number)
    with contextlib.suppress(StoppedWorkError):  # what is written down in no ledger may be broken off
        if not written:
            numbers.write(folder, session, found.data, session.scores() if scored else None)
        if scored:
            harms.keep(folder, session, found.data, found.settings)


def due_step(ws: Workspace, campaign: str) -> Step | None:
    """The step that a worker should take now, if any; none in the archive."""
    row = find(ws, campaign)
    return None if row.archived_at is not None else due(ledger_of(ws, row).standing())


def is_due(ws: Workspace, campaign: str) -> bool:
    """Whether there is a step for a worker to take."""
    return due_step(ws, campaign) is not None


def require_model(connection: Connection, campaign: CampaignRow) -> None:
    """Refuse what needs a model while there is none."""
    if round_table.last_turn(connection, campaign.id) is None:
        raise ConflictError("the campaign has no model yet; wait until it is trained", code="preparing")


@dataclass(frozen=True)
class ReplayOutcome:
    """What a replay came to."""

    agrees: bool
    message: str
    rounds: tuple[rebuild.ReplayedRound, ...]
    altered: int | None = None
    """The first round whose link does not follow from the rows in the database (`server.ledger.links`); None if all do."""
    unproven: str = ""
    """What links do not show, in words; empty if they cover all."""


def replay(
    ws: Workspace, campaign: str, on_round: Callable[[rebuild.ReplayedRound], None] | None = None
) -> ReplayOutcome:
    """Fit again, select again, decide again as the ledger says, and compare every round.

    Nothing is written, and nothing depends on the result; a worker may run meanwhile.
    """
    row = find(ws, campaign)
    past = list(ledger_of(ws, row).past())
    compared: list[rebuild.ReplayedRound] = []
    for found in rebuild.replay(data_of(ws, row), row.settings, past) if past else ():
        compared.append(found)
        if on_round is not None:
            on_round(found)
    wrong = [one.number for one in compared if not one.agrees]
    near = sum(not one.exact for one in compared)
    message = f"{len(compared)} rounds came out as the ledger says: selections, labels and metrics"
    if near:
        message += f"; {near} of them to rounding (no more apart than ten times tol, {row.settings.tol:g})"
    if wrong:
        message = f"round {wrong[0]} and {len(wrong) - 1} later ones came out otherwise than the ledger says"
    with ws.reading() as connection:
        links = check_links(connection, row.id)
    if links.broken is not None:
        message += f"; and {links.told}"
    warning = links.told if links.broken is None else ""
    return ReplayOutcome(not wrong and links.broken is None, message, tuple(compared), links.broken, warning)
