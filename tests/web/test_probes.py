"""Health, readiness and metrics of a server, with real faults: a full disk, a database that is stopped, another schema."""

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from labelchef.base.campaigns import CampaignSummary
from labelchef.server import health, worker
from labelchef.server.people import accounts
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import PostgresServer, label_all, make, wait_until
from tests.test_store_files import small_disk
from tests.web.conftest import PASSWORD, Person

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@contextmanager
def client_of(ws: Workspace, **options: Any) -> Iterator[TestClient]:
    """A server over a workspace."""
    with TestClient(create_app(ws, ServeOptions(team=True, **options), work=False), client=("127.0.0.1", 5)) as client:
        yield client


def ready(client: TestClient) -> tuple[int, dict[str, Any]]:
    """Status and checks of /readyz, looked at anew."""
    client.app.state.readiness._last = None  # type: ignore[attr-defined]
    client.app.state.workspace.writable_until = 0.0  # type: ignore[attr-defined]
    answer = client.get("/readyz")
    return answer.status_code, answer.json()["checks"]


def numbers(text: str) -> Numbers:
    """(name, labels) → value of every sample."""
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_a_server_that_works_is_alive_and_ready(ws: Workspace) -> None:
    with client_of(ws) as client:
        assert client.get("/healthz").json()["status"] == "ok"
        status, checks = ready(client)
        assert status == 200
        assert {"database", "schema", "folder", "disk", "worker"} == set(checks)
        assert not checks["worker"]["ok"], "none runs, which is said"
        assert "start `labelchef worker`" in checks["worker"]["told"]
        with worker.Worker(ws):
            assert ready(client)[1]["worker"]["ok"]


def test_a_cluster_is_looked_at_where_there_is_one(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it votes are stored and campaigns wait: it is said, and the server stays ready."""
    with socket.create_server(("127.0.0.1", 0)) as listening, client_of(ws) as client:
        monkeypatch.setenv("LABELCHEF_CLUSTER", f"tcp://127.0.0.1:{listening.getsockname()[1]}")
        status, checks = ready(client)
        assert (status, checks["cluster"]["ok"]) == (200, True)
        listening.close()
        status, checks = ready(client)
        assert (status, checks["cluster"]["ok"]) == (200, False)
        assert "wait for it" in checks["cluster"]["told"]


def test_the_own_worker_that_ended_is_not_ready(ws: Workspace) -> None:
    with client_of(ws) as client:
        own = client.app.state.worker = worker.Worker(ws)  # type: ignore[attr-defined]
        own.start()
        assert ready(client)[1]["worker"]["ok"]
        own.stop()
        assert ready(client)[0] == 503


def test_a_full_disk_is_not_ready(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as home, open_workspace(home) as ws:
        with client_of(ws, least_free_mb=0) as client:
            assert ready(client)[0] == 200
            (home / "full").write_bytes(bytes(2**20))
            with (home / "full").open("ab", buffering=0) as stream:
                while stream.write(bytes(4096)) == 4096 and os.statvfs(home).f_bavail:
                    pass
            status, checks = ready(client)
            assert (status, checks["folder"]["ok"]) == (503, False)
            assert client.get("/healthz").status_code == 200
            (home / "full").unlink()
            assert ready(client)[0] == 200
        with client_of(ws) as client:
            status, checks = ready(client)
            assert (status, checks["disk"]["ok"]) == (503, False), "2 MiB are less than the limit"


def test_a_database_that_is_stopped_or_takes_no_writes_is_not_ready(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    name = url.split("/")[3].split("?")[0]
    with open_workspace(tmp_path / "home", url) as ws, client_of(ws) as client:
        assert ready(client)[0] == 200
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        ws.database.engine.dispose()
        status, checks = ready(client)
        assert (status, checks["database"]["ok"]) == (503, False)
        postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        ws.database.engine.dispose()
        assert ready(client)[0] == 200
        postgres.stop()
        try:
            status, checks = ready(client)
            assert (status, checks["database"]["ok"]) == (503, False)
            assert client.get("/healthz").status_code == 200
        finally:
            postgres.start()
        assert ready(client)[0] == 200
    with warnings.catch_warnings():  # the driver leaves the socket of a broken connection to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_a_database_that_hangs_keeps_nobody_waiting(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another process holds the writer's place: probes are answered after the patience, by one look for all of them."""
    monkeypatch.setattr(health, "PATIENCE", 0.3)
    calls, real = list[int](), ws.database.try_to_write

    def counted() -> None:
        calls.append(1)
        real()

    monkeypatch.setattr(ws.database, "try_to_write", counted)
    with client_of(ws) as client:
        with ws.writing():
            for _ in range(3):
                status, checks = ready(client)
                assert (status, set(checks)) == (503, {"answer"})
            assert len(calls) == 1
        wait_until(lambda: ready(client)[0] == 200)


def test_a_newer_schema_is_not_ready(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws, client_of(ws) as client:
        for revision in ("9999_later", "0202_votes_needed"):
            with ws.writing() as connection:
                connection.execute(sa.text("UPDATE alembic_version SET version_num = :to"), {"to": revision})
            status, checks = ready(client)
            assert (status, checks["schema"]["ok"]) == (503, False)
            assert revision in checks["schema"]["told"]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that can be read but not written, where this user may make one so: root writes against all rights."""

    def mount(*words: str) -> bool:
        return subprocess.run(["mount", *words, str(folder)], capture_output=True, check=False).returncode == 0

    if not mount("--bind", str(folder)):
        pytest.skip("no folder can be made read-only here")
    try:
        assert mount("-o", "remount,bind,ro")
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_folder_that_cannot_be_written_is_not_ready(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws, client_of(ws) as client:
        assert ready(client)[0] == 200
        with read_only(tmp_path / "home"):
            status, checks = ready(client)
            assert (status, checks["folder"]["ok"]) == (503, False)
            assert str(tmp_path) not in json.dumps(checks), "where the home lies is nobody's concern"
        assert ready(client)[0] == 200


def test_probes_answer_to_every_host_name_and_hold_no_names(ws: Workspace, campaign: CampaignSummary) -> None:
    with TestClient(create_app(ws, ServeOptions(), work=False), base_url="http://10.0.0.7:8000") as client:
        assert client.get("/api/health").status_code == 421
        for path in ("/healthz", "/readyz"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert campaign.slug not in answer.text
            assert str(ws.home) not in answer.text


def test_who_may_read_metrics(ws: Workspace) -> None:
    def code_of(client: TestClient, **headers: str) -> tuple[int, str]:
        answer = client.get("/metrics", headers=headers)
        return answer.status_code, "" if answer.status_code == 200 else answer.json()["code"]

    with client_of(ws) as client:
        assert code_of(client) == (404, "metrics")
    with client_of(ws, metrics=True) as client:
        assert code_of(client) == (200, "")
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
            assert code_of(client, **{name: "127.0.0.1"}) == (403, "metrics_token"), "it came through a proxy"
    app = create_app(ws, ServeOptions(team=True, metrics=True), work=False)
    assert code_of(TestClient(app, client=("192.0.2.1", 5))) == (403, "metrics_token")
    with client_of(ws, metrics=True, metrics_token="a secret") as client:
        assert code_of(client) == (401, "metrics_token")
        assert code_of(client, Authorization="Bearer other") == (401, "metrics_token")
        assert code_of(client, Authorization="Bearer a secret") == (200, "")


def test_the_numbers_are_what_was_done(ws: Workspace, campaign: CampaignSummary) -> None:
    with client_of(ws, metrics=True) as client:
        before = numbers(client.get("/metrics").text)
        ann = Person(client)
        ann.sign_in("ann")
        where = f"/api/campaigns/{campaign.slug}"
        items = [one["item"] for one in ann.post(f"{where}/next", {"n": 2}).json()["tasks"]]
        body = {"item": items[0], "label": 0, "request_id": "request-one"}
        for _ in range(2):  # the second stores nothing
            assert ann.post(f"{where}/votes", body).status_code == 200
        assert ann.post(f"{where}/votes", {"item": "t59999", "label": 0}).status_code == 404
        assert ann.post(f"{where}/votes", {**body, "label": 1}).status_code == 409
        make(ws, "Second", people=1, engine="disk")
        label_all(ws, "second", "zoe")
        client.app.state.metrics._measures._last = None  # type: ignore[attr-defined]
        text = client.get("/metrics").text
        after = numbers(text)

    def grew(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0.0)

    votes = "/api/campaigns/{campaign}/votes"
    assert grew("labelchef_requests_total", method="POST", route=votes, status="200") == 2
    assert grew("labelchef_requests_total", method="POST", route=votes, status="409") == 1
    assert grew("labelchef_request_seconds_count", route=votes) == 4
    assert grew("labelchef_votes_stored_total") == 1
    assert grew("labelchef_votes_refused_total", code="item") == 1
    assert grew("labelchef_votes_refused_total", code="request_id") == 1
    assert grew("labelchef_tasks_handed_out_total") >= 2
    assert grew("labelchef_rounds_total") == 2, "the first model and a round"
    assert grew("labelchef_round_steps_total", step="select") == 1
    assert grew("labelchef_round_step_seconds_total", step="construct") > 0
    assert grew("labelchef_sweeps_total") > 0
    assert grew("labelchef_read_bytes_total") >= 60 * 4 * 8, "the features, at least once"
    assert after["labelchef_campaigns", (("state", "running"),)] == 2
    assert after["labelchef_open_leases", ()] >= 1
    assert after["labelchef_disk_free_bytes", ()] > 0
    assert after["labelchef_last_round_timestamp_seconds", ()] == pytest.approx(time.time(), abs=60)
    assert after["labelchef_ready", (("check", "database"),)] == 1
    assert after["labelchef_jobs", (("state", "waiting"),)] == 0
    for name in ("ann", "zoe", campaign.slug, campaign.id, "second", str(ws.home)):
        assert not re.search(rf"[\"/]{re.escape(name)}[\"/]", text), f"{name} is in a label"


def test_metrics_go_on_while_the_database_does_not(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with client_of(ws, metrics=True) as client:
        database = ws.database.path
        assert database is not None
        database.rename(database.with_name("away"))
        found = numbers(client.get("/metrics").text)
        assert found["labelchef_ready", (("check", "database"),)] == 0
        assert ("labelchef_rounds_total", ()) not in found
        database.with_name("away").rename(database)


def test_the_id_of_a_request_is_taken_over_or_made(ws: Workspace) -> None:
    with client_of(ws) as client:
        sent = "0af7651916cd43dd8448eb211c80319c"
        assert client.get("/healthz", headers={"X-Request-ID": sent}).headers["X-Request-ID"] == sent
        made = client.get("/healthz", headers={"X-Request-ID": "ann@example.org"}).headers["X-Request-ID"]
        assert re.fullmatch("[0-9a-f]{32}", made)


@pytest.mark.slow
def test_several_processes_are_counted_together(tmp_path: Path, postgres: PostgresServer) -> None:
    """Two web processes behind one port, one of them killed: its counts stay, and the worker is seen by both."""
    home, url = tmp_path / "home", postgres.new_database()
    with open_workspace(home, url) as ws:
        accounts.create_account(ws, "lead", "lead", PASSWORD)
    port = _free_port()
    command = [sys.executable, "-m", "labelchef", "serve", "--team", "--processes", "2", "--metrics", "--log", "json"]
    given = {
        **os.environ,
        "LABELCHEF_METRICS_TOKEN_FILE": str(tmp_path / "token"),
        "LABELCHEF_DATABASE_FILE": str(tmp_path / "url"),
    }
    (tmp_path / "token").write_text("a secret\n")
    (tmp_path / "url").write_text(f"{url}\n")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--home", str(home), "--port", str(port)], env=given, stdout=log, stderr=log
        )
    try:
        base = f"http://127.0.0.1:{port}"
        wait_until(lambda: _status(f"{base}/readyz") == 200)
        wait_until(lambda: json.loads(_get(f"{base}/readyz"))["checks"]["worker"]["ok"])

        def counted() -> float:
            found = numbers(_get(f"{base}/metrics", {"Authorization": "Bearer a secret"}))
            return found.get(
                ("labelchef_requests_total", (("method", "GET"), ("route", "/healthz"), ("status", "200"))), 0
            )

        assert counted() == 0
        for _ in range(30):
            _get(f"{base}/healthz")
        assert [counted() for _ in range(4)] == [30.0] * 4, "whichever process answers"
        web = [int(one) for one in _children(process.pid) if "serve" in _words(int(one))]
        assert len(web) == 2
        os.kill(web[0], signal.SIGKILL)
        wait_until(lambda: len([one for one in _children(process.pid) if "serve" in _words(int(one))]) == 2)
        wait_until(lambda: _status(f"{base}/readyz") == 200)
        assert counted() == 30.0
        assert _status(f"{base}/metrics") == 401
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert any(line["event"] == "request" for line in lines)
    assert "a secret" not in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_server_that_is_terminated_ends_in_order(tmp_path: Path) -> None:
    """As `systemctl stop` ends it: the worker is stopped, connections are closed, and what is temporary is removed."""
    port, folder = _free_port(), tmp_path / "temporary"
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "labelchef",
        "serve",
        "--metrics",
        "--home",
        str(tmp_path / "home"),
    ]
    process = subprocess.Popen([*command, "--port", str(port)], env={**os.environ, "TMPDIR": str(folder)})
    try:
        wait_until(lambda: _status(f"http://127.0.0.1:{port}/readyz") == 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not list(folder.glob("labelchef-metrics-*"))
        assert not list((tmp_path / "home").glob("*-wal")), "the database was closed"
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _get(url: str, headers: dict[str, str] | None = None) -> str:
    """An answer; a connection that a killed process had is tried again, as browsers do."""
    for _ in range(20):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=10) as answer:
                return str(answer.read().decode())
        except ConnectionError:
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []
