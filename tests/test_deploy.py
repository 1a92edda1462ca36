"""The files of deploy/: checked by the linters of their own tools, and against the program that they start.

No container is built here: that needs Docker. `tools/try_image.py` runs what the Dockerfile runs, without it.
"""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from tools import try_image

from labelchef.cli.main import app
from labelchef.server.web.options import ServeOptions
from labelchef.server.web.uploads import is_upload

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = sorted((DEPLOY / "systemd").glob("*.service"))
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def tool(name: str) -> str:
    """A program of this environment or machine; the test is skipped where it is not installed."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip(f"{name} is not installed; tools/system-parts and the extra dev install it")
    return found


def ran(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def options_of(words: list[str]) -> set[str]:
    """Options of a command line of labelchef, whose command must know them."""
    command = COMMANDS[words[0]]
    known = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
    given = {word for word in words[1:] if word.startswith("--")}
    assert given <= known, f"labelchef {words[0]} has no {sorted(given - known)}"
    return given


def test_the_dockerfile_passes_hadolint() -> None:
    if shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/bin:/usr/local/bin") is None:
        pytest.skip("hadolint is not installed; its licence is the GPL, so this project does not install it")
    ran(tool("hadolint"), "deploy/Dockerfile")


def test_the_image_is_small_pinned_and_has_no_rights() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    found = try_image.stages(text)
    assert set(found) == {"build", "final"}
    version = re.search(r"ARG PYTHON=(\S+)", text)
    assert version is not None
    assert re.fullmatch(r"3\.\d+\.\d+-slim-\w+", version[1]), "an exact version"
    assert {stage.base for stage in found.values()} == {"python:${PYTHON}"}
    final = found["final"]
    assert [copied for copied in final.copied if copied[0] != "--from=build"] == []
    assert not re.search(r"apt-get|pip |curl|gcc", " ".join(final.run)), "no tools that build"
    assert int(final.others["USER"].split(":")[0]) > 0
    assert final.others["HEALTHCHECK"].startswith("--interval")
    assert "--constraint constraints.txt" in found["build"].run[1]
    assert options_of(json.loads(final.others["CMD"])) >= {"--team", "--host"}
    extras = re.search(r"\[([a-z,]+)\]", found["build"].run[1])
    assert extras is not None
    declared = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", declared, re.MULTILINE) for extra in extras[1].split(","))


def test_only_what_the_wheel_is_made_of_is_sent_to_the_builder() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for *sources, _ in try_image.stages((DEPLOY / "Dockerfile").read_text())["build"].copied
        for source in sources
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_compose_is_what_its_specification_says() -> None:
    found = importlib.util.find_spec("check_jsonschema")
    if found is None or found.origin is None:
        pytest.skip(
            "check-jsonschema, which has the schema of compose files, is not installed; the extra dev installs it"
        )
    schema = Path(found.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


def test_compose_starts_what_there_is_in_the_right_order() -> None:
    services = COMPOSE["services"]
    for name in ("migrate", "web", "worker"):
        options_of(services[name]["command"])
        assert services[name]["init"]
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]
    assert services["web"]["command"][-1] == "--metrics"
    assert "--no-worker" in services["web"]["command"]
    assert services["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    for name in ("web", "worker"):
        assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert "pg_isready" in services["database"]["healthcheck"]["test"][1]
    assert services["web"]["ports"] == ["127.0.0.1:8000:8000"], "https is the proxy's"


def test_no_password_works_by_itself() -> None:
    """Secrets come as files that the operator makes; neither a value nor a default for one is in the file."""
    for name, service in COMPOSE["services"].items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|DATABASE", key):
                assert key.endswith("_FILE"), (name, key)
                assert value.removeprefix("/run/secrets/") in service["secrets"]
    assert all(set(one) == {"file"} and one["file"].startswith("./secrets/") for one in COMPOSE["secrets"].values())
    assert not list(DEPLOY.glob("secrets/*"))
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text()


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.stem)
def test_units_pass_systemds_own_checks(unit: Path, tmp_path: Path) -> None:
    """The program is not installed where the tests run, so another one stands for it."""
    analyze, text = tool("systemd-analyze"), unit.read_text()
    assert text.count("/opt/labelchef/bin/labelchef ") == text.count("ExecStart=") > 0
    there = tmp_path / unit.name
    there.write_text(text.replace("/opt/labelchef/bin/labelchef", "/bin/true"))
    ran(analyze, "verify", "--man=no", str(there))
    ran(analyze, "security", "--offline=true", "--threshold=20", str(unit))  # of 100; ends with an error above it


def test_the_timer_passes_systemds_own_checks(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    for path in (DEPLOY / "systemd").iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/labelchef/bin/labelchef", "/bin/true"))
    ran(analyze, "verify", "--man=no", str(tmp_path / "labelchef-backup.timer"))


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.stem)
def test_units_start_what_there_is(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    for line in (one for one in lines if one.startswith("ExecStart=")):
        options_of(shlex.split(line)[1:])
    loaded = {
        line.removeprefix("LoadCredential=").split(":")[0] for line in lines if line.startswith("LoadCredential=")
    }
    named = dict(line.removeprefix("Environment=").split("=", 1) for line in lines if line.startswith("Environment="))
    assert {value.removeprefix("%d/") for key, value in named.items() if key.endswith("_FILE")} == loaded
    for name in named:
        if name.startswith("LABELCHEF_"):
            assert name.removeprefix("LABELCHEF_").removesuffix("_FILE").lower() in ServeOptions.model_fields


def test_several_processes_are_ended_by_the_one_that_started_them() -> None:
    """A web process that gets a second signal drops the requests that run."""
    for unit in SERVICES:
        if "--processes" in unit.read_text():
            assert "KillMode=mixed" in unit.read_text().splitlines(), unit.name


def test_nginx_takes_its_file(tmp_path: Path) -> None:
    nginx, openssl = tool("nginx"), tool("openssl")
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    ran(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=label.example.org", "-keyout", str(key), "-out", str(certificate))  # fmt: skip
    site = (DEPLOY / "nginx" / "labelchef.conf").read_text().replace("/etc/ssl/labelchef", str(tmp_path))
    (tmp_path / "site.conf").write_text(
        re.sub(r"(?<=:|\s)(80|443)(?=[ ;])", lambda found: f"{18000 + int(found[0])}", site)
    )
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; include {tmp_path}/site.conf; }}"
    )
    ran(nginx, "-t", "-q", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"))


@pytest.mark.parametrize(
    "path",
    [
        *("/api/campaigns", "/api/campaigns/a/import-votes", "/api/intakes", "/api/intakes/a/files"),
        *(
            "/api/campaigns/a",
            "/api/campaigns/a/votes",
            "/api/intakes/a/rules",
            "/api/intakes/a/files/b",
            "/api/session",
        ),
    ],
)
def test_nginx_streams_uploads_and_reads_all_else_in_full(path: str) -> None:
    streamed = re.search(r'location ~ "(.+)"', (DEPLOY / "nginx" / "labelchef.conf").read_text())
    assert streamed is not None
    assert (re.search(streamed[1], path) is not None) == is_upload("POST", path)


@pytest.mark.slow
def test_the_wheel_holds_the_program_and_its_files(tmp_path: Path) -> None:
    """What the first stage of the image builds: every file of the package, no test and no cache."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed; tools/try_image.py installs it")
    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    wheel = next(tmp_path.glob("labelchef-*.whl"))
    shutil.unpack_archive(wheel, tmp_path / "wheel", "zip")
    made = {
        str(path.relative_to(tmp_path / "wheel"))
        for path in (tmp_path / "wheel" / "labelchef").rglob("*")
        if path.is_file()
    }
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "labelchef").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert made == source
