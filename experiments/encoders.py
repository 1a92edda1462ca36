"""From raw texts, with no label asked: labelchef with its encoders, and what scikit-learn makes of the same trusted samples.

    python -m experiments.encoders --out FOLDER [--publish]

Every set is read as texts. Training samples have the votes of their sources and no label; 100 or 300 trusted samples have their
labels; test samples are seen by nobody before the end. Encoders are fitted on the texts of training and trusted samples.

    tfidf            labelchef, `--encoder tfidf`: words and characters
    both             labelchef, TF-IDF beside MiniLM, weighed by cross-validation
    LR on TF-IDF     scikit-learn: TfidfVectorizer and LogisticRegression on the trusted samples, as they come
    LR-CV on TF-IDF  words in ones and twos, sublinear, C by cross-validated macro-F1
    LR-CV on MiniLM  LogisticRegression on the embeddings, C by cross-validated macro-F1

MiniLM embeddings are those stored beside the sets, so the 27 CPU seconds a thousand texts are spent once.
"""

import argparse
import json
import os
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks import real
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline

from experiments import data
from experiments.reporting import RESULTS
from experiments.stats import estimate
from labelchef import __version__
from labelchef.base.intake import ColumnRole, Progress, no_progress
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.encoders.fitted import Encoded, fit_encoder
from labelchef.data.encoders.protocol import Block, Content, State
from labelchef.data.intake.weighing import weigh
from labelchef.loop.cleaner import LabelCleaner

TEXTS = {
    "vader_icwsm14": ("tweets.parquet", ("text",)),
    "sentiment_polarity_mturk": ("sentences.parquet", ("text",)),
    "fact_google_relations": ("facts.parquet", ("subject", "relation", "object", "evidence")),
    "airline_twitter": ("tweets.parquet", ("text",)),
    "trec_rules": ("questions.parquet", ("text",)),
    "youtube_wrench": ("comments.parquet", ("text",)),
}
"""Set → its table and the columns that are text."""
TRUSTED, SEEDS, N_TRAIN, N_TEST = (100, 300), 5, 4000, 5000
_CS = np.logspace(-2, 3, 6)


@dataclass(frozen=True)
class Stored:
    """An encoder whose results are in memory: column `row` names them."""

    E: Block
    columns: tuple[str, ...] = ("row",)
    name: str = "MiniLM"
    group: str = "MiniLM"

    @property
    def width(self) -> int:
        """Columns of the block."""
        return int(self.E.shape[1])

    def fit(self, content: Content, progress: Progress = no_progress) -> "Stored":  # noqa: ARG002
        """There is nothing to learn."""
        return self

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:  # noqa: ARG002
        """(n, width)"""
        return np.asarray(self.E[content.column("row").to_numpy()])

    def state(self) -> State:
        """What a file would keep."""
        return State("stored", {"E": self.E}, {})


@dataclass(frozen=True)
class Problem:
    """Texts of the three parts, votes on the first two."""

    texts: pd.DataFrame
    """Of the whole set; column `row` counts."""
    columns: tuple[str, ...]
    E: Block
    rows: real.Rows
    y: NDArray[np.int64]
    votes: NDArray[np.int64]
    votes_val: NDArray[np.int64] | None
    n_classes: int


def problem(name: str, seed: int, n_trusted: int) -> Problem:
    """The scoreboard's split of a seed, with texts."""
    folder = Path(os.environ["LABELCHEF_DATA"])
    pool = data._pool_of(name, folder)
    file, columns = TEXTS[name]
    table = pd.read_parquet(folder / name / file)
    if name == "fact_google_relations":
        table = table[table["mv"] >= 0].reset_index(drop=True)
        table["relation"] = table["relation"].str.replace("_", " ")
    assert len(table) == len(pool.y)
    rng = np.random.default_rng([seed, 78])
    rows = data.sourced_rows(pool, rng, n_trusted)
    rows = real.Rows(np.sort(rows.train[:N_TRAIN]), rows.val, rows.test[:N_TEST])
    if pool.votes is None:
        votes, votes_val = rng.integers(0, pool.n_classes, (len(rows.train), 1)), None
    else:
        votes = pool.votes[rows.train]
        votes_val = pool.votes[rows.val] if data.SOURCED[name].everywhere else None
    texts = table[list(columns)].assign(row=np.arange(len(table)))
    return Problem(texts, columns, pool.X, rows, pool.y, votes, votes_val, pool.n_classes)


def ours(p: Problem, seed: int) -> list[dict[str, Any]]:
    """labelchef with TF-IDF alone, and beside MiniLM."""
    fitted_on = p.texts.iloc[np.concatenate([p.rows.train, p.rows.val])].reset_index(drop=True)
    roles = dict.fromkeys(p.columns, ColumnRole.TEXT)
    began = time.perf_counter()
    encoded = fit_encoder(Content(fitted_on), roles, ["tfidf", Stored(p.E)], seed=seed)
    encoding = time.perf_counter() - began
    given: dict[str, Any] = {"votes": p.votes, "votes_val": p.votes_val, "classes": range(p.n_classes)}
    N, y_val = len(p.rows.train), p.y[p.rows.val]
    X = encoded.X
    weighing = weigh(encoded, CampaignData.of(X[:N], X_val=X[N:], y_val=y_val, **given), Settings(seed=seed))
    alone = tuple(float(block.name != "MiniLM") for block in encoded.encoder.blocks)
    found = []
    for method, weights in (("tfidf", alone), ("both", weighing.weights)):
        now: Encoded = encoded.weighted(weights)
        began = time.perf_counter()
        cleaner = LabelCleaner(random_state=seed)
        cleaner.fit(now.X[:N], X_val=now.X[N:], y_val=y_val, **given)
        predicted = cleaner.predict(now.encoder.transform(p.texts.iloc[p.rows.test]))
        choice = cleaner.choice_
        assert choice is not None
        found.append(
            {
                "method": method,
                "f1": _f1(p, predicted),
                "weights": list(weights),
                "trials": [[list(one.weights), round(one.loss, 4)] for one in weighing.trials],
                "choice": f"{choice.model} {choice.gamma:g}",
                "encoding": round(encoding, 2),
                "weighing": round(weighing.seconds, 2),
                "seconds": round(time.perf_counter() - began, 2),
            }
        )
    return found


def theirs(p: Problem, seed: int) -> list[dict[str, Any]]:
    """scikit-learn on the trusted samples alone."""
    texts = p.texts[list(p.columns)].astype(str).agg("\n".join, axis=1).to_numpy()
    val, y, test = p.rows.val, p.y[p.rows.val], p.rows.test
    plain = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=2000))
    tuned = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=2000))
    folds = StratifiedKFold(int(min(5, max(2, np.bincount(y).min()))), shuffle=True, random_state=seed)

    def searched(model: Any, name: str) -> Any:
        return GridSearchCV(model, {name: _CS}, scoring="f1_macro", cv=folds)

    found = []
    for method, model, rows in (
        ("LR on TF-IDF", plain, texts),
        ("LR-CV on TF-IDF", searched(tuned, "logisticregression__C"), texts),
        ("LR-CV on MiniLM", searched(LogisticRegression(max_iter=2000), "C"), p.E),
    ):
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a class with fewer samples than folds
            model.fit(rows[val], y)
        found.append(
            {"method": method, "f1": _f1(p, model.predict(rows[test])), "seconds": time.perf_counter() - began}
        )
    return found


def _f1(p: Problem, predicted: Any) -> float:
    labels = range(p.n_classes)
    return round(float(f1_score(p.y[p.rows.test], np.asarray(predicted), labels=labels, average="macro")), 5)


def run(out: Path, sets: list[str], seeds: int, trusted: list[int]) -> pd.DataFrame:
    """Every cell once; those that are finished are read from `out`."""
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        for name in sets:
            for n_trusted in trusted:
                file = out / f"{name}-{n_trusted}-{seed}.json"
                if not file.is_file():
                    p = problem(name, seed, n_trusted)
                    cells = [*theirs(p, seed), *ours(p, seed)]
                    file.write_text(json.dumps([{"set": name, "trusted": n_trusted, "seed": seed, **c} for c in cells]))
                    print(name, n_trusted, seed, {c["method"]: round(c["f1"], 3) for c in cells}, flush=True)
                rows += json.loads(file.read_text())
    return pd.DataFrame(rows)


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.encoders", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("experiments-results/encoders"))
    parser.add_argument("--sets", nargs="*", default=list(TEXTS), choices=list(TEXTS))
    parser.add_argument("--trusted", nargs="*", type=int, default=list(TRUSTED))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--publish", action="store_true", help="write encoders.md and .csv to experiments/results/")
    options = parser.parse_args(arguments)
    frame = run(options.out, options.sets, options.seeds, options.trusted)
    table = frame.pivot_table(index=["set", "trusted"], columns="method", values="f1", sort=False)
    print(table.round(3).to_string())
    if options.publish:
        (RESULTS / "encoders.md").write_text(page(frame), encoding="utf-8")
        frame.drop(columns=["trials"]).to_csv(RESULTS / "encoders.csv", index=False)
    return 0


METHODS = ("tfidf", "LR on TF-IDF", "LR-CV on TF-IDF", "both", "LR-CV on MiniLM")


def page(frame: pd.DataFrame) -> str:
    """The page of results: macro-F1 of every method, and by how much ours is above the better one of theirs."""
    lines = [
        "# From raw texts, no label asked",
        "",
        f"By `python -m experiments.encoders --publish`: labelchef {__version__}, {len(frame) // len(METHODS)} cells. Test "
        "macro-F1, mean ± half of a 95 % interval over seeds.",
        "",
        (Path(__file__).parent / "commentary" / "encoders.md").read_text(encoding="utf-8").strip(),
        "",
        "| set | trusted | seeds | "
        + " | ".join(f"labelchef, {m}" if m in METHODS[::3] else m for m in METHODS)
        + " | tfidf: "
        "lead | both: lead |",
        "| --- | ---: | ---: |" + " ---: |" * (len(METHODS) + 2),
    ]
    for (name, trusted), part in frame.groupby(["set", "trusted"], sort=False):
        f1 = part.pivot_table(index="seed", columns="method", values="f1")
        tfidf, minilm = f1[["LR on TF-IDF", "LR-CV on TF-IDF"]].max(axis=1), f1["LR-CV on MiniLM"]
        leads = (estimate(f1["tfidf"] - tfidf), estimate(f1["both"] - np.maximum(tfidf, minilm)))
        cells = [estimate(f1[method]).text() for method in METHODS] + [one.text(sign=True) for one in leads]
        lines.append(f"| {name} | {trusted} | {len(f1)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
