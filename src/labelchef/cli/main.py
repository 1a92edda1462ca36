"""`labelchef`: parse, call one service function, render. Errors of the user end with exit code 2 and no traceback."""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from labelchef import __version__
from labelchef.cli import campaigns
from labelchef.cli.compare import compare as compare_command
from labelchef.cli.serve import serve as serve_command
from labelchef.cli.users import users
from labelchef.domain.errors import LabelchefError, LabelchefWarning
from labelchef.domain.strengths import as_gamma, as_l2
from labelchef.domain.validation import as_holdout

app = typer.Typer(
    help="Find the few weak labels whose cleaning helps your model most, and clean them.",
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
    """Find the few weak labels whose cleaning helps your model most, and clean them."""


_WEAK = "Weak labels: a probability for each sample and class; headers name the classes."
_CLEAN = "Training labels known from the start, -1 where not."
_VOTES = "Recorded votes: a table of item, annotator, label (-1: ambiguous)."
_STRATEGY = (
    "one: three people; two: the suggestion alone; three: the suggestion and two people. "
    "Default: one if there are people, else two."
)
_RATE = "Learning rate of retrain and deltagrad_l; taken from the data if not given."
_TARGET = "Stop once the target metric is this good on the validation samples that judge."
_DEMO_OUT = "Folder for the results; an earlier demo there is replaced."


@app.command()
def clean(
    features: Annotated[Path, typer.Option(help="Training features: .npy, .npz, .parquet or .csv, a row a sample.")],
    weak: Annotated[Path, typer.Option(help=_WEAK)],
    val_features: Annotated[Path, typer.Option(help="Validation features.")],
    val_labels: Annotated[Path, typer.Option(help="Trusted validation labels: one a sample, or a column 'label'.")],
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    test_features: Annotated[Path | None, typer.Option(help="Test features: never seen by the selection.")] = None,
    test_labels: Annotated[Path | None, typer.Option(help="Test labels.")] = None,
    clean_labels: Annotated[Path | None, typer.Option(help=_CLEAN)] = None,
    truth: Annotated[Path | None, typer.Option(help="True training labels: people are simulated from them.")] = None,
    votes: Annotated[Path | None, typer.Option(help=_VOTES)] = None,
    strategy: Annotated[str | None, typer.Option(help=_STRATEGY)] = None,
    error_rate: Annotated[float, typer.Option(help="Error rate of each simulated person.")] = 0.05,
    selector: Annotated[str, typer.Option(help="What picks the samples.")] = "expected_infl",
    look_ahead: Annotated[bool, typer.Option(help="Let the picks of a batch account for each other.")] = True,
    constructor: Annotated[str, typer.Option(help="What updates the model: newton, retrain or deltagrad_l.")] = "newton",
    learning_rate: Annotated[float | None, typer.Option(help=_RATE)] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of retrain and deltagrad_l; 150 if not given.")] = None,
    minibatch: Annotated[int | None, typer.Option(help="Their mini-batch size; 2000 if not given.")] = None,
    gamma: Annotated[str, typer.Option(help="Weight of a weak label: 0 to 1, or auto.")] = "auto",
    l2: Annotated[str, typer.Option(help="L2 strength: above 0, or auto.")] = "auto",
    holdout: Annotated[str, typer.Option(help=campaigns.HOLDOUT)] = "auto",
    budget: Annotated[int, typer.Option(help="Samples to ask in all.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Samples a round.")] = 10,
    target: Annotated[float | None, typer.Option(help=_TARGET)] = None,
    target_metric: Annotated[str, typer.Option(help="accuracy, f1_macro, f1 (two classes) or loss.")] = "f1_macro",
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    report: Annotated[bool, typer.Option(help="Write report.html with plots.")] = True,
    resume: Annotated[bool, typer.Option(help="Go on with the campaign in --out.")] = False,
) -> None:  # fmt: skip
    """Run a whole cleaning campaign from files.

    Writes cleaned_labels.csv, model.npz, history.csv, rounds.jsonl, summary.json and report.html to --out.
    """
    from labelchef.cli.progress import LiveProgress, show_outcome
    from labelchef.services import clean as service

    paths = service.CleanPaths(
        features, weak, val_features, val_labels, test_features, test_labels, clean_labels, truth, votes
    )
    chosen = strategy or ("two" if truth is None and votes is None else "one")
    settings = service.CleanSettings(
        selector=selector, look_ahead=look_ahead, constructor=constructor, learning_rate=learning_rate, epochs=epochs,
        minibatch=minibatch, gamma=as_gamma(gamma), l2=as_l2(l2), holdout=as_holdout(holdout), budget=budget,
        batch_size=batch_size, target=target, target_metric=target_metric, strategy=chosen, error_rate=error_rate, seed=seed,
    )  # fmt: skip
    inputs = service.read_inputs(paths)
    with LiveProgress(target_metric) as live:
        outcome = service.clean(inputs, settings, out, report=report, resume=resume, watcher=live.watcher())
    show_outcome(outcome, target_metric)
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
) -> None:  # fmt: skip
    """Watch real labels get cleaned: handwritten digits, weak labels from simple rules, no network."""
    if serve:
        from labelchef.cli.serve import serve_demo

        serve_demo(home, seed=seed, port=port, open_browser=open_browser)
        return
    from labelchef.cli.progress import LiveProgress, show_next_steps, show_outcome
    from labelchef.services.demo import demo as service
    from labelchef.services.demo import fresh_folder

    fresh_folder(out, report=report)
    console = Console()
    console.print(
        "1 797 handwritten digits; their weak labels come from 20 rules about holes, symmetry and ink.\n"
        "Three simulated people (5 % errors) clean the 200 labels that labelchef asks for, ten a round.\n"
    )
    with LiveProgress("f1_macro") as live:
        outcome = service(out, seed=seed, report=report, watcher=live.watcher())
    show_outcome(outcome, "f1_macro")
    show_next_steps(outcome)
    if outcome.stopped_because == "interrupted":
        raise typer.Exit(INTERRUPTED)


app.command()(serve_command)
campaigns.register(app)
app.command()(compare_command)
app.add_typer(users, name="users")


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Warnings as one line each, without file and source line."""
    if issubclass(category, LabelchefWarning):
        _errors.print(f"[yellow]warning[/yellow] {escape(str(message))}", soft_wrap=True)


def run() -> None:
    """The console script."""
    warnings.showwarning = _warn
    try:
        app()
    except LabelchefError as error:
        _errors.print(f"[red]error[/red] {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        _errors.print("interrupted")
        sys.exit(INTERRUPTED)
