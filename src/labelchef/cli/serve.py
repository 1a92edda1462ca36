"""`labelchef serve`: the page and the API, on a laptop or for a team. `labelchef worker`: what moves campaigns on, alone."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.cli.options import Cluster, console, options_of, takes, use_cluster

if TYPE_CHECKING:
    from labelchef.server.web.options import ServeOptions

_HOME = "Folder of the workspace: database and campaigns. [default: labelchef-home]"
_DATABASE = "PostgreSQL by URL instead of the database in the workspace's folder."
_HOST = "Address to listen on; beyond this machine only with --team. [default: 127.0.0.1]"
_TEAM = "People sign in with accounts (labelchef users add). Without it, one person signs in with a one-time link."
_HTTPS = "People use https, through a proxy in front of the server: cookies are marked Secure."
_PARALLEL = "Campaigns whose models are trained at the same time. [default: 2]"
_GRACE = "Days in which a deleted campaign can be restored. [default: 30]"
_PROCESSES = "Web processes behind the port, on PostgreSQL; the worker has its own process then. [default: 1]"
_WORKER = "Whether campaigns are moved on by this server; if not, start labelchef worker. [default: worker]"
_ROOT = "With --team, campaigns may be made from folders below this one."
_LOG = "warnings: what went wrong; text or json: a line an event too. None holds personal data. [default: warnings]"
_METRICS = "Answer /metrics for Prometheus, to programs on this machine or with LABELCHEF_METRICS_TOKEN."


@dataclass(frozen=True)
class _Serving:
    """Options of the server; those left out are as the environment says, or have their default."""

    home: Annotated[Path | None, typer.Option(envvar="LABELCHEF_HOME", help=_HOME)] = None
    database: Annotated[str | None, typer.Option(envvar="LABELCHEF_DATABASE", help=_DATABASE)] = None
    host: Annotated[str | None, typer.Option(help=_HOST)] = None
    port: Annotated[int | None, typer.Option(help="Port; 0 for any that is free. [default: 8000]")] = None
    team: Annotated[bool | None, typer.Option("--team", help=_TEAM)] = None
    https: Annotated[bool | None, typer.Option("--https", help=_HTTPS)] = None
    import_root: Annotated[Path | None, typer.Option(help=_ROOT)] = None
    grace_days: Annotated[float | None, typer.Option(help=_GRACE)] = None
    parallel: Annotated[int | None, typer.Option(help=_PARALLEL)] = None
    processes: Annotated[int | None, typer.Option(help=_PROCESSES)] = None
    worker: Annotated[bool | None, typer.Option("--worker/--no-worker", help=_WORKER)] = None
    log: Annotated[str | None, typer.Option(help=_LOG)] = None
    metrics: Annotated[bool | None, typer.Option("--metrics", help=_METRICS)] = None


@takes(serving=options_of(_Serving))
def serve(
    serving: _Serving,
    cluster: Cluster = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the link in the browser.")] = False,
) -> None:
    """Serve the page and the API: label in the browser, alone on a laptop or as a team."""
    use_cluster(cluster)
    given = {name: value for name, value in vars(serving).items() if value is not None}
    run_server(given, open_browser=open_browser)


def worker(
    home: Annotated[Path | None, typer.Option(envvar="LABELCHEF_HOME", help=_HOME)] = None,
    database: Annotated[str | None, typer.Option(envvar="LABELCHEF_DATABASE", help=_DATABASE)] = None,
    parallel: Annotated[int | None, typer.Option(help=_PARALLEL)] = None,
    log: Annotated[str | None, typer.Option(help=_LOG)] = None,
    cluster: Cluster = None,
) -> None:
    """Move campaigns on without a page: train models, select items, do jobs. As many workers as you like, each a process."""
    use_cluster(cluster)
    _require_serve()
    from labelchef.server.web.processes import run_worker

    given = {"home": home, "database": database, "parallel": parallel, "log": log}
    options = _options({name: value for name, value in given.items() if value is not None})

    def ready(name: str) -> None:
        if not options.parent:
            console.print(f"worker {name} runs; Ctrl-C stops it, and another takes over.")

    run_worker(options, ready)


def serve_demo(home: Path, *, seed: int, port: int, open_browser: bool) -> None:
    """Serve the digits as a campaign, ready to label."""
    _require_serve()
    from labelchef.data.files.digits import RULES
    from labelchef.server.demo import demo_campaign
    from labelchef.server.workspace import open_workspace

    with open_workspace(home) as ws:
        made = demo_campaign(ws, seed=seed)
    console.print(f"{made.name}: {made.n_items} handwritten digits with the votes of {len(RULES)} rules, in {home}")
    run_server({"home": home, "port": port}, open_browser=open_browser, path=f"/c/{made.slug}/label")


def run_server(given: dict[str, Any], *, open_browser: bool, path: str = "/") -> None:
    """Serve until interrupted, and print the address."""
    _require_serve()
    from labelchef.server.web.app import serve as run
    from labelchef.server.web.metrics import shared_folder

    options = _options(given)

    def ready(address: str) -> None:
        if not options.team:
            console.print("Open this link; it works once, in one browser:\n")
        console.print(Text.assemble("  ", (address, f"link {address}"), "\n"))
        console.print("Ctrl-C stops the server; all data is kept.", style="dim")
        if open_browser:
            import webbrowser

            webbrowser.open(address)

    own = options.metrics and not options.parent  # else the process that started this one has made the folder
    with shared_folder() if own else contextlib.nullcontext():
        run(options, ready, path)


def _options(given: dict[str, Any]) -> "ServeOptions":
    """The options of the server, from the command line and the environment."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from labelchef.server.logs import configure
    from labelchef.server.web.options import ServeOptions

    try:
        options = ServeOptions(**given)
    except SettingsError as error:
        raise InvalidInputError(
            f"the environment cannot be used: {error}; LABELCHEF_HOSTNAMES is a JSON list", code="options"
        ) from None
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(str(part) for part in wrong["loc"]).replace("_", "-")
        raise InvalidInputError(f"--{name} cannot be used: {wrong['msg'].lower()}", code="options") from None
    configure(options.log)
    return options


def _require_serve() -> None:
    import importlib.util

    needed = ["fastapi", "uvicorn", "jinja2", "multipart", "pydantic_settings", "sqlalchemy", "PIL"]
    needed += ["altair", "pwdlib"]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"the server needs {', '.join(missing)}; pip install 'labelchef[serve]'", code="serve")
