"""Receipts: what was predicted of every answered sample and what came of it (`domain.receipts`, docs/method.md).

The effect of one answer is the steering loss with it less the loss without it: the sample would train with what would be believed
of it, (γ, q_i), and neither sources nor clean model would have learned from it. To first order in the step, N times the effect is

    direct     S_i·u_i                      `core.taken_back`, with the curvature of the sample itself
    sources    `given_answers` of `sources.adjoint` for Q̄ = γ S
    clean      −S^c_i·u^c_i                 as in `source_influence`, u^c the residual of the clean model without the sample

with V = H⁻¹ g, S = X V, g the gradient of the steering loss at its temperature: one solve, and three sweeps where sources are
believed, for all answers at once. The choice (source model, γ, λ, μ, T), the temperature and what is known of people's errors
stay as they are. A joint change is not a closed form: labels, beliefs and model are made again without the answers.

Shapes: S, u, q (m, C) for m answers; V, g (D, C).
"""

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from labelchef.campaign.deciding import MOST
from labelchef.campaign.judging import CrossFitted
from labelchef.campaign.session import Session
from labelchef.campaign.source_influence import transposed_product
from labelchef.core.contrasts import with_reference
from labelchef.core.softmax import probabilities
from labelchef.core.solvers import solve_spd
from labelchef.core.taken_back import Inverse, Judges, TakenBack, taken_back
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.learning import Ruling
from labelchef.domain.receipts import Group, Receipt, Receipts, ReceiptSum
from labelchef.domain.records import UNRESOLVED, RoundRecord
from labelchef.selectors.protocol import NOT_PEOPLE
from labelchef.sources.adjoint import adjoint, given_answers
from labelchef.sources.models import make_source_model

MOST_JOINT = 12
"""Persons, classes and sources, of each at most so many, whose joint change is computed: those with the most answers."""
_RESIDUAL, _ITERATIONS = 1e-6, 300


def receipts(session: Session, classes: Sequence[str], *, joint: bool = True, most: int = MOST_JOINT) -> Receipts:
    """All receipts of a session as it stands; without `joint`, no model is fitted again.

    The joint change is computed of all answers, and of at most `most` persons, sources and classes: a fit each. Answers that are
    trusted samples, because none were given, have no receipt: they measure the effects of the others.
    """
    last = _last_decisions(session.rounds)
    measuring = set[int]()
    if session.chance_first and session.learner is not None:
        measuring = set(session.learner.trusted.tolist()) if len(session.steering.y) else set(last)
    rows = np.array(
        [item for item in sorted(last) if session.labels.cleaned[item] and item not in measuring], dtype=np.int64
    )
    closed_form = session.learner is None or session.learner.closed_form
    parts, flips = np.full((3, len(rows)), np.nan), np.full(len(rows), np.nan)
    if closed_form and len(rows):
        parts, flips = effects(session, rows)
    said = _source_votes(session, rows)
    found = []
    for k, item in enumerate(rows.tolist()):
        record, at = last[item]
        direct, by_sources, by_clean = (float(part[k]) for part in parts)
        found.append(
            Receipt(
                item=item,
                round=record.number,
                asked=at < record.asked,
                suggested=int(record.batch.suggested[at]),
                predicted=_predicted(record, at, session.objective.engine.n_rows),
                believed=tuple(record.believed[at].tolist()) if len(record.believed) else (),
                sources=said[k],
                label=int(session.labels.decided[item]),
                support=float(record.decisions.support[at]),
                votes=tuple((who, label) for voted, who, label in record.votes if voted == item),
                effect=direct + by_sources + by_clean,
                direct=direct,
                by_sources=by_sources,
                by_clean=by_clean,
                flips=float(flips[k]),
            )
        )
    sums = _sums(session, found, classes, joint=joint and closed_form, most=most)
    return Receipts(tuple(found), sums, session.steering.metrics(session.parameters).loss, closed_form)


def effects(session: Session, rows: Ints) -> tuple[Float64s, Float64s]:
    """The effects (3, m) of the answers on these samples by their three ways, and the predictions (m,) that they changed."""
    objective, construction, labels, learner = session.objective, session.construction, session.labels, session.learner
    point, engine = construction.point, session.objective.engine
    solved = solve_spd(
        objective, point, _gradient(session), replace(construction.keeper), tol=_RESIDUAL, max_iterations=_ITERATIONS
    )
    S = with_reference(engine.host(solved.linear.S))
    N, found, inverse = engine.n_rows, np.zeros((3, len(rows))), Inverse.at(objective, point)
    if learner is None:
        steps = taken_back(inverse, objective, point, rows, labels.Y_weak[rows], labels.belief[1][rows])
        found[0] = steps.effects(S[rows]) + N * _bend(session, inverse, steps)
        return found / N, _flips(session, steps)
    left = learner.without_each(objective, labels, rows)
    steps = taken_back(inverse, objective, point, rows, left.Q, left.weight)
    found[0] = steps.effects(S[rows]) + N * _bend(session, inverse, steps)
    choice, belief = learner.choice, learner.belief
    if choice is not None and belief is not None and choice.gamma > 0.0:
        A_clean = learner.clean_logits(objective)
        evidence = learner.evidence(A_clean, labels.clean_ids)
        by_belief = choice.gamma * belief.spoken[:, None] * S
        model, Q = make_source_model(choice.model), belief.Q.copy()
        Q[rows] = left.Q
        found[1] = given_answers(model, evidence, by_belief, Q)[rows, labels.clean_ids[rows]]
        by_logits = adjoint(model, evidence, by_belief).logits
        if by_logits.any():
            V = learner.clean_solve(objective, labels, choice.temperature * transposed_product(objective, by_logits))
            S_clean = engine.rows(rows) @ V
            found[2] = -np.einsum("ic,ic->i", S_clean, left.u)
    return found / N, _flips(session, steps)


def without(session: Session, items: Ints) -> tuple[float, Ints]:
    """The model fitted again without the answers on these samples: its steering loss, and the classes (N,) it predicts.

    The choice and the temperature stay.
    """
    table, learner = copy.deepcopy(session.labels), session.learner
    change = table.assign(items, np.full(len(items), UNRESOLVED))
    objective = replace(session.objective, labels=table.rows)
    if learner is not None:
        learner = replace(learner)
        if learner.answered is not None:
            learner.answered = learner.answered.among(~np.isin(learner.answered.samples, items))
        learner.believe(objective, table)
        change = replace(change, everywhere=True)
    before = replace(session.construction, keeper=replace(session.construction.keeper, drift=None))
    construction = copy.deepcopy(session.constructor).construct(objective, before, change, session.steering.losses)
    steering = copy.copy(session.steering)
    if learner is not None and isinstance(steering, CrossFitted):
        steering.follow(objective, construction, learner.belief_shift(objective, table))
    A = with_reference(objective.engine.host(construction.point.logits[: session.n_train]))
    return steering.metrics(construction.point.W).loss, _classes(session, A)


def _classes(session: Session, logits: Float64s) -> Ints:
    """The classes that logits (…, C) come to by the ruling as it is."""
    scores = logits if session.ruling is None else session.ruling.scores(logits)
    return np.asarray(scores.argmax(axis=-1), dtype=np.int64)


def _gradient(session: Session) -> Float64s:
    """g (D, C) of the steering loss at the temperature of the ruling, each trusted sample under the model without it."""
    point, T = session.steering.settled(session.parameters), 1.0
    if session.steering.ruling is None:
        return point.gradient
    T = session.steering.ruling.temperature
    examples = session.steering.examples
    P = probabilities(session.steering.ruling.scaled(with_reference(point.logits)))
    return np.asarray(examples.X.T @ (P - np.eye(P.shape[1])[examples.y]) / (len(P) * T))


def _bend(session: Session, inverse: Inverse, steps: TakenBack) -> Float64s:
    """(m,) what the gradient of the steering loss misses of each effect by the sample itself."""
    steering, point = session.steering, session.construction.point
    A, y = with_reference(steering.settled(point.W).logits), steering.y
    ruling = Ruling(1.0, 0.0, ()) if steering.ruling is None else steering.ruling
    T = ruling.temperature
    judged = Judges.plain(steering.examples.X, A)
    if isinstance(steering, CrossFitted):
        judged = Judges.held_out(inverse, session.objective, point, steering.rows, A)
    gradient = (probabilities(ruling.scaled(A)) - np.eye(A.shape[1])[y])[:, 1:] / (len(y) * T)

    def losses(logits: Float64s) -> Float64s:
        B = ruling.scaled(logits)
        right = np.take_along_axis(B, np.broadcast_to(y[:, None, None], (*B.shape[:2], 1)), axis=2)[:, :, 0]
        return np.asarray((np.logaddexp.reduce(B, axis=2) - right).mean(axis=0))

    return steps.bend(judged, losses, gradient)


def _flips(session: Session, steps: TakenBack) -> Float64s:
    """(m,) training samples whose prediction each step changes, counted on at most `MOST` of them."""
    engine = session.objective.engine
    every = -(-session.n_train // MOST)
    rows = np.arange(0, session.n_train, every)
    X, A = engine.rows(rows), with_reference(engine.host(session.construction.point.logits[rows]))
    now, found = _classes(session, A), np.zeros(len(steps.X))
    for start, moved in steps.steps():
        for k, step in enumerate(moved, start=start):
            found[k] = every * np.count_nonzero(_classes(session, A + with_reference(X @ step.T)) != now)
    return found


def _last_decisions(rounds: Sequence[RoundRecord]) -> dict[int, tuple[RoundRecord, int]]:
    """Of every sample the record of the decision that counts, and its place there; samples without a label are left out."""
    found: dict[int, tuple[RoundRecord, int]] = {}
    for record in rounds:
        undone = any(who == "undo" for who in record.votes.workers)
        for at, (item, label) in enumerate(
            zip(record.decisions.items.tolist(), record.decisions.labels.tolist(), strict=True)
        ):
            if label == UNRESOLVED:
                found.pop(item, None)
            elif not (undone and item in found):  # an undone correction: the answer before it counts again
                found[item] = (record, at)
    return found


def _predicted(record: RoundRecord, at: int, n_rows: int) -> tuple[float, ...]:
    """The predicted change of the steering loss by answer; nothing where the selector predicts nothing."""
    row = record.batch.by_answer[at]
    return () if row.size == 0 or np.isnan(row).all() else tuple((row / n_rows).tolist())


def _source_votes(session: Session, rows: Ints) -> list[tuple[tuple[str, int], ...]]:
    """What each source says of each row; of a soft vote the class with the largest weight."""
    if session.learner is None:
        return [()] * len(rows)
    votes, C, found = session.learner.votes.rows(rows), session.labels.n_classes, []
    for i in range(len(rows)):
        best: dict[int, tuple[float, int]] = {}
        for e in range(votes.table.indptr[i], votes.table.indptr[i + 1]):
            j, c = divmod(int(votes.table.indices[e]), C)
            best[j] = max(best.get(j, (0.0, c)), (float(votes.table.data[e]), c), key=lambda pair: pair[0])
        found.append(tuple((votes.names[j], c) for j, (_, c) in sorted(best.items())))
    return found


def _sums(
    session: Session, found: list[Receipt], classes: Sequence[str], *, joint: bool, most: int
) -> tuple[ReceiptSum, ...]:
    """The sum of all, then by person, source and class, each with the most answers first."""
    shares: dict[tuple[Group, str], dict[int, float]] = defaultdict(dict)
    against: dict[tuple[Group, str], int] = defaultdict(int)
    confirmed: dict[tuple[Group, str], int] = defaultdict(int)
    for k, one in enumerate(found):
        shares[Group.ALL, "all"][k] = 1.0
        shares[Group.CLASS, str(classes[one.label])][k] = 1.0
        behind = [who for who, label in one.votes if label == one.label]
        people = [who for who in behind if who not in NOT_PEOPLE] or behind
        for who in people:
            shares[Group.PERSON, who][k] = 1.0 / len(people)
        for who, label in one.votes:
            against[Group.PERSON, who] += label != one.label and who not in NOT_PEOPLE
        for name, label in one.sources:
            against[Group.SOURCE, name] += label != one.label
            confirmed[Group.SOURCE, name] += label == one.label
            if label != one.label:
                shares[Group.SOURCE, name][k] = 1.0
    loss = session.steering.metrics(session.parameters).loss
    now = session.predicted(np.arange(session.n_train)) if joint else np.empty(0, dtype=np.int64)
    keys = {Group.ALL: [(Group.ALL, "all")], Group.PERSON: [], Group.SOURCE: [], Group.CLASS: []}
    for key in {**shares, **against}:
        if key[0] is not Group.ALL:
            keys[key[0]].append(key)
    sums = []
    for group, names in keys.items():
        size = {key: confirmed[key] if group is Group.SOURCE else len(shares.get(key, {})) for key in names}
        names.sort(key=lambda key: (-size[key] - (against[key] if key[0] is Group.SOURCE else 0), key[1]))
        for place, key in enumerate(names):
            mine, change, flips = shares.get(key, {}), float("nan"), float("nan")
            if joint and mine and (group is Group.ALL or place < most):
                before, classes_before = without(session, np.array([found[k].item for k in mine], dtype=np.int64))
                change, flips = loss - before, float(np.count_nonzero(classes_before != now))
            sums.append(_sum(key, found, mine, size[key], against.get(key, 0), (change, flips)))
    return tuple(sums)


def _sum(
    key: tuple[Group, str],
    found: list[Receipt],
    mine: Mapping[int, float],
    answers: int,
    against: int,
    joint: tuple[float, float],
) -> ReceiptSum:
    predicted = [share * found[k].predicted_effect for k, share in mine.items() if found[k].predicted]
    return ReceiptSum(
        group=key[0],
        name=key[1],
        answers=answers,
        against=against,
        changed=sum(found[k].changed is True for k in mine),
        predicted=float(sum(predicted)) if predicted else float("nan"),
        effect=float(sum(share * found[k].effect for k, share in mine.items())),
        joint=joint[0],
        flips=joint[1],
    )
