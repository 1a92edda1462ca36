"""Every engine keeps the same contract: plain NumPy decides, once for each engine; then whole campaigns side by side."""

import gc
import pickle
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from labelchef import EngineSettings, LabelCleaner
from labelchef.base.errors import InvalidInputError
from labelchef.base.learning import NO_SOURCES
from labelchef.believe.models import MODELS
from labelchef.chef.choice import ALL_SELECTORS
from labelchef.chef.selectors import InflSelector
from labelchef.model.contrasts import contrast, expand, with_reference
from labelchef.model.engines import Engine, MemoryEngine, RowLabels, choice
from labelchef.model.influence import influence_matrix
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective
from tests.conftest import torch_engine
from tests.oracles import cleaner_of, make_problem

Make = Callable[..., Engine]


def swept(engine: Engine, labels: RowLabels, **what: Any) -> Any:
    """A sweep whose parts are known to be there."""
    return engine.sweep(labels, **what)


def setting(rng: np.random.Generator, n: int, d: int, C: int) -> tuple[Any, Any, RowLabels, Any, Any]:
    """X, the same with its bias column, labels, and two directions (D, C)."""
    X = rng.normal(size=(n, d)).astype(np.float32)
    labels = RowLabels(rng.dirichlet(np.ones(C), n), rng.uniform(0, 1, n))
    W, V = rng.normal(size=(2, d + 1, C))
    return X, np.hstack([X, np.ones((n, 1))]).astype(np.float64), labels, W, V


@pytest.mark.parametrize(("n", "d", "C"), [(1, 1, 2), (65, 7, 2), (300, 33, 5)])
def test_a_sweep_and_its_parts(make_engine: Make, rng: np.random.Generator, n: int, d: int, C: int) -> None:
    X, dense, labels, W, V = setting(rng, n, d, C)
    engine = make_engine(X, bias=True)
    P, Z, r = softmax(dense @ W, axis=1), dense @ V, labels.weight[:, None]
    whole = swept(engine, labels, W=contrast(W), V=contrast(V), gradient=True, hessian_product=True)
    assert whole.gradient is not None
    assert whole.hessian_product is not None
    np.testing.assert_allclose(softmax(with_reference(engine.host(whole.logits)), axis=1), P, atol=1e-11)
    np.testing.assert_allclose(engine.host(whole.products), Z[:, 1:] - Z[:, :1], atol=1e-10)
    np.testing.assert_allclose(expand(whole.gradient), dense.T @ (r * (P - labels.Y)), atol=1e-9)
    bend = dense.T @ (r * (P * Z - P * (P * Z).sum(axis=1, keepdims=True)))
    np.testing.assert_allclose(expand(whole.hessian_product), bend, atol=1e-9)
    assert whole.loss == pytest.approx(float(-(r * labels.Y * log_softmax(dense @ W, axis=1)).sum()), rel=1e-11)

    backward = swept(engine, labels, logits=whole.logits, gradient=True)
    product = swept(engine, labels, logits=whole.logits, V=contrast(V), hessian_product=True)
    np.testing.assert_allclose(backward.gradient, whole.gradient, atol=1e-10)
    np.testing.assert_allclose(product.hessian_product, whole.hessian_product, atol=1e-10)
    assert swept(engine, labels, W=contrast(W)).products is None
    assert engine.sweeps == 4


def test_what_an_engine_reads_of_x(make_engine: Make, rng: np.random.Generator) -> None:
    X, dense, labels, W, _ = setting(rng, 90, 6, 3)
    engine, h = make_engine(X, bias=True), rng.uniform(0, 1, 90)
    few = np.array([4, 80, 4, 0])
    np.testing.assert_array_equal(engine.rows(few), dense[few])
    for step in (1, 3):
        expected = dense[::step].T @ (h[::step, None] * dense[::step])
        np.testing.assert_allclose(engine.host(engine.gram(engine.place(h), step)), expected, rtol=1e-5, atol=1e-5)
    some = np.arange(5, 77)
    P = softmax(dense[some] @ W, axis=1)
    expected = dense[some].T @ (labels.weight[some, None] * (P - labels.Y[some]))
    np.testing.assert_allclose(expand(engine.gradient_of_rows(some, labels, contrast(W))), expected, atol=1e-10)
    np.testing.assert_allclose(engine.host(engine.row_squares()), (dense**2).sum(axis=1), rtol=1e-12)
    E = np.linalg.qr(rng.normal(size=(7, 3)))[0]
    Q = E @ np.diag(rng.uniform(1, 2, 3)) @ E.T + 0.5 * (np.eye(7) - E @ E.T)
    g, vectors = engine.eigh(engine.place(Q.copy()))
    np.testing.assert_allclose(engine.host(vectors) @ np.diag(g) @ engine.host(vectors).T, Q, atol=1e-12)


@pytest.mark.parametrize("C", [2, 4])
def test_scores_and_shortlists(make_engine: Make, rng: np.random.Generator, C: int) -> None:
    n = 400
    engine = make_engine(np.zeros((n, 1)), bias=False)
    A, S = rng.normal(size=(2, n, C - 1)) * rng.exponential(size=n)[:, None]
    labels, eligible = RowLabels(rng.dirichlet(np.ones(C), n), rng.uniform(0, 1, n)), rng.random(n) < 0.8
    here_A, here_S = engine.place(A), engine.place(S)
    P = softmax(with_reference(A), axis=1)
    truth = influence_matrix(with_reference(S), P, labels.Y, labels.weight)
    best, label = (engine.host(found) for found in engine.scores(here_A, here_S, labels, eligible))
    np.testing.assert_allclose(best[eligible], truth.min(axis=1)[eligible], atol=1e-12)
    np.testing.assert_array_equal(label[eligible], truth.argmin(axis=1)[eligible])
    assert np.isposinf(best[~eligible]).all()
    some = np.array([9, 3, 250])
    np.testing.assert_allclose(engine.scores_of(some, here_A, here_S, labels)[0], truth.min(axis=1)[some], atol=1e-12)

    order = np.argsort(best)[:20]
    np.testing.assert_array_equal(engine.lowest(engine.place(best), 20), np.sort(order))
    rows = engine.within_reach(here_S, labels, eligible, -float(best[order[-1]]))
    assert rows is not None
    assert set(order) <= set(rows.tolist()) <= set(np.flatnonzero(eligible).tolist())
    assert engine.within_reach(here_S, labels, eligible, 0.0) is None, "too many to list"


@pytest.mark.parametrize("C", [2, 4])
def test_expected_scores(make_engine: Make, rng: np.random.Generator, C: int) -> None:
    n, eta, optimism = 300, 0.7, 0.4
    engine = make_engine(np.zeros((n, 1)), bias=False)
    A, S = rng.normal(size=(2, n, C - 1)) * rng.exponential(size=n)[:, None]
    A[0] = S[0] = 0.0  # all answers alike: the lowest class
    labels, eligible = RowLabels(rng.dirichlet(np.ones(C), n), rng.uniform(0, 1, n)), rng.random(n) < 0.8
    eligible[0] = True
    Q = softmax(with_reference(A) - eta * with_reference(S), axis=1)
    matrix = influence_matrix(with_reference(S), softmax(with_reference(A), axis=1), labels.Y, labels.weight)
    mean = (Q * matrix).sum(axis=1)
    spread = np.sqrt((Q * (matrix - mean[:, None]) ** 2).sum(axis=1))
    found = engine.expected_scores(engine.place(A), engine.place(S), labels, eligible, eta, optimism)
    worth, influence, label = (engine.host(part) for part in found)
    np.testing.assert_allclose(worth[eligible], (mean - optimism * spread)[eligible], atol=1e-7)
    np.testing.assert_allclose(influence[eligible], mean[eligible], atol=1e-12)
    np.testing.assert_array_equal(label[eligible], Q.argmax(axis=1)[eligible])
    assert label[0] == 0
    assert np.isposinf(worth[~eligible]).all()
    assert np.isposinf(influence[~eligible]).all()


def test_ties_and_empty_shortlists(make_engine: Make) -> None:
    engine = make_engine(np.zeros((5, 1)), bias=False)
    scores = engine.place(np.array([2.0, 1.0, np.inf, 1.0, 1.0]))
    assert engine.lowest(scores, 2).tolist() == [1, 3, 4]
    assert engine.lowest(scores, 9).tolist() == [0, 1, 3, 4]
    assert engine.lowest(engine.place(np.full(3, np.inf)), 2).tolist() == []


def test_secant_solves_are_the_textbook_recursion(make_engine: Make, rng: np.random.Generator) -> None:
    engine, n, C = make_engine(np.zeros((2, 3)), bias=False), 3, 4
    H = rng.normal(size=(n * C, n * C))
    H = H @ H.T + np.eye(n * C)
    inverse, pairs = 0.3 * np.eye(n * C), ()
    for count in range(1, 21):  # more than there are places for pairs at first
        s = rng.normal(size=(n, C))
        y = (H @ s.ravel()).reshape(n, C)
        rho = 1.0 / float(np.vdot(s, y))
        before, pairs = pairs, (*pairs, (s, y, rho))  # type: ignore[assignment]
        left = np.eye(n * C) - rho * np.outer(s, y)
        older, inverse = inverse, left @ inverse @ left.T + rho * np.outer(s, s)
        R = rng.normal(size=(n, C))
        for held, dense in ((pairs, inverse), (before, older), (pairs, inverse)):  # one that came before, too
            found = engine.host(engine.secant_solve(lambda T: T * 0.3, held, engine.place(R)))
            np.testing.assert_allclose(found.ravel(), dense @ R.ravel(), rtol=1e-7, atol=1e-9, err_msg=str(count))


def test_the_line_of_the_objective(make_engine: Make, rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=50, C=3)
    engine = make_engine(np.ascontiguousarray(problem.X[:, :-1]), bias=True)
    objective = Objective(engine, RowLabels(problem.Y, problem.weight), problem.l2)
    W, T = rng.normal(size=(2, *problem.shape))
    point = objective.at(W)
    _, products = objective.hessian_product(point, T)
    slope, bend = objective.along(point, T, products, 0.4)
    assert slope == pytest.approx(float(np.vdot(problem.gradient(W + 0.4 * T), T)), rel=1e-9)
    change = (problem.gradient(W + (0.4 + 1e-5) * T) - problem.gradient(W + (0.4 - 1e-5) * T)) / 2e-5
    assert bend == pytest.approx(float(np.vdot(change, T)), rel=1e-6)


def test_labels_on_the_device_follow_those_of_the_table(rng: np.random.Generator) -> None:
    engine, table = torch_engine(np.zeros((40, 2)), bias=True), LabelTable(rng.dirichlet(np.ones(3), 40), 0.7)

    def check() -> None:
        here = engine.placed(table.rows)
        np.testing.assert_array_equal(engine.host(here.Y), table.Y)
        np.testing.assert_array_equal(engine.host(here.weight), table.weight)

    check()
    first = engine.placed(table.rows).Y
    table.assign(np.array([3, 5]), np.array([2, 0]))
    table.assign(np.array([5, 9]), np.array([-1, 1]))
    check()
    undone = table.assigned(np.array([1]), np.array([0]))
    undone.__enter__()
    check()
    assert undone.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None) is not True
    check()
    assert engine.placed(table.rows).Y is first, "changed rows were written into it, not a new copy made"
    other = RowLabels(table.Y.copy(), table.weight.copy())
    other.Y[0] = 1 / 3
    np.testing.assert_array_equal(engine.host(engine.placed(other).Y), other.Y)
    check()


@pytest.mark.parametrize("bias", [True, False])
def test_a_stream_gives_what_memory_gives(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, bias: bool
) -> None:
    X, _, labels, W, V = setting(rng, 300, 7, 3)
    lies, passes = torch_engine(X, bias=bias), torch_engine(X, bias=bias, resident=False)
    monkeypatch.setattr("labelchef.model.engines.torch_engine._STREAM_BYTES", 40 * 28)  # forty rows
    K, T = contrast(W)[:, : lies.n_columns], contrast(V)[:, : lies.n_columns]
    one, two = (swept(e, labels, W=K, V=T, gradient=True, hessian_product=True) for e in (lies, passes))
    np.testing.assert_allclose(lies.host(two.logits), lies.host(one.logits), atol=1e-12)
    np.testing.assert_allclose(lies.host(two.products), lies.host(one.products), atol=1e-12)
    np.testing.assert_allclose(two.gradient, one.gradient, atol=1e-10)
    np.testing.assert_allclose(two.hessian_product, one.hessian_product, atol=1e-10)
    again = swept(passes, labels, logits=two.logits, gradient=True)
    np.testing.assert_allclose(again.gradient, one.gradient, atol=1e-10)
    h = rng.uniform(0, 1, 300)
    for step in (1, 7):
        np.testing.assert_allclose(
            passes.host(passes.gram(passes.place(h), step)), lies.host(lies.gram(lies.place(h), step))
        )
    np.testing.assert_array_equal(passes.rows(np.array([299, 0])), lies.rows(np.array([299, 0])))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_read_exactly(rng: np.random.Generator, dtype: str) -> None:
    X, _, labels, W, V = setting(rng, 120, 9, 3)
    engine = torch_engine(X, bias=True, dtype=dtype)
    stored = engine.rows(np.arange(120))[:, :-1]
    assert 0 < np.abs(stored - X).max() < 0.02
    one, two = (
        swept(e, labels, W=contrast(W), V=contrast(V), gradient=True, hessian_product=True)
        for e in (engine, MemoryEngine(stored, bias=True))
    )
    np.testing.assert_allclose(one.gradient, two.gradient, atol=1e-11)
    np.testing.assert_allclose(one.hessian_product, two.hessian_product, atol=1e-11)


@pytest.mark.parametrize("resident", [True, False])
def test_what_a_half_type_cannot_hold_is_refused(resident: bool) -> None:
    X = np.ones((70_000, 2), dtype=np.float32)
    X[69_999, 1] = -1e6
    with pytest.raises(InvalidInputError, match=r"X\[69999, 1\] is -1e\+06, outside the range of float16"):
        torch_engine(X, bias=True, dtype="float16", resident=resident)
    assert torch_engine(X, bias=True, dtype="bfloat16").n_rows == 70_000


def test_an_engine_survives_a_pickle(rng: np.random.Generator) -> None:
    X, _, labels, W, _ = setting(rng, 30, 4, 3)
    engine = torch_engine(X, bias=True)
    before = swept(engine, labels, W=contrast(W), gradient=True)
    after = pickle.loads(pickle.dumps(engine)).sweep(labels, W=contrast(W), gradient=True)
    np.testing.assert_array_equal(before.gradient, after.gradient)


def campaign(engine: str | EngineSettings, problem: Any, **settings: Any) -> LabelCleaner:
    y_val = problem.Y_val.argmax(axis=1)
    cleaner = cleaner_of(engine=engine, l2=problem.l2, gamma=0.8, budget=None, **{"tol": 1e-5, **settings})
    return cleaner.fit(problem.X[:, :-1], problem.Y, X_val=problem.X_val[:, :-1], y_val=y_val)


@pytest.fixture
def on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engine 'cuda' without a GPU."""
    monkeypatch.setattr(choice, "cuda_device", lambda: ("cpu", ""))


OTHERS = {"cuda": "TorchEngine", "disk": "StreamingEngine"}
"""Settings of engines that are compared with the memory engine, and their classes."""


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest) -> str:
    """An engine that must choose like the memory engine."""
    return str(request.param)


@pytest.mark.usefixtures("on_torch")
@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"selector": "infl", "look_ahead": False},
        {"selector": InflSelector(prune=False), "look_ahead": False},
        {"selector": "increm_infl_theorem1", "look_ahead": False},
        {"selector": "expected_infl", "look_ahead": False},
        {"selector": "increm_infl"},
        {"selector": "entropy"},
        {"constructor": "deltagrad_l"},
        {"batch_size": 25},
    ],
    ids=str,
)
def test_campaigns_choose_alike(rng: np.random.Generator, other: str, C: int, settings: dict[str, Any]) -> None:
    problem = make_problem(rng, n=500, d=6, C=C, spread=0.7)
    truth = problem.Y.argmax(axis=1)
    one, two = (campaign(engine, problem, **settings) for engine in ("memory", other))
    assert type(two._session.objective.engine).__name__ == OTHERS[other]
    for _ in range(4):
        batches = [cleaner.query() for cleaner in (one, two)]
        np.testing.assert_array_equal(batches[0].indices, batches[1].indices)
        np.testing.assert_array_equal(batches[0].suggested, batches[1].suggested)
        for cleaner in (one, two):
            cleaner.update(batches[0].indices, truth[batches[0].indices])
    np.testing.assert_allclose(two.W_, one.W_, atol=1e-7)
    np.testing.assert_allclose(two.scores(), one.scores(), rtol=1e-5, atol=1e-5)
    assert two.undo().history_["val_loss"].iloc[-1] == pytest.approx(one.undo().history_["val_loss"].iloc[-1], rel=1e-8)


@pytest.mark.usefixtures("on_torch")
@pytest.mark.parametrize("selector", sorted(set(ALL_SELECTORS) - {"expected_infl", "increm_infl", "infl", "random"}))
def test_every_other_selector_chooses_alike(rng: np.random.Generator, other: str, selector: str) -> None:
    choose_alike(make_problem(rng, n=240, d=5, C=3, spread=0.7), selector, other)


def choose_alike(problem: Any, selector: str, other: str = "cuda", *, rounds: int = 2) -> None:
    """Both engines, on the same labels after each round."""
    truth = problem.Y.argmax(axis=1)
    one, two = (campaign(engine, problem, selector=selector) for engine in ("memory", other))
    for _ in range(rounds):
        batches = [cleaner.query() for cleaner in (one, two)]
        np.testing.assert_array_equal(batches[0].indices, batches[1].indices)
        np.testing.assert_array_equal(batches[0].suggested, batches[1].suggested)
        np.testing.assert_allclose(batches[1].influence, batches[0].influence, rtol=1e-4, atol=1e-7)
        for cleaner in (one, two):
            cleaner.update(batches[0].indices, truth[batches[0].indices])


@pytest.mark.usefixtures("on_torch")
def test_gains_and_chosen_strengths_are_those_of_the_memory_engine(rng: np.random.Generator, other: str) -> None:
    problem = make_problem(rng, n=300, d=4, C=2, spread=0.7)
    y_val = problem.Y_val.argmax(axis=1)
    made = []
    for engine in ("memory", other):
        cleaner = LabelCleaner(engine=engine, budget=None, holdout=0.5)
        cleaner.fit(problem.X[:, :-1], problem.Y, X_val=problem.X_val[:, :-1], y_val=y_val)
        asked = cleaner.query()
        cleaner.update(asked.indices, problem.Y[asked.indices].argmax(axis=1))
        made.append((cleaner.gamma_, cleaner.l2_, cleaner.gain("accuracy"), asked.indices.tolist()))
    assert made[0] == made[1]


@pytest.mark.usefixtures("on_torch")
def test_half_storage_through_the_cleaner(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=300, d=5, C=3)
    whole, half = campaign("cuda", problem), campaign(EngineSettings("cuda", feature_dtype="float16"), problem)
    moved = float(np.linalg.norm(whole.W_ - half.W_) / np.linalg.norm(whole.W_))
    assert 0.0 < moved < 1e-2
    given = np.ascontiguousarray(problem.X[:, :-1], dtype=np.float16)
    cleaner = LabelCleaner(
        engine="cuda"
    ).fit(  # and gamma and l2 are chosen from it
        given, problem.Y, X_val=problem.X_val[:, :-1], y_val=problem.Y_val.argmax(axis=1)
    )
    assert cleaner._session.objective.engine.row_bytes == 10, "float16 stays float16"


def of_size(n: int) -> Any:
    """An array of n numbers that takes no memory."""
    return np.broadcast_to(np.float32(0), (n, 1))


def test_auto_takes_a_gpu_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = of_size(choice.WORTH_A_DEVICE), of_size(1)
    monkeypatch.setattr(choice, "cuda_device", lambda: ("cuda", ""))
    assert choice.choose_placement("auto", "float16", large) == choice.Placement("cuda", "float16")
    assert choice.choose_placement("auto", None, large[1:]) == choice.Placement()
    assert choice.choose_placement("cuda", None, small) == choice.Placement("cuda")
    assert choice.choose_placement("memory", None, large) == choice.Placement()
    monkeypatch.setattr(choice, "cuda_device", lambda: (None, "there is none"))
    assert choice.choose_placement("auto", "float16", large) == choice.Placement()
    with pytest.raises(InvalidInputError, match="engine is 'cuda' and there is none"):
        choice.choose_placement("cuda", None, small)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        choice, "importlib", types.SimpleNamespace(util=types.SimpleNamespace(find_spec=lambda _: None))
    )
    with pytest.raises(InvalidInputError, match=r"labelchef\[torch\]"):
        choice.choose_placement("cuda", None, of_size(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": {"name": "tpu"}}, "engine is 'tpu'; expected one of: auto, memory, cuda, disk"),
        ({"engine": {"feature_dtype": "int8"}}, "feature_dtype is 'int8' with engine 'auto'; expected one of: float64"),
        ({"engine": {"name": "memory", "feature_dtype": "float16"}}, "with an engine that copies X"),
        ({"engine": {"name": "disk", "feature_dtype": "float16"}}, "with engine 'disk'; expected one of"),
    ],
)
def test_settings_that_make_no_sense(rng: np.random.Generator, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        campaign(EngineSettings(**settings["engine"]), make_problem(rng))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("C", [2, 3, 10, 70])
def test_compiled_kernels_against_plain_pytorch(gpu: str, rng: np.random.Generator, C: int, dtype: str) -> None:
    from labelchef.model.engines import torch_kernels
    from labelchef.model.engines.torch_engine import TorchEngine

    X, _, labels, W, V = setting(rng, 3001, 33, C)
    engine, plain = (TorchEngine(X, bias=True, device=gpu, dtype=dtype) for _ in range(2))
    plain._kernels = torch_kernels
    for _ in range(4):  # the last ones are replayed
        one, two = (
            swept(e, labels, W=contrast(W), V=contrast(V), gradient=True, hessian_product=True) for e in (engine, plain)
        )
        np.testing.assert_allclose(engine.host(one.logits), engine.host(two.logits), atol=1e-11)
        np.testing.assert_allclose(one.gradient, two.gradient, atol=1e-9)
        np.testing.assert_allclose(one.hessian_product, two.hessian_product, atol=1e-9)
        assert one.loss == pytest.approx(two.loss, rel=1e-12)
        everyone = np.ones(len(X), dtype=bool)
        expected = [e.expected_scores(two.logits, two.products, labels, everyone, 0.3, 1.0) for e in (engine, plain)]
        for mine, theirs in zip(*expected, strict=True):
            # a spread is the root of a difference: where it is small, so are its digits
            np.testing.assert_allclose(engine.host(mine), engine.host(theirs), rtol=1e-7, atol=1e-7)
        W = W + 0.1


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("selector", ["expected_infl", "increm_infl"])
@pytest.mark.parametrize("C", [2, 4])
def test_campaigns_on_a_gpu_choose_like_those_on_a_cpu(rng: np.random.Generator, C: int, selector: str) -> None:
    choose_alike(make_problem(rng, n=3000, d=20, C=C, spread=0.7), selector, rounds=6)


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("selector", sorted(set(ALL_SELECTORS) - {"expected_infl", "increm_infl", "random"}))
def test_every_other_selector_chooses_alike_on_a_gpu(rng: np.random.Generator, selector: str) -> None:
    choose_alike(make_problem(rng, n=240, d=5, C=3, spread=0.7), selector)


def learn_alike(device: str | None, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Trusted samples that train, sources, an audit and a choice anew: the same on another engine."""
    from labelchef.model.engines.choice import Placement

    others = Placement(device, streamed=device is None)
    N, n, C = 600, 60, 3
    y = rng.integers(0, C, N + n)
    X = (rng.normal(size=(N + n, 8)) + 0.8 * np.eye(C, 8)[y]).astype(np.float32)
    votes = np.where(rng.random((N + n, 6)) < 0.6, y[:, None], rng.integers(0, C, (N + n, 6)))
    votes[rng.random((N + n, 6)) < 0.5] = -1
    cleaners = []
    for where in (Placement(), others):
        monkeypatch.setattr("labelchef.loop.start.choose_placement", lambda *_, where=where: where)
        cleaner = cleaner_of(budget=60, batch_size=20, audit=0.1, tol=1e-6)
        cleaner.fit(X[:N], votes=votes[:N], votes_val=votes[N:], X_val=X[N:], y_val=y[N:], classes=list(range(C)))
        cleaner.run(lambda batch: y[batch.indices])
        cleaners.append(cleaner)
    one, two = cleaners
    for a, b in zip(one.rounds_, two.rounds_, strict=True):
        assert set(a.batch.indices.tolist()) == set(b.batch.indices.tolist())
        assert (a.choice and a.choice.model) == (b.choice and b.choice.model)
        assert a.validation.loss == pytest.approx(b.validation.loss, abs=1e-4)
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(one.posterior_, two.posterior_, atol=1e-3)
    np.testing.assert_allclose(one.sources_["muting"], two.sources_["muting"], atol=1e-4)
    np.testing.assert_allclose(one.finish().predict_proba(X), two.finish().predict_proba(X), atol=1e-4)


def test_the_learner_is_the_same_out_of_core(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    learn_alike(None, monkeypatch, rng)


def test_the_learner_is_the_same_on_pytorch(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    learn_alike("cpu", monkeypatch, rng)


@pytest.mark.usefixtures("on_torch")
@pytest.mark.parametrize("engine", [*OTHERS, "dask"])
@pytest.mark.parametrize("model", [*MODELS, NO_SOURCES])
def test_every_source_model_learns_alike(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine: str, model: str
) -> None:
    """What is believed, the model and the samples chosen, where trusted samples train."""
    rng, N, n, C = np.random.default_rng(3), 300, 60, 3
    y = rng.integers(0, C, N + n)
    X = (rng.normal(size=(N + n, 6)) + 0.8 * np.eye(C, 6)[y]).astype(np.float32)
    votes = np.where(rng.random((N + n, 5)) < 0.6, y[:, None], rng.integers(0, C, (N + n, 5)))
    votes[rng.random((N + n, 5)) < 0.4] = -1
    where = {"cluster": request.getfixturevalue("cluster").address} if engine == "dask" else {}
    cleaners = []
    for chosen in (EngineSettings("memory"), EngineSettings(engine, **where)):
        cleaner = cleaner_of(sources=model, budget=20, batch_size=10, tol=1e-6, engine=chosen)
        cleaner.fit(X[:N], votes=votes[:N], votes_val=votes[N:], X_val=X[N:], y_val=y[N:], classes=list(range(C)))
        cleaner.run(lambda batch: y[batch.indices])
        cleaners.append(cleaner)
    one, two = cleaners
    for a, b in zip(one.rounds_, two.rounds_, strict=True):
        assert a.choice is not None
        assert b.choice is not None
        assert a.choice.model in (model, NO_SOURCES)  # 'none' is taken where gamma 0 is best
        assert (a.choice.model, a.choice.gamma) == (b.choice.model, b.choice.gamma)
        assert a.batch.indices.tolist() == b.batch.indices.tolist()
    np.testing.assert_allclose(two.posterior_, one.posterior_, atol=1e-4)
    np.testing.assert_allclose(two.W_, one.W_, atol=1e-4)


@pytest.mark.gpu
def test_the_learner_is_the_same_on_a_gpu(gpu: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    learn_alike(gpu, monkeypatch, rng)


@pytest.mark.gpu
def test_a_stream_through_a_gpu(gpu: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    from labelchef.model.engines.torch_engine import TorchEngine

    monkeypatch.setattr("labelchef.model.engines.torch_engine._STREAM_BYTES", 500 * 40)
    X, _, labels, W, _ = setting(rng, 5003, 10, 3)
    engines = [TorchEngine(X, bias=True, device=gpu, resident=resident) for resident in (True, False)]
    one, two = (swept(engine, labels, W=contrast(W), gradient=True) for engine in engines)
    np.testing.assert_allclose(two.gradient, one.gradient, atol=1e-9)


class _Lost:
    """In a cycle, so that only a collection of garbage finds it."""

    def __init__(self, found: list[bool]) -> None:
        self.itself, self.found = self, found

    def __del__(self) -> None:
        self.found.append(True)


def test_no_garbage_is_collected_while_a_graph_is_recorded() -> None:
    """A recording of former days among it would spoil the new one."""
    from labelchef.model.engines.recording import _no_garbage_collection

    often, found = gc.get_threshold(), list[bool]()
    gc.set_threshold(10**6)
    try:
        _Lost(found)
        with _no_garbage_collection():
            gc.set_threshold(1)
            kept = [[n] for n in range(100)]
            assert not found
        kept += [[n] for n in range(100)]
        assert found, "afterwards it is"
    finally:
        gc.set_threshold(*often)


def test_labels_in_use_keep_their_place_on_the_device(rng: np.random.Generator) -> None:
    import torch

    from labelchef.model.engines.mirrors import LabelMirrors

    mirrors = LabelMirrors(torch.device("cpu"))
    true, *assumed = (RowLabels(rng.dirichlet(np.ones(3), 5), np.ones(5)) for _ in range(4))
    here = mirrors.of(true)
    for labels in assumed:  # as look-ahead renews
        mirrors.of(labels)
        assert mirrors.of(true) is here


@pytest.mark.gpu
def test_work_that_cannot_be_recorded_is_done_all_the_same(gpu: str) -> None:
    import torch

    from labelchef.model.engines.recording import Recorder

    recorder, x = Recorder(torch.device(gpu)), torch.ones(4, device=gpu)

    def waits(y: Any) -> tuple[Any]:
        return (y * float(y.sum()),)  # the host has to wait for the sum

    def flows(y: Any) -> tuple[Any]:
        return (y + y,)

    for n in range(1, 6):
        np.testing.assert_array_equal(recorder.run("waits", (), waits, n * x)[0].cpu(), np.full(4, 4.0 * n * n))
        np.testing.assert_array_equal(recorder.run("flows", (), flows, n * x)[0].cpu(), np.full(4, 2.0 * n))
    flowing = next(entry for key, entry in recorder._entries.items() if "flows" in str(key))
    assert flowing.graph is not None
