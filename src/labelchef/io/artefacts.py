"""What a campaign leaves on disk. Every file appears whole or not at all.

cleaned_labels.csv   a row a training sample: label, probabilities, where the label came from
model.npz            W, classes and settings; `read_model` gives them back
history.csv          a row a round
rounds.jsonl         the ledger: a line a round, with every selection, vote and decision
summary.json         before and after, the gain with its interval, why it stopped, settings, versions
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labelchef.domain.arrays import Bools, Float64s
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.files import whole_file
from labelchef.domain.records import Batch, Decisions, RoundRecord, SelectionDiagnostics, Votes

LEDGER = "rounds.jsonl"


def write_text(path: Path, text: str) -> None:
    """Write a whole text file."""
    with whole_file(path) as stream:
        stream.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")


def write_cleaned_labels(path: Path, Y: Float64s, cleaned: Bools, given: Bools, names: list[Any]) -> None:
    """A row a training sample."""
    probability = {f"p_{name}": Y[:, c] for c, name in enumerate(names)}
    source = np.where(given, "given", np.where(cleaned, "cleaned", "weak"))
    chosen = [names[c] for c in Y.argmax(axis=1)]
    frame = pd.DataFrame({"item": np.arange(len(Y)), "label": chosen, "source": source, **probability})
    write_text(path, frame.to_csv(index=False))


def write_model(path: Path, W: Float64s, names: list[Any], settings: dict[str, Any]) -> None:
    """Parameters, class names and settings, readable without pickle."""
    meta = json.dumps({"classes": names, "settings": settings}, ensure_ascii=False, default=_plain)
    with whole_file(path) as stream:
        np.savez(stream, W=W, meta=np.array(meta))


def read_model(path: Path) -> tuple[Float64s, list[Any], dict[str, Any]]:
    """W, class names and settings of `write_model`."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            meta = json.loads(str(archive["meta"]))
            return np.asarray(archive["W"], dtype=np.float64), meta["classes"], meta["settings"]
    except Exception as error:  # every way in which a file can fail to be a model
        raise InvalidInputError(f"{path} is no labelchef model: {error}", code="file") from None


def append_round(path: Path, record: RoundRecord) -> None:
    """Add one line to the ledger and see it onto the disk."""
    line = {
        "round": record.number,
        "items": record.batch.indices,
        "suggested": record.batch.suggested,
        "influence": [_finite(value) for value in record.batch.influence.tolist()],
        "by_answer": [[_finite(value) for value in row] for row in record.batch.by_answer.tolist()],
        "votes": list(record.votes),
        "decided": record.decisions.labels,
        "support": record.decisions.support,
        "changed": record.changed,
        "seconds": dict(record.seconds),
        "diagnostics": {k: _finite(v) for k, v in asdict(record.batch.diagnostics).items()},
        "validation": record.validation.as_dict(),
        "steering": record.steering.as_dict(),
        "test": None if record.test is None else record.test.as_dict(),
    }
    with path.open("ab") as stream:
        stream.write((json.dumps(line, default=_plain, allow_nan=False) + "\n").encode())
        stream.flush()
        os.fsync(stream.fileno())


@dataclass(frozen=True)
class LedgerRound:
    """A round as the ledger has it."""

    batch: Batch
    votes: Votes
    decisions: Decisions
    seconds: dict[str, float]


def read_ledger(path: Path) -> list[LedgerRound]:
    """The rounds of a ledger.

    A last line that a crash cut off is dropped from the file; damage before it is refused.
    """
    lines = path.read_bytes().split(b"\n")
    complete, rest = lines[:-1], lines[-1]
    rounds = []
    for number, line in enumerate(complete, start=1):
        try:
            rounds.append(_ledger_round(json.loads(line), number))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            raise InvalidInputError(
                f"{path}, line {number} is no round {number} of a ledger; expected an unaltered file. "
                "Restore it from a copy, or start in a new folder",
                code="ledger",
            ) from None
    if rest:
        _cut(path, len(rest))
    return rounds


def _ledger_round(entry: dict[str, Any], number: int) -> LedgerRound:
    items = np.array(entry["items"], dtype=np.int64)
    suggested, decided = (np.array(entry[key], dtype=np.int64) for key in ("suggested", "decided"))
    influence, support = (np.array(entry[key], dtype=np.float64) for key in ("influence", "support"))
    by_answer = np.array(entry["by_answer"], dtype=np.float64).reshape(len(items), -1 if len(items) else 0)
    if entry["round"] != number or len({a.shape for a in (items, suggested, decided, influence, support)}) != 1:
        raise ValueError("not this round")
    votes = Votes.of([(str(worker), [item], [label]) for item, worker, label in entry["votes"]])
    known: dict[str, Any] = {k: float("inf") if v is None else v for k, v in entry["diagnostics"].items()}
    diagnostics = SelectionDiagnostics(**known)
    seconds = {str(k): float(v) for k, v in entry["seconds"].items() if k in ("select", "annotate", "aggregate")}
    return LedgerRound(
        Batch(items, suggested, influence, diagnostics, by_answer), votes, Decisions(items, decided, support), seconds
    )


def _cut(path: Path, trailing: int) -> None:
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size - trailing)


def _finite(value: Any) -> Any:
    """JSON knows neither infinity nor NaN: null stands for them."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _plain(value: Any) -> Any:
    """NumPy in JSON; anything else by its name."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else str(value)
