"""Files that a campaign leaves on disk: texts, JSON and the model. Every file appears whole or not at all."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from labelchef.domain.arrays import Float64s
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.files import whole_file

IDENTITY, LEDGER = "campaign.json", "rounds.jsonl"


def write_text(path: Path, text: str) -> None:
    """Write a whole text file."""
    with whole_file(path) as stream:
        stream.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")


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


def _plain(value: Any) -> Any:
    """NumPy in JSON; anything else by its name."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else str(value)
