"""The demo's data: 1 797 handwritten digits that ship with scikit-learn, labelled by hand-written rules.

The rules look at what a person would name when describing a digit: holes, width, symmetry, where the ink is. Each
votes for one class or abstains; several contradict each other and most are often wrong, as labelling functions are.
None was fitted to the labels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits

from labelchef.domain.arrays import Float64s, Floats, Ints
from labelchef.domain.records import UNRESOLVED
from labelchef.sources import vote_shares


@dataclass(frozen=True)
class Shape:
    """What the rules see of one 8×8 image."""

    holes: int
    """Patches of paper enclosed by ink."""
    hole_row: float
    """Mean row of the largest hole, 0 (top) to 7; −1 without a hole."""
    hole_size: int
    width: int
    ink: Float64s
    """Share of the ink in a 3×3 grid, rows top to bottom, columns left to right."""
    mirror_lr: float
    """Likeness to the left-right mirror image, 0 to 1."""
    mirror_ud: float


def describe(image: Floats) -> Shape:
    """The shape of an 8×8 image with ink from 0 to 16."""
    dark = image >= 6
    padded = np.pad(~dark, 1, constant_values=True)
    patches, _ = ndimage.label(padded)
    sizes = np.bincount(patches.ravel(), minlength=2)
    inside = [p for p in range(1, len(sizes)) if p != patches[0, 0] and sizes[p] > 0]
    largest = max(inside, key=lambda p: sizes[p], default=0)
    rows = np.argwhere(patches == largest)[:, 0] - 1 if largest else np.array([-1])
    columns = np.flatnonzero(dark.any(axis=0))
    edges = np.array([0, 3, 5, 8])
    cells = np.add.reduceat(np.add.reduceat(image, edges[:-1], axis=0), edges[:-1], axis=1)
    total = float(image.sum()) or 1.0
    norm = float((image * image).sum()) or 1.0
    return Shape(
        holes=len(inside),
        hole_row=float(rows.mean()),
        hole_size=int(sizes[largest]) if largest else 0,
        width=int(columns[-1] - columns[0] + 1) if len(columns) else 0,
        ink=np.asarray(cells / total, dtype=np.float64),
        mirror_lr=float((image * image[:, ::-1]).sum()) / norm,
        mirror_ud=float((image * image[::-1]).sum()) / norm,
    )


RULES: dict[str, tuple[int, Callable[[Shape], bool]]] = {
    "big hole": (0, lambda s: s.holes == 1 and s.hole_size >= 5),
    "hollow centre, mirrored": (0, lambda s: s.ink[1, 1] < 0.05 and s.mirror_lr > 0.75),
    "thin": (1, lambda s: s.width <= 4 and s.holes == 0),
    "ink in the middle column": (1, lambda s: s.ink[:, 1].sum() > 0.55),
    "heavy foot, light waist left": (2, lambda s: s.holes == 0 and s.ink[2].sum() > 0.42),
    "foot to the right": (2, lambda s: s.ink[2, 2] > 0.12 and s.ink[1, 2] < 0.08),
    "right-handed, mirrored top to bottom": (3, lambda s: s.holes == 0 and s.mirror_ud > 0.75),
    "empty waist left": (3, lambda s: s.ink[1, 0] < 0.03 and s.ink[2, 0] > 0.06),
    "heavy waist": (4, lambda s: s.ink[1].sum() > 0.37),
    "light head, waist on both sides": (4, lambda s: s.ink[0].sum() < 0.33 and s.ink[1, 2] > 0.09),
    "head to the left, foot in the middle": (5, lambda s: s.ink[0, 0] > 0.12 and s.ink[2, 0] < 0.08),
    "head to the right, waist to the left": (5, lambda s: s.ink[0, 2] > 0.12 and s.ink[1, 0] > 0.06),
    "low hole": (6, lambda s: s.holes == 1 and s.hole_row >= 4.2),
    "no head on the right": (6, lambda s: s.ink[0, 2] < 0.03 and s.ink[2, 2] > 0.08),
    "no foot at the sides": (7, lambda s: s.ink[2, 0] + s.ink[2, 2] < 0.06 and s.holes == 0),
    "broad head": (7, lambda s: s.ink[0].sum() > 0.47),
    "two holes": (8, lambda s: s.holes >= 2),
    "mirrored both ways, full centre": (8, lambda s: s.mirror_lr > 0.7 and s.mirror_ud > 0.7 and s.ink[1, 1] > 0.12),
    "high hole": (9, lambda s: s.holes == 1 and 0 <= s.hole_row <= 2.8),
    "no foot on the left, head on both sides": (9, lambda s: s.ink[2, 0] < 0.04 and s.ink[0, 0] > 0.08),
}
"""Name → (class it votes for, when)."""


def rule_votes(images: Floats) -> Ints:
    """(n, rules) class ids, −1 where a rule abstains."""
    shapes = [describe(image) for image in images]
    return np.array([[c if rule(s) else UNRESOLVED for c, rule in RULES.values()] for s in shapes])


@dataclass(frozen=True)
class DigitsData:
    """The demo's splits. Images are (n, 8, 8); X is the images flattened and scaled to 0 … 1."""

    images: Floats
    X: Floats
    Y_weak: Float64s
    y: Ints
    X_val: Floats
    y_val: Ints
    X_test: Floats
    y_test: Ints


def load_digits_demo(seed: int = 0, n_val: int = 200, n_test: int = 500) -> DigitsData:
    """Real digits, weak labels from the rules, and trusted labels for validation and test."""
    bunch = load_digits()
    order = np.random.default_rng(seed).permutation(len(bunch.target))
    images = bunch.images[order].astype(np.float32)
    X = images.reshape(len(images), -1) / np.float32(16.0)
    y = bunch.target[order].astype(np.int64)
    n = len(y) - n_val - n_test
    weak = vote_shares(rule_votes(images[:n]), n_classes=10)
    return DigitsData(
        images[:n], X[:n], weak, y[:n], X[n : n + n_val], y[n : n + n_val], X[n + n_val :], y[n + n_val :]
    )
