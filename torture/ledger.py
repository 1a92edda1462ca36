"""What the clients know, kept apart from the server: every operation that was sent, and every one that was acknowledged.

An operation is written to a file before it is sent; its acknowledgement is written, and forced to the disk, when it comes.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Operation:
    """Something a client asks for."""

    kind: str
    """vote, undo, skip, decide, reopen, settings or import."""
    person: str
    item: str = ""
    label: int = -1
    request: str = ""
    """The request_id, where there is one; for an import the name of its annotator."""
    value: float = 0.0
    """The new value of a setting; the number of lines of an import."""


class Ledger:
    """All operations of the clients of one home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sent: dict[int, Operation] = {}
        self.acknowledged: dict[int, str] = {}
        """Number of an operation → id that the server gave, empty if it gives none."""

    def __enter__(self) -> Self:
        self._file = self._path.open("a")
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._file.close()

    def send(self, operation: Operation) -> int:
        """Note an operation before it is sent; its number."""
        number = len(self.sent) + 1
        self.sent[number] = operation
        self._file.write(json.dumps({"number": number, **asdict(operation)}) + "\n")
        return number

    def acknowledge(self, number: int, given: str = "") -> None:
        """Note that the server said that it is done."""
        self._file.write(json.dumps({"number": number, "acknowledged": given}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.acknowledged[number] = given
