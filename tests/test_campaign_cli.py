"""Campaigns that last, as a user types them."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from labelchef import load_model
from labelchef.server.campaigns.campaigns import status
from labelchef.server.campaigns.guidelines import guidelines
from labelchef.server.workspace import open_workspace
from tests.commands import commands
from tests.store_support import CLASSES, small_data, truth_of

TRUTH = truth_of(90)


def labelchef(*arguments: object, check: int = 0, stdin: str = "", env: dict[str, str] | None = None) -> str:
    done = commands().run(*arguments, env=env, stdin=stdin)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == check, done.stderr + done.stdout
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("campaign")
    data = small_data()
    np.save(made / "features.npy", data.X)
    np.save(made / "val_features.npy", data.validation[0])
    pd.DataFrame(data.weak, columns=CLASSES).to_csv(made / "weak.csv", index=False)
    pd.DataFrame({"label": [CLASSES[k] for k in data.validation[1]]}).to_csv(made / "val_labels.csv", index=False)
    pd.DataFrame({"text": [f"[bold]text {k}" for k in range(60)]}).to_csv(made / "items.csv", index=False)
    return made


def test_a_campaign_from_init_to_export(folder: Path, tmp_path: Path) -> None:
    home = {"LABELCHEF_HOME": str(tmp_path / "home"), "LABELCHEF_PERSON": "ann"}
    assert "is no workspace" in labelchef("status", check=2, env=home)
    text = tmp_path / "guidelines.md"
    begun = ("init", "My mails", "--folder", folder, "--batch-size", 2, "--budget", 2, "--guidelines", text)
    assert "guidelines.md cannot be read" in labelchef(*begun, check=2, env=home)
    text.write_text("Read *all*.\n\n## spam\nAdverts.\n", encoding="utf-8")
    assert "campaign: my-mails, 60 items" in labelchef(*begun, env=home)
    with open_workspace(tmp_path / "home") as ws:
        written = guidelines(ws, "my-mails", "ann")
    assert (written.text, written.classes[1].text) == ("Read *all*.", "Adverts.")
    assert "round 1 is open" in labelchef("status", env=home)
    shown = labelchef("next", "my-mails", env=home)
    assert "[bold]text" in shown
    assert "suggested" in shown
    first = json.loads(labelchef("next", "my-mails", "--count", 2, "--json", env=home))["tasks"]
    items = [task["item"] for task in first]
    labelchef("vote", "my-mails", items[0], CLASSES[TRUTH[int(items[0])]], env=home)
    assert f"item {items[0]} is yours again" in labelchef("vote", "my-mails", "--undo", env=home)
    labelchef("vote", "my-mails", items[0], "--skip", env=home)
    labelchef("vote", "my-mails", items[0], CLASSES[TRUTH[int(items[0])]], "--note", "sure", env=home)
    labelchef("vote", "my-mails", items[1], "--ambiguous", env=home)
    state = json.loads(labelchef("status", "my-mails", "--json", env=home))
    assert state["summary"]["state"] == "finished"
    assert state["conflicts"] == 1
    assert "1 unresolved" in labelchef("status", "my-mails", env=home)
    assert "nothing now: budget spent" in labelchef("next", "my-mails", env=home)
    assert "came out as the ledger says" in labelchef("replay", "my-mails", env=home)
    labelchef("export", "my-mails", "--what", "labels", "--out", tmp_path / "labels.csv", env=home)
    assert (pd.read_csv(tmp_path / "labels.csv")["source"] == "cleaned").sum() == 1
    labelchef("export", "my-mails", "--what", "votes", "--out", tmp_path / "votes.jsonl", env=home)
    assert len((tmp_path / "votes.jsonl").read_text().splitlines()) == 4
    labelchef("export", "my-mails", "--what", "model", "--out", tmp_path / "model.npz", env=home)
    assert set(load_model(tmp_path / "model.npz").predict(np.load(folder / "features.npy"))) <= set(CLASSES)
    labelchef("export", "my-mails", "--what", "report", "--out", tmp_path / "r.html", env=home)
    assert "<svg" in (tmp_path / "r.html").read_text()
    (tmp_path / "in.csv").write_text(f"item,annotator,label\n{items[1]},zoe,ham\n{items[1]},yan,ham\n")
    told = labelchef("import", "my-mails", tmp_path / "in.csv", "--dry-run", env=home)
    assert "would be: 2 read, 2 " in told
    assert re.search(rf"3 +{items[1]} +yan ", told)
    assert "2 read, 1 " in labelchef("import", "my-mails", tmp_path / "in.csv", "--rename", "yan=zoe", env=home)
    assert "expected OLD=NEW" in labelchef(
        "import", "my-mails", tmp_path / "in.csv", "--rename", "x", env=home, check=2
    )
    labelchef("import", "my-mails", tmp_path / "in.csv", "--lines", tmp_path / "lines.csv", env=home)
    assert (tmp_path / "lines.csv").read_text().startswith("line,item,annotator,outcome\n2,")
    assert json.loads(labelchef("status", "my-mails", "--json", env=home))["conflicts"] == 0
    with open_workspace(tmp_path / "home") as ws, ws.writing() as connection:
        connection.exec_driver_sql("UPDATE round SET selection_hash = 'x' WHERE number = 1")
    assert "selection differs" in labelchef("replay", "my-mails", check=1, env=home)


def test_accounts_by_command(folder: Path, tmp_path: Path) -> None:
    home = ["--home", tmp_path / "home"]
    labelchef("init", "Mails", "--folder", folder, "--strategy", "three", *home)
    assert "boss is lead" in labelchef("users", "add", "boss", "--role", "lead", *home, stdin="long enough\n")
    labelchef("users", "add", "ann", "--campaign", "mails", *home, stdin="long enough\n")
    assert "expected 10 to" in labelchef("users", "add", "bob", *home, stdin="short\n", check=2)
    assert labelchef("users", "token", "ann", "--label", "x", *home).startswith("lc_")
    labelchef("users", "deactivate", "ann", *home)
    listed = labelchef("users", "list", *home)
    assert [line.split()[2] for line in listed.splitlines()[1:]] == ["no", "yes"]
    assert "deactivated" in labelchef("next", "mails", "--as", "ann", *home, check=2)
    settings = json.loads(labelchef("status", "mails", "--json", *home))["settings"]
    assert (settings["people"], settings["suggestion_votes"]) == (2, True)


BAD: dict[str, tuple[list[object], str]] = {
    "no files": (["init", "X"], "no data was named"),
    "no name": (["init", "--folder", "FOLDER"], "no name"),
    "no folder": (["init", "X", "--folder", "nowhere"], "there is no folder nowhere"),
    "strategy": (["init", "X", "--folder", "FOLDER", "--strategy", "nine"], "unknown strategy"),
    "people": (["init", "X", "--folder", "FOLDER", "--people", "0"], "at least one voter"),
    "a cluster, before files are read": (["init", "X", "nowhere.csv", "--engine", "dask"], "no cluster is known"),
    "campaign": (["status", "nope"], "there is no campaign 'nope'"),
    "label": (["vote", "mails", "0", "tofu"], "label is 'tofu'"),
    "not asked": (["vote", "mails", "OTHER", "ham"], "is not being asked"),
    "two answers": (["vote", "mails", "0", "ham", "--ambiguous"], "expected an item and one of"),
    "what": (["export", "mails", "--out", "x.csv", "--what", "all"], "expected one of: dataset, predictions, model"),
    "format": (["export", "mails", "--out", "x.doc"], "expected one of: csv"),
    "model": (["export", "mails", "--what", "model", "--out", "x.pkl"], "expected .npz or .onnx for a model"),
    "count": (["next", "mails", "--count", "0"], "n is 0"),
    "account": (["users", "token", "nobody"], "there is no account"),
    "database": (["status", "--database", "mysql://x"], "not supported"),
}  # fmt: skip


@pytest.fixture(scope="module")
def home(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("home")
    labelchef("init", "Mails", "--folder", folder, "--home", made)
    return made


def other_item(home: Path) -> str:
    """An item that is not being asked."""
    with open_workspace(home) as ws:
        opened = status(ws, "mails").open_round
    assert opened is not None
    return next(str(k) for k in range(60) if str(k) not in [i.item for i in opened.items])


@pytest.mark.parametrize("what", BAD)
def test_bad_input_ends_with_two_and_a_sentence(what: str, folder: Path, home: Path) -> None:
    arguments, message = BAD[what]
    filled = [
        {"FOLDER": folder, "OTHER": other_item(home) if "OTHER" in arguments else ""}.get(str(a), a) for a in arguments
    ]
    said = labelchef(*filled, "--home", home, check=2)
    assert message in " ".join(said.split())


@pytest.mark.parametrize(
    ("database", "said"),
    [
        ("postgresql://localhost:1/y", "does not answer"),
        ("postgresql://localhost:abc/y", "is no address of a database"),
        ("postgresql+foo://a@localhost/y", "there is no driver"),
        ("mysql://a@b/c", "not supported"),
    ],
)
def test_a_database_that_cannot_be_is_told_in_a_sentence(tmp_path: Path, database: str, said: str) -> None:
    told = labelchef("users", "list", "--home", tmp_path, "--database", database, check=2)
    assert said in " ".join(told.split())


def test_an_account_is_not_made_for_a_campaign_that_is_not_there(tmp_path: Path) -> None:
    told = labelchef("users", "add", "ann", "--campaign", "nope", "--home", tmp_path, stdin="correct horse\n", check=2)
    assert "nope" in told
    assert "ann" not in labelchef("users", "list", "--home", tmp_path)


def test_serve_with_an_environment_it_cannot_use(tmp_path: Path) -> None:
    told = labelchef("serve", "--home", tmp_path, env={"LABELCHEF_HOSTNAMES": "abc"}, check=2)
    assert "LABELCHEF_HOSTNAMES is a JSON list" in " ".join(told.split())
    labelchef("users", "add", "boss", "--role", "lead", "--home", tmp_path, stdin="correct horse\n")
    far = labelchef("serve", "--team", "--home", tmp_path, "--host", "ü" * 70, check=2)
    assert "cannot be used" in far
