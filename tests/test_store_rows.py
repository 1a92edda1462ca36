"""Typed rows: their fields are the columns of the tables, and enums and settings come back as they went in."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence

import pytest
import sqlalchemy as sa

from labelchef.base.campaigns import CampaignState, NewItem, Role, SplitName
from labelchef.base.errors import StoreError
from labelchef.base.settings import Settings
from labelchef.server.store import account_table, campaign_table, decision_table, round_table, rows, tables, vote_table
from labelchef.server.workspace import Workspace
from tests.store_support import label_all, make, tasks

MIRRORS = {
    rows.CampaignRow: tables.Campaign,
    rows.ItemRow: tables.Item,
    rows.RoundRow: tables.Round,
    rows.SelectionRow: tables.Selection,
    rows.AssignmentRow: tables.Assignment,
    rows.VoteRow: tables.Vote,
    rows.DecisionRow: tables.Decision,
    rows.ChangeRow: tables.SettingChange,
    rows.AccountRow: tables.Account,
    rows.TokenRow: tables.ApiToken,
    rows.CommentRow: tables.Comment,
    rows.DutyRow: tables.Duty,
    rows.GoldAnswerRow: tables.GoldAnswer,
    rows.GoldRow: tables.Gold,
    rows.GuidelineRow: tables.Guideline,
    rows.JobRow: tables.Job,
    rows.LeadActionRow: tables.LeadAction,
    rows.LeaseRow: tables.Lease,
    rows.RemovedCampaign: tables.RemovedCampaign,
    rows.WishRow: tables.Wish,
}
PARTS = {
    rows.DecisionWithPosition: (tables.Decision, tables.Item),
    rows.LeasedSelection: (tables.Selection, tables.Assignment),
    rows.VoteWithKey: (tables.Vote, tables.Item),
    rows.VoteWithRound: (tables.Vote, tables.Item, tables.Round),
    rows.SelectionBrief: (tables.Selection, tables.Item),
    rows.SelectionPlace: (tables.Selection, tables.Item),
    rows.OpenSelection: (tables.Selection,),
    rows.TurnRow: (tables.Round,),
    rows.CommentWithKey: (tables.Comment, tables.Item),
}
NAMED = {
    rows.SelectedItem: ((tables.Selection, tables.Item), ("item_attempt",)),
    rows.ShownGoldAnswer: ((tables.GoldAnswer,), ("key",)),
    rows.GoldAnswerOn: ((tables.GoldAnswer, tables.Gold, tables.Item), ("truth", "cover_key")),
}


def test_every_kind_of_row_is_looked_at_here() -> None:
    kinds = {kind for kind in vars(rows).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    written = {NewItem, rows.NewVote, rows.NewSelection, rows.NewGoldAnswer, Settings}
    assert kinds - written == MIRRORS.keys() | PARTS.keys() | NAMED.keys()


@pytest.mark.parametrize("kind", MIRRORS, ids=lambda kind: kind.__name__)
def test_a_row_has_the_columns_of_its_table_in_their_order(kind: type) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    assert names == [column.name for column in MIRRORS[kind].columns]
    assert [column.name for column in rows.columns(kind, MIRRORS[kind])] == names


@pytest.mark.parametrize("kind", [*PARTS, *NAMED], ids=lambda kind: kind.__name__)
def test_a_row_of_several_tables_selects_its_fields_in_their_order(kind: type) -> None:
    sources, named = NAMED[kind] if kind in NAMED else (PARTS[kind], ())
    found = rows.columns(kind, *sources, **dict.fromkeys(named, sa.literal(1)))
    assert [column.name for column in found] == [field.name for field in dataclasses.fields(kind)]


def test_a_field_that_no_table_has_is_noticed_at_once() -> None:
    with pytest.raises(LookupError, match=r"VoteWithKey\.key"):
        rows.columns(rows.VoteWithKey, tables.Vote)


def fits(value: object, hint: object) -> bool:
    if isinstance(hint, types.UnionType):
        return any(fits(value, one) for one in typing.get_args(hint))
    kind = typing.get_origin(hint) or hint
    if kind in (Mapping, Sequence):
        return isinstance(value, dict if kind is Mapping else list)
    return type(value) is kind or (kind is float and type(value) is int)


def test_values_are_of_the_types_the_rows_declare(ws: Workspace) -> None:
    campaign = make(ws, people=2)
    tasks(ws, campaign, "bob")
    label_all(ws, campaign, "ann", "bob")
    tasks(ws, campaign, "ann")
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        turn = round_table.last_round(connection, row.id)
        assert turn is not None
        selected = round_table.selections_of(connection, turn.id)
        given = [vote_table.assignment_of(connection, s.id, "ann") for s in selected]
        found: list[object] = [
            row,
            *round_table.rounds_of(connection, row.id),
            *selected,
            *vote_table.leases_of(connection, turn.id, "ann", vote_table.Moment(0.0, 1e12)),
            *round_table.selections_of_campaign(connection, row.id),
            *vote_table.all_votes(connection, row.id),
            *vote_table.live_votes_of_campaign(connection, row.id),
            *decision_table.decisions(connection, row.id),
            *campaign_table.items_between(connection, row.id, SplitName.TRAIN, 0, 5),
            campaign_table.item_by_key(connection, row.id, "3"),
            *[one for one in given if one is not None],
        ]
    for one in found:
        for name, hint in typing.get_type_hints(type(one)).items():
            assert fits(getattr(one, name), hint), (type(one).__name__, name, getattr(one, name), hint)


def test_enums_and_settings_come_back_as_they_went_in(ws: Workspace) -> None:
    campaign = make(ws, gamma=0.5, l2=0.01, target=0.75, stop="MaxRounds(3)")
    with ws.writing() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        changed = row.settings.changed(budget=None, target_metric="accuracy")
        campaign_table.update_campaign(connection, row.id, state=CampaignState.PAUSED, settings=changed)
        account_table.insert_account(connection, "ann", Role.ANNOTATOR, None)
    with ws.reading() as connection:
        again = campaign_table.find_campaign(connection, campaign)
        account = account_table.account_by_name(connection, "ann")
        stored = connection.execute(sa.text("SELECT state FROM campaign")).scalar_one()
    assert (again.state, again.settings, stored) == (CampaignState.PAUSED, changed, "paused")
    assert isinstance(again.state, CampaignState)
    assert again.version == row.version + 1
    assert account is not None
    assert account.role is Role.ANNOTATOR


def test_a_text_that_names_no_member_is_not_stored(ws: Workspace) -> None:
    wrong = sa.update(tables.Assignment).values(state="lost")
    with pytest.raises(StoreError, match="'lost' is not a valid AssignmentState"), ws.writing() as connection:
        connection.execute(wrong)
