"""A ledger as a file of JSON lines, a line a round, beside a ledger in memory.

    {"round": 1, "items": [...], "suggested": [...], "influence": [...], "by_answer": [[...]], "votes": [[item, who, label]],
     "decided_items": [...], "decided": [...], "support": [...], "changed": [...], "spent": 10, "cleaned": 10,
     "validation": {...}, "steering": {...}, "test": {...} or null, "predicted_change": x, "realised_change": x,
     "selection": {...}, "construction": {...}, "seconds": {...}}

`loop.ledger.conversion` makes the lines. Round 0 is not in the file: it follows from the data.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from labelchef.base.errors import InvalidInputError
from labelchef.base.records import RoundRecord
from labelchef.loop.ledger.conversion import record_as_json, record_from_json
from labelchef.loop.ledger.memory import MemoryLedger
from labelchef.loop.ledger.protocol import Answered, Model


@dataclass
class JsonLinesLedger(MemoryLedger):
    """`path` is the file; it is made when the first round is written."""

    path: Path = field(kw_only=True)
    _written: int = 1
    """Rounds that are in the file or need not be: round 0."""

    def resume(self) -> list[RoundRecord]:
        """The rounds of the file. A last line that a crash cut off is dropped; damage before it is refused."""
        lines = self.path.read_bytes().split(b"\n")
        found = [self._read(line, number) for number, line in enumerate(lines[:-1], start=1)]
        if lines[-1]:
            with self.path.open("r+b") as stream:
                stream.truncate(self.path.stat().st_size - len(lines[-1]))
        self._written = 1 + len(found)
        return found

    def recover(self) -> None:
        """After an interrupt, which may have come in the middle of a write: make the file hold each round once."""
        self.resume()
        self.sync()

    def close(self, answered: Answered, record: RoundRecord, model: Model) -> bool:
        """Write the round, to the file too."""
        super().close(answered, record, model)
        self.sync()
        return True

    def sync(self) -> None:
        """Append the rounds that are not in the file yet, each with one write that is on the disk when this returns."""
        for record in self.history[self._written :]:
            line = json.dumps(record_as_json(record), allow_nan=False)
            with self.path.open("ab") as stream:
                stream.write((line + "\n").encode())
                stream.flush()
                os.fsync(stream.fileno())
            self._written += 1

    def _read(self, line: bytes, number: int) -> RoundRecord:
        try:
            record = record_from_json(json.loads(line))
            if record.number != number:
                raise ValueError("another round")  # noqa: TRY301
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            raise InvalidInputError(
                f"{self.path}, line {number} is not round {number} of a ledger; expected an unaltered file. "
                "Restore it from a copy, or start in a new folder",
                code="ledger",
            ) from None
        return record
