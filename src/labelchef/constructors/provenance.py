"""A trajectory on disk, and whether it is still the right one.

A folder holds the two arrays of a trajectory as .npy files named after their digests, and `provenance.json`, which
names them and says what they belong to: the schedule, the step, the labels (a digest) and the features (a weighted
sum of all rows, with random weights fixed here). The manifest is written last and at once, so a crash leaves
either the old provenance or the new one. Whatever does not fit is refused, never guessed at.
"""

import contextlib
import json
import re
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
from labelchef.engines import RowLabels

MANIFEST = "provenance.json"
_FORMAT = 1
_ROUNDING = 1e-9  # of the sum over features, between machines
_NAMES = {"gradients": re.compile(r"gradients-[0-9a-f]{16}\.npy"), "ends": re.compile(r"ends-[0-9a-f]{16}\.npy")}


def write_provenance(folder: str | Path, trajectory: Trajectory, objective: Objective) -> Path:
    """Write the trajectory that led to the objective's present labels; returns the manifest."""
    folder = Path(folder)
    if len(trajectory.gradients) == 0:
        raise InvalidInputError(
            "this model keeps no gradients; expected one made by constructor 'deltagrad_l'", code="provenance"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stale = _named_files(folder)
        files = {part: _write_array(folder, part, getattr(trajectory, part)) for part in _NAMES}
        manifest = {"format": _FORMAT, "files": files, **_identity(trajectory, objective)}
        with whole_file(folder / MANIFEST) as stream:
            stream.write((json.dumps(manifest, indent=2) + "\n").encode())
        for path in stale - _named_files(folder):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"provenance cannot be written to {folder}: {error.strerror or error}; make room or name another place",
            code="provenance",
        ) from None
    return folder / MANIFEST


def read_provenance(
    folder: str | Path, objective: Objective, schedule: Schedule, rate: float | None, *, memory_limit: int = 1 << 30
) -> Trajectory | None:
    """The trajectory in a folder, None if there is none; refused unless it is whole and belongs to this objective.

    Arrays larger than `memory_limit` bytes are mapped, not read.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).exists():
        return None
    manifest = _manifest(folder)
    D, C = objective.shape
    shapes = {"gradients": (schedule.steps, C - 1, D), "ends": (schedule.epochs + 1, C - 1, D)}
    claimed = Trajectory(
        schedule,
        manifest["rate"] if rate is None else rate,
        manifest["smoothness"],
        objective.l2,
        np.empty((0, C - 1, D), np.float32),
        np.empty((0, C - 1, D)),
    )
    _compare(folder, manifest, _identity(claimed, objective))
    gradients, ends = (
        _read_array(folder, manifest["files"][part], shapes[part], kind, memory_limit)
        for part, kind in (("gradients", np.float32), ("ends", np.float64))
    )
    return Trajectory(schedule, claimed.rate, claimed.smoothness, objective.l2, gradients, ends)


def _identity(trajectory: Trajectory, objective: Objective) -> dict[str, Any]:
    schedule = trajectory.schedule
    return {
        "schedule": asdict(schedule),
        "batches": array_digest(schedule.numbers(0), schedule.numbers(schedule.epochs - 1)),
        "shape": list(objective.shape),
        "rate": trajectory.rate,
        "smoothness": trajectory.smoothness,
        "l2": trajectory.l2,
        "labels": array_digest(objective.labels.Y, objective.labels.weight),
        "features": _sum_over_features(objective).tolist(),
    }


def _sum_over_features(objective: Objective) -> Float64s:
    """Σ c_i x_i with random c_i: no row can change, or change places with another, and leave it as it is."""
    weight = np.random.default_rng(2021).uniform(1.0, 2.0, objective.engine.n_rows)
    first = RowLabels(np.tile([0.0, 1.0], (objective.engine.n_rows, 1)), weight)
    sums = objective.engine.sweep(first, W=np.zeros((1, objective.shape[0])), gradient=True)
    assert sums.gradient is not None
    return np.asarray(sums.gradient[0])


def _compare(folder: Path, stored: dict[str, Any], now: dict[str, Any]) -> None:
    """Name the first thing in which the stored provenance belongs elsewhere."""
    for name in ("schedule", "batches", "shape", "rate", "l2"):
        if stored[name] != now[name]:
            _refuse(folder, f"was made with {name} {stored[name]}; expected {now[name]}")
    if stored["labels"] != now["labels"]:
        _refuse(folder, "was made with other labels or weights than those given; expected the labels it was saved with")
    before, after = stored["features"], np.array(now["features"])
    if before.shape != after.shape or not np.abs(before - after).max() <= _ROUNDING * np.abs(after).max():
        _refuse(folder, "was made with other features; expected those it was saved with")


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest, with everything in it of the kind it should be."""
    try:
        read = json.loads((folder / MANIFEST).read_bytes())
        found = {name: read[name] for name in ("schedule", "batches", "shape", "labels")}
        found |= {name: float(read[name]) for name in ("rate", "smoothness", "l2")}
        found["features"] = np.array(read["features"], dtype=np.float64)
        found["files"] = {part: (str(read["files"][part]["name"]), read["files"][part]["sha256"]) for part in _NAMES}
        sound = read["format"] == _FORMAT and 0 < found["rate"] < np.inf and 0 <= found["smoothness"] < np.inf
        sound = sound and all(pattern.fullmatch(found["files"][part][0]) for part, pattern in _NAMES.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        _refuse(folder, f"has a {MANIFEST} that cannot be read; expected an unaltered file")
    return found


def _named_files(folder: Path) -> set[Path]:
    """The arrays that the manifest in a folder names; nothing else there is ours to remove."""
    with contextlib.suppress(InvalidInputError):
        if (folder / MANIFEST).exists():
            return {folder / name for name, _ in _manifest(folder)["files"].values()}
    return set()


def _write_array(folder: Path, part: str, array: "np.ndarray[Any, Any]") -> dict[str, Any]:
    path = folder / f"{part}-{array_digest(array)[:16]}.npy"
    with whole_file(path) as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return {"name": path.name, "sha256": file_digest(path)}


def _read_array(
    folder: Path, named: tuple[str, str], shape: tuple[int, ...], kind: type, memory_limit: int
) -> "np.ndarray[Any, Any]":
    path = folder / named[0]
    try:
        if file_digest(path) != named[1]:
            _refuse(folder, f"has a {path.name} that was truncated or altered; expected the file as it was written")
        mapped = path.stat().st_size > memory_limit
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError:
        _refuse(folder, f"lacks {path.name}; expected the file as it was written")
    except (OSError, ValueError) as error:
        _refuse(folder, f"has a {path.name} that cannot be read: {error}")
    if array.shape != shape or array.dtype != kind or not array.flags.c_contiguous:
        found = f"{array.dtype} {array.shape}"
        _refuse(folder, f"has a {path.name} of {found}; expected {np.dtype(kind)} {shape} in rows")
    return np.asarray(array)


def _refuse(folder: Path, why: str) -> NoReturn:
    raise InvalidInputError(
        f"the provenance in {folder} {why}. Restore it, or remove the folder to train anew", code="provenance"
    ) from None
