"""Files become rows: everything is joined by the id of the item; by row number only where the plan says so.

    items      the samples; trusted and test files name some of them by id, which then leave train, or bring rows of their own
    votes      wide, long or soft, all become one long table (item, source, label[, probability])
    features   numbers by id, beside each other

The result does not depend on the order of rows in any file: rows are in the order of their ids (by number, where all are
numbers), or of the items file where that has no ids. Nothing is guessed in silence: what does not fit becomes a finding, with
what came, what was expected and what to do. An exception is raised only for what cannot be read at all.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, FileRole, Plan, Progress, Severity, no_progress
from labelchef.data.files import formats
from labelchef.data.intake import checking, telling
from labelchef.data.intake.casting import Casting
from labelchef.data.intake.detecting import shown_only
from labelchef.data.intake.matching import Matcher, OpenFile, Pool
from labelchef.data.intake.profiles import NO_LABEL, SPLITS, numbers_of, option
from labelchef.data.intake.raw import ID, Raw, Rows

_CONTENT = (ColumnRole.TEXT, ColumnRole.IMAGE, ColumnRole.FEATURE, ColumnRole.SHOWN)
_ROW_NUMBERS = frozenset({"row", "index", "idx", "position", "line", "nr", "#"})
_LEARNED = (ColumnRole.TEXT, ColumnRole.IMAGE, ColumnRole.FEATURE)


def join(plan: Plan, *, more_votes: pd.DataFrame | None = None, progress: Progress = no_progress) -> Raw:
    """Read the files of a plan and join their rows; `more_votes` (item, source, label[, probability]) are added."""
    return _Joiner(plan, progress).raw(more_votes)


class _Joiner:
    """Joins the files of one plan."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.plan, self.progress = plan, progress
        self.matcher = Matcher(plan, progress)

    def raw(self, more_votes: pd.DataFrame | None) -> Raw:
        pool = self._items()
        content = self._content_roles(pool)
        self._tell_row_numbers()
        self._compare_content(pool, content)
        for role, split in ((FileRole.TEST, "test"), (FileRole.TRUSTED, "trusted")):
            self._labelled(pool, content, role, split)
        self._own_labels(pool)
        hidden = self._hide_telling(pool, content)
        features = self._features(pool)
        casting = Casting(self.matcher)
        casting.collect(pool, more_votes)
        classes, votes = casting.classes(pool)
        media = self._media(pool, content)
        pool.frame = _typed(pool.frame, content)
        splits = {name: self._rows(pool, features, name) for name in ("train", "trusted", "test")}
        found = checking.Joined(splits, content, classes, votes, self.plan, media)
        self.matcher.findings += checking.findings_of(found, self.progress)
        return Raw(
            train=splits["train"],
            trusted=splits["trusted"],
            test=splits["test"] if len(splits["test"]) else None,
            content=content,
            classes=classes,
            votes=votes,
            media=media,
            findings=tuple(sorted(self.matcher.findings, key=lambda one: _GRAVITY[one.severity])),
            id_column=next((one.key for one in self.matcher.of(FileRole.ITEMS)), None),
            hidden=hidden,
            fold_case=self.plan.fold_case,
        )

    # items

    def _items(self) -> Pool:
        items = self.matcher.of(FileRole.ITEMS)
        if not items:
            items = [one for role in (FileRole.FEATURES, FileRole.WEAK) for one in self.matcher.of(role)][:1]
        if not items:
            raise InvalidInputError(
                "no file has the samples; expected one with texts, images or columns to learn from: labelchef init NAME data.csv",
                code="files",
            )
        named = all(one.key is not None for one in items)
        if len(items) > 1 and not named and not self.plan.by_position:
            lacking = next(one for one in items if one.key is None)
            self.matcher.no_ids(lacking, "the other files with samples")
            items = [one for one in items if one.key is not None] or items[:1]
            named = items[0].key is not None
        frame, arrived = self._one_file(items[0], named)
        for other in items[1:]:
            frame, arrived = self._merged(frame, arrived, other, named)
        if not named and len(self.matcher.files) > 1 and not self.plan.by_position:
            self.matcher.find(
                "row-numbers",
                Severity.NOTE,
                f"{items[0].title} has no column with ids; rows are called by their numbers, from 0. If a column names them: "
                "--id COLUMN",
            )
        n = len(frame)
        pool = Pool(frame, np.full(n, "train", dtype=object), [None] * n, named, n, arrived)
        pool.row_of = {key: k for k, key in enumerate(frame[ID].tolist())}
        pool.images = any(one.table.media is not None for one in items)
        return pool

    def _one_file(self, one: OpenFile, named: bool) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """The rows of an items file with distinct ids, in the order of the ids."""
        held = {n for role in _CONTENT for n in one.texts(role)} if one.plan.role is FileRole.ITEMS else set()
        keys, rows = pd.Series([str(k) for k in range(len(one.table))], dtype="str"), np.arange(len(one.table))
        if named:
            keys, rows = self.matcher.usable_ids(one)
            used = [
                c
                for c, role in one.plan.columns.items()
                if role is not ColumnRole.IGNORED and c not in one.table.vectors
            ]
            order = self._distinct_order(one, rows, keys, used)
            keys, rows = keys.iloc[order], rows[order]
        content = {_safe(str(n)): cells.array.take(rows) for n, cells in one.table.frame.items() if n in held}
        return pd.DataFrame({ID: keys.array, **content}), rows

    def _distinct_order(
        self, one: OpenFile, rows: NDArray[np.int64], keys: pd.Series, used: Sequence[str]
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
            self.matcher.find(
                "duplicate-ids",
                Severity.ERROR,
                f"{one.title}: {len(contradict)} ids in {one.key!r} name rows that differ; expected one row for each id. Remove "
                "the wrong rows, name the column that tells rows apart: --id COLUMN; or call rows by their numbers: "
                "--id-from-rows",
                contradict,
            )
        if len(ids) > len(contradict):
            alike = sorted(set(ids) - set(contradict))
            self.matcher.find(
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
        self, frame: pd.DataFrame, arrived: NDArray[np.int64], other: OpenFile, named: bool
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
            self.matcher.find(
                "different-lengths",
                Severity.ERROR,
                f"{other.title} has {len(more)} rows; expected {len(frame)}, as the other file has: by position they belong "
                "together",
            )
            return frame, arrived
        self.matcher.tell_unmatched(other, more[ID].tolist(), known)
        clash = [name for name in more.columns if name in frame.columns and name != ID]
        both_frame = frame.merge(more[[ID, *new]], on=ID, how="left")
        if clash:
            there = frame[[ID, *clash]].merge(more[[ID, *clash]], on=ID, suffixes=("", " "))
            unequal = [name for name in clash if not there[name].fillna("").equals(there[f"{name} "].fillna(""))]
            if unequal:
                self.matcher.find(
                    "columns-differ",
                    Severity.WARNING,
                    f"{other.title}: the columns {', '.join(map(repr, unequal[:5]))} are in another file too, with other values; "
                    "those of the first file are used. Rename or remove one",
                    unequal,
                )
        return both_frame, arrived

    def _hide_telling(self, pool: Pool, content: dict[str, ColumnRole]) -> tuple[str, ...]:
        """Take columns out that tell the label of the trusted rows, unless the user has said how they are used."""
        kinds = (ColumnRole.FEATURE, ColumnRole.SHOWN)
        rows = np.flatnonzero(pool.split == "trusted")
        fold = str.casefold if self.plan.fold_case else str
        labels = [fold(str(pool.labels[k])) for k in rows.tolist()]
        if not telling.enough(labels):
            return ()
        held = {
            str(n): cells.array.take(rows).tolist() for n, cells in pool.frame.items() if content.get(str(n)) in kinds
        }
        right = dict[str, str]()
        for kind in (None, *sorted(set(labels))):  # people are not shown what tells one of the classes either
            sought = labels if kind is None else [str(label == kind) for label in labels]
            for name in [n for n in held if n not in right and (kind is None or content[n] is ColumnRole.SHOWN)]:
                if (count := telling.rows_told(held[name], sought)) is not None:
                    right[name] = f"{'the label' if kind is None else f'whether the label is {kind!r}'} of {count}"
        said = {_safe(name) for one in self.matcher.of(FileRole.ITEMS) for name in one.plan.said}
        hidden = [name for name in right if name not in said]
        learned = [name for name, role in content.items() if role in _LEARNED and name not in hidden]
        vectors = any(
            one.plan.role is FileRole.FEATURES or one.arrays(ColumnRole.FEATURE) for one in self.matcher.files
        )
        if not learned and not vectors:
            hidden = []
        for name, found in right.items():
            done = (
                f"it is neither learned from nor shown. If it is known of new rows before their label is: {option('use', [name])}"
                if name in hidden
                else f"if it is not known of new rows before their label is, leave it out: {option('ignore', [name])}"
            )
            self.matcher.find(
                "tells-label",
                Severity.WARNING,
                f"{name!r} alone tells {found} of {len(rows)} trusted rows; {done}",
                [name],
            )
        for name in hidden:
            del content[name]
        for k, one in enumerate(self.matcher.findings):  # found before the labels were known
            if one.code == "columns-shown" and set(one.examples) & set(hidden):
                left = [name for name in one.examples if name not in hidden]
                self.matcher.findings[k : k + 1] = [shown_only(one.message.partition(": ")[0], left)] if left else []
        pool.frame = pool.frame.drop(columns=hidden)
        return tuple(hidden)

    def _content_roles(self, pool: Pool) -> dict[str, ColumnRole]:
        roles: dict[str, ColumnRole] = {}
        for one in self.matcher.of(FileRole.ITEMS):
            for name, role in one.plan.columns.items():
                if role in _CONTENT and name not in one.table.vectors and _safe(name) in pool.frame.columns:
                    roles.setdefault(_safe(name), role)
        return roles

    # trusted and test

    def _labelled(self, pool: Pool, content: Mapping[str, ColumnRole], role: FileRole, split: str) -> None:
        told: dict[str, set[str]] = {}
        rows_of: dict[str, tuple[OpenFile, int]] = {}
        for one in self.matcher.of(role):
            label = next(iter(one.plan.named(ColumnRole.LABEL)), None)
            if label is None:
                self.matcher.find(
                    "no-label",
                    Severity.ERROR,
                    f"{one.title} is {split} but has no column with labels; it has {list(one.table.columns)[:10]}. Name it: "
                    "--truth-column COLUMN",
                )
                continue
            self._read_labels(pool, content, one, label, split, told, rows_of)
        wrong = sorted(key for key, labels in told.items() if len(labels) > 1)
        if wrong:
            self.matcher.find(
                "contradictory-labels",
                Severity.WARNING,
                f"{len(wrong)} ids have two different {split} labels; they are not used as {split}. Decide which is right",
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
            self.matcher.find(
                "trusted-and-test",
                Severity.WARNING,
                f"{len(both)} ids are trusted and test; they are used as test only, so that the last measurement stays honest",
                sorted(both),
            )
        ordered = [fresh[k] for k in _id_order(pd.Series(fresh, dtype="str"))] if fresh else []
        self._append(pool, content, split, ordered, rows_of, {key: next(iter(told[key])) for key in ordered})

    def _read_labels(
        self,
        pool: Pool,
        content: Mapping[str, ColumnRole],
        one: OpenFile,
        label: str,
        split: str,
        told: dict[str, set[str]],
        rows_of: dict[str, tuple[OpenFile, int]],
    ) -> None:
        labels = one.column(label)
        missing = int((labels.isna() | labels.isin(NO_LABEL)).sum())
        if missing:
            self.matcher.find(
                "labels-empty",
                Severity.WARNING,
                f"{one.title}: {missing} of {len(labels)} rows have no label in {label!r} and are not used as {split}",
                count=missing,
            )
        own = self._brings_content(one, content)
        keys = self.matcher.keys_of(pool, one, own)
        if keys is None:
            return
        known = [key for key in keys if key is not None]
        if not own:
            self.matcher.tell_unmatched(one, known, set(pool.row_of))
        for k, (key, value) in enumerate(zip(keys, labels.tolist(), strict=True)):
            if key is None or value != value or value in NO_LABEL or (key not in pool.row_of and not own):
                continue
            told.setdefault(key, set()).add(value)
            rows_of.setdefault(key, (one, k))
        twice = Counter(known)
        if own:
            self._check_own(one, content, [k for k, n in twice.items() if n > 1 and k not in pool.row_of])

    def _check_own(self, one: OpenFile, content: Mapping[str, ColumnRole], twice: list[str]) -> None:
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
            self.matcher.find(
                "duplicate-ids",
                Severity.ERROR,
                f"{one.title}: {len(wrong)} ids in {one.key!r} name rows with different content; expected one row for each id",
                wrong,
            )

    def _brings_content(self, one: OpenFile, content: Mapping[str, ColumnRole]) -> bool:
        """Whether a file has rows of its own: all the content that the model learns from, or features by id."""
        learned = {name for name, role in content.items() if role in _LEARNED}
        has = {_safe(name) for name, role in one.plan.columns.items() if role in _LEARNED}
        vectors = any(
            other.plan.role is FileRole.FEATURES or other.arrays(ColumnRole.FEATURE) for other in self.matcher.files
        )
        if learned:
            return learned <= has and (not vectors or one.key is not None)
        return vectors and one.key is not None

    def _tell_row_numbers(self) -> None:
        """Say where a column that is called as row numbers are is taken for the ids of the items."""
        ids = {one.key for one in self.matcher.of(FileRole.ITEMS)}
        for one in self.matcher.files:
            if one.key is not None and one.key.strip().lower() in _ROW_NUMBERS and ids - {one.key, None}:
                self.matcher.find(
                    "row-numbers-as-ids",
                    Severity.WARNING,
                    f"{one.title}: {one.key!r} is taken for the ids of items. If it counts rows, nothing is joined rightly: name "
                    "the column of ids (--id COLUMN), or remove it and use --by-position",
                    [one.plan.path],
                )

    def _compare_content(self, pool: Pool, content: Mapping[str, ColumnRole]) -> None:
        """Texts and images that a file repeats beside its ids must be those of the items: else the ids mean other items."""
        for one in self.matcher.files:
            if one.key is None or one.plan.role is FileRole.ITEMS or not (pool.named or self.plan.by_position):
                continue
            same = [
                n
                for n in one.table.frame.columns
                if content.get(_safe(str(n))) in (ColumnRole.TEXT, ColumnRole.IMAGE) and str(n) != one.key
            ]
            shared = [(key, k) for k, key in enumerate(self.matcher.item_keys(pool, one)) if key is not None]
            for name in same:
                there, here = pool.frame[_safe(name)].tolist(), one.column(name).tolist()
                differ = [key for key, k in shared if _differ(there[pool.row_of[key]], here[k])]
                if differ:
                    grave = len(differ) > 0.1 * len(shared)
                    self.matcher.find(
                        "content-differs",
                        Severity.ERROR if grave else Severity.WARNING,
                        f"{one.title}: for {len(differ)} of {len(shared)} ids its {name!r} is not the one that the items have; "
                        f"the ids in {one.key!r} may mean other items. Name the right column: --id COLUMN; or remove {name!r}",
                        sorted(differ),
                    )

    def _append(
        self,
        pool: Pool,
        content: Mapping[str, ColumnRole],
        split: str,
        keys: list[str],
        rows_of: Mapping[str, tuple[OpenFile, int]],
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

    def _own_labels(self, pool: Pool) -> None:
        """Labels and splits that the items themselves have."""
        has_trusted = bool(self.matcher.of(FileRole.TRUSTED))
        known: list[int] = []
        for one in self.matcher.of(FileRole.ITEMS):
            split = next(iter(one.plan.named(ColumnRole.SPLIT)), None)
            label = next(iter(one.texts(ColumnRole.LABEL)), None)
            keys = self.matcher.item_keys(pool, one)
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

    def _apply_split(self, pool: Pool, one: OpenFile, keys: list[str | None], split: str, label: str | None) -> None:
        sources = one.texts(ColumnRole.SOURCE)
        named = [name for name in sources if name.lower() in ("label", "y", "class", "target", "category", "folder")]
        truth = label or (sources[0] if len(sources) == 1 else next(iter(named), None))
        values = [None if value != value else SPLITS.get(value.strip().lower()) for value in one.column(split).tolist()]
        unknown = sorted({str(v) for v, known in zip(one.column(split).tolist(), values, strict=True) if known is None})
        if unknown:
            self.matcher.find(
                "unknown-split",
                Severity.WARNING,
                f"{one.title}: {', '.join(map(repr, unknown[:5]))} in {split!r} are no known parts; expected train, trusted "
                "(valid, dev) or test. These rows are train",
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
            self.matcher.find(
                "labels-empty",
                Severity.WARNING,
                f"{one.title}: {lost} rows of the trusted or test part have no label; they stay in train. Name the column of "
                "labels: --truth-column COLUMN",
                count=lost,
            )

    # features

    def _features(self, pool: Pool) -> NDArray[np.float32] | None:
        blocks: list[NDArray[np.float32]] = []
        lacking = np.zeros(len(pool), dtype=bool)
        for one in self.matcher.files:
            if one.plan.role not in (FileRole.FEATURES, FileRole.ITEMS, FileRole.TRUSTED, FileRole.TEST):
                continue
            block = _numbers_of_file(one)
            if block is None:
                continue
            items = one.plan.role is not FileRole.FEATURES or (not self.matcher.of(FileRole.ITEMS) and one.key is None)
            keys = self.matcher.item_keys(pool, one) if items else self.matcher.keys_of(pool, one, own=False)
            if keys is None:
                continue
            rows = np.full(len(pool), -1)
            clash = _place(keys, pool.row_of, rows, block)
            if clash:
                self.matcher.find(
                    "duplicate-ids",
                    Severity.ERROR,
                    f"{one.title}: {len(clash)} ids in {one.key!r} have different rows of numbers; expected one row for each id",
                    sorted(clash),
                )
            if one.plan.role is FileRole.FEATURES:
                self.matcher.tell_unmatched(one, [key for key in keys if key is not None], set(pool.row_of))
            found = np.zeros((len(pool), block.shape[1]), dtype=np.float32)
            found[rows >= 0] = block[rows[rows >= 0]]
            wrong = ~np.isfinite(found).all(axis=1)
            found[wrong] = 0
            if wrong.any():
                self.matcher.find(
                    "numbers-missing",
                    Severity.WARNING,
                    f"{one.title}: {int(wrong.sum())} rows have numbers that are missing, infinite or above 3e38; they are left "
                    "out",
                    pool.frame[ID].to_numpy()[np.flatnonzero(wrong)[:5]].tolist(),
                    int(wrong.sum()),
                )
            lacking |= (rows < 0) | wrong
            blocks.append(found)
        if not blocks:
            return None
        if lacking.any():
            share = float(lacking.mean())
            self.matcher.find(
                "features-missing",
                Severity.ERROR if share > 0.5 else Severity.WARNING,
                f"{int(lacking.sum())} of {len(pool)} rows have no row of numbers in the files of features and are left out. "
                "Encode them too, or leave the features out",
                pool.frame[ID][lacking].tolist(),
            )
            pool.split[lacking] = "none"
        return np.concatenate(blocks, axis=1) if len(blocks) > 1 else blocks[0]

    # classes

    # images

    def _media(self, pool: Pool, content: Mapping[str, ColumnRole]) -> Path | None:
        columns = [name for name, role in content.items() if role is ColumnRole.IMAGE]
        if not columns:
            return None
        roots = [Path(one.path) for one in self.plan.of(FileRole.MEDIA)]
        for one in self.matcher.of(FileRole.ITEMS):
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
                self.matcher.find(
                    "images-missing",
                    Severity.ERROR if len(lost) > 0.5 * len(values) else Severity.WARNING,
                    f"{len(lost)} of {len(values)} images in {name!r} are not below {root}; these rows have no image. Name the "
                    "folder: --images FOLDER",
                    lost,
                )
        return root

    def _rows(self, pool: Pool, features: NDArray[np.float32] | None, split: str) -> Rows:
        rows = np.flatnonzero(pool.split == split)
        frame = pool.frame.iloc[rows].reset_index(drop=True)
        labels = tuple(pool.labels[k] for k in rows.tolist())
        return Rows(frame, labels, None if features is None else features[rows])


_GRAVITY = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def _safe(name: str) -> str:
    """The name of a content column in the joined rows, where `id` is the id."""
    return "id (column)" if name == ID else name


def _id_order(keys: pd.Series) -> NDArray[np.int64]:
    """Order of ids: by number where all are numbers, else as text."""
    values = keys.tolist()
    if all(key.isascii() and key.isdecimal() and len(key) < 19 for key in values):
        return np.asarray(sorted(range(len(values)), key=lambda k: (int(values[k]), values[k])), dtype=np.int64)
    return np.asarray(sorted(range(len(values)), key=lambda k: values[k]), dtype=np.int64)


def _numbers_of_file(one: OpenFile) -> NDArray[np.float32] | None:
    """(n, d) of a file: its vectors, and, in a file of features, its columns of numbers."""
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and told
        blocks = [np.asarray(one.table.vectors[name], dtype=np.float32) for name in one.arrays(ColumnRole.FEATURE)]
    if one.plan.role is FileRole.FEATURES:
        columns = one.texts(ColumnRole.FEATURE)
        if columns:
            blocks.append(np.stack([numbers_of(one.column(name)).astype(np.float32) for name in columns], axis=1))
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


def _typed(frame: pd.DataFrame, content: Mapping[str, ColumnRole]) -> pd.DataFrame:
    """The rows with columns to learn from as numbers where all that is in them are numbers."""
    found: dict[str, Any] = {}
    for name, cells in frame.items():
        numbers = numbers_of(cells) if content.get(str(name)) is ColumnRole.FEATURE else None
        found[str(name)] = cells if numbers is None or np.isnan(numbers).all() else numbers
    return pd.DataFrame(found)


def _differ(one: Any, other: Any) -> bool:
    """Whether two texts are there and differ by more than spaces."""
    return isinstance(one, str) and isinstance(other, str) and one.split() != other.split()


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
