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
    rows = []
    for record in rounds:
        batch, decided = record.batch, record.decisions
        answered = decided.labels != UNRESOLVED
        suggested = batch.suggested
        rows.append(
            {
                "round": record.number,
                "asked": record.asked,
                "resolved": int(answered.sum()),
                "changed": len(record.changed),
                "agreed_with_suggestion": int((answered & (decided.labels == suggested)).sum()),
                "spent": record.spent,
                "cleaned": record.cleaned,
                **{f"val_{name}": value for name, value in record.validation.as_dict().items()},
                **{f"steer_{name}": value for name, value in record.steering.as_dict().items()},
                **({} if record.test is None else {f"test_{n}": v for n, v in record.test.as_dict().items()}),
                "predicted_change": record.predicted_change,
                "realised_change": record.realised_change,
                "candidates": batch.diagnostics.candidates,
                "fell_back": batch.diagnostics.fell_back,
                "slack": batch.diagnostics.slack,
                "iterations": batch.diagnostics.iterations,
                "residual": batch.diagnostics.residual,
                "select_sweeps": batch.diagnostics.sweeps,
                "construct_sweeps": record.construction.sweeps,
                "sweeps": batch.diagnostics.sweeps + record.construction.sweeps,
                "gradient_norm": record.construction.gradient_norm,
                "distance_to_optimum": record.construction.distance,
                "epoch": record.construction.epoch,
                "explicit_steps": record.construction.explicit,
                "fallback_steps": record.construction.fell_back,
                **{f"seconds_{phase}": record.seconds.get(phase, 0.0) for phase in PHASES},
            }
        )
    return pd.DataFrame(rows)
