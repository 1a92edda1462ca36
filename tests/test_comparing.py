"""Selectors replayed on a campaign's own labels, against loops written out by hand."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from labelchef import Known, LabelCleaner
from labelchef.base.errors import ConflictError, InvalidInputError, MissingExtraError
from labelchef.base.records import UNRESOLVED
from labelchef.base.settings import Settings
from labelchef.base.validation import AS_ASKED, Cell, Comparison, Gain, Standing
from labelchef.chef.choice import ALL_SELECTORS
from labelchef.chef.selectors.ranking import RankingSelector
from labelchef.data.campaign_data import CampaignData
from labelchef.data.training_rows import draw_judges
from labelchef.judge.gain import DRAWS, Judged, drawn_areas
from labelchef.loop import start
from labelchef.loop.session import Session
from labelchef.server.campaigns import campaigns, trained
from labelchef.server.compare import comparing, comparison_files
from labelchef.server.items import decisions
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.store import campaign_table
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.oracles import STEERED, cleaner_of
from tests.store_support import CLASSES, campaign_data, label_all, make, small_data, tasks, truth_of
from tests.test_campaign_cli import labelchef

N, N_VAL, SIZE = 90, 160, 6
TRUTH = truth_of(N + N_VAL)
CHOSEN: dict[str, Any] = {
    **STEERED, "preset": "paper", "gamma": 0.8, "l2": 0.05, "holdout": 0.5, "batch_size": SIZE, "budget": 36,
}  # fmt: skip
NAMES = ["expected_infl", "increm_infl", "margin", "random"]


def noisy() -> CampaignData:
    """Classes that overlap, so that orders differ."""
    data = small_data(N, N_VAL)
    rng = np.random.default_rng(7)
    return campaign_data(data.X + 2 * rng.normal(size=data.X.shape), data.weak, *data.validation)


def labelled(
    ws: Workspace, name: str = "Done", data: CampaignData | None = None, rounds: int = 6, **chosen: Any
) -> str:
    campaign = make(ws, name, data or noisy(), **{**CHOSEN, **chosen})
    label_all(ws, campaign, "ann", rounds=rounds, n=N + N_VAL - 30)
    return campaign


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with open_workspace(tmp_path_factory.mktemp("home")) as opened:
        yield opened


@pytest.fixture(scope="module")
def done(shared: Workspace) -> str:
    """A finished campaign in which everything asked was decided."""
    return labelled(shared)


@pytest.fixture(scope="module")
def found(shared: Workspace, done: str) -> Comparison:
    return comparing.compare(shared, done, NAMES, repeats=3)


def row_of(ws: Workspace, campaign: str) -> Any:
    with ws.reading() as connection:
        return campaign_table.find_campaign(connection, campaign)


def one(found: Comparison, name: str) -> Standing:
    return next(standing for standing in found.standings if standing.selector == name)


def by_hand(pool: Sequence[int], truth: Any, selector: str, **changes: Any) -> tuple[list[float], Any]:
    """The macro-F1 of the judges as labels come in, by asking for a full ranking and taking those in the pool."""
    data, known = noisy(), set(pool)
    settings = {**CHOSEN, **changes}
    chosen = {
        "selector": selector,
        "look_ahead": False,
        "tol": 1e-5,
        "holdout": 0.5,
        "gamma": settings["gamma"],
        "l2": settings["l2"],
        "budget": None,
    }
    cleaner = cleaner_of(**{**STEERED, **chosen}).fit(
        data.X, data.weak, X_val=data.validation[0], y_val=[CLASSES[k] for k in data.validation[1]], classes=CLASSES
    )
    judges = draw_judges(data.validation[1], len(CLASSES), 0.5, 0)

    def measured() -> float:
        predicted = [CLASSES.index(name) for name in cleaner.predict(data.validation[0][judges])]
        return float(f1_score(data.validation[1][judges], predicted, average="macro"))

    curve = [measured()]
    while known:
        ranked = [i for i in cleaner.query(N).indices.tolist() if i in known][: settings["batch_size"]]
        cleaner.update(ranked, truth[ranked])
        known -= set(ranked)
        curve.append(measured())
    return curve, cleaner.labels_


@pytest.mark.parametrize("selector", ["expected_infl", "margin", "random"])
def test_a_replay_is_a_loop_over_the_cleaner_with_answers_for_the_pool_alone(
    shared: Workspace, done: str, found: Comparison, selector: str
) -> None:
    pool = comparing.known_answers(shared, row_of(shared, done))
    assert sorted(pool.labels.tolist()) == sorted(TRUTH[pool.positions].tolist())
    curve, _ = by_hand(pool.positions.tolist(), TRUTH, selector)
    first = comparing.compare(shared, done, [selector], repeats=1)
    np.testing.assert_allclose(one(first, selector).curve, curve, atol=1e-9)
    assert found.asked == (0, 6, 12, 18, 24, 30, 36)


def test_own_order_and_own_selector_give_the_curve_of_the_campaign(
    shared: Workspace, done: str, found: Comparison
) -> None:
    then = [r.validation["f1_macro"] for r in campaigns.rounds(shared, done) if r.validation]
    assert len(set(then)) > 3
    np.testing.assert_allclose(one(found, AS_ASKED).curve, then, atol=1e-9)
    np.testing.assert_allclose(one(found, "expected_infl").curve, then, atol=1e-9)
    same = one(found, "expected_infl").difference
    assert same is not None
    assert (same.change, same.low, same.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    assert one(found, AS_ASKED).suggestion_share == one(found, "expected_infl").suggestion_share


def test_all_begin_and_end_alike_and_differ_between(found: Comparison) -> None:
    assert {one.selector for one in found.standings} == {AS_ASKED, *NAMES}
    for standing in found.standings:
        assert standing.curve[0] == pytest.approx(found.standings[0].curve[0], abs=1e-12)
        assert standing.curve[-1] == standing.after[-1] == pytest.approx(found.level, abs=1e-9)
        assert standing.labels_to_reach is not None
        grid = np.linspace(0, 36, 36_001)
        assert standing.area == pytest.approx(np.interp(grid, found.asked, standing.curve).mean(), abs=1e-4)
        assert standing.after[1] == pytest.approx(np.interp(18, found.asked, standing.curve))
    assert len({standing.area for standing in found.standings}) > 2
    areas = [standing.area for standing in found.standings]
    assert areas == sorted(areas, reverse=True)


def test_everyone_ends_with_the_labels_of_the_campaign(
    shared: Workspace, done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Session] = []
    new = start.new_session

    def kept(*arguments: Any) -> Session:
        made.append(new(*arguments))
        return made[-1]

    now = trained.trained_now(shared, row_of(shared, done)).session.labels.Y
    monkeypatch.setattr(comparing, "new_session", kept)
    comparing.compare(shared, done, NAMES, 9, repeats=2)
    assert [session.selector.name for session in made] == [AS_ASKED, *NAMES, "random"]
    for session in made:
        np.testing.assert_array_equal(session.labels.Y, now)


def test_chance_is_repeated_with_one_split_and_one_first_model(shared: Workspace, done: str, found: Comparison) -> None:
    chance = one(found, "random")
    assert chance.repeats == 3
    assert chance.area_half is not None
    assert chance.area_half > 0
    assert one(found, "margin").area_half is None
    assert chance.difference is not None
    width = chance.difference.high - chance.difference.low
    alone = one(comparing.compare(shared, done, ["random"], repeats=1), "random").difference
    assert alone is not None
    assert width > 1.5 * chance.area_half
    assert width > alone.high - alone.low
    single = one(comparing.compare(shared, done, ["random"], repeats=1), "random")
    assert single.curve[0] == chance.curve[0]
    assert single.curve[1:-1] != chance.curve[1:-1]
    assert any("random: figures are means of 3 replays" in note for note in found.notes)


@pytest.mark.parametrize("name", sorted(ALL_SELECTORS))
def test_selectors_say_whether_they_draw_chance(name: str) -> None:
    """By what they do to the random numbers they are given."""
    try:
        made = ALL_SELECTORS[name]()
    except MissingExtraError as missing:
        pytest.skip(str(missing))
    data = small_data()
    cleaner = LabelCleaner(selector=made, gamma=0.8, l2=0.05, holdout=0.0)
    cleaner.fit(data.X, data.weak, X_val=data.validation[0], y_val=data.validation[1])
    session = cleaner._session
    context = session.context(~session.labels.cleaned)
    before = context.rng.bit_generator.state
    made.select(context, 5)
    drew = context.rng.bit_generator.state != before
    assert drew == (isinstance(made, RankingSelector) and made.chance)


def test_samples_nobody_can_answer_for_are_never_asked() -> None:
    data = small_data()
    askable = np.arange(60) % 2 == 0
    cleaner = LabelCleaner(gamma=0.8, l2=0.05, holdout=0.0, budget=None, batch_size=7)
    cleaner.fit(data.X, data.weak, X_val=data.validation[0], y_val=data.validation[1], known=Known(askable=askable))
    np.testing.assert_array_equal(np.isnan(cleaner.scores()), ~askable)
    result = cleaner.run(lambda batch: TRUTH[batch.indices])
    np.testing.assert_array_equal(cleaner.cleaned_, askable)
    np.testing.assert_allclose(cleaner.labels_[~askable], data.weak[~askable], rtol=1e-12)
    assert result.message == "nothing left to clean"
    for wrong in ([True] * 59, [1] * 60):
        with pytest.raises(InvalidInputError, match="expected true or false for each of 60 samples"):
            cleaner.fit(
                data.X, data.weak, X_val=data.validation[0], y_val=data.validation[1], known=Known(askable=wrong)
            )
    with pytest.raises(InvalidInputError, match="split is 'train'"):
        cleaner.judged("train")


def test_what_has_no_answer_is_left_out_and_said(shared: Workspace) -> None:
    """Ambiguous items, one taken back and the open batch are no answers; a correction and a lead's word are."""
    campaign = make(shared, "Mixed", noisy(), **{**CHOSEN, "budget": 60})
    vague = tasks(shared, campaign, "ann", 2)
    for task in vague:
        cast_vote(shared, campaign, "ann", task.item, None)
    label_all(shared, campaign, "ann", rounds=5, n=N + N_VAL - 30)
    before = comparing.known_answers(shared, row_of(shared, campaign))
    corrected, reopened = (str(position) for position in before.positions[:2])
    wrong = (TRUTH[int(corrected)] + 1) % 3
    cast_vote(shared, campaign, "ann", corrected, int(wrong))
    decisions.reopen(shared, campaign, reopened, "lead")
    decisions.resolve(shared, campaign, vague[0].item, 2, "lead")
    known = comparing.known_answers(shared, row_of(shared, campaign))
    truth = TRUTH.copy()
    truth[int(corrected)], truth[int(vague[0].item)] = wrong, 2
    assert dict(zip(known.positions.tolist(), known.labels.tolist(), strict=True)) == {
        p: truth[p] for p in [*before.positions.tolist(), int(vague[0].item)] if p != int(reopened)
    }
    assert known.positions.tolist()[0] == int(corrected)
    assert known.positions.tolist()[-1] == int(vague[0].item)
    assert known.votes[int(corrected)] == (("ann", wrong),)
    assert set(known.votes[int(vague[0].item)]) == {("ann", UNRESOLVED), ("lead", 2)}
    assert known.unanswered == 8  # one vague, one taken back, six in the open batch
    found = comparing.compare(shared, campaign, ["margin"])
    assert (found.labels, found.unanswered) == (len(known), 8)
    assert any(note.startswith("8 items were asked and have no answer") for note in found.notes)
    curve, _ = by_hand(known.positions.tolist(), truth, "margin")
    np.testing.assert_allclose(one(found, "margin").curve, curve, atol=1e-9)


def test_labels_given_with_the_data_are_no_answers(shared: Workspace) -> None:
    data = noisy()
    given = np.full(N, UNRESOLVED)
    given[:50] = TRUTH[:50]
    labelled_data = campaign_data(data.X, data.weak, *data.validation, clean=given)
    campaign = labelled(shared, "Given", labelled_data, rounds=4, budget=24)
    known = comparing.known_answers(shared, row_of(shared, campaign))
    assert len(known) == 24
    assert known.positions.min() >= 50


def test_a_selector_that_learns_from_votes_sees_those_of_the_pool(
    shared: Workspace, done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[tuple[int, str, int]]] = []
    margin = ALL_SELECTORS["margin"]

    class Curious(margin):  # type: ignore[valid-type,misc]
        def rank(self, context: Any) -> Any:
            seen.append([vote for record in context.rounds for vote in record.votes])
            return super().rank(context)

    monkeypatch.setitem(ALL_SELECTORS, "margin", Curious)
    comparing.compare(shared, done, ["margin"])
    assert [len(votes) for votes in seen] == [0, 6, 12, 18, 24, 30]
    assert {who for _, who, _ in seen[-1]} == {"ann"}
    assert all(label == TRUTH[item] for item, _, label in seen[-1])


def test_intervals_are_those_of_a_bootstrap_over_the_samples(rng: np.random.Generator) -> None:
    n, asked = 80, (0, 5, 15)
    y = rng.integers(0, 3, n)
    zero: Any = None

    def curve(error: float) -> list[Judged]:
        return [Judged(zero, np.where(rng.random(n) < error, (y + 1) % 3, y), rng.random(n)) for _ in asked]

    one, two = curve(0.3), curve(0.4)
    ours = drawn_areas(y, one, asked, "f1_macro", 3, 0) - drawn_areas(y, two, asked, "f1_macro", 3, 0)
    weights = (2.5 / 15, 7.5 / 15, 5 / 15)
    theirs = []
    for _ in range(1000):
        at = rng.integers(0, n, n)
        score = [f1_score(y[at], p.predicted[at], average="macro") for c in (one, two) for p in c]
        theirs.append(np.dot(weights, score[:3]) - np.dot(weights, score[3:]))
    assert len(ours) == DRAWS
    assert ours.mean() == pytest.approx(np.mean(theirs), abs=4 * ours.std() / np.sqrt(500))
    assert ours.std() == pytest.approx(np.std(theirs), rel=0.15)
    loss = drawn_areas(y, one, asked, "loss", 3, 0)
    assert loss.mean() == pytest.approx(
        np.dot(weights, [p.losses.mean() for p in one]), abs=4 * loss.std() / np.sqrt(DRAWS)
    )


def test_less_loss_is_better_and_a_test_set_judges(shared: Workspace) -> None:
    data = noisy()
    extra = small_data(N, N_VAL, seed=0)
    (X_val, y_val), (X_extra, y_extra) = data.validation, extra.validation
    both = campaign_data(data.X, data.weak, X_val[80:], y_val[80:], X_test=X_extra[:80], y_test=y_extra[:80])
    campaign = labelled(shared, "Loss", both, rounds=4, budget=24, target_metric="loss")
    found = comparing.compare(shared, campaign, ["margin", "increm_infl"])
    assert (found.split, found.samples) == ("test", 80)
    areas = [standing.area for standing in found.standings]
    assert areas == sorted(areas)
    then = [r.test["loss"] for r in campaigns.rounds(shared, campaign) if r.test]
    np.testing.assert_allclose(one(found, AS_ASKED).curve, then, rtol=1e-6)
    reached = one(found, AS_ASKED).labels_to_reach
    assert reached is not None
    assert np.interp(reached, found.asked, then) == pytest.approx(then[-1], abs=1e-6)


def test_too_few_judges_are_said(shared: Workspace) -> None:
    data = noisy()
    small = campaign_data(data.X, data.weak, data.validation[0][:40], data.validation[1][:40])
    campaign = labelled(shared, "Few judges", small, rounds=4, budget=24, holdout=0.0)
    found = comparing.compare(shared, campaign, ["margin"])
    assert (found.split, found.samples) == ("steering", 40)
    difference = one(found, "margin").difference
    assert difference is not None
    assert difference.samples == 40
    assert one(found, "margin").verdict == "too small to judge (40 samples)"
    assert any("look better than they are. They are too few to judge by." in note for note in found.notes)


def test_the_verdict_reads_the_interval() -> None:
    def verdict(low: float, high: float, metric: str = "f1_macro", samples: int = 200) -> str | None:
        gain = Gain(metric, 0.5, 0.5 + (low + high) / 2, low, high, samples, 40)
        return Standing("x", 1, (), (), 0.5, None, None, None, 0.0, gain).verdict

    assert verdict(0.01, 0.03) == verdict(-0.03, -0.01, "loss") == "better"
    assert verdict(-0.03, -0.01) == verdict(0.01, 0.03, "loss") == "worse"
    assert verdict(-0.01, 0.03) == verdict(0.0, 0.0) == "not told apart"
    assert verdict(-0.2, 0.1) == "too small to judge (±0.150)"
    assert verdict(0.01, 0.03, samples=49) == "too small to judge (49 samples)"


def test_refusals(shared: Workspace, done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    young = labelled(shared, "Young", rounds=3)
    with pytest.raises(ConflictError, match="has 18 decided items; expected 20 or more") as few:
        comparing.compare(shared, young)
    assert few.value.code == "few_labels"
    with pytest.raises(InvalidInputError, match="unknown selector 'nine'"):
        comparing.compare(shared, done, ["margin", "nine"])
    with pytest.raises(InvalidInputError, match="no selector is named"):
        comparing.compare(shared, done, [])
    with pytest.raises(InvalidInputError, match="batch_size is 0"):
        comparing.compare(shared, done, ["margin"], 0)
    with pytest.raises(InvalidInputError, match="repeats is 0"):
        comparing.compare(shared, done, ["margin"], repeats=0)


def test_the_campaigns_own_selector_is_among_the_usual_ones() -> None:
    usual = comparing.usual_selectors(Settings(selector="entropy"))
    assert usual[0] == "entropy"
    assert {"expected_infl", "increm_infl", "margin", "random"} <= set(usual)


def test_an_interrupt_leaves_everything_as_it_was(shared: Workspace, done: str) -> None:
    cells: list[Cell] = []

    def stop(cell: Cell) -> None:
        cells.append(cell)
        if len(cells) == 8:
            raise KeyboardInterrupt

    before = row_of(shared, done)
    with pytest.raises(KeyboardInterrupt):
        comparing.compare(shared, done, ["margin"], on_cell=stop)
    assert [(c.selector, c.asked) for c in cells] == [
        *((AS_ASKED, k) for k in range(6, 37, 6)),
        ("margin", 6),
        ("margin", 12),
    ]
    assert row_of(shared, done) == before
    assert comparing.compare(shared, done, ["margin"], 18).asked == (0, 18, 36)


def test_nothing_is_written(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        campaign = labelled(ws, rounds=4, budget=60)
        advance(ws, campaign)

        def contents() -> dict[str, bytes]:
            files = [p for p in ws.home.rglob("*") if p.is_file() and "-shm" not in p.name and "-wal" not in p.name]
            return {str(p): p.read_bytes() for p in files}

        with ws.writing() as connection:
            connection.exec_driver_sql("SELECT 1")
        before, state = contents(), campaigns.status(ws, campaign)
        comparing.compare(ws, campaign, ["margin"])
        assert contents() == before
        assert campaigns.status(ws, campaign) == state


def test_the_command_shows_and_writes_what_the_service_finds(shared: Workspace, done: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    shown = labelchef(
        "compare", done, "--selectors", "margin, random", "--repeats", 2, "--out", out, "--home", shared.home
    )
    found = comparing.compare(shared, done, ["margin", "random"], repeats=2)
    assert {path.name for path in out.iterdir()} == set(comparison_files.FILES)
    table = pd.read_csv(out / "comparison.csv")
    assert table["selector"].tolist() == [standing.selector for standing in found.standings]
    np.testing.assert_allclose(table["area"], [standing.area for standing in found.standings])
    np.testing.assert_allclose(table["f1_macro_50"], [standing.after[1] for standing in found.standings])
    drawn = pd.read_csv(out / "curves.csv")
    np.testing.assert_allclose(drawn.loc[drawn["selector"] == "margin", "value"], one(found, "margin").curve)
    words = (out / "comparison.md").read_text()
    for standing in found.standings:
        line = comparison_files.cells(standing)[:-1]  # seconds differ
        assert "| " + " | ".join(line) in words
        assert any(all(cell in printed for cell in line) for printed in shown.splitlines())
    for note in found.notes:
        assert note in shown
        assert note in words
    svg = (out / "comparison.svg").read_text()
    assert svg.startswith("<svg")
    assert "margin" in svg
    assert "random: replay 2 of 2, 36 labels" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no campaign 'nowhere'"),
        (["DONE", "--selectors", "nine"], "unknown selector 'nine'"),
        (["DONE", "--selectors", " , "], "no selector is named"),
        (["DONE", "--batch-size", 0], "batch_size is 0"),
        (["EMPTY"], "has 0 decided items"),
        (["DONE", "--selectors", "margin", "--out", "FILE"], "cannot be written"),
    ],
)
def test_bad_commands_end_with_a_sentence(
    shared: Workspace, done: str, tmp_path: Path, arguments: list[Any], message: str
) -> None:
    (tmp_path / "file").write_text("")
    empty = make(shared, f"Empty {message}", noisy(), **CHOSEN) if "EMPTY" in arguments else ""
    places = {"DONE": done, "EMPTY": empty, "FILE": tmp_path / "file"}
    said = labelchef("compare", *(places.get(word, word) for word in arguments), "--home", shared.home, check=2)
    assert message in said
