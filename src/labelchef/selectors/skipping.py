"""The batch of INFL without a sweep, for two classes, where the last sweep proves that it is good enough (`core/anchors.py`).

S₀ = X v₀ and the leverages l of all rows are in memory, v is the direction of this round, ω the bound of its error:

    reach      a guess of the b-th best score: near that of the last round; at first, that of the b best rows by S₀
    potential  of every row, for |x·v − S₀| ≤ l (‖v − v₀‖_M + ω); rows whose potential is short of the reach are not read
    proof      b of the rows that are read reach it; else the b-th best score found is the next guess
    regret     2 ω max l over the rows that were read

The batch is taken if its regret is at most the allowed share of its last score.
"""

from dataclasses import replace

import numpy as np

from labelchef.core.anchors import AnchoredRows, Anchoring, parameters
from labelchef.core.contrasts import with_reference
from labelchef.core.influence import influence_matrix
from labelchef.core.objective import Linear
from labelchef.core.order import smallest
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import Batch, SelectionDiagnostics
from labelchef.engines import kernels
from labelchef.selectors.protocol import SelectionContext

_MOST = 0.05  # of all rows that may be read one by one; with more, a sweep takes less time
_ROUNDING = 1e-9
_NEAR, _TRIES = 0.95, 16  # of the last round's worst score: the first guess; and how many guesses there are


def without_sweep(context: SelectionContext, state: Anchoring, count: int) -> Batch | None:
    """The best `count` eligible samples, proven up to the regret that is allowed; None where that takes a sweep."""
    anchor, objective = state.anchor, context.objective
    known, engine, labels = anchor.known, objective.engine, objective.labels
    if known is None or count == 0:
        return None
    found = state.found or anchor.itself()
    v, error = anchor.direction(objective, found, context.validation.gradient[:, 1], known)
    width = anchor.metric.size(v - known.v) + error
    if not np.isfinite(width):
        return None
    reach = _first_reach(context, state, v, count) if state.last is None else -_NEAR * state.last
    room = np.empty(max(count, int(_MOST * engine.n_rows)), dtype=np.int64)
    for _ in range(_TRIES if reach > 0.0 else 0):
        given = (labels.Y, labels.weight, context.eligible, reach * (1.0 - _ROUNDING), room)
        n = kernels.collect_potential(known.S[:, 0], anchor.metric.leverage, width, *given)
        if n < 0:
            return None
        rows = room[:n]
        scores, by_answer = _scores(context, v, rows)
        top = smallest(scores, count, context.ties, rows=rows)
        last = float(scores[top[-1]]) if len(top) == count else -0.5 * reach
        if len(top) == count and -last >= reach:
            state.last, regret = last, 2.0 * error * float(anchor.metric.leverage[rows].max())
            if regret > -state.share * last:
                return None
            batch = Batch(rows[top], by_answer[top].argmin(axis=1), scores[top], by_answer=by_answer[top])
            return replace(batch, diagnostics=SelectionDiagnostics(candidates=n, slack=-regret))
        reach = -last  # the b-th best score found: no row that cannot reach it is among the first b
    return None


def _first_reach(context: SelectionContext, state: Anchoring, v: Float64s, count: int) -> float:
    """The worst score of the rows that are the best by the products of the anchor; 0 if there are fewer than asked for."""
    anchor, engine = state.anchor, context.objective.engine
    assert anchor.known is not None, "its products are read"
    rough, _ = engine.scores(anchor.logits, anchor.known.S, context.objective.labels, context.eligible)
    rows = engine.lowest(rough, count)
    return -float(_scores(context, v, rows)[0].max()) if len(rows) >= count else 0.0


def _scores(context: SelectionContext, v: Float64s, rows: Ints) -> tuple[Float64s, Float64s]:
    """Scores (m,) and influences by answer (m, 2) of rows, which are read."""
    labels, X = context.objective.labels, context.objective.engine.rows(rows)
    u = context.point.W[:, 1] - context.point.W[:, 0]
    A, S = with_reference((X @ u)[:, None]), with_reference((X @ v)[:, None])
    found = influence_matrix(S, probabilities(A), labels.Y[rows], labels.weight[rows])
    return found.min(axis=1), found


def swept(context: SelectionContext, state: Anchoring) -> SelectionContext:
    """The same round with a model that was swept: one sweep, unless there was one; what is solved for is kept as anchor."""
    point = context.point
    if isinstance(point.logits, AnchoredRows):
        if point.logits.swept is None:
            V = None
            if state.anchor.known is not None and state.found is not None:
                g = context.validation.gradient[:, 1]
                V = parameters(state.anchor.direction(context.objective, state.found, g, state.anchor.known)[0])
            point.logits.swept = context.objective.at(point.W, V=V)
            state.settle(context.objective, point.logits.swept)
        point = point.logits.swept

    def carry(linear: Linear) -> None:
        state.learn(linear)
        context.carry(linear)

    return replace(context, point=point, carry=carry)


def settled(context: SelectionContext) -> SelectionContext:
    """The round for a selector that needs a model that was swept, as all do but INFL without look-ahead."""
    if context.anchoring is None:
        return context
    return replace(swept(context, context.anchoring), anchoring=None)
