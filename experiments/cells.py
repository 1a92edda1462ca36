"""A cell: one campaign of an experiment's grid, from its settings to a line of results."""

import functools
import hashlib
import inspect
import io
import json
import time
import warnings
from collections import ChainMap
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import labelchef
from experiments import data
from experiments.cleanlab_selectors import CLEANLAB_SELECTORS
from labelchef import Known, LabelCleaner
from labelchef.base.records import UNRESOLVED, RoundRecord
from labelchef.chef.baselines import BASELINES
from labelchef.chef.choice import ALL_SELECTORS, make_selector
from labelchef.chef.constructors import DescentSettings, make_constructor
from labelchef.chef.selectors import SELECTORS

RECIPE = 1
"""Raise it when a cell of equal settings would come out differently: finished cells are then run again."""

SAME_BATCHES = {"infl": "increm_infl", "increm_infl_theorem1": "increm_infl"}
"""Selectors that return the batches of another one, only slower: their F1 is not measured twice."""

CHOOSERS = ChainMap(CLEANLAB_SELECTORS, ALL_SELECTORS)
"""Name → factory of every selector that an experiment may name."""

Setting = float | str | None


@dataclass(frozen=True)
class Cell:
    """One campaign; `selector` '' where the experiment has none. Settings that are None are not passed on."""

    experiment: str
    data: str
    seed: int
    selector: str = ""
    strategy: str = "one"
    b: int = 10
    labels: int = 100
    gamma: Setting = None
    l2: Setting = None
    look_ahead: bool = False
    constructor: str = "newton"
    holdout: Setting = None
    rounded: bool = False
    standardised: bool = False
    n_train: int = 3000
    n_test: int = 2000
    n_val: int | None = None
    kind: str = "campaign"

    @property
    def key(self) -> str:
        """What a finished cell is known by: its settings, the recipe and the version of the package, which peers do not use."""
        version = "" if self.kind == "peer" else labelchef.__version__
        text = json.dumps([RECIPE, version, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        ahead = " + look-ahead" if self.look_ahead else ""
        who = f"{self.selector}{ahead} ({self.strategy})" if self.selector else self.kind
        return f"{self.experiment}: {self.data}, {who}, b={self.b}, gamma={self.gamma}, seed {self.seed}"


def selectors() -> tuple[str, ...]:
    """Every selector that chooses batches of its own."""
    return tuple(name for name in (*SELECTORS, *CLEANLAB_SELECTORS, *BASELINES) if name not in SAME_BATCHES)


def strategies(selector: str) -> tuple[str, ...]:
    """Strategies two and three count the selector's suggestion: they are for those that suggest."""
    return ("one", "two", "three") if CHOOSERS[selector]().suggests else ("one",)


def product_default(name: str) -> Any:
    """The default of a setting of `LabelCleaner`; None where it has no such setting."""
    found = inspect.signature(LabelCleaner).parameters.get(name)
    return None if found is None else found.default


def whole_validation() -> Setting:
    """The paper's use of validation, where everything steers; None where `LabelCleaner` leaves no choice."""
    return 0.0 if "holdout" in inspect.signature(LabelCleaner).parameters else None


@functools.cache
def code_digest() -> str:
    """A digest of the package's source, so that results of different code can be told apart."""
    folder = Path(labelchef.__file__).parent
    rooms = [folder / name for name in ("base", "model", "chef", "judge", "believe", "data", "loop", "networks")]
    assert all(room.is_dir() for room in rooms), rooms
    files = [path for room in rooms for path in sorted(room.rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run a cell; its result as plain JSON. The same wherever and in whatever order it runs, times apart."""
    from experiments import automatic, embedding, networks, peers, selectors, timings

    kinds = {
        "campaign": campaign,
        "network": networks.campaign,
        "peer": peers.peer_campaign,
        "board": peers.our_campaign,
        "selectors": selectors.study,
        "tsne": embedding.measure,
        "automatic": automatic.measure,
        "selection": timings.selection,
        "construction": timings.construction,
    }
    began = time.perf_counter()
    # a library that prints would write over the progress bar
    with warnings.catch_warnings(record=True) as caught, redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        found = kinds[cell.kind](cell)
    return {
        "key": cell.key,
        "cell": asdict(cell),
        "version": labelchef.__version__,
        "code": code_digest(),
        "seconds": round(time.perf_counter() - began, 3),
        "warnings": sorted({warning.category.__name__ for warning in caught}),
        **found,
    }


@functools.lru_cache(maxsize=64)
def strengths(problem_cell: Cell) -> tuple[float, float]:
    """(gamma, l2) as `LabelCleaner` chooses them: the same for all selectors, so they are chosen once a problem."""
    d = problem_of(problem_cell).data
    settings = {name: getattr(problem_cell, name) for name in ("gamma", "l2", "holdout")}
    cleaner = LabelCleaner(
        trusted="steer",
        random_state=problem_cell.seed,
        **{name: value for name, value in settings.items() if value is not None},
    )
    cleaner.fit(d.X, d.Y_weak, X_val=d.X_val, y_val=d.y_val)
    return cleaner.gamma_, cleaner.l2_


def cleaner_of(cell: Cell) -> LabelCleaner:
    """The cleaner with the cell's settings; what it would choose by itself is chosen once for all cells of a problem."""
    settings = {name: getattr(cell, name) for name in ("gamma", "l2", "holdout")}
    if "auto" in (cell.gamma, cell.l2):
        same = replace(cell, experiment="", selector="", strategy="", b=0, labels=0, look_ahead=False, constructor="")
        settings["gamma"], settings["l2"] = strengths(same)
    return LabelCleaner(
        trusted="steer",
        selector=make_selector(
            CLEANLAB_SELECTORS.get(cell.selector, lambda: cell.selector)(), look_ahead=cell.look_ahead
        ),
        constructor=make_constructor(cell.constructor, descent=DescentSettings(seed=cell.seed)),
        budget=cell.labels,
        batch_size=cell.b,
        random_state=cell.seed,
        **{name: value for name, value in settings.items() if value is not None},
    )


def problem_of(cell: Cell) -> data.Problem:
    """The data of the cell."""
    return data.draw(
        cell.data, cell.seed, n_train=cell.n_train, n_test=cell.n_test, n_val=cell.n_val, rounded=cell.rounded,
        standardised=cell.standardised,
    )  # fmt: skip


def campaign(cell: Cell) -> dict[str, Any]:
    """F1 per labels asked, and how good suggestions and answers were."""
    problem = problem_of(cell)
    d = problem.data
    cleaner = cleaner_of(cell)
    cleaner.fit(d.X, d.Y_weak, X_val=d.X_val, y_val=d.y_val, known=Known(X_test=d.X_test, y_test=d.y_test))
    return followed(cleaner, problem, cell)


def followed(cleaner: LabelCleaner, problem: data.Problem, cell: Cell) -> dict[str, Any]:
    """What becomes of a campaign whose first model stands."""
    result, d = cleaner.run(problem.annotator(cell.strategy, cell.seed)), problem.data
    history, asked = result.history, result.rounds[1:]
    phases = history.iloc[1:]
    return {
        "gamma": cleaner.gamma_,
        "l2": cleaner.l2_,
        "asked": history["spent"].tolist(),
        "test_f1": _rounded(history["test_f1_macro"]),
        "val_f1": _rounded(history["val_f1_macro"]),
        "test_accuracy": _rounded(history["test_accuracy"].iloc[[0, -1]]),
        "suggested_true": [_agreement(record, d.y) for record in asked],
        "wrong": _wrong(asked, d.y),
        "unresolved": float(np.mean(_decided(asked) == UNRESOLVED)),
        "seconds_select": round(float(phases["seconds_select"].sum()), 4),
        "seconds_construct": round(float(phases["seconds_construct"].sum()), 4),
    }


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 5) for value in values]


def _agreement(record: RoundRecord, truth: Any) -> float | None:
    """Share of a round's suggestions that equal the truth; None where there are none."""
    batch = record.batch
    given = batch.suggested != UNRESOLVED
    return round(float(np.mean((batch.suggested == truth[batch.indices])[given])), 4) if given.any() else None


def _decided(rounds: tuple[RoundRecord, ...]) -> Any:
    return np.concatenate([record.decisions.labels for record in rounds] or [np.full(1, UNRESOLVED)])


def _wrong(rounds: tuple[RoundRecord, ...], truth: Any) -> float:
    """Share of the labels decided that are not the truth."""
    labels = _decided(rounds)
    items = np.concatenate([record.decisions.items for record in rounds] or [np.zeros(1, dtype=np.int64)])
    known = labels != UNRESOLVED
    return round(float(np.mean(labels[known] != truth[items[known]])), 4) if known.any() else 0.0
