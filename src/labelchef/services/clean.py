"""Clean a whole campaign from arrays or files, and leave everything that was learned on disk."""

import contextlib
import hashlib
import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import labelchef
from labelchef.annotators import Annotator, RecordedVotes, SimulatedAnnotators, make_strategy
from labelchef.annotators.strategies import people_needed
from labelchef.campaign.inputs import ClassNames
from labelchef.cleaner import CleaningResult, LabelCleaner
from labelchef.constructors import Constructor, DescentSettings, make_constructor
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import UNRESOLVED, RoundRecord, StopReason
from labelchef.domain.settings import STRATEGY_VOTERS
from labelchef.domain.validation import Gain, as_holdout, note_on
from labelchef.io import artefacts, tables
from labelchef.report import ReportData, render_report, require_report
from labelchef.selectors import make_selector, require_suggestions


@dataclass(frozen=True)
class CleanSettings:
    """Everything of `labelchef clean` that is not a file."""

    selector: str = "expected_infl"
    look_ahead: bool = True
    constructor: str = "newton"
    learning_rate: float | None = None
    epochs: int | None = None
    minibatch: int | None = None
    gamma: float | str = "auto"
    l2: float | str = "auto"
    holdout: float | str = "auto"
    budget: int | None = 100
    batch_size: int = 10
    target: float | None = None
    target_metric: str = "f1_macro"
    strategy: str = "one"
    error_rate: float = 0.05
    seed: int = 0


@dataclass(frozen=True)
class CleanInputs:
    """The data of a campaign: arrays or frames as `LabelCleaner.fit` takes them, and who is asked."""

    X: Any
    Y_weak: Any
    X_val: Any
    y_val: Any
    X_test: Any = None
    y_test: Any = None
    y_clean: Any = None
    truth: Any = None
    votes: pd.DataFrame | None = None


@dataclass(frozen=True)
class CleanPaths:
    """The files of `labelchef clean`."""

    features: Path
    weak: Path
    val_features: Path
    val_labels: Path
    test_features: Path | None = None
    test_labels: Path | None = None
    clean_labels: Path | None = None
    truth: Path | None = None
    votes: Path | None = None


@dataclass(frozen=True)
class CleanOutcome:
    """What a campaign came to, and where it lies."""

    folder: Path
    history: pd.DataFrame
    stopped_because: StopReason
    message: str
    files: list[Path] = field(default_factory=list)
    gains: dict[str, Gain] = field(default_factory=dict)
    """Of the target metric, on 'validation' (the samples that judge) and 'test', where there are any."""
    settings: CleanSettings = field(default_factory=CleanSettings)
    """As they were used: gamma and l2 are numbers, given or chosen."""


@dataclass(frozen=True)
class Watcher:
    """Who is told what happens: solver steps of the first model, and every finished round."""

    on_step: Callable[[int, float, float], None] | None = None
    on_round: Callable[[RoundRecord], None] | None = None


def read_inputs(paths: CleanPaths) -> CleanInputs:
    """Read every file, or say which one cannot be read and why."""
    return CleanInputs(
        X=tables.read_features(paths.features, "features"),
        Y_weak=tables.read_weak_labels(paths.weak),
        X_val=tables.read_features(paths.val_features, "validation features"),
        y_val=tables.read_labels(paths.val_labels, "validation labels"),
        X_test=None if paths.test_features is None else tables.read_features(paths.test_features, "test features"),
        y_test=None if paths.test_labels is None else tables.read_labels(paths.test_labels, "test labels"),
        y_clean=None if paths.clean_labels is None else tables.read_labels(paths.clean_labels, "clean labels"),
        truth=None if paths.truth is None else tables.read_labels(paths.truth, "truth"),
        votes=None if paths.votes is None else tables.read_votes(paths.votes),
    )


def clean(
    inputs: CleanInputs,
    settings: CleanSettings,
    folder: Path,
    *,
    title: str = "labelchef report",
    report: bool = True,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> CleanOutcome:
    """Run the campaign and write its artefacts to `folder`.

    The ledger grows by a line a round. Interrupted, the rounds done so far are all written; with `resume` a later
    call takes the ledger's decisions as they are and goes on.
    """
    if report:
        require_report()
    watcher = watcher or Watcher()
    _check_voters(settings)
    cleaner = LabelCleaner(
        selector=settings.selector,
        look_ahead=settings.look_ahead,
        constructor=_constructor(settings, folder),
        gamma=settings.gamma,
        l2=settings.l2,
        holdout=settings.holdout,
        budget=settings.budget,
        batch_size=settings.batch_size,
        target=settings.target,
        target_metric=settings.target_metric,
        random_state=settings.seed,
    )
    with _writing(folder):
        _check_folder(folder, inputs, settings, resume)
        if resume:
            cleaner.set_params(**_chosen(folder))
    names = _fit(cleaner, inputs, watcher.on_step)
    settled = replace(settings, gamma=cleaner.gamma_, l2=cleaner.l2_)
    truth = _truth(cleaner, inputs.truth)
    who = _annotator(cleaner, inputs, settings, truth)
    given = cleaner.cleaned_
    influence = cleaner.scores()
    with _writing(folder):
        ledger = _open_ledger(folder, cleaner, inputs, settings)

    def on_round(record: RoundRecord) -> None:
        artefacts.append_round(ledger, record)
        if watcher.on_round is not None:
            watcher.on_round(record)

    try:
        with _writing(folder):
            result = cleaner.run(who, on_round=on_round)
    except KeyboardInterrupt:
        _catch_up(ledger, cleaner.rounds_)
        result = CleaningResult(
            cleaner.history_,
            StopReason.INTERRUPTED,
            "interrupted; the rounds done are kept, go on with --resume",
            cleaner.rounds_,
        )
    gains = _gains(cleaner)
    data = ReportData(
        title=title,
        message=f"Stopped: {result.message}.",
        history=result.history,
        settings=asdict(settled),
        influence=influence,
        first_selected=_first_selected(result.rounds, influence),
        asked=_asked(result.rounds, inputs, names, truth),
        target_metric=settings.target_metric,
        target=settings.target,
        notes=_notes(settings, gains),
        gains=gains,
    )
    with _writing(folder):
        files = _write(folder, cleaner, result, settled, given, names, gains, data if report else None)
    return CleanOutcome(
        folder, result.history, result.stopped_because, result.message, [*files, ledger], gains, settled
    )


def _constructor(settings: CleanSettings, folder: Path) -> Constructor:
    """The constructor; what DeltaGrad-L went through in training stays in the folder, to resume from."""
    given = {name: getattr(settings, name) for name in ("learning_rate", "epochs", "minibatch")}
    given = {name: value for name, value in given.items() if value is not None}
    if given and settings.constructor == "newton":
        raise InvalidInputError(
            f"{', '.join(given)} given for constructor 'newton', which has no steps to set; leave it out, or take "
            "constructor 'retrain' or 'deltagrad_l'",
            code="constructor",
        )
    descent = DescentSettings(**given, seed=settings.seed)
    return make_constructor(settings.constructor, descent=descent, provenance=folder / "provenance")


def _check_voters(settings: CleanSettings) -> None:
    """Refuse a strategy that lets the suggestion vote where the selector has none, before any work is done."""
    people_needed(settings.strategy)
    selector = make_selector(settings.selector)
    if STRATEGY_VOTERS[settings.strategy][1]:
        require_suggestions(selector)


def _first_selected(rounds: tuple[RoundRecord, ...], influence: Float64s) -> Float64s:
    """Influence at the start of what the first batch held: as the selector saw it, or else by INFL."""
    if len(rounds) < 2:
        return np.empty(0)
    batch = rounds[1].batch
    return np.where(np.isnan(batch.influence), influence[batch.indices], batch.influence)


def _fit(cleaner: LabelCleaner, inputs: CleanInputs, on_step: Callable[[int, float, float], None] | None) -> list[Any]:
    cleaner.fit(
        inputs.X,
        inputs.Y_weak,
        X_val=inputs.X_val,
        y_val=inputs.y_val,
        X_test=inputs.X_test,
        y_test=inputs.y_test,
        y_clean=inputs.y_clean,
        on_step=on_step,
    )
    return list(cleaner.classes_.tolist())


def _encode(cleaner: LabelCleaner, labels: list[Any], what: str) -> Ints:
    return ClassNames(cleaner.classes_.tolist()).encode(labels, what, allow_missing=True)


def _truth(cleaner: LabelCleaner, labels: Any) -> Ints | None:
    if labels is None:
        return None
    ids = _encode(cleaner, labels, "truth")
    if len(ids) != len(cleaner.cleaned_):
        raise InvalidInputError(
            f"truth has {len(ids)} labels; expected {len(cleaner.cleaned_)}, one for each training sample",
            code="truth",
        )
    return ids


def _annotator(cleaner: LabelCleaner, inputs: CleanInputs, settings: CleanSettings, truth: Ints | None) -> Annotator:
    needed = people_needed(settings.strategy)
    people: Annotator | None = None
    if inputs.votes is not None:
        labels = _encode(cleaner, inputs.votes["label"].tolist(), "votes")
        rows = zip(inputs.votes["item"].tolist(), inputs.votes["annotator"].astype(str), labels.tolist(), strict=True)
        last = int(inputs.votes["item"].max()) if len(inputs.votes) else 0
        if last >= len(cleaner.cleaned_):
            raise InvalidInputError(
                f"votes on item {last}; expected rows of the training set, 0 to {len(cleaner.cleaned_) - 1}",
                code="votes",
            )
        people = RecordedVotes(rows, per_item=needed or None)
    elif truth is not None and needed:
        rates = (settings.error_rate,) * needed
        people = SimulatedAnnotators(truth, n_classes=len(cleaner.classes_), error_rates=rates, seed=settings.seed)
    return make_strategy(settings.strategy, people)


def _check_folder(folder: Path, inputs: CleanInputs, settings: CleanSettings, resume: bool) -> None:
    """Refuse a folder that holds another campaign, or none where one is to go on, before any work is done."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger = folder / artefacts.LEDGER
    if resume and not ledger.exists():
        raise InvalidInputError(f"{folder} holds no campaign to go on with; check --out", code="out")
    if ledger.exists() and not resume:
        raise InvalidInputError(
            f"{folder} holds a campaign already; go on with it by --resume, or name another --out", code="out"
        )
    if ledger.exists() and not _same(folder / "campaign.json", _identity(inputs, settings)):
        raise InvalidInputError(
            f"{folder} holds a campaign on other data or with other settings; expected the same inputs, gamma, l2, "
            "holdout (0 for one begun before there was any), selector, look-ahead, constructor and its settings, and seed. "
            "Name another --out",
            code="out",
        )


def _open_ledger(folder: Path, cleaner: LabelCleaner, inputs: CleanInputs, settings: CleanSettings) -> Path:
    """The ledger to append to: new, or taken up again after its decisions have been applied."""
    ledger = folder / artefacts.LEDGER
    if not ledger.exists():
        chosen = {"gamma": cleaner.gamma_, "l2": cleaner.l2_}
        artefacts.write_json(folder / "campaign.json", {**_identity(inputs, settings), "chosen": chosen})
        ledger.touch()
        return ledger
    for past in artefacts.read_ledger(ledger):
        cleaner.query(max(1, len(past.batch)))  # as in the first place: what solvers learned on the way comes back too
        cleaner.replay(past.batch, past.votes, past.decisions, past.seconds)
    return ledger


def _identity(inputs: CleanInputs, settings: CleanSettings) -> dict[str, Any]:
    return {"settings": _lasting(settings), "data": _fingerprint(inputs)}


def _chosen(folder: Path) -> dict[str, float]:
    """The strengths that a campaign began with; one from before they could be chosen has them in its settings."""
    found = json.loads((folder / "campaign.json").read_text())
    chosen = found.get("chosen", found["settings"])
    return {name: chosen[name] for name in ("gamma", "l2")}


def _catch_up(ledger: Path, rounds: tuple[RoundRecord, ...]) -> None:
    """Write down the rounds that an interrupt kept from the ledger."""
    written = len(artefacts.read_ledger(ledger))
    for record in rounds[1 + written :]:
        artefacts.append_round(ledger, record)


def _lasting(settings: CleanSettings) -> dict[str, Any]:
    """Settings that may not change within a campaign; budget, target, batch size and people may."""
    kept = ("selector", "look_ahead", "constructor", "learning_rate", "epochs", "minibatch", "gamma", "l2", "seed")
    return {**{k: v for k, v in asdict(settings).items() if k in kept}, "holdout": as_holdout(settings.holdout)}


def _same(identity: Path, fingerprint: dict[str, Any]) -> bool:
    try:
        found = json.loads(identity.read_text())
        found.pop("chosen", None)
        found["settings"] = {"holdout": 0.0, **found["settings"]}  # before there was such a setting, nothing judged
        return bool(found == json.loads(json.dumps(fingerprint)))
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _fingerprint(inputs: CleanInputs) -> str:
    """A digest of the data: labels whole, of the training features a few thousand rows spread over all."""
    digest = hashlib.sha256()
    X = np.asarray(inputs.X)
    digest.update(repr((X.shape, list(getattr(inputs.Y_weak, "columns", [])))).encode())
    digest.update(np.ascontiguousarray(X[:: max(1, len(X) // 4096)]).tobytes())
    digest.update(np.asarray(inputs.Y_weak, dtype=np.float64).tobytes())
    for part in (inputs.X_val, inputs.X_test):
        digest.update(b"none" if part is None else np.ascontiguousarray(np.asarray(part)).tobytes())
    for labels in (inputs.y_val, inputs.y_test, inputs.y_clean):
        digest.update(repr(None if labels is None else list(labels)).encode())
    return digest.hexdigest()


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Say in a sentence what a disk, a folder or its rights do not allow."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}; make room or name another --out",
            code="out",
        ) from None


def _asked(rounds: tuple[RoundRecord, ...], inputs: CleanInputs, names: list[Any], truth: Ints | None) -> pd.DataFrame:
    weak = np.asarray(inputs.Y_weak, dtype=np.float64)
    rows: list[dict[str, Any]] = []
    for record in rounds:
        decided = record.decisions
        for k, item in enumerate(decided.items.tolist()):
            row = {
                "round": record.number,
                "item": item,
                "weak": names[int(weak[item].argmax())],
                "suggested": _name(names, int(record.batch.suggested[k])),
                "decided": _name(names, int(decided.labels[k])),
                "support": round(float(decided.support[k]), 3),
                "influence": _rounded(float(record.batch.influence[k])),
            }
            rows.append(row if truth is None else {**row, "truth": _name(names, int(truth[item]))})
    return pd.DataFrame(rows, dtype=object)


def _rounded(influence: float) -> float | None:
    return None if np.isnan(influence) else round(influence, 4)


def _name(names: list[Any], class_id: int) -> Any:
    return None if class_id == UNRESOLVED else names[class_id]


def _gains(cleaner: LabelCleaner) -> dict[str, Gain]:
    found = {split: cleaner.gain(split=split) for split in ("validation", "test")}
    return {split: gain for split, gain in found.items() if gain is not None}


def _notes(settings: CleanSettings, gains: dict[str, Gain]) -> list[str]:
    notes = [note_on(gains.get("validation"))]
    if settings.strategy == "two":
        notes.append("No person was asked: every label is the suggestion itself (strategy two).")
    return notes


def _metrics(record: RoundRecord) -> dict[str, Any]:
    parts = {"validation": record.validation, "steering": record.steering, "test": record.test}
    return {name: metrics and metrics.as_dict() for name, metrics in parts.items()}


def _write(
    folder: Path,
    cleaner: LabelCleaner,
    result: CleaningResult,
    settings: CleanSettings,
    given: Bools,
    names: list[Any],
    gains: dict[str, Gain],
    data: ReportData | None,
) -> list[Path]:
    files = [folder / name for name in ("cleaned_labels.csv", "model.npz", "history.csv", "summary.json")]
    W: Float64s = cleaner.W_
    artefacts.write_cleaned_labels(files[0], cleaner.labels_, cleaner.cleaned_, given, names)
    artefacts.write_model(files[1], W, names, asdict(settings))
    artefacts.write_text(files[2], tables.csv_text(result.history))
    first, last = result.rounds[0], result.rounds[-1]
    artefacts.write_json(
        files[3],
        {
            "stopped_because": str(result.stopped_because),
            "message": result.message,
            "before": _metrics(first),
            "after": _metrics(last),
            "gain": {split: {**gain.as_dict(), "doubt": gain.doubt} for split, gain in gains.items()},
            "spent": last.spent,
            "cleaned": last.cleaned,
            "settings": asdict(settings),
            "versions": {"labelchef": labelchef.__version__, "python": platform.python_version()},
        },
    )
    if data is not None:
        files.append(folder / "report.html")
        artefacts.write_text(files[-1], render_report(data))
    return files
