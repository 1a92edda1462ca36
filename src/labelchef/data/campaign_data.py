"""The data of a campaign: one type, made from arrays (`CampaignData.of`), from files (`read_files`) or from the store.

Shapes: X (N, d), weak (N, C) rows on the simplex, clean (N,) class ids with −1 where none is known; X_val (n, d), y_val (n,)
trusted samples; X_judge, X_test likewise, where there are any. A network takes inputs of any shape in place of (n, d).
votes and votes_val hold what J sources say of X and X_val, see `labelchef.believe.vote_forms`.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.campaigns import CampaignFiles
from labelchef.base.errors import InvalidInputError
from labelchef.base.features import as_features, check_columns, columns_of, feature_names_of
from labelchef.base.inputs import ClassNames, as_evaluation_labels, as_list, as_mask, as_weak_labels, is_missing, plain
from labelchef.base.records import UNRESOLVED
from labelchef.believe import SourceVotes
from labelchef.believe.vote_forms import CastVotes, is_long, read_votes, with_weak_source
from labelchef.data.contents import Contents, ItemTable, ids_of, pieces
from labelchef.data.copies import NOTHING, Copies, Keys, content_keys, equal_by_chance, feature_keys
from labelchef.data.files import tables
from labelchef.data.files.columnar import check_groups, column_texts
from labelchef.data.files.items_file import ItemsFile, open_items
from labelchef.model.features import Features, check_finite, is_streamed, open_features
from labelchef.model.features.npy import behind_map

Labelled: TypeAlias = tuple[NDArray[Any], Ints]
"""Samples, a row each, with trusted class ids (n,)."""

_MOST_COMPARED = 1 << 30

Rows: TypeAlias = NDArray[Any] | Features
"""Samples, a row each: an array, or features that are read from files in blocks."""

ReadRows: TypeAlias = Callable[[Any, str, "Rows | None"], Any]
"""Checks samples: (what came, its name, the training samples to compare with, None for those themselves) → an array."""


def as_rows(X: Any, name: str, like: Rows | None, *, half: bool = False) -> Rows:
    """Features; with `half`, training samples may stay in half precision: for an engine that reads those.

    A path or `Features` may be given, too: training samples are then checked in one pass, and not loaded.
    """
    X = open_features(X) if isinstance(X, str | Path) else X
    streamed = behind_map(X) if like is None and isinstance(X, np.ndarray) else None
    if streamed is not None and (half or X.dtype != np.float16):
        check_finite(streamed, name)  # past the page cache where X is larger than memory
        return np.asarray(X)
    if not isinstance(X, Features):
        return as_features(X, name, half=half) if like is None else as_features(X, name, columns=like.shape[1])
    if like is not None:
        return as_features(X[:], name, columns=like.shape[1])
    check_finite(X, name)
    return X


@dataclass(frozen=True)
class Known:
    """What may be known besides votes and validation samples."""

    X_judge: Any = None
    y_judge: Any = None
    """Trusted samples that judge, so that all of validation steers or trains."""
    X_test: Any = None
    y_test: Any = None
    """Test samples, which selection never sees."""
    y_clean: Any = None
    """(N,) labels of training samples that are clean from the start; −1 (or None) where one is not."""
    askable: Any = None
    """(N,) whether anyone could answer for a training sample; one that is not askable is never selected. None: all are."""


@dataclass(frozen=True)
class CampaignData:
    """Everything a campaign is made of, checked."""

    X: Any
    """(N, d): an array, or `Features`, which are not made an array; both have `shape`, `size`, `nbytes`, `len`, and rows by
    slices and numbers."""
    weak: Float64s
    names: ClassNames
    validation: Labelled
    clean: Ints
    judge: Labelled | None = None
    """Trusted samples of the user's own that judge; None to hold some of validation out."""
    test: Labelled | None = None
    askable: Bools | None = None
    contents: Contents = field(default_factory=Contents)
    votes: SourceVotes | None = None
    """Of the sources on the training samples; weak labels that were given beside them are the last source."""
    votes_val: SourceVotes | None = None
    """Of the same sources on the validation samples; None if these were not given."""
    feature_names: list[str] | None = None
    """The columns of X, if it was a frame whose columns have names."""
    copies: Copies | None = None
    """Which training samples are copies; None where they were not looked for, or there are none."""
    edited: Callable[[int], tuple[SourceVotes, SourceVotes]] | None = None
    """Reads the votes of a later version, on training and on validation samples; None where rules were never edited."""

    @classmethod
    def of(
        cls,
        X: Any,
        Y_weak: Any = None,
        *,
        votes: Any = None,
        votes_val: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        classes: Sequence[Hashable] | None = None,
        known: Known | None = None,
        contents: Contents | None = None,
        read: ReadRows = as_rows,
    ) -> "CampaignData":
        """Data from arrays or frames; whatever is wrong with them is refused with what was expected.

        Without `Y_weak`, the weak labels are the shares of the votes, and without `classes` too, the classes are those of
        `CastVotes.classes`. With `classes` alone there are no sources: the model learns from trusted samples and answers. Without
        `X_val` and `y_val` there are no trusted samples (`loop.pilot`).
        """
        contents, known = contents or Contents(), known or Known()
        rows, columns = read(X, "X", None), columns_of(X)
        for one, what in ((X_val, "X_val"), (known.X_judge, "X_judge"), (known.X_test, "X_test")):
            check_columns(one, columns, what)
        keys = ids_of(contents.items) if is_long(votes) else None
        cast = None if votes is None else CastVotes.of(votes, len(rows), "votes", keys)
        weak = None if Y_weak is None else as_weak_labels(Y_weak, len(rows))
        names = _class_names(classes, Y_weak, weak, cast, y_val)
        found = None if cast is None else cast.read(names)
        validation = _split(X_val, y_val, names, rows, "val", read)
        if validation is None:
            validation = np.asarray(rows[:0]), np.empty(0, dtype=np.int64)
        if found is None:
            if votes_val is not None:
                raise InvalidInputError("votes_val was given without votes; expected both, or neither", code="votes")
            if weak is None:
                found = SourceVotes((), len(names), csr_array((len(rows), 0)))
                weak = np.full((len(rows), len(names)), 1.0 / len(names))
        elif weak is None:
            weak = found.shares()
        else:
            found = with_weak_source(found, weak)
        found_val = None
        if found is not None and votes_val is not None:
            own = found.names if Y_weak is None else found.names[:-1]
            n_val, val_keys = len(validation[1]), ids_of(contents.val_items)
            found_val = read_votes(votes_val, names, n_val, what="votes_val", sources=own, keys=val_keys).among(
                found.names
            )
        return cls(
            X=rows,
            weak=weak,
            names=names,
            validation=validation,
            clean=known_labels(known.y_clean, names, len(rows), "y_clean"),
            judge=_split(known.X_judge, known.y_judge, names, rows, "judge", read),
            test=_split(known.X_test, known.y_test, names, rows, "test", read),
            askable=as_mask(known.askable, len(rows), "askable"),
            contents=contents,
            votes=found,
            votes_val=found_val,
            feature_names=feature_names_of(X),
        )

    @property
    def from_nothing(self) -> bool:
        """Whether no trusted samples were given."""
        return len(self.validation[1]) == 0

    def at_version(self, version: int) -> "CampaignData":
        """The data with the votes of a later version, as if they had come with it."""
        if version == 0:
            return self
        assert self.edited is not None, "rules were edited"
        votes, votes_val = self.edited(version)
        counted = self.votes is not None and np.allclose(self.weak, self.votes.shares())
        return replace(
            self, votes=votes, votes_val=votes_val, weak=votes.shares() if counted else self.weak, edited=None
        )

    def with_copies(self) -> "CampaignData":
        """The same data with its copies, which have the label of the trusted, judging or test sample that they repeat.

        Features that are streamed, or take more than a gigabyte, are not compared: that would be one more pass over a disk.
        """
        held = self.contents
        splits = ((self.validation, held.val_items), (self.judge, None), (self.test, held.test_items))
        known = [(part, table) for part, table in splits if part is not None]
        tables_of = ((held.items, len(self.X)), *((table, len(y)) for (_, y), table in known))
        keys, *others = (self._keys_of_contents(table, n) for table, n in tables_of)
        if not keys.any():
            if isinstance(self.X, Features) or self.X.ndim != 2 or self.X.nbytes > _MOST_COMPARED:
                return self
            keys, *others = feature_keys([self.X, *(X for (X, _), _ in known)])
            if equal_by_chance(self.X, keys):
                return self
        outside = np.concatenate(others), np.concatenate([y for (_, y), _ in known])
        copies, clean = Copies.found(keys, self.clean, *outside, self.askable)
        return replace(self, copies=copies, clean=clean) if copies.silent.any() else self

    def _keys_of_contents(self, table: ItemTable | None, n: int) -> Keys:
        """(n,) of the rows of a split; `NOTHING` where people see nothing of them."""
        held = self.contents
        if table is None:
            return np.full(n, NOTHING, dtype=np.uint64)
        return content_keys(pieces(table), ("image", *held.more_images), held.media)

    def mapped(self, features: Callable[[NDArray[Any]], NDArray[Any]]) -> "CampaignData":
        """The same samples as other rows, such as the features below a network's last layer."""

        def split(part: Labelled | None) -> Labelled | None:
            return None if part is None else (features(part[0]), part[1])

        X_val, y_val = self.validation
        judge, test = split(self.judge), split(self.test)
        return replace(
            self, X=features(self.X), feature_names=None, validation=(features(X_val), y_val), judge=judge, test=test
        )


def _class_names(
    classes: Sequence[Hashable] | None, Y_weak: Any, weak: Float64s | None, cast: CastVotes | None, y_val: Any
) -> ClassNames:
    """The classes by `classes`, else by the weak labels, else by the votes."""
    if weak is not None:
        return ClassNames.of(classes, Y_weak, weak.shape[1])
    if cast is None and classes is None and y_val is not None:
        classes = _occurring(y_val)
    if cast is None and classes is None:
        raise InvalidInputError(
            "neither weak labels nor votes were given; expected Y_weak (samples, classes), votes of sources, or both: "
            "fit(X, Y_weak, …) or fit(X, votes=…, …). If there are none, give trusted samples, or name the classes: "
            "fit(X, classes=[…], …)",
            code="weak_labels",
        )
    if classes is None:
        assert cast is not None, "refused above"
        return cast.classes(y_val)
    given = as_list(classes, "classes")
    if len(given) < 2:
        raise InvalidInputError(f"the classes are {given}; expected two or more", code="classes")
    return ClassNames(given)


def _occurring(y_val: Any) -> list[Hashable]:
    """The labels of trusted samples, sorted: the classes where nothing else names them."""
    found = {value for value in map(plain, as_list(y_val, "y_val")) if not is_missing(value)}
    try:
        return sorted(found)
    except TypeError:
        return sorted(found, key=repr)


def known_labels(labels: Any, names: ClassNames, n_rows: int, name: str, code: str = "labels") -> Ints:
    """Class ids that are known of the training samples (N,), −1 where none is."""
    if labels is None:
        return np.full(n_rows, UNRESOLVED, dtype=np.int64)
    given = names.encode(labels, name, allow_missing=True)
    if len(given) != n_rows:
        why = f"{name} has {len(given)} entries; expected {n_rows}, one for each row of X, −1 where no label is known"
        raise InvalidInputError(why, code=code)
    return given


def _split(X: Any, y: Any, names: ClassNames, like: Rows, name: str, read: ReadRows) -> Labelled | None:
    """A labelled split; None for one that is left out."""
    if X is None and y is None:
        return None
    if X is None or y is None:
        raise InvalidInputError(f"X_{name} and y_{name} belong together; one of them is missing", code=name)
    if len(getattr(X, "shape", ())) == 2 and X.shape[0] == 0:
        raise InvalidInputError(
            f"X_{name} is empty; expected at least one sample. Leave it out if there is none", code=name
        )
    rows = read(X, f"X_{name}", like)
    return rows, as_evaluation_labels(y, names, len(rows), f"y_{name}", must_cover=name == "val")


@dataclass(frozen=True)
class _Part:
    """A file with a row for each sample of a split, and the ids of its rows where it has any."""

    path: Path
    data: Any
    named: bool
    """Whether its rows have ids."""

    @classmethod
    def of(cls, path: Path | None, read: Callable[[Path], Any]) -> "_Part | None":
        if path is None:
            return None
        data = read(path)
        return cls(path, data, not is_long(data) and tables.has_ids(path))

    @classmethod
    def streamed(cls, place: Path | str) -> "_Part":
        """Features that are not loaded; of these only a Parquet file may have ids."""
        path, named = Path(place), False
        if isinstance(place, Path) and place.suffix == ".parquet":
            named = "id" in check_groups(place)
        return cls(path, open_features(place), named)

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the rows; read only where files are joined by them."""
        if isinstance(self.data, Features):
            return column_texts(self.path, "id")
        return tables.read_ids(self.path) or []

    @property
    def long(self) -> bool:
        """Whether it is a long table of votes, which names its items and has rows of its own."""
        return is_long(self.data)

    def rows(self, order: list[int] | None, keep_id: bool) -> Any:
        """The rows in another order, without the ids unless they are to be kept."""
        data = self.data
        if isinstance(data, ItemsFile):
            data = data if order is None and keep_id else data.whole()
        if isinstance(data, ItemsFile):
            return data
        if isinstance(data, pd.DataFrame):
            data = data if keep_id or not self.named else data.drop(columns="id")
            return data if order is None else data.iloc[order].reset_index(drop=True)
        if order is None:
            return data
        if isinstance(data, Features):
            raise InvalidInputError(
                f"{self.path.name} is streamed, and its rows stand in another order than the ids of the other files; bring the "
                "files into one order, or write the features as one .npy file",
                code="ids",
            )
        if isinstance(data, dict):
            return {name: column[order] for name, column in data.items()}
        return [data[k] for k in order] if isinstance(data, list) else data[order]


def _joined(parts: Sequence[_Part | None], by_position: bool, items: _Part | None = None) -> list[Any]:
    """The data of files of one split, their rows in one order: that of the first file.

    Files that all have ids are joined by them. Where only some have ids, nothing says which rows belong together: that is
    refused unless `by_position` was told. Long tables of votes name their items and are left as they are.
    """
    there = [part for part in parts if part is not None and not part.long]
    named = [part for part in there if part.named]
    bare = [part for part in there if not part.named]
    orders: dict[int, list[int] | None] = {id(part): None for part in there}
    if named and bare and not by_position:
        raise InvalidInputError(
            f"{named[0].path.name} has a column id and {bare[0].path.name} has none, so nothing says which rows belong "
            "together. Give every file the column id (an .npz: an array ids); or, if row k of one is row k of the other: "
            "--by-position",
            code="ids",
        )
    for part in named[1:]:
        orders[id(part)] = _order(named[0], part, by_position=bool(bare))
    return [
        None if part is None else part.data if part.long else part.rows(orders[id(part)], keep_id=part is items)
        for part in parts
    ]


def _order(first: _Part, part: _Part, *, by_position: bool) -> list[int] | None:
    """Which rows of `part` have the ids of `first`, row by row; None if they stand in this order already."""
    if first.ids == part.ids:
        return None
    for one in (first, part):
        twice = [key for key, times in Counter(one.ids).items() if times > 1]
        if twice:
            raise InvalidInputError(
                f"{one.path.name}: the id {twice[0]!r} occurs twice; expected distinct ids", code="ids"
            )
    there = {key: k for k, key in enumerate(part.ids)}
    lacking = [key for key in first.ids if key not in there]
    more = len(part.ids) - (len(first.ids) - len(lacking))
    if lacking or more:
        raise InvalidInputError(
            f"{part.path.name} lacks {len(lacking)} of the {len(first.ids)} ids of {first.path.name}"
            f"{f', such as {lacking[0]!r}' if lacking else ''}, and has {more} others; expected the same ids in both",
            code="ids",
        )
    if by_position:
        row = next(k for k, (one, other) in enumerate(zip(first.ids, part.ids, strict=True)) if one != other)
        raise InvalidInputError(
            f"row {row} has the id {first.ids[row]!r} in {first.path.name} and {part.ids[row]!r} in {part.path.name}; by "
            "position they belong together. Bring the files into one order, or give all of them ids",
            code="ids",
        )
    return [there[key] for key in first.ids]


def read_files(files: CampaignFiles) -> CampaignData:
    """Read every file, or say which one cannot be used and why; rows are joined by their ids where files have any."""
    if (files.test_features is None) != (files.test_labels is None):
        raise InvalidInputError("X_test and y_test belong together; one of the test files is missing", code="test")

    if (files.val_features is None) != (files.val_labels is None):
        raise InvalidInputError(
            "the validation features and the validation labels belong together; one of the files is missing. Leave out both if "
            "no sample is trusted",
            code="val",
        )
    train = (files.features, files.weak, files.source_votes, files.clean_labels, files.items)
    validation = (files.val_features, files.val_labels, files.val_source_votes, files.val_items)
    for split in (train, validation, (files.test_features, files.test_labels)):
        _check_counts(split)

    def features(place: Path | str | None, what: str) -> _Part | None:
        if place is not None and is_streamed(place):
            return _Part.streamed(place)
        return _Part.of(None if place is None else Path(place), lambda one: tables.read_features(one, what))

    def labels(path: Path | None, what: str) -> _Part | None:
        return _Part.of(path, lambda one: tables.read_labels(one, what))

    def votes(path: Path | None, what: str) -> _Part | None:
        return _Part.of(path, lambda one: tables.read_source_votes(one, what))

    def items(path: Path | None, what: str) -> _Part | None:
        return _Part.of(path, lambda one: open_items(one, what))

    shown, val_shown = items(files.items, "items"), items(files.val_items, "validation items")
    X, weak, cast, clean, contents = _joined(
        (
            features(files.features, "features"),
            _Part.of(files.weak, tables.read_weak_labels),
            votes(files.source_votes, "votes of sources"),
            labels(files.clean_labels, "clean labels"),
            shown,
        ),
        files.by_position,
        shown,
    )
    X_val, y_val, cast_val, val_contents = _joined(
        (
            features(files.val_features, "validation features"),
            labels(files.val_labels, "validation labels"),
            votes(files.val_source_votes, "votes of sources on validation"),
            val_shown,
        ),
        files.by_position,
        val_shown,
    )
    X_test, y_test = _joined(
        (features(files.test_features, "test features"), labels(files.test_labels, "test labels")), files.by_position
    )
    return CampaignData.of(
        X,
        weak,
        votes=cast,
        votes_val=cast_val,
        X_val=X_val,
        y_val=y_val,
        classes=files.classes,
        known=Known(X_test=X_test, y_test=y_test, y_clean=clean),
        contents=Contents(contents, val_contents, media=files.media),
        read=partial(as_rows, half=True),
    )


def _check_counts(paths: Sequence[Path | str | None]) -> None:
    """Refuse files of one split that have different numbers of rows, before any of them is read; long tables have their own."""
    extents = [(path, tables.extent_of(path)) for path in paths if isinstance(path, Path) and path.is_file()]
    known = [
        (path, one.n_rows)
        for path, one in extents
        if one is not None and not is_long(pd.DataFrame(columns=list(one.columns)))
    ]
    for path, n_rows in known[1:]:
        first, expected = known[0]
        if n_rows != expected:
            raise InvalidInputError(
                f"{first.name} has {expected} rows and {path.name} has {n_rows}; expected a row a sample in both",
                code="rows",
            )


def find_files(folder: Path, by_position: bool = False, classes: tuple[str, ...] | None = None) -> CampaignFiles:
    """The files of a campaign by their conventional names in a folder."""
    if not folder.is_dir():
        raise InvalidInputError(f"there is no folder {folder}; check the path", code="folder")

    rows, labels, items = tables.FEATURE_SUFFIXES, (".csv", ".npy", ".parquet", ".jsonl"), tables.ITEM_SUFFIXES
    votes = tables.VOTE_SUFFIXES
    required = {"features": rows}
    optional = {
        "val_features": rows,
        "val_labels": labels,
        "weak": labels,
        "source_votes": votes,
        "val_source_votes": votes,
        "test_features": rows,
        "test_labels": labels,
        "clean_labels": labels,
        "items": items,
        "val_items": items,
    }
    found: dict[str, Any] = {}
    for stem, suffixes in (required | optional).items():
        paths = [folder / f"{stem}{suffix}" for suffix in suffixes]
        there = [path for path in paths if path.is_file()]
        there += [folder / stem] if stem == "features" and (folder / stem).is_dir() else []
        if len(there) > 1:
            raise InvalidInputError(
                f"{folder} holds {' and '.join(path.name for path in there)}; expected one file {stem}. Remove the others",
                code="folder",
            )
        found[stem] = there[0] if there else None
        if found[stem] is None and stem in required:
            raise InvalidInputError(
                f"{folder} holds no {stem} file; expected {stem}{suffixes[0]} or another of {', '.join(suffixes)}",
                code="folder",
            )
    if all(found[one] is None for one in ("weak", "source_votes", "val_labels")) and classes is None:
        raise InvalidInputError(
            f"{folder} holds no weak, source_votes or val_labels file; expected weak.csv (a probability for each sample and "
            "class), source_votes.csv (votes of sources) or both, or trusted samples; or, if nothing is known, the "
            "names of the classes: --classes",
            code="folder",
        )
    media = folder / "media"
    return CampaignFiles(**found, media=media if media.is_dir() else None, by_position=by_position, classes=classes)
