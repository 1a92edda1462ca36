"""Stored times as people read them."""

from datetime import UTC, datetime


def moment(seconds: float) -> datetime:
    """A stored time."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """A stored time that may be missing."""
    return None if seconds is None else moment(seconds)
