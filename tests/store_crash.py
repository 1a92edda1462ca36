"""Run a campaign in child processes that die at every transition, and see that the next one goes on.

`python -m tests.store_crash FOLDER STRIDE [URL …]`: a plan of faults is made by counting the transitions of a run without any;
for each of them a child runs into it and dies there, another child finishes, and the outcome is compared.
"""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labelchef.base.campaigns import CampaignState, Waiting
from labelchef.base.files import whole_file
from labelchef.base.settings import Settings
from labelchef.server.campaigns.campaigns import create_campaign, list_campaigns, status
from labelchef.server.campaigns.trained import replay
from labelchef.server.export.exchange import export_labels
from labelchef.server.items.decisions import ledger, reopen
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote, undo_vote
from labelchef.server.store import arrays, campaign_table
from labelchef.server.store.database import Database
from labelchef.server.worker import advance
from labelchef.server.workspace import folder_of, open_workspace
from tests.store_support import small_data, truth_of

KILLED = 9
FINISHED = 0


class Fault:
    """Counts transitions of one kind and dies at the chosen one."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at, self.seen = kind, at, dict.fromkeys(("before", "after", "file", "renamed"), 0)

    def point(self, kind: str) -> None:
        self.seen[kind] += 1
        if kind == self.kind and self.seen[kind] == self.at:
            os._exit(KILLED)

    def install(self) -> None:
        writing = Database.writing

        @contextlib.contextmanager
        def dying_writing(database: Database, *, lasting: bool = True, queue: str | None = None) -> Iterator[Any]:
            with writing(database, lasting=lasting, queue=queue) as connection:
                yield connection
                if lasting:
                    self.point("before")
            if lasting:  # leases are written in the other way, some of them by a thread of their own
                self.point("after")

        @contextlib.contextmanager
        def dying_file(path: Path) -> Iterator[Any]:
            with whole_file(path) as stream:
                yield stream
                self.point("file")
            self.point("renamed")

        setattr(Database, "writing", dying_writing)  # noqa: B010
        setattr(arrays, "whole_file", dying_file)  # noqa: B010


def run(home: Path, url: str | None) -> None:
    """Make or take up the campaign and bring it to its end; votes are noted once they are acknowledged."""
    truth = truth_of(60)
    setattr(Settings, "tol", 1e-7)  # noqa: B010 (what is compared differs by less)
    with open_workspace(home / "home", url) as ws, (home / "acknowledged").open("a") as notes:
        if not list_campaigns(ws):
            settings = Settings(people=1, batch_size=2, budget=4, ahead=1)
            create_campaign(ws, "Crash", small_data(n_train=30), settings, "lead")
        (campaign,) = list_campaigns(ws)
        while True:
            advance(ws, campaign.slug)
            found = next_tasks(ws, campaign.slug, "ann", 1)
            if isinstance(found, Waiting):
                break
            item = found[0].item
            request = f"{found[0].round}-{item}"
            cast_vote(ws, campaign.slug, "ann", item, int(truth[int(item)]), request_id=request)
            notes.write(f"{item} {int(truth[int(item)])}\n")
            notes.flush()
        _afterwards(ws, campaign.slug)


def _afterwards(ws: Any, campaign: str) -> None:
    """What a lead does at the end, each done once: a reopened item, a vote taken back."""
    done = {e.what.get("kind") for e in ledger(ws, campaign, kind="decision", limit=1000).entries}
    first = ledger(ws, campaign, kind="decision", limit=1000).entries[-1].item
    assert first is not None
    if "reopen" not in done:
        reopen(ws, campaign, first, "lead")
    advance(ws, campaign)
    if not any(e.what["retracted"] for e in ledger(ws, campaign, kind="vote", limit=1000).entries):
        undo_vote(ws, campaign, "ann", request_id="undo")
    advance(ws, campaign)


def outcome(home: Path, url: str | None) -> dict[str, Any]:
    """What a finished campaign came to, after checks that hold whatever happened before."""
    with open_workspace(home / "home", url) as ws:
        (campaign,) = list_campaigns(ws)
        seen = status(ws, campaign.slug)
        assert seen.summary.state == CampaignState.FINISHED, seen.summary
        assert seen.pending == 0
        assert replay(ws, campaign.slug).agrees
        entries = ledger(ws, campaign.slug, kind="vote", limit=1000).entries
        votes = [(e.item, e.label) for e in entries if not e.what["retracted"]]
        assert len(set(votes)) == len(votes), "a vote is doubled"
        for line in (home / "acknowledged").read_text().splitlines():
            item, label = line.split()
            assert (item, int(label)) in votes, "an acknowledged vote is lost"
        export_labels(ws, campaign.slug, home / "labels.csv")
        with ws.reading() as connection:
            row = campaign_table.find_campaign(connection, campaign.id)
            facts = campaign_table.arrays_of(connection, row.id)
        for one in facts.values():
            arrays.read_array(folder_of(ws, row), one)
        return {
            "labels": (home / "labels.csv").read_text(),
            "rounds": [  # a rebuilt model is the same optimum, to its tolerance
                (r.number, r.kind, r.spent, {k: round(v, 5) for k, v in (r.validation or {}).items()})
                for r in seen.rounds
            ],
            "votes": sorted(map(str, votes)),
        }


def in_child(work: Callable[[], None]) -> int:
    """Run in a child process; its exit code."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(FINISHED)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, urls: Callable[[], str | None], stride: int = 1) -> dict[str, int]:
    """Every fault in turn, or every so many; how many of each kind there were."""
    counted, results = folder / "counted", []

    def count() -> None:
        fault = Fault("none", 0)
        fault.install()
        run(counted, base)
        (counted / "seen").write_text(json.dumps(fault.seen))

    def compare(home: Path, url: str | None) -> None:
        (home / "outcome").write_text(json.dumps(outcome(home, url), default=str))

    counted.mkdir()
    base = urls()
    assert in_child(count) == FINISHED
    assert in_child(lambda: compare(counted, base)) == FINISHED
    expected = json.loads((counted / "outcome").read_text())
    seen = json.loads((counted / "seen").read_text())
    for kind, number in seen.items():
        first = number if kind == "after" else 1  # after one commit is before the next: the same state
        for at in range(first, number + 1, stride):
            home, url = folder / f"{kind}-{at}", urls()
            home.mkdir()

            def die(kind: str = kind, at: int = at, home: Path = home, url: str | None = url) -> None:
                Fault(kind, at).install()
                run(home, url)

            assert in_child(die) == KILLED, (kind, at)

            def finish(home: Path = home, url: str | None = url) -> None:
                run(home, url)
                compare(home, url)

            assert in_child(finish) == FINISHED, (kind, at)
            found = json.loads((home / "outcome").read_text())
            assert found == expected, (kind, at, found, expected)
            results.append((kind, at))
    return dict(seen)


if __name__ == "__main__":
    given = sys.argv[3:]
    print(json.dumps(main(Path(sys.argv[1]), lambda: given.pop(0) if given else None, int(sys.argv[2]))))
