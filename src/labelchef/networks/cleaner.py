"""`NetworkCleaner`: what `LabelCleaner` does, for any PyTorch classifier."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from labelchef.base.arrays import Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.base.features import check_columns
from labelchef.base.settings import AUTO, TRAIN, Settings, fixed
from labelchef.believe.learner import Fixed
from labelchef.believe.models import Joint, Shares
from labelchef.chef.choice import make_selector
from labelchef.chef.constructors import DescentSettings, make_constructor
from labelchef.chef.constructors.protocol import OnStep
from labelchef.chef.selectors import Selector
from labelchef.data.campaign_data import CampaignData
from labelchef.data.training_rows import first_table, judges_of, stacked_votes
from labelchef.loop.cleaner import Cleaner, linear_probabilities
from labelchef.loop.session import Session
from labelchef.loop.start import Parts, check_figures, new_session, with_strengths
from labelchef.loop.stopping import StoppingRule
from labelchef.model.labels import LabelTable
from labelchef.model.softmax import probabilities
from labelchef.networks.classifier import NetworkClassifier
from labelchef.networks.constructors import (
    FineTune,
    LastLayer,
    LastLayerSession,
    NetworkConstructor,
    NetworkSession,
    NetworkTrainer,
    Retrain,
    as_constructor,
)
from labelchef.networks.features import extract
from labelchef.networks.influence import InfluenceSettings
from labelchef.networks.inputs import Inputs, as_device, as_inputs
from labelchef.networks.learner import NetworkLearner
from labelchef.networks.model import NetworkModel, penultimate
from labelchef.networks.selector import Direction, NetworkInfluenceSelector, choose_selector
from labelchef.networks.task import NetworkTask, Outputs, adapt, last_linear
from labelchef.networks.training import TrainingSettings
from labelchef.networks.trusted import STEERS, STEERS_A_LAST_LAYER, Division, part, with_clean_rows

GAMMA, L2 = 0.8, 1e-3
"""Of a network, where they are 'auto' and not chosen."""


@dataclass(eq=False, repr=False)
class NetworkCleaner(Cleaner):
    """Clean the labels a network is trained on: everything `LabelCleaner` does, with a network as the model.

    Parameters
    ----------
    network : a `torch.nn.Module`, a skorch net, a Lightning module, or a `NetworkTask`; it is copied, never changed
    selector : name in `labelchef.networks.NETWORK_SELECTORS`, or a `Selector` that looks at probabilities only
    constructor : 'fine_tune', 'retrain' or 'last_layer', or an instance of `FineTune`, `Retrain` or `LastLayer`
    trusted : 'train': trusted samples train the network with weight 1, apart from those that stop its training or judge
        (`networks.trusted`); 'steer': they only steer the selection, stop training and judge
    sources : the model of the sources, a name in `labelchef.believe.models.MODELS`, or 'none' to ignore weak labels. 'auto' is
        'joint' where votes are given, else 'shares'; the last layer's is chosen by cross-validation over the clean samples
    preset, audit : as in `LabelCleaner`
    parameters : whose influence is measured: 'all', 'last', or names and prefixes; see `adapt`
    outputs : what the network returns, 'logits' or 'probabilities'; see `adapt`
    pretrained : whether the first model is the network as it was handed in, untrained here
    training, influence : `TrainingSettings` and `InfluenceSettings`
    device : 'auto', 'cpu' or 'cuda'
    progress : whether to show bars: epochs of every training, iterations of every solve for influence
    gamma, l2 : as in `LabelCleaner`, but not by cross-validation, which would train dozens of networks: 'auto' is 0.001 for l2,
        and for gamma the best of 0.8, 0.1 and 0 on the samples that steer (`networks.learner`), 0.8 where trusted samples only
        steer or the network is pretrained. With constructor 'last_layer', this holds for the network below; both are chosen for
        that layer as in `LabelCleaner`
    holdout : share of the trusted samples that judge and are used for nothing else, drawn by class; 'auto' takes half of 100
        samples and more, none where trusted samples train with constructor 'last_layer'
    budget, batch_size, target, target_metric, stop, random_state : as in `LabelCleaner`

    Attributes
    ----------
    network_ : the network as it stands
    labels_, posterior_, cleaned_, classes_, history_, rounds_, gamma_, l2_ : as in `LabelCleaner`
    sources_, choice_ : as in `LabelCleaner`; what muting a source would change is not known of a whole network (NaN), and its
        choice is what was given

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

    network: Any
    selector: str | Selector = "margin"
    constructor: str | FineTune | Retrain | LastLayer = "fine_tune"
    trusted: str = "train"
    sources: str = "auto"
    preset: str = "default"
    audit: float = 0.0
    parameters: str | Iterable[str] = "all"
    outputs: Outputs = "auto"
    pretrained: bool = False
    training: TrainingSettings | None = None
    influence: InfluenceSettings | None = None
    gamma: float | str = "auto"
    l2: float | str = "auto"
    budget: int | None = 100
    batch_size: int = 10
    target: float | None = None
    target_metric: str = "f1_macro"
    stop: StoppingRule | None = None
    holdout: float | str = "auto"
    device: str = "auto"
    progress: bool = False
    random_state: int | None = 0
    _model: NetworkModel = field(init=False)
    _last_layer_bias: bool | None = field(init=False)
    """Whether the last layer, which softmax regression has replaced, has a bias; None where the network is the model."""

    def _begin(self, given: Callable[..., CampaignData], on_step: OnStep | None) -> Self:
        settings, following = self._settings(), as_constructor(self.constructor)
        gamma, l2 = fixed(settings.gamma), L2 if settings.l2 == AUTO else float(settings.l2)
        if gamma is None and (settings.trusted != TRAIN or self.pretrained):
            gamma = GAMMA
        task = _copied(adapt(self.network, self.parameters, outputs=self.outputs))
        if not (self.pretrained and isinstance(following, LastLayer)):
            task.influenced_parameters()
        data = given(read=as_inputs)
        division = self._division(data, settings, following)
        influence = _settings_of("influence", self.influence, InfluenceSettings)
        training = _settings_of("training", self.training, TrainingSettings)
        trusted = part(data.validation, division.trains) if division.trains.any() else None
        judging = part(data.validation, division.judges) if division.judges.any() else data.judge
        model = NetworkModel(
            task, data.X, part(data.validation, division.steers), judging, data.test,
            len(data.names), l2, as_device(self.device), influence.batch_size, self.progress, trusted,
        )  # fmt: skip
        self._model = model
        if trusted is None:
            table, learner = first_table(data, GAMMA if gamma is None else gamma), None
        else:
            table = first_table(data, 0.0, trusted[1])
            learner = _learner(data, settings, Fixed(gamma, l2), model, training, division, table)
        if isinstance(following, LastLayer):
            if not self.pretrained:
                if learner is not None:
                    learner.believe(None, table)
                model.train(table.rows, training, settings.seed, on_step)
            return self._hold_last_layer(data.mapped(self._features), division, settings, following)
        trainer = NetworkTrainer(model, training, following, settings.seed, self.pretrained)
        direction = Direction(model, influence, settings.seed)
        chosen = settings.selector if isinstance(self.selector, str) else copy.deepcopy(self.selector)
        selector = choose_selector(chosen, direction, training)
        first = model.view(table.rows)
        session = NetworkSession(
            objective=first.objective, labels=table, steering=first.steering, judging=first.judging, test=first.test,
            selector=selector, constructor=trainer, seed=settings.seed,
            scorer=NetworkInfluenceSelector(
                "expected_infl" if selector.name == "expected_infl" else "infl", direction
            ),
            learner=learner, metric=settings.target_metric, audit=settings.audit,
        )  # fmt: skip
        session.start(on_step)
        self._last_layer_bias = None
        return self._hold(session, data, replace(settings, gamma=AUTO if gamma is None else gamma, l2=l2), None)

    def _division(self, data: CampaignData, settings: Settings, following: NetworkConstructor) -> Division:
        """Which trusted samples train the network, stop its training, and judge; warns where too few judge."""
        if data.from_nothing:
            raise InvalidInputError(
                "there are no trusted samples, and a network needs some to stop its training by; expected X_val and y_val, or "
                "LabelCleaner on the features of the network",
                code="val",
            )
        last = isinstance(following, LastLayer)
        judged = settings if last else replace(settings, trusted="steer")  # a whole network needs samples held out
        check_figures(data, judged, self._rules())
        judges = judges_of(data, judged)
        if settings.trusted != TRAIN or (last and self.pretrained):
            return Division.steering(judges)
        share = STEERS_A_LAST_LAYER if last else STEERS
        return Division.training(data.validation[1], judges, len(data.names), share, settings.seed)

    def _hold_last_layer(
        self, features: CampaignData, division: Division, settings: Settings, following: LastLayer
    ) -> Self:
        """Softmax regression on the features below the last layer takes that layer's place."""
        bias = _head(self._model.task.module).bias is not None
        settings, tuned = with_strengths(features, settings, bias=bias)
        selector = self.selector
        if isinstance(selector, str):
            selector = make_selector(settings.selector, look_ahead=following.look_ahead)
        constructor = make_constructor(
            following.constructor, tol=settings.tol, descent=DescentSettings(seed=settings.seed)
        )
        parts = Parts(selector, constructor, bias=bias)
        if division.trains.any():
            rows = with_clean_rows(features, division)
            session: Session = LastLayerSession.of(
                new_session(rows, replace(settings, holdout=0.0), parts), len(features.X)
            )
        else:
            session = new_session(features, settings, parts)
        session.start()
        self._last_layer_bias = bias
        return self._hold(session, features, settings, tuned)

    def predict_proba(self, X: Any) -> Float64s:
        """Class probabilities (n, C)."""
        session = self._fitted()
        check_columns(X, self._columns)
        inputs = as_inputs(X, like=self._model.X)
        if self._last_layer_bias is None:
            return np.asarray(probabilities(self._model.logits(inputs)))
        W, bias = self._scaled(session.parameters, bias=self._last_layer_bias)
        return linear_probabilities(self._features(inputs), W, bias=bias)

    def finish(self) -> NetworkClassifier:
        """The final classifier: a copy of the network as it stands.

        With constructor 'last_layer' that layer is fitted from scratch to the labels as they stand, so it does not depend on the
        order of rounds; temperature and decision rule (`ruling_`) go with it. This cleaner stays as it is.
        """
        session = self._fitted()
        task = copy.deepcopy(self._model.task)
        if self._last_layer_bias is not None:
            made = session.constructor.initialise(session.objective, session.steering.losses)
            W, bias = self._scaled(made.point.W, bias=self._last_layer_bias)
            task.module = _with_last_layer(task.module, W, bias=bias)
        return NetworkClassifier(
            task.cpu(), self.classes_.copy(), tuple(self._model.X.shape[1:]), self._model.batch_size, str(self.device),
            None if session.ruling is None else np.array(session.ruling.offsets), self._feature_names,
        )  # fmt: skip

    def _scaled(self, W: Float64s, *, bias: bool) -> tuple[Float64s, bool]:
        """Parameters of the last layer whose logits are those of W by the ruling in use, and whether the last are its bias."""
        ruling = self._fitted().ruling
        return (W, bias) if ruling is None else (ruling.parameters(W, bias=bias), True)

    def _features(self, X: Inputs) -> NDArray[np.float32]:
        """What the last linear layer is given, (n, D)."""
        task, device = self._model.task, str(self._model.device)
        return extract(
            task, X, forward=lambda _, x: penultimate(task, x), batch_size=self._model.batch_size, device=device
        )

    @property
    def network_(self) -> nn.Module:
        """A copy of the network as it stands; it predicts as `predict_proba` does."""
        session = self._fitted()
        module = copy.deepcopy(self._model.task.module)
        if self._last_layer_bias is not None:
            W, bias = self._scaled(session.parameters, bias=self._last_layer_bias)
            module = _with_last_layer(module, W, bias=bias)
        return module.eval()

    @property
    def W_(self) -> Float64s:  # noqa: N802
        """(D, C) parameters of the last layer, with constructor 'last_layer'; other networks have `network_`."""
        session = self._fitted()
        if self._last_layer_bias is None:
            raise AttributeError("a network has no W_; see network_")
        return session.parameters.copy()

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in super()._given().items() if name != "constructor"}


def _learner(
    data: CampaignData,
    settings: Settings,
    strengths: Fixed,
    model: NetworkModel,
    training: TrainingSettings,
    division: Division,
    table: LabelTable,
) -> NetworkLearner:
    sources = settings.sources
    if sources == AUTO:
        sources = Shares.name if data.votes is None else Joint.name
    return NetworkLearner(
        votes=stacked_votes(data, division.trains), given=table.Y_weak, n_items=len(data.X),
        trusted=np.arange(len(data.X), len(table.Y)), bias=False, seed=settings.seed,
        fixed=replace(strengths, sources=sources), model=model, training=training, known=table.decided.copy(),
    )  # fmt: skip


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


def _layer(old: nn.Linear, W: torch.Tensor, *, bias: bool) -> nn.Linear:
    """A new layer with W (D, C) for weights: those of the old one may be tied to others, or computed."""
    layer = nn.Linear(old.in_features, old.out_features, bias=bias, device=old.weight.device, dtype=old.weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(W[: old.in_features].T)
        if bias:
            layer.bias.copy_(W[-1])
    return layer


def _with_last_layer(module: nn.Module, W: Float64s, *, bias: bool) -> nn.Module:
    """The module with W (D, C) in its last linear layer; that layer alone where it is the whole network."""
    name, layer = last_linear(module), _layer(_head(module), torch.from_numpy(W), bias=bias)
    if not name:
        return layer
    module.set_submodule(name, layer)
    return module


def _head(module: nn.Module) -> nn.Linear:
    head = module.get_submodule(last_linear(module))
    assert isinstance(head, nn.Linear)
    return head
