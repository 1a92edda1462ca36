"""The charts of the progress page: drawn once a round and theme, then kept."""

import gzip
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from labelchef.domain.errors import NotFoundError
from labelchef.report import require_report
from labelchef.services import campaigns
from labelchef.services.map import map2d
from labelchef.services.progress import ProgressReport, progress
from labelchef.services.workspace import Workspace

NAMES = ("metric", "change", "seconds", "agreement", "map")
THEMES = ("light", "dark")
_KEPT = 128
_cache: "OrderedDict[tuple[str, ...], Drawn]" = OrderedDict()
_reading = threading.Lock()
_drawing = {name: threading.Lock() for name in NAMES}


@dataclass(frozen=True)
class Drawn:
    """A chart as it is sent."""

    svg: bytes
    gzipped: bytes
    digest: str


def stamp(ws: Workspace, campaign: str) -> str:
    """What a drawn chart is good for: it differs once a round is selected or closed, or the target changes."""
    summary, settings = campaigns.summary(ws, campaign), campaigns.settings(ws, campaign)
    last = campaigns.rounds(ws, campaign)[-1:]
    parts = (summary.id, summary.spent, settings.target, settings.target_metric, [(r.number, r.state) for r in last])
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def available(found: ProgressReport) -> list[str]:
    """The charts that have something to show."""
    return [name for name in NAMES if name == "map" or not _FRAMES[name](found).empty]


def draw(ws: Workspace, campaign: str, name: str, theme: str) -> Drawn:
    """A chart as the campaign stands."""
    if name not in NAMES or theme not in THEMES:
        raise NotFoundError(f"there is no chart {name!r}; expected one of: {', '.join(NAMES)}", code="chart")
    key = (str(ws.home), stamp(ws, campaign), name, theme)
    kept = _kept(key)
    if kept is not None:
        return kept
    with _drawing[name]:
        kept = _kept(key)
        if kept is not None:
            return kept
        svg = _svg(ws, campaign, name, theme).encode()
        drawn = Drawn(svg, gzip.compress(svg, 5, mtime=0), hashlib.sha256(svg).hexdigest()[:32])
        with _reading:
            _cache[key] = drawn
            while len(_cache) > _KEPT:
                _cache.popitem(last=False)
        return drawn


def _kept(key: tuple[str, ...]) -> Drawn | None:
    with _reading:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
        return found


def _svg(ws: Workspace, campaign: str, name: str, theme: str) -> str:
    require_report()
    from labelchef.report import charts

    if name == "map":
        points = map2d(ws, campaign)
        frame = pd.DataFrame([(p.x, p.y, p.state) for p in points or ()], columns=["x", "y", "what"])
    else:
        found = progress(ws, campaign)
        frame = _FRAMES[name](found)
    if frame.empty:
        raise NotFoundError(f"there is nothing to draw for {name!r} yet", code="chart")
    if name == "metric":
        return charts.metric_svg(frame, found.metric, found.target, theme)
    plain = {
        "change": charts.change_svg, "seconds": charts.seconds_svg, "agreement": charts.agreement_svg,
        "map": charts.map_svg,
    }  # fmt: skip
    return plain[name](frame, theme)


def _metric(found: ProgressReport) -> pd.DataFrame:
    rows = [
        (one.number, values[found.metric], split)
        for one in found.rounds
        for split, values in (("validation", one.validation), ("test", one.test), ("steering", one.steering))
        if values is not None and found.metric in values and not (split == "steering" and one.gain is None)
    ]
    return pd.DataFrame(rows, columns=["round", "value", "split"])


def _change(found: ProgressReport) -> pd.DataFrame:
    rows = [
        (one.number, change, kind)
        for one in found.rounds
        for kind, change in (("predicted", one.predicted_change), ("realised", one.realised_change))
        if change is not None and one.number > 0
    ]
    return pd.DataFrame(rows, columns=["round", "change", "kind"])


def _seconds(found: ProgressReport) -> pd.DataFrame:
    rows = [(one.number, one.seconds_per_item) for one in found.rounds if one.seconds_per_item is not None]
    return pd.DataFrame(rows, columns=["round", "seconds"])


def _agreement(found: ProgressReport) -> pd.DataFrame:
    pull, pairs = found.suggestion, found.pairs
    rows: list[tuple[str, float, int]] = []
    if pairs:
        items = sum(pair.items for pair in pairs)
        rows.append(("people with each other", sum(pair.agreement * pair.items for pair in pairs) / items, items))
    if pull.shown_agreement is not None:
        rows.append(("with the suggestion, shown", pull.shown_agreement, pull.shown))
    if pull.blind_agreement is not None:
        rows.append(("with the suggestion, blind", pull.blind_agreement, pull.blind))
    return pd.DataFrame(rows, columns=["what", "share", "votes"])


_FRAMES: dict[str, Callable[[ProgressReport], pd.DataFrame]] = {
    "metric": _metric,
    "change": _change,
    "seconds": _seconds,
    "agreement": _agreement,
}
