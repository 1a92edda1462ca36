"""The rounds as one table, one row for each."""

from collections.abc import Sequence

import pandas as pd

from labelchef.domain.records import UNRESOLVED, RoundRecord

PHASES = ("select", "annotate", "aggregate", "construct", "evaluate")


def history_frame(rounds: Sequence[RoundRecord]) -> pd.DataFrame:
    """One row for each round; round 0 is the first model.

    `val_…` are metrics on the validation samples held out for judging, `steer_…` on the steering samples; they are equal
    where none are held out. `predicted_change` and `realised_change` are changes of the steering loss, see `RoundRecord`.
    `distance_to_optimum` is ‖∇F‖ / l2, a proven bound on ‖W − W*‖.
    """
    return pd.DataFrame([_row(record) for record in rounds])


def _row(record: RoundRecord) -> dict[str, float]:
    labels, selection, construction = record.decisions.labels, record.batch.diagnostics, record.construction
    answered = labels != UNRESOLVED
    splits = {"val": record.validation, "steer": record.steering, "test": record.test}
    return {
        "round": record.number,
        "asked": record.asked,
        "resolved": int(answered.sum()),
        "changed": len(record.changed),
        "agreed_with_suggestion": int((answered & (labels == record.batch.suggested)).sum()),
        "spent": record.spent,
        "cleaned": record.cleaned,
        **{f"{key}_{name}": v for key, found in splits.items() if found for name, v in found.as_dict().items()},
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
