"""`labelchef init`: a workspace, and in it a campaign from the files people have."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from labelchef.base.campaigns import FILE_NAMES, CampaignFiles, CampaignSummary
from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, FilePlan, Preview, Progress, Severity
from labelchef.base.settings import Settings
from labelchef.cli.options import (
    HOME,
    PIPED,
    ByPosition,
    Classes,
    Database,
    Home,
    campaign_files,
    console,
    file_options,
    names_in,
    options_of,
    plain_table,
    setting_options,
    takes,
    workspace,
)
from labelchef.cli.workspace import Person, move_on, show_notices, who_is

if TYPE_CHECKING:
    from labelchef.data.files.queries import SqlQuery
    from labelchef.data.intake.detecting import Given

_DATA = "Your data: CSV, TSV, JSON, JSONL, Parquet, Arrow, Excel, .npy, .npz, a saved dataset, a folder of images, or a zip."
_FOLDER = "Arrays instead of raw data: a folder with features.npy, weak.csv or source_votes.csv, val_features.npy, …"
_AUTO = "A source made from the trusted rows: snuba, snuba-together or affinity (images); may be given again."
_VOTE_ROLES = {
    "item": ColumnRole.ID, "source": ColumnRole.VOTER, "label": ColumnRole.VOTE, "probability": ColumnRole.PROBABILITY,
}  # fmt: skip
_VOTE_COLUMNS = "Columns of a table with a vote a row: item=COLUMN,source=COLUMN,label=COLUMN[,probability=COLUMN]."
_OPTION = {
    "ignored": "ignore", "used": "use", "truth": "truth_column", "weak": "probabilities", "features": "embeddings",
    "media": "images", "rows_are_ids": "id_from_rows",
}  # fmt: skip
"""A field of `Given` whose option has another name → that option."""
_SEVERITY = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
_PREVIEW = 5
_WIDE = 60
_LISTED = 40
Columns = list[str] | None
Files = list[Path] | None


@dataclass(frozen=True)
class _Asked:
    """The files of people, what their columns are, and what becomes of them."""

    data: Annotated[Files, typer.Argument(help=_DATA)] = None
    home: Home = HOME
    database: Database = None
    text: Annotated[Columns, typer.Option(help="A column of text; several with commas.")] = None
    image: Annotated[Columns, typer.Option(help="A column with paths of images; several with commas.")] = None
    columns: Annotated[str | None, typer.Option(help="Columns to learn from as they are, separated by commas.")] = None
    id: Annotated[str | None, typer.Option(help="The column that names the rows; files are joined by it.")] = None
    shown: Annotated[
        Columns, typer.Option(help="A column that people see and the model does not; several with commas.")
    ] = None
    ignore: Annotated[Columns, typer.Option(help="A column to leave out; several with commas.")] = None
    use: Annotated[
        Columns, typer.Option(help="A column to use although it seems to tell the label; several with commas.")
    ] = None
    labels: Annotated[
        Columns, typer.Option(help="A column of labels that may be wrong: a source; several with commas.")
    ] = None
    truth_column: Annotated[str | None, typer.Option(help="The column of labels that are right.")] = None
    votes: Annotated[Files, typer.Option(help="Votes of sources: a column each, or item, source, label.")] = None
    vote_columns: Annotated[str | None, typer.Option(help=_VOTE_COLUMNS)] = None
    trusted: Annotated[Files, typer.Option(help="Labels that are right: id and label, or rows of their own.")] = None
    test: Annotated[Files, typer.Option(help="As --trusted, but only for the last measurement.")] = None
    probabilities: Annotated[Files, typer.Option(help="Weak labels: a probability for each row and class.")] = None
    embeddings: Annotated[Files, typer.Option(help="Numbers for each row that the model learns from.")] = None
    rules: Annotated[Files, typer.Option(help="Rules without code, .toml or .json.")] = None
    functions: Annotated[Files, typer.Option(help="Labelling functions, a Python file. It is executed.")] = None
    auto: Annotated[Columns, typer.Option(help=_AUTO)] = None
    llm: Annotated[Files, typer.Option(help="Labels by an LLM, JSONL with id, label, and probabilities if known.")] = (
        None
    )
    images: Annotated[Files, typer.Option(help="Folder or zip of the images that --image names.")] = None
    classes: Classes = None
    fold_case: Annotated[
        bool, typer.Option("--fold-case", help="Class names that differ in upper and lower case only are one.")
    ] = False
    id_from_rows: Annotated[
        bool, typer.Option("--id-from-rows", help="Row numbers from 0 name the rows, whatever columns there are.")
    ] = False
    by_position: ByPosition = False
    encoder: Annotated[Columns, typer.Option(help="An encoder by name; may be given again.")] = None
    sql: Annotated[str | None, typer.Option(help="Read rows from a database, by SQLAlchemy URL.")] = None
    query: Annotated[str | None, typer.Option(help="The SQL query for --sql.")] = None
    guidelines: Annotated[
        Path | None, typer.Option(help="Guidelines for people, Markdown; sections named as a class are about it.")
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be made; make nothing.")] = False
    folder: Annotated[Path | None, typer.Option(help=_FOLDER)] = None

    def given(self) -> "Given":
        """What is said of files and columns."""
        from labelchef.data.intake.detecting import Given

        said = {one.name: getattr(self, _OPTION.get(one.name, one.name), None) for one in fields(Given)}
        said |= {"columns": (self.columns,) if self.columns else None, "vote_columns": _roles(self.vote_columns)}
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in said.items() if v is not None}
        return Given(**{**given, "classes": names_in(self.classes) or None})

    def content(self, arrays: dict[str, Any]) -> "list[Path | str | SqlQuery] | CampaignFiles | None":
        """Raw files, or arrays; None where nothing was named."""
        from labelchef.data.campaign_data import find_files
        from labelchef.data.files.queries import SqlQuery

        raw = any([
            self.data, self.votes, self.trusted, self.test, self.probabilities, self.embeddings, self.rules, self.functions,
            self.llm, self.images, self.sql,
        ])  # fmt: skip
        if (self.sql is None) != (self.query is None):
            raise InvalidInputError("--sql and --query belong together; one of them is missing", code="sql")
        if raw and (arrays or self.folder is not None):
            raise InvalidInputError(
                "raw data and arrays were given; expected files with your data, or arrays (--features … or --folder), not both",
                code="file",
            )
        classes = names_in(self.classes) or None
        if arrays:
            return campaign_files(
                arrays, or_else=", or a --folder with them", by_position=self.by_position, classes=classes
            )
        if self.folder is not None:
            return find_files(self.folder, self.by_position, classes)
        query = [] if self.sql is None or self.query is None else [SqlQuery(self.sql, self.query)]
        return [*(self.data or []), *query] if raw else None


@takes(asked=options_of(_Asked), arrays=file_options(FILE_NAMES), settings=setting_options())
def init(
    name: Annotated[str | None, typer.Argument(help="Name of a campaign to make in the workspace.")] = None,
    *,
    asked: _Asked,
    arrays: dict[str, Any],
    settings: Settings,
    person: Person = None,
) -> None:
    """Make a workspace, and in it a campaign from your data.

    labelchef init NAME data.csv --votes votes.csv --trusted gold.csv
    """
    from labelchef.loop.start import check_choices
    from labelchef.server.intake.starting import look, start_campaign

    sources = asked.content(arrays)
    if name is None and sources is not None:
        raise InvalidInputError("files were given, but no name; expected labelchef init NAME FILES …", code="name")
    told = None if asked.guidelines is None else _read_text(asked.guidelines)
    if name is None:
        with workspace(asked.home, asked.database, make=True) as ws:
            console.print(f"workspace: {ws.home}")
        return
    if sources is None:
        raise InvalidInputError(
            "no data was named; expected labelchef init NAME data.csv --votes votes.csv --trusted gold.csv, or --folder",
            code="file",
        )
    check_choices(settings, n_items=settings.ahead)  # before files that may be large are read
    with WorkBar() as bar:
        looked = look(
            sources, asked.given(), automatic=asked.auto or [], seed=settings.seed, rows=_PREVIEW, progress=bar.tell
        )
    _show(looked.preview)
    if not looked.preview.usable:
        wrong = next(one for one in looked.preview.findings if one.severity is Severity.ERROR)
        raise InvalidInputError(wrong.message, code=wrong.code)
    if asked.dry_run:
        return
    with workspace(asked.home, asked.database, make=True) as ws:
        with WorkBar() as bar:
            specs = asked.encoder or ["auto"]
            made = start_campaign(
                ws, name, looked.content, settings, who_is(person), specs=specs, progress=bar.tell, guidelines=told
            )
        _made(made, asked.home)
        move_on(ws, made.slug)
    _next(asked.home)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidInputError(
            f"{path} cannot be read: {why}; expected a Markdown file for --guidelines", code="guidelines"
        ) from None


def _made(made: CampaignSummary, home: Path) -> None:
    console.print(f"campaign: {made.slug}, {made.n_items} items, in the workspace {home}")
    show_notices(made)


def _next(home: Path) -> None:
    console.print(f"next: labelchef serve --home {home} --open", style="dim")


def _show(found: Preview) -> None:
    """Files with their roles, joined rows, findings."""
    if not console.is_terminal:
        console.width = PIPED
    rows = [(Path(one.path).name, one.role, _columns(one), one.why) for one in found.plan.files]
    console.print(plain_table(("file", "used as", "columns", "because"), rows))
    counts = [f"{found.n_train:,} rows to label", f"{found.n_trusted:,} trusted"]
    counts += [f"{found.n_test:,} test"] if found.n_test else []
    counts += [f"{len(found.classes)} classes ({_some(found.classes)})", f"{len(found.sources)} sources"]
    console.print(f"\n{', '.join(counts)}; joined by {'row number' if found.plan.by_position else 'id'}\n")
    content = (ColumnRole.TEXT, ColumnRole.IMAGE, ColumnRole.FEATURE, ColumnRole.SHOWN)
    names = [name for role in content for name, one in found.content.items() if one is role][:4]
    shown = [
        (
            one.id,
            one.split,
            *(_cut(one.content.get(name)) for name in names),
            one.label or "",
            _cut(", ".join(f"{source}: {label}" for source, label in one.votes.items())),
        )
        for one in found.rows
    ]
    console.print(plain_table(("id", "split", *names, "label", "votes"), shown))
    for one in sorted(found.findings, key=lambda one: list(_SEVERITY).index(one.severity)):
        console.print(f"{one.severity}: {one.message}", style=_SEVERITY[one.severity])


def _columns(file: FilePlan) -> str:
    """Every column by its role; long runs of one role, as those of embeddings, by their first and last."""
    found = []
    for role in dict.fromkeys(file.columns.values()):
        names = file.named(role)
        some = names if len(names) <= _LISTED else (*names[: _LISTED // 2], "…", names[-1])
        told = "not used" if role is ColumnRole.IGNORED else role
        found.append(f"{told}: {', '.join(some)}" + (f" ({len(names)})" if len(names) > _LISTED else ""))
    return "; ".join(found)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")


def _cut(value: str | None) -> str:
    text = " ".join((value or "").split())
    return text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"


def _roles(values: str | None) -> dict[ColumnRole, str]:
    """Roles and columns of a long table of votes: item=image,source=worker,label=emotion."""
    pairs = [one.partition("=") for one in names_in(values)]
    found = {
        _VOTE_ROLES[role.strip()]: name.strip()
        for role, _, name in pairs
        if role.strip() in _VOTE_ROLES and name.strip()
    }
    needed = {ColumnRole.ID, ColumnRole.VOTER, ColumnRole.VOTE}
    if pairs and (len(found) < len(pairs) or not needed <= set(found)):
        raise InvalidInputError(
            f"--vote-columns {values!r} cannot be read; expected item=COLUMN,source=COLUMN,label=COLUMN", code="column"
        )
    return found


class WorkBar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("reading", total=None)

    def __enter__(self) -> "WorkBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @property
    def tell(self) -> Progress:
        """Shows what is done."""
        return lambda what, done, total: self._bar.update(
            self._task, description=what, completed=done, total=total or None
        )
