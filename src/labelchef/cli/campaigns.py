"""The commands of campaigns in a workspace; each calls one service function and prints what it returns."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from labelchef.cli.options import REQUIRED, file_options, setting_options, takes
from labelchef.domain.campaigns import CampaignFiles, CampaignStatus, Task, Waiting
from labelchef.domain.errors import ConflictError, InvalidInputError
from labelchef.domain.settings import Settings
from labelchef.domain.validation import note_on

if TYPE_CHECKING:
    from labelchef.services.workspace import Workspace

DIFFERS = 1
"""Exit code of a replay that differs from the ledger."""

Home = Annotated[Path, typer.Option(envvar="LABELCHEF_HOME", help="Folder of the workspace.")]
Database = Annotated[
    str | None, typer.Option(envvar="LABELCHEF_DATABASE", help="PostgreSQL by URL instead of a file in the workspace.")
]
Campaign = Annotated[str, typer.Argument(help="A campaign's short name or id; `labelchef status` lists them.")]
Person = Annotated[
    str | None, typer.Option("--as", envvar="LABELCHEF_PERSON", help="Your name; the default is your login.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
HOME = Path("labelchef-home")
_CAMPAIGN_FILES = tuple(one.name for one in fields(CampaignFiles))
_FOLDER = "Folder with features.npy, weak.csv, val_features.npy, val_labels.csv, items.csv, …"


@contextmanager
def workspace(home: Path, database: str | None, *, make: bool = False) -> "Iterator[Workspace]":
    """The workspace of a command; only `init` makes one."""
    from labelchef.services.workspace import DATABASE_FILE, open_workspace, require_store

    require_store()
    if not make and database is None and not (home / DATABASE_FILE).is_file():
        raise InvalidInputError(
            f"{home} is no workspace; make one with `labelchef init`, or name its --home", code="home"
        )
    with open_workspace(home, database) as ws:
        yield ws


@takes(files=file_options(_CAMPAIGN_FILES), settings=setting_options())
def init(
    name: Annotated[str | None, typer.Argument(help="Name of a campaign to make in the workspace.")] = None,
    home: Home = HOME,
    database: Database = None,
    folder: Annotated[Path | None, typer.Option(help=_FOLDER)] = None,
    *,
    files: dict[str, Path],
    settings: Settings,
    person: Person = None,
) -> None:
    """Make a workspace, and in it a campaign from files."""
    from labelchef.campaign.files import find_files
    from labelchef.services import campaigns as service

    if name is None and (files or folder is not None):
        raise InvalidInputError("files were given, but no name; expected labelchef init NAME …", code="name")
    found = None
    if name is not None:
        found = find_files(folder) if folder is not None else _files(files)
    console = make_console()
    with workspace(home, database, make=True) as ws:
        console.print(f"workspace: {escape(str(ws.home))}")
        if name is None or found is None:
            return
        made = service.create_campaign(ws, name, found, settings, _who(person))
        console.print(f"campaign: {made.slug}, {made.n_items} items")
        _move_on(ws, made.slug)
        console.print(f"next: labelchef serve --home {escape(str(home))}", style="dim")


def status(
    campaign: Annotated[str | None, typer.Argument(help="A campaign; all of them if none is named.")] = None,
    home: Home = HOME,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of campaigns: rounds, votes, people, conflicts."""
    from labelchef.services import campaigns as service

    with workspace(home, database) as ws:
        if campaign is None:
            found = service.list_campaigns(ws)
            if as_json:
                _print_json([asdict(one) for one in found])
                return
            table = make_table("campaign", "state", "round", "asked", "of", "what")
            for one in found:
                table.add_row(one.slug, one.state, str(one.round), str(one.spent), str(one.budget or "∞"), one.message)
            make_console().print(
                table if found else "no campaign yet; make one with `labelchef init NAME --folder FOLDER`"
            )
            return
        seen = service.status(ws, campaign)
    if as_json:
        _print_json(asdict(seen))
    else:
        _show_status(seen)


def next_items(
    campaign: Campaign,
    home: Home = HOME,
    database: Database = None,
    person: Person = None,
    count: Annotated[int, typer.Option(help="How many items.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show the items to label next; they are reserved for you for a while."""
    from labelchef.services.labelling import tasks

    with workspace(home, database) as ws:
        found = tasks.next_tasks(ws, campaign, _who(person), count)
    if as_json:
        _print_json({"waiting": asdict(found)} if isinstance(found, Waiting) else {"tasks": [asdict(t) for t in found]})
    elif isinstance(found, Waiting):
        make_console().print(f"nothing now: {escape(found.message)}")
    else:
        for task in found:
            _show_task(task)


def vote(
    campaign: Campaign,
    item: Annotated[str | None, typer.Argument(help="The item's id; not needed with --undo.")] = None,
    label: Annotated[str | None, typer.Argument(help="A class name.")] = None,
    home: Home = HOME,
    database: Database = None,
    person: Person = None,
    ambiguous: Annotated[bool, typer.Option("--ambiguous", help="The right class cannot be told.")] = False,
    note: Annotated[str | None, typer.Option(help="A note, stored with the vote.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take your last vote back.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Leave the item to others.")] = False,
) -> None:
    """Vote on an item, change or take back a vote, skip an item."""
    from labelchef.services.labelling import tasks, votes

    wanted = [undo, skip, ambiguous, label is not None]
    if sum(wanted) != 1 or (item is None) != undo:
        raise InvalidInputError(
            "expected an item and one of: a class name, --ambiguous, --skip; or --undo alone", code="label"
        )
    who, console = _who(person), make_console()
    with workspace(home, database) as ws:
        if undo:
            console.print(f"taken back; item {escape(votes.undo_vote(ws, campaign, who).item)} is yours again")
        elif skip:
            tasks.skip(ws, campaign, who, str(item))
            console.print(f"item {escape(str(item))} is left to others")
        else:
            done = votes.cast_vote(ws, campaign, who, str(item), label, note=note)
            console.print(f"stored: {escape(done.item)} is {escape(label or 'ambiguous')}")
        _move_on(ws, campaign)


def export(
    campaign: Campaign,
    out: Annotated[Path, typer.Option(help="File to write: .csv, .jsonl or .parquet.")],
    home: Home = HOME,
    database: Database = None,
    what: Annotated[str, typer.Option(help="labels, or votes: the whole ledger of them.")] = "labels",
) -> None:
    """Write the present labels, or all votes, to a file."""
    from labelchef.services.exchange import exports

    writers = {"labels": exports.export_labels, "votes": exports.export_votes}
    if what not in writers:
        raise InvalidInputError(f"what is {what!r}; expected labels or votes", code="what")
    with workspace(home, database) as ws:
        path = writers[what](ws, campaign, out)
    make_console().print(f"{what}: {escape(str(path.resolve()))}")


def import_votes(
    campaign: Campaign,
    file: Annotated[Path, typer.Argument(help="A table of item, annotator, label: .csv, .jsonl or .parquet.")],
    home: Home = HOME,
    database: Database = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; store nothing.")] = False,
) -> None:
    """Import votes of another tool. If a line cannot be used, nothing is stored."""
    from labelchef.services.exchange import imports

    with workspace(home, database) as ws:
        counts = imports.import_votes(ws, campaign, file, dry_run=dry_run)
        said = ", ".join(f"{value} {key}" for key, value in counts.items())
        make_console().print(f"{'would be: ' if dry_run else ''}{said}")
        if not dry_run:
            _move_on(ws, campaign)


def replay(campaign: Campaign, home: Home = HOME, database: Database = None) -> None:
    """Run the whole history again from the ledger and compare the hashes."""
    from labelchef.campaign.rebuild import ReplayedRound
    from labelchef.services import replaying

    console = make_console()

    def show(one: ReplayedRound) -> None:
        parts = [f"{name} {_verdict(getattr(one, name))}" for name in ("selection", "labels", "metrics")]
        console.print(f"round {one.number}: {', '.join(parts)}")

    with workspace(home, database) as ws:
        outcome = replaying.replay(ws, campaign, show)
    console.print(outcome.message)
    if not outcome.agrees:
        raise typer.Exit(DIFFERS)


def report(
    campaign: Campaign,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    home: Home = HOME,
    database: Database = None,
) -> None:
    """Write the report of a campaign: plots and tables in one HTML file."""
    from labelchef.io.artefacts import write_text
    from labelchef.services.exchange import exports

    with workspace(home, database) as ws:
        page = exports.report(ws, campaign)
    try:
        write_text(out, page)
    except OSError as error:
        raise InvalidInputError(f"{out} cannot be written: {error.strerror or error}", code="out") from None
    make_console().print(f"report: {escape(str(out.resolve()))}")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(init)
    app.command()(status)
    app.command("next")(next_items)
    app.command()(vote)
    app.command()(export)
    app.command("import-votes")(import_votes)
    app.command()(replay)
    app.command()(report)


def _files(given: dict[str, Path]) -> CampaignFiles:
    missing = [f"--{key.replace('_', '-')}" for key in REQUIRED if key not in given]
    if missing:
        raise InvalidInputError(
            f"{missing[0]} is missing; give --features, --weak, --val-features and --val-labels, or a --folder with them",
            code="file",
        )
    return CampaignFiles(**given)


def _move_on(ws: "Workspace", campaign: str) -> None:
    """Do the work that is due, unless a server does it."""
    from labelchef.services.trained import is_due

    if not is_due(ws, campaign):
        return
    from labelchef.services.worker import advance

    try:
        with make_console().status("updating the model"):
            advance(ws, campaign)
    except ConflictError as error:
        if error.code != "worker":
            raise


def _who(person: str | None) -> str:
    if person is not None:
        return person
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise InvalidInputError("your login has no name; give your name with --as", code="person") from None


def make_console() -> Console:
    """A terminal that does not wrap lines or guess colours."""
    return Console(highlight=False, soft_wrap=True)


def make_table(*titles: str) -> Table:
    """A plain table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title)
    return table


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def _verdict(same: bool | None) -> str:
    return "–" if same is None else "same" if same else "DIFFERS"


def _show_task(task: Task) -> None:
    console = make_console()
    console.print(f"[bold]{escape(task.item)}[/bold]  round {task.round}, rank {task.rank}")
    content = task.content
    if content.text:
        console.print(escape(content.text))
    if content.image:
        console.print(f"image: {escape(content.image)}")
    for key, value in content.fields.items():
        console.print(f"{escape(key)}: {escape(str(value))}")
    weak = task.weak or ()
    for position, name in enumerate(task.classes):
        mark = " ← suggested" if position == task.suggestion else ""
        share = f"  {weak[position]:.2f} {'█' * round(20 * weak[position])}" if weak else ""
        console.print(f"  {escape(name)}{share}{mark}")


def _show_status(seen: CampaignStatus) -> None:
    console, summary = make_console(), seen.summary
    console.print(f"[bold]{escape(summary.name)}[/bold] ({summary.slug}): {summary.state}, {escape(summary.message)}")
    console.print(f"asked {summary.spent} of {summary.budget or '∞'}, {summary.n_items} items")
    metric = seen.settings.target_metric
    table = make_table("round", "kind", "state", "asked", f"val {metric}", f"test {metric}")
    for one in seen.rounds:
        val, test = ((f"{split[metric]:.3f}" if split else "") for split in (one.validation, one.test))
        table.add_row(str(one.number), one.kind, one.state, str(one.spent), val, test)
    console.print(table)
    closed = [one for one in seen.rounds if one.validation is not None]
    if closed:
        gain = (closed[-1].gain or {}).get(metric)
        console.print(note_on(None) if gain is None else f"gain on validation ({gain.samples} samples): {gain}")
    if seen.open_round is not None:
        console.print(f"open batch: {seen.open_round.complete} of {len(seen.open_round.items)} items have their votes")
    for person in seen.people:
        console.print(f"{escape(person.person)}: {person.votes} votes, {person.ambiguous} ambiguous")
    if seen.conflicts:
        console.print(f"{seen.conflicts} unresolved")
