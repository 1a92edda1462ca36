"""The steps of a round on data in memory: select → (annotate → aggregate) → construct → evaluate.

A session holds the state of a campaign. Two steps change it, `select` and `decide`. A step that fails or is interrupted
changes nothing: an interrupt in the middle of `decide` restores the labels.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.learning import Doubt, PeopleFacts, Ruling
from labelchef.base.records import (
    UNRESOLVED,
    Batch,
    Decisions,
    Heard,
    LabelChange,
    RoundRecord,
    SelectionDiagnostics,
    Votes,
)
from labelchef.base.settings import TRUTH
from labelchef.base.validation import CalibrationError, Figure, Gain
from labelchef.believe.hearing import AllVotes
from labelchef.believe.learner import Learner
from labelchef.believe.models import Belief
from labelchef.believe.people import Said, answers_of
from labelchef.believe.vote_weights import VoteWeights
from labelchef.chef.choice import plain_influence
from labelchef.chef.constructors import Construction, Constructor
from labelchef.chef.selectors import SelectionContext, Selector
from labelchef.judge.audit import AuditTrail, audit_size, audit_trail, draw_audit
from labelchef.judge.calibration import calibration_error
from labelchef.judge.deciding import MOST, followed, ruling_of
from labelchef.judge.figures import figures
from labelchef.judge.gain import Judged, gains
from labelchef.loop.judging import Baselines, CrossFitted, Split
from labelchef.loop.pilot import drawn_in_pilot, next_drawn
from labelchef.model.contrasts import with_reference
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Linear, Objective
from labelchef.model.order import Ties
from labelchef.model.softmax import log_probabilities, probabilities
from labelchef.model.solvers import Companion

_NOTHING: Ints = np.empty(0, dtype=np.int64)

MOST_ATTEMPTS = 2
"""How often a sample is asked; if it is still unresolved then, it is given up."""


class _SupposedError(Exception):
    """Ends what was only supposed."""


@dataclass
class Session:
    """A campaign in memory. `start` makes the first model; then `select` and `decide` in turn."""

    objective: Objective
    labels: LabelTable
    steering: Split
    """The validation samples that selection sees; selector and constructor see no other labelled samples."""
    judging: Split | None
    """The validation samples held out for judging; None if there are none: then the steering samples judge too."""
    test: Split | None
    selector: Selector
    constructor: Constructor
    seed: int
    scorer: Selector | None = None
    """Scores every sample by itself; None for the plain form of the selector's measure."""
    learner: Learner | None = None
    """Where trusted samples train: the rows of the objective and of `labels` are then the N samples, and the trusted ones."""
    sources: AllVotes | None = None
    """The votes of all sources, of which the learner hears some; None where there is no learner that could hear others."""
    heard: Heard = field(default_factory=Heard)
    """Which of them the model is made of."""
    metric: str = "f1_macro"
    """What the decision rule is chosen for, where trusted samples train."""
    audit: float = 0.0
    """Share of what is asked that is drawn by chance, to judge the model on."""
    blind_audit: bool = True
    """Whether audited samples come without a suggestion, which could influence the answer."""
    chance_first: bool = False
    """Whether no trusted samples were given: the first answers are drawn by chance and become the trusted ones (`pilot`)."""
    ruling: Ruling | None = None
    """How the model's logits become probabilities and classes; None for the plain way."""
    rounds: list[RoundRecord] = field(default_factory=list)
    fresh: bool = False
    """Whether it was rebuilt for a campaign that had begun and has not moved since: what its solvers learned is not there."""
    _construction: Construction | None = field(default=None, repr=False)
    _first: dict[str, Judged] = field(default_factory=dict, repr=False)
    """The model of round 0, sample by sample, on the parts that judge."""
    """(N,): the samples that could be asked at the start."""
    _weighed: tuple[Float64s, Belief | None, VoteWeights | None] | None = field(default=None, repr=False)
    """Parameters, what was learned about sources, and what votes count beside them."""
    _baselines: Baselines = field(default_factory=Baselines, repr=False)
    _carried: Linear | None = field(default=None, repr=False)
    """The last V that the selector handed over."""
    _selected: dict[tuple[int, int], Batch] = field(default_factory=dict, repr=False)
    _undoable: list[tuple[Ints, Ints, Ints]] = field(default_factory=list, repr=False)
    """For each round that was not undone: its items, and the labels and attempts they had before."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the labels with the objective again: some serialisers copy an array for each reference to it."""
        self.__dict__.update(state)
        self.objective = replace(self.objective, labels=self.labels.rows)

    @property
    def construction(self) -> Construction:
        """The model as it stands."""
        assert self._construction is not None, "start() comes first"
        return self._construction

    @property
    def n_train(self) -> int:
        """N: the samples that can be asked about, without the trusted ones that train with them."""
        return self.objective.engine.n_rows if self.learner is None else self.learner.n_items

    @property
    def parameters(self) -> Float64s:
        """(D, C) parameters of the model as it stands."""
        return self.construction.point.W

    @property
    def label_state(self) -> tuple[Float64s, Bools]:
        """(N, C) clean labels, and weak ones as given; (N,) which of them are clean."""
        known = self.labels.cleaned | (self.labels.given >= 0)
        return self.labels.as_given[: self.n_train], known[: self.n_train]

    def drawn_by_chance(self) -> Bools:
        """(rows,): clean rows that nobody chose because of what was believed: known from the start, or audited."""
        assert self.learner is not None, "trusted samples train"
        found = np.asarray(self.learner.known >= 0)
        for record in self.rounds:
            found[_drawn(record.batch)] = True
        return found & (self.labels.clean_ids >= 0)

    def posterior(self) -> Float64s:
        """(rows, C): what is believed of every row, from model, sources and people; trusted samples come after the N samples."""
        A = with_reference(self.objective.engine.host(self.construction.point.logits))
        return self._belief_in(np.arange(len(A)), A)

    def _belief_in(self, rows: Ints, A: Float64s) -> Float64s:
        """(n, C): the same of some rows, of which the model has logits A (n, C)."""
        if self.learner is None:
            return np.where(self.labels.cleaned[rows, None], self.labels.Y[rows], probabilities(A))
        if self.ruling is None:
            return self.learner.posterior(self.labels, rows, log_probabilities(A))
        found, log_p = self.vote_weights(), log_probabilities(self.ruling.scaled(A))
        return self.learner.posterior(self.labels, rows, log_p, None if found is None else found.weights)

    def vote_weights(self) -> VoteWeights | None:
        """What the votes of each source count in what is believed; None where no source is, or where that is not measured."""
        W = self.construction.point.W
        if self.learner is None or self.ruling is None or not isinstance(self.steering, CrossFitted):
            return None
        if len(self.steering.y) == 0:
            return None
        belief = self.learner.belief
        if self._weighed is None or self._weighed[0] is not W or self._weighed[1] is not belief:
            trusted, answered = self.learner.voted(self.labels)
            A = with_reference(self.steering.settled(W).logits)[np.searchsorted(self.learner.trusted, trusted)]
            if len(answered):
                A = np.vstack([A, self.steering.held_out(self.objective, self.construction, answered)])
            rows, A = np.concatenate([trusted, answered]), self.ruling.scaled(A)
            self._weighed = (W, belief, self.learner.vote_weights(self.labels, rows, A))
        return self._weighed[2]

    def views(self, items: Ints) -> tuple[Float64s, Ints, Float64s]:
        """Of these of the N samples: the model's probabilities (n, C), the class it predicts (n,), what is believed (n, C)."""
        A = with_reference(self.objective.engine.host(self.construction.point.logits[items]))
        scores = A if self.ruling is None else self.ruling.scores(A)
        P = probabilities(A if self.ruling is None else self.ruling.scaled(A))
        return P, np.asarray(scores.argmax(axis=1), dtype=np.int64), self._belief_in(items, A)

    def start(self, on_step: Callable[[int, float, float], None] | None = None) -> RoundRecord:
        """Round 0: the model on the labels as given."""
        began = time.perf_counter()
        if self.learner is not None:
            self.objective = self.learner.adopt(self.objective, self.labels)
            self.learner.believe(self.objective, self.labels)
        construction = self.from_scratch(on_step)
        self._judge(construction)
        batch, decisions = Batch.without_predictions(_NOTHING), Decisions.sure(_NOTHING, _NOTHING)
        timing = {"construct": time.perf_counter() - began}
        record = self._record(construction, batch, Votes.of([]), decisions, _NOTHING, 0, 0, timing)
        self._construction = construction
        self._first = {name: part.judged(construction.point.W) for name, part in self.judges.items()}
        self.rounds.append(record)
        return record

    def from_scratch(self, on_step: Callable[[int, float, float], None] | None = None) -> Construction:
        """A model of the labels as they stand, which depends on nothing else; the session stays as it is."""
        start = None if self.learner is None else self.learner.first_parameters(self.objective, self.labels)
        return self.constructor.initialise(self.objective, self.steering.losses, on_step, start)

    @property
    def judges(self) -> dict[str, Split]:
        """'validation' (the samples that judge) and 'test', where there are such samples already."""
        judging = self.steering if self.judging is None and self.learner is not None else self.judging
        parts = {"validation": judging, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None and len(part.y)}

    def _judge(self, construction: Construction, *, anew: bool = False) -> None:
        """Let the trusted samples that train be judged by models without them, and choose the ruling by that.

        Temperature and τ are chosen for the first model, and `anew` with every choice of the learner; in between, only the
        offsets follow the model.
        """
        if self.learner is None or not isinstance(self.steering, CrossFitted) or len(self.steering.y) == 0:
            return
        shift = self.learner.belief_shift(self.objective, self.labels)
        self.steering.follow(self.objective, construction, shift)
        if self.ruling is None or anew:
            held_out = with_reference(self.steering.settled(construction.point.W).logits)
            self.ruling = ruling_of(held_out, self.steering.y, self._item_logits(construction), self.metric)
        else:
            self.ruling = followed(self.ruling, self._item_logits(construction))
        for part in (self.steering, self.judging, self.test):
            if part is not None:
                part.ruling = self.ruling

    def _item_logits(self, construction: Construction) -> Float64s:
        """(m, C) of the N samples; of every k-th one, if there are more than `MOST`."""
        every = -(-self.n_train // MOST)
        return np.asarray(with_reference(self.objective.engine.host(construction.point.logits[: self.n_train : every])))

    def ruling_of(self, construction: Construction) -> Ruling | None:
        """That of the session for another fit to the same labels: its temperature and τ, with offsets that follow the fit."""
        return None if self.ruling is None else followed(self.ruling, self._item_logits(construction))

    def predicted(self, items: Ints | slice) -> Ints:
        """The classes that the model predicts of these samples."""
        A = with_reference(self.objective.engine.host(self.construction.point.logits[items]))
        return np.asarray((A if self.ruling is None else self.ruling.scores(A)).argmax(axis=1), dtype=np.int64)

    def people(self) -> PeopleFacts | None:
        """How often people err; None with few answers, and where answers are taken for the truth."""
        found = None if self.learner is None else self.learner.people
        return None if found is None else found.facts

    def held_out(self, samples: Ints) -> Float64s | None:
        """(m, C): what a model of the clean samples predicts of these, each without itself; None where there is no such model."""
        return None if self.learner is None else self.learner.held_out(self.objective, self.labels, samples)

    def doubtful(self) -> list[Doubt[int]]:
        """The answered samples that are worth a second look, those where another answer is worth most first."""
        return [] if self.learner is None else self.learner.doubtful(self.labels)

    def audited(self) -> AuditTrail:
        """What was predicted of the audited samples before their answers, and the answers."""
        return audit_trail(self.rounds, self.labels.n_classes)

    def gains_by_split(self) -> dict[str, dict[str, Gain]]:
        """The gains of each metric from the first model to the present one, on the 'validation' and 'test' samples held out.

        None on trusted samples that train: how well the first model and its choices happened to suit just these samples is part
        of the difference, and no interval from the same samples covers that (docs/method.md).
        """
        assert self.rounds, "start() comes first"
        W, C, seed = self.parameters, self.labels.n_classes, self.seed
        return {
            name: gains(part.y, self._first[name], part.judged(W), C, seed)
            for name, part in self.judges.items()
            if not isinstance(part, CrossFitted)
        }

    def figures_by_split(self) -> dict[str, dict[str, Figure]]:
        """Every metric of the present model with its interval, on 'validation' and 'test', where there are such samples."""
        found = {}
        for name, part in self.judges.items():
            now, fitted = part.judged(self.parameters), isinstance(part, CrossFitted)
            found[name] = figures(
                part.y, now.predicted, self.labels.n_classes, seed=self.seed, cross_fitted=fitted, losses=now.losses
            )
        return found

    def calibration(self) -> CalibrationError | None:
        """The calibration error on the samples that judge; None where there are none."""
        part = self.judges.get("validation")
        return None if part is None else calibration_error(part.probabilities(self.parameters), part.y, seed=self.seed)

    def judged(self, split: str) -> tuple[Ints, Judged] | None:
        """True class ids (n,) and the model sample by sample, on 'validation', 'test' or 'steering'; None without samples."""
        if split not in (known := ("validation", "test", "steering")):
            raise InvalidInputError(f"split is {split!r}; expected one of: {', '.join(known)}", code="split")
        part = self.steering if split == "steering" else self.judges.get(split)
        return None if part is None or len(part.y) == 0 else (part.y, part.judged(self.parameters))

    def select(self, batch_size: int, ahead: int = 0) -> Batch:
        """The samples to ask next: the best of those never asked, then of those that were asked but stayed unresolved.

        Calling it again in the same round returns the same batch. `ahead` of them are work ahead, which is not audited: a
        sample is drawn, and predicted, in the round that asks it.
        """
        key = (batch_size, ahead)
        if key not in self._selected:
            self._selected[key] = self._choose(batch_size, ahead, lambda context: replace(context, carry=self._carry))
        return self._selected[key]

    def selected_again(self, batch_size: int, ahead: int, *, ties: Ties) -> Batch:
        """What `select` would give if scores were tied otherwise; the session and what its solvers know stay as they are."""
        keeper = replace(self.construction.keeper)
        return self._choose(batch_size, ahead, lambda context: replace(context, keeper=keeper, ties=ties))

    def _choose(self, batch_size: int, ahead: int, seen: Callable[[SelectionContext], SelectionContext]) -> Batch:
        """The audited samples, then the selector's choice; `seen` adapts what the selector sees."""
        if self.in_pilot:
            return self._drawn_first(batch_size)
        batch = self._audit(batch_size - ahead)
        for tier in self.labels.tiers(MOST_ATTEMPTS):
            eligible = tier.copy()
            eligible[batch.indices] = False
            batch = batch.joined(self.selector.select(seen(self.context(eligible)), batch_size - len(batch)))
            if len(batch) >= batch_size:
                break
        return batch

    @property
    def in_pilot(self) -> bool:
        """Whether batches are drawn by chance, because too few answers are there to judge by."""
        return self.chance_first and not drawn_in_pilot(map(_said_in, self.rounds))[1]

    def _drawn_first(self, batch_size: int) -> Batch:
        """The next samples of the pilot, in the order in which they are drawn; then those that stayed unresolved."""
        found = Batch.without_predictions(_NOTHING)
        for tier in self.labels.tiers(MOST_ATTEMPTS):
            items = next_drawn(tier[: self.n_train], batch_size - len(found), self.seed)
            pairs = zip(items.tolist(), self.predicted(items).tolist(), strict=True)
            never = self.labels.attempts[items] == 0
            drawn = tuple(pair for pair, first in zip(pairs, never.tolist(), strict=True) if first)
            batch = Batch.without_predictions(items)
            found = found.joined(replace(batch, diagnostics=SelectionDiagnostics(audited=drawn)))
        return found

    def _audit(self, batch_size: int) -> Batch:
        """The samples of a batch that are drawn by chance from those never asked; they come first."""
        tier = next(self.labels.tiers(1), None)
        if self.audit == 0.0 or tier is None:
            return Batch.without_predictions(_NOTHING)
        so_far = sum(len(record.batch.diagnostics.audited) for record in self.rounds)
        size = audit_size(self.audit, batch_size, self.spent, so_far, self.seed)
        items = draw_audit(np.flatnonzero(tier), size, len(self.rounds), self.seed)
        pairs = tuple(zip(items.tolist(), self.predicted(items).tolist(), strict=True))
        batch = Batch.without_predictions(items) if self.blind_audit else self.suggest(items)
        return replace(batch, diagnostics=SelectionDiagnostics(audited=pairs))

    def _carry(self, linear: Linear) -> None:
        self._carried = linear

    def scores(self) -> Float64s:
        """(N,) influence of every sample that may be asked, each by itself; NaN elsewhere."""
        found = np.full(self.n_train, np.nan)
        for eligible in self.labels.tiers(MOST_ATTEMPTS):
            batch = self._score(eligible)
            found[batch.indices] = batch.influence
        return found

    def scored(self, items: Ints) -> Batch:
        """Suggestion and influence of these samples in their order, each by itself, as if all of them could be asked."""
        if len(items) == 0:
            return Batch.without_predictions(items)
        eligible = np.zeros(self.objective.engine.n_rows, dtype=bool)
        eligible[items] = True
        return self._score(eligible).aligned(items)

    def suggest(self, items: Ints) -> Batch:
        """These samples as a batch: with suggestions if the selector makes any."""
        return self.scored(items) if self.selector.suggests else Batch.without_predictions(items)

    def _score(self, eligible: Bools) -> Batch:
        """All eligible samples by the scorer; what its solver learns about the curvature is not kept.

        No predictions while there are no trusted samples: an influence is a change of their loss.
        """
        if len(self.steering.y) == 0:
            return Batch.without_predictions(np.flatnonzero(eligible))
        scorer = plain_influence(self.selector) if self.scorer is None else self.scorer
        context = self.context(eligible)
        return scorer.select(replace(context, keeper=replace(context.keeper)), int(eligible.sum()))

    def context(self, eligible: Bools) -> SelectionContext:
        """The round as a selector sees it. The session keeps nothing that it hands to its `carry`."""
        point = self.construction.point
        rng = np.random.default_rng([self.seed, len(self.rounds)])  # the same for a repeated selection
        return SelectionContext(
            self.objective,
            point,
            self.steering.settled(point.W),
            self.steering.at,
            self.steering.gradient_there,
            eligible,
            self.construction.keeper,
            rng,
            self.labels.cleaned,
            self.steering.examples,
            self.rounds,
            self._weak_labels,
            believed=None if self.learner is None else partial(self.learner.posterior, self.labels),
        )

    @property
    def _weak_labels(self) -> Float64s:
        """(rows, C) weak labels that go with the votes that are heard."""
        return self.labels.Y_weak if self.learner is None or self.heard == Heard() else self.learner.given

    def decide(
        self,
        batch: Batch,
        votes: Votes,
        decisions: Decisions,
        seconds: dict[str, float] | None = None,
        *,
        undoing: Ints | None = None,
        heard: Heard | None = None,
    ) -> RoundRecord:
        """Apply decisions to the labels, update the model, evaluate it, and record the round.

        `batch` is what people were asked. `decisions` may hold further items: corrections of labels decided earlier.
        The items of `batch` that had no clean label add to `spent`, decided or not; corrections add nothing.
        `undoing` are the attempts to restore where a round is undone. `heard` says which votes of sources the model is made of
        from now on; None for those it was made of.
        """
        began = time.perf_counter()
        outside = votes.labels[(votes.labels < UNRESOLVED) | (votes.labels >= self.labels.n_classes)]
        if outside.size:
            raise InvalidInputError(
                f"a vote for class {outside[0]}; expected class ids from 0 to {self.labels.n_classes - 1}, "
                "−1 for unresolved",
                code="votes",
            )
        before = self.labels.shown(decisions.items).argmax(axis=1)
        spent, asked = int((~self.labels.cleaned[batch.indices]).sum()), len(batch)
        if undoing is not None:
            spent = asked = 0
        held = self.labels.held(decisions.items)
        with self._as_one(decisions) as change:
            others = self._hear(heard)
            construction = self._follow(change, [*map(_said_in, self.rounds), (votes, decisions, _drawn(batch))])
            anew = others or (self.learner is not None and self.learner.choice != self.rounds[-1].choice)
            self._judge(construction, anew=anew)
            after = self.labels.shown(decisions.items).argmax(axis=1)
            timing = {**(seconds or {}), "construct": time.perf_counter() - began}
            changed = decisions.items[before != after]
            entries = batch.aligned(decisions.items)
            record = self._record(construction, entries, votes, decisions, changed, asked, spent, timing)
            self._construction = construction
            self.rounds.append(record)
            self._selected, self.fresh = {}, False
            if undoing is None and not (others and len(decisions.items) == 0):
                self._undoable = [*self._undoable, (decisions.items, *held)]
            elif undoing is not None:
                self.labels.attempts[decisions.items] = undoing
                self._undoable = self._undoable[:-1]
            if self.learner is not None:
                self.learner.look_ahead(self.objective, self.labels)
        return record

    def undo(self) -> bool:
        """Undo the last round that was not undone yet: its samples get back the labels they had before it.

        False if there is no such round. Undoing is recorded as a round of its own.
        """
        if not self._undoable:
            return False
        items, labels, attempts = self._undoable[-1]
        votes = Votes.of([("undo", items, labels)])
        self.decide(Batch.without_predictions(items), votes, Decisions.sure(items, labels), undoing=attempts)
        return True

    def resume(self, records: Sequence[RoundRecord]) -> None:
        """Go on after these rounds, which are over: apply their decisions, then update the model once.

        The session has its first model only. The model is the same as after the rounds one by one, up to what the
        constructor guarantees; the records are kept as they are.
        """
        assert len(self.rounds) == 1, "start() comes first, and nothing after it"
        final: dict[int, int] = {}
        attempts: dict[int, int] = defaultdict(int)
        for record in records:
            for item, label in zip(record.decisions.items.tolist(), record.decisions.labels.tolist(), strict=True):
                clean = final[item] != UNRESOLVED if item in final else bool(self.labels.cleaned[item])
                attempts[item] += label == UNRESOLVED and not clean  # taking a label back is no attempt
                final[item] = label
        now = records[-1].heard if records else self.heard
        if final or now != self.heard:
            self._hear(now)
            items = np.array(list(final), dtype=np.int64)
            change = self.labels.assign(items, np.array(list(final.values()), dtype=np.int64))
            self.labels.attempts[items] = [attempts[item] for item in final]
            if self.learner is not None:
                self.learner.choice, self.learner.n_before = records[-1].choice, None
            self._construction = self._follow(change, list(map(_said_in, records)))
            self.ruling = records[-1].ruling
            self._judge(self._construction)
        self.rounds.extend(records)
        if self.learner is not None:
            self.learner.look_ahead(self.objective, self.labels)

    @contextmanager
    def _as_one(self, decisions: Decisions) -> Iterator[LabelChange]:
        """Assign the labels; if anything in the `with` block fails, restore them and the state of the session."""
        closed = len(self.rounds)
        before = (self._construction, self._selected, self._undoable, self.objective, self.ruling, self.heard)
        steering = self.steering
        learned = None if self.learner is None else replace(self.learner)
        believed = self.labels.belief
        try:
            with self.labels.assigned(decisions.items, decisions.labels) as change:
                yield change
        except BaseException:
            self._construction, self._selected, self._undoable, self.objective, self.ruling, self.heard = before
            self.steering = steering
            if learned is not None:
                self.learner = learned
                self.labels.believe(*believed)
                self._judge(self.construction)
            del self.rounds[closed:]  # the list may be a ledger's too
            raise

    def _hear(self, heard: Heard | None) -> bool:
        """Let the learner hear these votes; whether they are others than before."""
        if heard is None or heard == self.heard:
            return False
        if self.learner is None or self.sources is None:
            raise InvalidInputError(
                "sources can be muted only where something is learned about them; expected trusted 'train', the default",
                code="muted",
            )
        self.learner.hear(*self.sources.under(heard))
        self.heard = heard
        return True

    @contextmanager
    def supposing(self, heard: Heard, *, keep_choice: bool = False) -> Iterator[None]:
        """In this block, the session is as if its model were made of these votes; then it is as it was.

        With `keep_choice`, source model and strengths are those that are in use; else they are chosen anew.
        """
        choice, nothing = None if self.learner is None else self.learner.choice, Decisions.sure(_NOTHING, _NOTHING)
        with suppress(_SupposedError), self._as_one(nothing) as change:
            self._hear(heard)
            if keep_choice and self.learner is not None:
                self.learner.choice = choice
            construction = self._follow(change, list(map(_said_in, self.rounds)))
            self._judge(construction, anew=True)
            self._construction = construction
            yield
            raise _SupposedError

    @property
    def spent(self) -> int:
        """Samples asked so far."""
        return self.rounds[-1].spent if self.rounds else 0

    @property
    def _believes_nothing(self) -> bool:
        """Whether clean labels alone train, each as it was decided: then a round changes the labels of its samples only."""
        return self.learner is not None and self.learner.belief is None and self.labels.belief[2] is None

    def _follow(self, change: LabelChange, said: list[Said]) -> Construction:
        """The model of the labels as they are after the change; `said` is what people said in all rounds so far."""
        if self.learner is not None:
            self._trust(said)
            if self.learner.answers != TRUTH:
                # answers of the pilot are no sign that people err: no trusted label says of the model what they say of people
                told = [(votes, decisions, ()) for votes, decisions, _ in said] if self.chance_first else said
                self.learner.answered = answers_of(told, self.learner.known)
            believed, before = self._believes_nothing, self.objective.l2
            self.objective = self.learner.adopt(self.objective, self.labels)
            self.learner.believe(self.objective, self.labels)
            same = believed and self._believes_nothing and self.objective.l2 == before
            change = replace(change, everywhere=not same)
        companion = None
        if self._carried is not None and len(self.steering.y):
            companion = Companion(self._carried.V, self._carried.HV, lambda W: self.steering.at(W).gradient)
        return self.constructor.construct(self.objective, self.construction, change, self.steering.losses, companion)

    def _trust(self, said: list[Said]) -> None:
        """Let the decided samples of a pilot that is over be the trusted ones."""
        if not self.chance_first or self.learner is None or not isinstance(self.steering, CrossFitted):
            return
        drawn, over = drawn_in_pilot(said)
        self.learner.trusted = drawn[self.labels.cleaned[drawn]] if over else _NOTHING
        self.steering = self.steering.over(self.objective, self.labels, self.learner.trusted)

    def _record(
        self,
        construction: Construction,
        batch: Batch,
        votes: Votes,
        decisions: Decisions,
        changed: Ints,
        asked: int,
        spent: int,
        seconds: dict[str, float],
    ) -> RoundRecord:
        began, W = time.perf_counter(), construction.point.W
        choice = None if self.learner is None else self.learner.choice
        steering = self.steering.metrics(W)
        anew = not self.rounds or self.rounds[-1].choice != choice
        baselines = self._baselines.measure(
            self.learner, self.objective, self.labels, self.judges, metric=self.metric, anew=anew
        )
        return RoundRecord(
            number=len(self.rounds),
            batch=batch,
            votes=votes,
            decisions=decisions,
            changed=changed,
            asked=asked,
            spent=self.spent + spent,
            cleaned=int(np.count_nonzero(self.labels.cleaned[: self.n_train])),
            validation=steering if self.judging is None else self.judging.metrics(W),
            steering=steering,
            test=None if self.test is None else self.test.metrics(W),
            predicted_change=batch.predicted_change(decisions.labels) / self.objective.engine.n_rows,
            realised_change=steering.loss - self.rounds[-1].steering.loss if self.rounds else float("nan"),
            construction=construction.diagnostics,
            seconds={**seconds, "evaluate": time.perf_counter() - began},
            choice=choice,
            ruling=self.ruling,
            baselines=baselines,
            heard=self.heard,
        )


def _drawn(batch: Batch) -> list[int]:
    """The samples that were drawn by chance."""
    return [item for item, _ in batch.diagnostics.audited]


def _said_in(record: RoundRecord) -> Said:
    return record.votes, record.decisions, _drawn(record.batch)
