"""The command line as a user types it."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from labelchef import load_model
from labelchef.believe import SourceVotes
from tests.commands import commands, fresh


def labelchef(
    *arguments: object, check: int | None = 0, anew: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; `anew` by an interpreter of its own, with other hashes of texts."""
    done = (fresh if anew else commands().run)(*arguments, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    if check is not None:
        assert done.returncode == check, done.stderr + done.stdout
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = (rng.normal(size=(400, 5)) + y[:, None]).astype(np.float32)
    names = np.array(["ham", "spam"])
    weak = rng.dirichlet(np.ones(2), 250)
    np.save(folder / "train.npy", X[:250])
    pd.DataFrame(weak, columns=names).to_parquet(folder / "weak.parquet")
    np.save(folder / "val.npy", X[250:320])
    pd.DataFrame({"label": names[y[250:320]]}).to_csv(folder / "val.csv", index=False)
    np.save(folder / "test.npy", X[320:])
    np.save(folder / "test_y.npy", names[y[320:]])
    pd.DataFrame({"label": names[y[:250]]}).to_csv(folder / "truth.csv", index=False)
    crowd = [(i, f"w{w}", names[y[i]]) for i in range(0, 250, 2) for w in range(4)]
    pd.DataFrame(crowd, columns=["item", "annotator", "label"]).to_csv(folder / "votes.csv", index=False)
    return folder


def inputs(files: Path, out: Path) -> list[str | Path]:
    given = {
        "features": "train.npy",
        "weak": "weak.parquet",
        "val-features": "val.npy",
        "val-labels": "val.csv",
    }
    return [part for key, name in given.items() for part in (f"--{key}", files / name)] + ["--out", out]


def with_test(files: Path) -> list[object]:
    return ["--test-features", files / "test.npy", "--test-labels", files / "test_y.npy"]


def test_features_at_a_url_and_in_lists(files: Path, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("fsspec")
    X = np.load(files / "train.npy")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    pq.write_table(pa.table({"x": lists}), tmp_path / "x.parquet")
    made = {}
    for name, place in {
        "path": files / "train.npy",
        "url": (files / "train.npy").as_uri(),
        "lists": tmp_path / "x.parquet",
    }.items():
        given = [*inputs(files, tmp_path / name), "--features", place, "--truth", files / "truth.csv", "--budget", 10]
        labelchef("clean", *given)
        made[name] = (tmp_path / name / "cleaned_labels.csv").read_text()
    assert made["url"] == made["path"]
    assert made["lists"] == made["path"]


def test_a_whole_campaign_from_files(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    done = labelchef("clean", *inputs(files, out), *with_test(files), "--truth", files / "truth.csv", "--budget", 30)
    assert "test f1_macro before → after" in done.stdout
    assert "budget spent: 30 of 30" in done.stdout
    labels = pd.read_csv(out / "cleaned_labels.csv")
    assert labels["source"].value_counts().to_dict() == {"weak": 220, "cleaned": 30}
    assert set(labels["label"]) == {"ham", "spam"}
    np.testing.assert_allclose(labels[["p_ham", "p_spam"]].sum(axis=1), 1.0)
    model = load_model(out / "model.npz")
    assert model.coef.shape == (5, 2)
    assert model.classes_.tolist() == ["ham", "spam"]
    with np.load(out / "model.npz", allow_pickle=False) as archive:
        assert json.loads(str(archive["meta"]))["settings"]["budget"] == 30
    history = pd.read_csv(out / "history.csv")
    assert history["spent"].tolist() == [0, 10, 20, 30]
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 3
    summary = json.loads((out / "summary.json").read_text())
    assert summary["stopped_because"] == "budget spent"
    assert summary["after"]["test"]["accuracy"] == pytest.approx(history["test_accuracy"].iloc[-1])
    X, y = np.load(files / "test.npy"), np.load(files / "test_y.npy", allow_pickle=False)
    assert model.score(X, y) == pytest.approx(summary["after"]["test"]["accuracy"])
    assert not (out / "model.onnx").exists()
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 6
    assert "Agreement with the true label" in page
    for outside in ("http://", "https://", "<script", "<link"):
        assert outside not in page.replace("http://www.w3.org/", "")


def test_recorded_votes_and_suggestions_alone(files: Path, tmp_path: Path) -> None:
    labelchef("clean", *inputs(files, tmp_path / "a"), "--votes", files / "votes.csv", "--budget", 20)
    rounds = [json.loads(line) for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()]
    assert "Infinity" not in (tmp_path / "a" / "rounds.jsonl").read_text()
    for line in rounds:
        per_item = pd.Series([v[0] for v in line["votes"]]).value_counts()
        assert (per_item == 3).all()  # strategy one takes three of the four recorded people
        undecided = [i for i, d in zip(line["items"], line["decided"], strict=True) if d == -1]
        assert all(i % 2 for i in undecided)  # odd items have no votes
    labelchef("clean", *inputs(files, tmp_path / "b"), "--budget", 20, "--no-report")
    assert json.loads((tmp_path / "b" / "summary.json").read_text())["settings"]["people"] == 0
    assert not (tmp_path / "b" / "report.html").exists()
    labelchef(
        "clean",
        *inputs(files, tmp_path / "c"),
        "--truth",
        files / "truth.csv",
        "--strategy",
        "three",
        "--no-report",
    )
    line = json.loads((tmp_path / "c" / "rounds.jsonl").read_text().splitlines()[0])
    assert {v[1] for v in line["votes"]} == {"suggestion", "person 1", "person 2"}


def test_a_campaign_on_votes_of_sources(files: Path, tmp_path: Path) -> None:
    """Votes in place of weak labels, and beside them; other votes are another campaign."""
    rng = np.random.default_rng(1)
    truth = pd.read_csv(files / "truth.csv")["label"].to_numpy()
    right = rng.random((250, 3)) < [0.9, 0.7, 0.6]
    other = np.where(truth == "ham", "spam", "ham")
    votes = pd.DataFrame(np.where(right, truth[:, None], other[:, None]), columns=["rule", "llm", "worker 7"])
    votes[rng.random((250, 3)) < 0.2] = None
    votes.to_csv(tmp_path / "votes.csv", index=False)
    val = pd.read_csv(files / "val.csv")["label"]
    pd.DataFrame({"item": range(70), "source": "llm", "label": val}).to_json(
        tmp_path / "val_votes.jsonl", orient="records", lines=True
    )
    given = inputs(files, tmp_path / "a")
    without = [*given[:2], *given[4:]]
    own = ["--source-votes", tmp_path / "votes.csv", "--budget", 10, "--no-report"]
    of_val = ["--val-source-votes", tmp_path / "val_votes.jsonl"]
    labelchef("clean", *without, *own, *of_val)
    labels = pd.read_csv(tmp_path / "a" / "cleaned_labels.csv")
    shares = SourceVotes.hard(votes.replace({"ham": 0, "spam": 1}).fillna(-1).to_numpy(np.int64), 2).shares()
    weak = (labels["source"] == "weak").to_numpy()
    np.testing.assert_allclose(labels.loc[weak, ["p_ham", "p_spam"]], shares[weak])
    labelchef("clean", *without, *own, *of_val, "--budget", 20, "--resume")
    fewer = labelchef("clean", *without, *own, "--resume", check=2)
    assert "other data" in fewer.stderr
    votes.iloc[::-1].to_csv(tmp_path / "votes.csv", index=False)
    assert "other data" in labelchef("clean", *without, *own, *of_val, "--resume", check=2).stderr
    both = labelchef("clean", *inputs(files, tmp_path / "b"), *own)
    assert "10" in both.stdout
    named = labelchef("clean", *without[:-1], tmp_path / "c", "--budget", 20, "--no-report")
    assert "20" in named.stdout
    assert (tmp_path / "c" / "model.npz").is_file()
    pd.DataFrame({"idle": [""] * 250, "rule": votes["rule"]}).to_csv(tmp_path / "votes.csv", index=False)
    idle = labelchef("clean", *without[:-1], tmp_path / "d", *own)
    assert "warning votes: 'idle' (1 of 2 sources) votes on no sample" in idle.stderr


def test_a_target_and_given_labels(files: Path, tmp_path: Path) -> None:
    known = pd.read_csv(files / "truth.csv").astype(object)
    known.loc[50:, "label"] = -1
    known.to_csv(tmp_path / "known.csv", index=False)
    options = [
        "--clean-labels",
        tmp_path / "known.csv",
        "--target",
        0.3,
        "--target-metric",
        "accuracy",
        "--no-report",
    ]
    done = labelchef("clean", *inputs(files, tmp_path / "out"), *options)
    assert "target reached: accuracy ≥ 0.3" in done.stdout
    assert (pd.read_csv(tmp_path / "out" / "cleaned_labels.csv")["source"] == "given").sum() == 50


def test_a_campaign_goes_on_where_it_stood(files: Path, tmp_path: Path) -> None:
    """Without look-ahead, whose steps depend on what solvers learned on the way, the choices are the same."""
    people = ["--truth", files / "truth.csv", "--no-report"]
    labelchef("clean", *inputs(files, tmp_path / "whole"), *people, "--budget", 50)
    labelchef("clean", *inputs(files, tmp_path / "parts"), *people, "--budget", 20)
    refused = labelchef("clean", *inputs(files, tmp_path / "parts"), *people, "--budget", 50, check=2)
    assert "--resume" in refused.stderr
    labelchef("clean", *inputs(files, tmp_path / "parts"), *people, "--budget", 50, "--resume", anew=True)
    whole, parts = (
        [json.loads(line) for line in (tmp_path / name / "rounds.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    )
    assert [(w["items"], w["decided"]) for w in whole] == [(p["items"], p["decided"]) for p in parts]
    ours, theirs = (pd.read_csv(tmp_path / name / "history.csv") for name in ("whole", "parts"))
    np.testing.assert_allclose(ours["val_loss"], theirs["val_loss"], rtol=1e-4)  # to the tolerance of the models
    assert ours["agreed_with_suggestion"].tolist() == theirs["agreed_with_suggestion"].tolist()
    assert (theirs["seconds_annotate"].iloc[1:] > 0).all()
    (tmp_path / "parts" / "campaign.json").rename(tmp_path / "kept.json")
    (tmp_path / "parts" / "campaign.json").write_text("{")
    corrupt = labelchef("clean", *inputs(files, tmp_path / "parts"), *people, "--resume", check=2)
    assert "other data" in corrupt.stderr
    (tmp_path / "kept.json").rename(tmp_path / "parts" / "campaign.json")
    swapped = [
        files / "test.npy" if str(part).endswith("val.npy") else part for part in inputs(files, tmp_path / "parts")
    ]
    swapped = [files / "test_y.npy" if str(part).endswith("val.csv") else part for part in swapped]
    elsewhere = labelchef("clean", *swapped, *people, "--resume", check=2)
    assert "other data" in elsewhere.stderr
    other = labelchef("clean", *inputs(files, tmp_path / "parts"), *people, "--gamma", 0.5, "--resume", check=2)
    assert "other data or with other settings" in other.stderr
    before = (tmp_path / "parts" / "rounds.jsonl").read_text()
    (tmp_path / "parts" / "rounds.jsonl").write_text("rubbish\n" + before)
    damaged = labelchef("clean", *inputs(files, tmp_path / "parts"), *people, "--budget", 60, "--resume", check=2)
    assert "line 1" in damaged.stderr
    assert (tmp_path / "parts" / "rounds.jsonl").read_text() == "rubbish\n" + before


def test_a_campaign_with_look_ahead_goes_on(files: Path, tmp_path: Path) -> None:
    people = ["--truth", files / "truth.csv", "--no-report"]
    labelchef("clean", *inputs(files, tmp_path / "whole"), *people, "--budget", 50)
    labelchef("clean", *inputs(files, tmp_path / "parts"), *people, "--budget", 20)
    labelchef("clean", *inputs(files, tmp_path / "parts"), *people, "--budget", 50, "--resume", anew=True)
    ours, theirs = (pd.read_csv(tmp_path / name / "history.csv") for name in ("whole", "parts"))
    assert theirs["spent"].tolist() == ours["spent"].tolist()
    np.testing.assert_allclose(ours["val_loss"].iloc[:3], theirs["val_loss"].iloc[:3], rtol=1e-9)
    np.testing.assert_allclose(ours["val_loss"], theirs["val_loss"], rtol=0.05)
    lines = [json.loads(line)["items"] for line in (tmp_path / "parts" / "rounds.jsonl").read_text().splitlines()]
    assert len({item for items in lines for item in items}) == 50


def test_interrupting_keeps_the_rounds_done(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--truth", files / "truth.csv", "--budget", 250, "--batch-size", 1, "--no-report"]
    command = [sys.executable, "-m", "labelchef", "clean", *map(str, [*inputs(files, out), *options])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ledger = out / "rounds.jsonl"
    deadline = time.monotonic() + 120
    while (not ledger.exists() or ledger.stat().st_size == 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert "Traceback" not in stderr
    assert process.returncode == 130, stdout + stderr
    done = len(ledger.read_text().splitlines())
    assert done >= 1
    assert (pd.read_csv(out / "cleaned_labels.csv")["source"] == "cleaned").sum() == done
    assert "--resume" in stdout
    labelchef("clean", *inputs(files, out), *options, "--budget", done + 3, "--resume")
    assert len(ledger.read_text().splitlines()) == done + 3


BAD: dict[str, tuple[list[object], str]] = {
    "missing file": (["--features", "nowhere.npy"], "there is no file nowhere.npy"),
    "corrupt file": (["--features", "CORRUPT"], "cannot be read: its header"),
    "wrong ending": (["--features", "x.doc"], "expected one of"),
    "budget": (["--budget", -1], "budget is -1"),
    "batch size": (["--batch-size", -1], "batch_size is -1"),
    "gamma": (["--gamma", 2], "gamma is '2'"),
    "l2": (["--l2", 0], "l2 is '0'"),
    "selector": (["--selector", "magic"], "unknown selector"),
    "strategy": (["--strategy", "seven"], "unknown strategy"),
    "no people": (["--strategy", "one"], "needs people"),
    "metric": (["--target", 0.5, "--target-metric", "auc"], "target_metric is 'auc'; expected one of: accuracy,"),
    "error rate": (["--error-rate", 3, "--truth", "TRUTH", "--strategy", "one"], "between 0 and 1"),
    "half a test": (["--test-features", "TEST"], "belong together"),
    "unknown class": (["--val-labels", "ODD"], "expected one of the classes 'ham', 'spam'"),
    "short truth": (["--truth", "ODD2"], "one for each row of X"),
    "not a number": (["--budget", "many"], "unable to parse string as an integer"),
    "unknown option": (["--colour", "red"], "colour"),
    "folder is a file": (["--out", "FILE"], "cannot be written"),
    "folder without rights": (["--out", "/proc/self"], "cannot be written"),
    "seed": (["--seed", -1], "seed is -1"),
    "nothing to resume": (["--resume"], "no campaign to go on with"),
    "metric without target": (["--target-metric", "auc"], "target_metric is 'auc'; expected one of: accuracy,"),
    "constructor": (["--constructor", "magic"], "constructor is 'magic'; expected one of: newton, retrain, deltagrad_l"),
    "votes beyond": (["--votes", "FAR", "--strategy", "one"], "votes on item 999"),
    "votes of sources beyond": (["--source-votes", "FAR"], "there is no sample '999', which has a vote"),
    "short votes of sources": (["--source-votes", "SHORT"], "votes has 1 rows; expected 250"),
    "votes of sources on validation alone": (["--val-source-votes", "SHORT"], "votes_val was given without votes"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_input_ends_with_two_and_a_sentence(files: Path, tmp_path: Path, what: str) -> None:
    (tmp_path / "corrupt.npy").write_bytes(b"rubbish")
    (tmp_path / "file").write_text("")
    (tmp_path / "odd.csv").write_text("label\n" + "eggs\n" * 70)
    (tmp_path / "odd2.csv").write_text("label\nham\n")
    (tmp_path / "far.csv").write_text("item,annotator,label\n999,a,ham\n")
    (tmp_path / "short.csv").write_text("rule,llm\nham,spam\n")
    places = {
        "SHORT": tmp_path / "short.csv",
        "CORRUPT": tmp_path / "corrupt.npy", "TRUTH": files / "truth.csv", "TEST": files / "test.npy",
        "ODD": tmp_path / "odd.csv", "ODD2": tmp_path / "odd2.csv", "FILE": tmp_path / "file", "FAR": tmp_path / "far.csv",
    }  # fmt: skip
    options, message = BAD[what]
    filled = [places.get(str(option), option) for option in options]
    done = labelchef("clean", *inputs(files, tmp_path / "out"), *filled, "--no-report", check=2)
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert not list(tmp_path.glob("out/cleaned*"))


def test_a_campaign_with_deltagrad_goes_on(files: Path, tmp_path: Path) -> None:
    options = ["--constructor", "deltagrad_l", "--truth", files / "truth.csv"]
    labelchef("clean", *inputs(files, tmp_path / "whole"), *options, "--budget", 40)
    labelchef("clean", *inputs(files, tmp_path / "parts"), *options, "--budget", 20, "--no-report")
    labelchef("clean", *inputs(files, tmp_path / "parts"), *options, "--budget", 40, "--no-report", "--resume")
    whole, parts = (pd.read_csv(tmp_path / name / "history.csv") for name in ("whole", "parts"))
    steady = [column for column in whole.columns if "seconds" not in column and "sweeps" not in column]
    pd.testing.assert_frame_equal(whole.loc[1:2, steady], parts.loc[1:2, steady])  # rounds from the ledger
    np.testing.assert_allclose(whole["val_loss"], parts["val_loss"], rtol=0.05)  # then a trajectory of its own
    assert (whole["explicit_steps"] > 0).all()
    assert "Distance of the model to the optimum" in (tmp_path / "whole" / "report.html").read_text()


def test_holdout_is_part_of_what_a_campaign_is(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "half"
    people = ["--truth", files / "truth.csv", "--no-report"]
    first = labelchef("clean", *inputs(files, out), *people, "--budget", 20, "--holdout", 0.5)
    assert "too small to judge: 35 validation samples" in " ".join(first.stderr.split())
    assert "35 samples held out; gain too small to judge (35 samples): " in " ".join(first.stdout.split())
    gain = json.loads((out / "summary.json").read_text())["gain"]["validation"]
    history = pd.read_csv(out / "history.csv")
    assert gain["doubt"] == "35 samples"
    assert gain["after"] - gain["before"] == pytest.approx(
        history["val_f1_macro"].iloc[-1] - history["val_f1_macro"].iloc[0]
    )
    assert (history["val_loss"] != history["steer_loss"]).all()
    other = labelchef("clean", *inputs(files, out), *people, "--budget", 40, "--resume", check=2)
    assert "expected the same inputs, seed and settings" in " ".join(other.stderr.split())
    labelchef("clean", *inputs(files, out), *people, "--budget", 40, "--holdout", "0.50", "--resume")
    wrong = labelchef("clean", *inputs(files, tmp_path / "no"), *people, "--holdout", "most", check=2)
    assert "holdout is 'most'; expected 'auto'" in wrong.stderr


def test_a_warning_is_one_line(files: Path, tmp_path: Path) -> None:
    (tmp_path / "ham.csv").write_text("label\n" + "ham\n" * 70)
    done = labelchef("clean", *inputs(files, tmp_path / "out"), "--val-labels", tmp_path / "ham.csv", "--no-report")
    assert "warning y_val has no sample of 'spam'" in " ".join(done.stderr.split())
    assert ".py" not in done.stderr


def test_brackets_in_names_are_shown_as_they_are(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "u[/x]ni"
    done = labelchef("clean", *inputs(files, out), "--no-report", "--budget", 10)
    assert "u[/x]ni" in done.stdout
    code = (
        "import sys; sys.modules['altair'] = None; sys.argv[1:] = ['demo', '--out', 'x']; "
        "from labelchef.cli.main import run; run()"
    )
    missing = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stdout == ""
    assert "pip install 'labelchef[report]'" in missing.stderr


def test_the_model_as_onnx(files: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    out = tmp_path / "out"
    labelchef("clean", *inputs(files, out), "--no-report", "--budget", 10, "--onnx")
    X = np.load(files / "test.npy").astype(np.float32)
    session = runtime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    label, probabilities = session.run(["label", "probabilities"], {"X": X})
    model = load_model(out / "model.npz")
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-6)
    assert label.tolist() == model.predict(X).tolist()
    code = (
        "import sys; sys.modules['onnx'] = None; "
        f"sys.argv[1:] = {[str(part) for part in inputs(files, tmp_path / 'none')]!r}; sys.argv[1:1] = ['clean', '--onnx']; "
        "from labelchef.cli.main import run; run()"
    )
    missing = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert missing.returncode == 2
    assert "pip install 'labelchef[onnx]'" in missing.stderr
    assert not (tmp_path / "none").exists()


def test_help_and_version() -> None:
    assert "clean" in labelchef("--help").stdout
    assert "--val-features" in labelchef("clean", "--help", COLUMNS="200").stdout
    assert labelchef("--version", anew=True).stdout.startswith("labelchef 0.")


def test_the_demo_cleans_real_labels(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = labelchef("demo", "--out", out)
    assert "labelchef clean --help" in done.stdout
    assert str(out / "report.html") in done.stdout
    history = pd.read_csv(out / "history.csv")
    ours, trusted = history["test_f1_macro"], history["test_trusted_only_f1_macro"]
    assert ours.iloc[0] > trusted.iloc[0]  # the rules help before anybody is asked
    assert ours.iloc[-1] > max(ours.iloc[0] + 0.02, trusted.iloc[-1] + 0.04)
    assert "test trusted only" in done.stdout
    again = labelchef("demo", "--out", out, "--no-report")
    assert "before → after" in again.stdout
    assert not (out / "report.html").exists()
    (out / "thesis.txt").write_text("mine")
    refused = labelchef("demo", "--out", out, check=2)
    assert "thesis.txt" in refused.stderr
    assert (out / "thesis.txt").read_text() == "mine"


def test_importing_is_light() -> None:
    heavy = "('numba', 'sklearn', 'pandas', 'altair')"
    code = f"import sys, labelchef, labelchef.cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_strengths_are_chosen_and_told(files: Path, tmp_path: Path) -> None:
    people = ["--truth", files / "truth.csv"]
    done = labelchef("clean", *inputs(files, tmp_path / "out"), *people, "--budget", 10, "--no-report")
    assert "in use: " in done.stdout
    options = [*people, "--budget", 10, "--no-report", "--use-trusted", "steer"]
    steered = labelchef("clean", *inputs(files, tmp_path / "steered"), *options)
    assert "strengths: gamma " in steered.stdout
    wrong = labelchef("clean", *inputs(files, tmp_path / "no"), "--gamma", "much", check=2)
    assert "gamma is 'much'; expected 'auto' or a number from 0 to 1" in wrong.stderr
    assert not (tmp_path / "no").exists()


def test_no_cell_of_the_tables_is_a_formula(files: Path, tmp_path: Path) -> None:
    """Class names come from files of others, and the table is opened in a spreadsheet."""
    own = shutil.copytree(files, tmp_path / "files")
    pd.read_parquet(own / "weak.parquet").rename(columns={"ham": "=1+1"}).to_parquet(own / "weak.parquet")
    (own / "val.csv").write_text((own / "val.csv").read_text().replace("ham", "=1+1"))
    labelchef("clean", *inputs(own, tmp_path / "out"), "--budget", 10, "--no-report")
    for table in (tmp_path / "out").glob("*.csv"):
        with table.open(newline="") as stream:
            assert not [cell for line in csv.reader(stream) for cell in line if cell.startswith(("=", "@"))], table
    assert "'=1+1" in (tmp_path / "out" / "cleaned_labels.csv").read_text()
