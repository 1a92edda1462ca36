"""How rows are cut into parts, and which worker holds which.

A part is what a worker loads, and what is loaded again by another if the worker dies. Where rows are cut depends on the shape of
X only, and sums over rows are added in the order of the parts: results do not depend on the number of workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_PARTS = 64  # at least, where there are enough rows: as many workers can share the work evenly
_PART_BYTES = 1 << 31  # at most
_FEWEST_ROWS = 256


@dataclass(frozen=True)
class Cut:
    """Rows first ≤ i < last of all rows, in part `number`; `more` if they are those after X."""

    number: int
    first: int
    last: int
    more: bool = False

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.last - self.first


def cut_rows(rows: int, row_bytes: int, more: int = 0) -> list[Cut]:
    """Parts of X, then one of the rows after it, if there are any.

    >>> [(cut.first, cut.last) for cut in cut_rows(600, 8, more=5)]
    [(0, 200), (200, 400), (400, 600), (600, 605)]
    """
    count = min(max(_PARTS, -(-rows * row_bytes // _PART_BYTES)), -(-rows // _FEWEST_ROWS))
    ends = [rows * n // count for n in range(count + 1)]
    cuts = [Cut(n, ends[n], ends[n + 1]) for n in range(count)]
    return [*cuts, Cut(count, rows, rows + more, more=True)] if more else cuts


def assigned(
    cuts: Sequence[Cut], held: Mapping[int, str], power: Mapping[str, float], able: Mapping[int, frozenset[str]]
) -> dict[int, str]:
    """A worker for each part: those that are held stay, unless their worker has more than its share and another has less.

    `power` are the workers and how much each can do; `able` says which of them can open a part, where not all can. A part that
    nobody can open is left out. Parts beside each other are given to one worker, as far as loads allow.

    >>> cuts = [Cut(n, n, n + 1) for n in range(4)]
    >>> assigned(cuts, {}, {"a": 1.0, "b": 1.0}, {})
    {0: 'a', 1: 'a', 2: 'b', 3: 'b'}
    >>> assigned(cuts, {0: "a", 1: "a", 2: "gone", 3: "gone"}, {"a": 1.0, "c": 1.0}, {3: frozenset("a")})
    {0: 'a', 1: 'c', 2: 'c', 3: 'a'}
    """
    found = {number: worker for number, worker in held.items() if worker in power}
    load = dict.fromkeys(power, 0.0)
    size = {cut.number: float(cut.rows) for cut in cuts}
    for number, worker in found.items():
        load[worker] += size[number]
    fair = sum(size.values()) / (sum(power.values()) or 1.0)

    def usable(number: int) -> list[str]:
        return [worker for worker in power if worker in able.get(number, power)]

    def give(number: int, worker: str) -> None:
        if number in found:
            load[found[number]] -= size[number]
        found[number] = worker
        load[worker] += size[number]

    last: str | None = None
    for cut in cuts:
        here = usable(cut.number)
        if cut.number in found or not here:
            continue
        if last not in here or load[last] + 0.5 * size[cut.number] > fair * power[last]:
            last = min(here, key=lambda worker: (load[worker] + size[cut.number]) / power[worker])
        give(cut.number, last)
    for cut in reversed(cuts):  # what a new worker takes over
        here = usable(cut.number)
        if cut.number not in found or not here:
            continue
        least = min(here, key=lambda worker: (load[worker] + size[cut.number]) / power[worker])
        mine, half = found[cut.number], 0.5 * size[cut.number]
        if load[mine] - half > fair * power[mine] and load[least] + half < fair * power[least]:
            give(cut.number, least)
    return {number: found[number] for number in sorted(found)}
