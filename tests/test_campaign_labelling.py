"""Items go to people and votes come back: the same on SQLite and PostgreSQL."""

import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from labelchef.base.campaigns import (
    Awaited,
    CampaignState,
    Origin,
    PersonVote,
    Role,
    RoundKind,
    RoundState,
    Waiting,
    WaitReason,
)
from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.server.campaigns.campaigns import change_settings, pause, resume, rounds, status
from labelchef.server.campaigns.trained import replay
from labelchef.server.intake.importing import import_votes
from labelchef.server.items.decisions import conflicts, ledger, resolve
from labelchef.server.labelling.tasks import next_tasks, skip, task
from labelchef.server.labelling.votes import cast_vote, undo_vote
from labelchef.server.people import accounts
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace
from tests.store_support import CLASSES, label_all, make, one_step, small_data, tasks, truth_of, waits


def votes_in(ws: Workspace) -> int:
    with ws.reading() as connection:
        return int(connection.execute(sa.text("SELECT count(*) FROM vote")).scalar_one())


def test_a_campaign_from_the_first_model_to_the_last_item(ws: Workspace) -> None:
    campaign = make(ws)
    first = status(ws, campaign)
    assert first.summary.state == CampaignState.RUNNING
    assert first.open_round is not None
    assert [i.rank for i in first.open_round.items] == [0, 1, 2, 3]
    assert label_all(ws, campaign, "ann", rounds=3) == 12
    last = status(ws, campaign)
    assert last.summary.state == CampaignState.FINISHED
    assert last.summary.message == "budget spent: 12 of 12 samples asked"
    assert [r.spent for r in last.rounds] == [0, 4, 8, 12]
    assert all(r.state == RoundState.CLOSED and r.validation is not None for r in last.rounds)
    assert waits(ws, campaign, "ann").reason == WaitReason.FINISHED
    assert [p.votes for p in last.people] == [12]
    assert replay(ws, campaign).agrees


def test_a_task_shows_content_and_reasons(ws: Workspace) -> None:
    campaign = make(ws, selector="expected_infl")
    first, second = tasks(ws, campaign, "ann")
    assert (first.rank, second.rank) == (0, 1)
    assert first.content.text == f"text {first.item}"
    assert first.content.fields == {"colour": "red"}
    assert first.classes == CLASSES
    assert first.suggestion in (0, 1, 2)
    assert first.weak is not None
    assert sum(first.weak) == pytest.approx(1.0, abs=1e-5)
    assert first.influence is not None
    assert len(first.neighbours) == 5
    similar = [n.similarity for n in first.neighbours]
    assert similar == sorted(similar, reverse=True)
    assert {n.label for n in first.neighbours} <= set(CLASSES)
    assert [t.item for t in tasks(ws, campaign, "ann")] == [first.item, second.item]  # leases are kept
    assert task(ws, campaign, "ann", first.item).item == first.item
    with pytest.raises(NotFoundError, match="was not given"):
        task(ws, campaign, "bob", first.item)


def test_each_item_goes_to_as_many_people_as_asked_and_to_nobody_twice(ws: Workspace) -> None:
    campaign = make(ws, people=2, batch_size=3)
    given: Counter[str] = Counter()
    for person in ("ann", "bob", "cat"):
        found = next_tasks(ws, campaign, person, 10)
        mine = [] if isinstance(found, Waiting) else [t.item for t in found]
        assert len(set(mine)) == len(mine)
        given.update(mine)
    assert set(given.values()) == {2}
    assert waits(ws, campaign, "cat").reason == WaitReason.OTHERS
    item = tasks(ws, campaign, "ann", 10)[0].item
    cast_vote(ws, campaign, "ann", item, 0)
    assert item not in [t.item for t in tasks(ws, campaign, "ann", 10)]
    with pytest.raises(ConflictError, match="given to others") as refused:
        cast_vote(ws, campaign, "cat", item, 0)
    assert refused.value.code == "taken"


def test_nobody_sees_another_s_vote(ws: Workspace) -> None:
    campaign = make(ws, people=2)
    item = tasks(ws, campaign, "ann")[0].item
    before = tasks(ws, campaign, "bob")[0]
    cast_vote(ws, campaign, "ann", item, 2, note="secret")
    after = tasks(ws, campaign, "bob")[0]
    assert before.item == item
    assert replace(after, batch=before.batch) == before, "only how many answers there are"
    assert after.own_vote is None


def test_a_request_is_stored_once(ws: Workspace) -> None:
    campaign = make(ws)
    item = tasks(ws, campaign, "ann")[0].item
    first = cast_vote(ws, campaign, "ann", item, "spam", request_id="r1", seconds=2.5)
    again = cast_vote(ws, campaign, "ann", item, "spam", request_id="r1")
    assert (again.id, again.repeated, first.repeated) == (first.id, True, False)
    assert votes_in(ws) == 1
    with pytest.raises(ConflictError, match="request_id"):
        cast_vote(ws, campaign, "ann", tasks(ws, campaign, "ann")[0].item, "spam", request_id="r1")
    assert cast_vote(ws, campaign, "bob", tasks(ws, campaign, "bob")[0].item, 0, request_id="r1").repeated is False


def test_a_vote_may_change_and_be_taken_back(ws: Workspace) -> None:
    campaign = make(ws, people=2)
    first, second = tasks(ws, campaign, "ann")
    cast_vote(ws, campaign, "ann", first.item, 0)
    assert cast_vote(ws, campaign, "ann", first.item, None, note="blurred").changed
    cast_vote(ws, campaign, "ann", second.item, 1)
    back = undo_vote(ws, campaign, "ann", request_id="u1")
    assert back.item == second.item
    assert undo_vote(ws, campaign, "ann", request_id="u1").item == second.item
    assert votes_in(ws) == 4
    assert second.item in [t.item for t in tasks(ws, campaign, "ann", 4)]
    seen = status(ws, campaign)
    assert seen.open_round is not None
    assert {i.item: i.votes for i in seen.open_round.items}[first.item] == 1
    assert {i.item: i.votes for i in seen.open_round.items}[second.item] == 0
    assert task(ws, campaign, "ann", first.item).own_vote is not None
    kinds = [(e.item, e.label, e.what["retracted"]) for e in ledger(ws, campaign, kind="vote").entries]
    assert kinds == [
        (second.item, None, True),
        (second.item, 1, False),
        (first.item, None, False),
        (first.item, 0, False),
    ]
    with pytest.raises(ConflictError, match="no vote of yours"):
        undo_vote(ws, campaign, "bob")


def test_skipped_items_go_to_others_and_come_back_last(ws: Workspace) -> None:
    campaign = make(ws)
    first = tasks(ws, campaign, "ann", 1)[0].item
    skip(ws, campaign, "ann", first)
    order = [t.item for t in tasks(ws, campaign, "ann", 10)]
    assert order[-1] == first
    assert len(order) == 4
    with pytest.raises(ConflictError, match="nothing to skip"):
        skip(ws, campaign, "bob", first)
    assert waits(ws, campaign, "bob").reason == WaitReason.OTHERS
    skip(ws, campaign, "ann", order[0])
    assert tasks(ws, campaign, "bob")[0].item == order[0]


def test_a_lease_runs_out(ws: Workspace) -> None:
    campaign = make(ws, lease_minutes=0.2 / 60, batch_size=1)
    item = tasks(ws, campaign, "ann")[0].item
    waiting = waits(ws, campaign, "bob")
    assert waiting.reason == WaitReason.OTHERS
    assert waiting.retry_after <= 1.0
    time.sleep(0.3)
    assert tasks(ws, campaign, "bob")[0].item == item
    with pytest.raises(ConflictError, match="given to others"):
        cast_vote(ws, campaign, "ann", item, 0)
    time.sleep(0.3)
    assert cast_vote(ws, campaign, "ann", item, 0).batch_complete  # nobody else came: the vote is welcome
    with pytest.raises(ConflictError, match="given to others"):
        cast_vote(ws, campaign, "bob", item, 0)


def test_a_vote_taken_back_holds_no_place_for_ever(ws: Workspace) -> None:
    campaign = make(ws, lease_minutes=0.2 / 60, batch_size=1)
    item = tasks(ws, campaign, "ann")[0].item
    cast_vote(ws, campaign, "ann", item, 0)
    undo_vote(ws, campaign, "ann")
    time.sleep(0.3)
    assert tasks(ws, campaign, "bob")[0].item == item
    with pytest.raises(ConflictError, match="given to others"):
        cast_vote(ws, campaign, "ann", item, 0)
    assert cast_vote(ws, campaign, "bob", item, 0).batch_complete


def test_work_ahead_counts_once_its_item_is_selected(ws: Workspace) -> None:
    campaign = make(ws, people=2, batch_size=2, ahead=4, budget=None)
    mine = tasks(ws, campaign, "ann", 10)
    assert [t.origin for t in mine] == [Origin.BATCH] * 2 + [Origin.AHEAD] * 4
    for one in mine:
        cast_vote(ws, campaign, "ann", one.item, int(truth_of(90)[int(one.item)]))
    assert waits(ws, campaign, "ann").reason == WaitReason.OTHERS
    for one in tasks(ws, campaign, "bob", 2):
        cast_vote(ws, campaign, "bob", one.item, int(truth_of(90)[int(one.item)]))
    advance(ws, campaign)
    seen = status(ws, campaign)
    assert seen.open_round is not None
    worked = {t.item for t in mine if t.origin == Origin.AHEAD}
    batch = {i.item: i.votes for i in seen.open_round.items}
    assert batch == {item: int(item in worked) for item in batch}
    assert not {t.item for t in tasks(ws, campaign, "ann", 10)} & worked
    assert replay(ws, campaign).agrees


def test_blind_items_show_nothing_of_the_model(ws: Workspace) -> None:
    campaign = make(ws, batch_size=30, blind_share=0.5, budget=None)
    found = tasks(ws, campaign, "ann", 30)
    blind = [t for t in found if t.blind]
    assert 5 < len(blind) < 25
    assert all((t.suggestion, t.weak, t.influence, t.neighbours) == (None, None, None, ()) for t in blind)
    assert all(t.suggestion is not None for t in found if not t.blind)
    cast_vote(ws, campaign, "ann", blind[0].item, 0)
    shown = next(t for t in found if not t.blind)
    cast_vote(ws, campaign, "ann", shown.item, 0, hidden=True)
    entries = ledger(ws, campaign, kind="vote").entries
    assert [e.what["blind"] for e in entries] == [True, True]
    assert all(e.what["suggested"] is not None for e in entries)


def test_ties_are_conflicts_that_a_lead_resolves(ws: Workspace) -> None:
    campaign = make(ws, people=2, batch_size=1, budget=3)
    item = tasks(ws, campaign, "ann")[0].item
    tasks(ws, campaign, "bob")
    cast_vote(ws, campaign, "ann", item, 0, note="sure")
    cast_vote(ws, campaign, "bob", item, 1)
    advance(ws, campaign)
    (found,) = conflicts(ws, campaign)
    assert (found.item, found.round, found.awaits) == (item, 1, "again")
    assert found.votes == (PersonVote("ann", 0, "sure"), PersonVote("bob", 1, None))
    resolve(ws, campaign, item, "spam", "lead")
    assert conflicts(ws, campaign) == []
    assert status(ws, campaign).pending == 1
    label_all(ws, campaign, "ann", "bob")
    assert status(ws, campaign).pending == 0
    applied = ledger(ws, campaign, kind="decision", item=item).entries[0].what["applied_in"]
    assert applied == 2
    assert replay(ws, campaign).agrees


def test_a_lead_decides_an_item_of_the_open_batch(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2)
    first, second = tasks(ws, campaign, "ann")
    resolve(ws, campaign, first.item, 1, "lead")
    assert [t.item for t in tasks(ws, campaign, "ann")] == [second.item]
    with pytest.raises(ConflictError, match="decided already"):
        cast_vote(ws, campaign, "ann", first.item, 0)
    assert cast_vote(ws, campaign, "ann", second.item, 0).batch_complete
    advance(ws, campaign)
    decided = {e.item: (e.label, e.who) for e in ledger(ws, campaign, kind="decision").entries}
    assert decided == {first.item: (1, "lead"), second.item: (0, "votes")}
    assert replay(ws, campaign).agrees


def test_a_vote_changed_after_the_count_corrects_the_decision(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2, budget=4)
    first = tasks(ws, campaign, "ann")[0].item
    label_all(ws, campaign, "ann")
    wrong = (int(truth_of(90)[int(first)]) + 1) % 3
    cast_vote(ws, campaign, "ann", first, wrong)
    assert ledger(ws, campaign, kind="decision", item=first).entries[0].label == wrong
    assert advance(ws, campaign) == 0  # a batch is out: the correction waits for its end
    label_all(ws, campaign, "ann")
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    assert status(ws, campaign).pending == 0
    undo_vote(ws, campaign, "ann")
    assert advance(ws, campaign) == 1  # nothing is out: a round of its own
    assert rounds(ws, campaign)[-1].kind == RoundKind.CORRECTION
    assert replay(ws, campaign).agrees


@pytest.mark.parametrize("people", [0, 2])
def test_the_suggestion_is_one_more_voter(ws: Workspace, people: int) -> None:
    campaign = make(ws, people=people, suggestion_votes=True, batch_size=2, budget=6)
    if people == 0:
        assert status(ws, campaign).summary.state == CampaignState.FINISHED
    else:
        label_all(ws, campaign, "ann", "bob", rounds=1)
    voters = Counter(e.who for e in ledger(ws, campaign, kind="vote", limit=1000).entries)
    assert voters["suggestion"] == (6 if people == 0 else 2)
    assert replay(ws, campaign).agrees


def test_pausing_hands_out_nothing_but_keeps_votes(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2)
    first, second = tasks(ws, campaign, "ann")
    pause(ws, campaign, "lead")
    assert waits(ws, campaign, "ann").reason == WaitReason.PAUSED
    cast_vote(ws, campaign, "ann", first.item, 0)
    assert cast_vote(ws, campaign, "ann", second.item, 0).batch_complete
    assert advance(ws, campaign) == 0
    resume(ws, campaign, "lead")
    assert advance(ws, campaign) == 3  # votes are counted, the model follows, the next batch is selected
    assert tasks(ws, campaign, "ann")


def test_a_finished_campaign_goes_on_with_a_larger_budget(ws: Workspace) -> None:
    campaign = make(ws, budget=4)
    label_all(ws, campaign, "ann")
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    change_settings(ws, campaign, "lead", budget=6, batch_size=5)
    advance(ws, campaign)
    seen = status(ws, campaign)
    assert seen.summary.state == CampaignState.RUNNING
    assert seen.open_round is not None
    assert len(seen.open_round.items) == 2
    with pytest.raises(InvalidInputError, match="cannot change"):
        change_settings(ws, campaign, "lead", gamma=0.1)
    assert replay(ws, campaign).agrees


def test_everything_can_be_cleaned(ws: Workspace) -> None:
    campaign = make(ws, data=small_data(n_train=9), budget=None, batch_size=6)
    label_all(ws, campaign, "ann", n=9)
    label_all(ws, campaign, "ann", n=9)
    assert status(ws, campaign).summary.message == "nothing left to clean"


def test_hand_out_under_threads_is_fair(ws: Workspace) -> None:
    campaign = make(ws, data=small_data(n_train=200), people=2, batch_size=25, budget=25)
    people = [f"p{k}" for k in range(6)]
    truth = truth_of(230)
    problems: list[BaseException] = []
    acknowledged: Counter[tuple[str, str]] = Counter()
    guard = threading.Lock()

    def work(person: str) -> None:
        try:
            while True:
                found = next_tasks(ws, campaign, person)
                if isinstance(found, Waiting):
                    return
                item = found[0].item
                cast_vote(ws, campaign, person, item, int(truth[int(item)]), request_id=f"{person}-{item}")
                with guard:
                    acknowledged[person, item] += 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert set(acknowledged.values()) == {1}  # nobody twice
    per_item = Counter(item for _, item in acknowledged)
    assert len(per_item) == 25
    assert set(per_item.values()) == {2}  # never more than needed
    stored = Counter((e.who, e.item) for e in ledger(ws, campaign, kind="vote", limit=1000).entries)
    assert stored == acknowledged
    advance(ws, campaign)
    assert status(ws, campaign).summary.state == CampaignState.FINISHED
    assert replay(ws, campaign).agrees


def ahead_of(ws: Workspace, campaign: str, person: str) -> list[str]:
    """Let a person hold the batch and the work ahead; the items ahead."""
    return [t.item for t in tasks(ws, campaign, person, 20) if t.origin == Origin.AHEAD]


def vote_on_batch(ws: Workspace, campaign: str, person: str) -> None:
    seen = status(ws, campaign).open_round
    assert seen is not None
    for one in seen.items:
        cast_vote(ws, campaign, person, one.item, int(truth_of(90)[int(one.item)]))


def test_work_ahead_is_taken_while_the_model_follows(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2, ahead=4, budget=None)
    ahead = ahead_of(ws, campaign, "ann")
    vote_on_batch(ws, campaign, "ann")
    assert one_step(ws, campaign)  # counted; the model is still to follow
    assert status(ws, campaign).rounds[-1].state == RoundState.AGGREGATED
    assert not cast_vote(ws, campaign, "ann", ahead[0], 0).changed
    assert cast_vote(ws, campaign, "ann", ahead[0], 1).changed
    own = task(ws, campaign, "ann", ahead[0]).own_vote
    assert own is not None
    assert own.label == 1
    with pytest.raises(ConflictError, match="not being asked") as refused:
        cast_vote(ws, campaign, "bob", ahead[1], 0)
    assert refused.value.code == "not_asked"
    assert undo_vote(ws, campaign, "ann", request_id="u1").item == ahead[0]
    assert undo_vote(ws, campaign, "ann", request_id="u1").item == ahead[0]
    cast_vote(ws, campaign, "ann", ahead[0], 2)
    assert {e.round for e in ledger(ws, campaign, kind="vote", item=ahead[0]).entries} == {None}
    advance(ws, campaign)
    assert replay(ws, campaign).agrees


def test_work_ahead_that_left_the_ranks_can_change_and_blocks_no_undo(ws: Workspace) -> None:
    campaign = make(ws, batch_size=2, ahead=30, budget=None)
    ahead = ahead_of(ws, campaign, "ann")
    first = status(ws, campaign).open_round
    assert first is not None
    vote_on_batch(ws, campaign, "ann")
    held, voted = ahead[-1], ahead[-2]
    cast_vote(ws, campaign, "ann", voted, 0)
    change_settings(ws, campaign, "lead", ahead=0)
    advance(ws, campaign)
    seen = status(ws, campaign).open_round
    assert seen is not None
    assert not {held, voted} & {i.item for i in seen.items}
    assert cast_vote(ws, campaign, "ann", voted, 1).changed
    assert not cast_vote(ws, campaign, "ann", held, 1).batch_complete
    assert undo_vote(ws, campaign, "ann").item == held
    assert undo_vote(ws, campaign, "ann").item == voted
    assert undo_vote(ws, campaign, "ann").item == first.items[-1].item  # a batch that is over: a correction
    assert status(ws, campaign).pending == 1
    cast_vote(ws, campaign, "ann", held, 2)
    resolve(ws, campaign, voted, 0, "lead")
    with pytest.raises(ConflictError, match="decided already"):
        cast_vote(ws, campaign, "ann", voted, 1)
    label_all(ws, campaign, "ann")
    assert replay(ws, campaign).agrees


def test_late_work_ahead_does_not_exceed_the_people_asked(ws: Workspace) -> None:
    campaign = make(ws, batch_size=1, ahead=2, budget=None, lease_minutes=0.3 / 60)
    ahead = ahead_of(ws, campaign, "ann")
    time.sleep(0.4)
    vote_on_batch(ws, campaign, "ann")
    assert ahead[0] in ahead_of(ws, campaign, "bob")
    cast_vote(ws, campaign, "bob", ahead[0], 0)
    change_settings(ws, campaign, "lead", ahead=0)
    one_step(ws, campaign)
    with pytest.raises(ConflictError, match="given to others"):
        cast_vote(ws, campaign, "ann", ahead[0], 0)
    advance(ws, campaign)
    assert replay(ws, campaign).agrees


def test_conflicts_say_what_each_waits_for_and_a_batch_with_a_tie_is_not_said_to_be_answered(
    ws: Workspace, tmp_path: Path
) -> None:
    campaign = make(ws, people=2, batch_size=2, budget=None)
    for name in ("ann", "bob", "cat"):
        accounts.create_account(ws, name, Role.ANNOTATOR, None)
        accounts.set_member(ws, campaign, name, "lead")
    first, second = (task.item for task in tasks(ws, campaign, "ann"))
    tasks(ws, campaign, "bob")
    for item, other in ((first, 1), (second, 0)):
        cast_vote(ws, campaign, "ann", item, 0)
        cast_vote(ws, campaign, "bob", item, other)
        assert [(one.item, one.awaits) for one in conflicts(ws, campaign)] == [(first, Awaited.COUNT)]
    advance(ws, campaign)  # the tie asks for one more vote
    (found,) = conflicts(ws, campaign)
    assert (found.item, found.awaits) == (first, Awaited.FURTHER)
    (task,) = tasks(ws, campaign, "cat")
    assert task.batch is not None
    assert (task.batch.answered, task.batch.wanted) == (4, 5)
    others = [str(k) for k in range(60) if str(k) not in (first, second)]
    lines = [f"{others[0]},xia,ham", f"{others[0]},yan,spam", f"{others[1]},xia,ham"]
    path = tmp_path / "votes.csv"
    path.write_text("\n".join(["item,annotator,label", *lines]))
    report = import_votes(ws, campaign, "lead", path)
    assert report.notes == (
        "items whose label the import decides: 1; the model follows when round 1, which is open, is complete: 1 of its items "
        "lack votes",
    )
    assert {one.item: one.awaits for one in conflicts(ws, campaign)} == {others[0]: "batch", first: "further"}
    assert status(ws, campaign).conflicts == 2
    cast_vote(ws, campaign, "cat", first, 2)
    advance(ws, campaign)
    assert {one.item: one.awaits for one in conflicts(ws, campaign)}[first] is Awaited.AGAIN
