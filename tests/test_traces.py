"""What four paths of the program pass through: files of the package whose code runs, and statements and transactions of a vote.

The limits are what was measured last, with a file or two to spare; they should go down (14, 40, 25 and 50 files are the aim).
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import event
from typer.testing import CliRunner

import labelchef
from labelchef import LabelCleaner
from labelchef.base.campaigns import Role, Waiting
from labelchef.cli.main import app as command_line
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.people import accounts
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.worker import advance
from labelchef.server.workspace import open_workspace
from tests.store_support import make, tasks, truth_of
from tests.test_golden import problem

PACKAGE = str(Path(labelchef.__file__).parent)
LIMITS = {"vote": 35, "batch": 70, "run": 61, "init": 131, "statements": 13, "transactions": 3}


@contextmanager
def traced() -> Iterator[set[CodeType]]:
    """The functions that are called meanwhile, in this thread and in those that start meanwhile."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def within(path: str, seen: set[CodeType]) -> None:
    """The files of the package that hold these functions are at most as many as the limit says; imports are no calls."""
    files = {code.co_filename for code in seen if code.co_name != "<module>" and code.co_filename.startswith(PACKAGE)}
    names = sorted(str(Path(name).relative_to(PACKAGE)) for name in files)
    assert len(names) <= LIMITS[path], f"{path}: {len(names)} files: {' '.join(names)}"


def test_a_vote_and_the_batch_that_it_completes(tmp_path: Path) -> None:
    """From the request to the answer with the next item; and from the last vote to the next batch, in the worker."""
    with open_workspace(tmp_path) as ws:
        campaign = make(ws, budget=8)
        accounts.create_account(ws, "ann", Role.LEAD, "a long enough password")
        token = {"Authorization": f"Bearer {accounts.create_api_token(ws, 'ann', 'program')[0]}"}
        sent: list[str] = []
        event.listen(ws.database.engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
        served = create_app(ws, ServeOptions(team=True), work=False)
        with traced() as called, TestClient(served, headers=token) as client:

            def vote(item: str) -> None:
                body = {"item": item, "label": int(truth_of(90)[int(item)]), "request_id": f"request-{item}"}
                assert client.post(f"/api/campaigns/{campaign}/votes", json=body).status_code == 200

            first, second = (task.item for task in tasks(ws, campaign, "ann"))
            vote(first)
            sent.clear()
            called.clear()
            vote(second)
            voted = set(called)
        after = [one for one in sent if not one.startswith("PRAGMA")]
        begun = sum(one.startswith("BEGIN") for one in after)
        while not isinstance(found := next_tasks(ws, campaign, "ann"), Waiting):
            cast_vote(ws, campaign, "ann", found[0].item, int(truth_of(90)[int(found[0].item)]))
        with traced() as moved:
            advance(ws, campaign)
    within("vote", voted)
    within("batch", moved)
    assert len(after) - begun <= LIMITS["statements"], after
    assert begun <= LIMITS["transactions"], after


def test_a_campaign_in_python() -> None:
    given, y = problem(2)
    with traced() as called:
        cleaner = LabelCleaner(budget=8, batch_size=4, random_state=0).fit(**given)
        cleaner.run(lambda batch: y[batch.indices])
        cleaner.finish()
    within("run", called)


def test_a_campaign_of_a_table(tmp_path: Path) -> None:
    """`labelchef init` with a CSV, to the first batch."""
    rows = [f"t{k},{'storm flood' if k % 2 else 'music party'} day {k},{'bad' if k % 2 else 'good'}" for k in range(80)]
    (tmp_path / "data.csv").write_text("\n".join(["id,text", *(row.rsplit(",", 1)[0] for row in rows)]))
    (tmp_path / "gold.csv").write_text(
        "\n".join(["id,label", *(f"t{k},{'bad' if k % 2 else 'good'}" for k in range(30))])
    )
    home = str(tmp_path / "home")
    with traced() as called:
        asked = ["init", "t", str(tmp_path / "data.csv"), "--trusted", str(tmp_path / "gold.csv"), "--home", home]
        found = CliRunner().invoke(command_line, [*asked, "--encoder", "tfidf"])
        assert found.exit_code == 0, found.output
        with open_workspace(Path(home)) as ws:
            advance(ws, "t")
    within("init", called)
