"""The first files of a new user: votes in every place, columns that only look like votes, ids that are hard to find."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, FileRole, Finding, Plan, Severity
from labelchef.base.settings import Settings
from labelchef.data.encoded import EncodedClassifier
from labelchef.data.files.tables import write_table
from labelchef.data.intake.assembling import assemble
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.data.intake.looking import preview
from labelchef.data.intake.profiles import numbers_of
from labelchef.data.intake.raw import Raw
from labelchef.data.intake.telling import rows_told
from labelchef.data.predicting import predict
from labelchef.model.classifier import LinearClassifier
from labelchef.server.intake.starting import look
from tests.commands import commands

N, TRUSTED = 80, 30
WORDS = {"good": "lovely great superb nice happy sunny".split(), "bad": "awful late broken rude sad grim".split()}  # noqa: SIM905
RNG = np.random.default_rng(7)
IDS = [f"t{k:03d}" for k in range(N)]
TRUTH = ["good" if k % 2 else "bad" for k in range(N)]
SAID = [label if k % 5 else {"good": "bad", "bad": "good"}[label] for k, label in enumerate(TRUTH)]
TEXTS = [" ".join(RNG.choice(WORDS[label], 6)) + f" number {k}" for k, label in enumerate(TRUTH)]


def write(folder: Path, **frames: pd.DataFrame) -> list[Path]:
    return [write_table(frame, folder / f"{name}.csv") for name, frame in frames.items()]


def tweets(rows: range = range(TRUSTED, N)) -> pd.DataFrame:
    return pd.DataFrame({"id": [IDS[k] for k in rows], "text": [TEXTS[k] for k in rows]})


def gold() -> pd.DataFrame:
    """Trusted rows with texts of their own."""
    return tweets(range(TRUSTED)).assign(label=TRUTH[:TRUSTED])


def told(found: Plan | Raw, code: str) -> Finding | None:
    return next((one for one in found.findings if one.code == code), None)


def roles(plan: Plan, role: FileRole = FileRole.ITEMS) -> dict[str, str]:
    return {name: str(one) for name, one in plan.of(role)[0].columns.items()}


def llm(folder: Path, rows: range) -> Path:
    path = folder / "llm.jsonl"
    path.write_text("\n".join(json.dumps({"id": IDS[k], "label": SAID[k], "confidence": 0.8}) for k in rows))
    return path


def known(folder: Path, form: str, rows: range) -> Given:
    """What sources say of some rows, in the plainest form of each kind."""
    trusted = tuple(write(folder, gold=gold()))
    if form == "llm":
        return Given(trusted=trusted, llm=(llm(folder, rows),))
    if form == "soft":
        shares = [0.8 if SAID[k] == "good" else 0.25 for k in rows]
        frame = pd.DataFrame({"id": [IDS[k] for k in rows], "good": shares, "bad": [1 - share for share in shares]})
        return Given(trusted=trusted, weak=tuple(write(folder, shares=frame)))
    if form == "crowd":
        cast = [(IDS[k], f"w{(k + j) % 5}", SAID[k - j], 0.9) for k in rows for j in range(3)]
        frame = pd.DataFrame(cast, columns=["item", "worker", "label", "confidence"])
    else:
        count = 1 if form == "one" else 3
        columns = {f"rule_{j}": [SAID[k] if (k + j) % 3 else "" for k in rows] for j in range(count)}
        frame = pd.DataFrame({"id": [IDS[k] for k in rows], **columns})
    return Given(trusted=trusted, votes=tuple(write(folder, votes=frame)))


@pytest.mark.parametrize("form", ["wide", "one", "crowd", "soft", "llm"])
@pytest.mark.parametrize("rows", [range(TRUSTED, N), range(N), range(TRUSTED - 8, N)], ids=["train", "both", "some"])
def test_votes_on_rows_to_label_on_trusted_rows_too_or_on_some_of_them(tmp_path: Path, form: str, rows: range) -> None:
    raw = look(write(tmp_path, tweets=tweets()), known(tmp_path, form, rows)).content
    assert isinstance(raw, Raw)
    data = assemble(raw, Settings(), ["tfidf"]).data
    assert (data.X.shape[0], len(data.validation[1])) == (N - TRUSTED, TRUSTED)
    assert data.votes is not None
    assert (data.votes.counts > 0).all()
    voted = TRUSTED - rows.start
    assert (data.votes_val is None) == (voted == 0)
    if data.votes_val is not None:
        assert data.votes_val.names == data.votes.names
        heard = (
            voted - len(range(-(-rows.start // 3) * 3, TRUSTED, 3)) if form == "one" else voted
        )  # silent on each third
        assert int((~data.votes_val.silent).sum()) == heard
    table = data.votes.table.toarray().reshape(N - TRUSTED, -1, 2)
    assert np.allclose(table.sum(axis=2)[table.sum(axis=2) > 0], 1), "what a vote leaves open goes to the other classes"


def test_a_source_that_votes_on_trusted_rows_only_is_left_out_and_told(tmp_path: Path) -> None:
    cast = [(key, "ann", TRUTH[k]) for k, key in enumerate(IDS)] + [(IDS[0], "ben", "bad")]
    votes = pd.DataFrame(cast, columns=["item", "worker", "label"])
    raw = join(detect(write(tmp_path, tweets=tweets(), gold=gold(), votes=votes)))
    finding = told(raw, "absent-sources")
    assert finding is not None
    assert finding.examples == ("ben",)
    data = assemble(raw, Settings(), ["tfidf"]).data
    assert data.votes is not None
    assert data.votes.names == ("ann",)


def churn(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    yes_no = {name: rng.choice(["Yes", "No"], n) for name in ("Partner", "Dependents", "PhoneService", "Paperless")}
    return pd.DataFrame(
        {
            "customerID": [f"{k:04d}-X" for k in range(n)],
            "tenure": rng.integers(0, 72, n),
            **yes_no,
            "fee": rng.normal(60, 9, n),
        }
    )


@pytest.mark.parametrize("trusted", [True, False])
def test_columns_with_class_names_as_values_are_features_until_they_are_named(tmp_path: Path, trusted: bool) -> None:
    frame = churn()
    label = pd.DataFrame({"customerID": frame["customerID"][:40], "Churn": RNG.choice(["Yes", "No"], 40)})
    paths = write(tmp_path, churn=frame, **({"gold": label} if trusted else {}))
    plan = detect(paths)
    assert set(roles(plan).values()) == {"id", "feature"}
    asked = told(plan, "votes-or-not")
    assert asked is not None
    assert asked.count == 4
    assert "--labels Partner" in asked.message
    meant = detect(paths, Given(labels=("Partner",)))
    assert [name for name, role in roles(meant).items() if role == "source"] == ["Partner"]


def test_columns_that_are_plainly_votes_are_sources(tmp_path: Path) -> None:
    frame = tweets(range(N))
    for j, name in enumerate(("bayes", "svm", "words")):  # alike, with gaps, beside a text
        frame[name] = [SAID[k] if (k + j) % 2 else "" for k in range(N)]
    frame["lf_1"], frame["whole"] = SAID, SAID
    paths = write(tmp_path, tweets=frame, gold=pd.DataFrame({"id": IDS[:TRUSTED], "label": TRUTH[:TRUSTED]}))
    plan = detect(paths)
    assert [n for n, role in roles(plan).items() if role == "source"] == ["bayes", "svm", "words", "lf_1"]
    assert roles(plan)["whole"] == "ignored"  # it may tell people the label
    asked = told(plan, "votes-or-not")
    assert asked is not None
    assert asked.examples == ("whole",)


def test_what_a_crowd_platform_writes_is_neither_truth_nor_shown(tmp_path: Path) -> None:
    frame = tweets(range(N)).rename(columns={"id": "_unit_id"})
    frame = frame.assign(
        _golden=["TRUE" if k % 10 == 0 else "FALSE" for k in range(N)],
        _unit_state=["golden" if k % 10 == 0 else "finalized" for k in range(N)],
        _trusted_judgments=[5 + k % 3 for k in range(N)],
        choose_one=SAID,
        choose_one_gold=[TRUTH[k] if k % 10 == 0 else "" for k in range(N)],
        keyword=[f"k{k % 4}" for k in range(N)],
        **{"choose_one:confidence": RNG.random(N).round(4)},
    )
    for trusted in (False, True):
        label = pd.DataFrame({"_unit_id": IDS[:TRUSTED], "label": TRUTH[:TRUSTED]})
        folder = tmp_path / str(trusted)
        folder.mkdir()
        paths = write(folder, crowd=frame, **({"gold": label} if trusted else {}))
        plan = detect(paths)
        used = {name: role for name, role in roles(plan).items() if role != "ignored"}
        assert used == {"_unit_id": "id", "text": "text", "choose_one": "source", "keyword": "shown"}
        assert told(plan, "crowd-columns") is not None
        meant = detect(paths, Given(truth="choose_one_gold", used=("_unit_state",)))
        assert (roles(meant)["choose_one_gold"], roles(meant)["_unit_state"]) == ("label", "shown")


def test_a_column_that_tells_the_label_is_hidden_until_it_is_asked_for(tmp_path: Path) -> None:
    frame = tweets(range(N)).assign(
        reason=["" if label == "good" else ("late", "rude")[k % 2] for k, label in enumerate(TRUTH)],
        score=[k % 2 + RNG.random() / 2 for k in range(N)],
        airline=[("a", "b", "c")[k % 3] for k in range(N)],
    )
    paths = write(tmp_path, tweets=frame, gold=pd.DataFrame({"id": IDS[:40], "label": TRUTH[:40]}))
    plan = detect(paths)
    raw = join(plan)
    assert set(raw.content) == {"text", "airline"}
    assert set(raw.train.frame.columns) == {"id", "text", "airline"}
    assert raw.hidden == ("reason", "score")
    shown = preview(plan, raw).plan.of(FileRole.ITEMS)[0]
    assert shown.columns["reason"] is ColumnRole.IGNORED
    finding = told(raw, "tells-label")
    assert finding is not None
    assert "--use reason" in finding.message
    still = told(raw, "columns-shown")
    assert still is not None
    assert "'airline' are shown" in still.message
    assert "reason" not in still.message
    kept = join(detect(paths, Given(used=("reason",))))
    assert kept.content["reason"] is ColumnRole.SHOWN
    assert told(kept, "tells-label") is not None


def test_rules_for_a_class_without_a_trusted_row_vote(tmp_path: Path) -> None:
    votes = pd.DataFrame({"id": IDS})
    for j, label in enumerate(("good", "bad", "unsure")):
        votes[f"r{j}"] = [label if k % 3 == j else "" for k in range(N)]
    paths = write(tmp_path, tweets=tweets(range(N)), votes=votes.assign(topic="flights"), gold=gold()[["id", "label"]])
    plan = detect(paths)
    assert [n for n, role in roles(plan, FileRole.VOTES).items() if role == "source"] == ["r0", "r1", "r2"]
    finding = told(plan, "no-votes-in-columns")
    assert finding is not None
    assert "'topic' hold none of the classes" in finding.message
    assert "unsure" in join(plan).classes
    named = detect(paths, Given(classes=("bad", "good")))
    assert roles(named, FileRole.VOTES)["r2"] == "ignored"
    said = told(named, "no-votes-in-columns")
    assert said is not None
    assert said.examples == ("r2", "topic")


def test_columns_of_noise_never_tell_the_label() -> None:
    rng = np.random.default_rng(3)
    labels = rng.choice(["a", "b"], 40).tolist()
    for kind in (rng.normal(size=(200, 40)), rng.integers(0, 4, (200, 40))):
        assert all(rows_told([str(value) for value in column], labels) is None for column in kind.tolist())
    assert rows_told(["x"] * 39 + ["y"], ["a"] * 39 + ["b"]) is None, "one class is nearly all there is"


def faces(folder: Path) -> tuple[Path, pd.DataFrame, pd.DataFrame]:
    """A folder of images, what workers say of them, and some right labels."""
    images = folder / "images"
    images.mkdir()
    names = [f"face{k:02d}.png" for k in range(40)]
    for k, name in enumerate(names):
        Image.new("RGB", (6, 6), (6 * k, 0, 0)).save(images / name)
    cast = [
        (100 + (k + j) % 6, name, ("anger", "joy")[(k + (j == 2)) % 2])
        for k, name in enumerate(names)
        for j in range(3)
    ]
    right = pd.DataFrame({"image": names[:12], "emotion": [("ANGER", "JOY")[k % 2] for k in range(12)]})
    return images, pd.DataFrame(cast, columns=["user.id", "image", "emotion"]), right


@pytest.mark.parametrize("way", ["a folder with all of it", "options", "--id", "--vote-columns"])
def test_the_id_column_of_a_table_of_workers_is_the_one_that_names_the_items(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    images, workers, right = faces(folder)
    votes, trusted = write(folder, workers=workers, gold=right)
    said: dict[str, Any] = {"votes": (votes,), "trusted": (trusted,), "fold_case": True}
    if way == "a folder with all of it":
        plan = detect([folder], Given(fold_case=True))
    elif way == "--id":
        table = write(tmp_path, faces=pd.DataFrame({"image": sorted(set(workers["image"])), "room": "12"}))
        plan = detect(table, Given(id="image", media=(images,), **said))
    else:
        named = {ColumnRole.ID: "image", ColumnRole.VOTER: "user.id", ColumnRole.VOTE: "emotion"}
        plan = detect([images], Given(vote_columns=named if way == "--vote-columns" else {}, **said))
    assert roles(plan, FileRole.VOTES) == {"user.id": "voter", "image": "id", "emotion": "vote"}
    raw = join(plan)
    assert (len(raw.train), len(raw.trusted)) == (28, 12)
    assert raw.classes == ("ANGER", "JOY"), "the spelling of the trusted labels"
    assert set(raw.votes["source"]) == {str(100 + j) for j in range(6)}
    assert len(raw.votes) == 3 * 40
    assert told(raw, "similar-classes") is None


@pytest.mark.parametrize("count", [12, 40])
def test_labels_of_some_images_of_a_folder_leave_the_others_to_label(tmp_path: Path, count: int) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    _images, workers, _right = faces(folder)
    names = sorted(set(workers["image"]))
    said = pd.DataFrame({"image": names[:count], "mood": [("anger", "joy")[k % 2] for k in range(count)]})
    write(folder, workers=workers, moods=said)
    plan = detect([folder])
    assert roles(plan, FileRole.VOTES)["user.id"] == "voter", "the table of workers is no list of samples"
    raw = join(plan)
    assert (len(raw.train), len(raw.trusted)) == ((28, 12) if count == 12 else (40, 0))
    assert set(raw.train.ids) | set(raw.trusted.ids) == set(names)


def test_remedies_can_be_typed_as_they_are_printed(tmp_path: Path) -> None:
    frame = churn(60).assign(**{"Date Egg": "2007", "Region": "Anvers", "target": ["Yes", "No", ""] * 20})
    paths = write(tmp_path, birds=frame)
    finding = told(join(detect(paths, Given(truth="target"))), "constant-columns")
    assert finding is not None
    option, value = shlex.split(finding.message.rpartition(": ")[2])
    assert option == "--ignore"
    plan = detect(paths, Given(truth="target", ignored=(value,)))
    assert {name for name, role in roles(plan).items() if role == "ignored"} == {"Date Egg", "Region"}
    for given in (Given(ignored=("Regin",)), Given(shown=("Region,Date",))):
        with pytest.raises(InvalidInputError, match="no file has a column of this name"):
            detect(paths, given)
    comma = write(tmp_path, comma=frame.rename(columns={"Region": "Region, Date Egg"}))
    named = roles(detect(comma, Given(truth="target", columns=("Region, Date Egg",), ignored=("Date Egg",))))
    assert (named["Region, Date Egg"], named["Date Egg"]) == ("feature", "ignored")


@pytest.mark.parametrize("commas", [0, 1, 3], ids=["none", "one each", "here and there"])
def test_a_file_with_a_text_a_line_is_a_way_in(tmp_path: Path, commas: int) -> None:
    texts = [text.replace(" ", ", ", (k % 3 if commas == 3 else commas)) for k, text in enumerate(TEXTS)]
    path = tmp_path / "tweets.txt"
    path.write_text("\n".join([texts[0], "", *texts[1:]]) + "\n")
    raw = join(detect([path], Given(classes=("bad", "good"))))
    if commas == 1:  # as a table of two columns has; the first text is taken for the names, and that is said
        assert (finding := told(raw, "first-line")) is not None
        assert finding.severity is Severity.WARNING
        return
    assert raw.train.frame["text"].tolist() == texts
    assert told(raw, "first-line") is None
    path.write_text("id,tweet\n1,late, again\n2,fine\n")
    with pytest.raises(InvalidInputError, match="line 2 has 3 fields"):
        detect([path])
    path.write_text("tweet\n" + "\n".join(texts))
    assert join(detect([path], Given(classes=("bad", "good")))).train.frame["tweet"].tolist() == texts


def test_numbers_of_votes_for_each_class_become_votes(tmp_path: Path) -> None:
    counts = [((3, 0, 0), (1, 2, 0), (0, 1, 5), (0, 3, 0))[k % 4] for k in range(N)]
    columns = {name: [row[c] for row in counts] for c, name in enumerate(("hate", "rude", "none"))}
    frame = tweets(range(N)).assign(
        count=[sum(row) for row in counts], **columns, kind=[int(np.argmax(row)) for row in counts]
    )
    label = pd.DataFrame(
        {"id": IDS[:40], "label": [("hate", "rude", "none")[int(np.argmax(counts[k]))] for k in range(40)]}
    )
    paths = write(tmp_path, tweets=frame, gold=label)
    raw = join(detect(paths))
    assert set(raw.content) == {"text"}
    said = raw.votes.groupby("item")["label"].value_counts().to_dict()
    assert said == {(IDS[k], name): row[c] for k, row in enumerate(counts) for c, name in enumerate(columns) if row[c]}
    assert not {one.code for one in raw.findings if one.severity is Severity.ERROR}
    again = join(detect([*write(tmp_path, tweets=frame.sample(frac=1, random_state=0)), paths[1]]))
    pd.testing.assert_frame_equal(again.votes, raw.votes)


def test_trusted_numbers_stand_for_classes_in_the_order_that_was_named(tmp_path: Path) -> None:
    numbered = gold().assign(label=[str(int(label == "good")) for label in TRUTH[:TRUSTED]])
    votes = pd.DataFrame({"id": IDS, "rule": SAID})
    paths = write(tmp_path, tweets=tweets(), gold=numbered, votes=votes)
    assert told(join(detect(paths)), "class-numbers") is not None
    named = join(detect(paths, Given(classes=("bad", "good"))))
    assert list(named.trusted.labels) == TRUTH[:TRUSTED]


def test_rows_can_be_called_by_their_numbers_where_no_column_is_an_id(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"Individual ID": [f"N{k % 50}" for k in range(N)], "text": TEXTS, "gold": TRUTH[:40] + [""] * 40}
    )
    paths = write(tmp_path, birds=frame)
    wrong = told(join(detect(paths)), "duplicate-ids")
    assert wrong is not None
    assert "--id-from-rows" in wrong.message
    raw = join(detect(paths, Given(rows_are_ids=True)))
    assert (len(raw.train), len(raw.trusted)) == (40, 40)
    assert raw.trusted.ids == [str(k) for k in range(40)]


def test_predictions_keep_the_ids_of_the_campaign_and_columns_of_the_file(tmp_path: Path) -> None:
    frame = tweets().rename(columns={"id": "tweet_no"})
    raw = join(detect(write(tmp_path, tweets=frame, gold=gold().rename(columns={"id": "tweet_no"}))))
    made = assemble(raw, Settings(), ["tfidf"])
    weights = np.zeros((made.data.X.shape[1], 2))
    model = EncodedClassifier(made.encoder, LinearClassifier(weights, np.zeros(2), ["bad", "good"])).save(
        tmp_path / "model.npz"
    )
    (new,) = write(tmp_path, new=frame.assign(label="?", place=[f"p{k}" for k in range(len(frame))]))
    found = pd.read_csv(predict(model, new, tmp_path / "out.csv", keep=["place", "label"]).path)
    said = ["label", "probability", "most_probable", "note", "p: bad", "p: good"]
    assert found.columns.tolist() == ["id", "place", "label (input)", *said]
    assert found["id"].tolist() == frame["tweet_no"].tolist()
    assert found["place"].tolist() == [f"p{k}" for k in range(len(frame))]
    with pytest.raises(InvalidInputError, match=r"--keep plce: .*it has .*'place'"):
        predict(model, new, tmp_path / "out.csv", keep=["plce"])


def test_numbers_are_read_as_they_were_from_a_series() -> None:
    cells: list[Any] = ["1", "2.50", " 3 ", "", "n/a", float("nan"), "-4e2", "inf"]
    found = numbers_of(cells)
    assert found[[0, 1, 2, 6]].tolist() == [1.0, 2.5, 3.0, -400.0]
    assert np.isnan(found[[3, 4, 5, 7]]).all()
    assert np.isnan(numbers_of(["1", "two"])).all()


def labelchef(*arguments: object, check: int = 0) -> str:
    done = commands().run(*arguments)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == check, done.stderr + done.stdout
    return done.stdout + done.stderr


@pytest.mark.parametrize("scale", [1e160, 1e-160])
def test_arrays_that_cannot_be_squared_are_refused_before_a_campaign_is_made(tmp_path: Path, scale: float) -> None:
    np.save(tmp_path / "features.npy", RNG.normal(size=(50, 3)) * scale)
    begun = ("init", "t", "--features", tmp_path / "features.npy", "--classes", "a,b", "--home", tmp_path / "home")
    assert "to be squared; expected a scale near 1" in labelchef(*begun, check=2)
    assert not (tmp_path / "home").exists()


def test_classes_may_be_those_that_an_llm_names(tmp_path: Path) -> None:
    paths = [*write(tmp_path, tweets=tweets()), llm(tmp_path, range(TRUSTED, N))]
    found = look(paths)
    assert found.preview.usable
    assert found.preview.classes == ("bad", "good")
    assert found.preview.sources == ("llm",)
    cased = look(paths, Given(classes=("Good", "Bad"))).preview
    assert not cased.usable
    assert "--fold-case" in next(one.message for one in cased.findings if one.code == "vote_class")
    assert look(paths, Given(classes=("Good", "Bad"), fold_case=True)).preview.usable


def test_votes_that_differ_from_the_classes_in_case_only_are_not_left_out_in_silence(tmp_path: Path) -> None:
    votes = pd.DataFrame({"id": IDS[TRUSTED:], "rule": [label.upper() for label in SAID[TRUSTED:]]})
    paths = write(tmp_path, tweets=tweets(), votes=votes)
    finding = told(join(detect(paths, Given(classes=("bad", "good")))), "unknown-class")
    assert finding is not None
    assert (finding.severity, "--fold-case" in finding.message) == (Severity.ERROR, True)
    raw = join(detect(paths, Given(classes=("bad", "good"), fold_case=True)))
    assert set(raw.votes["label"]) == {"bad", "good"}
    other = join(detect(paths, Given(classes=("x", "y"))))
    assert told(other, "unknown-class") is None or "--fold-case" not in str(told(other, "unknown-class"))


def test_from_votes_on_the_rows_to_label_only_to_predictions_on_the_command_line(tmp_path: Path) -> None:
    frame = tweets().rename(columns={"id": "tweet_no"})
    shades = {f"shade{k}": [str(row % 7) for row in range(len(frame))] for k in range(12)}
    frame = pd.DataFrame({"tweet_no": frame["tweet_no"], **shades, "text": frame["text"]})
    votes = pd.DataFrame({"rater_no": "9", "post": frame["tweet_no"], "verdict": SAID[TRUSTED:]})
    right = gold().rename(columns={"id": "tweet_no"})
    paths = write(tmp_path, tweets=frame, votes=votes, gold=right)
    home = ("--home", tmp_path / "home")
    begun = ("init", "t", paths[0], "--votes", paths[1], "--trusted", paths[2], "--encoder", "tfidf", *home)
    wrong = labelchef(*begun, "--vote-columns", "item=post,who=rater_no", check=2)
    assert "expected item=COLUMN,source=COLUMN,label=COLUMN" in wrong
    made = labelchef(*begun, "--vote-columns", "item=post,source=rater_no,label=verdict")
    assert all(f"shade{k}" in made for k in range(12)), "the preview shows every column"
    assert re.search(r"^id +split +text +shade0", made, re.MULTILINE), "and of each row first what is learned from"
    assert "campaign: t, 50 items" in made
    labelchef("export", "t", "--what", "model", "--out", tmp_path / "model.npz", *home)
    labelchef("predict", tmp_path / "model.npz", paths[0], "--out", tmp_path / "said.csv", "--keep", "shade3,shade4")
    found = pd.read_csv(tmp_path / "said.csv", dtype=str)
    assert found["id"].tolist() == frame["tweet_no"].tolist()
    assert found["shade3"].tolist() == frame["shade3"].tolist()
    chances = found[["p: bad", "p: good"]].astype(float)
    assert np.allclose(chances.sum(axis=1), 1, atol=1e-5)
