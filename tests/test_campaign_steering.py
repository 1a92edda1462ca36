"""Leads steer, the worker works, damage is said: on SQLite and PostgreSQL."""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa

from labelchef.campaign import steps
from labelchef.campaign.data import CampaignData, find_files, read_files
from labelchef.campaign.rebuild import Verdict
from labelchef.domain.campaigns import CampaignState, LedgerEntry, Origin, RoundKind, WaitReason
from labelchef.domain.errors import ConflictError, InvalidInputError, NotFoundError, StoreError
from labelchef.domain.settings import Settings
from labelchef.ledger.sql import SqlLedger
from labelchef.services import trained
from labelchef.services.campaigns import (
    change_settings,
    create_campaign,
    create_from_folder,
    list_campaigns,
    pause,
    resume,
    rounds,
    status,
    stop,
    summary,
)
from labelchef.services.labelling.decisions import ledger, reopen, resolve
from labelchef.services.labelling.tasks import media, next_tasks
from labelchef.services.labelling.votes import cast_vote, undo_vote
from labelchef.services.people.access import find
from labelchef.services.trained import data_of, replay
from labelchef.services.worker import Worker, advance, wait_for_change
from labelchef.services.workspace import Workspace, open_workspace
from tests.store_support import CLASSES, PostgresServer, label_all, make, small_data, tasks, truth_of, wait_until, waits


def folder_of(ws: Workspace, campaign: str) -> Path:
    return ws.home / "campaigns" / summary(ws, campaign).id


def test_a_reopened_item_is_asked_first_in_the_next_batch(ws: Workspace) -> None:
    campaign = make(ws, batch_size=3, budget=9)
    first = tasks(ws, campaign, "ann", 1)[0].item
    label_all(ws, campaign, "ann")
    reopen(ws, campaign, first, "lead")
    with pytest.raises(ConflictError, match="no decision to take back"):
        reopen(ws, campaign, first, "lead")
    label_all(ws, campaign, "ann")
    again = tasks(ws, campaign, "ann", 3)
    assert (again[0].item, again[0].origin, again[0].rank) == (first, Origin.REOPENED, 0)
    assert len(again) == 3
    with pytest.raises(ConflictError, match="being asked now"):
        reopen(ws, campaign, first, "lead")
    label_all(ws, campaign, "ann")
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    outcome = replay(ws, campaign)
    assert outcome.agrees, outcome
    labels = [e.label for e in ledger(ws, campaign, kind="decision", item=first).entries]
    assert labels == [truth_of(90)[int(first)], None, truth_of(90)[int(first)]]


def test_a_reopened_item_after_the_end_gets_its_weak_label_back(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2, budget=2)
    item = tasks(ws, campaign, "ann", 1)[0].item
    label_all(ws, campaign, "ann")
    reopen(ws, campaign, item, "lead")
    assert advance(ws, campaign) == 2  # the model follows; then the budget leaves nothing to do
    assert rounds(ws, campaign)[-1].kind == RoundKind.CORRECTION
    assert status(ws, campaign).summary.message == "budget spent: 2 of 2 samples asked"
    change_settings(ws, campaign, "lead", budget=4)
    advance(ws, campaign)
    assert tasks(ws, campaign, "ann")[0].item == item
    assert replay(ws, campaign).agrees


def test_stopping_and_going_on(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2)
    held = tasks(ws, campaign, "ann")
    cast_vote(ws, campaign, "ann", held[0].item, 0)
    stop(ws, campaign, "lead")
    assert waits(ws, campaign, "ann").reason == WaitReason.STOPPED
    cast_vote(ws, campaign, "ann", held[1].item, 0)
    assert advance(ws, campaign) == 0
    with pytest.raises(ConflictError, match="the campaign is stopped"):
        pause(ws, campaign, "lead")
    resume(ws, campaign, "lead")
    assert advance(ws, campaign) == 3
    assert replay(ws, campaign).agrees


def test_stopping_while_the_model_follows(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, batch_size=2)
    real = steps.select

    def stopping(*arguments: object) -> object:
        stop(ws, campaign, "lead")
        return real(*arguments)  # type: ignore[arg-type]

    for one in tasks(ws, campaign, "ann"):
        cast_vote(ws, campaign, "ann", one.item, 0)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "select", stopping)
        advance(ws, campaign)
    assert status(ws, campaign).open_round is None
    resume(ws, campaign, "lead")
    advance(ws, campaign)
    assert status(ws, campaign).open_round is not None
    assert replay(ws, campaign).agrees


def test_settings_changed_while_the_model_follows_count(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, batch_size=2, budget=4)
    changes = iter([{"batch_size": 1}, {"budget": 5, "batch_size": 2}, {"budget": 5}])

    def changing(write: Any) -> Any:
        """What was planned is written after a lead changed the settings."""

        def late(*arguments: object) -> object:
            change = next(changes, None)
            if change is not None:
                change_settings(ws, campaign, "lead", **change)
            return write(*arguments)

        return late

    for name in ("open", "end"):
        monkeypatch.setattr(SqlLedger, name, changing(getattr(SqlLedger, name)))
    label_all(ws, campaign, "ann")
    seen = status(ws, campaign)
    assert seen.open_round is not None
    assert (seen.summary.spent, len(seen.open_round.items)) == (2, 2)
    label_all(ws, campaign, "ann")
    monkeypatch.undo()
    seen = status(ws, campaign)
    assert seen.summary.state == CampaignState.RUNNING
    assert seen.open_round is not None
    assert (seen.summary.spent, len(seen.open_round.items)) == (4, 1)
    assert replay(ws, campaign).agrees


def test_a_budget_raised_while_the_last_model_follows_is_no_end(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, batch_size=2, budget=2)
    written = SqlLedger._write_model

    def late(*arguments: object) -> object:
        change_settings(ws, campaign, "lead", budget=3)
        return written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlLedger, "_write_model", late)
    label_all(ws, campaign, "ann")
    seen = status(ws, campaign)
    assert seen.summary.state == CampaignState.RUNNING
    assert seen.open_round is not None
    assert len(seen.open_round.items) == 1
    assert replay(ws, campaign).agrees


def test_reopening_goes_on_with_a_finished_campaign(ws: Workspace) -> None:
    campaign = make(ws, data=small_data(n_train=6), budget=None, batch_size=6)
    label_all(ws, campaign, "ann", n=6)
    done = status(ws, campaign).summary
    assert done.state == CampaignState.FINISHED
    resume(ws, campaign, "lead")
    assert advance(ws, campaign) == 1
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    assert status(ws, campaign).summary.message == done.message
    reopen(ws, campaign, "3", "lead")
    advance(ws, campaign)
    assert status(ws, campaign).summary.state == CampaignState.RUNNING
    assert [(t.item, t.origin) for t in tasks(ws, campaign, "ann")] == [("3", Origin.REOPENED)]
    label_all(ws, campaign, "ann", n=6)
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    assert replay(ws, campaign).agrees


def test_an_item_reopened_while_the_last_model_follows_is_asked(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make(ws, data=small_data(n_train=6), budget=None, batch_size=6)
    written = SqlLedger._write_model

    def late(*arguments: object) -> object:
        monkeypatch.undo()
        reopen(ws, campaign, "3", "lead")
        return written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlLedger, "_write_model", late)
    label_all(ws, campaign, "ann", n=6)
    assert [t.item for t in tasks(ws, campaign, "ann")] == ["3"]
    assert replay(ws, campaign).agrees


def test_reopened_items_keep_to_batch_size_and_budget(ws: Workspace) -> None:
    campaign = make(ws, batch_size=6, budget=9, ahead=2)
    items = [t.item for t in tasks(ws, campaign, "ann", 6)]
    label_all(ws, campaign, "ann")
    change_settings(ws, campaign, "lead", batch_size=2)
    for item in items[:4]:
        reopen(ws, campaign, item, "lead")
    label_all(ws, campaign, "ann")  # the batch that was out
    seen = status(ws, campaign)
    assert seen.summary.state == CampaignState.FINISHED
    assert seen.summary.spent == 9
    change_settings(ws, campaign, "lead", budget=12)
    asked = []
    for size in (2, 1):
        advance(ws, campaign)
        opened = status(ws, campaign).open_round
        assert opened is not None
        assert len(opened.items) == size
        asked += [i.item for i in opened.items]
        label_all(ws, campaign, "ann")
    assert asked == items[:3]
    seen = status(ws, campaign)
    assert (seen.summary.state, seen.summary.spent) == (CampaignState.FINISHED, 12)
    assert replay(ws, campaign).agrees


def test_a_target_ends_a_campaign(ws: Workspace) -> None:
    campaign = make(ws, target=0.1, target_metric="accuracy")
    assert status(ws, campaign).summary.message == "target reached: accuracy ≥ 0.1"
    change_settings(ws, campaign, "lead", target=None)
    advance(ws, campaign)
    assert status(ws, campaign).summary.state == CampaignState.RUNNING


def test_settings_that_cannot_be() -> None:
    for wrong in (
        {"people": 0},
        {"batch_size": 0},
        {"budget": -1},
        {"gamma": 2.0},
        {"blind_share": float("nan")},
        {"seed": -1},
        {"ahead": True},
        {"blind": 1},
        {"selector": 3},
        {"target": "high"},
    ):
        with pytest.raises(InvalidInputError):
            Settings(**wrong)
    with pytest.raises(InvalidInputError, match="unknown setting 'colour'"):
        Settings.of({"colour": "red"})
    with pytest.raises(InvalidInputError, match="unknown strategy"):
        Settings.with_strategy("seven")
    assert Settings.with_strategy("two").people == 0


def test_the_worker_moves_rounds_on_while_people_vote(ws: Workspace) -> None:
    made = create_campaign(ws, "Live", small_data(), Settings(batch_size=3, budget=6), "lead")
    with Worker(ws) as worker:
        wait_until(lambda: status(ws, made.slug).open_round is not None)
        version = summary(ws, made.slug).version
        woken: list[int] = []
        waiter = threading.Thread(target=lambda: woken.append(wait_for_change(ws, made.slug, version, 60.0)))
        waiter.start()
        with pytest.raises(ConflictError, match="running already"):
            advance(ws, made.slug)
        truth = truth_of(90)
        deadline = time.monotonic() + 60
        while status(ws, made.slug).summary.state != CampaignState.FINISHED:
            found = next_tasks(ws, made.slug, "ann")
            if isinstance(found, list):
                cast_vote(ws, made.slug, "ann", found[0].item, int(truth[int(found[0].item)]))
            assert time.monotonic() < deadline
        waiter.join(10)
        assert woken
        assert woken[0] > version
        assert worker.last_error is None
    assert replay(ws, made.slug).agrees
    assert wait_for_change(ws, made.slug, 10**6, 0.05) < 10**6


def test_one_process_runs_the_worker(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from labelchef.services.workspace import open_workspace\n"
        "with open_workspace(Path(sys.argv[1])) as ws, ws.worker_lock.holding():\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with open_workspace(tmp_path) as ws:
            with pytest.raises(ConflictError, match="is running already"):
                Worker(ws).start()
            made = create_campaign(ws, "Other", small_data(), Settings(), "lead")
            with pytest.raises(ConflictError, match="running already"):
                advance(ws, made.slug)
    finally:
        holder.communicate("")
    with open_workspace(tmp_path) as ws:
        assert advance(ws, made.slug) == 2  # the first model, the first batch


def address_of(ws: Workspace, database: str | None) -> str:
    return f"sqlite:///{ws.database.path}" if database is None else database


def test_one_worker_serves_a_database_whatever_its_home(ws: Workspace, database: str | None, tmp_path: Path) -> None:
    campaign = make(ws, batch_size=1)
    with open_workspace(tmp_path / "elsewhere", address_of(ws, database)) as other:
        with ws.worker_lock.holding():
            with pytest.raises(ConflictError, match="is running already"):
                Worker(other).start()
            with pytest.raises(ConflictError, match="is running already") as refused:
                advance(other, campaign, patience=0.2)
            assert refused.value.code == "worker"
            ws.worker_lock.keep()
        with other.worker_lock.holding(), pytest.raises(ConflictError, match="is running already"):
            advance(ws, campaign)
    label_all(ws, campaign, "ann")


def test_databases_side_by_side_have_workers_of_their_own(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db")]
    one, two = (open_workspace(tmp_path / name, url) for name, url in zip("xy", urls, strict=True))
    with one, two, one.worker_lock.holding(), two.worker_lock.holding():
        assert (tmp_path / "a.db.worker.lock").is_file()


def test_a_home_without_the_campaign_s_files_leaves_it_as_it_is(
    ws: Workspace, database: str | None, tmp_path: Path
) -> None:
    campaign = make(ws, batch_size=1)
    cast_vote(ws, campaign, "ann", tasks(ws, campaign, "ann")[0].item, 0)
    before = summary(ws, campaign)
    with open_workspace(tmp_path / "elsewhere", address_of(ws, database)) as other:
        with pytest.raises(StoreError, match="this home does not hold its files") as refused:
            advance(other, campaign)
        assert refused.value.code == "folder"
        with pytest.raises(StoreError, match="--home"):
            replay(other, campaign)
        with Worker(other) as worker:
            wait_until(lambda: worker.last_error is not None)
            assert "does not hold" in str(worker.last_error)
            assert worker.alive
    assert summary(ws, campaign) == before
    assert advance(ws, campaign) == 3
    assert replay(ws, campaign).agrees


def test_a_lock_that_the_server_forgot_is_taken_again(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.new_database()
    forget = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    one, two = (open_workspace(tmp_path / name, address) for name in ("one", "two"))
    with one, two, one.worker_lock.holding():
        with two.writing() as connection:
            assert connection.execute(forget).scalar_one()
        wait_until(lambda: not holds_lock(two))
        one.worker_lock.keep()
        with pytest.raises(ConflictError, match="running already"):
            advance(two, "any")
        with two.writing() as connection:
            assert connection.execute(forget).scalar_one()
        with two.worker_lock.holding(patience=5.0), pytest.raises(ConflictError, match="running already"):
            one.worker_lock.keep()


def test_a_second_worker_that_waits_does_not_end_the_first_whose_lock_file_was_deleted(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    address, refused = postgres.new_database(), list[ConflictError]()
    one, two = (open_workspace(tmp_path, address) for _ in range(2))

    def second() -> None:
        try:
            with two.worker_lock.holding(patience=3.0):
                pass
        except ConflictError as error:
            refused.append(error)

    with one, two, one.worker_lock.holding():
        (tmp_path / "worker.lock").unlink()
        waiting = threading.Thread(target=second)
        waiting.start()
        while waiting.is_alive():
            one.worker_lock.keep()
            time.sleep(0.05)
        assert len(refused) == 1


def holds_lock(ws: Workspace) -> bool:
    """Whether anyone holds the worker's lock in this database."""
    with ws.reading() as connection:
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        return bool(connection.execute(sa.text(held)).scalar_one())


def test_a_missing_array_fails_the_campaign_with_a_sentence_and_nothing_is_lost(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2)
    for one in tasks(ws, campaign, "ann"):
        cast_vote(ws, campaign, "ann", one.item, 0)
    ws.trained.clear()
    features = folder_of(ws, campaign) / "features.npy"
    features.rename(features.with_suffix(".kept"))
    with pytest.raises(StoreError, match="is missing"):
        advance(ws, campaign)
    failed = status(ws, campaign)
    assert failed.summary.state == CampaignState.FAILED
    assert "features.npy is missing" in failed.summary.message
    assert waits(ws, campaign, "ann").reason == WaitReason.FAILED
    features.with_suffix(".kept").rename(features)
    resume(ws, campaign, "lead")
    advance(ws, campaign)
    assert status(ws, campaign).summary.spent == 2
    assert replay(ws, campaign).agrees


def test_a_changed_array_is_refused(ws: Workspace) -> None:
    campaign = make(ws)
    weak = folder_of(ws, campaign) / "weak.npy"
    np.save(weak, np.load(weak)[::-1])
    with pytest.raises(StoreError, match="not the file that was stored"):
        replay(ws, campaign)
    shutil.rmtree(folder_of(ws, campaign))
    with pytest.raises(StoreError, match="missing"):
        replay(ws, campaign)


def test_a_history_that_does_not_repeat_is_reported_and_stops_nothing(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2)
    label_all(ws, campaign, "ann")
    for one in tasks(ws, campaign, "ann"):
        cast_vote(ws, campaign, "ann", one.item, 0)
    with ws.writing() as connection:
        connection.execute(sa.text("UPDATE round SET labels_hash = 'other' WHERE number = 1"))
        connection.execute(sa.text("UPDATE round SET selection_hash = 'other' WHERE number = 2"))
    outcome = replay(ws, campaign)
    assert not outcome.agrees
    assert [(r.number, r.selection, r.labels) for r in outcome.rounds if not r.agrees] == [
        (1, Verdict.SAME, Verdict.DIFFERS),
        (2, Verdict.DIFFERS, None),
    ]
    ws.trained.clear()  # as a new process finds it
    advance(ws, campaign)
    assert status(ws, campaign).summary.spent == 4
    label_all(ws, campaign, "ann")
    assert status(ws, campaign).summary.spent == 6
    assert [r.number for r in replay(ws, campaign).rounds if not r.agrees] == [1, 2]


def test_a_worker_outlives_a_failing_campaign(ws: Workspace) -> None:
    broken = make(ws, "Broken", batch_size=1)
    whole = make(ws, "Whole", batch_size=1)
    ws.trained.clear()
    (folder_of(ws, broken) / "features.npy").unlink()
    for campaign in (broken, whole):
        cast_vote(ws, campaign, "ann", tasks(ws, campaign, "ann")[0].item, 0)
    with Worker(ws):
        wait_until(lambda: status(ws, whole).summary.spent == 1)
        wait_until(lambda: status(ws, broken).summary.state == CampaignState.FAILED)


@pytest.mark.parametrize("error", [OSError("no more files"), MemoryError()])
def test_a_worker_outlives_a_campaign_that_cannot_be_rebuilt(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    broken = make(ws, "Broken", batch_size=1)
    whole = make(ws, "Whole", batch_size=1)
    real, sick = trained.trained_now, summary(ws, broken).id

    def failing(ws: Workspace, campaign: Any) -> trained.Trained:
        if campaign.public_id == sick:
            raise error
        return real(ws, campaign)

    monkeypatch.setattr(trained, "trained_now", failing)
    cast_vote(ws, whole, "ann", tasks(ws, whole, "ann")[0].item, 0)
    assert not Worker(ws).alive
    with Worker(ws) as worker:
        wait_until(lambda: status(ws, whole).summary.spent == 1)
        assert worker.alive
        assert status(ws, broken).summary.state == CampaignState.FAILED
    wait_until(lambda: not worker.alive)
    monkeypatch.undo()
    resume(ws, broken, "lead")
    label_all(ws, broken, "ann")
    assert replay(ws, broken).agrees


def test_nothing_is_left_of_a_campaign_refused(ws: Workspace) -> None:
    data = small_data()
    with pytest.raises(InvalidInputError, match="y_clean has 1 entries"):
        small_data(clean=np.array([0]))
    wrong: list[tuple[CampaignData, dict[str, object], str]] = [
        (small_data(items=pd.DataFrame({"text": ["a"]})), {}, "items has 1 rows"),
        (small_data(items=pd.DataFrame({"id": ["a"] * 60})), {}, "occurs twice"),
        (small_data(items=pd.DataFrame({"image": ["x.png"] * 60})), {}, "no media folder"),
        (data, {"selector": "magic"}, "unknown selector"),
        (data, {"target_metric": "auc"}, "target_metric is 'auc'"),
        (data, {"target_metric": "f1"}, "'f1' with 3 classes"),
    ]
    for given, settings, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            create_campaign(ws, "Wrong", given, Settings(**settings), "lead")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="no name"):
        create_campaign(ws, " ", data, Settings(), "lead")
    assert list_campaigns(ws) == []
    assert list((ws.home / "campaigns").iterdir()) == []


def test_names_become_addresses(ws: Workspace) -> None:
    slugs = [
        create_campaign(ws, name, small_data(), Settings(), "lead").slug
        for name in ("Müll & Spaß!", "mull spa", "日本", "中国")
    ]
    assert slugs == ["mull-spa", "mull-spa-2", "campaign", "campaign-2"]
    assert summary(ws, summary(ws, slugs[0]).id).slug == slugs[0]
    with pytest.raises(NotFoundError):
        status(ws, "nowhere")
    with pytest.raises(NotFoundError):
        status(ws, "null\x00")


def test_a_campaign_from_a_folder_with_images(ws: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    (folder / "media" / "deep").mkdir(parents=True)
    data = small_data()
    np.save(folder / "features.npy", data.X)
    np.save(folder / "val_features.npy", data.validation[0])
    pd.DataFrame(data.weak, columns=CLASSES).to_csv(folder / "weak.csv", index=False)
    pd.DataFrame({"label": [CLASSES[k] for k in data.validation[1]]}).to_csv(folder / "val_labels.csv", index=False)
    (folder / "media" / "deep" / "a.png").write_bytes(b"png")
    items = pd.DataFrame({"id": [f"i{k}" for k in range(60)], "image": ["deep/a.png"] + [""] * 59, "n": range(60)})
    items.to_csv(folder / "items.csv", index=False)
    pd.DataFrame({"id": [f"i{k}" for k in range(30)], "text": ["v"] * 30}).to_json(
        folder / "val_items.jsonl", orient="records", lines=True
    )
    with pytest.raises(InvalidInputError, match="--by-position"):  # items have ids, features have none
        create_from_folder(ws, "Folder", folder, Settings(), "lead")
    made = create_from_folder(ws, "Folder", folder, Settings(batch_size=60, budget=None), "lead", by_position=True)
    advance(ws, made.slug)
    found = {t.item: t for t in tasks(ws, made.slug, "ann", 60)}
    assert found["i0"].content.image == "deep/a.png"
    assert found["i1"].content.image is None
    assert found["i1"].content.fields == {"n": "1"}
    assert found["i1"].neighbours[0].key.startswith("val-i")
    assert media(ws, made.slug, "i0").read_bytes() == b"png"
    for missing in ("i1", "../features.npy", "x"):
        with pytest.raises(NotFoundError):
            media(ws, made.slug, missing)
    for name in ("../secret.png", "/etc/passwd.png", "deep/none.png", "deep/a.svg"):
        items["image"] = [name] * 60
        items.to_csv(folder / "items.csv", index=False)
        with pytest.raises(InvalidInputError):
            create_from_folder(ws, "Escape", folder, Settings(), "lead", by_position=True)
    (folder / "weak.csv").unlink()
    with pytest.raises(InvalidInputError, match="holds no weak file"):
        create_from_folder(ws, "Half", folder, Settings(), "lead")


def test_votes_of_sources_outlast_a_restart(ws: Workspace, tmp_path: Path) -> None:
    data, y = small_data(), truth_of(90)
    np.save(tmp_path / "features.npy", data.X)
    np.save(tmp_path / "val_features.npy", data.validation[0])
    pd.DataFrame({"label": [CLASSES[k] for k in data.validation[1]]}).to_csv(tmp_path / "val_labels.csv", index=False)
    pd.DataFrame({"id": [f"i{k}" for k in range(60)]}).to_csv(tmp_path / "items.csv", index=False)
    votes = [(f"i{k}", f"worker {j}", CLASSES[y[k]]) for k in range(0, 60, 2) for j in range(1 + k % 3)]
    pd.DataFrame(votes, columns=["task", "worker", "label"]).to_parquet(tmp_path / "source_votes.parquet")
    pd.DataFrame({"worker 2": [CLASSES[k] for k in y[60:]]}).to_csv(tmp_path / "val_source_votes.csv", index=False)
    made = create_from_folder(ws, "Crowd", tmp_path, Settings(batch_size=2, budget=4), "lead", by_position=True)
    advance(ws, made.slug)
    ws.forget(find(ws, made.slug).id)
    kept = data_of(ws, find(ws, made.slug))
    given = read_files(find_files(tmp_path, by_position=True))
    assert kept.names.names == sorted(CLASSES)
    for found, expected in ((kept.votes, given.votes), (kept.votes_val, given.votes_val)):
        assert found is not None
        assert expected is not None
        assert found.names == expected.names == ("worker 0", "worker 1", "worker 2")
        np.testing.assert_array_equal(found.table.toarray(), expected.table.toarray())
    np.testing.assert_array_equal(kept.weak, given.votes.shares())  # type: ignore[union-attr]
    for task in tasks(ws, made.slug, "ann"):
        cast_vote(ws, made.slug, "ann", task.item, CLASSES[y[int(task.item[1:])]])
    advance(ws, made.slug)
    assert replay(ws, made.slug).agrees
    stored = ws.home / "campaigns" / made.id / "votes_indices.npy"
    np.save(stored, np.load(stored)[::-1])
    with pytest.raises(StoreError, match="is not the file that was stored"):
        data_of(ws, find(ws, made.slug))


def test_given_labels_are_clean_from_the_start(ws: Workspace) -> None:
    given = np.full(60, -1)
    given[:50] = truth_of(90)[:50]
    campaign = make(ws, data=small_data(clean=given), budget=None, batch_size=20)
    seen = status(ws, campaign).open_round
    assert seen is not None
    assert {int(i.item) for i in seen.items} == set(range(50, 60))
    resolve(ws, campaign, "3", "ham", "lead")  # a lead may correct what came with the data
    label_all(ws, campaign, "ann")
    assert replay(ws, campaign).agrees


def test_the_ledger_comes_in_pages(ws: Workspace) -> None:
    campaign = make(ws)
    label_all(ws, campaign, "ann", rounds=2)
    change_settings(ws, campaign, "boss", budget=20)
    undo_vote(ws, campaign, "ann")
    whole = ledger(ws, campaign, limit=1000)
    assert whole.next is None
    walked: list[LedgerEntry] = []
    after: str | None = None
    while True:
        page = ledger(ws, campaign, limit=3, after=after)
        walked += page.entries
        after = page.next
        if after is None:
            break
    assert walked == list(whole.entries)
    assert [e.at for e in walked] == sorted((e.at for e in walked), reverse=True)
    assert {e.kind for e in ledger(ws, campaign, person="boss").entries} == {"change"}
    assert len(ledger(ws, campaign, kind="vote", person="ann").entries) == 9
    for cursor in ("x", "nan~vote~1", "inf~vote~1", "1~x~2", "1~vote~-2", "1e999~vote~1", "1~vote~" + "9" * 30):
        with pytest.raises(InvalidInputError, match="cursor"):
            ledger(ws, campaign, after=cursor)
    with pytest.raises(InvalidInputError):
        ledger(ws, campaign, kind="rubbish")
    with pytest.raises(InvalidInputError):
        ledger(ws, campaign, limit=0)
