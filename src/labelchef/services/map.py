"""A map of the items in two dimensions."""

import threading
from dataclasses import dataclass

import numpy as np

from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.campaigns import DecisionKind, SplitName
from labelchef.services.folders import folder_of
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, decision_table, item_table, round_table, selection_table
from labelchef.store.arrays import read_array, write_array
from labelchef.store.rows import CampaignRow

_MAP_ROWS = 1500


_SPLITS = (SplitName.TRAIN, SplitName.VALIDATION)


_mapping = threading.Lock()


@dataclass(frozen=True)
class MapPoint:
    """An item on the map."""

    item: str
    split: SplitName
    x: float
    y: float
    state: str
    """'weak', 'cleaned', 'selected' (in the open batch) or 'validation'."""
    label: str


def map2d(ws: Workspace, campaign: str, *, compute: bool = True) -> list[MapPoint] | None:
    """The items in two dimensions: t-SNE of a sample of training and validation rows.

    The places are computed once and kept as a file; without `compute`, None if they are not there yet.
    """
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        known = campaign_table.arrays_of(connection, row.id).get("map")
    if known is None:
        if not compute:
            return None
        with _mapping:
            places = _places(ws, row)
    else:
        places = np.asarray(read_array(folder_of(ws, row), known))
    return _points(ws, row, places)


def _places(ws: Workspace, campaign: CampaignRow) -> Float64s:
    """(rows, 4): 0 for training or 1 for validation, position, x, y; computed by the first who asks."""
    folder = folder_of(ws, campaign)
    with ws.reading() as connection:
        arrays = campaign_table.arrays_of(connection, campaign.id)
    if "map" in arrays:
        return np.asarray(read_array(folder, arrays["map"]))
    X, X_val = read_array(folder, arrays["features"]), read_array(folder, arrays["val_features"])
    seed = campaign.settings.seed
    rng = np.random.default_rng([seed, 2])
    n_val = min(len(X_val), _MAP_ROWS // 4)
    train = _sample(rng, len(X), _MAP_ROWS - n_val)
    val = _sample(rng, len(X_val), n_val)
    places = np.column_stack(
        [
            np.repeat([0.0, 1.0], [len(train), len(val)]),
            np.concatenate([train, val]),
            _embedded(np.concatenate([X[train], X_val[val]]).astype(np.float64), seed),
        ]
    )
    facts = write_array(folder, "map", places)
    with ws.writing() as connection:
        campaign_table.put_array(connection, campaign.id, facts)
    return places


def _sample(rng: np.random.Generator, n: int, most: int) -> Ints:
    return np.sort(rng.permutation(n)[:most]).astype(np.int64)


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


def _points(ws: Workspace, campaign: CampaignRow, places: Float64s) -> list[MapPoint]:
    with ws.reading() as connection:
        classes = campaign_table.classes_of(connection, campaign.id)
        decided = decision_table.last_decisions(connection, campaign.id)
        turn = round_table.last_round(connection, campaign.id)
        opened = set()
        if turn is not None and turn.is_open:
            opened = {s.item_id for s in selection_table.batch_of(connection, turn.id)}
        positions = {split: places[places[:, 0] == k, 1].astype(int).tolist() for k, split in enumerate(_SPLITS)}
        items = {split: item_table.items_at(connection, campaign.id, split, at) for split, at in positions.items()}
        weak_facts = campaign_table.arrays_of(connection, campaign.id)["weak"]
    weak = read_array(folder_of(ws, campaign), weak_facts)
    points = []
    for kind, position, x, y in places.tolist():
        split = _SPLITS[int(kind)]
        item = items[split][int(position)]
        decision = decided.get(item.id)
        label, state = item.label, "validation" if kind else "cleaned"
        if not kind and decision is not None and decision.kind != DecisionKind.REOPEN:
            label = decision.label
        if label is None:
            label, state = int(np.argmax(weak[int(position)])), "weak"
        if item.id in opened:
            state = "selected"
        points.append(MapPoint(item.key, split, x, y, state, classes[label]))
    return points
