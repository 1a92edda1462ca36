"""Rules without code that are made on the page: tried while they are typed, kept with the intake, applied to its rows.

Rules are tried on training and trusted rows together: n rows, of which the trusted ones have a label.
"""

from collections.abc import Callable, Sequence

from labelchef.services.campaign_rules import RuleValues, checked
from labelchef.services.intake import folders
from labelchef.services.intake.reading import board_of, read_rows
from labelchef.services.workspace import Workspace
from labelchef.sources.rules import (
    RuleSetFacts,
    facts_of,
    rule_of,
    rules_as_text,
)


def try_rules(
    ws: Workspace, intake: str, rules: Sequence[RuleValues], gone: Callable[[], bool] = lambda: False
) -> RuleSetFacts:
    """Where rules would vote, how often they are right on trusted rows, and where they differ; nothing is kept.

    `gone` says whether nobody waits for the answer any more.
    """
    read, raw = read_rows(ws, intake)
    made = checked(rules, raw.classes, ())
    with read.bench.turn.taken(gone) as check:
        board = board_of(read, raw)
        return facts_of(made, board.frame, [*raw.train.labels, *raw.trusted.labels], board=board, check=check)


def rules_file(ws: Workspace, intake: str) -> str:
    """The rules as a file for the command line: labelchef init … --rules rules.toml."""
    return rules_as_text([rule_of(one, k + 1) for k, one in enumerate(folders.read(ws, intake).rules)])
