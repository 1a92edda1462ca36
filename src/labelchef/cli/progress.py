"""What a terminal shows while a campaign or a comparison runs, and at its end."""

import math
import sys
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from labelchef.base.learning import ABOUT_SOURCES, ABOUT_USE, SourceFacts
from labelchef.base.records import UNRESOLVED, RoundRecord
from labelchef.base.validation import ABOUT_BASELINES, BASELINES, Cell, behind, note_on
from labelchef.cli.options import PIPED, console, plain_table
from labelchef.judge.metrics import value_of
from labelchef.loop.clean import CleanOutcome, Watcher
from labelchef.loop.source_effect import SourceEffect
from labelchef.loop.source_report import SourceReport

_SHOWN = 12
_FEW_SOURCES = 4


class LiveProgress:
    """A table with one row per round; without a terminal, one line per round."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._console = Console()
        self._rows: list[tuple[str, ...]] = []
        self._where = "test"  # where the baselines are measured
        self._status = "preparing"
        self._running = True
        self._live = Live(self._render(), console=self._console, refresh_per_second=8, transient=False)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status, self._running = "", False
        if self._console.is_terminal:
            self._live.update(self._render())
            self._live.stop()

    def watcher(self) -> Watcher:
        """The hooks a service calls."""
        return Watcher(self._on_step, self._on_round)

    def _on_step(self, iteration: int, norm: float, tolerance: float) -> None:
        if math.isnan(tolerance):
            self._status = f"first model: epoch {iteration}, gradient {norm:.1e}"
        else:
            self._status = f"first model: step {iteration}, gradient {norm:.1e} (down to {tolerance:.1e})"
        self._refresh()

    def _on_round(self, record: RoundRecord) -> None:
        scores = ["" if m is None else f"{value_of(m, self._metric):.3f}" for m in (record.validation, record.test)]
        counts = (str(record.number), str(record.spent), str(len(record.changed)))
        seconds = f"{1e3 * sum(record.seconds.values()):.0f} ms"
        row = (*counts, _kept(record), _best(record), *scores, *self._baselines(record), seconds)
        self._rows.append(row)
        self._status = ""
        if self._console.is_terminal:
            self._refresh()
        else:
            pairs = [f"{name} {value}" for name, value in zip(self._titles(), row, strict=True) if value]
            self._console.print(", ".join(pairs), highlight=False, soft_wrap=True)

    def _baselines(self, record: RoundRecord) -> tuple[str, ...]:
        """What one would have without weak labels: on the test samples, if there are any, else on validation."""
        split, self._where = ("validation", "val") if record.test is None else ("test", "test")
        found = record.baselines.get(split, {})
        return tuple(f"{value_of(found[name], self._metric):.3f}" if name in found else "" for name in BASELINES)

    def _refresh(self) -> None:
        if self._console.is_terminal:
            self._live.update(self._render())

    def _titles(self) -> tuple[str, ...]:
        scores = (f"val {self._metric}", f"test {self._metric}")
        beside = (f"{self._where} {words}" for words in BASELINES.values())
        return ("round", "asked", "changed", "suggestion kept", "best influence", *scores, *beside, "time")

    def _render(self) -> Any:
        shown = [k for k, title in enumerate(self._titles()) if title == "round" or any(row[k] for row in self._rows)]
        columns = [Column(self._titles()[k], justify="right") for k in shown]
        rows = [tuple(row[k] for k in shown) for row in self._rows[-_SHOWN if self._running else 0 :]]
        return Group(plain_table(columns, rows), Text(self._status, style="dim"))


def _kept(record: RoundRecord) -> str:
    """How many decisions are as suggested, of those that had a suggestion."""
    suggested = record.batch.suggested != UNRESOLVED
    kept = int((suggested & (record.decisions.labels == record.batch.suggested)).sum())
    return f"{kept}/{int(suggested.sum())}" if suggested.any() else ""


def _best(record: RoundRecord) -> str:
    """The best influence of the batch, if the selector predicts any."""
    known = record.batch.influence[np.isfinite(record.batch.influence)]
    return f"{float(known.min()):.2f}" if known.size else ""


class CompareProgress:
    """A progress bar per selector; without a terminal, a line per finished replay."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def tell(self, cell: Cell) -> None:
        """A round of a replay is done."""
        if not console.is_terminal:
            if cell.asked == cell.labels:
                console.print(f"{cell.selector}: replay {cell.repeat} of {cell.repeats}, {cell.labels} labels")
            return
        if cell.selector not in self._tasks:
            self._tasks[cell.selector] = self._bars.add_task(cell.selector, total=cell.labels * cell.repeats)
        done = (cell.repeat - 1) * cell.labels + cell.asked
        self._bars.update(self._tasks[cell.selector], completed=done)


def show_outcome(outcome: CleanOutcome, metric: str) -> None:
    """Print metrics before and after, why the campaign stopped, and where the results are."""
    first, last = outcome.history.iloc[0], outcome.history.iloc[-1]
    parts = [
        f"{split} {metric} before → after: [bold]{first[f'{key}_{metric}']:.3f} → {last[f'{key}_{metric}']:.3f}[/bold]"
        for key, split in (("val", "validation"), ("test", "test"))
        if split in outcome.gains or (split not in outcome.figures and f"{key}_{metric}" in outcome.history.columns)
    ]
    console.print()
    console.print(", ".join([*parts, f"{int(last['spent'])} samples asked"]), markup=True)
    for split, figure in outcome.figures.items():
        where, gain = (
            figure.measured_on if split == "validation" else f"{figure.samples} samples",
            outcome.gains.get(split),
        )
        console.print(f"{split} {metric} now: {figure}, {where}" + ("" if gain is None else f"; gain {gain}"))
    if "validation" not in outcome.figures:
        console.print(note_on(None))
    _show_baselines(outcome, metric)
    if outcome.in_use is None:
        console.print(f"strengths: gamma {outcome.settings.gamma:g}, l2 {outcome.settings.l2:.3g}")
    else:
        console.print(f"in use: {outcome.in_use}")
    if outcome.calibration is not None:
        console.print(f"calibration error: {outcome.calibration}")
    if outcome.audit is not None:
        console.print(str(outcome.audit))
    if outcome.sources is not None:
        show_sources(outcome.sources, few=True)
    if "gb_read" in outcome.history.columns:
        gb, seconds = outcome.history["gb_read"].sum(), outcome.history["seconds_reading"].sum()
        console.print(f"features streamed from files: {gb:,.1f} GB read in {seconds:,.0f} s, {gb / seconds:.2f} GB/s")
    console.print(f"stopped: {outcome.message}")
    report = next((f for f in outcome.files if f.name == "report.html"), None)
    if report is not None:
        console.print(f"report: {report.resolve()}")
    console.print(f"labels, model, history, ledger: {outcome.folder.resolve()}")


def _show_baselines(outcome: CleanOutcome, metric: str) -> None:
    """What one would have without weak labels, on the same samples."""
    last, parts = outcome.history.iloc[-1], []
    for name, words in BASELINES.items():
        columns = ((split, f"{key}_{name}_{metric}") for key, split in (("val", "validation"), ("test", "test")))
        values = [f"{split} {last[column]:.3f}" for split, column in columns if column in outcome.history.columns]
        parts += [f"{words}: {', '.join(values)}"] if values else []
    if parts:
        console.print("; ".join(parts))
        console.print(ABOUT_BASELINES, style="dim")
    for key, split in (("val", "validation"), ("test", "test")):
        column, figure = f"{key}_no_weak_{metric}", outcome.figures.get(split)
        said = None if figure is None or column not in last else behind(figure, float(last[column]))
        if said is not None:
            console.print(f"{split} {metric} is {said}")


def show_sources(found: SourceReport, *, few: bool = False) -> None:
    """A table of sources, most votes first; `few`: if there are many, the best and the worst by accuracy."""
    shown = list(found.sources)
    known = sorted((one for one in shown if not math.isnan(one.accuracy)), key=lambda one: -one.accuracy)
    if few and len(known) > 2 * _FEW_SOURCES:
        shown = [*known[:_FEW_SOURCES], *known[-_FEW_SOURCES:]]
        console.print(
            f"sources: the {_FEW_SOURCES} most and the {_FEW_SOURCES} least accurate of {len(known)} that are measured; "
            "sources.csv has all"
        )
    elif few:
        shown = shown[: 2 * _FEW_SOURCES]
        console.print("sources:" if len(shown) == found.total else f"sources, the {len(shown)} with the most votes:")
    if not console.is_terminal:
        console.width = PIPED
    right = ("votes", "coverage", "measured", "95 %", "n", "believed", "conflicts", "weight", "if muted")
    columns = [Column("source"), *(Column(title, justify="right") for title in right), Column("use")]
    console.print(plain_table(columns, [_source_cells(one) for one in shown]))
    if few:
        return
    for note in found.notes:
        console.print(note)
    for use in dict.fromkeys(one.use for one in shown):
        console.print(f"{use}: {ABOUT_USE[use]}", style="dim")
    console.print(ABOUT_SOURCES, style="dim")


def show_effect(found: SourceEffect) -> None:
    """What other sources would change, with the trusted samples alone beside it."""
    columns = [
        Column("split"),
        Column("metric"),
        *(Column(one, justify="right") for one in ("now", "then", "difference (95 %)")),
    ]
    rows = []
    for split, gains in found.gains.items():
        alone = found.baselines.get(split, {}).get("trusted_only")
        for name, one in gains.items():
            base = "–" if alone is None or name not in alone.as_dict() else f"{alone.as_dict()[name]:.3f}"
            difference = f"{one.change:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
            rows.append((split, name, f"{one.before:.3f}", f"{one.after:.3f}", difference, base))
    console.print(plain_table([*columns, Column("trusted alone", justify="right")], rows))
    console.print(
        f"of {found.unanswered} samples without an answer, {found.believed} would be believed to be of another class, and "
        f"{found.predicted} predicted so"
    )
    for split, gains in found.kept.items():
        shown = ", ".join(
            f"{name} {one.change:+.3f} ({one.low:+.3f} to {one.high:+.3f})" for name, one in gains.items()
        )
        console.print(f"with the present choice of source model and strengths, {split}: {shown}")
    console.print(f"in use now: {found.in_use_before}; then: {found.in_use_after}", style="dim")


def _source_cells(one: SourceFacts) -> tuple[str, ...]:
    def digits(value: float, form: str) -> str:
        return "–" if math.isnan(value) else format(value, form)

    return (
        one.name,
        str(one.votes),
        f"{one.coverage:.0%}",
        "not yet" if math.isnan(one.accuracy) else f"{one.accuracy:.3f}",
        f"{one.accuracy_low:.2f} to {one.accuracy_high:.2f}",
        str(one.measured_on),
        digits(one.believed, ".3f"),
        digits(one.conflicts, ".0%"),
        digits(one.weight, "+.2f"),
        digits(one.muting, "+.5f"),
        one.use,
    )


def show_next_steps(outcome: CleanOutcome) -> None:
    """What to try after the demo."""
    command = sys.argv[0] if Path(sys.argv[0]).name == "labelchef" else "labelchef"
    steps = [
        (f"{command} demo --serve", "label the digits yourself, in the browser"),
        (f"{command} clean --help", "the same on your files"),
        ("from labelchef import LabelCleaner", "the same in Python; see help(LabelCleaner)"),
    ]
    if any(path.name == "report.html" for path in outcome.files):
        steps.insert(0, (f"open {outcome.folder / 'report.html'}", "in a browser: what was asked, and the gain"))
    width = max(len(step) for step, _ in steps)
    console.print("\nnext:")
    for step, what in steps:
        console.print(f"  {step:{width}}   {what}")
