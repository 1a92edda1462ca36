"""What the audit proves of the present model: the counts, the bound, its level, and that it survives files and restarts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments.certified import KINDS, Simulated, simulated
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from labelchef import InvalidInputError, LabelCleaner
from labelchef.campaign.audit import audit_report
from labelchef.campaign.certify import (
    FIRST,
    Asked,
    certificate,
    decoded,
    encoded,
    first_answers,
    next_state,
    shares,
    state_of,
    upper_mean,
)
from labelchef.campaign.steps import Rules, select
from labelchef.campaign.stopping import Certified, MaxRounds, Progress, parse_rule
from labelchef.domain.campaigns import CampaignState
from labelchef.domain.records import UNRESOLVED, AuditState, AuditWindow
from labelchef.domain.settings import Settings
from labelchef.ledger.conversion import record_as_json, record_from_json
from labelchef.services import campaigns, trained
from labelchef.services.people.access import find
from labelchef.services.worker import advance
from labelchef.services.workspace import open_workspace
from tests.store_support import label_all, make


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=200))
def test_predictions_survive_their_text(pairs: list[tuple[int, int]]) -> None:
    before, after = np.array(pairs, dtype=np.uint16).T
    np.testing.assert_array_equal(decoded(before, encoded(before, after)), after)


def test_the_text_is_short_where_little_changes(rng: np.random.Generator) -> None:
    before = rng.integers(0, 4, 100_000).astype(np.uint16)
    after = before.copy()
    after[rng.choice(100_000, 300, replace=False)] = 0
    assert len(encoded(before, after)) < 1500


@pytest.mark.parametrize(("wrong", "audits"), [(0, 20), (5, 50), (10, 100), (100, 500)])
def test_the_bound_is_wider_than_that_for_one_look_and_not_by_much(wrong: int, audits: int) -> None:
    (found,) = upper_mean(np.array([float(wrong)]), np.array([float(audits)]), np.array([0.05]))
    once = beta.ppf(0.95, wrong + 1, audits - wrong)
    assert once < found < wrong / audits + 2.1 * (once - wrong / audits)


def test_more_wrong_ones_and_a_higher_level_raise_the_bound() -> None:
    wrong, audits = np.arange(0.0, 40.0), np.full(40, 60.0)
    found = [upper_mean(wrong, audits, np.full(40, alpha)) for alpha in (0.1, 0.05, 0.01)]
    assert (np.diff(found, axis=1) > 0).all()
    assert (np.diff(found, axis=0) > 0).all()
    assert (np.array(found) >= wrong / audits).all()


def test_windows_share_the_risk() -> None:
    assert shares(1).tolist() == [0.5]
    assert 0.97 < shares(40).sum() <= 1.0


def course(
    rng: np.random.Generator, n: int = 300, rounds: int = 12
) -> tuple[list[np.ndarray], list[Asked], np.ndarray]:
    """Models that change in any way, rounds with some audited samples or none, and the answers, some undecided."""
    y = rng.integers(0, 3, n)
    y[rng.random(n) < 0.05] = UNRESOLVED
    models = [np.where(rng.random(n) < 0.8, np.maximum(y, 0), rng.integers(0, 3, n)).astype(np.uint16)]
    left, asked = rng.permutation(n), []
    for r in range(rounds):
        items = np.sort(left[15 * r : 15 * (r + 1)])
        asked.append(Asked(items, y[items], rng.random(15) < (0.5 if r % 3 else 0.0)))
        models.append(np.where(rng.random(n) < 0.1, rng.integers(0, 3, n), models[-1]).astype(np.uint16))
    return models, asked, y


def test_the_counts_bound_the_errors_of_the_present_model(rng: np.random.Generator) -> None:
    """e_t ≤ ε_r − A_r + D_r for every round, and windows hold the means of these numbers, counted one by one."""
    models, asked, y = course(rng)
    pool = np.ones(300, dtype=bool)
    state = state_of(models[-1], models[:-1], asked, pool)
    unasked = pool.copy()
    pools, counts = [], []
    for one in asked:
        pools.append(unasked.copy())
        unasked[one.items] = False
    errors = int((models[-1] != y)[unasked].sum())
    for r, one in enumerate(asked):
        wrong, gone = models[r] != y, pools[r] & ~unasked
        found, differ = int((wrong & gone).sum()), int(((models[r] != models[-1]) & unasked).sum())
        assert errors <= int((wrong & pools[r]).sum()) - found + differ
        counts += [(int(pools[r].sum()), bool(wrong[item]), found, differ) for item in one.items[one.drawn]]
    assert state.unasked == unasked.sum() == 120
    assert (state.asked, state.right) == (180, int((models[-1] == y)[~unasked].sum()))
    first, second = state.windows[:2]
    assert (first.audits, first.pool) == (len(counts), 285)  # nothing was audited in the first round
    assert first.wrong == pytest.approx(sum(size * wrong for size, wrong, _, _ in counts) / 285)
    assert first.found == pytest.approx(np.mean([found for _, _, found, _ in counts]))
    assert first.differ == pytest.approx(np.mean([differ for _, _, _, differ in counts]))
    assert FIRST <= first.audits - second.audits < FIRST + 15
    assert [w.audits for w in state.windows] == sorted((w.audits for w in state.windows), reverse=True)


def test_a_certificate_is_the_best_window_and_subtracts_disagreement() -> None:
    window = AuditWindow(audits=200, wrong=10.0, pool=1000, found=5.0, differ=0.0)
    state = AuditState("", 900, 100, 97, (window,))
    plain = certificate(state)
    (most,) = upper_mean(np.array([10.0]), np.array([200.0]), np.array([0.025]))
    assert plain is not None
    assert plain.accuracy == plain.if_no_worse == pytest.approx(1 - (1000 * most - 5) / 900)
    assert plain.everywhere == pytest.approx((97 + 900 * plain.accuracy) / 1000)
    other = certificate(replace(state, windows=(replace(window, differ=45.0),)))
    assert other is not None
    assert other.accuracy == pytest.approx(plain.accuracy - 0.05)
    assert (other.if_no_worse, other.differ) == (plain.if_no_worse, 0.05)
    late = certificate(replace(state, windows=(replace(window, differ=300.0), replace(window, audits=100, wrong=2.0))))
    assert late is not None
    assert (late.audits, late.differ) == (100, 0.0)
    strict = certificate(state, 0.99)
    assert strict is not None
    assert strict.accuracy < plain.accuracy
    assert certificate(None) is None
    assert certificate(replace(state, windows=())) is None
    assert certificate(replace(state, unasked=0)) is None
    assert str(plain).startswith("the present model predicts at least 88.3 % of the 900 unasked samples")


@pytest.mark.parametrize("name", ["stays", "falls", "runs out", "chosen well"])
def test_it_holds_its_level(name: str) -> None:
    """150 campaigns, looked at after every round; `python -m experiments certified` has 2,000 of each kind."""
    above, _, false = simulated(name, 150)[0]
    assert above <= 14  # 5 % are 7.5; more than 14 have a probability of 1 %
    assert false <= 14


def test_simulated_campaigns_are_counted_as_real_ones() -> None:
    kind = replace(KINDS["improves"], pool=200, rounds=7)
    played = Simulated(kind, 3, np.random.default_rng(2))
    claims = [claim for _, claim in played.play()]
    models = [model.astype(np.uint16) for model in played.models]  # the answer is always 0, a wrong class 1
    for run in range(3):
        asked = [
            Asked(np.flatnonzero(all_[run]), np.zeros(20, dtype=np.int64), drawn[run][all_[run]])
            for drawn, all_ in played.asked
        ]
        for t in range(1, 7):
            state = state_of(models[t][run], [m[run] for m in models[:t]], asked[:t], np.ones(200, dtype=bool))
            found = certificate(state)
            assert found is not None
            assert found.accuracy == pytest.approx(claims[t - 1][0, run])


def test_the_mean_of_past_models_says_nothing_of_one_that_fell() -> None:
    """What the certificate is for."""
    kind = replace(KINDS["falls"], rounds=12, accuracy=lambda r, *_: 0.98 if r < 10 else 0.5)
    truth, (certified, mean, _) = list(Simulated(kind, 20, np.random.default_rng(1)).play())[-1]
    assert (certified <= truth).all()
    assert (truth < mean).all()


@pytest.fixture(scope="module")
def cleaner() -> LabelCleaner:
    """A campaign of 8 rounds, half of it audited."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 460)
    X = rng.normal(size=(460, 6)) + 1.5 * np.eye(3, 6)[y]
    y[7] = 2
    found = LabelCleaner(budget=80, batch_size=10, audit=0.5, random_state=3)
    found.fit(X[:400], np.eye(3)[rng.integers(0, 3, 400)], X_val=X[400:], y_val=y[400:], askable=np.arange(400) != 7)
    found.run(lambda batch: np.where(batch.indices % 17 == 0, UNRESOLVED, y[batch.indices]))
    found.X_, found.y_ = X[:400], y[:400]
    return found


def test_a_campaign_carries_its_certificate(cleaner: LabelCleaner) -> None:
    session, records = cleaner._session, cleaner.rounds_
    now, final = cleaner.certificate(), cleaner.certificate(predicted=cleaner.finish().predict(cleaner.X_))
    assert now is not None
    assert final is not None
    assert now.unasked == 319  # one is not askable, those left undecided were asked
    assert now == cleaner.certificate(predicted=cleaner.classes_[session.predicted(slice(400))])
    assert final.accuracy == pytest.approx(now.accuracy, abs=0.02)
    guess = cleaner.certificate(predicted=np.zeros(400, dtype=int))
    assert guess is not None
    assert guess.accuracy < now.accuracy - 0.2
    asked = first_answers(records, session._pool)
    assert sum(len(one.items) for one in asked) == 80
    assert sum(int(one.drawn.sum()) for one in asked) == sum(len(r.batch.diagnostics.audited) for r in records) == 40
    again = [record_from_json(record_as_json(record)) for record in records]
    assert [one.audit for one in again] == [one.audit for one in records]
    classes = session.predicted(slice(400)).astype(np.uint16)
    assert next_state(again[:-1], again[-1], classes, session._pool) == records[-1].audit
    old = [replace(record, audit=None) if record.number < 5 else record for record in records]
    assert [int(one.drawn.sum()) for one in first_answers(old, session._pool)] == [0] * 5 + [5] * 3, "an older version"
    report = audit_report(records, 0.5, 3)
    assert report.certificate == now
    assert report.course[-1].certified == now.accuracy
    assert "certified at 95 %" in str(report)


def test_without_an_audit_nothing_is_kept_and_nothing_certified() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    cleaner = LabelCleaner().fit(X[:40], np.eye(2)[y[:40]], X_val=X[40:], y_val=y[40:])
    assert cleaner.rounds_[0].audit is None
    with pytest.raises(InvalidInputError, match=r"such as audit=0\.1"):
        cleaner.certificate()
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        LabelCleaner(audit=0.5).fit(X[:40], np.eye(2)[y[:40]], X_val=X[40:], y_val=y[40:]).certificate(1.5)


def test_the_rule_as_users_write_it(cleaner: LabelCleaner) -> None:
    assert parse_rule("Certified(0.9)") == Certified(0.9, 0.95)
    assert parse_rule("Certified(0.9, level=0.99) | MaxRounds(3)").reads_answers
    assert str(Certified(0.9)) == "accuracy ≥ 0.9, certified at 95 %"
    now = cleaner.certificate()
    assert now is not None
    assert Certified(now.accuracy - 1e-6).met(Progress(cleaner.rounds_))
    assert not Certified(now.accuracy + 1e-6).met(Progress(cleaner.rounds_))
    assert not Certified(now.accuracy - 1e-6, 0.99).met(Progress(cleaner.rounds_))
    for text in ("Certified(1.5)", "Certified(0.9, 95)", "Certified(0)"):
        with pytest.raises(InvalidInputError, match="between 0 and 1"):
            parse_rule(text)
    with pytest.raises(InvalidInputError, match="audit is 0"):
        Rules.of(Settings(stop="Certified(0.9)"))
    with pytest.raises(InvalidInputError, match="suggestion votes on them"):
        Rules.of(Settings(stop="MaxRounds(9) | Certified(0.9)", audit=0.2, suggestion_votes=True))
    assert Rules.of(Settings(stop="Certified(0.9)", audit=0.1)).stop == Certified(0.9)
    assert not MaxRounds(3).reads_answers


def test_a_stored_campaign_stops_by_it_and_a_restart_finds_the_same(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, audit=1.0, stop="Certified(0.2)", budget=60)
        while campaigns.summary(ws, name).state is CampaignState.RUNNING:
            label_all(ws, name, "ann")
        ended = campaigns.status(ws, name)
    assert ended.summary.message == "stopping rule: accuracy ≥ 0.2, certified at 95 %"
    proved = ended.audit.certificate
    assert proved is not None
    assert proved.accuracy >= 0.2
    with open_workspace(tmp_path / "home") as ws:
        row = find(ws, name)
        session = trained.trained_now(ws, row).session
        assert session.certificate() == proved
        campaigns.change_settings(ws, name, "lead", stop=None)
        advance(ws, name)
        label_all(ws, name, "ann", rounds=2)
        assert trained.replay(ws, name).agrees
        session = trained.trained_now(ws, find(ws, name)).session
        after = session.certificate()
        assert after is not None
        assert after == session.certificate(session.predicted(slice(session.n_train)))
        assert after.audits > proved.audits


def test_a_draw_that_was_cut_is_not_counted(cleaner: LabelCleaner) -> None:
    """Reopened samples take places of a batch; the audited ones that stay are the first in order, no fair draw."""
    reopened = np.flatnonzero(cleaner.cleaned_)[:8]
    session = cleaner._session
    assert len(session.select(10).diagnostics.audited) == 5
    assert select(session, 10, 0, reopened).batch.diagnostics.audited == ()
    assert len(select(session, 10, 0, reopened[:3]).batch.diagnostics.audited) == 5
