"""The steps of a descent, kept for the next one."""

from dataclasses import dataclass

from labelchef.constructors.schedule import Schedule
from labelchef.domain.arrays import Float64s, Floats


@dataclass(frozen=True)
class Trajectory:
    """A descent from w_0 = 0: its schedule, its learning rate, and its gradients and parameters.

    `gradients` (T, k, D) are g_t, `ends` (epochs + 1, k, D) the parameters after each epoch, both in the coordinates
    of `core.coordinates`.
    """

    schedule: Schedule
    rate: float
    smoothness: float
    l2: float
    gradients: Floats
    ends: Float64s
