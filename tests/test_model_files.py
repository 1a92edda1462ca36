"""Models that carry their encoder: files, predictions on new rows, the command."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import labelchef
from labelchef import EncodedClassifier, InvalidInputError, LinearClassifier, load_model
from labelchef.base.intake import ColumnRole
from labelchef.cli.main import app
from labelchef.data import predicting
from labelchef.data.encoders.fitted import fit_encoder
from labelchef.data.encoders.protocol import Content

GOOD, BAD = (
    ["kind crew", "great seat", "thanks a lot", "lovely staff"],
    ["lost my bag", "late again", "never again", "rude"],
)


def rows(n: int = 200, seed: int = 0) -> tuple[pd.DataFrame, list[str]]:
    rng, labels = np.random.default_rng(seed), ["good", "bad"]
    y = [labels[k] for k in rng.integers(0, 2, n)]
    texts = [" ".join(rng.choice(GOOD if one == "good" else BAD, 2)) + f" {rng.integers(99)}" for one in y]
    return pd.DataFrame({"id": [f"00{k}" for k in range(n)], "text": texts}), y


def trained(features: Any = None, content: dict[str, ColumnRole] | None = None) -> EncodedClassifier:
    frame, y = rows()
    encoded = fit_encoder(Content(frame, features), content or {"text": ColumnRole.TEXT}, ["tfidf"])
    fit = LogisticRegression(C=100).fit(encoded.X, y)
    coef = np.column_stack([0 * fit.coef_[0], fit.coef_[0]])
    return EncodedClassifier(encoded.encoder, LinearClassifier(coef, [0.0, float(fit.intercept_[0])], fit.classes_))


def test_a_model_reads_texts_frames_and_records(tmp_path: Path) -> None:
    model, (frame, y) = trained(), rows(100, 1)
    assert (model.predict(frame) == y).mean() > 0.95
    P = model.predict_proba(frame)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    for form in (frame["text"].tolist(), frame["text"], frame["text"].to_numpy(), frame.to_dict("records")):
        np.testing.assert_array_equal(model.predict_proba(form), P)
    assert is_classifier(model)
    assert model.classes_.tolist() == ["bad", "good"]
    assert model.score(frame, y) == (model.predict(frame) == y).mean()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(frame), P)
    for wrong in ("one text", 7, [["a", "b"]]):
        with pytest.raises(InvalidInputError) as error:
            model.predict(wrong)
        assert error.value.code == "rows"


def test_a_file_carries_the_encoder(tmp_path: Path) -> None:
    model, (frame, _) = trained(), rows(50, 2)
    path = model.save(tmp_path / "model.npz", settings={"seed": 1})
    back = load_model(path)
    assert isinstance(back, EncodedClassifier)
    assert isinstance(EncodedClassifier.load(path), EncodedClassifier)
    np.testing.assert_array_equal(back.predict_proba(frame), model.predict_proba(frame))
    plain = LinearClassifier.load(path)  # whoever has features of their own
    np.testing.assert_array_equal(plain.predict_proba(model.encode(frame)), model.predict_proba(frame))
    assert isinstance(load_model(model.classifier.save(tmp_path / "plain.npz")), LinearClassifier)
    with pytest.raises(InvalidInputError, match="without an encoder"):
        EncodedClassifier.load(tmp_path / "plain.npz")
    assert {"EncodedClassifier", "load_model"} <= set(labelchef.__all__)


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    path = trained().save(tmp_path / "model.npz")
    with np.load(path) as archive:
        arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
    narrow = arrays | {"coef": arrays["coef"][:-1]}
    cut = arrays | {"encoder": arrays["encoder"][:100]}
    for held, said in ((narrow, "columns, its classifier reads"), (cut, "no encoder")):
        np.savez(path, **held)
        with pytest.raises(InvalidInputError, match=said) as error:
            load_model(path)
        assert error.value.code == "file"
        assert str(path) in str(error.value)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_predictions_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setattr(predicting, "CHUNK", 32)
    model, (frame, _) = trained(), rows(75, 3)
    model.save(tmp_path / "model.npz")
    frame.loc[4, "text"] = ""
    frame.to_csv(tmp_path / "new.csv", index=False)
    told: list[tuple[str, int, int]] = []
    out = tmp_path / f"out.{ending}"
    made = predicting.predict(
        tmp_path / "model.npz", tmp_path / "new.csv", out, progress=lambda *said: told.append(said)
    )
    readers: dict[str, Any] = {
        "csv": lambda path: pd.read_csv(path, dtype={"id": str}),
        "jsonl": lambda path: pd.read_json(path, lines=True, dtype={"id": str}),
        "parquet": pd.read_parquet,
    }
    found = readers[ending](out)
    assert list(found.columns) == ["id", "label", "probability", "most_probable", "note", "p: bad", "p: good"]
    assert found["id"].tolist() == frame["id"].tolist()  # leading zeros stay
    assert found["label"].tolist() == model.predict(frame).tolist()
    np.testing.assert_allclose(found[["p: bad", "p: good"]], model.predict_proba(frame), atol=1e-6)
    np.testing.assert_allclose(found["probability"], model.predict_proba(frame).max(axis=1), atol=1e-6)
    assert made.n_rows == 75
    assert sum(made.counts.values()) == 75
    assert [done for what, done, _ in told if what == "predicting"] == [32, 64, 75]


def test_what_a_file_lacks_is_named(tmp_path: Path) -> None:
    model = trained()
    model.save(tmp_path / "model.npz")

    def refused(content: str, said: str, **given: Any) -> None:
        (tmp_path / "new.csv").write_text(content)
        with pytest.raises(InvalidInputError, match=said):
            predicting.predict(tmp_path / "model.npz", tmp_path / "new.csv", tmp_path / "out.csv", **given)
        assert not (tmp_path / "out.csv").exists()

    refused("id,review\n1,late\n", r"columns \['text'\] are missing; the rows have \['id', 'review'\]")
    refused("id,text\n", "no rows")
    refused("id,text\n1,late\n", "no column 'key'", id="key")
    with pytest.raises(InvalidInputError, match="format is 'pdf'"):
        predicting.predict(tmp_path / "model.npz", tmp_path / "new.csv", tmp_path / "out.pdf")
    with pytest.raises(InvalidInputError, match="no file"):
        predicting.predict(tmp_path / "none.npz", tmp_path / "new.csv", tmp_path / "out.csv")


def test_numbers_beside_the_text(tmp_path: Path) -> None:
    E = np.random.default_rng(0).normal(size=(200, 4))
    model, (frame, _) = trained(E), rows(20, 5)
    model.save(tmp_path / "model.npz")
    frame.drop(columns="id").to_csv(tmp_path / "new.csv", index=False)
    np.save(tmp_path / "new.npy", E[:20])
    out = tmp_path / "out.csv"
    made = predicting.predict(tmp_path / "model.npz", tmp_path / "new.csv", out, embeddings=tmp_path / "new.npy")
    found = pd.read_csv(out)
    np.testing.assert_allclose(found["p: good"], model.predict_proba(frame, features=E[:20])[:, 1], atol=1e-6)
    assert found["id"].tolist() == list(range(20))
    assert made.path == out
    with pytest.raises(InvalidInputError, match="without features"):
        predicting.predict(tmp_path / "model.npz", tmp_path / "new.csv", out)
    np.save(tmp_path / "new.npy", E[:19])
    with pytest.raises(InvalidInputError, match="19 rows"):
        predicting.predict(tmp_path / "model.npz", tmp_path / "new.csv", out, embeddings=tmp_path / "new.npy")


def test_a_model_of_plain_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(10, 2))
    named = LinearClassifier(rng.normal(size=(2, 2)), np.zeros(2), ["a", "b"], feature_names=["u", "v"])
    named.save(tmp_path / "named.npz")
    pd.DataFrame({"v": X[:, 1], "u": X[:, 0]}).to_csv(tmp_path / "new.csv", index=False)
    predicting.predict(tmp_path / "named.npz", tmp_path / "new.csv", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(found["p: a"], named.predict_proba(X)[:, 0], atol=1e-6)
    pd.DataFrame({"u": X[:, 0]}).to_csv(tmp_path / "few.csv", index=False)
    with pytest.raises(InvalidInputError, match=r"columns \['v'\] are missing"):
        predicting.predict(tmp_path / "named.npz", tmp_path / "few.csv", tmp_path / "out.csv")
    np.save(tmp_path / "new.npy", X)
    LinearClassifier(named.coef, np.zeros(2), ["a", "b"]).save(tmp_path / "bare.npz")
    predicting.predict(tmp_path / "bare.npz", tmp_path / "new.npy", tmp_path / "out.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["p: a"], named.predict_proba(X)[:, 0], atol=1e-6)


def test_the_command(tmp_path: Path) -> None:
    trained().save(tmp_path / "model.npz")
    rows(30, 4)[0].to_csv(tmp_path / "new.csv", index=False)
    files = [str(tmp_path / name) for name in ("model.npz", "new.csv")]
    done = CliRunner().invoke(app, ["predict", *files, "--out", str(tmp_path / "out.csv")])
    assert done.exit_code == 0, done.output
    assert "30 rows" in done.output
    assert len(pd.read_csv(tmp_path / "out.csv")) == 30
