"""What people take home beside labels and votes: the whole data set and the model's predictions, as they stand after the last
closed round. The session is one of its own, so a worker may go on meanwhile."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from labelchef.campaign.dataset import Part, dataset_frame
from labelchef.campaign.final import final_classifier
from labelchef.domain.arrays import Ints
from labelchef.domain.campaigns import SplitName
from labelchef.domain.records import UNRESOLVED
from labelchef.io import tables
from labelchef.services.exchange import decided_of
from labelchef.services.people.access import looking
from labelchef.services.shared import writing_to
from labelchef.services.sources import session_after, standing
from labelchef.services.trained import data_of
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, decision_table
from labelchef.store.rows import ItemRow

TRUSTED = "trusted"
_NAMES = {SplitName.TRAIN: "train", SplitName.VALIDATION: TRUSTED, SplitName.TEST: "test"}


def export_dataset(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every row with its content, final label, probability, origin, votes and flags, see `campaign.dataset`."""
    with writing_to(path, "make room or name another file"):
        return tables.write_table(dataset(ws, campaign), path, format)


def export_predictions(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write what the final model says of every row, by its features alone."""
    _, classes, _ = standing(ws, campaign)
    frames = []
    for part in _parts(ws, campaign)[0]:
        n = len(part.keys)
        found = {
            "id": list(part.keys),
            "split": [part.split] * n,
            "label": [classes[c] for c in part.predicted_ids],
            "probability": part.predicted[np.arange(n), part.predicted_ids].round(6),
            **{f"p: {name}": part.predicted[:, c].round(6) for c, name in enumerate(classes)},
        }
        frames.append(pd.DataFrame(found))
    with writing_to(path, "make room or name another file"):
        return tables.write_table(pd.concat(frames, ignore_index=True), path, format)


def dataset(ws: Workspace, campaign: str) -> pd.DataFrame:
    """The table that `export_dataset` writes."""
    _, classes, _ = standing(ws, campaign)
    parts, used = _parts(ws, campaign)
    return dataset_frame(parts, classes, sources_used=used)


def _parts(ws: Workspace, campaign: str) -> tuple[list[Part], bool]:
    """The rows of every split, and whether the learner believes any source."""
    row, classes, closed = standing(ws, campaign)
    session, data = session_after(ws, row, len(closed)), data_of(ws, row)
    model = final_classifier(session, data.names, bias=row.settings.fit_intercept)
    believed = session.posterior()[: len(data.X)]
    with looking(ws, campaign) as (connection, _):
        decided = {one.position: decided_of(one) for one in decision_table.last_decisions(connection, row.id).values()}
        items = {split: campaign_table.items_of_split(connection, row.id, split) for split in SplitName}
    doubts = {one.item: one for one in session.doubtful() if one.item in decided}
    place = {name: c for c, name in enumerate(classes)}
    features = {SplitName.TRAIN: data.X, SplitName.VALIDATION: data.validation[0]}
    if data.test is not None:
        features[SplitName.TEST] = data.test[0]
    parts = []
    for split, X in features.items():
        rows, train = items[split], split is SplitName.TRAIN
        parts.append(
            Part(
                split=_NAMES[split],
                keys=[one.key for one in rows],
                contents=[_content(one) for one in rows],
                given=_given(rows),
                predicted=model.predict_proba(X),
                predicted_ids=np.array([place[str(name)] for name in model.predict(X).tolist()], dtype=np.int64),
                believed=believed if train else None,
                decided=decided if train else {},
                doubts=doubts if train else {},
                votes=data.votes if train else data.votes_val if split is SplitName.VALIDATION else None,
            )
        )
    choice = session.rounds[-1].choice
    return parts, choice is None or choice.gamma > 0


def _content(item: ItemRow) -> Mapping[str, object]:
    shown = {"text": item.text, "image": item.image}
    return {name: value for name, value in shown.items() if value is not None} | dict(item.fields or {})


def _given(rows: list[ItemRow]) -> Ints:
    return np.array([UNRESOLVED if one.label is None else one.label for one in rows], dtype=np.int64)
