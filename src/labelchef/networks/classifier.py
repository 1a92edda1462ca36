"""`NetworkClassifier`: a network to take home, in the manner of scikit-learn, with nothing of the training data.

Z = network(X) (n, C) logits,      P[i] = softmax(Z[i]),      ŷ_i = classes[ argmax_c (log P[i, c] + o_c) ]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from labelchef.base.arrays import Float64s, name_array
from labelchef.base.features import check_columns
from labelchef.model.classifier import plain_names
from labelchef.model.softmax import probabilities
from labelchef.networks.inputs import as_device, as_inputs
from labelchef.networks.model import logits_of
from labelchef.networks.task import NetworkTask


@dataclass(eq=False, repr=False)
class NetworkClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network that is trained already; works where scikit-learn takes a fitted classifier.

    It can be pickled if the network can. Its weights are in `network.module`, to be saved in PyTorch's own ways.

    Parameters
    ----------
    network : a `NetworkTask`, which returns logits whatever the network inside returns
    classes : (C,) class names, in the order of the logits
    input_shape : shape of one sample
    batch_size : samples that are predicted at a time
    device : 'auto', 'cpu' or 'cuda'
    offsets : (C,) o, what `predict`, and nothing else, adds to the log-probabilities; None for zeros
    feature_names : names of the columns of X, None if they had none; a frame must then have these columns in this order
    """

    network: NetworkTask
    classes: Any
    input_shape: tuple[int, ...]
    batch_size: int = 256
    device: str = "auto"
    offsets: Any = None
    feature_names: Sequence[str] | None = None

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002 (scikit-learn passes them)
        """Changes nothing, as with scikit-learn's `FrozenEstimator`: the network is trained already."""
        return self

    def predict_proba(self, X: Any) -> Float64s:
        """Class probabilities (n, C)."""
        return np.asarray(probabilities(self._logits(X)))

    def predict_log_proba(self, X: Any) -> Float64s:
        """Logarithms of the class probabilities (n, C), finite where a probability is rounded to zero."""
        Z = self._logits(X)
        return np.asarray(Z - np.logaddexp.reduce(Z, axis=1, keepdims=True))

    def predict(self, X: Any) -> "np.ndarray[Any, Any]":
        """Class names (n,)."""
        scores = self._logits(X) + (0.0 if self.offsets is None else np.asarray(self.offsets))
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    @property
    def classes_(self) -> "np.ndarray[Any, Any]":
        """(C,) class names, as an array of their own type where they share one."""
        return name_array(plain_names(self.classes))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _logits(self, X: Any) -> Float64s:
        check_columns(X, self.feature_names, like="frame[list(model.feature_names)]")
        inputs, device = as_inputs(X, like=np.empty((0, *self.input_shape))), as_device(self.device)
        return logits_of(self.network.to(device), inputs, len(self.classes_), self.batch_size, device)
