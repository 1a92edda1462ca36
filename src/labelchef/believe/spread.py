"""Evidence whose rows the workers of a cluster hold: the passes of a source model run where the rows are.

    votes, weak labels      sent once, and kept from round to round (`send_votes`)
    clean labels            sent for each model, the few that there are
    log p, Q                made on the workers, of the logits that are there; only the last Q comes here
    counts (J·C, C)         of every part, added in the order of the parts; large ones as whole numbers
    (`model.engines.cluster.sums`)

Each part is an `Evidence` of its own on its worker, so the formulas are those of one process.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.believe.evidence import Evidence, Known
from labelchef.believe.votes import SourceVotes
from labelchef.model.contrasts import with_reference
from labelchef.model.engines import OnParts, RowArray
from labelchef.model.softmax import log_probabilities

_SMALL = 1 << 17  # numbers of a table of counts that is sent for every part


def send_votes(workers: OnParts, votes: SourceVotes, given: Float64s) -> RowArray:
    """Let workers hold votes and weak labels, each those of its rows."""

    def part(first: int, last: int) -> Any:
        return votes.rows(slice(first, last)), given[first:last]

    return workers.on_parts(_kept, each=part, makes=[()])[0][0]


@dataclass(frozen=True)
class SpreadEvidence(Known):
    """What is known of samples whose rows workers hold.

    `held` is what `send_votes` gave for these votes and weak labels; `logits` (n, C − 1) are those of the classifier, None where
    it plays no part.
    """

    workers: OnParts
    votes: SourceVotes
    given: Float64s
    held: RowArray
    clean: Ints
    logits: RowArray | None = None
    temperature: float = 1.0
    known_heard: Bools | None = None

    def labelled(self, smoothing: float | None = None) -> RowArray:
        """See `Known.labelled`."""
        return self._made(_labelled, None if self.taken_as_given else self.heard, smoothing)[0]

    def first(self) -> RowArray:
        """See `Known.first`."""
        return self._made(_first, None if self.taken_as_given else self.heard)[0]

    def tallied(self, Q: RowArray, weak: float, silent: float) -> tuple[Float64s, Float64s]:
        """See `Known.tallied`."""
        J, C = self.votes.n_sources, self.votes.n_classes
        large = J * C * C > _SMALL
        _, found = self.workers.on_parts(
            _tallied, reads=[*self._rows, Q], arguments=(weak, silent), makes=[], summed=large
        )
        total = np.asarray(found if large else sum(found))
        return total[:-1].reshape(J, C, C), total[-1]

    def followed(self, prior: Float64s | None, L: Float64s) -> tuple[RowArray, tuple[float, float]]:
        """See `Known.followed`."""
        Q, found = self._made(_followed, prior, L)
        return Q, (float(sum(one for one, _ in found)), float(sum(two for _, two in found)))

    def prior_mass(self) -> Float64s:
        """See `Known.prior_mass`."""
        return np.asarray(sum(self.workers.on_parts(_prior_mass, reads=self._rows, makes=[])[1]))

    def whole(self, Q: RowArray) -> Float64s:
        """See `Known.whole`; labels that are these numbers need not be sent to the workers then."""
        return self.workers.fetched(Q)

    def _made(self, function: Any, *given: Any) -> tuple[RowArray, list[Any]]:
        """A row array (n, C), and the results of the parts."""
        made, found = self.workers.on_parts(
            function, reads=self._rows, arguments=given, makes=[(self.votes.n_classes,)]
        )
        return made[0], found

    @cached_property
    def _rows(self) -> list[RowArray]:
        """On the workers: votes and weak labels, clean labels, and log p if there is a classifier."""
        clean = np.flatnonzero(self.clean >= 0)
        sent = self.workers.on_parts(_kept, each=partial(_clean_of, clean, self.clean[clean]), makes=[()])[0]
        if self.logits is None:
            return [self.held, *sent]
        shape = (self.votes.n_classes,)
        log_p = self.workers.on_parts(_log_p, reads=[self.logits], arguments=(self.temperature,), makes=[shape])[0]
        return [self.held, *sent, *log_p]


def _clean_of(rows: Ints, ids: Ints, first: int, last: int) -> tuple[Ints, Ints]:
    """The clean rows of a part, counted from its first, and their class ids."""
    inside = slice(*np.searchsorted(rows, (first, last)).tolist())
    return rows[inside] - first, ids[inside]


# what workers do with a part: (row arrays that are read, what was sent for the part, arguments) → (row arrays made, result)

Made = tuple[tuple[Any, ...], Any]


def _kept(_: list[Any], sent: Any) -> Made:
    return (sent,), None


def _log_p(rows: list[Any], _: Any, temperature: float) -> Made:
    return (log_probabilities(temperature * with_reference(rows[0])),), None


def _evidence(rows: list[Any]) -> Evidence:
    (votes, given), (clean_rows, ids), *log_p = rows
    clean = np.full(votes.n_rows, -1)
    clean[clean_rows] = ids
    p = log_p[0] if log_p else np.broadcast_to(-np.log(votes.n_classes), given.shape)
    return Evidence(votes, p, clean, given, known_heard=np.ones(votes.n_sources, dtype=bool))


def _counting(rows: list[Any], heard: Bools | None) -> Evidence:
    """With weak labels as given, or, with `heard` (J,), the vote shares of these sources."""
    found = _evidence(rows)
    if heard is None:
        return found
    shares = found.votes.of_sources(np.array(heard)).shares()
    return Evidence(found.votes, found.log_p, found.clean, shares, found.known_heard)


def _labelled(rows: list[Any], _: Any, heard: Bools | None, smoothing: float | None) -> Made:
    return (_counting(rows, heard).labelled(smoothing),), None


def _first(rows: list[Any], _: Any, heard: Bools | None) -> Made:
    return (_counting(rows, heard).first(),), None


def _tallied(rows: list[Any], _: Any, weak: float, silent: float) -> Made:
    *known, Q = rows
    counts, sizes = _evidence(known).tallied(Q, weak, silent)
    return (), np.vstack([counts.reshape(-1, len(sizes)), sizes])


def _followed(rows: list[Any], _: Any, prior: Float64s | None, L: Float64s) -> Made:
    Q, found = _evidence(rows).followed(None if prior is None else np.array(prior), np.array(L))
    return (Q,), found


def _prior_mass(rows: list[Any], _: Any) -> Made:
    return (), _evidence(rows).prior_mass()
