"""Rules without code that are made on the page: tried while they are typed, kept with the intake, applied to its rows.

Rules are tried on training and trusted rows together: n rows, of which the trusted ones have a label. Other rules are proposed,
one after the other (`believe.automatic.interactive`), and a lead says of each whether it is useful. The answers are kept with
the intake; a useful rule becomes one of the page's rules by `steps.keep_rules`, like one that was typed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole
from labelchef.believe.automatic.interactive import Proposal, Proposals
from labelchef.believe.rules import Keyword, RuleSetFacts, facts_of, rule_of, rules_as_text
from labelchef.data.intake.raw import Raw
from labelchef.server.intake import folders
from labelchef.server.intake.jobs import Read
from labelchef.server.intake.reading import board_of, read_rows
from labelchef.server.sources.campaign_rules import RuleValues, checked
from labelchef.server.workspace import Workspace

_LONGEST = 300


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


# --- rules that are proposed ---


@dataclass(frozen=True)
class Suggestion(Proposal):
    """A rule to say yes or no to."""

    texts: tuple[str, ...]
    """Some of the rows that it votes on, long ones cut."""
    answered: int
    """Answers so far."""


def suggest(ws: Workspace, intake: str, column: str) -> Suggestion:
    """The rule on a column of text that is most probably useful, after the answers so far."""
    read, raw = read_rows(ws, intake)
    with read.bench.turn.lock:
        return _shown(_proposals(ws, intake, read, raw, column), raw, column)


def answer(ws: Workspace, intake: str, column: str, word: str, label: str, useful: bool | None) -> Suggestion:
    """Say of a proposed rule whether it is useful (None: not known), and get the next one."""
    read, raw = read_rows(ws, intake)
    with read.bench.turn.lock:
        proposals = _proposals(ws, intake, read, raw, column)
        proposals.tell(Keyword("", column, label, (word,)), useful)
        with folders.changing(ws, intake):
            record = folders.read(ws, intake)
            folders.write(ws, intake, replace(record, answers={**record.answers, column: proposals.state()}))
        return _shown(proposals, raw, column)


def _proposals(ws: Workspace, intake: str, read: Read, raw: Raw, column: str) -> Proposals:
    if column not in raw.columns(ColumnRole.TEXT):
        texts = ", ".join(map(repr, raw.columns(ColumnRole.TEXT))) or "none"
        raise InvalidInputError(f"{column!r} is no column of text; those are: {texts}", code="file")
    if column not in read.bench.proposals:
        made = Proposals(
            _texts(raw.train.frame, column),
            raw.classes,
            column=column,
            trusted_texts=_texts(raw.trusted.frame, column),
            trusted_labels=[str(label) for label in raw.trusted.labels],
        )
        kept = folders.read(ws, intake).answers.get(column)
        if kept is not None:
            made.restore(kept)
        read.bench.proposals[column] = made
    return read.bench.proposals[column]


def _texts(frame: pd.DataFrame, column: str) -> list[str]:
    return [str(text) for text in frame[column].fillna("").tolist()]


def _shown(proposals: Proposals, raw: Raw, column: str) -> Suggestion:
    found = proposals.next()
    texts = raw.train.frame[column].iloc[list(found.rows)].fillna("").tolist()
    cut = tuple(str(text) if len(str(text)) <= _LONGEST else f"{str(text)[: _LONGEST - 1]}…" for text in texts)
    return Suggestion(**vars(found), texts=cut, answered=len(proposals.answers))
