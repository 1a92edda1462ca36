"""Exp2 and Exp3: seconds of a selection and of a model update at the paper's six shapes, seconds that nothing else shares."""

from dataclasses import asdict
from typing import Any

import numpy as np
from benchmarks import constructors
from benchmarks.selection import campaign
from benchmarks.shapes import SHAPES, Shape, make

from experiments.cells import Cell
from labelchef.chef.constructors import DescentSettings

WARM_UP = Shape("warm-up", 2_000, 64, 100, 100, 0.01)
"""What is compiled on first use is compiled on this one."""


def selection(cell: Cell) -> dict[str, Any]:
    """Every way of finding the top b, in every round of one campaign; the first round is left out."""
    shape = SHAPES[cell.data]
    campaign(make(WARM_UP), WARM_UP.l2, cell.b, rounds=3)
    measured = campaign(make(shape, seed=cell.seed), shape.l2, cell.b, rounds=cell.labels // cell.b)
    return {
        "n": shape.n_train,
        "rounds": {found.selector: [asdict(r) for r in found.rounds[1:]] for found in measured},
    }


def construction(cell: Cell) -> dict[str, Any]:
    """Retrain, DeltaGrad-L and Newton after b labels changed; few epochs where few labels are asked for."""
    rate, epochs = constructors.PAPER[cell.data]
    problem = constructors.problem_of(SHAPES[cell.data], cell.seed)
    epochs = epochs if cell.labels >= 100 else min(epochs, 20)
    settings = DescentSettings(
        learning_rate=rate, epochs=epochs, minibatch=constructors.MINIBATCH, early_stopping=False
    )
    constructors.descents(constructors.problem_of(WARM_UP), DescentSettings(epochs=20, early_stopping=False))
    found, seconds = constructors.newton_updates(problem, 2 * constructors.ROUNDS)
    return {
        "n": SHAPES[cell.data].n_train,
        "epochs": epochs,
        **{
            name: round(float(value), 6)
            for name, value in constructors.descents(problem, settings).items()
            if name != "steps"
        },
        "newton": float(np.median(seconds)),
        "newton_norm": float(found.diagnostics.gradient_norm / (1 + np.linalg.norm(found.point.W))),
    }
