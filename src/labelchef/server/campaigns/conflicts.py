"""Items whose votes tied or were mostly 'ambiguous'."""

from collections import Counter

from sqlalchemy import Connection

from labelchef.base.campaigns import Awaited, DecisionKind, RoundState
from labelchef.believe.aggregation import MajorityVote
from labelchef.loop.session import MOST_ATTEMPTS
from labelchef.server.ledger.sql import counted, tied
from labelchef.server.store import decision_table, round_table, vote_table
from labelchef.server.store.rows import CampaignRow


def contested_items(connection: Connection, campaign: CampaignRow) -> dict[tuple[int, int], Awaited]:
    """Inner id and attempt of every item in conflict → what it waits for."""
    turn = round_table.last_turn(connection, campaign.id)
    going = turn is not None and turn.state == RoundState.SELECTED
    batch = (
        {one.item_id: one for one in round_table.batch_of(connection, turn.id)} if turn is not None and going else {}
    )
    found: dict[tuple[int, int], Awaited] = {}
    left = decision_table.unresolved(connection, campaign.id)
    asked = Counter(
        one.item_id
        for one in decision_table.decisions_on(connection, [one.item_id for one in left])
        if one.label is None and one.kind is not DecisionKind.REOPEN
    )
    for one in left:
        again = Awaited.LEAD if asked[one.item_id] >= MOST_ATTEMPTS else Awaited.AGAIN
        found[one.item_id, one.attempt] = Awaited.ASKED if one.item_id in batch else again
    people = campaign.settings.people
    several = going and people > 1 and not campaign.settings.suggestion_votes
    cast = vote_table.live_votes_of_round(connection, turn.id) if turn is not None and several else {}
    for item, selection in batch.items():
        needed = people if selection.needed is None else selection.needed
        if selection.decided:
            continue
        if people < needed > selection.votes:
            found[item, selection.attempt] = Awaited.FURTHER
        elif selection.votes >= needed and tied(cast.get(item, [])):
            found[item, selection.attempt] = Awaited.COUNT
    for item, attempt in vote_table.imported_undecided(connection, campaign.id):
        votes = vote_table.live_votes(connection, item, attempt)
        if votes and item not in batch and counted(votes, MajorityVote())[0] is None:
            found[item, attempt] = Awaited.BATCH
    return found
