"""What is known of a file and its columns before their roles are: names, kinds of values, forms of tables."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd

from labelchef.base.arrays import Float64s
from labelchef.base.intake import ColumnRole, FileRole
from labelchef.data.files import formats
from labelchef.data.files.formats import Table

NO_LABEL = frozenset({"", "-1"})
"""Texts that are never a label."""
NO_VOTE = NO_LABEL | {"abstain", "none", "null", "nan", "na", "n/a", "<na>"}
"""In lower case: texts that are no vote, unless a class is called so."""
SPLITS: Mapping[str, str] = {
    **dict.fromkeys(("train", "training", "unlabeled", "unlabelled", "0"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev", "trusted", "gold"), "trusted"),
    **dict.fromkeys(("test", "holdout", "eval"), "test"),
}
"""What the values of a split column stand for."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_FILE_WORDS: Mapping[FileRole, frozenset[str]] = {
    FileRole.TEST: _set("test holdout eval evaluation"),
    FileRole.TRUSTED: _set("trusted gold golden dev valid validation val expert experts verified truth"),
    FileRole.VOTES: _set(
        "vote votes lf lfs annotation annotations judgment judgments judgement judgements crowd worker workers annotators answers"
    ),
    FileRole.WEAK: _set("weak prob probs proba probabilities soft"),
    FileRole.FEATURES: _set("features feature embeddings embedding emb vectors encoded"),
    FileRole.ITEMS: _set("items data train training unlabeled unlabelled samples dataset"),
}
_ID_NAMES = _set("id key uid uuid guid index idx row item sample example document doc task unit")
_NUMBER_NAMES = _set("no nr number num code")
_ITEM_NAMES = ("item", "task", "row", "example", "sample", "unit", "document", "doc", "id", "x")
_VOTER_NAMES = _set("source worker annotator voter rater labeler labeller lf user performer judge coder model")
_VOTE_NAMES = ("label", "vote", "answer", "class", "judgment", "judgement", "value", "annotation", "rating", "choice")
_TEXT_NAMES = _set(
    "text review tweet content body sentence comment message question title description document utterance abstract email "
    "headline summary post caption transcript prompt"
)
_LABEL_NAMES = _set("label labels class category target y sentiment topic intent annotation tag")
_GOLD_WORDS = _set("gold golden true truth trusted expert verified correct")
_SOURCE_WORDS = _set("lf vote annotator worker rater source rule llm gpt model heuristic coder judge weak")
_BOOKS = _set("golden unit_state trusted_judgments last_judgment_at tainted canary")
"""Columns that a crowd platform adds, with '_' before them in its own exports."""
_ABOUT = (":confidence", "_confidence", ":gold", "_gold", "_gold_reason", ":variance")
"""Ends of the names of columns that say something of the label in the column without that end."""
_FLAGS = _set("true false yes no 0 1 t f y n")
_MOST_PARTS = 40
"""Columns of whole numbers in which numbers of votes are looked for."""
_TOTALS = _set("count counts total n votes judgments judgements annotators raters")
_NUMBERED = re.compile(r"^(.*?)[_\-. ]?(\d+)$")
_MISSING_NUMBERS = frozenset({"", "na", "nan", "n/a", "null", "none", "<na>", "-", "?"})


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case.

    >>> words_of("goldLabels_v2-final"), words_of("tweet id")
    (['gold', 'labels', 'v2', 'final'], ['tweet', 'id'])
    """
    parted = re.sub(r"([a-z])([A-Z])", r"\1_\2", name)
    return [word for word in re.split(r"[^0-9A-Za-z]+", parted.lower()) if word]


def option(name: str, columns: Sequence[str]) -> str:
    """The option of the command line with the first of these columns, as a shell reads it.

    >>> option("ignore", ["Stage", "Date Egg"])
    "--ignore 'Stage,Date Egg'"
    """
    return f"--{name} {shlex.quote(','.join(columns[:5]))}"


def numbers_of(column: Iterable[Any]) -> Float64s:
    """(n,) cells of text as numbers, NaN for missing ones and for words that mean so; all NaN where any other text is in it.

    Tables may have thousands of columns, so nothing is made of a column here but one array.
    """
    cells = list(column)
    values = np.asarray(pd.to_numeric(np.array(cells, dtype=object), errors="coerce"), dtype=np.float64)
    lacking = np.flatnonzero(np.isnan(values)).tolist()
    if any(isinstance(cells[k], str) and cells[k].strip().lower() not in _MISSING_NUMBERS for k in lacking):
        return np.full(len(cells), np.nan)
    values[~np.isfinite(values)] = np.nan
    return values


class Column:
    """What is known of a column of text; worked out where it is asked for."""

    def __init__(self, name: str, cells: Sequence[Any]) -> None:
        self.name, self.words, self._cells = name, words_of(name), cells
        self.values = [str(cell) for cell in cells if cell == cell and cell is not None]
        self.n, self.n_filled = len(cells), len(self.values)

    @cached_property
    def _head(self) -> list[str]:
        return self.values[:2000]

    @cached_property
    def mean_words(self) -> float:
        """Words of a value, in the mean."""
        return self._mean(len(text.split()) for text in self._head)

    @cached_property
    def mean_length(self) -> float:
        """Characters of a value, in the mean."""
        return self._mean(len(text) for text in self._head)

    @cached_property
    def images(self) -> bool:
        """Whether nearly all values end as files of images do."""
        return self._mean(text.lower().endswith(formats.IMAGE_SUFFIXES) for text in self._head) > 0.9

    @cached_property
    def spaced(self) -> bool:
        """Whether there are spaces in the values."""
        return self._mean(any(map(str.isspace, text)) for text in self._head) > 0.2

    def _mean(self, counts: Iterable[float]) -> float:
        return sum(counts) / max(1, len(self._head))

    def share(self, pattern: str, some: int = 2000) -> float:
        """Share of the first values in which a pattern occurs."""
        found = re.compile(pattern)
        head = self._head[:some]
        return sum(found.search(text) is not None for text in head) / max(1, len(head))

    @cached_property
    def known(self) -> frozenset[str]:
        """The distinct values."""
        return frozenset(self.values)

    @property
    def distinct(self) -> int:
        """How many distinct values there are."""
        return len(self.known)

    @property
    def kinds(self) -> frozenset[str]:
        """The distinct values, where there are at most 200."""
        return self.known if self.distinct <= 200 else frozenset()

    @cached_property
    def numbers(self) -> Float64s:
        """(n,) the values as numbers; all missing if any of them is none."""
        return numbers_of(self._cells)

    @cached_property
    def numeric(self) -> bool:
        """Whether everything in it is a number, or says that there is none."""
        return not bool(np.isnan(self.numbers).all())

    @property
    def all_distinct(self) -> bool:
        """Whether no value occurs twice."""
        return 0 < self.n_filled == self.distinct

    @property
    def row_numbers(self) -> bool:
        """Whether these are row numbers that were written with a table: they say nothing of the item, so they are never ids."""
        return self.name == formats.NAMELESS or self.name.startswith("Unnamed:")

    @cached_property
    def called_id(self) -> bool:
        """Whether the name says that it is an id."""
        named = bool(self.words) and (self.words[-1] in _ID_NAMES or self.words[0] in ("id", "uuid", "uid", "guid"))
        return named and not self.row_numbers

    @cached_property
    def codes(self) -> bool:
        """Whether the values are codes such as numbers of items: distinct, short, without spaces, no fractions."""
        if self.row_numbers or not self.all_distinct or self.n_filled < self.n or self.mean_length > 64 or self.spaced:
            return False
        if not self.numeric:
            return self.share(r"\d") > 0.5
        counted = np.sort(self.numbers)
        return bool(np.array_equal(counted, counted[0] + np.arange(len(counted)))) and len(counted) > 2

    @cached_property
    def id_like(self) -> bool:
        """Whether it is an id by its name or by its values: nothing to learn from."""
        called = self.called_id or (self.numeric and bool(_NUMBER_NAMES.intersection(self.words[-1:])))
        return (called and self.distinct > 0.9 * self.n_filled and not self.fractions) or self.codes

    @cached_property
    def fractions(self) -> bool:
        """Whether it holds numbers that are not whole."""
        held = self.numbers[~np.isnan(self.numbers)]
        return bool((held != held.round()).any())

    @cached_property
    def text(self) -> bool:
        """Whether its values are sentences that differ from row to row."""
        if self.numeric or self.images or self.n_filled == 0:
            return False
        varied = self.distinct > 0.3 * self.n_filled or self.distinct > 1000
        named = bool(set(self.words) & _TEXT_NAMES)
        sentences = self.mean_words >= 4 or (self.mean_length >= 40 and self.spaced)
        unspaced = self.mean_length >= 12 and self.share(r"[^\x00-\u02ff]", 200) > 0.5
        return varied and (sentences or unspaced or (named and (self.mean_words >= 1.5 or self.mean_length >= 15)))

    @cached_property
    def called_label(self) -> bool:
        """Whether the name says that it is a label."""
        return bool(self.words) and (self.words[-1] in _LABEL_NAMES or self.words[0] in _LABEL_NAMES)

    @cached_property
    def called_gold(self) -> bool:
        """Whether the name says that something in it is right."""
        return bool(set(self.words) & _GOLD_WORDS)

    @cached_property
    def gold_label(self) -> bool:
        """Whether the name says that the labels are right: gold_label, truth. A flag, as `gold` of yes and no, is none alone."""
        flag = {kind.strip().lower() for kind in self.kinds} <= _FLAGS and bool(
            set(self.words) & _set("golden trusted verified")
        )
        return self.called_gold and (self.called_label or (len(self.words) == 1 and not flag))

    @cached_property
    def called_source(self) -> bool:
        """Whether the name says that it is a source."""
        return bool(set(self.words) & _SOURCE_WORDS) or any(
            word.startswith("lf") and word[2:].isdigit() for word in self.words
        )

    @property
    def surely_source(self) -> bool:
        """Whether the name can mean nothing but a source, as `lf_3` or `gpt`; `model` and `source` are features elsewhere."""
        return bool(set(self.words) & _set("lf vote annotator rater llm gpt heuristic weak")) or any(
            word.startswith("lf") and word[2:].isdigit() for word in self.words
        )

    @property
    def stem(self) -> str | None:
        """The name without the number at its end; None if it ends with none."""
        found = _NUMBERED.match(self.name)
        return None if found is None else found[1]

    @cached_property
    def few(self) -> bool:
        """Whether the values can be class names: few, each used repeatedly, short."""
        most = max(2, min(100, self.n_filled // 2))
        return 0 < self.distinct <= most and self.mean_length <= 60 and not self.fractions

    @cached_property
    def classes(self) -> frozenset[str]:
        """The values that can be class names."""
        return frozenset(kind for kind in self.kinds if kind.strip().lower() not in NO_VOTE)

    @property
    def worded(self) -> bool:
        """Whether some of the values that can be class names are no numbers."""
        return not all(kind.lstrip("-").isdecimal() for kind in self.classes)

    @property
    def silent_somewhere(self) -> bool:
        """Whether it says nothing of some rows."""
        return self.n_filled < self.n or "-1" in self.kinds


class Look:
    """A file, what was said of it, and what is known of its columns."""

    def __init__(self, table: Table, told: FileRole | None) -> None:
        self.table, self.told = table, told
        self.path = table.path
        self.columns = {str(name): Column(str(name), cells.tolist()) for name, cells in table.frame.items()}
        self.role = told
        self.why = "given" if told else ""
        file, part = formats.locate(self.path)
        self.stem = part if part is not None and file.is_dir() else (file.name if file.is_dir() else file.stem)
        self.words = words_of(self.stem)

    @property
    def title(self) -> str:
        """The file's name, for messages."""
        return Path(self.path).name

    def names_images(self, told: Sequence[str] = ()) -> bool:
        """Whether a column names images, or is told to."""
        return any(one.images or name in told for name, one in self.columns.items())

    @cached_property
    def image_names(self) -> frozenset[str]:
        """The images of a folder, without the folders that they are in."""
        return frozenset(PurePosixPath(str(name)).name for name in self.table.frame["image"])

    @cached_property
    def judged(self) -> tuple[str, ...]:
        """Columns beside which a crowd platform says how sure its answers are, or what is right: `label` of label:confidence."""
        return tuple(n for n in self.columns if any(f"{n}{end}" in self.columns for end in _ABOUT))

    @cached_property
    def books(self) -> tuple[str, ...]:
        """Columns that a crowd platform keeps beside the answers: _golden, _unit_state, label:confidence, label_gold."""
        led = [name for name in self.columns if name.startswith("_")]
        about = {f"{name}{end}" for name in self.judged for end in _ABOUT}
        found = [
            name
            for name, one in self.columns.items()
            if (name.removeprefix("is_").lstrip("_") in _BOOKS and not one.gold_label)
            or (name.startswith("_") and 2 * len(led) < len(self.columns) and not one.called_id and not one.text)
            or name in about
            or name.endswith(("_gold", ":gold", "_gold_reason"))
        ]
        return tuple(found)

    def long(self, item: str | None = None, classes: frozenset[str] = frozenset()) -> dict[str, ColumnRole] | None:
        """Roles of the columns if this is a long table of votes, whose items are named in the column `item` if that is known."""
        names = [name for name in self.columns if name != item]
        called = [name for name in names if set(self.columns[name].words) & _VOTER_NAMES]
        voters = [n for n in called if self._plain(n) or (self.told is FileRole.VOTES and not self.columns[n].few)]
        if item is not None:  # what else occurs on several rows may be who votes
            voters += [name for name in names if self._plain(name) and not self.columns[name].few]
        voter = next((name for name in voters if not self._votes_itself(name, called, classes)), None)
        if voter is None:
            return None
        rest = [name for name in names if name != voter]
        vote = next((n for want in _VOTE_NAMES for n in rest if self.columns[n].words[-1:] == [want]), None)
        if vote is None:
            few = [n for n in rest if self.columns[n].few]
            fitting = [
                n for n in few if self.columns[n].called_label or (classes and self.columns[n].classes <= classes)
            ]
            vote = next(iter(fitting), few[0] if item is not None and len(few) == 1 else None)
        rest = [name for name in rest if name != vote]
        if item is None:
            item = next((n for want in _ITEM_NAMES for n in rest if want in self.columns[n].words), None)
        if item is None:  # the column whose values name the most rows
            plain = [self.columns[n] for n in rest if not self.columns[n].text and not self.columns[n].fractions]
            item = max(plain, key=lambda one: one.distinct).name if plain else None
        if vote is None or item is None or not self.columns[vote].few:
            return None
        roles = {item: ColumnRole.ID, voter: ColumnRole.VOTER, vote: ColumnRole.VOTE}
        likely = next((n for n in rest if set(self.columns[n].words) & {"probability", "prob", "confidence"}), None)
        if likely is not None and self.columns[likely].numeric:
            roles[likely] = ColumnRole.PROBABILITY
        return {name: roles.get(name, ColumnRole.IGNORED) for name in self.table.columns}

    def repeated(self, ids: frozenset[str]) -> str | None:
        """The column that names the most of the ids, nine in ten of its values and some of them on several rows."""
        found = [
            (len(one.known & ids), name)
            for name, one in self.columns.items()
            if 1 < one.distinct < one.n_filled and not one.fractions and len(one.known & ids) >= 0.9 * one.distinct
        ]
        return max(found, key=lambda one: one[0], default=(0, None))[1]

    def _votes_itself(self, name: str, called: Sequence[str], classes: frozenset[str]) -> bool:
        """Whether a column holds votes, not voters: class names, or what another column holds that is called as it is."""
        one = self.columns[name]
        if one.worded and one.classes and one.classes <= classes:
            return True
        for other in self.columns.values():
            same = other is not one and other.few and (one.classes <= other.classes or other.classes <= one.classes)
            if same and (one.worded or other.name in called or (one.stem is not None and one.stem == other.stem)):
                return True
        return False

    def _plain(self, name: str) -> bool:
        """Whether a column holds names of voters: each of them on several rows."""
        column = self.columns[name]
        return column.n_filled > 0 and not column.text and (column.distinct <= 0.7 * column.n_filled or column.n < 20)

    def counts(self, classes: frozenset[str]) -> tuple[str, ...]:
        """Columns that say how many people chose each class: called as the classes, or side by side with a sum that a column
        called `count` has, or that is the same in every row and reached by several of them."""
        whole = {
            name: one.numbers
            for name, one in self.columns.items()
            if one.numeric and one.n_filled == one.n and not one.called_id and not one.row_numbers and not one.fractions
        }
        whole = {name: held for name, held in whole.items() if bool(((held >= 0) & (held <= 1000)).all())}
        named = tuple(name for name in whole if name in classes)
        counted = len(named) > 1 and set(named) == classes and self._chosen(named, whole).max() > 1
        totals = [name for name in whole if set(self.columns[name].words) & _TOTALS]
        parts = [name for name in whole if name not in totals]
        if not 2 <= len(parts) <= _MOST_PARTS:
            return named if counted else ()
        held = self._chosen(parts, whole)
        for first in range(len(parts) - 1):
            for last in range(len(parts), first + 1, -1):
                sums = held[:, first:last].sum(axis=1)
                same = (
                    sums[0] > 1 and (sums == sums[0]).all() and np.sum(held[:, first:last].max(axis=0) == sums[0]) > 1
                )
                if same or (sums.max() > 1 and any(np.array_equal(sums, whole[total]) for total in totals)):
                    return tuple(parts[first:last])
        return named if counted else ()

    def following(self, counts: Sequence[str]) -> list[str]:
        """Columns that follow from numbers of votes: their sum, and the class with the most of them."""
        held = self._chosen(counts, {name: self.columns[name].numbers for name in counts})
        most, total = held.argmax(axis=1), held.sum(axis=1)
        return [
            name
            for name, one in self.columns.items()
            if name not in counts and one.numeric and one.n_filled == one.n
            and (np.mean(one.numbers == most) > 0.95 or np.array_equal(one.numbers, total))
        ]  # fmt: skip

    @staticmethod
    def _chosen(names: Sequence[str], whole: Mapping[str, Float64s]) -> Float64s:
        return np.stack([whole[name] for name in names], axis=1)

    def probabilities(self) -> tuple[str, ...]:
        """Columns that are probabilities of classes: two or more that sum to 1 in each row."""
        numeric = [
            name
            for name, one in self.columns.items()
            if one.numeric and bool(((one.numbers >= 0) & (one.numbers <= 1)).all()) and not one.called_id
        ]
        if len(numeric) < 2:
            return ()
        total = np.sum([self.columns[name].numbers for name in numeric], axis=0)
        fractions = any(self.columns[name].fractions for name in numeric)
        return tuple(numeric) if fractions and bool(np.all(np.abs(total - 1) < 0.02)) else ()

    def numbered(self) -> tuple[str, ...]:
        """Eight or more columns of numbers called e0, e1, …: an embedding."""
        stems: dict[str, list[str]] = {}
        for name, one in self.columns.items():
            found = _NUMBERED.match(name)
            if found and one.numeric and one.fractions:
                stems.setdefault(found[1], []).append(name)
        longest = max(stems.values(), key=len, default=[])
        return tuple(longest) if len(longest) >= 8 else ()

    def vote_vectors(self) -> tuple[str, ...]:
        """Arrays of small whole numbers with −1, such as Snorkel's L."""
        found = []
        for name, values in self.table.vectors.items():
            some = np.asarray(values[:2000])
            with np.errstate(invalid="ignore"):  # a file may hold anything
                whole = some.dtype.kind in "iu" or bool(np.all(some == np.round(some)))
            if (
                whole
                and some.size
                and some.min() >= -1
                and some.max() <= 200
                and (some.min() == -1 or name in ("L", "votes"))
            ):
                found.append(name)
        return tuple(found)


def can_be_votes(found: frozenset[str], classes: frozenset[str]) -> bool:
    """Whether the values of a column that is called a source can be votes: class names, or numbers of classes."""
    if not classes or not found:
        return True
    return bool(found & classes) or all(kind.isdecimal() and int(kind) < max(len(classes), 2) for kind in found)


def alike(columns: Iterable[Column], least: int = 2) -> list[str]:
    """`least` or more columns with the same few values, words or with −1 for none, or with some of these."""
    sets: dict[frozenset[str], list[Column]] = {}
    for one in columns:
        if one.classes and (one.worded or "-1" in one.kinds) and not one.called_gold and not is_split(one):
            sets.setdefault(one.classes, []).append(one)
    most = max(sets, key=lambda kinds: (len(sets[kinds]), len(kinds)), default=frozenset[str]())
    found = [one.name for kinds, held in sets.items() for one in held if kinds <= most]
    return found if len(found) >= least else []


def is_split(column: Column) -> bool:
    """Whether the values are names of parts: train, valid, test."""
    kinds = {kind.strip().lower() for kind in column.kinds}
    return bool(kinds) and len(kinds) <= 5 and kinds <= set(SPLITS) - {"0"}


def role_by_name(look: Look) -> FileRole | None:
    """The role that the file's name says."""
    return next((role for role, words in _FILE_WORDS.items() if words & set(look.words)), None)


def len_of(look: Look) -> int:
    """Rows of a file."""
    return len(look.table)
