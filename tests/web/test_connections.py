"""Connections that are held, with real sockets: on a server process alone, and behind nginx with the file of deploy/."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from benchmarks.serving import free_port

from labelchef.server.people import accounts
from labelchef.server.workspace import open_workspace
from tests.store_support import wait_until
from tests.test_deploy import DEPLOY, tool
from tests.web.conftest import make_campaign

Address = tuple[str, int]


@contextmanager
def serving(home: Path, **environment: str) -> Iterator[tuple[Address, dict[str, str]]]:
    """A server process with one campaign: its address, and the header of an annotator."""
    with open_workspace(home) as ws:
        accounts.create_account(ws, "lead", "lead", "a long enough password")
        accounts.create_account(ws, "ann", "annotator", None)
        token = accounts.create_api_token(ws, "ann", "t")[0]
        accounts.set_member(ws, make_campaign(ws).slug, "ann")
    command = [sys.executable, "-m", "labelchef", "serve", "--team", "--home", str(home), "--port", "0"]
    given = {**os.environ, **{f"LABELCHEF_{name.upper()}": value for name, value in environment.items()}}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=given)
    try:
        assert process.stdout is not None
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, "the server ended"
            found = re.search(r"http://([\d.]+):(\d+)", line)
        yield (found[1], int(found[2])), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest
    assert "Traceback" not in rest, rest


def ask(
    address: Address, path: str, headers: dict[str, str], body: object, trusted: ssl.SSLContext | None
) -> tuple[int, dict[str, object]]:
    """An honest request on a connection of its own."""
    one = http.client.HTTPConnection(*address, timeout=60)
    connection = one if trusted is None else http.client.HTTPSConnection(*address, timeout=60, context=trusted)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def votes(address: Address, headers: dict[str, str], trusted: ssl.SSLContext | None = None) -> None:
    """An annotator asks for an item and votes on it."""
    base = "/api/campaigns/animals"
    status, found = ask(address, f"{base}/next", headers, {"n": 1}, trusted)
    assert status == 200, found
    item = found["tasks"][0]["item"]  # type: ignore[index]
    status, found = ask(address, f"{base}/votes", headers, {"item": item, "label": 0}, trusted)
    assert status == 200, found


def ended(held: list[socket.socket]) -> int:
    """How many of the connections are ended from the other side."""
    count = 0
    for one in held:
        one.settimeout(60)
        with suppress(TimeoutError):
            try:
                while one.recv(65536):
                    pass
            except (ConnectionError, ssl.SSLError):
                pass
            count += 1
    return count


HALF_HEADER = b"GET /api/health HTTP/1.1\r\nhost: x\r\nx-slow: "
HALF_BODY = (
    b'POST /api/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"name"'
)


@contextmanager
def behind_nginx(tmp_path: Path, server: Address) -> Iterator[tuple[Address, ssl.SSLContext]]:
    """nginx with the file of deploy/ before the server, with time limits of two seconds: its address, and a client's context."""
    nginx, openssl = tool("nginx"), tool("openssl")
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    made += [
        "-subj",
        "/CN=label.example.org",
        "-keyout",
        f"{tmp_path}/privkey.pem",
        "-out",
        f"{tmp_path}/fullchain.pem",
    ]
    subprocess.run([openssl, *made], check=True, capture_output=True)
    site = (DEPLOY / "nginx" / "labelchef.conf").read_text().replace("/etc/ssl/labelchef", str(tmp_path))
    ports = {"80": free_port(), "443": free_port()}
    site = re.sub(r"(?<=listen )\d+", lambda found: f"127.0.0.1:{ports[found[0]]}", site)
    site = re.sub(r"    listen \[::\]:.*\n", "", site).replace("127.0.0.1:8000", "{}:{}".format(*server))
    site, changed = re.subn(r"(client_(?:header|body)_timeout +)\d+s", r"\g<1>2s", site)
    assert changed == 2
    folders = " ".join(
        f"{one}_temp_path {tmp_path}/{one};" for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/error.log; daemon off; master_process off; worker_rlimit_nofile 4000;"
        f"events {{ worker_connections 2000; }} http {{ access_log off; {folders} {site} }}"
    )
    process = subprocess.Popen([nginx, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
    trusted = ssl.create_default_context(cafile=f"{tmp_path}/fullchain.pem")
    trusted.check_hostname = False
    try:
        wait_until(lambda: answers(("127.0.0.1", ports["443"])))
        yield ("127.0.0.1", ports["443"]), trusted
    finally:
        process.terminate()
        process.wait(60)


def answers(address: Address) -> bool:
    """Whether somebody listens there."""
    with closing(socket.socket()) as one:
        return one.connect_ex(address) == 0


@pytest.mark.slow
def test_600_half_sent_requests_to_the_proxy_do_not_keep_a_vote_out(tmp_path: Path) -> None:
    """Many more half-sent requests than labelchef takes connections, which the proxy holds and ends."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(files[0], 4000), files[1]), files[1]))
    with (
        serving(tmp_path / "home", max_connections="20") as (server, ann),
        behind_nginx(tmp_path, server) as (address, trusted),
        ExitStack() as stack,
    ):
        held = []
        for k in range(600):
            one = stack.enter_context(socket.create_connection(address, timeout=60))
            held.append(
                stack.enter_context(trusted.wrap_socket(one)) if k % 4 else one
            )  # each fourth says nothing at all
            held[-1].sendall((b"", HALF_HEADER, HALF_BODY, b"")[k % 4])
            if k in (150, 450):
                votes(address, ann, trusted)
        votes(address, ann, trusted)
        assert ended(held) == 600


@pytest.mark.slow
def test_requests_beyond_the_limit_get_a_503_until_there_is_room(tmp_path: Path) -> None:
    with serving(tmp_path / "home", max_connections="10") as (address, ann):
        votes(address, ann)
        with ExitStack() as stack:
            for _ in range(10):
                stack.enter_context(socket.create_connection(address, timeout=60)).sendall(HALF_HEADER)
            assert refused(address)
        wait_until(lambda: not refused(address))
        votes(address, ann)


def refused(address: Address) -> bool:
    """Whether the server answers that it takes no more."""
    with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == 503


@pytest.mark.slow
def test_large_bodies_and_headers_are_refused_before_they_are_read(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as (address, ann):
        for path, size in (
            ("/api/campaigns/animals/votes", 70_000),
            ("/api/session", 70_000),
            ("/api/intakes/a/rules", 2**21),
        ):
            with socket.create_connection(address, timeout=60) as one:
                lines = (
                    f"POST {path} HTTP/1.1",
                    "host: x",
                    f"content-length: {size}",
                    f"authorization: {ann['Authorization']}",
                )
                one.sendall("\r\n".join((*lines, "", "")).encode())
                status = one.recv(100).split(b" ")[1]
            assert status == (b"403" if "rules" in path else b"413"), path
        with socket.create_connection(address, timeout=60) as one:
            one.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 40_000)
            assert one.recv(100).startswith(b"HTTP/1.1 4")
        votes(address, ann)
