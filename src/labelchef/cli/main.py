"""`labelchef`: parse the options, call one service function, print. Bad input ends with exit code 2 and no traceback."""

import os
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from rich.console import Console
from rich.markup import escape

from labelchef import __version__
from labelchef.base.errors import InvalidInputError, LabelchefError, LabelchefWarning
from labelchef.base.settings import Settings, voters_of
from labelchef.cli.backup import backup_commands
from labelchef.cli.care import campaign_commands
from labelchef.cli.llm import ask_llm
from labelchef.cli.options import (
    CLEAN_SETTINGS,
    REQUIRED,
    STRATEGIES,
    ByPosition,
    Classes,
    Cluster,
    campaign_files,
    console,
    file_options,
    names_in,
    options_of,
    secrets_from_files,
    setting_options,
    takes,
    use_cluster,
)
from labelchef.cli.predicting import predict
from labelchef.cli.serve import serve as serve_command
from labelchef.cli.serve import worker as worker_command
from labelchef.cli.starting import init
from labelchef.cli.workspace import COMMANDS, users

_MOVED = {
    "sources": "status NAME --sources, and to change them: labelchef campaign sources", "doubtful": "status NAME --doubtful",
    "report": "export NAME --what report --out report.html", "check-backup": "backup check", "restore-backup": "backup restore",
    **{one: f"campaign {one}" for one in ("list", "rename", "archive", "unarchive", "delete", "restore", "copy", "key")},
}  # fmt: skip
"""A command of an earlier version → the present one."""


class _Commands(typer.core.TyperGroup):
    """The commands; a name of an earlier version is answered with the present one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in _MOVED:
            raise InvalidInputError(f"`labelchef {args[0]}` is now: labelchef {_MOVED[args[0]]}", code="command")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="Train a classifier from everything you know, and ask people for the few labels that are still worth asking.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
_errors = Console(stderr=True, highlight=False)

INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"labelchef {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train a classifier from everything you know, and ask people for the few labels that are still worth asking."""


_STRATEGY = f"{STRATEGIES} Default: one if there are people (--truth or --votes), else two."
_DEMO_OUT = "Folder for the results; an earlier demo there is replaced."
_SOURCES = ("weak", "source_votes", "val_source_votes")
_CLEAN_FILES = (*REQUIRED, *_SOURCES, "test_features", "test_labels", "clean_labels", "truth", "votes")


@dataclass(frozen=True)
class _Cleaning:
    """Who answers, how files are read, what is written."""

    strategy: Annotated[str | None, typer.Option(help=_STRATEGY)] = None
    error_rate: Annotated[float, typer.Option(help="Error rate of each simulated person.")] = 0.05
    report: Annotated[bool, typer.Option(help="Write report.html with plots.")] = True
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx beside model.npz.")] = False
    resume: Annotated[bool, typer.Option(help="Continue the campaign in --out.")] = False
    by_position: ByPosition = False
    classes: Classes = None
    cluster: Cluster = None


@app.command()
@takes(
    files=file_options(_CLEAN_FILES, required=REQUIRED),
    settings=setting_options(CLEAN_SETTINGS),
    more=options_of(_Cleaning),
)
def clean(
    files: dict[str, Any],
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    settings: Settings,
    more: _Cleaning,
) -> None:
    """Run a whole cleaning campaign from files.

    Writes cleaned_labels.csv, model.npz, history.csv, rounds.jsonl, summary.json and report.html to --out.
    """
    from labelchef.cli.progress import LiveProgress, show_outcome
    from labelchef.data.campaign_data import read_files
    from labelchef.loop import clean as service

    use_cluster(more.cluster)
    people, suggestion_votes = voters_of(more.strategy or ("one" if "truth" in files or "votes" in files else "two"))
    settings = replace(settings, people=people, suggestion_votes=suggestion_votes)
    answers = service.read_answers(files.pop("truth", None), files.pop("votes", None), more.error_rate)
    data = read_files(campaign_files(files, by_position=more.by_position, classes=names_in(more.classes) or None))
    with LiveProgress(settings.target_metric) as live:
        outcome = service.clean(
            data, answers, settings, out, report=more.report, onnx=more.onnx, resume=more.resume, watcher=live.watcher()
        )
    show_outcome(outcome, settings.target_metric)
    if outcome.stopped_because == "interrupted":
        raise typer.Exit(INTERRUPTED)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help=_DEMO_OUT)] = Path("labelchef-demo"),
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    report: Annotated[bool, typer.Option(help="Write report.html with plots.")] = True,
    serve: Annotated[bool, typer.Option("--serve", help="Label the digits yourself, in the browser.")] = False,
    home: Annotated[Path, typer.Option(help="With --serve: folder of the workspace.")] = Path("labelchef-demo-home"),
    port: Annotated[int, typer.Option(help="With --serve: port, 0 for any that is free.")] = 8000,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="With --serve: open the browser.")] = False,
) -> None:
    """Clean real labels: handwritten digits with weak labels from simple rules; needs no network."""
    if serve:
        from labelchef.cli.serve import serve_demo

        serve_demo(home, seed=seed, port=port, open_browser=open_browser)
        return
    from labelchef.cli.progress import LiveProgress, show_next_steps, show_outcome
    from labelchef.data.files.digits import RULES
    from labelchef.server.demo import demo as service
    from labelchef.server.demo import fresh_folder

    fresh_folder(out, report=report)
    console.print(
        f"1 797 handwritten digits, the votes of {len(RULES)} rules about holes, bays, symmetry and ink, 100 trusted images.\n"
        "Three simulated people (5 % errors) clean the 200 labels that labelchef asks for, ten a round.\n"
    )
    with LiveProgress("f1_macro") as live:
        outcome = service(out, seed=seed, report=report, watcher=live.watcher())
    show_outcome(outcome, "f1_macro")
    show_next_steps(outcome)
    if outcome.stopped_because == "interrupted":
        raise typer.Exit(INTERRUPTED)


app.command()(serve_command)
app.command()(worker_command)
for _command in (init, predict, ask_llm, *COMMANDS):
    app.command({"next_items": "next", "import_votes": "import"}.get(_command.__name__))(_command)
app.add_typer(campaign_commands, name="campaign")
app.add_typer(backup_commands, name="backup")
app.add_typer(users, name="users")


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Warnings as one line each, without file and source line."""
    if issubclass(category, LabelchefWarning):
        _errors.print(f"[yellow]warning[/yellow] {escape(str(message))}", soft_wrap=True)


def run() -> None:
    """The console script."""
    warnings.showwarning = _warn
    try:
        secrets_from_files(os.environ)
        app()
    except LabelchefError as error:
        _errors.print(f"[red]error[/red] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        _errors.print("interrupted")
        sys.exit(INTERRUPTED)
