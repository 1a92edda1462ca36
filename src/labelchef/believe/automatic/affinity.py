"""GOGGLES: classes of images from how much they resemble each other, named by a few trusted rows.

N. Das, S. Chaba, R. Wu, S. Gandhi, D. H. Chau, X. Chu: GOGGLES: Automatic Image Labeling with Affinity Coding. SIGMOD 2020
(arXiv:1903.04552). Own implementation.

n images, C classes. Layer l of a convolutional network gives maps F^l (n, h, w, c).

**Prototypes.** Of the maps of an image j the Z channels with the largest maximum are taken; the vector (c,) of all channels
at the place of that maximum is a prototype v_jz^l.

**Affinity functions.** One for each layer and rank z, α = (layers) Z of them: how far the best place of image i resembles it,

    A^{lz}[i, j] = max over (y, x) of cos(F^l[i, y, x], v_jz^l)           (n, P)

over P images j. The paper takes all (P = n), which is quadratic in time and memory. Here P is at most `PROTOTYPES` images,
drawn once, so both are linear in n; maps of the images are made in pieces and not kept. Z = 10.

**Base models.** For each affinity function a Gaussian mixture of C components with diagonal covariances over the rows of A^{lz},
by expectation and maximisation from k-means:

    J(θ) = Σ_i log Σ_k π_k Π_j N(A[i, j]; m_kj, s²_kj) − Σ_kj [b / s²_kj + a log s²_kj]

The last term (variances of an inverse-gamma prior) keeps variances from collapsing; an alternation never lowers J.

**Ensemble.** The most probable component of every base model, one-hot: B (n, α C) in {0, 1}. A mixture of C products of Bernoulli
distributions over its rows, again by expectation and maximisation, gives R (n, C); θ_k have a Beta(1 + e, 1 + e) prior.

**Names.** Components become classes by the trusted rows: the assignment g of largest Σ_{trusted i} R[i, g(y_i)]
(`scipy.optimize.linear_sum_assignment`). The votes on trusted rows are cross-fitted (`trusted`): those of fold k with names that
were found without it. The mixtures never see a label.

Votes are soft: after the ensemble, posteriors are near 0 or 1 even where they are wrong, because the α functions are counted as
independent. `labelchef` learns from trusted rows how far they can be believed.

**Maps.** `conv_maps` are those of five stages of EfficientNet-Lite0 (the paper: five of VGG-16).
`patch_maps` need no extra: patches of pixels at two scales, with their mean as one more channel and contrast scaled.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import Progress, no_progress
from labelchef.believe.automatic.trusted import held_out

ImagesAt: TypeAlias = Callable[[Ints], NDArray[Any]]
"""From positions (k,) to images (k, height, width) or (k, height, width, 3), all of one size: read when they are needed."""
Maps: TypeAlias = Sequence[NDArray[np.float32]]
"""Of each layer (n, h, w, c)."""
MapsOf: TypeAlias = Callable[[NDArray[Any]], Maps]
"""From images to maps."""
Fit: TypeAlias = tuple[Float64s, float]
"""log P(row | k) (n, K) by the best parameters, and the log of their prior."""
Mixture: TypeAlias = tuple[Float64s, list[float]]
"""R (n, K), and J after each alternation: it never falls."""

PROTOTYPES = 200
"""P: most images that others are compared with."""
PIECE = 64
"""Images whose maps are in memory at a time."""

_RANKS = 10
_ALTERNATIONS = 200
_SCALE, _SHAPE = 1e-3, 0.5
_BEFORE = 0.5
_CONV_SIDE = 96
_STAGES = 0, 2, 4, 10, 15


def code_affinity(
    n: int,
    images_at: ImagesAt,
    y: Ints,
    n_classes: int,
    maps_of: MapsOf,
    seed: int = 0,
    progress: Progress = no_progress,
) -> tuple[Float64s, Float64s]:
    """Soft votes (n − m, C) and (m, C) on n images, of which the last m are trusted ones with classes y (m,)."""
    if n < 2 * n_classes:
        raise InvalidInputError(
            f"{n} images for {n_classes} classes; expected at least two images for each class", code="images"
        )
    return code_tables(affinities(n, images_at, maps_of, seed, progress), y, n_classes, seed, progress)


def code_tables(
    tables: Sequence[Float64s], y: Ints, n_classes: int, seed: int = 0, progress: Progress = no_progress
) -> tuple[Float64s, Float64s]:
    """The same from affinity matrices (n, P): any function of two items will do."""
    B = []
    for k, table in enumerate(tables):
        progress("finding groups", k, len(tables) + 1)
        B.append(np.eye(n_classes)[gaussian_mixture(table, n_classes, seed)[0].argmax(axis=1)])
    R, _ = bernoulli_mixture(np.hstack(B), n_classes, seed)
    progress("finding groups", len(tables) + 1, len(tables) + 1)
    train, known = R[: -len(y)], R[-len(y) :]
    trusted = np.full(known.shape, np.nan)
    for held in held_out(y, seed):
        trusted[held] = known[held][:, name_components(known[~held], y[~held])]
    return train[:, name_components(known, y)], trusted


def name_components(R: Float64s, y: Ints) -> Ints:
    """(C,) the component of each class: the assignment under which rows (m, C) have most of the class y (m,).

    >>> name_components(np.array([[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 0, 1])).tolist()
    [1, 0]
    """
    worth = np.eye(R.shape[1])[y].T @ R
    return np.asarray(linear_sum_assignment(worth, maximize=True)[1], dtype=np.int64)


def gaussian_mixture(A: Float64s, n_components: int, seed: int) -> Mixture:
    """Diagonal Gaussians over the rows of A (n, P); columns are scaled to variance 1 first."""
    A = (A - A.mean(axis=0)) / np.maximum(A.std(axis=0), 1e-9)
    squares = A**2

    def fit(R: Float64s, weight: Float64s) -> Fit:
        mean = (R.T @ A) / weight
        spread = (R.T @ squares) - weight * mean**2
        variance = (np.maximum(spread, 0.0) + 2 * _SCALE) / (weight + 2 * _SHAPE)
        precision = 1 / variance
        distance = squares @ precision.T - 2 * A @ (mean * precision).T + (mean**2 * precision).sum(axis=1)
        logits = -0.5 * (distance + np.log(2 * np.pi * variance).sum(axis=1))
        return logits, -float((_SCALE / variance + _SHAPE * np.log(variance)).sum())

    return _mixture(A, n_components, seed, fit)


def bernoulli_mixture(B: Float64s, n_components: int, seed: int) -> Mixture:
    """Products of Bernoulli distributions over the rows of B (n, D), 0 or 1."""

    def fit(R: Float64s, weight: Float64s) -> Fit:
        theta = (R.T @ B + _BEFORE) / (weight + 2 * _BEFORE)
        one, zero = np.log(theta), np.log1p(-theta)
        return B @ (one - zero).T + zero.sum(axis=1), _BEFORE * float((one + zero).sum())

    return _mixture(B, n_components, seed, fit)


def _mixture(rows: Float64s, K: int, seed: int, fit: Callable[[Float64s, Float64s], Fit]) -> Mixture:
    """Expectation and maximisation from k-means: `fit` of R (n, K) and its sums (K, 1) maximises."""
    clusters = min(K, len(np.unique(rows, axis=0)))
    R = np.eye(K)[KMeans(clusters, n_init=4, random_state=seed).fit(rows).labels_]
    objective: list[float] = []
    for _ in range(_ALTERNATIONS):
        weight = R.sum(axis=0) + 1e-9
        logits, prior = fit(R, weight[:, None])
        logits = np.log(weight / weight.sum()) + logits
        total = logsumexp(logits, axis=1)
        R = np.exp(logits - total[:, None])
        objective.append(float(total.sum() + prior))
        if len(objective) > 1 and objective[-1] - objective[-2] <= 1e-6 * len(rows):
            break
    return R, objective


def affinities(n: int, images_at: ImagesAt, maps_of: MapsOf, seed: int, progress: Progress) -> list[Float64s]:
    """α matrices (n, P), by layer and rank."""
    chosen = np.sort(np.random.default_rng([seed, 51]).permutation(n)[:PROTOTYPES])
    pieces = [_prototypes(maps_of(images_at(rows))) for rows in _pieces(chosen)]
    vectors = [np.concatenate(layer, axis=1) for layer in zip(*pieces, strict=True)]
    found = []
    for rows in _pieces(np.arange(n)):
        progress("comparing images", int(rows[0]), n)
        closest = []
        for prototypes, maps in zip(vectors, maps_of(images_at(rows)), strict=True):
            places = normalize(maps.reshape(-1, maps.shape[3]))
            for ranked in prototypes:
                closeness = (ranked @ places.T).reshape(len(chosen), len(rows), -1)
                closest.append(closeness.max(axis=2).T.astype(np.float64))
        found.append(closest)
    progress("comparing images", n, n)
    return [np.concatenate(table) for table in zip(*found, strict=True)]


def _pieces(rows: Ints) -> list[Ints]:
    return [rows[start : start + PIECE] for start in range(0, len(rows), PIECE)]


def _prototypes(layers: Maps) -> list[NDArray[np.float32]]:
    """By layer: (Z, images, c) vectors of unit length."""
    found = []
    for maps in layers:
        n, h, w, c = maps.shape
        flat = maps.reshape(n, h * w, c)
        strongest = np.argsort(-flat.max(axis=1), axis=1, kind="stable")  # (n, c)
        channels = strongest[:, np.minimum(np.arange(_RANKS), c - 1)].T  # (Z, n)
        where = [flat[np.arange(n), :, channel].argmax(axis=1) for channel in channels]
        found.append(np.stack([normalize(flat[np.arange(n), at]) for at in where]))
    return found


def patch_maps(images: NDArray[Any]) -> Maps:
    """Patches of pixels at two scales: of a quarter and of half of the shorter side, every half patch.

    >>> [maps.shape for maps in patch_maps(np.zeros((3, 28, 28)))]
    [(3, 8, 8, 50), (3, 3, 3, 50)]
    """
    grey: Floats = np.asarray(images, dtype=np.float32)
    grey = grey.mean(axis=3) if grey.ndim == 4 else grey
    top = grey.max(axis=(1, 2), keepdims=True)
    grey = grey / np.where(top > 0, top, 1.0)
    return [_patches(grey, max(2, min(grey.shape[1:]) // parts)) for parts in (4, 2)]


def _patches(grey: Floats, side: int) -> NDArray[np.float32]:
    """(n, h, w, side² + 1): pixels less their mean, and the mean; larger patches are halved until they have at most 8 × 8."""
    windows: Floats = np.lib.stride_tricks.sliding_window_view(grey, (side, side), axis=(1, 2))
    windows = windows[:, :: side // 2, :: side // 2]
    while windows.shape[-1] > 8:
        half = windows.shape[-1] // 2
        cells = windows[..., : 2 * half, : 2 * half].reshape(*windows.shape[:3], half, 2, half, 2)
        windows = cells.mean(axis=(4, 6))
    flat = windows.reshape(*windows.shape[:3], -1)
    mean = flat.mean(axis=3, keepdims=True)
    return np.concatenate([flat - mean, mean], axis=3).astype(np.float32)


def conv_maps(network: Any) -> MapsOf:
    """Maps of five stages of an EfficientNet-Lite0, images brought to 96 × 96."""
    import torch

    def maps_of(images: NDArray[Any]) -> Maps:
        pixels = torch.from_numpy(np.ascontiguousarray(images)).to(torch.float32)
        pixels = pixels[..., None].expand(-1, -1, -1, 3) if pixels.ndim == 3 else pixels
        pixels = pixels.permute(0, 3, 1, 2) / (255.0 if images.dtype.kind in "iu" else 1.0)
        pixels = torch.nn.functional.interpolate(pixels, size=(_CONV_SIDE, _CONV_SIDE), mode="bilinear")
        found = []
        with torch.no_grad():
            x = network._swish(network._bn0(network._conv_stem((pixels - 0.5) / 0.5)))
            for index, block in enumerate(network._blocks):
                x = block(x)
                if index in _STAGES:  # places of early stages are pooled: 64 × 64 of them say no more
                    pooled = torch.nn.functional.max_pool2d(x, max(1, x.shape[-1] // 16))
                    found.append(pooled.permute(0, 2, 3, 1).contiguous().numpy())
        return found

    return maps_of
