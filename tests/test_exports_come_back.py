"""What a newcomer found: exports that start a campaign again, ids, numbers and class names that are written otherwise."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from labelchef.base.errors import InvalidInputError, PredictionWarning
from labelchef.base.intake import ColumnRole, Severity
from labelchef.data.encoders.fitted import fit_encoder
from labelchef.data.encoders.protocol import Content
from labelchef.data.files import tables
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.data.intake.raw import Raw
from labelchef.data.intake.voting import with_sources
from labelchef.server.export import exchange, take_home
from labelchef.server.workspace import open_workspace
from tests.store_support import make
from tests.test_take_home import sourced_data

ITEMS = pd.DataFrame({"id": [f"{k:03}" for k in range(60)], "text": [f"text {k}" for k in range(60)], "colour": "red"})


def read(path: Path, **given: object) -> Raw:
    plan = detect([path], Given(**given))  # type: ignore[arg-type]
    return with_sources(join(plan), plan)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_an_exported_data_set_starts_a_campaign(tmp_path: Path, suffix: str) -> None:
    val_items = pd.DataFrame({"id": [f"v{k}" for k in range(30)], "text": "gold"})
    with open_workspace(tmp_path / "home") as ws:
        campaign = make(ws, data=sourced_data(items=ITEMS, val_items=val_items))
        path = take_home.export_dataset(ws, campaign, tmp_path / f"out.{suffix}")
        other = take_home.export_dataset(ws, campaign, tmp_path / "out.json", "label-studio")
        with pytest.raises(InvalidInputError, match=r"expected \.html"):
            exchange.export_report(ws, campaign, tmp_path / "report.pdf")
        with pytest.raises(Exception, match="there is no folder"):
            take_home.export_dataset(ws, campaign, tmp_path / "nowhere" / "out.csv")
    raw = read(path)
    assert (len(raw.train), len(raw.trusted), raw.test is not None) == (60, 30, True)
    assert set(raw.votes["source"]) == {"good", "bad"}
    assert set(raw.content) == {"text", "colour"}
    assert raw.train.ids == sorted(ITEMS["id"])
    again = read(other)
    assert "labelchef" not in set(again.votes["source"])  # it has learned from the labels that would judge it


def rows(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"id": [f"{k:03}" for k in range(40)], **columns})


def errors(raw: Raw) -> set[str]:
    return {one.code for one in raw.findings if one.severity is Severity.ERROR}


def joined(tmp_path: Path, items: pd.DataFrame, gold: pd.DataFrame, votes: pd.DataFrame | None = None) -> Raw:
    paths = {"items": items, "gold": gold} | ({} if votes is None else {"votes": votes})
    for name, frame in paths.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False, sep=";")
    given = Given(trusted=(tmp_path / "gold.csv",), votes=() if votes is None else (tmp_path / "votes.csv",))
    plan = detect([tmp_path / "items.csv"], given)
    return join(plan)


def test_decimal_commas_are_not_taken_for_names(tmp_path: Path) -> None:
    items = rows(amount=[f"{k},5" for k in range(40)], colour=["red", "blue"] * 20)
    gold = rows(label=["a", "b"] * 20)[:20]
    assert "decimal-commas" in errors(joined(tmp_path, items, gold))
    items["amount"] = [k + 0.5 for k in range(40)]
    assert "decimal-commas" not in errors(joined(tmp_path, items, gold))


def test_numbers_of_customers_are_no_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    items = rows(customer_no=rng.permutation(10**5)[:40], amount=rng.random(40))
    raw = joined(tmp_path, items, rows(label=["a", "b"] * 20)[:20])
    assert raw.content == {"customer_no": ColumnRole.SHOWN, "amount": ColumnRole.FEATURE}


def test_classes_that_differ_in_case_must_be_mended(tmp_path: Path) -> None:
    items, gold = rows(text=[f"some words {k}" for k in range(40)]), rows(label=["ham", "spam"] * 20)[:20]
    votes = rows(rule=["Ham", "spam"] * 20)
    assert "similar-classes" in errors(joined(tmp_path, items, gold, votes))


def test_lost_zeros_are_an_error_though_some_ids_match(tmp_path: Path) -> None:
    items = pd.DataFrame({"id": [f"{k:03}" for k in range(80, 120)], "text": [f"words {k}" for k in range(40)]})
    gold = pd.DataFrame({"id": [str(k) for k in range(90, 110)], "label": ["a", "b"] * 10})
    assert "ids-unmatched" in errors(joined(tmp_path, items, gold))


def test_new_values_that_are_no_numbers_are_told() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"amount": rng.random(30), "age": rng.integers(0, 90, 30)})
    encoded = fit_encoder(Content(frame), {"amount": ColumnRole.FEATURE, "age": ColumnRole.FEATURE})
    new = pd.DataFrame({"amount": ["0,5", "0.25"], "age": ["7", "8"]})
    with pytest.warns(PredictionWarning, match=r"'amount': 1 of 2 values are no numbers, such as '0,5'"):
        encoded.encoder.transform(new)


def test_a_table_of_id_and_label_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text(json.dumps({"id": "007", "label": "ham"}) + "\n")
    (line,) = tables.read_vote_lines(tmp_path / "labels.jsonl")
    assert (line.item, line.annotator, line.label) == ("007", tables.ALONE, "ham")
