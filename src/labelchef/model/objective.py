"""The training objective, its gradient and its Hessian products, each from one sweep.

    F(W)   = (1/N) Σ_i r_i ℓ_i(W) + (λ/2) ‖W‖²                                   (paper eq. 1)
    ∇F(W)  = (1/N) Xᵀ (r ∘ (P − Y)) + λ W
    H T    = (1/N) Xᵀ (r ∘ (P ∘ XT − P (P·XT))) + λ T

Shapes: W, T, ∇F (D, C); P, Y (N, C); r (N,). D counts the bias column, which is regularised like the others: that
is the paper's objective, and it keeps F strongly convex with modulus λ, so ‖W − W*‖ ≤ ‖∇F(W)‖ / λ.
"""

from dataclasses import dataclass

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.base.records import LabelChange
from labelchef.model.contrasts import contrast, expand, with_reference
from labelchef.model.engines import Engine, RowArray, RowLabels
from labelchef.model.softmax import cross_entropies, probabilities


@dataclass(frozen=True)
class Linear:
    """A direction V (D, C) with its products S = X V (N, k) and H V (D, C) at some point."""

    V: Float64s
    S: RowArray
    HV: Float64s


@dataclass(frozen=True)
class Point:
    """The objective at W: logits (N, k), value, gradient (D, C) and, where a direction was given, its products."""

    W: Float64s
    logits: RowArray
    value: float
    gradient: Float64s
    linear: Linear | None = None

    @property
    def gradient_norm(self) -> float:
        """‖∇F(W)‖, Frobenius."""
        return float(np.linalg.norm(self.gradient))


@dataclass(frozen=True)
class Objective:
    """F for the rows an engine holds. `labels` is read at every call, so the next point has the labels of then."""

    engine: Engine
    labels: RowLabels
    l2: float

    @property
    def shape(self) -> tuple[int, int]:
        """(D, C), the shape of W."""
        return self.engine.n_columns, self.labels.Y.shape[1]

    def at(
        self, W: Float64s, *, logits: RowArray | None = None, V: Float64s | None = None, roughly: bool = False
    ) -> Point:
        """Value and gradient at W in one sweep, and the products of V on the same sweep.

        If the logits at W are given, they are not computed again. Roughly, products have a relative error of about 1e-7.
        """
        N = self.engine.n_rows
        sums = self.engine.sweep(
            self.labels,
            W=contrast(W) if logits is None else None,
            logits=logits,
            V=None if V is None else contrast(V),
            gradient=True,
            hessian_product=V is not None,
            roughly=roughly,
        )
        assert sums.gradient is not None
        linear = None
        if V is not None and sums.hessian_product is not None and sums.products is not None:
            linear = Linear(V, sums.products, expand(sums.hessian_product) / N + self.l2 * V)
        value = sums.loss / N + 0.5 * self.l2 * float(np.vdot(W, W))
        return Point(W, sums.logits, value, expand(sums.gradient) / N + self.l2 * W, linear)

    def gradient_at(self, W: RowArray) -> RowArray:
        """∇F at W (D, C), both arrays of the engine, so that no result is waited for; one sweep."""
        engine = self.engine
        G = engine.gradient_at(self.labels, (W[:, 1:] - W[:, :1]).T)
        return expand(G, engine.xp) / engine.n_rows + self.l2 * W

    def hessian_product(self, point: Point, T: Float64s) -> tuple[Float64s, RowArray]:
        """(H T, X T) at a point, in one sweep."""
        sums = self.engine.sweep(self.labels, logits=point.logits, V=contrast(T), hessian_product=True)
        assert sums.hessian_product is not None
        assert sums.products is not None
        return expand(sums.hessian_product) / self.engine.n_rows + self.l2 * T, sums.products

    def relabelled(self, point: Point, change: LabelChange) -> Point:
        """The same W under changed labels. Only the changed rows change the gradient: no sweep.

        Δ∇F = (1/N) Σ_changed x_i ⊗ [r'(p_i − y'_i) − r (p_i − y_i)]
        """
        A = with_reference(self.engine.host(point.logits[change.indices]))
        P = probabilities(A)
        before = change.weight_old[:, None] * (P - change.Y_old)
        after = change.weight_new[:, None] * (P - change.Y_new)
        losses = change.weight_new * cross_entropies(A, change.Y_new)
        losses -= change.weight_old * cross_entropies(A, change.Y_old)
        N = self.engine.n_rows
        gradient = point.gradient + self.engine.rows(change.indices).T @ (after - before) / N
        return Point(point.W, point.logits, point.value + float(losses.sum()) / N, gradient)

    def along(self, point: Point, direction: Float64s, products: RowArray, t: float) -> tuple[float, float]:
        """Slope and curvature of t ↦ F(W + t·direction), from cached products X·direction: no pass over X."""
        slope, bend = self.engine.along(self.labels, point.logits, products, t)
        N, size = self.engine.n_rows, float(np.vdot(direction, direction))
        flat = float(np.vdot(point.W, direction)) + t * size
        return slope / N + self.l2 * flat, bend / N + self.l2 * size
