"""Labelling functions: Python functions that get a row and say a class, or nothing.

A file of labelling functions, here `rules.py`:

    from labelchef import labelling_function

    @labelling_function(columns=["text"])
    def has_link(row):
        return "spam" if "http" in row.text else None

Snorkel's own `LabelingFunction` objects may stand in the file too, by themselves or in lists. They answer with class ids, −1 for
nothing, so the file, or the caller, names the classes in the order of their ids: `CLASSES = ["ham", "spam"]`.

**The file is executed**, with all rights of the person who runs it. It is read only where a person names it on the command line
or in Python, never from an upload.

What goes wrong in a function:

- *An error on a row* counts as no vote on it. The outcome says how many rows, and the first: its id, the line in the file, the
  error.
- *Errors on more than `MOST_FAILING` of the rows* mute the function: none of its votes count, because those that are left are a
  selection nobody chose. If every function is muted, the votes are refused.
- *An answer that is no class* (an unknown name, an id out of range, any other type) is refused at once: it is wrong on every row.

**Snorkel's label matrix** L (n, J): L[i, j] is the class id that function j gives row i, −1 for none (`read_label_matrix`).
"""

import importlib.util
import sys
import traceback
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError, TooLargeError
from labelchef.base.intake import Finding, Progress, Severity, no_progress
from labelchef.base.npy import read_npy, read_npz
from labelchef.believe.vote_forms import long_table

ID = "id"
"""The column of a frame that names the rows."""
CLASSES = "CLASSES"
"""The variable of a file that names the classes."""
MOST_FAILING = 0.05
"""The share of rows on which a function may fail before it is muted."""
_TOLD_EVERY = 1000
_ABSTAIN = -1


class Row(Mapping[str, Any]):
    """One row as a labelling function sees it: cells by attribute or by key; a missing cell is None.

    >>> row = Row({"text": "win now", "number of words": 2})
    >>> row.text, row["number of words"], row.get("author", "nobody")
    ('win now', 2, 'nobody')
    """

    __slots__ = ("_cells",)

    def __init__(self, cells: Mapping[str, Any]) -> None:
        self._cells = cells

    def __getitem__(self, column: str) -> Any:
        try:
            return self._cells[column]
        except KeyError:
            raise KeyError(f"no column {column!r}; there are {list(self._cells)[:10]}") from None

    def __getattr__(self, column: str) -> Any:
        try:
            return self._cells[column]
        except KeyError:
            raise AttributeError(f"no column {column!r}; there are {list(self._cells)[:10]}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        return f"Row({dict(self._cells)!r})"


@dataclass(frozen=True)
class LabellingFunction:
    """A function that says a class name of a row, or None. It can still be called as what it was."""

    name: str
    function: Callable[[Row], str | None]
    columns: tuple[str, ...] | None = None
    """The columns that it reads, None for all of them: it sees no others, and they are looked for before it is called."""

    def __call__(self, row: Mapping[str, Any]) -> str | None:
        """The answer of the function."""
        return self.function(row if isinstance(row, Row) else Row(row))


def labelling_function(
    name: str | None = None, *, columns: Sequence[str] | None = None
) -> Callable[[Callable[[Row], str | None]], LabellingFunction]:
    """Make a labelling function of a function of a row. `name` is that of the source; the function's own name if None.

    >>> @labelling_function(columns=["text"])
    ... def has_link(row):
    ...     return "spam" if "http" in row.text else None
    >>> has_link.name, has_link({"text": "see http://x.y"})
    ('has_link', 'spam')
    """
    if callable(name):
        raise InvalidInputError("write @labelling_function() with brackets", code="labelling_function")
    if isinstance(columns, str):
        raise InvalidInputError(
            f"columns is {columns!r}; expected a list, such as [{columns!r}]", code="labelling_function"
        )

    def decorate(function: Callable[[Row], str | None]) -> LabellingFunction:
        return LabellingFunction(name or function.__name__, function, None if columns is None else tuple(columns))

    return decorate


@runtime_checkable
class SnorkelFunction(Protocol):
    """What is needed of Snorkel's `LabelingFunction`; Snorkel itself is not imported."""

    name: str
    _f: Callable[..., Any]
    _resources: Mapping[str, Any]

    def __call__(self, x: Any) -> int:
        """The class id of a data point, −1 for none."""
        ...


AnyFunction = LabellingFunction | SnorkelFunction


@dataclass(frozen=True)
class FunctionFile:
    """What a file of labelling functions holds."""

    path: str
    functions: tuple[AnyFunction, ...]
    classes: tuple[str, ...] | None
    """The class names in the order of their ids, if the file or the caller says so."""


def load_functions(path: Path, *, classes: Sequence[str] | None = None) -> FunctionFile:
    """Execute a Python file and take the labelling functions out of it, in their order.

    `classes` are those of a file that has no `CLASSES`; where it has, its ids are in that order.
    """
    if path.suffix != ".py" or not path.is_file():
        raise InvalidInputError(f"labelling functions: {path} is no Python file (.py)", code="functions")
    module = _execute(path)
    found: dict[int, AnyFunction] = {}
    undecorated: list[str] = []
    for value in vars(module).values():
        for one in _held(value):
            if isinstance(one, LabellingFunction) or (isinstance(one, SnorkelFunction) and isinstance(one.name, str)):
                found.setdefault(id(one), one)
            elif isinstance(one, types.FunctionType) and one.__module__ == module.__name__:
                undecorated.append(one.__name__)
    if not found:
        hint = f"; put @labelling_function() above {undecorated[0]}" if undecorated else ""
        raise InvalidInputError(f"{path} holds no labelling function{hint}", code="functions")
    names = [one.name for one in found.values()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"{path}: two labelling functions are called {twice!r}; rename one", code="functions")
    said = getattr(module, CLASSES, None)
    said = list(classes) if said is None and classes is not None else said
    return FunctionFile(str(path), tuple(found.values()), None if said is None else _class_names(said, path))


def _held(value: object) -> list[object]:
    """What a variable holds: itself, or what is in the list or dict that it is."""
    if isinstance(value, list | tuple | set):
        return list(value)
    return list(value.values()) if isinstance(value, dict) else [value]


def _class_names(said: object, path: Path) -> tuple[str, ...]:
    listed = list(said) if isinstance(said, list | tuple) else []
    if not listed or not all(isinstance(one, str) and one for one in listed) or len(set(listed)) < len(listed):
        raise InvalidInputError(
            f"{path}: {CLASSES} is {said!r}; expected the names of the classes in the order of their ids, "
            'such as ["ham", "spam"]',
            code="functions",
        )
    return tuple(listed)


def _execute(path: Path) -> types.ModuleType:
    """The module of a file; modules beside it can be imported from it."""
    name = f"_labelchef_functions_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        why = f"{path}, line {error.lineno}: {error.msg}"
        raise InvalidInputError(f"labelling functions: {why}", code="functions") from None
    except (Exception, SystemExit) as error:
        why = f"{path}{_line_in(error, path)}: {type(error).__name__}: {error}"
        raise InvalidInputError(f"labelling functions: {why}", code="functions") from error
    finally:
        sys.path.remove(beside)
    return module


def _line_in(error: BaseException, path: Path) -> str:
    """', line 7' for the last line of the file that the error came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f", line {lines[-1]}" if lines else ""


# --- votes ---


@dataclass(frozen=True)
class Failure:
    """The first error of a function."""

    item: str
    line: int | None
    error: str


@dataclass
class FunctionOutcome:
    """What became of a function on n rows."""

    name: str
    n_votes: int = 0
    n_failed: int = 0
    first_failure: Failure | None = None
    muted: bool = False


@dataclass(frozen=True)
class FunctionVotes:
    """The votes of labelling functions and what happened."""

    votes: pd.DataFrame
    """Long: item (id), source (the name of the function), label; all text."""
    outcomes: tuple[FunctionOutcome, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What people should know: functions that failed on rows, and those that are muted."""
        found = []
        for one in self.outcomes:
            if one.first_failure is None:
                continue
            first = one.first_failure
            line = "" if first.line is None else f", line {first.line}"
            what = f"labelling function {one.name!r} failed on {one.n_failed} rows"
            then = "it is muted: none of its votes count; mend it" if one.muted else "they get no vote of it"
            found.append(
                Finding(
                    "function_muted" if one.muted else "function_failed",
                    Severity.WARNING,
                    f"{what}, first on row {first.item!r}{line}: {first.error}; {then}",
                    one.n_failed,
                    (first.item,),
                )
            )
        return tuple(found)


def apply_functions(
    functions: Sequence[AnyFunction],
    frame: pd.DataFrame,
    *,
    classes: Sequence[str] | None = None,
    progress: Progress = no_progress,
    most_failing: float = MOST_FAILING,
) -> FunctionVotes:
    """The votes of labelling functions on rows. The frame has the column `id` and the columns that the functions read.

    `classes` are the class names in the order of their ids: needed by Snorkel's functions, and names that others may say.

    >>> frame = pd.DataFrame({"id": ["007", "8"], "text": ["http://x.y", "nice song"]})
    >>> is_link = LabellingFunction("link", lambda row: "spam" if "http" in row.text else None)
    >>> apply_functions([is_link], frame).votes
      item source label
    0  007   link  spam
    """
    _check_use(functions, frame, classes)
    known = None if classes is None else list(classes)
    ids = [str(key) for key in frame[ID].tolist()]
    outcomes = [FunctionOutcome(one.name) for one in functions]
    said: list[list[tuple[int, str]]] = [[] for _ in functions]
    allowed = most_failing * len(frame)
    for i, cells in enumerate(_cells_of(frame)):
        if i % _TOLD_EVERY == 0:
            progress("labelling functions", i, len(frame))
        row, point = Row(cells), None
        for j, function in enumerate(functions):
            outcome = outcomes[j]
            if outcome.muted:
                continue
            try:
                answer: object
                if isinstance(function, LabellingFunction):
                    answer = function.function(row if function.columns is None else _only(cells, function.columns))
                else:
                    point = pd.Series(cells, dtype=object) if point is None else point
                    answer = function(point)
            except (Exception, SystemExit) as error:
                outcome.n_failed += 1
                outcome.first_failure = outcome.first_failure or _failure(ids[i], function, error)
                outcome.muted = outcome.n_failed > allowed
                continue
            label = _label_of(function, answer, known, ids[i])
            if label is not None:
                said[j].append((i, label))
    progress("labelling functions", len(frame), len(frame))
    if functions and all(one.muted for one in outcomes):
        raise InvalidInputError(
            f"every labelling function fails on more than {most_failing:.0%} of the rows. "
            + FunctionVotes(pd.DataFrame(), tuple(outcomes)).findings[0].message,
            code="functions",
        )
    found: list[tuple[str, str, str]] = []
    for outcome, votes in zip(outcomes, said, strict=True):
        if not outcome.muted:
            outcome.n_votes = len(votes)
            found += [(ids[i], outcome.name, label) for i, label in votes]
    items, sources, labels = ([vote[k] for vote in found] for k in range(3))
    return FunctionVotes(long_table(items, sources, labels), tuple(outcomes))


def _check_use(functions: Sequence[AnyFunction], frame: pd.DataFrame, classes: Sequence[str] | None) -> None:
    if ID not in frame.columns:
        raise InvalidInputError(f"the rows have no column {ID!r}: {list(frame.columns)[:10]}", code="functions")
    for function in functions:
        if isinstance(function, LabellingFunction):
            missing = [name for name in function.columns or () if name not in frame.columns]
            if missing:
                raise InvalidInputError(
                    f"labelling function {function.name!r} reads the column {missing[0]!r}; the rows have "
                    f"{list(frame.columns)[:10]}",
                    code="functions",
                )
        elif classes is None:
            raise InvalidInputError(
                f"labelling function {function.name!r} is one of Snorkel's and answers with class ids; name the classes "
                f'in their order: {CLASSES} = ["...", "..."] in its file, or --classes',
                code="functions",
            )


def _cells_of(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The cells of each row by column, None where one is missing."""
    names = [str(name) for name in frame.columns]
    columns = [frame[name].astype(object).where(frame[name].notna(), None).tolist() for name in frame.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _only(cells: Mapping[str, Any], columns: Sequence[str]) -> Row:
    return Row({name: cells[name] for name in columns})


def _failure(item: str, function: AnyFunction, error: BaseException) -> Failure:
    code = getattr(getattr(function, "function", None) or getattr(function, "_f", None), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if code is not None and frame.filename == code.co_filename]
    return Failure(item, lines[-1] if lines else None, f"{type(error).__name__}: {error}")


def _label_of(function: AnyFunction, answer: object, classes: list[str] | None, item: str) -> str | None:
    """An answer as a class name; None for no vote."""
    if isinstance(function, LabellingFunction):
        if answer is None:
            return None
        if isinstance(answer, str) and answer and (classes is None or answer in classes):
            return answer
        expected = "None or the name of a class" if classes is None else f"None or one of {classes[:20]}"
    else:
        if isinstance(answer, int | np.integer) and not isinstance(answer, bool) and classes is not None:
            if answer == _ABSTAIN:
                return None
            if 0 <= int(answer) < len(classes):
                return classes[int(answer)]
        expected = f"-1 or the id of a class, 0 to {len(classes or ()) - 1}"
    why = f"labelling function {function.name!r} answers {answer!r} on row {item!r}; expected {expected}"
    raise InvalidInputError(why, code="function_answer")


# --- Snorkel's label matrix ---


def read_label_matrix(
    path: Path, ids: Sequence[str], *, classes: Sequence[str] | None = None, by_position: bool = False
) -> pd.DataFrame:
    """The votes of a label matrix in an .npy or .npz file, as a long table: item, source, label; all text.

    An .npz holds the matrix as `L` (or as its only array of two dimensions) and may hold `ids` (n,), the ids of its rows,
    `names` (J,), the names of the functions, and `classes` (C,), the names of the classes. `ids` are those of the items. Without
    ids in the file, row i is item i only where `by_position` says so, and the numbers of rows must agree.
    """
    arrays = _read_arrays(path)
    L = _matrix_of(arrays, path)
    listed = _texts(arrays, "classes", path)
    named = list(classes) if classes is not None else listed
    if named is None:
        raise _matrix_error(
            path, "it holds class ids; name the classes in their order: --classes ham,spam, or an array `classes`"
        )
    largest = int(L.max(initial=-1))
    if largest >= len(named) or int(L.min(initial=-1)) < _ABSTAIN:
        raise _matrix_error(
            path, f"it holds {L.min()} to {L.max()}; expected -1 (no vote) to {len(named) - 1}: {named[:20]}"
        )
    sources = (
        _texts(arrays, "names", path)
        or _texts(arrays, "sources", path)
        or [f"function {j + 1}" for j in range(L.shape[1])]
    )
    if len(sources) != L.shape[1] or len(set(sources)) < len(sources):
        raise _matrix_error(path, f"{len(set(sources))} different names for {L.shape[1]} functions; expected one each")
    rows = _texts(arrays, "ids", path)
    if rows is None:
        if not by_position:
            raise _matrix_error(
                path,
                "it has no ids; write np.savez(file, L=L, ids=ids), or say --by-position if its rows follow the items",
            )
        if len(L) != len(ids):
            raise _matrix_error(path, f"it has {len(L)} rows for {len(ids)} items; by position they must be as many")
        rows = list(ids)
    if len(rows) != len(L) or len(set(rows)) < len(rows):
        raise _matrix_error(path, f"{len(set(rows))} different ids for {len(L)} rows; expected one each")
    at, source = np.nonzero(L.T != _ABSTAIN)[::-1]
    items, names, labels = (np.array(one, dtype=object) for one in (rows, sources, named))
    return long_table(items[at], names[source], labels[L[at, source]])


def _matrix_error(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError(f"label matrix {path}: {why}", code="label_matrix")


def _read_arrays(path: Path) -> dict[str, Any]:
    try:
        return read_npz(path) if zipfile.is_zipfile(path) else {"L": read_npy(path)}
    except TooLargeError:
        raise
    except Exception as error:
        raise _matrix_error(path, f"it cannot be read: {error}") from None


def _matrix_of(arrays: Mapping[str, Any], path: Path) -> Ints:
    tables = [name for name, one in arrays.items() if one.ndim == 2]
    name = "L" if "L" in arrays else tables[0] if len(tables) == 1 else None
    if name is None or arrays[name].ndim != 2:
        shapes = {name: one.shape for name, one in arrays.items()}
        raise _matrix_error(path, f"it holds {shapes}; expected an array L of shape (rows, functions)")
    L = arrays[name]
    if L.dtype.kind not in "iuf" or (L.dtype.kind == "f" and not np.array_equal(L, np.round(L))):
        raise _matrix_error(path, f"{name} holds {L.dtype}; expected whole numbers, -1 for no vote")
    return np.asarray(L, dtype=np.int64)


def _texts(arrays: Mapping[str, Any], name: str, path: Path) -> list[str] | None:
    """A flat array as texts; whole numbers are written as such."""
    if name not in arrays:
        return None
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise _matrix_error(path, f"{name} is {array.dtype} of shape {array.shape}; expected a flat array of texts")
    return [one.decode() if isinstance(one, bytes) else str(one) for one in array.tolist()]
