"""What automatic sources bring: the model before any label is asked, with them and without.

A cell is a set and a seed. All rows of a table have the same features, trusted samples and test samples. The person of
Interactive Weak Supervision is simulated: a rule is useful if it is right on more than 70 % of the training samples that it
matches, and by 15 points more often than its class occurs.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks import real
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV

from experiments import data
from experiments.cells import Cell
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.stats import estimate
from experiments.store import Result
from labelchef import LabelCleaner
from labelchef.believe.automatic import affinity, snuba
from labelchef.believe.automatic.interactive import Proposals
from labelchef.believe.rules import RuleBoard
from labelchef.data.encoders.images import EFFICIENTNET, has_efficientnet, network
from labelchef.data.intake.automatic import word_primitives
from labelchef.loop.annotators import CallableAnnotator

N_TRUSTED = 100
ASKED = 50
SEEDS = 3
USEFUL, BETTER = 0.7, 0.15
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """A set of a seed: features, classes and what automatic sources look at, of training, trusted and test samples."""

    X: Mapping[str, NDArray[np.float32]]
    y: Mapping[str, Ints]
    n_classes: int
    texts: Mapping[str, list[str]] | None = None
    images: Mapping[str, NDArray[Any]] | None = None
    given: Mapping[str, Ints] | None = None
    """Votes of the sources that the set has, (n, J) on training and (m, J) on trusted samples."""


# sets

TEXTS = {
    "youtube_wrench": "comments",
    "trec_rules": "questions",
    "airline_twitter": "tweets",
    "sentiment_polarity_mturk": "sentences",
}
IMAGES = {"pneumonia": "pneumoniamnist", "breast": "breastmnist", "digits": ""}


def sets_here() -> tuple[str, ...]:
    """The sets that are in LABELCHEF_DATA, and the digits."""
    folder = real.data_folder()
    if folder is None:
        return ("digits",)
    texts = tuple(name for name in TEXTS if (folder / name).is_dir())
    return (*texts, *(("pneumonia", "breast") if (folder / "medmnist").is_dir() else ()), "digits")


def task_of(name: str, seed: int, n_train: int, n_test: int) -> Task:
    """The problem of a seed."""
    folder = Path(os.environ.get("LABELCHEF_DATA") or ".")
    rng = np.random.default_rng([seed, 79])
    return _texts(name, folder, rng, n_train, n_test) if name in TEXTS else _images(name, folder, rng, n_train, n_test)


def _texts(name: str, folder: Path, rng: np.random.Generator, n_train: int, n_test: int) -> Task:
    known = data.SOURCED[name]
    pool = known.read(folder / known.folder)
    texts = pd.read_parquet(folder / name / f"{TEXTS[name]}.parquet", columns=["text"])["text"].astype(str).tolist()
    chosen = data.sourced_rows(pool, rng, N_TRUSTED)
    rows = {"train": np.sort(chosen.train[:n_train]), "trusted": chosen.val, "test": chosen.test[:n_test]}
    given = None
    if pool.votes is not None:
        silent = np.full((N_TRUSTED, pool.votes.shape[1]), -1, dtype=np.int64)
        given = {
            "train": pool.votes[rows["train"]],
            "trusted": pool.votes[rows["trusted"]] if known.everywhere else silent,
        }
    return Task(
        {part: pool.X[at] for part, at in rows.items()},
        {part: pool.y[at] for part, at in rows.items()},
        pool.n_classes,
        texts={part: [texts[i] for i in at] for part, at in rows.items()},
        given=given,
    )


def _images(name: str, folder: Path, rng: np.random.Generator, n_train: int, n_test: int) -> Task:
    if name == "digits":
        bunch = load_digits()
        images, y = (bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64)
    else:
        file = np.load(folder / "medmnist" / f"{IMAGES[name]}.npz")
        parts = ("train", "val", "test")
        images = np.concatenate([file[f"{part}_images"] for part in parts])
        y = np.concatenate([file[f"{part}_labels"].ravel() for part in parts]).astype(np.int64)
    order = rng.permutation(len(y))
    n_test = min(n_test, len(y) // 4)
    ends = N_TRUSTED, N_TRUSTED + n_test, N_TRUSTED + n_test + n_train
    rows = {"trusted": order[: ends[0]], "test": order[ends[0] : ends[1]], "train": np.sort(order[ends[1] : ends[2]])}
    flat = images.reshape(len(y), -1).astype(np.float64)
    fitted = np.concatenate([rows["train"], rows["trusted"]])
    flat = (flat - flat[fitted].mean(axis=0)) / flat[fitted].std()
    axes = np.linalg.eigh(flat[fitted].T @ flat[fitted])[1][:, ::-1][:, : data.COMPONENTS]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    X = (flat @ axes).astype(np.float32)
    return Task(
        {part: X[at] for part, at in rows.items()},
        {part: y[at] for part, at in rows.items()},
        int(y.max()) + 1,
        images={part: images[at] for part, at in rows.items()},
    )


# what is compared


@dataclass(frozen=True)
class Votes:
    """Votes on training and trusted samples: class ids (n, J) with −1, or probabilities (n, 1, C) with NaN."""

    train: NDArray[Any]
    trusted: NDArray[Any]

    def beside(self, other: "Votes") -> "Votes":
        """Both, where both are class ids."""
        return Votes(np.hstack([self.train, other.train]), np.hstack([self.trusted, other.trusted]))


def _snuba(task: Task, seed: int) -> tuple[Votes, Votes]:
    """Every heuristic as a source, and all as one."""
    if task.texts is not None:
        primitives = word_primitives(task.texts["train"], task.texts["trusted"])
    else:
        d = task.X["train"].shape[1]
        names = tuple(f"feature {k}" for k in range(d))
        primitives = snuba.Primitives(names, task.X["trusted"], task.X["train"], np.zeros(d, dtype=bool))
    classes = [str(c) for c in range(task.n_classes)]
    written = snuba.write_heuristics(primitives, task.y["trusted"], classes, seed=seed)
    return Votes(written.train, written.trusted), Votes(
        written.train_beliefs[:, None, :], written.trusted_beliefs[:, None, :]
    )


def _proposed(task: Task, seed: int, *, active_search: bool = False) -> Votes:
    """Rules that a person finds useful, of `ASKED` that are proposed."""
    assert task.texts is not None
    classes = [str(c) for c in range(task.n_classes)]
    proposals = Proposals(
        task.texts["train"], classes, trusted_texts=task.texts["trusted"],
        trusted_labels=[str(c) for c in task.y["trusted"]], active_search=active_search, seed=seed,
    )  # fmt: skip
    boards = {
        part: RuleBoard(pd.DataFrame({"id": range(len(said)), "text": said})) for part, said in task.texts.items()
    }
    shares = np.bincount(task.y["train"], minlength=task.n_classes) / len(task.y["train"])
    for _ in range(ASKED):
        rule = proposals.next().rule
        c, here = int(rule.label), boards["train"].matches(rule).rows
        right = float(np.mean(task.y["train"][here] == c))
        proposals.tell(rule, right > max(USEFUL, float(shares[c]) + BETTER))
    chosen = proposals.chosen()
    tables = {part: np.full((len(task.y[part]), len(chosen)), -1, dtype=np.int64) for part in ("train", "trusted")}
    for part, table in tables.items():
        for j, rule in enumerate(chosen):
            table[boards[part].matches(rule).rows, j] = int(rule.label)
    return Votes(tables["train"], tables["trusted"])


def _affinity(task: Task, seed: int, maps: affinity.MapsOf) -> Votes:
    assert task.images is not None
    images = np.concatenate([task.images["train"], task.images["trusted"]])
    found = affinity.code_affinity(
        len(images), lambda rows: images[rows], task.y["trusted"], task.n_classes, maps, seed
    )
    return Votes(*(beliefs[:, None, :] for beliefs in found))


def measure(cell: Cell) -> dict[str, Any]:
    """Every row of the table for one set and seed."""
    task = task_of(cell.data, cell.seed, cell.n_train, cell.n_test)
    rows: dict[str, dict[str, float]] = {"trusted alone": {"test": _alone(task)}}
    nothing = _learned(task, None, cell.seed)
    rows["no source"] = nothing
    rows["labels asked"] = _learned(task, None, cell.seed, labels=ASKED)
    sources = _text_sources(task, cell.seed) if task.texts is not None else _image_sources(task, cell.seed)
    for name, votes in sources.items():
        rows[name] = _learned(task, votes, cell.seed) | _facts(task, votes)
    return {"rows": rows}


def _text_sources(task: Task, seed: int) -> dict[str, Votes]:
    each, together = _snuba(task, seed)
    proposed = _proposed(task, seed)
    found = {
        "snuba": each,
        "snuba-together": together,
        "interactive": proposed,
        "interactive, active search": _proposed(task, seed, active_search=True),
    }
    if task.given is not None:
        given = Votes(task.given["train"], task.given["trusted"])
        found |= {"given": given, "given + snuba": given.beside(each), "given + interactive": given.beside(proposed)}
    return found


def _image_sources(task: Task, seed: int) -> dict[str, Votes]:
    each, together = _snuba(task, seed)
    found = {"snuba": each, "snuba-together": together, "affinity, patches": _affinity(task, seed, affinity.patch_maps)}
    if has_efficientnet():
        found["affinity, network"] = _affinity(task, seed, affinity.conv_maps(network(EFFICIENTNET)[0].whole))
    return found


def _alone(task: Task) -> float:
    """scikit-learn's logistic regression on the trusted samples, its strength by cross-validation."""
    search = GridSearchCV(
        LogisticRegression(max_iter=2000), {"C": [0.01, 0.1, 1.0, 10.0, 100.0]}, cv=3, scoring="f1_macro"
    )
    search.fit(task.X["trusted"], task.y["trusted"])
    return _f1(task.y["test"], search.predict(task.X["test"]))


def _learned(task: Task, votes: Votes | None, seed: int, labels: int = 0) -> dict[str, float]:
    """labelchef as a user calls it: macro-F1 on test samples, and what its trusted samples say of it."""
    given: dict[str, Any] = {}
    if votes is not None and (votes.train >= 0).any():
        given = {"votes": votes.train, "votes_val": votes.trusted}
    cleaner = LabelCleaner(budget=max(labels, 1), random_state=seed)
    cleaner.fit(
        task.X["train"], X_val=task.X["trusted"], y_val=task.y["trusted"], classes=range(task.n_classes), **given
    )
    if labels:
        cleaner.run(CallableAnnotator(lambda batch: task.y["train"][batch.indices]))
    judged = float(cleaner.history_["val_f1_macro"].iloc[-1])
    return {"test": _f1(task.y["test"], np.asarray(cleaner.predict(task.X["test"]))), "judged": round(judged, 5)}


def _facts(task: Task, votes: Votes) -> dict[str, float]:
    """Sources, share of training samples voted on, and how often votes are right on training and on trusted samples."""
    facts: dict[str, float] = {"sources": votes.train.shape[1]}
    for part, table in (("train", votes.train), ("trusted", votes.trusted)):
        y = task.y[part]
        if table.ndim == 3:
            heard = ~np.isnan(table[:, 0, 0])
            right = np.nan_to_num(table[:, 0]).argmax(axis=1)[heard] == y[heard]
        else:
            rows, sources = np.nonzero(table >= 0)
            heard = (table >= 0).any(axis=1)
            right = table[rows, sources] == y[rows]
        facts[f"coverage {part}"] = round(float(heard.mean()), 4)
        if len(right):
            facts[f"right {part}"] = round(float(right.mean()), 4)
    return facts


def _f1(y: Ints, predicted: Any) -> float:
    return round(float(f1_score(y, predicted, average="macro")), 5)


# report

_COLUMNS: Mapping[str, str] = {
    "trusted alone": "LR, trusted only",
    "no source": "labelchef, no source",
    "labels asked": f"… and {ASKED} labels asked",
}


def _cells(plan: Plan) -> list[Cell]:
    """All sets of a seed before the next seed, so that a run that is cut short has them all."""
    sets = ("digits",) if plan.quick else sets_here()
    n_images = 300 if plan.quick else 500
    return [
        Cell(
            "automatic", name, seed, kind="automatic", n_train=1500 if name in TEXTS else n_images,
            n_test=1000 if name in TEXTS else 500,
        )
        for seed in range(min(plan.seeds, SEEDS))
        for name in sets
    ]  # fmt: skip


def _report(report: Report, results: list[Result]) -> None:
    report.intro("automatic", asked=ASKED, trusted=N_TRUSTED)
    report.commentary()
    frame = pd.DataFrame(
        [
            {"data": one["cell"]["data"], "seed": one["cell"]["seed"], "row": row, **values}
            for one in results
            for row, values in one["rows"].items()
        ]
    )
    plain = frame[frame["row"] == "no source"].set_index(["data", "seed"])["test"]
    frame["gain"] = frame["test"] - plain.reindex(pd.MultiIndex.from_frame(frame[["data", "seed"]])).to_numpy()
    for title, sets in (("Texts", TEXTS), ("Images", IMAGES)):
        part = frame[frame["data"].isin(sets)]
        if part.empty:
            continue
        names = list(dict.fromkeys(part["data"]))
        report.text(f"## {title}: test macro-F1")
        report.table(["", *names], _lines(part, names, "test", _COLUMNS.get))
        report.text(f"## {title}: the same less labelchef without a source, seed by seed")
        report.table(["", *names], _lines(part[part["row"] != "no source"], names, "gain", _COLUMNS.get))
        report.text(f"## {title}: what trusted samples say of the model, less what test samples say")
        judged = part.assign(judged=part["judged"] - part["test"]).dropna(subset="judged")
        report.table(["", *names], _lines(judged, names, "judged", _COLUMNS.get))
        voting = part.dropna(subset="sources")
        report.text(
            f"## {title}: the votes\n\nSources · share of training samples with a vote · votes that are right on training "
            "samples · the same on trusted samples (cross-fitted for Snuba and affinity, not for proposed rules); means over "
            "seeds."
        )
        report.table(["", *names], _votes(voting, names))
    report.data(frame)


def _lines(
    frame: pd.DataFrame, names: list[str], value: str, name_of: Callable[[str, str], str | None]
) -> list[list[str]]:
    lines = []
    for row in dict.fromkeys(frame["row"]):
        line = [name_of(row, row) or row]
        for name in names:
            found = frame.loc[(frame["row"] == row) & (frame["data"] == name), value]
            line.append(estimate(found).text(3, value != "test"))
        lines.append(line)
    return lines


def _votes(frame: pd.DataFrame, names: list[str]) -> list[list[str]]:
    lines = []
    for row in dict.fromkeys(frame["row"]):
        line = [row]
        for name in names:
            found = frame[(frame["row"] == row) & (frame["data"] == name)]
            shares = [found[key].mean() for key in ("coverage train", "right train", "right trusted")]
            said = " · ".join("–" if np.isnan(one) else f"{one:.2f}" for one in shares)
            line.append(f"{found['sources'].mean():.0f} · {said}" if len(found) else "–")
        lines.append(line)
    return lines


EXPERIMENTS = (Experiment("automatic", "What automatic sources bring", _cells, _report),)
