"""Files on their way to a campaign, by the API: detected, corrected, tried, made, and nothing outside of their folder touched."""

import io
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from labelchef.base.errors import InvalidInputError
from labelchef.data.encoders import sentences
from labelchef.data.intake.joining import join
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.intake import folders, reading, steps
from labelchef.server.workspace import INTAKES, Workspace
from tests.web.conftest import NASTY, Person
from tests.web.raw_files import BAD, GOOD, image_files, tweet_files, tweets, zipped

Sign = Callable[[str], Person]


def send(lead: Person, files: dict[str, bytes], where: str = "/api/intakes") -> Any:
    """The answer to an upload."""
    return lead.client.post(where, files=[("files", (name, io.BytesIO(body))) for name, body in files.items()])


def settled(lead: Person, answer: Any, seconds: float = 60.0) -> dict[str, Any]:
    """The intake when nothing is being done with it any more."""
    assert answer.status_code < 300, answer.text
    found: dict[str, Any] = answer.json()
    until = time.monotonic() + seconds
    while found["state"] in ("reading", "creating"):
        assert time.monotonic() < until, found
        time.sleep(0.05)
        found = lead.get(f"/api/intakes/{found['id']}").json()
    return found


@pytest.fixture
def lead(as_person: Sign, people: Any) -> Person:
    return as_person("lead")


def role_of(intake: dict[str, Any], path: str) -> str:
    return str(next(one["role"] for one in intake["files"] if one["path"] == path))


@pytest.mark.usefixtures("pretrained")
def test_raw_files_become_a_campaign(ws: Workspace, lead: Person) -> None:
    found = settled(lead, send(lead, tweet_files()))
    assert {one["path"]: one["role"] for one in found["files"]} == {
        "gold.csv": "trusted", "tweets.csv": "items", "votes.csv": "votes",
    }  # fmt: skip
    preview = found["preview"]
    assert preview["usable"], preview["findings"]
    assert (preview["n_train"], preview["n_trusted"], preview["n_test"]) == (90, 30, 0)
    assert preview["classes"] == ["bad", "good"]
    assert sorted(preview["sources"]) == ["ann", "bert", "rule7"]
    assert preview["content"] == {"text": "text"}
    truth = {key: (text, label) for key, text, label in tweets()}
    for row in preview["rows"]:
        assert row["content"]["text"].startswith(truth[row["id"]][0][:40]), "joined by id, not by position"
    answer = lead.post(f"/api/intakes/{found['id']}/create", {"name": "Tweets", "settings": {"batch_size": 3}})
    assert answer.status_code == 202
    made = settled(lead, answer, 120)
    assert (made["state"], made["campaign"], made["problem"]) == ("made", "tweets", None)
    network = sentences.usual_network()
    assert network is None or network in sentences._loaded, "texts are encoded by the network that is installed"
    worker.advance(ws, "tweets")
    assert campaigns.settings(ws, "tweets").batch_size == 3
    task = lead.post("/api/campaigns/tweets/next").json()["tasks"][0]
    assert task["content"]["text"] == truth[task["item"]][0]
    assert not list((ws.home / INTAKES / found["id"]).glob("files/*")), "what was uploaded is deleted"
    again = lead.post(f"/api/intakes/{found['id']}/create", {"name": "Again"})
    assert (again.status_code, again.json()["code"]) == (409, "intake_state")


def test_roles_are_corrected_and_the_preview_follows(lead: Person) -> None:
    files = tweet_files()
    files["test.csv"] = files.pop("gold.csv")  # the name of test labels
    found = settled(lead, send(lead, files))
    where = f"/api/intakes/{found['id']}"
    assert role_of(found, "test.csv") == "test"
    assert not found["preview"]["usable"], "no label is trusted"
    body: dict[str, Any] = {"files": [{"path": "test.csv", "role": "trusted", "columns": {"label": "label"}}]}
    found = settled(lead, lead.client.patch(where, json=body))
    assert role_of(found, "test.csv") == "trusted"
    assert found["preview"]["n_trusted"] == 30
    body = {"files": [{"path": "votes.csv", "role": "ignored"}], "classes": ["good", "bad"]}
    found = settled(lead, lead.client.patch(where, json=body))
    assert found["preview"]["sources"] == []
    assert found["preview"]["classes"] == ["good", "bad"]
    found = settled(lead, lead.client.patch(where, json={"classes": []}))
    assert found["preview"]["classes"] == ["bad", "good"]
    for body in (
        {"files": [{"path": "../../etc/passwd", "role": "items"}]},
        {"files": [{"path": "votes.csv", "columns": {"no such": "id"}}]},
    ):
        answer = lead.client.patch(where, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "file")
    answer = lead.client.patch(where, json={"files": [{"path": "votes.csv", "role": "functions"}]})
    assert (answer.status_code, answer.json()["code"]) == (422, "code")
    assert "--functions" in answer.json()["detail"]


@pytest.mark.parametrize(
    "name", ["../evil.csv", "a/../../evil.csv", "..\\evil.csv", "a\x00.csv", "/", "x" * 300 + ".csv"]
)
def test_no_name_leads_out_of_the_folder(ws: Workspace, lead: Person, name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        steps.start(ws, [(name, io.BytesIO(b"id,text\n1,a\n"))], "lead")
    assert caught.value.code == "file"
    assert list(folders.ids(ws)) == []
    assert not list(ws.home.parent.rglob("evil.csv"))


def test_code_is_refused_with_the_command_that_takes_it(ws: Workspace, lead: Person) -> None:
    answer = send(lead, {**tweet_files(), "rules.py": b"import os\nos.abort()\n"})
    assert (answer.status_code, answer.json()["code"]) == (422, "code")
    assert "labelchef init" in answer.json()["detail"]
    assert "--functions" in answer.json()["detail"]
    assert list(folders.ids(ws)) == [], "nothing is kept of it"


def test_names_of_files_are_text(lead: Person) -> None:
    hostile = "<img src=x onerror=alert(1)>.csv"
    files = {(hostile if name == "tweets.csv" else name): body for name, body in tweet_files().items()}
    found = settled(lead, send(lead, files))
    assert hostile in {one["path"] for one in found["files"]}


def test_a_zip_is_unpacked_and_a_hostile_one_is_not(ws: Workspace, lead: Person) -> None:
    found = settled(lead, send(lead, {"all.zip": zipped(tweet_files())}))
    assert found["preview"]["n_train"] == 90
    assert {Path(one["path"]).name for one in found["files"]} == {"gold.csv", "tweets.csv", "votes.csv"}
    found = settled(lead, send(lead, {"evil.zip": zipped({"../../evil.csv": b"id,text\n1,a\n"})}))
    assert found["preview"] is None
    assert "evil.zip" in found["problem"]
    assert str(ws.home) not in found["problem"], "names of the server's folders are not shown"
    assert not list(ws.home.parent.rglob("evil.csv"))


def test_what_cannot_be_read_says_so_and_more_files_mend_it(lead: Person) -> None:
    files = tweet_files()
    found = settled(lead, send(lead, {"tweets.csv": b'id,text\n1,"cut', "gold.csv": files["gold.csv"]}))
    assert found["preview"] is None
    assert "tweets.csv" in found["problem"]
    answer = lead.post(f"/api/intakes/{found['id']}/create", {"name": "Too early"})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_ready")
    more = {name: files[name] for name in ("tweets.csv", "votes.csv")}
    path = f"/api/intakes/{found['id']}/files"
    refused = lead.client.post(path, files=[("files", (name, content)) for name, content in more.items()])
    assert (refused.status_code, refused.json()["code"]) == (409, "file_exists")
    found = settled(lead, send(lead, more, f"{path}?replace=true"))
    assert found["preview"]["usable"], found
    assert found["problem"] is None


@pytest.mark.parametrize(
    "names",
    [("a.csv", "a.csv"), ("x/a.csv", "x//a.csv"), ("1.png", "images/1.png"), ("a\\b.csv", "a/b.csv")],
)
def test_two_files_of_one_name_are_refused_and_nothing_is_kept(
    ws: Workspace, lead: Person, names: tuple[str, str]
) -> None:
    parts = [("files", (name, content)) for name, content in zip(names, (b"id\n1\n", b"id\n2\n"), strict=True)]
    answer = lead.client.post("/api/intakes", files=parts)
    assert (answer.status_code, answer.json()["code"]) == (422, "same_name"), answer.text
    assert list((ws.home / "intakes").iterdir()) == []


def test_a_restart_leaves_the_files_as_they_were(ws: Workspace, lead: Person) -> None:
    found = settled(lead, send(lead, tweet_files()))
    where = f"/api/intakes/{found['id']}"
    settled(lead, lead.client.patch(where, json={"files": [{"path": "votes.csv", "role": "ignored"}]}))
    ws.runs.close()
    ws.memory.clear()
    waiting = lead.get("/api/intakes").json()["entries"]
    assert [(one["id"], one["names"]) for one in waiting] == [(found["id"], ["gold.csv", "tweets.csv", "votes.csv"])]
    again = settled(lead, lead.get(where))
    assert role_of(again, "votes.csv") == "ignored"
    assert again["preview"]["n_trusted"] == 30


def test_a_correction_ends_the_reading_before_it(ws: Workspace, lead: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    found = settled(lead, send(lead, tweet_files()))
    seen: list[Any] = []

    def slowly(plan: Any, **options: Any) -> Any:
        seen.append(sorted(one.role for one in plan.files))
        for k in range(100 if len(seen) == 1 else 0):
            options["progress"]("reading slowly", k, 100)
            time.sleep(0.05)
        return join(plan, **options)

    monkeypatch.setattr(reading, "join", slowly)
    where = f"/api/intakes/{found['id']}"
    first = lead.client.patch(where, json={"files": [{"path": "gold.csv", "role": "ignored"}]}).json()
    assert first["state"] == "reading"
    assert first["working"]["what"] == "reading slowly"
    began = time.monotonic()
    found = settled(lead, lead.client.patch(where, json={"files": [{"path": "gold.csv", "role": "trusted"}]}))
    assert time.monotonic() - began < 4, "the slow reading is not waited for"
    assert found["preview"]["n_trusted"] == 30
    time.sleep(0.2)
    assert lead.get(where).json() == found, "nothing of the first reading is kept"


def test_a_failure_while_creating_is_shown_and_the_files_stay(
    ws: Workspace, lead: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = settled(lead, send(lead, tweet_files()))
    where = f"/api/intakes/{found['id']}"
    with monkeypatch.context() as patched:

        def full(*_: Any, **__: Any) -> Any:
            raise OSError(28, "No space left on device")

        patched.setattr(steps, "start_campaign", full)
        failed = settled(lead, lead.post(f"{where}/create", {"name": "Tweets"}))
    assert failed["state"] == "ready"
    assert "No space left" in failed["problem"]
    assert failed["preview"]["usable"]
    assert settled(lead, lead.post(f"{where}/create", {"name": "Tweets"}), 120)["campaign"] == "tweets"


def test_settings_that_do_not_fit_are_refused_before_any_work(lead: Person) -> None:
    found = settled(lead, send(lead, tweet_files()))
    settings = {"selector": "random", "suggestion_votes": True}
    answer = lead.post(f"/api/intakes/{found['id']}/create", {"name": "Tweets", "settings": settings})
    assert (answer.status_code, answer.json()["code"]) == (422, "suggestion")


def test_files_are_deleted_when_told_and_when_old(ws: Workspace, lead: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [settled(lead, send(lead, tweet_files(30, 10)))["id"] for _ in range(3)]
    assert lead.client.delete(f"/api/intakes/{ids[0]}").status_code == 204
    assert lead.get(f"/api/intakes/{ids[0]}").status_code == 404
    long_ago = time.time() - folders.KEPT_SECONDS - 60
    os.utime(ws.home / INTAKES / ids[1] / "intake.json", (long_ago, long_ago))
    assert [one["id"] for one in lead.get("/api/intakes").json()["entries"]] == [ids[2]]
    assert sorted(path.name for path in (ws.home / INTAKES).iterdir()) == [ids[2]]
    monkeypatch.setattr(folders, "MOST_INTAKES", 1)
    answer = send(lead, tweet_files(30, 10))
    assert (answer.status_code, answer.json()["code"]) == (409, "intakes")


@pytest.mark.parametrize("intake", ["nothing", "../../x", "0" * 16, "%2e%2e"])
def test_unknown_intakes_are_not_there(lead: Person, intake: str) -> None:
    answer = lead.get(f"/api/intakes/{intake}")
    assert answer.status_code == 404


def test_a_folder_of_the_server_is_read_where_it_is(ws: Workspace, lead: Person) -> None:
    inside, outside = ws.home.parent / "imports" / "tweets", ws.home.parent / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        for name, body in tweet_files().items():
            (folder / name).write_bytes(body)
    answer = lead.post("/api/intakes/from-folder", {"folder": str(outside)})
    assert (answer.status_code, answer.json()["code"]) == (403, "folder")
    before = sorted(path.stat().st_mtime_ns for path in inside.iterdir())
    found = settled(lead, lead.post("/api/intakes/from-folder", {"folder": str(inside)}))
    assert found["preview"]["n_train"] == 90
    assert (
        settled(lead, lead.post(f"/api/intakes/{found['id']}/create", {"name": "In place"}), 120)["campaign"]
        == "in-place"
    )
    assert sorted(path.stat().st_mtime_ns for path in inside.iterdir()) == before
    assert (inside / "tweets.csv").exists()


def test_images_of_the_preview_are_shown_and_no_other_file(ws: Workspace, lead: Person) -> None:
    found = settled(lead, send(lead, image_files()))
    assert found["preview"]["usable"], found
    column = next(name for name, role in found["preview"]["content"].items() if role == "image")
    where = f"/api/intakes/{found['id']}/image"
    shown = found["preview"]["rows"][0]["content"][column]
    answer = lead.get(where, params={"path": shown})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/png"
    made = settled(
        lead, lead.post(f"/api/intakes/{found['id']}/create", {"name": "Photos", "encoders": ["pixels"]}), 120
    )
    assert made["problem"] is None
    worker.advance(ws, "photos")
    task = lead.post("/api/campaigns/photos/next").json()["tasks"][0]
    assert lead.get(task["content"]["image"]).headers["content-type"] == "image/png"


def test_files_that_the_preview_does_not_show_are_not_given_out(lead: Person) -> None:
    found = settled(lead, send(lead, image_files()))
    where = f"/api/intakes/{found['id']}/image"
    for name in ("photos.csv", "../intake.json", "../../../labelchef.db", "/etc/passwd", "images/nothing.png"):
        assert lead.get(where, params={"path": name}).status_code == 404, name


def test_rules_are_tried_while_typed_and_kept_as_sources(ws: Workspace, lead: Person) -> None:
    found = settled(lead, send(lead, tweet_files()))
    where = f"/api/intakes/{found['id']}/rules"
    rule = {"name": "late", "kind": "keyword", "column": "text", "label": "bad", "words": ["delayed", "waiting"]}
    facts = lead.post(where, {"rules": [rule]}).json()
    late = sum(any(word in text for word in rule["words"]) for _, text, _ in tweets())
    assert facts["rules"][0]["n_votes"] == late > 10
    assert facts["n_rows"] == 120
    assert facts["rules"][0]["n_right"] == facts["rules"][0]["n_trusted"] > 0
    shown = facts["rules"][0]["examples"][0]
    assert shown["text"][slice(*shown["span"])] in rule["words"]
    wrong = {"name": "wrong", "kind": "regex", "column": "text", "label": "good", "pattern": "delayed|rude"}
    facts = lead.post(where, {"rules": [rule, wrong]}).json()
    assert facts["rules"][1]["n_conflicts"] > 0
    assert facts["rules"][1]["mistakes"]
    for bad, code in (
        ({**rule, "label": "ugly"}, "rule"),
        ({**wrong, "pattern": "("}, "rule_pattern"),
        ({"name": "x", "kind": "keyword", "column": "text", "label": "bad"}, "rule"),
    ):
        answer = lead.post(where, {"rules": [bad]})
        assert (answer.status_code, answer.json()["code"]) == (422, code), bad
    absent = lead.post(where, {"rules": [{**rule, "column": "no such"}]}).json()
    assert "no such" in absent["rules"][0]["problem"]
    kept = settled(lead, lead.client.put(where, json={"rules": [rule]}))
    assert "late" in kept["preview"]["sources"]
    assert kept["rules"] == [rule]
    twin = lead.client.put(where, json={"rules": [{**rule, "name": "ann"}]})
    assert (twin.status_code, twin.json()["code"]) == (422, "rule")
    assert 'name = "late"' in lead.get(f"{where}.toml").text
    made = settled(lead, lead.post(f"/api/intakes/{found['id']}/create", {"name": "By rules"}), 120)
    worker.advance(ws, made["campaign"])
    names = [one["name"] for one in lead.get(f"/api/campaigns/{made['campaign']}/sources").json()["sources"]]
    assert "late" in names


def test_contents_are_text(lead: Person) -> None:
    files = tweet_files()
    files["tweets.csv"] = files["tweets.csv"].replace(b'#0"', ("#0 " + NASTY.replace('"', '""') + '"').encode())
    found = settled(lead, send(lead, files))
    assert found["preview"]["usable"]


def test_rules_are_suggested_and_the_answers_are_kept(ws: Workspace, lead: Person) -> None:
    found = settled(lead, send(lead, tweet_files()))
    where = f"/api/intakes/{found['id']}/suggestion"
    said: dict[tuple[str, str], bool | None] = {}
    answer = lead.get(where, params={"column": "text"})
    for _ in range(8):
        assert answer.status_code == 200, answer.text
        rule, shown = answer.json()["rule"], answer.json()
        word, label = rule["words"][0], rule["label"]
        assert (word, label) not in said, "nothing is asked twice"
        assert all(word in text.lower() for text in shown["texts"])
        said[word, label] = {"good": word in GOOD, "bad": word in BAD}[label] if word in GOOD + BAD else None
        answer = lead.post(where, {"column": "text", "word": word, "label": label, "useful": said[word, label]})
    assert answer.json()["answered"] == 8
    assert sum(useful is True for useful in said.values()) >= 3, "trusted rows order the proposals"
    ws.runs.close()
    ws.memory.clear()
    settled(lead, lead.get(f"/api/intakes/{found['id']}"))
    again = lead.get(where, params={"column": "text"}).json()
    assert again == answer.json(), "a restart loses no answer"
    rules = lead.post(f"/api/intakes/{found['id']}/rules", {"rules": [again["rule"]]}).json()
    assert rules["rules"][0]["n_votes"] >= again["matched"], "a rule as it is typed"
    for body, code in (
        ({"column": "no such", "word": "x", "label": "good", "useful": True}, "file"),
        ({"column": "text", "word": "no such word", "label": "good", "useful": True}, "unknown_rule"),
    ):
        wrong = lead.post(where, body)
        assert (wrong.status_code, wrong.json()["code"]) == (422, code)


def test_a_table_becomes_a_campaign(ws: Workspace, lead: Person) -> None:
    rng = random.Random(3)
    rows, votes, gold = ["id,age,plan,spent"], ["id,rule_a,rule_b"], ["id,label"]
    for k in range(80):
        label = rng.choice(("stays", "leaves"))
        spent = rng.gauss(80 if label == "stays" else 30, 10)
        rows.append(f"c{k},{rng.randint(18, 80)},{rng.choice(('basic', 'plus'))},{spent:.2f}")
        votes.append(f"c{k},{label if rng.random() < 0.8 else 'stays'},{label if rng.random() < 0.7 else ''}")
        if k < 20:
            gold.append(f"c{k},{label}")
    files = {"customers.csv": rows, "votes.csv": votes, "gold.csv": gold}
    found = settled(lead, send(lead, {name: "\n".join(lines).encode() for name, lines in files.items()}))
    assert found["preview"]["content"] == {"age": "feature", "plan": "feature", "spent": "feature"}
    made = settled(lead, lead.post(f"/api/intakes/{found['id']}/create", {"name": "Customers"}), 120)
    assert made["problem"] is None
    worker.advance(ws, "customers")
    task = lead.post("/api/campaigns/customers/next").json()["tasks"][0]
    assert set(task["content"]["fields"]) == {"age", "plan", "spent"}


def csv_file(*rows: Sequence[object]) -> bytes:
    return "\n".join(",".join(map(str, row)) for row in rows).encode()


def test_votes_on_the_rows_to_label_only_become_a_campaign(lead: Person) -> None:
    held = tweets()
    files = {
        "tweets.csv": csv_file(("id", "text"), *((key, text) for key, text, _ in held[30:])),
        "votes.csv": csv_file(("item", "worker", "label"), *((key, "ann", label) for key, _, label in held[30:])),
        "gold.csv": csv_file(("id", "text", "label"), *held[:30]),
    }
    found = settled(lead, send(lead, files))
    assert (found["preview"]["n_train"], found["preview"]["n_trusted"]) == (len(held) - 30, 30)
    answer = lead.post(f"/api/intakes/{found['id']}/create", {"name": "Votes", "encoders": ["tfidf"]})
    made = settled(lead, answer, 120)
    assert (made["state"], made["problem"]) == ("made", None)


def test_row_numbers_and_case_are_switches_and_every_role_is_shown(lead: Person) -> None:
    shades = [f"c{k}" for k in range(60)]
    rows = [(f"N{k % 60}", f"bird number {k} of the colony", ("Gentoo", "GENTOO", "Adelie", "Adelie")[k % 4] if k < 60 else "",
             f"{k % 4 // 2}", *([k % 7] * 60)) for k in range(90)]  # fmt: skip
    found = settled(
        lead, send(lead, {"birds.csv": csv_file(("Individual ID", "text", "gold", "code", *shades), *rows)})
    )
    where = f"/api/intakes/{found['id']}"
    assert {one["code"] for one in found["preview"]["findings"]} >= {"duplicate-ids", "similar-classes"}
    assert (found["rows_are_ids"], found["fold_case"]) == (False, False)
    found = settled(lead, lead.client.patch(where, json={"rows_are_ids": True, "fold_case": True}))
    assert (found["rows_are_ids"], found["fold_case"]) == (True, True)
    assert found["preview"]["classes"] == ["Adelie", "GENTOO"]
    assert (found["preview"]["n_train"], found["preview"]["n_trusted"]) == (30, 60)
    columns = found["files"][0]["columns"]
    assert len(columns) == 64
    assert columns["code"] == "ignored", "it tells the label"
    said = {"files": [{"path": "birds.csv", "columns": {"code": "shown"}}]}
    found = settled(lead, lead.client.patch(where, json=said))
    assert found["preview"]["content"]["code"] == "shown"
