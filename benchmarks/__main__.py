"""`python -m benchmarks [name …] [--quick]`: run the named benchmarks, or all of them."""

import argparse
import importlib
import platform
import textwrap
from typing import Any

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

NAMES = (
    "round_cost",
    "learner_cost",
    "selection",
    "look_ahead",
    "constructors",
    "serving",
    "fleet",
    "beside",
    "browse",
    "items",
    "hostile",
    "restart",
    "signed_ledger",
    "elsewhere",
    "gpu",
    "disk",
    "stored_forms",
    "cluster",
    "plan",
    "networks",
    "network_study",
)


_FILE = 1000
"""Columns of a file: as many as the widest table needs."""


class FittingConsole(Console):
    """A console without cut tables: what is too wide for a terminal comes as a line of values for each row."""

    def __init__(self, **options: Any) -> None:
        super().__init__(soft_wrap=True, highlight=False, **options)
        if not self.is_terminal:
            self.width = _FILE

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, with tables in the form that fits."""
        super().print(*map(self._fitting, objects), **options)

    def _fitting(self, shown: object) -> object:
        if not isinstance(shown, Table):
            return shown
        needed = Measurement.get(self, self.options.update(max_width=_FILE), shown).maximum
        if needed <= self.width:
            return shown
        titles = [str(column.header) for column in shown.columns]
        rows = zip(*(map(str, column.cells) for column in shown.columns), strict=True)
        lines = [" · ".join(f"{title}: {value}" for title, value in zip(titles, row, strict=True)) for row in rows]
        return "\n".join(
            textwrap.fill(line, self.width, subsequent_indent="  ") for line in (str(shown.title or ""), *lines)
        )


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="small shapes, to see that everything runs")
    options, more = parser.parse_known_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; expected one of: {', '.join(NAMES)}")
    if more and options.names not in (["items"], ["disk"]):
        parser.error(f"unknown option {more[0]}")
    console = FittingConsole()
    console.print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}\n")
    for name in options.names or NAMES:
        given = {"arguments": more} if more else {}
        importlib.import_module(f"benchmarks.{name}").main(console, quick=options.quick, **given)
        console.print()


if __name__ == "__main__":
    main()
