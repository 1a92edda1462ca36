"""Quality of a model on a labelled split."""

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.objective import Point
from labelchef.domain.arrays import Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import Metrics


def evaluate(point: Point, y: Ints, n_classes: int) -> Metrics:
    """Loss, accuracy, macro-F1 over the classes that occur and, for two classes, F1 of the second one.

    F1 of class c is 2 TP_c / (T_c + P_c), T_c samples being of it and P_c predicted as it.
    """
    predicted = with_reference(point.logits).argmax(axis=1)
    right = y == predicted
    hits, true, named = (np.bincount(ids, minlength=n_classes) for ids in (y[right], y, predicted))
    f1 = 2.0 * hits / np.maximum(true + named, 1)
    return Metrics(
        loss=point.value,
        accuracy=float(right.mean()),
        f1_macro=float(f1[true + named > 0].mean()),
        f1=float(f1[1]) if n_classes == 2 else None,
    )


def check_metric(name: str, n_classes: int) -> None:
    """Refuse a target metric that is not defined for this many classes.

    >>> check_metric("f1", 3)
    Traceback (most recent call last):
    labelchef.domain.errors.InvalidInputError: target_metric is 'f1' with 3 classes; expected 'f1_macro', 'accuracy' or
    'loss': F1 of one class is for two classes
    """
    if name == "f1" and n_classes != 2:
        raise InvalidInputError(
            f"target_metric is 'f1' with {n_classes} classes; expected 'f1_macro', 'accuracy' or 'loss': "
            "F1 of one class is for two classes",
            code="metric",
        )


def value_of(metrics: Metrics, name: str) -> float:
    """A metric by its name.

    >>> value_of(Metrics(0.3, 0.9, 0.8), "accuracy")
    0.9
    """
    values = metrics.as_dict()
    if name not in values:
        raise InvalidInputError(
            f"metric {name!r} is not defined here; expected one of: {', '.join(values)}", code="metric"
        )
    return values[name]
