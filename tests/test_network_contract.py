"""Which networks `NetworkCleaner` takes, as they are, and what it refuses."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from labelchef import InvalidInputError, LabelchefError, MissingClassWarning
from labelchef.networks import FineTune, InfluenceSettings, NetworkCleaner, adapt
from tests.network_support import QUICK, Problem, net

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def problem() -> Problem:
    return Problem()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"X_val": None}, "belong together"),
        ({"X_val": np.zeros((40, 5))}, r"expected \(6,\)"),
        ({"X_val": np.full((40, 6), np.nan)}, "not finite"),
        ({"y_val": np.zeros(3, dtype=int)}, "3 entries"),
        ({"y_clean": np.zeros(3, dtype=int)}, "y_clean has 3"),
    ],
)
def test_bad_inputs_are_refused(given: dict[str, Any], match: str, problem: Problem) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingClassWarning)
        with pytest.raises(InvalidInputError, match=match):
            problem.fit(NetworkCleaner(net(), pretrained=True, device="cpu"), **given)


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: NetworkCleaner(net(), constructor="newton"), "expected one of: retrain, fine_tune, last_layer"),
        (lambda: NetworkCleaner(net(), device="toaster"), "device is 'toaster'"),
        (lambda: NetworkCleaner(net(4)), "4 outputs; expected 3"),
        (lambda: NetworkCleaner(nn.Sequential(net(), nn.Softmax(1))), "outputs='probabilities'"),
        (lambda: NetworkCleaner("net"), "expected a torch.nn.Module"),
        (lambda: NetworkCleaner(net(), gamma=2.0), "gamma is 2.0"),
        (lambda: NetworkCleaner(net(), trusted="judge"), "trusted is 'judge'; expected one of: train, steer"),
        (lambda: NetworkCleaner(net(), sources="snorkel"), "sources is 'snorkel'"),
        (lambda: NetworkCleaner(nn.Sequential(net(), nn.Unflatten(1, (3, 1)))), "returned shape"),
        (lambda: NetworkCleaner(nn.Linear(5, 3), device="cpu"), "cannot take a batch of X"),
        (lambda: NetworkCleaner(_Says(lambda x: (x, x))), "^the network returned tuple"),
        (lambda: NetworkCleaner(_Says(lambda x: x.mean(dim=2))), "cannot take a batch of X.*Dimension out of range"),
        (lambda: NetworkCleaner(nn.Sequential(nn.LazyLinear(3))), "lazy layers"),
        (lambda: NetworkCleaner(net(), parameters=iter(["2"])), "parameters is an iterator"),
        (lambda: NetworkCleaner(net(), outputs="probabilities"), "expected numbers from 0 to 1"),
        (lambda: NetworkCleaner(nn.utils.weight_norm(nn.Linear(6, 3))), "cannot be copied"),
        (lambda: NetworkCleaner(net(), training={"epochs": 3}), "training is dict"),  # type: ignore[arg-type]
        (lambda: NetworkCleaner(net(), device="meta"), "device is 'meta'"),
        (lambda: FineTune(epochs=0), "epochs is 0"),
        (lambda: FineTune(learning_rate=-1.0), "learning_rate is -1.0"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
def test_bad_settings_are_refused(made: Any, match: str, problem: Problem) -> None:
    with pytest.raises(LabelchefError, match=match):
        problem.fit(made())


class _Says(nn.Module):
    """Returns what it is told to."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what, self.scale = what, nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> Any:
        return self.what(self.scale * x)


class _Contract(nn.Module):
    """A user's own: two methods."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x)))  # type: ignore[no-any-return]

    def influenced(self) -> list[str]:
        return ["head"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_can_be_adapted(problem: Problem) -> None:
    assert adapt(_Contract()).influenced() == ("module.head.weight", "module.head.bias")
    assert adapt(net(), ["0.weight", "2"]).influenced() == ("module.0.weight", "module.2.weight", "module.2.bias")
    frozen = net()
    for p in frozen[0].parameters():  # type: ignore[index]
        p.requires_grad_(False)
    assert adapt(frozen).influenced() == ("module.2.weight", "module.2.bias")
    for network in (_Contract(), frozen):
        cleaner = problem.fit(NetworkCleaner(network, training=QUICK, budget=10, device="cpu"))
        assert str(cleaner.run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"
    for wrong, match in ((["nose"], "no trainable parameter is called 'nose'"), ("some", "'all', 'last'")):
        with pytest.raises(InvalidInputError, match=match):
            adapt(net(), wrong)
    with pytest.raises(InvalidInputError, match="no linear layer"):
        adapt(nn.Conv1d(1, 1, 1), "last")
    with pytest.raises(InvalidInputError, match="TorchScript"):
        adapt(torch.jit.trace(net(), torch.zeros(1, 6)))  # type: ignore[no-untyped-call]
    with pytest.raises(InvalidInputError, match="settled in a NetworkTask"):
        adapt(adapt(net()), "last")


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.head.weight = self.body.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))[:, :3]  # type: ignore[no-any-return]


def test_tied_parameters_are_found_by_each_of_their_names() -> None:
    for named in ("last", ["head"]):
        assert adapt(_Tied(), named).influenced() == ("module.body.weight", "module.head.bias")


def test_a_frozen_network_needs_a_last_layer_to_clean(problem: Problem) -> None:
    frozen = net().requires_grad_(False)
    with pytest.raises(InvalidInputError, match="no parameter to influence"):
        problem.fit(NetworkCleaner(frozen, pretrained=True, device="cpu"))
    cleaner = NetworkCleaner(frozen, pretrained=True, constructor="last_layer", budget=10, device="cpu")
    assert str(problem.fit(cleaner).run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"


def test_frozen_batch_norms_stay_as_they_are(problem: Problem) -> None:
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    network[1].requires_grad_(False)
    after = problem.fit(NetworkCleaner(network, training=QUICK, device="cpu")).network_.state_dict()
    moved = {name for name, value in network.state_dict().items() if not torch.equal(value, after[name])}
    assert {name for name in moved if name.startswith("1.")} == set()
    assert {"2.running_mean", "2.weight"} <= moved


def test_the_strengths_of_a_last_layer_are_left_to_the_data(problem: Problem) -> None:
    cleaner = NetworkCleaner(net(), constructor="last_layer", trusted="steer", training=QUICK, device="cpu")
    problem.fit(cleaner)
    assert cleaner.tuned_ is not None
    assert (cleaner.gamma_, cleaner.l2_) == (cleaner.tuned_.gamma, cleaner.tuned_.l2)


def test_the_network_handed_back_predicts(problem: Problem) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))
    for constructor in ("fine_tune", "last_layer"):
        cleaner = problem.fit(NetworkCleaner(network, constructor=constructor, training=QUICK, device="cpu"))
        with torch.no_grad():
            said = torch.softmax(cleaner.network_(torch.from_numpy(problem.X[:9])), dim=1)
        np.testing.assert_allclose(said.numpy(), cleaner.predict_proba(problem.X[:9]), atol=1e-5)


class _Computed(nn.Module):
    """A head whose weights are computed from others."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x)))  # type: ignore[no-any-return]


class _Square(nn.Module):
    """A head that shares its weights with the layer before it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
        self.head.weight = self.body.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x[:, :3])))  # type: ignore[no-any-return]


@pytest.mark.parametrize("network", [_Computed, _Square, lambda: nn.Linear(6, 3)])
def test_a_last_layer_takes_the_place_of_one_that_is_tied_or_computed(network: Any, problem: Problem) -> None:
    cleaner = NetworkCleaner(network(), constructor="last_layer", training=QUICK, device="cpu", budget=10)
    problem.fit(cleaner).run(lambda batch: problem.y[batch.indices])
    with torch.no_grad():
        said = torch.softmax(cleaner.network_(torch.from_numpy(problem.X[:9])), dim=1)
    np.testing.assert_allclose(said.numpy(), cleaner.predict_proba(problem.X[:9]), atol=1e-5)


def test_networks_in_half_precision_are_cleaned_too(problem: Problem) -> None:
    loose = InfluenceSettings(tol=0.05)  # products are rounded to eight bits
    cleaner = NetworkCleaner(net().bfloat16(), training=QUICK, influence=loose, budget=10, device="cpu")
    problem.fit(cleaner)
    assert str(cleaner.run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"
    assert next(cleaner.network_.parameters()).dtype == torch.bfloat16


def test_numbers_that_are_not_finite_end_in_an_error(problem: Problem) -> None:
    broken = net()
    with torch.no_grad():
        broken[0].weight[0, 0] = torch.nan  # type: ignore[index]
    with pytest.raises(InvalidInputError, match="logits of sample 0 are not finite"):
        problem.fit(NetworkCleaner(broken, pretrained=True, device="cpu"))


def test_lightning_modules_are_accepted_as_they_are(problem: Problem) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about deprecations elsewhere
        lightning = pytest.importorskip("pytorch_lightning")

        class Lit(lightning.LightningModule):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.layers = net()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.layers(x)  # type: ignore[no-any-return]

            def training_step(self, batch: Any, index: int) -> torch.Tensor:
                return nn.functional.cross_entropy(self(batch[0]), batch[1])

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.Adam(self.parameters(), 1e-2)

        weak = torch.from_numpy(problem.weak.argmax(axis=1))
        data = torch.utils.data.TensorDataset(torch.from_numpy(problem.X[:160]), weak)
        given = Lit()
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **quiet)
        trainer.fit(given, torch.utils.data.DataLoader(data, 32))
    assert adapt(given, "last").influenced() == ("module.layers.2.weight", "module.layers.2.bias")
    cleaner = problem.fit(NetworkCleaner(given, pretrained=True, training=QUICK, budget=10, device="cpu"))
    with torch.no_grad():
        said = torch.softmax(given.eval()(torch.from_numpy(problem.X[:9])), dim=1)
    np.testing.assert_allclose(cleaner.predict_proba(problem.X[:9]), said.numpy(), atol=1e-6)
    assert str(cleaner.run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"


def test_one_output_and_probabilities_are_two_classes(rng: np.random.Generator) -> None:
    x = torch.from_numpy(rng.normal(size=(5, 6)).astype(np.float32))
    one = nn.Linear(6, 1)
    p = torch.sigmoid(one(x))[:, 0]
    for network, outputs in ((one, "logits"), (nn.Sequential(one, nn.Sigmoid()), "probabilities")):
        found = torch.softmax(adapt(network, outputs=outputs)(x), dim=1)  # type: ignore[arg-type]
        torch.testing.assert_close(found[:, 1], p)
    gated = nn.Sequential(one, nn.Sigmoid())
    for outputs in ("probabilities", "logits"):  # said outright, it is believed
        adapt(gated, outputs=outputs).check(x, 2)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="look like probabilities"):
        adapt(gated).check(x, 2)
    with pytest.raises(InvalidInputError, match="expected ids within its vocabulary"):
        adapt(nn.Sequential(nn.Embedding(5, 3), nn.Flatten()))(torch.full((2, 1), 9))
    rounded = torch.tensor([[0.283203125, 0.1298828125, 0.5859375]], dtype=torch.bfloat16)  # a softmax, in eight bits
    adapt(_Says(lambda x: rounded.expand(len(x), 3)), outputs="probabilities").check(x, 3)
    three = nn.Sequential(nn.Linear(6, 3), nn.Softmax(1))
    torch.testing.assert_close(torch.softmax(adapt(three, outputs="probabilities")(x), 1), three(x))


@pytest.mark.parametrize("criterion", ["nll", "cross_entropy"])
def test_skorch_nets_are_accepted_as_they_are(criterion: str, problem: Problem) -> None:
    from skorch import NeuralNetClassifier

    module = nn.Sequential(net(), nn.Softmax(1)) if criterion == "nll" else net()
    loss = nn.NLLLoss if criterion == "nll" else nn.CrossEntropyLoss
    given = NeuralNetClassifier(module, criterion=loss, max_epochs=2, train_split=None, verbose=0)
    with pytest.raises(InvalidInputError, match="initialize"):
        adapt(given)
    given.fit(problem.X[:160], problem.weak.argmax(axis=1))
    cleaner = problem.fit(NetworkCleaner(given, pretrained=True, training=QUICK, budget=10, device="cpu"))
    said = given.forward(problem.X[:9])
    said = said if criterion == "nll" else torch.softmax(said, dim=1)
    np.testing.assert_allclose(cleaner.predict_proba(problem.X[:9]), said.numpy(), atol=1e-6)
    assert str(cleaner.run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"
