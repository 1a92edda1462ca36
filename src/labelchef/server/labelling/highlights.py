"""Why an item is asked: the words that made rules vote, what sources say, and how far the model decides; never of blind items."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy import Connection

from labelchef.base.campaigns import Highlight, Task
from labelchef.believe.rules import Model
from labelchef.believe.spans import utf16
from labelchef.server.campaigns import numbers
from labelchef.server.campaigns.access import Part
from labelchef.server.items.source_votes import votes_seen
from labelchef.server.labelling.kept import places_of
from labelchef.server.memory import Latest
from labelchef.server.sources.campaign_rules import marks_of
from labelchef.server.store import campaign_table
from labelchef.server.store.arrays import ArrayFacts
from labelchef.server.store.rows import CampaignRow
from labelchef.server.workspace import Workspace, folder_of

_CAMPAIGNS = 256
MOST_SAID = 8
"""Sources whose votes are told."""


class _Arrays(Latest[str, dict[str, ArrayFacts]]):
    """The arrays of campaigns; the votes that a campaign was made with stay."""

    most = _CAMPAIGNS


@contextlib.contextmanager
def _looking(ws: Workspace, campaign: str, part: Part | None) -> Iterator[tuple[Connection, CampaignRow]]:
    if part is not None:
        yield part.connection, part.campaign
        return
    with ws.reading() as connection:
        yield connection, campaign_table.find_campaign(connection, campaign)


def highlighted(ws: Workspace, campaign: str, tasks: Sequence[Task], part: Part | None = None) -> list[Task]:
    """The tasks with the words that the rules of the campaign matched, the votes of sources, and the model's margin.

    What is muted is left out. `part`: a transaction in which to look, if there is one.
    """
    keys = [one.item for one in tasks if not one.blind]
    if not keys:
        return list(tasks)
    with _looking(ws, campaign, part) as (connection, row):
        marks, folder = marks_of(ws, connection, row), folder_of(ws, row)
        arrays = ws.memory.of(_Arrays).made(row.public_id, partial(campaign_table.arrays_of, connection, row.id))
        votes = votes_seen(ws.memory, folder, arrays, len(tasks[0].classes))
        place = places_of(ws.memory, connection, row, keys)
    seen, muted, told = numbers.latest(folder), row.settings.muted, list[Task]()
    for task in tasks:
        at = place.get(task.item)
        if task.blind or at is None:
            told.append(task)
            continue
        text, spans = task.content.text or "", []
        for rule, start, end in marks.of_item(at) if marks is not None and text else ():
            if rule.name not in muted and not isinstance(rule, Model):
                first, last = utf16(text, (start, end))
                spans.append(Highlight(first, last, rule.name, rule.label))
        heard = [one for one in ([] if votes is None else votes.said(at)) if one.source not in muted]
        said = [(one.source, max(one.votes, key=lambda c, given=one.votes: given[c])) for one in heard]  # type: ignore[misc]
        said.sort(key=lambda one: one[1] == task.suggestion)
        told.append(
            replace(
                task,
                highlights=tuple(sorted(spans, key=lambda one: (one.start, one.end))),
                margin=None if seen is None or at >= len(seen) else round(1.0 - float(seen["doubt"][at]), 4),
                sources=tuple((name, task.classes[label]) for name, label in said[:MOST_SAID]),
            )
        )
    return told
