"""Features in several pieces: files of a folder, batches of an Arrow file. Rows are counted through.

A folder holds `*.npy`, `*.parquet` or `*.arrow`/`*.feather` files, in the order of their names.
What a name promises is checked: of `part-00002-of-00005.npy` five must be there. A manifest, `features.json`, is more certain:

    {"shards": [{"file": "a.npy", "rows": 500000}, {"file": "b.npy", "rows": 480000}]}
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError
from labelchef.model.features.contract import Features, Stored
from labelchef.model.features.reading import Buffers

MANIFEST = "features.json"
KINDS_OF_FILES = (".npy", ".parquet", ".arrow", ".feather")
"""Endings of shards."""
_PROMISED = re.compile(r"(.*?)(\d+)-of-(\d+)(.*)")


class ShardedFeatures(Features):
    """Pieces with the same columns and type, one after the other."""

    def __init__(self, shards: Sequence[Features], what: str) -> None:
        first = shards[0]
        for one in shards[1:]:
            if one.shape[1] != first.shape[1] or one.dtype != first.dtype:
                raise InvalidInputError(
                    f"{one.what} has {one.shape[1]} columns of {one.dtype}; expected {first.shape[1]} of {first.dtype}, as "
                    f"{first.what} has. Write the shard again, or take it out of {what}",
                    code="features",
                )
        self._shards = tuple(shards)
        self._starts = np.concatenate([[0], np.cumsum([len(one) for one in shards])])
        self.readers = max(one.readers for one in shards)
        super().__init__((int(self._starts[-1]), first.shape[1]), first.dtype, what)

    def check(self) -> None:
        """See `Features.check`."""
        for one in self._shards:
            one.check()

    def _cuts(self, first: int, last: int, rows: int) -> Iterator[tuple[int, int]]:
        for k in range(self._shard(first), self._shard(last - 1) + 1):
            start, stop = max(first, int(self._starts[k])), min(last, int(self._starts[k + 1]))
            shard, begin = self._shards[k], int(self._starts[k])
            inner = begin - shard._first
            for a, b in shard._cuts(start - inner, stop - inner, rows):
                yield a + inner, b + inner

    def _shard(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _read(self, first: int, last: int, buffers: Buffers) -> Stored:
        k = self._shard(first)
        shard, inner = self._shards[k], int(self._starts[k]) - self._shards[k]._first
        if last <= self._starts[k + 1]:
            return shard._read(first - inner, last - inner, buffers)
        cut = int(self._starts[k + 1])
        return np.concatenate([shard._read(first - inner, cut - inner, buffers), self._read(cut, last, buffers)])

    def _pick(self, indices: Ints) -> Stored:
        found = np.empty((len(indices), self.shape[1]), self.dtype)
        ends = np.searchsorted(indices, self._starts)
        for k, (a, b) in enumerate(itertools.pairwise(ends)):
            if a < b:
                shard = self._shards[k]
                found[a:b] = shard._pick(indices[a:b] - int(self._starts[k]) + shard._first)
        return found


def shard_names(names: Sequence[str], manifest: bytes | None, what: str) -> list[tuple[str, int | None]]:
    """(file, rows that a manifest says) of the shards among the files of a folder, in order.

    >>> shard_names(["b.npy", "a.npy", "notes.txt"], None, "x")
    [('a.npy', None), ('b.npy', None)]
    """
    if manifest is not None:
        return _from_manifest(names, manifest, what)
    shards = sorted(name for name in names if Path(name).suffix in KINDS_OF_FILES and name[0] != ".")
    kinds = sorted({Path(name).suffix for name in shards})
    if len(kinds) != 1:
        found = f"files of several kinds ({', '.join(kinds)})" if kinds else f"no {', '.join(KINDS_OF_FILES)} files"
        raise InvalidInputError(f"{what} holds {found}; expected shards of one kind", code="features")
    promised: dict[tuple[str, str, str], set[int]] = {}
    for name in shards:
        match = _PROMISED.fullmatch(name)
        if match:
            promised.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
    for (begin, count, end), there in promised.items():
        first = min(*there, 1)
        missing = sorted(set(range(first, first + int(count))) - there)
        if missing:
            name = f"{begin}{missing[0]:0{len(count)}d}-of-{count}{end}"
            raise InvalidInputError(
                f"{what}: the shard {name} is missing, {len(there)} of {int(count)} are there. Bring it back",
                code="features",
            )
    return [(name, None) for name in shards]


def _from_manifest(names: Sequence[str], manifest: bytes, what: str) -> list[tuple[str, int | None]]:
    try:
        shards = [(str(one["file"]), int(one["rows"])) for one in json.loads(manifest.decode("utf-8"))["shards"]]
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"  # the text of a UnicodeDecodeError is short, its repr holds the file
        raise InvalidInputError(
            f'{what}: {MANIFEST} cannot be read ({why}); expected UTF-8, {{"shards": [{{"file": "a.npy", "rows": 1000}}, …]}}',
            code="features",
        ) from None
    if not shards:
        raise InvalidInputError(f"{what}: {MANIFEST} names no shards; expected one or more", code="features")
    missing = next((name for name, _ in shards if name not in names), None)
    if missing is not None:
        raise InvalidInputError(
            f"{what}: the shard {missing} is missing, which {MANIFEST} names. Bring it back", code="features"
        )
    return list(shards)


def open_shards(
    names: Sequence[tuple[str, int | None]], open_one: Callable[[str], Features], what: str
) -> ShardedFeatures:
    """The shards by their names; each must have the rows that were said."""
    shards = []
    for name, rows in names:
        one = open_one(name)
        if rows is not None and len(one) != rows:
            raise InvalidInputError(
                f"{one.what} has {len(one)} rows; expected {rows}, as {MANIFEST} says. Write one of them again",
                code="features",
            )
        shards.append(one)
    return ShardedFeatures(shards, what)


def open_folder(folder: Path, open_one: Callable[[Path], Features]) -> ShardedFeatures:
    """The shards of a folder."""
    names = [entry.name for entry in folder.iterdir() if entry.is_file()]
    manifest = (folder / MANIFEST).read_bytes() if MANIFEST in names else None
    return open_shards(shard_names(names, manifest, str(folder)), lambda name: open_one(folder / name), str(folder))
