"""Who is asked: routing by cost against the usual ways of asking, on simulated and recorded crowds.

A cell is a crowd and a seed. Every way of asking gets the same money, the same first model, the same selector and the same
learner; they differ in who answers. After every round: money spent, test accuracy and macro-F1 of the model, and the share of
the N training samples whose final label (the most probable class of what is believed) is right.
"""

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks import real
from numpy.typing import NDArray

from experiments import data
from experiments.cells import Cell
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.stats import estimate
from experiments.store import Result
from labelchef import LabelCleaner
from labelchef.aggregation import Aggregator, MajorityVote
from labelchef.annotators import Annotator, RecordedVotes
from labelchef.campaign.routing import Priced, Router
from labelchef.campaign.stopping import Progress, StoppingRule
from labelchef.domain.records import Batch, Decisions, RoundRecord, Votes

Ints = NDArray[np.int64]

MONEY, PERSON, LLM, EXPERT = 18.0, 0.05, 0.002, 0.5
"""The budget of a campaign, and what an answer costs: 120 samples with three answers each, by people."""
SEEDS, N_TRAIN, N_TRUSTED, N_TEST, BATCH, COLUMNS = 6, 600, 60, 1500, 40, 64
GRID = np.linspace(0.0, MONEY, 181)
ROUTED = "routed"
USUAL = "three people, majority"


@dataclass(frozen=True)
class Voice:
    """An annotator of a crowd with what it would answer on every training sample: (N,), −1 where it has no answer."""

    name: str
    price: float
    kind: str
    answers: Ints
    error: float
    """The share of its answers that is wrong, for ways of asking that are told so; routing is not."""
    unsure: NDArray[np.float64] | None = None
    """(N,) of a language model: 0 where it is sure, to 1."""


@dataclass(frozen=True)
class Crowd:
    """Who can be asked in a cell: people who are much alike (in turn: first, second, … answer), and others."""

    X: NDArray[np.float32]
    y: Ints
    trusted: tuple[NDArray[np.float32], Ints]
    test: tuple[NDArray[np.float32], Ints]
    n_classes: int
    people: tuple[Voice, ...]
    others: tuple[Voice, ...] = ()
    pooled: bool = False
    """Whether the people are a crowd of whom any may answer, so that nobody can choose among them."""
    workers: NDArray[np.object_] | None = None
    """(N, people) names of those who gave the answers of a pooled crowd; None where they are not known."""

    @property
    def voices(self) -> tuple[Voice, ...]:
        """All."""
        return (*self.people, *self.others)


# crowds


def _erring(y: Ints, C: int, rate: float, rng: np.random.Generator) -> Ints:
    """Answers that are wrong at this rate, any other class with equal probability."""
    return np.where(rng.random(len(y)) < rate, (y + rng.integers(1, C, len(y))) % C, y)


def _voice(name: str, price: float, kind: str, answers: Ints, y: Ints, rng: np.random.Generator) -> Voice:
    """One with a sense, if it is a language model, of where it errs: the area under the curve is about 0.76."""
    there, wrong = answers >= 0, (answers != y)
    unsure = 1 / (1 + np.exp(-(wrong + rng.normal(size=len(y))))) if kind == "llm" else None
    return Voice(name, price, kind, answers, float(wrong[there].mean()), unsure)


Profile = Callable[[Ints, int, np.random.Generator], tuple[Sequence[tuple[str, float, str, Ints]], int]]
"""From the truth to (name, price, kind, answers), of which the first so many are the people."""


def _mixed(y: Ints, C: int, rng: np.random.Generator) -> tuple[list[tuple[str, float, str, Ints]], int]:
    people = [(f"person {k}", PERSON, "person", _erring(y, C, 0.15, rng)) for k in (1, 2, 3)]
    llm, expert = _erring(y, C, 0.25, rng), _erring(y, C, 0.02, rng)
    return [*people, ("llm", LLM, "llm", llm), ("expert", EXPERT, "person", expert)], 3


def _equal(y: Ints, C: int, rng: np.random.Generator) -> tuple[list[tuple[str, float, str, Ints]], int]:
    return [(f"person {k}", PERSON, "person", _erring(y, C, 0.1, rng)) for k in (1, 2, 3)], 3


def _blind_llm(y: Ints, C: int, rng: np.random.Generator) -> tuple[list[tuple[str, float, str, Ints]], int]:
    """A language model that is good on all classes but the most frequent, of which it knows nothing: it says the next one."""
    people = [(f"person {k}", PERSON, "person", _erring(y, C, 0.1, rng)) for k in (1, 2, 3)]
    frequent = int(np.bincount(y, minlength=C).argmax())
    llm = np.where(y == frequent, (frequent + 1) % C, _erring(y, C, 0.05, rng))
    return [*people, ("llm", LLM, "llm", llm)], 3


def _spammer(y: Ints, C: int, rng: np.random.Generator) -> tuple[list[tuple[str, float, str, Ints]], int]:
    people = [(f"person {k}", PERSON, "person", _erring(y, C, 0.1, rng)) for k in (1, 2)]
    return [("spammer", PERSON, "person", rng.integers(0, C, len(y))), *people], 3


def _dear_and_bad(y: Ints, C: int, rng: np.random.Generator) -> tuple[list[tuple[str, float, str, Ints]], int]:
    people = [(f"person {k}", PERSON, "person", _erring(y, C, 0.1, rng)) for k in (1, 2, 3)]
    return [*people, ("agency", 4 * PERSON, "person", _erring(y, C, 0.2, rng))], 3


def _faultless(y: Ints, C: int, rng: np.random.Generator) -> tuple[list[tuple[str, float, str, Ints]], int]:
    del C, rng
    return [(f"person {k}", PERSON, "person", y.copy()) for k in (1, 2, 3)], 3


PROFILES: Mapping[str, tuple[str, Profile]] = {
    "mixed": ("three people (15 % wrong, 0.05), an LLM (25 %, 0.002), an expert (2 %, 0.50)", _mixed),
    "blind LLM": ("three people (10 %, 0.05), an LLM (5 %, but always wrong on the most frequent class, 0.002)", _blind_llm),
    "spammer": ("two people (10 %, 0.05), one who answers at random (0.05)", _spammer),
    "dear and bad": ("three people (10 %, 0.05), an agency (20 %, 0.20)", _dear_and_bad),
    "equal": ("three people (10 %, 0.05)", _equal),
    "faultless": ("three people who never err (0.05)", _faultless),
}  # fmt: skip
"""Simulated crowds; on the last two there is nobody to choose."""

RECORDED: Mapping[str, str] = {
    "sentiment_polarity_mturk": "203 named workers, up to 5 recorded answers a sample (21 % wrong, 0.05)",
    "cifar10n": "unnamed workers, 3 recorded answers a sample (18 % wrong, 0.05)",
    "vader_icwsm14": "unnamed raters, 5 of the 20 recorded ratings a sample (0.05)",
}
WITH_LLM = " + LLM"
"""After the name of a recorded crowd: with a simulated language model, 20 % wrong, 0.002."""


def crowd_of(cell: Cell) -> Crowd:
    """The crowd of a cell: `data` is 'set: profile' for simulated people, else a recorded set."""
    name, _, profile = cell.data.partition(": ")
    with_llm = name.endswith(WITH_LLM)
    name = name.removesuffix(WITH_LLM)
    folder = Path(os.environ.get("LABELCHEF_DATA") or ".")
    pool = data.SOURCES[name].read(folder / data.SOURCES[name].folder)
    rng = np.random.default_rng([cell.seed, 81])
    rows = data.sourced_rows(pool, rng, N_TRUSTED)
    train, test = np.sort(rows.train[: cell.n_train]), rows.test[: cell.n_test]
    y = pool.y[train]
    C, workers, pooled = pool.n_classes, None, not profile
    if profile:
        made, count = PROFILES[profile][1](y, C, rng)
    else:
        answers, workers = _recorded(name, folder, rng)
        workers = None if workers is None else workers[train]
        made = [(f"answer {k + 1}", PERSON, "crowd", column) for k, column in enumerate(answers[train].T)]
        count = len(made)
        if with_llm:
            made.append(("llm", LLM, "llm", _erring(y, C, 0.2, rng)))
    voices = tuple(_voice(*one, y, rng) for one in made)
    X = _narrow(pool.X, train)
    return Crowd(
        X[train], y, (X[rows.val], pool.y[rows.val]), (X[test], pool.y[test]), C, voices[:count], voices[count:], pooled,
        workers,
    )  # fmt: skip


def _narrow(X: NDArray[np.float32], train: Ints) -> NDArray[np.float32]:
    """The leading principal components of the training samples, which make a campaign of an experiment five times as quick."""
    if X.shape[1] <= COLUMNS:
        return X
    mean = X[train].mean(axis=0, dtype=np.float64)
    axes = np.linalg.eigh((X[train] - mean).T @ (X[train] - mean))[1][:, ::-1][:, :COLUMNS]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(COLUMNS)])
    return np.asarray((X - mean) @ axes, dtype=np.float32)


def _recorded(name: str, folder: Path, rng: np.random.Generator) -> tuple[Ints, NDArray[np.object_] | None]:
    """(n, k) recorded answers in a random order, −1 for none, and who gave them."""
    if name == "sentiment_polarity_mturk":
        votes = pd.read_parquet(folder / name / "votes.parquet")
        votes = votes.iloc[rng.permutation(len(votes))]
        n = len(pd.read_parquet(folder / name / "sentences.parquet", columns=["label"]))
        keep = 5
        place = votes.groupby("item").cumcount().to_numpy()
        inside = place < keep
        workers = np.full((n, keep), "", dtype=object)
        workers[votes["item"].to_numpy()[inside], place[inside]] = votes["annotator"].astype(str).to_numpy()[inside]
        return real.crowd_matrix(votes, n, keep=keep), workers
    if name == "cifar10n":
        votes_of = real.SETS[name](folder / name).votes
        assert votes_of is not None
        return rng.permuted(votes_of, axis=1), None
    ratings = pd.read_parquet(folder / name / "tweets.parquet", columns=["ratings"])["ratings"]
    drawn = np.array([rng.choice(np.asarray(given), 5, replace=False) for given in ratings])
    return np.where(drawn == 0, rng.integers(0, 2, drawn.shape), (drawn > 0).astype(np.int64)), None


# ways of asking


def _asks(voice: Voice, workers: NDArray[np.object_] | None = None) -> RecordedVotes:
    """The answers of one, by item."""
    there = np.flatnonzero(voice.answers >= 0).tolist()
    return RecordedVotes([(i, voice.name if workers is None else workers[i], int(voice.answers[i])) for i in there])


@dataclass(eq=False)
class ByChance(Router):
    """One answer a sample, by anyone; errors are estimated and answers weighed as by a router that chooses."""

    chance: NDArray[np.float64] | None = None
    """(N, annotators) from 0 to 1."""

    def _rates(self, items: Ints, Q: NDArray[np.float64], given: Ints, money: float) -> NDArray[np.float64]:
        assert self.chance is not None, "it is drawn beforehand"
        return np.where(
            given.sum(axis=1, keepdims=True) > 0, 0.0, self.chance[items] * (super()._rates(items, Q, given, money) > 0)
        )


def _priced(crowd: Crowd) -> list[Priced]:
    priced = []
    if crowd.pooled:
        names = [None if crowd.workers is None else crowd.workers[:, k] for k in range(len(crowd.people))]
        members = tuple(_asks(one, who) for one, who in zip(crowd.people, names, strict=True))
        priced.append(Priced("crowd", crowd.people[0].price, members, "crowd"))
    else:
        priced += [Priced(one.name, one.price, _asks(one)) for one in crowd.people]
    priced += [Priced(one.name, one.price, _asks(one), one.kind) for one in crowd.others]  # type: ignore[arg-type]
    return priced


@dataclass(frozen=True)
class Planned:
    """A way of asking that was settled beforehand: who answers which sample, as (N, voices)."""

    voices: tuple[Voice, ...]
    asked: NDArray[np.bool_]
    workers: NDArray[np.object_] | None = None
    """(N, people) names of those who answer; None where the voices are persons."""

    def annotate(self, batch: Batch) -> Votes:
        """The answers of those who are asked."""
        rows = batch.indices
        ballots: list[tuple[str, object, object]] = []
        for k, voice in enumerate(self.voices):
            here = rows[self.asked[rows, k] & (voice.answers[rows] >= 0)]
            named = self.workers is not None and k < self.workers.shape[1]
            if not named:
                ballots.append((voice.name, here, voice.answers[here]))
            elif self.workers is not None:
                ballots += [(str(self.workers[i, k]), [i], [voice.answers[i]]) for i in here.tolist()]
        return Votes.of(ballots)


@dataclass(frozen=True)
class LastWord:
    """Majority, but where people were asked besides a language model, the people decide."""

    def aggregate(self, votes: Votes, batch: Batch) -> Decisions:
        """One label for each item."""
        asked = set(votes.items[[who != "llm" for who in votes.workers]].tolist())
        kept = [k for k, (item, who, _) in enumerate(votes) if who != "llm" or item not in asked]
        fewer = Votes(votes.items[kept], tuple(votes.workers[k] for k in kept), votes.labels[kept])
        return MajorityVote("lowest").aggregate(fewer, batch)


def _thrifty(voices: tuple[Voice, ...], people: int) -> NDArray[np.bool_]:
    """The majority of three for less: the third is asked only where it can change it."""
    asked = np.zeros((len(voices[0].answers), len(voices)), dtype=bool)
    asked[:, : min(2, people)] = True
    if people > 2:
        asked[:, 2] = voices[0].answers != voices[1].answers
    return asked


def ways_of(crowd: Crowd, seed: int) -> dict[str, tuple[Annotator, Aggregator | None]]:
    """Name → who answers, and how answers become a label."""
    N, voices, people = len(crowd.y), crowd.voices, len(crowd.people)
    rng = np.random.default_rng([seed, 82])

    def only(*chosen: int) -> NDArray[np.bool_]:
        asked = np.zeros((N, len(voices)), dtype=bool)
        asked[:, list(chosen)] = True
        return asked

    chance = np.eye(len(voices), dtype=bool)[rng.integers(0, len(voices), N)]
    cheapest = min(range(len(voices)), key=lambda k: (voices[k].price, k))
    best = min(range(len(voices)), key=lambda k: (voices[k].error, voices[k].price))
    plans = {
        USUAL: only(*range(min(3, people))),
        "two people, a third where they disagree": _thrifty(voices, people),
        "one person": np.eye(people, len(voices), dtype=bool)[rng.integers(0, people, N)],
        "the cheapest": only(cheapest),
        "the best": only(best),
        "anyone, by chance": chance,
    }
    if crowd.pooled:  # the k-th answer is anybody's: there is no best person
        plans["one person"] = only(0)
        plans.pop("the best")
        if not crowd.others:
            plans.pop("anyone, by chance")
    ways: dict[str, tuple[Annotator, Aggregator | None]] = {
        name: (Planned(voices, plan, crowd.workers), MajorityVote("lowest")) for name, plan in plans.items()
    }
    llm = next((k for k, one in enumerate(voices) if one.kind == "llm"), None)
    if llm is None:
        ways.pop("the cheapest")
    else:
        unsure = voices[llm].unsure
        assert unsure is not None
        cascade = only(llm)
        cascade[unsure > np.quantile(unsure, 0.7), 0] = True
        ways["LLM, people where it is unsure"] = Planned(voices, cascade, crowd.workers), LastWord()
    priced = _priced(crowd)
    if len(priced) > 1:
        ways["anyone, by chance, weighed"] = ByChance(priced, MONEY, 0, chance=rng.random((N, len(priced)))), None
    return {**ways, ROUTED: (Router(priced, MONEY), None)}


def measure(cell: Cell) -> dict[str, object]:
    """The course of every way of asking."""
    crowd = crowd_of(cell)
    first = _first(crowd, cell.seed)
    courses = {name: _course(crowd, first, *way) for name, way in ways_of(crowd, cell.seed).items()}
    return {"courses": courses, "errors": {one.name: one.error for one in crowd.voices}}


def _first(crowd: Crowd, seed: int) -> LabelCleaner:
    """The cleaner with its first model; the strength of the penalty is chosen once, for all ways of asking."""
    given = {
        "X_val": crowd.trusted[0], "y_val": crowd.trusted[1], "X_test": crowd.test[0], "y_test": crowd.test[1],
        "classes": list(range(crowd.n_classes)),
    }  # fmt: skip
    stop = _Spent({one.name: one.price for one in crowd.voices})
    same = {"budget": None, "batch_size": BATCH, "random_state": seed, "stop": stop, "sources": "none", "gamma": 0.0}
    l2 = LabelCleaner(**same).fit(crowd.X, **given).l2_  # type: ignore[arg-type]
    return LabelCleaner(**same, l2=l2).fit(crowd.X, **given)  # type: ignore[arg-type]


def _course(crowd: Crowd, first: LabelCleaner, who: Annotator, aggregator: Aggregator | None) -> dict[str, object]:
    prices, cleaner = {one.name: one.price for one in crowd.voices}, copy.deepcopy(first)
    rows: list[tuple[float, float, float, float]] = []

    def note(record: RoundRecord) -> None:
        assert record.test is not None, "there are test samples"
        right = float(np.mean(cleaner.posterior_.argmax(axis=1) == crowd.y))
        rows.append((paid(cleaner.rounds_, prices), record.test.accuracy, record.test.f1_macro, right))

    note(cleaner.rounds_[0])
    cleaner.run(who, aggregator=aggregator, on_round=note)
    found: dict[str, object] = dict(
        zip(("money", "accuracy", "f1", "labels"), np.array(rows).T.round(5).tolist(), strict=True)
    )
    if isinstance(who, Router):
        found["facts"] = [[one.name, one.answers, one.spent, one.error, one.low, one.high] for one in who.facts]
    return found


@dataclass(frozen=True)
class _Spent(StoppingRule):
    """The money is spent."""

    prices: Mapping[str, float]

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        return paid(progress.rounds, self.prices) >= MONEY * (1 - 1e-9)

    def __str__(self) -> str:
        return f"{MONEY:g} paid"


def paid(rounds: Sequence[RoundRecord], prices: Mapping[str, float]) -> float:
    """What the answers of these rounds cost; anybody whose name has no price is a worker of the crowd."""
    return float(sum(prices.get(who, PERSON) for record in rounds for who in record.votes.workers))


# report


def _at(course: Mapping[str, list[float]], name: str) -> NDArray[np.float64]:
    """A curve on the grid of money; after its last round it stays where it was."""
    return np.interp(GRID, course["money"], course[name])


@dataclass(frozen=True)
class Compared:
    """A way of asking against the usual one, over seeds."""

    gain: str
    """At the same money."""
    cost: str
    """Money at which it is as good as the usual one at the end."""


def compared(curves: NDArray[np.float64], usual: NDArray[np.float64]) -> Compared:
    """From curves (seeds, grid) of a way and of the usual one.

    The cost is where the mean curve first reaches the mean end of the usual one; its interval is that of 1000 draws of the seeds.
    """
    gain = estimate(curves[:, -1] - usual[:, -1])
    cost = _cost(curves, usual)
    rng = np.random.default_rng(83)
    draws = [rng.integers(0, len(curves), len(curves)) for _ in range(1000)]
    low, high = np.quantile([_cost(curves[one], usual[one]) for one in draws], [0.025, 0.975], method="inverted_cdf")
    ends = ["never" if np.isinf(end) else f"{end:.1f}" for end in (low, high)]
    said = "not reached" if np.isinf(cost) else f"{cost:.1f}"
    return Compared(gain.text(3, True), f"{said} ({ends[0]} to {ends[1]})")


def _cost(curves: NDArray[np.float64], usual: NDArray[np.float64]) -> float:
    reached = np.flatnonzero(curves.mean(axis=0) >= usual[:, -1].mean() - 1e-9)
    return float(GRID[reached[0]]) if len(reached) else float("inf")


def _cells(plan: Plan) -> list[Cell]:
    """All crowds of a seed before the next seed, so that a run that is cut short has them all."""
    here = data.sets_here()
    base = "trec_rules" if "trec_rules" in here else here[0]
    crowds = [f"{base}: {profile}" for profile in PROFILES]
    recorded = [name for name in RECORDED if name in here]
    crowds += [*recorded, *(f"{name}{WITH_LLM}" for name in recorded)]
    if plan.quick:
        crowds = [f"{here[0]}: mixed"]
    n_train, n_test = (200, 300) if plan.quick else (N_TRAIN, N_TEST)
    return [
        Cell("routing", name, seed, kind="routing", b=BATCH, n_train=n_train, n_test=n_test)
        for seed in range(min(plan.seeds, SEEDS))
        for name in crowds
    ]


MEASURES = {"labels": "final labels that are right", "accuracy": "test accuracy", "f1": "test macro-F1"}


def _report(report: Report, results: list[Result]) -> None:
    report.intro(
        "routing",
        money=f"{MONEY:g}",
        train=N_TRAIN,
        trusted=N_TRUSTED,
        batch=BATCH,
        person=PERSON,
        llm=LLM,
        expert=EXPERT,
        columns=COLUMNS,
    )
    report.commentary()
    crowds = list(dict.fromkeys(one["cell"]["data"] for one in results))
    lines = []
    for crowd in crowds:
        here = [one for one in results if one["cell"]["data"] == crowd]
        ways = list(here[0]["courses"])
        table = []
        for way in ways:
            cells = [way]
            for name in MEASURES:
                curves = np.array([_at(one["courses"][way], name) for one in here])
                usual = np.array([_at(one["courses"][USUAL], name) for one in here])
                found = compared(curves, usual)
                cells += [estimate(curves[:, -1]).text(3), found.cost]
                lines.append(
                    {"crowd": crowd, "way": way, "measure": name, "seeds": len(here), "at the end": curves[:, -1].mean(),
                     "gain over three people": found.gain, "cost": found.cost}
                )  # fmt: skip
            table.append(cells)
        report.text(f"## {crowd}\n\n{_about(crowd)}")
        head = [part for title in MEASURES.values() for part in (title, "as good as three people from")]
        report.table(["who is asked", *head], table)
        report.text(_who(here))
    report.data(pd.DataFrame(lines))


def _about(crowd: str) -> str:
    name, _, profile = crowd.partition(": ")
    if profile:
        return f"Features and classes of {name}; {PROFILES[profile][0]}."
    known = RECORDED[name.removesuffix(WITH_LLM)]
    return f"{known}{'; an LLM, simulated (20 % wrong, 0.002)' if name.endswith(WITH_LLM) else ''}."


def _who(results: list[Result]) -> str:
    """Whom the router asked, and what it learned of them."""
    facts = [one["courses"][ROUTED]["facts"] for one in results]
    parts = []
    for k, (name, *_) in enumerate(facts[0]):
        rows = np.array([one[k][1:] for one in facts])
        parts.append(
            f"{name} {rows[:, 0].mean():.0f} answers for {rows[:, 1].mean():.1f} (error {rows[:, 2].mean():.0%})"
        )
    return f"Routed, means over seeds: {'; '.join(parts)}."


EXPERIMENTS = (Experiment("routing", "Who is asked: routing by cost", _cells, _report),)
