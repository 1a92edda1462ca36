"""Care of campaigns on the command line: what it prints, and its exit codes."""

import json
from pathlib import Path

from labelchef.server.workspace import open_workspace
from tests.store_support import make
from tests.test_campaign_cli import folder, labelchef  # noqa: F401 (a fixture)


def test_a_command_of_an_earlier_version_names_the_present_one() -> None:
    assert "`labelchef copy` is now: labelchef campaign copy" in labelchef("copy", "mails", check=2)
    assert "labelchef backup check" in labelchef("check-backup", "kept.tar", check=2)


def test_names_archive_deletion_and_copies(tmp_path: Path, folder: Path) -> None:  # noqa: F811
    with open_workspace(tmp_path / "home") as ws:
        make(ws, "Mails")
    home = {"LABELCHEF_HOME": str(tmp_path / "home"), "LABELCHEF_PERSON": "lead"}
    taken = labelchef("init", "mails", "--folder", folder, check=2, env=home)
    assert "exists already ('mails'); open that one, or choose another name, such as 'mails 2'" in " ".join(
        taken.split()
    )
    assert "called 'Post'" in labelchef("campaign", "rename", "mails", "Post", "--slug", "post", env=home)
    assert "--confirm 'Post'" in labelchef("campaign", "delete", "post", check=2, env=home)
    assert "expected 'Post'" in labelchef("campaign", "delete", "post", "--confirm", "post", check=2, env=home)
    assert "labelchef campaign restore post" in labelchef(
        "campaign", "delete", "mails", "--confirm", "Post", "--grace-days", 7, env=home
    )
    labelchef("status", "post", check=2, env=home)
    assert "Post" in labelchef("campaign", "list", "--deleted", env=home)
    assert json.loads(labelchef("campaign", "list", "--json", env=home)) == []
    assert "is back" in labelchef("campaign", "restore", "post", env=home)
    assert "there is no deleted campaign" in labelchef("campaign", "restore", "post", check=2, env=home)
    made = labelchef("campaign", "copy", "post", "--set", "batch_size=3", "--set", "budget=none", env=home)
    assert "'Post 2' (post-2): 60 items" in made
    state = json.loads(labelchef("status", "post-2", "--json", env=home))
    assert (state["settings"]["batch_size"], state["settings"]["budget"]) == (3, None)
    assert "expected SETTING=VALUE" in labelchef("campaign", "copy", "post", "--set", "tea=3", check=2, env=home)
    assert "in the archive" in labelchef("campaign", "archive", "post-2", env=home)
    assert "post-2" in labelchef("campaign", "list", "--archived", env=home)
    assert "is removed for good" in labelchef("campaign", "delete", "post-2", "--confirm", "Post 2", "--now", env=home)
    assert "nothing is deleted" in labelchef("campaign", "list", "--deleted", env=home)
    assert len(list((tmp_path / "home" / "campaigns").iterdir())) == 1
