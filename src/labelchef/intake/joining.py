"""Files become rows: everything is joined by the id of the item; by row number only where the plan says so.

    items      the samples; trusted and test files name some of them by id, which then leave train, or bring rows of their own
    votes      wide, long or soft, all become one long table (item, source, label[, probability])
    features   numbers by id, beside each other

The result does not depend on the order of rows in any file: rows are in the order of their ids (by number, where all are
numbers), or of the items file where that has no ids. Nothing is guessed in silence: what does not fit becomes a finding, with
what came, what was expected and what to do. An exception is raised only for what cannot be read at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.campaign.votes import WEAK_SOURCE
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.intake import ColumnRole, FilePlan, FileRole, Finding, Plan, Progress, Severity, no_progress
from labelchef.intake import checking
from labelchef.intake.detecting import NO_LABEL, NO_VOTE, SPLITS, numbers_of
from labelchef.intake.raw import ID, Raw, Rows
from labelchef.io import formats
from labelchef.io.formats import Table

VOTE_COLUMNS = ("item", "source", "label")
PROBABILITY = "probability"
_CONTENT = (ColumnRole.TEXT, ColumnRole.IMAGE, ColumnRole.FEATURE, ColumnRole.SHOWN)
_LEARNED = (ColumnRole.TEXT, ColumnRole.IMAGE, ColumnRole.FEATURE)
_ALMOST_NOTHING = 0.05
"""Of the ids of a file: fewer that match are an error, as it is probably a join by the wrong column."""


def join(plan: Plan, *, more_votes: pd.DataFrame | None = None, progress: Progress = no_progress) -> Raw:
    """Read the files of a plan and join their rows; `more_votes` (item, source, label[, probability]) are added."""
    return _Joiner(plan, progress).raw(more_votes)


@dataclass(frozen=True)
class _File:
    """A file that was read."""

    plan: FilePlan
    table: Table

    @property
    def title(self) -> str:
        return Path(self.plan.path).name

    @property
    def stem(self) -> str:
        file, part = formats.locate(self.plan.path)
        return part if part is not None else file.stem

    @property
    def key(self) -> str | None:
        """The column of ids."""
        return next(iter(self.plan.named(ColumnRole.ID)), None)

    def column(self, name: str) -> pd.Series:
        return self.table.frame[name]

    def texts(self, role: ColumnRole) -> tuple[str, ...]:
        """Columns of text with this role."""
        return tuple(name for name in self.plan.named(role) if name not in self.table.vectors)

    def arrays(self, role: ColumnRole) -> tuple[str, ...]:
        """Vectors with this role."""
        return tuple(name for name in self.plan.named(role) if name in self.table.vectors)


@dataclass
class _Pool:
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

    def __len__(self) -> int:
        return len(self.frame)


class _Joiner:
    """Joins the files of one plan."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.plan, self.progress = plan, progress
        self.findings: list[Finding] = list(plan.findings)
        self.files = [self._read(one) for one in plan.files if one.role in _TABLES]
        self.votes: list[pd.DataFrame] = []

    def raw(self, more_votes: pd.DataFrame | None) -> Raw:
        pool = self._items()
        content = self._content_roles(pool)
        self._compare_content(pool, content)
        for role, split in ((FileRole.TEST, "test"), (FileRole.TRUSTED, "trusted")):
            self._labelled(pool, content, role, split)
        self._own_labels(pool)
        features = self._features(pool)
        self._collect_votes(pool, more_votes)
        classes, votes = self._classes(pool)
        media = self._media(pool, content)
        _type_features(pool.frame, content)
        splits = {name: self._rows(pool, features, name) for name in ("train", "trusted", "test")}
        found = checking.Joined(splits, content, classes, votes, self.plan)
        self.findings += checking.findings_of(found, self.progress)
        return Raw(
            train=splits["train"],
            trusted=splits["trusted"],
            test=splits["test"] if len(splits["test"]) else None,
            content=content,
            classes=classes,
            votes=votes,
            media=media,
            findings=tuple(sorted(self.findings, key=lambda one: _GRAVITY[one.severity])),
        )

    def _find(
        self, code: str, severity: Severity, message: str, examples: Iterable[str] = (), count: int | None = None
    ) -> None:
        shown = tuple(examples)
        self.findings.append(Finding(code, severity, message, len(shown) if count is None else count, shown[:5]))

    def _read(self, one: FilePlan) -> _File:
        table = formats.read_table(one.path, progress=self.progress)
        gone = [
            name for name, role in one.columns.items() if role is not ColumnRole.IGNORED and name not in table.columns
        ]
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
        return _File(one, table)

    def _of(self, role: FileRole) -> list[_File]:
        return [one for one in self.files if one.plan.role is role]

    # items

    def _items(self) -> _Pool:
        items = self._of(FileRole.ITEMS)
        if not items:
            items = [one for role in (FileRole.FEATURES, FileRole.WEAK) for one in self._of(role)][:1]
        if not items:
            raise InvalidInputError(
                "no file has the samples; expected one with texts, images or columns to learn from: labelchef "
                "init NAME data.csv",
                code="files",
            )
        named = all(one.key is not None for one in items)
        if len(items) > 1 and not named and not self.plan.by_position:
            lacking = next(one for one in items if one.key is None)
            self._no_ids(lacking, "the other files with samples")
            items = [one for one in items if one.key is not None] or items[:1]
            named = items[0].key is not None
        frame, arrived = self._one_file(items[0], named)
        for other in items[1:]:
            frame, arrived = self._merged(frame, arrived, other, named)
        if not named and len(self.files) > 1 and not self.plan.by_position:
            self._find(
                "row-numbers",
                Severity.NOTE,
                f"{items[0].title} has no column with ids; rows are called by their numbers, from 0. If a "
                "column names them: "
                "--id COLUMN",
            )
        n = len(frame)
        pool = _Pool(frame, np.full(n, "train", dtype=object), [None] * n, named, n, arrived)
        pool.row_of = {key: k for k, key in enumerate(frame[ID].tolist())}
        return pool

    def _one_file(self, one: _File, named: bool) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """The rows of an items file with distinct ids, in the order of the ids."""
        kept = one.plan.role is FileRole.ITEMS
        held = [n for role in _CONTENT for n in one.texts(role)] if kept else []
        columns = [name for name in one.table.frame.columns if name in held and name != one.key]
        if not named:
            keys = pd.Series([str(k) for k in range(len(one.table))], dtype="str")
            return _with_id(keys, one.table.frame[columns]), np.arange(len(one.table))
        assert one.key is not None, "named items have a column of ids"
        keys, rows = self._usable_ids(one)
        frame = _with_id(keys, one.table.frame.iloc[rows][columns])
        used = [
            c for c, role in one.plan.columns.items() if role is not ColumnRole.IGNORED and c not in one.table.vectors
        ]
        order = self._distinct_order(one, rows, keys, used)
        return frame.iloc[order].reset_index(drop=True), rows[order]

    def _usable_ids(self, one: _File) -> tuple[pd.Series, NDArray[np.int64]]:
        """The ids of the rows that have one, and these rows."""
        assert one.key is not None, "asked only of files with ids"
        keys = one.column(one.key)
        rows = np.flatnonzero(keys.notna().to_numpy() & (keys != "").to_numpy())
        lost = len(keys) - len(rows)
        if lost:
            self._find(
                "ids-empty",
                Severity.WARNING,
                f"{one.title}: {lost} of {len(keys)} rows have nothing in the id column {one.key!r} and are "
                "left out. Fill it in, or "
                "name another column: --id COLUMN",
                [f"row {k + 1}" for k in np.flatnonzero(~np.isin(np.arange(len(keys)), rows))[:5]],
                lost,
            )
        return keys.iloc[rows].reset_index(drop=True), rows

    def _distinct_order(
        self, one: _File, rows: NDArray[np.int64], keys: pd.Series, used: Sequence[str]
    ) -> NDArray[np.int64]:
        """Positions of the first row of each id, ids in their order; rows with one id are compared."""
        double = keys.duplicated(keep=False)
        order = _id_order(keys)
        if not double.any():
            return order
        held = one.table.frame.iloc[rows].reset_index(drop=True)[list(used)].loc[double.to_numpy()]
        same = held.duplicated(keep=False) & (held.groupby(keys[double]).transform("nunique", dropna=False) <= 1).all(
            axis=1
        )
        ids = keys[double].unique().tolist()
        contradict = keys[double][~same.to_numpy()].unique().tolist()
        if contradict:
            self._find(
                "duplicate-ids",
                Severity.ERROR,
                f"{one.title}: {len(contradict)} ids in {one.key!r} name rows that differ; expected one row "
                "for each id. Remove the "
                "wrong rows, or name the column that tells rows apart: --id COLUMN",
                contradict,
            )
        if len(ids) > len(contradict):
            alike = sorted(set(ids) - set(contradict))
            self._find(
                "repeated-rows",
                Severity.WARNING,
                f"{one.title}: {len(alike)} ids occur in several equal rows; one of each is kept",
                alike,
            )
        texts = pd.DataFrame({ID: keys, **{f"c{k}": held[name] for k, name in enumerate(used)}})
        ranked = texts.sort_values(list(texts.columns), kind="stable").index.to_numpy()
        first = ranked[~keys.iloc[ranked].duplicated().to_numpy()]
        return first[_id_order(keys.iloc[first].reset_index(drop=True))]

    def _merged(
        self, frame: pd.DataFrame, arrived: NDArray[np.int64], other: _File, named: bool
    ) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """More items: further rows where the ids are new, further columns where they are known."""
        more, rows = self._one_file(other, named)
        known, new = set(frame[ID]), [name for name in more.columns if name not in frame.columns]
        fresh = ~more[ID].isin(known).to_numpy()
        if named and fresh.all() and not new:
            both = pd.concat([frame, more], ignore_index=True)
            order = _id_order(both[ID])
            return both.iloc[order].reset_index(drop=True), np.concatenate([arrived, rows + len(arrived)])[order]
        if not named and len(more) != len(frame):
            self._find(
                "different-lengths",
                Severity.ERROR,
                f"{other.title} has {len(more)} rows; expected {len(frame)}, as the other file has: by "
                "position they belong together",
            )
            return frame, arrived
        self._tell_unmatched(other, more[ID].tolist(), known)
        clash = [name for name in more.columns if name in frame.columns and name != ID]
        both_frame = frame.merge(more[[ID, *new]], on=ID, how="left")
        if clash:
            there = frame[[ID, *clash]].merge(more[[ID, *clash]], on=ID, suffixes=("", " "))
            unequal = [name for name in clash if not there[name].fillna("").equals(there[f"{name} "].fillna(""))]
            if unequal:
                self._find(
                    "columns-differ",
                    Severity.WARNING,
                    f"{other.title}: the columns {', '.join(map(repr, unequal[:5]))} are in another file too, "
                    "with other values; those "
                    "of the first file are used. Rename or remove one",
                    unequal,
                )
        return both_frame, arrived

    def _content_roles(self, pool: _Pool) -> dict[str, ColumnRole]:
        roles: dict[str, ColumnRole] = {}
        for one in self._of(FileRole.ITEMS):
            for name, role in one.plan.columns.items():
                if role in _CONTENT and name not in one.table.vectors and _safe(name) in pool.frame.columns:
                    roles.setdefault(_safe(name), role)
        return roles

    # trusted and test

    def _labelled(self, pool: _Pool, content: Mapping[str, ColumnRole], role: FileRole, split: str) -> None:
        told: dict[str, set[str]] = {}
        rows_of: dict[str, tuple[_File, int]] = {}
        for one in self._of(role):
            label = next(iter(one.plan.named(ColumnRole.LABEL)), None)
            if label is None:
                self._find(
                    "no-label",
                    Severity.ERROR,
                    f"{one.title} is {split} but has no column with labels; it has "
                    f"{list(one.table.columns)[:10]}. Name it: "
                    "--truth-column COLUMN",
                )
                continue
            self._read_labels(pool, content, one, label, split, told, rows_of)
        wrong = sorted(key for key, labels in told.items() if len(labels) > 1)
        if wrong:
            self._find(
                "contradictory-labels",
                Severity.WARNING,
                f"{len(wrong)} ids have two different {split} labels; they are not used as {split}. Decide "
                "which is right",
                [f"{key}: {' / '.join(sorted(told[key]))}" for key in wrong],
            )
        both = []
        fresh: list[str] = []
        for key, labels in told.items():
            if len(labels) > 1:
                continue
            if key not in pool.row_of:
                fresh.append(key)
                continue
            at = pool.row_of[key]
            if pool.split[at] == "test" and split == "trusted":
                both.append(key)
                continue
            pool.split[at], pool.labels[at] = split, next(iter(labels))
        if both:
            self._find(
                "trusted-and-test",
                Severity.WARNING,
                f"{len(both)} ids are trusted and test; they are used as test only, so that the last "
                "measurement stays honest",
                sorted(both),
            )
        ordered = [fresh[k] for k in _id_order(pd.Series(fresh, dtype="str"))] if fresh else []
        self._append(pool, content, split, ordered, rows_of, {key: next(iter(told[key])) for key in ordered})

    def _read_labels(
        self,
        pool: _Pool,
        content: Mapping[str, ColumnRole],
        one: _File,
        label: str,
        split: str,
        told: dict[str, set[str]],
        rows_of: dict[str, tuple[_File, int]],
    ) -> None:
        labels = one.column(label)
        missing = int((labels.isna() | labels.isin(NO_LABEL)).sum())
        if missing:
            self._find(
                "labels-empty",
                Severity.WARNING,
                f"{one.title}: {missing} of {len(labels)} rows have no label in {label!r} and are not used as {split}",
                count=missing,
            )
        own = self._brings_content(one, content)
        keys = self._keys_of(pool, one, own)
        if keys is None:
            return
        known = [key for key in keys if key is not None]
        if not own:
            self._tell_unmatched(one, known, set(pool.row_of))
        for k, (key, value) in enumerate(zip(keys, labels.tolist(), strict=True)):
            if key is None or value != value or value in NO_LABEL or (key not in pool.row_of and not own):
                continue
            told.setdefault(key, set()).add(value)
            rows_of.setdefault(key, (one, k))
        twice = Counter(known)
        if own:
            self._check_own(one, content, [k for k, n in twice.items() if n > 1 and k not in pool.row_of])

    def _check_own(self, one: _File, content: Mapping[str, ColumnRole], twice: list[str]) -> None:
        assert one.key is not None or not twice, "ids that were made are distinct"
        columns = [
            name
            for name in one.plan.columns
            if content.get(_safe(name)) in _LEARNED and name in one.table.frame.columns
        ]
        if not twice or not columns or one.key is None:
            return
        held = one.table.frame[one.column(one.key).isin(twice)]
        differ = held.groupby(one.key)[columns].nunique(dropna=False).max(axis=1)
        wrong = sorted(str(key) for key in differ.index[differ > 1])
        if wrong:
            self._find(
                "duplicate-ids",
                Severity.ERROR,
                f"{one.title}: {len(wrong)} ids in {one.key!r} name rows with different content; expected one "
                "row for each id",
                wrong,
            )

    def _brings_content(self, one: _File, content: Mapping[str, ColumnRole]) -> bool:
        """Whether a file has rows of its own: all the content that the model learns from, or features by id."""
        learned = {name for name, role in content.items() if role in _LEARNED}
        has = {_safe(name) for name, role in one.plan.columns.items() if role in _LEARNED}
        vectors = any(other.plan.role is FileRole.FEATURES or other.arrays(ColumnRole.FEATURE) for other in self.files)
        if learned:
            return learned <= has and (not vectors or one.key is not None)
        return vectors and one.key is not None

    def _keys_of(self, pool: _Pool, one: _File, own: bool) -> list[str | None] | None:
        """The id of each row; None if nothing says which items they are."""
        n = len(one.table)
        if one.key is not None:
            if not pool.named and not self.plan.by_position and not own:
                self._no_item_ids(one)
                return None
            keys, rows = self._usable_ids(one)
            found: list[str | None] = [None] * n
            for key, row in zip(keys.tolist(), rows.tolist(), strict=True):
                found[row] = key
            return found
        if self.plan.by_position and not own:
            return self._by_position(pool, one)
        if own:
            return [f"{one.stem}-{k}" for k in range(n)]
        self._no_ids(one, "the items")
        return None

    def _by_position(self, pool: _Pool, one: _File) -> list[str | None] | None:
        if len(one.table) != len(pool.position):
            self._find(
                "different-lengths",
                Severity.ERROR,
                f"{one.title} has {len(one.table)} rows; expected {len(pool.position)}, one for each item: by "
                "position they belong "
                "together. Give ids in both files",
            )
            return None
        found: list[str | None] = [None] * len(one.table)
        for key, row in zip(pool.frame[ID].tolist()[: pool.n_items], pool.position.tolist(), strict=True):
            found[row] = key
        return found

    def _no_ids(self, one: _File, others: str) -> None:
        self._find(
            "no-ids",
            Severity.ERROR,
            f"{one.title} has no column with ids, so nothing says which rows of {others} its rows belong to; "
            "it is not used. Name the "
            "column: --id COLUMN; or, if row k belongs to row k: --by-position",
            [one.plan.path],
        )

    def _no_item_ids(self, one: _File) -> None:
        self._find(
            "no-ids",
            Severity.ERROR,
            f"{one.title} names items in {one.key!r}, but the items have no column with ids; it is not used. "
            "Name the column of the "
            "items: --id COLUMN; or, if these are row numbers counted from 0: --by-position",
            [one.plan.path],
        )

    def _compare_content(self, pool: _Pool, content: Mapping[str, ColumnRole]) -> None:
        """Texts and images that a file repeats beside its ids must be those of the items: else the ids mean other items."""
        for one in self.files:
            if one.key is None or one.plan.role is FileRole.ITEMS or not (pool.named or self.plan.by_position):
                continue
            same = [
                n for n in one.table.frame.columns if content.get(_safe(str(n))) in (ColumnRole.TEXT, ColumnRole.IMAGE)
            ]
            shared = [(key, k) for k, key in enumerate(self._item_keys(pool, one)) if key is not None]
            for name in same:
                there, here = pool.frame[_safe(name)].tolist(), one.column(name).tolist()
                differ = [key for key, k in shared if _differ(there[pool.row_of[key]], here[k])]
                if differ:
                    grave = len(differ) > 0.1 * len(shared)
                    self._find(
                        "content-differs",
                        Severity.ERROR if grave else Severity.WARNING,
                        f"{one.title}: for {len(differ)} of {len(shared)} ids its {name!r} is not the one that the items have; "
                        f"the ids in {one.key!r} may mean other items. Name the right column: --id COLUMN; or remove {name!r}",
                        sorted(differ),
                    )

    def _tell_unmatched(self, one: _File, keys: Sequence[str], known: set[str]) -> None:
        """Say how many ids of a file are none of the items', and whether another way of writing them would fit."""
        asked = set(keys)
        unknown = sorted(asked - known)
        if not unknown:
            return
        hint = _hint(unknown, known)
        share = 1 - len(unknown) / max(1, len(asked))
        if share < _ALMOST_NOTHING:
            self._find(
                "ids-unmatched",
                Severity.ERROR,
                f"{one.title}: only {len(asked) - len(unknown)} of {len(asked)} ids in {one.key!r} are ids of "
                f"items ({_some(known)})"
                f"{hint}. Is it the right column? Name it: --id COLUMN",
                unknown,
            )
        else:
            self._find(
                "ids-unmatched",
                Severity.WARNING,
                f"{one.title}: {len(unknown)} of {len(asked)} ids in {one.key!r} are no ids of items; their "
                f"rows are not used{hint}",
                unknown,
            )

    def _append(
        self,
        pool: _Pool,
        content: Mapping[str, ColumnRole],
        split: str,
        keys: list[str],
        rows_of: Mapping[str, tuple[_File, int]],
        labels: Mapping[str, str],
    ) -> None:
        """Rows of trusted and test files that are no items."""
        if not keys:
            return
        added: list[pd.DataFrame] = []
        groups: dict[int, list[str]] = {}
        for key in keys:
            groups.setdefault(id(rows_of[key][0]), []).append(key)
        for some in groups.values():
            one = rows_of[some[0]][0]
            rows = [rows_of[key][1] for key in some]
            held = one.table.frame.iloc[rows].reset_index(drop=True)
            columns = {_safe(n): n for n in held.columns if _safe(str(n)) in content}
            added.append(
                pd.DataFrame(
                    {ID: pd.array(some, dtype="str"), **{safe: held[name].array for safe, name in columns.items()}}
                )
            )
        fresh = pd.concat(added, ignore_index=True).reindex(columns=pool.frame.columns)
        fresh = fresh.set_index(ID).loc[keys].reset_index()
        start = len(pool)
        pool.frame = pd.concat([pool.frame, fresh], ignore_index=True)
        pool.split = np.concatenate([pool.split, np.full(len(keys), split, dtype=object)])
        pool.labels += [labels[key] for key in keys]
        pool.row_of |= {key: start + k for k, key in enumerate(keys)}

    def _own_labels(self, pool: _Pool) -> None:
        """Labels and splits that the items themselves have."""
        has_trusted = bool(self._of(FileRole.TRUSTED))
        known: list[int] = []
        for one in self._of(FileRole.ITEMS):
            split = next(iter(one.plan.named(ColumnRole.SPLIT)), None)
            label = next(iter(one.texts(ColumnRole.LABEL)), None)
            keys = self._item_keys(pool, one)
            if split is not None:
                self._apply_split(pool, one, keys, split, label)
            if label is None:
                continue
            for key, value in zip(keys, one.column(label).tolist(), strict=True):
                if key is None or value != value or value in NO_LABEL:
                    continue
                at = pool.row_of[key]
                if pool.labels[at] is not None:
                    continue
                pool.labels[at] = value
                known.append(at)
        if not has_trusted and not (pool.split == "trusted").any():
            pool.split[known] = "trusted"

    def _apply_split(self, pool: _Pool, one: _File, keys: list[str | None], split: str, label: str | None) -> None:
        sources = one.texts(ColumnRole.SOURCE)
        named = [name for name in sources if name.lower() in ("label", "y", "class", "target", "category", "folder")]
        truth = label or (sources[0] if len(sources) == 1 else next(iter(named), None))
        values = [None if value != value else SPLITS.get(value.strip().lower()) for value in one.column(split).tolist()]
        unknown = sorted({str(v) for v, known in zip(one.column(split).tolist(), values, strict=True) if known is None})
        if unknown:
            self._find(
                "unknown-split",
                Severity.WARNING,
                f"{one.title}: {', '.join(map(repr, unknown[:5]))} in {split!r} are no known parts; expected "
                "train, trusted (valid, "
                "dev) or test. These rows are train",
                unknown,
            )
        labels = [None] * len(values) if truth is None else one.column(truth).tolist()
        lost = 0
        for key, part, value in zip(keys, values, labels, strict=True):
            if key is None or part in (None, "train") or pool.split[pool.row_of[key]] != "train":
                continue
            if value is None or value != value or value in NO_LABEL:
                lost += 1
                continue
            pool.split[pool.row_of[key]], pool.labels[pool.row_of[key]] = part, value
        if lost:
            self._find(
                "labels-empty",
                Severity.WARNING,
                f"{one.title}: {lost} rows of the trusted or test part have no label; they stay in train. Name "
                "the column of labels: "
                "--truth-column COLUMN",
                count=lost,
            )

    def _item_keys(self, pool: _Pool, one: _File) -> list[str | None]:
        """The id of each row of an items file; None for rows that are not used."""
        if one.key is None:
            if not pool.named and len(one.table) == pool.n_items:
                return [str(k) for k in range(len(one.table))]
            return [None] * len(one.table)
        return [None if key != key or key not in pool.row_of else key for key in one.column(one.key).tolist()]

    # features

    def _features(self, pool: _Pool) -> NDArray[np.float32] | None:
        blocks: list[NDArray[np.float32]] = []
        lacking = np.zeros(len(pool), dtype=bool)
        for one in self.files:
            if one.plan.role not in (FileRole.FEATURES, FileRole.ITEMS, FileRole.TRUSTED, FileRole.TEST):
                continue
            block = _numbers_of_file(one)
            if block is None:
                continue
            items = one.plan.role is not FileRole.FEATURES or (not self._of(FileRole.ITEMS) and one.key is None)
            keys = self._item_keys(pool, one) if items else self._keys_of(pool, one, own=False)
            if keys is None:
                continue
            rows = np.full(len(pool), -1)
            clash = _place(keys, pool.row_of, rows, block)
            if clash:
                self._find(
                    "duplicate-ids",
                    Severity.ERROR,
                    f"{one.title}: {len(clash)} ids in {one.key!r} have different rows of numbers; expected "
                    "one row for each id",
                    sorted(clash),
                )
            if one.plan.role is FileRole.FEATURES:
                self._tell_unmatched(one, [key for key in keys if key is not None], set(pool.row_of))
            found = np.zeros((len(pool), block.shape[1]), dtype=np.float32)
            found[rows >= 0] = block[rows[rows >= 0]]
            wrong = ~np.isfinite(found).all(axis=1)
            found[wrong] = 0
            if wrong.any():
                self._find(
                    "numbers-missing",
                    Severity.WARNING,
                    f"{one.title}: {int(wrong.sum())} rows have numbers that are missing or infinite; they are "
                    "left out",
                    pool.frame[ID].to_numpy()[np.flatnonzero(wrong)[:5]].tolist(),
                    int(wrong.sum()),
                )
            lacking |= (rows < 0) | wrong
            blocks.append(found)
        if not blocks:
            return None
        if lacking.any():
            share = float(lacking.mean())
            self._find(
                "features-missing",
                Severity.ERROR if share > 0.5 else Severity.WARNING,
                f"{int(lacking.sum())} of {len(pool)} rows have no row of numbers in the files of features and "
                "are left out. Encode "
                "them too, or leave the features out",
                pool.frame[ID][lacking].tolist(),
            )
            pool.split[lacking] = "none"
        return np.concatenate(blocks, axis=1) if len(blocks) > 1 else blocks[0]

    # votes

    def _collect_votes(self, pool: _Pool, more_votes: pd.DataFrame | None) -> None:
        sources: Counter[str] = Counter()
        for one in self.files:
            found = self._votes_of(pool, one)
            taken = {name for frame in found for name in frame["source"].unique().tolist() if sources[name]}
            for frame in found:
                own = [f"{name} ({one.stem})" if name in taken else name for name in frame["source"].tolist()]
                sources.update(set(own))
                self.votes.append(frame.assign(source=pd.array(own, dtype="str")))
        if more_votes is not None:
            lacking = [name for name in VOTE_COLUMNS if name not in more_votes.columns]
            if lacking:
                raise InvalidInputError(
                    f"more votes have the columns {list(more_votes.columns)}; expected item, source and label",
                    code="votes",
                )
            columns = [*VOTE_COLUMNS, *([PROBABILITY] if PROBABILITY in more_votes.columns else [])]
            frame = more_votes[columns].dropna(subset=list(VOTE_COLUMNS)).reset_index(drop=True)
            self.votes.append(frame.astype(dict.fromkeys(VOTE_COLUMNS, "str")))

    def _votes_of(self, pool: _Pool, one: _File) -> list[pd.DataFrame]:
        role = one.plan.role
        if role is FileRole.VOTES and one.plan.named(ColumnRole.VOTER):
            return self._long(pool, one)
        texts, arrays, probabilities = (
            one.texts(ColumnRole.SOURCE),
            one.arrays(ColumnRole.SOURCE),
            one.texts(ColumnRole.CLASS),
        )
        if not (texts or arrays or probabilities):
            if role is FileRole.VOTES:
                self._find(
                    "no-votes-in-file",
                    Severity.ERROR,
                    f"{one.title} is votes but no column of it is a source; it has "
                    f"{list(one.table.columns)[:10]}. Set the columns' "
                    "roles on the page, or give a long table with item, source and label",
                )
            return []
        if role in (FileRole.VOTES, FileRole.WEAK):
            keys = self._keys_of(pool, one, own=False)
            if keys is not None:
                self._tell_unmatched(one, [key for key in keys if key is not None], set(pool.row_of))
        else:
            keys = self._labelled_keys(pool, one)
        if keys is None:
            return []
        found: list[pd.DataFrame] = []
        single = role is FileRole.VOTES and len(texts) == 1 and not arrays
        for name in texts:
            source = one.stem if single and name.lower() in ("label", "labels", "y", "class", "vote") else name
            found.append(_hard(keys, source, one.column(name).tolist()))
        for name in arrays:
            values = np.asarray(one.table.vectors[name])
            for j in range(values.shape[1]):
                column = [formats.text_of(value) for value in values[:, j].tolist()]
                found.append(_hard(keys, f"{name}_{j}", column))
        if probabilities:
            found += self._soft(one, keys, probabilities)
        return [frame for frame in found if len(frame)]

    def _labelled_keys(self, pool: _Pool, one: _File) -> list[str | None]:
        """The id of each row whose source columns are votes: not those whose label comes from the same column."""
        keys = self._item_keys(pool, one)
        if one.plan.named(ColumnRole.SPLIT) and not one.plan.named(ColumnRole.LABEL):
            return [None if key is None or pool.split[pool.row_of[key]] != "train" else key for key in keys]
        return keys

    def _long(self, pool: _Pool, one: _File) -> list[pd.DataFrame]:
        keys = self._keys_of(pool, one, own=False)
        if keys is None:
            return []
        self._tell_unmatched(one, [key for key in keys if key is not None], set(pool.row_of))
        voter, vote = one.plan.named(ColumnRole.VOTER)[0], next(iter(one.plan.named(ColumnRole.VOTE)), None)
        if vote is None:
            self._find(
                "no-label",
                Severity.ERROR,
                f"{one.title} has voters but no column with their labels; set its role: vote",
            )
            return []
        frame = pd.DataFrame({"item": keys, "source": one.column(voter).tolist(), "label": one.column(vote).tolist()})
        likely = next(iter(one.texts(ColumnRole.PROBABILITY)), None)
        if likely is not None:
            frame[PROBABILITY] = numbers_of(one.column(likely)).to_numpy()
            wrong = int((frame[PROBABILITY].isna() | ~frame[PROBABILITY].between(0, 1)).sum())
            if wrong:
                self._find(
                    "probabilities",
                    Severity.WARNING,
                    f"{one.title}: {wrong} rows have no probability between 0 and 1 in {likely!r}; they are no votes",
                    count=wrong,
                )
                frame = frame[frame[PROBABILITY].between(0, 1)]
        return [frame.dropna(subset=list(VOTE_COLUMNS)).reset_index(drop=True)]

    def _soft(self, one: _File, keys: list[str | None], names: Sequence[str]) -> list[pd.DataFrame]:
        values = np.stack([numbers_of(one.column(name)).to_numpy() for name in names], axis=1)
        total = values.sum(axis=1)
        bad = ~np.isfinite(total) | (np.abs(total - 1) > 0.02) | (values < 0).any(axis=1)
        if bad.any():
            self._find(
                "probabilities",
                Severity.WARNING,
                f"{one.title}: {int(bad.sum())} of {len(bad)} rows of probabilities do not sum to 1; they are no votes",
                [f"row {k + 1}" for k in np.flatnonzero(bad)[:5]],
                int(bad.sum()),
            )
        source = WEAK_SOURCE if len(self._of(FileRole.WEAK)) <= 1 else one.stem
        classes = class_names(names)
        rows, columns = np.nonzero((values > 0) & ~bad[:, None])
        frame = pd.DataFrame(
            {
                "item": [keys[row] for row in rows.tolist()],
                "source": source,
                "label": [classes[column] for column in columns.tolist()],
                PROBABILITY: values[rows, columns],
            }
        )
        return [frame.dropna(subset=["item"]).reset_index(drop=True)]

    # classes

    def _classes(self, pool: _Pool) -> tuple[tuple[str, ...], pd.DataFrame]:
        votes = self._tidy(pool)
        trusted = {label for label in pool.labels if label is not None}
        said = set(votes["label"].unique().tolist())
        given = self.plan.classes
        if given is not None:
            votes = self._only_given(votes, given)
            outside = sorted(trusted - set(given))
            if outside:
                self._find(
                    "unknown-class",
                    Severity.ERROR,
                    f"the labels {_some(outside)} of trusted or test rows are none of the classes {_some(given)}"
                    f"{checking.suggestion(outside, given)}. Add them: --classes; or mend the file",
                    outside,
                )
                for k, label in enumerate(pool.labels):
                    if label in outside:
                        pool.labels[k] = None
                        pool.split[k] = "train" if pool.split[k] in ("trusted", "test") else pool.split[k]
            return given, votes
        if trusted and said and checking.all_numbers(said) != checking.all_numbers(trusted) and not said & trusted:
            numbers, names = ("votes", "trusted labels") if checking.all_numbers(said) else ("trusted labels", "votes")
            self._find(
                "class-numbers",
                Severity.ERROR,
                f"the {numbers} are numbers ({_some(said if numbers == 'votes' else trusted)}), the {names} are names "
                f"({_some(trusted if numbers == 'votes' else said)}); which is which is unknown. Name the "
                "classes in the order of their "
                "numbers, from 0: --classes name0,name1",
                count=len(said),
            )
        return tuple(checking.ordered(trusted | said)), votes

    def _only_given(self, votes: pd.DataFrame, given: tuple[str, ...]) -> pd.DataFrame:
        """Votes for the classes that were named; numbers stand for their positions where no class is called by a number."""
        if not checking.all_numbers(given):
            numbers = {str(k): name for k, name in enumerate(given)}
            votes = votes.assign(label=votes["label"].replace(numbers).astype("str"))
        unknown = ~votes["label"].isin(given)
        if unknown.any():
            names = sorted(votes["label"][unknown].unique().tolist())
            self._find(
                "unknown-class",
                Severity.WARNING,
                f"{int(unknown.sum())} votes are for {_some(names)}, none of the classes {_some(given)}"
                f"{checking.suggestion(names, given)}; they are left out. Add the class: --classes; or mend the votes",
                names,
                int(unknown.sum()),
            )
        return votes[~unknown].reset_index(drop=True)

    def _tidy(self, pool: _Pool) -> pd.DataFrame:
        """All votes on known items, each source once an item, in a fixed order."""
        soft = any(PROBABILITY in frame.columns for frame in self.votes)
        columns = [*VOTE_COLUMNS, *([PROBABILITY] if soft else [])]
        if not self.votes:
            return pd.DataFrame({name: pd.array([], dtype="str") for name in VOTE_COLUMNS})
        held = [f if not soft or PROBABILITY in f.columns else f.assign(**{PROBABILITY: 1.0}) for f in self.votes]
        votes = pd.concat([frame[columns] for frame in held], ignore_index=True)
        votes = votes.astype(dict.fromkeys(VOTE_COLUMNS, "str"))
        known = set(self.plan.classes or ()) | {label for label in pool.labels if label is not None}
        words = votes["label"].str.strip().str.lower().isin(NO_VOTE) & ~votes["label"].isin(known - NO_LABEL)
        votes = votes[~words & votes["item"].isin(set(pool.row_of))].drop_duplicates(ignore_index=True)
        keys = ["item", "source"]
        again = votes.duplicated([*keys, *(["label"] if soft else [])], keep=False)
        if soft:
            total = votes.groupby(keys)[PROBABILITY].transform("sum")
            again = again | (total > 1.02)
        if again.any():
            wrong = votes[again].drop_duplicates(keys)
            pairs = pd.MultiIndex.from_frame(votes[keys]).isin(pd.MultiIndex.from_frame(wrong[keys]))
            self._find(
                "contradictory-votes",
                Severity.WARNING,
                f"{len(wrong)} times a source says two things of one item; these votes are left out",
                sorted(f"{source} on {item}" for item, source in zip(wrong["item"], wrong["source"], strict=True)),
            )
            votes = votes[~pairs]
        at = votes["item"].map(pool.row_of)
        order = pd.DataFrame({"at": at, "source": votes["source"], "label": votes["label"]}).sort_values(
            ["at", "source", "label"], kind="stable"
        )
        return votes.loc[order.index].reset_index(drop=True)

    # images

    def _media(self, pool: _Pool, content: Mapping[str, ColumnRole]) -> Path | None:
        columns = [name for name, role in content.items() if role is ColumnRole.IMAGE]
        if not columns:
            return None
        roots = [Path(one.path) for one in self.plan.of(FileRole.MEDIA)]
        for one in self._of(FileRole.ITEMS):
            if one.table.media is not None:
                roots.append(one.table.media)
            elif one.plan.named(ColumnRole.IMAGE):
                beside = formats.locate(one.plan.path)[0].parent
                roots += [
                    beside,
                    *sorted(path for path in beside.iterdir() if path.is_dir() and not path.name.startswith(".")),
                ]
        names = {name: [_relative(value, roots) for value in pool.frame[name].tolist()] for name in columns}
        some = [value for values in names.values() for value in values if value is not None]
        root = max(roots, key=lambda folder: sum((folder / value).is_file() for value in some[:200]), default=None)
        if root is None:
            return None
        for name, values in names.items():
            there = [value is not None and _inside(root, value) for value in values]
            lost = [str(value) for value, found in zip(values, there, strict=True) if value is not None and not found]
            pool.frame[name] = pd.array(
                [v if found else None for v, found in zip(values, there, strict=True)], dtype="str"
            )
            if lost:
                self._find(
                    "images-missing",
                    Severity.ERROR if len(lost) > 0.5 * len(values) else Severity.WARNING,
                    f"{len(lost)} of {len(values)} images in {name!r} are not below {root}; these rows have no "
                    "image. Name the folder: "
                    "--images FOLDER",
                    lost,
                )
        return root

    def _rows(self, pool: _Pool, features: NDArray[np.float32] | None, split: str) -> Rows:
        rows = np.flatnonzero(pool.split == split)
        frame = pool.frame.iloc[rows].reset_index(drop=True)
        labels = tuple(pool.labels[k] for k in rows.tolist())
        return Rows(frame, labels, None if features is None else features[rows])


_TABLES = (
    FileRole.ITEMS,
    FileRole.TRUSTED,
    FileRole.TEST,
    FileRole.VOTES,
    FileRole.WEAK,
    FileRole.FEATURES,
)
_GRAVITY = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def class_names(columns: Sequence[str]) -> list[str]:
    """The classes that columns of probabilities are named by, without what all names begin with.

    >>> class_names(["ham", "spam"]), class_names(["p_ham", "p_spam"]), class_names(["prob(0)", "prob(1)"])
    (['ham', 'spam'], ['ham', 'spam'], ['0', '1'])
    """
    for prefix in ("probability_", "proba_", "prob_", "p_", "probability ", "prob ", "p "):
        if all(name.lower().startswith(prefix) and len(name) > len(prefix) for name in columns):
            return [name[len(prefix) :] for name in columns]
    if all(name.endswith(")") and name.lower().startswith(("p(", "prob(")) for name in columns):
        return [name[name.index("(") + 1 : -1] for name in columns]
    return list(columns)


def _safe(name: str) -> str:
    """The name of a content column in the joined rows, where `id` is the id."""
    return "id (column)" if name == ID else name


def _with_id(keys: pd.Series, content: pd.DataFrame) -> pd.DataFrame:
    frame = content.rename(columns=_safe).reset_index(drop=True)
    frame.insert(0, ID, keys.to_numpy())
    return frame.astype({ID: "str"})


def _id_order(keys: pd.Series) -> NDArray[np.int64]:
    """Order of ids: by number where all are numbers, else as text."""
    values = keys.tolist()
    if all(key.isascii() and key.isdecimal() and len(key) < 19 for key in values):
        return np.asarray(sorted(range(len(values)), key=lambda k: (int(values[k]), values[k])), dtype=np.int64)
    return np.asarray(sorted(range(len(values)), key=lambda k: values[k]), dtype=np.int64)


def _hard(keys: Sequence[str | None], source: str, labels: Sequence[Any]) -> pd.DataFrame:
    kept = [(key, label) for key, label in zip(keys, labels, strict=True) if key is not None and isinstance(label, str)]
    frame = pd.DataFrame(kept, columns=["item", "label"], dtype="str")
    frame.insert(1, "source", source)
    return frame.astype({"source": "str"})


def _numbers_of_file(one: _File) -> NDArray[np.float32] | None:
    """(n, d) of a file: its vectors, and, in a file of features, its columns of numbers."""
    blocks = [np.asarray(one.table.vectors[name], dtype=np.float32) for name in one.arrays(ColumnRole.FEATURE)]
    if one.plan.role is FileRole.FEATURES:
        columns = one.texts(ColumnRole.FEATURE)
        if columns:
            held = [numbers_of(one.column(name)).to_numpy(dtype=np.float32) for name in columns]
            blocks.append(np.stack(held, axis=1))
    return np.concatenate(blocks, axis=1) if blocks else None


def _place(
    keys: Sequence[str | None], at: Mapping[str, int], rows: NDArray[np.int64], block: NDArray[np.float32]
) -> set[str]:
    """Write the row of `block` that each row of the pool has; returns ids with several, different rows, which have none."""
    clash: set[str] = set()
    for k, key in enumerate(keys):
        if key is None or key not in at:
            continue
        before = rows[at[key]]
        if before >= 0 and not np.array_equal(block[before], block[k], equal_nan=True):
            clash.add(key)
        rows[at[key]] = k
    for key in clash:
        rows[at[key]] = -1
    return clash


def _type_features(frame: pd.DataFrame, content: Mapping[str, ColumnRole]) -> None:
    """Columns to learn from become numbers where all that is in them are numbers."""
    for name, role in content.items():
        if role is ColumnRole.FEATURE:
            numbers = numbers_of(frame[name])
            if numbers.notna().any():
                frame[name] = numbers


def _hint(unknown: Sequence[str], known: set[str]) -> str:
    """Another way of writing ids that would make them match."""
    for what, change in _WRITINGS.items():
        there = {change(key): key for key in known}
        found = [key for key in unknown[:2000] if change(key) in there]
        if len(found) > 0.5 * len(unknown[:2000]):
            return f". They would match without {what}: {found[0]!r} here, {there[change(found[0])]!r} there"
    return ""


_WRITINGS: Mapping[str, Callable[[str], str]] = {
    "spaces around them": str.strip,
    "regard to upper and lower case": str.casefold,
    "leading zeros": lambda key: key.lstrip("0"),
    "'.0' at the end": lambda key: key.removesuffix(".0"),
    "file endings": lambda key: PurePosixPath(key).stem,
    "folders before the name": lambda key: PurePosixPath(key).name,
}


def _differ(one: Any, other: Any) -> bool:
    """Whether two texts are there and differ by more than spaces."""
    return isinstance(one, str) and isinstance(other, str) and one.split() != other.split()


def _some(values: Iterable[str]) -> str:
    shown = sorted(values)
    return ", ".join(map(repr, shown[:4])) + (", …" if len(shown) > 4 else "")


def _relative(value: Any, roots: Sequence[Path]) -> str | None:
    """A path of an image below one of the folders, with '/' between its parts."""
    if not isinstance(value, str) or not value.strip():
        return None
    text = value.strip().replace("\\", "/")
    for root in roots:
        if text.startswith("/") and Path(text).is_relative_to(root.resolve()):
            return Path(text).relative_to(root.resolve()).as_posix()
    return text.removeprefix("./")


def _inside(root: Path, name: str) -> bool:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.suffix.lower() not in formats.IMAGE_SUFFIXES or "\0" in name:
        return False
    file = root / name
    return file.is_file() and file.resolve().is_relative_to(root.resolve())
