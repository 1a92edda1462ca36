"""`python -m benchmarks [name …] [--quick]`: run the named benchmarks, or all of them."""

import argparse
import importlib
import platform

import numpy as np
from rich.console import Console

NAMES = (
    "round_cost",
    "learner_cost",
    "selection",
    "look_ahead",
    "constructors",
    "skipping",
    "serving",
    "fleet",
    "beside",
    "browse",
    "items",
    "hostile",
    "restart",
    "receipts",
    "elsewhere",
    "gpu",
    "disk",
    "stored_forms",
    "cluster",
    "plan",
    "cluster_engines",
    "networks",
    "network_study",
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
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}\n")
    for name in options.names or NAMES:
        given = {"arguments": more} if more else {}
        importlib.import_module(f"benchmarks.{name}").main(console, quick=options.quick, **given)
        console.print()


if __name__ == "__main__":
    main()
