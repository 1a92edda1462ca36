"""Processes of labelchef that start in a tenth of a second: a process that has imported everything forks them.

The nursery (`python -m torture.nursery`) reads a line of JSON a request and answers each with a line. It has one thread, which
is checked before every fork: a fork of a process with several threads may leave locks in the child that nobody gives back.
Children die with the nursery, and the nursery ends when its input ends.

    {"run": ["command" | "prepare" | "replay", argument, …], "injection": {…}, "log": path}    → {"pid": 17}
    {"wait": 17}                                                                              → {"code": -9}
"""

import ctypes
import gc
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torture.injection import Injection, install

_ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow's allocator starts one when it is imported
}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Child:
    """A process that the nursery forked."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self._nursery, self.pid = nursery, pid
        self._end = os.pidfd_open(pid)
        self._code: int | None = None

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._code is not None or bool(select.select([self._end], [], [], 0)[0])

    def signal(self, number: int) -> None:
        """Send a signal, unless it is over."""
        if not self.ended:
            signal.pidfd_send_signal(self._end, number)

    def kill(self) -> int:
        """SIGKILL: nothing is put in order."""
        self.signal(signal.SIGKILL)
        return self.code(10.0)

    def code(self, seconds: float) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        if self._code is None:
            if not select.select([self._end], [], [], seconds)[0]:
                raise TimeoutError(f"process {self.pid} did not end in {seconds:.0f} s")
            self._code = int(self._nursery.ask({"wait": self.pid})["code"])
            os.close(self._end)
        return self._code


class Nursery:
    """The process that forks the others; use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torture.nursery", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,  # an interrupt reaches this process, which ends the others
        )
        self._answer()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def start(self, run: Sequence[str], log: Path, injection: Injection | None = None) -> Child:
        """A new process; what it prints is appended to `log`."""
        asked = {"run": list(run), "log": str(log), "injection": asdict(injection or Injection())}
        return Child(self, int(self.ask(asked)["pid"]))

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request, one answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the nursery ended with code {self._process.wait()}; its errors are above")
        found: dict[str, Any] = json.loads(line)
        return found


def main(folder: Path) -> None:
    """Import and warm up, then fork a child a request."""
    from torture import jobs

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    jobs.warm_up(folder)
    gc.collect()
    gc.freeze()  # the memory stays shared with the children
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = {"code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
        else:
            answer = {"pid": _fork(request, jobs.JOBS)}
        print(json.dumps(answer), file=answers, flush=True)


def _fork(request: dict[str, Any], jobs: dict[str, Callable[..., None]]) -> int:
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"the nursery has {threads} threads; a fork is safe with one only"
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(code)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        os.closerange(3, 64)
        install(Injection(**request["injection"]))
        name, *arguments = request["run"]
        jobs[name](*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
