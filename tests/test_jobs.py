"""Jobs: long work in the background, its progress, its result that stays, cancelling and restarts."""

import shutil
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError, ThrottledError
from labelchef.base.jobs import Job, JobKind, JobState
from labelchef.server.campaigns import campaigns, care
from labelchef.server.jobs import jobs
from labelchef.server.store import job_table
from labelchef.server.worker import Worker
from labelchef.server.workspace import CAMPAIGNS, Workspace
from tests.store_support import label_all, make, small_data


def finished(ws: Workspace, campaign: str, job: str, until: Callable[[Job], bool] = lambda one: one.state.over) -> Job:
    """A job once it is over."""
    deadline = time.monotonic() + 120
    while not until(found := jobs.look(ws, campaign, job)):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


@pytest.fixture
def labelled(ws: Workspace) -> str:
    slug = make(ws, data=small_data(60, 30), budget=40, batch_size=12)
    label_all(ws, slug, "ann", rounds=2)
    return slug


def test_jobs_are_done_one_after_the_other_and_their_results_stay(ws: Workspace, labelled: str) -> None:
    replay = jobs.start(ws, labelled, JobKind.REPLAY, "lead", {})
    files = [
        jobs.start(ws, labelled, kind, "lead", options)
        for kind, options in (
            (JobKind.DATASET, {"format": "jsonl"}), (JobKind.DATASET, {"format": "label-studio"}),
            (JobKind.PREDICTIONS, {}), (JobKind.MODEL, {}), (JobKind.REPORT, {}),
        )
    ]  # fmt: skip
    assert replay.state is JobState.WAITING
    assert "waits" in replay.sentence
    with Worker(ws):
        done = [finished(ws, labelled, one.id) for one in (replay, *files)]
    assert [one.problem for one in done] == [None] * len(done)
    assert all(one.state is JobState.DONE and one.done == 1.0 for one in done)
    starts = [one.started_at for one in done if one.started_at is not None]
    ends = [one.ended_at for one in done if one.ended_at is not None]
    assert all(ended <= began for ended, began in zip(ends, starts[1:], strict=False)), "one at a time"
    assert done[0].result is not None
    assert done[0].result["agrees"] is True
    assert [one["number"] for one in done[0].result["rounds"]] == [0, 1, 2, 3]
    names = [jobs.file_of(ws, labelled, one.id).name for one in done[1:]]
    assert names == [
        "small-dataset.jsonl", "small-dataset-label-studio.zip", "small-predictions.csv", "small-model.npz",
        "small-report.html",
    ]  # fmt: skip
    assert all(one.bytes == jobs.file_of(ws, labelled, one.id).stat().st_size > 0 for one in done[1:])
    assert [one.id for one in jobs.jobs(ws, labelled)] == [one.id for one in reversed(done)]
    assert all(one.result is None for one in jobs.jobs(ws, labelled))
    kept = jobs.file_of(ws, labelled, done[1].id)
    jobs.remove(ws, labelled, done[1].id)
    assert not kept.exists()
    with pytest.raises(NotFoundError):
        jobs.look(ws, labelled, done[1].id)
    with pytest.raises(NotFoundError):
        jobs.file_of(ws, labelled, done[0].id)


@pytest.mark.usefixtures("held_replays")
def test_a_job_tells_how_far_it_is_and_can_be_cancelled(ws: Workspace, labelled: str) -> None:
    first = jobs.start(ws, labelled, JobKind.REPLAY, "lead", {})
    second = jobs.start(ws, labelled, JobKind.PREDICTIONS, "lead", {})
    assert jobs.cancel(ws, labelled, second.id).state is JobState.CANCELLED
    with Worker(ws):
        seen = finished(ws, labelled, first.id, lambda one: (one.done or 0.0) > 0.0)
        assert seen.state is JobState.RUNNING
        assert seen.done is not None
        assert 0 < seen.done < 1
        assert seen.sentence == "round 0 of 3"
        with pytest.raises(ConflictError, match="cancel it first"):
            jobs.remove(ws, labelled, first.id)
        jobs.cancel(ws, labelled, first.id)
        assert finished(ws, labelled, first.id).state is JobState.CANCELLED
        again = jobs.again(ws, labelled, second.id, "lead")
        assert finished(ws, labelled, again.id).state is JobState.DONE
    assert jobs.look(ws, labelled, second.id).started_at is None
    folder = ws.home / CAMPAIGNS / campaigns.summary(ws, labelled).id / jobs.FOLDER
    assert [one.name for one in folder.iterdir()] == [again.id], "nothing of a cancelled job stays"


@pytest.mark.usefixtures("held_replays")
def test_a_restart_marks_what_ran_and_does_what_waited(ws: Workspace, labelled: str) -> None:
    ran = jobs.start(ws, labelled, JobKind.REPLAY, "lead", {})
    waited = jobs.start(ws, labelled, JobKind.PREDICTIONS, "lead", {})
    with Worker(ws):
        finished(ws, labelled, ran.id, lambda one: one.state is JobState.RUNNING)
    assert jobs.look(ws, labelled, ran.id).state is JobState.INTERRUPTED
    assert jobs.look(ws, labelled, waited.id).state is JobState.WAITING
    killed = jobs.again(ws, labelled, ran.id, "lead")  # and a process that had no time to say so
    with ws.writing() as connection:
        row = jobs._row(ws, labelled, killed.id)
        job_table.update_job(connection, row.id, state=JobState.RUNNING)
    with Worker(ws):
        assert finished(ws, labelled, waited.id).state is JobState.DONE
    found = jobs.look(ws, labelled, killed.id)
    assert found.state is JobState.INTERRUPTED
    assert "start it again" in found.sentence


def test_what_cannot_be_done_is_refused_or_told(ws: Workspace, labelled: str) -> None:
    with pytest.raises(InvalidInputError, match="expected one of: csv"):
        jobs.start(ws, labelled, JobKind.DATASET, "lead", {"format": "docx"})
    young = make(ws, "Young")
    for _ in range(jobs.MOST_WAITING):
        jobs.start(ws, young, JobKind.REPLAY, "lead", {})
    with pytest.raises(ThrottledError, match="jobs wait already"):
        jobs.start(ws, labelled, JobKind.REPLAY, "lead", {})
    for one in jobs.jobs(ws, young):
        jobs.cancel(ws, young, one.id)
    failing = jobs.start(ws, young, JobKind.DATASET, "lead", {})
    shutil.rmtree(ws.home / CAMPAIGNS / campaigns.summary(ws, young).id)
    with Worker(ws):
        found = finished(ws, young, failing.id)
    assert found.state is JobState.FAILED
    assert "is missing" in str(found.problem)


def test_old_and_large_results_are_removed(ws: Workspace, labelled: str) -> None:
    made = [jobs.start(ws, labelled, JobKind.PREDICTIONS, "lead", {}) for _ in range(3)]
    with Worker(ws):
        sizes = [finished(ws, labelled, one.id).bytes for one in made]
    assert jobs.tidy(ws) == 0
    assert jobs.tidy(ws, most_bytes=2 * sizes[0]) == 1
    assert jobs.look(ws, labelled, made[0].id).file is None
    assert jobs.look(ws, labelled, made[1].id).file is not None
    assert jobs.tidy(ws, kept_days=0.0) == 3
    assert jobs.jobs(ws, labelled) == []
    care.delete(ws, labelled, "lead", confirm="Small", now=True)
    jobs.start(ws, make(ws, "Other"), JobKind.REPLAY, "lead", {})
    assert care.purge(ws) == ["Small"]


def test_a_job_of_a_kind_that_has_left_is_not_listed(ws: Workspace, labelled: str) -> None:
    kept = jobs.start(ws, labelled, JobKind.REPLAY, "lead", {})
    gone = jobs.start(ws, labelled, JobKind.REPLAY, "lead", {})
    with ws.writing() as connection:
        connection.execute(sa.text("UPDATE job SET kind = 'compare' WHERE public_id = :id"), {"id": gone.id})
    assert [one.id for one in jobs.jobs(ws, labelled)] == [kept.id]
    with pytest.raises(NotFoundError):
        jobs.look(ws, labelled, gone.id)
    with Worker(ws):
        assert finished(ws, labelled, kept.id).state is JobState.DONE
