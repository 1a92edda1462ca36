"""Tables as numbers: against skrub's own output, with missing values, from other kinds of files, without skrub."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelchef import InvalidInputError, MissingExtraError
from labelchef.base.errors import PredictionWarning
from labelchef.base.intake import ColumnRole
from labelchef.data.encoders import tables
from labelchef.data.encoders.fitted import FittedEncoder, fit_encoder
from labelchef.data.encoders.protocol import Content
from labelchef.data.encoders.tables import FittedTable, TableEncoder

skrub = pytest.importorskip("skrub")
skops_io = pytest.importorskip("skops.io")


def people(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, n).astype(float)
    age[::7] = np.nan
    city = pd.Series(rng.choice(["Oslo", "Lima", "Bonn"], n), dtype="str")
    city[5] = None
    days = pd.Series(pd.date_range("2021-03-01", periods=n).strftime("%Y-%m-%d"), dtype="str")
    days[3] = None
    return pd.DataFrame(
        {
            "age": pd.Series(age).map(lambda value: None if value != value else str(int(value))).astype("str"),
            "income": rng.lognormal(10, 1, n),
            "city": city,
            "since": days,
            "note": pd.Series([f"note {k} about {rng.integers(1000)}" for k in range(n)], dtype="str"),
            "same": "k",
            "none": pd.Series([None] * n, dtype="str"),
        }
    )


def roles(frame: pd.DataFrame) -> dict[str, ColumnRole]:
    return dict.fromkeys([str(name) for name in frame.columns], ColumnRole.FEATURE)


def test_what_is_no_number_is_what_skrub_makes_of_it() -> None:
    frame = people()
    block = TableEncoder(tuple(frame.columns)).fit(Content(frame))
    assert block.numbers == ("age", "income")
    others = frame[list(block.others)]
    theirs = skrub.TableVectorizer(high_cardinality=skrub.StringEncoder(random_state=0))
    expected = theirs.fit_transform(others).to_numpy(dtype=np.float64)
    np.testing.assert_allclose(block.values(Content(frame))[:, 2:], expected, rtol=1e-6)


def test_numbers_dates_and_missing_values() -> None:
    frame = people()
    block = TableEncoder(tuple(frame.columns)).fit(Content(frame))
    B = block.transform(Content(frame))
    assert B.shape == (120, block.width)
    assert np.isfinite(B).all()
    assert np.abs(B).max() <= tables.LARGEST
    age = pd.to_numeric(frame["age"])
    expected = ((age - age.mean()) / age.std(ddof=0)).fillna(0.0).clip(-5, 5)
    np.testing.assert_allclose(B[:, 0], expected, atol=1e-5)
    told = B[:, len(block.scale)]  # the first column that says what is missing is that of age
    np.testing.assert_allclose(told, age.isna() - age.isna().mean(), atol=1e-6)
    again = FittedTable.of_state(block.state())
    np.testing.assert_array_equal(again.transform(Content(frame)), B)


def test_the_same_values_from_any_kind_of_file_are_the_same_rows() -> None:
    frame = people()
    block = TableEncoder(tuple(frame.columns)).fit(Content(frame))
    B = block.transform(Content(frame))
    typed = frame.assign(age=pd.to_numeric(frame["age"]).astype("Int64"), since=pd.to_datetime(frame["since"]))
    np.testing.assert_allclose(block.transform(Content(typed)), B, atol=1e-6)
    dated = TableEncoder(tuple(frame.columns)).fit(Content(typed))
    assert dated.dates == ("since",)
    np.testing.assert_allclose(dated.transform(Content(frame)), dated.transform(Content(typed)), atol=1e-6)
    categories = pd.DataFrame({"kind": pd.Series(["a", "b", "c", "a"], dtype="category")})
    text = TableEncoder(("kind",)).fit(Content(categories))
    plain = pd.DataFrame({"kind": categories["kind"].astype(str)})
    np.testing.assert_array_equal(text.transform(Content(plain)), text.transform(Content(categories)))


def test_values_that_were_never_seen_are_missing() -> None:
    frame = people()
    block = TableEncoder(tuple(frame.columns)).fit(Content(frame))
    odd = pd.DataFrame({name: ["?!", None, "inf", "9" * 40] for name in frame.columns})
    with pytest.warns(PredictionWarning, match="values are no numbers"):
        B = block.transform(Content(odd))
    assert np.isfinite(B).all()
    np.testing.assert_array_equal(B[0, 0], 0.0)
    assert B[3, 0] == tables.LARGEST
    with pytest.raises(InvalidInputError, match="no column 'city'"):
        block.transform(Content(frame.drop(columns="city")))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.just(pd.NA),
            st.just(pd.NaT),
            st.text(st.characters(), max_size=12),
            st.integers(),
            st.floats(),
            st.booleans(),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_any_column_can_be_read(values: list[Any]) -> None:
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "k": np.arange(len(values), dtype=float)})
    frame.loc[0, "k"] = -1.0
    if len(values) == 1:
        return  # nothing varies
    encoded = fit_encoder(Content(frame), roles(frame), ["table"])
    assert np.isfinite(encoded.X).all()
    back = FittedEncoder.of_bytes(encoded.encoder.to_bytes())
    np.testing.assert_array_equal(back.transform(frame), encoded.X)


def test_tables_of_numbers_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = people()[["age", "income"]]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    encoded = fit_encoder(Content(frame), roles(frame), ["table"])
    assert encoded.X.shape == (120, 3)
    np.testing.assert_array_equal(FittedEncoder.of_bytes(encoded.encoder.to_bytes()).transform(frame), encoded.X)
    with pytest.raises(MissingExtraError, match=r"'city'.*labelchef\[tables\]"):
        fit_encoder(Content(people()), roles(people()), ["table"])


def test_a_file_made_with_skrub_names_the_extra_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = fit_encoder(Content(people()), roles(people()), ["table"]).encoder.to_bytes()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"labelchef\[tables\]"):
        FittedEncoder.of_bytes(raw)


def test_types_that_are_not_trusted_are_not_loaded(tmp_path: Path) -> None:
    encoder = fit_encoder(Content(people()), roles(people()), ["table"]).encoder
    with np.load(io.BytesIO(encoder.to_bytes())) as archive:
        arrays = {name: archive[name] for name in archive.files}
    from sklearn.pipeline import FunctionTransformer

    bomb = skops_io.dumps(FunctionTransformer(_never))
    for wrong in (bomb, b"no archive"):
        out = io.BytesIO()
        held: dict[str, Any] = arrays | {"0.vectorizer": np.frombuffer(wrong, dtype=np.uint8)}
        np.savez(out, **held)
        with pytest.raises(InvalidInputError, match="damaged") as error:
            FittedEncoder.of_bytes(out.getvalue())
        assert error.value.code == "encoder"


def _never() -> None:
    pytest.fail("a function of the file was loaded")
