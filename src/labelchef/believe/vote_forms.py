"""Votes of sources, in the forms that users have them in, become one checked `SourceVotes`.

    (n, J) array, list of lists or frame    a class id or name each, −1, None, NaN or masked for no vote; columns of a frame
                                            name the sources
    (n,) column or list                     labels of one source, which a column names
    long table: item, source, label         a frame with a row a vote; with a column probability, a row a class of a soft vote;
                                            the rest of one that stands alone is for the other classes, in equal parts
    (n, J) SciPy sparse matrix              class id + 1 where a source votes; nothing stored, or 0, for no vote
    (n, J, C) array                         a distribution over the classes each; all NaN or all 0 for no vote
    dict of sources                         name → (n,) labels or (n, C) probabilities; columns of a frame name the classes
    `SourceVotes`                           as it is

In a long table `task` or `row` may stand for `item`, `worker` or `annotator` for `source`, and `weight` for `probability`; where
several are there, the first named counts, and other columns are not read. Items are rows of X, counted from 0, or ids where
the samples have ids (`keys`).

Labels are read as people's answers are (`ClassNames.vote`): whole numbers are class ids, everything else is a class name. Text
such as '2' is a class name if a class is called so, else the id 2, unless other classes are called by numbers.

A sample that no source votes on has no weak label: its vote shares are equal. A source that votes on no sample is kept, with
a `SilentSourceWarning`. In `votes_val`, sources of `votes` that are missing are silent, and others are refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import InvalidInputError, SilentSourceWarning, warn_caller
from labelchef.base.inputs import SIMPLEX, ClassNames, as_list, is_missing, plain
from labelchef.base.records import UNRESOLVED
from labelchef.believe.votes import SourceVotes

VOTE_COLUMNS = ("item", "source", "label")
"""Of a long table."""
PROBABILITY = "probability"
"""The further column of a long table with soft votes."""
WEAK_SOURCE = "weak labels"
"""The name of the source that weak labels become where they are given beside votes."""
_ROLES = {"item": ("item", "task", "row"), "source": ("source", "worker", "annotator"), "label": ("label",)}
_PROBABILITY = (PROBABILITY, "weight")
_NAME_THEM = "Name the classes: fit(…, classes=[…])"
_LONGEST_NAME = 200
_MOST_CLASSES = 10_000
_MOST_SOURCES = 1_000_000
_SOFT = ". Probabilities have the shape (samples, sources, classes), or (samples, classes) a source in a dict"
_CELLS = 1 << 22  # of a dense table, read at a time


def long_table(
    items: Iterable[str], sources: Iterable[str], labels: Iterable[str], probabilities: Iterable[float] | None = None
) -> pd.DataFrame:
    """A row a vote, all text; with probabilities, a row a class of a soft vote.

    >>> long_table(["007"], ["rule"], ["ham"], [0.9])
      item source label  probability
    0  007   rule   ham          0.9
    """
    votes = pd.DataFrame(dict(zip(VOTE_COLUMNS, (items, sources, labels), strict=True)), dtype="str")
    return (
        votes if probabilities is None else votes.assign(**{PROBABILITY: np.asarray(probabilities, dtype=np.float64)})
    )


def read_votes(
    given: Any,
    names: ClassNames,
    n_rows: int,
    *,
    what: str = "votes",
    sources: tuple[str, ...] | None = None,
    keys: Sequence[str] | None = None,
) -> SourceVotes:
    """Votes in any of the forms above on `n_rows` samples.

    With `sources`, the votes become columns of a table of these: others are refused, missing ones are silent, and a form
    without names must have as many. `keys` are the ids of the samples, by which a long table names them.

    >>> long = pd.DataFrame({"item": [0, 1, 1], "source": ["rule", "rule", "llm"], "label": ["ham", "spam", "spam"]})
    >>> votes = read_votes(long, ClassNames(["ham", "spam"]), 3)
    >>> votes.names, votes.counts.tolist(), votes.silent.tolist()
    (('rule', 'llm'), [2, 1], [False, False, True])
    """
    return CastVotes.of(given, n_rows, what, keys).read(names, sources)


@dataclass(frozen=True)
class CastVotes:
    """Votes as they came, m entries: one a hard vote, one a class of a soft vote. Their labels are not read yet."""

    what: str
    """What the votes are called in messages."""
    n_rows: int
    sources: tuple[str, ...]
    named: bool
    """Whether the sources came with their names."""
    rows: Ints
    """(m,) sample"""
    columns: Ints
    """(m,) source"""
    labels: Ints
    """(m,) position in `values`"""
    values: tuple[Any, ...]
    """The distinct labels as given."""
    weights: Float64s | None
    """(m,) weight of the label in the vote; None if all are 1."""
    width: int | None
    """The number of classes, where the form says it."""

    @classmethod
    def of(cls, given: Any, n_rows: int, what: str = "votes", keys: Sequence[str] | None = None) -> "CastVotes":
        """Find out the form, and collect the votes."""
        ballots = _Ballots(what, n_rows)
        if isinstance(given, SourceVotes):
            sources = _from_source_votes(given, ballots)
        elif isinstance(given, Mapping):
            sources = _from_mapping(given, ballots)
        elif issparse(given):
            sources = _from_sparse(given, ballots)
        elif hasattr(given, "columns"):
            sources = _from_frame(given, ballots, keys)
        elif getattr(given, "name", None) is not None:  # a column: one source
            sources = _from_mapping({given.name: given}, ballots)
        else:
            sources = _from_array(_as_array(given, what), ballots)
        return ballots.cast(sources)

    def read(self, names: ClassNames, sources: tuple[str, ...] | None = None) -> SourceVotes:
        """The votes with their labels as class ids, as columns of a table of `sources` where these are given."""
        if self.width not in (None, len(names)):
            raise _unusable(
                f"{self.what} has probabilities of {self.width} classes; expected {len(names)}, one a class: {_some(names.names)}"
            )
        own = self._own_sources(sources)
        n, J, C = self.n_rows, len(own), len(names)
        ids = np.array([self._class_id(k, names) for k in range(len(self.values))], dtype=np.int64)
        rows, columns, classes, weights = self._once(ids[self.labels], C)
        table = csr_array((weights, (rows, columns * C + classes)), shape=(n, J * C))
        votes = SourceVotes(own, C, table)
        if sources is not None:
            return votes.among(sources)
        if table.nnz == 0:
            raise self._silent()
        idle = [name for name, count in zip(own, votes.counts.tolist(), strict=True) if count == 0]
        if idle:
            warn_caller(
                f"{self.what}: {_some(idle)} ({len(idle)} of {J} sources) votes on no sample and has no effect. Leave it out, "
                "or check its column",
                SilentSourceWarning,
            )
        return votes

    def classes(self, y_val: Any) -> ClassNames:
        """The classes, where neither weak labels nor the user names them, from the labels of the votes and of validation.

        Whole numbers in the votes, and probabilities in an array, number the classes 0 … C−1, C being the number of columns,
        or one more than the largest; validation must then have whole numbers too. Otherwise all names that occur are
        classes, sorted.

        >>> CastVotes.of([["spam", None], ["ham", "spam"]], 2).classes(["spam", "eggs"]).names
        ['eggs', 'ham', 'spam']
        """
        try:
            trusted = {v for v in map(plain, as_list([] if y_val is None else y_val, "y_val")) if not is_missing(v)}
        except TypeError:
            raise _unusable("y_val holds entries that are no single labels; expected one class name a sample") from None
        if not self.values:
            raise self._silent()
        fraction = next((value for value in self.values if _is_fraction(value)), None)
        if fraction is not None:
            raise _unusable(f"{self.what} holds {fraction}; expected class ids or names{_SOFT}")
        both = trusted.union(self.values)
        ids = all(_is_number(value) for value in self.values)
        names: list[Any]
        if trusted and all(isinstance(value, bool) for value in trusted):
            names = [False, True]
        elif ids and not all(_is_number(value) for value in trusted):
            raise _unusable(
                f"{self.what} has class ids, and y_val names such as {_some(sorted(trusted, key=repr))}; which is which is "
                f"unknown. {_NAME_THEM}, or vote by name"
            )
        elif ids and not all(isinstance(value, str) for value in both):
            count = self.width or 1 + max(int(value) for value in both)
            as_text = bool(trusted) and all(isinstance(value, str) for value in trusted)
            names = [str(c) if as_text else c for c in range(min(count, _MOST_CLASSES + 1))]
        else:
            try:
                names = sorted(both, key=int if ids else None)
            except TypeError:
                raise _unusable(
                    f"the labels {_some(sorted(both, key=repr))} of {self.what} and y_val have no order; expected labels of "
                    f"one type. {_NAME_THEM}"
                ) from None
        if not 2 <= len(names) <= _MOST_CLASSES:
            raise _unusable(
                f"{self.what} and y_val have {len(names)} classes or more, {_some(names)}; expected 2 to {_MOST_CLASSES}. "
                f"{_NAME_THEM}"
            )
        return ClassNames(names)

    def _silent(self) -> InvalidInputError:
        return _unusable(
            f"{self.what}: none of the {len(self.sources)} sources votes on any of the {self.n_rows} samples; expected at least "
            "one vote. In a sparse matrix a vote is class id + 1"
        )

    def _own_sources(self, sources: tuple[str, ...] | None) -> tuple[str, ...]:
        if sources is None:
            return self.sources
        if not self.named:
            if len(self.sources) != len(sources):
                raise _unusable(
                    f"{self.what} has {len(self.sources)} sources; expected {len(sources)}, as votes has: {_some(sources)}. "
                    "Name them, in a frame or a dict, to give only some"
                )
            return sources
        unknown = sorted(set(self.sources) - set(sources))
        if unknown:
            raise _unusable(
                f"{self.what} has votes of {_some(unknown)}, which has none in votes; expected some of the sources "
                f"{_some(sources)}"
            )
        return self.sources

    def _class_id(self, k: int, names: ClassNames) -> int:
        value = self.values[k]
        if isinstance(value, str) and _is_number(value) and value not in names.names and not _have_numbers(names):
            value = int(value)
        try:
            return names.vote(value, self.what)
        except InvalidInputError:
            pass
        where = f"{self.what}: a class of soft votes"
        for first in np.flatnonzero(self.labels == k)[:1].tolist():
            where = f"{self.what}: the vote of {self.sources[self.columns[first]]!r} on sample {self.rows[first]}"
        try:
            return names.vote(value, where)
        except InvalidInputError as error:
            raise _unusable(f"{error}{_SOFT if _is_fraction(value) else ''}") from None

    def _once(self, classes: Ints, n_classes: int) -> tuple[Ints, Ints, Ints, Float64s]:
        """Each vote once: repetitions are dropped, contradictions refused; soft votes are checked and scaled to sum to 1."""
        J, weights = len(self.sources), self.weights
        place = self.rows * J + self.columns
        if weights is None and bool((place[1:] > place[:-1]).all()):
            return self.rows, self.columns, classes, np.ones(len(classes))
        order = np.lexsort((classes, place))
        place, classes = place[order], classes[order]
        same = place[1:] == place[:-1]
        if weights is None:
            self._refuse(
                place[1:][same & (classes[1:] != classes[:-1])], "different labels", "one", "Decide between them first"
            )
            weights = np.ones(len(classes))
        else:
            weights = weights[order]
            same &= classes[1:] == classes[:-1]
            with np.errstate(invalid="ignore"):
                differ = ~(np.abs(weights[1:] - weights[:-1]) <= SIMPLEX)
            came = "different probabilities of one class"
            self._refuse(place[1:][same & differ], came, "one", "Decide between them first")
        first = np.append(True, ~same)[: len(place)]
        place, classes, weights = place[first], classes[first], weights[first]
        if self.width is None:
            place, classes, weights = _completed(place, classes, weights, n_classes)
        found, vote = np.unique(place, return_inverse=True)
        total = np.bincount(vote, weights, len(found))
        right = (np.abs(total - 1.0) <= SIMPLEX) | (total == 0.0)
        right &= np.bincount(vote, ~(weights >= -SIMPLEX), len(found)) == 0
        came, expected = "probabilities that are negative or do not sum to 1", "a distribution over the classes"
        self._refuse(found[~right], came, expected, "Scale them first, or leave a vote out with NaN for all classes")
        kept = weights > 0.0
        place, classes, weights, vote = place[kept], classes[kept], weights[kept], vote[kept]
        weights = weights / np.bincount(vote, weights, len(found))[vote]
        return place // J, place % J, classes, weights

    def _refuse(self, places: Ints, came: str, expected: str, remedy: str) -> None:
        if len(places):
            J = len(self.sources)
            shown = ", ".join(f"{self.sources[p % J]!r} on sample {p // J}" for p in places[:3].tolist())
            raise _unusable(
                f"{self.what}: {came} from {shown} ({len(places)} such votes); expected {expected} from a source on a sample. "
                f"{remedy}"
            )


def _completed(place: Ints, classes: Ints, weights: Float64s, n_classes: int) -> tuple[Ints, Ints, Float64s]:
    """Votes of which one class alone was given a probability below 1, with the rest for the other classes in equal parts."""
    _, vote, times = np.unique(place, return_inverse=True, return_counts=True)
    alone = np.flatnonzero((times[vote] == 1) & (weights > 0.0) & (weights < 1.0 - SIMPLEX))
    others = np.array(
        [[c for c in range(n_classes) if c != chosen] for chosen in classes[alone].tolist()], dtype=np.int64
    )
    rest = np.repeat((1.0 - weights[alone]) / (n_classes - 1), n_classes - 1)
    return (
        np.concatenate([place, np.repeat(place[alone], n_classes - 1)]),
        np.concatenate([classes, others.ravel()]),
        np.concatenate([weights, rest]),
    )


class _Ballots:
    """Collects votes, and numbers the distinct labels."""

    def __init__(self, what: str, n_rows: int) -> None:
        self.what, self.n_rows = what, n_rows
        self.width: int | None = None
        self.named = True
        self._numbers: dict[Any, int] = {}
        self._parts: list[tuple[Ints, Ints, Ints, Float64s | None]] = []

    def number(self, labels: NDArray[Any]) -> Ints:
        """Labels of any shape as positions among the distinct ones, −1 for no vote."""
        try:
            codes, found = pd.factorize(labels.ravel())
            to = [UNRESOLVED if is_missing(value) else self._number(value) for value in map(plain, found.tolist())]
        except TypeError:
            raise _unusable(
                f"{self.what} holds entries that are no single labels; expected one class id or name a source and sample"
            ) from None
        numbers = np.array([*to, UNRESOLVED], dtype=np.int64)  # the last one is for code −1, which missing values have
        return np.asarray(numbers[codes].reshape(labels.shape))

    def _number(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def add(self, rows: Ints, columns: Ints, labels: Ints, weights: Float64s | None = None) -> None:
        """Votes; those whose label is −1 are left out."""
        cast = labels >= 0
        kept = None if weights is None else weights[cast]
        self._parts.append((rows[cast], columns[cast], labels[cast], kept))

    def add_labels(self, labels: NDArray[Any], column: int) -> None:
        """One label a sample (n,) of a source."""
        self.check_rows(len(labels))
        self.add(np.arange(len(labels)), np.full(len(labels), column), self.number(labels))

    def add_probabilities(self, P: NDArray[Any], column: int, labels: Ints) -> None:
        """A distribution a sample (n, C) of a source; `labels` (C,) are the positions of its classes."""
        self.check_rows(len(P))
        try:
            P = np.asarray(P, dtype=np.float64)
        except (TypeError, ValueError):
            raise _unusable(f"{self.what}: probabilities cannot be read as numbers; expected one a class") from None
        P = np.where(np.isnan(P).all(axis=1, keepdims=True), 0.0, P)
        rows, classes = np.nonzero(P)  # NaN is not zero: it is refused with the votes that do not sum to 1
        self.add(rows, np.full(len(rows), column), labels[classes], P[rows, classes])

    def ids(self, n_classes: int) -> Ints:
        """The positions of the class ids, of which there are as many in every form that numbers its classes."""
        if self.width not in (None, n_classes):
            raise _unusable(
                f"{self.what} has probabilities of {self.width} and of {n_classes} classes; expected the same number everywhere"
            )
        self.width = n_classes
        return np.array([self._number(c) for c in range(n_classes)], dtype=np.int64)

    def check_rows(self, n: int, remedy: str = "") -> None:
        """Refuse another number of samples."""
        if n != self.n_rows:
            raise _unusable(f"{self.what} has {n} rows; expected {self.n_rows}, as its features have{remedy}")

    def cast(self, sources: Iterable[Any]) -> CastVotes:
        """Everything collected; the sources are checked."""
        names = tuple(str(plain(name)) for name in sources)
        if not names:
            raise _unusable(f"{self.what} has no source; expected at least one")
        wrong = next((name for name in names if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable()), None)
        if wrong is not None:
            raise _unusable(
                f"{self.what}: {wrong[:50]!r} cannot name a source; expected 1 to {_LONGEST_NAME} printable characters"
            )
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise _unusable(f"{self.what}: two sources are called {twice!r}; expected distinct names")
        rows, columns, labels = (
            np.concatenate([np.empty(0, np.int64), *(part[k] for part in self._parts)]) for k in range(3)
        )
        weights = None
        if any(part[3] is not None for part in self._parts):
            weights = np.concatenate([np.ones(len(part[0])) if part[3] is None else part[3] for part in self._parts])
        return CastVotes(
            self.what, self.n_rows, names, self.named, rows, columns, labels, tuple(self._numbers), weights, self.width
        )  # fmt: skip


def _from_source_votes(given: SourceVotes, ballots: _Ballots) -> Sequence[str]:
    ballots.check_rows(given.n_rows)
    ids, C = ballots.ids(given.n_classes), given.n_classes
    entries = given.table.tocoo()
    ballots.add(entries.row.astype(np.int64), entries.col.astype(np.int64) // C, ids[entries.col % C], entries.data)
    return given.names


def _from_mapping(given: Mapping[Any, Any], ballots: _Ballots) -> Sequence[Any]:
    for j, values in enumerate(given.values()):
        named = hasattr(values, "columns")
        array = np.asarray(values.to_numpy()) if named else _as_array(values, ballots.what)
        if array.ndim == 1:
            ballots.add_labels(array, j)
        elif array.ndim == 2 and array.shape[1] >= 2:
            labels = ballots.number(_objects(list(values.columns))) if named else ballots.ids(array.shape[1])
            ballots.add_probabilities(array, j, labels)
        else:
            raise _unusable(
                f"{ballots.what}: source {list(given)[j]!r} has the shape {array.shape}; expected (samples,) labels or "
                "(samples, classes) probabilities"
            )
    return list(given)


def _from_sparse(given: Any, ballots: _Ballots) -> Sequence[str]:
    if len(given.shape) != 2:
        raise _shape(given.shape, ballots.what)
    ballots.check_rows(given.shape[0])
    entries = given.tocoo()
    stored = np.asarray(entries.data)
    whole = stored.dtype.kind in "iu" or (stored.dtype.kind == "f" and bool((stored == np.round(stored)).all()))
    if not whole or (stored < 0).any():
        raise _unusable(
            f"{ballots.what}: a sparse matrix with entries such as {plain(stored[0]) if len(stored) else None!r} of type "
            f"{stored.dtype}; expected class id + 1 where a source votes, so that nothing stored, or 0, means no vote. "
            "Give probabilities as a long table with the column probability"
        )
    ids = stored.astype(np.int64) - 1
    ballots.add(entries.row.astype(np.int64), entries.col.astype(np.int64), ballots.number(ids))
    return _numbered(given.shape[1], ballots)


def _roles(names: Sequence[str]) -> dict[str, str | None]:
    """Which columns are item, source and label."""
    return {role: next((name for name in accepted if name in names), None) for role, accepted in _ROLES.items()}


def is_long(given: Any) -> bool:
    """Whether votes are a long table, which names its items.

    >>> is_long(pd.DataFrame({"task": [0], "worker": ["ann"], "label": ["ham"]})), is_long(pd.DataFrame({"rule": ["ham"]}))
    (True, False)
    """
    return hasattr(given, "columns") and None not in _roles([str(column) for column in given.columns]).values()


def _from_frame(given: Any, ballots: _Ballots, keys: Sequence[str] | None) -> Sequence[Any]:
    names = [str(column) for column in given.columns]
    if len(set(names)) < len(names):
        return names  # which `cast` refuses
    roles = _roles(names)
    there = [name for name in roles.values() if name is not None]
    if len(there) == len(_ROLES):
        return _from_long(given, roles, ballots, keys)
    if len(there) == 2 or any(name in names for name in ("id", *_ROLES["item"])):
        raise _unusable(
            f"{ballots.what} has the columns {_some(names)}; expected item, source and label in a long table, or a column a "
            "source, and no other, in a wide one, whose rows are those of the features"
        )
    ballots.check_rows(len(given), ". A long table, with a vote a row, has the columns item, source and label")
    for j, column in enumerate(given.columns):
        ballots.add_labels(np.asarray(given[column].to_numpy()), j)
    return names


def _from_long(
    given: Any, roles: Mapping[str, str | None], ballots: _Ballots, keys: Sequence[str] | None
) -> Sequence[Any]:
    items, sources, labels = (np.asarray(given[roles[role]].to_numpy()) for role in _ROLES)
    rows = _rows_of(items, ballots, keys)
    columns, found = pd.factorize(sources)
    if (columns < 0).any():
        raise _unusable(
            f"{ballots.what}: row {int(np.argmax(columns < 0))} names no source; expected a name in every row"
        )
    name, weights = next((name for name in _PROBABILITY if name in given.columns), None), None
    if name is not None:
        weights = pd.to_numeric(pd.Series(np.asarray(given[name].to_numpy())), errors="coerce").to_numpy(np.float64)
    ballots.add(rows, columns.astype(np.int64), ballots.number(labels), weights)
    return list(found)


def _rows_of(items: NDArray[Any], ballots: _Ballots, keys: Sequence[str] | None) -> Ints:
    """The samples that a long table names, by their ids, or as rows of the features."""
    codes, found = pd.factorize(items)
    texts = [str(int(value) if isinstance(value, float) and value.is_integer() else value) for value in found.tolist()]
    if keys is not None:
        if len(set(keys)) < len(keys):
            raise _unusable(
                f"{ballots.what} names samples by ids that repeat; expected distinct ids in the items table"
            )
        places, expected = pd.Index(keys).get_indexer(pd.Index(texts, dtype=object)), "ids of the samples"
    else:
        numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64)
        inside = (numbers == np.round(numbers)) & (numbers >= 0) & (numbers < ballots.n_rows)
        places = np.where(inside, numbers, -1).astype(np.int64)
        expected = f"rows of the features, from 0 to {ballots.n_rows - 1}"
    unknown = [text for text, place in zip(texts, places.tolist(), strict=True) if place < 0]
    if unknown or (codes < 0).any():
        raise _unusable(
            f"{ballots.what}: there is no sample {_some(unknown or [None])}, which has a vote; expected {expected}"
        )
    return np.asarray(places[codes], dtype=np.int64)


def _from_array(array: NDArray[Any], ballots: _Ballots) -> Sequence[str]:
    if array.ndim == 1 and not any(isinstance(one, list | tuple | np.ndarray) for one in array):
        array = array[:, None]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] < 2):
        raise _shape(array.shape, ballots.what)
    ballots.check_rows(len(array))
    n, J = array.shape[:2]
    if array.ndim == 3:
        ids = ballots.ids(array.shape[2])
        for j in range(J):
            ballots.add_probabilities(array[:, j], j, ids)
    else:
        step = max(1, _CELLS // max(1, J))
        for start in range(0, n, step):
            numbers = ballots.number(array[start : start + step])
            rows, columns = np.nonzero(numbers >= 0)
            ballots.add(rows + start, columns, numbers[rows, columns])
    return _numbered(J, ballots)


def _numbered(n_sources: int, ballots: _Ballots) -> Sequence[str]:
    if n_sources > _MOST_SOURCES:
        raise _unusable(f"{ballots.what} has {n_sources} sources; expected at most {_MOST_SOURCES}")
    ballots.named = False
    return [f"source {j + 1}" for j in range(n_sources)]


def _as_array(given: Any, what: str) -> NDArray[Any]:
    """An array; lists keep the types of their entries, masked entries are None."""
    if np.ma.isMaskedArray(given):
        array = np.ma.getdata(given).astype(object)
        array[np.ma.getmaskarray(given)] = None
        return array
    if hasattr(given, "to_numpy"):
        return np.asarray(given.to_numpy())
    if hasattr(given, "__array__"):
        return np.asarray(given)
    entries = as_list(given, what)
    try:
        return np.array(entries, dtype=object)
    except ValueError:
        raise _unusable(f"{what} has rows of different lengths; expected one entry a source and sample") from None


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def with_weak_source(votes: SourceVotes, weak: Float64s) -> SourceVotes:
    """The sources and, as one more, the weak labels that were given beside them."""
    if WEAK_SOURCE in votes.names:
        raise _unusable(
            f"a source of votes is called {WEAK_SOURCE!r}, as Y_weak is where both are given; rename it, or leave Y_weak out"
        )
    return votes.beside(SourceVotes.soft(weak, WEAK_SOURCE))


def _is_number(value: Any) -> bool:
    """Whether a label is a whole number, as such or as text."""
    if isinstance(value, str):
        return value.isascii() and value.isdecimal()
    return isinstance(value, int | float) and value >= 0 and float(value).is_integer()


def _have_numbers(names: ClassNames) -> bool:
    """Whether classes are called by numbers that are text."""
    return any(isinstance(name, str) and _is_number(name) for name in names.names)


def _is_fraction(value: Any) -> bool:
    return isinstance(value, float) and not value.is_integer()


def _shape(shape: Sequence[int], what: str) -> InvalidInputError:
    return _unusable(
        f"{what} has shape {tuple(shape)}; expected (samples, sources) labels, (samples, sources, classes) probabilities, "
        "a long table, a sparse matrix or a dict of sources"
    )


def _some(values: Iterable[Any]) -> str:
    shown = [repr(value) for value in values]
    return ", ".join(shown[:5]) + (", …" if len(shown) > 5 else "")


def _unusable(why: str) -> InvalidInputError:
    return InvalidInputError(why, code="votes")
