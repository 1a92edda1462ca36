"""The demo's data: 1 797 handwritten digits that ship with scikit-learn, labelled by hand-written rules.

The rules look at what a person would name when describing a digit: holes, bays and the side they open to, width, symmetry,
where the ink is. Each votes for one class or abstains. Several contradict each other, most are often wrong, and one is wrong
nine times of ten, as labelling functions are. None was fitted to the labels, and no rule was written with a look at the test
images: these are the same for every seed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits

from labelchef.base.arrays import Bools, Float64s, Floats, Ints
from labelchef.base.records import UNRESOLVED


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
    bays: Ints
    """Pixels of paper with ink on three sides, [upper half, lower half] by [open to the left, open to the right]."""
    enclosed: int
    """Pixels of paper with ink on all four sides."""
    head: int
    """Dark pixels in the top row."""
    foot: int
    """Dark pixels in the bottom row."""


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
    ink_left, ink_right, ink_above, ink_below = (_ink_beyond(dark, side) for side in range(4))
    between = ~dark & ink_above & ink_below
    bays = [between & ~ink_left & ink_right, between & ink_left & ~ink_right]
    return Shape(
        holes=len(inside),
        hole_row=float(rows.mean()),
        hole_size=int(sizes[largest]) if largest else 0,
        width=int(columns[-1] - columns[0] + 1) if len(columns) else 0,
        ink=np.asarray(cells / total, dtype=np.float64),
        mirror_lr=float((image * image[:, ::-1]).sum()) / norm,
        mirror_ud=float((image * image[::-1]).sum()) / norm,
        bays=np.array([[int(bay[half].sum()) for bay in bays] for half in (slice(0, 4), slice(4, 8))]),
        enclosed=int((between & ink_left & ink_right).sum()),
        head=int(dark[0].sum()),
        foot=int(dark[-1].sum()),
    )


def _ink_beyond(dark: Bools, side: int) -> Bools:
    """Whether there is ink to the left (0), to the right (1), above (2), below (3) of each pixel."""
    turned = dark.T if side >= 2 else dark
    turned = turned[:, ::-1] if side % 2 else turned
    beyond: Bools = np.greater(np.cumsum(turned, axis=1), turned)
    found = beyond[:, ::-1] if side % 2 else beyond
    return np.asarray(found.T if side >= 2 else found)


RULES: dict[str, tuple[int, Callable[[Shape], bool]]] = {
    "big hole": (0, lambda s: s.holes == 1 and s.hole_size >= 5),
    "ink all round": (0, lambda s: s.enclosed >= 5),
    "hollow centre, mirrored": (0, lambda s: s.ink[1, 1] < 0.05 and s.mirror_lr > 0.75),
    "thin": (1, lambda s: s.width <= 4 and s.holes == 0),
    "ink in the middle column": (1, lambda s: s.ink[:, 1].sum() > 0.55),
    "neither bay nor hole": (1, lambda s: s.bays.sum() + s.enclosed == 0),
    "heavy foot, light waist left": (2, lambda s: s.holes == 0 and s.ink[2].sum() > 0.42),
    "foot to the right": (2, lambda s: s.ink[2, 2] > 0.12 and s.ink[1, 2] < 0.08),
    "bay left above, right below": (2, lambda s: s.bays[0, 0] > 0 and s.bays[1, 1] > 0),
    "broad foot": (2, lambda s: s.foot >= 4 and s.bays[0, 1] == 0),
    "right-handed, mirrored top to bottom": (3, lambda s: s.holes == 0 and s.mirror_ud > 0.75),
    "empty waist left": (3, lambda s: s.ink[1, 0] < 0.03 and s.ink[2, 0] > 0.06),
    "bays left above and below": (3, lambda s: s.bays[0, 0] > 0 and s.bays[1, 0] > 1 and s.bays[1, 1] == 0),
    "heavy waist": (4, lambda s: s.ink[1].sum() > 0.37),
    "light head, waist on both sides": (4, lambda s: s.ink[0].sum() < 0.33 and s.ink[1, 2] > 0.09),
    "narrow head, narrow foot, broad": (4, lambda s: max(s.head, s.foot) <= 2 and s.width >= 6),
    "head to the left, foot in the middle": (5, lambda s: s.ink[0, 0] > 0.12 and s.ink[2, 0] < 0.08),
    "head to the right, waist to the left": (5, lambda s: s.ink[0, 2] > 0.12 and s.ink[1, 0] > 0.06),
    "bay right above, left below": (5, lambda s: s.bays[0, 1] > 0 and s.bays[1, 0] > 0),
    "low hole": (6, lambda s: s.holes == 1 and s.hole_row >= 4.2),
    "no head on the right": (6, lambda s: s.ink[0, 2] < 0.03 and s.ink[2, 2] > 0.08),
    "bay right above, none on the left": (6, lambda s: s.bays[0, 1] > 0 and s.bays[:, 0].sum() == 0),
    "no foot at the sides": (7, lambda s: s.ink[2, 0] + s.ink[2, 2] < 0.06 and s.holes == 0),
    "broad head": (7, lambda s: s.ink[0].sum() > 0.47),
    "bay left above, narrow foot": (7, lambda s: s.bays[0, 0] > 0 and s.foot <= 2),
    "two holes": (8, lambda s: s.holes >= 2),
    "mirrored both ways, full centre": (8, lambda s: s.mirror_lr > 0.7 and s.mirror_ud > 0.7 and s.ink[1, 1] > 0.12),
    "paper enclosed, no big bay": (8, lambda s: 1 <= s.enclosed <= 4 and s.bays.sum() <= 2),
    "high hole": (9, lambda s: s.holes == 1 and 0 <= s.hole_row <= 2.8),
    "bay left below, none on the right": (9, lambda s: s.bays[1, 0] > 1 and s.bays[:, 1].sum() + s.bays[0, 0] == 0),
    "no foot on the left, head on both sides": (9, lambda s: s.ink[2, 0] < 0.04 and s.ink[0, 0] > 0.08),
}
"""Name → (class it votes for, when)."""


def rule_votes(images: Floats) -> Ints:
    """(n, rules) class ids, −1 where a rule abstains."""
    shapes = [describe(image) for image in images]
    return np.array([[c if rule(s) else UNRESOLVED for c, rule in RULES.values()] for s in shapes])


@dataclass(frozen=True)
class DigitsData:
    """The demo's splits. Images are (n, 8, 8); X is the images flattened and scaled to 0 … 1.

    Votes are (n, rules) class ids, −1 where a rule abstains; `sources` names the rules.
    """

    images: Floats
    X: Floats
    votes: Ints
    y: Ints
    X_val: Floats
    votes_val: Ints
    y_val: Ints
    X_test: Floats
    y_test: Ints
    sources: tuple[str, ...] = tuple(RULES)


def load_digits_demo(seed: int = 0, n_val: int = 100, n_test: int = 500) -> DigitsData:
    """Real digits, the votes of the rules, and true labels for the trusted and the test images.

    The test images are the same for every seed; it draws the trusted ones from the others.
    """
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    others, tested = order[:-n_test], order[-n_test:]
    drawn = np.random.default_rng(seed).permutation(len(others))
    trusted, train = others[np.sort(drawn[:n_val])], others[np.sort(drawn[n_val:])]
    images, y = bunch.images.astype(np.float32), bunch.target.astype(np.int64)
    X = images.reshape(len(images), -1) / np.float32(16.0)
    return DigitsData(
        images=images[train], X=X[train], votes=rule_votes(images[train]), y=y[train],
        X_val=X[trusted], votes_val=rule_votes(images[trusted]), y_val=y[trusted],
        X_test=X[tested], y_test=y[tested],
    )  # fmt: skip
