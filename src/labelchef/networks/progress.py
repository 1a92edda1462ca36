"""Bars for those who watch: epochs of a training, iterations of a solve."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from labelchef.networks.influence import OnIteration
from labelchef.networks.training import OnEpoch


@contextmanager
def epochs_shown(epochs: int, on_epoch: OnEpoch | None, *, shown: bool) -> Iterator[OnEpoch | None]:
    """Tells `on_epoch` and, if shown, moves a bar on the standard error as epochs end."""
    if not shown:
        yield on_epoch
        return
    with _bar("training", epochs) as move:

        def tell(epoch: int, loss: float, validation: float) -> None:
            move(epoch, f"loss {loss:.3f}, on validation {validation:.3f}")
            if on_epoch is not None:
                on_epoch(epoch, loss, validation)

        yield tell


@contextmanager
def iterations_shown(tol: float, *, shown: bool) -> Iterator[OnIteration | None]:
    """If shown, moves a bar as the residual of a solve falls: its length is the digits that are asked for."""
    if not shown:
        yield None
        return
    with _bar("influence", 100) as move:

        def tell(iteration: int, residual: float) -> None:
            share = math.log(max(residual, tol)) / math.log(tol)
            move(max(0.0, 100 * share), f"influence, iteration {iteration}, residual {residual:.0e}")

        yield tell


@contextmanager
def _bar(what: str, total: float) -> Iterator[Callable[[float, str], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)  # a log gets no bars, nor the empty lines they leave there
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(what, total=total)

        def move(completed: float, description: str) -> None:
            bar.update(line, completed=completed, description=description)

        yield move
