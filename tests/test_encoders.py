"""Encoders of text and numbers, and the fitted encoder: against scikit-learn, from files, on odd input."""

import io
import json
import pickle
import zipfile
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from labelchef import InvalidInputError
from labelchef.base.intake import ColumnRole
from labelchef.data.encoders import fitted
from labelchef.data.encoders.fitted import FittedEncoder, fit_encoder
from labelchef.data.encoders.numbers import NumbersEncoder
from labelchef.data.encoders.protocol import Content
from labelchef.data.encoders.specs import check_specs, encoders_of
from labelchef.data.encoders.text import CHARS, WORDS, TfidfEncoder, packed, unpacked

WORDS_OF = ["good", "bad", "plane", "late", "crew", "kind", "seat", "lost", "bag", "again", "never", "thanks", "staff"]
TEXT = {"text": ColumnRole.TEXT}


def texts(n: int = 400, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS_OF, int(rng.integers(1, 9)))) for _ in range(n)]


def content(*columns: list[Any], names: tuple[str, ...] = ("text",)) -> Content:
    frame = {name: pd.Series(values, dtype=object) for name, values in zip(names, columns, strict=True)}
    return Content(pd.DataFrame(frame))


@pytest.mark.parametrize("terms", [WORDS, CHARS])
def test_tfidf_is_what_scikit_learn_computes_up_to_signs(terms: str) -> None:
    given_texts = texts()
    options: dict[str, Any] = (
        {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
        if terms == WORDS
        else {"analyzer": "char_wb", "ngram_range": (2, 5)}
    )
    width = 12
    theirs = TfidfVectorizer(**options, sublinear_tf=True, min_df=2, max_features=20_000)
    svd = TruncatedSVD(width, algorithm="arpack", random_state=0)
    expected = svd.fit_transform(theirs.fit_transform(given_texts))
    expected_new = svd.transform(theirs.transform(texts(50, 1)))
    block = TfidfEncoder(("text",), terms, width=width).fit(content(given_texts))
    ours = block.transform(content(given_texts))
    signs = np.sign((ours * expected).sum(axis=0))
    np.testing.assert_allclose(ours * signs, expected, atol=2e-3)
    np.testing.assert_allclose(block.transform(content(texts(50, 1))) * signs, expected_new, atol=2e-3)


def test_the_same_seed_gives_the_same_bytes_and_another_one_the_same_space() -> None:
    rows = content(texts())
    first, again = (fit_encoder(rows, TEXT, ["tfidf"], seed=3) for _ in range(2))
    assert first.encoder.to_bytes() == again.encoder.to_bytes()
    np.testing.assert_array_equal(first.X, again.X)


def test_groups_have_the_same_share_of_rows_of_mean_squared_length_one() -> None:
    rng = np.random.default_rng(0)
    rows = Content(content(texts(300)).frame, rng.normal(size=(300, 5)) * 40)
    encoded = fit_encoder(rows, TEXT, ["tfidf"])
    names, X, at, lengths = encoded.encoder.groups, encoded.X, 0, dict[str, float]()
    for name, block in zip(names, encoded.encoder.blocks, strict=True):
        part = X[:, at : at + block.width]
        lengths[name] = lengths.get(name, 0.0) + float((part**2).sum() / len(X))
        at += block.width
    assert encoded.encoder.names == ("words of text", "chars of text", "given features")
    assert lengths == pytest.approx({"tfidf of text": 0.5, "given features": 0.5}, rel=1e-5)


def _unit(X: Any) -> Any:
    return X / np.linalg.norm(X)


def test_weights_scale_blocks_and_zero_leaves_one_out() -> None:
    encoded = fit_encoder(content(texts(300)), TEXT, ["tfidf"])
    wide = encoded.encoder.blocks[0].width
    halved, alone = encoded.weighted((0.5, 1.0)), encoded.weighted((0.0, 1.0))
    ratio = halved.X / encoded.X
    assert np.nanmedian(ratio[:, :wide]) == pytest.approx(0.5 * np.nanmedian(ratio[:, wide:]), rel=1e-5)
    assert (halved.X**2).sum(axis=1).mean() == pytest.approx((encoded.X**2).sum(axis=1).mean(), rel=1e-5)
    np.testing.assert_allclose(alone.X / np.linalg.norm(alone.X), _unit(encoded.X[:, wide:]), atol=1e-7)
    np.testing.assert_allclose(alone.encoder.transform(content(texts(300)).frame), alone.X, rtol=1e-6)
    assert FittedEncoder.of_bytes(halved.encoder.to_bytes()).weights == (0.5, 1.0)
    for wrong in ((0.0, 0.0), (1.0,)):
        with pytest.raises(InvalidInputError, match="weights"):
            encoded.weighted(wrong) if len(wrong) == 2 else encoded.encoder.weighted(wrong)


@given(st.lists(st.text(max_size=40), min_size=1, max_size=12), st.lists(st.text(max_size=40), max_size=6))
def test_an_encoder_from_a_file_is_the_same(known: list[str], new: list[str]) -> None:
    if not "".join(known).split():
        with pytest.raises(InvalidInputError, match="nothing to learn"):
            fit_encoder(content(known), TEXT, ["tfidf"])
        return
    encoded = fit_encoder(content(known), TEXT, ["tfidf"])
    back = FittedEncoder.of_bytes(encoded.encoder.to_bytes())
    assert back.to_bytes() == encoded.encoder.to_bytes()
    for some in (known, new):
        X = encoded.encoder.transform(content(some).frame)
        assert X.shape == (len(some), back.width)
        assert np.isfinite(X).all()
        np.testing.assert_array_equal(back.transform(content(some).frame), X)


@given(st.lists(st.text(st.characters())))
def test_packed_texts_come_back(given_texts: list[str]) -> None:
    assert unpacked(packed(given_texts)) == tuple(given_texts)


def test_odd_texts() -> None:
    odd: list[Any] = ["", None, float("nan"), "x", "日本語のテキスト", "🙂🙂", "a" * 10_000, 7, "\ud800", "!!!", pd.NA]
    encoded = fit_encoder(content(odd), TEXT, ["tfidf"])
    assert encoded.X.shape == (len(odd), encoded.encoder.width)
    assert np.isfinite(encoded.X).all()
    assert not encoded.X[[0, 1, 2, -1]].any()  # nothing in them
    assert encoded.X[4].any()
    new = encoded.encoder.transform(content(["nothing known", "日本"]).frame)
    assert new[1].any()
    one = fit_encoder(content(["word"]), TEXT, ["tfidf"])
    assert one.X.shape == (1, 2)
    assert one.encoder.transform(content([]).frame).shape == (0, 2)


def test_columns_without_anything_in_them_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="nothing to learn") as error:
        fit_encoder(content(["", None, "  "]), TEXT, ["tfidf"])
    assert error.value.code == "columns"
    with pytest.raises(InvalidInputError, match="nothing to learn"):
        fit_encoder(content(["shown only"]), {"text": ColumnRole.SHOWN})


def test_several_columns_are_one_text() -> None:
    rows = content(["late plane", "kind crew"], ["lost bag", None], names=("title", "body"))
    assert rows.texts(["title", "body"]) == ["late plane\nlost bag", "kind crew"]
    encoded = fit_encoder(rows, {"title": ColumnRole.TEXT, "body": ColumnRole.TEXT}, ["tfidf"])
    assert encoded.encoder.columns == ("title", "body")
    with pytest.raises(InvalidInputError, match=r"\['body'\] are missing") as error:
        encoded.encoder.transform(rows.frame[["title"]])
    assert error.value.code == "columns"


def test_many_rows_are_fitted_on_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelchef.data.encoders.text.FIT_ROWS", 100)
    monkeypatch.setattr("labelchef.data.encoders.text.CHUNK", 64)
    told: list[tuple[str, int, int]] = []
    block = TfidfEncoder(("text",)).fit(content(texts(300)))
    B = block.transform(content(texts(300)), lambda *said: told.append(said))
    assert B.shape[0] == 300
    assert [done for _, done, _ in told] == [64, 128, 192, 256, 300]
    assert block.width <= 100
    monkeypatch.undo()
    assert TfidfEncoder(("text",)).fit(content(texts(300))).width > 100


def test_given_features_keep_their_geometry_unless_their_spreads_differ() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4)) * [1.0, 2.0, 3.0, 0.0] + 5.0
    block = NumbersEncoder().fit(Content(pd.DataFrame(index=range(200)), X))
    B = block.transform(Content(pd.DataFrame(index=range(200)), X))
    np.testing.assert_allclose(B, X - X.mean(axis=0), atol=1e-5)
    X[:, 0] *= 1e4
    apart = NumbersEncoder().fit(Content(pd.DataFrame(index=range(200)), X))
    B = apart.transform(Content(pd.DataFrame(index=range(200)), X))
    np.testing.assert_allclose(B[:, :3].std(axis=0), 1.0, rtol=1e-5)
    assert not B[:, 3].any()
    with pytest.raises(InvalidInputError, match="without features"):
        apart.transform(Content(pd.DataFrame(index=range(2))))
    with pytest.raises(InvalidInputError, match="3 features; expected 4"):
        apart.transform(Content(pd.DataFrame(index=range(2)), np.ones((2, 3))))


def _changed(raw: bytes, **members: Any) -> bytes:
    with np.load(io.BytesIO(raw)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    out = io.BytesIO()
    np.savez(out, **(arrays | members))
    return out.getvalue()


def test_damaged_files_are_refused() -> None:
    raw = fit_encoder(content(texts(50)), TEXT, ["tfidf"]).encoder.to_bytes()
    with np.load(io.BytesIO(raw)) as archive:
        meta = json.loads(str(archive["meta"]))
        E = archive["0.E"]

    def with_meta(**changes: Any) -> bytes:
        return _changed(raw, meta=np.array(json.dumps(meta | changes)))

    first = meta["blocks"][0]
    cases = {
        "no encoder": [b"", b"PK", raw[: len(raw) // 2], pickle.dumps({"a": 1}), _changed(raw, meta=np.array("{"))],
        "format 9": [with_meta(format=9)],
        "no block": [with_meta(blocks=[])],
        "damaged": [
            with_meta(blocks=[first | {"kind": "os.system"}]),
            with_meta(blocks=[first | {"scale": float("nan")}]),
            with_meta(blocks=[first | {"weight": -1}]),
            with_meta(blocks=[first | {"facts": {}}]),
            with_meta(blocks=[first | {"arrays": ["idf"]}]),
            with_meta(blocks=[first | {"facts": first["facts"] | {"terms": "letters"}}]),
            _changed(raw, **{"0.E": E[:-1]}),
            _changed(raw, **{"0.vocabulary": np.zeros(len(E), dtype=np.uint8)}),
        ],
    }
    for said, some in cases.items():
        for one in some:
            with pytest.raises(InvalidInputError, match=said) as error:
                FittedEncoder.of_bytes(one)
            assert error.value.code == "encoder"


def test_mutated_bytes_never_end_in_a_traceback() -> None:
    encoder = fit_encoder(content(texts(40)), TEXT, ["tfidf"]).encoder
    raw, rng, refused = encoder.to_bytes(), np.random.default_rng(0), 0
    for _ in range(60):
        changed = np.frombuffer(raw, dtype=np.uint8).copy()
        places = rng.integers(0, len(changed), int(rng.integers(1, 20)))
        changed[places] = rng.integers(0, 256, len(places))
        try:
            FittedEncoder.of_bytes(changed.tobytes())
        except InvalidInputError:
            refused += 1
    assert refused >= 55  # the checksums of the archive find nearly all


def test_nothing_in_a_file_is_unpickled() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (pytest.fail, ("it was executed",))

    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive, archive.open("meta.npy", "w") as stream:
        np.lib.format.write_array(stream, np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInputError, match="no encoder"):
        FittedEncoder.of_bytes(held.getvalue())


def test_names_of_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = {"a": ColumnRole.TEXT, "b": ColumnRole.IMAGE, "c": ColumnRole.FEATURE, "d": ColumnRole.SHOWN}

    def kinds(*specs: str, given: bool = False) -> list[str]:
        return [type(one).__name__ for one in encoders_of(roles, specs, given=given)]

    monkeypatch.setattr("labelchef.data.encoders.specs.usual_network", lambda n_rows: None)
    monkeypatch.setattr("labelchef.data.encoders.specs.has_efficientnet", lambda: False)
    bare = ["TfidfEncoder", "TfidfEncoder", "PixelEncoder", "TableEncoder"]
    assert kinds("auto") == kinds("tfidf") == kinds("pixels", "auto") == kinds() == bare
    assert kinds("auto", given=True) == [*bare, "NumbersEncoder"]
    assert kinds("sentence:x/y") == ["SentenceEncoder", "PixelEncoder", "TableEncoder"]
    assert kinds("sentence", "tfidf", "tfidf")[:3] == ["SentenceEncoder", "TfidfEncoder", "TfidfEncoder"]
    monkeypatch.setattr("labelchef.data.encoders.specs.usual_network", lambda n_rows: "minilm")
    assert kinds("auto")[:3] == ["TfidfEncoder", "TfidfEncoder", "SentenceEncoder"]
    for wrong in ("word2vec", "tfidf:x", "sentence:"):
        with pytest.raises(InvalidInputError, match=r"encoder|network") as error:
            check_specs([wrong])
        assert error.value.code == "encoder"
    with pytest.raises(InvalidInputError, match="--image"):
        encoders_of(TEXT, ["pixels"])


def test_own_encoders_stand_beside_named_ones_or_take_their_place() -> None:
    mine = TfidfEncoder(("text",), WORDS, width=3)
    assert [type(one).__name__ for one in encoders_of(TEXT, [mine])] == ["TfidfEncoder"]
    assert len(encoders_of(TEXT, ["tfidf", mine])) == 3
    assert fit_encoder(content(texts(50)), TEXT, [mine]).encoder.width == 3


def test_every_kind_reads_its_own_state() -> None:
    encoded = fit_encoder(Content(content(texts(50)).frame, np.eye(50)), TEXT, ["tfidf"])
    for block in encoded.encoder.blocks:
        state = block.state()
        again = fitted.KINDS[state.kind](state)
        assert (again.name, again.columns, again.width, again.group) == (
            block.name, block.columns, block.width, block.group,
        )  # fmt: skip
