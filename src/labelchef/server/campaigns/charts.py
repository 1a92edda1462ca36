"""The charts of the progress page, drawn once a round and theme, then kept; and the map of the items."""

import gzip
import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from labelchef.base.arrays import Float64s
from labelchef.base.campaigns import DecisionKind, SplitName
from labelchef.base.errors import NotFoundError
from labelchef.base.validation import BASELINES, THIS_MODEL
from labelchef.server.campaigns.access import find, looking
from labelchef.server.campaigns.progress import ProgressReport, RoundProgress, progress, progress_for
from labelchef.server.memory import Latest
from labelchef.server.store import campaign_table, decision_table, round_table
from labelchef.server.store.arrays import read_array, write_array
from labelchef.server.store.rows import CampaignRow, DecisionRow, ItemRow
from labelchef.server.workspace import Workspace, folder_of

NAMES = ("metric", "audit", "change", "seconds", "agreement", "map")
FOR_ALL = ("metric", "audit", "map")
"""Charts that annotators see; the others are made of votes and suggestions."""
THEMES = ("light", "dark")
_KEPT = 128
_MAP_ROWS = 1500


@dataclass(frozen=True)
class Drawn:
    """A chart as it is sent."""

    svg: bytes
    gzipped: bytes
    digest: str


class Charts(Latest[tuple[str, ...], Drawn]):
    """The last charts, by stamp, name and theme; one thread draws a chart or computes a map, the others wait for it."""

    def __init__(self) -> None:
        super().__init__(_KEPT)
        self.drawing = {name: threading.Lock() for name in NAMES}
        self.mapping = threading.Lock()


def stamp(ws: Workspace, campaign: str) -> str:
    """What a drawn chart is good for: it differs once a round is selected or closed, or the target changes."""
    with looking(ws, campaign) as (connection, row):
        last = round_table.last_turn(connection, row.id)
    target = (row.settings.target, row.settings.target_metric)
    parts = (row.public_id, row.spent, *target, None if last is None else (last.number, last.state))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def available(found: ProgressReport) -> list[str]:
    """The charts that have something to show."""
    return [*(name for name, frame in frames(found).items() if not frame.empty), "map"]


def draw(ws: Workspace, campaign: str, name: str, theme: str, *, person: str | None = None) -> Drawn:
    """A chart as the campaign stands; with `person`, as annotators see it."""
    names = NAMES if person is None else FOR_ALL
    if name not in names or theme not in THEMES:
        raise NotFoundError(f"there is no chart {name!r}; expected one of: {', '.join(names)}", code="chart")
    key = (stamp(ws, campaign), name, theme, "all" if person is None else "annotators")
    charts = ws.memory.of(Charts)
    drawn = charts.get(key)
    if drawn is None:
        with charts.drawing[name]:
            drawn = charts.get(key)  # another thread may have drawn it meanwhile
            if drawn is None:
                svg = _svg(ws, campaign, name, theme, person).encode()
                drawn = Drawn(svg, gzip.compress(svg, 5, mtime=0), hashlib.sha256(svg).hexdigest()[:32])
                charts[key] = drawn
    return drawn


def _svg(ws: Workspace, campaign: str, name: str, theme: str, person: str | None) -> str:
    from labelchef.judge.report import require_report

    require_report()
    from labelchef.judge.report import charts

    if name == "map":
        return charts.map_svg(map2d(ws, campaign)[["x", "y", "what"]], theme)
    found = progress(ws, campaign) if person is None else progress_for(ws, campaign, person)
    frame = frames(found)[name]
    if frame.empty:
        raise NotFoundError(f"there is nothing to draw for {name!r} yet", code="chart")
    if name == "metric":
        return charts.metric_svg(frame, found.metric, found.target, theme)
    plain = {
        "audit": charts.audit_svg,
        "change": charts.change_svg,
        "seconds": charts.seconds_svg,
        "agreement": charts.agreement_svg,
    }
    return plain[name](frame, theme)


def _lines(one: RoundProgress) -> Iterator[tuple[str, str, Mapping[str, float] | None]]:
    """Split, model and metrics of every line of the chart; those that steer only where others judge."""
    steering = one.steering if one.figures and one.steering != one.validation else None
    for split, values in (("validation", one.validation), ("test", one.test), ("steering", steering)):
        yield split, THIS_MODEL, values
        for name, baseline in one.baselines.get(split, {}).items():
            yield split, BASELINES[name], baseline


def frames(found: ProgressReport) -> dict[str, pd.DataFrame]:
    """What the charts but the map show, by name."""
    metric = [
        (one.number, values[found.metric], split, model)
        for one in found.rounds
        for split, model, values in _lines(one)
        if values is not None and found.metric in values
    ]
    change = [
        (one.number, change, kind)
        for one in found.rounds
        for kind, change in (("predicted", one.predicted_change), ("realised", one.realised_change))
        if change is not None and one.number > 0
    ]
    seconds = [(one.number, one.seconds_per_item) for one in found.rounds if one.seconds_per_item is not None]
    pull, items = found.suggestion, sum(pair.items for pair in found.pairs)
    agreed = sum(pair.agreement * pair.items for pair in found.pairs)
    agreement = [
        ("people with each other", agreed / items if items else None, items),
        ("with the suggestion, shown", pull.shown_agreement, pull.shown),
        ("with the suggestion, blind", pull.blind_agreement, pull.blind),
    ]
    return {
        "metric": pd.DataFrame(metric, columns=["round", "value", "split", "model"]),
        "audit": pd.DataFrame([asdict(point) for point in found.audit.course]),
        "change": pd.DataFrame(change, columns=["round", "change", "kind"]),
        "seconds": pd.DataFrame(seconds, columns=["round", "seconds"]),
        "agreement": pd.DataFrame(agreement, columns=["what", "share", "votes"]).dropna(),
    }


def map2d(ws: Workspace, campaign: str) -> pd.DataFrame:
    """The items in two dimensions, t-SNE of a sample of training and validation rows: columns x, y, what, split, item (its key).

    `what` is 'weak', 'cleaned', 'selected' (in the open batch) or 'validation', by what was decided when the last round was
    closed: a vote that is changed later does not show. The places are computed once and kept as a file.
    """
    row = find(ws, campaign)
    places = _stored_places(ws, row)
    if places is None:
        with ws.memory.of(Charts).mapping:
            places = _stored_places(ws, row)  # another thread may have computed them meanwhile
            if places is None:
                places = _computed_places(ws, row)
    train, trusted = (places[places[:, 0] == kind, 1].astype(int).tolist() for kind in (0, 1))
    with ws.reading() as connection:
        closed = [one.closed_at for one in round_table.rounds_of(connection, row.id) if one.closed_at is not None]
        until = max(closed, default=0.0)
        made = decision_table.decisions(connection, row.id)
        decided = {one.item_id: one for one in made if one.created_at <= until}
        items = campaign_table.items_at(connection, row.id, SplitName.TRAIN, train)
        judges = campaign_table.items_at(connection, row.id, SplitName.VALIDATION, trusted)
        turn = round_table.last_turn(connection, row.id)
        batch = [] if turn is None or not turn.is_open else round_table.batch_of(connection, turn.id)
    opened = {selection.item_id for selection in batch}
    what = [_state(item, decided.get(item.id), opened) for item in (items[position] for position in train)]
    what += ["validation"] * len(trusted)
    keys = [*(items[position].key for position in train), *(judges[position].key for position in trusted)]
    split = [SplitName.TRAIN] * len(train) + [SplitName.VALIDATION] * len(trusted)
    return pd.DataFrame({"x": places[:, 2], "y": places[:, 3], "what": what, "split": split, "item": keys})


def _state(item: ItemRow, made: DecisionRow | None, opened: set[int]) -> str:
    if item.id in opened:
        return "selected"
    label = item.label if made is None or made.kind == DecisionKind.REOPEN else made.label
    return "weak" if label is None else "cleaned"


def _stored_places(ws: Workspace, campaign: CampaignRow) -> Float64s | None:
    """(rows, 4): 0 for training or 1 for validation, position, x, y; None if they were not computed yet."""
    with ws.reading() as connection:
        facts = campaign_table.arrays_of(connection, campaign.id).get("map")
    return None if facts is None else np.asarray(read_array(folder_of(ws, campaign), facts))


def _computed_places(ws: Workspace, campaign: CampaignRow) -> Float64s:
    folder, seed = folder_of(ws, campaign), campaign.settings.seed
    with ws.reading() as connection:
        arrays = campaign_table.arrays_of(connection, campaign.id)
    X, X_val = read_array(folder, arrays["features"]), read_array(folder, arrays["val_features"])
    rng = np.random.default_rng([seed, 2])
    n_val = min(len(X_val), _MAP_ROWS // 4)
    train = np.sort(rng.permutation(len(X))[: _MAP_ROWS - n_val])
    val = np.sort(rng.permutation(len(X_val))[:n_val])
    flat = _embedded(np.concatenate([X[train], X_val[val]]).astype(np.float64), seed)
    kinds = np.repeat([0.0, 1.0], [len(train), len(val)])
    places = np.column_stack([kinds, np.concatenate([train, val]), flat])
    facts = write_array(folder, "map", places, stem=f"map-{ws.leases.life}")  # another process may write one just now
    with ws.writing() as connection:
        campaign_table.put_array(connection, campaign.id, facts)
    return places


def _embedded(X: Float64s, seed: int) -> Float64s:
    """PCA to at most 50 columns, then t-SNE; a handful of rows by PCA alone."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    spread = X - X.mean(axis=0)
    width = min(50, *X.shape)
    if width > 1:
        spread = PCA(width, random_state=seed).fit_transform(spread)
    if len(X) < 12 or width == 1:
        flat = np.zeros((len(X), 2))
        flat[:, : min(2, spread.shape[1])] = spread[:, :2]
        return flat
    perplexity = min(30.0, (len(X) - 1) / 4)
    with threadpool_limits(1):  # its threads would spin against those that serve and select
        tsne = TSNE(2, perplexity=perplexity, init="pca", max_iter=500, random_state=seed)
        return np.asarray(tsne.fit_transform(spread), np.float64)
