"""What is known of every source, and what muting it would change.

Muting source j takes its votes out of the learner: its factor out of the beliefs, its share out of counted votes. The choice and
the clean model stay. The weak part of ∇F changes by (γ/N) Σ_i x_i ⊗ (q_i − q⁻ⱼ_i), W by −H⁻¹ of that, and so the loss on the
trusted samples, cross-fitted, by

    Δ_j = (γ/N) Σ_i S_i · (q⁻ⱼ_i − q_i),       S = X V,  H V = g

to first order. q⁻ⱼ is exact where j votes, with the rates of the other sources as they are; that those change too is counted to
first order (`believe.muting`). One solve for V serves all sources.

Shapes: S, q (N + n, C); rates θ (J, C, C) by source, vote, class; g, V (D, C).
"""

import json
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csc_array
from scipy.stats import t as student

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.learning import FEWEST_VOTES, NO_SOURCES, Harm, SourceFacts
from labelchef.believe import SourceVotes
from labelchef.believe.models import Belief, make_source_model
from labelchef.believe.muting import muted
from labelchef.judge.gain import LEVEL
from labelchef.judge.proportions import exact_bounds
from labelchef.loop.judging import CrossFitted
from labelchef.loop.session import Session
from labelchef.model.contrasts import with_reference
from labelchef.model.softmax import probabilities
from labelchef.model.solvers import solve_spd

_HARDLY = 0.05
"""Log-odds below which a vote hardly counts."""
_RESIDUAL, _ITERATIONS = 1e-4, 200
_TRIED = 3  # sources of which it is seen by a model without them whether they harm: each costs a fit


SHOWN = 50
"""Sources that a table for people has at most: those with the most votes. `sources.csv` has all."""

MUTED = "muted by you"
"""`SourceFacts.use` of a source that the setting `muted` names."""

NOTHING_LEARNED = (
    "Nothing is learned about sources: trusted samples only steer, and weak labels count as they are given."
)
NO_SOURCE = "There is no source yet: the model learns from trusted labels and from answers alone."


UNWEIGHED = (
    f"Fewer than {FEWEST_VOTES} samples of known class have votes: what votes count together is not measured yet, and the "
    "probabilities of the data set are those of the model alone. Answers, or votes on trusted samples, change that."
)


@dataclass(frozen=True)
class SourceReport:
    """The sources as people see them."""

    sources: tuple[SourceFacts, ...]
    """Those with the most votes, at most `SHOWN` of them; the most votes first."""
    total: int
    classes: tuple[str, ...]
    model: str
    """The source model in use; 'none' where weak labels are not used, '' where trusted samples only steer."""
    harmful: tuple[Harm, ...] = ()
    """Those that harm beyond doubt, the worst first."""
    weighed_on: int | None = None
    """Clean samples with votes on which it was measured what votes count together; None where no source is believed."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, a sentence each."""
        if not self.sources:
            return (NO_SOURCE if self.model else NOTHING_LEARNED,)
        model = f"The source model in use is {self.model}."
        if self.model == NO_SOURCES:
            model = "Weak labels are not used: without them the cross-validation was better. What is known of their sources:"
        notes = [*map(str, self.harmful), model]
        if len(self.sources) < self.total:
            notes.append(f"These are the {len(self.sources)} sources with the most votes, of {self.total}.")
        unknown = sum(one.measured_on < FEWEST_VOTES for one in self.sources)
        if unknown:
            few = f"fewer than {FEWEST_VOTES} votes on samples of known class that nobody chose"
            notes.append(f"{unknown} of {len(self.sources)} sources are not measured yet: {few}.")
        if self.weighed_on:
            notes.append(f"What their votes count together is measured on {self.weighed_on} samples of known class.")
        elif self.weighed_on == 0:
            notes.append(UNWEIGHED)
        return tuple(notes)

    def as_json(self) -> dict[str, Any]:
        """In JSON's types."""
        facts = [{**one.as_json(), "about": one.about} for one in self.sources]
        return {
            "model": self.model,
            "total": self.total,
            "classes": self.classes,
            "notes": self.notes,
            "harmful": [asdict(one) for one in self.harmful],
            "sources": facts,
        }


def source_report(
    session: Session, classes: Sequence[Hashable], facts: Sequence[SourceFacts] | None = None
) -> SourceReport:
    """The sources of a session, to show to people; `facts` of all of them where they are known."""
    learner = session.learner
    if learner is None or learner.choice is None:
        return SourceReport((), 0, tuple(map(str, classes)), "" if learner is None else NO_SOURCES)
    votes = every_vote(session).rows(slice(session.n_train)).counts
    most = np.argsort(-votes, kind="stable")[:SHOWN]
    shown = source_facts(session, most) if facts is None else [facts[j] for j in most]
    weighed = session.vote_weights()
    on = None if weighed is None else weighed.measured_on
    names = tuple(map(str, classes))
    return SourceReport(tuple(shown), len(votes), names, learner.choice.model, harms(session), on)


def every_vote(session: Session) -> SourceVotes:
    """The votes of all sources as they are now, of muted ones too."""
    learner = session.learner
    assert learner is not None, "trusted samples train"
    return learner.votes if session.sources is None else session.sources.version(session.heard.version)


def source_facts(session: Session, places: Ints | None = None) -> list[SourceFacts]:
    """What is known of the sources at these places, else of all in their order; empty where trusted samples only steer.

    The votes of muted sources are compared with what is believed without them, and with the votes of the sources that are heard.
    """
    learner = session.learner
    if learner is None or learner.choice is None:
        return []
    votes, N, C = every_vote(session), session.n_train, session.labels.n_classes
    chosen = np.arange(votes.n_sources) if places is None else places
    posterior, clean = session.posterior(), session.labels.clean_ids
    fair = session.drawn_by_chance()
    table, heard = csc_array(votes.table), learner.votes
    others = np.asarray(heard.shares(smoothing=1e-9) * np.asarray(heard.presence.sum(axis=1)).reshape(-1, 1))
    changes, evidence = muting(session), learner.evidence(np.zeros((len(clean), C)), clean)
    given, number = evidence.given_source, {name: k for k, name in enumerate(heard.names)}
    found = []
    for j in chosen.tolist():
        k = number.get(votes.names[j])
        block = table[:, j * C : (j + 1) * C].tocsr()
        rows = np.flatnonzero(np.diff(block.indptr))
        T = block[rows].toarray()  # (n_j, C)
        asked = rows < N
        known = fair[rows]
        joint = posterior[rows].T @ T  # (class, vote)
        right, total = float(np.trace(joint)), float(joint.sum())
        hits = float((T[known] * np.eye(C)[clean[rows[known]]]).sum())
        low, high = _bounds(np.array(hits), np.array(float(known.sum())), np.array(total))
        seen = np.eye(C)[clean[rows[known]]].T @ T[known]
        each = seen.sum(axis=1, keepdims=True)
        each_low, each_high = _bounds(seen, each, joint.sum(axis=1, keepdims=True))
        shares = [
            [None] * C if n < FEWEST_VOTES else (line / n).tolist() for line, n in zip(seen, each[:, 0], strict=True)
        ]
        differs = (others[rows] - (0.0 if k is None else T) > 1e-6) & (T < 1.0 - 1e-6)
        weight = float("nan") if k is None else _weight(learner.belief, k, T, C)
        use = MUTED
        if k is not None:
            counted, muted = given in (None, k), given is None and not evidence.heard[k]
            use = _use(learner.choice.model, learner.belief, weight, counted=counted, muted=muted)
        found.append(
            SourceFacts(
                name=votes.names[j],
                votes=int(asked.sum()),
                coverage=float(asked.sum()) / max(1, N),
                measured_on=int(known.sum()),
                accuracy=hits / float(known.sum()) if known.sum() >= FEWEST_VOTES else float("nan"),
                accuracy_low=float(low),
                accuracy_high=float(high),
                believed=right / total if total else float("nan"),
                conflicts=float(differs.any(axis=1).mean()) if len(rows) else float("nan"),
                weight=weight,
                use=use,
                muting=float("nan") if k is None else float(changes[k]),
                confusion=tuple(map(tuple, shares)),
                confusion_low=_rows(each_low),
                confusion_high=_rows(each_high),
                believed_confusion=_rows(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-12)),
            )
        )
    return found


def sources_frame(session: Session) -> pd.DataFrame:
    """The same as a frame, a row a source."""
    return facts_frame(source_facts(session))


def facts_frame(facts: Sequence[SourceFacts]) -> pd.DataFrame:
    """Facts of sources as a frame."""
    return pd.DataFrame([asdict(one) for one in facts])


def flat_frame(facts: Sequence[SourceFacts]) -> pd.DataFrame:
    """The same for a file: confusions as JSON, [class][vote]."""
    frame = facts_frame(facts)
    return frame.assign(**{name: frame[name].map(json.dumps) for name in frame.columns if "confusion" in name})


def muting(session: Session, places: Ints | None = None) -> Float64s:
    """Predicted changes of the cross-fitted loss, were each of the sources that are heard, at these places or all, muted.

    NaN where weak labels are not used, while there are no trusted samples, and for networks.
    """
    learner, objective, construction = session.learner, session.objective, session.construction
    assert learner is not None, "trusted samples train"
    assert learner.choice is not None, "start() comes first"
    votes = learner.votes
    chosen = np.arange(votes.n_sources) if places is None else places
    nothing = len(session.steering.y) == 0 or learner.choice.model == NO_SOURCES
    if nothing or learner.belief is None or not learner.closed_form:
        return np.full(len(chosen), np.nan)
    g, keeper = session.steering.settled(construction.point.W).gradient, replace(construction.keeper)
    solved = solve_spd(objective, construction.point, g, keeper, tol=_RESIDUAL, max_iterations=_ITERATIONS)
    S = with_reference(objective.engine.host(solved.linear.S))
    evidence = learner.evidence(learner.clean_logits(objective), session.labels.clean_ids)
    by_belief = learner.choice.gamma * learner.belief.spoken[:, None] * S
    P = probabilities(with_reference(objective.engine.host(construction.point.logits)))
    changes = muted(make_source_model(learner.choice.model), evidence, by_belief, P)
    return np.asarray(changes[chosen] / objective.engine.n_rows)


def harms(session: Session) -> tuple[Harm, ...]:
    """The source that harms most, if one does beyond doubt: without it others may help. The session stays as it is.

    For the sources of which the closed form says most clearly that muting helps, the model without them is made, with the choice
    as it is. Both models are compared on the trusted samples, cross-fitted, by the differences d_k of their losses at their
    temperatures: a source harms if mean(d) + t · sd(d) / √n < 0, with Student's t at 1 − 5 % / 2J for all J sources together.
    """
    part, found = session.steering, list[Harm]()
    if session.learner is None or session.sources is None or not isinstance(part, CrossFitted) or len(part.y) < 2:
        return ()
    changes, names = muting(session), session.learner.votes.names
    if not names:
        return ()
    before, n = part.judged(session.parameters).losses, len(part.y)
    wide = float(student.ppf(1 - (1 - LEVEL) / (2 * len(names)), n - 1) / np.sqrt(n))
    for j in np.argsort(changes, kind="stable")[:_TRIED].tolist():
        if not changes[j] < 0.0:
            break
        heard = replace(session.heard, muted=(*session.heard.muted, names[j]))
        with session.supposing(heard, keep_choice=True):
            d = part.judged(session.parameters).losses - before
            change, error = float(d.mean()), wide * float(d.std(ddof=1))
            found += [Harm(names[j], change, change - error, change + error)] if change + error < 0.0 else []
    return tuple(sorted(found, key=lambda one: one.change)[:1])


def _weight(belief: Belief | None, j: int, T: Float64s, n_classes: int) -> float:
    """Mean over the votes of log θ(v | v) − log of the mean of θ(v | c), c ≠ v."""
    if belief is None or belief.rates is None or len(T) == 0:
        return float("nan")
    rates = belief.rates[j]
    other = (rates.sum(axis=1) - np.diag(rates)) / (n_classes - 1)
    cast = T.sum(axis=0)
    return float(cast @ (np.log(np.diag(rates)) - np.log(other)) / cast.sum())


def _use(model: str, belief: Belief | None, weight: float, *, counted: bool, muted: bool) -> str:
    if model == NO_SOURCES or belief is None:
        return "not used"
    if belief.rates is None:
        return "muted" if muted else "counted" if counted else "not used"
    if not abs(weight) >= _HARDLY:
        return "muted"
    return "as it votes" if weight > 0 else "turned"


def _bounds(hits: Float64s, total: Float64s, everything: Float64s) -> tuple[Float64s, Float64s]:
    """The interval of a share among the votes that were not measured, of `total` that were; `everything` is both.

    That share varies too, by p(1 − p) / their number: the measured votes tell as much as fewer would.
    """
    others = np.maximum(everything - total, 0.0)
    fewer = np.where(others > 0.0, others / np.maximum(others + total, 1.0), 1.0)
    return exact_bounds(fewer * hits, fewer * total)


def _rows(matrix: Float64s) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in row) for row in matrix)
