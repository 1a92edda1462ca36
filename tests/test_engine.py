"""The compiled sweeps against plain NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray
from scipy.special import log_softmax, softmax

from labelchef.model.contrasts import contrast, expand, with_reference
from labelchef.model.engines import MemoryEngine, RowLabels, host
from labelchef.model.engines.threads import thread_count
from labelchef.model.influence import influence_matrix


def setting(
    rng: np.random.Generator, n: int, d: int, C: int, dtype: DTypeLike, bias: bool
) -> tuple[MemoryEngine, "np.ndarray", RowLabels, "np.ndarray", "np.ndarray"]:
    X = rng.normal(size=(n, d)).astype(dtype)
    labels = RowLabels(rng.dirichlet(np.ones(C), n), rng.uniform(0, 1, n))
    dense = np.hstack([X, np.ones((n, 1))]) if bias else X.astype(np.float64)
    W, V = rng.normal(size=(2, dense.shape[1], C))
    return MemoryEngine(X, bias=bias), dense.astype(np.float64), labels, W, V


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([1, 2, 3, 4, 5, 63, 64, 65, 255, 257, 513, 1030]),
    d=st.integers(1, 40),
    C=st.integers(2, 7),
    bias=st.booleans(),
    single=st.booleans(),
)
def test_one_sweep_gives_what_many_dense_products_give(
    seed: int, n: int, d: int, C: int, bias: bool, single: bool
) -> None:
    rng = np.random.default_rng(seed)
    engine, X, labels, W, V = setting(rng, n, d, C, np.float32 if single else np.float64, bias)
    P, Z, r = softmax(X @ W, axis=1), X @ V, labels.weight[:, None]
    gradient = X.T @ (r * (P - labels.Y))
    product = X.T @ (r * (P * Z - P * (P * Z).sum(axis=1, keepdims=True)))
    loss = float(-(r * labels.Y * log_softmax(X @ W, axis=1)).sum())

    out = engine.sweep(labels, W=contrast(W), V=contrast(V), gradient=True, hessian_product=True)

    def close(actual: object, expected: object) -> None:
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)  # type: ignore[call-overload]

    close(softmax(with_reference(out.logits), axis=1), P)
    assert out.products is not None
    assert out.gradient is not None
    assert out.hessian_product is not None
    close(out.products, Z[:, 1:] - Z[:, :1])
    close(expand(out.gradient), gradient)
    close(expand(out.hessian_product), product)
    close(out.loss, loss)


@pytest.mark.parametrize("C", [2, 4, 10])
@pytest.mark.parametrize("bias", [True, False])
def test_a_rough_sweep_errs_by_1e_7(rng: np.random.Generator, C: int, bias: bool) -> None:
    engine, _, labels, W, V = setting(rng, 1030, 300, C, np.float32, bias)
    exact, rough = (
        engine.sweep(labels, W=contrast(0.05 * W), V=contrast(V), gradient=True, hessian_product=True, roughly=roughly)
        for roughly in (False, True)
    )
    for name in ("logits", "products", "gradient", "hessian_product", "loss"):
        one, other = np.asarray(getattr(exact, name)), np.asarray(getattr(rough, name))
        assert 0.0 < np.linalg.norm(one - other) < 5e-7 * np.linalg.norm(one), name
        assert other.dtype == np.float64
    backward = engine.sweep(labels, logits=rough.logits, gradient=True, roughly=True)
    np.testing.assert_array_equal(backward.gradient, rough.gradient)


def test_wide_features_are_swept_in_float64_whatever_is_asked(rng: np.random.Generator) -> None:
    engine, _, labels, W, _ = setting(rng, 200, 20, 3, np.float64, True)
    exact = engine.sweep(labels, W=contrast(W), gradient=True)
    rough = engine.sweep(labels, W=contrast(W), gradient=True, roughly=True)
    np.testing.assert_array_equal(exact.gradient, rough.gradient)


def test_parts_of_a_sweep_equal_the_whole(rng: np.random.Generator) -> None:
    engine, _, labels, W, V = setting(rng, 300, 9, 4, np.float64, True)
    whole = engine.sweep(labels, W=contrast(W), V=contrast(V), gradient=True, hessian_product=True)
    backward = engine.sweep(labels, logits=whole.logits, gradient=True)
    product = engine.sweep(labels, logits=whole.logits, V=contrast(V), hessian_product=True)
    forward = engine.sweep(labels, W=contrast(W))
    assert whole.gradient is not None
    assert whole.hessian_product is not None
    assert product.hessian_product is not None
    np.testing.assert_array_equal(backward.gradient, whole.gradient)
    np.testing.assert_allclose(product.hessian_product, whole.hessian_product, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(forward.logits, whole.logits, rtol=1e-13, atol=1e-13)
    assert engine.sweeps == 4


def test_results_do_not_depend_on_the_number_of_threads(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    X = rng.normal(size=(3000, 17)).astype(np.float32)
    labels = RowLabels(rng.dirichlet(np.ones(3), 3000), rng.uniform(0, 1, 3000))
    K = rng.normal(size=(2, 18))
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("LABELCHEF_THREADS", threads)
        assert thread_count() == int(threads)
        results.append(MemoryEngine(X, bias=True).sweep(labels, W=K, gradient=True))
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].gradient, other.gradient)
        assert results[0].loss == other.loss


@pytest.mark.parametrize("n", [70, 129, 1000])
def test_equal_rows_get_equal_products_to_the_bit(rng: np.random.Generator, n: int) -> None:
    X = np.repeat(rng.normal(size=(1, 33)).astype(np.float32), n, axis=0)
    labels = RowLabels(np.full((n, 3), 1 / 3), np.ones(n))
    out = MemoryEngine(X, bias=True).sweep(labels, W=rng.normal(size=(2, 34)))
    assert len(np.unique(out.logits, axis=0)) == 1


def test_features_are_not_written(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 5)).astype(np.float32)
    X.flags.writeable = False
    labels = RowLabels(np.full((200, 2), 0.5), np.ones(200))
    engine = MemoryEngine(X, bias=True)
    engine.sweep(labels, W=np.ones((1, 6)), gradient=True)
    engine.gram(np.ones(200))
    assert np.shares_memory(engine._blocks[0][1], X)


def test_gram_and_rows(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_SMALL_BLOCK", 7 * 8 * 6)  # seven rows a block
    monkeypatch.setattr(host, "_LARGE_BLOCK", 7 * 8 * 6)
    X = rng.normal(size=(50, 5))
    dense, h = np.hstack([X, np.ones((50, 1))]), rng.uniform(0, 1, 50)
    engine = MemoryEngine(X, bias=True)
    np.testing.assert_allclose(engine.gram(h), dense.T @ (h[:, None] * dense), rtol=1e-12)
    np.testing.assert_allclose(engine.gram(h, 3), dense[::3].T @ (h[::3, None] * dense[::3]), rtol=1e-12)
    np.testing.assert_array_equal(engine.rows(np.array([4, 0])), dense[[4, 0]])


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 300), C=st.integers(2, 6))
def test_scores_are_the_row_minima_of_the_influence_matrix(seed: int, n: int, C: int) -> None:
    rng = np.random.default_rng(seed)
    A, S = rng.normal(size=(2, n, C - 1))
    labels = RowLabels(rng.dirichlet(np.ones(C), n), rng.uniform(0, 1, n))
    eligible = rng.random(n) < 0.8
    best, label = MemoryEngine(np.zeros((n, 1)), bias=False).scores(A, S, labels, eligible)
    P = softmax(with_reference(A), axis=1)
    expected = influence_matrix(with_reference(S), P, labels.Y, labels.weight)
    np.testing.assert_allclose(best[eligible], expected.min(axis=1)[eligible], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(label[eligible], expected.argmin(axis=1)[eligible])
    assert np.isposinf(best[~eligible]).all()


def test_saturated_logits_stay_finite() -> None:
    X = np.array([[1e4], [-1e4], [0.0]])
    labels = RowLabels(np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]), np.ones(3))
    out = MemoryEngine(X, bias=False).sweep(
        labels, W=np.ones((1, 1)), V=np.ones((1, 1)), gradient=True, hessian_product=True
    )
    assert np.isfinite(out.loss)
    assert out.loss == pytest.approx(1e4 + np.log(2))
    assert np.isfinite(out.gradient).all()  # type: ignore[arg-type]
    assert np.isfinite(out.hessian_product).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_arrays_are_one_set_of_rows(dtype: type) -> None:
    rng = np.random.default_rng(3)
    X: NDArray[np.floating[Any]] = rng.normal(size=(700, 9)).astype(dtype)
    labels = RowLabels(rng.dirichlet(np.ones(3), 700), rng.random(700))
    W, V = rng.normal(size=(2, 10)), rng.normal(size=(2, 10))
    one, two = MemoryEngine(X, bias=True), MemoryEngine(X[:650], bias=True, more=X[650:])
    assert two.n_rows == 700
    a, b = (e.sweep(labels, W=W, V=V, gradient=True, hessian_product=True) for e in (one, two))
    np.testing.assert_array_equal(a.logits, b.logits)
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-12)  # type: ignore[arg-type]
    np.testing.assert_allclose(a.hessian_product, b.hessian_product, rtol=1e-12)  # type: ignore[arg-type]
    assert a.loss == pytest.approx(b.loss, rel=1e-12)
    rows = np.array([699, 3, 650, 649])
    np.testing.assert_array_equal(one.rows(rows), two.rows(rows))
    few = [e.gradient_of_rows(rows, labels, W) for e in (one, two)]
    np.testing.assert_allclose(few[0], few[1], rtol=1e-12)
    for step in (1, 7):
        np.testing.assert_allclose(one.gram(labels.weight, step), two.gram(labels.weight, step), atol=1e-3)
    np.testing.assert_allclose(one.row_squares(), two.row_squares(), rtol=1e-12)
