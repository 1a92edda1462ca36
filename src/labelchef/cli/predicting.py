"""`labelchef predict`: labels and probabilities of new rows by a model file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from labelchef.cli.options import console

_MODEL = "The model: model.npz of `labelchef export --what model`."
_ROWS = "New rows with the columns that the model reads: CSV, JSON, Parquet, Excel, a folder of images, …"
_OUT = "Where to write: .csv, .jsonl or .parquet."
_ID = "The column that names the rows. [default: that of the campaign, or id, else row numbers]"
_KEEP = "Columns of the rows to write too, separated by commas."
_EMBEDDINGS = "Numbers for each row, in the order of the rows, for a model that learned from such."
_IMAGES = "Folder of the images. [default: that of the file]"


def predict(
    model: Annotated[Path, typer.Argument(help=_MODEL)],
    rows: Annotated[Path, typer.Argument(help=_ROWS)],
    out: Annotated[Path, typer.Option(help=_OUT)] = Path("predictions.csv"),
    id: Annotated[str | None, typer.Option(help=_ID)] = None,
    keep: Annotated[str, typer.Option(help=_KEEP)] = "",
    embeddings: Annotated[Path | None, typer.Option(help=_EMBEDDINGS)] = None,
    images: Annotated[Path | None, typer.Option(help=_IMAGES)] = None,
) -> None:
    """Write the label of every row and the probability of every class: labelchef predict model.npz new.csv."""
    from labelchef.data.predicting import predict as service

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        kept = [name.strip() for name in keep.split(",") if name.strip()]
        made = service(model, rows, out, id=id, keep=kept, embeddings=embeddings, media=images, progress=show)
    console.print(f"{made.n_rows} rows: {made.path.resolve()}", soft_wrap=True)
    for name, count in sorted(made.counts.items(), key=lambda pair: -pair[1])[:10]:
        console.print(f"  {name}: {count} ({count / made.n_rows:.0%})", markup=False, highlight=False)
