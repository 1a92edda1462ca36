"""First paths: what people have × what they know × how they come in, each from the files to predictions for new rows.

A cell is content × known × trusted × entry. It runs to the end: campaign, batch, answers, exported data set and model, `predict`
on new rows; ids, counts and probabilities are checked. Or it is refused before anything is computed, with the remedy in the words
of that place. `REFUSED` is the whole list of refusals: what is not in it must run.

The files are those of `tests.first_files`; nothing is said of them but what a person has to say: which file holds votes, which
labels are right, and the names of the classes where no label tells them.

By default each entry runs every content with every kind of knowledge, and the kinds of trusted rows in turn.
`LABELCHEF_CELLS=all` runs every cell.
"""

import io
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef import LabelCleaner, load_model
from labelchef.base.errors import InvalidInputError
from labelchef.data import predicting
from labelchef.data.dataset import VOTE
from labelchef.server import worker
from labelchef.server.workspace import Workspace
from tests.commands import commands
from tests.first_files import CONTENTS, KNOWN, TRUSTED, World, likely_of, votes_of, world
from tests.web.conftest import Person
from tests.web.test_intake import send, settled

BATCH = 4
ENCODER = {"texts": "tfidf", "images": "pixels"}

REFUSED: dict[tuple[str, str], tuple[str, str]] = {
    ("texts", "python"): ("features", "labelchef init"),
    ("images", "python"): ("features", "labelchef init"),
    ("table", "python"): ("features", "labelchef init"),
}
"""(content, entry) → code of the error, and the remedy that it names."""

CELLS = [
    (content, known, trusted)
    for content, known, trusted in itertools.product(CONTENTS, KNOWN, TRUSTED)
    if not (content == "arrays" and trusted == "part")  # whoever has arrays has cut them himself
]


def chosen(entry: str) -> list[tuple[str, str, str]]:
    """Cells for an entry: every content with every kind of knowledge, with the kinds of trusted rows in turn; or every cell."""
    if os.environ.get("LABELCHEF_CELLS") == "all":
        return CELLS
    found = []
    for content, known in itertools.product(CONTENTS, KNOWN):
        kinds = [one for one in CELLS if one[:2] == (content, known)]
        turn = CONTENTS.index(content) + KNOWN.index(known) + ENTRIES.index(entry)
        found.append(kinds[turn % len(kinds)])
    return found


ENTRIES = ("init", "api", "python")


def check_dataset(frame: pd.DataFrame, made: World, answers: dict[str, str]) -> None:
    """Every row once, with its answer where it has one, and probabilities that are some."""
    train, trusted = frame[frame["split"] == "train"], frame[frame["split"] == "trusted"]
    assert sorted(train["id"].astype(str)) == sorted(made.pool), "each row once"
    label = dict(zip(train["id"].astype(str), train["label"], strict=True))
    assert {key: label[key] for key in answers} == answers
    if made.content == "arrays":  # rows without ids
        assert trusted["label"].tolist() == [made.truth[key] for key in made.gold]
    else:
        assert dict(zip(trusted["id"].astype(str), trusted["label"], strict=True)) == made.trusted_labels
    P = frame[[f"p: {name}" for name in made.classes]].to_numpy(dtype=float)
    assert np.allclose(P.sum(axis=1), 1, atol=1e-4)
    assert ((P >= 0) & (P <= 1)).all()
    assert frame["probability"].between(0, 1).all()
    assert set(frame["label"]) <= set(made.classes)
    check_votes(frame, made)


def check_votes(frame: pd.DataFrame, made: World) -> None:
    """Every vote that is in the files, under the name of its source, and no other."""
    arrays, column = made.content == "arrays", "folder" if made.content == "images" else "label"
    name = None if arrays else {"llm": "llm", "labels": column, "one": "lf_0"}.get(made.known)
    known = set(made.pool) if arrays and made.known in ("crowd", "llm") else {*made.pool, *made.gold}
    expected = {(key, name or source, label) for key, source, label in votes_of(made) if key in known}
    if made.known == "soft":
        expected = set() if arrays else {(key, "weak labels", label) for key, label in likely_of(made).items()}
    ids = [*made.pool, *made.gold] if arrays else frame["id"].astype(str)
    found = set()
    for column in [name for name in frame.columns if name.startswith(VOTE)]:
        for key, said in zip(ids, frame[column], strict=True):
            if isinstance(said, str):
                soft = json.loads(said) if said.startswith("{") else {said: 1.0}
                found.add((key, column.removeprefix(VOTE), max(soft, key=soft.__getitem__)))
    assert found == {one for one in expected if one[0] in set(ids)}


def check_predictions(frame: pd.DataFrame, made: World) -> None:
    """A row for each new row, under its id."""
    assert frame["id"].astype(str).tolist() == made.new_ids
    P = frame[[f"p: {name}" for name in made.classes]].to_numpy(dtype=float)
    assert np.allclose(P.sum(axis=1), 1, atol=1e-4)
    assert set(frame["label"]) <= set(made.classes)


# the command line


def run(home: Path, *arguments: object, check: int = 0) -> str:
    done = commands().run(*arguments, env={"LABELCHEF_HOME": str(home), "LABELCHEF_PERSON": "ann"})
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == check, done.stdout + done.stderr
    return done.stdout if check == 0 else done.stderr


@pytest.mark.parametrize(("content", "known", "trusted"), chosen("init"))
def test_by_command(content: str, known: str, trusted: str, tmp_path: Path) -> None:
    made, home = world(content, known, trusted, tmp_path), tmp_path / "home"
    encoder = ["--encoder", ENCODER[content]] if content in ENCODER else []
    shown = run(home, "init", "first", *made.init, *encoder, "--batch-size", BATCH, "--budget", BATCH)
    assert f"{len(made.pool)} items" in shown, shown
    assert f"{made.sources} sources;" in shown, shown
    assert [line for line in shown.splitlines() if line.startswith("warning") and "no source says" not in line] == []
    tasks = json.loads(run(home, "next", "first", "--count", BATCH, "--json"))["tasks"]
    answers = {task["item"]: made.truth[task["item"]] for task in tasks}
    assert len(answers) == BATCH
    pd.DataFrame({"item": list(answers), "annotator": "ann", "label": list(answers.values())}).to_csv(
        tmp_path / "answers.csv", index=False
    )
    run(home, "import", "first", tmp_path / "answers.csv")
    assert json.loads(run(home, "status", "first", "--json"))["summary"]["state"] == "finished"
    run(home, "export", "first", "--what", "dataset", "--out", tmp_path / "dataset.csv")
    check_dataset(pd.read_csv(tmp_path / "dataset.csv", dtype={"id": str}), made, answers)
    run(home, "export", "first", "--what", "model", "--out", tmp_path / "model.npz")
    if made.new is None:
        check_model(tmp_path / "model.npz", made)
        return
    run(home, "predict", tmp_path / "model.npz", made.new, "--out", tmp_path / "new.csv")
    check_predictions(pd.read_csv(tmp_path / "new.csv", dtype={"id": str}), made)


def check_model(path: Path, made: World) -> None:
    """A model of bare features, on new rows."""
    P = load_model(path).predict_proba(made.new_rows)
    assert P.shape == (len(made.new_ids), len(made.classes))
    assert np.allclose(P.sum(axis=1), 1)


# the page's API


@pytest.fixture
def lead(as_person: Callable[[str], Person], people: Any) -> Person:
    return as_person("lead")


@pytest.mark.parametrize(("content", "known", "trusted"), chosen("api"))
def test_by_the_page(content: str, known: str, trusted: str, tmp_path: Path, ws: Workspace, lead: Person) -> None:
    made = world(content, known, trusted, tmp_path)
    found = settled(lead, send(lead, made.uploads()))
    correction = made.correction(found)
    if correction:
        found = settled(lead, lead.client.patch(f"/api/intakes/{found['id']}", json=correction))
    preview = found["preview"]
    assert preview is not None, found
    assert preview["usable"], preview["findings"]
    assert (preview["n_train"], preview["n_trusted"]) == (len(made.pool), len(made.gold))
    assert len(preview["sources"]) == made.sources
    warned = {one["code"] for one in preview["findings"] if one["severity"] == "warning"}
    assert warned <= {"no-votes"}, preview["findings"]
    settings = {"batch_size": BATCH, "budget": BATCH}
    body = {"name": "First", "settings": settings, "encoders": [ENCODER.get(content, "auto")]}
    made = made.dropped()
    done = settled(lead, lead.post(f"/api/intakes/{found['id']}/create", body), 120)
    assert (done["state"], done["problem"]) == ("made", None)
    where, answers = "/api/campaigns/first", {}
    worker.advance(ws, "first")
    while tasks := lead.post(f"{where}/next").json()["tasks"]:
        item = tasks[0]["item"]
        answers[item] = made.truth[item]
        assert lead.post(f"{where}/votes", {"item": item, "label": answers[item]}).status_code == 200
        worker.advance(ws, "first")
    assert len(answers) == BATCH
    frame = pd.read_csv(io.BytesIO(lead.get(f"{where}/export/dataset").content), dtype={"id": str})
    check_dataset(frame, made, answers)
    (tmp_path / "model.npz").write_bytes(lead.get(f"{where}/export/model").content)
    if made.new is None:
        check_model(tmp_path / "model.npz", made)
        return
    predicting.predict(tmp_path / "model.npz", made.new, tmp_path / "new.csv")
    check_predictions(pd.read_csv(tmp_path / "new.csv", dtype={"id": str}), made)


# Python


@pytest.mark.filterwarnings("ignore::labelchef.base.errors.LabelchefWarning")
@pytest.mark.parametrize(("content", "known", "trusted"), chosen("python"))
def test_by_python(content: str, known: str, trusted: str, tmp_path: Path) -> None:
    made = world(content, known, trusted, tmp_path)
    given = made.python()
    if (content, "python") in REFUSED:
        code, remedy = REFUSED[content, "python"]
        with pytest.raises(InvalidInputError) as caught:
            LabelCleaner().fit(**given)
        assert caught.value.code == code
        assert remedy in str(caught.value)
        return
    cleaner = LabelCleaner(batch_size=BATCH, budget=BATCH).fit(**given)
    batch = cleaner.query()
    assert len(batch.indices) == BATCH
    truth = [made.truth[made.pool[k]] for k in batch.indices.tolist()]
    cleaner.update(batch.indices, truth)
    given_now = np.asarray(cleaner.labels_)[batch.indices]
    assert [made.classes[c] for c in given_now.argmax(axis=1)] == truth
    believed = np.asarray(cleaner.posterior_)
    assert believed.shape == (len(made.pool), len(made.classes))
    assert np.allclose(believed.sum(axis=1), 1)
    model = cleaner.finish()
    assert [str(one) for one in model.classes_] == list(made.classes)
    P = model.predict_proba(made.new_rows)
    assert P.shape == (len(made.new_ids), len(made.classes))
    assert np.allclose(P.sum(axis=1), 1)
