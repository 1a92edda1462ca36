"""How every route is called so that it works for someone who may: for the matrix of roles and routes, and for the fuzz.

`CALLS` has an entry a route; a test fails on a route without one. An entry is a function of a `World` and of the person who
calls. It brings the campaign into a state in which the call works, and gives the request.
"""

import io
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from labelchef.base.campaigns import CampaignState, Role, Shelf
from labelchef.base.intake import Intake, IntakeState
from labelchef.base.jobs import JobKind
from labelchef.base.settings import Settings
from labelchef.server import worker
from labelchef.server.campaigns import campaigns, care
from labelchef.server.campaigns.access import row_of
from labelchef.server.intake import rules, steps
from labelchef.server.items import decisions
from labelchef.server.jobs import jobs
from labelchef.server.labelling import discussions, tasks, votes
from labelchef.server.people import accounts
from labelchef.server.sources import source_effects
from labelchef.server.store import account_table
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.web.policies import CSRF_HEADER, csrf_token
from labelchef.server.web.rendering import static_digest
from labelchef.server.workspace import Workspace, open_workspace
from tests.web.conftest import PASSWORD, small_data
from tests.web.raw_files import image_files, stored, tweet_files
from tests.web.test_api import label_items, upload_files

PEOPLE = {
    "lead": Role.LEAD, "second": Role.LEAD, "ann": Role.ANNOTATOR, "eve": Role.ANNOTATOR, "rob": Role.ANNOTATOR,
    "gone": Role.ANNOTATOR, "dora": Role.ANNOTATOR, "cora": Role.ANNOTATOR, "otto": Role.ANNOTATOR,
}  # fmt: skip
"""Ann and Gone are members of the campaign, Rob was one, Eve never; Gone is deactivated; Dora is what others act on. Cora leads
the campaign, Otto leads another one."""
_LABEL = ("ann", "lead", "second", "cora")
"""Those who may vote."""
RULE = {"name": "late", "kind": "keyword", "column": "text", "label": "dark", "words": ["number"]}
Headers = dict[str, str]
Route = tuple[str, str]
"""(method, path with the names of its parameters)."""


@dataclass(frozen=True)
class Sent:
    """A request that works, and the statuses it may have then."""

    path: str
    ok: tuple[int, ...] = (200,)
    query: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    form: Mapping[str, str] = field(default_factory=dict)
    files: tuple[tuple[str, tuple[str, bytes]], ...] = ()
    session_only: bool = False
    """Whether API tokens are refused, whatever the role."""

    def options(self) -> dict[str, Any]:
        """As a client takes them."""
        found: dict[str, Any] = {"params": dict(self.query)}
        if self.files:
            return {**found, "files": list(self.files), "data": dict(self.form)}
        return found if self.json is None else {**found, "json": self.json}


class World:
    """A workspace with people, a campaign of pictures that is under way, and files that wait to become one."""

    slug = "animals"

    def __init__(self, ws: Workspace, folder: Path) -> None:
        self.ws = ws
        self.options = ServeOptions(team=True, import_root=folder / "imports")
        self.app: FastAPI = create_app(ws, self.options, work=False)
        self.numbers = itertools.count()
        for name, role in PEOPLE.items():
            accounts.create_account(ws, name, role, PASSWORD)
        data = small_data(folder / "media", pictures=True)
        settings = Settings(budget=None, batch_size=4, people=1)
        campaigns.create_campaign(ws, "Animals", data, settings, "lead")
        worker.advance(ws, self.slug)
        for name in ("ann", "rob", "gone"):
            accounts.set_member(ws, self.slug, name, "lead")
        accounts.set_member(ws, self.slug, "rob", "lead", member=False)
        accounts.set_member(ws, self.slug, "cora", "lead", role=Role.LEAD)
        other = campaigns.create_campaign(ws, "Other", small_data(), settings, "lead").slug
        accounts.set_member(ws, other, "otto", "lead", role=Role.LEAD)
        label_items(ws, self.slug, 24)
        self.arrays = {name: path.read_bytes() for name, path in upload_files(folder / "imports" / "arrays").items()}
        self.endings = {path.stem: path.name for path in (folder / "imports" / "arrays").iterdir()}
        stored(folder / "imports" / "tweets", tweet_files(40, 10))
        self._files: str | None = None
        self._written: str | None = None

    def session(self, name: str, *, expired: bool = False) -> Headers:
        """Headers of a browser in which this person is signed in."""
        with self.ws.writing() as connection:
            signed = accounts._begin(connection, row_of(connection, name))
            if expired:
                account_table.end_session(connection, accounts._digest(signed.token))
                account_id, now = row_of(connection, name).id, time.time()
                digest = accounts._digest(signed.token)
                account_table.insert_session(connection, account_id, digest, now - 100, now - 1)
        return {"Cookie": f"{self.options.cookie}={signed.token}", CSRF_HEADER: csrf_token(signed.token)}

    def token(self, name: str) -> Headers:
        """Headers of a program with a token of this person."""
        return {"Authorization": f"Bearer {accounts.create_api_token(self.ws, name, 'program')[0]}"}

    def number(self) -> int:
        """Another one each time."""
        return next(self.numbers)

    def running(self, paused: bool = False) -> None:
        """Let the campaign run, or pause it; what others did to it is taken back."""
        for one in campaigns.list_campaigns(self.ws, shelf=Shelf.DELETED):
            if one.slug == self.slug:
                care.restore(self.ws, self.slug, "lead")
        care.reopen(self.ws, self.slug, "lead")
        state = campaigns.summary(self.ws, self.slug).state
        if state is not CampaignState.RUNNING:
            campaigns.resume(self.ws, self.slug, "lead")
        if paused:
            campaigns.pause(self.ws, self.slug, "lead")

    def job(self) -> str:
        """A job that waits, and no other."""
        self.running()
        for one in jobs.jobs(self.ws, self.slug):
            jobs.cancel(self.ws, self.slug, one.id)
        return jobs.start(self.ws, self.slug, JobKind.REPLAY, "lead", {}).id

    def written(self) -> str:
        """A job that has written a file."""
        self.job()
        if self._written is None:
            self._written = jobs.start(self.ws, self.slug, JobKind.PREDICTIONS, "lead", {}).id
            runner = jobs.JobRunner(self.ws)
            while runner._next():
                pass
        return self._written

    def held(self, person: str) -> str:
        """An item that this person labels next; any item for those who may not."""
        self.running()
        if person not in _LABEL:
            return "t1"
        found = tasks.next_tasks(self.ws, self.slug, person, 1)
        if not isinstance(found, list):  # others hold the rest of the batch: let them vote
            for other in _LABEL:
                theirs = tasks.next_tasks(self.ws, self.slug, other, 10)
                for task in theirs if isinstance(theirs, list) else ():
                    votes.cast_vote(self.ws, self.slug, other, task.item, 0)
            worker.advance(self.ws, self.slug)
            found = tasks.next_tasks(self.ws, self.slug, person, 1)
        assert isinstance(found, list), found
        return found[0].item

    def voted(self, person: str) -> str:
        """An item this person has just voted on."""
        item = self.held(person)
        if person in _LABEL:
            votes.cast_vote(self.ws, self.slug, person, item, 0)
        return item

    def said(self) -> str:
        """The id of a comment."""
        known = discussions.threads(self.ws, self.slug, "lead")
        ids = [said.id for thread in known for said in thread.comments if said.id is not None]
        if not ids:
            found = discussions.add(self.ws, self.slug, "lead", "t2", "Look at this.", lead=True)
            ids = [str(found.comments[-1].id)]
        return str(ids[0])

    def decided(self) -> str:
        """An item that a lead has decided and that is not being asked."""
        asked = campaigns.status(self.ws, self.slug).open_round
        open_now = {one.item for one in asked.items} if asked else set()
        item = next(f"t{k}" for k in range(59, 0, -1) if f"t{k}" not in open_now)
        decisions.resolve(self.ws, self.slug, item, 0, "lead")
        return item

    def files(self) -> Intake:
        """Pictures with captions that wait to become a campaign, read."""
        if self._files not in [one.id for one in steps.list_intakes(self.ws)]:
            self._files = self.waiting(image_files(captions=True))
        return self.read(str(self._files))

    def forget(self) -> None:
        """Upload the pictures anew when they are needed: something was done to those that wait."""
        self._files = None

    def waiting(self, files: Mapping[str, bytes]) -> str:
        """Upload files; the id of the intake."""
        for old in steps.list_intakes(self.ws):
            if old.id != self._files:
                steps.delete(self.ws, old.id)
        return steps.start(self.ws, [(name, io.BytesIO(body)) for name, body in files.items()], "lead").id

    def read(self, intake: str) -> Intake:
        """An intake when nothing is being done with it."""
        while (found := steps.look(self.ws, intake)).state in (IntakeState.READING, IntakeState.CREATING):
            time.sleep(0.02)
        return found

    def picture(self) -> str:
        """A picture of the preview."""
        preview = self.files().preview
        assert preview is not None
        return str(preview.rows[0].content["image"])


@contextmanager
def world_in(folder: Path) -> Iterator[World]:
    """A world with a database of its own."""
    with open_workspace(folder / "home") as ws:
        yield World(ws, folder)


Call = Callable[[World, str], Sent]
C, K = "/api/campaigns/{campaign}", "/c/{campaign}"


def _of(rest: str, **more: Any) -> Call:
    """A request about the campaign while it runs."""

    def call(world: World, person: str) -> Sent:
        world.running()
        return Sent(rest.replace("{campaign}", world.slug), **more)

    return call


def _intake(rest: str, **more: Any) -> Call:
    def call(world: World, person: str) -> Sent:
        return Sent(f"/api/intakes/{world.files().id}{rest}", **more)

    return call


def _made(world: World, person: str) -> Sent:
    intake = world.waiting(tweet_files(40, 10))
    world.read(intake)
    return Sent(
        f"/api/intakes/{intake}/create", (202,), json={"name": f"Made {world.number()}", "settings": {"budget": 5}}
    )


def _answered(world: World, person: str) -> Sent:
    rule = rules.suggest(world.ws, world.files().id, "text").rule
    body = {"column": "text", "word": rule.words[0], "label": rule.label, "useful": None}
    return Sent(f"/api/intakes/{world.files().id}/suggestion", json=body)


def _state(world: World, what: str, paused: bool) -> Sent:
    world.running(paused)
    return Sent(f"/api/campaigns/{world.slug}/{what}")


def _tweets() -> tuple[tuple[str, tuple[str, bytes]], ...]:
    return tuple(("files", (name, body)) for name, body in tweet_files(40, 10).items())


def _upload(world: World) -> Sent:
    files = tuple((name, (world.endings[name], body)) for name, body in world.arrays.items())
    return Sent(
        "/api/campaigns", (201,), files=files, form={"name": f"Uploaded {world.number()}", "settings": '{"budget": 5}'}
    )


def _export(what: str) -> Call:
    return _of(f"{C}/export/{what}")


def _revoked(world: World, person: str) -> Sent:
    known = accounts.create_api_token(world.ws, person, "old")[1].id if person in PEOPLE else "xyz"
    return Sent(f"/api/tokens/{known}", (204,))


def _restored(world: World, person: str) -> Sent:
    world.running()
    care.delete(world.ws, world.slug, "lead", confirm="Animals")
    return Sent(f"/api/campaigns/{world.slug}/restore", json={})


def _started(world: World, person: str) -> Sent:
    world.job()
    return Sent(f"/api/campaigns/{world.slug}/jobs", (202,), json={"kind": "dataset", "format": "csv"})


_PASSWORDS = {"current": PASSWORD, "password": PASSWORD}


def _effect(world: World) -> Sent:
    """An effect of other sources that was asked for."""
    source_effects.begin(world.ws, world.slug, source_effects.Proposal(()))
    return Sent(f"/api/campaigns/{world.slug}/sources/effect")


CALLS: dict[Route, Call] = {
    ("GET", "/api/health"): lambda w, p: Sent("/api/health"),
    ("GET", "/healthz"): lambda w, p: Sent("/healthz"),
    ("GET", "/readyz"): lambda w, p: Sent("/readyz"),
    ("GET", "/metrics"): lambda w, p: Sent("/metrics"),
    ("POST", "/api/session"): lambda w, p: Sent("/api/session", json={"name": "dora", "password": PASSWORD}),
    ("GET", "/api/session"): lambda w, p: Sent("/api/session"),
    ("DELETE", "/api/session"): lambda w, p: Sent("/api/session", (204,)),
    ("PATCH", "/api/account"): lambda w, p: Sent("/api/account", json=_PASSWORDS, session_only=True),
    ("GET", "/api/tokens"): lambda w, p: Sent("/api/tokens"),
    ("POST", "/api/tokens"): lambda w, p: Sent("/api/tokens", (201,), json={"label": "a"}, session_only=True),
    ("DELETE", "/api/tokens/{token}"): _revoked,
    ("GET", "/api/campaigns"): lambda w, p: Sent("/api/campaigns"),
    ("POST", "/api/campaigns"): lambda w, p: _upload(w),
    ("POST", "/api/campaigns/from-folder"): lambda w, p: Sent(
        "/api/campaigns/from-folder", (201,), json={"name": f"Read {w.number()}", "folder": f"{w.options.import_root}/arrays"}
    ),
    ("GET", C): _of(C),
    ("GET", f"{C}/status"): _of(f"{C}/status"),
    ("GET", f"{C}/rounds"): _of(f"{C}/rounds"),
    ("GET", f"{C}/audit"): _of(f"{C}/audit"),
    ("GET", f"{C}/sources"): _of(f"{C}/sources"),
    ("GET", f"{C}/source"): _of(f"{C}/source", query={"name": "weak labels"}),
    ("POST", f"{C}/sources/effect"): _of(f"{C}/sources/effect", ok=(202,), json={"muted": ["weak labels"]}),
    ("GET", f"{C}/sources/effect"): lambda w, p: _effect(w),
    ("DELETE", f"{C}/sources/effect"): lambda w, p: _effect(w),
    ("POST", f"{C}/sources/apply"): _of(f"{C}/sources/apply", json={"muted": []}),
    ("GET", f"{C}/rules"): _of(f"{C}/rules"),
    ("POST", f"{C}/rules"): _of(f"{C}/rules", json={"rules": [{**RULE, "label": "dog"}]}),
    ("GET", f"{C}/quality"): _of(f"{C}/quality"),
    ("GET", f"{C}/mine"): _of(f"{C}/mine"),
    ("GET", f"{C}/duties"): _of(f"{C}/duties"),
    ("PUT", f"{C}/duties/{{name:path}}"): _of(f"{C}/duties/ann", ok=(204,), json={"classes": []}),
    ("GET", f"{C}/changes"): _of(f"{C}/changes", query={"since": -1, "timeout": 0}),
    ("GET", f"{C}/charts/{{chart}}.svg"): _of(f"{C}/charts/metric.svg"),
    ("GET", "/api/intakes"): lambda w, p: Sent("/api/intakes"),
    ("POST", "/api/intakes"): lambda w, p: Sent("/api/intakes", (201,), files=_tweets()),
    ("POST", "/api/intakes/from-folder"): lambda w, p: Sent(
        "/api/intakes/from-folder", (201,), json={"folder": f"{w.options.import_root}/tweets"}
    ),
    ("GET", "/api/intakes/{intake}"): _intake(""),
    ("POST", "/api/intakes/{intake}/files"): lambda w, p: Sent(
        f"/api/intakes/{w.files().id}/files", files=(("files", (f"more{w.number()}.csv", b"id,length\nk0,3\n")),)
    ),
    ("PATCH", "/api/intakes/{intake}"): _intake("", json={"files": []}),
    ("POST", "/api/intakes/{intake}/rules"): _intake("/rules", json={"rules": [RULE]}),
    ("PUT", "/api/intakes/{intake}/rules"): _intake("/rules", json={"rules": [RULE]}),
    ("GET", "/api/intakes/{intake}/rules.toml"): _intake("/rules.toml"),
    ("GET", "/api/intakes/{intake}/suggestion"): _intake("/suggestion", query={"column": "text"}),
    ("POST", "/api/intakes/{intake}/suggestion"): _answered,
    ("POST", "/api/intakes/{intake}/create"): _made,
    ("DELETE", "/api/intakes/{intake}"): lambda w, p: Sent(f"/api/intakes/{w.waiting(tweet_files(40, 10))}", (204,)),
    ("GET", "/api/intakes/{intake}/image"): lambda w, p: Sent(
        f"/api/intakes/{w.files().id}/image", query={"path": w.picture()}
    ),
    ("POST", f"{C}/next"): _of(f"{C}/next", json={}),
    ("POST", f"{C}/votes"): lambda w, p: Sent(
        f"/api/campaigns/{w.slug}/votes", json={"item": w.held(p), "label": 0, "note": "sure", "seconds": 1.5}
    ),
    ("POST", f"{C}/undo"): lambda w, p: Sent(f"/api/campaigns/{w.slug}/undo", json={} if w.voted(p) else None),
    ("POST", f"{C}/skip"): lambda w, p: Sent(f"/api/campaigns/{w.slug}/skip", json={"item": w.held(p)}),
    ("GET", f"{C}/tasks/{{item:path}}"): lambda w, p: Sent(f"/api/campaigns/{w.slug}/tasks/{w.held(p)}"),
    ("GET", f"{C}/items/{{item:path}}/image"): _of(f"{C}/items/t1/image"),
    ("GET", f"{C}/items"): _of(f"{C}/items", query={"q": "text", "sort": "doubt", "limit": 5}),
    ("GET", f"{C}/map"): _of(f"{C}/map"),
    ("GET", f"{C}/items/{{item:path}}/detail"): _of(f"{C}/items/t1/detail"),
    ("GET", f"{C}/items/{{item:path}}/similar"): _of(f"{C}/items/t1/similar", query={"n": 3}),
    ("POST", f"{C}/items/actions"): _of(f"{C}/items/actions", json={"action": "decide", "label": 1, "items": ["t41", "t42"]}),
    ("GET", f"{C}/guidelines"): _of(f"{C}/guidelines"),
    ("PUT", f"{C}/guidelines"): _of(f"{C}/guidelines", json={"text": "Read **all** of it.", "about": "dog"}),
    ("GET", f"{C}/guidelines/versions"): _of(f"{C}/guidelines/versions"),
    ("POST", f"{C}/guidelines/preview"): _of(f"{C}/guidelines/preview", json={"text": "# A"}),
    ("GET", f"{C}/news"): _of(f"{C}/news"),
    ("PUT", f"{C}/seen"): lambda w, p: Sent(
        f"/api/campaigns/{w.slug}/seen", (204,), json={"guidelines": 1, "item": w.held(p)}
    ),
    ("GET", f"{C}/threads"): _of(f"{C}/threads"),
    ("GET", f"{C}/threads/{{item:path}}"): lambda w, p: Sent(f"/api/campaigns/{w.slug}/threads/{w.held(p)}"),
    ("POST", f"{C}/threads/{{item:path}}"): lambda w, p: Sent(
        f"/api/campaigns/{w.slug}/threads/{w.held(p)}", json={"text": "What is this?"}
    ),
    ("PATCH", f"{C}/threads/{{item:path}}"): _of(f"{C}/threads/t1", json={"resolved": True}),
    ("PATCH", f"{C}/comments/{{comment}}"): lambda w, p: Sent(
        f"/api/campaigns/{w.slug}/comments/{w.said()}", json={"hidden": True}
    ),
    ("PATCH", f"{C}/settings"): _of(f"{C}/settings", json={"batch_size": 4}),
    ("POST", f"{C}/pause"): lambda w, p: _state(w, "pause", False),
    ("POST", f"{C}/resume"): lambda w, p: _state(w, "resume", True),
    ("POST", f"{C}/stop"): lambda w, p: _state(w, "stop", False),
    ("POST", f"{C}/free"): _of(f"{C}/free", ok=(204,), json={"person": "dora"}),
    ("GET", f"{C}/conflicts"): _of(f"{C}/conflicts"),
    ("POST", f"{C}/decisions"): _of(f"{C}/decisions", ok=(204,), json={"item": "t40", "label": "dog"}),
    ("POST", f"{C}/reopen"): lambda w, p: Sent(f"/api/campaigns/{w.slug}/reopen", (204,), json={"item": w.decided()}),
    ("GET", f"{C}/ledger"): _of(f"{C}/ledger", query={"kind": "vote", "limit": 5}),
    ("GET", f"{C}/members"): _of(f"{C}/members"),
    ("PUT", f"{C}/members/{{name:path}}"): _of(f"{C}/members/dora", ok=(204,)),
    ("DELETE", f"{C}/members/{{name:path}}"): _of(f"{C}/members/dora", ok=(204,)),
    ("GET", f"{C}/export/dataset"): _export("dataset"),
    ("GET", f"{C}/export/predictions"): _export("predictions"),
    ("GET", f"{C}/export/labels"): _export("labels"),
    ("GET", f"{C}/export/votes"): _export("votes"),
    ("GET", f"{C}/export/ledger"): _export("ledger"),
    ("GET", f"{C}/export/model"): _export("model"),
    ("POST", f"{C}/import-votes"): _of(
        f"{C}/import-votes", files=(("file", ("votes.csv", b"item,annotator,label\nt1,robot,dog\n")),),
        form={"dry_run": "true"},
    ),
    ("GET", f"{C}/report"): _of(f"{C}/report"),
    ("POST", f"{C}/replay"): _of(f"{C}/replay", json={}),
    ("POST", f"{C}/rename"): _of(f"{C}/rename", json={"name": "Animals"}),
    ("POST", f"{C}/archive"): _of(f"{C}/archive", json={}),
    ("POST", f"{C}/unarchive"): _of(f"{C}/unarchive", json={}),
    ("POST", f"{C}/delete"): _of(f"{C}/delete", json={"confirm": "Animals"}),
    ("POST", f"{C}/restore"): _restored,
    ("POST", f"{C}/copy"): lambda w, p: Sent(
        f"/api/campaigns/{w.slug}/copy", (201,), json={"name": f"Copy {w.number()}", "settings": {"budget": 3}}
    ),
    ("GET", f"{C}/jobs"): _of(f"{C}/jobs"),
    ("POST", f"{C}/jobs"): _started,
    ("GET", f"{C}/jobs/{{job}}"): lambda w, p: Sent(f"/api/campaigns/{w.slug}/jobs/{w.job()}"),
    ("GET", f"{C}/jobs/{{job}}/file"): lambda w, p: Sent(f"/api/campaigns/{w.slug}/jobs/{w.written()}/file"),
    ("POST", f"{C}/jobs/{{job}}/cancel"): lambda w, p: Sent(f"/api/campaigns/{w.slug}/jobs/{w.job()}/cancel", json={}),
    ("POST", f"{C}/jobs/{{job}}/again"): lambda w, p: Sent(
        f"/api/campaigns/{w.slug}/jobs/{w.job()}/again", (202,), json={}
    ),
    ("DELETE", f"{C}/jobs/{{job}}"): lambda w, p: Sent(
        f"/api/campaigns/{w.slug}/jobs/{jobs.cancel(w.ws, w.slug, w.job()).id}", (204,)
    ),
    ("GET", "/api/accounts"): lambda w, p: Sent("/api/accounts"),
    ("POST", "/api/accounts"): lambda w, p: Sent(
        "/api/accounts", (201,), json={"name": f"new {w.number()}", "password": PASSWORD}
    ),
    ("PATCH", "/api/accounts/{name:path}"): lambda w, p: Sent("/api/accounts/dora", json={"active": True}),
    ("DELETE", "/api/accounts/{name:path}/tokens"): lambda w, p: Sent("/api/accounts/dora/tokens", (204,)),
    ("GET", "/api/openapi.json"): lambda w, p: Sent("/api/openapi.json"),
    ("GET", "/static/{digest}/{path:path}"): lambda w, p: Sent(f"/static/{static_digest()}/labelchef.css"),
    ("GET", "/start"): lambda w, p: Sent("/start", (303,), query={"token": accounts.create_link(w.ws)}),
    ("GET", "/sign-in"): lambda w, p: Sent("/sign-in", (200, 303)),
    ("GET", "/"): lambda w, p: Sent("/"),
    ("GET", "/new"): lambda w, p: Sent("/new"),
    ("GET", "/account"): lambda w, p: Sent("/account"),
    ("GET", "/people"): lambda w, p: Sent("/people"),
    ("GET", K): _of(K, ok=(303,)),
    ("GET", f"{K}/label"): _of(f"{K}/label"),
    ("GET", f"{K}/progress"): _of(f"{K}/progress", ok=(200, 303)),
    ("GET", f"{K}/mine"): _of(f"{K}/mine"),
    ("GET", f"{K}/lead"): _of(f"{K}/lead"),
    **{
        ("GET", f"{K}/lead/{part}"): _of(f"{K}/lead/{part}")
        for part in (
            "settings", "take-home", "people", "sources", "source", "ledger", "items", "copy",
        )
    },
    **{
        ("GET", f"{K}/lead/{part}"): _of(f"{K}/lead/{part}", ok=(308,))
        for part in ("conflicts", "discussions", "guidelines", "members", "quality", "export", "jobs")
    },
    ("GET", f"{K}/lead/items/{{item:path}}"): _of(f"{K}/lead/items/t1"),
}  # fmt: skip
"""Of every route, how it is called."""
