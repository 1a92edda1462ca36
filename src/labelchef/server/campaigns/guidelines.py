"""Guidelines of a campaign: one Markdown text for all, and one for each class. Every version is kept."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from labelchef.base.errors import InvalidInputError
from labelchef.base.guidance import LONGEST_TEXT, ClassGuideline, Guidelines, GuidelineVersion
from labelchef.server.campaigns.access import changing, looking, taking_part
from labelchef.server.shared import moment
from labelchef.server.store import campaign_table, guidance_table
from labelchef.server.store.rows import storable
from labelchef.server.workspace import Workspace

_HEADING = re.compile(r"^(#{1,2})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")


def guidelines(ws: Workspace, campaign: str, person: str) -> Guidelines:
    """The guidelines as they hold now."""
    with looking(ws, campaign, person) as (connection, row):
        classes = campaign_table.classes_of(connection, row.id)
        found = guidance_table.current_guidelines(connection, row.id)
        seen = guidance_table.guidelines_seen(connection, row.id, person)
    texts = {position: one.text for position, one in found.items()}
    last = max(found.values(), key=lambda one: one.id, default=None)
    return Guidelines(
        version=0 if last is None else last.version,
        seen=seen,
        text=texts.get(None, ""),
        classes=tuple(ClassGuideline(name, texts.get(k, "")) for k, name in enumerate(classes)),
        changed_at=None if last is None else moment(last.created_at),
        changed_by=None if last is None else last.who,
    )


def versions(ws: Workspace, campaign: str) -> list[GuidelineVersion]:
    """Every text that was saved, newest first."""
    with looking(ws, campaign) as (connection, row):
        classes = campaign_table.classes_of(connection, row.id)
        rows = guidance_table.guidelines_of(connection, row.id)
    return [
        GuidelineVersion(
            version=one.version,
            about=None if one.class_position is None else classes[one.class_position],
            text=one.text,
            who=one.who,
            at=moment(one.created_at),
        )
        for one in reversed(rows)
    ]


def write(ws: Workspace, campaign: str, by: str, texts: Mapping[str | None, str]) -> int:
    """Save texts by class, None for the campaign's own; returns the version. Texts that are as before make no new one."""
    with changing(ws, campaign) as (connection, row):
        classes = campaign_table.classes_of(connection, row.id)
        check(texts, classes)
        version = guidance_table.guidelines_version(connection, row.id)
        now = store(connection, row.id, by, texts, classes)
        if now != version:
            campaign_table.update_campaign(connection, row.id)
        return now


def store(
    connection: Connection, campaign_id: int, by: str, texts: Mapping[str | None, str], classes: Sequence[str]
) -> int:
    """Append the texts that differ from those that hold; returns the version.

    The ledger gets the digests of the texts, so that a change of a stored text shows.
    """
    now = guidance_table.current_guidelines(connection, campaign_id)
    version = guidance_table.guidelines_version(connection, campaign_id)
    places = {about: None if about is None else classes.index(about) for about in texts}
    held = {about: now[place].text if place in now else "" for about, place in places.items()}
    different = {about: text for about, text in texts.items() if held[about] != text}
    if not different:
        return version
    for about, text in different.items():
        guidance_table.insert_guideline(connection, campaign_id, version + 1, places[about], text, by)
    digests = {about or "": hashlib.sha256(text.encode()).hexdigest() for about, text in different.items()}
    campaign_table.note_change(connection, campaign_id, by, {"guidelines": version + 1, "sha256": digests})
    return version + 1


def whole(text: str | None, classes: Sequence[str]) -> dict[str | None, str]:
    """The texts of a file of guidelines, checked; see `split`."""
    texts = {} if text is None else split(text, classes)
    check(texts, classes)
    return texts


def split(text: str, classes: Sequence[str]) -> dict[str | None, str]:
    """A file of guidelines: sections under a heading '# name' or '## name' of a class are about that class, up to the next such
    heading; the rest is the text of the campaign.

    >>> split("Read all.\\n\\n## spam\\nAdverts.\\n\\n## Doubt\\nSkip it.", ["spam", "ham"])
    {None: 'Read all.\\n\\n## Doubt\\nSkip it.', 'spam': 'Adverts.'}
    """
    parts: dict[str | None, list[str]] = {None: []}
    about: str | None = None
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found is not None:
            fence = "" if fence == found[1] else fence or found[1]
        heading = None if fence else _HEADING.match(line)
        if heading is not None:
            about = heading[2] if heading[2] in classes else None
        if heading is None or about is None:
            parts.setdefault(about, []).append(line)
        else:
            parts.setdefault(about, [])
    return {name: "\n".join(lines).strip() for name, lines in parts.items()}


def check(texts: Mapping[str | None, str], classes: Sequence[str]) -> None:
    """Refuse texts that are too long, or about a class that there is not."""
    for about, text in texts.items():
        if about is not None and about not in classes:
            shown = ", ".join(repr(name) for name in classes[:20])
            why = f"there is no class {about!r} to describe; expected one of {shown}, or none for the whole campaign"
            raise InvalidInputError(why, code="class_name")
        if len(text) > LONGEST_TEXT or not storable(text):
            of = "the campaign" if about is None else f"class {about!r}"
            why = f"the guidelines of {of} have {len(text)} characters; expected text of at most {LONGEST_TEXT}"
            raise InvalidInputError(why, code="guidelines")


def see(ws: Workspace, campaign: str, person: str, version: int) -> None:
    """A person looked at the guidelines of this version, or of the newest if there is none such yet."""
    with taking_part(ws, campaign, person, lasting=False) as (connection, row, *_):
        newest = guidance_table.guidelines_version(connection, row.id)
        guidance_table.see_guidelines(connection, row.id, person, min(version, newest))
