"""Votes of sources: the forms they come in, and what is wrong with them."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from scipy import sparse

from labelchef import LabelCleaner
from labelchef.base.errors import InvalidInputError, MissingClassWarning, SilentSourceWarning
from labelchef.base.inputs import ClassNames
from labelchef.believe import SourceVotes
from labelchef.believe.vote_forms import CastVotes, read_votes
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents

NAMES = ["ham", "spam", "eggs"]
CLASSES = ClassNames(NAMES)
TABLE = np.array([[0, -1], [1, 2], [-1, -1], [2, 0]])
SOURCES = ("rule", "llm")


def as_names(table: Any) -> list[list[str | None]]:
    return [[None if v < 0 else NAMES[v] for v in row] for row in table.tolist()]


def as_long(table: Any, sources: Any, *, rng: Any = None) -> pd.DataFrame:
    """A long table; every source is in it, in order, in a first row without a label."""
    rows, columns = np.nonzero(table >= 0)
    order = np.arange(len(rows)) if rng is None else rng.permutation(len(rows))
    rows, columns = rows[order], columns[order]
    votes = {"item": rows, "source": [sources[j] for j in columns], "label": [NAMES[v] for v in table[rows, columns]]}
    none = {"item": [0] * len(sources), "source": list(sources), "label": [None] * len(sources)}
    return pd.DataFrame({name: [*none[name], *votes[name]] for name in votes})


def test_the_rest_of_a_lone_probability_is_for_the_other_classes() -> None:
    frame = pd.DataFrame(
        {"item": [0, 1, 1], "source": "llm", "label": ["ham", "ham", "eggs"], "probability": [0.7, 0.4, 0.6]}
    )
    votes = read_votes(frame, CLASSES, 2)
    assert np.allclose(votes.table.toarray(), [[0.7, 0.15, 0.15], [0.4, 0.0, 0.6]])


@pytest.mark.parametrize("form", [list, np.array, pd.Series, lambda said: pd.Series(said, name="rule").to_frame()])
def test_one_column_of_labels_is_one_source(form: Callable[[list[str | None]], Any]) -> None:
    said = ["ham", None, "eggs", "ham"]
    given = form(said)
    votes = read_votes(given, CLASSES, 4)
    assert votes.names == (("rule",) if hasattr(given, "columns") else ("source 1",))
    assert votes.table.toarray().argmax(axis=1)[[0, 2, 3]].tolist() == [0, 2, 0]
    assert votes.silent.tolist() == [False, True, False, False]
    assert read_votes(pd.Series(said, name="rule"), CLASSES, 4).names == ("rule",)


def soft_of(table: Any) -> Any:
    return np.where(table[:, :, None] >= 0, np.eye(3)[table], np.nan)


def long_soft(table: Any, sources: Any) -> pd.DataFrame:
    full = as_long(table, sources)
    return full.assign(probability=1.0, note="x")[["label", "note", "probability", "source", "item"]]


def crowd(table: Any, sources: Any) -> pd.DataFrame:
    return as_long(table, sources).rename(columns={"item": "task", "source": "worker"})


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "ids": lambda t, s: t,
    "narrow ids": lambda t, s: t.astype(np.int8),
    "floats with gaps": lambda t, s: np.where(t < 0, np.nan, t),
    "masked": lambda t, s: np.ma.masked_array(t, t < 0),
    "lists of ids": lambda t, s: t.tolist(),
    "lists of names": lambda t, s: as_names(t),
    "names and ids": lambda t, s: [[v if v != 1 else "spam" for v in row] for row in t.tolist()],
    "text ids": lambda t, s: np.where(t < 0, None, t.astype(str).astype(object)),
    "frame of names": lambda t, s: pd.DataFrame(as_names(t), columns=list(s)),
    "frame of ids": lambda t, s: pd.DataFrame(t, columns=list(s)),
    "nullable frame": lambda t, s: pd.DataFrame(t, columns=list(s)).replace(-1, pd.NA).astype("Int64"),
    "categories": lambda t, s: pd.DataFrame(as_names(t), columns=list(s)).astype(pd.CategoricalDtype(NAMES)),
    "polars": lambda t, s: pl.DataFrame(dict(zip(s, map(list, zip(*as_names(t), strict=True)), strict=True))),
    "polars ids": lambda t, s: pl.DataFrame({n: [None if v < 0 else v for v in t[:, j].tolist()] for j, n in enumerate(s)}),
    "long": as_long,
    "polars long": lambda t, s: pl.DataFrame(as_long(t, s).replace({np.nan: None}).to_dict("list"), strict=False),
    "crowd": crowd,
    "long and soft": long_soft,
    "csr": lambda t, s: sparse.csr_array(t + 1),
    "coo": lambda t, s: sparse.coo_matrix((t + 1).astype(float)),
    "csc": lambda t, s: sparse.csc_matrix(t + 1),
    "stored zeros": lambda t, s: sparse.csr_array(
        ((t + 1).ravel(), np.tile(np.arange(len(s)), len(t)), len(s) * np.arange(len(t) + 1)), shape=t.shape
    ),
    "probabilities": lambda t, s: soft_of(t),
    "zeros for no vote": lambda t, s: np.nan_to_num(soft_of(t)),
    "nested lists": lambda t, s: soft_of(t).tolist(),
    "dict of labels": lambda t, s: {name: t[:, j] for j, name in enumerate(s)},
    "dict of both": lambda t, s: {n: soft_of(t)[:, j] if j % 2 else as_names(t[:, [j]].T)[0] for j, n in enumerate(s)},
    "dict of frames": lambda t, s: {n: pd.DataFrame(soft_of(t)[:, j, ::-1], columns=NAMES[::-1]) for j, n in enumerate(s)},
    "as it is": lambda t, s: SourceVotes.hard(t, 3, tuple(s)),
}  # fmt: skip
UNNAMED = (
    "ids", "narrow ids", "floats with gaps", "masked", "lists of ids", "lists of names", "names and ids", "text ids", "csr",
    "coo", "csc", "stored zeros", "probabilities", "zeros for no vote", "nested lists",
)  # fmt: skip


def same(found: SourceVotes, table: Any, sources: Any) -> None:
    expected = SourceVotes.hard(table, 3, tuple(sources))
    assert found.names == expected.names
    assert found.n_classes == 3
    np.testing.assert_array_equal(found.table.toarray(), expected.table.toarray())
    assert found.table.dtype == np.float64
    assert found.table.has_canonical_format
    assert (found.table.data != 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str) -> None:
    sources = ("source 1", "source 2") if form in UNNAMED else SOURCES
    same(read_votes(FORMS[form](TABLE, SOURCES), CLASSES, 4), TABLE, sources)
    same(read_votes(FORMS[form](TABLE, SOURCES), CLASSES, 4, what="votes_val", sources=SOURCES), TABLE, SOURCES)


@given(
    st.integers(1, 6).flatmap(
        lambda J: st.lists(st.lists(st.integers(-1, 2), min_size=J, max_size=J), min_size=1, max_size=8)
    ),
    st.integers(0, 2**32 - 1),
)
def test_all_forms_of_the_same_votes_are_one_table(rows: list[list[int]], seed: int) -> None:
    table = np.array(rows)
    sources = tuple(f"s{j}" for j in range(table.shape[1]))
    for form, make in FORMS.items():
        note(form)
        same(read_votes(make(table, sources), CLASSES, len(table), sources=sources), table, sources)
    mixed = as_long(table, sources, rng=np.random.default_rng(seed))
    same(read_votes(pd.concat([mixed, mixed.iloc[::2]]), CLASSES, len(table), sources=sources), table, sources)


@given(st.integers(0, 2**32 - 1))
def test_soft_votes_are_one_table_in_all_forms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet([0.5] * 3, (5, 4))
    P[rng.random((5, 4)) < 0.3] = np.nan
    P[0, 0] = [0.0, 1.0, 0.0]
    sources = ("a", "b", "c", "d")
    rows, columns, classes = np.nonzero(~np.isnan(P))
    long = pd.DataFrame(
        {
            "item": rows,
            "source": [sources[j] for j in columns],
            "label": classes,
            "weight": P[rows, columns, classes].astype(str),
        }
    ).sample(frac=1.0, random_state=seed % 1000)
    expected = np.nan_to_num(P).reshape(5, 12)
    for form in (P, P.tolist(), {s: P[:, j] for j, s in enumerate(sources)}, long, pd.concat([long, long])):
        found = read_votes(form, CLASSES, 5, sources=sources)
        np.testing.assert_allclose(found.table.toarray(), expected, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(found.counts, (~np.isnan(P[:, :, 0])).sum(axis=0))


def test_soft_votes_that_were_rounded_sum_to_one() -> None:
    P = np.array([[[0.33333, 0.33333, 0.33333]], [[1.00001, -0.00001, 0.0]]])
    found = read_votes(P, CLASSES, 2).table.toarray()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-15)
    assert found[1].tolist() == [1.0, 0.0, 0.0]


def long(*votes: tuple[Any, Any, Any]) -> pd.DataFrame:
    return pd.DataFrame(votes, columns=["item", "source", "label"])


def soft(*votes: tuple[Any, Any, Any, Any]) -> pd.DataFrame:
    return pd.DataFrame(votes, columns=["item", "source", "label", "probability"])


BAD: dict[str, tuple[Any, str]] = {
    "unknown class id": ([[0, 3]] * 4, "the vote of 'source 2' on sample 0 is 3; expected a class id from 0 to 2"),
    "unknown class": (long((0, "a", "ham"), (2, "b", "bacon")), "'b' on sample 2 is 'bacon'; expected one of the classes 'ham'"),
    "another number below": ([[0, -2]] * 4, "is -2; expected a class id"),
    "text that is no id": ([["7"]] * 4, "is 7; expected a class id"),
    "weak labels as votes": (np.full((4, 3), 1 / 3), r"is 0.333.*Probabilities have the shape \(samples, sources, classes\)"),
    "all silent": (np.full((4, 2), -1), "none of the 2 sources votes on any of the 4 samples"),
    "all silent, sparse": (sparse.csr_array((4, 2)), r"In a sparse matrix a vote is class id \+ 1"),
    "all silent, soft": (np.zeros((4, 2, 3)), "none of the 2 sources"),
    "contradiction": (long((1, "a", "ham"), (0, "b", "ham"), (1, "a", "eggs")), r"different labels from 'a' on sample 1 \(1"),
    "contradiction, sparse": (sparse.coo_array(([1, 2], ([3, 3], [0, 0])), shape=(4, 2)), "different labels from 'source 1'"),
    "contradiction, soft": (soft((0, "a", 0, 0.5), (0, "a", 1, 0.5), (0, "a", 1, 0.4)), "probabilities of one class from 'a'"),
    "too few rows": ([[0, 1]] * 3, "votes has 3 rows; expected 4"),
    "too many rows, frame": (pd.DataFrame({"a": [0] * 5}), "votes has 5 rows; expected 4"),
    "too many rows, sparse": (sparse.csr_array(np.ones((5, 2), int)), "votes has 5 rows; expected 4"),
    "too few rows, soft": (np.full((3, 1, 3), 1 / 3), "votes has 3 rows; expected 4"),
    "too few rows, dict": ({"a": [0] * 4, "b": [0] * 3}, "votes has 3 rows; expected 4"),
    "too few rows, as it is": (SourceVotes.hard(TABLE[:3], 3), "votes has 3 rows; expected 4"),
    "ragged": ([[0, 1], [0], [1, 1], [0, 1]], "rows of different lengths|has shape"),
    "flat": ([0, 1, 0], "votes has 3 rows; expected 4"),
    "text": ("votes.csv", "expected a list"),
    "no source": (np.empty((4, 0), int), "votes has no source"),
    "no sum of one": (np.full((4, 1, 3), 0.5), r"do not sum to 1 from 'source 1' on sample 0.*\(4 such votes\)"),
    "negative": (np.tile([1.5, -0.5, 0.0], (4, 1, 1)), "negative or do not sum to 1"),
    "half NaN": (np.tile([1.0, np.nan, 0.0], (4, 1, 1)), "negative or do not sum to 1"),
    "infinite": (np.tile([np.inf, 0.0, 0.0], (4, 1, 1)), "negative or do not sum to 1"),
    "no numbers": (np.full((4, 1, 3), "x"), "cannot be read as numbers"),
    "long, no sum of one": (soft((0, "a", "ham", 0.5), (0, "a", "eggs", 0.4)), "do not sum to 1 from 'a' on sample 0"),
    "long, no probability": (soft((0, "a", "ham", 1.0), (1, "a", "ham", None)), "do not sum to 1 from 'a' on sample 1"),
    "two numbers of classes": ({"a": np.eye(3)[[0] * 4], "b": np.eye(2)[[0] * 4]}, "probabilities of 3 and of 2 classes"),
    "other number of classes": (np.full((4, 2, 2), 0.5), "probabilities of 2 classes; expected 3, one a class: 'ham'"),
    "other classes, as it is": (SourceVotes.hard(np.zeros((4, 1), int), 2), "of 2 classes; expected 3"),
    "dict of tables": ({"a": np.zeros((4, 1, 3))}, "source 'a' has the shape"),
    "item beyond": (long((4, "a", "ham")), "there is no sample '4'.*rows of the features, from 0 to 3"),
    "item below": (long((-1, "a", "ham")), "there is no sample '-1'"),
    "item between": (long((0.5, "a", "ham")), "there is no sample '0.5'"),
    "item by name": (long(("x17", "a", "ham")), "there is no sample 'x17'"),
    "no item": (long((None, "a", "ham")), "there is no sample None"),
    "no source named": (long((0, "a", "ham"), (1, None, "ham")), "row 1 names no source"),
    "sparse fractions": (sparse.csr_array(np.full((4, 2), 0.5)), r"expected class id \+ 1 where a source votes"),
    "sparse yes and no": (sparse.csr_array(np.ones((4, 2), bool)), r"expected class id \+ 1 where a source votes"),
    "sparse minus one": (sparse.csr_array(TABLE), r"expected class id \+ 1"),
    "sparse class": (sparse.csr_array(np.full((4, 2), 4)), "is 3; expected a class id from 0 to 2"),
    "source twice": (pd.DataFrame([[0, 1]] * 4, columns=["a", "a"]), "two sources are called 'a'"),
    "source without a name": (pd.DataFrame([[0, 1]] * 4, columns=["a", ""]), "'' cannot name a source"),
    "half a long table": (pd.DataFrame({"item": [0], "label": ["ham"]}), "expected item, source and label in a long table"),
    "ids in a wide table": (pd.DataFrame({"id": ["m"] * 4, "a": [0] * 4}), "a column a source, and no other, in a wide one"),
    "unknown class that no one votes for": (
        {"a": [0] * 4, "b": pd.DataFrame(np.nan, range(4), ["ham", "bacon"])}, "a class of soft votes is 'bacon'; expected one",
    ),
    "arrays of different widths": ([np.zeros((2, 3)), np.zeros((2, 4))] * 2, "rows of different lengths"),
    "flat, sparse": (sparse.coo_array([1, 1, 1, 1]), r"votes has shape \(4,\)"),
    "a column of a frame": (pd.Series([0, 1, 0], name="rule"), "votes has 3 rows; expected 4"),
    "a long table of other names": (
        pd.DataFrame({"image": [0, 1, 1, 2, 3], "user.id": "ann", "emotion": "ham"}), "the columns item, source and label",
    ),
    "millions of sources": (sparse.csr_array((4, 2_000_000)), "has 2000000 sources; expected at most"),
    "entries that are lists": ({"a": [[0], [0, 1], [0], [0]]}, "no single labels"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_votes_are_refused_with_what_was_expected(what: str) -> None:
    votes, message = BAD[what]
    with pytest.raises(InvalidInputError, match=message) as refused:
        read_votes(votes, CLASSES, 4)
    assert refused.value.code in ("votes", "labels")


def test_repeated_rows_of_a_long_table_count_once() -> None:
    votes = read_votes(long((1, "a", "ham"), (1, "a", "ham"), (0, "b", "eggs"), (1, "a", 0)), CLASSES, 2)
    assert votes.counts.tolist() == [1, 1]
    assert votes.table.toarray().tolist() == [[0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0]]


def test_items_by_their_ids() -> None:
    votes = long(("m2", "a", "ham"), ("m1", "a", "eggs"))
    assert read_votes(votes, CLASSES, 2, keys=["m1", "m2"]).table.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
    numbers = long((7.0, "a", "ham"))
    assert read_votes(numbers, CLASSES, 2, keys=["5", "7"]).table.toarray().tolist() == [[0, 0, 0], [1, 0, 0]]
    with pytest.raises(
        InvalidInputError, match="there is no sample '0', which has a vote; expected ids of the samples"
    ):
        read_votes(long((0, "a", "ham")), CLASSES, 2, keys=["m1", "m2"])
    with pytest.raises(InvalidInputError, match="ids that repeat"):
        read_votes(votes, CLASSES, 2, keys=["m1", "m1"])


def test_a_source_without_a_vote_is_kept_and_named() -> None:
    with pytest.warns(SilentSourceWarning, match=r"'idle' \(1 of 2 sources\) votes on no sample"):
        votes = read_votes({"idle": [-1] * 4, "rule": [0, 1, 2, -1]}, CLASSES, 4)
    assert votes.names == ("idle", "rule")
    assert votes.counts.tolist() == [0, 3]


def test_names_that_are_numbers_are_names_where_votes_are_text() -> None:
    numbers = ClassNames(["1", "2", "3"])
    assert read_votes([["3"], ["1"]], numbers, 2).table.indices.tolist() == [2, 0]
    assert read_votes([[2], [0]], numbers, 2).table.indices.tolist() == [2, 0], "whole numbers are ids"
    with pytest.raises(InvalidInputError, match="is '0'; expected one of the classes '1'"):
        read_votes([["0"], ["1"]], numbers, 2)
    flags = ClassNames([True, False])
    assert read_votes([[True], [False], [None]], flags, 3).table.indices.tolist() == [0, 1]


def test_votes_on_validation_are_of_the_same_sources() -> None:
    sources = ("a", "b", "c")
    found = read_votes(pd.DataFrame({"c": [0, -1], "a": [1, 1]}), CLASSES, 2, what="votes_val", sources=sources)
    assert found.names == sources
    assert found.counts.tolist() == [2, 0, 1], "'b' is silent, without a warning"
    silent = read_votes({"b": [None, None]}, CLASSES, 2, sources=sources)
    assert silent.silent.all()
    with pytest.raises(InvalidInputError, match="votes_val has votes of 'd', which has none in votes"):
        read_votes({"a": [0, 0], "d": [0, 0]}, CLASSES, 2, what="votes_val", sources=sources)
    with pytest.raises(InvalidInputError, match="votes_val has 2 sources; expected 3, as votes has: 'a', 'b', 'c'"):
        read_votes([[0, 0], [0, 0]], CLASSES, 2, what="votes_val", sources=sources)


def test_many_workers_need_no_dense_table() -> None:
    rng = np.random.default_rng(0)
    n, J, m = 200_000, 5_000, 600_000
    rows, columns = rng.integers(0, n, m), rng.integers(0, J, m)
    _, first = np.unique(rows * J + columns, return_index=True)
    rows, columns = rows[first], columns[first]
    labels = rng.integers(0, 50, len(rows))
    table = pd.DataFrame({"task": rows, "worker": columns, "label": labels}).sample(frac=1.0, random_state=0)
    votes = read_votes(table, ClassNames(range(50)), n)
    assert votes.n_sources == J
    assert votes.table.nnz == len(rows)
    again = read_votes(sparse.coo_array((labels + 1, (rows, columns)), shape=(n, J)), ClassNames(range(50)), n)
    ordered = votes.among(tuple(sorted(votes.names, key=int)))
    np.testing.assert_array_equal(ordered.table.indices, again.table.indices)
    np.testing.assert_array_equal(ordered.table.indptr, again.table.indptr)


# The classes, where votes alone say what they are.


def classes_of(votes: Any, y_val: Any) -> list[Any]:
    return CastVotes.of(votes, len(votes) if hasattr(votes, "__len__") else votes.shape[0]).classes(y_val).names


def test_classes_come_from_votes_and_validation() -> None:
    assert classes_of([["spam", None], ["ham", "spam"]], ["spam", "eggs"]) == ["eggs", "ham", "spam"]
    assert classes_of([[0, -1], [3, 1]], [1, 2]) == [0, 1, 2, 3]
    assert classes_of([[1, -1], [1, 1]], np.array([1.0, 2.0])) == [0, 1, 2]
    assert classes_of([[0], [1]], ["0", "2"]) == ["0", "1", "2"], "votes by id, from an array; labels from a file"
    assert classes_of([["10"], ["9"]], ["2", "9"]) == ["2", "9", "10"]
    assert classes_of(np.full((2, 1, 4), 0.25), [0, 1]) == [0, 1, 2, 3]
    assert classes_of([[True], [None]], [True, False]) == [False, True]
    assert classes_of([[0], [1]], [True, False]) == [False, True]
    assert classes_of({"a": ["x", "y"], "b": pd.DataFrame({"x": [1.0, 0], "z": [0, 1.0]})}, ["x"]) == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("votes", "y_val", "message"),
    [
        ([[0], [1]], ["ham", "spam"], "has class ids, and y_val names such as 'ham', 'spam'"),
        ([["ham"], ["spam"]], [0, 1], "have no order"),
        ([["ham"], ["ham"]], ["ham"], "expected 2 to"),
        ([[0], [10**12]], [0, 1], "expected 2 to"),
        ([[0.2, 0.8], [0.5, 0.5]], [0, 1], "votes holds 0.2; expected class ids or names. Probabilities"),
        ([[None], [-1]], [0, 1], "none of the 1 sources"),
        ([[0], [1]], [[0, 1], [1, 0]], "no single labels"),
    ],
)
def test_classes_that_cannot_be_told(votes: Any, y_val: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        classes_of(votes, y_val)


# Votes in a campaign's data and in `fit`.

RNG = np.random.default_rng(3)
TRUTH = RNG.integers(0, 3, 120)
X = RNG.normal(size=(120, 4)) + 2.0 * np.eye(3, 4)[TRUTH]
VOTES = np.where(RNG.random((80, 5)) < 0.3, -1, np.where(RNG.random((80, 5)) < 0.3, 0, TRUTH[:80, None]))
VAL: dict[str, Any] = {"X_val": X[80:], "y_val": [NAMES[k] for k in TRUTH[80:]]}
WEAK = pd.DataFrame(np.random.default_rng(4).dirichlet(np.ones(3), 80), columns=NAMES)


def test_data_from_votes_alone() -> None:
    data = CampaignData.of(X[:80], votes=VOTES, classes=NAMES, **VAL)
    assert data.votes is not None
    assert data.votes_val is None
    np.testing.assert_array_equal(data.votes.table.toarray(), SourceVotes.hard(VOTES, 3).table.toarray())
    np.testing.assert_array_equal(data.weak, data.votes.shares())
    named = CampaignData.of(X[:80], votes=as_names(VOTES), **VAL)
    assert named.names.names == sorted(NAMES)
    np.testing.assert_allclose(named.weak[:, [1, 2, 0]], data.weak)
    assert CampaignData.of(X[:80], WEAK, **VAL).votes is None


def test_weak_labels_beside_votes_are_one_more_source() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = CampaignData.of(X[:80], WEAK, votes=VOTES, votes_val=VOTES[:40, :], **VAL)
    assert data.votes is not None
    assert data.votes_val is not None
    np.testing.assert_allclose(data.weak, WEAK, rtol=1e-15, atol=0)
    assert data.votes.names == data.votes_val.names == (*(f"source {j}" for j in range(1, 6)), "weak labels")
    np.testing.assert_array_equal(data.votes.table.toarray()[:, -3:], data.weak)
    assert data.votes_val.counts[-1] == 0
    np.testing.assert_array_equal(data.votes_val.counts[:-1], (VOTES[:40] >= 0).sum(axis=0))
    mapped = data.mapped(lambda rows: rows[:, :2])
    assert mapped.votes is data.votes
    assert mapped.votes_val is data.votes_val
    with pytest.raises(InvalidInputError, match="a source of votes is called 'weak labels'"):
        CampaignData.of(X[:80], WEAK, votes={"weak labels": VOTES[:, 0]}, **VAL)


def test_items_of_a_campaign_are_named_by_their_ids() -> None:
    ids = [f"m{k}" for k in range(80)]
    contents = Contents(pd.DataFrame({"id": ids}), pd.DataFrame({"id": [f"v{k}" for k in range(40)]}))
    votes, votes_val = long(("m3", "a", "ham"), ("m0", "a", "eggs")), long(("v39", "a", "spam"))
    data = CampaignData.of(X[:80], WEAK, votes=votes, votes_val=votes_val, contents=contents, **VAL)
    assert data.votes is not None
    assert data.votes_val is not None
    assert np.flatnonzero(data.votes.table.toarray()[:, 0]).tolist() == [3]
    assert np.flatnonzero(data.votes_val.table.toarray()[:, 1]).tolist() == [39]


def test_what_a_campaign_refuses() -> None:
    with pytest.raises(InvalidInputError, match="neither weak labels nor votes were given; expected Y_weak"):
        CampaignData.of(X[:80])
    assert CampaignData.of(X[:80], **VAL).names.names == sorted(set(VAL["y_val"])), "trusted labels name the classes"
    with pytest.raises(InvalidInputError, match="votes_val was given without votes"):
        CampaignData.of(X[:80], WEAK, votes_val=VOTES[:40], **VAL)
    with pytest.raises(InvalidInputError, match="votes_val has 80 rows; expected 40"):
        CampaignData.of(X[:80], votes=VOTES, votes_val=VOTES, classes=NAMES, **VAL)
    with pytest.raises(InvalidInputError, match=r"the classes are \['ham'\]; expected two or more"):
        CampaignData.of(X[:80], votes=VOTES, classes=["ham"], **VAL)
    with pytest.raises(InvalidInputError, match=r"y_val.*expected one of the classes"):
        CampaignData.of(X[:80], votes=np.full((80, 1, 2), 0.5), X_val=X[80:], y_val=TRUTH[80:])


def test_a_cleaner_learns_from_votes() -> None:
    steered = {"trusted": "steer", "gamma": 0.5, "l2": 0.01}  # on the shares; the learner knows who voted
    cleaner = LabelCleaner(**steered, budget=4, batch_size=2)  # type: ignore[arg-type]
    cleaner.fit(X[:80], votes=as_names(VOTES), votes_val=as_names(VOTES[:40]), **VAL)
    assert cleaner.classes_.tolist() == sorted(NAMES)
    shares = SourceVotes.hard(VOTES, 3).shares()
    weak = pd.DataFrame(shares, columns=NAMES)[sorted(NAMES)]
    other = LabelCleaner(**steered).fit(X[:80], weak, **VAL)  # type: ignore[arg-type]
    np.testing.assert_allclose(cleaner.W_, other.W_, atol=1e-12)
    assert cleaner.query().indices.tolist() == other.query(2).indices.tolist()
    with pytest.raises(InvalidInputError, match=r"fit\(X, votes=…, …\)"):
        LabelCleaner().fit(X[:80])
    with pytest.warns(MissingClassWarning, match="no sample of 'bacon'"):
        LabelCleaner(gamma=0.5, l2=0.01).fit(X[:80], votes=[["bacon", "ham"]] * 80, **VAL)
