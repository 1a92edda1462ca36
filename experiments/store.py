"""Finished cells on disk: a line of JSON each, appended as they end, so that a run can be taken up again."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.cells import Cell
from labelchef.base.files import whole_file

Result = dict[str, Any]


class CellStore:
    """The files DIR/cells/<experiment>.jsonl.

    A line that was cut short by a crash is passed over when reading, and closed before the next one is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"

    def finished(self, cells: Iterable[Cell]) -> dict[str, Result]:
        """Key → result of those among the cells that are done; the last one, should a key be there twice."""
        wanted = {cell.key: cell.experiment for cell in cells}
        found: dict[str, Result] = {}
        for experiment in sorted(set(wanted.values())):
            for result in self._read(experiment):
                if wanted.get(result["key"]) == experiment:
                    found[result["key"]] = result
        return found

    def add(self, result: Result) -> None:
        """Append; on disk when this returns."""
        path = self._path(result["cell"]["experiment"])
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            if file.tell() and not _ends_with_newline(file):
                file.write(b"\n")
            file.write(json.dumps(result, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def forget(self, cells: Iterable[Cell]) -> None:
        """Start these cells afresh; others of the same files stay."""
        gone = {cell.key: cell.experiment for cell in cells}
        for experiment in sorted(set(gone.values())):
            kept = [
                json.dumps(result, separators=(",", ":"))
                for result in self._read(experiment)
                if result["key"] not in gone
            ]
            if self._path(experiment).exists():
                with whole_file(self._path(experiment)) as stream:
                    stream.write("".join(f"{line}\n" for line in kept).encode())

    def _path(self, experiment: str) -> Path:
        return self._folder / f"{experiment}.jsonl"

    def _read(self, experiment: str) -> Iterable[Result]:
        path = self._path(experiment)
        if not path.exists():
            return
        for line in path.read_bytes().splitlines():
            try:
                result = json.loads(line)
            except ValueError:
                continue  # cut short
            if isinstance(result, dict) and "key" in result:
                yield result


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
