"""Automatic sources: on planted data they find what was planted, and their votes on trusted rows are not their own teachers."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.tree import DecisionTreeClassifier

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import ColumnRole, Plan
from labelchef.believe.automatic import affinity, interactive, snuba
from labelchef.believe.automatic.trusted import FOLDS, folds
from labelchef.believe.automatic.words import Words
from labelchef.believe.rules import Keyword, RuleBoard, apply_rules
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.data.encoders.images import EFFICIENTNET, network
from labelchef.data.intake import automatic
from labelchef.data.intake.raw import Raw, Rows
from labelchef.data.intake.voting import with_sources

CLASSES = ("ham", "spam")
SIGNS = {"spam": ("subscribe", "winner", "free money"), "ham": ("song", "lovely", "my dog")}
FILLERS = tuple(f"filler{k}" for k in range(30))


def comments(n: int, seed: int, wrong: float = 0.05) -> tuple[list[str], list[str]]:
    """Texts with signs of their class (on most of them), seldom of the other one, and fillers that mean nothing."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        label = CLASSES[int(rng.integers(2))]
        said = label if rng.random() > wrong else CLASSES[1 - CLASSES.index(label)]
        words = [str(rng.choice(SIGNS[said]))] * int(rng.random() < 0.9) + list(map(str, rng.choice(FILLERS, 4)))
        texts.append(" ".join(map(str, rng.permutation(words))))
        labels.append(label)
    return texts, labels


def raw_of(texts: list[str], trusted: list[str], labels: list[str], classes: tuple[str, ...] = CLASSES) -> Raw:
    return Raw(
        Rows(pd.DataFrame({"id": [f"t{k}" for k in range(len(texts))], "text": texts}), (None,) * len(texts)),
        Rows(pd.DataFrame({"id": [f"g{k:03}" for k in range(len(trusted))], "text": trusted}), tuple(labels)),
        None,
        {"text": ColumnRole.TEXT},
        classes,
        pd.DataFrame({"item": [], "source": [], "label": []}, dtype="str"),
    )


def spam_raw(n: int = 600, m: int = 100) -> tuple[Raw, list[str]]:
    texts, labels = comments(n, 0)
    trusted, known = comments(m, 1)
    return raw_of(texts, trusted, known), labels


# words


def test_words_are_those_that_a_keyword_rule_finds() -> None:
    texts = ["Check  out this", "check out, THIS", "Straße! check", "", "check-out that_one", "STRASSE out this"]
    words = Words.of(texts, least=1, most_share=1.0)
    presence = words.presence(texts).toarray()
    board = RuleBoard(pd.DataFrame({"id": list("abcdef"), "text": texts}))
    assert "strasse" in words.names
    assert "check out" in words.names
    for v, word in enumerate(words.names):
        rule = Keyword(word, "text", "x", (word,))
        assert board.matches(rule).rows.tolist() == np.flatnonzero(presence[:, v]).tolist(), word


def test_too_frequent_rare_and_redundant_words_are_left_out() -> None:
    texts = ["the new york", "the new york", "the old york", "the end"]
    # 'new york' is where 'new' is, so it says nothing more; 'the' is everywhere; 'old' and 'end' are rare
    assert Words.of(texts, least=2, most_share=0.8).names == ("new", "york")


# Snuba


def numbers(X: NDArray[Any], m: int, presence: bool = False) -> snuba.Primitives:
    """Primitives of which the first m rows are trusted, named a, b, …"""
    p = X.shape[1]
    return snuba.Primitives(tuple("abcdefghijklmnopqrstuvwxyz"[:p]), X[:m], X[m:], np.full(p, presence))


def test_snuba_finds_planted_words_for_their_class() -> None:
    raw, truth = spam_raw()
    primitives = automatic.primitives_of(raw)
    written = snuba.write_heuristics(primitives, automatic.trusted_classes(raw), raw.classes, seed=0)
    found = {primitives.names[one["column"]]: CLASSES[one["positive"]] for one in written.heuristics[:4]}
    planted = {word: label for label, words in SIGNS.items() for word in words}
    planted |= {part: label for word, label in planted.items() for part in word.split(" ")}
    assert all(planted.get(word) == label for word, label in found.items()), found
    spoken = ~np.isnan(written.train_beliefs[:, 0])
    right = written.train_beliefs.argmax(axis=1) == np.array([CLASSES.index(label) for label in truth])
    assert spoken.mean() > 0.6
    assert right[spoken].mean() > 0.85


def test_snuba_finds_a_planted_cut_and_votes_for_both_classes() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 8))
    y = (X[:, 3] > 0.4).astype(np.int64)
    written = snuba.write_heuristics(numbers(X, 80), y[:80], ("low", "high"))
    assert written.names[0].startswith("snuba 1: d > 0.")
    assert written.names[0].endswith(" → high, else low")
    assert written.heuristics["cut"][0] == pytest.approx(0.4, abs=0.2)
    votes = written.train[:, 0]
    assert set(votes.tolist()) == {0, 1}
    assert (votes == y[80:]).mean() > 0.9


def test_a_stump_has_the_cut_that_a_decision_tree_has() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 12, (80, 1)).astype(np.float64)
    y = (X[:, 0] + rng.normal(size=80) * 3 > 6).astype(np.int64)
    H, _ = snuba.synthesise(numbers(np.vstack([X, X]), 80), y, 2, seed=0)
    tree = DecisionTreeClassifier(max_depth=1).fit(X, y).tree_
    assert H["cut"].tolist() == tree.threshold[:1].tolist()
    above = X[:, 0] > tree.threshold[0]
    assert H["above"][0] == pytest.approx((y[above].sum() + 1) / (above.sum() + 2))
    assert H["below"][0] == pytest.approx((y[~above].sum() + 1) / ((~above).sum() + 2))


def test_more_classes_are_one_against_the_rest() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 600)
    X = (rng.random((600, 12)) < 0.05).astype(np.uint8)
    for c in range(4):
        X[y == c, 3 * c] = rng.random(int((y == c).sum())) < 0.8
    written = snuba.write_heuristics(numbers(X, 100, presence=True), y[:100], ("a", "b", "c", "d"), seed=0)
    first = {one["positive"]: one["column"] for one in reversed(written.heuristics)}
    assert first == {0: 0, 1: 3, 2: 6, 3: 9}
    for j, c in enumerate(written.heuristics["positive"]):
        assert set(written.train[:, j].tolist()) <= {-1, c}


def test_votes_on_trusted_rows_are_honest() -> None:
    """On noise the heuristics look good on the rows that they were made from; their cross-fitted votes do not."""
    own: list[float] = []
    crossed: list[float] = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = (rng.random((300, 200)) < 0.1).astype(np.uint8), rng.integers(0, 2, 100)
        words = tuple(f"w{k}" for k in range(200))  # that have nothing to do with the class
        primitives = snuba.Primitives(words, X[:100], X[100:], np.ones(200, dtype=bool))
        written = snuba.write_heuristics(primitives, y, CLASSES, seed=seed)
        for said, kept in ((snuba.vote(written.heuristics, primitives.trusted), own), (written.trusted, crossed)):
            rows, sources = np.nonzero(said >= 0)
            kept.append(float((said[rows, sources] == y[rows]).mean()))
    assert np.mean(own) > 0.7
    assert abs(np.mean(crossed) - 0.5) < 0.08


def exchanged(y: NDArray[np.int64], seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Other labels for two rows of a fold, such that all folds stay as they are, and the rows of this fold."""
    fold = folds(y, FOLDS, seed)
    for i, j in itertools.combinations(range(len(y)), 2):
        changed = y.copy()
        changed[[i, j]] = y[[j, i]]
        if y[i] != y[j] and fold[i] == fold[j] and (folds(changed, FOLDS, seed) == fold).all():
            return changed, fold == fold[i]
    raise AssertionError("no two rows of a fold can exchange their labels")


def test_votes_on_a_fold_do_not_depend_on_its_labels() -> None:
    raw, _ = spam_raw(300, 60)
    primitives, y = automatic.primitives_of(raw), automatic.trusted_classes(raw)
    changed, held = exchanged(y)
    before, after = (snuba.write_heuristics(primitives, labels, CLASSES) for labels in (y, changed))
    assert np.array_equal(before.trusted_beliefs[held], after.trusted_beliefs[held], equal_nan=True)
    assert not np.array_equal(before.trusted_beliefs, after.trusted_beliefs, equal_nan=True)


def test_snuba_ends_when_nothing_is_in_doubt_and_when_nothing_is_found() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = np.column_stack([y + 0.01 * rng.normal(size=400) for _ in range(6)])
    assert len(snuba.synthesise(numbers(X, 50), y[:50], 2, 0)[0]) == 3
    constant = np.zeros((140, 2))
    nothing, _ = snuba.synthesise(numbers(constant, 50), y[:50], 2, 0)
    assert snuba.vote(nothing, constant).shape == (140, 0)


def test_snuba_ends_where_learned_accuracies_are_far_from_seen_ones() -> None:
    """The guarantee needs training rows: with few of them, no fourth heuristic stays."""
    raw, _ = spam_raw()
    primitives, y = automatic.primitives_of(raw), automatic.trusted_classes(raw)
    many, _ = snuba.synthesise(primitives, y, 2, 0)
    few, learned = snuba.synthesise(replace(primitives, train=primitives.train[:25]), y, 2, 0)
    assert len(many) > 3
    assert len(few) == len(learned) == 3


def test_the_aggregator_never_lowers_its_objective_and_finds_accuracies() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 4000)
    accuracy = np.array([0.9, 0.75, 0.6, 0.85, 0.7])
    right = rng.random((4000, 5)) < accuracy
    votes = np.where(right, y[:, None], (y[:, None] + rng.integers(1, 3, (4000, 5))) % 3)
    votes = np.where(rng.random((4000, 5)) < 0.7, votes, -1)
    found, objective = snuba.aggregate(votes, 3)
    assert (np.diff(objective) >= -1e-9).all()
    assert len(objective) > 2
    assert found == pytest.approx(accuracy, abs=0.03)
    assert snuba.posterior(np.full((1, 5), -1), found, 3)[0] == pytest.approx(np.full((1, 3), 1 / 3))


def test_missing_values_get_no_vote() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] > 0).astype(np.int64)
    X[::3, 0] = np.nan
    H, _ = snuba.synthesise(numbers(X, 90), y[:90], 2, 0)
    assert H["column"][0] == 0
    votes = snuba.vote(H, X)[:, 0]
    assert (votes[::3] == -1).all()
    assert (votes[1::3] >= 0).mean() > 0.9


def test_other_class_ids_give_the_same_heuristics() -> None:
    """Exchanging the names of the classes exchanges the votes, nothing else."""
    raw, _ = spam_raw(300, 60)
    primitives, y = automatic.primitives_of(raw), automatic.trusted_classes(raw)
    one, two = (snuba.synthesise(primitives, labels, 2, 0)[0][:6] for labels in (y, 1 - y))
    assert {(h["column"], h["positive"]) for h in one} == {(h["column"], 1 - h["positive"]) for h in two}


@pytest.mark.parametrize("y", [[0, 1], [0] * 20])
def test_snuba_refuses_labels_that_cannot_be_used(y: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="at least 4 rows and two classes"):
        snuba.write_heuristics(numbers(np.zeros((len(y) + 5, 1)), len(y)), np.array(y), CLASSES)


# Interactive Weak Supervision


def oracle(proposals: interactive.Proposals, labels: list[str]) -> dict[str, bool]:
    """Rule → right on more than 70 % of the rows that it matches."""
    y = np.array(labels)
    accuracy = {}
    for rule in proposals.rules:
        has = proposals.presence[:, [proposals.words.index(rule.words[0])]].toarray().ravel() > 0
        accuracy[rule.name] = bool((y[has] == rule.label).mean() > 0.7)
    return accuracy


@pytest.mark.parametrize("active_search", [False, True])
def test_useful_rules_are_found_faster_than_at_random(active_search: bool) -> None:
    texts, labels = comments(800, 3)
    proposals = interactive.Proposals(texts, CLASSES, active_search=active_search, seed=1)
    useful = oracle(proposals, labels)
    share = np.mean(list(useful.values()))
    asked = 16
    for _ in range(asked):
        rule = proposals.next().rule
        proposals.tell(rule, useful[rule.name])
    expected = share * asked
    found = len(proposals.chosen())
    assert found >= (2 if active_search else 1) * expected
    mean = proposals.belief()
    good = np.array([useful[rule.name] for rule in proposals.rules])
    assert mean[good].mean() > mean[~good].mean() + 0.1


def test_trusted_rows_order_the_first_proposals() -> None:
    texts, labels = comments(800, 3)
    trusted, known = comments(60, 4)
    proposals = interactive.Proposals(texts, CLASSES, trusted_texts=trusted, trusted_labels=known, seed=1)
    useful = oracle(proposals, labels)
    right = []
    for _ in range(6):
        rule = proposals.next().rule
        right.append(useful[rule.name])
        proposals.tell(rule, None)  # learns nothing from that
    assert sum(right) >= 5


def test_the_same_seed_and_answers_give_the_same_proposals_after_json() -> None:
    texts, labels = comments(400, 5)
    first = interactive.Proposals(texts, CLASSES, seed=2)
    useful = oracle(first, labels)
    for k in range(8):
        rule = first.next().rule
        first.tell(rule, None if k == 3 else useful[rule.name])
    again = interactive.Proposals(texts, CLASSES, seed=2)
    again.restore(json.loads(json.dumps(first.state())))
    assert again.state() == first.state()
    assert again.next() == first.next()
    assert again.chosen() == first.chosen()
    other = interactive.Proposals(["another world", "something else"] * 20, CLASSES, seed=2)
    other.restore(first.state())
    assert other.answers == {}


def test_a_proposal_shows_what_is_true_of_the_rule() -> None:
    texts = ["good day", "good film", "bad film", "bad good film", "day", "film", "nothing"] * 4
    proposals = interactive.Proposals(
        texts, ("no", "yes"), trusted_texts=["good", "good bad"], trusted_labels=["yes", "no"],
    )  # fmt: skip
    rule = {one.name: one for one in proposals.rules}
    proposals.tell(rule["bad → no"], useful=True)
    shown = proposals.proposal(rule["good → yes"], examples=3)
    assert (shown.matched, shown.coverage) == (12, 3 / 7)
    assert (shown.new, shown.conflicts) == (8, 4)
    assert (shown.trusted_matched, shown.trusted_right) == (2, 1)
    assert len(shown.rows) == 3
    assert all("good" in texts[i] for i in shown.rows)
    assert 0 < shown.probability < 1
    assert "bad" not in {one.words[0] for one in (proposals.next().rule,)}


def test_an_answer_can_be_changed_and_a_useful_word_is_not_proposed_again() -> None:
    texts, _ = comments(400, 5)
    proposals = interactive.Proposals(texts, CLASSES)
    rule = proposals.next().rule
    proposals.tell(rule, useful=True)
    assert proposals.chosen() == (rule,)
    left: set[Keyword] = set()
    while len(left) < 2 * len(proposals.words) - 2:
        found = proposals.next().rule
        left.add(found)
        proposals.tell(found, useful=False)
    assert rule.words[0] not in {one.words[0] for one in left}
    with pytest.raises(InvalidInputError, match="nothing left"):
        proposals.next()
    proposals.tell(rule, useful=False)
    assert proposals.chosen() == ()


def test_chosen_rules_vote_as_rules_do() -> None:
    raw, labels = spam_raw(400, 60)
    proposals = interactive.Proposals(raw.train.frame["text"].tolist(), CLASSES)
    useful = oracle(proposals, labels)
    for _ in range(10):
        rule = proposals.next().rule
        proposals.tell(rule, useful[rule.name])
    votes = apply_rules(proposals.chosen(), pd.concat([raw.train.frame, raw.trusted.frame]))
    assert set(votes["source"]) == {rule.name for rule in proposals.chosen()}
    truth = dict(zip(raw.train.ids, labels, strict=True))
    known = votes[votes["item"].isin(truth)]
    assert (known["label"] == known["item"].map(truth)).mean() > 0.7


def test_proposals_refuse_what_cannot_be_used() -> None:
    with pytest.raises(InvalidInputError, match="expected at least two"):
        interactive.Proposals(comments(100, 0)[0], ["only"])
    with pytest.raises(InvalidInputError, match="no word is in at least 5 of the 2 texts"):
        interactive.Proposals(["a", "b"], CLASSES)


def test_a_rule_that_was_not_proposed_is_refused() -> None:
    proposals = interactive.Proposals(comments(100, 0)[0], CLASSES)
    with pytest.raises(InvalidInputError, match="was not proposed"):
        proposals.tell(Keyword("x", "text", "spam", ("no such word",)), useful=True)


# affinity


def shapes(n: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Pictures of horizontal stripes, vertical stripes or a chequerboard, shifted, with noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    down, right = np.mgrid[:24, :24]
    images = np.empty((n, 24, 24), dtype=np.float32)
    for k, c in enumerate(y):
        shift = rng.integers(0, 6, 2)
        rows, columns = (down + shift[0]) // 3 % 2, (right + shift[1]) // 3 % 2
        images[k] = (rows, columns, (rows + columns) % 2)[c]
    return np.clip(0.8 * images + 0.2 * rng.random(images.shape), 0, 1).astype(np.float32), y


def test_affinity_finds_planted_groups_and_their_names() -> None:
    images, y = shapes(150, 0)
    steps: list[tuple[str, int, int]] = []
    train, trusted = affinity.code_affinity(
        150, lambda rows: images[rows], y[-30:], 3, affinity.patch_maps, progress=lambda *step: steps.append(step)
    )
    assert train.shape == (120, 3)
    assert train.sum(axis=1) == pytest.approx(1)
    assert (train.argmax(axis=1) == y[:-30]).mean() > 0.8
    assert (trusted.argmax(axis=1) == y[-30:]).mean() > 0.7
    assert {what for what, _, _ in steps} == {"comparing images", "finding groups"}


def tables(seed: int = 0, n: int = 240) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Affinities of three groups to 20 prototypes; every other table is noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    centres = rng.normal(size=(3, 20))
    found = [centres[y] + rng.normal(size=(n, 20)), rng.normal(size=(n, 20))]
    return [*found, centres[y] ** 2 + rng.normal(size=(n, 20))], y


def test_names_follow_the_labels() -> None:
    """Other names for the classes give the same columns in another order."""
    found, y = tables()
    order = np.array([2, 0, 1])
    one = affinity.code_tables(found, y[-40:], 3)
    two = affinity.code_tables(found, order[y[-40:]], 3)
    assert (one[0].argmax(axis=1) == y[:-40]).mean() > 0.9
    assert np.array_equal(one[0], two[0][:, order])


def test_trusted_rows_are_named_without_the_labels_of_their_fold() -> None:
    found, y = tables()
    changed, held = exchanged(y[-40:])
    before, after = (affinity.code_tables(found, labels, 3)[1] for labels in (y[-40:], changed))
    assert np.array_equal(before[held], after[held])


@pytest.mark.parametrize("mixture", [affinity.gaussian_mixture, affinity.bernoulli_mixture])
def test_mixtures_never_lower_their_objective_and_do_not_break_on_equal_rows(mixture: Any) -> None:
    for rows in (tables()[0][0] > 0, np.ones((12, 5))):
        R, objective = mixture(rows.astype(np.float64), 3, 0)
        assert R.sum(axis=1) == pytest.approx(1)
        assert (np.diff(objective) >= -1e-6).all()


def test_affinity_refuses_too_few_images() -> None:
    with pytest.raises(InvalidInputError, match="at least two images for each class"):
        affinity.code_affinity(3, lambda rows: np.zeros((len(rows), 8, 8)), np.array([0]), 2, affinity.patch_maps)


@pytest.mark.slow
def test_maps_of_a_network_serve_as_well() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    images, y = shapes(60, 0)
    maps = affinity.conv_maps(network(EFFICIENTNET)[0].whole)
    assert [found.shape[0] for found in maps(images[:2])] == [2] * 5
    grey, colour = maps(images[:2]), maps(np.repeat(images[:2, :, :, None], 3, axis=3))
    assert all(np.allclose(one, two, atol=1e-3 * np.abs(two).max()) for one, two in zip(grey, colour, strict=True))
    train, _ = affinity.code_affinity(60, lambda rows: images[rows], y[-20:], 3, maps)
    assert (train.argmax(axis=1) == y[:-20]).mean() > 0.6


# by name


@pytest.mark.parametrize("kind", ["snuba", "snuba-together"])
def test_votes_by_name_are_what_a_campaign_reads(kind: str) -> None:
    raw, labels = spam_raw(400, 60)
    steps: list[tuple[str, int, int]] = []
    votes = automatic.make_votes(kind, raw, seed=3, progress=lambda *step: steps.append(step))
    assert {"item", "source", "label"} <= set(votes.columns)
    assert ("probability" in votes.columns) == (kind == "snuba-together")
    assert set(votes["item"]) <= {*raw.train.ids, *raw.trusted.ids}
    assert votes["item"].isin(raw.trusted.ids).any()
    assert steps[-1][1] == steps[-1][2] > 0
    again = automatic.make_votes(kind, raw, seed=3)
    pd.testing.assert_frame_equal(votes, again)
    truth = dict(zip(raw.train.ids, labels, strict=True))
    here = votes[votes["item"].isin(truth)]
    rng = np.random.default_rng(0)  # features that mean nothing: what is learned comes from the votes
    there = votes[votes["item"].isin(set(raw.trusted.ids))]
    data = CampaignData.of(
        rng.normal(size=(400, 2)), votes=here, votes_val=there, X_val=rng.normal(size=(60, 2)), y_val=raw.trusted.labels,
        classes=CLASSES, contents=Contents(raw.train.frame, raw.trusted.frame),
    )  # fmt: skip
    assert data.votes is not None
    assert data.votes.n_sources == votes["source"].nunique()
    weight = here["probability"] if kind == "snuba-together" else pd.Series(1.0, index=here.index)
    assert weight[here["label"] == here["item"].map(truth)].sum() / weight.sum() > 0.7


def test_a_table_gives_numbers_and_values() -> None:
    rng = np.random.default_rng(0)
    n = 300
    y = rng.integers(0, 2, n)
    frame = pd.DataFrame(
        {
            "id": [str(k) for k in range(n)],
            "age": np.where(rng.random(n) < 0.1, np.nan, y * 3 + rng.normal(size=n)),
            "town": np.where(y == 1, "Rome", "Oslo"),
            "noise": rng.normal(size=n),
        }
    )
    content = dict.fromkeys(("age", "town", "noise"), ColumnRole.FEATURE)
    trusted = frame.iloc[:60].reset_index(drop=True)
    raw = Raw(
        Rows(frame.iloc[60:].reset_index(drop=True), (None,) * (n - 60)),
        Rows(trusted, tuple(CLASSES[c] for c in y[:60])), None, content, CLASSES,
        pd.DataFrame({"item": [], "source": [], "label": []}, dtype="str"),
    )  # fmt: skip
    primitives = automatic.primitives_of(raw)
    assert primitives.names == ("age", "town = Oslo", "town = Rome", "noise")
    assert primitives.presence.tolist() == [False, True, True, False]
    votes = automatic.make_votes("snuba", raw)
    assert any("town = Rome → spam" in name for name in votes["source"].unique())
    assert any("age > " in name for name in votes["source"].unique())


def test_features_serve_where_there_is_nothing_else() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = rng.normal(size=(200, 4)).astype(np.float32) + 2 * y[:, None] * np.array([0, 0, 1, 0], dtype=np.float32)
    frame = pd.DataFrame({"id": [str(k) for k in range(200)]})
    raw = Raw(
        Rows(frame.iloc[50:].reset_index(drop=True), (None,) * 150, X[50:]),
        Rows(frame.iloc[:50], tuple(CLASSES[c] for c in y[:50]), X[:50]), None, {}, CLASSES,
        pd.DataFrame({"item": [], "source": [], "label": []}, dtype="str"),
    )  # fmt: skip
    votes = automatic.make_votes("snuba", raw)
    assert votes["source"].iloc[0].startswith("snuba 1: feature 3 > ")


def test_images_are_read_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "has_efficientnet", lambda: False)
    images, y = shapes(80, 0)
    names = []
    for k, image in enumerate(images):
        Image.fromarray((255 * image).astype(np.uint8)).save(tmp_path / f"{k}.png")
        names.append(f"{k}.png")
    frame = pd.DataFrame({"id": [f"i{k}" for k in range(80)], "file": names})
    classes = ("bar", "ring", "cross")
    raw = Raw(
        Rows(frame.iloc[20:].reset_index(drop=True), (None,) * 60),
        Rows(frame.iloc[:20], tuple(classes[c] for c in y[:20])), None, {"file": ColumnRole.IMAGE}, classes,
        pd.DataFrame({"item": [], "source": [], "label": []}, dtype="str"), tmp_path,
    )  # fmt: skip
    votes = automatic.make_votes("affinity", raw)
    assert set(votes["source"]) == {"affinity"}
    assert len(votes) == 80 * 3
    best = votes.loc[votes.groupby("item")["probability"].idxmax()].set_index("item")["label"]
    truth = pd.Series([classes[c] for c in y], index=frame["id"])
    assert (best == truth.reindex(best.index)).mean() > 0.7


@pytest.mark.parametrize("kind", ["snuba", "snuba-together"])
def test_where_words_mean_nothing_there_is_no_source_and_people_are_told(kind: str) -> None:
    texts, _ = comments(300, 0)
    trusted, labels = comments(60, 1)
    raw = raw_of(texts, trusted, list(np.random.default_rng(0).permutation(labels)))
    votes = automatic.make_votes(kind, raw)
    assert votes.empty
    assert {"item", "source", "label"} <= set(votes.columns)
    found = with_sources(raw, Plan(()), [kind])
    assert [one.code for one in found.findings] == ["automatic_nothing"]
    assert found.votes.empty


def test_what_no_automatic_source_can_use_is_refused() -> None:
    raw, _ = spam_raw(50, 10)
    with pytest.raises(InvalidInputError, match="expected one of: snuba"):
        automatic.make_votes("goggles", raw)
    with pytest.raises(InvalidInputError, match="no column of images"):
        automatic.make_votes("affinity", raw)
    with pytest.raises(InvalidInputError, match="no trusted rows"):
        automatic.make_votes("snuba", raw_of(["a"] * 20, [], []))
    with pytest.raises(InvalidInputError, match="label 'eggs'"):
        automatic.make_votes("snuba", raw_of(["a"] * 20, ["a"], ["eggs"]))
    with pytest.raises(InvalidInputError, match="more trusted rows"):
        automatic.make_votes("snuba", raw_of(["a b"] * 20, ["c", "d", "e", "f"], ["ham", "spam"] * 2))
