"""Whether the certified stop holds its level, and how wide it is: `python -m experiments certified`.

**Simulated campaigns** have no training: a pool of samples with known answers, and a sequence of models, each given by what it
predicts. So models can do what a trained one hardly would: fall the moment a certificate is near, jump, change one prediction for
another. 2,000 campaigns of each kind. A certificate is false if the present model's accuracy on the unasked samples is below it.

**Real campaigns** train: `LabelCleaner` on small synthetic sets, with sources, margin selection and batches of 20.

Beside the certificate stand: the *audit's mean*, the lower end of the interval of the past models' mean accuracy
(`Audited`), taken for the present model; and a *hold-out* of as many labels, which do not train, with Clopper and Pearson's
one-sided bound at every round. Prints tables in Markdown.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, binomtest

from experiments import data
from labelchef import LabelCleaner
from labelchef.campaign.audit import anytime_bounds
from labelchef.campaign.certify import FIRST, certificate, most_errors
from labelchef.domain.arrays import Bools, Float64s, Ints

LEVEL = 0.95
RUNS, REAL_RUNS = 2000, 200
SETS = ("airline_twitter", "youtube_wrench", "cifar10n", "vader_icwsm14")
WAYS = ("certificate", "audit's mean", "hold-out, every round")
HELD = 400
"""Samples of which a hold-out takes the first ones."""
SIZES = (50, 100, 200, 500)


Wanted = Callable[[int, Float64s, Float64s], "Float64s | float"]
"""The accuracy on the unasked samples that the next models get, from the round, the certificates now, and what was wanted before;
NaN: as it comes."""


@dataclass(frozen=True)
class Kind:
    """A kind of simulated campaign."""

    about: str
    accuracy: Wanted
    target: float
    pool: int = 600
    rounds: int = 20
    batch: int = 20
    audits: int = 10
    churn: float = 0.0
    """Share of the predictions that change from right to wrong in every round, and as many from wrong to right."""
    taste: float = 1.0
    """How much likelier a sample that is predicted wrongly is chosen."""


def _fall(low: float, high: float, near: float) -> Wanted:
    """High, until a certificate is near; then low for good."""
    return lambda _, certified, before: np.where((certified >= near) | (before == low), low, high)


KINDS = {
    "stays": Kind("accuracy 0.9; target just above", lambda *_: 0.9, 0.901),
    "churns": Kind("the same; 1 % of the predictions change each round", lambda *_: 0.9, 0.901, churn=0.005),
    "improves": Kind(
        "0.7 to 0.9; target just above", lambda r, *_: 0.9 - 0.2 * float(np.exp(-r / 6)), 0.901, taste=3.0
    ),
    "falls": Kind("0.95; 0.8 once the certificate is at 0.8; target 0.85", _fall(0.8, 0.95, 0.8), 0.85),
    "jumps": Kind("0.95 and 0.85 in turn, every third round", lambda r, *_: 0.95 if (r // 3) % 2 == 0 else 0.85, 0.9),
    "few audits": Kind(
        "accuracy 0.9, one audited sample a round", lambda *_: 0.9, 0.901, rounds=50, batch=10, audits=1
    ),
    "runs out": Kind("200 samples, all are asked; accuracy 0.8", lambda *_: 0.8, 0.801, pool=200, rounds=9, audits=6),
    "chosen well": Kind("no training; wrong ones are asked 10 times as often", lambda *_: np.nan, 0.9, taste=10.0),
}


@dataclass
class Simulated:
    """Many campaigns of a kind at once. A model is the samples that it predicts wrongly, (runs, N); a wrong class is always the
    same, so two models differ where one of them is wrong. `campaign.certify.state_of` counts the same (a test compares them)."""

    kind: Kind
    runs: int
    rng: np.random.Generator

    def play(self) -> Iterator[tuple[Float64s, Float64s]]:
        """After each round: the accuracy of the present models on the unasked samples (runs,), and what is claimed of them, by
        `WAYS` (3, runs)."""
        kind, rng, shape = self.kind, self.rng, (self.runs, self.kind.pool)
        wanted = np.broadcast_to(
            np.asarray(kind.accuracy(0, np.zeros(self.runs), np.full(self.runs, np.nan))), self.runs
        )
        start = np.where(np.isnan(wanted), 0.85, wanted)
        wrong = self._first(np.ones(shape, dtype=bool), np.ceil(shape[1] * (1 - start) - 1e-9).astype(int))
        held = rng.random((self.runs, HELD)) > start[:, None]  # wrong on the samples of a hold-out
        unasked, right = np.ones(shape, dtype=bool), np.zeros(self.runs, dtype=int)
        self.models: list[Bools] = []
        self.asked: list[tuple[Bools, Bools]] = []
        certified = np.zeros(self.runs)
        sums: list[Float64s] = []  # windows: audits, Σ wrong n_i, pool, and the rounds' places
        begins: list[int] = []
        for number in range(1, kind.rounds + 1):
            if unasked[0].sum() <= kind.batch:
                return
            drawn = self._first(unasked, kind.audits)
            weight = np.where(wrong, kind.taste, 1.0)
            chosen = self._first(unasked & ~drawn, kind.batch - kind.audits, weight)
            if number == 1 or (number - 1) * kind.audits >= FIRST << (len(begins) - 1):
                begins.append(number - 1)
            sums.append((wrong & drawn).sum(axis=1) * float(unasked[0].sum()))
            self.models.append(wrong)
            self.asked.append((drawn, drawn | chosen))
            right = right + (~wrong & drawn).sum(axis=1)
            unasked = unasked & ~(drawn | chosen)
            wanted = np.broadcast_to(np.asarray(kind.accuracy(number, certified, wanted)), self.runs)
            wrong, held = self._next(wrong, unasked, wanted), self._next(held, np.ones_like(held), wanted)
            audits, left = number * kind.audits, unasked.sum(axis=1)
            certified = self._certified(wrong, unasked, sums, begins)
            held_right = (~held[:, :audits]).sum(axis=1)
            yield (
                1 - (wrong & unasked).sum(axis=1) / left,
                np.array([certified, means(right, audits), one_look(held_right, audits)]),
            )

    def _certified(self, wrong: Bools, unasked: Bools, sums: list[Float64s], begins: list[int]) -> Float64s:
        """The certificates of models after all rounds so far, (runs,)."""
        kind, left = self.kind, float(unasked[0].sum())
        found = np.array(
            [(model & ~unasked & then).sum(axis=1) for model, then in zip(self.models, self._pools(), strict=True)]
        )
        differ = np.array([((model != wrong) & unasked).sum(axis=1) for model in self.models])
        rows = []
        for begin in begins:
            pool = float(kind.pool - begin * kind.batch)
            k = float(kind.audits * (len(self.models) - begin))
            counts = (np.sum(sums[begin:], axis=0) / pool, found[begin:].mean(axis=0), differ[begin:].mean(axis=0))
            rows.append((np.full(self.runs, k), counts[0], np.full(self.runs, pool), *counts[1:]))
        audits, wrongs, pools, founds, differs = np.moveaxis(np.array(rows), 0, -1)
        _, errors = most_errors(audits, wrongs, pools, founds, differs, LEVEL)
        return np.asarray(1 - np.clip(errors.min(axis=-1), 0.0, left) / left)

    def _pools(self) -> Iterator[Bools]:
        """The samples that could be asked before each round."""
        there = np.ones((self.runs, self.kind.pool), dtype=bool)
        for _, asked in self.asked:
            yield there
            there = there & ~asked

    def _first(self, among: Bools, size: "int | Ints", weight: Float64s | None = None) -> Bools:
        """So many in each row, drawn without replacement, by weight."""
        keys = self.rng.standard_exponential(among.shape, dtype=np.float32)
        keys = np.where(among, keys if weight is None else keys / weight, np.inf)
        size = np.broadcast_to(np.asarray(size), len(keys))
        if not size.any():
            return np.zeros_like(among)
        last = np.partition(keys, int(size.max()) - 1, axis=1)[:, : int(size.max())]
        last = np.sort(last, axis=1)
        edge = np.where(size > 0, last[np.arange(len(keys)), np.maximum(size - 1, 0)], -1.0)
        return np.asarray(among & (keys <= edge[:, None]))

    def _next(self, wrong: Bools, unasked: Bools, accuracy: Float64s) -> Bools:
        """Exchange some predictions, then change as few as the wanted accuracy on the unasked samples needs."""
        k, after = round(self.kind.churn * wrong.shape[1]), wrong
        if k:
            worse, better = self._first(~after & unasked, k), self._first(after & unasked, k)
            after = (after | worse) & ~better
        if np.isnan(accuracy).all():
            return after
        excess = (after & unasked).sum(axis=1) - np.ceil(unasked.sum(axis=1) * (1 - accuracy) - 1e-9).astype(int)
        mended = self._first(after & unasked, np.maximum(excess, 0))
        broken = self._first(~after & unasked, np.maximum(-excess, 0))
        return np.asarray((after & ~mended) | broken)


def means(right: Ints, audits: int) -> Float64s:
    """The lower end of the audit's interval."""
    values, which = np.unique(right, return_inverse=True)
    return anytime_bounds(values, np.full(len(values), audits), LEVEL)[0][which]


def one_look(right: Ints, samples: int, level: float = LEVEL) -> Float64s:
    """Clopper and Pearson's lower bound for one look."""
    return np.asarray(np.where(right > 0, beta.ppf(1 - level, np.maximum(right, 1), samples - right + 1), 0.0))


def simulated(name: str, runs: int, seed: int = 0) -> Ints:
    """(3 ways, 3) campaigns: ever above the truth, stopped at the target, stopped although the truth is below it."""
    kind, found = KINDS[name], np.zeros((len(WAYS), 3), dtype=int)
    course = list(Simulated(kind, runs, np.random.default_rng([seed, *name.encode()])).play())
    truth, claims = (
        np.array([one for one, _ in course]),
        np.array([claim for _, claim in course]),
    )  # (rounds, [3,] runs)
    for k in range(len(WAYS)):
        claim = claims[:, k]
        met, stop = (claim >= kind.target).any(axis=0), (claim >= kind.target).argmax(axis=0)
        found[k, 0] = (claim > truth + 1e-9).any(axis=0).sum()
        found[k, 1:] = met.sum(), (met & (truth[stop, np.arange(runs)] < kind.target)).sum()
    return found


def width(accuracy: float, churn: float, runs: int) -> Float64s:
    """(4 sizes, 4): certificate and audit's mean, in the mean of the runs; a hold-out with the expected number of right ones, for
    one look and for one after every five samples."""
    kind = Kind("", lambda *_: accuracy, 1.0, pool=5000, rounds=100, batch=10, audits=5, churn=churn / 2)
    rows = []
    for number, (_, claims) in enumerate(Simulated(kind, runs, np.random.default_rng(0)).play(), start=1):
        if (size := 5 * number) in SIZES:
            right = np.array([round(size * accuracy)])
            plain = one_look(right, size), one_look(right, size, 1 - (1 - LEVEL) / number)
            rows.append((*claims[:2].mean(axis=1), *(one[0] for one in plain)))
    return np.array(rows)


def real(seed: int) -> Float64s:
    """The same for a campaign that trains, with a target near what its models reach; and the mean bounds and truth at the end."""
    rng = np.random.default_rng(seed)
    C, d, n, m = int(rng.integers(2, 5)), 6, 300, 40
    y = rng.integers(0, C, n + m)
    X = rng.normal(size=(n + m, d)) + rng.normal(size=(C, d))[y] * rng.uniform(0.6, 1.6)
    votes = np.where(rng.random((n, 4)) < 0.65, y[:n, None], rng.integers(0, C, (n, 4)))
    votes[rng.random((n, 4)) < 0.5] = -1
    cleaner = LabelCleaner(
        budget=160,
        batch_size=20,
        audit=0.5,
        random_state=seed,
        target_metric="accuracy",
        sources="shares",
        gamma=0.3,
        l2=0.01,
    )
    cleaner.fit(X[:n], votes=votes, X_val=X[n:], y_val=y[n:], classes=list(range(C)))
    course = []

    def look() -> None:
        session = cleaner._session
        state = session.rounds[-1].audit
        found = certificate(state, LEVEL)
        if found is not None:
            unasked = ~session.labels.cleaned[:n]
            truth = float((session.predicted(np.arange(n)) == y[:n])[unasked].mean())
            course.append((truth, found.accuracy, cleaner.audit_.accuracy().low, found.differ))

    cleaner.run(lambda batch: y[batch.indices], on_round=lambda _: look())
    truth, certified, mean, differ = np.array(course).T
    target = float(truth[-1]) - 0.04
    rows = []
    for claim in (certified, mean):
        met = np.flatnonzero(claim >= target)
        rows.append(((claim > truth + 1e-9).any(), met.size > 0, met.size > 0 and truth[met[0]] < target, claim[-1]))
    return np.array([*np.array(rows, dtype=float).ravel(), truth[-1], differ[-1]])


def on_set(name: str) -> str:
    """A line of a table: a campaign of 300 labels on a set of the scoreboard, 30 % of them audited."""
    problem = data.sourced(name, 0, 100, n_train=3000, n_test=1000)
    cleaner = LabelCleaner(budget=300, batch_size=10, audit=0.3, random_state=0, target_metric="accuracy")
    cleaner.fit(
        problem.X, votes=problem.votes, X_val=problem.X_val, y_val=problem.y_val, votes_val=problem.votes_val,
        classes=list(range(problem.n_classes)),
    )  # fmt: skip
    cleaner.run(lambda batch: problem.y[batch.indices])
    found, session = cleaner.certificate(), cleaner._session
    assert found is not None, "there are audited samples"
    right = session.predicted(np.arange(len(problem.y))) == problem.y
    claims = (found.accuracy, found.if_no_worse, cleaner.audit_.accuracy().low, right[~cleaner.cleaned_].mean())
    return f"| {name} | {100 * found.differ:.1f} % | " + " | ".join(f"{claim:.3f}" for claim in claims) + " |"


def _share(times: float, runs: int) -> str:
    low, high = binomtest(int(times), runs).proportion_ci(0.95, "exact")
    return f"{100 * times / runs:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m experiments certified", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="simulated campaigns of each kind")
    parser.add_argument("--real", type=int, default=REAL_RUNS, help="campaigns that train")
    parser.add_argument("--widths", type=int, default=30, help="campaigns of each width")
    parser.add_argument("--sets", type=int, default=4, help="real sets, where LABELCHEF_DATA has them")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.runs:
        print("| campaigns | target | way | ever above the truth | stopped | false stops |\n|---|---|---|---|---|---|")
    for name, kind in KINDS.items() if options.runs else ():
        for way, (above, stopped, false) in zip(WAYS, simulated(name, options.runs), strict=True):
            shown = (
                f"{_share(above, options.runs)} | {100 * stopped / options.runs:.0f} % | {_share(false, options.runs)}"
            )
            print(f"| {name}: {kind.about} | {kind.target:g} | {way} | {shown} |", flush=True)
    if options.widths:
        print(
            "\n| accuracy | changed a round | audited | certificate | audit's mean | hold-out, one look | all looks |"
        )
        print("|---|---|---|---|---|---|---|")
    for accuracy, churn in itertools.product((0.8, 0.9, 0.95), (0.0, 0.002)) if options.widths else ():
        for size, row in zip(SIZES, width(accuracy, churn, options.widths), strict=True):
            shown = " | ".join(f"{x:.3f}" for x in row)
            print(f"| {accuracy} | {100 * churn:g} % | {size} | {shown} |", flush=True)
    if options.sets:
        print(
            "\n| set | changed since the audits | certificate | if no worse | audit's mean | truth |\n|---|---|---|---|---|---|"
        )
    for name in SETS[: options.sets] if data.sourced_here() != ("digits",) else ():
        print(on_set(name), flush=True)
    if options.real:
        with ProcessPoolExecutor(options.jobs) as pool:
            found = np.array(list(pool.map(real, range(options.real), chunksize=5)))
        print("\n| campaigns that train | ever above the truth | stopped | false stops | bound at the end | truth |")
        print("|---|---|---|---|---|---|")
        for k, way in enumerate(WAYS[:2]):
            above, stopped, false, last = found[:, 4 * k : 4 * k + 4].T
            print(
                f"| {way} | {_share(above.sum(), options.real)} | {100 * stopped.mean():.0f} % | "
                f"{_share(false.sum(), options.real)} | {last.mean():.3f} | {found[:, 8].mean():.3f} |"
            )
        print(f"\nPredictions that differ between the audited models and the last: {100 * found[:, 9].mean():.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
