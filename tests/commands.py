"""`labelchef` as a user types it, in a process of its own that needs not import everything anew.

A process imports what commands use, once, and forks for every command: the fork has its own standard streams, environment,
folder and exit code, and ends as an interpreter does. That saves two to three seconds of CPU for each command. What a fork
does not have is a hash seed of its own and the order of imports of a fresh interpreter; `fresh` runs `python -m labelchef`.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parent.parent
PRETRAINED = ("sentence_transformers", "efficientnet_lite_pytorch")
"""Modules behind the encoders that are usual for texts and images where they are installed."""
_ROOMS = ("cli", "data", "judge", "loop", "server")
_LAZY = ("altair", "openpyxl", "pyarrow.parquet", "numba", "pwdlib.hashers.argon2", "sklearn.linear_model")
"""What commands import when they use it."""


class Commands:
    """The process that forks."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tests.commands", str(theirs.fileno()), *modules]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        theirs.close()
        self._socket, self._stream = ours, ours.makefile("rw")

    def run(
        self, *arguments: object, env: Mapping[str, str] | None = None, cwd: Path | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `env` is added to the environment."""
        command = [str(argument) for argument in arguments]
        with tempfile.TemporaryDirectory() as folder:
            streams = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
            streams[0].write_text(stdin, encoding="utf-8")
            asked = {
                "arguments": command,
                "environment": {**os.environ, **(env or {})},
                "folder": str(cwd or Path.cwd()),
                "streams": [str(path) for path in streams],
            }
            self._stream.write(json.dumps(asked) + "\n")
            self._stream.flush()
            answer = self._stream.readline()
            assert answer, "the process that forks has ended"
            said = [path.read_text(encoding="utf-8") for path in streams[1:]]
        return subprocess.CompletedProcess(["labelchef", *command], int(answer), *said)

    def close(self) -> None:
        """End it."""
        self._stream.close()
        self._socket.close()
        self._process.wait(60)


@functools.cache
def commands() -> Commands:
    """The one of this process of tests; the session ends it (`tests/conftest.py`), so that coverage reads what it has seen."""
    return Commands()


def fresh(*arguments: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The same by an interpreter of its own."""
    command = [sys.executable, "-m", "labelchef", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False)


def _modules() -> Iterator[str]:
    import labelchef

    for room in _ROOMS:
        path = [f"{labelchef.__path__[0]}/{room}"]
        found = [one.name for one in pkgutil.walk_packages(path, f"labelchef.{room}.")]
        assert found, f"there is no room {room}"
        yield from (name for name in found if not name.startswith("labelchef.server.web"))
    yield from _LAZY


def _become(asked: dict[str, list[str]], environment: dict[str, str], folder: str) -> None:
    """Make this fork the process of a command."""
    for number, path in enumerate(asked["streams"]):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv = ["labelchef", *asked["arguments"]]


def _exit_code(run: Callable[[], None]) -> int:
    """What the interpreter makes of the end of a function."""
    try:
        run()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    except BaseException:  # as the interpreter: it is printed, and the code is 1
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """End as an interpreter does, but for taking the thousands of imported modules apart, which takes a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve(number: int) -> None:
    from labelchef.cli.main import run

    connection = socket.socket(fileno=number)
    stream = connection.makefile("rw")
    gc.freeze()  # collections of a fork leave alone what it shares with this process
    while line := stream.readline():
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            connection.detach()
            os.close(number)
            _become(asked, asked["environment"], asked["folder"])
            _end(_exit_code(run))
        stream.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        stream.flush()


if __name__ == "__main__":
    for module in (*_modules(), *sys.argv[2:]):
        importlib.import_module(module)
    _serve(int(sys.argv[1]))
