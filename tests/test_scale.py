"""Nothing that a person asks for grows with the number of items; campaigns are made and removed piece by piece, whole or not at
all; exports in pieces are the exports."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from benchmarks.items import write_files
from sqlalchemy import event

from labelchef.base.browsing import Disagreement, ItemQuery, ItemState, SortBy
from labelchef.base.campaigns import SplitName, Waiting
from labelchef.base.errors import InvalidInputError, NotFoundError, StoreError
from labelchef.base.files import locked_folder
from labelchef.base.settings import Settings
from labelchef.data.contents import Contents, ids_of
from labelchef.data.files import formats, tables
from labelchef.data.files.items_file import ItemsFile, open_items
from labelchef.server.campaigns import campaigns, care, making, numbers, progress
from labelchef.server.campaigns.access import find
from labelchef.server.export import take_home
from labelchef.server.items import items
from labelchef.server.items.standing import Positions
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.people import quality
from labelchef.server.store import campaign_table, removal
from labelchef.server.worker import advance
from labelchef.server.workspace import CAMPAIGNS, Workspace, folder_of, open_workspace
from tests.store_support import label_all, make, small_data

ROOT = Path(__file__).parent.parent


def requests(ws: Workspace, slug: str) -> dict[str, Callable[[], object]]:
    """What people ask for, by name."""
    every = {f"sorted by {sort}": ItemQuery(sort=sort) for sort in SortBy}
    every |= {
        "a state": ItemQuery(state=ItemState.NEW),
        "a class": ItemQuery(predicted=1, sort=SortBy.LABEL),
        "suspects": ItemQuery(suspect=True),
        "a rare word": ItemQuery(q="17"),
        "a word in all": ItemQuery(q="text"),
        "people disagree": ItemQuery(disagree=Disagreement.PEOPLE),
        "of a person": ItemQuery(person="ann"),
        "trusted items": ItemQuery(split=SplitName.VALIDATION),
    }

    def deep(query: ItemQuery) -> None:
        after = None
        for _ in range(3):
            after = items.page(ws, slug, query, after=after, limit=20).next

    def vote() -> None:
        found = next_tasks(ws, slug, "bob", 1)
        assert not isinstance(found, Waiting)
        cast_vote(ws, slug, "bob", found[0].item, 0)

    found: dict[str, Callable[[], object]] = {name: partial(deep, query) for name, query in every.items()}
    return found | {
        "an item": lambda: items.detail(ws, slug, "17"),
        "next and vote": vote,
        "status": lambda: campaigns.status(ws, slug),
        "progress of an annotator": lambda: progress.progress_for(ws, slug, "ann"),
        "progress of a lead": lambda: progress.progress(ws, slug),
        "quality": lambda: quality.quality(ws, slug),
    }


def steps_of_sqlite(ws: Workspace, work: Callable[[], object]) -> int:
    """How many hundreds of instructions SQLite needs for it: rows that are looked at cost some each."""
    count = [0]

    def tick() -> int:
        count[0] += 1
        return 0

    def prepare(driver: Any, _record: object, _proxy: object) -> None:
        driver.set_progress_handler(tick, 100)

    event.listen(ws.database.engine, "checkout", prepare)
    try:
        work()
    finally:
        event.remove(ws.database.engine, "checkout", prepare)
    return count[0]


def test_requests_do_not_look_at_all_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the items: the database does the same work for a request, by its own count. A table that is read once for
    each item, by any of them, would add ten instructions an item."""
    monkeypatch.setattr(items, "MOST_FOUND", 100)
    needed: dict[int, dict[str, int]] = {}
    for n in (300, 3000):
        with open_workspace(tmp_path / str(n)) as ws:
            slug = make(ws, data=small_data(n), people=2)
            assert find(ws, slug).first_item is not None
            for name, work in requests(ws, slug).items():
                ws.memory.clear()  # the first look of a process is a request, too
                needed.setdefault(n, {})[name] = steps_of_sqlite(ws, work)
    grown = {
        name: (few, needed[3000][name]) for name, few in needed[300].items() if needed[3000][name] > 1.5 * few + 20
    }
    assert grown == {}
    assert min(needed[300].values()) > 0


def test_postgresql_finds_items_by_indexes(tmp_path: Path, postgres: Any) -> None:
    """No statement of a request needs to read the whole table of items: with an index it never does."""
    with open_workspace(tmp_path, postgres.new_database()) as ws:
        slug = make(ws, people=2)
        asked: list[tuple[str, Any]] = []

        def note(_c: object, _cursor: object, statement: str, values: Any, _context: object, many: bool) -> None:
            if statement.lstrip().startswith("SELECT") and " item" in statement and not many:
                asked.append((statement, values))

        event.listen(ws.database.engine, "before_cursor_execute", note)
        for work in requests(ws, slug).values():
            ws.memory.clear()
            work()
        event.remove(ws.database.engine, "before_cursor_execute", note)
        assert len(asked) > 50
        wrong = set()
        with ws.writing() as connection:
            connection.exec_driver_sql("ANALYZE")
            connection.exec_driver_sql("SET LOCAL enable_seqscan TO OFF")
            for statement, values in asked:
                plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}", values).scalars())
                if "Seq Scan on item" in plan:
                    wrong.add(statement)
        assert wrong == set()


def left_behind(ws: Workspace) -> tuple[int, int, list[str]]:
    """Campaigns, items and folders."""
    with ws.reading() as connection:
        counts = [
            connection.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one() for name in ("campaign", "item")
        ]
    return counts[0], counts[1], sorted(one.name for one in (ws.home / CAMPAIGNS).iterdir())


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is stored, removed and written seven at a time."""
    for module in (making, care, take_home):
        monkeypatch.setattr(module, "_AT_ONCE", 7)
    monkeypatch.setattr(removal, "AT_ONCE", 7)


class Crash(BaseException):
    pass


@pytest.mark.usefixtures("pieces")
def test_a_campaign_is_made_whole_or_not_at_all(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []

    def watch(what: str, done: int, total: int) -> None:
        told.append((what, done, total))
        assert campaigns.list_campaigns(ws) == []
        if done == 35:
            raise Crash

    with pytest.raises(Crash):
        campaigns.create_campaign(ws, "Broken off", small_data(), Settings(), "lead", progress=watch)
    assert ("storing items", 28, 90) in told
    assert left_behind(ws) == (0, 0, [])

    def full(*_: object) -> None:
        raise sa.exc.OperationalError("INSERT", {}, Exception("database or disk is full"))

    with monkeypatch.context() as patched:
        patched.setattr(campaign_table, "still_making", full)
        with pytest.raises(StoreError, match="disk is full") as refused:
            campaigns.create_campaign(ws, "Full", small_data(), Settings(), "lead")
    assert refused.value.code == "disk_full"
    assert left_behind(ws) == (0, 0, [])
    slug = make(ws, "Full")
    assert label_all(ws, slug, "ann") == 4


@pytest.mark.usefixtures("pieces")
def test_what_a_dead_process_was_making_is_removed_and_what_a_living_one_makes_is_not(ws: Workspace) -> None:
    kept = make(ws, "Kept")
    before = left_behind(ws)
    with ws.writing() as connection:
        begun, first = campaign_table.begin_campaign(
            connection, public_id="abc", settings=Settings(), by="lead", n_items=60, total=60, until=1e12
        )
        new = list(small_data().contents.rows(np.full(60, -1), np.zeros(0, dtype=np.int64), None))
        campaign_table.insert_items(connection, begun, first, new[:20])
    folder = ws.home / CAMPAIGNS / ".new-abc"
    care.purge(ws)
    assert left_behind(ws)[1] == before[1] + 20, "another home may make it"
    folder.mkdir()
    with locked_folder(folder):
        care.purge(ws)
        assert left_behind(ws)[1] == before[1] + 20
    for find_it in (campaigns.summary, care.restore):
        with pytest.raises(NotFoundError):
            find_it(ws, "abc", "lead")
    assert [one.slug for one in campaigns.list_campaigns(ws)] == [kept]
    care.purge(ws)
    assert left_behind(ws) == before


@pytest.mark.usefixtures("pieces")
def test_a_removal_that_dies_between_pieces_is_ended_by_the_next(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = make(ws, "Kept")
    before = left_behind(ws)
    care.delete(ws, make(ws, "Doomed"), "lead", confirm="Doomed", now=True)

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(care, "remove_unfinished", crash)
        with pytest.raises(Crash):
            care.purge(ws)
    assert left_behind(ws)[0] == 2
    assert [one.slug for one in campaigns.list_campaigns(ws)] == [kept]
    assert care.purge(ws) == []
    assert left_behind(ws) == before


@pytest.mark.usefixtures("pieces")
def test_campaigns_that_are_made_at_the_same_time_have_ids_of_their_own(ws: Workspace) -> None:
    def watch(_what: str, done: int, _total: int) -> None:
        if done == 14:
            campaigns.create_campaign(ws, "Inner", small_data(), Settings(), "lead")

    outer = campaigns.create_campaign(ws, "Outer", small_data(), Settings(), "lead", progress=watch)
    copied = care.copy(ws, outer.slug, "lead", name="Copied")
    for slug in (outer.slug, "inner", copied.slug):
        row = find(ws, slug)
        with ws.reading() as connection:
            for split, n in ((SplitName.TRAIN, 60), (SplitName.VALIDATION, 30)):
                places = Positions(connection, row, split)
                rows = campaign_table.items_between(connection, row.id, split, 0, n)
                assert places.of(one.id for one in rows).tolist() == list(range(n))
                assert campaign_table.size_of_split(connection, row.id, split) == n
        found = items.page(ws, slug, ItemQuery(q='"text 17"'))
        assert [one.position for one in found.entries] == [17]


def test_campaigns_and_numbers_of_before_are_shown_as_they_were(ws: Workspace) -> None:
    """Without a range of ids, and with numbers as version 0.3 wrote them."""
    slug = make(ws, people=1)
    label_all(ws, slug, "ann")
    queries = [ItemQuery(sort=sort, state=state) for sort in SortBy for state in (None, ItemState.NEW)]
    queries += [ItemQuery(q="text"), ItemQuery(split=SplitName.VALIDATION)]
    new = [items.page(ws, slug, query) for query in queries]
    with ws.writing() as connection:
        connection.execute(sa.text("UPDATE campaign SET first_item = NULL, last_item = NULL"))
    folder = folder_of(ws, find(ws, slug))
    (path,) = folder.glob("numbers-*.npy")
    known = numbers.latest(folder)
    assert known is not None
    records = np.zeros(60, dtype=numbers._EARLIER)
    for name in records.dtype.names or ():
        records[name] = known[name]
    np.save(path, records)
    ws.memory.clear()
    for few in (items._FEW, 0):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(items, "_FEW", few)
            assert [items.page(ws, slug, query) for query in queries] == new


def test_a_search_finds_so_many_and_says_so(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    slug = make(ws)
    assert items.page(ws, slug, ItemQuery(q="red")).matches == 60
    ws.memory.clear()
    monkeypatch.setattr(items, "MOST_FOUND", 25)
    found = items.page(ws, slug, ItemQuery(q="red"))
    assert found.matches == 25
    assert any("More than 25 items" in note for note in found.notes)
    ws.memory.clear()


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("kind", tables.FORMATS)
def test_a_data_set_in_pieces_is_the_data_set(ws: Workspace, tmp_path: Path, kind: str) -> None:
    data = small_data(items=pd.DataFrame({"text": [f"text {k}" for k in range(60)], "n": [None, *range(59)]}))
    slug = make(ws, data=data)
    label_all(ws, slug, "ann")
    written = formats.read_table(take_home.export_dataset(ws, slug, tmp_path / f"out.{kind}")).frame
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(take_home, "_AT_ONCE", 1000)
        whole = formats.read_table(take_home.export_dataset(ws, slug, tmp_path / f"whole.{kind}")).frame
    assert written.fillna("").to_dict("list") == whole.fillna("").to_dict("list")
    assert sorted(int(rank) for rank in written["rank"].dropna() if rank) == list(range(1, 61))


def test_pieces_may_have_columns_of_other_types(tmp_path: Path) -> None:
    def frames() -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"a": [None, None], "b": ["1", "2"]})
        yield pd.DataFrame({"a": [1, None], "b": ["x", "0.5"]}, dtype=object)

    for kind in ("csv", "jsonl", "json", "parquet", "feather"):
        found = formats.read_table(tables.write_frames(frames, tmp_path / f"a.{kind}")).frame.fillna("")
        assert found["b"].tolist() == ["1", "2", "x", "0.5"]
        assert found["a"].tolist() == ["", "", "1", ""]


def test_items_of_a_parquet_file_are_those_of_the_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 40
    frame = pd.DataFrame(
        {
            "id": [f"i{k}" for k in range(n)],
            "text": [None if k % 5 == 0 else f"text {k}" for k in range(n)],
            "size": [k if k % 3 else None for k in range(n)],
            "ok": [k % 2 == 0 for k in range(n)],
        }
    )
    frame.to_parquet(tmp_path / "items.parquet", index=False, row_group_size=11)
    table = open_items(tmp_path / "items.parquet", "items")
    assert isinstance(table, ItemsFile)
    assert ids_of(table) == frame["id"].tolist()
    clean, y_val = np.full(n, -1), np.zeros(3, dtype=np.int64)
    monkeypatch.setattr("labelchef.data.contents._AT_ONCE", 7)
    one, other = Contents(table), Contents(table.whole())
    one.check(n, 3)
    assert list(one.rows(clean, y_val, None)) == list(other.rows(clean, y_val, None))
    frame.assign(id=["i3", *frame["id"][1:]]).to_parquet(tmp_path / "twice.parquet", index=False)
    with pytest.raises(InvalidInputError, match="the id 'i3' occurs twice"):
        Contents(open_items(tmp_path / "twice.parquet", "items")).check(n, 3)
    clash = Contents(table, pd.DataFrame({"id": ["i1", "v1", "v2"]}))
    assert clash.val_keys(n, 3) == ["val-i1", "val-v1", "val-v2"]
    assert Contents(table, pd.DataFrame({"id": ["v0", "v1", "v2"]})).val_keys(n, 3) == ["v0", "v1", "v2"]
    assert Contents(None, pd.DataFrame({"id": ["39", "v1", "040"]})).val_keys(n, 3) == ["val-39", "val-v1", "val-040"]
    assert Contents(None, pd.DataFrame({"id": ["40", "v1", "039"]})).val_keys(n, 3) == ["40", "v1", "039"]


@pytest.mark.slow
def test_memory_of_creation_is_bounded(tmp_path: Path) -> None:
    """Of its own, without mapped files: so many bytes an item beside what any creation takes."""
    peaks = {}
    for n in (20_000, 200_000):
        write_files(tmp_path / f"files-{n}", n)
        command = [sys.executable, "-m", "benchmarks.items", "--step", "create", "--home", str(tmp_path / f"home-{n}")]
        command += ["--files", str(tmp_path / f"files-{n}")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peaks[n] = json.loads(done.stdout.splitlines()[-1])["anon MiB"]
    assert (peaks[200_000] - peaks[20_000]) * 2**20 / 180_000 < 1500  # 850 when it was written


def test_the_benchmark_runs(tmp_path: Path) -> None:
    """Creation, steps, restart and export at a small size; pages need a server and are left to the command."""
    from benchmarks import items as benchmark
    from benchmarks.serving import SLUG

    write_files(tmp_path / "files", 500)
    home = tmp_path / "home"
    assert benchmark.create(home, None, tmp_path / "files")["items"] == 500
    assert benchmark.steps(home, None, tmp_path / "files")["fit s"] > 0
    assert benchmark.export(home, None, tmp_path / "files")["rows"] == 800
    with open_workspace(home) as ws:
        advance(ws, SLUG)
        assert items.page(ws, SLUG, ItemQuery(sort=SortBy.DOUBT)).total == 500
