"""`NetworkCleaner`: `LabelCleaner` for any PyTorch classifier."""

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import nn

from labelchef.campaign.holdout import check_judges
from labelchef.campaign.inputs import ClassNames, as_evaluation_labels
from labelchef.campaign.metrics import check_metric
from labelchef.campaign.preparation import Labelled, first_table, given_together, prepare_labels, steering_and_judging
from labelchef.campaign.stopping import StoppingRule
from labelchef.cleaner import LabelCleaner, seed_of
from labelchef.core.labels import LabelTable
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.strengths import as_gamma, as_l2, fixed
from labelchef.domain.validation import as_holdout
from labelchef.networks.constructors import (
    FineTune,
    LastLayer,
    NetworkConstructor,
    NetworkTrainer,
    Retrain,
    as_constructor,
)
from labelchef.networks.influence import InfluenceSettings
from labelchef.networks.inputs import Inputs, as_device, as_inputs
from labelchef.networks.model import NetworkModel
from labelchef.networks.progress import epochs_shown
from labelchef.networks.selector import ALONG_V, Direction, NetworkInfluenceSelector, choose_selector
from labelchef.networks.session import NetworkSession
from labelchef.networks.task import NetworkTask, Outputs, adapt, last_linear
from labelchef.networks.training import OnEpoch, TrainingSettings, train
from labelchef.selectors import Selector

GAMMA, L2 = 0.8, 1e-3
"""Of a network, unless said otherwise."""


class NetworkCleaner(LabelCleaner):
    """Clean the labels a network is trained on: everything `LabelCleaner` does, with a network as the model.

    Parameters
    ----------
    network : a `torch.nn.Module`, a skorch net, a Lightning module, or a `NetworkTask`; it is copied, never changed
    selector : name in `labelchef.networks.NETWORK_SELECTORS`, or a `Selector` that looks at probabilities only
    constructor : 'fine_tune', 'retrain' or 'last_layer', or an instance of `FineTune`, `Retrain` or `LastLayer`
    parameters : whose influence is measured: 'all', 'last', or names and prefixes; see `adapt`
    outputs : what the network returns, 'logits' or 'probabilities'; see `adapt`
    pretrained : whether the first model is the network as it was handed in, untrained here
    training, influence : `TrainingSettings` and `InfluenceSettings`
    device : 'auto', 'cpu' or 'cuda'
    progress : whether to show bars: epochs of every training, iterations of every solve for influence
    gamma, l2 : as in `LabelCleaner`, but numbers: to choose them by cross-validation would train dozens of networks.
        With constructor 'last_layer' they may be 'auto': chosen for that layer; the network below is trained at 0.8, 0.001
    budget, batch_size, target, target_metric, stop, holdout, random_state : as in `LabelCleaner`

    Attributes
    ----------
    network_ : the network as it stands
    labels_, cleaned_, classes_, history_, rounds_, gamma_, l2_ : as in `LabelCleaner`

    Examples
    --------
    >>> import numpy as np, torch
    >>> from labelchef.networks import NetworkCleaner, TrainingSettings
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 300)
    >>> X = (rng.normal(size=(300, 5)) + y[:, None]).astype(np.float32)
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> cleaner = NetworkCleaner(net, training=TrainingSettings(epochs=5), budget=20)
    >>> cleaner = cleaner.fit(X[:200], rng.dirichlet([1, 1], 200), X_val=X[200:], y_val=y[200:])
    >>> result = cleaner.run(lambda batch: y[batch.indices])
    >>> str(result.stopped_because), int(cleaner.cleaned_.sum())
    ('budget spent', 20)
    """

    _model: NetworkModel
    _scores: NetworkInfluenceSelector | None
    """What scores every sample; None where the convex pipeline has taken over."""

    def __init__(
        self,
        network: Any,
        selector: str | Selector = "expected_infl",
        constructor: str | FineTune | Retrain | LastLayer = "fine_tune",
        parameters: str | Iterable[str] = "all",
        outputs: Outputs = "auto",
        pretrained: bool = False,
        training: TrainingSettings | None = None,
        influence: InfluenceSettings | None = None,
        gamma: float | str = GAMMA,
        l2: float | str = L2,
        budget: int | None = 100,
        batch_size: int = 10,
        target: float | None = None,
        target_metric: str = "f1_macro",
        stop: StoppingRule | None = None,
        holdout: float | str = "auto",
        device: str = "auto",
        progress: bool = False,
        random_state: int | None = 0,
    ) -> None:
        super().__init__(
            selector, gamma=gamma, l2=l2, budget=budget, batch_size=batch_size,
            target=target, target_metric=target_metric, stop=stop, holdout=holdout, random_state=random_state,
        )  # fmt: skip
        self.constructor: Any = constructor
        self.network = network
        self.parameters = parameters
        self.outputs: Outputs = outputs
        self.pretrained = pretrained
        self.training = training
        self.influence = influence
        self.device = device
        self.progress = progress

    def fit(
        self,
        X: Any,
        Y_weak: Any,
        *,
        X_val: Any,
        y_val: Any,
        X_judge: Any = None,
        y_judge: Any = None,
        X_test: Any = None,
        y_test: Any = None,
        y_clean: Any = None,
        askable: Any = None,
        classes: Sequence[Hashable] | None = None,
        on_step: Callable[[int, float, float], None] | None = None,
    ) -> Self:
        """Check everything, train the first model (or take it as it is).

        Inputs are arrays or tensors with samples along the first axis, whatever the network takes. Labels are as in
        `LabelCleaner.fit`, and so is `askable`. Part of validation judges, as `holdout` says: neither early stopping nor
        influence sees it. `on_step(epoch, training loss, validation loss)` is told of every epoch.
        """
        loop, following, seed = self._settings(), as_constructor(self.constructor), seed_of(self.random_state)
        gamma, l2 = self._strengths(following)
        task = _copied(adapt(self.network, self.parameters, outputs=self.outputs))
        if not (self.pretrained and isinstance(following, LastLayer)):
            task.influenced_parameters()
        inputs = as_inputs(X)
        names, weak, given = prepare_labels(len(inputs), Y_weak, y_clean, classes)
        check_metric(self.target_metric, len(names))
        table = first_table(weak, given, gamma, askable)
        validation = self._trusted(X_val, y_val, names, inputs, "val")
        own = self._trusted(X_judge, y_judge, names, inputs, "judge")
        holdout = as_holdout(self.holdout)
        steering, judging = steering_and_judging(validation, own, len(names), holdout, seed)
        test = self._trusted(X_test, y_test, names, inputs, "test")
        influence = _settings_of("influence", self.influence, InfluenceSettings)
        training = _settings_of("training", self.training, TrainingSettings)
        model = NetworkModel(
            task, inputs, steering, judging if len(judging[1]) else None, test,
            len(names), l2, as_device(self.device), influence.batch_size,
        )  # fmt: skip
        if isinstance(following, LastLayer):
            if not self.pretrained:
                with epochs_shown(training.epochs, on_step, shown=self.progress) as on_epoch:
                    train(
                        task, model.examples(table.rows), model.steering_examples, training,
                        l2=model.l2, seed=seed, device=model.device, on_epoch=on_epoch,
                    )  # fmt: skip
            splits = {"val": (validation, y_val), "judge": (own, y_judge), "test": (test, y_test)}
            settings = {"y_clean": y_clean, "askable": askable, "classes": classes}
            self._fit_last_layer(model, following, seed, Y_weak, splits, settings)
        else:
            check_judges(judging[1], steering[1], holdout, read=loop.reads_metrics)
            trainer = NetworkTrainer(model, training, following, seed, self.pretrained, self.progress)
            self._fit_network(model, trainer, names, table, influence, on_step)
            self.gamma_, self.l2_, self.tuned_ = gamma, l2, None
        self._model = model
        return self

    def _fit_network(
        self,
        model: NetworkModel,
        trainer: NetworkTrainer,
        names: ClassNames,
        table: LabelTable,
        influence: InfluenceSettings,
        on_epoch: OnEpoch | None,
    ) -> None:
        direction = Direction(model, influence, trainer.seed, self.progress)
        selector = choose_selector(copy.deepcopy(self.selector), direction, trainer.training)
        first = model.view(table.rows)
        session = NetworkSession(
            objective=first.objective, labels=table, steering=first.steering, judging=first.judging, test=first.test,
            selector=selector, constructor=trainer, seed=trainer.seed, model=model,
        )  # fmt: skip
        session.start(on_epoch)
        self._session, self._names = session, names
        self._scores = ALONG_V["expected_infl" if selector.name == "expected_infl" else "infl"](direction)
        self._last_batch, self._last_seconds = None, 0.0
        self.classes_ = names.as_array()

    def _fit_last_layer(
        self,
        model: NetworkModel,
        following: LastLayer,
        seed: int,
        Y_weak: Any,
        splits: "dict[str, tuple[Labelled | None, Any]]",
        settings: dict[str, Any],
    ) -> None:
        """Hand the features below the last layer to the convex pipeline; what it has learned is then this cleaner's.

        It draws the same judges: they are a function of the labels, `holdout` and the seed.
        """
        convex = LabelCleaner(
            self.selector, following.constructor, gamma=self.gamma, l2=self.l2, look_ahead=following.look_ahead,
            target=self.target, target_metric=self.target_metric, stop=self.stop, holdout=self.holdout,
            fit_intercept=_head(model.task.module).bias is not None, random_state=seed,
        )  # fmt: skip
        given: dict[str, Any] = {}
        for name, (part, y) in splits.items():
            given[f"X_{name}"], given[f"y_{name}"] = None if part is None else model.features(part[0]), y
        convex.fit(model.features(model.X), Y_weak, **given, **settings)
        shaped = convex.get_params()
        self.__dict__.update({name: value for name, value in vars(convex).items() if name not in shaped})
        self._scores = None

    def predict_proba(self, X: Any) -> Float64s:
        """Class probabilities (n, C)."""
        self._fitted()
        inputs = as_inputs(X, like=self._model.X)
        if self._scores is None:
            return super().predict_proba(self._model.features(inputs))
        return np.asarray(probabilities(self._model.logits(inputs)))

    @property
    def network_(self) -> nn.Module:
        """A copy of the network as it stands; it predicts as `predict_proba` does."""
        self._fitted()
        module = copy.deepcopy(self._model.task.module)
        if self._scores is None:
            name, layer = last_linear(module), _layer(_head(module), torch.from_numpy(super().W_))
            if not name:  # the network is this layer
                return layer.eval()
            module.set_submodule(name, layer)
        return module.eval()

    @property
    def W_(self) -> Float64s:  # noqa: N802
        """(D, C) parameters of the last layer, with constructor 'last_layer'; other networks have `network_`."""
        self._fitted()
        if self._scores is not None:
            raise AttributeError("a network has no W_; see network_")
        return super().W_

    def _scorer(self) -> Selector:
        return super()._scorer() if self._scores is None else self._scores

    def _strengths(self, following: NetworkConstructor) -> tuple[float, float]:
        """gamma and l2 of the network, checked."""
        gamma, l2 = fixed(as_gamma(self.gamma)), fixed(as_l2(self.l2))
        if isinstance(following, LastLayer):
            return GAMMA if gamma is None else gamma, L2 if l2 is None else l2
        if gamma is None or l2 is None:
            raise InvalidInputError(
                f"gamma is {self.gamma!r} and l2 {self.l2!r}; expected numbers: a network would be trained anew for every "
                "pair that is tried. Try gamma=0.8 and l2=0.001, or constructor='last_layer'",
                code="gamma" if gamma is None else "l2",
            )
        return gamma, l2

    def _trusted(self, X: Any, y: Any, names: ClassNames, like: Inputs, name: str) -> Labelled | None:
        """Inputs and class ids of a split, checked; None for one that may be left out and is."""
        if not given_together(X, y, name):
            return None
        inputs = as_inputs(X, f"X_{name}", like=like)
        cover = name == "val" and as_constructor(self.constructor).name != "last_layer"  # the convex pipeline warns too
        return inputs, as_evaluation_labels(y, names, len(inputs), f"y_{name}", must_cover=cover)


def _copied(task: NetworkTask) -> NetworkTask:
    try:
        return copy.deepcopy(task)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the network cannot be copied ({str(error).splitlines()[0]}); expected one that copy.deepcopy takes: weights that "
            "are parameters (torch.nn.utils.parametrizations, not torch.nn.utils.weight_norm), nothing computed left on it",
            code="network",
        ) from error


_Settings = TypeVar("_Settings")


def _settings_of(name: str, given: Any, kind: type[_Settings]) -> _Settings:
    if given is not None and not isinstance(given, kind):
        raise InvalidInputError(f"{name} is {type(given).__name__}; expected {kind.__name__} or None", code=name)
    return kind() if given is None else given


def _layer(old: nn.Linear, W: torch.Tensor) -> nn.Linear:
    """A new layer with W (D, C) for weights: those of the old one may be tied to others, or computed."""
    own = old.bias is not None
    layer = nn.Linear(old.in_features, old.out_features, bias=own, device=old.weight.device, dtype=old.weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(W[: old.in_features].T)
        if own:
            layer.bias.copy_(W[-1])
    return layer


def _head(module: nn.Module) -> nn.Linear:
    head = module.get_submodule(last_linear(module))
    assert isinstance(head, nn.Linear)
    return head
