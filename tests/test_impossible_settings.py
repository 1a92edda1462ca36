"""Settings that cannot work are refused before anything is made: in Python, on the command line and by the API."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labelchef.base.cluster_address import ADDRESS
from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import Settings
from labelchef.cli.main import app
from labelchef.loop.start import check_choices
from labelchef.server.campaigns.campaigns import change_settings, list_campaigns, settings
from labelchef.server.workspace import open_workspace
from tests.store_support import make

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"engine": "dask"}, "cluster", f"no cluster is known; .*{ADDRESS}"),
    ({"ahead": 10**12}, "ahead", "ahead is 1000000000000, and there are 60 items to label; expected .* from 0 to 60"),
    ({"target": 1.5}, "target", "target is 1.5; expected a number from 0 to 1 for f1_macro"),
]


def test_what_cannot_work_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    with open_workspace(tmp_path / "home") as ws:
        slug = make(ws)
        before = settings(ws, slug)
        for wrong, code, why in WRONG:
            for tried in (partial(make, ws, "Other", **wrong), partial(change_settings, ws, slug, "lead", **wrong)):
                with pytest.raises(InvalidInputError, match=why) as refused:
                    tried()
                assert refused.value.code == code
            words = [word for name, value in wrong.items() for word in ("--set", f"{name}={value}")]
            done = CliRunner().invoke(app, ["campaign", "copy", slug, *words, "--home", str(ws.home)])
            assert isinstance(done.exception, InvalidInputError), done.output
            assert done.exception.code == code
        assert settings(ws, slug) == before
        assert len(list_campaigns(ws)) == 1


def test_what_can_work_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, "tcp://127.0.0.1:8786")
    check_choices(Settings(engine="dask", ahead=60, target=3.0, target_metric="loss"), n_items=60)
