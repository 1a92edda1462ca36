"""Files of other tools: round trips through every format, real exports, refusals."""

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelchef.campaign.dataset import LabelOrigin
from labelchef.domain.errors import InvalidInputError
from labelchef.exchange import hugging_face, label_studio, prodigy
from labelchef.exchange.formats import FORMATS, sniff
from labelchef.exchange.records import Prediction, Record, RecordSet, suggesting
from tests.exchange_support import carried, names, record_sets

with warnings.catch_warnings():  # the library uses what pydantic has deprecated
    warnings.simplefilter("ignore")
    Converter: Any = importlib.import_module("label_studio_sdk.converter").Converter
    LabelInterface: Any = importlib.import_module("label_studio_sdk.label_interface").LabelInterface

REAL = Path(__file__).parent / "fixtures" / "label_studio"
ROUND_TRIP = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
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


@settings(ROUND_TRIP, max_examples=15)
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
