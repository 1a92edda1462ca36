"""Labels of other tools come in, and count at once: on SQLite and PostgreSQL."""

import json
from pathlib import Path

import pandas as pd
import pytest

from labelchef.base.campaigns import ImportReport
from labelchef.base.errors import InvalidInputError
from labelchef.data.exchange import prodigy
from labelchef.data.exchange.records import Record, RecordSet
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import change_settings, status
from labelchef.server.campaigns.trained import forget, replay
from labelchef.server.export import take_home
from labelchef.server.intake.importing import import_votes, write_lines
from labelchef.server.items.decisions import ledger, reopen, resolve
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.store.campaign_table import keys_between
from labelchef.server.store.round_table import last_round, selections_of
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace
from tests.store_support import CLASSES, label_all, make, tasks, truth_of


def keys(ws: Workspace, campaign: str) -> set[str]:
    with ws.reading() as connection:
        return set(keys_between(connection, find(ws, campaign).id, 0, 10**6))


def write(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(path, index=False)
    return path


def handed_out(ws: Workspace, campaign: str) -> list[str]:
    """The items of the open round: the batch, then the work ahead."""
    with ws.reading() as connection:
        turn = last_round(connection, find(ws, campaign).id)
        assert turn is not None
        return [row.key for row in selections_of(connection, turn.id)]


def outcomes(found: ImportReport) -> list[tuple[str, str]]:
    return [(line.item, line.outcome.value) for line in found.lines]


def test_a_message_says_what_became_of_each_line(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, people=2, batch_size=2, ahead=2)
    asked, second, *ahead = handed_out(ws, campaign)
    free = [str(k) for k in range(60) if str(k) not in (asked, second, *ahead)]
    lead, tied, once, twice = free[:4]
    resolve(ws, campaign, lead, "ham", "boss")
    rows = [
        (asked, "zoe", "ham"),
        (second, "zoe", "ham"),
        (second, "yan", "ham"),
        (ahead[0], "zoe", "spam"),
        (lead, "zoe", "spam"),
        (tied, "zoe", "ham"),
        (tied, "yan", "spam"),
        (once, "zoe", "ham"),
        (twice, "zoe", "ham"),
        (twice, "zoe", "spam"),
    ]
    path = write(tmp_path / "votes.csv", list(rows))
    found = import_votes(ws, campaign, "lead", path)
    assert outcomes(found) == [
        (asked, "waits for more votes"),
        (second, "complete"),
        (second, "complete"),
        (ahead[0], "decided"),
        (lead, "a lead decided"),
        (tied, "no majority"),
        (tied, "no majority"),
        (once, "decided"),
        (twice, "replaced"),
        (twice, "decided"),
    ]
    assert [line.line for line in found.lines] == list(range(2, 12))
    given = {task.item for who in ("ann", "bob") for task in tasks(ws, campaign, who, 4)}
    assert ahead[0] not in given, "decided, so nobody is asked any more"
    labels = {e.item: e.label for e in ledger(ws, campaign, kind="decision").entries}
    assert labels == {lead: 0, ahead[0]: 1, once: 0, twice: 1}
    written = write_lines(found, tmp_path / "lines.csv").read_text().splitlines()
    assert written[1] == f"2,{asked},zoe,waits for more votes"
    assert outcomes(import_votes(ws, campaign, "lead", write(tmp_path / "third.csv", [(tied, "xia", "ham")]))) == [
        (tied, "decided")
    ]
    cast_vote(ws, campaign, "ann", asked, "ham")
    advance(ws, campaign)
    forget(ws, find(ws, campaign).id)  # as after a restart
    label_all(ws, campaign, "ann", "bob")
    assert replay(ws, campaign).agrees
    more = [(once, "yan", "ham"), (once, "xia", "spam"), (once, "uma", "spam"), (once, "wu", "spam")]
    agreeing, correcting = (
        import_votes(ws, campaign, "lead", write(tmp_path / "more.csv", part)) for part in (more[:2], more[2:])
    )
    assert outcomes(agreeing) == [(once, "agrees"), (once, "agrees")]
    assert outcomes(correcting) == [(once, "corrected"), (once, "corrected")]
    advance(ws, campaign)
    assert replay(ws, campaign).agrees


def test_labels_of_another_tool(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, people=2, batch_size=2)
    records = [Record(str(k), {"text": "x"}, answers={"user 2": "ham", "ben": None}) for k in range(60)]
    path = prodigy.write(RecordSet.of(records, CLASSES, texts=["text"]), tmp_path / "export.jsonl")
    found = import_votes(ws, campaign, "lead", path, rename={"user 2": "ada"})
    assert found.format == "prodigy"
    assert found.counts == {"read": 60, "decided": 58, "waits for more votes": 2}
    assert found.notes[0] == "answers without a label (skipped, or ambiguous), left out: 60"
    assert {one.person for one in status(ws, campaign).people} == {"ada"}
    strange = prodigy.write(
        RecordSet.of([Record("1", {"t": "x"}, answers={"ada": "tofu"})]), tmp_path / "strange.jsonl"
    )
    with pytest.raises(InvalidInputError, match="record 1: label is 'tofu'"):
        import_votes(ws, campaign, "lead", strange)
    with pytest.raises(InvalidInputError, match="holds no answer of a person"):
        import_votes(
            ws, campaign, "lead", prodigy.write(RecordSet.of([Record("1", {"t": "x"})]), tmp_path / "none.jsonl")
        )
    with pytest.raises(InvalidInputError, match="format is 'excel'; expected one of: label-studio"):
        import_votes(ws, campaign, "lead", path, format="excel")


def test_an_item_that_was_decided_and_tied_without_being_asked_can_be_asked(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, batch_size=1, budget=90)
    (asked,) = handed_out(ws, campaign)
    item = next(str(k) for k in range(60) if str(k) != asked)
    import_votes(ws, campaign, "lead", write(tmp_path / "a.csv", [(item, "zoe", "ham")]))
    back = import_votes(ws, campaign, "lead", write(tmp_path / "b.csv", [(item, "yan", "spam")]))
    assert outcomes(back) == [(item, "corrected")]
    assert ledger(ws, campaign, kind="decision", item=item).entries[0].label is None
    change_settings(ws, campaign, "boss", batch_size=60)
    label_all(ws, campaign, "ann", rounds=2)
    assert ledger(ws, campaign, kind="decision", item=item).entries[0].label == truth_of(90)[int(item)]
    assert replay(ws, campaign).agrees


def test_an_item_that_a_lead_took_back_is_decided_by_what_comes_in(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, batch_size=1)
    (item,) = handed_out(ws, campaign)
    label_all(ws, campaign, "ann")
    reopen(ws, campaign, item, "boss")
    found = import_votes(ws, campaign, "lead", write(tmp_path / "votes.csv", [(item, "zoe", "eggs")]))
    assert outcomes(found) == [(item, "decided")]
    label_all(ws, campaign, "ann")
    assert ledger(ws, campaign, kind="decision", item=item).entries[0].label == CLASSES.index("eggs")
    assert item not in handed_out(ws, campaign)
    assert replay(ws, campaign).agrees


def test_a_campaign_is_labelled_in_label_studio(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, batch_size=2)
    path = take_home.export_dataset(ws, campaign, tmp_path / "tasks.json", "label-studio")
    tasks_there = json.loads(path.read_text())
    assert tasks_there[0]["meta"]["labelchef"]["rank"] == 1, "the most doubtful first"
    assert tasks_there[0]["predictions"][0]["model_version"] == "labelchef"
    ids = keys(ws, campaign)
    done = [task for task in tasks_there if task["data"]["labelchef_id"] in ids][:10]
    truth = truth_of(90)
    for task in done:
        chosen = {"from_name": "label", "to_name": "shown_1", "type": "choices"}
        chosen["value"] = {"choices": [CLASSES[truth[int(task["data"]["labelchef_id"])]]]}  # type: ignore[assignment]
        task["annotations"] = [{"completed_by": 2, "result": [chosen], "was_cancelled": False}]
    path.write_text(json.dumps(tasks_there))
    found = import_votes(ws, campaign, "lead", path, rename={"user 2": "ada"})
    assert found.format == "label-studio"
    assert {line.annotator for line in found.lines} == {"ada"}
    assert len(found.lines) == 10
    assert {line.outcome.value for line in found.lines} <= {"decided", "complete"}
    advance(ws, campaign)
    decided = {e.item: e.label for e in ledger(ws, campaign, kind="decision").entries}
    assert decided.items() <= {str(k): int(truth[k]) for k in range(60)}.items()
    assert len(decided) == 10
    assert status(ws, campaign).summary.spent <= 2
    assert replay(ws, campaign).agrees
