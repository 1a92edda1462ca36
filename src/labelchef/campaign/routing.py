"""Who is asked: annotators with prices and errors, and the answer that tells most for its price.

The selector says which samples are worth a label, as ever. The router says who is asked about them, whether a second answer is
worth its price, and whether an earlier answer is worth another look. With q_i what is believed of sample i, Π_g(c, v) the
probability that annotator g answers v on a sample of class c (`confusions` estimates both), and a price per answer,

    rate(i, g) = I_g(q_i) / price_g           I: what the answer is expected to tell, in nats (`confusions.information`)

1. Every sample of the batch that nobody has answered is put to the annotator with the highest rate; equal ones take turns.
2. *The going rate* is the median over these samples of their highest rate before anything was asked: what money buys on samples
   that the selector chooses; or the highest rate of an answered sample outside the batch, if that is more.
3. A further answer on a sample of the batch is bought while its rate reaches the going rate. q_i moves with every answer, by
   Bayes' rule; errors are estimated anew after the round, along with the model.
4. The next batch begins with answered samples on which a further answer exceeds the median rate of the selector's samples.

So "nobody" is an answer too: the model's prediction is free, and a sample of which it is sure has a rate near 0.

**New annotators.** How often an annotator errs is not known at first. Until it has `explore` answers (those on gold included) it
is put to the first samples of a batch, the same for all new annotators, so that they can be compared. What that may cost is at
most `EXPLORED` of the budget, in equal parts for each of the new ones.

With one annotator who never errs this is the plain loop: every sample of the batch gets one answer. Answers are a source
here: a sample trains with q_i, not with the answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from labelchef.annotators import Annotator
from labelchef.campaign.confusions import expected_confusions, facts_of, information, prior_density
from labelchef.campaign.learner import Learner
from labelchef.campaign.session import Session
from labelchef.core.contrasts import with_reference
from labelchef.core.softmax import log_probabilities
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.numbers import check_number, check_whole
from labelchef.domain.records import UNRESOLVED, Batch, Decisions, StopReason, Votes
from labelchef.domain.routing import BETWEEN, AnnotatorFacts, Kind, Price
from labelchef.domain.settings import TRUTH

EXPLORED = 0.2
"""Largest share of the budget that is spent to get to know annotators."""
ALIKE = 0.01
"""Annotators whose rates differ by less than this share are asked in turn."""
_LEAST = 1e-6
"""Nats that an answer must be expected to tell."""
_MOST_SURE = 1.0 - 1e-9  # a decision with full support against a vote would count as someone's last word


@dataclass(frozen=True)
class Priced:
    """An annotator with its price: who answers, what an answer costs, and what is known of its errors.

    `who` gives a vote on each item it is asked about, or none where it has no answer, which costs nothing. A crowd (kind 'crowd')
    is a sequence: the k-th gives the k-th answer on an item. The other fields are those of `domain.routing.Price`.
    """

    name: str
    price: float
    who: Annotator | Sequence[Annotator]
    kind: Kind = "person"
    error: float | None = None
    gold: int = 0

    def __post_init__(self) -> None:
        if not all(isinstance(one, Annotator) for one in self.members):
            raise InvalidInputError(
                f"{self.name} is answered by {self.who!r}; expected one of labelchef.annotators, or for a crowd several",
                code="prices",
            )
        _ = self.card  # a price that cannot be is refused here

    @property
    def members(self) -> tuple[Annotator, ...]:
        """Who gives the first answer on an item, the second, …"""
        return (self.who,) if isinstance(self.who, Annotator) else tuple(self.who)

    @property
    def card(self) -> Price:
        """All but who answers."""
        return Price(self.name, self.price, self.kind, self.error, self.gold, most=len(self.members))


@dataclass(eq=False)
class Router:
    """Asks, of several annotators, the one whose answer tells most for its price, until the money is spent.

    It takes the place of annotator and aggregator in `LabelCleaner.run`. After it, `facts` says what is known of each annotator
    and what was paid, and `spent` what was paid in all. The budget of the cleaner, in samples, holds too: None for no limit.

    >>> from labelchef.annotators import GroundTruth
    >>> Router([Priced("ann", 1.0, GroundTruth([0, 1]))], budget=-1.0)
    Traceback (most recent call last):
    labelchef.domain.errors.InvalidInputError: budget is -1.0; expected a number above 0
    """

    annotators: Sequence[Priced]
    budget: float | None = None
    """Money for all answers; None for no limit."""
    explore: int = 10
    """Answers of an annotator by which it becomes known."""
    _session: Session | None = field(default=None, repr=False)
    _silent: Bools = field(default_factory=lambda: np.empty((0, 0), dtype=bool), repr=False)
    """(N, G) where an annotator had no answer."""
    _believed: dict[int, Float64s] = field(default_factory=dict, repr=False)
    """Of the items that were answered last."""
    _stuck: bool = field(default=False, repr=False)
    """Whether the last batch could not be given a single answer."""

    def __post_init__(self) -> None:
        names = [one.name for one in self.annotators]
        if not names or len(set(names)) < len(names):
            raise InvalidInputError(
                f"annotators {names}; expected at least one, each with a name of its own", code="prices"
            )
        if self.budget is not None:
            check_number(self.budget, "budget", above=0.0)
        check_whole(self.explore, "explore", 0)

    def attend(self, session: Session) -> None:
        """Ask for the samples of this session from now on; its learner takes answers for a source."""
        learner = session.learner
        if learner is None or not learner.closed_form:
            raise InvalidInputError(
                "a router needs what is believed of every sample; expected a LabelCleaner with trusted='train', the default",
                code="trusted",
            )
        if learner.answers == TRUTH:
            raise InvalidInputError(
                "answers is 'truth', and a router asks annotators who err; expected answers='auto' or 'source'",
                code="answers",
            )
        learner.prices = self.cards
        self._session, self._silent = session, np.zeros((session.n_train, len(self.annotators)), dtype=bool)
        self._believed, self._stuck = {}, False

    @property
    def cards(self) -> tuple[Price, ...]:
        """The annotators without who answers."""
        return tuple(one.card for one in self.annotators)

    @property
    def spent(self) -> float:
        """Paid so far."""
        return float(self._counts().sum(axis=0) @ self._prices)

    @property
    def facts(self) -> tuple[AnnotatorFacts, ...]:
        """What is known of each annotator, and what was paid."""
        learner, C = self._learner, self._attended.labels.n_classes
        known = None if learner.weighed is None else learner.weighed.densities
        densities = [prior_density(card, C) for card in self.cards] if known is None else list(known)
        counts = self._counts().sum(axis=0).tolist()
        return tuple(facts_of(*one) for one in zip(self.cards, densities, counts, strict=True))

    def ending(self) -> tuple[StopReason, str] | None:
        """Why no more can be asked for money; None while some is left."""
        if self.budget is None:
            return None
        spent = self.spent
        if not self._stuck and self.budget - spent >= self._prices.min() * (1.0 - 1e-9):
            return None
        return StopReason.BUDGET, f"{StopReason.BUDGET}: {spent:g} of {self.budget:g} paid for answers"

    def again(self, size: int) -> Ints:
        """Answered samples on which a further answer is worth more than on those that the selector would choose, best first."""
        given, money = self._counts(), self._left()
        items, rates = self._answered(given, money)
        fresh = self._attended.select(size).indices
        least = _LEAST
        if len(fresh):
            least = max(
                least, float(np.median(self._rates(fresh, self._beliefs(fresh), given[fresh], money).max(axis=1)))
            )
        wanted = np.flatnonzero(rates > least)
        return np.asarray(items[wanted[np.lexsort((items[wanted], -rates[wanted]))]][:size], dtype=np.int64)

    def annotate(self, batch: Batch) -> Votes:
        """Ask about a batch, one answer after another."""
        items, given = batch.indices, self._counts()
        here = set(items.tolist())
        heard = {(item, who) for record in self._attended.rounds for item, who, _ in record.votes if item in here}
        asked = _Asked(items, self._beliefs(items), given[items].copy(), self._left(), heard)
        fresh = asked.given.sum(axis=1) == 0
        rates = self._rates(items, asked.Q, asked.given, asked.money)
        going = float(np.median(rates[fresh].max(axis=1))) if fresh.any() else _LEAST
        outside, elsewhere = self._answered(given, asked.money)
        going = max(going, float(elsewhere[~np.isin(outside, items)].max(initial=_LEAST)))
        for g, wanted in enumerate(self._unknown(given)):
            self._ask(asked, g, np.flatnonzero(fresh)[:wanted])
        while True:
            rates = self._rates(items, asked.Q, asked.given, asked.money)
            best = rates.max(axis=1)
            unanswered = asked.given.sum(axis=1) == 0
            wanted_rows = np.flatnonzero((best > _LEAST) & (unanswered | (best >= going * (1.0 - 1e-9))))
            if len(wanted_rows) == 0:
                break
            order = wanted_rows[np.argsort(-best[wanted_rows], kind="stable")]
            who = _in_turn(rates[order], given.sum(axis=0) + (asked.given - given[items]).sum(axis=0))
            for g in dict.fromkeys(who.tolist()):
                self._ask(asked, g, order[who == g])
        self._believed = dict(zip(items.tolist(), asked.Q, strict=True))
        self._stuck = len(asked.votes) == 0
        return asked.votes

    def aggregate(self, votes: Votes, batch: Batch) -> Decisions:
        """The most probable class of each item that has an answer, this one or earlier ones."""
        heard = set(votes.items[votes.labels != UNRESOLVED].tolist())
        labels, support = np.full(len(batch), UNRESOLVED), np.zeros(len(batch))
        decided = self._attended.labels.decided
        for k, item in enumerate(batch.indices.tolist()):
            if item in heard or decided[item] != UNRESOLVED:
                q = self._believed[item]
                labels[k], support[k] = int(q.argmax()), min(float(q.max()), _MOST_SURE)
        return Decisions(batch.indices, labels, support)

    def _ask(self, asked: "_Asked", g: int, rows: Ints) -> None:
        """Put samples of the batch to an annotator, as far as the money goes, and believe accordingly."""
        one, conf = self.annotators[g], self._confusions()[g]
        rows = rows[: int(min(len(rows), asked.money / one.price * (1.0 + 1e-9)))]
        turn = asked.given[rows, g].copy()
        for nth, member in enumerate(one.members):
            here = rows[turn == nth]
            if len(here) == 0:
                continue
            said = member.annotate(Batch.without_predictions(asked.items[here]))
            answers = dict(zip(said.items.tolist(), zip(said.workers, said.labels.tolist(), strict=True), strict=True))
            for row in here.tolist():
                item = int(asked.items[row])
                if item not in answers:
                    self._silent[item, g] = True
                    continue
                worker, label = answers[item]
                name = f"{one.name}{BETWEEN}{worker}" if one.kind == "crowd" else one.name
                name = (
                    f"{name} ({nth + 1})" if (item, name) in asked.heard else name
                )  # an answer of its own, not a correction
                asked.take(row, g, name, label, one.price, conf)

    def _rates(self, items: Ints, Q: Float64s, given: Ints, money: float) -> Float64s:
        """(m, G): information for the price; 0 where an annotator has answered, has no answer, or costs more than is left."""
        most = np.array([card.most for card in self.cards])
        open_ = (given < most) & ~self._silent[items] & (self._prices <= money * (1.0 + 1e-9))
        return np.where(open_, information(Q, self._confusions()) / self._prices, 0.0)

    def _answered(self, given: Ints, money: float) -> tuple[Ints, Float64s]:
        """The samples with an answer, and the highest rate of each."""
        weighed = self._learner.weighed
        if weighed is None:
            return np.empty(0, dtype=np.int64), np.empty(0)
        items, Q = weighed.estimate.samples, weighed.estimate.Q
        return items, np.asarray(self._rates(items, Q, given[items], money).max(axis=1))

    def _beliefs(self, items: Ints) -> Float64s:
        """(m, C): from model and sources, and from the answers where there are any."""
        session, learner = self._attended, self._learner
        A = with_reference(session.objective.engine.host(session.construction.point.logits[items]))
        A = A if session.ruling is None else session.ruling.scaled(A)
        Q, weighed = learner.posterior(session.labels, items, log_probabilities(A)), learner.weighed
        if weighed is None:
            return np.asarray(Q)
        Q = (1.0 - weighed.share) * Q + weighed.share / Q.shape[1]
        samples = weighed.estimate.samples
        place = np.searchsorted(samples, items)
        known = samples[np.minimum(place, len(samples) - 1)] == items
        Q[known] = weighed.estimate.Q[place[known]]
        return np.asarray(Q)

    def _unknown(self, given: Ints) -> Iterable[int]:
        """How many answers each annotator still has to give before it is known."""
        answers = given.sum(axis=0).tolist()
        new = [one.gold < self.explore for one in self.annotators]
        for one, count, is_new in zip(self.annotators, answers, new, strict=True):
            most = self.explore - one.gold
            if self.budget is not None and is_new:
                most = min(most, int(EXPLORED * self.budget / (sum(new) * one.price)))
            yield max(0, most - count) if is_new and len(self.annotators) > 1 else 0

    def _counts(self) -> Ints:
        """(N, G): answers on each sample by each annotator, all that were paid for."""
        found = np.zeros((self._attended.n_train, len(self.annotators)), dtype=np.int64)
        known: dict[str, int] = {}
        for record in self._attended.rounds:
            for item, worker, _ in record.votes:
                if worker not in known:
                    known[worker] = next((g for g, card in enumerate(self.cards) if card.gave(worker)), -1)
                if known[worker] >= 0:
                    found[item, known[worker]] += 1
        return found

    def _confusions(self) -> Float64s:
        """(G, C, C)."""
        weighed = self._learner.weighed
        if weighed is None:
            return expected_confusions(self.cards, self._attended.labels.n_classes)
        return weighed.confusions

    def _left(self) -> float:
        return float("inf") if self.budget is None else self.budget - self.spent

    @property
    def _prices(self) -> Float64s:
        return np.array([one.price for one in self.annotators])

    @property
    def _attended(self) -> Session:
        if self._session is None:
            raise InvalidInputError("this router has asked nothing yet; give it to LabelCleaner.run", code="annotator")
        return self._session

    @property
    def _learner(self) -> Learner:
        learner = self._attended.learner
        assert learner is not None, "attend() refuses a session without one"
        return learner


@dataclass
class _Asked:
    """A batch while it is asked about."""

    items: Ints
    Q: Float64s
    """(b, C): moves with every answer."""
    given: Ints
    """(b, G): answers so far."""
    money: float
    """Left."""
    heard: set[tuple[int, str]]
    """Who has answered on which item."""
    votes: Votes = field(default_factory=lambda: Votes.of([]))

    def take(self, row: int, g: int, name: str, label: int, price: float, confusion: Float64s) -> None:
        """An answer, which is paid; 'ambiguous' tells nothing."""
        self.votes += Votes.of([(name, [self.items[row]], [label])])
        self.heard.add((int(self.items[row]), name))
        self.given[row, g] += 1
        self.money -= price
        if label != UNRESOLVED:
            q = self.Q[row] * np.maximum(confusion[:, label], 1e-6)
            self.Q[row] = q / q.sum()


def _in_turn(rates: Float64s, answers: Ints) -> Ints:
    """(m,): for each sample the annotator with the highest rate; of those within `ALIKE` of it, who has answered least so far.

    >>> _in_turn(np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 2.0]]), np.array([4, 3])).tolist()
    [1, 0, 1]
    """
    answers, found = answers.copy(), np.empty(len(rates), dtype=np.int64)
    for k, row in enumerate(rates):
        alike = np.flatnonzero(row >= (1.0 - ALIKE) * row.max())
        found[k] = alike[answers[alike].argmin()]
        answers[found[k]] += 1
    return found
