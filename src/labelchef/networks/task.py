"""The contract between labelchef and a network: `logits(x)`, and which parameters are influenced.

    logits(x)       a batch of inputs (n, …) → one logit a class, (n, C)
    influenced()    names of the parameters whose influence is measured

`adapt` makes it from any `torch.nn.Module`, from a skorch net or a Lightning module; a module that has both methods
itself is taken at its word.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
from torch import nn

from labelchef.base.errors import InvalidInputError

Outputs = Literal["auto", "logits", "probabilities"]

_SUM = 1e-4  # how far rows of probabilities may be from 1


class NetworkTask(nn.Module):
    """A network as labelchef sees it. Made by `adapt`."""

    def __init__(
        self,
        module: nn.Module,
        names: tuple[str, ...],
        outputs: Literal["logits", "probabilities"],
        *,
        declared: bool = False,
    ) -> None:
        super().__init__()
        self.module = module
        self._names, self._outputs, self._declared = names, outputs, declared
        own = callable(getattr(module, "logits", None)) and callable(getattr(module, "influenced", None))
        self._method = "logits" if own else "__call__"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits (n, C). A single output is the logit of the second of two classes."""
        out = self._output(x)
        if self._outputs == "probabilities":
            out = out if out.shape[1] > 1 else torch.cat([1.0 - out, out], dim=1)
            return torch.log(out.clamp_min(torch.finfo(out.dtype).tiny))  # log-probabilities are logits
        return out if out.shape[1] > 1 else torch.cat([torch.zeros_like(out), out], dim=1)

    def _output(self, x: torch.Tensor) -> torch.Tensor:
        try:
            out = getattr(self.module, self._method)(x)
        except IndexError as error:
            if x.is_floating_point():
                raise
            raise InvalidInputError(
                f"the network has no place for an input of this batch ({error}); expected ids within its vocabulary",
                code="inputs",
            ) from error
        out = getattr(out, "logits", out)
        if not isinstance(out, torch.Tensor):
            raise InvalidInputError(
                f"the network returned {type(out).__name__}; expected a tensor of logits (n, classes). "
                "Give the module a method logits(x) and a method influenced()",
                code="network",
            )
        out = out[:, None] if out.ndim == 1 else out
        if out.ndim != 2 or len(out) != len(x):
            raise InvalidInputError(
                f"the network returned shape {tuple(out.shape)} for {len(x)} inputs; expected ({len(x)}, classes)",
                code="network",
            )
        return out

    def influenced(self) -> tuple[str, ...]:
        """Names of the influenced parameters, as `named_parameters` of this task has them."""
        return self._names

    def influenced_parameters(self) -> dict[str, torch.Tensor]:
        """Name → value, cut off from any graph; refused where there are none."""
        if not self._names:
            raise InvalidInputError(
                "the network has no parameter to influence; expected at least one that requires a gradient",
                code="parameters",
            )
        every = dict(self.named_parameters())
        return {name: every[name].detach() for name in self._names}

    @property
    def dtype(self) -> torch.dtype:
        """The floating type the network computes in."""
        return next(p.dtype for p in self.parameters() if p.is_floating_point())

    def check(self, x: torch.Tensor, n_classes: int) -> None:
        """Refuse outputs that are not what they are said to be, for so many classes."""
        try:
            with torch.no_grad():
                out = self._output(x)
        except InvalidInputError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise InvalidInputError(
                f"the network cannot take a batch of X, of shape {tuple(x.shape)} and type {str(x.dtype).removeprefix('torch.')} "
                f"({str(error).splitlines()[0]}); expected inputs as it was made for",
                code="inputs",
            ) from error
        if max(2, out.shape[1]) != n_classes:
            raise InvalidInputError(
                f"the network has {out.shape[1]} outputs; expected {n_classes}, one a column of the weak labels",
                code="network",
            )
        distributed = bool(((out >= 0) & (out <= 1)).all())
        if out.shape[1] > 1:
            off = (out.double().sum(dim=1) - 1).abs().max()
            distributed &= bool(off < max(_SUM, torch.finfo(out.dtype).eps))
        if self._outputs == "probabilities" and not distributed:
            raise InvalidInputError(
                f"outputs='probabilities', and the network returned {out[0].tolist()}; expected numbers from 0 to 1, rows that "
                "sum to 1. Pass outputs='logits', or let it end in a softmax",
                code="network",
            )
        doubtful = self._outputs == "logits" and not self._declared
        ends_in_sigmoid = isinstance(list(self.module.modules())[-1], nn.Sigmoid)
        if doubtful and distributed and (out.shape[1] > 1 or ends_in_sigmoid):
            raise InvalidInputError(
                "the network's outputs look like probabilities; expected logits. "
                "Drop its softmax or sigmoid, or pass outputs='probabilities' (or 'logits', if they are)",
                code="network",
            )


def adapt(network: Any, parameters: str | Iterable[str] = "all", *, outputs: Outputs = "auto") -> NetworkTask:
    """Make a task of a `torch.nn.Module`, a skorch net or a Lightning module, as it is.

    `parameters` are those whose influence is measured: "all" that require a gradient, "last" for the last linear
    layer, or a list of names and prefixes ("fc" stands for "fc.weight" and "fc.bias"). `outputs` says what the module
    returns; "auto" takes logits, and for skorch what its criterion expects.

    >>> from torch import nn
    >>> task = adapt(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), "last")
    >>> task.influenced()
    ('module.2.weight', 'module.2.bias')
    """
    if outputs not in ("auto", "logits", "probabilities"):
        raise InvalidInputError(f"outputs is {outputs!r}; expected 'auto', 'logits' or 'probabilities'", code="outputs")
    if isinstance(network, NetworkTask):
        if parameters != "all" or outputs != "auto":
            raise InvalidInputError(
                "parameters and outputs are settled in a NetworkTask; expected them unset here. Pass them to adapt()",
                code="parameters" if parameters != "all" else "outputs",
            )
        return network
    if isinstance(parameters, Iterator):
        raise InvalidInputError(
            "parameters is an iterator, which can be read once only; expected a list of names", code="parameters"
        )
    module, found = _module_of(network)
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        raise InvalidInputError(
            "the network has lazy layers without weights; expected all of them made. Call it on a batch once",
            code="network",
        )
    influenced = getattr(module, "influenced", None)
    if parameters == "all" and callable(influenced):
        parameters = list(influenced())
    names = tuple(f"module.{name}" for name in _names(module, parameters))
    return NetworkTask(module, names, found if outputs == "auto" else outputs, declared=outputs != "auto")


def _module_of(network: Any) -> tuple[nn.Module, Literal["logits", "probabilities"]]:
    """The module inside, and what it returns."""
    if isinstance(network, torch.jit.ScriptModule):
        raise InvalidInputError(
            "network is a TorchScript module, which cannot be trained on here; expected the torch.nn.Module it was made from. "
            "For features of it see labelchef.networks.features",
            code="network",
        )
    if isinstance(network, nn.Module):
        return network, "logits"
    inside = getattr(network, "module_", None)
    if isinstance(inside, nn.Module):  # skorch: its NLLLoss takes the logarithm of what the module returns
        criterion = getattr(network, "criterion_", None)
        return inside, "probabilities" if isinstance(criterion, nn.NLLLoss) else "logits"
    if hasattr(network, "initialize") and hasattr(network, "module"):
        raise InvalidInputError(
            "this skorch net has no module yet; expected an initialised one. Call net.initialize() or net.fit(…) first",
            code="network",
        )
    raise InvalidInputError(
        f"network is {type(network).__name__}; expected a torch.nn.Module (a Lightning module is one) or a skorch net",
        code="network",
    )


def _names(module: nn.Module, parameters: str | Iterable[str]) -> list[str]:
    free = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    # every name a parameter goes by, with its first one: tied layers share theirs
    called = [(name, free[id(p)]) for name, p in module.named_parameters(remove_duplicate=False) if id(p) in free]
    if parameters == "all":
        wanted = set(free.values())
    elif parameters == "last":
        head = last_linear(module)
        wanted = {first for name, first in called if name.rpartition(".")[0] == head}
    elif isinstance(parameters, str):
        raise InvalidInputError(
            f"parameters is {parameters!r}; expected 'all', 'last' or a list of names", code="parameters"
        )
    else:
        prefixes = [str(p) for p in parameters]
        for prefix in prefixes:
            if not any(_within(name, prefix) for name, _ in called):
                expected = ", ".join(free.values())
                raise InvalidInputError(
                    f"no trainable parameter is called {prefix!r}; expected names or prefixes of: {expected}",
                    code="parameters",
                )
        wanted = {first for name, first in called if any(_within(name, prefix) for prefix in prefixes)}
    return [name for name in free.values() if name in wanted]


def _within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def last_linear(module: nn.Module) -> str:
    """The name of the last linear layer, in the order in which the module lists its parts."""
    linear: list[str] = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise InvalidInputError(
            "the network has no linear layer; expected one at its end. Name the parameters instead",
            code="parameters",
        )
    return linear[-1]
