"""What the children of the nursery do: a command of labelchef, a new campaign, a replay."""

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.serving import SLUG, make_team

from labelchef.base.campaigns import Waiting
from labelchef.cli.main import run as run_command
from labelchef.server import worker
from labelchef.server.campaigns import charts, trained
from labelchef.server.items import decisions
from labelchef.server.labelling import tasks, votes
from labelchef.server.people import accounts
from labelchef.server.workspace import Workspace, open_workspace

PEOPLE, ITEMS, TRUSTED, BATCH = 5, 800, 200, 3
TEAM_FILE = "team.json"
"""In a home: name → API token of the people."""


def command(*arguments: str) -> None:
    """`labelchef …` as a shell would run it."""
    sys.argv = ["labelchef", *arguments]
    run_command()


def prepare(home: str, database: str = "") -> None:
    """A home with a campaign whose first batch is out, and tokens of its people."""
    folder = Path(home)
    url = database or None
    team = make_team(
        folder, people=PEOPLE, items=ITEMS, trusted=TRUSTED, features=8, batch=BATCH, ahead=1, database=url
    )
    with open_workspace(folder, url) as ws:
        tokens = {"lead": accounts.create_api_token(ws, "lead", "torture")[0], **team.tokens}
        worker.advance(ws, SLUG)
        charts.map2d(ws, SLUG)  # else every server that is killed early begins it again
    (folder / TEAM_FILE).write_text(json.dumps(tokens))


def replay(home: str, database: str, out: str) -> None:
    """Replay the campaign and write how many of its rounds agree."""
    with open_workspace(Path(home), database or None) as ws:
        found = trained.replay(ws, SLUG)
    agreed = sum(one.agrees for one in found.rounds)
    Path(out).write_text(json.dumps({"agreed": agreed, "rounds": len(found.rounds), "message": found.message}))


def warm_up(folder: Path) -> None:
    """Import what a server imports, and compile what rounds, a restart and a replay need, before anything is forked."""
    importlib.import_module("labelchef.server.web.app")
    home = folder / "warm-up"
    prepare(str(home))
    for _ in range(2):
        with open_workspace(home) as ws:
            for item in range(2):
                decisions.resolve(ws, SLUG, f"m{item}", item, "lead")
            label_batch(ws)
            decisions.reopen(ws, SLUG, "m0", "lead")
            label_batch(ws)
            trained.replay(ws, SLUG)
    shutil.rmtree(home)


def label_batch(ws: Workspace) -> None:
    """One person labels all that is handed out, and the rounds move on."""
    while not isinstance(found := tasks.next_tasks(ws, SLUG, "annotator-00"), Waiting):
        for task in found:
            votes.cast_vote(ws, SLUG, "annotator-00", task.item, 0)
    worker.advance(ws, SLUG)


JOBS: dict[str, Callable[..., None]] = {"command": command, "prepare": prepare, "replay": replay}
