"""Files that a campaign leaves on disk: texts and JSON. Every file appears whole or not at all."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from labelchef.base.files import whole_file

IDENTITY, LEDGER = "campaign.json", "rounds.jsonl"


def write_text(path: Path, text: str) -> None:
    """Write a whole text file."""
    with whole_file(path) as stream:
        stream.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    """NumPy in JSON; anything else by its name."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else str(value)
