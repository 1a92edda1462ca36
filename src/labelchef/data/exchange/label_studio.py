"""Label Studio: tasks with annotations and predictions of one `<Choices>` control, as JSON.

Read are both exports of Label Studio for choices: *JSON* (a list of tasks, each with `data`, `annotations`, `predictions`) and
*JSON-MIN* (a flat object an annotation). An annotation is an answer of the person who completed it; a cancelled (skipped) one is
an answer without a label; one marked as ground truth gives the label. `completed_by` is an e-mail address, or the number of a
user, who is then named 'user 3'.

Written are tasks in the order of their rank, so that the most valuable ones are labelled first, with predictions as
pre-annotations, and beside them the labelling configuration, as `NAME.xml`. Paste it into the project's settings
(Labeling Interface, Code) before the tasks are imported. The server refuses tasks by people whom it does not know, so answers
are kept in the task's `meta`, which comes back with the JSON export (not with JSON-MIN), and not as annotations.

    data      labelchef_id, and the content; missing texts are '' (the server wants text there), listed in meta
    meta      labelchef: everything else of the record, see `records.payload_of`; predictions too, because the server's export
              names them by number only
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from labelchef.base.files import whole_file
from labelchef.data.dataset import LabelOrigin
from labelchef.data.exchange.records import (
    ALL,
    PAYLOAD,
    Format,
    Prediction,
    Record,
    RecordSet,
    as_list,
    as_object,
    as_text,
    beginning,
    number,
    parse_json,
    payload_of,
    read_text,
    record_of,
    refuse,
)

CONTROL = "label"
"""The name of the control in the configuration that we write."""
ID_KEY = "labelchef_id"
_WHAT = "Label Studio"
_ABOUT_ANNOTATION = ("annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement")
_RESERVED = frozenset({"id", ID_KEY, CONTROL, *_ABOUT_ANNOTATION})  # a JSON-MIN export has them beside the content
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read(
    path: Path, *, id_key: str | None = None, control: str | None = None, people: Mapping[str, str] | None = None
) -> RecordSet:
    """The records of a JSON or JSON-MIN export, or of tasks that are not labelled yet.

    `id_key` names the field of `data` that is the item's id: by default ours, then 'id', then Label Studio's own number of the
    task. `control` names the `<Choices>` to read if there are several. `people` names users by their number.
    """
    found = parse_json(read_text(path, _WHAT), f"{_WHAT}: {path}")
    tasks = [as_object(one, f"{path}, task {k}") for k, one in enumerate(as_list(_listed(found), str(path)), 1)]
    if not tasks:
        refuse(f"{path} holds no task; expected at least one")
    config = _config_beside(path)
    reader = _Reader(path, tasks, id_key, control or (config.control if config else None), people or {})
    records = reader.min_records() if _is_min(tasks[0]) else reader.records()
    named = {label for one in records for label in one.classes()}
    classes = None if config is None or not named <= set(config.classes) else config.classes
    texts, images = (config.texts, config.images) if config else _guess(records)
    columns = {name for one in records for name in one.content}
    back = reader.columns
    return RecordSet.of(
        records,
        classes,
        texts=[back.get(name, name) for name in texts if back.get(name, name) in columns],
        images=[back.get(name, name) for name in images if back.get(name, name) in columns],
        notes=reader.notes(),
    )


def write(given: RecordSet, path: Path, *, image_root: str = "") -> Path:
    """Tasks to be imported, in the order of their rank, and the configuration beside them as .xml.

    `image_root` is put before paths of images, for example '/data/local-files/?d=campaign/' for Label Studio's local storage.
    """
    keys = _keys(given.columns)
    config = config_xml(given)
    tasks = [_task(one, given, keys, image_root) for one in given.ranked()]
    with whole_file(path) as stream:
        stream.write(json.dumps(tasks, ensure_ascii=False, indent=1, allow_nan=False).encode())
    with whole_file(path.with_suffix(".xml")) as stream:
        stream.write(config.encode())
    return path


def config_xml(given: RecordSet) -> str:
    """The labelling configuration: what is shown, and a choice a class.

    >>> print(config_xml(RecordSet.of([Record("1", {"review": "fine"}, label="good")], texts=["review"])))
    <View>
      <Text name="shown_1" value="$review" />
      <Choices name="label" toName="shown_1" choice="single" showInLine="true">
        <Choice value="good" />
      </Choices>
    </View>
    """
    keys = _keys(given.columns)
    view = ElementTree.Element("View")
    shown = [("Text", name) for name in given.texts] + [("Image", name) for name in given.images]
    shown = shown or [("Text", name) for name in given.columns]
    if not shown:
        refuse("the records have no content; expected a column of text or images that people can label")
    for k, (tag, name) in enumerate(shown, 1):
        ElementTree.SubElement(view, tag, name=f"shown_{k}", value=f"${keys[name]}")
    choices = ElementTree.SubElement(
        view, "Choices", name=CONTROL, toName="shown_1", choice="single", showInLine="true"
    )
    for name in given.classes:
        if _NOT_XML.search(name):
            refuse(f"the class {name!r} has a character that XML cannot hold; rename the class for Label Studio")
        hint = {"hint": _NOT_XML.sub(" ", given.meanings[name])} if name in given.meanings else {}
        ElementTree.SubElement(choices, "Choice", {"value": name, **hint})
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode")


def recognises(path: Path) -> bool:
    """Whether it begins as a list of tasks does: an object with `data` and one of Label Studio's fields, or as JSON-MIN."""
    start = beginning(path)
    if path.suffix.lower() != ".json" or not re.match(r"\s*\[?\s*\{", start):
        return False
    if re.search(r'"annotation_id"\s*:', start) and re.search(r'"(lead_time|annotator)"\s*:', start):
        return True
    fields = r'"(annotations|predictions|completions|total_annotations|is_labeled)"\s*:'
    return bool(re.search(r'"data"\s*:\s*\{', start) and (re.search(fields, start) or f'"{ID_KEY}"' in start))


def _listed(found: Any) -> Any:
    return [found] if isinstance(found, dict) else found


def _is_min(task: Mapping[str, Any]) -> bool:
    return "data" not in task and "annotation_id" in task


class _Config:
    """What a configuration says: the control, its classes, and the content that is shown."""

    def __init__(self, view: ElementTree.Element) -> None:
        controls = [one for one in view.iter("Choices") if one.get("name")]
        self.control = controls[0].get("name") if len(controls) == 1 else None
        choices = controls[0].iter("Choice") if len(controls) == 1 else []
        self.classes = tuple(str(one.get("alias") or one.get("value")) for one in choices)
        self.texts = self._shown(view, ("Text", "HyperText", "Header"))
        self.images = self._shown(view, ("Image",))

    @staticmethod
    def _shown(view: ElementTree.Element, tags: Sequence[str]) -> tuple[str, ...]:
        values = [str(one.get("value", "")) for tag in tags for one in view.iter(tag)]
        return tuple(value[1:] for value in values if value.startswith("$"))


def _config_beside(path: Path) -> _Config | None:
    beside = path.with_suffix(".xml")
    if not beside.is_file():
        return None
    text = read_text(beside, _WHAT)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        refuse(f"{beside} declares a document type; expected a plain labelling configuration")
    try:
        return _Config(ElementTree.fromstring(text))
    except ElementTree.ParseError as error:
        refuse(
            f"{beside} is no XML: {error}. Expected the labelling configuration of {path.name}; remove or replace it"
        )


def _guess(records: Sequence[Record]) -> tuple[list[str], list[str]]:
    names = dict.fromkeys(name for one in records for name in one.content)
    return [name for name in names if name == "text"], [name for name in names if name == "image"]


class _Reader:
    """Reads one file, and counts what it leaves out."""

    def __init__(
        self,
        path: Path,
        tasks: list[dict[str, Any]],
        id_key: str | None,
        control: str | None,
        people: Mapping[str, str],
    ) -> None:
        self.path, self.tasks, self.control, self.people = path, tasks, control, people
        self.left_out: Counter[str] = Counter()
        self.columns: dict[str, str] = {}
        self.id_key = self._find_id(id_key)

    def notes(self) -> list[str]:
        """What was left out or assumed."""
        assumed = (
            []
            if self.id_key
            else ["items are named by Label Studio's own task numbers: the tasks have no id of their own"]
        )
        return assumed + [f"{what}: {count}" for what, count in self.left_out.items()]

    def records(self) -> list[Record]:
        """From tasks with annotations and predictions."""
        self._settle_control(
            [
                result
                for k, task in enumerate(self.tasks, 1)
                for one in (*self._annotations(task, k), *self._listed(task, "predictions", k))
                for result in self._results(one, k)
            ]
        )
        return [self._record(task, k) for k, task in enumerate(self.tasks, 1)]

    def _record(self, task: dict[str, Any], k: int) -> Record:
        where = f"{self.path}, task {k}"
        data = as_object(task.get("data"), f"{where}, data")
        meta = task.get("meta") if isinstance(task.get("meta"), dict) else {}
        payload = as_object(meta.get(PAYLOAD) or {}, f"{where}, meta.{PAYLOAD}")  # type: ignore[union-attr]
        renamed = as_object(payload.get("columns") or {}, f"{where}, columns")
        self.columns |= {key: str(name) for key, name in renamed.items()}
        missing = as_list(payload.get("missing") or [], f"{where}, missing")
        content = {
            self.columns.get(key, key): None if key in missing else as_text(value)
            for key, value in data.items()
            if key not in (ID_KEY, self.id_key)
        }
        images = as_object(payload.get("images") or {}, f"{where}, images")
        content |= {str(name): as_text(value) for name, value in images.items()}
        record = record_of(payload, where, id=self._id(task, data, where), content=content)
        answers, truth = dict(record.answers), None
        for one in sorted(self._annotations(task, k), key=lambda one: str(one.get("updated_at") or "")):
            who = self._person(one.get("completed_by"))
            if _true(one.get("was_cancelled")) or _true(one.get("skipped")):
                answers[who] = None
            elif label := self._label(self._results(one, k), "annotations"):
                answers[who] = label
                truth = label if _true(one.get("ground_truth")) else truth
        record = replace(record, answers=answers, predictions=tuple(self._predictions(task, k)) or record.predictions)
        if truth is not None and record.label is None:
            self.left_out["annotations marked as ground truth, taken as known labels"] += 1
            record = replace(record, label=truth, origin=LabelOrigin.TRUSTED)
        return record

    def min_records(self) -> list[Record]:
        """From flat objects, one an annotation; of a person's annotations of a task the last counts."""
        control = self.control or self._min_control()
        skipped = {"id", ID_KEY, self.id_key, control, *_ABOUT_ANNOTATION}
        made: dict[str, Record] = {}
        said: list[tuple[str, str, str, str]] = []
        for k, task in enumerate(self.tasks, 1):
            id, value = self._id(task, task, f"{self.path}, annotation {k}"), task.get(control)
            content = {key: as_text(one) for key, one in task.items() if key not in skipped}
            made.setdefault(id, Record(id, content))
            if isinstance(value, str) and value:
                said.append((str(task.get("updated_at") or ""), id, self._person(task.get("annotator")), value))
            elif value is not None:
                self.left_out["annotations with several classes or another kind of answer, left out"] += 1
        for _, id, who, label in sorted(said, key=lambda one: one[0]):
            made[id] = replace(made[id], answers={**made[id].answers, who: label})
        return list(made.values())

    def _min_control(self) -> str:
        """The name of the field with the choice: the converter puts it after the task's id and before 'annotator'.

        Where the data has an 'id' too, all of it is there; then it is the field that differs between annotations of one task,
        or holds several choices.
        """
        labelled = [task for task in self.tasks if task.get("annotation_id") is not None]
        if not labelled:
            return CONTROL
        names = list(labelled[0])
        until = names.index("annotator") if "annotator" in names else len(names)
        found = names[names.index("id") + 1 : until] if "id" in names[:until] else []
        if len(found) != 1:
            first: dict[str, dict[str, Any]] = {}
            telling = set()
            for task in labelled:
                one = first.setdefault(str(task.get("id")), task)
                telling |= {
                    name for name in found if one.get(name) != task.get(name) or isinstance(task.get(name), dict)
                }
            found = [name for name in found if name in telling] or found
        if len(found) != 1:
            refuse(
                f"{self.path}: each of the fields {found} may be the label; name the right one as control, or export as JSON "
                "instead of JSON-MIN"
            )
        return found[0]

    def _find_id(self, wanted: str | None) -> str | None:
        keys = [set(task) if _is_min(task) else set(task.get("data") or ()) for task in self.tasks]
        if wanted is not None:
            without = [k for k, found in enumerate(keys, 1) if wanted not in found]
            if without:
                refuse(
                    f"{self.path}, task {without[0]} has no field {wanted!r} in its data; expected the item's id there"
                )
            return wanted
        candidates = (
            (ID_KEY,) if _is_min(self.tasks[0]) else (ID_KEY, "id")
        )  # JSON-MIN overwrites 'id' with the task's number
        return next((name for name in candidates if all(name in found for found in keys)), None)

    def _id(self, task: dict[str, Any], data: dict[str, Any], where: str) -> str:
        found = as_text(task.get("id") if self.id_key is None else data.get(self.id_key))
        if not found:
            refuse(
                f"{where} has no id; expected an id in its data (name the field as id_key), or Label Studio's own number"
            )
        return found

    def _annotations(self, task: dict[str, Any], k: int) -> list[dict[str, Any]]:
        return self._listed(task, "annotations" if "annotations" in task else "completions", k)

    def _listed(self, task: dict[str, Any], name: str, k: int) -> list[dict[str, Any]]:
        where = f"{self.path}, task {k}, {name}"
        found = as_list(task.get(name) or [], where)
        return [as_object(one, where) for one in found if isinstance(one, dict)]  # some exports list numbers only

    def _results(self, one: dict[str, Any], k: int) -> list[dict[str, Any]]:
        where = f"{self.path}, task {k}, result"
        found = [as_object(result, where) for result in as_list(one.get("result") or [], where)]
        return [result for result in found if result.get("type") == "choices"]

    def _settle_control(self, results: list[dict[str, Any]]) -> None:
        names = sorted({str(result.get("from_name")) for result in results})
        if self.control is None and len(names) > 1:
            refuse(
                f"{self.path} has choices of the controls {', '.join(names)}; name the one that is the label as control"
            )
        if self.control is not None and names and self.control not in names:
            refuse(f"{self.path} has choices of the controls {', '.join(names)}; there is none named {self.control!r}")
        self.control = self.control or (names[0] if names else CONTROL)

    def _label(self, results: list[dict[str, Any]], what: str) -> str | None:
        chosen: list[Any] = []
        for result in results:
            if result.get("from_name") == self.control:
                value = result.get("value")
                chosen += as_list(
                    (value if isinstance(value, dict) else {}).get("choices") or [], f"{self.path}, choices"
                )
        if len(chosen) == 1 and (label := as_text(chosen[0])):
            return label
        self.left_out[f"{what} with {'several classes' if chosen else 'no class'}, left out"] += 1
        return None

    def _predictions(self, task: dict[str, Any], k: int) -> list[Prediction]:
        made = []
        for one in self._listed(task, "predictions", k):
            label = self._label(self._results(one, k), "predictions")
            if label is not None:
                try:
                    score = number(one.get("score"))
                except ValueError as error:
                    refuse(
                        f"{self.path}, task {k}: the score of a prediction is wrong: {error}; expected a number from 0 to 1"
                    )
                made.append(Prediction(as_text(one.get("model_version")) or "label-studio", label, score))
        return made

    def _person(self, found: object) -> str:
        if isinstance(found, dict):
            found = found.get("email") or found.get("id")
        named = as_text(found)
        if not named:
            return "user"
        if named in self.people:
            return self.people[named]
        return f"user {named}" if named.isdecimal() else named


def _true(value: object) -> bool:
    return value is True


def _keys(columns: Sequence[str]) -> dict[str, str]:
    """Column → key in the task's data: its own name where the configuration can name it."""
    taken = {name for name in columns if _PLAIN.fullmatch(name)} | _RESERVED
    keys, k = dict[str, str](), 0
    for name in columns:
        if _PLAIN.fullmatch(name) and name not in _RESERVED:
            keys[name] = name
            continue
        k += 1
        while f"column_{k}" in taken:
            k += 1
        keys[name] = f"column_{k}"
    return keys


def _task(record: Record, given: RecordSet, keys: Mapping[str, str], image_root: str) -> dict[str, Any]:
    shown = {*given.texts, *given.images} or set(given.columns)
    missing = [keys[name] for name, value in record.content.items() if value is None and name in shown]
    data: dict[str, str | None] = {ID_KEY: record.id}
    for name, value in record.content.items():
        rooted = f"{image_root}{value}" if name in given.images and value is not None else value
        data[keys[name]] = "" if keys[name] in missing else rooted
    payload = payload_of(record)
    payload |= {"columns": renamed} if (renamed := {key: name for name, key in keys.items() if key != name}) else {}
    payload |= {"missing": missing} if missing else {}
    if image_root and given.images:
        payload["images"] = {name: record.content[name] for name in given.images}
    predictions = [
        {
            "model_version": one.model,
            **({} if one.score is None else {"score": one.score}),
            "result": [
                {"from_name": CONTROL, "to_name": "shown_1", "type": "choices", "value": {"choices": [one.label]}},
            ],
        }
        for one in record.predictions
    ]
    return {"data": data, "meta": {PAYLOAD: payload}, "predictions": predictions}


LABEL_STUDIO = Format(
    name="label-studio",
    title="Label Studio JSON",
    endings=(".json",),
    read=read,
    write=write,
    recognises=recognises,
    carries=ALL,
    people=True,
)
