"""Quality of a model on a labelled split, and the rounds as one table."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.learning import Ruling
from labelchef.base.records import UNRESOLVED, Metrics, RoundRecord
from labelchef.model.contrasts import with_reference
from labelchef.model.objective import Point
from labelchef.model.softmax import cross_entropies


def evaluate(point: Point, y: Ints, n_classes: int, ruling: Ruling | None, predicted: Ints) -> Metrics:
    """Loss of the logits, and the metrics of predicted classes (n,)."""
    if ruling is None:
        return measured(predicted, y, n_classes, point.value)
    loss = float(cross_entropies(ruling.scaled(with_reference(point.logits)), np.eye(n_classes)[y]).mean())
    return measured(predicted, y, n_classes, loss)


def measured(predicted: Ints, y: Ints, n_classes: int, loss: float) -> Metrics:
    """Accuracy, macro-F1 over the classes that occur and, for two classes, F1 of the second one; the loss is given.

    F1 of class c is 2 TP_c / (T_c + P_c), T_c samples being of it and P_c predicted as it.
    """
    right = y == predicted
    hits, true, named = (np.bincount(ids, minlength=n_classes) for ids in (y[right], y, predicted))
    f1 = 2.0 * hits / np.maximum(true + named, 1)
    return Metrics(
        loss=loss,
        accuracy=float(right.mean()),
        f1_macro=float(f1[true + named > 0].mean()),
        f1=float(f1[1]) if n_classes == 2 else None,
    )


def check_metric(name: str, n_classes: int) -> None:
    """Refuse a target metric that is not defined for this many classes.

    >>> check_metric("f1", 3)
    Traceback (most recent call last):
    labelchef.base.errors.InvalidInputError: target_metric is 'f1' with 3 classes; expected 'f1_macro', 'accuracy' or
    'loss': F1 of one class is for two classes
    """
    if name == "f1" and n_classes != 2:
        raise InvalidInputError(
            f"target_metric is 'f1' with {n_classes} classes; expected 'f1_macro', 'accuracy' or 'loss': "
            "F1 of one class is for two classes",
            code="metric",
        )


def value_of(metrics: Metrics, name: str) -> float:
    """A metric by its name; NaN where nothing is measured yet.

    >>> value_of(Metrics(0.3, 0.9, 0.8), "accuracy")
    0.9
    """
    values = metrics.as_dict()
    if not values:
        return float("nan")
    if name not in values:
        raise InvalidInputError(
            f"metric {name!r} is not defined here; expected one of: {', '.join(values)}", code="metric"
        )
    return values[name]


_NOT_YET = dict.fromkeys(("loss", "accuracy", "f1_macro"), float("nan"))
PHASES = ("select", "annotate", "aggregate", "construct", "evaluate")


def history_frame(rounds: Sequence[RoundRecord]) -> pd.DataFrame:
    """One row for each round; round 0 is the first model.

    `val_…` are metrics on the validation samples that judge, `steer_…` on the trusted samples that steer or train; they are
    equal where none are held out. `val_trusted_only_…` and `val_no_weak_…` are what one would have without weak labels, on the
    same samples: from the trusted samples alone, and from trusted and answered ones. `predicted_change` and
    `realised_change` are changes of the steering loss, see `RoundRecord`. `distance_to_optimum` is ‖∇F‖ / l2, a proven
    bound on ‖W − W*‖. Where the features are streamed from files, `gb_read` is how much of them was read (10⁹ bytes), and
    `seconds_reading` how long that took. Where workers hold them, `slowest_worker` took `lag` times as long as the median one.
    """
    streamed, held = any(_bytes_read(record) for record in rounds), any(record.construction.lag for record in rounds)
    more = (_reading if streamed else _nothing, _workers if held else _nothing)
    return pd.DataFrame([{**_row(record), **more[0](record), **more[1](record)} for record in rounds])


def _nothing(_: RoundRecord) -> Mapping[str, float | str]:
    return {}


def _workers(record: RoundRecord) -> Mapping[str, float | str]:
    return {"lag": record.construction.lag, "slowest_worker": record.construction.slowest_worker}


def _bytes_read(record: RoundRecord) -> float:
    return record.batch.diagnostics.bytes_read + record.construction.bytes_read


def _reading(record: RoundRecord) -> Mapping[str, float | str]:
    seconds = record.batch.diagnostics.read_seconds + record.construction.read_seconds
    return {"gb_read": _bytes_read(record) / 1e9, "seconds_reading": seconds}


def _row(record: RoundRecord) -> dict[str, float]:
    labels, selection, construction = record.decisions.labels, record.batch.diagnostics, record.construction
    answered = labels != UNRESOLVED
    splits_short = {"validation": "val", "test": "test"}
    splits = {"val": record.validation, "steer": record.steering, "test": record.test}
    return {
        "round": record.number,
        "asked": record.asked,
        "resolved": int(answered.sum()),
        "changed": len(record.changed),
        "agreed_with_suggestion": int((answered & (labels == record.batch.suggested)).sum()),
        "spent": record.spent,
        "cleaned": record.cleaned,
        **{
            f"{key}_{name}": v
            for key, found in splits.items()
            if found
            for name, v in (found.as_dict() or _NOT_YET).items()
        },
        **{
            f"{splits_short[split]}_{name}_{metric}": v
            for split, found in record.baselines.items()
            for name, metrics in found.items()
            for metric, v in metrics.as_dict().items()
        },
        "predicted_change": record.predicted_change,
        "realised_change": record.realised_change,
        **{name: getattr(selection, name) for name in ("candidates", "fell_back", "slack", "iterations", "residual")},
        "select_sweeps": selection.sweeps,
        "construct_sweeps": construction.sweeps,
        "sweeps": selection.sweeps + construction.sweeps,
        "gradient_norm": construction.gradient_norm,
        "distance_to_optimum": construction.distance,
        "epoch": construction.epoch,
        "explicit_steps": construction.explicit,
        "fallback_steps": construction.fell_back,
        **{f"seconds_{phase}": record.seconds.get(phase, 0.0) for phase in PHASES},
    }
