"""Independent, slow and obvious versions of what the package computes cleverly."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from labelchef import Known, LabelCleaner
from labelchef.chef.choice import make_selector
from labelchef.chef.constructors import NewtonConstructor
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.objective import Objective

Array = NDArray[np.float64]


@dataclass
class Problem:
    """A small training problem with everything dense. X has its bias column written out."""

    X: Array
    Y: Array
    weight: Array
    l2: float
    X_val: Array
    Y_val: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[1], self.Y.shape[1]

    def value(self, W: Array) -> float:
        losses = -(self.Y * log_softmax(self.X @ W, axis=1)).sum(axis=1)
        return float(self.weight @ losses / len(self.X) + 0.5 * self.l2 * (W**2).sum())

    def gradient(self, W: Array) -> Array:
        P = softmax(self.X @ W, axis=1)
        return np.asarray(self.X.T @ (self.weight[:, None] * (P - self.Y)) / len(self.X) + self.l2 * W)

    def hessian(self, W: Array) -> Array:
        """(D·C, D·C), for W flattened row by row."""
        P, (D, C) = softmax(self.X @ W, axis=1), self.shape
        H = np.zeros((D, C, D, C))
        for x, p, r in zip(self.X, P, self.weight, strict=True):
            block = r * (np.diag(p) - np.outer(p, p)) / len(self.X)
            H += np.einsum("i,j,ab->iajb", x, x, block)
        return H.reshape(D * C, D * C) + self.l2 * np.eye(D * C)

    def fast_hessian(self, W: Array) -> Array:
        P, (D, C) = softmax(self.X @ W, axis=1), self.shape
        B = np.einsum("ia,ab->iab", P, np.eye(C)) - np.einsum("ia,ib->iab", P, P)
        B *= self.weight[:, None, None] / len(self.X)
        outer = np.einsum("id,ie->ide", self.X, self.X).reshape(len(self.X), -1)
        H = (outer.T @ B.reshape(len(self.X), -1)).reshape(D, D, C, C).transpose(0, 2, 1, 3)
        return np.asarray(H.reshape(D * C, D * C) + self.l2 * np.eye(D * C))

    def optimum(self, W0: Array | None = None) -> Array:
        """By damped Newton with the dense Hessian."""
        W = np.zeros(self.shape) if W0 is None else W0.copy()
        for _ in range(100):
            G = self.gradient(W)
            if np.linalg.norm(G) < 1e-13:
                break
            step = np.linalg.solve(self.fast_hessian(W), G.ravel()).reshape(W.shape)
            t = 1.0
            while self.value(W - t * step) > self.value(W) + 1e-12 and t > 1e-8:
                t /= 2
            W = W - t * step
        return W

    def optimum_by_scipy(self) -> Array:
        found = minimize(
            lambda w: self.value(w.reshape(self.shape)),
            np.zeros(np.prod(self.shape)),
            jac=lambda w: self.gradient(w.reshape(self.shape)).ravel(),
            hess=lambda w: self.fast_hessian(w.reshape(self.shape)),
            method="trust-exact",
            options={"gtol": 1e-11, "maxiter": 500},
        )
        return np.asarray(found.x.reshape(self.shape))

    def val_loss(self, W: Array) -> float:
        return float(-(self.Y_val * log_softmax(self.X_val @ W, axis=1)).sum(axis=1).mean())

    def val_gradient(self, W: Array) -> Array:
        return np.asarray(self.X_val.T @ (softmax(self.X_val @ W, axis=1) - self.Y_val) / len(self.X_val))

    def losses(self, stack: Array) -> Array:
        """What early stopping asks for."""
        return np.array([self.val_loss(W) for W in stack])

    def objective(self, dtype: Any = np.float64) -> Objective:
        """The package's version. The bias column is the last column of X, handed over as such."""
        features = np.ascontiguousarray(self.X[:, :-1], dtype=dtype)
        return Objective(MemoryEngine(features, bias=True), RowLabels(self.Y, self.weight), self.l2)


def make_problem(
    rng: np.random.Generator,
    *,
    n: int = 60,
    d: int = 4,
    C: int = 3,
    gamma: float = 0.8,
    l2: float = 0.05,
    n_val: int = 30,
    spread: float = 1.0,
    cleaned: float = 0.0,
) -> Problem:
    """Clusters, weak labels that know a little, a share of clean samples."""
    centres = spread * rng.normal(size=(C, d))
    y, y_val = rng.integers(0, C, n), rng.integers(0, C, n_val)
    X, X_val = centres[y] + rng.normal(size=(n, d)), centres[y_val] + rng.normal(size=(n_val, d))
    Y = 0.6 * rng.dirichlet(np.ones(C), n) + 0.4 * np.eye(C)[y]
    weight = np.full(n, gamma)
    known = rng.random(n) < cleaned
    Y[known], weight[known] = np.eye(C)[y[known]], 1.0
    one, one_val = np.ones((n, 1)), np.ones((n_val, 1))
    return Problem(np.hstack([X, one]), Y, weight, l2, np.hstack([X_val, one_val]), np.eye(C)[y_val])


def central_difference(f: Callable[[Array], Any], W: Array, T: Array, h: float = 1e-4) -> Any:
    """Five-point stencil of the derivative of f at W along T."""
    return (8 * (f(W + h * T) - f(W - h * T)) - (f(W + 2 * h * T) - f(W - 2 * h * T))) / (12 * h)


def plain_descent(problem: Problem, batches: list[NDArray[np.int64]], rate: float) -> list[Array]:
    """W after every step of mini-batch descent from zero, on whole parameters, a line a formula."""
    W, path = np.zeros(problem.shape), []
    for rows in batches:
        X, Y, r = problem.X[rows], problem.Y[rows], problem.weight[rows]
        gradient = X.T @ (r[:, None] * (softmax(X @ W, axis=1) - Y)) / len(rows) + problem.l2 * W
        W = W - rate * gradient
        path.append(W)
    return path


def dense_quasi_hessian(S: Array, Y: Array) -> Array:
    """The BFGS matrix after updates by the pairs (rows of S and Y) in turn, from σ I: the textbook recursion."""
    B = np.eye(S.shape[1]) * (S[-1] @ Y[-1]) / (S[-1] @ S[-1])
    for s, y in zip(S, Y, strict=True):
        Bs = B @ s
        B = B - np.outer(Bs, Bs) / (s @ Bs) + np.outer(y, y) / (y @ s)
    return np.asarray(B)


STEERED: dict[str, Any] = {"trusted": "steer", "selector": "expected_infl"}
"""The defaults of version 0.1, where trusted samples only steer: for tests of what only such a campaign has."""


def paper_cleaner(**given: Any) -> LabelCleaner:
    """A cleaner whose trusted samples steer, by INFL, with strengths that are given: for tests of the paper's mathematics."""
    return cleaner_of(**{**STEERED, "selector": "increm_infl", "gamma": 0.8, "l2": 0.01, "tol": 1e-5, **given})


def cleaner_of(*, tol: float | None = None, look_ahead: bool | None = None, **given: Any) -> LabelCleaner:
    """A cleaner whose constructor, if it is newton, is exact to `tol`, and whose selector looks ahead or not."""
    if tol is not None and given.get("constructor", "newton") == "newton":
        given["constructor"] = NewtonConstructor(tol=tol, proven=given.get("trusted") == "steer")
    if look_ahead is not None:
        given["selector"] = make_selector(given.get("selector", "margin"), look_ahead=look_ahead)
    return LabelCleaner(**given)


def with_known(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `fit`, with those that are parts of `Known` in it."""
    parts = {field.name for field in fields(Known)}
    known = Known(**{name: value for name, value in given.items() if name in parts})
    return {**{name: value for name, value in given.items() if name not in parts}, "known": known}


def power_norm(
    product: Callable[[Array], Array],
    size: int,
    rng: np.random.Generator,
    *,
    tol: float = 1e-6,
    max_iterations: int = 1000,
) -> float:
    """‖H‖ of any symmetric H given as v ↦ H v, by the power method (paper, appendix D).

    >>> round(power_norm(lambda v: np.array([3.0, -5.0]) * v, 2, np.random.default_rng(0)), 4)
    5.0
    """
    v = rng.standard_normal(size)
    norm = 0.0
    for _ in range(max_iterations):
        v = v / np.linalg.norm(v)
        v = product(v)
        following = float(np.linalg.norm(v))
        if following == 0.0 or abs(following - norm) <= tol * following:
            return following
        norm = following
    return norm
