"""INFL on a network, by forward mode: no gradient of a single sample, no memory of N × parameters.

    g_val = ∇_w of the mean validation cross-entropy                                       (M,)
    A     = (1/N) Σ r_i J_iᵀ (diag P_i − P_i P_iᵀ) J_i + (λ + damping) I                   curvature "ggn"
    A     = ∇² (1/N) Σ r_i ℓ_i + (λ + damping) I                                           curvature "hessian"
    A v   = g_val                     conjugate gradients; a product is a sum over batches
    S[i]  = J_i v                     one jvp pass over the training set                   (N, C)
    I(i, c) = S[i, c] − (γ Y[i] + (1 − γ) P[i]) · S[i]                                     (A), as in `model.influence`

J_i = ∂f(x_i; w)/∂w (C, M), for the M influenced parameters; the network predicts (dropout off, batch norms at their
running figures). For a linear network the two curvatures are one, and this is the convex INFL.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from labelchef.base.errors import ConvergenceWarning, InvalidInputError, LabelchefError
from labelchef.base.numbers import check_number, check_whole
from labelchef.networks.linearised import Linearised
from labelchef.networks.training import Examples


@dataclass(frozen=True)
class InfluenceSettings:
    """How V is solved for and the training set is passed over.

    `damping` is added to the curvature along with λ. `curvature_rows` samples, drawn by the seed, stand for all in the
    curvature; None takes them all. `batch_size` bounds memory and changes nothing else.
    """

    curvature: Literal["ggn", "hessian"] = "ggn"
    damping: float = 0.1
    tol: float = 1e-3
    max_iterations: int = 200
    batch_size: int = 512
    curvature_rows: int | None = None

    def __post_init__(self) -> None:
        if self.curvature not in ("ggn", "hessian"):
            raise InvalidInputError(f"curvature is {self.curvature!r}; expected 'ggn' or 'hessian'", code="influence")
        check_number(self.damping, "damping", least=0.0, code="influence")
        check_number(self.tol, "tol", above=0.0, below=1.0, code="influence")
        for name in ("max_iterations", "batch_size"):
            check_whole(getattr(self, name), name, code="influence")
        if self.curvature_rows is not None:
            check_whole(self.curvature_rows, "curvature_rows", code="influence")


OnIteration = Callable[[int, float], None]
"""Told (iteration, relative residual as it is carried along) after every product of a solve."""


@dataclass(frozen=True)
class Solution:
    """v with A v ≈ g: relative residual (computed, not carried along), iterations, and how it ended."""

    v: torch.Tensor
    residual: float
    iterations: int
    converged: bool
    negative: bool = False
    """Whether a direction of no positive curvature was met."""


def solve(
    network: Linearised,
    data: Examples,
    g: torch.Tensor,
    settings: InfluenceSettings,
    *,
    l2: float,
    start: torch.Tensor | None = None,
    on_iteration: OnIteration | None = None,
) -> Solution:
    """(A + damping) v = g_val; warns if it does not converge."""
    bend = network.ggn_product if settings.curvature == "ggn" else network.hessian_product
    shift = l2 + settings.damping

    def product(v: torch.Tensor) -> torch.Tensor:
        return bend(data, v) + shift * v

    found = conjugate_gradients(
        product, g, start, tol=settings.tol, max_iterations=settings.max_iterations, on_iteration=on_iteration
    )
    if not found.converged:
        reason = "met a direction of negative curvature" if found.negative else "stopped"
        remedy = "Take curvature='ggn', or raise damping" if found.negative else "Raise damping or max_iterations"
        warnings.warn(
            f"A v = g_val {reason} at a relative residual of {found.residual:.1e} (asked: {settings.tol:.1e}) after "
            f"{found.iterations} iterations; the ranking is approximate. {remedy}.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return found


def conjugate_gradients(
    product: Callable[[torch.Tensor], torch.Tensor],
    g: torch.Tensor,
    start: torch.Tensor | None,
    *,
    tol: float,
    max_iterations: int,
    on_iteration: OnIteration | None = None,
) -> Solution:
    """Plain conjugate gradients with dot products in float64; starts anew where rounding has carried the residual off."""
    size = _norm(g)
    v = torch.zeros_like(g) if start is None else start.clone()
    if size == 0.0:
        return Solution(torch.zeros_like(g), 0.0, 0, True)
    r = g - product(v) if start is not None else g.clone()
    if _norm(r) > size:  # a start that is worse than none
        v, r = torch.zeros_like(g), g.clone()
    iterations, negative, before = 0, False, math.inf
    while True:
        p, rr = r.clone(), _dot(r, r)
        while math.sqrt(rr) > tol * size and iterations < max_iterations:
            Ap = product(p)
            curvature = _dot(p, Ap)
            if curvature <= 0.0:
                negative = True
                break
            iterations += 1
            step = rr / curvature
            v, r = v + step * p, r - step * Ap
            rr, old = _dot(r, r), rr
            p = r + (rr / old) * p
            if on_iteration is not None:
                on_iteration(iterations, math.sqrt(rr) / size)
        r = g - product(v)
        residual = _norm(r) / size
        if not math.isfinite(residual):
            raise LabelchefError(
                "the solve for v left the range of its numbers; scale the inputs, raise damping, or use a float32 network",
                code="diverged",
            )
        if residual <= tol or negative or iterations >= max_iterations or residual > 0.9 * before:
            return Solution(v, residual, iterations, residual <= tol, negative)
        before = residual


def _dot(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a.double() @ b.double())


def _norm(a: torch.Tensor) -> float:
    return math.sqrt(_dot(a, a))
