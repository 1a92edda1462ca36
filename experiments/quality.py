"""How often the intervals of `judge.accuracy` hold: simulated people of known error.

    python -m experiments.quality --runs 500

A campaign has m asked items of C classes. The model predicts a class of each (log-odds from a normal distribution, the class
then drawn by what it predicts, so it is calibrated but for what a case says). Hard items have an error of their own for
everybody, and the model guesses on them. Each item goes to `votes` of the people; a lead decides ties. Gold is drawn by chance:
it has fewer hard items (`gold_hard`). True accuracy is that on the asked items. An interval holds if the true accuracy is in
it.
"""

import argparse
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta, binom

from labelchef.base.records import UNRESOLVED, Answers
from labelchef.judge.accuracy import (
    FEWEST_ANSWERS,
    FEWEST_BLIND,
    FEWEST_GOLD,
    WIDEST,
    WIDEST_PULL,
    Interval,
    Seen,
    estimate,
    exact,
    pull,
    tells_apart,
    wilson,
)

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Case:
    """A kind of campaign."""

    name: str
    errors: tuple[float, ...]
    """Of each person, on ordinary items."""
    items: int = 200
    classes: int = 2
    votes: int = 2
    gold: int = 0
    """Answers on gold a person."""
    audit: float = 0.0
    model: float = 1.5
    """Spread of the log-odds of the model; 0: it knows nothing."""
    broken: float = 0.0
    """Share of ordinary items on which the model means nothing, though it does not say so."""
    hard: float = 0.0
    gold_hard: float = 0.0
    hard_error: float = 0.4
    """Of everybody, on hard items."""
    shared: float = 0.0
    """Share of items on which everybody and the model are wrong in the same way: what no estimate can see without gold."""
    lead: bool = True
    fails: bool = field(default=False)
    """Whether it is there to show where the estimate fails."""


CASES = (
    Case("two people, one always right, no gold", (0.0, 0.17)),
    Case("the same with 30 gold items each", (0.0, 0.17), gold=30),
    Case("the same, a model that knows nothing", (0.0, 0.17), model=0.0),
    Case("the same, four classes", (0.0, 0.17), classes=4),
    Case("the same, no lead decides: the model tells them apart", (0.0, 0.17), lead=False),
    Case("the same, neither lead nor model", (0.0, 0.17), lead=False, model=0.0),
    Case("three people, two votes an item", (0.03, 0.1, 0.25)),
    Case("five people, 400 items, three votes", (0.02, 0.05, 0.1, 0.2, 0.3), items=400, votes=3),
    Case("one vote an item, gold", (0.05, 0.15), votes=1, gold=30),
    Case("one vote an item, a tenth audited", (0.05, 0.15), votes=1, audit=0.1),
    Case("model wrong on a fifth of the items", (0.03, 0.1, 0.25), broken=0.2),
    Case("15 % of the items hard for everybody", (0.03, 0.1, 0.25), hard=0.15, gold_hard=0.05),
    Case("the same with 30 gold items each", (0.03, 0.1, 0.25), hard=0.15, gold_hard=0.05, gold=30),
    Case("the same, no lead decides", (0.03, 0.1, 0.25), hard=0.15, gold_hard=0.05, lead=False),
    Case(
        "the same, no lead decides, 30 gold items each",
        (0.03, 0.1, 0.25),
        hard=0.15,
        gold_hard=0.05,
        gold=30,
        lead=False,
    ),
    Case("5 % of the items wrong in the same way for all", (0.03, 0.1, 0.25), shared=0.05, fails=True),
    Case("the same with 60 gold items each", (0.03, 0.1, 0.25), shared=0.05, gold=60, fails=True),
)


def simulated(case: Case, seed: int) -> tuple[Seen, list[float]]:
    """What is seen of a campaign, and the true accuracy of each person."""
    rng = np.random.default_rng([seed, 17])
    m, C, W = case.items, case.classes, len(case.errors)
    A = np.zeros((m, C))
    A[np.arange(m), rng.integers(0, C, m)] = case.model * np.abs(rng.normal(size=m)) + 0.3 * (case.model > 0)
    P = np.exp(A) / np.exp(A).sum(axis=1, keepdims=True)
    kind = rng.choice(4, m, p=[1 - case.broken - case.hard - case.shared, case.broken, case.hard, case.shared])
    drawn = rng.random(m) < case.audit
    y = (P.cumsum(axis=1) < rng.random((m, 1))).sum(axis=1).clip(0, C - 1)
    y = np.where((kind == 1) | (kind == 2), rng.integers(0, C, m), y)
    trap = (y + 1) % C
    P[kind == 3] = 0.05 / (C - 1)
    P[kind == 3, trap[kind == 3]] = 0.95
    order = np.argsort(rng.random((m, W)), axis=1)[:, : min(case.votes, W)]
    place, person = np.repeat(np.arange(m), order.shape[1]), order.ravel()
    rate = np.where(kind[place] == 2, case.hard_error, np.array(case.errors)[person])
    wrong = rng.random(len(place)) < rate
    label = np.where(wrong, (y[place] + rng.integers(1, C, len(place))) % C, y[place])
    label = np.where(kind[place] == 3, trap[place], label)
    known = np.full(m, UNRESOLVED)
    if case.lead and order.shape[1] > 1:
        counts = np.zeros((m, C))
        np.add.at(counts, (place, label), 1)
        top = np.sort(counts, axis=1)
        known = np.where(top[:, -1] == top[:, -2], y, UNRESOLVED)
    gold_errors = (1 - case.gold_hard - case.shared) * np.array(case.errors)
    gold_errors = gold_errors + case.gold_hard * case.hard_error + case.shared
    missed = rng.binomial(case.gold, gold_errors)
    accuracy = 1 - (1 - case.hard - case.shared) * np.array(case.errors) - case.hard * case.hard_error - case.shared
    said = Answers(np.arange(m), known, drawn, tuple(map(str, range(W))), place, person, label)
    return Seen(said, P, case.gold - missed, missed), accuracy.tolist()


@dataclass(frozen=True)
class Row:
    """What a case came to, of one person."""

    case: str
    person: str
    truth: float
    covered: float
    told: float
    """Share of campaigns in which the page says a number."""
    covered_told: float | None
    """Share of these whose interval holds."""
    width: float
    """Median width."""
    agreement: float
    """Mean agreement with the decisions, which was shown before."""
    fails: bool
    runs: int


def run_case(case: Case, runs: int, first: int = 0) -> list[Row]:
    """All campaigns of a case."""
    found: list[list[Interval]] = []
    agree: list[list[float]] = []
    apart: list[bool] = []
    truth: list[float] = []
    counts = np.zeros(len(case.errors))
    for k in range(runs):
        seen, truth = simulated(case, first + k)
        found.append(estimate(seen, seed=k))
        apart.append(tells_apart(seen))
        agree.append(_agreement(seen))
        counts += np.bincount(seen.said.person, minlength=len(seen.said.names)) + case.gold
    rows = []
    for w, true in enumerate(truth):
        mine = [one[w] for one in found]
        holds = np.array([one.low <= true + 1e-9 and true - 1e-9 <= one.high for one in mine])
        told = np.array([one.width <= WIDEST for one in mine]) & (counts[w] / runs >= FEWEST_ANSWERS) & np.array(apart)
        rows.append(
            Row(
                case.name,
                f"errs on {case.errors[w]:.0%}",
                true,
                float(holds.mean()),
                float(told.mean()),
                float(holds[told].mean()) if told.any() else None,
                float(np.median([one.width for one in mine])),
                float(np.mean([one[w] for one in agree])),
                case.fails,
                runs,
            )
        )
    return rows


def _agreement(seen: Seen) -> list[float]:
    """With the majority, else with the lead: what the page showed before."""
    said, counts = seen.said, np.zeros(seen.predicted.shape)
    np.add.at(counts, (said.place, said.label), 1)
    decided = np.where(said.known >= 0, said.known, counts.argmax(axis=1))
    same = said.label == decided[said.place]
    return [float(same[said.person == w].mean()) for w in range(len(said.names))]


def gold_intervals() -> list[dict[str, Any]]:
    """The least and the mean coverage of three intervals of a share, over accuracies from 0.7 to 0.995: exact sums."""
    rows = []
    for n in (10, 20, 30, 50, 100):
        truth = np.linspace(0.7, 0.995, 200)
        chance = binom.pmf(np.arange(n + 1)[:, None], n, truth)
        for name, made in (("Clopper-Pearson", exact), ("Jeffreys", _jeffreys), ("Wilson", _wilson)):
            ends = [made(k, n) for k in range(n + 1)]
            low, high = np.array([one.low for one in ends]), np.array([one.high for one in ends])
            inside = (low[:, None] <= truth) & (truth <= high[:, None])
            covered = (chance * inside).sum(axis=0)
            width = (chance * (high - low)[:, None]).sum(axis=0).mean()
            rows.append({"n": n, "interval": name, "least": covered.min(), "mean": covered.mean(), "width": width})
    return rows


def _jeffreys(right: int, n: int) -> Interval:
    ends = [*beta.ppf([0.025, 0.975], right + 0.5, n - right + 0.5)]
    return Interval(right / n, ends[0] if right else 0.0, ends[1] if right < n else 1.0)


def _wilson(right: int, n: int) -> Interval:
    return wilson(right / n, n)


def run_pull(
    blind: int, effect: float, runs: int, people: int = 2, shown: int = 150, rounds: int = 3
) -> dict[str, Any]:
    """Votes of `people` on each item; whether they follow depends on the item too, so votes on one item go together, and on the
    round: suggestions become better, while the number of blind items differs by chance."""
    rng = np.random.default_rng([blind, int(100 * effect), 5])
    holds, told, far, bare = [], [], [], []
    for _ in range(runs):
        groups: list[list[tuple[int, int, bool]]] = [[], []]
        turn = rng.integers(0, rounds, shown + blind)
        hidden = np.zeros(shown + blind, dtype=bool)
        hidden[rng.permutation(shown + blind)[:blind]] = True
        base = np.linspace(0.65, 0.85, rounds)[turn] + effect * ~hidden
        easy = rng.random(shown + blind) < 0.6  # on these everybody follows
        share = np.where(easy, 1.0, np.clip((base - 0.6) / 0.4, 0, 1))
        follows = rng.random((shown + blind, people)) < share[:, None]
        for k in range(shown + blind):
            groups[int(hidden[k])] += [(int(turn[k]), k, bool(one)) for one in follows[k]]
        found = pull(*groups)
        if found.interval is None:
            holds.append(True)
            told.append(False)
        else:
            holds.append(found.interval.low <= effect <= found.interval.high)
            told.append(found.told)
        bare.append(np.mean([f for *_, f in groups[0]]) - np.mean([f for *_, f in groups[1]]))
        far.append(abs(bare[-1] - effect) >= 0.2)
    picked = np.array(told)
    return {
        "blind votes": blind * people,
        "true pull": effect,
        "covered": float(np.mean(holds)),
        "told": float(picked.mean()),
        "covered where told": float(np.array(holds)[picked].mean()) if picked.any() else None,
        "off by 20 points": float(np.mean(far)),
        "off by 20 points and told": float((np.array(far) & picked).mean()),
    }


def tables(runs: int, cases: tuple[Case, ...] = CASES, kept: Path | None = None) -> dict[str, Any]:
    """Everything, as JSON. Cases that `kept` has, with as many runs, are taken from there; new ones are written to it."""
    done: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept is not None and kept.exists() else {}
    for case in cases:
        key = json.dumps({"runs": runs, **asdict(case)})
        if key not in done:
            done[key] = [asdict(row) for row in run_case(case, runs)]
            if kept is not None:
                kept.write_text(json.dumps(done), encoding="utf-8")
    people = [row for case in cases for row in done[json.dumps({"runs": runs, **asdict(case)})]]
    pulls = [run_pull(n, effect, runs) for n in (6, 15, 30, 45, 75) for effect in (0.0, 0.15)]
    return {"runs": runs, "people": people, "gold": gold_intervals(), "pull": pulls}


def markdown(found: dict[str, Any]) -> str:
    """The page of the documentation."""
    lines = [
        "# Quality of people: do the intervals hold?",
        "",
        f"*`python -m experiments.quality --runs {found['runs']}`: simulated campaigns, as many a case as the last column says, "
        "people of known error, 95 % intervals. What is simulated, and what is estimated, is in `experiments/quality.py` and "
        "`judge/accuracy.py`.*",
        "",
        f"The page shows a number only if a person has {FEWEST_ANSWERS} answers and the interval is at most {WIDEST:g} wide "
        "and something tells people apart (*told*): gold, decisions of a lead, a model that says something, or three people; "
        'else it says "too few". *Agreement* is what was shown before: the share of votes that equal the decision.',
        "",
        "| campaign | person | true accuracy | interval holds | told | holds where told | median width | agreement | runs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["people"]:
        where = "–" if row["covered_told"] is None else f"{row['covered_told']:.1%}"
        mark = " (*)" if row["fails"] else ""
        lines.append(
            f"| {row['case']}{mark} | {row['person']} | {row['truth']:.3f} | {row['covered']:.1%} | {row['told']:.0%} | "
            f"{where} | {row['width']:.3f} | {row['agreement']:.3f} | {row.get('runs', found['runs'])} |"
        )
    lines += [
        "",
        "(*) People and model are wrong on the same items in the same way. Nothing but gold can show that, and the estimate "
        "believes agreement too: its interval fails there. The interval from gold alone holds.",
        "",
        "## From gold alone",
        "",
        f"Exact coverage over accuracies from 0.70 to 0.995. In use: Clopper-Pearson, from {FEWEST_GOLD} answers on. It is the "
        "only one that never falls below 95 %.",
        "",
        "| answers on gold | interval | least coverage | mean coverage | mean width |",
        "|---|---|---|---|---|",
    ]
    for row in found["gold"]:
        lines.append(
            f"| {row['n']} | {row['interval']} | {row['least']:.1%} | {row['mean']:.1%} | {row['width']:.3f} |"
        )
    lines += [
        "",
        "## Pull of the suggestion",
        "",
        "Two votes an item, 150 items with the suggestion, three rounds; votes on one item go together. Newcombe's interval, "
        "within rounds, with the design effect of items. "
        f"Told from {FEWEST_BLIND} blind items on, if the interval is at most {WIDEST_PULL:g} wide. *Off by 20 points* is "
        "how often the bare difference, which was shown before, is at least 20 points from the truth.",
        "",
        "| blind votes | true pull | interval holds | told | holds where told | off by 20 points | … and told |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["pull"]:
        where = "–" if row["covered where told"] is None else f"{row['covered where told']:.1%}"
        lines.append(
            f"| {row['blind votes']} | {row['true pull']:+.2f} | {row['covered']:.1%} | {row['told']:.0%} | {where} | "
            f"{row['off by 20 points']:.1%} | {row['off by 20 points and told']:.1%} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Simulate and write experiments/results/people.md and people.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--items", type=int, default=None, help="items a campaign, in place of those of the cases")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--kept", type=Path, default=None, help="file of finished cases, to go on after a stop")
    given = parser.parse_args()
    cases = CASES if given.items is None else tuple(replace(one, items=given.items) for one in CASES)
    found = tables(given.runs, cases, given.kept)
    (given.out / "people.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (given.out / "people.md").write_text(markdown(found), encoding="utf-8")


if __name__ == "__main__":
    main()
