"""Figures on pages, tables and in files, each against a loop over answers and classes that are known."""

import json
import re
import statistics
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.loop.annotators import GroundTruth, SimulatedAnnotators
from labelchef.loop.clean import Answers, clean
from labelchef.server import worker
from labelchef.server.items.decisions import conflicts, resolve
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.people import quality
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import CLASSES, gold_data, make, truth_of
from tests.test_numbers_sources import drawn, fitted, session_of


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "home") as opened:
        yield opened


def test_votes_coverage_conflicts_and_what_is_believed_of_sources() -> None:
    """Against loops over the votes; what is believed comes near the truth, of sources that are no copies."""
    errors = []
    for seed in range(6):
        data, y = drawn(seed, 3, copies=1)
        cleaner = fitted(data, sources="naive_bayes")
        cleaner.run(GroundTruth(y))
        votes, Q = np.vstack([data["votes"], data["votes_val"]]), session_of(cleaner).posterior()
        for j, one in enumerate(typing.cast(Any, cleaner.sources_.itertuples())):
            said = np.flatnonzero(votes[:, j] >= 0)
            others = np.delete(votes[said], j, axis=1)
            against = ((others >= 0) & (others != votes[said, j][:, None])).any(axis=1)
            assert one.votes == (data["votes"][:, j] >= 0).sum()
            assert one.coverage == pytest.approx(one.votes / len(y))
            assert one.conflicts == pytest.approx(against.mean())
            assert one.believed == pytest.approx(Q[said, votes[said, j]].mean())
            for c in range(3):
                row = [Q[said[votes[said, j] == v], c].sum() / Q[said, c].sum() for v in range(3)]
                np.testing.assert_allclose(one.believed_confusion[c], row)
            errors.append(one.believed - (votes[said, j] == np.append(y, data["y_val"])[said]).mean())
    assert abs(np.mean(errors)) < 0.02
    assert np.abs(errors).max() < 0.15


def test_as_many_doubtful_answers_are_wrong_as_is_said() -> None:
    """By the probabilities that are said of single answers; and the rate at which people err is in its interval."""
    told, wrong, others, held = 0.0, list[bool](), list[bool](), list[bool]()
    for seed in range(8):
        data, y = drawn(seed + 30, 3, n=250, sources=3)
        cleaner = fitted(data, budget=100, batch_size=50, audit=0.4, sources="naive_bayes")
        cleaner.run(SimulatedAnnotators(y, n_classes=3, error_rates=(0.25,), seed=seed))
        facts, decided = cleaner.people_, session_of(cleaner).labels.decided
        assert facts is not None
        held.append(facts.low <= 0.25 <= facts.high)
        doubted = cleaner.doubtful_["item"].to_numpy(dtype=np.int64)
        told += float(cleaner.doubtful_["wrong"].sum())
        wrong += (decided[doubted] != y[doubted]).tolist()
        rest = np.setdiff1d(np.flatnonzero(cleaner.cleaned_), doubted)
        others += (decided[rest] != y[rest]).tolist()
    assert sum(held) >= 7
    assert len(wrong) > 80
    assert told == pytest.approx(sum(wrong), rel=0.3)
    assert np.mean(wrong) > 2 * np.mean(others)


def answered(ws: Workspace, slug: str, people: dict[str, float], seed: int) -> list[dict[str, Any]]:
    """What people say in a round: each is right on a share of it, on hidden gold too."""
    truth, rng, said = truth_of(90), np.random.default_rng(seed), list[dict[str, Any]]()
    for person, right in people.items():
        while isinstance(found := next_tasks(ws, slug, person, 1), list):
            kind, _, number = str(found[0].content.text).rpartition(" ")
            gold = kind.startswith("trusted")
            true = int(truth[int(number) + 60 * gold])
            label, seconds = true if rng.random() < right else (true + 1) % 3, float(rng.integers(2, 40))
            cast_vote(ws, slug, person, found[0].item, label, seconds=seconds)
            said.append({"person": person, "item": found[0].item, "gold": gold, "true": true, "label": label})
            said[-1] |= {"seconds": seconds, "round": found[0].round}
    worker.advance(ws, slug)
    return said


def test_figures_of_people_are_those_of_their_answers(ws: Workspace) -> None:
    """Quality and My work against a loop over what was said: hidden gold, ties, and a decision of a lead among it."""
    slug = make(ws, data=gold_data(), people=2, batch_size=12, budget=24, gold_share=0.4, blind_share=0.5, tie_votes=0)
    said = answered(ws, slug, {"ann": 0.9, "bob": 0.6}, 1)
    tie = conflicts(ws, slug)[0]
    resolve(ws, slug, tie.item, next(one.label for one in tie.votes if one.person == "ann"), "lead")
    said += answered(ws, slug, {"ann": 0.9, "bob": 0.6}, 2)
    votes = pd.DataFrame(said).query("not gold").pivot_table("label", "item", "person", aggfunc="last")
    agreed = votes[votes["ann"] == votes["bob"]]
    decided = {str(item): int(typing.cast(int, label)) for item, label in agreed["ann"].items()} | {
        tie.item: int(typing.cast(int, votes.loc[tie.item, "ann"]))
    }
    found = quality.quality(ws, slug)
    assert found.guessing == pytest.approx(1 / 3)
    assert [one.person for one in found.people if one.votes] == ["ann", "bob"]
    for one in found.people:
        own = [line for line in said if line["person"] == one.person]
        ordinary, gold = ([line for line in own if line["gold"] == kind] for kind in (False, True))
        if not own:
            continue
        compared = [(decided[line["item"]], line["label"]) for line in ordinary if line["item"] in decided]
        assert (one.votes, one.ambiguous, one.compared) == (len(ordinary), 0, len(compared))
        assert one.agreement == pytest.approx(np.mean([a == b for a, b in compared]))
        assert (one.gold_answered, one.gold_right) == (len(gold), sum(line["true"] == line["label"] for line in gold))
        for shown, pairs in (
            (one.confusion, compared),
            (one.gold_confusion, [(line["true"], line["label"]) for line in gold]),
        ):
            table = np.zeros((3, 4), dtype=int)
            np.add.at(table, tuple(np.array(pairs).T), 1)
            assert shown == table.tolist()
        assert one.times.median == statistics.median(line["seconds"] for line in own)
        work = quality.mine(ws, slug, one.person)
        assert work.answers == len(own)
        assert work.agreement == pytest.approx(one.agreement)
        assert {(line.item, line.answer, line.decided) for line in work.different} == {
            (line["item"], CLASSES[line["label"]], CLASSES[decided[line["item"]]])
            for line in ordinary
            if decided.get(line["item"], line["label"]) != line["label"]
        }
        for turn in work.rounds:
            assert turn.answers == sum(line["round"] == turn.number for line in own)
    wrong = [
        (line["person"], CLASSES[line["label"]]) for line in said if line["gold"] and line["label"] != line["true"]
    ]
    assert sorted((one.person, one.answer) for one in found.wrong) == sorted(wrong)


def test_the_tiles_of_a_report_are_what_came_of_the_campaign(tmp_path: Path) -> None:
    data, y = drawn(5, 3, n=120, m=60)
    names = ["a", "b", "c"]
    votes, votes_val = (
        pd.DataFrame(np.array([*names, None], dtype=object)[data[key]]).add_prefix("s")
        for key in ("votes", "votes_val")
    )
    given = CampaignData.of(
        data["X"], None, X_val=data["X_val"], y_val=[names[k] for k in data["y_val"]], classes=names,
        contents=Contents(None), votes=votes, votes_val=votes_val,
    )  # fmt: skip
    settings = Settings(people=3, budget=30, batch_size=10, selector="expected_infl", gamma=0.5, l2=0.01)
    outcome = clean(given, Answers(truth=[names[k] for k in y]), settings, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    tiles = {what: value for value, what in re.findall(r"<div class=tile><b>(.*?)</b><span>(.*?)</span></div>", page)}
    rounds = [json.loads(line) for line in (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()]
    asked = [(item, said) for one in rounds for item, said in zip(one["items"], one["suggested"], strict=True)]
    figure = outcome.figures["validation"]
    assert tiles[f"validation f1_macro, now 95 %: {figure.low:.3f} to {figure.high:.3f}"] == f"{figure.value:.3f}"
    assert tiles["samples asked"] == str(len(asked))
    assert tiles["suggestions that were true"] == f"{np.mean([said == y[item] for item, said in asked]):.0%}"
