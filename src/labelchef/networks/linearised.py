"""A network at its weights: gradients, curvature products and forward derivatives, batch by batch.

    J_i = ∂f(x_i; w)/∂w                                          (C, M), never formed
    J_i v                                one forward pass that carries a direction along (forward mode)
    Jᵀ u                                 one backward pass
    (1/n) Σ r_i J_iᵀ (diag P_i − P_i P_iᵀ) J_i v                 Gauss–Newton, positive semidefinite
    ∇² (1/n) Σ r_i ℓ_i · v                                       Hessian, forward over reverse

Over the M influenced parameters, the network as it predicts. Memory is that of a batch and a few vectors (M,).
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from labelchef.base.arrays import Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.networks.inputs import Samples, batches
from labelchef.networks.task import NetworkTask
from labelchef.networks.training import Examples, losses, predicting

Tree = dict[str, torch.Tensor]


class Linearised:
    """A network at its weights: products with the Jacobian of its logits and with curvatures, batch by batch."""

    def __init__(self, task: NetworkTask, device: torch.device, batch_size: int) -> None:
        _prepare_forward_mode()
        self.task, self.device, self.batch_size = task, device, batch_size
        self.w = task.influenced_parameters()
        self.n_parameters = sum(p.numel() for p in self.w.values())
        self.dtype = torch.promote_types(task.dtype, torch.float32)
        """Of vectors (M,): a solve needs more digits than a half type has."""

    def tree(self, vector: torch.Tensor) -> Tree:
        """A vector (M,) as named tensors of the parameters' shapes."""
        parts = torch.split(vector, [p.numel() for p in self.w.values()])
        return {name: part.view_as(p).to(p.dtype) for (name, p), part in zip(self.w.items(), parts, strict=True)}

    def gradient(self, data: Examples) -> torch.Tensor:
        """∇ (1/n) Σ r_i ℓ_i, (M,)."""

        def product(x: torch.Tensor, Y: torch.Tensor, weight: torch.Tensor) -> Tree:
            w = self._leaves()
            return _pulled((weight * losses(self._logits(x, w), Y)).sum(), w)

        return self._summed(data, product)

    def ggn_product(self, data: Examples, vector: torch.Tensor) -> torch.Tensor:
        """(1/n) Σ r_i J_iᵀ (diag P_i − P_i P_iᵀ) J_i v, (M,): forward, then back."""
        v = self.tree(vector)

        def product(x: torch.Tensor, Y: torch.Tensor, weight: torch.Tensor) -> Tree:  # noqa: ARG001
            w = self._leaves()
            logits, t = self._logits(x, w), self._pushed(x, v)[1]
            P = torch.softmax(logits.detach(), dim=1)
            bend = weight[:, None] * P * (t - (P * t).sum(dim=1, keepdim=True))
            return _pulled(logits, w, bend)

        return self._summed(data, product)

    def hessian_product(self, data: Examples, vector: torch.Tensor) -> torch.Tensor:
        """∇² (1/n) Σ r_i ℓ_i · v, (M,): forward over reverse."""
        v = self.tree(vector)

        def product(x: torch.Tensor, Y: torch.Tensor, weight: torch.Tensor) -> Tree:
            with forward_ad.dual_level(), _explained():
                w = _dual(self._leaves(), v)
                gradient = _pulled((weight * losses(self._logits(x, w), Y)).sum(), w)
                return {name: _parts(part)[1] for name, part in gradient.items()}

        return self._summed(data, product)

    def push(self, X: Samples, vector: torch.Tensor) -> tuple[Float64s, Float64s]:
        """Logits and J_i v of every sample, (N, C) each, in one pass."""
        v, found = self.tree(vector), []
        with torch.no_grad(), predicting(self.task), _differentiable(self.task):
            for _, x in batches(X, self.batch_size, self.device, self.task.dtype):
                found.append(torch.stack(self._pushed(x, v)).double().cpu().numpy())
        logits, products = np.concatenate(found, axis=1)
        return logits, products

    def _pushed(self, x: torch.Tensor, v: Tree) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and J v of a batch: one forward pass that carries both."""
        with torch.no_grad(), forward_ad.dual_level(), _explained():
            return _parts(self._logits(x, _dual(self.w, v)))

    def _logits(self, x: torch.Tensor, w: Tree) -> torch.Tensor:
        logits: torch.Tensor = functional_call(self.task, w, (x,))
        return logits

    def _leaves(self) -> Tree:
        return {name: p.clone().requires_grad_() for name, p in self.w.items()}

    def _summed(self, data: Examples, product: Callable[..., Tree]) -> torch.Tensor:
        """A sum over batches, divided by the number of samples, so that the size of a batch plays no part."""
        total = torch.zeros(self.n_parameters, device=self.device, dtype=torch.float64)
        with predicting(self.task), _differentiable(self.task):
            for batch in data.batches(self.batch_size, self.device, self.task.dtype):
                made = product(*batch)
                total += torch.cat([made[name].reshape(-1) for name in self.w]).detach()
        return (total / len(data.X)).to(self.dtype)


def _pulled(value: torch.Tensor, w: Tree, along: torch.Tensor | None = None) -> Tree:
    """The gradient of a sum, or Jᵀ · along."""
    parts = torch.autograd.grad(value, list(w.values()), along, materialize_grads=True)
    return dict(zip(w, parts, strict=True))


def _dual(w: Tree, v: Tree) -> Tree:
    """Parameters that carry a direction along."""
    return {name: forward_ad.make_dual(p, v[name]) for name, p in w.items()}  # type: ignore[no-untyped-call]


def _parts(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A value and what rode along: zero where nothing that is influenced reaches."""
    primal, tangent = forward_ad.unpack_dual(value)  # type: ignore[no-untyped-call]
    return primal, torch.zeros_like(primal) if tangent is None else tangent


@contextmanager
def _differentiable(task: NetworkTask) -> Iterator[None]:
    """Attention and recurrent layers by kernels that have a forward derivative; all settings as they were afterwards."""
    fast = torch.backends.mha.get_fastpath_enabled()
    recurrent = any(isinstance(part, nn.RNNBase) for part in task.modules())  # others would be slower without
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if recurrent:
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False, allow_tf32=None))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        yield


@contextmanager
def _explained() -> Iterator[None]:
    """Where an operation has no forward derivative, say which and what to do."""
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:
        if "forward" not in str(error).lower():
            raise
        raise InvalidInputError(
            f"the network has an operation without a forward derivative ({str(error).splitlines()[0]}); expected "
            "operations that PyTorch can differentiate forward. Name parameters behind it, for example parameters='last'",
            code="forward_mode",
        ) from None


@functools.cache
def _prepare_forward_mode() -> None:
    """PyTorch scripts a few rules at the first forward derivative, and warns of its own scripting."""
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)
        _dual({"w": torch.zeros(1)}, {"w": torch.ones(1)})
