"""Do what deploy/Dockerfile does, without Docker: its RUN lines in a folder, then its entry point as a server that must be ready.

    python tools/try_image.py FOLDER

The build stage runs as it is written, with /build, /tools, /wheels and /opt/labelchef below FOLDER. Of the final stage the
variables, the entry point and the command are used; users, file systems and the base image are not: those need Docker.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
_PLACES = ("/build", "/tools", "/wheels", "/opt/labelchef", "/var/lib/labelchef")
_PATIENCE = 120.0


@dataclass
class Stage:
    """A stage of a Dockerfile."""

    base: str
    run: list[str] = field(default_factory=list)
    copied: list[list[str]] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    """ENV, USER, ENTRYPOINT, CMD, … by name; the last one counts, as it does for Docker."""


def stages(text: str) -> dict[str, Stage]:
    r"""The stages of a Dockerfile by name.

    >>> stages("FROM a AS one\nRUN x \\\n  && y\nUSER 5\n")["one"]
    Stage(base='a', run=['x && y'], copied=[], others={'USER': '5'})
    """
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found: dict[str, Stage] = {}
    current = Stage("")
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            current = found[name] = Stage(base)
        elif word == "RUN":
            current.run.append(rest)
        elif word == "COPY":
            current.copied.append(rest.split())
        elif word:
            current.others[word] = rest
    return found


def moved(text: str, folder: Path) -> str:
    """A command with the places of the image below a folder."""
    for place in _PLACES:
        text = re.sub(rf"(?<![\w.{{]){re.escape(place)}(?=[/\s\"':]|$)", f"{folder}{place}", text)
    return text


def build(folder: Path) -> None:
    """Run the build stage."""
    stage = stages(DOCKERFILE.read_text())["build"]
    here = folder / "build"
    here.mkdir(parents=True)
    for *sources, target in stage.copied:
        for source in sources:
            to = here / target / (source if (ROOT / source).is_file() else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, to)
    for command in stage.run:
        given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
        path = f"{Path(sys.executable).resolve().parent}:{given.get('PATH', '')}"
        print(f"+ {command}", flush=True)
        subprocess.run(["sh", "-ec", moved(command, folder)], cwd=here, check=True, env={**given, "PATH": path})


def serve(folder: Path) -> dict[str, object]:
    """Make an account, start the server as the image does, and return what /readyz answers."""
    final = stages(DOCKERFILE.read_text())["final"]
    named = dict(one.split("=", 1) for one in shlex.split(moved(final.others["ENV"], folder)))
    (folder / "var/lib/labelchef/cache").mkdir(parents=True, exist_ok=True)
    named["PATH"] = named["PATH"].replace("$PATH", os.environ["PATH"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    entry = json.loads(final.others["ENTRYPOINT"])
    words = [port if word == "8000" else word for word in json.loads(final.others["CMD"])]
    entry[0] = str(folder / "opt/labelchef/bin" / entry[0])
    environment = {"HOME": str(folder), **named}
    password = "a long enough password"
    added = [*entry, "users", "add", "lead", "--role", "lead"]
    subprocess.run(added, env=environment, input=f"{password}\n{password}\n", text=True, check=True, cwd=folder)
    process = subprocess.Popen([*entry, *words], env=environment, cwd=folder)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                    found: dict[str, object] = json.load(answer)
                    return found
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def main(folder: Path) -> None:
    """Build and serve in a new folder."""
    folder = folder.resolve()
    if folder.exists():
        sys.exit(f"{folder} is there already; name a folder that is not")
    began = time.monotonic()
    build(folder)
    built = time.monotonic() - began
    size = sum(path.stat().st_size for path in (folder / "opt").rglob("*") if path.is_file())
    print(f"built in {built:.0f} s, {size / 2**20:.0f} MiB in /opt/labelchef")
    print(json.dumps(serve(folder), indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
