"""The contract of a ledger: the same campaign, kept in memory, as JSON lines and in SQL, step by step."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest

from labelchef.base.campaigns import RoundKind, RoundState
from labelchef.base.records import Batch, RoundRecord, StopReason, Votes
from labelchef.base.settings import Settings
from labelchef.believe.aggregation import MajorityVote
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.ledger import Ledger, MemoryLedger
from labelchef.loop.ledger.conversion import record_as_json, record_from_json
from labelchef.loop.ledger.jsonl import JsonLinesLedger
from labelchef.loop.rebuild import Verdict, rebuild, replay
from labelchef.loop.session import Session
from labelchef.loop.start import new_session
from labelchef.loop.steps import Step, Stepper, due, select
from labelchef.server.campaigns import campaigns
from labelchef.server.campaigns.trained import forget, ledger_of, state_of, trained_now
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.ledger.sql import SqlLedger
from labelchef.server.store import campaign_table
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import PostgresServer, small_data, truth_of


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that differ by less than what is compared here."""
    monkeypatch.setattr(Settings, "tol", 1e-7)


SETTINGS = Settings(gamma=0.8, l2=0.05, budget=10, batch_size=4, people=1, seed=3)
TRUTH = truth_of(90)


class Kept(ABC):
    """A campaign whose ledger is tested: what differs is how votes get there, and how a process starts anew."""

    @property
    @abstractmethod
    def ledger(self) -> Ledger: ...

    @property
    @abstractmethod
    def stepper(self) -> Stepper: ...

    @abstractmethod
    def open_batch(self) -> Batch: ...

    @abstractmethod
    def vote(self, batch: Batch, answer: Callable[[int], int]) -> None:
        """Answer the open batch; −1 calls an item ambiguous."""

    @abstractmethod
    def again(self) -> Session:
        """The session as a new process would build it."""


@dataclass
class InMemory(Kept):
    """A ledger in memory or as JSON lines."""

    memory: MemoryLedger
    data: CampaignData
    session: Session

    @property
    def ledger(self) -> MemoryLedger:
        return self.memory

    def open_batch(self) -> Batch:
        assert self.memory.selected is not None
        return self.memory.selected.batch

    @property
    def stepper(self) -> Stepper:
        return Stepper(self.ledger, lambda: self.session, self.ledger.withdraw, MajorityVote())

    def vote(self, batch: Batch, answer: Callable[[int], int]) -> None:
        labels = [answer(item) for item in batch.indices.tolist()]
        self.ledger.vote(Votes.of([("ann", batch.indices, labels)]))

    def again(self) -> Session:
        past: list[RoundRecord] = list(self.ledger.rounds())[1:]
        if isinstance(self.ledger, JsonLinesLedger):
            past = JsonLinesLedger(self.ledger.settings, path=self.ledger.path).resume()
        return rebuild(self.data, self.ledger.settings, past)


@dataclass
class InSql(Kept):
    """A ledger in a database."""

    ws: Workspace
    campaign: str

    def __post_init__(self) -> None:
        with self.ws.reading() as connection:
            self.row = campaign_table.find_campaign(connection, self.campaign)

    @property
    def ledger(self) -> SqlLedger:
        return ledger_of(self.ws, self.row)

    def open_batch(self) -> Batch:
        selected = list(self.ledger.past())[-1].selected
        assert selected is not None
        return selected.batch

    @property
    def stepper(self) -> Stepper:
        return Stepper(
            self.ledger,
            lambda: trained_now(self.ws, self.row).session,
            lambda: forget(self.ws, self.row.id),
            MajorityVote(),
        )

    def vote(self, batch: Batch, answer: Callable[[int], int]) -> None:
        for item in batch.indices.tolist():
            label = answer(item)
            cast_vote(self.ws, self.campaign, "ann", str(item), None if label < 0 else label)

    def again(self) -> Session:
        self.ws.memory.clear()
        return trained_now(self.ws, self.row).session


@pytest.fixture(params=["memory", "json lines", "sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    data = small_data()
    if request.param in ("sqlite", "postgres"):
        server: PostgresServer | None = request.getfixturevalue("postgres") if request.param == "postgres" else None
        with open_workspace(tmp_path / "home", None if server is None else server.new_database()) as ws:
            made = campaigns.create_campaign(ws, "Small", data, SETTINGS, "lead")
            yield InSql(ws, made.slug)
        return
    session = new_session(data, SETTINGS)
    session.start()
    path = tmp_path / "rounds.jsonl"
    ledger = MemoryLedger(SETTINGS) if request.param == "memory" else JsonLinesLedger(SETTINGS, path=path)
    yield InMemory(ledger, data, session)


def run_through(kept: Kept, answer: Callable[[int], int]) -> list[Step]:
    """Take steps and answer batches until nothing is due and no batch is out."""
    taken: list[Step] = []
    while True:
        step = kept.stepper.step()
        if step is not None:
            taken.append(step)
        elif kept.ledger.standing().batch is RoundState.SELECTED:
            kept.vote(kept.open_batch(), answer)
        else:
            return taken


def right_or_ambiguous(item: int) -> int:
    return -1 if item % 7 == 0 else int(TRUTH[item])


def same(one: RoundRecord, two: RoundRecord) -> None:
    """Everything but how long it took."""
    for part in fields(RoundRecord):
        a, b = getattr(one, part.name), getattr(two, part.name)
        if part.name == "batch":
            for name in ("indices", "suggested", "influence", "by_answer"):
                np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, err_msg=name)
        elif part.name == "votes":
            assert sorted(a) == sorted(b)
        elif part.name == "decisions":
            np.testing.assert_array_equal(a.items, b.items)
            np.testing.assert_array_equal(a.labels, b.labels)
            np.testing.assert_array_equal(a.support, b.support)
        elif part.name == "construction":
            assert (a.iterations, a.converged) == (b.iterations, b.converged)
        elif part.name in ("choice", "heard"):
            assert a == b
        elif part.name == "ruling":
            assert (a.temperature, a.tau) == pytest.approx((b.temperature, b.tau), rel=1e-9)
            np.testing.assert_allclose(a.offsets, b.offsets, rtol=1e-9)
        elif part.name == "baselines":
            assert a.keys() == b.keys() == {"validation"}
            for name in ("trusted_only", "no_weak"):
                assert a["validation"][name].as_dict() == pytest.approx(b["validation"][name].as_dict(), rel=1e-9)
        elif part.name in ("validation", "steering", "test"):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.as_dict() == pytest.approx(b.as_dict(), rel=1e-9)
        elif part.name != "seconds":
            np.testing.assert_allclose(a, b, rtol=1e-9, err_msg=part.name)


def oracle() -> list[RoundRecord]:
    """The same campaign by hand: a session, and a loop that knows no ledger."""
    session, settings = new_session(small_data(), SETTINGS), SETTINGS
    session.start()
    assert settings.budget is not None
    while session.spent < settings.budget:
        batch = session.select(min(settings.batch_size, settings.budget - session.spent))
        labels = np.array([right_or_ambiguous(item) for item in batch.indices.tolist()])
        votes = Votes.of([("ann", batch.indices, labels)])
        session.decide(batch, votes, MajorityVote().aggregate(votes, batch))
    return session.rounds


def test_every_ledger_keeps_the_same_campaign(kept: Kept) -> None:
    taken = run_through(kept, right_or_ambiguous)
    assert taken == [Step.FIT, *[Step.SELECT, Step.COUNT, Step.CLOSE] * 3, Step.SELECT]
    found, expected = kept.ledger.rounds(), oracle()
    assert len(found) == len(expected) == 4
    for one, two in zip(found, expected, strict=True):
        same(one, two)
    assert [record.spent for record in found] == [0, 4, 8, 10]


def test_a_new_process_goes_on_from_the_records(kept: Kept) -> None:
    run_through(kept, right_or_ambiguous)
    before = list(kept.ledger.rounds())
    session = kept.again()
    for one, two in zip(session.rounds, before, strict=True):
        same(one, two)
    whole = new_session(small_data(), SETTINGS)
    whole.start()
    for record in before[1:]:
        whole.decide(record.batch, record.votes, record.decisions)
    np.testing.assert_array_equal(session.labels.Y, whole.labels.Y)
    np.testing.assert_array_equal(session.labels.cleaned, whole.labels.cleaned)
    np.testing.assert_array_equal(session.labels.attempts, whole.labels.attempts)
    np.testing.assert_allclose(session.parameters, whole.parameters, atol=1e-4)
    ours, theirs = session.select(4), whole.select(4)
    np.testing.assert_array_equal(ours.indices, theirs.indices)
    np.testing.assert_array_equal(ours.suggested, theirs.suggested)
    assert session.figures_by_split().keys() == whole.figures_by_split().keys()


def test_a_replay_compares_what_the_ledger_has(kept: Kept) -> None:
    run_through(kept, right_or_ambiguous)
    found = list(replay(small_data(), SETTINGS, list(kept.ledger.past())))
    assert [one.number for one in found] == [0, 1, 2, 3]
    assert all(one.agrees for one in found)
    assert [one.kind for one in found] == [RoundKind.INITIAL, *[RoundKind.BATCH] * 3]
    assert all(one.exact and one.selection is Verdict.SAME for one in found[1:])
    other = replace(SETTINGS, gamma=0.2)
    unsaid = [
        replace(then, opened_with=None, closed_with=None) for then in kept.ledger.past()
    ]  # as rounds of before are
    assert not all(one.agrees for one in replay(small_data(), other, unsaid))


def test_the_standing_says_what_is_due(kept: Kept) -> None:
    ledger = kept.ledger
    seen = []
    for _ in range(3):
        now = ledger.standing()
        seen.append((due(now), now.closed, now.batch, now.spent))
        kept.stepper.step()
    assert seen == [
        (Step.FIT, 0, None, 0),
        (Step.SELECT, 1, None, 0),
        (None, 1, RoundState.SELECTED, 0),
    ]
    now = ledger.standing()
    assert (now.complete, now.pending, now.running, now.failed) == (False, False, True, False)
    assert now.settings == SETTINGS


def test_an_end_is_kept_and_nothing_is_due_after_it(kept: Kept) -> None:
    run_through(kept, right_or_ambiguous)
    assert due(kept.ledger.standing()) is None
    assert not kept.ledger.standing().running
    assert kept.stepper.step() is None


def test_sql_writes_nothing_for_a_plan_that_is_out_of_date(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        made = campaigns.create_campaign(ws, "Small", small_data(), SETTINGS, "lead")
        kept = InSql(ws, made.slug)
        kept.stepper.step()
        now = kept.ledger.standing()
        selected = select(trained_now(ws, kept.row).session, 4, 0, now.reopened)
        campaigns.change_settings(ws, made.slug, "lead", batch_size=2)
        assert not kept.ledger.open(now, selected)
        assert not kept.ledger.end(now, StopReason.BUDGET, "over")
        assert due(kept.ledger.standing()) is Step.SELECT
        assert kept.ledger.open(kept.ledger.standing(), selected)
        assert not kept.ledger.open(now, selected)
        session = trained_now(ws, kept.row).session
        assert not kept.ledger.begin(session.rounds[0], session)
        assert not kept.ledger.count(MajorityVote())
        assert campaigns.status(ws, made.slug).open_round is not None


def test_a_session_that_ran_ahead_of_its_ledger_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_workspace(tmp_path) as ws:
        made = campaigns.create_campaign(ws, "Small", small_data(), SETTINGS, "lead")
        kept = InSql(ws, made.slug)
        for _ in range(2):
            kept.stepper.step()
        kept.vote(kept.open_batch(), right_or_ambiguous)
        kept.stepper.step()
        with monkeypatch.context() as patch:
            patch.setattr(type(kept.ledger), "close", lambda *_: False)
            assert kept.stepper.step() is Step.CLOSE
        assert state_of(ws, kept.row.id) is None
        assert kept.stepper.step() is Step.CLOSE
        assert [record.spent for record in kept.ledger.rounds()] == [0, 4]


def test_rounds_with_what_earlier_versions_kept_are_read(tmp_path: Path) -> None:
    """Entries for receipts (`believed`) and for what was certified of the model (`audit`), which were removed."""
    session = new_session(small_data(), SETTINGS)
    session.start()
    kept = InMemory(JsonLinesLedger(SETTINGS, path=tmp_path / "rounds.jsonl"), small_data(), session)
    run_through(kept, right_or_ambiguous)
    records = list(kept.ledger.rounds())
    for record in records:
        entry = {**record_as_json(record), "believed": [[0.5, 0.25, 0.25]] * len(record.decisions.items)}
        entry["audit"] = {"predictions": "", "unasked": 9, "asked": 1, "right": 1, "windows": []}
        same(record_from_json(json.loads(json.dumps(entry))), record)
    assert len(records) > 2
