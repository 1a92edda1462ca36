"""The codes of errors, from the source: which can be raised by code that the web app can reach.

A module is in reach if `labelchef.server.web.app` imports it, directly or through others, at the top or inside a function. A code
is the constant that a call gets as `code`; calls that get something else there are listed apart.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import labelchef

ROOT = Path(labelchef.__file__).parent
Place = str
"""A module and the function in it."""


def modules_in_reach(start: str = "labelchef.server.web.app") -> dict[str, ast.Module]:
    """Name → tree of the modules that the app can reach."""
    found: dict[str, ast.Module] = {}
    todo = [start]
    while todo:
        name = todo.pop()
        path = _file_of(name)
        if name in found or path is None or name == "labelchef":
            continue
        found[name] = ast.parse(path.read_text(), str(path))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        todo += list(_imports(found[name], package))
        while "." in (
            name := name.rpartition(".")[0]
        ):  # the packages around it; not the root, which gives names to users
            todo.append(name)
    return found


def _file_of(name: str) -> Path | None:
    path = ROOT.parent.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("labelchef"))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                module = ".".join([*parts, module]).strip(".")
            if module.startswith("labelchef"):
                yield module
                yield from (f"{module}.{one.name}" for one in node.names)


def raised(modules: dict[str, ast.Module]) -> tuple[dict[str, list[Place]], list[Place]]:
    """Code → places that raise it; and the places whose code is not a constant."""
    constant: dict[str, list[Place]] = {}
    computed: list[Place] = []
    for name, tree in modules.items():
        for inside, node in _calls(tree, ""):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = next((one.value for one in node.keywords if one.arg == "code"), None)
            if given is None or called in ("render", "problem", "field"):
                continue
            place = f"{name}:{inside}"
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                constant.setdefault(given.value, []).append(place)
            else:
                computed.append(place)
    return constant, computed


def _calls(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the name of the function around it."""
    for child in ast.iter_child_nodes(node):
        around = inside
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            around = f"{inside}.{child.name}".strip(".")
        if isinstance(child, ast.Call):
            yield inside, child
        yield from _calls(child, around)
