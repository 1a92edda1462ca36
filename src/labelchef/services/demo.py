"""The demo: real digits, weak labels from simple rules, simulated people, one folder of results."""

from pathlib import Path

from labelchef.campaign.data import CampaignData
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.settings import Settings
from labelchef.io.digits import load_digits_demo
from labelchef.report import require_report
from labelchef.services.clean import Answers, CleanOutcome, Watcher, clean


def demo_settings(seed: int = 0) -> Settings:
    """What the demo runs with."""
    return Settings.with_strategy("one", budget=200, batch_size=10, seed=seed)


def demo(folder: Path, *, seed: int = 0, report: bool = True, watcher: Watcher | None = None) -> CleanOutcome:
    """Clean the digits and write everything to `folder`."""
    data = load_digits_demo(seed)
    whole = CampaignData.of(
        data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val, X_test=data.X_test, y_test=data.y_test
    )
    settings, answers = demo_settings(seed), Answers(truth=data.y.tolist())
    return clean(whole, answers, settings, folder, title="labelchef demo: digits", report=report, watcher=watcher)


def fresh_folder(folder: Path, *, report: bool) -> None:
    """Clear an earlier demo away, if a new one can be made; a folder that holds anything else is not touched."""
    if report:
        require_report()
    if not folder.exists():
        return
    known = {
        "cleaned_labels.csv",
        "model.npz",
        "history.csv",
        "summary.json",
        "report.html",
        "rounds.jsonl",
        "campaign.json",
    }
    strangers = (
        [entry.name for entry in folder.iterdir() if entry.name not in known] if folder.is_dir() else [folder.name]
    )
    if strangers:
        raise InvalidInputError(f"{folder} holds {strangers[0]!r}, which no demo wrote; name another --out", code="out")
    for entry in folder.iterdir():
        entry.unlink()
