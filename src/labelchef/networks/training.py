"""Training on soft labels with weights (paper eq. 1), on any network.

    F(w) = (1/N) Σ_i r_i ℓ_i(w) + (λ/2) ‖w‖²        ℓ_i = −Y[i] · log softmax f(x_i; w)

A mini-batch B steps along (1/|B|) Σ_{i∈B} r_i ∇ℓ_i + λ w: divided by its size, not by its weights, so that its mean over
batches is ∇F. λ acts on every parameter that requires a gradient, biases included, as in the convex model.

Where trusted samples train, they are rows of the training set with r = 1, and rows with r = 0 are left out: N is then the number
of rows with r > 0.

Shapes: f (n, C); Y (N, C), rows on the simplex; r (N,).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import InvalidInputError, LabelchefError
from labelchef.base.numbers import check_number, check_whole
from labelchef.networks.inputs import Inputs, Samples, batch_of
from labelchef.networks.task import NetworkTask

OnEpoch = Callable[[int, float, float], None]
"""Told (epoch, mean training loss of its steps, validation loss) at the end of every epoch."""


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained.

    `patience` epochs without a better validation loss end it, and the best epoch's weights are kept; None trains for
    all `epochs` and keeps the last. `amp` computes in bfloat16 where that is safe.
    """

    epochs: int = 30
    batch_size: int = 128
    learning_rate: float = 1e-3
    optimiser: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.9
    """Of SGD."""
    patience: int | None = 5
    amp: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            check_whole(getattr(self, name), name, code="training")
        if self.patience is not None:
            check_whole(self.patience, "patience", code="training")
        check_number(self.learning_rate, "learning_rate", above=0.0, code="training")
        check_number(self.momentum, "momentum", least=0.0, below=1.0, code="training")
        if self.optimiser not in ("adam", "sgd"):
            raise InvalidInputError(f"optimiser is {self.optimiser!r}; expected 'adam' or 'sgd'", code="training")


@dataclass(frozen=True)
class Examples:
    """Inputs with soft labels Y (n, C) and weights (n,)."""

    X: Samples
    Y: Float64s
    weight: Float64s

    @classmethod
    def hard(cls, X: Inputs, y: Ints, n_classes: int) -> "Examples":
        """Trusted samples: class ids, weight 1."""
        return cls(X, np.eye(n_classes)[y], np.ones(len(y)))

    def repeated(self, least: int) -> "Examples":
        """These samples as often as it takes to be `least` or more: an epoch of a few samples would be a step or two."""
        times = -(-least // len(self.X))
        if times <= 1:
            return self
        rows = np.tile(np.arange(len(self.X)), times)
        return Examples(self.X[rows], self.Y[rows], self.weight[rows])

    def batch(self, rows: slice | Ints, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        """Inputs, labels and weights of a few samples where the network is."""
        labels = (torch.from_numpy(np.array(part[rows])).to(device, dtype) for part in (self.Y, self.weight))
        return (batch_of(self.X, rows, device, dtype), *labels)

    def batches(self, size: int, device: torch.device, dtype: torch.dtype) -> Iterator[tuple[torch.Tensor, ...]]:
        """All samples in order, the last batch as long as what is left."""
        for start in range(0, len(self.X), size):
            yield self.batch(slice(start, start + size), device, dtype)


@dataclass(frozen=True)
class Trained:
    """How a training went: the epoch that was kept and its loss, the epochs and steps that were made."""

    epoch: int
    epochs: int
    steps: int
    loss: float


def losses(logits: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
    """ℓ_i of every row, against soft labels."""
    return -(Y * functional.log_softmax(logits, dim=1)).sum(dim=1)


def mean_loss(task: NetworkTask, data: Examples, size: int, device: torch.device) -> float:
    """(1/n) Σ r_i ℓ_i, in batches, the network as it predicts."""
    total = 0.0
    with torch.no_grad(), predicting(task):
        for x, Y, weight in data.batches(size, device, task.dtype):
            total += float((weight * losses(task(x), Y)).sum())
    return total / len(data.X)


@contextmanager
def predicting(module: nn.Module) -> Iterator[None]:
    """Dropout off, batch norms at their running figures; every part as it was afterwards."""
    modes = {part: part.training for part in module.modules()}
    for part in modes:
        part.training = False  # not eval(): an exported program has none
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[torch.Generator]:
    """A generator of its own; what layers draw themselves (dropout) is seeded too, and given back afterwards."""
    devices = [torch.zeros(0, device=device).device.index] if device.type == "cuda" else []  # "cuda" is the current one
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed devices that are not ours too
        for index in devices:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def train(
    task: NetworkTask,
    data: Examples,
    validation: Examples,
    settings: TrainingSettings,
    *,
    l2: float,
    seed: int,
    device: torch.device,
    on_epoch: OnEpoch | None = None,
) -> Trained:
    """Train from the weights as they are; leaves the weights of the best epoch in the network.

    The same weights, data, settings and seed give the same network again, on one kind of machine and thread count.
    """
    steps, best = 0, (float("inf"), 0, float("nan"))
    kept: dict[str, torch.Tensor] = {}
    free = [p for p in task.parameters() if p.requires_grad]
    optimiser: torch.optim.Optimizer
    if settings.optimiser == "sgd":
        optimiser = torch.optim.SGD(free, settings.learning_rate, settings.momentum, weight_decay=l2)
    else:  # not AdamW: λ is in F
        optimiser = torch.optim.Adam(free, settings.learning_rate, weight_decay=l2)
    with seeded(seed, device) as generator:
        for epoch in range(1, settings.epochs + 1):
            loss, made = _epoch(task, data, settings, optimiser, generator, device)
            steps += made
            checked = mean_loss(task, validation, 4 * settings.batch_size, device)
            if not np.isfinite(loss + checked):
                raise LabelchefError(
                    f"training diverged in epoch {epoch} (loss {loss}, on validation {checked}); "
                    "lower learning_rate, or scale the inputs",
                    code="diverged",
                )
            if settings.patience is None or checked < best[0]:
                best, kept = (checked, epoch, loss), copied(task)
            if on_epoch is not None:
                on_epoch(epoch, loss, checked)
            if settings.patience is not None and epoch - best[1] >= settings.patience:
                break
    task.load_state_dict(kept)
    return Trained(best[1], epoch, steps, best[2])


def copied(task: NetworkTask) -> dict[str, torch.Tensor]:
    """The weights and running figures as they are now."""
    return {name: value.detach().clone() for name, value in task.state_dict().items()}


def _epoch(
    task: NetworkTask,
    data: Examples,
    settings: TrainingSettings,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
    device: torch.device,
) -> tuple[float, int]:
    """One pass in a random order; mean loss and number of steps. Batches are of nearly one size: none is a crumb."""
    task.train()
    for part in task.modules():  # frozen batch norms: whose parameters stay, its running figures stay too
        own = list(part.parameters(recurse=False))
        if isinstance(part, _BatchNorm) and own and not any(p.requires_grad for p in own):
            part.eval()
    order = torch.randperm(len(data.X), generator=generator).numpy()
    parts = np.array_split(order, -(-len(order) // settings.batch_size))
    total = 0.0
    for rows in parts:
        x, Y, weight = data.batch(rows, device, task.dtype)
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=settings.amp):
            logits = task(x)
        loss = (weight * losses(logits.to(Y.dtype), Y)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total += float(loss.detach()) * len(rows)
    return total / len(data.X), len(parts)
