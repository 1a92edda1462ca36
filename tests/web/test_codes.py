"""Every code of a problem that the source raises and a request can reach is in the OpenAPI document, and is seen here.

Three lists are compared: codes in the source (`tests/web/codes.py`), codes in the document (`x-problem-codes`), and codes
that a request below got as its answer. What is in one and not in the others needs a reason in `NOT_BY_REQUESTS`.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient

from labelchef.base.settings import Settings
from labelchef.server import sharing, worker
from labelchef.server.campaigns import campaigns
from labelchef.server.intake import folders
from labelchef.server.labelling import tasks
from labelchef.server.people import accounts
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.web.problems import STORE
from tests.web.calls import RULE, World, world_in
from tests.web.codes import modules_in_reach, raised
from tests.web.conftest import PASSWORD, small_data
from tests.web.raw_files import tweet_files

CAMPAIGN = "/api/campaigns/animals"
JSON = {"Content-Type": "application/json"}


class Lab:
    """A world, and clients of its people."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ws = world.ws
        self.people = {name: TestClient(world.app, follow_redirects=False) for name in ("lead", "ann", "eve")}
        for name, client in self.people.items():
            client.headers.update(world.session(name))
        self.lead, self.ann, self.eve = self.people["lead"], self.people["ann"], self.people["eve"]
        self.nobody = TestClient(world.app, follow_redirects=False)

    def bearer(self, secret: str) -> dict[str, str]:
        """Headers with a token."""
        return {"Authorization": f"Bearer {secret}"}

    def arrays(self, settings: str = "{}", **changed: tuple[str, bytes] | None) -> httpx2.Response:
        """Upload a campaign of arrays with some of its files changed or left out."""
        files = {name: (self.world.endings[name], body) for name, body in self.world.arrays.items()}
        kept = {name: one for name, one in {**files, **changed}.items() if one is not None}
        return self.lead.post(
            "/api/campaigns", files=kept, data={"name": f"Arrays {self.world.number()}", "settings": settings}
        )

    def settings(self, text: str) -> httpx2.Response:
        """Ask for a campaign with settings."""
        return self.arrays(text)

    def plain(self, name: str, *, n: int = 60, **settings: Any) -> str:
        """A campaign of its own, without a model."""
        made = campaigns.create_campaign(self.ws, name, small_data(n=n), Settings(batch_size=4, **settings), "lead")
        return f"/api/campaigns/{made.slug}"

    def votes(self, body: bytes, name: str = "votes.csv") -> httpx2.Response:
        """Import votes."""
        return self.lead.post(f"{CAMPAIGN}/import-votes", files={"file": (name, body)}, data={"dry_run": "true"})

    def intake(self) -> str:
        """Address of pictures that wait, read."""
        return f"/api/intakes/{self.world.files().id}"

    def rules(self, **changed: Any) -> httpx2.Response:
        """Try a rule."""
        return self.lead.post(f"{self.intake()}/rules", json={"rules": [{**RULE, **changed}]})


Provoke = Callable[[Lab], httpx2.Response]


def npy(array: Any) -> bytes:
    """A file of NumPy."""
    content = io.BytesIO()
    np.save(content, np.asarray(array))
    return content.getvalue()


def _throttled(lab: Lab) -> httpx2.Response:
    for _ in range(12):
        answer = lab.nobody.post("/api/session", json={"name": "rob", "password": "wrong one here"})
    return answer


def _tokens(lab: Lab) -> httpx2.Response:
    for _ in range(accounts.MOST_TOKENS + 1):
        answer = lab.lead.post("/api/tokens", json={"label": "x"})
    accounts.revoke_api_token(lab.world.ws, "lead")
    return answer


def _taken(lab: Lab) -> httpx2.Response:
    item = lab.world.held("lead")
    return lab.ann.post(f"{CAMPAIGN}/votes", json={"item": item, "label": 0})


def _decided(lab: Lab) -> httpx2.Response:
    where = lab.plain("Decided", people=2)
    slug = where.rpartition("/")[2]
    worker.advance(lab.ws, slug)
    found = tasks.next_tasks(lab.ws, slug, "lead", 2)
    assert isinstance(found, list)
    item = found[0].item
    lab.lead.post(f"{where}/decisions", json={"item": item, "label": 0})
    accounts.set_member(lab.ws, slug, "ann", "lead")
    return lab.ann.post(f"{where}/votes", json={"item": item, "label": 0})


def _request_id(lab: Lab) -> httpx2.Response:
    body = {"label": 0, "request_id": "one-request"}
    lab.lead.post(f"{CAMPAIGN}/votes", json={**body, "item": lab.world.held("lead")})
    return lab.lead.post(f"{CAMPAIGN}/votes", json={**body, "item": lab.world.held("lead")})


def _asked_now(lab: Lab) -> httpx2.Response:
    item = lab.world.held("lead")
    lab.lead.post(f"{CAMPAIGN}/decisions", json={"item": item, "label": 0})
    return lab.lead.post(f"{CAMPAIGN}/reopen", json={"item": item})


def _busy(lab: Lab) -> httpx2.Response:
    with contextlib.ExitStack() as stack:
        while sharing._waiting.acquire(blocking=False):
            stack.callback(sharing._waiting.release)
        return lab.lead.get(f"{CAMPAIGN}/export/labels")


def _full(lab: Lab) -> httpx2.Response:
    files = [("files", ("a.csv", b"id,text\n1,a\n"))]
    for _ in range(folders.MOST_INTAKES + 1):
        answer = lab.lead.post("/api/intakes", files=files)
    for one in lab.lead.get("/api/intakes", params={"limit": 200}).json()["entries"]:
        if one["id"] != lab.world._files:
            lab.lead.delete(f"/api/intakes/{one['id']}")
    return answer


def _made(lab: Lab) -> httpx2.Response:
    intake = lab.world.waiting(tweet_files(40, 10))
    lab.world.read(intake)
    lab.lead.post(f"/api/intakes/{intake}/create", json={"name": "Made", "settings": {"budget": 5}})
    lab.world.read(intake)
    return lab.lead.patch(f"/api/intakes/{intake}", json={"files": []})


def _one_class(lab: Lab) -> httpx2.Response:
    rows = "\n".join(f'a{k},"a text about trains number {k % 3}"' for k in range(40))
    gold = "\n".join(f"a{k},only" for k in range(10))
    files = {"t.csv": f"id,text\n{rows}\n".encode(), "gold.csv": f"id,label\n{gold}\n".encode()}
    intake = lab.world.waiting(files)
    lab.world.read(intake)
    lab.lead.patch(f"/api/intakes/{intake}", json={"files": [{"path": "t.csv", "columns": {"text": "text"}}]})
    lab.world.read(intake)
    return lab.lead.get(f"/api/intakes/{intake}/suggestion", params={"column": "text"})


def _no_rules(lab: Lab) -> httpx2.Response:
    rows = "\n".join(f"a{k},unique{k}" for k in range(40))
    gold = "\n".join(f"a{k},{'yes' if k % 2 else 'no'}" for k in range(10))
    intake = lab.world.waiting({"t.csv": f"id,text\n{rows}\n".encode(), "gold.csv": f"id,label\n{gold}\n".encode()})
    lab.world.read(intake)
    lab.lead.patch(f"/api/intakes/{intake}", json={"files": [{"path": "t.csv", "columns": {"text": "text"}}]})
    lab.world.read(intake)
    return lab.lead.get(f"/api/intakes/{intake}/suggestion", params={"column": "text"})


def _not_ready(lab: Lab) -> httpx2.Response:
    intake = lab.world.waiting({"gold.csv": b"id,label\n1,a\n2,b\n"})
    lab.world.read(intake)
    return lab.lead.post(f"/api/intakes/{intake}/create", json={"name": "x"})


def _worker(lab: Lab) -> httpx2.Response:
    lab.world.app.state.worker = SimpleNamespace(alive=False)
    try:
        return lab.nobody.get("/api/health")
    finally:
        del lab.world.app.state.worker


def _laptop(lab: Lab) -> httpx2.Response:
    app = create_app(lab.ws, ServeOptions(), work=False)
    client = TestClient(app, base_url="http://127.0.0.1:8000")
    return client.post("/api/session", json={"name": "lead", "password": PASSWORD})


def _comments(lab: Lab) -> httpx2.Response:
    where = f"{lab.plain('Talk')}/threads/t1"
    for k in range(21):
        answer = lab.lead.post(where, json={"text": f"Comment {k}"})
    return answer


def _no_image(lab: Lab) -> httpx2.Response:
    rows = b"".join(b"t%d,a.png\n" % k for k in range(60))
    made = lab.arrays(items=("items.csv", b"id,image\n" + rows), media=("a.png", b"<script>"))
    return lab.lead.get(f"/api/campaigns/{made.json()['slug']}/items/t1/image")


def _host(lab: Lab) -> httpx2.Response:
    return TestClient(create_app(lab.ws, ServeOptions(), work=False), base_url="http://evil.example").get("/api/health")


def _unknown_account(lab: Lab) -> httpx2.Response:
    return lab.lead.patch("/api/accounts/nobody", json={"active": True})


def _file_exists(lab: Lab) -> httpx2.Response:
    """Upload a file, and another one of its name."""
    sent = [("files", ("a.csv", b"id,text\n1,a\n"))]
    made = lab.lead.post("/api/intakes", files=sent).json()
    return lab.lead.post(f"/api/intakes/{made['id']}/files", files=sent)


def _archived(lab: Lab) -> httpx2.Response:
    """Change a campaign in the archive."""
    there = lab.plain("Away")
    lab.lead.post(f"{there}/archive", json={})
    return lab.lead.patch(f"{there}/settings", json={"budget": 3})


def _steered(lab: Lab) -> httpx2.Response:
    """Look at a source where nothing is learned of sources."""
    there = lab.plain("Steered", trusted="steer")
    worker.advance(lab.ws, "steered")
    return lab.lead.get(f"{there}/source", params={"name": "x"})


PROVOKED: dict[tuple[int, str], Provoke] = {
    (404, "effect"): lambda lab: lab.lead.get(f"{CAMPAIGN}/sources/effect"),
    (404, "source"): lambda lab: lab.lead.get(f"{CAMPAIGN}/source", params={"name": "none"}),
    (409, "no_change"): lambda lab: lab.lead.post(f"{CAMPAIGN}/sources/apply", json={"muted": [], "rules": []}),
    (409, "sources"): _steered,
    (422, "muted"): lambda lab: lab.lead.post(f"{CAMPAIGN}/sources/effect", json={"muted": ["none"]}),
    (422, "rule_column"): lambda lab: lab.lead.post(
        f"{CAMPAIGN}/sources/apply", json={"muted": [], "rules": [{**RULE, "label": "dog", "column": "none"}]}
    ),
    (422, "sort"): lambda lab: lab.lead.get(f"{CAMPAIGN}/sources", params={"sort": "none"}),
    (404, "job"): lambda lab: lab.lead.get(f"{CAMPAIGN}/jobs/none"),
    (409, "archived"): _archived,
    (409, "changed"): lambda lab: lab.lead.patch(
        f"{lab.plain('Changed')}/settings", json={"budget": 7, "seen": {"budget": 6}}
    ),
    (409, "name_taken"): lambda lab: lab.lead.post(f"{CAMPAIGN}/copy", json={"name": "animals"}),
    (409, "running"): lambda lab: lab.lead.delete(f"{CAMPAIGN}/jobs/{lab.world.job()}"),
    (409, "slug_taken"): lambda lab: lab.lead.post(f"{CAMPAIGN}/rename", json={"name": "Animals", "slug": "other"}),
    (422, "confirm"): lambda lab: lab.lead.post(f"{CAMPAIGN}/delete", json={"confirm": "animals"}),
    (422, "slug"): lambda lab: lab.lead.post(f"{CAMPAIGN}/rename", json={"name": "Animals", "slug": "A b"}),
    (404, "comment"): lambda lab: lab.lead.patch(f"{CAMPAIGN}/comments/none", json={"hidden": True}),
    (422, "comment"): lambda lab: lab.lead.post(f"{CAMPAIGN}/threads/t1", json={"text": "  "}),
    (422, "class_name"): lambda lab: lab.lead.put(f"{CAMPAIGN}/guidelines", json={"about": "none", "text": "x"}),
    (422, "guidelines"): lambda lab: lab.lead.post(
        "/api/campaigns/from-folder",
        json={"name": "Long", "folder": f"{lab.world.options.import_root}/arrays", "guidelines": "x" * 20_000},
    ),
    (429, "comments"): _comments,
    (400, "request"): lambda lab: lab.lead.post("/api/campaigns", content=b"x", headers={"Content-Type": "multipart/form-data"}),
    (401, "sign_in"): lambda lab: lab.nobody.get("/api/session"),
    (401, "token"): lambda lab: lab.nobody.get("/api/session", headers=lab.bearer("lc_unknown")),
    (401, "credentials"): lambda lab: lab.nobody.post("/api/session", json={"name": "dora", "password": "wrong one here"}),
    (403, "csrf"): lambda lab: lab.lead.post(f"{CAMPAIGN}/next", json={}, headers={"X-CSRF-Token": "old"}),
    (403, "role"): lambda lab: lab.ann.get("/api/accounts"),
    (403, "own_password"): lambda lab: lab.lead.patch("/api/accounts/lead", json={"password": f"another {PASSWORD}"}),
    (403, "laptop"): _laptop,
    (403, "token_session"): lambda lab: lab.nobody.post("/api/tokens", json={"label": "x"}, headers=lab.world.token("ann")),
    (403, "folder"): lambda lab: lab.lead.post("/api/campaigns/from-folder", json={"name": "x", "folder": "/etc"}),
    (404, "campaign"): lambda lab: lab.eve.get(CAMPAIGN),
    (404, "account"): _unknown_account,
    (404, "chart"): lambda lab: lab.lead.get(f"{CAMPAIGN}/charts/nothing.svg"),
    (404, "image"): lambda lab: lab.lead.get(f"{lab.intake()}/image", params={"path": "nothing.png"}),
    (404, "intake"): lambda lab: lab.lead.get("/api/intakes/nothing"),
    (404, "item"): lambda lab: lab.lead.get(f"{CAMPAIGN}/tasks/nothing"),
    (404, "token"): lambda lab: lab.lead.delete("/api/tokens/nothing"),
    (404, "route"): lambda lab: lab.lead.get("/api/nothing"),
    (405, "method"): lambda lab: lab.lead.put("/api/session"),
    (409, "account"): lambda lab: lab.lead.patch("/api/accounts/lead", json={"active": False}),
    (409, "asked_now"): _asked_now,
    (409, "count"): lambda lab: lab.lead.post(
        f"{CAMPAIGN}/items/actions", json={"action": "ask", "query": {"state": "new"}, "count": 1000}
    ),
    (409, "decided"): _decided,
    (409, "file_exists"): _file_exists,
    (409, "intake_state"): _made,
    (409, "not_asked"): lambda lab: lab.lead.post(f"{CAMPAIGN}/votes", json={"item": lab.world.decided(), "label": 0}),
    (409, "not_decided"): lambda lab: lab.lead.post(f"{lab.plain('Undecided')}/reopen", json={"item": "t1"}),
    (409, "not_leased"): lambda lab: lab.lead.post(f"{CAMPAIGN}/skip", json={"item": lab.world.decided()}),
    (409, "not_ready"): _not_ready,
    (409, "nothing_to_undo"): lambda lab: lab.lead.post(f"{lab.plain('Nothing')}/undo", json={}),
    (409, "preparing"): lambda lab: lab.lead.get(f"{lab.plain('Preparing')}/export/model"),
    (409, "request_id"): _request_id,
    (409, "state"): lambda lab: lab.lead.post(f"{lab.plain('State')}/resume", json={}),
    (409, "taken"): _taken,
    (409, "tokens"): _tokens,
    (413, "size"): lambda lab: lab.nobody.post("/api/session", content=b"x" * (2**20 + 1), headers=JSON),
    (415, "image"): _no_image,
    (421, "host"): _host,
    (422, "input"): lambda lab: lab.lead.post(f"{CAMPAIGN}/votes", json={}),
    (422, "filter"): lambda lab: lab.lead.get(f"{CAMPAIGN}/items", params={"sort": "beauty"}),
    (422, "cursor"): lambda lab: lab.lead.get("/api/campaigns", params={"after": "nothing"}),
    (422, "label"): lambda lab: lab.lead.post(f"{CAMPAIGN}/votes", json={"item": lab.world.held("lead"), "label": "horse"}),
    (422, "format"): lambda lab: lab.lead.get(f"{CAMPAIGN}/export/dataset", params={"format": "docx"}),
    (422, "file"): lambda lab: lab.lead.post("/api/intakes", files=[("files", ("..", b"id\n"))]),
    (422, "same_name"): lambda lab: lab.lead.post("/api/intakes", files=[("files", ("a.csv", b"id\n"))] * 2),
    (422, "code"): lambda lab: lab.lead.post("/api/intakes", files=[("files", ("run.py", b"1"))]),
    (422, "votes"): lambda lab: lab.votes(b"item,annotator,label\nt1,robot,horse\n"),
    (422, "rule"): lambda lab: lab.rules(label="nothing"),
    (422, "rules"): lambda lab: lab.lead.post(f"{lab.intake()}/rules", json={"rules": [RULE, RULE]}),
    (422, "rule_pattern"): lambda lab: lab.rules(kind="regex", pattern="(", words=None),
    (422, "unknown_rule"): lambda lab: lab.lead.post(
        f"{lab.intake()}/suggestion", json={"column": "text", "word": "nothing", "label": "dark", "useful": True}
    ),
    (422, "no_rules"): _no_rules,
    (422, "classes"): _one_class,
    (422, "exchange"): lambda lab: lab.votes(b"task,worker,label\n", "votes.csv"),
    (422, "selector"): lambda lab: lab.settings('{"selector": "nothing"}'),
    (422, "suggestion"): lambda lab: lab.settings('{"selector": "random", "suggestion_votes": true}'),
    (422, "answers"): lambda lab: lab.settings('{"answers": "source", "trusted": "steer"}'),
    (422, "people"): lambda lab: lab.settings('{"people": 0, "suggestion_votes": false}'),
    (422, "gold_share"): lambda lab: lab.settings('{"gold_share": 0.2, "blind_share": 0.1}'),
    (422, "member"): lambda lab: lab.lead.put(f"{CAMPAIGN}/duties/lead", json={"classes": []}),
    (422, "duty"): lambda lab: lab.lead.put(f"{CAMPAIGN}/duties/ann", json={"classes": ["horse"]}),
    (422, "stop"): lambda lab: lab.settings('{"stop": "Nothing(1)"}'),
    (422, "audit"): lambda lab: lab.settings('{"stop": "Audited(0.9)", "audit": 0}'),
    (422, "ahead"): lambda lab: lab.settings('{"ahead": 1000000000000}'),
    (422, "target"): lambda lab: lab.settings('{"target": 1.5}'),
    (422, "cluster"): lambda lab: lab.settings('{"engine": "dask"}'),
    (422, "metric"): lambda lab: lab.settings('{"target": 0.9, "target_metric": "f1"}'),
    (422, "name"): lambda lab: lab.lead.post(
        "/api/campaigns/from-folder", json={"name": "\u202e", "folder": f"{lab.world.options.import_root}/arrays"}
    ),
    (422, "person"): lambda lab: lab.lead.post("/api/accounts", json={"name": "\u202e", "password": PASSWORD}),
    (422, "ids"): lambda lab: lab.arrays(
        weak=("weak.csv", b"id,cat,dog,<b>cow</b>\n" + b"".join(b"x%d,1,0,0\n" % k for k in range(60)))
    ),
    (422, "items"): lambda lab: lab.arrays(val_items=("val_items.csv", b"text\na\n")),
    (422, "media"): lambda lab: lab.arrays(items=("items.csv", b"id,image\n" + b"".join(b"t%d,a.png\n" % k for k in range(60)))),
    (422, "features"): lambda lab: lab.arrays(val_features=("val_features.npy", npy([[np.nan] * 4] * 30))),
    (422, "weak_labels"): lambda lab: lab.arrays(
        weak=("weak.csv", b"id,cat,dog,<b>cow</b>\n" + b"".join(b"t%d,9,9,9\n" % k for k in range(60)))
    ),
    (422, "labels"): lambda lab: lab.arrays(val_labels=("val_labels.csv", b"label\n" + b"horse\n" * 30)),
    (422, "test"): lambda lab: lab.arrays(test_labels=("test_labels.csv", b"label\ncat\n")),
    (422, "val"): lambda lab: lab.arrays(
        val_features=("val_features.npy", npy(np.zeros((0, 4)))), val_labels=("val_labels.csv", b"label\n")
    ),
    (429, "throttled"): _throttled,
    (429, "busy"): _busy,
    (503, "worker"): _worker,
    (409, "intakes"): _full,
}  # fmt: skip

_EXTRA = "an extra that is installed where the tests run"
_STORE = (
    "needs a broken disk or database; tests/web/test_problems.py raises the error in their place and reads the answer"
)
NOT_PROVOKED: dict[tuple[int, str], str] = {
    (409, "edited"): "only by two leads who edit rules at the same moment",
    (409, "last_lead"): "only by two leads who deactivate each other at the same moment",
    (422, "cleanlab"): _EXTRA,
    (422, "datasets"): _EXTRA,
    (422, "onnx"): _EXTRA,
    (422, "sign"): _EXTRA,
    (422, "argilla"): _EXTRA,
    (422, "parquet"): _EXTRA,
    (422, "excel"): _EXTRA,
    (422, "report"): _EXTRA,
    (422, "rule_time"): "takes as long as the limit of a pattern; tests/test_rules.py measures it",
    (422, "memory"): "needs a file of gigabytes once it is unpacked; tests/fuzz_files.py has such files",
    (500, "internal"): "a defect; tests/fuzz_requests.py looks for one",
    **{(503, code): _STORE for code in STORE},
}
"""Codes of the document that no request here gets → why."""
ELSEWHERE: dict[str, set[str]] = {
    "before the server answers: its options, address, accounts, database and extras": {
        "accounts", "binding", "port", "processes", "serve", "database_url", "database_empty", "postgres", "schema",
    },
    "an intake is read and made in the background: its state, findings and message say it, with 200": {
        "column", "columns", "encoder", "files", "functions", "images", "llm", "tables", "text", "weights",
    },
    "the form of the request refuses it before, with `input`": {
        "kind", "limit", "n", "note", "seconds", "settings", "password", "engine", "strategy", "constructor",
    },
    "labelling functions are code, and code is never taken by requests": {
        "function_answer", "label_matrix", "labelling_function",
    },
    "automatic sources and their options are for the command line and Python": {
        "automatic", "primitives", "trusted",
    },
    "simulated and recorded people are for the command line and Python": {
        "annotator", "error_rate", "per_item", "seed", "tie", "truth",
    },
    "the final model is used by the command line and Python": {"coef", "feature_names", "rows", "split"},
    "the worker trains: the campaign fails and its message says why": {
        "cluster_versions", "epochs", "feature_dtype", "features_changed", "indices", "learning_rate", "memory_limit",
    },
    "a query is for the command line": {"sql"},
    "a page, not the API": {"link", "static"},
    "asked by machines, not the API; tests/web/test_probes.py": {"metrics", "metrics_token"},
}  # fmt: skip
"""Why → codes that the source raises and no answer holds."""
COMPUTED: dict[str, str] = {
    "labelchef.data.campaign_data:_split": "val, test",
    "labelchef.data.campaign_data:known_labels": "labels; `test` for test labels",
    "labelchef.base.inputs:as_mask": "only Python",
    "labelchef.model.classifier:LinearClassifier._checked": "only Python",
    "labelchef.model.classifier:_numbers": "only Python",
    "labelchef.base.errors:ThrottledError.__init__": "throttled",
    "labelchef.base.errors:TooLargeError.__init__": "those that are given",
    "labelchef.base.numbers:check_number": "stop, target; others only Python",
    "labelchef.base.numbers:check_whole": "stop; others only Python",
    "labelchef.model.engines.cluster.workers:ClusterError.__init__": "cluster, cluster_versions; the worker trains",
    "labelchef.base.settings:Option.check": "metric; for other settings the form refuses it before, with `input`",
    "labelchef.data.intake.assembling:refuse_errors": "the codes of findings; in the background",
    "labelchef.data.files.tables:_read_vote_table": "votes",
    "labelchef.base.files:writing_to": "out, disk_full",
    "labelchef.believe.rules:Regex.__post_init__": "rule_pattern, rule_time",
    "labelchef.believe.rules:RuleBoard.matches": "rule_pattern, rule_time",
    "labelchef.believe.rules:read_rules": "rule, rules, rule_pattern",
    "labelchef.server.store.arrays:write_array": "disk_full, folder",
    "labelchef.server.store.database:_sentence": "the codes of the store",
    "labelchef.server.web.problems:WebError.__init__": "those that are given",
    "labelchef.server.web.problems:problem": "those that are given",
}
"""Place whose code is not a constant → the codes it gives."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with world_in(tmp_path_factory.mktemp("codes")) as world, TestClient(world.app):
        yield Lab(world)


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), PROVOKED)
def test_a_request_gets_this_code(lab: Lab, status: int, code: str) -> None:
    answer = PROVOKED[status, code](lab)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def _documented(lab: Lab) -> set[tuple[int, str]]:
    codes = lab.nobody.get("/api/openapi.json").json()["x-problem-codes"]
    return {(int(status), code) for status, known in codes.items() for code in known}


def test_every_code_of_the_source_is_in_the_document_or_cannot_reach_it(lab: Lab) -> None:
    constant, computed = raised(modules_in_reach())
    documented, excused = {code for _, code in _documented(lab)}, {one for codes in ELSEWHERE.values() for one in codes}
    unknown = {code: places for code, places in constant.items() if code not in documented | excused}
    assert unknown == {}, "add them to the route that answers so, or to ELSEWHERE with the reason"
    assert sorted(excused - set(constant)) == [], "these are not raised any more"
    assert sorted(excused & documented) == [], "these are in the document"
    assert sorted(set(computed) - set(COMPUTED)) == [], "say in COMPUTED which codes these give"
    assert sorted(set(COMPUTED) - set(computed)) == [], "these are gone"


def test_every_documented_code_is_seen_or_cannot_be_provoked(lab: Lab) -> None:
    documented = _documented(lab)
    seen, excused = set(PROVOKED), {(status, code) for status, code in NOT_PROVOKED}
    assert sorted(documented - seen - excused) == [], "add a request to PROVOKED, or the reason to NOT_PROVOKED"
    assert sorted(seen - documented) == [], "a request gets a code that is not in the document"
    assert sorted(excused & seen) == []
    assert sorted(excused - documented) == []
