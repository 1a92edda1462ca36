"""Rules without code: each votes for a class on the rows it matches, and says nothing on the others.

A rules file is TOML or JSON: a list `rules` of tables.

    [[rules]]
    name = "asks to subscribe"      # the name of the source
    kind = "keyword"                # keyword, regex, dictionary, threshold or model
    column = "text"
    label = "spam"
    words = ["subscribe", "check out"]

    kind         options                                           votes where
    keyword      words, unless, whole_word, match_case             one of `words` occurs and none of `unless`
    regex        pattern, match_case                               the regular expression matches somewhere
    dictionary   words or file, at_least, match_case               at least so many different words of the list occur
    threshold    at_least, at_most, above, below                   the number in the column is within all given bounds
    model        map, probability, at_least; no label              the column holds a label (of another model)

What a word is, is said in `believe.searching`; how patterns are kept from running for ever, in `believe.patterns`.

**Facts.** Rule j votes y_j(i) on the rows M_j of n. With the trusted rows G, whose labels g(i) are known,

    coverage_j  = |M_j| / n
    overlaps_j  = |{i ∈ M_j: another rule votes on i}|
    conflicts_j = |{i ∈ M_j: another rule votes for another class on i}|
    accuracy_j  = |{i ∈ M_j ∩ G: y_j(i) = g(i)}| / |M_j ∩ G|,   with the 95 % interval of Clopper and Pearson
    chance_j    = Σ_c (share of c among the votes of j) · (share of c in G)

`chance` is what the same votes would score on rows drawn at random: a rule whose interval does not lie above it has shown
nothing.
"""

import difflib
import json
import math
import tomllib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.believe.patterns import check_pattern, search_patterns
from labelchef.believe.searching import TextColumn, fold
from labelchef.believe.vote_forms import long_table
from labelchef.judge.proportions import exact_bounds

ID = "id"
"""The column of a frame that names the rows."""
LARGEST_FILE = 5_000_000
"""Bytes of a rules file or a word list."""
MOST_RULES = 1000
LARGEST_NUMBER = 1e300
MOST_LABELS = 1000
"""Different values of a column that another model's labels are in."""
_SHOWN_CHARACTERS = 160


class RuleKind(StrEnum):
    """How a rule decides."""

    KEYWORD = "keyword"
    REGEX = "regex"
    DICTIONARY = "dictionary"
    THRESHOLD = "threshold"
    MODEL = "model"


@dataclass(frozen=True)
class Keyword:
    """Votes where one of `words` occurs in the column and none of `unless`."""

    kind: ClassVar[RuleKind] = RuleKind.KEYWORD
    name: str
    column: str
    label: str
    words: tuple[str, ...]
    unless: tuple[str, ...] = ()
    whole_word: bool = True
    """Whether "win" does not occur in "window"."""
    match_case: bool = False

    def __post_init__(self) -> None:
        _check_words(self, self.words)


@dataclass(frozen=True)
class Regex:
    """Votes where the regular expression matches somewhere in the column."""

    kind: ClassVar[RuleKind] = RuleKind.REGEX
    name: str
    column: str
    label: str
    pattern: str
    match_case: bool = False

    def __post_init__(self) -> None:
        try:
            check_pattern(self.pattern)
        except InvalidInputError as error:
            raise InvalidInputError(f"rule {self.name!r}: {error}", code=error.code) from None


@dataclass(frozen=True)
class Dictionary:
    """Votes where at least `at_least` different words of a list occur in the column, as whole words."""

    kind: ClassVar[RuleKind] = RuleKind.DICTIONARY
    name: str
    column: str
    label: str
    words: tuple[str, ...]
    file: str | None = None
    """Where the words were read, relative to the rules file: one a line; lines that begin with # are not read."""
    at_least: int = 1
    match_case: bool = False

    def __post_init__(self) -> None:
        _check_words(self, self.words)
        if self.at_least < 1:
            raise _wrong(self.name, f"at_least is {self.at_least}; expected a whole number of at least 1")


@dataclass(frozen=True)
class Threshold:
    """Votes where the number in the column is within all bounds that are given; what is no number gets no vote."""

    kind: ClassVar[RuleKind] = RuleKind.THRESHOLD
    name: str
    column: str
    label: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        bounds = [self.at_least, self.at_most, self.above, self.below]
        if all(bound is None for bound in bounds):
            raise _wrong(self.name, "it has no bound; give at_least, at_most, above or below")
        if not all(bound is None or math.isfinite(bound) for bound in bounds):
            raise _wrong(self.name, f"its bounds are {bounds}; expected finite numbers")

    def holds(self, numbers: Float64s) -> Bools:
        """Which numbers are within the bounds; NaN is not."""
        inside = ~np.isnan(numbers)
        for bound, compare in (
            (self.at_least, np.greater_equal),
            (self.at_most, np.less_equal),
            (self.above, np.greater),
            (self.below, np.less),
        ):
            if bound is not None:
                inside &= compare(numbers, bound)
        return inside


@dataclass(frozen=True)
class Model:
    """Votes what the column says: the labels of another model.

    To vote where the *probability of one class* is in a column, use `Threshold`.
    """

    kind: ClassVar[RuleKind] = RuleKind.MODEL
    name: str
    column: str
    map: tuple[tuple[str, str], ...] = ()
    """What the column says → the class; what is not named here gets no vote. Empty: the column holds the names of classes."""
    probability: str | None = None
    """A column with the probability of the label."""
    at_least: float | None = None
    """With `probability`: votes only from this probability on."""

    def __post_init__(self) -> None:
        if (self.probability is None) != (self.at_least is None):
            raise _wrong(self.name, "probability (a column) and at_least (a number) go together; give both or none")
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise _wrong(self.name, f"at_least is {self.at_least}; expected a probability from 0 to 1")


Rule: TypeAlias = Keyword | Regex | Dictionary | Threshold | Model
_RULES: Mapping[RuleKind, type[Rule]] = {one.kind: one for one in (Keyword, Regex, Dictionary, Threshold, Model)}


def _wrong(name: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"rule {name!r}: {why}", code="rule")


def _check_words(rule: "Keyword | Dictionary", words: Sequence[str]) -> None:
    if not words:
        raise _wrong(rule.name, 'it has no words; give words = ["..."]')
    if not all(word.strip() for word in words):
        raise _wrong(rule.name, "one of its words is empty; remove it")


# --- files ---


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a TOML or JSON file; word lists (`file`) are looked for beside it."""
    text = _text_of(path, "rules")
    try:
        return rules_of_text(text, json_form=path.suffix.lower() == ".json", folder=path.parent)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}", code=error.code) from None


def rules_of_text(text: str, *, json_form: bool = False, folder: Path | None = None) -> tuple[Rule, ...]:
    """The rules of a text in TOML or JSON. Word lists are read from `folder` only, and not at all without it.

    >>> rules_of_text('''
    ... [[rules]]
    ... name = "shouts"
    ... kind = "regex"
    ... column = "text"
    ... label = "spam"
    ... pattern = "[A-Z]{5}"
    ... match_case = true
    ... ''')
    (Regex(name='shouts', column='text', label='spam', pattern='[A-Z]{5}', match_case=True),)
    """
    try:
        values = json.loads(text) if json_form else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
        what = "JSON" if json_form else "TOML"
        raise InvalidInputError(f"the rules are no valid {what}: {error}", code="rules") from None
    listed = values.get("rules") if isinstance(values, dict) else values
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise InvalidInputError("expected a list of rules: tables that begin with [[rules]]", code="rules")
    unknown = [name for name in values if name != "rules"] if isinstance(values, dict) else []
    if unknown:
        raise InvalidInputError(f"{unknown[0]!r} is not known here; expected [[rules]] only", code="rules")
    rules = tuple(rule_of(one, position + 1, folder=folder) for position, one in enumerate(listed))
    check_rules(rules)
    return rules


def check_rules(rules: Sequence[Rule]) -> None:
    """Refuse two rules of one name, and more rules than can be used."""
    if len(rules) > MOST_RULES:
        raise InvalidInputError(f"{len(rules)} rules; at most {MOST_RULES} are allowed", code="rules")
    name, count = next(iter(Counter(rule.name for rule in rules).most_common(1)), ("", 0))
    if count > 1:
        raise InvalidInputError(f"{count} rules are called {name!r}; each needs a name of its own", code="rules")


def rule_of(values: Mapping[str, object], position: int = 1, *, folder: Path | None = None) -> Rule:
    """One rule from plain values, as they are in a file or come from a form; `position` names it in messages if it has no name.

    >>> rule_of({"name": "long", "kind": "threshold", "column": "length", "label": "spam", "at_least": 200})
    Threshold(name='long', column='length', label='spam', at_least=200.0, at_most=None, above=None, below=None)
    """
    name = values.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidInputError(f'rule {position} has no name; give name = "..."', code="rule")
    kind = values.get("kind")
    if kind not in list(RuleKind):
        raise _wrong(name, f"kind is {kind!r}; expected one of {', '.join(RuleKind)}")
    made = _RULES[RuleKind(str(kind))]
    hints = {one.name: one.type for one in fields(made)}
    unknown = [key for key in values if key not in hints and key != "kind"]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), hints, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; a {kind} rule has {', '.join(hints)}"
        raise _wrong(name, f"{unknown[0]!r} is not known{hint}")
    given = {key: _as_field(name, key, value, hints[key]) for key, value in values.items() if key != "kind"}
    if made is Dictionary and given.get("file") is not None:
        given["words"] = _read_words(name, str(given["file"]), folder, given.get("words"))
    missing = [one.name for one in fields(made) if one.default is MISSING and one.name not in given]
    if missing:
        raise _wrong(name, f"{missing[0]} is missing; a {kind} rule needs {', '.join(_needed(made))}")
    return made(**given)


def _needed(made: type[Rule]) -> list[str]:
    return [one.name for one in fields(made) if one.default is MISSING]


def _as_field(rule: str, key: str, value: object, hint: object) -> Any:
    """A value of a file as the field of a rule has it, whose type is `hint`."""
    if value is None and hint in (float | None, str | None):
        return None
    if hint in (float | None, int):
        if isinstance(value, bool) or not isinstance(value, int if hint is int else int | float):
            raise _wrong(rule, f"{key} is {value!r}; expected a {'whole number' if hint is int else 'number'}")
        if abs(value) > LARGEST_NUMBER:
            raise _wrong(rule, f"{key} is {value}; expected a number up to {LARGEST_NUMBER:g}")
        return value if hint is int else float(value)
    if hint is bool:
        if not isinstance(value, bool):
            raise _wrong(rule, f"{key} is {value!r}; expected true or false")
        return value
    if hint == tuple[tuple[str, str], ...]:
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise _wrong(rule, f'{key} is {value!r}; expected a table such as {{ "1" = "spam" }}')
        return tuple((str(said), label) for said, label in value.items())
    if hint == tuple[str, ...]:
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
            raise _wrong(rule, f'{key} is {value!r}; expected a list of texts, such as ["one", "two"]')
        return tuple(listed)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(rule, f"{key} is {value!r}; expected a text that is not empty, in quotes")
    return value


def _read_words(rule: str, file: str, folder: Path | None, words: object) -> tuple[str, ...]:
    if words:
        raise _wrong(rule, "it has words and a file; give one of them")
    if folder is None:
        raise _wrong(rule, f"the word list {file!r} cannot be read here; put the words into the rule: words = [...]")
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise _wrong(rule, f"the word list {file!r} is outside of the folder of the rules; copy it there")
    lines = [line.strip() for line in _text_of(path, f"word list of rule {rule!r}").splitlines()]
    return tuple(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


def _text_of(path: Path, what: str) -> str:
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise InvalidInputError(f"{what}: {path} has {size} bytes; at most {LARGEST_FILE} are read", code="rules")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInputError(f"{what}: {path} cannot be read: {error.strerror}", code="rules") from None
    except UnicodeDecodeError as error:
        why = f"{what}: {path} is no UTF-8 text (byte {error.start}); save it as UTF-8"
        raise InvalidInputError(why, code="rules") from None


def rule_values(rule: Rule) -> dict[str, object]:
    """A rule as plain values, for a file or a form; what is as by default is left out. `rule_of` reads them."""
    values: dict[str, object] = {"name": rule.name, "kind": str(rule.kind)}
    for one in fields(rule):
        value = getattr(rule, one.name)
        if one.name == "name" or value == one.default:
            continue
        if one.name == "words" and getattr(rule, "file", None) is not None:
            continue
        if one.name == "map":
            value = dict(value)
        values[one.name] = list(value) if isinstance(value, tuple) else value
    return values


def rules_as_text(rules: Sequence[Rule], *, json_form: bool = False) -> str:
    """The rules as a TOML or JSON file has them. Reading it gives equal rules; comments are not kept.

    >>> print(rules_as_text([Keyword("greets", "text", "ham", ("hello",))]))
    [[rules]]
    name = "greets"
    kind = "keyword"
    column = "text"
    label = "ham"
    words = ["hello"]
    <BLANKLINE>
    """
    listed = [rule_values(rule) for rule in rules]
    if json_form:
        return json.dumps({"rules": listed}, ensure_ascii=False, indent=2) + "\n"
    if not listed:
        return "rules = []\n"
    tables = ("\n".join(f"{key} = {_as_toml(value)}" for key, value in one.items()) for one in listed)
    return "\n".join(f"[[rules]]\n{table}\n" for table in tables)


def _as_toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if "\\" in value and "'" not in value and value.isprintable():
            return f"'{value}'"  # patterns are easier to read with single backslashes
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_as_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_as_toml(str(key))} = {_as_toml(one)}' for key, one in value.items())} }}"
    return repr(value)


# --- votes ---


@dataclass(frozen=True)
class Matches:
    """Where a rule votes."""

    rows: Ints
    """(m,) rows, ascending."""
    labels: NDArray[np.object_] | None
    """(m,) what it votes there; None if it is always the label of the rule."""
    unreadable: int = 0
    """Cells that hold something, but no number where one is needed."""
    spans: NDArray[np.int32] | None = None
    """(m, 2) where in the text a pattern matches."""


class RuleBoard:
    """Rules on one frame of rows. It keeps what is costly, so that a rule that is typed, changed or renamed costs only itself.

    The frame has the column `id` and the columns that the rules name; it must not change. `seconds` is the time limit of one
    pattern, see `believe.patterns`.
    """

    def __init__(self, frame: pd.DataFrame, *, seconds: float | None = None) -> None:
        if ID not in frame.columns:
            raise InvalidInputError(f"the rows have no column {ID!r}: {list(frame.columns)[:10]}", code="rules")
        self.frame = frame
        self._seconds = seconds
        self._texts: dict[str, TextColumn] = {}
        self._numbers: dict[str, tuple[Float64s, int]] = {}
        self._matches: OrderedDict[Rule, Matches] = OrderedDict()
        self._refused: dict[Rule, InvalidInputError] = {}

    def __len__(self) -> int:
        return len(self.frame)

    def texts(self, column: str) -> TextColumn:
        """A column as texts."""
        if column not in self._texts:
            self._texts[column] = TextColumn(self.frame[column].tolist())
        return self._texts[column]

    def prepare(self, rules: Iterable[Rule], check: Callable[[], None] = lambda: None) -> None:
        """Search all patterns of a column at once, which is quicker than one by one; what `check` raises ends it."""
        waiting: dict[str, list[Regex]] = {}
        for rule in rules:
            if isinstance(rule, Regex) and not self._is_known(rule) and rule.column in self.frame.columns:
                waiting.setdefault(rule.column, []).append(rule)
        for column, left in waiting.items():
            while left:
                patterns = [(rule.pattern, rule.match_case) for rule in left]
                try:
                    for spans in search_patterns(
                        patterns, self.texts(column).texts, seconds=self._seconds, check=check
                    ):
                        self._keep(left[0], self._of_spans(left[0], spans))
                        left.pop(0)
                except InvalidInputError as error:
                    self._refused[_nameless(left.pop(0))] = error

    def matches(self, rule: Rule) -> Matches:
        """Where the rule votes, and what."""
        if not self._is_known(rule):
            if isinstance(rule, Regex):
                self._check_column(rule, rule.column)
                self.prepare([rule])
            else:
                self._keep(rule, self._find(rule))
        key = _nameless(rule)
        if key in self._refused:
            error = self._refused[key]
            raise type(error)(f"rule {rule.name!r}: {error}", code=error.code)
        self._matches.move_to_end(key)
        return self._matches[key]

    def _is_known(self, rule: Rule) -> bool:
        return _nameless(rule) in self._matches or _nameless(rule) in self._refused

    def _check_column(self, rule: Rule, column: str) -> None:
        if column not in self.frame.columns:
            near = difflib.get_close_matches(column, map(str, self.frame.columns), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {list(self.frame.columns)[:10]}"
            raise InvalidInputError(f"rule {rule.name!r}: there is no column {column!r}; {hint}", code="rule_column")

    def _keep(self, rule: Rule, found: Matches) -> None:
        self._matches[_nameless(rule)] = found
        while len(self._matches) > 2 * MOST_RULES:
            self._matches.popitem(last=False)

    def _find(self, rule: Keyword | Dictionary | Threshold | Model) -> Matches:
        self._check_column(rule, rule.column)
        if isinstance(rule, Keyword):
            how = {"whole_word": rule.whole_word, "match_case": rule.match_case}
            said = self.texts(rule.column).having(rule.words, **how) > 0
            if rule.unless:
                said &= self.texts(rule.column).having(rule.unless, **how) == 0
            return Matches(np.flatnonzero(said), None)
        if isinstance(rule, Dictionary):
            counts = self.texts(rule.column).having(rule.words, match_case=rule.match_case)
            return Matches(np.flatnonzero(counts >= rule.at_least), None)
        if isinstance(rule, Threshold):
            numbers, unreadable = self._number(rule.column)
            return Matches(np.flatnonzero(rule.holds(numbers)), None, unreadable)
        if rule.probability is not None:
            self._check_column(rule, rule.probability)
        return self._of_model(rule)

    def _of_spans(self, rule: Regex, spans: NDArray[np.int32]) -> Matches:
        rows = np.flatnonzero((spans[:, 0] >= 0) & ~self.texts(rule.column).empty)
        return Matches(rows, None, spans=spans[rows])

    def _of_model(self, rule: Model) -> Matches:
        column = self.texts(rule.column)
        said, unreadable = ~column.empty, 0
        if rule.probability is not None and rule.at_least is not None:
            numbers, unreadable = self._number(rule.probability)
            said &= numbers >= rule.at_least  # NaN is not
        labels = np.array(column.texts, dtype=object)
        if rule.map:
            known = dict(rule.map)
            labels = np.array([known.get(one) for one in column.texts], dtype=object)
            said &= np.array([one is not None for one in labels], dtype=bool)
        rows = np.flatnonzero(said)
        different = len(set(labels[rows].tolist()))
        if different > MOST_LABELS:
            raise _wrong(
                rule.name, f"column {rule.column!r} holds {different} different values; expected names of classes"
            )
        return Matches(rows, labels[rows], unreadable)

    def _number(self, column: str) -> tuple[Float64s, int]:
        """A column as numbers, NaN for what is none, and how many cells hold something else."""
        if column not in self._numbers:
            numbers = pd.to_numeric(self.frame[column], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
            blank = np.array([not text.strip() for text in self.texts(column).texts], dtype=bool)
            self._numbers[column] = (numbers, int((np.isnan(numbers) & ~blank).sum()))
        return self._numbers[column]


def _nameless(rule: Rule) -> Rule:
    """What decides where a rule matches: not its name, nor the label it votes for."""
    return replace(rule, name="") if isinstance(rule, Model) else replace(rule, name="", label="")


def apply_rules(rules: Sequence[Rule], frame: pd.DataFrame, *, board: RuleBoard | None = None) -> pd.DataFrame:
    """The votes of rules on rows as a long table: item (id), source (the name of the rule), label; all text.

    >>> frame = pd.DataFrame({"id": ["007", "8"], "text": ["Subscribe now!", "nice song"]})
    >>> apply_rules([Keyword("asks", "text", "spam", ("subscribe",))], frame)
      item source label
    0  007   asks  spam
    """
    check_rules(rules)
    board = board or RuleBoard(frame)
    board.prepare(rules)
    ids = np.array([str(key) for key in board.frame[ID].tolist()], dtype=object)
    parts: list[tuple[NDArray[np.object_], NDArray[np.object_], NDArray[np.object_]]] = []
    for rule in rules:
        found = board.matches(rule)
        parts.append((ids[found.rows], np.full(len(found.rows), rule.name, dtype=object), _labels(rule, found)))
    return long_table(*(map(np.concatenate, zip(*parts, strict=True)) if parts else ((), (), ())))


def _label(rule: Rule) -> str:
    """The one class that a rule votes for."""
    assert not isinstance(rule, Model)
    return rule.label


def _labels(rule: Rule, found: Matches) -> NDArray[np.object_]:
    """(m,) what it votes."""
    return np.full(len(found.rows), _label(rule), dtype=object) if found.labels is None else found.labels


# --- facts ---


def _interval(right: int, n: int) -> tuple[float, float]:
    low, high = exact_bounds(np.array(right), np.array(n))
    return float(low), float(high)


@dataclass(frozen=True)
class RuleExample:
    """A row that a rule votes on."""

    item: str
    text: str
    """What is in the rule's column, cut around the match."""
    label: str
    """What the rule says."""
    truth: str | None
    """The trusted label, where there is one."""
    span: tuple[int, int] | None = None
    """Where in `text` a word or pattern matches."""


@dataclass(frozen=True)
class RuleFacts:
    """What is known of a rule; the module's header has the formulas."""

    name: str
    n_rows: int
    n_votes: int = 0
    """Rows it votes on."""
    labels: Mapping[str, int] | None = None
    """Class → how many votes it gets from the rule."""
    n_overlaps: int = 0
    n_conflicts: int = 0
    """Rows on which another rule votes for another class."""
    n_trusted: int = 0
    """Votes on trusted rows."""
    n_right: int = 0
    """Of these, rows it is right on."""
    chance: float | None = None
    """What the same votes would score on rows drawn at random."""
    examples: tuple[RuleExample, ...] = ()
    """Rows that it votes on, from all over the frame."""
    mistakes: tuple[RuleExample, ...] = ()
    """Trusted rows that it is wrong on."""
    unreadable: int = 0
    problem: str | None = None
    """Why the rule cannot be used; then all else is 0."""

    @property
    def coverage(self) -> float:
        """The share of rows that it votes on."""
        return self.n_votes / self.n_rows if self.n_rows else 0.0

    @property
    def accuracy(self) -> float | None:
        """The share of votes on trusted rows that are right; None without any."""
        return self.n_right / self.n_trusted if self.n_trusted else None

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy; (0, 1) without any trusted row."""
        return _interval(self.n_right, self.n_trusted)

    @property
    def low(self) -> float:
        """95 % interval of the share that is right."""
        return self.interval[0]

    @property
    def high(self) -> float:
        """The upper end."""
        return self.interval[1]


@dataclass(frozen=True)
class RuleSetFacts:
    """What is known of rules together."""

    rules: tuple[RuleFacts, ...]
    n_rows: int
    n_covered: int
    """Rows on which at least one rule votes."""
    n_conflicts: int
    """Rows on which two rules vote for different classes."""
    n_trusted: int
    """Trusted rows on which the majority of the rules is one class."""
    n_right: int
    """Trusted rows on which the majority is right."""

    @property
    def coverage(self) -> float:
        """The share of rows on which some rule votes."""
        return self.n_covered / self.n_rows if self.n_rows else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the accuracy of the majority."""
        return _interval(self.n_right, self.n_trusted)


def facts_of(
    rules: Sequence[Rule],
    frame: pd.DataFrame,
    labels: Sequence[str | None],
    *,
    board: RuleBoard | None = None,
    n_examples: int = 5,
    check: Callable[[], None] = lambda: None,
) -> RuleSetFacts:
    """Coverage, conflicts, accuracy and examples of rules, for use while they are typed.

    `labels` (n,) are the trusted labels of the rows, None where none is known. With the same `board` in every call, only rules
    that are new or changed are searched. A rule that cannot be used (no such column, a pattern that takes too long) says why in
    `problem`, and the others count without it.

    >>> frame = pd.DataFrame({"id": ["a", "b", "c"], "text": ["win now", "we win", "hello"]})
    >>> facts = facts_of([Keyword("wins", "text", "spam", ("win",))], frame, ["spam", "ham", None])
    >>> facts.rules[0].n_votes, facts.rules[0].accuracy, facts.rules[0].mistakes[0].text
    (2, 0.5, 'we win')
    """
    board = board or RuleBoard(frame)
    if len(labels) != len(board):
        raise InvalidInputError(f"{len(labels)} labels for {len(board)} rows", code="rules")
    board.prepare(rules, check)
    matched: dict[int, Matches] = {}
    problems: dict[int, str] = {}
    for j, rule in enumerate(rules):
        check()
        try:
            matched[j] = board.matches(rule)
        except InvalidInputError as error:
            problems[j] = str(error)
    voted = [{_label(rules[j])} if found.labels is None else set(found.labels.tolist()) for j, found in matched.items()]
    names = sorted({str(one) for one in labels if one is not None}.union(*voted))
    number = {name: k for k, name in enumerate(names)}
    counts = np.zeros((len(board), max(len(names), 1)), dtype=np.int32)
    said_of = {}
    for j, found in matched.items():
        if found.labels is None:
            said_of[j] = np.full(len(found.rows), number[_label(rules[j])], dtype=np.int64)
        else:
            said_of[j] = np.fromiter((number[one] for one in found.labels), dtype=np.int64, count=len(found.rows))
        counts[found.rows, said_of[j]] += 1
    total = counts.sum(axis=1)
    truth = np.fromiter((-1 if one is None else number[str(one)] for one in labels), dtype=np.int64, count=len(board))
    shares = np.bincount(truth[truth >= 0], minlength=len(names)) / max(1, int((truth >= 0).sum()))
    facts = []
    for j, rule in enumerate(rules):
        if j in problems:
            facts.append(RuleFacts(rule.name, len(board), problem=problems[j]))
            continue
        rows, said = matched[j].rows, said_of[j]
        known = truth[rows] >= 0
        right = truth[rows] == said
        spread = rows[np.linspace(0, len(rows) - 1, min(n_examples, len(rows))).astype(np.int64)]
        wrong = rows[known & ~right][:n_examples]
        facts.append(
            RuleFacts(
                name=rule.name,
                n_rows=len(board),
                n_votes=len(rows),
                labels={names[k]: int(n) for k, n in enumerate(np.bincount(said, minlength=len(names))) if n},
                n_overlaps=int((total[rows] > 1).sum()),
                n_conflicts=int((total[rows] > counts[rows, said]).sum()),
                n_trusted=int(known.sum()),
                n_right=int(right.sum()),
                chance=float(shares[said].mean()) if len(said) and (truth >= 0).any() else None,
                examples=tuple(_example(board, rule, matched[j], int(row), labels) for row in spread),
                mistakes=tuple(_example(board, rule, matched[j], int(row), labels) for row in wrong),
                unreadable=matched[j].unreadable,
            )
        )
    most = counts.max(axis=1)
    clear = (most > 0) & ((counts == most[:, None]).sum(axis=1) == 1) & (truth >= 0)
    return RuleSetFacts(
        rules=tuple(facts),
        n_rows=len(board),
        n_covered=int((total > 0).sum()),
        n_conflicts=int((total > most).sum()),
        n_trusted=int(clear.sum()),
        n_right=int((counts.argmax(axis=1) == truth)[clear].sum()),
    )


def _example(board: RuleBoard, rule: Rule, found: Matches, row: int, labels: Sequence[str | None]) -> RuleExample:
    at = int(np.searchsorted(found.rows, row))
    text = board.texts(rule.column).texts[row]
    span = None if found.spans is None else (int(found.spans[at, 0]), int(found.spans[at, 1]))
    if isinstance(rule, Keyword | Dictionary):
        span = _first_word(text, rule)
    start = max(0, span[0] - _SHOWN_CHARACTERS // 3) if span and span[1] > _SHOWN_CHARACTERS else 0
    end = start + _SHOWN_CHARACTERS
    before, after = "…" * (start > 0), "…" * (end < len(text))
    if span is not None:
        shift = len(before) - start
        span = (span[0] + shift, min(span[1], end) + shift)
    said = _label(rule) if found.labels is None else str(found.labels[at])
    return RuleExample(str(board.frame[ID].iloc[row]), f"{before}{text[start:end]}{after}", said, labels[row], span)


def _first_word(text: str, rule: Keyword | Dictionary) -> tuple[int, int] | None:
    """Where the first of the words is in the text; None where folding changed its length."""
    folded = fold(text, match_case=rule.match_case)
    if len(folded) != len(text):
        return None
    one = TextColumn([text])
    how = {"whole_word": getattr(rule, "whole_word", True), "match_case": rule.match_case}
    places = [
        (at, at + len(word))
        for word in {fold(word, match_case=rule.match_case) for word in rule.words}
        if (at := folded.find(word)) >= 0 and one.having([word], **how)[0]
    ]
    return min(places, default=None)
