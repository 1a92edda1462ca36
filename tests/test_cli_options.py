"""Options of the command line that are built from the settings."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import OPTIONS, Settings
from labelchef.cli import options
from labelchef.cli.options import CLEAN_SETTINGS, file_options, setting_options, takes


def given(*arguments: str, names: Any = tuple(OPTIONS)) -> Settings:
    """The settings that a command gets from these arguments."""
    app, found = typer.Typer(), []

    @app.command()
    @takes(settings=setting_options(names))
    def command(settings: Settings) -> None:
        found.append(settings)

    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not found:
        raise result.exception
    return found[0]


def test_without_options_the_settings_are_the_defaults() -> None:
    assert given() == given(names=CLEAN_SETTINGS) == Settings()


def test_every_kind_of_option() -> None:
    found = given("--gamma", "0.5", "--suggestion-votes", "--batch-size", "3", "--target", "0.9", "--stop", "x")
    assert found == Settings(gamma=0.5, suggestion_votes=True, batch_size=3, target=0.9, stop="x")
    assert given("--mute", "old rule", "--mute", "coin").muted == ("old rule", "coin")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(["--budget", "0"], "budget"), (["--stop", ""], "stop")],
)
def test_zero_or_an_empty_text_is_none(arguments: list[str], name: str) -> None:
    assert getattr(given(*arguments), name) is None


def test_zero_is_a_number_where_none_is_not_allowed() -> None:
    assert given("--ahead", "0", "--holdout", "0").holdout == 0.0
    with pytest.raises(InvalidInputError, match="batch_size is 0"):
        given("--batch-size", "0")


def test_a_strategy_sets_the_voters() -> None:
    assert given("--strategy", "three", "--people", "0") == Settings(people=2, suggestion_votes=True)
    with pytest.raises(InvalidInputError, match="unknown strategy 'four'"):
        given("--strategy", "four")


def test_settings_of_clean_have_no_voters() -> None:
    with pytest.raises(SystemExit):
        given("--people", "2", names=CLEAN_SETTINGS)


def test_a_new_setting_becomes_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Help, type and default of an option come from the setting alone."""
    more = replace(OPTIONS["budget"], help="Something new.", none="nothing")
    monkeypatch.setattr(options, "OPTIONS", {**OPTIONS, "budget": more})
    (parameter,) = setting_options(["budget"]).options
    kind, info = parameter.annotation.__origin__, parameter.annotation.__metadata__[0]
    assert (kind, parameter.default, info.help) == (int | None, 100, "Something new. 0: nothing.")


def test_files_are_handed_over_by_name() -> None:
    group = file_options(["features", "items"], required=["features"])
    assert [option.default is inspect.Parameter.empty for option in group.options] == [True, False]
    assert group.make({"features": Path("x"), "items": None}) == {"features": Path("x")}
