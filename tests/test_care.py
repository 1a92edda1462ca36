"""Care of campaigns: rename, archive, delete and restore, removal for good, copy, roles within a campaign."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from labelchef.base.campaigns import CampaignState, Role, Shelf, WaitReason
from labelchef.base.errors import ConflictError, InvalidInputError, NameTakenError, NotFoundError, StoreError
from labelchef.base.settings import OPTIONS, Settings
from labelchef.loop import rebuild
from labelchef.server.campaigns import campaigns, care, guidelines, making, trained
from labelchef.server.campaigns.access import find
from labelchef.server.items import decisions
from labelchef.server.labelling import discussions, votes
from labelchef.server.people import accounts
from labelchef.server.store import campaign_table, removal
from labelchef.server.store.tables import LEDGER_TABLES, METADATA
from labelchef.server.worker import Worker, advance
from labelchef.server.workspace import CAMPAIGNS, Workspace, open_workspace
from tests.store_support import (
    gold_data,
    label_all,
    make,
    small_data,
    tasks,
    wait_until,
    waits,
)

PASSWORD = "a long password"


def rows_of(ws: Workspace) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table but that of leases, which say who works now."""
    with ws.reading() as connection:
        return {
            table.name: [
                tuple(map(str, row)) for row in connection.execute(sa.select(table).order_by(*table.primary_key))
            ]
            for table in METADATA.sorted_tables
            if table.name != "lease"
        }


def full_campaign(ws: Workspace, name: str) -> str:
    """A campaign with votes, changed votes, decisions of a lead, changes of settings and members."""
    slug = make(ws, name, data=gold_data(), people=1)
    label_all(ws, slug, "ann", rounds=1)
    item = tasks(ws, slug, "ann", 1)[0].item
    votes.cast_vote(ws, slug, "ann", item, 0)
    votes.cast_vote(ws, slug, "ann", item, 1)
    decisions.resolve(ws, slug, item, 2, "lead")
    decisions.resolve(ws, slug, item, 1, "lead")
    campaigns.change_settings(ws, slug, "lead", budget=40)
    guidelines.write(ws, slug, "lead", {None: "Read all of it."})
    discussions.add(ws, slug, "lead", item, "Is it?", lead=True)
    label_all(ws, slug, "ann", rounds=1)
    campaigns.change_settings(ws, slug, "lead", gold_share=0.5, blind_share=1.0)
    label_all(ws, slug, "bob", rounds=1)  # ann may have seen all gold as neighbours, with their labels
    return slug


def test_a_deleted_campaign_is_found_by_nothing_but_restore(ws: Workspace) -> None:
    slug, other = make(ws, "Doomed"), make(ws, "Other")
    with pytest.raises(InvalidInputError, match="expected 'Doomed'"):
        care.delete(ws, slug, "lead", confirm="doomed")
    gone = care.delete(ws, slug, "lead", confirm="Doomed")
    assert gone.purge_at is not None
    assert gone.deleted_at is not None
    assert 29.9 < (gone.purge_at - gone.deleted_at).total_seconds() / 86400 < 30.1
    assert [one.slug for one in campaigns.list_campaigns(ws)] == [other]
    assert [one.slug for one in campaigns.list_campaigns(ws, shelf=Shelf.DELETED)] == [slug]
    for look in (campaigns.status, campaigns.summary, trained.due_step):
        with pytest.raises(NotFoundError):
            look(ws, slug)
    assert care.purge(ws) == []
    care.restore(ws, slug, "lead")
    assert campaigns.summary(ws, slug).state is CampaignState.RUNNING
    assert label_all(ws, slug, "ann") == 4
    assert trained.replay(ws, slug).agrees


def test_removal_takes_all_rows_of_one_campaign_and_none_of_others(ws: Workspace) -> None:
    kept = full_campaign(ws, "Kept")
    before = rows_of(ws)
    accounts.create_account(ws, "cat", Role.ANNOTATOR, PASSWORD)
    people = rows_of(ws)["account"]
    doomed = full_campaign(ws, "Doomed")
    accounts.set_member(ws, doomed, "cat", "lead", role=Role.LEAD)
    care.rename(ws, doomed, "lead", "Doomed", slug="doomed-again")
    public_id = campaigns.summary(ws, doomed).id
    care.delete(ws, doomed, "lead", confirm="Doomed", now=True)
    assert care.purge(ws) == ["Doomed"]
    after = rows_of(ws)
    assert [row[2:4] for row in after.pop("removed_campaign")] == [("doomed-again", "Doomed")]
    assert after.pop("account") == people
    before = {name: rows for name, rows in before.items() if name in after}
    assert after == before
    assert not (ws.home / CAMPAIGNS / public_id).exists()
    with pytest.raises(NotFoundError):
        care.restore(ws, doomed, "lead")
    assert label_all(ws, kept, "ann") > 0
    assert trained.replay(ws, kept).agrees


def test_the_ledger_stays_append_only_for_all_else(ws: Workspace) -> None:
    slug = full_campaign(ws, "Kept")
    care.delete(ws, slug, "lead", confirm="Kept")  # deleted is not enough: only the removal itself may
    for table in (METADATA.tables[name] for name in LEDGER_TABLES):
        assert rows_of(ws)[table.name], "a trigger looks at rows"
        for statement in (sa.delete(table), sa.update(table).values({next(iter(table.c)): 1})):
            with pytest.raises(Exception, match="append"), ws.writing() as connection:
                connection.execute(statement)
    care.restore(ws, slug, "lead")
    assert trained.replay(ws, slug).agrees


def test_a_crash_in_the_middle_of_a_removal_loses_nothing(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    slug, other = full_campaign(ws, "Doomed"), full_campaign(ws, "Other")
    care.delete(ws, slug, "lead", confirm="Doomed", now=True)
    before = rows_of(ws)

    class Crash(BaseException):
        pass

    def crash(*_: object) -> int:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(removal, "_newest_first", crash)  # the items' selections and applications are deleted by then
        with pytest.raises(Crash):
            care.purge(ws)
    assert rows_of(ws) == before
    folder = ws.home / CAMPAIGNS / campaigns.list_campaigns(ws, shelf=Shelf.DELETED)[0].id
    with monkeypatch.context() as patched:  # a crash after the transaction leaves the folder
        patched.setattr(care, "remove_folders", crash)
        with pytest.raises(Crash):
            care.purge(ws)
    assert folder.is_dir()
    with Worker(ws):
        pass
    assert not folder.exists()
    assert trained.replay(ws, other).agrees


def test_what_was_finished_meanwhile_is_not_removed(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of unfinished campaigns is older than the removal."""
    made = campaigns.create_campaign(ws, "Finished", small_data(), Settings(), "lead")
    before, folder, row = rows_of(ws), ws.home / CAMPAIGNS / made.id, find(ws, made.slug)
    monkeypatch.setattr(removal, "AT_ONCE", 10)
    monkeypatch.setattr(campaign_table, "unfinished", lambda _: [row])
    making.clear_unfinished(ws)
    assert rows_of(ws) == before
    assert (folder / "features.npy").is_file()


def test_an_error_after_the_last_transaction_leaves_the_campaign(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = ws.database.writing

    @contextlib.contextmanager
    def lost(*, lasting: bool = True) -> Iterator[sa.Connection]:
        with writing(lasting=lasting) as connection:
            yield connection
        if lasting:
            raise StoreError("the connection was lost before the answer came", code="database_down")

    with monkeypatch.context() as patched:
        patched.setattr(ws, "writing", lost)
        patched.setattr(removal, "AT_ONCE", 10)
        with pytest.raises(StoreError, match="lost"):
            campaigns.create_campaign(ws, "Finished", small_data(), Settings(), "lead")
    care.purge(ws)
    advance(ws, "finished")
    assert label_all(ws, "finished", "ann", "bob", "cat") > 0


def test_the_worker_removes_what_is_due_and_leaves_the_archive_alone(ws: Workspace) -> None:
    away = campaigns.create_campaign(ws, "Away", small_data(), Settings(), "lead").slug
    care.archive(ws, away, "lead")
    slug = make(ws, "Doomed")
    public_id = campaigns.summary(ws, slug).id
    with Worker(ws):
        care.delete(ws, slug, "lead", confirm="Doomed", now=True)
        wait_until(lambda: not (ws.home / CAMPAIGNS / public_id).exists())
    assert campaigns.list_campaigns(ws, shelf=Shelf.DELETED) == []
    assert campaigns.summary(ws, away).state is CampaignState.PREPARING
    assert trained.due_step(ws, away) is None


def test_a_name_that_is_taken_is_asked_about(ws: Workspace) -> None:
    slug = make(ws, "Digits")
    with pytest.raises(NameTakenError, match="'Digits' exists already \\('digits'\\)") as caught:
        make(ws, " digits ")
    assert (caught.value.suggestion, caught.value.campaign, caught.value.code) == ("digits 2", slug, "name_taken")
    other = make(ws, "Digits 2")
    assert other == "digits-2"
    with pytest.raises(NameTakenError) as caught:
        care.rename(ws, other, "lead", "DIGITS")
    assert caught.value.suggestion == "DIGITS 3"
    care.delete(ws, slug, "lead", confirm="Digits")
    make(ws, "Digits")
    with pytest.raises(NameTakenError):
        care.restore(ws, slug, "lead")
    assert care.restore(ws, slug, "lead", name="Digits of before").name == "Digits of before"


def test_a_renamed_campaign_is_found_by_its_old_address(ws: Workspace) -> None:
    slug, other = make(ws, "First"), make(ws, "Other")
    assert care.rename(ws, slug, "lead", "Second").slug == slug
    assert care.rename(ws, slug, "lead", "Second", slug="second").slug == "second"
    assert campaigns.summary(ws, slug).name == "Second"
    with pytest.raises(ConflictError, match="leads to another campaign"):
        care.rename(ws, other, "lead", "Other", slug=slug)
    with pytest.raises(InvalidInputError, match="no short name"):
        care.rename(ws, other, "lead", "Other", slug="A b")
    assert care.rename(ws, slug, "lead", "Second", slug=slug).slug == slug  # back again
    assert campaigns.summary(ws, "second").slug == slug
    changes = [one.what for one in decisions.ledger(ws, slug, kind="change").entries]
    assert {"renamed": {"name": "Second"}, "before": {"name": "First"}} in changes


def test_the_archive_is_read_only(ws: Workspace) -> None:
    slug = make(ws, "Away")
    item = tasks(ws, slug, "ann", 1)[0].item
    care.archive(ws, slug, "lead")
    assert campaigns.list_campaigns(ws) == []
    assert [one.slug for one in campaigns.list_campaigns(ws, shelf=Shelf.ARCHIVED)] == [slug]
    assert waits(ws, slug, "ann").reason is WaitReason.ARCHIVED
    for change in (
        lambda: votes.cast_vote(ws, slug, "ann", item, 0),
        lambda: campaigns.change_settings(ws, slug, "lead", budget=3),
        lambda: campaigns.pause(ws, slug, "lead"),
        lambda: decisions.resolve(ws, slug, item, 0, "lead"),
    ):
        with pytest.raises(ConflictError) as caught:
            change()
        assert caught.value.code == "archived"
    assert advance(ws, slug) == 0
    assert trained.replay(ws, slug).agrees
    care.reopen(ws, slug, "lead")
    assert votes.cast_vote(ws, slug, "ann", item, 0).label == 0


def test_a_copy_has_the_data_and_other_settings(ws: Workspace) -> None:
    slug = full_campaign(ws, "Old")
    plain = care.copy(ws, slug, "lead", changes={"selector": "random", "batch_size": 7})
    assert (plain.name, plain.slug, plain.spent, plain.n_items) == ("Old 2", "old-2", 0, 60)
    advance(ws, plain.slug)
    seen = campaigns.status(ws, plain.slug)
    assert (seen.settings.selector, seen.settings.budget) == ("random", 40)
    assert seen.open_round is not None
    assert len(seen.open_round.items) == 7
    known = care.copy(ws, slug, "lead", name="Known", answers=True)
    advance(ws, known.slug)
    clean = trained.data_of(ws, find(ws, known.slug)).clean
    assert (clean >= 0).sum() == 12  # three batches of four, with one that the lead decided
    care.delete(ws, slug, "lead", confirm="Old", now=True)
    care.purge(ws)
    for one in (plain.slug, known.slug):  # files were shared, not taken along
        ws.memory.clear()
        assert label_all(ws, one, "ann") > 0
        assert trained.replay(ws, one).agrees
    with pytest.raises(InvalidInputError):
        care.copy(ws, plain.slug, "lead", changes={"batch_size": 0})
    assert len(list((ws.home / CAMPAIGNS).iterdir())) == 2


def test_leads_of_a_campaign(ws: Workspace) -> None:
    slug, other = make(ws, "One", people=2), make(ws, "Two")
    for name, role in (("lead", Role.LEAD), ("ann", Role.ANNOTATOR), ("cat", Role.ANNOTATOR)):
        accounts.create_account(ws, name, role, PASSWORD)
    accounts.set_member(ws, slug, "ann", "lead")
    accounts.set_member(ws, slug, "cat", "lead", role=Role.LEAD)
    assert [(one.name, one.here) for one in accounts.members(ws, slug)] == [("ann", Role.ANNOTATOR), ("cat", Role.LEAD)]
    assert campaigns.status(ws, slug).leads == ("cat",)
    token = accounts.create_api_token(ws, "cat", "test")[0]
    assert accounts.visitor(ws, token=token, campaign=slug)[1] is Role.LEAD
    assert accounts.visitor(ws, token=token, campaign=other)[1] is None
    assert "people" in [
        one.code for one in campaigns.summary(ws, slug).notices
    ]  # cat leads, nobody waits for her votes
    care.delete(ws, slug, "cat", confirm="One")
    assert [one.slug for one in campaigns.list_campaigns(ws, "cat", Shelf.DELETED)] == [slug]
    assert campaigns.list_campaigns(ws, "ann", Shelf.DELETED) == []
    assert accounts.visitor(ws, token=token, campaign=slug)[1] is Role.LEAD
    care.restore(ws, slug, "cat")
    accounts.set_member(ws, slug, "cat", "lead", role=Role.ANNOTATOR)
    assert accounts.visitor(ws, token=token, campaign=slug)[1] is Role.ANNOTATOR
    accounts.set_member(ws, slug, "cat", "lead", member=False)
    assert accounts.visitor(ws, token=token, campaign=slug)[1] is None
    with pytest.raises(ConflictError, match="last active lead"):
        accounts.set_active(ws, "lead", False)


CHANGED = {
    "selector": "random",
    "constructor": "retrain",
    "audit": 0.5,
    "engine": "memory",
    "target_metric": "accuracy",
    "suggestion_votes": True,
    "stop_at_majority": True,
}
"""A new value of each setting that a session is built with, or that counting reads."""


@pytest.mark.parametrize("setting", sorted(CHANGED))
def test_restart_and_replay_follow_a_changed_setting(tmp_path: Path, setting: str) -> None:
    """Change → rounds → restart → rounds: a replay gives the same to the last bit."""
    start: dict[str, Any] = {"selector": "infl"} if setting == "suggestion_votes" else {}
    with open_workspace(tmp_path) as ws:
        slug = make(ws, budget=40, people=2, **start)
        label_all(ws, slug, "ann", "bob")
        campaigns.change_settings(ws, slug, "lead", **{setting: CHANGED[setting]})
        label_all(ws, slug, "ann", "bob", rounds=2)
        found = trained.replay(ws, slug)
        assert found.agrees, found
        assert all(one.exact for one in found.rounds), found
    with open_workspace(tmp_path) as ws:
        label_all(ws, slug, "ann", "bob")
        found = trained.replay(ws, slug)
        assert found.agrees, found
        assert all(one.exact for one in found.rounds), found
        if setting == "selector":  # without the settings of each round it would not come out
            row = find(ws, slug)
            past = [replace(one, opened_with=None, closed_with=None) for one in trained.ledger_of(ws, row).past()]
            wrong = list(rebuild.replay(trained.data_of(ws, row), row.settings, past))
            assert not all(one.agrees for one in wrong)


def test_every_setting_says_what_a_change_does() -> None:
    for name, option in OPTIONS.items():
        assert option.effect, name
        assert option.effect.startswith("Fixed: ") != option.changeable, name
        if not option.changeable:
            assert "opy the campaign" in option.effect, name
    elsewhere = {"muted", "gold_share", "tie_votes"}  # tests of sources and of people change them
    earlier = {"batch_size", "budget", "target", "stop", "people", "ahead", "blind_share", "lease_minutes"}
    assert {name for name, option in OPTIONS.items() if option.changeable} == CHANGED.keys() | earlier | elsewhere
