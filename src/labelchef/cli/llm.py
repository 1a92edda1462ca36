"""`labelchef ask-llm`: labels of rows by an LLM, as votes."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from labelchef.base.errors import InvalidInputError
from labelchef.cli.options import console, options_of, takes

if TYPE_CHECKING:
    import pandas as pd

    from labelchef.believe.asking import Asked, Estimate, Limits
    from labelchef.cli.starting import WorkBar

INTERRUPTED, STOPPED = 130, 1
KEY = "LABELCHEF_LLM_KEY"
_HERE = ("127.0.0.1", "::1", "localhost")
_SHOWN = 5
_DATA = "The rows: CSV, TSV, JSON, JSONL, Parquet, Arrow, Excel or a saved dataset."
_CACHE = "Where answers are kept as they come, so that an interrupted run goes on. Default: beside --out."
_KEY = "The environment variable that holds the API key; no key is sent if it is not set."
_MAX_COST = "Stop before all runs with this cache cost more; needs the prices."
_AGAIN = "Ask again about rows whose answer named no class."


@dataclass(frozen=True)
class _Asking:
    """The rows, the model that is asked about them, where its answers go, how fast requests go, and what they may cost."""

    data: Annotated[Path, typer.Argument(help=_DATA)]
    text: Annotated[list[str], typer.Option(help="A column that the model sees; may be given again.")]
    classes: Annotated[Path, typer.Option(help='TOML file with a table [classes] of name = "description".')]
    endpoint: Annotated[str, typer.Option(help="Address of an OpenAI-compatible server, such as https://host/v1.")]
    model: Annotated[str, typer.Option(help="Name of the model.")]
    out: Annotated[Path, typer.Option(help="JSONL file for the votes: id, source, label, probability.")]
    id: Annotated[str, typer.Option(help="The column that names the rows.")] = "id"
    cache: Annotated[Path | None, typer.Option(help=_CACHE)] = None
    source: Annotated[str | None, typer.Option(help="Name of the source. Default: the model.")] = None
    rows: Annotated[int | None, typer.Option(min=1, help="Ask about the first so many rows only.")] = None
    rate: Annotated[float | None, typer.Option(help="Requests a minute.")] = None
    concurrency: Annotated[int, typer.Option(help="Requests at the same time.")] = 4
    timeout: Annotated[float, typer.Option(help="Seconds to wait for one answer.")] = 60.0
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer; models that think first need more.")] = 100
    max_cost: Annotated[float | None, typer.Option(help=_MAX_COST)] = None
    price_in: Annotated[float | None, typer.Option(help="Price of a million tokens that the model reads.")] = None
    price_out: Annotated[float | None, typer.Option(help="Price of a million tokens that it writes.")] = None
    key_env: Annotated[str, typer.Option(help=_KEY)] = KEY


@takes(asked=options_of(_Asking))
def ask_llm(
    asked: _Asking,
    ask_again: Annotated[bool, typer.Option("--ask-again", help=_AGAIN)] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show one question and what a run would cost at most.")
    ] = False,
) -> None:
    """Let a large language model label rows; `labelchef init --votes OUT` uses the labels as one more source."""
    from labelchef.believe.asking import Endpoint, Limits, ask, estimate
    from labelchef.believe.llm import read_request
    from labelchef.cli.starting import WorkBar

    request, out = read_request(asked.classes), asked.out
    limits = Limits(asked.rate, asked.concurrency, asked.max_cost, asked.price_in, asked.price_out, asked.max_tokens)
    server = Endpoint(asked.endpoint, asked.model, os.environ.get(asked.key_env) or None, asked.timeout)
    kept = asked.cache or out.with_name(f"{out.name}.cache.jsonl")
    with WorkBar() as bar:
        frame = _rows_of(asked.data, asked.id, asked.rows, bar)
        if dry_run:
            _show_estimate(estimate(request, frame, asked.text, asked.model, kept, limits), limits)
            return
        plain = server.key is not None and asked.endpoint.startswith("http://")
        if plain and urlsplit(asked.endpoint).hostname not in _HERE:
            console.print("the key goes to this endpoint without encryption: it begins with http://, not https://")
        found = ask(
            request, frame, asked.text, server, kept, limits=limits, source=asked.source, progress=bar.tell, ask_again=ask_again
        )  # fmt: skip
    found.write(out)
    _show(found, out, limits)
    if found.stopped is not None:
        raise typer.Exit(INTERRUPTED if found.stopped == "interrupted" else STOPPED)


def _rows_of(data: Path, id: str, rows: int | None, bar: "WorkBar") -> "pd.DataFrame":
    """The rows with their ids in the column `id`."""
    from labelchef.believe.asking import ID
    from labelchef.data.files.formats import read_table

    frame = read_table(data, rows=rows, progress=bar.tell).frame
    if id not in frame.columns:
        raise InvalidInputError(
            f"{data}: there is no column {id!r} that names the rows; name it: --id; there are {list(frame.columns)[:20]}",
            code="id",
        )
    frame = frame.head(rows) if rows is not None else frame
    keys = frame[id]
    if keys.isna().any() or keys.duplicated().any():
        wrong = int(keys.isna().sum() + keys.dropna().duplicated().sum())
        raise InvalidInputError(
            f"{data}: {wrong} rows have no {id!r} or that of another row; every row needs its own", code="id"
        )
    return frame.assign(**{ID: keys})


def _show_estimate(found: "Estimate", limits: "Limits") -> None:
    console.print(f"{found.example}\n")
    priced = limits.price_in is not None and limits.price_out is not None
    cost = (
        f", which cost at most {found.at_most:.4g}" if priced else "; give --price-in and --price-out to see the cost"
    )
    console.print(
        f"{found.n_questions} questions{cost}; {found.n_kept} rows need none (answered before, or equal to another)"
    )


def _show(asked: "Asked", out: Path, limits: "Limits") -> None:
    labelled = len(asked.items) - len(asked.unusable)
    console.print(
        f"{labelled} of {asked.n_rows} rows are labelled: {asked.n_asked} questions asked now, {asked.n_kept} rows from the "
        f"cache or equal to another; votes of {asked.source!r} are in {out}"
    )
    if limits.price_in is not None and limits.price_out is not None:
        left = "" if limits.max_cost is None else f" of {limits.max_cost:.4g}"
        console.print(f"cost: {asked.cost:.4g} now, {asked.spent:.4g}{left} in all runs with this cache")
    for item, why in asked.unusable[:_SHOWN]:
        console.print(f"row {item!r} has no label: {why}")
    if asked.unusable:
        console.print(f"{len(asked.unusable)} answers name no class; ask again about them: --ask-again")
    for why, count in list(asked.failures.items())[:_SHOWN]:
        console.print(f"{count} questions got no answer: {why}")
    if asked.n_left:
        stopped = f"stopped: {asked.stopped}; " if asked.stopped else ""
        console.print(f"{stopped}{asked.n_left} rows are left; the same command goes on with them")
