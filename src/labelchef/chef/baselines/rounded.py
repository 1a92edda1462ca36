"""A campaign with hard labels, for methods that cannot use soft ones.

Every weak label is rounded to its most probable class (the lowest class id of equal ones), and the model is brought to the
optimum under these labels. A campaign that already has hard labels and is at its optimum is returned as it is.
"""

import warnings
from dataclasses import replace

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.errors import ConvergenceWarning
from labelchef.chef.selectors.protocol import SelectionContext
from labelchef.model.engines import RowLabels
from labelchef.model.solvers import Minimum, gradient_tolerance, minimise

INNER_TOL = 1e-4
"""Tolerance of the model on rounded labels, relative to 1 + ‖W‖."""

INNER_SWEEPS = 300

_MUCH_HEAVIER = 2.0  # if the weights grow by this factor, a new frozen Hessian pays


def hard_classes(context: SelectionContext) -> Ints:
    """The class of every sample as given: its clean label, or its weak one rounded."""
    return np.asarray(context.objective.labels.Y.argmax(axis=1))


def rounded(context: SelectionContext, *, equal_weights: bool = False) -> SelectionContext:
    """The context with rounded labels, all of weight one if `equal_weights`. The given context is not changed."""
    old = context.objective.labels
    weight = np.ones_like(old.weight) if equal_weights else old.weight
    labels = RowLabels(np.eye(old.Y.shape[1])[hard_classes(context)], weight)
    same = np.array_equal(labels.Y, old.Y) and np.array_equal(labels.weight, old.weight)
    at_optimum = context.point.gradient_norm <= gradient_tolerance(context.objective, context.point.W, INNER_TOL)
    if same and at_optimum:
        return context
    objective = replace(context.objective, labels=labels)
    keeper = replace(context.keeper, drift=None)
    start = objective.at(context.point.W, logits=context.point.logits)
    if labels.weight.sum() > _MUCH_HEAVIER * old.weight.sum():
        keeper.refresh(objective, start.logits)
    found = minimise(objective, start, keeper, tol=INNER_TOL, max_sweeps=INNER_SWEEPS)
    check_inner(found)
    validation = context.validate(found.point.W)
    return replace(context, objective=objective, point=found.point, validation=validation, keeper=keeper)


def check_inner(found: Minimum) -> None:
    """Warn if the model on rounded labels did not converge."""
    if not found.converged:
        warnings.warn(
            f"the model on rounded labels stopped at ‖∇F‖ = {found.point.gradient_norm:.1e} (asked: {found.tolerance:.1e}); "
            "the ranking is approximate. Raise l2 or scale the features.",
            ConvergenceWarning,
            stacklevel=4,
        )
