"""`stop_at_majority`: an item goes to further people only while their votes can change the majority."""

import functools
import itertools
from pathlib import Path

import numpy as np

from labelchef.base.campaigns import Waiting
from labelchef.base.records import Batch, Votes
from labelchef.believe.aggregation import MajorityVote, votes_needed
from labelchef.server.campaigns.campaigns import status
from labelchef.server.intake.importing import import_votes
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote, undo_vote
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace
from tests.store_support import make, tasks


def winner(labels: tuple[int, ...]) -> int:
    return _winner(tuple(sorted(labels)))


@functools.cache
def _winner(labels: tuple[int, ...]) -> int:
    batch = Batch.without_predictions(np.array([0]))
    votes = Votes.of([(f"w{k}", [0], [label]) for k, label in enumerate(labels)])
    return int(MajorityVote().aggregate(votes, batch).labels[0])


def test_votes_are_needed_exactly_while_they_can_change_the_majority() -> None:
    """Against all ways in which the votes can go on, 'ambiguous' among them."""
    classes = (-1, 0, 1, 2)
    for voters in (1, 2, 3, 4, 5):
        for k in range(voters + 1):
            for labels in itertools.product(classes, repeat=k):
                needed = votes_needed(labels, voters)
                outcomes = {winner(labels + rest) for rest in itertools.product(classes, repeat=voters - k)}
                if needed == k:
                    assert outcomes == {winner(labels)}, (labels, voters)
                elif len(outcomes) == 1:  # only where it stays unresolved whatever comes is one more asked
                    assert outcomes == {-1}, (labels, voters)
                if needed > k:  # no fewer can settle it, and so many can
                    for more, settles in ((needed - k - 1, False), (needed - k, True)):
                        reached = any(
                            votes_needed(labels + rest, voters) == k + more
                            for rest in itertools.product(classes, repeat=more)
                        )
                        assert reached is settles, (labels, voters, more)


def test_a_third_person_is_asked_only_where_two_disagree(ws: Workspace) -> None:
    campaign = make(ws, people=3, batch_size=3, budget=3, stop_at_majority=True)
    items = [task.item for task in tasks(ws, campaign, "ann", 3)]
    assert [task.item for task in tasks(ws, campaign, "bob", 3)] == items
    assert isinstance(next_tasks(ws, campaign, "cy", 3), Waiting)  # two are enough, as far as anybody knows
    for item in items:
        cast_vote(ws, campaign, "ann", item, 0)
        cast_vote(ws, campaign, "bob", item, 1 if item == items[1] else 0)
    assert [task.item for task in tasks(ws, campaign, "cy", 3)] == [items[1]]
    again = undo_vote(ws, campaign, "bob").item  # he has not agreed any more: the item needs two again
    assert again == items[2]
    cast_vote(ws, campaign, "bob", items[2], 0)
    receipt = cast_vote(ws, campaign, "cy", items[1], 1)
    assert receipt.batch_complete
    advance(ws, campaign)
    assert status(ws, campaign).open_round is None


def test_without_it_everybody_is_asked(ws: Workspace) -> None:
    campaign = make(ws, people=3, batch_size=1, budget=1)
    item = tasks(ws, campaign, "ann", 1)[0].item
    cast_vote(ws, campaign, "ann", item, 0)
    assert not cast_vote(ws, campaign, "bob", item, 0).batch_complete
    assert tasks(ws, campaign, "cy", 1)[0].item == item


def test_the_suggestion_counts_as_a_voter(ws: Workspace) -> None:
    campaign = make(ws, people=2, suggestion_votes=True, batch_size=1, budget=1, stop_at_majority=True)
    [task] = tasks(ws, campaign, "ann", 1)
    assert task.suggestion is not None
    assert isinstance(next_tasks(ws, campaign, "bob", 1), Waiting)
    assert cast_vote(ws, campaign, "ann", task.item, task.suggestion).batch_complete


def test_imported_votes_settle_an_item_too(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, people=3, batch_size=1, budget=1, stop_at_majority=True)
    item = tasks(ws, campaign, "ann", 1)[0].item
    path = tmp_path / "votes.csv"
    name = tasks(ws, campaign, "ann", 1)[0].classes[0]
    path.write_text("item,annotator,label\n" + "".join(f"{item},{who},{name}\n" for who in ("bob", "cy")))
    import_votes(ws, campaign, "lead", path)
    assert isinstance(next_tasks(ws, campaign, "dan", 1), Waiting)
    advance(ws, campaign)
    assert status(ws, campaign).open_round is None
