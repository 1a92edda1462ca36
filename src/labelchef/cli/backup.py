"""`labelchef backup …`: a whole workspace in one file, and back."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from labelchef.cli.options import HOME, Database, Home, console, takes, workspace_options

if TYPE_CHECKING:
    from labelchef.server.backup import BackupReport
    from labelchef.server.workspace import Workspace

_OUT = "File to write: NAME.tar.gz, or NAME.tar without compression; one that is there is replaced when the new one is whole."
_FILE = Annotated[Path, typer.Argument(help="What `labelchef backup make` wrote.")]
backup_commands = typer.Typer(help="A whole workspace in one file: make, check, restore.", no_args_is_help=True)


@backup_commands.command()
@takes(ws=workspace_options())
def make(out: Annotated[Path, typer.Argument(metavar="FILE", help=_OUT)], ws: "Workspace") -> None:
    """Write the whole workspace to one file while it is in use: database, arrays, uploads, signing key. Keep it private."""
    from labelchef.server.backup import backup as service

    with _progress("backup") as tell:
        made = service(ws, out, tell)
    console.print(f"{out.resolve()}: {_told(made)}")


@backup_commands.command()
def check(file: _FILE) -> None:
    """Read a backup to its end and compare every part with its digest; nothing is written."""
    from labelchef.server.backup import check_backup as service

    with _progress("check") as tell:
        found = service(file, tell)
    console.print(f"whole and unaltered: {_told(found)}")


@backup_commands.command()
def restore(file: _FILE, home: Home = HOME, database: Database = None) -> None:
    """Make a workspace of a backup, in an empty --home and, if one is named, an empty --database."""
    from labelchef.server.backup import restore_backup as service

    with _progress("restore") as tell:
        made = service(file, home, database, tell)
    console.print(f"{home.resolve()} holds it now: {_told(made)}. People sign in again; API tokens still work")


def _told(made: "BackupReport") -> str:
    when = datetime.fromtimestamp(made.made_at, UTC)
    return (
        f"{made.campaigns} campaigns, {made.rows['item']} items, {made.rows['vote']} votes, {made.files} files, of "
        f"{when:%Y-%m-%d %H:%M} UTC, by labelchef {made.version}"
    )


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int], object]]:
    """Shows how much was done, on a terminal."""
    columns = TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done: shown.advance(task, done)
