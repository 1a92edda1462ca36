"""A network with its data where it runs, and how it shows itself to the pipeline.

The pipeline knows softmax regression. A network with logits Z = f(X; w) is one, on its own logits:

    features Z (N, C), parameters the identity (C, C): logits Z·I, probabilities softmax(Z)

So metrics, stopping rules and every selector that asks for probabilities only see exactly the network's own. Z changes
with w, so each model brings a view of its own.

Where trusted samples train, the rows of labels and view are the N samples, then the n trusted ones that train.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.data.campaign_data import Labelled
from labelchef.loop.judging import Split
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.objective import Objective
from labelchef.networks.inputs import Blocks, Inputs, Samples, batch_of, batches
from labelchef.networks.task import NetworkTask, last_linear
from labelchef.networks.training import Examples, OnEpoch, Trained, TrainingSettings, predicting, train

_STEPS = 8
"""Where trusted samples train, an epoch has at least so many steps, if there are as many batches of X."""


@dataclass(frozen=True)
class View:
    """The network as softmax regression on its own logits: training objective and evaluation splits, as in `Session`."""

    objective: Objective
    steering: Split
    judging: Split | None
    test: Split | None


@dataclass
class NetworkModel:
    """The network, its training inputs and its evaluation splits."""

    task: NetworkTask
    X: Inputs
    steering: Labelled
    """The validation samples that training stops by and influence is measured on."""
    judging: Labelled | None
    test: Labelled | None
    n_classes: int
    l2: float
    device: torch.device
    batch_size: int
    progress: bool = False
    """Whether to show bars: epochs of every training, iterations of every solve for influence."""
    trusted: Labelled | None = None
    """Trusted samples that train, with weight 1; None where trusted samples only steer."""

    def __post_init__(self) -> None:
        self.task.to(self.device)
        with predicting(self.task):
            self.task.check(batch_of(self.X, slice(0, 8), self.device, self.task.dtype), self.n_classes)

    @property
    def steering_examples(self) -> Examples:
        """Validation as training sees it."""
        return Examples.hard(*self.steering, self.n_classes)

    @property
    def inputs(self) -> Samples:
        """The rows that labels are for: X, then the trusted samples that train."""
        if self.trusted is None:
            return self.X
        return Blocks(self.X, self.trusted[0], np.arange(len(self.X) + len(self.trusted[0])))

    def examples(self, labels: RowLabels, among: Bools | None = None) -> Examples:
        """The training set with its labels as they stand, or those rows that are `among` it.

        Where trusted samples train, rows without weight are left out.
        """
        if self.trusted is None:
            return Examples(self.X, labels.Y, labels.weight)
        rows = np.flatnonzero(labels.weight > 0 if among is None else among)
        return Examples(Blocks(self.X, self.trusted[0], rows), labels.Y[rows], labels.weight[rows])

    def train(
        self, labels: RowLabels, settings: TrainingSettings, seed: int, on_epoch: OnEpoch | None = None
    ) -> Trained:
        """Train on the labels as they stand, from the present weights."""
        return self.fit(self.examples(labels), settings, seed, on_epoch)

    def fit(self, data: Examples, settings: TrainingSettings, seed: int, on_epoch: OnEpoch | None = None) -> Trained:
        """Train on these examples, from the present weights; stop early by the validation samples that steer."""
        if self.trusted is not None:
            data = data.repeated(min(len(self.X), _STEPS * settings.batch_size))
        with bar("training", settings.epochs, shown=self.progress) as move:

            def tell(epoch: int, loss: float, validation: float) -> None:
                move(epoch, f"loss {loss:.3f}, on validation {validation:.3f}")
                if on_epoch is not None:
                    on_epoch(epoch, loss, validation)

            return train(
                self.task,
                data,
                self.steering_examples,
                settings,
                l2=self.l2,
                seed=seed,
                device=self.device,
                on_epoch=tell,
            )

    def logits(self, X: Samples) -> Float64s:
        """(n, C), the network as it predicts."""
        return logits_of(self.task, X, self.n_classes, self.batch_size, self.device)

    def view(self, labels: RowLabels) -> View:
        """The pipeline's view of the network at its present weights: one pass over each split."""
        return View(
            Objective(MemoryEngine(self.logits(self.inputs), bias=False), labels, self.l2),
            self._split(*self.steering),
            None if self.judging is None else self._split(*self.judging),
            None if self.test is None else self._split(*self.test),
        )

    def _split(self, X: Inputs, y: Ints) -> Split:
        return Split(self.logits(X), y, self.n_classes, bias=False)


def logits_of(task: NetworkTask, X: Samples, n_classes: int, batch_size: int, device: torch.device) -> Float64s:
    """(n, C), a network as it predicts, on the device where it is."""
    found = np.empty((len(X), n_classes))
    with torch.no_grad(), predicting(task):
        for rows, x in batches(X, batch_size, device, task.dtype):
            found[rows] = task(x).double().cpu().numpy()
    finite = np.isfinite(found).all(axis=1)
    if not finite.all():
        raise InvalidInputError(
            f"the network's logits of sample {int(finite.argmin())} are not finite; expected finite ones. Scale the "
            "inputs, or look at the network's weights",
            code="network",
        )
    return found


@contextmanager
def bar(what: str, total: float, *, shown: bool) -> Iterator[Callable[[float, str], None]]:
    """A bar on the standard error, if it is to be shown and there is a terminal; yields what moves it."""
    console = Console(stderr=True)  # a log gets no bars, nor the empty lines they leave there
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as progress:
        line = progress.add_task(what, total=total)
        yield lambda completed, description: progress.update(line, completed=completed, description=description)


def penultimate(task: NetworkTask, x: torch.Tensor) -> torch.Tensor:
    """The input (n, D) of the last linear layer, which must be the one that makes the logits."""
    logits, seen = watched(task, task.module.get_submodule(last_linear(task.module)), x)
    same = len(seen) == 1 and seen[0][0][0].ndim == 2 and seen[0][1].shape == logits.shape
    if not same or not torch.allclose(_centred(seen[0][1]), _centred(logits), atol=1e-3, rtol=1e-3):
        raise InvalidInputError(
            f"the last linear layer, {last_linear(task.module)!r}, does not make the logits; expected a network that ends "
            "in a linear layer with one output a class. Use constructor 'fine_tune' or 'retrain'",
            code="last_layer",
        )
    features: torch.Tensor = seen[0][0][0]
    return features


def _centred(logits: torch.Tensor) -> torch.Tensor:
    return logits - logits.mean(dim=1, keepdim=True)


def watched(module: nn.Module, part: nn.Module, x: torch.Tensor) -> tuple[Any, list[tuple[Any, Any]]]:
    """The module's output for x, and the inputs and output of one of its parts, each time that it ran."""
    seen: list[tuple[Any, Any]] = []
    hook = part.register_forward_hook(lambda _, given, made: seen.append((given, made)))
    try:
        return module(x), seen
    finally:
        hook.remove()
