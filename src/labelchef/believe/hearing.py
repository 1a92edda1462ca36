"""Which votes of sources a model is made of: those of all sources but the muted ones, in one version of the votes.

A model under `Heard(muted, version)` is that of a campaign that was made without the muted sources, and with the rules of that
version: their columns are not in the table of votes, and weak labels that are shares of votes are the shares of the others. Weak
labels that were given are a source like others (`votes.WEAK_SOURCE`, the last one): muted, they are not read, and the shares of
the other sources stand in their place. What people see of labels "as given", and what the ledger hashes, stays as it was.

Shapes: votes (N + n, J·C), weak labels (N + n, C): the samples that can be asked, then the trusted ones that train.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import Heard
from labelchef.believe import SourceVotes


@dataclass(frozen=True)
class AllVotes:
    """The votes of all sources of a campaign in every version, and the weak labels as they were given."""

    votes: SourceVotes
    """As they came with the data."""
    given: Float64s
    """(N + n, C); not read of the trusted rows."""
    n_items: int
    """N."""
    edited: Callable[[int], SourceVotes] | None = None
    """The votes of a later version; None where there is none."""

    def version(self, number: int) -> SourceVotes:
        """The votes of all sources in a version."""
        if number == 0:
            return self.votes
        assert self.edited is not None, "somebody edited them"
        return self.edited(number)

    def under(self, heard: Heard) -> tuple[SourceVotes, Float64s]:
        """The votes that are heard, and the weak labels that go with them."""
        if heard == Heard():
            return self.votes, self.given
        votes = self.version(heard.version)
        check_names(heard.muted, votes.names)
        kept = ~np.isin(np.array(votes.names, dtype=object), np.array(heard.muted, dtype=object))
        found = votes.only(kept)
        return found, self.given if self._gave_weak and kept[-1] else found.shares()

    @property
    def _gave_weak(self) -> bool:
        """Whether weak labels were given, so that the last source is that."""
        n = slice(self.n_items)
        return self.votes.n_sources > 0 and not np.allclose(self.given[n], self.votes.rows(n).shares())


def check_names(muted: Sequence[str], names: Sequence[str]) -> None:
    """Refuse to mute what is no source."""
    unknown = [name for name in muted if name not in names]
    if unknown:
        known = ", ".join(map(repr, names[:20])) + (" …" if len(names) > 20 else "")
        raise InvalidInputError(f"muted: there is no source {unknown[0]!r}; expected some of: {known}", code="muted")
