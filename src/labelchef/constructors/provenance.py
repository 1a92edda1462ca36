"""A trajectory on disk, and whether it is still the right one.

A folder holds the two arrays of a trajectory as .npy files named after their digests, and `provenance.json`, which
names them and says what they belong to: the schedule, the step, the labels (a digest) and the data (the gradient of
the objective at zero, which every row and every label has a part in). The manifest is written last and at once, so a
crash leaves either the old provenance or the new one. Whatever does not fit is refused, never guessed at.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from labelchef.constructors.schedule import Schedule
from labelchef.constructors.trajectory import Trajectory
from labelchef.core.objective import Objective
from labelchef.domain.arrays import Float64s
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.files import array_digest, file_digest, whole_file

MANIFEST = "provenance.json"
_FORMAT = 1
_ROUNDING = 1e-6  # between machines, of the gradient at zero
_PARTS = ("gradients", "ends")


def write_provenance(folder: Path, trajectory: Trajectory, objective: Objective) -> Path:
    """Write the trajectory that led to the objective's present labels; returns the manifest."""
    if len(trajectory.gradients) == 0:
        raise InvalidInputError(
            "this model keeps no gradients; expected one made by constructor 'deltagrad_l'", code="provenance"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = {part: _write_array(folder, part, getattr(trajectory, part)) for part in _PARTS}
        manifest = {"format": _FORMAT, "files": files, **_identity(trajectory, objective)}
        with whole_file(folder / MANIFEST) as stream:
            stream.write((json.dumps(manifest, indent=2) + "\n").encode())
        for stale in folder.glob("*.npy"):
            if stale.name not in {named["name"] for named in files.values()}:
                stale.unlink()
    except OSError as error:
        raise InvalidInputError(
            f"provenance cannot be written to {folder}: {error.strerror or error}; make room or name another place",
            code="provenance",
        ) from None
    return folder / MANIFEST


def read_provenance(
    folder: Path, objective: Objective, schedule: Schedule, rate: float | None, *, memory_limit: int = 1 << 30
) -> Trajectory | None:
    """The trajectory in a folder, None if there is none; refused unless it is whole and belongs to this objective.

    Arrays larger than `memory_limit` bytes are mapped, not read.
    """
    if not (folder / MANIFEST).exists():
        return None
    manifest = _manifest(folder)
    found = Trajectory(
        schedule,
        float(manifest["rate"]) if rate is None else rate,
        float(manifest["smoothness"]),
        objective.l2,
        *(_read_array(folder, manifest["files"][part], memory_limit) for part in _PARTS),
    )
    _compare(folder, manifest, _identity(found, objective))
    return found


def _identity(trajectory: Trajectory, objective: Objective) -> dict[str, Any]:
    schedule = trajectory.schedule
    at_zero: Float64s = objective.at(np.zeros(objective.shape)).gradient
    return {
        "schedule": asdict(schedule),
        "batches": array_digest(schedule.numbers(0), schedule.numbers(schedule.epochs - 1)),
        "shape": list(objective.shape),
        "rate": trajectory.rate,
        "smoothness": trajectory.smoothness,
        "l2": trajectory.l2,
        "labels": array_digest(objective.labels.Y, objective.labels.weight),
        "gradient_at_zero": at_zero.reshape(-1).tolist(),
    }


def _compare(folder: Path, stored: dict[str, Any], now: dict[str, Any]) -> None:
    """Name the first thing in which the stored provenance belongs elsewhere."""
    for name in ("schedule", "batches", "shape", "rate", "l2"):
        if stored[name] != now[name]:
            _refuse(folder, f"was made with {name} {stored[name]}; expected {now[name]}")
    if stored["labels"] != now["labels"]:
        _refuse(folder, "was made with other labels or weights than those given; expected the labels it was saved with")
    before, after = np.array(stored["gradient_at_zero"], dtype=np.float64), np.array(now["gradient_at_zero"])
    if before.shape != after.shape or np.abs(before - after).max() > _ROUNDING * np.abs(after).max():
        _refuse(folder, "was made with other features; expected those it was saved with")


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        needed = {
            "format",
            "files",
            "schedule",
            "batches",
            "shape",
            "rate",
            "smoothness",
            "l2",
            "labels",
            "gradient_at_zero",
        }
        if manifest["format"] != _FORMAT or not needed <= set(manifest) or set(manifest["files"]) != set(_PARTS):
            raise ValueError  # noqa: TRY301 (one way out for all that is no manifest)
    except (OSError, ValueError, KeyError, TypeError):
        _refuse(folder, f"has a {MANIFEST} that cannot be read; expected an unaltered file")
    return dict(manifest)


def _write_array(folder: Path, part: str, array: "np.ndarray[Any, Any]") -> dict[str, Any]:
    digest = array_digest(array)
    path = folder / f"{part}-{digest[:16]}.npy"
    with whole_file(path) as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return {"name": path.name, "sha256": file_digest(path)}


def _read_array(folder: Path, named: dict[str, Any], memory_limit: int) -> "np.ndarray[Any, Any]":
    path = folder / Path(str(named["name"])).name
    try:
        if file_digest(path) != named["sha256"]:
            _refuse(folder, f"has a {path.name} that was truncated or altered; expected the file as it was written")
        mapped = path.stat().st_size > memory_limit
        return np.asarray(np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))
    except FileNotFoundError:
        _refuse(folder, f"lacks {path.name}; expected the file as it was written")
    except (OSError, ValueError) as error:
        _refuse(folder, f"has a {path.name} that cannot be read: {error}")


def _refuse(folder: Path, why: str) -> NoReturn:
    raise InvalidInputError(
        f"the provenance in {folder} {why}. Restore it, or remove the folder to train anew", code="provenance"
    ) from None
