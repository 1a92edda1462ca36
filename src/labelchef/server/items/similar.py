"""Items that are like another one: the cosine of the features, by one sweep over the file of the features.

    s_i = x_i · x / (‖x_i‖ ‖x‖)      for all N rows x_i, a block of rows at a time

Where the features take more than 2 GiB, only every k-th row is read, and the reader is told. One sweep runs at a time, outside
of any transaction, with one BLAS thread: votes do not wait for it. The last answers are kept.
"""

import threading

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.base.browsing import SimilarItem, SimilarItems
from labelchef.base.errors import StoreError
from labelchef.model.engines.threads import one_blas_thread
from labelchef.server.campaigns.access import looking
from labelchef.server.items import items
from labelchef.server.memory import Latest
from labelchef.server.store import campaign_table
from labelchef.server.workspace import Workspace, require_folder

MOST_BYTES = 2 << 30
_BLOCK = 8 << 20
_KEPT = 512
_sweep = threading.Lock()
MOST = 24


class _Nearest(Latest[tuple[str, int], tuple[int, tuple[tuple[int, float], ...]]]):
    """The last answers, by campaign and position."""

    most = _KEPT


def similar(ws: Workspace, campaign: str, item: str, n: int = 8) -> SimilarItems:
    """The `n` training items that are most like a training item."""
    with looking(ws, campaign) as (connection, row):
        position = campaign_table.item_by_key(connection, row.id, item).position
        facts = campaign_table.arrays_of(connection, row.id).get("features")
    key = (row.public_id, position)
    found = ws.memory.of(_Nearest)
    known = found.get(key)
    if known is None:
        path = require_folder(ws, row) / ("features.npy" if facts is None else facts.path)
        try:
            X = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} cannot be read: {error}. Restore it from a copy", code="array_damaged") from None
        with _sweep:
            found[key] = known = nearest(X, position, MOST)
    looked_at, pairs = known
    lines = items.lines_at(ws, campaign, [place for place, _ in pairs[:n]])
    return SimilarItems(tuple(SimilarItem(lines[place], value) for place, value in pairs[:n]), looked_at)


def nearest(
    X: "np.ndarray[tuple[int, ...], np.dtype[np.floating]]", position: int, n: int, most_bytes: int = MOST_BYTES
) -> tuple[int, tuple[tuple[int, float], ...]]:
    """How many rows were compared, and (position, cosine) of the nearest ones but the row itself, most similar first.

    >>> nearest(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), 0, 2)
    (4, ((1, 1.0), (3, 0.7071)))
    """
    x = np.asarray(X[position], dtype=np.float64)
    x = x / max(float(np.linalg.norm(x)), 1e-12)
    every = max(1, -(-X.nbytes // most_bytes))
    rows = np.arange(0, len(X), every)
    step = max(1, _BLOCK // max(1, X.shape[1] * X.itemsize))
    cosines: Float64s = np.empty(len(rows))
    with one_blas_thread():
        for start in range(0, len(rows), step):
            part = np.asarray(X[start * every : (start + step) * every : every])
            lengths = np.sqrt(np.einsum("ij,ij->i", part, part, dtype=np.float64))
            cosines[start : start + step] = (part @ x.astype(part.dtype)) / np.maximum(lengths, 1e-12)
    cosines[rows == position] = -np.inf
    n = min(n, len(rows) - int((rows == position).any()))
    best = np.argpartition(-cosines, n - 1)[:n] if 0 < n < len(rows) else np.arange(len(rows))[:n]
    best = best[np.lexsort((rows[best], -cosines[best]))]
    return len(rows), tuple((int(rows[k]), round(float(cosines[k]), 4)) for k in best)
