"""cleanlab: a CSV of given labels, predicted probabilities and what cleanlab finds in them. Writing needs the extra 'cleanlab'.

    id               the item
    given_label      y_i, the label of the record
    predicted_label  argmax_c P[i, c]
    label_quality    cleanlab.rank.get_label_quality_scores(y, P)[i]: P[i, y_i], small where the label is in doubt
    is_label_issue   cleanlab.filter.find_label_issues(y, P)[i]
    p: CLASS         P[i, c], a column a class; rows of P are scaled to sum 1 for cleanlab, and written as they are

P are the record's `probabilities`. cleanlab expects them to be out of sample: those of a campaign are what is believed of each
row with its label known, so decided rows look surer than they are. Tables that cleanlab itself makes are read too
(`CleanLearning.get_label_issues()`, `Datalab.get_issues("label")`, saved with `to_csv`): items are then named by the index. What
it takes for an issue becomes a flag, and its predicted label a prediction where no probabilities are there.

cleanlab is licensed under the AGPL below 2.8 and under the Apache licence from 2.8 on; older ones are not imported.
"""

import contextlib
import importlib.metadata
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from labelchef.base.errors import MissingExtraError
from labelchef.data.exchange.csv_files import header_of, read_rows, write_rows
from labelchef.data.exchange.records import Format, Prediction, Record, RecordSet, number, refuse

ISSUE = "cleanlab: label issue"
"""The flag of a label that cleanlab takes for an issue."""
COLUMNS = ("is_label_issue", "given_label", "predicted_label")
OLDEST = (2, 8)
_REMEDY = "pip install 'labelchef[cleanlab]'"
_WHAT = "cleanlab"
_P = "p: "
_quiet = threading.Lock()


def read(path: Path) -> RecordSet:
    """The records of a table of issues: given labels, probabilities where they are there, issues as flags."""
    header, rows = read_rows(path, _WHAT, COLUMNS)
    classes = [name.removeprefix(_P) for name in header if name.startswith(_P)]
    id_column = next((name for name in ("id", "") if name in header), None)
    notes = [] if id_column == "id" else ["items are named by row number: the table has no column id"]
    records = []
    for k, row in enumerate(rows):
        try:
            chances = {name: number(row[f"{_P}{name}"]) for name in classes}
        except ValueError as error:
            refuse(f"{path}, row {k + 1}: a probability is wrong: {error}; expected a number from 0 to 1")
        if not row["given_label"] or row["is_label_issue"] not in ("True", "False"):
            refuse(f"{path}, row {k + 1} has no given_label, or an is_label_issue that is not True or False")
        predicted = row["predicted_label"]
        records.append(
            Record(
                id=str(k) if id_column is None else row[id_column],
                label=row["given_label"],
                probabilities={name: chance for name, chance in chances.items() if chance is not None},
                predictions=() if classes or not predicted else (Prediction("cleanlab", predicted),),
                flags=(ISSUE,) if row["is_label_issue"] == "True" else (),
            )
        )
    return RecordSet.of(records, classes or None, notes=notes)


def write(given: RecordSet, path: Path) -> Path:
    """The table, with the issues that cleanlab finds."""
    require_cleanlab("the format 'cleanlab'")
    if not given.records or len(given.classes) < 2:
        refuse(
            f"there are {len(given.records)} records and {len(given.classes)} classes; expected records of two classes or more"
        )
    place = {name: c for c, name in enumerate(given.classes)}
    for one in given.records:
        if one.label is None or set(one.probabilities) != set(given.classes):
            refuse(f"record {one.id!r} has no label, or not a probability for each class; cleanlab needs both")
    y = np.array([place[str(one.label)] for one in given.records], dtype=np.int64)
    if len(set(y.tolist())) < 2:
        refuse(f"every record is labelled {given.classes[int(y[0])]!r}; cleanlab expects labels of two classes or more")
    P = np.array([[one.probabilities[name] for name in given.classes] for one in given.records])
    total = P.sum(axis=1, keepdims=True)
    P = np.where(total > 0, P / np.where(total > 0, total, 1.0), 1.0 / len(given.classes))
    from cleanlab.filter import find_label_issues  # here, because the import takes seconds
    from cleanlab.rank import get_label_quality_scores

    with quietly():
        issues, quality = find_label_issues(y, P, n_jobs=1), get_label_quality_scores(y, P)
    header = [
        "id",
        "given_label",
        "predicted_label",
        "label_quality",
        "is_label_issue",
        *(f"{_P}{c}" for c in given.classes),
    ]
    rows = [
        [
            one.id,
            str(one.label),
            given.classes[int(P[k].argmax())],
            repr(float(quality[k])),
            str(bool(issues[k])),
            *(repr(float(one.probabilities[name])) for name in given.classes),
        ]
        for k, one in enumerate(given.records)
    ]
    return write_rows(path, header, rows)


def recognises(path: Path) -> bool:
    """Whether it is a CSV with these columns."""
    return set(COLUMNS) <= set(header_of(path))


def require_cleanlab(what: str) -> None:
    """Refuse a missing or old cleanlab, without importing it."""
    try:
        version = importlib.metadata.version("cleanlab")
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtraError(f"{what} needs cleanlab; {_REMEDY}", code="cleanlab") from None
    if _release(version) < OLDEST:
        raise MissingExtraError(
            f"{what} needs cleanlab 2.8 or later and found {version}, which is licensed under the AGPL; {_REMEDY}",
            code="cleanlab",
        )


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Suppress what the library warns about and prints; it has no option for that.

    Output of other threads is not suppressed.
    """
    muted: Any = _Muted(sys.stdout)
    with _quiet, warnings.catch_warnings(), contextlib.redirect_stdout(muted):
        warnings.simplefilter("ignore", UserWarning)
        yield


class _Muted:
    """A stream that drops what its own thread writes, and passes on what other threads write."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        return len(text) if threading.get_ident() == self._thread else int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version.

    >>> _release("2.10.1") > OLDEST > _release("2.7.1rc1")
    True
    """
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


CLEANLAB = Format(
    name="cleanlab",
    title="a cleanlab table",
    endings=(".csv",),
    read=read,
    write=write,
    recognises=recognises,
    carries=frozenset({"id", "label", "probabilities"}),
    extra="cleanlab",
)
