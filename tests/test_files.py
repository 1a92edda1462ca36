"""Reading and writing files; artefacts that appear whole or not at all."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.files import whole_file
from labelchef.base.inputs import ClassNames
from labelchef.base.settings import Settings
from labelchef.believe import SourceVotes, vote_shares
from labelchef.believe.vote_forms import read_votes
from labelchef.data.files import artefacts, formulas, tables
from labelchef.data.files.digits import RULES, describe, load_digits_demo, rule_votes
from labelchef.loop.ledger.jsonl import JsonLinesLedger


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_features_from_every_format(tmp_path: Path, suffix: str) -> None:
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    path = tmp_path / f"x{suffix}"
    match suffix:
        case ".npy":
            np.save(path, X)
        case ".npz":
            np.savez(path, X)
        case ".csv":
            pd.DataFrame(X).to_csv(path, index=False)
        case ".parquet":
            pd.DataFrame(X, columns=["a", "b"]).to_parquet(path)
    np.testing.assert_array_equal(np.asarray(tables.read_features(path, "features")), X)


def test_npy_features_are_mapped_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    assert isinstance(tables.read_features(tmp_path / "x.npy", "features"), np.memmap)


def test_labels_from_arrays_and_tables(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.array([[1], [0]]))
    assert tables.read_labels(tmp_path / "y.npy", "y") == ["1", "0"]
    pd.DataFrame({"id": [7, 8], "label": ["b", "a"]}).to_csv(tmp_path / "y.csv", index=False)
    assert tables.read_labels(tmp_path / "y.csv", "y") == ["b", "a"]
    pd.DataFrame({"label": [2, 3]}).to_parquet(tmp_path / "y.parquet")
    assert tables.read_labels(tmp_path / "y.parquet", "y") == ["2", "3"]
    np.save(tmp_path / "wide.npy", np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match=r"shape \(2, 2\)"):
        tables.read_labels(tmp_path / "wide.npy", "y")
    pd.DataFrame({"a": [1], "b": [2]}).to_csv(tmp_path / "two.csv", index=False)
    with pytest.raises(InvalidInputError, match="one named 'label'"):
        tables.read_labels(tmp_path / "two.csv", "y")


def test_labels_are_text(tmp_path: Path) -> None:
    (tmp_path / "y.csv").write_text("label\nNA\nTrue\n1.0\n-1\nnull\n\n")
    assert tables.read_labels(tmp_path / "y.csv", "y") == ["NA", "True", "1.0", None, "null"]
    np.save(tmp_path / "y.npy", np.array([1.0, np.nan, -1.0]))
    assert tables.read_labels(tmp_path / "y.npy", "y") == ["1", None, None]


def test_a_csv_without_a_first_line_of_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("0.5,1.5\n2.5,3.5\n")
    with pytest.raises(InvalidInputError, match="names the columns"):
        tables.read_features(tmp_path / "x.csv", "features")
    (tmp_path / "y.csv").write_text("ham\nspam\n")
    with pytest.raises(InvalidInputError, match="one named 'label'"):
        tables.read_labels(tmp_path / "y.csv", "y")


def test_row_numbers_in_a_file_are_refused(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1.0], "b": [2.0]}).to_csv(tmp_path / "x.csv")
    with pytest.raises(InvalidInputError, match="index=False"):
        tables.read_features(tmp_path / "x.csv", "features")


VOTES = pd.DataFrame({"rule": ["ham", None, "spam"], "llm": ["ham", "spam", None]})
LONG = pd.DataFrame(
    [(0, "rule", "ham"), (2, "rule", "spam"), (0, "llm", "ham"), (1, "llm", "spam")],
    columns=["item", "source", "label"],
)
SOFT = np.array([[[1.0, 0.0], [1.0, 0.0]], [[np.nan, np.nan], [0.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]]])
IDS = np.array([[0, 0], [-1, 1], [1, -1]])


def write_votes(path: Path, form: str) -> Path:
    table = LONG if form.startswith("long") else VOTES
    match form.split()[-1]:
        case "csv":
            table.to_csv(path := path / "v.csv", index=False)
        case "parquet":
            table.to_parquet(path := path / "v.parquet")
        case "jsonl":
            table.to_json(path := path / "v.jsonl", orient="records", lines=True)
        case "ids":
            np.save(path := path / "v.npy", IDS)
        case "names":
            np.save(path := path / "v.npy", VOTES.fillna("").to_numpy().astype(str))
        case "soft":
            np.save(path := path / "v.npy", SOFT)
        case "sparse":
            sparse.save_npz(path := path / "v.npz", sparse.csr_array(IDS + 1))
        case "votes":
            np.savez(path := path / "v.npz", votes=IDS, sources=["rule", "llm"])
        case "probabilities":
            np.savez(path := path / "v.npz", soft=SOFT, sources=["rule", "llm"])
        case "archive":
            np.savez(path := path / "v.npz", votes=IDS)
        case "numbers":
            path = path / "v.csv"
            path.write_text("rule,llm\n0,0\n-1,1\n1,\n")
    return path


@pytest.mark.parametrize(
    "form",
    ["csv", "parquet", "jsonl", "long csv", "long parquet", "long jsonl", "ids", "names", "soft", "sparse", "votes",
     "probabilities", "archive", "numbers"],
)  # fmt: skip
def test_votes_of_sources_from_every_format(tmp_path: Path, form: str) -> None:
    given = tables.read_source_votes(write_votes(tmp_path, form), "votes of sources")
    found = read_votes(given, ClassNames(["ham", "spam"]), 3, sources=("rule", "llm"))
    np.testing.assert_array_equal(found.table.toarray(), SourceVotes.hard(IDS, 2).table.toarray())


def test_soft_votes_of_sources_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("item,source,label,probability\n1,llm,ham,0.25\n1,llm,spam,0.75\n0,rule,spam,1\n")
    given = tables.read_source_votes(tmp_path / "v.csv", "votes of sources")
    found = read_votes(given, ClassNames(["ham", "spam"]), 2)
    assert found.table.toarray().tolist() == [[0, 0, 0, 1], [0.25, 0.75, 0, 0]]


def test_votes_of_sources_that_cannot_be_read(tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            tables.read_source_votes(tmp_path / "v.npz", "votes of sources")

    np.savez(tmp_path / "v.npz", votes=IDS, more=IDS)
    refused("expected one named 'votes' or 'soft'")
    np.savez(tmp_path / "v.npz", votes=IDS, sources=["rule"])
    refused(r"names 1 sources for an array of shape \(3, 2\)")
    np.savez(tmp_path / "v.npz", votes=IDS, sources=["rule", "rule"])
    refused("names a source twice")
    parts = {"data": [1], "indices": [70_000], "indptr": [0, 1, 1], "shape": [2, 3]}
    np.savez(tmp_path / "v.npz", format=np.array(b"csr"), **parts)  # type: ignore[arg-type]
    refused("cannot be read as .npz")
    with pytest.raises(InvalidInputError, match=r"ends in '\.doc'; expected one of"):
        tables.read_source_votes(tmp_path / "v.doc", "votes of sources")
    LONG.to_csv(tmp_path / "v.csv", index=False)
    with pytest.raises(
        InvalidInputError, match=r"expected item, annotator and label\. Votes of sources are source votes"
    ):
        tables.read_votes(tmp_path / "v.csv")


def test_the_last_vote_of_an_annotator_counts(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("item,annotator,label\n0,a,x\n0,b,x\n0,a,y\n")
    assert tables.read_votes(tmp_path / "v.csv")["label"].tolist() == ["x", "y"]


def test_weak_label_headers_name_classes(tmp_path: Path) -> None:
    pd.DataFrame([[0.5, 0.5]], columns=["3", "5"]).to_csv(tmp_path / "w.csv", index=False)
    assert list(tables.read_weak_labels(tmp_path / "w.csv").columns) == ["3", "5"]
    np.save(tmp_path / "w.npy", np.full((2, 3), 1 / 3))
    assert list(tables.read_weak_labels(tmp_path / "w.npy").columns) == ["0", "1", "2"]
    pd.DataFrame([[0.5, 0.5]], columns=["-1", "1"]).to_csv(tmp_path / "w.csv", index=False)
    with pytest.raises(InvalidInputError, match="no label"):
        tables.read_weak_labels(tmp_path / "w.csv")
    pd.DataFrame([[0.5, 0.5]], columns=["3", "x"]).to_csv(tmp_path / "w.csv", index=False)
    assert list(tables.read_weak_labels(tmp_path / "w.csv").columns) == ["3", "x"]


def test_votes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": [0, 1], "annotator": ["a", "b"], "label": [1, -1], "extra": 0})
    frame.to_csv(tmp_path / "v.csv", index=False)
    frame.to_json(tmp_path / "v.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "v.parquet")
    for suffix in ("csv", "jsonl", "parquet"):
        votes = tables.read_votes(tmp_path / f"v.{suffix}")
        assert votes.to_dict("list") == {"item": [0, 1], "annotator": ["a", "b"], "label": ["1", None]}
    frame.drop(columns="annotator").to_csv(tmp_path / "v.csv", index=False)
    with pytest.raises(InvalidInputError, match="expected item, annotator and label"):
        tables.read_votes(tmp_path / "v.csv")
    frame.assign(item=["x", 1]).to_csv(tmp_path / "v.csv", index=False)
    with pytest.raises(InvalidInputError, match="no row numbers"):
        tables.read_votes(tmp_path / "v.csv")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".jsonl"])
def test_corrupt_files_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(b"\x93NUMPY\x01\x00 this is not it \xff\xfe")
    with pytest.raises(InvalidInputError, match=f"bad{suffix}( cannot be read|, line 1 is no JSON)"):
        tables.read_weak_labels(path)


def test_pickles_are_not_run(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInputError, match="is a pickle"):
        tables.read_features(tmp_path / "x.npy", "features")


def test_missing_files_and_strange_endings(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no file"):
        tables.read_features(tmp_path / "none.npy", "features")
    with pytest.raises(InvalidInputError, match=r"expected one of \.npy"):
        tables.read_features(tmp_path / "x.xlsx", "features")
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    with pytest.raises(InvalidInputError, match="holds the arrays"):
        tables.read_features(tmp_path / "two.npz", "features")


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.parquet").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"labelchef\[parquet\]"):
        tables.read_features(tmp_path / "x.parquet", "features")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    artefacts.write_json(path, {"a": np.float64(1.5), "b": np.arange(2)})
    assert json.loads(path.read_text()) == {"a": 1.5, "b": [0, 1]}

    def half() -> None:
        with whole_file(path) as stream:
            stream.write(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        half()
    assert json.loads(path.read_text()) == {"a": 1.5, "b": [0, 1]}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def ledger_line(number: int) -> str:
    metrics = {"loss": 0.5, "accuracy": 0.5, "f1_macro": 0.5}
    entry = {
        "round": number, "items": [number], "suggested": [1], "influence": [-0.5], "by_answer": [[-1.0, 2.0]], "votes": [],
        "decided_items": [number], "decided": [1], "support": [1.0], "changed": [], "asked": 1, "spent": number,
        "cleaned": number, "validation": metrics, "steering": metrics, "test": None, "predicted_change": None,
        "realised_change": -0.1, "selection": {"candidates": 3}, "construction": {}, "seconds": {"select": 0.5},
    }  # fmt: skip
    return json.dumps(entry) + "\n"


def test_a_ledger_cut_off_in_its_last_line_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text(ledger_line(1) + ledger_line(2) + ledger_line(3)[:20])
    assert [d.decisions.items.tolist() for d in JsonLinesLedger(Settings(), path=path).resume()] == [[1], [2]]
    assert path.read_text() == ledger_line(1) + ledger_line(2)


@pytest.mark.parametrize(
    "damage", ["nonsense\n", "{}\n", "[]\n", ledger_line(3), ledger_line(2).replace("[2]", "[99999999999999999999]")]
)
def test_a_damaged_ledger_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text(ledger_line(1) + damage + ledger_line(3))
    with pytest.raises(InvalidInputError, match=r"line 2 is not round 2"):
        JsonLinesLedger(Settings(), path=path).resume()
    assert ledger_line(3) in path.read_text()


def test_vote_shares_refuse_what_they_cannot_count() -> None:
    for votes in (np.array([0, 1]), np.array([[0, 5]]), np.array([[-2, 0]])):
        with pytest.raises(InvalidInputError, match="expected"):
            vote_shares(votes, 2)
    np.testing.assert_allclose(vote_shares(np.array([[0, 1, 1]]), 3).sum(), 1.0)


def test_the_rules_see_shapes() -> None:
    ring = np.zeros((8, 8), dtype=np.float32)
    ring[1:7, 2:6] = 16
    ring[2:6, 3:5] = 0
    shape = describe(ring)
    assert (shape.holes, shape.hole_size, shape.width) == (1, 8, 4)
    assert shape.mirror_lr == pytest.approx(1.0)
    assert shape.hole_row == pytest.approx(3.5)
    votes = dict(zip(RULES, rule_votes(ring[None])[0].tolist(), strict=True))
    assert votes["big hole"] == 0
    assert votes["two holes"] == -1
    assert (shape.enclosed, shape.bays.tolist()) == (8, [[0, 0], [0, 0]])
    assert describe(np.zeros((8, 8), dtype=np.float32)).holes == 0


def test_a_bay_has_ink_on_three_sides() -> None:
    five = np.zeros((8, 8), dtype=np.float32)
    five[0, 2:6] = five[3, 2:6] = five[7, 2:6] = 16
    five[0:4, 2] = five[3:8, 5] = 16
    shape = describe(five)
    assert shape.bays.tolist() == [[0, 6], [9, 0]]  # open to the right above, to the left below
    assert (shape.enclosed, shape.head, shape.foot) == (0, 4, 4)
    assert describe(five[:, ::-1]).bays.tolist() == [[6, 0], [0, 9]]
    assert dict(zip(RULES, rule_votes(five[None])[0].tolist(), strict=True))["bay right above, left below"] == 5


def test_demo_labels_are_weak_but_not_noise() -> None:
    data, other = load_digits_demo(seed=1), load_digits_demo(seed=2)
    right = float(np.mean(vote_shares(data.votes, 10).argmax(axis=1) == data.y))
    assert 0.5 < right < 0.75
    assert len(data.y) + len(data.y_val) + len(data.y_test) == 1797
    assert data.votes.shape == (len(data.y), len(data.sources))
    assert data.votes_val.shape == (len(data.y_val), len(data.sources))
    np.testing.assert_array_equal(data.X_test, other.X_test)  # rules were written without a look at these
    assert not np.array_equal(data.X_val, other.X_val)


def test_votes_that_were_cut_off_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    path.write_text("item,annotator,label\n0,z,a\n0,z")
    with pytest.raises(InvalidInputError, match=r"line 3 has 2 fields; expected 3"):
        tables.read_vote_lines(path)
    path.write_text('item,annotator,label,note\n0,z,a,"two\nlines, one field"\n\n1,z,a,\n')
    assert [line.item for line in tables.read_vote_lines(path)] == ["0", "1"]


@pytest.mark.parametrize(
    "text", ["=HYPERLINK(1)", "+49 170", "-x", "@a", "\tx", "-5", "+1.5", "-1,5", "plain", "'quoted", "", "-"]
)
def test_no_cell_is_a_formula_and_all_come_back(text: str) -> None:
    shown = formulas.harmless(text)
    assert not shown.startswith(("=", "@", "\t", "\r"))
    assert shown == text or shown == f"'{text}"
    assert formulas.as_written(shown) == text
    assert formulas.harmless("-5") == "-5"
