"""Clean a whole campaign from arrays or files, and leave everything that was learned in a folder.

campaign.json        what the campaign is: settings, a fingerprint of the data; resuming with others is refused
rounds.jsonl         the ledger
ledger.jsonl         the same for `labelchef verify`: votes, decisions, data and labels, chained by hashes; not signed
cleaned_labels.csv, model.npz, history.csv, summary.json, sources.csv, report.html, model.onnx    written at the end, also
                     after an interrupt
"""

import hashlib
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import labelchef
from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.files import whole_file, writing_to
from labelchef.base.learning import InUse
from labelchef.base.records import RoundRecord, StopReason
from labelchef.base.settings import TRAIN, Settings
from labelchef.base.validation import AuditReport, CalibrationError, Figure, Gain
from labelchef.data.campaign_data import CampaignData, known_labels
from labelchef.data.dataset import Decided
from labelchef.data.files import artefacts, tables
from labelchef.judge.metrics import history_frame
from labelchef.judge.report import render_report, require_report
from labelchef.loop import steps
from labelchef.loop.annotators import Annotator, RecordedVotes, SimulatedAnnotators, make_voters
from labelchef.loop.final import final_classifier
from labelchef.loop.ledger.jsonl import JsonLinesLedger
from labelchef.loop.ledger.lines import folder_ledger
from labelchef.loop.rebuild import rebuild
from labelchef.loop.report import Items, Outcome, label_frame, report_data
from labelchef.loop.session import Session
from labelchef.loop.source_report import SourceReport, flat_frame, source_facts, source_report
from labelchef.loop.start import check, with_strengths
from labelchef.model.classifier import LinearClassifier, require_onnx

SOURCES, PROOF = "sources.csv", "ledger.jsonl"
FORMAT = 3
"""Of the folder; that of labelchef 0.1 was not numbered."""


@dataclass(frozen=True)
class Answers:
    """Where votes come from: recorded ones, or people simulated from the truth; with neither, the suggestion alone."""

    truth: list[Any] | None = None
    """True labels of the training samples by class name; people are simulated from them, and the report shows them."""
    votes: pd.DataFrame | None = None
    """Recorded votes: item, annotator, label."""
    error_rate: float = 0.05
    """Of each simulated person."""


@dataclass(frozen=True)
class CleanOutcome:
    """What a campaign came to, and where it is."""

    folder: Path
    history: pd.DataFrame
    stopped_because: StopReason
    message: str
    settings: Settings
    """As they were used; gamma and l2 are numbers where trusted samples only steer, given or chosen."""
    files: list[Path] = field(default_factory=list)
    gains: dict[str, Gain] = field(default_factory=dict)
    """Of the target metric, on 'validation' (the samples that judge) and 'test', where there are any."""
    figures: dict[str, Figure] = field(default_factory=dict)
    """The target metric at the end, on the same samples."""
    in_use: InUse | None = None
    """What the model is made with; None where trusted samples only steer."""
    calibration: CalibrationError | None = None
    audit: AuditReport | None = None
    """What the audit found; None without one."""
    sources: SourceReport | None = None
    """None where trusted samples only steer."""


@dataclass(frozen=True)
class Watcher:
    """What is told of the progress: solver steps of the first model, and every finished round."""

    on_step: Callable[[int, float, float], None] | None = None
    on_round: Callable[[RoundRecord], None] | None = None


def read_answers(truth: Path | None, votes: Path | None, error_rate: float = 0.05) -> Answers:
    """Read where votes come from."""
    return Answers(
        None if truth is None else tables.read_labels(truth, "truth"),
        None if votes is None else tables.read_votes(votes),
        error_rate,
    )


def clean(
    data: CampaignData,
    answers: Answers,
    settings: Settings,
    folder: Path,
    *,
    title: str = "labelchef report",
    report: bool = True,
    onnx: bool = False,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> CleanOutcome:
    """Run the campaign and write its results to `folder`.

    The ledger grows by a line a round. After an interrupt the rounds done so far are all there; with `resume` a later
    call goes on after them.
    """
    if report:
        require_report()
    if onnx:
        require_onnx()
    watcher = watcher or Watcher()
    if settings.trusted == TRAIN and _knows_copies(folder, resume=resume):
        data = data.with_copies()
    check(data, settings)
    truth = None
    if answers.truth is not None:
        truth = known_labels(answers.truth, data.names, len(data.X), "truth", "truth")
    items = Items(range(len(data.X)), list(data.names.names), data.weak, truth)
    annotator = _annotator(data, answers, settings, items.truth)
    with writing_to(folder, "make room or name another --out", kind=InvalidInputError):
        asked, settings = settings.lasting(), _settled(folder, data, settings, resume)
        ledger = JsonLinesLedger(settings, path=folder / artefacts.LEDGER)
        past = ledger.resume() if ledger.path.exists() else []
        scores: list[Any] = []

        def first(session: Session) -> None:
            scores.append(session.scores())

        heard = past[0].heard if past else None  # other sources may be muted now: from the next model on
        session = rebuild(data, settings, past, on_step=watcher.on_step, on_first=first, heard=heard)
        ledger.history = session.rounds
        _begin(folder, data, asked, settings)
        reason, message = _run(ledger, session, annotator, watcher)
        gains = {split: found[settings.target_metric] for split, found in session.gains_by_split().items()}
        figures = {split: found[settings.target_metric] for split, found in session.figures_by_split().items()}
        facts = source_facts(session)
        sources = None if session.learner is None else source_report(session, data.names.names, facts)
        about = (gains, figures, session.calibration(), sources)
        outcome = Outcome(title, f"Stopped: {message}.", session.rounds, settings, scores[0], *about)
        model = final_classifier(session, data.names, feature_names=data.feature_names)
        ending = {"stopped_because": str(reason), "message": message}
        files = _write(folder, session, model, outcome, items, data, ending)
        files.append(folder / PROOF)
        with whole_file(files[-1]) as stream:
            stream.write(folder_ledger(data, session, settings, title))
        if facts:
            files.append(tables.write_table(flat_frame(facts), folder / SOURCES))
        if onnx:
            files.append(model.to_onnx(folder / "model.onnx"))
        if report:
            files.append(folder / "report.html")
            artefacts.write_text(files[-1], render_report(report_data(outcome, items)))
    return CleanOutcome(
        folder,
        history_frame(session.rounds),
        reason,
        message,
        settings,
        [*files, ledger.path],
        gains,
        figures,
        outcome.in_use,
        outcome.calibration,
        outcome.audit(len(data.names)) if settings.audit else None,
        sources,
    )


def _run(ledger: JsonLinesLedger, session: Session, annotator: Annotator, watcher: Watcher) -> tuple[StopReason, str]:
    try:
        return steps.run(ledger, session, annotator, on_round=watcher.on_round)
    except KeyboardInterrupt:
        ledger.recover()
        return StopReason.INTERRUPTED, "interrupted; the rounds done are kept, go on with --resume"


def _annotator(data: CampaignData, answers: Answers, settings: Settings, truth: Ints | None) -> Annotator:
    people: Annotator | None = None
    if answers.votes is not None:
        people = _recorded(data, answers.votes, settings.people)
    elif truth is not None and settings.people:
        rates = (answers.error_rate,) * settings.people
        people = SimulatedAnnotators(truth, n_classes=len(data.names), error_rates=rates, seed=settings.seed)
    return make_voters(settings.people, settings.suggestion_votes, people)


def _recorded(data: CampaignData, votes: pd.DataFrame, people: int) -> RecordedVotes:
    labels = data.names.encode(votes["label"].tolist(), "votes", allow_missing=True)
    last = int(votes["item"].max()) if len(votes) else 0
    if last >= len(data.X):
        why = f"votes on item {last}; expected rows of the training set, 0 to {len(data.X) - 1}"
        raise InvalidInputError(why, code="votes")
    rows = list(zip(votes["item"].tolist(), votes["annotator"].astype(str), labels.tolist(), strict=True))
    if data.copies is not None:  # the first vote of each person on an item or a copy of it
        asked = data.copies.asked(votes["item"].to_numpy(dtype=np.int64)).tolist()
        first = {(item, who): label for item, (_, who, label) in reversed(list(zip(asked, rows, strict=True)))}
        rows = [(item, who, label) for (item, who), label in reversed(first.items())]
    return RecordedVotes(rows, per_item=people or None)


def _settled(folder: Path, data: CampaignData, settings: Settings, resume: bool) -> Settings:
    """The settings; where trusted samples only steer, gamma and l2 are numbers, those the folder began with, or chosen now.

    A folder that holds another campaign, or none where one is to go on, is refused before any work is done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / artefacts.IDENTITY
    begun = known.exists() or (folder / artefacts.LEDGER).exists()
    if resume and not begun:
        raise InvalidInputError(f"{folder} holds no campaign to go on with; check --out", code="out")
    if begun and not resume:
        why = f"{folder} holds a campaign already; go on with it by --resume, or name another --out"
        raise InvalidInputError(why, code="out")
    if not resume:
        return with_strengths(data, settings)[0]
    found = _identity_in(known)
    asked = settings.lasting()
    if Settings.stored(found["asked"]).lasting() != asked or found["data"] != fingerprint(data):
        raise InvalidInputError(
            f"{folder} holds a campaign on other data or with other settings; expected the same inputs, seed and settings "
            f"({', '.join(asked)}). Name another --out",
            code="out",
        )
    return replace(settings, gamma=found["gamma"], l2=found["l2"])


def _knows_copies(folder: Path, *, resume: bool) -> bool:
    """Whether copies are one question: not in a campaign that an earlier version began."""
    known = folder / artefacts.IDENTITY
    return not (resume and known.exists()) or bool(_identity_in(known).get("copies"))


def _identity_in(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        version = found.get("format")
        if version == FORMAT and not {"asked", "data", "gamma", "l2"} <= set(found):
            raise ValueError("a part is missing")  # noqa: TRY301
    except (OSError, ValueError, AttributeError, RecursionError):
        raise InvalidInputError(
            f"{path} cannot be read, so nobody knows which campaign on which other data this is; expected the file that "
            "labelchef wrote. Restore it from a copy, or name another --out",
            code="out",
        ) from None
    if version != FORMAT:
        raise InvalidInputError(
            f"{path.parent} was written by another version of labelchef (format {version or '0.1'}, this one reads {FORMAT}); "
            "finish it with that version, or name another --out",
            code="out",
        )
    return dict(found)


def _begin(folder: Path, data: CampaignData, asked: dict[str, Any], settings: Settings) -> None:
    """Say what this campaign is, before its first round is written: the settings as asked for, and gamma and l2 as used."""
    if not (folder / artefacts.IDENTITY).exists():
        facts = {"gamma": settings.gamma, "l2": settings.l2, "data": fingerprint(data), "copies": True}
        artefacts.write_json(folder / artefacts.IDENTITY, {"format": FORMAT, "asked": asked, **facts})
    (folder / artefacts.LEDGER).touch()


def fingerprint(data: CampaignData) -> str:
    """A digest of the data: labels and votes whole, of the training features a few thousand rows spread over all."""
    digest = hashlib.sha256(repr((data.X.shape, data.names.names)).encode())
    few = data.X[:: max(1, len(data.X) // 4096)]
    for array in (few, data.weak, data.clean, *data.validation, *(data.test or ())):
        digest.update(np.ascontiguousarray(array).tobytes())
    for split, votes in (("votes", data.votes), ("votes_val", data.votes_val)):
        for name, part in ({} if votes is None else votes.arrays()).items():
            digest.update(f"{split} {name} {part.shape} {part.dtype}".encode() + part.tobytes())
    return digest.hexdigest()


def _decided(rounds: list[RoundRecord]) -> dict[int, Decided]:
    found: dict[int, Decided] = {}
    for made in (record.decisions for record in rounds):
        for item, label, support in zip(made.items.tolist(), made.labels.tolist(), made.support.tolist(), strict=True):
            found[item] = Decided(label, "votes", support)
    return found


def _metrics(record: RoundRecord) -> dict[str, Any]:
    parts = {"validation": record.validation, "steering": record.steering, "test": record.test}
    return {name: metrics and metrics.as_dict() for name, metrics in parts.items()}


def _write(
    folder: Path,
    session: Session,
    model: LinearClassifier,
    outcome: Outcome,
    items: Items,
    data: CampaignData,
    ending: dict[str, str],
) -> list[Path]:
    """Labels, model, history and summary; `ending` says why it stopped."""
    files = [folder / name for name in ("cleaned_labels.csv", "model.npz", "history.csv", "summary.json")]
    settings = outcome.settings.as_dict()
    clean, decided = data.clean, _decided(session.rounds)
    if data.copies is not None:
        clean, decided = data.copies.shared(clean), data.copies.extended(decided)
    tables.write_table(label_frame(items, clean, decided), files[0])
    model.save(files[1], settings=settings)
    tables.write_table(history_frame(session.rounds), files[2])
    first, last = session.rounds[0], session.rounds[-1]
    in_use, calibration = outcome.in_use, outcome.calibration
    audit = outcome.audit(len(items.names))
    summary = {
        **ending,
        "before": _metrics(first),
        "after": _metrics(last),
        "gain": {split: {**gain.as_dict(), "doubt": gain.doubt} for split, gain in outcome.gains.items()},
        "figures": {split: figure.as_dict() for split, figure in outcome.figures.items()},
        "baselines": {
            split: {name: metrics.as_dict() for name, metrics in found.items()}
            for split, found in last.baselines.items()
        },
        "in_use": None if in_use is None else asdict(in_use),
        "calibration": None if calibration is None else asdict(calibration),
        "audit": None if audit.accuracy is None else audit.accuracy.as_dict(),
        "spent": last.spent,
        "cleaned": last.cleaned,
        "settings": settings,
        "versions": {"labelchef": labelchef.__version__, "python": platform.python_version()},
    }
    artefacts.write_json(files[3], summary)
    return files
