"""What people take home beside labels and votes: the whole data set and the model's predictions, as they stand after the last
closed round. The session is one of its own, so a worker may go on meanwhile."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from labelchef.campaign.dataset import Part, dataset_frame, settle, votes_on
from labelchef.campaign.final import final_classifier
from labelchef.domain.arrays import Ints
from labelchef.domain.campaigns import SplitName
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import UNRESOLVED
from labelchef.exchange.formats import FORMATS
from labelchef.exchange.records import Prediction, Record, RecordSet, suggesting
from labelchef.io import tables
from labelchef.services.exchange import decided_of
from labelchef.services.people.access import looking
from labelchef.services.shared import writing_to
from labelchef.services.sources import session_after, standing
from labelchef.services.trained import data_of
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, decision_table, vote_table
from labelchef.store.rows import ItemRow

MODEL = "labelchef"
"""What the final model is called in files of other tools."""
TRUSTED = "trusted"
_NAMES = {SplitName.TRAIN: "train", SplitName.VALIDATION: TRUSTED, SplitName.TEST: "test"}


def export_dataset(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every row with its content, final label, probability, origin, votes and flags, see `campaign.dataset`.

    `format` is one of tables ('csv', …) or of another tool ('label-studio', …), else by the ending of the file.
    """
    if format is not None and format not in FORMATS and format not in tables.FORMATS:
        known = ", ".join((*FORMATS, *tables.FORMATS))
        raise InvalidInputError(f"format is {format!r}; expected one of: {known}", code="format")
    with writing_to(path, "make room or name another file"):
        if format in FORMATS:
            return FORMATS[format].write(suggesting(records(ws, campaign)), path)
        tables.check_format(path, format)
        return tables.write_table(dataset(ws, campaign), path, format)


def export_packed(ws: Workspace, campaign: str, folder: Path, stem: str, format: str) -> Path:
    """Write the data set into a folder as one file: a table, the file of another tool, or a zip where that has several."""
    if format not in FORMATS:
        return export_dataset(ws, campaign, folder / f"{stem}.{format}", format)
    tool = FORMATS[format]
    inside, stem = folder / "parts" / f"{stem}-{tool.name}", f"{stem}-{tool.name}"
    with writing_to(inside, "make room or name another file"):
        inside.mkdir(parents=True)
        path = export_dataset(ws, campaign, inside / f"{stem}{tool.endings[0].strip('/')}", format)
        if path.is_dir() or len(list(inside.iterdir())) > 1:
            path = Path(shutil.make_archive(str(folder / stem), "zip", inside))
        else:
            path = path.rename(folder / path.name)
        shutil.rmtree(folder / "parts")
    return path


def records(ws: Workspace, campaign: str) -> RecordSet:
    """The same as records, for the formats of other tools: with every answer of people that counts."""
    row, classes, _ = standing(ws, campaign)
    parts, used = _parts(ws, campaign)
    with looking(ws, campaign) as (connection, _):
        answers: dict[str, dict[str, str | None]] = {}
        for vote in vote_table.live_votes_of_campaign(connection, row.id):
            answers.setdefault(vote.key, {})[vote.person] = None if vote.label is None else classes[vote.label]
        items = campaign_table.items_of_split(connection, row.id, SplitName.TRAIN)
    shown = dict.fromkeys(("image", *(name for one in items for name in one.images or ())))
    found, names = [], set[str]()
    for part in parts:
        settled, said = settle(part, len(classes), sources_used=used), votes_on(part, classes)
        for k, key in enumerate(part.keys):
            names |= set(part.contents[k])
            label = int(part.predicted_ids[k])
            found.append(
                Record(
                    id=key,
                    content={name: None if value is None else str(value) for name, value in part.contents[k].items()},
                    label=classes[settled.chosen[k]],
                    probability=round(float(settled.probability[k]), 6),
                    origin=settled.origin[k],
                    answers=answers.get(key, {}) if part.believed is not None else {},
                    votes={source: max(vote, key=lambda c: vote[c]) for source, vote in said[k].items()},
                    predictions=(Prediction(MODEL, classes[label], round(float(part.predicted[k, label]), 6)),),
                    probabilities={name: round(float(settled.P[k, c]), 6) for c, name in enumerate(classes)},
                    flags=settled.flags[k],
                    rank=settled.rank[k],
                )
            )
    texts, images = [name for name in ("text",) if name in names], [name for name in shown if name in names]
    return RecordSet.of(found, classes, texts=texts, images=images, title=row.name)


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
    believed, now = session.posterior()[: len(data.X)], data.at_version(session.heard.version)
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
                votes=now.votes if train else now.votes_val if split is SplitName.VALIDATION else None,
            )
        )
    choice = session.rounds[-1].choice
    return parts, choice is None or choice.gamma > 0


def _content(item: ItemRow) -> Mapping[str, object]:
    shown = {"text": item.text, "image": item.image}
    return {name: value for name, value in shown.items() if value is not None} | dict(item.fields or {})


def _given(rows: list[ItemRow]) -> Ints:
    return np.array([UNRESOLVED if one.label is None else one.label for one in rows], dtype=np.int64)
