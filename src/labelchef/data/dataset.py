"""The data set that people take home: every row with its content, its final label, where that comes from, and what is in doubt.

    label of a training row    people's decision, else the label known from the start, else argmax of what is believed of the row
    probability                1 for a label of trusted rows; 1 − (probability that it is wrong) for a decision in doubt, else 1;
                               of all other rows what is believed: the model's prediction as prior, and the votes on the row, each
                               with its weight (`vote_weights`)
    model_label                the model's class by its decision rule; model_most_probable is its most probable class
    doubt                      1 − probability
    rank                       1 for the training row with the largest doubt; ties by position

What is believed is better than the model alone where sources vote on the row itself: the model sees its features only.
Shapes: believed (n, C), predicted (n, C).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.learning import Doubt
from labelchef.base.records import UNRESOLVED
from labelchef.believe import SourceVotes

SURE = 0.8
"""Labels that are believed with less than this are flagged."""
MOST_COLUMNS = 50
"""Sources that get a column each; where there are more, their votes are one column of JSON."""
VOTE = "vote: "
FIELD = "field: "
COPY = "copy of "
"""What the flags of a copy end with, before the id of the row that it repeats."""


class LabelOrigin(StrEnum):
    """Where the label of a row comes from."""

    PEOPLE = "people"
    TRUSTED = "trusted"
    """Given with the data as right."""
    SOURCES = "sources and model"
    """Sources voted on the row, and they are believed."""
    MODEL = "model"


@dataclass(frozen=True)
class Decided:
    """The last decision on a sample: a class id, `UNRESOLVED` if it left or took back the weak label."""

    label: int
    by: str
    support: float


@dataclass(frozen=True)
class Part:
    """The n rows of one split."""

    split: str
    keys: Sequence[str]
    contents: Sequence[Mapping[str, object]]
    """What people see of each row, by name."""
    given: Ints
    """(n,) class ids known from the start, −1 where none is."""
    predicted: Float64s
    """(n, C) probabilities of the final model."""
    predicted_ids: Ints
    """(n,) classes of the final model, by its decision rule."""
    believed: Float64s | None = None
    """(n, C); None where every label is given."""
    decided: Mapping[int, Decided] = field(default_factory=dict)
    doubts: Mapping[int, Doubt[int]] = field(default_factory=dict)
    votes: SourceVotes | None = None
    copies: Mapping[int, str] = field(default_factory=dict)
    """Row → id of the row of which it is a copy."""
    ranks: Ints | None = None
    """(n,) places among all rows of the split, where these are only some of them."""


def dataset_frame(parts: Sequence[Part], classes: Sequence[str], *, sources_used: bool) -> pd.DataFrame:
    """One table of all rows; `sources_used` says whether the learner believes any source."""
    content = dict.fromkeys(name for part in parts for one in part.contents for name in one)
    votes = next((part.votes for part in parts if part.votes is not None), None)
    columns = dataset_columns(list(content), classes, votes)
    frames = [part_frame(part, classes, columns, sources_used=sources_used) for part in parts if len(part.keys)]
    return pd.concat(frames, ignore_index=True)


def dataset_columns(content: Sequence[str], classes: Sequence[str], votes: SourceVotes | None) -> list[str]:
    """The columns of the table, by the names of the content and the sources."""
    sources: list[str] = []
    if votes is not None and votes.n_sources:
        sources = [f"{VOTE}{name}" for name in votes.names] if votes.n_sources <= MOST_COLUMNS else ["votes"]
    return [*_FIRST, *map(_column, content), *_LAST, *(f"p: {name}" for name in classes), *sources]


def part_frame(part: Part, classes: Sequence[str], columns: Sequence[str], *, sources_used: bool) -> pd.DataFrame:
    """The table of some rows, with the columns of the whole."""
    return _frame(part, classes, sources_used).reindex(columns=list(columns))


_FIRST = ("id", "split")
_LAST = (
    "label", "probability", "origin", "decided_by", "support", "model_label", "model_probability",
    "model_most_probable", "doubt", "flags", "rank",
)  # fmt: skip
OWN = {*_FIRST, *_LAST, "votes"}
"""Columns that are ours, beside votes and probabilities; all others are content."""


@dataclass(frozen=True)
class Settled:
    """The final label of each of n rows."""

    chosen: Ints
    """(n,) class ids"""
    origin: list[LabelOrigin]
    P: Float64s
    """(n, C) how probable each class is"""
    flags: list[tuple[str, ...]]
    """What is in doubt, in words."""
    rank: list[int | None]

    @property
    def probability(self) -> Float64s:
        """(n,) of the final label."""
        return np.asarray(self.P[np.arange(len(self.chosen)), self.chosen])


def settle(part: Part, n_classes: int, *, sources_used: bool) -> Settled:
    """The final labels of a split."""
    n = len(part.given)
    chosen, P = chosen_of(part, n_classes)
    origin = [LabelOrigin.TRUSTED] * n
    for row in part.decided:
        origin[row] = LabelOrigin.PEOPLE
    open_rows = np.flatnonzero(_labels(part) == UNRESOLVED)
    spoken = np.zeros(n, dtype=bool) if part.votes is None else ~part.votes.silent
    for row in open_rows.tolist():
        origin[row] = LabelOrigin.SOURCES if spoken[row] and sources_used else LabelOrigin.MODEL
    probability = P[np.arange(n), chosen]
    rank: list[int | None] = [None] * n
    if part.believed is not None:
        rank = list((ranks_of(probability) if part.ranks is None else part.ranks).tolist())
    return Settled(chosen, origin, P, _flags(part, chosen, probability), rank)


RULED = "the decision rule favours rare classes"
"""Said where the class that the model decides for is not the most probable one."""


def chosen_of(part: Part, n_classes: int) -> tuple[Ints, Float64s]:
    """The final classes (n,), and how probable each class is (n, C)."""
    chosen = _labels(part)
    P = np.eye(n_classes)[np.maximum(chosen, 0)]
    open_rows = np.flatnonzero(chosen == UNRESOLVED)
    if open_rows.size:
        assert part.believed is not None, "rows without a label are believed something"
        P[open_rows] = part.believed[open_rows]
        chosen[open_rows] = P[open_rows].argmax(axis=1)
    for row, doubt in part.doubts.items():
        P[row] *= 1.0 - doubt.wrong
        P[row, doubt.believed] += doubt.wrong
    return chosen, P


def most_probable(P: Float64s, chosen: Ints, classes: Sequence[str]) -> dict[str, list[str]]:
    """Columns beside a label and its probability: the most probable class, and a note where that is another one.

    >>> most_probable(np.array([[0.58, 0.42]]), np.array([1]), ["No", "Yes"])
    {'most_probable': ['No'], 'note': ['the decision rule favours rare classes']}
    """
    most = P.argmax(axis=1)
    notes = [RULED if other else "" for other in most != chosen]
    return {"most_probable": [classes[c] for c in most], "note": notes}


def ranks_of(probability: Float64s) -> Ints:
    """(n,) 1 for the row whose label is least probable; ties by position.

    >>> ranks_of(np.array([0.9, 0.2, 0.9])).tolist()
    [2, 1, 3]
    """
    ranks = np.empty(len(probability), dtype=np.int64)
    ranks[np.argsort(probability, kind="stable")] = np.arange(1, len(probability) + 1)
    return ranks


def _labels(part: Part) -> Ints:
    """(n,) labels of people or given with the data, −1 where there is none."""
    labels = part.given.copy()
    for row, made in part.decided.items():
        labels[row] = made.label
    return labels


def _frame(part: Part, classes: Sequence[str], sources_used: bool) -> pd.DataFrame:
    n, found = len(part.keys), settle(part, len(classes), sources_used=sources_used)
    by: list[str | None] = [None] * n
    support = np.full(n, np.nan)
    for row, made in part.decided.items():
        by[row], support[row] = made.by, made.support
    probability = found.probability
    columns: dict[str, Any] = {
        "id": list(part.keys),
        "split": [part.split] * n,
        **_content(part.contents),
        "label": [classes[c] for c in found.chosen],
        "probability": probability.round(6).tolist(),
        "origin": [str(one) for one in found.origin],
        "decided_by": by,
        "support": support.tolist(),
        "model_label": [classes[c] for c in part.predicted_ids],
        "model_probability": part.predicted[np.arange(n), part.predicted_ids].round(6).tolist(),
        "model_most_probable": [classes[c] for c in part.predicted.argmax(axis=1)],
        "doubt": (1.0 - probability).round(6).tolist(),
        "flags": ["; ".join(flags) for flags in found.flags],
        "rank": found.rank,
        **{f"p: {name}": found.P[:, c].round(6).tolist() for c, name in enumerate(classes)},
        **_votes(part, classes),
    }
    return pd.DataFrame(columns).astype({"rank": "Int64"})


def _content(contents: Sequence[Mapping[str, object]]) -> dict[str, "pd.Series[Any]"]:
    """A column a name, of values as they are."""
    names = list(dict.fromkeys(name for one in contents for name in one))
    return {_column(name): pd.Series([one.get(name) for one in contents], dtype=object) for name in names}


def _column(name: str) -> str:
    """What the column of a content is called; one that is ours has `FIELD` before it."""
    return f"{FIELD}{name}" if name in OWN or name.startswith((VOTE, "p: ")) else name


def _flags(part: Part, chosen: Ints, probability: Float64s) -> list[tuple[str, ...]]:
    """What is in doubt of each row, in words; empty where nothing is."""
    differs: Bools = np.asarray(part.predicted_ids != chosen)
    ruled: Bools = np.asarray(part.predicted.argmax(axis=1) != part.predicted_ids)
    found = []
    for k in range(len(part.keys)):
        flags = []
        if k in part.doubts:
            flags.append(f"answer in doubt: {part.doubts[k].reason}")
        elif probability[k] < SURE:
            flags.append(f"probability below {SURE:g}")
        if differs[k]:
            flags.append("the model says otherwise")
        if k in part.copies:
            flags.append(f"{COPY}{part.copies[k]}")
        if ruled[k]:
            flags.append(f"model_label: {RULED}")
        found.append(tuple(flags))
    return found


def _votes(part: Part, classes: Sequence[str]) -> dict[str, list[object]]:
    """What every source says of each row: a class, or for a soft vote JSON of class → probability."""
    votes, said = part.votes, votes_on(part, classes)
    if votes is None or not votes.n_sources:
        return {}

    def told(vote: Mapping[str, float]) -> str:
        return next(iter(vote)) if len(vote) == 1 else json.dumps(vote, ensure_ascii=False)

    if votes.n_sources <= MOST_COLUMNS:
        return {f"{VOTE}{name}": [told(one[name]) if name in one else None for one in said] for name in votes.names}
    return {"votes": [json.dumps({name: told(vote) for name, vote in one.items()}, ensure_ascii=False) for one in said]}


def votes_on(part: Part, classes: Sequence[str]) -> list[dict[str, dict[str, float]]]:
    """What the sources say of each row: source → class → weight; a hard vote has one class, of weight 1."""
    said: list[dict[str, dict[str, float]]] = [{} for _ in part.keys]
    votes = part.votes
    if votes is None:
        return said
    C, table = votes.n_classes, votes.table
    for i, one in enumerate(said):
        for at in range(table.indptr[i], table.indptr[i + 1]):
            j, c = divmod(int(table.indices[at]), C)
            one.setdefault(votes.names[j], {})[classes[c]] = round(float(table.data[at]), 6)
    return said
