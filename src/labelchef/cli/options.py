"""What several commands share: the terminal, the open workspace, options for settings and for files.

A command gets a group of options as one value:

    @takes(files=file_options(...), settings=setting_options(), ws=workspace_options())
    def command(name: ..., files: dict[str, Any], settings: Settings, ws: "Workspace") -> None: ...

The options of the settings come from `base.settings.OPTIONS`; a new setting needs no change here.
Many options of one command are the fields of a dataclass (`options_of`).
"""

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from rich.console import Console
from rich.table import Column, Table

from labelchef.base.campaigns import CampaignFiles
from labelchef.base.cluster_address import ADDRESS, LOCAL, cluster_address
from labelchef.base.errors import InvalidInputError
from labelchef.base.files import is_url
from labelchef.base.settings import OPTIONS, Option, Settings, voters_of

if TYPE_CHECKING:
    from labelchef.server.workspace import Workspace

Result = TypeVar("Result")
console = Console(highlight=False, soft_wrap=True, markup=False)
"""A terminal that does not wrap lines or guess colours."""
PIPED = 160
"""Characters of a line of a table that no terminal bounds."""
HOME = Path("labelchef-home")
Home = Annotated[Path, typer.Option(envvar="LABELCHEF_HOME", help="Folder of the workspace.")]
Database = Annotated[
    str | None, typer.Option(envvar="LABELCHEF_DATABASE", help="PostgreSQL by URL instead of a file in the workspace.")
]

ByPosition = Annotated[
    bool, typer.Option("--by-position", help="Row k of a file without ids belongs to row k of the others.")
]

Classes = Annotated[str | None, typer.Option(help="All class names in their order, separated by commas.")]

Cluster = Annotated[
    str | None,
    typer.Option(
        envvar=ADDRESS,
        metavar="URL",
        help="Dask scheduler whose workers hold the features, tcp://HOST:8786, or 'local' for processes of this machine; used by "
        "engine dask, and by engine auto where X is large.",
    ),
]

CLEAN_SETTINGS = tuple(name for name, option in OPTIONS.items() if not option.labelling)
"""The settings of `labelchef clean`; its voters come from --strategy."""
_RENAMED = {"trusted": "use_trusted", "muted": "mute"}
"""Settings whose option has another name: --trusted names the file of trusted labels, and --mute is given once for each name."""
STRATEGIES = "one: three people; two: the suggestion alone; three: the suggestion and two people."
FILES = {
    "features": "Training features, one row per sample: .npy, .npz, .parquet or .csv; a folder of .npy or .parquet files; a URL.",
    "weak": "Weak labels: a probability for each sample and class; the headers name the classes.",
    "source_votes": "Votes of sources (rules, crowd workers, LLMs) on the training samples, with --weak or in its place.",
    "val_source_votes": "Votes of the same sources on the validation samples.",
    "val_features": "Validation features.",
    "val_labels": "Trusted validation labels: one per sample, or a column 'label'.",
    "test_features": "Test features; the selection never sees them.",
    "test_labels": "Test labels.",
    "clean_labels": "Training labels known from the start, -1 where unknown.",
    "truth": "True training labels; people are simulated from them.",
    "votes": "Recorded votes of people, the answers: a table of item, annotator, label (-1: ambiguous).",
    "items": "What people see: a table with the columns id, text and image; every other column is shown as a field.",
    "val_items": "The same for the validation samples.",
    "media": "Folder of the images.",
}
"""Name → help of every file a campaign can be made of."""
REQUIRED = ("features", "val_features", "val_labels")
_AT_URLS = ("features", "val_features", "test_features")
"""Files that may be at a URL; it stays a text, as a path would lose one of its slashes."""


@dataclass(frozen=True)
class Group:
    """Options of the command line, and how the command's value is made of them."""

    options: tuple[inspect.Parameter, ...]
    make: Callable[[dict[str, Any]], object]
    """A context manager is entered before the command runs."""


def takes(**groups: Group) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Replace parameters of a command by groups of options."""

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            group = groups.get(parameter.name)
            parameters += (parameter,) if group is None else group.options

        @functools.wraps(command)
        def run(**given: Any) -> Result:
            with ExitStack() as stack:
                for name, group in groups.items():
                    value = group.make({option.name: given.pop(option.name) for option in group.options})
                    given[name] = stack.enter_context(value) if isinstance(value, AbstractContextManager) else value
                return command(**given)

        ordered = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        run.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in ordered}
        return run

    return decorate


def setting_options(names: Iterable[str] = tuple(OPTIONS)) -> Group:
    """One option per setting; the command gets `Settings`.

    If the voters are among the settings, --strategy is added, which sets them.
    """
    defaults = Settings().as_dict()
    chosen = {name: OPTIONS[name] for name in names}
    renamed = {_RENAMED.get(name, name): name for name in chosen}
    parameters = [_parameter(shown, _annotation(chosen[name]), defaults[name]) for shown, name in renamed.items()]
    if "people" in chosen:
        parameters.append(_parameter("strategy", Annotated[str | None, typer.Option(help=STRATEGIES)], None))

    def make(given: dict[str, Any]) -> Settings:
        strategy = given.pop("strategy", None)
        values = {renamed[shown]: _value(chosen[renamed[shown]], value) for shown, value in given.items()}
        if strategy is not None:
            values["people"], values["suggestion_votes"] = voters_of(strategy)
        return Settings.of(values)

    return Group(tuple(parameters), make)


def file_options(names: Iterable[str], *, required: Collection[str] = ()) -> Group:
    """One option per file; the command gets name → path of those that were given, or the URL as it is."""
    parameters = []
    for name in names:
        metavar, kind = ("<path>", str) if name in _AT_URLS else (None, Path)
        option, needed = typer.Option(help=FILES[name], metavar=metavar), name in required
        parameters.append(
            _parameter(name, Annotated[kind, option])
            if needed
            else _parameter(name, Annotated[kind | None, option], None)
        )

    def make(given: dict[str, Any]) -> dict[str, Path | str]:
        there = {name: place for name, place in given.items() if place is not None}
        return {name: place if name in _AT_URLS and is_url(place) else Path(place) for name, place in there.items()}

    return Group(tuple(parameters), make)


def options_of(kind: type[Any]) -> Group:
    """One option per field of a dataclass; the command gets an instance of it."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = {one.name: inspect.Parameter.empty if one.default is MISSING else one.default for one in fields(kind)}
    return Group(
        tuple(_parameter(name, hints[name], value) for name, value in defaults.items()), lambda given: kind(**given)
    )


def names_in(values: str | None) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(one.strip() for one in (values or "").split(",") if one.strip())


def campaign_files(
    given: dict[str, Any], *, or_else: str = "", by_position: bool = False, classes: tuple[str, ...] | None = None
) -> CampaignFiles:
    """The files of a campaign, if those that are needed are there; `or_else` names what could be given instead."""
    trusted = {"val_features", "val_labels"} & set(given)
    missing = [key for key in REQUIRED if key not in given and (key == "features" or trusted)]
    named = [f"--{key.replace('_', '-')}" for key in missing]
    if not named and not {"weak", "source_votes", "val_labels"} & set(given) and classes is None:
        named = ["--weak, --source-votes or --classes"]
    if named:
        needed = "--features, --weak or --source-votes or both, --val-features and --val-labels" + or_else
        raise InvalidInputError(f"{named[0]} is missing; give {needed}", code="file")
    return CampaignFiles(**given, by_position=by_position, classes=classes)


@contextmanager
def workspace(home: Path, database: str | None, *, make: bool = False) -> "Iterator[Workspace]":
    """The workspace of a command; only with `make` it may be new."""
    from labelchef.server.workspace import DATABASE_FILE, open_workspace, require_store

    require_store()
    if not make and database is None and not (home / DATABASE_FILE).is_file():
        raise InvalidInputError(
            f"{home} is no workspace; make one with `labelchef init`, or name its --home", code="home"
        )
    with open_workspace(home, database) as ws:
        yield ws


def workspace_options(*, make: bool = False) -> Group:
    """--home and --database; the command gets the open workspace."""
    parameters = _parameter("home", Home, HOME), _parameter("database", Database, None)
    return Group(parameters, lambda given: workspace(**given, make=make))


_IN_FILES = ("LABELCHEF_DATABASE", "LABELCHEF_METRICS_TOKEN")


def secrets_from_files(environ: MutableMapping[str, str]) -> None:
    """Secrets that come as files, as containers and systemd hand them over: NAME_FILE names the file of NAME.

    >>> given = {"LABELCHEF_DATABASE_FILE": __file__, "LABELCHEF_DATABASE": "postgresql://db/x"}
    >>> secrets_from_files(given)
    Traceback (most recent call last):
    labelchef.base.errors.InvalidInputError: LABELCHEF_DATABASE and LABELCHEF_DATABASE_FILE are both set; remove one of them
    """
    for name in _IN_FILES:
        place = environ.get(f"{name}_FILE")
        if not place:
            continue
        if environ.get(name):
            raise InvalidInputError(f"{name} and {name}_FILE are both set; remove one of them", code="secret")
        try:
            value = Path(place).read_text().strip()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInputError(f"{name}_FILE is {place}, which cannot be read: {why}", code="secret") from None
        if not value:
            raise InvalidInputError(f"{name}_FILE is {place}, which is empty; write the value into it", code="secret")
        environ[name] = value
        del environ[f"{name}_FILE"]  # processes that this one starts find the value itself


def plain_table(titles: Iterable[str | Column], rows: Iterable[Iterable[object]]) -> Table:
    """A table without lines."""
    table = Table(*titles, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def _parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotation(option: Option) -> object:
    """The type of an option; what has 'auto' is read as text, and `Option.check` reads the number."""
    kind: Any = str if option.auto else list[str] if option.kind is tuple else option.kind
    told = option.help
    if option.none:
        told += f" {'Empty' if kind is str else '0'}: {option.none}."
    return Annotated[kind | None if option.none else kind, typer.Option(help=told)]


def _value(option: Option, given: Any) -> Any:
    """What the command line gave; 0 or an empty text is None where None is allowed."""
    return None if option.none and given in (0, "") else given


def use_cluster(address: str | None) -> None:
    """Let all engines of this process, and of those that it starts, use a cluster; one that does not answer is an error now."""
    if address is None:
        return
    if cluster_address(address) != LOCAL:
        from labelchef.model.engines.cluster.dask_workers import DaskWorkers

        DaskWorkers(address).close()
    os.environ[ADDRESS] = address
