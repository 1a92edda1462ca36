"""Files of other tools: round trips through every format, real exports, refusals."""

import importlib
import json
import os
import re
import threading
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelchef.base.errors import InvalidInputError
from labelchef.data.dataset import LabelOrigin
from labelchef.data.exchange import argilla, cleanlab, crowd_kit, hugging_face, label_studio, prodigy, snorkel
from labelchef.data.exchange.cleanlab import quietly
from labelchef.data.exchange.formats import FORMATS, sniff
from labelchef.data.exchange.records import ALL, Prediction, Record, RecordSet, suggesting
from tests.exchange_support import carried, names, record_sets
from tests.profiles import examples

with warnings.catch_warnings():  # the library uses what pydantic has deprecated
    warnings.simplefilter("ignore")
    Converter: Any = importlib.import_module("label_studio_sdk.converter").Converter
    LabelInterface: Any = importlib.import_module("label_studio_sdk.label_interface").LabelInterface

REAL = Path(__file__).parent / "fixtures" / "label_studio"
ROUND_TRIP = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
xml_names = names.filter(lambda name: label_studio._NOT_XML.search(name) is None)
FILMS = RecordSet.of(
    [
        Record("007", {"review": "Good,\n“really”"}, "good", 0.75, LabelOrigin.MODEL, votes={"rule": "good"}, rank=2),
        Record("8", {"review": None}, "bad", 1.0, LabelOrigin.PEOPLE, answers={"ada": "bad", "ben": None}, rank=1),
        Record("9", {"review": "plain"}),
    ],
    ["bad", "good"],
    texts=["review"],
    title="Films",
    meanings={"bad": "People warn | of it"},
)


def check_round_trip(name: str, made: RecordSet, path: Path) -> RecordSet:
    written = FORMATS[name].write(made, path)
    assert sniff(written) == name
    back = FORMATS[name].read(written)
    assert carried(back, FORMATS[name].carries) == carried(made, FORMATS[name].carries)
    return back


@ROUND_TRIP
@given(made=record_sets(class_names=xml_names))
def test_label_studio_round_trip(made: RecordSet, tmp_path: Path) -> None:
    back = check_round_trip("label-studio", made, tmp_path / "tasks.json")
    assert (back.classes, back.texts, back.images) == (made.classes, made.texts, made.images)
    ranks = [one.rank for one in back.records if one.rank is not None]
    assert ranks == sorted(ranks), "in the order of rank"


@ROUND_TRIP
@given(made=record_sets(class_names=xml_names))
def test_label_studio_own_classes_take_what_we_write(made: RecordSet, tmp_path: Path) -> None:
    path = label_studio.write(made, tmp_path / "tasks.json")
    interface = LabelInterface(path.with_suffix(".xml").read_text())
    interface.validate()
    for task in json.loads(path.read_text()):
        assert interface.validate_task({"data": task["data"]})
        for prediction in task["predictions"]:
            assert interface.validate_prediction(prediction, return_errors=True) == []


@ROUND_TRIP
@given(made=record_sets())
def test_prodigy_round_trip(made: RecordSet, tmp_path: Path) -> None:
    back = check_round_trip("prodigy", made, tmp_path / "tasks.jsonl")
    assert (back.classes, back.texts, back.images) == (made.classes, made.texts, made.images)


@settings(ROUND_TRIP, max_examples=examples(0.25))
@given(made=record_sets(), parquet=st.booleans())
def test_datasets_round_trip(made: RecordSet, parquet: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("hf") / ("set.parquet" if parquet else "set")
    back = check_round_trip("datasets", made, path)
    assert (back.classes, back.texts, back.images, back.columns) == (
        made.classes,
        made.texts,
        made.images,
        made.columns,
    )


@settings(ROUND_TRIP, max_examples=examples(0.3))
@given(made=record_sets())
def test_argilla_round_trip(made: RecordSet, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("argilla") / "set"
    back = check_round_trip("argilla", made, path)
    others = [name for name in made.columns if name not in (*made.texts, *made.images)]
    assert (back.classes, back.texts, back.images) == (made.classes, (*made.texts, *others), made.images)


@settings(ROUND_TRIP, max_examples=examples(0.3))
@given(made=record_sets(full=True))
def test_cleanlab_round_trip(made: RecordSet, tmp_path: Path) -> None:
    if len({one.label for one in made.records}) > 1:
        assert check_round_trip("cleanlab", made, tmp_path / "issues.csv").classes == made.classes
    else:
        with pytest.raises(InvalidInputError, match="labels of two classes or more"):
            cleanlab.write(made, tmp_path / "issues.csv")


@ROUND_TRIP
@given(made=record_sets())
def test_crowd_kit_round_trip(made: RecordSet, tmp_path: Path) -> None:
    said = [replace(r, answers={who: label for who, label in r.answers.items() if label}) for r in made.records]
    answered = replace(made, records=tuple(one for one in said if one.answers))
    if answered.records:
        check_round_trip("crowd-kit", answered, tmp_path / "crowd.csv")
    else:
        with pytest.raises(InvalidInputError, match="no person has answered"):
            crowd_kit.write(made, tmp_path / "crowd.csv")


@ROUND_TRIP
@given(made=record_sets())
def test_snorkel_round_trip(made: RecordSet, tmp_path: Path) -> None:
    named = [*made.classes, *(one.id for one in made.records), *(who for one in made.records for who in one.votes)]
    if any(name.endswith("\0") for name in named):
        with pytest.raises(InvalidInputError, match=r"NUL|no source votes"):
            snorkel.write(made, tmp_path / "L.npz")
    elif any(one.votes for one in made.records):
        assert check_round_trip("snorkel", made, tmp_path / "L.npz").classes == made.classes
    else:
        with pytest.raises(InvalidInputError, match="no source votes"):
            snorkel.write(made, tmp_path / "L.npz")


class TestLabelStudio:
    def test_an_export_of_the_server_after_our_tasks_were_labelled_there(self) -> None:
        path = REAL / "ours.json"
        assert sniff(path) == "label-studio"
        found = {one.id: one for one in label_studio.read(path, people={"2": "ada", "3": "ben"}).records}
        assert list(found) == ["8", "007", "9 ü", "10"], "the server hands them out in our order"
        assert found["007"].answers == {"ada": "good", "ben": 'so & "so"'}
        assert found["8"].answers == {"ada@example.org": "bad", "zoe": None, "ada": "good"}
        assert found["10"].answers == {"ben": None}, "skipped"
        assert found["8"].content == {"review": None, "star rating": "1"}
        assert found["10"].content["star rating"] == "007"
        assert found["007"].predictions == (Prediction("labelchef", "good", 0.75),)
        assert found["007"].votes == {"rule: nice": "good", "llm": "bad"}

    def test_an_export_of_a_project_that_is_not_ours(self) -> None:
        found = label_studio.read(REAL / "foreign.json")
        by_id = {one.id: one for one in found.records}
        assert list(by_id) == ["00", "01", "02", "03"], "the tasks' own ids, zeros kept"
        assert by_id["00"].answers == {"user 2": "spam", "user 3": "ham"}
        assert (by_id["01"].label, by_id["01"].origin) == ("ham", LabelOrigin.TRUSTED)
        assert by_id["02"].answers == {"user 3": "spam"}
        assert by_id["03"].answers == {"user 2": None}
        assert "annotations with several classes, left out: 1" in found.notes
        assert found.classes == ("ham", "spam")

    def test_json_min(self) -> None:
        found = label_studio.read(REAL / "ours_min.json")
        assert {one.id: dict(one.answers) for one in found.records} == {
            "8": {"user 2": "good"},
            "007": {"user 2": "good", "user 3": 'so & "so"'},
            "9 ü": {},
        }
        foreign = label_studio.read(REAL / "foreign_min.json")
        assert [dict(one.answers) for one in foreign.records] == [
            {"user 2": "spam", "user 3": "ham"},
            {"user 2": "ham"},
            {"user 3": "spam"},
        ]
        assert "task numbers" in foreign.notes[0]

    def test_what_its_own_converter_makes_of_an_export(self, tmp_path: Path) -> None:
        config = label_studio.config_xml(label_studio.read(REAL / "ours.json"))
        Converter(config, str(tmp_path)).convert(
            str(REAL / "ours.json"), str(tmp_path / "out"), "JSON_MIN", is_dir=False
        )
        found = label_studio.read(tmp_path / "out" / "result.json")
        assert {one.id: dict(one.answers) for one in found.records} == {
            one.id: dict(one.answers) for one in label_studio.read(REAL / "ours_min.json").records
        }

    def test_several_controls_must_be_named(self, tmp_path: Path) -> None:
        tasks = json.loads((REAL / "foreign.json").read_text())
        other = {"from_name": "mood", "to_name": "t", "type": "choices", "value": {"choices": ["calm"]}}
        tasks[0]["annotations"][0]["result"].append(other)
        path = tmp_path / "export.json"
        path.write_text(json.dumps(tasks))
        with pytest.raises(InvalidInputError, match="mood, topic; name the one"):
            label_studio.read(path)
        assert label_studio.read(path, control="topic").records[0].answers["user 2"] == "spam"
        with pytest.raises(InvalidInputError, match="none named 'no'"):
            label_studio.read(path, control="no")

    def test_images_get_an_address_and_come_back_as_paths(self, tmp_path: Path) -> None:
        made = RecordSet.of([Record("1", {"photo": "a/b.png"}, label="cat")], images=["photo"])
        path = label_studio.write(made, tmp_path / "tasks.json", image_root="/data/local-files/?d=")
        assert json.loads(path.read_text())[0]["data"]["photo"] == "/data/local-files/?d=a/b.png"
        assert label_studio.read(path).records[0].content == {"photo": "a/b.png"}

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("", "no JSON"),
            ("[]", "no task"),
            ("[1]", "task 1 is '1'; expected an object"),
            ('[{"id": 1, "data": []}]', r"data is \[\]; expected an object"),
            ('[{"data": {"a": "b"}}]', "has no id"),
            ('[{"id": 1, "data": {}, "annotations": 5}]', "expected a list"),
            ('[{"id": 1, "data": {}}, {"id": 1, "data": {}}]', "'1' occurs twice"),
            ("[" * 100_000, "no JSON"),
            ('[{"id": 1, "data": {}, "meta": {"labelchef": {"rank": "x"}}}]', "cannot be read"),
        ],
    )
    def test_refused(self, text: str, told: str, tmp_path: Path) -> None:
        path = tmp_path / "export.json"
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=told):
            label_studio.read(path)

    def test_a_class_that_xml_cannot_hold(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="rename the class"):
            label_studio.write(RecordSet.of([Record("1", {"t": "x"}, label="a\x00")], texts=["t"]), tmp_path / "t.json")


def lines_of(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class TestProdigy:
    def test_choice_and_binary(self, tmp_path: Path) -> None:
        choice = {"text": "hi", "_input_hash": 12, "_task_hash": 3, "options": [{"id": "ham"}, {"id": "spam"}]}
        path = lines_of(
            tmp_path / "db.jsonl",
            {**choice, "accept": ["ham"], "answer": "accept", "_annotator_id": "set-ada"},
            {**choice, "accept": ["spam"], "answer": "accept", "_session_id": "set-ben"},
            {**choice, "accept": [], "answer": "ignore", "_annotator_id": "set-cy"},
            {**choice, "accept": ["ham", "spam"], "answer": "accept", "_annotator_id": "set-di"},
            {
                "text": "buy",
                "meta": {"id": "b1"},
                "label": "spam",
                "score": 0.8,
                "answer": "reject",
                "_annotator_id": "ada",
            },
            {"text": "sun", "id": "007", "label": "spam", "answer": "accept"},
        )
        assert sniff(path) == "prodigy"
        found = prodigy.read(path)
        assert found.classes == ("ham", "spam")
        first, second, third = found.records
        assert (first.id, first.content) == ("12", {"text": "hi"})
        assert first.answers == {"set-ada": "ham", "set-ben": "spam", "set-cy": None}
        assert (second.id, second.answers) == ("b1", {"ada": "ham"}), "of two classes, the one that was not rejected"
        assert second.predictions == (Prediction("prodigy", "spam", 0.8),)
        assert (third.id, third.answers) == ("007", {"prodigy": "spam"})
        assert found.notes == ("answers with several classes, left out: 1",)
        assert "rejections" in prodigy.read(path, classes=["a", "ham", "spam"]).notes[-1]

    def test_what_people_see(self, tmp_path: Path) -> None:
        path = prodigy.write(suggesting(FILMS), tmp_path / "tasks.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["meta"]["id"] for line in lines] == ["8", "8", "007", "9"], "by rank, a line an answer"
        assert (lines[2]["text"], lines[2]["accept"]) == ("Good,\n“really”", ["good"]), "chosen beforehand"
        assert [line.get("answer") for line in lines] == ["accept", "ignore", None, None]

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("", "no line"),
            ("[]", "expected an object"),
            ("{", "line 1 is no JSON"),
            ('{"text": "x"}', "has no id"),
            ('{"text": "x", "id": "1", "answer": "yes"}', "expected accept, reject or ignore"),
            ('{"text": "x", "id": "1", "label": "a", "score": "much"}', "score is wrong"),
            ('{"text": "x", "id": "1", "options": [3]}', "expected an object"),
        ],
    )
    def test_refused(self, line: str, told: str, tmp_path: Path) -> None:
        path = tmp_path / "db.jsonl"
        path.write_text(line)
        with pytest.raises(InvalidInputError, match=told):
            prodigy.read(path)


class TestDatasets:
    def test_card_and_features(self, tmp_path: Path) -> None:
        from datasets import ClassLabel, load_from_disk
        from huggingface_hub import DatasetCard

        path = hugging_face.write(FILMS, tmp_path / "films")
        loaded = load_from_disk(str(path))
        assert loaded.features["label"] == ClassLabel(names=["bad", "good"])
        assert loaded["label"][:] == [1, 0, None]
        card = DatasetCard.load(path / "README.md")
        assert card.data.task_categories == ["text-classification"]
        assert card.data.license == "unknown"
        assert "| bad | People warn \\| of it | 1 |" in card.text
        assert "| people | 1 |" in card.text
        assert "to be filled in" in card.text

    def test_a_dataset_of_others(self, tmp_path: Path) -> None:
        from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

        features = Features(
            {"text": Value("string"), "label": ClassLabel(names=["neg", "pos"]), "stars": Value("int64")}
        )
        rows = {"text": ["fine", None], "label": [1, -1], "stars": [5, 1]}
        part = Dataset.from_dict(rows, features=features)
        DatasetDict({"train": part, "test": part}).save_to_disk(str(tmp_path / "two"))
        part.to_parquet(str(tmp_path / "one.parquet"))
        assert sniff(tmp_path / "two") == sniff(tmp_path / "one.parquet") == "datasets"
        one, two = hugging_face.read(tmp_path / "one.parquet"), hugging_face.read(tmp_path / "two")
        assert [(r.id, r.label, r.content) for r in one.records] == [
            ("0", "pos", {"text": "fine", "stars": "5"}),
            ("1", None, {"text": None, "stars": "1"}),
        ]
        assert (one.classes, one.texts) == (("neg", "pos"), ("text",))
        assert [r.content["split"] for r in two.records] == ["train", "train", "test", "test"]

    def test_refused(self, tmp_path: Path) -> None:
        (tmp_path / "bad.parquet").write_bytes(b"PAR1 cut off")
        (tmp_path / "bad").mkdir()
        for name in ("bad.parquet", "bad", "none"):
            with pytest.raises(InvalidInputError, match=r"cannot be read|check the path"):
                hugging_face.read(tmp_path / name)
        hugging_face.write(FILMS, tmp_path / "films")
        with pytest.raises(InvalidInputError, match="exists already"):
            hugging_face.write(FILMS, tmp_path / "films")


@pytest.fixture
def argilla_client() -> Iterator[Any]:
    """Argilla's SDK, signed in: it asks the server who it is before it makes any settings."""

    class Me(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"id": str(uuid.uuid4()), "username": "ada", "role": "owner"}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Me) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library = argilla.require_argilla()
            library.Argilla(api_url=f"http://127.0.0.1:{server.server_port}", api_key="key")
            yield library
        server.shutdown()


class TestArgilla:
    def test_its_sdk_takes_what_we_write(self, argilla_client: Any, tmp_path: Path) -> None:
        users = {"ada": str(uuid.uuid4())}
        path = argilla.write(suggesting(FILMS), tmp_path / "films", people=users)
        found = argilla_client.Settings.from_json(path / ".argilla" / "settings.json")
        assert [(one.name, one.required) for one in found.fields] == [("review", True)]
        assert found.questions[0].labels == ["bad", "good"]
        records = argilla.to_sdk(suggesting(FILMS), people=users)
        assert [one.id for one in records] == ["8", "007", "9"], "in our order"
        suggested = next(iter(records[1].suggestions))
        assert (suggested.value, suggested.score, suggested.agent) == ("good", 0.75, "labelchef")
        assert [(str(one.user_id), one.value) for one in records[0].responses] == [(users["ada"], "bad")]
        dataset = argilla_client.Dataset(name="films", settings=found)
        sent = [argilla_client.Record.from_dict(one.to_dict(), dataset=dataset).api_model() for one in records]
        assert sent[0].responses[0].values == {"label": {"value": "bad"}}
        assert sent[1].fields == {"review": "Good,\n“really”"}
        names = {user: who for who, user in users.items()}
        back = argilla.of_sdk(records, people=names)
        assert {one.id: dict(one.answers) for one in back.records} == {
            "8": {"ada": "bad", "ben": None},
            "007": {},
            "9": {},
        }
        assert argilla.read(path, people=names).records == back.records

    def test_records_that_its_sdk_wrote(self, argilla_client: Any, tmp_path: Path) -> None:
        from argilla.records._io import JsonIO

        user, other = uuid.uuid4(), uuid.uuid4()
        made = [
            argilla_client.Record(
                id=f"0{k}",
                fields={"text": "hi"},
                suggestions=[argilla_client.Suggestion("topic", "ham", score=0.5, agent="m")],
                responses=[
                    argilla_client.Response("topic", "spam", user_id=user),
                    argilla_client.Response("topic", ["ham", "spam"], user_id=other),
                ],
            )
            for k in range(2)
        ]
        path = JsonIO.to_json(made, tmp_path / "records.json")
        assert sniff(path) == "argilla"
        found = argilla.read(path, people={str(user): "ada"})
        assert [(one.id, dict(one.answers)) for one in found.records] == [
            ("00", {"ada": "spam"}),
            ("01", {"ada": "spam"}),
        ]
        assert found.records[0].predictions == (Prediction("m", "ham", 0.5),)
        assert found.notes == ("responses with several classes or none, left out: 2",)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[]", "no record"),
            ("{}", "expected a list"),
            ('[{"fields": {}}]', "has no id"),
            ('[{"id": "1", "fields": 3}]', "expected an object"),
            ('[{"id": "1", "fields": {}, "metadata": {"labelchef": "{"}}]', "no JSON"),
            ('[{"id": "1", "fields": {}, "suggestions": {"a": {}, "b": {}}}]', "questions a, b; name the one"),
            ('[{"id": "1", "fields": {}, "suggestions": {"a": {"value": "x", "score": "y"}}}]', "score"),
        ],
    )
    def test_refused(self, text: str, told: str, tmp_path: Path) -> None:
        path = tmp_path / "records.json"
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=told):
            argilla.read(path)


class TestTables:
    """cleanlab, crowd-kit and Snorkel take what we write, and we what they write."""

    def test_aggregators_of_crowd_kit(self, tmp_path: Path) -> None:
        from crowdkit.aggregation import DawidSkene, MajorityVote

        votes = {"1": "aab", "2": "bba", "3": "aaa", "4": "bbb"}
        made = RecordSet.of(
            Record(k, answers=dict(zip(("ada", "ben", "cy"), one, strict=True))) for k, one in votes.items()
        )
        table = pd.read_csv(crowd_kit.write(made, tmp_path / "crowd.csv"), dtype=str)
        majority = {"1": "a", "2": "b", "3": "a", "4": "b"}
        with warnings.catch_warnings():  # the library uses what pandas has deprecated
            warnings.simplefilter("ignore")
            assert MajorityVote().fit_predict(table).to_dict() == majority
            assert DawidSkene(n_iter=10).fit_predict(table).to_dict() == majority

    def test_a_table_of_crowd_kit_s_own(self, tmp_path: Path) -> None:
        rows = [("007", "w1", "ham"), ("007", "w2", "spam"), ("007", "w1", "eggs")]
        path = tmp_path / "crowd.csv"
        pd.DataFrame(rows, columns=["worker", "task", "label"]).rename(
            columns={"worker": "task", "task": "worker"}
        ).to_csv(path, index=False)
        assert crowd_kit.read(path).records == (Record("007", answers={"w1": "eggs", "w2": "spam"}),)
        assert crowd_kit.read(path, sources=True).records[0].votes == {"w1": "eggs", "w2": "spam"}

    def test_snorkel_takes_the_matrix(self, tmp_path: Path) -> None:
        from snorkel.labeling import LFAnalysis

        made = RecordSet.of(
            [Record("1", votes={"lf a": "ham", "lf b": "spam"}), Record("2", votes={"lf b": "spam"}), Record("3")],
            ["ham", "spam"],
        )
        L = np.load(snorkel.write(made, tmp_path / "L.npz"))["L"]
        with warnings.catch_warnings():  # the library uses what SciPy will change
            warnings.simplefilter("ignore")
            assert LFAnalysis(L).lf_coverages().tolist() == [1 / 3, 2 / 3]
            assert LFAnalysis(L).lf_conflicts().tolist() == [1 / 3, 1 / 3]
        np.save(tmp_path / "bare.npy", L)
        bare = snorkel.read(tmp_path / "bare.npy")
        assert [dict(one.votes) for one in bare.records] == [{"source 0": "0", "source 1": "1"}, {"source 1": "1"}, {}]

    def test_what_cleanlab_finds(self, tmp_path: Path) -> None:
        from cleanlab.classification import CleanLearning
        from sklearn.linear_model import LogisticRegression

        rng = np.random.default_rng(0)
        y = np.repeat([0, 1], 30)
        X = rng.normal(size=(60, 2)) + 4.0 * y[:, None]
        y[5] = 1  # wrong
        with quietly():
            learner = CleanLearning(LogisticRegression(), seed=0)
            issues = learner.find_label_issues(X, y)
        issues.to_csv(tmp_path / "issues.csv")
        assert sniff(tmp_path / "issues.csv") == "cleanlab"
        found = cleanlab.read(tmp_path / "issues.csv")
        assert [one.id for one in found.records if one.flags] == ["5"]
        assert found.records[5].label == "1"
        assert found.records[5].predictions == (Prediction("cleanlab", "0"),)
        P = LogisticRegression().fit(X, y).predict_proba(X)
        made = RecordSet.of(
            [
                Record(f"0{k}", label="ab"[y[k]], probabilities={"a": float(P[k, 0]), "b": float(P[k, 1])})
                for k in range(60)
            ],
            ["a", "b"],
        )
        back = cleanlab.read(cleanlab.write(made, tmp_path / "ours.csv"))
        assert [one.id for one in back.records if one.flags] == ["05"]
        with pytest.raises(InvalidInputError, match="record '1' has no label, or not a probability for each class"):
            cleanlab.write(RecordSet.of([Record("1", label="a")], ["a", "b"]), tmp_path / "no.csv")

    @pytest.mark.parametrize(
        ("name", "text", "told"),
        [
            ("crowd-kit", "", "is empty"),
            ("crowd-kit", "task,worker\n1,2\n", "expected task, worker, label"),
            ("crowd-kit", "task,worker,label\n1,2\n", "row 1 has 2 cells"),
            ("crowd-kit", "task,worker,label\n1,,a\n", "empty cell"),
            ("crowd-kit", "task,worker,label\n", "no row"),
            ("crowd-kit", 'task,worker,label\n1,"2', "no CSV"),
            ("cleanlab", "is_label_issue,given_label,predicted_label,p: a\nTrue,a,a,x\n", "a probability is wrong"),
            ("cleanlab", "is_label_issue,given_label,predicted_label\nmaybe,a,a\n", "not True or False"),
            ("snorkel", "no archive", "cannot be read"),
        ],
    )
    def test_refused(self, name: str, text: str, told: str, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=told):
            FORMATS[name].read(path)

    @pytest.mark.parametrize(
        ("arrays", "told"),
        [
            ({"L": np.zeros((2, 2))}, "expected whole numbers"),
            ({"M": np.zeros((2, 2), int)}, "L is none"),
            ({"L": np.zeros((2, 2), int), "ids": np.array(["a"])}, "1 ids"),
            ({"L": np.full((2, 2), 3), "classes": np.array(["a"])}, "votes from 3 to 3 and 1 classes"),
            ({"L": np.zeros((2, 2), int), "sources": np.array(["a", "a"])}, "names a source twice"),
        ],
    )
    def test_matrices_refused(self, arrays: dict[str, Any], told: str, tmp_path: Path) -> None:
        np.savez(tmp_path / "L.npz", **arrays)
        with pytest.raises(InvalidInputError, match=told):
            snorkel.read(tmp_path / "L.npz")


_INSTEAD = (
    b"null",
    b"{}",
    b"[]",
    b"5",
    b'"x"',
    b"true",
    b"[1]",
    b'{"id": []}',
    b"1e999",
    b"NaN",
    b'"',
    b"\x00",
    b"\xff",
    b",",
)


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """The same bytes with a value replaced, a part cut out or repeated, or the end cut off."""
    values = list(re.finditer(rb'(?<=[:,\[])\s*("[^"]*"|\[|\{|[0-9.]+|null|[^,\n"]+)', data))
    at = int(rng.integers(len(data)))
    match int(rng.integers(6)):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + int(rng.integers(1, 20)) :]
        case 2:
            return data[:at] + data[: int(rng.integers(1, 40))] + data[at:]
        case _ if values:
            chosen = values[int(rng.integers(len(values)))]
            return data[: chosen.start(1)] + _INSTEAD[int(rng.integers(len(_INSTEAD)))] + data[chosen.end(1) :]
        case _:
            return data[:at] + _INSTEAD[int(rng.integers(len(_INSTEAD)))] + data[at + 1 :]


@pytest.mark.parametrize(
    ("name", "file", "part"),
    [
        ("label-studio", "tasks.json", ""),
        ("label-studio", "tasks.json", "../tasks.xml"),
        ("prodigy", "tasks.jsonl", ""),
        ("argilla", "argilla", "records.json"),
        ("argilla", "argilla", ".argilla/settings.json"),
        ("datasets", "films.parquet", ""),
        ("datasets", "films", "dataset_info.json"),
        ("datasets", "films", "labelchef.json"),
        ("cleanlab", "issues.csv", ""),
        ("crowd-kit", "crowd.csv", ""),
        ("snorkel", "L.npz", ""),
    ],
)
def test_damaged_files_are_read_or_refused(name: str, file: str, part: str, tmp_path: Path) -> None:
    sure = [replace(one, label=one.label or "good", probabilities={"bad": 0.5, "good": 0.5}) for one in FILMS.records]
    path = FORMATS[name].write(replace(FILMS, records=tuple(sure)), tmp_path / file)
    target = Path(os.path.normpath(path / part))
    whole, rng, refused = target.read_bytes(), np.random.default_rng(0), 0
    for _ in range(100):
        target.write_bytes(mutated(whole, rng))
        sniff(path)
        try:
            FORMATS[name].read(path)
        except InvalidInputError:
            refused += 1
    assert refused > 20


def test_the_docs_name_every_format() -> None:
    page = (Path(__file__).parents[1] / "docs" / "exchange.md").read_text()
    rows = {cells[1].strip(" `"): line for line in page.splitlines() if len(cells := line.split("|")) == 6}
    for name, one in FORMATS.items():
        assert all(f"`{ending}`" in rows[name] for ending in one.endings if ending != "/"), name
        assert one.extra is None or f"`{one.extra}`" in rows[name], name
        assert ("everything" in rows[name]) == (one.carries == ALL), name


def test_no_file_of_one_tool_is_taken_for_another(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("item,annotator,label\n1,ada,ham\n")
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "text": "x", "label": "ham"}\n')
    (tmp_path / "rows.json").write_text('[{"id": "1", "data": "x"}]')
    (tmp_path / "binary.json").write_bytes(bytes(range(256)))
    for name in ("table.csv", "rows.jsonl", "rows.json", "binary.json", "none"):
        assert sniff(tmp_path / name) is None, name


def test_records_are_checked() -> None:
    with pytest.raises(InvalidInputError, match="occurs twice"):
        RecordSet.of([Record("1"), Record("1")])
    with pytest.raises(InvalidInputError, match="empty id"):
        RecordSet.of([Record("")])
    with pytest.raises(InvalidInputError, match="'c' is not among the classes"):
        RecordSet.of([Record("1", answers={"ada": "c"})], ["a", "b"])
    with pytest.raises(InvalidInputError, match="distinct names"):
        RecordSet.of([Record("1")], ["a", "a"])


def test_frames() -> None:
    items, votes, answers = FILMS.items(), FILMS.votes(), FILMS.answers()
    assert items.to_dict("list") == {
        "id": ["007", "8", "9"],
        "review": ["Good,\n“really”", None, "plain"],
        "label": ["good", "bad", None],
    }
    assert votes[["item", "source", "label"]].to_numpy().tolist() == [["007", "rule", "good"], ["8", "ada", "bad"]]
    assert answers.to_numpy().tolist() == [["8", "ada", "bad"], ["8", "ben", None]]
