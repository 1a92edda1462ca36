"""Quality of a model on a labelled split."""

import numpy as np
from sklearn.metrics import f1_score

from labelchef.core.contrasts import with_reference
from labelchef.core.objective import Point
from labelchef.domain.arrays import Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import Metrics

METRICS = ("accuracy", "f1_macro", "f1", "loss")
"""Names a target may use; for 'loss' smaller is better."""


def evaluate(point: Point, y: Ints, n_classes: int) -> Metrics:
    """Loss, accuracy, macro-F1 over the classes that occur and, for two classes, F1 of the second one."""
    predicted = with_reference(point.logits).argmax(axis=1)
    present = np.unique(np.concatenate([y, predicted]))
    macro = f1_score(y, predicted, labels=present, average="macro", zero_division=0.0)
    positive = f1_score(y, predicted, pos_label=1, zero_division=0.0) if n_classes == 2 else None
    return Metrics(
        loss=point.value,
        accuracy=float(np.mean(predicted == y)),
        f1_macro=float(macro),
        f1=None if positive is None else float(positive),
    )


def value_of(metrics: Metrics, name: str) -> float:
    """A metric by its name.

    >>> value_of(Metrics(0.3, 0.9, 0.8), "accuracy")
    0.9
    """
    values = metrics.as_dict()
    if name not in values:
        defined = ", ".join(values)
        raise InvalidInputError(f"metric {name!r} is not defined here; expected one of: {defined}", code="metric")
    return values[name]
