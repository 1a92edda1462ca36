"""`labelchef compare`: selectors replayed on the labels of a campaign."""

from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from labelchef.cli.campaigns import HOME, Campaign, Database, Home, make_console, make_table, workspace
from labelchef.domain.comparisons import Cell

_SELECTORS = "Selectors to compare, separated by commas; the default is the campaign's own and a few others."
_BATCH = "Items per round; the default is the campaign's."
_REPEATS = "Replays of each selector that uses random numbers."
_PIPED = 160  # characters of a line that no terminal bounds
_OUT = "Folder to write a table, curves, Markdown and a chart to."


def compare(
    campaign: Campaign,
    selectors: Annotated[str | None, typer.Option(help=_SELECTORS)] = None,
    batch_size: Annotated[int | None, typer.Option(help=_BATCH)] = None,
    repeats: Annotated[int, typer.Option(help=_REPEATS)] = 5,
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    home: Home = HOME,
    database: Database = None,
) -> None:
    """Replay selectors on the labels of a campaign, to see which would have been better."""
    from labelchef.services.compare import comparison_files
    from labelchef.services.compare.comparing import compare as service

    if out is not None:
        from labelchef.report import require_report

        require_report()
    names = None if selectors is None else [name.strip() for name in selectors.split(",") if name.strip()]
    with workspace(home, database) as ws, _Watch() as watch:
        found = service(ws, campaign, names, batch_size, repeats=repeats, on_cell=watch.tell)
    console = make_console()
    if not console.is_terminal:
        console.width = _PIPED
    console.print(comparison_files.title(found))
    table = make_table(*comparison_files.headers(found))
    for one in found.standings:
        table.add_row(*comparison_files.cells(one))
    console.print(table)
    for note in found.notes:
        console.print(note)
    if out is not None:
        names = [path.name for path in comparison_files.write_comparison(found, out)]
        console.print(f"{', '.join(names)}: {escape(str(out.resolve()))}")


class _Watch:
    """A progress bar per selector; without a terminal, a line per finished replay."""

    def __init__(self) -> None:
        self._console = make_console()
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=self._console, transient=True
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def tell(self, cell: Cell) -> None:
        """A round of a replay is done."""
        if not self._console.is_terminal:
            if cell.asked == cell.labels:
                self._console.print(f"{cell.selector}: replay {cell.repeat} of {cell.repeats}, {cell.labels} labels")
            return
        if cell.selector not in self._tasks:
            self._tasks[cell.selector] = self._bars.add_task(cell.selector, total=cell.labels * cell.repeats)
        done = (cell.repeat - 1) * cell.labels + cell.asked
        self._bars.update(self._tasks[cell.selector], completed=done)
