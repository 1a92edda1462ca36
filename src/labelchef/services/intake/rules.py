"""Rules without code that are made on the page: tried while they are typed, kept with the intake, applied to its rows.

Rules are tried on training and trusted rows together: n rows, of which the trusted ones have a label.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from labelchef.domain.errors import ConflictError, InvalidInputError
from labelchef.intake.raw import Raw
from labelchef.intake.voting import rows_of, with_votes
from labelchef.services.intake import folders, jobs
from labelchef.services.intake.jobs import Read
from labelchef.services.workspace import Workspace
from labelchef.sources.rules import (
    Rule,
    RuleBoard,
    RuleSetFacts,
    apply_rules,
    check_rules,
    facts_of,
    rule_of,
    rule_values,
    rules_as_text,
)

RuleValues = Mapping[str, object]
"""A rule as plain values, see `sources.rules.rule_of`."""


def try_rules(
    ws: Workspace, intake: str, rules: Sequence[RuleValues], gone: Callable[[], bool] = lambda: False
) -> RuleSetFacts:
    """Where rules would vote, how often they are right on trusted rows, and where they differ; nothing is kept.

    `gone` says whether nobody waits for the answer any more.
    """
    read, raw = read_rows(ws, intake)
    made = rules_of(rules, raw.classes)
    with read.bench.turn.taken(gone) as check:
        board = _board(read, raw)
        return facts_of(made, board.frame, labels_of(raw), board=board, check=check)


def with_rules(read: Read, raw: Raw, rules: Sequence[Rule]) -> Raw:
    """The rows with the votes of rules beside those that came with the files."""
    if not rules:
        return raw
    with read.bench.turn.lock:
        board = _board(read, raw)
        votes = apply_rules(rules, board.frame, board=board)
    return replace(with_votes(raw, votes, [rule.name for rule in rules]), rules=(*raw.rules, *rules))


def rules_of(values: Sequence[RuleValues], classes: Sequence[str]) -> tuple[Rule, ...]:
    """Rules from plain values; refused where one votes for a class that is not there."""
    rules = tuple(rule_of(one, k + 1) for k, one in enumerate(values))
    check_rules(rules)
    for rule in rules:
        label = rule_values(rule).get("label")
        if label is not None and label not in classes:
            known = ", ".join(map(repr, classes[:20]))
            raise InvalidInputError(f"rule {rule.name!r} votes for {label!r}; expected one of {known}", code="rule")
    return rules


def check_names(rules: Sequence[Rule], raw: Raw) -> None:
    """Refuse a rule that is called like a source of the files."""
    taken = set(raw.votes["source"].astype("str").unique())
    twice = next((rule.name for rule in rules if rule.name in taken), None)
    if twice is not None:
        why = f"rule {twice!r} has the name of a source that is in the files; give it another name"
        raise InvalidInputError(why, code="rule")


def rules_file(ws: Workspace, intake: str) -> str:
    """The rules as a file for the command line: labelchef init … --rules rules.toml."""
    return rules_as_text([rule_of(one, k + 1) for k, one in enumerate(folders.read(ws, intake).rules)])


def read_rows(ws: Workspace, intake: str) -> tuple[Read, Raw]:
    """What was read of an intake, with its rows."""
    from labelchef.services.intake.steps import ensure_read  # which reads rules too

    folders.folder_of(ws, intake)
    if jobs.find(ws, intake) is None:
        ensure_read(ws, intake)
    job = jobs.find(ws, intake)
    read = None if job is None else job.read
    if read is not None and read.content is not None and read.raw is None:
        why = (
            "these files are arrays, and rules read texts and columns. Give votes as source_votes, or raw data with ids"
        )
        raise InvalidInputError(why, code="rule")
    if read is None or read.raw is None:
        raise ConflictError("the files are not read just now; look at the preview first", code="not_ready")
    return read, read.raw


def labels_of(raw: Raw) -> list[str | None]:
    """(n,) the labels that are known of training and trusted rows."""
    return [*raw.train.labels, *raw.trusted.labels]


def _board(read: Read, raw: Raw) -> RuleBoard:
    if read.bench.board is None:
        read.bench.board = RuleBoard(rows_of(raw))
    return read.bench.board
