"""INFL on networks against slow and obvious versions of it: loops over gradients, dense matrices, refits."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from experiments.architectures import EmbeddingCnn, LeNet
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import spearmanr
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from labelchef import ConvergenceWarning, InvalidInputError, LabelchefError
from labelchef.model.influence import influence_matrix
from labelchef.model.softmax import probabilities
from labelchef.networks import InfluenceSettings, NetworkCleaner, NetworkTask, TrainingSettings, adapt
from labelchef.networks.influence import conjugate_gradients, solve
from labelchef.networks.linearised import Linearised
from labelchef.networks.training import Examples, copied, train
from tests.oracles import cleaner_of

CPU = torch.device("cpu")
Array = NDArray[np.float64]


pytestmark = pytest.mark.usefixtures("one_thread")


def tiny(inputs: int = 3, hidden: int = 4, classes: int = 3) -> NetworkTask:
    net = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, classes)).double()
    return adapt(net)


def examples(rng: np.random.Generator, n: int, shape: tuple[int, ...], classes: int) -> Examples:
    weight = rng.choice([0.6, 1.0], n)
    return Examples(rng.normal(size=(n, *shape)), rng.dirichlet(np.ones(classes), n), weight)


def flat_loss(task: NetworkTask, data: Examples, w: torch.Tensor) -> torch.Tensor:
    """(1/n) Σ r ℓ as a function of one vector of parameters, written out for `tiny`."""
    sizes = [(p.shape, p.numel()) for p in task.parameters()]
    parts = [part.view(shape) for (shape, _), part in zip(sizes, torch.split(w, [n for _, n in sizes]), strict=True)]
    X, Y, r = (torch.from_numpy(a) for a in (data.X, data.Y, data.weight))
    logits = torch.tanh(X @ parts[0].T + parts[1]) @ parts[2].T + parts[3]
    return -(r * (Y * torch.log_softmax(logits, dim=1)).sum(dim=1)).mean()


def flat(task: NetworkTask) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in task.parameters()])


def dense_ggn(task: NetworkTask, data: Examples) -> torch.Tensor:
    """Σ r Jᵀ (diag P − P Pᵀ) J / n, with J from one backward pass a logit and sample."""
    total = torch.zeros(len(flat(task)), len(flat(task)), dtype=torch.float64)
    for x, r in zip(torch.from_numpy(data.X), data.weight, strict=True):
        logits = task.module(x[None])[0]
        rows = [torch.autograd.grad(z, list(task.parameters()), retain_graph=True) for z in logits]
        J = torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows])
        P = torch.softmax(logits.detach(), dim=0)
        total += r * J.T @ (torch.diag(P) - torch.outer(P, P)) @ J
    return total / len(data.X)


@pytest.mark.parametrize("kind", ["lenet", "cnn", "cnn-subset"])
def test_forward_mode_equals_a_loop_over_samples_and_classes(kind: str, rng: np.random.Generator) -> None:
    module: nn.Module = LeNet(3) if kind == "lenet" else EmbeddingCnn(48, 3)
    data = examples(rng, 9, (1, 28, 28) if kind == "lenet" else (48,), 3)
    task = adapt(module, ["hidden", "output"] if kind == "cnn-subset" else "all")
    network = Linearised(task, CPU, batch_size=4)
    v = torch.randn(network.n_parameters)
    logits, S = network.push(data.X, v)
    found = influence_matrix(S, probabilities(logits), data.Y, data.weight)

    chosen = [dict(task.named_parameters())[name] for name in task.influenced()]
    expected = np.empty((9, 3))
    for i in range(9):
        for c in range(3):
            out = torch.log_softmax(module(torch.from_numpy(data.X[i : i + 1]).float()), dim=1)[0]
            weak = -(torch.from_numpy(data.Y[i]).float() * out).sum()
            change = torch.autograd.grad(-out[c] - float(data.weight[i]) * weak, chosen)
            expected[i, c] = -float(torch.cat([part.reshape(-1) for part in change]) @ v)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("selector", ["infl", "expected_infl"])
@pytest.mark.parametrize("curvature", ["ggn", "hessian"])
def test_a_linear_network_is_the_convex_model(curvature: str, selector: str, rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(120, 4)), rng.integers(0, 3, 120)
    weak = rng.dirichlet(np.ones(3), 80)
    given: dict[str, Any] = {"X_val": X[80:], "y_val": y[80:]}
    steer: dict[str, Any] = {"trusted": "steer", "gamma": 0.7, "l2": 0.02}
    convex = cleaner_of(selector=selector, look_ahead=False, tol=1e-10, **steer).fit(X[:80], weak, **given)
    linear = nn.Linear(4, 3).double()
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(convex.W_[:4].T))
        linear.bias.copy_(torch.from_numpy(convex.W_[4]))
    settings = InfluenceSettings(curvature=curvature, damping=0.0, tol=1e-10)  # type: ignore[arg-type]
    network = NetworkCleaner(linear, selector, pretrained=True, influence=settings, device="cpu", **steer)
    network.fit(X[:80], weak, **given)
    np.testing.assert_allclose(network.scores(), convex.scores(), rtol=1e-5, atol=1e-6)  # to which V is solved
    mine, theirs = network.query(15), convex.query(15)
    assert mine.indices.tolist() == theirs.indices.tolist()
    assert mine.suggested.tolist() == theirs.suggested.tolist()
    np.testing.assert_allclose(network.predict_proba(X[80:]), convex.predict_proba(X[80:]), atol=1e-9)


def test_curvature_products_equal_dense_matrices(rng: np.random.Generator) -> None:
    task, data = tiny(), examples(rng, 11, (3,), 3)
    network = Linearised(task, CPU, batch_size=4)
    w, v = flat(task), torch.randn(network.n_parameters, dtype=torch.float64)
    H = torch.autograd.functional.hessian(lambda w: flat_loss(task, data, w), w)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(network.hessian_product(data, v), H @ v)
    torch.testing.assert_close(network.ggn_product(data, v), dense_ggn(task, data) @ v)
    (g,) = torch.autograd.grad(flat_loss(task, data, w.requires_grad_()), w)
    torch.testing.assert_close(network.gradient(data), g)


@pytest.mark.parametrize(("curvature", "damping"), [("ggn", 0.0), ("ggn", 0.3), ("hessian", 0.5)])
def test_the_solve_equals_a_dense_damped_one(curvature: str, damping: float, rng: np.random.Generator) -> None:
    task, data = tiny(), examples(rng, 20, (3,), 3)
    network = Linearised(task, CPU, batch_size=8)
    H = torch.autograd.functional.hessian(lambda w: flat_loss(task, data, w), flat(task))  # type: ignore[no-untyped-call]
    A = (dense_ggn(task, data) if curvature == "ggn" else H) + (0.01 + damping) * torch.eye(len(H))
    g = torch.randn(len(H), dtype=torch.float64)
    settings = InfluenceSettings(curvature=curvature, damping=damping, tol=1e-9)  # type: ignore[arg-type]
    found = solve(network, data, g, settings, l2=0.01)
    assert found.converged
    assert found.residual <= 1e-9
    torch.testing.assert_close(found.v, torch.linalg.solve(A, g), rtol=1e-6, atol=1e-8)
    again = solve(network, data, g, settings, l2=0.01, start=found.v)
    assert again.iterations == 0


def test_an_indefinite_hessian_and_too_few_iterations_warn(rng: np.random.Generator) -> None:
    task, data = tiny(), examples(rng, 20, (3,), 3)
    network = Linearised(task, CPU, batch_size=8)
    g = torch.randn(network.n_parameters, dtype=torch.float64)
    H = torch.autograd.functional.hessian(lambda w: flat_loss(task, data, w), flat(task))  # type: ignore[no-untyped-call]
    assert float(torch.linalg.eigvalsh(H)[0]) < -1e-6, "the oracle problem is indefinite"
    with pytest.warns(ConvergenceWarning, match="negative curvature.*ggn"):
        solve(network, data, g, InfluenceSettings(curvature="hessian", damping=0.0, tol=1e-9), l2=1e-9)
    with pytest.warns(ConvergenceWarning, match="Raise damping or max_iterations"):
        few = solve(network, data, g, InfluenceSettings(damping=1e-6, tol=1e-9, max_iterations=2), l2=1e-9)
    A = dense_ggn(task, data) + (1e-6 + 1e-9) * torch.eye(len(g))
    assert few.residual == pytest.approx(float((g - A @ few.v).norm() / g.norm()), rel=1e-6)


def test_conjugate_gradients_end_where_numbers_do() -> None:
    with pytest.raises(LabelchefError, match="left the range of its numbers"):
        conjugate_gradients(lambda v: v * torch.nan, torch.ones(3), None, tol=1e-3, max_iterations=10)


class _Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ids, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.ids(x)).mean(dim=1))  # type: ignore[no-any-return]


class _Recurs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ids, self.body, self.head = nn.Embedding(20, 8), nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.ids(x))[0][:, -1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [_Attends, _Recurs])
def test_attention_and_recurrence_have_forward_derivatives(kind: type[nn.Module], rng: np.random.Generator) -> None:
    """Against central differences; PyTorch's fast kernels for both have no forward derivative."""
    X = rng.integers(0, 20, (11, 5))
    task = adapt(kind().double())
    linear = Linearised(task, CPU, 4)
    v = torch.from_numpy(rng.normal(size=linear.n_parameters))
    fast = torch.backends.mha.get_fastpath_enabled()
    _, S = linear.push(X, v)
    assert torch.backends.mha.get_fastpath_enabled() == fast
    ends = []
    for step in (1e-6, -1e-6):
        moved = copy.deepcopy(task).eval()
        with torch.no_grad():
            for name, p in moved.named_parameters():
                p.add_(step * linear.tree(v)[name])
            ends.append(moved(torch.from_numpy(X)).numpy())
    np.testing.assert_allclose(S, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)
    data = Examples(X, np.full((11, 3), 1 / 3), np.ones(11))
    for product in (linear.ggn_product, linear.hessian_product):
        assert torch.isfinite(product(data, v)).all()


def test_conjugate_gradients_start_anew_where_float32_lost_the_way() -> None:
    scale = torch.logspace(0, 4, 60)
    g = torch.ones(60)
    found = conjugate_gradients(lambda v: scale * v, g, None, tol=1e-5, max_iterations=2000)
    assert found.converged
    assert float((g - scale * found.v).norm() / g.norm()) <= 1.01e-5


def test_conjugate_gradients_forget_a_start_that_is_worse_than_none() -> None:
    scale, g = torch.arange(1.0, 201.0, dtype=torch.float64), torch.ones(200, dtype=torch.float64)
    none, far = (
        conjugate_gradients(lambda v: scale * v, g, start, tol=1e-3, max_iterations=100) for start in (None, 1e6 * g)
    )
    assert far.iterations == none.iterations
    torch.testing.assert_close(far.v, none.v)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_the_size_of_a_batch_plays_no_part(size: int, rng: np.random.Generator) -> None:
    task, data = tiny(), examples(rng, 23, (3,), 3)
    one, other = Linearised(task, CPU, 23), Linearised(task, CPU, size)
    v = torch.randn(one.n_parameters, dtype=torch.float64)
    np.testing.assert_allclose(one.push(data.X, v)[1], other.push(data.X, v)[1], rtol=1e-12)
    torch.testing.assert_close(one.ggn_product(data, v), other.ggn_product(data, v))
    torch.testing.assert_close(one.gradient(data), other.gradient(data))


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the size of the largest tensor any operation made."""

    size = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for out in made if isinstance(made, tuple | list) else (made,):
            if isinstance(out, torch.Tensor):
                self.size = max(self.size, out.numel())
        return made


@pytest.mark.parametrize("what", ["push", "ggn_product", "hessian_product", "gradient"])
def test_memory_is_that_of_a_batch(what: str, rng: np.random.Generator) -> None:
    """Eight times the samples, and no operation makes a larger tensor."""
    network, sizes = Linearised(adapt(LeNet(3)), CPU, batch_size=8), []
    v = torch.randn(network.n_parameters)
    for n in (8, 64):
        data = examples(rng, n, (1, 28, 28), 3)
        with _Largest() as largest:  # type: ignore[no-untyped-call]
            if what == "push":
                network.push(data.X, v)
            elif what == "gradient":
                network.gradient(data)
            else:
                getattr(network, what)(data, v)
        sizes.append(largest.size)
    assert sizes[0] == sizes[1]
    assert sizes[0] >= 48_000, "the largest layer was seen"


def test_influence_looks_at_the_network_as_it_predicts(rng: np.random.Generator) -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)).double()
    net[1].running_mean.fill_(0.3)  # type: ignore[operator]
    data = examples(rng, 12, (3,), 2)
    task = adapt(net.train())
    before, network = copied(task), Linearised(task, CPU, 5)
    v = torch.randn(network.n_parameters, dtype=torch.float64)
    logits, S = network.push(data.X, v)
    assert net.training, "the mode is given back"
    assert all(torch.equal(before[name], value) for name, value in task.state_dict().items())
    with torch.no_grad():
        moved = copy.deepcopy(net).eval()
        for p, d in zip(moved.parameters(), network.tree(v).values(), strict=True):
            p.add_(1e-6 * d)
        X = torch.from_numpy(data.X)
        np.testing.assert_allclose(logits, copy.deepcopy(net).eval()(X).numpy(), rtol=1e-12)
        np.testing.assert_allclose(S, (moved(X).numpy() - logits) / 1e-6, atol=1e-4)


def test_a_step_of_training_follows_the_weighted_objective(rng: np.random.Generator) -> None:
    """One step over all samples moves the parameters by −η ∇F, with ∇F by finite differences of F in NumPy."""
    task, data, l2 = tiny(), examples(rng, 10, (3,), 3), 0.05
    w = flat(task).numpy()

    def F(w: Array) -> float:
        return float(flat_loss(task, data, torch.from_numpy(w))) + 0.5 * l2 * float(w @ w)

    gradient = np.array([(F(w + 1e-6 * e) - F(w - 1e-6 * e)) / 2e-6 for e in np.eye(len(w))])
    settings = TrainingSettings(1, 10, learning_rate=0.1, optimiser="sgd", momentum=0.0, patience=None)
    train(task, data, data, settings, l2=l2, seed=0, device=CPU)
    np.testing.assert_allclose((w - flat(task).numpy()) / 0.1, gradient, atol=1e-6)


def test_adam_steps_along_the_whole_objective_too(rng: np.random.Generator) -> None:
    """Its first step is η in the direction of each sign of ∇F; with a λ this large, that is the sign of w."""
    task, data = tiny(), examples(rng, 10, (3,), 3)
    w = flat(task).numpy()
    train(task, data, data, TrainingSettings(1, 10, learning_rate=0.1, patience=None), l2=1e4, seed=0, device=CPU)
    np.testing.assert_allclose((w - flat(task).numpy()) / 0.1, np.sign(w), atol=1e-4)


def test_training_is_a_function_of_its_seed_and_leaves_the_random_state(rng: np.random.Generator) -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    data, ends = examples(rng, 50, (3,), 3), []
    state = torch.get_rng_state()
    for seed in (1, 1, 2):
        task = adapt(copy.deepcopy(net))
        train(task, data, data, TrainingSettings(3, 16), l2=0.0, seed=seed, device=CPU)
        ends.append(flat(task))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])
    assert torch.equal(state, torch.get_rng_state())


def test_early_stopping_keeps_the_best_epoch(rng: np.random.Generator) -> None:
    """Labels of training and validation contradict each other: after a while every epoch makes validation worse."""
    task, data = tiny(), examples(rng, 60, (3,), 3)
    other = Examples(rng.normal(size=(60, 3)), data.Y[:, ::-1].copy(), data.weight)
    told: list[tuple[int, float, float]] = []
    settings = TrainingSettings(200, 20, learning_rate=0.05, patience=4)
    done = train(task, data, other, settings, l2=0.0, seed=0, device=CPU, on_epoch=lambda *seen: told.append(seen))
    checked = [loss for _, _, loss in told]
    assert done.epochs == len(told) < 200
    assert done.epoch == 1 + int(np.argmin(checked)) == done.epochs - 4
    assert float(flat_loss(task, other, flat(task))) == pytest.approx(min(checked), rel=1e-9)


def test_amp_trains_nearly_the_same_and_divergence_is_told(rng: np.random.Generator) -> None:
    net = LeNet(2)
    data = Examples(rng.normal(size=(64, 1, 28, 28)), rng.dirichlet([1, 1], 64), np.ones(64))
    losses = []
    for amp in (False, True):
        task = adapt(copy.deepcopy(net))
        losses.append(train(task, data, data, TrainingSettings(2, 32, amp=amp), l2=0.0, seed=0, device=CPU).loss)
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)
    wild = TrainingSettings(5, 8, learning_rate=1e12, optimiser="sgd")
    with pytest.raises(LabelchefError, match="lower learning_rate"):
        train(adapt(net), data, data, wild, l2=0.0, seed=0, device=CPU)


def test_influence_foretells_relabel_and_refit_on_a_converged_network(rng: np.random.Generator) -> None:
    """Every sample relabelled to its best class and the network refitted from where it stood, in double precision."""
    task = tiny(2, 3, 2)
    X = rng.normal(size=(40, 2))
    data = Examples(X, rng.dirichlet([2, 2], 40) * 0.5 + 0.5 * np.eye(2)[(X[:, 0] > 0).astype(int)], np.full(40, 0.8))
    X_val = rng.normal(size=(60, 2))
    val = Examples.hard(X_val, (X_val[:, 0] * X_val[:, 1] > 0).astype(np.int64), 2)

    def fitted(data: Examples, w: Array) -> Array:
        def F(w: Array) -> tuple[float, Array]:
            t = torch.from_numpy(w).requires_grad_()
            value = flat_loss(task, data, t) + 0.5 * 0.05 * (t @ t)
            return float(value.detach()), torch.autograd.grad(value, t)[0].numpy()

        return np.asarray(minimize(F, w, jac=True, method="BFGS", options={"gtol": 1e-9}).x)

    w = fitted(data, flat(task).numpy())
    nn.utils.vector_to_parameters(torch.from_numpy(w), task.parameters())
    network = Linearised(task, CPU, 16)
    settings = InfluenceSettings(curvature="hessian", damping=0.0, tol=1e-10)
    v = solve(network, data, network.gradient(val), settings, l2=0.05).v
    logits, S = network.push(X, v)
    matrix = influence_matrix(S, probabilities(logits), data.Y, data.weight)
    before, true = float(flat_loss(task, val, torch.from_numpy(w))), []
    for i in range(40):
        Y, weight = data.Y.copy(), data.weight.copy()
        Y[i], weight[i] = np.eye(2)[matrix[i].argmin()], 1.0
        after = fitted(Examples(X, Y, weight), w)
        true.append(40 * (float(flat_loss(task, val, torch.from_numpy(after))) - before))
    assert spearmanr(matrix.min(axis=1), true).statistic > 0.95
    slope = float(np.polyfit(matrix.min(axis=1), true, 1)[0])
    assert 0.7 < slope < 1.3, "influences are in units of N times the change of the loss"


class _Opaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:
        return g * 2


def test_an_operation_without_a_forward_derivative_is_named(rng: np.random.Generator) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            doubled: torch.Tensor = _Opaque.apply(self.first(x))  # type: ignore[no-untyped-call]
            return self.second(doubled)  # type: ignore[no-any-return]

    X = rng.normal(size=(5, 3))
    whole = Linearised(adapt(Net()), CPU, 5)
    with pytest.raises(InvalidInputError, match="parameters='last'"):
        whole.push(X, torch.ones(whole.n_parameters))
    last = Linearised(adapt(Net(), "last"), CPU, 5)
    assert last.push(X, torch.ones(last.n_parameters))[1].shape == (5, 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"curvature": "fisher"},
        {"damping": -1.0},
        {"tol": 0.0},
        {"batch_size": 0},
        {"batch_size": None},
        {"max_iterations": True},
    ],
)
def test_influence_settings_are_checked(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        InfluenceSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 0},
        {"epochs": None},
        {"learning_rate": "a"},
        {"momentum": -3},
        {"learning_rate": 0.0},
        {"optimiser": "adamw"},
        {"patience": 0},
        {"batch_size": 1.5},
    ],
)
def test_training_settings_are_checked(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        TrainingSettings(**settings)  # type: ignore[arg-type]
