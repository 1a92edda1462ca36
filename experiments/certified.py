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
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binomtest

from labelchef import LabelCleaner
from labelchef.campaign.audit import anytime_bounds
from labelchef.campaign.certify import Asked, Classes, certificate, state_of

LEVEL = 0.95
RUNS, REAL_RUNS = 2000, 200
WAYS = ("certificate", "audit's mean", "hold-out, every round")
HELD = 1000
"""Samples of which a hold-out takes the first ones."""
SIZES = (50, 100, 200, 500)


@dataclass(frozen=True)
class Kind:
    """A kind of simulated campaign."""

    about: str
    accuracy: Callable[[int, float, float | None], float | None]
    """The accuracy on the unasked samples that the next model gets, from the round, the certificate now, and the accuracy that was
    wanted before; None: as it comes."""
    target: float
    pool: int = 1000
    rounds: int = 30
    batch: int = 20
    audits: int = 10
    churn: float = 0.0
    """Share of the predictions that change from right to wrong in every round, and as many from wrong to right."""
    taste: float = 1.0
    """How much likelier a sample that is predicted wrongly is chosen."""


def _fall(low: float, high: float, near: float) -> Callable[[int, float, float | None], float]:
    """High, until a certificate is near; then low for good."""
    return lambda _, certified, before: low if certified >= near or before == low else high


KINDS = {
    "stays": Kind("accuracy 0.9; target just above", lambda *_: 0.9, 0.901),
    "churns": Kind("the same; 1 % of the predictions change each round", lambda *_: 0.9, 0.901, churn=0.005),
    "improves": Kind("0.7 to 0.9; target just above", lambda r, *_: 0.9 - 0.2 * float(np.exp(-r / 8)), 0.901, taste=3.0),
    "falls": Kind("0.95; 0.85 once the certificate is within 0.02 of the target", _fall(0.85, 0.95, 0.86), 0.88),
    "jumps": Kind("0.95 and 0.85 in turn, every five rounds", lambda r, *_: 0.95 if (r // 5) % 2 == 0 else 0.85, 0.9),
    "few audits": Kind("accuracy 0.9, one audited sample a round", lambda *_: 0.9, 0.901, rounds=90, batch=10, audits=1),
    "runs out": Kind("300 samples, all are asked; accuracy 0.8", lambda *_: 0.8, 0.801, pool=300, rounds=15, audits=6),
    "chosen well": Kind("no training; wrong ones are asked 10 times as often", lambda *_: None, 0.9, taste=10.0),
}


@dataclass
class Simulated:
    """One simulated campaign; `play` goes round by round."""

    kind: Kind
    rng: np.random.Generator
    classes: int = 3

    def play(self) -> Iterator[tuple[float, tuple[float, float, float]]]:
        """After each round: the accuracy of the present model on the unasked samples, and what is claimed of it, by `WAYS`."""
        kind, rng, n = self.kind, self.rng, self.kind.pool
        y = rng.integers(0, self.classes, n).astype(np.uint16)
        wanted = kind.accuracy(0, 0.0, None)
        wrong = np.zeros(n, dtype=bool)
        wrong[rng.permutation(n)[: round(n * (1 - (0.85 if wanted is None else wanted)))]] = True
        held = rng.random(HELD) < wrong.mean()  # whether the model is wrong on the samples of a hold-out
        unasked, models, asked = np.ones(n, dtype=bool), [self._predicted(y, wrong)], list[Asked]()
        right = audits = 0
        now = 0.0
        for number in range(1, kind.rounds + 1):
            here = np.flatnonzero(unasked)
            if len(here) <= kind.batch:
                return
            drawn = rng.choice(here, min(kind.audits, len(here)), replace=False)
            rest = np.setdiff1d(here, drawn)
            weight = np.where(wrong[rest], kind.taste, 1.0)
            chosen = rng.choice(rest, min(kind.batch - len(drawn), len(rest)), replace=False, p=weight / weight.sum())
            items = np.concatenate([drawn, chosen])
            asked.append(Asked(items, y[items].astype(np.int64), np.arange(len(items)) < len(drawn)))
            right, audits = right + int((~wrong[drawn]).sum()), audits + len(drawn)
            unasked[items] = False
            wanted = kind.accuracy(number, now, wanted)
            wrong, held = self._next(wrong, unasked, wanted), self._next(held, np.ones(HELD, dtype=bool), wanted)
            models.append(self._predicted(y, wrong))
            found = certificate(state_of(models[-1], models[:-1], asked, np.ones(n, dtype=bool)), LEVEL)
            assert found is not None, "there are audited samples"
            now = found.accuracy
            of_held = one_look(int((~held[:audits]).sum()), audits)
            yield float(1 - wrong[unasked].mean()), (now, audited_mean(right, audits), of_held)

    def _predicted(self, y: Classes, wrong: NDArray[np.bool_]) -> Classes:
        return np.asarray(np.where(wrong, (y + 1) % self.classes, y), dtype=np.uint16)

    def _next(self, wrong: NDArray[np.bool_], unasked: NDArray[np.bool_], accuracy: float | None) -> NDArray[np.bool_]:
        """Exchange some predictions, then change as few as the wanted accuracy on the unasked samples needs."""
        rng, after = self.rng, wrong.copy()
        k = round(self.kind.churn * len(wrong))
        if k:
            worse, better = (rng.permutation(np.flatnonzero(mask))[:k] for mask in (~after & unasked, after & unasked))
            after[worse], after[better] = True, False
        if accuracy is None:
            return after
        excess = int(after[unasked].sum()) - int(np.ceil(unasked.sum() * (1 - accuracy) - 1e-9))
        turned = rng.permutation(np.flatnonzero(unasked & (after == (excess > 0))))[: abs(excess)]
        after[turned] = excess < 0
        return after


@functools.cache
def audited_mean(right: int, audits: int) -> float:
    """The lower end of the audit's interval."""
    return float(anytime_bounds(np.array([right]), np.array([audits]), LEVEL)[0][0])


@functools.cache
def one_look(right: int, samples: int, level: float = LEVEL) -> float:
    """Clopper and Pearson's lower bound for one look."""
    return float(beta.ppf(1 - level, right, samples - right + 1)) if right else 0.0


def simulated(name: str, seed: int) -> NDArray[np.float64]:
    """(3 ways, 3): ever above the truth, stopped at the target, stopped although the truth is below it."""
    kind, found = KINDS[name], np.zeros((len(WAYS), 3))
    course = list(Simulated(kind, np.random.default_rng([seed, *name.encode()])).play())
    truth, claims = np.array([one for one, _ in course]), np.array([claim for _, claim in course])
    for k in range(len(WAYS)):
        found[k, 0] = (claims[:, k] > truth + 1e-9).any()
        met = np.flatnonzero(claims[:, k] >= kind.target)
        found[k, 1:] = met.size > 0, met.size > 0 and truth[met[0]] < kind.target
    return found


def real(seed: int) -> NDArray[np.float64]:
    """The same for a campaign that trains, with a target near what its models reach; and the mean bounds and truth at the end."""
    rng = np.random.default_rng(seed)
    C, d, n, m = int(rng.integers(2, 5)), 8, 800, 60
    y = rng.integers(0, C, n + m)
    X = rng.normal(size=(n + m, d)) + rng.normal(size=(C, d))[y] * rng.uniform(0.6, 1.2)
    votes = np.where(rng.random((n, 4)) < 0.65, y[:n, None], rng.integers(0, C, (n, 4)))
    votes[rng.random((n, 4)) < 0.5] = -1
    cleaner = LabelCleaner(budget=240, batch_size=20, audit=0.5, random_state=seed, target_metric="accuracy")
    cleaner.fit(X[:n], votes=votes, X_val=X[n:], y_val=y[n:], classes=list(range(C)))
    course = []

    def look() -> None:
        session = cleaner._session  # noqa: SLF001
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


def width(job: tuple[float, float, int]) -> NDArray[np.float64]:
    """(4 sizes, 2): certificate, audit's mean."""
    accuracy, churn, seed = job
    kind = Kind("", lambda *_: accuracy, 1.0, pool=5000, rounds=100, batch=10, audits=5, churn=churn / 2)
    course = Simulated(kind, np.random.default_rng(seed)).play()
    return np.array([claims[:2] for k, (_, claims) in enumerate(course, start=1) if 5 * k in SIZES])


def plain(accuracy: float, samples: int) -> tuple[float, float]:
    """Lower bound of a hold-out with the expected number of right ones: for one look, and for one after every five samples."""
    right = round(samples * accuracy)
    return one_look(right, samples), one_look(right, samples, 1 - (1 - LEVEL) * 5 / samples)


def _share(times: float, runs: int) -> str:
    low, high = binomtest(int(times), runs).proportion_ci(0.95, "exact")
    return f"{100 * times / runs:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m experiments certified", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="simulated campaigns of each kind")
    parser.add_argument("--real", type=int, default=REAL_RUNS, help="campaigns that train")
    parser.add_argument("--widths", type=int, default=40, help="campaigns of each width")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    with ProcessPoolExecutor(options.jobs) as pool:
        if options.runs:
            print("| campaigns | target | way | ever above the truth | stopped | false stops |\n|---|---|---|---|---|---|")
        for name, kind in KINDS.items() if options.runs else ():
            runs = sum(pool.map(functools.partial(simulated, name), range(options.runs), chunksize=20))
            for way, (above, stopped, false) in zip(WAYS, runs, strict=True):
                shown = f"{_share(above, options.runs)} | {100 * stopped / options.runs:.0f} % | {_share(false, options.runs)}"
                print(f"| {name}: {kind.about} | {kind.target:g} | {way} | {shown} |", flush=True)
        if options.widths:
            print("\n| accuracy | changed a round | audited | certificate | audit's mean | hold-out, one look | all looks |")
            print("|---|---|---|---|---|---|---|")
        for accuracy, churn in itertools.product((0.8, 0.9, 0.95), (0.0, 0.001, 0.004)) if options.widths else ():
            jobs = [(accuracy, churn, seed) for seed in range(options.widths)]
            means = np.mean(list(pool.map(width, jobs, chunksize=10)), axis=0)
            for size, row in zip(SIZES, means, strict=True):
                shown = " | ".join(f"{x:.3f}" for x in (*row, *plain(accuracy, size)))
                print(f"| {accuracy} | {100 * churn:g} % | {size} | {shown} |", flush=True)
        if options.real:
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
