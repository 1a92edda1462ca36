"""Lines of a ledger in the form of `loop.ledger.proof`: what all campaigns have, and the whole of one in a folder or in memory.

Such a one is chained, without links and without a signature: it has no workspace, so no key.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import labelchef
from labelchef.base.arrays import Float64s
from labelchef.base.campaigns import SplitName
from labelchef.base.records import UNRESOLVED
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.ledger.conversion import record_as_json
from labelchef.loop.ledger.proof import FORMAT, ITEMS_A_LINE, RULE, VERSION, chained, content_digest, packed, sealed
from labelchef.loop.ledger.protocol import labels_hash, model_hash
from labelchef.loop.session import Session
from labelchef.model.features import Features
from labelchef.model.features.saving import npy_pieces


def folder_ledger(data: CampaignData, session: Session, settings: Settings, title: str) -> bytes:
    """The ledger of a campaign in memory or in a folder, in the same form: chained, without links and without a signature."""
    return b"".join(sealed(chained(_session_records(data, session, settings, title)), time.time(), None))


def _session_records(data: CampaignData, session: Session, settings: Settings, title: str) -> Iterator[tuple[str, Any]]:
    classes = [str(name) for name in data.names.names]
    about = {"name": title, "id": None, "created_at": None, "created_by": None}
    yield header(about, classes, settings, pseudonyms=False)
    arrays = {"features": data.X, "weak": data.weak, "val_features": data.validation[0]}
    if data.test is not None:
        arrays["test_features"] = data.test[0]
    yield "data", [_array_facts(name, array) for name, array in sorted(arrays.items())]
    labels = {SplitName.TRAIN: data.clean, SplitName.VALIDATION: data.validation[1]}
    labels |= {} if data.test is None else {SplitName.TEST: data.test[1]}
    for split, y in labels.items():
        keys = [str(k) for k in range(len(y))]
        given = [None if label == UNRESOLVED else label for label in y.tolist()]
        yield from item_lines(split.value, keys, [{}] * len(y), given, data.weak if split is SplitName.TRAIN else None)
    attempts: dict[int, int] = {}
    last: dict[int, str] = {}
    for record in session.rounds:
        applied = []
        where = {"round": record.number, "created_at": None}
        decided, made = record.decisions, []
        for item, label, support in zip(
            *(a.tolist() for a in (decided.items, decided.labels, decided.support)), strict=True
        ):
            attempts[item] = attempts.get(item, -1) + 1
            public_id, before = f"decision-{record.number}-{item}", last.get(item)
            last[item] = public_id
            applied.append(public_id)
            said = {"public_id": public_id, "kind": "votes", "by": "votes", "supersedes": before, "support": support}
            shown = {"item": str(item), "attempt": attempts[item], "label": None if label == UNRESOLVED else label}
            made.append({**said, **shown, **where})
        for k, (item, who, label) in enumerate(record.votes):
            said = {
                "public_id": f"vote-{record.number}-{k}",
                "person": who,
                "seq": 0,
                "retracted": False,
                "supersedes": None,
            }
            shown = {"item": str(item), "attempt": attempts[item], "label": None if label == UNRESOLVED else label}
            yield "vote", {**said, **shown, **where}
        for body in made:
            yield "decision", body
        asked = record.batch.take(slice(record.asked))
        selections = zip(asked.indices.tolist(), asked.suggested.tolist(), strict=True)
        yield (
            "round",
            {
                "number": record.number,
                "kind": "initial" if record.number == 0 else "batch" if record.asked else "correction",
                "state": "closed",
                "selection_hash": None,
                "labels_hash": None,
                "model_hash": None,
                "outcome": record_as_json(record),
                "selections": [
                    [str(item), attempts[item], "batch", None if label == UNRESOLVED else label, None]
                    for item, label in selections
                ],
                "applied": applied,
                **(_hashes(session) if record is session.rounds[-1] else {}),
            },
        )


def _hashes(session: Session) -> dict[str, str]:
    """Of labels and model as they stand: those of earlier rounds are not kept."""
    return {"labels_hash": labels_hash(*session.label_state), "model_hash": model_hash(session.parameters)}


def _array_facts(name: str, array: "np.ndarray[Any, Any] | Features") -> dict[str, Any]:
    digest = hashlib.sha256()
    for piece in npy_pieces(array):
        digest.update(piece)
    shape, dtype = list(array.shape), str(array.dtype)
    return {"name": name, "dtype": dtype, "shape": shape, "sha256": digest.hexdigest()}


def header(
    about: dict[str, Any], classes: Sequence[str], settings: Settings, *, pseudonyms: bool
) -> tuple[str, dict[str, Any]]:
    """The first line; `about` says which campaign it is."""
    return "header", {
        "format": FORMAT,
        "format_version": VERSION,
        "labelchef": labelchef.__version__,
        "campaign": about,
        "classes": list(classes),
        "settings": settings.as_dict(),
        "rule": RULE,
        "pseudonyms": pseudonyms,
    }


def item_lines(
    split: str,
    keys: Sequence[str],
    contents: Sequence[dict[str, str]],
    labels: Sequence[int | None],
    weak: Float64s | None,
) -> Iterator[tuple[str, Any]]:
    """The items of a split, with what people see of them by name, labels given with the data, and weak labels."""
    for first in range(0, len(keys), ITEMS_A_LINE):
        part = slice(first, first + ITEMS_A_LINE)
        yield (
            "items",
            {
                "split": split,
                "first": first,
                "keys": list(keys[part]),
                "content": [content_digest(one) for one in contents[part]],
                "labels": list(labels[part]),
                "weak": None if weak is None else packed(weak[part]),
            },
        )
