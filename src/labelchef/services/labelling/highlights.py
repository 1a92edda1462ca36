"""Which words of an item's text made rules vote; never of items that are shown blind."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from labelchef.domain.campaigns import Highlight, SplitName, Task
from labelchef.services.campaign_rules import marks_of
from labelchef.services.people.access import Part
from labelchef.services.workspace import Workspace
from labelchef.sources.rules import Model
from labelchef.sources.spans import utf16
from labelchef.store import campaign_table
from labelchef.store.rows import CampaignRow


@contextlib.contextmanager
def _looking(ws: Workspace, campaign: str, part: Part | None) -> Iterator[tuple[Connection, CampaignRow]]:
    if part is not None:
        yield part.connection, part.campaign
        return
    with ws.reading() as connection:
        yield connection, campaign_table.find_campaign(connection, campaign)


def highlighted(ws: Workspace, campaign: str, tasks: Sequence[Task], part: Part | None = None) -> list[Task]:
    """The tasks with the words that the rules of the campaign matched, except those of muted rules.

    `part`: a transaction in which to look, if there is one.
    """
    keys = [one.item for one in tasks if not one.blind and one.content.text]
    if not keys:
        return list(tasks)
    with _looking(ws, campaign, part) as (connection, row):
        marks = marks_of(ws, connection, row)
        if marks is None:
            return list(tasks)
        place = {
            key: one.position
            for key, one in campaign_table.items_by_key(connection, row.id, keys, SplitName.TRAIN).items()
        }
    found = []
    for task in tasks:
        text, spans = task.content.text or "", []
        if not task.blind and task.item in place:
            for rule, start, end in marks.of_item(place[task.item]):
                if rule.name not in row.settings.muted and not isinstance(rule, Model):
                    first, last = utf16(text, (start, end))
                    spans.append(Highlight(first, last, rule.name, rule.label))
        found.append(replace(task, highlights=tuple(sorted(spans, key=lambda one: (one.start, one.end)))))
    return found
