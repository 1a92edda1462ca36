"""Class positions from what people write."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labelchef.domain.errors import InvalidInputError

if TYPE_CHECKING:
    pass


def class_of(classes: Sequence[str], label: int | str | None) -> int | None:
    """A class position from a position or a name."""
    if label is None:
        return None
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(classes):
        return label
    if isinstance(label, str) and label in classes:
        return classes.index(label)
    shown = ", ".join(repr(name) for name in classes[:20])
    raise InvalidInputError(
        f"label is {label!r}; expected one of {shown}, a position from 0 to {len(classes) - 1}, or none for ambiguous",
        code="label",
    )
