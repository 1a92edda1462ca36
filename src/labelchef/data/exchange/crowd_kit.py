"""crowd-kit: a CSV of task, worker, label, which its aggregators take as `pandas.read_csv(path)`.

Workers are people: `answers` of records. An answer without a label has no place in this table and is left out, and so are items
without an answer. With `sources=True` the workers are sources instead.
"""

from pathlib import Path

from labelchef.data.exchange.csv_files import header_of, read_rows, write_rows
from labelchef.data.exchange.records import Format, Record, RecordSet, refuse

COLUMNS = ("task", "worker", "label")
_WHAT = "crowd-kit"


def read(path: Path, *, sources: bool = False) -> RecordSet:
    """The records of a table; of a worker's labels of a task the last counts. `sources`: workers are sources, not people."""
    _, rows = read_rows(path, _WHAT, COLUMNS)
    if not rows:
        refuse(f"{path} holds no row; expected task, worker and label in each")
    said: dict[str, dict[str, str]] = {}
    for k, row in enumerate(rows, 1):
        if not all(row[name] for name in COLUMNS):
            refuse(f"{path}, row {k} has an empty cell; expected task, worker and label")
        said.setdefault(row["task"], {})[row["worker"]] = row["label"]
    return RecordSet.of(Record(task, votes=one) if sources else Record(task, answers=one) for task, one in said.items())


def write(given: RecordSet, path: Path, *, sources: bool = False) -> Path:
    """A row an answer."""
    said = [(one.id, one.votes if sources else one.answers) for one in given.records]
    rows = [(id, who, label) for id, answers in said for who, label in answers.items() if label is not None]
    if not rows:
        who = "source votes on" if sources else "person has answered"
        refuse(f"no {who} any record; crowd-kit's table would be empty")
    if any(not who for _, who, _ in rows):
        refuse("an annotator has an empty name; expected a name for each worker")
    return write_rows(path, COLUMNS, rows)


def recognises(path: Path) -> bool:
    """Whether it is a CSV with these columns."""
    return set(COLUMNS) <= set(header_of(path))


CROWD_KIT = Format(
    name="crowd-kit",
    title="a crowd-kit table",
    endings=(".csv",),
    read=read,
    write=write,
    recognises=recognises,
    carries=frozenset({"id", "answers"}),
    people=True,
)
