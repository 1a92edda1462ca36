"""What small rules bring: labelchef from raw texts with the rules of this folder, and what one has without it.

    python -m experiments.rules [--seeds 5] [--trusted 100] [--publish]

The rules were written in a few minutes from what one expects of such texts; nothing was changed after a measurement.

    LR, trusted only    scikit-learn: TfidfVectorizer and LogisticRegression on the trusted samples
    LR-CV, trusted only words in ones and twos, sublinear, C by cross-validated macro-F1
    LR, rules' majority the same on training samples, labelled by the majority of the rules that vote on them
    without rules       labelchef, `--encoder tfidf`, with one source that votes at random
    with rules          labelchef, `--encoder tfidf`, with the votes of the rules
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline

from experiments.encoders import Problem, ours, problem, theirs
from experiments.reporting import RESULTS
from labelchef.believe.rules import RuleSetFacts, apply_rules, facts_of, read_rules

CLASSES = {
    "youtube_wrench": ("ham", "spam"),
    "trec_rules": ("DESC", "ENTY", "HUM", "ABBR", "LOC", "NUM"),
    "airline_twitter": ("negative", "neutral", "positive"),
}
SEEDS, TRUSTED = 5, 100


def votes_of(name: str, p: Problem) -> tuple[NDArray[np.int64], RuleSetFacts]:
    """(rows of the set, rules) class ids, −1 for none, and the facts on training and trusted samples."""
    rules = read_rules(Path(__file__).parent / f"{name}.toml")
    frame = p.texts.assign(id=p.texts["row"].astype(str))
    table = apply_rules(rules, frame)
    votes = np.full((len(frame), len(rules)), -1, dtype=np.int64)
    sources, classes = [rule.name for rule in rules], list(CLASSES[name])
    rows, at = table["item"].astype(int), table["source"].map(sources.index)
    votes[rows, at] = table["label"].map(classes.index)
    shown = np.concatenate([p.rows.train, p.rows.val])
    trusted = set(p.rows.val.tolist())
    labels = [classes[p.y[row]] if row in trusted else None for row in shown.tolist()]
    return votes, facts_of(rules, frame.iloc[shown].reset_index(drop=True), labels)


def measure(name: str, seed: int, n_trusted: int) -> dict[str, Any]:
    """Macro-F1 of every method on the test samples of one split."""
    p = problem(name, seed, n_trusted)
    votes, facts = votes_of(name, p)
    silent = np.random.default_rng([seed, 79]).integers(0, p.n_classes, (len(p.rows.train), 1))
    with_rules = replace(p, votes=votes[p.rows.train], votes_val=votes[p.rows.val])
    return {
        "set": name,
        "seed": seed,
        "rules": len(facts.rules),
        "coverage": round(facts.coverage, 4),
        "accuracy": round(facts.n_right / max(1, facts.n_trusted), 4),
        "LR, trusted only": _plain(p, p.rows.val, p.y[p.rows.val]),
        "LR-CV, trusted only": next(one["f1"] for one in theirs(p, seed) if one["method"] == "LR-CV on TF-IDF"),
        "LR, rules' majority": _plain(p, *_majority(p, votes)),
        "without rules": ours(replace(p, votes=silent, votes_val=None), seed)[0]["f1"],
        "with rules": ours(with_rules, seed)[0]["f1"],
    }


def _majority(p: Problem, votes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training rows on which most rules say one class, and that class."""
    counts = (votes[p.rows.train][:, :, None] == np.arange(p.n_classes)).sum(axis=1)
    most = counts.max(axis=1)
    clear = (most > 0) & ((counts == most[:, None]).sum(axis=1) == 1)
    return p.rows.train[clear], counts[clear].argmax(axis=1)


def _plain(p: Problem, rows: NDArray[np.int64], y: NDArray[np.int64]) -> float:
    texts = p.texts["text"].astype(str).to_numpy()
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=2000)).fit(texts[rows], y)
    predicted = model.predict(texts[p.rows.test])
    return round(float(f1_score(p.y[p.rows.test], predicted, labels=range(p.n_classes), average="macro")), 5)


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.rules", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--trusted", type=int, default=TRUSTED)
    parser.add_argument("--sets", nargs="*", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--publish", action="store_true", help="write experiments/results/rules.csv")
    options = parser.parse_args(arguments)
    cells = []
    for name in options.sets:
        for seed in range(options.seeds):
            cells.append(measure(name, seed, options.trusted))
            print(cells[-1], flush=True)
    frame = pd.DataFrame(cells)
    print(frame.drop(columns="seed").groupby("set", sort=False).mean().round(3).to_string())
    if options.publish:
        frame.to_csv(RESULTS / "rules.csv", index=False)
    return 0
