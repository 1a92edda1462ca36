"""Which rows belong to which item: the files of a plan, opened, and their rows matched by id.

By row number only where the plan says so. What does not match becomes a finding.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, FilePlan, FileRole, Finding, Plan, Progress, Severity
from labelchef.data.files import formats
from labelchef.data.files.formats import Table
from labelchef.data.intake.raw import ID

_ALMOST_NOTHING = 0.05
"""Of the ids of a file: fewer that match are an error, as it is probably a join by the wrong column."""
_TABLES = (
    FileRole.ITEMS,
    FileRole.TRUSTED,
    FileRole.TEST,
    FileRole.VOTES,
    FileRole.WEAK,
    FileRole.FEATURES,
)


@dataclass(frozen=True)
class OpenFile:
    """A file that was read."""

    plan: FilePlan
    table: Table

    @property
    def title(self) -> str:
        """The file's name, for messages."""
        return Path(self.plan.path).name

    @property
    def stem(self) -> str:
        """The name without its ending: what a source or row without a name of its own is called by."""
        file, part = formats.locate(self.plan.path)
        return part if part is not None else file.stem

    @cached_property
    def key(self) -> str | None:
        """The column of ids; where there is none, the images, if each is there once."""
        images = [n for n in self.texts(ColumnRole.IMAGE) if self.column(n).is_unique and self.column(n).notna().all()]
        return next(iter((*self.plan.named(ColumnRole.ID), *images)), None)

    def column(self, name: str) -> pd.Series:
        """One column of text."""
        return self.table.frame[name]

    def texts(self, role: ColumnRole) -> tuple[str, ...]:
        """Columns of text with this role."""
        return tuple(name for name in self.plan.named(role) if name not in self.table.vectors)

    def arrays(self, role: ColumnRole) -> tuple[str, ...]:
        """Vectors with this role."""
        return tuple(name for name in self.plan.named(role) if name in self.table.vectors)


@dataclass
class Pool:
    """All rows that there are, of every split."""

    frame: pd.DataFrame
    """Column id, then the content."""
    split: NDArray[Any]
    """(n,) train, trusted or test"""
    labels: list[str | None]
    named: bool
    """Whether the items have ids of their own; else ids are row numbers."""
    n_items: int
    """Rows of the items, which are the first."""
    position: NDArray[np.int64]
    """(n_items,) row of the items file that each of the first rows is."""
    row_of: dict[str, int] = field(default_factory=dict)
    """Id → row."""
    images: bool = False
    """Whether ids are paths of images in a folder: files may name them without the first of their folders."""
    _ends: dict[str, str] = field(default_factory=dict)
    """End of a path → id, where one id ends so."""
    _n_ended: int = 0

    def __len__(self) -> int:
        return len(self.frame)

    def named_as(self, key: str) -> str:
        """The id that a file means."""
        if key in self.row_of or not self.images:
            return key
        if self._n_ended != len(self.row_of):
            self._ends, self._n_ended = ends_of_paths(self.row_of), len(self.row_of)
        return self._ends.get(key, key)


def ends_of_paths(paths: Iterable[str]) -> dict[str, str]:
    """End of a path → the path, without the first of its folders; only where one path ends so.

    >>> ends_of_paths(["photos/cat/1.png", "photos/dog/1.png"])
    {'cat/1.png': 'photos/cat/1.png', 'dog/1.png': 'photos/dog/1.png'}
    """
    ends = [(path[k + 1 :], path) for path in paths for k, sign in enumerate(path) if sign == "/"]
    times = Counter(end for end, _ in ends)
    return {end: path for end, path in ends if times[end] == 1}


class Matcher:
    """The files of a plan, and which items their rows are of."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.plan, self.progress = plan, progress
        self.findings: list[Finding] = list(plan.findings)
        self.files = _under_one_folder([self._open(one) for one in plan.files if one.role in _TABLES])

    def find(
        self, code: str, severity: Severity, message: str, examples: Iterable[str] = (), count: int | None = None
    ) -> None:
        """Keep a finding; its count is the number of examples unless told."""
        shown = tuple(examples)
        self.findings.append(Finding(code, severity, message, len(shown) if count is None else count, shown[:5]))

    def _open(self, one: FilePlan) -> OpenFile:
        table = formats.read_table(one.path, progress=self.progress)
        there = set(table.columns)
        gone = [name for name, role in one.columns.items() if role is not ColumnRole.IGNORED and name not in there]
        if gone:
            raise InvalidInputError(
                f"{one.path} has no column {gone[0]!r}; it has {list(table.columns)[:15]}. Detect the roles again",
                code="column",
            )
        for name, role in one.columns.items():
            if name in table.vectors and role in (ColumnRole.ID, ColumnRole.LABEL, ColumnRole.TEXT, ColumnRole.IMAGE):
                raise InvalidInputError(
                    f"{one.path}: column {name!r} holds rows of numbers and cannot be the {role}; expected text",
                    code="column",
                )
        self.findings += table.findings
        return OpenFile(one, table)

    def of(self, role: FileRole) -> list[OpenFile]:
        """The files with this role."""
        return [one for one in self.files if one.plan.role is role]

    def usable_ids(self, one: OpenFile) -> tuple[pd.Series, NDArray[np.int64]]:
        """The ids of the rows that have one, and these rows."""
        assert one.key is not None, "asked only of files with ids"
        keys = one.column(one.key)
        rows = np.flatnonzero(keys.notna().to_numpy() & (keys != "").to_numpy())
        lost = len(keys) - len(rows)
        if lost:
            self.find(
                "ids-empty",
                Severity.WARNING,
                f"{one.title}: {lost} of {len(keys)} rows have nothing in the id column {one.key!r} and are left out. Fill it "
                "in, or name another column: --id COLUMN",
                [f"row {k + 1}" for k in np.flatnonzero(~np.isin(np.arange(len(keys)), rows))[:5]],
                lost,
            )
        return keys.iloc[rows].reset_index(drop=True), rows

    def keys_of(self, pool: Pool, one: OpenFile, own: bool) -> list[str | None] | None:
        """The id of each row; None if nothing says which items they are."""
        n = len(one.table)
        if one.key is not None:
            if not pool.named and not self.plan.by_position and not own:
                self.no_item_ids(one)
                return None
            keys, rows = self.usable_ids(one)
            found: list[str | None] = [None] * n
            for key, row in zip(keys.tolist(), rows.tolist(), strict=True):
                found[row] = pool.named_as(key)
            return found
        if self.plan.by_position and not own:
            return self.by_position(pool, one)
        if own:
            return [f"{one.stem}-{k}" for k in range(n)]
        self.no_ids(one, "the items")
        return None

    def by_position(self, pool: Pool, one: OpenFile) -> list[str | None] | None:
        """The id of each row of a file that has as many rows as there are items."""
        if len(one.table) != len(pool.position):
            self.find(
                "different-lengths",
                Severity.ERROR,
                f"{one.title} has {len(one.table)} rows; expected {len(pool.position)}, one for each item: by position they "
                "belong together. Give ids in both files",
            )
            return None
        found: list[str | None] = [None] * len(one.table)
        for key, row in zip(pool.frame[ID].tolist()[: pool.n_items], pool.position.tolist(), strict=True):
            found[row] = key
        return found

    def no_ids(self, one: OpenFile, others: str) -> None:
        """Say that a file has no ids."""
        self.find(
            "no-ids",
            Severity.ERROR,
            f"{one.title} has no column with ids, so nothing says which rows of {others} its rows belong to; it is not used. "
            "Name the column: --id COLUMN; or, if row k belongs to row k: --by-position",
            [one.plan.path],
        )

    def no_item_ids(self, one: OpenFile) -> None:
        """Say that a file has ids, and the items have none."""
        self.find(
            "no-ids",
            Severity.ERROR,
            f"{one.title} names items in {one.key!r}, but the items have no column with ids; it is not used. Name the column of "
            "the items: --id COLUMN; or, if these are row numbers counted from 0: --by-position",
            [one.plan.path],
        )

    def tell_unmatched(self, one: OpenFile, keys: Sequence[str], known: set[str]) -> None:
        """Say how many ids of a file are none of the items', and whether another way of writing them would fit."""
        asked = set(keys)
        unknown = sorted(asked - known)
        if not unknown:
            return
        hint = _hint(unknown, known)
        share = 1 - len(unknown) / max(1, len(asked))
        if share < _ALMOST_NOTHING:
            self.find(
                "ids-unmatched",
                Severity.ERROR,
                f"{one.title}: only {len(asked) - len(unknown)} of {len(asked)} ids in {one.key!r} are ids of items "
                f"({some(known)}){hint or '. Is it the right column? Name it: --id COLUMN'}",
                unknown,
            )
        else:
            self.find(
                "ids-unmatched",
                Severity.ERROR
                if hint and share < _NEARLY_ALL
                else Severity.WARNING,  # those that match are no fair sample
                f"{one.title}: {len(unknown)} of {len(asked)} ids in {one.key!r} are no ids of items; their rows are not "
                f"used{hint}",
                unknown,
            )

    def item_keys(self, pool: Pool, one: OpenFile) -> list[str | None]:
        """The id of each row of an items file; None for rows that are not used."""
        if one.key is None:
            if not pool.named and len(one.table) == pool.n_items:
                return [str(k) for k in range(len(one.table))]
            return [None] * len(one.table)
        return [None if key != key or key not in pool.row_of else key for key in one.column(one.key).tolist()]


def _under_one_folder(files: list[OpenFile]) -> list[OpenFile]:
    """The same files; images of several folders are named from the folder that holds them all."""
    roots = {one.table.media for one in files if one.table.media is not None}
    if len(roots) < 2:
        return files
    common = Path(os.path.commonpath([root.resolve() for root in roots]))
    found = []
    for one in files:
        media = one.table.media
        if media is not None:
            below = media.resolve().relative_to(common)
            names = [(below / name).as_posix() for name in one.table.frame["image"].tolist()]
            frame = one.table.frame.assign(image=pd.array(names, dtype="str"))
            found.append(replace(one, table=replace(one.table, frame=frame, media=common)))
        else:
            found.append(one)
    return found


_NEARLY_ALL = 0.95
"""Share of ids that match, from which on others that are written otherwise may be left out."""


def _hint(unknown: Sequence[str], known: set[str]) -> str:
    """Another way of writing ids that would make them match."""
    for what, change in _WRITINGS.items():
        there = {change(key): key for key in known}
        found = [key for key in unknown[:2000] if change(key) in there]
        if len(found) > 0.5 * len(unknown[:2000]):
            lost = what in ("leading zeros", "'.0' at the end")
            why = ": the program that wrote one of them took them for numbers; let it keep them as text" if lost else ""
            return (
                f". They would match without {what}: {found[0]!r} here, {there[change(found[0])]!r} there. Write them alike in "
                f"both files{why}"
            )
    return ""


_WRITINGS: Mapping[str, Callable[[str], str]] = {
    "spaces around them": str.strip,
    "regard to upper and lower case": str.casefold,
    "leading zeros": lambda key: key.lstrip("0"),
    "'.0' at the end": lambda key: key.removesuffix(".0"),
    "file endings": lambda key: PurePosixPath(key).stem,
    "folders before the name": lambda key: PurePosixPath(key).name,
}


def some(values: Iterable[str]) -> str:
    """A few of the values, for messages."""
    shown = sorted(values)
    return ", ".join(map(repr, shown[:4])) + (", …" if len(shown) > 4 else "")
