"""Arrays as one more form of content: files with a row a sample, which are told apart by their names.

    features, val_features, test_features       numbers
    weak, source_votes, val_source_votes        what is known; val_labels, test_labels, clean_labels: labels that are right
    items, val_items, media                     what people see

They become the data of a campaign without a detour over text, so X may stay in its file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.campaigns import FILE_NAMES, CampaignFiles
from labelchef.base.intake import ColumnRole, FilePlan, FileRole, Finding, Plan, Preview, PreviewRow, Severity
from labelchef.base.records import UNRESOLVED
from labelchef.believe import SourceVotes
from labelchef.believe.vote_forms import WEAK_SOURCE
from labelchef.data.campaign_data import CampaignData, read_files
from labelchef.data.contents import ItemTable, ids_of, pieces
from labelchef.data.files.formats import text_of

_ROLES = {
    "features": FileRole.FEATURES, "val_features": FileRole.TRUSTED, "val_labels": FileRole.TRUSTED,
    "source_votes": FileRole.VOTES, "val_source_votes": FileRole.VOTES, "weak": FileRole.WEAK, "test_features": FileRole.TEST,
    "test_labels": FileRole.TEST, "clean_labels": FileRole.TRUSTED, "items": FileRole.ITEMS, "val_items": FileRole.TRUSTED,
    "media": FileRole.MEDIA,
}  # fmt: skip
_BESIDE = ("val_features", "val_labels", "weak", "source_votes", "test_features", "clean_labels")
_LONGEST = 300


def are_arrays(folder: Path) -> bool:
    """Whether all files in a folder are called as arrays are, and features are among them."""
    stems = [one.stem if one.is_file() else one.name for one in folder.iterdir() if not one.name.startswith(".")]
    named = set(stems)
    only = named == {"features"} and any(one.suffix in (".npy", ".npz") for one in folder.iterdir())
    return named <= set(FILE_NAMES) and "features" in named and (only or bool(named & set(_BESIDE)))


@dataclass(frozen=True)
class Arrays:
    """Arrays that were read, and what people see of them first."""

    data: CampaignData
    preview: Preview


def look_at_arrays(files: CampaignFiles, n_rows: int = 20) -> Arrays:
    """Read the files; whatever cannot be used is refused with what was expected."""
    data = read_files(files)
    named = {name: getattr(files, name) for name in FILE_NAMES if getattr(files, name) is not None}
    plans = [FilePlan(str(path), _ROLES[name], why=f"called {name}") for name, path in named.items()]
    classes = tuple(map(str, data.names.names))
    plan = Plan(tuple(plans), files.by_position, files.classes)
    held, n_val = data.contents, len(data.validation[1])
    trusted = max(1, n_rows // 4) if n_val else 0
    votes = SourceVotes.soft(data.weak, WEAK_SOURCE) if data.votes is None else data.votes
    train = _rows("train", held.items, data.clean, votes, classes, n_rows - trusted)
    val = _rows("trusted", held.val_items, data.validation[1], data.votes_val, classes, trusted)
    return Arrays(
        data,
        Preview(
            plan=plan,
            classes=classes,
            n_train=len(data.X),
            n_trusted=n_val,
            n_test=0 if data.test is None else len(data.test[1]),
            sources=(WEAK_SOURCE,) if data.votes is None else data.votes.names,
            content={} if held.items is None else {name: _role(name) for name in held.items.columns if name != "id"},
            rows=(*train, *val),
            findings=tuple(_findings(data)),
        ),
    )


def _role(column: str) -> ColumnRole:
    return ColumnRole(column) if column in ("text", "image") else ColumnRole.SHOWN


def _rows(
    split: str, table: ItemTable | None, y: Ints, votes: SourceVotes | None, classes: Sequence[str], count: int
) -> list[PreviewRow]:
    """The first rows of a split."""
    count = min(count, len(y))
    shown = None if table is None or count == 0 else next(iter(pieces(table))).iloc[:count]
    ids = None if shown is None else ids_of(shown)
    content = {} if shown is None else {str(n): cells.tolist() for n, cells in shown.items() if n != "id"}
    return [
        PreviewRow(
            id=str(k) if ids is None else ids[k],
            split=split,
            content={name: (text_of(values[k]) or "")[:_LONGEST] for name, values in content.items()},
            label=None if y[k] == UNRESOLVED else classes[y[k]],
            votes={} if votes is None else _said(votes, k, classes),
        )
        for k in range(count)
    ]


def _said(votes: SourceVotes, row: int, classes: Sequence[str]) -> dict[str, str]:
    """What each source says of a row; of probabilities the largest, with its value."""
    C, found = len(classes), dict[str, str]()
    some = votes.table[[row]]
    for k in np.argsort(some.data, kind="stable").tolist():
        source, label = divmod(int(some.indices[k]), C)
        weight = float(some.data[k])
        found[votes.names[source]] = classes[label] if weight >= 1 else f"{classes[label]} {weight:.0%}"
    return found


def _findings(data: CampaignData) -> list[Finding]:
    found = []
    if data.from_nothing:
        found.append(
            Finding(
                "no-trusted", Severity.NOTE,
                "no row has a label that is known to be right: the first 50 answers are drawn by chance and become the trusted "
                "ones; figures follow then. If there are such labels, give them with their features: val_features, val_labels",
            )
        )  # fmt: skip
    if data.votes is not None and data.votes.n_sources == 0:
        found.append(
            Finding(
                "no-votes", Severity.WARNING,
                "no source says anything of the rows: only trusted labels and answers are learned from. Give votes "
                "(source_votes) or probabilities (weak)",
            )
        )  # fmt: skip
    return found
