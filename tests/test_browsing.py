"""The browser of items: filters against a slow filter in plain Python, search, order, actions, and what they leave behind."""

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa

from labelchef import Known
from labelchef.base.browsing import Action, Asked, Disagreement, ItemQuery, ItemsPage, ItemState, SortBy
from labelchef.base.campaigns import CampaignState, SplitName
from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.server import worker
from labelchef.server.campaigns import campaigns, numbers, trained
from labelchef.server.campaigns.access import find
from labelchef.server.export import proof, verifying
from labelchef.server.items import actions, decisions, items, similar
from labelchef.server.items.actions import Wanted
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.store import search, vote_table
from labelchef.server.workspace import Workspace, folder_of, open_workspace
from tests.source_support import voted
from tests.store_support import CLASSES, label_all, make, small_data, truth_of, waits

FIELDS = ("predicted", "believed", "weak", "suspect", "doubt", "influence", "label_probability")
WORDS = ("red", "Fox", "jumps", "over", "lazy-dog", "don't", "3.14", "snow_flake", "reddish", "x@y.example")
N = 60


def wordy_data(n: int = N) -> CampaignData:
    """Samples with texts of a few words, fields, votes of sources, trusted and test items."""
    rng, plain = random.Random(1), small_data(n, 30)
    votes = voted(n + 30)
    names = [CLASSES[k] for k in plain.validation[1]]
    texts = [" ".join(rng.choices(WORDS, k=6)) for _ in range(n)]
    contents = Contents(
        pd.DataFrame({"text": texts, "colour": [rng.choice(["blue sky", "green"]) for _ in range(n)]}),
        pd.DataFrame({"text": [f"trusted red {k}" for k in range(20)]}),
        pd.DataFrame({"text": [f"tested fox {k}" for k in range(10)]}),
    )
    return CampaignData.of(
        plain.X, None, votes=votes[:n], votes_val=votes[n : n + 20].reset_index(drop=True),
        X_val=plain.validation[0][:20], y_val=names[:20], known=Known(X_test=plain.validation[0][20:], y_test=names[20:]),
        classes=CLASSES, contents=contents,
    )  # fmt: skip


@pytest.fixture
def campaign(ws: Workspace) -> str:
    """Two closed rounds with people who differ, a third one open, decisions by a lead, one taken back."""
    made = campaigns.create_campaign(ws, "Words", wordy_data(), Settings(budget=30, batch_size=6, people=2), "lead")
    slug, truth = made.slug, truth_of(N + 30)
    worker.advance(ws, slug)
    for turn in range(2):
        for k, person in enumerate(("ann", "bob")):
            given = next_tasks(ws, slug, person, 6)
            for number, task in enumerate(given if isinstance(given, list) else ()):
                label = (int(truth[int(task.item)]) + (k if number == turn else 0)) % 3
                cast_vote(ws, slug, person, task.item, label, note="sure")
        worker.advance(ws, slug)
    told = items.page(ws, slug, ItemQuery(state=ItemState.NEW), limit=3).entries
    decisions.resolve(ws, slug, told[0].item, 1, "lead")
    answered = items.page(ws, slug, ItemQuery(state=ItemState.ANSWERED)).entries
    decisions.reopen(ws, slug, next(one.item for one in answered if one.round is not None), "lead")
    return slug


class Oracle:
    """Every item with everything that a filter can ask, by loops over plain records."""

    def __init__(self, ws: Workspace, slug: str, data: CampaignData) -> None:
        with ws.reading() as connection:
            row = find(ws, slug)
            self.votes = vote_table.live_votes_of_campaign(connection, row.id)
            said = connection.execute(
                sa.text(
                    "SELECT i.key, s.attempt, r.number, r.state FROM selection s JOIN item i ON i.id = s.item_id "
                    "JOIN round r ON r.id = s.round_id WHERE s.origin <> 'ahead' ORDER BY r.number"
                )
            ).all()
            made = connection.execute(
                sa.text(
                    "SELECT i.key, d.id, d.attempt, d.label, d.kind FROM decision d JOIN item i ON i.id = d.item_id ORDER BY d.id"
                )
            ).all()
            self.wished = set(
                connection.execute(sa.text("SELECT i.key FROM wish w JOIN item i ON i.id = w.item_id")).scalars()
            )
        self.rounds: dict[str, list[Any]] = {}
        for one in said:
            self.rounds.setdefault(one.key, []).append(one)
        self.decided = {one.key: one for one in made}
        known = numbers.latest(folder_of(ws, row))
        assert known is not None
        self.known = pd.DataFrame({name: known[name] for name in FIELDS}).to_dict("records")
        frame = data.contents.items
        assert data.votes is not None
        assert isinstance(frame, pd.DataFrame)
        self.table = data.votes.table.toarray().reshape(len(data.X), -1, len(CLASSES))
        self.names = data.votes.names
        self.texts = [f"{t} {k} {c}" for k, (t, c) in enumerate(zip(frame["text"], frame["colour"], strict=True))]

    def label(self, k: int) -> int:
        last = self.decided.get(str(k))
        return -1 if last is None or last.label is None else last.label

    def state(self, k: int) -> ItemState:
        last, asked = self.decided.get(str(k)), self.rounds.get(str(k), [])
        since = asked and (last is None or asked[-1].attempt > last.attempt)
        if since and asked[-1].state == "selected":
            return ItemState.OPEN
        if str(k) in self.wished:
            return ItemState.WAITING
        if last is None:
            return ItemState.NEW
        if last.kind == "reopen":
            return ItemState.WAITING
        return ItemState.UNRESOLVED if last.label is None else ItemState.ANSWERED

    def holds(self, k: int, q: str) -> bool:
        words = re.findall(r"[^\W_]+", self.texts[k].lower())
        for term in search.parse(q):
            runs = [words[at : at + len(term.words)] for at in range(len(words))]
            *first, last = term.words
            if not any(
                len(run) == len(term.words)
                and run[:-1] == first
                and (run[-1].startswith(last) if term.prefix else run[-1] == last)
                for run in runs
            ):
                return False
        return bool(search.parse(q))

    def matches(self, k: int, query: ItemQuery) -> bool:
        known, key = self.known[k], str(k)
        if query.q.strip() and not self.holds(k, query.q) and query.q.strip() != key:
            return False
        for name in ("predicted", "believed", "weak"):
            if getattr(query, name) is not None and known[name] != getattr(query, name):
                return False
        if query.label is not None and self.label(k) != query.label:
            return False
        if query.suspect and not known["suspect"]:
            return False
        people = [vote for vote in self.votes if vote.key == key and vote.person != "suggestion"]
        if query.person and query.person not in {vote.person for vote in people}:
            return False
        if query.round is not None and query.round not in {one.number for one in self.rounds.get(key, [])}:
            return False
        if query.state is Asked.UNANSWERED and self.label(k) >= 0:
            return False
        if query.state is Asked.LABELLED and self.label(k) < 0:
            return False
        if query.state is Asked.ASKED and key not in self.rounds:
            return False
        if isinstance(query.state, ItemState) and self.state(k) is not query.state:
            return False
        return self._disputed(k, query, people) and self._voted(k, query)

    def _disputed(self, k: int, query: ItemQuery, people: list[Any]) -> bool:
        known = self.known[k]
        if query.disagree is Disagreement.MODEL_SOURCES:
            return bool(known["weak"] >= 0 and known["weak"] != known["predicted"])
        if query.disagree is Disagreement.MODEL_PEOPLE:
            return bool(self.label(k) >= 0 and self.label(k) != known["predicted"])
        if query.disagree is Disagreement.PEOPLE:
            attempts = {vote.attempt for vote in people}
            return any(len({v.label for v in people if v.attempt == one}) > 1 for one in attempts)
        if query.disagree is Disagreement.SOURCES:
            return len({int(c) for row in self.table[k] for c in np.flatnonzero(row)}) > 1
        return True

    def _voted(self, k: int, query: ItemQuery) -> bool:
        rows = [row for name, row in zip(self.names, self.table[k], strict=True) if query.source in ("", name)]
        if query.vote is not None:
            return any(row[query.vote] >= 0.5 for row in rows)
        return not query.source or any(row.any() for row in rows)

    def order(self, k: int, sort: SortBy) -> tuple[float, int]:
        last, known = self.decided.get(str(k)), self.known[k]
        value = {
            SortBy.ORDER: float(k),
            SortBy.DOUBT: -float(known["doubt"]),
            SortBy.INFLUENCE: float(known["influence"]),
            SortBy.LABEL: float(known["label_probability"]),
            SortBy.NEWEST: float("inf") if last is None else -float(last.id),
        }[sort]
        return (float("inf") if np.isnan(value) else value, k)


QUERIES = (
    "red",
    "RED*",
    '"red fox"',
    "fox red",
    "dont",
    "don't",
    '"lazy dog"',
    "3.14",
    "snow_flake",
    "sky",
    "7",
    "y.example",
    '"',
)


def random_query(rng: random.Random) -> ItemQuery:
    """Up to three conditions, drawn by chance."""
    classes = [0, 1, 2]
    choices: dict[str, list[Any]] = {
        "q": list(QUERIES), "predicted": classes, "label": classes, "believed": classes, "weak": classes,
        "disagree": list(Disagreement), "suspect": [True], "source": ["lexicon", "always wrong", "nobody"],
        "vote": classes, "person": ["ann", "bob", "eve"], "round": [0, 1, 2, 3, 9], "state": [*ItemState, *Asked],
    }  # fmt: skip
    names = rng.sample(sorted(choices), rng.choice([1, 1, 2, 2, 3]))
    return ItemQuery(**{name: rng.choice(choices[name]) for name in names}, sort=rng.choice(list(SortBy)))


def walked(ws: Workspace, slug: str, query: ItemQuery, limit: int) -> Iterator[ItemsPage]:
    after = None
    while True:
        found = items.page(ws, slug, query, after=after, limit=limit)
        yield found
        after = found.next
        if after is None:
            return


@pytest.mark.parametrize("few", [items._FEW, 0], ids=["sorted", "walked"])
def test_filters_and_orders_are_those_of_a_loop_over_all_items(
    ws: Workspace, campaign: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`few` decides whether what matches is sorted, or the order that the worker wrote is walked."""
    monkeypatch.setattr(items, "_FEW", few)
    actions.act(ws, campaign, Wanted(Action.ASK, items=_new(ws, campaign, 2)), "lead")
    oracle, rng = Oracle(ws, campaign, wordy_data()), random.Random(3)
    singles = [ItemQuery(sort=sort) for sort in SortBy]
    singles += [ItemQuery(state=state) for state in (*ItemState, *Asked)] + [ItemQuery(q=q) for q in QUERIES]
    some = 0
    for query in singles + [random_query(rng) for _ in range(150)]:
        expected = sorted((k for k in range(N) if oracle.matches(k, query)), key=lambda k: oracle.order(k, query.sort))
        pages = list(walked(ws, campaign, query, rng.choice([3, 7, 50])))
        assert [line.position for page in pages for line in page.entries] == expected, query
        assert {page.matches for page in pages} == {len(expected)}
        assert pages[0].total == N
        some += 0 < len(expected) < N
        for page in pages:
            for line in page.entries:
                assert line.state is oracle.state(line.position)
                assert (-1 if line.label is None else line.label) == oracle.label(line.position)
    assert some > 50


def _new(ws: Workspace, slug: str, n: int) -> list[str]:
    return [line.item for line in items.page(ws, slug, ItemQuery(state=ItemState.NEW), limit=n).entries]


def test_trusted_and_test_items_are_shown_and_left_alone(ws: Workspace, campaign: str) -> None:
    trusted = items.page(ws, campaign, ItemQuery(split=SplitName.VALIDATION, q="red"), limit=100)
    assert (trusted.matches, trusted.total, trusted.entries[0].state) == (20, 20, None)
    truth = truth_of(N + 30)
    assert [line.label for line in trusted.entries] == truth[N : N + 20].tolist()
    tested = items.page(ws, campaign, ItemQuery(split=SplitName.TEST, label=1))
    assert tested.matches == int((truth[N + 20 :] == 1).sum())
    assert tested.total == 10
    text = items.detail(ws, campaign, tested.entries[0].item, SplitName.TEST).content.text
    assert str(text).startswith("tested fox")
    for query in (ItemQuery(split=SplitName.TEST, suspect=True), ItemQuery(split=SplitName.TEST, sort=SortBy.DOUBT)):
        with pytest.raises(InvalidInputError, match=r"train|expected order"):
            items.page(ws, campaign, query)
    with pytest.raises(InvalidInputError, match="never decided"):
        actions.act(ws, campaign, Wanted(Action.ASK, query=ItemQuery(split=SplitName.TEST)), "lead")


HOSTILE = (
    '"',
    "a AND",
    "NEAR(",
    "x* *",
    "col:y",
    "-",
    "' OR 1=1",
    "\\",
    "^a",
    "{}",
    "&|!:*",
    "ñ",
    "日本",
    "a" * 400,
    "''",
)


def test_what_is_typed_is_never_an_error(ws: Workspace) -> None:
    slug = make(ws)
    for q in HOSTILE:
        assert items.page(ws, slug, ItemQuery(q=q)).matches == 0


def test_an_excerpt_shows_what_was_searched_for(ws: Workspace, campaign: str) -> None:
    line = items.page(ws, campaign, ItemQuery(q='"lazy dog" red*'), limit=1).entries[0]
    marked = {piece.text.lower() for piece in line.excerpt if piece.match}
    assert "lazy-dog" in marked
    assert marked <= {"lazy-dog", "red", "reddish"}
    fields = items.page(ws, campaign, ItemQuery(q="sky"), limit=1).entries[0]
    assert [piece.text for piece in fields.excerpt if piece.match] == ["sky"]


def test_without_fts5_texts_are_searched_all_the_same(tmp_path: Path) -> None:
    with open_workspace(tmp_path) as ws:
        with ws.writing() as connection:
            for name in ("insert", "delete"):
                connection.execute(sa.text(f"DROP TRIGGER item_text_{name}"))
            connection.execute(sa.text("DROP TABLE item_text"))
        slug = make(ws)
        found = items.page(ws, slug, ItemQuery(q='"text 7"'))
        assert [line.item for line in found.entries] == ["7"]
        assert "FTS5" in found.notes[0]


def test_a_campaign_without_numbers_is_shown_without_them(ws: Workspace, campaign: str) -> None:
    for path in folder_of(ws, find(ws, campaign)).glob("numbers-*.npy"):
        path.unlink()
    found = items.page(ws, campaign, ItemQuery(sort=SortBy.DOUBT), limit=5)
    assert (found.round, found.matches, found.entries[0].predicted) == (None, N, None)
    assert "no numbers" in found.notes[0]
    assert items.page(ws, campaign, ItemQuery(suspect=True)).matches == 0
    worker.advance(ws, campaign)
    label_all_open(ws, campaign)
    assert items.page(ws, campaign, ItemQuery()).round is not None


def label_all_open(ws: Workspace, slug: str) -> None:
    """Both people vote on the batch that is out."""
    truth = truth_of(N + 30)
    for person in ("ann", "bob"):
        given = next_tasks(ws, slug, person, 10)
        for task in given if isinstance(given, list) else ():
            cast_vote(ws, slug, person, task.item, int(truth[int(task.item)]))
    worker.advance(ws, slug)


def test_numbers_are_those_of_the_model(ws: Workspace, campaign: str) -> None:
    row = find(ws, campaign)
    known = numbers.latest(folder_of(ws, row))
    session = trained.trained_now(ws, row).session
    assert known is not None
    assert known.round == len(session.rounds) - 1
    np.testing.assert_array_equal(known["predicted"], session.predicted(np.arange(N)))
    np.testing.assert_allclose(known["belief"], session.posterior()[:N].max(axis=1), rtol=1e-5)
    np.testing.assert_allclose(known["influence"], session.scores(), rtol=1e-4)
    P, _, _ = session.views(np.arange(N))
    two = np.sort(P, axis=1)[:, -2:]
    np.testing.assert_allclose(known["doubt"], 1 - (two[:, 1] - two[:, 0]), rtol=1e-4, atol=1e-6)
    assert len(list(folder_of(ws, row).glob("numbers-*.npy"))) == 1


def test_the_detail_of_an_item_tells_who_said_what(ws: Workspace, campaign: str) -> None:
    line = items.page(ws, campaign, ItemQuery(disagree=Disagreement.PEOPLE)).entries[0]
    found = items.detail(ws, campaign, line.item)
    assert {(one.person, one.note) for one in found.people} == {("ann", "sure"), ("bob", "sure")}
    assert len({one.label for one in found.people}) == 2
    assert found.rounds
    assert found.decisions[0].kind == "votes"
    assert {one.source for one in found.sources} <= {"lexicon", "always wrong", "=coin()"}
    assert found.line == line
    with pytest.raises(NotFoundError):
        items.detail(ws, campaign, "nobody")


def test_similar_items_are_the_nearest_by_cosine(ws: Workspace, campaign: str) -> None:
    X = wordy_data().X
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = rows @ rows[5]
    cosines[5] = -2
    found = similar.similar(ws, campaign, "5", n=4)
    assert [one.line.position for one in found.items] == np.argsort(-cosines, kind="stable")[:4].tolist()
    np.testing.assert_allclose([one.similarity for one in found.items], np.sort(cosines)[::-1][:4], atol=1e-4)
    few, pairs = similar.nearest(X, 5, 3, most_bytes=X.nbytes // 4)
    assert few == N // 4
    assert all(place % 4 == 0 for place, _ in pairs)


def test_many_items_are_decided_at_once_and_stand_in_the_ledger(ws: Workspace, campaign: str, tmp_path: Path) -> None:
    open_now = items.page(ws, campaign, ItemQuery(state=ItemState.OPEN)).entries
    keys = [open_now[0].item, *_new(ws, campaign, 3), "nobody"]
    done = actions.act(ws, campaign, Wanted(Action.DECIDE, "eggs", keys), "lead", "request-1")
    assert (done.done, done.refused) == (4, 1)
    assert [fate.why for fate in done.fates] == ["", "", "", "", "item"]
    again = actions.act(ws, campaign, Wanted(Action.DECIDE, "eggs", keys), "lead", "request-1")
    assert again == replace(done, repeated=True)
    with pytest.raises(ConflictError, match="request_id"):
        actions.act(ws, campaign, Wanted(Action.DECIDE, "ham", keys), "lead", "request-1")
    for key in keys[:4]:
        entries = decisions.ledger(ws, campaign, item=key, kind="decision").entries
        assert [(one.who, one.label) for one in entries][:1] == [("lead", 2)]
    assert items.page(ws, campaign, ItemQuery(state=ItemState.OPEN)).matches == len(open_now) - 1
    label_all_open(ws, campaign)
    _proven(ws, campaign, tmp_path)


def _proven(ws: Workspace, slug: str, tmp_path: Path) -> None:
    """Replay, restart and the proof of the ledger agree with what happened."""
    assert trained.replay(ws, slug).agrees
    before = trained.trained_now(ws, find(ws, slug)).labels_hash
    ws.memory.clear()
    assert trained.trained_now(ws, find(ws, slug)).labels_hash == before
    path = tmp_path / "ledger.jsonl"
    proof.write_ledger(ws, slug, path)
    verifying.verify_ledger(path)


def test_items_that_were_never_asked_are_asked_first(ws: Workspace, campaign: str, tmp_path: Path) -> None:
    label_all_open(ws, campaign)
    worst = items.page(ws, campaign, ItemQuery(state=ItemState.NEW, sort=SortBy.INFLUENCE), limit=60).entries
    wanted = [line.item for line in worst[-8:]]  # those that would be asked last
    done = actions.act(ws, campaign, Wanted(Action.ASK, items=wanted), "lead")
    assert done.done == 8
    assert "6 items in a batch" in done.message
    again = actions.act(ws, campaign, Wanted(Action.ASK, items=wanted), "lead")
    assert {fate.why for fate in again.fates} == {"waiting"}
    change = decisions.ledger(ws, campaign, kind="change").entries[0]
    assert (change.who, change.what) == ("lead", {"ask_first": wanted})
    label_all_open(ws, campaign)  # the batch that was out
    asked = {line.item for line in items.page(ws, campaign, ItemQuery(state=ItemState.OPEN)).entries}
    first = [one for one in wanted if one in asked]
    assert len(first) >= 5  # an item that a lead had taken back comes before them
    left = items.page(ws, campaign, ItemQuery(state=ItemState.WAITING)).entries
    assert {line.item for line in left} == set(wanted) - asked
    _proven(ws, campaign, tmp_path)
    label_all_open(ws, campaign)
    _proven(ws, campaign, tmp_path)


def test_what_is_not_possible_is_said_of_each_item(ws: Workspace, campaign: str) -> None:
    answered = items.page(ws, campaign, ItemQuery(state=ItemState.ANSWERED)).entries[0].item
    waiting = items.page(ws, campaign, ItemQuery(state=ItemState.WAITING)).entries[0].item
    open_now = items.page(ws, campaign, ItemQuery(state=ItemState.OPEN)).entries[0].item
    new = _new(ws, campaign, 1)[0]
    keys = [answered, waiting, open_now, new]
    asked = actions.act(ws, campaign, Wanted(Action.ASK, items=keys), "lead")
    assert [fate.why for fate in asked.fates] == ["decided", "waiting", "asked_now", ""]
    opened = actions.act(ws, campaign, Wanted(Action.REOPEN, items=keys), "lead")
    assert [fate.why for fate in opened.fates] == ["", "not_decided", "asked_now", "not_decided"]
    assert items.detail(ws, campaign, answered).line.state is ItemState.WAITING
    decided = actions.act(ws, campaign, Wanted(Action.DECIDE, 0, items=[new]), "lead")
    assert decided.done == 1
    assert items.detail(ws, campaign, new).line.state is ItemState.ANSWERED


def test_all_that_match_are_acted_on_if_they_are_as_many_as_was_told(ws: Workspace, campaign: str) -> None:
    query = ItemQuery(q="red", state=ItemState.NEW)
    found = items.page(ws, campaign, query)
    assert found.matches > 1
    with pytest.raises(ConflictError, match="match now") as refused:
        actions.act(ws, campaign, Wanted(Action.ASK, query=query, count=found.matches + 1), "lead")
    assert refused.value.code == "count"
    done = actions.act(ws, campaign, Wanted(Action.ASK, query=query, count=found.matches), "lead", "request-2")
    assert done.done == found.matches
    again = actions.act(ws, campaign, Wanted(Action.ASK, query=query, count=found.matches), "lead", "request-2")
    assert again.repeated
    assert again.done == found.matches
    for wrong in (Wanted(Action.ASK), Wanted(Action.ASK, items=[str(k) for k in range(actions.MOST + 1)])):
        with pytest.raises(InvalidInputError, match="expected 1 to"):
            actions.act(ws, campaign, wrong, "lead")
    with pytest.raises(InvalidInputError, match="label is missing"):
        actions.act(ws, campaign, Wanted(Action.DECIDE, items=["1"]), "lead")


def test_a_finished_campaign_goes_on_where_items_are_sent_to_people(ws: Workspace) -> None:
    slug = make(ws, budget=4, batch_size=4)
    label_all(ws, slug, "ann")
    assert campaigns.summary(ws, slug).state is CampaignState.FINISHED
    done = actions.act(ws, slug, Wanted(Action.ASK, items=_new(ws, slug, 2)), "lead")
    assert "Raise the budget" in done.message
    worker.advance(ws, slug)
    waits(ws, slug, "ann")  # the budget is spent
    campaigns.change_settings(ws, slug, "lead", budget=8)
    worker.advance(ws, slug)
    assert items.page(ws, slug, ItemQuery(state=ItemState.OPEN)).matches == 4
    assert items.page(ws, slug, ItemQuery(state=ItemState.WAITING)).matches == 0


def test_positions_are_found_where_ids_are_not_in_order(ws: Workspace, campaign: str, tmp_path: Path) -> None:
    """Items of two campaigns may have been inserted at the same time."""
    from labelchef.server.items.standing import Positions

    with ws.reading() as connection:
        found = Positions(connection, find(ws, campaign), SplitName.TRAIN)
        ids = [found.range.first + k for k in (7, 3, 9)]
        assert found.of(ids).tolist() == [7, 3, 9]
        assert found.of([found.range.last + 1, *ids]).tolist() == [7, 3, 9]
        found._ids = np.arange(found.range.first, found.range.last + 1)[::-1].copy()
        found._order = np.argsort(found._ids)
        assert found.of([found.range.last + 1, *ids]).tolist() == [N - 8, N - 4, N - 10]


def test_a_cursor_of_another_list_is_refused(ws: Workspace, campaign: str) -> None:
    found = items.page(ws, campaign, ItemQuery(sort=SortBy.DOUBT), limit=1)
    assert found.next is not None
    for wrong in (found.next.replace("doubt", "order"), "x", "doubt~nan~1", "doubt~1-1~2"):
        with pytest.raises(InvalidInputError, match="cursor"):
            items.page(ws, campaign, ItemQuery(sort=SortBy.DOUBT), after=wrong)
