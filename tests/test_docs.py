"""Docs that would fall behind the code fail here."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from labelchef.campaign.choice import ALL_SELECTORS
from labelchef.cli.main import app
from labelchef.constructors import CONSTRUCTORS
from labelchef.domain.settings import OPTIONS, options_table
from labelchef.io.digits import RULES
from labelchef.networks import NETWORK_CONSTRUCTORS, NETWORK_SELECTORS, InfluenceSettings, TrainingSettings

ROOT = Path(__file__).parent.parent
CLI = (ROOT / "docs" / "cli.md").read_text()
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def section_of(name: str) -> str:
    """The section of a command; some commands share one, whose heading names them all."""
    for section in CLI.split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        if f"`labelchef {name}`" in heading or f"`{name}`" in heading:
            return section
    raise AssertionError(f"docs/cli.md has no section of {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    section = section_of(name)
    settings = {*OPTIONS, "mute"}
    for parameter in COMMANDS[name].params:
        if name in ("clean", "init") and parameter.name in settings:
            continue  # a setting: docs/settings.md has it
        mentioned = f"`{parameter.opts[0]}`" in section or f"`{parameter.opts[0]} " in section
        assert mentioned, f"docs/cli.md does not mention {parameter.opts[0]} of {name}"
        default = parameter.default
        if isinstance(default, int | float | str) and not isinstance(default, bool):
            number = f"{default:g}" if isinstance(default, float) else str(default)
            assert re.search(rf"{re.escape(parameter.opts[0])}`.*{re.escape(number)}", section)


def test_every_command_of_a_group_is_documented() -> None:
    users = COMMANDS["users"]
    for name, command in users.commands.items():
        line = next(line for line in CLI.splitlines() if line.startswith(f"| `users {name}`"))
        for parameter in command.params:
            assert f"`{parameter.opts[0]}`" in line, f"docs/cli.md does not mention {parameter.opts[0]} of users {name}"


def test_every_selector_and_constructor_is_documented() -> None:
    for name in (*ALL_SELECTORS, *CONSTRUCTORS):
        assert f"`{name}`" in CLI


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


def test_every_setting_is_an_option_and_documented() -> None:
    labelling = {name for name, option in OPTIONS.items() if option.labelling}
    shown = {"use_trusted": "trusted", "mute": "muted"}  # --trusted names a file, --mute one source

    def options(command: str) -> set[str]:
        names = {str(parameter.name) for parameter in COMMANDS[command].params} - {"trusted"}
        return {shown.get(name, name) for name in names}

    assert set(OPTIONS) <= options("init")
    assert set(OPTIONS) - labelling == set(OPTIONS) & options("clean")
    for name in ("clean", "init"):
        section = CLI[CLI.index(f"## `labelchef {name}`") :]
        assert "(settings.md)" in section[: section.find("\n## ", 1)]
    found = [line for line in (ROOT / "docs" / "settings.md").read_text().splitlines() if line.startswith("|")]
    start = next(k for k, line in enumerate(found) if line.startswith("| setting "))
    assert found[start:] == options_table().splitlines(), (
        "docs/settings.md is out of date; print the new table with "
        "python -c 'from labelchef.domain.settings import options_table; print(options_table())'"
    )


def test_every_room_is_documented() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = [p.name for p in (ROOT / "src" / "labelchef").iterdir() if p.is_dir() and p.name != "__pycache__"]
    for room in rooms:
        assert f"`{room}`" in text, f"docs/architecture.md does not mention {room}"


def test_the_files_that_the_architecture_names_exist() -> None:
    named = set(re.findall(r"`([a-z_/]+/[a-z_]+\.py)`", (ROOT / "docs" / "architecture.md").read_text()))
    assert len(named) > 20
    for path in named:
        assert (ROOT / "src" / "labelchef" / path).exists() or (ROOT / path).exists(), path


def test_the_demo_text_counts_its_rules() -> None:
    assert f"{len(RULES)} rules" in CLI
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
