"""Hidden gold, further votes on ties, and duties: on SQLite and PostgreSQL."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa

from labelchef.base.campaigns import Role, Task, Waiting
from labelchef.base.duties import Duty
from labelchef.base.errors import ConflictError, InvalidInputError
from labelchef.base.settings import Settings
from labelchef.server.campaigns import campaigns, duties
from labelchef.server.campaigns.progress import progress_for
from labelchef.server.export.proof import write_ledger
from labelchef.server.export.verifying import verify_ledger
from labelchef.server.items import decisions
from labelchef.server.labelling import gold
from labelchef.server.labelling import tasks as handing
from labelchef.server.labelling.votes import cast_vote, undo_vote, vote_and_next
from labelchef.server.people import accounts
from labelchef.server.store import campaign_table, gold_table
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import gold_data, make, small_data, tasks, waits

GOLD: dict[str, Any] = {"gold_share": 0.4, "blind_share": 0.5, "batch_size": 12, "budget": 24}


def is_gold(task: Task) -> bool:
    return bool(task.content.text and task.content.text.startswith("trusted"))


def everything(ws: Workspace, slug: str, person: str, label: int = 0) -> list[Task]:
    """All that a person gets until they must wait, each answered."""
    seen: list[Task] = []
    while not isinstance(found := handing.next_tasks(ws, slug, person, 3), Waiting):
        seen.append(found[0])
        cast_vote(ws, slug, person, found[0].item, label, request_id=f"{person}-{found[0].round}-{found[0].rank}")
    return seen


def counts(ws: Workspace) -> tuple[int, int]:
    with ws.reading() as connection:
        votes, answers = (
            connection.execute(sa.text(f"SELECT count(*) FROM {t}")).scalar_one() for t in ("vote", "gold_answer")
        )
        return votes, answers


def verified(ws: Workspace, slug: str) -> bool:
    write_ledger(ws, slug, ws.home / "ledger.jsonl")
    return verify_ledger(ws.home / "ledger.jsonl").intact


def test_gold_must_not_be_known_by_being_blind() -> None:
    with pytest.raises(InvalidInputError, match="blind_share of at least gold_share"):
        Settings(gold_share=0.1)
    assert Settings(gold_share=0.1, blind_share=0.1).gold_share == 0.1
    assert Settings(gold_share=0.1, blind_share=1).gold_share == 0.1


def test_gold_is_sent_as_a_blind_item_is(ws: Workspace) -> None:
    """Key by key, and over a whole batch: ids of items, ranks in a row, one more place for each."""
    slug = make(ws, data=gold_data(), **GOLD)
    seen = everything(ws, slug, "ann")
    golds, blind = [t for t in seen if is_gold(t)], [t for t in seen if t.blind and not is_gold(t)]
    assert golds
    assert blind
    assert len(seen) == 12 + len(golds)
    assert not any(is_gold(t) and not t.blind for t in seen)
    assert [t.rank for t in seen] == list(range(len(seen)))
    assert len({t.item for t in seen}) == len(seen)
    assert all(t.item.isdigit() and int(t.item) < 60 for t in seen)
    own = ("item", "content", "rank", "leased_until", "batch")
    assert [t.batch.mine for t in seen if t.batch] == list(range(len(seen)))  # each answer counts, whichever it is on
    assert [t.batch.answered for t in seen if t.batch] == [min(k, 11) for k in range(len(seen))]  # 12 once none is open
    plain = {name: value for name, value in asdict(blind[0]).items() if name not in own}
    for one in golds:
        assert {name: value for name, value in asdict(one).items() if name not in own} == plain
        assert one.leased_until is not None
        assert set(one.content.fields) == set(blind[0].content.fields)
    assert counts(ws) == (12, len(golds))
    assert all(int(t.content.text.split()[-1]) == int(t.item) for t in seen if t.content.text and not is_gold(t))
    labels = {n.content.text for t in seen for n in t.neighbours}
    assert labels
    assert not labels & {t.content.text for t in golds}
    advance(ws, slug)
    assert campaigns.summary(ws, slug).spent == 12
    again = [t for t in everything(ws, slug, "ann") if is_gold(t)]
    assert not {t.content.text for t in again} & {t.content.text for t in golds}
    assert verified(ws, slug)
    own_votes = progress_for(ws, slug, "ann").people[0].votes
    assert own_votes == sum(counts(ws))  # to Ann they are votes


def first_gold(ws: Workspace, slug: str, person: str) -> Task:
    while True:
        found = tasks(ws, slug, person, 3)[0]
        if is_gold(found):
            return found
        cast_vote(ws, slug, person, found.item, 0)


def test_votes_undo_skip_and_repeats_work_on_gold(ws: Workspace) -> None:
    slug = make(ws, data=gold_data(), **GOLD)
    one = first_gold(ws, slug, "ann")
    votes = counts(ws)[0]
    receipt, after = vote_and_next(ws, slug, "ann", one.item, 1, 3, note="odd", request_id="r1", seconds=2.0)
    assert not receipt.repeated
    assert not receipt.batch_complete
    assert not isinstance(after, Waiting)
    assert one.item not in [t.item for t in after]
    assert cast_vote(ws, slug, "ann", one.item, 1, note="odd", request_id="r1").repeated
    with pytest.raises(ConflictError, match="another label"):
        cast_vote(ws, slug, "ann", one.item, 2, note="odd", request_id="r1")
    shown = handing.task(ws, slug, "ann", one.item)
    assert shown.own_vote is not None
    assert shown.own_vote.note == "odd"
    assert shown.content == one.content
    back = undo_vote(ws, slug, "ann", request_id="r2")
    assert (back.item, back.content, back.rank, back.own_vote) == (one.item, one.content, one.rank, None)
    assert undo_vote(ws, slug, "ann", request_id="r2").item == one.item  # once only
    with pytest.raises(ConflictError, match="used for taking a vote back"):
        cast_vote(ws, slug, "ann", one.item, 1, request_id="r2")
    with pytest.raises(ConflictError, match="used for a vote"):
        undo_vote(ws, slug, "ann", request_id="r1")
    handing.skip(ws, slug, "ann", one.item)
    rest = everything(ws, slug, "ann")
    assert one.item in [t.item for t in rest]
    assert one.item != rest[0].item
    assert cast_vote(ws, slug, "ann", one.item, 2).changed
    assert counts(ws)[0] >= votes
    with ws.reading() as connection:
        found = gold_table.live_answers(connection, 1)
    assert [a.label for a in found if a.cover_key == one.item] == [2]
    with pytest.raises(ConflictError, match="nothing to skip"):
        handing.skip(ws, slug, "ann", one.item)


def test_gold_is_the_same_after_a_restart_and_other_for_others(tmp_path: Any, database: str | None) -> None:
    with open_workspace(tmp_path / "home", database) as ws:
        slug = make(ws, data=gold_data(), **{**GOLD, "people": 2, "tie_votes": 0})
        held = tasks(ws, slug, "ann", 10)
    with open_workspace(tmp_path / "home", database) as ws:
        assert tasks(ws, slug, "ann", 10) == held
        others = tasks(ws, slug, "bob", 10)
        assert [t.content.text for t in others if is_gold(t)] != [t.content.text for t in held if is_gold(t)]


def test_gold_runs_out_at_half_of_the_trusted_samples(ws: Workspace) -> None:
    slug = make(ws, data=gold_data(), **{**GOLD, "gold_share": 0.5, "budget": 48, "blind_share": 1.0})
    golds: list[Task] = []
    for _ in range(4):
        golds += [t for t in everything(ws, slug, "ann") if is_gold(t)]
        advance(ws, slug)
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, slug)
        assert len(golds) + gold.left_for(ws.memory, connection, row, "ann") <= 22
        assert len({t.content.text for t in golds}) == len(golds)


def test_samples_without_the_same_parts_are_no_gold(ws: Workspace) -> None:
    slug = make(ws, data=small_data(), **GOLD)  # trusted samples without a text
    assert not any(is_gold(t) or t.content.text is None for t in everything(ws, slug, "ann"))


def team(ws: Workspace, slug: str, *names: str) -> None:
    for name in names:
        accounts.create_account(ws, name, Role.ANNOTATOR, None)
        accounts.set_member(ws, slug, name, "lead")


def test_a_tie_is_put_to_a_third_member_before_the_lead(ws: Workspace) -> None:
    slug = make(ws, people=2, batch_size=3, budget=6)
    team(ws, slug, "ann", "bob", "cy")
    items = [t.item for t in tasks(ws, slug, "ann", 3)]
    for item in items:
        cast_vote(ws, slug, "ann", item, 0)
        cast_vote(ws, slug, "bob", item, 1 if item in items[:2] else 0)
    advance(ws, slug)
    assert campaigns.status(ws, slug).open_round is not None
    assert [n.code for n in campaigns.summary(ws, slug).notices] == ["tie"]
    assert isinstance(handing.next_tasks(ws, slug, "ann"), Waiting)
    assert sorted(t.item for t in tasks(ws, slug, "cy", 3)) == sorted(items[:2])
    cast_vote(ws, slug, "cy", items[0], 1)
    undo_vote(ws, slug, "bob")  # his last vote, on an item that was settled: it needs one again
    assert [t.item for t in tasks(ws, slug, "bob", 3)] == [items[2]]
    cast_vote(ws, slug, "bob", items[2], 0)
    assert cast_vote(ws, slug, "cy", items[1], 2).batch_complete
    advance(ws, slug)
    assert [(c.item, len(c.votes)) for c in decisions.conflicts(ws, slug)] == [(items[1], 3)]
    decided = {line.item: line.label for line in decisions.ledger(ws, slug, kind="decision").entries}
    assert decided == {items[0]: 1, items[1]: None, items[2]: 0}
    assert verified(ws, slug)


def test_a_changed_vote_ends_the_wait_and_without_a_third_member_the_lead_is_asked(ws: Workspace) -> None:
    slug = make(ws, people=2, batch_size=1, budget=2, stop_at_majority=True)
    team(ws, slug, "ann", "bob", "cy")
    item = tasks(ws, slug, "ann")[0].item
    cast_vote(ws, slug, "ann", item, 0)
    cast_vote(ws, slug, "bob", item, 1)
    advance(ws, slug)
    assert tasks(ws, slug, "cy")[0].item == item
    assert cast_vote(ws, slug, "bob", item, 0).batch_complete  # he agrees now
    advance(ws, slug)
    accounts.set_member(ws, slug, "cy", "lead", member=False)
    item = tasks(ws, slug, "ann")[0].item
    cast_vote(ws, slug, "ann", item, 0)
    cast_vote(ws, slug, "bob", item, 1)
    advance(ws, slug)
    assert [c.item for c in decisions.conflicts(ws, slug)] == [item]


def test_members_get_what_is_theirs_first_and_nothing_waits_for_nobody(ws: Workspace) -> None:
    data = small_data()
    frame = data.contents.items
    assert isinstance(frame, pd.DataFrame)
    frame["colour"] = np.where(np.arange(60) % 2, "red", "blue")
    slug = make(ws, data=data, batch_size=12, budget=12)
    team(ws, slug, "ann", "bob")
    with pytest.raises(InvalidInputError, match="no class 'pie'"):
        duties.set_duty(ws, slug, "ann", Duty(classes=("pie",)), "lead")
    duties.set_duty(ws, slug, "ann", Duty(field="colour", value="red"), "lead")
    assert not campaigns.summary(ws, slug).notices  # Bob gets everything
    duties.set_duty(ws, slug, "bob", Duty(prefix="zzz"), "lead")
    got = everything(ws, slug, "ann")
    own = [t for t in got if t.content.fields["colour"] == "red"]
    assert own
    assert got[: len(own)] == own
    assert len(got) == 12
    changes = [line.what for line in decisions.ledger(ws, slug, kind="change").entries]
    assert {"duty": {"person": "bob", "gets": {"prefix": "zzz"}}} in [dict(what) for what in changes]
    assert duties.duties(ws, slug) == {"ann": Duty(field="colour", value="red"), "bob": Duty(prefix="zzz")}
    duties.set_duty(ws, slug, "bob", None, "lead")
    assert list(duties.duties(ws, slug)) == ["ann"]


def test_duties_by_class_and_the_notice_of_what_nobody_has(ws: Workspace) -> None:
    slug = make(ws, batch_size=12, budget=12)
    team(ws, slug, "ann", "bob")
    duties.set_duty(ws, slug, "ann", Duty(classes=("ham",)), "lead")
    duties.set_duty(ws, slug, "bob", Duty(classes=("spam", "eggs")), "lead")
    assert not campaigns.summary(ws, slug).notices
    got = {name: {t.item for t in tasks(ws, slug, name, 12)} for name in ("ann", "bob")}
    assert got["ann"]
    assert got["bob"]
    assert not got["ann"] & got["bob"]
    for name in got:
        for item in got[name]:
            cast_vote(ws, slug, name, item, 0)
    waits(ws, slug, "ann")
    duties.set_duty(ws, slug, "ann", None, "lead")
