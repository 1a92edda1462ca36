"""What a server writes down of its own work, without personal data: events with a few known facts.

`tell` writes an event. `noting` opens a note for a request; code below adds to it what only it knows (`note`, `count`), such as
the number of the campaign. Outside of a request both do nothing.

    request    noting() → … note(campaign=3), count("votes_stored") … → one log line, a few counters

Facts are numbers, or texts of this program (names of routes, codes, steps): never names, texts, tokens, addresses of people.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

_log = logging.getLogger("labelchef.events")
FACTS = "labelchef_facts"
"""The attribute of a log record that holds the facts."""


class Facts(TypedDict, total=False):
    """What may stand beside an event."""

    request: str
    """The request's id: hexadecimal digits and dashes."""
    method: str
    route: str
    """As the program declares it: `/api/campaigns/{campaign}/votes`."""
    status: int
    code: str
    """Of a problem."""
    ms: float
    campaign: int
    """The number of the campaign in the database, not its name."""
    step: str
    seconds: float
    process: int
    kind: str


@dataclass
class Note:
    """What code below has found out about a request."""

    campaign: int | None = None
    code: str | None = None
    counts: dict[str, int] = field(default_factory=dict)


_current: ContextVar[Note | None] = ContextVar("labelchef_note", default=None)


@contextlib.contextmanager
def noting() -> Iterator[Note]:
    """A note for what is done inside, also in threads that are started with a copy of the context.

    >>> with noting() as found:
    ...     note(campaign=3)
    ...     count("votes_stored")
    ...     count("votes_stored")
    >>> found
    Note(campaign=3, code=None, counts={'votes_stored': 2})
    """
    made = Note()
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)


def note(*, campaign: int | None = None, code: str | None = None) -> None:
    """Add what is known now to the note of this request, if there is one."""
    found = _current.get()
    if found is not None:
        found.campaign = found.campaign if campaign is None else campaign
        found.code = found.code if code is None else code


def count(what: str, by: int = 1) -> None:
    """Count something that this request has done."""
    found = _current.get()
    if found is not None:
        found.counts[what] = found.counts.get(what, 0) + by


def tell(event: str, level: int = logging.INFO, **facts: Unpack[Facts]) -> None:
    """Write an event."""
    _log.log(level, event, extra={FACTS: facts})
