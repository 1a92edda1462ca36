"""Which cells an experiment has: sizes, sets and seeds of a full run and of a quick one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments import data
from experiments.cells import Cell, strategies, whole_validation
from experiments.reporting import Report
from experiments.store import Result

SEEDS, QUICK_SEEDS = 10, 2
QUICK_SETS = ("youtube_wrench", "pneumonia")


@dataclass(frozen=True)
class Plan:
    """How large a run is; `sets` are the data sets there are."""

    quick: bool
    seeds: int
    sets: tuple[str, ...]

    @classmethod
    def of(cls, *, quick: bool = False, seeds: int | None = None) -> "Plan":
        """The plan for the data that are here."""
        here = data.sets_here()
        sets = tuple(name for name in here if name in QUICK_SETS) or here[:2] if quick else here
        return cls(quick, seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS, sets)

    def among(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """The sets that are wanted, of those that are there; those that are there if none is."""
        return tuple(name for name in self.sets if name in wanted) or self.sets

    def sizes(self, n_train: int, n_test: int = 2000) -> dict[str, Any]:
        """Sizes of a cell, small ones for a quick run."""
        return {"n_train": min(n_train, 600), "n_test": 500} if self.quick else {"n_train": n_train, "n_test": n_test}


@dataclass(frozen=True)
class Experiment:
    """A name on the command line, its cells and its page."""

    name: str
    title: str
    cells: Callable[[Plan], list[Cell]]
    report: Callable[[Report, list[Result]], None]


def paper_cell(plan: Plan, experiment: str, name: str, seed: int, n_train: int, **settings: Any) -> Cell:
    """A cell with the paper's use of validation and the set's own L2."""
    return Cell(
        experiment,
        name,
        seed,
        l2=data.SOURCES[name].l2,
        holdout=whole_validation(),
        **plan.sizes(n_train),
        **settings,
    )


def by_strategy(chosen: Sequence[str]) -> list[tuple[str, str, bool]]:
    """(selector, strategy, look-ahead) of each row of a table; INFL once more with look-ahead."""
    rows = [(selector, strategy, False) for selector in chosen for strategy in strategies(selector)]
    return [*rows, ("increm_infl", "one", True)]
