"""What a campaign shows and hands out at the end: the report's content and the table of labels, each built once.

`labelchef clean`, `labelchef export` and the page use these; they differ in where rounds, names and gains come from.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.learning import InUse
from labelchef.base.records import UNRESOLVED, AskedCount, Metrics, RoundRecord
from labelchef.base.settings import Settings
from labelchef.base.validation import ABOUT_BASELINES, BASELINES, AuditReport, CalibrationError, Figure, Gain, note_on
from labelchef.data.dataset import Decided
from labelchef.judge.audit import audit_report
from labelchef.judge.metrics import history_frame, value_of
from labelchef.judge.report import ReportData, Thumbnail
from labelchef.loop.source_report import SourceReport, facts_frame

_TEXT = 200
"""Characters of a text that the report shows."""


@dataclass(frozen=True)
class Items:
    """How samples and classes are called, and what their weak labels are."""

    keys: Sequence[Hashable] | Mapping[int, Hashable]
    """By row; in a mapping, of those rows alone that were asked."""
    names: Sequence[Hashable]
    weak: Float64s
    truth: Ints | None = None
    """True class ids (N,), −1 where unknown; None where nothing is known."""
    texts: Mapping[int, str] = field(default_factory=dict)
    """By row: what people read, of rows that have such and were asked."""
    thumbnails: Mapping[int, Thumbnail] = field(default_factory=dict)
    """By row: what people saw, likewise."""

    def class_name(self, class_id: int) -> Any:
        """A class by its id; None for `UNRESOLVED`."""
        return None if class_id == UNRESOLVED else self.names[class_id]


@dataclass(frozen=True)
class Outcome:
    """What came of a campaign so far."""

    title: str
    message: str
    rounds: Sequence[RoundRecord]
    settings: Settings
    scores: Float64s
    """Influence of every training sample before anything was asked, NaN where it was clean."""
    gains: Mapping[str, Gain] = field(default_factory=dict)
    """Of the target metric, on 'validation' (the samples that judge) and 'test', where there are any."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """The target metric of the present model, on the same samples."""
    calibration: CalibrationError | None = None
    sources: SourceReport | None = None

    @property
    def in_use(self) -> InUse | None:
        """What the present model is made with; None where trusted samples only steer."""
        last = self.rounds[-1]
        return InUse.of(last.choice, last.ruling)

    def audit(self, n_classes: int) -> AuditReport:
        """What the audit has found."""
        return audit_report(self.rounds, self.settings.audit, n_classes)


def report_data(outcome: Outcome, items: Items) -> ReportData:
    """Everything the HTML report shows."""
    settings, first = outcome.settings, _first_selected(outcome.rounds, outcome.scores)
    notes = [note_on(outcome.figures.get("validation"), measured=bool(outcome.rounds[-1].validation.as_dict()))]
    if settings.people == 0:
        notes.append("No person was asked: every label is the suggestion itself (strategy two).")
    if outcome.rounds[-1].baselines:
        notes.append(ABOUT_BASELINES)
    audit = outcome.audit(len(items.names)) if settings.audit else None
    if audit is not None:
        notes.append(sentence(str(audit)))
    if outcome.in_use is not None:
        notes.append(sentence(f"in use: {outcome.in_use}"))
    if outcome.calibration is not None:
        notes.append(sentence(f"calibration error {outcome.calibration}"))
    return ReportData(
        title=outcome.title,
        message=outcome.message,
        history=history_frame(outcome.rounds),
        settings=settings.as_dict(),
        influence=outcome.scores,
        first_selected=first[np.isfinite(first)],
        asked=asked_frame(outcome.rounds, items),
        counted=str(AskedCount.of(outcome.rounds)),
        n_samples=len(items.weak),
        target_metric=settings.target_metric,
        target=settings.target,
        notes=notes,
        gains=dict(outcome.gains),
        figures=dict(outcome.figures),
        baselines={split: _target(found, settings) for split, found in outcome.rounds[-1].baselines.items()},
        audit=pd.DataFrame([] if audit is None else [asdict(point) for point in audit.course]),
        sources=None if outcome.sources is None else facts_frame(outcome.sources.sources),
        source_notes=[] if outcome.sources is None else list(outcome.sources.notes),
    )


def sentence(text: str) -> str:
    """With a capital letter and a full stop.

    >>> sentence("audit: off")
    'Audit: off.'
    """
    return text[:1].upper() + text[1:] + "."


def _target(baselines: Mapping[str, Metrics], settings: Settings) -> dict[str, float]:
    """The target metric of each baseline, by its name in words."""
    return {BASELINES[name]: value_of(metrics, settings.target_metric) for name, metrics in baselines.items()}


def _first_selected(rounds: Sequence[RoundRecord], scores: Float64s) -> Float64s:
    """Influence at the start of the samples of the first batch: as the selector saw it, or else from `scores`."""
    if len(rounds) < 2:
        return np.empty(0)
    batch = rounds[1].batch
    return np.where(np.isnan(batch.influence), scores[batch.indices], batch.influence)


def asked_frame(rounds: Sequence[RoundRecord], items: Items) -> pd.DataFrame:
    """A row a decision: round, item, text, image, weak, suggested, decided, support, influence and, where known, truth."""
    rows: list[dict[str, Any]] = []
    for record in rounds:
        decided, batch = record.decisions, record.batch
        for k, item in enumerate(decided.items.tolist()):
            influence = float(batch.influence[k])
            row = {
                "round": record.number,
                "item": items.keys[item],
                **_content(items, item),
                "weak": items.class_name(weak_classes(items.weak[[item]])[0]),
                "suggested": items.class_name(batch.suggested[k]),
                "decided": items.class_name(decided.labels[k]),
                "support": round(float(decided.support[k]), 3),
                "influence": round(influence, 4) if np.isfinite(influence) else None,
            }
            if items.truth is not None:
                row["truth"] = items.class_name(items.truth[item])
            rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def _content(items: Items, item: int) -> dict[str, Any]:
    """The columns text and image, where any item has such."""
    found: dict[str, Any] = {}
    if items.texts:
        text = " ".join(items.texts.get(item, "").split())
        found["text"] = text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
    if items.thumbnails:
        found["image"] = items.thumbnails.get(item)
    return found


def weak_classes(P: Float64s) -> Ints:
    """The class (n,) that each weak label (n, C) names, −1 where it names none.

    >>> weak_classes(np.array([[0.5, 0.5], [0.2, 0.8]])).tolist()
    [-1, 1]
    """
    return np.where(np.ptp(P, axis=1) > 1e-9, P.argmax(axis=1), UNRESOLVED)


def label_frame(items: Items, given: Ints, decided: Mapping[int, Decided]) -> pd.DataFrame:
    """A row a training sample: its label as it stands (None where nothing is known), where it is from, a probability a class.

    `given` (N,) holds the class ids known from the start, −1 elsewhere; `decided` is by row. A decision outweighs both.
    """
    chosen, source = given.copy(), np.where(given == UNRESOLVED, "weak", "given").astype(object)
    by: list[str | None] = [None] * len(given)
    support: list[float | None] = [None] * len(given)
    for row, made in decided.items():
        chosen[row], by[row], support[row] = made.label, made.by, made.support
        source[row] = "weak" if made.label == UNRESOLVED else "cleaned"
    weak = chosen == UNRESOLVED
    P = np.where(weak[:, None], items.weak, np.eye(len(items.names))[np.maximum(chosen, 0)])
    return pd.DataFrame(
        {
            "item": list(items.keys),
            "label": [items.class_name(c) for c in np.where(weak, weak_classes(P), chosen)],
            "source": source,
            "decided_by": by,
            "support": support,
            **{f"p_{name}": P[:, c] for c, name in enumerate(items.names)},
        }
    )
