"""Anchored Increm-INFL: the same batch as full INFL, without looking at every sample.

Two ways, both exact, chosen by what is at hand:

1. **Products at hand** (the default). Whoever proves V by its residual has computed X·V on the way, so S = X V is there
   when the solve is done. A score is −Σ_c q_c (S_c − min S), no less than minus the spread of S[i], whatever the labels
   and the model say: one glance at S[i] rules out nearly all samples, their label most others, and only the rest are scored.
2. **Anchors** (`free_products=False`: V comes from elsewhere, products do not). The bounds of `core.bounds` from cached
   products of earlier V's, in a data-adapted norm; the rows that may matter are read and evaluated exactly.

Either way: L = the b-th smallest upper bound; candidates = all whose lower bound is at most L; the top b of their exact
scores are the top b of all. When bounds cannot prune, everything is evaluated, and the diagnostics say so.

Anchors are renewed by a cost rule: reading a scattered row costs about four times its share of a sweep, and once the rows
read since the last renewal have cost a sweep, the next round makes one and keeps its products. Rows are counted, not
seconds, so every machine decides alike.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from labelchef.core.bounds import ROUNDING, AdaptedNorm, adapt_norm, fit_directions, half_spread
from labelchef.core.contrasts import contrast, with_reference
from labelchef.core.influence import smallest
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import Batch
from labelchef.engines import RowArray, RowLabels, Screen, Shortlist
from labelchef.selectors.direction import Direction, InfluenceSelector
from labelchef.selectors.infl import at_rows, lowest_first, score_everything
from labelchef.selectors.protocol import SelectionContext

GATHER = 4.0
"""Cost of reading a row out of order, in shares of a sweep."""

_MEMORY = 0.1  # of X, for anchors
_TRIES = 16
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Anchor:
    """What a sweep left behind: W, a basis of directions B (q, D) with Z = X B (N, q), probabilities P (N, k), norms ν (N,)."""

    W: Float64s
    B: Float64s
    Z: RowArray
    P: RowArray
    nu: RowArray
    norm: AdaptedNorm

    @property
    def nbytes(self) -> int:
        """Memory of the per-sample arrays."""
        return int(self.Z.nbytes + self.P.nbytes + self.nu.nbytes)


@dataclass
class AnchoredSelector(InfluenceSelector):
    """INFL without looking at every sample.

    Bounds are rigorous; `rank` directions of the data make their norm, up to `basis` V's the anchor.
    """

    free_products: bool = True
    rank: int = 128
    basis: int = 4
    name: ClassVar[str] = "increm_infl"
    anchor: Anchor | None = field(default=None, init=False, repr=False)
    _last: float | None = field(default=None, init=False, repr=False)
    _limit: float | None = field(default=None, init=False, repr=False)
    _spent: float = field(default=0.0, init=False, repr=False)

    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """The batch for a V that is already known."""
        pick = self._by_products if self.free_products else self._by_anchors
        batch = pick(context, direction, batch_size, began)
        self._last = float(batch.influence[-1]) if len(batch) == batch_size else None
        if self._last is None or batch.diagnostics.refreshed:
            self._limit = self._last
        return batch

    def _by_products(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        engine, S = context.objective.engine, direction.solution.linear.S
        labels, reach = context.objective.labels, -0.95 * self._last if self._last is not None else 0.0
        for _ in range(_TRIES if reach > 0.0 else 0):
            rows = engine.within_reach(S, labels, context.eligible, reach)
            if rows is None:
                break
            best, label = engine.scores_of(rows, context.point.logits, S, labels)
            top = smallest(best, batch_size)
            worst = float(best[top[-1]]) if len(top) == batch_size else -0.5 * reach
            if len(top) == batch_size and worst <= -reach:
                diagnostics = direction.diagnostics(len(rows), began, slack=-reach - worst)
                return Batch(rows[top], label[top], best[top], diagnostics)
            reach = -worst  # the b-th best of those listed: nothing out of its reach can be among the first b
        batch = score_everything(context, direction, batch_size, began)
        return Batch(batch.indices, batch.suggested, batch.influence, replace(batch.diagnostics, fell_back=True))

    def _by_anchors(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        engine, n_rows = context.objective.engine, context.objective.engine.n_rows
        sweeps = engine.sweeps
        found = self._shortlist(context, direction.solution.linear.V, batch_size)
        share = 0.0 if found is None else GATHER * len(found.indices) / n_rows
        if found is None or self._spent + share > 1.0:
            batch = self._refresh(context, direction, batch_size, began)
            made = replace(batch.diagnostics, sweeps=direction.sweeps + engine.sweeps - sweeps, fell_back=found is None)
            return Batch(batch.indices, batch.suggested, batch.influence, made)
        self._spent += share
        best, label = self._evaluate(context, direction, found.indices)
        top = smallest(best, batch_size)
        slack = found.rest - float(best[top[-1]]) if len(top) else float("inf")
        made = direction.diagnostics(len(found.indices), began, slack)
        made = replace(made, sweeps=direction.sweeps + engine.sweeps - sweeps)
        return Batch(found.indices[top], label[top], best[top], made)

    def _shortlist(self, context: SelectionContext, V: Float64s, batch_size: int) -> Shortlist | None:
        """The candidates, or None where bounds cannot tell: no anchor yet, a move too large, too few samples."""
        anchor, limit = self.anchor, self._limit
        if anchor is None or limit is None:
            return None
        M, e = fit_directions(anchor.norm, anchor.B, contrast(V))
        move = half_spread(anchor.norm.of_directions(contrast(context.point.W - anchor.W)))
        labels = context.objective.labels
        screen = Screen(anchor.Z, M, anchor.P, anchor.nu, e, move, ROUNDING)
        for _ in range(_TRIES):
            listed = context.objective.engine.possibly_below(screen, labels, context.eligible, limit)
            if listed is None:
                return None
            if len(listed.indices) < batch_size:
                limit *= 0.8
                continue
            L = float(np.partition(listed.upper, batch_size - 1)[batch_size - 1])
            if limit >= L:  # whoever has a lower bound up to L is on the list
                self._limit = 0.97 * L
                kept = listed.lower <= L
                rest = min(listed.rest, float(listed.lower[~kept].min(initial=np.inf)))
                return Shortlist(listed.indices[kept], listed.lower[kept], listed.upper[kept], rest)
            limit = L  # the b-th smallest of some upper bounds: that of all is no larger
        return None

    def _evaluate(self, context: SelectionContext, direction: Direction, rows: Ints) -> tuple[Float64s, Ints]:
        """Exact scores of a few rows, read from X."""
        labels = context.objective.labels
        few = RowLabels(labels.Y[rows], labels.weight[rows])
        engine = context.objective.engine.subset(rows)
        out = engine.sweep(few, W=contrast(context.point.W), V=contrast(direction.solution.linear.V))
        assert out.products is not None
        return engine.scores_of(np.arange(len(rows)), out.logits, out.products, few)

    def _refresh(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """One sweep: exact scores of everything, and its products for later rounds."""
        objective, V = context.objective, direction.solution.linear.V
        out = objective.engine.sweep(objective.labels, W=contrast(context.point.W), V=contrast(V))
        assert out.products is not None
        best, label = objective.engine.scores(out.logits, out.products, objective.labels, context.eligible)
        rows = lowest_first(objective.engine, best, batch_size)
        self.anchor = self._anchored(context, out.logits, contrast(V), out.products)
        self._spent = 0.0
        made = direction.diagnostics(int(np.count_nonzero(context.eligible)), began)
        return Batch(rows, *at_rows(objective.engine, rows, label, best), replace(made, refreshed=True))

    def _anchored(self, context: SelectionContext, logits: RowArray, V: Float64s, S: RowArray) -> Anchor:
        engine, old = context.objective.engine, self.anchor
        norm = adapt_norm(context.keeper.factor, engine.n_columns, self.rank) if old is None else old.norm
        nu = norm.of_rows(engine) if old is None else old.nu
        k = V.shape[0]
        room = (_MEMORY * engine.row_bytes / 8 - k - 1) / k
        kept = k * (max(1, min(self.basis, int(room))) - 1)
        B = V if old is None else np.vstack([V, old.B[:kept]])
        Z = S if old is None else engine.xp.hstack([S, old.Z[:, :kept]])
        return Anchor(context.point.W, B, Z, _probabilities(logits, engine.xp), nu, norm)


def _probabilities(logits: RowArray, xp: Any) -> RowArray:
    """P of all classes but class 0, a chunk of rows at a time."""
    P = xp.empty_like(logits)
    for start in range(0, len(logits), _CHUNK):
        rows = slice(start, start + _CHUNK)
        P[rows] = probabilities(with_reference(logits[rows], xp), xp)[:, 1:]
    return P
