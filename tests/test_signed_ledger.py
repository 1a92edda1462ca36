"""The signed ledger: what is in it, what follows from what, and every attack that was thought of."""

import base64
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from labelchef.base.canonical import canonical, digest
from labelchef.base.errors import InvalidInputError, MissingExtraError, StoreError
from labelchef.base.settings import Settings
from labelchef.cli.main import app
from labelchef.loop.clean import Answers, clean
from labelchef.loop.ledger.proof import SigningKey, chained, fingerprint, sealed
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.trained import replay
from labelchef.server.export import proof
from labelchef.server.export.exchange import export_votes
from labelchef.server.export.take_home import export_dataset
from labelchef.server.export.verifying import Verdict, verify_ledger
from labelchef.server.intake.importing import import_votes
from labelchef.server.items import decisions, items
from labelchef.server.keys import signing_key
from labelchef.server.labelling.votes import cast_vote, undo_vote
from labelchef.server.ledger import links
from labelchef.server.ledger.links import check_links
from labelchef.server.people import accounts
from labelchef.server.store import chain_table
from labelchef.server.store.tables import Vote
from labelchef.server.worker import advance
from labelchef.server.workspace import KEY_FILE, Workspace, open_workspace
from tests.store_support import CLASSES, label_all, make, small_data, tasks, truth_of

Line = dict[str, Any]


def history(ws: Workspace) -> str:
    """A campaign with changed, retracted and disputed votes, a lead's decision, a reopening, and an open round."""
    slug = make(ws, people=2, budget=40)
    label_all(ws, slug, "ann", "bob", rounds=1)
    first = tasks(ws, slug, "ann", 1)[0].item
    cast_vote(ws, slug, "ann", first, "ham", note="not sure")
    cast_vote(ws, slug, "ann", first, "spam")
    undo_vote(ws, slug, "ann")
    label_all(ws, slug, "ann", "bob", rounds=2)
    decided = next(one.item for one in decisions.ledger(ws, slug, kind="decision").entries if one.item)
    decisions.resolve(ws, slug, decided, "eggs", "lead")
    advance(ws, slug)
    decisions.reopen(ws, slug, decided, "lead")
    advance(ws, slug)
    cast_vote(ws, slug, "ann", tasks(ws, slug, "ann", 1)[0].item, None)
    return slug


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workspace, str, Path, str]]:
    """A workspace, a campaign, its ledger and its public key; the file is only read."""
    folder = tmp_path_factory.mktemp("ledger")
    with open_workspace(folder / "home") as ws:
        slug = history(ws)
        made = proof.write_ledger(ws, slug, folder / "ledger.jsonl")
        export_dataset(ws, slug, folder / "dataset.csv")
        yield ws, slug, made.path, made.public


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def verdict(path: Path, lines: list[bytes], key: str | None = None) -> Verdict:
    path.write_bytes(b"".join(lines))
    return verify_ledger(path, key)


def rechained(
    lines: list[bytes], key: SigningKey | None, change: Callable[[list[tuple[str, Any]]], None]
) -> list[bytes]:
    """The same ledger with changed bodies, every hash computed again, sealed by another key or by none."""
    records = [(one["kind"], one["body"]) for one in map(json.loads, lines[:-1])]
    change(records)
    return list(sealed(chained(records), json.loads(lines[-1])["body"]["at"], key))


def test_an_unaltered_ledger_passes_and_says_what_was_checked(told: Any) -> None:
    _, _, path, public = told
    found = verify_ledger(path, public, path.parent / "dataset.csv")
    assert found.intact, found
    said = " ".join(found.checked)
    for words in (
        "lines and their seal",
        "signature is that of the key",
        "votes",
        "decisions",
        "rounds",
        "links",
        "dataset.csv",
    ):
        assert words in said
    counts = [int(n) for n in re.findall(r"\b(\d+) (?:votes|decisions|rounds|links)\b", "\n".join(found.checked))]
    assert len(counts) == 4
    assert min(counts) >= 4, found
    without = verify_ledger(path)
    assert without.intact
    assert "not who that is" in " ".join(without.notes)


def test_the_same_campaign_gives_the_same_bytes_but_for_the_seal(told: Any, tmp_path: Path) -> None:
    ws, slug, path, _ = told
    proof.write_ledger(ws, slug, tmp_path / "again.jsonl")
    assert lines_of(tmp_path / "again.jsonl")[:-1] == lines_of(path)[:-1]


def test_any_changed_byte_is_found(told: Any, tmp_path: Path) -> None:
    _, _, path, public = told
    whole = path.read_bytes()
    ends = np.cumsum([len(one) for one in lines_of(path)])
    rng = np.random.default_rng(0)
    places = {0, 1, len(whole) - 1, len(whole) - 2, *rng.choice(len(whole), 400, replace=False).tolist()}
    for place in sorted(places):
        other = bytes([whole[place] ^ (1 << int(rng.integers(0, 7)))])
        (tmp_path / "x").write_bytes(whole[:place] + other + whole[place + 1 :])
        try:
            found = verify_ledger(tmp_path / "x", public)
        except InvalidInputError:
            assert place < ends[0], "only a file that no longer looks like a ledger may be called no ledger"
            continue
        assert not found.intact, f"byte {place} became {other!r}"
        line = int(np.searchsorted(ends, place, side="right")) + 1
        assert found.line is not None
        assert found.line in (line, line + 1), f"byte {place} of line {line}: {found}"


def test_lines_that_are_dropped_swapped_doubled_inserted_or_cut_off_are_found(told: Any, tmp_path: Path) -> None:
    _, _, path, public = told
    lines, out = lines_of(path), tmp_path / "x"
    votes = [k for k, one in enumerate(lines) if json.loads(one)["kind"] == "vote"]
    for k in (1, votes[0], votes[-1], len(lines) - 2):
        for attack in (
            lines[:k] + lines[k + 1 :],
            [*lines[:k], lines[k], *lines[k:]],
            [*lines[: k - 1], lines[k], lines[k - 1], *lines[k + 1 :]],
            [*lines[:k], lines[votes[0]], *lines[k:]],
        ):
            if attack == lines:
                continue
            found = verdict(out, attack, public)
            assert not found.intact
            assert found.line is not None
            assert found.line <= k + 2
    for end in range(1, len(lines)):
        assert not verdict(out, lines[:end], public).intact, "cut off behind a line"
    assert not verdict(out, [*lines, lines[-1]], public).intact
    assert not verdict(out, [*lines[:-1], lines[-1].rstrip()], public).intact


def test_a_chain_that_was_hashed_again_is_found_by_the_signature(told: Any, tmp_path: Path) -> None:
    _, _, path, public = told
    lines, out = lines_of(path), tmp_path / "x"

    def nothing(_: list[tuple[str, Any]]) -> None:
        return None

    def rename(records: list[tuple[str, Any]]) -> None:
        """Blame another person; all of it stays consistent, except what the links say."""
        for k, (kind, body) in enumerate(records):
            if kind == "vote" and body["person"] == "bob":
                records[k] = (kind, {**body, "person": "eve"})

    old = json.loads(lines[-1])
    forged = rechained(lines, None, rename)
    seal = {**json.loads(forged[-1]), "body": {**json.loads(forged[-1])["body"], "key": public}}
    bare = {name: value for name, value in seal.items() if name not in ("hash", "signature")}
    sealed_again = canonical({**bare, "hash": digest(bare), "signature": old["signature"]}) + b"\n"
    found = verdict(out, [*forged[:-1], sealed_again])
    assert not found.intact
    assert "signature does not belong" in found.why
    other = SigningKey(bytes(32))
    by_other = rechained(lines, other, nothing)
    assert "another key" in verdict(out, by_other, public).why
    unsigned = rechained(lines, None, nothing)
    assert "not signed" in verdict(out, unsigned, public).why
    assert "anyone could have written it" in " ".join(verdict(out, unsigned).notes)
    assert "rows stored when round" in verdict(out, rechained(lines, other, rename)).why, (
        "a new key does not make the links of the database fit"
    )


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("decision", lambda body: {**body, "label": (body["label"] + 1) % 3}, "the database was changed since"),
        ("decision", lambda body: {**body, "support": body["support"] / 2}, "the database was changed since"),
        ("decision", lambda body: {**body, "label": 17}, "expected one of 3 classes"),
        ("vote", lambda body: {**body, "seq": 5}, "the database was changed since"),
        ("vote", lambda body: {**body, "item": "nowhere"}, "the database was changed since"),
        ("round", lambda body: {**body, "labels_hash": "0" * 64}, "the database was changed since"),
        ("round", lambda body: {**body, "applied": body["applied"][1:]}, "the database was changed since"),
        ("round", lambda body: {**body, "selection_hash": "0" * 64}, "the database was changed since"),
        ("items", lambda body: {**body, "labels": [0, *body["labels"][1:]]}, "class names, items or arrays"),
        ("data", lambda body: [{**body[0], "sha256": "0" * 64}, *body[1:]], "class names, items or arrays"),
        ("round", lambda body: {**body, "spent": 99}, "the database was changed since"),
        ("change", lambda body: {**body, "who": "eve"}, "the database was changed since"),
    ],
)
def test_lines_that_were_altered_are_found_by_the_links_in_a_chain_that_fits(
    told: Any, tmp_path: Path, kind: str, change: Callable[[Any], Any], words: str
) -> None:
    _, _, path, _ = told

    def forge(records: list[tuple[str, Any]]) -> None:
        which = [k for k, (one, body) in enumerate(records) if one == kind and _plain_batch(one, body)]
        records[which[0]] = (kind, change(records[which[0]][1]))

    found = verdict(tmp_path / "x", rechained(lines_of(path), None, forge))
    assert not found.intact
    assert words in found.why
    signed = verdict(tmp_path / "x", rechained(lines_of(path), SigningKey(bytes(32)), forge))
    assert not signed.intact


def _plain_batch(kind: str, body: Any) -> bool:
    return kind != "round" or (body["kind"] == "batch" and body["state"] == "closed")


@pytest.mark.parametrize(
    "junk", [None, 1, "x", [], {}, {"item": {}}, {"number": 10**400}, {"split": "train", "keys": None}]
)
def test_bodies_of_any_shape_are_altered_lines_and_no_traceback(told: Any, tmp_path: Path, junk: Any) -> None:
    _, _, path, _ = told
    for kind in ("header", "data", "items", "vote", "decision", "change", "round"):

        def forge(records: list[tuple[str, Any]], kind: str = kind) -> None:
            at = next(k for k, (one, _) in enumerate(records) if one == kind)
            records[at] = (kind, junk)

        found = verdict(tmp_path / "x", rechained(lines_of(path), None, forge))
        assert not found.intact, (kind, junk)
    lines = lines_of(path)
    seal = json.loads(lines[-1])
    bare = {"body": junk, "kind": "seal", "line": seal["line"], "previous": seal["previous"]}
    forged = canonical({**bare, "hash": digest(bare), "signature": junk}) + b"\n"
    assert not verdict(tmp_path / "x", [*lines[:-1], forged]).intact
    assert not verdict(tmp_path / "x", [*lines[:-1], lines[-1].replace(b'"at":', b'"at":NaN,"x":')]).intact


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("label", "spam", "by the ledger"),
        ("origin", "model", "says otherwise"),
        ("text", "another", "not what people saw"),
    ],
)
def test_an_altered_data_set_is_found(told: Any, tmp_path: Path, column: str, value: str, words: str) -> None:
    _, _, path, _ = told
    frame = pd.read_csv(path.parent / "dataset.csv", dtype=str, keep_default_na=False)
    row = frame.index[(frame["origin"] == "people") & (frame["label"] != "spam")][0]
    frame.loc[row, column] = value
    frame.to_csv(tmp_path / "d.csv", index=False)
    found = verify_ledger(path, data=tmp_path / "d.csv")
    assert not found.intact
    assert found.line is None
    assert words in found.why
    frame.drop(index=[row]).to_csv(tmp_path / "d.csv", index=False)
    assert not verify_ledger(path, data=tmp_path / "d.csv").intact, "a row is missing"


def test_pseudonyms_are_the_same_person_everywhere_and_nobody_by_name(told: Any, tmp_path: Path) -> None:
    ws, slug, path, public = told
    made = proof.write_ledger(ws, slug, tmp_path / "p.jsonl", pseudonyms=True)
    text = made.path.read_text()
    for name in ("ann", "bob", "not sure"):
        assert f'"{name}"' not in text
        assert f'"{name}"' in path.read_text()
    people = {json.loads(one)["body"]["person"] for one in text.splitlines() if '"kind":"vote"' in one}
    assert len(people) == 2
    assert all(one.startswith("person-") for one in people)
    found = verify_ledger(made.path, public)
    assert found.intact, found
    assert "pseudonyms" in " ".join(found.notes)


def test_a_vote_changed_by_sql_after_its_round_closed_is_found(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=2)
        assert replay(ws, slug).agrees
        with ws.database.writing() as connection:
            connection.execute(sa.text("DROP TRIGGER vote_no_update"))
            connection.execute(sa.text("UPDATE vote SET person = 'eve' WHERE id = 2"))
        made = proof.write_ledger(ws, slug, tmp_path / "l.jsonl")
        assert made.links.broken == 1
        outcome = replay(ws, slug)
        assert (outcome.agrees, outcome.altered) == (False, 1)
        assert "changed in the database" in outcome.message
        found = verify_ledger(made.path, made.public)
        assert not found.intact
        assert "round 1" in found.why
        assert "the database was changed" in found.why
        assert found.line is not None
        assert json.loads(lines_of(made.path)[found.line - 1])["kind"] == "round"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM vote WHERE id = 1",
        "UPDATE decision SET label = (label + 1) % 3 WHERE id = 1",
        "UPDATE round SET spent = 1 WHERE number = 1",
        "UPDATE selection SET blind = NOT blind WHERE id = 1",
        "UPDATE setting_change SET who = 'eve' WHERE id = 1",
        "DELETE FROM application WHERE decision_id = 1",
        "UPDATE round SET link = NULL WHERE number = 2",
        "UPDATE round SET link = NULL WHERE number = 0",
        "UPDATE class_name SET name = 'evil' WHERE position = 1",
        "UPDATE item SET text = 'evil' WHERE id = 3",
        "UPDATE item SET label = (label + 1) % 3 WHERE split = 'val' AND position = 0",
        "UPDATE item SET key = 'evil' WHERE id = 3",
        "UPDATE array_file SET sha256 = 'x' WHERE name = 'weak'",
    ],
)
def test_every_table_is_covered_by_a_link(told: Any, statement: str) -> None:
    ws, slug, _, _ = told
    row = find(ws, slug)
    with ws.database.writing() as connection:
        assert check_links(connection, row.id).broken is None
        triggers = connection.execute(sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
        for name in triggers:
            connection.execute(sa.text(f"DROP TRIGGER {name}"))
        connection.execute(sa.text("PRAGMA defer_foreign_keys = ON"))
        assert connection.execute(sa.text(statement)).rowcount == 1
        assert check_links(connection, row.id).broken is not None
        connection.rollback()


def test_a_link_made_again_without_the_key_is_found(tmp_path: Path) -> None:
    """Whoever can write the database, but does not have the key, cannot sign a new link."""
    with open_workspace(tmp_path / "home") as ws:
        slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=1)
        row = find(ws, slug)
        with ws.database.writing() as connection:
            links = connection.execute(sa.text("SELECT number, link FROM round WHERE link IS NOT NULL")).all()
            for number, text in links:
                link = {**json.loads(text), "signature": SigningKey(bytes(32)).sign(json.loads(text)["sha256"])}
                connection.execute(
                    sa.text("UPDATE round SET link = :link WHERE number = :number"),
                    {"link": json.dumps(link), "number": number},
                )
        assert row.slug == slug
        with pytest.raises(StoreError, match="another key than the one that signed the first rounds"):
            proof.write_ledger(ws, slug, tmp_path / "l.jsonl")


def test_rounds_closed_by_an_earlier_version_have_no_link_and_it_is_said(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_workspace(home) as ws:
        slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=1)
        with ws.database.writing() as connection:
            connection.execute(sa.text("UPDATE round SET link = NULL"))
    with open_workspace(home) as ws:
        first = proof.write_ledger(ws, slug, tmp_path / "a.jsonl")
        assert (first.links.linked, first.links.unlinked, first.links.broken) == (0, 2, None)
        before = verify_ledger(first.path)
        assert before.intact, before
        assert "3 of the rounds have no link" in " ".join(before.notes)
        label_all(ws, slug, "ann", rounds=1)
        second = proof.write_ledger(ws, slug, tmp_path / "b.jsonl")
        assert (second.links.linked, second.links.unlinked) == (1, 2)
        after = verify_ledger(second.path, second.public)
        assert after.intact, after
        assert "1 links" in " ".join(after.checked)


def test_class_names_that_were_swapped_by_sql_are_found_by_export_verify_and_replay(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=1)
        with ws.database.writing() as connection:
            triggers = sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")
            for name in connection.execute(triggers).scalars().all():
                connection.execute(sa.text(f"DROP TRIGGER {name}"))
            for place, called in ((0, "x"), (1, CLASSES[0]), (0, CLASSES[1])):
                changed = sa.text("UPDATE class_name SET name = :called WHERE position = :place")
                connection.execute(changed, {"called": called, "place": place})
        made = proof.write_ledger(ws, slug, tmp_path / "l.jsonl")
        assert (made.links.broken, made.links.ground) == (0, False)
        assert "class names" in made.links.told
        assert replay(ws, slug).altered == 0
        for pseudonyms in (False, True):
            again = proof.write_ledger(ws, slug, tmp_path / "l.jsonl", pseudonyms=pseudonyms)
            found = verify_ledger(again.path, again.public)
            assert not found.intact
            assert "class names, items or arrays" in found.why


def test_links_that_were_removed_are_not_called_unaltered(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        slug, home = make(ws, people=1), ["--home", str(tmp_path / "home")]
        label_all(ws, slug, "ann", rounds=1)
        with ws.database.writing() as connection:
            connection.execute(sa.text("UPDATE round SET link = NULL"))
            connection.execute(sa.text("DROP TRIGGER vote_no_update"))
            connection.execute(sa.text("UPDATE vote SET person = 'eve' WHERE id = 2"))
    run, out = CliRunner().invoke, tmp_path / "l.jsonl"
    for given in (["export", slug, "--what", "ledger", "--out", str(out), *home], ["replay", slug, *home]):
        done = run(app, given)
        assert done.exit_code == 0, done.output
        assert "no round has a link" in done.stderr
    done = run(app, ["verify", str(out)])
    assert done.exit_code == 0, done.output
    assert "not proven" in done.output
    assert "no round has a link" in done.output
    assert "nothing was altered" not in done.output


def test_a_first_link_of_an_earlier_version_does_not_cover_the_items_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_workspace(tmp_path / "home") as ws:
        with monkeypatch.context() as earlier:
            earlier.setattr("labelchef.server.ledger.links.ground_of", lambda *_: None)
            slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=1)
        made = proof.write_ledger(ws, slug, tmp_path / "l.jsonl")
        assert (made.links.linked, made.links.broken, made.links.ground) == (2, None, None)
        found = verify_ledger(made.path, made.public)
        assert found.intact, found
        for told in (made.links.told, found.unproven, replay(ws, slug).unproven):
            assert told.startswith("not proven")
            assert "class names, items or arrays" in told


def test_votes_that_come_while_a_round_closes_are_in_the_next_link(postgres: Any, tmp_path: Path) -> None:
    """PostgreSQL: people vote again without pause while rounds close; every link fits afterwards."""
    with open_workspace(tmp_path / "home", postgres.new_database()) as ws:
        slug, stop = make(ws, people=1, budget=24, batch_size=3), threading.Event()
        label_all(ws, slug, "ann", rounds=1)
        truth = truth_of(90)
        known = [one.item for one in decisions.ledger(ws, slug, kind="vote").entries if one.item]
        failures: list[BaseException] = []

        def restless(item: str) -> None:
            try:
                while not stop.is_set():
                    cast_vote(ws, slug, "ann", item, int(truth[int(item)]), note="again")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=partial(restless, item)) for item in known[:2]]
        for thread in threads:
            thread.start()
        label_all(ws, slug, "bob", rounds=2)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures
        advance(ws, slug)
        made = proof.write_ledger(ws, slug, tmp_path / "l.jsonl")
        assert made.links.broken is None
        assert made.links.linked >= 4
        found = verify_ledger(made.path, made.public)
        assert found.intact, found


def test_the_key_is_readable_by_its_owner_only_and_stays(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        keys = {signing_key(ws).raw for _ in range(3)}
        assert len(keys) == 1
        path = ws.home / KEY_FILE
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert not [one for one in ws.home.iterdir() if one.name.startswith(f".{KEY_FILE}")]


def test_a_key_that_cannot_be_read_stops_no_campaign(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        (ws.home / KEY_FILE).write_text("damaged\n")
        slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=1)
        with ws.database.reading() as connection:
            assert check_links(connection, find(ws, slug).id).linked == 2
        with pytest.raises(StoreError, match="restore it from a copy"):
            proof.write_ledger(ws, slug, tmp_path / "l.jsonl")


def test_a_lost_key_is_not_replaced_silently_and_stops_no_campaign(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        slug, home, out = make(ws, people=1), ["--home", str(ws.home)], tmp_path / "l.jsonl"
        old = signing_key(ws).public
        (ws.home / KEY_FILE).unlink()
        label_all(ws, slug, "ann", rounds=1)
        assert not (ws.home / KEY_FILE).exists(), "the worker makes no new key"
        with ws.database.reading() as connection:
            assert check_links(connection, find(ws, slug).id).linked == 2
        with pytest.raises(StoreError, match=r"missing.*labelchef campaign key --new") as refused:
            proof.write_ledger(ws, slug, out)
        assert refused.value.code == "key"
        (ws.home / KEY_FILE).write_text(base64.b64encode(bytes(32)).decode() + "\n")
        with pytest.raises(StoreError, match="another key"):
            proof.write_ledger(ws, slug, out)
        run = CliRunner().invoke
        shown = run(app, ["campaign", "key", "--new", *home])
        assert shown.exit_code == 0, shown.output
        assert os.stat(ws.home / KEY_FILE).st_mode & 0o777 == 0o600
        public = proof.write_ledger(ws, slug, out).public
        assert public == shown.output.split()[0] != old
        done = run(app, ["verify", str(out), "--key", public])
        assert done.exit_code == 0, done.output
        assert "signed with another key" in done.output
        assert "ALTERED" not in done.output
        assert "nothing was altered" not in done.output
        done = run(app, ["verify", str(out), "--key", old])
        assert done.exit_code == 1
        assert "SIGNED WITH ANOTHER KEY" in done.output
        assert "ALTERED" not in done.output


def test_a_history_that_was_rolled_back_is_found_with_an_earlier_ledger(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        slug, run = make(ws, people=1), CliRunner().invoke
        short = proof.write_ledger(ws, slug, tmp_path / "short.jsonl").path
        label_all(ws, slug, "ann", rounds=1)
        long = proof.write_ledger(ws, slug, tmp_path / "long.jsonl").path
        cast_vote(ws, slug, "ann", tasks(ws, slug, "ann", 1)[0].item, "ham")
        vote = proof.write_ledger(ws, slug, tmp_path / "vote.jsonl").path
    assert verify_ledger(short).intact, "by itself nothing shows that rounds are missing"
    for new, old, rc in ((long, short, 0), (vote, long, 0), (long, long, 0), (short, long, 1), (long, vote, 1)):
        done = run(app, ["verify", str(new), "--since", str(old)])
        assert done.exit_code == rc, done.output
    assert isinstance(run(app, ["verify", str(long), "--since", str(tmp_path / "none")]).exception, InvalidInputError)


def test_who_imported_a_vote_is_kept_shown_and_signed_beside_the_claimed_person(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        slug = make(ws, people=1)
        for name in ("ann", "zoe"):
            accounts.create_account(ws, name, "annotator", "a long enough password")
        accounts.set_member(ws, slug, "ann")
        label_all(ws, slug, "ann", rounds=1)
        (tmp_path / "votes.csv").write_text("item,annotator,label\n59,zoe,ham\n58,ada,spam\n")
        import_votes(ws, slug, "lead", tmp_path / "votes.csv")
        import_votes(ws, slug, "lead", tmp_path / "votes.csv")
        label_all(ws, slug, "ann", rounds=1)
        frame = pd.read_csv(export_votes(ws, slug, tmp_path / "out.csv"), dtype=str, keep_default_na=False)
        said = dict(zip(frame["annotator"] + frame["item"], frame["imported_by"], strict=True))
        assert (said.pop("zoe59"), said.pop("ada58"), {*said.values()}) == ("lead", "lead", {""})
        assert items.detail(ws, slug, "59").people[0].imported_by == "lead"
        noted = [one for one in decisions.ledger(ws, slug, kind="change").entries if "imported" in one.what]
        assert [(one.who, one.what["imported"], one.what["file"]) for one in noted] == [("lead", 2, "votes.csv")]
        made = proof.write_ledger(ws, slug, tmp_path / "l.jsonl")
        assert made.links.broken is None
        assert verify_ledger(made.path, made.public).intact
        bodies = [one["body"] for one in map(json.loads, lines_of(made.path)) if one["kind"] == "vote"]
        known = {(one["person"], one["account"], one["imported_by"]) for one in bodies}
        assert known == {("ann", "ann", None), ("zoe", "zoe", "lead"), ("ada", None, "lead")}
        hidden = proof.write_ledger(ws, slug, tmp_path / "p.jsonl", pseudonyms=True)
        assert not re.search('"(lead|zoe|ada|ann|votes.csv)"', hidden.path.read_text())
        for altered in ("imported_by = NULL WHERE person = 'zoe'", "account_id = NULL WHERE person = 'ann'"):
            with ws.database.writing() as connection:
                connection.execute(sa.text("DROP TRIGGER IF EXISTS vote_no_update"))
                connection.execute(sa.text("CREATE TEMP TABLE before AS SELECT id, imported_by, account_id FROM vote"))
                connection.execute(sa.text(f"UPDATE vote SET {altered}"))
                assert check_links(connection, find(ws, slug).id).broken is not None, altered
                for name in ("imported_by", "account_id"):
                    stored = f"(SELECT {name} FROM before WHERE before.id = vote.id)"
                    connection.execute(sa.text(f"UPDATE vote SET {name} = {stored}"))
                connection.execute(sa.text("DROP TABLE before"))
                assert check_links(connection, find(ws, slug).id).broken is None


def test_links_over_votes_of_the_first_form_still_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier version wrote them: without account and importer, and without saying the form."""
    new = ("account", "imported_by")
    votes = chain_table.KINDS["vote"][1]
    columns = [one for one in votes.selected_columns if one.name not in new]
    with open_workspace(tmp_path / "home") as ws:
        accounts.create_account(ws, "ann", "lead", "a long enough password")
        slug = make(ws, people=1)
        with monkeypatch.context() as earlier:
            earlier.setitem(chain_table.KINDS, "vote", (Vote, votes.with_only_columns(*columns)))
            earlier.setattr(links, "FORM", 1)
            label_all(ws, slug, "ann", rounds=2)
            cast_vote(ws, slug, "ann", tasks(ws, slug, "ann", 1)[0].item, "ham")
            old = proof.write_ledger(ws, slug, tmp_path / "old.jsonl").path
        assert not any(name in old.read_text() for name in new)
        label_all(ws, slug, "ann", rounds=1)
        made = proof.write_ledger(ws, slug, tmp_path / "new.jsonl")
        assert made.links.broken is None
        assert replay(ws, slug).agrees
        found = verify_ledger(made.path, made.public, since=old)
        assert found.intact, found
        forms = ["account" in one["body"] for one in map(json.loads, lines_of(made.path)) if one["kind"] == "vote"]
        assert forms == sorted(forms)
        assert {*forms} == {False, True}


def test_a_ledger_signed_with_another_key_than_an_earlier_one_is_told(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        slug = make(ws, people=1)
        label_all(ws, slug, "ann", rounds=1)
        old = proof.write_ledger(ws, slug, tmp_path / "old.jsonl").path
    key = SigningKey(bytes(range(32)))
    bare, other = tmp_path / "bare.jsonl", tmp_path / "other.jsonl"
    bare.write_bytes(b"".join(rechained(lines_of(old), None, lambda _: None)))
    other.write_bytes(b"".join(rechained(lines_of(old), key, lambda _: None)))
    assert "the same key as old.jsonl" in " ".join(verify_ledger(old, since=old).checked)
    assert "old.jsonl is" in verify_ledger(bare, since=old).why
    found = verify_ledger(other, since=old)
    assert (found.intact, found.other_key) == (False, True)
    assert "--key" in found.why
    known = verify_ledger(other, key.public, since=old)
    assert known.intact
    assert "the new key is the one that was given" in " ".join(known.checked)


def test_without_the_extra_it_is_named(told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ws, slug, path, _ = told
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match=r"labelchef\[sign\]"):
        proof.write_ledger(ws, slug, tmp_path / "x.jsonl")
    with pytest.raises(MissingExtraError, match=r"labelchef\[sign\]"):
        verify_ledger(path)


def test_the_commands(told: Any, tmp_path: Path) -> None:
    ws, slug, path, public = told
    home, run = ["--home", str(ws.home)], CliRunner().invoke
    shown = run(app, ["campaign", "key", *home])
    assert shown.output.split()[0] == public
    assert fingerprint(public) in shown.output
    (tmp_path / "key.txt").write_text(shown.output)
    out = tmp_path / "l.jsonl"
    assert run(app, ["export", slug, "--what", "ledger", "--out", str(out), *home]).exit_code == 0
    good = run(
        app, ["verify", str(out), "--key", str(tmp_path / "key.txt"), "--data", str(path.parent / "dataset.csv")]
    )
    assert good.exit_code == 0, good.output
    assert "nothing was altered" in good.output
    out.write_bytes(out.read_bytes().replace(b'"person":"bob"', b'"person":"eve"', 1))
    bad = run(app, ["verify", str(out), "--key", public])
    assert bad.exit_code == 1
    line = next(k for k, one in enumerate(lines_of(out), start=1) if b'"person":"eve"' in one)
    assert f"ALTERED at line {line}:" in bad.output
    for given in (
        ["verify", str(tmp_path / "none")],
        ["verify", str(path.parent / "dataset.csv")],
        ["verify", str(path), "--key", "x"],
    ):
        assert isinstance(run(app, given).exception, InvalidInputError)
    assert isinstance(run(app, ["export", slug, "--out", str(out), "--pseudonyms", *home]).exception, InvalidInputError)


def test_a_folder_of_labelchef_clean_has_such_a_ledger(tmp_path: Path) -> None:
    cleaned, truth = tmp_path / "out", truth_of(90)
    people = Answers(truth=[CLASSES[k] for k in truth[:60]], error_rate=0.2)
    clean(small_data(), people, Settings(budget=12, batch_size=4), cleaned, report=False)
    found = verify_ledger(cleaned / "ledger.jsonl")
    assert found.intact, found
    assert "not signed" in " ".join(found.notes)
    lines = lines_of(cleaned / "ledger.jsonl")
    assert "not proven" in found.unproven
    (cleaned / "x.jsonl").write_bytes(b"".join([*lines[:5], *lines[6:]]))
    assert not verify_ledger(cleaned / "x.jsonl").intact
