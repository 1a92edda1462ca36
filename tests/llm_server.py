"""A real HTTP server that speaks chat completions on 127.0.0.1, well or badly."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CUT = "cut"
"""A behaviour: close the connection in the middle of the body."""


@dataclass
class Said:
    """What the server sends back."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    slow: float = 0.0


@dataclass
class Seen:
    """A request that came in."""

    body: dict[str, Any]
    path: str
    key: str | None
    at: float

    @property
    def content(self) -> str:
        """What is between <item> and </item>."""
        text = str(self.body["messages"][0]["content"])
        return text.split("<item>\n")[1].split("\n</item>")[0]


def completion(
    text: str | None, *, logprobs: Any = None, usage: tuple[int, int] | None = (50, 10), **choice: Any
) -> Said:
    """A chat completion with this text."""
    message = {"role": "assistant", "content": text, **choice.pop("message", {})}
    values: dict[str, Any] = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": logprobs, **choice}]
    }
    if usage is not None:
        values["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return Said(json.dumps(values).encode())


def error(status: int, message: str = "no", **headers: str) -> Said:
    """An error as such servers send it."""
    body = json.dumps({"error": {"message": message}}).encode()
    return Said(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


class LlmServer:
    """Answers by `reply`, which gets every request, and remembers them all."""

    def __init__(self, reply: Callable[[Seen], Said]) -> None:
        self.reply = reply
        self.seen: list[Seen] = []
        self.at_once = 0
        self.most_at_once = 0
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                seen = Seen(body, self.path, self.headers.get("authorization"), time.monotonic())
                with server.lock:
                    server.seen.append(seen)
                    server.at_once += 1
                    server.most_at_once = max(server.most_at_once, server.at_once)
                try:
                    said = server.reply(seen)
                    time.sleep(said.slow)
                finally:
                    with server.lock:
                        server.at_once -= 1
                with contextlib.suppress(OSError):  # the client may have gone
                    self.send_response(said.status)
                    for name, value in said.headers.items():
                        self.send_header(name, value)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(said.body)))
                    self.end_headers()
                    self.wfile.write(said.body[: len(said.body) // 2] if said.cut else said.body)
                    if said.cut:
                        self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> "LlmServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextlib.contextmanager
def serving(reply: Callable[[Seen], Said]) -> Iterator[LlmServer]:
    """A server for the time of a test."""
    with LlmServer(reply) as server:
        yield server


def label_of(seen: Seen) -> str:
    """The right answer: texts with 'win' are spam."""
    return "spam" if "win" in seen.content else "ham"


def right(seen: Seen) -> Said:
    """Answers rightly, in JSON."""
    return completion(json.dumps({"label": label_of(seen)}))
