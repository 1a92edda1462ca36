"""A bar for those who watch a training."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from labelchef.networks.training import OnEpoch


@contextmanager
def epochs_shown(epochs: int, on_epoch: OnEpoch | None, *, shown: bool) -> Iterator[OnEpoch | None]:
    """Tells `on_epoch` and, if shown, moves a bar on the standard error as epochs end."""
    if not shown:
        yield on_epoch
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("training", total=epochs)

        def tell(epoch: int, loss: float, validation: float) -> None:
            bar.update(line, completed=epoch, description=f"loss {loss:.3f}, on validation {validation:.3f}")
            if on_epoch is not None:
                on_epoch(epoch, loss, validation)

        yield tell
