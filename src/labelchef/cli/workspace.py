"""The commands of a workspace, its campaigns and accounts; each calls one service function and prints what it returns."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from labelchef.base.campaigns import CampaignStatus, CampaignSummary, RoundSummary, Task, Waiting
from labelchef.base.errors import ConflictError, InvalidInputError
from labelchef.base.validation import ABOUT_BASELINES, BASELINES, note_on
from labelchef.cli.options import PIPED, console, options_of, plain_table, takes, workspace_options

if TYPE_CHECKING:
    from labelchef.loop.rebuild import ReplayedRound
    from labelchef.server.workspace import Workspace

DIFFERS = 1
"""Exit code of a replay that differs from the ledger, and of a ledger that was altered."""

Campaign = Annotated[str, typer.Argument(help="A campaign's short name or id; `labelchef status` lists them.")]
Person = Annotated[
    str | None, typer.Option("--as", envvar="LABELCHEF_PERSON", help="Your name; the default is your login.")
]
Name = Annotated[str, typer.Argument(help="Name of the account.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
users = typer.Typer(help="Accounts: add, list, deactivate, token.", no_args_is_help=True)
_EXPORT_OUT = "File to write: .csv, .json, .jsonl, .parquet, .xlsx, …; for a model .npz or .onnx; for a report .html."
_FORMAT = "Of a data set for another tool: label-studio, prodigy, argilla, …; the default is the ending of the file."
_WHAT = (
    "dataset: every row with content, final label, where it comes from and what is in doubt; predictions: what the final model "
    "says of every row; model: the final model; votes: every answer of people; labels: labels as they stand; report: plots "
    "and tables; ledger: everything that happened, chained and signed, for `labelchef verify`."
)
_SOURCES = "Each source of weak labels: coverage, accuracy, conflicts, weight, what muting it would change."
_DOUBTFUL = "How often people err, and the answers that are worth a second look: a lead may decide or reopen them."
_IMPORTED = (
    "A table of item, annotator, label (.csv, .jsonl or .parquet), or an export of another tool (Label Studio, Prodigy, "
    "Argilla, crowd-kit, Hugging Face datasets)."
)
MOST_LINES = 20
"""Of an import, on the screen."""
_SELECTORS = "Selectors to compare, separated by commas; the default is the campaign's own and a few others."


@takes(ws=workspace_options())
def status(
    ws: "Workspace",
    campaign: Annotated[str | None, typer.Argument(help="A campaign; all of them if none is named.")] = None,
    sources: Annotated[bool, typer.Option("--sources", help=_SOURCES)] = False,
    doubtful: Annotated[bool, typer.Option("--doubtful", help=_DOUBTFUL)] = False,
    out: Annotated[Path | None, typer.Option(help="With --sources: file to write: .csv, .jsonl or .parquet.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of campaigns: rounds, votes, people, conflicts; or what is known of sources, or of doubtful answers."""
    from labelchef.server.campaigns import campaigns as service

    if ((sources or doubtful) and (campaign is None or (sources and doubtful))) or (out is not None and not sources):
        told = "expected labelchef status NAME with --sources or --doubtful; --out FILE goes with --sources"
        raise InvalidInputError(told, code="status")
    if campaign is None:
        found = service.list_campaigns(ws)
        if as_json:
            _print_json([asdict(one) for one in found])
        elif found:
            rows = [(one.slug, one.state, one.round, one.spent, one.budget or "∞", one.message) for one in found]
            console.print(plain_table(("campaign", "state", "round", "asked", "of", "what"), rows))
            for one in found:
                show_notices(one, f"{one.slug}: ")
        else:
            console.print("no campaign yet; make one with `labelchef init NAME data.csv`")
    elif sources:
        _show_sources(ws, campaign, out, as_json=as_json)
    elif doubtful:
        _show_doubts(ws, campaign, as_json=as_json)
    elif as_json:
        _print_json(asdict(service.status(ws, campaign)))
    else:
        _show_status(service.status(ws, campaign))


def _show_sources(ws: "Workspace", campaign: str, out: Path | None, *, as_json: bool) -> None:
    from labelchef.cli.progress import show_sources
    from labelchef.server.sources import sources as service

    if out is not None:
        console.print(f"sources: {service.write_sources(ws, campaign, out).resolve()}")
        return
    found = service.sources(ws, campaign)
    if as_json:
        _print_json(found.as_json())
    elif found.sources:
        show_sources(found)
    else:
        console.print(found.notes[0])


def _show_doubts(ws: "Workspace", campaign: str, *, as_json: bool) -> None:
    from labelchef.server.items.doubts import doubts

    found = doubts(ws, campaign)
    if as_json:
        _print_json({**asdict(found), "note": found.note})
        return
    console.print(found.note)
    if found.items:
        rows = [
            (one.item, one.answer, one.believed, f"{one.wrong:.0%}", f"{one.worth:.2f}", one.reason)
            for one in found.items
        ]
        console.print(plain_table(("item", "answer", "believed", "wrong", "worth", "why"), rows))


@takes(ws=workspace_options())
def next_items(
    campaign: Campaign,
    ws: "Workspace",
    person: Person = None,
    count: Annotated[int, typer.Option(help="How many items.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show the items to label next; they are reserved for you for a while."""
    from labelchef.server.labelling import tasks

    found = tasks.next_tasks(ws, campaign, who_is(person), count)
    if as_json:
        _print_json({"waiting": asdict(found)} if isinstance(found, Waiting) else {"tasks": [asdict(t) for t in found]})
    elif isinstance(found, Waiting):
        console.print(f"nothing now: {found.message}")
    else:
        for task in found:
            _show_task(task)


@dataclass(frozen=True)
class _Said:
    """What a person says of an item."""

    item: Annotated[str | None, typer.Argument(help="The item's id; not needed with --undo.")] = None
    label: Annotated[str | None, typer.Argument(help="A class name.")] = None
    person: Person = None
    ambiguous: Annotated[bool, typer.Option("--ambiguous", help="The right class cannot be told.")] = False
    note: Annotated[str | None, typer.Option(help="A note, stored with the vote.")] = None
    undo: Annotated[bool, typer.Option("--undo", help="Take your last vote back.")] = False
    skip: Annotated[bool, typer.Option("--skip", help="Leave the item to others.")] = False


@takes(ws=workspace_options(), said=options_of(_Said))
def vote(campaign: Campaign, ws: "Workspace", said: _Said) -> None:
    """Vote on an item, change or take back a vote, skip an item."""
    from labelchef.server.labelling import tasks, votes

    item, label = said.item, said.label
    if sum([said.undo, said.skip, said.ambiguous, label is not None]) != 1 or (item is None) != said.undo:
        told = "expected an item and one of: a class name, --ambiguous, --skip; or --undo alone"
        raise InvalidInputError(told, code="label")
    who = who_is(said.person)
    if item is None:
        console.print(f"taken back; item {votes.undo_vote(ws, campaign, who).item} is yours again")
    elif said.skip:
        tasks.skip(ws, campaign, who, item)
        console.print(f"item {item} is left to others")
    else:
        done = votes.cast_vote(ws, campaign, who, item, label, note=said.note)
        console.print(f"stored: {done.item} is {label or 'ambiguous'}")
    move_on(ws, campaign)


@takes(ws=workspace_options())
def export(
    campaign: Campaign,
    out: Annotated[Path, typer.Option(help=_EXPORT_OUT)],
    ws: "Workspace",
    what: Annotated[str, typer.Option(help=_WHAT)] = "dataset",
    format: Annotated[str | None, typer.Option(help=_FORMAT)] = None,
    pseudonyms: Annotated[
        bool, typer.Option("--pseudonyms", help="Of a ledger: keyed hashes in place of names.")
    ] = False,
) -> None:
    """Write the data set, predictions, the final model, all votes, the report or the signed ledger to a file."""
    from labelchef.server.export import exchange, proof, take_home

    writers: dict[str, Callable[[Workspace, str, Path], Path]] = {
        "dataset": take_home.export_dataset,
        "predictions": take_home.export_predictions,
        "model": exchange.export_model,
        "votes": exchange.export_votes,
        "labels": exchange.export_labels,
        "report": exchange.export_report,
        "ledger": proof.export_ledger,
    }
    if what not in writers:
        raise InvalidInputError(f"what is {what!r}; expected one of: {', '.join(writers)}", code="what")
    if format is not None and what != "dataset":
        raise InvalidInputError(f"--format is for a data set; {what} is written by the ending of --out", code="format")
    if pseudonyms and what != "ledger":
        raise InvalidInputError(f"--pseudonyms is for a ledger; {what} has names as they are", code="pseudonyms")
    if what == "ledger":
        _export_ledger(ws, campaign, out, pseudonyms=pseudonyms)
        return
    written = take_home.export_dataset(ws, campaign, out, format) if format else writers[what](ws, campaign, out)
    console.print(f"{what}: {written.resolve()}")


def _export_ledger(ws: "Workspace", campaign: str, out: Path, *, pseudonyms: bool) -> None:
    from labelchef.server.export.proof import write_ledger

    made = write_ledger(ws, campaign, out, pseudonyms=pseudonyms)
    console.print(f"ledger: {made.path.resolve()}\nsigned with {made.public}; check it with `labelchef verify`")
    if made.links.told:
        typer.echo(made.links.told, err=True)
    if made.links.broken is not None:
        raise typer.Exit(DIFFERS)


def verify(
    file: Annotated[Path, typer.Argument(help="A ledger: what `labelchef export CAMPAIGN --what ledger` wrote.")],
    key: Annotated[
        str | None, typer.Option(help="Public key that must have signed it, or a file that holds it.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Data set exported from the same campaign, to compare.")] = None,
    since: Annotated[
        Path | None, typer.Option(help="Earlier ledger of the same campaign, of which nothing may be missing.")
    ] = None,
) -> None:
    """Check a ledger without its workspace: nothing was altered, in the file or in the database. Exit code 1 if something was."""
    from labelchef.server.export.verifying import verify_ledger

    found = verify_ledger(file, key, data, since)
    for said in found.checked:
        console.print(f"✓ {said}")
    for said in found.notes:
        console.print(f"– {said}")
    if not found.intact:
        where = "" if found.line is None else f" at line {found.line}"
        console.print(f"SIGNED WITH ANOTHER KEY: {found.why}" if found.other_key else f"ALTERED{where}: {found.why}")
        raise typer.Exit(DIFFERS)
    console.print(f"the file was not altered; {found.unproven}" if found.unproven else "nothing was altered")


@dataclass(frozen=True)
class _Importing:
    """How a file of answers is read, and what is told of it."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; store nothing.")] = False
    format: Annotated[str | None, typer.Option(help="What the file is, if it is not recognised.")] = None
    rename: Annotated[list[str] | None, typer.Option(help="OLD=NEW: another name for an annotator; repeatable.")] = None
    lines: Annotated[Path | None, typer.Option(help="Table to write: what became of each line.")] = None


@takes(ws=workspace_options(), how=options_of(_Importing))
def import_votes(
    campaign: Campaign,
    file: Annotated[Path, typer.Argument(help=_IMPORTED)],
    ws: "Workspace",
    how: _Importing,
    person: Person = None,
) -> None:
    """Import labels by people from another tool, and say what became of each line. If one cannot be used, nothing is stored."""
    from labelchef.server.intake.importing import import_votes as service
    from labelchef.server.intake.importing import write_lines

    parts = [one.partition("=") for one in how.rename or []]
    names = {old: new for old, _, new in parts}
    if "" in {*names, *names.values()}:
        raise InvalidInputError(f"--rename is {how.rename}; expected OLD=NEW", code="rename")
    found = service(ws, campaign, who_is(person), file, dry_run=how.dry_run, format=how.format, rename=names)
    said = ", ".join(f"{value} {key}" for key, value in found.counts.items())
    console.print(f"{'would be: ' if how.dry_run else ''}{said}")
    for note in found.notes:
        console.print(note)
    if how.lines is not None:
        console.print(f"lines: {write_lines(found, how.lines).resolve()}")
    else:
        rows = [(one.line, one.item, one.annotator, one.outcome.value) for one in found.lines[:MOST_LINES]]
        console.print(plain_table(("line", "item", "annotator", "what became of it"), rows))
        if len(found.lines) > MOST_LINES:
            console.print(f"… and {len(found.lines) - MOST_LINES} more; --lines FILE writes all of them")
    if not how.dry_run:
        move_on(ws, campaign)


@takes(ws=workspace_options())
def replay(campaign: Campaign, ws: "Workspace") -> None:
    """Run the whole history again from the ledger and compare the hashes."""
    from labelchef.server.campaigns import trained

    def show(one: "ReplayedRound") -> None:
        parts = [f"{name} {getattr(one, name) or '–'}" for name in ("selection", "labels", "metrics")]
        console.print(f"round {one.number}: {', '.join(parts)}")

    outcome = trained.replay(ws, campaign, show)
    console.print(outcome.message)
    if outcome.unproven:
        typer.echo(outcome.unproven, err=True)
    if not outcome.agrees:
        raise typer.Exit(DIFFERS)


@takes(ws=workspace_options())
def compare(
    campaign: Campaign,
    ws: "Workspace",
    selectors: Annotated[str | None, typer.Option(help=_SELECTORS)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Items per round; the default is the campaign's.")] = None,
    repeats: Annotated[int, typer.Option(help="Replays of each selector that uses random numbers.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Folder to write a table, curves, Markdown and a chart to.")] = None,
) -> None:
    """Replay selectors on the labels of a campaign, to see which would have been better."""
    from labelchef.cli.progress import CompareProgress
    from labelchef.judge.report import require_report
    from labelchef.server.compare import comparison_files
    from labelchef.server.compare.comparing import compare as service

    if out is not None:
        require_report()
    names = None if selectors is None else [name.strip() for name in selectors.split(",") if name.strip()]
    with CompareProgress() as watch:
        found = service(ws, campaign, names, batch_size, repeats=repeats, on_cell=watch.tell)
    console.print(comparison_files.title(found))
    rows = [comparison_files.cells(one) for one in found.standings]
    if not console.is_terminal:
        console.width = PIPED
    console.print(plain_table(comparison_files.headers(found), rows))
    for note in found.notes:
        console.print(note)
    if out is not None:
        written = [path.name for path in comparison_files.write_comparison(found, out)]
        console.print(f"{', '.join(written)}: {out.resolve()}")


COMMANDS = (status, next_items, vote, export, verify, import_votes, replay, compare)


@users.command()
@takes(ws=workspace_options(make=True))
def add(
    name: Name,
    ws: "Workspace",
    role: Annotated[str, typer.Option(help="lead or annotator.")] = "annotator",
    campaign: Annotated[list[str] | None, typer.Option(help="A campaign to take part in; may be given again.")] = None,
) -> None:
    """Make an account; the password is asked for, or read from standard input."""
    from labelchef.server.campaigns import campaigns
    from labelchef.server.people import accounts

    for one in campaign or []:
        campaigns.summary(ws, one)  # an unknown campaign is refused before an account is made
    made = accounts.create_account(ws, name, role, _password())
    for one in campaign or []:
        accounts.set_member(ws, one, name)
    console.print(f"{made.name} is {made.role}")


@users.command("list")
@takes(ws=workspace_options())
def list_users(ws: "Workspace") -> None:
    """All accounts."""
    from labelchef.server.people import accounts

    found = accounts.list_accounts(ws)
    rows = [(one.name, one.role, "yes" if one.active else "no", f"{one.created_at:%Y-%m-%d}") for one in found]
    console.print(plain_table(("name", "role", "active", "since"), rows))


@users.command()
@takes(ws=workspace_options())
def deactivate(name: Name, ws: "Workspace") -> None:
    """Deactivate an account; its votes stay."""
    from labelchef.server.campaigns import campaigns
    from labelchef.server.people import accounts

    accounts.set_active(ws, name, False)
    console.print(f"{name} cannot sign in any more")
    for one in campaigns.list_campaigns(ws):
        show_notices(one, f"{one.slug}: ")


@users.command()
@takes(ws=workspace_options())
def token(
    name: Name, ws: "Workspace", label: Annotated[str, typer.Option(help="What the token is for.")] = "command line"
) -> None:
    """Make an API token; it is shown only once."""
    from labelchef.server.people import accounts

    typer.echo(accounts.create_api_token(ws, name, label)[0])


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first = str(typer.prompt("password", hide_input=True))
    if first != typer.prompt("again", hide_input=True):
        raise InvalidInputError("the two passwords differ; try again", code="password")
    return first


def move_on(ws: "Workspace", campaign: str) -> None:
    """Do the work that is due, unless a server does it."""
    from labelchef.server.campaigns.trained import is_due

    if not is_due(ws, campaign):
        return
    from labelchef.server.worker import advance

    try:
        with console.status("updating the model"):
            advance(ws, campaign)
    except ConflictError as error:
        if error.code != "worker":
            raise


def who_is(person: str | None) -> str:
    """The person who acts: the one named, else the one who is logged in."""
    if person is not None:
        return person
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise InvalidInputError("your login has no name; give your name with --as", code="person") from None


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def _show_task(task: Task) -> None:
    console.print(Text.assemble((task.item, "bold"), f"  round {task.round}, rank {task.rank}"))
    content = task.content
    if content.text:
        console.print(content.text)
    for image in content.images:
        console.print(f"image: {image}")
    for key, value in content.fields.items():
        console.print(f"{key}: {value}")
    weak = task.weak or ()
    for position, name in enumerate(task.classes):
        mark = " ← suggested" if position == task.suggestion else ""
        share = f"  {weak[position]:.2f} {'█' * round(20 * weak[position])}" if weak else ""
        console.print(f"  {name}{share}{mark}")


def _show_last(last: RoundSummary, metric: str) -> None:
    """The figures of the present model, and what it is made with."""
    gain, figure = (last.gain or {}).get(metric), last.figures.get("validation", {}).get(metric)
    if figure is None:
        console.print(note_on(None, measured=bool(last.validation)))
    else:
        console.print(f"validation {metric} now: {figure}, {figure.measured_on}")
    if gain is not None:
        console.print(f"gain {gain}, {gain.measured_on}")
    if last.baselines:
        console.print(ABOUT_BASELINES, style="dim")
    if last.in_use is not None:
        console.print(f"in use: {last.in_use}")
    if last.calibration is not None:
        console.print(f"calibration error: {last.calibration}")


def show_notices(summary: CampaignSummary, before: str = "") -> None:
    """What a lead should do."""
    for notice in summary.notices:
        console.print(f"{before}{notice.message}", style="yellow")


def _show_status(seen: CampaignStatus) -> None:
    summary, metric = seen.summary, seen.settings.target_metric
    console.print(Text.assemble((summary.name, "bold"), f" ({summary.slug}): {summary.state}, {summary.message}"))
    show_notices(summary)
    console.print(f"asked {summary.spent} of {summary.budget or '∞'}, {summary.n_items} items")
    if seen.asked.others or seen.asked.audited:
        console.print(str(seen.asked))
    closed = [one for one in seen.rounds if one.validation is not None]
    beside = [(split, name) for split, found in (closed[-1].baselines if closed else {}).items() for name in found]
    rows = []
    for one in seen.rounds:
        scores = [f"{split[metric]:.3f}" if split else "" for split in (one.validation, one.test)]
        scores[0] = "not yet" if one.validation == {} else scores[0]
        scores += [f"{one.baselines[s][name][metric]:.3f}" if s in one.baselines else "" for s, name in beside]
        rows.append((one.number, one.kind, one.state, one.spent, *scores))
    short = {"validation": "val", "test": "test"}
    titles = (f"val {metric}", f"test {metric}", *(f"{short[split]} {BASELINES[name]}" for split, name in beside))
    if not console.is_terminal:
        console.width = PIPED
    console.print(plain_table(("round", "kind", "state", "asked", *titles), rows))
    if closed:
        _show_last(closed[-1], metric)
    if seen.settings.audit:
        console.print(str(seen.audit))
    for harm in seen.harms:
        console.print(
            f"{harm} labelchef campaign sources {seen.summary.slug} --mute {harm.name!r} shows what muting it does."
        )
    if seen.open_round is not None:
        console.print(f"open batch: {seen.open_round.complete} of {len(seen.open_round.items)} items have their votes")
    for person in seen.people:
        console.print(f"{person.person}: {person.votes} votes, {person.ambiguous} ambiguous")
    if seen.conflicts:
        console.print(f"{seen.conflicts} unresolved")
