"""Rules that a campaign keeps: their effect before it is applied, edits while it runs, and the words they mark."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelchef.base.campaigns import Task
from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.base.records import Heard
from labelchef.base.settings import Settings
from labelchef.believe.rules import rule_of, rule_values
from labelchef.believe.spans import utf16, words_in
from labelchef.loop.rebuild import Verdict
from labelchef.loop.source_effect import effect_of
from labelchef.server.campaigns import campaigns, trained
from labelchef.server.campaigns.access import find
from labelchef.server.export import proof
from labelchef.server.export.take_home import dataset, export_dataset
from labelchef.server.export.verifying import verify_ledger
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.sources import source_effects, sources
from labelchef.server.sources.campaign_rules import kept_rules
from labelchef.server.sources.source_effects import EffectState, Progress, Proposal, apply, begin, cancel, look
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.rule_campaigns import RULES, label_batch, make

FIXED: dict[str, Any] = {"sources": "naive_bayes", "gamma": 0.5, "l2": 0.001}
BETTER = rule_of(rule_values(RULES[2]) | {"label": "spam", "words": ["click", "channel", "word1"]})
VALUES = tuple(map(rule_values, RULES))
EDITED = (*VALUES[:2], rule_values(BETTER), VALUES[3])


def computed(ws: Workspace, name: str, proposal: Proposal) -> Progress:
    begin(ws, name, proposal)
    deadline = time.monotonic() + 60
    while look(ws, name).state is EffectState.RUNNING and time.monotonic() < deadline:
        time.sleep(0.05)
    return look(ws, name)


def test_the_effect_of_an_edit_is_the_campaign_that_is_made_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracles: a campaign really made with the edited rule, one made without the rule, and what applying it gives."""
    monkeypatch.setattr(Settings, "tol", 1e-6)
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, tmp_path / "a", **FIXED)
        other = make(ws, tmp_path / "b", (*RULES[:2], BETTER, RULES[3]), name="edited", **FIXED)
        fewer = make(ws, tmp_path / "c", (*RULES[:2], RULES[3]), name="fewer", **FIXED)
        wanted, less = (trained.trained_now(ws, find(ws, one)).session for one in (other, fewer))
        before = trained.trained_now(ws, find(ws, name)).session.parameters.copy()

        gone = computed(ws, name, Proposal((), (*VALUES[:2], VALUES[3])))
        muted = computed(ws, name, Proposal(("wrong",)))
        for found in (gone, muted):
            assert found.effect is not None, found.problem
            np.testing.assert_allclose(found.effect.parameters, less.parameters, atol=1e-4 * np.abs(before).max())
            assert found.effect.gains["validation"]["loss"].after == pytest.approx(
                less.rounds[0].validation.loss, rel=1e-3
            )

        found = computed(ws, name, Proposal((), EDITED))
        assert found.effect is not None, found.problem
        np.testing.assert_allclose(found.effect.parameters, wanted.parameters, atol=1e-4 * np.abs(before).max())
        assert not np.allclose(wanted.parameters, before, atol=1e-2 * np.abs(before).max()), "the edit matters"
        assert len(found.shown) == min(20, found.effect.believed)
        assert not found.stale

        assert apply(ws, name, Proposal((), EDITED), "lead") == 1
        assert look(ws, name).stale
        label_batch(ws, name)
        session = trained.trained_now(ws, find(ws, name)).session
        assert session.heard == Heard((), 1)
        assert session.learner is not None
        assert wanted.learner is not None
        order = [session.learner.votes.names.index(one) for one in wanted.learner.votes.names]
        ours, theirs = session.learner.votes, wanted.learner.votes
        C = 2
        columns = np.concatenate([np.arange(j * C, j * C + C) for j in order])
        assert (ours.table.toarray()[:, columns] == theirs.table.toarray()).all()


def test_edits_survive_restart_replay_and_verification(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, tmp_path / "a", budget=15, **FIXED)
        label_batch(ws, name)
        fresh = {"name": "gift", "kind": "keyword", "column": "comment", "label": "spam", "words": ["channel"]}
        apply(ws, name, Proposal(("long",), (*EDITED[:3], EDITED[3], fresh)), "lead")
        with pytest.raises(InvalidInputError, match="no source 'praise'"):
            apply(ws, name, Proposal(("praise",), (*EDITED[:1], *EDITED[2:])), "lead")
        with pytest.raises(ConflictError, match="those that the campaign has"):
            source_effects.edited(ws, find(ws, name), (*EDITED, fresh))
        while campaigns.summary(ws, name).state != "finished":
            label_batch(ws, name)
        apply(ws, name, Proposal((), EDITED), "lead")
        advance(ws, name)
        assert trained.trained_now(ws, find(ws, name)).session.heard == Heard((), 2)
        assert [one.name for one in kept_rules(ws, find(ws, name))[0].rules] == ["asks", "praise", "wrong", "long"]
        assert [one.name for one in kept_rules(ws, find(ws, name), 1)[0].rules][-1] == "gift"
    with open_workspace(tmp_path / "home") as ws:
        session = trained.trained_now(ws, find(ws, name)).session
        assert session.heard == Heard((), 2)
        outcome = trained.replay(ws, name)
        assert outcome.agrees, outcome.message
        assert {one.model for one in outcome.rounds if one.model is not None} == {Verdict.SAME}
        path = tmp_path / "ledger.jsonl"
        proof.write_ledger(ws, name, path)
        assert verify_ledger(path).intact
        text = path.read_text()
        assert "votes-1_indices" in text
        frame = dataset(ws, name)
        voted = frame[frame["split"] == "train"].set_index("id")["vote: wrong"]
        said = {one.item for one in sources.source_detail(ws, name, "wrong").right if not one.trusted}
        assert set(voted.dropna()) == {"spam"}, "the votes of the rule as it is now"
        assert set(voted.dropna().index) >= said
        assert verify_ledger(path, data=export_dataset(ws, name, tmp_path / "data.csv")).intact
        with ws.writing() as connection:
            connection.exec_driver_sql("UPDATE array_file SET sha256 = 'f' || substr(sha256, 2) WHERE name = 'rules-1'")
        assert not trained.replay(ws, name).agrees, "the digest in the database is not the one of the change"


def test_an_effect_can_be_cancelled_and_votes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, tmp_path / "a")
        with pytest.raises(NotFoundError, match="no effect"):
            look(ws, name)
        held = threading.Event()
        real = effect_of

        def slowly(*given: object) -> object:
            held.wait(20)
            return real(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(source_effects, "effect_of", slowly)
        assert begin(ws, name, Proposal(("wrong",))).state is EffectState.RUNNING
        began = time.perf_counter()
        label_batch(ws, name)
        assert time.perf_counter() - began < 15
        threading.Timer(0.1, held.set).start()
        assert cancel(ws, name).state in (EffectState.CANCELLED, EffectState.RUNNING)
        time.sleep(0.5)
        assert look(ws, name).state is EffectState.CANCELLED
        monkeypatch.setattr(source_effects, "MOST_SECONDS", -1.0)
        assert "not computed within" in str(computed(ws, name, Proposal(("wrong",))).problem)
        for wrong in (Proposal(("nobody",)), Proposal((), ({**VALUES[0], "label": "eggs"},))):
            with pytest.raises(InvalidInputError):
                begin(ws, name, wrong)


def test_a_source_is_shown_with_what_it_is_right_and_wrong_on(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, tmp_path / "a", **FIXED)
        found = sources.source_detail(ws, name, "wrong")
        assert found.rule == VALUES[2]
        assert found.n_wrong > found.n_right
        assert found.n_right + found.n_wrong >= found.source.measured_on
        for one in found.wrong:
            assert (one.trusted, one.vote, one.truth) == (True, "ham", "spam")
            assert "click" in str(one.content.text)
        assert all(one.truth == one.vote for one in found.right)
        assert all(set(one.others.values()) - {one.vote} for one in found.conflicting)
        session = trained.trained_now(ws, find(ws, name)).session
        assert session.learner is not None
        T = session.learner.votes.table.toarray().reshape(-1, 4, 2)
        for pair in found.conflicts:
            j, k = (session.learner.votes.names.index(who) for who in ("wrong", pair.name))
            both = T[:, j].any(axis=1) & T[:, k].any(axis=1)
            assert (pair.both, pair.differ) == (both.sum(), (both & (T[:, j] != T[:, k]).any(axis=1)).sum())
        page = sources.source_page(ws, name, search="R", sort="accuracy", falling=False, limit=2)
        assert page.sources[0].name == "wrong"
        assert page.found == 2
        every = sources.source_page(ws, name).sources
        assert {one.name for one in every if one.rule} == {"asks", "praise", "wrong", "long"}
        with pytest.raises(NotFoundError, match="no source"):
            sources.source_detail(ws, name, "nobody")


def test_matched_words_are_marked_unless_blind(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, tmp_path / "a", **FIXED)
        tasks = next_tasks(ws, name, "ann", n=5)
        assert isinstance(tasks, list)
        assert any(one.highlights for one in tasks)
        for task in tasks:
            assert _marked(task) == _expected(task)
            assert task.margin is not None
            assert 0.0 <= task.margin <= 1.0
            assert {(who, label) for who, label in task.sources} >= {(one.source, one.label) for one in task.highlights}
        campaigns.change_settings(ws, name, "lead", muted=["praise"])
        tasks = next_tasks(ws, name, "ann", n=5)
        assert isinstance(tasks, list)
        assert not any(one.source == "praise" for task in tasks for one in task.highlights)
        assert not any(who == "praise" for task in tasks for who, _ in task.sources)
        blind = make(ws, tmp_path / "b", name="blind", blind_share=1.0, **FIXED)
        tasks = next_tasks(ws, blind, "ann", n=5)
        assert isinstance(tasks, list)
        assert not any(one.highlights or one.sources or one.margin for one in tasks)


def _marked(task: Task) -> set[tuple[str, str, str]]:
    units = str(task.content.text).encode("utf-16-le")
    return {(units[2 * one.start : 2 * one.end].decode("utf-16-le"), one.source, one.label) for one in task.highlights}


def _expected(task: Task) -> set[tuple[str, str, str]]:
    words = str(task.content.text).split()
    found = {(w, "asks", "spam") for w in words if w in ("subscribe", "free")}
    first = next((w for w in words if w in ("song", "voice")), None)
    found |= {(first, "praise", "ham")} if first else set()
    return found | {(w, "wrong", "ham") for w in words if w == "click"}


def test_words_are_found_where_folding_changes_the_length() -> None:
    text = "🎉🎉 Die STRASSE, die Straße; cafe\u0301 & Café"
    assert [text[a:b] for a, b in words_in(text, ["straße", "café"])] == ["STRASSE", "Straße", "cafe\u0301", "Café"]
    assert words_in("window win", ["win"]) == [(7, 10)]
    assert words_in("window win", ["win"], whole_word=False) == [(0, 3), (7, 10)]
    assert utf16(text, [2, 3]) == [4, 5]


def test_several_text_columns_are_told_apart(tmp_path: Path) -> None:
    import pandas as pd

    from labelchef.base.campaigns import SplitName
    from labelchef.believe.rules import rule_of
    from labelchef.server.sources.campaign_rules import Kept, _cells, arrays_to_keep
    from labelchef.server.store.rows import ItemRow

    rule = rule_of({"name": "r", "kind": "keyword", "column": "body", "label": "x", "words": ["win"]})
    frame = pd.DataFrame({"id": ["a", "b"], "title": ["win", None], "body": ["I win", "win win"]})
    made = arrays_to_keep(Kept((rule,), ("title", "body")), (frame, frame[:1]))
    assert made["text_parts"].tolist() == [[3, 5], [0, 7], [3, 5]]
    assert made["spans"].tolist() == [[0, 0, 6, 9], [1, 0, 0, 3], [1, 0, 4, 7]]
    item = ItemRow(1, 1, SplitName.TRAIN, 0, "a", "win\nI win", None, {"text (column)": 7}, None, None, 0)
    cells = _cells(item, Kept((rule,), ("title", "body")), made["text_parts"][0])
    assert cells == {"text": 7, "title": "win", "body": "I win", "id": "a"}
