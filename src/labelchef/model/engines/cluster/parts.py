"""Parts of the rows: where rows are cut, which worker opens which part, and what a worker does with its parts.

Rows are cut by the shape of X alone, and sums over rows are added in the order of the parts: results do not depend on the number
of workers. A part is the result of a task of Dask (`open_part`), so Dask makes the parts of a dead worker again. A part that
moves to another worker is opened there; its rows are not sent from one worker to another.
"""

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import LabelchefError
from labelchef.base.limits import free_memory
from labelchef.model.engines.choice import DISK, MEMORY_SHARE, choose_placement
from labelchef.model.engines.cluster.sums import Rounded, rounded
from labelchef.model.engines.cluster.workers import ClusterError
from labelchef.model.engines.host import HostEngine
from labelchef.model.engines.memory import MemoryEngine
from labelchef.model.engines.protocol import Engine, RowLabels
from labelchef.model.features import Features

_PARTS = 64  # at least, where there are enough rows: as many workers can share the work evenly
_PART_BYTES = 1 << 31  # at most
_FEWEST_ROWS = 256
_PIECE_BYTES = 4 << 20
_SAMPLED_ROWS = 1 << 14  # of every k-th row, widened at a time
_turn = threading.Lock()  # of the parts of this process: Dask runs as many tasks at once as a worker has threads


def cut_rows(rows: int, row_bytes: int, more: int = 0) -> list[tuple[int, int]]:
    """First row and end of each part of X, then of the rows after X, if there are any.

    >>> cut_rows(600, 8, more=5)
    [(0, 200), (200, 400), (400, 600), (600, 605)]
    """
    count = min(max(_PARTS, -(-rows * row_bytes // _PART_BYTES)), -(-rows // _FEWEST_ROWS))
    cuts = [(rows * n // count, rows * (n + 1) // count) for n in range(count)]
    return [*cuts, (rows, rows + more)] if more else cuts


def shared_out(count: int, held: Mapping[int, str], power: Mapping[str, float]) -> dict[int, str]:
    """A worker for each part, by what each worker can do; a part stays where it is held, unless that worker has too many.

    >>> shared_out(4, {0: "a", 1: "a", 2: "a", 3: "gone"}, {"a": 1.0, "c": 1.0})
    {0: 'a', 1: 'a', 2: 'c', 3: 'c'}
    """
    share = {worker: count * one / sum(power.values()) for worker, one in power.items()}
    load, found = dict.fromkeys(power, 0), dict[int, str]()
    for part, worker in sorted(held.items()):
        if worker in power and load[worker] < share[worker]:
            found[part], load[worker] = worker, load[worker] + 1
    for part in sorted(set(range(count)) - set(found)):
        worker = min(power, key=lambda one: (load[one] + 1) / share[one])
        found[part], load[worker] = worker, load[worker] + 1
    return found


class Part:
    """A part that a worker has: its own engine, in memory, streamed from its files, or on the GPU of the worker.

    `digest` is that of the driver, '' if it cannot read the rows; `together` are the bytes of all parts of the worker.
    """

    def __init__(
        self, first: int, features: Features, digest: str, settings: tuple[str, str | None, bool], together: float
    ) -> None:
        self.first, self.features = first, features
        self._opening = first, features, digest, settings, together

    @cached_property
    def engine(self) -> Engine:
        """Opened by the first task that needs it."""
        from distributed import get_worker

        first, features, digest, (engine, feature_dtype, bias), together = self._opening
        os.environ.setdefault("LABELCHEF_THREADS", str(get_worker().state.nthreads))  # one a core that it was given
        try:
            _check(features, digest)
            placement = choose_placement(engine, feature_dtype, features)
            if engine == "auto" and placement.device is None and not features.in_memory:
                streamed = together > MEMORY_SHARE * free_memory()
                placement = choose_placement(DISK if streamed else "memory", None, features)
            found = placement.training(features, bias=bias)
        except Exception as error:
            what = f"opening rows {first} to {first + features.shape[0]} of {features.what}"
            raise _failed(what, error, ". Bring the file where every worker sees it under this name") from error
        if isinstance(found, HostEngine):  # X has many parts already: more pieces would only be more calls
            found.most_pieces = min(HostEngine.most_pieces, max(1, features.nbytes // _PIECE_BYTES))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Opened again where it arrives."""
        return Part, self._opening

    def __sizeof__(self) -> int:
        """Bytes, for Dask, which counts the memory of a worker."""
        return self.features.nbytes if isinstance(self.__dict__.get("engine"), MemoryEngine) else 1024


def open_part(*opening: Any) -> Part:
    """A part, on a worker that shall have it."""
    part = Part(*opening)
    assert part.engine.n_rows, "rows are cut so that no part is empty"
    return part


def digest_of(features: Features) -> str:
    """A digest of the first and the last row."""
    rows = np.ascontiguousarray(features.take([0, features.shape[0] - 1]))
    return hashlib.sha256(rows.tobytes()).hexdigest()[:16]


def _check(features: Features, digest: str) -> None:
    if digest and digest_of(features) != digest:
        raise ValueError("it holds other numbers there than here")


def _failed(doing: str, error: Exception, remedy: str = "") -> ClusterError:
    """The error of a task, which names the worker."""
    from distributed import get_worker

    worker = get_worker().address
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return ClusterError(
            f"worker {worker} has no memory left ({doing}: {error}); start more workers, or workers with more memory, and "
            "try again. Nothing was changed"
        )
    return ClusterError(f"worker {worker} failed ({doing}): {type(error).__name__}: {error}{remedy}")


@dataclass(frozen=True)
class Reply:
    """The results of some parts, in their order, or their sum; the worker that made them, and in how many seconds."""

    results: Any
    worker: str
    seconds: float


def on_parts(
    parts: Sequence[Part],
    function: Callable[..., Any],
    given: tuple[Any, ...],
    columns: Sequence["Sequence[Any] | Reply"],
    summed: bool,
) -> Reply:
    """The results of `function(part, *given, one of each column)`; a reply as a column stands for the logits in it."""
    from distributed import get_worker

    began, total = time.perf_counter(), Rounded()
    rows = [[one[0] for one in column.results] if isinstance(column, Reply) else column for column in columns]
    try:
        with _turn:
            found = [function(part, *given, *(column[n] for column in rows)) for n, part in enumerate(parts)]
    except LabelchefError:
        raise
    except Exception as error:
        raise _failed(function.__name__, error) from error
    for matrix in found if summed else ():
        rounded(matrix, total)
    return Reply(total if summed else found, get_worker().address, time.perf_counter() - began)


def labels_of(Y: Sequence[Float64s], weight: Sequence[Float64s]) -> list[RowLabels]:
    """The labels of some parts; copies, since what comes with a message may be read-only."""
    return [RowLabels(np.array(y), np.array(w)) for y, w in zip(Y, weight, strict=True)]


def sweep(
    part: Part, K: Float64s, wanted: tuple[bool, ...], labels: RowLabels, logits: Float64s | None = None
) -> tuple[Any, Any, Float64s, float]:
    """Logits and products, where they are made; the sums that are wanted (m, D), and the loss. See `Engine._sweep`."""
    has_W, has_V, gradient, product = wanted
    k, engine = labels.Y.shape[1] - 1, part.engine
    if not has_W and logits is None:  # only the products of V are wanted
        logits = np.zeros((engine.n_rows, k))
    found = engine.sweep(
        labels,
        W=np.array(K[:k], dtype=np.float64) if has_W else None,
        logits=None if logits is None else engine.place(np.array(logits)),
        V=np.array(K[len(K) - k :], dtype=np.float64) if has_V else None,
        gradient=gradient,
        hessian_product=product,
        roughly=K.dtype == np.float32,
    )
    sums = [engine.host(M) for M in (found.gradient, found.hessian_product) if M is not None]
    A = np.array(engine.host(found.logits)) if has_W else None
    Z = np.array(engine.host(found.products)) if has_V else None
    return A, Z, np.vstack(sums) if sums else np.empty((0, engine.n_columns)), found.loss


def gram(part: Part, step: int, row_weight: Float64s) -> Float64s:
    """The Gram matrix of every `step`-th of all rows, as far as they are in this part."""
    engine = part.engine
    if step == 1:
        return np.asarray(engine.host(engine.gram(engine.place(np.array(row_weight)))), dtype=np.float64)
    G = np.zeros((engine.n_columns, engine.n_columns))
    rows = np.arange(-part.first % step, engine.n_rows, step)
    for start in range(0, len(rows), _SAMPLED_ROWS):
        some = rows[start : start + _SAMPLED_ROWS]
        B = engine.rows(some) * np.sqrt(row_weight[some])[:, None]
        G += B.T @ B
    return G


def squares(part: Part) -> Float64s:
    """‖x_i‖² of its rows."""
    return np.array(part.engine.host(part.engine.row_squares()))


def some_rows(part: Part, indices: Ints) -> Float64s:
    """Some of its rows, with the bias if there is one."""
    return part.engine.rows(np.array(indices))
