"""Docs that would fall behind the code fail here."""

import re
from dataclasses import fields
from pathlib import Path
from typing import cast

import pytest
from tools import docs_reference
from typer.core import TyperGroup
from typer.main import get_command

from labelchef.base.settings import OPTIONS
from labelchef.chef.choice import ALL_SELECTORS
from labelchef.chef.constructors import CONSTRUCTORS
from labelchef.cli.main import app
from labelchef.data.files.digits import RULES
from labelchef.networks import NETWORK_CONSTRUCTORS, NETWORK_SELECTORS, InfluenceSettings, TrainingSettings
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace

ROOT = Path(__file__).parent.parent
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def test_the_reference_of_commands_has_every_command_with_its_options() -> None:
    sections = {part.partition("`\n")[0]: part for part in docs_reference.commands().split("### `labelchef ")[1:]}
    commands = dict(docs_reference.leaves("", cast(TyperGroup, get_command(app))))
    assert set(sections) == {name.strip() for name in commands}
    once = {"home", "database", "person"}  # docs/cli.md says it once for all commands
    settings = {*OPTIONS, "mute", "use_trusted"} - {"trusted"}  # docs/settings.md has them
    for name, command in commands.items():
        section = sections[name.strip()]
        for parameter in command.params:
            said = (
                parameter.name in once
                or parameter.opts == ["campaign"]
                or (name in (" clean", " init") and parameter.name in settings)
            )
            row = re.search(rf"^\| `{re.escape(parameter.opts[0])}`.* \|$", section, re.M)
            assert (row is None) == said, f"{parameter.opts[0]} of labelchef{name}"
            if row and isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool):
                assert f"`{parameter.default}`" in row[0]


def test_the_reference_of_settings_has_every_setting() -> None:
    rows = docs_reference.settings().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(OPTIONS)
    for row, option in zip(rows, OPTIONS.values(), strict=True):
        assert row.count(" | ") == 4, option.title


def test_the_reference_of_routes_has_every_route() -> None:
    document = create_app(cast(Workspace, None), ServeOptions(team=True), work=False).openapi()
    routes = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert set(re.findall(r"^\| `(.+?)` \|", docs_reference.routes(), re.M)) == routes


def test_every_part_of_the_reference_stands_on_a_page() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    for name, part in docs_reference.PARTS.items():
        assert pages.count(f"\n<!-- generated: {name} -->\n") == 1
        assert part() in docs_reference.filled(pages)


def test_every_selector_and_constructor_is_documented() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    for name in (*ALL_SELECTORS, *CONSTRUCTORS):
        assert f"`{name}`" in text


def test_the_table_of_selectors_says_who_suggests() -> None:
    section = (ROOT / "docs" / "method.md").read_text().partition("## Selectors\n")[2].partition("\n## ")[0]
    lines = section.splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    column = table[0].index("suggests")
    names = [row[0].strip("`") for row in table[1:]]
    assert {"duti", "infl", "infl_d", "infl_y", "tars"} <= set(names)
    assert names == sorted(names)
    for name, row in zip(names, table[1:], strict=True):
        assert row[column] == ("yes" if ALL_SELECTORS[name]().suggests else "no"), (
            f"docs/method.md is wrong about {name}"
        )


def test_every_selector_and_constructor_of_a_network_is_documented() -> None:
    text = (ROOT / "docs" / "networks.md").read_text()
    for name in (*NETWORK_SELECTORS, *NETWORK_CONSTRUCTORS):
        assert f"`{name}`" in text
    for settings in (TrainingSettings, InfluenceSettings):
        assert f"`{settings.__name__}`" in text
    for field in fields(InfluenceSettings):
        assert f"`{field.name}" in text


def test_every_setting_is_an_option() -> None:
    labelling = {name for name, option in OPTIONS.items() if option.labelling}
    shown = {"use_trusted": "trusted", "mute": "muted"}  # --trusted names a file, --mute one source

    def options(command: str) -> set[str]:
        names = {str(parameter.name) for parameter in COMMANDS[command].params} - {"trusted"}
        return {shown.get(name, name) for name in names}

    assert set(OPTIONS) <= options("init")
    assert set(OPTIONS) - labelling == set(OPTIONS) & options("clean")


def test_every_room_is_documented() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = [p.name for p in (ROOT / "src" / "labelchef").iterdir() if p.is_dir() and p.name != "__pycache__"]
    for room in rooms:
        assert f"`{room}`" in text, f"docs/architecture.md does not mention {room}"


def test_the_modules_that_docstrings_name_exist() -> None:
    """`room.module` or `room.module.name`, in the code and in its tests."""
    package = ROOT / "src" / "labelchef"
    rooms = "|".join(one.name for one in package.iterdir() if (one / "__init__.py").exists())
    for path in [*package.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for name in re.findall(rf"`((?:{rooms})(?:\.[a-z_]+)+)`", path.read_text()):
            parts = name.removesuffix(".npz").removesuffix(".onnx").split(".")
            steps = [package.joinpath(*parts[:k]) for k in range(len(parts), len(parts) - 2, -1)]
            assert any(one.is_dir() or one.with_suffix(".py").exists() for one in steps), f"{path.name}: {name}"


def test_the_files_that_the_architecture_names_exist() -> None:
    named = set(re.findall(r"`([a-z_/]+/[a-z_]+\.py)`", (ROOT / "docs" / "architecture.md").read_text()))
    assert len(named) > 20
    for path in named:
        assert (ROOT / "src" / "labelchef" / path).exists() or (ROOT / path).exists(), path


def test_the_demo_text_counts_its_rules() -> None:
    assert f"{len(RULES)} rules" in (ROOT / "README.md").read_text()


def test_the_readme_names_only_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text()):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize(
    "page",
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "experiments" / "results").glob("*.md")),
    ],
    ids=str,
)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), f"{page.name} links {link}, which does not exist"


def test_every_file_that_the_docs_name_as_a_test_exists() -> None:
    named = {
        name
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        for name in re.findall(r"tests/[\w/]+\.py|(?<=python -m )tests\.\w+", page.read_text())
    }
    assert len(named) > 5
    for name in named:
        assert (ROOT / (name if name.endswith(".py") else f"{name.replace('.', '/')}.py")).exists(), name


def test_the_budgets_of_words() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 140
    assert len((ROOT / "docs" / "trust.md").read_text().split()) <= 2500
