"""Are probabilities what they say? A temperature from cross-fitted logits, and the calibration error with its noise.

The temperature makes probabilities softmax(A / T). It minimises the cross-entropy against labels that are smoothed as if one more
sample had been seen whose class is unknown (as Platt does for two classes), so that it stays finite where every sample is right:

    T = argmin mean_j CE( softmax(A_j / T), (n y_j + 1/C) / (n + 1) )

The calibration error sorts samples by confidence, the largest probability, into bins of equal size:

    ECE = Σ_b (n_b/n) | share of bin b whose most probable class is right − mean confidence of bin b |

Noise alone makes it larger than zero. Its floor is its mean under perfect calibration, when each sample is right with the
probability it says, and its ceiling is the 95 % point: an error above that is beyond noise.

Shapes: A (n, C) logits; P (n, C); y (n,).
"""

import numpy as np
from scipy.optimize import minimize_scalar

from labelchef.campaign.gain import LEVEL
from labelchef.core.softmax import cross_entropies
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.validation import CalibrationError

BINS, FEWEST_IN_BIN = 10, 15
_DRAWS = 1000
_WIDEST = 6.0  # |log T| relative to the mean size of the logits


def temperature(logits: Float64s, y: Ints) -> float:
    """T, above 1 where the logits are too confident; 1 where there is nothing to learn from.

    >>> A = np.log([[0.9, 0.1]] * 4)
    >>> round(temperature(np.tile(A, (500, 1)), np.tile([0, 0, 0, 1], 500)), 2)  # right three times in four, not nine in ten
    2.0
    """
    A = logits - logits.max(axis=1, keepdims=True)
    size, (n, C) = float(np.abs(A).mean()) if A.size else 0.0, A.shape
    if size == 0.0:
        return 1.0
    smoothed = (n * np.eye(C)[y] + 1.0 / C) / (n + 1)

    def loss(log_scale: float) -> float:
        return float(cross_entropies(A * (np.exp(log_scale) / size), smoothed).mean())

    found = minimize_scalar(loss, bounds=(-_WIDEST, _WIDEST), method="bounded", options={"xatol": 1e-6})
    return float(size / np.exp(found.x))


def calibration_error(P: Float64s, y: Ints, *, seed: int) -> CalibrationError:
    """The error of probabilities (n, C), with at most ten bins of at least fifteen samples (one bin below thirty samples).

    >>> P = np.tile([[0.9, 0.1]], (400, 1))
    >>> print(calibration_error(P, np.tile([0, 0, 0, 1], 100), seed=0))
    0.150 (beyond noise: a perfect model would show 0.0..., up to 0.0...)
    """
    n = len(y)
    confidence, right = P.max(axis=1), P.argmax(axis=1) == y
    order = np.argsort(confidence, kind="stable")
    bins = max(1, min(BINS, n // FEWEST_IN_BIN))
    starts = np.linspace(0, n, bins, endpoint=False).astype(np.int64)
    surprise = np.add.reduceat(right[order] - confidence[order], starts)
    drawn = np.random.default_rng(seed).random((_DRAWS, n)) < confidence[order]
    noise = np.abs(np.add.reduceat(drawn - confidence[order], starts, axis=1)).sum(axis=1) / n
    return CalibrationError(
        float(np.abs(surprise).sum() / n), float(noise.mean()), float(np.quantile(noise, LEVEL)), bins, n
    )
