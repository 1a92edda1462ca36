"""Who may work on a campaign: leases, fences, takeover, several workers; on SQLite and PostgreSQL."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from labelchef.base.campaigns import CampaignState
from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.base.intake import IntakeState, Progress, Working
from labelchef.base.jobs import JobKind, JobState
from labelchef.base.settings import Settings
from labelchef.model.engines.cluster.workers import ClusterError
from labelchef.server.campaigns import care, trained
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import create_campaign, status, summary
from labelchef.server.campaigns.trained import lease_name, replay, step
from labelchef.server.intake import jobs as intake_jobs
from labelchef.server.intake import steps
from labelchef.server.jobs import jobs
from labelchef.server.leases import CAMPAIGN, WORKER, Lease, Leases
from labelchef.server.running import Run
from labelchef.server.store import lease_table
from labelchef.server.store.round_table import rounds_of
from labelchef.server.worker import Worker, advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import PostgresServer, make, small_data, wait_until

ROOT = Path(__file__).parent.parent
SETTINGS = Settings(batch_size=3, budget=6)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.new_database()


@pytest.fixture
def pair(tmp_path: Path, address: str | None) -> Iterator[tuple[Workspace, Workspace]]:
    """The same workspace, opened as two processes would."""
    with open_workspace(tmp_path / "home", address) as one, open_workspace(tmp_path / "home", address) as two:
        yield one, two


def test_one_holder_at_a_time_and_the_fence_counts_on(pair: tuple[Workspace, Workspace]) -> None:
    one, two = pair
    first = one.leases.take("campaign:x")
    assert first is not None
    assert one.leases.take("campaign:x") is None, "another thread of the same process"
    assert two.leases.take("campaign:x") is None
    assert [held.holder for held in two.leases.held(CAMPAIGN)] == [one.leases.holder]
    one.leases.give_back(first)
    assert two.leases.held(CAMPAIGN) == []
    second = two.leases.take("campaign:x")
    assert second is not None
    assert second.fence == first.fence + 1


def test_a_lease_that_ran_out_is_taken_and_its_holder_is_told(tmp_path: Path, address: str | None) -> None:
    with open_workspace(tmp_path, address) as ws, open_workspace(tmp_path, address) as other:
        hung = Leases(ws.database, seconds=0.2, beat=60.0)  # no heartbeat: the process hangs
        lease = hung.take("campaign:x")
        assert lease is not None
        with other.leases.holding("campaign:x", patience=30.0) as taken:
            assert taken.fence == lease.fence + 1
            hung._renew([lease])  # it goes on
            assert lease.lost.is_set()
            hung.give_back(lease)
            assert [one.name for one in other.leases.held(CAMPAIGN)] == ["campaign:x"], (
                "what is not his he cannot give back"
            )
        hung.close()


def test_a_lease_that_was_given_back_is_not_renewed(pair: tuple[Workspace, Workspace]) -> None:
    """The heartbeat has listed it just before."""
    one, two = pair
    lease = one.leases.take("campaign:x")
    assert lease is not None
    one.leases.give_back(lease)
    one.leases._renew([lease])
    assert one.leases.held(CAMPAIGN) == []
    assert two.leases.take("campaign:x") is not None


def test_a_lease_from_a_clock_that_was_ahead_does_not_last(pair: tuple[Workspace, Workspace]) -> None:
    one, two = pair
    assert one.leases.take("campaign:x") is not None
    with one.writing() as connection:
        connection.execute(sa.text("UPDATE lease SET until = until + 86400"))
    assert two.leases.take("campaign:x") is not None


def test_what_a_hung_worker_writes_late_is_refused(pair: tuple[Workspace, Workspace]) -> None:
    one, two = pair
    campaign = make(one, batch_size=2)
    name = lease_name(find(one, campaign))
    late = one.leases.take(name)
    assert late is not None
    label_all_votes(one, campaign)
    assert step(one, campaign, late), "counted"
    with one.writing() as connection:  # the lease has run out, and the other worker has it
        connection.execute(sa.text("UPDATE lease SET until = 1.0 WHERE name = :name"), {"name": name})
    taken = two.leases.take(name)
    assert taken is not None
    before = status(one, campaign)
    step(one, campaign, late)
    assert status(one, campaign) == before, "the round is not closed by the one that has lost it"
    files = {path.name for path in one.home.glob("campaigns/*/model-*.npy")}
    while step(two, campaign, taken):
        pass
    assert len(status(two, campaign).rounds) == len(before.rounds) + 1
    left = {path.name for path in one.home.glob("campaigns/*/model-*.npy")}
    assert len(left) == 1, f"of {files} the late one is gone"
    assert replay(two, campaign).agrees


def test_a_campaign_that_is_deleted_after_it_was_listed_does_not_end_the_worker(
    pair: tuple[Workspace, Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = pair[0]
    gone, other = (create_campaign(ws, name, small_data(), SETTINGS, "lead").slug for name in ("gone", "other"))
    worker = Worker(ws)
    listed = worker._campaigns()
    care.delete(ws, gone, "lead", confirm="gone")
    monkeypatch.setattr(worker, "_campaigns", lambda: listed)
    with worker:
        wait_until(lambda: status(ws, other).open_round is not None)
        assert worker.alive
    assert worker.refusal is None


def test_a_hung_worker_does_not_fail_what_another_has_taken_over(
    pair: tuple[Workspace, Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    campaign = make(one)
    name = lease_name(find(one, campaign))
    before = find(one, campaign)

    def hangs(*_: object) -> bool:
        with one.writing() as connection:
            connection.execute(sa.text("UPDATE lease SET until = 1.0 WHERE name = :name"), {"name": name})
        assert two.leases.take(name) is not None
        raise errors.pop()

    monkeypatch.setattr(trained, "step", hangs)
    errors = [InvalidInputError("no model can be made of it", code="input")]
    with pytest.raises(InvalidInputError):
        advance(one, campaign)
    assert find(one, campaign) == before, "a command"
    worker, late = Worker(one), Lease(name, 1)
    for error in (RuntimeError("late"), ClusterError("late")):
        worker._note(campaign, late, error)
        assert find(one, campaign) == before, "a worker"


def label_all_votes(ws: Workspace, campaign: str) -> None:
    """Vote on the open batch, without taking a step."""
    from labelchef.server.labelling.votes import cast_vote

    found = status(ws, campaign).open_round
    assert found is not None
    for one in found.items:
        cast_vote(ws, campaign, "ann", one.item, 0)


def test_campaigns_are_spread_over_workers_and_taken_over(pair: tuple[Workspace, Workspace]) -> None:
    one, two = pair
    made = [create_campaign(one, name, small_data(), SETTINGS, "lead").slug for name in "abcd"]
    with Worker(one) as first:
        with Worker(two) as second:
            wait_until(lambda: all(status(one, slug).open_round is not None for slug in made), 300.0)
            wait_until(lambda: len(first._leases) == len(second._leases) == 2, 60.0)
            assert len(one.leases.held(WORKER)) == 2
        wait_until(lambda: len(first._leases) == 4, 60.0)
        label_all_votes(one, made[0])
        wait_until(lambda: closed(one, made[0]) == 2, 60.0)
    assert one.leases.held() == []


def closed(ws: Workspace, campaign: str) -> int:
    """Rounds whose model is there, the first one too."""
    with ws.reading() as connection:
        return sum(not one.is_open for one in rounds_of(connection, find(ws, campaign).id))


WORKER_PROCESS = """
import sys
from pathlib import Path
from labelchef.server.web.options import ServeOptions
from labelchef.server.web.processes import run_worker
home, url = sys.argv[1:]
run_worker(ServeOptions(home=Path(home), database=url or None), lambda name: print(name, flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "fault"), [("postgresql", signal.SIGKILL), ("sqlite", signal.SIGSTOP)], indirect=["address"]
)
def test_another_worker_takes_over(tmp_path: Path, address: str | None, fault: signal.Signals) -> None:
    """Killed: at once. Stopped, as if it hung: when its lease has run out, here forced by the test."""
    with open_workspace(tmp_path / "home", address) as ws:
        campaign = make(ws, batch_size=3)
        command = [sys.executable, "-c", WORKER_PROCESS, str(tmp_path / "home"), address or ""]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert process.stdout is not None
            holder = process.stdout.readline().strip()
            wait_until(lambda: [one.holder for one in ws.leases.held(CAMPAIGN)] == [holder], 120.0)
            os.kill(process.pid, fault)
            label_all_votes(ws, campaign)
            if fault == signal.SIGSTOP:
                with ws.writing() as connection:
                    connection.execute(sa.text("UPDATE lease SET until = 1.0"))
            with Worker(ws):
                wait_until(lambda: closed(ws, campaign) == 2, 120.0)
                assert {one.holder for one in ws.leases.held(CAMPAIGN)} == {ws.leases.holder}
        finally:
            process.kill()
            process.communicate()
        assert replay(ws, campaign).agrees


def test_a_job_is_seen_and_cancelled_from_another_process(
    pair: tuple[Workspace, Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    campaign = make(one)
    begun = threading.Event()

    def endless(*given: object) -> jobs.Outcome:
        from labelchef.base.stopping_work import go_on

        run = given[-1]
        assert isinstance(run, Run)
        run.tell("a quarter is done", 1, 4)
        begun.set()
        while True:
            go_on()
            threading.Event().wait(0.01)

    monkeypatch.setitem(jobs.WORK, JobKind.REPORT, endless)
    with Worker(one):
        made = jobs.start(two, campaign, JobKind.REPORT, "lead", {})
        assert begun.wait(60)
        wait_until(lambda: jobs.look(two, campaign, made.id).sentence == "a quarter is done", 60.0)
        assert jobs.look(two, campaign, made.id).done == 0.25
        jobs.cancel(two, campaign, made.id)
        wait_until(lambda: jobs.look(two, campaign, made.id).state is JobState.CANCELLED, 60.0)


def test_the_job_of_a_dead_worker_is_marked(pair: tuple[Workspace, Workspace]) -> None:
    one, two = pair
    campaign = make(one)
    made = jobs.start(one, campaign, JobKind.REPORT, "lead", {})
    with one.writing() as connection:
        connection.execute(sa.text("UPDATE job SET state = 'running'"))
    lease = one.leases.take(f"job:{made.id}")
    assert lease is not None
    with Worker(two):
        wait_until(lambda: len(two.leases.held(WORKER)) == 1)
        assert jobs.look(two, campaign, made.id).state is JobState.RUNNING, "its process lives"
        one.leases.give_back(lease)
        wait_until(lambda: jobs.look(two, campaign, made.id).state is JobState.INTERRUPTED, 60.0)


def test_a_change_in_one_process_wakes_another(pair: tuple[Workspace, Workspace]) -> None:
    one, two = pair
    with two.changes.listening():
        heard = threading.Event()

        def wait() -> None:
            while not heard.is_set():
                tick = two.signal.ticks()
                one.signal.notify()
                two.signal.sleep(30.0, tick)
                if two.signal.ticks() != tick:
                    heard.set()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert heard.wait(60.0)


def test_rows_of_what_is_over_do_not_pile_up(pair: tuple[Workspace, Workspace]) -> None:
    one, _ = pair
    campaign = make(one)
    advance(one, campaign)
    assert summary(one, campaign).state is CampaignState.RUNNING
    lease = one.leases.take("job:old")
    assert lease is not None
    one.leases.give_back(lease)
    one.leases.sweep()
    with one.reading() as connection:
        assert lease_table.lease(connection, "job:old") is None
        assert lease_table.lease(connection, lease_name(find(one, campaign))) is not None, "its fence counts on"


TABLE = b"id,text,label\n" + b"".join(
    f"m{k},{'free prize now' if k % 2 else 'see you at lunch'} {k},{'spam' if k % 2 else 'ham'}\n".encode()
    for k in range(60)
)


def test_files_are_corrected_in_one_process_and_looked_at_in_another(pair: tuple[Workspace, Workspace]) -> None:
    one, two = pair
    intake = steps.start(one, [("data.csv", io.BytesIO(TABLE))], "lead").id

    def ready(ws: Workspace) -> bool:
        return steps.look(ws, intake).state is IntakeState.READY and steps.look(ws, intake).preview is not None

    wait_until(lambda: ready(one) and ready(two), 120.0)
    steps.correct(two, intake, steps.Correction(classes=("spam", "ham")))
    wait_until(lambda: ready(two) and ready(one), 120.0)
    shown = [steps.look(ws, intake).preview for ws in pair]
    assert [one.classes for one in shown if one is not None] == [("spam", "ham"), ("spam", "ham")]
    steps.delete(two, intake)
    with pytest.raises(NotFoundError):
        steps.look(one, intake)


def test_an_intake_that_another_process_works_on_is_told_and_not_touched(pair: tuple[Workspace, Workspace]) -> None:
    one, two = pair
    intake = steps.start(one, [("data.csv", io.BytesIO(TABLE))], "lead").id
    wait_until(lambda: steps.look(one, intake).state is IntakeState.READY, 120.0)
    begun, end = threading.Event(), threading.Event()

    def slow(progress: Progress) -> intake_jobs.Outcome:
        progress("encoding", 1, 4)
        begun.set()
        end.wait(60)
        raise InvalidInputError("no campaign can be made of it", code="input")

    intake_jobs.begin(one, intake, IntakeState.CREATING, slow)
    assert begun.wait(60)
    wait_until(lambda: steps.look(two, intake).working == Working("encoding", 1, 4), 60.0)
    assert steps.look(two, intake).state is IntakeState.CREATING
    with pytest.raises(ConflictError, match="being made"):
        steps.correct(two, intake, steps.Correction(by_position=True))
    end.set()
    wait_until(lambda: steps.look(two, intake).state is IntakeState.READY, 120.0)
