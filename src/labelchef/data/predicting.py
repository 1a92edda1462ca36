"""New rows through a model file: its encoder, its classifier, a table with labels and probabilities.

    id, kept columns …, label, probability, most_probable, note, p: CLASS …     a row for each row of the file, in its order

The file may be of any format that campaigns are made from. It is encoded `CHUNK` rows at a time, so that memory holds the file's
texts and never all of X (n, D).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError, PredictionWarning, warn_caller
from labelchef.base.features import as_features
from labelchef.base.files import writing_to
from labelchef.base.intake import Progress, no_progress
from labelchef.data.dataset import most_probable
from labelchef.data.encoded import EncodedClassifier, load_model
from labelchef.data.encoders.numbers import FittedNumbers
from labelchef.data.files import tables
from labelchef.data.files.formats import Table, read_table
from labelchef.model.classifier import LinearClassifier

ID = "id"
CHUNK = 4096


@dataclass(frozen=True)
class Predicted:
    """Where the table is, and how many rows got each class."""

    path: Path
    n_rows: int
    counts: Mapping[str, int]


def predict(
    model: Path,
    rows: Path,
    out: Path,
    *,
    id: str | None = None,
    embeddings: Path | None = None,
    media: Path | None = None,
    keep: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Predicted:
    """Write labels and probabilities of the rows of a file.

    `id` names the column of ids; without it, that of the campaign or `id`, if there is one, else row numbers from 0. `keep` names
    columns of the file to write beside them. `embeddings` is a file with the numbers of each
    row, for a model that learned from such; `media` the folder of images, else that of the file.
    """
    tables.check_format(out)
    found = load_model(model)
    table = read_table(rows, progress=progress)
    if not len(table.frame) and not table.vectors:
        raise InvalidInputError(f"{rows} holds no rows; expected at least one", code="file")
    numbers = _numbers(table, None if embeddings is None else read_table(embeddings, progress=progress))
    folder = media or table.media or (rows if rows.is_dir() else rows.parent)
    own = found.encoder.id_column if isinstance(found, EncodedClassifier) else None
    there = [name for name in (own, ID) if name is not None and name in table.frame.columns]
    ids = _ids(table, id or next(iter(there), None))
    kept = _kept(table, keep)
    P, labels = _predicted(found, table.frame, numbers, folder, progress)
    names = [str(name) for name in found.classes_.tolist()]
    place = {name: c for c, name in enumerate(names)}
    chosen = np.array([place[str(label)] for label in labels], dtype=np.int64)
    frame = pd.DataFrame(
        {
            "id": ids,
            **kept,
            "label": [names[c] for c in chosen],
            "probability": P[np.arange(len(P)), chosen].round(6),
            **most_probable(P, chosen, names),
            **{f"p: {name}": P[:, c].round(6) for c, name in enumerate(names)},
        }
    )
    with writing_to(out, "make room or name another file"):
        tables.write_table(frame, out)
    return Predicted(out, len(frame), dict(Counter(frame["label"].tolist())))


def _predicted(
    model: LinearClassifier | EncodedClassifier,
    frame: pd.DataFrame,
    numbers: NDArray[Any] | None,
    folder: Path,
    progress: Progress,
) -> tuple[NDArray[np.float64], list[Any]]:
    n = len(frame) if numbers is None else len(numbers)
    P, labels = np.empty((n, len(model.classes_))), list[Any]()
    if isinstance(model, EncodedClassifier):
        reads_numbers = any(isinstance(block, FittedNumbers) for block in model.encoder.blocks)
        classifier, numbers = model.classifier, numbers if reads_numbers else None
    else:
        classifier, numbers = model, _features(model, frame, numbers)
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        given = None if numbers is None else numbers[part]
        if isinstance(model, EncodedClassifier):
            X: Any = model.encoder.transform(frame.iloc[part], given, folder)
        else:
            X = given
        P[part] = classifier.predict_proba(X)
        labels += classifier.predict(X).tolist()
        progress("predicting", min(start + CHUNK, n), n)
    return P, labels


def _numbers(table: Table, embeddings: Table | None) -> NDArray[Any] | None:
    """(n, d) numbers that came with the rows, or in a file beside them."""
    source = table if embeddings is None else embeddings
    found = [np.asarray(values) for values in source.vectors.values()]
    if embeddings is not None:
        if not found:
            columns = [name for name in embeddings.frame.columns if name != ID]
            found = [embeddings.frame[columns].astype(np.float64).to_numpy()] if columns else []
        if not found:
            raise InvalidInputError(
                f"{embeddings.path} holds no numbers; expected a row of them a sample", code="features"
            )
        if len(found[0]) != len(table.frame):
            raise InvalidInputError(
                f"{embeddings.path} has {len(found[0])} rows, {table.path} has {len(table.frame)}; expected as many, in the "
                "same order",
                code="features",
            )
        if ID in embeddings.frame.columns and ID in table.frame.columns:
            differ = embeddings.frame[ID].astype(str).to_numpy() != table.frame[ID].astype(str).to_numpy()
            if differ.any():
                k = int(differ.argmax())
                raise InvalidInputError(
                    f"row {k} has the id {table.frame[ID].iloc[k]!r} in {table.path} and {embeddings.frame[ID].iloc[k]!r} in "
                    f"{embeddings.path}; expected the same order. Sort both by id",
                    code="features",
                )
    return np.hstack(found) if found else None


def _features(model: LinearClassifier, frame: pd.DataFrame, numbers: NDArray[Any] | None) -> NDArray[Any]:
    """(n, d) for a model without encoder: the named columns, else the numbers that came, else all columns but the id."""
    names = model.feature_names
    if numbers is not None and names is None:
        return as_features(numbers, "features", columns=model.n_features_in_)
    wanted = [name for name in frame.columns if name != ID] if names is None else [str(name) for name in names]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise InvalidInputError(
            f"the columns {missing[:10]} are missing; the file has {list(frame.columns)[:20]}. The model reads {wanted[:20]}",
            code="columns",
        )
    values = frame[wanted].apply(pd.to_numeric, errors="coerce")
    return as_features(values.to_numpy(dtype=np.float64), "features", columns=model.n_features_in_)


def _kept(table: Table, names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns to carry along; one called like a column of the answer gets another name."""
    lost = [name for name in names if name not in table.frame.columns]
    if lost:
        raise InvalidInputError(
            f"--keep {lost[0]}: {table.path} has no such column; it has {list(table.frame.columns)[:20]}", code="column"
        )
    taken = (ID, "label", "probability")
    return {
        f"{name} (input)" if name in taken or name.startswith("p: ") else name: table.frame[name].tolist()
        for name in names
    }


def _ids(table: Table, name: str | None) -> list[str]:
    if name is not None and name not in table.frame.columns:
        raise InvalidInputError(
            f"there is no column {name!r}; {table.path} has {list(table.frame.columns)[:20]}. Name one of them: --id",
            code="id",
        )
    if name is not None:
        found = ["" if value != value or value is None else str(value) for value in table.frame[name].tolist()]
        repeated = sorted(key for key, times in Counter(found).items() if times > 1 and key)
        told = [f"{found.count('')} rows have no id"] if "" in found else []
        told += [f"{len(repeated)} ids repeat, such as {repeated[0]!r}"] if repeated else []
        if told:
            where = f"{table.path}: {' and '.join(told)}"
            warn_caller(f"{where}; predictions are in the order of the rows", PredictionWarning)
        return found
    n = len(table.frame) if len(table.frame) or not table.vectors else len(next(iter(table.vectors.values())))
    return [str(k) for k in range(n)]
