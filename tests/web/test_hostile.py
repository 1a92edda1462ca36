"""Requests that mean harm, one defect each: passwords by token, reused request ids, null characters, homes of nobody, files of
one name, a disk that is full."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from labelchef.base.campaigns import CampaignSummary, Role
from labelchef.base.errors import InvalidInputError
from labelchef.server.people import accounts
from labelchef.server.store.rows import storable
from labelchef.server.workspace import Workspace
from tests.web.conftest import PASSWORD, Person

Sign = Callable[[str], Person]
NEW = "another long password"


def bearer(person: Person) -> dict[str, str]:
    """A fresh API token of this person, as a header."""
    return {"Authorization": f"Bearer {person.post('/api/tokens', {'label': 'script'}).json()['secret']}"}


@pytest.mark.parametrize("name", ["lead", "second", "ann"])
def test_an_api_token_sets_no_password(
    client: TestClient, ws: Workspace, as_person: Sign, people: Any, name: str
) -> None:
    accounts.create_account(ws, "second", Role.LEAD, PASSWORD)
    token = bearer(as_person("lead"))
    answer = client.patch(f"/api/accounts/{name}", json={"password": NEW}, headers=token)
    assert (answer.status_code, answer.json()["code"]) == (403, "token_session")
    assert Person(client).sign_in(name).status_code == 200, "the password is as before"


def test_an_api_token_makes_annotators_but_no_leads(client: TestClient, as_person: Sign, people: Any) -> None:
    token, form = bearer(as_person("lead")), {"name": "new", "password": NEW}
    lead = client.post("/api/accounts", json={**form, "role": "lead"}, headers=token)
    assert (lead.status_code, lead.json()["code"]) == (403, "token_session")
    assert client.post("/api/accounts", json=form, headers=token).status_code == 201


def test_a_session_cannot_set_its_own_password_without_the_current_one(as_person: Sign, people: Any) -> None:
    lead = as_person("lead")
    answer = lead.client.patch("/api/accounts/lead", json={"password": NEW})
    assert (answer.status_code, answer.json()["code"]) == (403, "own_password")
    assert lead.client.patch("/api/accounts/ann", json={"password": NEW}).status_code == 200, "of others it can"


@pytest.mark.parametrize("own", [True, False])
def test_a_new_password_ends_sessions_and_api_tokens(
    client: TestClient, as_person: Sign, people: Any, own: bool
) -> None:
    lead, ann, elsewhere = as_person("lead"), as_person("ann"), as_person("ann")
    token = bearer(ann)
    assert client.get("/api/session", headers=token).status_code == 200
    if own:
        changed = ann.client.patch("/api/account", json={"current": PASSWORD, "password": NEW})
    else:
        changed = lead.client.patch("/api/accounts/ann", json={"password": NEW})
    assert changed.status_code == 200
    assert client.get("/api/session", headers=token).status_code == 401
    assert elsewhere.get("/api/session").status_code == 401
    assert ann.get("/api/session").status_code == (200 if own else 401), "one's own new session goes on"
    assert "API tokens of this account end" in as_person("lead").get("/account").text


def test_a_request_id_is_for_one_action(as_person: Sign, campaign: CampaignSummary) -> None:
    ann, base = as_person("ann"), f"/api/campaigns/{campaign.slug}"
    first, second = (one["item"] for one in ann.post(f"{base}/next", {"n": 2}).json()["tasks"])

    def refused(path: str, body: dict[str, Any]) -> None:
        answer = ann.post(f"{base}/{path}", body)
        assert (answer.status_code, answer.json()["code"]) == (409, "request_id"), answer.text

    vote = {"item": first, "label": 0, "request_id": "vote-0001"}
    assert ann.post(f"{base}/votes", vote).status_code == 200
    refused("undo", {"request_id": "vote-0001"})
    refused("votes", {**vote, "note": "another"})
    refused("votes", {**vote, "label": 1})
    refused("votes", {**vote, "label": None})
    refused("votes", {**vote, "item": second})
    again = ann.post(f"{base}/votes", {**vote, "label": "cat"}).json()["vote"]
    assert (again["repeated"], again["label"]) == (True, 0), "the same class by its name"
    assert ann.get(f"{base}/tasks/{first}").json()["own_vote"]["label"] == 0, "nothing was taken back"
    assert ann.post(f"{base}/undo", {"request_id": "undo-0001"}).status_code == 200
    refused("votes", {**vote, "request_id": "undo-0001"})
    assert ann.get(f"{base}/tasks/{first}").json()["own_vote"] is None
    assert ann.post(f"{base}/votes", {**vote, "request_id": "vote-0002"}).status_code == 200


def bodies(app: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and JSON schema of every route that takes JSON."""
    document = app.openapi()
    found = []
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            schema = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if schema is not None:
                found.append((method.upper(), path, _resolved(schema, document)))
    return found


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return _resolved(document["components"]["schemas"][name], document)
    if "anyOf" in schema:
        return _resolved(next(one for one in schema["anyOf"] if one.get("type") != "null"), document)
    return schema


def test_null_characters_are_refused_on_every_route(as_person: Sign, campaign: CampaignSummary) -> None:
    lead = as_person("lead")
    tried = 0
    for method, path, schema in bodies(lead.client.app):
        address = path.replace("{campaign}", campaign.slug).replace("{", "").replace("}", "").replace(":path", "")
        for field in schema["properties"]:
            for value in ("a\x00b", ["a\x00b"], [{"name": "a\x00b"}], {"a\x00b": "a"}):
                answer = lead.client.request(method, address, json={field: value})
                assert answer.status_code == 422, (method, address, field, answer.text)
                tried += 1
    assert tried > 100
    for path in (
        f"/api/campaigns/{campaign.slug}/ledger?person=%00",
        "/api/campaigns/a%00",
        "/c/%00/label",
        "/?after=a%00",
    ):
        answer = lead.get(path)
        assert (answer.status_code, answer.json()["code"]) == (422, "input"), path


def test_the_store_takes_no_null_character_from_anywhere(ws: Workspace, campaign: CampaignSummary) -> None:
    """Files and the command line reach the store without a form."""
    from labelchef.server.store import campaign_table

    assert not storable("a\x00")
    with pytest.raises(InvalidInputError, match="null character"), ws.writing() as connection:
        campaign_table.update_campaign(connection, 1, message="a\x00b")


@pytest.mark.parametrize("folder", ["~nosuchuser/x", "x" * 300, "a/../" * 90])
@pytest.mark.parametrize("route", ["campaigns", "intakes"])
def test_a_folder_of_nobody_is_an_error_of_the_request(as_person: Sign, people: Any, route: str, folder: str) -> None:
    form = {"folder": folder} | ({"name": "Mails"} if route == "campaigns" else {})
    answer = as_person("lead").post(f"/api/{route}/from-folder", form)
    assert answer.status_code in (403, 422), answer.text
    assert answer.json()["code"] in ("file", "folder")


def test_parts_that_come_twice_are_refused(as_person: Sign, people: Any) -> None:
    lead, part = as_person("lead"), ("weak", ("weak.csv", b"id,a\n1,1\n"))
    answer = lead.client.post("/api/campaigns", data={"name": "Mails"}, files=[part, part])
    assert (answer.status_code, answer.json()["code"]) == (422, "same_name")


_FULL = """
import resource, sys
from pathlib import Path
from fastapi.testclient import TestClient
from labelchef.server.workspace import open_workspace
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions

with open_workspace(Path(sys.argv[1])) as ws, TestClient(create_app(ws, ServeOptions(team=True), work=False)) as client:
    assert client.get("/api/health").status_code == 200
    ws.writable_until = 0.0
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    answer = client.get("/api/health")
print(answer.status_code, answer.json()["code"], answer.json()["detail"])
"""


def test_health_is_not_good_while_nothing_can_be_written(tmp_path: Path) -> None:
    """A limit on the size of files makes every write to the home fail, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "home")], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("503 home "), done.stdout + done.stderr
    assert str(tmp_path) not in done.stdout, "where the home lies is for leads only"


_FEW_HANDLES = """
import io, os, resource, sys, time
from pathlib import Path
from fastapi.testclient import TestClient
from PIL import Image
from labelchef.server.people import accounts
from labelchef.server.workspace import open_workspace
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions

def picture(k):
    buffer = io.BytesIO()
    Image.new("L", (8, 8), color=k).save(buffer, "PNG")
    return buffer.getvalue() + bytes(int(sys.argv[2]))  # larger than what is kept in memory

home, n = Path(sys.argv[1]), int(sys.argv[3])
with open_workspace(home) as ws:
    accounts.create_account(ws, "lead", "lead", None)
    token = {"Authorization": "Bearer " + accounts.create_api_token(ws, "lead", "t")[0]}
    with TestClient(create_app(ws, ServeOptions(team=True), work=False), headers=token) as client:
        client.get("/api/health")
        table = "id,image,label\\n" + "".join(f"i{k},{k}.png,{'ab'[k % 3 // 2]}\\n" for k in range(n))
        parts = [("files", (f"{k}.png", picture(k))) for k in range(n)] + [("files", ("items.csv", table.encode()))]
        gold = "id,label\\n" + "".join(f"i{k},{'ab'[k % 2]}\\n" for k in range(n // 2))
        parts.append(("files", ("gold.csv", gold.encode())))
        most = len(os.listdir("/proc/self/fd")) + 25
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        answer = client.post("/api/intakes", files=parts)
        assert answer.status_code == 201, answer.text
        found = answer.json()

        def settled(found):
            while found["state"] in ("reading", "creating"):
                time.sleep(0.05)
                found = client.get(f"/api/intakes/{found['id']}").json()
            return found

        found = settled(found)
        assert found["preview"]["usable"], found
        asked = client.post(f"/api/intakes/{found['id']}/create", json={"name": "Pictures"})
        assert asked.status_code == 202, asked.text
        found = settled(asked.json())
print(found["state"], found["problem"])
"""


def test_many_pictures_need_few_file_handles(tmp_path: Path) -> None:
    """Twice as many pictures as there are file handles, each too large for memory: uploaded, looked at, made a campaign."""
    command = [sys.executable, "-c", _FEW_HANDLES, str(tmp_path / "home"), str(2**20), "50"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("made None"), done.stdout + done.stderr[-2000:]


def test_thousands_of_unknown_names_give_one_error(client: TestClient, people: Any) -> None:
    answer = client.post("/api/session", content=json.dumps({f"k{n}": n for n in range(1000)}))
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 1
    few = client.post("/api/session", json={"name": "a", "password": "b", "x": 1, "y": 2}).json()["errors"]
    assert sorted(one["where"] for one in few) == ["body.x", "body.y"]
