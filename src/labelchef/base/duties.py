"""Which items a member of a campaign gets: some classes, a slice, or both."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MOST_ITEMS = 10_000


@dataclass(frozen=True)
class Duty:
    """All conditions that are given must hold; none given is everything."""

    classes: tuple[str, ...] = ()
    """Classes an item is believed to have when it is selected: the suggestion, else the most probable weak label."""
    field: str = ""
    """A field of the items, with `value`."""
    value: str = ""
    prefix: str = ""
    """How the ids of the items begin."""
    items: tuple[str, ...] = ()
    """Ids."""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Duty":
        """As it is stored."""
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in stored.items()}
        return cls(**given)

    def as_json(self) -> dict[str, Any]:
        """As it is stored: only what is given."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items() if v}

    @property
    def sliced(self) -> bool:
        """Whether it looks at more than the class."""
        return bool(self.field or self.prefix or self.items)

    def covers(self, believed: str, key: str = "", fields: Mapping[str, object] | None = None) -> bool:
        """Whether an item belongs to it.

        >>> Duty(classes=("cat",), field="lang", value="de").covers("cat", "t1", {"lang": "de"})
        True
        >>> Duty(prefix="de-").covers("cat", "en-7")
        False
        """
        found = (fields or {}).get(self.field)
        return (
            (not self.classes or believed in self.classes)
            and (not self.field or (found is not None and str(found) == self.value))
            and (not self.prefix or key.startswith(self.prefix))
            and (not self.items or key in self.items)
        )

    def __str__(self) -> str:
        said = []
        if self.classes:
            said.append(f"classes {', '.join(self.classes)}")
        if self.field:
            said.append(f"{self.field} = {self.value}")
        if self.prefix:
            said.append(f"ids that begin with {self.prefix}")
        if self.items:
            said.append(f"{len(self.items)} named items")
        return "; ".join(said) or "everything"
