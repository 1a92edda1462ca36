"""What people take home beside labels and votes: the whole data set and the model's predictions, as they stand after the last
closed round. The session is one of its own, so a worker may go on meanwhile.

Items are read and written some thousand at a time: memory holds the model's arrays (N, C), and one piece of the contents. The
formats of other tools, Feather and Excel are made whole.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.arrays import Ints
from labelchef.base.campaigns import SplitName
from labelchef.base.errors import InvalidInputError
from labelchef.base.files import writing_to
from labelchef.data.dataset import (
    Part,
    chosen_of,
    dataset_columns,
    most_probable,
    part_frame,
    ranks_of,
    settle,
    votes_on,
)
from labelchef.data.exchange.formats import FORMATS
from labelchef.data.exchange.records import Prediction, Record, RecordSet, suggesting
from labelchef.data.files import tables
from labelchef.loop.final import final_classifier
from labelchef.model.classifier import LinearClassifier
from labelchef.server.campaigns.access import looking
from labelchef.server.campaigns.trained import data_of
from labelchef.server.export.exchange import decided_of, within
from labelchef.server.items.copies import originals
from labelchef.server.sources.sources import session_after, standing
from labelchef.server.store import campaign_table, decision_table, vote_table
from labelchef.server.store.rows import CampaignRow, ItemRow
from labelchef.server.workspace import Workspace

MODEL = "labelchef"
"""What the final model is called in files of other tools."""
TRUSTED = "trusted"
_AT_ONCE = 10_000
"""Rows that are read and written at a time."""
_NAMES = {SplitName.TRAIN: "train", SplitName.VALIDATION: TRUSTED, SplitName.TEST: "test"}


def export_dataset(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every row with its content, final label, probability, origin, votes and flags, see `data.dataset`.

    `format` is one of tables ('csv', …) or of another tool ('label-studio', …), else by the ending of the file.
    """
    if format is not None and format not in FORMATS and format not in tables.FORMATS:
        known = ", ".join((*FORMATS, *tables.FORMATS))
        raise InvalidInputError(f"format is {format!r}; expected one of: {known}", code="format")
    with writing_to(path, "make room or name another file"):
        if format in FORMATS:
            return FORMATS[format].write(suggesting(records(ws, campaign)), path)
        tables.check_format(path, format)
        whole = _Whole.of(ws, campaign)
        return tables.write_frames(whole.frames, path, format)


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
    whole = _Whole.of(ws, campaign)
    with looking(ws, campaign) as (connection, _):
        answers: dict[str, dict[str, str | None]] = {}
        for vote in vote_table.live_votes_of_campaign(connection, row.id):
            answers.setdefault(vote.key, {})[vote.person] = None if vote.label is None else classes[vote.label]
    shown, found, names = {"image": None}, [], set[str]()
    for part in whole.parts(shown):
        settled, said = settle(part, len(classes), sources_used=whole.sources_used), votes_on(part, classes)
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
    whole = _Whole.of(ws, campaign)

    def frames() -> Iterator[pd.DataFrame]:
        for part in whole.parts():
            n = len(part.keys)
            found = {
                "id": list(part.keys),
                "split": [part.split] * n,
                "label": [whole.classes[c] for c in part.predicted_ids],
                "probability": part.predicted[np.arange(n), part.predicted_ids].round(6),
                **most_probable(part.predicted, part.predicted_ids, whole.classes),
                **{f"p: {name}": part.predicted[:, c].round(6) for c, name in enumerate(whole.classes)},
            }
            yield pd.DataFrame(found)

    with writing_to(path, "make room or name another file"):
        return tables.write_frames(frames, path, format)


def dataset(ws: Workspace, campaign: str) -> pd.DataFrame:
    """The table that `export_dataset` writes."""
    return pd.concat(_Whole.of(ws, campaign).frames(), ignore_index=True)


@dataclass(frozen=True)
class _Rows:
    """What is known of all rows of a split at once."""

    split: SplitName
    X: NDArray[Any]
    known: Part
    """Of all rows, without keys, contents and what the model says."""

    @property
    def n(self) -> int:
        return len(self.known.given)


@dataclass(frozen=True)
class _Whole:
    """Everything that the data set is made of but its contents, which are read piece by piece."""

    ws: Workspace
    row: CampaignRow
    classes: tuple[str, ...]
    model: LinearClassifier
    splits: tuple[_Rows, ...]
    sources_used: bool
    """Whether the learner believes any source."""
    content: tuple[str, ...]
    """Names of what people see of the rows."""

    @classmethod
    def of(cls, ws: Workspace, campaign: str) -> "_Whole":
        row, classes, closed = standing(ws, campaign)
        session, data = session_after(ws, row, len(closed)), data_of(ws, row)
        model = final_classifier(session, data.names)
        believed, now = session.posterior()[: len(data.X)], data.at_version(session.heard.version)
        with looking(ws, campaign) as (connection, _):
            last = decision_table.last_decisions(connection, row.id)
            decided = {one.position: decided_of(one) for one in last.values()}
            repeated = originals(connection, row, data.copies, np.arange(len(data.X)))
            names = dict.fromkeys(
                name for split in SplitName for name in campaign_table.content_names(connection, row.id, split)
            )
        doubts = {one.item: one for one in session.doubtful() if one.item in decided}
        clean = data.clean
        if data.copies is not None:
            clean = data.copies.shared(clean)
            decided, doubts = data.copies.extended(decided), data.copies.extended(doubts)
        train = replace(
            _bare(SplitName.TRAIN, clean), believed=believed, decided=decided, doubts=doubts, votes=now.votes,
            copies=repeated,
        )  # fmt: skip
        chosen, P = chosen_of(train, len(classes))
        train = replace(train, ranks=ranks_of(P[np.arange(len(chosen)), chosen]))
        trusted = replace(_bare(SplitName.VALIDATION, data.validation[1]), votes=now.votes_val)
        splits = [_Rows(SplitName.TRAIN, data.X, train), _Rows(SplitName.VALIDATION, data.validation[0], trusted)]
        if data.test is not None:
            splits.append(_Rows(SplitName.TEST, data.test[0], _bare(SplitName.TEST, data.test[1])))
        choice = session.rounds[-1].choice
        weighed = session.vote_weights()
        used = (choice is None or choice.gamma > 0) and (weighed is None or weighed.measured_on > 0)
        return cls(ws, row, classes, model, tuple(splits), used, tuple(names))

    def frames(self) -> Iterator[pd.DataFrame]:
        """The table, some thousand rows at a time."""
        columns = dataset_columns(self.content, self.classes, self.splits[0].known.votes)
        for part in self.parts():
            yield part_frame(part, self.classes, columns, sources_used=self.sources_used)

    def parts(self, images: dict[str, None] | None = None) -> Iterator[Part]:
        """The rows of every split; names of further images are added to `images`."""
        for rows in self.splits:
            for start in range(0, rows.n, _AT_ONCE):
                with self.ws.reading() as connection:
                    stop = min(rows.n, start + _AT_ONCE)
                    items = campaign_table.items_between(connection, self.row.id, rows.split, start, stop)
                if images is not None:
                    images.update(dict.fromkeys(name for one in items for name in one.images or ()))
                yield self._part(rows, slice(start, stop), items)

    def _part(self, rows: _Rows, here: slice, items: list[ItemRow]) -> Part:
        known, X = rows.known, np.asarray(rows.X[here])
        place = {str(name): c for c, name in enumerate(self.classes)}
        return Part(
            split=known.split,
            keys=[one.key for one in items],
            contents=[_content(one) for one in items],
            given=known.given[here],
            predicted=self.model.predict_proba(X),
            predicted_ids=np.array([place[str(name)] for name in self.model.predict(X).tolist()], dtype=np.int64),
            believed=None if known.believed is None else known.believed[here],
            decided=within(known.decided, here),
            doubts=within(known.doubts, here),
            copies=within(known.copies, here),
            votes=None if known.votes is None else known.votes.rows(here),
            ranks=None if known.ranks is None else known.ranks[here],
        )


def _bare(split: SplitName, given: Ints) -> Part:
    """Rows of which only the given labels are known yet."""
    return Part(_NAMES[split], (), (), given, np.empty((0, 0)), np.empty(0, dtype=np.int64))


def _content(item: ItemRow) -> Mapping[str, object]:
    shown = {"text": item.text, "image": item.image}
    return {name: value for name, value in shown.items() if value is not None} | dict(item.fields or {})
