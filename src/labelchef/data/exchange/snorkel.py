"""Snorkel: the label matrix L with the names that it lacks, in one .npz.

    L        (n, m) int64; L[i, j] is the class id that source j gives item i, −1 where it says nothing
    ids      (n,) the items;  sources (m,) the columns;  classes (C,) class id → name

`numpy.load(path)["L"]` is what `snorkel.labeling.LFAnalysis` and `LabelModel.fit` take. A bare matrix (.npy, or an .npz with L
alone) is read too; its items are named by row, its sources 'source 0', …, its classes by their id.
"""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.errors import TooLargeError
from labelchef.base.files import whole_file
from labelchef.base.npy import read_npy, read_npz
from labelchef.data.exchange.records import Format, Record, RecordSet, refuse

ABSTAIN = -1
_WHAT = "Snorkel"


def read(path: Path) -> RecordSet:
    """The records of a label matrix: what every source says of each item."""
    held = _load(path)
    L = held.get("L")
    if L is None or L.ndim != 2 or L.dtype.kind not in "iu" or L.size == 0:
        shape = "none" if L is None else f"{L.dtype} of shape {L.shape}"
        refuse(f"{path}: the matrix L is {shape}; expected whole numbers (items, sources), {ABSTAIN} for no vote")
    n, m = L.shape
    notes = [] if "ids" in held else ["items are named by their row number, from 0: the file has no ids"]
    ids = _texts(held, "ids", path) if "ids" in held else [str(i) for i in range(n)]
    sources = _texts(held, "sources", path) if "sources" in held else [f"source {j}" for j in range(m)]
    top = int(L.max(initial=0))
    classes = _texts(held, "classes", path) if "classes" in held else [str(c) for c in range(top + 1)]
    if len(ids) != n or len(sources) != m:
        refuse(
            f"{path} has {len(ids)} ids and {len(sources)} sources for a matrix {L.shape}; expected one a row and a column"
        )
    if top >= len(classes) or int(L.min(initial=0)) < ABSTAIN:
        refuse(
            f"{path} has votes from {int(L.min())} to {top} and {len(classes)} classes; expected {ABSTAIN} to {len(classes) - 1}"
        )
    if len(set(sources)) < m:
        refuse(f"{path} names a source twice; expected distinct names")
    records = []
    for i in range(n):
        said = np.flatnonzero(L[i] != ABSTAIN)
        records.append(Record(ids[i], votes={sources[j]: classes[L[i, j]] for j in said}))
    return RecordSet.of(records, classes, notes=notes)


def write(given: RecordSet, path: Path) -> Path:
    """The matrix of votes of sources, in the order of the records."""
    sources = sorted({source for one in given.records for source in one.votes})
    if not sources:
        refuse("no source votes on any record; expected votes of sources for a label matrix")
    L = label_matrix(given, sources)
    names = {"ids": [one.id for one in given.records], "sources": sources, "classes": list(given.classes)}
    for what, texts in names.items():
        if cut := [text for text in texts if text.endswith("\0")]:
            refuse(f"{cut[0]!r} among the {what} ends with NUL, which NumPy's texts cannot hold; rename it")
    with whole_file(path) as stream:
        ids, sources_, classes = (np.array(texts, dtype=np.str_) for texts in names.values())
        np.savez_compressed(stream, L=L, ids=ids, sources=sources_, classes=classes)
    return path


def label_matrix(given: RecordSet, sources: Sequence[str]) -> Ints:
    """(n, m) class ids, −1 where a source says nothing."""
    place = {name: c for c, name in enumerate(given.classes)}
    return np.array(
        [[place.get(one.votes.get(s, ""), ABSTAIN) for s in sources] for one in given.records], dtype=np.int64
    )


def recognises(path: Path) -> bool:
    """Whether it is an .npz with the matrix L and our names."""
    if path.suffix.lower() != ".npz":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return {"L.npy", "sources.npy"} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        refuse(f"{_WHAT}: there is no file {path}; check the path")
    try:
        return read_npz(path) if zipfile.is_zipfile(path) else {"L": read_npy(path)}
    except TooLargeError:
        raise
    except Exception as error:  # whatever the reader meets in a file that is not what its name says
        refuse(f"{_WHAT}: {path} cannot be read: {error}. Expected a label matrix as .npz or .npy; write it again")


def _texts(held: dict[str, Any], name: str, path: Path) -> list[str]:
    if held[name].ndim != 1:
        refuse(f"{path}: {name} has shape {held[name].shape}; expected a list of names")
    return [str(one) for one in held[name].tolist()]


SNORKEL = Format(
    name="snorkel",
    title="a Snorkel label matrix",
    endings=(".npz",),
    read=read,
    write=write,
    recognises=recognises,
    carries=frozenset({"id", "votes"}),
)
