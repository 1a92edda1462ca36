"""Several web processes behind one port, and the worker in a process of its own: started, watched, stopped together.

Every web process binds the same address with SO_REUSEPORT, and the kernel spreads the connections over them. One that dies is
started again; its clients connect to another meanwhile. The process that watches them does nothing else, so there is little in
it that can fail; if it is killed, the others notice and end by themselves.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from labelchef.base.errors import InvalidInputError, LabelchefError
from labelchef.server.web.options import ServeOptions

_log = logging.getLogger("labelchef")
_STOP_SECONDS = 30.0
"""That the processes get to end."""
_EARLY = 5.0
"""A process that ends within these seconds of its start is started again after a pause, which doubles each time."""
_LONGEST_PAUSE = 30.0
_STEP = 0.1


@dataclass
class _Child:
    """A process that should run."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    began: float = 0.0
    pause: float = 0.0
    not_before: float = 0.0
    failed: list[int] = field(default_factory=list)
    """Exit codes since it last ran for a while."""

    def start(self) -> None:
        """Run it. Its signals come from this process only, not from the terminal."""
        command = [sys.executable, "-m", "labelchef", *self.words]
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, env={**os.environ, **self.environment}, start_new_session=True)

    def look(self) -> None:
        """Start it again if it has ended."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.not_before:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            if now - self.began > _EARLY:
                self.pause = 0.0
                self.failed.clear()
            return
        early = now - self.began < _EARLY
        self.failed.append(code)
        self.process, self.not_before = None, now + self.pause
        self.pause = min(_LONGEST_PAUSE, max(0.5, 2 * self.pause)) if early else 0.0
        _log.error("the process `labelchef %s` ended with code %d; it is started again", " ".join(self.words), code)

    def stop(self) -> None:
        """Tell it to end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def wait(self, deadline: float) -> None:
        """Wait for its end; past the deadline it is killed."""
        if self.process is None:
            return
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment_of(options: ServeOptions) -> dict[str, str]:
    """The options as a process that is started reads them.

    >>> environment_of(ServeOptions(port=8001, hostnames=frozenset({"a.example"})))["LABELCHEF_HOSTNAMES"]
    '["a.example"]'
    """
    found = {}
    for name, value in options.model_dump(mode="json").items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            found[f"LABELCHEF_{name.upper()}"] = text
    return found


def bind(options: ServeOptions, *, shared: bool) -> socket.socket:
    """A socket that is bound to the address; with `shared`, processes of this user may bind it too.

    Those that a server starts share its port (`share_port`). Another server must not: requests would reach either of them.
    """
    if shared and not options.share_port:
        _bound(options, shared=False).close()
    return _bound(options, shared=shared)


def _bound(options: ServeOptions, *, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where TCP is named
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((options.host.strip("[]"), options.port))
    except (OSError, UnicodeError, TypeError) as error:
        bound.close()
        why = getattr(error, "strerror", None) or error
        told = f"port {options.port} of {options.host} cannot be used: {why}; name another --port or --host"
        raise InvalidInputError(told, code="port") from None
    return bound


def check_processes(options: ServeOptions, *, is_sqlite: bool) -> None:
    """Refuse several web processes where they would only wait for each other."""
    if options.processes > 1 and is_sqlite:
        raise InvalidInputError(
            f"--processes {options.processes} with a SQLite database, which one process at a time writes to: they would wait for "
            "each other. Use PostgreSQL (--database postgresql://…), or one process",
            code="processes",
        )
    if options.processes > 1 and not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidInputError(
            "this system cannot share a port between processes; start several servers with --no-worker, behind a proxy",
            code="processes",
        )


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does: uvicorn raises the signal again when it has stopped, and the worker and the
    connections are to be closed after that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def supervise(options: ServeOptions, ready: Callable[[], None]) -> None:
    """Run web processes and the worker until interrupted; `ready` is called when the port answers."""
    common = options.model_copy(update={"processes": 1, "parent": os.getpid()})
    web = environment_of(common.model_copy(update={"worker": False, "share_port": True}))
    children = [_Child(("serve",), web) for _ in range(options.processes)]
    if options.worker:
        children.append(_Child(("worker",), environment_of(common)))
    halt = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        halt.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    answers = False
    try:
        while not halt.wait(_STEP):
            for child in children:
                child.look()
                if not answers and len(child.failed) > 2:
                    raise LabelchefError(
                        f"`labelchef {' '.join(child.words)}` ended with code {child.failed[-1]}; its message is above",
                        code="serve",
                    )
            if not answers and _answers(options):
                answers = True
                ready()
    finally:
        for child in children:
            child.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for child in children:
            child.wait(deadline)
        for number, handler in before.items():
            signal.signal(number, handler)


def _answers(options: ServeOptions) -> bool:
    host = options.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    with contextlib.suppress(OSError), socket.create_connection((host, options.port), timeout=1.0):
        return True
    return False


def end_with_parent(parent: int) -> None:
    """End this process as Ctrl-C does when the one that started it is gone."""
    if not parent:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, name="labelchef-parent", daemon=True).start()


def run_worker(options: ServeOptions, ready: Callable[[str], None]) -> None:
    """Take the steps of campaigns until interrupted; `ready` gets the name of this worker."""
    from labelchef.server.worker import Worker
    from labelchef.server.workspace import open_workspace

    halt = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        halt.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    end_with_parent(options.parent)
    try:
        with open_workspace(Path(options.home), options.database) as ws, Worker(ws, options.parallel) as worker:
            ready(ws.leases.holder)
            while not halt.wait(0.5):
                if not worker.alive:
                    raise LabelchefError(f"the worker ended: {worker.last_error}; its log says why", code="worker")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
