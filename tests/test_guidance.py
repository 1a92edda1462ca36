"""Guidelines, threads of comments, and the standing of a batch: on SQLite and on PostgreSQL."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from labelchef.base.campaigns import CommentKind
from labelchef.base.errors import InvalidInputError, NotFoundError, ThrottledError
from labelchef.base.settings import Settings
from labelchef.data.contents import Contents
from labelchef.data.intake.detecting import Given
from labelchef.server import worker
from labelchef.server.campaigns import campaigns, guidelines
from labelchef.server.intake.starting import look, start_campaign
from labelchef.server.items.decisions import ledger, resolve
from labelchef.server.labelling import discussions
from labelchef.server.labelling.tasks import media, next_tasks
from labelchef.server.labelling.votes import cast_vote, undo_vote
from labelchef.server.ledger.links import check_links
from labelchef.server.store import campaign_table, guidance_table
from labelchef.server.workspace import Workspace
from tests.store_support import label_all, make, small_data, tasks, waits

TEXT = "Read all of it.\n\n## spam\nAdverts, also polite ones.\n\n## When in doubt\nAsk.\n"


def test_guidelines_keep_every_version_and_say_who_has_seen_them(ws: Workspace) -> None:
    campaign = make(ws)
    assert guidelines.guidelines(ws, campaign, "ann").version == 0
    assert guidelines.write(ws, campaign, "lead", {None: "First", "spam": "Adverts"}) == 1
    assert guidelines.write(ws, campaign, "lead", {None: "First"}) == 1, "the same text is no new version"
    assert guidelines.write(ws, campaign, "boss", {None: "Second"}) == 2
    found = guidelines.guidelines(ws, campaign, "ann")
    assert (found.version, found.seen, found.text, found.changed_by) == (2, 0, "Second", "boss")
    assert {one.name: one.text for one in found.classes} == {"ham": "", "spam": "Adverts", "eggs": ""}
    told = [(one.version, one.about, one.text, one.who) for one in guidelines.versions(ws, campaign)]
    assert told == [(2, None, "Second", "boss"), (1, "spam", "Adverts", "lead"), (1, None, "First", "lead")]
    guidelines.see(ws, campaign, "ann", 1)
    assert (discussions.news(ws, campaign, "ann").seen, discussions.news(ws, campaign, "bob").seen) == (1, 0)
    guidelines.see(ws, campaign, "ann", 99)
    guidelines.see(ws, campaign, "ann", 1)
    assert discussions.news(ws, campaign, "ann").seen == 2
    changes = [one.what for one in ledger(ws, campaign, kind="change").entries if "guidelines" in one.what]
    assert [one["guidelines"] for one in changes] == [2, 1]
    label_all(ws, campaign, "ann")
    with ws.reading() as connection:
        state = check_links(connection, campaign_table.find_campaign(connection, campaign).id)
    assert state.told == ""


def test_guidelines_that_cannot_be_used_are_refused_before_a_campaign_is_made(ws: Workspace) -> None:
    campaign = make(ws)
    with pytest.raises(InvalidInputError, match="no class 'bacon'"):
        guidelines.write(ws, campaign, "lead", {"bacon": "x"})
    with pytest.raises(InvalidInputError, match="at most 15000"):
        campaigns.create_campaign(ws, "Long", small_data(), Settings(), "lead", guidelines="x" * 15_001)
    assert [one.slug for one in campaigns.list_campaigns(ws)] == [campaign]
    made = campaigns.create_campaign(ws, "Told", small_data(), Settings(), "lead", guidelines=TEXT)
    found = guidelines.guidelines(ws, made.slug, "ann")
    assert found.text == "Read all of it.\n\n## When in doubt\nAsk."
    assert [one.text for one in found.classes] == ["", "Adverts, also polite ones.", ""]


def test_a_heading_inside_a_code_block_is_no_section() -> None:
    text = "A\n```\n# spam\n```\n# spam #\nB"
    assert guidelines.split(text, ["spam"]) == {None: "A\n```\n# spam\n```", "spam": "B"}


def test_a_thread_between_an_annotator_and_a_lead(ws: Workspace) -> None:
    campaign = make(ws, people=2)
    item, other = (one.item for one in tasks(ws, campaign, "ann"))
    hers = discussions.add(ws, campaign, "ann", item, "  Is this spam?\n", lead=False)
    assert [(one.person, one.text, one.mine) for one in hers.comments] == [("ann", "Is this spam?", True)]
    assert discussions.news(ws, campaign, "ann").answers == ()
    discussions.add(ws, campaign, "lead", item, "Yes.", lead=True)
    assert [(one.item, one.count) for one in discussions.news(ws, campaign, "ann").answers] == [(item, 1)]
    assert [(one.item, one.count) for one in discussions.news(ws, campaign, "lead").answers] == []
    discussions.see(ws, campaign, "ann", item, lead=False)
    assert discussions.news(ws, campaign, "ann").answers == ()
    assert next(one.comments for one in tasks(ws, campaign, "ann") if one.item == item) == 2
    assert [one.item for one in discussions.threads(ws, campaign, "lead")] == [item]
    assert discussions.resolve(ws, campaign, "lead", item, resolved=True).resolved
    assert discussions.threads(ws, campaign, "lead") == []
    assert [one.item for one in discussions.threads(ws, campaign, "lead", resolved=True)] == [item]
    assert not discussions.add(ws, campaign, "ann", item, "And the next?", lead=False).resolved
    assert discussions.thread(ws, campaign, "ann", other, lead=False).comments == ()


def test_the_thread_of_an_item_is_for_those_who_were_given_it(ws: Workspace) -> None:
    campaign = make(ws, people=1)
    item = tasks(ws, campaign, "ann", 1)[0].item
    discussions.add(ws, campaign, "ann", item, "Hm.", lead=False)
    for ask in (discussions.thread, discussions.see):
        with pytest.raises(NotFoundError, match="was not given to 'bob'"):
            ask(ws, campaign, "bob", item, lead=False)
    with pytest.raises(NotFoundError):
        discussions.add(ws, campaign, "bob", item, "Let me in", lead=False)
    cast_vote(ws, campaign, "ann", item, 0)
    resolve(ws, campaign, item, 1, "lead")
    label_all(ws, campaign, "ann")
    assert len(discussions.thread(ws, campaign, "ann", item, lead=False).comments) == 1, "also when it is closed"


def test_notes_are_shown_to_leads_and_to_who_wrote_them(ws: Workspace) -> None:
    campaign = make(ws, people=2)
    item = tasks(ws, campaign, "ann", 1)[0].item
    next(one for one in tasks(ws, campaign, "bob", 4) if one.item == item)
    cast_vote(ws, campaign, "ann", item, 0, note="looks like ham to me")
    (thread,) = discussions.threads(ws, campaign, "lead")
    assert [(one.note, one.text, one.id) for one in thread.comments] == [(True, "looks like ham to me", None)]
    assert discussions.thread(ws, campaign, "bob", item, lead=False).comments == ()
    discussions.add(ws, campaign, "lead", item, "It is not.", lead=True)
    assert [one.count for one in discussions.news(ws, campaign, "ann").answers] == [1], "an answer to a note"
    assert discussions.news(ws, campaign, "bob").answers == ()
    seen = discussions.thread(ws, campaign, "ann", item, lead=False)
    assert [one.text for one in seen.comments] == ["looks like ham to me", "It is not."]
    discussions.resolve(ws, campaign, "lead", item, resolved=True)
    assert discussions.threads(ws, campaign, "lead") == []
    cast_vote(ws, campaign, "ann", item, 1, note="spam, then")
    assert [one.item for one in discussions.threads(ws, campaign, "lead")] == [item], "a new note opens it again"


def test_a_hidden_comment_is_kept_and_its_text_is_for_leads_only(ws: Workspace) -> None:
    campaign = make(ws)
    item = tasks(ws, campaign, "ann", 1)[0].item
    discussions.add(ws, campaign, "ann", item, "A question", lead=False)
    said = discussions.add(ws, campaign, "lead", item, "A slip", lead=True).comments[-1]
    hidden = discussions.hide(ws, campaign, "lead", str(said.id), hidden=True).comments[-1]
    assert (hidden.text, hidden.hidden) == ("A slip", True)
    assert discussions.thread(ws, campaign, "ann", item, lead=False).comments[-1].text == ""
    assert discussions.news(ws, campaign, "ann").answers == (), "nothing to read"
    discussions.hide(ws, campaign, "lead", str(said.id), hidden=False)
    noted = [one.what for one in ledger(ws, campaign, kind="change", person="lead").entries][:2]
    assert [{"comment_shown", "comment_hidden"} & one.keys() for one in noted] == [
        {"comment_shown"},
        {"comment_hidden"},
    ]
    assert all(one["member_wrote"] == said.person and one["item"] for one in noted)
    assert discussions.thread(ws, campaign, "ann", item, lead=False).comments[-1].text == "A slip"
    assert [one.count for one in discussions.news(ws, campaign, "ann").answers] == [1]
    with pytest.raises(NotFoundError, match="no comment 'x'"):
        discussions.hide(ws, campaign, "lead", "x", hidden=True)
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        kinds = [one.kind for one in guidance_table.threads_of(connection, row.id)]
    assert kinds == [CommentKind.COMMENT, CommentKind.COMMENT, CommentKind.HIDDEN, CommentKind.SHOWN]


def test_comments_have_a_length_and_a_rate(ws: Workspace) -> None:
    campaign = make(ws)
    item = tasks(ws, campaign, "ann", 1)[0].item
    for text in ("", " \n ", "x" * 2001, "a\x00b"):
        with pytest.raises(InvalidInputError, match="expected 1 to 2000"):
            discussions.add(ws, campaign, "ann", item, text, lead=False)
    for k in range(20):
        discussions.add(ws, campaign, "ann", item, f"Comment {k}", lead=False)
    with pytest.raises(ThrottledError, match="more than 20 comments in a minute") as refused:
        discussions.add(ws, campaign, "ann", item, "One more", lead=False)
    assert 1 <= refused.value.retry_after <= 60
    discussions.add(ws, campaign, "lead", item, "Others may", lead=True)


def test_the_batch_counts_answers_whatever_they_say(ws: Workspace) -> None:
    campaign = make(ws, people=2, batch_size=3)

    def standing(person: str) -> tuple[int, int, int]:
        found = next_tasks(ws, campaign, person)
        batch = found[0].batch if isinstance(found, list) else found.batch
        assert batch is not None
        return batch.mine, batch.answered, batch.wanted

    assert standing("ann") == (0, 0, 6)
    items = [one.item for one in tasks(ws, campaign, "ann", 3)]
    for k, item in enumerate(items):
        cast_vote(ws, campaign, "ann", item, k)
    assert standing("ann") == (3, 3, 6), "with the last item gone, where one waits"
    assert waits(ws, campaign, "ann").batch is not None
    assert standing("bob") == (0, 3, 6)
    cast_vote(ws, campaign, "bob", tasks(ws, campaign, "bob", 1)[0].item, 0)
    assert standing("bob") == (1, 4, 6)
    undone = undo_vote(ws, campaign, "bob").batch
    assert undone is not None
    assert (undone.mine, undone.answered) == (0, 3)
    resolve(ws, campaign, items[0], 1, "lead")
    assert standing("bob") == (0, 4, 6), "what a lead decided needs no more answers"
    worker.advance(ws, campaign)


def _pictures(folder: Path, n: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(n):
        for name in ("front", "side"):
            grey = np.full((16, 16), 40 * (k % 4) + (10 if name == "side" else 0), dtype=np.uint8)
            grey[0, 0] = k  # rows with the same content would be one question
            Image.fromarray(grey).save(folder / f"{name}{k}.png")


def test_items_with_several_images(ws: Workspace, tmp_path: Path) -> None:
    _pictures(tmp_path / "media", 60)
    names = {name: [f"{name}{k}.png" for k in range(60)] for name in ("front", "side")}
    names["side"][3] = ""
    items = pd.DataFrame({"image": names["front"], "side": names["side"], "age": range(60)})
    data = small_data()
    contents = Contents(items, media=tmp_path / "media", more_images=("side",))
    campaign = make(ws, data=type(data)(**{**vars(data), "contents": contents}), batch_size=60, budget=60)
    found = {one.item: one.content for one in tasks(ws, campaign, "ann", 60)}
    assert found["1"].images == ("front1.png", "side1.png")
    assert dict(found["1"].fields) == {"age": 1}, "an image is no field"
    assert (found["3"].image, found["3"].images) == ("front3.png", ("front3.png",))
    assert [media(ws, campaign, "1", k).name for k in (0, 1)] == ["front1.png", "side1.png"]
    for number, item in ((2, "1"), (1, "3")):
        with pytest.raises(NotFoundError, match="no image"):
            media(ws, campaign, item, number)
    missing = Contents(items.assign(side="gone.png"), media=tmp_path / "media", more_images=("side",))
    with pytest.raises(InvalidInputError, match=r"there is no image .*gone\.png"):
        make(ws, "Lost", type(data)(**{**vars(data), "contents": missing}))


def test_several_image_columns_of_a_table_become_several_images(tmp_path: Path) -> None:
    from labelchef.server.workspace import open_workspace

    _pictures(tmp_path / "pictures", 40)
    rows = [
        {"id": f"r{k}", "view": f"front{k}.png", "from_side": f"side{k}.png", "guess": "ab"[k % 2]} for k in range(40)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    gold = pd.DataFrame({"id": [f"r{k}" for k in range(12)], "label": ["ab"[k % 2] for k in range(12)]})
    gold.to_csv(tmp_path / "gold.csv", index=False)
    given = Given(trusted=(tmp_path / "gold.csv",), labels=("guess",), media=(tmp_path / "pictures",))
    looked = look([tmp_path / "rows.csv"], given)
    assert looked.preview.usable, looked.preview.findings
    with open_workspace(tmp_path / "home") as ws:
        made = start_campaign(ws, "Views", looked.content, Settings(batch_size=4, people=1), "lead", specs=["pixels"])
        worker.advance(ws, made.slug)
        (task,) = tasks(ws, made.slug, "ann", 1)
        k = task.item.removeprefix("r")
        assert task.content.images == (f"front{k}.png", f"side{k}.png")
        assert "from_side" not in task.content.fields
        assert media(ws, made.slug, task.item, 1).is_file()
