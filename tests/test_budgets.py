"""The size of the house: lines, rooms, imports between them, circles, words of the docs, settings, commands, parameters.

Each limit is what was reached last, and only goes down; the number behind it is what it should become.
"""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
import typer

from labelchef import LabelCleaner
from labelchef.base.settings import Settings
from labelchef.cli.main import app as command_line

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "labelchef"


@cache
def trees() -> dict[str, ast.Module]:
    """The modules of the package by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def lines_of(pattern: str, *folders: str) -> int:
    """Lines of the files of these folders."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob(pattern)]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def words_of_docs() -> int:
    return sum(
        len(path.read_text(encoding="utf-8").split()) for path in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    )


def room_of(module: str) -> str:
    """The first part of a name below the package."""
    return f"{module}.".split(".")[1]


def imports() -> Iterator[tuple[str, str]]:
    """(module, module that it imports), wherever in the module."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted = [one if one in trees() else node.module for one in inner]
            else:
                continue
            yield from ((name, one) for one in wanted if one in trees() and one != name)


def rooms() -> int:
    return len({room_of(name) for name in trees()} - {"", "__main__"})


def imports_between_rooms() -> int:
    pairs = {(room_of(a), room_of(b)) for a, b in imports()}
    return len({(a, b) for a, b in pairs if a != b and "" not in (a, b)})


def functions() -> Iterator[tuple[str, int]]:
    """Functions and the number of their parameters; compiled ones, whose arrays cannot be a record, are left out."""
    for module, tree in trees().items():
        if not module.endswith("kernels"):
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    given = node.args.posonlyargs + node.args.args
                    bound = bool(given) and given[0].arg in ("self", "cls")
                    yield f"{module}.{node.name}", len(given) + len(node.args.kwonlyargs) - bound


def long_functions() -> int:
    return sum(n >= 8 for _, n in functions())


def long_modules() -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) > 400 for path in PACKAGE.rglob("*.py"))


def large_classes() -> int:
    """Classes of more than 15 methods."""
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return sum(
        sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in one.body) > 15 for one in classes
    )


def commands() -> int:
    return len(typer.main.get_command(command_line).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("what", "found", "limit"),
    [
        ("lines of Python in src (45,000)", lambda: lines_of("*.py", "src"), 67_600),
        ("lines of tests (30,000)", lambda: lines_of("*.py", "tests"), 44_600),
        ("lines of experiments, benchmarks, torture and tools (10,000)",
         lambda: lines_of("*.py", "experiments", "benchmarks", "torture", "tools"), 12_350),
        ("rooms (11)", rooms, 10),
        ("imports between rooms (32)", imports_between_rooms, 39),
        ("modules over 400 lines (5)", long_modules, 34),
        ("classes over 15 methods (6)", large_classes, 18),
        ("functions with 8 or more parameters (10)", long_functions, 16),
        ("words of docs (35,000)", words_of_docs, 33_000),
        ("lines of the README (140)", lambda: len((ROOT / "README.md").read_text().splitlines()), 140),
        ("settings (26)", lambda: len(fields(Settings)), 26),
        ("commands (18)", commands, 18),
        ("parameters of LabelCleaner (16)", lambda: len(inspect.signature(LabelCleaner).parameters), 16),
        ("arguments of fit (9)", lambda: len(inspect.signature(LabelCleaner().fit).parameters), 9),
    ],
)  # fmt: skip
def test_budget(what: str, found: object, limit: int) -> None:
    assert callable(found)
    assert found() <= limit, f"{what}: {found()}, and at most {limit} are allowed"
