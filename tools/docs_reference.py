"""Hook of mkdocs: the reference of commands, settings and routes, made of the code.

A page holds a line `<!-- generated: commands -->` (or `settings`, or `routes`) where a part of the reference belongs. No part is
kept in the repository, so none can be out of date.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import cast

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from labelchef.base.settings import OPTIONS, Settings
from labelchef.cli.main import app
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace

_MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.M)
_SIGN = re.compile(r"`[^`]*`|([|*_<\[])")
_SENTENCE = re.compile(r"(?<=\.)\s")
_SAID_ONCE = frozenset({"help", "home", "database", "person"})
"""Parameters that docs/cli.md explains once for all commands."""
_SETTINGS = frozenset({"mute", "use_trusted", *OPTIONS} - {"trusted"})
"""Parameters that are settings where a command takes all of them."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page with its generated parts."""
    del page, config, files
    return filled(markdown)


def filled(markdown: str) -> str:
    """A text in which each mark is replaced by the part of the reference that the mark names."""
    return _MARK.sub(lambda mark: PARTS[mark[1]](), markdown)


def commands() -> str:
    """All commands, each with its arguments and options."""
    parts = []
    for name, command in leaves("labelchef", cast(TyperGroup, get_command(app))):
        parameters = cast(list[TyperArgument | TyperOption], command.params)
        names = {one.name for one in parameters}
        said = _SAID_ONCE | (_SETTINGS if {"gamma", "budget"} <= names else frozenset())
        own = [one for one in parameters if one.name not in said and one.opts != ["campaign"]]
        rows = [(_spelled(one), _text(getattr(one, "help", "")), _default(one)) for one in own]
        parts += [f"### `{name}`", _text(command.help or ""), _table(("option", "meaning", "default"), rows)]
    return "\n\n".join(part for part in parts if part)


def settings() -> str:
    """All settings in one table."""
    rows = []
    for one in fields(Settings):
        option = OPTIONS[one.name]
        default = "none" if one.default in (None, ()) else str(one.default)
        shown = default.lower() if option.kind is bool else default
        rows.append((f"`{one.name}`", _text(option.help), _text(option.expected), f"`{shown}`", _text(option.effect)))
    return _table(("setting", "meaning", "allowed", "default", "what a change does"), rows)


def routes() -> str:
    """All routes of the API, by what they are about, each with the first sentence of its description."""
    document = create_app(cast(Workspace, None), ServeOptions(team=True), work=False).openapi()
    found = [
        (route["tags"][0], (f"`{method.upper()} {path}`", _text(_SENTENCE.split(route["description"])[0])))
        for path, methods in document["paths"].items()
        for method, route in methods.items()
    ]
    subjects = groupby(sorted(found, key=lambda one: one[0]), key=lambda one: one[0])
    return "\n\n".join(
        f"### {subject}\n\n{_table(('route', 'what'), [row for _, row in rows])}" for subject, rows in subjects
    )


PARTS: Mapping[str, Callable[[], str]] = {"commands": commands, "settings": settings, "routes": routes}


def leaves(name: str, group: TyperGroup) -> Iterator[tuple[str, TyperCommand]]:
    """The commands below a group and its groups, with their full names."""
    for word, below in group.commands.items():
        if isinstance(below, TyperGroup):
            yield from leaves(f"{name} {word}", below)
        else:
            yield f"{name} {word}", cast(TyperCommand, below)


def _spelled(parameter: TyperArgument | TyperOption) -> str:
    """How a parameter is written: `--open` / `--no-open`."""
    return " / ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))


def _default(parameter: TyperArgument | TyperOption) -> str:
    """What a parameter is where nobody gives it."""
    if parameter.required:
        return "required"
    default = parameter.default
    if isinstance(default, bool):
        return "on" if default else ""
    return f"`{default}`" if isinstance(default, int | float | str | Path) and default != "" else ""


def _text(text: str) -> str:
    """A text as one line of a table: outside of `code`, no sign of it means anything in Markdown."""
    return _SIGN.sub(lambda found: f"\\{found[1]}" if found[1] else found[0], " ".join(text.split()))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown; nothing where there are no rows."""
    lines = [head, ("---",) * len(head), *rows] if rows else []
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
