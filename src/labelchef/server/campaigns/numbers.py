"""What the model says of every training item, as a file that readers map into memory.

The worker writes `numbers-ROUND-PART.npy` into the campaign's folder: part 0 after the model of a round is there, part 1 after
the next batch was selected, with influences of that model. It is one array of bytes: columns (N,) one behind the other, so that
a filter reads what it compares and nothing else:

    p (C,)             softmax(logits / T), the model's probabilities
    predicted          argmax_c [log p_c + offset_c], the class by the decision rule
    probability        p_predicted
    doubt              1 − (p₁ − p₂), p₁ and p₂ the two largest of p: 1 where two classes are as probable
    believed, belief   most probable class and its probability by model, sources and people
    weak               class of the weak label as given, −1 where it names none
    given              label that came with the data, −1 for none
    label              label of people or given, else the weak one; −1 for none
    label_probability  p_label
    suspect            1: label_probability < 0.2 and another class is predicted, or people's answer is in doubt
    influence          predicted change of the steering loss, of the round `influence_round`; NaN where unknown
    by doubt, …        (N,) positions in the order of a list: by doubt (largest first), influence or label_probability (smallest
                       first), then by position; items without a value last

A file appears whole; the one before it is removed. No request computes any of this: a campaign without such a file is shown
without these numbers.
"""

import contextlib
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelchef.base.arrays import Float64s
from labelchef.base.files import whole_file
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.report import weak_classes
from labelchef.loop.session import Session

_log = logging.getLogger("labelchef")
SUSPECT = 0.2
"""A label is suspect if the model gives it a smaller probability."""
_AT_ONCE = 1 << 16
_NAME = re.compile(r"numbers-(\d+)-(\d+)\.npy")
_COLUMNS = (
    ("predicted", "<i4"),
    ("probability", "<f4"),
    ("doubt", "<f4"),
    ("believed", "<i4"),
    ("belief", "<f4"),
    ("weak", "<i4"),
    ("given", "<i4"),
    ("label", "<i4"),
    ("label_probability", "<f4"),
    ("influence", "<f4"),
    ("influence_round", "<i4"),
    ("by doubt", "<i4"),
    ("by influence", "<i4"),
    ("by label_probability", "<i4"),
    ("suspect", "?"),
)
_KINDS = dict(_COLUMNS)
_ORDERS = {"doubt": -1.0, "influence": 1.0, "label_probability": 1.0}
"""Columns that lists are sorted by, and the factor by which the first is the smallest."""
_EARLIER = np.dtype([*_COLUMNS[:9], _COLUMNS[14], *_COLUMNS[9:11]])
"""Of version 0.3: a record an item, and no orders."""
_SIZES = [np.dtype(kind).itemsize for _, kind in _COLUMNS]
_STARTS = {name: sum(_SIZES[:k]) for k, (name, _) in enumerate(_COLUMNS)}
"""Where a column starts: so many bytes an item."""
_BYTES = sum(_SIZES)
"""Of an item."""


class Columns:
    """The columns of N items in an array of bytes."""

    def __init__(self, held: NDArray[np.uint8]) -> None:
        self.held = held

    @classmethod
    def empty(cls, n: int) -> "Columns":
        """All zeros."""
        return cls(np.zeros(n * _BYTES, dtype=np.uint8))

    def __getitem__(self, column: str) -> NDArray[Any]:
        n, kind = len(self.held) // _BYTES, np.dtype(_KINDS[column])
        start = _STARTS[column] * n
        return self.held[start : start + kind.itemsize * n].view(kind)


class Numbers:
    """The numbers of all training items after a round."""

    def __init__(self, round: int, held: "NDArray[np.void] | Columns") -> None:
        self.round = round
        self._held = held
        """Columns, or (N,) records of an earlier version, mapped into memory."""

    def __len__(self) -> int:
        return len(self["predicted"])

    @property
    def scored_in(self) -> int:
        """The round whose model gave the influences, −1 for none."""
        return int(self["influence_round"][0]) if len(self) else -1

    def __getitem__(self, column: str) -> NDArray[Any]:
        return np.asarray(self._held[column])

    def order(self, column: str) -> NDArray[np.int32] | None:
        """(N,) positions in the order of a list by this column; None where an earlier version wrote the numbers."""
        return self._held[f"by {column}"] if isinstance(self._held, Columns) else None

    def keys(self, column: str, positions: NDArray[Any] | slice) -> Float64s:
        """What items are sorted by in a list, smallest first; those without a value come last."""
        values = self[column][positions].astype(np.float64)
        return np.where(np.isnan(values), np.inf, _ORDERS[column] * values)


def write(folder: Path, session: Session, data: CampaignData, scores: Float64s | None = None) -> None:
    """Write what the session's model says; `scores` (N,) are influences of this model, else the last ones are kept.

    The numbers are an aid: a disk that refuses them is no reason to stop a campaign.
    """
    number, before = len(session.rounds) - 1, latest(folder)
    found = _computed(session, data)
    if scores is not None and len(scores) == session.n_train:
        found["influence"][:], found["influence_round"][:] = scores, number
    elif before is not None and len(before) == session.n_train:
        found["influence"][:], found["influence_round"][:] = before["influence"], before["influence_round"]
    elif before is None:
        _take_first(folder, found)
    for column, factor in _ORDERS.items():  # what is no number is sorted behind all others
        found[f"by {column}"][:] = np.argsort(np.float32(factor) * found[column], kind="stable")
    path = folder / f"numbers-{number}-{int(scores is not None and number > 0)}.npy"
    try:
        with whole_file(path) as stream:
            np.save(stream, found.held, allow_pickle=False)
    except OSError as error:
        _log.warning("%s cannot be written (%s); the items are shown without it", path, error.strerror or error)
        return
    for old in folder.glob("numbers-*.npy"):  # later ones are of another process that went on meanwhile
        named = _NAME.fullmatch(old.name)
        if old != path and (named is None or int(named[1]) <= number):
            with contextlib.suppress(OSError):
                old.unlink()


def _take_first(folder: Path, found: Columns) -> None:
    """The influences by the first model, which the ledger keeps."""
    for path in sorted(folder.glob("scores*.npy")):
        with contextlib.suppress(OSError, ValueError):
            first = np.load(path, mmap_mode="r", allow_pickle=False)
            if first.shape == found["influence"].shape:
                found["influence"][:], found["influence_round"][:] = first, 0


def _computed(session: Session, data: CampaignData) -> Columns:
    """The columns but for orders."""
    N = session.n_train
    found = Columns.empty(N)
    found["influence"][:], found["influence_round"][:] = np.nan, -1
    found["given"][:] = data.clean
    labels, cleaned = session.label_state
    if data.copies is not None:
        labels, cleaned = data.copies.labelled(labels, labels, cleaned), data.copies.shared(cleaned)
    for start in range(0, N, _AT_ONCE):
        here = slice(start, min(N, start + _AT_ONCE))
        P, predicted, belief = session.views(np.arange(here.start, here.stop))
        belief = belief if data.copies is None else np.where(cleaned[here, None], labels[here], belief)
        rows, weak = np.arange(len(P)), np.asarray(data.weak[here], dtype=np.float64)
        part = {name: found[name][here] for name, _ in _COLUMNS}
        part["predicted"][:], part["probability"][:] = predicted, P[rows, predicted]
        two = np.partition(P, -2, axis=1)[:, -2:]
        part["doubt"][:] = 1.0 - (two[:, 1] - two[:, 0])
        part["believed"][:], part["belief"][:] = belief.argmax(axis=1), belief.max(axis=1)
        part["weak"][:] = weak_classes(weak)
        label = np.where(cleaned[here], labels[here].argmax(axis=1), part["weak"])
        part["label"][:] = label
        part["label_probability"][:] = np.where(label >= 0, P[rows, label], np.nan)
        part["suspect"][:] = (label >= 0) & (part["label_probability"] < SUSPECT) & (label != predicted)
    for doubt in session.doubtful():
        found["suspect"][doubt.item] = True
    return found


def latest(folder: Path) -> Numbers | None:
    """The newest numbers of a campaign, None if there are none."""
    for _ in range(3):  # a file may be replaced between the look at the folder and the look into it
        named = [
            (tuple(map(int, name.groups())), path)
            for path in folder.glob("numbers-*.npy")
            if (name := _NAME.fullmatch(path.name))
        ]
        if not named:
            return None
        (number, _part), path = max(named)
        try:
            return Numbers(number, _mapped(path))
        except (OSError, ValueError) as error:
            wrong = error
    _log.warning("the numbers in %s cannot be read: %s", folder, wrong)
    return None


def _mapped(path: Path) -> "NDArray[np.void] | Columns":
    """The file's array, mapped for as long as it is looked at: a map that is kept would keep its disk in use."""
    found = np.load(path, mmap_mode="r", allow_pickle=False)
    if found.ndim == 1 and found.dtype == np.uint8 and len(found) % _BYTES == 0:
        return Columns(np.asarray(found))
    if found.ndim == 1 and found.dtype == _EARLIER:
        return np.asarray(found)
    raise ValueError(f"{path.name} holds other numbers than this version writes")
