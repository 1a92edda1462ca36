"""Mutated requests to every route: `python -m tests.fuzz_requests --cases 10000`.

Each case starts from a request that works (`tests/web/calls.py`) and changes one to three things of it: the path, the query,
a node of the JSON body, its bytes, the parts of a form, headers, cookies. A tenth of the cases goes as bytes through a socket to
`labelchef serve` in a process of its own, where request lines, headers and chunks can be broken too. A case is wrong if

- the status is 500 or more, or nothing comes for `LONGEST` seconds (connections that are closed are counted, not judged),
- an answer of the API from 400 on is no problem, or has a status and code that are not in the OpenAPI document,
- the answer lacks `nosniff` or a content security policy.

Same seed, same cases.
"""

import argparse
import contextlib
import copy
import json
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from fastapi.testclient import TestClient

from labelchef.base.errors import LabelchefError
from labelchef.server.people import accounts
from tests.web.calls import CALLS, Headers, Route, Sent, World, world_in
from tests.web.test_serving import started

LONGEST = 300.0
"""Seconds after which a case without an answer is wrong."""
REFRESH = 20
"""Cases of a route after which its working request is made again."""
HUGE = "9" * 400
TEXTS = [
    "", " ", ".", "..", "../../etc/passwd", "%00", "\x00", "a\x00b", "\ud800", "\u202e", "\ufeff", "é", "💥" * 50, "x" * 5000,
    "x" * 100_000, "NaN", "null", "true", "-1", "1e999", HUGE, "'; DROP TABLE vote; --", "<script>", "{{7*7}}", "${7*7}", "%s%n",
    "=1+1", "\r\nX-Injected: 1", "file:///etc/passwd", "~nosuchuser/x", "C:\\x", "con", "a/b", "a\\b", "t1", "animals",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, [], {}, [[]], [None], {"": None},
    ["x"] * 500, *TEXTS,
]  # fmt: skip
RAW = [
    "NaN",
    "Infinity",
    "-Infinity",
    HUGE,
    "1e9999",
    "-0",
    "00",
    "'a'",
    "undefined",
    '"\\ud800"',
    '"\\u0000"',
    "[" * 3000,
]
"""Tokens that json.dumps does not write."""
SEGMENTS = [
    "..", "%2e%2e", "%2E%2E%2F", "%00", "%2F", "%5C", "%ff", "%c0%ae", "%", "%zz", "%25", "//", ";a=b", "?", "#", "%0d%0aX:1",
    "*",
    "a" * 300, "a" * 9000, HUGE, "-1", "NaN", "null", "%F0%9F%92%A5", "nothing", "t1", "lead", "animals", "metric",
]  # fmt: skip
HEADERS: dict[str, list[str]] = {
    "Content-Type": [
        "text/plain", "application/xml", "application/json; charset=utf-16", "multipart/form-data", "", "a",
        "application/json;;;",
        "multipart/form-data; boundary=", "multipart/form-data; boundary=" + "x" * 500, "application/x-www-form-urlencoded",
        "multipart/mixed; boundary=b", "application/json, text/plain",
    ],
    "Accept": ["text/html", "image/*", "", "*/*;q=0", "text/html;q=x", "," * 500],
    "Accept-Encoding": ["gzip;q=0", "br", "*", "identity;q=0", "gzip" * 500],
    "Range": [
        "bytes=0-5", "bytes=-1", "bytes=5-1", "bytes=a-b", "bytes=0-,1-,2-", "bytes=99999999999-",
        "lines=1-2", "bytes=", "bytes=0-0,-1",
    ],
    "If-None-Match": ["*", '"x"', 'W/"x"', "x", '"' * 500],
    "If-Match": ["*", '"x"'],
    "If-Range": ['"x"', "Wed, 21 Oct 2015 07:28:00 GMT", "x"],
    "If-Modified-Since": ["Wed, 21 Oct 2065 07:28:00 GMT", "x", HUGE],
    "If-Unmodified-Since": ["Wed, 21 Oct 2015 07:28:00 GMT"],
    "Origin": ["null", "https://evil.example", "http://testserver", "http://[", "//"],
    "Sec-Fetch-Site": ["cross-site", "same-site", "none", "x"],
    "Host": ["evil.example", "", "testserver:99999", "[::1", "a" * 300, "testserver@evil.example"],
    "X-Forwarded-For": ["127.0.0.1", "x" * 500],
    "X-Forwarded-Host": ["evil.example"],
    "X-Forwarded-Proto": ["https", "gopher"],
    "X-HTTP-Method-Override": ["DELETE"],
    "Authorization": ["Bearer", "Bearer ", "Bearer x", "Basic Og==", "Bearer " + "x" * 5000, "bearer lc_x y", "Negotiate"],
    "Cookie": [
        "labelchef-8000=", "labelchef-8000=x", "a=b; " * 300, "labelchef-8000=x; labelchef-8000=y", "=;=;", "\xe9=\xff",
        'labelchef-8000="\\073"',
    ],
    "X-CSRF-Token": ["", "x", "x" * 5000],
    "Content-Encoding": ["gzip", "br"],
    "Expect": ["100-continue", "x"],
    "Content-Length": ["0", "-1", "5", "x", HUGE, "1, 1"],
    "Connection": ["close", "upgrade"],
    "Upgrade": ["websocket", "h2c"],
    "Forwarded": ["host=evil.example"],
}  # fmt: skip


@dataclass
class Request:
    """A request in pieces that can be changed one by one."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: Headers
    json: Any = None
    body: bytes | None = None
    parts: list[dict[str, Any]] | None = None
    chunked: bool = False
    boundary: str = "b0undary"

    @classmethod
    def of(cls, method: str, sent: Sent, headers: Headers) -> "Request":
        """As it works."""
        parts = None
        if sent.files:
            parts = [{"name": name, "filename": file, "content": body} for name, (file, body) in sent.files]
            parts += [{"name": name, "content": value.encode()} for name, value in sent.form.items()]
        query = [(name, str(value)) for name, value in sent.query.items()]
        return cls(method, quote(sent.path, safe="/%"), query, dict(headers), copy.deepcopy(sent.json), parts=parts)

    def content(self) -> tuple[bytes, str | None]:
        """The body and its type."""
        if self.body is not None:
            return self.body, None if self.parts is None else f"multipart/form-data; boundary={self.boundary}"
        if self.parts is not None:
            return b"".join([*map(self._part, self.parts), f"--{self.boundary}--\r\n".encode()]), (
                f"multipart/form-data; boundary={self.boundary}"
            )
        if self.json is None:
            return b"", None
        text = json.dumps(self.json)
        for k, raw in enumerate(RAW):
            text = text.replace(f'"__raw{k}__"', raw)
        return text.encode("utf-8", "surrogatepass"), "application/json"

    def _part(self, one: dict[str, Any]) -> bytes:
        said = f'form-data; name="{one["name"]}"'
        if "filename" in one:
            said += f'; filename="{one["filename"]}"'
        more = one.get("more", "")
        head = f"--{self.boundary}\r\nContent-Disposition: {said}{more}\r\n\r\n"
        return b"".join([head.encode("utf-8", "surrogatepass"), one["content"], b"\r\n"])

    def address(self) -> str:
        """Path and query."""
        asked = urlencode(self.query, errors="surrogatepass")
        return f"{self.path}?{asked}" if asked else self.path

    def lines(self) -> Headers:
        """The headers, with the type of the body unless another one was chosen."""
        kind = self.content()[1]
        return (
            self.headers if kind is None or "Content-Type" in self.headers else {**self.headers, "Content-Type": kind}
        )


def nodes(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """(container, key) of every node of a JSON value."""
    pairs = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, inner in pairs:
        found.append((value, key))
        nodes(inner, found)
    return found


def change_json(request: Request, rng: random.Random) -> None:
    """Change a node of the body, or its shape."""
    places = nodes(request.json, [])
    kind = rng.randrange(7)
    if not places or kind == 0:
        request.json = rng.choice(VALUES)
        return
    container, key = rng.choice(places)
    if kind == 1 and isinstance(container, dict):
        del container[key]
    elif kind == 2 and isinstance(container, dict):
        container[rng.choice(TEXTS)] = rng.choice(VALUES)
    elif kind == 3:
        container[key] = [container[key]]
    elif kind == 4:
        container[key] = f"__raw{rng.randrange(len(RAW))}__"
    elif kind == 5:
        request.json = [request.json]
    else:
        container[key] = rng.choice(VALUES)


def change_bytes(request: Request, rng: random.Random) -> None:
    """Change the bytes of the body."""
    body, kind = request.content()
    at = rng.randrange(len(body) + 1)
    bad = rng.choice([b"\xff\xfe", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf", b"}", b'{"a":1}', b"\xc0\xaf", b"\r\n"])
    changed = rng.choice([
        body[:at], body[:at] + bad + body[at:], bad + body, body + bad, body[::-1], b"[" * 20000, b'{"a":' * 5000,
        body.decode("utf-8", "replace").encode("utf-16"), _doubled(body), b"x" * (2**20 + 1),
        b"{" + b",".join(b'"k%d":%d' % (k, k) for k in range(3000)) + b"}",
    ])  # fmt: skip
    request.body, request.json = changed, None
    if kind is not None and "Content-Type" not in request.headers:
        request.headers["Content-Type"] = kind


def _doubled(body: bytes) -> bytes:
    """Every key of the outermost object twice."""
    inner = body.strip()
    return b"{" + inner[1:-1] + b"," + inner[1:-1] + b"}" if inner[:1] == b"{" and len(inner) > 2 else body


def change_parts(request: Request, rng: random.Random) -> None:
    """Change the parts of a form."""
    assert request.parts is not None
    one = rng.choice(request.parts) if request.parts else None
    kind = rng.randrange(9)
    if one is None or kind == 0:
        request.parts.append({"name": rng.choice(TEXTS[:20]), "filename": rng.choice(TEXTS[:30]), "content": b"x"})
    elif kind == 1:
        one["filename"] = rng.choice(TEXTS)
    elif kind == 2:
        one["name"] = rng.choice(TEXTS)
    elif kind == 3:
        one.pop("filename", None)
    elif kind == 4:
        request.parts.remove(one)
    elif kind == 5:
        request.parts.append(dict(one))
    elif kind == 6:
        one["more"] = rng.choice([
            "; filename*=utf-8''%2e%2e%2fx", "; filename*=x", '\r\nContent-Type: text/html',
            "\r\nContent-Transfer-Encoding: base64",
            "\r\nContent-Type: multipart/mixed; boundary=b0undary", '"', "; name=other", "\r\n" + "X: y\r\n" * 200 + "Z: z",
        ])  # fmt: skip
    elif kind == 7:
        content = bytearray(one["content"])
        for _ in range(rng.randint(1, 20)):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
        one["content"] = bytes(content)
    else:
        one["content"] = rng.choice(
            [b"", one["content"][: len(one["content"]) // 2], b"\xff" * 100, one["content"] * 2]
        )


def change_path(request: Request, rng: random.Random) -> None:
    """Change a segment of the path."""
    parts = request.path.split("/")
    at, odd = rng.randrange(1, len(parts)), rng.choice(SEGMENTS)
    parts[at] = rng.choice(
        [odd, parts[at] + odd, odd + parts[at], f"{parts[at]}/{odd}", f"{odd}/../{parts[at]}", parts[at].upper()]
    )
    request.path = "/".join(parts).replace("?", "%3F").replace("#", "%23")


def change_query(request: Request, rng: random.Random) -> None:
    """Change the query."""
    known = [
        "after",
        "limit",
        "kind",
        "item",
        "person",
        "format",
        "theme",
        "since",
        "timeout",
        "column",
        "path",
        "then",
        "token",
        "intake",
    ]
    if request.query and rng.random() < 0.5:
        at = rng.randrange(len(request.query))
        request.query[at] = (request.query[at][0], rng.choice(TEXTS[:30]))
    else:
        value = (
            "0"
            if (name := rng.choice(known)) == "timeout"
            else rng.choice([*TEXTS[:30], "0", "5", "csv", "parquet", "vote"])
        )
        request.query.append((name, value))


def change_headers(request: Request, rng: random.Random) -> None:
    """Set a header to something odd."""
    name = rng.choice(list(HEADERS))
    request.headers[name] = rng.choice(HEADERS[name])


def change_method(request: Request, rng: random.Random) -> None:
    """Another method, or chunks."""
    if rng.random() < 0.5:
        request.chunked = True
    else:
        request.method = rng.choice(
            ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "BREW"]
        )


Change = Callable[[Request, random.Random], None]


def mutated(request: Request, rng: random.Random) -> Request:
    """The request with one to three changes."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        ways: list[Change] = [change_headers, change_query, change_path, change_method]
        if request.body is None and request.json is not None:
            ways += [change_json] * 6 + [change_bytes] * 2
        if request.body is None and request.parts is not None:
            ways += [change_parts] * 6 + [change_bytes] * 2
        if request.body is None and request.method == "GET":
            ways += [change_query] * 2 + [change_path] * 2
        rng.choice(ways)(request, rng)
    return request


def broken(raw: bytes, rng: random.Random) -> bytes:
    """The bytes of a request, broken where HTTP itself is read."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.split(b"\r\n")
    method, target, _ = first.split(b" ", 2)
    plain = [one for one in rest if not one.lower().startswith((b"content-length", b"transfer-encoding"))]
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)

    def joined(line: bytes, lines: list[bytes], content: bytes) -> bytes:
        return b"\r\n".join([line, *lines]) + b"\r\n\r\n" + content

    return rng.choice([
        joined(first, [*plain, b"Transfer-Encoding: chunked"], chunk),
        joined(first, [*plain, b"Transfer-Encoding: chunked"], b"zz\r\n" + body),
        joined(first, [*plain, b"Transfer-Encoding: chunked"], b"ffffffffffffffffff\r\n" + body),
        joined(first, [*plain, b"Transfer-Encoding: chunked"], b"5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n"),
        joined(first, [*plain, b"Transfer-Encoding: gzip, chunked"], chunk),
        joined(first, [*rest, b"Transfer-Encoding: chunked"], chunk),
        joined(first, [*plain, b"Content-Length: 5", b"Content-Length: 6"], body),
        joined(first, [*plain, b"Content-Length: +5"], body),
        joined(first, [*rest, b" folded: x"], body),
        joined(first, [*rest, b"X: " + b"y" * 70000], body),
        joined(first, [*rest, *(b"X-%d: y" % k for k in range(500))], body),
        joined(first, [*rest, b"Bad Header: x"], body),
        joined(first, [*rest, b"X: \x00\x01"], body),
        joined(b"%s %s HTTP/1.0" % (method, target), rest, body),
        joined(b"%s %s HTTP/9.9" % (method, target), rest, body),
        joined(b"%s %s" % (method, target), rest, body),
        joined(b"%s http://evil.example%s HTTP/1.1" % (method, target), rest, body),
        joined(b"%s %s%s HTTP/1.1" % (method, target, b"?a" * 40000), rest, body),
        joined(b"%s /\xff\xfe\x00 HTTP/1.1" % method, rest, body),
        joined(b"%s /a b HTTP/1.1" % method, rest, body),
        joined(b"OPTIONS * HTTP/1.1", rest, b""),
        joined(b"CONNECT evil.example:443 HTTP/1.1", rest, b""),
        joined(b"\x16\x03\x01\x02\x00", [], b"\x01" * 50),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        raw.replace(b"\r\n", b"\n"), raw + raw, raw[: rng.randrange(len(raw))], b"\r\n\r\n" + raw, raw,
    ])  # fmt: skip


@dataclass
class Tally:
    """What came of the cases of one route."""

    cases: int = 0
    good: int = 0
    moved: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    closed: int = 0
    failed: int = 0

    def add(self, other: "Tally") -> None:
        """Sum."""
        self.cases, self.good, self.moved = self.cases + other.cases, self.good + other.good, self.moved + other.moved
        self.closed, self.failed = self.closed + other.closed, self.failed + other.failed
        self.refused.update(other.refused)


class Fuzz:
    """The cases, their tallies, and what was wrong."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.tallies: dict[Route, Tally] = {route: Tally() for route in CALLS}
        self.wrong: list[str] = []
        self.known: set[tuple[int, str]] = set()
        self._sent: dict[Route, tuple[Sent, int]] = {}
        self._headers: Headers = {}
        self._uses = 0

    def headers(self) -> Headers:
        """A lead's token or session; made anew now and then, since some requests end them."""
        if self._uses % REFRESH == 0:
            accounts.set_active(self.world.ws, "second", True)
            self._headers = self.world.token("second") if self.rng.random() < 0.6 else self.world.session("second")
        self._uses += 1
        return dict(self._headers)

    def request(self, route: Route) -> Request:
        """A request to this route that works, or would have some cases ago."""
        sent, uses = self._sent.get(route, (None, 0))
        if sent is None or uses % REFRESH == 0:
            try:
                sent = CALLS[route](self.world, "second")
            except LabelchefError:  # an earlier case has changed the files that wait
                self.world.forget()
                sent = CALLS[route](self.world, "second")
        self._sent[route] = sent, uses + 1
        return Request.of(route[0], sent, self.headers())

    def inside(self, client: TestClient, route: Route) -> None:
        """A case in this process."""
        case = mutated(self.request(route), self.rng)
        client.cookies.clear()
        body = case.content()[0]
        given: Any = (body[k : k + 7] for k in range(0, len(body), max(len(body) // 3, 7))) if case.chunked else body
        headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in case.lines().items()]
        try:
            answer = client.request(case.method, case.address(), content=given, headers=headers)
        except (UnicodeError, ValueError) as error:  # the client cannot send it
            if "httpx" not in type(error).__module__ and not isinstance(error, UnicodeError):
                raise
            return
        except Exception as error:
            if type(error).__module__.startswith("httpx"):
                return
            raise
        kind = answer.headers.get("content-type", "")
        self.count(route, case, answer.status_code, kind, answer.content, {k.lower() for k in answer.headers})

    def outside(self, address: tuple[str, int], route: Route) -> None:
        """A case through a socket."""
        case = mutated(self.request(route), self.rng)
        case.headers.setdefault("Host", f"{address[0]}:{address[1]}")
        body = case.content()[0]
        if "Content-Length" not in case.headers and (body or case.method != "GET"):
            case.headers["Content-Length"] = str(len(body))
        lines = [f"{case.method} {case.address()} HTTP/1.1", *(f"{k}: {v}" for k, v in case.lines().items())]
        raw = "\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8", "surrogatepass") + body
        whole = self.rng.random() < 0.3
        raw = raw if whole else broken(raw, self.rng)
        came = b""
        try:
            with socket.create_connection(address, timeout=LONGEST) as connection, contextlib.suppress(ConnectionError):
                connection.sendall(raw)
                with contextlib.suppress(OSError):  # closed by the server already
                    connection.shutdown(socket.SHUT_WR)
                while len(came) < 2**22 and (piece := connection.recv(65536)):
                    came += piece
                    if b"text/event-stream" in came[:4096]:  # it goes on until the reader leaves
                        break
        except TimeoutError:
            self.wrong.append(f"no answer after {LONGEST} s: {raw[:500]!a}")
        self.read(route, case, raw, came)

    def read(self, route: Route, case: Request, raw: bytes, came: bytes) -> None:
        """What came through the socket."""
        found = re.match(rb"HTTP/1\.[01] (\d{3})", came)
        if found is None:
            tally = self.tallies[route]
            tally.cases, tally.closed = tally.cases + 1, tally.closed + 1
            return
        head, _, body = came.partition(b"\r\n\r\n")
        names = {one.partition(b":")[0].decode("latin-1").lower() for one in head.split(b"\r\n")[1:]}
        kind = re.search(rb"(?im)^content-type: ([^\r]*)", head)
        ours = b"content-security-policy" in head.lower()
        self.count(route, case, int(found[1]), kind[1].decode() if kind else "", body, names if ours else None)

    def count(self, route: Route, case: Request, status: int, kind: str, body: bytes, names: set[str] | None) -> None:
        """Note an answer; `names` of its headers are None where uvicorn answered before the app."""
        tally = self.tallies[route]
        tally.cases += 1
        told = (
            f"{case.method} {case.address()[:200]!a} {str(case.lines())[:300]} {case.content()[0][:300]!a} → {status}"
        )
        code = ""
        if kind.startswith("application/problem+json") and body.startswith(b"{") and status >= 400:
            with contextlib.suppress(ValueError):
                code = str(json.JSONDecoder().raw_decode(body.decode())[0]["code"])
        if status >= 500 and not (status == 503 and code in ("locked",)):
            tally.failed += 1
            self.wrong.append(f"{told} {body[:300]!a}")
        elif status >= 400:
            tally.refused[f"{status} {code}".strip()] += 1
            if (
                names is not None
                and case.path.startswith("/api/")
                and case.method != "HEAD"
                and (status, code) not in self.known
            ):
                self.wrong.append(f"{told}: not a code of the document: {code!r} {body[:200]!a}")
        elif status >= 300:
            tally.moved += 1
        else:
            tally.good += 1
        if names is not None and not {"x-content-type-options", "content-security-policy"} <= names:
            self.wrong.append(f"{told}: without security headers")


def fuzz(
    world: World, cases: int, seed: int = 0, *, sockets: float = 0.1, tell: Callable[[str], None] = lambda _: None
) -> Fuzz:
    """Send the cases, route after route; a share of them through sockets to a server of its own."""
    found = Fuzz(world, seed)
    routes = list(CALLS)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(TestClient(world.app, follow_redirects=False, raise_server_exceptions=False))
        codes = client.get("/api/openapi.json").json()["x-problem-codes"]
        found.known = {(int(status), code) for status, names in codes.items() for code in names}
        address = stack.enter_context(_serving(world)) if sockets > 0 else None
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))  # what was sent until then is told
        told = 0
        for k in range(cases):
            route = routes[k % len(routes)]
            if address is not None and found.rng.random() < sockets:
                found.outside(address, route)
            else:
                found.inside(client, route)
            for one in found.wrong[told:]:
                tell(f"case {k + 1}: {one}")
            told = len(found.wrong)
            if k % 500 == 499:
                tell(f"{k + 1} cases, {told} wrong")
        if address is not None:
            with socket.create_connection(address, timeout=60) as last:
                last.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if b" 200 " not in last.recv(100):
                    found.wrong.append("the server does not answer any more")
    return found


@contextlib.contextmanager
def _serving(world: World) -> Iterator[tuple[str, int]]:
    """`labelchef serve` over the same workspace, as a process."""
    arguments = ("serve", "--team", "--home", str(world.ws.home))
    process, link = started(*arguments)
    assert process.stdout is not None
    reader = threading.Thread(target=deque, args=(process.stdout, 100))  # a pipe that is full would stop the server
    reader.start()
    try:
        place = urlsplit(link)
        yield str(place.hostname), int(place.port or 80)
    finally:
        process.send_signal(signal.SIGINT)
        reader.join()
        assert process.wait(60) == 0, process.returncode


def table(found: Fuzz) -> str:
    """A line a route, and the sum."""
    total = Tally()
    lines = [f"{'route':66} {'cases':>6} {'2xx':>6} {'3xx':>5} {'4xx':>6} {'closed':>6} {'5xx':>4}  4xx by code"]
    for (method, path), one in [*found.tallies.items(), (("", "all"), total)]:
        refused = ", ".join(f"{code} {n}" for code, n in one.refused.most_common(6 if method else 60))
        count = sum(one.refused.values())
        lines.append(
            f"{method + ' ' + path:66} {one.cases:6} {one.good:6} {one.moved:5} {count:6} {one.closed:6} {one.failed:4}"
            f"  {refused}"
        )
        total.add(one)
    return "\n".join(lines)


def main() -> int:
    """Run the cases and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--sockets", type=float, default=0.1, help="share of cases that go to a server of its own")
    chosen = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="labelchef-fuzz-") as folder, world_in(Path(folder)) as world:
        found = fuzz(
            world, chosen.cases, chosen.seed, sockets=chosen.sockets, tell=lambda line: print(line, file=sys.stderr)
        )
    print(table(found))
    sent = sum(one.cases for one in found.tallies.values())
    print(f"{sent} cases, seed {chosen.seed}, {time.monotonic() - began:.0f} s; wrong: {len(found.wrong)}")
    print("\n".join(found.wrong[:50]))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
