"""Rows that a network has encoded, kept by the digest of what they were made of, so that no row is encoded twice.

    folder / (digest of the encoder) / (digest of the chunk).npz        keys (m, 16) bytes, rows (m, width) float32

A chunk is written whole when it is done; a run that is interrupted goes on with the rows that are in no chunk. Two runs may
write to one folder. A file that cannot be read is as good as none: its rows are encoded again.

Where a cluster is known (`LABELCHEF_CLUSTER`), chunks are encoded by its workers, some at a time; a chunk that a worker cannot
encode, because it died or lacks the network, is encoded here.
"""

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from labelchef.base.cluster_address import cluster_address
from labelchef.base.errors import LabelchefError
from labelchef.base.files import whole_file
from labelchef.base.intake import Progress, no_progress
from labelchef.data.encoders.protocol import Block
from labelchef.model.engines.cluster.workers import connect

CHUNK = 512
"""Rows that are encoded, and written, together."""
_BYTES = 16

Compute: TypeAlias = Callable[[list[int]], Block]
"""Encodes the rows with these numbers: (m, width)."""
Away: TypeAlias = Callable[[list[int]], Callable[[], Block]]
"""Makes of the rows with these numbers a work that another process can do: it holds their contents."""

_log = logging.getLogger("labelchef")
_AHEAD = 2  # chunks for each worker that are on their way: of pictures, 77 MB each


def key_of(content: bytes) -> bytes:
    """The digest of what a row is made of."""
    return hashlib.sha256(content).digest()[:_BYTES]


@dataclass(frozen=True)
class RowCache:
    """The rows of one encoder in a folder; None for a cache that keeps nothing."""

    folder: Path | None
    encoder: str
    """What distinguishes its results from those of other encoders and options."""
    width: int

    def encoded(
        self,
        keys: Sequence[bytes],
        sizes: Sequence[int],
        compute: Compute,
        what: str,
        progress: Progress = no_progress,
        away: Away | None = None,
    ) -> Block:
        """(n, width): rows from the cache, the others computed, the largest first, equal ones once; by `away` on a cluster."""
        B = np.empty((len(keys), self.width), dtype=np.float32)
        places: dict[bytes, list[int]] = {}
        for k, key in enumerate(keys):
            places.setdefault(key, []).append(k)
        done = self._read(places, B)
        left = sorted((rows[0] for key, rows in places.items() if key not in done), key=lambda k: (-sizes[k], k))
        finished = sum(len(places[key]) for key in done)
        progress(what, finished, len(keys))
        for chunk, found in _computed([left[k : k + CHUNK] for k in range(0, len(left), CHUNK)], compute, away):
            self._write([keys[k] for k in chunk], found)
            for k, row in zip(chunk, found, strict=True):
                B[places[keys[k]]] = row
                finished += len(places[keys[k]])
            progress(what, finished, len(keys))
        return B

    @property
    def _own(self) -> Path | None:
        name = f"{self.encoder}\n{self.width}".encode()
        return None if self.folder is None else self.folder / hashlib.sha256(name).hexdigest()[:32]

    def _read(self, places: dict[bytes, list[int]], B: Block) -> set[bytes]:
        done: set[bytes] = set()
        if self._own is None or not self._own.is_dir():
            return done
        for path in sorted(self._own.glob("*.npz")):
            try:
                with path.open("rb") as stream, np.load(stream, allow_pickle=False) as chunk:
                    keys = [row.tobytes() for row in _checked(chunk["keys"], np.uint8, _BYTES)]
                    if not any(key in places and key not in done for key in keys):
                        continue
                    rows = _checked(chunk["rows"], np.float32, self.width)
            except Exception:  # a damaged file of the cache is encoded again
                continue
            for key, row in zip(keys, rows, strict=False):
                if key in places and key not in done:
                    B[places[key]] = row
                    done.add(key)
        return done

    def _write(self, keys: list[bytes], rows: Block) -> None:
        if self._own is None:
            return
        self._own.mkdir(parents=True, exist_ok=True)
        stacked = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, _BYTES)
        name = hashlib.sha256(stacked.tobytes()).hexdigest()[:32]
        with whole_file(self._own / f"{name}.npz") as stream:
            np.savez(stream, keys=stacked, rows=rows)


def _computed(chunks: list[list[int]], compute: Compute, away: Away | None) -> Iterator[tuple[list[int], Block]]:
    """Every chunk with its rows, in their order."""
    left, sent, workers, most = iter(chunks), deque[tuple[list[int], Any]](), None, 0
    if away is not None and len(chunks) > 1:
        workers, most = _cluster()
    failed = False
    while workers is not None and away is not None:
        while not failed and len(sent) < most and (chunk := next(left, None)) is not None:
            sent.append((chunk, workers.task(away(chunk))))
        if not sent:
            break
        chunk, answer = sent.popleft()
        try:
            (found,) = workers.results([answer])
        except Exception as error:
            if not failed:
                _log.warning("rows are encoded here, not on the cluster: %s", error)
            failed, found = True, compute(chunk)
        yield chunk, np.asarray(found, dtype=np.float32)
    for chunk in left:
        yield chunk, np.asarray(compute(chunk), dtype=np.float32)


def _cluster() -> tuple[Any, int]:
    """The workers of the cluster of this machine, if it has one that answers, and how many chunks they are given at a time."""
    address = cluster_address()
    try:
        workers = None if address is None else connect(address)
        return workers, 0 if workers is None else _AHEAD * len(workers.members())
    except LabelchefError as error:
        _log.warning("rows are encoded here, not on the cluster: %s", error)
        return None, 0


def _checked(array: NDArray[np.generic], dtype: type[np.generic], width: int) -> NDArray[np.generic]:
    if array.dtype != dtype or array.ndim != 2 or array.shape[1] != width:
        raise ValueError(f"{array.dtype} {array.shape}")
    return array
