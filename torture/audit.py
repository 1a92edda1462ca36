"""Compare what clients were told with what the database holds, by plain SQL, without any code of labelchef.

    lost       an acknowledged operation that is not there
    doubled    an operation that is there more often than it was sent, or twice under one request_id, or was never sent
    torn       half of something: an import with some of its lines, a batch with some of its items, a closed round without its
               model, a count that is not the number of votes, a chain of decisions with two beginnings

Operations with a request_id (votes, undos) and imports (an annotator of their own each) are compared one by one. Those without
(decisions, reopened items, commands of the command line) are counted: acknowledged ≤ there ≤ sent.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from torture.ledger import Ledger, Operation

_VOTES = """SELECT v.public_id, v.person, i.key, v.label, v.request_id, v.retracted, v.supersedes, v.attempt, v.source, v.id
            FROM vote v JOIN item i ON i.id = v.item_id"""
_DECISIONS = (
    "SELECT d.id, i.key, d.kind, d.label, d.supersedes, d.item_id FROM decision d JOIN item i ON i.id = d.item_id"
)
_SKIPS = """SELECT DISTINCT a.person, i.key FROM assignment a JOIN selection s ON s.id = a.selection_id
            JOIN item i ON i.id = s.item_id"""
_CHANGES = "SELECT what FROM setting_change ORDER BY id"
_SETTINGS = "SELECT settings FROM campaign"
_ROUNDS = """SELECT r.id, r.number, r.kind, r.state, r.size, r.labels_hash, r.model_hash, r.outcome IS NOT NULL,
             (SELECT count(*) FROM selection s WHERE s.round_id = r.id AND s.origin <> 'ahead') FROM round r ORDER BY r.number"""
_MISCOUNTED = """SELECT count(*) FROM selection s JOIN round r ON r.id = s.round_id WHERE r.state = 'selected'
    AND s.origin <> 'ahead' AND s.votes <> (SELECT count(*) FROM vote v WHERE v.item_id = s.item_id AND v.attempt = s.attempt
    AND v.person <> 'suggestion' AND NOT v.retracted AND NOT EXISTS (SELECT 1 FROM vote w WHERE w.item_id = v.item_id
    AND w.attempt = v.attempt AND w.person = v.person AND w.seq > v.seq))"""
_UNDECIDED = """SELECT count(*) FROM selection s JOIN round r ON r.id = s.round_id WHERE r.state <> 'selected'
    AND s.origin <> 'ahead' AND NOT EXISTS (SELECT 1 FROM decision d WHERE d.item_id = s.item_id AND d.attempt = s.attempt)"""
_APPLIED_EARLY = """SELECT count(*) FROM application a JOIN round r ON r.id = a.round_id WHERE r.state <> 'closed'"""
_ARRAYS = "SELECT c.public_id, a.path, a.sha256 FROM array_file a JOIN campaign c ON c.id = a.campaign_id"


@dataclass
class Findings:
    """What an audit found; every line names one thing that is wrong."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        """Take over what is new in another audit of the same home."""
        for mine, found in ((self.lost, other.lost), (self.doubled, other.doubled), (self.torn, other.torn)):
            mine.extend(line for line in found if line not in mine)


def engine_of(home: Path, url: str | None) -> sa.Engine:
    """Connections that are closed after use."""
    address = f"sqlite:///{home / 'labelchef.db'}" if url is None else url.replace("postgresql:", "postgresql+pg8000:")
    return sa.create_engine(address, poolclass=sa.NullPool)


def audit(home: Path, url: str | None, ledger: Ledger) -> Findings:
    """Compare; the clients may go on meanwhile."""
    acknowledged = {number: ledger.sent[number] for number in ledger.acknowledged}
    tables = _read(home, url)
    return Findings(
        lost=_lost(acknowledged, ledger, tables),
        doubled=_doubled(list(ledger.sent.values()), tables),
        torn=_torn(ledger, tables),
    )


def audit_arrays(home: Path, url: str | None) -> list[str]:
    """Arrays that are not as the database says; for a home that nobody writes to."""
    engine = engine_of(home, url)
    with engine.connect() as connection:
        rows = connection.execute(sa.text(_ARRAYS)).all()
    wrong = []
    for campaign, path, digest in rows:
        file = home / "campaigns" / campaign / path
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            wrong.append(f"the array {path} is not what the database says")
    return wrong


def temporary_files(home: Path) -> int:
    """Files that an interrupted write left behind."""
    return sum(1 for path in (home / "campaigns").glob("*/.*") if path.is_file())


@dataclass(frozen=True)
class _Tables:
    votes: Sequence[Any]
    decisions: Sequence[Any]
    skips: Sequence[Any]
    changes: list[dict[str, Any]]
    settings: list[dict[str, Any]]
    rounds: Sequence[Any]
    miscounted: int
    undecided: int
    applied_early: int


def _read(home: Path, url: str | None) -> _Tables:
    engine = engine_of(home, url)
    level = {} if url is None else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**level) as connection, connection.begin():
        if url is None:
            connection.exec_driver_sql("BEGIN")  # the driver begins none for reading

        def rows(sql: str) -> Sequence[Any]:
            return connection.execute(sa.text(sql)).all()

        def records(sql: str) -> list[dict[str, Any]]:
            return [json.loads(row[0]) if isinstance(row[0], str) else row[0] for row in rows(sql)]

        return _Tables(
            rows(_VOTES), rows(_DECISIONS), rows(_SKIPS), records(_CHANGES), records(_SETTINGS), rows(_ROUNDS),
            rows(_MISCOUNTED)[0][0], rows(_UNDECIDED)[0][0], rows(_APPLIED_EARLY)[0][0],
        )  # fmt: skip


def _key(operation: Operation) -> tuple[object, ...]:
    """What operations that can only be counted are counted by."""
    kind, person, item, label, value = (
        operation.kind,
        operation.person,
        operation.item,
        operation.label,
        operation.value,
    )
    return {
        "vote": (kind, person, item, label),
        "undo": (kind, person),
        "decide": (kind, item, label),
        "reopen": (kind, item),
        "settings": (kind, value),
    }[kind]


def _there(tables: _Tables) -> Counter[tuple[object, ...]]:
    """How often each operation without a request_id is in the database."""
    found: Counter[tuple[object, ...]] = Counter()
    for _, person, item, label, request, retracted, _, _, source, _ in tables.votes:
        if request is None and source in ("person", "undo"):
            found[("undo", person) if retracted else ("vote", person, item, label)] += 1
    for _, item, kind, label, *_ in tables.decisions:
        if kind != "votes":
            found[("decide", item, label) if kind == "lead" else ("reopen", item)] += 1
    found.update(("settings", value) for value in _changed(tables))
    return found


def _changed(tables: _Tables) -> list[float]:
    """The values that changes gave to the setting that the lead changes; that of the start is no change."""
    return [what["settings"]["lease_minutes"] for what in tables.changes if "lease_minutes" in what.get("before", {})]


def _counted(operations: Sequence[Operation]) -> Counter[tuple[object, ...]]:
    return Counter(_key(one) for one in operations if not one.request and one.kind != "skip")


def _lost(acknowledged: dict[int, Operation], ledger: Ledger, tables: _Tables) -> list[str]:
    by_id = {row[0]: (row[1], row[2], row[3]) for row in tables.votes}
    requests = {(row[1], row[4]): bool(row[5]) for row in tables.votes}
    lines = Counter(row[1] for row in tables.votes if row[8] == "import")
    skips = {(row[0], row[1]) for row in tables.skips}
    lost = []
    for number, one in acknowledged.items():
        if one.kind == "import":
            there = lines[one.request] == one.value
        elif one.kind == "skip":
            there = (one.person, one.item) in skips
        elif one.kind == "undo" and one.request:
            there = requests.get((one.person, one.request), False)
        elif one.kind == "vote" and one.request:
            there = by_id.get(ledger.acknowledged[number]) == (one.person, one.item, one.label)
        else:
            continue
        if not there:
            lost.append(
                f"{one.kind} {number} of {one.person} on {one.item or one.request} was acknowledged and is not there"
            )
    missing = _counted(list(acknowledged.values())) - _there(tables)
    return lost + [
        f"{key} was acknowledged {count} times more often than it is there" for key, count in missing.items()
    ]


def _doubled(sent: list[Operation], tables: _Tables) -> list[str]:
    more = _there(tables) - _counted(sent)
    found = [f"{key} is there {count} times more often than it was sent" for key, count in more.items()]
    known = {(one.person, one.request) for one in sent if one.request}
    requests = Counter((row[1], row[4]) for row in tables.votes if row[4] is not None)
    found += [f"request {key} is there {count} times" for key, count in requests.items() if count > 1]
    found += [f"request {key} is there and was never sent" for key in requests if key not in known]
    firsts = Counter((row[1], row[2], row[7]) for row in tables.votes if row[6] is None)
    found += [f"{key} has {count} first votes" for key, count in firsts.items() if count > 1]
    after = Counter(row[6] for row in tables.votes if row[6] is not None)
    return found + [f"{count} votes replace vote {vote}" for vote, count in after.items() if count > 1]


def _torn(ledger: Ledger, tables: _Tables) -> list[str]:
    lines = Counter(row[1] for row in tables.votes if row[8] == "import")
    found = [
        f"{lines[one.request]} of {one.value:.0f} lines of import {one.request} are there"
        for one in ledger.sent.values()
        if one.kind == "import" and lines[one.request] not in (0, one.value)
    ]
    for id_, number, kind, state, size, labels, model, outcome, items in tables.rounds:
        if kind == "batch" and items != size:
            found.append(f"round {number} has {items} of {size} items")
        if (state == "closed") != bool(labels and model and outcome):
            found.append(f"round {number} is {state}, but its model or record says otherwise")
        if state != "closed" and id_ != tables.rounds[-1][0]:
            found.append(f"round {number} is {state}, but there is a later one")
    numbers = [row[1] for row in tables.rounds]
    if numbers != list(range(len(numbers))):
        found.append(f"the rounds are numbered {numbers}")
    roots = Counter(row[5] for row in tables.decisions if row[4] is None)
    found += [f"item {item} has {count} first decisions" for item, count in roots.items() if count > 1]
    after = Counter(row[4] for row in tables.decisions if row[4] is not None)
    found += [f"{count} decisions replace decision {one}" for one, count in after.items() if count > 1]
    changed = _changed(tables)
    if changed and tables.settings[0]["lease_minutes"] != changed[-1]:
        found.append(f"the settings say {tables.settings[0]['lease_minutes']}, the last change {changed[-1]}")
    for count, what in (
        (tables.miscounted, "selections whose count of votes is wrong"),
        (tables.undecided, "items of counted batches without a decision"),
        (tables.applied_early, "decisions in the model of a round that is not closed"),
    ):
        if count:
            found.append(f"{count} {what}")
    return found
