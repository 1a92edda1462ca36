"""Columns of a table as numbers: numbers, categories, dates, short texts, with missing values (extra `tables`: skrub).

Columns whose every value is a number, or text that reads as one, are read here and need no library. All others go through
`skrub.TableVectorizer`: dates become year, month, day, … and seconds; up to 40 categories a column each; longer lists of texts
30 directions of their character n-grams. Then, for every column z of all these,

    B[:, j] = clip( (z_j − m_j) / s_j, −5, 5 )        0 where z_j is missing
    B[:, j′] = [z_j is missing] − its mean            one more column for every one with missing values in the fit

m is the mean over the rows of the fit. s is the standard deviation for numbers and parts of dates; 1 for categories and texts, of
which a rare one shall not weigh more than a frequent one. Categories that were never seen, and dates or numbers that cannot be
read, are missing.

Without skrub, tables of numbers can be encoded, and anything else is an error that names the extra. A file keeps the vectorizer
as skops writes it, and reads back the types in `TRUSTED` only: nothing else in it is loaded, and nothing is unpickled.
"""

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.arrays import Bools, Float64s
from labelchef.base.errors import InvalidInputError, MissingExtraError, PredictionWarning, warn_caller
from labelchef.base.intake import Progress, no_progress
from labelchef.data.encoders.protocol import Block, Content, State

LARGEST = 5.0
"""Standard deviations from the mean beyond which a number counts no more."""
TRUSTED = (
    "numpy.dtype",
    "skrub._apply_to_each_col.ApplyToEachCol",
    "skrub._check_input.CheckInputDataFrame",
    "skrub._clean_categories.CleanCategories",
    "skrub._clean_null_strings.CleanNullStrings",
    "skrub._dataframe._common.is_any_date",
    "skrub._dataframe._common.is_categorical",
    "skrub._dataframe._common.is_numeric",
    "skrub._datetime_encoder.DatetimeEncoder",
    "skrub._drop_uninformative.DropUninformative",
    "skrub._duration_to_float.DurationToFloat",
    "skrub._string_encoder.StringEncoder",
    "skrub._table_vectorizer.PassThrough",
    "skrub._table_vectorizer.ShortReprDict",
    "skrub._table_vectorizer.TableVectorizer",
    "skrub._table_vectorizer._created_by_predicate",
    "skrub._to_datetime.ToDatetime",
    "skrub._to_float.ToFloat",
    "skrub._to_str.ToStr",
    "skrub.selectors._base.All",
    "skrub.selectors._base.And",
    "skrub.selectors._base.Cols",
    "skrub.selectors._base.Filter",
    "skrub.selectors._base.Sub",
    "skrub.selectors._selectors._cardinality_below",
)
"""Types, beside those that skops trusts by itself, that a file may hold."""
_REMEDY = "pip install 'labelchef[tables]'"
_CHUNK = 20_000
_HUGE = 1e100  # larger numbers are this one: their squares would be infinite


@dataclass(frozen=True)
class TableEncoder:
    """Some columns of a table."""

    columns: tuple[str, ...]
    seed: int = 0

    def fit(self, content: Content, progress: Progress = no_progress) -> "FittedTable":
        """Learn kinds of columns, categories, means and spreads."""
        progress("learning columns", 0, len(content))
        numbers = tuple(name for name in self.columns if _is_number(content.column(name)))
        others = tuple(name for name in self.columns if name not in numbers)
        dates = tuple(name for name in others if pd.api.types.is_datetime64_any_dtype(content.column(name)))
        vectorizer, spread_too = None, np.ones(len(numbers), dtype=bool)
        if others:
            require_skrub(others)
            from skrub import StringEncoder, TableVectorizer

            vectorizer = TableVectorizer(high_cardinality=StringEncoder(random_state=self.seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                vectorizer.fit(_canonical(content, others, dates))
            kinds = {out: kind for name, kind in vectorizer.column_to_kind_.items()
                     for out in vectorizer.input_to_outputs_[name]}  # fmt: skip
            measured = [kinds.get(str(out)) in ("datetime", "numeric") for out in vectorizer.get_feature_names_out()]
            spread_too = np.concatenate([spread_too, np.array(measured, dtype=bool)])
        made = FittedTable(numbers, others, dates, vectorizer, *(np.zeros(0),) * 3, np.zeros(0, dtype=bool))
        Z = made.values(content)
        known = np.isfinite(Z)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, Z, 0.0).sum(axis=0) / count
        spread = np.sqrt((np.where(known, Z - mean, 0.0) ** 2).sum(axis=0) / count)
        changing = spread > 1e-9 * np.maximum(np.abs(mean), 1.0)
        scale = np.where(changing, 1.0 / np.where(changing & spread_too, spread, 1.0), 0.0)
        missing = (~known).mean(axis=0)
        progress("learning columns", len(content), len(content))
        told = (missing > 0) & (missing < 1)
        return FittedTable(numbers, others, dates, vectorizer, mean, scale, missing, told)


@dataclass(frozen=True, eq=False)
class FittedTable:
    """Kinds of columns, the vectorizer of those that are no numbers, means and spreads of what comes out (r,)."""

    numbers: tuple[str, ...]
    others: tuple[str, ...]
    dates: tuple[str, ...]
    """Those of `others` that came as dates, not as text."""
    vectorizer: Any
    """A fitted skrub.TableVectorizer; None where all columns are numbers."""
    mean: Float64s
    scale: Float64s
    missing: Float64s
    """Share of missing values."""
    told: Bools
    """Whether a column says where the value is missing."""

    @property
    def name(self) -> str:
        """What people read."""
        few = ", ".join(self.columns[:3])
        return f"columns {few}" + (f" and {len(self.columns) - 3} more" if len(self.columns) > 3 else "")

    @property
    def group(self) -> str:
        """A group of its own."""
        return self.name

    @property
    def columns(self) -> tuple[str, ...]:
        """Numbers first."""
        return (*self.numbers, *self.others)

    @property
    def width(self) -> int:
        """Columns of the block; 0 where none of the columns ever changes."""
        return int(len(self.scale) + self.told.sum()) if self.scale.any() or self.told.any() else 0

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:
        """(n, width)"""
        n, r = len(content), len(self.scale)
        B = np.zeros((n, self.width), dtype=np.float32)
        for start in range(0, n if self.width else 0, _CHUNK):
            Z = self.values(content.part(slice(start, start + _CHUNK)))
            known = np.isfinite(Z)
            part = B[start : start + _CHUNK]
            part[:, :r] = np.clip(np.where(known, Z - self.mean, 0.0) * self.scale, -LARGEST, LARGEST)
            part[:, r:] = (~known - self.missing)[:, self.told]
            progress(f"encoding {self.name}", min(start + _CHUNK, n), n)
        return B

    def values(self, content: Content) -> Float64s:
        """(n, r) the numbers before scaling; NaN where one is missing."""
        parts = [_as_numbers(content.column(name)) for name in self.numbers]
        Z = np.column_stack(parts) if parts else np.empty((len(content), 0))
        if self.vectorizer is None:
            return Z
        with warnings.catch_warnings():  # categories and dates that were never seen
            warnings.simplefilter("ignore")
            found = self.vectorizer.transform(_canonical(content, self.others, self.dates))
        return np.hstack([Z, found.to_numpy(dtype=np.float64)])

    def state(self) -> State:
        """What a file keeps."""
        arrays: dict[str, NDArray[Any]] = {
            "mean": self.mean, "scale": self.scale, "missing": self.missing, "told": self.told,
        }  # fmt: skip
        facts: dict[str, Any] = {"numbers": list(self.numbers), "others": list(self.others), "dates": list(self.dates)}
        if self.vectorizer is not None:
            import skops.io
            import skrub

            arrays["vectorizer"] = np.frombuffer(skops.io.dumps(self.vectorizer), dtype=np.uint8)
            facts["skrub"] = skrub.__version__
        return State("table", arrays, facts)

    @classmethod
    def of_state(cls, state: State) -> "FittedTable":
        """From what `state` gave; types that are not in `TRUSTED` are refused."""
        parts = ("numbers", "others", "dates")
        numbers, others, dates = (tuple(str(name) for name in state.facts[part]) for part in parts)
        mean, scale, missing = (np.asarray(state.arrays[k], dtype=np.float64) for k in ("mean", "scale", "missing"))
        told = np.asarray(state.arrays["told"], dtype=bool)
        if not mean.shape == scale.shape == missing.shape == told.shape == (len(mean),):
            raise InvalidInputError("means, spreads and missing values differ in number", code="encoder")
        vectorizer = None
        if others:
            require_skrub(others)
            vectorizer = _trusted(state.arrays["vectorizer"].tobytes(), str(state.facts.get("skrub")))
        return cls(numbers, others, dates, vectorizer, mean, scale, missing, told)


def _trusted(raw: bytes, version: str) -> Any:
    import skops.io
    import skrub

    unknown = sorted(set(skops.io.get_untrusted_types(data=raw)) - set(TRUSTED))
    if unknown:
        raise InvalidInputError(
            f"it holds the types {unknown[:3]}, which are not trusted (made with skrub {version}, here is "
            f"{skrub.__version__})",
            code="encoder",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another version of scikit-learn
        return skops.io.loads(raw, trusted=list(TRUSTED))


def require_skrub(columns: tuple[str, ...]) -> None:
    """Say what is missing, without importing it."""
    if importlib.util.find_spec("skrub") is None or importlib.util.find_spec("skops") is None:
        raise MissingExtraError(
            f"the columns {list(columns)[:5]} are no numbers; categories, dates and texts in tables need skrub and skops; "
            f"{_REMEDY}",
            code="tables",
        )


def _is_number(column: "pd.Series[Any]") -> bool:
    """Whether every value is a number, or text that reads as one, and there is any."""
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        return True
    if pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_timedelta64_dtype(column):
        return False
    given = column.dropna()
    given = given[given.map(lambda value: not (isinstance(value, str) and not value.strip()))]
    return len(given) > 0 and bool(pd.to_numeric(given.astype(object), errors="coerce").notna().all())


def _as_numbers(column: "pd.Series[Any]") -> Float64s:
    if not (pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column)):
        given, column = column, pd.to_numeric(column.astype(object), errors="coerce")
        unread = given[given.notna() & column.isna() & (given.astype(str).str.strip() != "")]
        if len(unread):
            warn_caller(
                f"column {given.name!r}: {len(unread)} of {len(given)} values are no numbers, such as {unread.iloc[0]!r}; they "
                "are taken as missing. Write numbers with a point",
                PredictionWarning,
            )
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), np.clip(values, -_HUGE, _HUGE), np.nan)


def _canonical(content: Content, columns: tuple[str, ...], dates: tuple[str, ...]) -> pd.DataFrame:
    """`dates` as dates, everything else as text, so that the same values are read alike from any kind of file."""
    made = {}
    for name in columns:
        column = content.column(name).reset_index(drop=True)
        if name in dates:
            if not pd.api.types.is_datetime64_any_dtype(column):
                column = pd.to_datetime(column.astype(object), errors="coerce", format="mixed")
        else:
            if pd.api.types.is_datetime64_any_dtype(column):
                days = bool((column.dropna().dt.normalize() == column.dropna()).all())
                column = column.dt.strftime("%Y-%m-%d" if days else "%Y-%m-%d %H:%M:%S").astype(object)
            column = column.astype(object)
            column = pd.Series([_text(value) for value in column.where(column.notna(), None).tolist()], dtype="str")
        made[name] = column
    return pd.DataFrame(made)


def _text(value: Any) -> str | None:
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).encode("utf-8", "replace").decode()  # no lone surrogates
