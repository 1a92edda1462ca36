"""Compute a campaign's history again from its ledger and compare it, round by round."""

from collections.abc import Callable
from dataclasses import dataclass

from labelchef.campaign import rebuild
from labelchef.campaign.rebuild import ReplayedRound
from labelchef.services.people.access import find
from labelchef.services.trained import data_of, ledger_of
from labelchef.services.workspace import Workspace


@dataclass(frozen=True)
class ReplayOutcome:
    """What a replay came to."""

    agrees: bool
    message: str
    rounds: tuple[ReplayedRound, ...]


def replay(ws: Workspace, campaign: str, on_round: Callable[[ReplayedRound], None] | None = None) -> ReplayOutcome:
    """Fit again, select again, decide again as the ledger says, and compare every round.

    Nothing is written, and nothing depends on the result; a worker may run meanwhile.
    """
    row = find(ws, campaign)
    past = list(ledger_of(ws, row).past())
    compared: list[ReplayedRound] = []
    for found in rebuild.replay(data_of(ws, row), row.settings, past) if past else ():
        compared.append(found)
        if on_round is not None:
            on_round(found)
    wrong = [one.number for one in compared if not one.agrees]
    message = f"{len(compared)} rounds came out as the ledger says: selections, labels and metrics"
    if wrong:
        message = f"round {wrong[0]} and {len(wrong) - 1} later ones came out otherwise than the ledger says"
    return ReplayOutcome(not wrong, message, tuple(compared))
