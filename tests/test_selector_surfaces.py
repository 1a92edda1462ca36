"""Selectors that suggest nothing, or predict nothing, on every surface: files, report, terminal, campaigns, restarts."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import Settings, voters_of
from labelchef.chef.choice import REMOVED, make_selector
from labelchef.cli.progress import LiveProgress
from labelchef.loop.clean import Answers, CleanOutcome, clean
from labelchef.loop.ledger.jsonl import JsonLinesLedger
from labelchef.server.campaigns import campaigns, charts, trained
from labelchef.server.campaigns.progress import progress
from labelchef.server.campaigns.trained import replay
from labelchef.server.export import exchange
from labelchef.server.items import decisions
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote, undo_vote
from labelchef.server.store import campaign_table
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace
from tests.store_support import CLASSES, label_all, make, small_data, tasks, truth_of
from tests.test_campaign_cli import labelchef

NOT_SUGGESTING = ("random", "o2u")


def cleaned(
    folder: Path, strategy: str = "one", *, report: bool = True, resume: bool = False, **chosen: Any
) -> CleanOutcome:
    """A campaign in files, with people who know the truth of `small_data`."""
    truth = [CLASSES[k] for k in truth_of(90)[:60]]
    people, suggestion = voters_of(strategy)
    settings = Settings(**{**chosen, "people": people, "suggestion_votes": suggestion})
    return clean(small_data(), Answers(truth), settings, folder, report=report, resume=resume)


def strict(text: str) -> Any:
    """JSON as the standard has it."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def cells(page: str) -> list[str]:
    return re.findall(r"<td>(.*?)</td>", page)


@pytest.mark.parametrize("selector", [*NOT_SUGGESTING, "margin"])
def test_files_of_a_selector_without_predictions(selector: str, tmp_path: Path) -> None:
    done = cleaned(tmp_path / "out", selector=selector, budget=20)
    lines = [strict(line) for line in (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()]
    suggests = selector == "margin"
    for line in lines:
        assert line["influence"] == [None] * 10
        assert all((label == -1) != suggests for label in line["suggested"])
    past = JsonLinesLedger(Settings(), path=tmp_path / "out" / "rounds.jsonl").resume()
    assert np.isnan(past[0].batch.influence).all()
    strict((tmp_path / "out" / "summary.json").read_text())
    history = pd.read_csv(tmp_path / "out" / "history.csv")
    assert history["predicted_change"].isna().all()
    assert history["realised_change"].iloc[1:].notna().all()
    page = (tmp_path / "out" / "report.html").read_text()
    assert not {"nan", "None", "NaN"} & set(cells(page))
    assert "–" in cells(page)
    assert "realised" in page
    assert ("suggestions that were true" in page) == suggests
    assert "Samples evaluated exactly" not in page
    assert done.history["agreed_with_suggestion"].sum() == 0 or suggests


def test_a_campaign_in_files_goes_on_with_the_same_choices(tmp_path: Path) -> None:
    for selector in ("random", "tars"):
        whole, parts = tmp_path / f"{selector}-whole", tmp_path / f"{selector}-parts"
        cleaned(whole, selector=selector, budget=40, report=False)
        cleaned(parts, selector=selector, budget=20, report=False)
        cleaned(parts, selector=selector, budget=40, report=False, resume=True)
        one, two = (
            [strict(line)["items"] for line in (folder / "rounds.jsonl").read_text().splitlines()]
            for folder in (whole, parts)
        )
        assert one == two


@pytest.mark.parametrize("strategy", ["two", "three"])
@pytest.mark.parametrize("selector", NOT_SUGGESTING)
def test_a_strategy_without_its_voter_leaves_nothing_behind(selector: str, strategy: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="suggests no labels") as refused:
        cleaned(tmp_path / "out", strategy, selector=selector)
    assert refused.value.code == "suggestion"
    assert not (tmp_path / "out").exists()


def test_the_table_of_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LiveProgress("f1_macro") as live:
        settings, answers = Settings(selector="random", budget=10), Answers([CLASSES[k] for k in truth_of(90)[:60]])
        clean(small_data(), answers, settings, tmp_path / "out", watcher=live.watcher())
    told = capsys.readouterr().out
    assert "best influence" not in told  # what is not known has no column
    assert "trusted only" in told
    assert "nan" not in told


def test_chosen_and_refused_on_the_command_line(tmp_path: Path) -> None:
    data = small_data()
    np.save(tmp_path / "features.npy", data.X)
    np.save(tmp_path / "val_features.npy", data.validation[0])
    pd.DataFrame(data.weak, columns=data.names.names).to_csv(tmp_path / "weak.csv", index=False)
    pd.DataFrame({"label": [data.names.names[k] for k in data.validation[1]]}).to_csv(
        tmp_path / "val_labels.csv", index=False
    )
    env = {"LABELCHEF_HOME": str(tmp_path / "home")}
    told = labelchef(
        "init", "No", "--folder", tmp_path, "--selector", "random", "--strategy", "three", check=2, env=env
    )
    assert "selector 'random' suggests no labels" in " ".join(told.split())
    assert not (tmp_path / "home").exists(), "refused before anything is made"
    labelchef("init", "Yes", "--folder", tmp_path, "--selector", "random", env=env)
    assert strict(labelchef("next", "yes", "--json", env=env))["tasks"][0]["suggestion"] is None
    assert "suggested" not in labelchef("next", "yes", env=env)
    files = [f"--{name}={tmp_path / name.replace('-', '_')}.npy" for name in ("features", "val-features")]
    files += [f"--weak={tmp_path / 'weak.csv'}", f"--val-labels={tmp_path / 'val_labels.csv'}"]
    told = labelchef("clean", *files, "--out", tmp_path / "out", "--selector", "random", check=2)
    assert "suggests no labels" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("selector", NOT_SUGGESTING)
def test_the_suggestion_cannot_vote_in_a_campaign_without_one(ws: Workspace, selector: str) -> None:
    with pytest.raises(InvalidInputError, match="suggestion_votes off") as refused:
        make(ws, selector=selector, suggestion_votes=True)
    assert refused.value.code == "suggestion"
    assert campaigns.list_campaigns(ws) == []
    assert not list((ws.home / "campaigns").glob("*"))


def test_a_campaign_by_chance_from_the_first_item_to_the_report(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, selector="random", people=1, ahead=2)
    first = tasks(ws, campaign, "ann")[0]
    assert (first.suggestion, first.influence) == (None, None)
    label_all(ws, campaign, "ann")
    one = next(i for i in range(60) if str(i) == first.item)
    decisions.reopen(ws, campaign, str(one), "lead")
    label_all(ws, campaign, "ann")
    again = tasks(ws, campaign, "ann", 4)
    assert {task.origin.value for task in again} >= {"reopened"}
    assert {task.suggestion for task in again} == {None}
    found = progress(ws, campaign)
    assert {turn.predicted_change for turn in found.rounds} == {None}
    assert [turn.suggested for turn in found.rounds] == [0, 0, 0]
    assert found.suggestion.shown == 0
    assert "change" in charts.available(found)
    assert b"realised" in charts.draw(ws, campaign, "change", "light").svg
    page = exchange.report(ws, campaign)
    assert not {"nan", "None", "NaN"} & set(cells(page))
    exchange.export_votes(ws, campaign, tmp_path / "votes.jsonl")
    votes = [strict(line) for line in (tmp_path / "votes.jsonl").read_text().splitlines()]
    assert {vote["suggested"] for vote in votes} == {None}
    exchange.export_labels(ws, campaign, tmp_path / "labels.jsonl")
    assert len([strict(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]) == 60
    assert replay(ws, campaign).agrees


def contrary(ws: Workspace, campaign: str, person: str) -> None:
    """Someone who answers by the item's number, right or wrong, until there is nothing to answer."""
    while isinstance(found := next_tasks(ws, campaign, person), list):
        cast_vote(ws, campaign, person, found[0].item, int(found[0].item) % 3)


def records(ws: Workspace, campaign: str) -> list[Any]:
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
    return [list(record.votes) for record in trained.trained_now(ws, row).session.rounds]


def test_votes_come_back_after_a_restart_as_they_stood(ws: Workspace) -> None:
    """What changed after a round closed belongs to the next one; a selector that learns from votes chooses the same."""
    campaign = make(ws, selector="tars", people=2, budget=20)
    contrary(ws, campaign, "bob")
    label_all(ws, campaign, "ann")
    closed = records(ws, campaign)
    assert len(closed[1]) == 8
    assert {who for _, who, _ in closed[1]} == {"ann", "bob"}
    item, _, label = next(vote for vote in closed[1] if vote[1] == "ann")
    cast_vote(ws, campaign, "ann", str(item), (label + 1) % 3)
    undone = undo_vote(ws, campaign, "ann")
    assert undone.item == str(item)
    contrary(ws, campaign, "bob")
    label_all(ws, campaign, "ann")
    before = records(ws, campaign)
    assert before[:2] == closed
    ws.memory.clear()  # as a new process finds it
    assert records(ws, campaign) == before
    contrary(ws, campaign, "bob")
    label_all(ws, campaign, "ann")
    outcome = replay(ws, campaign)
    assert outcome.agrees, outcome.message
    assert len(outcome.rounds) == 5


def test_a_corrected_decision_brings_all_its_votes_and_a_reopened_one_none(ws: Workspace) -> None:
    campaign = make(ws, selector="tars", people=1)
    label_all(ws, campaign, "ann")
    (item, _, label), (other, _, _), (third, _, _) = records(ws, campaign)[1][:3]
    cast_vote(ws, campaign, "ann", str(item), (label + 1) % 3)
    decisions.reopen(ws, campaign, str(other), "lead")
    decisions.resolve(ws, campaign, str(third), 1, "lead")
    label_all(ws, campaign, "ann")
    last = records(ws, campaign)[2]
    assert (item, "ann", (label + 1) % 3) in last
    assert {who for position, who, _ in last if position == third} == {"ann", "lead"}
    assert other not in {position for position, _, _ in last}
    assert (item, "ann", label) in records(ws, campaign)[1]
    ws.memory.clear()
    assert records(ws, campaign)[2] == last
    assert replay(ws, campaign).agrees


@pytest.mark.parametrize("name", REMOVED)
def test_a_selector_that_was_removed_is_refused_by_its_code(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'{name}' was removed") as told:
        make_selector(name)
    assert told.value.code == "selector"


def test_a_campaign_of_a_selector_that_was_removed_says_so_and_goes_on_with_another(ws: Workspace) -> None:
    campaign = make(ws, selector="random", people=1, budget=8)
    with ws.writing() as connection:  # as version 0.2 has stored it
        row = campaign_table.find_campaign(connection, campaign)
        campaign_table.update_campaign(connection, row.id, settings=replace(row.settings, selector="active_lab"))
    ws.memory.clear()
    with pytest.raises(
        InvalidInputError, match=r"'active_lab' was removed.*expected another one, such as 'margin'"
    ) as told:
        label_all(ws, campaign, "ann")
    assert told.value.code == "selector"
    assert campaigns.summary(ws, campaign).message == str(told.value)
    assert campaigns.settings(ws, campaign).selector == "active_lab"
    campaigns.change_settings(ws, campaign, "lead", selector="margin")
    campaigns.resume(ws, campaign, "lead")
    advance(ws, campaign)
    label_all(ws, campaign, "ann")
    assert [len(record) for record in records(ws, campaign)[1:]] == [4, 4]
