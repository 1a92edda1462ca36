"""Accounts, votes from outside, exports and progress: on SQLite and PostgreSQL."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from pwdlib import PasswordHash
from sklearn.metrics import cohen_kappa_score

from labelchef import LabelCleaner, load_model
from labelchef.base.campaigns import CampaignState, Role, WaitReason
from labelchef.base.errors import (
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    LabelchefError,
    NotFoundError,
    ThrottledError,
)
from labelchef.server.campaigns.access import row_of
from labelchef.server.campaigns.campaigns import list_campaigns, status
from labelchef.server.campaigns.charts import map2d
from labelchef.server.campaigns.progress import agreement, cohen_kappa, fleiss_kappa, progress
from labelchef.server.campaigns.trained import replay
from labelchef.server.export import exchange
from labelchef.server.intake.importing import import_votes
from labelchef.server.items.decisions import ledger, reopen, resolve
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.people import accounts
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace
from tests.oracles import STEERED
from tests.store_support import CLASSES, label_all, make, small_data, tasks, truth_of, waits

PASSWORD = "correct horse"


def test_sign_in_and_out(ws: Workspace) -> None:
    assert not accounts.has_lead(ws)
    accounts.create_account(ws, "boss", Role.LEAD, PASSWORD)
    assert accounts.has_lead(ws)
    signed = accounts.sign_in(ws, "boss", PASSWORD)
    assert accounts.visitor(ws, session=signed.token)[0] == signed.account == accounts.find_account(ws, "boss")
    accounts.sign_out(ws, signed.token)
    assert accounts.visitor(ws, session=signed.token)[0] is None
    assert accounts.visitor(ws, session="\ud800")[0] is None
    with ws.reading() as connection:
        stored = str(connection.execute(sa.text("SELECT * FROM account")).all())
    assert PASSWORD not in stored
    assert "$argon2id$" in stored
    with pytest.raises(ConflictError, match="already"):
        accounts.create_account(ws, "boss", "annotator", PASSWORD)
    for name, role, password in (
        ("", "lead", PASSWORD),
        ("suggestion", "lead", PASSWORD),
        ("x", "king", PASSWORD),
        ("x", "lead", "short"),
        ("a\x00b", "lead", PASSWORD),
    ):
        with pytest.raises(InvalidInputError):
            accounts.create_account(ws, name, role, password)


def test_guessing_a_password_is_dear(usual_hasher: Callable[[], PasswordHash]) -> None:
    found = re.match(r"\$argon2id\$v=19\$m=(\d+),t=(\d+),p=\d+\$", usual_hasher().hash(PASSWORD))
    assert found is not None
    assert int(found[1]) >= 65536  # KiB
    assert int(found[2]) >= 3


def test_only_digests_of_secrets_are_stored(ws: Workspace) -> None:
    accounts.create_account(ws, "boss", "lead", PASSWORD)
    token, link = accounts.sign_in(ws, "boss", PASSWORD).token, accounts.create_link(ws)
    secret, info = accounts.create_api_token(ws, "boss", "laptop")
    with ws.reading() as connection:
        rows = [connection.execute(sa.text(f"SELECT * FROM {t}")).all() for t in ("login_session", "api_token")]
    for value in (token, link, secret):
        assert value not in str(rows)
    assert accounts.list_api_tokens(ws, "boss") == [info]


def test_wrong_passwords_are_slowed_down(ws: Workspace) -> None:
    accounts.create_account(ws, "ann", "annotator", PASSWORD)
    for _ in range(4):
        with pytest.raises(ForbiddenError) as refused:
            accounts.sign_in(ws, "ann", "wrong", address="1.2.3.4")
        assert refused.value.code == "credentials"
    accounts.sign_in(ws, "ann", PASSWORD, address="1.2.3.4")  # a success clears the count
    for name in ("ann", "nobody"):
        for _ in range(5):
            with pytest.raises(ForbiddenError):
                accounts.sign_in(ws, name, "wrong", address="1.2.3.4")
        with pytest.raises(ThrottledError, match="too many") as slowed:
            accounts.sign_in(ws, name, PASSWORD, address="1.2.3.4")
        assert 0 < slowed.value.retry_after <= 900
    accounts.sign_in(ws, "ann", PASSWORD, address="5.6.7.8")  # others are not locked out by it


def test_wrong_passwords_of_many_addresses_slow_down_and_lock_nobody_out(ws: Workspace) -> None:
    accounts.create_account(ws, "ann", "annotator", PASSWORD)
    accounts.create_account(ws, "bob", "annotator", PASSWORD)
    known = accounts.sign_in(ws, "ann", PASSWORD, address="9.9.9.9").mark
    other = accounts.sign_in(ws, "bob", PASSWORD, address="9.9.9.9").mark
    assert known is not None
    assert other is not None
    assert accounts.slowness(ws, "ann") == 0
    for k in range(60):
        with pytest.raises(ForbiddenError):
            accounts.sign_in(ws, "ann", "wrong", address=f"1.2.3.{k // 2}")
    assert 1 < accounts.slowness(ws, "ann") == accounts.slowness(ws, "ann", [other]) <= 10
    assert accounts.sign_in(ws, "ann", PASSWORD, address="5.6.7.8").account.name == "ann"
    assert accounts.slowness(ws, "ann", [other, known]) == 0
    for k in range(4):
        with pytest.raises(ForbiddenError):
            accounts.sign_in(ws, "bob", f"wrong {k}", address="9.9.9.9")
    for _ in range(5):
        with pytest.raises(ForbiddenError):
            accounts.sign_in(ws, "ann", "wrong", address="9.9.9.9")
    with pytest.raises(ThrottledError):
        accounts.sign_in(ws, "ann", PASSWORD, address="9.9.9.9")
    assert accounts.sign_in(ws, "ann", PASSWORD, address="9.9.9.9", marks=[known]).account.name == "ann"
    for _ in range(5):
        with pytest.raises(ForbiddenError):
            accounts.sign_in(ws, "ann", "wrong", address="9.9.9.9", marks=[known])
    with pytest.raises(ThrottledError):  # a stolen browser guesses no faster
        accounts.sign_in(ws, "ann", PASSWORD, address="7.7.7.7", marks=[known])
    accounts.set_password(ws, "bob", "another long horse")
    assert accounts._device(None, [other]) is None
    with ws.reading() as connection:
        assert accounts._device(row_of(connection, "bob"), [other]) is None, "a new password ends marks"


def test_a_person_has_a_limited_number_of_tokens(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MOST_TOKENS", 2)
    accounts.create_account(ws, "ann", "annotator", PASSWORD)
    first = accounts.create_api_token(ws, "ann", "one")[1]
    accounts.create_api_token(ws, "ann", "two")
    with pytest.raises(ConflictError, match="revoke one") as refused:
        accounts.create_api_token(ws, "ann", "three")
    assert refused.value.code == "tokens"
    accounts.revoke_api_token(ws, "ann", first.id)
    accounts.create_api_token(ws, "ann", "three")


def test_a_deactivated_account_is_out_at_once(ws: Workspace) -> None:
    campaign = make(ws)
    accounts.create_account(ws, "boss", "lead", PASSWORD)
    accounts.create_account(ws, "ann", "annotator", PASSWORD)
    accounts.set_member(ws, campaign, "ann")
    session = accounts.sign_in(ws, "ann", PASSWORD).token
    secret, _ = accounts.create_api_token(ws, "ann", "x")
    assert accounts.visitor(ws, token=secret)[0] is not None
    item = tasks(ws, campaign, "ann")[0].item
    accounts.set_active(ws, "ann", False)
    assert accounts.visitor(ws, session=session)[0] is None
    assert accounts.visitor(ws, token=secret)[0] is None
    with pytest.raises(ForbiddenError, match="deactivated"):
        cast_vote(ws, campaign, "ann", item, 0)
    with pytest.raises(ForbiddenError):
        accounts.sign_in(ws, "ann", PASSWORD)
    accounts.set_active(ws, "ann", True)
    cast_vote(ws, campaign, "ann", item, 0)
    with pytest.raises(ConflictError, match="last active lead"):
        accounts.set_active(ws, "boss", False)


def test_changing_a_password_ends_sessions(ws: Workspace) -> None:
    accounts.create_account(ws, "boss", "lead", PASSWORD)
    token = accounts.sign_in(ws, "boss", PASSWORD).token
    accounts.set_password(ws, "boss", "another horse")
    assert accounts.visitor(ws, session=token)[0] is None
    with pytest.raises(ForbiddenError):
        accounts.check_password(ws, "boss", PASSWORD)
    assert accounts.check_password(ws, "boss", "another horse").name == "boss"


def test_a_link_works_once(ws: Workspace) -> None:
    link = accounts.create_link(ws)
    signed = accounts.redeem_link(ws, link)
    assert signed.account.role == Role.LEAD
    with pytest.raises(ForbiddenError, match="used before"):
        accounts.redeem_link(ws, link)
    assert accounts.visitor(ws, token=link)[0] is None
    with pytest.raises(ForbiddenError):
        accounts.sign_in(ws, accounts.LOCAL_NAME, "")
    assert not accounts.has_lead(ws)


def test_tokens_can_be_revoked(ws: Workspace) -> None:
    accounts.create_account(ws, "ann", "annotator", None)
    secret, info = accounts.create_api_token(ws, "ann", "x")
    found = accounts.visitor(ws, token=secret)[0]
    assert found is not None
    assert found.name == "ann"
    accounts.revoke_api_token(ws, "ann", info.id)
    assert accounts.visitor(ws, token=secret)[0] is None
    with pytest.raises(NotFoundError):
        accounts.revoke_api_token(ws, "ann", info.id)
    with pytest.raises(NotFoundError):
        accounts.create_api_token(ws, "nobody", "x")


def test_tokens_end_with_an_account_and_with_its_password(ws: Workspace) -> None:
    accounts.create_account(ws, "boss", "lead", PASSWORD)
    accounts.create_account(ws, "ann", "annotator", PASSWORD)
    first = accounts.create_api_token(ws, "ann", "first")[0]
    accounts.set_active(ws, "ann", False)
    accounts.set_active(ws, "ann", True)
    assert accounts.visitor(ws, token=first)[0] is None
    second = accounts.create_api_token(ws, "ann", "second")[0]
    accounts.set_password(ws, "ann", "another horse")
    assert accounts.visitor(ws, token=second)[0] is None
    third = accounts.create_api_token(ws, "ann", "third")[0]
    accounts.revoke_api_token(ws, "ann")
    assert accounts.visitor(ws, token=third)[0] is None


def test_many_guesses_at_once_are_counted_like_one_by_one(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts.create_account(ws, "boss", "lead", PASSWORD)
    looked_at: list[str] = []

    def wrong(password: str, _stored: str | None) -> bool:
        looked_at.append(password)
        return False

    monkeypatch.setattr(accounts, "_verified", wrong)

    def guess(k: int) -> str:
        try:
            accounts.sign_in(ws, "boss", f"guess number {k}", address="1.2.3.4")
        except (ForbiddenError, ThrottledError) as error:
            return error.code
        return "in"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(guess, range(24)))
    assert len(looked_at) == 5
    assert sorted(set(answers)) == ["credentials", "throttled"]


def test_a_member_added_by_many_at_once_is_one_member(ws: Workspace) -> None:
    campaign = make(ws)
    accounts.create_account(ws, "ann", "annotator", None)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: accounts.set_member(ws, campaign, "ann"), range(12)))
    assert [a.name for a in accounts.members(ws, campaign)] == ["ann"]


def test_a_campaign_does_not_exist_for_who_is_no_member(ws: Workspace) -> None:
    campaign, other = make(ws), make(ws, "Other")
    accounts.create_account(ws, "ann", "annotator", None)
    accounts.create_account(ws, "boss", "lead", None)
    accounts.set_member(ws, campaign, "ann", "boss")
    accounts.set_member(ws, campaign, "ann", "boss")
    assert [a.name for a in accounts.members(ws, campaign)] == ["ann"]
    assert [c.slug for c in list_campaigns(ws, "ann")] == [campaign]
    assert [c.slug for c in list_campaigns(ws, "boss")] == [campaign, other]
    item = tasks(ws, other, "bob")[0].item
    for attempt in (lambda: next_tasks(ws, other, "ann"), lambda: cast_vote(ws, other, "ann", item, 0)):
        with pytest.raises(NotFoundError, match="there is no campaign"):
            attempt()
    accounts.set_member(ws, campaign, "ann", "boss", member=False)
    assert list_campaigns(ws, "ann") == []
    assert [c.slug for c in list_campaigns(ws, "boss")] == [campaign, other]
    changes = [e.what for e in ledger(ws, campaign, kind="change", person="boss").entries]
    assert changes == [{"member_removed": "ann"}, {"member_added": "ann"}]


def write(
    path: Path, rows: list[tuple[object, ...]], columns: tuple[str, ...] = ("item", "annotator", "label")
) -> Path:
    frame = pd.DataFrame(rows, columns=list(columns))
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_votes_from_outside_are_first_class(ws: Workspace, tmp_path: Path, suffix: str) -> None:
    campaign = make(ws, people=2, batch_size=2, budget=4)
    truth = [CLASSES[k] for k in truth_of(90)]
    rows: list[tuple[object, ...]] = [(k, who, truth[k]) for k in range(60) for who in ("zoe", "yan")]
    path = write(tmp_path / f"votes{suffix}", rows)
    dry = import_votes(ws, campaign, "lead", path, dry_run=True)
    assert dry.counts == {"read": 120, "decided": 116, "complete": 4}
    assert status(ws, campaign).people == ()
    assert status(ws, campaign).pending == 0
    stored = import_votes(ws, campaign, "lead", path)
    assert (stored.counts, stored.lines) == (dry.counts, dry.lines)
    assert import_votes(ws, campaign, "lead", path).counts == {"read": 120, "unchanged": 120}
    assert status(ws, campaign).pending == 58
    assert advance(ws, campaign) == 3  # count, close and select, which finds nothing left
    after = status(ws, campaign)
    assert after.summary.state == CampaignState.FINISHED
    assert after.summary.spent == 2, "labels that nobody was asked for cost nothing"
    assert import_votes(ws, campaign, "lead", path).counts == {"read": 120, "unchanged": 120}
    assert replay(ws, campaign).agrees
    decided = {e.item: e.label for e in ledger(ws, campaign, kind="decision").entries}
    assert len(decided) == 60
    assert all(label == truth_of(90)[int(item or 0)] for item, label in decided.items())
    item = next(iter(decided))
    other = next(c for c in CLASSES if c != truth[int(item or 0)])
    changed = [(item, "zoe", other), (item, "yan", other), (item, "xia", "-1")]
    found = import_votes(
        ws, campaign, "lead", write(tmp_path / f"more{suffix}", [(str(a), b, c) for a, b, c in changed])
    )
    assert found.counts == {"read": 3, "corrected": 3}
    assert advance(ws, campaign) == 1
    assert ledger(ws, campaign, kind="decision", item=item).entries[0].label == CLASSES.index(other)
    assert replay(ws, campaign).agrees


def test_a_file_with_one_bad_line_stores_nothing(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws)
    for bad, message in (
        ((999, "zoe", "ham"), "line 3: there is no item '999'"),
        ((1, "zoe", "tofu"), "line 3: label is 'tofu'"),
        ((1, "suggestion", "ham"), "line 3: 'suggestion' is no name"),
        ((1, "", "ham"), "line 3: '' is no name"),
    ):
        path = write(tmp_path / "votes.csv", [(0, "zoe", "ham"), bad])
        with pytest.raises(InvalidInputError, match=message):
            import_votes(ws, campaign, "lead", path)
    with pytest.raises(InvalidInputError, match="expected item, annotator and label"):
        import_votes(ws, campaign, "lead", write(tmp_path / "votes.csv", [(1, 2)], ("a", "b")))
    with pytest.raises(InvalidInputError, match="there is no file"):
        import_votes(ws, campaign, "lead", tmp_path / "none.csv")
    assert ledger(ws, campaign, kind="vote").entries == ()


def read(path: Path) -> pd.DataFrame:
    if path.suffix == ".csv":
        return pd.read_csv(path)
    return pd.read_json(path, lines=True) if path.suffix == ".jsonl" else pd.read_parquet(path)


def test_the_model_goes_out(ws: Workspace, tmp_path: Path) -> None:
    data = small_data()
    campaign = make(ws, data=data, batch_size=3, gamma=0.5, l2=0.01)
    label_all(ws, campaign, "ann", rounds=2)
    first = load_model(exchange.export_model(ws, campaign, tmp_path / "first.npz"))
    cleaner = LabelCleaner(gamma=0.5, l2=0.01)
    cleaner.fit(data.X, data.weak, X_val=data.validation[0], y_val=data.validation[1])
    made = [entry for entry in ledger(ws, campaign, kind="decision").entries if entry.label is not None]
    cleaner.update([int(str(entry.item)) for entry in made], [entry.label for entry in made])
    np.testing.assert_allclose(first.coef, cleaner.finish().coef, rtol=1e-10)
    assert first.classes_.tolist() == list(CLASSES)
    label_all(ws, campaign, "ann")
    assert (load_model(exchange.export_model(ws, campaign, tmp_path / "second.npz")).coef != first.coef).any()
    assert replay(ws, campaign).agrees
    with pytest.raises(InvalidInputError, match=r"ends in '\.pkl'; expected \.npz or \.onnx"):
        exchange.export_model(ws, campaign, tmp_path / "model.pkl")
    with pytest.raises(LabelchefError, match="name another file"):
        exchange.export_model(ws, campaign, tmp_path / "nowhere" / "model.npz")


def test_labels_and_votes_go_out(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, batch_size=3)
    held = tasks(ws, campaign, "ann", 3)
    label_all(ws, campaign, "ann")
    reopen(ws, campaign, held[0].item, "lead")
    resolve(ws, campaign, held[1].item, None, "lead")
    for suffix in ("csv", "jsonl", "parquet"):
        labels = exchange.export_labels(ws, campaign, tmp_path / f"labels.{suffix}")
        votes = exchange.export_votes(ws, campaign, tmp_path / f"votes.{suffix}")
        frame, ballots = read(labels).set_index("item"), read(votes)
        frame.index = frame.index.astype(str)
        assert len(frame) == 60
        assert frame["source"].value_counts().to_dict() == {"weak": 59, "cleaned": 1}
        assert frame.loc[held[2].item, "label"] == CLASSES[truth_of(90)[int(held[2].item)]]
        np.testing.assert_allclose(frame[[f"p_{c}" for c in CLASSES]].sum(axis=1), 1.0)
        assert len(ballots) == 3
        assert ballots["counts"].all()
    taken = import_votes(ws, campaign, "lead", tmp_path / "votes.csv")  # an export can be taken in again
    assert taken.counts["read"] == 3
    with pytest.raises(InvalidInputError, match="format"):
        exchange.export_labels(ws, campaign, tmp_path / "labels.doc")
    first = json.loads((tmp_path / "labels.jsonl").read_text().splitlines()[0])
    assert first["item"] == "0"


def test_a_report_of_a_campaign(ws: Workspace) -> None:
    campaign = make(ws)
    label_all(ws, campaign, "ann", rounds=2)
    page = exchange.report(ws, campaign)
    assert "labelchef: Small" in page
    assert page.count("<svg") >= 4
    assert "<script" not in page


def test_progress_in_numbers(ws: Workspace) -> None:
    campaign = make(ws, people=2, batch_size=4, budget=8, blind_share=0.5, **STEERED)
    truth = truth_of(90)
    for _ in range(2):
        for person in ("ann", "bob"):
            for one in tasks(ws, campaign, person, 4):
                label = int(truth[int(one.item)])
                wrong = person == "bob" and one.rank == 0
                cast_vote(ws, campaign, person, one.item, (label + 1) % 3 if wrong else label, seconds=2.0 + one.rank)
        advance(ws, campaign)
    assert waits(ws, campaign, "ann").reason == WaitReason.FINISHED
    found = progress(ws, campaign)
    assert [r.number for r in found.rounds] == [0, 1, 2]
    first, second = found.rounds[0], found.rounds[1]
    assert (first.predicted_change, first.realised_change) == (None, None)
    assert second.realised_change == pytest.approx(second.validation["loss"] - first.validation["loss"])
    assert (second.asked, second.resolved, second.seconds_per_item) == (4, 3, 3.5)
    assert second.predicted_change is not None
    assert second.predicted_change <= 0
    (pair,) = found.pairs
    assert (pair.first, pair.second, pair.items, pair.agreement) == ("ann", "bob", 8, 0.75)
    assert found.fleiss_kappa is not None
    quality = {p.person: p for p in found.people}
    assert (quality["ann"].votes, quality["ann"].compared, quality["ann"].quality) == (8, 6, 1.0)
    assert found.suggestion.shown + found.suggestion.blind == 8, "votes of the one round with blind items"


def test_agreement_beyond_chance() -> None:
    rng = np.random.default_rng(0)
    pairs = [(int(a), int(b)) for a, b in rng.integers(0, 3, (200, 2))] + [(1, 1)] * 50
    expected = cohen_kappa_score([a for a, _ in pairs], [b for _, b in pairs])
    assert cohen_kappa(pairs) == pytest.approx(expected)
    assert agreement([(0, 0), (0, 1)]) == 0.5
    assert cohen_kappa([(1, 1), (1, 1)]) is None
    assert fleiss_kappa([]) is None
    # Fleiss (1971), table 1 of the worked example on Wikipedia: 10 subjects, 14 raters, 5 categories
    table = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    rows = [[c for c, count in enumerate(row) for _ in range(count)] for row in table]
    assert fleiss_kappa(rows) == pytest.approx(0.20993, abs=1e-5)


def test_a_map_of_the_items(ws: Workspace) -> None:
    campaign = make(ws)
    label_all(ws, campaign, "ann")
    found = map2d(ws, campaign)
    assert len(found) == 90
    assert found["what"].value_counts().to_dict() == {"weak": 52, "validation": 30, "cleaned": 4, "selected": 4}
    kept = next((ws.home / "campaigns").glob("*/map*"))
    written = kept.stat().st_mtime_ns
    pd.testing.assert_frame_equal(map2d(ws, campaign), found)
    assert kept.stat().st_mtime_ns == written, "the places are computed once"
