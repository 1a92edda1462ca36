"""How well receipts agree with models that are fitted again without an answer, what they cost, and what a ledger file costs.

Clusters in 20 columns with six sources (right in 50 to 85 % of their votes, voting on 60 % of the samples), 2 000 samples, 150
trusted ones, 100 answers chosen by the default selector, one in ten of them wrong. Baseline: formula (A) alone, the influence of
the sample itself at the present model, which is what one had before; and fitting again, an answer at a time. Times are of the
processor, so that other work on the machine does not count.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import spearmanr

from labelchef import LabelCleaner
from labelchef.campaign.data import CampaignData
from labelchef.campaign.receipts import effects, without
from labelchef.core.contrasts import with_reference
from labelchef.core.influence import influence_matrix
from labelchef.core.softmax import probabilities
from labelchef.core.solvers import solve_spd
from labelchef.domain.settings import Settings
from labelchef.ledger.links import check_links
from labelchef.services.campaigns import create_campaign
from labelchef.services.labelling.tasks import next_tasks
from labelchef.services.labelling.votes import cast_vote
from labelchef.services.people.access import find
from labelchef.services.proof import write_ledger
from labelchef.services.verifying import verify_ledger
from labelchef.services.worker import advance
from labelchef.services.workspace import open_workspace

Array = NDArray[np.float64]
N, TRUSTED, COLUMNS, SOURCES = 2_000, 150, 20, 6


def main(console: Console, *, quick: bool = False) -> None:
    """Print both tables."""
    console.print("| classes | learner | answers | rank | error | scale | (A) alone: rank, error | receipts | refits |")
    console.print("|---|---|---|---|---|---|---|---|---|")
    for C in (2, 3) if quick else (2, 3, 10):
        for given in ({}, {"sources": "joint", "gamma": 0.3}, {"sources": "none"}, {"trusted": "steer"}):
            _fidelity(console, C, 20 if quick else 100, given)
    console.print(
        "\n| items | votes | rounds | ledger file | writing | verifying | links of one round |\n|---|---|---|---|---|---|---|"
    )
    for n, rounds in ((1_000, 5),) if quick else ((1_000, 25), (20_000, 10)):
        _ledger(console, n, rounds)


def _drawn(C: int, n: int, trusted: int) -> tuple[dict[str, Any], NDArray[np.int64]]:
    rng = np.random.default_rng(C)
    y = rng.integers(0, C, n + trusted)
    X = rng.normal(size=(n + trusted, COLUMNS)) + 1.4 * np.eye(C, COLUMNS)[y]
    votes = np.full((n + trusted, SOURCES), -1)
    for j, accuracy in enumerate(np.linspace(0.5, 0.85, SOURCES)):
        said = np.where(rng.random(n + trusted) < accuracy, y, rng.integers(0, C, n + trusted))
        votes[:, j] = np.where(rng.random(n + trusted) < 0.6, said, -1)
    data = {
        "X": X[:n],
        "votes": votes[:n],
        "X_val": X[n:],
        "y_val": y[n:],
        "votes_val": votes[n:],
        "classes": list(range(C)),
    }
    return data, y[:n]


def _fidelity(console: Console, C: int, asked: int, given: dict[str, Any]) -> None:
    data, y = _drawn(C, N, TRUSTED)
    rng = np.random.default_rng([C, 1])
    answers = np.where(rng.random(N) < 0.1, rng.integers(0, C, N), y)
    cleaner = LabelCleaner(tol=1e-9, random_state=0, **given).fit(**data)
    while cleaner.cleaned_.sum() < asked:
        batch = cleaner.query(10)
        cleaner.update(batch.indices, answers[batch.indices])
    session = cleaner._fitted()
    rows = np.flatnonzero(session.labels.cleaned[:N])
    began = time.process_time()
    found = effects(session, rows)[0].sum(axis=0)
    took = time.process_time() - began
    loss = session.steering.metrics(session.parameters).loss
    began = time.process_time()
    real = np.array([loss - without(session, np.array([row]))[0] for row in rows])
    refits = time.process_time() - began
    plain = _formula_a(session, rows)
    told = ", ".join(f"{key} {value}" for key, value in given.items()) or "default"
    console.print(
        f"| {C} | {told} | {len(rows)} | {_rank(found, real):.3f} | {_error(found, real):.0%} | "
        f"{found @ real / (found @ found):.2f} | "
        f"{_rank(plain, real):.3f}, {_error(plain, real):.0%} | {took:.2f} s | {refits:.1f} s |"
    )


def _formula_a(session: Any, rows: NDArray[np.int64]) -> Array:
    """1/N times (A) at the present model, for the answers that were given, from weak labels as they were given."""
    point, engine, labels = session.construction.point, session.objective.engine, session.labels
    keeper = session.construction.keeper
    g = session.steering.settled(point.W).gradient
    S = with_reference(solve_spd(session.objective, point, g, keeper, tol=1e-6, max_iterations=300).linear.S[rows])
    P = probabilities(with_reference(point.logits[rows]))
    weight = np.full(len(rows), session.learner.choice.gamma) if session.learner else labels.belief[1][rows]
    table = influence_matrix(S, P, labels.Y_weak[rows], weight)
    return np.asarray(table[np.arange(len(rows)), labels.decided[rows]] / engine.n_rows)


def _rank(a: Array, b: Array) -> float:
    return float(spearmanr(a, b)[0])


def _error(found: Array, real: Array) -> float:
    return float(np.linalg.norm(found - real) / np.linalg.norm(real))


def _ledger(console: Console, n: int, rounds: int) -> None:
    data, y = _drawn(3, n, TRUSTED)
    settings = Settings(people=2, batch_size=10, budget=10 * rounds, gamma=0.3, l2=0.01)
    with tempfile.TemporaryDirectory() as folder, open_workspace(Path(folder) / "home") as ws:
        made = create_campaign(ws, "Ledger", CampaignData.of(**data), settings, "lead").slug
        advance(ws, made)
        votes = 0
        while isinstance(tasks := next_tasks(ws, made, "ann", 10), list):
            for task in tasks:
                for person in ("ann", "bob"):
                    next_tasks(ws, made, person, 10)
                    cast_vote(ws, made, person, task.item, int(y[int(task.item)]))
                    votes += 1
            advance(ws, made)
        path = Path(folder) / "ledger.jsonl"
        began = time.process_time()
        write_ledger(ws, made, path)
        wrote = time.process_time() - began
        began = time.process_time()
        assert verify_ledger(path).intact
        checked = time.process_time() - began
        row = find(ws, made)
        began = time.process_time()
        with ws.reading() as connection:
            state = check_links(connection, row.id)
        each = (time.process_time() - began) / state.linked
        size = path.stat().st_size / 1e6
        console.print(
            f"| {n} | {votes} | {state.linked} | {size:.2f} MB | {wrote:.2f} s | {checked:.2f} s | {1000 * each:.1f} ms |"
        )
