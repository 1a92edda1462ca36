"""Answers of a campaign that are worth a second look, and how often people err: computed when somebody asks, like the sources."""

from dataclasses import dataclass

from labelchef.base.campaigns import SplitName
from labelchef.base.learning import Doubt, PeopleFacts
from labelchef.server.campaigns.access import looking
from labelchef.server.sources.sources import session_after, standing
from labelchef.server.store import campaign_table
from labelchef.server.workspace import Workspace


@dataclass(frozen=True)
class Doubts:
    """How often people err, None while nothing is estimated, and the answers in doubt, the most worthwhile first."""

    people: PeopleFacts | None
    items: tuple[Doubt[str], ...]

    @property
    def note(self) -> str:
        """The estimate in words."""
        facts = self.people
        if facts is None:
            return (
                "How often people err is not estimated: there are fewer than 20 answers, answers is 'truth', or trusted samples "
                "only steer."
            )
        train = "what is believed of them" if facts.source else "what was decided"
        return (
            f"People err on {facts.error:.1%} of their answers (95 % interval {facts.low:.1%} to {facts.high:.1%}), by "
            f"{facts.answers} answers on {facts.samples} items, {facts.overlap} of them with several answers and {facts.gold} of "
            f"known class. Answered items train with {train}."
        )


def doubts(ws: Workspace, campaign: str) -> Doubts:
    """Those of a campaign after its last closed round."""
    row, classes, closed = standing(ws, campaign)
    session = session_after(ws, row, len(closed))
    found = session.doubtful()
    with looking(ws, campaign) as (connection, _):
        rows = campaign_table.items_at(connection, row.id, SplitName.TRAIN, [one.item for one in found])
    items = tuple(
        Doubt(rows[one.item].key, classes[one.answer], classes[one.believed], one.wrong, one.worth, one.reason)
        for one in found
    )
    return Doubts(session.people(), items)
